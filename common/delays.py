"""How long a gradient takes in a measurement, and what adds that to an example's script."""

import functools
import json
import os
import time

import numpy as np

CALL = "sparse_categorical_crossentropy(y, outputs, from_logits=True)"
BEFORE = "def loss(y, outputs):\n"
ONE_A_CALL = ["--updates-per-call", "1"]  # as for a slow model


def changes(delay, mean, n, seed):
    """Returns the changes of a script for n workers: its outputs' gradient comes late."""
    late = f"delays.late(outputs, {delay!r}, {mean}, {n}, {seed})"
    return [
        (CALL, CALL.replace("outputs", late)),
        (BEFORE, "from common import delays\n\n\n" + BEFORE),
    ]


@functools.cache
def draws_of(delay, mean, k, n, seed):
    """Returns draws() of a worker: the same iterator for all graphs of its process."""
    return draws(delay, mean, k, n, seed)


def draws(delay, mean, k, n, seed):
    """Yields the seconds of each gradient of worker k of n.

    delay: the name of a law of times, or a number: their coefficient of variation (the standard
    deviation divided by the mean). Such times are gamma-distributed: constant with 0, exponential
    with 1.
    """
    random = np.random.RandomState(1000 * seed + k)
    while True:
        if isinstance(delay, float) and delay:
            yield random.gamma(delay**-2, mean * delay**2)
        elif delay in ("constant", 0.0):
            yield mean
        elif delay == "exponential":
            yield random.exponential(mean)
        elif delay == "heavy-tailed":
            # Pareto's law with exponent 2.5: one gradient in 50 takes 2.9 means or more.
            yield 0.6 * mean * (1 + random.pareto(2.5))
        else:  # one slow
            yield 5 * mean if k == n - 1 else mean


def late(outputs, delay, mean, n, seed):
    """Returns the outputs; on the way back their gradient waits. A test waits for nothing."""
    import tensorflow.compat.v1 as tf  # here, because the driver needs none

    task = json.loads(os.environ["TF_CONFIG"])["task"]
    # A coordinator makes the graph of all workers, in which no Python runs: there it would wait in
    # the chief, and for all of them.
    coordinated = task["type"] == "chief" and tf.executing_eagerly_outside_functions()
    seconds = None if coordinated else draws_of(delay, mean, task["index"], n, seed)

    def wait(g):
        time.sleep(next(seconds))
        return g

    @tf.custom_gradient
    def same(outputs):
        def backward(g):
            if coordinated:
                return late_in_graph(g, delay, mean)
            waited = tf.numpy_function(wait, [g], g.dtype)
            waited.set_shape(g.shape)
            return waited

        return tf.identity(outputs), backward

    return same(outputs)


def late_in_graph(g, delay, mean):
    """Returns g as the worker waits that executes the graph: a data set sleeps before it has g."""
    import tensorflow as tf

    with tf.control_dependencies([g]):
        now = tf.cast(1e6 * tf.timestamp(), tf.int64)  # so that no two workers draw the same
    seconds = drawn_in_graph(delay, mean, now)
    kind = {"output_types": [g.dtype], "output_shapes": [g.shape]}
    dataset = tf.raw_ops.TensorDataset(components=[g], output_shapes=[g.shape])
    slow = tf.raw_ops.SleepDataset(
        input_dataset=dataset, sleep_microseconds=tf.cast(1e6 * seconds, tf.int64), **kind
    )
    once = tf.raw_ops.TakeDataset(
        input_dataset=slow, count=1, **kind
    )  # it is asked for its end, too
    return tf.raw_ops.DatasetToSingleElement(dataset=once, **kind)[0]


def drawn_in_graph(delay, mean, number):
    """Returns the seconds of a gradient, drawn by a number."""
    import tensorflow as tf

    if delay == "constant":
        return tf.constant(mean)
    if delay != "exponential":
        raise ValueError(f"a graph draws no times of the law {delay!r}")
    return -mean * tf.math.log(tf.random.stateless_uniform([], [number, 0], 1e-9))
