"""HogWild-Sessions: w <- w - lr * g(w_k), where w_k is w as worker k has pulled it."""

from tfrun.apps.references import HogWild

REFERENCE = HogWild
FLAGS = {}
NOW = """    now = [v.read_value() for v in w]
    loss, g = gradient(now, version)
"""
MISTAKES = {
    "parameters": {
        "the rate is not the flag's": [("[flags.learning_rate * d for", "[0.1 * d for")],
        # To the first parameters: to all of w, the loss would soon be NaN.
        "the push adds": [("v.assign_sub(d)", "v.assign_sub(tf.concat([-d[:9], d[9:]], 0))")],
        "the gradient is not at the pulled w": [("    loss, g = gradient(w_k, version)\n", NOW)],
        "constant data": [("(w_k, version)\n", "(w_k, 0)\n")],
        "all draw the same batches": [("flags.seed * 65536 + rank", "flags.seed * 65536")],
        "the push leaves out one ps": [("zip(w, delta)])", "zip(w[1:], delta[1:])])")],
    },
    "staleness": {
        "it counts the worker's own push": [("g, version, ticket", "g, version - 1, ticket")]
    },
}
