"""How many times as fast a run would be after a change, by the model of `tfrun plan`."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrun.diagnosis.facts import Facts, Worker
from tfrun.simulate import laws, plan

UPDATES = 1000  # of each worker, to simulate where workers differ


def measured(facts: Facts) -> plan.MeasuredRun | None:
    """Returns what the model needs to know of the run; None where it has too few updates."""
    backups, lead = (int(facts.arguments.get(f) or 0) for f in ("backup_workers", "max_lead"))
    with contextlib.suppress(ValueError):
        rows = {name: columns for name, columns in facts.rows.items() if columns["loss"].size}
        return plan.measure_run(rows, facts.servers, backups, lead, facts.kind)
    return None


def of_change(facts: Facts, change: Callable[[plan.MeasuredRun], plan.MeasuredRun]) -> float | None:
    """Returns the gain of a change of what the run has measured."""
    if run := measured(facts):
        return ratio(run, {"n": run.n}, change(run), {"n": run.n})
    return None


def of_speed(facts: Facts, share: float) -> float | None:
    """Returns the gain if all that a worker does took this share of its time."""
    return of_change(
        facts,
        lambda run: run._replace(
            compute=run.compute * share, send=run.send * share, pull=run.pull * share
        ),
    )


def of_workers(facts: Facts, n: int) -> float | None:
    """Returns the gain of n workers, in place of those that made updates."""
    run = measured(facts)
    return ratio(run, {"n": run.n}, run, {"n": n}) if run else None


def of_equal_workers(facts: Facts, slow: Worker) -> float | None:
    """Returns the gain if a slow worker took the times of the others."""
    run = measured(facts)
    if not run:
        return None
    usual = float(np.median(np.concatenate([worker.way for worker in facts.active])))
    lists = {w.name: w.compute + np.maximum(0, w.way - usual) for w in facts.active}
    others = np.concatenate([lists[name] for name in lists if name != slow.name])
    equal = {name: others if name == slow.name else lists[name] for name in lists}
    cases = [{"n": run.n, "times": columns_of(times)} for times in (lists, equal)]
    return ratio(run, cases[0], run, cases[1])


def columns_of(lists: dict[str, np.ndarray]) -> np.ndarray:
    """Returns times [updates, n], each worker's drawn from those that it took."""
    columns = [
        laws.step_times(np.maximum(times, 1e-6), 1, UPDATES, seed=k)
        for k, times in enumerate(lists.values())
    ]
    return np.concatenate(columns, axis=1)


def ratio(
    before: plan.MeasuredRun, now: dict[str, Any], after: plan.MeasuredRun, then: dict[str, Any]
) -> float | None:
    """Returns the ratio of two predicted rates; None where the model has no plan for such a run.

    It compares both ends of the predicted ranges, and returns the smaller ratio.
    """
    with contextlib.suppress(ValueError):
        rates = [plan.predict(r, **case)["rate"] for r, case in ((before, now), (after, then))]
        return min(new / old for old, new in zip(*rates))
    return None
