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
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, state, stages, places, step, mini_batch, flags):
    """One update of the whole model; one client runs it in all places.

    A list for all places: w, the variables of each; state, its variables for what its layers keep
    beside w; stages, its layers as a model. step: the counter of updates.
    mini_batch(number): the inputs, at the first place, and the labels, at the last.
    """
    M, number = flags.micro_batches, tf.count_up_to(step, flags.steps)
    x, y = mini_batch(number)
    h, push, penalties = [cut(x, M)], [], []

    # Model-Parallelism: forward, from place to place. While a place computes one micro-batch, the
    # next place computes the one before it.
    for place, stage, w_k, state_k in zip(places, stages, w, state):
        h_k, after, more = run_sequentially(place, stage, w_k, state_k, h[-1])
        h, penalties = [*h, h_k], penalties + more
        push += [v.assign(new) for v, new in zip(state_k, after)]
    with tf.device(places[-1]):
        losses = [tf.reduce_mean(loss(*rows)) for rows in zip(cut(y, M), h[-1])]
        mean = tf.add_n(losses + penalties) / M

    # Model-Parallelism: backward. Each gradient is computed where its forward op was, so gradients
    # cross where the activations did, in the other direction.
    variables, crossing = sum(w, []), sum(h[1:-1], [])
    g = tf.gradients(mean, variables + crossing, colocate_gradients_with_ops=True)

    # Model-Parallelism: each place updates its own part of w.
    for v, d in zip(variables, g):
        with tf.device(v.device):
            push.append(v.assign_sub(flags.learning_rate * tf.convert_to_tensor(d)))
    return Update([], mean, crossing + g[len(variables):], number, number, tf.group(*push))


def cut(batch, M):
    """The rows of a mini-batch in M equal parts, on the same device."""
    with tf.device(batch.device):
        return tf.split(batch, M)


