"""Ring-AllReduce: w <- w - lr * (1/N) * sum of g_k(w); test_ring.py has the sum's own mistakes."""

from tfrun.apps.references import Synchronous

REFERENCE = Synchronous
FLAGS = {}
MISTAKES = {
    "parameters": {"the sum instead of the mean": [(" * total / buckets.ring.n", " * total")]},
    "ranks": {"nothing goes around": [("        all_reduce(part, self.ring)\n", "")]},
    "losses": {
        "all ranks have the same shard": [("k, n = ring.rank, ring.n", "k, n = 0, ring.n")],
        "constant data": [("gradient(w_k, version, ", "gradient(w_k, 0, ")],
    },
}
