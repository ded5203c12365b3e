"""How long a gradient takes in a measurement, and what adds that to an example's script."""

import functools
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

CALL = "sparse_categorical_crossentropy(y, outputs, from_logits=True)"
BEFORE = "def loss(y, outputs):\n"
ONE_A_CALL = ["--updates-per-call", "1"]  # as for a slow model


def changes(delay: str | float, mean: float, n: int, seed: int) -> list[tuple[str, str]]:
    """Returns the changes of a script for n workers: its outputs' gradient comes late."""
    late = f"delays.late(outputs, {delay!r}, {mean}, {n}, {seed})"
    return [
        (CALL, CALL.replace("outputs", late)),
        (BEFORE, "from lab.measure import delays\n\n\n" + BEFORE),
    ]


@functools.cache
def draws_of(delay: str | float, mean: float, k: int, n: int, seed: int) -> Iterator[float]:
    """Returns draws() of a worker: the same iterator for all graphs of its process."""
    return draws(delay, mean, k, n, seed)


def draws(delay: str | float, mean: float, k: int, n: int, seed: int) -> Iterator[float]:
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


def is_coordinator() -> bool:
    """Returns whether this is a coordinator, which makes the graph of all workers.

    No Python runs in that: it would wait in the chief, and for all of them. The chief of another
    example may have a tf.function, too, but no strategy, and waits for itself alone.
    """
    import tensorflow as tf  # here, because the driver needs none

    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    return is_chief and tf.distribute.has_strategy()


def wait_for(delay: str | float, mean: float, n: int, seed: int) -> Callable[[Any], Any]:
    """Returns a function of this worker: it waits for the seconds of its next gradient.

    It takes and returns an array.
    """
    k = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    seconds = draws_of(delay, mean, k, n, seed)

    def wait(g: Any) -> Any:
        time.sleep(next(seconds))
        return g

    return wait


def pause(delay: str | float, mean: float, n: int, seed: int) -> Any:
    """Makes an op that waits like a gradient, each time that it runs."""
    import tensorflow as tf

    return tf.numpy_function(wait_for(delay, mean, n, seed), [0.0], "float32")


def late(outputs: Any, delay: str | float, mean: float, n: int, seed: int) -> Any:
    """Returns the outputs; on the way back their gradient waits. A test waits for nothing."""
    import tensorflow as tf

    in_graph = is_coordinator()
    wait = None if in_graph else wait_for(delay, mean, n, seed)

    @tf.custom_gradient
    def delay_gradient(outputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        def backward(g: Any) -> Any:
            if in_graph:
                return delay_in_graph(g, delay, mean)
            # stateful=False, or tf.function would take the time of the pull after the wait.
            waited = tf.numpy_function(wait, [g], g.dtype, stateful=False)
            waited.set_shape(g.shape)
            return waited

        return tf.identity(outputs), backward

    return delay_gradient(outputs)


# So that AutoGraph leaves it as it is: to rewrite it takes seconds.
late.__dict__["autograph_info__"] = {}


def delay_in_graph(g: Any, delay: str | float, mean: float) -> Any:
    """Returns g as the worker waits that executes the graph: a data set sleeps before it has g."""
    import tensorflow as tf

    with tf.control_dependencies([g]):
        now = tf.cast(1e6 * tf.timestamp(), tf.int64)  # so that no two workers draw the same
    seconds = draw_in_graph(delay, mean, now)
    specification = {"output_types": [g.dtype], "output_shapes": [g.shape]}
    dataset = tf.raw_ops.TensorDataset(components=[g], output_shapes=[g.shape])
    delayed = tf.raw_ops.SleepDataset(
        input_dataset=dataset, sleep_microseconds=tf.cast(1e6 * seconds, tf.int64), **specification
    )
    # It is asked for its end, too.
    one_element = tf.raw_ops.TakeDataset(input_dataset=delayed, count=1, **specification)
    return tf.raw_ops.DatasetToSingleElement(dataset=one_element, **specification)[0]


def draw_in_graph(delay: str | float, mean: float, number: Any) -> Any:
    """Returns the seconds of a gradient, drawn by a number."""
    import tensorflow as tf

    laws: dict[str | float, float] = {"constant": 0.0, "exponential": 1.0}
    variation = laws.get(delay, delay)
    if not isinstance(variation, float):
        raise ValueError(f"a graph draws no times of the law {delay!r}")
    if not variation:
        return tf.constant(mean)
    gamma_shape = variation**-2
    return mean / gamma_shape * tf.random.stateless_gamma([], [number, 0], tf.constant(gamma_shape))
