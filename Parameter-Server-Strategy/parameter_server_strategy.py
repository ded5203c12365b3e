"""ParameterServerStrategy: asynchronous training in TensorFlow 2; a coordinator schedules it.

    chief    schedules closures of K updates each; the next free worker takes one
    pull     w_k <- w, from the parameter servers, while other workers may write it
    push     w <- w - lr * g(w_k), without a lock, as HogWild does

Kind:          coordinator
Paper:         Li et al. 2014, Scaling Distributed Machine Learning with the Parameter Server
Differs from:  HogWild: only the chief runs Python; workers execute the functions that it sends
Simplified:    the graph contains all data; nothing bounds the staleness of an update
Run:           bash run.sh
"""
import argparse
import collections
import fcntl
import gc
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
    """One update of one worker, as a part of a closure; all workers run theirs at once.

    w: the variables, and each part of a split one. step: the counter of updates.
    batch_loss(w): the scalar loss at w on the next mini-batch of this worker.
    """
    # ParameterServerStrategy: pull w, after noting how many updates it has had.
    version = step.read_value()
    with tf.control_dependencies([version]):
        w_k = pull(w)

    # ParameterServerStrategy: a gradient at the copy. No lock keeps the others from moving w.
    loss = batch_loss(w_k)
    g = gradients(loss, w_k)

    # ParameterServerStrategy: push, however late. The ticket counts this update, atomically. It
    # has no limit, because the coordinator runs the closure of a lost worker again.
    delta = send(w, [flags.learning_rate * d for d in g])
    with tf.control_dependencies(delta):
        ticket = tf.raw_ops.ResourceCountUpTo(
            resource=step.handle, limit=tf.int64.max, T=tf.int64)
    with tf.control_dependencies([ticket]):
        push = tf.group(*[v.assign_sub(d) for v, d in zip(w, delta)])
    return Update(w_k, loss, g, version, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--closure-steps", number(int, 1), 10, "updates in one closure", metavar="K")
    add("--shard-bytes", number(int, 1), 16384, "split variables into parts of at least this "
        "many bytes", metavar="B")


# region: messages
def pull(w):
    """Copies of w on this worker: one message from each ps, instead of one for each variable."""
    return transfer(w, lambda v, _: v.read_value(), to_ps=False)


def send(w, tensors):
    """These tensors, shaped as w, on the ps of their variables: one message to each ps."""
    return transfer(w, lambda _, i: tensors[i], to_ps=True)


def keep(state, own, update):
    """The update, which also writes this worker's state to the ps: it is tested and saved there."""
    with tf.control_dependencies(update.pushed):  # the gradient is that of the last local step
        values = send(state, [v.read_value() for v in own])
    kept = [v.assign(value) for v, value in zip(state, values)]
    return update._replace(push=tf.group(update.push, *kept))


def transfer(w, value, to_ps):
    """value(v, i) of each of w, packed on the way: one vector for each ps, and type of number."""
    moved, worker = {}, tf.no_op().device
    for ps, dtype in sorted({(v.device, v.dtype) for v in w}, key=str):
        some = [(i, v) for i, v in enumerate(w) if (v.device, v.dtype) == (ps, dtype)]
        with tf.device(worker if to_ps else ps):
            vector = tf.concat([tf.reshape(value(v, i), [-1]) for i, v in some], 0)
        with tf.device(ps if to_ps else worker):
            parts = tf.split(vector, [v.shape.num_elements() for _, v in some])
            moved.update((i, tf.reshape(part, v.shape)) for (i, v), part in zip(some, parts))
    return [moved[i] for i in range(len(w))]
# endregion: messages


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


# region: servers
REQUIRED_WAIT_SECONDS = 120  # for a task without which this one cannot go on
OPTIONAL_WAIT_SECONDS = 30  # for one without which it can


class Cluster:
    """The tasks of the cluster, and which of them this is, from TF_CONFIG."""

    def __init__(self):
        self.resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.spec, self.job = self.resolver.cluster_spec(), self.resolver.task_type
        jobs, self.index = self.spec.as_dict(), self.resolver.task_id
        if not (jobs.get("ps") and jobs.get("worker") and len(jobs.get("chief", [])) == 1):
            raise ValueError("TF_CONFIG must list a ps, a worker, and one chief, and say which "
                             "task this is")
        self.spec.task_address(self.job, self.index)  # raises where there is no such task
        self.chief, self.ps = jobs["chief"][0], jobs["ps"]
        self.servers = {(job, index): address for job in ("ps", "worker")
                        for index, address in enumerate(jobs[job])}
        self.workers = [task for task in self.servers if task[0] == "worker"]
        self.heard = time.time()  # when there was a sign of life from those that this task needs

    def wait_for_servers(self):
        """Returns when every ps and worker listens at its address."""
        # TensorFlow waits for them, too, but does not say for whom.
        for (job, index), address in self.servers.items():
            answers(address) or print("waiting for %s %d at %s" % (job, index, address), flush=True)
            if not wait_until(lambda a=address: answers(a), REQUIRED_WAIT_SECONDS):
                raise TimeoutError("%s %d did not answer at %s in %d s" % (
                    job, index, address, REQUIRED_WAIT_SECONDS))

    def silent(self):
        """The tasks that do not answer, in words; one that is stopped accepts, and no more."""
        return ", ".join("%s %d did not answer at %s" % (*task, address)
                         for task, address in self.servers.items() if not answers(address, 1))

    def watch(self):
        """Ends the chief where it has heard nothing for REQUIRED_WAIT_SECONDS: no call does."""
        self.heard = time.time()
        while time.time() < self.heard + REQUIRED_WAIT_SECONDS:
            time.sleep(0.5)
        print("TimeoutError: no update came in %d s; %s" % (
            REQUIRED_WAIT_SECONDS, self.silent() or "all answer"), file=sys.stderr, flush=True)
        os._exit(1)

    def session(self, target, job, index):
        """(a session of TensorFlow 1, whether that task was told to end, what tells it to)"""
        with tf.Graph().as_default(), tf.device("/job:%s/task:%d" % (job, index)):
            table = tf.raw_ops.MutableHashTableV2(
                key_dtype=tf.int64, value_dtype=tf.int64, shared_name="done")
            one = tf.constant([1], tf.int64)
            tell = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=one, values=one)
            told = tf.raw_ops.LookupTableSizeV2(table_handle=table)
            config = tf.compat.v1.ConfigProto(device_filters=["/job:%s/task:%d" % (job, index)],
                                              operation_timeout_in_ms=5000)
            return tf.compat.v1.Session(target, config=config), told, tell

    def serve(self):
        """A ps or a worker executes what the chief sends, until the chief says that all is done."""
        config = tf.compat.v1.ConfigProto()
        config.experimental.disable_thread_spinning = True  # the cores have better work
        server = tf.distribute.Server(self.spec, self.job, self.index, config=config)
        print("listening at", self.servers[self.job, self.index], flush=True)
        session, told, _ = self.session(server.target, self.job, self.index)
        while not run(session, told):
            if answers(self.chief, 1):
                self.heard = time.time()
            elif time.time() > self.heard + REQUIRED_WAIT_SECONDS:
                raise TimeoutError("the chief did not answer at %s in %d s" % (
                    self.chief, REQUIRED_WAIT_SECONDS))
            time.sleep(0.2)
        print("done", flush=True)

    def dismiss(self):
        """Tells each ps and worker that all is done. TensorFlow 2 has no call for that."""
        # Its servers are those of TensorFlow 1, so that a session can reach them.
        left = dict(self.servers)

        def all_told():
            for task, address in self.servers.items():
                if task in left and answers(address, 1):
                    session, told, tell = self.session("grpc://" + address, *task)
                    if run(session, [told, tell]):
                        del left[task]
            return not left
        wait_until(all_told, OPTIONAL_WAIT_SECONDS)  # one that was lost may be starting again


