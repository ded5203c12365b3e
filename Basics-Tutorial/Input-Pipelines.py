# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Input pipelines
# Of the millions of training jobs that Google ran in one month, a fifth spent more than a third of
# their compute time on reading data (Murray et al. 2021). With several workers it also matters who reads
# which rows: if two read the same part, TensorFlow raises no error and the loss falls as usual, but the
# model becomes far worse. You will prove that each row is read once, and make an update with slow reads
# more than twice as fast.
#
# After this notebook you can:
# - give each worker its part of the data, by file or by row, and prove that no row is lost;
# - recognise a model that has never seen some of the classes;
# - put `shard`, `cache`, `shuffle`, `repeat`, `batch` and `map` into the right order, and say why;
# - calculate how long an update takes with and without `prefetch` and parallel reads.
#
# **Before it:** [Multiple-Workers](Multiple-Workers.ipynb). **Time:** 40 minutes.

# %% [markdown]
# ## From files to a step
# ![Ten files. By shard, worker 0 reads the files 0, 2, 4, 6 and 8, worker 1 the others. In each worker the rows pass through cache, shuffle, repeat and batch; map parses a batch, prefetch holds it ready, and the training step takes it. A thread fills prefetch while the step computes.](../docs/figures/input.svg)
#
# In `tf.data` a *dataset* is a recipe, and an *iterator* produces its elements. Here each `session.run`
# that needs the iterator's tensors takes the next mini-batch.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, show

course.begin()
x, y, x_test, y_test = course.load()

# %% [markdown]
# The folded cell writes the digits into ten *TFRecord* files, TensorFlow's format: a record for each
# row, which is an example with its label. Each file holds one class.

# %% jupyter={"source_hidden": true}
files = ["digits-%d.tfrecord" % i for i in range(10)]


def record(features, label):
    """Returns one row as the bytes of a tf.train.Example."""
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=features)),
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )


for digit, file in enumerate(files):
    with tf.io.TFRecordWriter(file) as writer:
        for row in np.flatnonzero(y == digit):
            writer.write(record(x[row], y[row]))


def elements(dataset_of):
    """Returns all elements of a dataset, as a list; dataset_of() makes it, in a new graph."""
    found = []
    with tf.Graph().as_default(), tf.Session() as session:
        following = tf.data.make_one_shot_iterator(dataset_of()).get_next()
        try:
            while True:
                found.append(session.run(following))
        except tf.errors.OutOfRangeError:  # the end of the data
            return found


counts = [len(elements(lambda file=file: tf.data.TFRecordDataset(file))) for file in files]
print("rows in the ten files:", counts, "in all", sum(counts))

# %% [markdown]
# ## Who reads which rows?
# `dataset.shard(n, k)` keeps the elements k, k + n, k + 2n, … for worker k of n. It can stand before
# `shuffle` or after it:


# %%
def shard_first(k):
    return tf.data.Dataset.range(len(x)).shard(2, k).shuffle(len(x), seed=k)


def shuffle_first(k):
    return tf.data.Dataset.range(len(x)).shuffle(len(x), seed=k).shard(2, k)


# %% [markdown]
# **Predict:** two workers read one epoch of the numbers 0 to 1,436, each with its own seed. How many
# different numbers do the two see together in each case: all, three quarters, or half of them?

# %% tags=["predicted"]
for pipeline in shard_first, shuffle_first:
    seen = [set(elements(lambda k=k: pipeline(k))) for k in (0, 1)]
    print(
        "%-13s: %d and %d numbers, %d different ones, %d seen by both"
        % (pipeline.__name__, *map(len, seen), len(seen[0] | seen[1]), len(seen[0] & seen[1]))
    )

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# shard_first  : 719 and 718 numbers, 1437 different ones, 0 seen by both
# shuffle_first: 719 and 718 numbers, 1079 different ones, 358 seen by both
# ```
#
# With `shuffle` first, each worker takes half of *its own* random order, so both miss a number with a
# chance of 1/2 · 1/2. An epoch lacks a quarter of the data, and another quarter counts twice.
#
# </details>
#
# You can apply `shard` to the names of the files or to the rows:
#
# | | by file | by row |
# | --- | --- | --- |
# | a worker reads | its own files | all files; it drops the rows of others |
# | equal parts | if the files are equal, and n divides their number | up to one row |
# | sorted files | each worker sees only some classes | no harm |
#
# Or mix the rows before you write the files; then `shard` by file does no harm.


