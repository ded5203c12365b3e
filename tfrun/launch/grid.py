"""Grids: combinations of values, their names, and how their runs share a machine."""

import concurrent.futures
import contextlib
import itertools
import queue
import time

SCALARS = (str, int, float, bool)  # what a value of a grid may be


def product(grid):
    """The combinations of {name: [values]}, each {name: value}; one empty one without a name."""
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def text(value):
    """A value as on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def name_of(point):
    """A name for a combination, fit for a folder: learning-rate=0.1,seed=0."""
    made = ",".join("%s=%s" % (name, text(value)) for name, value in point.items())
    return "".join(c if c.isascii() and c.isalnum() or c in "=,.-_+" else "_" for c in made)[:120]


def named(points):
    """{name: combination}; no two have the same name, so each has a folder of its own."""
    made = {}
    for point in points:
        name = name_of(point)
        while name in made:  # names that differ in what no folder's name may have
            name += "+"
        made[name] = point
    return made


def deal(gpus, n):
    """The GPUs of each of n runs at once: [[GPU, ...]]. Runs share GPUs where there are too few."""
    return [gpus[i::n] or gpus[i % len(gpus) :][:1] if gpus else [] for i in range(n)]


def run(names, slots, run_one, stop, keep=lambda result: None):
    """Runs every name once, at most one at a time in each slot, such as a set of GPUs.

    run_one(name, slot): called in a thread; its result goes to keep(result), in this thread.
    stop(): ends the runs that go on. After Ctrl-C, or any other exception, no run begins any more,
        and stop is called until all have ended. keep gets no result of a run that was stopped.
    """
    free = queue.SimpleQueue()
    for slot in slots:
        free.put(slot)

    def in_slot(name):
        slot = free.get()
        try:
            return run_one(name, slot)
        finally:
            free.put(slot)

    with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
        pending = set()
        try:
            for name in names:
                pending.add(pool.submit(in_slot, name))
            while pending:
                done, _ = concurrent.futures.wait(pending, 0.5, concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    keep(future.result())
                    pending.remove(future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            ended = [future for future in pending if future.done() and not future.cancelled()]
            while not all(future.done() for future in pending):
                stop()
                time.sleep(0.1)
            for future in ended:
                with contextlib.suppress(Exception):  # what ended the runs is raised instead
                    keep(future.result())
            raise
