"""Multiple-GPUs-Single-Machine with tf.distribute.MirroredStrategy: TensorFlow 2 makes the towers.

    each replica   g_k(w) on a mini-batch of its own, at its own copy of w
    all-reduce     mean = (g_1 + ... + g_n) / n
    each replica   w <- w - lr * mean, on its own copy of w

Kind:          single process
Paper:         Abadi et al. 2016, TensorFlow: A System for Large-Scale Machine Learning
Differs from:  multiple_gpus_single_machine.py: each device has w, and moves it
Simplified:    nothing
Run:           bash run_mirrored.sh
"""
import argparse
import collections
import fcntl
import json
import os
import platform
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the import; what it logs is raised, too
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, step, batch_loss, flags):
    """One step of one replica; all make it at once. It runs in tf.distribute.Strategy.run.

    w: the variables, each replica's own copy. step: the counter of steps.
    batch_loss(w, number): the scalar loss on mini-batch `number` at w.
    """
    version = step.read_value()
    w_k = [tf.identity(v) for v in w]
    loss = batch_loss(w_k, version)
    g = gradients(loss, w_k)

    # MirroredStrategy: the mean of the gradients of all replicas, known to all.
    mean = tf.distribute.get_replica_context().all_reduce("MEAN", g)
    for v, d in zip(w, mean):
        v.assign_sub(flags.learning_rate * d)
    step.assign_add(1)
    return Update(w_k, loss, g, version, version, mean[0])


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--devices", number(int, 0), 0, "GPUs, or parts of the CPU; 0: all GPUs, or 2 of the CPU",
        metavar="N")
    add("--steps-per-call", number(int, 1), 10, "steps in one call of the graph", metavar="C")


