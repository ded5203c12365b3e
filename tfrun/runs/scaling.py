"""How workers come and go: files in the run directory, through which a command reaches a launcher.

    workers        by `tfrun scale`: how many there shall be; the launcher of the run removes it
    left-<rank>    by the launcher: asks that worker to leave, and tells all tasks that it has left

A launcher may be tfrun or one of another engine: it needs nothing else of the run.
"""

import contextlib
import itertools
import pathlib
import re
from collections.abc import Collection

from tfrun.runs import run_directory

REQUEST = "workers"


def ask(directory: pathlib.Path, n: int) -> None:
    """Asks the launcher of a run for n workers."""
    run_directory.write_whole(directory / REQUEST, f"{n}\n")


def asked(directory: pathlib.Path) -> int | None:
    """Returns for how many workers somebody has asked; None where nobody has."""
    with contextlib.suppress(OSError):
        text = (directory / REQUEST).read_text(encoding="utf-8", errors="replace").strip()
        return int(text) if re.fullmatch("[0-9]{1,4}", text) and int(text) else None
    return None


def answer(directory: pathlib.Path) -> None:
    """Says that the request was taken."""
    (directory / REQUEST).unlink(missing_ok=True)


def mark(directory: pathlib.Path, rank: int) -> pathlib.Path:
    """Returns the file that lets the worker of a rank leave, or says that it has."""
    return directory / f"left-{rank}"


def forget(directory: pathlib.Path) -> None:
    """Removes what is there of an earlier start of the run: all its workers begin again."""
    answer(directory)
    for path in directory.glob("left-*"):
        path.unlink(missing_ok=True)


def plan(
    n: int, staying: Collection[int], leaving: Collection[int], kept: Collection[int]
) -> tuple[list[int], list[int]]:
    """Returns the indices of the workers that are to start, and of those that are to leave.

    n: how many there shall be. staying, leaving: the indices of those that run. kept: of those that
    never leave. A worker that starts takes the lowest free index; the highest leave first.
    """
    more = n - len(staying)
    free = (index for index in itertools.count() if index not in {*staying, *leaving})
    can_leave = sorted(set(staying) - set(kept))
    staying_on = max(0, len(can_leave) + min(0, more))
    return [*itertools.islice(free, max(0, more))], can_leave[staying_on:]
