"""A tf.data.Dataset of one's own, in the place of arrays.

load_data(name) returns two datasets, for training and for the test. Their elements are single
examples, as Keras takes them: (x, y), or (x, y, sample_weight). The test is read into arrays. For
training, worker k of n takes dataset.shard(n, k), shuffles it in a buffer, and reads it in
mini-batches, epoch after epoch.

A worker notes once a second how far it is. After a restart it goes on from the last note that is
not later than the updates which w has: what it has read since then comes a second time, and nothing
is left out.
"""

import atexit
import itertools
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

BUFFER = 1000  # examples among which the next one is drawn, unless SHUFFLE is another number
FIRST = 64  # examples that make_model() gets, at least
NOTE_SECONDS = 1.0


def workers_and_rank(rank: int, script: dict[str, Any], flags: Any) -> tuple[int, int]:
    """Returns (n, k), of which a worker takes dataset.shard(n, k).

    A worker that joins a live run, whose rank is not below the number of workers, takes all.
    """
    if "find_devices" in script:  # towers in one process
        return len(script["find_devices"](flags)), rank
    n = number_of_workers()
    return (n, rank) if rank < n else (1, 0)


def number_of_workers() -> int:
    """Returns the number of workers that TF_CONFIG or Horovod names, 1 without either."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    workers = sum(len(cluster.get(job, [])) for job in ("chief", "worker"))
    return max(1, workers, int(os.environ.get("HOROVOD_SIZE", 1)))


def refuse_batches(dataset: tf.data.Dataset, where: str) -> None:
    """Raises ValueError unless the elements are (x, y) or (x, y, weight) of known shapes."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise ValueError(f"{where}: an element must be (x, y) or (x, y, sample_weight)")
    for part in keras.tree.flatten(spec):
        if not isinstance(part, tf.TensorSpec) or part.shape.num_elements() is None:
            raise ValueError(
                f"{where}: elements must be single examples whose shapes are known, not {part}; "
                "leave out batch(), and pad what has several lengths"
            )


def stacked(elements: Iterator[Any]) -> tuple[Any, ...] | None:
    """Returns elements as (x, y) or (x, y, weight) of arrays with a row for each; None of none."""
    rows = list(elements)
    if not rows:
        return None
    return keras.tree.map_structure(lambda *parts: np.stack(parts), *rows)


def arrays_of(train: tf.data.Dataset, test: tf.data.Dataset) -> list[Any]:
    """Returns what load_data() would return of arrays: the first examples, and the whole test.

    A weight of each example becomes a second target.
    """
    for dataset, where in (train, "the training dataset"), (test, "the test dataset"):
        refuse_batches(dataset, where)
    if test.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the test dataset has no end: use take()")
    first = max(FIRST, 2 * number_of_workers())
    parts = []
    for dataset, where in (train.take(first), "training"), (test, "test"):
        rows = stacked(dataset.as_numpy_iterator())
        if rows is None:
            raise ValueError(f"the {where} dataset has no element")
        x, y, *weight = rows
        parts.extend([x, {"y": y, "weight": weight[0]} if weight else y])
    return parts


