"""The format of metrics-<task>.csv, the rows that a task leaves; needs the standard library only.

A row is a push (`loss` is filled) or a test (`test_loss` is filled). The line "# restart" stands
where the task started again. Other lines that begin with # are those of older scripts.
"""

import csv
import math
import os
import pathlib
import re

PUSH = ["push_time", "pull_time", "global_step", "local_steps", "examples", "loss", "staleness"]
PUSH += ["bytes", "wait_seconds"]  # the columns before those of the tests
RESTART = "# restart"


def files(directory) -> dict[str, pathlib.Path]:
    """Returns {task: the path of its metrics} for a run directory, in order of names."""
    paths = sorted(pathlib.Path(directory).glob("metrics-*.csv"))
    return {path.stem.removeprefix("metrics-"): path for path in paths}


def read(path, last=None):
    """Returns (header, {row as text: its fields, numbers by name}, the times of each start).

    An empty field is NaN. A row also says under "push" and "test" which of the two it is.
    last: how many bytes of its end to read, beside the header; all of it by default.
    """
    with open(path, "rb") as file:
        text = file.readline()
        skipped = os.path.getsize(path) - last if last else 0
        if skipped > file.tell():
            file.seek(skipped)
            file.readline()  # the rest of a line
        text += file.read()
    # A line that a kill has cut short has no end.
    header, *lines = text.rpartition(b"\n")[0].decode("utf-8", "replace").split("\n")
    header, rows, times = next(csv.reader([header]), []), {}, [[]]
    for line in lines:
        if RESTART in line:
            times.append([])
        # A line that a restart has marked was cut short, too.
        texts = dict(zip(header, line.rstrip("\r").split(",")))
        if "#" in line or line.count(",") != len(header) - 1:
            continue
        if not texts.get("push_time") or not texts.get("global_step"):
            continue
        try:
            row = {name: float(text or "nan") for name, text in texts.items()}
        except ValueError:
            continue
        rows[line] = {**row, "push": bool(texts.get("loss")), "test": bool(texts.get("test_loss"))}
        times[-1] += [row["push_time"], row.get("pull_time", math.nan)]
    return header, rows, times


def last_test(tests):
    """Returns the test after the most updates, {} of none; among those the last in time.

    It need not be the last of all: a run that was started again may repeat updates.
    """
    return max(tests, key=lambda row: (row["global_step"], row["push_time"]), default={})


def append(path, tests, **columns):
    """Appends the row of a test to a file of metrics; a new file begins with the header."""
    text = path.read_text() if path.exists() else ""
    with open(path, "a", newline="") as file:
        lines = csv.DictWriter(file, [*PUSH, *tests], lineterminator="\n")
        if not text:
            lines.writeheader()
        elif not text.endswith("\n"):  # its last line was cut short
            file.write(RESTART + "\n")
        lines.writerow({**columns, **tests})


def count_rows(directory) -> int:
    """Returns the number of lines in all metrics of a directory, less headers and marks."""
    texts = (path.read_bytes() for path in files(directory).values())
    return sum(len(re.findall(rb"(?m)^\d", text)) for text in texts)
