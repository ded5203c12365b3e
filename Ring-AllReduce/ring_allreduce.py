"""Ring-AllReduce: workers sum their gradients by passing chunks around a ring.

    N workers, g_k in N chunks; worker k sends to k + 1 and receives from k - 1; all indices mod N
    scatter-reduce    s = 0 ... N - 2: worker k sends chunk k - s, and adds what it receives to its
                      own chunk k - s - 1; at the end its chunk k + 1 is the sum over all workers
    all-gather        s = 0 ... N - 2: worker k sends chunk k + 1 - s, and what it receives takes
                      the place of its own chunk k - s; at the end all its chunks are sums
    each worker       w <- w - lr * (g_1 + ... + g_N) / N, on its own copy of w

Kind:          all-reduce
Paper:         Patarasuk, Yuan 2009, Bandwidth Optimal All-reduce Algorithms for Clusters
Differs from:  Collective-AllReduce: this script builds the ring itself, from sockets and NumPy
Simplified:    the ring starts when the whole gradient is computed; nothing overlaps
Run:           bash run.sh
"""
import argparse
import collections
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import select
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push moved")


def algorithm(w, step, batch_loss, ring, flags):
    """One step of one worker; all workers take it together.

    w: the variables, each worker's own copy. step: the counter of steps.
    batch_loss(w, number): the scalar loss on mini-batch `number` at w.
    """
    version = step.read_value()
    w_k = [tf.identity(v) for v in w]
    loss = batch_loss(w_k, version)
    g = gradients(loss, w_k)

    # Ring: all gradients go around as one vector. All workers get the same sum, to the last bit, so
    # their copies of w stay the same.
    def numpy_all_reduce(vector):
        x, before = vector.copy(), ring.sent + ring.received
        all_reduce(x, ring)
        return x, ring.sent + ring.received - before
    vector = tf.concat([tf.reshape(d, [-1]) for d in g], 0)
    # stateful=False, or TensorFlow would take the times of a push too late.
    total, moved = tf.numpy_function(
        numpy_all_reduce, [vector], [tf.float32, tf.int64], stateful=False)
    mean = tf.split(total / ring.n, [v.shape.num_elements() for v in w])
    for v, d in zip(w, mean):
        v.assign_sub(flags.learning_rate * tf.reshape(d, v.shape))
    step.assign_add(1)
    return Update(w_k, loss, g, version, version, total, moved)


