"""Bad input: each kind gets one clear line, a non-zero exit, in bounded time, and loses nothing."""

import concurrent.futures
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import support
from tfrun import launch

SINGLE = support.ROOT / "Non-Distributed-Setup" / "non_distributed_setup.py"
HOGWILD = support.ROOT / "HogWild" / "hogwild.py"
EASY = support.ROOT / "DOWNPOUR-Easy" / "downpour_easy.py"
DOWNPOUR = support.ROOT / "DOWNPOUR" / "downpour.py"
AEAMSGD = support.ROOT / "AEAMSGD" / "aeamsgd.py"
SPARSE = support.ROOT / "Sparse-Embeddings" / "sparse_embeddings.py"
SYNCHRONOUS = support.main_script("Synchronous-SGD")
RATES = support.main_script("Synchronous-SGD-different-learning-rates")
PLACES = support.main_script("Model-Parallelism")


def config(cluster=None, job="worker", index=0, **more):
    """A TF_CONFIG as text; the addresses are of the kind that nobody listens at."""
    cluster = cluster or {"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:19", "127.0.0.1:29"]}
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}, **more})


def dataset(folder, **arrays):
    """Writes folder/data.npz: a good data set, but for the arrays given; None leaves one out."""
    good = {
        "x_train": np.ones((8, 3)),
        "y_train": np.arange(8) % 2,
        "x_test": np.ones((4, 3)),
        "y_test": np.arange(4) % 2,
    }
    kept = {name: array for name, array in {**good, **arrays}.items() if array is not None}
    np.savez(folder / "data.npz", **kept)


def nan(folder):
    x = np.ones((8, 3))
    x[3, 1] = np.nan
    dataset(folder, x_train=x)


