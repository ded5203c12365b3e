"""Distributed-Setup-Sessions: Distributed-Setup, driven by a session of TensorFlow 1.

    pull    w_k <- w              w lives on the ps, w_k is the copy of the one worker
    push    w <- w - lr * g(w_k)  g: the gradient on a new mini-batch, computed on the worker

Kind:          parameter server, asynchronous
Paper:         Li et al. 2014, Scaling Distributed Machine Learning with the Parameter Server
Differs from:  Distributed-Setup: the worker builds a graph across both, and a session runs it
Simplified:    one worker, so that nothing is asynchronous yet
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import socket
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row


def algorithm(w, step, gradient, flags):
    """Builds one update.

    w: all parameters, as one vector on each ps. step: the counter of updates.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, shaped as w.
    """
    # Distributed: pull w, which lives on the ps.
    with tf.device(step.device):
        version = step.read_value()
    w_k = [v.read_value() for v in w]

    # Distributed: a gradient at the copy.
    loss, g = gradient(w_k, version)

    # Distributed: push. The ticket counts this update; there is none once --steps are taken.
    delta = send(w, [flags.learning_rate * d for d in g])
    with tf.control_dependencies(delta):
        ticket = tf.count_up_to(step, flags.steps)  # its error ends the run
    with tf.control_dependencies([ticket]):
        push = tf.group(*[v.assign_sub(d) for v, d in zip(w, delta)])
    return Update(w_k, loss, g, version, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults
MORE_FLAGS = []  # (name, default, help) of the flags that only this algorithm has


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


# region: build
def build(cluster, model, data, flags):
    """Builds the step counter and the test, and returns a function that builds an update."""
    k, n = cluster.rank, len(cluster.workers)  # worker k has every n-th row
    setter = tf.train.replica_device_setter(cluster=cluster.spec, worker_device=cluster.device)
    with tf.device(setter):
        step = tf.train.get_or_create_global_step()
        w, state = shared_variables(model, len(cluster.ps))
    with tf.device(cluster.device):
        rows = data.x_train[k::n], data.y_train[k::n], data.x_test, data.y_test
        x, y, x_test, y_test = variables(tf.get_local_variable, "rows", rows)
        local_state = copy_of_state(model, state, k)
        gradient = gradients(model, local_state, x, y, flags, k)
        test = evaluation(model, w, state, local_state, x_test, y_test)
        return step, lambda: algorithm(w, step, gradient, flags), test


# endregion: build


# region: main
def main():
    """Runs the task that TF_CONFIG names: a ps serves, a worker trains."""
    flags, cluster = parse_flags(), Cluster()
    server = tf.train.Server(cluster.spec, *cluster.task, config=cluster.config)
    if cluster.job == "ps":
        return serve(cluster, server)
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    model = make_model(data)  # outside of the graph, where Keras makes its first values
    with tf.Graph().as_default():
        graph = build(cluster, model, data, flags)
        train(cluster, server, model.trainable_variables, data, *graph, flags)


# endregion: main


# From here to the end: the same text in every example with a parameter server, unless marked. -----


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


# region: cluster
OPTIONAL_WAIT_SECONDS = 30  # for a task without which this one can go on
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other task


class Cluster:
    """Knows the tasks of the cluster, and which of them this process is, from TF_CONFIG."""

    def __init__(self):
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.task = self.job, self.index = resolver.task_type, resolver.task_id
        self.spec = spec = resolver.cluster_spec()
        self.ps = spec.job_tasks("ps")
        self.workers = [
            (job, index)
            for job in ("chief", "worker")
            if job in spec.jobs
            for index in spec.task_indices(job)
        ]
        self.rank = None if self.job == "ps" else self.workers.index(self.task)
        self.device = f"/job:{self.job}/task:{self.index}"
        # With the filters a task talks to itself and the ps, and never waits for another worker.
        self.config = config = tf.ConfigProto(device_filters=["/job:ps", self.device])
        config.operation_timeout_in_ms = 1000 * REQUIRED_WAIT_SECONDS
        # Idle gRPC threads would otherwise spin, and slow the other tasks of this machine.
        config.experimental.disable_thread_spinning = True


def barrier(name, rank, ps=0):
    """Makes two ops on a ps: one notes that this rank has arrived, the other counts who has."""
    with tf.device(f"/job:ps/task:{ps}"):
        table = tf.raw_ops.MutableHashTableV2(
            key_dtype="int32", value_dtype="int32", shared_name=name
        )
        arrive = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=[rank], values=[rank])
        return arrive, tf.raw_ops.LookupTableSizeV2(table_handle=table)


def wait_until(condition, seconds, fault=None):
    """Returns once condition() is true or `seconds` are over; with a fault raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            if fault:
                raise TimeoutError(f"{fault} in {seconds} s")
            return
        time.sleep(0.02)


