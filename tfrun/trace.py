"""When each task of a run pulled, computed, pushed and waited, from the times in its metrics.

    tfrun trace RUN     writes trace.json, for ui.perfetto.dev or chrome://tracing, and trace.png

The times are those of each host's own clock: on one machine they can be compared to microseconds,
across machines as well as their clocks agree.
"""

import argparse
import collections
import itertools
import json
import math
import os
import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from tfrun import rows, summary

COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"]
MARKS = {"checkpoint": "#333333", "evaluation": "#9e9e9e"}
PER_TASK = 6  # pushes of each task in the window of a picture, about

# name: pull, compute, push, wait, checkpoint, evaluation; begin, end: seconds since 1970; of: what
# the metrics say of a push, {} of the others.
Activity = collections.namedtuple("Activity", "task name begin end of")


def activities(directories):
    """All Activities of the tasks in these directories, in order of task and begin.

    A pull lasts from the end of what came before it until w has arrived: nobody notes its start. A
    gap of over ten times the usual one, and of over 0.1 s, is called a wait. The pull at its end
    has no length, nor has a task's first. A push lasts from the gradient to its arrival; of a
    synchronous example it ends with the step that all make together. Evaluations and checkpoints in
    the midst of a worker's updates are those of a coordinator, which writes for its workers.
    """
    found = []
    for task, metrics in summary.read_all(directories).items():
        name = task.replace("-", " ")
        marks = [
            Activity(name, *mark, {})
            for directory in directories
            for path in directory.glob("metrics-%s.csv" % task)
            for mark in rows.marks(path)
        ]
        pushes = {key: values[metrics.pushes] for key, values in metrics.columns.items()}
        if not {"push_time", "pull_time", "wait_seconds"} <= pushes.keys():
            continue  # another script's file
        # A clock is read after what it times, and may be read late: no time is after a later one's.
        push = pushes["push_time"]
        ready = np.fmin(push, push - pushes["wait_seconds"])
        pull = np.fmin(pushes["pull_time"], ready)
        if by_another(marks, pull, push):
            found += [mark._replace(task="chief 0") for mark in marks]
            marks = []
        ends = np.sort([*(mark.end for mark in marks), *push])
        before = np.searchsorted(ends, pull, side="right") - 1
        begins = np.where(before >= 0, ends[before], pull)
        usual = np.median((pull - begins)[before >= 0]) if (before >= 0).any() else 0.0
        for i, begin in enumerate(begins):
            if pull[i] - begin > max(0.1, 10 * usual):
                found.append(Activity(name, "wait", begin, pull[i], {}))
                begin = pull[i]
            facts = {key: float(values[i]) for key, values in pushes.items()}
            facts = {key: value for key, value in facts.items() if math.isfinite(value)}
            found.append(Activity(name, "pull", begin, pull[i], {}))
            found.append(Activity(name, "compute", pull[i], ready[i], {}))
            found.append(Activity(name, "push", ready[i], push[i], facts))
        found += marks
    return sorted(found, key=lambda each: (each.task, each.begin))


def by_another(marks, pull, push):
    """Whether a mark lies over an update of the task, by over 1 ms: it does one thing at a time."""
    late = 0.001
    return any(((pull < mark.end - late) & (push > mark.begin + late)).any() for mark in marks)


def events(found):
    """The Activities in the Trace Event Format: complete events, in microseconds from the first on.

    Each task is a process with a name; so are the updates of w, a moment for each push.
    """
    start = min(each.begin for each in found)
    tasks = sorted({each.task for each in found})
    ids = {task: number for number, task in enumerate(["updates of w", *tasks])}
    made = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": task}}
        for task, number in ids.items()
    ]
    for each in found:
        event = {"ph": "X", "name": each.name, "pid": ids[each.task], "tid": 0, "args": each.of}
        times = {
            "ts": round(1e6 * (each.begin - start), 1),
            "dur": round(1e6 * (each.end - each.begin), 1),
        }
        made.append({**event, **times})
        if each.name == "push":
            arrival = round(1e6 * (each.end - start), 1)
            name = "update %d by %s" % (each.of["global_step"], each.task)
            moment = {"ph": "i", "name": name, "pid": 0, "tid": 0, "s": "t", "args": each.of}
            made.append({**moment, "ts": arrival})
    other = {"begin_seconds_since_1970": start}
    return {"displayTimeUnit": "ms", "otherData": other, "traceEvents": made}


def window(found):
    """(begin, end) of a short time behind the middle of the run; None without pushes."""
    ends = {}
    for each in found:
        if each.name == "push":
            ends.setdefault(each.task, []).append(each.end)
    ends = [sorted(times) for times in ends.values() if len(times) > 1]
    if not ends:
        return None
    gap = np.median(np.concatenate([np.diff(times) for times in ends]))
    middle = np.quantile(np.concatenate(ends), 0.6)
    return middle - PER_TASK * gap / 2, middle + PER_TASK * gap / 2


