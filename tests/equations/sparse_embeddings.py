"""Sparse-Embeddings: HogWild's rule, with a rate of its own for the table e; the script pulls and
pushes the rows that a mini-batch needs, and the reference all of them, most of which are zero."""

import problem
from tfrun.apps.references import HogWild


class Rows(HogWild):
    """w is [kernel, bias, e]. A mini-batch has the number of updates after the last push."""

    def __init__(self, *arguments, **hyperparameters):
        super().__init__(*arguments, **hyperparameters)
        self.last = dict.fromkeys(range(self.n), 0)

    def update(self, k, version, w_k):
        loss, (*dense, rows) = self.gradient(k, self.last[k], w_k)
        self.last[k] = self.step + 1
        rates = [self.lr, self.lr, self.hyperparameters["row_rate"]]
        self.w = [v - rate * g for v, rate, g in zip(self.w, rates, [*dense, rows])]
        return loss


REFERENCE = Rows
FLAGS = {"dimensions": 5, "noise_words": 6, "words": problem.WORDS, "row_rate": 0.7}
DIFFERS = 110
PROBLEM = "words"
PULLS = "pull_rows"
ONCE = "return tf.unique(ids)"
HERE = "return ids // self.ps"
ROWS = "e.table.scatter_sub(tf.IndexedSlices(change, here))"
MISTAKES = {
    "parameters": {
        "the sparse push adds": [("e.table.scatter_sub(", "e.table.scatter_add(")],
        "a row that comes twice moves once": [
            (ONCE, "return ids, tf.range(tf.size(ids))"),
            (
                ROWS,
                "e.table.scatter_update(tf.IndexedSlices(tf.gather(e.table, here) - change, here))",
            ),
        ],
        "the noise has no weight": [("WEIGHT * tf.reduce_mean", "tf.reduce_mean")],
        "a row of the other ps": [(HERE, "return (ids + 1) % self.rows // self.ps")],
        "the rows of the ps come one after the other": [
            ("tf.dynamic_stitch(places, [", "(lambda _, rows: tf.concat(rows, 0))(places, [")
        ],
        "the rate of w for the rows": [("flags.row_rate *", "flags.learning_rate *")],
        "the rows that one ps has do not move": [
            (ROWS, "step.is_first and " + ROWS),
        ],
    },
    "losses": {
        "the rows of another mini-batch": [("tf.gather(e, places)", "tf.gather(e, places[::-1])")],
    },
}
