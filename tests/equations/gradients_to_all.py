"""Gradients-To-All: w_j <- w_j - lr * g(w_k) for each worker j, for each gradient of each worker k.

The same equation for both ways: from worker to worker, or by a ps that forwards the gradients.
"""

import numpy as np


class GradientsToAll:
    """Workers, each with a w of its own, by the equation."""

    def __init__(self, w, gradient, lr):
        self.w, self.gradient, self.lr = [np.array(v, float) for v in w], gradient, lr
        self.made = [0] * len(self.w)  # steps of each worker

    def step(self, k, before):
        """Worker k makes a step by its gradient at `before`, which all workers apply."""
        g = self.gradient(k, self.made[k], before)
        self.w = [w_j - self.lr * g for w_j in self.w]
        self.made[k] += 1


REFERENCE = GradientsToAll
FLAGS = {}
OWN = "            apply(part, piece, flags)\n"
PARTS = "        for part, piece in zip(w, pieces):\n" + OWN
TO_OTHERS = '        push = group.send("apply", pieces)\n'
TO_PS = '        ticket = group.send("forward", pieces)\n'
SUBTRACT = "    w.assign_sub(flags.learning_rate * g)\n"
FORWARD = '        return group.send("apply", [g], part, run)\n'
EXCEPT_THIS = "[k for k in workers if k != self.rank]"
MISTAKES = {
    "peers: w": {
        "its own gradient is missing": [(PARTS, "")],
        "its own gradient twice": [(OWN, OWN + OWN)],
        "what has come in between is undone": [
            (
                PARTS,
                "        old = tf.split(w_k, [part.shape[0] for part in w])\n"
                "        for part, piece, w_old in zip(w, pieces, old):\n"
                "            part.assign(w_old - flags.learning_rate * piece)\n",
            )
        ],
        "the others get an n-th": [
            (TO_OTHERS, TO_OTHERS.replace("pieces", "[piece / group.n for piece in pieces]"))
        ],
        "only one other worker gets it": [(EXCEPT_THIS, "[(self.rank + 1) % self.n]")],
        "two parts are mixed up": [
            (TO_OTHERS, TO_OTHERS.replace("pieces", "pieces[:-2] + pieces[:-3:-1]"))
        ],
        "the rate is lost": [(SUBTRACT, "    w.assign_sub(g)\n")],
        "up the hill": [(SUBTRACT, SUBTRACT.replace("_sub", "_add"))],
    },
    "peers: staleness": {
        "its own gradient counts": [
            ("    late = ticket - before", "    late = ticket + 1 - before")
        ]
    },
    "peers: bytes": {
        "the gradient is counted once": [("[g] * len(group.receivers)", "[g]")],
    },
    "forwarder: w": {
        "its own gradient also at once": [
            (
                TO_PS,
                TO_PS
                + "        for part, piece in zip(w, pieces):\n"
                + OWN.replace("piece,", "piece + 0 * tf.cast(ticket, piece.dtype),"),
            )
        ],
        "the ps skips one worker": [
            ("self.connect(range(self.n))", "self.connect(range(self.n - 1))")
        ],
        "each gradient counts double": [(FORWARD, FORWARD.replace("[g]", "[g + g]"))],
        "the mean over the workers": [(FORWARD, FORWARD.replace("[g]", "[g / group.n]"))],
        "all parts go to the first one": [(FORWARD, FORWARD.replace("part,", "0 * part,"))],
        "the ps gets two parts mixed up": [
            (TO_PS, TO_PS.replace("pieces", "pieces[:-2] + pieces[:-3:-1]"))
        ],
    },
    "forwarder: order": {
        "several gradients at once": [("    return lock.execute(send)\n", "    return send()\n")]
    },
    "forwarder: staleness": {
        "its own gradient counts, on its way by the ps": [
            ("    late = ticket - before", "    late = ticket + 1 - before")
        ]
    },
}
NOT_RUN = ["up the hill", "the rate is lost"]  # the loss may become infinite
COMPARED_BY = (
    "tests/equations/test_gradients_to_all.py::test_every_gradient_comes_to_every_worker_once"
)
APP = {"test": "test_gradients.py"}
