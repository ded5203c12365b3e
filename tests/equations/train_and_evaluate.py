"""Train-and-Evaluate: HogWild's rule, on mini-batches that come from files."""

from tfrun.apps.references import HogWild

REFERENCE = HogWild
FLAGS = {}
PROBLEM = "records"
MISTAKES = {
    "parameters": {
        "the gradient is not at the pulled w": [
            ("gradient(w_k)", "gradient(tf.cond(version > 0, lambda: ps.pull().w, lambda: w_k))")
        ],
        "the rate counts twice": [("flags.learning_rate * g", "flags.learning_rate**2 * g")],
        "the push adds": [("w.assign_sub(delta)", "w.assign_add(delta)")],
        "the push leaves out a part": [
            ("w.assign_sub(delta)", "w.assign_sub(delta * float(step.is_first))")
        ],
    },
}
NOT_RUN = [name for named in MISTAKES.values() for name in named]  # they need files
