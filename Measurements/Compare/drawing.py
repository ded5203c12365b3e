"""Draws the results of Compare: the seconds of all runs, losses over seconds, and local steps."""

import math
import pathlib
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tables
import verdict
from lab import examples
from lab.measure import charts
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from report import Results

FAMILIES = {  # what a picture calls the kinds of scripts, in the order of charts.COLOURS
    "one process": ["single process"],
    "asynchronous": ["parameter server, asynchronous", "coordinator"],
    "synchronous, with a server": ["parameter server, synchronous"],
    "without a server": ["all-reduce", "gossip, synchronous", "gossip, asynchronous"],
}
PALETTE = dict(zip(FAMILIES, charts.COLOURS))
FURTHER = verdict.FURTHER
ONE_PROCESS = tables.ONE_PROCESS_ROWS[0]
NAMES = {ONE_PROCESS: "one process"}  # what a picture calls a row
NAMES["Synchronous-SGD-different-learning-rates"] = "Synchronous-SGD, rates"
NAMES["Synchronous-SGD --backup-workers 1"] = "Synchronous-SGD, a backup"
NAMES[FURTHER + "Sharded-Training"] = "Sharded-Training (Adam)"
NAMES[FURTHER + "DiLoCo"] = "DiLoCo (AdamW)"
FRONT = {  # the tasks of the front page's picture, and what it calls them
    "8 workers, CV 0.1": "steady times: CV 0.1",
    "8 workers, CV 1": "varying times: CV 1",
}
LINES = [ONE_PROCESS, "HogWild", "Synchronous-SGD", "Ring-AllReduce", FURTHER + "Local-SGD", "ADAG"]
LINES += [FURTHER + "DiLoCo", FURTHER + "Compressed-AllReduce"]
LAWS = ["HogWild", "HogWild, A/A", "DynSGD", "ADAG", FURTHER + "Local-SGD", "Synchronous-SGD"]
LAWS.append("Ring-AllReduce")
ROUNDS = ("local steps", "local steps, one pass")
MOST_PANELS = 3


def family(row: str) -> str:
    """Returns what a picture calls the kind of a row."""
    folder = row.split(",")[0].split()[0]
    kind = examples.kind_of(examples.main_script(folder))
    return next(name for name, kinds in FAMILIES.items() if kind in kinds)


def label(row: str) -> str:
    """Returns a row as a picture names it."""
    return NAMES.get(row, tables.label(row))


def ticks(axis: Axis, subs: Sequence[float] = (1, 3)) -> None:
    """Gives an axis of powers few numbers, such as 0.1, 0.3 and 1, and no exponents."""
    axis.set_major_formatter("{x:,.7g}")
    axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_minor_formatter("")


def draw_dots(axes: Axes, place: float, result: dict[str, Any], colour: str, edge: float) -> None:
    """Draws each run of a row as a dot, and a bar at the median of all.

    A run that never arrives is a cross to the right of `edge`, and so is the bar of such a median.
    """
    values = verdict.values(result, verdict.SECONDS)
    median = statistics.median(values)
    x_of_never = 1.07 * edge
    x = median if median < math.inf else x_of_never
    axes.plot([x], [place], "|", color=colour, markersize=15, markeredgewidth=2.5)
    arrivals = [value for value in values if value < math.inf]
    axes.plot(arrivals, [place] * len(arrivals), "o", color=colour, markersize=4, alpha=0.6)
    if never := len(values) - len(arrivals):
        axes.plot([x_of_never], [place], "x", color=colour, markersize=6)
        axes.text(1.1 * edge, place, f"{never}", color=colour, size=9, va="center")


def right_edge(results: Iterable[dict[str, Any]]) -> float:
    """Returns the seconds of a run of these rows; without any, those of the last arrival."""
    if seconds := max(result["seconds"] or 0 for result in results):
        return seconds
    arrivals = [value for result in results for value in verdict.values(result, verdict.SECONDS)]
    return max([value for value in arrivals if value < math.inf], default=1.0)


