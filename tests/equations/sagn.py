"""SAGN: w <- w - lr * (1/n) * sum of a_k / T, a_k the sum of T local gradients, as in ADAG."""

from common.references import Sagn

REFERENCE = Sagn
FLAGS = {"local_steps": 4}
MISTAKES = {
    "parameters": {
        "one mini-batch for all T steps": [("first + t)", "first)")],
        "one forward pass for all T steps": [
            ("w_k = [v - flags.learning_rate * d for v, d in zip(w_k, g)]", "")
        ],
        "the sum of T gradients": [("s / flags.local_steps", "s")],
    }
}
