"""Compare: several examples on the same data with the same seeds, in one table and picture.

Every example trains on the same number of examples; what differs is the algorithm, and by that the
time. Each run is the example's own `bash run.sh`. An example may bring flags of its own, in one
word: "DOWNPOUR --local-steps 5".

`--redraw` makes the table and the pictures of results.json again, without training: compare.png of
all examples, and one for the page of each.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import statistics
import sys
import textwrap

import matplotlib
import numpy as np
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers
from tfrun import drawn

TARGET = 0.97  # a test accuracy
KINDS = {  # what a picture calls the kinds of scripts, in the order of drivers.FAMILIES
    "single process": "one process",
    "parameter server, asynchronous": "asynchronous",
    "parameter server, synchronous": "synchronous",
}
GREY = "#a0a0a0"
DEFAULT = ["Non-Distributed-Setup", "Distributed-Setup", "HogWild"]


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "examples",
        nargs="*",
        default=DEFAULT,
        help="folders, each perhaps with flags (%s)" % ", ".join(DEFAULT),
    )
    parser.add_argument(
        "--seeds", type=drivers.positive(int), default=5, help="runs of each (%(default)s)"
    )
    parser.add_argument(
        "--examples-seen",
        type=drivers.positive(int),
        default=128000,
        metavar="N",
        help="by all workers of a run together (%(default)s)",
    )
    parser.add_argument(
        "--batch-size", type=drivers.positive(int), default=32, metavar="B", help="(%(default)s)"
    )
    parser.add_argument("--redraw", **drivers.redraw(__file__))
    flags = parser.parse_args()
    for example in flags.examples:
        if not example.split() or not (drivers.ROOT / example.split()[0] / "run.sh").is_file():
            parser.error("there is no %s/run.sh" % "".join(example.split()[:1]))
        for own in ("--seed", "--steps", "--batch-size"):
            if own in re.split(r"[\s=]+", example):
                parser.error(
                    "%s of %s is the same for all: leave it out" % (own, example.split()[0])
                )
    if len(set(flags.examples)) < len(flags.examples):
        parser.error("an example stands there twice")
    if flags.examples_seen < flags.batch_size * max(map(mini_batches, flags.examples)):
        parser.error("--examples-seen must be enough for one update of each example")
    return flags


def script(folder):
    """The script of an example."""
    return drivers.ROOT / folder / (pathlib.Path(folder).name.replace("-", "_").lower() + ".py")


def mini_batches(example):
    """How many make an update: --local-steps, times the workers if all take part."""
    folder, *given = shlex.split(example)
    text = script(folder).read_text()
    found = re.search(r'\("local-steps", (\d+),', text)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(
        "--local-steps", type=drivers.positive(int), default=int(found[1]) if found else 1
    )
    all_at_once = re.search(r"(?m)^Kind: +(parameter server, synchronous|all-reduce)$", text)
    together = int(os.environ.get("WORKERS", 2)) if all_at_once else 1
    return together * parser.parse_known_args(given)[0].local_steps


def run(example, seed, flags, directory):
    """Trains one example; returns its result.json. Exits with its last lines when it fails."""
    folder, *given = shlex.split(example)
    command = [
        "bash",
        drivers.ROOT / folder / "run.sh",
        *given,
        "--seed",
        str(seed),
        "--steps",
        str(flags.examples_seen // flags.batch_size // mini_batches(example)),
        "--batch-size",
        str(flags.batch_size),
    ]
    drivers.run(command, directory)
    result = json.loads((directory / "result.json").read_text())
    return {**result, "evaluations": evaluations(directory)}


def file_name(example):
    """An example and its flags as the name of a file."""
    return "-".join(re.findall(r"[\w.]+", example))


def evaluations(directory):
    """The evaluations of a run, three lists: seconds since its first push, accuracy, loss."""
    rows = drivers.rows(directory)
    start = min(float(row["push_time"]) for row in rows)
    tested = sorted(
        (
            round(float(row["push_time"]) - start, 3),
            float(row["test_accuracy"]),
            float(row["test_loss"]),
        )
        for row in rows
        if row["test_accuracy"]
    )
    return dict(zip(("seconds", "accuracy", "loss"), zip(*tested)))


def seconds_to_target(runs):
    """When the first evaluation found TARGET, of each run; None where none did.

    Results of older runs have no evaluations: then no time is known, and the list is empty.
    """
    pairs = [each["evaluations"] for each in runs if each.get("evaluations")]
    pairs = [zip(each["seconds"], each["accuracy"]) for each in pairs]
    return [next((at for at, value in each if value >= TARGET), None) for each in pairs]


def labels(examples):
    """{example: its name in a picture}, with those of its flags that not all of them have."""
    words = {example: re.sub(r" (?!--)", "=", example).split() for example in examples}
    common = set.intersection(*({*each[1:]} for each in words.values()))
    kept = {name: [word for word in each if word not in common] for name, each in words.items()}
    return {
        name: "\n".join(
            [each[0], *(textwrap.fill(word.replace("=", " "), 30) for word in each[1:])]
        )
        for name, each in kept.items()
    }


def row(axes, place, values, colour, without="never"):
    """The values of an example's runs: a line from the least to the greatest, a dot at the median.

    Runs without a value stand at the right end as a cross: how many, and what `without` calls them.
    """
    known = sorted(value for value in values if value is not None and value < float("inf"))
    if known:
        axes.plot([known[0], known[-1]], [place, place], color=colour, linewidth=6, alpha=0.35)
        axes.plot(known, [place] * len(known), "|", color=colour, markersize=9)
    if len(known) > len(values) / 2:
        middle = statistics.median(known + [float("inf")] * (len(values) - len(known)))
        axes.plot(middle, place, "o", color=colour, markersize=8)
    if missing := len(values) - len(known):
        across = axes.get_yaxis_transform()  # x from 0 to 1
        axes.plot(0.97, place, "x", color=colour, transform=across, markersize=8)
        text = "%d of %d %s" % (missing, len(values), without)
        look = {"color": colour, "size": 9, "ha": "right", "va": "center"}
        axes.text(0.94, place - 0.32, text, transform=across, **look)


def draw(results, path, source, highlighted=None):
    """Draws test loss and the time to TARGET of each example: median and range of its runs.

    results: {example: the results of its runs}, as in the file `source`. highlighted: the example
    that has a colour, over all others in grey; by default each has that of its kind.
    """
    examples, names = list(results), labels(results)
    kinds = {each: kind(each) for each in examples}
    palette = dict(zip(KINDS.values(), drivers.FAMILIES))
    lines = sum(name.count("\n") + 1 for name in names.values())
    figure, (loss, time) = plt.subplots(
        1, 2, figsize=(7.2, 1.8 + 0.33 * lines), sharey=True, layout="constrained"
    )
    times = {each: seconds_to_target(runs) for each, runs in results.items()}
    known = all(times.values())
    for place, (example, runs) in enumerate(results.items()):
        colour = palette.get(kinds[example], drivers.FAMILIES[-1])
        colour = colour if highlighted in (None, example) else GREY
        row(loss, place, [run["test_loss"] for run in runs], colour, "not finite")
        spent = times[example] if known else [run["wall_seconds"] for run in runs]
        row(time, place, spent, colour)
    loss.set_yticks(range(len(examples)), [names[each] for each in examples])
    loss.set_ylim(len(examples) - 0.4, -0.6)
    for label, example in zip(loss.get_yticklabels(), examples):
        label.set_fontweight("bold" if example == highlighted else "normal")
    count = len(next(iter(results.values())))
    loss.set_title("Test loss at the end")
    time.set_title("Time to %.0f%% accuracy" % (100 * TARGET) if known else "Time of the training")
    loss.set_xlabel("of %d seeds" % count)
    time.set_xlabel("seconds of training")
    for axes in (loss, time):
        axes.margins(x=0.15)
        axes.set_xscale("log")
        if axes.dataLim.x0 > axes.dataLim.x1:  # no run has a value
            axes.set_xlim(0.1, 10)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "%g" % value))
        decades = 1 if axes.dataLim.x1 > 20 * axes.dataLim.x0 else 0
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if decades else (1, 2, 5)))
        axes.xaxis.set_minor_formatter("")
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=10)
        axes.title.set_size(12)
        axes.spines[["top", "right"]].set_visible(False)
    shown = [highlighted] if highlighted else examples
    legend = [
        plt.Line2D([], [], color=colour, marker="o", linewidth=6, alpha=0.7, label=name)
        for name, colour in palette.items()
        if name in {kinds[each] for each in shown}
    ]
    legend += [plt.Line2D([], [], color=GREY, marker="o", label="the others")] * bool(highlighted)
    title = "dot: median, bar: range of the seeds"
    figure.legend(handles=legend, loc="outside lower center", ncols=4, title=title, frameon=False)
    drawn.save(figure, path, draw, results=source)
    plt.close(figure)


def kind(example):
    """The kind of an example, as a picture calls it."""
    text = script(example.split()[0]).read_text()
    found = re.search(r"(?m)^Kind: +(.+)$", text)[1]
    return KINDS.get(found, found)


def mean_and_spread(values, form):
    """The mean, and the standard deviation where there is one."""
    text = form % np.mean(values)
    return text + (" ± " + form % np.std(values, ddof=1) if len(values) > 1 else "")


def show(results, console):
    """Prints the table."""
    losses = {
        example: [float("nan") if r["test_loss"] is None else r["test_loss"] for r in runs]
        for example, runs in results.items()
    }
    first = statistics.mean(next(iter(losses.values())))
    columns = "example", "tasks", "updates", "test loss", "to the first", "test accuracy"
    table = Table(*columns, "seconds", "staleness")
    for example, runs in results.items():
        loss = losses[example]
        table.add_row(
            example,
            "%d ps, %d w" % (runs[0]["ps"], runs[0]["workers"]),
            "%d" % runs[0]["steps"],
            mean_and_spread(loss, "%.3f"),
            "%+.1f%%" % (100 * (statistics.mean(loss) / first - 1)),
            mean_and_spread([100 * r["test_accuracy"] for r in runs], "%.1f"),
            "%.1f" % statistics.median(r["wall_seconds"] for r in runs),
            "%.2f" % statistics.mean(r["staleness_mean"] for r in runs),
        )
    console.print(table)


def redraw(source, console):
    """Prints the table of a file of results again, and draws its pictures.

    Those of the committed results.json have their places on the pages of the examples.
    """
    results = json.loads(source.read_text())
    show(results, console)
    draw(results, drivers.picture(source, "compare"), source)
    if source.resolve() != pathlib.Path(__file__).resolve().parent / "results.json":
        return
    for example in results:
        if (drivers.ROOT / example).is_dir():  # one without flags of its own
            draw(results, drivers.ROOT / example / "compare.png", source, example)


def main():
    flags = parse_flags()
    console = drivers.console(122)
    if flags.redraw:
        redraw(flags.redraw, console)
        return
    directory = drivers.output_directory("Compare")
    results = collections.defaultdict(list)
    # By turns, so that a slow minute of the machine meets all of them.
    plan = [(seed, example) for seed in range(flags.seeds) for example in flags.examples]
    for seed, example in track(plan, "training", console=console, disable=not console.is_terminal):
        place = directory / ("%s-%d" % (file_name(example), seed))
        results[example].append(run(example, seed, flags, place))

    show(results, console)
    versions = next(iter(results.values()))[0]["versions"]
    console.print(
        "%d seeds, %d examples a run, batches of %d; %s"
        % (
            flags.seeds,
            flags.examples_seen,
            flags.batch_size,
            drivers.setting("TensorFlow " + versions["tensorflow"]),
        )
    )
    source = directory / "results.json"
    drivers.write(source, results)
    draw(results, directory / "compare.png", source)
    for example in flags.examples if len(flags.examples) > 3 else []:
        draw(results, directory / ("compare-%s.png" % file_name(example)), source, example)
    drivers.leave(console, directory, "everything of these runs, and compare.png,")


if __name__ == "__main__":
    main()
