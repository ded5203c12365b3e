"""Local-SGD: T steps w_k <- w_k - lr * g(w_k), T = 1 before update S; d <- w - mean of the w_k,
u <- beta * u + d, w <- w - alpha * u."""

import numpy as np
from tfrun.apps.references import Synchronous


class LocalSGD(Synchronous):
    def __init__(self, w, *more, **hyperparameters):
        super().__init__(w, *more, **hyperparameters)
        self.u = [np.zeros_like(v) for v in self.w]

    def joint_step(self, those):
        T = (
            1
            if self.step < self.hyperparameters["post_local"]
            else self.hyperparameters["local_steps"]
        )
        losses, ends = [], []
        for k in those:
            w_k = self.copy()
            for t in range(T):
                loss, g = self.gradient(k, self.step * self.hyperparameters["local_steps"] + t, w_k)
                w_k = [v - self.lr * d for v, d in zip(w_k, g)]
            ends.append(w_k)
            losses.append(loss)
        d = [v - sum(parts) / len(ends) for v, parts in zip(self.w, zip(*ends))]
        self.u = [self.hyperparameters["slow_momentum"] * u + e for u, e in zip(self.u, d)]
        self.w = [v - self.hyperparameters["slow_rate"] * u for v, u in zip(self.w, self.u)]
        self.step += 1
        return losses

    def values(self):
        return {**super().values(), "velocity": self.u}


REFERENCE = LocalSGD
FLAGS = {"local_steps": 4, "post_local": 3, "slow_momentum": 0.5, "slow_rate": 0.7}
VARIABLES = {"velocity": "velocity"}
SUM = "d = flags.learning_rate / N * sums"
MISTAKES = {
    "parameters": {
        "w moves by the mean of the gradients, as SAGN's": [(SUM, SUM + " / flags.local_steps")],
        "w becomes the sum of the moves": [(SUM, SUM.replace(" / N", ""))],
        "one forward pass for all T steps": [
            ("loss, w_k - flags.learning_rate * g,", "loss, w_k,")
        ],
        "one mini-batch for all T steps": [("flags.local_steps + t)", "flags.local_steps)")],
        "the slow rate is in the velocity, too": [
            ("u.assign(flags.slow_momentum * u + d)", "u.assign(flags.slow_momentum * u + 0.7 * d)")
        ],
        "T is 1 for one step too long": [("version < flags.post", "version <= flags.post")],
    },
    "velocity": {"the velocity forgets": [("flags.slow_momentum * u + d", "0 * u + d")]},
}
