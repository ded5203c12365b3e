"""Retries: how many updates are made beyond those scheduled when a worker is killed.

Each run kills worker 1 with SIGKILL once a third of the updates are made; tfrun starts it again.

Kind:          driver
Run:           bash run_retries.sh
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import psutil

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "Measurements"))
import drivers

COMMAND = [
    ROOT / "tfrun" / "bin" / "tfrun",
    "--chief",
    "--ps",
    1,
    "--workers",
    2,
    "--restarts",
    2,
    "--timeout",
    120,
    "--",
    pathlib.Path(__file__).with_name("parameter_server_strategy.py"),
]
VICTIM = {"type": "worker", "index": 1}


def task_of(process):
    """(OUTPUT_DIR, the task) of a process, by its environment."""
    try:
        env = process.environ()
        return env.get("OUTPUT_DIR"), json.loads(env.get("TF_CONFIG", "{}")).get("task")
    except psutil.Error:
        return None, None


def pushes(directory, task=""):
    """The pushes of a task, or of all: [(time, step)], in their order."""
    return sorted(
        (float(row["push_time"]), int(row["global_step"]))
        for row in drivers.rows(directory)
        if row["loss"] and row["bytes"] and row["task"].endswith(task)
    )


def measure(directory, steps, closure_steps, seed):
    """One run with one killed worker: what came of it."""
    directory.mkdir(parents=True)
    flags = ["--steps", steps, "--closure-steps", closure_steps, "--seed", seed]
    with open(directory / "output.txt", "w") as output:
        run = subprocess.Popen(
            [str(word) for word in [*COMMAND, *flags]],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OUTPUT_DIR": str(directory)},
            preexec_fn=drivers.end_with_us,
        )
    while run.poll() is None and len(pushes(directory)) < steps / 3:
        time.sleep(0.2)
    victims = [
        process for process in psutil.process_iter() if task_of(process) == (str(directory), VICTIM)
    ]
    for process in victims:
        process.kill()
    killed = time.time()
    if run.wait() or len(victims) != 1:
        sys.exit(
            "%s\n%d workers were killed" % ((directory / "output.txt").read_text(), len(victims))
        )
    result, made = json.loads((directory / "result.json").read_text()), pushes(directory)
    back = [at for at, _ in pushes(directory, "worker-1") if at > killed + 1]
    return {
        "scheduled": steps,
        "closure_steps": closure_steps,
        "made": result["steps"],
        "more": result["steps"] - steps,
        "without_a_row": result["steps"] - len(made),
        "back_after_seconds": round(back[0] - killed, 1) if back else None,
        "test_accuracy": result["test_accuracy"],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=drivers.positive(int), default=5, help="runs (5)")
    parser.add_argument("--steps", type=drivers.positive(int), default=8000, help="of each (8000)")
    parser.add_argument(
        "--closure-steps",
        type=drivers.positive(int),
        default=10,
        help="updates in one closure (10)",
    )
    flags = parser.parse_args()
    directory = drivers.output_directory("Retries").resolve()
    runs = []
    for seed in range(flags.repeats):
        runs.append(measure(directory / str(seed), flags.steps, flags.closure_steps, seed))
        print(runs[-1], flush=True)
    for name in "more", "without_a_row", "back_after_seconds":
        values = [run[name] for run in runs if run[name] is not None]
        if values:
            print(
                "%s: median %g, from %g to %g, of %d runs"
                % (name, statistics.median(values), min(values), max(values), len(values))
            )
    (directory / "retries.json").write_text(json.dumps(runs, indent=1) + "\n")
    print("%s; the runs, and retries.json, are in %s" % (drivers.setting(), directory))


if __name__ == "__main__":
    main()
