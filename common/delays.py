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


def wait_for(delay, mean, n, seed):
    """Returns a function of this worker: it waits for the seconds of its next gradient.

    It takes and returns an array.
    """
    k = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    seconds = draws_of(delay, mean, k, n, seed)

    def wait(g):
        time.sleep(next(seconds))
        return g

    return wait


def pause(delay, mean, n, seed):
    """Makes an op that waits like a gradient, each time that it runs."""
    import tensorflow.compat.v1 as tf  # here, because the driver needs none

    return tf.numpy_function(wait_for(delay, mean, n, seed), [0.0], "float32")


def late(outputs, delay, mean, n, seed):
    """Returns the outputs; on the way back their gradient waits. A test waits for nothing."""
    import tensorflow.compat.v1 as tf  # here, because the driver needs none

    wait = wait_for(delay, mean, n, seed)

    @tf.custom_gradient
    def same(outputs):
        def backward(g):
            waited = tf.numpy_function(wait, [g], g.dtype)
            waited.set_shape(g.shape)
            return waited

        return tf.identity(outputs), backward

    return same(outputs)
