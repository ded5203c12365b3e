"""Multiple-GPUs-Single-Machine by MirroredStrategy: w <- w - lr * (1/n) * sum of g_k(w).

The reference is the step on the union of the mini-batches, by compare() of One-Step.
"""

REDUCED = 'all_reduce("%s", g'
IN_REPLICA = "tf.distribute.get_replica_context()." + REDUCED % "MEAN"
MISTAKES = {
    "union": {
        "no all-reduce": [(IN_REPLICA + ")", "g")],
        "the sum": [(REDUCED % "MEAN", REDUCED % "SUM")],
    }
}
COMPARED_BY = (
    "tests/equations/test_replicas.py::test_replicas_are_one_worker_on_the_union_of_their_batches"
)
