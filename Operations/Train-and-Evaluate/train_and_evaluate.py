"""Train-and-Evaluate: workers read files while they train; an evaluator tests each checkpoint.

    worker     w_k <- w;  w <- w - lr * g(w_k)    g: on the next mini-batch of this worker's files
    chief      worker 0; it saves w, and how far each worker is in its files, as a checkpoint
    evaluator  tests each checkpoint once, keeps the best, ends training when none gets better

Kind:          train and evaluate
Paper:         Cheng et al. 2017, TensorFlow Estimators: Managing Simplicity vs. Flexibility
Differs from:  HogWild: the examples come from files, and an evaluator tests the model
Simplified:    the rows of the test fit into memory
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import csv
import fcntl
import glob
import json
import os
import shutil
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


def algorithm(w, step, gradient, place, flags):
    """Builds one update of one worker; all workers make theirs at once.

    w: all parameters, as one vector on each ps. step: the counter of updates. gradient(w): the loss
    on the next mini-batch at w, its gradient, and [epoch, examples of it that are read] after it.
    place: where the ps keeps the last of these.
    """
    # HogWild: pull w, and take a gradient at the copy.
    with tf.device(step.device):
        version = step.read_value()
    with tf.control_dependencies([version]):
        w_k = [v.read_value() for v in w]
    loss, g, read = gradient(w_k)

    # HogWild: push, however late.
    delta = send(w, [flags.learning_rate * d for d in g])
    with tf.control_dependencies(delta):
        ticket = tf.count_up_to(step, flags.steps)  # its error ends the run
    with tf.control_dependencies([ticket]):
        push = tf.group(*[v.assign_sub(d) for v, d in zip(w, delta)])

    # Train-and-Evaluate: the examples count as read after the push. A worker that dies between the
    # two repeats a mini-batch, and none is lost.
    with tf.control_dependencies([push]):
        noted = place.assign(read)
    return Update(w_k, loss, g, version, ticket, noted.op)


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults
MORE_FLAGS = [  # (name, default, help) of the flags that only this example has
    ("shuffle-buffer", 1000, "examples among which the next one is drawn"),
    ("early-stopping", 0, "tests without a better one, after which training ends; 0: never"),
    ("checkpoint-timeout", 600, "seconds for which the evaluator waits for a checkpoint at most"),
]


# region: records -- put your own files and model here
Data = collections.namedtuple("Data", "files x_test y_test shape classes")
DATASET, DATASETS = "records", "the folder of the files that write_records.py has written"


def load_data(folder):
    """Returns the paths of the files to train on, and the rows of the test."""
    about = json.load(open(f"{folder}/records.json"))
    files = sorted(glob.glob(f"{glob.escape(folder)}/train-*.tfrecord"))
    test_files = sorted(glob.glob(f"{glob.escape(folder)}/test-*.tfrecord"))
    if len(files) != about["files"]:
        raise ValueError(f"{folder} has {len(files)} files to train on, not {about['files']}")
    rows = next(iter(tf.data.TFRecordDataset(test_files).batch(about["test_rows"])))
    x, y = parse(rows, about["shape"])
    return Data(files, x.numpy(), y.numpy(), about["shape"], about["classes"])


def parse(serialized, shape):
    """Returns inputs [rows, *shape] and labels [rows] of serialized examples [rows]."""
    features = {
        "x": tf.io.FixedLenFeature(shape, tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_example(serialized, features)
    return tf.check_numerics(example["x"], "x"), tf.cast(example["y"], tf.int32)


def make_model(data):
    """Makes a Keras network. It is not compiled: the optimizer is the algorithm above."""
    return keras.Sequential(
        [
            keras.Input(data.shape),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(data.classes),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


# name: ("max" or "min" for which is better, the metric of each row); the first chooses the best
METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
# endregion: records


# region: pipeline
def mini_batches(files, shape, place, flags):
    """Returns the endless mini-batches of files: ([epoch, examples of it that are read], x, y).

    In each epoch each example comes once, in an order that depends on (seed, epoch) and nothing
    else. So a worker that starts again goes on where it was, at `place`.
    """
    first_epoch, read = place[0], place[1]

    def examples(epoch):
        seed = flags.seed * 65536 + epoch
        # Several files are read at once, and their examples come in an order that is known.
        order = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed)
        rows = order.interleave(
            tf.data.TFRecordDataset,
            cycle_length=4,
            deterministic=True,
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        rows = rows.shuffle(flags.shuffle_buffer, seed).enumerate(1)
        rows = rows.skip(tf.where(epoch > first_epoch, tf.constant(0, tf.int64), read))
        return rows.map(lambda number, row: (tf.stack([epoch, number]), row))

    def parsed(places, rows):
        return places[-1], *parse(rows, shape)

    epochs = tf.data.Dataset.range(2**31).skip(first_epoch)
    rows = epochs.flat_map(examples).batch(flags.batch_size, drop_remainder=True)
    return rows.map(parsed, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def gradients_of_files(model, local_state, iterator):
    """Returns gradient(w) -> (the loss on the next mini-batch at w, g, the place after it)."""

    def gradient(w):
        place, x, y = iterator.get_next()
        with tf.control_dependencies(w):
            before = [v.read_value() for v in local_state]
        outputs, after, penalties = model.stateless_call(
            unpack(model, w), before, x, training=True, return_losses=True
        )
        # The gradient comes after the state has moved, and with it the next local step.
        with tf.control_dependencies([v.assign(new) for v, new in zip(local_state, after)]):
            outputs = tf.identity(outputs)
        mean = tf.add_n([tf.reduce_mean(loss(y, outputs)), *penalties])
        return mean, tf.gradients(mean, w), place

    return gradient


# endregion: pipeline


# region: judge
def judge(model, data, flags):
    """Tests each newest checkpoint, keeps the best, and ends training when none gets better.

    Returns the run directory and the path of the best checkpoint. What it must remember stands in
    its metrics: when it starts again it tests no checkpoint twice.
    """
    metrics = Metrics(("evaluator", 0), [None], [], flags)  # None: it is not the chief
    directory, folder = metrics.directory, f"{metrics.directory}/best"
    tests = read_tests(directory)
    since_best = list(reversed(tests)).index(best_step(tests)) if tests else 0
    if since_best >= flags.early_stopping:  # and training goes on: somebody has removed `stop`
        since_best = 0
    with tf.Graph().as_default(), tf.Session() as session:
        w, state = shared_variables(model, 1)
        rows = variables(tf.get_local_variable, "rows", [data.x_test, data.y_test])
        test = evaluation(model, w, state, state, *rows)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        saver = tf.train.Saver()
        while checkpoint := next_checkpoint(directory, folder, tests, flags):
            began, step = time.time(), step_of(checkpoint)
            saver.restore(session, checkpoint)
            means = session.run(test)
            metrics.test(began, step, *means)
            tests[step] = means[1]
            best = best_step(tests)
            remove_all_but(folder, f"model.ckpt-{best}")
            since_best = 0 if step == best else since_best + 1
            if since_best >= flags.early_stopping > 0:
                print(f"no better one in {since_best} tests: training ends", flush=True)
                open(f"{directory}/stop", "a").close()
    return directory, f"{folder}/model.ckpt-{best_step(tests)}"


def best_step(tests):
    """Returns the best step of {step: the first of METRICS}, of equal ones the first."""
    better, _ = next(iter(METRICS.values()))
    choose = max if better == "max" else min
    return choose(tests, key=tests.get)


# endregion: judge


def build(cluster, model, data, flags):
    """Builds the graph: the step counter, one update, what a new session and a checkpoint need.

    Worker k reads every n-th of the files.
    """
    k, n = cluster.rank, len(cluster.workers)
    if len(data.files) < n:
        raise ValueError(f"{len(data.files)} files are too few for {n} workers")
    with tf.device(
        tf.train.replica_device_setter(cluster=cluster.spec, worker_device=cluster.device)
    ):
        step = tf.train.get_or_create_global_step()
        w, state = shared_variables(model, len(cluster.ps))
        # With n in the names: a checkpoint of another number of workers does not fit.
        place = [tf.get_variable(f"place_{rank}_of_{n}", [2], tf.int64) for rank in range(n)][k]
    with tf.device(cluster.device):
        local_state = copy_of_state(model, state, k)
        dataset = mini_batches(data.files[k::n], data.shape, place.read_value(), flags)
        iterator = tf.data.make_initializable_iterator(dataset)
        gradient = gradients_of_files(model, local_state, iterator)
        update = algorithm(w, step, gradient, place, flags)
        save_state = list(map(tf.assign, state, local_state))
        return step, update, iterator.initializer, save_state


def main():
    """Runs the task that TF_CONFIG names: a ps serves, a worker trains, the evaluator tests."""
    flags = parse_flags()
    config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    is_evaluator = config.task_type == "evaluator"  # it is not part of the cluster
    if not is_evaluator:
        cluster = Cluster()
        server = tf.train.Server(cluster.spec, *cluster.task, config=cluster.config)
        if cluster.job == "ps":
            return serve(cluster, server)
    data = load_data(flags.dataset)
    keras.utils.set_random_seed(flags.seed)
    model = make_model(data)  # outside of the graph, where Keras makes its first values
    if is_evaluator:
        directory, best = judge(model, data, flags)
        export(model, best, directory)
        return print("done, the output is in", directory, flush=True)
    with tf.Graph().as_default():
        graph = build(cluster, model, data, flags)
        train_until_stopped(cluster, server, model.trainable_variables, *graph, flags)


# From here to the end: the same text in every example with a parameter server. --------------------


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
            parser.error(f"argument --{name.replace('_', '-')}: must be {least} 0 and finite")
    return flags


# region: cluster
OPTIONAL_WAIT_SECONDS = 30  # for a task without which this one can go on
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other


class Cluster:
    """The tasks of the cluster, and which of them this is, from TF_CONFIG."""

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


def wait_until(condition, seconds, what=None):
    """Returns when condition() is true, or after so many seconds; then raises `what`, if given."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            if what:
                raise TimeoutError(f"{what} in {seconds} s")
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
    """Returns the vectors on the ps of those of w: one message to each ps."""
    arrived = []
    for v, vector in zip(w, vectors):
        with tf.device(v.device):
            arrived += [tf.identity(vector)]
    return arrived


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
    return list(map(tf.reshape, parts, shapes))


