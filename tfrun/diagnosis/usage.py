"""Reads usage.jsonl, whose format is in tfrun/launch/usage.py."""

import contextlib
import json
import math
import pathlib
from typing import NamedTuple

import numpy as np

from tfrun.runs import run_directory

LEAST_SECONDS = 1.5  # between two lines: what a shorter time has used is not known well enough
THROTTLED = 0.85  # of a quota in use


class Use(NamedTuple):
    """What a task has used in a time, each a mean number."""

    cpu: float  # of cores in use
    queued: float  # of threads that waited for a core
    cores: float = math.inf  # that it may use

    @property
    def is_throttled(self) -> bool:
        """Whether a quota below one core let it wait: the kernel queues no such thread."""
        return self.cores < 1 and self.cpu >= THROTTLED * self.cores

    @property
    def demand(self) -> float:
        """The cores that it used or waited for."""
        return 1.0 if self.is_throttled else self.cpu + self.queued


class TaskUsage(NamedTuple):
    """What a task has used at each line that names it; arrays [lines]."""

    time: np.ndarray
    cpu: np.ndarray
    queued: np.ndarray
    cores: np.ndarray
    states: list[str]  # in the words of psutil

    def between(self, begin: float, end: float) -> Use | None:
        """Returns what it used in a time, in seconds since 1970; None where too few lines tell."""
        begin, end = max(begin, self.time[0]), min(end, self.time[-1])
        if end - begin < LEAST_SECONDS:
            return None
        cpu, queued = (
            float(np.diff(np.interp([begin, end], self.time, column))[0]) / (end - begin)
            for column in (self.cpu, self.queued)
        )
        return Use(cpu, queued, float(np.interp(end, self.time, self.cores)))

    def idle(self, begin: float, end: float) -> float:
        """Returns the seconds of a time in which it neither used a core nor waited for one."""
        inside = (self.time >= begin) & (self.time <= end)
        demand = np.diff((self.cpu + self.queued)[inside])
        return float(np.maximum(0, np.diff(self.time[inside]) - demand).sum())

    def stopped(self, begin: float, end: float) -> float:
        """Returns the share of its lines in a time that say it was stopped by a signal."""
        inside = [s for t, s in zip(self.time, self.states) if begin <= t <= end]
        return sum(state == "stopped" for state in inside) / max(1, len(inside))


class Usage(NamedTuple):
    """What a usage.jsonl has; arrays [lines]."""

    time: np.ndarray
    cores: np.ndarray
    machine: np.ndarray
    machine_cores: np.ndarray
    tasks: dict[str, TaskUsage]  # by the names of their files, such as worker-0

    def machine_between(self, begin: float, end: float) -> float:
        """Returns how many cores all programs used in a time; nan where too few lines tell."""
        no_queue = np.zeros_like(self.time)
        use = TaskUsage(self.time, self.machine, no_queue, self.cores, []).between(begin, end)
        return use.cpu if use else math.nan


def read(directory: pathlib.Path) -> Usage | None:
    """Returns the Usage of a run; None where no tfrun has watched it."""
    lines = []
    with contextlib.suppress(OSError):
        for text in (directory / run_directory.USAGE).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # a kill has cut it short
                lines.append(json.loads(text))
    if not lines:
        return None
    tasks = {}
    for name in {name: None for line in lines for name in line["tasks"]}:
        own = [(line["time"], *line["tasks"][name]) for line in lines if name in line["tasks"]]
        times, cpu, queued, cores, states = zip(*own)
        arrays = [np.array(column, float) for column in (times, cpu, queued, cores)]
        tasks[name] = TaskUsage(arrays[0], arrays[1], arrays[2], arrays[3], list(states))
    keys = "time", "cores", "machine", "machine_cores"
    columns = [np.array([line[key] for line in lines], float) for key in keys]
    return Usage(columns[0], columns[1], columns[2], columns[3], tasks)
