"""DOWNPOUR: as DOWNPOUR-Easy, but h <- h + a^2, w <- w - server_lr * a / sqrt(h)."""

from common.references import Downpour

REFERENCE = Downpour
FLAGS = {"local_steps": 4, "server_lr": 0.07, "initial_accumulator": 0.2}
VARIABLES = {"accumulators": ".*Adagrad.*"}
ADAGRAD = "optimizer(flags.server_lr, flags.initial_accumulator)"
MISTAKES = {
    "accumulators": {
        "the mean": [("send(w, a)", "send(w, [s / flags.local_steps for s in a])")],
        "one gradient of the T": [("[s + d for s, d in zip(a, g)]", "g")],
    },
    "parameters": {
        "Adagrad on both sides": [
            (
                "v - flags.learning_rate * d for v, d in zip(w_k, g)",
                "v - flags.learning_rate * d / tf.sqrt(flags.initial_accumulator + s * s) "
                "for v, d, s in zip(w_k, g, a)",
            )
        ],
        "plain SGD on the ps": [(ADAGRAD, "tf.train.GradientDescentOptimizer(flags.server_lr)")],
        "Adagrad with the worker's rate": [
            (ADAGRAD, ADAGRAD.replace("server_lr", "learning_rate"))
        ],
    },
}