def run_sequentially(place, stage, w_k, state_k, inputs):
    """A stage's output for each micro-batch, its state after the last, and its penalties."""
    outputs, penalties, state_k = [], [], [v.read_value() for v in state_k]
    for m, micro_batch in enumerate(inputs):
        # Model-Parallelism: one after the other. Otherwise TensorFlow starts all of them at once,
        # and the next place gets the first one as late as the last.
        with tf.device(place), tf.control_dependencies(outputs[-1:]):
            with tf.name_scope("micro_batch_%d" % m):
                h, state_k, more = stage.stateless_call(
                    w_k, state_k, micro_batch, training=True, return_losses=True)
        outputs, penalties = [*outputs, h], penalties + more
    return outputs, state_k, penalties


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--micro-batches", number(int, 1), 4, "equal parts of a mini-batch", metavar="M")
    add("--devices", number(int, 1, 65), 1, "logical CPU devices of a worker, each a place",
        metavar="D")
    add("--step-timeout", number(int, 1), 60, "longest wait for an update, in seconds", metavar="S")
    add("--timeline-steps", number(int, 0), 0, "updates between two timeline-*.json; 0: none",
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
            data = [np.asarray_chkfinite(file[part]) for part in Data._fields]
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


# region: stages -- cut your own model here
def stages(model, K):
    """The layers of a Sequential model in K runs, each a model: one for each place."""
    if not isinstance(model, keras.Sequential):
        raise TypeError("A model that is not Sequential needs stages() of its own")
    layers = model.layers
    if K > len(layers):
        raise ValueError("The model has %d layers, too few for %d places, workers times --devices"
                         % (len(layers), K))
    ends = [len(layers) * k // K for k in range(K + 1)]
    return [keras.Model(layers[begin].input, layers[end - 1].output)
            for begin, end in zip(ends, ends[1:])]
# endregion: stages


# region: variables
def variables(get_variable, name, values):
    """Variables with these first values, which as constants would stand in each graph sent."""
    return [get_variable("%s_%d" % (name, i), initializer=tf.ensure_shape(
        tf.numpy_function(lambda v=v: np.asarray(v), [], v.dtype), v.shape))
            for i, v in enumerate(values)]
# endregion: variables


# region: mini_batches
def spread(get_variable, name, values, places):
    """For each place variables with these first values, a list for each place."""
    homes = iter([place for place, each in zip(places, values) for _ in each])

    def get_there(*names, **options):
        with tf.device(next(homes)):
            return get_variable(*names, **options)
    made = iter(variables(get_there, name, sum(values, [])))
    return [[next(made) for _ in each] for each in values]


def mini_batches(x, y, flags):
    """mini_batch(number) -> inputs, where x is, and labels, where y is.

    The rows depend on (seed, number) and on nothing else: both places draw the same.
    """
    def rows_of(array, number):
        with tf.device(array.device):
            key = [tf.constant(flags.seed * 65536, tf.int64), tf.cast(number, tf.int64)]
            rows = tf.random.stateless_uniform([flags.batch_size], key, 0, array.shape[0], tf.int32)
            return tf.gather(array, rows)
    return lambda number: (rows_of(x, number), rows_of(y, number))


def evaluation(w, state, stages, places, x, y):
    """[number of rows, loss, each of METRICS] at w: means of TEST_ROWS rows, from "first:0" on."""
    first = tf.placeholder_with_default(0, [], "first")
    h = x.read_value()[first:first + TEST_ROWS]
    for place, stage, w_k, state_k in zip(places, stages, w, state):
        with tf.device(place):
            h, _ = stage.stateless_call(w_k, state_k, h, training=False)
    of_rows = [loss, *[metric for _, metric in METRICS.values()]]
    with tf.device(places[-1]):
        y_some = y.read_value()[first:first + TEST_ROWS]
        return [tf.constant(x.shape[0]), *[tf.reduce_mean(each(y_some, h)) for each in of_rows]]
# endregion: mini_batches


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


# region: one_client
def start(cluster, flags):
    """The server of this worker, None where it is alone, and all places, when all are there."""
    parts = ["/device:CPU:%d" % d for d in range(flags.devices)]
    if len(cluster.workers) == 1:
        return None, ["/job:localhost/task:0" + part for part in parts]
    server = tf.train.Server({"worker": cluster.addresses}, "worker", cluster.rank,
                             config=tf.ConfigProto(device_count={"CPU": flags.devices}))
    if not wait_until(lambda: not silent(cluster), REQUIRED_WAIT_SECONDS):
        raise TimeoutError("%s in %d s" % (silent(cluster), REQUIRED_WAIT_SECONDS))
    return server, ["/job:worker/task:%d%s" % (k, part)
                    for k in range(len(cluster.workers)) for part in parts]


def silent(cluster):
    """The workers that do not answer, in words."""
    return ", ".join("%s %d did not answer at %s" % (*task, address) for task, address
                     in zip(cluster.workers, cluster.addresses) if not answers(address))


def answers(address):
    """Whether the server at host:port says something: it speaks first, if it is not stopped."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as s:
            return len(s.recv(1)) == 1
    except OSError:
        return False


def wait_until(condition, seconds):
    """Waits for condition() for so many seconds at most; returns whether it came true."""
    deadline = time.time() + seconds
    while not (met := condition()) and time.time() < deadline:
        time.sleep(0.1)
    return met


def heartbeat(k):
    """A counter at worker k that the client moves with each update; below 0 when it is done."""
    with tf.device("/job:worker/task:%d/device:CPU:0" % k):
        return tf.get_local_variable("heartbeat_%d" % k, [], tf.int64, tf.zeros_initializer())


def serve(cluster, server, flags):
    """What a worker does that is not the client: it lends its devices until the client is done."""
    print("listening at", cluster.addresses[cluster.rank], flush=True)
    client, beat, made, since = cluster.addresses[0], heartbeat(cluster.rank), 0, time.time()
    alone = tf.ConfigProto(device_filters=["/job:worker/task:%d" % cluster.rank])
    with tf.Session(server.target, config=alone) as session:
        while made >= 0:
            before, gone = made, not answers(client)
            # The client may take long to set up; before that there is no counter.
            with contextlib.suppress(tf.errors.FailedPreconditionError):
                made = session.run(beat)
            limit = flags.step_timeout if made or gone else REQUIRED_WAIT_SECONDS
            if made != before:
                since = time.time()
            elif time.time() > since + limit:
                what = "did not answer at %s" % client if gone else "made no update"
                raise TimeoutError("%s %d %s for %d s" % (*cluster.workers[0], what, limit))
            time.sleep(0.5)
    print("done", flush=True)


@contextlib.contextmanager
def abort_peer_lost(cluster, flags):
    """Ends this task when the work inside has lost a worker."""
    try:
        yield
    except (tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
        # Not raised: to close the session, TensorFlow would wait for that worker without end.
        wait_until(lambda: silent(cluster), 2)  # one that dies may answer for a moment
        print("ConnectionError: %s" % (silent(cluster) or "No update was made in %d s" %
                                       flags.step_timeout), file=sys.stderr, flush=True)
        os._exit(1)


def train(cluster, server, step, update, test, metrics, flags):
    """Updates until all are made; also evaluates w, and saves it."""
    beats = [heartbeat(k) for k in range(1, len(cluster.workers))]
    row = [push_row(update, step, flags), *[beat.assign_add(1).op for beat in beats]]
    done = [beat.assign(-1).op for beat in beats]
    scaffold = tf.train.Scaffold(saver=tf.train.Saver(save_relative_paths=True))
    hooks = [tf.train.CheckpointSaverHook(metrics.directory, **every, scaffold=scaffold,
                                          save_graph_def=False)
             for every in ({"save_steps": flags.checkpoint_steps},
                           {"save_secs": flags.checkpoint_seconds})]
    if flags.timeline_steps:
        hooks.append(tf.train.ProfilerHook(flags.timeline_steps, output_dir=metrics.directory))
    target, config = server.target if server else "", tf.ConfigProto(
        device_count={"CPU": flags.devices}, operation_timeout_in_ms=1000 * flags.step_timeout)
    with abort_peer_lost(cluster, flags):
        # Not a MonitoredSession, which would wait for a lost worker without end.
        session = tf.train.SingularMonitoredSession(
            hooks, scaffold, target, config, metrics.directory)
        without_hooks = session.raw_session()

        def evaluate(first):
            return without_hooks.run([step, *test], {"first:0": first})
        try:
            while True:
                metrics.push(session.run(row)[0])
                if time.time() > metrics.next_test:
                    metrics.test(evaluate)
        except tf.errors.OutOfRangeError:  # from count_up_to: every update is made
            metrics.test(evaluate, all_rows=True)
        session.close()  # the last checkpoint is made now, which needs all workers
        with tf.Session(target, config=config) as session:
            session.run(done)
    print("done, the output is in", metrics.directory, flush=True)
# endregion: one_client


# region: placement
def build(stages, data, places, flags):
    """The graph: the step counter, one update, the test."""
    ends = places[0], places[-1]
    with tf.device(places[0]):  # where the client is
        step = tf.train.get_or_create_global_step()
        w = spread(tf.get_variable, "w", [each.trainable_variables for each in stages], places)
        state = spread(
            tf.get_variable, "state", [each.non_trainable_variables for each in stages], places)
        train_rows, test_rows = [
            sum(spread(tf.get_local_variable, name, [[x], [y]], ends), [])
            for name, x, y in (("train", *data[:2]), ("test", *data[2:]))]
        update = algorithm(w, state, stages, places, step, mini_batches(*train_rows, flags), flags)
        return step, update, evaluation(w, state, stages, places, *test_rows)
# endregion: placement


def main():
    flags, cluster = parse_flags(), Cluster()
    if flags.batch_size % flags.micro_batches:
        raise ValueError("--batch-size %d cannot be cut into %d equal parts (--micro-batches)" % (
            flags.batch_size, flags.micro_batches))
    if cluster.rank:
        with tf.Graph().as_default():
            return serve(cluster, start(cluster, flags)[0], flags)
    metrics = Metrics(cluster.name, cluster.workers[:1], flags)  # the others make no update
    server, places = start(cluster, flags)
    data = load_data(flags.dataset)
    keras.utils.set_random_seed(flags.seed)
    parts = stages(make_model(data), len(places))  # outside of the graph, as Keras needs it
    with tf.Graph().as_default():
        train(cluster, server, *build(parts, data, places, flags), metrics, flags)


if __name__ == "__main__":
    main()
