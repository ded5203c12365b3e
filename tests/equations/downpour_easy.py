"""DOWNPOUR-Easy: a <- a + g(w_k), w_k <- w_k - lr * g(w_k), T times; w <- w - lr * a."""

from tfrun.apps.references import Easy

REFERENCE = Easy
FLAGS = {"local_steps": 4}
PUSH = "ps.push(flags.learning_rate * a"
MISTAKES = {
    "parameters": {
        "a pull that is not ordered after the push": [
            (
                "        ticket = step.take()",
                "        old = tf.identity(w.read_value())\n        ticket = step.take()",
            ),
            ("return ticket, *pull()", "return ticket, pull()[0], old"),
        ],
        "one forward pass for all T steps": [
            ("loss, w_k - flags.learning_rate * g,", "loss, w_k,")
        ],
        "one mini-batch for all T steps": [("flags.local_steps + t)", "flags.local_steps)")],
        "the batches of a window overlap": [("version * flags.local_steps + t", "version + t")],
        "no last local step": [("t < flags.local_steps", "t < flags.local_steps - 1")],
        "the mean instead of the sum": [(PUSH, PUSH + " / flags.local_steps")],
        "the rate counts twice in the push": [(PUSH, PUSH.replace("(", "(0.1 * "))],
        "a rate that is the worker's rank": [(PUSH, PUSH.replace("(", "(float(ps.rank) * "))],
        "the push leaves out a part": [
            ("w.assign_sub(delta)", "w.assign_sub(delta * float(step.is_first))")
        ],
    },
    "losses": {"the loss of the first step": [("return t + 1, loss,", "return t + 1, _ + loss,")]},
}
