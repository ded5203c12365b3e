"""A plugin of pytest that runs tests once for each mistake, each time in a fork of this process.

An import of TensorFlow, and of all else that the tests import, takes seconds. A fork of a process
that has imported it begins at once. So this process imports and collects the tests once. Then it
forks, for three kinds of work:

1. The first fork runs all tests without a mistake. It notes which functions each of them calls, how
   long it takes, and which tests fail (profiling.py).
2. For each mistake this process writes the mistaken file, which every process reads that starts
   from now on, and forks again. Where the mistake stands in a region that other scripts of the
   group share, it plants it in all of them, as `lab/regions.py --fix` would.
3. The fork puts the mistaken code into the functions that it has imported already (patching.py),
   and runs the tests that may find the mistake, up to the first failure. Its exit code tells.
"""

import contextlib
import dataclasses
import gc
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Generator
from typing import Any

import psutil
import pytest
from tfrun.launch.task import end_with_parent

from lab import regions
from lab.mutation import mutants, patching, profiling

LIMIT = 4  # times the seconds of the same tests without a mistake, and MARGIN_SECONDS besides
MARGIN_SECONDS = 20
FIRST_SECONDS = 2400  # for all tests of a group without a mistake, at most
LEFT_OUT = "left out, because it fails without a mistake: "
TEXT_IS_GONE = re.compile(r"stands \d+ times")  # what lab.examples.replaced() raises says so
WHERE = " where "  # between a file of tests and a pattern, in groups.yaml


@dataclasses.dataclass
class Outcome:
    """What became of a mistake."""

    caught: bool
    by_time: bool
    seconds: float
    by: str = ""  # the test that failed


def selects(entry: str, test: str) -> bool:
    """Returns whether an entry of groups.yaml means a test, by its name."""
    name, _, pattern = entry.partition(WHERE)
    stands_there = re.match(rf"{re.escape(name)}(/|::|\[|$)", test)
    return bool(stands_there and re.search(pattern, test))


