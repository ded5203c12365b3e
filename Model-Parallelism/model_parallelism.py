"""Model-Parallelism: one model whose layers live in several places, and micro-batches between them.

    model      f(x) = f_K(... f_2(f_1(x)));  w_k, the parameters of f_k, live in place k
    forward    h_k = f_k(h_{k-1})            h_k crosses from place k to place k + 1
    backward   dL/dh_k, from which place k has the gradient of w_k, crosses back
    update     w_k <- w_k - lr * (1/M) * (g_1 + ... + g_M)    over the M micro-batches of a batch

Kind:          model parallel
Paper:         Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks
Differs from:  Non-Distributed-Setup: no place has all of w
Simplified:    activations are kept until the backward pass; GPipe computes them again
Run:           bash run.sh
"""
import argparse
import collections
import contextlib
import fcntl
import json
import os
import platform
import socket
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the import; what it logs is raised, too
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy, never an alias of the ps's buffer

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, places, step, mini_batch, flags):
    """One update of the whole model, which one client runs in all places at once.

    w: for each place the variables that live there. step: the counter of updates.
    mini_batch(number): inputs, at the first place, and labels, at the last, of mini-batch `number`.
    """
    M, number = flags.micro_batches, tf.count_up_to(step, flags.steps)
    x, y = mini_batch(number)
    h, y, crossing, push = cut(x, M), cut(y, M), [], []

    # Model-Parallelism: forward, from place to place. While a place has one micro-batch, the place
    # after it has the one before.
    for place, w_k in zip(places[:-1], w):
        h = in_turn(place, hand_on, w_k, h)
        crossing += h
    losses = in_turn(places[-1], loss, w[-1], h, y)

    # Model-Parallelism: backward. A gradient is computed where its op is; so it crosses where the
    # activation did, the other way.
    with tf.device(places[-1]):
        mean = tf.add_n(losses) / M
    variables = sum(w, [])
    g = tf.gradients(mean, variables + crossing, colocate_gradients_with_ops=True)

    # Model-Parallelism: each place moves its part of w.
    for v, d in zip(variables, g):
        with tf.device(v.device):
            push.append(v.assign_sub(flags.learning_rate * tf.convert_to_tensor(d)))
    return Update([], mean, crossing + g[len(variables):], number, number, tf.group(*push))


def cut(batch, M):
    """The rows of a mini-batch in M equal parts, where they are."""
    with tf.device(batch.device):
        return tf.split(batch, M)


def in_turn(place, stage, w_k, *inputs):
    """A stage's outputs for each micro-batch."""
    outputs = []
    for m, micro_batch in enumerate(zip(*inputs)):
        # Model-Parallelism: one after the other, or TensorFlow begins with all of them at once, and
        # the next place waits for the first as long as for the last.
        with tf.device(place), tf.control_dependencies(outputs[-1:]):
            with tf.name_scope("micro_batch_%d" % m):
                outputs.append(stage(w_k, *micro_batch))
    return outputs


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--micro-batches", number(int, 1), 4, "equal parts of a mini-batch", metavar="M")
    add("--devices", number(int, 1, 65), 1, "parts of each worker's CPU, each a place", metavar="D")
    add("--patience", number(int, 1), 60, "seconds to wait for a step at most", metavar="S")
    add("--timeline-steps", number(int, 0), 0, "updates from one timeline-*.json to the next",
        metavar="N")


