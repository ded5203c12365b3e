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
import json
import os
import pathlib
import re
import shlex
import statistics
import sys
import textwrap

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from rich.table import Table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers

sys.path.append(str(drivers.ROOT / "tools"))

TARGET = 0.97  # a test accuracy
KINDS = {  # what a picture calls the kinds of scripts, in the order of drivers.FAMILIES
    "single process": "one process",
    "parameter server, asynchronous": "asynchronous",
    "parameter server, synchronous": "synchronous",
}
GREY = "#a0a0a0"
DEFAULT = ["Non-Distributed-Setup", "Distributed-Setup", "HogWild"]


def parse_flags():
    parser = drivers.Parser(__doc__)
    words = f"folders, each perhaps with flags ({', '.join(DEFAULT)})"
    parser.add_argument("examples", nargs="*", default=DEFAULT, help=words)
    parser.number("--seeds", 5, "runs of each")
    parser.number("--examples-seen", 128000, "by all workers of a run together", metavar="N")
    parser.number("--batch-size", 32, "of each worker", metavar="B")
    parser.redraw(__file__)
    flags = parser.parse_args()
    for example in flags.examples:
        folder = "".join(example.split()[:1])
        if not folder or not (drivers.ROOT / folder / "run.sh").is_file():
            parser.error(f"there is no {folder}/run.sh")
        for own in ("--seed", "--steps", "--batch-size"):
            if own in re.split(r"[\s=]+", example):
                parser.error(f"{own} of {folder} is the same for all: leave it out")
    if len(set(flags.examples)) < len(flags.examples):
        parser.error("an example stands there twice")
    if flags.examples_seen < flags.batch_size * max(map(mini_batches, flags.examples)):
        parser.error("--examples-seen must be enough for one update of each example")
    return flags


def mini_batches(example):
    """How many make an update: --local-steps, times the workers if all take part."""
    folder, *own = shlex.split(example)
    text = drivers.script_of(folder).read_text()
    default = re.search(r'\("local-steps", (\d+),', text)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(
        "--local-steps", type=drivers.positive(int), default=int(default[1]) if default else 1
    )
    all_at_once = re.search(r"(?m)^Kind: +(parameter server, synchronous|all-reduce|gossip)$", text)
    together = int(os.environ.get("WORKERS", 2)) if all_at_once else 1
    return together * parser.parse_known_args(own)[0].local_steps


def run(example, seed, flags, directory):
    """Trains one example; returns its result.json. Exits with its last lines when it fails."""
    folder, *own = shlex.split(example)
    steps = flags.examples_seen // flags.batch_size // mini_batches(example)
    command = ["bash", drivers.ROOT / folder / "run.sh", *own, "--seed", seed, "--steps", steps]
    drivers.run([*command, "--batch-size", flags.batch_size], directory)
    result = json.loads((directory / "result.json").read_text())
    start = drivers.pushes(directory)[0]["push_time"]
    tested = [
        (round(row["push_time"] - start, 3), row["test_accuracy"], row["test_loss"])
        for row in drivers.tests(directory)
    ]
    return {**result, "evaluations": dict(zip(("seconds", "accuracy", "loss"), zip(*tested)))}


def file_name(example):
    """An example and its flags as the name of a file."""
    return "-".join(re.findall(r"[\w.]+", example))


def seconds_to_target(runs):
    """When the first evaluation found TARGET, of each run; None where none did."""
    tests = [run.get("evaluations", {"seconds": [], "accuracy": []}) for run in runs]
    tests = [zip(test["seconds"], test["accuracy"]) for test in tests]
    return [next((at for at, value in pairs if value >= TARGET), None) for pairs in tests]


