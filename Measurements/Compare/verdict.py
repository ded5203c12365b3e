"""Which of two rows of Compare is sooner at its target or at a loss, or whether nothing tells.

One is sooner than another if two things hold. An exact two-sided rank test (Mann-Whitney, over all
ways to divide the runs in two) separates their seconds to the target with p below 0.01; a run that
fails or never arrives is later than any other. And the medians are further apart, as a share of the
smaller one, than those of the A/A row: one algorithm, measured twice with other seeds. Where a task
has no A/A row, the greatest share of all tasks counts. In any other case they are not separable.

With five runs of each, p is below 0.01 only if every run of one is before every run of the other.

A page says such a thing beside a mark, which a test holds to the committed results:
    <!-- sooner: 8 workers, CV 1: HogWild / Synchronous-SGD; Local-SGD -->
    <!-- not separable: 8 workers, CV 0.1: HogWild / Ring-AllReduce -->
    <!-- sooner to a loss of 0.3, 0.2: 8 workers, CV 1: Non-Distributed-Setup; HogWild / SAGN -->
    <!-- less in training loss: 8 workers, CV 1: HogWild / SAGN -->
The third one compares the seconds to these test losses, found as those to the target are; the last
one the losses at the end of the runs, of training or test, by the A/A row's there. To a test loss
that counts both there and at the target. Each row before the / is compared with each behind it.

    python verdict.py "8 workers, CV 1: HogWild / Synchronous-SGD"    what results.json says
"""

import itertools
import json
import math
import pathlib
import re
import statistics
from collections.abc import Sequence
from typing import Any

import report
from lab.measure import arguments
from report import Results

Quantity = str | float  # the name of a number, such as SECONDS, or a test loss

LEVEL = 0.01  # p of a difference is below it
AGAIN_SUFFIX = ", A/A"  # behind the name of a row that was measured a second time
FURTHER = "Further-Algorithms/"
SECONDS, LOSS = "reached", "loss"
# A mark: whether the first is sooner, or less; None: neither.
MARKS = {"sooner": True, "less": True, "not separable": None}
LAST_LOSSES = {"training loss": "training", "test loss": LOSS}  # at the end of a run
MARK = re.compile(
    rf"<!-- ({'|'.join(MARKS)})(?: (?:to a loss of|in) ([\d., ]+|{'|'.join(LAST_LOSSES)}))?"
    r": ([^:]+): (.+?) / (.+?) -->"
)


def plain_name(row: str) -> str:
    """Returns the name of a row as a mark may write it: HTML allows no -- in a comment."""
    return row.removeprefix(FURTHER).replace("--", "")


def rows_of(results: Results, task: str) -> Results:
    """Returns {plain name of a row: its result} of a task's rows that have runs."""
    rows = {}
    for case, result in results.items():
        case_task, row = report.task_and_row(case)
        if case_task == task and result["runs"]:
            rows[plain_name(row)] = result
    return rows


def at_first_look(run: dict[str, Any], seconds: float | None) -> bool:
    """Returns whether a run may have been before these seconds where it was at them."""
    return seconds is not None and seconds == run.get("first_look")


def values(result: dict[str, Any], what: Quantity, least: bool = False) -> list[float]:
    """Returns what each run has reached; infinity of one that has not.

    what: the name of a number, such as SECONDS; or a test loss: the seconds to it. least: what was
    reached at the first look counts as reached at once.
    """
    numbers, is_a_loss = [], isinstance(what, float)
    for run in result["runs"]:
        value = run.get(what)
        if is_a_loss:
            value = dict(zip(result["losses"], run.get("seconds_to", ()))).get(what)
        early = (is_a_loss or what == SECONDS) and at_first_look(run, value)
        value = math.inf if value is None else value
        numbers.append(0.0 if least and early else value)
    return numbers


def probability(numbers: Sequence[float], other_numbers: Sequence[float]) -> float:
    """Returns the two-sided p of the exact rank test. Equal values share their mean rank."""
    pooled = sorted([*numbers, *other_numbers])
    ranks = [
        (pooled.index(value) + len(pooled) - pooled[::-1].index(value) + 1) / 2
        for value in (*numbers, *other_numbers)
    ]
    mean = len(numbers) * (len(pooled) + 1) / 2
    observed = abs(sum(ranks[: len(numbers)]) - mean)
    distances = [abs(sum(group) - mean) for group in itertools.combinations(ranks, len(numbers))]
    return sum(group >= observed - 1e-9 for group in distances) / len(distances)


def share(median: float, other_median: float) -> float:
    """Returns how far two medians are apart, as a share of the smaller one."""
    lesser, greater = sorted((median, other_median))
    if lesser == math.inf:
        return 0.0
    return (greater - lesser) / lesser if lesser else math.inf


