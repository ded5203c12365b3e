"""The tables of Compare: all columns as text, and a few in Markdown for its page.

In every median a run that failed or never arrived is later, and its loss higher, than any other. A
time has "≤" where already the first mean of looks was at the target. A CV is measured only with a
parameter server, from pull to push: no gradient's with AEASGD and AEAMSGD.
"""

import math
import re
import statistics
from collections.abc import Collection, Mapping
from typing import Any

import verdict
from lab.measure import text_tables
from lab.pages import result_tables
from report import Results
from rich.table import Table

SHOWN_TASKS = 2  # tasks whose tables the page shows
ONE_PROCESS_ROWS = ("Non-Distributed-Setup", "Non-Distributed-Setup, 2 threads")


def by_task(results: Results) -> dict[str, Results]:
    """Returns {task: {row: its result}}."""
    tasks: dict[str, Results] = {}
    for case, result in results.items():
        task, row = case.split(": ", 1)
        tasks.setdefault(task, {})[row] = result
    return tasks


def label(row: str) -> str:
    """Returns what a table calls a row."""
    return row.removeprefix(verdict.FURTHER)


def number_of(result: dict[str, Any], what: str) -> list[tuple[float, bool]]:
    """Returns [(what each run has found, whether it may be less)].

    A run that has not found it counts as the worst: infinity, or none right.
    """
    values = verdict.values(result, what)
    if what == "accuracy":
        values = [0.0 if value == math.inf else value for value in values]
    early = what.endswith("_to") or what == verdict.SECONDS
    return [
        (value, early and verdict.at_first_look(run, run.get(verdict.SECONDS, math.inf)))
        for value, run in zip(values, result["runs"])
    ]


def median_of(result: dict[str, Any], what: str) -> float | None:
    """Returns the median of all runs, a failure counted as infinity; None without any run."""
    values = [value for value, _ in number_of(result, what)]
    return statistics.median(values) if values else None


def text(pair: tuple[float, bool], form: str) -> str:
    """Returns a number as a cell shows it."""
    value, early = pair
    return ("≤ " if early else "") + form.format(value)


def median_in_words(result: dict[str, Any], what: str, form: str, times: float = 1) -> str:
    """Returns the median in words, nothing where half of the runs have none: "≤ 2.0"."""
    pairs = sorted(number_of(result, what))
    values = [value for value, _ in pairs]
    if not values or statistics.median(values) == math.inf:
        return ""
    value, early = statistics.median(values), pairs[len(pairs) // 2][1]
    return text((times * value, early), form)


def spread(
    result: dict[str, Any], what: str, form: str, times: float = 1, never: str = "failed"
) -> str:
    """Returns median and range in words: "2.31 (2.02–2.90)", "5.38 (5.03–never)"."""
    pairs = sorted((times * value, early) for value, early in number_of(result, what))
    if not pairs or pairs[0][0] == math.inf:
        return never
    least, greatest = text(pairs[0], form), never
    if pairs[-1][0] < math.inf:
        greatest = text(pairs[-1], form)
    return f"{median_in_words(result, what, form, times) or never} ({least}–{greatest})"


def seconds(result: dict[str, Any]) -> str:
    """Returns the seconds to the target in words."""
    return spread(result, verdict.SECONDS, "{:.2f}", never="never")


def known_median(result: dict[str, Any], what: str, form: str) -> str:
    """Returns the median of the runs that did not fail, such as of their staleness."""
    values = [run[what] for run in result["runs"] if run.get(what) is not None]
    return form.format(statistics.median(values)) if values else ""


def shorten(words: str) -> str:
    """Returns flags as a table shows them: "lr 0.1, T 10, rho 2.5"."""
    words = re.sub(r" --(\S+)", r", \1", re.sub(r"^--learning-rates?", "lr", words))
    words = words.replace("local-steps", "T")
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.3g}", words)


def is_example(row: str) -> bool:
    """Returns whether a row is an example as it is, no control."""
    return ", " not in row


def setting(result: dict[str, Any]) -> str:
    """Returns the flags that were chosen, as a table shows them."""
    if result["setting"] is None:
        return "none trains"
    end = " (the search did not end)" if result["edge"] else ""
    return shorten(result["setting"]) + end


def tests(result: dict[str, Any]) -> str:
    """Returns the median of a run's tests."""
    numbers = [run["tests"] for run in result["runs"] if "tests" in run]
    return f"{statistics.median(numbers):.0f}" if numbers else ""


def failures(result: dict[str, Any]) -> str:
    """Returns how many runs failed, "" where none did."""
    number = sum("failed" in run for run in result["runs"])
    return f"{number} of {len(result['runs'])}" if number else ""


def never_arrived(result: dict[str, Any]) -> str:
    """Returns how many runs never came to the target, "" where all did."""
    number = sum(value == math.inf for value in verdict.values(result, verdict.SECONDS))
    return f"{number} of {len(result['runs'])}" if number else ""


