"""The examples, as tests take them: their run.sh, their scripts, and what those need."""

import subprocess
import sys

from lab.examples import kind_of, scripts, tracked_files

SHAPES = [(64, 128), (128,), (128, 64), (64,), (64, 10), (10,)]  # of the variables for digits
ENGINES = "Beyond-One-Machine"  # the folder of what needs another engine
BUILD_SECONDS = 1500  # at most, for what a run.sh builds; 4 minutes on 2 cores are usual


def launchers():
    """Every run.sh and run_<variant>.sh of an example, of the files that git knows of.

    A folder with notebooks is no example: test_notebooks.py is about those. What runs on another
    engine has tests of its own: see engines().
    """
    return [
        path
        for path in tracked_files("run*.sh")
        if path.parent.name != "tests"
        and path.parent.parent.name != ENGINES
        and not list(path.parent.glob("*.ipynb"))
    ]


def engines():
    """Every run.sh that needs another engine: Spark, Slurm and so on."""
    return [path for path in tracked_files("run*.sh") if path.parent.parent.name == ENGINES]


def needs_build(launcher):
    """Whether a run.sh builds something on its first use."""
    return (launcher.parent / "build").is_dir()


def build(launcher):
    """Builds what a run.sh builds on its first use, so that it takes no part of a test's time."""
    if needs_build(launcher):
        command = [sys.executable, launcher.parent / "build" / "build.py"]
        subprocess.run(command, check=True, timeout=BUILD_SECONDS)


def ps_scripts():
    """Returns all scripts with parameter servers, in order."""
    return [path for path in scripts() if kind_of(path).startswith("parameter server")]


def synchronous(script):
    """Whether the workers of a script make each step together."""
    return kind_of(script) in (
        "parameter server, synchronous",
        "all-reduce",
        "gossip, synchronous",
    )


def counts_alone(script):
    """Whether each worker of a script makes all steps, and not all together."""
    return synchronous(script) or kind_of(script) == "gossip, asynchronous"
