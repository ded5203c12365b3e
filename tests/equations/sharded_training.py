"""Sharded-Training: Adam on the mean of all workers' gradients, whoever holds which part of it.

test_sharded.py compares the script with it in each stage, and counts what a worker holds and sends.
"""

import numpy as np
from tfrun.apps.references import Synchronous


class Adam(Synchronous):
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr m_hat / (sqrt(v_hat) + eps)."""

    def __init__(self, w, *more, **hyperparameters):
        super().__init__(w, *more, **hyperparameters)
        self.m, self.v = [[np.zeros_like(p) for p in self.w] for _ in "mv"]

    def move(self, g, those):
        mean, t = [sum(d) / len(those) for d in zip(*g)], self.step + 1
        self.m = [0.9 * m + 0.1 * d for m, d in zip(self.m, mean)]
        self.v = [0.999 * v + 0.001 * d**2 for v, d in zip(self.v, mean)]
        m_hat, v_hat = [m / (1 - 0.9**t) for m in self.m], [v / (1 - 0.999**t) for v in self.v]
        self.w = [
            p - self.lr * m / (np.sqrt(v) + self.hyperparameters["epsilon"])
            for p, m, v in zip(self.w, m_hat, v_hat)
        ]


REFERENCE = Adam
FLAGS = {"learning_rate": 0.01, "epsilon": 1e-3}
GATHER = '        if following:\n            coming = lanes.communicate("gather", following, '
GATHER += "following.gather)\n"
YIELD = "        yield block, w_i\n"
OWN = "[(self.ring.rank + 1) % self.ring.n]"
KEY = "* 65536 + k, "
ROWS = "    k, n = %s, ring.n\n    cut"
FREED = "        if not keep:\n            block.gathered = None\n"
MOVED = 'lanes.communicate("gather", block, block.gather_moved)'
HALVES = "        if self.stage == 0:\n            all_gather(chunk, self.ring)\n        else:\n"
WHOLE = "        all_gather(chunk, self.ring)\n        if self.stage:\n"
KEPT = "            self.gathered = %swhole\n"
MISTAKES = {
    "moments": {
        "the sum instead of the mean": [("        self.g /= self.ring.n\n", "")],
        "a worker takes the chunk of its number": [(OWN, "[self.ring.rank]")],
        "all ranks have the same rows": [(ROWS % "ring.rank", ROWS % "0")],
        "constant data": [(KEY + "number]", KEY + "0 * number]")],
        "the moments begin anew": [("self.m = BETA_1 * self.m + ", "self.m = ")],
        "the second moment is not of squares": [("* self.g * self.g", "* abs(self.g)")],
        "half of the gradient goes back": [("w_i, h.pop(), d)", "w_i, h.pop(), 0.5 * d)")],
    },
    "parameters": {
        "the parameters of the first step are kept": [(FREED, "")],
        "the moved shards stay where they are": [(MOVED, "block.pending")],
        "Adam's clock is ahead": [("block.adam, number + 1", "block.adam, number + 2")],
        "no bias correction": [("self.m / (1 - BETA_1**t)", "self.m / 1")],
    },
    "bytes": {
        "stage 3 gathers once": [("keep=flags.keep_gathered", "keep=True")],
        "an all-reduce, of which a worker takes its shard": [(HALVES, WHOLE)],
    },
    "memory": {
        "a shard is a view of all of g": [("self.shard(self.g).copy()", "self.shard(self.g)")],
        "a shard is a view of all of w": [("self.shard(w).copy()", "self.shard(w)")],
        "what was gathered stays": [(KEPT % "", KEPT % "self.whole = ")],
    },
    "overlap": {
        "a block is gathered when it is needed": [(GATHER, ""), (YIELD, YIELD + GATHER)],
        "stage 3 reduces when it has all gradients": [
            ("if stage >= 2:", "if stage > 3:"),
            ("if stage <= 1:", "if stage <= 3:"),
        ],
    },
}
COMPARED_BY = "tests/equations/test_sharded.py::test_each_stage_is_adam"
APP = {"mistakes": ["no bias correction", "the moments begin anew"]}
