"""Kills of a run on Spark: five processes in turn, and how long each time until it trains again.

    python kills.py                  on the cluster that SPARK_MASTER names
    python kills.py --output FILE    adds the figures to a list in that file, its table beside it

HogWild runs as a ps, a chief and a worker. One after the other get SIGKILL: the worker, the ps, the
chief, Spark's Python worker of the chief, Spark's executor of the chief.

Run: bash run_kills.sh
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import psutil
from lab.measure import arguments, example_runs
from lab.pages import result_tables
from tfrun.runs import waiting

HERE = pathlib.Path(__file__).resolve().parent

VICTIMS = ("worker", "ps", "chief", "python worker", "executor")
CHECKPOINT_STEPS = 100
WAIT = 200  # seconds at most until it trains, or trains again


def updates(directory):
    """[(time of the push in seconds, number of the update)] of all tasks, as far as written."""
    return [(row["push_time"], int(row["global_step"])) for row in example_runs.pushes(directory)]


def find(running, victim):
    """The process to kill."""
    if (victim, 0) in running:
        return running[victim, 0]
    python = running["chief", 0].parent()
    if victim == "python worker":
        return python
    return next(p for p in python.parents() if "ExecutorBackend" in " ".join(p.cmdline()))


def wait_for(condition, run, what):
    """Waits until the condition is true. Raises RuntimeError where it takes too long."""
    waiting.wait_for(lambda: run.poll() is not None or condition(), WAIT, 0.05)
    if run.poll() is not None or not condition():
        raise RuntimeError(f"it did not come to this: {what}")


def table(runs):
    """Returns the table of the page."""
    loads = [run["load"] for run in runs]
    rows = []
    for victim in runs[0]["kills"]:
        kills = [run["kills"][victim] for run in runs]
        names = "tasks_after", "update_after"
        rows.append(
            (victim, *(result_tables.spread([kill[name] for kill in kills]) for name in names))
        )
    return result_tables.table(
        ["killed", "new tasks after, s", "the next update after, s"],
        rows,
        f"Median (and range) of {len(runs)} runs on {runs[-1]['date']}; {runs[0]['cores']} cores, "
        f"with a load of {min(loads):.0f} to {max(loads):.0f}.",
    )


def main():
    parser = arguments.Parser(__doc__)
    parser.add_argument("--output", type=pathlib.Path, help="a file with the figures of all runs")
    parser.number("--steps", 4000, "updates of the run")
    flags = parser.parse_args()
    given = os.environ.get("OUTPUT_DIR") or tempfile.mkdtemp(prefix="kills-")
    directory, kills, since = pathlib.Path(given).resolve(), {}, 0
    command = [sys.executable, HERE / "spark_launch.py", "--chief", "--workers", "1"]
    command += ["--attempts", "9", HERE / "../../HogWild/hogwild.py", "--steps", str(flags.steps)]
    command += ["--checkpoint-steps", str(CHECKPOINT_STEPS)]
    run = subprocess.Popen(list(map(str, command)), env={**os.environ, "OUTPUT_DIR": given})
    try:
        for victim in VICTIMS:
            enough = len(updates(directory)) + 2 * CHECKPOINT_STEPS
            wait_for(lambda enough=enough: len(updates(directory)) > enough, run, "it trains")
            old = example_runs.tasks(directory)
            killed = time.time()
            find(old, victim).kill()

            def all_new(old=old):
                new = example_runs.tasks(directory)
                return len(new) == len(old) and not set(old.values()) & set(new.values())

            wait_for(all_new, run, f"new tasks after the kill of the {victim}")
            began = time.time()  # the old ones are dead, and the new ones import TensorFlow
            wait_for(lambda began=began: updates(directory)[-1][0] > began, run, "training again")
            history = updates(directory)
            before = max(step for when, step in history if since < when < began)
            again, after = next(update for update in history if update[0] > began)
            since = began
            kills[victim] = {
                "tasks_after": round(began - killed, 1),
                "update_after": round(again - killed, 1),
                "last_update": before,
                "first_update": after,
            }
            print(f"[kills] {victim}: {kills[victim]}", flush=True)
        code = run.wait(WAIT)
    except (RuntimeError, StopIteration, psutil.Error, subprocess.TimeoutExpired) as error:
        print("kills.py: %s" % (error or "there is no executor to kill"), file=sys.stderr)
        return 1
    finally:
        run.terminate()
        run.wait()
        if not os.environ.get("OUTPUT_DIR"):
            shutil.rmtree(given, ignore_errors=True)
    if code:
        return code
    if flags.output:
        runs = json.loads(flags.output.read_text()) if flags.output.exists() else []
        setting = {
            "date": time.strftime("%Y-%m-%d"),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[1], 1),
        }
        runs.append({**setting, "kills": kills})
        flags.output.write_text(json.dumps(runs, indent=1) + "\n")
        result_tables.leave(flags.output.with_suffix(".txt"), table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
