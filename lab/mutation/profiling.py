"""Notes which functions a test calls, and chooses the tests that may find a mistake."""

import ast
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import sys
import threading
import time
import types
from collections.abc import Iterable, Iterator

from lab.mutation import mutants

# What starts a process; sendmsg is an order to the fork server of tests/support.
PROCESS_CALLS = {"fork", "fork_exec", "posix_spawn", "sendmsg"}


@dataclasses.dataclass
class Profile:
    """What a test does where nothing is wrong."""

    name: str  # as pytest knows it
    seconds: float = 0.0
    called: set[tuple[str, int]] = dataclasses.field(default_factory=set)  # file, line of its def
    starts_processes: bool = False  # of which nobody knows what they call


class Profiler:
    """Profiles tests: which functions of some files each of them calls."""

    def __init__(self, root: pathlib.Path, files: Iterable[str]) -> None:
        """root: the folder of the project; files: their paths in it."""
        self.profiles: dict[str, Profile] = {}
        self.paths = {str(root / file): file for file in files}
        # A test may run a copy, as of tfrun/problems/adapted_problem.py: that is the file as well.
        names = [pathlib.Path(file).name for file in self.paths.values()]
        self.copies = {
            name: file
            for name, file in zip(names, self.paths.values())
            if "__" not in name and names.count(name) == 1
        }
        # The interpreter asks it at each call of a function.
        self.file_of = functools.cache(self.find_file)

    def find_file(self, path: str) -> str | None:
        """Returns which of the files a path names: it or a copy; None for any other."""
        if path in self.paths:
            return self.paths[path]
        if path.startswith((sys.prefix, sys.base_prefix)):  # Python's own libraries
            return None
        return self.copies.get(os.path.basename(path))

    @contextlib.contextmanager
    def profile(self, name: str) -> Iterator[None]:
        """Profiles the test of this name while the block runs."""
        profile = self.profiles[name] = Profile(name)

        def note(frame: types.FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            if event == "call" and (file := self.file_of(code.co_filename)):
                profile.called.add((file, code.co_firstlineno))
            if event == "c_call" and getattr(argument, "__name__", "") in PROCESS_CALLS:
                profile.starts_processes = True

        began = time.monotonic()
        sys.setprofile(note)
        threading.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type] # typeshed does not know None
            profile.seconds = time.monotonic() - began

    def forget(self, name: str) -> None:
        """Drops the profile of a test."""
        self.profiles.pop(name, None)

    def write(self, path: pathlib.Path) -> None:
        """Writes all profiles, for read_profiles() in another process."""
        rows = [
            (profile.name, profile.seconds, sorted(profile.called), profile.starts_processes)
            for profile in self.profiles.values()
        ]
        path.write_text(json.dumps(rows))


def read_profiles(path: pathlib.Path) -> list[Profile]:
    """Returns the profiles that a Profiler has written."""
    return [
        Profile(name, seconds, {(file, line) for file, line in called}, starts_processes)
        for name, seconds, called, starts_processes in json.loads(path.read_text())
    ]


def function_lines(text: str) -> dict[int, str]:
    """Returns {the line at which a function begins: its name, such as "Class.method"}."""
    lines: dict[int, str] = {}

    def visit(node: ast.AST, scope: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            names = scope
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names = [*scope, child.name]
                decorators = [decorator.lineno for decorator in child.decorator_list]
                if not isinstance(child, ast.ClassDef):
                    lines[min([child.lineno, *decorators])] = ".".join(names)
            visit(child, names)

    visit(ast.parse(text), [])
    return lines


def choose_tests(
    mutation: mutants.Mutation, profiles: Iterable[Profile], text: str
) -> list[Profile]:
    """Returns the tests that may find a mistake, the fastest of the likely ones first.

    Those that call its function come first, and then those that start processes. text: the file
    without the mistake.
    """
    names = function_lines(text) if mutation.file.endswith(".py") else {}
    lines = [line for line, name in names.items() if name == mutation.function]
    fastest_first = sorted(profiles, key=lambda profile: profile.seconds)
    if not lines:  # it stands outside of all functions, or this is no Python
        return fastest_first
    starts = {(mutation.file, line) for line in lines}
    callers = [profile for profile in fastest_first if starts & profile.called]
    others = [profile for profile in fastest_first if profile not in callers]
    return [*callers, *(profile for profile in others if profile.starts_processes)]