def noises(results: Results, what: Quantity) -> dict[str, float]:
    """Returns {task: the share by which the medians of its A/A row differ}."""
    shares = {}
    for case, result in results.items():
        base = results.get(case.removesuffix(AGAIN_SUFFIX))
        if case.endswith(AGAIN_SUFFIX) and base and base["runs"] and result["runs"]:
            medians = [statistics.median(values(either, what)) for either in (base, result)]
            if min(medians) < math.inf:
                task, _ = report.task_and_row(case)
                shares[task] = share(*medians)
    return shares


def noise(results: Results, task: str, what: Quantity) -> float | None:
    """Returns the share of a task, or else the greatest of all tasks; None where there is none.

    To a loss runs often come at one look, so the share to the target counts if it is greater.
    """
    quantities = [what]
    if what not in LAST_LOSSES.values():
        quantities.append(SECONDS)
    shares = []
    for quantity in quantities:
        share_of_task = noises(results, quantity)
        if share_of_task:
            shares.append(share_of_task.get(task, max(share_of_task.values())))
    return max(shares, default=None)


def is_less(results: Results, task: str, row: str, other: str, what: Quantity = SECONDS) -> bool:
    """Returns whether one row of a task is sooner than another, or its number is less."""
    rows, floor = rows_of(results, task), noise(results, task, what)
    row_values = values(rows[plain_name(row)], what)
    other_values = values(rows[plain_name(other)], what, least=True)
    median, other_median = statistics.median(row_values), statistics.median(other_values)
    if floor is None or median >= other_median:
        return False
    return probability(row_values, other_values) < LEVEL and share(median, other_median) > floor


def verdict(
    results: Results, task: str, row: str, other: str, what: Quantity = SECONDS
) -> bool | None:
    """Returns which of two rows is less: True: the first, False: the second, None: neither."""
    if is_less(results, task, row, other, what):
        return True
    return False if is_less(results, task, other, row, what) else None


def fault(
    results: Results, mark: str, losses: str, task: str, first_rows: str, second_rows: str
) -> str | None:
    """Returns a sentence if the results do not say what a mark says; None if they do.

    losses: to which test losses, in digits; or which of LAST_LOSSES; "" for the task's target.
    """
    rows = rows_of(results, task)
    first, second = first_rows.split("; "), second_rows.split("; ")
    if missing := [name for name in (*first, *second) if plain_name(name) not in rows]:
        return f"the results have no row {missing[0]} of the task {task}"
    quantities: list[Quantity] = [
        LAST_LOSSES.get(loss) or float(loss) for loss in losses.split(", ") if loss
    ]
    if not quantities:
        quantities = [SECONDS]
    known_quantities = [*LAST_LOSSES.values(), SECONDS, *report.LOSSES]
    if unknown := [quantity for quantity in quantities if quantity not in known_quantities]:
        return f"the results have no seconds to a loss of {unknown[0]:g}, but to {report.LOSSES}"
    for quantity, row, other in itertools.product(quantities, first, second):
        less_than = verdict(results, task, row, other, quantity)
        if less_than is MARKS[mark]:
            continue
        if less_than is None:
            return f"{task}: {row} and {other} are not separable"
        lesser, greater = (row, other) if less_than else (other, row)
        return f"{task}: {lesser} is {'less' if losses in LAST_LOSSES else 'sooner'} than {greater}"
    return None


def in_words(results: Results, task: str, row: str, other: str, what: Quantity) -> str:
    """Returns the verdict on two rows in a line, with the numbers from which it follows."""
    rows = rows_of(results, task)
    row_values = values(rows[plain_name(row)], what)
    other_values = values(rows[plain_name(other)], what)
    floor = noise(results, task, what)
    names = {True: row, False: other, None: "not separable"}
    lesser = names[verdict(results, task, row, other, what)]
    medians = f"{statistics.median(row_values):g} and {statistics.median(other_values):g}"
    again = "none" if floor is None else f"{floor:.0%}"
    p = probability(row_values, other_values)
    return f"{lesser} (p = {p:.3f}, medians {medians}, A/A: {again})"


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.add_argument("pair", help='"TASK: ROW / ROW"')
    losses = ", ".join(f"{loss:g}" for loss in report.LOSSES)
    parser.add_argument(
        "--loss",
        type=float,
        choices=report.LOSSES,
        metavar="LOSS",
        help=f"to this test loss, not to the target: {losses}",
    )
    flags = parser.parse_args()
    pair = re.fullmatch(r"(.+?): (.+) / (.+)", flags.pair)
    path = pathlib.Path(__file__).with_name("results.json")
    if not path.exists():
        parser.error(f"there is no {path}")
    if not pair:
        parser.error('write "TASK: ROW / ROW"')
    results = json.loads(path.read_text())
    assert pair  # or the parser has ended this process
    task, row, other = pair.groups()
    rows = rows_of(results, task)
    if missing := [name for name in (row, other) if plain_name(name) not in rows]:
        parser.error(f"the results have no row {missing[0]} of the task {task}")
    print("sooner:", in_words(results, task, row, other, flags.loss or SECONDS))


if __name__ == "__main__":
    main()
