"""Writes usage.jsonl while a run goes on: what its tasks, and their machine, have used so far.

No task knows that of itself. A line a second has `time` in seconds since 1970, `cores` that the run
may use, `machine`, the core seconds that all programs have used, and `machine_cores`. Under `tasks`
it has for each task [core seconds, seconds in which its threads were ready and waited for a core,
cores that it may use by its affinity and the quotas of its control groups, the state of its process
in the words of psutil]. A start of the run begins the file anew.
"""

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Iterable
from typing import IO

import psutil

from tfrun import formatting
from tfrun.launch import cluster
from tfrun.launch.task import Task
from tfrun.runs import run_directory

SECONDS = 1.0  # between two lines
LOOKS = 10  # at a task, for each search for processes that it has started


class TaskMeter:
    """Measures what a task uses, over all its processes and starts."""

    def __init__(self) -> None:
        self.processes: list[psutil.Process] = []
        self.root: psutil.Process | None = None
        self.looks = 0
        self.cpu = self.cpu_before = self.queued = 0.0  # before: of the starts before this one
        self.cores = 0.0
        self.queued_of_thread: dict[int, float] = {}

    def measure(self, pid: int) -> list[float | str] | None:
        """Returns what usage.jsonl says of the task, whose process this is; None if it has ended.

        A search for what it has started reads all processes of the machine: not at each look.
        """
        try:
            if self.root is None or self.root.pid != pid:
                self.root, self.cpu_before = psutil.Process(pid), self.cpu
                self.looks, self.queued_of_thread = 0, {}
            if self.looks % LOOKS == 0:
                self.processes = [self.root, *self.root.children(recursive=True)]
                self.cores = cores_of(self.root)
            self.looks += 1
            state = self.root.status()
        except psutil.Error:
            return None
        cpu = 0.0
        for process in self.processes:
            with contextlib.suppress(psutil.Error):
                cpu += sum(process.cpu_times()[:4])  # with that of children that have ended
            self.add_queued(process.pid)
        self.cpu = max(self.cpu, self.cpu_before + cpu)
        return [round(self.cpu, 2), round(self.queued, 3), self.cores, state]

    def add_queued(self, pid: int) -> None:
        """Adds what the threads of a process have waited for a core since the last look (Linux)."""
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended
                seconds = int(path.read_text().split()[1]) / 1e9
                thread = int(path.parent.name)
                self.queued += max(0, seconds - self.queued_of_thread.get(thread, 0))
                self.queued_of_thread[thread] = seconds


def cores_of(process: psutil.Process) -> float:
    """Returns how many cores a process may use."""
    with contextlib.suppress(psutil.Error, AttributeError):
        return round(min(len(process.cpu_affinity()), cluster.cpu_quota(pid=process.pid)), 2)
    return float(cluster.cores())


class Recorder:
    """Writes a line a second about the tasks of a run."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path, self.next_line = directory / run_directory.USAGE, float("-inf")
        self.file: IO[str] | None = None
        self.meters: dict[str, TaskMeter] = {}

    def record(self, tasks: Iterable[Task]) -> None:
        """Writes a line, if one is due. A full disk ends the file, not the run."""
        if time.monotonic() < self.next_line:
            return
        self.next_line = time.monotonic() + SECONDS
        measured = {}
        for task in tasks:
            if task.is_local and task.process is not None and task.running():
                meter = self.meters.setdefault(formatting.file_name(task.name), TaskMeter())
                if columns := meter.measure(task.process.pid):
                    measured[formatting.file_name(task.name)] = columns
        line = {
            "time": round(time.time(), 3),
            "cores": cluster.cores(),
            "machine": round(busy_seconds(), 2),
            "machine_cores": os.cpu_count(),
            "tasks": measured,
        }
        with contextlib.suppress(OSError):
            self.file = self.file or open(self.path, "w", 1, encoding="utf-8")
            print(json.dumps(line), file=self.file)


def busy_seconds() -> float:
    """Returns the core seconds that all programs of this machine have used since it started."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names)
