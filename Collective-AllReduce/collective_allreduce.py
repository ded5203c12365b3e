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
import contextlib
import faulthandler
import fcntl
import json
import os
import socket
import sys
import threading
import time

# Before the import. What TensorFlow would log as an error is also raised.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row


def algorithm(w, step, gradient, flags):
    """Makes one step of one worker; all make it at once. It runs in tf.distribute.Strategy.run.

    w: the variables of the model, each worker's own copy. step: the counter of steps.
    gradient(w, number): the loss on mini-batch `number` at w, and its gradient, a list as w is.
    """
    version = step.read_value()
    w_k = [tf.identity(v) for v in w]
    loss, g = gradient(w_k, version)

    # Collective-AllReduce: the mean of the gradients of all; it waits, so w stays equal everywhere.
    mean = tf.distribute.get_replica_context().all_reduce("MEAN", g, options(flags))
    for v, d in zip(w, mean):
        v.assign_sub(flags.learning_rate * d)
    step.assign_add(1)
    return Update(w_k, loss, g, version=version, ticket=version, push=mean[0])


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 0.1  # the defaults
OPTIMIZER = "mean"  # where tfrun puts an optimizer of yours: into the step behind the mean
ARRAYS_ONLY = True  # no dataset of yours: a strategy must come before the first op of TensorFlow
MORE_FLAGS = [  # (name, default, help) of the flags that only this algorithm has
    ("steps-per-call", 10, "steps in one call of the graph"),
    ("bytes-per-pack", 0, "bytes sent at once, 0: all of them"),
    ("step-timeout", 60, "seconds to wait for a step at most"),
]


def options(flags):
    """Returns how the workers exchange gradients: by a ring, in packs."""
    # Its timeout_seconds would leave a sleeping thread for each all-reduce; one thread watches.
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=flags.bytes_per_pack,
        implementation=tf.distribute.experimental.CommunicationImplementation.RING,
    )


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


# region: replicas
def build(strategy, model, data, flags, ranks, n, directory):
    """Makes the variables and restores them; returns step, make_steps(), test() and a manager.

    ranks: those of the n replicas that are in this process. Replica k has every n-th row from k.
    """
    with strategy.scope():  # each replica has its own copy of these, and moves it itself
        step = tf.Variable(0, dtype=tf.int64)
        w = [tf.Variable(v.numpy()) for v in model.trainable_variables]
    # Of each replica in this process: what the model keeps beside w, and gradient().
    local_states = []
    gradient = {}
    with tf.device("/CPU:0"):  # a GPU takes no variables of int32
        state = [tf.Variable(v.numpy()) for v in model.non_trainable_variables]
        manager = restore(directory, step, w, state)
        x_test, y_test = map(tf.Variable, map(np.asarray_chkfinite, data[2:]))
        for k in ranks:
            rows = data.x_train[k::n], data.y_train[k::n]
            x, y = map(tf.Variable, map(np.asarray_chkfinite, rows))
            local_state = [tf.Variable(v) for v in state]
            for v, original in zip(local_state, model.non_trainable_variables):
                if original.name == "seed_generator_state":
                    v.assign(v + k)  # so that no two replicas drop the same units
            local_states.append(local_state)
            gradient[k] = gradients(model, local_state, x, y, flags, k)

    def one_step():
        rank = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        update = algorithm(w, step, gradient[int(rank)], flags)
        row = push_row(update, step, flags)
        examples = len(ranks) * row.examples  # of all ranks here
        sent = 2 * (n - len(ranks)) / n * row.bytes  # each byte crosses the network so many times
        return tf.stack(row._replace(examples=examples, bytes=sent))

    @tf.function
    def make_steps(count):
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            rows = rows.write(i, strategy.experimental_local_results(strategy.run(one_step))[0])
        return rows.stack()

    @tf.function
    def test():
        for v, value in zip(state, local_states[0]):  # so that the checkpoint has what was tested
            v.assign(value)
        return evaluation(model, w, state, x_test, y_test)

    return step, make_steps, test, manager


# endregion: replicas


def main():
    """Trains the model together with the other workers that TF_CONFIG names."""
    flags = parse_flags()
    cluster = Cluster()
    keras.utils.set_random_seed(flags.seed)
    data = load_data(flags.dataset)
    n = len(cluster.workers)
    cluster.wait_for_workers()
    # No Python thread runs while TensorFlow waits for the others; faulthandler's is a C thread.
    faulthandler.dump_traceback_later(REQUIRED_WAIT_SECONDS, exit=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options(flags))
    if strategy.num_replicas_in_sync > n:
        raise RuntimeError("A worker is for one GPU; start one for each")
    model = make_model(data)
    metrics = Metrics(cluster.task, cluster.workers, model.trainable_variables, flags)
    metrics.describe(data)
    try:
        built = build(strategy, model, data, flags, [cluster.rank], n, metrics.directory)
        faulthandler.cancel_dump_traceback_later()
        step = strategy.experimental_local_results(built[0])[0]
        threading.Thread(target=cluster.watch, args=(step, flags), daemon=True).start()
        train(strategy, *built, metrics, flags)
    except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError) as error:
        raise ConnectionError(cluster.silent_workers()) from error


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


# region: workers -- of this example only
REQUIRED_WAIT_SECONDS = int(os.getenv("REQUIRED_WAIT_SECONDS", 120))  # for any other task


