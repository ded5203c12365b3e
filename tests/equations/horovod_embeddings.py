"""Horovod-RingAllReduce with embeddings: w <- w - lr * sum of g_k(w), of which few rows are sent.

The reference is union_of_words of test_horovod.py, with dense gradients of the same model.
"""

OPTIMIZER = "hvd.DistributedOptimizer(optimizer, sparse_as_dense=bool(flags.dense))"
LOST = """optimizer.apply_gradients(
    [(tf.IndexedSlices(d.values[1:], d.indices[1:]), v) for d, v in mean])"""
MISTAKES = {
    "ranks": {"the optimizer is not wrapped": [(OPTIMIZER, "optimizer")]},
    "step": {
        "the sum instead of the mean": [(", sparse_as", ", op=hvd.Sum, sparse_as")],
        "some rows are lost": [("optimizer.apply_gradients(mean)", LOST)],
    },
}
COMPARED_BY = "tests/examples/test_horovod.py::test_sparse_gradients_are_summed_as_dense_ones"
