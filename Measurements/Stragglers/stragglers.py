"""Stragglers: one worker of three is slowed threefold; what that costs all of them.

Each run is an example's own `bash run.sh`. The worker is stopped and let go by signals, so that it
runs a third of the time.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import contextlib
import csv
import ctypes
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import matplotlib
import psutil
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = [  # what it is called, the example, its flags, whether worker 2 is slowed
    ("Synchronous-SGD", "Synchronous-SGD", [], False),
    ("one slow", "Synchronous-SGD", [], True),
    ("one slow, one backup", "Synchronous-SGD", ["--backup-workers", "1"], True),
    ("HogWild", "HogWild", [], False),
    ("HogWild, one slow", "HogWild", [], True),
]
SLICE = 0.02  # seconds that the slow worker runs at a time


def positive(text):
    """A type of flag: a number above zero."""
    if float(text) <= 0:
        raise argparse.ArgumentTypeError("must be above 0, is %s" % text)
    return float(text)


def end_with_us():
    """In the new process, on Linux: SIGTERM reaches it when this one dies; it stops its tasks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1: PR_SET_PDEATHSIG


def updates(directory):
    """The number of updates of w so far."""
    most = 0
    for path in directory.glob("metrics-*.csv"):
        with open(path, newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["loss"] and row["global_step"]]
        most = max([most, *(int(row["global_step"]) for row in rows)])
    return most


def worker(run, index):
    """The process of a worker of the run, a Popen."""
    for process in psutil.Process(run.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            config = json.loads(process.environ().get("TF_CONFIG", "{}"))
            if config.get("task") == {"type": "worker", "index": index}:
                return process
    return None


def measure(example, flags, slow, seconds):
    """Mini-batches a second that count, while `seconds` pass: (rate, updates a second)."""
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        run = subprocess.Popen(
            ["bash", ROOT / example / "run.sh", "--steps", "10000000", *flags],
            env={**os.environ, "OUTPUT_DIR": folder, "WORKERS": "3", "PS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=end_with_us,
        )
        try:
            deadline = time.monotonic() + 90
            while updates(directory) < 100:
                if run.poll() is not None or time.monotonic() > deadline:
                    sys.exit("stragglers: %s did not train: %s" % (example, run.communicate()[0]))
                time.sleep(0.2)
            victim, before, began = worker(run, 2), updates(directory), time.monotonic()
            while time.monotonic() < began + seconds:
                if slow:
                    victim.send_signal(signal.SIGSTOP)
                    time.sleep(2 * SLICE)
                    victim.send_signal(signal.SIGCONT)
                time.sleep(SLICE)
            return (updates(directory) - before) / (time.monotonic() - began)
        finally:
            run.terminate()
            run.communicate(timeout=30)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=positive, default=8, help="of each run (%(default)g)")
    parser.add_argument("--repeats", type=positive, default=3, help="of each case (%(default)g)")
    flags = parser.parse_args()
    directory = pathlib.Path(
        os.environ.get("OUTPUT_DIR")
        or pathlib.Path(
            os.environ.get("RUNS_DIR", "runs"),
            "Stragglers",
            datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S"),
        )
    )
    directory.mkdir(parents=True, exist_ok=True)
    rates = {name: [] for name, *_ in CASES}
    for _ in range(int(flags.repeats)):  # by turns, so that a slow minute meets all of them
        for name, *case in CASES:
            rates[name].append(measure(*case, flags.seconds))
    console = Console(width=None if sys.stdout.isatty() else 100)
    table = Table("3 workers, 1 ps", "updates/s (median)", "to the same without a slow one")
    middle = {name: statistics.median(each) for name, each in rates.items()}
    for name, example, _, _ in CASES:
        table.add_row(name, "%.0f" % middle[name], "%.2f" % (middle[name] / middle[example]))
    console.print(table)
    console.print(
        "%g s each, %d repeats; %s, Python %s, %d cores (%s)"
        % (
            flags.seconds,
            flags.repeats,
            datetime.date.today(),
            platform.python_version(),
            os.cpu_count(),
            platform.machine(),
        )
    )
    (directory / "results.json").write_text(json.dumps(rates, indent=1))
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    axes.barh(list(middle)[::-1], list(middle.values())[::-1], color="C0")
    for place, each in enumerate(list(rates.values())[::-1]):
        axes.plot(each, [place] * len(each), "k.", markersize=4)
    axes.set(xlabel="updates of w a second; a dot is a run", title="One worker of three, slowed")
    figure.savefig(directory / "stragglers.png", dpi=110)
    console.print("stragglers.png is in %s" % directory, soft_wrap=True)


if __name__ == "__main__":
    main()
