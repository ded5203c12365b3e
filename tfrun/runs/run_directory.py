"""The run directory: where it is, and what is made, read and removed there."""

import contextlib
import datetime
import fcntl
import itertools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import IO, Any

FINISHED = (
    "There is a finished run in {}: give it more --steps, or set OUTPUT_DIR to another folder"
)
STOPPED = "The run in {0} was ended early: remove {0}/stop, and it goes on"
OCCUPIED = "a run goes on in {0}: wait for it, or end it with `tfrun kill {0}`"
PATTERN = "TensorFlow takes one of the signs *?[\\ in {} for a pattern, and finds no checkpoint"
ADDRESS = "OUTPUT_DIR is the address {}, and tfrun writes files: mount the store, or copy the run"
UNWRITABLE = "the run directory cannot be written: {}; set OUTPUT_DIR to a folder of your own"
USAGE = "usage.jsonl"  # which tfrun writes into it
FLAGS = {"example", "tasks", "ps", "arguments", "versions"}  # what a chief's flags.json has


def example_of(script: str | pathlib.Path) -> str:
    """Returns the name with which the docstring of a script begins, or that of its file."""
    return docstring_name(script) or pathlib.Path(script).stem


def docstring_name(script: str | pathlib.Path) -> str | None:
    """Returns the name with which the docstring of a script begins, None without one."""
    with contextlib.suppress(OSError):
        text = pathlib.Path(script).read_text(encoding="utf-8", errors="replace")
        if name := re.match(r'"""([\w-]+): ', text):
            return name[1]
    return None


def refuse_another_example(directory: pathlib.Path | None, script: str | pathlib.Path) -> None:
    """Raises ValueError where a run directory has the run of another example than the script's.

    directory: None for a new one. Checkpoints of some examples have another form, which the script
    would pass over: it would begin again, and mix both runs.
    """
    name, flags = docstring_name(script), None
    with contextlib.suppress(OSError, ValueError):
        flags = read_flags(directory) if directory else None
    # Python notes the script's file name where an option leaves docstrings out (-OO).
    if name and flags and flags["example"] not in (name, pathlib.Path(script).name):
        raise ValueError(
            f"{directory} has a run of {flags['example']}, not of {name}: "
            "set OUTPUT_DIR to another folder"
        )


def kind_of(script: str | pathlib.Path) -> str:
    """Returns what the docstring of a script says after `Kind:`, "" where it says nothing."""
    with contextlib.suppress(OSError):
        text = pathlib.Path(script).read_text(encoding="utf-8", errors="replace")
        if kind := re.search(r"^Kind: +(.+)$", text, re.MULTILINE):
            return kind[1]
    return ""


def base(example: str) -> pathlib.Path:
    """Returns the folder of all runs of an example."""
    return pathlib.Path(os.environ.get("RUNS_DIR") or "runs").resolve() / example


class RunDirectory:
    """OUTPUT_DIR, or a new folder; `path` is where. Raises OSError, also where a run goes on."""

    def __init__(self, example: str) -> None:
        self.new_folders: list[pathlib.Path] = []
        path, parent = given(), base(example)
        refuse_patterns(path or parent)
        if path:
            self.path = path
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            new = [folder for folder in (parent, parent.parent) if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            for name in numbered(datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")):
                with contextlib.suppress(FileExistsError):
                    self.path = parent / name
                    self.path.mkdir()
                    break
            self.new_folders = [self.path, *new]
        self.lock = open(self.path / ".tfrun", "w")  # tfrun keeps it, no task inherits it
        if not try_lock(self.lock):
            raise OSError(OCCUPIED.format(self.path))

    def discard(self) -> bool:
        """Removes the folder, but not one that was given; returns whether it did."""
        (self.path / ".tfrun").unlink(missing_ok=True)
        if not self.new_folders:
            return False
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # another run is there
            for folder in self.new_folders[1:]:
                folder.rmdir()
        return True


def refuse_patterns(path: str | pathlib.Path) -> None:
    """Raises OSError where TensorFlow would take the path of a run directory for a pattern."""
    if set("*?[\\") & set(str(path)):
        raise OSError(PATTERN.format(path))


def try_lock(file: IO[str]) -> bool:
    """Locks a file, where the file system has locks; returns False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def given() -> pathlib.Path | None:
    """Returns the folder that OUTPUT_DIR names, None where it names none.

    Raises OSError where it is the address of a store, of which tfrun would make a folder here.
    """
    name = os.environ.get("OUTPUT_DIR")
    if name and re.match(r"\w+://", name):
        raise OSError(ADDRESS.format(name))
    return pathlib.Path(name).resolve() if name else None


def numbered(name: str) -> Iterator[str]:
    """Yields a name, and the same with -2, -3 and so on behind it."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def write_whole(path: pathlib.Path, text: str) -> None:
    """Writes a file, whole or not at all. Raises OSError."""
    partial = path.with_name(f".{path.stem}-{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns the dict in a file, None of a file without one or cut short. Raises OSError."""
    with contextlib.suppress(ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else None
    return None


def result(directory: pathlib.Path) -> dict[str, Any] | None:
    """Returns the content of result.json, or None where there is none."""
    with contextlib.suppress(OSError):
        return read_json(directory / "result.json")
    return None


def read_flags(*directories: str | pathlib.Path) -> dict[str, Any]:
    """Returns the content of flags.json in the first directory with one, a dict.

    Raises OSError, or ValueError where there is none, another script's, or a second run's.
    """
    first, names = None, ", ".join(map(str, directories))
    for path in (pathlib.Path(directory) / "flags.json" for directory in directories):
        if path.exists():
            flags = read_json(path)
            if not (flags and FLAGS <= flags.keys() and isinstance(flags["arguments"], dict)):
                raise ValueError(f"{path} is not what a chief writes")
            first = first or flags
            if any(flags[name] != first[name] for name in FLAGS - {"versions"}):
                raise ValueError(f"{names} are not of one run: their flags.json differ")
    if not first:
        raise ValueError(f"there is no flags.json in {names}: no chief has trained there")
    return first


def steps_asked_for(arguments: Iterable[str]) -> int | None:
    """Returns the value of --steps among the arguments of a script, strings; None without."""
    steps = re.findall(r"--steps[= ](\d+)(?: |$)", " ".join(arguments))
    return int(steps[-1]) if steps else None


def stopped_at(directory: pathlib.Path) -> int | None:
    """Returns the number of the last update of a run that was ended early; None of another."""
    with contextlib.suppress(OSError):
        text = (directory / "stop").read_text(encoding="utf-8")
        return int(text) if text.isdigit() else None
    return None


def saved_step(directory: pathlib.Path) -> int | None:
    """Returns how many updates the last checkpoint of a directory has seen; None without any."""
    with contextlib.suppress(OSError):
        state = (directory / "checkpoint").read_text(encoding="utf-8")
        match = re.search(r'^model_checkpoint_path: ".*-(\d+)"', state, re.MULTILINE)
        return int(match[1]) if match else None
    return None
