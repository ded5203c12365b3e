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
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")  # whatever the machine has set
import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

Update = collections.namedtuple("Update", "pulled loss pushed version ticket push")  # see push_row
Table = collections.namedtuple("Table", "path shape")  # of a variable


def algorithm(w, step, batch_loss, flags):
    """Makes one step of one rank; all ranks make it together.

    w: the tables, this rank's own copy. step: its counter of steps.
    batch_loss(w, number): the scalar loss at w on mini-batch `number`.
    """
    version = step.read_value()
    with tf.GradientTape() as tape:
        loss = batch_loss(w, version)

    # Each gradient is an IndexedSlices: the numbers of the rows, and the values of each.
    g = tape.gradient(loss, w)
    if flags.dense:
        g = [tf.convert_to_tensor(d) for d in g]  # a whole table, of which most rows are 0

    # Horovod: 1. average the gradients of all ranks. Of an IndexedSlices it gathers the rows and
    # values of all ranks; whole tables go around a ring.
    mean = [hvd.allreduce(d) for d in g]

    # Horovod: 2. scale the rate: n ranks together have a mini-batch n times as large.
    rate = flags.learning_rate * hvd.size()
    for table, d in zip(w, mean):
        if flags.dense:
            table.assign_sub(rate * d)
        else:
            table.scatter_sub(tf.IndexedSlices(rate * d.values, d.indices))
    step.assign_add(1)
    pushed = g if flags.dense else [d.values for d in g] + [d.indices for d in g]
    arrived = tf.group(*tf.nest.flatten(mean, expand_composites=True))
    return Update([], loss, pushed, version=version, ticket=version, push=arrived)


STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 256, 10.0  # the defaults; n ranks step with n * lr
MORE_FLAGS = [  # (name, default, help) of the flags that only this example has
    ("dimensions", 32, "numbers in the vector of a word"),
    ("noise-words", 64, "words drawn at random for a batch"),
    ("dense", 0, "1: send whole tables, by all-reduce"),
    ("steps-per-call", 10, "steps in one call of the graph"),
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
        from pydoc_data.topics import topics  # here, for only a task that trains needs it

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


def make_tables(words, dimensions):
    """Makes the table of words and that of neighbours, both [words, dimensions]."""
    most = 0.5 / dimensions
    start = tf.random.uniform([words, dimensions], -most, most)
    return [tf.Variable(start, name="words"), tf.Variable(tf.zeros_like(start), name="neighbours")]


def loss(true, noise):
    """Returns the cross-entropy of telling neighbours from noise, a scalar."""
    return tf.reduce_mean(tf.nn.softplus(-true)) + WEIGHT * tf.reduce_mean(tf.nn.softplus(noise))


# endregion: words


def build(data, flags):
    """Makes what a checkpoint holds, and functions that make steps and test the tables."""
    k, n = hvd.rank(), hvd.size()
    step = tf.Variable(0, dtype=tf.int64)
    w = make_tables(len(data.vocabulary), flags.dimensions)
    batch_loss = batches(tf.constant(data.train[k::n]), flags, k)  # rank k has every n-th pair
    # A rank sends its rows to all others in an all-gather, and whole tables in a ring.
    times_sent = 2 - 2 / n if flags.dense else n - 1

    def one_step():
        row = push_row(algorithm(w, step, batch_loss, flags), step, flags)
        return tf.stack(row._replace(bytes=times_sent * row.bytes))

    @tf.function
    def test():
        return evaluation(w, data)

    return {"step": step, "w": w}, many(one_step), test


# region: ranks
def take_gpu():
    """Takes a GPU of its own, where there are some."""
    # Horovod: 4. of this machine's GPUs, rank k of this machine takes number k.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def metrics_of_rank(variables, flags):
    """Opens this rank's metrics; rank 0 is the chief."""
    ranks = [("worker", rank) for rank in range(hvd.size())]
    return Metrics(ranks[hvd.rank()], ranks, variables, flags)


def many(one_step):
    """Returns a function of a count, which makes so many steps: their rows, [count, 9]."""

    @tf.function
    def make_steps(count):
        rows = tf.TensorArray(tf.float64, count)
        for i in tf.range(count):
            rows = rows.write(i, one_step())
        return rows.stack()

    return make_steps


def begin(saved, metrics):
    """Gives all ranks the same values, and returns what writes checkpoints.

    saved: {name: a variable or a list of them}, all that makes a step.
    """
    checkpoint = tf.train.Checkpoint(**saved)
    manager = tf.train.CheckpointManager(
        checkpoint, metrics.directory, 5, checkpoint_name="model.ckpt"
    )
    # Horovod: 5. rank 0 alone reads checkpoints, and writes them.
    if metrics.is_chief and manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    # Horovod: 6. all begin at rank 0's variables, be they its random start or its checkpoint.
    hvd.broadcast_variables(tf.nest.flatten(saved), root_rank=0)
    metrics.step = int(saved["step"])
    return manager


# endregion: ranks


def main():
    """Trains as one of the ranks that horovodrun starts."""
    flags = parse_flags()
    # Horovod: 3. connect to the other ranks; horovodrun has set each rank's number and address.
    hvd.init()
    take_gpu()
    keras.utils.set_random_seed(flags.seed)  # what load_data() draws is the same on all ranks
    data = load_data(flags.dataset)
    # Each rank draws its own first w, as it would without a seed; step 6 replaces it.
    keras.utils.set_random_seed(flags.seed + hvd.rank())
    saved, make_steps, test = build(data, flags)
    metrics = metrics_of_rank([Table(v.name, v.shape) for v in saved["w"]], flags)
    metrics.describe(data)
    train(make_steps, test, metrics, begin(saved, metrics), flags)
    if metrics.is_chief and hvd.size() > 1:
        show(data, flags)


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


# region: skip_gram -- of this example only
def look_up(table, words):
    """Returns the row of each word. Each row is looked up once, so its gradient is summed here."""
    once, place = tf.unique(words)
    return tf.gather(tf.gather(table, once), place)


def batches(pairs, flags, rank):
    """Returns batch_loss(w, number) -> the loss at w on mini-batch `number` of these pairs.

    The pairs depend on (seed, rank, number) only. The noise words are neighbours in other pairs, so
    that they are as frequent as neighbours are.
    """
    b, k = flags.batch_size, flags.noise_words

    def batch_loss(w, number):
        key = [flags.seed * 65536 + rank, number]  # of int64, as the number is
        drawn = tf.gather(pairs, tf.random.stateless_uniform([b + k], key, 0, len(pairs), tf.int32))
        word, other = look_up(w[0], drawn[:b, 0]), look_up(w[1], drawn[:, 1])
        true = tf.reduce_sum(word * other[:b], axis=1)
        return loss(true, tf.matmul(word, other[b:], transpose_b=True))

    return batch_loss


def evaluation(w, data):
    """Returns [the loss, the share of test pairs that score above the word with its noise word]."""
    word = look_up(w[0], data.test[:, 0])
    other = look_up(w[1], tf.concat([data.test[:, 1], data.noise], 0))
    true, false = tf.split(tf.reduce_sum(tf.concat([word, word], 0) * other, axis=1), 2)
    return [loss(true, false), tf.reduce_mean(tf.cast(true > false, tf.float32))]


def show(data, flags):
    """Prints what a rank sent at each step, beside what it would have sent of whole tables."""
    path = os.path.join(os.getenv("OUTPUT_DIR") or "output", "metrics-worker-0.csv")
    rows = np.genfromtxt(path, delimiter=",", names=True, invalid_raise=False)
    sent, n = np.nanmean(rows["bytes"]), hvd.size()
    tables = (2 - 2 / n) * 2 * len(data.vocabulary) * flags.dimensions * 4
    sizes = f"{sent / 1e3:.0f} KB a step; whole tables by all-reduce are {tables / 1e3:.0f} KB"
    print(f"Each rank sent {sizes}, {tables / sent:.1f} times as much", flush=True)


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


# region: calls
def train(make_steps, test, metrics, manager, flags):
    """Makes all steps that are left; the chief also tests w and saves it.

    make_steps(count) makes that many, and returns the columns PUSH of each, [count, 9].
    """

    def test_and_save():
        metrics.test(time.time(), metrics.step, *[mean.numpy() for mean in test()])
        manager.save(checkpoint_number=metrics.step)

    while metrics.step < flags.steps:
        count = min(flags.steps - metrics.step, flags.steps_per_call)
        for row in make_steps(tf.constant(count)).numpy():
            metrics.push(row)
        passed = metrics.step % flags.checkpoint_steps < count  # a number of steps to save at
        if metrics.is_chief and passed and metrics.step < flags.steps:
            test_and_save()
    if metrics.is_chief:
        test_and_save()
    print("done, the output is in", metrics.directory, flush=True)


if __name__ == "__main__":
    main()
