"""HogWild: w <- w - lr * g(w_k), where w_k is w as worker k has pulled it."""

from tfrun.apps.references import HogWild

REFERENCE = HogWild
FLAGS = {}
DIFFERS = 60  # from Distributed-Setup, which also prints what lies where
MISTAKES = {
    "parameters": {
        # To the first parameters: to all of w, the loss would soon be NaN.
        "the push adds": [
            ("w.assign_sub(delta)", "w.assign_sub(tf.concat([-delta[:9], delta[9:]], 0))")
        ],
        "the rate is not the flag's": [("flags.learning_rate * g)", "0.1 * g)")],
        "constant data": [("gradient(w_k, version)", "gradient(w_k, version * 0)")],
        "all draw the same batches": [("flags.seed * 65536 + rank", "flags.seed * 65536")],
        "the gradient is not at the pulled w": [
            ("gradient(w_k, version)", "gradient(ps.pull().w, version)")
        ],
        "the push leaves out a part": [
            ("w.assign_sub(delta)", "w.assign_sub(delta * float(step.is_first))")
        ],
        "the reply is w before the push": [
            (
                "        ticket = step.take()",
                "        old = tf.identity(w.read_value())\n        ticket = step.take()",
            ),
            ("return ticket, *pull()", "return ticket, pull()[0], old"),
        ],
        "the parts change places": [
            (
                "tf.ensure_shape(tf.concat(w, 0)",
                "tf.ensure_shape(tf.concat(w[::-1], 0)",
            )
        ],
    },
    "staleness": {
        "it counts the worker's own push": [
            ("staleness=reply.ticket - version", "staleness=reply.ticket + 1 - version")
        ],
        "the ps reads the version before the push of another is in": [
            ("version = step.read()  #", "version = step.read() * 0  #")
        ],
    },
    "steps": {
        "two pushes have one ticket": [
            (
                "limit=self.steps, T=tf.int64)",
                "limit=self.steps, T=tf.int64) // 2 * 2",
            )
        ],
    },
}
