"""Draws the results of Compare: rows for all examples, curves, and bars for the front page."""

import pathlib
import re
import statistics
import textwrap

from common import drivers
from common.examples import main_script
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

FURTHER = "Further-Algorithms/"
FAMILIES = {  # what a picture calls the kinds of scripts, in the order of drivers.FAMILIES
    "one process": ["single process"],
    "asynchronous": ["parameter server, asynchronous", "coordinator"],
    "synchronous, with a server": ["parameter server, synchronous"],
    "without a server": ["all-reduce", "gossip, synchronous", "gossip, asynchronous"],
}
PALETTE = dict(zip(FAMILIES, drivers.FAMILIES))
GREY = "#a0a0a0"
TITLES = {
    "digits": "2 workers\nat full speed",
    "8 workers": "8 workers,\na gradient\ntakes 30 ms",
    "convolution": "2 workers, a\nconvolutional\nnetwork",
}
SHOWN = ["Non-Distributed-Setup", "HogWild", "DOWNPOUR-Easy", "AEASGD", "Synchronous-SGD"]
SHOWN += ["Ring-AllReduce", FURTHER + "Local-SGD", FURTHER + "DiLoCo", FURTHER + "Gossip-SGD"]
SHOWN += ["Ring-AllReduce --batch-size 64"]
AXES = {"seconds": "seconds of training", "examples": "examples", "megabytes": "megabytes sent"}


def family(example):
    """Returns what a picture calls the kind of an example."""
    text = main_script(example.split()[0]).read_text()
    kind = re.search(r"(?m)^Kind: +(.+)$", text)[1]
    return next(name for name, kinds in FAMILIES.items() if kind in kinds)


def label(example):
    """Returns an example and its flags as lines of a picture."""
    folder, *flags = re.sub(r" (?!--)", "=", example.removeprefix(FURTHER)).split()
    lines = [textwrap.fill(flag.replace("=", " "), 30) for flag in flags if "dataset" not in flag]
    return "\n".join([folder, *lines])


def row(axes, place, values, colour):
    """Draws what an example's runs needed: from the least to the greatest, a dot at the median.

    Those that never came there are a cross at the right end, with their number.
    """
    known = sorted(value for value in values if value is not None)
    if known:
        axes.plot([known[0], known[-1]], [place, place], color=colour, linewidth=6, alpha=0.35)
        axes.plot(known, [place] * len(known), "|", color=colour, markersize=8)
    if len(known) > len(values) / 2:
        middle = statistics.median(known + [float("inf")] * (len(values) - len(known)))
        axes.plot(middle, place, "o", color=colour, markersize=6)
    if missing := len(values) - len(known):
        across = axes.get_yaxis_transform()  # x from 0 to 1
        axes.plot(0.97, place, "x", color=colour, transform=across, markersize=6)
        look = {"color": colour, "size": 7, "ha": "right", "va": "center"}
        axes.text(0.94, place, f"{missing} of {len(values)} never", transform=across, **look)


def ticks(axis, subs=(1, 3)):
    """Gives an axis of powers few numbers, such as 0.1, 0.3 and 1, and no exponents."""
    axis.set_major_formatter("{x:,.7g}")
    axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_minor_formatter("")


def by_task(results):
    """Returns {task: {example: its runs}}."""
    tasks = {}
    for case, result in results.items():
        task, example = case.split(": ")
        tasks.setdefault(task, {})[example] = result["runs"]
    return tasks


def draw(results, path, source, highlighted=None):
    """Draws the seconds to 97% accuracy of each example in each task: median and range of its runs.

    results: those in the file `source`. highlighted: the example that has a colour, over all others
    in grey; by default each has that of its family.
    """
    tasks = {task: runs for task, runs in by_task(results).items() if task in TITLES}
    examples = list(dict.fromkeys(example for runs in tasks.values() for example in runs))
    lines = sum(label(example).count("\n") + 1 for example in examples)
    figure, panels = drivers.subplots(2.1 + 0.22 * lines, 1, len(tasks), sharey=True, squeeze=False)
    for axes, (task, runs) in zip(panels[0], tasks.items()):
        for example, each in runs.items():
            colour = PALETTE[family(example)] if highlighted in (None, example) else GREY
            row(axes, examples.index(example), drivers.to_target(each), colour)
        axes.set_title(TITLES[task], size=10)
        axes.margins(x=0.15)
        axes.set_xscale("log")
        if axes.dataLim.x0 > axes.dataLim.x1:  # no run has a value
            axes.set_xlim(0.1, 10)
        if any(None in drivers.to_target(each) for each in runs.values()):
            axes.set_xlim(right=3.5 * axes.get_xlim()[1])  # for the crosses
        ticks(axes.xaxis)
        axes.grid(alpha=0.25)
    axes = panels[0][0]
    axes.set_yticks(range(len(examples)), [label(example) for example in examples], size=8)
    axes.set_ylim(len(examples) - 0.4, -0.6)
    for text, example in zip(axes.get_yticklabels(), examples):
        text.set_fontweight("bold" if example == highlighted else "normal")
    figure.suptitle(f"Seconds of training to {100 * drivers.TARGET:.0f}% accuracy", size=11)
    families = dict.fromkeys(family(each) for each in ([highlighted] if highlighted else examples))
    legend = [
        Line2D([], [], color=PALETTE[name], marker="o", linewidth=6, alpha=0.7, label=name)
        for name in families
    ]
    legend += [Line2D([], [], color=GREY, marker="o", label="the others")] * bool(highlighted)
    title = "dot: median, bar: range of the seeds"
    figure.legend(handles=legend, loc="outside lower center", ncols=2, title=title, frameon=False)
    drivers.save(figure, path, source)


