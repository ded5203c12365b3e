"""Counts what an update moves against the number of different words, for a table of the page.

    python vocabulary.py

For the example's own text it draws mini-batches from the pairs that the script trains on. For
larger vocabularies it draws words by Zipf's law (the r-th word has a frequency of 1/r), thinned out
by the script's rule for frequent words. The bytes follow from the shapes. Writes vocabulary.json
and its table, vocabulary.txt.
"""

import json
import os
import pathlib

import numpy as np
from lab.pages import result_tables

MOST_WORDS, DIMENSIONS, NOISE_WORDS = 5000, 32, 64  # the script's defaults
BATCHES = 200
HERE = pathlib.Path(__file__).resolve().parent


def of_text(random):
    """(the number of different words, draw(n) -> n pairs) of the script's text."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import sparse_embeddings  # here, because only this needs TensorFlow

    data = sparse_embeddings.load_data(sparse_embeddings.DATASET, MOST_WORDS)
    pairs = np.stack([data.x_train, data.y_train], 1)
    return len(data.vocabulary), lambda n: pairs[random.randint(len(pairs), size=n)]


def of_zipf(words, random):
    """The same for so many words by Zipf's law; the two words of a pair are independent."""
    often = 1 / np.arange(1, words + 1)
    often /= often.sum()
    kept = often * np.minimum(1, (0.001 / often) ** 0.5)
    upto = np.cumsum(kept / kept.sum())
    return words, lambda n: np.searchsorted(upto[:-1], random.rand(n, 2), side="right")


def touched(draw, batch_size):
    """The rows of both tables that a mini-batch needs: two sets."""
    pairs = draw(batch_size + NOISE_WORDS)
    return set(pairs[:batch_size, 0].tolist()), set(pairs[:, 1].tolist())


def count(words, draw, batch_size):
    """Returns what a row of the table needs, as means of drawn mini-batches."""
    batches = [touched(draw, batch_size) for _ in range(BATCHES)]
    rows = [sum(map(len, batch)) for batch in batches]
    shared = [
        sum(len(a & b) for a, b in zip(*two)) / n for two, n in zip(zip(batches, batches[1:]), rows)
    ]
    # A row crosses twice, as float32, and so does its number, as int64; the Dense layer, too.
    dense = DIMENSIONS * (DIMENSIONS + 1)
    return {
        "words": words,
        "batch_size": batch_size,
        "rows": float(np.mean(rows)),
        "shared": float(np.mean(shared)),
        "bytes": float(np.mean(rows)) * (2 * 4 * DIMENSIONS + 2 * 8) + 2 * 4 * dense,
        "whole_bytes": 2 * 2 * 4 * words * DIMENSIONS,
    }


def table(counted):
    """Returns the table of the page."""
    rows = []
    for run in counted:
        moved, whole = run["bytes"] / 1e3, run["whole_bytes"] / 1e6
        row = f"{run['words']:,}", run["batch_size"], f"{run['rows']:.0f}", f"{moved:.0f}"
        more = f"{whole:,.1f}", f"{1e3 * whole / moved:,.0f}", f"{run['shared']:.0%}"
        rows.append((*row, *more))
    columns = ["different words", "pairs in a mini-batch", "rows that it touches"]
    columns += ["an update moves, KB", "with whole tables, MB", "times as much"]
    return result_tables.table([*columns, "rows also touched by the next mini-batch"], rows)


def main():
    random = np.random.RandomState(0)
    text = of_text(random)
    lines = [count(*text, 32), count(*text, 256)]
    lines += [count(*of_zipf(words, random), 256) for words in (10**4, 10**5, 10**6, 10**7)]
    (HERE / "vocabulary.json").write_text(json.dumps(lines, indent=1) + "\n")
    result_tables.leave(HERE / "vocabulary.txt", table(lines))


if __name__ == "__main__":
    main()
