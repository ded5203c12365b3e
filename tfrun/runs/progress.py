"""How far a run is, from the ends of the files that its tasks write: quick, also for a long run."""

import math
import pathlib

from tfrun import formatting
from tfrun.runs import metrics_csv, run_directory

TAIL = 2**17  # bytes of each file of metrics: about 1,500 lines
WINDOW = 5  # seconds over which a rate and a staleness are taken
CHECKPOINT_SECONDS = 300  # of training without a checkpoint are worth a line


def finite(value):
    """A number for JSON, which has no NaN: None where there is none."""
    return value if value is not None and math.isfinite(value) else None


def mean(values):
    """Their mean without NaN, None where there is none."""
    values = [value for value in values if math.isfinite(value)]
    return sum(values) / len(values) if values else None


def of_task(found, now, live):
    """steps_per_second, staleness, loss and update of one task; None where unknown.

    found: its last rows in order of time. Of a task that runs, rate and staleness are those of the
    last WINDOW seconds before `now`; of another, those of the last WINDOW seconds in which it ran.
    """
    pushes = [row for row in found if row["push"]]
    if not pushes:
        return dict.fromkeys(["steps_per_second", "staleness", "loss", "update"])
    end = now if live else pushes[-1]["push_time"]
    recent = [row for row in pushes if row["push_time"] > end - WINDOW]
    # The steps of the first push were made before it.
    seconds = min(WINDOW, end - pushes[0]["push_time"])
    steps = sum(row.get("local_steps", 1) for row in recent if row is not pushes[0])
    return {
        "steps_per_second": finite(steps / seconds) if seconds > 0 else None,
        "staleness": mean([row.get("staleness", float("nan")) for row in recent]),
        "loss": finite(pushes[-1]["loss"]),
        "update": int(pushes[-1]["global_step"]),
    }


def of_run(directory, now, live=()):
    """{"update", "steps", "test", "tasks": {task: …}} of the run in a directory.

    live: the tasks that run, by the names of their files, such as worker-0; the last evaluation is
    `test`. A key is None where nothing is known.
    """
    directory = pathlib.Path(directory)
    tasks, tests, update = {}, [], 0
    for task, path in metrics_csv.files(directory).items():
        try:
            found = [*metrics_csv.read(path, TAIL)[1].values()]
        except OSError:
            continue
        # Other scripts may leave files of these names.
        found = [row for row in found if math.isfinite(row["push_time"] + row["global_step"])]
        tasks[task] = of_task(found, now, task in live)
        tests += [row for row in found if row["test"]]
        update = max([update, *(row["global_step"] for row in found)])
    result = run_directory.result(directory) or {}
    last = max(tests, key=lambda row: (row["global_step"], row["push_time"]), default={})
    # A run that was begun again, with more --steps, has the result of before.
    steps = result.get("steps")
    whole = not live and isinstance(steps, (int, float)) and steps >= update
    seen = result if whole else last
    return {
        "update": int(update) or None,
        "steps": arguments_of(directory).get("steps"),
        "test": {
            name: value
            for name, value in seen.items()
            if name.startswith("test_") and isinstance(value, (int, float)) and math.isfinite(value)
        },
        "tasks": tasks,
    }


def arguments_of(directory):
    """Returns the flags that flags.json says of a run, {} without it."""
    try:
        return run_directory.read_flags(directory)["arguments"]
    except (OSError, ValueError):
        return {}


def checkpoint_warning(directory, began, now):
    """Returns a line if the last checkpoint of a run that trains is too old, else None.

    began: when this start of the run was. Until the first checkpoint comes, the time counts from
    flags.json on, which the chief writes before it trains.
    """
    times = [
        path.stat().st_mtime
        for path in (directory / "flags.json", directory / "checkpoint")
        if path.exists()
    ]
    last = max(times, default=0)
    steps = arguments_of(directory).get("checkpoint_steps")
    if steps is None or last < began or now < last + CHECKPOINT_SECONDS:
        return None
    return (
        "no checkpoint came in the last %s, and a failure would lose as much: lower "
        "--checkpoint-steps (now %d)" % (formatting.age(now - last), steps)
    )
