"""Non-Distributed-Setup: the learning problem of all examples, in one process.

    w <- w - lr * g(w)        g: the gradient on a new mini-batch

Kind:          single process
Paper:         Robbins, Monro 1951, A Stochastic Approximation Method
Differs from:  nothing; this is the first
Simplified:    a small perceptron on small images, so that a run takes seconds
Run:           bash run.sh
"""

import argparse
import collections
import fcntl
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf


def update(w, step, gradient, flags):
    """Makes one update. Returns the loss, and w.

    w: a variable, the vector of all parameters. step: the number of updates before this one.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, a vector like w.
    """
    # SGD: a gradient at w, and a step against it.
    loss, g = gradient(w, step)
    return loss, w.assign_sub(flags.learning_rate * g)


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults
OPTIMIZER = "mean"  # where tfrun puts an optimizer of yours: into the step of w
MORE_FLAGS = []  # (name, default, help) of the flags that only this algorithm has


# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "digits", "digits, mnist, fashion_mnist, or an .npz file"


def load_data(name):
    """Returns inputs [rows, features] and labels [rows] from 0, for training and for the test."""
    if name == "digits":
        from sklearn.datasets import load_digits  # here, for only a task that trains needs it

        x, y = load_digits(return_X_y=True)
        order = np.random.RandomState(0).permutation(len(x))
        x, y = x[order] / 16, y[order]
        data = x[:-360], y[:-360], x[-360:], y[-360:]
    elif name in ("mnist", "fashion_mnist"):
        (x, y), (x_test, y_test) = getattr(keras.datasets, name).load_data()
        data = x.reshape(len(x), -1) / 255, y, x_test.reshape(len(x_test), -1) / 255, y_test
    else:
        data = [np.load(name)[part] for part in Data._fields]
    return Data(*[part.astype("float32" if part.dtype.kind == "f" else "int32") for part in data])


def make_model(data):
    """Makes a Keras network. It is not compiled: the optimizer is the algorithm above."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(np.bincount(data.y_train.flat).size),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: problem


def main():
    """Trains the model in this process."""
    flags = parse_flags()
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    train(make_model(data), data, update, flags)


# From here to the end: the same text in every example without a parameter server, unless marked. --


# region: flags
def parse_flags():
    """Returns the flags, each of the type of its default. Exits with 2 and a line if one is bad."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, default, text in [
        ("steps", STEPS, "updates of w, all workers together"),
        ("batch-size", BATCH_SIZE, "examples in a mini-batch"),
        ("learning-rate", LEARNING_RATE, "lr in the update rule"),
        ("seed", 0, "seed of the initial parameters and the batches"),
        ("dataset", DATASET, DATASETS),
        ("checkpoint-steps", 500, "updates between two checkpoints, each of which is tested"),
        *MORE_FLAGS,
    ]:
        if default is not None:  # None: this algorithm has no such flag
            parser.add_argument(
                f"--{name}", type=type(default), default=default, help=f"{text} (%(default)s)"
            )
    flags = parser.parse_args()
    for name, value in vars(flags).items():
        default = parser.get_default(name)
        if not isinstance(value, str) and value != default and not 0 < value < 2**31:
            least = "above" if default else "at least"
            parser.error(f"argument --{name.replace('_', '-')}: must be {least} 0, below 2^31")
    return flags


# region: network
def unpack(model, w):
    """Returns the trainable variables of the model, in their shapes, from the vector w."""
    shapes = [v.shape for v in model.trainable_variables]
    parts = tf.split(w, [int(np.prod(shape)) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]


def evaluation(model, x, y, ps=None):
    """Returns evaluate(w) -> [loss, each of METRICS], means over the rows of x, y; ps: unused."""

    @tf.function(autograph=False)
    def evaluate(w):
        parameters = unpack(model, tf.debugging.check_numerics(w, "w"))
        state = model.non_trainable_variables
        outputs, _ = model.stateless_call(parameters, state, x, training=False)
        functions = [loss] + [function for _, function in METRICS.values()]
        return [tf.reduce_mean(function(y, outputs)) for function in functions]

    return evaluate


# region: batches
def gradients(model, state, x, y, flags, rank):
    """Returns gradient(w, number) -> (loss, g), means over mini-batch `number` of the rows x, y."""

    def gradient(w, number):
        # Its rows depend on nothing but (seed, rank, number), and can be drawn again elsewhere.
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, len(x), "int32")
        with tf.GradientTape() as tape:
            tape.watch(w)
            outputs, after, penalties = model.stateless_call(
                unpack(model, w), state, tf.gather(x, rows), training=True, return_losses=True
            )
            mean = tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])
        for v, value in zip(state, after):
            v.assign(value)
        return mean, tape.gradient(mean, w)

    return gradient


# region: log -- of this example only
# A line of metrics-<task>.csv is a push or a test. A push has its number, global_step, the loss of
# its last mini-batch, the bytes pulled and pushed, and the wait_seconds from gradient to arrival. A
# test has the times of its end and begin, global_step, and TEST. Times are seconds since 1970.
PUSH = "push_time,pull_time,global_step,local_steps,examples,loss,staleness,bytes,wait_seconds"
TEST = {"test_loss": "min"} | {f"test_{name}": better for name, (better, _) in METRICS.items()}


