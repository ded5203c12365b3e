"""How long each engine takes to begin, and to end: HogWild by its run.sh, all by turns.

    python start_up.py ../HogWild/run.sh Spark-Cluster/run.sh Slurm/run.sh SSH/run.sh Ray/run.sh

Writes start_up.json: for each engine the seconds from the command to the first update, and from the
last update to the end of the command. One that is not here, or fails, is left out, and named. The
table of the page is start_up.txt, beside it.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from lab.measure import arguments, example_runs
from lab.pages import result_tables

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
                code = f"none after {seconds:.0f} s"
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
        pushes = [row["push_time"] for row in example_runs.pushes(output)]
        if code or not pushes:
            last = (log.read_text(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
            raise RuntimeError(f"exit code {code}, {len(pushes)} updates: {last}")
    return pushes[0] - began, ended - pushes[-1]


def table(record):
    """Returns the table of the page."""
    rows = []
    for engine, times in record["engines"].items():
        name = engine if engine == "tfrun" else f"[{engine}]({engine}/)"
        rows.append(
            (name, result_tables.spread(times["first"]), result_tables.spread(times["end"]))
        )
    n = len(times["first"])
    versions = ", ".join(
        version if name in record["engines"] else f"{name} {version}"
        for name, version in record["versions"].items()
    )
    return result_tables.table(
        ["engine", "to the first update, s", "from the last update to the end, s"],
        rows,
        f"{f'Median (and range) of {n} runs' if n > 1 else 'One run'} on {record['date']}: HogWild "
        f"with {record['steps']} updates, 1 ps and 2 workers; {record['cores']} cores, with a load "
        f"of {record['load']:.0f}. {versions}.",
    )


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--repeats", 5, "of each engine")
    parser.number("--seconds", 300, "at most, for a run")
    default, words = HERE / "start_up.json", "the file with the figures (start_up.json)"
    parser.add_argument("--output", type=pathlib.Path, default=default, help=words)
    words = "an engine's; tfrun's is ../HogWild/run.sh"
    parser.add_argument("launchers", nargs="+", type=pathlib.Path, metavar="run.sh", help=words)
    flags = parser.parse_args()
    runs, launchers, left_out = {}, {}, {}
    for launcher in flags.launchers:
        folder = launcher.resolve().parent.name
        engine = "tfrun" if folder == "HogWild" else folder
        if launcher.is_file():
            launchers[engine], runs[engine] = launcher.resolve(), {"first": [], "end": []}
        else:
            left_out[engine] = f"there is no {launcher}"
    for turn in range(WARM_UP + flags.repeats):
        for engine in list(runs):
            try:
                first, end = run(launchers[engine], STEPS, flags.seconds)
            except RuntimeError as error:
                left_out[engine] = str(error)
                del runs[engine]
                continue
            if turn >= WARM_UP:
                runs[engine]["first"].append(round(first, 1))
                runs[engine]["end"].append(round(end, 1))
    for engine, why in left_out.items():
        print(f"left out: {engine}: {why}", file=sys.stderr)
    if not runs:
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
            **{engine: version(engine) for engine in runs if version(engine)},
        },
        "engines": runs,
    }
    flags.output.write_text(json.dumps(measured, indent=2) + "\n")
    result_tables.leave(flags.output.with_suffix(".txt"), table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
