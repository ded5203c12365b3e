"""What was measured, as the pages show it: in tables in Markdown, beside the results."""

import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.examples import ToolError, shown


def argument(folder: pathlib.Path, part: str, word: str | None) -> str:
    """Returns the word behind a part's name. Raises ToolError if there is none."""
    if not word:
        page = f"{shown(folder)}/README.md"
        raise ToolError(f"{page}: name a folder or file behind `generated: {part}`")
    return word


def table(
    columns: Sequence[object], rows: Iterable[Iterable[object]], note: str | None = None
) -> str:
    """Returns the text of a table in Markdown, with a note below it."""
    rows = [columns, ["---"] * len(columns), *rows]
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([*lines, "", note] if note else lines)


def texts(values: Sequence[float], form: str) -> list[str]:
    """Returns the median, the least and the greatest of some values."""
    return [form % number for number in (statistics.median(values), min(values), max(values))]


def spread(values: Sequence[float], form: str = "%.1f") -> str:
    """Returns a median and its range."""
    median, least, greatest = texts(values, form)
    return f"{median} ({least} to {greatest})"


def medians(
    runs: Sequence[dict[str, Any]], reported: Mapping[str, tuple[str, str, float]]
) -> list[tuple[str, str, str]]:
    """Returns rows of a table, what runs report, as words, median and range.

    reported: {its name: (its words, the form of a number, how many of its unit)}.
    """
    rows = []
    for name, (words, form, times) in reported.items():
        values = [times * run[name] for run in runs if name in run]
        median, least, greatest = texts(values, form)
        rows.append((words, median, f"{least} to {greatest}"))
    return rows


def leave(path: pathlib.Path, text: str) -> None:
    """Writes the text of a table beside its results, and shows it."""
    path.write_text(text + "\n")
    print(text)
