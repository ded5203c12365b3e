"""tfrun with small scripts in place of training: fast, and able to misbehave on purpose."""

import subprocess
import sys

import support

TFRUN = [sys.executable, "-m", "tfrun"]
TASK = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
job, index = task["type"], task["index"]
"""


def write(folder, body):
    """A training script in `folder`; `job` and `index` say which task it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TASK + body)


def start(folder, *flags, script="train.py", arguments=(), **env):
    """Starts tfrun on the script in `folder`; its OUTPUT_DIR is folder/run."""
    return subprocess.Popen(
        [*TFRUN, *flags, "--", script, *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=support.environment(folder / "run", PYTHONPATH=str(support.ROOT), **env),
    )


def run(folder, *flags, **more):
    """The same to the end: (exit code, lines of output). Fails when something is left."""
    process = start(folder, *flags, **more)
    try:
        output = process.communicate(timeout=40)[0]
    finally:
        process.kill()
    assert not support.processes_of(folder / "run")
    return process.returncode, output.splitlines()


def tasks(folder):
    """The processes of the run's tasks, with what these have started; not tfrun's own."""
    return [p for p in support.processes_of(folder / "run") if "TF_CONFIG" in p.environ()]
