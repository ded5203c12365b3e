"""AEAMSGD: AEASGD with Nesterov's momentum on each worker.

    exchange   E = alpha * (w_k - w);  w <- w + E;  w_k <- w_k - E     alpha = lr * rho
    T times    v <- delta * v - lr * g(w_k + delta * v);  w_k <- w_k + v
               each g on a new mini-batch, the first one at the w_k before the exchange

Kind:          parameter server, asynchronous
Paper:         Zhang, Choromanska, LeCun 2015, Deep Learning with Elastic Averaging SGD
Differs from:  AEASGD: each worker has a velocity, and takes gradients at the point ahead
Simplified:    the ps computes E, from w as it is at that moment; in the paper each worker does
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import glob
import json
import os
import shutil
import socket
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

COUNT, VECTOR = tf.TensorSpec([], tf.int64), tf.TensorSpec([None])  # the types in a message


def server(w, step, flags):
    """Returns what a ps (parameter server) does with a part of w, and variables to save beside it.

    w: this part's vector, a tf.Variable. step.take() counts an update, step.read() tells how many.
    """
    alpha, lock = flags.learning_rate * flags.rho, tf.CriticalSection()

    def pull():
        return step.read(), w.read_value()

    # AEASGD: the force draws w to the w_k of a worker, and that w_k to w.
    def push(w_k: VECTOR):
        def move():
            ticket = step.take()  # 0 for the first update; after --steps an error ends training
            with tf.control_dependencies([ticket]):
                force = alpha * (w_k - w.read_value())
            with tf.control_dependencies([w.assign_add(force)]):
                return ticket, step.read(), w_k - force

        return lock.execute(move)

    return {"pull": pull, "push": push}, {}


def update(ps, version, own, gradient, flags):
    """Makes one update on a worker, while the others make theirs. Returns the loss and the reply.

    ps.push(v) calls `push` of each part of w with its part of v, and joins what they return. own:
    this worker's w_k and velocity; version: w's updates at the last push. gradient(w, number): the
    loss at w, and its gradient, on a mini-batch that the number and this worker's rank choose.
    """
    # AEASGD: the exchange, before any gradient is computed. The reply is w_k, moved by the force.
    w_k, v = own
    reply = ps.push(w_k)
    with tf.control_dependencies([reply.w]):
        start = [np.int64(0), 0.0, tf.identity(w_k), reply.w, v]

    # AEAMSGD: each gradient is at the point ahead, to which the velocity alone would lead.
    def local_step(t, _, at, w_k, v):
        loss, g = gradient(at + flags.momentum * v, version * flags.local_steps + t)
        v = flags.momentum * v - flags.learning_rate * g
        return t + 1, loss, w_k + v, w_k + v, v

    _, loss, _, w_k, v = tf.while_loop(lambda t, *_: t < flags.local_steps, local_step, start)
    return loss, reply._replace(w=(w_k, v))


update.begin = lambda w: (w, tf.zeros_like(w))  # w_k and v; they last from update to update
STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("local-steps", 10, "steps between two pushes"),
    ("rho", 2.5, "strength of the force: alpha = lr * rho"),
    ("momentum", 0.9, "delta in the update rule"),
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


def main():
    """Runs the task that TF_CONFIG names: a ps serves, a worker trains."""
    flags, cluster = parse_flags(), Cluster()
    if flags.learning_rate * flags.rho >= 1:
        raise ValueError("--learning-rate times --rho must be below 1, or w runs away")
    if cluster.job == "ps":  # it needs no data: worker 0 saves the first values of w for it
        return serve(cluster, server, flags)
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    train(cluster, make_model(data), data, update, flags)


# From here to the end: the same text in every example with a parameter server, unless marked. -----


# region: protocol
# A worker calls the functions that server() returns for each part of w. Such a call begins with a
# HEADER: [age, rank of the worker, ticket, version, ranks whose gradients make a step]. All ps take
# a new age after the loss of one, and refuse messages of another age. The first part of w counts:
# its reply has the ticket (updates before this one; a pull has none) and the version (updates in
# the w that follows), and the headers to the other parts repeat both. Workers begin together when
# each has sent report("start"), and a ps ends when each has sent it report("done"), or has left.
OTHER_AGE, HEADER = "the ps has another age", tf.TensorSpec([None], tf.int64)
END_OF_WAIT = 2**62  # in a queue, it ends the wait of a call with an error


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


# region: tasks
OPTIONAL_WAIT_SECONDS = 30  # for a task without which this one can go on
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other task


class Cluster:
    """Knows the tasks of the cluster, and which of them this process is, from TF_CONFIG."""

    UNRANKED = ("ps",)  # jobs of tasks that do not train

    def __init__(self):
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.task = self.job, self.index = resolver.task_type, resolver.task_id
        spec = resolver.cluster_spec()
        self.ps = spec.job_tasks("ps")
        jobs = [job for job in ("chief", "worker") if job in spec.jobs]
        self.workers = [(job, index) for job in jobs for index in spec.task_indices(job)]
        self.directory = os.path.abspath(os.getenv("OUTPUT_DIR") or "output")
        self.left = f"{self.directory}/left-%d"  # a file that lets the worker of a rank leave
        if self.job == "worker":  # one beyond those of TF_CONFIG joins a live run
            self.rank = self.index + jobs.count("chief")
        else:
            self.rank = None if self.job in self.UNRANKED else self.workers.index(self.task)


def wait_until(condition, seconds, fault=None):
    """Waits at most `seconds` for condition(); then raises TimeoutError if a fault is named."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            if fault:
                raise TimeoutError(f"{fault} in {seconds} s")
            return
        time.sleep(0.02)


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


