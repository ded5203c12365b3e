"""What Measurements, Fault-Tolerance and Parallel-Experiments count, from rows made by hand.

Nothing trains here: a run is a folder of metrics, and what is expected was counted another way.
"""

import ast
import functools
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import sys
import time
import types
from unittest import mock

import numpy as np
import pytest
import run_files
import support
from lab import drivers, examples
from test_measurements import MEASUREMENTS

TESTS = ["test_loss", "test_accuracy"]


def write(directory, rows):
    """Writes {task: rows}: (time, step, staleness) of a push, (time, step, loss, accuracy).

    A test may have a fifth number, when it began.
    """
    for task, own in rows.items():
        lines = [
            run_files.push(*row, pull_time=row[0] - 0.1)
            if len(row) == 3
            else run_files.test(*row[:4], began=[*row, ""][4], tests=TESTS)
            for row in own
        ]
        run_files.metrics(directory, task, *lines, tests=TESTS)


def load(*parts):
    """Returns the module of a script."""
    return examples.load(support.ROOT.joinpath(*parts))


# Pipeline ----------------------------------------------------------------------------------------


def test_what_a_place_stores_and_how_long_it_is_idle(tmp_path):
    """From a timeline made by hand, of two places of one process, in microseconds.

    Catches: another device's events, a micro-batch that is back before its backward pass has ended.
    """
    pipeline = load("Measurements", "Pipeline", "pipeline.py")
    device = "/job:localhost/replica:0/task:0/device:CPU:%d Compute"
    events = [
        {"ph": "M", "pid": 7 + k, "args": {"name": device % k if k < 2 else "Tensors"}}
        for k in range(3)
    ]

    def op(place, name, begin, end):
        events.append(
            {
                "ph": "X",
                "pid": 7 + place,
                "name": "MatMul",
                "ts": 1000 + begin,
                "dur": end - begin,
                "args": {"name": name},
            }
        )

    for begin, name in enumerate(("forward/micro_batch_0/a", "forward/micro_batch_1/a")):
        op(0, name, 10 * begin, 10 * begin + 10)
        op(1, name + "_1", 10 * begin + 10, 10 * begin + 20)
    op(0, "backward/micro_batch_0/b", 30, 40)
    op(0, "backward/micro_batch_0/c", 40, 50)
    op(0, "forward/micro_batch_2/a", 45, 50)  # while micro-batch 0 is not back
    op(0, "backward/micro_batch_1/b", 50, 60)
    op(1, "backward/micro_batch_0/b", 30, 40)
    op(1, "Assign", 90, 100)
    op(2, "forward/micro_batch_3/a", 0, 100)
    path = tmp_path / "timeline-6.json"
    path.write_text(json.dumps({"traceEvents": events}))
    ops = pipeline.read(path)
    assert [pipeline.stored(ops, k) for k in range(2)] == [3, 2]
    seconds, shares = pipeline.idle(ops, 2)
    assert seconds == pytest.approx(1e-4)
    assert shares == pytest.approx([1 - 0.5, 1 - 0.4])
    assert sorted(pipeline.unpack(pipeline.pack(ops))) == [
        op._replace(begin=pytest.approx(op.begin), end=pytest.approx(op.end)) for op in sorted(ops)
    ]


# Benchmarks --------------------------------------------------------------------------------------


def test_a_second_sitting_measures_what_is_left(tmp_path):
    """Catches a repeat that is measured twice, lost, or put to another case."""
    done = []

    def measure(case, repeat):
        done.append((case[0], repeat))
        if len(done) == 4:
            raise KeyboardInterrupt
        return f"{case[0]}{repeat}"

    turns = drivers.Console(), [("a",), ("b",)], 3, measure, tmp_path / "measured.json"
    with pytest.raises(KeyboardInterrupt):
        drivers.by_turns(*turns)
    results = drivers.by_turns(*turns)
    assert results == {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2"]}
    assert done == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_what_others_disturb_is_measured_again(tmp_path, monkeypatch):
    """Catches: a disturbed number that is kept, a share that is forgotten, no end of tries."""
    shares = iter([0.5, 0.02, 0.04, 0.2, 0.3, 0.15])
    others = types.SimpleNamespace(share=lambda: next(shares))
    monkeypatch.setattr(drivers.idle, "Others", lambda: others)
    numbers, kept = itertools.count(), tmp_path / "measured.json"
    turns = drivers.Console(), [("a",), ("b",)], 1, lambda case, _: next(numbers), kept, 3
    assert drivers.by_turns(*turns) == {"a": [1], "b": [2]}
    assert drivers.others_of(kept) == 0.04
    again = drivers.Console(), [("a",)], 2, *turns[3:]
    assert drivers.by_turns(*again) == {"a": [1, 5]}
    assert drivers.others_of(kept) == 0.15


def test_a_script_that_has_changed_is_measured_again(tmp_path, capsys):
    """Catches: numbers of an older script, or of an unknown one, under the digest of today's; a
    share of what is forgotten; another case that is measured again, too."""
    numbers, kept = itertools.count(), tmp_path / "measured.json"
    cases = [("a",), ("b",), ("c",)]
    kept.write_text(json.dumps({"c": [7], "d": [8], drivers.OTHERS: {"c": [0.9], "d": [0.8]}}))

    def sitting(**digests):
        turns = drivers.Console(), cases[: len(digests)], 1, lambda *_: next(numbers)
        return drivers.by_turns(*turns, kept, 1, digests)

    assert sitting(a="A", b="B") == {"a": [0], "b": [1]}
    assert sitting(a="A", b="B") == {"a": [0], "b": [1]} and not capsys.readouterr().err
    assert sitting(a="A", b="new", c="C") == {"a": [0], "b": [2], "c": [3]}
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" is measured again: ")[0] for line in lines] == ["b", "c"]
    known = json.loads(kept.read_text())
    assert known[drivers.DIGESTS] == {"a": "A", "b": "new", "c": "C"} and known["d"] == [8]
    assert [len(known[drivers.OTHERS][name]) for name in "abcd"] == [1, 1, 1, 1]
    assert known[drivers.OTHERS]["c"] != [0.9] and known[drivers.OTHERS]["d"] == [0.8]


