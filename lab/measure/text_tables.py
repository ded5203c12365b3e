"""Shows results as text: tables, medians with ranges, when and where; writes results as JSON."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import sys
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def plain_table(*columns: Any) -> Table:
    """Returns a rich table without lines between its columns, for one with many rows."""
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def spread(values: Iterable[float | None], form: str) -> str:
    """Returns the median of values and their range in words, of those that are not None."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    median = form.format(statistics.median(numbers))
    return f"{median} ({form.format(min(numbers))}-{form.format(max(numbers))})"


def median_of(runs: Iterable[dict[str, Any]], key: str) -> float | None:
    """Returns the median of a number of the runs, of those that have it; None if none has."""
    values = [run[key] for run in runs if run[key] is not None]
    return statistics.median(values) if values else None


def percent(share: float | None) -> float | None:
    """Returns a share in percent; None stays."""
    return None if share is None else 100 * share


def table_console(width: int) -> Console:
    """Returns a console: as wide as the terminal, `width` columns where there is none."""
    return Console(width=None if sys.stdout.isatty() else width, record=True)


def write_table(console: Console, directory: pathlib.Path, result: str) -> None:
    """Writes what the console has shown into table.txt, for the page; says where `result` is."""
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    (directory / "table.txt").write_text("\n".join(lines) + "\n")
    console.print(f"{result} is in {directory}", soft_wrap=True)


def setting(*versions: str) -> str:
    """Returns when and where this was measured, as the last words of a table."""
    today = str(datetime.date.today())
    python = f"Python {platform.python_version()}"
    return ", ".join([today, *versions, python, f"{os.cpu_count()} cores ({platform.machine()})"])


def write_results(path: pathlib.Path, results: Any) -> None:
    """Writes results as JSON, in which each item of a list stands on a line: so does each run."""
    path.write_text(json_lines(results) + "\n")


def json_lines(value: Any, indent: str = "") -> str:
    """Returns a value as JSON. A list of numbers or texts stands on one line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key)}: {json_lines(part, inner)}" for key, part in value.items()]
        begin, end = "{", "}"
    elif isinstance(value, (list, tuple)) and any(
        isinstance(x, (dict, list, tuple)) for x in value
    ):
        items = [json.dumps(part) for part in value]
        begin, end = "[", "]"
    else:
        return json.dumps(value)
    lines = ",\n".join(inner + item for item in items)
    return f"{begin}\n{lines}\n{indent}{end}"