def run(session, fetch):
    """Its value; None where that was not to be had in time, or the task is gone."""
    try:
        return session.run(fetch)
    except (tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
        return None


def answers(address, greeting=0):
    """Whether a server at host:port accepts, and says so many bytes: gRPC speaks first."""
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
# endregion: servers


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


# region: per_worker
def mini_batches(coordinator, step, data, flags, n):
    """An iterator of mini-batches (x, y) for each worker: worker k has the rows k, k + n, ...

    The rows of a batch depend on (seed, k, number) and on nothing else; numbers begin at the step,
    so that a worker that is started again goes on with new ones.
    """
    def of_worker(_):
        rank = tf.distribute.coordinator.experimental_get_current_worker_index()
        x, y = [tf.constant(part)[rank::n] for part in (data.x_train, data.y_train)]

        def draw(number):
            key = [flags.seed * 65536 + rank, number]
            rows = tf.random.stateless_uniform([flags.batch_size], key, 0, tf.shape(x)[0], tf.int32)
            return tf.gather(x, rows), tf.gather(y, rows)
        return tf.data.Dataset.counter(step.read_value()).map(draw).prefetch(2)

    @tf.function
    def dataset():
        return coordinator.strategy.distribute_datasets_from_function(of_worker)
    return iter(coordinator.create_per_worker_dataset(dataset))


def batch_loss(model, variables, state, x, y, rank):
    """w -> the loss at w on this mini-batch.

    variables: the trainable ones, of which w are the parts. state: what the model keeps beside
    them, on the ps: closures leave nothing on a worker.
    """
    # The rank is added to the seeds of Dropout, so that no two workers have the same masks.
    ranks = [rank * int(v.name == "seed_generator_state") for v in model.non_trainable_variables]

    def at(w):
        rest = iter(w)
        whole = [tf.concat([next(rest) for _ in parts(v)], 0) if parts(v)[1:] else next(rest)
                 for v in variables]
        with tf.control_dependencies(w):
            before = [v + tf.cast(k, v.dtype) for v, k in zip(state, ranks)]
        outputs, after, penalties = model.stateless_call(
            whole, before, x, training=True, return_losses=True)
        for v, new, k in zip(state, after, ranks):
            v.assign(new - tf.cast(k, v.dtype))
        return tf.add_n([tf.reduce_mean(loss(y, outputs)), *penalties])
    return at


def parts(v):
    """The variables that v consists of, each on one ps."""
    return getattr(v, "variables", [v])
# endregion: per_worker


# region: closures
def build(strategy, coordinator, model, data, flags, n):
    """(the step counter, w, state, schedule(count), a function that tests w)"""
    with strategy.scope():  # on the ps, one after the other; a large variable is split over all
        step = tf.Variable(0, dtype=tf.int64)
        w = [tf.Variable(v.numpy()) for v in model.trainable_variables]
        state = [tf.Variable(v.numpy()) for v in model.non_trainable_variables]
    for i, v in enumerate(w):
        if parts(v)[1:]:
            print("w_%d is split: %s" % (i, ", ".join("%d rows on ps %d" % (
                part.shape[0], tf.DeviceSpec.from_string(part.device).task) for part in parts(v))))
    batches = mini_batches(coordinator, step, data, flags, n)

    @tf.function
    def closure(batches, count):
        rank = tf.distribute.coordinator.experimental_get_current_worker_index()
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            x, y = next(batches)
            update = algorithm([part for v in w for part in parts(v)], step,
                               batch_loss(model, w, state, x, y, rank), flags)
            rows = rows.write(i, push_row(update, step, flags))
        return rank, rows.stack()

    def schedule(count):
        return coordinator.schedule(closure, (batches, tf.constant(count)))
    test_rows = [tf.Variable(part) for part in (data.x_test, data.y_test)]
    copies = [[tf.Variable(v.numpy()) for v in each]
              for each in (model.non_trainable_variables, model.trainable_variables)]

    @tf.function
    def test(first):
        for copy, v in zip(sum(copies, []), [*state, *w]):
            copy.assign(tf.convert_to_tensor(v))
        return [step.read_value(), *evaluation(model, *copies, *test_rows, first)]
    return step, w, state, schedule, test
# endregion: closures


# region: schedule
AHEAD = 2  # closures in flight for each worker, so that none waits for the chief


def train(coordinator, built, metrics, cluster, flags):
    """Schedules closures until all updates are made; evaluates w meanwhile, and saves it.

    metrics: one for each worker, because nothing that a worker writes comes from Python.
    """
    step, w, state, schedule, test = built
    chief, pending = metrics[0], collections.deque()  # the chief's evaluations are in the first
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step, w=w, state=state), chief.directory, max_to_keep=5,
        checkpoint_name="model.ckpt")
    if manager.latest_checkpoint:
        manager.checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    chief.step = begun = scheduled = int(step.numpy())
    chief.saved = begun, time.time()

    def evaluate(first):
        return [number.numpy() for number in test(tf.constant(first))]
    while scheduled < flags.steps or pending:
        while scheduled < flags.steps and len(pending) < AHEAD * len(metrics):
            count = min(flags.steps - scheduled, flags.closure_steps)
            pending.append(schedule(count))
            scheduled += count
        try:  # the oldest one; the others go on meanwhile
            fetched = pending.popleft().fetch()
        except tf.errors.OpError as error:  # schedule or join raises what is not a lost worker
            print("the rows of a closure are lost: %s" % type(error).__name__, flush=True)
            continue
        if fetched is None:  # it failed just now, and schedule or join will raise why
            continue
        rank, rows = fetched
        for row in rows:
            metrics[rank].push(row)
        chief.step, cluster.heard = max(each.step for each in metrics), time.time()
        if time.time() > chief.next_test:
            chief.test(evaluate)
        if chief.time_to_save():
            manager.save(checkpoint_number=chief.step)
            chief.mark("checkpoint", chief.saved[1])
    coordinator.join()
    cluster.heard = float("inf")
    chief.test(evaluate, all_rows=True)
    manager.save(checkpoint_number=chief.step)
    print("scheduled %d updates, made %d" % (scheduled - begun, chief.step - begun), flush=True)
