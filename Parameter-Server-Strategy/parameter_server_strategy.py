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
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row


def algorithm(w, step, gradient, flags):
    """Makes one update of one worker, as a part of a closure; all workers make theirs at once.

    w: all parameters, as one vector on each ps. step: the counter of updates.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, shaped as w.
    """
    # ParameterServerStrategy: pull w, after noting how many updates it has had.
    with tf.device(step.device):
        version = step.read_value()
    with tf.control_dependencies([version]):
        w_k = [v.read_value() for v in w]

    # ParameterServerStrategy: a gradient at the copy. No lock keeps the others from moving w.
    loss, g = gradient(w_k, version)

    # ParameterServerStrategy: push, however late. The ticket counts this update, atomically. It
    # has no limit, because the coordinator runs the closure of a lost worker again.
    delta = send(w, [flags.learning_rate * d for d in g])
    with tf.control_dependencies(delta):
        ticket = tf.raw_ops.ResourceCountUpTo(resource=step.handle, limit=tf.int64.max, T=tf.int64)
    with tf.control_dependencies([ticket]):
        push = tf.group(*[v.assign_sub(d) for v, d in zip(w, delta)])
    return Update(w_k, loss, g, version=version, ticket=ticket, push=push)


STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1  # the defaults
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("closure-steps", 10, "updates in one closure"),
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


def build(strategy, coordinator, model, data, flags, n):
    """Makes the variables on the ps; returns these, and the functions for updates and tests."""
    with strategy.scope():  # on the ps, one after the other; w is one vector, split over all
        step = tf.Variable(0, dtype=tf.int64)
        w = tf.Variable(np.concatenate([np.ravel(v.numpy()) for v in model.trainable_variables]))
        state = [tf.Variable(v.numpy()) for v in model.non_trainable_variables]
    vectors = getattr(w, "variables", [w])
    for v in vectors if len(vectors) > 1 else []:
        ps = tf.DeviceSpec.from_string(v.device).task
        print(f"w is split: {v.shape[0]} numbers on ps {ps}", flush=True)

    # ParameterServerStrategy: a closure, which any worker can execute. It leaves nothing there.
    @tf.function
    def closure(count):
        rank = tf.distribute.coordinator.experimental_get_current_worker_index()
        gradient, written = gradients(model, state, data, flags, rank, n), []
        for _ in range(count):  # unrolled: a loop of the graph would make them at half the rate
            update = algorithm(vectors, step, gradient, flags)
            written.append(tf.stack(push_row(update, step, flags)))
        # One tensor: to fetch another would cost a round trip more.
        return tf.pad(tf.stack(written), [[0, 0], [0, 1]], constant_values=tf.cast(rank, "float64"))

    def schedule(count):
        return coordinator.schedule(closure, (count,))

    x, y = map(tf.constant, map(np.asarray_chkfinite, data[2:]))

    @tf.function
    def test():
        checked = [tf.debugging.check_numerics(v, "w") for v in vectors]
        outputs, _ = model.stateless_call(unpack(model, checked), state, x, training=False)
        functions = [loss] + [function for _, function in METRICS.values()]
        return [tf.reduce_mean(function(y, outputs)) for function in functions]

    return step, w, state, schedule, test


