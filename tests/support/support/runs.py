"""Runs commands, tfrun and whole examples, and reads what a run leaves."""

import contextlib
import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import psutil
from lab.examples import ROOT

from support.limits import Limit, at_most, patience
from support.processes import ports_of, processes_of, program_of, task
from support.scripts import build
from support.zygotes import warm

PYTHONPATH = f"{ROOT}:{ROOT}/tests/support"  # of the small scripts that tests start


def environment(directory, **more):
    """The environment of a run that writes into `directory`."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TF_CONFIG", "DRY_RUN", "WORKERS", "PS", "TFRUN_TIMEOUT")
        and name != "TF_CPP_MIN_LOG_LEVEL"  # a script that a test has loaded has set its own
    }
    return {**env, "OUTPUT_DIR": str(directory), **more}


def warm_environment(directory, **more):
    """The same for a run whose programs the fork server runs, so that none imports TensorFlow.

    In the tier nightly each does so by itself.
    """
    return environment(directory, **{**warm(), **more})


def begin(launcher, directory, *arguments, output=subprocess.PIPE, **env):
    """Starts a run.sh, whose output, as text, can be read or goes to a file."""
    return subprocess.Popen(
        ["bash", launcher, *arguments],
        env=warm_environment(directory, **env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )


def launch(launcher, directory, *arguments, seconds=100, **env):
    """Runs a run.sh to its end: (exit code, output, ports it used). Kills it after `seconds`."""
    build(launcher)
    process = begin(launcher, directory, *arguments, **at_most(seconds), **env)
    ports, limit = set(), Limit(seconds)
    try:
        while process.poll() is None and not limit.is_over():
            if not ports:
                ports = ports_of(processes_of(directory))
            time.sleep(0.2)
        process.terminate()  # where its time is up
        output = process.communicate(timeout=20)[0]
    finally:
        process.kill()
    return process.returncode, output, ports


class Run:
    """A run.sh that a test meddles with while it runs; nothing is left of it afterwards."""

    def __init__(self, launcher, directory, *flags, **env):
        self.directory = directory
        self.process = begin(launcher, directory, *flags, **{**at_most(100), **env})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in processes_of(self.directory):
            with contextlib.suppress(psutil.NoSuchProcess):
                program_of(process).send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.communicate(timeout=patience(30))
        assert not processes_of(self.directory)

    def worker(self, index):
        return task(self.directory, "worker", index)

    def step(self):
        """The highest step in its metrics."""
        return max([row["global_step"] for row in pushes(self.directory)], default=0)


def result(directory):
    return json.loads((pathlib.Path(directory) / "result.json").read_text())


def pushes(directory):
    """Returns the pushes of all tasks, each a dict of numbers, in order of time.

    The reader is not tfrun's, which drops doubled rows: tests compare tfrun's results with these.
    """
    rows = []
    for path in sorted(pathlib.Path(directory).glob("metrics-*.csv")):
        with open(path, newline="") as file:
            lines = [line for line in file if "#" not in line and line.endswith("\n")]
        for row in csv.DictReader(lines):
            if row["loss"]:
                numbers = {name: float(value or "nan") for name, value in row.items()}
                rows.append({**numbers, "task": path.stem.removeprefix("metrics-")})
    return sorted(rows, key=lambda row: row["push_time"])


def newest_checkpoint(directory):
    """The path of the newest checkpoint, as TensorFlow takes it."""
    import tensorflow as tf

    return tf.train.latest_checkpoint(directory)


def run_to_end(*command, seconds=60, cwd=ROOT, env=None):
    """Runs a command; returns the finished process, with its output as text."""
    pipes = dict.fromkeys(["stdout", "stderr"], subprocess.PIPE)
    limit = Limit(seconds)
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, text=True, **pipes
    ) as process:
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=1)
                    return subprocess.CompletedProcess(command, process.returncode, output, errors)
                except subprocess.TimeoutExpired:
                    if limit.is_over():
                        raise
        finally:
            process.kill()


def python(code, *arguments, seconds=60, **env):
    """Runs `code` with Python; returns the finished process with its output as text."""
    command = [sys.executable, "-c", code, *arguments]
    return run_to_end(*command, seconds=seconds, env={**os.environ, **env})


def tfrun(*arguments, **env):
    """Runs a command of tfrun to its end; returns the process as `run_to_end` does."""
    env = {**os.environ, **warm(), **env}
    return run_to_end(sys.executable, "-m", "tfrun", *arguments, env=env)


def browser():
    """Returns the path of a browser that playwright can drive, or None."""
    names = ["chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)