# region: serve
class Clock:
    """Counts the updates on the first part of w; on the others it has what a worker tells them."""

    queues = []  # all those of this process in which calls wait
    most = 30  # workers that make steps together: so many more than at the start

    def __init__(self, part, steps):
        self.part, self.steps = part, steps
        self.is_first, self.is_last = part.index == 0, part.slice.startswith(f"{part.end} ")
        self.variable = tf.Variable(0, dtype=tf.int64) if self.is_first else None
        # From the header of the call that is being traced. ranks: whose gradients make this step.
        self.worker = self.ticket = self.version = self.ranks = None

    def read(self):
        """Returns the number of updates so far, a scalar of int64."""
        return self.variable.read_value() if self.is_first else self.version

    def new_queue(self):
        """Returns a queue of counts, in which calls wait; END_OF_WAIT in it ends such a wait."""
        self.queues.append(tf.queue.FIFOQueue(-1, tf.int64, [[]]))
        return self.queues[-1]

    def take(self):
        """Counts an update; returns how many were before. Raises OutOfRangeError after the last."""
        if not self.is_first:
            return self.ticket
        # By assign_add() and a read after it, two workers could get the same number.
        handle = self.variable.handle
        return tf.raw_ops.ResourceCountUpTo(resource=handle, limit=self.steps, T=tf.int64)


def checked_function(function, signature, age, size=None, clock=None):
    """Returns a tf.function that takes a HEADER, and then the arguments of function().

    TensorFlow checks their types; this checks the age and shapes before anything moves.
    """

    def checked(argument):
        is_vector = argument.shape.rank == 1 and argument.dtype.is_floating
        return tf.ensure_shape(argument, [size] if is_vector else argument.shape)

    def answer(header, *arguments):
        age_of_client, *others = tf.unstack(header[:4], 4)
        check = tf.debugging.Assert(tf.equal(age_of_client, age), [OTHER_AGE])
        arguments = list(map(checked, arguments))
        with tf.control_dependencies([check, *arguments]):
            if clock:
                clock.worker, clock.ticket, clock.version = map(tf.identity, others)
                clock.ranks = header[4:]
            return function(*arguments)

    return tf.function(answer, [HEADER, *signature], autograph=False)


def serve_part(part, server, age, flags):
    """Makes a part's variable. Returns {name: function}, and [(name, slice, variable)] to save."""
    size = part.end - part.begin
    v = tf.Variable(tf.zeros([size], part.dtype))
    functions, entries = {}, {part.vector: v}

    def set_values(values):
        return tf.size(v.assign(values))

    common = {"get": (v.read_value, []), "set": (set_values, [tf.TensorSpec([None], part.dtype)])}
    for name, (function, signature) in common.items():
        name = f"{name}_{part.vector}_{part.index}"
        functions[name] = checked_function(function, signature, age, size)
    if part.vector == "w":
        clock = Clock(part, flags.steps)
        answers, beside = server(v, clock, flags)
        for name, function in answers.items():
            signature = function.__annotations__.values()
            function = checked_function(function, signature, age, size, clock)
            functions[f"{name}_{part.index}"] = function
        entries |= beside
        if clock.is_first:
            entries["global_step"] = clock.variable
    return functions, [
        (name, part.slice if v.shape.rank == 1 else "", v) for name, v in entries.items()
    ]


