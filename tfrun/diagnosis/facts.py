"""Facts: where the time of a run's workers went, from their metrics and what tfrun has recorded.

An update of a worker takes the time from its pull until its gradient is there, its computing; then
the time of its way to the ps, or around the ring, and back. In a step that all make together, a
worker also waits for the others; who comes last waits for nobody. What the chief tests and saves
lies between two of its updates. Only the latest launch counts, from the moment all its workers had
begun.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrun.diagnosis import places
from tfrun.diagnosis.usage import TaskUsage, Usage, Use
from tfrun.runs import run_directory
from tfrun.runs.data import RunData, TaskMetrics

LIVE_SECONDS = 60  # of a run that goes on: its last ones count
COLUMNS = {"push_time", "pull_time", "global_step", "local_steps", "staleness", "bytes", "loss"}
COLUMNS |= {"wait_seconds"}
LEAST_SILENCE = 5  # seconds without an update; a shorter time is no silence
RECENT_SECONDS = 10
SILENT_UPDATES = 20  # usual times of an update, in which a worker that goes on makes one


@dataclasses.dataclass(frozen=True)
class Worker:
    """What a worker did in the time that counts. Arrays have an entry for each of its updates."""

    name: str  # as in the names of files: worker-0
    compute: np.ndarray  # seconds
    way: np.ndarray  # seconds
    waiting: np.ndarray  # seconds for the others
    late: np.ndarray  # bool: it came too late for a step made together, and was dropped
    testing: float  # seconds in which it tested and saved
    tests: int
    longest_test: float  # seconds
    silent: float  # seconds of silences
    silent_alone: float  # of these, while others made updates
    there: float  # seconds in which its process ran, as far as tfrun has watched it
    last: float  # the time of its last row, in seconds since 1970; -inf without any
    use: Use | None  # of processor cores
    stopped: float  # the share of the time in which a signal had stopped it
    in_python: float  # the share of the time in which a graph ran a Python function of its own
    function: str  # mostly this one, as "file:line name"

    @property
    def updates(self) -> int:
        """How many updates it made."""
        return self.compute.size

    @property
    def seconds(self) -> float:
        """The seconds of its updates and tests: those in which it was there."""
        return sum(map(float, (v.sum() for v in (self.compute, self.way, self.waiting)))) + (
            self.testing
        )

    def share(self, part: str) -> float:
        """Returns the share of its seconds that were `compute`, `way`, `waiting`, or `testing`."""
        return float(np.sum(getattr(self, part))) / max(self.seconds, 1e-9)


@dataclasses.dataclass(frozen=True)
class Start:
    """How a worker began: from its first line in usage.jsonl until its first update."""

    seconds: float
    idle: float  # of these, those in which it neither used a core nor waited for one
    queued: float  # core seconds that its threads waited for


@dataclasses.dataclass(frozen=True)
class Facts:
    """What rules know of a run."""

    workers: list[Worker]
    servers: int
    together: bool  # whether all workers make a step together
    begin: float  # of the time that counts, in seconds since 1970; nan where nobody trained
    end: float
    usual: float  # median seconds of an update of a worker; nan without any
    quiet: float  # seconds from the last row of all to now, or to the end of the run
    stalled: float  # seconds of silences that all workers had at once
    state: str  # of the run: running, done, failed, stopped, lost; or unknown
    seconds: float  # from its start to now, or to its end
    starts: dict[str, Start]
    ps_use: Use | None  # of the busiest ps
    ps_stopped: float  # of the ps that was stopped for longest
    cores: float  # that the run may use
    machine_cores: float  # of the machine; nan where nobody has recorded these four
    all_cores: float  # in use, by all programs
    run_cores: float  # in use, by the run
    recent_cores: float  # in use by the run in its last RECENT_SECONDS
    has_gpus: bool
    bytes: float  # median of an update
    local_steps: float  # median of an update
    losses: np.ndarray  # of all pushes in order of time, from the very first on
    staleness: float  # mean
    steps: float  # the number of the last update
    arguments: Mapping[str, Any]
    example: str
    kind: str  # what the docstring of the script says after `Kind:`
    stopped_tasks: list[str]  # those which a signal has stopped now, or had when the run ended
    rows: dict[str, dict[str, np.ndarray]]  # of each worker, for tfrun plan

    @property
    def wall(self) -> float:
        """The seconds of the time that counts."""
        return self.end - self.begin

    @functools.cached_property
    def active(self) -> list[Worker]:
        """The workers that made updates."""
        return [worker for worker in self.workers if worker.updates]

    def mean(self, part: str) -> float:
        """Returns the mean share of the active workers' time: of `compute`, `way`, and so on."""
        return float(np.mean([worker.share(part) for worker in self.active] or [0.0]))


