"""Collective-AllReduce: w <- w - lr * (1/n) * sum of g_k(w) over n workers.

The reference is the step on the union of the mini-batches, by compare() of One-Step.
"""

from tfrun.apps.references import Synchronous

REDUCED = 'all_reduce("%s", g'
IN_REPLICA = "tf.distribute.get_replica_context()." + REDUCED % "MEAN"
MISTAKES = {
    "union": {
        "one shard for all": [
            (f"data.{name}_train[k::n]", f"data.{name}_train[0::n]") for name in "xy"
        ],
        "the sum": [(REDUCED % "MEAN", REDUCED % "SUM")],
        "no all-reduce": [(IN_REPLICA + ", options(flags))", "g")],
        "one batch for all": [("flags.seed * 65536 + rank", "flags.seed * 65536")],
        "the rate of each counts for all": [
            ("v.assign_sub(flags.learning_rate * d)", "v.assign_sub(2 * flags.learning_rate * d)")
        ],
    }
}
COMPARED_BY = (
    "tests/equations/test_replicas.py::test_replicas_are_one_worker_on_the_union_of_their_batches"
)
APP = {"reference": Synchronous}