# endregion: schedule


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


def lead(cluster, data, metrics, flags):
    """The chief's part, from the first connection to the last update."""
    cluster.wait_for_servers()
    threading.Thread(target=cluster.watch, daemon=True).start()
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        flags.shard_bytes, len(cluster.ps))
    keras.utils.set_random_seed(flags.seed)
    try:
        strategy = tf.distribute.ParameterServerStrategy(cluster.resolver, partitioner)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        built = build(strategy, coordinator, make_model(data), data, flags, len(metrics))
        train(coordinator, built, metrics, cluster, flags)
    except tf.errors.UnavailableError as error:  # a ps was lost; without it there is no w
        raise ConnectionError(cluster.silent() or "all answer") from error


def main():
    flags, cluster = parse_flags(), Cluster()
    if cluster.job != "chief":
        return cluster.serve()
    data = load_data(flags.dataset)
    metrics = [Metrics("%s-%d" % task, cluster.workers, flags, len(cluster.ps))
               for task in cluster.workers]
    lead(cluster, data, metrics, flags)
    # Together with the loop's variables TensorFlow deletes its functions; that needs the servers.
    gc.collect()
    cluster.dismiss()
    metrics[0].events.flush()
    print("done, the output is in", metrics[0].directory, flush=True)
    os._exit(0)  # a thread of TensorFlow that waits for a lost worker would abort a normal end


if __name__ == "__main__":
    main()