def test_what_was_kept_is_never_cut_short(tmp_path, monkeypatch):
    """Catches a file of which a stop leaves the beginning, so that nothing can go on from it."""
    kept, write = tmp_path / "measured.json", pathlib.Path.write_text
    turns = drivers.Console(), [("a",), ("b",)], 1, lambda case, _: case[0], kept
    drivers.by_turns(turns[0], [("a",)], *turns[2:])

    def half(path, text, *more, **named):
        write(path, text[: len(text) // 2], *more, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pathlib.Path, "write_text", half)
        drivers.by_turns(*turns)
    assert json.loads(kept.read_text())["a"] == ["a"]
    assert drivers.by_turns(*turns) == {"a": ["a"], "b": ["b"]}
    assert [path.name for path in tmp_path.iterdir()] == ["measured.json"]


# Scaling -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaling():
    return load("Measurements", "Scaling", "scaling.py")


@pytest.mark.parametrize(
    ("name", "factor"), [("HogWild", 1), ("DOWNPOUR-Easy", 10), ("Synchronous-SGD, a backup", 2)]
)
@pytest.mark.parametrize("trained", [True, False])
def test_scaling_counts_pushes(scaling, name, factor, trained, tmp_path, monkeypatch):
    """Catches: updates for mini-batches, a backup that counts, the wrong worker or time.

    Each push took 0.1 s. From push to pull passed 0.9, 1.9, 0.9 and 3.9 s.
    """
    rows = {
        "worker-0": [(10, 1, 0), (11, 2, 1), (13, 4, 0), (13.5, 4, 0.9, 0.7), (19, 9, 0.2, 0.95)],
        "worker-1": [(14, 5, 0), (15, 5, 0)],
        "worker-2": [(12, 3, 2), (16, 8, 3)],
    }
    write(tmp_path, rows)
    summary = types.SimpleNamespace(summarize=lambda run: {"staleness_by_rates": 1.25})
    monkeypatch.setattr(scaling, "summary", summary)
    samples = [(9, 100.0), (11, 100.0), (17, 103.0)]  # seconds of processors so far
    facts = scaling.facts(name, 3, trained, samples, tmp_path)
    for times, lasts in (("pull_to_push", [0.1] * 3), ("computing", [0.099] * 3)):
        quantiles = facts.pop(times)
        assert [quantiles[i] for i in (0, 7, -1)] == pytest.approx(lasts)
    deciles = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert scaling.QUANTILES == [0, 0.01, 0.05, *deciles, 0.95, 0.99, 1]
    pauses = dict(zip(scaling.QUANTILES, facts.pop("push_to_pull"), strict=True))
    assert [pauses[q] for q in (0, 0.5, 1)] == pytest.approx([0.9, 1.4, 3.9])
    assert facts == {
        # From update 5 at 14 s, when the last worker has begun, to update 8 at 16 s.
        "batches_per_second": pytest.approx(factor * 3 / 2),
        "test_loss": 0.2 if trained else None,
        "test_accuracy": 0.95 if trained else None,
        "staleness_mean": pytest.approx(6 / 7),
        "staleness_by_rates": 1.25 if trained else None,
        "staleness_max": 3,
        "staleness_counts": [4, 1, 1, 1],
        "late": pytest.approx(3 / 7),
        "staleness_of_last_worker": 2.5,
        "twice": 1 / 3,  # of the steps 1, 4 and 5 worker 1 has pushed two gradients for the last
        "waiting": pytest.approx(0.01),
        "cores": pytest.approx(1 / 2),
        "seconds": 2,
    }


def test_each_gradient_of_a_worker_draws_a_delay(scaling, monkeypatch):
    """Catches: the same delays again where the script builds its update more than once."""
    slept, tf = [], mock.MagicMock(custom_gradient=lambda function: function)
    tf.numpy_function = lambda wait, arguments, kind, stateful: mock.MagicMock(g=wait(*arguments))
    tf.compat.v1 = tf
    for name in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1"):
        monkeypatch.setitem(sys.modules, name, tf)
    monkeypatch.setattr(scaling.delays, "time", types.SimpleNamespace(sleep=slept.append))
    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "worker", "index": 1}}')
    for _ in range(2):
        _, backward = scaling.delays.late("outputs", "exponential", 1, 2, 5)
        backward(mock.MagicMock())
        backward(mock.MagicMock())
    drawn = scaling.delays.draws("exponential", 1, 1, 2, 5)
    assert slept == list(itertools.islice(drawn, 4)) and len(set(slept)) == 4


