"""A layer for Pipeline whose passes take known times, in which the processor does little."""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FORWARD, BACKWARD = 0.01, 0.02  # seconds


class Late(keras.layers.Dense):
    """Sleeps in each pass of training, on whatever logical device it is."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        outputs = super().call(inputs)
        return late(outputs) if training else outputs


@tf.custom_gradient
def late(outputs: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Returns the outputs, late; on the way back their gradient is late, too."""
    return wait(outputs, FORWARD), lambda gradient: wait(gradient, BACKWARD)


def wait(tensor: Any, seconds: float) -> Any:
    """Returns the tensor after so many seconds. The op must run in the process of the client."""

    def sleep(array: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return array

    # stateful=False: TensorFlow runs ops with state one after the other, whatever their places.
    waited = tf.numpy_function(sleep, [tensor], tensor.dtype, stateful=False)
    waited.set_shape(tensor.shape)
    return waited
