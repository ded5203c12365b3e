"""Finds the examples and their scripts, changes the text of a script, and loads it as a module."""

import ast
import contextlib
import functools
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfrun.runs import run_directory

ROOT = pathlib.Path(__file__).resolve().parents[1]
SESSIONS = "From-TensorFlow-1"  # the folder of examples that are kept as TensorFlow 1 had them
FURTHER = "Further-Algorithms/"  # how the name of an example begins that came after the articles
PARENTS = ("", "Further-Algorithms", "Operations", SESSIONS)  # where folders of examples stand
# {an example that TensorFlow 2 runs: where its form with sessions stands}. It goes with the last
# other script that has sessions.
SESSION_FORM = {
    "HogWild": f"{SESSIONS}/HogWild-Sessions",
    "Distributed-Setup": f"{SESSIONS}/Distributed-Setup-Sessions",
}
ALGORITHM = ("server", "update", "algorithm")  # the functions that a script begins with
DIVIDER = "# From here to the end: the same text"  # above it the example, below it only regions


class ToolError(Exception):
    """What somebody did wrong, in a sentence that says what to do."""


def exit_code(main: Callable[[], int | None]) -> int | None:
    """Runs the main function of a tool; returns its exit code. A ToolError ends it as a line."""
    try:
        return main()
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1


def shown(path: str | pathlib.Path) -> str:
    """Returns a path as it stands in a sentence: from the root of the project, if it is there."""
    path = pathlib.Path(path).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def read(path: str | pathlib.Path) -> str:
    """Returns the text of a file that somebody named. Raises ToolError if it cannot be read."""
    try:
        return pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ToolError(f"{shown(path)} cannot be read: {reason}; check the path") from None


def read_json(path: pathlib.Path) -> Any:
    """Returns what a JSON file holds. Raises ToolError if it is missing or none."""
    try:
        return json.loads(read(path))
    except json.JSONDecodeError as error:
        again = "get it back from git, or measure again"
        raise ToolError(f"{shown(path)}, line {error.lineno}, is not JSON: {again}") from None


def parse(path: pathlib.Path) -> ast.Module:
    """Returns the syntax tree of a script. Raises ToolError if it is no Python."""
    try:
        return parse_text(read(path))
    except SyntaxError as error:
        raise ToolError(f"{shown(path)}, line {error.lineno}: correct this: {error.msg}") from None


@functools.lru_cache(maxsize=100)
def parse_text(text: str) -> ast.Module:
    """Returns the syntax tree of a text; pages ask for those of scripts many times."""
    return ast.parse(text)


def git(*arguments: str, folder: pathlib.Path = ROOT, seconds: float = 30) -> str:
    """Returns what git prints, called in this folder. Raises ToolError where git fails."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, timeout=seconds, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        raise ToolError(f"git does not answer in {seconds} s: {' '.join(command)}") from None
    if done.returncode:
        reason = (done.stderr.splitlines() or ["git failed"])[0]
        raise ToolError(f"this needs a clone that git knows, and git says: {reason}")
    return done.stdout.strip()


def tracked_files(
    pattern: str, root: pathlib.Path = ROOT, which: str = "--cached"
) -> list[pathlib.Path]:
    """The files that git knows of, by a pattern as of pathlib.Path.match: not what a run left."""
    listed = git("ls-files", "-z", "--exclude-standard", which, folder=root)
    paths = sorted(pathlib.PurePath(name) for name in listed.split("\0") if name)
    return [root / path for path in paths if path.match(pattern) and (root / path).exists()]


def untracked_files(pattern: str) -> list[pathlib.Path]:
    """The files that git neither knows of nor ignores."""
    return tracked_files(pattern, which="--others")


def folders(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """The folders of the examples: those with a run.sh, and without notebooks."""
    return [
        run.parent
        for run in tracked_files("run.sh", root)
        if run.parent.parent in [root / parent for parent in PARENTS]
        and run.parent.name != "tests"
        and not list(run.parent.glob("*.ipynb"))
    ]


def scripts(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """The example scripts: every Python file beside a run.sh that says its kind, but drivers."""
    there = folders(root)
    beside = [path for path in tracked_files("*.py", root) if path.parent in there]
    return sorted(path for path in beside if run_directory.kind_of(path) not in ("", "driver"))


def script_of(launcher: pathlib.Path) -> pathlib.Path:
    """Returns the script that a run.sh starts."""
    command = re.split(r"(?m)^ *(?:exec|tfrun) ", read(launcher), maxsplit=1)
    script = re.search(r"(?:here/)?([\w./]+\.py)", command[-1]) if command[1:] else None
    if not script:
        raise ToolError(f"{shown(launcher)} starts no script: it needs a line `exec tfrun ... --`")
    return launcher.parent / script[1]


def main_script(folder: str | pathlib.PurePath) -> pathlib.Path:
    """Returns the main script of an example, by the name of its folder, such as "HogWild"."""
    name = pathlib.PurePath(folder).name
    return ROOT / folder / (name.replace("-", "_").lower() + ".py")


def has_sessions(script: pathlib.Path) -> bool:
    """Returns whether a script is written for the sessions of TensorFlow 1."""
    return "import tensorflow.compat.v1 as tf" in script.read_text()


def session_form(folder: str) -> str:
    """Returns the folder in which an example's form with sessions stands: this one, or another."""
    there = main_script(folder)
    return folder if there.exists() and has_sessions(there) else SESSION_FORM.get(folder, folder)


def kind_of(script: pathlib.Path) -> str:
    """Returns what the docstring of a script says after `Kind:`."""
    kind = run_directory.kind_of(script)
    assert kind, f"{shown(script)} has no line `Kind:`"
    return kind


def replaced(script: str | pathlib.Path, changes: Iterable[tuple[str, str]]) -> str:
    """Returns a script's text after [(what stands in it just once, what takes its place)].

    script: its path, or its text.
    """
    text = script.read_text() if isinstance(script, pathlib.Path) else script
    for old, new in changes:
        if text.count(old) != 1:
            where = f" in {script}" if isinstance(script, pathlib.Path) else ""
            raise ValueError(f"{old!r} stands {text.count(old)} times{where}")
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def changed_copy(
    script: pathlib.Path, changes: Iterable[tuple[str, str]]
) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """Yields (a copy of a script with these changes, a folder for its run), and removes both."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, script.name)
        copy.write_text(replaced(script, changes))
        yield copy, pathlib.Path(folder, "run")


def load(path: pathlib.Path, text: str | None = None) -> Any:
    """Returns the module of a script, a fresh one at each call; `text` instead of its own.

    It imports what stands beside it, as where it is started.
    """
    if "tensorflow" in sys.modules:  # as in a process of the script's own: others switch it off
        sys.modules["tensorflow"].compat.v1.enable_control_flow_v2()
    spec = importlib.util.spec_from_file_location(f"script_{time.monotonic_ns()}", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        exec(compile(text or path.read_text(), str(path), "exec"), module.__dict__)
    finally:
        sys.path.remove(str(path.parent))
    return module


def lines_above(text: str) -> int | None:
    """Returns how many lines of a script stand above its divider; None where it has none."""
    starts = (line.startswith(DIVIDER) for line in text.splitlines())
    return next((number for number, starts_here in enumerate(starts) if starts_here), None)
