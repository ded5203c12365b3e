"""Collective-AllReduce: no parameter server; the workers average their gradients among themselves.

    each worker   g_k(w) on a mini-batch of its own; w is the same on all
    all-reduce    mean = (g_1 + ... + g_n) / n, by a ring: each sends less than twice its gradient
    each worker   w <- w - lr * mean, on its own copy of w

Kind:          all-reduce
Paper:         Patarasuk, Yuan 2009, Bandwidth Optimal All-reduce Algorithms for Clusters of
               Workstations
Differs from:  Synchronous-SGD: every worker has its own w, and there is no ps
Simplified:    one device per worker
Run:           bash run.sh
"""
import argparse
import collections
import faulthandler
import fcntl
import functools
import json
import os
import socket
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the import; what it logs is raised, too
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, step, batch_loss, flags):
    """One step of one worker; all make it at once. It runs in tf.distribute.Strategy.run.

    w: the variables, each worker's own copy. step: the counter of steps.
    batch_loss(w, number): the scalar loss on mini-batch `number` at w.
    """
    version = step.read_value()
    w_k = [tf.identity(v) for v in w]
    loss = batch_loss(w_k, version)
    g = gradients(loss, w_k)

    # Collective-AllReduce: the mean of the gradients of all; it waits, so w stays equal everywhere.
    mean = tf.distribute.get_replica_context().all_reduce("MEAN", g, options(flags))
    for v, d in zip(w, mean):
        v.assign_sub(flags.learning_rate * d)
    step.assign_add(1)
    return Update(w_k, loss, g, version, version, mean[0])


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults


def options(flags):
    """How the workers exchange gradients: by a ring, in packs."""
    # Its timeout_seconds would leave a sleeping thread for each all-reduce; one thread watches.
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=flags.bytes_per_pack,
        implementation=tf.distribute.experimental.CommunicationImplementation.RING)


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--steps-per-call", number(int, 1), 10, "steps in one call of the graph", metavar="C")
    add("--bytes-per-pack", number(int, 0), 0, "bytes sent at once, 0: all of them", metavar="B")
    add("--step-timeout", number(int, 1), 60, "seconds to wait for a step at most", metavar="S")


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


# region: workers
REQUIRED_WAIT_SECONDS = 120  # for a worker without which this one cannot go on


class Cluster:
    """The workers, and which of them this is, from TF_CONFIG."""

    def __init__(self):
        config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = {"chief" if job == "master" else job: tasks
                for job, tasks in config.cluster_spec().as_dict().items()}
        task = "chief" if config.task_type == "master" else config.task_type, config.task_id
        self.addresses = {(job, index): address for job in ("chief", "worker")
                          for index, address in enumerate(jobs.get(job, []))}
        self.workers = list(self.addresses)
        self.rank = self.workers.index(task)  # raises where there is no such task
        self.name = "%s-%d" % task

    def wait_for_workers(self):
        """Returns when every worker listens at its address."""
        # TensorFlow waits for them, too, but for an hour.
        port = int(self.addresses[self.workers[self.rank]].rsplit(":", 1)[1])
        with socket.create_server(("", port), reuse_port="TF_GRPC_REUSE_PORT" in os.environ):
            for (job, index), address in self.addresses.items():
                if not answers(address):
                    print("waiting for %s %d at %s" % (job, index, address), flush=True)
                if not wait_until(functools.partial(answers, address), REQUIRED_WAIT_SECONDS):
                    raise TimeoutError("%s %d did not answer at %s in %d s" % (
                        job, index, address, REQUIRED_WAIT_SECONDS))

    def silent(self):
        """The workers that do not answer, in words; one that is stopped accepts, and no more."""
        return ", ".join("%s %d did not answer at %s" % (*task, address)
                         for task, address in self.addresses.items() if not answers(address, 1))

    def watch(self, step, flags):
        """Ends this task when it makes no step for --step-timeout seconds."""
        made, since, limit = step.numpy(), time.time(), REQUIRED_WAIT_SECONDS
        while made < flags.steps:
            time.sleep(0.1)
            if step.numpy() != made:
                made, since, limit = step.numpy(), time.time(), flags.step_timeout
            elif time.time() > since + limit:
                print("TimeoutError: No step was made in %d s; %s" % (
                    limit, self.silent() or "all workers answer"), file=sys.stderr, flush=True)
                os._exit(1)


