"""A regression: the targets are no whole numbers."""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "diabetes", "diabetes"


def load_data(name):
    """Returns inputs [rows, 10] and targets [rows, 1], which are no whole numbers."""
    from sklearn.datasets import load_diabetes  # here, for only a task that trains needs it

    x, y = load_diabetes(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x = 20 * x[order].astype("float32")
    y = ((y[order, None] - y.mean()) / y.std()).astype("float32")
    return Data(x[:-90], y[:-90], x[-90:], y[-90:])


def make_model(data):
    """Makes a network with one number as its output."""
    penalty = keras.regularizers.L2(1e-3)
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Dense(16, "relu", kernel_regularizer=penalty),
            keras.layers.Dense(1),
        ]
    )


def loss(y, outputs):
    """Returns the squared error of each row."""
    return keras.losses.mean_squared_error(y, outputs)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"absolute_error": ("min", keras.losses.mean_absolute_error)}
# endregion: problem
