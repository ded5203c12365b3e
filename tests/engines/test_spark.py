"""Spark-Cluster: an example on a real standalone cluster of Spark, and what is killed there."""

import json
import os
import re
import signal
import subprocess
import sys

import engines
import psutil
import pytest
import support
from lab import examples

HERE = engines.FOLDER / "Spark-Cluster"
LAUNCH, STANDALONE, KILLS = HERE / "spark_launch.py", HERE / "standalone.py", HERE / "kills.py"
VICTIMS = ["worker", "ps", "chief", "python worker", "executor"]
HOGWILD = examples.main_script("HogWild")


def start(command, directory, **env):
    """Starts a command as a run.sh would."""
    return engines.Run(command, directory, **{**engines.environment("spark"), **env})


def run(command, directory, seconds=100):
    """The same to its end: (exit code, output)."""
    with start(command, directory) as started:
        return started.end(seconds)


def test_facts_of_other_hosts_are_written(tmp_path):
    """Facts of an earlier run, or none, would change what `tfrun summary` says."""
    (tmp_path / "flags.json").write_text("of an earlier run")
    facts = {"worker-0": {"flags.json": "theirs"}, "worker-1": {"metrics-worker-1.csv": "rows"}}
    examples.load(engines.FOLDER / "launching.py").write_facts(facts.values(), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "flags.json": "theirs",
        "metrics-worker-1.csv": "rows",
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """(the process of a standalone cluster, its address): three workers with two slots each.

    So Spark need not wait for the tasks of one attempt before it begins the next.
    """
    process = subprocess.Popen(
        [sys.executable, STANDALONE, "--workers", "3", "--cores", "2", "--", sys.executable, "-c"]
        + ["import os, sys; print(os.environ['SPARK_MASTER'], flush=True); sys.stdin.read()"],
        env=engines.environment("spark"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdout.readline()  # the one for people
        address = process.stdout.readline().strip()
        assert address.startswith("spark://"), address
        yield process, address
    finally:
        with process.stdout, process.stdin:
            pass
        process.terminate()
        process.wait(support.patience(30))


def executors(cluster):
    """The executors of a cluster, which are no children of the driver."""
    running = engines.descendants(psutil.Process(cluster.pid))
    return [process for process in running if "ExecutorBackend" in support.command_line(process)]


@pytest.mark.needs("java")
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_killed_processes_come_back(cluster, tmp_path):
    """A worker, the ps, the chief, a Python worker, an executor: each kill begins all tasks again.

    They go on from a checkpoint, and no task of before is left to write beside the new ones.
    """
    (process, address), directory = cluster, tmp_path / "run"
    figures = tmp_path / "kills.json"
    command = [sys.executable, KILLS, "--output", figures, "--steps", 4000]
    with start(command, directory, SPARK_MASTER=address) as run:
        code, output = run.end(200)
    support.wait_until(lambda: not executors(process), 20, "the executors have ended")
    assert code == 0, output
    assert run.chiefs == 1
    kills = json.loads(figures.read_text())[-1]["kills"]
    assert list(kills) == VICTIMS
    last = 0
    for victim, kill in kills.items():
        assert kill["update_after"] < support.patience(30), (victim, kill)
        # Not from the start, nor from the checkpoint of an earlier kill; and not past what was.
        assert last < kill["first_update"] <= kill["last_update"] + 1, (victim, kill)
        last = kill["first_update"]
    attempts = re.findall(r"attempt (\d+): all tasks begin", output)
    assert attempts == [str(number) for number in range(1, len(VICTIMS) + 2)]
    result = support.result(directory)
    assert result["test_accuracy"] >= 0.95 and result["steps"] == 4000
    steps = {row["global_step"] for row in support.pushes(directory)}
    # A task that is killed may have taken its ticket, and not have told of it.
    assert len(set(range(1, 4001)) - steps) <= len(kills)


@pytest.mark.needs("java")
@pytest.mark.long
def test_a_script_that_always_fails(tmp_path):
    """Its last lines are the error, after as many attempts as were allowed."""
    script = tmp_path / "train.py"
    script.write_text("print('one line')\nraise SystemExit('there is no data')\n")
    command = [sys.executable, LAUNCH, "--master", "local[*]", "--ps", "0", "--workers", "1"]
    code, output = run([*command, "--attempts", "2", script], tmp_path / "run")
    assert code == 1, output
    assert re.findall(r"attempt (\d+): all tasks begin", output) == ["1", "2"]
    end = "[spark] worker 0 failed with exit code 1\none line\nthere is no data\n"
    assert output.endswith(end), output


@pytest.mark.needs("java")
@pytest.mark.nightly
def test_too_few_slots(tmp_path):
    """One line, not a wait for what does not come."""
    command = [sys.executable, LAUNCH, "--master", "local[*]", "--workers", os.cpu_count()]
    code, output = run([*command, "--slots-timeout", 5, HOGWILD], tmp_path / "run", seconds=60)
    assert code == 1 and "fewer free slots than this run has tasks" in output.splitlines()[-1]


@pytest.mark.needs("java")
@pytest.mark.nightly
@engines.one_kill(signal.SIGKILL, signal.SIGINT)
def test_nothing_is_left_of_a_run_that_is_ended(number, tmp_path):
    """Ctrl-C in the terminal of run.sh; kill -9 of the process that has started the cluster."""
    script, directory = tmp_path / "train.py", tmp_path / "run"
    script.write_text("import time\nprint('it trains')\ntime.sleep(600)\n")
    names = ["master.Master", "worker.Worker", "ExecutorBackend", "SparkSubmit", str(script)]
    with start(["bash", HERE / "run.sh", script], directory, PS="0", WORKERS="1") as run:
        run.says("[worker 0] it trains")
        run.stop(number, names)
