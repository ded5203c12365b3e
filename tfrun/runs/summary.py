"""result.json: what came out of a run, computed from the facts that its tasks have left.

The run directory holds flags.json, by the chief, and metrics-<task>.csv, by each task that trains:
a row for each push (`loss` is filled) and for each evaluation (`test_loss` is filled). Nothing
here needs TensorFlow.
"""

import collections
import json
import os

import numpy as np

from tfrun.runs import metrics_csv, run_directory

# columns: {name: float array}, NaN where a row says nothing; pushes and tests: which rows are
# which, arrays of booleans; restarts: how often the task was started again.
Metrics = collections.namedtuple("Metrics", "columns pushes tests restarts")


class Unfinished(ValueError):
    """No evaluation has followed the last update."""


def read(*paths):
    """The Metrics of one task, from its files, in the order of time; None where it has no row.

    Several files are those of one task that has run on several hosts. A file whose rows are all
    in another one is a copy of it.
    """
    header, found, restarts, parts = {}, {}, 0, 0
    for path in paths:
        names, more, new_restarts = metrics_csv.read(path)
        header.update(dict.fromkeys(names))
        if more.keys() - found.keys():
            restarts, parts = restarts + new_restarts, parts + 1
        found.update(more)
    if "push_time" not in header:
        return None
    ordered = sorted(found.values(), key=lambda row: row["push_time"])
    columns = {
        name: np.array([row.get(name, float("nan")) for row in ordered], float) for name in header
    }
    kinds = (np.array([row[kind] for row in ordered], bool) for kind in ("push", "test"))
    return Metrics(columns, *kinds, restarts + max(0, parts - 1))


def read_all(directories):
    """{task: its Metrics} of all tasks that have any in these directories, in order of names."""
    paths = collections.defaultdict(dict)
    for directory in directories:
        for path in sorted(directory.glob("metrics-*.csv")):
            paths[path.stem.removeprefix("metrics-")][path.resolve()] = None
    found = {task: read(*paths[task]) for task in sorted(paths)}
    return {task: metrics for task, metrics in found.items() if metrics}


def read_flags(directories):
    """The content of flags.json. Raises ValueError where there is none."""
    places = ", ".join(str(directory) for directory in directories)
    for directory in directories:
        try:
            flags = json.loads((directory / "flags.json").read_text())
            if {"example", "tasks", "ps", "arguments", "versions"} <= flags.keys():
                return flags
        except FileNotFoundError:
            continue
        except (AttributeError, ValueError):
            pass
        raise ValueError("%s is not what a chief writes" % (directory / "flags.json"))
    raise ValueError("there is no flags.json in %s: no chief has trained there" % places)


def finite(value):
    """A number for JSON, which has no NaN: None where there is none."""
    return float(value) if np.isfinite(value) else None


def last_evaluation(metrics):
    """Returns {"global_step": …, "test_…": …} of the evaluation after the most updates, {} if none.

    Among those the last in time: a run that was started again may repeat updates.
    """
    tests = [
        {name: values[row] for name, values in task.columns.items()}
        for task in metrics
        for row in np.flatnonzero(task.tests)
    ]
    last = max(tests, key=lambda test: (test["global_step"], test["push_time"]), default={})
    return {name: last[name] for name in last if name == "global_step" or name.startswith("test_")}


def best_values(directions, metrics):
    """{"test_…": its best value in all evaluations}, of those whose "max" or "min" is known."""
    best = {}
    for name, direction in directions.items():
        seen = [each.columns[name][each.tests] for each in metrics if name in each.columns]
        seen = np.concatenate([np.empty(0), *seen])
        seen = seen[np.isfinite(seen)]
        if seen.size:
            best[name] = float(seen.max() if direction == "max" else seen.min())
    return best


def summarize(directories):
    """The content of result.json for the run in `directories`, pathlib.Paths: one for each host.

    Raises Unfinished where the run is not at its end, ValueError where there is no run.
    """
    flags = read_flags(directories)
    everything, tasks = read_all(directories), flags["tasks"]
    pushes = {  # of each task that has metrics
        task: {name: values[metrics.pushes] for name, values in metrics.columns.items()}
        for task, metrics in everything.items()
        if task in tasks
    }
    made = max([step for p in pushes.values() for step in p["global_step"]], default=0)
    steps = flags["arguments"].get("steps", int(made))
    stopped = [run_directory.stopped_at(directory) or steps for directory in directories]
    steps, early = min([steps, *stopped]), min([steps, *stopped]) < steps
    test = last_evaluation(everything.values())
    if not test or not test["global_step"] >= steps:
        reached = f"no evaluation, {made:.0f}"
        if test:
            reached = f"the last evaluation is after {test['global_step']:.0f}"
        run = directories[0]
        raise Unfinished(f"the run in {run} is not finished: {reached} of {steps} updates")
    times = [p["push_time"] for p in pushes.values() if p["push_time"].size]
    begun = max([each.min() for each in times], default=0)  # from here on all take part
    seconds = max([each.max() for each in times], default=0) - begun
    # The pushes of the time that the rate divides by, and no others.
    examples = sum(np.nansum(p["examples"][p["push_time"] > begun]) for p in pushes.values())
    staleness = np.concatenate([np.empty(0), *(p["staleness"] for p in pushes.values())])
    staleness = staleness[~np.isnan(staleness)]
    missing = [task for task in tasks if task not in pushes]

    def late(p):
        """The number of pushes with any staleness; None where it was not measured."""
        measured = p["staleness"][~np.isnan(p["staleness"])]
        return int((measured > 0).sum()) if measured.size or not p["staleness"].size else None

    def each_task(count):
        """A count for each task, None for one that has left no metrics."""
        return [count(pushes[task]) if task in pushes else None for task in tasks]

    return {
        "example": flags["example"],
        "dataset": flags["arguments"].get("dataset"),
        "steps": int(test["global_step"]),
        "ps": flags["ps"],
        "workers": len(tasks),
        **{name: finite(value) for name, value in test.items() if name.startswith("test_")},
        "metrics": flags.get("metrics", {}),
        "best": best_values(flags.get("metrics", {}), everything.values()),
        "examples_per_second": finite(examples / seconds) if seconds else None,
        "wall_seconds": finite(seconds),
        "staleness_mean": finite(staleness.mean()) if staleness.size else None,
        "pushes_per_worker": each_task(lambda p: p["push_time"].size),
        "late_per_worker": each_task(late),
        "restarts": sum(metrics.restarts for metrics in everything.values()),
        **({"missing": missing} if missing else {}),
        **({"stopped_early": True} if early else {}),
        "arguments": flags["arguments"],
        "versions": flags["versions"],
    }


def write(directories):
    """Writes result.json into the first directory, whole or not at all; returns its content."""
    result = summarize(directories)
    partial = directories[0] / (".result-%d" % os.getpid())
    try:
        partial.write_text(json.dumps(result, indent=2) + "\n")
        partial.replace(directories[0] / "result.json")
    finally:
        partial.unlink(missing_ok=True)
    return result


def missing_tasks(result):
    """One line about the tasks that have left no metrics; None where all have."""
    if "missing" in result:
        names = ", ".join(result["missing"])
        return "there are no metrics of %s: is the folder of its host among those given?" % names
    return None
