"""Draws curves.png from the metrics of a run: loss, accuracy, staleness, and who pushed when."""

import os

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tfrun import rundir, summary, trace, words
from tfrun.trace import COLOURS


def smooth(values, window):
    """The running mean of `values` over `window` neighbours, as long as they are."""
    padded = np.pad(values, (window // 2, window - 1 - window // 2), mode="edge")
    return np.convolve(padded, np.ones(window) / window, mode="valid")


def draw_tests(axes, found, start, best):
    """Every metric of the test but the loss, which is drawn where there is no other.

    found: the Metrics of all tasks. best: {name: its best value}, where that is known. A metric is
    a percentage where its name ends in accuracy.
    """
    names = {name: None for each in found for name in each.columns if name.startswith("test_")}
    names = [name for name in names if name != "test_loss"] or [*names]
    for name, colour in zip(names, ["#333333", *COLOURS[4:]] * len(names)):
        seen = []
        for columns in (each.columns for each in found if name in each.columns):
            points = zip(columns["push_time"], columns[name], columns["global_step"])
            seen += [point for point in points if np.isfinite(point[1])]
        if not seen:
            continue
        seconds, values, _ = zip(*sorted(seen))
        last = max((step, time, value) for time, value, step in seen)[-1]
        axes.plot(
            np.array(seconds) - start,
            values,
            "o-",
            color=colour,
            markersize=4,
            label=words.test(name, last)
            + (", best %s" % words.value(name, best[name]) if name in best else ""),
        )
        axes.axhline(last, color="#2ca02c", linestyle="--", linewidth=1)
    percent = bool(names) and all(name.endswith("accuracy") for name in names)
    title = names[0].replace("_", " ").capitalize() if len(names) == 1 else "Metrics of the test"
    axes.set(title=title, xlabel="seconds")
    if percent:
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if axes.lines:
        axes.legend(title="at the end", loc="best")


def draw(directory, example):
    """Draws the run in `directory`, a pathlib.Path, and returns the picture's path.

    Returns None where nothing was pushed.
    """
    found = summary.read_all([directory])
    trained = {task.replace("-", " "): each for task, each in found.items() if each.pushes.any()}
    tasks = {name: each.columns for name, each in trained.items()}
    pushes = {name: each.pushes for name, each in trained.items()}
    if not tasks:
        return None
    start = min(columns["push_time"].min() for columns in tasks.values())
    result = rundir.result(directory)

    height = 1.6 + 0.4 * len(tasks)
    figure = plt.figure(figsize=(13, 4.2 + height), layout="constrained")
    grid = figure.add_gridspec(2, 3, height_ratios=[4.2, height])
    loss, tests, staleness = (figure.add_subplot(grid[0, column]) for column in range(3))
    moment = figure.add_subplot(grid[1, :])
    activities = trace.activities([directory])
    if window := trace.window(activities):
        trace.timeline(moment, activities, *window)
        moment.set_title(
            "A moment of the run. Thin: pull; dark: until the push is computed; light: until it "
            "has arrived; beside it its staleness"
        )
    else:
        moment.set_axis_off()
    for (name, columns), colour in zip(tasks.items(), COLOURS * len(tasks)):
        at, values = columns["push_time"][pushes[name]] - start, columns["loss"][pushes[name]]
        window = max(1, len(values) // 40)
        loss.plot(at, values, ".", color=colour, alpha=0.15, markersize=3)
        loss.plot(
            at, smooth(values, window), color=colour, label="%s: %d pushes" % (name, len(values))
        )
    loss.set(title="Loss of each mini-batch, and its running mean", xlabel="seconds", yscale="log")
    loss.legend()
    draw_tests(tests, [*found.values()], start, (result or {}).get("best", {}))

    late = [columns["staleness"][pushes[name]] for name, columns in tasks.items()]
    late = [each[np.isfinite(each)] for each in late]
    each_push = np.concatenate([np.zeros(0), *late])
    edges = np.arange(min([0, *each_push]), max([0, *each_push]) + 2) - 0.5
    staleness.hist(
        late, bins=edges, stacked=True, color=(COLOURS * len(late))[: len(late)], rwidth=0.85
    )
    staleness.set(
        title="Staleness of the pushes"
        + (", mean %.2f" % each_push.mean() if each_push.size else ": not measured"),
        xlabel="updates by others between pull and push",
        ylabel="pushes",
    )
    staleness.set_xlim(edges[0], max(edges[-1], 3.5))
    staleness.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (loss, tests, staleness, moment):
        axes.grid(alpha=0.25, axis="x" if axes is moment else "both")
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_size(10.5)
    figure.suptitle(
        example
        if not result
        else "%s: %d ps, %d worker%s, %d updates on %s in %.1f s"
        % (
            example,
            result["ps"],
            result["workers"],
            "s" * (result["workers"] > 1),
            result["steps"],
            os.path.basename(result["dataset"] or ""),
            result["wall_seconds"] or 0,
        ),
        fontsize=13,
        fontweight="bold",
    )
    partial = directory / (".curves-%d.png" % os.getpid())
    figure.savefig(partial, dpi=110)
    plt.close(figure)
    return partial.replace(directory / "curves.png")
