"""Compression: what each compressor sends, and to which loss it comes with its e and without.

Two workers train on the digits, by Compressed-AllReduce and, without a compressor, Ring-AllReduce.
Short runs with more workers tell how the bytes grow.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import math
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from lab import examples
from lab.measure import arguments, charts, example_runs, forked, sessions, text_tables
from rich.table import Table

RING, COMPRESSED = "Ring-AllReduce", "Further-Algorithms/Compressed-AllReduce"
# name: (the example, its flags)
COMPRESSORS: dict[str, tuple[str, list[object]]] = {
    "none": (RING, []),
    "PowerSGD, rank 1": (COMPRESSED, ["--rank", 1]),
    "PowerSGD, rank 4": (COMPRESSED, ["--rank", 4]),
    "top 1%": (COMPRESSED, ["--compress", "top-k", "--top", 0.01]),
    "top 0.1%": (COMPRESSED, ["--compress", "top-k", "--top", 0.001]),
    "sign": (COMPRESSED, ["--compress", "sign"]),
    "QSGD": (COMPRESSED, ["--compress", "qsgd"]),
}
UNBIASED_COMPRESSORS = ("none", "QSGD")  # these have no e
WITHOUT_E = ", without e"  # behind the name of a compressor
QUICK = [f"{name}: {COMPRESSED}" for name in ("PowerSGD, rank 1", "sign", "sign" + WITHOUT_E)]
WORKERS = 2
COUNTED_WORKERS = (4, 8)  # of the runs that count bytes only
COUNTED_UPDATES = 20  # of such a run
POINTS = 50  # of a curve
COLUMNS = 3  # pictures in a row


class Case(NamedTuple):
    """What is trained."""

    name: str
    example: str
    flags: Sequence[object]
    counts: bool  # whether its first run has others beside it, which count bytes


def all_cases() -> list[Case]:
    """Returns the Cases."""
    cases = []
    for name, (example, flags) in COMPRESSORS.items():
        cases.append(Case(f"{name}: {example}", example, flags, counts=True))
        if name not in UNBIASED_COMPRESSORS:
            without_e = [*flags, "--forget-error", 1]
            cases.append(Case(f"{name}{WITHOUT_E}: {example}", example, without_e, counts=False))
    return cases


def by_compressor(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Returns {the compressor, and perhaps "without e": its runs}, as a table names it."""
    return {case.rpartition(": ")[0]: runs for case, runs in results.items()}


def train(case: Case, workers: int, updates: int, seed: int, directory: pathlib.Path) -> bool:
    """Trains in `directory`; returns whether the loss stayed a number."""
    flags = ["--steps", updates, "--seed", seed, *case.flags]
    script = examples.main_script(case.example)
    trained, _ = forked.train(script, {"worker": workers}, flags, directory)
    return trained


def measure(case: Case, repeat: int, flags: argparse.Namespace) -> dict[str, Any]:
    """Trains once; returns the numbers of the run."""
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        trained = train(case, WORKERS, flags.updates, repeat, folder / "run")
        result = summarize_run(trained, folder / "run")
        if case.counts and not repeat:  # the bytes are the same in each run
            for workers in COUNTED_WORKERS:
                directory = folder / f"{workers}"
                train(case, workers, COUNTED_UPDATES, repeat, directory)
                result["kilobytes"][str(workers)] = kilobytes_sent(example_runs.pushes(directory))
        return result


def kilobytes_sent(pushes: list[dict[str, Any]]) -> float:
    """Returns the KB that a worker sends in an update: all together send what all receive."""
    return statistics.fmean(push["bytes"] for push in pushes) / 2 / 1000


