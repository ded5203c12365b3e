"""Every example through its run.sh, found by walking the tree."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import support
from lab import examples
from tfrun.runs.data import RunData

LAUNCHERS = support.launchers()
CLUSTERS = [path for path in LAUNCHERS if examples.kind_of(examples.script_of(path)) != "driver"]


def of_words(launcher):
    """Whether what it trains are word vectors."""
    text = examples.script_of(launcher).read_text()
    return "# region: words" in text or "# region: text" in text


def name(path):
    return f"{path.parent.relative_to(support.ROOT)}/{path.name}"


def test_every_folder_is_seen():
    folders = {path.parent for path in LAUNCHERS}
    beside = [path for folder in folders for path in folder.glob("*.py")]
    there = {path for path in beside if "\nKind: " in path.read_text()}
    assert there == {examples.script_of(path) for path in LAUNCHERS}, "a script without its run.sh"
    assert len(folders) >= 4
    for folder in folders:
        assert (folder / "README.md").is_file(), folder


def steps_of(script):
    """How many updates it makes by default."""
    return int(re.search(r"(?m)^STEPS, .* = (\d+), ", script.read_text())[1])


def run_and_check(launcher, directory, steps=None):
    """Runs a run.sh, and looks at all that it leaves; returns (its result.json, its output)."""
    flags = ["--steps", str(steps)] if steps else []
    with support.ThreadCounts(directory) as threads:
        # RECORDS is Train-and-Evaluate's.
        records = str(directory / "my-records")
        code, output, ports = support.launch(launcher, directory, *flags, RECORDS=records)
    assert code == 0, output
    script, result = examples.script_of(launcher), support.result(directory)
    steps = steps or steps_of(script)

    # The updates: exactly as many as asked for, each counted once, shared by all workers.
    assert result["steps"] == steps
    assert len(result["pushes_per_worker"]) == result["workers"]
    pushes, numbers = support.pushes(directory), list(range(1, steps + 1))
    if script.stem == "synchronous_sgd_optimizer":  # where one worker may push for another
        assert {row["global_step"] for row in pushes} == set(numbers)
    elif support.counts_alone(script):
        assert result["pushes_per_worker"] == [steps] * result["workers"]
        assert not support.synchronous(script) or not any(result["late_per_worker"])
        assert sorted(row["global_step"] for row in pushes) == sorted(numbers * result["workers"])
    elif examples.kind_of(script) == "model parallel":  # one client makes all
        assert result["pushes_per_worker"] == [steps]
        assert [row["global_step"] for row in pushes] == numbers
    else:
        assert sum(result["pushes_per_worker"]) == steps
        assert min(result["pushes_per_worker"]) >= 1, result["pushes_per_worker"]
        assert sorted(row["global_step"] for row in pushes) == numbers

    # An update leaves no thread behind: one for each would be 60 or more from fifth to fifth of the
    # last two thirds of a run. A short run shows nothing: pools grow late on a busy machine.
    if steps >= 1000:
        times = [task.pushes["push_time"] for task in RunData.read(directory).tasks.values()]
        every = np.concatenate(times)
        began = max(np.quantile(every, 1 / 3), *(stamps.min() for stamps in times if stamps.size))
        assert threads.growth(every[every >= began]) < 10

    # It learned; word vectors have learned early that most pairs are noise, and little more.
    losses = [row["loss"] for row in pushes]
    assert sum(losses[-20:]) < (0.8 if of_words(launcher) else 0.6) * sum(losses[:20]), losses

    # It left what it should, and nothing else.
    assert (directory / "curves.png").stat().st_size > 10000
    assert list(directory.glob("tensorboard/*/events.out.tfevents.*"))
    assert list(directory.glob("model.ckpt-*.index"))
    assert not (directory / "stop").exists() and not list(directory.glob("events*"))
    last = [line for line in output.splitlines() if line.startswith("[tfrun] ")][-1]
    assert str(directory) in last and "test accuracy" in last
    assert not support.processes_of(directory)
    if "TF_CONFIG" in script.read_text():
        assert ports and not support.listening_ports(ports)
    return result, output


LISTEN = """import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
input()"""


@pytest.mark.parametrize("worker, is_left", [("gw0", True), (None, True), ("gw1", False)])
def test_a_port_that_a_run_has_left_open(worker, is_left, monkeypatch):
    """Catches a check that passes over a listener, or one that blames a run for another's port."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    env = {**os.environ, "PYTEST_XDIST_WORKER": worker or ""}
    if not worker:
        del env["PYTEST_XDIST_WORKER"]
    command = [sys.executable, "-c", LISTEN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            port = int(process.stdout.readline())
            assert support.listening_ports([port]) == [port] * is_left
        finally:
            process.kill()


# Of HogWild, core has the whole run; of a second run.sh, only the equation.
FIRST = [path for path in CLUSTERS if path.name == "run.sh" and not support.needs_build(path)]
SHORT = [path for path in FIRST if path.parent.name != "HogWild"]


@pytest.mark.short
@pytest.mark.parametrize("launcher", SHORT, ids=name)
def test_a_short_run(launcher, tmp_path):
    words = of_words(launcher)  # which learn later
    result, _ = run_and_check(launcher, tmp_path, 300 if words else 100)
    assert result["test_accuracy"] > (0.45 if words else 0.5)


@pytest.mark.parametrize("launcher", support.core_first(CLUSTERS))
def test_a_run_learns(launcher, tmp_path):
    """Each run.sh as it is: at least 97% on the test set of the digits.

    For word vectors at least 63%: pairs of true neighbours are told from noise; 50% is guessing.
    """
    result, output = run_and_check(launcher, tmp_path)
    assert result["test_accuracy"] >= (0.63 if of_words(launcher) else 0.97)
    if launcher.parent.name == "Sparse-Embeddings":
        check_what_embeddings_say(launcher, output)
    if launcher.parent.name == "Train-and-Evaluate":
        check_the_exported_model(tmp_path, output)


def check_what_embeddings_say(launcher, output):
    """Neighbours of words, the baseline, and the bytes of an update, which the page's table has."""
    assert len(re.findall(r"(?m)^\[worker 0\] \w+ +is near (?:\w+, ){4}\w+$", output)) == 8
    assert "knows only how frequent words are has accuracy 50%, loss 2.703" in output
    moved, whole = re.search(
        r"moved (\d+) KB of rows; whole tables would be (\d+) KB", output
    ).groups()
    lines = json.loads((launcher.parent / "vocabulary.json").read_text())
    line = next(row for row in lines if row["batch_size"] == 256)  # of the text itself
    assert abs(int(moved) - line["bytes"] / 1e3) < 0.05 * int(moved), line
    # The text grows a little from Python to Python.
    assert abs(int(whole) - line["whole_bytes"] / 1e3) < 0.2 * int(whole), line


def check_the_exported_model(directory, output):
    """It is the best one: its client is right as often as the evaluator was with its checkpoint.

    Both have read the files where RECORDS says.
    """
    assert (directory / "my-records" / "records.json").exists()
    tests = RunData.read(directory).rows("tests", "evaluator-0")
    best = max(tests, key=lambda test: test["test_accuracy"])  # the first of equals
    right, number = map(int, re.search(r"right: (\d+) of (\d+)", output).groups())
    assert right / number == pytest.approx(best["test_accuracy"], abs=1e-4), output
    checkpoint = "model.ckpt-%d" % best["global_step"]
    assert f"exported {directory / 'best' / checkpoint}" in output
    assert {path.stem for path in (directory / "best").iterdir()} == {checkpoint}


DRIVERS = [path for path in LAUNCHERS if path not in CLUSTERS]
ANYWAY = "--anyway"  # other tests run beside
FEWEST = ["--seconds", "0.2", "--seeds", "1", ANYWAY]
FEW = {  # the flags with which a driver measures little
    "Compare": [
        *("Non-Distributed-Setup --learning-rate 0.3", "ADAG --local-steps 5 --learning-rate 1"),
        *("--task", "digits", *FEWEST),
    ],
    "Benchmarks": ["--quick", "--only", "Strategy (1 a closure)", ANYWAY],
    "Ring-Bandwidth": ["--megabytes", "0.1", "--workers", "2", "--repeats", "1", ANYWAY],
    "Scale-Laboratory": ["--workers", "4"],
    "Lines-Changed": ["--only", "a ps"],
    "Scaling": ["--batches", "100", "--only", "4 workers, one slow: DynSGD", ANYWAY],
    "Compression": ["--updates", "60", "--only", "sign", ANYWAY],
    "Staleness": ["--updates", "60", "--only", "one slow, no bound", ANYWAY],
    "Same-Staleness": ["--updates", "60", "--only", "same rate: 8 workers, CV 0", ANYWAY],
    "Slow-Network": ["--only", "1000 Mbit/s: Ring-AllReduce", ANYWAY],
    "One-Step": ["--workers", "2", "--only", "SyncReplicasOptimizer"],
    "Packing": ["--steps", "5", "--repeats", "1", "--only", "4 MB", ANYWAY],
    "Pipeline": ["--micro-batches", "4", "--updates", "2", "--repeats", "1", ANYWAY],
    "Fault-Tolerance": ["--list"],
    "Parameter-Server-Strategy": ["--repeats", "1", "--steps", "600"],
    "Synchronous-SGD": ["--seeds", "1", "--examples", "2048"],
    "Synchronous-SGD-different-learning-rates": ["--seeds", "1", "--steps", "20"],
    "Your-Model": ["--help"],  # test_your_model.py has a run
}
# Of a driver, where it has others than `long`.
MARKS = {
    "Slow-Network": [pytest.mark.long, pytest.mark.needs("root", "ip")],
    "Lines-Changed": [pytest.mark.nightly],  # 70 s for programs that nothing else uses
    # Half a minute each, for what tests/measurements computes from small numbers.
    "Benchmarks": [pytest.mark.nightly],
    "Pipeline": [pytest.mark.nightly],
}


@pytest.mark.parametrize(
    "launcher",
    [pytest.param(path, marks=MARKS.get(path.parent.name, [pytest.mark.long])) for path in DRIVERS],
    ids=name,
)
def test_a_driver(launcher, tmp_path):
    assert launcher.parent.name in FEW, "add the flags with which this driver measures little"
    few = FEW[launcher.parent.name]
    code, output, _ = support.launch(launcher, tmp_path, *few, WITHOUT_PYTORCH="1")
    assert code == 0, output
    assert not support.processes_of(tmp_path)
    if launcher.parent.name == "One-Step":  # each other example has a test of its own of its step
        assert len(re.findall(r"(?m)^ \w+ +2 +\d\.\de-\d\d +\d\.\de-\d\d", output)) == 1, output


def test_what_the_drivers_change_is_there():
    """Catches a script that has changed under a measurement, which then measures something else."""
    benchmarks, compare, packing, pipeline, same, scaling, slow, staleness = (
        examples.load(examples.main_script(f"Measurements/{name}"))
        for name in (
            *("Benchmarks", "Compare", "Packing", "Pipeline"),
            *("Same-Staleness", "Scaling", "Slow-Network", "Staleness"),
        )
    )
    cases = [(pipeline.SCRIPT, changes) for changes in (pipeline.WIDE_LAYERS, pipeline.LATE_LAYERS)]
    cases.append(
        (packing.SCRIPT, [(packing.LAYERS, packing.WIDE_LAYERS), (packing.GRADIENTS, packing.WAIT)])
    )
    cases += [
        (examples.main_script(folder), changes)
        for folder, changes, *_ in benchmarks.EXAMPLES.values()
    ]
    cases += [
        (scaling.script_of(name), scaling.delays.changes("constant", scaling.MEAN, 2, 0))
        for name in (*scaling.COMPARED, *scaling.ASYNCHRONOUS)
    ]
    cases += [
        (examples.main_script(folder), [*changes, *slow.WIDE_MODEL])
        for folder, _, _, changes in slow.PROGRAMS.values()
    ]
    cases += [
        (examples.main_script(name), scaling.delays.changes("constant", scaling.MEAN, 2, 0))
        for name in sorted({case.example for case in staleness.all_cases()})
    ]
    cases += [(examples.main_script(name), compare.CONVOLUTIONAL) for name in compare.QUICK_ROWS]
    rounds = {compare.folder_of(name) for name in compare.ROUND_ROWS}
    cases += [(examples.main_script(name), [compare.one_run.ONE_PASS]) for name in rounds]
    paused = [same.search_of(2, 0.1, place, 0.5) for place in (None, same.PULL, same.PUSH)]
    cases += [(examples.main_script(same.EXAMPLE), same.changes_of(case, 0)) for case in paused]
    for script, changes in cases:
        assert examples.replaced(script, changes) != script.read_text() or not changes
    assert len(cases) == 15 + 12 + 3 + len(slow.PROGRAMS) + 4 + 2 + len(compare.QUICK_ROWS)


@pytest.mark.long
def test_a_run_with_two_ps_and_four_workers_learns(tmp_path):
    """At least 93% in a fifth of the steps, of four mini-batches each.

    test_where_everything_is has all examples with two ps.
    """
    launcher = support.ROOT / "Synchronous-SGD" / "run.sh"
    few = str(steps_of(examples.script_of(launcher)) // 5)
    code, output, _ = support.launch(launcher, tmp_path, "--steps", few, PS="2", WORKERS="4")
    assert code == 0, output
    result = support.result(tmp_path)
    assert (result["ps"], result["workers"]) == (2, 4)
    assert result["test_accuracy"] >= 0.93, output
    assert min(result["pushes_per_worker"]) >= 1, result["pushes_per_worker"]
    shards = list(tmp_path.glob("model.ckpt-%d.data-*" % result["steps"]))
    assert len(shards) == 2, "one part of the checkpoint from each ps"


@pytest.mark.long
def test_distributed_is_non_distributed(tmp_path):
    """One worker and a ps compute, to the last bit, what one process does."""
    flags, losses = ["--steps", "50", "--seed", "3"], []
    one_thread = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    for folder in ("Non-Distributed-Setup", "Distributed-Setup"):
        launcher, directory = support.ROOT / folder / "run.sh", tmp_path / folder
        code, output, _ = support.launch(launcher, directory, *flags, **one_thread)
        assert code == 0, output
        losses.append([row["loss"] for row in support.pushes(directory)])
    assert len(losses[0]) == 50 and losses[0] == losses[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, id="Ctrl-C"), pytest.param(signal.SIGKILL, id="kill -9")],
)
def test_nothing_is_left_of_a_stopped_run(number, tmp_path):
    """In the middle of training, through run.sh, which has become tfrun by then.

    Each task has a process that imports TensorFlow by itself.
    """
    launcher = support.ROOT / "HogWild" / "run.sh"
    process = subprocess.Popen(
        ["bash", launcher, "--steps", "100000"],
        start_new_session=True,
        env=support.environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("test_accuracy" in line for line in process.stdout), "it did not begin to train"
        ports = support.ports_of(support.processes_of(tmp_path))
        assert len(ports) == 3 and len(support.listening_ports(ports)) == 1, "only the ps listens"
        process.send_signal(number)
        support.wait_until(
            lambda: not support.processes_of(tmp_path) and not support.listening_ports(ports),
            10,
            "gone",
        )
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
