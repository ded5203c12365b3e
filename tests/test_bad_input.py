"""Bad input: a script raises, in bounded time, and loses nothing; tfrun has an explanation."""

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
from tfrun import errors

SINGLE = support.ROOT / "Non-Distributed-Setup" / "non_distributed_setup.py"
HOGWILD = support.ROOT / "HogWild" / "hogwild.py"
EASY = support.ROOT / "DOWNPOUR-Easy" / "downpour_easy.py"
DOWNPOUR = support.ROOT / "DOWNPOUR" / "downpour.py"
AEAMSGD = support.ROOT / "AEAMSGD" / "aeamsgd.py"
SPARSE = support.ROOT / "Sparse-Embeddings" / "sparse_embeddings.py"
SYNCHRONOUS = support.main_script("Synchronous-SGD")
PLACES = support.main_script("Model-Parallelism")
RATES = support.main_script("Synchronous-SGD-different-learning-rates")
COORDINATOR = support.main_script("Parameter-Server-Strategy")


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
    assert (folder / "output" / "model.ckpt-3.index").exists()
    if damage:
        index = folder / "output" / "model.ckpt-3.index"
        index.write_bytes(damage(index.read_bytes()))


def other_model(folder):
    checkpoint(folder)
    dataset(folder)


def quick(folder, script):
    """A copy of a script that waits 2 s instead of 120 for a peer that it needs."""
    text = support.replaced(script, [("REQUIRED_WAIT_SECONDS = 120", "REQUIRED_WAIT_SECONDS = 2")])
    (folder / script.name).write_text(text)


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
ONE = config({"worker": ["127.0.0.1:0"]})
TWO = config({"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:0"] * 2})


def flag(script, name, value, words, tf_config=None):
    return script, [name, value], tf_config, None, "argument %s: %s" % (name, words), 2


def task(tf_config, words):
    return HOGWILD, [], tf_config, None, words, 1


def data(words, **arrays):
    return SINGLE, NPZ, None, lambda folder: dataset(folder, **arrays), words, 1


