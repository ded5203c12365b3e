"""The format of metrics-<task>.csv, the rows that a task leaves; needs the standard library only.

A row is a push (`loss` is filled) or a test (`test_loss` is filled). The line "# restart" stands
where the task started again, and "# data ..." is for same_data.py. Other lines that begin with #
are those of older scripts.
"""

import array
import contextlib
import csv
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

PUSH = ["push_time", "pull_time", "global_step", "local_steps", "examples", "loss", "staleness"]
PUSH += ["bytes", "wait_seconds"]  # the columns before those of the tests
RESTART = "# restart"


def files(directory: str | pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns {task: the path of its metrics} for a run directory, in order of names."""
    paths = sorted(pathlib.Path(directory).glob("metrics-*.csv"))
    return {path.stem.removeprefix("metrics-"): path for path in paths}


class Metrics(NamedTuple):
    """What a file of metrics has. A million rows take eight bytes a number, not a dict each."""

    columns: dict[str, "array.array[float]"]  # in the order of the header
    pushes: "array.array[int]"  # of each row 1 if it is a push, else 0
    tests: "array.array[int]"
    spans: list[tuple[float, float]]  # of each start: its first and last time; inf, -inf: no row

    def rows(self, kind: str) -> Iterator[dict[str, float]]:
        """Yields the rows of a kind, "pushes" or "tests", as {column: number}, in their order."""
        for row, is_of_kind in zip(rows_of(self.columns), getattr(self, kind)):
            if is_of_kind:
                yield row


def rows_of(columns: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Yields the rows of some columns, each {name: number}."""
    for row in zip(*(column.tolist() for column in columns.values())):
        yield dict(zip(columns, row))


def read(path: str | pathlib.Path, last: int | None = None) -> Metrics:
    """Reads a file of metrics. An empty field is NaN; what is no row is left out.

    last: how many bytes of its end to read, beside the header; all of it by default.
    """
    with open(path, "rb") as file:
        lines = complete_lines(file, last and os.path.getsize(path) - last)
        header = next(csv.reader([next(lines, "")]), [])
        columns = {name: array.array("d") for name in header}
        pushes, tests, spans = array.array("b"), array.array("b"), [(math.inf, -math.inf)]
        for line in lines:
            if RESTART in line:
                spans.append((math.inf, -math.inf))
            texts = fields_of(line, header)
            row = numbers_of(texts)
            if not row:
                continue
            for name, column in columns.items():
                column.append(row[name])
            pushes.append(bool(texts.get("loss")))
            tests.append(bool(texts.get("test_loss")))
            times = [row["push_time"], row.get("pull_time", math.nan)]
            times = [time for time in times if not math.isnan(time)]
            spans[-1] = min([spans[-1][0], *times]), max([spans[-1][1], *times])
    return Metrics(columns, pushes, tests, spans)


def complete_lines(file: BinaryIO, skipped: int | None) -> Iterator[str]:
    """Yields the lines of a file: the first, and of those behind so many bytes each whole one."""
    for number, line in enumerate(file):
        if line.endswith(b"\n"):  # the last one has no end where a kill has cut it short
            yield line.decode("utf-8", "replace").rstrip("\r\n")
        if not number and skipped and skipped > file.tell():
            file.seek(skipped)
            file.readline()  # the rest of a line


def fields_of(line: str, header: Sequence[str]) -> dict[str, str]:
    """Returns {column: text} of a line, {} of one that was cut short or is none of numbers."""
    texts = line.split(",")
    if "#" in line or len(texts) != len(header):  # a line that a restart has marked was cut, too
        return {}
    return dict(zip(header, texts))


def numbers_of(texts: Mapping[str, str]) -> dict[str, float]:
    """Returns {column: number} of {column: text}, {} where it is no row."""
    if not texts.get("push_time") or not texts.get("global_step"):
        return {}
    try:
        return {name: float(text or "nan") for name, text in texts.items()}
    except ValueError:
        return {}


def last_test(tests: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the test after the most updates, {} of none; among those the last in time.

    It need not be the last of all: a run that was started again may repeat updates.
    """
    return max(tests, key=lambda row: (row["global_step"], row["push_time"]), default={})


def append(path: pathlib.Path, tests: Mapping[str, float], **columns: float) -> None:
    """Appends the row of a test to a file of metrics; a new file begins with the header."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    with open(path, "a", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, [*PUSH, *tests], lineterminator="\n")
        if not text:
            lines.writeheader()
        elif not text.endswith("\n"):  # its last line was cut short
            file.write(RESTART + "\n")
        lines.writerow({**columns, **tests})


def count_rows(directory: str | pathlib.Path) -> int:
    """Returns the number of lines in all metrics of a directory, less headers and marks."""
    return sum(map(count_rows_of, files(directory).values()))


def count_rows_of(path: pathlib.Path) -> int:
    """Returns the same of one file of metrics, 0 if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return len(re.findall(rb"(?m)^\d", path.read_bytes()))
    return 0
