"""AEASGD: T steps w_k <- w_k - lr * g(w_k), then w_k <- w_k - E, w <- w + E, of the worker's own
w_k, which lasts; E = lr * rho * (w_k - w) of the w_k before the last of the T steps."""

from common.references import Elastic

REFERENCE = Elastic
FLAGS = {"local_steps": 4, "rho": 1.5}
DIFFERS = 60
VARIABLES = {"own parameters": ".*_k"}
OWN = "initializer=%s) for"
MISTAKES = {
    "own parameters": {
        "a worker starts from its own random point": [
            (OWN % "v.read_value()", OWN % "tf.random_normal(v.shape, 0, 0.1)")
        ],
        "nothing depends on the local step: it is pruned": [
            (", *[v.assign(m - e) for v, m, e in zip(own, moved, force)]", "")
        ],
        "the force has the wrong sign": [("v.assign(m - e)", "v.assign(m + e)")],
        "the force does not move w_k": [("v.assign(m - e)", "v.assign(m)")],
    },
    "parameters": {
        "the force is that of the w_k after the step": [
            ("zip(w_k, pulled)]", "zip(move(last, w_k)[1], pulled)]")
        ],
        "the force before the local steps": [("zip(w_k, pulled)]", "zip(own, pulled)]")],
    },
}
