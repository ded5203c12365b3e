"""DynSGD: as DOWNPOUR-Easy, but w <- w - lr * a / (tau + 1), tau the staleness."""

from tfrun.apps.references import Dyn

REFERENCE = Dyn
FLAGS = {"local_steps": 3}
RATE = "flags.learning_rate / (tau + 1)"
MISTAKES = {
    "parameters": {
        "no division by the staleness": [(RATE, "flags.learning_rate")],
        "its own update twice": [(RATE, "flags.learning_rate / (tau + 2)")],
        "a root of the staleness": [(RATE, "flags.learning_rate / tf.sqrt(tau + 1)")],
        "the other parts know no staleness": [
            (RATE, "flags.learning_rate / (tau * float(step.is_first) + 1)")
        ],
        "the staleness of the push before": [
            ("tf.cast(ticket - version,", "tf.cast(version - version,")
        ],
        "the rate counts in the local steps alone": [(RATE, "1 / (tau + 1)")],
    },
    "staleness": {
        "the ps reads the version before the push of another is in": [
            ("return step.read(), w.read_value()", "return step.read() * 0, w.read_value()")
        ],
    },
}
