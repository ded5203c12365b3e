"""AEAMSGD: as AEASGD, with steps v <- delta * v - lr * g(w_k + delta * v), w_k <- w_k + v."""

from tfrun.apps.references import Elastic

REFERENCE = Elastic
FLAGS = {"local_steps": 4, "rho": 1.5, "momentum": 0.8}
VARIABLES = {"own parameters": lambda own: own[0], "velocities": lambda own: own[1]}
MISTAKES = {
    "velocities": {
        "the look-ahead has the wrong sign": [
            ("at + flags.momentum * v", "at - flags.momentum * v")
        ],
        "no look-ahead": [("at + flags.momentum * v", "at")],
        "it is lost": [("reply._replace(w=(w_k, v))", "reply._replace(w=(w_k, 0 * v))")],
        "the force moves it": [("reply.w, v]", "reply.w, v - w_k + reply.w]")],
    },
    "own parameters": {
        "the rate counts twice": [
            ("loss, w_k + v, w_k + v, v", "loss, w_k + 0.1 * v, w_k + 0.1 * v, v")
        ],
        "the first gradient is behind the force": [
            ("tf.identity(w_k), reply.w, v]", "reply.w, reply.w, v]")
        ],
        "the first step undoes the force": [
            ("loss, w_k + v, w_k + v, v", "loss, at + v, at + v, v")
        ],
    },
    "parameters": {
        "the force has the wrong sign on the ps": [("w.assign_add(force)", "w.assign_sub(force)")],
    },
}
