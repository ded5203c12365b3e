"""Sparse-Embeddings: HogWild on word vectors, where a push touches a few rows of a large table.

    rows    those of the words of a mini-batch, each once
    pull    w_k <- w;  e_k <- e[rows]
    push    w <- w - lr * g(w_k);  e[rows] <- e[rows] - row_lr * g(e_k)     no lock; all other rows
            stay on the ps, unchanged

Kind:          parameter server, asynchronous
Paper:         Niu, Recht, Re, Wright 2011, Hogwild!: A Lock-Free Approach to Parallelizing SGD
Differs from:  HogWild: sparse gradients of a table, of which each ps has every n-th row
Simplified:    the model is skip-gram (Mikolov et al. 2013); a batch shares its noise words
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import functools
import glob
import json
import os
import re
import shutil
import socket
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

COUNT, VECTOR = tf.TensorSpec([], tf.int64), tf.TensorSpec([None])  # the types in a message
IDS, VALUES = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None])


def server(ps, w, step, flags):
    """Returns what a ps does with its part of w and its rows of e, and variables to save beside w.

    ps: how many there are. w: a tf.Variable, a vector with this part's numbers. step: counts all
    updates: read() returns how many there were, take() counts one more.
    """
    e = Rows(step.part.ps, ps, flags)

    def pull():
        return step.read(), w.read_value()

    def pull_rows(ids: IDS):
        here = e.here(ids)
        with tf.control_dependencies([here]):
            version = step.read()  # before w and e: updates in between count as what they lack
        with tf.control_dependencies([version]):
            return version, w.read_value(), tf.gather(e.table, here)

    # Sparse-Embeddings: HogWild, in one message. Of e only these rows move.
    def push(delta: VECTOR, ids: IDS, change: VALUES):
        here = e.here(ids, change)
        with tf.control_dependencies([here]):
            ticket = step.take()  # its error ends training after --steps updates
        with tf.control_dependencies([ticket]):
            w.assign_sub(delta)
            e.table.scatter_sub(tf.IndexedSlices(change, here))
            return ticket, ticket + 1

    return {"pull": pull, "pull_rows": pull_rows, "push": push}, {e.name: e.table}


def update(ps, version, w_k, batches, flags):
    """Makes one update on a worker, while the others make theirs. Returns the loss and the reply.

    ps.push(v, ...) calls `push` of each part of w with its part of v, and with its item of a list.
    version: how many updates there were at the last push.
    """
    draw, gradient = batches
    ids, places = draw(version)

    # Sparse-Embeddings: pull w and the rows that the mini-batch needs; w_k, from before, is older.
    pulled = ps.pull_rows(*cut_rows(ps, ids))
    e_k = joined_rows(ids, pulled.more[0])
    loss, g, of_rows = gradient(pulled.w, e_k, places)

    # Sparse-Embeddings: push, however late. Others have made ticket - version updates since then.
    pushed = ps.push(flags.learning_rate * g, *cut_rows(ps, ids, flags.row_rate * of_rows))
    return loss, pushed._replace(w=pulled.w, pull=pulled, bytes=pulled.bytes + pushed.bytes)


STEPS, BATCH_SIZE, LEARNING_RATE = 4000, 256, 0.1  # the defaults
MORE_FLAGS = [  # (name, default, help) of the flags that only this example has
    ("row-rate", 10.0, "row_lr in the update rule; row_lr / B is the step of a pair"),
    ("words", 5000, "the most frequent words of the text that get vectors"),
    ("dimensions", 32, "numbers in the vector of a word"),
    ("noise-words", 64, "words drawn at random for a batch"),
]


# region: text -- put your own text and model here
DATASET, DATASETS = "topics", "topics (help texts that come with Python), or a text file"
WINDOW, WEIGHT = 5, 5  # words to each side that are neighbours; what the noise counts
# The share of neighbours that are told from noise; more is better.
METRICS = {"accuracy": ("max", None)}
Data = collections.namedtuple("Data", "x_train y_train x_test y_test vocabulary")


def load_data(name, words):
    """Returns pairs (word, neighbour) by the numbers of their rows, and the most frequent words.

    Word number r has row r, and row words + r as a neighbour. Pairs for training and for the test
    are from different paragraphs. y_test [rows, 2] has a neighbour and a noise word.
    """
    if name == "topics":
        from pydoc_data.topics import topics  # here, for only a task that trains needs it

        text = "\n\n".join(topics[key] for key in sorted(topics))
    else:
        text = open(name, encoding="utf-8").read()
    paragraphs = [re.findall(r"[^\W\d_]+", part.lower()) for part in text.split("\n\n")]
    count = collections.Counter(word for paragraph in paragraphs for word in paragraph)
    vocabulary = [word for word, times in count.most_common(words) if times > 2]
    number_of = {word: number for number, word in enumerate(vocabulary)}

    # Of the most frequent words only a part is kept: they say little of their neighbours.
    often = np.array([count[word] for word in vocabulary]) / max(1, sum(count.values()))
    random, pairs = np.random.RandomState(0), ([], [])
    for number, paragraph in enumerate(paragraphs):
        said = [number_of[word] for word in paragraph if word in number_of]
        said = [word for word in said if random.rand() < (0.001 / often[word]) ** 0.5]
        for place, word in enumerate(said):
            near = said[max(0, place - WINDOW) : place] + said[place + 1 : place + 1 + WINDOW]
            pairs[number % 10 == 9].extend((word, words + other) for other in near)
    if not pairs[0] or not pairs[1]:
        raise ValueError(f"{name} is too short: ten paragraphs at least, of words that recur")
    train, test = [np.array(rows, np.int64) for rows in pairs]
    noise = train[random.randint(len(train), size=len(test)), 1]
    return Data(*train.T, test[:, 0], np.stack([test[:, 1], noise], 1), vocabulary)


def make_layer(dimensions):
    """Makes what changes a word's vector before it meets neighbours; at first it changes none."""
    layer = keras.layers.Dense(dimensions, kernel_initializer="identity")
    return keras.Sequential([keras.Input([dimensions]), layer])