# %%
def parse(serialized):
    """Returns x [rows, 64] and y [rows] of a batch of records."""
    stored = {
        "x": tf.io.FixedLenFeature([64], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
    }
    rows = tf.io.parse_example(serialized, stored)
    return rows["x"], tf.cast(rows["y"], tf.int32)


def by_file(k, n):
    return tf.data.TFRecordDataset(tf.data.Dataset.from_tensor_slices(files).shard(n, k))


def by_row(k, n):
    return tf.data.TFRecordDataset(files).shard(n, k)


for pipeline in by_file, by_row:
    for k in range(3):
        ((_, labels),) = elements(lambda k=k: pipeline(k, n=3).batch(len(x)).map(parse))
        classes = sorted(set(labels.tolist()))
        print("%-7s worker %d: %3d rows, classes %s" % (pipeline.__name__, k, len(labels), classes))

# %% [markdown]
# By file, worker 0 has a third more rows than the others. If each worker reads one epoch, the others
# end first, and in synchronous training worker 0 waits for their gradients for ever. Therefore repeat
# the data, and count steps instead of epochs.
#
# ## One worker's classes only
# The folded `train` makes synchronous updates with a mini-batch from each of the pipelines.


# %%
def batches(rows, buffer=1437):
    return rows.cache().shuffle(buffer, seed=0).repeat().batch(32).map(parse).prefetch(2)


# %% jupyter={"source_hidden": true}
def train(*pipelines, updates=300):
    """Returns the accuracy, that for each digit, and the labels of the first worker's batches."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = course.variables()
        inputs = [
            tf.data.make_one_shot_iterator(batches_of()).get_next() for batches_of in pipelines
        ]
        loss = sum(course.loss(w, *batch) for batch in inputs) / len(inputs)
        update = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
        session.run(tf.global_variables_initializer())
        labels = [session.run([inputs[0][1], update])[0] for _ in range(updates)]
        tests = [(x_test[y_test == digit], y_test[y_test == digit]) for digit in range(10)]
        each = session.run([course.accuracy(w, *test) for test in tests])
        return session.run(course.accuracy(w, x_test, y_test)), each, labels


# %% [markdown]
# Worker k should read shard k. If a program reads k from an environment variable that nobody has set,
# and takes 0 instead, every worker reads shard 0.
#
# **Predict:** two workers train together, with shards by file. In the first run both read shard 0, in
# the second each reads its own. What percentage of the test digits does each model recognise?

# %% tags=["predicted"]
shards = {"both read shard 0": (0, 0), "each reads its own": (0, 1)}
results = {
    name: train(*[lambda k=k: batches(by_file(k, n=2)) for k in indices])
    for name, indices in shards.items()
}
for name, (accuracy, _, _) in results.items():
    print("%-19s %.0f%%" % (name + ":", 100 * accuracy))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# both read shard 0:  51%
# each reads its own: 97%
# ```
#
# Shard 0 by file has the even digits. The first model has never seen an odd one, so it recognises none.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
shared, own = (each for _, each, _ in results.values())
assert max(shared[1::2]) == 0 and min(shared[::2]) > 0.8 and min(own) > 0.7

# %% [markdown]
# To find this mistake, let each worker print a checksum of its rows: no two may be equal.

# %%
import zlib

for name, indices in shards.items():
    for k in indices:
        rows = elements(lambda: by_file(k, n=2))
        print("%-19s %d rows, checksum %08x" % (name + ":", len(rows), zlib.crc32(b"".join(rows))))

# %% [markdown]
# ## How large must the shuffle buffer be?
# `shuffle(buffer_size)` takes random elements from a buffer, so it mixes rows only as far as the
# buffer reaches. One process now reads the ten sorted files one after the other, once with each buffer:

# %%
shown = {}
for buffer in 1, 100, 500, len(x):
    accuracy, _, labels = train(lambda: batches(tf.data.TFRecordDataset(files), buffer))
    shown[buffer] = labels[:45]  # as many batches as an epoch has
    classes = np.mean([len(set(batch)) for batch in labels])
    print("buffer %4d: %2.0f%%, %.1f classes in a batch" % (buffer, 100 * accuracy, classes))

# %% jupyter={"source_hidden": true}
figure, panels = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True)
for panel, (buffer, seen) in zip(panels, shown.items()):
    where = np.concatenate([np.full(len(labels), number) for number, labels in enumerate(seen)])
    panel.scatter(where, np.concatenate(seen), s=3, color=BLUE, alpha=0.3, linewidths=0)
    panel.set(title="buffer %d" % buffer, xlabel="batch", yticks=range(10))
    panel.grid(False)
panels[0].set(ylabel="labels in the batch")
show(
    figure,
    "The labels of the 45 batches of one epoch. With a buffer of 1 a batch holds one or two "
    "classes, in order. With 100 a narrow band climbs, with 500 a wide one, with 1,437 every batch "
    "holds nearly all classes.",
)

# %% [markdown]
# With a small buffer the network learns one digit and forgets it for the next. (One seed each: 94 against
# 96% may be chance.) Only a buffer of all rows, with `shuffle` before `repeat`, gives a true shuffle of
# each epoch. If memory does not hold them, shuffle the file names, and take one row from each of ten
# files in turn:
# `file_names.shuffle(10).interleave(tf.data.TFRecordDataset, cycle_length=10)`.
#
# ## Hide slow reads
# We imitate a store that takes 20 ms for a mini-batch, and a step that takes 8 ms on an accelerator.
# Both only wait, so they do not compete for this machine's cores.
#
# - Without `prefetch`, reading and the step alternate.
# - With `prefetch(2)` a thread reads the next mini-batches meanwhile.
# - With `num_parallel_calls=4` four reads are under way at once. (With `tf.data.AUTOTUNE` TensorFlow
#   chooses the number while the pipeline runs.)
#
# We switch off TensorFlow's own optimisations, to see each part alone.

# %% jupyter={"source_hidden": true}
import time


def wait(number, seconds):
    """Returns the number after some seconds, as a store or an accelerator would."""
    waited = tf.numpy_function(lambda n: (time.sleep(seconds), n)[1], [number], tf.int64)
    return tf.ensure_shape(waited, [])


def from_the_store(parallel, prefetch):
    numbers = tf.data.Dataset.range(10**6)
    numbers = numbers.map(lambda n: wait(n, 0.020), num_parallel_calls=parallel)
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return (
        numbers.prefetch(prefetch).with_options(options)
        if prefetch
        else numbers.with_options(options)
    )


def milliseconds_per_update(parallel, prefetch, updates=40):
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = from_the_store(parallel, prefetch)
        step = wait(tf.data.make_one_shot_iterator(dataset).get_next(), 0.008)
        for _ in range(5):
            session.run(step)
        began = time.perf_counter()
        for _ in range(updates):
            session.run(step)
        return 1000 * (time.perf_counter() - began) / updates


# %% tags=["measured"]
for parallel, prefetch in (None, 0), (None, 2), (4, 2):
    print(
        "parallel reads: %d, prefetch(%d): %4.1f ms per update"
        % (parallel or 1, prefetch, milliseconds_per_update(parallel, prefetch))
    )

# %% [markdown]
# 20 + 8 = 28 ms; max(20, 8) = 20 ms; and max(20/4, 8) = 8 ms, because now the step is the slower part.
# The rest is overhead. You gain less if reads also compute, as parsing does, and no core is free.
#
# Put `batch` before `map(parse)`, so that one `parse_example` takes 32 records. Where all data fit into
# memory, you need no pipeline: `course.batch` draws the rows inside the graph, by the number of the
# step, so you can repeat every mini-batch.
#
# In a cluster build the pipeline under `/job:worker/task:k`: under `/job:ps` each mini-batch would cross
# the network.

# %% [markdown]
# ## Exercises
# **1. On paper.** ★☆☆ A store answers after 30 ms with one mini-batch, parsing it takes 6 ms, and a step
# on the accelerator 8 ms. The machine has 16 cores. How many milliseconds does an update take (a) without
# `prefetch`, (b) with `prefetch(2)`, (c) when `map(read_and_parse, num_parallel_calls=4)` stands before
# it? (d) Which number should AUTOTUNE choose, the smallest with which the step never waits?
#
# <details><summary>Hint</summary>
#
# One call of `read_and_parse` takes 36 ms; of two under way, one ends every 18 ms.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.size(answer) != 4:
        return "give four numbers: (a), (b), (c), (d)"
    a, b, c, d = answer
    if a != 44:
        return "(a): reading, parsing and the step follow each other, so all three times count"
    if b == 30:
        return "(b): one thread reads and then parses, so the pipeline takes both times"
    if b != 36:
        return "(b): the pipeline and the step run side by side, so the longer one counts"
    if c == 8:
        return "(c): are four calls really faster than the step?"
    if c != 9:
        return "(c): compare a quarter of the pipeline's time with the step"
    if d == 4:
        return "(d): with 4 calls a mini-batch comes every 9 ms, and the step takes 8"
    if d != 5:
        return "(d): it is the smallest whole number m with 36/m <= 8"


# %%
# Your answer to exercise 1: milliseconds (a), (b), (c), and the number of calls (d)
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = 30 + 6 + 8, max(36, 8), max(36 / 4, 8), 5
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. Another part in each epoch.** ★★☆ With `shard` first, a worker sees the same rows in all epochs.
# Return three epochs of worker k of n, so that in each the workers divide the 100 `rows` anew, at random,
# none missing and none twice. Reading is slow: a worker may read a row only once. n divides 100.
#
# <details><summary>Hint</summary>
#
# You need `cache`, `shuffle`, `shard` and `repeat`. `cache` gives again what reached it in the first epoch.
# The workers cannot talk to each other: what must be the same in all of them?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    for n in 2, 4:
        parts = []  # of each worker: its three epochs
        for k in range(n):
            reads = []

            def slow(row):
                read = tf.numpy_function(lambda r: (reads.append(r), r)[1], [row], tf.int64)
                return tf.ensure_shape(read, [])

            def three_epochs():
                return answer(tf.data.Dataset.range(700, 800).map(slow), k, n).take(301)

            seen = [int(row) for row in elements(three_epochs)]
            if len(seen) != 300 // n:
                return "three epochs of worker %d of %d have %d rows, and you have %s" % (
                    *(k, n, 300 // n),
                    len(seen) if len(seen) < 301 else "more",
                )
            if len(reads) > 100:
                return "%d rows were read: what is read again in the second epoch?" % len(reads)
            if not reads:
                return "nothing was read: use `rows`"
            parts.append(np.split(np.array(seen), 3))
        for epoch in zip(*parts):
            twice = 100 - len(set(np.concatenate(epoch)))
            if not set(np.concatenate(epoch)) <= set(range(700, 800)):
                return "there are numbers that are not in `rows`"
            if twice:
                return "of %d workers two get the same row in an epoch, %d times" % (n, twice)
        for k, (first, second, third) in enumerate(parts):
            if {*first} == {*second} or {*second} == {*third}:
                return "worker %d gets the same rows in two epochs" % k
            for epoch in first, second, third:
                if np.abs(np.sort(epoch) - epoch).mean() < 15:
                    return "the rows are hardly mixed: with which buffer does `shuffle` reach all?"
            if not 0 < len({*first} & {*second}) + len({*second} & {*third}) < 1.6 * 100 / n:
                return "the parts of worker %d in two epochs depend on each other" % k


# %%
# Your answer to exercise 2
def answer_2(rows, k, n):
    """Returns a dataset: the part of worker k of n in each of three epochs."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(rows, k, n):
#     return rows.cache().shuffle(100, seed=0).shard(n, k).repeat(3)
#
# assert check_2(answer_2)
# ```
#
# With one seed all workers shuffle alike, so here `shard` after `shuffle` loses nothing; PyTorch's
# `DistributedSampler` does the same. `shuffle` takes a new order in each epoch, also with a seed. What is
# slow and always the same comes before `cache`, what differs from epoch to epoch after it: so each worker
# stores all rows, the price of this way.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Murray et al. 2021, [tf.data: A Machine Learning Data Processing
#   Framework](https://arxiv.org/abs/2101.12127).
# - TensorFlow's guide [Better performance with the tf.data
#   API](https://www.tensorflow.org/guide/data_performance).
# - [Operations/Train-and-Evaluate](../Operations/Train-and-Evaluate/) reads files in a cluster.
#
# **Elsewhere:** in PyTorch this is `DataLoader(num_workers=…, prefetch_factor=…)` with a
# `DistributedSampler`, whose `set_epoch` gives each epoch its own order; in `tf.distribute` the
# `AutoShardPolicy` (by row: `DATA`); in JAX the library Grain.
#
# Next: [TF2-Strategies](TF2-Strategies.ipynb).
