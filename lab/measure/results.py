"""Measures the examples, for their pages: runs each a few times, and keeps what came out.

    python lab/measure/results.py                     all of them, five seeds each
    python lab/measure/results.py HogWild --repeats 3
    python lab/measure/results.py Multiple-GPUs-Single-Machine/run_mirrored.sh
    python lab/measure/results.py HogWild --anyway
    python lab/measure/results.py HogWild --unchanged
    python lab/measure/results.py --pictures

It waits until other processes use less than a tenth of a core; with --anyway it does not, and the
page then calls the result busy. Writes results.json beside the run.sh, and the pictures of the
first run: curves.png, and trace.png where the page shows one. `python lab/pages/readmes.py --fix`
then writes the figures into the page.

results.json names its example and the digest of its script (digests.example_digest), and
provenance.py refuses to show it once either differs. If you have changed a script in a way that
alters no number, such as a name, --unchanged writes the new digest and measures nothing. If other
code draws the pictures, --pictures runs each once more, for them only.
"""

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
from typing import Any

import numpy as np
from tfrun.runs.data import RunData

from lab import examples
from lab.examples import ROOT, ToolError, shown
from lab.measure import arguments, idle, provenance
from lab.measure.example_runs import run

EXTRA_FLAGS = {  # for what their pictures show of a moment
    "Model-Parallelism": ["--timeline-steps", "1000"],
    "Sharded-Training": ["--timeline-steps", "500"],
}
RUN_SECONDS = 600  # at most


def summarize_run(directory: pathlib.Path, seconds: float) -> dict[str, Any]:
    """{name: a number} of a run: what its page reports."""
    result = examples.read_json(directory / "result.json")
    measured = collections.defaultdict(list)
    for push in RunData.read(directory).rows("pushes"):
        for name in ("bytes", "wait_seconds"):
            if np.isfinite(push.get(name, np.nan)):
                measured[name].append(push[name])
    return {
        **{name: value for name, value in result.items() if name.startswith("test_")},
        "seconds": seconds,
        "training_seconds": result["wall_seconds"],
        "updates": result["steps"],
        "staleness": result["staleness_mean"],
        # Of bytes the mean: where a thread moves them, most steps have none.
        **{
            name: float(np.mean(values) if name == "bytes" else np.median(values))
            for name, values in measured.items()
        },
    }


def sample(output: str, directory: pathlib.Path, name: str) -> list[str]:
    """The lines of a run that a page shows: the first, two reports of progress, and the last."""
    place = f".../runs/{name}/<time>"
    lines = [line.replace(str(directory), place) for line in output.splitlines()]
    lines = [line for line in lines if re.match(r"\[\w+( \d+)?\] ", line)]
    progress = [number for number, line in enumerate(lines) if "] update " in line]
    if len(progress) > 3:
        lines[progress[1] + 1 : progress[-1]] = ["..."]
    return lines


def measure(launcher: pathlib.Path, repeats: int, anyway: bool) -> dict[str, Any]:
    """Runs a run.sh with the seeds from 0; returns what results.json holds."""
    name = launcher.parent.name
    extra_flags = EXTRA_FLAGS.get(name, [])
    page = examples.read(launcher.parent / "README.md")
    identity = provenance.identity_of(launcher)
    others = idle.wait(anyway)
    runs = []
    for seed in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            command = ["bash", launcher, *extra_flags, "--seed", str(seed)]
            output = run(command, folder, TFRUN_TIMEOUT=str(RUN_SECONDS))
            directory = pathlib.Path(folder)
            runs.append(summarize_run(directory, time.monotonic() - began))
            print(f"{name}, seed {seed}: {runs[-1]}")
            if seed == 0:
                lines = sample(output, directory, name)
                keep_pictures(directory, launcher, page)
                versions = examples.read_json(directory / "result.json")["versions"]
    if provenance.identity_of(launcher) != identity:
        raise ToolError(f"the script of {name} changed while it ran: run this again")
    return {
        **identity,
        "command": " ".join(["bash", launcher.name, *extra_flags, "--seed S"]),
        "date": str(datetime.date.today()),
        "versions": {**versions, "python": platform.python_version()},
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "others": round(others.share(), 3),
        "runs": runs,
        "output": lines,
    }


def keep_pictures(directory: pathlib.Path, launcher: pathlib.Path, page: str) -> None:
    """Copies the pictures that the page shows from a run to the example."""
    if launcher.name != "run.sh":
        return
    if "(trace.png)" in page:
        tfrun = [sys.executable, str(ROOT / "tfrun" / "bin" / "tfrun")]
        subprocess.run([*tfrun, "trace", directory], check=True)
    for picture in ("curves.png", "trace.png"):
        if f"({picture})" in page:
            shutil.copy(directory / picture, launcher.parent / picture)


def mark_unchanged(launcher: pathlib.Path) -> None:
    """Writes the digest of today's script into the results of an example, here and in Compare."""
    name = shown(launcher.parent)
    path = provenance.results_of(launcher)
    measured = examples.read_json(path)
    identity = provenance.identity_of(launcher)
    digest_before = measured.get("digest")
    if measured.get("example") != identity["example"]:
        provenance.check(measured, launcher)  # raises: these are no results of this example
    path.write_text(json.dumps({**measured, **identity}, indent=1) + "\n")
    for path in examples.tracked_files("*_digests.json"):  # of Compare, and others
        digests = examples.read_json(path)
        # Numbers that an earlier change has made outdated stay so.
        if launcher.name == "run.sh" and digests.get(name) == digest_before:
            digests[name] = identity["digest"]
            path.write_text(json.dumps(digests, indent=1) + "\n")


def draw_again(launcher: pathlib.Path, anyway: bool) -> None:
    """Draws the pictures of one more run. results.json stays that of the runs before."""
    provenance.check(examples.read_json(provenance.results_of(launcher)), launcher)
    measure(launcher, 1, anyway)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.add_argument("launchers", nargs="*", help="examples, or a run.sh of one (all)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, by seed (5)")
    parser.add_argument("--unchanged", action="store_true", help="measure nothing: see above")
    words = "run each once, and keep its pictures only"
    parser.add_argument("--pictures", action="store_true", help=words)
    words = "measure although other processes use the machine, and say so"
    parser.add_argument("--anyway", action="store_true", help=words)
    flags = parser.parse_args()
    if flags.repeats < 3:
        parser.error("--repeats must be at least 3: a page shows a median and a range")
    launchers = [
        provenance.launcher_of(name) for name in flags.launchers or provenance.measured_examples()
    ]
    if flags.pictures:  # which no other run.sh has
        launchers = [launcher for launcher in launchers if launcher.name == "run.sh"]
    if flags.unchanged and not flags.launchers:
        parser.error("--unchanged needs the examples whose numbers are still true")
    for launcher in launchers:
        if flags.unchanged:
            mark_unchanged(launcher)
        else:
            try:
                if flags.pictures:
                    draw_again(launcher, flags.anyway)
                    continue
                measured = measure(launcher, flags.repeats, flags.anyway)
            except TimeoutError as error:
                raise ToolError(f"{shown(launcher.parent)}: {error}") from None
            text = json.dumps(measured, indent=1)
            provenance.results_of(launcher).write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
