"""SAGN: workers take T steps alone, then one step together with the mean of all their gradients.

    pull       w_k <- w
    T times    a_k <- a_k + g(w_k);  w_k <- w_k - lr * g(w_k)     each g on a new mini-batch
    together   w <- w - lr * (1/n) * (a_0 / T + a_1 / T + ...)

Kind:          parameter server, synchronous
Paper:         Hermans, Spanakis, Moeckel 2017, Accumulated Gradient Normalization
Differs from:  Synchronous-SGD: T local steps before each common step; ADAG: a barrier
Simplified:    no backup workers
Run:           bash run.sh
"""
import argparse
import collections
import fcntl
import json
import os
import socket
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_control_flow_v2()  # a tf.cond that is a function takes twice the time of a step

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, step, batch_loss, flags, k, n):
    """One gradient of one worker, and the step that it is part of.

    w: the variables. step: the counter of updates. k: this worker's number, of n.
    batch_loss(w, number): the scalar loss on mini-batch `number` at w.
    """
    # Pull w, which does not move before all have taken their steps from it.
    version = steps_left(step, flags.steps, k)
    with tf.control_dependencies([version]):
        pulled = pull(w)

    # T steps alone, each a new forward pass at the moved w_k, on a mini-batch of its own.
    def local_step(t, _, w_k, a):
        loss = batch_loss(w_k, version * flags.local_steps + t)
        g = gradients(loss, w_k)
        w_k = [v - flags.learning_rate * d for v, d in zip(w_k, g)]
        return t + 1, loss, w_k, [s + d for s, d in zip(a, g)]
    start = [tf.constant(0, tf.int64), 0.0, pulled, [tf.zeros_like(v) for v in pulled]]
    _, loss, _, a = tf.while_loop(lambda t, *_: t < flags.local_steps, local_step, start,
                                  back_prop=False)
    mean = [s / flags.local_steps for s in a]

    # SAGN: a worker stores the mean of its gradients on the ps, in slots of its own.
    slots, arrive, lock, tokens = aggregation_state(w, step, n)
    stored = tf.group(*[slot[k].assign(d) for slot, d in zip(slots, send(w, mean))])

    # Synchronous-SGD: then it reports, one at a time. The last report at this w makes the step.
    def report():
        now = step.read_value()
        with tf.control_dependencies([now]):
            here = tf.equal(arrive(k, version), now)
        made = tf.cond(tf.equal(tf.math.count_nonzero(here), n), move, tf.no_op)
        with tf.control_dependencies([made]):
            return tf.identity(now)

    def move():
        moved = []
        for v, slot in zip(w, slots):
            with tf.device(v.device):
                moved.append(v.assign_sub(flags.learning_rate * tf.add_n(slot) / n))
        with tf.control_dependencies(moved):
            after = tf.identity(step.assign_add(1))
        return tf.group(*[token.enqueue(after) for token in tokens])
    with tf.control_dependencies([stored]), tf.device(step.device):
        ticket = lock.execute(report)

    # Synchronous-SGD: wait for the token that says that w has moved; older ones may lie before it.
    with tf.control_dependencies([ticket]), tf.device(step.device):
        go = tf.while_loop(lambda t: t <= version, lambda _: tokens[k].dequeue(), [version])
    return Update(pulled, loss, mean, version, ticket, go.op)


STEPS, BATCH_SIZE, LEARNING_RATE = 1000, 32, 0.1  # the defaults


def add_flags(add):
    """The flags that only this algorithm has."""
    add("--local-steps", number(int, 1), 10, "local steps before each common step", metavar="T")
    add("--step-timeout", number(int, 1), 60, "seconds to wait for a step at most", metavar="S")


# region: rounds
def steps_left(step, limit, k, name="round"):
    """The number of updates so far; raises OutOfRangeError when it is not below the limit.

    On the ps, in a variable of worker k: a pull after it waits for no message.
    """
    with tf.device(step.device):
        round_ = tf.get_local_variable("%s_%d" % (name, k), [], tf.int64, tf.zeros_initializer())
        with tf.control_dependencies([round_.assign(step.read_value())]):
            return tf.count_up_to(round_, limit)
# endregion: rounds


