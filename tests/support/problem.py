"""The small problem on which scripts are compared with their references."""

import functools

import numpy as np
from lab import examples
from tfrun.apps import perceptron, references

LR, BATCH, SEED = 0.3, 8, 5
SPARSE = examples.main_script("Sparse-Embeddings")
PROSE = "\n\n".join(
    " ".join("abcdefghijklmnopqrstuvwxyz"[(7 * a * b + a + b) % 19] * 2 for b in range(12))
    for a in range(30)
)


@functools.cache
def digits_like():
    """A small data set: 41 rows of 6 features, 3 classes."""
    random = np.random.RandomState(1)
    return (
        random.rand(41, 6).astype(np.float32),
        random.randint(0, 3, 41).astype(np.int32),
        random.rand(5, 6).astype(np.float32),
        random.randint(0, 3, 5).astype(np.int32),
    )


@functools.cache
def draw(k, number, size, rows):
    """What (seed, worker, number) draws, by TensorFlow's generator without a state."""
    import tensorflow as tf

    key = [SEED * 65536 + k, number]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.random.stateless_uniform([size], key, 0, rows, tf.int32))


# Makes a script's model smooth. Near 0, ReLU's slope hangs on the last digit of float32, so after
# many updates a script and its reference may differ by 0.001 where neither is wrong.
SMOOTH = [(f'Dense({units}, "relu")', f'Dense({units}, "tanh")') for units in (128, 64)]


def gradient_on_digits(workers, activation="relu"):
    """gradient(k, number, w) on worker k's shard: every row from k on in steps of `workers`."""
    x, y = digits_like()[:2]

    def gradient(k, number, w):
        rows = draw(k, number, BATCH, len(x[k::workers]))
        return perceptron.loss_and_gradient(w, x[k::workers][rows], y[k::workers][rows], activation)

    return gradient


def digits(script, n, folder):
    """Returns (None, gradient) of n workers: None stands for the data of `digits_like`."""
    return None, gradient_on_digits(n)


WORDS = 21  # of Sparse-Embeddings' table; the text has 19


def pairs_of(data):
    """Returns the pairs for training as numbers of words, [rows, 2]."""
    return np.stack([data.x_train, data.y_train - WORDS], 1)


@functools.cache
def order(epoch):
    """The numbers of all rows in the order of an epoch, by TensorFlow's shuffled numbers."""
    import tensorflow as tf

    numbers = np.arange(len(digits_like()[0]), dtype=np.int64)
    return tf.random.experimental.index_shuffle(numbers, [SEED, epoch], len(numbers) - 1).numpy()


def rows_in_turn(script, n, folder):
    """Returns (None, gradient): gradient(k, rows, w) is that of these rows, for every worker."""
    x, y = digits_like()[:2]

    def gradient(k, rows, w):
        return perceptron.loss_and_gradient(w, x[rows], y[rows])

    gradient.order = order
    return None, gradient


def words(script, n, folder):
    """Returns (data, gradient) of n workers of Sparse-Embeddings on a short text.

    w is [kernel, bias, e]: a Dense layer changes the vectors of words, and e has the vectors of all
    words, and then those of all neighbours. The gradient is the dense one of the same model.
    """
    (folder / "prose.txt").write_text(PROSE)
    data = examples.load(script).load_data(str(folder / "prose.txt"), WORDS)

    def gradient(k, number, w):
        kernel, bias, e = w
        u, c = e[:WORDS], e[WORDS:]
        pairs = pairs_of(data)[k::n]
        drawn = pairs[draw(k, number, BATCH + 6, len(pairs))]
        changed = [u @ kernel + bias, c]
        loss, (g, g_c) = references.skip_gram(changed, drawn[:BATCH], drawn[BATCH:, 1], weight=5)
        return loss, [u.T @ g, g.sum(0), np.concatenate([g @ kernel.T, g_c])]

    return data, gradient


def records(script, n, folder):
    """Returns (data, gradient) of n workers of Train-and-Evaluate, which reads files.

    Each worker has a file with as many rows as a mini-batch, so each mini-batch is all of it.
    """
    import tensorflow as tf

    x, y, x_test, y_test = digits_like()
    files = [str(folder / f"train-{k}.tfrecord") for k in range(n)]
    rows = [slice(k * BATCH, (k + 1) * BATCH) for k in range(n)]
    for k, path in enumerate(files):
        with tf.io.TFRecordWriter(path) as writer:
            for row, label in zip(x[rows[k]], y[rows[k]]):
                features = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    data = examples.load(script).Data(files, x_test, y_test, list(x.shape[1:]), 3)
    return data, lambda k, number, w: perceptron.loss_and_gradient(w, x[rows[k]], y[rows[k]])


def union_step(w, n, number):
    """Returns (loss, w) after a step of the whole model on n workers' batches as one."""
    x, y = digits_like()[:2]
    shards = [np.arange(len(x))[k::n] for k in range(n)]
    rows = np.concatenate([s[draw(k, number, BATCH, len(s))] for k, s in enumerate(shards)])
    loss, g = perceptron.loss_and_gradient(w, x[rows], y[rows])
    return loss, [v - LR * d for v, d in zip(w, g)]


def keras_step(model, w, state, batches):
    """Returns (loss, w, state) after a step of Keras and its own tape on the mean of [(x, y)]."""
    import tensorflow as tf

    w, loss = [tf.Variable(v) for v in w], 0.0
    with tf.GradientTape() as tape:
        for x, y in batches:
            outputs, state, penalties = model.stateless_call(
                w, state, x, training=True, return_losses=True
            )
            of_rows = tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs)
            loss += (tf.reduce_mean(of_rows) + tf.add_n(penalties)) / len(batches)
    w = [(v - LR * d).numpy() for v, d in zip(w, tape.gradient(loss, w))]
    return float(loss), w, [v.numpy() for v in state]


def command_line(flags):
    """Returns {"--local-steps": 4} from {"local_steps": 4}, with the flags that all scripts have.

    A list becomes numbers with commas between them; None leaves out a flag that the script lacks.
    """
    shared = {"learning_rate": LR, "batch_size": BATCH, "seed": SEED, "steps": 99}
    return {
        "--" + name.replace("_", "-"): ",".join(map(str, v)) if isinstance(v, list) else v
        for name, v in {**shared, **flags}.items()
        if v is not None
    }