def test_a_worker_of_a_coordinator_waits_itself(scaling, monkeypatch):
    """Catches: Python in the graph, for which all workers would wait in the chief, two at a time;
    a wait that comes twice, or another law."""
    import tensorflow as tf

    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "chief", "index": 0}}')

    @tf.function
    def gradient(x):
        return tf.gradients(3 * scaling.delays.late(x, "constant", 0.1, 8, 0), x)[0]

    x, seconds = tf.constant([1.0, 2.0]), []
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        ops = gradient.get_concrete_function(x).graph.get_operations()
        assert not [op.type for op in ops if "PyFunc" in op.type]
        assert gradient(x).numpy().tolist() == [3, 3]
        for _ in range(5):
            began = time.monotonic()
            gradient(x)
            seconds.append(time.monotonic() - began)
    assert 0.1 < min(seconds) < 0.2
    for variation in (0.25, 1.0, "exponential"):
        draw = tf.function(functools.partial(scaling.delays.drawn_in_graph, variation, 0.03))
        drawn = np.array([draw(tf.constant(n, tf.int64)).numpy() for n in range(2000)])
        assert drawn.mean() == pytest.approx(0.03, rel=0.06)
        due = variation if variation == 0.25 else 1
        assert drawn.std() / drawn.mean() == pytest.approx(due, rel=0.09)


@pytest.mark.parametrize("job", ["chief", "worker"])
def test_each_gradient_of_a_loop_waits(scaling, monkeypatch, job):
    """Catches: a loop in a tf.function that waits once for all, or as a coordinator does."""
    import tensorflow as tf

    monkeypatch.setenv("TF_CONFIG", json.dumps({"task": {"type": job, "index": 0}}))
    delays = scaling.delays
    monkeypatch.setattr(delays, "draws_of", lambda *law: iter([0.05, 0.1, 0.15]))

    @tf.function(autograph=False)
    def updates(w):
        def one(i, w, times):
            with tf.GradientTape() as tape:
                tape.watch(w)
                loss = tf.reduce_sum(delays.late(w, "exponential", 0.1, 2, 0) ** 2)
            w -= 0.1 * tape.gradient(loss, w)
            with tf.control_dependencies([w]):
                times = tf.tensor_scatter_nd_update(times, [[i + 1]], [tf.timestamp()])
            return i + 1, w, times

        times = tf.concat([[tf.timestamp()], tf.zeros([3], tf.float64)], 0)
        return tf.while_loop(lambda i, *_: i < 3, one, [0, w, times], parallel_iterations=1)[1:]

    w, times = updates(tf.constant([1.0, 2.0]))
    assert w.numpy() == pytest.approx([0.512, 1.024])
    assert np.diff(times) == pytest.approx([0.05, 0.1, 0.15], abs=0.04)


def test_a_pull_is_before_the_wait(scaling, monkeypatch):
    """Catches: tf.function notes the pull after the wait, which Compare's clock then leaves out."""
    import tensorflow as tf

    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "worker", "index": 0}}')

    @tf.function
    def times(x):
        g, seconds = tf.gradients(scaling.delays.late(x, "constant", 0.1, 2, 0) ** 2, x), []
        for tensors in [x], g:  # as push_row() of an example
            with tf.control_dependencies(tensors):
                seconds.append(tf.timestamp())
        return *seconds, g[0]

    spans = []
    for _ in range(5):  # another thread may read the first clock a moment after the wait has begun
        pulled, ready, _ = times(tf.constant([1.0]))
        spans.append(float(ready - pulled))
    assert 0.1 < max(spans) and min(spans) < 0.2


@pytest.mark.parametrize("variation", [0.0, 0.1, 0.5, 1.0])
def test_times_vary_as_they_are_told_to(scaling, variation):
    """Catches: a variance or a shape for the coefficient of variation, another mean or worker."""
    drawn = scaling.delays.draws(variation, 0.03, 1, 2, 5)
    times = np.array(list(itertools.islice(drawn, 40000)))
    assert times.mean() == pytest.approx(0.03, rel=0.02)
    assert times.std() / times.mean() == pytest.approx(variation, rel=0.03)
    if variation == 1:  # exponential: e^-1 of them are longer than the mean
        assert (times > 0.03).mean() == pytest.approx(np.exp(-1), rel=0.03)
    if variation:
        assert next(scaling.delays.draws(variation, 0.03, 0, 2, 5)) != times[0]


def test_a_rate_leaves_out_the_start_and_the_first_tenth():
    """Catches: the time in which workers wait for the last one, or the set-up of its graph."""
    forked = load("lab", "forked.py")
    late = [(time, f"worker-{time % 3}") for time in range(100, 130)]
    pushes = [
        {"push_time": time, "task": task, "global_step": step}
        for step, (time, task) in enumerate([(1, "worker-0"), (2, "worker-1"), *late], 1)
    ]
    # Worker 2 has begun at 101, after which all push; a tenth of them was made before 101.
    assert forked.window(pushes) == (101, 129, 1)
    assert forked.window(pushes * 2)[0] == 104  # the first tenth of 64 ends later


HARMONIC = sum(1 / i for i in range(1, 9))  # of 8: the mean of the latest of 8, over that of one


