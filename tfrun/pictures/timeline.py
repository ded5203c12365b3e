"""Draws what the tasks of a run did when, a lane for each."""

import collections
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from tfrun.runs.activities import Activity, latest_update_times

COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"]
SIZE = plt.rcParams["font.size"] = 10  # of the letters, in points
EVALUATION_COLOUR = "#9e9e9e"
LABELS = {  # what the bars are
    "pull": "thin: until w is read",
    "compute": "dark: computing",
    "push": "light: until the push is applied",
    "wait": "waiting",
    "evaluation": "evaluation",
}
LATE_PULL = "thin: local steps, until w is read"  # where they come before the pull


def task_order(task: str) -> list[tuple[int, str]]:
    """Puts worker 2 before worker 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in task.split(" ")]


def lanes(activities: Iterable[Activity]) -> dict[str, str]:
    """Returns {task: its colour} in the order of lanes: those that push first, by their numbers."""
    pushing = {activity.task for activity in activities if activity.name == "push"}
    tasks = sorted(
        {a.task for a in activities}, key=lambda task: (task not in pushing, task_order(task))
    )
    return dict(zip(tasks, itertools.cycle(COLOURS)))


def timeline(
    axes: Axes, activities: Sequence[Activity], begin: float, end: float
) -> list[Activity]:
    """Draws and returns the Activities between two times: a lane for each task, above them w's.

    A thin bar is the time until a pull has arrived, a dark one computing, a light one a push,
    beside which its staleness stands, if any has one. Lines lead to the line of the updates, where
    those with room for it have their number. There is no such line where each worker has a w of
    its own.
    """
    pushes = [activity for activity in activities if activity.name == "push"]
    seen = [activity for activity in activities if activity.end >= begin and activity.begin <= end]
    tasks = {activity.task for activity in pushes + seen}
    colours = {task: colour for task, colour in lanes(activities).items() if task in tasks}
    top = len(colours)
    heights = {task: top - 1 - lane for lane, task in enumerate(colours)}
    unit, name = (1000, "milliseconds") if end - begin < 2 else (1, "seconds")
    has_staleness = any(push.facts.get("staleness") for push in pushes)
    update_times = latest_update_times(pushes)
    if has_staleness and len(pushes) >= 2 * len(update_times):
        update_times = {}  # each worker has a w of its own, so several updates have the same number
    for activity in seen:
        lane, colour = heights[activity.task], colours[activity.task]
        at, until = unit * (activity.begin - begin), unit * (activity.end - begin)
        height = 0.12 if activity.name == "pull" else 0.5
        axes.barh(lane, until - at, height, at, **bar_style(activity.name, colour))
        if activity.name == "push" and update_times:
            update = unit * (update_times[activity.facts["global_step"]] - begin)
            axes.plot([until, update], [lane, top], color=colour, linewidth=1)
            axes.plot(update, top, "v", color=colour, markersize=6)
        staleness = activity.facts.get("staleness") if activity.name == "push" else None
        if has_staleness and staleness is not None and 0 < until < 0.98 * unit * (end - begin):
            text = axes.annotate(
                f"{staleness:.0f}", (until, lane), (3, 3), textcoords="offset points"
            )
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])  # on a dark bar
    inches = axes.figure.bbox.width / axes.figure.dpi
    width = 72 * inches - 8 * SIZE  # in points, beside the tasks' names
    digit, free = 0.65 * SIZE / width * (end - begin), begin
    for number, at in update_times.items():
        half = digit * len(f"{number:.0f}") / 2
        if free <= at - half and at + half <= end:
            place = unit * (at - begin), top
            axes.annotate(f"{number:.0f}", place, (0, 6), textcoords="offset points", ha="center")
            free = at + half + digit
    axes.axhline(top, color="#333333", linewidth=1 if update_times else 0)
    names = [*reversed(colours), "updates of w"] if update_times else [*reversed(colours)]
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel=name, xlim=(0, unit * (end - begin)), ylim=(-0.5, top + 0.8))
    return seen


def bar_style(name: str, colour: str) -> dict[str, Any]:
    """Returns how the bar of an activity is drawn, for a task of that colour."""
    if name == "wait":
        return {"hatch": "///", "fill": False, "edgecolor": colour}
    if name == "evaluation":
        colour = EVALUATION_COLOUR
    return {"color": colour, "alpha": {"pull": 0.6, "push": 0.3}.get(name, 0.85), "linewidth": 0}


def legend(activities: Sequence[Activity]) -> list[Patch]:
    """Returns the Patches that say what the bars of these Activities are."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for activity in activities:
        seconds[activity.name] += activity.end - activity.begin
    local = any(activity.facts.get("local_steps", 1) > 1 for activity in activities)
    late = local and seconds["compute"] < seconds["pull"] / 10
    labels = {**LABELS, "pull": LATE_PULL} if late else LABELS
    return [Patch(label=labels[n], **bar_style(n, "#555555")) for n in labels if seconds[n]]


def draw_stages(axes: Axes, spans: Sequence[tuple[int, int, str, int, float, float]]) -> None:
    """Draws a lane for each worker, in two rows: a bar for each turn at a stage or a block.

    Their colours come after those of the workers.
    """
    last, end = max(spans)[0], max(end for *_, end in spans)
    for worker, row, what, number, begin, until in spans:
        pair = (last + 1 + number) % 10
        colour = plt.cm.tab20(2 * pair + (what in ("forward", "gather")))
        low = last - worker + (-0.4 if row else 0.02)
        axes.broken_barh([(1000 * begin, 1000 * (until - begin))], (low, 0.38), color=colour)
        if until - begin > 0.02 * end:
            middle = 500 * (begin + until), low + 0.19
            axes.text(*middle, f"{what[0]}{number}", ha="center", va="center")
    axes.set_yticks(range(last + 1), [f"worker {last - lane}" for lane in range(last + 1)])
    letters = "milliseconds (f: forward, b: backward, g: gather, r: reduce, A: Adam)"
    axes.set(xlabel=letters, ylim=(-0.5, last + 0.5))


def draw(
    path: pathlib.Path, title: str, activities: Sequence[Activity], begin: float, end: float
) -> None:
    """Draws a window of time, with a legend, as a PNG file."""
    size = 10, 1.5 + 0.45 * len(lanes(activities))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    seen = timeline(axes, activities, begin, end)
    figure.legend(handles=legend(seen), loc="outside lower center", ncols=6, frameon=False)
    axes.set_title(title, size=SIZE + 1, loc="left")
    axes.grid(alpha=0.25, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
