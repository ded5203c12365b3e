"""Horovod-RingAllReduce: w <- w - lr * sum of g_k(w): the rate grows with the n ranks.

The reference is the step on the union of the ranks' mini-batches, union_of_digits of
test_horovod.py. "start", "ranks" and "checkpoints" are what the ranks must agree on.
"""

from tfrun.apps.references import Synchronous


class Horovod(Synchronous):
    """The ranks, by the equation."""

    def move(self, g, those):
        self.w = [v - self.lr * sum(d) for v, d in zip(self.w, zip(*g))]


MISTAKES = {
    "start": {
        "no broadcast": [("hvd.broadcast_variables(tf.nest.flatten(saved), root_rank=0)", "pass")],
        "the broadcast is not rank 0's": [("root_rank=0", "root_rank=1")],
    },
    "checkpoints": {
        "every rank writes checkpoints": [
            ("    if metrics.is_chief:\n        test_and_save()", "    test_and_save()")
        ]
    },
    "ranks": {"the gradients are not averaged": [("hvd.allreduce(g)", "g")]},
    "step": {
        "the sum instead of the mean": [("allreduce(g)", "allreduce(g, op=hvd.Sum)")],
        "the rate is not scaled": [(" * hvd.size()\n    return", "\n    return")],
        "one mini-batch for all steps": [("), version)\n", "), 0 * version)\n")],
    },
    "losses": {"all ranks have the same shard": [("= hvd.rank(), hvd.size()", "= 0, 1")]},
}
COMPARED_BY = "tests/examples/test_horovod.py::test_two_ranks_are_one_on_the_union_of_their_batches"
APP = {
    "reference": Horovod,
    "mistakes": ["the sum instead of the mean", "the rate is not scaled"],
}
