"""Horovod-RingAllReduce: equal processes, called ranks, average their gradients with Horovod.

    each rank    g_k(w) on its own mini-batch; w is the same on all ranks
    all-reduce   mean = (g_1 + ... + g_n) / n, by a ring
    each rank    w <- w - n * lr * mean, on its own copy of w; or another optimizer's step

Kind:          all-reduce
Paper:         Sergeev, Del Balso 2018, Horovod (arXiv 1802.05799)
Differs from:  Non-Distributed-Setup: six changes, with which it runs on n ranks
Simplified:    the learning rate is n * lr from the first step on, without a warm-up
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
import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row


def algorithm(w, step, gradient, optimizer):
    """Makes one step of one rank; all ranks make it together.

    w: all parameters, as one vector, this rank's own copy. step: its counter of steps.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, a vector like w.
    """
    version = step.read_value()
    loss, g = gradient(w.read_value(), version)

    # Horovod: 1. average the gradients of all ranks.
    mean = hvd.allreduce(g)

    optimizer.apply([mean], [w])
    step.assign_add(1)
    return Update([], loss, [g], version=version, ticket=version, push=mean)


def make_optimizer(flags):
    """Makes an optimizer of Keras, as a program for one process would; but for the rate."""
    # Horovod: 2. scale the rate: n ranks together have a mini-batch n times as large.
    rate = flags.learning_rate * hvd.size()
    return keras.optimizers.get({"class_name": flags.optimizer, "config": {"learning_rate": rate}})


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.05  # the defaults; n ranks step with n * lr
OPTIMIZER = "whole"  # tfrun takes an optimizer of yours instead of make_optimizer()
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("optimizer", "SGD", "the name of an optimizer of Keras, such as Adagrad"),
    ("steps-per-call", 10, "steps in one call of the graph"),
]


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


def build(model, data, flags):
    """Makes what a checkpoint holds, and functions that make steps and test w."""
    k, n = hvd.rank(), hvd.size()
    step = tf.Variable(0, dtype=tf.int64)
    w = tf.Variable(tf.concat([tf.reshape(v.numpy(), [-1]) for v in model.trainable_variables], 0))
    state = [tf.Variable(v, name=v.name) for v in model.non_trainable_variables]
    optimizer = make_optimizer(flags)
    optimizer.build([w])
    rows = data.x_train[k::n], data.y_train[k::n], *data[2:]  # rank k has every n-th row
    x, y, x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, rows))
    gradient = gradients(model, state, x, y, flags, k)

    def one_step():
        row = push_row(algorithm(w, step, gradient, optimizer), step, flags)
        # In a ring each byte of the gradient is sent 2 - 2 / n times.
        return tf.stack(row._replace(bytes=(2 - 2 / n) * row.bytes))

    @tf.function
    def test():
        return evaluation(model, w, state, x_test, y_test)

    slots = [v.value for v in optimizer.variables]  # what it keeps for each number of w
    return {"step": step, "w": w, "state": state, "optimizer": slots}, many(one_step), test


# region: ranks
def take_gpu():
    """Takes a GPU of its own, where there are some."""
    # Horovod: 4. of this machine's GPUs, rank k of this machine takes number k.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def metrics_of_rank(variables, flags):
    """Opens this rank's metrics; rank 0 is the chief."""
    ranks = [("worker", rank) for rank in range(hvd.size())]
    return Metrics(ranks[hvd.rank()], ranks, variables, flags)


def many(one_step):
    """Returns a function of a count, which makes so many steps: their rows, [count, 9]."""

    @tf.function
    def make_steps(count):
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            rows = rows.write(i, one_step())
        return rows.stack()

    return make_steps


def begin(saved, metrics):
    """Gives all ranks the same values, and returns what writes checkpoints.

    saved: {name: a variable or a list of them}, all that makes a step.
    """
    checkpoint = tf.train.Checkpoint(**saved)
    manager = tf.train.CheckpointManager(
        checkpoint, metrics.directory, 5, checkpoint_name="model.ckpt"
    )
    # Horovod: 5. rank 0 alone reads checkpoints, and writes them.
    if metrics.is_chief and manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    # Horovod: 6. all begin at rank 0's variables, be they its random start or its checkpoint.
    hvd.broadcast_variables(tf.nest.flatten(saved), root_rank=0)
    metrics.step = int(saved["step"])
    return manager


# endregion: ranks


