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
import fcntl
import json
import os
import re
import socket
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, step, batch_loss, flags):
    """One update of one worker; all workers make theirs at once.

    w: the tables' parts. step: the counter of updates.
    batch_loss(w, number): the rows of w that mini-batch `number` needs, and the scalar loss there.
    """
    # Sparse-Embeddings: the ps look up the rows and send only those.
    version = step.read_value()
    with tf.control_dependencies([version]):
        w_k, loss = batch_loss(w, version)

    # Sparse-Embeddings: each gradient is an IndexedSlices: the rows' numbers, and a value for each.
    g = tf.gradients(loss, w)
    values, rows = [d.values for d in g], [d.indices for d in g]

    # HogWild: push, however late. Others have made ticket - version updates since the pull.
    with tf.control_dependencies(values):
        ticket = tf.count_up_to(step, flags.steps)
    with tf.control_dependencies([ticket]):
        push = tf.group(*[v.scatter_sub(tf.IndexedSlices(flags.learning_rate * d, r))
                          for v, d, r in zip(w, values, rows)])
    return Update(w_k, loss, values + rows, version, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 4000, 256, 10.0  # the defaults; lr / B is the step of a pair


def add_flags(add):
    """The flags that only this example has."""
    add("--dimensions", number(int, 1), 32, "numbers in the vector of a word", metavar="D")
    add("--noise-words", number(int, 1), 64, "words drawn at random for a batch", metavar="K")


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


# region: words -- put your own text and model here
DATASET, DATASETS = "topics", "topics (help texts that come with Python), or a text file"
WINDOW, WEIGHT = 5, 5  # words to each side that are neighbours; what the noise counts
METRICS = {"accuracy": ["max"]}  # the share of neighbours that are told from noise; more is better
Data = collections.namedtuple("Data", "vocabulary train test noise")


def load_data(name):
    """The words, the most frequent first; pairs (word, neighbour) as int32 [rows, 2] for training
    and test, from different paragraphs; and for each pair of the test a noise word."""
    if name == "topics":
        from pydoc_data.topics import topics  # here, because a ps needs no data
        text = "\n\n".join(topics[key] for key in sorted(topics))
    else:
        with open(name, encoding="utf-8") as file:
            text = file.read()
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
            near = words[max(0, place - WINDOW):place] + words[place + 1:place + 1 + WINDOW]
            pairs[paragraph % 10 == 9].extend((word, other) for other in near)
    if not pairs[0] or not pairs[1]:
        raise ValueError("%s is too short: ten paragraphs at least, of words that recur" % name)
    train, test = [np.array(each, np.int32) for each in pairs]
    return Data(vocabulary, train, test, train[random.randint(len(train), size=len(test)), 1])


def parameters(get_variable, words, dimensions, parts):
    """Two tables [words, dimensions], for words and for neighbours; row r is in part r % parts."""
    made = []
    for name, low in ("words", -0.5 / dimensions), ("neighbours", 0):
        for part in range(parts):
            start = tf.random_uniform_initializer(low, -low, seed=part)
            shape = [len(range(part, words, parts)), dimensions]
            made.append(get_variable("%s_%d" % (name, part), shape, initializer=start))
    return made


def look_up(parts, words):
    """The rows of these words, each pulled once; and the row of each word."""
    once, place = tf.unique(words)
    rows = tf.nn.embedding_lookup(parts, once, partition_strategy="mod")
    return rows, tf.gather(rows, place)


def loss(true, noise):
    """Cross-entropy of telling neighbours from noise, the latter with its weight; a scalar."""
    return tf.reduce_mean(tf.nn.softplus(-true)) + WEIGHT * tf.reduce_mean(tf.nn.softplus(noise))


def batches(data, flags, rank, workers):
    """batch_loss(w, number) -> the rows of w that a mini-batch of this worker needs, the loss.

    The pairs of a batch depend on (seed, rank, number) only. Its noise words are the neighbours in
    other pairs: as frequent as neighbours are.
    """
    pairs, = variables(tf.get_local_variable, "pairs", [data.train[rank::workers]])
    b, k = flags.batch_size, flags.noise_words

    def batch_loss(w, number):
        key = tf.stack([tf.constant(flags.seed * 65536 + rank, tf.int64), tf.to_int64(number)])
        rows = tf.random.stateless_uniform([b + k], key, 0, pairs.shape[0], tf.int32)
        drawn = tf.gather(pairs, rows)
        words, word = look_up(w[:len(w) // 2], drawn[:b, 0])
        neighbours, other = look_up(w[len(w) // 2:], drawn[:, 1])
        true = tf.reduce_sum(word * other[:b], axis=1)
        return [words, neighbours], loss(true, tf.matmul(word, other[b:], transpose_b=True))
    return batch_loss


def evaluation(w, data):
    """[number of test pairs, the loss, the share that scores above the word with its noise word].

    Means over TEST_ROWS pairs from "first:0" on.
    """
    first = tf.placeholder_with_default(0, [], "first")
    pairs, noise = [rows.read_value()[first:first + TEST_ROWS] for rows in variables(
        tf.get_local_variable, "test_pairs", [data.test, data.noise])]
    _, word = look_up(w[:len(w) // 2], pairs[:, 0])
    _, other = look_up(w[len(w) // 2:], tf.concat([pairs[:, 1], noise], 0))
    true, false = tf.split(tf.reduce_sum(tf.concat([word, word], 0) * other, axis=1), 2)
    accuracy = tf.reduce_mean(tf.cast(true > false, tf.float32))
    return [tf.constant(len(data.test)), loss(true, false), accuracy]


def mean_bytes(task):
    """The bytes of an update, the mean over those in the metrics of a task."""
    path = os.path.join(os.environ.get("OUTPUT_DIR") or "output", "metrics-%s.csv" % task)
    rows = np.genfromtxt(path, delimiter=",", names=True, invalid_raise=False)
    return np.nanmean(rows["bytes"])


def show(vocabulary, parts, task):
    """Prints what came out: the words whose vectors point the same way, and the bytes of a push."""
    saved = tf.train.load_checkpoint(os.environ.get("OUTPUT_DIR") or "output")
    table = np.empty([len(vocabulary), saved.get_tensor("words_0").shape[1]])
    for part in range(parts):
        table[part::parts] = saved.get_tensor("words_%d" % part)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    for word in "function", "string", "exception", "import", "module", "bytes", "tuple", "loop":
        if word in vocabulary:
            near = np.argsort(-table @ table[vocabulary.index(word)])[1:6]
            print("%-10s is near %s" % (word, ", ".join(vocabulary[i] for i in near)))
    moved, whole = mean_bytes(task), 4 * table.size * 4  # two tables, both ways, 4 bytes a number
    print("A model that knows only how frequent words are has accuracy 50%%, loss %.3f" % (
        np.log(1 + WEIGHT) + WEIGHT * np.log(1 + 1 / WEIGHT)))
    print("A push moved %.0f KB of rows; whole tables would be %.0f KB, %.1f times as much" % (
        moved / 1e3, whole / 1e3, whole / moved), flush=True)
# endregion: words


# region: variables
def variables(get_variable, name, values):
    """Variables with these first values, which as constants would stand in each graph sent."""
    return [get_variable("%s_%d" % (name, i), initializer=tf.ensure_shape(
        tf.numpy_function(lambda v=v: np.asarray(v), [], v.dtype), v.shape))
            for i, v in enumerate(values)]
# endregion: variables


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


def build(cluster, data, flags):
    """The graph: the step counter, one update, the test."""
    tf.set_random_seed(flags.seed)
    with tf.device(cluster.placement()):
        step = tf.train.get_or_create_global_step()
        w = parameters(tf.get_variable, len(data.vocabulary), flags.dimensions, len(cluster.ps))
    with tf.device(cluster.device):
        batch_loss = batches(data, flags, cluster.rank, len(cluster.workers))
        return step, algorithm(w, step, batch_loss, flags), evaluation(w, data)


def main():
    flags, cluster = parse_flags(EVALUATOR), Cluster()
    server = cluster.server()
    with tf.Graph().as_default():
        if cluster.job == "ps":
            return serve(cluster, server)
        data = load_data(flags.dataset)
        train(cluster, server, *build(cluster, data, flags), flags)
    if cluster.is_chief:
        show(data.vocabulary, len(cluster.ps), cluster.name)


if __name__ == "__main__":
    main()