# region: model
def copy_of_state(model, state, rank):
    """Makes this worker's variables for what the model keeps beside w. They begin as the ps's."""
    copies = []
    for v, original in zip(state, model.non_trainable_variables):
        # The seeds differ, so that no two workers drop the same units.
        value = v + rank if original.name == "seed_generator_state" else v.value()
        copies += [tf.get_local_variable(f"own_{v.op.name}", initializer=value)]
    return copies


def gradients(model, local_state, x, y, flags, rank):
    """Returns gradient(w, number) -> (the loss on a mini-batch of the rows x, y at w, g like w)."""

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
    """Returns [loss, each of METRICS] at w, means over the rows (x, y)."""
    # The chief's state goes to the ps first, so that the checkpoint has what is tested.
    with tf.control_dependencies(map(tf.assign, state, local_state)):
        parameters = unpack(model, [tf.check_numerics(v, "w") for v in w])
    outputs, _ = model.stateless_call(parameters, local_state, x.read_value(), training=False)
    functions = [loss] + [function for _, function in METRICS.values()]
    return [tf.reduce_mean(function(y.read_value(), outputs)) for function in functions]


# region: metrics
# A line of metrics-<task>.csv is a push: global_step counts it, loss is that of its last
# mini-batch, bytes are those pulled and pushed, and wait_seconds pass from the gradient to its
# arrival. Or it is a test: its end, its begin, global_step, and TEST. Times are seconds since 1970.
PUSH = "push_time,pull_time,global_step,local_steps,examples,loss,staleness,bytes,wait_seconds"
TEST = {"test_loss": "min"}
for name, (better, function) in METRICS.items():
    # Not an object of Keras with update_state(): it would also average over the tests before.
    if better not in ("max", "min") or hasattr(function, "update_state"):
        raise ValueError(f'METRICS needs ("max" or "min", function), not ({better!r}, {function})')
    TEST[f"test_{name}"] = better


