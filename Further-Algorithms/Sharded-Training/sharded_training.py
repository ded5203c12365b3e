"""Sharded-Training: ZeRO; each worker holds a share of Adam's moments, the gradients and w.

    n workers, w in blocks of layers, each cut into n shards; worker k owns the shard k + 1 mod n
    forward         h_i <- f_i(w_i, h_{i-1})     stage 3 gathers w_i just before, and frees it after
    backward        g_i <- dL/dw_i               stage 3 gathers w_i again
    reduce-scatter  an owner gets its shard of the mean of all workers' g_i
    Adam            an owner moves its shard of m, v and w
    all-gather      of the shards of w: after Adam in stages 1 and 2

    stage   a worker's w, g, m and v: bytes for each parameter      it sends, in |w| (n - 1) / n
    0       4   + 4   + 8    = 16           all is everywhere       2
    1       4   + 4   + 8/n  = 8 + 8/n                              2
    2       4   + 4/n + 8/n  = 4 + 12/n                             2
    3       4/n + 4/n + 8/n  = 16/n                                 3, with --keep-gathered 2

Kind:          all-reduce
Paper:         Rajbhandari, Rasley, Ruwase, He 2020, ZeRO: Memory Optimizations Toward Training
               Trillion Parameter Models
Differs from:  Ring-AllReduce: each worker moves its own shards between the two halves
Simplified:    a block computes its forward pass again before its backward pass
Run:           bash run.sh
"""

import argparse
import collections
import concurrent.futures
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import select
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")


def algorithm(blocks, x, y, number, lanes, flags):
    """Makes one step of one worker; all workers make it together. Returns a Push.

    blocks: the layers in their order, each Block with what this worker holds of its parameters.
    x, y: a mini-batch of its own. number: of the steps before. lanes: one computes, and in the
    other the ring works meanwhile.
    """
    stage, pulled, before = int(flags.stage), time.time(), lanes.moved()

    # ZeRO: forward. In stage 3 a worker has all of w_i only while it uses it.
    h, penalties = [x], 0.0
    for block, w_i in with_parameters(blocks, lanes, keep=flags.keep_gathered):
        outputs, penalty = lanes.compute("forward", block, block.forward, w_i, h[-1])
        h.append(outputs)
        penalties += penalty
    loss, d = loss_and_gradient(y, h.pop())

    # ZeRO: backward. Stages 2 and 3 reduce the gradient of a block at once, and keep a shard of it,
    # while the next block computes.
    last_first = blocks[::-1]
    for block, w_i in with_parameters(last_first, lanes, keep=False):
        d = lanes.compute("backward", block, block.backward, w_i, h.pop(), d)
        if stage >= 2:
            block.pending = lanes.communicate("reduce", block, block.reduce)
    if stage <= 1:
        for block in last_first:
            block.pending = lanes.communicate("reduce", block, block.reduce)
    ready = time.time()

    # ZeRO: Adam moves the shards of this worker. Then stages 1 and 2 gather those of the others.
    for block in last_first:
        block.pending.result()
        lanes.compute("Adam", block, block.adam, number + 1, flags)
        if stage in (1, 2):
            block.pending = lanes.communicate("gather", block, block.gather_moved)
    for block in blocks:
        block.pending.result()
    now = time.time()
    return Push(
        push_time=now,
        pull_time=pulled,
        global_step=number + 1,
        local_steps=1,
        examples=flags.batch_size,
        loss=float(loss + penalties),
        staleness=0,
        bytes=lanes.moved() - before,
        wait_seconds=now - ready,
    )


def with_parameters(blocks, lanes, keep):
    """Yields each block and its parameters. Stage 3 gathers those of the next block meanwhile."""
    coming = lanes.communicate("gather", blocks[0], blocks[0].gather)
    for block, following in zip(blocks, [*blocks[1:], None]):
        w_i = coming.result()
        if following:
            coming = lanes.communicate("gather", following, following.gather)
        yield block, w_i
        if not keep:
            block.gathered = None


