"""Synchronous-SGD-different-learning-rates: w <- w - sum of lr_k * g_k(w)."""

from common.references import DifferentRates

REFERENCE = DifferentRates
FLAGS = {"learning_rate": None, "learning_rates": [0.3, 0.1]}
MISTAKES = {
    "parameters": {
        "the mean of different rates": [("tf.add_n(slot))", "tf.add_n(slot) / n)")],
        "all have the first rate": [("rates[k % len(learning_rates)]", "rates[0]")],
    }
}