class Position:
    """Knows how far a worker has read: the epoch, and how many examples of it."""

    def __init__(self, path: pathlib.Path, n: int = 1) -> None:
        """path: of a file with lines of the number of a mini-batch, epoch, examples and n.

        n: into how many shards the dataset is divided.
        """
        self.path, self.n = path, n
        self.first_number = 0
        self.is_known = threading.Event()
        self.noted = 0.0

    def begin(self, number: np.ndarray) -> np.ndarray:
        """Tells the number of a mini-batch that comes next; the first one decides where to read."""
        if not self.is_known.is_set():
            self.first_number = int(number)
            self.is_known.set()
        return number

    def epochs(self) -> Iterator[tuple[int, int]]:
        """Yields (epoch, examples of it to skip), from where the notes say."""
        self.is_known.wait()
        epoch, skip = self.last_note(self.first_number)
        yield epoch, skip
        for later in itertools.count(epoch + 1):
            yield later, 0

    def last_note(self, number: int) -> tuple[int, int]:
        """Returns (epoch, examples read) of the last note that is not later than a number.

        If that was of other shards, its epoch begins again.
        """
        result = 0, 0
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                fields = line.split(",")
                if len(fields) == 5 and int(fields[0]) <= number:  # the last may be cut short
                    epoch, read, n = map(int, fields[1:4])
                    result = epoch, read if n == self.n else 0
        return result

    def note(self, number: np.ndarray, epoch: np.ndarray, read: np.ndarray) -> np.ndarray:
        """Writes a note, once a second: before mini-batch `number` so many examples were read."""
        if time.monotonic() > self.noted + NOTE_SECONDS:
            self.noted = time.monotonic()
            with open(self.path, "a") as file:
                file.write(f"{number},{epoch},{read},{self.n},\n")
        return number


def mini_batches(
    dataset: tf.data.Dataset, position: Position, n: int, k: int, buffer: int, seed: int, size: int
) -> tf.data.Dataset:
    """Returns mini-batches of worker k of n: ((epoch, examples read before), element) of each.

    The order depends on the seed and the epoch alone, so a worker that begins again reads the same.
    """
    shard = dataset.shard(n, k)

    def examples(epoch: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        # Of this function alone: if it were 0, shuffle() would ask in Python whether both are 0.
        tf.random.set_seed(1)
        order = shard.shuffle(buffer, seed=seed + epoch) if buffer > 1 else shard
        numbered = order.enumerate().skip(skip)
        return numbered.map(lambda i, element: ((epoch, i), element))

    pair = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)
    epochs = tf.data.Dataset.from_generator(position.epochs, output_signature=pair)
    rows = epochs.flat_map(examples).batch(size, drop_remainder=True)
    return rows.prefetch(tf.data.AUTOTUNE)


def gradients_of(
    script: dict[str, Any],
    dataset: tf.data.Dataset,
    pack: Callable[..., Any],
    shuffle: int | bool,
    model: Any,
    state: list[Any],
    flags: Any,
    rank: int,
) -> Callable[..., Any]:
    """Returns gradient(w, number) -> (loss, g), means over the next mini-batch of the dataset.

    pack(element): the arrays x, y of a mini-batch as the script takes them. w: a vector, or a list.
    """
    n, k = workers_and_rank(rank, script, flags)
    directory = pathlib.Path(os.environ.get("OUTPUT_DIR") or "output")
    position = Position(directory / f"position-{rank}.csv", n)
    buffer = BUFFER if shuffle is True else int(shuffle)
    seed = flags.seed * 65536 + rank
    rows = mini_batches(dataset, position, n, k, buffer, seed << 20, flags.batch_size)
    iterator = iter(rows)
    # Before Python ends: a generator of the user's could not be closed any more, and would wait.
    atexit.register(tf.raw_ops.DestroyResourceOp, resource=iterator._iterator_resource)

    def gradient(w: Any, number: tf.Tensor, *_: Any) -> tuple[Any, ...]:
        began = tf.numpy_function(position.begin, [number], tf.int64)
        with tf.control_dependencies([began]):
            (epoch, i), element = next(iterator)
        noted = tf.numpy_function(position.note, [number, epoch[0], i[0]], tf.int64)
        x, y = pack(element)
        with tf.control_dependencies([noted]), tf.GradientTape() as tape:
            tape.watch(w)
            values = w if isinstance(w, list) else script["unpack"](model, w)
            outputs, after, penalties = model.stateless_call(
                values, state, x, training=True, return_losses=True
            )
            mean = tf.add_n([tf.reduce_mean(script["loss"](y, outputs)), *penalties])
        for v, value in zip(state, after):
            v.assign(value)
        return mean, tape.gradient(mean, w)

    return gradient
