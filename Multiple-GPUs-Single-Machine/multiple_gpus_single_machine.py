"""Multiple-GPUs-Single-Machine: one process, a tower on each device, their gradients averaged.

    each device   g_k(w) on a mini-batch of its own, at its own copy of w
    once          w <- w - lr * (1/n) * (g_1 + ... + g_n)

Kind:          single process
Paper:         TensorFlow's CIFAR-10 multi-GPU tutorial, cifar10_multi_gpu_train.py
Differs from:  Non-Distributed-Setup: n devices, n mini-batches an update
Simplified:    the learning rate is constant, and w is not averaged over time
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

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row


def algorithm(w, step, gradients, flags, devices):
    """Makes one update, by all devices.

    w: all parameters, as one vector. step: the counter of updates. gradients: for each device
    gradient(w, number), the loss on its mini-batch `number` at w, and its gradient, like w.
    """
    version = step.read_value()
    copies, losses, g = [], [], []
    for device, gradient in zip(devices, gradients):
        # Towers: a copy of w, a mini-batch and a gradient on each device, all at the same time.
        with tf.device(device):
            w_k = tf.identity(w.read_value())
            loss, g_k = gradient(w_k, version)
        copies.append(w_k)
        losses.append(loss)
        g.append(g_k)

    # Towers: the mean of their gradients moves w. It waits for the slowest tower.
    with tf.device(w.device):
        mean, loss = tf.add_n(g) / len(g), tf.add_n(losses) / len(g)
        w.assign_sub(flags.learning_rate * mean)
        step.assign_add(1)
        return Update(copies, loss, g, version=version, ticket=version, push=mean)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults
OPTIMIZER = "mean"  # where tfrun puts an optimizer of yours: into the step behind the mean
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("devices", 0, "GPUs or parts of the CPU; 0: all GPUs, or 2 parts of the CPU"),
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


def build(models, data, flags, devices):
    """Makes what a checkpoint holds, and functions that make steps and test w.

    Each tower has every n-th row, and seeds of its own; all have the w of the first model.
    """
    n, states, tower_gradients = len(models), [], []
    with tf.device("/CPU:0"):  # a GPU takes no variables of int32
        step = tf.Variable(0, dtype=tf.int64)
        first = [tf.reshape(v.numpy(), [-1]) for v in models[0].trainable_variables]
        w = tf.Variable(tf.concat(first, 0))
        x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, data[2:]))
        for k, model in enumerate(models):
            rows = data.x_train[k::n], data.y_train[k::n]
            x, y = map(tf.Variable, map(np.asarray_chkfinite, rows))
            state = [tf.Variable(v, name=v.name) for v in model.non_trainable_variables]
            states.append(state)
            tower_gradients.append(gradients(model, state, x, y, flags, k))

    def one_step():
        update = algorithm(w, step, tower_gradients, flags, devices)
        row = push_row(update, step, flags)
        # The examples are those of all towers; nothing crosses a network.
        return tf.stack(row._replace(examples=n * row.examples, bytes=0 * row.bytes))

    @tf.function
    def make_steps(count):
        written = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            written = written.write(i, one_step())
        return written.stack()

    @tf.function
    def test():
        return evaluation(models[0], w, states[0], x_test, y_test)

    saved = tf.train.Checkpoint(step=step, w=w, state=states[0], other_states=states[1:])
    return saved, make_steps, test


def main():
    """Trains the model on all devices of this process."""
    flags = parse_flags()
    devices = find_devices(flags)
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    models, task = [make_model(data) for _ in devices], ("worker", 0)
    metrics = Metrics(task, [task], models[0].trainable_variables, flags)
    saved, make_steps, test = build(models, data, flags, devices)
    manager = tf.train.CheckpointManager(saved, metrics.directory, 5, checkpoint_name="model.ckpt")
    if manager.latest_checkpoint:
        saved.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    metrics.step = int(saved.step)
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


# region: devices
def find_devices(flags):
    """Returns the names of --devices devices: GPUs if there are any, else parts of the CPU."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    kind = "GPU" if gpus else "CPU"
    n = flags.devices or gpus or 2
    if gpus and n > gpus:
        raise ValueError(f"--devices {n}: there are {gpus} GPUs")
    if not gpus:
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * n
        tf.config.set_logical_device_configuration(cpu, parts)
    print(f"training on {n} {kind} devices", flush=True)
    return [f"/{kind}:{i}" for i in range(n)]


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
