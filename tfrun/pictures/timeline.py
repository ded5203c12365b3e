"""Draws what the tasks of a run did when, a lane for each."""

import itertools

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from tfrun.runs.activities import moments

COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"]
EVALUATION_COLOUR = "#9e9e9e"
HEIGHTS = {"pull": 0.12}  # of the bars; the others' is 0.5
LABELS = {  # what the bars are
    "pull": "thin: until w is read",
    "compute": "dark: computing",
    "push": "light: until the push is applied",
    "wait": "waiting",
    "evaluation": "evaluation",
}


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
    stale = any(each.facts.get("staleness") for each in pushes)
    near = {"textcoords": "offset points", "fontsize": size}
    for each in found:
        if each.end < begin or each.begin > end:
            continue
        lane, colour = places[each.task], colours[each.task]
        at, until = unit * (each.begin - begin), unit * (each.end - begin)
        axes.barh(lane, until - at, HEIGHTS.get(each.name, 0.5), at, **look(each.name, colour))
        if each.name == "push":
            update = unit * (made[each.facts["global_step"]] - begin)
            axes.plot([until, update], [lane, top], color=colour, linewidth=1)
            axes.plot(update, top, "v", color=colour, markersize=6)
            late = each.facts.get("staleness")
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
