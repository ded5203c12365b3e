"""A small GPT on bytes: it learns to continue the help texts that come with Python.

bash run.sh gpt.py trains it; python generate.py RUN --prompt "The statement" lets it write.
"""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "topics", "topics (help texts that come with Python), or a text file"
CONTEXT, WIDTH, HEADS, BLOCKS = 64, 64, 4, 2


def read(name):
    """Returns the text as bytes. Python's help texts differ from version to version."""
    if name == "topics":
        from pydoc_data.topics import topics  # here, for only a task that trains needs it

        return "\n\n".join(topics[key] for key in sorted(topics)).encode()
    with open(name, "rb") as file:
        return file.read()


SHUFFLE = False  # each worker takes every n-th window, from the whole text


def load_data(name):
    """Returns windows of bytes [rows, CONTEXT], and the same windows one byte later."""
    text = np.frombuffer(read(name), np.uint8).astype("int32")
    rows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)[:: CONTEXT // 4]
    cut = len(rows) * 9 // 10
    test = rows[cut + 4 :][::8][:256]  # of the last tenth; no window shares a byte with training
    return Data(rows[:cut, :-1], rows[:cut, 1:], test[:, :-1], test[:, 1:])


@keras.saving.register_keras_serializable()  # so that keras.models.load_model() finds it
class Places(keras.layers.Layer):
    """Adds a vector of its own to each place of the window."""

    def build(self, shape):
        self.vectors = self.add_weight(shape=shape[1:], initializer="normal", name="vectors")

    def call(self, x):
        return x + self.vectors


def make_model(data):
    """Makes a decoder, which foretells each byte from those before it."""
    x = inputs = keras.Input((CONTEXT,), dtype="int32")
    x = Places()(keras.layers.Embedding(256, WIDTH)(x))
    for _ in range(BLOCKS):
        norm = keras.layers.LayerNormalization()(x)
        attention = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        x += attention(norm, norm, use_causal_mask=True)
        inner = keras.layers.Dense(4 * WIDTH, "gelu")(keras.layers.LayerNormalization()(x))
        x += keras.layers.Dense(WIDTH)(inner)
    return keras.Model(inputs, keras.layers.Dense(256)(keras.layers.LayerNormalization()(x)))


def loss(y, outputs):
    """Returns the cross-entropy of each row, the mean over its bytes."""
    losses = keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return keras.ops.mean(losses, axis=-1)


def bits(y, outputs):
    """Returns how many bits a byte of each row costs: 8 for one who knows nothing."""
    return loss(y, outputs) / np.log(2)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"bits_per_byte": ("min", bits)}
# endregion: problem
