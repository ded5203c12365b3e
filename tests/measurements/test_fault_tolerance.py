"""Fault-Tolerance: what its drills read and judge, from runs played by hand."""

import random
import types
from unittest import mock

import pytest
import run_files
from measurements import load, write


@pytest.fixture(scope="module")
def drills():
    return load("Operations/Fault-Tolerance/fault_tolerance.py")


def drill(synchronous, seed):
    """Plays a run that loses its ps once, or goes on without a loss.

    Returns its rows, the fault, and the updates that were in w before it and not after it.
    """
    draw = random.Random(seed)
    now, step, w, saved = 1000.0, 0, [], 0
    rows = {"worker-0": [], "worker-1": []}

    def update(count):
        nonlocal now, step
        for _ in range(count):
            step += 1
            now += draw.uniform(0.01, 0.1)
            tasks = list(rows) if synchronous else [draw.choice(list(rows))]
            for task in tasks:
                rows[task].append((round(now, 6), step, 0))
            w.append(len(w))
        del w[step:]

    update(draw.randrange(20, 60))
    saved = draw.choice([len(w), None])
    update(draw.randrange(0, 30))
    begin = now + 0.5
    before = len(w)
    if saved is not None:
        del w[saved:]
        step = saved
    lost = before - len(w)
    now += 3
    update(draw.randrange(lost + 1, 60))
    return rows, (begin, begin + 1), lost


@pytest.mark.parametrize("synchronous", [False, True])
def test_lost_updates_are_counted(synchronous, drills, tmp_path):
    """Against a run that is played, in which w knows its updates.

    Catches: two workers' one step counted as made twice, and lost updates off by one.
    """
    losses = []
    for seed in range(8):
        rows, fault, lost = drill(synchronous, seed)
        directory = tmp_path / str(seed)
        write(directory, rows)
        run = drills.Run.__new__(drills.Run)
        run.directory, run.faults, run.synchronous = directory, [fault], synchronous
        assert (run.lost(), len(run.twice())) == (lost, lost)
        losses.append(lost)
        times = sorted({time for own in rows.values() for time, *_ in own})
        late = [time for time in times if time > fault[0] - 0.5]
        gaps = [b - a for a, b in zip(late, late[1:])]
        assert run.longest_gap() == pytest.approx(max(gaps, default=float("inf")))
    assert 0 in losses and max(losses) > 5


def test_what_a_drill_reads(tmp_path):
    """Pushes after a moment, of one task; the last test of the evaluator.

    Catches: the first test, the test of a worker, a gap that begins after the fault, and gaps
    of all tasks for one.
    """
    module = load("Operations/Fault-Tolerance/fault_tolerance.py")
    run = module.Run.__new__(module.Run)
    run.directory, run.synchronous, run.faults = tmp_path, False, [(12, 13)]
    rows = [run_files.push(t, n) for n, t in ((1, 10), (3, 12), (5, 20), (6, 21))]
    run_files.metrics(tmp_path, "worker-0", *rows, run_files.test(22, 6, 0.5, 0.9))
    run_files.metrics(
        tmp_path, "worker-1", run_files.push(11, 2), run_files.push(16, 4), run_files.push(22, 7)
    )
    rows = [run_files.test(30, 6, 0.99, 0.1), run_files.test(31, 7, 0.96, 0.2)]
    run_files.metrics(tmp_path, "evaluator-0", *rows)
    assert run.pushes(12) == [(16, 4), (20, 5), (21, 6), (22, 7)]
    assert run.pushes(10, "worker-1") == [(11, 2), (16, 4), (22, 7)]
    assert [run.longest_gap(), run.longest_gap("worker-0"), run.longest_gap("worker-1")] == [
        4,
        8,
        6,
    ]
    done = types.SimpleNamespace(returncode=0, stdout="", stderr="")
    module.subprocess = types.SimpleNamespace(run=lambda *_, **__: done)
    assert run.accuracy() == pytest.approx(0.96)
    done.returncode = 1
    assert run.accuracy() == 0
    assert [run.lost(), sorted(run.twice())] == [0, []]


KEPT = {"still": 3.0, "away": 15.0, "lost": 750, "accuracy": 0.95, "codes": [1, 130]}
BROKEN = [
    {"still": 3.1},
    {"away": 15.1},
    {"lost": 751},
    {"back": True},
    {"accuracy": 0.94},
    {"codes": [0, 130]},
    {"codes": [1]},
    {"codes": [1, 0]},
    {"says": ""},
    {"left": {("worker", 0): mock.Mock()}},
]


@pytest.mark.parametrize("change", [{}, *BROKEN], ids=" ".join)
def test_a_broken_promise_is_told(change, drills, tmp_path, monkeypatch):
    """A drill that just keeps its promise, and one that breaks one part of it."""
    numbers = {**KEPT, "says": "ps 0 was killed", "left": {}, "back": False, **change}
    output = tmp_path / "output.txt"
    output.write_text(numbers["says"])
    ended = []

    class Run:
        def __init__(self, folder, **flags):
            self.output, self.codes, self.faults = output, numbers["codes"], []
            self.process = mock.Mock(wait=ended.append)

        def longest_gap(self, task=None):
            return numbers["away" if task == "worker-1" else "still"]

        tasks = staticmethod(lambda: numbers["left"] if ended else {})
        lost = staticmethod(lambda: numbers["lost"])
        goes_back_too_far = staticmethod(lambda: numbers["back"])
        twice = staticmethod(lambda: {7, 8})
        accuracy = staticmethod(lambda: numbers["accuracy"])

    monkeypatch.setattr(drills, "Run", Run)
    monkeypatch.setattr(drills, "time", mock.Mock())
    promise = drills.Drill(
        "a name",
        lambda run, off: None,
        3,
        "was killed",
        away=("worker-1", 15),
        lost=750,
        codes=(drills.ERROR, drills.STOPPED),
    )
    result = drills.measure(promise, False, 1.0, tmp_path)
    broken = ["lost" if part == "back" else part for part in change]
    assert result["broken"] == broken and result["twice"] == 2
