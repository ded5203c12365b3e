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
import contextlib
import fcntl
import json
import os
import re
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row
Table = collections.namedtuple("Table", "path shape")  # of a variable


def algorithm(w, step, batch_loss, flags):
    """Builds one step of one rank; all ranks make it together.

    w: the tables, this rank's own copy. step: its counter of steps.
    batch_loss(w, number): the rows of w that mini-batch `number` needs, and the scalar loss there.
    """
    # The ticket comes first: when none is left, all ranks stop before the all-gather.
    ticket = tf.count_up_to(step, flags.steps)  # its error ends the run
    _, loss = batch_loss(w, ticket)

    # Each gradient is an IndexedSlices: the numbers of the rows, and the values of each.
    g = tf.gradients(loss, w)

    # Horovod: 1. scale the rate: n ranks together have a mini-batch n times as large.
    optimizer = tf.train.GradientDescentOptimizer(flags.learning_rate * hvd.size())

    # Horovod: 2. wrap the optimizer. For an IndexedSlices it gathers the rows and values of all
    # ranks. With sparse_as_dense it makes whole tables first, and all-reduces those.
    optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=bool(flags.dense))
    mean = optimizer.compute_gradients(loss, w)
    with tf.control_dependencies([tf.identity(d) for d, _ in mean]):
        push = optimizer.apply_gradients(mean)
    if flags.dense:
        pushed = [tf.convert_to_tensor(d) for d in g]
    else:
        pushed = [d.values for d in g] + [d.indices for d in g]
    return Update([], loss, pushed, ticket, ticket, push)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 256, 10.0  # the defaults; n ranks step with n * lr
MORE_FLAGS = [  # (name, default, help) of the flags that only this example has
    ("dimensions", 32, "numbers in the vector of a word"),
    ("noise-words", 64, "words drawn at random for a batch"),
    ("dense", 0, "1: send whole tables, by all-reduce"),
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


def build(data, flags):
    """Builds the graph: the step counter, the tables, one step, the test."""
    # Each rank draws its own first w, as it would without a seed; step 6 replaces it.
    tf.set_random_seed(flags.seed + hvd.rank())
    step = tf.train.get_or_create_global_step()
    w = parameters(tf.get_variable, len(data.vocabulary), flags.dimensions, parts=1)
    batch_loss = batches(data, flags, hvd.rank(), hvd.size())
    tables = [Table(v.op.name, v.shape) for v in w]
    return tables, step, algorithm(w, step, batch_loss, flags), evaluation(w, data)


def main():
    """Trains as one of the ranks that horovodrun starts."""
    flags = parse_flags()
    # Horovod: 3. connect to the other ranks; horovodrun has set each rank's number and address.
    hvd.init()
    n, data = hvd.size(), load_data(flags.dataset)
    # A rank sends its rows to all others in an all-gather, and whole tables in an all-reduce.
    in_a_ring = 2 - 2 / n
    with tf.Graph().as_default():
        train(*build(data, flags), flags, in_a_ring if flags.dense else n - 1)
    if hvd.rank() == 0 and n > 1:
        sent = mean_bytes(("worker", 0))
        tables = in_a_ring * 2 * len(data.vocabulary) * flags.dimensions * 4
        sizes = f"{sent / 1e3:.0f} KB a step; whole tables by all-reduce are {tables / 1e3:.0f} KB"
        print(f"Each rank sent {sizes}, {tables / sent:.1f} times as much", flush=True)


# region: ranks
def train(variables, step, update, test, flags, times_sent):
    """Makes steps until all are made; rank 0 also tests w, and saves it."""
    ranks = [("worker", rank) for rank in range(hvd.size())]
    metrics = Metrics(ranks[hvd.rank()], ranks, variables, flags)
    row = push_row(update, step, flags) * [1, 1, 1, 1, 1, 1, 1, times_sent, 1]  # that are bytes
    saver = tf.train.Saver(save_relative_paths=True)
    # Horovod: 4. of this machine's GPUs, rank k of this machine takes number k.
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    def test_and_save():
        metrics.test(time.time(), *session.run([step, *test]))
        saver.save(session, f"{metrics.directory}/model.ckpt", step, write_meta_graph=False)

    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        # Horovod: 5. rank 0 alone reads checkpoints, and writes them.
        checkpoint = tf.train.latest_checkpoint(metrics.directory)
        if metrics.is_chief and checkpoint:
            saver.restore(session, checkpoint)
        # Horovod: 6. all begin at rank 0's variables, be they its random start or its checkpoint.
        session.run(hvd.broadcast_global_variables(0))
        session.run(tf.local_variables_initializer())
        with contextlib.suppress(tf.errors.OutOfRangeError):  # every step is made
            while True:
                metrics.push(session.run(row))
                due = metrics.step % flags.checkpoint_steps == 0 and metrics.step < flags.steps
                if metrics.is_chief and due:
                    test_and_save()
        if metrics.is_chief:
            test_and_save()
    print("done, the output is in", metrics.directory, flush=True)


# endregion: ranks


# From here to the end: the same text in every example without a parameter server. -----------------


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


if __name__ == "__main__":
    main()