class Block:
    """Some layers, and what this worker holds of them: the float32 vectors w, g, m and v."""

    def __init__(self, model, state, ring, stage):
        w = [np.zeros(0, np.float32), *[v.numpy().reshape(-1) for v in model.trainable_variables]]
        w = np.concatenate(w)
        self.ring, self.stage, self.size = ring, stage, w.size
        self.w = self.shard(w).copy() if stage == 3 else w
        self.m = np.zeros_like(self.shard(w) if stage else w)
        self.v = np.zeros_like(self.m)
        self.g = self.gathered = None
        self.forward, self.compiled_backward = compiled(model, state)

    def shard(self, vector):
        """Returns a view of the chunk that this worker owns, of a vector of the whole block."""
        return np.array_split(vector, self.ring.n)[(self.ring.rank + 1) % self.ring.n]

    def gather(self):
        """Returns all of w. In stage 3 the ring gathers it from the shards."""
        if self.stage < 3:
            return self.w
        if self.gathered is None:
            whole = np.empty(self.size, np.float32)
            self.shard(whole)[:] = self.w
            all_gather(np.array_split(whole, self.ring.n), self.ring)
            self.gathered = whole
        return self.gathered

    def backward(self, w, h, d):
        """Leaves the gradient in g; returns the gradient at the inputs h. d: at the outputs."""
        g, d_h = self.compiled_backward(w, h, d)
        self.g = np.array(g)
        return d_h

    def reduce(self):
        """Makes g the mean over all workers; from stage 1 on only the shard that this one owns."""
        chunk = np.array_split(self.g, self.ring.n)
        reduce_scatter(chunk, self.ring)
        if self.stage == 0:
            all_gather(chunk, self.ring)
        else:
            self.g = self.shard(self.g).copy()
        self.g /= self.ring.n

    def adam(self, t, flags):
        """Moves what this worker owns, by Adam's step t. Kingma, Ba 2015, algorithm 1."""
        w = self.shard(self.w) if self.stage in (1, 2) else self.w
        self.m = BETA_1 * self.m + (1 - BETA_1) * self.g
        self.v = BETA_2 * self.v + (1 - BETA_2) * self.g * self.g
        m_hat, v_hat = self.m / (1 - BETA_1**t), self.v / (1 - BETA_2**t)
        w -= flags.learning_rate * m_hat / (np.sqrt(v_hat) + flags.epsilon)

    def gather_moved(self):
        """Gathers the shards that their owners have moved."""
        all_gather(np.array_split(self.w, self.ring.n), self.ring)


BETA_1, BETA_2 = 0.9, 0.999  # of Adam
STEPS, BATCH_SIZE, LEARNING_RATE = 1500, 32, 0.001  # the defaults
OPTIMIZER = "shard"  # where tfrun puts an optimizer of yours: into the step on a worker's shards
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("stage", "3", "of ZeRO: 1, 2 or 3; 0: every worker holds all"),
    ("blocks", 3, "parts of the model at most, each of one or more layers"),
    ("keep-gathered", 0, "1: stage 3 gathers w once a step, and keeps it until its backward pass"),
    ("epsilon", 1e-7, "of Adam: beside the root of the second moment"),
    ("step-timeout", 60, "seconds to wait for a neighbour at most"),
    ("timeline-steps", 0, "steps between two timeline-*.json; 0: none"),
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


# region: stages -- cut your own model here
def stages(model, K):
    """Returns the layers of a Sequential model in at most K runs, each a model."""
    if not isinstance(model, keras.Sequential):
        raise TypeError("A model that is not Sequential needs stages() of its own")
    layers = model.layers  # one with a mask has two inputs, and stays with the layer before it
    first = [k for k, layer in enumerate(layers) if hasattr(layer.input, "shape")]
    ends = sorted({first[len(first) * k // K] for k in range(K)} | {len(layers)})
    return [
        keras.Model(layers[begin].input, layers[end - 1].output)
        for begin, end in zip(ends, ends[1:])
    ]


# endregion: stages


def build(ring, model, data, flags):
    """Makes the blocks, the state, and functions that draw a mini-batch and test w."""
    k, n = ring.rank, ring.n
    cut = isinstance(model, keras.Sequential)  # another model is one block
    parts = stages(model, flags.blocks) if cut else [model]
    states = [[tf.Variable(v, name=v.name) for v in part.non_trainable_variables] for part in parts]
    blocks = [Block(part, state, ring, int(flags.stage)) for part, state in zip(parts, states)]
    state = sum(states, [])
    rows = data.x_train[k::n], data.y_train[k::n], *data[2:]  # worker k has every n-th one
    x, y, x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, rows))

    @tf.function
    def mini_batch(number):
        key = [flags.seed * 65536 + k, number]
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, x.shape[0], tf.int32)
        return tf.gather(x, rows), tf.gather(y, rows)

    @tf.function
    def test(w):
        return evaluation(model, w, state, x_test, y_test)

    return blocks, state, mini_batch, test