class Planter:
    """Runs the collected tests without a mistake, and then some of them for each mistake.

    Each fork has a copy of this object. `is_fork` is true in all forks, and `is_profiling` in the
    one without a mistake.
    """

    def __init__(
        self,
        root: pathlib.Path,
        files: dict[str, list[str]],
        mutations: list[mutants.Mutation],
        output: pathlib.Path,
    ) -> None:
        """root: the copy of the project. files: {file: the entries of groups.yaml that test it}.

        output: where the outcomes of the mistakes are written, as JSON.
        """
        self.root, self.files = root, files
        self.mutations, self.output = mutations, output
        self.profiles_path = output.with_suffix(".profiles")
        self.failure_path = output.with_suffix(".failure")  # the first test that failed in a fork
        self.profiler = profiling.Profiler(root, files)
        self.texts: dict[str, str] = {}  # of the files, without a mistake
        self.functions: dict[str, list[types.FunctionType]] = {}  # of the files, imported here
        self.is_fork = False
        self.is_profiling = False
        self.has_failed = False
        self.file_times = itertools.count(2_000_000_000)

    # In the process that has imported everything ------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Forks for each mistake; returns True when all is done.

        In a fork it returns None, so pytest goes on with its own loop, and runs `session.items`.
        """
        self.check_entries(session)
        self.texts = {file: (self.root / file).read_text() for file in self.files}
        paths = {str(self.root / file): file for file in self.files}
        self.functions = patching.loaded_functions(paths)
        gc.collect()
        gc.freeze()  # a fork that collects garbage leaves this alone
        items = {item.nodeid: item for item in session.items}
        profiles = self.profile_tests(session)
        if profiles is None:
            return None if self.is_fork else True
        outcomes = []
        for mutation in self.mutations:
            texts = self.mistaken_texts(mutation)
            chosen = self.choose_tests(mutation, [*texts], profiles)
            limit = LIMIT * sum(profile.seconds for profile in chosen) + MARGIN_SECONDS
            tests = [items[profile.name] for profile in chosen]
            outcome = self.try_texts(session, texts, tests, limit)
            if outcome is None:
                return None
            outcomes.append(outcome)
            if os.environ.get("MUTATION_LOG"):
                print(mutation, outcome, flush=True)
        self.output.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes]))
        return True

    def check_entries(self, session: pytest.Session) -> None:
        """Raises UsageError unless each entry of groups.yaml selects a test."""
        for entry in {entry for entries in self.files.values() for entry in entries}:
            if not any(selects(entry, item.nodeid) for item in session.items):
                raise pytest.UsageError(f"tests/mutation/groups.yaml: no test is {entry}")

    def looks_at(self, test: str, file: str) -> bool:
        """Returns whether a test is one of those of a file."""
        return any(selects(entry, test) for entry in self.files[file])

    def profile_tests(self, session: pytest.Session) -> list[profiling.Profile] | None:
        """Runs all tests without a mistake, in a fork; returns what each does.

        Returns None where pytest itself has failed, and in the fork.
        """

        def prepare() -> None:
            self.is_profiling = True
            session.config.option.maxfail = 0  # what fails here is left out below
            for file, text in self.texts.items():
                self.patch(file, text)

        tests = [
            item
            for item in session.items
            if any(self.looks_at(item.nodeid, file) for file in self.files)
        ]
        code, _ = self.fork(session, tests, prepare, FIRST_SECONDS)
        if self.is_fork or code not in (0, 1) or not self.profiles_path.exists():
            return None
        return profiling.read_profiles(self.profiles_path)

    def mistaken_texts(self, mutation: mutants.Mutation) -> dict[str, str]:
        """Returns {file: its text with a mistake}, of each file that shares its region."""
        texts = {mutation.file: mutation.plant()}
        if mutation.file.endswith(".py"):
            name, old = region_at(self.texts[mutation.file], mutation.line)
            new = dict(regions.split(texts[mutation.file])).get(name)
            for file, text in self.texts.items():
                shared = "\n".join(old)
                if name and new and file != mutation.file and text.count(shared) == 1:
                    texts[file] = text.replace(shared, "\n".join(new))
        return texts

    def choose_tests(
        self, mutation: mutants.Mutation, files: list[str], profiles: list[profiling.Profile]
    ) -> list[profiling.Profile]:
        """Returns the tests that may find a mistake in these files, each file's in their order."""
        chosen: dict[str, profiling.Profile] = {}
        for file in files:
            of_file = [profile for profile in profiles if self.looks_at(profile.name, file)]
            same = dataclasses.replace(mutation, file=file)
            for profile in profiling.choose_tests(same, of_file, self.texts[file]):
                chosen.setdefault(profile.name, profile)
        return list(chosen.values())

    def try_texts(
        self,
        session: pytest.Session,
        texts: dict[str, str],
        tests: list[pytest.Item],
        limit: float,
    ) -> Outcome | None:
        """Runs these tests with a mistake, in a fork, for so many seconds; None in the fork."""
        for file, text in texts.items():
            self.write_source(self.root / file, text)

        def prepare() -> None:
            for file, text in texts.items():
                self.patch(file, text)

        code, seconds = self.fork(session, tests, prepare, limit)
        if self.is_fork:
            return None
        for file in texts:
            self.write_source(self.root / file, self.texts[file])
        by = self.failure_path.read_text() if self.failure_path.exists() else "an exit"
        self.failure_path.unlink(missing_ok=True)
        return Outcome(code != 0, code is None, seconds, "time" if code is None else by)

    def patch(self, file: str, text: str) -> None:
        """Puts the code of a text of a file into the functions of it that this process has."""
        if self.functions[file]:
            path = str(self.root / file)
            patching.patch(path, self.texts[file], text, self.functions[file])

    def write_source(self, path: pathlib.Path, text: str) -> None:
        """Writes a file of the copy, with a time of its own, so that Python compiles it anew."""
        path.write_text(text)
        modified = next(self.file_times)
        os.utime(path, (modified, modified))

    def fork(
        self,
        session: pytest.Session,
        tests: list[pytest.Item],
        prepare: Callable[[], None],
        limit: float,
    ) -> tuple[int | None, float]:
        """Forks for some tests; returns (pytest's exit code, or None after too long, seconds).

        In the fork it returns at once, and pytest runs the tests when its caller has returned.
        """
        if not tests:
            return 0, 0.0
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            self.begin_fork(session, tests, prepare)
            return 0, 0.0
        code: int | None = None
        while time.monotonic() - began < limit:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.005)
        end_process_tree(pid)
        return code, time.monotonic() - began

    # In a fork ----------------------------------------------------------------------------------

    def begin_fork(
        self, session: pytest.Session, tests: list[pytest.Item], prepare: Callable[[], None]
    ) -> None:
        """Makes this process run these tests only, with files of its own; prepares their code."""
        self.is_fork = True
        end_with_parent()
        os.setsid()
        session.items[:] = tests
        records = tempfile.mkdtemp(dir=self.root.parent)
        session.records = records  # type: ignore[attr-defined] # which tests/conftest.py gives it
        os.environ["XDG_STATE_HOME"] = records
        try:
            prepare()
        except BaseException as error:  # the module cannot be imported any more
            self.failure_path.write_text(f"its import: {error!r}"[:200])
            os._exit(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Profiles a test, in the fork without a mistake."""
        if not self.is_profiling:
            return (yield)
        with self.profiler.profile(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Skips a test that replaces a line which the mistake has changed: it finds nothing."""
        report = yield
        if self.is_fork and call.excinfo and TEXT_IS_GONE.search(str(call.excinfo.value)):
            report.outcome = "skipped"
            report.longrepr = str(item.path), 0, "the line that it replaces is gone"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the first test that fails; without a mistake it forgets each that does."""
        if not report.failed:
            return
        if self.is_profiling:
            print(f"\n{LEFT_OUT}{report.nodeid}\n{report.longreprtext[-2000:]}")
            self.profiler.forget(report.nodeid)
        elif not self.has_failed:
            self.has_failed = True
            self.failure_path.write_text(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Ends a fork at once; the collections of garbage that come next take a second."""
        if self.is_profiling:
            self.profiler.write(self.profiles_path)
        if self.is_fork:
            sys.stdout.flush()
            os._exit(int(exitstatus))


def region_at(text: str, line: int) -> tuple[str | None, list[str]]:
    """Returns (the name of the region in which a line of a script stands, or None, its lines)."""
    number = 0
    for name, lines in regions.split(text):
        number += len(lines)
        if number >= line:
            return name, lines
    return None, []


def end_process_tree(pid: int) -> None:
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
