"""Ring-AllReduce: w <- w - lr * (1/N) * sum of g_k(w); test_ring.py has the sum's own mistakes."""

from lab.references import Synchronous

REFERENCE = Synchronous
FLAGS = {}
MISTAKES = {
    "parameters": {"the sum instead of the mean": [(" * total / buckets.ring.n", " * total")]},
    "ranks": {
        "no broadcast": [("    broadcast([step, w, *state], ring)\n", "")],
        "nothing goes around": [("        all_reduce(part, self.ring)\n", "")],
    },
    "union": {"all ranks have the same shard": [("k, n = ring.rank, ring.n", "k, n = 0, ring.n")]},
    "losses": {"constant data": [("gradient(w_k, version, ", "gradient(w_k, 0, ")]},
}
COMPARED_BY = (
    "tests/equations/test_ring.py::test_training_is_one_worker_on_the_union_of_the_batches"
)