def main():
    """Trains as one of the ranks that horovodrun starts."""
    flags = parse_flags()
    # Horovod: 3. connect to the other ranks; horovodrun has set each rank's number and address.
    hvd.init()
    take_gpu()
    keras.utils.set_random_seed(flags.seed)  # what load_data() draws is the same on all ranks
    data = load_data(flags.dataset)
    # Each rank draws its own first w, as it would without a seed; step 6 replaces it.
    keras.utils.set_random_seed(flags.seed + hvd.rank())
    model = make_model(data)
    metrics = metrics_of_rank(model.trainable_variables, flags)
    metrics.describe(data)
    saved, make_steps, test = build(model, data, flags)
    manager = begin(saved, metrics)
    separate_masks(saved["state"], hvd.rank())
    train(make_steps, test, metrics, manager, flags)


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


# region: flat
def unpack(model, w):
    """Returns the trainable variables of the model, in their shapes, from the vector w."""
    shapes = [v.shape for v in model.trainable_variables]
    parts = tf.split(w, [int(np.prod(shape)) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]


def separate_masks(state, rank):
    """Moves the seeds of Dropout by the rank, so that no two workers drop the same units."""
    for v in state:
        if v.name.startswith("seed_generator_state"):
            v.assign_add(tf.cast(tf.fill(v.shape, rank), v.dtype))


def gradients(model, state, x, y, flags, rank):
    """Returns gradient(w, number) -> (loss, g), means over mini-batch `number` of the rows x, y.

    w and g are vectors. The rows of a mini-batch depend on (seed, rank, number) and on nothing
    else, so that it can be drawn again elsewhere. watch(i, v) returns v, variable i of the model.
    """

    def gradient(w, number, watch=lambda i, v: v):
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, x.shape[0], tf.int32)
        values = [watch(i, v) for i, v in enumerate(unpack(model, w))]
        outputs, after, penalties = model.stateless_call(
            values, state, tf.gather(x, rows), training=True, return_losses=True
        )
        for v, new in zip(state, after):
            v.assign(new)
        mean = tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])
        return mean, tf.gradients(mean, w)[0]

    return gradient


def evaluation(model, w, state, x, y):
    """Returns [loss, each of METRICS] at the vector w, means over the rows of x, y."""
    outputs, _ = model.stateless_call(
        unpack(model, tf.debugging.check_numerics(w, "w")), state, x.read_value(), training=False
    )
    functions = [loss] + [function for _, function in METRICS.values()]
    return [tf.reduce_mean(function(y.read_value(), outputs)) for function in functions]


# region: row
def push_row(update, step, flags):
    """Returns a Push whose columns are scalars, tensors of float64.

    An update has lists of the vectors that were pulled and pushed. Its version and ticket count the
    updates at the pull and before the push; its push is the op that pushes.
    """
    with tf.control_dependencies([update.push]), tf.device(step.device):
        ticket = tf.identity(update.ticket)  # one message: the push has arrived, and its number
    ticket = tf.identity(ticket)  # a copy on this device: what follows needs no second message
    times = []
    pulled = update.pulled or [update.version]
    for tensors in pulled, update.pushed, [ticket]:  # which a tf.function does in this order
        with tf.control_dependencies(tensors):
            times.append(tf.timestamp())
    pulled, ready, pushed = times
    local_steps = getattr(update, "local_steps", getattr(flags, "local_steps", 1))
    size = sum(tf.size(t, out_type=tf.int64) * t.dtype.size for t in update.pulled + update.pushed)
    row = Push(
        push_time=pushed,
        pull_time=pulled,
        global_step=ticket + 1,
        local_steps=local_steps,
        examples=local_steps * flags.batch_size,
        loss=update.loss,
        staleness=ticket - update.version,
        bytes=size,
        wait_seconds=pushed - ready,
    )
    return Push(*[tf.cast(column, "float64") for column in row])


# region: metrics
# A line of metrics-<task>.csv is a push or a test. A push has its number, global_step, the loss of
# its last mini-batch, the bytes pulled and pushed, and the wait_seconds from gradient to arrival. A
# test has the times of its end and begin, global_step, and TEST. Times are seconds since 1970.
PUSH = "push_time,pull_time,global_step,local_steps,examples,loss,staleness,bytes,wait_seconds"
Push = collections.namedtuple("Push", PUSH)
TEST = {"test_loss": "min"} | {f"test_{name}": better for name, (better, _) in METRICS.items()}