def control_functions(age, next_age, sizes, ranks, members):
    """Returns {name: function} for all parts. ranks: {event: those that reported it}."""

    def on_ps_lost(lost_age):
        if age == lost_age:  # the chief may wait for a worker that waits for the chief
            end_waits(1)
        return np.int64(0)

    def missing(event, rank):
        if rank >= 0:
            ranks[event.decode()].add(int(rank))
        return np.int64(len(members() - ranks[event.decode()] - ranks["done"]))

    word = tf.TensorSpec([], tf.string)
    functions = {
        "status": (lambda: (age.read_value(), tf.constant(json.dumps(sizes))), []),
        "begin": (lambda new: next_age.assign(new).read_value(), [COUNT]),
        "report": (lambda *report: tf.numpy_function(missing, report, tf.int64), [word, COUNT]),
        "report_lost": (lambda *lost: tf.numpy_function(on_ps_lost, lost, tf.int64), [COUNT]),
    }
    return {name: tf.function(*function, autograph=False) for name, function in functions.items()}


def functions_of_parts(cluster, server, age, sizes, flags):
    """Restores this ps's parts from the last checkpoint, and returns their {name: function}."""
    functions, entries = {}, []
    for part in layout(sizes, len(cluster.ps)):
        if part.ps == cluster.index:
            functions_of_part, entries_of_part = serve_part(part, server, age, flags)
            functions |= functions_of_part
            entries += entries_of_part
    restore(cluster.directory, entries)

    def save(step):
        number, file = tf.strings.as_string(step), f"_temp/{cluster.index}"
        path = tf.strings.join([f"{cluster.directory}/model.ckpt-", number, file])
        values = [(name, slice_spec, v.read_value()) for name, slice_spec, v in entries]
        with tf.control_dependencies([write(path, values)]):
            return tf.identity(path)

    return functions | {"save": checked_function(save, [COUNT], age)}


def end_waits(calls):
    """Ends the next waits, as many as `calls`, at each queue of this process."""
    for queue in Clock.queues:
        queue.enqueue_many([[END_OF_WAIT] * calls])


def serve(cluster, server, flags):
    """Serves this ps's parts until all workers are done, or 5 minutes after the first is.

    A ps has neither data nor model. It waits until the chief calls begin(age), reads sizes and
    values from the run directory, and listens anew. So do all ps after the loss of one of them.
    """
    address = os.getenv("PS_ADDRESS") or cluster.ps[cluster.index]
    check_address(address)
    age, next_age = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
    ranks = {"joined": set(range(len(cluster.workers))), "start": set(), "done": set()}
    done = ranks["done"]
    Clock.most += len(cluster.workers)

    def members():
        return {k for k in list(ranks["joined"]) if not os.path.exists(cluster.left % k)}

    while True:
        sizes = read_sizes(cluster.directory) if age != 0 else None
        functions = control_functions(age, next_age, sizes, ranks, members)
        if sizes:
            functions |= functions_of_parts(cluster, server, age, sizes, flags)
        listener = listen(address, functions)
        if age == 0:
            print("listening at", address, flush=True)
        count = functions.get("reports_0", lambda *_: None)  # of a step that workers make together
        while next_age == age and not done & members():
            count(tf.stack([age, 0, 0, 0]), np.int64(len(members())))
            time.sleep(0.05)
        wait_until(lambda: done >= members() or next_age != age, 10 * OPTIONAL_WAIT_SECONDS)
        end_waits(1000)  # also of calls that are on their way: the port stays open while one waits
        Clock.queues.clear()
        del listener
        if next_age == age:
            break
        done.clear()
        age.assign(next_age)
    print("done", flush=True)


# region: checkpoint
# Files have the format of tf.train.Checkpoint. Vectors stand in slices, which any number of ps can
# read. Each ps writes the slices of its own parts, and the chief merges all files.
def write(path, entries):
    """Writes [(name, slice, values)] to a file. Inside of a tf.function it returns an op for it."""
    names, slices, values = zip(*entries)
    return tf.raw_ops.SaveV2(
        prefix=path, tensor_names=names, shape_and_slices=slices, tensors=values
    )