def labels(examples):
    """{example: its name in a picture}, with those of its flags that not all of them have."""
    words = {example: re.sub(r" (?!--)", "=", example).split() for example in examples}
    common = set.intersection(*(set(flags) for _, *flags in words.values()))
    return {
        example: "\n".join(
            [folder]
            + [textwrap.fill(flag.replace("=", " "), 30) for flag in flags if flag not in common]
        )
        for example, (folder, *flags) in words.items()
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
    palette = dict(zip(KINDS.values(), drivers.FAMILIES))
    lines = sum(name.count("\n") + 1 for name in names.values())
    figure, (loss, time) = drivers.subplots(1.8 + 0.33 * lines, 1, 2, sharey=True)
    for y, (example, runs) in enumerate(results.items()):
        colour = palette.get(kind(example), drivers.FAMILIES[-1])
        colour = colour if highlighted in (None, example) else GREY
        row(loss, y, [run["test_loss"] for run in runs], colour, "not finite")
        row(time, y, seconds_to_target(runs), colour)
    loss.set_yticks(range(len(examples)), [names[example] for example in examples])
    loss.set_ylim(len(examples) - 0.4, -0.6)
    for label, example in zip(loss.get_yticklabels(), examples):
        label.set_fontweight("bold" if example == highlighted else "normal")
    loss.set_title("Test loss at the end")
    time.set_title(f"Time to {100 * TARGET:.0f}% accuracy")
    loss.set_xlabel(f"of {len(results[examples[0]])} seeds")
    time.set_xlabel("seconds of training")
    for axes in (loss, time):
        axes.margins(x=0.15)
        axes.set_xscale("log")
        if axes.dataLim.x0 > axes.dataLim.x1:  # no run has a value
            axes.set_xlim(0.1, 10)
        axes.xaxis.set_major_formatter("{x:g}")
        decades = axes.dataLim.x1 > 20 * axes.dataLim.x0
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if decades else (1, 2, 5)))
        axes.xaxis.set_minor_formatter("")
        axes.grid(alpha=0.25)
    kinds = {kind(example) for example in ([highlighted] if highlighted else examples)}
    legend = [
        Line2D([], [], color=colour, marker="o", linewidth=6, alpha=0.7, label=name)
        for name, colour in palette.items()
        if name in kinds
    ]
    legend += [Line2D([], [], color=GREY, marker="o", label="the others")] * bool(highlighted)
    title = "dot: median, bar: range of the seeds"
    figure.legend(handles=legend, loc="outside lower center", ncols=4, title=title, frameon=False)
    drivers.save(figure, path, source)


def draw_all(results, path, source):
    """Draws the picture of all examples, and one for each of them.

    Those of the committed results.json have their places on the pages of the examples.
    """
    draw(results, path, source)
    if source.resolve() == pathlib.Path(__file__).resolve().with_name("results.json"):
        for example in results:
            if (drivers.ROOT / example).is_dir():  # one without flags of its own
                draw(results, drivers.ROOT / example / "compare.png", source, example)
    elif len(results) > 3:
        for example in results:
            draw(results, path.with_name(f"compare-{file_name(example)}.png"), source, example)


def kind(example):
    """The kind of an example, as a picture calls it."""
    text = drivers.script_of(example.split()[0]).read_text()
    name = re.search(r"(?m)^Kind: +(.+)$", text)[1]
    return KINDS.get(name, name)


def mean_and_spread(values, digits):
    """The mean, and the standard deviation where there is one."""
    text = f"{np.mean(values):.{digits}f}"
    return f"{text} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else text


def table_of(results):
    """Returns the table."""
    losses = {
        example: [float("nan") if run["test_loss"] is None else run["test_loss"] for run in runs]
        for example, runs in results.items()
    }
    first = statistics.mean(next(iter(losses.values())))
    columns = "example", "tasks", "updates", "test loss", "to the first", "test accuracy"
    table = Table(*columns, "seconds", "staleness")
    for example, runs in results.items():
        loss = losses[example]
        table.add_row(
            example,
            f"{runs[0]['ps']} ps, {runs[0]['workers']} w",
            str(runs[0]["steps"]),
            mean_and_spread(loss, 3),
            f"{100 * (statistics.mean(loss) / first - 1):+.1f}%",
            mean_and_spread([100 * run["test_accuracy"] for run in runs], 1),
            f"{statistics.median(run['wall_seconds'] for run in runs):.1f}",
            f"{statistics.mean(run['staleness_mean'] for run in runs):.2f}",
        )
    return table


def main():
    flags = parse_flags()

    def measure(console, directory):
        drivers.leave_digests([example.split()[0] for example in flags.examples], directory)
        cases = [(example,) for example in flags.examples]
        results = drivers.by_turns(
            console,
            cases,
            flags.seeds,
            lambda case, seed: run(*case, seed, flags, directory / f"{file_name(*case)}-{seed}"),
        )
        versions = results[flags.examples[0]][0]["versions"]
        return results, (
            f"{flags.seeds} seeds, {flags.examples_seen} examples a run, batches of "
            f"{flags.batch_size}; " + drivers.setting(f"TensorFlow {versions['tensorflow']}")
        )

    drivers.report(__file__, flags, 122, measure, table_of, draw_all)


if __name__ == "__main__":
    main()
