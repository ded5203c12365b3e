"""Each committed table is what its script makes of its results, and measures what it says.

Nothing trains here.
"""

import io
import json
import sys
import types

import pytest
from lab import examples
from lab.measure import sessions
from measurements import (
    EXPERIMENTS,
    FORMS,
    MEASUREMENTS,
    RATES,
    SHARED_FLAGS,
    asked,
    committed,
    in_table,
    load,
    place_of,
)
from rich.console import Console

RESULTS = sorted(MEASUREMENTS.glob("*/results*.json"))
RESULTS = [path for path in RESULTS if "digests" not in path.name and "Compare" not in path.parts]


def reported(name, source, monkeypatch):
    """Returns the Report of a driver that draws a file again."""
    drawn = []
    monkeypatch.setattr(sessions.Report, "draw_again", lambda report: drawn.append(report))
    monkeypatch.setattr(sys, "argv", [name, "--redraw", str(source)])
    load(name).main()
    return drawn[0]


@pytest.mark.parametrize("source", RESULTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_committed_table_is_that_of_its_results(source, monkeypatch):
    """Catches a table that its driver makes otherwise today: from other rows, another median."""
    report = reported(source.parent.name, source, monkeypatch)
    table = report.table_of(json.loads(source.read_text()))
    console = Console(width=report.width, file=io.StringIO(), record=True)
    console.print(table)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    committed = source.with_name(source.stem.replace("results", "table") + ".txt").read_text()
    assert committed.splitlines()[: len(lines)] == lines
    assert len(committed.splitlines()) > len(lines)


def of(source, name="table"):
    """Returns a function: the table that a script makes of a file of results beside it."""
    return lambda module, folder: getattr(module, name)(json.loads((folder / source).read_text()))


FAULTS = "Operations/Fault-Tolerance/fault_tolerance.py"
PAGE_TABLES = {  # a table that a page shows: its script, and how that one makes it
    "tables_by_rows.txt": (
        "Sparse-Embeddings/tables_by_rows.py",
        of("tables_by_rows.json", "table_of"),
    ),
    "vocabulary.txt": ("Sparse-Embeddings/vocabulary.py", of("vocabulary.json")),
    "batch_sizes.txt": ("Synchronous-SGD/batch_sizes.py", of("batch_sizes.json")),
    "compare_rates.txt": (
        "Synchronous-SGD-different-learning-rates/compare_rates.py",
        of("compare_rates.json"),
    ),
    "retries.txt": ("Parameter-Server-Strategy/retries.py", of("retries.json")),
    "forms.txt": (FORMS, of("forms.json", "forms_table")),
    "gpu.txt": ("Measurements/Benchmarks/gpu.py", of("gpu.json")),
    "start_up.txt": ("Beyond-One-Machine/start_up.py", of("start_up.json")),
    "kills.txt": ("Beyond-One-Machine/Spark-Cluster/kills.py", of("kills.json")),
    "measured.txt": (EXPERIMENTS + "measure.py", of("measured.json")),
    "matrix.txt": (
        "Your-Model/matrix.py",
        lambda module, folder: module.table_of(
            json.loads((folder / "matrix.json").read_text())["cells"]
        ),
    ),
    "table.txt": (FAULTS, lambda module, folder: module.page_table(folder)),
    **{
        name: (RATES, lambda *given, name=name: of("rates.json", "tables")(*given)[name])
        for name in ("rates_ways.txt", "rates_alone.txt")
    },
}


@pytest.mark.parametrize("name", PAGE_TABLES)
def test_a_table_of_a_page_is_that_of_its_results(name):
    """Catches the same of a script that makes the Markdown of a page."""
    script, table = PAGE_TABLES[name]
    folder = place_of(script).parent
    assert (folder / name).read_text() == table(load(script), folder) + "\n"


# What main() asks for, and what the table then says ----------------------------------------------

STALENESS_FLAGS = {"updates": 1000, "pushes": 400, "rate": 0.1, "move": 0.125, "every": 20}
FEW_OF_SLOW_NETWORK = [
    f"69 KB, {rate} Mbit/s: {name}"
    for rate in (10, 100, 1000)
    for name in ("HogWild", "Synchronous-SGD", "Ring-AllReduce", "Collective-AllReduce")
]
SITTINGS = {  # a measurement: (its flags, the cases without --full, what else measure() gets)
    "Compression": (
        {"updates": 2000},
        [
            f"{name}: Further-Algorithms/Compressed-AllReduce"
            for name in ("PowerSGD, rank 1", "sign")
        ]
        + ["sign, without e: Further-Algorithms/Compressed-AllReduce"],
        lambda flags: [flags],
    ),
    "Scaling": (
        {"batches": 1000},
        ["1 worker, constant: HogWild"]
        + [f"{n} workers, exponential: HogWild" for n in (2, 8)]
        + [f"{n} workers, exponential: Synchronous-SGD" for n in (2, 8)]
        + ["8 workers, exponential: Synchronous-SGD, a backup"],
        lambda flags: [flags.batches],
    ),
    "Slow-Network": ({}, FEW_OF_SLOW_NETWORK, lambda flags: []),
    "Staleness": (
        STALENESS_FLAGS,
        [f"at most {n} ahead: Further-Algorithms/Bounded-Staleness" for n in (1, 5)]
        + ["no bound: HogWild"]
        + [f"N = {n}: Further-Algorithms/Async-Local-SGD" for n in (1, 8)],
        lambda flags: [flags],
    ),
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", SITTINGS)
def test_a_session_measures_what_its_table_says(name, full, monkeypatch):
    """With --full these are the cases of the committed results, and the last line fits the flags.

    Catches: another default, a case that is left out, a flag that changes nothing, and the name of
    an example that is not there, with which --full ended at once.
    """
    own, few, more = SITTINGS[name]
    module = load(name)
    if name == "Slow-Network":
        module.hosts = types.SimpleNamespace(
            enter=lambda: None, make=lambda n: n, Unavailable=OSError
        )
    monkeypatch.setattr(sessions.Session, "measure_all", lambda session: session)
    report, measure_all = asked(module, *["--full"] * full)
    assert (report.table_of, report.draw) == (module.table_of, module.draw)
    assert vars(report.flags) == {**own, **SHARED_FLAGS, "full": full, "repeats": 3}
    module.measure = lambda *arguments: list(arguments)
    session = measure_all()
    assert session.flags is report.flags
    assert len(session.examples) == len(session.cases)
    assert all(examples.main_script(example).exists() for example in session.examples)
    names = [case[0] for case in session.cases]
    assert sorted(names) == sorted(committed(name) if full else few)
    assert names == [case for case in committed(name) if case in names]
    hosts = [6] if name == "Slow-Network" else []
    second = session.cases[1]
    assert session.measure(second, 5) == [*hosts, second, 5, *more(session.flags)]
    if full:
        assert in_table(name, f"{session.words}; median (range) of 3; 2")
        due = json.loads((MEASUREMENTS / name / "results_digests.json").read_text())
        # The optimizer was measured before its digest was noted.
        later = {"From-TensorFlow-1/Synchronous-SGD-Optimizer"} if name == "Scaling" else set()
        assert set(session.examples) == {*due, *later}
