"""DiLoCo: T steps of AdamW, whose moments last from round to round; d <- w - mean of the w_k,
u <- beta * u + d, w <- w - outer * (d + beta * u)."""

import numpy as np
from tfrun.apps.references import Synchronous


class DiLoCo(Synchronous):
    def __init__(self, w, *more, **hyperparameters):
        super().__init__(w, *more, **hyperparameters)
        self.u = [np.zeros_like(v) for v in self.w]
        self.m, self.v = [
            {k: [np.zeros_like(v) for v in self.w] for k in range(self.n)} for _ in "mv"
        ]

    def adamw(self, k, number, w_k):
        """Step `number` of worker k: from 1 on, all rounds together."""
        hyperparameters = self.hyperparameters
        loss, g = self.gradient(k, number - 1, w_k)
        self.m[k] = [0.9 * m + 0.1 * d for m, d in zip(self.m[k], g)]
        self.v[k] = [0.999 * v + 0.001 * d**2 for v, d in zip(self.v[k], g)]
        rate = hyperparameters["learning_rate"] * min(1, number / hyperparameters["warmup_steps"])
        m_hat = [m / (1 - 0.9**number) for m in self.m[k]]
        v_hat = [v / (1 - 0.999**number) for v in self.v[k]]
        steps = [m / (np.sqrt(v) + hyperparameters["epsilon"]) for m, v in zip(m_hat, v_hat)]
        return loss, [
            p - rate * s - rate * hyperparameters["weight_decay"] * p for p, s in zip(w_k, steps)
        ]

    def joint_step(self, those):
        T, losses, ends = self.hyperparameters["local_steps"], [], []
        for k in those:
            w_k = self.copy()
            for t in range(T):
                loss, w_k = self.adamw(k, self.step * T + t + 1, w_k)
            ends.append(w_k)
            losses.append(loss)
        d = [v - sum(parts) / len(ends) for v, parts in zip(self.w, zip(*ends))]
        beta, outer = self.hyperparameters["outer_momentum"], self.hyperparameters["outer_rate"]
        self.u = [beta * u + e for u, e in zip(self.u, d)]
        self.w = [v - outer * (e + beta * u) for v, e, u in zip(self.w, d, self.u)]
        self.step += 1
        return losses

    def values(self):
        moments = [m for k in range(self.n) for m in self.m[k]]
        return {**super().values(), "velocity": self.u, "first moments": moments}


REFERENCE = DiLoCo
FLAGS = {
    "local_steps": 4,
    "learning_rate": 0.01,
    "warmup_steps": 20,
    "weight_decay": 0.3,
    "epsilon": 1e-3,
    "outer_rate": 0.4,
    "outer_momentum": 0.6,
}
VARIABLES = {"velocity": "velocity", "first moments": lambda own: own[1]}
KEPT = "reply._replace(w=(reply.w, *kept))"
OUTER = "flags.outer_rate * (d + flags.outer_momentum * velocity)"
MISTAKES = {
    "parameters": {
        # As torchft did, before its pull request 233.
        "the sign of d": [
            ("push_together(ps, version, w - w_k)", "push_together(ps, version, w_k - w)")
        ],
        "the moments are reset each round": [
            (KEPT, "reply._replace(w=(reply.w, 0 * kept[0], 0 * kept[1], kept[2]))")
        ],
        "the warm-up restarts each round": [
            ("tf.cast(first + t + 1, tf.float32) / flags", "tf.cast(t + 1, tf.float32) / flags")
        ],
        "the correction of the moments restarts each round": [("before + t + 1", "t + 1")],
        "heavy-ball momentum, not Nesterov's": [(OUTER, "flags.outer_rate * velocity")],
        "the weight decay is part of the gradient": [
            (
                "        m = BETA_1",
                "        g = g + 0.3 * w_k\n        m = BETA_1",
            ),
            (" + flags.weight_decay * w_k", ""),
        ],
        "one mini-batch for all T steps": [("gradient(w_k, first + t)", "gradient(w_k, first)")],
        "the outer rate takes the sum of the changes": [("d = changes / N", "d = changes")],
    },
    "velocity": {
        "the velocity forgets": [("u.assign(flags.outer_momentum * u + d)", "u.assign(d + 0 * u)")]
    },
    "first moments": {
        "the moments of the last round alone": [
            ("start = [np.int64(0), 0.0, w_k, m, v]", "start = [np.int64(0), 0.0, w_k, 0 * m, v]")
        ],
    },
}