def all_reduce(x, ring, on_step=lambda x: None):
    """Replaces x, a flat vector, by the sum of the x of all workers. All workers must call it.

    In each phase a worker sends all chunks but one: 2 (N - 1) / N times the size of x in all.
    on_step(x) is called after each of the 2 (N - 1) steps.
    """
    N, k = ring.n, ring.rank
    chunk = np.array_split(x, N)  # views; the first are longer by one if N does not divide
    received = np.empty_like(chunk[0])

    # Ring: scatter-reduce. Each chunk goes around, and every worker adds its part to it.
    for s in range(N - 1):
        mine, theirs = chunk[(k - s) % N], chunk[(k - s - 1) % N]
        ring.exchange(mine, received[:theirs.size])
        theirs += received[:theirs.size]
        on_step(x)

    # Ring: all-gather. The finished chunks go around once more, to the workers that lack them.
    for s in range(N - 1):
        mine, theirs = chunk[(k + 1 - s) % N], chunk[(k - s) % N]
        ring.exchange(mine, theirs)
        on_step(x)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--steps-per-call", number(int, 1), 10, "steps in one call of the graph", metavar="C")
    add("--step-timeout", number(int, 1), 60, "longest wait for a neighbour, in seconds",
        metavar="S")
    add("--show", number(int, 0, 10), 0, "print every step of an all-reduce of this many numbers",
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


# region: peers
REQUIRED_WAIT_SECONDS = 120  # for a worker without which this one cannot go on


class Cluster:
    """The workers, and which of them this is, from TF_CONFIG."""

    def __init__(self):
        config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = {"chief" if job == "master" else job: tasks
                for job, tasks in config.cluster_spec().as_dict().items()}
        task = "chief" if config.task_type == "master" else config.task_type, config.task_id
        self.workers = [(job, index) for job in ("chief", "worker")
                        for index in range(len(jobs.get(job, [])))]
        self.addresses = [jobs[job][index] for job, index in self.workers]
        self.rank = self.workers.index(task)  # raises where there is no such task
        self.name = "%s-%d" % task
# endregion: peers


# region: ring
GREETING = b"Ring-AllReduce"


class Ring:
    """The two neighbours of a worker: it sends to the right one and receives from the left one."""

    def __init__(self, cluster, timeout):
        self.addresses, self.rank, self.timeout = cluster.addresses, cluster.rank, timeout
        self.names, self.n = ["%s %d" % task for task in cluster.workers], len(cluster.workers)
        self.sent = self.received = 0  # bytes of vectors

    def name(self, side):
        """The name of a neighbour, 1: the right one, -1: the left one."""
        return self.names[(self.rank + side) % self.n]

    def exchange(self, out, into):
        """Sends `out` while it receives `into`: if all first sent, and then received, none would
        ever get rid of a vector that is longer than the buffers on its way."""
        out, into = memoryview(out.view(np.uint8)), memoryview(into.view(np.uint8))
        self.sent, self.received = self.sent + len(out), self.received + len(into)
        while out or into:
            come, go, _ = select.select([self.right] + [self.left] * bool(into),
                                        [self.right] * bool(out), [], self.timeout)
            side = 1
            try:
                if self.right in come:  # where nothing comes from but its end
                    raise ConnectionError("it closed the connection")
                if self.right in go:
                    out = out[self.right.send(out):]
                side = -1 if into else 1
                if self.left in come:
                    size = self.left.recv_into(into)
                    if not size:
                        raise ConnectionError("it closed the connection")
                    into = into[size:]
                if not come and not go:
                    raise TimeoutError("it is silent, or waits itself, for %s s now" % self.timeout)
            except BlockingIOError:
                pass  # select was wrong
            except OSError as error:
                raise ConnectionError("%s, the %s neighbour: %s" % (
                    self.name(side), "left" if side < 0 else "right", error)) from error

    def join(self, alike):
        """Connects to the neighbours; returns when all have. alike: what all must have alike."""
        if self.n == 1:
            return
        self.hash = hashlib.sha256(json.dumps([self.addresses, alike]).encode()).digest()
        self.deadline = time.time() + REQUIRED_WAIT_SECONDS
        timeout, self.timeout = self.timeout, REQUIRED_WAIT_SECONDS
        with self.listen() as listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
            right = pool.submit(self.connect)
            self.left, self.right = self.accept(listener, right), right.result()
            for s in self.left, self.right:
                s.setblocking(False)
            all_reduce(np.ones(self.n), self)  # whose result nobody has before all have joined
        self.timeout = timeout

    def greeting(self, side=0):
        """What this worker says first, or what a neighbour must say."""
        return b"%s 1, worker %5d of %5d, %s" % (
            GREETING, (self.rank + side) % self.n, self.n, self.hash)

    def address(self, side=0):
        """The host and port of this worker, or of a neighbour."""
        host, port = self.addresses[(self.rank + side) % self.n].rsplit(":", 1)
        return host.strip("[]"), int(port)

    def listen(self):
        """A socket that listens at the address of this worker in TF_CONFIG, and at no other."""
        family = socket.getaddrinfo(*self.address(), type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(
            self.address(), family=family, reuse_port="TF_GRPC_REUSE_PORT" in os.environ)

    def connect(self):
        """The connection to the right neighbour, which may not be there yet."""
        while time.time() < self.deadline:
            try:
                s = socket.create_connection(self.address(1), timeout=5)
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                s.sendall(self.greeting())
                s.settimeout(max(1, self.deadline - time.time()))
                answer = recv_exactly(s, len(self.greeting()))
            except OSError:
                answer = b""
            if answer == self.greeting(1):
                return s
            if answer not in (b"", self.greeting()):  # its own: a port can connect to itself
                raise ConnectionError("%s has another TF_CONFIG, other flags or another model than "
                                      "%s: start all alike" % (self.name(1), self.name(0)))
            time.sleep(0.1)
        raise TimeoutError("%s did not answer at %s:%d in %d s" % (
            self.name(1), *self.address(1), REQUIRED_WAIT_SECONDS))

    def accept(self, listener, right):
        """The connection from the left neighbour. Whoever else connects is sent away."""
        listener.settimeout(1)
        while time.time() < self.deadline:
            if right.done():
                right.result()  # raises what connect() has raised
            with contextlib.suppress(OSError):
                s, address = listener.accept()
                s.settimeout(5)
                greeting = recv_exactly(s, len(self.greeting()))
                if greeting.startswith(GREETING):
                    s.sendall(self.greeting())
                if greeting == self.greeting(-1):
                    return s
                s.close()
                if greeting:
                    print("%s refused a connection from %s: it is not %s with the same TF_CONFIG, "
                          "flags and model" % (self.name(0), address[0], self.name(-1)),
                          file=sys.stderr, flush=True)
        right.result()
        raise TimeoutError("%s, the left neighbour, did not connect in %d s" % (
            self.name(-1), REQUIRED_WAIT_SECONDS))

    def leave(self):
        """Says that no more comes; returns when the left neighbour says so, who must not miss it
        before: a connection that is closed too early is a worker that was lost."""
        if self.n > 1:
            with contextlib.suppress(OSError):
                self.right.shutdown(socket.SHUT_WR)
            select.select([self.left], [], [], self.timeout)


def recv_exactly(s, size):
    """`size` bytes; fewer when the other side ends, or says nothing for as long as s may wait."""
    said = b""
    try:
        while len(said) < size and (more := s.recv(size - len(said))):
            said += more
    except OSError:
        pass
    return said


def show(ring, size):
    """Prints each step of the all-reduce of a short vector, which rank 0 collects from all."""
    N, x = ring.n, 10.0 ** ring.rank * np.arange(1, size + 1)
    seen = [x.copy()]
    all_reduce(x, ring, lambda x: seen.append(x.copy()))
    everyone = np.zeros([N, 2 * N - 1, size])
    everyone[ring.rank] = seen
    all_reduce(everyone.reshape(-1), ring)  # the others have zeros where this one has not
    if ring.rank:
        return
    print("Worker k begins with %s times 10^k: so each digit of a sum is the part of one worker. "
          "+ was added, = put in place." % " ".join("%d" % v for v in seen[0]))
    rows = [["step", "worker", "receives", *["chunk %d" % c for c in range(N)]]]
    for number in range(2 * N - 1):
        gather, s = divmod(number - 1, N - 1) if number else (0, 0)
        phase = "%s, s = %d" % (("scatter-reduce", "all-gather")[gather], s) if number else "start"
        for k in range(N):
            chunks = np.array_split(everyone[k, number].astype(int), N)
            cells = [" ".join(map(str, chunk)) for chunk in chunks]
            c = (k - s - 1 + gather) % N
            if number:
                cells[c] = "+="[gather] + " " + cells[c]
            what = "chunk %d from %d" % (c, (k - 1) % N) if number else ""
            rows.append(["" if k else phase, str(k), what, *cells])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for number, row in enumerate(rows):
        line = "   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        print("\n" * (number % N == 1 or N == 1) + line, flush=True)
# endregion: ring


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


# region: ring_calls
def train(step, w, state, steps_at_once, test, share, metrics, flags, chief):
    """Updates until all are made; the chief also evaluates w, and saves it.

    steps_at_once(count) makes that many, and returns the columns PUSH of each, [count, 9].
    """
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step, w=w, state=state), metrics.directory, max_to_keep=5,
        checkpoint_name="model.ckpt")
    if chief and manager.latest_checkpoint:
        manager.checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    share()
    metrics.step = int(step.numpy())
    metrics.saved = metrics.step, time.time()

    def evaluate(first):
        return [number.numpy() for number in test(tf.constant(first))]
    while metrics.step < flags.steps:
        count = min(flags.steps - metrics.step, flags.steps_per_call)
        for row in steps_at_once(tf.constant(count, tf.int32)).numpy():
            metrics.push(row)
        if chief and time.time() > metrics.next_test:
            metrics.test(evaluate)
        if chief and metrics.time_to_save():
            manager.save(checkpoint_number=metrics.step)
            metrics.mark("checkpoint", metrics.saved[1])
    if chief:
        metrics.test(evaluate, all_rows=True)
        manager.save(checkpoint_number=metrics.step)
    print("done, the output is in", metrics.directory, flush=True)


