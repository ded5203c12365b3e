"""Delay-Compensation: w <- w - lr * (g + lambda * g^2 * (w - w_k)), g the gradient at w_k, which
worker k has pulled, and w as it is at the push."""

from tfrun.apps.references import HogWild


class DelayCompensation(HogWild):
    """g is elementwise: g^2 stands for the diagonal of the Hessian."""

    def update(self, k, version, w_k):
        loss, g = self.gradient(k, version, w_k)
        for i, v in enumerate(self.w):
            estimate = g[i] + self.hyperparameters["compensation"] * g[i] ** 2 * (v - w_k[i])
            self.w[i] = v - self.lr * estimate
        return loss


REFERENCE = DelayCompensation
FLAGS = {"compensation": 50.0}
DIFFERS = 60
LATE = "w.read_value() - pulled.lookup(step.worker)"
MISTAKES = {
    "parameters": {
        "the compensation has the wrong sign": [
            ("g + flags.compensation", "g - flags.compensation")
        ],
        # As in Multiverso.
        "the gradient's absolute value, not its square": [
            ("flags.compensation * g * g", "flags.compensation * tf.abs(g)")
        ],
        # As in MXNet, which keeps one previous w, whoever made the update.
        "what w has moved since the last pull of anyone": [
            ("pulled.insert(step.worker[None], ", "pulled.insert(0 * step.worker[None], "),
            ("pulled.lookup(step.worker)", "pulled.lookup(0 * step.worker)"),
        ],
        "w as it was at the pull": [(LATE, "0 * w.read_value()")],
        "the compensation without the rate": [
            (
                "flags.learning_rate * corrected",
                "flags.learning_rate * g + corrected - g",
            )
        ],
        "the gradient itself, not its square": [
            ("flags.compensation * g * g", "flags.compensation * g")
        ],
        "the push leaves out a part": [
            ("w.assign_sub(flags", "w.assign_sub(float(step.is_first) * flags")
        ],
        "the reply to a push is no pull": [
            ("return ticket, *read()", "return ticket, step.read(), w.read_value()")
        ],
    },
}
APP = {"flags": {"compensation": 0.5}}
