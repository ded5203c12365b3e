"""Horovod-RingAllReduce with embeddings: w <- w - lr * sum of g_k(w), of which few rows are sent.

The reference is union_of_words of test_horovod.py, with dense gradients of the same model.
"""

GATHERED = "tf.IndexedSlices(rate * d.values, d.indices)"
LOST = "tf.IndexedSlices(rate * d.values[1:], d.indices[1:])"
MISTAKES = {
    "ranks": {"the gradients are not averaged": [("hvd.allreduce(d) for d in g", "d for d in g")]},
    "step": {
        "the sum instead of the mean": [("allreduce(d)", "allreduce(d, op=hvd.Sum)")],
        "some rows are lost": [(GATHERED, LOST)],
    },
}
COMPARED_BY = "tests/examples/test_horovod.py::test_sparse_gradients_are_summed_as_dense_ones"