def main():
    """Trains as the worker that TF_CONFIG names."""
    flags, cluster = parse_flags(), Cluster()
    if flags.stage not in ("0", "1", "2", "3"):
        raise ValueError(f"--stage {flags.stage} is no stage of ZeRO: choose 0, 1, 2 or 3")
    tf.config.threading.set_inter_op_parallelism_threads(1)  # others would spin, and slow the ring
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    model = make_model(data)
    metrics = Metrics(cluster.task, cluster.workers, model.trainable_variables, flags)
    metrics.describe(data)
    ring = Ring(cluster, flags.step_timeout)
    join(ring, [vars(flags), [v.shape for v in model.trainable_variables]])
    broadcast(model.variables, ring)
    blocks, state, mini_batch, test = build(ring, model, data, flags)
    metrics.step = restore(blocks, state, metrics, ring)
    separate_masks(state, ring.rank)
    train(blocks, state, mini_batch, test, metrics, ring, flags)
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


# region: blocks -- of this example only
def compiled(model, state):
    """Returns forward(w, h) and backward(w, h, d) of some layers, as graphs.

    w: their parameters, a vector. h: what the layers before them put out. d: the gradient at the
    outputs. forward returns (outputs, the sum of penalties), backward the gradients at w and at h.
    """

    def call(w, h):
        w = unpack(model, w) if model.trainable_variables else []
        return model.stateless_call(w, state, h, training=True, return_losses=True)

    @tf.function
    def forward(w, h):
        outputs, _, penalties = call(w, h)
        return outputs, tf.add_n([0.0, *penalties])

    @tf.function
    def backward(w, h, d):
        outputs, after, penalties = call(w, h)  # again: between both a worker stores h alone
        ends = [outputs, *penalties], [w, h], [d, *[None] * len(penalties)]
        g, d_h = tf.gradients(*ends, unconnected_gradients="zero")
        for v, new in zip(state, after):
            v.assign(new)
        return g, d_h

    return forward, backward


@tf.function
def loss_and_gradient(y, outputs):
    """Returns the mean loss of a mini-batch, and its gradient at the outputs of the model."""
    mean = tf.reduce_mean(loss(y, outputs))
    return mean, tf.gradients(mean, outputs)[0]


