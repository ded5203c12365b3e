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
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, step, batch_losses, flags, devices):
    """One update, made by all devices.

    w: the variables. step: the counter of updates.
    batch_losses: for each device batch_loss(w, number), the scalar loss on its mini-batch `number`.
    """
    version, losses, g = step.read_value(), [], []
    for device, batch_loss in zip(devices, batch_losses):
        # Towers: a copy of w, a mini-batch and a gradient on each device, all at the same time.
        with tf.device(device), tf.control_dependencies([version]):
            w_k = [tf.identity(v.read_value()) for v in w]
            losses.append(batch_loss(w_k, version))
            g.append(gradients(losses[-1], w_k))

    # Towers: the mean of their gradients moves w. It waits for the slowest tower.
    with tf.device(step.device):
        mean = [tf.reduce_mean(tf.stack(of_all), axis=0) for of_all in zip(*g)]
        with tf.control_dependencies(mean):
            ticket = tf.count_up_to(step, flags.steps)
        with tf.control_dependencies([ticket]):
            push = tf.group(*[v.assign_sub(flags.learning_rate * d) for v, d in zip(w, mean)])
        return Update([], tf.add_n(losses) / len(devices), [], version, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--devices", number(int, 0), 0, "GPUs or logical CPU devices; 0: all GPUs, or 2 of the CPU",
        metavar="N")


# region: flags
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


def parse_flags(*switches):
    """The flags; switches: (name, text) of flags that have no value."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(flag, kind, default, text, **options):
        text += " (%(default)s)"
        parser.add_argument(flag, type=kind, default=default, help=text, **options)
    add("--steps", number(int, 1), STEPS, "updates of w, all workers together", metavar="N")
    add("--batch-size", number(int, 1), BATCH_SIZE, "examples in a mini-batch", metavar="B")
    if LEARNING_RATE:
        add("--learning-rate", number(float, 0, strictly=True), LEARNING_RATE,
            "learning rate: lr in the update rule", metavar="LR")
    add("--seed", number(int, 0), 0, "seed of the initial parameters and the batches")
    add("--dataset", str, DATASET, DATASETS)
    add("--checkpoint-steps", number(int, 1), 1000, "updates between checkpoints", metavar="N")
    add("--checkpoint-seconds", number(int, 1), 10, "or seconds, whichever is first", metavar="S")
    for name, text in switches:
        parser.add_argument("--" + name, action="store_true", help=text + " (off)")
    add_flags(add)
    return parser.parse_args()
# endregion: flags


# region: devices
def find_devices(flags):
    """The names of --devices devices: GPUs where there are any, else logical devices of the CPU."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    n = flags.devices or gpus or 2
    if gpus and n > gpus:
        raise ValueError("--devices %d: there are %d GPUs" % (n, gpus))
    print("%d devices: %s" % (n, "GPUs" if gpus else "logical ones of the CPU, there is no GPU"),
          flush=True)
    return ["/%s:%d" % ("GPU" if gpus else "CPU", i) for i in range(n)]
# endregion: devices


# region: problem -- put your own data and model here
DATASET, DATASETS = "digits", "digits, mnist, fashion_mnist, or an .npz file"
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")


def load_data(name):
    """Inputs [rows, features] and labels [rows] from 0, for training and for the test."""
    if name == "digits":
        from sklearn.datasets import load_digits  # here, because a ps needs no data
        x, y = load_digits(return_X_y=True)
        order = np.random.RandomState(0).permutation(len(x))
        x, y = x[order] / 16, y[order]
        data = x[:-360], y[:-360], x[-360:], y[-360:]
    elif name in ("mnist", "fashion_mnist"):
        (x, y), (x_test, y_test) = getattr(keras.datasets, name).load_data()
        data = x.reshape(len(x), -1) / 255, y, x_test.reshape(len(x_test), -1) / 255, y_test
    else:
        with np.load(name) as file:
            data = [file[part] for part in Data._fields]
    data = Data(*[part.astype("float32" if part.dtype.kind == "f" else "int32") for part in data])
    for x, y in data[:2], data[2:]:
        if not len(x) == len(y) > 0 or x.shape[1:] != data.x_train.shape[1:]:
            raise ValueError("%s: these x and y do not fit: %s" % (name, [d.shape for d in data]))
        if not np.isfinite(x).all() or y.dtype.kind != "i":
            raise ValueError("%s: x must be finite numbers, and y whole ones" % name)
    return data