# region: stages -- cut your own model here
def stages(w, K):
    """The list w in K parts, one for each place: whole layers, of weights and biases each."""
    layers = len(w) // 2
    if K > layers:
        stop("The model has %d layers, too few for %d places, workers times --devices" % (
            layers, K))
    ends = [2 * (layers * k // K) for k in range(K + 1)]
    return [w[begin:end] for begin, end in zip(ends, ends[1:])]


def hand_on(w_k, h):
    """What a stage hands on to the next. The last one has `loss` and `accuracy` instead."""
    return tf.nn.relu(logits(w_k, h))
# endregion: stages


# region: flags_before
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
# endregion: flags_before


# region: peers_before
GIVE_UP = 120  # seconds that a worker waits for the others


class Peers:
    """Who is who, from TF_CONFIG: {"cluster": {"worker": [...]}, "task": {...}}."""

    def __init__(self):
        if "TF_CONFIG" not in os.environ:
            stop("TF_CONFIG is not set: start with `bash run.sh`, or set it for each task")
        try:
            config = json.loads(os.environ["TF_CONFIG"])
            jobs = {"chief" if job == "master" else job: list(tasks)
                    for job, tasks in config["cluster"].items()}
            me = config["task"]["type"].replace("master", "chief"), int(config["task"]["index"])
            tasks = [(job, i) for job in ("chief", "worker") for i in range(len(jobs.get(job, [])))]
            self.addresses = [jobs[job][i] for job, i in tasks]
            for address in self.addresses:
                if not 0 <= int(address.rsplit(":", 1)[1]) < 65536:
                    raise ValueError("there is no port like that of " + address)
            self.n, self.rank = len(tasks), tasks.index(me)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            stop("TF_CONFIG must be JSON with the addresses (host:port) of workers and a task, one "
                 "of them: %s: %s" % (type(error).__name__, error))
        self.name = "%s-%d" % me
        self.at_its_port().close()

    def at_its_port(self):
        """A socket at the port of this task; ends it with one line when the port is taken."""
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if os.environ.get("TF_GRPC_REUSE_PORT"):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            s.bind(("", int(self.addresses[self.rank].rsplit(":", 1)[1])))
            return s
        except OSError as error:
            stop("%s cannot listen at %s: %s" % (
                self.name, self.addresses[self.rank], error.strerror), code=1)

    def meet(self, function):
        """What function() returns, which waits for all others, but not longer than GIVE_UP."""
        def give_up():
            self.end(self.missing() or "The workers did not meet in %d s" % GIVE_UP)
        timer = threading.Timer(GIVE_UP, give_up)
        timer.daemon = True
        timer.start()
        met = function()
        timer.cancel()
        return met

    def wait(self):
        """Returns when every other worker has answered."""
        for rank, address in enumerate(self.addresses):
            while rank != self.rank and no_answer(address):
                time.sleep(0.1)

    def missing(self, seconds=0):
        """Which workers do not answer. One that dies may do so for a moment: looks so long."""
        until = time.time() + seconds
        while True:
            silent = ["worker %d did not answer at %s: %s" % (rank, address, error)
                      for rank, address in enumerate(self.addresses)
                      if (error := no_answer(address))]
            if silent or time.time() > until:
                return "; ".join(silent)
            time.sleep(0.1)

    def lost(self, why):
        """Ends this task with one line, because another one does not answer any more."""
        self.end("Another worker was lost (%s); the same command goes on from the last checkpoint"
                 % why)

    def end(self, message):
        """Ends this task with one line at once: TensorFlow's own way would wait for the others."""
        print(message, file=sys.stderr, flush=True)
        os._exit(1)


def no_answer(address):
    """Why nobody listens at host:port; None where somebody does."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        return error
# endregion: peers_before


# region: problem_before -- put your own data and model here
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
# endregion: problem_before


# region: local_before
def kept_here(name, array):
    """`array` as a local variable; a constant would be copied into every graph TensorFlow saves."""
    value = tf.ensure_shape(tf.numpy_function(lambda: array, [], array.dtype), array.shape)
    return tf.get_local_variable(name, initializer=value)
# endregion: local_before


# region: report_before
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
# endregion: report_before


# region: mini_batches
def mini_batches(data, places, flags):
    """mini_batch(number) -> inputs, at the first place, and labels, at the last.

    The rows depend on (seed, number) and on nothing else: both places draw the same.
    """
    x, y = at_the_ends(places, "train", data.x_train, data.y_train)

    def rows_of(array, number):
        with tf.device(array.device):
            key = [tf.constant(flags.seed * 65536, tf.int64), tf.cast(number, tf.int64)]
            rows = tf.random.stateless_uniform([flags.batch_size], key, 0, array.shape[0], tf.int32)
            return tf.gather(array, rows)
    return lambda number: (rows_of(x, number), rows_of(y, number))


def at_the_ends(places, name, x, y):
    """Inputs as a local variable at the first place, labels at the last."""
    def at(place):  # Python, which has the arrays, is where the client is
        return lambda op: places[0] if op.type == "PyFunc" else place
    with tf.device(at(places[0])):
        x = kept_here("x_" + name, x)
    with tf.device(at(places[-1])):
        return x, kept_here("y_" + name, y)


def evaluation(w, places, data):
    """[test accuracy, test loss] at w."""
    h, y = at_the_ends(places, "test", data.x_test, data.y_test)
    for place, w_k in zip(places[:-1], w):
        with tf.device(place):
            h = hand_on(w_k, h)
    with tf.device(places[-1]):
        return [accuracy(w[-1], h, y), loss(w[-1], h, y)]
# endregion: mini_batches


# region: one_client
def start(peers, flags):
    """The server of this worker, None where it is alone, and all places, when all are there."""
    parts = ["/device:CPU:%d" % d for d in range(flags.devices)] if flags.devices > 1 else [""]
    if peers.n == 1:
        return None, ["/job:localhost/task:0" + part for part in parts]
    server = tf.train.Server({"worker": peers.addresses}, "worker", peers.rank,
                             config=tf.ConfigProto(device_count={"CPU": flags.devices}))
    peers.meet(peers.wait)
    return server, ["/job:worker/task:%d%s" % (k, part) for k in range(peers.n) for part in parts]


@contextlib.contextmanager
def no_worker_lost(peers, flags):
    """Ends this task with one line, and at once, where the work inside has lost a worker."""
    try:
        yield
    except (tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
        peers.lost(peers.missing(2) or
                   "no update was made in %d s, --patience" % flags.patience)


def done(k):
    """A queue at worker k, into which the client puts a word when it is done."""
    with tf.device("/job:worker/task:%d/device:CPU:0" % k):
        return tf.FIFOQueue(1, tf.bool, [[]], shared_name="done")


def heartbeat(k):
    """A counter at worker k that the client moves with each update: who hangs still answers."""
    with tf.device("/job:worker/task:%d/device:CPU:0" % k):
        return tf.get_local_variable("heartbeat_%d" % k, [], tf.int64, tf.zeros_initializer())


def serve(peers, server, flags):
    """What a worker does that is not the client: it lends its devices until the client is done."""
    address, since, before = peers.addresses[0], time.time(), 0
    alone, beats = "/job:worker/task:%d" % peers.rank, heartbeat(peers.rank)
    words = done(peers.rank).size()
    with tf.Session(server.target, config=tf.ConfigProto(device_filters=[alone])) as session:
        while not session.run(words):
            try:
                now = session.run(beats)
            except tf.errors.FailedPreconditionError:
                now = 0  # the client has not begun, and may take long to set up
            gone = no_answer(address)
            patience = flags.patience if now or gone else max(GIVE_UP, flags.patience)
            if now != before:
                before, since = now, time.time()
            elif time.time() > since + patience:
                why = "answered at " + address if gone else "made an update"
                peers.lost("worker 0 has not %s for %d s" % (why, patience))
            time.sleep(0.5)


def train(peers, server, step, update, test, report):
    """Updates until every ticket is taken; then tests, saves, and writes the result."""
    flags = report.flags
    row = [push_row(update, flags), *[heartbeat(k).assign_add(1).op for k in range(1, peers.n)]]
    target = server.target if server else ""
    tell = [done(k).enqueue(True) for k in range(1, peers.n)]
    report.check_checkpoint({v.op.name: v.shape.as_list() for v in tf.global_variables()})
    scaffold = tf.train.Scaffold(saver=tf.train.Saver(save_relative_paths=True))
    hooks = [tf.train.CheckpointSaverHook(report.directory, save_steps=flags.checkpoint_steps,
                                          scaffold=scaffold, save_graph_def=False)]
    if flags.timeline_steps:
        hooks.append(tf.train.ProfilerHook(flags.timeline_steps, output_dir=report.directory))
    config = tf.ConfigProto(device_count={"CPU": flags.devices},
                            operation_timeout_in_ms=1000 * flags.patience)
    # Not a MonitoredSession, which would wait for a lost worker without end. The second
    # no_worker_lost is there because a session with a lost worker may not close either.
    with report, no_worker_lost(peers, flags), tf.train.SingularMonitoredSession(
            hooks, scaffold, target, config, report.directory) as session:
        without_hooks = session.raw_session()
        with no_worker_lost(peers, flags):
            try:
                # The first calls set up the graphs; so the clock starts after them.
                report.push(session.run(row)[0])
                without_hooks.run(test)
                report.start()
                while True:
                    report.push(session.run(row)[0])
                    report.watch(lambda: without_hooks.run(test))
            except tf.errors.OutOfRangeError:  # from count_up_to: all --steps updates are taken
                report.end()
            last = without_hooks.run([step, *test])
    with no_worker_lost(peers, flags), tf.Session(target, config=config) as session:
        session.run(tell)
    report.result(*last, ps=0, said=[report.said()] + [(0, 0, 0)] * (peers.n - 1))
# endregion: one_client


def build(data, places, flags):
    """The graph: the step counter, one update, the test."""
    tf.set_random_seed(flags.seed)
    sizes = data.x_train.shape[1], data.y_train.max() + 1
    names = stages(parameters(lambda name, *_, **__: name, *sizes), len(places))
    home = {name: place for place, part in zip(places, names) for name in part}

    def get_variable(name, *more, **options):
        with tf.device(home[name]):
            return tf.get_variable(name, *more, **options)
    with tf.device(places[0]):
        step = tf.train.get_or_create_global_step()
    w = stages(parameters(get_variable, *sizes), len(places))
    update = algorithm(w, places, step, mini_batches(data, places, flags), flags)
    return step, update, evaluation(w, places, data)


def main():
    flags, peers = parse_flags(), Peers()
    if flags.batch_size % flags.micro_batches:
        stop("--batch-size %d cannot be cut into %d equal parts (--micro-batches)" % (
            flags.batch_size, flags.micro_batches))
    report = Report(flags, peers.name, 0 if peers.rank == 0 else None)
    server, places = start(peers, flags)
    if peers.rank > 0:
        return serve(peers, server, flags)
    train(peers, server, *build(load_data(flags.dataset), places, flags), report)


if __name__ == "__main__":
    main()
