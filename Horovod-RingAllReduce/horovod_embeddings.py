"""Horovod-RingAllReduce with embeddings: an all-gather exchanges the rows of sparse gradients.

    each rank    rows_k, the words of its own mini-batch, and g_k, a gradient for each of them
    all-gather   rows = rows_1, ..., rows_n one after the other;   g = (g_1, ..., g_n) / n
    each rank    w[rows] <- w[rows] - n * lr * g, on its own copy; a row that occurs twice adds up

Kind:          all-reduce
Paper:         Sergeev, Del Balso 2018, Horovod (arXiv 1802.05799)
Differs from:  horovod_ringallreduce.py: the gradient is a few rows of large tables
Simplified:    the model is skip-gram (Mikolov et al. 2013); a batch shares its noise words
Run:           bash run_embeddings.sh
"""
import argparse
import collections
import fcntl
import json
import os
import re
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")


def algorithm(w, step, batch_loss, flags):
    """One step of one rank; all ranks take it together.

    w: the tables, this rank's own copy. step: its counter of steps.
    batch_loss(w, number): the rows of w that mini-batch `number` needs, and the scalar loss there.
    """
    # The ticket comes first: when none is left, all ranks stop before the all-gather.
    ticket = tf.count_up_to(step, flags.steps)
    _, loss = batch_loss(w, ticket)

    # Each gradient is an IndexedSlices: the numbers of the rows, and the values of each.
    g = tf.gradients(loss, w)

    # Horovod: 3. scale the rate: n ranks together have a mini-batch n times as large.
    optimizer = tf.train.GradientDescentOptimizer(flags.learning_rate * hvd.size())

    # Horovod: 4. wrap the optimizer. For an IndexedSlices it gathers the rows and values of all
    # ranks. With sparse_as_dense it makes whole tables first, and all-reduces those.
    optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=bool(flags.dense))
    mean = optimizer.compute_gradients(loss, w)
    with tf.control_dependencies([tf.identity(d) for d, _ in mean]):
        push = optimizer.apply_gradients(mean)
    if flags.dense:
        return Update([], loss, [tf.convert_to_tensor(d) for d in g], ticket, ticket, push)
    return Update([], loss, [d.values for d in g] + [d.indices for d in g], ticket, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 256, 10.0  # the defaults; n ranks step with n * lr


def add_flags(add):
    """The flags that only this example has."""
    add("--dimensions", number(int, 1), 32, "numbers in the vector of a word", metavar="D")
    add("--noise-words", number(int, 1), 64, "words drawn at random for a batch", metavar="K")
    add("--dense", number(int, 0, 2), 0, "1: send whole tables, by all-reduce", metavar="0|1")


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


# region: ranks
def settings():
    """The settings of this rank's session."""
    # Horovod: 2. of this machine's GPUs, rank k of this machine takes number k.
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    return config


class Broadcast(tf.train.SessionRunHook):
    """What hvd.BroadcastGlobalVariablesHook is; Horovod 0.28.1 lacks it on TensorFlow 2.21."""

    def begin(self):
        # Horovod: 5. all begin at rank 0's variables, be they its random start or its checkpoint.
        self.broadcast = hvd.broadcast_global_variables(0)

    def after_create_session(self, session, coord):
        session.run(self.broadcast)


def train(step, update, test, flags, travels):
    """Updates until all are made; rank 0 also evaluates w, and saves it."""
    workers = [("worker", rank) for rank in range(hvd.size())]
    metrics = Metrics("worker-%d" % hvd.rank(), workers, flags)
    row, is_chief = push_row(update, step, flags, travels=travels), hvd.rank() == 0
    scaffold = tf.train.Scaffold(saver=tf.train.Saver(save_relative_paths=True))
    # Horovod: 6. rank 0 alone writes checkpoints, and reads them.
    also = [tf.train.CheckpointSaverHook(metrics.directory, flags.checkpoint_seconds,
                                         scaffold=scaffold, save_graph_def=False)] * is_chief
    with tf.train.MonitoredTrainingSession(
            config=settings(), checkpoint_dir=metrics.directory if is_chief else None,
            scaffold=scaffold, hooks=[Broadcast(), *also],
            save_checkpoint_steps=flags.checkpoint_steps,
            save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
            save_graph_def=False) as session:
        def evaluate(first):
            return session.run([step, *test], {"first:0": first})
        try:
            while True:
                metrics.push(session.run(row))
                if is_chief and time.time() > metrics.next_test:
                    metrics.test(evaluate)
        except tf.errors.OutOfRangeError:  # from count_up_to: every update is taken
            pass
        if is_chief:
            metrics.test(evaluate, all_rows=True)
    print("done, the output is in", metrics.directory, flush=True)
# endregion: ranks


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


def build(data, flags):
    """The graph: the step counter, one step, the test."""
    # Each rank draws its own first w, as it would without a seed; step 5 replaces it.
    tf.set_random_seed(flags.seed + hvd.rank())
    step = tf.train.get_or_create_global_step()
    w = parameters(tf.get_variable, len(data.vocabulary), flags.dimensions, parts=1)
    batch_loss = batches(data, flags, hvd.rank(), hvd.size())
    return step, algorithm(w, step, batch_loss, flags), evaluation(w, data)


def main():
    flags = parse_flags()
    # Horovod: 1. connect to the other ranks; horovodrun has set each rank's number and address.
    hvd.init()
    n, data = hvd.size(), load_data(flags.dataset)
    # A rank sends its rows to all others in an all-gather, and whole tables in an all-reduce.
    ring = 2 * (n - 1) / n
    with tf.Graph().as_default():
        train(*build(data, flags), flags, travels=ring if flags.dense else n - 1)
    if hvd.rank() == 0 and n > 1:
        sent = mean_bytes("worker-0")
        tables = ring * 2 * len(data.vocabulary) * flags.dimensions * 4
        print("Each rank sent %.0f KB a step; whole tables by all-reduce are %.0f KB, %.1f times "
              "as much" % (sent / 1e3, tables / 1e3, tables / sent), flush=True)


if __name__ == "__main__":
    main()