def beside_one(results: Results, task: str, row: str) -> str:
    """Returns the verdict on a row beside the best single process: sooner, later, or neither: –."""
    rows = by_task(results)[task]
    medians = {}
    for name in ONE_PROCESS_ROWS:
        median = median_of(rows[name], verdict.SECONDS) if name in rows else None
        if median is not None:
            medians[name] = median
    if not medians or row in ONE_PROCESS_ROWS or not rows[row]["runs"]:
        return ""
    best = min(medians, key=medians.__getitem__)
    less = verdict.verdict(results, task, row, best)
    return {True: "sooner", False: "later", None: "–"}[less]


def target(result: dict[str, Any]) -> str:
    """Returns what the runs of a row shall reach, in words."""
    what, number = result["target"]
    if what == "accuracy":
        return f"{number:.0%}"
    return "a loss that one process had" if number is None else f"a loss of {number:.3f}"


def shares_accuracy(result: dict[str, Any]) -> bool:
    """Returns whether the metric of a row's runs is a share, such as 0.97."""
    return result["target"][0] == "accuracy"


def table_of(results: Results) -> Table:
    """Returns the table with all columns."""
    columns = ["task", "example", "tasks", "setting", "tuning runs", "tests", "test loss"]
    columns += [
        "training loss",
        "accuracy in %",
        "seconds to it",
        "never",
        "beside one process",
        "examples to it",
    ]
    columns += ["MB to it", "MB in all", "staleness", "CV", "failures"]
    table = text_tables.plain_table(*columns)
    for task, rows in by_task(results).items():
        reached = target(next(iter(rows.values())))
        for number, (row, result) in enumerate(rows.items()):
            jobs = result["tasks"]
            accuracy = spread(result, "accuracy", "{:.1f}", 100) if shares_accuracy(result) else ""
            table.add_row(
                [task, f"to {reached}"][number] if number < 2 else "",
                label(row),
                f"{jobs['ps']} ps, {jobs['workers']} w" if jobs else "",
                setting(result),
                str(len(result["tries"]) or ""),
                tests(result),
                spread(result, verdict.LOSS, "{:.3f}"),
                median_in_words(result, "training", "{:.3f}"),
                accuracy,
                seconds(result),
                never_arrived(result),
                beside_one(results, task, row),
                median_in_words(result, "examples_to", "{:,.0f}"),
                median_in_words(result, "megabytes_to", "{:.1f}"),
                known_median(result, "megabytes", "{:.1f}"),
                known_median(result, "staleness_mean", "{:.2f}"),
                known_median(result, "cv", "{:.2f}"),
                failures(result),
            )
        table.add_section()
    return table


def missing(results: Results, due: Mapping[str, Collection[str]]) -> str:
    """Returns a sentence about what is not measured, if anything. due: {task: its rows}."""
    measured_tasks, parts = by_task(results), []
    for task, rows in due.items():
        number = len(set(rows) & set(measured_tasks.get(task, ())))
        if number < len(rows):
            parts.append(f"*{task}*" + (f" ({number} of {len(rows)} rows are)" if number else ""))
    return f"Not yet measured: {'; '.join(parts)}." if parts else ""


def page(results: Results, due: Mapping[str, Collection[str]], words: str) -> str:
    """Returns the tables of the page in Markdown, narrow enough for GitHub.

    They are those of the first tasks; the others, and the controls, stand in table.txt only.
    words: what stands behind them, such as when and where this was measured.
    """
    parts, shown_tasks = [], list(due)[:SHOWN_TASKS]
    for task, rows in by_task(results).items():
        if task not in shown_tasks:
            continue
        result = next(iter(rows.values()))
        length = f", {result['seconds']:g} s each" if result["seconds"] else ""
        seeds = max(len(result["runs"]) for result in rows.values())
        heading = f"{task}: medians (ranges) of {seeds} runs{length}"
        examples_only = {row: result for row, result in rows.items() if is_example(row)}
        columns = ["example", "setting", "test loss", f"seconds to {target(result)}"]
        has_failures = any(failures(result) for result in examples_only.values())
        if has_failures:
            columns.append("failures")
        cells = []
        for row, result in examples_only.items():
            loss, arrival = "", ""
            if result["runs"]:
                loss = median_in_words(result, verdict.LOSS, "{:.3f}") or "failed"
                arrival = mark_verdict(seconds(result), beside_one(results, task, row))
            cells.append([label(row), setting(result), loss, arrival])
            if has_failures:
                cells[-1].append(failures(result))
        table = re.sub(r"(?<=\|)  (?=\|)", " ", result_tables.table(columns, cells))
        parts.append(f"**{heading}**\n\n{table}")
    noises = verdict.noises(results, verdict.SECONDS)
    floor = ", ".join(f"*{task}* {share:.0%}" for task, share in noises.items())
    floor = f" A/A: {floor}." if floor else ""
    return "\n\n".join([*parts, f"{missing(results, due)}{floor} {words}".strip()])


def mark_verdict(cell: str, beside: str) -> str:
    """Returns the seconds of a row; they are bold where it is sooner than one process."""
    return {"sooner": f"**{cell}**", "later": f"{cell}, later"}.get(beside, cell)


def compared_cells(result: dict[str, Any]) -> list[str]:
    """Returns the cells of a row for the page of its example: its setting, seconds, test loss."""
    if result["setting"] is None:
        return ["no setting that trains", "never", "failed"]
    return [setting(result), seconds(result), spread(result, verdict.LOSS, "{:.3f}")]
