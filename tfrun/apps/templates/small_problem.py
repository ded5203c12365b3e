"""A problem so small that NumPy can train it, too: a perceptron with first values of its own."""

import keras
import numpy as np

DATASET, SHUFFLE = "small", False  # each worker takes every n-th row, in this order


def load_data(name):
    random = np.random.RandomState(1)
    x, y = random.rand(46, 6).astype("float32"), random.randint(0, 3, 46).astype("int32")
    return x[5:], y[5:], x[:5], y[:5]


def first_values():
    random = np.random.RandomState(2)
    shapes = [(6, 4), (4,), (4, 3), (3,)]
    return [random.normal(0, 0.5, shape).astype("float32") for shape in shapes]


def make_model(data):
    layers = [keras.layers.Dense(4, "tanh"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input([6]), *layers])
    model.set_weights(first_values())
    return model


def loss(y, outputs):
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