def coordinate(cluster, data, flags):
    """Makes the model on the ps, and trains it; returns the run directory."""
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(len(cluster.ps))
    strategy = tf.distribute.ParameterServerStrategy(cluster.resolver, partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    keras.utils.set_random_seed(flags.seed)
    model = make_model(data)  # after the strategy, which forgets all variables of before
    initial, servers = model.trainable_variables, len(cluster.ps)
    # The chief writes for the workers, because in them no Python runs.
    metrics = [Metrics(task, cluster.workers, initial, flags, servers) for task in cluster.workers]
    built = build(strategy, coordinator, model, data, flags, len(metrics))
    train(coordinator, built, metrics, cluster, flags)
    return metrics[0].directory


def main():
    """Runs the task that TF_CONFIG names: the chief schedules, the others execute."""
    flags, cluster = parse_flags(), Cluster()
    if cluster.job != "chief":
        return cluster.serve()
    data = load_data(flags.dataset)
    cluster.wait_for_servers()
    threading.Thread(target=cluster.watch, daemon=True).start()
    try:
        directory = coordinate(cluster, data, flags)
    except tf.errors.UnavailableError as error:  # a ps was lost; without it there is no w
        raise ConnectionError(cluster.silent_servers()) from error
    # Together with the loop's variables TensorFlow deletes its functions; that needs the servers.
    gc.collect()
    cluster.stop_servers()
    print("done, the output is in", directory, flush=True)
    os._exit(0)  # a thread of TensorFlow that waits for a lost worker would abort a normal end


# From here to the end: the same text in every example, but for what only a coordinator needs. -----


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


# region: servers -- of this example only
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other task
OPTIONAL_WAIT_SECONDS = 30  # for a task without which it can


class Cluster:
    """Knows the tasks of the cluster, and which of them this process is, from TF_CONFIG."""

    def __init__(self):
        self.resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.spec, self.job = self.resolver.cluster_spec(), self.resolver.task_type
        jobs, self.index = self.spec.as_dict(), self.resolver.task_id
        if self.job == "evaluator":
            raise ValueError("a script is no evaluator: run `tfrun evaluate DIR --follow` instead")
        if not (jobs.get("ps") and jobs.get("worker") and len(jobs.get("chief", [])) == 1):
            need = "TF_CONFIG must list a ps, a worker, and one chief"
            raise ValueError(f"{need}, and say which task this is")
        unknown = {*jobs, self.job} - {"chief", "worker", "ps", "evaluator"}
        if unknown:
            types = "the types are chief, worker, ps and evaluator"
            raise ValueError(f"TF_CONFIG names a task of type {unknown.pop()!r}: {types}")
        self.spec.task_address(self.job, self.index)  # raises where there is no such task
        self.chief, self.ps = jobs["chief"][0], jobs["ps"]
        self.servers = {
            (job, index): address
            for job in ("ps", "worker")
            for index, address in enumerate(jobs[job])
        }
        self.workers = [task for task in self.servers if task[0] == "worker"]
        self.last_sign = time.monotonic()  # of life, of those that this task needs

    def wait_for_servers(self):
        """Returns when every ps and worker listens at its address."""
        # TensorFlow waits for them, too, but does not say for whom.
        for (job, index), address in self.servers.items():
            if not answers(address):
                print(f"waiting for {job} {index} at {address}", flush=True)
            if not wait_until(lambda a=address: answers(a), REQUIRED_WAIT_SECONDS):
                raise TimeoutError(
                    f"{job} {index} did not answer at {address} in {REQUIRED_WAIT_SECONDS} s"
                )

    def silent_servers(self):
        """Returns a text that names the servers that do not answer; a stopped one only accepts."""
        silent = [
            f"{job} {index} did not answer at {address}"
            for (job, index), address in self.servers.items()
            if not answers(address, 1)
        ]
        return ", ".join(silent) or "all answer"

    def watch(self):
        """Ends the chief when no update came for REQUIRED_WAIT_SECONDS: no call of it does."""
        self.last_sign = time.monotonic()
        while time.monotonic() < self.last_sign + REQUIRED_WAIT_SECONDS:
            time.sleep(0.5)
        what = f"no update came in {REQUIRED_WAIT_SECONDS} s; {self.silent_servers()}"
        print(f"TimeoutError: {what}", file=sys.stderr, flush=True)
        os._exit(1)

    def session(self, target, job, index):
        """Returns a session of TensorFlow 1, an op that reads whether to end, and one that ends."""
        device = f"/job:{job}/task:{index}"
        with tf.Graph().as_default(), tf.device(device):
            table = tf.raw_ops.MutableHashTableV2(
                key_dtype=tf.int64, value_dtype=tf.int64, shared_name="done"
            )
            one = tf.constant([1], tf.int64)
            end = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=one, values=one)
            shall_end = tf.raw_ops.LookupTableSizeV2(table_handle=table)
            config = tf.compat.v1.ConfigProto(device_filters=[device], operation_timeout_in_ms=5000)
            return tf.compat.v1.Session(target, config=config), shall_end, end

    def serve(self):
        """Executes what the chief sends, until the chief says that all is done."""
        # With one thread, which one core gets, the parts of an update would wait for one another.
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)
        # Idle gRPC threads would otherwise spin, and slow the other tasks of this machine.
        config.experimental.disable_thread_spinning = True
        server = tf.distribute.Server(self.spec, self.job, self.index, config=config)
        print("listening at", self.servers[self.job, self.index], flush=True)
        session, shall_end, _ = self.session(server.target, self.job, self.index)
        while not run(session, shall_end):
            if answers(self.chief, 1):
                self.last_sign = time.monotonic()
            elif time.monotonic() > self.last_sign + REQUIRED_WAIT_SECONDS:
                what = f"did not answer at {self.chief} in {REQUIRED_WAIT_SECONDS} s"
                raise TimeoutError(f"the chief {what}")
            time.sleep(0.2)
        print("done", flush=True)

    def stop_servers(self):
        """Tells each ps and worker that all is done. TensorFlow 2 has no call for that."""
        # Its servers are those of TensorFlow 1, so that a session can reach them.
        remaining = dict(self.servers)

        def all_know():
            for task, address in self.servers.items():
                if task in remaining and answers(address, 1):
                    session, shall_end, end = self.session("grpc://" + address, *task)
                    if run(session, [shall_end, end]):
                        del remaining[task]
            return not remaining

        wait_until(all_know, OPTIONAL_WAIT_SECONDS)  # one that was lost may be starting again