def summarize_run(trained: bool, directory: pathlib.Path) -> dict[str, Any]:
    """Returns the numbers of a run that has ended."""
    pushes, tests = example_runs.pushes(directory), example_runs.test_rows(directory)
    has_loss = trained and math.isfinite(tests[-1]["test_loss"])
    pushes.sort(key=lambda push: push["global_step"])
    size = max(1, len(pushes) // POINTS)
    parts = [pushes[i : i + size] for i in range(0, len(pushes) - size + 1, size)]
    return {
        "test_loss": tests[-1]["test_loss"] if has_loss else None,  # None: it has diverged
        "test_accuracy": tests[-1]["test_accuracy"] if has_loss else None,
        "kilobytes": {str(WORKERS): kilobytes_sent(pushes)},
        # Of each part of the run: its last update, and the mean of its losses.
        "updates": [int(part[-1]["global_step"]) for part in parts],
        "losses": [round(statistics.fmean(push["loss"] for push in part), 5) for part in parts],
    }


def table_of(results: dict[str, Any]) -> Table:
    """Returns the table, a section for each compressor."""
    workers = (WORKERS, *COUNTED_WORKERS)
    columns = [f"KB, {n} workers" for n in workers]
    table = text_tables.plain_table(
        "compressor", "test loss", "accuracy, %", "last losses", *columns
    )
    previous = None
    for case, runs in by_compressor(results).items():
        compressor = case.removesuffix(WITHOUT_E)
        if previous not in (None, compressor):
            table.add_section()
        previous = compressor
        losses = [run["test_loss"] for run in runs]
        accuracies = [text_tables.percent(run["test_accuracy"]) for run in runs]
        kilobytes = runs[0]["kilobytes"]
        table.add_row(
            case,
            text_tables.spread(losses, "{:.3f}") or "diverged",
            text_tables.spread(accuracies, "{:.1f}"),
            text_tables.spread([last_losses(run) for run in runs], "{:.4f}"),
            *[f"{kilobytes[str(n)]:.2f}" if str(n) in kilobytes else "" for n in workers],
        )
    return table


def last_losses(run: dict[str, Any]) -> float:
    """Returns the mean of a run's training losses in its last tenth."""
    count = max(1, len(run["losses"]) // 10)
    return statistics.fmean(run["losses"][-count:])


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the training loss against the updates, with e and without."""
    names = [name for name in COMPRESSORS if name not in UNBIASED_COMPRESSORS]
    results = by_compressor(results)
    names = [name for name in names if name in results or name + WITHOUT_E in results]
    rows = max(1, math.ceil(len(names) / COLUMNS))
    figure, panels = charts.subplots(2.1 * rows + 0.5, rows, COLUMNS, squeeze=False, sharey=True)
    lines = [("no compressor", "k"), ("with its error e", "C0"), ("without e", "C3")]
    for name, panel in zip(names, panels.flat):
        for (label, colour), case in zip(lines, ("none", name, name + WITHOUT_E)):
            for run in results.get(case, []):
                panel.plot(
                    run["updates"],
                    run["losses"],
                    color=colour,
                    linewidth=1,
                    alpha=0.8,
                    label=label,
                )
        panel.set(title=name, yscale="log", xlabel="updates")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.25)
    for panel in panels[:, 0]:
        panel.set_ylabel("training loss")
    for panel in list(panels.flat)[len(names) :]:
        panel.set_visible(False)
    # A line for each label, of however many runs.
    handles = [pair for panel in panels.flat for pair in zip(*panel.get_legend_handles_labels())]
    handle_of = {label: handle for handle, label in handles}
    figure.legend(handle_of.values(), handle_of, loc="outside lower center", ncols=3, frameon=False)
    charts.save(figure, path, source)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--updates", 2000, "updates of a run")
    parser.full("all cases; without it three, once each")
    parser.redraw(__file__)
    flags, cases = parser.only(all_cases(), QUICK)

    session = sessions.Session(
        flags=flags,
        cases=cases,
        examples=[example for _, example, *_ in cases],
        measure=lambda case, repeat: measure(case, repeat, flags),
        words=f"{WORKERS} workers, {flags.updates} updates; KB that a worker sends in an update",
    )
    report = sessions.Report(script=__file__, flags=flags, width=150, table_of=table_of, draw=draw)
    report.make(session.measure_all)


if __name__ == "__main__":
    main()