def push_row(update, step, flags):
    """Returns the columns PUSH as one float64 tensor: to fetch one costs less than to fetch nine.

    Of an update, pulled and pushed are lists of vectors, version and ticket the counts of updates
    at the pull and before the push, and push is the op that pushes.
    """
    with tf.control_dependencies([update.push]), tf.device(step.device):
        ticket = tf.identity(update.ticket)  # one message: the push has arrived, and its number
    ticket = tf.identity(ticket)  # here: what follows it needs no second message
    times = []
    for tensors in update.pulled, update.pushed, [ticket]:  # in a tf.function they come in turn
        with tf.control_dependencies(tensors):
            times += [tf.timestamp()]
    pulled, ready, pushed = times
    local_steps = getattr(update, "local_steps", getattr(flags, "local_steps", 1))
    size = sum(tf.size(t, out_type=tf.int64) * t.dtype.size for t in update.pulled + update.pushed)
    row = [pushed, pulled, ticket + 1, local_steps, local_steps * flags.batch_size, update.loss]
    row += [ticket - update.version, size, pushed - ready]
    return tf.stack([tf.cast(column, "float64") for column in row])


class Metrics:
    """What a task leaves in OUTPUT_DIR: metrics-<task>.csv; the chief also flags.json."""

    def __init__(self, task, workers, parameters, flags, ps=0):
        """Raises ValueError if OUTPUT_DIR is no good name, or has another model's checkpoint."""
        self.directory = folder = os.path.abspath(os.getenv("OUTPUT_DIR") or "output")
        self.is_chief = task == workers[0]
        self.flags = flags
        self.step = self.shown = 0
        if set("*?[\\") & set(folder):  # patterns: it would find no checkpoint
            raise ValueError(f"OUTPUT_DIR must have none of the signs *?[\\: {folder}")
        os.makedirs(folder, exist_ok=True)
        if self.is_chief:
            self.lock = open(f"{folder}/.chief", "w")
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another chief has it
                raise
            except OSError:  # the file system has no locks
                pass
            facts = {
                "example": __doc__.split(":")[0],
                "script": __file__,
                "tasks": ["%s-%d" % worker for worker in workers],
                "ps": ps,
                "metrics": TEST,
                "variables": [[v.path, list(v.shape)] for v in parameters],
                "arguments": vars(flags),
                "versions": {"tensorflow": tf.__version__},
            }
            if tf.train.latest_checkpoint(folder):
                if json.load(open(f"{folder}/flags.json")).get("variables") != facts["variables"]:
                    raise ValueError(f"{folder} has a checkpoint of another model")
            with open(f"{folder}/flags.json", "w") as file:
                json.dump(facts, file, indent=2)
        # Line by line, so that even kill -9 loses none; it costs microseconds.
        self.file = open(f"{folder}/metrics-{task[0]}-{task[1]}.csv", "a", 1)
        # The line before a restart may have been cut short.
        print("# restart" if self.file.tell() else f"{PUSH},{','.join(TEST)}", file=self.file)

    def push(self, row):
        """Writes a line for one update, the columns PUSH. Raises if the loss is not finite."""
        print("%.6f,%.6f,%d,%d,%d,%.6g,%d,%d,%.6f" % tuple(row) + "," * len(TEST), file=self.file)
        self.step = int(row[2])
        if not np.isfinite(row[5]):
            raise FloatingPointError(f"loss is {row[5]} at update {self.step}")
        if self.is_chief and row[0] > self.shown + 1:
            self.shown = row[0]
            words = f"   loss {row[5]:.4g}   staleness {row[6]:.0f}"
            print(f"update {self.step} of {self.flags.steps}{words}", flush=True)

    def test(self, began, step, *means):
        """Writes and prints a test at `step` that began at that time: the columns TEST."""
        print(f"{time.time():.6f},{began:.6f},{step},,,,,,", *means, sep=",", file=self.file)
        self.step = step
        words = [f"  {name} {mean:.4g}" for name, mean in zip(TEST, means)]
        print(f"update {step} of {self.flags.steps}", *words, flush=True)


