"""Bounded-Staleness: w <- w - lr * g(w_k), as HogWild's, and c_k <- c_k + 1, for as long as no
worker is too far ahead. test_identities.py compares the waiting."""

from tfrun.apps.references import HogWild

REFERENCE = HogWild
FLAGS = {"max_lead": 99}
DIFFERS = 90  # with the clocks
PULLS = "pull"
MISTAKES = {
    "parameters": {
        "the push is halved": [("w.assign_sub(delta)", "w.assign_sub(delta / 2)")],
        "the push leaves out a part": [
            ("w.assign_sub(delta)", "w.assign_sub(delta * float(step.is_first))")
        ],
        "the gradient is not at the pulled w": [
            ("gradient(pulled.w, ", "gradient(ps.call('pull').w, ")
        ],
        "constant data": [("pulled.version)", "0 * pulled.version)")],
    },
    "staleness": {
        "it counts from the push before": [
            ("w=pulled.w, pull=pulled", "w=pulled.w, pull=pulled._replace(version=version)")
        ],
    },
}
APP = {"mistakes": ["the push is halved", "constant data"]}
