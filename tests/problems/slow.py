"""The digits, with what slows a run down: variables of the environment say where and how much.

SLOW_LOAD sleeps in load_data(). SLOW_BATCH sleeps in each mini-batch, on workers whose index is in
SLOW_WORKERS (all without it). HANG_AT never returns from the mini-batch with that number.
"""

import collections
import json
import os
import threading
import time

import keras
import numpy as np
import tensorflow as tf

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "digits", "digits"


def load_data(name):
    """Returns images as rows of 64 pixels, and digits."""
    from sklearn.datasets import load_digits  # here, because a ps needs no data

    time.sleep(float(os.environ.get("SLOW_LOAD", 0)))
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype("float32"), y.astype("int32")
    return Data(x[:-360], y[:-360], x[-360:], y[-360:])


def is_slow():
    """Returns whether this task is one of SLOW_WORKERS."""
    index = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
    return str(index) in os.environ.get("SLOW_WORKERS", str(index)).split(",")


class Reader(keras.layers.Layer):
    """Passes on its inputs, after the time that a reader of data takes."""

    number = 0

    def read(self, x):
        Reader.number += 1
        if Reader.number == int(os.environ.get("HANG_AT", 0)):
            threading.Event().wait()
        seconds = float(os.environ.get("SLOW_BATCH", 0))
        if os.environ.get("BUSY_BATCH"):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass
        else:
            time.sleep(seconds)
        return x

    def call(self, x, training=False):
        if not training or not is_slow():
            return x
        read = tf.numpy_function(self.read, [x], x.dtype)
        return tf.ensure_shape(read, x.shape)


def make_model(data):
    """Makes a small network behind the reader."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            Reader(),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(np.bincount(data.y_train).size),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: problem
