"""Calls the two functions that are the algorithm, and compares w with the equation, in NumPy.

    python -m pytest

server() makes the functions of a parameter server, and update() calls them for a worker. Here
both are in one process, which decides which worker pushes next. The gradient is that of a quadratic
function, so your model plays no part. Then each mistake of equation.py stands in the script: it
must run all the same, and numbers must differ.
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
LR, SIZE = 0.3, 12
# Who pushes; between two pushes of a worker there may be several of the other one.
ORDER = [k for k in (0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1) if k < equation.N]


def gradient_of(k, number, w):
    """Returns the loss and the gradient of worker k's mini-batch at w, in NumPy.

    number: that of the mini-batch, or those of its rows, where the script says which come next.
    """
    number = np.sum(number)
    curve, low = np.linspace(0.5, 1.5, SIZE), np.sin(np.arange(SIZE) * (k + 1) + number)
    return np.sum(curve * (w - low) ** 2) / 2, curve * (w - low)


class Step:
    """Counts the updates, as a parameter server does. worker: the rank of the one that calls."""

    is_first = is_last = True  # w has one part
    worker, count = None, 0

    def read(self):
        return tf.constant(self.count, tf.int64)

    def take(self):
        self.count += 1
        return tf.constant(self.count - 1, tf.int64)


class Ps:
    """Calls the functions of a parameter server for one worker, without a network."""

    def __init__(self, script, functions, step, rank):
        self.script, self.functions, self.step, self.rank = script, functions, step, rank
        self.parts, self.age = {"w": [None]}, tf.constant(1, tf.int64)

    def __getattr__(self, name):
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name, *arguments):
        arguments = [part[0] if isinstance(part, list) else part for part in arguments]
        values = self.call_one(name, None, *arguments).get_value()
        counts = [v for v in values if v.dtype == tf.int64]
        w = next((v for v in values if v.dtype == tf.float32), None)
        ticket, version = counts[0], counts[-1]
        more = {"ready": 0.0, "arrived": 0.0, "bytes": 0, "more": None}
        return self.script.Reply(w=w, version=version, ticket=ticket, **more)

    def call_one(self, name, part, *arguments):
        self.step.worker = tf.constant(self.rank, tf.int64)
        return self.script.Pending(lambda: tf.nest.flatten(self.functions[name](*arguments)))


class Worker:
    """A worker, which keeps w_k, or what else its update() needs, from push to push."""

    def __init__(self, script, ps, flags):
        self.update, self.ps, self.flags = script.update, ps, flags
        rows = getattr(equation.REFERENCE, "rows", None)  # if a mini-batch has the next of so many
        self.rows = rows and script.gradients(None, [], range(rows), None, flags, ps.rank)[0]
        reply = ps.pull()
        begin = getattr(script.update, "begin", lambda w: w)
        self.version, self.own = reply.version, begin(reply.w)

    def push(self):
        """Makes an update. Returns [loss, updates before it, staleness], and whether it pulled."""

        def gradient(w, number):
            loss, g = gradient_of(self.ps.rank, np.asarray(number), w.numpy())
            return tf.constant(loss, tf.float32), tf.constant(g, tf.float32)

        batches = (self.rows, gradient) if self.rows else gradient
        loss, reply = self.update(self.ps, self.version, self.own, batches, self.flags)
        version = reply.pull.version if reply.pull else self.version
        self.version, self.own = reply.version, reply.w
        return [float(loss), int(reply.ticket), int(reply.ticket - version)], bool(reply.pull)


def flags_of(script):
    """Returns the flags of the script, with those of equation.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [equation.SCRIPT])
        flags = script.parse_flags()
    vars(flags).update({"learning_rate": LR, **equation.FLAGS})
    return flags


def compare(text):
    """Asserts that each push of the script, which has this text, is that of the equation."""
    script = types.ModuleType("script")
    script.__file__ = str(SCRIPT)
    exec(compile(text, str(SCRIPT), "exec"), script.__dict__)
    flags, step = flags_of(script), Step()
    first = np.random.RandomState(0).normal(size=SIZE)
    w = tf.Variable(first, dtype=tf.float32)
    functions, _ = script.server(w, step, flags)
    workers = [Worker(script, Ps(script, functions, step, k), flags) for k in range(equation.N)]

    def gradient(k, number, w):
        loss, g = gradient_of(k, number, w[0])
        return loss, [g]

    def order(epoch):  # of all rows, where the script says which come next
        numbers = np.arange(equation.REFERENCE.rows, dtype=np.int64)
        key = [flags.seed, epoch]
        return tf.random.experimental.index_shuffle(numbers, key, len(numbers) - 1).numpy()

    gradient.order = order
    due = equation.REFERENCE([first], equation.N, gradient, LR, **equation.FLAGS)
    for k in range(equation.N):
        due.pull(k)
    for k in ORDER:
        pushed, has_pulled = workers[k].push()
        if has_pulled:
            due.pull(k)
        np.testing.assert_allclose(
            pushed, due.push(k), rtol=1e-4, err_msg="loss, number, staleness"
        )
        np.testing.assert_allclose(w.numpy(), due.w[0], rtol=1e-4, atol=1e-5, err_msg="w")
        due.pull(k)


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
