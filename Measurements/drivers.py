"""What the measurements share: each of their scripts runs examples by their own `bash run.sh`."""

import argparse
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
import time

from rich.console import Console

ROOT = pathlib.Path(__file__).resolve().parents[1]
SLICE = 0.02  # seconds that a slow worker runs at a time
sys.path.append(str(ROOT))  # for tfrun
FAMILIES = ["#1f77b4", "#d95f02", "#2a9d5c", "#8c564b"]  # a colour for cases of one kind


def positive(kind):
    """A type of flag: a number of that kind above zero."""

    def parse(text):
        if not 0 < kind(text) < float("inf"):
            raise argparse.ArgumentTypeError("must be above 0, is %s" % text)
        return kind(text)

    parse.__name__ = kind.__name__
    return parse


def redraw(script):
    """What --redraw is: a file of results to draw, the committed one of this script if bare."""
    return {
        "nargs": "?",
        "type": pathlib.Path,
        "const": pathlib.Path(script).resolve().parent / "results.json",
        "metavar": "RESULTS",
        "help": "measure nothing: draw this file's picture again (results.json beside the script)",
    }


def picture(results, name):
    """Where the picture of a file of results belongs: `name`.png beside it for results.json.

    messages-wide.png for results-wide.json, and warm-up.png for warm-up.json.
    """
    return results.with_name(re.sub("^results", name, results.stem) + ".png")


def write(path, results):
    """Writes results as JSON, a list of numbers on one line."""
    text = json.dumps(results, indent=1)
    joined = re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text)
    path.write_text(re.sub(r"(?<=\[) | (?=\])", "", joined) + "\n")


def bars(axes, values, colours, form):
    """A bar for each case, as long as the median of its runs: {name: runs}, {name: colour}.

    A dot is a run. form: what stands beside a bar, the text of a median.
    """
    last = max(max(each) for each in values.values())
    for place, (name, each) in enumerate(values.items()):
        middle = statistics.median(each)
        axes.barh(place, middle, 0.7, color=colours[name], alpha=0.75)
        axes.plot(each, [place] * len(each), "k.", markersize=5)
        axes.text(max(each) + 0.02 * last, place, form(middle), va="center", fontsize=10)
    axes.set_yticks(range(len(values)), values)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * last)
    axes.tick_params(labelsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def only(parser, cases, script=None):
    """Adds --only, and --redraw to a script that draws, and reads the flags.

    Returns (the flags, the cases whose names have the text of --only).
    """
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this in their names")
    if script:
        parser.add_argument("--redraw", **redraw(script))
    flags = parser.parse_args()
    chosen = [case for case in cases if flags.only in case[0]]
    if not chosen:
        parser.error("--only must be in one of: %s" % "; ".join(case[0] for case in cases))
    return flags, chosen


def end_with_us(how=signal.SIGTERM):
    """In the new process, on Linux: this signal reaches it when its parent dies.

    At SIGTERM, an example's launcher stops its tasks.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, how)  # 1: PR_SET_PDEATHSIG


def run(command, directory, env=os.environ, **more):
    """Runs an example to its end in `directory`, with `more` in its environment.

    When it fails this process ends with its last lines.
    """
    env = {**env, "OUTPUT_DIR": str(directory), **more}
    if command[0] == "bash":  # a run.sh refuses what means nothing to it
        text = pathlib.Path(command[1]).read_text()
        for name in [name for name in ("WORKERS", "PS") if "${%s:-}" % name in text]:
            env.pop(name, None)
    done = subprocess.run(
        [str(word) for word in command],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_us,
    )
    if done.returncode:
        last = done.stdout.splitlines()[-10:]
        failed = " ".join(map(str, command))
        sys.exit("\n".join([*last, "failed with exit code %d: %s" % (done.returncode, failed)]))


def slow_down(pid):
    """Lets a process run for a third of the next moment, and stops it for the rest."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(2 * SLICE)
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(SLICE)


def changed(script, changes):
    """The text of a script after [(what stands in it just once, what takes its place)]."""
    text = script.read_text()
    for old, new in changes:
        if text.count(old) != 1:
            sys.exit("%r stands %d times in %s" % (old, text.count(old), script))
        text = text.replace(old, new)
    return text


def output_directory(name):
    """The folder for what this measurement leaves: OUTPUT_DIR, or one named after the time."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs")
    directory = pathlib.Path(os.environ.get("OUTPUT_DIR") or runs / name / now)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def rows(directory):
    """The lines of all metrics-<task>.csv of a run, with the name of the task under `task`."""
    found = []
    for path in sorted(directory.glob("metrics-*.csv")):
        with open(path, newline="") as file:
            lines = (line for line in file if not line.startswith("#"))  # "# restart"
            found += [{**row, "task": path.stem} for row in csv.DictReader(lines)]
    return found


def console(width):
    """For tables: as wide as the terminal, `width` columns where there is none."""
    return Console(width=None if sys.stdout.isatty() else width, record=True)


def leave(console, directory, what):
    """Writes all that the console has shown into table.txt, which the page shows; names `what`."""
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    (directory / "table.txt").write_text("\n".join(lines) + "\n")
    console.print("%s is in %s" % (what, directory), soft_wrap=True)


def setting(*versions):
    """When and where this was measured, as the last words of a table."""
    where = "%d cores (%s)" % (os.cpu_count(), platform.machine())
    return ", ".join(
        [str(datetime.date.today()), *versions, "Python " + platform.python_version(), where]
    )
