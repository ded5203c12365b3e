"""Gossip-SGD: no server, no sum of all: each worker averages its own w with a neighbour's.

    The workers stand in a ring, each with a w of its own. Every second one is active, the others
    are passive. An active worker k chooses a neighbour j, again and again (AD-PSGD):
    w_k, w_j <- (w_k + w_j) / 2    at once; the mean of all w stays
    w_k <- w_k - lr * g(what w_k was before)    each worker, at its own pace

Kind:          gossip, asynchronous
Paper:         Lian, Zhang, Zhang, Liu 2018, Asynchronous Decentralized Parallel Stochastic
               Gradient Descent
Differs from:  Further-Algorithms/D-PSGD: two workers average, and nobody waits
Simplified:    a ring; the paper allows any graph whose active workers have passive neighbours only
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import hashlib
import json
import os
import socket
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push late moved")


def algorithm(w, step, gradient, pairs, flags):
    """Makes one step of one worker.

    w: all parameters, as one vector, each worker's own. step: the counter of its own steps.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, a vector as w.
    """
    version, before = step.read_value(), pairs.averagings.read_value()
    with tf.control_dependencies([before]):
        w_k = w.read_value()
    loss, g = gradient(w_k, version)

    # Gossip-SGD: a thread averages with a neighbour, while training goes on.
    with tf.control_dependencies([g]):
        moved = tf.numpy_function(pairs.let_average, [version], tf.int64, stateful=False)
    with tf.control_dependencies([moved]):
        late = pairs.averagings.read_value() - before

        # Gossip-SGD: g is of the w_k before. The step is added to w, which an averaging may have
        # moved meanwhile: to assign w_k - lr * g would undo that.
        w.assign_sub(flags.learning_rate * g)
    step.assign_add(1)
    return Update(
        [w_k], loss, [g], version=version, ticket=version, push=moved, late=late, moved=moved
    )


def average_with_one(pairs, number):
    """An active worker and one of its neighbours, which are passive, take their average.

    A thread calls it at each step, unless it still waits for the answer of an earlier one.
    """
    random = np.random.default_rng([pairs.seed, pairs.rank, number])
    for j in random.permutation(pairs.to_ask):
        # Gossip-SGD: one neighbour, by chance; the other one if that does not answer.
        sent = packed(pairs.step.numpy(), pairs.w.numpy())
        if received := pairs.exchange(j, sent):
            pairs.move(sent, received)
            return


def answer(pairs, received):
    """Moves the w_j of a passive worker to the average; returns the message to send."""
    # Gossip-SGD: one averaging at a time, and what goes back is the w_j from before. Steps of this
    # worker's own may come between, because the change is added.
    with pairs.lock:
        sent = packed(pairs.step.numpy(), pairs.w.numpy())
        pairs.move(sent, received)
    return sent


def towards(own, other):
    """Returns the change by which the w of one message becomes the average with that of another."""
    (step_k, w_k), (step_j, w_j) = unpacked(own), unpacked(other)
    # Gossip-SGD: who has just started has step -1. It takes the whole w_j, which moves the mean.
    weight = 0 if step_j < 0 else 1 if step_k < 0 else 0.5
    return weight * (w_j - w_k)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 64, 0.1  # the defaults
OPTIMIZER = "local"  # where tfrun puts an optimizer of yours: into each worker's own steps
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("steps-per-call", 10, "steps in one call of the graph"),
    ("step-timeout", 20, "seconds to wait for a neighbour at most"),
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


def build(pairs, model, data, flags):
    """Makes step, w, state, and functions that make steps and test w on every n-th row."""
    k, n = pairs.rank, pairs.n
    step = tf.Variable(0, dtype=tf.int64)
    w = tf.Variable(tf.concat([tf.reshape(v.numpy(), [-1]) for v in model.trainable_variables], 0))
    state = [tf.Variable(v, name=v.name) for v in model.non_trainable_variables]
    rows = data.x_train[k::n], data.y_train[k::n], *data[2:]
    x, y, x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, rows))
    gradient = gradients(model, state, x, y, flags, k)

    def one_step():
        update = algorithm(w, step, gradient, pairs, flags)
        staleness, moved = tf.unstack(tf.cast([update.late, update.moved], "float64"))
        return tf.stack(push_row(update, step, flags)._replace(staleness=staleness, bytes=moved))

    @tf.function
    def make_steps(count):
        written = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            written = written.write(i, one_step())
        return written.stack()

    @tf.function
    def evaluate():
        return evaluation(model, w, state, x_test, y_test)

    def test():
        pairs.settle()  # what is tested is then saved
        return evaluate()

    return step, w, state, make_steps, test


def main():
    """Trains as the worker that TF_CONFIG names."""
    flags, cluster = parse_flags(), Cluster()
    if len(cluster.workers) % 2:
        n = len(cluster.workers)
        raise ValueError(f"Gossip-SGD needs an even number of workers, and has {n}")
    tf.config.threading.set_inter_op_parallelism_threads(1)  # others would spin, and slow the rest
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    model = make_model(data)
    metrics = Metrics(cluster.task, cluster.workers, model.trainable_variables, flags)
    metrics.describe(data)
    pairs = Pairs(cluster, flags)
    step, w, state, make_steps, test = build(pairs, model, data, flags)
    saved = tf.train.Checkpoint(step=step, w=w, state=state)
    manager = tf.train.CheckpointManager(saved, metrics.directory, 5, checkpoint_name="model.ckpt")
    if metrics.is_chief and manager.latest_checkpoint:
        saved.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    alike = [vars(flags), [v.shape for v in model.trainable_variables]]
    pairs.begin(step, w, alike, steps_made(metrics.file.name))
    separate_masks(state, pairs.rank)
    metrics.step = int(step)
    train(make_steps, test, metrics, manager, flags)
    pairs.leave()


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


# region: peers
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other task


class Cluster:
    """Knows the workers, and which of them this process is, from TF_CONFIG."""

    def __init__(self):
        config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = config.cluster_spec().as_dict()
        self.task = config.task_type, config.task_id
        if jobs.keys() - {"chief", "worker", "ps", "evaluator"}:
            raise ValueError(f"types of tasks are chief, worker, ps and evaluator, not {[*jobs]}")
        self.workers = [
            (job, index) for job in ("chief", "worker") for index in range(len(jobs.get(job, [])))
        ]
        self.addresses = [jobs[job][index] for job, index in self.workers]
        self.rank = self.workers.index(self.task)  # raises where there is no such task


# region: connections
def worker_name(ring, side):
    """Returns the name of the right neighbour (side 1), the left one (-1), or this worker (0)."""
    return "%s %d" % ring.workers[(ring.rank + side) % ring.n]


def address(ring, side):
    """Returns host and port of the right neighbour (side 1), the left one (-1), or this worker."""
    host, port = ring.addresses[(ring.rank + side) % ring.n].rsplit(":", 1)
    return host.strip("[]"), int(port)


def greeting(ring, side=0):
    """Returns the bytes that this worker sends first, or that a neighbour must send.

    The greetings of all examples have the same length, so that a worker can read that of any.
    """
    name = (__doc__ or "").split(":")[0]
    return f"{name:24} worker {(ring.rank + side) % ring.n:5} {ring.hash}".encode()


def listen(ring):
    """Returns a socket that listens at the address of this worker."""
    here = address(ring, 0)
    family = socket.getaddrinfo(*here, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server(here, family=family, reuse_port="TF_GRPC_REUSE_PORT" in os.environ)


def connect(ring, side, deadline):
    """Returns a connection to a neighbour, which may not listen yet. Raises TimeoutError."""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(address(ring, side), timeout=5)
            if connection.getsockname() != connection.getpeername():  # a port can connect to itself
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(greeting(ring))
                return connection
            connection.close()
        time.sleep(0.1)
    raise TimeoutError(
        f"{worker_name(ring, side)} did not answer at "
        f"{ring.addresses[(ring.rank + side) % ring.n]} in {REQUIRED_WAIT_SECONDS} s"
    )


def receive(connection, size):
    """Returns `size` bytes from a connection, or fewer if the other side closes it before."""
    with connection.makefile("rb") as file:
        return file.read(size)


def not_alike(ring, side):
    """Returns the error that names a neighbour which was not started like this worker."""
    what = "has another script, TF_CONFIG, flags or model than"
    return ConnectionError(
        f"{worker_name(ring, side)} {what} {worker_name(ring, 0)}: start all alike"
    )


# region: pairs -- of this example only
OPTIONAL_WAIT_SECONDS = 30  # for a worker without which this one goes on


def steps_made(path):
    """Returns how many steps a worker has made, from the path of its metrics."""
    with open(path) as file:
        rows = [line.split(",") for line in file if line[0].isdigit() and "#" not in line]
    return max([int(row[2]) for row in rows], default=0)


def packed(step, w):
    """Returns the bytes of a message: the steps that a worker has made, -1 without a w, and w."""
    return np.int64(step).tobytes() + w.tobytes()


def unpacked(message):
    """Returns (step, w) of a message: an int64, and a vector of float32."""
    return np.frombuffer(message, np.int64, 1)[0], np.frombuffer(message, np.float32, offset=8)


class Pairs:
    """Connects a worker to its neighbours: an active one asks, and a passive one answers.

    A connection that is lost is made again by a thread, while the worker goes on without it.
    """

    def __init__(self, cluster, flags):
        self.workers, self.addresses = cluster.workers, cluster.addresses
        self.rank, self.n = cluster.rank, len(cluster.workers)
        self.seed, self.steps, self.step_timeout = flags.seed, flags.steps, flags.step_timeout
        self.averagings = tf.Variable(0, dtype=tf.int64)  # of this worker's w
        self.sides = {(self.rank + side) % self.n: side for side in (-1, 1)}  # of neighbours
        self.to_ask = [] if self.rank % 2 else list(self.sides)
        self.open, self.lost = {}, set()  # {rank of a neighbour: connection}, ranks
        self.steps_of, self.finished = {}, set()  # {rank: its number of steps}, ranks
        self.moved = self.reported = 0  # bytes
        self.failed, self.lock, self.asking = None, threading.Lock(), threading.Lock()
        self.number, self.go = 0, threading.Event()  # of a step, in which to average

    def begin(self, step, w, alike, made):
        """Returns when w is a neighbour's, or, in worker 0, its own if the neighbours have none.

        alike: what all have alike. made: the steps that this worker has made before a restart.
        """
        self.step, self.w, self.made, first = step, w, made, int(step)
        step.assign(-1)
        self.size = len(packed(first, w.numpy()))
        self.connect_all(alike)
        self.wait_until(lambda: len(self.open) == len(self.sides), OPTIONAL_WAIT_SECONDS)

        def is_first():
            """Returns whether w begins here: a neighbour has answered worker 0, and had no w."""
            return self.rank == 0 and bool(self.steps_of)

        self.wait_until(lambda: step >= 0 or is_first(), REQUIRED_WAIT_SECONDS)
        if step < 0:
            if not is_first():
                names = self.names("and")
                raise TimeoutError(f"{names} did not answer with a w in {REQUIRED_WAIT_SECONDS} s")
            step.assign(first)
        self.ask_all()  # so that the next one need not wait for the first step
        self.reported = self.moved
        if self.to_ask:
            threading.Thread(target=self.keep_averaging, daemon=True).start()

    def connect_all(self, alike):
        """Starts threads: those of an active worker connect, that of a passive one listens."""
        self.hash = hashlib.sha256(repr([self.addresses, alike]).encode()).hexdigest()
        if self.to_ask:
            for neighbour in self.sides.items():
                threading.Thread(target=self.keep_connected, args=neighbour, daemon=True).start()
        else:
            threading.Thread(target=self.serve_all, args=(listen(self),), daemon=True).start()

    def leave(self):
        """Returns when both neighbours have made all steps, or none for REQUIRED_WAIT_SECONDS.

        A neighbour that restarts finds somebody who has a w until then.
        """
        self.news = time.monotonic()

        def over():
            late = time.monotonic() > self.news + REQUIRED_WAIT_SECONDS
            return late or len(self.finished) == len(self.sides)

        self.wait_until(over, np.inf)

    def wait_until(self, condition, seconds):
        """Returns once condition() is true, or after `seconds`. Averages meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            if self.failed and self.step < 0:
                raise self.failed
            self.ask_all()
            time.sleep(0.05)

    def ask_all(self):
        """Averages with each neighbour, outside of a step. Passive workers ask nobody."""
        for j in self.to_ask:
            with self.asking:
                sent = packed(self.step.numpy(), self.w.numpy())
                if received := self.exchange(j, sent):
                    self.move(sent, received)

    def settle(self):
        """Averages with each neighbour, and stops the averaging until the next step."""
        with self.asking:
            self.go.clear()
        self.ask_all()

    def keep_averaging(self):
        """Averages with a neighbour at each step of an active worker, which does not wait."""
        while True:
            self.go.wait()
            with self.asking:
                if self.go.is_set():
                    self.go.clear()
                    average_with_one(self, self.number)

    def move(self, sent, received):
        """Moves w to the average. A new worker now has a w, and may begin."""
        self.w.assign_add(towards(sent, received))
        self.averagings.assign_add(1)
        if unpacked(sent)[0] < 0 <= unpacked(received)[0]:
            self.step.assign(self.made)

    def keep_connected(self, j, side):
        """Connects to a passive neighbour, and again whenever the connection is lost."""
        while True:
            answer = b""
            with contextlib.suppress(OSError):
                connection = connect(self, side, time.monotonic() + REQUIRED_WAIT_SECONDS)
                answer = receive(connection, len(greeting(self)))
            if answer == greeting(self, side):
                connection.settimeout(self.step_timeout)
                self.opened(j, connection)
            elif answer:
                self.failed = not_alike(self, side)
            time.sleep(0.5)
            while j in self.open:
                time.sleep(0.1)

    def serve_all(self, listener):
        """Serves each connection in a thread of its own, so that none waits for another."""
        while True:
            connection, peer = listener.accept()
            threading.Thread(target=self.serve, args=(connection, peer[0]), daemon=True).start()

    def serve(self, connection, host):
        """Answers an active neighbour until it closes the connection; refuses anybody else."""
        with contextlib.suppress(OSError), connection:
            connection.settimeout(5)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = receive(connection, len(greeting(self)))
            if b" worker " in answer:  # of this example, or of another one
                connection.sendall(greeting(self))
            for j, side in self.sides.items():
                if answer == greeting(self, side):
                    connection.settimeout(self.step_timeout)
                    self.opened(j, connection)
                    return self.answer_all(j, connection)
            if answer:
                alike = "with the same script, TF_CONFIG, flags and model"
                self.tell(f"refused a connection from {host}: it is not {self.names('or')} {alike}")

    def answer_all(self, j, connection):
        """Answers the messages on a connection until the neighbour closes it."""
        error = "it closed the connection"
        try:
            while len(received := receive(connection, self.size)) == self.size:
                sent = answer(self, received)
                connection.sendall(sent)
                self.note(j, sent, received)
        except OSError as lost:
            error = lost
        self.closed(j, connection, error)

    def exchange(self, j, sent):
        """Sends a message to a passive neighbour; returns its own, or b"" if it is lost."""
        connection = self.open.get(j)
        if connection is None:
            return b""
        try:
            connection.sendall(sent)
            received = receive(connection, self.size)
            if len(received) < self.size:
                raise ConnectionError("it closed the connection")
        except OSError as error:
            self.closed(j, connection, error)
            return b""
        self.note(j, sent, received)
        return received

    def note(self, j, sent, received):
        """Stores what an exchange with a neighbour tells: its bytes, and the steps of both."""
        own, other = unpacked(sent)[0], unpacked(received)[0]
        with self.lock:
            self.moved += len(sent) + len(received)
        if other != self.steps_of.get(j):
            self.steps_of[j], self.news = other, time.monotonic()
        if min(own, other) >= self.steps:
            self.finished.add(j)

    def let_average(self, number):
        """Lets the thread average; returns the bytes moved since the last call."""
        self.number = int(number)
        self.go.set()
        moved, self.reported = self.moved - self.reported, self.moved
        return np.int64(moved)

    def opened(self, j, connection):
        """Stores a new connection to neighbour j, and says so if there was one before."""
        self.open[j] = connection
        if j in self.lost:
            self.lost.remove(j)
            self.tell(f"has {worker_name(self, self.sides[j])} again")

    def closed(self, j, connection, error):
        """Closes and forgets a connection, and says so unless neighbour j has finished."""
        connection.close()
        if self.open.get(j) is connection:
            del self.open[j]
            if j not in self.finished:
                self.lost.add(j)
                self.tell(f"goes on without {worker_name(self, self.sides[j])}: {error}")

    def names(self, word):
        """Returns the names of the neighbours, with a word between them."""
        return f" {word} ".join(worker_name(self, side) for side in self.sides.values())

    def tell(self, words):
        """Writes a line about this worker to stderr."""
        # At once, because threads of several workers may write.
        sys.stderr.write(f"{worker_name(self, 0)} {words}\n")


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
