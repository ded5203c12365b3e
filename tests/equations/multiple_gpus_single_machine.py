"""Multiple-GPUs-Single-Machine: w <- w - lr * (1/n) * sum of g_k(w) over n devices.

The reference is the step on the union of the mini-batches, by compare() of One-Step.
"""

from tfrun.apps.references import Synchronous

MISTAKES = {
    "union": {
        "the first alone": [("tf.add_n(g) / len(g)", "g[0]")],
        "the sum": [("tf.add_n(g) / len(g)", "tf.add_n(g)")],
        "one batch for all": [("flags.seed * 65536 + rank", "flags.seed * 65536")],
    }
}
COMPARED_BY = (
    "tests/equations/test_replicas.py::test_replicas_are_one_worker_on_the_union_of_their_batches"
)
APP = {"reference": Synchronous, "flags": {"devices": 2}, "n": 2}
