"""Gossip-SGD: each worker averages its own w with a neighbour's, by AD-PSGD.

w_k, w_j <- (w_k + w_j) / 2;  w_k <- w_k - lr * g(what w_k was before)
"""

import numpy as np


class Gossip:
    """The workers of a ring, by the equations."""

    def __init__(self, w, gradient, lr):
        self.w, self.gradient, self.lr = [np.array(v, float) for v in w], gradient, lr
        self.made = [0] * len(self.w)  # steps

    def pair(self, k, j):
        """Workers k and j average."""
        self.w[k] = self.w[j] = (self.w[k] + self.w[j]) / 2

    def step(self, k, before):
        """Worker k makes a step by its gradient at `before`."""
        self.w[k] = self.w[k] - self.lr * self.gradient(k, self.made[k], before)
        self.made[k] += 1


REFERENCE = Gossip
FLAGS = {}
STEP = "        w.assign_sub(flags.learning_rate * g)\n"
ASKED = "            pairs.move(sent, received)\n            return\n"
PACK = "        sent = packed(pairs.step.numpy(), pairs.w.numpy())\n"
ANSWERED = "        pairs.move(sent, received)\n    return sent\n"
MISTAKES = {
    "w": {
        "only the passive worker averages": [(ASKED, "            return\n")],
        "only the active worker averages": [
            (ANSWERED, ANSWERED.replace("received", "received if pairs.step < 0 else sent"))
        ],
        "the passive worker answers with its new w": [
            (PACK + ANSWERED, PACK + ANSWERED.replace("    return", PACK + "    return"))
        ],
        "away from the other": [("return weight * (w_j - w_k)", "return weight * (w_k - w_j)")],
        "the whole way to the other": [("else 0.5\n", "else 1\n")],
        "an averaging during a step is undone": [
            (STEP, STEP.replace("assign_sub(", "assign(w_k - "))
        ],
        "up the hill": [(STEP, STEP.replace("_sub(", "_add("))],
    },
    "neighbours": {
        "always the same neighbour": [("in random.permutation(pairs.to_ask)", "in pairs.to_ask")],
        "the same choice in each step": [("pairs.rank, number]", "pairs.rank]")],
        "both neighbours in each step": [(ASKED, ASKED.replace("            return\n", ""))],
    },
    "sum": {
        "a step during an averaging is lost": [
            (
                "        self.w.assign_add(towards(sent, received))\n",
                "        self.w.assign(unpacked(sent)[1] + towards(sent, received))\n",
            )
        ],
    },
    "at once": {"two averagings at a time": [("    with pairs.lock:\n", "    if pairs:\n")]},
    "staleness": {"nothing is late": [("read_value() - before\n", "read_value() * 0\n")]},
    "bytes": {
        "what comes is not counted": [("+= len(sent) + len(received)", "+= len(sent)")],
        "each row counts all": [("self.moved - self.reported, self.moved", "self.moved, 0")],
    },
}
NOT_RUN = ["up the hill"]  # the loss becomes infinite
COMPARED_BY = "tests/equations/test_gossip.py::test_averages_come_in_any_order_and_nothing_is_lost"
APP = {"test": "test_averages.py"}
