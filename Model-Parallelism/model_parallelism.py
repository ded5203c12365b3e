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
import json
import os
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the import; what it logs is raised, too
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row


def algorithm(w, state, stages, places, step, mini_batch, flags):
    """Builds one update of the whole model; one client runs it in all places.

    A list for all places: w, the variables of each; state, its variables for what its layers keep
    beside w; stages, its layers as a model. step: the counter of updates.
    mini_batch(number): inputs, at the first place, and labels, at the last, each in M parts.
    """
    K, M, number = len(places), flags.micro_batches, tf.count_up_to(step, flags.steps)
    x, y = mini_batch(number)
    # Model-Parallelism: of micro-batch m, h[k, m] crosses to place k; d[k, m], its gradient, back.
    h, d, penalties = {(0, m): x[m] for m in range(M)}, {}, {}
    g = [[0.0] * len(w_k) for w_k in w]
    before, after = [[]] * K, list(state)  # of each place: its last pass, and what that has kept

    for k, what, m in schedule(flags.schedule, K, M):
        # Model-Parallelism: a pass waits for the one before it in this place, or inputs come late.
        scope = tf.name_scope(f"{what}/micro_batch_{m}")
        with tf.device(places[k]), tf.control_dependencies(before[k]), scope:
            if what == "forward":
                h[k + 1, m], after[k], penalties[k, m] = stages[k].stateless_call(
                    w[k], after[k], h[k, m], training=True, return_losses=True
                )
                if k == K - 1:
                    h[K, m] = tf.reduce_mean(loss(y[m], h[K, m]))
                before[k] = [h[k + 1, m]]
            else:
                *d_w, d[k, m] = tf.gradients(
                    [h[k + 1, m], *penalties[k, m]],
                    [*w[k], h[k, m]],
                    [d.get((k + 1, m)), *[None] * len(penalties[k, m])],  # None: dL/dL = 1
                )
                g[k] = [total + tf.convert_to_tensor(d_v) for total, d_v in zip(g[k], d_w)]
                before[k] = [*g[k], d[k, m]] if k else g[k]

    # Model-Parallelism: each place updates its own part of w.
    push = [v.assign(new) for v, new in zip(sum(state, []), sum(after, []))]
    for v, g_v in zip(sum(w, []), sum(g, [])):
        with tf.device(v.device):
            push.append(v.assign_sub(flags.learning_rate / M * g_v))
    with tf.device(places[-1]):
        mean = tf.add_n([h[K, m] for m in range(M)] + sum(penalties.values(), [])) / M
    crossing = [tensors[k, m] for tensors in (h, d) for k in range(1, K) for m in range(M)]
    return Update([], mean, crossing, number, number, tf.group(*push))


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
    ("step-timeout", 60, "seconds to wait for an update at most"),
    ("timeline-steps", 0, "updates between two timeline-*.json; 0: none"),
]


# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "digits", "digits, mnist, fashion_mnist, or an .npz file"


def load_data(name):
    """Returns inputs [rows, features] and labels [rows] from 0, for training and for the test."""
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
    """Builds the graph: the step counter, one update, the test."""
    ends = places[0], places[-1]
    with tf.device(places[0]):  # where the client is
        step = tf.train.get_or_create_global_step()
        values = [stage.trainable_variables for stage in stages]
        w = placed_variables(tf.get_variable, "w", values, places)
        values = [stage.non_trainable_variables for stage in stages]
        state = placed_variables(tf.get_variable, "state", values, places)
        rows = [[data.x_train, data.x_test], [data.y_train, data.y_test]]
        (x, x_test), (y, y_test) = placed_variables(tf.get_local_variable, "data", rows, ends)
        update = algorithm(w, state, stages, places, step, mini_batches(x, y, flags), flags)
        return step, update, evaluation(w, state, stages, places, x_test, y_test)


def main():
    """Runs the worker that TF_CONFIG names: the first trains, the others lend their devices."""
    flags, cluster = parse_flags(), Cluster()
    if cluster.rank:
        with tf.Graph().as_default():
            return serve(cluster, start(cluster, flags)[0], flags)
    server, places = start(cluster, flags)
    data = load_data(flags.dataset)
    keras.utils.set_random_seed(flags.seed)
    model = make_model(data)
    parts = stages(model, len(places))  # outside of the graph, as Keras needs it
    if len(parts) < len(places):
        raise ValueError(f"The model has {len(parts)} layers, too few for {len(places)} places")
    with tf.Graph().as_default():
        train(cluster, server, model.trainable_variables, *build(parts, data, places, flags), flags)