def make_model(data):
    """A network from Keras. It is not compiled: the optimizer is the algorithm above."""
    return keras.Sequential([
        keras.Input(data.x_train.shape[1:]), keras.layers.Dense(128, "relu"),
        keras.layers.Dense(64, "relu"), keras.layers.Dense(int(data.y_train.max()) + 1)])


def loss(y, outputs):
    """The cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: problem


# region: variables
def variables(get_variable, name, values):
    """Variables with these first values, which as constants would stand in each graph sent."""
    return [get_variable("%s_%d" % (name, i), initializer=tf.ensure_shape(
        tf.numpy_function(lambda v=v: np.asarray(v), [], v.dtype), v.shape))
            for i, v in enumerate(values)]
# endregion: variables


# region: batches
def batches(model, state, x, y, flags, rank=0):
    """batch_loss(w, number) -> the loss at w on a mini-batch of the rows (x, y) of this worker.

    state: its own variables for what the model keeps beside w. The rows of a batch depend on
    (seed, rank, number) and on nothing else, so that a batch can be drawn again elsewhere.
    """
    # The rank is added to the seeds of Dropout, so that no two workers have the same masks.
    ranks = [rank * (v.name == "seed_generator_state") for v in model.non_trainable_variables]

    def batch_loss(w, number):
        key = [tf.constant(flags.seed * 65536 + rank, tf.int64), tf.cast(number, tf.int64)]
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, x.shape[0], tf.int32)
        with tf.control_dependencies(w):
            before = [v.read_value() + k if k else v.read_value() for v, k in zip(state, ranks)]
        outputs, after, penalties = model.stateless_call(
            w, before, tf.gather(x, rows), training=True, return_losses=True)
        # The gradient comes after the state has moved, and with it the next local step.
        moved = [v.assign(new - k if k else new) for v, new, k in zip(state, after, ranks)]
        with tf.control_dependencies(moved):
            outputs = tf.identity(outputs)
        return tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])
    return batch_loss
# endregion: batches


# region: evaluation
def gradients(loss, w):
    """The gradient of a scalar with respect to each of w, dense, even that of an embedding."""
    return [tf.convert_to_tensor(g) for g in tf.gradients(loss, w)]


def evaluation(model, state, w, x, y, first=None):
    """[number of rows, loss, each of METRICS] at w: means of TEST_ROWS rows, from "first:0" on."""
    first = tf.placeholder_with_default(0, [], "first") if first is None else first
    w, state = [[v.read_value() for v in each] for each in (w, state)]
    x_some, y_some = [rows.read_value()[first:first + TEST_ROWS] for rows in (x, y)]
    outputs, _ = model.stateless_call(w, state, x_some, training=False)
    of_rows = [loss, *[metric for _, metric in METRICS.values()]]
    return [tf.constant(x.shape[0]), *[tf.reduce_mean(each(y_some, outputs)) for each in of_rows]]
# endregion: evaluation


# region: local_session
def train(step, update, test, flags, towers=1):
    """Updates until all are made; evaluates w, and saves it."""
    metrics = Metrics("worker-0", [("worker", 0)], flags)
    row, saver = push_row(update, step, flags, towers), tf.train.Saver(save_relative_paths=True)
    path = os.path.join(metrics.directory, "model.ckpt")
    creator = tf.train.ChiefSessionCreator(
        tf.train.Scaffold(saver=saver), checkpoint_dir=metrics.directory,
        config=tf.ConfigProto(allow_soft_placement=False, device_count={"CPU": towers}))
    with creator.create_session() as session:
        update_w = session.make_callable(row)
        evaluate = session.make_callable([step, *test], ["first:0"])
        try:
            while True:
                metrics.push(update_w())
                if time.time() > metrics.next_test:
                    metrics.test(evaluate)
                if metrics.time_to_save():
                    saver.save(session, path, step, write_meta_graph=False)
                    metrics.mark("checkpoint", metrics.saved[1])
        except tf.errors.OutOfRangeError:  # from count_up_to: every update is made
            pass
        metrics.test(evaluate, all_rows=True)
        saver.save(session, path, step, write_meta_graph=False)
    print("done, the output is in", metrics.directory, flush=True)
# endregion: local_session


# region: metrics
# A line of metrics-<task>.csv is a push, with times in seconds since 1970; global_step counts it;
# loss is the last mini-batch's; bytes are those pulled and pushed; wait_seconds is the time from
# the gradient to its arrival. Or it is an evaluation, with push_time, global_step and TEST. What
# else takes time stands behind a #, with its begin and its end.
PUSH = ["push_time", "pull_time", "global_step", "local_steps", "examples", "loss", "staleness",
        "bytes", "wait_seconds"]
TEST = {"test_loss": "min", **{"test_" + name: best for name, (best, *_) in METRICS.items()}}
TEST_ROWS = 1000  # are tested at once; between them updates go on


def push_row(update, step, flags, towers=1, travels=1):
    """The columns PUSH as one float64 tensor: to fetch one costs less than to fetch nine.

    towers: mini-batches of this process in an update. travels: how often each byte is sent.
    """
    with tf.control_dependencies([update.push]), tf.device(step.device):
        ticket = tf.identity(update.ticket)  # one message: the push has arrived, and its number
    times = []
    for before in update.pulled, update.pushed, [ticket]:
        with tf.control_dependencies(before):
            times.append(tf.timestamp())
    pulled, ready, pushed = times
    local_steps = getattr(flags, "local_steps", 1)
    examples = local_steps * flags.batch_size * towers
    size = travels * sum(tf.cast(tf.size(t), tf.float64) * t.dtype.size
                         for t in update.pulled + update.pushed)
    return tf.stack([tf.cast(column, tf.float64) for column in [
        pushed, pulled, ticket + 1, local_steps, examples, update.loss,
        ticket - update.version, size, pushed - ready]])


class Metrics:
    """What a task leaves in OUTPUT_DIR: metrics-<task>.csv; the chief also flags.json, events."""

    def __init__(self, task, workers, flags, ps=0):
        self.directory = os.path.abspath(os.environ.get("OUTPUT_DIR") or "output")
        self.flags, self.step, self.saved, self.events = flags, 0, (0, time.time()), None
        self.last, self.shown, self.tested, self.next_test = {}, (0, 0), 0, 0
        os.makedirs(self.directory, exist_ok=True)
        tasks = ["%s-%d" % worker for worker in workers]
        if task == tasks[0]:
            self.lock = open(os.path.join(self.directory, ".chief"), "w")
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where another has it
            versions = {module.__name__.split(".")[0]: module.__version__
                        for module in (tf, keras, np)}
            facts = {"example": __doc__.split(":")[0], "script": os.path.abspath(__file__),
                     "tasks": tasks, "ps": ps, "metrics": TEST, "arguments": vars(flags),
                     "versions": versions}
            with open(os.path.join(self.directory, "flags.json"), "w") as file:
                json.dump(facts, file, indent=2)
            with tf.Graph().as_default():  # it refuses to be made where TensorFlow runs eagerly
                self.events = tf.compat.v1.summary.FileWriter(self.directory, flush_secs=1)
            text = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "text"})
            self.events.add_summary(tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(
                tag="flags", metadata=text, tensor=tf.make_tensor_proto(json.dumps(facts)))]))
        # Line by line, so that even kill -9 loses none; it costs microseconds.
        self.file = open(os.path.join(self.directory, "metrics-%s.csv" % task), "a", buffering=1)
        # The line before a restart may have been cut short.
        self.file.write("# restart\n" if self.file.tell() else ",".join([*PUSH, *TEST]) + "\n")

    def push(self, row):
        """Writes a line for one update, the columns PUSH."""
        self.file.write("%.6f,%.6f,%d,%d,%d,%.6g,%d,%d,%.6f" % tuple(row) + "," * len(TEST) + "\n")
        self.step, self.last["loss"], self.last["staleness"] = int(row[2]), row[5], row[6]
        if not np.isfinite(row[5]):
            raise FloatingPointError("loss is %s at update %d" % (row[5], self.step))
        if self.events and row[0] > self.shown[1] + 1:
            self.show(row[0])

    def test(self, evaluate, all_rows=False):
        """Tests TEST_ROWS rows more, or all; after the last it writes an evaluation, TEST."""
        first = 0 if all_rows else self.tested
        while True:
            began = time.time()
            self.step, rows, *means = evaluate(first)
            self.mark("evaluation", began)
            share = min(TEST_ROWS, rows - first) / rows
            self.sums = share * np.array(means) + (self.sums if first else 0)
            first, now = first + TEST_ROWS, time.time()
            if first >= rows or not all_rows:
                break
            if now > self.shown[1] + 1:
                self.show(now)
        # Tests take a twentieth of the time, but for the first, which sets up.
        self.next_test = now + (20 * (now - began) if self.next_test else 0)
        self.tested = first if first < rows else 0
        if self.tested:
            return
        self.next_test = max(self.next_test, now + 0.25)
        self.last.update(zip(TEST, self.sums))
        if all_rows or now > self.shown[1] + 1:
            self.show(now)
        self.file.write("%.6f,,%d" % (now, self.step) + "," * 7
                        + ",".join("%.6f" % number for number in self.sums) + "\n")
        self.events.add_summary(tf.compat.v1.Summary(value=[
            tf.compat.v1.Summary.Value(tag=tag, simple_value=value)
            for tag, value in self.last.items()]), self.step)

    def mark(self, what, began):
        """Writes when something that is no update began, and that it has ended now."""
        self.file.write("# %s %.6f %.6f\n" % (what, began, time.time()))

    def show(self, now):
        """Prints where training is, how fast it is, and the last evaluation."""
        step, since = self.shown
        if now > since + 1 or "updates_per_second" not in self.last:
            if since and self.step > step:
                rate = {"updates_per_second": (self.step - step) / (now - since)}
                self.last = {**rate, **self.last, **rate}
            self.shown = self.step, now
        print("update %d of %d   %s" % (self.step, self.flags.steps, "   ".join(
            "%s %.4g" % pair for pair in self.last.items())), flush=True)

    def time_to_save(self):
        """Whether --checkpoint-steps or --checkpoint-seconds have passed since it last said so."""
        step, since = self.saved
        due = (self.step >= step + self.flags.checkpoint_steps
               or time.time() > since + self.flags.checkpoint_seconds)
        self.saved = (self.step, time.time()) if due else self.saved
        return due
# endregion: metrics


def build(model, data, flags, devices):
    """The graph: the step counter, one update, the test. A tower has every n-th of the rows."""
    with tf.device("/CPU:0"):  # a GPU takes neither Python's arrays nor int32 variables
        step = tf.train.get_or_create_global_step()
        w = variables(tf.get_variable, "w", model.trainable_variables)
        batch_losses, states = [], []
        for k in range(len(devices)):
            with tf.variable_scope("tower_%d" % k):
                shard = [part[k::len(devices)] for part in (data.x_train, data.y_train)]
                rows = variables(tf.get_local_variable, "train", shard)
                states.append(variables(tf.get_variable, "state", model.non_trainable_variables))
                batch_losses.append(batches(model, states[k], *rows, flags, k))
        test_rows = variables(tf.get_local_variable, "test", [data.x_test, data.y_test])
    update = algorithm(w, step, batch_losses, flags, devices)
    return step, update, evaluation(model, states[0], w, *test_rows)


def main():
    flags = parse_flags()
    devices, data = find_devices(flags), load_data(flags.dataset)
    keras.utils.set_random_seed(flags.seed)
    model = make_model(data)  # outside of the graph, where Keras makes its first values
    with tf.Graph().as_default():
        train(*build(model, data, flags, devices), flags, len(devices))


if __name__ == "__main__":
    main()
