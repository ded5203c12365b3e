"""When each task of a run pulled, computed, pushed and waited, from the times in its metrics.

    tfrun trace RUN     writes trace.json, for ui.perfetto.dev or chrome://tracing, and trace.png

The times are those of each host's own clock: on one machine they can be compared to microseconds,
across machines as well as their clocks agree.
"""

import collections
import itertools
import json
import math
import os
import pathlib
import re

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from tfrun.runs import summary

COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"]
EVALUATION_COLOUR = "#9e9e9e"
PUSHES = 8  # of all tasks in the window of a picture, about
HEIGHTS = {"pull": 0.12}  # of the bars; the others' is 0.5
LABELS = {  # what the bars are
    "pull": "thin: until w is read",
    "compute": "dark: computing",
    "push": "light: until the push is applied",
    "wait": "waiting",
    "evaluation": "evaluation",
}

# name: pull, compute, push, wait or evaluation; begin, end: seconds since 1970; of: what the
# metrics say of a push, {} of the others.
Activity = collections.namedtuple("Activity", "task name begin end of")


def activities(directories):
    """All Activities of the tasks in these directories, in order of task and begin.

    A pull lasts from the end of what came before it until w has arrived: nobody notes its start. A
    gap of over ten times the usual one, and of over 0.1 s, is called a wait. The pull at its end
    has no length, nor has a task's first. A push lasts from the gradient to its arrival; of a
    synchronous example it ends with the step that all make together. Without a ps a single task has
    nothing to send: its updates are computing alone. An evaluation in the midst of a
    worker's updates is that of a coordinator, which writes for its workers.
    """
    found, alone = [], makes_updates_alone(directories)
    for task, metrics in summary.read_all(directories).items():
        name = task.replace("-", " ")
        columns = metrics.columns
        if not {"push_time", "pull_time", "wait_seconds"} <= columns.keys():
            continue  # another script's file
        pushes = {key: values[metrics.pushes] for key, values in columns.items()}
        begins, ends = columns["pull_time"][metrics.tests], columns["push_time"][metrics.tests]
        tests = [
            Activity(name, "evaluation", begin, end, {})
            for begin, end in zip(begins, ends)
            if math.isfinite(begin)  # older scripts left none
        ]
        # A clock is read after what it times, and may be read late: no time is after a later one's.
        push = pushes["push_time"]
        ready = push if alone else np.fmin(push, push - pushes["wait_seconds"])
        pull = np.fmin(pushes["pull_time"], ready)
        if by_another(tests, pull, push):
            found += [test._replace(task="chief 0") for test in tests]
            tests = []
        ends = np.sort([*(test.end for test in tests), *push])
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
        found += tests
    return sorted(found, key=lambda each: (each.task, each.begin))


def makes_updates_alone(directories):
    """Whether one task makes all updates without a ps: then nothing is sent after the gradient."""
    try:
        flags = summary.read_flags(directories)
    except ValueError:
        return False
    return len(flags["tasks"]) == 1 and not flags["ps"]


def by_another(tests, pull, push):
    """Whether a test lies over an update of the task, by over 1 ms: it does one thing at a time."""
    late = 0.001
    return any(((pull < test.end - late) & (push > test.begin + late)).any() for test in tests)


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
        event["ts"] = round(1e6 * (each.begin - start), 1)
        event["dur"] = round(1e6 * (each.end - each.begin), 1)
        made.append(event)
        if each.name == "push":
            name = f"update {each.of['global_step']:.0f} by {each.task}"
            moment = {"ph": "i", "name": name, "pid": 0, "tid": 0, "s": "t", "args": each.of}
            made.append({**moment, "ts": round(1e6 * (each.end - start), 1)})
    other = {"begin_seconds_since_1970": start}
    return {"displayTimeUnit": "ms", "otherData": other, "traceEvents": made}


def lanes(found):
    """{task: its colour}, in the order of lanes: those that push first, with their numbers."""
    pushing = {each.task for each in found if each.name == "push"}
    tasks = sorted(
        {each.task for each in found}, key=lambda task: (task not in pushing, *key(task))
    )
    return dict(zip(tasks, itertools.cycle(COLOURS)))