def build(model, data, flags, ring):
    """The step counter, the variables, and the functions that make steps and test w."""
    step = tf.Variable(0, dtype=tf.int64)
    w, state = [[tf.Variable(v.numpy()) for v in each] for each in (
        model.trainable_variables, model.non_trainable_variables)]
    rows = [tf.Variable(part[ring.rank::ring.n]) for part in (data.x_train, data.y_train)]
    test_rows = [tf.Variable(part) for part in (data.x_test, data.y_test)]
    batch_loss = batches(model, state, *rows, flags, ring.rank)

    def one_step():
        update = algorithm(w, step, batch_loss, ring, flags)
        column = [[PUSH.index("bytes")]]  # counted, not computed
        return tf.tensor_scatter_nd_update(
            push_row(update, step, flags), column, [tf.cast(update.moved, tf.float64)])

    @tf.function
    def steps_at_once(count):
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            rows = rows.write(i, one_step())
        return rows.stack()

    @tf.function
    def test(first):
        return [step.read_value(), *evaluation(model, state, w, *test_rows, first)]

    def share():
        # Ring: all begin with what rank 0 has: a sum to which the others add zeros.
        for v in [step, *w, *state]:
            x = v.numpy().reshape(-1) * (ring.rank == 0)
            all_reduce(x, ring)
            v.assign(x.reshape(v.shape))
    return step, w, state, steps_at_once, test, share
# endregion: ring_calls


def main():
    flags, cluster = parse_flags(), Cluster()
    data, metrics = load_data(flags.dataset), Metrics(cluster.name, cluster.workers, flags)
    keras.utils.set_random_seed(flags.seed)
    ring = Ring(cluster, flags.step_timeout)
    built = build(make_model(data), data, flags, ring)
    ring.join([vars(flags), [v.shape.as_list() for v in built[1]]])
    if flags.show:
        show(ring, flags.show)
    train(*built, metrics, flags, cluster.rank == 0)
    ring.leave()


if __name__ == "__main__":
    main()
