"""Gossip-SGD: each worker averages its own w with a neighbour's, or with those of both.

AD-PSGD   w_k, w_j <- (w_k + w_j) / 2;  w_k <- w_k - lr * g(what w_k was before)
D-PSGD    w_k <- (w_left + w_k + w_right) / 3 - lr * g(w_k)
"""

import numpy as np


class Gossip:
    """The workers of a ring, by the two equations."""

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

    def together(self):
        """All workers make a step."""
        before, n = self.w, len(self.w)
        self.w = [(before[k - 1] + before[k] + before[(k + 1) % n]) / 3 for k in range(n)]
        for k in range(n):
            self.step(k, before[k])


REFERENCE = Gossip
FLAGS = {}
STEP = "    w.assign_add(change - flags.learning_rate * g)\n"
THIRDS = "    return (left - w_k + right - w_k) / 3\n"
ASKED = "            pairs.move(sent, received)\n            return\n"
PACK, ANSWERED = (
    "        sent = packed(pairs.step.numpy(), pairs.w.numpy())\n",
    "        pairs.move(sent, received)\n    return sent\n",
)
MISTAKES = {
    "D-PSGD": {
        "weights that do not sum to 1": [
            (THIRDS, THIRDS.replace("/ 3", "/ 2").replace("- w_k)", ")"))
        ],
        "one neighbour twice": [(THIRDS, THIRDS.replace("right -", "left -"))],
        "quarters instead of thirds": [(THIRDS, THIRDS.replace("/ 3", "/ 4"))],
        "the step comes before the averaging": [
            (
                "peers.average, [w_k, version]",
                "peers.average, [w_k - flags.learning_rate * g, version]",
            )
        ],
        "the gradient is of the average": [
            ("    loss, g = gradient(w_k, version)\n", ""),
            (
                "    with tf.control_dependencies([g]):\n",
                "    with tf.control_dependencies([w_k]):\n",
            ),
            (
                "    with tf.control_dependencies([change]):\n",
                "    loss, g = gradient(w_k + change, version)\n"
                "    with tf.control_dependencies([change]):\n",
            ),
        ],
        "up the hill": [(STEP, STEP.replace("- flags", "+ flags"))],
    },
    "AD-PSGD": {
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
            (STEP, STEP.replace("assign_add(", "assign(w_k + "))
        ],
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
COMPARED_BY = "tests/equations/test_gossip.py::test_the_steps_are_those_of_the_equations"