# region: flags
def stop(message, code=2):
    """Ends this task with one line that says what is wrong and what to do."""
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with a flag, without the usage above it."""

    def error(self, message):
        stop("%s: %s (--help lists the flags)" % (self.prog, message))


def number(kind, low, below=2**31, strictly=False):
    """A type of flag: a number of that kind, at least `low` (strictly: above it), below `below`."""
    def parse(text):
        value = kind(text)
        if not low <= value < below or strictly and value == low:
            raise argparse.ArgumentTypeError("must be %s %s and below %s, is %s" % (
                "above" if strictly else "at least", low, below, text))
        return value
    parse.__name__ = kind.__name__
    return parse


def parse_flags():
    parser = Parser(description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(flag, kind, default, text, **options):
        text += " (%(default)s)"
        parser.add_argument(flag, type=kind, default=default, help=text, **options)
    add("--steps", number(int, 1), STEPS, "updates of w, all workers together", metavar="N")
    add("--batch-size", number(int, 1), BATCH_SIZE, "examples in a mini-batch", metavar="B")
    if LEARNING_RATE:
        add("--learning-rate", number(float, 0, strictly=True), LEARNING_RATE,
            "lr in the update rule", metavar="LR")
    add("--seed", number(int, 0), 0, "of the first parameters and of the batches")
    add("--dataset", str, DATASET, DATASETS)
    add("--checkpoint-steps", number(int, 1), 1000, "updates between checkpoints", metavar="N")
    add_flags(add)
    return parser.parse_args()
# endregion: flags


# region: devices
def find_devices(flags):
    """The names of --devices devices: GPUs where there are any, else logical devices of the CPU."""
    gpus = tf.config.list_physical_devices("GPU")
    n = flags.devices or len(gpus) or 2
    if gpus and n > len(gpus):
        stop("--devices %d: there are %d GPUs" % (n, len(gpus)))
    kind = "GPU" if gpus else "CPU"
    print("%d devices: %s" % (n, "GPUs" if gpus else "logical ones of the CPU, there is no GPU"),
          flush=True)
    return ["/%s:%d" % (kind, i) for i in range(n)]
# endregion: devices


# region: problem -- put your own data and model here
DATASET, DATASETS = "digits", "digits, mnist, fashion_mnist, or an .npz file"
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")


def load_data(name):
    """Inputs float32 [rows, features] and labels int32 [rows] from 0, for training and test."""
    if name == "digits":
        from sklearn.datasets import load_digits  # here, because a ps needs no data
        x, y = load_digits(return_X_y=True)
        order = np.random.RandomState(0).permutation(len(x))
        x, y = x[order] / 16, y[order]
        data = Data(x[:-360], y[:-360], x[-360:], y[-360:])
    elif name in ("mnist", "fashion_mnist"):
        from keras import datasets  # here, because it takes seconds
        try:
            (x, y), (x_test, y_test) = getattr(datasets, name).load_data()
        except Exception as error:
            stop("--dataset %s cannot be fetched (%s); digits needs no network"
                 % (name, str(error).splitlines()[0]))
        data = Data(x.reshape(len(x), -1) / 255, y, x_test.reshape(len(x_test), -1) / 255, y_test)
    else:
        try:
            with np.load(name) as file:
                data = Data(*[file[part] for part in Data._fields])
            check(data)
        except Exception as error:
            stop("--dataset %s is neither digits, mnist, fashion_mnist nor an .npz file of %s: %s"
                 % (name, ", ".join(Data._fields), error))
    return Data(*[part.astype(np.float32 if "x" in field else np.int32)
                  for field, part in zip(Data._fields, data)])


def check(data):
    """Raises ValueError where one cannot learn from these arrays."""
    for x, y in (data.x_train, data.y_train), (data.x_test, data.y_test):
        if x.ndim != 2 or y.shape != x.shape[:1] or not x.size:
            raise ValueError("x must be [rows, features], y [rows]; they are %s and %s"
                             % (list(x.shape), list(y.shape)))
        if not np.isfinite(x).all():
            raise ValueError("x must hold finite numbers only")
        if y.dtype.kind not in "iu" or y.min() < 0 or y.max() > data.y_train.max():
            raise ValueError("y must hold whole numbers from 0, and y_test none above y_train's")
    if data.x_train.shape[1] != data.x_test.shape[1]:
        raise ValueError("x_train and x_test must have the same number of features")


def parameters(get_variable, features, classes):
    """Weights and biases of a perceptron, a list, made by `get_variable`: shared ones or local."""
    made, sizes = [], [features, 128, 64, classes]
    for i, shape in enumerate(zip(sizes, sizes[1:])):
        glorot = tf.compat.v1.glorot_uniform_initializer(seed=i)
        made.append(get_variable("weights_%d" % i, shape, initializer=glorot))
        zeros = tf.zeros_initializer()
        made.append(get_variable("biases_%d" % i, shape[1:], initializer=zeros))
    return made


def logits(w, x):
    """The scores [rows, classes] of the inputs x [rows, features]."""
    for weights, biases in zip(w[:-2:2], w[1:-2:2]):
        x = tf.nn.relu(tf.matmul(x, weights) + biases)
    return tf.matmul(x, w[-2]) + w[-1]


def loss(w, x, y):
    """The mean cross-entropy, a scalar."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(w, x)))


def accuracy(w, x, y):
    """The share of inputs whose highest score is the label's."""
    right = tf.equal(tf.argmax(logits(w, x), axis=1, output_type=tf.int32), y)
    return tf.reduce_mean(tf.cast(right, tf.float32))
# endregion: problem


# region: arrays
def kept_here(name, array):
    """`array` as a tensor."""
    return tf.constant(array, name=name)
# endregion: arrays