def loss(true, noise):
    """Returns the cross-entropy of telling neighbours from noise, a scalar."""
    return tf.reduce_mean(tf.nn.softplus(-true)) + WEIGHT * tf.reduce_mean(tf.nn.softplus(noise))


# endregion: text


def main():
    """Runs the task that TF_CONFIG names: a ps serves, a worker trains."""
    flags, cluster = parse_flags(), Cluster()
    if cluster.job == "ps":  # it needs no data: it makes the first rows of e by itself
        return serve(cluster, functools.partial(server, len(cluster.ps)), flags)
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset, flags.words)
    train(cluster, make_layer(flags.dimensions), data, update, flags)
    if cluster.rank == 0:
        show(data.vocabulary, cluster, flags)


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


# region: rows -- of this example only
class Rows:
    """Holds one ps's rows of the table e: row `id` is on ps number id % ps, there at id // ps.

    Each word has two rows, one as a word and one as a neighbour.
    """

    def __init__(self, index, ps, flags):
        """Makes the table [rows here, dimensions]: words at random from the seed, neighbours 0."""
        self.index, self.ps, self.rows = index, ps, 2 * flags.words
        self.name = f"e_{index}_of_{ps}"
        words, both = [len(range(index, end, ps)) for end in (flags.words, self.rows)]
        self.table = tf.Variable(tf.zeros([both, flags.dimensions]))  # neighbours stay 0
        most = 0.5 / flags.dimensions
        for begin in range(0, words, 100_000):  # not all at once, which would take twice the memory
            places = tf.range(begin, min(begin + 100_000, words))
            shape, seed = [len(places), flags.dimensions], [flags.seed, begin * ps + index]
            values = tf.random.stateless_uniform(shape, seed, -most, most)
            self.table.scatter_update(tf.IndexedSlices(values, places))

    def here(self, ids, values=None):
        """Returns the places in the table of the rows `ids`, [n].

        Raises InvalidArgumentError if one is not here, or if the values are not [n, dimensions].
        """
        mine = (ids % self.ps == self.index) & (0 <= ids) & (ids < self.rows)
        known = [tf.debugging.Assert(tf.reduce_all(mine), ["not all rows are on this ps", ids])]
        if values is not None:
            match = tf.shape(values) == [tf.size(ids), self.table.shape[1]]
            known.append(tf.debugging.Assert(tf.reduce_all(match), ["not a value for each row"]))
        with tf.control_dependencies(known):
            return ids // self.ps


def cut_rows(ps, ids, *values):
    """Returns a list for ids [n], and for each of the values [n, ...]: the rows of each ps."""
    count = len(ps.cluster.ps)
    if len(ps.parts["w"]) != count:
        raise ValueError(f"w has {len(ps.parts['w'])} parts on {count} ps: each needs one, for e")
    owner = tf.cast(ids % count, tf.int32)
    return [tf.dynamic_partition(v, owner, count) for v in (ids, *values)]