def key(task):
    """Puts worker 2 before worker 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in task.split(" ")]


def window(found):
    """(begin, end) of a short time behind the middle of the run; None without pushes.

    Of two tasks it has about six pushes each, of many at least two, of a slow one at least one.
    """
    ends = {}
    for each in found:
        if each.name == "push":
            ends.setdefault(each.task, []).append(each.end)
    ends = [sorted(times) for times in ends.values() if len(times) > 1]
    if not ends:
        return None
    gaps = [np.median(np.diff(times)) for times in ends]
    middle = np.quantile(np.concatenate(ends), 0.6)
    length = max(max(2, PUSHES / len(ends)) * np.median(gaps), 1.2 * max(gaps))
    return middle - length / 2, middle + length / 2


def moments(pushes):
    """{number of an update: the latest time at which it can have been made}, in order.

    An answer may arrive later than that of a later update: this one was made before both.
    """
    found, until = {}, math.inf
    for each in sorted(pushes, key=lambda each: -each.of["global_step"]):
        until = min(until, each.end)
        found[each.of["global_step"]] = until
    return dict(reversed(found.items()))


def labels(points, digit):
    """[(x, text)] of [(x, number)] in order; numbers that would overlap stand as one range.

    digit: the width of a digit, in units of x.
    """
    groups, place = [[point] for point in points], 0

    def label(group):
        x, text = sum(x for x, _ in group) / len(group), "%d" % group[0][1]
        return x, text + ("\u2013%d" % group[-1][1] if len(group) > 1 else "")

    while place + 1 < len(groups):
        (left, one), (right, other) = label(groups[place]), label(groups[place + 1])
        if right - left < digit * (1 + (len(one) + len(other)) / 2):
            groups[place : place + 2] = [groups[place] + groups[place + 1]]
            place = max(0, place - 1)
        else:
            place += 1
    return [label(group) for group in groups]


def timeline(axes, found, begin, end, size=9):
    """Draws the Activities between two times: a lane for each task, above them the updates of w.

    A thin bar is the time until a pull has arrived, a dark one computing, a light one a push,
    beside which its staleness stands, if any has one. Lines lead to the line of the updates. There
    each has its number; numbers without room stand as a range. size: of the letters, in points.
    """
    tasks = {each.task for each in found if each.begin < end and each.end > begin}
    tasks |= {each.task for each in found if each.name == "push"}
    colours = {task: colour for task, colour in lanes(found).items() if task in tasks}
    top = len(colours)
    places = {task: top - 1 - lane for lane, task in enumerate(colours)}
    unit, name = (1000, "milliseconds") if end - begin < 2 else (1, "seconds")
    pushes = [each for each in found if each.name == "push"]
    made = moments(pushes)
    stale = any(each.of.get("staleness") for each in pushes)
    near = {"textcoords": "offset points", "fontsize": size}
    for each in found:
        if each.end < begin or each.begin > end:
            continue
        lane, colour = places[each.task], colours[each.task]
        at, until = unit * (each.begin - begin), unit * (each.end - begin)
        axes.barh(lane, until - at, HEIGHTS.get(each.name, 0.5), at, **look(each.name, colour))
        if each.name == "push":
            update = unit * (made[each.of["global_step"]] - begin)
            axes.plot([until, update], [lane, top], color=colour, linewidth=1)
            axes.plot(update, top, "v", color=colour, markersize=6)
            late = each.of.get("staleness")
            if stale and late is not None and 0 < until < 0.98 * unit * (end - begin):
                axes.annotate("%d" % late, (until, lane), (3, 3), **near)
    shown = [(unit * (at - begin), number) for number, at in made.items() if begin < at < end]
    width = 72 * axes.figure.get_size_inches()[0] - 8 * size  # in points, beside the tasks' names
    for x, text in labels(shown, 0.65 * size / width * unit * (end - begin)):
        axes.annotate(text, (x, top), (0, 6), ha="center", **near)
    axes.axhline(top, color="#333333", linewidth=1)
    axes.set_yticks(range(top + 1), [*reversed(colours), "updates of w"])
    axes.set(xlabel=name, xlim=(0, unit * (end - begin)), ylim=(-0.5, top + 0.8))


def look(name, colour):
    """Returns how the bar of an activity is drawn, for a task of that colour."""
    if name == "wait":
        return {"hatch": "///", "fill": False, "edgecolor": colour}
    if name == "evaluation":
        colour = EVALUATION_COLOUR
    return {"color": colour, "alpha": {"pull": 0.6, "push": 0.3}.get(name, 0.85), "linewidth": 0}


def legend(found):
    """The Patches that say what the bars of these Activities are."""
    names = {each.name for each in found if each.end > each.begin}
    return [
        Patch(label=label, **look(name, "#555555"))
        for name, label in LABELS.items()
        if name in names
    ]


def stages(directory):
    """[(worker, forward or backward, micro-batch, begin, end)] of one update, in seconds.

    Of the last timeline that a run of Model-Parallelism has left; empty where it has left none.
    """
    files = sorted(directory.glob("timeline-*.json"), key=lambda path: (len(path.name), path.name))
    if not files:
        return []
    events = json.loads(files[-1].read_text())["traceEvents"]
    spans = collections.defaultdict(list)
    places = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    for event in (each for each in events if each["ph"] == "X" and each["name"] != "RecvTensor"):
        place = re.search(r"task:(\d+).* Compute", places[event["pid"]])
        number = re.search(r"micro_batch_(\d+)", name := event["args"]["name"])
        if place and number:
            what = "backward" if name.startswith("gradients/") else "forward"
            times = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
            spans[int(place[1]), what, int(number[1])] += times
    start = min((min(times) for times in spans.values()), default=0)
    return [(*key, min(times) - start, max(times) - start) for key, times in sorted(spans.items())]


def draw_stages(axes, spans, size=9):
    """A lane for each worker with its stage of the model, a bar for each micro-batch's turn."""
    last, end = max(worker for worker, *_ in spans), max(end for *_, end in spans)
    for worker, what, number, begin, until in spans:
        colour = plt.cm.tab20.colors[number % 10 * 2 + (what == "forward")]
        low = last - worker + (0.02 if what == "forward" else -0.4)
        axes.broken_barh([(1000 * begin, 1000 * (until - begin))], (low, 0.38), color=colour)
        if until - begin > 0.02 * end:
            middle = 500 * (begin + until), low + 0.19
            axes.text(*middle, number, ha="center", va="center", fontsize=size)
    axes.set_yticks(range(last + 1), ["worker %d" % (last - lane) for lane in range(last + 1)])
    axes.set(xlabel="milliseconds (light: forward, dark: backward, of micro-batch 0, 1, \u2026)")
    axes.set(ylim=(-0.5, last + 0.5))


