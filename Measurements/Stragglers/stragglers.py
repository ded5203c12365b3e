"""Stragglers: what one slow worker of three costs all of them.

Each run is an example's own `bash run.sh`. The worker is stopped and let go by signals, so that it
runs a third of the time.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import matplotlib
import psutil
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers
from tfrun import drawn

BY_HAND, OPTIMIZER = "Synchronous-SGD/run.sh", "Synchronous-SGD/run_optimizer.sh"
CASES = [  # what it is called, what runs it, its flags, whether worker 2 is slowed
    ("Synchronous-SGD", BY_HAND, [], False),
    ("one slow", BY_HAND, [], True),
    ("one slow, one backup", BY_HAND, ["--backup-workers", "1"], True),
    ("SyncReplicasOptimizer", OPTIMIZER, [], False),
    ("the optimizer, one slow", OPTIMIZER, [], True),
    ("the optimizer, one slow, one backup", OPTIMIZER, ["--backup-workers", "1"], True),
    ("HogWild", "HogWild/run.sh", [], False),
    ("HogWild, one slow", "HogWild/run.sh", [], True),
]


def updates(directory):
    """The number of updates of w so far."""
    rows = drivers.rows(directory)
    return max([int(row["global_step"]) for row in rows if row["loss"]], default=0)


def one_sided(directory):
    """The share of steps for which some worker pushed several gradients, all of them in time."""
    pushed = collections.Counter(
        (row["global_step"], row["task"])
        for row in drivers.rows(directory)
        if row["loss"] and row["staleness"] == "0"
    )
    several = {step for (step, _), times in pushed.items() if times > 1}
    return len(several) / max(1, len({step for step, _ in pushed}))


def worker(run, index):
    """The process of a worker of the run, a Popen."""
    for process in psutil.Process(run.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            config = json.loads(process.environ().get("TF_CONFIG", "{}"))
            if config.get("task") == {"type": "worker", "index": index}:
                return process
    return None


def measure(launcher, flags, slow, seconds):
    """Updates of w a second, while `seconds` pass, and the share of them that is one_sided."""
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        run = subprocess.Popen(
            ["bash", drivers.ROOT / launcher, "--steps", "10000000", *flags],
            env={**os.environ, "OUTPUT_DIR": folder, "WORKERS": "3", "PS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=drivers.end_with_us,
        )
        try:
            deadline = time.monotonic() + 90
            while updates(directory) < 100:
                if run.poll() is not None or time.monotonic() > deadline:
                    sys.exit("stragglers: %s did not train: %s" % (launcher, run.communicate()[0]))
                time.sleep(0.2)
            victim, before, began = worker(run, 2), updates(directory), time.monotonic()
            while time.monotonic() < began + seconds:
                drivers.slow_down(victim.pid) if slow else time.sleep(drivers.SLICE)
            rate = (updates(directory) - before) / (time.monotonic() - began)
            return rate, one_sided(directory)
        finally:
            run.terminate()
            run.communicate(timeout=30)


def gradients(name):
    """How many gradients an update of w is made of."""
    flags = {each: flags for each, _, flags, _ in CASES}[name]
    return 1 if "HogWild" in name else 2 if "--backup-workers" in flags else 3


def show(results, console):
    """Prints the table."""
    columns = "3 workers, 1 ps", "updates/s (median)", "to the same, none slow", "gradients/s"
    table = Table(*columns, "one worker's twice")
    middle = {name: statistics.median(each["updates_per_second"]) for name, each in results.items()}
    cases = [case for case in CASES if case[0] in results]
    alone = {launcher: middle[name] for name, launcher, _, slow in cases if not slow}
    for name, launcher, _, _ in cases:
        ratio = "%.2f" % (middle[name] / alone[launcher]) if launcher in alone else ""
        side = "%.0f%%" % (100 * statistics.median(results[name]["one_sided"]))
        rate = "%.0f" % (gradients(name) * middle[name])
        side = "" if "HogWild" in name else side
        table.add_row(name, "%.0f" % middle[name], ratio, rate, side)
    console.print(table)


def draw(results, path, source):
    """Draws the gradients per second of each case, coloured by what runs it."""
    launchers = {name: launcher for name, launcher, *_ in CASES}
    families = dict(zip(dict.fromkeys(launchers.values()), drivers.FAMILIES))
    rates = {
        name: [gradients(name) * rate for rate in each["updates_per_second"]]
        for name, each in results.items()
    }
    figure, axes = plt.subplots(figsize=(7.2, 1.1 + 0.4 * len(rates)), layout="constrained")
    colours = {name: families[launchers[name]] for name in rates}
    drivers.bars(axes, rates, colours, "{:.0f}".format)
    axes.set_title("Three workers: what one slow worker costs", size=12, loc="left")
    axes.set_xlabel("gradients per second (dot: a run)")
    drawn.save(figure, path, draw, results=source)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=drivers.positive(float), default=8, help="of each run (%(default)g)"
    )
    parser.add_argument(
        "--repeats", type=drivers.positive(int), default=3, help="of each case (%(default)d)"
    )
    flags, cases = drivers.only(parser, CASES, __file__)
    console = drivers.console(125)
    if flags.redraw:
        results = json.loads(flags.redraw.read_text())
        show(results, console)
        draw(results, drivers.picture(flags.redraw, "stragglers"), flags.redraw)
        return
    directory = drivers.output_directory("Stragglers")
    results = {name: {"updates_per_second": [], "one_sided": []} for name, *_ in cases}
    # By turns, so that a slow minute meets all of them.
    plan = cases * flags.repeats
    for name, *case in track(plan, "training", console=console, disable=not console.is_terminal):
        rate, side = measure(*case, flags.seconds)
        results[name]["updates_per_second"].append(rate)
        results[name]["one_sided"].append(side)
    show(results, console)
    console.print("%g s each, %d repeats; %s" % (flags.seconds, flags.repeats, drivers.setting()))
    drivers.write(directory / "results.json", results)
    draw(results, directory / "stragglers.png", directory / "results.json")
    drivers.leave(console, directory, "stragglers.png")


if __name__ == "__main__":
    main()
