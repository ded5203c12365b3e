"""A block of a Transformer, with a layer of your own."""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "digits", "digits"


def load_data(name):
    """Returns sequences [rows, 8, 8], an image line by line, and labels [rows]."""
    from sklearn.datasets import load_digits  # here, for only a task that trains needs it

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    x, y = digits.images[order].astype("float32") / 16, digits.target[order].astype("int32")
    return Data(x[:-360], y[:-360], x[-360:], y[-360:])


@keras.saving.register_keras_serializable()  # so that keras.models.load_model() finds it
class Places(keras.layers.Layer):
    """Adds a vector of its own to each place of a sequence."""

    def build(self, shape):
        self.vectors = self.add_weight(shape=shape[1:], initializer="uniform", name="vectors")

    def call(self, x):
        return x + self.vectors


def make_model(data):
    """Makes a block of a Transformer: attention, then a network for each place."""
    lines = keras.Input(data.x_train.shape[1:])
    h = Places()(keras.layers.Dense(32)(lines))
    norm = keras.layers.LayerNormalization()(h)
    h += keras.layers.MultiHeadAttention(4, 8, dropout=0.1)(norm, norm)
    inner = keras.layers.Dense(64, "gelu")(keras.layers.LayerNormalization()(h))
    h += keras.layers.Dropout(0.1)(keras.layers.Dense(32)(inner))
    h = keras.layers.Flatten()(keras.layers.LayerNormalization()(h))
    return keras.Model(lines, keras.layers.Dense(10)(h))


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: problem
