"""What Compare keeps of what it has measured: results.json, which is small enough to commit.

measured.json has every number of every run; a table, a picture or a verdict needs a few of them. A
row of a task is reported when all its runs are there, or when its search has found no setting.
"""

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import search
from lab import digests, examples
from lab.measure import idle
from search import Evaluations, Target

Cases = dict[str, Any]  # {"task: row": what measured.json has of it}
Results = dict[str, Any]  # {"task: row": what results.json has of it}

KEPT_NUMBERS = (
    "updates",
    "examples",
    "waiting",
    "staleness_mean",
    "gradient_seconds",
    "cv",
    "others",
)
SHARED_NUMBERS = ("ps", "workers", "batch_size")  # are kept once for all runs of a row
LOSSES = (1.5, 1, 0.5, 0.3, 0.2, 0.15, 0.1, 0.05)  # whose seconds are kept beside the target's
DIGITS = 4  # of a number that is kept
LOOKS, LOOKS_OF_A_MEAN = 30, 3  # looks at a run; of which the mean counts


def task_and_row(name: str) -> tuple[str, str]:
    """Returns the task and the row of a case, "task: row"."""
    task, row = name.split(": ", 1)
    return task, row


def short(number: Any) -> Any:
    """Returns a number with few digits."""
    return float(f"{number:.{DIGITS}g}") if isinstance(number, float) else number


def has_failed(run: dict[str, Any]) -> bool:
    """Returns whether a run counts as a failure: it broke, diverged, or was never tested."""
    return run["ended"] in (search.FAILED, search.DIVERGED) or run.get("test_loss") is None


def looks(rows: Evaluations, what: str, length: float | None) -> list[tuple[float, float, int]]:
    """Returns [(seconds, mean of LOOKS_OF_A_MEAN looks, number of the last test)] of a run.

    Each run is looked at LOOKS times in its `length` seconds, so rows that test more often find a
    target no sooner; and one lucky test is no arrival. A look sees the last test, if there is one.
    length: None: until the last test.
    """
    length = length or rows["seconds"][-1]
    moments = length * (np.arange(LOOKS) + 1) / LOOKS
    rows_before = np.asarray(np.searchsorted(rows["seconds"], moments + 1e-9, "right")) - 1
    values = np.array([np.nan, *rows[what]], float)[rows_before + 1]
    means = np.convolve(values, np.ones(LOOKS_OF_A_MEAN) / LOOKS_OF_A_MEAN, "valid")
    enough = slice(LOOKS_OF_A_MEAN - 1, None)
    candidates = zip(moments[enough].tolist(), means.tolist(), rows_before[enough].tolist())
    return [point for point in candidates if np.isfinite(point[1])]


def arrival(
    rows: Evaluations, target: Target, length: float | None
) -> tuple[float, int] | tuple[None, None]:
    """Returns (seconds, number of the test) of the first look at a target, or None twice."""
    what, number = target
    if number is None:
        return None, None
    for at, mean, test in looks(rows, what, length):
        reached = mean >= number - 1e-9 if what == "accuracy" else mean <= number + 1e-9
        if reached:
            return round(at, 3), test
    return None, None


def first_look(rows: Evaluations, length: float | None) -> float | None:
    """Returns the seconds of the first look that sees enough tests, or None."""
    return next((round(at, 3) for at, _, _ in looks(rows, "loss", length)), None)


def seconds_to(rows: Evaluations, length: float | None) -> list[float]:
    """Returns the seconds of the first looks at LOSSES, as far as a run came."""
    seconds = [arrival(rows, ("loss", loss), length)[0] for loss in LOSSES]
    return [at for at in seconds if at is not None]


def median_curve(runs: list[dict[str, Any]]) -> list[list[Any]]:
    """Returns [seconds, losses]: medians of the runs at the tests that all of them have.

    The loss of a run that failed counts as infinity; a median of infinity is None.
    """
    whole = [run["evaluations"] for run in runs if not has_failed(run)]
    number = min((len(rows["seconds"]) for rows in whole), default=0)
    failed = [math.inf] * (len(runs) - len(whole))
    losses = [
        statistics.median([*(rows["loss"][i] for rows in whole), *failed]) for i in range(number)
    ]
    seconds = [statistics.median(rows["seconds"][i] for rows in whole) for i in range(number)]
    return [seconds, [None if loss == math.inf else loss for loss in losses]]


def kept_numbers(
    run: dict[str, Any], target: Target, length: float | None = None
) -> dict[str, Any]:
    """Returns what is kept of a run that is reported. target: as in one_run.End.

    length: as in looks(). What was reached at the first look may have been reached before. A
    failure has reached nothing.
    """
    if has_failed(run):
        why = run.get("failed", run["ended"]).strip().splitlines()[-1][:200]
        return {"seed": run["seed"], "failed": why, "others": run.get("others")}
    rows = run["evaluations"]
    at, test = arrival(rows, target, length)
    return {
        "seed": run["seed"],
        "reached": at,
        "first_look": first_look(rows, length),
        "seconds_to": seconds_to(rows, length),
        "loss": run["test_loss"],
        "accuracy": run["test_accuracy"],
        "training": run["training_loss"],
        "examples_to": None if test is None else rows["examples"][test],
        "megabytes_to": None if test is None else rows["megabytes"][test],
        "megabytes": short(run["bytes"] / 1e6),
        **{name: short(run[name]) for name in KEPT_NUMBERS if name in run},
        "tests": len(rows["seconds"]),
    }


