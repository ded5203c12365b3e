"""Synchronous-SGD: w <- w - lr * (1/N) * sum of g_k(w) over the N that take part.

Its warm-up and its backup workers have more mistakes, in test_synchronous.py.
"""

from tfrun.apps.references import Synchronous

REFERENCE = Synchronous
FLAGS = {}
ENOUGH = "tf.maximum(workers - backups, 1)"
MISTAKES = {
    "parameters": {
        "one worker supplies all gradients": [
            ("tf.gather(slots, ranks[i])", "tf.gather(slots, 0 * ranks[i])")
        ],
        "the sum instead of the mean": [("rate / N * g", "rate * g")],
        "another part never makes the step": [
            ("behind = (before >= 0)", "behind = (before > 10**9)")
        ],
        "another part makes each step once for each worker": [
            ("(before < step.version)", "(before <= step.version)")
        ],
    },
    "steps": {
        "the first gradient is the step": [(ENOUGH, "1")],
        "the step waits for one gradient too many": [(ENOUGH, "workers - backups + 1")],
        "the count of steps says nothing to who waits": [
            ("token = step.take() + 1", "token = step.take()")
        ],
    },
}
NOT_RUN = [  # for ever
    "the step waits for one gradient too many",
    "the count of steps says nothing to who waits",
]
