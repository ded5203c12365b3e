"""What Compare searches, cuts, counts, judges and shows, on runs made by hand with known answers.

Nothing trains here.
"""

import io
import json
import math
import pathlib
import re
import types

import numpy as np
import pytest
import run_files
import support
from rich.console import Console
from test_measurements import (
    MEASUREMENTS,
    cells,
    check_rows,
    figures,
    load,
    points,
)

FOLDER = "Measurements/Compare/"
SEARCH, ONE_RUN, REPORT = (FOLDER + name for name in ("search.py", "one_run.py", "report.py"))
VERDICT, TABLES, DRAWING = (FOLDER + name for name in ("verdict.py", "tables.py", "drawing.py"))
EQUAL, DIFFERENT = "8 workers, CV 0.1", "8 workers, CV 1"
ONE = "Non-Distributed-Setup"


# The search --------------------------------------------------------------------------------------


def tried(point, seed, stage, reached, loss, limit=None, **more):
    """Returns a try that would reach the target so late, or never, with this loss at its end."""
    known = {"point": list(point), "seed": seed, "stage": stage, "curve": [[1, 6], [2, loss]]}
    if reached is not None and limit is not None and reached > limit:
        end = {"ended": "late", "reached": None, "at": 1.02 * limit}
    elif reached is not None:
        end = {"ended": "reached", "reached": reached, "at": reached}
    else:
        end = {"ended": "diverged" if loss is None else "time", "reached": None, "at": 6}
    return {**known, **end, "loss": loss, "words": f"--x {point}", "others": 0.0, **more}


def searched(module, knobs, outcome, sums=False):
    """Returns the tries of a search where outcome(point, seed) is (seconds, loss) of a run."""
    tries = []
    while following := module.next_try(tries, knobs, sums):
        point, seed, stage, limit, _ = following
        tries.append(tried(point, seed, stage, *outcome(point, seed), limit))
        assert len(tries) <= 40, "\nsearch: more than 40 runs"
    return tries


def test_the_search():
    """To the best of all settings, from afar, however few seeds are lucky, and never to an edge.

    Catches: a search that stops at an edge, tells of no edge, follows the luckiest seed or the
    greatest loss, skips its second stage, or keeps the rate of a mean for a sum.
    """
    module = load(SEARCH)
    lr, T = module.rate("learning-rate", 3), module.ladder("local-steps", (1, 3, 10, 30, 100), 10)

    def bowl(best, never=False):
        def outcome(point, seed):
            far = sum((a - b) ** 2 for a, b in zip(point, best))
            return (None, 0.1 + far / 50) if never else (1 + far / 10 + seed / 100, 0.1)

        return outcome

    for best in (-3, 2, 4, 9):
        for never in (False, True):
            tries = searched(module, [lr], bowl((best,), never))
            assert module.chosen(tries) == (best,)
            assert not module.at_the_edge(tries, [lr])
            if best:
                assert module.at_the_edge(tries[:3], [lr])
    for best in ((3, 0), (-1, 2), (6, 4)):
        assert module.chosen(searched(module, [lr, T], bowl(best))) == best
    # Above a rate all diverge, also where the search begins.
    steep = searched(module, [lr], lambda point, _: (None, None if point[0] > -4 else -point[0]))
    assert module.chosen(steep) == (-4,)
    # Seed 0 is lucky at one rate, where the two others are late.
    lucky = {3: (1.0, 4.0, 4.0), 2: (2.0,) * 3, 4: (4.5,) * 3, 1: (2.5,) * 3}
    tries = searched(module, [lr], lambda point, seed: (lucky.get(point[0], (5.0,) * 3)[seed], 1))
    assert module.chosen(tries) == (2,)
    # Nothing is any good: an end without a choice.
    assert module.chosen(searched(module, [lr], lambda *_: (None, None))) is None
    # A late try is worse than a best that is sooner than that, and unknown beside a later one.
    late = tried((6,), 0, 1, 2.0, 1, limit=1.3)
    assert [module.is_known(late, seconds) for seconds in (1.0, 1.5)] == [True, False]
    # A sum of three times as many gradients is as long at a third of the rate.
    assert module.moved((3, 1), [lr, T], 1, 1, sums=True) == (0, 2)
    assert module.moved((3, 1), [lr, T], 1, 1) == (3, 2)
    assert module.moved((3, 4), [lr, T], 1, 1) is None
    assert [module.value(lr, step) for step in (0, 1, 2, -2)] == pytest.approx(
        [0.1, 0.141, 0.2, 0.05]
    )


def test_the_budget():
    """No search has more than 40 runs, whatever it tunes; three seeds meet the best.

    Catches: a search without an end, and a setting that one seed has chosen.
    """
    module = load(SEARCH)
    knobs = [module.rate("learning-rate", 3), module.rate("server-lr", 0)]
    knobs.append(module.ladder("local-steps", (1, 3, 10, 30), 10))
    random = np.random.RandomState(0)

    def noisy(point, seed):
        return None, 1 + random.rand() / 9 + sum(abs(step - 30) for step in point[:2]) / 30

    tries = searched(module, knobs, noisy)
    assert len(tries) == 40
    assert module.at_the_edge(tries, knobs)
    quiet = searched(module, knobs, lambda point, seed: (2 + abs(point[0] - 3) + point[1] ** 2, 1))
    assert len(quiet) < 40
    best = module.chosen(quiet)
    seeds = {attempt["seed"] for attempt in quiet if tuple(attempt["point"]) == best}
    assert seeds == {0, 1, 2}


