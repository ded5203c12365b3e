"""DynSGD: as DOWNPOUR-Easy, but w <- w - lr * a / (tau + 1), tau the staleness."""

from common.references import Dyn

REFERENCE = Dyn
FLAGS = {"local_steps": 3}
MISTAKES = {
    "parameters": {
        "no division by the staleness": [(" / tf.to_float(ticket - version + 1)", "")],
        "its own update twice": [("ticket - version + 1", "ticket - version + 2")],
    }
}