# region: evaluator
def step_of(checkpoint):
    """Returns the step that stands in the name of a checkpoint."""
    return int(checkpoint.rpartition("-")[2])


def read_tests(directory):
    """Returns {step: the first of METRICS} of the evaluator's metrics."""
    with open(f"{directory}/metrics-evaluator-0.csv") as file:
        rows = csv.DictReader([line for line in file if "#" not in line])
    column = list(TEST)[1]
    # As float32, like a new test, so that equal ones compare as equal.
    return {int(row["global_step"]): np.float32(row[column]) for row in rows}


def next_checkpoint(directory, folder, tests, flags):
    """Waits for a checkpoint without a test, and copies it: the chief keeps only the last five.

    Returns the path of the copy, or None after the last one.
    """

    def newest():
        path = tf.train.latest_checkpoint(directory)
        return path if path and step_of(path) not in tests else None

    def over():
        return max(tests, default=0) >= last_update(directory, flags)

    while True:
        wait_until(lambda: over() or newest(), flags.checkpoint_timeout, "no new checkpoint came")
        if over():
            return None
        # If the chief has just removed this one, there are newer ones.
        with contextlib.suppress(FileNotFoundError):
            if checkpoint := newest():
                return copy_checkpoint(checkpoint, folder)


def copy_checkpoint(checkpoint, folder):
    """Copies a checkpoint into a folder; returns its path there. It raises if a file is gone."""
    os.makedirs(folder, exist_ok=True)
    # A saver removes the index first. So if that is there in the end, no file was missing.
    for path in [*glob.glob(checkpoint + ".data-*"), checkpoint + ".index"]:
        shutil.copy(path, folder)
    return f"{folder}/{os.path.basename(checkpoint)}"


