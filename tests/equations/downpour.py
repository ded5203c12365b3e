"""DOWNPOUR: as DOWNPOUR-Easy, but h <- h + a^2, w <- w - server_lr * a / sqrt(h)."""

from tfrun.apps.references import Downpour

REFERENCE = Downpour
FLAGS = {"local_steps": 4, "server_lr": 0.07, "initial_accumulator": 0.2}
VARIABLES = {"accumulators": "h"}
LOCAL = "w_k - flags.learning_rate * g, a + g"
ADAGRAD = "var=w.handle, accum=h.handle, lr=flags.server_lr, grad=a, use_locking=True"
APPLY = f"""    tf.raw_ops.ResourceApplyAdagrad(
        {ADAGRAD}
    )
"""
SGD = "    w.assign_sub(flags.server_lr * a)\n"
MISTAKES = {
    "accumulators": {
        "the mean": [("return loss, ps.push(a)", "return loss, ps.push(a / flags.local_steps)")],
        "one gradient of the T": [(LOCAL, LOCAL.replace("a + g", "g"))],
        "it begins with 0": [
            ("tf.fill(w.shape, flags.initial_accumulator)", "1e-9 + tf.zeros(w.shape)")
        ],
        "it is that of the first part alone": [
            ("adagrad(w, h, a, flags)\n", "adagrad(w, h, a, flags, step.is_first)\n"),
            ("def adagrad(w, h, a, flags)", "def adagrad(w, h, a, flags, is_first)"),
            ("grad=a,", "grad=a, update_slots=is_first,"),
        ],
    },
    "parameters": {
        "Adagrad on both sides": [
            (LOCAL, LOCAL.replace("* g,", "* g / tf.sqrt(flags.initial_accumulator + a * a),"))
        ],
        "plain SGD on the ps": [(APPLY, SGD)],
        "Adagrad with the worker's rate": [("lr=flags.server_lr", "lr=flags.learning_rate")],
        "the sum of all sums instead of their squares": [
            (APPLY, "    h.assign_add(abs(a))\n" + SGD.replace("* a", "* a / tf.sqrt(h)"))
        ],
    },
}