def timeline(axes, found, begin, end):
    """Draws the Activities between two times: a lane for each task, above them the updates of w.

    A thin bar is a pull, a dark one computing, a light one a push, beside which its staleness
    stands; lines lead to the line of the updates, where each arrival has its number.
    """
    tasks = sorted({each.task for each in found})
    lanes = {task: len(tasks) - 1 - number for number, task in enumerate(tasks)}
    colours, top = dict(zip(tasks, itertools.cycle(COLOURS))), len(tasks)
    unit, name = (1000, "milliseconds") if end - begin < 2 else (1, "seconds")
    near, numbers = {"textcoords": "offset points", "fontsize": 8}, []
    for each in found:
        if each.end < begin or each.begin > end:
            continue
        lane, colour = lanes[each.task], MARKS.get(each.name, colours[each.task])
        height, alpha = {"pull": (0.12, 0.6), "push": (0.5, 0.3)}.get(each.name, (0.5, 0.85))
        at, until = unit * (each.begin - begin), unit * (each.end - begin)
        look = {"hatch": "///", "fill": False, "edgecolor": colour} if each.name == "wait" else {}
        look = look or {"color": colour, "alpha": alpha, "linewidth": 0}
        axes.barh(lane, until - at, height, at, **look)
        if each.name == "pull":
            axes.vlines(until, lane, top, color=colour, linewidth=0.6, linestyle=":")
        if each.name == "push":
            axes.vlines(until, lane, top, color=colour, linewidth=1)
            axes.plot(until, top, "v", color=colour, markersize=6)
            if 0 < until < unit * (end - begin):
                late = each.of.get("staleness")
                if late is not None:
                    axes.annotate("%d" % late, (until, lane), (3, 3), **near)
                numbers.append((until, each.of["global_step"]))
    labelled = -math.inf
    for x, number in sorted(numbers):
        if x - labelled > 0.025 * unit * (end - begin):  # no room for each of them
            axes.annotate("%d" % number, (x, top), (0, 6), ha="center", **near)
            labelled = x
    axes.axhline(top, color="#333333", linewidth=1)
    axes.set_yticks(range(top + 1), [*reversed(tasks), "updates of w"])
    axes.set(xlabel=name, xlim=(0, unit * (end - begin)), ylim=(-0.5, top + 0.6))


def draw(path, title, found, begin, end):
    """The picture of a window, with a legend, as a PNG file."""
    tasks = {each.task for each in found}
    figure, axes = plt.subplots(figsize=(13, 1.9 + 0.55 * len(tasks)), layout="constrained")
    timeline(axes, found, begin, end)
    grey = COLOURS[0]
    axes.legend(
        handles=[
            Patch(color=grey, alpha=0.6, label="pull (thin)"),
            Patch(color=grey, alpha=0.85, label="compute"),
            Patch(color=grey, alpha=0.3, label="push; its staleness beside it"),
            Patch(fill=False, edgecolor=grey, hatch="///", label="wait"),
            *(Patch(color=colour, label=name) for name, colour in MARKS.items()),
        ],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.28 * 2.5 / (1.9 + 0.55 * len(tasks)) - 0.08),
        ncols=6,
        frameon=False,
        fontsize=9,
    )
    axes.set_title(title, size=11, loc="left")
    axes.grid(alpha=0.25, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def seconds(text):
    """A type of flag: a number of seconds from 0 on."""
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError("must be at least 0, is %s" % text)
    return float(text)


def positive(text):
    """A type of flag: a number of seconds above 0."""
    if seconds(text) == 0:
        raise argparse.ArgumentTypeError("must be above 0, is %s" % text)
    return float(text)


def command(arguments):
    """`tfrun trace RUN`: writes the trace and its picture; returns the exit code."""
    from tfrun import watching

    about = "When each task pulled, computed, pushed and waited: trace.json and trace.png."
    made = watching.add_json(watching.parser("trace", about))
    made.add_argument("--from", type=seconds, metavar="S", help="start of the picture's window")
    made.add_argument("--seconds", type=positive, metavar="S", help="length of that window")
    made.add_argument("--output", type=pathlib.Path, metavar="DIR", help="where to write (the run)")
    flags = made.parse_args(arguments)
    try:
        directory = pathlib.Path(watching.directory_of(flags.run))
    except LookupError as error:
        return watching.fail(error)
    found = activities([directory])
    if not any(each.name == "push" for each in found):
        return watching.fail("no update was made yet in %s" % directory, 1)
    start = min(each.end for each in found if each.name == "push")
    begin, end = window(found) or (start, max(each.end for each in found))
    length = end - begin if flags.seconds is None else flags.seconds
    begin = begin if vars(flags)["from"] is None else start + vars(flags)["from"]
    output = flags.output or directory
    title = "%s, from %.3f s after the first push on" % (title_of(directory), begin - start)
    shown = [each for each in found if each.end >= begin and each.begin <= begin + length]
    if not shown:
        return watching.fail("no task did anything in that time: see --from, --seconds", 2)
    try:
        output.mkdir(parents=True, exist_ok=True)
        partial = output / (".trace-%d" % os.getpid())
        partial.write_text(json.dumps(events(found)))
        partial.replace(output / "trace.json")
        draw(output / "trace.png", title, found, begin, begin + length)
    except OSError as error:
        return watching.fail("the trace cannot be written: %s" % error)
    paths = {"json": str(output / "trace.json"), "picture": str(output / "trace.png")}
    if flags.json:
        print(json.dumps({**paths, "from": begin - start, "seconds": length}))
        return 0
    print("%(picture)s\n%(json)s   open it in https://ui.perfetto.dev" % paths)
    return 0


def title_of(directory):
    """The name of the example, or of the folder."""
    try:
        return summary.read_flags([directory])["example"]
    except ValueError:
        return directory.name