def restore(directory, entries):
    """Assigns [(name, slice, variable)] from the last checkpoint; the first has only some names."""
    saved_names = {name for name, _ in tf.train.list_variables(directory)}
    checkpoint = tf.train.latest_checkpoint(directory)
    if checkpoint.endswith("model.ckpt-0"):
        entries = [entry for entry in entries if entry[0] in saved_names]
    names, slices, variables = zip(*entries)
    dtypes = [v.dtype for v in variables]
    values = tf.raw_ops.RestoreV2(
        prefix=checkpoint, tensor_names=names, shape_and_slices=slices, dtypes=dtypes
    )
    for v, value in zip(variables, values):
        v.assign(value)


def merge(directory, step, prefixes):
    """Merges the files that all ps have written into a checkpoint, and keeps the last five."""
    path = f"{directory}/model.ckpt-{step}"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=path)
    state = tf.train.get_checkpoint_state(directory)
    paths = [p for p in state.all_model_checkpoint_paths if p != path] if state else []
    names = [os.path.basename(p) for p in [*paths[-4:], path]]
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines.extend(f'all_model_checkpoint_paths: "{name}"' for name in names)
    replace_file(f"{directory}/checkpoint", "\n".join(lines) + "\n")
    for kind in "index", "data-?????-of-?????":  # also of a chief that was killed just here
        for file in glob.glob(f"{glob.escape(directory)}/model.ckpt-*.{kind}"):
            name = os.path.basename(file).rpartition(".")[0]
            if name.removeprefix("model.ckpt-").isdigit() and name not in names:
                os.remove(file)
    for partial in glob.glob(f"{glob.escape(directory)}/model.ckpt-*_temp"):
        shutil.rmtree(partial, ignore_errors=True)


def replace_file(path, text):
    """Writes a file so that nobody reads half of it."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def read_sizes(directory):
    """Returns sizes_of() a run directory's model, or None if sessions have trained it."""
    with open(f"{directory}/flags.json") as file:
        return json.load(file).get("sizes")


# region: call
Reply = collections.namedtuple(
    "Reply", "w version ticket ready arrived bytes more pull local_steps", defaults=[None] * 2
)
Pending = collections.namedtuple("Pending", "get_value")


def split_among_parts(argument, parts):
    """Returns a list: for each part its piece of a vector, its item of a list, or the scalar."""
    if isinstance(argument, list):
        return argument
    if argument.shape.rank == 0:
        return [argument] * len(parts)
    return tf.split(argument, [part.end - part.begin for part in parts])


