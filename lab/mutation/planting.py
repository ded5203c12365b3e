"""A plugin of pytest that runs the collected tests once for each mistake, in forks.

The process has imported the tests and all that they import, so a fork begins at once. It writes
the mistaken file, for what reads it from now on, and puts the mistaken code into the functions that
are there already.
"""

import ast
import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

import psutil
import pytest
from tfrun.launch.task import end_with_parent

from lab.mutation import mutants

LIMIT = 4  # times the seconds of the same tests without a mistake, and MARGIN_SECONDS besides
MARGIN_SECONDS = 20
FIRST_SECONDS = 2400  # for all tests of a group without a mistake, at most
STARTS = {"fork", "fork_exec", "posix_spawn", "sendmsg"}  # sendmsg: an order to support.fork_server
TESTS = "tests"  # in the names of modules of the project, beside these packages
PROJECT = ("lab", "tfrun")
LEFT_OUT = "left out, because it fails without a mistake: "
GONE = re.compile(r"stands \d+ times")  # what lab.examples.replaced() raises says so
WHERE = " where "  # between a file of tests and a pattern, in groups.yaml


@dataclasses.dataclass
class Outcome:
    """What became of a mistake."""

    caught: bool
    by_time: bool
    seconds: float
    by: str = ""  # the test that failed


@dataclasses.dataclass
class Seen:
    """What a test does where nothing is wrong."""

    name: str  # as pytest knows it
    seconds: float = 0.0
    called: set[tuple[str, int]] = dataclasses.field(default_factory=set)  # file, line of its def
    starts: bool = False  # a process, of which nobody knows what it calls