def wait_for_ps(address):
    """Returns when a ps listens at host:port: a session would wait for it for ever."""
    host, port = address.rsplit(":", 1)

    def listens():
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), port), 5):
            return True

    wait_until(listens, REQUIRED_WAIT_SECONDS, f"no ps answered at {address}")


def serve(cluster, server):
    """Keeps a ps running until all workers are done, or five minutes after the first of them."""
    print("listening at", cluster.ps[cluster.index])
    with tf.Graph().as_default(), tf.Session(server.target, config=cluster.config) as session:
        _, done = barrier("done", 0, cluster.index)
        wait_until(lambda: session.run(done), np.inf)
        wait_until(lambda: session.run(done) == len(cluster.workers), 10 * OPTIONAL_WAIT_SECONDS)
    print("done")


def send(w, vectors):
    """Returns the vectors as tensors beside the variables w: each ps gets one message."""
    arrived = []
    for v, vector in zip(w, vectors):
        with tf.device(v.device):
            arrived.append(tf.identity(vector))
    return arrived


def make_saver(directory, ps):
    """Returns a Saver that keeps five checkpoints, including those of an earlier start."""
    saver = tf.train.Saver(sharded=ps > 1, save_relative_paths=True)
    if state := tf.train.get_checkpoint_state(directory):
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
    return saver


# region: variables
def initial_value(value):
    """Returns a value as a tensor. As a constant it would stand in the graph, which has a limit."""
    tensor = tf.numpy_function(lambda: np.asarray_chkfinite(value), [], value.dtype)
    return tf.ensure_shape(tensor, value.shape)


def variables(get_variable, name, values):
    """Makes variables with these first values: name_0, name_1, ..."""
    return [get_variable(f"{name}_{i}", initializer=initial_value(v)) for i, v in enumerate(values)]


# region: vector
def shared_variables(model, ps):
    """Makes w, one vector on each ps, and what the model keeps beside it, for the checkpoint."""
    vector = tf.concat([tf.reshape(initial_value(v), [-1]) for v in model.trainable_variables], 0)
    w = tf.get_variable("w", initializer=vector, partitioner=tf.fixed_size_partitioner(ps))
    return list(w), variables(tf.get_variable, "state", model.non_trainable_variables)


def unpack(model, w):
    """Returns the trainable variables of the model, in their shapes, from the vectors w."""
    shapes = [v.shape for v in model.trainable_variables]
    parts = tf.split(tf.concat(w, 0), [int(np.prod(shape)) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]


# region: model
def copy_of_state(model, state, rank):
    """Makes this worker's variables for what the model keeps beside w, copies of those on a ps."""
    copies = []
    for v, original in zip(state, model.non_trainable_variables):
        # The seeds differ, so that no two workers drop the same units.
        value = v + rank if original.name == "seed_generator_state" else v.value()
        copies.append(tf.get_local_variable(f"own_{v.op.name}", initializer=value))
    return copies


def gradients(model, local_state, x, y, flags, rank):
    """Returns gradient(w, number) -> (loss, g), means over mini-batch `number` of the rows x, y."""

    def gradient(w, number):
        # Its rows depend on nothing but (seed, rank, number), and can be drawn again elsewhere.
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, x.shape[0], "int32")
        with tf.control_dependencies(w):
            before = [v.read_value() for v in local_state]
        outputs, after, penalties = model.stateless_call(
            unpack(model, w), before, tf.gather(x, rows), training=True, return_losses=True
        )
        # The gradient comes after the state has moved, and with it the next local step; and after
        # the rows of the updates before, so that the end of training cuts none off.
        moved = list(map(tf.assign, local_state, after))
        with tf.control_dependencies(moved + tf.get_collection("written")):
            outputs = tf.identity(outputs)
        mean = tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])
        return mean, tf.gradients(mean, w)

    return gradient


