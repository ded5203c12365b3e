"""Train-and-Evaluate: HogWild's rule, on mini-batches that come from files."""

import problem
from references import HogWild

REFERENCE = HogWild
FLAGS = {}
PROBLEM = problem.records
MISTAKES = {}
