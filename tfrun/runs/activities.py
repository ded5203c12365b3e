"""When each task of a run pulled, computed, pushed and waited, from the times in its metrics.

The times are those of each host's own clock: on one machine they can be compared to microseconds,
across machines as well as their clocks agree.
"""

import json
import math
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfrun.runs.data import RunData, TaskMetrics
from tfrun.runs.metrics_csv import rows_of

MOST = 20_000  # pushes of all tasks at most, of which there are Activities: a long run has millions
PUSHES = 8  # of all tasks in the window of a picture, about
LATE = 0.001  # seconds that two activities of a task may overlap: its clock is read late


class Activity(NamedTuple):
    """What a task did from `begin` to `end`, in seconds since 1970."""

    task: str
    name: str  # pull, compute, push, wait or evaluation
    begin: float
    end: float
    facts: dict[str, Any] = {}  # what the metrics say of a push


def activities(run: RunData, around: float | None = None) -> list[Activity]:
    """Returns the Activities of all tasks, in order of task and begin.

    Of a run of more than MOST pushes these are the Activities of a part of its time. around: a
    moment in that part, in seconds since 1970; the default lies behind the middle of all pushes.
    """
    is_single_process = (
        run.flags is not None and len(run.flags["tasks"]) == 1 and not run.flags["ps"]
    )
    # Of all chiefs only a coordinator leaves no metrics of its own.
    has_coordinator = "chief-0" not in run.tasks and (run.directory / "chief-0.log").exists()
    # Files without these columns are another script's.
    needed = {"push_time", "pull_time", "wait_seconds"}
    tasks = {task: m for task, m in run.tasks.items() if needed <= m.pushes.keys()}
    span = span_around([metrics.pushes["push_time"] for metrics in tasks.values()], around)
    trace = []
    for task, metrics in tasks.items():
        trace += of_task(task.replace("-", " "), metrics, span, is_single_process, has_coordinator)
    return sorted(trace, key=lambda activity: (activity.task, activity.begin))


