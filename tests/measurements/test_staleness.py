"""Staleness: what it runs and counts, its committed results, and its picture."""

import json
import re
import types

import pytest
from measurements import MEASUREMENTS, Calls, figures, legend_of, lines_of, load, points, trained


def test_the_runs_of_staleness():
    """N comes with an outer rate at which w moves as far; a warm start has a quarter of all.

    Catches: an outer rate that does not grow with N, half of the pushes, and a median of the
    runs that came.
    """
    module, calls, warm = load("Staleness"), [], []
    module.forked = trained(calls)
    module.RunData = types.SimpleNamespace(read=lambda place: None)
    module.summarize_run = lambda ended, samples, run, quarter: warm.append(quarter)
    flags = types.SimpleNamespace(updates=1000, pushes=400, rate=0.1, move=0.125, every=20)
    cases = {case.name.partition(":")[0]: case for case in module.all_cases()}
    for name in (
        "at most 5 ahead",
        "no bound",
        "lambda = 0.04",
        "N = 4",
        "N = 8, warm start",
        "no momentum",
    ):
        module.measure(cases[name], 1, flags)
    rows = [row for _, row in calls]
    assert [row["--steps"] for row in rows] == [1000, 1000, 1000, 400, 100, 400, 400]
    assert warm == [0, 0, 0, 0, 100, 0]
    assert [row.get("--max-lead") for row in rows[:3]] == [5, None, None]
    assert [row.get("--compensation") for row in rows[:3]] == [None, None, 0.04]
    momentum = [
        (row["--momentum-delay"], row["--outer-rate"], row["--outer-momentum"]) for row in rows[3:]
    ]
    assert momentum == [(4, 0.5, 0.9), (8, 1, 1e-30), (8, 1, 0.9), (1, 0.125, 1e-30)]
    assert calls[0][0] == {"ps": 1, "worker": 8}
    runs = [{"x": x} for x in (3, None, 1, 2, 8)]
    assert module.spread_or_never(runs, "x", "{:.1f}") == "2.5 (1.0-8.0) 1 of 5 never"
    drawn = figures(module)
    results = {
        f"at most {n} ahead: x": [{"updates_to": n * x, "idle": 1 / n / x} for x in (1, 3, 8, 4)]
        for n in (1, 5)
    }
    results["N = 2: x"] = [{"test_loss": x} for x in (0.5, None, 0.25)]
    results["no momentum: x"] = [{"test_loss": x} for x in (1, 3, 8)]
    module.draw(results, None, None)
    goal, share, loss = (axes.lines for axes in drawn[0].axes)
    assert points(goal[2]) == [(1, 3.5), (5, 17.5)]
    assert points(goal[0]) == [(1, 1), (1, 3), (1, 8), (1, 4)]
    assert points(share[2]) == [(1, pytest.approx(7 / 24)), (5, pytest.approx(7 / 120))]
    assert points(loss[0]) + points(loss[2]) == [(2, 0.5), (2, 0.25), (2, 0.5)]
    assert (loss[1].get_marker(), points(loss[1])) == ("x", [(2, 1)])
    (never,) = drawn[0].axes[2].texts
    assert (never.get_text(), never.get_position()) == ("1 never", (2, 0.96))
    for top in loss[1], never:
        assert top.get_transform() == drawn[0].axes[2].get_xaxis_transform()
        assert not top.get_clip_on()
    none = next(line for line in loss if line.get_label() == "no momentum")
    assert points(none)[0] == (0, 3)


def test_each_run_of_staleness():
    """What a case's name says, in what its script is given.

    Catches: a delay of a slow worker elsewhere, seconds of another part, and a run whose tests are
    too far apart.
    """
    module, calls = load("Staleness"), Calls()
    module.forked = trained(calls)
    module.RunData = types.SimpleNamespace(read=lambda place: None)
    module.summarize_run = lambda ended, samples, run, quarter: quarter
    flags = types.SimpleNamespace(updates=1000, pushes=400, rate=0.3, move=0.125, every=7)
    for case in module.all_cases():
        name, momentum = case.name.partition(":")[0], "Async-Local-SGD" in case.example
        del calls[:], calls.texts[:]
        assert module.measure(case, 2, flags) == (100 if "warm" in name else 0)
        for (jobs, row), text in zip(calls, calls.texts, strict=True):
            assert jobs == {"ps": 1, "worker": 8}
            assert [row["--seed"], row["--checkpoint-steps"]] == [2, 7]
            assert row["--updates-per-call"] == "1"
            assert row.get("--learning-rate") == (None if momentum else 0.3)
            assert row.get("--local-steps") == (10 if momentum else None)
            delay = "one slow" if name.startswith("one slow") else "exponential"
            seconds = 0.02 if momentum else 0.04
            assert f"delays.late(outputs, {delay!r}, {seconds}, 8, 3)" in text
    names = {case.name: case.value for case in module.all_cases()}
    for name, value in names.items():
        known = [
            word for word in name.partition(":")[0].replace(",", "").split() if word[0].isdigit()
        ]
        assert [float(word) for word in known] == (
            [] if value is None or "no " in name else [value]
        )


