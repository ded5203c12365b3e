"""Word vectors, as a layer of Keras: dense ones."""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "digits", "digits"


def load_data(name):
    """Returns words [rows, 64], whole numbers below 1088, and labels, for training and the test."""
    from sklearn.datasets import load_digits  # here, for only a task that trains needs it

    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    words = (x[order] + 17 * np.arange(64)).astype("int32")  # one for each shade in each place
    y = y[order].astype("int32")
    return Data(words[:-360], y[:-360], words[-360:], y[-360:])


def make_model(data):
    """Makes a network on the sum of a row's word vectors: of 1088, all are pulled and pushed."""
    words = keras.Input(data.x_train.shape[1:], dtype="int32")
    vectors = keras.layers.Embedding(1088, 16)(words)
    hidden = keras.layers.Dense(32, "relu")(keras.ops.sum(vectors, axis=1))
    return keras.Model(words, keras.layers.Dense(10)(hidden))


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: problem