def span_around(push_times: Iterable[np.ndarray], around: float | None) -> tuple[float, float]:
    """Returns the first and the last time of MOST pushes about a moment, or of all if fewer."""
    times = np.sort(np.concatenate([np.empty(0), *push_times]))
    if len(times) <= MOST:
        return -np.inf, np.inf
    place = 0.6 * len(times) if around is None else np.searchsorted(times, around)
    first = int(np.clip(place - MOST // 2, 0, len(times) - MOST))
    return times[first], times[first + MOST - 1]


def of_task(
    task: str,
    metrics: TaskMetrics,
    span: tuple[float, float],
    is_single_process: bool,
    has_coordinator: bool = False,
) -> list[Activity]:
    """Returns the Activities of a task in a span of time.

    is_single_process: the task makes all updates, without a ps; has_coordinator: a chief leads
    it.

    A pull lasts from the end of what came before it until w has arrived: nobody notes its start. A
    gap of over ten times the usual one, and of over 0.1 s, is called a wait. The pull at its end
    has no length, nor has a task's first. A push lasts from the gradient to its arrival; of a
    synchronous example it ends with the step that all make together. A task that is alone only
    computes. An evaluation is the coordinator's where there is one, or where it overlaps a
    worker's updates.
    """
    # A clock is read after what it times, and may be read late: no time is after a later one's.
    push = metrics.pushes["push_time"]
    # w may come before the news that the last push has arrived.
    last = np.concatenate([[-np.inf], push[:-1]]) if push.size else push
    ready = push
    if not is_single_process:
        ready = np.fmax(last, np.fmin(push, push - metrics.pushes["wait_seconds"]))
    pull = np.fmax(last, np.fmin(metrics.pushes["pull_time"], ready))
    tests = [
        Activity(task, "evaluation", begin, end)
        for begin, end in zip(metrics.test_begins, metrics.test_ends)
        if math.isfinite(begin) and span[0] <= end <= span[1]  # older scripts left no begin
    ]
    in_updates = [((pull < test.end - LATE) & (push > test.begin + LATE)).any() for test in tests]
    if has_coordinator or any(in_updates):
        tests = [test._replace(task="chief 0") for test in tests]
    own = [test.end for test in tests if test.task == task]
    ends = np.sort(np.concatenate([push, own]))
    before = np.searchsorted(ends, pull, side="right") - 1
    begins = np.where(before >= 0, ends[before], pull)
    usual = np.median((pull - begins)[before >= 0]) if (before >= 0).any() else 0.0
    trace = []
    inside = (span[0] <= push) & (push <= span[1])
    rows = rows_of({name: column[inside] for name, column in metrics.pushes.items()})
    times = zip(*(column[inside] for column in (begins, pull, ready, push)), rows)
    for begin, pulled, computed, pushed, row in times:
        if pulled - begin > max(0.1, 10 * usual):
            trace.append(Activity(task, "wait", begin, pulled))
            begin = pulled
        facts = {name: value for name, value in row.items() if math.isfinite(value)}
        trace.append(Activity(task, "pull", begin, pulled))
        trace.append(Activity(task, "compute", pulled, computed))
        trace.append(Activity(task, "push", computed, pushed, facts))
    return trace + tests


def trace_events(trace: Sequence[Activity]) -> dict[str, Any]:
    """Returns the Activities in the Trace Event Format: microseconds from the first on.

    Each task is a process with a name; so are the updates of w, a moment for each push.
    """
    start = min(activity.begin for activity in trace)
    tasks = sorted({activity.task for activity in trace})
    ids = {task: number for number, task in enumerate(["updates of w", *tasks])}
    events = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": task}}
        for task, number in ids.items()
    ]
    for task, name, begin, end, facts in trace:
        times = {"ts": round(1e6 * (begin - start), 1), "dur": round(1e6 * (end - begin), 1)}
        events.append({"ph": "X", "name": name, "pid": ids[task], "tid": 0, "args": facts, **times})
        if name == "push":
            name = f"update {facts['global_step']:.0f} by {task}"
            moment = {"ph": "i", "name": name, "pid": 0, "tid": 0, "s": "t", "args": facts}
            events.append({**moment, "ts": round(1e6 * (end - start), 1)})
    other = {"begin_seconds_since_1970": start}
    return {"displayTimeUnit": "ms", "otherData": other, "traceEvents": events}


def window(trace: Sequence[Activity]) -> tuple[float, float] | None:
    """Returns (begin, end) of a short time of the run; None without pushes.

    Of two tasks it has about six pushes each, of many at least two, of a slow one at least one. Of
    the times from 0.4 to 0.8 of all pushes it is the one nearest to 0.6 that misses the fewest of
    those: a moment in which all wait shows none.
    """
    pushes = [activity for activity in trace if activity.name == "push"]
    ends = [np.sort([p.end for p in pushes if p.task == task]) for task in {p.task for p in pushes}]
    ends = [times for times in ends if len(times) > 1]
    if not ends:
        return None
    # Ten updates at once are one burst: the mean, but without stalls.
    gaps = [np.minimum(g, np.quantile(g, 0.95)).mean() for g in map(np.diff, ends)]
    due = max(2, PUSHES / len(ends))
    length = max(due * np.median(gaps), 1.2 * max(gaps))
    middle, *centres = np.quantile(np.concatenate(ends), [0.6, *np.linspace(0.4, 0.8, 201)])

    def missing(centre: float) -> tuple[int, float]:
        """Returns how many pushes a picture around this time lacks, and how far it is off.

        A push on the edge of the picture counts as missing.
        """
        inside = [(abs(times - centre) < 0.48 * length).sum() for times in ends]
        return sum(max(0, max(1, int(due) - 1) - n) for n in inside), abs(centre - middle)

    centre = min([middle, *centres], key=missing)
    return centre - length / 2, centre + length / 2


def latest_update_times(pushes: Iterable[Activity]) -> dict[float, float]:
    """Returns {number of an update: the latest time at which it can have been made}, in order.

    An answer may arrive later than that of a later update: this one was made before both.
    """
    latest, until = {}, math.inf
    for push in sorted(pushes, key=lambda push: -push.facts["global_step"]):
        until = min(until, push.end)
        latest[push.facts["global_step"]] = until
    return dict(reversed(latest.items()))


def stages(directory: pathlib.Path) -> list[tuple[int, int, str, int, float, float]]:
    """Returns [(worker, row, what, number, begin, end)] of the last update with timelines, or [].

    row: 1 for backward in a pipeline, and for what the ring does in sharded training.
    """
    spans = []
    steps = [int(path.stem.split("-")[1]) for path in directory.glob("timeline-*.json")]
    for path in directory.glob(f"timeline-{max(steps, default=0)}[-.]*"):
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        devices = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        for event in (event for event in events if event["ph"] == "X"):
            op = event["args"].get("name", event["name"])
            lane = devices.get(event["pid"], f"task:{event['pid']} {event.get('tid')}")
            lane = re.search(r"task:(\d+).* (Compute|compute|ring)", lane)
            what = re.match(r"(forward|backward|gather|reduce|Adam)[ /](?:micro_batch_)?(\d+)", op)
            if lane and what:
                is_place = lane[2] == "Compute"  # of a pipeline
                row = int(what[1] == "backward" if is_place else lane[2] == "ring")
                begin, end = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
                spans.append((int(lane[1]), row, what[1], int(what[2]), begin, end))
    start = min((begin for *_, begin, _ in spans), default=0)
    return sorted((*facts, begin - start, end - start) for *facts, begin, end in spans)