# region: batches
def batches(data, flags, rank=0, workers=1):
    """batch_loss(w, number) -> the loss at w on a mini-batch of this worker's shard of the rows.

    The shard is every row from `rank` on in steps of `workers`. The rows of a batch depend on
    (seed, rank, number) and on nothing else, so that a batch can be drawn again elsewhere.
    """
    if len(data.x_train) < workers:
        stop("--dataset has %d rows, fewer than workers (%d)" % (len(data.x_train), workers))
    x = kept_here("x_train", data.x_train[rank::workers])
    y = kept_here("y_train", data.y_train[rank::workers])

    def batch_loss(w, number):
        key = [tf.constant(flags.seed * 65536 + rank, tf.int64), tf.cast(number, tf.int64)]
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, x.shape[0], tf.int32)
        return loss(w, tf.gather(x, rows), tf.gather(y, rows))
    return batch_loss


def gradients(loss, w):
    """The gradient of a scalar with respect to each of w, dense, even that of an embedding."""
    return [tf.convert_to_tensor(g) for g in tf.gradients(loss, w)]


def evaluation(w, data):
    """[test accuracy, test loss] at w."""
    x, y = kept_here("x_test", data.x_test), kept_here("y_test", data.y_test)
    return [accuracy(w, x, y), loss(w, x, y)]
# endregion: batches


# region: calls
def train(step, w, steps_at_once, test, report, rank=0, n=1, begin=lambda: None):
    """Steps until there have been --steps; rank 0 tests, saves, and writes the result.

    steps_at_once(count) makes that many steps and returns the columns PUSH of each, [count, 9].
    begin() is called before the first step: all must begin at the same w.
    """
    # All save, because a strategy may need all of them for it; that of rank 0 is kept.
    checkpoint = tf.train.Checkpoint(step=step, w=w)
    with tempfile.TemporaryDirectory() as nowhere, report:
        manager = tf.train.CheckpointManager(
            checkpoint, report.directory if rank == 0 else nowhere, max_to_keep=5,
            checkpoint_name="model.ckpt")
        end = "/.ATTRIBUTES/VARIABLE_VALUE"  # so it names them: step and w/0, w/1, ...
        report.check_checkpoint({"step" + end: [], **{
            "w/%d%s" % (i, end): v.shape.as_list() for i, v in enumerate(w)}})
        if latest := tf.train.latest_checkpoint(report.directory):
            checkpoint.restore(latest)
        begin()
        report.step = report.saved = int(step.numpy())
        started = False
        while report.step < report.flags.steps:
            count = min(report.flags.steps - report.step, report.flags.steps_per_call)
            for row in steps_at_once(tf.constant(count)).numpy():
                report.push(row)
            if not started:  # the first calls have made the graphs; so the clock starts after them
                test()
                report.start()
                started = True
            report.watch(lambda: [number.numpy() for number in test()])
            if report.save_due() or report.step == report.flags.steps:
                manager.save(checkpoint_number=report.step)
                report.saved = report.step
        report.end()
    if rank == 0:
        report.result(report.step, *test(), ps=0, said=[report.said()] * n)
# endregion: calls


# region: replicas
def build(strategy, data, flags, ranks, n):
    """The step counter, the variables, and the functions that make steps and test w.

    ranks: those of n replicas that are in this process.
    """
    tf.random.set_seed(flags.seed)

    def get_variable(name, shape, initializer):
        return tf.Variable(initializer(shape), name=name)
    with strategy.scope():  # each replica has its own copy of these, and moves it itself
        step = tf.Variable(0, dtype=tf.int64)
        w = parameters(get_variable, data.x_train.shape[1], data.y_train.max() + 1)
    batch_loss = {rank: batches(data, flags, rank, n) for rank in ranks}

    def one_step():
        rank = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        update = algorithm(w, step, batch_loss[int(rank)], flags)
        return push_row(update, flags, len(ranks), 2 * (n - len(ranks)) / n)

    @tf.function
    def steps_at_once(count):
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            rows = rows.write(i, strategy.experimental_local_results(strategy.run(one_step))[0])
        return rows.stack()
    return step, w, steps_at_once, tf.function(lambda: evaluation(w, data))
# endregion: replicas


