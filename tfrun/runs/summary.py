"""result.json: what came out of a run, computed from the facts that its tasks have left.

Nothing here needs TensorFlow.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from tfrun.formatting import finite
from tfrun.runs import metrics_csv, run_directory, same_data
from tfrun.runs.data import RunData, TaskMetrics


def best_values(directions: Mapping[str, str], tasks: Collection[TaskMetrics]) -> dict[str, float]:
    """Returns {"test_…": its best value}. Raises ValueError unless each is by "max" or "min"."""
    best = {}
    for name, direction in directions.items():
        if direction not in ("max", "min"):
            raise ValueError(f'the better {name} is {direction!r}, neither "max" nor "min"')
        values = finite_values(metrics.tests[name] for metrics in tasks if name in metrics.tests)
        if values.size:
            best[name] = float(values.max() if direction == "max" else values.min())
    return best


def finite_values(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the finite values of all these arrays as one."""
    values = np.concatenate([np.empty(0), *arrays])
    return values[np.isfinite(values)]


def late_pushes(pushes: Mapping[str, np.ndarray]) -> int | None:
    """Returns the number of pushes with any staleness; None where it was not measured."""
    staleness = pushes["staleness"]
    return None if staleness.size and np.isnan(staleness).all() else int((staleness > 0).sum())


def staleness_by_rates(spans: Collection[np.ndarray], seconds: float) -> float:
    """Returns the mean staleness that workers' rates lead to.

    While a worker is between its pull and its push, the others push at their rates. spans: for each
    worker, an array of its seconds from pull to push, within so many seconds.
    """
    total = sum(span.size for span in spans)
    expected = sum(np.nansum(span) * (total - span.size) for span in spans)
    return expected / (total * seconds or 1)


def summarize(run: RunData) -> dict[str, Any]:
    """Returns the content of result.json.

    Raises ValueError where there is no run, or no evaluation has followed its last update.
    """
    flags = run.flags or run_directory.read_flags(*run.directories)
    run = run.without_pauses()
    tasks, everything = flags["tasks"], run.tasks.values()
    pushes = {task: run.tasks[task].pushes for task in tasks if task in run.tasks}
    came = [t for t, m in run.tasks.items() if t not in tasks and m.pushes["push_time"].size]
    begins = [p["push_time"].min() for p in pushes.values() if p["push_time"].size]
    # Of workers that have joined, or that were there before it went on with fewer.
    pushes |= {task: run.tasks[task].pushes for task in came}
    updates = max(
        [p["global_step"].max() for p in pushes.values() if p["push_time"].size], default=0
    )
    asked_for = flags["arguments"].get("steps", int(updates))
    steps = min(asked_for, *(run_directory.stopped_at(d) or asked_for for d in run.directories))
    test = metrics_csv.last_test(run.rows("tests"))
    if not test or not test["global_step"] >= steps:
        tested = f"no evaluation, {updates:.0f}"
        if test:
            tested = f"the last evaluation is after {test['global_step']:.0f}"
        raise ValueError(f"the run in {run.directory} is not finished: {tested} of {steps} updates")
    times = [p["push_time"] for p in pushes.values() if p["push_time"].size]
    begun = max(begins, default=0)  # from here on all take part that the run began with
    seconds = max([push_time.max() for push_time in times], default=0) - begun
    # The pushes of the time that the rate divides by, and no others.
    examples = sum(np.nansum(p["examples"][p["push_time"] > begun]) for p in pushes.values())
    staleness = finite_values(p["staleness"] for p in pushes.values())
    # What each worker takes from pull to push.
    spans = [(p["push_time"] - p["pull_time"])[p["push_time"] > begun] for p in pushes.values()]
    by_rates = staleness_by_rates(spans, seconds)
    missing = [task for task in tasks if task not in pushes]
    other = same_data.DataLines(*run.directories).difference()
    each_task = [pushes.get(task) for task in [*tasks, *came]]
    return {
        "example": flags["example"],
        "dataset": flags["arguments"].get("dataset"),
        "steps": int(test["global_step"]),
        "ps": flags["ps"],
        "workers": len(tasks),
        **{name: finite(value) for name, value in test.items() if name.startswith("test_")},
        "metrics": flags.get("metrics", {}),
        "best": best_values(flags.get("metrics", {}), everything),
        "examples_per_second": finite(examples / seconds) if seconds else None,
        "wall_seconds": finite(seconds),
        "staleness_mean": finite(staleness.mean()) if staleness.size else None,
        "staleness_by_rates": finite(by_rates) if staleness.any() and flags["ps"] else None,
        "pushes_per_worker": [p and p["push_time"].size for p in each_task],
        "late_per_worker": [p and late_pushes(p) for p in each_task],
        "restarts": sum(max(0, len(metrics.spans) - 1) for metrics in everything),
        **({"also_pushed": came} if came else {}),
        **({"missing": missing} if missing else {}),
        **({"other_data": other} if other else {}),
        **({"stopped_early": True} if steps < asked_for else {}),
        "arguments": flags["arguments"],
        "versions": flags["versions"],
    }


def write(run: RunData) -> dict[str, Any]:
    """Writes result.json into the first directory, whole or not at all; returns its content."""
    run.result = summarize(run)
    text = json.dumps(run.result, indent=2) + "\n"
    run_directory.write_whole(run.directory / "result.json", text)
    return run.result


def missing_tasks(result: Mapping[str, Any]) -> str | None:
    """Returns a line about the tasks that have left no metrics; None where all have."""
    if "missing" in result:
        names = ", ".join(result["missing"])
        return f"there are no metrics of {names}: is the folder of its host among those given?"
    return None
