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

import report
from lab.measure import arguments

LEVEL = 0.01  # p of a difference is below it
AGAIN = ", A/A"  # behind the name of a row that was measured a second time
FURTHER = "Further-Algorithms/"
SECONDS, LOSS = "reached", "loss"
# A mark: whether the first is sooner, or less; None: neither.
MARKS = {"sooner": True, "less": True, "not separable": None}
LAST = {"training loss": "training", "test loss": LOSS}  # at the end of a run
MARK = re.compile(
    rf"<!-- ({'|'.join(MARKS)})(?: (?:to a loss of|in) ([\d., ]+|{'|'.join(LAST)}))?"
    r": ([^:]+): (.+?) / (.+?) -->"
)


def plain(row):
    """Returns the name of a row as a mark may write it: HTML allows no -- in a comment."""
    return row.removeprefix(FURTHER).replace("--", "")


def rows_of(results, task):
    """Returns {plain name of a row: its result} of a task's rows that have runs."""
    cases = ((case.split(": ", 1), result) for case, result in results.items())
    return {
        plain(row): own_result
        for (own, row), own_result in cases
        if own == task and own_result["runs"]
    }


def at_first_look(run, seconds):
    """Returns whether a run may have been before these seconds where it was at them."""
    return seconds is not None and seconds == run.get("first_look")


def values(result, what, least=False):
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


def probability(ones, others):
    """Returns the two-sided p of the exact rank test. Equal values share their mean rank."""
    everything = sorted([*ones, *others])
    ranks = [
        (everything.index(value) + len(everything) - everything[::-1].index(value) + 1) / 2
        for value in (*ones, *others)
    ]
    mean = len(ones) * (len(everything) + 1) / 2
    observed = abs(sum(ranks[: len(ones)]) - mean)
    apart = [abs(sum(group) - mean) for group in itertools.combinations(ranks, len(ones))]
    return sum(group >= observed - 1e-9 for group in apart) / len(apart)


def share(one, other):
    """Returns how far two medians are apart, as a share of the smaller one."""
    less, more = sorted((one, other))
    if less == math.inf:
        return 0.0
    return (more - less) / less if less else math.inf


def noises(results, what):
    """Returns {task: the share by which the medians of its A/A row differ}."""
    shares = {}
    for case, result in results.items():
        base = results.get(case.removesuffix(AGAIN))
        if case.endswith(AGAIN) and base and base["runs"] and result["runs"]:
            medians = [statistics.median(values(either, what)) for either in (base, result)]
            if min(medians) < math.inf:
                shares[case.split(": ", 1)[0]] = share(*medians)
    return shares


def noise(results, task, what):
    """Returns the share of a task, or else the greatest of all tasks; None where there is none.

    To a loss runs often come at one look, so the share to the target counts if it is greater.
    """
    floors = [noises(results, one) for one in (what, what if what in LAST.values() else SECONDS)]
    shares = [by_task.get(task, max(by_task.values(), default=-1)) for by_task in floors]
    return max(shares) if max(shares) >= 0 else None


def is_less(results, task, one, other, what=SECONDS):
    """Returns whether one row of a task is sooner than another, or its number is less."""
    rows, floor = rows_of(results, task), noise(results, task, what)
    ones, others = values(rows[plain(one)], what), values(rows[plain(other)], what, least=True)
    middle, later = statistics.median(ones), statistics.median(others)
    if floor is None or middle >= later:
        return False
    return probability(ones, others) < LEVEL and share(middle, later) > floor


def verdict(results, task, one, other, what=SECONDS):
    """Returns which of two rows is less: True: the first, False: the second, None: neither."""
    if is_less(results, task, one, other, what):
        return True
    return False if is_less(results, task, other, one, what) else None


def fault(results, mark, losses, task, ones, others):
    """Returns a sentence if the results do not say what a mark says; None if they do.

    losses: to which test losses, in digits; or which of LAST; "" for the target of the task.
    """
    rows, ones, others = rows_of(results, task), ones.split("; "), others.split("; ")
    if missing := [row for row in (*ones, *others) if plain(row) not in rows]:
        return f"the results have no row {missing[0]} of the task {task}"
    whats = [LAST.get(loss) or float(loss) for loss in losses.split(", ") if loss] or [SECONDS]
    known = [*LAST.values(), SECONDS, *report.LOSSES]
    if unknown := [what for what in whats if what not in known]:
        return f"the results have no seconds to a loss of {unknown[0]:g}, but to {report.LOSSES}"
    for what, one, other in itertools.product(whats, ones, others):
        less_than = verdict(results, task, one, other, what)
        if less_than is MARKS[mark]:
            continue
        if less_than is None:
            return f"{task}: {one} and {other} are not separable"
        less, more = (one, other) if less_than else (other, one)
        return f"{task}: {less} is {'less' if losses in LAST else 'sooner'} than {more}"


def in_words(results, task, one, other, what):
    """Returns the verdict on two rows in a line, with the numbers from which it follows."""
    rows = rows_of(results, task)
    ones, others = (values(rows[plain(each)], what) for each in (one, other))
    less, floor = verdict(results, task, one, other, what), noise(results, task, what)
    lesser = "not separable" if less is None else one if less else other
    medians = " and ".join(f"{statistics.median(each):g}" for each in (ones, others))
    again = "none" if floor is None else f"{floor:.0%}"
    return f"{lesser} (p = {probability(ones, others):.3f}, medians {medians}, A/A: {again})"


def main():
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
    known = re.fullmatch(r"(.+?): (.+) / (.+)", flags.pair)
    path = pathlib.Path(__file__).with_name("results.json")
    if not known or not path.exists():
        parser.error('write "TASK: ROW / ROW"' if path.exists() else f"there is no {path}")
    results = json.loads(path.read_text())
    rows = rows_of(results, known[1])
    if missing := [row for row in known.groups()[1:] if plain(row) not in rows]:
        parser.error(f"the results have no row {missing[0]} of the task {known[1]}")
    print("sooner:", in_words(results, *known.groups(), flags.loss or SECONDS))


if __name__ == "__main__":
    main()