class Ps:
    """Calls all ps for a worker: ps.push(v) calls `push` of each part of w with its piece of v."""

    def __init__(self, cluster, sizes, seconds=REQUIRED_WAIT_SECONDS):
        """Waits until all ps listen. No call of a part takes longer than `seconds`."""
        self.cluster, self.sizes, self.seconds = cluster, sizes, seconds
        self.age = tf.Variable(0, dtype=tf.int64)  # of all ps, once this worker has joined them
        self.rank = cluster.rank
        self.parts = {}
        for part in layout(sizes, len(cluster.ps)):
            self.parts.setdefault(part.vector, []).append(part)
        # A client knows only what its ps serves at that time: here, control_functions().
        self.controls = [connect(address, REQUIRED_WAIT_SECONDS) for address in cluster.ps]
        self.clients = []

    def __getattr__(self, name):  # serve_part() registers `push` of part 0 as push_0
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name, *arguments, before=None, after=None):
        """Calls the function of each part of w, and returns a Reply.

        The first part answers first: its error ends the run before another part has moved. A part
        may return more vectors after its piece of w: `more` has a list of the pieces of each. Where
        the first part decides for all, the others get arguments by `before`, and obey in `after`.
        """
        parts = self.parts["w"]
        sent = [split_among_parts(argument, parts) for argument in arguments]
        with tf.control_dependencies(sum(sent, [])):
            ready = tf.timestamp()
        with tf.control_dependencies([ready]):
            first, *others = zip(parts, *sent, strict=True)
            pending = [self.call_one(before, *piece) for piece in others if before]
            others = [piece[:1] if before else piece for piece in others]
        with tf.control_dependencies(sum([reply.get_value() for reply in pending], [])):
            replies = [self.call_one(name, *first).get_value()]
        counts = [tf.ensure_shape(v, []) for v in replies[0] if v.dtype == tf.int64]
        ticket, version = counts[0], counts[-1]  # a pull has one count, which is both
        shared = ticket, version, *[v for v in replies[0] if v.dtype == tf.int32]
        with tf.control_dependencies(counts):
            pending = [
                self.call_one(after or name, part, *piece, counts=shared) for part, *piece in others
            ]
        replies.extend(reply.get_value() for reply in pending)
        with tf.control_dependencies(sum(replies, [])):
            arrived = tf.timestamp()
        returned = [[v for v in reply if v.dtype.is_floating] for reply in replies]
        transferred = [v for v in sum(sent + returned, []) if v.shape.rank != 0]
        size = tf.add_n([tf.size(v, tf.int64) * v.dtype.size for v in transferred])
        w, *more = [list(pieces) for pieces in zip(*returned)] or [None]
        if w:
            w = tf.ensure_shape(tf.concat(w, 0), [parts[-1].end])
        return Reply(w, version, ticket, ready, arrived, size, more)

    def call_one(self, name, part, *arguments, counts=(0, 0)):
        """Begins a call of one part's function. Returns a Pending, whose get_value() is a list."""
        function = getattr(self.clients[part.ps], f"{name}_{part.index}")
        pending = function(self.header(*counts), *arguments)

        def get_value():
            with tf.name_scope(f"ps-{part.ps}.{name}"):  # the text of an error has it
                return tf.nest.flatten(pending.get_value())

        return Pending(get_value)

    def header(self, ticket=0, version=0, ranks=()):
        """Returns the HEADER of a message: [age, rank, ticket, version, *ranks], of int64."""
        counts = tf.stack([self.age, *[tf.cast(n, tf.int64) for n in (self.rank, ticket, version)]])
        return tf.concat([counts, tf.cast(ranks, tf.int64)], 0)

    def ages(self):
        """Returns the age of each ps, a list. Raises ValueError if one has another model."""
        ages = []
        for client, address in zip(self.controls, self.cluster.ps):
            try:
                age, sizes = client.status().get_value()
            except tf.errors.DeadlineExceededError:
                raise TimeoutError(f"no ps answered at {address} in time") from None
            sizes = json.loads(sizes.numpy())
            if sizes not in (None, self.sizes):
                raise ValueError(f"the ps have another model: {sizes}, not {self.sizes}")
            ages.append(int(age))
        return ages

    def join(self, first_values=None):
        """Waits until all ps have one age. The chief, which has first_values, begins it.

        Every ps then has the values of the last checkpoint, also one that was not lost.
        """
        now = np.int64(time.time_ns())

        def have_same_age():
            with contextlib.suppress(PS_LOST):  # a ps begins just now, which may cut off its reply
                age, *others = set(self.ages())
                if age and not others:
                    self.age.assign(age)
                    return True
                if first_values:
                    if not tf.train.latest_checkpoint(self.cluster.directory):
                        self.save_first(first_values)
                    for client in self.controls:
                        client.begin(now).get_value()
            return False

        wait_until(have_same_age, REQUIRED_WAIT_SECONDS, "the chief made no model")
        if not self.clients:
            self.clients = [connect(address, self.seconds) for address in self.cluster.ps]

    def set_values(self, vectors):
        """Assigns to the parts of vectors. vectors: {name: values [size]}."""
        for name, values in vectors.items():
            for part in self.parts.get(name, []):
                piece = tf.constant(values[part.begin : part.end])
                self.call_one(f"set_{name}", part, piece).get_value()

    def get_values(self, name):
        """Returns the values of a vector from all ps, a NumPy array [size]."""
        pieces = [self.call_one(f"get_{name}", part).get_value()[0] for part in self.parts[name]]
        return np.concatenate(pieces)

    def report(self, event, rank=-1):
        """Reports an event to all ps, unless rank is -1. Returns how many workers have not."""
        replies = [client.report(tf.constant(event), np.int64(rank)) for client in self.controls]
        return [int(reply.get_value()) for reply in replies][0]

    def save_first(self, values):
        """Writes the first checkpoint, without any ps. values: {name: values [size]}."""
        path = f"{self.cluster.directory}/model.ckpt-0_temp/all"
        parts = layout(self.sizes, len(self.cluster.ps))
        entries = [(p.vector, p.slice, values[p.vector][p.begin : p.end]) for p in parts]
        write(path, [*entries, ("global_step", "", np.int64(0))])
        merge(self.cluster.directory, 0, [path])

    def save(self, step):
        """Writes a checkpoint of what all ps have, and names it after `step`."""
        pending = [client.save(self.header(), np.int64(step)) for client in self.clients]
        merge(self.cluster.directory, step, [reply.get_value() for reply in pending])


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


