"""Compare: several examples on the same data with the same seeds, as one table and one picture.

Every example trains on the same number of examples; what differs is the algorithm, and by that the
time. Each run is the example's own `bash run.sh`. An example may bring flags of its own, in one
word: "DOWNPOUR --local-steps 5".

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

import matplotlib
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers

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


def mini_batches(example):
    """How many make an update: --local-steps, times the workers if all take part."""
    folder, *given = shlex.split(example)
    script = drivers.ROOT / folder / (pathlib.Path(folder).name.replace("-", "_").lower() + ".py")
    text = script.read_text()
    found = re.search(r'add\("--local-steps", number\(int, 1\), (\d+),', text)
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
    return json.loads((directory / "result.json").read_text())


def file_name(example):
    """An example and its flags as the name of a file."""
    return "-".join(re.findall(r"[\w.]+", example))


def curve(directory):
    """The evaluations of a run: (seconds since its first push, test accuracy, test loss), lists."""
    rows = drivers.rows(directory)
    start = min(float(row["push_time"]) for row in rows)
    tested = sorted(
        (float(row["push_time"]) - start, float(row["test_accuracy"]), float(row["test_loss"]))
        for row in rows
        if row["test_accuracy"]
    )
    return list(zip(*tested)) or [(), (), ()]


def draw(directory, examples, seeds, name):
    """Draws test accuracy and loss of these examples against time."""
    figure, (accuracy, loss) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for number, example in enumerate(examples):
        for seed in range(seeds):
            seconds, accuracies, losses = curve(directory / ("%s-%d" % (file_name(example), seed)))
            style = dict(color="C%d" % number, alpha=0.6, linewidth=1.2)
            label = example if seed == 0 else None
            accuracy.plot(seconds, accuracies, label=label, **style)
            loss.plot(seconds, losses, label=label, **style)
    accuracy.set(title="Test accuracy, each line a seed", ylim=(0.85, 1.0))
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0))
    loss.set(title="Test loss", yscale="log")
    for axes in (accuracy, loss):
        axes.set(xlabel="seconds since the first push", xscale="log", xlim=(0.1, None))
        axes.grid(alpha=0.25)
    columns = 1 if max(map(len, examples)) > 30 else 5
    names = loss.get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", fontsize=9, ncols=columns)
    figure.savefig(directory / name, dpi=110)
    plt.close(figure)


def mean_and_spread(values, form):
    """The mean, and the standard deviation where there is one."""
    text = form % statistics.mean(values)
    return text + (" ± " + form % statistics.stdev(values) if len(values) > 1 else "")


def main():
    flags = parse_flags()
    directory = drivers.output_directory("Compare")
    results = collections.defaultdict(list)
    # By turns, so that a slow minute of the machine meets all of them.
    plan = [(seed, example) for seed in range(flags.seeds) for example in flags.examples]
    console = drivers.console(122)
    for seed, example in track(plan, "training", console=console, disable=not console.is_terminal):
        place = directory / ("%s-%d" % (file_name(example), seed))
        results[example].append(run(example, seed, flags, place))

    first = statistics.mean(r["test_loss"] for r in results[flags.examples[0]])
    table = Table(
        "example",
        "tasks",
        "updates",
        "test loss",
        "to the first",
        "test accuracy",
        "seconds",
        "staleness",
    )
    for example, runs in results.items():
        loss = [r["test_loss"] for r in runs]
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
    (directory / "results.json").write_text(json.dumps(results, indent=1))

    draw(directory, results, flags.seeds, "compare.png")
    for example in flags.examples[2:] if len(flags.examples) > 3 else []:
        draw(
            directory,
            [*flags.examples[:2], example],
            flags.seeds,
            "compare-%s.png" % file_name(example),
        )
    drivers.leave(console, directory, "everything of these runs, and compare.png,")


if __name__ == "__main__":
    main()