@pytest.mark.parametrize("trained", [True, False])
def test_staleness_counts_clocks_and_gaps(trained, monkeypatch):
    """Catches: a warm start that counts, gaps of the slow worker, or from before all had begun."""
    staleness = load("Staleness")
    monkeypatch.setattr(staleness, "N", 3)
    columns = "global_step", "task", "pull_time", "push_time", "staleness"
    rows = [(1, 1, 0, 1, 9), (2, 2, 1, 2, 9), (3, 0, 9, 10, 0), (4, 1, 10, 11, 1)]
    rows += [(5, 2, 10, 14, 2), (6, 1, 12, 15, 1), (7, 1, 16, 17, 0), (8, 1, 20, 21, 0)]
    rows.append((9, 0, 21, 22, 3))
    pushes = [dict(zip(columns, row)) | {"task": f"worker-{row[1]}"} for row in rows]
    columns = "global_step", "push_time", "test_loss", "test_accuracy"
    rows = [(1, 3, 0.1, 0.99), (5, 16, 0.5, 0.8), (7, 18, 0.2, 0.9), (9, 23, 0.3, 0.7)]
    known = {"pushes": pushes, "tests": [dict(zip(columns, row)) for row in rows]}
    samples = [(14, 1.0), (22, 5.0)]  # seconds of processors so far
    assert staleness.summarize_run(
        trained, samples, types.SimpleNamespace(rows=known.get), warm=2
    ) == {
        "updates_per_second": 4 / 8,  # from update 5, when the last worker has begun, to 9
        "idle": 4 / 6,  # of worker 1: from 15 to 16 and from 17 to 20, of 15 to 21
        "apart": 3,
        "staleness_mean": 1,
        "staleness_max": 3,
        "updates_to": 7,
        "seconds_to": 4,
        "test_loss": 0.3 if trained else None,
        "test_accuracy": 0.7 if trained else None,
        "cores": 0.5,
    }


def test_no_worker_of_the_committed_runs_is_too_far_ahead():
    """Catches a bound that does not hold in real runs."""
    results = json.loads((MEASUREMENTS / "Staleness" / "results.json").read_text())
    matches = {case: re.search(r"at most (\d+) ahead", case) for case in results}
    bounds = {case: int(match[1]) for case, match in matches.items() if match}
    assert len(bounds) == 9
    for case, lead in bounds.items():
        assert all(run["apart"] <= lead for run in results[case]), case
        assert max(run["apart"] for run in results[case]) == lead, case


def test_the_picture_of_staleness():
    """Marks of the leads and of N, and the titles; without a bound the lead is twice the largest.

    Catches: a warm start in the place of the others, another goal, and a bound under another name.
    """
    module = load("Staleness")
    drawn = figures(module)
    bound = {"updates_to": 100, "idle": 0.25}
    results = {f"{name}: x": [bound] for name in ("at most 5 ahead", "no bound")}
    results |= {
        f"N = {n}{words}: x": [{"test_loss": 0.5 * n}]
        for n in (1, 4)
        for words in ("", ", warm start")
    }
    module.draw(results, None, None)
    goal, share, loss = drawn[0].axes
    assert lines_of(goal)[-1] == ("o", "", [(5, 100), (34, 100)])
    assert lines_of(share)[-1] == ("o", "", [(5, 0.25), (34, 0.25)])
    for axes in goal, share:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "any"]
        assert list(axes.get_xticks()) == [5, 34]
        assert (axes.get_ylim()[0], axes.get_xscale()) == (0, "log")
    assert share.yaxis.get_major_formatter()(0.25, None) == "25%"
    curves = {label: known for _, label, known in lines_of(loss)}
    assert curves["from scratch"] == [(1, 0.5), (4, 2)]
    assert curves["warm start"] == [(pytest.approx(1.08), 0.5), (pytest.approx(4.32), 2)]
    assert curves["guessing"][0] == (0, pytest.approx(2.302585)) and "no momentum" not in curves
    assert [loss.get_xscale(), loss.get_yscale(), goal.get_title()] == [
        "log",
        "log",
        "updates to a loss of 0.2",
    ]
    assert [text.get_text() for text in loss.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert [float(text.get_text()) for text in loss.get_yticklabels()] == list(loss.get_yticks())
    assert {"from scratch", "warm start", "guessing"} < set(legend_of(drawn[0]))
    module.draw({"no momentum: x": [{"test_loss": 1}]}, None, None)
    assert lines_of(drawn[1].axes[0]) == []
