"""Stragglers: what one slow worker of three costs all of them.

Each run is an example's own `bash run.sh`. The worker is stopped and let go by signals, so that it
runs a third of the time.

Kind:          driver
Run:           bash run.sh
"""

import collections
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from rich.table import Table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers

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
    return max((int(row["global_step"]) for row in drivers.pushes(directory)), default=0)


def one_sided(directory):
    """The share of steps for which some worker pushed several gradients, all of them in time."""
    pushed = collections.Counter(
        (row["global_step"], row["task"])
        for row in drivers.pushes(directory)
        if row["staleness"] == 0
    )
    several = {step for (step, _), times in pushed.items() if times > 1}
    return len(several) / max(1, len({step for step, _ in pushed}))


def measure(launcher, flags, slow, seconds):
    """Updates of w a second, while `seconds` pass, and the share of them that is one_sided."""
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder).resolve()  # as tfrun names it
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
            victim, before = drivers.tasks(directory)["worker", 2], updates(directory)
            began = time.monotonic()
            while time.monotonic() < began + seconds:
                if slow:
                    drivers.slow_down(victim.pid)
                else:
                    time.sleep(drivers.SLICE)
            rate = (updates(directory) - before) / (time.monotonic() - began)
            return rate, one_sided(directory)
        finally:
            run.terminate()
            run.communicate(timeout=30)


def gradients(name):
    """How many gradients an update of w is made of."""
    flags = {each: flags for each, _, flags, _ in CASES}[name]
    return 1 if "HogWild" in name else 2 if "--backup-workers" in flags else 3


def table_of(results):
    """Returns the table."""
    columns = "3 workers, 1 ps", "updates/s (median)", "to the same, none slow", "gradients/s"
    table = Table(*columns, "one worker's twice")
    middle = {name: statistics.median(runs["updates_per_second"]) for name, runs in results.items()}
    cases = [case for case in CASES if case[0] in results]
    alone = {launcher: middle[name] for name, launcher, _, slow in cases if not slow}
    for name, launcher, _, _ in cases:
        rate, side = middle[name], 100 * statistics.median(results[name]["one_sided"])
        table.add_row(
            name,
            f"{rate:.0f}",
            f"{rate / alone[launcher]:.2f}" if launcher in alone else "",
            f"{gradients(name) * rate:.0f}",
            "" if "HogWild" in name else f"{side:.0f}%",
        )
    return table


def draw(results, path, source):
    """Draws the gradients per second of each case, coloured by what runs it."""
    launchers = {name: launcher for name, launcher, *_ in CASES}
    families = dict(zip(dict.fromkeys(launchers.values()), drivers.FAMILIES))
    rates = {
        name: [gradients(name) * rate for rate in runs["updates_per_second"]]
        for name, runs in results.items()
    }
    drivers.bars(
        "Three workers: what one slow worker costs",
        "gradients per second (dot: a run)",
        rates,
        {name: families[launchers[name]] for name in rates},
        "{:.0f}".format,
        path,
        source,
    )


def main():
    parser = drivers.Parser(__doc__)
    parser.number("--seconds", 8, "of each run", float)
    parser.number("--repeats", 3, "of each case")
    parser.redraw(__file__)
    flags, cases = parser.only(CASES)

    def measure_all(console, _):
        results = drivers.by_turns(
            console, cases, flags.repeats, lambda case, _: measure(*case[1:], flags.seconds)
        )
        names = "updates_per_second", "one_sided"
        results = {name: dict(zip(names, zip(*runs))) for name, runs in results.items()}
        setting = drivers.setting()
        return results, f"{flags.seconds:g} s each, {flags.repeats} repeats; {setting}"

    drivers.report(__file__, flags, 125, measure_all, table_of, draw)


if __name__ == "__main__":
    main()
