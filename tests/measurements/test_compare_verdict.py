"""What Compare keeps, reports and judges, on runs made by hand with known answers.

Nothing trains here.
"""

import json
import math
import types

import pytest
from compared import DIFFERENT, EQUAL, LATER, ONE, REPORT, SOON, VERDICT, in_task, result, tried
from measurements import load


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
    kept = load(REPORT).kept_numbers
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


def test_what_another_session_measured(tmp_path):
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


def falling(seconds):
    """Returns a row whose runs never arrive; their losses are 0.15 at these seconds."""
    row = result([None] * len(seconds))
    for run, at in zip(row["runs"], seconds):
        run["seconds_to"] = [0.5, at]
    return row


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
    # Of the 20 splits 8 have both finite numbers on one side.
    assert p([1, 2, math.inf], [math.inf] * 3) == pytest.approx(0.4)
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