class Cluster:
    """Knows the workers, and which of them this process is, from TF_CONFIG."""

    def __init__(self):
        config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.task = config.task_type, config.task_id
        jobs = config.cluster_spec().as_dict()
        if "://" in str(jobs):  # else it would wait for itself
            raise ValueError("TF_CONFIG has an address with ://, and not host:port")
        unknown = {*jobs, config.task_type} - {"chief", "worker", "ps", "evaluator"}
        if unknown:
            raise ValueError(
                f"TF_CONFIG names a task of type {unknown.pop()!r}: "
                "the types are chief, worker, ps and evaluator"
            )
        self.addresses = {
            (job, index): address
            for job in ("chief", "worker")
            for index, address in enumerate(jobs.get(job, []))
        }
        self.workers = list(self.addresses)
        self.rank = self.workers.index(self.task)

    def wait_for_workers(self):
        """Returns when every worker listens at its address. TensorFlow would wait for an hour."""
        port = int(self.addresses[self.task].split(":")[-1])
        both = socket.has_dualstack_ipv6()  # IPv4 and IPv6: TensorFlow listens for both, too
        with socket.create_server(
            ("", port),
            family=socket.AF_INET6 if both else socket.AF_INET,
            reuse_port="TF_GRPC_REUSE_PORT" in os.environ,
            dualstack_ipv6=both,
        ):
            for (job, i), address in self.addresses.items():
                deadline = time.monotonic() + REQUIRED_WAIT_SECONDS
                while not answers(address):
                    if time.monotonic() > deadline:
                        raise TimeoutError(
                            f"{job} {i} did not answer at {address} in {REQUIRED_WAIT_SECONDS} s"
                        )
                    time.sleep(0.1)

    def silent_workers(self):
        """Returns a text that names the workers that do not answer; a stopped one only accepts."""
        return (
            ", ".join(
                f"{job} {i} did not answer at {address}"
                for (job, i), address in self.addresses.items()
                if not answers(address, 1)
            )
            or "all workers answer"
        )

    def watch(self, step, flags):
        """Ends this task when it makes no step for --step-timeout seconds."""
        number, since = step.numpy(), time.monotonic()
        seconds = REQUIRED_WAIT_SECONDS  # for the first step: TensorFlow compiles it
        while number < flags.steps:
            time.sleep(0.1)
            if step.numpy() != number:
                number, since = step.numpy(), time.monotonic()
                seconds = flags.step_timeout
            elif time.monotonic() > since + seconds:
                text = f"TimeoutError: No step was made in {seconds} s; {self.silent_workers()}"
                print(text, file=sys.stderr)
                os._exit(1)


def answers(address, first_bytes=0):
    """Returns whether a worker accepts, and sends a byte if first_bytes is 1: gRPC speaks first."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host.strip("[]"), port), 2) as connection:
            return not first_bytes or connection.recv(first_bytes)
    except OSError:
        return False


# region: layers
def gradients(model, state, x, y, flags, rank):
    """Returns gradient(w, number) -> (loss, g), means over mini-batch `number` of the rows x, y.

    w and g are lists, as the model's variables are; state: variables for what it keeps beside w.
    The rows of a mini-batch depend on (seed, rank, number) and on nothing else, so that it can be
    drawn again elsewhere.
    """

    def gradient(w, number):
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, x.shape[0], tf.int32)
        with tf.control_dependencies(w):
            before = [v.read_value() for v in state]
        outputs, after, penalties = model.stateless_call(
            w, before, tf.gather(x, rows), training=True, return_losses=True
        )
        # The gradient comes after the state has moved, and with it the next step.
        with tf.control_dependencies([v.assign(new) for v, new in zip(state, after)]):
            outputs = tf.identity(outputs)
        mean = tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])
        # The gradient of an embedding is sparse: it becomes a dense tensor here.
        return mean, [tf.convert_to_tensor(d) for d in tf.gradients(mean, w)]

    return gradient


def evaluation(model, w, state, x, y):
    """Returns [loss, each of METRICS] at the variables w, means over the rows of x, y."""
    outputs, _ = model.stateless_call(
        [tf.debugging.check_numerics(v, "w") for v in w], state, x.read_value(), training=False
    )
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


# region: strategy
def restore(directory, step, w, state):
    """Returns a manager of a directory's checkpoints. Restores the last one, if there is one."""
    checkpoint = tf.train.Checkpoint(step=step, w=w, state=state)
    manager = tf.train.CheckpointManager(
        checkpoint, directory, max_to_keep=5, checkpoint_name="model.ckpt"
    )
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    return manager


def train(strategy, step, make_steps, test, manager, metrics, flags):
    """Makes all steps that are left; the chief also tests w and saves it.

    make_steps(count) makes that many, and returns the columns PUSH of each, [count, 9].
    """

    def mean_step():
        return strategy.reduce("MEAN", strategy.run(lambda: tf.cast(step, tf.float64)), axis=None)

    metrics.step = int(step.numpy())
    if mean_step() != metrics.step:
        raise RuntimeError(f"This worker begins at step {metrics.step}, others elsewhere")
    while metrics.step < flags.steps:
        goal = min(metrics.step + flags.checkpoint_steps, flags.steps)
        while metrics.step < goal:
            count = min(goal - metrics.step, flags.steps_per_call)
            for row in make_steps(tf.constant(count)).numpy():
                metrics.push(row)
        if metrics.is_chief:
            metrics.test(time.time(), metrics.step, *[mean.numpy() for mean in test()])
            manager.save(checkpoint_number=metrics.step)
    # Nobody leaves while another one still fetches its part of the last mean.
    with contextlib.suppress(tf.errors.UnavailableError):  # the first ones have left
        mean_step()
    print(f"done, the output is in {metrics.directory}", flush=True)


if __name__ == "__main__":
    main()
