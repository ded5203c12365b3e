"""ADAG: as DOWNPOUR-Easy, but w <- w - lr * a / T."""

from tfrun.apps.references import Adag

REFERENCE = Adag
FLAGS = {"local_steps": 4}
DIFFERS = 6
MEAN = "a / flags.local_steps)"
MISTAKES = {
    "parameters": {
        "the sum instead of the mean": [(MEAN, "a)")],
        "the mean counts one step too many": [(MEAN, "a / (flags.local_steps + 1))")],
        "the local steps are divided by T, too": [
            ("w_k - flags.learning_rate * g", "w_k - flags.learning_rate / flags.local_steps * g")
        ],
        "the last gradient instead of the mean": [(", a + g", ", flags.local_steps * g")],
        "one mini-batch for all T steps": [("flags.local_steps + t)", "flags.local_steps)")],
        "the push leaves out a part": [
            ("w.assign_sub(delta)", "w.assign_sub(delta * float(step.is_first))")
        ],
    },
}
