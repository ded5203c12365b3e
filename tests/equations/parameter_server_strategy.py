"""Parameter-Server-Strategy: w <- w - lr * g(w), of one worker; its loss is that of the copies."""

from tfrun.apps.references import HogWild, Synchronous

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {}
LOOP = "        for _ in range(count):  # unrolled"
ONE_PULL = "        flags.copies = [v.read_value() for v in vectors]\n" + LOOP
MISTAKES = {
    "parameters": {"twice the rate": [("rate * d for", "rate * 2 * d for")]},
    "losses": {
        "the gradient elsewhere": [("gradient(w_k, ", "gradient([1.01 * v for v in w_k], ")],
        "one pull for all": [
            ("w_k = [v.read_value() for v in w]", "w_k = flags.copies"),
            (LOOP, ONE_PULL),
        ],
        "each mini-batch twice": [("+ k, number]", "+ k, number // 2]")],
    },
    "staleness": {
        "a version before the last": [("g, version=version", "g, version=version - 1")],
    },
}
COMPARED_BY = "tests/examples/test_coordinator.py::test_the_update_is_the_equation"
APP = {"reference": Synchronous, "workers": 1}