# region: report
# A line of metrics-<task>.csv is a push, with times in seconds since 1970; global_step counts it;
# loss is the last mini-batch's; bytes are those pulled and pushed; wait_seconds is the time from
# the gradient to its arrival. Or it is an evaluation, with push_time, global_step and TEST.
PUSH = ["push_time", "pull_time", "global_step", "local_steps", "examples", "loss", "staleness",
        "bytes", "wait_seconds"]
TEST = ["test_accuracy", "test_loss"]


def push_row(update, flags, towers=1, travels=1):
    """The columns PUSH as one float64 tensor: to fetch one costs less than to fetch nine.

    towers: mini-batches of this process in an update. travels: how often each byte is sent.
    """
    with tf.control_dependencies(update.pulled):
        pull_time = tf.timestamp()
    with tf.control_dependencies(update.pushed):
        ready_time = tf.timestamp()
    with tf.control_dependencies([update.push]):
        push_time = tf.timestamp()
    local_steps = getattr(flags, "local_steps", 1)
    examples = local_steps * flags.batch_size * towers
    size = travels * sum(tf.cast(tf.size(t), tf.float64) * t.dtype.size
                         for t in update.pulled + update.pushed)
    return tf.stack([tf.cast(column, tf.float64) for column in [
        push_time, pull_time, update.ticket + 1, local_steps, examples, update.loss,
        update.ticket - update.version, size, push_time - ready_time]])