def tries_of(case: dict[str, Any]) -> list[list[Any]]:
    """Returns [setting, seed, seconds to the target, loss, why it ended] of each try."""
    return [
        [tried["words"], tried["seed"], tried["reached"], short(tried["loss"]), tried["ended"]]
        for tried in case["tries"]
    ]


def least_mean(run: dict[str, Any], length: float | None) -> float:
    """Returns the least mean of looks at the loss of a run; infinity of one that failed."""
    if has_failed(run):
        return math.inf
    means = [mean for _, mean, _ in looks(run["evaluations"], "loss", length)]
    return min(means, default=math.inf)


def loss_to_reach(cases: Cases, task: str, alone: Iterable[str], seeds: int) -> float | None:
    """Returns the loss that one process reaches: the median of its runs' least means of looks.

    Of the better of the rows `alone`; None where none has all its runs.
    """
    rows = [cases.get(f"{task}: {name}", {"runs": []}) for name in alone]
    medians = [
        statistics.median(least_mean(run, case.get("seconds")) for run in case["runs"])
        for case in rows
        if len(case["runs"]) >= seeds
    ]
    best = min(medians, default=math.inf)
    return None if best == math.inf else best


def results_of(
    cases: Cases,
    seeds: int,
    target_of: Callable[[str], Target],
    searched: Callable[[str, str, dict[str, Any]], tuple[bool, bool]],
) -> Results:
    """Returns {"task: row": its result} of the rows that are whole, in the order of the cases.

    target_of(task): as in one_run.End. searched(task, row, case): (whether its search has ended,
    whether it had to end before all neighbours of the best setting were tried).
    """
    results = {}
    for name, case in cases.items():
        task, row = task_and_row(name)
        ended, at_the_edge = searched(task, row, case)
        hopeless = ended and search.choose(case["tries"]) is None and case["tries"]
        if len(case["runs"]) < seeds and not hopeless:
            continue
        target, runs = target_of(task), case["runs"][:seeds]
        whole_run: dict[str, Any] = next((run for run in runs if not has_failed(run)), {})
        results[name] = {
            "setting": case.get("chosen"),
            "seconds": case.get("seconds"),
            "target": list(target),
            "losses": LOSSES,
            "tasks": {
                number: whole_run[number] for number in SHARED_NUMBERS if number in whole_run
            },
            "edge": at_the_edge,
            "measured": case.get("measured"),
            "tries": tries_of(case),
            "most_others_of_tries": max(
                (tried["others"] or 0 for tried in case["tries"]), default=0
            ),
            "runs": [kept_numbers(run, target, case.get("seconds")) for run in runs],
            "curve": median_curve(runs),
        }
    return results


@functools.cache
def digest_today(folder: str) -> str:
    """Returns the digest of an example's script as it is."""
    return digests.example_digest(examples.main_script(folder))


def digests_of(cases: Cases, results: Results, folder_of: Callable[[str], str]) -> dict[str, str]:
    """Returns {folder: the digest of the script that was measured}.

    Where a script has changed between two tasks, it is that which is not today's.
    """
    digests: dict[str, str] = {}
    for name in results:
        _, row = task_and_row(name)
        folder = folder_of(row)
        today = digest_today(folder)
        digest = cases[name].get("digest", today)
        if digests.get(folder, today) == today:
            digests[folder] = digest
    return dict(sorted(digests.items()))


def other_tasks(old_results: Results, new_results: Results) -> Results:
    """Returns the old results of the tasks that the new ones have not."""
    tasks = {task_and_row(name)[0] for name in new_results}
    return {
        name: result for name, result in old_results.items() if task_and_row(name)[0] not in tasks
    }


def join_digests(
    old_digests: Mapping[str, str], folders: Iterable[str], new_digests: dict[str, str]
) -> dict[str, str]:
    """Returns new digests, and the old ones of these folders. A digest not today's stays."""
    kept_digests = {name: old_digests[name] for name in folders if name in old_digests}
    stale = {name: digest for name, digest in kept_digests.items() if digest != digest_today(name)}
    return dict(sorted((kept_digests | new_digests | stale).items()))


def when_and_where(results: Results) -> str:
    """Returns the last words below a table: when, where, with which versions, and how quiet."""
    days: dict[str, dict[str, None]] = {}  # {machine and versions: days, in order}
    for result in results.values():
        day, _, place = (result["measured"] or "").partition(", ")
        days.setdefault(place, {})[day] = None
    days_and_machines = [
        ", ".join([*sorted(filter(None, days_of_place)), place])
        for place, days_of_place in days.items()
    ]
    shares = [run.get("others") or 0 for result in results.values() for run in result["runs"]]
    tries = [result["most_others_of_tries"] for result in results.values()]
    share = idle.words(max(shares, default=0))
    quiet = f"{share} at most, {max(tries, default=0):.0%} while tuning"
    return "; ".join([*filter(None, days_and_machines), quiet])
