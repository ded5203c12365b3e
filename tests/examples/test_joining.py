"""A worker that a person starts by hand joins a live run of HogWild."""

import json
import subprocess
import sys

import pytest
import support
from lab import examples

HOGWILD = examples.main_script("HogWild")
STEPS = 3000


@pytest.mark.long
def test_a_worker_joins(tmp_path):
    """It has a file of its own, and all updates together are exactly --steps.

    The other workers are paused until it has trained.
    """
    directory = tmp_path / "run"
    with support.Run(HOGWILD.parent / "run.sh", directory, "--steps", str(STEPS), PS="1") as run:
        support.wait_until(lambda: run.step() >= 1, 60, "it trains")
        workers = [run.worker(0), run.worker(1)]
        for worker in workers:
            worker.suspend()
        cluster = support.tf_config(support.processes_of(directory)[-1])["cluster"]
        config = {"cluster": {"ps": cluster["ps"]}, "task": {"type": "worker", "index": 2}}
        env = support.warm_environment(directory, TF_CONFIG=json.dumps(config))
        joins = subprocess.Popen(
            [sys.executable, HOGWILD, "--steps", str(STEPS)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            path = directory / "metrics-worker-2.csv"
            support.wait_until(lambda: path.exists() and "\n1" in path.read_text(), 60, "joined")
            for worker in workers:
                worker.resume()
            output = joins.communicate(timeout=support.patience(60))[0]
            assert joins.returncode == 0, output
            assert support.wait_for_exit(run.process, 60) == 0, run.process.stdout.read()
        finally:
            joins.kill()
            joins.communicate()
    pushes = support.pushes(directory)
    assert {row["task"] for row in pushes} >= {"worker-2"}
    assert sorted(row["global_step"] for row in pushes) == list(range(1, STEPS + 1))
    assert support.result(directory)["steps"] == STEPS
