"""Whether the tasks of a run have loaded the same data; needs the standard library only.

A task writes a line "# data {array: [shape, weighted sum, norm], ...}" into its metrics at each
start, of what load_data() has returned, before the rows are dealt among workers. The sum has all
values, each with a weight of its own, so that rows in another order have another sum.
"""

import contextlib
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from tfrun.runs import metrics_csv

MARK = rb"(?m)^# data (.*)$"
TOLERANCE = 1e-5  # of the norm: processors that add in another order are not as far apart


class DataLines:
    """What the tasks in a run directory have written about their data.

    is_live: whether to read only what they write from now on, while the run goes on.
    """

    def __init__(self, *directories: str | pathlib.Path, is_live: bool = False) -> None:
        self.directories, self.is_live = directories, is_live
        self.read: dict[pathlib.Path, int] = {}  # {metrics: how many bytes of them}
        self.reported: dict[str, list[dict[str, Any]]] = {}  # {task: its data at each start}
        if is_live:
            self.read = {path: os.path.getsize(path) for _, path in self.files()}

    def files(self) -> Iterator[tuple[str, pathlib.Path]]:
        """Yields each task and the path of its metrics."""
        for directory in self.directories:
            yield from metrics_csv.files(directory).items()

    def update(self) -> None:
        """Reads what tasks have written since the last call."""
        for task, path in self.files():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                file.seek(self.read.get(path, 0))
                text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                self.read[path] = self.read.get(path, 0) + len(whole)
                for line in re.findall(MARK, whole):
                    with contextlib.suppress(ValueError):  # a kill has cut it short
                        self.reported.setdefault(task, []).append(json.loads(line))

    def difference(self) -> str | None:
        """Returns which task has other data than the chief, and how, a sentence; None if none has.

        The last start of each task counts. Afterwards a task may have the data of any start of the
        chief: it need not have taken part in the last one.
        """
        self.update()
        chief = "chief-0" if "chief-0" in self.reported else "worker-0"
        starts = self.reported.get(chief, [])[-1 if self.is_live else 0 :]
        for task, data in self.reported.items():
            if starts and task != chief:
                differences = [difference(data[-1], of_chief) for of_chief in starts]
                if all(differences):
                    names = [name.replace("-", " ") for name in (task, chief)]
                    return f"{names[0]} has other data than {names[1]}: {differences[-1]}"
        return None


def difference(data: dict[str, Any], of_chief: dict[str, Any]) -> str | None:
    """Returns how the data of a task differ from the chief's, in words; None if they do not."""
    names = [name for name in of_chief if name in data]
    for name in names:
        (rows, *shape), (rows_of_chief, *shape_of_chief) = data[name][0], of_chief[name][0]
        if rows != rows_of_chief:
            return f"{name} has {rows:,} rows, not {rows_of_chief:,}"
        if shape != shape_of_chief:
            return f"{name} has rows of shape {shape}, not {shape_of_chief}"
    others = []
    for name in names:
        (_, value, norm), (_, value_of_chief, norm_of_chief) = data[name], of_chief[name]
        if abs(value - value_of_chief) > TOLERANCE * math.hypot(norm, norm_of_chief):
            others.append(name)
    return f"other values, or another order of rows, in {', '.join(others)}" if others else None
