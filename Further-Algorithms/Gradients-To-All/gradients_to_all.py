"""Gradients-To-All: workers send every gradient to all others; no server stores the parameters.

    each worker k    g = g(w_k)              of a mini-batch at its own w_k, as it is now
    every worker j   w_j <- w_j - lr * g     for each g of each worker, as it arrives

    A worker sends its gradients to each other worker. If there is a ps, it sends them to the ps
    alone, which stores no w and forwards each gradient to all workers, in one order.

Kind:          gossip, asynchronous
Paper:         Strom 2015, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing
Differs from:  HogWild: without a server, each worker keeps its own w and sends its gradients to all
Simplified:    whole gradients; the paper sends few entries of each, and keeps what it leaves out;
               it has no forwarder
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import re
import socket
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push late")


def algorithm(w, step, gradient, group, flags):
    """Makes one step of one worker, while gradients of the others arrive.

    w: all parameters, cut into vectors; each worker has its own. step: the counter of its steps.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, one vector.
    """
    version, before = step.read_value(), group.applied.read_value()
    with tf.control_dependencies([before]):
        w_k = tf.concat([part.read_value() for part in w], 0)
    loss, g = gradient(w_k, version)
    pieces = tf.split(g, [part.shape[0] for part in w])

    if group.forwarders:
        # Gradients-To-All: to the ps, which forwards g to all workers, also to this one.
        ticket = group.send("forward", pieces)
        push = ticket
    else:
        # Gradients-To-All: to its own w at once, and to every other worker.
        with tf.control_dependencies(pieces):
            ticket = group.take()
        for part, piece in zip(w, pieces):
            apply(part, piece, flags)
        push = group.send("apply", pieces)

    step.assign_add(1)
    late = ticket - before  # gradients of others that have come in between
    return Update(
        [], loss, [g] * len(group.receivers), version=version, ticket=version, push=push, late=late
    )


def apply(w, g, flags):
    """Applies a gradient, this worker's own or one that has arrived. w, g: a part of each."""
    # Gradients-To-All: g is subtracted from what w is by now. To assign w_k - lr * g would undo all
    # gradients that have come since w_k was read.
    w.assign_sub(flags.learning_rate * g)


def forward(part, run, g, group, lock):
    """Forwards a part of a gradient to all workers; returns the number of that gradient.

    The ps does nothing else. run: which run of the workers it belongs to.
    """

    def send():
        return group.send("apply", [g], part, run)

    # Gradients-To-All: the next gradient waits until all workers have applied this one, its sender
    # as well. So all have one order.
    return lock.execute(send)


STEPS, BATCH_SIZE, LEARNING_RATE = 1000, 32, 0.05  # the defaults
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("steps-per-call", 10, "steps in one call of the graph"),
    ("step-timeout", 20, "seconds to wait at most until all workers have applied a gradient"),
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


def build(group, model, data, flags):
    """Makes step, w, state, and functions that make steps and test w on every n-th row."""
    k, n = group.rank, group.n
    step = tf.Variable(0, dtype=tf.int64)
    values = vectors_of(model)["w"]
    w = [tf.Variable(values[part.begin : part.end]) for part in layout(group.sizes[:1], 1)]
    state = [tf.Variable(v, name=v.name) for v in model.non_trainable_variables]
    rows = data.x_train[k::n], data.y_train[k::n], *data[2:]
    x, y, x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, rows))
    gradient = gradients(model, state, x, y, flags, k)

    def one_step():
        update = algorithm(w, step, gradient, group, flags)
        staleness = tf.cast(update.late, "float64")  # in gradients; a step is each worker's own
        return tf.stack(push_row(update, step, flags)._replace(staleness=staleness))

    @tf.function
    def make_steps(count):
        written = tf.TensorArray(tf.float64, count, element_shape=[len(Push._fields)])
        for i in tf.range(count):
            written = written.write(i, one_step())
        return written.stack()

    @tf.function
    def evaluate():
        return evaluation(model, tf.concat(w, 0), state, x_test, y_test)

    def test():
        if step == flags.steps:
            group.meet("done")  # what is tested and saved has all gradients
        return evaluate()

    return step, w, state, make_steps, test


