"""RunData: all that the tasks of a run have left in its directories, read once.

The chief leaves flags.json, and each task that trains or tests leaves metrics-<task>.csv.
"""

import collections
import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfrun.runs import metrics_csv, run_directory


@dataclasses.dataclass(frozen=True)
class TaskMetrics:
    """The columns of a task's pushes and tests in order of time: {name: array of floats}.

    A number is NaN where its row says nothing. Both have all columns.
    """

    pushes: dict[str, np.ndarray]
    tests: dict[str, np.ndarray]
    spans: list[tuple[float, float]]  # of each start its first and last time; inf, -inf: no row

    @property
    def test_begins(self) -> np.ndarray:
        """When each test began; its time stands in the file in the column of a push's pull."""
        return self.tests["pull_time"]

    @property
    def test_ends(self) -> np.ndarray:
        """When each test ended."""
        return self.tests["push_time"]

    @classmethod
    def read(cls, *paths: pathlib.Path) -> "TaskMetrics | None":
        """Returns the TaskMetrics in the files of one task; None where they have no header.

        Several files are those of a task that has run on several hosts. A file whose rows are all
        in another one is a copy of it. Raises OSError.
        """
        files = [metrics_csv.read(path) for path in paths]
        header = dict.fromkeys(name for file in files for name in file.columns)
        if "push_time" not in header:
            return None
        columns_of_files = [columns_of(file, header) for file in files]
        is_new = [np.ones(len(file.pushes), bool) for file in files]
        if len(files) > 1:
            is_new = new_rows(files, columns_of_files)
        spans = [
            span
            for file, is_new_here in zip(files, is_new)
            if is_new_here.any() or len(files) == 1
            for span in file.spans
        ]
        columns = {
            name: np.concatenate([columns[name] for columns in columns_of_files]) for name in header
        }
        order = np.argsort(columns["push_time"], kind="stable")
        order = order[np.concatenate(is_new)[order]]
        is_push = np.concatenate([np.asarray(file.pushes, bool) for file in files])[order]
        is_test = np.concatenate([np.asarray(file.tests, bool) for file in files])[order]
        pushes = {name: column[order[is_push]] for name, column in columns.items()}
        tests = {name: column[order[is_test]] for name, column in columns.items()}
        return cls(pushes, tests, spans)


def columns_of(file: metrics_csv.Metrics, header: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns all columns of a header, NaN where the file has no such column."""
    missing = np.full(len(file.pushes), np.nan)
    return {name: np.asarray(file.columns.get(name, missing), float) for name in header}


def new_rows(
    files: Sequence[metrics_csv.Metrics], columns_of_files: Sequence[dict[str, np.ndarray]]
) -> list[np.ndarray]:
    """Returns for each file which of its rows no file before it has: arrays of bool."""
    known: set[bytes] = set()
    is_new = []
    for file, columns in zip(files, columns_of_files):
        table = np.column_stack([*columns.values(), file.pushes, file.tests])
        rows = [row.tobytes() for row in table]  # as bytes, because no NaN is equal to another
        is_new.append(np.array([row not in known for row in rows], bool))
        known.update(rows)
    return is_new


@dataclasses.dataclass
class RunData:
    """What a run has left in its directories: one, or one for each host."""

    directories: list[pathlib.Path]
    tasks: dict[str, TaskMetrics]  # of those with metrics, by names such as worker-0, in order
    flags: dict[str, Any] | None  # the content of flags.json
    result: dict[str, Any] | None  # the content of result.json in the first directory

    @classmethod
    def read(cls, *directories: str | pathlib.Path) -> "RunData":
        """Returns the RunData of these directories. Raises OSError."""
        folders = [pathlib.Path(directory) for directory in directories]
        paths: dict[str, dict[pathlib.Path, None]] = collections.defaultdict(dict)
        for folder in folders:
            for task, path in metrics_csv.files(folder).items():
                paths[task][path.resolve()] = None  # a folder may be given twice
        tasks = {task: m for task in sorted(paths) if (m := TaskMetrics.read(*paths[task]))}
        flags = None
        with contextlib.suppress(ValueError):
            flags = run_directory.read_flags(*folders)
        return cls(folders, tasks, flags, run_directory.result(folders[0]))

    @property
    def directory(self) -> pathlib.Path:
        """The first directory, which gets what is written about the run."""
        return self.directories[0]

    @property
    def example(self) -> str:
        """The name of the example; that of the directory where flags.json says none."""
        return self.flags["example"] if self.flags else self.directory.name

    def without_pauses(self) -> "RunData":
        """Returns the run as if it had gone on at once wherever no task ran for a time."""
        spans = [span for metrics in self.tasks.values() for span in metrics.spans]
        spans = sorted(span for span in spans if span[0] <= span[1])
        ends = itertools.accumulate((end for _, end in spans), max)
        pauses = [(end, begin - end) for end, (begin, _) in zip(ends, spans[1:]) if begin > end]

        def moved(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            times = {name: columns[name] for name in {"push_time", "pull_time"} & columns.keys()}
            for name, time in times.items():
                times[name] = time - sum((time > end) * seconds for end, seconds in pauses)
            return {**columns, **times}

        tasks = {
            name: TaskMetrics(moved(metrics.pushes), moved(metrics.tests), metrics.spans)
            for name, metrics in self.tasks.items()
        }
        return dataclasses.replace(self, tasks=tasks)

    def rows(self, kind: str, task: str | None = None) -> list[dict[str, Any]]:
        """Returns {column: number} and "task" of all "pushes" or "tests", in order of time."""
        tasks = {name: m for name, m in self.tasks.items() if task in (None, name)}
        of_task = {t: metrics_csv.rows_of(getattr(m, kind)) for t, m in tasks.items()}
        rows = [{**row, "task": t} for t in tasks for row in of_task[t]]
        return sorted(rows, key=lambda row: row["push_time"])