def curves(results, path, source):
    """Draws the test loss of some examples against seconds, examples and bytes: median runs."""
    tasks = {task: runs for task, runs in by_task(results).items() if task in TITLES}
    figure, panels = drivers.subplots(
        0.8 + 2.4 * len(tasks), len(tasks), len(AXES), sharey="row", squeeze=False
    )
    for across, (task, examples) in zip(panels, tasks.items()):
        for axes, (what, words) in zip(across, AXES.items()):
            for number, example in enumerate(SHOWN):
                runs = [run for run in examples.get(example, []) if run.get("test_loss")]
                if not runs or what == "megabytes" and not runs[0]["bytes"]:
                    continue
                tests = min(len(run["evaluations"]["loss"]) for run in runs)
                x, y = (
                    [
                        statistics.median(run["evaluations"][name][i] for run in runs)
                        for i in range(tests)
                    ]
                    for name in (what, "loss")
                )
                axes.plot(x, y, color=f"C{number}", linewidth=1.4, label=label(example))
            axes.set(xscale="log", yscale="log", xlabel=words)
            ticks(axes.xaxis, (1,) if what == "examples" else (1, 3))
            ticks(axes.yaxis)
            axes.grid(alpha=0.25)
        across[0].set_ylabel("test loss")
        across[1].set_title(TITLES[task].replace("\n", " "), size=10)
    lines = {line.get_label(): line for axes in panels[:, 0] for line in axes.lines}
    names = [label(example) for example in SHOWN if label(example) in lines]
    look = {"ncols": 3, "frameon": False, "fontsize": 9}
    figure.legend([lines[name] for name in names], names, loc="outside lower center", **look)
    drivers.save(figure, path, source)


def local_steps(results, path, source):
    """Draws the test loss against T, a line for each way to go on from the mean of the workers."""
    figure, axes = drivers.subplots(3.4)
    lines = {}
    for example, runs in results.items():
        T = int(re.search(r"--local-steps (\d+)", example)[1])
        losses = [run["test_loss"] for run in runs if run.get("test_loss") is not None]
        if losses:
            lines.setdefault(re.sub(r" --local-steps \d+", "", example), []).append((T, losses))
    for number, (example, points) in enumerate(lines.items()):
        places = [T * 1.05**number for T, _ in points]
        middles = [statistics.median(losses) for _, losses in points]
        axes.plot(
            places, middles, "o-", color=f"C{number}", label=label(example).replace("\n", " ")
        )
        for place, (_, losses) in zip(places, points):
            axes.plot([place] * 2, [min(losses), max(losses)], color=f"C{number}", alpha=0.5)
    axes.set(xscale="log", yscale="log", xlabel="T, local steps of a round", ylabel="test loss")
    ticks(axes.xaxis)
    ticks(axes.yaxis, (1, 2, 4, 5, 7))
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    drivers.save(figure, path, source)


def front(results, path, source):
    """Draws the picture of the front page: few bars, and letters that a telephone can show."""
    runs, times = by_task(results).get("8 workers", {}), {}
    for example in SHOWN:
        if example in runs:
            values = drivers.to_target(runs[example], target=0.95)
            times[example] = statistics.median(each or float("inf") for each in values)
    figure, axes = drivers.subplots(1 + 0.4 * len(times))
    figure.set_figwidth(5.2)
    for y, (example, time) in enumerate(sorted(times.items(), key=lambda pair: pair[1])):
        known = time < float("inf")
        axes.barh(y, time if known else 0, 0.7, color=PALETTE[family(example)])
        axes.text(
            time if known else 0, y, f" {time:.1f} s" if known else " never", va="center", size=13
        )
    names = [label(example) for example in sorted(times, key=times.get)]
    names = [name.replace("Non-Distributed-Setup", "one machine") for name in names]
    axes.set_yticks(range(len(names)), names, size=13)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.margins(x=0.2)
    for side in ("bottom", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    figure.suptitle("Eight machines: seconds until 95% are right", size=14, x=0.02, ha="left")
    drivers.save(figure, path, source)


def draw_all(results, path, source):
    """Draws the pictures of this measurement: all of them from the committed results.json."""
    rounds = by_task(results).get("local steps")
    if rounds and not set(by_task(results)) & set(TITLES):
        local_steps(rounds, path, source)
        return
    draw(results, path, source)
    if source.resolve() != pathlib.Path(__file__).resolve().with_name("results.json"):
        return
    curves(results, path.with_name("loss.png"), source)
    if rounds:
        local_steps(rounds, path.with_name("local-steps.png"), source)
    front(results, path.with_name("front.png"), source)
