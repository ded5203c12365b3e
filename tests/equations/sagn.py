"""SAGN: w <- w - lr * (1/n) * sum of a_k / T, a_k the sum of T local gradients, as in ADAG."""

from tfrun.apps.references import Sagn

REFERENCE = Sagn
FLAGS = {"local_steps": 4}
MISTAKES = {
    "parameters": {
        "one mini-batch for all T steps": [("flags.local_steps + t)", "flags.local_steps)")],
        "one forward pass for all T steps": [
            ("loss, w_k - flags.learning_rate * g,", "loss, w_k,")
        ],
        "the sum of T gradients": [("a / flags.local_steps)", "a)")],
    }
}
