"""Synchronous-SGD-different-learning-rates: w <- w - sum of lr_k * g_k(w)."""

from tfrun.apps.references import DifferentRates

REFERENCE = DifferentRates
FLAGS = {"learning_rate": None, "learning_rates": [0.3, 0.1]}
MISTAKES = {
    "parameters": {
        "the mean of different rates": [("assign_sub(moves)", "assign_sub(moves / N)")],
        "all have the first rate": [("rates[ps.rank % len(rates)]", "rates[0]")],
    }
}
