"""RunData: all that the tasks of a run have left in its directories, read once.

The chief leaves flags.json, and each task that trains or tests leaves metrics-<task>.csv.
"""

import collections
import dataclasses
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
    restarts: int  # how often the task was started again

    @classmethod
    def read(cls, *paths):
        """Returns the TaskMetrics in the files of one task; None where they have no header.

        Several files are those of a task that has run on several hosts. A file whose rows are all
        in another one is a copy of it. Raises OSError.
        """
        header, rows, restarts, parts = {}, {}, 0, 0
        for path in paths:
            names, more, new_restarts = metrics_csv.read(path)
            header.update(dict.fromkeys(names))
            if more.keys() - rows.keys():
                restarts, parts = restarts + new_restarts, parts + 1
            rows.update(more)
        if "push_time" not in header:
            return None
        ordered = sorted(rows.values(), key=lambda row: row["push_time"])
        pushes = columns_of([row for row in ordered if row["push"]], header)
        tests = columns_of([row for row in ordered if row["test"]], header)
        return cls(pushes, tests, restarts + max(0, parts - 1))


def columns_of(rows, names) -> dict[str, np.ndarray]:
    """Returns the columns of these names, NaN where a row has no such number."""
    return {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names}


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
        tasks = {task: TaskMetrics.read(*paths[task]) for task in sorted(paths)}
        tasks = {task: metrics for task, metrics in tasks.items() if metrics}
        try:
            flags = run_directory.read_flags(*directories)
        except ValueError:
            flags = None
        return cls(directories, tasks, flags, run_directory.result(directories[0]))

    @property
    def directory(self) -> pathlib.Path:
        """The first directory, which gets what is written about the run."""
        return self.directories[0]

    @property
    def example(self) -> str:
        """The name of the example; that of the directory where flags.json says none."""
        return self.flags["example"] if self.flags else self.directory.name

    def pushes(self, task=None) -> list[dict]:
        """Returns the pushes of all tasks, or of one, in order of time.

        A push is a dict of floats, with the name of its task under "task".
        """
        return in_order((name, m.pushes) for name, m in self.tasks.items() if task in (None, name))

    def tests(self, task=None) -> list[dict]:
        """Returns the tests of all tasks, or of one, in the form of `pushes`."""
        return in_order((name, m.tests) for name, m in self.tasks.items() if task in (None, name))


def in_order(columns_of_tasks) -> list[dict]:
    """Returns the rows of some (task, columns) in order of time, each with its task."""
    rows = [{**row, "task": task} for task, cols in columns_of_tasks for row in rows_of(cols)]
    return sorted(rows, key=lambda row: row["push_time"])
