"""One-Step: n workers make the same step as one worker with all their mini-batches.

Each implementation trains five steps by its own `bash run.sh` and saves w after each. From each w
the next one is computed again by NumPy, in double precision: a step on the union of the batches.

Kind:          driver
Run:           bash run.sh
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from lab import examples
from lab.measure import arguments, example_runs, sessions, text_tables
from tfrun.apps import perceptron

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0")  # so that it starts quietly
import numpy as np
import tensorflow as tf

STEPS, BATCH_SIZE, LEARNING_RATE, SEED = 5, 32, 0.1, 0
SHAPES = [(64, 128), (128,), (128, 64), (64,), (64, 10), (10,)]  # of w, layer by layer
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # behind the names of TensorFlow 2's checkpoints
BOUND = 1e-6  # of the difference of a step from the one on the union
ONE_STEP_A_CALL = ["--steps-per-call", "1"]  # so that each step can be saved
# What it is called, what runs it, its flags, whether its rate is per worker.
IMPLEMENTATIONS: list[arguments.Case] = [
    ("Synchronous-SGD", "Synchronous-SGD/run.sh", [], False),
    ("SyncReplicasOptimizer", "From-TensorFlow-1/Synchronous-SGD-Optimizer/run.sh", [], False),
    ("towers", "Multiple-GPUs-Single-Machine/run.sh", ONE_STEP_A_CALL, False),
    ("MirroredStrategy", "Multiple-GPUs-Single-Machine/run_mirrored.sh", ONE_STEP_A_CALL, False),
    ("Collective-AllReduce", "Collective-AllReduce/run.sh", ONE_STEP_A_CALL, False),
    ("Ring-AllReduce", "Ring-AllReduce/run.sh", ONE_STEP_A_CALL, False),
    ("Horovod", "Horovod-RingAllReduce/run.sh", ONE_STEP_A_CALL, True),
]


def read_checkpoints(directory: pathlib.Path | str) -> dict[int, list[np.ndarray]]:
    """Returns {step: w after it, a list of arrays} from the checkpoints of a run."""
    paths = tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths
    return {int(path.rsplit("-", 1)[1]): parameters(path) for path in paths}


def parameters(path: str) -> list[np.ndarray]:
    """Returns the kernel and the bias of each layer in turn, from a checkpoint of any example.

    There w is one vector, or a variable for each of them; either API has names of its own.
    """
    reader = tf.train.load_checkpoint(path)
    vectors = [name for name in ("w", "w" + VALUE) if reader.has_tensor(name)]
    if vectors:
        ends = np.cumsum([np.prod(shape) for shape in SHAPES])[:-1]
        parts = np.split(reader.get_tensor(vectors[0]).astype(np.float64), ends)
        return [part.reshape(shape) for part, shape in zip(parts, SHAPES)]
    names = [f"w/{i}" + VALUE for i in range(len(SHAPES))]
    if not reader.has_tensor(names[0]):
        names = [f"w_{i}" for i in range(len(SHAPES))]
    return [reader.get_tensor(name).astype(np.float64) for name in names]


def data() -> tuple[np.ndarray, np.ndarray]:
    """The digits as all examples cut them: x_train [1437, 64] and y_train [1437]."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    return x[order][:-360].astype(np.float32) / 16, y[order][:-360]


def union(n: int, step: int, rows: int) -> np.ndarray:
    """The rows of mini-batch number `step` of each of n workers; k has every n-th row from k on."""
    shards = [np.arange(rows)[k::n] for k in range(n)]
    keys = [[SEED * 65536 + k, step] for k in range(n)]
    places = [
        tf.random.stateless_uniform([BATCH_SIZE], key, 0, len(shard), tf.int32).numpy()
        for key, shard in zip(keys, shards)
    ]
    return np.concatenate([shard[place] for shard, place in zip(shards, places)])


def compare(path: pathlib.Path | str, n: int) -> tuple[float, float]:
    """(the largest difference of w after a step from the same step on the union, the largest move)

    path: the run directory of n workers that saved w after each step, or after all but the first.
    """
    x, y = data()
    w = read_checkpoints(path)
    assert STEPS - 1 <= len(w) == STEPS - min(w) + 1, f"{path}: checkpoints {list(w)}"
    difference = 0
    move = 0
    for step in range(min(w), STEPS):
        rows = union(n, step, len(x))
        _, g = perceptron.loss_and_gradient(w[step], x[rows], y[rows])
        for before, d, after in zip(w[step], g, w[step + 1]):
            difference = max(difference, np.abs(before - LEARNING_RATE * d - after).max())
            move = max(move, np.abs(after - before).max())
    return difference, move


def saving_flags(n: int, scaled: bool = False) -> list[str]:
    """Returns the flags with which a run saves what compare() reads."""
    rate = LEARNING_RATE / n if scaled else LEARNING_RATE
    flags = f"--steps {STEPS} --checkpoint-steps 1 --batch-size {BATCH_SIZE} --seed {SEED}"
    return [*flags.split(), "--learning-rate", str(rate)]


def measure(n: int, launcher: str, flags: Sequence[str], scaled: bool) -> tuple[float, float]:
    """Trains n workers by one implementation; returns what compare() does."""
    if "Multiple" in launcher:
        flags = [*flags, "--devices", str(n)]
    with tempfile.TemporaryDirectory() as directory:
        command = ["bash", examples.ROOT / launcher, *flags, *saving_flags(n, scaled)]
        example_runs.run(command, directory, WORKERS=str(n), PS="1")
        return compare(directory, n)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--workers", [2, 3], "of each", nargs="+")
    flags, chosen = parser.only(IMPLEMENTATIONS)
    tf.config.set_visible_devices([], "GPU")  # their memory is for the examples
    workers = dict.fromkeys(flags.workers)  # each number once
    console = text_tables.table_console(100)
    cases: list[arguments.Case] = [
        ((name, n), n, *settings) for name, *settings in chosen for n in workers
    ]
    results: dict[Any, Any] = sessions.measure_round_robin(
        console, cases, 1, lambda case, _: measure(*case[1:])
    )
    columns = "implementation", "workers", "apart from the union", "moved in a step"
    table = text_tables.plain_table(*columns)
    failures = 0
    for (name, n), [(difference, move)] in results.items():
        table.add_row(name, str(n), f"{difference:.1e}", f"{move:.1e}")
        if difference > BOUND or move < 1000 * BOUND:
            failures += 1
    console.print(table)
    setting = text_tables.setting(f"TensorFlow {tf.__version__}")
    console.print(f"the largest of all parameters and steps; {setting}")
    text_tables.write_table(console, example_runs.output_directory("One-Step"), "table.txt")
    if failures:
        words = f"are further than {BOUND:g} apart, or have hardly moved"
        sys.exit(f"{failures} of {len(results)} {words}")


if __name__ == "__main__":
    main()
