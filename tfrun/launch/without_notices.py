"""Runs programs that import TensorFlow without the notices that it prints at the start."""

import os
import pathlib
import signal
import subprocess
import sys

from tfrun import known_errors
from tfrun.launch import cluster, task


def python_path() -> str:
    """Returns the PYTHONPATH with which a process finds this tfrun."""
    root = str(pathlib.Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))


def run_module(module: str, *arguments: str) -> int:
    """Runs a module of tfrun in a process; returns its exit code."""
    return run([sys.executable, "-m", module, *arguments], PYTHONPATH=python_path())


def run(command: list[str], **variables: str) -> int:
    """Runs a command without a cluster; returns its exit code, as a shell would."""
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    env = {"TF_CPP_MIN_LOG_LEVEL": "2", **env, **cluster.COMMON_VARIABLES, **variables}
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=task.end_with_parent,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if not known_errors.NOTICE.match(line):
                sys.stderr.write(line.decode(errors="replace"))
        return task.shell_code(process.wait())
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        return 128 + signal.SIGINT