# A run -------------------------------------------------------------------------------------------

TESTS = ["test_loss", "test_accuracy", "test_own", "test_training"]


def run_by_hand(directory):
    """Two workers; a test from 112 to 113 delays worker 0, which tests; another begins at 116."""

    def push(time, step, staleness, pull):
        return run_files.push(time, step, staleness, pull_time=pull, tests=TESTS)

    def test(time, step, began, *means):
        return run_files.test(time, step, *means, began=began, tests=TESTS)

    times = [(100, 1, 0), (110, 4, 1), (111, 8, 2), (112, 12, 1)]
    first = [push(*update, update[0] - 0.101) for update in times]
    late = [
        push(*update, update[0] - 0.301) for update in [(114, 16, 1), (115, 20, 1), (116, 24, 1)]
    ]
    tests = test(113, 12, 112, 9, 0.9, 0.4, 0.2), test(116.5, 24, 116, 9, 0.98, 0.3, 0.1)
    run_files.metrics(directory, "worker-0", *first, tests[0], *late, tests[1], tests=TESTS)
    other = push(109, 3, 0, 108.899), push(111.5, 10, 0, 111.199)
    run_files.metrics(directory, "worker-1", *other, tests=TESTS)
    run_files.flags(directory, metrics={}, arguments={"batch_size": 32})
    return load(ONE_RUN).RunData.read(directory)


def start_of(module, waits=False, **more):
    """Returns a Start of two workers and a ps."""
    known = dict.fromkeys(module.Start._fields)
    known |= {"jobs": {"worker": 2, "ps": 1}, "calls": 1, "waits": waits, "mean": 0, "changes": []}
    return module.Start(**{**known, **more})


def test_the_cut(tmp_path):
    """A run counts for its seconds only; they leave out a test for which all wait.

    Both workers train from 109 on, with 1 update of the one that counts; 23 come in the 7 s after.

    Catches: tests or pushes behind the end, seconds of a test for which all wait, and seconds
    or staleness of the start.
    """
    module, run = load(ONE_RUN), run_by_hand(tmp_path)
    for waits, pause in ((False, 0), (True, 1)):  # from 112 to its end, 113
        rate = 23 / (7 - pause)
        end = module.End(None, ("accuracy", 0.97), False, None, None)
        numbers = module.numbers(run, start_of(module, waits), end)
        assert numbers["updates_per_second"] == pytest.approx(rate)
        at = [round(3 + 1 / rate, 3), round(7 - pause + 1 / rate, 3)]
        assert numbers["evaluations"]["seconds"] == pytest.approx(at)
        assert numbers["reached"] == pytest.approx(at[1])
        assert [numbers["examples"], numbers["bytes"], numbers["updates"]] == [288, 7200, 24]
        assert [numbers["test_loss"], numbers["training_loss"]] == pytest.approx([0.3, 0.1])
        assert numbers["evaluations"]["examples"] == [192, 288]
        numbers = module.numbers(run, start_of(module, waits), end._replace(seconds=5))
        assert numbers["evaluations"]["seconds"] == pytest.approx(at[:1] if not waits else at[:1])
        assert numbers["reached"] is None
        assert [numbers["test_loss"], numbers["training_loss"]] == pytest.approx([0.4, 0.2])
        assert numbers["examples"] == 32 * (7 if waits else 6)  # until 114.7, or 113.7
    numbers = module.numbers(run, start_of(module), end._replace(seconds=5))
    assert [numbers["staleness_mean"], numbers["histogram"]] == [1, [1, 2, 1]]
    assert [numbers["cv"], numbers["gradient_seconds"]] == pytest.approx(
        [round(0.0866 / 0.15, 3), 0.15]
    )
    chief = start_of(module, jobs={"worker": 2, "ps": 1, "chief": 1})
    assert module.numbers(run, chief, end)["cv"] is None


class Rows:
    """A Watch that is shown tests, as a run that trains writes them."""

    def __init__(self, module, end, waits=False):
        self.watch, self.module = module.Watch(None, start_of(module, waits), end), module
        self.watch.began, self.watch.chief, self.rows = 100.0, None, []
        self.watch.columns = ["push_time", "pull_time", "examples", "test_accuracy", "test_own"]
        self.watch.new_rows = lambda path: [self.rows.pop(0)] if self.rows else []

    def ended(self, *tests):
        """Returns why the run was ended by tests (seconds, accuracy, loss), or None."""
        for seconds, accuracy, loss in tests:
            row = [100.5 + seconds, 100 + seconds, "", accuracy, loss]  # a test takes 0.5 s
            self.rows.append(list(map(str, row)))
            try:
                self.watch.poll()
            except self.module.Enough as reason:
                return str(reason)
        return None


