"""Sparse-Embeddings: HogWild's rule; the script pushes the rows that a mini-batch needs, and the
reference all of them, most of which are zero."""

import problem
from common.references import HogWild

REFERENCE = HogWild
FLAGS = {"dimensions": 5, "noise_words": 6}
DIFFERS = 90
PROBLEM = problem.words
ONCE = "once, place = %s"
ROWS = (
    "v.scatter_update(tf.IndexedSlices("
    "tf.gather(v, change.indices) - change.values, change.indices))"
)
MISTAKES = {
    "parameters": {
        "the sparse push adds": [("v.scatter_sub(", "v.scatter_add(")],
        "a row that comes twice moves once": [
            (ONCE % "tf.unique(words)", ONCE % "words, tf.range(tf.size(words))"),
            ("v.scatter_sub(change)", ROWS),
        ],
        "the noise has no weight": [("WEIGHT * tf.reduce_mean", "tf.reduce_mean")],
    }
}
