"""D-PSGD: each worker averages its own w with those of both neighbours on a ring, in each step.

    The workers stand in a ring, each with a w of its own. All make each step together:
    w_k <- (w_left + w_k + w_right) / 3 - lr * g(w_k)

Kind:          gossip, synchronous
Paper:         Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017, Can Decentralized Algorithms Outperform
               Centralized Algorithms?
Differs from:  Ring-AllReduce: each worker averages its own w with those of its two neighbours
Simplified:    a ring and weights of 1/3, not any graph; w is sent when the gradient is computed
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import hashlib
import json
import os
import select
import socket
import sys
import time
import types

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push moved")


def algorithm(w, step, gradient, rings, flags):
    """Makes one step of one worker; all workers make it together.

    w: all parameters, as one vector, each worker's own. step: the counter of steps.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, a vector as w.
    """
    version = step.read_value()
    w_k = w.read_value()
    loss, g = gradient(w_k, version)

    # stateful=False, or TensorFlow would take the times of a push too late.
    with tf.control_dependencies([g]):
        change, moved = tf.numpy_function(
            lambda w_k: change_to_average(w_k, rings),
            [w_k],
            [tf.float32, tf.int64],
            stateful=False,
        )

    # D-PSGD: the average comes before the step, and g is of the w_k before both.
    w.assign_add(change - flags.learning_rate * g)
    step.assign_add(1)
    return Update([w_k], loss, [g], version=version, ticket=version, push=change, moved=moved)


def change_to_average(w_k, rings):
    """Returns the change from w_k to the average of this worker and its neighbours, and the bytes.

    All workers must call it.
    """
    before = sum(ring.sent + ring.received for ring in rings)
    w_left, w_right = np.empty_like(w_k), np.empty_like(w_k)

    # D-PSGD: w_k goes to both neighbours and theirs come: one ring to the right, one to the left.
    to_the_right, to_the_left = rings
    to_the_right.exchange(w_k, w_left)
    to_the_left.exchange(w_k, w_right)

    # D-PSGD: weights of 1/3, the same in both directions, so that the mean of all w stays.
    change = (w_left - w_k + w_right - w_k) / 3
    return change, sum(ring.sent + ring.received for ring in rings) - before


def both_ways(cluster, step_timeout):
    """Returns two rings; the left neighbour in the first one is the right one in the second."""
    mirrored = types.SimpleNamespace(
        addresses=cluster.addresses[::-1],
        workers=cluster.workers[::-1],
        rank=len(cluster.workers) - 1 - cluster.rank,
    )
    return [Ring(cluster, step_timeout), Ring(mirrored, step_timeout)]


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 64, 0.1  # the defaults
OPTIMIZER = "local"  # where tfrun puts an optimizer of yours: into each worker's own steps
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("steps-per-call", 10, "steps in one call of the graph"),
    ("step-timeout", 60, "seconds to wait for a neighbour at most"),
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


def build(rings, model, data, flags):
    """Makes step, w, state, and functions that make steps and test w on every n-th row."""
    k, n = rings[0].rank, rings[0].n
    step = tf.Variable(0, dtype=tf.int64)
    w = tf.Variable(tf.concat([tf.reshape(v.numpy(), [-1]) for v in model.trainable_variables], 0))
    state = [tf.Variable(v, name=v.name) for v in model.non_trainable_variables]
    rows = data.x_train[k::n], data.y_train[k::n], *data[2:]
    x, y, x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, rows))
    gradient = gradients(model, state, x, y, flags, k)

    def one_step():
        update = algorithm(w, step, gradient, rings, flags)
        moved = tf.cast(update.moved, "float64")  # counted by the rings, not computed
        return tf.stack(push_row(update, step, flags)._replace(bytes=moved))

    @tf.function
    def make_steps(count):
        written = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            written = written.write(i, one_step())
        return written.stack()

    @tf.function
    def test():
        return evaluation(model, w, state, x_test, y_test)

    return step, w, state, make_steps, test


def main():
    """Trains as the worker that TF_CONFIG names."""
    flags, cluster = parse_flags(), Cluster()
    if len(cluster.workers) < 2:
        raise ValueError("D-PSGD needs two workers at least, and is worth it from four on")
    tf.config.threading.set_inter_op_parallelism_threads(1)  # others would spin, and slow the ring
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    model = make_model(data)
    metrics = Metrics(cluster.task, cluster.workers, model.trainable_variables, flags)
    metrics.describe(data)
    rings = both_ways(cluster, flags.step_timeout)
    step, w, state, make_steps, test = build(rings, model, data, flags)
    saved = tf.train.Checkpoint(step=step, w=w, state=state)
    manager = tf.train.CheckpointManager(saved, metrics.directory, 5, checkpoint_name="model.ckpt")
    if metrics.is_chief and manager.latest_checkpoint:
        saved.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    for ring in rings:
        join(ring, [vars(flags), [v.shape for v in model.trainable_variables]])
    broadcast([step, w, *state], rings[0])
    separate_masks(state, cluster.rank)
    metrics.step = int(step)
    train(make_steps, test, metrics, manager, flags)
    for ring in rings:
        leave(ring)


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


# region: all_reduce
def all_reduce(x, ring):
    """Replaces x, a flat vector, by the sum of the x of all workers. All workers must call it.

    In each phase a worker sends all chunks but one: 2 (N - 1) / N times the size of x in all.
    """
    chunk = np.array_split(x, ring.n)  # views; the first are longer by one if N does not divide
    reduce_scatter(chunk, ring)
    all_gather(chunk, ring)


def reduce_scatter(chunk, ring):
    """Sums the chunks, vectors, over all workers: chunk k + 1 becomes the sum, others a part."""
    N, k = ring.n, ring.rank
    received = np.empty_like(chunk[0])

    # Ring: reduce-scatter. Each chunk goes around, and every worker adds its part to it.
    for s in range(N - 1):
        mine, theirs = chunk[(k - s) % N], chunk[(k - s - 1) % N]
        ring.exchange(mine, received[: theirs.size])
        theirs += received[: theirs.size]


def all_gather(chunk, ring):
    """Gives all workers each worker's chunk k + 1, which takes the place of their own."""
    N, k = ring.n, ring.rank

    # Ring: all-gather. The finished chunks go around once more, to the workers that lack them.
    for s in range(N - 1):
        mine, theirs = chunk[(k + 1 - s) % N], chunk[(k - s) % N]
        ring.exchange(mine, theirs)


