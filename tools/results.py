"""Measures the examples, for their pages: runs each a few times, and keeps what came out.

    python tools/results.py                     all of them, five seeds each
    python tools/results.py HogWild --repeats 2
    python tools/results.py Synchronous-SGD/run_optimizer.sh

Writes results.json beside the run.sh, and the pictures of the first run: curves.png, and trace.png
where the page shows one. `python tools/readmes.py --fix` then writes the figures into the page.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import readmes

ROOT = pathlib.Path(__file__).resolve().parents[1]
MORE = {"Model-Parallelism": ["--timeline-steps", "1000"]}  # for the stages in its picture
sys.path.insert(0, str(ROOT))
from tfrun.runs.data import RunData  # noqa: E402


def facts(directory, seconds):
    """{name: a number} of a run: what its page reports."""
    result = json.loads((directory / "result.json").read_text())
    pushes = collections.defaultdict(list)
    for push in RunData.read(directory).pushes():
        for name in ("bytes", "wait_seconds"):
            if np.isfinite(push.get(name, np.nan)):
                pushes[name].append(push[name])
    return {
        **{name: value for name, value in result.items() if name.startswith("test_")},
        "seconds": seconds,
        "training_seconds": result["wall_seconds"],
        "updates": result["steps"],
        "staleness": result["staleness_mean"],
        **{name: float(np.median(values)) for name, values in pushes.items() if values},
    }


def sample(output, directory, name):
    """The lines of a run that a page shows: the first, two reports of progress, and the last."""
    place = ".../runs/%s/<time>" % name
    lines = [line.replace(str(directory), place) for line in output.splitlines()]
    lines = [line for line in lines if re.match(r"\[\w+( \d+)?\] ", line)]
    progress = [number for number, line in enumerate(lines) if "] update " in line]
    if len(progress) > 3:
        lines[progress[1] + 1 : progress[-1]] = ["..."]
    return lines


def measure(launcher, repeats):
    """Runs a run.sh with the seeds from 0; returns what results.json holds."""
    name, more = launcher.parent.name, MORE.get(launcher.parent.name, [])
    page = (launcher.parent / "README.md").read_text()
    runs = []
    for seed in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            done = subprocess.run(
                ["bash", launcher, *more, "--seed", str(seed)],
                env={**os.environ, "OUTPUT_DIR": folder},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=600,
            )
            directory = pathlib.Path(folder)
            runs.append(facts(directory, time.monotonic() - began))
            print(f"{name}, seed {seed}: {runs[-1]}")
            if seed == 0:
                lines = sample(done.stdout, directory, name)
                keep_pictures(directory, launcher, page)
                versions = json.loads((directory / "result.json").read_text())["versions"]
    return {
        "command": " ".join(["bash", launcher.name, *more, "--seed S"]),
        "date": str(datetime.date.today()),
        "versions": {**versions, "python": platform.python_version()},
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load": os.getloadavg()[1],
        "runs": runs,
        "output": lines,
    }


def keep_pictures(directory, launcher, page):
    """Copies the pictures that the page shows from a run to the example."""
    if launcher.name != "run.sh":
        return
    if "(trace.png)" in page:
        tfrun = [sys.executable, ROOT / "tfrun" / "bin" / "tfrun"]
        subprocess.run([*tfrun, "trace", directory], check=True)
    for picture in ("curves.png", "trace.png"):
        if "(%s)" % picture in page:
            shutil.copy(directory / picture, launcher.parent / picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("launchers", nargs="*", help="examples, or a run.sh of one (all)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, by seed (5)")
    flags = parser.parse_args()
    for name in flags.launchers or readmes.MEASURED:
        path = ROOT / name
        launcher = path if path.suffix == ".sh" else path / "run.sh"
        text = json.dumps(measure(launcher, flags.repeats), indent=1)
        readmes.results_of(launcher).write_text(text + "\n")


if __name__ == "__main__":
    main()