def remove_all_but(folder, checkpoint):
    """Removes the files of other checkpoints from a folder."""
    for name in os.listdir(folder):
        if not name.startswith(checkpoint + "."):
            os.remove(f"{folder}/{name}")


def export(model, checkpoint, directory):
    """Writes the model with the values of a checkpoint as a SavedModel."""
    reader = tf.train.load_checkpoint(checkpoint)
    for v, value in zip(model.trainable_variables, unpack(model, [reader.get_tensor("w")])):
        v.assign(value)
    for i, v in enumerate(model.non_trainable_variables):
        v.assign(reader.get_tensor(f"state_{i}"))
    path = f"{directory}/saved_model"
    model.export(path, verbose=False)
    print(f"exported {checkpoint} to {path}", flush=True)


# region: prepare
def prepare(session, saver, metrics):
    """Returns when the model is on the ps: if it is not, the chief makes or restores it."""
    missing = tf.size(tf.report_uninitialized_variables(tf.global_variables()))
    if metrics.is_chief and session.run(missing):
        if checkpoint := tf.train.latest_checkpoint(metrics.directory):
            saver.restore(session, checkpoint)
        else:
            session.run(tf.global_variables_initializer())
    wait_until(lambda: not session.run(missing), REQUIRED_WAIT_SECONDS, "the chief made no model")
    session.run(tf.local_variables_initializer())


# region: stoppable_session
STOPPED = 2**40  # added to the step, it ends training early: no update is left to take


def last_update(directory, flags):
    """Returns --steps, or at an early end what the chief has written into the file `stop`."""
    with contextlib.suppress(FileNotFoundError, ValueError):  # ValueError: it is still empty
        with open(f"{directory}/stop") as file:
            return int(file.read())
    return flags.steps


def train_until_stopped(cluster, server, initial, step, update, start_reading, save_state, flags):
    """Updates w until all updates are made, or a file `stop` appears; the chief also saves it."""
    n, servers = len(cluster.workers), range(len(cluster.ps))
    row = push_row(update, step, flags)
    metrics = Metrics(cluster.task, cluster.workers, initial, flags, len(servers))
    stop_file = f"{metrics.directory}/stop"
    saver = tf.train.Saver(sharded=len(servers) > 1, save_relative_paths=True)
    start, started = barrier("start", cluster.rank)
    finish, finished = zip(*[barrier("done", cluster.rank, i) for i in servers])
    stop, undo_stop = step.assign_add(STOPPED), step.assign_sub(STOPPED)

    def save(session):
        session.run(save_state)
        saver.save(session, f"{metrics.directory}/model.ckpt", step, write_meta_graph=False)

    def make_updates(session):
        update_w = session.make_callable(row)
        metrics.push(update_w())  # the first call sets up the graph everywhere
        session.run(start)
        wait_until(lambda: session.run(started) >= n, OPTIONAL_WAIT_SECONDS)
        saved = metrics.step
        while True:
            metrics.push(update_w())
            if metrics.is_chief and metrics.step >= saved + flags.checkpoint_steps:
                save(session)
                saved = metrics.step
            if metrics.is_chief and os.path.exists(stop_file):
                session.run(stop)  # the next update of each worker is one too many

    def save_the_last(session):
        """Saves w with the number of updates that the workers have made, also at an early end."""
        wait_until(lambda: session.run(finished[0]) >= n - 1, OPTIONAL_WAIT_SECONDS)
        stopped = session.run(step) >= STOPPED
        if stopped:
            session.run(undo_stop)
        save(session)
        if stopped:
            with open(stop_file, "w") as file:
                file.write(str(session.run(step)))
            session.run(stop)  # for a worker that comes back later

    while True:
        for address in cluster.ps:
            wait_for_ps(address)
        session = tf.Session(server.target, config=cluster.config)
        try:
            prepare(session, saver, metrics)
            session.run(start_reading)
            with contextlib.suppress(tf.errors.OutOfRangeError):  # every update is taken
                make_updates(session)
            if metrics.is_chief:
                save_the_last(session)
            session.run(finish)
            return print("done, the output is in", metrics.directory)
        except (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError):
            print("a ps was lost: training goes on from the last checkpoint", flush=True)
            # Closing a session waits for the lost ps, up to 30 s.
            threading.Thread(target=session.close, daemon=True).start()


if __name__ == "__main__":
    main()
