"""AEAMSGD: as AEASGD, with steps v <- delta * v - lr * g(w_k + delta * v), w_k <- w_k + v."""

from common.references import Elastic

REFERENCE = Elastic
FLAGS = {"local_steps": 4, "rho": 1.5, "momentum": 0.8}
VARIABLES = {"own parameters": ".*_k", "velocities": ".*_v"}
MISTAKES = {
    "velocities": {
        "the look-ahead has the wrong sign": [("p + flags.momentum", "p - flags.momentum")],
        "no look-ahead": [("p + flags.momentum * v for", "tf.identity(p) for")],
        "it is lost": [("*[v.assign(new) for v, new in zip(own_v, v_k)],", "")],
    },
    "own parameters": {
        "the rate counts twice": [("[p + v for p, v", "[p + flags.learning_rate * v for p, v")]
    },
}