def run(session, fetch):
    """Returns what a session fetches, or None if it takes too long or the task is gone."""
    try:
        return session.run(fetch)
    except (tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
        return None


def answers(address, first_bytes=0):
    """Returns whether a server accepts, and sends a byte if first_bytes is 1: gRPC speaks first."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as connection:
            return len(connection.recv(first_bytes)) == first_bytes
    except OSError:
        return False


def wait_until(condition, seconds):
    """Waits for condition(), `seconds` at most; returns whether it came true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


# region: per_worker -- of this example only
def send(w, vectors):
    """Returns the vectors as tensors beside the variables w: each ps gets one message."""
    arrived = []
    for v, vector in zip(w, vectors):
        with tf.device(v.device):
            arrived.append(tf.identity(vector))
    return arrived


def unpack(model, w):
    """Returns the trainable variables of the model, in their shapes, from the vectors w."""
    shapes = [v.shape for v in model.trainable_variables]
    parts = tf.split(tf.concat(w, 0), [int(np.prod(shape)) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]


def gradients(model, state, data, flags, rank, n):
    """Returns gradient(w, number) -> (loss, g), means over mini-batch `number` of a worker's rows.

    w and g are lists of vectors, one for each ps. state: what the model keeps beside w, on the ps.
    Worker `rank` of n has every n-th row.
    """
    # As constants they are where they are needed; all else would be sent with each closure.
    x, y = [tf.constant(np.asarray_chkfinite(part)) for part in data[:2]]
    rank = tf.cast(rank, tf.int32)
    size = (len(data.x_train) - rank + n - 1) // n  # its rows: every n-th
    # The rank is added to the seeds of Dropout, so that no two workers drop the same units.
    seeds = [v.name == "seed_generator_state" for v in model.non_trainable_variables]
    k = tf.cast(rank, tf.int64)  # as seeds and mini-batches are counted

    def gradient(w, number):
        # Its rows depend on nothing but (seed, rank, number), and can be drawn again elsewhere.
        key = [flags.seed * 65536 + k, number]
        drawn = tf.random.stateless_uniform([flags.batch_size], key, 0, size, tf.int32)
        rows = rank + n * drawn
        with tf.control_dependencies(w):
            before = [v + k if seed else v.read_value() for v, seed in zip(state, seeds)]
        outputs, after, penalties = model.stateless_call(
            unpack(model, w), before, tf.gather(x, rows), training=True, return_losses=True
        )
        for v, new, seed in zip(state, after, seeds):
            v.assign(new - k if seed else new)
        mean = tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])
        return mean, tf.gradients(mean, w)

    return gradient


# region: schedule -- of this example only
AHEAD = 2  # closures in flight for each worker, so that none waits for the chief


def train(coordinator, built, metrics, cluster, flags):
    """Schedules closures until all updates are made; tests w meanwhile, and saves it.

    metrics: a list of a Metrics for each worker; the first also gets the tests.
    """
    step, w, state, schedule, test = built
    chief, pending = metrics[0], collections.deque()
    checkpoint = tf.train.Checkpoint(step=step, w=w, state=state)
    manager = tf.train.CheckpointManager(
        checkpoint, chief.directory, max_to_keep=5, checkpoint_name="model.ckpt"
    )
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    begun = saved = scheduled = made = int(step.numpy())

    def test_and_save():
        began, number = time.time(), int(step.numpy())
        chief.test(began, number, *[mean.numpy() for mean in test()])
        manager.save(checkpoint_number=chief.step)

    while scheduled < flags.steps or pending:
        while scheduled < flags.steps and len(pending) < AHEAD * len(metrics):
            count = min(flags.steps - scheduled, flags.closure_steps)
            pending.append(schedule(count))
            scheduled += count
        try:  # the oldest one; the others go on meanwhile
            rows = pending.popleft().fetch()
        except tf.errors.OpError as error:  # schedule or join raises what is not a lost worker
            print(f"the rows of a closure are lost: {type(error).__name__}", flush=True)
            continue
        if rows is None:  # it failed just now, and schedule or join will raise why
            continue
        for *row, rank in rows:
            metrics[int(rank)].push(row)
            made = max(made, metrics[int(rank)].step)
        cluster.last_sign = time.monotonic()
        if saved + flags.checkpoint_steps <= made < flags.steps:
            test_and_save()
            saved = made
    coordinator.join()
    cluster.last_sign = float("inf")
    test_and_save()
    print(f"scheduled {scheduled - begun} updates, made {chief.step - begun}", flush=True)


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


if __name__ == "__main__":
    main()
