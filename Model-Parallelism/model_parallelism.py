"""Model-Parallelism: each worker holds some layers of the model; micro-batches pass through all.

    model      f(x) = f_K(... f_2(f_1(x)));  place k holds w_k, the parameters of f_k
    forward    h_k = f_k(h_{k-1})            h_k crosses from place k to place k + 1
    backward   dL/dh_k crosses back; from it place k computes the gradient of w_k
    update     w_k <- w_k - lr * (1/M) * (g_1 + ... + g_M)    over the M micro-batches of a batch

Kind:          model parallel
Paper:         Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks
Differs from:  Non-Distributed-Setup: no place has all of w
Simplified:    activations are kept for the backward pass; GPipe recomputes them
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import functools
import itertools
import json
import os
import socket
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the import; what it logs is raised, too
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

# Of an update, see push_row. Of a pass: tensors that it waits for, and those with which it ends.
Update = collections.namedtuple("Update", "pulled loss pushed version ticket push passes")
Pass = collections.namedtuple("Pass", "place what micro_batch waits ends")


def algorithm(w, state, stages, places, step, mini_batch, flags):
    """Makes one update of the whole model, in all places; worker 0 calls it.

    A list for all places: w, the variables of each; state, its variables for what its layers keep
    beside w; stages, its layers as a model. step: the counter of updates.
    mini_batch(number): inputs, at the first place, and labels, at the last, each in M parts.
    """
    K, M = len(places), flags.micro_batches
    number = tf.raw_ops.ResourceCountUpTo(resource=step.handle, limit=flags.steps, T=tf.int64)
    x, y = mini_batch(number)
    values, after = [], []  # of w before the update, and of what each place's last pass has kept
    for place, w_k, state_k in zip(places, w, state):
        with tf.device(place):  # or they would pass through the place of worker 0
            values.append([v.read_value() for v in w_k])
            after.append([v.read_value() for v in state_k])
    # Model-Parallelism: of micro-batch m, h[k, m] crosses to place k; d[k, m], its gradient, back.
    h, d, penalties = {(0, m): x[m] for m in range(M)}, {}, {}
    g = [[0.0] * len(w_k) for w_k in w]
    before = list(values)  # what the next pass of each place waits for, at first w
    passes = []

    for k, what, m in schedule(flags.schedule, K, M):
        # Model-Parallelism: a pass waits for the one before it in this place, or inputs come late.
        scope = tf.name_scope(f"{what}/micro_batch_{m}")
        with tf.device(places[k]), tf.control_dependencies(before[k]), scope:
            waits = [*before[k], h[k, m] if what == "forward" else d.get((k + 1, m))]
            if what == "forward":
                h[k + 1, m], after[k], penalties[k, m] = stages[k].stateless_call(
                    values[k], after[k], h[k, m], training=True, return_losses=True
                )
                if k == K - 1:
                    h[K, m] = tf.reduce_mean(loss(y[m], h[K, m]))
                before[k] = [h[k + 1, m]]
            else:
                *d_w, d[k, m] = tf.gradients(
                    [h[k + 1, m], *penalties[k, m]],
                    [*values[k], h[k, m]],
                    [d.get((k + 1, m)), *[None] * len(penalties[k, m])],  # None: dL/dL = 1
                )
                g[k] = [total + tf.convert_to_tensor(d_v) for total, d_v in zip(g[k], d_w)]
                before[k] = [*g[k], d[k, m]] if k else g[k]
        passes.append(Pass(k, what, m, waits, before[k]))

    # Model-Parallelism: each place updates its own part of w.
    push = []
    for k, place in enumerate(places):
        with tf.device(place):
            moved = [v.assign(new) for v, new in zip(state[k], after[k])]
            moved += [v.assign_sub(flags.learning_rate / M * d_v) for v, d_v in zip(w[k], g[k])]
        passes.append(Pass(k, "update", 0, before[k], moved))
        push += moved
    with tf.device(places[-1]):
        mean = tf.add_n([h[K, m] for m in range(M)] + sum(penalties.values(), [])) / M
    crossing = [tensors[k, m] for tensors in (h, d) for k in range(1, K) for m in range(M)]
    return Update(
        [], mean, crossing, version=number, ticket=number, push=tf.group(*push), passes=passes
    )


def schedule(name, K, M):
    """Returns (place, forward or backward, micro-batch) of all passes, none before its input."""
    # Model-Parallelism: before a place goes backward with micro-batch m, it has gone forward with
    # all up to m + ahead. So it stores the activations of ahead + 1 micro-batches at most.
    ahead = {"gpipe": [M - 1] * K, "1f1b": [K - 1 - k for k in range(K)]}[name]
    passes = []
    for m in range(-max(ahead), M):
        passes += [(k, "forward", m + ahead[k]) for k in range(K)]
        passes += [(k, "backward", m) for k in reversed(range(K))]
    return [(k, what, m) for k, what, m in passes if 0 <= m < M]


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("micro-batches", 4, "equal parts of a mini-batch"),
    ("schedule", "gpipe", "gpipe, or 1f1b, which stores fewer activations"),
    ("devices", 1, "logical CPU devices of a worker, each a place"),
    ("steps-per-call", 10, "updates in one call of the graph"),
    ("step-timeout", 60, "seconds to wait for an update at most"),
    ("timeline-steps", 0, "updates between two timeline-*.json; 0: none"),
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


def build(stages, data, places, flags):
    """Makes the variables; returns the step counter, w and state of all places, update and test."""
    with tf.device(places[0]):  # where worker 0 is
        step = tf.Variable(0, dtype=tf.int64)
    w = placed_variables("w", [stage.trainable_variables for stage in stages], places)
    state = placed_variables("state", [stage.non_trainable_variables for stage in stages], places)
    rows = [[data.x_train, data.x_test], [data.y_train, data.y_test]]
    (x, x_test), (y, y_test) = placed_variables("data", rows, [places[0], places[-1]])
    mini_batch = mini_batches(x, y, flags)

    def update():
        return algorithm(w, state, stages, places, step, mini_batch, flags)

    def test():
        return evaluation(w, state, stages, places, x_test, y_test)

    return step, w, state, update, test


def main():
    """Runs the worker that TF_CONFIG names: the first trains, the others lend their devices."""
    flags, cluster = parse_flags(), Cluster()
    check(cluster, flags)
    if cluster.rank:
        return serve(cluster, flags)
    places, connections = connect(cluster, flags)
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    model = make_model(data)
    parts = stages(model, len(places))
    if len(parts) < len(places):
        raise ValueError(f"The model has {len(parts)} layers, too few for {len(places)} places")
    # The other workers make no update.
    metrics = Metrics(cluster.task, cluster.workers[:1], model.trainable_variables, flags)
    with abort_peer_lost(cluster):
        step, w, state, update, test = build(parts, data, places, flags)
        manager = checkpoints(step, w, state, places, metrics)
        make_steps = calls(update, step, places, metrics, flags)
        with watched(cluster, connections, step, flags):
            train(make_steps, tf.function(test, autograph=False), metrics, manager, flags)
    for connection in connections:
        with contextlib.suppress(OSError):  # a worker that is gone needs no word
            connection.sendall(DONE)


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


# region: places -- of this example only
def placed_variables(name, values, places):
    """Makes variables with these first values, in each place; returns a list for each place."""
    made, number = [], 0
    for place, values_there in zip(places, values):
        variables_there = []
        for value in values_there:
            first = np.asarray_chkfinite(value)
            with tf.device(place):
                variables_there.append(tf.Variable(first, name=f"{name}_{number}"))
            number += 1
        made.append(variables_there)
    return made


def mini_batches(x, y, flags):
    """Returns mini_batch(number) -> (inputs, labels), two lists of M tensors, where x and y are.

    The rows depend on (seed, number) and on nothing else, so that both places draw the same.
    """

    def rows_of(array, number):
        with tf.device(array.device):
            key = [flags.seed * 65536, number]  # of int64, as the number is
            rows = tf.random.stateless_uniform([flags.batch_size], key, 0, array.shape[0], tf.int32)
            return tf.split(tf.gather(array, rows), flags.micro_batches)

    return lambda number: (rows_of(x, number), rows_of(y, number))


def evaluation(w, state, stages, places, x, y):
    """Returns [loss, each of METRICS] at w, means over the rows of x, y."""
    h = x.read_value()
    for place, stage, w_k, state_k in zip(places, stages, w, state):
        with tf.device(place):
            w_k = [tf.debugging.check_numerics(v, "w") for v in w_k]
            h, _ = stage.stateless_call(w_k, state_k, h, training=False)
    functions = [loss] + [function for _, function in METRICS.values()]
    with tf.device(places[-1]):
        return [tf.reduce_mean(function(y.read_value(), h)) for function in functions]


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


# region: one_client -- of this example only
ALIVE, DONE = b"alive\n", b"done\n\n"  # what worker 0 tells the others; both of one length


def check(cluster, flags):
    """Raises ValueError where addresses or flags do not fit."""
    if "://" in str(cluster.addresses):  # else the workers would wait for one another
        raise ValueError("TF_CONFIG has an address with ://, and not host:port")
    if flags.batch_size % flags.micro_batches:
        raise ValueError(
            f"--batch-size {flags.batch_size} cannot be cut into {flags.micro_batches} equal parts "
            "(--micro-batches)"
        )
    if flags.schedule not in ("gpipe", "1f1b"):
        raise ValueError(f"--schedule {flags.schedule} is neither gpipe nor 1f1b")


def connect(cluster, flags):
    """Connects worker 0 to the servers of the others.

    Returns all places, and connections by which the other workers learn that this one is alive.
    """
    if flags.devices > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * flags.devices
        tf.config.set_logical_device_configuration(cpu, parts)
    count = len(cluster.workers)
    connections = accept(cluster) if count > 1 else []
    if count > 1:
        jobs = tf.train.ClusterSpec({"worker": cluster.addresses})
        tf.config.experimental_connect_to_cluster(jobs, job_name="worker", task_index=0)
    job = "worker" if count > 1 else "localhost"
    ranks = itertools.product(range(count), range(flags.devices))
    return [f"/job:{job}/task:{k}/device:CPU:{d}" for k, d in ranks], connections


def accept(cluster):
    """Waits until each other worker has connected, which it does when its server listens.

    Returns the connections. They use the port that the server of this worker will use afterwards.
    """
    port = int(cluster.addresses[0].rsplit(":", 1)[1])
    both = socket.has_dualstack_ipv6()  # IPv4 and IPv6: TensorFlow listens for both, too
    connections = {}
    deadline = time.monotonic() + REQUIRED_WAIT_SECONDS
    with socket.create_server(
        ("", port),
        family=socket.AF_INET6 if both else socket.AF_INET,
        reuse_port="TF_GRPC_REUSE_PORT" in os.environ,
        dualstack_ipv6=both,
    ) as listener:
        listener.settimeout(1)
        while len(connections) < len(cluster.workers) - 1:
            if time.monotonic() > deadline:
                missing = set(range(1, len(cluster.workers))) - connections.keys()
                names = silent_workers(cluster, sorted(missing))
                raise TimeoutError(f"{names} in {REQUIRED_WAIT_SECONDS} s")
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                connection.settimeout(5)
                rank = int.from_bytes(connection.recv(4), "big")
                if 0 < rank < len(cluster.workers):  # anything else is no worker
                    connections[rank] = connection
    return list(connections.values())


def silent_workers(cluster, ranks=None):
    """Returns a text that names the workers, of these ranks or of all, that do not answer."""
    return ", ".join(
        f"{job} {index} did not answer at {address}"
        for rank, ((job, index), address) in enumerate(zip(cluster.workers, cluster.addresses))
        if (rank in ranks if ranks else not answers(address))
    )


def answers(address):
    """Returns whether the server at host:port sends a byte, as one does that is not stopped."""
    try:
        with open_connection(address) as connection:
            return connection.recv(1) != b""
    except OSError:
        return False


def open_connection(address):
    """Returns a connection to host:port. Raises OSError where nobody accepts it."""
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)), timeout=2)


def wait_until(condition, seconds):
    """Waits for condition(), `seconds` at most; returns whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def serve(cluster, flags):
    """Lends the devices of this worker to worker 0 until that one is done."""
    # With one thread, which one core gets, the parts of an update would wait for one another.
    config = tf.compat.v1.ConfigProto(device_count={"CPU": flags.devices})
    jobs = tf.train.ClusterSpec({"worker": cluster.addresses})
    server = tf.distribute.Server(jobs, "worker", cluster.rank, config=config)
    print("listening at", cluster.addresses[cluster.rank], flush=True)
    client = "%s %d did not answer at %s" % (*cluster.workers[0], cluster.addresses[0])
    connection = report_to_client(cluster, client)
    connection.settimeout(REQUIRED_WAIT_SECONDS)  # the first update takes longer
    word = ALIVE
    while word != DONE:
        try:
            word = connection.recv(len(DONE), socket.MSG_WAITALL)
        except TimeoutError:
            raise TimeoutError(f"{client}: no update in {connection.gettimeout():.0f} s") from None
        except OSError:
            word = b""
        if not word:
            raise ConnectionError(client)
        connection.settimeout(flags.step_timeout)
    print("done", flush=True)
    return server


