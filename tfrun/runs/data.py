"""RunData: all that the tasks of a run have left in its directories, read once.

The chief leaves flags.json, and each task that trains or tests leaves metrics-<task>.csv.
"""

import collections
import contextlib
import copy
import dataclasses
import itertools
import pathlib

import numpy as np

from tfrun.runs import metrics_csv, run_directory


@dataclasses.dataclass(frozen=True)
class TaskMetrics:
    """The columns of a task's pushes and tests in order of time: {name: array of floats}.

    A number is NaN where its row says nothing. Both have all columns.
    """

    pushes: dict[str, np.ndarray]
    tests: dict[str, np.ndarray]
    times: list[list[float]]  # in its rows; those of each start are a list

    @classmethod
    def read(cls, *paths):
        """Returns the TaskMetrics in the files of one task; None where they have no header.

        Several files are those of a task that has run on several hosts. A file whose rows are all
        in another one is a copy of it. Raises OSError.
        """
        header, rows, times = {}, {}, []
        for path in paths:
            names, more, new_times = metrics_csv.read(path)
            header.update(dict.fromkeys(names))
            if more.keys() - rows.keys():
                times += new_times
            rows.update(more)
        if "push_time" not in header:
            return None
        ordered = sorted(rows.values(), key=lambda row: row["push_time"])

        def columns(kind):
            of_kind = [row for row in ordered if row[kind]]
            return {n: np.array([row.get(n, np.nan) for row in of_kind], float) for n in header}

        return cls(columns("push"), columns("test"), times)


def rows_of(columns) -> list[dict[str, float]]:
    """Returns the rows of some columns, each a dict of floats."""
    values = zip(*(column.tolist() for column in columns.values()))
    return [dict(zip(columns, row)) for row in values]


@dataclasses.dataclass
class RunData:
    """What a run has left in its directories: one, or one for each host."""

    directories: list[pathlib.Path]
    tasks: dict[str, TaskMetrics]  # of those with metrics, by names such as worker-0, in order
    flags: dict | None  # the content of flags.json
    result: dict | None  # the content of result.json in the first directory

    @classmethod
    def read(cls, *directories):
        """Returns the RunData of these directories. Raises OSError."""
        directories = [pathlib.Path(directory) for directory in directories]
        paths = collections.defaultdict(dict)
        for directory in directories:
            for task, path in metrics_csv.files(directory).items():
                paths[task][path.resolve()] = None  # a folder may be given twice
        tasks = {task: m for task in sorted(paths) if (m := TaskMetrics.read(*paths[task]))}
        flags = None
        with contextlib.suppress(ValueError):
            flags = run_directory.read_flags(*directories)
        return cls(directories, tasks, flags, run_directory.result(directories[0]))

    @property
    def directory(self) -> pathlib.Path:
        """The first directory, which gets what is written about the run."""
        return self.directories[0]

    @property
    def example(self) -> str:
        """The name of the example; that of the directory where flags.json says none."""
        return self.flags["example"] if self.flags else self.directory.name

    def without_pauses(self):
        """Returns the run as if it had gone on at once wherever no task ran for a time."""
        times = [each for metrics in self.tasks.values() for each in metrics.times if each]
        spans = sorted((np.nanmin(each), np.nanmax(each)) for each in times)
        ends = itertools.accumulate((end for _, end in spans), max)
        pauses = [(end, begin - end) for end, (begin, _) in zip(ends, spans[1:]) if begin > end]
        run = copy.deepcopy(self)
        for metrics in run.tasks.values():
            for columns in metrics.pushes, metrics.tests:
                for name in {"push_time", "pull_time"} & columns.keys():
                    columns[name] -= sum((columns[name] > end) * s for end, s in pauses)
        return run

    def rows(self, kind, task=None) -> list[dict]:
        """Returns {column: number} and "task" of all "pushes" or "tests", in order of time."""
        tasks = {name: m for name, m in self.tasks.items() if task in (None, name)}
        rows = [{**row, "task": t} for t in tasks for row in rows_of(getattr(tasks[t], kind))]
        return sorted(rows, key=lambda row: row["push_time"])
