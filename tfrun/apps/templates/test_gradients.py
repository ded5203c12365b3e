"""Calls the functions that are the algorithm, and compares each w with the equation, in NumPy.

    python -m pytest

Three workers are in one process, which decides who makes the next step, and whose step comes in
between while that one computes its gradient. The gradient is that of a quadratic function, so your
model plays no part. Then each mistake of equation.py stands in the script: it must run all the
same, and numbers must differ.
"""

import os
import pathlib
import types

os.environ.update(CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")
import equation
import numpy as np
import pytest
import tensorflow as tf

SCRIPT = pathlib.Path(__file__).resolve().with_name(equation.SCRIPT)
LR, SIZE, N = 0.1, 12, 3
# (who makes a step, whose steps come while it computes its gradient)
ORDER = [(0, []), (1, [0]), (2, [0, 1]), (1, []), (0, [2, 2]), (2, [1])]
FLAGS = types.SimpleNamespace(learning_rate=LR)


def gradient_of(k, number, w):
    """Returns the gradient of worker k's mini-batch `number` at w, in NumPy."""
    curve, low = np.linspace(0.5, 1.5, SIZE), np.sin(np.arange(SIZE) * (k + 1) + number)
    return curve * (w - low)


class Group:
    """A worker, with a w in two parts, and the others to which it sends gradients."""

    forwarders, n = 0, N

    def __init__(self, script, group, rank, w):
        self.script, self.group, self.rank = script, group, rank
        self.w = [tf.Variable(part, dtype=tf.float32) for part in np.split(w, [5])]
        self.step, self.applied = (tf.Variable(0, dtype=tf.int64) for _ in range(2))

    @property
    def receivers(self):
        return [other for other in self.group if other is not self]

    def take(self):
        """Counts a gradient that is applied here; returns how many were before."""
        self.applied.assign_add(1)
        return self.applied - 1

    def send(self, function, pieces):
        """Applies a gradient at all others at once."""
        for other in self.receivers:
            other.take()
            for part, piece in zip(other.w, pieces):
                self.script.apply(part, piece, FLAGS)
        return tf.constant(0, tf.int64)

    def make_step(self, meanwhile=()):
        """Makes a step of this worker, with steps of others while it computes its gradient."""

        def gradient(w, number):
            g = gradient_of(self.rank, int(number), w.numpy())
            for k in meanwhile:
                self.group[k].make_step()
            return tf.constant(0.0), tf.constant(g, tf.float32)

        self.script.algorithm(self.w, self.step, gradient, self, FLAGS)


def compare(text):
    """Asserts that each step of the script, which has this text, is that of the equation."""
    script = types.ModuleType("script")
    script.__file__ = str(SCRIPT)
    exec(compile(text, str(SCRIPT), "exec"), script.__dict__)
    first, workers = np.random.RandomState(0).normal(size=SIZE), []
    for k in range(N):
        workers.append(Group(script, workers, k, first))
    due = equation.REFERENCE([first] * N, gradient_of, LR)
    for k, meanwhile in ORDER:
        before = due.w[k]
        workers[k].make_step(meanwhile)
        for other in meanwhile:
            due.step(other, due.w[other])
        due.step(k, before)
        actual = [np.concatenate([part.numpy() for part in worker.w]) for worker in workers]
        np.testing.assert_allclose(actual, due.w, rtol=1e-4, atol=1e-5, err_msg="w")


def test_the_script_is_the_equation():
    compare(SCRIPT.read_text())


@pytest.mark.parametrize("name", equation.MISTAKES)
def test_a_mistake_changes_numbers(name):
    text = SCRIPT.read_text()
    for old, new in equation.MISTAKES[name]:
        assert text.count(old) == 1, f"write this mistake anew, the script lacks its text: {old}"
        text = text.replace(old, new)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compare(text)
