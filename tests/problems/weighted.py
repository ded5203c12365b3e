"""Words with padding, classes of unequal weight, penalties. Its region can replace a script's.

What is masked, dropped, weighted or penalised counts in the loss and in the gradient.
"""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "words", "words"


def load_data(name):
    """Returns words [rows, 6] below 5, of which 0 is padding, and classes, of which 2 is rare."""
    random = np.random.RandomState(2)
    x = random.randint(0, 5, (53, 6)).astype("float32")
    x[:, 0] = random.randint(1, 5, 53)  # no row is all padding
    y = random.choice(3, 53, p=[0.6, 0.3, 0.1]).astype("int32")
    return Data(x[:41], y[:41], x[41:], y[41:])


def make_model(data):
    """Makes a network with a penalty of another size in each layer, on weights and on outputs."""
    penalty = keras.regularizers.L2
    return keras.Sequential(
        [
            keras.Input([6]),
            keras.layers.Embedding(5, 4, mask_zero=True, embeddings_regularizer=penalty(0.05)),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(7, "tanh", activity_regularizer=penalty(0.02)),
            keras.layers.Dense(3, kernel_regularizer=penalty(0.1), bias_regularizer=penalty(0.3)),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row, times the weight of its class."""
    weights = keras.ops.take(keras.ops.convert_to_tensor([0.5, 1.0, 4.0]), y)
    rows = keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return keras.ops.multiply(weights, rows)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: problem
