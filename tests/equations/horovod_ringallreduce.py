"""Horovod-RingAllReduce: w <- w - lr * sum of g_k(w): the rate grows with the n ranks.

The reference is the step on the union of the ranks' mini-batches, union_of_digits of
test_horovod.py. "start", "ranks" and "checkpoints" are what the ranks must agree on.
"""

MISTAKES = {
    "start": {
        "no broadcast": [("session.run(hvd.broadcast_global_variables(0))", "pass")],
        "the broadcast is not rank 0's": [("variables(0)", "variables(1)")],
    },
    "checkpoints": {"every rank writes checkpoints": [("if metrics.is_chief:", "if True:")]},
    "ranks": {"the optimizer is not wrapped": [("hvd.DistributedOptimizer(", "(")]},
    "step": {
        "the sum instead of the mean": [("r(optimizer)", "r(optimizer, op=hvd.Sum)")],
        "the rate is not scaled": [(" * hvd.size()", "")],
        "one mini-batch for all steps": [("(w, ticket)", "(w, 0 * ticket)")],
    },
    "losses": {"all ranks have the same shard": [("= hvd.rank(), hvd.size()", "= 0, 1")]},
}
COMPARED_BY = "tests/examples/test_horovod.py::test_two_ranks_are_one_on_the_union_of_their_batches"
