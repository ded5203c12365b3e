"""Train-and-Evaluate: HogWild's rule, on mini-batches that come from files."""

import problem
from common.references import HogWild

REFERENCE = HogWild
FLAGS = {}
PROBLEM = problem.records
NOW = "[v.read_value() for v in w]"
MISTAKES = {
    "parameters": {"the gradient is not at the pulled w": [("gradient(w_k)", f"gradient({NOW})")]}
}
NOT_RUN = ["the gradient is not at the pulled w"]  # a run needs the files of write_records.py
