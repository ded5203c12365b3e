"""Synchronous-SGD: w <- w - lr * (1/N) * sum of g_k(w) over the N that take part.

Its warm-up and its backup workers have more mistakes, in test_synchronous.py.
"""

from common.references import Synchronous

REFERENCE = Synchronous
FLAGS = {}
ENOUGH = "tf.math.count_nonzero(reported), %s)"
MISTAKES = {
    "parameters": {
        "one worker supplies all gradients": [("slot[k].assign(d) for", "slot[0].assign(d) for")],
        "the sum instead of the mean": [
            ("tf.reduce_mean(tf.boolean_mask", "tf.reduce_sum(tf.boolean_mask")
        ],
        "all workers draw the same batches": [("flags.seed * 65536 + rank", "flags.seed * 65536")],
    },
    "steps": {
        "the first gradient is the step": [(ENOUGH % "N", ENOUGH % "1")],
        "the step waits for one gradient too many": [(ENOUGH % "N", ENOUGH % "N + 1")],
    },
}
NOT_RUN = ["the step waits for one gradient too many"]  # for ever
