"""Grids: combinations of values, their names, and how their runs share a machine."""

import concurrent.futures
import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def product(grid: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Returns all combinations of {name: [values]}, each {name: value}; of {} an empty one."""
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def text(value: object) -> str:
    """Returns a value as on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def first_duplicate(values: Iterable[Any]) -> tuple[str, str] | None:
    """Returns the first two values of a list that give a script the same, as texts; or None."""
    texts: dict[object, str] = {}
    for value in values:
        key = type(value), value  # True is no 1
        if not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                key = float, float(value)
        if key in texts:
            return texts[key], text(value)
        texts[key] = text(value)
    return None


def name_of(point: Mapping[str, Any]) -> str:
    """Returns a name for a combination, fit for a folder: learning-rate=0.1,seed=0."""
    name = ",".join(f"{name}={text(value)}" for name, value in point.items())
    return re.sub(r"[^A-Za-z0-9=,.+_-]", "_", name)[:120]


def named(points: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns {name: combination}; no two have the same name, so each has a folder of its own."""
    points_by_name = {}
    for point in points:
        name = name_of(point)
        while name in points_by_name:  # names that differ in what no folder's name may have
            name += "+"
        points_by_name[name] = point
    return points_by_name


def deal(gpus: list[str], n: int) -> list[list[str]]:
    """Returns [[GPU, ...]] for n runs at once, which share GPUs where there are too few."""
    if not gpus:
        return [[] for _ in range(n)]
    gpus_of_runs = []
    for i in range(n):
        own = gpus[i::n]
        if not own:
            own = [gpus[i % len(gpus)]]
        gpus_of_runs.append(own)
    return gpus_of_runs


def run(
    names: Iterable[str],
    slots: Sequence[Any],
    run_one: Callable[[str, Any], object],
    stop: Callable[[], object],
) -> None:
    """Calls run_one(name, slot) for every name, in a thread, each thread with a slot of its own.

    A slot is, for instance, a set of GPUs. stop(): ends the runs that go on. After Ctrl-C, or an
    exception of run_one, no run begins any more, and stop is called until all have ended.
    """
    own, free = threading.local(), iter(slots)

    def take_slot() -> None:
        own.slot = next(free)

    with concurrent.futures.ThreadPoolExecutor(len(slots), initializer=take_slot) as pool:
        pending = []
        try:
            for name in names:
                pending.append(pool.submit(lambda name: run_one(name, own.slot), name))
            for future in concurrent.futures.as_completed(pending):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in pending):
                stop()
                time.sleep(0.1)
            raise