class Metrics:
    """Writes into OUTPUT_DIR what a run leaves there: flags.json and metrics-worker-0.csv."""

    def __init__(self, model, flags):
        """Raises ValueError for bad METRICS, a bad OUTPUT_DIR, or another model's checkpoint."""
        for mode, metric in METRICS.values():
            # Not an object of Keras with update_state(): it would average over the tests before.
            if mode not in ("max", "min") or hasattr(metric, "update_state"):
                raise ValueError(f'METRICS needs ("max" or "min", function), not {(mode, metric)}')
        directory = os.path.abspath(os.getenv("OUTPUT_DIR") or "output")
        self.directory, self.flags, self.print_time = directory, flags, 0
        if set("*?[\\") & set(directory):  # patterns: it would find no checkpoint
            raise ValueError(f"OUTPUT_DIR must have none of the signs *?[\\: {directory}")
        os.makedirs(directory, exist_ok=True)
        self.lock = open(f"{directory}/.chief", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another run has it
            raise
        except OSError:  # the file system has no locks
            pass
        facts = {
            "example": (__doc__ or os.path.basename(__file__)).split(":")[0],
            "script": __file__,
            "tasks": ["worker-0"],
            "ps": 0,
            "metrics": TEST,
            "variables": [[v.path, list(v.shape)] for v in model.trainable_variables],
            "arguments": vars(flags),
            "versions": {"tensorflow": tf.__version__},
        }
        if tf.train.latest_checkpoint(directory):
            with open(f"{directory}/flags.json") as file:
                variables = json.load(file).get("variables")
            if variables != facts["variables"]:
                raise ValueError(f"{directory} has a checkpoint of another model")
        with open(f"{directory}/flags.json.new", "w") as file:
            json.dump(facts, file, indent=2)
        # At once, so that nobody reads half of it.
        os.replace(f"{directory}/flags.json.new", f"{directory}/flags.json")
        # Line by line, so that even kill -9 loses none; it costs microseconds.
        self.file = open(f"{directory}/metrics-worker-0.csv", "a", 1)
        # The line before a restart may have been cut short.
        print("# restart" if self.file.tell() else f"{PUSH},{','.join(TEST)}", file=self.file)

    def push(self, push_time, pull_time, step, loss):
        """Writes an update's columns PUSH. Raises FloatingPointError if the loss is not finite."""
        row = f"{push_time:.6f},{pull_time:.6f},{step},1,{self.flags.batch_size},{loss:.16g},0,0,0"
        print(row + "," * len(TEST), file=self.file)
        if not np.isfinite(loss):
            raise FloatingPointError(f"loss is {loss} at update {step}")
        if push_time > self.print_time + 1:
            self.print_time = push_time
            print(
                f"update {step} of {self.flags.steps}   loss {loss:.4g}   staleness 0", flush=True
            )

    def test(self, began, step, *means):
        """Writes and prints the means of a test of w at `step`, which began at the time `began`."""
        print(f"{time.time():.6f},{began:.6f},{step},,,,,,", *means, sep=",", file=self.file)
        words = [f"  {name} {mean:.4g}" for name, mean in zip(TEST, means)]
        print(f"update {step} of {self.flags.steps}", *words, flush=True)


# region: one_process -- of this example only
MORE_FLAGS += [("updates-per-call", 10, "updates in one call; take 1 where one takes seconds")]


def train(model, data, update, flags):
    """Updates w until all updates are made. At each checkpoint and at the end it tests w."""
    metrics = Metrics(model, flags)
    x, y, x_test, y_test = [tf.constant(np.asarray_chkfinite(part)) for part in data]
    gradient = gradients(model, model.non_trainable_variables, x, y, flags, 0)
    evaluate = evaluation(model, x_test, y_test)
    first = np.concatenate([np.ravel(v) for v in model.trainable_variables])
    w, step = tf.Variable(np.asarray_chkfinite(first)), tf.Variable(0, dtype=tf.int64)
    state = [v.value for v in model.non_trainable_variables]  # what Keras keeps beside w
    checkpoint = tf.train.Checkpoint(w=w, step=step, state=state)
    manager = tf.train.CheckpointManager(
        checkpoint, metrics.directory, 5, checkpoint_name="model.ckpt"
    )
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_consumed()

    def updates(begin, end):
        def one(number, rows):
            loss, moved = update(w, number, gradient, flags)
            with tf.control_dependencies([moved]):
                row = tf.stack([tf.timestamp(), tf.cast(loss, "float64")])
            return number + 1, rows.write(tf.cast(number - begin, "int32"), row)

        rows = tf.TensorArray("float64", 0, dynamic_size=True)
        number, rows = tf.while_loop(
            lambda number, _: number < end, one, [begin, rows], parallel_iterations=1
        )
        step.assign(number)
        return rows.stack()

    count = tf.TensorSpec([], tf.int64)
    updates = tf.function(updates, autograph=False).get_concrete_function(count, count)
    number, every = int(step), flags.checkpoint_steps
    while number < flags.steps:
        end = min(number + flags.updates_per_call, flags.steps, number - number % every + every)
        pull_time = time.time()
        for push_time, loss in updates(np.int64(number), np.int64(end)).numpy():
            number += 1
            metrics.push(push_time, pull_time, number, loss)
            pull_time = push_time
        if number % every == 0 or number == flags.steps:
            metrics.test(time.time(), number, *map(float, evaluate(w)))
            manager.save(number)
    print(f"done, the output is in {metrics.directory}", flush=True)


if __name__ == "__main__":
    main()
