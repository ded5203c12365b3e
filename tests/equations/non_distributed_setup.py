"""Non-Distributed-Setup: w <- w - lr * g(w), in a single process."""

from common.references import HogWild

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {}
WORKERS = 1
MISTAKES = {}