class Metrics:
    """Writes into OUTPUT_DIR what a task leaves: metrics-<task>.csv; the chief also flags.json."""

    def __init__(self, task, workers, parameters, flags, ps=0):
        """Raises ValueError for bad METRICS, a bad OUTPUT_DIR, or another model's checkpoint."""
        for mode, metric in METRICS.values():
            # Not an object of Keras with update_state(): it would average over the tests before.
            if mode not in ("max", "min") or hasattr(metric, "update_state"):
                raise ValueError(f'METRICS needs ("max" or "min", function), not {(mode, metric)}')
        directory = os.path.abspath(os.getenv("OUTPUT_DIR") or "output")
        self.directory = directory
        self.is_chief = task == workers[0]
        self.flags = flags
        self.step, self.print_time = 0, 0
        if set("*?[\\") & set(directory):  # patterns: it would find no checkpoint
            raise ValueError(f"OUTPUT_DIR must have none of the signs *?[\\: {directory}")
        os.makedirs(directory, exist_ok=True)
        if self.is_chief:
            self.lock = open(f"{directory}/.chief", "w")
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another chief has it
                raise
            except OSError:  # the file system has no locks
                pass
            facts = {
                "example": (__doc__ or os.path.basename(__file__)).split(":")[0],
                "script": __file__,
                "tasks": ["%s-%d" % worker for worker in workers],
                "ps": ps,
                "metrics": TEST,
                "variables": [[v.path, list(v.shape)] for v in parameters],
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
        self.file = open(f"{directory}/metrics-{task[0]}-{task[1]}.csv", "a", 1)
        # The line before a restart may have been cut short.
        print("# restart" if self.file.tell() else f"{PUSH},{','.join(TEST)}", file=self.file)

    def describe(self, data):
        """Writes numbers that tell the data of this task, all its rows, from other data."""
        facts = {}
        for name, part in data._asdict().items():
            if isinstance(part, np.ndarray):  # a weighted sum, which hardly moves by rounding alone
                rows = np.reshape(part, [len(part), int(np.prod(part.shape[1:]))])
                across, along = (np.cos(np.arange(size)) for size in rows.shape)
                facts[name] = part.shape, float(across @ rows @ along), float(np.linalg.norm(rows))
        print("# data", json.dumps(facts), file=self.file)

    def push(self, row):
        """Writes an update's columns PUSH. Raises FloatingPointError if the loss is not finite."""
        numbers = [f"{number:.16g}" for number in row]  # of seconds since 1970, microseconds
        print(*numbers, *[""] * len(TEST), sep=",", file=self.file)
        row = Push(*row)
        self.step = int(row.global_step)
        if not np.isfinite(row.loss):
            raise FloatingPointError(f"loss is {row.loss} at update {self.step}")
        if self.is_chief and row.push_time > self.print_time + 1:
            self.print_time = row.push_time
            words = f"   loss {row.loss:.4g}   staleness {row.staleness:.0f}"
            print(f"update {self.step} of {self.flags.steps}{words}", flush=True)

    def test(self, began, step, *means):
        """Writes and prints the means of a test of w at `step`, which began at the time `began`."""
        row = [f"{time.time():.6f}", f"{began:.6f}", step, *[""] * (len(Push._fields) - 3), *means]
        print(*row, sep=",", file=self.file)
        self.step = step
        words = [f"  {name} {mean:.4g}" for name, mean in zip(TEST, means)]
        print(f"update {step} of {self.flags.steps}", *words, flush=True)


# region: calls
def train(make_steps, test, metrics, manager, flags):
    """Makes all steps that are left; the chief also tests w and saves it.

    make_steps(count) makes that many, and returns the columns PUSH of each, [count, 9].
    """

    def test_and_save():
        metrics.test(time.time(), metrics.step, *[mean.numpy() for mean in test()])
        manager.save(checkpoint_number=metrics.step)

    while metrics.step < flags.steps:
        count = min(flags.steps - metrics.step, flags.steps_per_call)
        for row in make_steps(tf.constant(count)).numpy():
            metrics.push(row)
        passed = metrics.step % flags.checkpoint_steps < count  # a number of steps to save at
        if metrics.is_chief and passed and metrics.step < flags.steps:
            test_and_save()
    if metrics.is_chief:
        test_and_save()
    print("done, the output is in", metrics.directory, flush=True)


if __name__ == "__main__":
    main()