def evaluation(model, w, state, local_state, x, y):
    """Returns [loss, each of METRICS] at w, means over the rows of x, y."""
    # The chief's state goes to the ps first, so that the checkpoint has what is tested.
    with tf.control_dependencies(map(tf.assign, state, local_state)):
        parameters = unpack(model, [tf.check_numerics(v, "w") for v in w])
    outputs, _ = model.stateless_call(parameters, local_state, x.read_value(), training=False)
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


# region: prepare
def prepare(session, saver, metrics):
    """Returns once the model is on the ps. If it is not there, the chief makes or restores it."""
    missing = tf.size(tf.report_uninitialized_variables(tf.global_variables()))
    if metrics.is_chief and session.run(missing):
        if checkpoint := tf.train.latest_checkpoint(metrics.directory):
            saver.restore(session, checkpoint)
        else:
            session.run(tf.global_variables_initializer())
    wait_until(lambda: not session.run(missing), REQUIRED_WAIT_SECONDS, "the chief made no model")
    session.run(tf.local_variables_initializer())


# region: session
MORE_FLAGS += [("updates-per-call", 10, "updates in one call; take 1 where one takes seconds")]


def train(cluster, server, initial, data, step, make_update, test, flags):
    """Updates w until all updates are made; the chief also tests and saves it."""
    n, ps = len(cluster.workers), len(cluster.ps)
    metrics = Metrics(cluster.task, cluster.workers, initial, flags, ps)
    metrics.describe(data)
    written, before = tf.get_collection_ref("written"), []
    while len(written) < flags.updates_per_call:
        with tf.device(cluster.device), tf.control_dependencies(before):
            update = make_update()
            row = tf.stack(push_row(update, step, flags))
            written.append(tf.numpy_function(metrics.push, [row], []))
        before = [update.push]  # when it has arrived, the next one pulls
        tf.get_variable_scope().reuse_variables()
    saver = make_saver(metrics.directory, ps)
    start, started = barrier("start", cluster.rank)
    finish, finished = zip(*[barrier("done", cluster.rank, i) for i in range(ps)])

    def test_and_save():
        metrics.test(time.time(), *session.run([step, *test]))
        saver.save(session, f"{metrics.directory}/model.ckpt", step, write_meta_graph=False)

    def wait_for(arrived, count):
        wait_until(lambda: session.run(arrived) >= count, OPTIONAL_WAIT_SECONDS)

    while True:
        for address in cluster.ps:
            wait_for_ps(address)
        session = tf.Session(server.target, config=cluster.config)
        try:
            prepare(session, saver, metrics)
            update_w = session.make_callable(written)
            with contextlib.suppress(tf.errors.OutOfRangeError):  # every update is taken
                update_w()  # the first call sets up the graph everywhere
                session.run(start)
                wait_for(started, n)
                while True:
                    saved = metrics.step
                    while not metrics.is_chief or metrics.step < saved + flags.checkpoint_steps:
                        update_w()
                    test_and_save()
            session.run(start)  # if every update was taken before its first call
            if metrics.is_chief:
                wait_for(finished[0], n - 1)
                test_and_save()
            session.run(finish)
            print("done, the output is in", metrics.directory)
            return
        except (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError):
            print("a ps was lost: training goes on from the last checkpoint")
            # Closing a session waits for the lost ps, up to 30 s.
            threading.Thread(target=session.close, daemon=True).start()


if __name__ == "__main__":
    main()