def window_of(pushes: Mapping[str, Mapping[str, np.ndarray]]) -> tuple[float, float]:
    """Returns (begin, end) of the time that counts: from the common start to the last push.

    The first push of a worker traces the graph, before the start. (nan, nan) where none has two.
    """
    seconds = [float(p["pull_time"][1]) for p in pushes.values() if p["push_time"].size > 1]
    if not seconds:
        return math.nan, math.nan
    return min(seconds), max(float(p["push_time"][-1]) for p in pushes.values() if len(p["loss"]))


def since(metrics: TaskMetrics, begin: float) -> TaskMetrics:
    """Returns the rows of a task that came at `begin` or later."""
    pushes, tests = (
        {name: column[columns["push_time"] >= begin] for name, column in columns.items()}
        for columns in (metrics.pushes, metrics.tests)
    )
    return TaskMetrics(pushes, tests, metrics.spans)


def inside(columns: Mapping[str, np.ndarray], begin: float, end: float) -> dict[str, np.ndarray]:
    """Returns the rows whose pull came at `begin` or later, and whose push until `end`."""
    chosen = (columns["pull_time"] >= begin) & (columns["push_time"] <= end)
    return {name: column[chosen] for name, column in columns.items()}


def gaps_of(metrics: TaskMetrics, push: np.ndarray, pull: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the seconds between updates, and which of them have a test: arrays as push is."""
    last = np.concatenate([pull[:1], push[:-1]])
    gap = np.maximum(pull - last, 0.0)
    ends = metrics.test_ends
    # A test in this gap ends after the update before it, and before w was pulled again.
    before = np.searchsorted(ends, last, side="right")
    return gap, np.searchsorted(ends, pull, side="right") > before


def waits_of_steps(pushes: Mapping[str, Mapping[str, np.ndarray]]) -> dict[float, float]:
    """Returns {step: the wait of the worker that came last, in seconds} of steps made together."""
    least: dict[float, float] = {}
    for columns in pushes.values():
        for step, wait in zip(columns["global_step"].tolist(), columns["wait_seconds"].tolist()):
            least[step] = min(wait, least.get(step, math.inf))
    return least


def silences(times: np.ndarray, tests: np.ndarray, limit: float) -> list[tuple[float, float]]:
    """Returns the (begin, end) of all times without a row that are longer than `limit` seconds.

    tests: the times at which tests ended; a time that has one at its edge or inside is no silence.
    """
    times = np.sort(times)
    long = [(times[i], times[i + 1]) for i in np.flatnonzero(np.diff(times) > limit)]
    return [(b, e) for b, e in long if not ((tests >= b) & (tests <= e)).any()]


def worker_of(
    name: str,
    metrics: TaskMetrics | None,
    window: tuple[float, float],
    others: np.ndarray,
    usual: float,
    least_waits: Mapping[float, float] | None,
    usage: Usage | None,
    seen: places.Places,
) -> Worker:
    """Returns the Worker of a task.

    others: the times of the others' pushes. least_waits: of waits_of_steps(), None where workers
    make updates of their own.
    """
    begin, end = window
    none = np.empty(0)
    compute = way = waiting = none
    late, own, test_ends = none.astype(bool), none, none
    testing, tests, last, longest = 0.0, 0, -math.inf, 0.0
    if metrics and metrics.pushes["push_time"].size:
        columns = inside(metrics.pushes, begin, end)
        push, pull, wait = (columns[c] for c in ("push_time", "pull_time", "wait_seconds"))
        gap, has_test = gaps_of(metrics, push, pull)
        testing, tests = float(gap[has_test].sum()), int(has_test.sum())
        gap_with_tests, gap = gap[has_test], np.where(has_test, 0.0, gap)
        # A pull takes no longer than a push: the rest is the worker's own, as its local steps are
        # in elastic averaging.
        pulling = np.minimum(gap, wait)
        compute = np.maximum(push - wait - pull, 0.0) + gap - pulling
        way, late = wait, np.zeros(wait.size, bool)
        if least_waits is not None:
            way = np.array([least_waits[step] for step in columns["global_step"].tolist()])
            late = columns["staleness"] > 0
        waiting = np.maximum(wait - way, 0.0)
        way = way + pulling
        longest = float(gap_with_tests.max(initial=0.0))
        test_ends = metrics.test_ends
        rows = np.concatenate([metrics.pushes["push_time"], test_ends])
        own, last = rows[(rows >= begin) & (rows <= end)], float(rows.max())
    own_usual = usual
    if own.size > 3 and least_waits is None:  # a straggler is slow, and not silent
        own_usual = max(usual, float(np.median(np.diff(np.sort(own)))))
    limit = max(LEAST_SILENCE, SILENT_UPDATES * own_usual)
    task = usage.tasks.get(name) if usage else None
    there = (max(begin, task.time[0]), min(end, task.time[-1])) if task else window
    first = there[0]
    if own.size and first > begin:  # it joined: what comes before its first update is its start
        first = own.min()
    own = np.concatenate([[first, there[1]], own])
    silent = silences(own, test_ends, limit) if there[0] < there[1] else []
    alone = [(b, e) for b, e in silent if ((others > b) & (others < e)).any()]
    in_python, function = seen.in_graph(*window)
    return Worker(
        name=name,
        compute=compute,
        way=way,
        waiting=waiting,
        late=late,
        testing=testing,
        tests=tests,
        longest_test=longest,
        silent=sum(e - b for b, e in silent),
        silent_alone=sum(e - b for b, e in alone),
        there=max(0.0, there[1] - there[0]),
        last=last,
        use=task.between(*window) if task else None,
        stopped=task.stopped(*window) if task else 0.0,
        in_python=in_python,
        function=function,
    )


def starts_of(tasks: Mapping[str, TaskMetrics], usage: Usage | None) -> dict[str, Start]:
    """Returns the Start of each worker that tfrun has watched and that has made an update."""
    starts = {}
    for name, metrics in tasks.items():
        task = usage.tasks.get(name) if usage else None
        if task and metrics.pushes["push_time"].size:
            begin, end = float(task.time[0]), float(metrics.pushes["push_time"][0])
            queued = np.interp([begin, end], task.time, task.queued)
            starts[name] = Start(end - begin, task.idle(begin, end), float(queued[1] - queued[0]))
    return starts


def losses_of(tasks: Mapping[str, TaskMetrics]) -> np.ndarray:
    """Returns the losses of all pushes in order of time, an array of floats."""
    columns = [metrics.pushes for metrics in tasks.values()]
    times = np.concatenate([np.empty(0), *(c["push_time"] for c in columns)])
    losses = np.concatenate([np.empty(0), *(c["loss"] for c in columns)])
    return losses[np.argsort(times, kind="stable")]


def median(arrays: list[np.ndarray]) -> float:
    """Returns the median of all finite values, nan without any."""
    values = np.concatenate([np.empty(0), *arrays])
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else math.nan


def of_run(
    data: RunData,
    usage: Usage | None,
    state: str = "unknown",
    started: float | None = None,
    ended: float | None = None,
    now: float | None = None,
    has_gpus: bool = False,
) -> Facts:
    """Returns the Facts of a run.

    state: as the record has it. started, ended: seconds since 1970, where known. now: of a run that
    goes on, else None. has_gpus: whether its workers see any, whose work nobody has recorded.
    """
    flags = data.flags or {"tasks": [], "ps": 0, "arguments": {}}
    begin_of_start = float(usage.time[0]) if usage else (started or -math.inf)
    everything = {
        name: since(metrics, begin_of_start)
        for name, metrics in data.tasks.items()
        if is_complete(name, metrics)
    }
    tasks = {name: m for name, m in everything.items() if name in flags["tasks"] or has_rows(m)}
    pushes = {name: m.pushes for name, m in tasks.items() if m.pushes["push_time"].size}
    begin, end = window_of(pushes)
    if now is not None:
        begin = max(begin, min(now, end) - LIVE_SECONDS)
    window = begin, end
    counted = {name: inside(columns, *window) for name, columns in pushes.items()}
    all_pushes = {name: columns["push_time"] for name, columns in counted.items()}
    steps = np.concatenate([np.empty(0), *(c["global_step"] for c in counted.values())])
    kind = run_directory.kind_of(flags.get("script", ""))
    is_joint = len(counted) > 1 and len(np.unique(steps)) < 0.75 * len(steps)
    is_joint = is_joint and not kind.startswith("gossip")  # where each counts steps of its own
    least_waits = waits_of_steps(counted) if is_joint else None
    usual = median([np.diff(times) for times in all_pushes.values()])
    workers = []
    for name in dict.fromkeys([*flags["tasks"], *tasks]):
        others = [times for other, times in all_pushes.items() if other != name]
        others_times = np.concatenate([np.empty(0), *others])
        metrics = tasks.get(name)
        seen = places.read(data.directory, name)
        arguments = metrics, window, others_times, usual, least_waits, usage, seen
        workers.append(worker_of(name, *arguments))
    rows = [r for m in tasks.values() for r in (m.pushes["push_time"], m.test_ends)]
    all_rows = np.concatenate([np.empty(0), *rows])
    at_end = now if now is not None else ended
    last = float(all_rows.max()) if all_rows.size else math.nan
    limit = max(LEAST_SILENCE, SILENT_UPDATES * usual) if usual == usual else math.inf
    test_ends = np.concatenate([np.empty(0), *(m.test_ends for m in tasks.values())])
    stalls = silences(all_rows[all_rows >= begin], test_ends, limit) if begin < end else []
    ps_tasks = {n: u for n, u in (usage.tasks if usage else {}).items() if n.startswith("ps-")}
    ps_uses = [use for task in ps_tasks.values() if (use := task.between(*window))]
    uses = [worker.use for worker in workers if worker.use]
    begin_of_all = started or begin_of_start
    return Facts(
        workers=workers,
        servers=int(flags["ps"]),
        together=is_joint,
        begin=begin,
        end=end,
        usual=usual,
        quiet=max(0.0, at_end - last) if at_end and last == last else 0.0,
        stalled=sum(e - b for b, e in stalls),
        state=state,
        seconds=(at_end or last) - begin_of_all if math.isfinite(begin_of_all) else math.nan,
        starts=starts_of(tasks, usage),
        ps_use=max(ps_uses, key=lambda use: use.demand, default=None),
        ps_stopped=max((task.stopped(*window) for task in ps_tasks.values()), default=0.0),
        cores=float(np.median(usage.cores)) if usage else math.nan,
        machine_cores=float(usage.machine_cores[-1]) if usage else math.nan,
        all_cores=usage.machine_between(*window) if usage else math.nan,
        run_cores=sum(use.cpu for use in [*uses, *ps_uses]),
        recent_cores=recent_cores(usage),
        has_gpus=has_gpus,
        bytes=median([columns["bytes"] for columns in counted.values()]),
        local_steps=median([columns["local_steps"] for columns in counted.values()]),
        losses=losses_of({n: m for n, m in data.tasks.items() if is_complete(n, m)}),
        staleness=mean([columns["staleness"] for columns in counted.values()]),
        steps=float(max((columns["global_step"].max() for columns in pushes.values()), default=0)),
        arguments=flags["arguments"],
        example=data.example,
        kind=kind,
        stopped_tasks=[n for n, u in (usage.tasks if usage else {}).items() if was_stopped(u)],
        rows=counted,
    )


def recent_cores(usage: Usage | None) -> float:
    """Returns how many cores the tasks used in their last seconds, nan where nobody knows."""
    if usage is None:
        return math.nan
    end = float(usage.time[-1])
    uses = [task.between(end - RECENT_SECONDS, end) for task in usage.tasks.values()]
    return sum(use.cpu for use in uses if use)


def is_complete(name: str, metrics: TaskMetrics) -> bool:
    """Returns whether a task may train, and its metrics have all columns."""
    return metrics.pushes.keys() >= COLUMNS and not name.startswith("evaluator")


def has_rows(metrics: TaskMetrics) -> bool:
    """Returns whether a task has made an update."""
    return bool(metrics.pushes["push_time"].size)


def was_stopped(task: TaskUsage) -> bool:
    """Returns whether the last line about a task says that a signal had stopped it."""
    return bool(task.states) and task.states[-1] == "stopped"


def mean(arrays: list[np.ndarray]) -> float:
    """Returns the mean of all finite values, nan without any."""
    values = np.concatenate([np.empty(0), *arrays])
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else math.nan
