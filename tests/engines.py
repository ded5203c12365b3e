"""Engines that run an example on a cluster of theirs: what their tests share."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys

import psutil
import pytest
import support

FOLDER = support.ROOT / "Beyond-One-Machine"


def java():
    """Whether there is a Java for Spark, by the same search as run.sh's."""
    command = "source %s && java_for_spark" % (FOLDER / "extras.sh")
    return subprocess.run(["bash", "-c", command], capture_output=True).returncode == 0


spark = pytest.mark.skipif(not java(), reason="no Java 17")


def root(*commands):
    """A mark: a test that needs root, and these commands."""
    there = all(
        shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for name in commands
    )
    return pytest.mark.skipif(
        not there or os.geteuid() != 0, reason="not root, or no %s" % ", ".join(commands)
    )


@functools.cache
def environment(*extras):
    """os.environ as in a run.sh of Beyond-One-Machine for Spark."""
    tools = os.path.dirname(sys.executable)
    lines = ["cd %s" % FOLDER, "source extras.sh"]
    lines += ["extra %s" % name for name in extras] + ["env -0"]
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)],
        env={**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)


def descendants(process):
    """A process and all that it has started, as far as they run."""
    try:
        found = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    return [each for each in found if alive(each)]


def alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def none_is_left(processes, directories=(), seconds=20):
    """Waits until these have ended, and all with one of these OUTPUT_DIRs."""
    support.wait_until(
        lambda: (
            not any(map(alive, processes))
            and not any(support.processes_of(pathlib.Path(each)) for each in directories)
        ),
        seconds,
        "all processes have ended",
    )