@pytest.mark.parametrize(
    ("name", "delay", "waits"),
    [
        ("HogWild", "exponential", 1 / 8),  # eight at once, none waits
        ("HogWild", "heavy-tailed", 1 / 8),
        ("HogWild", "one slow", 1 / 7.2),
        ("DOWNPOUR-Easy", "exponential", 1 / 8),
        ("Synchronous-SGD", "constant", 1 / 8),
        ("Synchronous-SGD", "exponential", HARMONIC / 8),
        ("Ring-AllReduce", "exponential", HARMONIC / 8),
        ("Synchronous-SGD", "one slow", 5 / 8),
        ("Synchronous-SGD, a backup", "constant", 1 / 7),
        ("Synchronous-SGD, a backup", "one slow", 1 / 7),
    ],
)
def test_the_law_of_scaling(scaling, name, delay, waits):
    """The simulation against what is known in closed form: seconds of a mini-batch, at a mean of 1.

    Catches: a worker that does not wait, or waits too long; another law of the delays.
    """
    assert 1 / scaling.law(name, 8, delay, 0, mean=1) == pytest.approx(waits, rel=0.04)


def test_a_late_gradient_is_ended_for_nothing(scaling):
    """Of two workers with one backup a step takes less than a delay, but not half of one.

    If the slower one could leave its gradient, a step would take the shorter of two: 1/2. So it
    takes more, 3/4. Catches that, and one that waits for the slower one: 3/2.
    """
    step = 1 / scaling.law(scaling.BACKUP, 2, "exponential", 0, mean=1)
    assert step == pytest.approx(3 / 4, rel=0.04)


def test_the_committed_rates_follow_the_laws(scaling):
    """As closely as the page says: rates within 12%, HogWild's staleness within 1%.

    Catches new results, or another law, that the page's sentences do not fit.
    """
    results = json.loads((MEASUREMENTS / "Scaling" / "results.json").read_text())
    table = (MEASUREMENTS / "Scaling" / "table.txt").read_text()  # which test_measurements checks
    to_the_law = set(re.findall(r"\(\S+-\S+\) +(\d\.\d\d)  ", table))
    assert len(to_the_law) > 5 and all(0.88 <= float(share) <= 1.12 for share in to_the_law)
    late = [
        (scaling.middle(runs, "staleness_mean"), scaling.middle(runs, "staleness_by_rates"))
        for case, runs in results.items()
        if case.endswith("exponential: HogWild") and not case.startswith("1 ")
    ]
    assert len(late) == 4
    for counted, computed in late:
        assert counted == pytest.approx(computed, rel=0.01)


# Staleness ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [True, False])
def test_staleness_counts_clocks_and_gaps(trained, monkeypatch):
    """Catches: a warm start that counts, gaps of the slow worker, or from before all had begun."""
    staleness = load("Measurements", "Staleness", "staleness.py")
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
    assert staleness.facts(trained, samples, types.SimpleNamespace(rows=known.get), warm=2) == {
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


# Compression -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [True, False])
def test_compression_counts_what_a_worker_sends(trained, tmp_path, monkeypatch):
    """Catches: what is received that counts as sent, the sum of all workers, another last part."""
    compression = load("Measurements", "Compression", "compression.py")
    monkeypatch.setattr(compression, "POINTS", 2)
    columns = "global_step", "loss", "bytes"
    rows = [(1, 4, 900), (2, 3, 900), (3, 2, 900), (4, 1, 900)]
    rows += [(step, loss + 1, 1100) for step, loss, _ in rows]  # the other worker's
    pushes = [dict(zip(columns, row)) for row in rows]
    tests = [{"test_loss": 0.9, "test_accuracy": 0.5}, {"test_loss": 0.5, "test_accuracy": 0.8}]
    monkeypatch.setattr(compression.drivers, "pushes", lambda _: pushes)
    monkeypatch.setattr(compression.drivers, "tests", lambda _: tests)
    assert compression.facts(trained, tmp_path) == {
        "test_loss": 0.5 if trained else None,
        "test_accuracy": 0.8 if trained else None,
        "kilobytes": {"2": 0.5},
        "updates": [2, 4],
        "losses": [4.0, 2.0],
    }


# Slow-Network ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("Slow-Network/slow_network.py", "install util-linux and iproute2"),
        ("Ring-Bandwidth/ring_profile.py", "install linux-perf"),
    ],
)
def test_a_measurement_says_why_it_cannot_run(script, words, tmp_path):
    """Without iproute2, or perf: exit code 2, and one line that says what to install."""
    env = {**os.environ, "PATH": str(tmp_path)}
    done = support.run_to_end(sys.executable, MEASUREMENTS / script, env=env)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and words in line


def test_slow_network_says_how_full_a_link_is(tmp_path):
    """Catches: bytes for bits, both directions together, another time than that of the updates."""
    slow = load("Measurements", "Slow-Network", "slow_network.py")
    rows = [(10, 1, 0), (14, 3, 0), (20, 5, 0), (21, 5, 0.5, 0.9)]
    write(tmp_path, {"worker-0": rows, "worker-1": [(12, 2, 0), (16, 4, 0)]})
    # What the ps and two workers have sent and received: 1 MB a second from 10 to 20.
    samples = [(0, [0] * 6), (10, [0] * 6), (20, [10e6, 4e6, 2e6, 5e6, 2e6, 5e6]), (30, [90e6] * 6)]
    assert slow.facts(True, samples, tmp_path, 20, 10) == {
        "batches_per_second": 7.5,
        "links": pytest.approx([0.8, 0.4, 0.4]),
        "test_loss": 0.5,
    }
    assert slow.facts(False, samples, tmp_path, 20, 10)["test_loss"] is None


