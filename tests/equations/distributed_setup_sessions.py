"""Distributed-Setup-Sessions: w <- w - lr * g(w), by a single worker."""

from tfrun.apps.references import HogWild

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {}
WORKERS = 1
MISTAKES = {}