def test_the_early_end():
    """A try ends at the target, when it is late, or hopeless in the second half; no other run.

    Catches: a reported run that ends at its target, a run called late although it has arrived,
    and one called hopeless too soon.
    """
    module = load(ONE_RUN)
    curve = [[0, 6], [2.0, 0.2]]  # of the best so far: 0.8 after 4 s

    def why(tests, target=("accuracy", 0.97), tuning=True, limit=None, curve=None):
        return Rows(module, module.End(6, target, tuning, limit, curve)).ended(*tests)

    assert why([(1, 0.9, 1), (2, 0.97, 1)]) == "reached"
    assert why([(1, 0.9, 1), (2, 0.97, 1)], tuning=False) is None
    assert why([(1, 0.99, 1), (2, 0.9, 0.5)], target=("loss", 0.5)) == "reached"
    assert why([(1, 0.99, 1), (2, 0.9, 0.5)], target=("loss", None)) is None
    assert [why([(t, 0.9, 1)], limit=3) for t in (2.9, 3.1)] == [None, "late"]
    assert why([(3.1, 0.97, 1)], limit=3) == "reached"
    for at, loss, due in ((4, 1.5, None), (4, 1.7, "hopeless"), (2, 9.0, None)):
        assert why([(at, 0.5, loss)], curve=curve) == due
    assert [why([(t, 0.5, 1)], tuning=False) for t in (6.1, 6.2)] == [None, "time"]
    for at, due in ((7.1, None), (7.2, "time")):  # behind two tests for which all wait
        rows = Rows(module, module.End(6, ("accuracy", 0.97), False, None, None), waits=True)
        assert rows.ended((1, 0.5, 1), (2, 0.5, 1), (at, 0.5, 1)) == due


# What is kept, and judged ------------------------------------------------------------------------


def run_of(accuracies, seed=100, ended="time", **more):
    """Returns a run with a test each second; 100 examples and 2 MB come between two."""
    tests = {"accuracy": accuracies, "loss": [round(1 - value, 4) for value in accuracies]}
    tests["training"] = tests["loss"]
    for what, value in (("seconds", 1), ("examples", 100), ("megabytes", 2)):
        tests[what] = [value * (number + 1) for number in range(len(accuracies))]
    last = {"test_loss": tests["loss"][-1], "test_accuracy": accuracies[-1], "training_loss": 0.1}
    facts = {
        "bytes": 10**7,
        "ps": 1,
        "workers": 8,
        "staleness_mean": 3.0,
        "cv": 0.1,
        "others": 0.02,
    }
    return {"seed": seed, "ended": ended, "evaluations": tests, **last, **facts, **more}


BROKEN = {"ended": "failed", "failed": "a line\nno port", "seed": 104}


def arrives(number, of=6):
    """Returns the accuracies of a run that is at 97% in its test of that number."""
    return [0.98 if test >= number else 0.9 for test in range(1, of + 1)]


def test_what_is_kept():
    """A failure has found nothing, even if it was at the target; the first look is marked.

    Six seconds have a look every 0.2 s, of which three count; a single good test is no arrival.

    Catches: a diverged run that counts, a single lucky test, and examples or megabytes up to
    another test.
    """
    kept = load(REPORT).kept
    target = ("accuracy", 0.97)
    row = kept(run_of(arrives(3)), target, 6)
    assert [row["reached"], row["first_look"], row["loss"]] == pytest.approx([3.4, 1.4, 0.02])
    assert row["seconds_to"] == pytest.approx([*[1.4] * 7, 3.2])
    assert row["tests"] == 6
    assert [row["examples_to"], row["megabytes_to"], row["megabytes"]] == [300, 6, 10]
    row = kept(run_of(arrives(1)), target, 6)
    assert [row["reached"], row["first_look"]] == pytest.approx([1.4, 1.4])
    assert kept(lucky([20, 30, 31, 32, 33]), target, 8)["reached"] == pytest.approx(6.933)
    assert kept(run_of(arrives(3)), target)["reached"] == pytest.approx(3.4)
    row = kept(run_of(arrives(9)), target)
    assert [row["reached"], row["examples_to"]] == [None, None]
    assert len(row["seconds_to"]) == 7
    for run in (BROKEN, run_of(arrives(2), ended="diverged"), {**BROKEN, "ended": "diverged"}):
        assert "reached" not in kept(run, target)
    assert kept(BROKEN, target)["failed"] == "no port"
    untested = {"ended": "time", "seed": 1, "evaluations": None}
    assert "failed" in kept(untested, target)
    assert kept(run_of([0.5, 0.7, 0.9]), ("loss", 0.35))["reached"] == pytest.approx(2.2)
    curve = load(REPORT).median_curve
    runs = [run_of([0.5, 0.9, 0.9]), BROKEN, run_of([0.6, 0.8]), run_of([0.7, 0.9]), BROKEN]
    assert curve(runs)[0] == [1, 2]
    assert curve(runs)[1] == pytest.approx([0.5, 0.2])  # in a run that failed, it never falls
    assert curve([*runs, BROKEN, BROKEN])[1] == [None, None]


def measured(runs, tries=(), **more):
    """Returns a case of measured.json."""
    known = {"tries": list(tries), "runs": runs, "chosen": "--learning-rate 0.1", "seconds": 6}
    return {**known, "measured": "2026-11-27, 2 cores", **more}


def lucky(good):
    """Returns a run with 40 tests in 8 seconds, of which these, counted from 0, are at 98%."""
    run = run_of([0.98 if number in good else 0.9 for number in range(40)])
    run["evaluations"]["seconds"] = [0.2 * (number + 1) for number in range(40)]
    return run


def five(numbers, first=100):
    """Returns five runs that are at the target in these tests."""
    return [run_of(arrives(number), first + i) for i, number in enumerate(numbers)]