def main():
    """Runs the task that TF_CONFIG names: a worker trains, a ps forwards gradients."""
    flags = parse_flags()
    group = Group(flags)
    if group.task[0] == "ps":
        return group.serve_forwarder()
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    model = make_model(data)
    metrics = Metrics(group.task, group.workers, model.trainable_variables, flags, group.forwarders)
    metrics.describe(data)
    group.sizes = sizes_of(model)
    step, w, state, make_steps, test = build(group, model, data, flags)
    saved = tf.train.Checkpoint(step=step, w=w, state=state)
    manager = tf.train.CheckpointManager(saved, metrics.directory, 5, checkpoint_name="model.ckpt")
    if metrics.is_chief and manager.latest_checkpoint:
        saved.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    group.begin(step, w, state)
    separate_masks(state, group.rank)
    make_steps(tf.constant(0))  # traces the graph, before the common start
    group.meet("start")
    metrics.step = int(step)
    with group.naming_the_lost():
        train(make_steps, test, metrics, manager, flags)
    group.leave()


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


# region: transport
# Only this region uses tf.distribute.experimental.rpc: another transport can take its place.
rpc = tf.distribute.experimental.rpc
MAX_PART_SIZE = 900_000  # numbers in a message: gRPC refuses one of more than 4 MB
PS_LOST = (  # the errors of a call to a ps that has ended, or listens anew
    tf.errors.UnavailableError,
    tf.errors.InternalError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)
NOT_SERVED = "is not registered"  # stands in the error of a call before the ps listens anew


def check_address(address):
    """Raises OSError if a ps cannot listen at host:port, because gRPC would not say so."""
    host, port = address.rsplit(":", 1)
    host_and_port = host.strip("[]"), int(port)
    try:
        socket.create_connection(host_and_port, 5).close()
    except OSError:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:  # with reuse_port, because a launcher may hold the port
            socket.create_server(host_and_port, family=family, reuse_port=True).close()
        except OSError as error:
            raise OSError(f"no server can listen at {address}: {error.strerror}") from None
    else:
        raise OSError(f"another server listens at {address}")


def listen(address, functions):
    """Serves {name: tf.function}. Returns a listener, which closes the port when it is deleted."""
    listener = rpc.Server.create("grpc", address)
    for name, function in functions.items():
        listener.register(name, function)
    listener.start()
    return listener


