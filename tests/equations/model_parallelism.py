"""Model-Parallelism: w <- w - lr * g(w), as of the whole model, in several places.

The comparisons but for "parameters" count what ran where; they stand in test_model_parallelism.py.
"""

from references import HogWild

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {"micro_batches": 4}
GRADIENTS = ("trainable + crossing,", "trainable + crossing, unconnected_gradients='zero',")
MEAN = "tf.add_n(losses + penalties)%s"
AT = "            with tf.device(%s):\n"
MISTAKES = {
    "parameters": {
        "the sum over the micro-batches": [(MEAN % " / M", MEAN % "")],
        "no gradient crosses": [
            ("state_k, h[-1])", "state_k, [tf.stop_gradient(each) for each in h[-1]])"),
            GRADIENTS,
        ],
        "the last micro-batch is dropped": [
            ("zip(cut(y, M), h[-1])", "zip(cut(y, M), h[-1][:-1])"),
            (MEAN % " / M", MEAN % " / (M - 1)"),
            GRADIENTS,
        ],
        "the same micro-batch M times": [
            ("return tf.split(batch, M)", "return tf.split(batch, M)[:1] * M")
        ],
        "labels of other rows": [("rows_of(y, number)", "rows_of(y, number + 1)")],
        "the first place never moves": [
            ("zip(trainable, g):", "zip(sum(w[1:], []), g[len(w[0]):]):")
        ],
    },
    "matmuls": {
        "all gradients in one place": [(", colocate_gradients_with_ops=True", "")],
        "all layers in one place": [
            (AT % "place", AT % "places[0]"),
            ("tf.device(place), tf.con", "tf.con"),
        ],
    },
    "turns": {"all micro-batches at once": [(", tf.control_dependencies(outputs[-1:])", "")]},
    "variables": {"all variables in one place": [(AT % "place", AT % "places[0]")]},
    "crossing": {
        "all updates are computed in one place": [
            ("with tf.device(v.device):", "with tf.device(places[0]):")
        ]
    },
}
COMPARED_BY = (
    "tests/equations/test_model_parallelism.py::test_the_update_is_that_of_the_whole_model"
)