# From here to the end: the same text in every example without a parameter server. -----------------


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


# region: peers
REQUIRED_WAIT_SECONDS = 120  # for a worker without which this one cannot go on


class Cluster:
    """The workers, and which of them this is, from TF_CONFIG."""

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


# region: variables
def initial_value(value):
    """Returns a value as a tensor. As a constant it would stand in the graph, which has a limit."""
    tensor = tf.numpy_function(lambda: np.asarray_chkfinite(value), [], value.dtype)
    return tf.ensure_shape(tensor, value.shape)


def variables(get_variable, name, values):
    """Makes variables with these first values: name_0, name_1, ..."""
    return [get_variable(f"{name}_{i}", initializer=initial_value(v)) for i, v in enumerate(values)]


# region: places
def placed_variables(get_variable, name, values, places):
    """Makes for each place variables with these first values; returns a list for each place."""
    made, number = [], 0
    for place, values_there in zip(places, values):
        variables_there = []
        for value in values_there:
            first = initial_value(value)  # the client computes it
            with tf.device(place):
                v = get_variable(f"{name}_{number}", initializer=first)
            variables_there.append(v)
            number += 1
        made.append(variables_there)
    return made


def mini_batches(x, y, flags):
    """Returns mini_batch(number) -> inputs, where x is, and labels, where y is, both in M parts.

    The rows depend on (seed, number) and on nothing else: both places draw the same.
    """

    def rows_of(array, number):
        with tf.device(array.device):
            key = [flags.seed * 65536, number]  # of int64, as the number is
            rows = tf.random.stateless_uniform([flags.batch_size], key, 0, array.shape[0], tf.int32)
            return tf.split(tf.gather(array, rows), flags.micro_batches)

    return lambda number: (rows_of(x, number), rows_of(y, number))


def evaluation(w, state, stages, places, x, y):
    """Returns [loss, each of METRICS] at w, means over the rows (x, y)."""
    h = x.read_value()
    for place, stage, w_k, state_k in zip(places, stages, w, state):
        with tf.device(place):
            w_k = [tf.check_numerics(v, "w") for v in w_k]
            h, _ = stage.stateless_call(w_k, state_k, h, training=False)
    functions = [loss] + [function for _, function in METRICS.values()]
    with tf.device(places[-1]):
        return [tf.reduce_mean(function(y.read_value(), h)) for function in functions]


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
    pulled = update.pulled or [update.version]
    for tensors in pulled, update.pushed, [ticket]:  # in a tf.function they come in turn
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


# region: one_client
def start(cluster, flags):
    """Returns the server of this worker, None where it is alone, and all places.

    Raises ValueError where flags do not fit.
    """
    if flags.batch_size % flags.micro_batches:
        raise ValueError(
            f"--batch-size {flags.batch_size} cannot be cut into {flags.micro_batches} equal parts "
            "(--micro-batches)"
        )
    if flags.schedule not in ("gpipe", "1f1b"):
        raise ValueError(f"--schedule {flags.schedule} is neither gpipe nor 1f1b")
    parts = [f"/device:CPU:{d}" for d in range(flags.devices)]
    if len(cluster.workers) == 1:
        return None, ["/job:localhost/task:0" + part for part in parts]
    config = tf.ConfigProto(device_count={"CPU": flags.devices})
    server = tf.train.Server({"worker": cluster.addresses}, "worker", cluster.rank, config=config)
    if not wait_until(lambda: not silent_workers(cluster), REQUIRED_WAIT_SECONDS):
        raise TimeoutError(f"{silent_workers(cluster)} in {REQUIRED_WAIT_SECONDS} s")
    return server, [
        f"/job:worker/task:{k}{part}" for k in range(len(cluster.workers)) for part in parts
    ]


def silent_workers(cluster):
    """Returns in words which workers do not answer."""
    return ", ".join(
        f"{job} {index} did not answer at {address}"
        for (job, index), address in zip(cluster.workers, cluster.addresses)
        if not answers(address)
    )


