"""AEASGD: E = lr * rho * (w_k - w), w <- w + E, w_k <- w_k - E of the worker's own w_k;
T steps w_k <- w_k - lr * g(w_k), the first with the gradient at the w_k before the force."""

from tfrun.apps.references import Elastic

REFERENCE = Elastic
FLAGS = {"local_steps": 4, "rho": 1.5}
DIFFERS = 60
VARIABLES = {"own parameters": lambda own: own}
START = "tf.identity(w_k), reply.w]"
MISTAKES = {
    "own parameters": {
        "a worker starts from its own random point": [
            (
                "update.begin = lambda w: w",
                "update.begin = lambda w: w + tf.random.normal(w.shape) / 9",
            )
        ],
        "the force does not move w_k": [("tf.identity(w_k), reply.w]", "tf.identity(w_k), w_k]")],
        "the force has the wrong sign on the worker": [("w_k - force", "w_k + force")],
        "the first gradient is behind the force": [(START, "reply.w, reply.w]")],
        "the first step is lost": [("return t + 1, loss, w_k, w_k", "return t + 1, loss, w_k, at")],
        "w takes the place of w_k": [("reply._replace(w=w_k)", "reply._replace(w=ps.pull().w)")],
    },
    "parameters": {
        "the force has the wrong sign on the ps": [("w.assign_add(force)", "w.assign_sub(force)")],
        "the force of a fixed w": [("(w_k - w.read_value())", "(w_k - 0 * w.read_value())")],
        "alpha without the rate": [
            ("alpha, lock = flags.learning_rate * flags.rho", "alpha, lock = 0.1 * flags.rho")
        ],
        "the force leaves out a part": [
            ("w.assign_add(force)", "w.assign_add(force * float(step.is_first))")
        ],
        "no last local step": [("t < flags.local_steps", "t < flags.local_steps - 1")],
    },
}