# region: facts
# A line of metrics-<task>.csv is a push or a test. A push has its number, global_step, the loss of
# its last mini-batch, the bytes pulled and pushed, and the wait_seconds from gradient to arrival. A
# test has the times of its end and begin, global_step, and TEST. Times are seconds since 1970.
PUSH = "push_time,pull_time,global_step,local_steps,examples,loss,staleness,bytes,wait_seconds"
Push = collections.namedtuple("Push", PUSH)
TEST = {"test_loss": "min"} | {f"test_{name}": better for name, (better, _) in METRICS.items()}


def push_row(pull_time, version, loss, reply, flags):
    """Returns the columns PUSH of an update, a tensor [9] of float64."""
    local_steps = reply.local_steps
    if local_steps is None:
        local_steps = getattr(flags, "local_steps", 1)
    if reply.pull:  # that of this update, if it has made one
        pull_time, version = reply.pull.arrived, reply.pull.version
    row = Push(
        push_time=reply.arrived,
        pull_time=pull_time,
        global_step=reply.ticket + 1,
        local_steps=local_steps,
        examples=local_steps * flags.batch_size,
        loss=loss,
        staleness=reply.ticket - version,
        bytes=reply.bytes,
        wait_seconds=reply.arrived - reply.ready,
    )
    return tf.stack([tf.cast(column, "float64") for column in row])


class Metrics:
    """Writes into OUTPUT_DIR what a task leaves: metrics-<task>.csv; the chief also flags.json."""

    def __init__(self, cluster, model, flags):
        """Raises ValueError for bad METRICS, a bad OUTPUT_DIR, or another model's checkpoint."""
        for mode, metric in METRICS.values():
            # Not an object of Keras with update_state(): it would average over the tests before.
            if mode not in ("max", "min") or hasattr(metric, "update_state"):
                raise ValueError(f'METRICS needs ("max" or "min", function), not {(mode, metric)}')
        directory = cluster.directory
        self.directory = directory
        self.is_chief, self.flags = cluster.rank == 0, flags
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
            sizes = sizes_of(model)
            if tf.train.latest_checkpoint(directory) and read_sizes(directory) != sizes:
                raise ValueError(f"{directory} has a checkpoint of another model")
            facts = {
                "example": (__doc__ or os.path.basename(__file__)).split(":")[0],
                "script": __file__,
                "tasks": ["%s-%d" % worker for worker in cluster.workers],
                "ps": len(cluster.ps),
                "metrics": TEST,
                "variables": [[v.path, list(v.shape)] for v in model.trainable_variables],
                "sizes": sizes,
                "arguments": vars(flags),
                "versions": {"tensorflow": tf.__version__},
            }
            replace_file(f"{directory}/flags.json", json.dumps(facts, indent=2))

    def begin(self, job, index, data):
        """Opens the file of this task, and writes numbers that tell its data from other data."""
        # Line by line, so that even kill -9 loses none; it costs microseconds.
        self.file = open(f"{self.directory}/metrics-{job}-{index}.csv", "a", 1)
        # The line before a restart may have been cut short.
        print("# restart" if self.file.tell() else f"{PUSH},{','.join(TEST)}", file=self.file)
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


# region: train
MORE_FLAGS += [("updates-per-call", 10, "updates in one call; take 1 where one takes seconds")]
MAX_PS_LOSSES = 5  # a worker gives up when it loses a ps more often than this between two updates