def truncated(folder):
    dataset(folder)
    whole = (folder / "data.npz").read_bytes()
    (folder / "data.npz").write_bytes(whole[: len(whole) // 2])


def finished(folder):
    (folder / "output").mkdir()
    (folder / "output" / "result.json").write_text("{}")


def file_in_the_way(folder):
    (folder / "output").write_text("something of mine")


def another_chief(folder):
    """Holds the lock until the test's process ends."""
    (folder / "output").mkdir()
    lock = open(folder / "output" / ".chief", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def port_in_use(folder):
    """A program that listens, and does not share its port: its socket, and the TF_CONFIG for it."""
    server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port = server.getsockname()[1]
    tasks = {"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:%d" % port]}
    return server, {"TF_CONFIG": config(tasks)}


def checkpoint(folder, damage=None):
    """Trains 3 steps, and keeps the checkpoint as that of a run that was stopped."""
    trained = run(SINGLE, ["--steps", "3"], folder)
    assert trained.returncode == 0, trained.stderr
    (folder / "output" / "result.json").unlink()
    if damage:
        index = folder / "output" / "model.ckpt-3.index"
        index.write_bytes(damage(index.read_bytes()))


def other_model(folder):
    checkpoint(folder)
    dataset(folder)


def quick(folder, script):
    """A copy of a script that gives up after 2 s instead of 120."""
    text = script.read_text()
    assert text.count("GIVE_UP = 120") == 1
    (folder / script.name).write_text(text.replace("GIVE_UP = 120", "GIVE_UP = 2"))


def ps_without_chief(folder):
    """Starts a ps; the worker of this case is not the chief: its process, and the TF_CONFIG."""
    quick(folder, HOGWILD)
    with socket.create_server(("", 0)) as a, socket.create_server(("", 0)) as b:
        ports = [s.getsockname()[1] for s in (a, b)]
    tasks = {
        "ps": ["127.0.0.1:%d" % ports[0]],
        "worker": ["127.0.0.1:9", "127.0.0.1:%d" % ports[1]],
    }
    ps = subprocess.Popen(
        [sys.executable, folder / "hogwild.py"],
        cwd=folder,
        env={**os.environ, "TF_CONFIG": config(tasks, "ps"), "OUTPUT_DIR": "output"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return ps, {"TF_CONFIG": config(tasks, "worker", 1)}


def one_of_two(folder):
    """The first of two workers, of which the second never comes: its TF_CONFIG."""
    quick(folder, PLACES)
    with socket.create_server(("", 0)) as s:
        tasks = {"worker": ["127.0.0.1:%d" % s.getsockname()[1], "127.0.0.1:9"]}
    return None, {"TF_CONFIG": config(tasks)}


NPZ = ["--dataset", "data.npz"]
TWO = config({"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:0"] * 2})
ONE = config({"worker": ["127.0.0.1:0"]})
# name: (script, flags, TF_CONFIG or None, what prepares the folder, words of the line, exit code)
CASES = {
    "no steps": (SINGLE, ["--steps", "0"], None, None, "--steps: must be at least 1", 2),
    "negative steps": (SINGLE, ["--steps", "-5"], None, None, "--steps: must be at least 1", 2),
    "steps not a number": (SINGLE, ["--steps", "x"], None, None, "--steps: invalid int value", 2),
    "too many steps": (SINGLE, ["--steps", "2147483648"], None, None, "--steps: must be", 2),
    "no batch": (SINGLE, ["--batch-size", "0"], None, None, "--batch-size: must be at least 1", 2),
    "rate of zero": (SINGLE, ["--learning-rate", "0"], None, None, "--learning-rate: must be", 2),
    "rate of NaN": (SINGLE, ["--learning-rate", "nan"], None, None, "--learning-rate: must", 2),
    "no local steps": (EASY, ["--local-steps", "0"], None, None, "--local-steps: must be at", 2),
    "no force": (AEAMSGD, ["--rho", "0"], None, None, "--rho: must be above 0", 2),
    "momentum of one": (AEAMSGD, ["--momentum", "1"], None, None, "--momentum: must be", 2),
    "no rate on the ps": (DOWNPOUR, ["--server-lr", "-1"], None, None, "--server-lr: must be", 2),
    "no accumulator": (
        *(DOWNPOUR, ["--initial-accumulator", "0"], None, None),
        *("--initial-accumulator: must be above 0", 2),
    ),
    "vectors of no numbers": (SPARSE, ["--dimensions", "0"], None, None, "--dimensions: must", 2),
    "no noise": (SPARSE, ["--noise-words", "0"], None, None, "--noise-words: must be at", 2),
    "negative backup": (
        *(SYNCHRONOUS, ["--backup-workers", "-1"], None, None),
        *("--backup-workers: must be at least 0", 2),
    ),
    "too many backup workers": (
        *(SYNCHRONOUS, ["--backup-workers", "2"], TWO, None),
        *("--backup-workers must be below the number of workers, 2", 2),
    ),
    "negative warm-up": (SYNCHRONOUS, ["--warmup-steps", "-1"], None, None, "--warmup-steps: m", 2),
    "no patience": (SYNCHRONOUS, ["--patience", "0"], None, None, "--patience: must be at", 2),
    "a rate of zero among others": (
        *(RATES, ["--learning-rates", "0.1,0"], None, None),
        *("--learning-rates: must be above 0", 2),
    ),
    "a rate that is no number": (
        *(RATES, ["--learning-rates", "0.1;0.2"], None, None),
        *("--learning-rates: invalid rates value", 2),
    ),
    "no micro-batch": (PLACES, ["--micro-batches", "0"], None, None, "--micro-batches: must", 2),
    "micro-batches that are not equal": (
        *(PLACES, ["--micro-batches", "5"], ONE, None),
        *("--batch-size 32 cannot be cut into 5 equal parts (--micro-batches)", 2),
    ),
    "no device": (PLACES, ["--devices", "0"], None, None, "--devices: must be at least 1", 2),
    "more places than layers": (
        *(PLACES, ["--devices", "4"], ONE, None),
        *("The model has 3 layers, too few for 4 places, workers times --devices", 2),
    ),
    "a ps where there is none": (PLACES, [], config(job="ps"), None, "TF_CONFIG must be JSON", 2),
    "endless rate": (SINGLE, ["--learning-rate", "inf"], None, None, "--learning-rate: must", 2),
    "a rate that is too high": (
        *(SINGLE, ["--learning-rate", "1e9", "--steps", "9"], None, None),
        "a lower --learning-rate may help",
        1,
    ),
    "negative seed": (SINGLE, ["--seed", "-1"], None, None, "--seed: must be at least 0", 2),
    "no checkpoints": (
        SINGLE,
        ["--checkpoint-steps", "0"],
        None,
        None,
        "--checkpoint-steps: mu",
        2,
    ),
    "unknown flag": (SINGLE, ["--stepz", "3"], None, None, "--stepz", 2),
    "shortened flag": (SINGLE, ["--step", "3"], None, None, "--step", 2),
    "no TF_CONFIG": (HOGWILD, [], None, None, "TF_CONFIG is not set", 2),
    "not JSON": (HOGWILD, [], "{", None, "TF_CONFIG must be JSON", 2),
    "JSON of another form": (HOGWILD, [], "[1]", None, "TF_CONFIG must be JSON", 2),
    "no task": (HOGWILD, [], '{"cluster": {"ps": ["a:1"]}}', None, "KeyError: 'task'", 2),
    "a task too many": (HOGWILD, [], config(index=9), None, "TF_CONFIG must be JSON", 2),
    "negative task": (HOGWILD, [], config(index=-1), None, "TF_CONFIG must be JSON", 2),
    "unknown job": (HOGWILD, [], config(job="boss"), None, "TF_CONFIG must be JSON", 2),
    "no ps": (HOGWILD, [], config({"worker": ["a:1"]}), None, "TF_CONFIG must list a ps", 2),
    "no worker": (HOGWILD, [], config({"ps": ["a:1"]}, "ps"), None, "TF_CONFIG must list a ps", 2),
    "no port": (
        HOGWILD,
        [],
        config({"ps": ["a"], "worker": ["b:1"]}),
        None,
        "TF_CONFIG must be",
        2,
    ),
    "port in use": (HOGWILD, [], None, port_in_use, "cannot listen at 127.0.0.1", 1),
    "a ps that never comes": (
        *("hogwild.py", [], config()),
        lambda folder: quick(folder, HOGWILD),
        "ps 0 did not answer at 127.0.0.1:9 for 2 s",
        1,
    ),
    "a chief that never comes": (
        *("hogwild.py", [], None, ps_without_chief),
        "the chief did not make the model in 2 s",
        1,
    ),
    "a worker that never comes": (
        *("model_parallelism.py", [], None, one_of_two),
        "worker 1 did not answer at 127.0.0.1:9",
        1,
    ),
    "finished run": (SINGLE, [], None, finished, "There is a finished run in output", 0),
    "another chief": (SINGLE, [], None, another_chief, "Another chief trains in output", 2),
    "output is a file": (SINGLE, [], None, file_in_the_way, "Cannot write (File exists)", 2),
    "checkpoint of another model": (
        SINGLE,
        NPZ,
        None,
        other_model,
        "checkpoint of another model",
        2,
    ),
    "broken checkpoint": (
        *(SINGLE, [], None, lambda folder: checkpoint(folder, lambda whole: whole[:40])),
        "cannot be read",
        2,
    ),
    "no data file": (SINGLE, NPZ, None, None, "data.npz is neither", 2),
    "truncated data file": (SINGLE, NPZ, None, truncated, "data.npz is neither", 2),
    "an array is missing": (SINGLE, NPZ, None, lambda f: dataset(f, y_test=None), "y_test", 2),
    "NaN in the data": (SINGLE, NPZ, None, nan, "finite numbers", 2),
    "rows that do not match": (
        *(SINGLE, NPZ, None, lambda f: dataset(f, y_train=np.arange(7) % 2)),
        "they are [8, 3] and [7]",
        2,
    ),
    "features that do not match": (
        *(SINGLE, NPZ, None, lambda f: dataset(f, x_test=np.ones((4, 5)))),
        "the same number of features",
        2,
    ),
    "negative label": (
        SINGLE,
        NPZ,
        None,
        lambda f: dataset(f, y_train=np.arange(8) - 1),
        "from 0",
        2,
    ),
    "label unknown to training": (
        SINGLE,
        NPZ,
        None,
        lambda f: dataset(f, y_test=np.arange(4)),
        "none above",
        2,
    ),
    "labels with a point": (
        SINGLE,
        NPZ,
        None,
        lambda f: dataset(f, y_train=np.ones(8)),
        "whole",
        2,
    ),
    "no rows": (
        SINGLE,
        NPZ,
        None,
        lambda f: dataset(f, x_test=np.ones((0, 3)), y_test=[]),
        "rows",
        2,
    ),
    "fewer rows than workers": (
        *(HOGWILD, NPZ, config({"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:0"] * 9})),
        dataset,
        "8 rows, fewer than workers (9)",
        2,
    ),
}


def run(script, flags, folder, **env):
    """Runs a script in `folder`, which becomes the place of its OUTPUT_DIR too."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TF_CONFIG", "TFRUN_TIMEOUT")
    }
    return subprocess.run(
        [sys.executable, folder / script, *flags],
        cwd=folder,
        env={**plain, "OUTPUT_DIR": "output", **env},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def said(process):
    """The lines of standard error that are not TensorFlow's start-up notices."""
    lines = process.stderr.splitlines()
    return [line for line in lines if line.strip() and not launch.NOISE.match(line.encode())]


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".chief"]
    return {path: path.read_bytes() for path in files}


def problem(case, folder, run):
    """What is wrong with how a case ends; None when all is as it should be. run: how to run it."""
    script, flags, tf_config, prepare, words, code = CASES[case]
    folder.mkdir()
    env, held = {"TF_CONFIG": tf_config} if tf_config else {}, None
    prepared = prepare(folder) if prepare else None
    if isinstance(prepared, tuple):
        held, env = prepared
    before = contents(folder)
    try:
        began = time.monotonic()
        process = run(script, flags, folder, **env)
        took = time.monotonic() - began
    finally:
        if isinstance(held, subprocess.Popen):
            held.kill()
            held.wait()
    lines = said(process)
    after = contents(folder)
    if process.returncode != code or len(lines) != 1 or words not in lines[0]:
        return "%s: exit %d, %d lines: %s" % (case, process.returncode, len(lines), process.stderr)
    if took > 30:
        return "%s: took %.0f s" % (case, took)
    if any(after.get(path) != text for path, text in before.items()):
        return "%s: changed what was there" % case
    return None


@pytest.mark.timeout(400)
def test_each_kind_gets_one_clear_line(tmp_path):
    assert len(CASES) >= 40
    # Those that start a server, or wait, have a process of their own.
    alone = [case for case, (script, *_) in CASES.items() if isinstance(script, str)]
    alone.append("a rate that is too high")
    assert len(alone) >= 2
    places = {case: tmp_path / ("case %d" % number) for number, case in enumerate(CASES)}
    with support.Zygote() as zygote, concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(problem, case, places[case], run) for case in alone]
        problems = [problem(case, places[case], zygote.run) for case in CASES if case not in alone]
        problems += [future.result() for future in slow]
    problems = list(filter(None, problems))
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_data_sets_without_a_network(name, tmp_path):
    script = "import sys, runpy; from tfrun import isolate; isolate.enter(); del sys.argv[0]; "
    process = support.python(
        script + "runpy.run_path(sys.argv[0], run_name='__main__')",
        str(SINGLE),
        *("--dataset", name),
        KERAS_HOME=str(tmp_path / "keras"),
        OUTPUT_DIR=str(tmp_path / "output"),
        PYTHONPATH=str(support.ROOT),
    )
    lines = said(process)
    assert process.returncode == 2 and len(lines) == 1, process.stderr
    assert (
        "--dataset %s cannot be fetched" % name in lines[0]
        and "digits needs no network" in lines[0]
    )


