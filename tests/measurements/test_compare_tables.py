"""What the tables and pictures of Compare show, and its committed results.

Nothing trains here.
"""

import io
import json

import pytest
from compared import DIFFERENT, DRAWING, EQUAL, LATER, ONE, SOON, TABLES, in_task, result
from measurements import MEASUREMENTS, cells, figures, load, points
from rich.console import Console

# What is shown -----------------------------------------------------------------------------------


def cells_of(page):
    """Returns the cells of a page's Markdown tables, without the lines below their heads."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def test_the_cells():
    """Failures are never in every median; "≤" stands where the first mean was at the target.

    Catches: a median of the runs that arrive, a failure counted as right, rows compared the
    other way round, and controls on the page.
    """
    module = load(TABLES)
    seconds = {
        "2.20 (2.00–2.40)": SOON,
        "3.00 (2.00–never)": [2.0, 3.0, None, 2.5, "x"],
        "never (2.00–never)": [2.0, None, None, 2.5, "x"],
        "never": [None, "x", None, None, None],
        "≤ 0.50 (≤ 0.50–2.00)": [0.5, 0.5, 0.5, 1.0, 2.0],
        "1.00 (≤ 0.50–2.00)": [0.5, 1.0, 0.5, 1.0, 2.0],
    }
    assert [module.seconds(result(times)) for times in seconds.values()] == list(seconds)
    broken = result([2.0, "x", "x", 3.0, "x"])
    assert module.spread(broken, "loss", "{:.1f}") == "failed (0.1–failed)"
    assert module.spread(broken, "accuracy", "{:.0f}", 100) == "0 (0–98)"
    assert module.median_in_words(result([0.5] * 5), "examples_to", "{:.0f}") == "≤ 50"
    assert module.median_in_words(broken, "examples_to", "{:.0f}") == ""
    assert [module.failures(broken), module.never_arrived(broken)] == ["3 of 5"] * 2
    assert [module.failures(result(SOON)), module.never_arrived(result(SOON))] == ["", ""]
    text = "--learning-rate 0.141 --local-steps 10 --rho 0.198763"
    assert module.setting(result(SOON, text)) == "lr 0.141, T 10, rho 0.199"
    late = result(SOON, text, edge=True)
    assert module.setting(late).endswith("(the search did not end)")
    results = in_task(EQUAL, one=result(LATER), A=result(SOON), AA=result([2.2] * 5))
    results |= in_task(EQUAL, SAGN=result([None] * 5), D=result([2.9, 3.0, 3.1, 3.2, 3.3]))
    results |= {f"{EQUAL}: ADAG": result([], None)}
    shown_rows = {row[1]: row for row in cells(module.table_of(results))}
    beside = ["", "sooner", "sooner", "later", "–", ""]
    assert [row[11] for row in shown_rows.values()] == beside
    row = ["1 ps, 8 w", "lr 0.1", "", "2", "0.300 (0.100–0.500)", "0.050"]
    assert shown_rows["HogWild"][2:10] == [*row, "98.0 (98.0–98.0)", "2.20 (2.00–2.40)"]
    assert module.tests({"runs": [{"tests": 3}, {"failed": "no port"}]}) == "3"
    page = module.page(results, {EQUAL: [ONE, "HogWild"], "x": ["a"]}, "here.")
    shown = {"HogWild": "**2.20 (2.00–2.40)**", "SAGN": "never, later"}
    shown |= {"DiLoCo": "3.10 (2.90–3.30)"}
    assert {row[0]: row[3] for row in cells_of(page) if row[0] in shown} == shown

    assert "A/A |" not in page
    broken = in_task(EQUAL, one=result(LATER), A=result([2.0, "x", "x", 3.0, "x"]))
    failed = module.page(broken, {EQUAL: [ONE, "HogWild"]}, "here.")
    assert [row[4:] for row in cells_of(failed)] == [["failures"], [""], ["3 of 5"]]
    assert f"Not yet measured: *x*. A/A: *{EQUAL}* 0%. here." in page
    assert "measured" not in module.page(results, {EQUAL: [ONE, "HogWild"]}, "here.")
    text = f"Not yet measured: *{EQUAL}* (1 of 2 rows are)."
    assert module.missing(results, {EQUAL: [ONE, "y"]}) == text


def test_the_pictures():
    """A dot is a run, a bar their median; what never arrives stands in the band to the right.

    Catches: lines and bars of the runs that arrive or did not fail, and runs that never arrive
    left out.
    """
    module = load(DRAWING)
    drawn = figures(module)
    rows = {
        "one": result(LATER),
        "A": result([2.0, 3.0, None, 2.5, "x"]),
        "SAGN": result([None] * 5),
    }
    results = {**in_task(EQUAL, **rows), **in_task(DIFFERENT, **rows)}
    module.draw_seconds(results, module.FRONT, [ONE, "HogWild", "SAGN"], None, None)
    axes = drawn[0].axes[0]
    bars = [points(line)[0] for line in axes.lines if line.get_marker() == "|"]
    behind = 1.07 * 6
    assert [x for x, _ in bars] == pytest.approx([3.2, 3.0, behind])
    dots = [points(line) for line in axes.lines if line.get_marker() == "o"]
    assert [len(part) for part in dots] == [5, 3, 0]
    crosses = [points(line)[0] for line in axes.lines if line.get_marker() == "x"]
    assert [y for _, y in crosses] == [1, 2]
    assert {x for x, _ in crosses} == {behind} and axes.get_xlim()[1] > behind
    assert [text.get_text() for text in axes.texts] == ["2", "5", "never"]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["one process", "HogWild", "SAGN"]
    assert [part.get_ylim() for part in drawn[0].axes] == [(2.6, -0.6)] * 2
    rows = dict.fromkeys(module.LAWS, result([2.0, 3.0, None, 2.5, "x"]))
    rows["ADAG"] = result([None] * 5)
    tasks = [EQUAL, DIFFERENT, f"{EQUAL}, not", "8 workers, CV 0"]
    results = {name: part for task in tasks for name, part in in_task(task, **rows).items()}
    tasks = module.by_law(module.tables.by_task(results))
    module.draw_laws(results, tasks, module.LAWS, None, None)
    axes = drawn[1].axes[0]
    lines = [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() != "None"]
    assert lines[2:5] == [[3.0] * 3, [behind] * 3, [3.0] * 3]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "0.1", "1"]
    rounds = module.rounds(
        {f"L --local-steps {T}": result([2.0, "x", 2, 2, 2]) for T in (5, 1)}, "loss"
    )
    assert [x for part in rounds["L"] for x in part] == pytest.approx(
        [1, 0.1, 0.4, 0.5, 5, 0.1, 0.4, 0.5]
    )


# The committed results ---------------------------------------------------------------------------


def committed():
    """Returns the committed results of Compare; none before they are measured."""
    path = MEASUREMENTS / "Compare" / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def test_the_committed_tables_are_those_of_the_results():
    """Catches a table that the driver makes otherwise today, or a row that a table lacks."""
    module, results, folder = load("Compare"), committed(), MEASUREMENTS / "Compare"
    assert (folder / "page.txt").read_text() == module.page_of(results) + "\n"
    assert (folder / "table.txt").exists() == bool(results)
    if results:
        console = Console(width=module.WIDTH, file=io.StringIO(), record=True)
        console.print(module.tables.table_of(results))
        lines = [line.rstrip() for line in console.export_text().splitlines()]
        table = (folder / "table.txt").read_text().splitlines()
        assert table == [*lines, module.report.when_and_where(results)]


def test_the_committed_results_are_whole():
    """Catches seeds that are few or double, a setting never tried, a search without an end."""
    module = load("Compare")
    for case, kept in committed().items():
        task, name = case.split(": ", 1)
        assert name in module.TASKS[task].rows, case
        if kept["setting"] is None:
            continue
        row = module.row_of(name)
        seeds = [run["seed"] for run in kept["runs"]]
        assert seeds == list(range(row.first_seed, row.first_seed + module.SEEDS)), case
        assert len(kept["tries"]) <= module.search.MOST_TRIES, case
        assert not kept["edge"] or len(kept["tries"]) == module.search.MOST_TRIES, case
        tuned = bool(module.hyperparameters_of(name, module.TASKS[task]))
        assert tuned == (kept["setting"] in [attempt[0] for attempt in kept["tries"]]), case
