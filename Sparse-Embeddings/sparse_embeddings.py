"""Sparse-Embeddings: HogWild on word vectors, where a push touches a few rows of large tables.

    rows    the words of a mini-batch, each once
    pull    w_k <- w[rows]
    push    w[rows] <- w[rows] - lr * g(w_k)     no lock; the other rows neither move nor travel

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
import platform
import re
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy, never an alias of the ps's buffer

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

    # HogWild: push, however late. ticket - version others have pushed since the pull.
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
def stop(message, code=2):
    """Ends this task with one line that says what is wrong and what to do."""
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with a flag, without the usage above it."""

    def error(self, message):
        stop("%s: %s (--help lists the flags)" % (self.prog, message))


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


def parse_flags():
    parser = Parser(description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(flag, kind, default, text, **options):
        text += " (%(default)s)"
        parser.add_argument(flag, type=kind, default=default, help=text, **options)
    add("--steps", number(int, 1), STEPS, "updates of w, all workers together", metavar="N")
    add("--batch-size", number(int, 1), BATCH_SIZE, "examples in a mini-batch", metavar="B")
    if LEARNING_RATE:
        add("--learning-rate", number(float, 0, strictly=True), LEARNING_RATE,
            "lr in the update rule", metavar="LR")
    add("--seed", number(int, 0), 0, "of the first parameters and of the batches")
    add("--dataset", str, DATASET, DATASETS)
    add("--checkpoint-steps", number(int, 1), 1000, "updates between checkpoints", metavar="N")
    add_flags(add)
    return parser.parse_args()
# endregion: flags


# region: cluster
class Cluster:
    """Who is who, from TF_CONFIG: {"cluster": {"ps": [...], "worker": [...]}, "task": {...}}."""

    def __init__(self):
        if "TF_CONFIG" not in os.environ:
            stop("TF_CONFIG is not set: start with `bash run.sh`, or set it for each task")
        try:
            config = json.loads(os.environ["TF_CONFIG"])
            jobs = {"chief" if job == "master" else job: list(tasks)
                    for job, tasks in config["cluster"].items()}
            job, self.index = config["task"]["type"], int(config["task"]["index"])
            self.job = "chief" if job == "master" else job
            self.spec = tf.train.ClusterSpec(jobs)
            self.spec.task_address(self.job, self.index)
            for address in sum(jobs.values(), []):
                int(address.rsplit(":", 1)[1])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            stop("TF_CONFIG must be JSON with the addresses (host:port) of a cluster and a task in "
                 "it: %s: %s" % (type(error).__name__, error))
        self.ps = jobs.get("ps", [])
        self.workers = [(job, index) for job in ("chief", "worker")
                        for index in range(len(jobs.get(job, [])))]
        if not self.ps or not self.workers or self.job not in ("ps", "chief", "worker"):
            stop("TF_CONFIG must list a ps and a worker, and its task be a ps, chief or worker")
        self.name = "%s-%d" % (self.job, self.index)
        self.device = "/job:%s/task:%d" % (self.job, self.index)
        self.rank = self.workers.index((self.job, self.index)) if self.job != "ps" else None
        self.is_chief = self.rank == 0
        # With the filters a task talks to itself and the ps, and never waits for another worker.
        talks_to = [self.device] if self.job == "ps" else ["/job:ps", self.device]
        self.config = tf.ConfigProto(device_filters=talks_to)

    def placement(self):
        """For tf.device: a variable goes to the ps with the fewest bytes so far."""
        load = [0] * len(self.ps)

        def lightest(op):
            task = load.index(min(load))
            size = tf.TensorShape(op.get_attr("shape")).num_elements()
            load[task] += size * op.get_attr("dtype").size
            return task
        return tf.train.replica_device_setter(cluster=self.spec, worker_device=self.device,
                                              ps_strategy=lightest)

    def start_server(self):
        """The server of this task, at its address in the cluster."""
        address = self.spec.task_address(self.job, self.index)
        # Tried here first, because TensorFlow needs three lines to say that a port is taken.
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if os.environ.get("TF_GRPC_REUSE_PORT"):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                s.bind(("", int(address.rsplit(":", 1)[1])))
            except OSError as error:
                stop("%s cannot listen at %s: %s" % (self.name, address, error.strerror), code=1)
        return tf.train.Server(self.spec, self.job, self.index, config=self.config)


PATIENCE = 30  # seconds that a task waits for peers without which it can go on
GIVE_UP = 120  # seconds that it waits for peers without which it cannot


class Attendance:
    """What each worker has said to each ps: [is it done, and what Report.said() returns].

    It stands in a table on the ps that no checkpoint holds; a restarted worker just says it again.
    """

    def __init__(self, cluster):
        self.n, rank = len(cluster.workers), tf.constant(cluster.rank or 0, tf.int64)
        self.said, self.say, self.heard = tf.placeholder(tf.float64, [4]), [], []
        for task in [cluster.index] if cluster.job == "ps" else range(len(cluster.ps)):
            with tf.device("/job:ps/task:%d" % task):
                table = tf.raw_ops.MutableHashTableOfTensorsV2(
                    key_dtype=tf.int64, value_dtype=tf.float64, value_shape=[4],
                    shared_name="attendance")
                self.say.append(tf.raw_ops.LookupTableInsertV2(
                    table_handle=table, keys=rank, values=self.said))
                self.heard.append(tf.raw_ops.LookupTableExportV2(
                    table_handle=table, Tkeys=tf.int64, Tvalues=tf.float64))

    def done(self, session):
        """{rank: what Report.said() returned there} of the workers that are done."""
        return {rank: tuple(numbers) for rank, (done, *numbers) in zip(*session.run(self.heard[0]))
                if done}

    def start_together(self, session, step):
        """Waits until all workers are here, or some go on already, or for PATIENCE."""
        session.run(self.say, {self.said: [0, 0, 0, 0]})
        first, deadline = session.run(step), time.time() + PATIENCE
        while len(session.run(self.heard[0])[0]) < self.n and time.time() < deadline:
            if session.run(step) >= first + self.n:
                break
            time.sleep(0.02)

    def wait_for_the_others(self, session):
        """Waits until the other workers are done, or for PATIENCE; returns what they said."""
        deadline = time.time() + PATIENCE
        while len(self.done(session)) < self.n - 1 and time.time() < deadline:
            time.sleep(0.02)
        return self.done(session)

    def serve(self, server, config):
        """A ps stays until all workers are done, or until PATIENCE after the chief is."""
        deadline = float("inf")
        with tf.Session(server.target, config=config) as session:
            while len(done := self.done(session)) < self.n and time.time() < deadline:
                if done:  # no update is left; but the chief may have much to evaluate and to save
                    deadline = min(deadline, time.time() + PATIENCE * (1 if 0 in done else 10))
                time.sleep(0.1)


def wait_for_ps(cluster):
    """Ends this task with one line when a ps does not answer in GIVE_UP seconds."""
    deadline = time.time() + GIVE_UP
    for task, address in enumerate(cluster.ps):
        host, port = address.rsplit(":", 1)
        while True:
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
                break
            except OSError as error:
                if time.time() > deadline:
                    stop("ps %d did not answer at %s for %d s: %s" % (
                        task, address, GIVE_UP, error), code=1)
                time.sleep(0.1)
# endregion: cluster


# region: words -- put your own text and model here
DATASET, DATASETS = "topics", "topics (help texts that come with Python), or a text file"
WINDOW, WEIGHT = 5, 5  # words to each side that are neighbours; what the noise counts
Data = collections.namedtuple("Data", "vocabulary train test noise")


def load_data(name):
    """The words, the most frequent first; pairs (word, neighbour) as int32 [rows, 2] for training
    and test, from different paragraphs; and for each pair of the test a noise word."""
    if name == "topics":
        from pydoc_data.topics import topics  # here, because a ps needs no data
        text = "\n\n".join(topics[key] for key in sorted(topics))
    else:
        try:
            with open(name, encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError) as error:
            stop("--dataset %s is neither topics nor a text file in UTF-8: %s" % (name, error))
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
        stop("--dataset %s is too short: ten paragraphs at least, of words that come again" % name)
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
    """The rows of these words, each pulled once, and where each word finds its own."""
    once, place = tf.unique(words)
    return tf.nn.embedding_lookup(parts, once, partition_strategy="mod"), place


def scores(word, neighbour, noise):
    """How well the rows of words fit those of neighbours [rows] and of noise words [rows, K]."""
    return tf.reduce_sum(word * neighbour, axis=1), tf.matmul(word, noise, transpose_b=True)


def loss(true, noise):
    """Cross-entropy of telling neighbours from noise, the latter with its weight; a scalar."""
    return tf.reduce_mean(tf.nn.softplus(-true)) + WEIGHT * tf.reduce_mean(tf.nn.softplus(noise))


def batches(data, flags, rank, workers):
    """batch_loss(w, number) -> the rows of w that a mini-batch of this worker needs, the loss.

    The pairs of a batch depend on (seed, rank, number) only. Its noise words are the neighbours in
    other pairs: as frequent as neighbours are.
    """
    if len(data.train) < workers:
        stop("--dataset has %d pairs, fewer than workers (%d)" % (len(data.train), workers))
    pairs = kept_here("pairs", data.train[rank::workers])
    b, k = flags.batch_size, flags.noise_words

    def batch_loss(w, number):
        key = tf.stack([tf.constant(flags.seed * 65536 + rank, tf.int64), tf.to_int64(number)])
        rows = tf.random.stateless_uniform([b + k], key, 0, pairs.shape[0], tf.int32)
        drawn = tf.gather(pairs, rows)
        words, place = look_up(w[:len(w) // 2], drawn[:b, 0])
        neighbours, there = look_up(w[len(w) // 2:], drawn[:, 1])
        word, neighbour = tf.gather(words, place), tf.gather(neighbours, there)
        return [words, neighbours], loss(*scores(word, neighbour[:b], neighbour[b:]))
    return batch_loss


def evaluation(w, data):
    """[the share of test pairs that score above the word with its noise word, the loss]."""
    pairs, noise = kept_here("test", data.test), kept_here("noise", data.noise)
    words, place = look_up(w[:len(w) // 2], pairs[:, 0])
    neighbours, there = look_up(w[len(w) // 2:], tf.concat([pairs[:, 1], noise], 0))
    word, neighbour = tf.gather(words, place), tf.gather(neighbours, there)
    true = tf.reduce_sum(word * neighbour[:pairs.shape[0]], axis=1)
    other = tf.reduce_sum(word * neighbour[pairs.shape[0]:], axis=1)
    return [tf.reduce_mean(tf.to_float(true > other)), loss(true, other)]


def show(directory, vocabulary, metrics):
    """Prints what came out: the words whose vectors point the same way, and the bytes of a push."""
    saved, parts = tf.train.load_checkpoint(directory), 0
    while saved.has_tensor("words_%d" % parts):
        parts += 1
    table = np.empty([len(vocabulary), saved.get_tensor("words_0").shape[1]])
    for part in range(parts):
        table[part::parts] = saved.get_tensor("words_%d" % part)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    for word in "function", "string", "exception", "import", "module", "bytes", "tuple", "loop":
        if word in vocabulary:
            near = np.argsort(-table @ table[vocabulary.index(word)])[1:6]
            print("%-10s is near %s" % (word, ", ".join(vocabulary[i] for i in near)))
    moved = np.nanmean(np.genfromtxt(metrics, delimiter=",", names=True)["bytes"])
    whole = 4 * table.size * 4  # two tables, there and back, 4 bytes a number
    print("A model that knows only how frequent words are has accuracy 50%%, loss %.3f" % (
        np.log(1 + WEIGHT) + WEIGHT * np.log(1 + 1 / WEIGHT)))
    print("A push moved %.0f KB of rows; whole tables would be %.0f KB, %.1f times as much" % (
        moved / 1e3, whole / 1e3, whole / moved), flush=True)
# endregion: words


# region: local
def kept_here(name, array):
    """`array` as a local variable; a constant would be copied into every graph TensorFlow saves."""
    value = tf.ensure_shape(tf.numpy_function(lambda: array, [], array.dtype), array.shape)
    return tf.get_local_variable(name, initializer=value)
# endregion: local


# region: session
class SessionCreator(tf.train.SessionCreator):
    """Makes the session of a worker, and again after a ps was lost.

    The chief also makes the model, or restores it, if it is not on the ps already. The others look
    every half second whether it is there; tf.train.WorkerSessionCreator, every 30 s, would miss a
    short run.
    """

    def __init__(self, cluster, server, saver, directory):
        self.cluster, self.server, self.directory = cluster, server, directory
        self.scaffold = tf.train.Scaffold(saver=saver)

    def create_session(self):
        wait_for_ps(self.cluster)
        target, config, scaffold = self.server.target, self.cluster.config, self.scaffold.finalize()
        if self.cluster.is_chief:
            with tf.Session(target, config=config) as session:
                missing = session.run(scaffold.ready_for_local_init_op)
            if len(missing):
                return tf.train.ChiefSessionCreator(
                    scaffold, target, config, self.directory).create_session()
        manager = tf.train.SessionManager(
            local_init_op=scaffold.local_init_op, ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op, recovery_wait_secs=0.5)
        try:
            return manager.wait_for_session(target, config, max_wait_secs=GIVE_UP)
        except tf.errors.DeadlineExceededError:
            stop("the chief did not make the model in %d s" % GIVE_UP, code=1)


def train(cluster, server, attendance, step, update, test, report, synchronous=False, hooks=(),
          finish=()):
    """Updates until every ticket is taken; then the chief tests, saves, and writes the result."""
    row = push_row(update, report.flags)
    saver = tf.train.Saver(sharded=len(cluster.ps) > 1, save_relative_paths=True)
    if cluster.is_chief:
        report.check_checkpoint({v.op.name: v.shape.as_list() for v in tf.global_variables()})

    # Not a CheckpointSaverHook: it fetches the step in every call, and so holds its worker back
    # behind the others.
    def save(step_context):
        path = os.path.join(report.directory, "model.ckpt")
        saver.save(step_context.session, path, step, write_meta_graph=False)
        report.saved = report.step

    def save_if_possible(step_context):
        try:
            save(step_context)
        except (tf.errors.AbortedError, tf.errors.UnavailableError):
            pass  # a ps was lost; the next call of session.run makes a new session

    def one_update(session):
        try:
            return session.run(row)
        except tf.errors.CancelledError:
            # TensorFlow tells requests apart by random numbers. When two draw the same, once in a
            # long while, it takes them for one and ends it. The update is lost, the session is not.
            return session.run(row)
    creator = SessionCreator(cluster, server, saver, report.directory)
    with report, tf.train.MonitoredSession(creator, hooks, 1) as session:
        try:
            # The first calls set up the graph on every device: the common start comes after them,
            # but for synchronous updates, whose first call waits for other workers already.
            if synchronous:
                attendance.start_together(session, step)
            report.push(one_update(session))
            if cluster.is_chief:
                session.run(test)
            if not synchronous:
                attendance.start_together(session, step)
            report.start()
            while True:
                report.push(one_update(session))
                report.watch(lambda: session.run(test))
                if cluster.is_chief and report.save_due():
                    session.run_step_fn(save_if_possible)
        except tf.errors.OutOfRangeError:  # from count_up_to: all --steps updates are taken
            report.end()
        if cluster.is_chief:
            session.run(finish)
            said = {**attendance.wait_for_the_others(session), 0: report.said()}
            last = session.run([step, *test])
            session.run_step_fn(save)
            if last[0] < report.flags.steps:
                stop("A ps was lost at the very end; the same command goes on from the last "
                     "checkpoint", code=1)
            report.result(*last, len(cluster.ps), [said.get(k) for k in range(attendance.n)])
        session.run(attendance.say, {attendance.said: [1, *report.said()]})
# endregion: session


# region: report
# A line of metrics-<task>.csv is a push, with times in seconds since 1970; global_step counts it;
# loss is the last mini-batch's; bytes are those pulled and pushed; wait_seconds is the time from
# the gradient to its arrival. Or it is an evaluation, with push_time, global_step and TEST.
PUSH = ["push_time", "pull_time", "global_step", "local_steps", "examples", "loss", "staleness",
        "bytes", "wait_seconds"]
TEST = ["test_accuracy", "test_loss"]


def push_row(update, flags, towers=1, travels=1):
    """The columns PUSH as one float64 tensor: to fetch one costs less than to fetch nine.

    towers: mini-batches of this process in an update. travels: how often each byte is sent.
    """
    with tf.control_dependencies(update.pulled):
        pull_time = tf.timestamp()
    with tf.control_dependencies(update.pushed):
        ready_time = tf.timestamp()
    with tf.control_dependencies([update.push]):
        push_time = tf.timestamp()
    local_steps = getattr(flags, "local_steps", 1)
    examples = local_steps * flags.batch_size * towers
    size = travels * sum(tf.cast(tf.size(t), tf.float64) * t.dtype.size
                         for t in update.pulled + update.pushed)
    return tf.stack([tf.cast(column, tf.float64) for column in [
        push_time, pull_time, update.ticket + 1, local_steps, examples, update.loss,
        update.ticket - update.version, size, push_time - ready_time]])


class Report:
    """What a run leaves in OUTPUT_DIR: metrics-<task>.csv, checkpoints, events, result.json."""

    def __init__(self, flags, task, rank):
        self.flags, self.rank = flags, rank
        self.directory = os.environ.get("OUTPUT_DIR") or "output"
        self.pushes = self.staleness = self.late = 0
        self.step = self.examples = self.saved = self.tested = 0
        elsewhere = "%s; set OUTPUT_DIR to another folder" % self.directory
        try:
            os.makedirs(self.directory, exist_ok=True)
            if rank == 0:
                self.lock = open(os.path.join(self.directory, ".chief"), "w")
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(os.path.join(self.directory, "result.json")):
                stop("There is a finished run in " + elsewhere, code=0)
            if rank is not None:  # a ps has no metrics
                # Line by line, so that even kill -9 loses none; it costs microseconds.
                path = os.path.join(self.directory, "metrics-%s.csv" % task)
                self.metrics = open(path, "a+", buffering=1)
                self.metrics.seek(0)
                whole = self.metrics.read().rfind("\n") + 1  # a killed run may end within a line
                self.metrics.truncate(whole)
                if not whole:
                    self.metrics.write(",".join(PUSH + TEST) + "\n")
        except BlockingIOError:
            stop("Another chief trains in " + elsewhere)
        except OSError as error:
            stop("Cannot write (%s) in %s" % (error.strerror, elsewhere))
        if rank == 0:
            with tf.Graph().as_default():  # it refuses to be made where TensorFlow 2 runs eagerly
                self.events = tf.compat.v1.summary.FileWriterCache.get(self.directory)
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        """A full disk ends the task with one line; every other error keeps its traceback."""
        if isinstance(error, OSError) or "No space left" in str(error):
            stop("Cannot write in %s (%s); with more space the same command goes on from the last "
                 "checkpoint" % (self.directory, getattr(error, "strerror", "No space left")), 1)

    def check_checkpoint(self, shapes):
        """Refuses a checkpoint of another model than {name: shape} before it is restored."""
        state = tf.train.get_checkpoint_state(self.directory)
        latest = state and state.model_checkpoint_path
        try:
            saved = dict(tf.train.list_variables(latest)) if latest else {}
        except (ValueError, tf.errors.OpError) as error:
            stop("The checkpoint %s cannot be read (%s); remove it, and its line in the file "
                 "`checkpoint`" % (latest, str(error).splitlines()[0]))
        for name, here in shapes.items() if latest else []:
            if saved.get(name) != here:
                stop("%s holds a checkpoint of another model: %s has shape %s there, %s here; set "
                     "OUTPUT_DIR to another folder" % (self.directory, name, saved.get(name), here))

    def start(self):
        """The clock starts, after the set-up."""
        self.started = self.told = time.time()
        self.first_step = self.step

    def push(self, row):
        """Takes the columns PUSH of one update."""
        self.metrics.write("%.6f,%.6f,%d,%d,%d,%.6g,%d,%d,%.6f,,\n" % tuple(row))
        self.step, self.examples, self.loss = int(row[2]), int(row[4]), row[5]
        self.pushes, self.staleness = self.pushes + 1, self.staleness + int(row[6])
        self.late += row[6] > 0
        if not np.isfinite(self.loss):
            stop("The loss is %s at update %d; a lower --learning-rate may help" % (
                self.loss, self.step), code=1)

    def said(self):
        """(pushes, the sum of their staleness, how many had any) of this worker."""
        return self.pushes, self.staleness, self.late

    def save_due(self):
        """Whether --checkpoint-steps updates have been made since the last checkpoint."""
        return self.step >= self.saved + self.flags.checkpoint_steps

    def watch(self, test):
        """Calls `test` several times a second, for a twentieth of the time; prints every second."""
        now = time.time()
        if self.rank == 0 and now > self.tested:
            numbers = test()
            self.tested = now + max(0.25, 20 * (time.time() - now))
            self.metrics.write("%.6f,,%d,,,,,,,%.6f,%.6f\n" % (now, self.step, *numbers))
            self.events.add_summary(tf.compat.v1.Summary(value=[
                tf.compat.v1.Summary.Value(tag=tag, simple_value=value)
                for tag, value in zip(["loss", *TEST], [self.loss, *numbers])]), self.step)
            self.line = "update %d of %d   loss %.3f   test accuracy %.1f%%   %.0f updates/s" % (
                self.step, self.flags.steps, self.loss, 100 * numbers[0],
                (self.step - self.first_step) / (now - self.started))
        if self.rank == 0 and now > self.told + 1:
            self.told = now
            print(self.line, flush=True)

    def end(self):
        """The clock stops: every update is taken."""
        self.seconds = time.time() - self.started

    def result(self, steps, test_accuracy, test_loss, ps, said):
        """Writes result.json; said: what said() returned on each worker, None if it was lost."""
        heard = [worker for worker in said if worker]
        result = {
            "example": __doc__.split(":")[0], "dataset": self.flags.dataset, "steps": int(steps),
            "ps": ps, "workers": len(said),
            "test_accuracy": float(test_accuracy), "test_loss": float(test_loss),
            "examples_per_second": sum(n for n, _, _ in heard) * self.examples / self.seconds
            if self.pushes else None,  # a chief restarted at the very end has seen no update
            "wall_seconds": self.seconds,
            "staleness_mean": sum(s for _, s, _ in heard) / max(1, sum(n for n, _, _ in heard)),
            "pushes_per_worker": [worker and int(worker[0]) for worker in said],
            "late_per_worker": [worker and int(worker[2]) for worker in said],
            "arguments": vars(self.flags),
            "versions": {"python": platform.python_version(), "tensorflow": tf.__version__,
                         "numpy": np.__version__},
        }
        path = os.path.join(self.directory, "result.json")
        with open(path + ".partial", "w") as file:
            json.dump(result, file, indent=2)
        os.replace(path + ".partial", path)  # whole or not at all
        print("%s: test accuracy %.1f%%, test loss %.3f after %d updates in %.1f s" % (
            result["example"], 100 * test_accuracy, test_loss, steps, self.seconds), flush=True)
# endregion: report


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
    flags, cluster = parse_flags(), Cluster()
    report = Report(flags, cluster.name, cluster.rank)
    server, attendance = cluster.start_server(), Attendance(cluster)
    if cluster.job == "ps":
        return attendance.serve(server, cluster.config)
    data = load_data(flags.dataset)
    step, update, test = build(cluster, data, flags)
    train(cluster, server, attendance, step, update, test, report)
    if cluster.is_chief:
        show(report.directory, data.vocabulary, report.metrics.name)


if __name__ == "__main__":
    main()
