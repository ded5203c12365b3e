"""How long each engine takes to begin, and to end: HogWild by its run.sh, all by turns.

    python start_up.py ../HogWild/run.sh Spark-Cluster/run.sh Slurm/run.sh SSH/run.sh Ray/run.sh

Writes start_up.json: for each engine the seconds from the command to the first update, and from the
last update to the end of the command. One that is not here, or fails, is left out, and named.
"""

import argparse
import csv
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# The first run of an engine may install packages: it does not count.
WARM_UP, STEPS = 1, 100


def version(engine):
    """The version of an engine, by its file of pins or its command; None where there is neither."""
    if engine in ("Spark-Cluster", "Ray"):
        name = {"Spark-Cluster": "spark", "Ray": "ray"}[engine]
        pins = (HERE / (name + ".txt")).read_text()
        return next(line.split()[0] for line in pins.splitlines() if "==" in line)
    command = {"Slurm": ["slurmctld", "-V"], "SSH": ["ssh", "-V"]}.get(engine)
    if not command:
        return None
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip()


def run(launcher, steps, seconds):
    """Runs HogWild by a run.sh: (seconds to the first update, seconds after the last).

    Raises RuntimeError with its last line where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="start-up-") as name:
        log, output = pathlib.Path(name) / "log.txt", pathlib.Path(name) / "run"
        with open(log, "w") as file:
            began = time.time()  # the clock of push_time
            process = subprocess.Popen(
                ["bash", launcher, "--steps", str(steps)],
                env={**os.environ, "OUTPUT_DIR": str(output)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = "none after %d s" % seconds
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
            except BaseException:
                process.terminate()
                process.wait()
                raise
            ended = time.time()
        pushes = []
        for path in output.glob("metrics-*.csv"):
            with open(path, newline="") as file:
                pushes += [float(row["push_time"]) for row in csv.DictReader(file) if row["loss"]]
        if code or not pushes:
            last = (log.read_text(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
            raise RuntimeError("exit code %s, %d updates: %s" % (code, len(pushes), last))
    return min(pushes) - began, ended - max(pushes)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=5, help="of each engine (%(default)s)")
    parser.add_argument("--seconds", type=int, default=300, help="at most, for a run (%(default)s)")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=HERE / "start_up.json",
        help="the file with the figures (start_up.json)",
    )
    parser.add_argument(
        "launchers",
        nargs="+",
        type=pathlib.Path,
        metavar="run.sh",
        help="an engine's; tfrun's is ../HogWild/run.sh",
    )
    flags = parser.parse_args()
    for name in ("repeats", "seconds"):
        if vars(flags)[name] < 1:
            parser.error("--%s must be at least 1, is %d" % (name, vars(flags)[name]))
    found, left_out = {}, {}
    for launcher in flags.launchers:
        folder = launcher.resolve().parent.name
        engine = "tfrun" if folder == "HogWild" else folder
        if launcher.is_file():
            found[engine] = {"launcher": launcher.resolve(), "first": [], "end": []}
        else:
            left_out[engine] = "there is no %s" % launcher
    for turn in range(WARM_UP + flags.repeats):
        for engine in list(found):
            try:
                first, end = run(found[engine]["launcher"], STEPS, flags.seconds)
            except RuntimeError as error:
                left_out[engine] = str(error)
                del found[engine]
                continue
            if turn >= WARM_UP:
                found[engine]["first"].append(round(first, 1))
                found[engine]["end"].append(round(end, 1))
    for engine, why in left_out.items():
        print("left out: %s: %s" % (engine, why), file=sys.stderr)
    if not found:
        return 1
    measured = {
        "command": "python start_up.py " + " ".join(map(str, sys.argv[1:])),
        "date": str(datetime.date.today()),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load": round(os.getloadavg()[2], 1),
        "steps": STEPS,
        "versions": {
            "Python": platform.python_version(),
            "TensorFlow": importlib.metadata.version("tensorflow-cpu"),
            **{engine: version(engine) for engine in found if version(engine)},
        },
        "engines": {
            engine: {name: each[name] for name in ("first", "end")}
            for engine, each in found.items()
        },
    }
    flags.output.write_text(json.dumps(measured, indent=2) + "\n")
    for engine, each in measured["engines"].items():
        print(
            "%-14s first update %.1f s, end %.1f s (medians of %d)"
            % (
                engine,
                statistics.median(each["first"]),
                statistics.median(each["end"]),
                len(each["first"]),
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
