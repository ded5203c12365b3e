"""A layer for Pipeline whose passes take known times, in which the processor does little."""

import time

import keras
import tensorflow as tf

FORWARD, BACKWARD = 0.01, 0.02  # seconds


class Late(keras.layers.Dense):
    """Sleeps in each pass of training, on whatever logical device it is."""

    def call(self, inputs, training=False):
        outputs = super().call(inputs)
        return late(outputs) if training else outputs


@tf.custom_gradient
def late(outputs):
    """Returns the outputs, late; on the way back their gradient is late, too."""
    return wait(outputs, FORWARD), lambda gradient: wait(gradient, BACKWARD)


def wait(tensor, seconds):
    """Returns the tensor after so many seconds. The op must run in the process of the client."""

    def sleep(array):
        time.sleep(seconds)
        return array

    # stateful=False: TensorFlow runs ops with state one after the other, whatever their places.
    waited = tf.numpy_function(sleep, [tensor], tensor.dtype, stateful=False)
    waited.set_shape(tensor.shape)
    return waited
