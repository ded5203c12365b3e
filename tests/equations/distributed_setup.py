"""Distributed-Setup: w <- w - lr * g(w), by a single worker."""

from tfrun.apps.references import HogWild

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {}
WORKERS = 1
MISTAKES = {
    "parameters": {
        "the push is halved": [("w.assign_sub(delta)", "w.assign_sub(delta / 2)")],
        "constant data": [("gradient(w_k, version)", "gradient(w_k, version * 0)")],
    },
}
