"""tfrun with small scripts in place of training: fast, and able to misbehave on purpose."""

import os
import subprocess
import sys

import support

TFRUN = [sys.executable, "-m", "tfrun"]
TASK = """
import argparse, json, os, sys, time
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
job, index = task.get("type"), task.get("index")
"""


def write(folder, body):
    """A training script in `folder`; `job` and `index` say which task it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TASK + body)


def start(folder, *flags, script="train.py", arguments=(), patch=None, **env):
    """Starts tfrun on the script in `folder`; its OUTPUT_DIR is folder/run.

    patch: Python that changes tfrun first.
    """
    main = f"{patch}\nfrom tfrun import cli\nraise SystemExit(cli.main())"
    return subprocess.Popen(
        [*([sys.executable, "-c", main] if patch else TFRUN), *flags, "--", script, *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=support.environment(folder / "run", PYTHONPATH=support.PYTHONPATH, **env),
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
    return [
        p
        for p in support.processes_of(folder / "run")
        if "TF_CONFIG" in support.safely(p.environ, {})
    ]


def fake_nvidia_smi(folder, gpus):
    """A PATH with a stand-in for nvidia-smi that lists so many GPUs."""
    listed = "".join(f"echo 'GPU {i}: A (UUID: {i})'\n" for i in range(gpus))
    (folder / "nvidia-smi").write_text("#!/bin/sh\n" + listed)
    (folder / "nvidia-smi").chmod(0o755)
    return "{}:{}".format(folder, os.environ["PATH"])