# region: aggregation
def aggregation_state(w, step, n):
    """What n workers need on the ps to make their steps together.

    For each of w a list of n slots for gradients; arrive(k, version) notes that worker k's gradient
    for the step `version` is stored, and returns the last such step of each worker, or -1; a lock;
    for each worker a queue of tokens. The slots are in the checkpoint, the rest is not.
    """
    slots = []
    for v in w:
        with tf.device(v.device):
            slots.append([tf.get_variable("%s/slot_%d" % (v.op.name, k), v.shape, v.dtype,
                                          tf.zeros_initializer()) for k in range(n)])
    with tf.device(step.device):
        table = {"table_handle": tf.raw_ops.MutableHashTableV2(
            key_dtype=tf.int64, value_dtype=tf.int64, shared_name="arrived")}
        ranks, none = tf.range(n, dtype=tf.int64), tf.constant(-1, tf.int64)
        tf.raw_ops.LookupTableFindV2(**table, keys=ranks, default_value=none, name="arrived")
        lock = tf.CriticalSection(shared_name="reports")
        tokens = [tf.FIFOQueue(-1, tf.int64, [[]], shared_name="tokens_%d" % k) for k in range(n)]
    # At an early end: who waits for a token gets an OutOfRangeError.
    tf.add_to_collection("stop", [token.close() for token in tokens])

    def arrive(k, version):
        noted = tf.raw_ops.LookupTableInsertV2(**table, keys=ranks[k], values=version)
        with tf.control_dependencies([noted]):
            return tf.raw_ops.LookupTableFindV2(**table, keys=ranks, default_value=none)
    return slots, arrive, lock, tokens
# endregion: aggregation


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


# region: cluster
REQUIRED_WAIT_SECONDS = 120  # for a peer without which this task cannot go on
OPTIONAL_WAIT_SECONDS = 30  # for one without which it can
EVALUATOR = "evaluator", "a task of the type evaluator tests w, not the chief"


class Cluster:
    """The tasks of the cluster, and which of them this is, from TF_CONFIG."""

    def __init__(self):
        config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = {"chief" if job == "master" else job: tasks
                for job, tasks in config.cluster_spec().as_dict().items()}
        if not jobs.get("ps") or not (jobs.get("chief") or jobs.get("worker")):
            raise ValueError("TF_CONFIG must list a ps and a worker, and say which task this is")
        self.job = "chief" if config.task_type == "master" else config.task_type
        self.spec, self.index, self.ps = tf.train.ClusterSpec(jobs), config.task_id, jobs["ps"]
        self.is_evaluator = self.job == "evaluator"  # it stands outside of the cluster
        self.is_evaluator or self.spec.task_address(self.job, self.index)  # is there such a task?
        self.workers = [(job, index) for job in ("chief", "worker")
                        for index in range(len(jobs.get(job, [])))]
        task = self.job, self.index
        self.rank = self.workers.index(task) if task in self.workers else 0
        self.is_chief = task == self.workers[0]
        self.name = "%s-%d" % task
        self.device = "" if self.is_evaluator else "/job:%s/task:%d" % task
        # With the filters a task talks to itself and the ps, and never waits for another worker.
        self.config = tf.ConfigProto(device_filters=["/job:ps", self.device],
                                     operation_timeout_in_ms=1000 * REQUIRED_WAIT_SECONDS)
        self.config.experimental.disable_thread_spinning = True  # the cores have better work

    def server(self):
        """The server of this task; an evaluator has none, because nobody asks it."""
        if not self.is_evaluator:
            return tf.train.Server(self.spec, self.job, self.index, config=self.config)

    def placement(self):
        """For tf.device: a variable goes to the ps that holds the fewest numbers so far."""
        load = [0] * len(self.ps)
        if self.is_evaluator:  # it has variables of its own, with the values of checkpoints
            return ""

        def lightest(op):
            task = load.index(min(load))
            load[task] += tf.TensorShape(op.get_attr("shape")).num_elements()
            return task
        return tf.train.replica_device_setter(cluster=self.spec, worker_device=self.device,
                                              ps_strategy=lightest)

    def wait_for_ps(self):
        """Returns when every ps listens at its address."""
        for task, address in enumerate(self.ps):
            listens(address) or print("waiting for ps %d at %s" % (task, address), flush=True)
            if not wait_until(lambda a=address: listens(a), REQUIRED_WAIT_SECONDS):
                raise TimeoutError("ps %d did not answer at %s in %d s" % (
                    task, address, REQUIRED_WAIT_SECONDS))


