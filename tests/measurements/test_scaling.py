"""Scaling: what it runs and counts, its delays, its laws, and its picture; nothing trains."""

import functools
import itertools
import json
import re
import sys
import time
import types
from unittest import mock

import numpy as np
import pytest
from measurements import MEASUREMENTS, Calls, figures, legend_of, lines_of, load, trained, write

# What it runs and counts -------------------------------------------------------------------------


def test_the_runs_of_scaling():
    """Updates for as many mini-batches: of 8 workers together, but for a backup, with T steps.

    Catches: mini-batches of one worker, a backup worker that counts, steps for mini-batches,
    and delays in an update's own time.
    """
    module, calls = load("Scaling"), []
    module.forked, module.summarize_run = trained(calls), lambda *words: {"words": words[:3]}

    def steps(name, n, delay, batches=1000):
        result = module.measure(("", name, n, delay, 0.1), 2, batches)
        return calls[-1][1]["--steps"], result["batches"]

    due = {"HogWild": 1000, "DOWNPOUR-Easy": 100, "Synchronous-SGD": 125, "DynSGD": 1000}
    due |= {module.BACKUP: 142, "SAGN": 12, "Ring-AllReduce": 125}
    for name, number in due.items():
        assert steps(name, 8, "exponential") == (number, 1000), name
    assert steps("Synchronous-SGD", 8, "exponential", 80) == (20, 80)
    # Alone: 10 s of 1 / 70 ms; eight together, one of whom takes 0.35 s: 8 / 0.35 of these.
    assert steps("HogWild", 1, "constant")[1] == 142
    assert steps("Synchronous-SGD", 8, "one slow")[1] == 228
    assert steps("HogWild", 8, "one slow")[1] == 1000
    jobs, row = calls[0]
    assert (jobs, row["--seed"]) == ({"ps": 1, "worker": 8}, 2)
    assert ["--backup-workers" in row for _, row in calls[:7]] == [
        name == module.BACKUP for name in due
    ]
    runs = [{"batches_per_second": rate} for rate in (12.0, 10.0, 12.5, 20.0)]
    own = module.own_seconds({"1 worker, constant: HogWild": runs})
    assert [own, module.own_seconds({})] == pytest.approx([1 / 12.25 - 0.07, 0])
    lost = [{"test_loss": loss} for loss in (0.5, None, 0.25, None, 0.3, 0.1)]
    assert module.losses(lost) == "0.275 (0.100-0.500) 2 diverged"
    needed = [module.gradients_needed(name, 8) for name in due]
    assert needed == [1, 1, 8, 1, 7, 8, 8]