def draw_seconds(
    results: Results,
    tasks: Mapping[str, str],
    rows: Sequence[str],
    path: pathlib.Path,
    source: pathlib.Path,
) -> None:
    """Draws the seconds to the target of some rows, a panel for each task: {task: its title}."""
    rows_of_task = tables.by_task(results)
    figure, panels = charts.subplots(1.7 + 0.24 * len(rows), 1, len(tasks), squeeze=False)
    lines = []
    for number, (axes, (task, title)) in enumerate(zip(panels[0], tasks.items())):
        by_place = {place: rows_of_task[task].get(row) for place, row in enumerate(rows)}
        shown_rows = [
            (place, result) for place, result in by_place.items() if result and result["runs"]
        ]
        edge = right_edge([result for _, result in shown_rows])
        axes.axvspan(edge, 1.16 * edge, color="#eeeeee", zorder=0)
        for place, result in shown_rows:
            median = tables.median_of(result, verdict.SECONDS)
            if rows[place] == ONE_PROCESS and median is not None and median < math.inf:
                colour = PALETTE["one process"]
                style = {"color": colour, "lw": 1, "ls": ":"}
                lines = [axes.axvline(median, label="one process's median", **style)]
            draw_dots(axes, place, result, PALETTE[family(rows[place])], edge)
        axes.set(xlim=(0, 1.16 * edge), ylim=(len(rows) - 0.4, -0.6))
        axes.set_title(title, size=11, loc="left")
        axes.text(1.08 * edge, -0.75, "never", size=9, ha="center", va="bottom")
        axes.set_yticks(range(len(rows)), [label(row) for row in rows] if not number else [])
        axes.tick_params(axis="y", length=0, labelsize=10)
        axes.set_xlabel(f"seconds to {tables.target(shown_rows[0][1])}")
        axes.grid(axis="x", alpha=0.25)
    families = dict.fromkeys(family(row) for row in rows)
    legend = [
        Line2D([], [], color=PALETTE[name], marker="o", ls="", label=name) for name in families
    ]
    legend.append(Line2D([], [], color="k", marker="o", ls="", alpha=0.6, ms=4, label="a run"))
    legend.append(Line2D([], [], color="k", marker="|", ls="", ms=12, mew=2.5, label="median"))
    legend.append(Line2D([], [], color="k", marker="x", ls="", label="never (how many)"))
    legend += lines
    figure.legend(
        handles=legend,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
        columnspacing=1.5,
    )
    charts.save(figure, path, source)


def by_law(tasks: Iterable[str]) -> dict[float, str]:
    """Returns {CV of gradients' times: its task}, the least first."""
    matches = {task: re.fullmatch(r"8 workers, CV ([\d.]+)", task) for task in tasks}
    return dict(sorted((float(match[1]), task) for task, match in matches.items() if match))


def draw_laws(
    results: Results,
    tasks: Mapping[float, str],
    rows: Sequence[str],
    path: pathlib.Path,
    source: pathlib.Path,
) -> None:
    """Draws the seconds to the target of some rows against the times' CV: dots, lines of medians.

    tasks: {CV: its task}. What never arrives stands in the band at the top.
    """
    rows_of_task = tables.by_task(results)
    edge = max(
        result["seconds"] for task in tasks.values() for result in rows_of_task[task].values()
    )
    figure, axes = charts.subplots(3.8)
    axes.axhspan(edge, 1.14 * edge, color="#eeeeee", zorder=0)
    for number, row in enumerate(rows):
        values = [
            verdict.values(rows_of_task[task][row], verdict.SECONDS) for task in tasks.values()
        ]
        heights = [[min(value, 1.07 * edge) for value in run_seconds] for run_seconds in values]
        xs = [x + 0.07 * (number - 3) for x in range(len(tasks))]
        medians = [statistics.median(run_seconds) for run_seconds in heights]
        style = "-" if family(row) == "asynchronous" else "--"
        axes.plot(xs, medians, label=label(row), color=f"C{number}", ls=style)
        for x, run_seconds in zip(xs, heights):
            axes.plot([x] * len(run_seconds), run_seconds, "o", color=f"C{number}", ms=4, alpha=0.5)
    axes.set_xticks(range(len(tasks)), [f"{law:g}" for law in tasks])
    axes.set(ylim=(0, 1.14 * edge), xlabel="CV of gradients' times", ylabel="seconds to 97%")
    axes.text(len(tasks) - 0.7, 1.07 * edge, "never", size=9, va="center")
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    charts.save(figure, path, source)


def timed_tasks(results: Results) -> list[str]:
    """Returns the tasks whose runs last the same seconds, and have been measured."""
    return [
        task
        for task, rows in tables.by_task(results).items()
        if task not in ROUNDS and any(result["runs"] for result in rows.values())
    ]


def with_drawn_curves(results: Results) -> Results:
    """Returns results, in which only those rows have a curve that draw_curves() draws."""
    names = {f"{task}: {row}" for task in timed_tasks(results)[:MOST_PANELS] for row in LINES}
    return {
        name: {key: value for key, value in result.items() if key != "curve" or name in names}
        for name, result in results.items()
    }


