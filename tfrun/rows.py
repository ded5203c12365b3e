"""Reads metrics-<task>.csv, the lines that a task leaves; needs nothing but the standard library.

A line is a push (`loss` is filled) or an evaluation (`test_loss` is filled). A line that begins
with # is a mark: "# restart", or "# checkpoint BEGIN END", or "# evaluation BEGIN END".
"""

import csv
import os

RESTART = "# restart"
MARKS = {"checkpoint", "evaluation"}


def number(text):
    """A field as a float, NaN where it is empty. Raises ValueError."""
    return float(text) if text else float("nan")


def whole_lines(path, last=None):
    """The lines of a file that have their end; of a long file those of its `last` bytes."""
    with open(path, "rb") as file:
        if last and (size := os.path.getsize(path)) > last:
            header = file.readline()
            file.seek(max(file.tell(), size - last))
            file.readline()  # what is left of a line, or a whole one
            text = header + file.read()
        else:
            text = file.read()
    # What a kill has cut short is no line.
    return text.rpartition(b"\n")[0].decode("utf-8", "replace").split("\n")


def of(path, last=None):
    """(header, {row as text: its fields, numbers by name}, restarts) of one file.

    last: how many bytes of its end to read, beside the header; all of it by default.
    """
    header, *lines = whole_lines(path, last)
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


def marks(path):
    """[(checkpoint or evaluation, begin, end)] of one file, in seconds since 1970."""
    found = []
    for line in whole_lines(path):
        words = line.removeprefix("# ").split(" ")
        if line.startswith("# ") and len(words) == 3 and words[0] in MARKS:
            try:
                found.append((words[0], float(words[1]), float(words[2])))
            except ValueError:
                continue
    return found