def test_which_rows_are_reported():
    """Each whole row, in the order of the page, whichever are missing; a loss of one process.

    Catches: rows in the order of measuring, a row with some of its seeds, and one target for
    all tasks.
    """
    module = load("Compare")
    flags = types.SimpleNamespace(seeds=5, tasks=module.TASKS, problem=None)
    good = [tried((3,), seed, 2, 2.0, 0.1) for seed in range(3)]
    bad = [tried((3 - 3 * n,), 0, 1, None, None) for n in range(40)]
    cases = {
        f"{EQUAL}: Ring-AllReduce": measured(five([4] * 5), good),
        f"{DIFFERENT}: HogWild": measured(five([3] * 4), good),
        f"{EQUAL}: HogWild": measured([*five([3] * 4), BROKEN], good),
        f"{EQUAL}: SAGN": {"tries": bad, "runs": []},
        f"{EQUAL}: ADAG": {"tries": bad[:5], "runs": []},
        "GPT: HogWild": measured([run_of([0.5, 0.7, 0.9])] * 5, good),
        f"GPT: {ONE}": measured(
            [run_of([accuracy, 0.5]) for accuracy in (0.6, 0.7, 0.65)] + [BROKEN] * 2
        ),
        f"GPT: {ONE}, 2 threads": measured([run_of([0.5, 0.8])] * 4),
    }
    results = module.results_of(cases, flags)
    rows = [f"{EQUAL}: {name}" for name in ("HogWild", "Ring-AllReduce", "SAGN")]
    assert list(results) == [*rows, f"GPT: {ONE}", "GPT: HogWild"]
    assert [results[rows[2]][key] for key in ("setting", "runs")] == [None, []]
    assert "failed" in results[rows[0]]["runs"][-1]
    # Three of five runs of one process end; of these the middle one of five is the worst.
    assert results["GPT: HogWild"]["target"] == ["loss", 0.4]
    assert results["GPT: HogWild"]["runs"][0]["reached"] == pytest.approx(2.2)
    assert results[rows[0]]["tries"][0] == ["--x (3,)", 0, 2.0, 0.1, "reached"]
    names = [f"{EQUAL}: b", f"{DIFFERENT}: HogWild", f"{EQUAL}: HogWild", f"{EQUAL}: {ONE}"]
    due = [f"{EQUAL}: {ONE}", f"{EQUAL}: HogWild", f"{DIFFERENT}: HogWild", f"{EQUAL}: b"]
    assert module.in_order(names, module.TASKS) == due


