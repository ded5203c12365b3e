"""D-PSGD: w_k <- (w_left + w_k + w_right) / 3 - lr * g(w_k), of all workers of a ring at once."""

from tfrun.apps.references import Gossip


class DPSGD(Gossip):
    """The workers of a ring, by the equation."""

    def move(self, g, those):
        """Each averages with both neighbours, and takes the step of its own gradient."""
        before, n = self.own, len(those)
        self.own = [
            [
                (left + own + right) / 3 - self.lr * d
                for left, own, right, d in zip(before[k - 1], before[k], before[(k + 1) % n], g[k])
            ]
            for k in those
        ]


REFERENCE = DPSGD
FLAGS = {}
STEP = "    w.assign_add(change - flags.learning_rate * g)\n"
THIRDS = "    change = (w_left - w_k + w_right - w_k) / 3\n"
MISTAKES = {
    "parameters": {
        "weights that do not sum to 1": [
            (THIRDS, THIRDS.replace("/ 3", "/ 2").replace("- w_k)", ")"))
        ],
        "one neighbour twice": [(THIRDS, THIRDS.replace("w_right -", "w_left -"))],
        "quarters instead of thirds": [(THIRDS, THIRDS.replace("/ 3", "/ 4"))],
        "the step comes before the averaging": [
            ("            [w_k],\n", "            [w_k - flags.learning_rate * g],\n")
        ],
        "the gradient is of the average": [
            ("    loss, g = gradient(w_k, version)\n", ""),
            (
                "    with tf.control_dependencies([g]):\n",
                "    with tf.control_dependencies([w_k]):\n",
            ),
            (STEP, "    loss, g = gradient(w_k + change, version)\n" + STEP),
        ],
        "up the hill": [(STEP, STEP.replace("- flags", "+ flags"))],
    },
    "bytes": {
        "what comes is not counted": [
            (
                "ring.sent + ring.received for ring in rings) - before",
                "ring.sent for ring in rings)",
            )
        ],
        "each row counts all": [("for ring in rings) - before", "for ring in rings)")],
    },
}
NOT_RUN = ["up the hill"]  # the loss becomes infinite
APP = {"workers": 3}