@pytest.mark.parametrize(("code", "trained"), [(0, True), (3, None)])
def test_a_task_that_fails_last_fails_the_run(code, trained, tmp_path, monkeypatch):
    """Catches a failure between two looks, behind which no task is left."""
    forked = load("lab", "forked.py")
    alive = iter([True, False])
    process = mock.Mock(exitcode=code, is_alive=lambda: next(alive))
    monkeypatch.setattr(forked, "SAMPLE_SECONDS", 0)

    def start():
        (tmp_path / "run" / "worker-0.txt").write_text("it failed")
        process.exitcode = None

    def sample():
        process.exitcode = code if next(looks) else None
        return 0.0

    looks, process.start = itertools.count(), start
    monkeypatch.setattr(forked, "context", lambda: mock.Mock(Process=lambda **_: process))
    arguments = "script.py", {"worker": 1}, [], tmp_path / "run", sample
    if trained is None:
        with pytest.raises(SystemExit, match="worker-0 of script.py failed: it failed"):
            forked.train(*arguments)
    else:
        assert forked.train(*arguments)[0]


# Ring-Bandwidth ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ring_bandwidth_counts_what_one_worker_sends(n, monkeypatch):
    """One second passes in the timed part. Catches: the first call counted, or bytes of all n."""
    bandwidth = load("Measurements", "Ring-Bandwidth", "ring_bandwidth.py")

    class Ring:
        def __init__(self, cluster, seconds):
            self.rank, self.sent = json.loads(cluster)["task"]["index"], 0

    def all_reduce(x, ring):
        """Sends 1,000 bytes to the right, or 500 from the last worker."""
        ring.sent += 500 if ring.rank == n - 1 else 1000
        x[:] = n * (n + 1) / 2

    script = types.SimpleNamespace(
        Ring=Ring,
        Cluster=lambda: bandwidth.os.environ["TF_CONFIG"],
        join=lambda ring, name: None,
        all_reduce=all_reduce,
    )
    seconds = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: next(seconds))
    monkeypatch.setattr(bandwidth, "time", clock)
    before = multiprocessing.active_children()
    try:
        processes = bandwidth.start(script, n)
        for size, times in (8, 300), (16 * 10**6, 4), (10**8, 1):
            # In that one second: so many times 1,000 bytes; raw TCP sends all of the vector.
            cost = processes.cost(size)
            assert cost["rate"] == pytest.approx((size if n == 1 else 1000) * times)
            assert cost["seconds"] == pytest.approx(1 / times)
    finally:
        for process in set(multiprocessing.active_children()) - set(before):
            process.terminate()
            process.join()
        for held in getattr(processes, "held", []):
            held.close()


# Fault-Tolerance ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drills():
    return load("Operations", "Fault-Tolerance", "fault_tolerance.py")


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


# Parallel-Experiments ----------------------------------------------------------------------------

EXPERIMENTS = support.ROOT / "Beyond-One-Machine" / "Parallel-Experiments"


def test_an_experiment_is_tested_on_rows_that_it_never_saw(monkeypatch):
    """Without Keras, which is played. Catches: an accuracy of training rows; loss as accuracy."""
    digits = examples.load(EXPERIMENTS / "digits.py")
    keras = mock.MagicMock()
    model = keras.Sequential.return_value
    model.evaluate.return_value = 0.25, 0.75
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setitem(sys.modules, "tensorflow", mock.MagicMock())
    assert digits.train(0.01, 0.5, epochs=3, batch_size=64) == {"accuracy": 0.75, "loss": 0.25}
    x, y, batch_size, epochs = model.fit.call_args.args
    assert (batch_size, epochs) == (64, 3)
    validation = model.fit.call_args.kwargs["validation_data"]
    for x_test, y_test in (model.evaluate.call_args.args, validation):
        seen = {row.tobytes() for row in x}
        assert len(x_test) == len(y_test) == 360 and len(x) == len(y) == 1797 - 360
        assert not any(row.tobytes() in seen for row in x_test)
    assert keras.layers.Dropout.call_args.args == (0.5,)
    assert keras.optimizers.Adam.call_args.args == (0.01,)


def test_each_result_has_the_numbers_of_its_own_run(tmp_path):
    """In the table and in the file, the best first. Catches rows that are sorted apart."""
    report = examples.load(EXPERIMENTS / "report.py")
    results = [
        {
            "run": f"x={x}",
            "parameters": {"x": x, "same": 1},
            "metrics": {} if x == 3 else {"accuracy": None if x == 4 else x / 10, "loss": -x},
            "status": "failed" if x == 3 else "done",
            "seconds": x + 0.5,
            "error": "KeyError: x" if x == 3 else "",
        }
        for x in (3, 1, 4, 5, 2)
    ]
    for direction, order in ("max", [5, 2, 1, 4, 3]), ("min", [1, 2, 5, 4, 3]):
        ordered = report.in_order(results, "accuracy", direction)
        assert [result["parameters"]["x"] for result in ordered] == order
        report.write_csv(ordered, tmp_path / "results.csv")
        lines = (tmp_path / "results.csv").read_text().splitlines()
        assert lines[0] == "run,x,same,accuracy,loss,status,seconds,error"
        assert lines[1:] == [
            f"x={x},{x},1,"
            + {4: ",-4,done", 3: ",,failed"}.get(x, f"{x / 10},-{x},done")
            + f",{x + 0.5},"
            + ("KeyError: x" if x == 3 else "")
            for x in order
        ]


