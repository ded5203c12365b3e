"""Calls the functions that are the algorithm, and compares each w with the equation, in NumPy.

    python -m pytest

Four workers stand in a ring, in one process, which decides who makes the next step. An active one
averages during its step, without a network or threads. The gradient is that of a quadratic
function, so your model plays no part. Then each mistake of equation.py stands in the script: it
must run all the same, and numbers must differ.
"""

import os
import pathlib
import threading
import types

os.environ.update(CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")
import equation
import numpy as np
import pytest
import tensorflow as tf

SCRIPT = pathlib.Path(__file__).resolve().with_name(equation.SCRIPT)
LR, SIZE, N = 0.3, 12, 4
ORDER = [0, 1, 2, 3, 0, 0, 2, 1, 3, 2, 0, 1]  # who makes a step


def gradient_of(k, number, w):
    """Returns the gradient of worker k's mini-batch `number` at w, in NumPy."""
    curve, low = np.linspace(0.5, 1.5, SIZE), np.sin(np.arange(SIZE) * (k + 1) + number)
    return curve * (w - low)


class Pairs:
    """What a worker averages with: its own w, and those of its neighbours."""

    def __init__(self, script, all_pairs, rank, w):
        self.script, self.all_pairs, self.rank, self.seed = script, all_pairs, rank, 5
        self.to_ask = [] if rank % 2 else [(rank - 1) % N, (rank + 1) % N]
        self.lock, self.asked = threading.Lock(), []
        self.w = tf.Variable(w, dtype=tf.float32)
        self.step, self.averagings = (tf.Variable(0, dtype=tf.int64) for _ in range(2))

    def let_average(self, number):
        """Averages at once, where a run's thread does it meanwhile; a passive worker does not."""
        if self.to_ask:
            self.script.average_with_one(self, int(number))
        return np.int64(0)

    def exchange(self, j, sent):
        self.asked.append(j)
        return self.script.answer(self.all_pairs[j], sent)

    def move(self, sent, received):
        self.w.assign_add(self.script.towards(sent, received))
        self.averagings.assign_add(1)

    def make_step(self, flags):
        """Makes a step of this worker; returns the neighbours with which it has averaged."""

        def gradient(w, number):
            g = gradient_of(self.rank, int(number), w.numpy())
            return tf.constant(0.0), tf.constant(g, tf.float32)

        self.asked.clear()
        self.script.algorithm(self.w, self.step, gradient, self, flags)
        return self.asked


def compare(text):
    """Asserts that each step of the script, which has this text, is that of the equation."""
    script = types.ModuleType("script")
    script.__file__ = str(SCRIPT)
    exec(compile(text, str(SCRIPT), "exec"), script.__dict__)
    first = [np.random.RandomState(k).normal(size=SIZE) for k in range(N)]
    workers = []
    for k in range(N):
        workers.append(Pairs(script, workers, k, first[k]))
    due = equation.REFERENCE(first, gradient_of, LR)
    for k in ORDER:
        before = due.w[k]
        for j in workers[k].make_step(types.SimpleNamespace(learning_rate=LR)):
            due.pair(k, j)
        due.step(k, before)
        actual = [worker.w.numpy() for worker in workers]
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
