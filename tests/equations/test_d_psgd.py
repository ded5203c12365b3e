"""D-PSGD: its bytes, how fast a ring agrees, and the training; test_ring_steps.py has its steps."""

import types

import equations
import interleaved
import numpy as np
import problem
import pytest
import ring_workers
import support
from lab import examples

SCRIPT = examples.main_script("Further-Algorithms/D-PSGD")
EQUATION = equations.of(SCRIPT)
SIZE, LR, STEPS = 7, 0.25, 20
BYTES = 4 * 4 * SIZE  # in a step: to both neighbours, and from both


def starts(n):
    return np.random.RandomState(n).randn(n, SIZE).astype(np.float32)


def gradient(k, number, w):
    """Of a quadratic, another one in each worker and step."""
    return (w - k) * (1 + k + number % 3) / 8


def train(first, text=None, gradient=gradient):
    """Trains a worker from each w of `first`, with a vector as its model; its steps are eager.

    Returns arrays: w of each worker after each step, and the bytes that it has moved in each.
    """
    script = examples.load(SCRIPT, text)
    tf, flags = script.tf, types.SimpleNamespace(learning_rate=LR)

    def work(rings):
        k, history, moved = rings[0].rank, [], []
        w, number = tf.Variable(first[k], dtype=tf.float32), tf.Variable(0, dtype=tf.int64)

        def loss_and_gradient(w, number):
            return tf.constant(0.0), tf.constant(gradient(k, int(number), w.numpy()), tf.float32)

        for ring in rings:
            script.join(ring, "the same")
        for _ in range(STEPS):
            update = script.algorithm(w, number, loss_and_gradient, rings, flags)
            history.append(w.numpy())
            moved.append(int(update.moved))
        for ring in rings:
            script.leave(ring)
        return history, moved

    with ring_workers.joining(script, len(first), 20, script.both_ways) as all_rings:
        done = ring_workers.run_at_once(all_rings, work)
    assert not [worker for worker in done if isinstance(worker, OSError)], done
    return [np.array(part) for part in zip(*done)]


@pytest.mark.parametrize("n", [2, 4])
def test_the_bytes_are_the_same_in_a_ring_of_any_size(n):
    """Catches a counter that is wrong in the row and at the connection alike."""
    _, moved = train(starts(n))
    assert set(moved.flat) == {BYTES}


FIRST = EQUATION.MISTAKES["parameters"]["the step comes before the averaging"]


def test_three_workers_with_thirds():
    """W = 1/n. With the step before the averaging it is synchronous SGD, in D-PSGD's order not."""
    w = starts(3).mean(0)
    for changes in [], FIRST:
        actual, moved = train([w] * 3, examples.replaced(SCRIPT, changes))
        assert set(moved.flat) == {BYTES}
        before = np.array([w] * 3, float)
        for step in range(STEPS):
            g = np.array([gradient(k, step, before[k]) for k in range(3)])
            mean = before.mean(0) - LR * g.mean(0)
            after = actual[:, step]
            assert np.abs(after.mean(0) - mean).max() < 1e-5
            own = 0 if changes else -LR * (g - g.mean(0))
            assert np.abs(after - after.mean(0) - own).max() < 1e-5
            before = after
        assert changes or np.abs(own).max() > 0.01


@pytest.mark.parametrize("n, ratio", [(4, 1 / 3), (8, 0.805)])
def test_disagreement_shrinks_by_lambda_2_in_each_step(n, ratio):
    """Without gradients. The mean stays."""
    wave = np.cos(2 * np.pi * np.arange(n) / n)[:, None] * np.arange(1, SIZE + 1)
    assert (1 + 2 * np.cos(2 * np.pi / n)) / 3 == pytest.approx(ratio, abs=1e-3)
    actual, _ = train(wave + 1, gradient=lambda k, number, w: 0 * w)
    shrunk = np.abs(actual[:, :6] - 1).max((0, 2)) / SIZE
    assert shrunk == pytest.approx(ratio ** np.arange(1, 7), rel=5e-3, abs=1e-6)
    assert np.abs(actual.mean(0) - 1).max() < 1e-6


def test_one_worker_is_refused():
    ring_workers.check_refused(SCRIPT, 1, "D-PSGD needs two workers at least")


@pytest.mark.long
def test_the_training_is_that_of_the_equation(tmp_path):
    """Its graph, with the gradients of the script's own model; all begin with w of worker 0."""
    leave = "    for ring in rings:\n        leave(ring)\n"
    record = [*ring_workers.RECORD[:-1], (leave, "    np.save('w.npy', metrics.values)\n" + leave)]
    with support.QuickCluster(ps=0) as quick:
        codes, output = ring_workers.train(quick, SCRIPT, tmp_path, changes=record)
    assert codes == [0] * 3, output
    actual = [np.load(folder / "w.npy") for folder in ring_workers.folders(tmp_path)]
    assert all(np.array_equal(w[0], actual[0][0]) for w in actual)
    first, gradient = ring_workers.arrays(actual[0][0]), problem.gradient_on_digits(3)
    due = EQUATION.REFERENCE(first, 3, gradient, problem.LR)
    for step in range(1, 21):
        due.joint_step(range(3))
        for k, w in enumerate(actual):
            assert np.abs(w[step] - interleaved.flat(due.w_of(k))).max() < 1e-5
    assert np.abs(actual[0][20] - actual[1][20]).max() > 0.01
    rows = [
        row["bytes"] for folder in ring_workers.folders(tmp_path) for row in support.pushes(folder)
    ]
    assert set(rows) == {4.0 * 4 * actual[0].shape[1]}