def test_each_run_of_scaling():
    """What a case's name says, in what its script is given: of all cases.

    Catches: the delay, rate or workers of another case, steps alone where the example has none,
    and several updates in a call.
    """
    module, calls = load("Scaling"), Calls()
    module.forked, module.summarize_run = trained(calls), lambda *words: {}
    module.law = lambda *case: 50.0
    for case in module.all_cases():
        cluster, _, name = case[0].partition(": ")
        words = cluster.split(", ")
        n = int(words[0].split()[0])
        assert words[0] == (f"{n} workers" if n > 1 else "1 worker")
        lr = float(words[2].removeprefix("lr ")) if len(words) > 2 else 0.1
        assert case[1:] == (name, n, words[1], lr)
        module.measure(case, 4, 1000)
        jobs, row = calls[-1]
        ring, optimizer = name == "Ring-AllReduce", "the optimizer" in name
        assert jobs == ({"worker": n} if ring else {"ps": 1, "worker": n})
        alone = name in ("DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "SAGN")
        due = {"--seed": 4, "--learning-rate": lr}
        due |= {"--local-steps": 10 if alone else 1} if alone or name == "DynSGD" else {}
        due |= {"--backup-workers": 1} if name.endswith("a backup") else {}
        due |= {} if ring or optimizer else {"--updates-per-call": "1"}
        assert {flag: value for flag, value in row.items() if flag != "--steps"} == due, case[0]
        text = calls.texts[-1]
        assert f"delays.late(outputs, {words[1]!r}, 0.07, {n}, 5)" in text
        whole = (n, words[1]) == (8, "exponential") or (
            n > 3 and module.gradients_needed(name, n) == 1
        )
        batches = 1000 if whole else 500
        batches_of_update = (10 if alone else 1) * module.gradients_needed(name, n)
        assert row["--steps"] == max(8 if name == "SAGN" else 20, batches // batches_of_update)
    module.law = lambda *case: 3.0 if "backup" not in case[0] else None
    few = [module.batches_of(("", name, 4, "one slow", 0.1), 1000) for name in module.SYNCHRONOUS]
    assert few == [30, 30, 30]
    assert module.batches_of(("", module.OPTIMIZER_BACKUP, 4, "one slow", 0.1), 1000) == 428
    assert module.batches_of(("", "HogWild", 3, "one slow", 0.1), 1000) == 30
    assert module.batches_of(("", "HogWild", 4, "one slow", 0.1), 1000) == 1000
    assert module.batches_of(("", "Synchronous-SGD", 8, "exponential", 0.1), 1000) == 1000
    assert module.batches_of(("", "Synchronous-SGD", 8, "constant", 0.1), 5) == 0


@pytest.fixture(scope="module")
def scaling():
    return load("Scaling")


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
    facts = scaling.summarize_run(name, 3, trained, samples, tmp_path)
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


# Delays ------------------------------------------------------------------------------------------


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


def test_a_changed_script_finds_its_delays(scaling):
    """Catches an import in the changed text of a module that stands elsewhere."""
    texts = dict(scaling.delays.changes("constant", 0.1, 2, 1))
    statement, names = texts[scaling.delays.BEFORE].partition("\n")[0], {}
    exec(statement, names)
    assert names["delays"].late.__module__ == "lab.measure.delays"


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
        draw = tf.function(functools.partial(scaling.delays.draw_in_graph, variation, 0.03))
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


# Laws, and the picture ---------------------------------------------------------------------------

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
    table = (MEASUREMENTS / "Scaling" / "table.txt").read_text()  # see test_committed_tables
    to_the_law = set(re.findall(r"\(\S+-\S+\) +(\d\.\d\d)  ", table))
    assert len(to_the_law) > 5 and all(0.88 <= float(share) <= 1.12 for share in to_the_law)
    late = [
        (scaling.median_of(runs, "staleness_mean"), scaling.median_of(runs, "staleness_by_rates"))
        for case, runs in results.items()
        if case.endswith("exponential: HogWild") and not case.startswith("1 ")
    ]
    assert len(late) == 4
    for counted, computed in late:
        assert counted == pytest.approx(computed, rel=0.01)


def test_the_picture_of_scaling():
    """A dot is a run, a line the law; a run that diverged is a cross at the top, at its seconds.

    Catches: runs with another delay or learning rate, another number of workers, and the law
    without the seconds of one worker.
    """
    module, asked_for = load("Scaling"), []

    def law(name, n, delay, own):
        asked_for.append((name, delay, own))
        return 100 * n

    def run(rate, loss=None, seconds=0):
        return {"batches_per_second": rate, "test_loss": loss, "seconds": seconds}

    module.law, drawn = law, figures(module)
    results = {
        "1 worker, constant: HogWild": [run(10)],
        "1 worker, exponential: HogWild": [run(10), run(12)],
        "4 workers, exponential: HogWild": [run(40)],
        "4 workers, exponential, lr 0.5: HogWild": [run(41)],
        "4 workers, one slow: HogWild": [run(42)],
        "8 workers, exponential: Ring-AllReduce": [run(50, 0.5, 20), run(60, None, 30)],
        "8 workers, exponential: ADAG": [run(1, 0.25, 5), run(1, 0.125, 6)],
        "8 workers, exponential, lr 0.5: ADAG": [run(1, 0.75, 5)],
    }
    module.draw(results, None, None)
    rates, loss = drawn[0].axes
    assert lines_of(rates) == [
        (".", "", [(1, 10), (1, 12)]),
        (".", "", [(4, 40)]),
        ("None", "HogWild", [(1, 100), (4, 400)]),
        (".", "", [(8, 50), (8, 60)]),
        ("None", "Ring-AllReduce", [(8, 800)]),
    ]
    assert [line.get_linestyle() for line in rates.lines[2::2]] == ["-", "--"]
    assert asked_for == [
        (name, "exponential", pytest.approx(0.03))
        for name in ("HogWild", "HogWild", "Ring-AllReduce")
    ]
    assert lines_of(loss) == [
        ("o", "Ring-AllReduce", [(20, 0.5)]),
        ("x", "", [(30, 1)]),
        ("o", "ADAG", [(5, 0.25), (6, 0.125)]),
        ("None", "guessing", [(0, pytest.approx(2.302585)), (1, pytest.approx(2.302585))]),
    ]
    cross = loss.lines[1]
    assert cross.get_transform() == loss.get_xaxis_transform() and not cross.get_clip_on()
    assert list(rates.get_xticks()) == [1, 4, 8] and loss.get_yscale() == "log"
    assert legend_of(drawn[0]) == ["HogWild", "Ring-AllReduce", "ADAG", "guessing"]
    colours = {line.get_label(): line.get_color() for axes in (rates, loss) for line in axes.lines}
    assert rates.lines[4].get_color() == loss.lines[0].get_color() != colours["HogWild"]