def listens(address):
    """Whether a server answers at host:port."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        return True
    except OSError:
        return False


def wait_until(condition, seconds):
    """Waits for condition() for so many seconds at most; returns whether it came true."""
    deadline = time.time() + seconds
    while not (met := condition()) and time.time() < deadline:
        time.sleep(0.02)
    return met


class Barrier:
    """Where the workers wait for one another: a table on a ps, of the ranks that have arrived."""

    def __init__(self, name, cluster, ps=0):
        rank = tf.constant([cluster.rank], tf.int64)
        with tf.device("/job:ps/task:%d" % ps):
            table = tf.raw_ops.MutableHashTableV2(
                key_dtype=tf.int64, value_dtype=tf.int64, shared_name=name)
            self.arrive = tf.raw_ops.LookupTableInsertV2(
                table_handle=table, keys=rank, values=rank)
            self.arrived, _ = tf.raw_ops.LookupTableExportV2(
                table_handle=table, Tkeys=tf.int64, Tvalues=tf.int64)

    def wait(self, session, n):
        """Returns when n workers have arrived, or after OPTIONAL_WAIT_SECONDS."""
        wait_until(lambda: len(session.run(self.arrived)) >= n, OPTIONAL_WAIT_SECONDS)


def serve(cluster, server):
    """A ps stays until all workers are done, or for some time after the chief is."""
    done = Barrier("done", cluster, cluster.index)
    print("listening at", cluster.ps[cluster.index], flush=True)
    with tf.Session(server.target, config=cluster.config) as session:
        wait_until(lambda: len(session.run(done.arrived)), float("inf"))
        # The chief may have much to evaluate and to save.
        wait_until(lambda: 0 in session.run(done.arrived), 10 * OPTIONAL_WAIT_SECONDS)
        done.wait(session, len(cluster.workers))
    print("done", flush=True)
# endregion: cluster


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


# region: variables
def variables(get_variable, name, values):
    """Variables with these first values, which as constants would stand in each graph sent."""
    return [get_variable("%s_%d" % (name, i), initializer=tf.ensure_shape(
        tf.numpy_function(lambda v=v: np.asarray(v), [], v.dtype), v.shape))
            for i, v in enumerate(values)]
# endregion: variables


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


# region: evaluator
STOPPED = 2**40  # added to the step, it ends training early: no update is left to take


def last_update(directory, flags):
    """--steps, or at an early end what the chief has written into the file `stop`."""
    stop = os.path.join(directory, "stop")
    text = open(stop).read() if os.path.exists(stop) else ""
    return int(text) if text.isdigit() else flags.steps


def test_checkpoints(metrics, step, test, flags, tested=None):
    """The evaluator tests each checkpoint that is the newest, up to the last; yields its path.

    tested: the path of one that need not be tested. Raises TimeoutError where no new one comes.
    """
    saver, seconds = tf.train.Saver(), REQUIRED_WAIT_SECONDS + flags.checkpoint_seconds
    metrics.events = tf.summary.FileWriter(os.path.join(metrics.directory, "evaluator"))

    def newest():
        path = tf.train.latest_checkpoint(metrics.directory)
        return path if path != tested else None

    def over():
        return metrics.step >= last_update(metrics.directory, flags)
    with tf.Session() as session:
        for initializer in tf.global_variables_initializer(), tf.local_variables_initializer():
            session.run(initializer)
        evaluate = session.make_callable([step, *test], ["first:0"])
        while wait_until(lambda: over() or newest(), seconds) and not over():
            tested = newest()
            saver.restore(session, tested)
            metrics.test(evaluate, all_rows=True)
            yield tested
    if not over():
        raise TimeoutError("no new checkpoint came in %d s" % seconds)
# endregion: evaluator


# region: session
class SessionCreator(tf.train.SessionCreator):
    """The chief makes or restores the model where it is not on the ps; the others wait for it."""

    def __init__(self, cluster, server, saver, directory):
        self.cluster, self.target, self.directory = cluster, server.target, directory
        self.scaffold = tf.train.Scaffold(saver=saver)

    def create_session(self):
        self.cluster.wait_for_ps()
        session_of = self.scaffold.finalize(), self.target, self.cluster.config
        with tf.Session(self.target, config=self.cluster.config) as session:
            def made():
                return not len(session.run(self.scaffold.ready_for_local_init_op))
            if self.cluster.is_chief and not made():
                return tf.train.ChiefSessionCreator(*session_of, self.directory).create_session()
            if not wait_until(made, REQUIRED_WAIT_SECONDS):
                raise TimeoutError("the chief made no model in %d s" % REQUIRED_WAIT_SECONDS)
        return tf.train.WorkerSessionCreator(*session_of).create_session()


def train(cluster, server, step, update, test, flags, hooks=(), common_start=True):
    """Updates until all are made; the chief also evaluates w, and saves it."""
    metrics = Metrics(cluster.name, cluster.workers, flags, len(cluster.ps))
    if cluster.is_evaluator:
        for _ in test_checkpoints(metrics, step, test, flags):
            pass
        return print("done, the output is in", metrics.directory, flush=True)
    metrics.next_test = float("inf") if flags.evaluator else 0
    saver = tf.train.Saver(sharded=len(cluster.ps) > 1, save_relative_paths=True)
    path, stop_file = [os.path.join(metrics.directory, name) for name in ("model.ckpt", "stop")]
    stop, undo_stop = step.assign_add(STOPPED), step.assign_sub(STOPPED)
    row, start = push_row(update, step, flags), Barrier("start", cluster)
    done = [Barrier("done", cluster, ps) for ps in range(len(cluster.ps))]
    creator = SessionCreator(cluster, server, saver, metrics.directory)
    with tf.train.MonitoredSession(creator, hooks) as session:
        while True:
            # The session itself: a callable costs less than run(), which calls the hooks.
            inner = session.run_step_fn(lambda step_context: step_context.session)
            update_w = inner.make_callable(row)
            evaluate = inner.make_callable([step, *test], ["first:0"])
            try:
                try:
                    metrics.push(update_w())
                    if common_start:  # after the first call, which sets up the graph everywhere
                        inner.run(start.arrive)
                        start.wait(inner, len(cluster.workers))
                    while True:
                        metrics.push(update_w())
                        if cluster.is_chief and time.time() > metrics.next_test:
                            metrics.test(evaluate)
                        if cluster.is_chief and metrics.time_to_save():
                            saver.save(inner, path, step, write_meta_graph=False)
                            metrics.mark("checkpoint", metrics.saved[1])
                        if cluster.is_chief and os.path.exists(stop_file):
                            inner.run(stop)
                            inner.run(tf.get_collection("stop"))  # nobody waits for the chief
                except tf.errors.OutOfRangeError:  # from count_up_to: every update is taken
                    pass
                if cluster.is_chief:
                    done[0].wait(inner, len(cluster.workers) - 1)
                    if stopped := inner.run(step) >= STOPPED:
                        inner.run(undo_stop)
                    flags.evaluator or metrics.test(evaluate, all_rows=True)
                    saver.save(inner, path, step, write_meta_graph=False)
                    if stopped:
                        with open(stop_file, "w") as file:
                            file.write("%d" % inner.run(step))
                        inner.run(stop)
                if inner.run(step) >= flags.steps:
                    inner.run([barrier.arrive for barrier in done])
                    return print("done, the output is in", metrics.directory, flush=True)
            except (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError):
                # A ps was lost: to ask all of them makes a new session, and the model.
                session.run([barrier.arrived for barrier in done])
# endregion: session


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


# region: synchronous
def build(cluster, model, data, flags):
    """The graph: the step counter, one update, the test. A worker has every n-th of the rows."""
    n = len(cluster.workers)
    with tf.device(cluster.placement()):
        step = tf.train.get_or_create_global_step()
        w = variables(tf.get_variable, "w", model.trainable_variables)
        state = variables(tf.get_variable, "state", model.non_trainable_variables)  # the chief's
    with tf.device(cluster.device):
        shard = [part[cluster.rank::n] for part in (data.x_train, data.y_train)]
        train_rows = variables(tf.get_local_variable, "train", shard)
        test_rows = variables(tf.get_local_variable, "test", [data.x_test, data.y_test])
        own = [tf.get_local_variable("own_%d" % i, initializer=v.read_value())
               for i, v in enumerate(state)]
        batch_loss = batches(model, own, *train_rows, flags, cluster.rank)
        update = algorithm(w, step, batch_loss, flags, cluster.rank, n)
        update = keep(state, own, update) if cluster.is_chief else update
        return step, update, evaluation(model, state, w, *test_rows)


def main():
    flags, cluster = parse_flags(EVALUATOR), Cluster()
    server = cluster.server()
    if cluster.job == "ps":
        with tf.Graph().as_default():
            return serve(cluster, server)
    data = load_data(flags.dataset)
    keras.utils.set_random_seed(flags.seed)
    model = make_model(data)  # outside of the graph, where Keras makes its first values
    cluster.config.operation_timeout_in_ms = 1000 * flags.step_timeout
    with tf.Graph().as_default():
        step, update, test = build(cluster, model, data, flags)
        try:
            # The first update waits for the others, and needs no common start.
            train(cluster, server, step, update, test, flags, common_start=False)
        except tf.errors.DeadlineExceededError:
            with tf.Session(server.target, config=cluster.config) as session:
                arrived, now = session.run(["arrived:0", step])
            missing = ["%s %d" % task for task, at in zip(cluster.workers, arrived) if at != now]
            if not missing:
                raise
            raise TimeoutError("no gradient of %s came in %d s" % (
                ", ".join(missing), flags.step_timeout)) from None
# endregion: synchronous


if __name__ == "__main__":
    main()
