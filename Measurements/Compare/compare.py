"""Compare: several examples on the same data with the same seeds, as one table and one picture.

Every example trains on the same number of examples; what differs is the algorithm, and by that the
time. Each run is the example's own `bash run.sh`.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import collections
import csv
import ctypes
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys

import matplotlib
from rich.console import Console
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT = ["Non-Distributed-Setup", "Distributed-Setup", "HogWild"]


def positive(text):
    """A type of flag: a whole number above zero."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1, is %s" % text)
    return int(text)


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "examples", nargs="*", default=DEFAULT, help="folders (%s)" % ", ".join(DEFAULT)
    )
    parser.add_argument("--seeds", type=positive, default=5, help="runs of each (%(default)s)")
    parser.add_argument(
        "--examples-seen",
        type=positive,
        default=128000,
        metavar="N",
        help="by all workers of a run together (%(default)s)",
    )
    parser.add_argument(
        "--batch-size", type=positive, default=32, metavar="B", help="(%(default)s)"
    )
    flags = parser.parse_args()
    for example in flags.examples:
        if not (ROOT / example / "run.sh").is_file():
            parser.error("there is no %s/run.sh" % example)
    if flags.examples_seen < flags.batch_size * max(map(mini_batches, flags.examples)):
        parser.error("--examples-seen must be enough for one update of each example")
    return flags


def mini_batches(example):
    """How many make an update: --local-steps by its default, times the workers if all take part."""
    script = ROOT / example / (pathlib.Path(example).name.replace("-", "_").lower() + ".py")
    text = script.read_text()
    found = re.search(r'add\("--local-steps", number\(int, 1\), (\d+),', text)
    together = int(os.environ.get("WORKERS", 2)) if "# region: rounds" in text else 1
    return together * (int(found[1]) if found else 1)


def end_with_us():
    """In the new process, on Linux: SIGTERM reaches it when this one dies; it stops its tasks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1: PR_SET_PDEATHSIG


def run(example, seed, flags, directory):
    """Trains one example; returns its result.json. Exits with its last lines when it fails."""
    command = [
        "bash",
        ROOT / example / "run.sh",
        "--seed",
        str(seed),
        "--steps",
        str(flags.examples_seen // flags.batch_size // mini_batches(example)),
        "--batch-size",
        str(flags.batch_size),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "OUTPUT_DIR": str(directory)},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_us,
    )
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[-10:]), file=sys.stderr)
        sys.exit(
            "compare: %s with --seed %d failed with exit code %d" % (example, seed, done.returncode)
        )
    return json.loads((directory / "result.json").read_text())


def curve(directory):
    """The evaluations of a run: (seconds since its first push, test accuracy, test loss), lists."""
    rows = []
    for path in directory.glob("metrics-*.csv"):
        with open(path, newline="") as file:
            rows += list(csv.DictReader(file))
    start = min(float(row["push_time"]) for row in rows)
    tested = sorted(
        (float(row["push_time"]) - start, float(row["test_accuracy"]), float(row["test_loss"]))
        for row in rows
        if row["test_accuracy"]
    )
    return list(zip(*tested)) or [(), (), ()]


def draw(directory, examples, seeds, name):
    """Draws test accuracy and loss of these examples against time."""
    figure, (accuracy, loss) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for number, example in enumerate(examples):
        for seed in range(seeds):
            seconds, accuracies, losses = curve(directory / ("%s-%d" % (example, seed)))
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
        axes.legend(fontsize=9)
    figure.savefig(directory / name, dpi=110)
    plt.close(figure)


def mean_and_spread(values, form):
    """The mean, and the standard deviation where there is one."""
    text = form % statistics.mean(values)
    return text + (" ± " + form % statistics.stdev(values) if len(values) > 1 else "")


def main():
    flags = parse_flags()
    directory = pathlib.Path(
        os.environ.get("OUTPUT_DIR")
        or pathlib.Path(
            os.environ.get("RUNS_DIR", "runs"),
            "Compare",
            datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S"),
        )
    )
    results = collections.defaultdict(list)
    # By turns, so that a slow minute of the machine meets all of them.
    plan = [(seed, example) for seed in range(flags.seeds) for example in flags.examples]
    console = Console(width=None if sys.stdout.isatty() else 122)
    for seed, example in track(plan, "training", console=console, disable=not console.is_terminal):
        results[example].append(run(example, seed, flags, directory / ("%s-%d" % (example, seed))))

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
        "%d seeds, %d examples a run, batches of %d; %s, TensorFlow %s, Python %s, %d cores (%s)"
        % (
            flags.seeds,
            flags.examples_seen,
            flags.batch_size,
            datetime.date.today(),
            versions["tensorflow"],
            versions["python"],
            os.cpu_count(),
            platform.machine(),
        )
    )
    (directory / "results.json").write_text(json.dumps(results, indent=1))

    draw(directory, results, flags.seeds, "compare.png")
    for example in flags.examples[2:] if len(flags.examples) > 3 else []:
        draw(directory, [*flags.examples[:2], example], flags.seeds, "compare-%s.png" % example)
    console.print("everything of these runs, and compare.png, is in %s" % directory, soft_wrap=True)


if __name__ == "__main__":
    main()
