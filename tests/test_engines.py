"""One file on every engine: HogWild's script, which nobody has changed, trains on each of them."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

import engines
import psutil
import pytest
import support
from tfrun import summary

HOGWILD = support.main_script("HogWild")
PATH = os.pathsep.join(
    [str(support.ROOT / "tfrun" / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]]
)
TASKS = {("ps", 0), ("worker", 0), ("worker", 1)}
DRY_RUN = "set -e; DRY_RUN=1 tfrun --ps 1 --workers 2 -- {0} > {1}; bash {1}; tfrun summary {2}"


def run_sh(name):
    """The run.sh of a folder, with a script."""
    return lambda script, _: ["bash", engines.FOLDER / name / "run.sh", script]


def dry_run(script, directory):
    """The commands that tfrun would start, as a script of their own."""
    text = DRY_RUN.format(script, directory.with_suffix(".sh"), directory)
    return ["bash", "-c", text]


def tfrun(script, _):
    return ["tfrun", "--ps", "1", "--workers", "2", "--", script]


def pods(script, _):
    """The entry point of the image, in the place of each pod."""
    return [sys.executable, support.ROOT / "tests" / "pods.py", script]


WAYS = {
    "tfrun": (tfrun, []),
    "dry run": (dry_run, []),
    "ssh": (run_sh("SSH"), [engines.root("ip", "sshd")]),
    "Spark": (run_sh("Spark-Cluster"), [engines.spark]),
    "Slurm": (run_sh("Slurm"), [engines.root("slurmctld", "munged")]),
    "Ray": (run_sh("Ray"), []),
    "Kubernetes": (pods, [engines.root("ip")]),
}


def task_of(process, script):
    """("worker", 0) of a process that runs the script as that task, None of another."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        if str(script) in process.cmdline():
            task = json.loads(process.environ().get("TF_CONFIG", "{}")).get("task")
            return task and (task["type"], task["index"])
    return None


@pytest.mark.long
@pytest.mark.parametrize(
    "way", [pytest.param(way, id=name, marks=marks) for name, (way, marks) in WAYS.items()]
)
def test_one_file_trains_everywhere(way, tmp_path):
    """Catches an engine that runs something else, or changes the file; facts that stay where they
    were made; an end without `tfrun summary`; and what is left running."""
    script, directory = tmp_path / "hogwild.py", tmp_path / "run"
    shutil.copy(HOGWILD, script)
    text = tmp_path / "output.txt"
    with open(text, "w") as output:
        process = subprocess.Popen(
            list(map(str, way(script, directory))),
            env=support.environment(directory, PATH=PATH),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    mine = psutil.Process(process.pid)
    tasks, known, deadline = set(), set(), time.monotonic() + support.patience(150)
    try:
        while process.poll() is None and time.monotonic() < deadline:
            running = support.processes_of(directory)
            known |= {*engines.descendants(mine), *running}
            tasks |= set(filter(None, (task_of(each, script) for each in running)))
            time.sleep(0.3)
        assert process.poll() == 0, text.read_text()
    finally:
        process.kill()
        process.wait()
    assert tasks == TASKS, tasks
    digest = hashlib.sha256(HOGWILD.read_bytes()).digest()
    assert hashlib.sha256(script.read_bytes()).digest() == digest
    result = support.result(directory)
    assert result["test_accuracy"] >= 0.97, text.read_text()
    assert (result["ps"], result["workers"]) == (1, 2)
    if way == "Spark":  # the lines of each task reach the driver, without TensorFlow's notices
        assert all("[%s] " % name in text.read_text() for name in ("ps 0", "worker 0", "worker 1"))
        assert "oneDNN" not in text.read_text()
    assert result == summary.summarize([directory])
    engines.none_is_left(known, [directory])
    assert not list(directory.glob(".host-*")), "tfrun's marks of the hosts"
