"""A model whose state counts the mini-batches that it has seen. Its region can replace a script's.

tests/equations/test_state.py computes each of its losses and each of its tests without it.
"""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "counted", "counted"


def load_data(name):
    """Returns inputs [rows, 1], 0 in every second row and else 1, and targets from 0 to 0.4."""
    x = (np.arange(48) % 2).astype("float32")[:, None]
    y = np.random.RandomState(339).uniform(0, 0.4, 48).astype("float32")
    return Data(x[:40], y[:40], x[40:], y[40:])


class Counted(keras.layers.Layer):
    """Outputs the mini-batches that it was trained on, the number of its mask, and `scale`.

    A mini-batch counts as 1, and by 1000 more where all of its inputs are 1. `scale` is trained by
    its penalty alone, and begins as 1 on the chief only. Nothing counts before `trained` is true.
    """

    def __init__(self):
        super().__init__()
        self.masks = keras.random.SeedGenerator()

    def build(self, shape):
        import json
        import os

        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        task = config.get("task", {"type": "worker", "index": 0})
        is_chief = task["type"] == "chief" or task == {"type": "worker", "index": 0}
        is_chief = is_chief and os.environ.get("HOROVOD_RANK", "0") == "0"
        penalty = keras.regularizers.L2(0.5)
        first = keras.initializers.Constant(1.0 if is_chief else 1.2)
        self.scale = self.add_weight((1,), first, name="scale", regularizer=penalty)
        self.count = self.add_weight((1,), "zeros", name="count", trainable=False)
        self.trained = self.add_weight((), "zeros", "bool", name="trained", trainable=False)

    def call(self, x, training=False):
        ones, mask = 0 * x, 0.0
        if training:
            self.count.assign(self.count + 1 + 1000 * keras.ops.mean(x))
            self.trained.assign(True)
            mask = keras.ops.floor(1000 * keras.random.uniform((1,), seed=self.masks))
        count = keras.ops.where(self.trained, self.count, 0.0)
        columns = [ones + count, ones + mask, ones + self.scale]
        return keras.ops.concatenate(columns, axis=-1)


def make_model(data):
    """Makes a model of that layer, and of one for a second place, which changes nothing."""
    return keras.Sequential(
        [keras.Input(data.x_train.shape[1:]), Counted(), keras.layers.Identity()]
    )


def loss(y, outputs):
    """Returns the number of the mask, and the target of each row behind the point.

    The gradient needs the outputs, as that of each usual loss does: local steps wait for it.
    """
    return keras.ops.add(y, outputs[:, 1] + 0 * keras.ops.square(outputs[:, 2]))


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {
    "count": ("max", lambda y, outputs: keras.ops.add(0 * y, outputs[:, 0])),
    "scale": ("max", lambda y, outputs: keras.ops.add(0 * y, outputs[:, 2])),
}
# endregion: problem
