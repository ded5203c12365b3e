"""Retries: how many updates are made beyond those scheduled when a worker is killed.

Each run kills worker 1 with SIGKILL once a third of the updates are made; tfrun starts it again.

Kind:          driver
Run:           bash run_retries.sh
"""

import json
import os
import pathlib
import subprocess
import sys
import time

from lab.measure import arguments, example_runs, text_tables
from lab.pages import result_tables

ROOT = pathlib.Path(__file__).resolve().parents[1]

SCRIPT = pathlib.Path(__file__).with_name("parameter_server_strategy.py")
FLAGS = "--chief --ps 1 --workers 2 --restarts 2 --timeout 120 --".split()


def measure(directory, steps, closure_steps, seed):
    """One run with one killed worker: what came of it."""
    directory.mkdir(parents=True)
    flags = ["--steps", steps, "--closure-steps", closure_steps, "--seed", seed]
    with open(directory / "output.txt", "w") as output:
        run = subprocess.Popen(
            [ROOT / "tfrun" / "bin" / "tfrun", *FLAGS, SCRIPT, *map(str, flags)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OUTPUT_DIR": str(directory)},
            preexec_fn=example_runs.end_with_us,
        )
    while run.poll() is None and len(example_runs.pushes(directory)) < steps / 3:
        time.sleep(0.2)
    victim = example_runs.tasks(directory).get(("worker", 1))
    if victim:
        victim.kill()
    killed = time.time()
    if run.wait() or not victim:
        victims = "worker 1 was killed" if victim else "there was no worker 1 to kill"
        sys.exit(f"{(directory / 'output.txt').read_text()}\n{victims}")
    result, made = (
        json.loads((directory / "result.json").read_text()),
        example_runs.pushes(directory),
    )
    times = [row["push_time"] for row in made if row["task"] == "worker-1"]
    back = [at for at in times if at > killed + 1]
    return {
        "scheduled": steps,
        "closure_steps": closure_steps,
        "made": result["steps"],
        "more": result["steps"] - steps,
        "without_a_row": result["steps"] - len(made),
        "back_after_seconds": round(back[0] - killed, 1) if back else None,
        "test_accuracy": result["test_accuracy"],
    }


def table(runs):
    """Returns the table of the page."""
    reported = {
        "more": ("updates made, less those scheduled", "%d", 1),
        "without_a_row": ("updates without a row in the metrics", "%d", 1),
        "test_accuracy": ("test accuracy, %", "%.1f", 100),
    }
    back = sorted(run["back_after_seconds"] for run in runs if run["back_after_seconds"])
    return result_tables.table(
        [f"{len(runs)} runs of {runs[0]['scheduled']} updates", "median", "range"],
        result_tables.medians(runs, reported),
        f"In {len(back)} of the runs the killed worker took part again before the end"
        + (f", {', '.join(map('{:.1f}'.format, back))} s after the kill." if back else "."),
    )


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--repeats", 5, "runs")
    parser.number("--steps", 8000, "of each")
    parser.number("--closure-steps", 10, "updates in one closure")
    flags = parser.parse_args()
    directory = example_runs.output_directory("Retries").resolve()
    runs = []
    for seed in range(flags.repeats):
        runs.append(measure(directory / str(seed), flags.steps, flags.closure_steps, seed))
        print(runs[-1], flush=True)
    (directory / "retries.json").write_text(json.dumps(runs, indent=1) + "\n")
    result_tables.leave(directory / "retries.txt", table(runs))
    print(f"{text_tables.setting()}; the runs, and retries.json, are in {directory}")


if __name__ == "__main__":
    main()