def answers(address, greeting=0):
    """Whether a worker at host:port accepts, and says so many bytes: gRPC speaks first."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as s:
            return len(s.recv(greeting)) == greeting
    except OSError:
        return False


def wait_until(condition, seconds):
    """Waits for condition() for so many seconds at most; returns what it was at the end."""
    deadline = time.time() + seconds
    while not (met := condition()) and time.time() < deadline:
        time.sleep(0.1)
    return met
# endregion: workers


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


# region: strategy_calls
def train(strategy, step, w, states, steps_at_once, test, metrics, flags, chief=True):
    """Updates until all are made; the chief also evaluates w, and saves it.

    steps_at_once(count) makes that many, and returns the columns PUSH of each, [count, 9].
    """
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step, w=w, state=states[0]), metrics.directory, max_to_keep=5,
        checkpoint_name="model.ckpt")
    if manager.latest_checkpoint:
        manager.checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
        for state in states[1:]:
            for v, saved in zip(state, states[0]):
                v.assign(saved)
    metrics.step = step.numpy()
    metrics.saved = metrics.step, time.time()

    def mean_step():
        return strategy.reduce("MEAN", strategy.run(lambda: tf.cast(step, tf.float64)), axis=None)
    if mean_step() != metrics.step:
        raise RuntimeError("This worker begins at step %d, others elsewhere" % metrics.step)

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
    try:  # nobody leaves while another one still fetches its part of the last mean
        mean_step()
    except tf.errors.UnavailableError:  # all had come here, and the first have left
        pass
    if chief:
        metrics.test(evaluate, all_rows=True)
        manager.save(checkpoint_number=metrics.step)
    print("done, the output is in", metrics.directory, flush=True)
# endregion: strategy_calls


# region: replicas
def build(strategy, model, data, flags, ranks, n):
    """The step counter, w, the states, and functions that make steps and test w.

    ranks: those of n replicas that are in this process. Replica k has every n-th of the rows.
    """
    with strategy.scope():  # each replica has its own copy of these, and moves it itself
        step = tf.Variable(0, dtype=tf.int64)
        w = [tf.Variable(v.numpy()) for v in model.trainable_variables]
    states, batch_loss = [], {}  # of the replicas that are here
    with tf.device("/CPU:0"):  # a GPU takes no variables of int32
        for k in ranks:
            rows = [tf.Variable(part[k::n]) for part in (data.x_train, data.y_train)]
            states.append([tf.Variable(v.numpy()) for v in model.non_trainable_variables])
            batch_loss[k] = batches(model, states[-1], *rows, flags, k)
        test_rows = [tf.Variable(part) for part in (data.x_test, data.y_test)]

    def one_step():
        rank = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        update = algorithm(w, step, batch_loss[int(rank)], flags)
        return push_row(update, step, flags, len(ranks), 2 * (n - len(ranks)) / n)

    @tf.function
    def steps_at_once(count):
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            rows = rows.write(i, strategy.experimental_local_results(strategy.run(one_step))[0])
        return rows.stack()

    @tf.function
    def test(first):
        return [step.read_value(), *evaluation(model, states[0], w, *test_rows, first)]
    return step, w, states, steps_at_once, test
# endregion: replicas


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


def main():
    flags, cluster = parse_flags(), Cluster()
    data, metrics = load_data(flags.dataset), Metrics(cluster.name, cluster.workers, flags)
    cluster.wait_for_workers()
    # No Python thread runs while TensorFlow waits for the others; faulthandler's is a C thread.
    faulthandler.dump_traceback_later(REQUIRED_WAIT_SECONDS, exit=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options(flags))
    if strategy.num_replicas_in_sync > len(cluster.workers):
        raise RuntimeError("A worker is for one GPU; start one for each")
    keras.utils.set_random_seed(flags.seed)
    try:
        built = build(strategy, make_model(data), data, flags, [cluster.rank], len(cluster.workers))
        faulthandler.cancel_dump_traceback_later()
        step = strategy.experimental_local_results(built[0])[0]
        threading.Thread(target=cluster.watch, args=(step, flags), daemon=True).start()
        train(strategy, *built, metrics, flags, cluster.rank == 0)
    except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError) as error:
        raise ConnectionError(cluster.silent() or "all workers answer") from error


if __name__ == "__main__":
    main()