def answers(address):
    """Returns whether the server at host:port says something: if not stopped, it speaks first."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as s:
            return s.recv(1) != b""
    except OSError:
        return False


def wait_until(condition, seconds):
    """Waits for condition() for so many seconds at most; returns whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def heartbeat(k):
    """Makes a counter at worker k. The client moves it with each update; below 0 it is done."""
    with tf.device(f"/job:worker/task:{k}/device:CPU:0"):
        return tf.get_local_variable(f"heartbeat_{k}", [], tf.int64, tf.zeros_initializer())


def serve(cluster, server, flags):
    """Lends the devices of this worker to the client until that one is done."""
    print("listening at", cluster.addresses[cluster.rank], flush=True)
    client, beat, made, since = cluster.addresses[0], heartbeat(cluster.rank), 0, time.monotonic()
    alone = tf.ConfigProto(device_filters=[f"/job:worker/task:{cluster.rank}"])
    with tf.Session(server.target, config=alone) as session:
        while made >= 0:
            before, gone = made, not answers(client)
            # The client may take long to set up; before that there is no counter.
            with contextlib.suppress(tf.errors.FailedPreconditionError):
                made = session.run(beat)
            limit = flags.step_timeout if made or gone else REQUIRED_WAIT_SECONDS
            if made != before:
                since = time.monotonic()
            elif time.monotonic() > since + limit:
                job, index = cluster.workers[0]
                what = f"did not answer at {client}" if gone else "made no update"
                raise TimeoutError(f"{job} {index} {what} for {limit} s")
            time.sleep(0.5)
    print("done", flush=True)


@contextlib.contextmanager
def abort_peer_lost(cluster, flags):
    """Ends this task when the work inside has lost a worker."""
    try:
        yield
    except (
        tf.errors.AbortedError,
        tf.errors.DeadlineExceededError,
        tf.errors.UnavailableError,
    ) as error:
        # Not raised: to close the session, TensorFlow would wait for that worker without end.
        wait_until(lambda: silent_workers(cluster), 2)  # one that dies may answer for a moment
        print("ConnectionError:", silent_workers(cluster) or error, file=sys.stderr)
        os._exit(1)


def train(cluster, server, variables, step, update, test, flags):
    """Updates w until all updates are made; tests and saves it every --checkpoint-steps."""
    # The other workers make no update.
    metrics = Metrics(cluster.task, cluster.workers[:1], variables, flags)
    beats = [heartbeat(k) for k in range(1, len(cluster.workers))]
    row = [push_row(update, step, flags), *[beat.assign_add(1).op for beat in beats]]
    saver = tf.train.Saver(save_relative_paths=True)
    config = tf.ConfigProto(
        device_count={"CPU": flags.devices}, operation_timeout_in_ms=1000 * flags.step_timeout
    )

    def test_and_save():
        metrics.test(time.time(), *session.run([step, *test]))
        saver.save(session, f"{metrics.directory}/model.ckpt", step, write_meta_graph=False)

    with abort_peer_lost(cluster, flags):
        session = tf.Session(server.target if server else "", config=config)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        if checkpoint := tf.train.latest_checkpoint(metrics.directory):
            saver.restore(session, checkpoint)
        with contextlib.suppress(tf.errors.OutOfRangeError):  # every update is made
            while True:
                try:
                    metrics.push(traced(session, row, metrics, flags))
                except tf.errors.AbortedError as error:
                    # TensorFlow numbers its requests at random, from 2**32 seeds. A worker refuses
                    # a number that it has seen before it does anything: so make the update again.
                    if "received twice" in str(error):
                        continue
                    raise
                if not metrics.step % flags.checkpoint_steps and metrics.step < flags.steps:
                    test_and_save()
        test_and_save()
        session.run([beat.assign(-1).op for beat in beats])
        session.close()
    print("done, the output is in", metrics.directory, flush=True)


def traced(session, row, metrics, flags):
    """Makes an update; returns its row. Every --timeline-steps updates it writes a timeline."""
    if not flags.timeline_steps or (metrics.step + 1) % flags.timeline_steps:
        return session.run(row)[0]
    from tensorflow.python.client import timeline  # as tf.train.ProfilerHook does

    statistics = tf.RunMetadata()
    made = session.run(row, None, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), statistics)
    with open(f"{metrics.directory}/timeline-{metrics.step + 1}.json", "w") as file:
        file.write(timeline.Timeline(statistics.step_stats).generate_chrome_trace_format())
    return made[0]


if __name__ == "__main__":
    main()
