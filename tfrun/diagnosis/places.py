"""Reads where the Python threads of a task were, once a second: see tfrun/launch/at_start."""

import collections
import contextlib
import json
import pathlib
from typing import NamedTuple


class Places(NamedTuple):
    """Where the threads of a task were: the lines of its file."""

    lines: list[tuple[float, list[tuple[bool, str]]]]  # (time, [(called by a graph, where)])

    def in_graph(self, begin: float, end: float) -> tuple[float, str]:
        """Returns (share of the looks at which a graph ran a Python function, mostly which one)."""
        looks = [threads for time, threads in self.lines if begin <= time <= end]
        calls = [[where for is_called, where in threads if is_called] for threads in looks]
        functions = collections.Counter(where for positions in calls for where in set(positions))
        most = functions.most_common(1)
        return sum(map(bool, calls)) / max(1, len(looks)), most[0][0] if most else ""

    def last(self) -> list[str]:
        """Returns where its threads were at the last look."""
        return [where for _, where in self.lines[-1][1]] if self.lines else []


def read(directory: pathlib.Path, task: str) -> Places:
    """Returns the Places of a task, such as worker-0; none where tfrun did not start it."""
    path, lines = directory / f".places-{task}", []
    with contextlib.suppress(OSError):
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # a kill has cut it short
                time, threads = json.loads(text)
                lines.append((time, [(is_called, where) for is_called, where in threads]))
    return Places(lines)