def train(cluster, model, data, update, flags, seconds=REQUIRED_WAIT_SECONDS, backups=0):
    """Updates w until all updates are made; the chief also tests and saves it.

    seconds: within which a ps must answer, as after a step of all workers. backups: how many
    workers no step waits for. If there is a function update.begin(w), a worker begins with what it
    returns as w_k, and keeps what update() returns; otherwise it takes w as it is on the ps.
    """
    begin = getattr(update, "begin", None)
    metrics, k, n = Metrics(cluster, model, flags), cluster.rank, len(cluster.workers)
    ps = Ps(cluster, sizes_of(model), seconds)
    first_values = vectors_of(model) if metrics.is_chief else None
    metrics.begin(*cluster.task, data)
    rows = getattr(update, "rows", slice(k, None, n) if k < n else slice(None))  # all: it joins
    arrays = data.x_train[rows], data.y_train[rows], data.x_test, data.y_test
    x, y, x_test, y_test = [tf.constant(np.asarray_chkfinite(array)) for array in arrays]
    gradient = gradients(model, model.non_trainable_variables, x, y, flags, k)
    evaluate = evaluation(model, x_test, y_test, ps)

    @tf.function(autograph=False)
    def pull():
        reply = ps.pull()
        return reply.arrived, reply.version, reply.w

    @tf.function(autograph=False)
    def updates(i, *pulled):
        def one(i, pull_time, version, w_k):
            loss, reply = update(ps, version, w_k, gradient, flags)
            row = push_row(pull_time, version, loss, reply, flags)
            tf.numpy_function(metrics.push, [row], [])
            return i + 1, reply.arrived, reply.version, reply.w

        def is_due(i, _, version, w_k):
            return (i < flags.updates_per_call) & (version < flags.steps)

        return tf.while_loop(is_due, one, [i, *pulled], parallel_iterations=1)[1:]

    def pull_anew(pulled=None):
        pull_time, version, w = pull()
        if begin:
            w = pulled[2] if pulled else begin(w)
        return pull_time, version, w

    def load_model_state():
        for i, v in enumerate(model.non_trainable_variables):
            value = np.reshape(ps.get_values(f"state_{i}"), v.shape)
            # The seeds differ, so that no two workers drop the same units.
            v.assign(value + k if v.name == "seed_generator_state" else value)

    def test_and_save():
        began, (_, version, w) = time.time(), pull()
        ps.set_values(state_of(model))
        metrics.test(began, int(version), *map(float, evaluate(w)))
        ps.save(metrics.step)

    def train_until_done(is_first):
        ps.join(first_values)
        ps.report("joined", k)
        load_model_state()
        with contextlib.suppress(tf.errors.OutOfRangeError):  # every update is taken
            pulled = None
            if is_first:  # one update: it traces the graph, before the common start
                pulled = updates(np.int32(flags.updates_per_call - 1), *pull_anew())
            ps.report("start", k)
            if is_first:  # those that a step does not wait for may come later
                wait_until(lambda: ps.report("start", k) <= backups, OPTIONAL_WAIT_SECONDS)
            pulled = pull_anew(pulled)
            saved_step = int(pulled[1])  # after a loss it is less than this worker's last update
            while pulled[1] < flags.steps:
                if os.path.exists(cluster.left % k):
                    return
                pulled = updates(np.int32(0), *pulled)
                if metrics.is_chief and metrics.step >= saved_step + flags.checkpoint_steps:
                    test_and_save()
                    saved_step, pulled = metrics.step, pull_anew(pulled)
        if metrics.is_chief:
            wait_until(lambda: ps.report("done") <= 1, OPTIONAL_WAIT_SECONDS)
            test_and_save()
        with contextlib.suppress(tf.errors.CancelledError):  # a ps ended before it replied
            ps.report("done", k)

    losses, lost_at = 0, None
    while True:
        try:
            train_until_done(is_first=metrics.step == 0)  # it has made no update
            print("done, the output is in", cluster.directory)
            return
        except tf.errors.OpError as error:
            losses = losses + 1 if lost_at == metrics.step else 1
            lost_at = metrics.step
            begins_anew = OTHER_AGE in error.message or NOT_SERVED in error.message
            if losses > MAX_PS_LOSSES or not (isinstance(error, PS_LOST) or begins_anew):
                raise
            print("a ps was lost: training goes on from the last checkpoint", flush=True)
            if isinstance(error, PS_LOST):
                for client in ps.controls:
                    with contextlib.suppress(PS_LOST):
                        client.report_lost(ps.age).get_value()


if __name__ == "__main__":
    main()
