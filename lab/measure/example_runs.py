"""Runs an example to its end, finds its tasks meanwhile, and reads what it has left.

What needs NumPy is imported in a function: its threads must not be there when Fault-Tolerance
enters namespaces.
"""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psutil
from tfrun.launch.task import end_with_parent

if TYPE_CHECKING:
    from tfrun.runs.data import RunData

ENVIRONMENT = dict(os.environ)  # what the examples get, whatever a measurement sets for itself
# In a new process: it gets SIGTERM when its parent dies. A launcher then stops its tasks.
end_with_us = functools.partial(end_with_parent, signal.SIGTERM)


def run(
    command: Sequence[object],
    directory: str | pathlib.Path,
    env: Mapping[str, str] = ENVIRONMENT,
    **variables: str,
) -> str:
    """Runs an example to its end in `directory`, with these variables in its environment.

    Returns what it prints. When it fails this process ends with its last lines.
    """
    env = {**env, "OUTPUT_DIR": str(directory), **variables}
    if command[0] == "bash":  # a run.sh refuses what means nothing to it
        text = pathlib.Path(str(command[1])).read_text()
        for name in ("WORKERS", "PS"):
            if f"${{{name}:-}}" in text:
                env.pop(name, None)
    process = subprocess.run(
        [str(word) for word in command],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_us,
    )
    if process.returncode:
        last_lines = process.stdout.splitlines()[-10:]
        words = " ".join(map(str, command))
        failure = f"failed with exit code {process.returncode}: {words}"
        sys.exit("\n".join([*last_lines, failure]))
    return process.stdout


def tasks(directory: str | pathlib.Path) -> dict[tuple[str, int], psutil.Process]:
    """Returns {(job, index): its process} of all tasks that run with this OUTPUT_DIR."""
    running: dict[tuple[str, int], psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            if env.get("OUTPUT_DIR") == str(directory) and "TF_CONFIG" in env:
                if process.status() != psutil.STATUS_ZOMBIE:
                    task = json.loads(env["TF_CONFIG"])["task"]
                    running.setdefault((task["type"], task["index"]), process)
    return running


def output_directory(name: str) -> pathlib.Path:
    """The folder for what this measurement leaves: OUTPUT_DIR, or one named after the time."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs")
    directory = pathlib.Path(os.environ.get("OUTPUT_DIR") or runs / name / now)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def read_run(directory: str | pathlib.Path) -> "RunData":
    """Returns the RunData of a run."""
    from tfrun.runs.data import RunData  # which needs NumPy

    return RunData.read(directory)


def pushes(directory: str | pathlib.Path, task: str | None = None) -> list[dict[str, Any]]:
    """Returns the pushes of a run, or of one of its tasks: dicts of numbers, in order of time."""
    return read_run(directory).rows("pushes", task)


def test_rows(directory: str | pathlib.Path, task: str | None = None) -> list[dict[str, Any]]:
    """Returns the tests of a run, or of one of its tasks, in the same form."""
    return read_run(directory).rows("tests", task)