# region: shards -- of this example only
class Lanes:
    """Lets the ring work in a thread of its own, in the order in which it is asked.

    Nothing else asks the ring, so all workers have the same order. It notes when each call began
    and ended, and how many bytes this worker held then.
    """

    def __init__(self, blocks, ring):
        self.blocks, self.ring, self.events = blocks, ring, []
        self.thread = concurrent.futures.ThreadPoolExecutor(1)

    def moved(self):
        """Returns the bytes of vectors that have been sent and received so far."""
        return self.ring.sent + self.ring.received

    def compute(self, what, block, function, *arguments):
        """Calls function(*arguments), notes it in the lane "compute", and returns its result."""
        return self.note("compute", what, block, function, *arguments)

    def communicate(self, what, block, function):
        """Returns the Future of function(), which the ring's thread calls."""
        return self.thread.submit(self.note, "ring", what, block, function)

    def note(self, lane, what, block, function, *arguments):
        """Calls function(*arguments), notes when it ran, and returns its result."""
        began, moved = time.time(), self.moved()
        result = function(*arguments)
        if lane == "compute" or self.moved() > moved:
            arrays = [a for b in self.blocks for a in (b.w, b.g, b.m, b.v, b.gathered)]
            held = sum(a.nbytes for a in arrays if a is not None)
            number = self.blocks.index(block)
            self.events.append((lane, what, number, began, time.time(), held))
        return result

    def write(self, path):
        """Writes the events as a timeline, which chrome://tracing shows."""
        found = [
            {
                **{"ph": "X", "pid": self.ring.rank, "tid": lane, "name": f"{what} {number}"},
                **{"ts": 1e6 * began, "dur": 1e6 * (ended - began), "args": {"held": held}},
            }
            for lane, what, number, began, ended, held in self.events
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": found}, file)


def places(blocks, ring):
    """Returns [(the slice of a block, the slice of this worker's shard of it)] for a checkpoint.

    A slice is a text, "total begin,size", of a vector of all blocks.
    """
    found, begin, total = [], 0, sum(block.size for block in blocks)
    for block in blocks:
        shard = block.shard(np.arange(begin, begin + block.size))
        first = shard[0] if shard.size else begin
        found.append((f"{total} {begin},{block.size}", f"{total} {first},{shard.size}"))
        begin += block.size
    return found


def save(blocks, state, metrics, ring):
    """Writes a checkpoint, each worker its shards of w, m and v. All workers must call it."""
    names, slices, values = [], [], []
    for block, (_, place) in zip(blocks, places(blocks, ring)):
        for name in "w", "m", "v":
            vector = getattr(block, name)
            if vector.size == block.size:
                vector = block.shard(vector)
            if vector.size:
                names.append(name)
                slices.append(place)
                values.append(vector)
    if metrics.is_chief:
        names += ["step", *[f"state_{i}" for i in range(len(state))]]
        slices += [""] * (1 + len(state))
        values += [np.int64(metrics.step), *state]
    prefix = os.path.join(metrics.directory, f"model.ckpt-{metrics.step}")
    tf.raw_ops.SaveV2(
        prefix=f"{prefix}-{ring.rank}", tensor_names=names, shape_and_slices=slices, tensors=values
    )
    all_reduce(np.ones(ring.n), ring)  # all have written
    if metrics.is_chief:
        parts = [f"{prefix}-{k}" for k in range(ring.n)]
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)
        newest = os.path.join(metrics.directory, "checkpoint")
        with open(f"{newest}.new", "w") as file:  # so that nobody reads half of it
            file.write(f'model_checkpoint_path: "{os.path.basename(prefix)}"\n')
        os.replace(f"{newest}.new", newest)
        written = glob.glob(os.path.join(metrics.directory, "model.ckpt-[0-9]*.index"))
        for path in sorted(written, key=os.path.getmtime)[:-5]:
            for file in glob.glob(f"{path.removesuffix('.index')}.*"):
                os.remove(file)


def restore(blocks, state, metrics, ring):
    """Reads what this worker holds from the newest checkpoint, however many workers wrote it.

    Returns the number of steps before it, 0 where there is none. The chief says which one it is.
    """
    newest = tf.train.latest_checkpoint(metrics.directory) if metrics.is_chief else None
    step = tf.Variable(int(newest.rsplit("-", 1)[1]) if newest else 0)
    broadcast([step], ring)
    if not int(step):
        return 0

    def read(name, place, dtype):
        prefix = os.path.join(metrics.directory, f"model.ckpt-{int(step)}")
        return tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=[name], shape_and_slices=[place], dtypes=[dtype]
        )[0]

    for block, (whole, shard) in zip(blocks, places(blocks, ring)):
        for name in "w", "m", "v":
            vector = getattr(block, name)
            if vector.size:
                place = whole if vector.size == block.size else shard
                vector[:] = read(name, place, tf.float32)
    for i, v in enumerate(state):
        v.assign(read(f"state_{i}", "", v.dtype))
    return int(step)


def train(blocks, state, mini_batch, test, metrics, ring, flags):
    """Makes steps until all are made. All workers gather w for a test, and save it together."""
    lanes = Lanes(blocks, ring)

    def test_and_save():
        began, w = time.time(), np.concatenate([block.gather() for block in blocks])
        for block in blocks:
            block.gathered = None
        if metrics.is_chief:
            metrics.test(began, metrics.step, *[mean.numpy() for mean in test(w)])
        save(blocks, state, metrics, ring)

    while metrics.step < flags.steps:
        x, y = mini_batch(tf.constant(metrics.step, tf.int64))
        metrics.push(algorithm(blocks, x, y, metrics.step, lanes, flags))
        if flags.timeline_steps and metrics.step % flags.timeline_steps == 0:
            name = f"timeline-{metrics.step}-{ring.rank}.json"
            lanes.write(os.path.join(metrics.directory, name))
        lanes.events.clear()
        if metrics.step % flags.checkpoint_steps == 0 and metrics.step < flags.steps:
            test_and_save()
    test_and_save()
    print("done, the output is in", metrics.directory, flush=True)


if __name__ == "__main__":
    main()
