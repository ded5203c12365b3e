"""Synchronous-SGD with SyncReplicasOptimizer: the same step as synchronous_sgd.py.

A thread of the chief's own session moves w, so only whole runs can be compared. The reference is
compare() of One-Step, a step on the union of the mini-batches.
"""

MISTAKES = {}
COMPARED_BY = "tests/examples/test_examples.py::test_a_driver"  # of One-Step
