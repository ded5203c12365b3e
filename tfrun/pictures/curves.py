"""Draws curves.png from the metrics of a run: loss, test error, staleness or times, and a moment.

The picture is narrow and its letters are large, so that a phone can show it.
"""

import collections
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from tfrun import formatting
from tfrun.pictures import timeline
from tfrun.pictures.timeline import COLOURS, SIZE
from tfrun.runs import metrics_csv
from tfrun.runs.activities import Activity, activities, stages, window
from tfrun.runs.data import RunData

MOST_DOTS = 20_000  # for a task; of a longer run only every n-th mini-batch is drawn
STALL = 0.03  # of the run's time: no line of means crosses so long a time without an update


def smooth(values: np.ndarray, window: int, stride: int = 1) -> np.ndarray:
    """Returns the running mean of `values` over `window` neighbours, at every stride-th of them."""
    padded = np.pad(values, (window // 2, window - 1 - window // 2), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, window)[::stride].mean(1)


def draw_loss(
    axes: Axes,
    tasks: Mapping[str, dict[str, np.ndarray]],
    colours: Mapping[str, str],
    start: float,
) -> None:
    """Draws the loss of each mini-batch as a dot, and a line for each task's running mean.

    A cross at the top is a loss that is no number. No line crosses a time without an update.
    """
    span = max(columns["push_time"].max() for columns in tasks.values()) - start
    axes.set(title="Training loss", xlabel="seconds (line: running mean)", yscale="log")
    top = axes.get_xaxis_transform()
    for name, columns in tasks.items():
        at, values, colour = columns["push_time"] - start, columns["loss"], colours[name]
        if (failed := at[~np.isfinite(values)]).size:
            axes.plot(failed, [0.97] * failed.size, "x", color=colour, transform=top)
            axes.set_xlabel("seconds (line: running mean, x: no number)")
        stride = 1 + at.size // MOST_DOTS
        axes.plot(at[::stride], values[::stride], ".", color=colour, alpha=0.12, markersize=3)
        gaps = np.diff(at)
        stalls = gaps > max(STALL * span, 10 * np.median([0, *gaps]))
        for part in np.split(np.arange(at.size), np.flatnonzero(stalls) + 1):
            length = min(max(1, at.size // 40), part.size)
            axes.plot(at[part][::stride], smooth(values[part], length, stride), color=colour)
    decades = np.diff(np.log10(axes.get_ylim()))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def error_axis(axes: Axes) -> None:
    """Lets an axis begin at 0, be logarithmic where errors are large, and tick at errors of tests.

    Each of those is a whole number of examples.
    """
    errors = np.unique(np.concatenate([line.get_ydata() for line in axes.lines]))
    axes.set_yscale("asinh", linear_width=min(errors[errors > 0], default=0.01))
    axes.set_ylim(bottom=0)
    height, ticks = axes.yaxis.get_transform().transform, [0]
    for error in errors:
        if height(error) - height(ticks[-1]) > 0.1 * height(errors[-1]):
            ticks.append(error)
    axes.set_yticks(ticks, [f"{tick:.1%}" for tick in ticks])
    axes.set_yticks([], minor=True)


def draw_tests(axes: Axes, run: RunData, start: float) -> None:
    """Draws the test error, 1 - accuracy; any other metrics as they are.

    The loss of the test is drawn where there is no other metric. The legend has room of its own.
    """
    columns = {name: None for metrics in run.tasks.values() for name in metrics.tests}
    names = [name for name in columns if name.startswith("test_")]
    names = [name for name in names if name != "test_loss"] or names
    errors = bool(names) and all(name.endswith("accuracy") for name in names)
    best = (run.result or {}).get("best", {})
    for name, colour in zip(names, ["#333333", *COLOURS[4:]] * len(names)):
        tests = [test for test in run.rows("tests") if np.isfinite(test.get(name, np.nan))]
        if not tests:
            continue
        seconds, values = np.array([(test["push_time"], test[name]) for test in tests]).T
        label = formatting.test_text(name, metrics_csv.last_test(tests)[name])
        if name in best:
            label += f"\nbest: {formatting.value_text(name, best[name])}"
        values = 1 - values if errors else values
        at = seconds - start
        axes.plot(at, values, "o-", label=label, color=colour, markersize=3, clip_on=False)
    title = names[0].replace("_", " ").capitalize() if len(names) == 1 else "Metrics of the test"
    axes.set(title="Test error" if errors else title, xlabel="seconds")
    if not axes.lines:
        return
    if errors:
        error_axis(axes)
    rows = 1 + sum(1 + str(line.get_label()).count("\n") for line in axes.lines)
    scale, share = axes.yaxis.get_transform(), min(0.7, 0.08 + 0.1 * rows)  # of the legend
    low, high = scale.transform(axes.get_ylim())
    axes.set_ylim(top=float(scale.inverted().transform(low + (high - low) / (1 - share))))
    axes.legend(
        title="at the end:", alignment="left", loc="upper right", frameon=False, handlelength=1
    )


def draw_counts(
    axes: Axes, values: Mapping[str, np.ndarray], colours: Mapping[str, str], whole: bool
) -> None:
    """Draws how often each value of {task: values} occurs; the largest 0.5% only in words."""
    everything = np.concatenate([np.zeros(0), *values.values()])
    if not everything.size:
        return
    last = np.quantile(everything, 0.995)
    if whole:
        edges = np.arange(min(everything), max(3, np.ceil(last)) + 2) - 0.5
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        edges = np.linspace(0, 1.02 * last or 1, 40)
    inside = [numbers[numbers <= edges[-1]] for numbers in values.values()]
    axes.hist(
        inside, list(edges), stacked=True, color=[colours[name] for name in values], rwidth=0.9
    )
    if beyond := int((everything > edges[-1]).sum()):
        most = f"{max(everything):.0f}" if whole else f"{formatting.rate_text(max(everything))} ms"
        text = f"{beyond:,d} beyond, up to {most}"
        axes.text(0.98, 0.97, text, ha="right", va="top", transform=axes.transAxes)
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])


def draw_parts(
    axes: Axes, trace: Sequence[Activity], colours: Mapping[str, str], names: Sequence[str]
) -> None:
    """Draws a bar for each task: what an update spends its time on, in milliseconds, on average."""
    seconds: dict[tuple[str, str], float] = collections.defaultdict(float)
    counts: dict[tuple[str, str], int] = collections.defaultdict(int)
    for activity in trace:
        seconds[activity[:2]] += activity.end - activity.begin
        counts[activity[:2]] += 1
    for place, name in enumerate(reversed(names)):
        left, count = 0.0, max(1, counts[name, "push"])
        for part in timeline.LABELS:
            width, height = 1000 * seconds[name, part] / count, 0.25 if part == "pull" else 0.7
            axes.barh(place, width, height, left, **timeline.bar_style(part, colours[name]))
            left += width
    axes.set_yticks(range(len(names)), [*reversed(names)])
    for label, name in zip(axes.get_yticklabels(), reversed(names)):
        label.set(color=colours[name], fontweight="bold")
    axes.set(title="Where the time goes", xlabel="milliseconds per update, mean")
    axes.set_xlim(0, 1.05 * axes.dataLim.x1 or 1)
    axes.set_ylim(min(-0.5, len(names) / 2 - 1.5), max(len(names) - 0.5, len(names) / 2 + 0.5))


def draw(run: RunData) -> pathlib.Path | None:
    """Draws curves.png in the directory of a run and returns its path, None without any push."""
    run = run.without_pauses()
    names = sorted((task.replace("-", " ") for task in run.tasks), key=timeline.task_order)
    pushes = [run.tasks[formatting.file_name(name)].pushes for name in names]
    tasks = {name: columns for name, columns in zip(names, pushes) if columns["push_time"].size}
    if not tasks:
        return None
    start = min(columns["push_time"].min() for columns in tasks.values())
    trace = activities(run)
    colours = {**dict(zip(tasks, COLOURS * len(tasks))), **timeline.lanes(trace)}
    spans = stages(run.directory)

    lanes = 0.35 * len(colours)
    figure = plt.figure(figsize=(7.2, 7.9 + 1.5 * lanes), layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=[2.4, 2.1 + 0.5 * lanes, 1.6 + lanes])
    loss, tests, counts, parts = (figure.add_subplot(grid[at // 2, at % 2]) for at in range(4))
    moment = figure.add_subplot(grid[2, :])
    tests.sharex(loss)
    draw_loss(loss, tasks, colours, start)
    draw_tests(tests, run, start)
    staleness = {name: p["staleness"][np.isfinite(p["staleness"])] for name, p in tasks.items()}
    if any((values > 0).any() for values in staleness.values()):
        draw_counts(counts, staleness, colours, whole=True)
        mean = np.concatenate([*staleness.values()]).mean()
        counts.set(title=f"Staleness, mean {mean:.2f}", xlabel="updates since the pull, by others")
    else:
        gaps = {name: 1000 * np.diff(columns["push_time"]) for name, columns in tasks.items()}
        draw_counts(counts, gaps, colours, whole=False)
        counts.set(title="Time of an update", xlabel="milliseconds")
    counts.set_ylabel("pushes" if len(tasks) > 1 else "updates")
    if {f"worker {span[0]}" for span in spans} - set(tasks):  # of whom nobody noted the times
        parts.remove()
        counts.set_subplotspec(grid[1, :])
        trace = []
    else:
        draw_parts(parts, trace, colours, [*tasks])
    if spans:
        timeline.draw_stages(moment, spans)
        moment.set_title("What each worker did in one update")
    elif shown := window(trace):
        timeline.timeline(moment, trace, *shown)
        moment.set_title("A moment of the run")
    else:
        moment.set_axis_off()
    if handles := timeline.legend(trace):
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    for axes in figure.axes:
        axes.grid(alpha=0.25, axis="x" if axes in (parts, moment) else "both")
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.label.set_fontsize(SIZE + 1)
    title = formatting.run_text(run.example, run.result) if run.result else run.example
    figure.suptitle(title, fontsize=SIZE + 3, fontweight="bold")
    partial = run.directory / f".curves-{os.getpid()}.png"
    figure.draw_without_rendering()  # a second layout has room for ticks that the first one changes
    figure.savefig(partial, dpi=140, metadata={"Title": title})
    plt.close(figure)
    return partial.replace(run.directory / "curves.png")