# name: (script, flags, TF_CONFIG or None, what prepares the folder, words of the error, exit code)
CASES = {
    "no steps": flag(SINGLE, "--steps", "0", "must be at least 1"),
    "negative steps": flag(SINGLE, "--steps", "-5", "must be at least 1"),
    "steps not a number": flag(SINGLE, "--steps", "x", "invalid int value"),
    "too many steps": flag(SINGLE, "--steps", "2147483648", "must be"),
    "no batch": flag(SINGLE, "--batch-size", "0", "must be at least 1"),
    "rate of zero": flag(SINGLE, "--learning-rate", "0", "must be above 0"),
    "rate of NaN": flag(SINGLE, "--learning-rate", "nan", "must be above 0"),
    "endless rate": flag(SINGLE, "--learning-rate", "inf", "must be above 0"),
    "no local steps": flag(EASY, "--local-steps", "0", "must be at least 1"),
    "no force": flag(AEAMSGD, "--rho", "0", "must be above 0"),
    "momentum of one": flag(AEAMSGD, "--momentum", "1", "must be"),
    "no rate on the ps": flag(DOWNPOUR, "--server-lr", "-1", "must be above 0"),
    "no accumulator": flag(DOWNPOUR, "--initial-accumulator", "0", "must be above 0"),
    "vectors of no numbers": flag(SPARSE, "--dimensions", "0", "must be at least 1"),
    "no noise": flag(SPARSE, "--noise-words", "0", "must be at least 1"),
    "negative backup": flag(SYNCHRONOUS, "--backup-workers", "-1", "must be at least 0"),
    "too many backup workers": (
        *(SYNCHRONOUS, ["--backup-workers", "2"], TWO, None),
        *("--backup-workers", 1),
    ),
    "negative warm-up": flag(SYNCHRONOUS, "--warmup-steps", "-1", "must be at least 0"),
    "no time for a step": flag(SYNCHRONOUS, "--step-timeout", "0", "must be at least 1"),
    "a rate of zero among others": flag(RATES, "--learning-rates", "0.1,0", "must be above 0"),
    "a rate that is no number": flag(RATES, "--learning-rates", "0.1;0.2", "invalid"),
    "no micro-batch": flag(PLACES, "--micro-batches", "0", "must be at least 1"),
    "micro-batches that are not equal": (
        *(PLACES, ["--micro-batches", "5"], ONE, None),
        *("cannot be cut into 5 equal parts", 1),
    ),
    "no device": flag(PLACES, "--devices", "0", "must be at least 1"),
    "more devices than layers": (
        *(PLACES, ["--devices", "4"], ONE, None),
        *("layers, too few for 4", 1),
    ),
    "a ps where there is none": (PLACES, [], config(job="ps"), None, "ps", 1),
    "a rate that is too high": (
        *(SINGLE, ["--learning-rate", "1e9", "--steps", "9"], None, None),
        *("loss is", 1),
    ),
    "negative seed": flag(SINGLE, "--seed", "-1", "must be at least 0"),
    "no checkpoints": flag(SINGLE, "--checkpoint-steps", "0", "must be at least 1"),
    "unknown flag": (SINGLE, ["--stepz", "3"], None, None, "--stepz", 2),
    "shortened flag": (SINGLE, ["--step", "3"], None, None, "--step", 2),
    "no TF_CONFIG": task(None, "TF_CONFIG must list a ps"),
    "not JSON": task("{", "JSONDecodeError"),
    "JSON of another form": task("[1]", "Error"),
    "no task": task('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}', "None"),
    "a task too many": task(config(index=9), "9"),
    "negative task": task(config(index=-1), "-1"),
    "unknown job": task(config(job="boss"), "boss"),
    "no ps": task(config({"worker": ["a:1"]}), "TF_CONFIG must list a ps"),
    "no steps in a closure": flag(COORDINATOR, "--closure-steps", "0", "must be at least 1"),
    "no chief": (COORDINATOR, [], config(), None, "TF_CONFIG must list a ps", 1),
    "no worker": task(config({"ps": ["a:1"]}, "ps"), "TF_CONFIG must list a ps"),
    "no port": (
        *("hogwild.py", [], config({"ps": ["a"], "worker": ["b:1"]}, "ps")),
        *(lambda folder: quick(folder, HOGWILD), "port", 1),
    ),
    "port in use": (HOGWILD, [], None, port_in_use, "Could not start gRPC server", 1),
    "a ps that never comes": (
        *("hogwild.py", [], config()),
        lambda folder: quick(folder, HOGWILD),
        "ps 0 did not answer at 127.0.0.1:9 in 2 s",
        1,
    ),
    "a chief that never comes": (
        *("hogwild.py", [], None, ps_without_chief),
        "the chief made no model in 2 s",
        1,
    ),
    "a worker that never comes": (
        *("model_parallelism.py", [], None, one_of_two),
        "worker 1 did not answer at 127.0.0.1:9",
        1,
    ),
    "another chief": (SINGLE, [], None, another_chief, "BlockingIOError", 1),
    "output is a file": (SINGLE, [], None, file_in_the_way, "File exists", 1),
    "checkpoint of another model": (SINGLE, NPZ, None, other_model, "incompatible", 1),
    "broken checkpoint": (
        *(SINGLE, [], None, lambda folder: checkpoint(folder, lambda whole: whole[:40])),
        "sstable",
        1,
    ),
    "no data file": (SINGLE, NPZ, None, None, "No such file or directory: 'data.npz'", 1),
    "truncated data file": (SINGLE, NPZ, None, truncated, "File is not a zip file", 1),
    "an array is missing": data("y_test is not a file in the archive", y_test=None),
    "NaN in the data": (SINGLE, NPZ, None, nan, "x must be finite numbers", 1),
    "rows that do not match": data("do not fit", y_train=np.arange(7) % 2),
    "features that do not match": data("do not fit", x_test=np.ones((4, 5))),
    "no rows": data("do not fit", x_test=np.ones((0, 3)), y_test=np.ones(0, int)),
    "negative label": data("outside the valid range", y_train=np.arange(8) - 1),
    "label unknown to training": data("outside the valid range", y_test=np.arange(4)),
    "labels with a point": data("y whole ones", y_train=np.ones(8)),
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


def contents(folder):
    """{file: what is in it}, but for the lock and the flags, which each attempt writes anew."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    files = [path for path in files if path.name not in (".chief", "flags.json")]
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
    after = contents(folder)
    if process.returncode != code or words not in process.stderr:
        return "%s: exit %d: %s" % (case, process.returncode, process.stderr)
    if not errors.explain(process.stderr):
        return "%s: not explained: %s" % (case, process.stderr)
    if took > support.patience(30):
        return "%s: took %.0f s" % (case, took)
    if any(not after.get(path, b"").startswith(text) for path, text in before.items()):
        return "%s: changed what was there" % case
    print("%s:\n  %s" % (case, errors.explain(process.stderr)))
    return None


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_kind_is_raised_and_explained(tmp_path):
    assert len(CASES) >= 40
    # Those that start a server, or wait, have a process of their own.
    alone = [case for case, (script, *_) in CASES.items() if isinstance(script, str)]
    alone += ["a rate that is too high", "port in use"]
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
    assert process.returncode == 1, process.stderr
    assert "digits, which needs no network" in errors.explain(process.stderr)


@pytest.mark.long
def test_a_full_disk(tmp_path):
    """In a small file system of its own: it ends with an error; the last checkpoint is whole."""
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
    assert "1" in process.stderr.splitlines(), process.stderr
    assert errors.explain(process.stderr).startswith("The disk is full"), process.stderr

    # The same command, where there is room, goes on.
    begun = max(
        int(path.stem.split("-")[1]) for path in (tmp_path / "kept").glob("model.ckpt-*.index")
    )
    assert begun >= 100
    process = run(SINGLE, ["--steps", str(begun + 50)], tmp_path, OUTPUT_DIR=str(tmp_path / "kept"))
    assert process.returncode == 0, process.stderr
    steps = [row["global_step"] for row in support.pushes(tmp_path / "kept")]
    assert steps[-1] == begun + 50 and steps.count(begun + 50) <= 2