# What the drivers share --------------------------------------------------------------------------


def flags_from(monkeypatch, *words, cases=(("a",), ("b",)), **more):
    """Returns what Parser.only() returns of these words, or the one line with which it ends."""
    parser = drivers.Parser("words")
    parser.number("--n", 4, "a number")
    parser.number("--x", 0.5, "a number", float, nargs="+")
    parser.full("words")
    parser.redraw(support.ROOT / "Measurements" / "Scaling" / "scaling.py")
    monkeypatch.setattr(sys, "argv", ["a script", *words])
    return parser.only(cases, **more)


def test_the_flags_of_a_driver(monkeypatch, capsys):
    """Numbers above zero, --redraw with a file or without, and cases by a part of their names.

    Catches: a default that is lost, zero or no number that is taken, and --full that leaves cases
    out.
    """
    flags, cases = flags_from(monkeypatch)
    due = {"n": 4, "x": 0.5, "repeats": 3, "full": False, "anyway": False, "redraw": None}
    assert (vars(flags), cases) == ({**due, "only": ""}, [("a",), ("b",)])
    flags, _ = flags_from(monkeypatch, "--n", "1", "--x", "1e-9", "2", "--anyway", "--redraw")
    assert (flags.n, flags.x, flags.anyway) == (1, [1e-9, 2], True)
    assert flags.redraw == support.ROOT / "Measurements" / "Scaling" / "results.json"
    assert str(flags_from(monkeypatch, "--redraw", "x.json")[0].redraw) == "x.json"
    quick = [
        flags_from(monkeypatch, *words, quick=("b",))[1]
        for words in ([], ["--full"], ["--only", "a"])
    ]
    assert quick == [[("b",)], [("a",), ("b",)], [("a",)]]
    for words, said in (
        (["--n", "0"], "must be above 0, is 0"),
        (["--n", "-1"], "must be above 0, is -1"),
        (["--x", "inf"], "must be above 0, is inf"),
        (["--x", "nan"], "must be above 0, is nan"),
        (["--n", "1.5"], "invalid int value: '1.5'"),
        (["--only", "c"], "--only must be in one of: a; b"),
        (["--ful"], "unrecognized arguments: --ful"),
    ):
        with pytest.raises(SystemExit) as end:
            flags_from(monkeypatch, *words)
        assert end.value.code == 2 and said in capsys.readouterr().err


