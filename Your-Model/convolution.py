"""A convolutional network for images, with Dropout, BatchNormalization and a penalty."""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "digits", "digits"


def load_data(name):
    """Returns images [rows, 8, 8, 1] and labels [rows], for training and for the test."""
    from sklearn.datasets import load_digits  # here, for only a task that trains needs it

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    x = digits.images[order, :, :, None].astype("float32") / 16
    y = digits.target[order].astype("int32")
    return Data(x[:-360], y[:-360], x[-360:], y[-360:])


def make_model(data):
    """Makes a convolutional network, whose layers keep something and whose weights cost."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Conv2D(8, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.MaxPool2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10, kernel_regularizer=keras.regularizers.L2(1e-4)),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {
    "accuracy": ("max", keras.metrics.sparse_categorical_accuracy),
    "top_2_accuracy": (
        "max",
        lambda y, outputs: keras.metrics.sparse_top_k_categorical_accuracy(y, outputs, k=2),
    ),
}
# endregion: problem