def test_a_full_disk(tmp_path):
    """In a small file system of its own: one line, and the last checkpoint is whole."""
    code = """
import pathlib, shutil, subprocess, sys
folder, script = pathlib.Path(sys.argv[1]), sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", folder], check=True)
trained = subprocess.run([sys.executable, script, "--steps", "100000", "--checkpoint-steps", "100"],
                         text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=60)
print(trained.returncode, file=sys.stderr)
print(trained.stderr, file=sys.stderr)
shutil.copytree(folder, sys.argv[3])
"""
    if shutil.which("unshare") is None:
        pytest.fail("unshare (util-linux) is needed")
    (tmp_path / "small").mkdir()
    process = subprocess.run(
        [
            "unshare",
            "-Urm",
            sys.executable,
            "-c",
            code,
            tmp_path / "small",
            SINGLE,
            tmp_path / "kept",
        ],
        env={**os.environ, "OUTPUT_DIR": str(tmp_path / "small")},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert process.returncode == 0, process.stderr
    lines = said(process)
    assert lines[0] == "1" and len(lines) == 2, process.stderr
    assert "Cannot write in %s" % (tmp_path / "small") in lines[1]
    assert "goes on from the last checkpoint" in lines[1]

    # The same command, where there is room, goes on.
    begun = max(
        int(path.stem.split("-")[1]) for path in (tmp_path / "kept").glob("model.ckpt-*.index")
    )
    assert begun >= 100
    process = run(SINGLE, ["--steps", str(begun + 50)], tmp_path, OUTPUT_DIR=str(tmp_path / "kept"))
    assert process.returncode == 0, process.stderr
    assert support.result(tmp_path / "kept")["pushes_per_worker"][0] <= 250