class Report:
    """What a run leaves in OUTPUT_DIR: metrics-<task>.csv, checkpoints, events, result.json."""

    def __init__(self, flags, task, rank):
        self.flags, self.rank = flags, rank
        self.directory = os.environ.get("OUTPUT_DIR") or "output"
        self.pushes = self.staleness = self.late = 0
        self.step = self.examples = self.saved = self.tested = 0
        elsewhere = "%s; set OUTPUT_DIR to another folder" % self.directory
        try:
            os.makedirs(self.directory, exist_ok=True)
            if rank == 0:
                self.lock = open(os.path.join(self.directory, ".chief"), "w")
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(os.path.join(self.directory, "result.json")):
                stop("There is a finished run in " + elsewhere, code=0)
            if rank is not None:  # a ps has no metrics
                # Line by line, so that even kill -9 loses none; it costs microseconds.
                path = os.path.join(self.directory, "metrics-%s.csv" % task)
                self.metrics = open(path, "a+", buffering=1)
                self.metrics.seek(0)
                whole = self.metrics.read().rfind("\n") + 1  # a killed run may end within a line
                self.metrics.truncate(whole)
                if not whole:
                    self.metrics.write(",".join(PUSH + TEST) + "\n")
        except BlockingIOError:
            stop("Another chief trains in " + elsewhere)
        except OSError as error:
            stop("Cannot write (%s) in %s" % (error.strerror, elsewhere))
        if rank == 0:
            with tf.Graph().as_default():  # it refuses to be made where TensorFlow 2 runs eagerly
                self.events = tf.compat.v1.summary.FileWriterCache.get(self.directory)
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        """A full disk ends the task with one line; every other error keeps its traceback."""
        if isinstance(error, OSError) or "No space left" in str(error):
            stop("Cannot write in %s (%s); with more space the same command goes on from the last "
                 "checkpoint" % (self.directory, getattr(error, "strerror", "No space left")), 1)

    def check_checkpoint(self, shapes):
        """Refuses a checkpoint of another model than {name: shape} before it is restored."""
        state = tf.train.get_checkpoint_state(self.directory)
        latest = state and state.model_checkpoint_path
        try:
            saved = dict(tf.train.list_variables(latest)) if latest else {}
        except (ValueError, tf.errors.OpError) as error:
            stop("The checkpoint %s cannot be read (%s); remove it, and its line in the file "
                 "`checkpoint`" % (latest, str(error).splitlines()[0]))
        for name, here in shapes.items() if latest else []:
            if saved.get(name) != here:
                stop("%s holds a checkpoint of another model: %s has shape %s there, %s here; set "
                     "OUTPUT_DIR to another folder" % (self.directory, name, saved.get(name), here))

    def start(self):
        """The clock starts, after the set-up."""
        self.started = self.told = time.time()
        self.first_step = self.step

    def push(self, row):
        """Takes the columns PUSH of one update."""
        self.metrics.write("%.6f,%.6f,%d,%d,%d,%.6g,%d,%d,%.6f,,\n" % tuple(row))
        self.step, self.examples, self.loss = int(row[2]), int(row[4]), row[5]
        self.pushes, self.staleness = self.pushes + 1, self.staleness + int(row[6])
        self.late += row[6] > 0
        if not np.isfinite(self.loss):
            stop("The loss is %s at update %d; a lower --learning-rate may help" % (
                self.loss, self.step), code=1)

    def said(self):
        """(pushes, the sum of their staleness, how many had any) of this worker."""
        return self.pushes, self.staleness, self.late

    def save_due(self):
        """Whether --checkpoint-steps updates have been made since the last checkpoint."""
        return self.step >= self.saved + self.flags.checkpoint_steps

    def watch(self, test):
        """Calls `test` several times a second, for a twentieth of the time; prints every second."""
        now = time.time()
        if self.rank == 0 and now > self.tested:
            numbers = test()
            self.tested = now + max(0.25, 20 * (time.time() - now))
            self.metrics.write("%.6f,,%d,,,,,,,%.6f,%.6f\n" % (now, self.step, *numbers))
            self.events.add_summary(tf.compat.v1.Summary(value=[
                tf.compat.v1.Summary.Value(tag=tag, simple_value=value)
                for tag, value in zip(["loss", *TEST], [self.loss, *numbers])]), self.step)
            self.line = "update %d of %d   loss %.3f   test accuracy %.1f%%   %.0f updates/s" % (
                self.step, self.flags.steps, self.loss, 100 * numbers[0],
                (self.step - self.first_step) / (now - self.started))
        if self.rank == 0 and now > self.told + 1:
            self.told = now
            print(self.line, flush=True)

    def end(self):
        """The clock stops: every update is taken."""
        self.seconds = time.time() - self.started

    def result(self, steps, test_accuracy, test_loss, ps, said):
        """Writes result.json; said: what said() returned on each worker, None if it was lost."""
        heard = [worker for worker in said if worker]
        result = {
            "example": __doc__.split(":")[0], "dataset": self.flags.dataset, "steps": int(steps),
            "ps": ps, "workers": len(said),
            "test_accuracy": float(test_accuracy), "test_loss": float(test_loss),
            "examples_per_second": sum(n for n, _, _ in heard) * self.examples / self.seconds
            if self.pushes else None,  # a chief restarted at the very end has seen no update
            "wall_seconds": self.seconds,
            "staleness_mean": sum(s for _, s, _ in heard) / max(1, sum(n for n, _, _ in heard)),
            "pushes_per_worker": [worker and int(worker[0]) for worker in said],
            "late_per_worker": [worker and int(worker[2]) for worker in said],
            "arguments": vars(self.flags),
            "versions": {"python": platform.python_version(), "tensorflow": tf.__version__,
                         "numpy": np.__version__},
        }
        path = os.path.join(self.directory, "result.json")
        with open(path + ".partial", "w") as file:
            json.dump(result, file, indent=2)
        os.replace(path + ".partial", path)  # whole or not at all
        print("%s: test accuracy %.1f%%, test loss %.3f after %d updates in %.1f s" % (
            result["example"], 100 * test_accuracy, test_loss, steps, self.seconds), flush=True)
# endregion: report


def main():
    flags = parse_flags()
    report = Report(flags, "worker-0", rank=0)
    devices = find_devices(flags)
    if not tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * len(devices))
    strategy = tf.distribute.MirroredStrategy(devices)
    step, w, steps_at_once, test = build(
        strategy, load_data(flags.dataset), flags, range(len(devices)), len(devices))
    train(step, w, steps_at_once, test, report)


if __name__ == "__main__":
    main()
