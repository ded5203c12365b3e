"""What TensorBoard shows of a run, made from the metrics of its tasks; needs no TensorFlow.

Each task is a run of its own in TensorBoard: loss, staleness and rate of its pushes, as the means
of each second, and its tests. The run's flags are a text beside its first task.
"""

import itertools
import json
import math
import pathlib
import shutil
import tempfile
from collections.abc import Mapping

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from tfrun.runs.data import RunData
from tfrun.runs.metrics_csv import rows_of

FOLDER = "tensorboard"  # in the run directory, written at the end of a run


class Events:
    """Writes the events of a run into a folder, with a folder in it for each task."""

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)
        # {task: how many of its pushes and of its tests were written}
        self.counts: dict[str, tuple[int, int]] = {}
        self.flags_written = False

    def update(self, run: RunData) -> None:
        """Writes what the tasks have left since the last call."""
        if run.flags and not self.flags_written:
            text = text_pb("flags", f"```\n{json.dumps(run.flags, indent=2)}\n```")
            paths = [directory / "flags.json" for directory in run.directories]
            written_at = max(path.stat().st_mtime for path in paths if path.exists())
            self.write_event(run.flags["tasks"][0], written_at, 0, text)
            self.flags_written = True
        for task, metrics in run.tasks.items():
            n_pushes, n_tests = self.counts.get(task, (0, 0))
            pushes, tests = metrics.pushes, metrics.tests
            times = pushes["push_time"]
            for test in rows_of({name: column[n_tests:] for name, column in tests.items()}):
                names = [name for name in test if name.startswith("test_")]
                scalars = {name: test[name] for name in names if math.isfinite(test[name])}
                self.write_scalars(task, test, scalars)
            before = times[n_pushes - 1] if n_pushes else None
            ends = n_pushes + np.flatnonzero(np.diff(np.floor(times[n_pushes:]))) + 1
            for begin, end in itertools.pairwise([n_pushes, *ends, len(times)]):
                if begin < end:
                    second = {name: column[begin:end] for name, column in pushes.items()}
                    last = {name: column[-1] for name, column in second.items()}
                    self.write_scalars(task, last, means(second, before))
                    before = last["push_time"]
            self.counts[task] = len(times), len(metrics.test_ends)

    def write_scalars(
        self, task: str, row: Mapping[str, float], scalars: Mapping[str, float]
    ) -> None:
        """Writes {tag: number} at the time and the step of a row."""
        values = [summary_pb2.Summary.Value(tag=t, simple_value=v) for t, v in scalars.items()]
        content = summary_pb2.Summary(value=values)
        self.write_event(task, row["push_time"], int(row["global_step"]), content)

    def write_event(
        self, task: str, wall_time: float, step: int, content: summary_pb2.Summary
    ) -> None:
        """Writes an event of a task; its first event makes its file."""
        (self.folder / task).mkdir(parents=True, exist_ok=True)
        # TensorBoard looks for files of such names.
        with open(self.folder / task / "events.out.tfevents.metrics", "ab") as file:
            events = [event_pb2.Event(wall_time=wall_time, step=step, summary=content)]
            if not file.tell():
                events.insert(0, event_pb2.Event(file_version="brain.Event:2"))
            for event in events:
                RecordWriter(file).write(event.SerializeToString())


def means(pushes: Mapping[str, np.ndarray], before: float | None) -> dict[str, float]:
    """Returns {tag: number} of the columns of some pushes.

    before: the time of the push before them, or None.
    """
    scalars, times = {}, pushes["push_time"]
    for name in ("loss", "staleness"):
        mean = pushes[name].mean() if name in pushes else math.nan
        if math.isfinite(mean):
            scalars[name] = mean
    count = len(times)
    if before is None:  # the first push only starts the clock
        before, count = times[0], count - 1
    seconds = times[-1] - before
    if seconds > 0:
        scalars["updates_per_second"] = count / seconds
    return scalars


def write(run: RunData) -> None:
    """Writes the folder `tensorboard` into the first directory, in place of an earlier one."""
    with tempfile.TemporaryDirectory(prefix=f".{FOLDER}-", dir=run.directory) as partial:
        events = Events(pathlib.Path(partial) / FOLDER)
        events.update(run)
        shutil.rmtree(run.directory / FOLDER, ignore_errors=True)
        events.folder.replace(run.directory / FOLDER)