def report_to_client(cluster, client):
    """Returns a connection to worker 0, which this worker has told its rank."""
    deadline = time.monotonic() + REQUIRED_WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = open_connection(cluster.addresses[0])
            connection.sendall(cluster.rank.to_bytes(4, "big"))
            return connection
        time.sleep(0.1)
    raise TimeoutError(f"{client} in {REQUIRED_WAIT_SECONDS} s")


@contextlib.contextmanager
def watched(cluster, connections, step, flags):
    """Tells the other workers of updates, in a thread; ends this task if there are none."""
    is_over = threading.Event()

    def watch():
        number, since = 0, time.monotonic()
        seconds = REQUIRED_WAIT_SECONDS  # for the first update: TensorFlow compiles it
        while not is_over.wait(0.1):
            if step.numpy() != number:
                number, since, seconds = step.numpy(), time.monotonic(), flags.step_timeout
                for connection in connections:
                    with contextlib.suppress(OSError):  # the update will fail, too
                        connection.sendall(ALIVE)
            elif time.monotonic() > since + seconds:
                exit_lost(silent_workers(cluster) or f"no update was made in {seconds} s")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(5)  # it must not call TensorFlow while that shuts down


def exit_lost(what):
    """Ends this task, whatever its other threads wait for."""
    print("ConnectionError:", what, file=sys.stderr, flush=True)
    os._exit(1)


