"""Delay-Compensation: w <- w - lr * (g + lambda * g^2 * (w - w_k)), g the gradient at w_k, which
worker k has pulled, and w as it is at the push."""

from common.references import HogWild


class DelayCompensation(HogWild):
    """g is elementwise: g^2 stands for the diagonal of the Hessian."""

    def update(self, k, version, w_k):
        loss, g = self.gradient(k, version, w_k)
        for i, v in enumerate(self.w):
            estimate = g[i] + self.knobs["compensation"] * g[i] ** 2 * (v - w_k[i])
            self.w[i] = v - self.lr * estimate
        return loss


REFERENCE = DelayCompensation
FLAGS = {"compensation": 50.0}
LAST = """    pushes = []
    last = []
    for v in w:
        with tf.device(v.device):
            name = v.op.name.replace("/", "_") + "_last"
            last.append(tf.get_variable(name, initializer=v.initial_value))
    before = {v.op.name: b for v, b in zip(w, last)}
"""
NOW = """        now, last = v.read_value(), before[v.op.name]
        missed = flags.compensation * g * g * (now - last.read_value())
        with tf.control_dependencies([missed]):
            kept = last.assign(now, read_value=False)
"""
MISSED = "missed = flags.compensation * g * g * (v.read_value() - w_k)"
MISTAKES = {
    "parameters": {
        "the compensation has the wrong sign": [("missed = flags", "missed = -flags")],
        # As in Multiverso.
        "the gradient's absolute value, not its square": [
            ("flags.compensation * g * g", "flags.compensation * tf.abs(g)")
        ],
        # As in MXNet, which keeps one previous w, whoever made the update.
        "what w has moved since the last push of anyone": [
            ("    pushes = []\n", LAST),
            (f"        {MISSED}\n", NOW),
            (
                "        return v.assign_sub(",
                "        with tf.control_dependencies([kept]):\n            return v.assign_sub(",
            ),
        ],
        "w as it was at the pull": [("v.read_value() - w_k", "tf.identity(w_k) - w_k")],
        "the compensation without the rate": [
            ("flags.learning_rate * (g + missed)", "flags.learning_rate * g + missed")
        ],
        "the gradient itself, not its square": [
            ("flags.compensation * g * g", "flags.compensation * g")
        ],
        "the push leaves out one ps": [("zip(w, arrived)):", "zip(w[1:], arrived[1:])):")],
    },
}
