"""Numbers as people, and JSON, read them."""

import math
import os
from collections.abc import Mapping
from typing import Any


def finite(value: float) -> float | None:
    """Returns a number for JSON, which has no NaN: None instead of that."""
    return float(value) if math.isfinite(value) else None


def value_text(name: str, number: float | None) -> str:
    """Returns a number of the tests as text, of an accuracy as a percentage."""
    if number is None:
        return "unknown"
    return f"{number:.1%}" if name.endswith("accuracy") else f"{number:.4g}"


def test_text(name: str, number: float | None) -> str:
    """Returns a column of the tests and its value as text: "test accuracy 98.3%"."""
    return f"{name.replace('_', ' ')} {value_text(name, number)}"


def tests_text(result: Mapping[str, Any]) -> str:
    """Returns the tests in a result as text; the loss only where there is no other metric."""
    names = [name for name in result if name.startswith("test_")]
    others = [name for name in names if name != "test_loss"]
    return ", ".join(test_text(name, result[name]) for name in others or names)


def file_name(task: str) -> str:
    """Returns worker 0 as in the names of files: worker-0."""
    return task.replace(" ", "-")


def size_text(n_bytes: float | None) -> str:
    """Returns a number of bytes as text: 512 MiB, 1.5 GiB; empty for None."""
    if n_bytes is None:
        return ""
    units = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
    name = next((name for name, unit in units.items() if n_bytes >= unit), "KiB")
    amount = n_bytes / units[name]
    return f"{amount:.0f} {name}" if amount >= 100 else f"{amount:.3g} {name}"


def age_text(seconds: float) -> str:
    """Returns a length of time as text: 45 s, 12 min, 3 h, 5 days."""
    for unit, length, least in (("days", 86400, 2), ("h", 3600, 1.5), ("min", 60, 1.5)):
        if seconds >= least * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def number_text(value: float | None, form: str = "%.3g") -> str:
    """Returns a number as text, empty for None."""
    return "" if value is None else form % value


def rate_text(value: float | None) -> str:
    """Returns a rate as text: 12.3, or 1,234; empty for None."""
    return f"{value:,.0f}" if value and value >= 100 else number_text(value)


def plural(count: int, noun: str) -> str:
    """Returns a count and its noun: 1 worker, 3,000 updates."""
    return f"{count:,d} {noun}{'s' * (count != 1)}"


def run_text(example: str, result: Mapping[str, Any]) -> str:
    """Returns two lines about a run: its cluster; its updates, their data and time."""
    cluster = [example]
    if result["ps"]:
        cluster.append(f"{result['ps']} ps")
    if result["ps"] or result["workers"] > 1:
        cluster.append(plural(result["workers"], "worker"))
    data = os.path.basename(result["dataset"] or "data of its own")
    work = f"{plural(result['steps'], 'update')} on {data} in {result['wall_seconds'] or 0:.1f} s"
    return f"{', '.join(cluster)}\n{work}"