def draw_curves(
    results: Results, tasks: Sequence[str], path: pathlib.Path, source: pathlib.Path
) -> None:
    """Draws the test loss of some rows over the seconds of training, a panel for each task."""
    rows_of_task = tables.by_task(results)
    figure, panels = charts.subplots(3.6, 1, len(tasks), sharey=True, squeeze=False)
    lines: dict[str, Line2D] = {}
    for axes, task in zip(panels[0], tasks):
        for number, row in enumerate(LINES):
            result = rows_of_task[task].get(row)
            seconds, losses = result.get("curve", ([], [])) if result else ([], [])
            if len(seconds) > 1:
                (line,) = axes.plot(seconds, losses, color=f"C{number}", lw=1.4, label=label(row))
                lines.setdefault(label(row), line)
        axes.set(yscale="log", xlabel="seconds of training")
        axes.set_title(task, size=10)
        ticks(axes.yaxis)
        axes.grid(alpha=0.25)
    panels[0][0].set_ylabel("test loss")
    figure.legend(
        lines.values(), lines, loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    charts.save(figure, path, source)


def rounds(rows: Results, what: str) -> dict[str, list[tuple[int, float, float, float]]]:
    """Returns {row without T: [(T, least, median, greatest)]}; a failure counts as infinity."""
    lines: dict[str, list[tuple[int, float, float, float]]] = {}
    for row, result in rows.items():
        match = re.search(r"--local-steps (\d+)", row)
        assert match, f"{row} has no local steps"
        T = int(match[1])
        values = verdict.values(result, what)
        if values and (median := statistics.median(values)) < math.inf:
            numbers = [value for value in values if value < math.inf]
            name = re.sub(r" --local-steps \d+", "", row)
            lines.setdefault(name, []).append((T, min(numbers), median, max(numbers)))
    return {row: sorted(points) for row, points in lines.items()}


def draw_local_steps(results: Results, path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws test and training loss against T, a colour for each way to go on from the mean."""
    rows_of_task = tables.by_task(results)
    tasks = [task for task in ROUNDS if task in rows_of_task]
    figure, panels = charts.subplots(3.6, 1, len(tasks), squeeze=False)
    names: dict[str, Line2D] = {}
    for axes, task in zip(panels[0], tasks):
        for what, style in (("loss", "o-"), ("training", "o:")):
            for row, points in rounds(rows_of_task[task], what).items():
                colour = f"C{list(dict.fromkeys([*names, row])).index(row)}"
                steps = [T for T, *_ in points]
                medians = [median for _, _, median, _ in points]
                (line,) = axes.plot(steps, medians, style, color=colour, ms=4)
                names.setdefault(row, line)
                if what == "loss":
                    for T, least, _, greatest in points:
                        axes.plot([T, T], [least, greatest], color=colour, alpha=0.5)
        axes.set(xscale="log", yscale="log", xlabel="T, local steps of a round")
        axes.set_title(task, size=10)
        ticks(axes.xaxis)
        ticks(axes.yaxis, (1, 2, 4, 7))
        axes.grid(alpha=0.25)
    panels[0][0].set_ylabel("loss")
    handles = [*names.values(), Line2D([], [], color="k"), Line2D([], [], color="k", ls=":")]
    words = [*map(label, names), "test loss (bar: range)", "training loss"]
    figure.legend(handles, words, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    charts.save(figure, path, source)


def draw_all(results: Results, directory: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the pictures for which there are results."""
    rows_of_task = tables.by_task(results)
    tasks = timed_tasks(results)
    front_rows = [row for row in next(iter(rows_of_task.values()), ()) if tables.is_example(row)]
    front_rows = [
        row for row in front_rows if all(row in rows_of_task.get(task, ()) for task in FRONT)
    ]
    if len(front_rows) > 1:
        front_rows.sort(key=lambda row: list(FAMILIES).index(family(row)))
        draw_seconds(results, FRONT, front_rows, directory / "front.png", source)
    elif tasks:
        titles = {task: task for task in tasks[:2]}
        rows = list(dict.fromkeys(row for task in titles for row in rows_of_task[task]))
        draw_seconds(results, titles, rows, directory / "seconds.png", source)
    by_cv = by_law(rows_of_task)
    rows = [row for row in LAWS if all(row in rows_of_task[task] for task in by_cv.values())]
    if rows and len(by_cv) > len(FRONT):
        draw_laws(results, by_cv, rows, directory / "laws.png", source)
    if tasks:
        draw_curves(results, tasks[:MOST_PANELS], directory / "loss.png", source)
    if any(task in rows_of_task for task in ROUNDS):
        draw_local_steps(results, directory / "local-steps.png", source)