def test_what_a_folder_of_a_measurement_is_called(tmp_path, monkeypatch):
    """OUTPUT_DIR, or the time in RUNS_DIR, or in runs; it may be there already.

    Catches: a folder that nobody asked for, and a second one that overwrites the first.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("OUTPUT_DIR", "RUNS_DIR"):
        monkeypatch.delenv(name, raising=False)
    first = drivers.output_directory("A-Name")
    assert first.is_dir() and first.parent.as_posix() == "runs/A-Name"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", first.name)
    monkeypatch.setenv("RUNS_DIR", "others")
    assert drivers.output_directory("A-Name").parent.as_posix() == "others/A-Name"
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "a" / "b"))
    assert [drivers.output_directory("A-Name") for _ in range(2)] == [tmp_path / "a" / "b"] * 2


def test_the_words_of_a_table(tmp_path, monkeypatch):
    """What the console has shown, without spaces at the ends; when, where, with which versions.

    Catches: colours in the file, a width of the terminal, and a median of what is None.
    """
    monkeypatch.setattr(drivers.os, "cpu_count", lambda: 7)
    words = drivers.setting("A 1", "B 2").split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", words[0]) and words[1:3] == ["A 1", "B 2"]
    assert re.fullmatch(r"Python 3\.\d+\.\d+", words[3]) and words[4].startswith("7 cores (")
    monkeypatch.setattr(drivers.sys, "stdout", types.SimpleNamespace(isatty=lambda: False))
    assert drivers.table_console(33).width == 33
    console = drivers.Console(width=20, record=True, file=io.StringIO())
    table = drivers.plain_table("a", "b")
    table.add_row("1", "2")
    console.print(table)
    console.print("[red]x[/red]   ")
    drivers.leave(console, tmp_path, "a picture")
    lines = (tmp_path / "table.txt").read_text().split("\n")
    assert lines == ["", " a   b", " ─────", " 1   2", "", "x", ""]
    assert drivers.spread([3, None, 1, 2, 8], "{:.1f}") == "2.5 (1.0-8.0)"
    assert [drivers.spread([None], "{}"), drivers.spread([0], "{}")] == ["", "0 (0-0)"]
    runs = [{"x": x, "y": None} for x in (3, None, 0, 8, 1)]
    assert [drivers.middle(runs, "x"), drivers.middle(runs, "y")] == [2, None]


def test_how_results_are_written(tmp_path):
    """As the committed files are: an item of a list on a line where it has lists or dicts itself.

    Catches: a file that differs from today's although its numbers do not.
    """
    value = {"a": {"b": [1, 2.5], "c": []}, "d": [{"e": [1]}, [2]], "f": {}, "g": "h", "i": (1,)}
    drivers.write_results(tmp_path / "x.json", value)
    assert (tmp_path / "x.json").read_text().split("\n") == [
        "{",
        ' "a": {',
        '  "b": [1, 2.5],',
        '  "c": []',
        " },",
        ' "d": [',
        '  {"e": [1]},',
        "  [2]",
        " ],",
        ' "f": {},',
        ' "g": "h",',
        ' "i": [1]',
        "}",
        "",
    ]
    for name in ("Scaling", "Compression", "Ring-Bandwidth", "Staleness"):
        text = (MEASUREMENTS / name / "results.json").read_text()
        assert drivers.json_lines(json.loads(text)) + "\n" == text, name


def test_a_picture_names_its_results(tmp_path):
    """Its width in dots, and the digest of the results that it shows.

    Catches: a digest of another file, by which a picture of older results would pass.
    """
    import matplotlib.image

    source, path = tmp_path / "results.json", tmp_path / "x.png"
    source.write_text("[1]")
    figure, axes = drivers.subplots(2.5, 1, 2, squeeze=False)
    assert axes.shape == (1, 2) and not axes[0][0].spines["top"].get_visible()
    assert not axes[0][0].spines["right"].get_visible() and axes[0][0].spines["left"].get_visible()
    drivers.save(figure, path, source)
    assert hashlib.sha256(b"[1]").hexdigest()[:16].encode() in path.read_bytes()
    assert b"Drawn from" in path.read_bytes()
    assert matplotlib.image.imread(path).shape[:2] == (350, 1008)  # 2.5 and 7.2 inches, 140 dpi
    assert figure.get_layout_engine().__class__.__name__ == "ConstrainedLayoutEngine"


def test_the_marks_of_bars(tmp_path, monkeypatch):
    """Words stand right of the last dot; the axis has room for them, and the first bar is on top.

    Catches: words over a bar, names of other bars, and a height that leaves lines of names out.
    """
    drawn = []
    monkeypatch.setattr(drivers, "save", lambda *given: drawn.append(given))
    values = {"a": [3.0, 1.0], "b\nb": [10.0, 5.0, 6.0], "c": [4.0]}
    colours = {"a": "C0", "b\nb": "C1", "c": "C2"}
    drivers.bars("a title", "a label", values, colours, "<{:g}>".format, "path", "source")
    ((figure, *paths),) = drawn
    (axes,) = figure.axes
    assert paths == ["path", "source"]
    assert [text.get_position() for text in axes.texts] == [(3.2, 0), (10.2, 1), (4.2, 2)]
    assert [text.get_text() for text in axes.texts] == ["<2>", "<6>", "<4>"]
    assert (axes.get_xlim(), axes.yaxis_inverted()) == ((0, 13), True)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(values)
    assert list(axes.get_yticks()) == [0, 1, 2] == [bar.get_y() + 0.35 for bar in axes.patches]
    assert figure.get_figheight() == pytest.approx(1.1 + 0.1 * (4 + 5 + 4))
    import matplotlib.colors

    faces = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert faces == [matplotlib.colors.to_hex(colour) for colour in colours.values()]
    assert [axes.get_title(loc="left"), axes.get_xlabel()] == ["a title", "a label"]


def test_the_tasks_of_a_run(tmp_path, monkeypatch):
    """Processes with this OUTPUT_DIR and a task, the first of each; none that has ended.

    Catches: tasks of another run, launchers among them, a zombie that counts, and an error for a
    process that is gone or not ours.
    """
    task = {
        name: {"task": {"type": name[:-1], "index": int(name[-1])}} for name in ("ps0", "worker1")
    }

    def process(name, directory, status="running", error=None):
        def environ():
            if error:
                raise error
            env = {"OUTPUT_DIR": str(directory)}
            return env | ({"TF_CONFIG": json.dumps(task[name])} if name else {})

        return types.SimpleNamespace(environ=environ, status=lambda: status, name=name)

    import psutil

    there = [
        process("ps0", tmp_path, error=psutil.AccessDenied(1)),
        process("ps0", tmp_path / "other"),
        process(None, tmp_path),
        process("worker1", tmp_path, psutil.STATUS_ZOMBIE),
        process("worker1", tmp_path, "sleeping"),
        process("ps0", tmp_path),
        process("worker1", tmp_path),
    ]
    monkeypatch.setattr(drivers.psutil, "process_iter", lambda: there)
    assert drivers.tasks(tmp_path) == {("worker", 1): there[4], ("ps", 0): there[5]}


def test_the_last_lines_of_a_run_that_fails(tmp_path):
    """Its output is text, its input is empty, and ten lines of it are told with the exit code.

    Catches: the first lines for the last, output that is lost, and an exit code that is.
    """
    code = (
        "import os, sys; print(repr(sys.stdin.read()), os.environ['OUTPUT_DIR'], os.environ['A'])"
    )
    said = drivers.run([sys.executable, "-c", code], tmp_path, A="b")
    assert said == f"'' {tmp_path} b\n"
    code = "import sys; [print(n) for n in range(12)]; print('e', file=sys.stderr); sys.exit(7)"
    with pytest.raises(SystemExit) as end:
        drivers.run([sys.executable, "-u", "-c", code], tmp_path)
    *lines, last = end.value.code.split("\n")
    assert lines == [*map(str, range(3, 12)), "e"]
    assert last.startswith(f"failed with exit code 7: {sys.executable} -u -c")


def test_a_report_waits_until_the_machine_is_quiet(tmp_path, monkeypatch):
    """Catches: a measurement of a busy machine, and one whose flag --anyway changes nothing."""
    asked = []

    def wait(anyway):
        asked.append(anyway)
        raise TimeoutError("others are busy")

    monkeypatch.setattr(drivers.idle, "wait", wait)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    for anyway in (False, True):
        flags = types.SimpleNamespace(redraw=None, anyway=anyway)
        with pytest.raises(SystemExit, match="a-name: others are busy"):
            drivers.report(tmp_path / "A-Name" / "a_name.py", flags, 40, None, None, None)
    assert asked == [False, True]


def test_pushes_and_tests_of_a_task(tmp_path):
    """Catches: rows of all tasks for those of one, tests among the pushes, and another order."""
    rows = {"worker-0": [(11, 2, 0), (13, 3, 0, 0.5)], "worker-1": [(10, 1, 0), (12, 3, 0)]}
    write(tmp_path, rows)
    assert [push["push_time"] for push in drivers.pushes(tmp_path)] == [10, 11, 12]
    assert [push["push_time"] for push in drivers.pushes(tmp_path, "worker-1")] == [10, 12]
    assert [test["test_loss"] for test in drivers.tests(tmp_path)] == [0]
    assert drivers.tests(tmp_path, "worker-1") == []


def test_a_sitting_takes_what_was_kept(tmp_path, monkeypatch):
    """Catches: a share of another file, words without the number of repeats, and cases of another
    sitting among the results."""
    monkeypatch.setattr(drivers, "setting", lambda: "here")
    shares = iter([0.5, 0.02, 0.6, 0.7, 0.8])
    monkeypatch.setattr(
        drivers.idle, "Others", lambda: types.SimpleNamespace(share=lambda: next(shares))
    )
    (tmp_path / "measured.json").write_text('{"b": [7], "others": {"b": [0.3]}}')
    flags, numbers = types.SimpleNamespace(repeats=5, full=False, anyway=False), itertools.count()
    console = drivers.Console(file=io.StringIO())
    monkeypatch.setattr(drivers, "digests_of", lambda names: dict.fromkeys(names, "a digest"))
    more = console, tmp_path, flags, [("a",)], lambda *_: next(numbers), "words", ["HogWild"]
    assert drivers.sitting(*more) == ({"a": [1]}, "words; median (range) of 1; here", 0.3)
    kept = json.loads((tmp_path / "measured.json").read_text())
    noted = {"b": [0.3], "a": [0.02]}
    assert kept == {"b": [7], "others": noted, "digests": {"a": "a digest"}, "a": [1]}
    assert json.loads((tmp_path / "results_digests.json").read_text()) == {"HogWild": "a digest"}
    flags.full = True  # after the third busy try the last one stays
    flags.repeats = 2
    assert drivers.sitting(*more) == ({"a": [1, 4]}, "words; median (range) of 2; here", 0.8)


# Flags -------------------------------------------------------------------------------------------


def flags_of(tree):
    """Returns the names of the flags that a script declares, in the form in which it reads them."""
    values, flags = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = zip(ast.walk(node.targets[0]), ast.walk(node.value))
            values.update({a.id: b for a, b in pairs if isinstance(a, ast.Name)})
        elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == "MORE_FLAGS":
            values["MORE_FLAGS"].elts += node.value.elts
        elif isinstance(node, ast.For):
            values[ast.unparse(node.target)] = node.iter
    # Each is [(name, default, help)]; a default of None: no flag.
    for table in ("(name, default, text)", "MORE_FLAGS"):
        for row in getattr(values.get(table), "elts", []):
            if isinstance(row, ast.Tuple):
                name, default, _ = row.elts
                default = values.get(getattr(default, "id", None), default)
                flags |= {name.value} if ast.unparse(default) != "None" else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) in ADD_A_FLAG:
                flags.add(str(node.args[0].value))
    names = {name.removeprefix("--").replace("-", "_") for name in flags}
    return {name for name in names if name.isidentifier()}


ADD_A_FLAG = ["add_argument", "number", "add"]
# What else reads the flags of a program.
LOADED = {
    "Beyond-One-Machine/TensorFlowOnSpark/tfos.py": [
        "From-TensorFlow-1/HogWild-Sessions/hogwild_sessions.py"
    ]
}


def programs():
    """Returns all programs of the project that have flags, but those of tfrun, lab and tests."""
    names = []
    for path in examples.tracked("*.py"):
        name = path.relative_to(support.ROOT).as_posix()
        folders = ("tests/", "tfrun/", "lab/", "Basics-Tutorial/")
        text = path.read_text()
        if not name.startswith(folders) and "__main__" in text and flags_of(ast.parse(text)):
            names.append(name)
    return names


@pytest.mark.parametrize("name", programs())
def test_each_flag_is_read(name):
    """Catches a flag that changes nothing."""
    tree = ast.parse((support.ROOT / name).read_text())
    read = {
        node.attr
        for path in (name, *LOADED.get(name, []))
        for node in ast.walk(ast.parse((support.ROOT / path).read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and re.search(r"\bflags$|\.parse_\w+\(.*\)", ast.unparse(node.value))
    }
    unread = flags_of(tree) - read
    assert not unread
