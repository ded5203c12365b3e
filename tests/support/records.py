"""The records that tfrun keeps of its runs, made by hand, and a run with three pushes."""

import json
import os

import run_files
from tfrun.runs import registry
from tfrun.runs.data import RunData


def record(name, state="done", started=1000.0, ended=1090.0, **changes):
    """Writes the record of a run in a folder of that name, which it makes."""
    directory = os.path.realpath(name)
    os.makedirs(directory, exist_ok=True)
    running = state in ("running", "lost")
    content = dict.fromkeys(registry.FACTS) | {"run": name, "example": "E", "directory": directory}
    content |= {"state": "running" if running else state, "exit_code": None if running else 0}
    content |= {"started": started, "ended": None if running else ended, "tasks": []}
    content["tfrun"] = registry.identity(os.getpid()) if state == "running" else None
    path = registry.folder() / f"{name.replace('/', '--')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    return registry.read(path)


def task(folder, name="worker 0", **changes):
    """Returns what a record says of a task that runs."""
    facts = {"task": name, "role": name.split()[0], "state": "running", "process": None}
    facts |= {"restarts": 0, "exit_code": None, "cores": None, "gpus": "-1", "memory_limit": None}
    return {**facts, "log": os.path.realpath(f"{folder}/{name.replace(' ', '-')}.log"), **changes}


def three_pushes():
    """A run in r: worker 0 pushes three times, worker 1 once; each computes 0.1 s, pushes 0.05."""

    def push(time, step, late):
        return run_files.push(time, step, late, pull_time=time - 0.15, wait_seconds=0.05)

    run_files.flags("r", steps=4)
    tests = (
        run_files.test(12.25, 2, 0.75, 1.5, began=12.125),
        run_files.test(14, 4, 1.0, 0.5, began=13.5),
    )
    run_files.metrics(
        "r", "worker-0", push(11, 1, 0), push(12, 2, 1), tests[0], push(13, 4, 3), tests[1]
    )
    run_files.metrics("r", "worker-1", push(12.5, 3, 1))
    return RunData.read("r")