def test_what_another_sitting_measured(tmp_path):
    """Its other tasks stay, its rows of a task that was measured anew go; digests likewise.

    Catches: results that hold only the new rows, old rows of a task that is measured anew, and
    digests of rows that are older or gone.
    """
    module, old = load("Compare"), tmp_path / "old.json"
    module.report = load(REPORT)
    good = [tried((3,), seed, 2, 2.0, 0.1) for seed in range(3)]
    flags = types.SimpleNamespace(seeds=5, tasks=module.TASKS, problem=None)
    first = {
        f"{DIFFERENT}: HogWild": measured(five([4] * 5), good, digest="old"),
        f"{EQUAL}: HogWild": measured(five([4] * 5), good),
        f"{EQUAL}: SAGN": measured(five([4] * 5), good, digest="old"),
        f"{EQUAL}: ADAG": measured(five([4] * 5), good, digest="old"),
    }
    second = {f"{EQUAL}: HogWild": measured(five([3] * 5), good)}
    second[f"{EQUAL}: ADAG"] = measured(five([3] * 5), good)
    for cases in (first, second):
        old.write_text(json.dumps(cases))
        module.leave(flags, old, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    names = [f"{EQUAL}: HogWild", f"{EQUAL}: ADAG", f"{DIFFERENT}: HogWild"]
    assert list(results) == names
    assert [results[name]["runs"][0]["reached"] for name in names] == pytest.approx([3.4, 3.4, 4.4])
    digests = json.loads((tmp_path / "results_digests.json").read_text())
    assert [name for name, own in digests.items() if own == "old"] == ["HogWild"]
    assert list(digests) == ["ADAG", "HogWild"]


def test_the_target_of_tuning(tmp_path):
    """What the best single process reaches; itself has no target, which its tries would move.

    Catches: a target that its own tries move, the least of all tests for a mean of three, and
    the last loss or that of one run.
    """
    module = load("Compare")
    module.report = load(REPORT)
    flags = types.SimpleNamespace(seeds=2, tasks=module.TASKS)
    measurement = module.Measurement(tmp_path, flags)
    tries = [tried((3,), seed, 2, None, loss) for seed, loss in enumerate((1.5, 1.1, 1.3))]
    for attempt in tries:  # the least loss is not the last
        attempt["curve"][1] = [9, attempt["loss"], attempt["loss"] + 1]
    measurement.cases = {f"GPT: {ONE}": {"tries": tries, "runs": []}}
    target = [
        measurement.target("GPT", name, True) for name in (ONE, f"{ONE}, 2 threads", "HogWild")
    ]
    assert target == [("loss", None), ("loss", None), ("loss", 1.3)]
    assert measurement.target("GPT", "HogWild", False) == ("loss", None)
    measurement.cases[f"GPT: {ONE}"]["runs"] = [run_of([0.1, 0.5, 0.2]), run_of([0.75, 0.5])]
    assert measurement.target("GPT", "HogWild", False) == ("loss", 0.375)
    measurement.cases[f"GPT: {ONE}"]["runs"] = [lucky([20])] * 2
    target = measurement.target("GPT", "HogWild", False)[1]
    assert target == pytest.approx(0.22 / 3)
    assert measurement.target(EQUAL, ONE, True) == ("accuracy", 0.97)


def result(numbers, setting="--learning-rate 0.1", target=("accuracy", 0.97), **more):
    """Returns a row of results.json: seconds of its runs, None: never, "x": failed."""
    runs = []
    for seed, at in enumerate(numbers):
        if at == "x":
            runs.append({"seed": seed, "failed": "no port", "others": 0.2})
            continue
        runs.append(
            {
                **{"seed": seed, "reached": at, "first_look": 0.5, "loss": 0.1 * (seed + 1)},
                **{"accuracy": 0.98, "training": 0.05, "others": 0.01, "tests": 2},
                **{"examples_to": at and 100 * at, "megabytes_to": at and 2 * at, "cv": 0.1},
                **{"megabytes": 9.0, "staleness_mean": 3.0, "seconds_to": []},
            }
        )
    known = {"setting": setting, "seconds": 6, "target": list(target), "edge": False, "tries": []}
    known |= {"measured": "2026-11-27, 2 cores", "most_others_of_tries": 0.0, "runs": runs}
    known |= {"losses": [1.5, 0.15], "tasks": {"ps": 1, "workers": 8}}
    return {**known, **more}


def in_task(task, **rows):
    """Returns results of a task; a name is that of a row, or stands for the A/A row."""
    names = {"A": "HogWild", "AA": "HogWild, A/A", "one": ONE, "D": "Further-Algorithms/DiLoCo"}
    return {f"{task}: {names.get(name, name)}": row for name, row in rows.items()}


def falling(seconds):
    """Returns a row whose runs never arrive; their losses are 0.15 at these seconds."""
    row = result([None] * len(seconds))
    for run, at in zip(row["runs"], seconds):
        run["seconds_to"] = [0.5, at]
    return row


SOON, LATER = [2.0, 2.1, 2.2, 2.3, 2.4], [3.0, 3.1, 3.2, 3.3, 3.4]


def test_the_verdict():
    """Sooner: every run of five, and further apart than HogWild from itself.

    Catches: a verdict by means, without the A/A row or with the least one, a one-sided p, and
    runs that never arrive left out.
    """
    module = load(VERDICT)
    p = module.probability
    assert p(SOON, LATER) == pytest.approx(2 / 252)
    assert p([1, 2, 3, 4, 6], [5, 7, 8, 9, 10]) == pytest.approx(4 / 252)
    assert p([math.inf] * 5, [math.inf] * 5) == 1
    assert p([1, 2, math.inf], [math.inf] * 3) == pytest.approx(
        0.4
    )  # 8 of 20 splits have both of two, or none
    assert p([1, 1, 1], [2, 2, 2]) == pytest.approx(0.1)
    results = in_task("t", A=result(SOON), AA=result([2.2] * 5), SAGN=result(LATER))
    results |= in_task("t", D=result([2.5, None, "x", None, "x"]), ADAG=result([2.9] + LATER[1:]))

    def verdict_of(one, other, known=results):
        return module.verdict(known, "t", one, other)

    assert [verdict_of("HogWild", "SAGN"), verdict_of("SAGN", "HogWild")] == [True, False]
    assert [verdict_of("HogWild", "DiLoCo"), verdict_of("SAGN", "DiLoCo")] == [True, None]
    assert verdict_of("HogWild", "HogWild, A/A") is None
    # A difference of 45%, where the A/A row differs by 50%, or one never arrives.
    far = {**results, "t: HogWild, A/A": result([3.3] * 5)}
    assert verdict_of("HogWild", "SAGN", far) is None
    assert verdict_of("HogWild", "SAGN", {**far, "t: HogWild, A/A": result([None] * 5)}) is None
    lost = {name: row for name, row in results.items() if "A/A" not in name}
    assert verdict_of("HogWild", "SAGN", lost) is None
    # Another task's A/A row stands in for a missing one; of several the greatest.
    other = {**lost, **in_task("u", A=result(SOON), AA=result([2.3] * 5))}
    assert verdict_of("HogWild", "SAGN", other)
    other |= in_task("v", A=result(SOON), AA=result([3.4] * 5))
    assert verdict_of("HogWild", "SAGN", other) is None
    # What the first mean of looks has found may have been there at once.
    early = {**results, **in_task("t", A=result([0.4] * 5), SAGN=result([0.5] * 5))}
    early["t: HogWild, A/A"] = early["t: HogWild"]
    assert verdict_of("HogWild", "SAGN", early) is None
    falls = in_task("t", A=falling([1.6, 1.8, 1.6, 1.6, 1.6]), SAGN=falling([2.6] * 5))
    falls["t: HogWild, A/A"] = falls["t: HogWild"]
    assert module.values(falls["t: HogWild"], 0.15) == pytest.approx([1.6, 1.8, 1.6, 1.6, 1.6])
    assert module.values(result(["x"]), 0.15) == pytest.approx([math.inf])
    assert module.verdict(falls, "t", "HogWild", "SAGN", 0.15)
    assert [verdict_of("HogWild", "SAGN", falls)] == [None]
    apart = in_task("u", A=result(SOON), AA=result([5.0] * 5))
    assert module.verdict(falls | apart, "t", "HogWild", "SAGN", 0.15) is None
    assert module.values(falling([0.5, 1.6]), 0.15, least=True) == pytest.approx([0.0, 1.6])
    assert module.values(result(["x"]), 0.15, least=True) == [math.inf]


def test_the_marks():
    """A mark is right if the results say what it says of these two rows, in this order.

    Catches: a mark that any result fulfils, the noise of seconds for losses, and a mark of
    several rows that reads one.
    """
    module = load(VERDICT)
    rows = {"A": result(SOON), "AA": result([2.2] * 5), "SAGN": result(LATER)}
    rows["D --local-steps 5"] = result([None] * 5)
    results = in_task("8 workers, CV 1", **rows)
    text = (
        "<!-- sooner to a loss of 0.3, 0.2: 8 workers, CV 1: HogWild / SAGN --> and "
        "<!-- not separable: x: a, b / c --> <!-- less in training loss: x: a / b -->"
    )
    marks = module.MARK.findall(text)
    due = [("sooner", "0.3, 0.2", "8 workers, CV 1", "HogWild", "SAGN")]
    due += [("not separable", "", "x", "a, b", "c"), ("less", "training loss", "x", "a", "b")]
    assert marks == due

    def fault(mark, one, other):
        return module.fault(results, mark, "", "8 workers, CV 1", one, other)

    assert fault("sooner", "HogWild", "SAGN") is None
    assert fault("not separable", "HogWild", "HogWild, A/A") is None
    assert fault("sooner", "SAGN", "D local-steps 5") is None
    assert fault("sooner", "SAGN", "HogWild").endswith("HogWild is sooner than SAGN")
    assert fault("not separable", "SAGN", "HogWild").endswith("HogWild is sooner than SAGN")
    assert fault("sooner", "HogWild", "HogWild, A/A").endswith("are not separable")
    assert fault("sooner", "HogWild", "SAGN; D local-steps 5") is None
    several = fault("sooner", "HogWild", "SAGN; HogWild, A/A")
    assert several == "8 workers, CV 1: HogWild and HogWild, A/A are not separable"
    assert "no row Ring" in fault("sooner", "HogWild", "SAGN; Ring-AllReduce")
    falls = {name: falling([3.0] * 5) for name in results}
    falls["8 workers, CV 1: HogWild"] = falls["8 workers, CV 1: HogWild, A/A"] = falling([1.0] * 5)
    pair = "8 workers, CV 1", "HogWild", "SAGN"
    assert module.fault(falls, "sooner", "0.15", *pair) is None
    assert "not separable" in module.fault(falls, "sooner", "0.15, 0.1", *pair)
    assert "no seconds to a loss of 0.07" in module.fault(falls, "sooner", "0.15, 0.07", *pair)
    both = "8 workers, CV 1", "HogWild; SAGN", "D local-steps 5"
    assert module.fault(results, "sooner", "", *both) is None
    both = "8 workers, CV 1", "HogWild; SAGN", "HogWild, A/A"
    several = module.fault(results, "not separable", "", *both)
    assert several == "8 workers, CV 1: HogWild, A/A is sooner than SAGN"
    assert module.fault(falls, "not separable", "", *pair) is None
    # At the end SAGN's training loss is the less one, HogWild's test loss: by their own A/A row.
    for row, training, loss in (
        ("HogWild", 0.5, 0.1),
        ("HogWild, A/A", 0.5, 0.1),
        ("SAGN", 0.4, 0.5),
    ):
        for run in results[f"8 workers, CV 1: {row}"]["runs"]:
            run |= {"training": training, "loss": loss}
    for run in results["8 workers, CV 1: HogWild, A/A"]["runs"]:
        run["reached"] = 9.0
    pair = "8 workers, CV 1", "SAGN", "HogWild"
    assert module.fault(results, "less", "training loss", *pair) is None
    assert module.fault(results, "less", "test loss", *pair).endswith("HogWild is less than SAGN")


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
    assert module.of_all(result([0.5] * 5), "examples_to", "{:.0f}") == "≤ 50"
    assert module.of_all(broken, "examples_to", "{:.0f}") == ""
    assert [module.failures(broken), module.arrive_never(broken)] == ["3 of 5"] * 2
    assert [module.failures(result(SOON)), module.arrive_never(result(SOON))] == ["", ""]
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
    module.seconds(results, module.FRONT, [ONE, "HogWild", "SAGN"], None, None)
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
    module.laws(results, tasks, module.LAWS, None, None)
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


# What is run -------------------------------------------------------------------------------------


def test_the_settings():
    """What an example tunes, with how many workers, and the flags of a point.

    Catches: AEASGD's alpha for one worker, an untuned T, a gossip of two, and two workers of
    an example that has one.
    """
    module = load("Compare")
    tuned = {
        ONE: "learning-rate",
        "HogWild": "learning-rate",
        "DynSGD": "learning-rate",
        "ADAG": "learning-rate local-steps",
        "ADAG --local-steps 4": "learning-rate",
        "ADAG, a server rate": "learning-rate local-steps server-rate",
        "AEASGD": "learning-rate local-steps rho",
        "DOWNPOUR": "learning-rate local-steps server-lr",
        "Further-Algorithms/DiLoCo": "learning-rate local-steps outer-rate",
        "Further-Algorithms/Delay-Compensation": "learning-rate compensation",
        "HogWild --learning-rate 0.5": "",
        "HogWild, A/A": "",
        module.ADAMW: "learning-rate",
    }
    task = module.TASKS[EQUAL]
    for name, flags in tuned.items():
        knobs = module.knobs_of(name, task)
        assert [knob.flag for knob in knobs] == flags.split(), name
        assert module.knobs_of(name, task, {"learning-rate": 9})[:1] == [
            knobs[0]._replace(start=9)] if knobs else True, name  # fmt: skip
    assert module.workers_of(task, ONE) == 1
    assert module.workers_of(task, "SAGN, a server rate") == 8
    assert module.jobs(module.TASKS["GPT"], module.ADAMW) == {"worker": 1, "ps": 1}
    assert module.workers_of(module.TASKS["digits"], "Further-Algorithms/D-PSGD") == 4
    knobs = module.knobs_of("AEASGD", task)
    arguments = module.flags_of_point("AEASGD", task, knobs, (0, 1, 4)).split()
    assert arguments == "--learning-rate 0.1 --local-steps 3 --rho 1.125".split()
    name = "Synchronous-SGD-different-learning-rates"
    arguments = module.flags_of_point(name, task, module.knobs_of(name, task), (2,))
    assert arguments == "--learning-rates 0.2,0.1"
    parts = [module.takes_part(folder, task) for folder in (ONE, "Distributed-Setup", "SAGN")]
    assert parts == [True, False, True]
    assert not module.takes_part("Horovod-RingAllReduce", module.TASKS["digits"])


def test_the_controls(tmp_path):
    """DynSGD's mean rate; the same step in the long run without momentum; updates in a call.

    Catches: a control that is its own base row, a rate at the mean staleness instead of the
    mean rate, a tenth of the step, and a row's own number of updates that 10 replaces.
    """
    module = load("Compare")
    runs = [{"histogram": [1, 1], "test_loss": 1}, {"histogram": [0, 0, 0, 2], "test_loss": 1}]
    runs.append({"histogram": [9], "test_loss": None})  # a failure
    base = {"chosen": "--learning-rate 0.4 --outer-rate 0.2", "runs": runs}
    mean = (1 + 1 / 2 + 2 / 4) / 4
    assert module.mean_factor(base).split()[1] == f"{0.4 * mean:.4g}"
    arguments = "--learning-rate 0.4 --outer-rate 2 --outer-momentum 1e-06"
    assert module.no_momentum(base) == arguments
    assert module.row_of("HogWild, A/A").first == 200
    for name, row in module.SPECIAL.items():  # the texts that it changes are there
        script = module.examples.main_script(module.folder_of(name))
        assert (
            module.examples.replaced(script, row.changes) != script.read_text() or not row.changes
        )
    own, strategy = types.SimpleNamespace(tasks=module.TASKS), "Parameter-Server-Strategy"
    for name, calls in (("HogWild", 1), (strategy, 10), (strategy + ", one a closure", 1)):
        start = module.Measurement(tmp_path, own).start(EQUAL, name, "", 0)
        assert [start.calls, int(start.flags[-3])] == [calls, calls]
    for own_flag in ("--updates-per-call 2", "--updates-per-call=2"):  # digits: without it 10
        start = module.Measurement(tmp_path, own).start("digits", f"HogWild {own_flag}", "", 0)
        assert [start.calls, int(start.flags[-3])] == [2, 2], own_flag
    assert [module.local_steps("ADAG --local-steps" + end, "") for end in (" 3", "=3")] == [3, 3]


def test_the_rows_of_compare(tmp_path):
    """Settings are tried on rows that are in no training and in no test; each has its label.

    Catches: rows in both halves or in neither, labels of other rows, and rows of the test in
    the validation.
    """
    module = load("Compare")
    random = np.random.RandomState(0)
    x, y = random.rand(1437, 3).astype("float32"), random.randint(0, 10, 1437)
    given = types.SimpleNamespace(
        **dict(x_train=x, y_train=y, x_test=-x[:360], y_test=-1 - y[:360]),
        _fields=("x_train", "y_train", "x_test", "y_test"),
    )
    whole = Data(*(getattr(given, name) for name in given._fields))
    module.examples.load = lambda path: types.SimpleNamespace(load_data=lambda name: whole)
    for name, path in module.data_files(tmp_path, False).items():
        with np.load(path) as file:
            x1, y1, x2, y2 = (file[key] for key in Data._fields)
        if name == "validation":
            check_rows(name, (x1, y1, x2[:360], y2[:360]), x, y, [1077, 1077, 360, 360])
        else:
            check_rows(name, (x1, y1, x2[:360], y2[:360]), *(
                np.concatenate(pair) for pair in ((x, -x[:360]), (y, -1 - y[:360]))
            ), [1437, 1437, 360, 360])  # fmt: skip
        assert [np.array_equal(x2[360:], x1[:360]), np.array_equal(y2[360:], y1[:360])] == [
            True
        ] * 2, name


class Data(tuple):
    """Four arrays, as an example's load_data returns them."""

    _fields = ("x_train", "y_train", "x_test", "y_test")

    def __new__(cls, *parts):
        return super().__new__(cls, parts)

    def __getattr__(self, name):
        return self[self._fields.index(name)]


PARTS = '"validation": (x[:-n], y[:-n], x[-n:], y[-n:])'


def test_a_sitting_of_compare(tmp_path):
    """A second sitting goes on; a row that follows waits; each run has its own seed and delays.

    Catches: an A/A row with the seeds of its base, a setting that the test rows choose, and a
    save for which others wait.
    """
    module, starts = load("Compare"), []
    flags = types.SimpleNamespace(seeds=2, tasks=module.TASKS, anyway=True)

    def run(start, end, steps, interval, dataset, validation):
        starts.append((start, end, pathlib.Path(dataset).stem, validation))
        reached = 2.0 if "0.141" in start.flags else 3.0
        evaluations = {"seconds": [reached], "loss": [0.1], "accuracy": [0.98]}
        return {"ended": "reached", "reached": reached, "evaluations": evaluations, "took": 9,
                "updates_per_second": 100.0, "test_loss": 0.1, "others": 0.0, "seed": start.seed,
                "histogram": [1], "cv": 1, "staleness_mean": 0}  # fmt: skip

    files = {name: tmp_path / f"{name}.npz" for name in ("validation", "final")}
    module.data_files = lambda directory, streams: files
    module.one_run = types.SimpleNamespace(**vars(module.one_run))
    module.one_run.run = run
    for task, name in ((EQUAL, "HogWild, A/A"), (EQUAL, "HogWild"), (EQUAL, "HogWild, A/A")):
        module.Measurement(tmp_path, flags).measure(task, name)
    number = len(starts)
    module.Measurement(tmp_path, flags).measure(EQUAL, "HogWild")
    assert len(starts) == number
    reported = [(start.seed, data) for start, _, data, validation in starts if not validation]
    assert reported == [(seed, "final") for seed in (100, 101, 200, 201)]
    tuning = {data for _, _, data, validation in starts if validation}
    assert tuning == {"validation"}
    assert starts[-1][0].flags[:4][-2:] == ["--learning-rate", "0.141"]
    assert [end.tuning for _, end, _, validation in starts if validation != end.tuning] == []
    assert {(start.law, start.mean) for start, *_ in starts} == {(0.1, 0.03)}
    known = json.loads((tmp_path / "measured.json").read_text())[f"{EQUAL}: HogWild"]
    assert known["digest"] == module.examples.example_digest(support.ROOT / "HogWild/hogwild.py")
    script = support.ROOT / "HogWild" / "hogwild.py"
    changed = load(ONE_RUN).changed(starts[-1][0], False)["hogwild.py"]
    assert "late(outputs, 0.1, 0.03, 8, 202)" in changed
    assert "ps.save(" in changed
    for folder in ("HogWild", "Ring-AllReduce", "SAGN", "Further-Algorithms/Sharded-Training"):
        start = starts[-1][0]._replace(script=module.examples.main_script(folder), waits=True)
        lines = load(ONE_RUN).changed(start, False)[start.script.name].splitlines()
        saves = [line for line in lines if re.match(r" +(\w+\.)?save\(", line)]
        assert saves == []
    assert "test_training" not in script.read_text()


def test_the_minutes(tmp_path):
    """What is left of a plan: runs at the best setting, and tries up to the most.

    Catches: runs that are measured and count again.
    """
    module = load("Compare")
    flags = types.SimpleNamespace(seeds=5, tasks=module.TASKS)
    measurement = module.Measurement(tmp_path, flags)
    plan = [(EQUAL, "HogWild"), (EQUAL, "HogWild, A/A")]
    # 15 tries as a guess, 40 at most, twice 5 runs; 6 s and 8 s more each.
    due = tuple(math.ceil((tries + 10) * 14 / 60) for tries in (15, 40))
    assert module.minutes(measurement, plan) == due
    tries = [tried((3,), 0, 1, None, 0.1, took=10.0)]
    measurement.cases = {f"{EQUAL}: HogWild": {"tries": tries, "runs": []}}
    due = tuple(math.ceil((tries + 10) * 10 / 60) for tries in (14, 39))
    assert module.minutes(measurement, plan) == due
    measurement.cases[f"{EQUAL}: HogWild"] |= {"chosen": "", "runs": [{}] * 5}
    assert module.minutes(measurement, plan) == (1, 1)


def test_a_problem_of_ones_own(monkeypatch, capsys):
    """Catches: no single process to compare with, an example without its parent, a bad file."""
    module = load("Compare")

    def parse(*arguments):
        monkeypatch.setattr("sys.argv", ["compare", *arguments])
        return module.parse_flags()

    path = support.ROOT / "Your-Model" / "regression.py"
    flags = parse("--problem", str(path), "HogWild", "Local-SGD --local-steps 5", "--workers", "4")
    (task,) = flags.tasks.values()
    assert task.rows == [ONE, "HogWild", "Further-Algorithms/Local-SGD --local-steps 5"]
    assert (task.workers, task.seconds, flags.seeds) == (4, 20, 3)
    assert module.plan_of(flags) == [("regression", row) for row in task.rows]
    assert module.Measurement(path.parent, flags).target("regression", "HogWild", True)[0] == "loss"
    with pytest.raises(SystemExit):
        parse("--problem", str(support.ROOT / "lab" / "idle.py"))
    assert "idle.py" in capsys.readouterr().err
    assert parse().seeds == 5 and parse("--seeds", "2").seeds == 2


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
    for case, result in committed().items():
        task, name = case.split(": ", 1)
        assert name in module.TASKS[task].rows, case
        if result["setting"] is None:
            continue
        row = module.row_of(name)
        seeds = [run["seed"] for run in result["runs"]]
        assert seeds == list(range(row.first, row.first + module.SEEDS)), case
        assert len(result["tries"]) <= module.search.MOST, case
        assert not result["edge"] or len(result["tries"]) == module.search.MOST, case
        tuned = bool(module.knobs_of(name, module.TASKS[task]))
        assert tuned == (result["setting"] in [attempt[0] for attempt in result["tries"]]), case
