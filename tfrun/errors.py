"""Explains the errors in what a task has printed, by the table in known_errors.py."""

import itertools
import re
from collections.abc import Sequence

from tfrun import known_errors

# What horovodrun and tfrun put before the lines of a task.
PREFIX = re.compile(r"^(\[\d+\]<std(out|err)>:|\[(ps|chief|worker|evaluator) \d+\] )")
TRACEBACK = "Traceback (most recent call last):"
# The line before a traceback that does not stand alone: an earlier one may say more.
NOT_ALONE = re.compile(
    "During handling of the above exception|The above exception was the direct cause"
    "|Exception ignored in"
)


def known(line: str) -> known_errors.Entry | None:
    """The Entry that knows a line of output, or None."""
    entries = itertools.chain(*known_errors.GROUPS.values())
    return next((entry for entry in entries if entry.pattern.search(line)), None)


def begin(lines: Sequence[str]) -> int | None:
    """Where the error stands in the output of a task: behind its last traceback; None without."""
    for i in reversed(range(len(lines))):
        if lines[i].startswith(TRACEBACK):
            after = range(i + 1, len(lines))
            return next((j for j in after if lines[j].strip() and lines[j][0] != " "), i)
    return None


def explain(text: str) -> str | None:
    """The explanation of the last known error in `text`, one line, or None.

    Where there is a traceback, what stands before it is not the error.
    """
    lines = [PREFIX.sub("", line) for line in text.splitlines()]
    for i in reversed(range(len(lines))):
        # Indented lines are code, which has words of errors, too; but tf.function indents errors.
        if not re.match(r"  +(?! |\w+Error: )", lines[i]) and (entry := known(lines[i])):
            return f"{entry.means} {entry.do}"
        if lines[i].startswith(TRACEBACK) and not any(
            NOT_ALONE.match(line) for line in lines[max(0, i - 2) : i]
        ):
            return None
    return None