def draw(path, title, found, begin, end):
    """The picture of a window, with a legend, as a PNG file."""
    tasks = {each.task for each in found}
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.45 * len(tasks)), layout="constrained")
    timeline(axes, found, begin, end, size=10)
    shown = legend([each for each in found if each.end >= begin and each.begin <= end])
    figure.legend(handles=shown, loc="outside lower center", ncols=6, frameon=False, fontsize=10)
    axes.set_title(title, size=11, loc="left")
    axes.tick_params(labelsize=10)
    axes.grid(alpha=0.25, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def command(arguments):
    """`tfrun trace RUN`: writes the trace and its picture; returns the exit code."""
    from tfrun.commands import watching
    from tfrun.cli import seconds

    about = "When each task pulled, computed, pushed and waited: trace.json and trace.png."
    made = watching.parser("trace", about)
    made.add_argument("--from", dest="begin", type=float, metavar="S", help="start of the window")
    made.add_argument("--seconds", type=seconds, metavar="S", help="length of that window")
    made.add_argument("--output", type=pathlib.Path, metavar="DIR", help="where to write (the run)")
    flags = made.parse_args(arguments)
    directory = pathlib.Path(watching.directory_of(flags.run))
    found = activities([directory])
    if not any(each.name == "push" for each in found):
        return watching.fail(f"no update was made yet in {directory}", 1)
    start = min(each.end for each in found if each.name == "push")
    begin, end = window(found) or (start, max(each.end for each in found))
    length = flags.seconds or end - begin
    if flags.begin is not None:
        begin = start + flags.begin
    output = flags.output or directory
    if not any(each.end >= begin and each.begin <= begin + length for each in found):
        return watching.fail("no task did anything in that time: see --from, --seconds", 2)
    try:
        example = summary.read_flags([directory])["example"]
    except ValueError:
        example = directory.name
    title = f"{example}, from {begin - start:.3f} s after the first push on"
    try:
        output.mkdir(parents=True, exist_ok=True)
        partial = output / f".trace-{os.getpid()}"
        partial.write_text(json.dumps(events(found)))
        partial.replace(output / "trace.json")
        draw(output / "trace.png", title, found, begin, begin + length)
    except OSError as error:
        return watching.fail(f"the trace cannot be written: {error}")
    paths = {"json": str(output / "trace.json"), "picture": str(output / "trace.png")}
    if flags.json:
        print(json.dumps({**paths, "from": begin - start, "seconds": length}))
    else:
        print(f"{paths['picture']}\n{paths['json']}   open it in https://ui.perfetto.dev")
    return 0
