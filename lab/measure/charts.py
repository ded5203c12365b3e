"""Draws pictures as wide as a page, each with a digest of the results that it shows."""

import hashlib
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

COLOURS = ["#1f77b4", "#d95f02", "#2a9d5c", "#8c564b"]  # each for the cases of one kind


def subplots(height: float, *shape: int, **options: Any) -> tuple[Figure, Any]:
    """Returns a figure as wide as a page, and its axes. options: of Figure.subplots()."""
    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, figure.subplots(*shape, **options)


def save(figure: Figure, path: pathlib.Path, source: pathlib.Path) -> None:
    """Saves a picture, with a digest of the results in the file `source` among its texts."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    figure.savefig(path, dpi=140, metadata={"Drawn from": digest})


def bars(
    title: str,
    label: str,
    values: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    form: Callable[[float], str],
    path: pathlib.Path,
    source: pathlib.Path,
) -> None:
    """Draws a bar for each case, as long as the median of its runs: {name: runs}, {name: colour}.

    A dot is a run. form: returns what stands beside a bar, the text of its median.
    """
    figure, axes = subplots(1.1 + 0.1 * sum(4 + name.count("\n") for name in values))
    longest = max(max(runs) for runs in values.values())
    for y, (name, runs) in enumerate(values.items()):
        median = statistics.median(runs)
        axes.barh(y, median, 0.7, color=colours[name], alpha=0.75)
        axes.plot(runs, [y] * len(runs), "k.", markersize=5)
        axes.text(max(runs) + 0.02 * longest, y, form(median), va="center")
    axes.set_yticks(range(len(values)), values)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * longest)
    axes.set_title(title, loc="left")
    axes.set_xlabel(label)
    save(figure, path, source)
