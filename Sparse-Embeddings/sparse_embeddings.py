"""Sparse-Embeddings: HogWild on word vectors, where a push touches a few rows of large tables.

    rows    the words of a mini-batch, each once
    pull    w_k <- w[rows]
    push    w[rows] <- w[rows] - lr * g(w_k)     no lock; all other rows stay on the ps, unchanged

Kind:          parameter server, asynchronous
Paper:         Niu, Recht, Re, Wright 2011, Hogwild!: A Lock-Free Approach to Parallelizing SGD
Differs from:  HogWild: sparse gradients, and tables that are divided over the ps by rows
Simplified:    the model is skip-gram (Mikolov et al. 2013); a batch shares its noise words
Run:           bash run.sh
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import re
import socket
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row
Table = collections.namedtuple("Table", "path shape")  # of a variable


def algorithm(w, step, batch_loss, flags):
    """Builds one update of one worker; all workers make theirs at once.

    w: the tables' parts. step: the counter of updates.
    batch_loss(w, number): the rows of w that mini-batch `number` needs, and the scalar loss there.
    """
    # Sparse-Embeddings: the ps look up the rows and send only those.
    with tf.device(step.device):
        version = step.read_value()
    w_k, loss = batch_loss(w, version)  # it needs version to draw the mini-batch

    # Sparse-Embeddings: each gradient is an IndexedSlices: the rows' numbers, and a value for each.
    g = tf.gradients(loss, w)
    values, rows = [d.values for d in g], [d.indices for d in g]

    # HogWild: push, however late. Others have made ticket - version updates since the pull.
    delta = send(w, [flags.learning_rate * d for d in values])
    with tf.control_dependencies(delta):
        ticket = tf.count_up_to(step, flags.steps)  # its error ends the run
    with tf.control_dependencies([ticket]):
        changes = [tf.IndexedSlices(d, r) for d, r in zip(delta, rows)]
        push = tf.group(*[v.scatter_sub(change) for v, change in zip(w, changes)])
    return Update(w_k, loss, values + rows, version, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 4000, 256, 10.0  # the defaults; lr / B is the step of a pair
MORE_FLAGS = [  # (name, default, help) of the flags that only this example has
    ("dimensions", 32, "numbers in the vector of a word"),
    ("noise-words", 64, "words drawn at random for a batch"),
]


# region: words -- put your own text and model here
DATASET, DATASETS = "topics", "topics (help texts that come with Python), or a text file"
WINDOW, WEIGHT = 5, 5  # words to each side that are neighbours; what the noise counts
# The share of neighbours that are told from noise; more is better.
METRICS = {"accuracy": ("max", None)}
Data = collections.namedtuple("Data", "vocabulary train test noise")


def load_data(name):
    """Returns the words, the most frequent first, and pairs (word, neighbour) as int32 [rows, 2].

    Those for training and for the test are from different paragraphs. Each of the test has a noise
    word.
    """
    if name == "topics":
        from pydoc_data.topics import topics  # here, because a ps needs no data

        text = "\n\n".join(topics[key] for key in sorted(topics))
    else:
        text = open(name, encoding="utf-8").read()
    paragraphs = [re.findall(r"[^\W\d_]+", part.lower()) for part in text.split("\n\n")]
    count = collections.Counter(word for words in paragraphs for word in words)
    vocabulary = [word for word, times in count.most_common() if times > 2]
    number_of = {word: number for number, word in enumerate(vocabulary)}

    # Of the most frequent words only a part is kept: they say little of their neighbours.
    often = np.array([count[word] for word in vocabulary]) / max(1, sum(count.values()))
    random, pairs = np.random.RandomState(0), ([], [])
    for paragraph, words in enumerate(paragraphs):
        words = [number_of[word] for word in words if word in number_of]
        words = [word for word in words if random.rand() < (0.001 / often[word]) ** 0.5]
        for place, word in enumerate(words):
            near = words[max(0, place - WINDOW) : place] + words[place + 1 : place + 1 + WINDOW]
            pairs[paragraph % 10 == 9].extend((word, other) for other in near)
    if not pairs[0] or not pairs[1]:
        raise ValueError(f"{name} is too short: ten paragraphs at least, of words that recur")
    train, test = [np.array(rows, np.int32) for rows in pairs]
    return Data(vocabulary, train, test, train[random.randint(len(train), size=len(test)), 1])


def parameters(get_variable, words, dimensions, parts):
    """Makes tables [words, dimensions] of words and of neighbours; row r is in part r % parts."""
    made = []
    for name, low in ("words", -0.5 / dimensions), ("neighbours", 0):
        for part in range(parts):
            start = tf.random_uniform_initializer(low, -low, seed=part)
            shape = [len(range(part, words, parts)), dimensions]
            made.append(get_variable(f"{name}_{part}", shape, initializer=start))
    return made


def loss(true, noise):
    """Returns the cross-entropy of telling neighbours from noise, a scalar."""
    return tf.reduce_mean(tf.nn.softplus(-true)) + WEIGHT * tf.reduce_mean(tf.nn.softplus(noise))


# endregion: words


def show(vocabulary, parts, task):
    """Prints the words whose vectors point the same way, and the bytes of a push."""
    saved = tf.train.load_checkpoint(os.getenv("OUTPUT_DIR") or "output")
    table = np.empty([len(vocabulary), saved.get_tensor("words_0").shape[1]])
    for part in range(parts):
        table[part::parts] = saved.get_tensor(f"words_{part}")
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    for word in "function", "string", "exception", "import", "module", "bytes", "tuple", "loop":
        if word in vocabulary:
            near = np.argsort(-table @ table[vocabulary.index(word)])[1:6]
            print("%-10s is near %s" % (word, ", ".join(vocabulary[i] for i in near)))
    moved, whole = mean_bytes(task), 4 * table.size * 4  # two tables, both ways, 4 bytes a number
    guess = np.log(1 + WEIGHT) + WEIGHT * np.log(1 + 1 / WEIGHT)
    print(f"A model that knows only how frequent words are has accuracy 50%, loss {guess:.3f}")
    sizes = f"{moved / 1e3:.0f} KB of rows; whole tables would be {whole / 1e3:.0f} KB"
    print(f"A push moved {sizes}, {whole / moved:.1f} times as much", flush=True)


def build(cluster, data, flags):
    """Builds the step counter and the test, and returns a function that builds an update."""
    tf.set_random_seed(flags.seed)
    with tf.device(
        tf.train.replica_device_setter(cluster=cluster.spec, worker_device=cluster.device)
    ):
        step = tf.train.get_or_create_global_step()
        w = parameters(tf.get_variable, len(data.vocabulary), flags.dimensions, len(cluster.ps))
    with tf.device(cluster.device):
        batch_loss = batches(data, flags, cluster.rank, len(cluster.workers))
        return step, lambda: algorithm(w, step, batch_loss, flags), evaluation(w, data)


def main():
    """Runs the task that TF_CONFIG names: a ps serves, a worker trains."""
    flags, cluster = parse_flags(), Cluster()
    server = tf.train.Server(cluster.spec, *cluster.task, config=cluster.config)
    if cluster.job == "ps":
        return serve(cluster, server)
    data = load_data(flags.dataset)
    with tf.Graph().as_default():
        graph = build(cluster, data, flags)
        tables = [Table(v.op.name, v.shape) for v in tf.global_variables()]
        train(cluster, server, tables, *graph, flags)
    if cluster.rank == 0:
        show(data.vocabulary, len(cluster.ps), cluster.task)


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


# region: skip_gram
def look_up(parts, words):
    """Returns the rows of these words, each pulled once, and the row of each word."""
    once, place = tf.unique(words)
    rows = tf.nn.embedding_lookup(parts, once, partition_strategy="mod")
    return rows, tf.gather(rows, place)


def batches(data, flags, rank, workers):
    """Returns batch_loss(w, number) -> the rows of w that a mini-batch needs, and the loss.

    The pairs of a batch depend on (seed, rank, number) only. Its noise words are the neighbours in
    other pairs: as frequent as neighbours are.
    """
    pairs = variables(tf.get_local_variable, "pairs", [data.train[rank::workers]])[0]
    b, k = flags.batch_size, flags.noise_words

    def batch_loss(w, number):
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        rows = tf.random.stateless_uniform([b + k], key, 0, pairs.shape[0], tf.int32)
        drawn = tf.gather(pairs, rows)
        words, word = look_up(w[: len(w) // 2], drawn[:b, 0])
        neighbours, other = look_up(w[len(w) // 2 :], drawn[:, 1])
        with tf.control_dependencies(tf.get_collection("written")):  # of the updates before
            true = tf.reduce_sum(word * other[:b], axis=1)
        return [words, neighbours], loss(true, tf.matmul(word, other[b:], transpose_b=True))

    return batch_loss


def evaluation(w, data):
    """Returns [the loss, the share of test pairs that score above the word with its noise word]."""
    pairs, noise = variables(tf.get_local_variable, "test_pairs", [data.test, data.noise])
    _, word = look_up(w[: len(w) // 2], pairs[:, 0])
    _, other = look_up(w[len(w) // 2 :], tf.concat([pairs[:, 1], noise], 0))
    true, false = tf.split(tf.reduce_sum(tf.concat([word, word], 0) * other, axis=1), 2)
    return [loss(true, false), tf.reduce_mean(tf.cast(true > false, tf.float32))]


def mean_bytes(task):
    """Returns the bytes of an update, the mean over those in the metrics of a task."""
    path = os.path.join(os.getenv("OUTPUT_DIR") or "output", "metrics-%s-%d.csv" % task)
    rows = np.genfromtxt(path, delimiter=",", names=True, invalid_raise=False)
    return np.nanmean(rows["bytes"])


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


# region: session
MORE_FLAGS += [("updates-per-call", 10, "updates in one call; take 1 where one takes seconds")]


def train(cluster, server, initial, step, make_update, test, flags):
    """Updates w until all updates are made; the chief also tests and saves it."""
    n, ps = len(cluster.workers), len(cluster.ps)
    metrics = Metrics(cluster.task, cluster.workers, initial, flags, ps)
    written, before = tf.get_collection_ref("written"), []
    while len(written) < flags.updates_per_call:
        with tf.device(cluster.device), tf.control_dependencies(before):
            update = make_update()
            written += [tf.numpy_function(metrics.push, [push_row(update, step, flags)], [])]
        before = [update.push]  # when it has arrived, the next one pulls
        tf.get_variable_scope().reuse_variables()
    saver = tf.train.Saver(sharded=ps > 1, save_relative_paths=True)
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
            return print("done, the output is in", metrics.directory)
        except (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError):
            print("a ps was lost: training goes on from the last checkpoint")
            # Closing a session waits for the lost ps, up to 30 s.
            threading.Thread(target=session.close, daemon=True).start()


if __name__ == "__main__":
    main()