def connect(address, seconds):
    """Returns a client of the server at host:port: client.name(...).get_value() calls a function.

    Tries for so many seconds, and then raises TimeoutError. A call that takes longer fails, too.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            return rpc.Client.create("grpc", address, timeout_in_ms=1000 * seconds)
        except (tf.errors.DeadlineExceededError, *PS_LOST):  # it may listen anew in a moment
            time.sleep(0.02)
    raise TimeoutError(f"no ps answered at {address} in {seconds} s")


# region: parts
Part = collections.namedtuple("Part", "vector index dtype begin end slice ps")


def state_of(model):
    """Returns {"state_0": vector, ...}: what Keras keeps beside w, such as moving means."""
    return {f"state_{i}": np.ravel(v) for i, v in enumerate(model.non_trainable_variables)}


def vectors_of(model):
    """Returns {"w": all parameters, "state_0": ...}. Raises ValueError for NaN or several types."""
    dtypes = sorted({v.dtype for v in model.trainable_variables})
    if len(dtypes) > 1:
        raise ValueError(f"w is one vector, of types that don't all match: {', '.join(dtypes)}")
    w = np.concatenate([np.ravel(v) for v in model.trainable_variables])
    return {"w": np.asarray_chkfinite(w), **state_of(model)}


def sizes_of(model):
    """Returns [[name, dtype, size]] of vectors_of(): all that a ps needs to know of a model."""
    return [[name, str(v.dtype), v.size] for name, v in vectors_of(model).items()]


def layout(sizes, ps):
    """Returns [Part]: vectors of these sizes, cut to fit into messages, and dealt to so many ps."""
    parts = []
    for vector, dtype, size in sizes:
        count = min(size, ps * -(-size // (ps * MAX_PART_SIZE))) or 1
        ends = [size * i // count for i in range(count + 1)]
        for i in range(count):
            slice_spec = f"{size} {ends[i]},{ends[i + 1] - ends[i]}"  # in a checkpoint
            parts.append(Part(vector, i, dtype, ends[i], ends[i + 1], slice_spec, i % ps))
    return parts


# region: group -- of this example only
OPTIONAL_WAIT_SECONDS = 30  # for a task without which this one can go on
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other task
OTHER_RUN = "the call is of another run"
COUNT, VECTOR = tf.TensorSpec([], tf.int64), tf.TensorSpec([None])  # the types in a message
GONE = (  # the errors of a call to a task that has ended, hangs, or is about to end
    *PS_LOST,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


class Group:
    """Knows the tasks of TF_CONFIG. Each serves functions by rpc, and calls those of the others.

    Worker 0 gives all others its w, and counts who has come how far: see meet(). Worker k has the
    rank k, and a ps has the next rank after the last worker's.
    """

    def __init__(self, flags):
        """Raises ValueError for a wrong number of tasks, OSError where this one cannot listen."""
        config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = config.cluster_spec().as_dict()
        tasks = [
            (job, index)
            for job in ("chief", "worker", "ps")
            for index in range(len(jobs.get(job, [])))
        ]
        self.task = config.task_type, config.task_id
        self.workers = [task for task in tasks if task[0] != "ps"]
        self.n, self.rank = len(self.workers), tasks.index(self.task)
        self.forwarders = len(tasks) - self.n
        if self.n < 2 or self.forwarders > 1:
            raise ValueError("Gradients-To-All needs two workers at least, and at most one ps")
        self.names = ["%s %d" % task for task in tasks]
        self.addresses = [jobs[job][index] for job, index in tasks]
        self.flags, self.sizes = flags, None  # sizes: sizes_of() the model
        self.run = tf.Variable(0, dtype=tf.int64)  # worker 0 takes a new number at each start
        self.applied = tf.Variable(0, dtype=tf.int64)  # gradients; on a ps, those forwarded
        self.reported = collections.defaultdict(set)  # {event: ranks}, on worker 0
        self.clients = {}  # all are kept: to delete one would close others of the same address
        self.receivers = {}  # {name: client} of those to which this task sends gradients
        check_address(self.addresses[self.rank])

    def begin(self, step, w, state):
        """Begins as a worker: all have the step, the w and the state of worker 0 afterwards."""
        functions = {f"apply_{i}": self.applying(i, part) for i, part in enumerate(w)}
        shared = [step, *w, *state]
        if self.rank == 0:
            self.run.assign(time.time_ns())
            functions |= self.functions_of_chief(shared)
        self.listening = listen(self.addresses[self.rank], functions)
        if self.rank:
            self.find_chief()
            with self.naming_the_lost(self.names[0]):
                for i, v in enumerate(shared):
                    v.assign(getattr(self.chief(), f"get_{i}")().get_value())
        self.applied.assign(step * self.n)
        self.meet("joined")  # from here on, none is left of an earlier run
        workers = range(self.n)
        self.connect([self.n] if self.forwarders else [k for k in workers if k != self.rank])

    def serve_forwarder(self):
        """Serves forward() as the ps, until all workers are done."""
        self.find_chief()
        self.meet("joined")
        self.connect(range(self.n))
        lock = tf.CriticalSection()
        parts = layout(self.sizes[:1], 1)
        functions = {f"forward_{i}": self.forwarding(i, lock) for i in range(len(parts))}
        self.listening = listen(self.addresses[self.rank], functions)
        print("forwards at", self.addresses[self.rank], flush=True)
        self.meet("start")
        self.meet("done")
        self.leave()
        print("done", flush=True)

    def connect(self, ranks):
        """Connects to the tasks to which this one sends gradients."""
        # A ps may wait for a worker twice before it raises the error that names it. Workers wait
        # for the ps longer, so that this error comes first.
        seconds = self.flags.step_timeout * (3 if self.rank < self.n and self.forwarders else 1)
        for k in ranks:
            self.client(k, REQUIRED_WAIT_SECONDS)  # waits until it listens
            self.receivers[self.names[k]] = self.client(k, seconds)

    def client(self, rank, seconds):
        """Returns a client of a task; no call of it takes longer than `seconds`."""
        try:
            if (rank, seconds) not in self.clients:
                self.clients[rank, seconds] = connect(self.addresses[rank], seconds)
            return self.clients[rank, seconds]
        except TimeoutError:
            raise TimeoutError(
                f"{self.names[rank]} did not answer at {self.addresses[rank]} in {seconds} s"
            ) from None

    def chief(self):
        """Returns the client of worker 0 that waits for it longest."""
        return self.client(0, REQUIRED_WAIT_SECONDS)

    def same(self, run):
        """Returns an op that fails unless a call belongs to this run."""
        return tf.debugging.Assert(tf.equal(run, self.run), [OTHER_RUN])

    def applying(self, i, part):
        """Returns the function by which part i of a gradient of another worker arrives."""

        def apply_part(run, g):
            with tf.control_dependencies([self.same(run)]):
                number = self.applied.read_value() if i else self.take()
            with tf.control_dependencies([number]):
                apply(part, tf.ensure_shape(g, part.shape), self.flags)
            return number

        return tf.function(apply_part, [COUNT, VECTOR], autograph=False)

    def forwarding(self, i, lock):
        """Returns the function by which part i of a gradient comes to the ps."""

        def forward_part(run, g):
            self.applied.assign_add(1)
            return forward(i, run, g, self, lock)

        return tf.function(forward_part, [COUNT, VECTOR], autograph=False)

    def take(self):
        """Counts a gradient that is applied here; returns how many were before."""
        # By assign_add() and a read after it, two gradients could get the same number.
        return tf.raw_ops.ResourceCountUpTo(
            resource=self.applied.handle, limit=self.flags.steps * self.n, T=tf.int64
        )

    def send(self, function, pieces, first=0, run=None):
        """Calls `function` of all receivers with the pieces of a vector, from part `first` on.

        Returns the number that a receiver has given the gradient, once all have answered. So a
        worker has one gradient on its way at most.
        """
        run = self.run.read_value() if run is None else run
        pending = [
            (name, getattr(client, f"{function}_{first + i}")(run, piece))
            for name, client in self.receivers.items()
            for i, piece in enumerate(pieces)
        ]
        numbers = []
        for name, reply in pending:
            with tf.name_scope(f"{name.replace(' ', '-')}.{function}"):  # the text of an error
                numbers += tf.nest.flatten(reply.get_value())
        with tf.control_dependencies(numbers):
            return tf.identity(numbers[0])

    def functions_of_chief(self, shared):
        """Returns {name: function} that worker 0 serves for all others. shared: what they read."""

        def note(event, rank):
            return np.array(self.note(event.decode(), rank), np.int64)

        def report(run, event, rank):
            with tf.control_dependencies([self.same(run)]):
                return tf.numpy_function(note, [event, rank], tf.int64)

        def status():
            return tf.numpy_function(lambda: json.dumps(self.status()).encode(), [], tf.string)

        functions = {f"get_{i}": (v.read_value, []) for i, v in enumerate(shared)}
        functions["report"] = report, [COUNT, tf.TensorSpec([], tf.string), COUNT]
        functions["status"] = status, []
        return {name: tf.function(*each, autograph=False) for name, each in functions.items()}

    def status(self):
        """Returns {"alike": what all tasks must have alike, and what worker 0 alone knows}."""
        alike = [(__doc__ or "").split(":")[0], self.addresses, vars(self.flags)]
        waits_for = self.note("joined", -1)
        return {"alike": alike, "sizes": self.sizes, "run": int(self.run), "waits_for": waits_for}

    def find_chief(self):
        """Waits until worker 0 waits for this task; takes the number of the run from it.

        Raises ConnectionError if worker 0 was not started as this task.
        """
        deadline = time.monotonic() + REQUIRED_WAIT_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(*GONE):
                status = json.loads(self.chief().status().get_value().numpy())
                self.sizes = self.sizes or status["sizes"]  # a ps has no model
                if (status["alike"], status["sizes"]) != (self.status()["alike"], self.sizes):
                    raise ConnectionError(
                        f"{self.names[0]} has another script, TF_CONFIG, flags or model than "
                        f"{self.names[self.rank]}: start all alike"
                    )
                if self.rank in status["waits_for"]:  # if not, it is one of an earlier run
                    self.run.assign(status["run"])
                    return
            time.sleep(0.2)
        raise TimeoutError(
            f"{self.names[0]} did not answer at {self.addresses[0]} in {REQUIRED_WAIT_SECONDS} s"
        )

    def note(self, event, rank):
        """Stores, on worker 0, that a task has come so far; returns the ranks that have not."""
        if rank >= 0:
            self.reported[event].add(int(rank))
        return sorted(set(range(len(self.names))) - self.reported[event])

    def report(self, event, rank):
        """Tells worker 0 that the task `rank` has come so far; returns the ranks that have not."""
        if self.rank == 0:
            return self.note(event, rank)
        missing = self.chief().report(self.run.read_value(), tf.constant(event), np.int64(rank))
        return missing.get_value().numpy().tolist()

    def meet(self, event):
        """Returns when all tasks have come so far: it is a barrier.

        Raises TimeoutError, with the names of the missing ones, if none of them comes, and no
        gradient either, for REQUIRED_WAIT_SECONDS.
        """
        seen, deadline = None, np.inf
        with self.naming_the_lost(self.names[0]):
            while missing := self.report(event, self.rank):
                if seen != (int(self.applied), missing):
                    seen = int(self.applied), missing
                    deadline = time.monotonic() + REQUIRED_WAIT_SECONDS
                if time.monotonic() > deadline:
                    names = " and ".join(self.names[k] for k in missing)
                    raise TimeoutError(f"{names} did not answer in {REQUIRED_WAIT_SECONDS} s")
                time.sleep(0.05)

    def leave(self):
        """Closes the port, when all tasks are done: by then all gradients have come everywhere."""
        self.meet("done")
        if self.rank == 0:  # the others ask it whether all are done
            deadline = time.monotonic() + OPTIONAL_WAIT_SECONDS
            while self.note("left", 0) and time.monotonic() < deadline:
                time.sleep(0.05)
        else:
            with contextlib.suppress(*GONE):
                self.report("left", self.rank)
        del self.listening

    @contextlib.contextmanager
    def naming_the_lost(self, called=None):
        """Raises ConnectionError, with the name of the task, if a call fails because one is lost.

        called: its name, if the error has none. An error of a forwarder names it and a worker.
        """
        try:
            yield
        except tf.errors.OpError as error:
            is_lost = isinstance(error, GONE) or OTHER_RUN in error.message
            found = re.findall(r"\b(?:chief|worker|ps)-\d+(?=\.(?:apply|forward))", error.message)
            called = called or min(found, key=lambda name: name.startswith("ps"), default=None)
            if called is None or not is_lost:
                raise
            raise ConnectionError(
                f"{called.replace('-', ' ')} was lost, or did not answer in time: "
                "gradients would be missing there"
            ) from None


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
