"""The run directory: where it is, and what is made and removed there."""

import datetime
import itertools
import json
import os
import pathlib
import re
import shutil

FINISHED = (
    "There is a finished run in {}: give it more --steps, or set OUTPUT_DIR to another folder"
)
STOPPED = "The run in {0} was ended early: remove {0}/stop, and it goes on"


def base(example):
    """The folder of all runs of an example."""
    return pathlib.Path(os.environ.get("RUNS_DIR") or "runs").resolve() / example


class RunDirectory:
    """OUTPUT_DIR, or a new folder; `path` is where. Raises OSError."""

    def __init__(self, example):
        self.made = []
        if os.environ.get("OUTPUT_DIR"):
            self.path = given()
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            parents = [base(example), base(example).parent]
            new = [folder for folder in parents if not folder.exists()]
            base(example).mkdir(parents=True, exist_ok=True)
            self.path = new_folder(base(example))
            self.made = [self.path, *new]
        with open(self.path / ".writable", "w"):
            pass
        (self.path / ".writable").unlink()

    def discard(self):
        """Removes the folder, but not one that was given; returns whether it did."""
        if not self.made:
            return False
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self.made[1:]:
            try:
                folder.rmdir()
            except OSError:  # another run is there
                break
        return True


def given():
    """The folder that OUTPUT_DIR names, None where it names none."""
    name = os.environ.get("OUTPUT_DIR")
    return pathlib.Path(name).resolve() if name else None


def new_folder(parent):
    """A new folder in `parent` that is named after the time, with a number behind it if need be."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in itertools.chain([""], ("-%d" % i for i in itertools.count(2))):
        try:
            (parent / (now + suffix)).mkdir()
            return parent / (now + suffix)
        except FileExistsError:
            pass


def result(directory):
    """The content of result.json, or None where there is none."""
    try:
        content = json.loads((directory / "result.json").read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read_flags(*directories):
    """Returns the content of flags.json in the first directory with one, a dict.

    Raises ValueError where there is none, or another script's; OSError if it cannot be read.
    """
    for directory in directories:
        path = pathlib.Path(directory) / "flags.json"
        try:
            flags = json.loads(path.read_text())
            if {"example", "tasks", "ps", "arguments", "versions"} <= flags.keys():
                return flags
        except FileNotFoundError:
            continue
        except (AttributeError, ValueError):
            pass
        raise ValueError(f"{path} is not what a chief writes")
    places = ", ".join(map(str, directories))
    raise ValueError(f"there is no flags.json in {places}: no chief has trained there")


def write_whole(path, text):
    """Writes a file, whole or not at all. Raises OSError."""
    partial = path.with_name(f".{path.stem}-{os.getpid()}")
    try:
        partial.write_text(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def steps_asked_for(arguments):
    """The value of --steps among the arguments of a script, a list of strings; None without."""
    found = re.findall(r"--steps[= ](\d+)(?: |$)", " ".join(arguments))
    return int(found[-1]) if found else None


def stopped_at(directory):
    """The number of the last update of a run that was ended early; None of another."""
    try:
        text = (directory / "stop").read_text()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def saved_step(directory):
    """How many updates the last checkpoint of a directory has seen; None where there is none."""
    try:
        state = (directory / "checkpoint").read_text()
    except OSError:
        return None
    found = re.search(r'^model_checkpoint_path: ".*-(\d+)"', state, re.MULTILINE)
    return int(found[1]) if found else None