@contextlib.contextmanager
def abort_peer_lost(cluster):
    """Ends this task when the work inside has lost a worker."""
    try:
        yield
    except tf.errors.OpError as error:
        lost = tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError
        if not isinstance(error, lost):
            raise
        # Not raised: to end, TensorFlow would wait for that worker.
        wait_until(lambda: silent_workers(cluster), 2)  # one that dies may answer for a moment
        exit_lost(silent_workers(cluster) or error)


def checkpoints(step, w, state, places, metrics):
    """Restores the last checkpoint; returns the manager that saves the next ones."""
    saved = tf.train.Checkpoint(step=step, w=sum(w, []), state=sum(state, []))
    manager = tf.train.CheckpointManager(saved, metrics.directory, 5, checkpoint_name="model.ckpt")
    # Worker 0 reads and writes the files: the others may have no such folder.
    options = tf.train.CheckpointOptions(experimental_io_device=places[0])
    if manager.latest_checkpoint:
        saved.restore(manager.latest_checkpoint, options).assert_existing_objects_matched()
        metrics.step = int(step)
    manager.save = functools.partial(manager.save, options=options)
    return manager


def calls(update, step, places, metrics, flags):
    """Returns make_steps(count), which makes that many updates and returns their rows, [count, 9].

    Every --timeline-steps updates it writes a timeline.
    """

    names = []  # of the passes of an update: they are known when a function below is traced

    @functools.cache
    def updates(count, is_timed):
        """Returns function() -> (the rows of `count` updates, the times of the last one)."""

        def rows_and_times():
            # Not a loop of TensorFlow's, which would ask all places before each update.
            rows, times = [], []
            for _ in range(count):
                last = update()
                rows.append(tf.stack(push_row(last, step, flags)))
            if is_timed:
                names[:] = [one_pass[:3] for one_pass in last.passes]
                times = pass_times(last.passes, places)
            return tf.stack(rows), times

        return tf.function(rows_and_times, autograph=False)

    def make_steps(count):
        rows, number, end = [], metrics.step, metrics.step + int(count)
        while number < end:
            due = end + 1  # the number of the next update that has a timeline
            if flags.timeline_steps:
                due = number + flags.timeline_steps - number % flags.timeline_steps
            # A timeline is of the second update of a call: the first one also waits for the call.
            if due <= end and due - number <= 2:
                size, is_timed = due - number, True
            elif min(due - 2, end) - number >= flags.steps_per_call:
                size, is_timed = flags.steps_per_call, False
            else:
                size, is_timed = 1, False
            new, times = updates(size, is_timed)()
            if is_timed:
                write_timeline(f"{metrics.directory}/timeline-{due}.json", names, times, places)
            rows.append(new)
            number += size
        return tf.concat(rows, 0)

    return make_steps