def joined_rows(ids, rows):
    """Returns the rows [n, dimensions] of ids [n] in their order. rows: a list, each ps's rows."""
    owner = tf.cast(ids % len(rows), tf.int32)
    places = tf.dynamic_partition(tf.range(tf.size(ids)), owner, len(rows))
    return tf.dynamic_stitch(places, [tf.ensure_shape(values, [None, None]) for values in rows])


# region: word_pairs -- of this example only
def scores(model, w, word, others):
    """Returns products of the words' vectors, changed by the model at w, with others: a list.

    others: [(the equation of tf.einsum, vectors)].
    """
    shapes = [v.shape for v in model.trainable_variables]
    parts = tf.split(w, [int(np.prod(shape)) for shape in shapes])
    changed, _ = model.stateless_call(list(map(tf.reshape, parts, shapes)), [], word)
    return [tf.einsum(how, changed, other) for how, other in others]


def gradients(model, state, words, neighbours, flags, rank):
    """Returns (draw, gradient). state is empty: this model keeps nothing beside w.

    draw(number): the ids of the rows that a mini-batch needs, each once, and the place of each of
    its words among them. Its noise words are the neighbours in other pairs: as frequent as those.
    gradient(w, e, places): the loss at w and these rows, and its gradients.
    """
    b, k = flags.batch_size, flags.noise_words

    def draw(number):
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        pairs = tf.random.stateless_uniform([b + k], key, 0, len(words), "int32")
        ids = tf.concat([tf.gather(words, pairs[:b]), tf.gather(neighbours, pairs)], 0)
        return tf.unique(ids)

    def gradient(w, e, places):
        with tf.GradientTape() as tape:
            tape.watch([w, e])
            word, near, noise = tf.split(tf.gather(e, places), [b, b, k])
            value = loss(*scores(model, w, word, [("bd,bd->b", near), ("bd,kd->bk", noise)]))
        g, of_rows = tape.gradient(value, [w, e])
        return value, g, tf.convert_to_tensor(of_rows)

    return draw, gradient


def evaluation(model, words, others, ps):
    """Returns evaluate(w) -> (the loss, the share of test pairs that score above their noise)."""

    @tf.function(autograph=False)
    def score(w, words, others):
        ids, places = tf.unique(tf.concat([words, tf.reshape(others, [-1])], 0))
        e = tf.gather(joined_rows(ids, ps.pull_rows(*cut_rows(ps, ids)).more[0]), places)
        word, others = e[: tf.size(words)], e[tf.size(words) :]
        near, noise = others[::2], others[1::2]
        return scores(model, w, word, [("bd,bd->b", near), ("bd,bd->b", noise)])

    def evaluate(w):
        n = MAX_PART_SIZE // (3 * model.output_shape[-1])  # so many pairs' rows fit into a message
        pairs = [score(w, words[i : i + n], others[i : i + n]) for i in range(0, len(words), n)]
        true, noise = [tf.concat(one, 0) for one in zip(*pairs)]
        return loss(true, noise), tf.reduce_mean(tf.cast(true > noise, "float32"))

    return evaluate


def show(vocabulary, cluster, flags):
    """Prints the words whose vectors point the same way, and the bytes of a push."""
    words, ps = np.empty([len(vocabulary), flags.dimensions], np.float32), len(cluster.ps)
    for i in range(ps):
        rows = len(range(i, 2 * flags.words, ps))
        (read,) = tf.raw_ops.RestoreV2(  # of the table only the rows of these words
            prefix=tf.train.latest_checkpoint(cluster.directory),
            tensor_names=[f"e_{i}_of_{ps}"],
            shape_and_slices=[f"{rows} {flags.dimensions} 0,{len(words[i::ps])}:-"],
            dtypes=[tf.float32],
        )
        words[i::ps] = read
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    for word in "function", "string", "exception", "import", "module", "bytes", "tuple", "loop":
        if word in vocabulary:
            near = np.argsort(-words @ words[vocabulary.index(word)])[1:6]
            print("%-10s is near %s" % (word, ", ".join(vocabulary[i] for i in near)))
    path = "%s/metrics-%s-%d.csv" % (cluster.directory, *cluster.task)
    rows = np.genfromtxt(path, delimiter=",", names=True, invalid_raise=False)
    moved, whole = np.nanmean(rows["bytes"]), 2 * words.size * 2 * 4  # two rows a word, both ways
    guess = np.log(1 + WEIGHT) + WEIGHT * np.log(1 + 1 / WEIGHT)
    print(f"A model that knows only how frequent words are has accuracy 50%, loss {guess:.3f}")
    sizes = f"{moved / 1e3:.0f} KB of rows; whole tables would be {whole / 1e3:.0f} KB"
    print(f"An update moved {sizes}, {whole / moved:.1f} times as much", flush=True)


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
