"""Reads metrics-<task>.csv, the lines that a task leaves; needs nothing but the standard library.

A line is a push (`loss` is filled) or a test (`test_loss` is filled). The line "# restart" stands
where the task started again. Other lines that begin with # are those of older scripts.
"""

import csv
import os

PUSH = ["push_time", "pull_time", "global_step", "local_steps", "examples", "loss", "staleness"]
PUSH += ["bytes", "wait_seconds"]  # the columns before those of the tests
RESTART = "# restart"


def number(text):
    """Returns a field as a float, NaN where it is empty. Raises ValueError."""
    return float(text) if text else float("nan")


def complete_lines(path, last=None):
    """Returns the complete lines of a file, or only those within its last `last` bytes."""
    with open(path, "rb") as file:
        if last and (size := os.path.getsize(path)) > last:
            header = file.readline()
            file.seek(max(file.tell(), size - last))
            file.readline()  # the rest of a line
            text = header + file.read()
        else:
            text = file.read()
    # A line that a kill has cut short has no end.
    return text.rpartition(b"\n")[0].decode("utf-8", "replace").split("\n")


def read(path, last=None):
    """Returns (header, {row as text: its fields, numbers by name}, restarts) of one file.

    last: how many bytes of its end to read, beside the header; all of it by default.
    """
    header, *lines = complete_lines(path, last)
    header, rows = next(csv.reader([header]), []), {}
    for line in lines:
        # A line that a restart has marked was cut short, too.
        texts = dict(zip(header, line.rstrip("\r").split(",")))
        if "#" in line or line.count(",") != len(header) - 1:
            continue
        if not texts.get("push_time") or not texts.get("global_step"):
            continue
        try:
            row = {name: number(text) for name, text in texts.items()}
        except ValueError:
            continue
        rows[line] = {**row, "push": bool(texts.get("loss")), "test": bool(texts.get("test_loss"))}
    return header, rows, sum(RESTART in line for line in lines)
