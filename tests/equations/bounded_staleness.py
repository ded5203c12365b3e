"""Bounded-Staleness: w <- w - lr * g(w_k), as HogWild's, and c_k <- c_k + 1, for as long as no
worker is too far ahead. test_identities.py compares the waiting."""

import numpy as np
from common.references import HogWild


class BoundedStaleness(HogWild):
    def __init__(self, w, *more, **knobs):
        super().__init__(w, *more, **knobs)
        self.clocks = np.zeros(self.n)

    def update(self, k, version, w_k):
        self.clocks[k] += 1
        return super().update(k, version, w_k)

    def values(self):
        return {**super().values(), "clocks": [self.clocks]}


REFERENCE = BoundedStaleness
FLAGS = {"max_lead": 99}
DIFFERS = 75  # with `build`, in which algorithm() gets k and n
VARIABLES = {"clocks": "clocks"}
MISTAKES = {
    "parameters": {
        "the push is halved": [("v.assign_sub(d) for", "v.assign_sub(d / 2) for")],
        "the push leaves out one ps": [("zip(w, delta)]", "list(zip(w, delta))[1:]]")],
    },
    "clocks": {
        "all workers share one clock": [("clocks[k].assign(", "clocks[0].assign(")],
        "the clock is that of all updates": [
            ("tf.maximum(clocks[k] + 1, slowest())", "ticket + 1")
        ],
    },
}
