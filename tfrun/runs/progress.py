"""How far a run is, from the ends of the files that its tasks write: quick, also for a long run."""

import contextlib
import math
import pathlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tfrun import formatting
from tfrun.runs import metrics_csv, run_directory

TAIL = 2**17  # bytes of each file of metrics: about 1,500 lines
WINDOW = 5  # seconds over which a rate and a staleness are taken
# What is known of a task that has not pushed yet.
UNKNOWN: dict[str, Any] = dict.fromkeys(["steps_per_second", "staleness", "loss", "update"])
CHECKPOINT_SECONDS = 300  # of training without a checkpoint are worth a line


def mean(values: Iterable[float]) -> float | None:
    """Returns the mean of the finite values, None without any."""
    values = [value for value in values if math.isfinite(value)]
    return sum(values) / len(values) if values else None


def of_task(pushes: Sequence[dict[str, float]], now: float, live: bool) -> dict[str, Any]:
    """Returns steps_per_second, staleness, loss and update of one task; None where unknown.

    pushes: its last ones in order of time. Of a task that runs, rate and staleness are those of the
    last WINDOW seconds before `now`; of another, those of the last WINDOW seconds in which it ran.
    """
    if not pushes:
        return dict(UNKNOWN)
    first, last = pushes[0], pushes[-1]
    end = now if live else last["push_time"]
    recent = [row for row in pushes if row["push_time"] > end - WINDOW]
    # The steps of the first push were made before it.
    seconds = min(WINDOW, end - first["push_time"])
    steps = sum(row.get("local_steps", 1) for row in recent if row is not first)
    return {
        "steps_per_second": formatting.finite(steps / seconds) if seconds > 0 else None,
        "staleness": mean([row.get("staleness", math.nan) for row in recent]),
        "loss": formatting.finite(last["loss"]),
        "update": int(last["global_step"]),
    }


def of_run(directory: str | pathlib.Path, now: float, live: Collection[str] = ()) -> dict[str, Any]:
    """Returns {"update", "steps", "test", "tasks": {task: …}} of the run in a directory.

    live: the tasks that run, by the names of their files, such as worker-0; the last evaluation is
    `test`. A key is None where nothing is known.
    """
    tasks, everything, last_tests = {}, [], []
    for task, path in metrics_csv.files(directory).items():
        try:
            metrics = metrics_csv.read(path, TAIL)
        except OSError:
            continue
        pushes, tests = (finite_rows(metrics, kind) for kind in ("pushes", "tests"))
        tasks[task] = of_task(pushes, now, task in live)
        everything += pushes + tests
        last_tests += tests
    update = max((row["global_step"] for row in everything), default=0)
    last = metrics_csv.last_test(last_tests)
    last = {n: v for n, v in last.items() if n.startswith("test_") and math.isfinite(v)}
    steps = arguments_of(directory).get("steps")
    return {"update": int(update) or None, "steps": steps, "test": last, "tasks": tasks}


def finite_rows(metrics: metrics_csv.Metrics, kind: str) -> list[dict[str, float]]:
    """Returns the rows that have a time and an update: other scripts leave files of these names."""
    rows = metrics.rows(kind)
    return [row for row in rows if math.isfinite(row["push_time"] + row["global_step"])]


def arguments_of(directory: str | pathlib.Path) -> dict[str, Any]:
    """Returns the flags that flags.json says of a run, {} without it."""
    with contextlib.suppress(OSError, ValueError):
        return run_directory.read_flags(directory)["arguments"]
    return {}


def checkpoint_warning(directory: pathlib.Path, began: float, now: float) -> str | None:
    """Returns a line if the last checkpoint of a run that trains is too old, else None.

    began: when this start of the run was. Until the first checkpoint comes, the time counts from
    flags.json on, which the chief writes before it trains.
    """
    paths = directory / "flags.json", directory / "checkpoint"
    last = max((path.stat().st_mtime for path in paths if path.exists()), default=0)
    steps = arguments_of(directory).get("checkpoint_steps")
    if steps is None or last < began or now < last + CHECKPOINT_SECONDS:
        return None
    age = formatting.age_text(now - last)
    return (
        f"no checkpoint came in the last {age}, and a failure would lose as much: "
        f"lower --checkpoint-steps (now {steps})"
    )
