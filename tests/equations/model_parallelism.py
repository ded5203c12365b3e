"""Model-Parallelism: w <- w - lr * g(w), as of the whole model, in several places.

The comparisons but for "parameters" count what ran where; they stand in test_model_parallelism.py.
"""

from tfrun.apps.references import HogWild, Synchronous

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {"micro_batches": 4}
AT = "            with tf.device(%s):\n"
BACKWARD = 'passes += [(k, "backward", m) for k in reversed(range(K))'
CROSSING = "for m in range(M)]\n    return Update"
MISTAKES = {
    "parameters": {
        "the sum over the micro-batches": [("flags.learning_rate / M", "flags.learning_rate")],
        "only the last micro-batch trains": [("[total + tf.conv", "[0 * total + tf.conv")],
        "a place ignores the gradient that arrives": [("[d.get((k + 1, m)), ", "[None, ")],
        "the last micro-batch's backward pass is dropped": [
            (BACKWARD, BACKWARD + " if m < M - 1"),
            (CROSSING, CROSSING.replace("]", " if (k, m) in tensors]")),
        ],
        "the same micro-batch M times": [
            ("rows), flags.micro_batches)", "rows), flags.micro_batches)[:1] * flags.micro_batches")
        ],
        "labels of other rows": [("rows_of(y, number)", "rows_of(y, number + 1)")],
        "the first place never moves": [("zip(w[k], g[k])", "zip(w[k], g[k] if k else [])")],
    },
    "losses": {
        "the loss of the first micro-batch": [("h[K, m] for m in range(M)]", "h[K, 0]] * M")]
    },
    "matmuls": {
        "all passes in the last place": [("tf.device(places[k])", "tf.device(places[-1])")],
        "all layers in one place": [
            (AT % "place", AT % "places[0]"),
            ("tf.device(places[k])", "tf.device(places[0])"),
        ],
    },
    "order": {
        "all passes at once": [(", tf.control_dependencies(before[k])", "")],
        "no pass waits for a backward pass": [
            ("before[k] = [*g[k], d[k, m]] if k else g[k]", "pass")
        ],
    },
    "stored": {
        "each place begins with a micro-batch more": [("[K - 1 - k for k", "[K - k for k")],
        "1f1b is gpipe": [('"1f1b": [K - 1 - k for k in range(K)]', '"1f1b": [M - 1] * K')],
    },
    "variables": {"all variables in one place": [(AT % "place", AT % "places[0]")]},
    "crossing": {
        "all updates are computed in one place": [
            (
                "in enumerate(places):\n        with tf.device(place)",
                "in enumerate(places):\n        with tf.device(places[0])",
            )
        ]
    },
}
COMPARED_BY = (
    "tests/equations/test_model_parallelism.py::test_the_update_is_that_of_the_whole_model"
)
APP = {"reference": Synchronous, "n": 1}
