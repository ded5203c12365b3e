"""A run directory made by hand: flags.json and metrics-<task>.csv, as tasks leave them.

Needs the standard library only, so that the small scripts that tests start import it as well.
"""

import json
import pathlib

from tfrun.runs.metrics_csv import PUSH as COLUMNS

TESTS = ["test_accuracy", "test_loss"]  # where a test names no others


def row(tests=TESTS, **values):
    """Returns a line with these values; the other columns are empty."""
    names = [*COLUMNS, *tests]
    assert set(values) <= set(names), f"{set(values) - set(names)} is no column"
    return ",".join(str(values.get(name, "")) for name in names)


def push(time, step, staleness=0, examples=32, tests=TESTS, **more):
    """Returns the line of an update that arrived at `time`; `more` are other columns."""
    values = {"push_time": time, "pull_time": time - 0.25, "global_step": step, "local_steps": 1}
    values |= {"examples": examples, "loss": 0.5, "staleness": staleness, "bytes": 800}
    return row(tests, **{**values, "wait_seconds": 0.001, **more})


def test(time, step, *means, began="", tests=TESTS):
    """Returns the line of a test that ended at `time`, with its means in the order of `tests`."""
    times = {"push_time": time, "pull_time": began, "global_step": step}
    return row(tests, **times, **dict(zip(tests, means, strict=True)))


test.__test__ = False  # pytest would take it for one of its own


def metrics(folder, task, *lines, tests=TESTS):
    """Writes the metrics of a task, such as "worker-0"."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    header = ",".join([*COLUMNS, *tests])
    (folder / f"metrics-{task}.csv").write_text("\n".join([header, *lines]) + "\n")


def flags(folder, tasks=("worker-0", "worker-1"), steps=6, **more):
    """Writes flags.json, as a chief does; `more` are other facts."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "example": "HogWild",
        "tasks": list(tasks),
        "ps": 1,
        "metrics": {"test_loss": "min", "test_accuracy": "max"},
        "arguments": {"steps": steps, "dataset": "digits", "batch_size": 32},
        "versions": {"python": "3.11.2", "tensorflow": "2.21.0"},
    }
    (folder / "flags.json").write_text(json.dumps({**facts, **more}))