# region: ring
class Ring:
    """Holds the connections of a worker: it sends to the right and receives from the left."""

    def __init__(self, cluster, step_timeout):
        self.workers, self.addresses = cluster.workers, cluster.addresses
        self.rank, self.n = cluster.rank, len(cluster.workers)
        self.sent = self.received = 0  # bytes of vectors
        self.step_timeout = step_timeout
        self.timeout = REQUIRED_WAIT_SECONDS  # until all have joined

    def exchange(self, out, into):
        """Sends the array `out` to the right, while it fills the array `into` from the left.

        If all workers first sent and then received, none would ever get rid of a vector that is
        longer than the buffers on its way. Raises ConnectionError, which names a neighbour.
        """
        out, into = memoryview(out.view(np.uint8)), memoryview(into.view(np.uint8))
        self.sent += len(out)
        self.received += len(into)
        while out or into:
            readable = [self.right, self.left] if into else [self.right]
            writable = [self.right] if out else []
            readable, writable, _ = select.select(readable, writable, [], self.timeout)
            side = 1
            try:
                if self.right in readable:  # nothing comes from there but its end
                    raise ConnectionError("it closed the connection")
                if writable:
                    out = out[self.right.send(out) :]
                side = -1 if into else 1
                if self.left in readable:
                    size = self.left.recv_into(into)
                    if not size:
                        raise ConnectionError("it closed the connection")
                    into = into[size:]
                if not readable and not writable:
                    raise TimeoutError(f"it is silent, or waits itself, for {self.timeout} s now")
            except BlockingIOError:  # select was wrong
                pass
            except OSError as error:
                raise self.lost(side, error) from error

    def lost(self, side, error):
        """Returns the error that names a neighbour to which the connection has failed."""
        neighbour = f"the {'right' if side == 1 else 'left'} neighbour"
        return ConnectionError(f"{worker_name(self, side)}, {neighbour}: {error}")


def broadcast(variables, ring):
    """Gives the variables of all workers the values of worker 0, to which the others add zeros."""
    for v in variables:
        x = v.numpy().reshape(-1) * (ring.rank == 0)
        all_reduce(x, ring)
        v.assign(x.reshape(v.shape))


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


# region: neighbours
def join(ring, alike):
    """Connects this worker to both neighbours, and returns once all workers are connected.

    alike: a list of what all workers must have alike. Raises ConnectionError or TimeoutError.
    """
    if ring.n == 1:
        return
    ring.hash = hashlib.sha256(repr([ring.addresses, alike]).encode()).hexdigest()
    deadline = time.monotonic() + REQUIRED_WAIT_SECONDS
    with listen(ring) as listener:
        ring.right = connect(ring, 1, deadline)
        ring.left = accept(ring, listener, deadline)
    for connection in ring.left, ring.right:
        connection.setblocking(False)
    all_reduce(np.ones(ring.n), ring)  # whose result nobody has before all have joined
    ring.timeout = ring.step_timeout


def leave(ring):
    """Tells the right neighbour that no more comes; returns when the left one has told this one.

    If a worker closed its connections before, its neighbours would take it for lost.
    """
    if ring.n > 1:
        with contextlib.suppress(OSError):
            ring.right.shutdown(socket.SHUT_WR)
        select.select([ring.left], [], [], ring.timeout)


def accept(ring, listener, deadline):
    """Returns a connection from the left neighbour, once the right one has answered, too.

    Raises TimeoutError after the deadline, a time of time.monotonic().
    """
    left, waiting = None, [listener, ring.right]
    while waiting and time.monotonic() < deadline:
        readable, _, _ = select.select(waiting, [], [], 1)
        if ring.right in readable:
            check_answer(ring)
            waiting.remove(ring.right)
        if listener in readable:
            if left := accept_left(ring, listener):
                waiting.remove(listener)
    if waiting:
        raise TimeoutError(
            f"{worker_name(ring, -1 if listener in waiting else 1)} did not answer in "
            f"{REQUIRED_WAIT_SECONDS} s"
        )
    return left


def check_answer(ring):
    """Raises ConnectionError if the right neighbour was not started like this worker."""
    answer = b""
    with contextlib.suppress(OSError):
        answer = receive(ring.right, len(greeting(ring)))
    if not answer:
        raise ring.lost(1, "it closed the connection")
    if answer != greeting(ring, 1):
        raise not_alike(ring, 1)


def accept_left(ring, listener):
    """Accepts a connection, and returns it if it is from the left neighbour; otherwise None."""
    with contextlib.suppress(OSError):
        connection, peer = listener.accept()
        connection.settimeout(5)
        answer = receive(connection, len(greeting(ring)))
        if b" worker " in answer:  # of this example, or of another one
            connection.sendall(greeting(ring))
        if answer == greeting(ring, -1):
            return connection
        connection.close()
        if answer:
            sys.stderr.write(
                f"{worker_name(ring, 0)} refused a connection from {peer[0]}: it is not "
                f"{worker_name(ring, -1)} with the same script, TF_CONFIG, flags and model\n"
            )
    return None


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