def pass_times(passes, places):
    """Returns [begin, end] of each pass, by the clock of its place."""
    times = []
    for each in passes:
        with tf.device(places[each.place]):
            times.append([time_of(each.waits), time_of(each.ends)])
    return times


def time_of(tensors):
    """Returns the time when all these tensors are at this place, and a number of each."""
    # A number of each: for a mere control dependency TensorFlow would not send the tensor here.
    numbers = [tf.reshape(t, [-1])[0] for t in tensors if t is not None]
    with tf.control_dependencies(numbers):
        now = tf.timestamp()
    # tf.timestamp has side effects: without this line all of them would run one after the other.
    now.graph.experimental_acd_manager.run_independently(now.op)
    return now, numbers


def write_timeline(path, names, times, places):
    """Writes the passes in the Trace Event Format, which chrome://tracing and Perfetto show.

    names: [(place, forward, backward or update, micro-batch)]. times: as pass_times returns them.
    """
    events, last_end = [], {}
    for k, place in enumerate(places):
        name = {"name": f"{place} Compute"}
        events.append({"ph": "M", "pid": k, "name": "process_name", "args": name})
    for (k, what, m), ((arrival, _), (end, _)) in zip(names, times):
        name = what if what == "update" else f"{what}/micro_batch_{m}"
        # It begins when its input is here, and the pass before it in this place has ended.
        begin = max(1e6 * float(arrival), last_end.get(k, 0))
        last_end[k] = max(1e6 * float(end), begin)
        event = {"ph": "X", "pid": k, "tid": 0, "name": name, "args": {"name": name}}
        event["ts"], event["dur"] = begin, last_end[k] - begin
        events.append(event)
    with open(path, "w") as file:
        json.dump({"traceEvents": events}, file)


if __name__ == "__main__":
    main()