def definitions(text: str) -> dict[int, str]:
    """Returns {the line at which a function begins: its name, such as "Class.method"}."""
    lines: dict[int, str] = {}

    def visit(node: ast.AST, scope: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            names = scope
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names = [*scope, child.name]
                first = min(
                    [child.lineno, *(decorator.lineno for decorator in child.decorator_list)]
                )
                if not isinstance(child, ast.ClassDef):
                    lines[first] = ".".join(names)
            visit(child, names)

    visit(ast.parse(text), [])
    return lines


def narrowest(place: mutants.Place, seen: list[Seen], text: str) -> list[Seen]:
    """Returns the tests that may find a mistake of a place, the fastest of the likely ones first.

    text: the file without the mistake.
    """
    names = definitions(text) if place.file.endswith(".py") else {}
    lines = [line for line, name in names.items() if name == place.function]
    fast = sorted(seen, key=lambda test: test.seconds)
    if not lines:  # it stands outside of all functions, or this is no Python
        return fast
    calls = [test for test in fast if any((place.file, line) in test.called for line in lines)]
    return [*calls, *(test for test in fast if test.starts and test not in calls)]


# Mistaken code in a process that has imported the right one -------------------------------------


def codes(text: str, file: str) -> dict[tuple[str, int], types.CodeType]:
    """Returns {(qualified name, its number among those of that name): code} of all functions."""
    result: dict[tuple[str, int], types.CodeType] = {}
    counts: dict[str, Iterator[int]] = {}

    def visit(code: types.CodeType, prefix: str) -> None:
        for part in code.co_consts:
            if not isinstance(part, types.CodeType):
                continue
            name = prefix + part.co_name
            result[name, next(counts.setdefault(name, itertools.count()))] = part
            # A class body has no CO_OPTIMIZED, 1; what stands in a function is one of its locals.
            visit(part, name + (".<locals>." if part.co_flags & 1 else "."))

    visit(compile(text, file, "exec"), "")
    return result


def loaded_functions(files: dict[str, str]) -> dict[str, list[types.FunctionType]]:
    """Returns {file: the functions of it that this process has}; files: {path: file}."""
    result: dict[str, list[types.FunctionType]] = {file: [] for file in files.values()}
    for item in gc.get_objects():
        if isinstance(item, types.FunctionType) and item.__code__.co_filename in files:
            result[files[item.__code__.co_filename]].append(item)
    return result


def namespace_of(text: str, path: str, like: dict[str, Any]) -> dict[str, Any]:
    """Returns the names that a module has after it ran, as one that has the names `like`."""
    kept = ("__name__", "__package__", "__file__", "__spec__", "__loader__")
    names = {name: like[name] for name in kept if name in like}
    exec(compile(text, path, "exec"), names)
    return names


def in_words(value: Any) -> str:
    """Returns a value as text, without the addresses of objects."""
    return re.sub(r"0x[0-9a-f]+", "", repr(value))


def functions_in(names: dict[str, Any]) -> dict[str, types.FunctionType]:
    """Returns {qualified name: a function} of a module and its classes."""
    result = {}
    for value in [*names.values()]:
        parts = [value, *(vars(value).values() if isinstance(value, type) else ())]
        for part in parts:
            part = getattr(part, "__wrapped__", getattr(part, "__func__", part))
            if isinstance(part, types.FunctionType) and part.__globals__ is names:
                result[part.__qualname__] = part
    return result


def replace(path: str, before: str, after: str, functions: list[types.FunctionType]) -> None:
    """Puts the code of a file's new text into its functions, and new values to its names."""
    old_codes, new_codes = codes(before, path), codes(after, path)
    keys = {(code, code.co_firstlineno): key for key, code in old_codes.items()}
    spaces = {id(function.__globals__): function.__globals__ for function in functions}
    fresh = {
        key: (namespace_of(before, path, space), namespace_of(after, path, space))
        for key, space in spaces.items()
    }
    defaults = {key: functions_in(new) for key, (_, new) in fresh.items()}
    for function in functions:
        new = new_codes.get(
            keys.get((function.__code__, function.__code__.co_firstlineno), ("", 0))
        )
        if new and len(new.co_freevars) == len(function.__code__.co_freevars):
            function.__code__ = new
        if like := defaults[id(function.__globals__)].get(function.__qualname__):
            function.__defaults__ = like.__defaults__
            function.__kwdefaults__ = like.__kwdefaults__
    modules = [module for module in list(sys.modules.values()) if ours(module)]
    for key, (old, new_names) in fresh.items():
        for name in set(old) & set(new_names) - {"__builtins__"}:
            if in_words(old[name]) == in_words(new_names[name]):
                continue
            held = spaces[key].get(name)
            for names in [spaces[key], *(vars(module) for module in modules)]:
                if name in names and names[name] is held:
                    names[name] = new_names[name]


def ours(module: object) -> bool:
    """Returns whether a module is of this project: a package, a test, or what tests use."""
    name = getattr(module, "__name__", "")
    file = getattr(module, "__file__", None) or ""
    return name.split(".")[0] in PROJECT or f"{os.sep}{TESTS}{os.sep}" in file


def selects(entry: str, test: str) -> bool:
    """Returns whether an entry of groups.yaml means a test, by its name."""
    name, _, pattern = entry.partition(WHERE)
    is_of_it = re.match(rf"{re.escape(name)}(/|::|\[|$)", test)
    return bool(is_of_it and re.search(pattern, test))


# The plugin --------------------------------------------------------------------------------------


class Planter:
    """Runs the collected tests without a mistake, and then some of them for each mistake."""

    def __init__(
        self,
        root: pathlib.Path,
        files: dict[str, list[str]],
        places: list[mutants.Place],
        output: pathlib.Path,
    ) -> None:
        """root: the copy of the project. files: {file: the tests, or files of tests, of it}."""
        self.root, self.files, self.places, self.output = root, files, places, output
        self.paths = {str(root / file): file for file in files}
        # A test may run a copy, as of tfrun/problems/adapted_problem.py: that is the file as well.
        names = [pathlib.Path(file).name for file in files]
        copies = {
            name: file
            for name, file in zip(names, files)
            if "__" not in name and names.count(name) == 1
        }
        libraries = (sys.prefix, sys.base_prefix)
        self.file_of = functools.cache(
            lambda path: (
                self.paths.get(path)
                or (not path.startswith(libraries) and copies.get(os.path.basename(path)))
                or None
            )
        )
        self.texts: dict[str, str] = {}  # of the files, without a mistake
        self.functions: dict[str, list[types.FunctionType]] = {}  # of the files, loaded here
        self.seen: dict[str, Seen] = {}
        self.watching = False
        self.is_fork = False
        self.failed = ""
        self.stamps = itertools.count(2_000_000_000)  # Python compiles what has another time

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Forks for each mistake. In a fork it returns None, and pytest runs the tests."""
        self.texts = {file: (self.root / file).read_text() for file in self.files}
        for entry in {entry for entries in self.files.values() for entry in entries}:
            if not any(selects(entry, item.nodeid) for item in session.items):
                raise pytest.UsageError(f"tests/mutation/groups.yaml: no test is {entry}")
        self.functions = loaded_functions(self.paths)
        gc.collect()
        gc.freeze()  # a fork that collects garbage leaves this alone
        items = {item.nodeid: item for item in session.items}
        seen = self.watch_tests(session)
        if seen is None:
            return None if self.is_fork else True
        outcomes = []
        for place in self.places:
            own = [test for test in seen if self.looks_at(test.name, place.file)]
            tests = narrowest(place, own, self.texts[place.file])
            limit = LIMIT * sum(test.seconds for test in tests) + MARGIN_SECONDS
            outcome = self.try_mistake(session, place, [items[test.name] for test in tests], limit)
            if outcome is None:
                return None
            outcomes.append(outcome)
            if os.environ.get("MUTATION_LOG"):
                print(place, outcome, flush=True)
        self.output.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes]))
        return True

    def watch_tests(self, session: pytest.Session) -> list[Seen] | None:
        """Runs all tests without a mistake, in a fork; returns what each does.

        Returns None where pytest itself has failed, and in the fork.
        """

        def without() -> None:
            self.watching = True
            session.config.option.maxfail = 0  # what fails here is left out below
            for file, text in self.texts.items():
                self.put_into_functions(file, text)

        everything = [
            item for item in session.items if any(self.looks_at(item.nodeid, f) for f in self.files)
        ]
        code, _ = self.fork(session, everything, without, FIRST_SECONDS)
        watched = self.output.with_suffix(".watched")
        if self.is_fork or code not in (0, 1) or not watched.exists():
            return None
        return [
            Seen(name, seconds, {(file, line) for file, line in called}, starts)
            for name, seconds, called, starts in json.loads(watched.read_text())
        ]

    def try_mistake(
        self, session: pytest.Session, place: mutants.Place, tests: list[pytest.Item], limit: float
    ) -> Outcome | None:
        """Runs these tests with a mistake, in a fork, for so many seconds; None in the fork."""
        text, path = place.plant(), self.root / place.file
        self.write(path, text)
        plant = functools.partial(self.put_into_functions, place.file, text)
        code, seconds = self.fork(session, tests, plant, limit)
        if self.is_fork:
            return None
        self.write(path, self.texts[place.file])
        failed = self.output.with_suffix(".failed")
        by = failed.read_text() if failed.exists() else "an exit"
        failed.unlink(missing_ok=True)
        return Outcome(code != 0, code is None, seconds, "time" if code is None else by)

    def put_into_functions(self, file: str, text: str) -> None:
        """Puts the code of a text of a file into the functions of it that this process has."""
        if self.functions[file]:
            replace(str(self.root / file), self.texts[file], text, self.functions[file])

    def looks_at(self, test: str, file: str) -> bool:
        """Returns whether a test is one of those of a file."""
        return any(selects(entry, test) for entry in self.files[file])

    def write(self, path: pathlib.Path, text: str) -> None:
        """Writes a file of the copy, so that no compiled form of another text is taken for it."""
        path.write_text(text)
        stamp = next(self.stamps)
        os.utime(path, (stamp, stamp))

    def fork(
        self,
        session: pytest.Session,
        items: list[pytest.Item],
        prepare: Callable[[], None],
        limit: float,
    ) -> tuple[int | None, float]:
        """Forks for some tests; returns (pytest's exit code, or None after too long, seconds).

        In the fork it returns at once, and the tests come next.
        """
        if not items:
            return 0, 0.0
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            self.is_fork = True
            end_with_parent()
            os.setsid()
            session.items[:] = items
            records = tempfile.mkdtemp(dir=self.root.parent)
            session.records = records  # type: ignore[attr-defined]
            os.environ["XDG_STATE_HOME"] = records
            try:
                prepare()
            except BaseException as error:  # the module cannot be imported any more
                self.output.with_suffix(".failed").write_text(f"its import: {error!r}"[:200])
                os._exit(2)
            return 0, 0.0
        code: int | None = None
        while time.monotonic() - began < limit:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.005)
        end_all(pid)
        return code, time.monotonic() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Notes which functions a test calls, and whether it starts processes."""
        if not self.watching:
            return (yield)
        seen = self.seen[item.nodeid] = Seen(item.nodeid)

        def profile(frame: types.FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            if event == "call" and (file := self.file_of(code.co_filename)):
                seen.called.add((file, code.co_firstlineno))
            if event == "c_call" and getattr(argument, "__name__", "") in STARTS:
                seen.starts = True

        began = time.monotonic()
        sys.setprofile(profile)
        threading.setprofile(profile)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            seen.seconds = time.monotonic() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Skips a test that replaces a line which the mistake has changed: it finds nothing."""
        report = yield
        if self.is_fork and call.excinfo and GONE.search(str(call.excinfo.value)):
            report.outcome = "skipped"
            report.longrepr = str(item.path), 0, "the line that it replaces is gone"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the first test that fails."""
        if report.failed and self.watching:
            print(f"\n{LEFT_OUT}{report.nodeid}\n{report.longreprtext[-2000:]}")
            self.seen.pop(report.nodeid, None)
        elif report.failed and not self.failed:
            self.failed = report.nodeid
            self.output.with_suffix(".failed").write_text(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Ends a fork at once; the collections of garbage that come next take a second."""
        if self.watching:
            rows = [(t.name, t.seconds, sorted(t.called), t.starts) for t in self.seen.values()]
            self.output.with_suffix(".watched").write_text(json.dumps(rows))
        if self.is_fork:
            sys.stdout.flush()
            os._exit(int(exitstatus))


def end_all(pid: int) -> None:
    """Ends a process with all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for child in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
