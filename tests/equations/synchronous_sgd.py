"""Synchronous-SGD: w <- w - lr * (1/N) * sum of g_k(w) over the N that take part.

Its warm-up and its backup workers have more mistakes, in test_synchronous.py.
"""

from tfrun.apps.references import Synchronous

REFERENCE = Synchronous
FLAGS = {}
ENOUGH = "tf.math.count_nonzero(steps == now) == %s"
MISTAKES = {
    "parameters": {
        "one worker supplies all gradients": [
            ("choose(step.worker, lambda slot", "choose(0, lambda slot")
        ],
        "the sum instead of the mean": [("rate / N * tf", "rate * tf")],
        "another part never makes the step": [
            ("behind = (before >= 0)", "behind = (before > 10**9)")
        ],
        "another part makes each step once for each worker": [
            ("(before < step.version)", "(before <= step.version)")
        ],
    },
    "steps": {
        "the first gradient is the step": [(ENOUGH % "N", ENOUGH % "1")],
        "the step waits for one gradient too many": [(ENOUGH % "N", ENOUGH % "N + 1")],
        "the count of steps says nothing to who waits": [
            ("queue.enqueue(now + 1)", "queue.enqueue(now)")
        ],
    },
}
NOT_RUN = [  # for ever
    "the step waits for one gradient too many",
    "the count of steps says nothing to who waits",
]
