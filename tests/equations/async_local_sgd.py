"""Async-Local-SGD: d <- w as pulled - w_k; b <- b + d; w <- w - outer * d / N; at every N-th push
u <- beta * u + b / N, w <- w - outer * beta * u, b <- 0."""

import numpy as np
from tfrun.apps.references import HogWild


class AsyncLocalSGD(HogWild):
    def __init__(self, w, *more, **hyperparameters):
        super().__init__(w, *more, **hyperparameters)
        self.b, self.u = [[np.zeros_like(v) for v in self.w] for _ in "bu"]

    def update(self, k, version, w_k):
        T, N = self.hyperparameters["local_steps"], self.hyperparameters["momentum_delay"]
        outer, beta = self.hyperparameters["outer_rate"], self.hyperparameters["outer_momentum"]
        pulled = [v.copy() for v in w_k]
        for t in range(T):
            loss, g = self.gradient(k, version * T + t, w_k)
            w_k = [v - self.lr * e for v, e in zip(w_k, g)]
        d = [p - v for p, v in zip(pulled, w_k)]
        self.b = [b + e for b, e in zip(self.b, d)]
        self.w = [v - outer * e / N for v, e in zip(self.w, d)]
        if (self.step + 1) % N == 0:
            self.u = [beta * u + b / N for u, b in zip(self.u, self.b)]
            self.w = [v - outer * beta * u for v, u in zip(self.w, self.u)]
            self.b = [np.zeros_like(b) for b in self.b]
        return loss

    def values(self):
        return {**super().values(), "buffer": self.b, "velocity": self.u}


REFERENCE = AsyncLocalSGD
FLAGS = {"local_steps": 3, "momentum_delay": 5, "outer_momentum": 0.6, "outer_rate": 0.4}
VARIABLES = {"buffer": "buffer", "velocity": "velocity"}
NTH = "tf.equal((ticket + 1) % N, 0)"
MISTAKES = {
    "parameters": {
        "the momentum moves at every push": [(NTH, "tf.equal((ticket + 1) % 1, 0)")],
        "the velocity moves w at every push": [
            ("tf.where(is_nth, beta * velocity, 0.0)", "beta * velocity")
        ],
        "a push is not divided by N": [("(d / N + nesterov)", "(d + nesterov)")],
        "the count begins one push early": [("(ticket + 1) % N", "ticket % N")],
        "d changes its sign": [("ps.push(flags.learning_rate * a)", "ps.push(-0.1 * a)")],
        "one mini-batch for all T steps": [("flags.local_steps + t)", "flags.local_steps)")],
        "the push leaves out a part": [
            ("w.assign_sub(flags", "w.assign_sub(float(step.is_first) * flags")
        ],
    },
    "buffer": {
        "the buffer is not emptied": [("tf.where(is_nth, 0.0, total)", "total + 0")],
        "each part counts its own pushes": [
            (NTH, "tf.equal((ticket + 1 + int(step.part.index)) % N, 0)")
        ],
    },
    "velocity": {
        "the velocity takes the last d, not the mean of N": [
            ("beta * u + total / N", "beta * u + d")
        ]
    },
}
