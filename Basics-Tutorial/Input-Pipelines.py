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
# A worker that waits for data learns nothing. In a cluster there is a second question: who reads
# which rows? A wrong answer raises no error. The model just gets worse, or a worker stops too early.
#
# After this notebook you can:
# - give each worker its part of the data, by file or by row, and prove that no row is lost;
# - say why the order of `shard`, `shuffle`, `repeat` and `batch` matters;
# - tell a good shuffle buffer from one that is too small;
# - hide the time of slow reads by `prefetch` and parallel calls, and measure it;
# - choose between `feed_dict`, queues, `tf.data` and rows drawn inside the graph.
#
# **Before it:** [Multiple-Workers](Multiple-Workers.ipynb), [Sessions](Sessions.ipynb).
# **Time:** 65 minutes.

# %% [markdown]
# ## From files to a step
# ![Ten files. Worker 0 reads the files 0, 2, 4, 6 and 8, worker 1 the others. In each worker the rows pass through shuffle, repeat, batch and prefetch, and the training step takes a batch. A thread fills prefetch while the step computes.](../docs/figures/input.svg)
#
# `tf.data` describes such a pipeline: a *dataset* is a recipe, and an *iterator* produces its
# elements. In graph style an iterator gives tensors, `features, labels = iterator.get_next()`, and
# each `session.run` that needs them takes the next batch. No `feed_dict` is needed.

# %% jupyter={"source_hidden": true}
# region: set_up -- the same in each notebook: TensorFlow without messages, a folder, pictures
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same results on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import io
import tempfile
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from IPython.display import display

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()        # graphs and sessions: see Graphs-and-Sessions
tf.enable_resource_variables()  # a read is a copy of the value
tf.reset_default_graph()        # so that you can run all cells again

HERE = globals().get("HERE", os.getcwd())
folder = tempfile.TemporaryDirectory()  # what this notebook writes goes there
os.chdir(folder.name)

BLUE, ORANGE, PURPLE, GREEN, GRAY, RED = (
    "#0969da", "#bc4c00", "#8250df", "#1a7f37", "#818b98", "#cf222e")  # workers 0, 1, 2, ...
plt.rcParams.update({
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, PURPLE, GREEN, RED, GRAY]),
    "legend.frameon": False, "figure.figsize": (7, 3)})

def show(figure, description):
    """Shows a figure at 150 dpi, with a description for those who cannot see it."""
    stored = io.BytesIO()
    figure.savefig(stored, format="png", dpi=150, bbox_inches="tight")
    plt.close(figure)
    size = {"width": round(100 * figure.get_figwidth()), "alt": description}
    display({"image/png": stored.getvalue(), "text/plain": description}, raw=True,
            metadata={"image/png": size})
# endregion: set_up

# %% jupyter={"source_hidden": true}
# region: cluster -- the same in each notebook: free ports, and processes that end with this one
import json
import pathlib
import socket
import subprocess
import sys

held = []  # sockets that keep the ports of our clusters until the kernel ends

def new_cluster(**counts):
    """{job: addresses} at free ports: new_cluster(ps=1, worker=2)."""
    cluster = {}
    for job, count in counts.items():
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", 0))
        cluster[job] = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
        held.extend(sockets)
    return cluster

RUN = """if True:
    import os, runpy, sys, threading
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")"""

def start(file, cluster, job, index=0, *arguments):
    """Starts a Python file as a task of a cluster, which TF_CONFIG names.

    The process ends with its standard input: by stop(), or when the kernel ends, however that
    happens. What it prints goes to the file job-index.log.
    """
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    with open("%s-%d.log" % (job, index), "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", RUN, file, *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=log, stderr=log, env={**os.environ, "TF_CONFIG": json.dumps(config)})
    process.log = pathlib.Path(log.name).absolute()
    return process

def finish(process, seconds=60):
    """Waits until a process has ended, and returns what it printed."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = "none after %d s" % seconds
    printed = process.log.read_text()
    assert code == 0, "%s: exit code %s\n%s" % (process.log.stem, code, printed[-2000:])
    return printed

def stop(*processes):
    """Ends processes that still run."""
    for process in processes:
        process.stdin.close()
        process.wait(10)
# endregion: cluster

# %% jupyter={"source_hidden": true}
# %%writefile digits.py
# region: digits -- the same in each notebook: handwritten digits, and a network 64 - 32 - 10
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

def load():
    """1,437 rows for training and 360 for the test: x [rows, 64] from 0 to 1, y [rows]; twice."""
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order].astype("int32")
    return x[:-360], y[:-360], x[-360:], y[-360:]

def first_values(seed=0):
    """Where training begins: the weights and biases of two layers, 2,410 numbers in all."""
    random = np.random.RandomState(seed)
    layers = [random.normal(0, (2 / 64) ** 0.5, [64, 32]), np.zeros(32),
              random.normal(0, (2 / 32) ** 0.5, [32, 10]), np.zeros(10)]
    return [layer.astype("float32") for layer in layers]

def variables(name="w", seed=0, get_variable=tf.get_variable):
    """The four variables name_0 to name_3."""
    return [get_variable("%s_%d" % (name, i), initializer=value)
            for i, value in enumerate(first_values(seed))]

def outputs(w, x):
    """A score for each of the ten digits: [rows, 10]."""
    return tf.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]

def loss(w, x, y):
    """The mean cross-entropy of these rows."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs(w, x)))

def accuracy(w, x, y):
    """The share of rows whose digit has the highest score."""
    right = tf.equal(tf.argmax(outputs(w, x), 1, output_type=tf.int32), y)
    return tf.reduce_mean(tf.cast(right, tf.float32))

def batch(x, y, number, worker=0, size=32):
    """Mini-batch `number` of a worker: rows drawn by (worker, number), the same in each run."""
    rows = tf.random.stateless_uniform(
        [size], tf.stack([tf.cast(worker, tf.int64), tf.cast(number, tf.int64)]),
        0, len(x), tf.int32)
    return tf.gather(x, rows), tf.gather(y, rows)
# endregion: digits

# %% [markdown]
# Real data lie in many files. We write the digits into ten *TFRecord* files, TensorFlow's format
# for a sequence of records. As often in practice, they are sorted: each file holds one class.

# %%
import digits

x, y, x_test, y_test = digits.load()
files = ["digits-%d.tfrecord" % i for i in range(10)]

def record(features, label):
    """One row as the bytes of a tf.train.Example."""
    return tf.train.Example(features=tf.train.Features(feature={
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=features)),
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))})).SerializeToString()

for digit, file in enumerate(files):
    with tf.io.TFRecordWriter(file) as writer:
        for row in np.flatnonzero(y == digit):
            writer.write(record(x[row], y[row]))

def elements(dataset_of):
    """All elements of a dataset, as a list; dataset_of() makes it, in a graph of its own."""
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
# `dataset.shard(n, k)` keeps the elements k, k + n, k + 2n, ... for worker k of n. Applied to file
# names it shards by file, applied to rows by row.
#
# **Predict:** two workers read one epoch of the numbers 0 to 1,436. Each uses its own seed for
# `shuffle`. First case: `shard`, then `shuffle`. Second case: `shuffle`, then `shard`. How many
# different rows do the two see together?

# %%
def shard_first(k):
    return tf.data.Dataset.range(len(x)).shard(2, k).shuffle(len(x), seed=k)

def shuffle_first(k):
    return tf.data.Dataset.range(len(x)).shuffle(len(x), seed=k).shard(2, k)

for pipeline in shard_first, shuffle_first:
    seen = [set(elements(lambda k=k: pipeline(k))) for k in (0, 1)]
    print("%-13s: %d and %d rows, %d different ones, %d seen by both" % (
        pipeline.__name__, len(seen[0]), len(seen[1]), len(seen[0] | seen[1]),
        len(seen[0] & seen[1])))

# %% [markdown]
# <details><summary>Answer</summary>
#
# All 1,437, and about three quarters of them. With `shuffle` first, each worker takes half of *its
# own* random order: a row is missed by both with a chance of 1/2 x 1/2. A quarter of the data is
# lost in each epoch, and another quarter counts twice. `shard` comes first. If you shard the
# names of files, the worker also reads only what it keeps.
#
# </details>
#
# By file or by row?
#
# | | by file | by row |
# | --- | --- | --- |
# | what a worker reads | its files only | all files; it throws away what is not its own |
# | needs | many more files than workers | nothing |
# | equal parts | only if files are equal and n divides their number | up to one row |
# | sorted files | each worker sees other classes | no harm |
#
# **Predict:** three workers share our ten sorted files. How many rows has each, and how many of the
# ten classes does worker 0 see? In a synchronous step with a barrier, what happens when the worker
# with the fewest rows has finished its epoch?

# %%
def parse(serialized):
    """(x [64], y) of one record."""
    row = tf.io.parse_single_example(serialized, {
        "x": tf.io.FixedLenFeature([64], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)})
    return row["x"], tf.cast(row["y"], tf.int32)

def by_file(k, n=3):
    return tf.data.TFRecordDataset(
        tf.data.Dataset.from_tensor_slices(files).shard(n, k)).map(parse)

def by_row(k, n=3):
    return tf.data.TFRecordDataset(files).shard(n, k).map(parse)

for pipeline in by_file, by_row:
    for k in range(3):
        labels = [label for _, label in elements(lambda k=k: pipeline(k))]
        print("%-7s worker %d: %3d rows, classes %s" % (
            pipeline.__name__, k, len(labels), sorted(map(int, set(labels)))))

# %% [markdown]
# <details><summary>Answer</summary>
#
# By file worker 0 gets four files, the others three: about a third more rows. Each worker sees only
# its own classes. Workers 1 and 2 reach the end of their data first, and `OutOfRangeError` ends them.
# From then on worker 0 waits at the barrier for gradients that never come. So put `repeat()` into
# each worker's pipeline, and count steps, not epochs. Mix the rows before you write the files.
#
# </details>
#
# ## How large must the shuffle buffer be?
# `shuffle(buffer_size)` fills a buffer and takes a random element of it, again and again. It can
# mix rows only as far as the buffer reaches.
#
# **Predict:** we train the network for 300 updates on the ten sorted files, read one after the
# other. Which accuracy do you expect with buffers of 1, 100, 500 and 1,437 rows?

# %%
def sorted_files(buffer):
    rows = tf.data.TFRecordDataset(files).map(parse).cache()
    rows = rows.repeat() if buffer == 1 else rows.repeat().shuffle(buffer, seed=0)
    return rows.batch(32).prefetch(2)

def accuracy_of(dataset_of, updates=300):
    """(The test accuracy after so many updates, the labels of each batch.)"""
    with tf.Graph().as_default(), tf.Session() as session:
        w = digits.variables()
        features, labels = tf.data.make_one_shot_iterator(dataset_of()).get_next()
        g = tf.gradients(digits.loss(w, features, labels), w)
        with tf.control_dependencies(g):
            update = tf.group(*[v.assign_sub(0.2 * d) for v, d in zip(w, g)])
        session.run(tf.global_variables_initializer())
        seen = [session.run([labels, update])[0] for _ in range(updates)]
        return session.run(digits.accuracy(w, x_test, y_test)), seen

buffers, shown = [1, 100, 500, 1437], []
for buffer in buffers:
    accuracy, seen = accuracy_of(lambda: sorted_files(buffer))
    shown.append(seen[:45])  # as many batches as an epoch has
    classes = np.mean([len(set(labels)) for labels in seen])
    print("buffer %4d: %2.0f%%, %.1f classes in a batch" % (buffer, 100 * accuracy, classes))

# %% jupyter={"source_hidden": true}
figure, panels = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True)
for panel, buffer, seen in zip(panels, buffers, shown):
    where = np.concatenate([np.full(len(labels), number) for number, labels in enumerate(seen)])
    panel.scatter(where, np.concatenate(seen), s=3, color=BLUE, alpha=0.3, linewidths=0)
    panel.set(title="buffer %d" % buffer, xlabel="batch", yticks=range(10))
    panel.grid(False)
panels[0].set(ylabel="labels in the batch")
show(figure, "The labels of the first 45 batches. With a buffer of 1 a batch holds one or two "
     "classes, in order. With 100 a narrow band climbs, with 500 a wide one, with 1,437 every batch "
     "holds all classes.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# With a small buffer the network learns one digit, then forgets it for the next. Even 100 rows, three
# batches, are far too few; 500 of 1,437 help. A buffer of all rows mixes best, though epochs overlap,
# because `repeat` comes first (exercise 2). If your data do not fit into memory, shuffle the file
# names too, and read several files at once:
# `tf.data.Dataset.from_tensor_slices(files).shuffle(10).interleave(tf.data.TFRecordDataset,
# cycle_length=10)`.
#
# </details>
#
# ## Order and determinism
# With a seed, the same pipeline gives the same order in each run. Two details decide what
# "the same" means:
# - by default `shuffle` draws a new order in each epoch (`reshuffle_each_iteration`);
# - parallel calls may return elements in the order in which they finish. `tf.data` restores the
#   order, unless you allow otherwise with `deterministic=False`, which is faster.

# %%
def order(reshuffle, seed=7):
    return tf.data.Dataset.range(6).shuffle(
        6, seed=seed, reshuffle_each_iteration=reshuffle).repeat(2)

for reshuffle in True, False:
    first, again = (np.array(elements(lambda: order(reshuffle))) for _ in range(2))
    print("reshuffle %-5s: epoch 1 %s, epoch 2 %s; the next run is equal: %s" % (
        reshuffle, first[:6], first[6:], np.array_equal(first, again)))

# %% [markdown]
# ## Hide slow reads
# A read from a disk or a network store takes time in which the processor has nothing to do. We
# imitate a store that needs 10 ms for each batch. A step with 6,000 rows computes for less than
# half as long.
#
# - Without `prefetch` read and step alternate: the times add up. (Today tf.data
#   prefetches by itself, and runs stateless maps in parallel. We switch that off.)
# - `prefetch(2)` lets a thread read the next batch meanwhile: the longer of the two counts.
# - `num_parallel_calls=4` has four reads under way. They could give a batch every 2.5 ms; on two
#   cores the reads also wait for the step.
#
# The rates below are measured on this machine, side by side, as the median of three rounds.

# %% tags=["measured"]
import time

def slow_read(number):
    time.sleep(0.010)  # the store answers
    return np.int64(number)

def from_the_store(parallel=None, prefetch=0, wait=True):
    numbers = tf.data.Dataset.range(10**6)
    if wait:
        numbers = numbers.map(lambda number: tf.ensure_shape(
            tf.numpy_function(slow_read, [number], tf.int64), []), num_parallel_calls=parallel)
    batches = numbers.map(lambda number: digits.batch(x, y, number, size=6000))
    options = tf.data.Options()  # by default tf.data would change our pipeline to a faster one
    options.experimental_optimization.apply_default_optimizations = False
    return (batches.prefetch(prefetch) if prefetch else batches).with_options(options)

def updates_per_second(dataset_of, updates=25):
    with tf.Graph().as_default(), tf.Session() as session:
        w = digits.variables()
        g = tf.gradients(digits.loss(w, *tf.data.make_one_shot_iterator(dataset_of()).get_next()), w)
        with tf.control_dependencies(g):
            update = tf.group(*[v.assign_sub(0.2 * d) for v, d in zip(w, g)])
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            session.run(update)
        begin = time.perf_counter()
        for _ in range(updates):
            session.run(update)
        return updates / (time.perf_counter() - begin)

cases = {"no wait at all": dict(wait=False), "read, then step": dict(),
         "prefetch(2)": dict(prefetch=2), "prefetch(2), 4 parallel reads": dict(parallel=4, prefetch=2)}
rates = {name: [] for name in cases}
for _ in range(3):
    for name, case in cases.items():
        rates[name].append(updates_per_second(lambda: from_the_store(**case)))
for name, measured in rates.items():
    print("%-30s %4.0f updates/s, %4.1f times the plain pipeline" % (
        name, np.median(measured), np.median(np.array(measured) / rates["read, then step"])))

# %% [markdown]
# ## Four ways to feed a step
# With a step as small as that of the digits, 32 rows, you see the overhead of each way:
# - **feed_dict**: Python prepares the batch while TensorFlow waits, and copies it in;
# - **queues**: `tf.train.shuffle_batch`, the way of TensorFlow's first releases: threads
#   (`QueueRunner`s, under a `Coordinator`) fill a queue row by row. Old code has it; write no new one;
# - **tf.data** from memory, and from files: `map(parse)` row by row, or `batch` first and
#   `parse_example` for 32 rows at once;
# - **inside the graph**: `digits.batch` draws the rows by the number of the step. That works only for
#   data that fit into memory, and it makes each batch repeatable: the examples do it.
#
# **Predict:** which of them is the fastest, which the slowest? What does `batch` before `parse` buy?

# %% tags=["measured"]
random = np.random.RandomState(0)

def fed():
    tensors = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])

    def feed():
        rows = random.randint(0, len(x), 32)
        return {tensors[0]: x[rows], tensors[1]: y[rows]}
    return tensors, feed

def queued():
    row = tf.train.slice_input_producer([tf.constant(x), tf.constant(y)], seed=0)
    return tf.train.shuffle_batch(row, 32, 1437, 1000, seed=0), dict

def from_dataset(dataset):
    return tf.data.make_one_shot_iterator(dataset.prefetch(2)).get_next(), dict

def from_memory():
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    return from_dataset(rows.shuffle(len(x), seed=0).repeat().batch(32))

def records():
    return tf.data.TFRecordDataset(files).shuffle(len(x), seed=0).repeat()

def parsed_by_row():
    return from_dataset(records().map(parse).batch(32))

def parsed_by_batch():
    def parse_batch(serialized):
        rows = tf.io.parse_example(serialized, {
            "x": tf.io.FixedLenFeature([64], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)})
        return rows["x"], tf.cast(rows["y"], tf.int32)
    return from_dataset(records().batch(32).map(parse_batch))

def in_the_graph():
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
    return digits.batch(x, y, step.assign_add(1)), dict

def rate(input_of, updates=200):
    with tf.Graph().as_default(), tf.Session() as session:
        w = digits.variables()
        (features, labels), feed = input_of()
        g = tf.gradients(digits.loss(w, features, labels), w)
        with tf.control_dependencies(g):
            update = tf.group(*[v.assign_sub(0.2 * d) for v, d in zip(w, g)])
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        for _ in range(20):
            session.run(update, feed())
        begin = time.perf_counter()
        for _ in range(updates):
            session.run(update, feed())
        seconds = time.perf_counter() - begin
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=5)
        return updates / seconds

ways = {"feed_dict": fed, "queues": queued, "tf.data, memory": from_memory,
        "tf.data, files, parse by row": parsed_by_row,
        "tf.data, files, parse by batch": parsed_by_batch, "inside the graph": in_the_graph}
measured = {name: [] for name in ways}
for _ in range(3):
    for name, way in ways.items():
        measured[name].append(rate(way))

figure, axes = plt.subplots(figsize=(7, 2.6))
for place, (name, rates_of) in enumerate(measured.items()):
    ratios = np.array(rates_of) / measured["feed_dict"]
    axes.barh(place, np.median(ratios), color=[BLUE, GRAY, ORANGE, ORANGE, ORANGE, GREEN][place])
    axes.plot([ratios.min(), ratios.max()], [place, place], color="black", linewidth=1)
axes.set(yticks=range(len(ways)), yticklabels=ways, xlabel="updates per second, times feed_dict's")
axes.invert_yaxis()
show(figure, "Updates per second of the six ways, as multiples of feed_dict's: the median of three "
     "rounds, and their range. Rows drawn inside the graph are the fastest. Queues and parse by row are the slowest.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Fastest: inside the graph. No thread hands over a batch, and Python passes no data. Slowest: what
# treats each row by itself, the queues and `parse` by row. One `parse_example` for 32 rows costs little
# more than one for a single row. `feed_dict` does well here, because the batch is tiny and ready in
# memory. It cannot overlap reading with computing, and that is why real pipelines use `tf.data`.
#
# </details>
#
# Behind a parameter server the differences shrink: a pull and a push take longer than all of this.
#
# ## In the cluster
# The pipeline belongs to the worker: build it under `tf.device("/job:worker/task:k")`. Built in a
# block of the ps, `tf.device("/job:ps/task:0")`, it would run there, and each batch would cross the
# network. Here two real workers read their own rows and train one model, asynchronously.

# %%
# %%writefile worker.py
import json
import os
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.enable_resource_variables()
import digits

config = json.loads(os.environ["TF_CONFIG"])
k, n = config["task"]["index"], len(config["cluster"]["worker"])
me = "/job:worker/task:%d" % k
server = tf.train.Server(config["cluster"], job_name="worker", task_index=k)

def parse(serialized):
    rows = tf.io.parse_example(serialized, {
        "x": tf.io.FixedLenFeature([64], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)})
    return rows["x"], tf.cast(rows["y"], tf.int32)

with tf.device(me):
    rows = tf.data.TFRecordDataset(["digits-%d.tfrecord" % i for i in range(10)]).shard(n, k)
    batches = rows.cache().shuffle(1000, seed=k).repeat().batch(32).map(parse).prefetch(2)
    features, labels = tf.data.make_one_shot_iterator(batches).get_next()
with tf.device("/job:ps/task:0"):
    w = digits.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
    push = step.assign_add(1, read_value=False)
with tf.device(me):
    g = tf.gradients(digits.loss([v.read_value() for v in w], features, labels), w)
update = tf.group(push, *[v.assign_sub(0.1 * d) for v, d in zip(w, g)])
uninitialised = tf.report_uninitialized_variables()

filters = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=30_000)
with tf.Session(server.target, config=filters) as session:
    if k == 0:
        session.run(tf.global_variables_initializer())
    tf.train.SessionManager(ready_op=uninitialised, recovery_wait_secs=0.2).wait_for_session(
        server.target, filters, max_wait_secs=30)
    seen = set()
    for _ in range(300):
        batch, _ = session.run([features, update])
        seen |= {row.tobytes() for row in batch}
print("worker %d has seen %d different rows" % (k, len(seen)))

# %%
cluster = new_cluster(ps=1, worker=2)
workers = [start("worker.py", cluster, "worker", k) for k in (0, 1)]
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
for worker in workers:
    print(finish(worker).splitlines()[-1])

tf.reset_default_graph()
with tf.device("/job:ps/task:0"):
    w = digits.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
only_ps = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=10_000)
with tf.Session(ps.target, config=only_ps) as session:
    print("pushes:", session.run(step))
    result = session.run(digits.accuracy(w, x_test, y_test))
assert result > 0.9
print("the shared model is right in more than 90%% of the test rows: %s" % bool(result > 0.9))

# %% [markdown]
# We shard by row here, because our files are sorted. By file, each worker would push towards its own
# five classes, and the last to push would win: exercise 3 shows what such a worker alone learns.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Nothing lost.** ★☆☆ Show that `by_row` with three workers gives each row of the files exactly
# once.
#
# <details><summary>Hint</summary>
#
# Compare the sorted bytes of the features of all workers' rows with those of `x`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# rows = [features.tobytes() for k in range(3)
#         for features, _ in elements(lambda k=k: by_row(k))]
# assert sorted(rows) == sorted(row.tobytes() for row in x)
# ```
#
# </details>

# %% [markdown]
# **2. Repeat, then shuffle.** ★★☆ What changes if `repeat()` comes before `shuffle`? Count for one
# epoch of 100 numbers how many different ones are among the first 100 elements, in both orders.
#
# <details><summary>Hint</summary>
#
# `tf.data.Dataset.range(100).repeat().shuffle(100, seed=0).take(100)`, and the other way round.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# numbers = tf.data.Dataset.range
# after = elements(lambda: numbers(100).shuffle(100, seed=0).repeat().take(100))
# before = elements(lambda: numbers(100).repeat().shuffle(100, seed=0).take(100))
# assert len(set(after)) == 100  # an epoch is an epoch
# assert len(set(before)) < 100  # rows of the next epoch come early, and some of this one late
# ```
#
# </details>

# %% [markdown]
# **3. Half of the classes.** ★★☆ Train one worker alone on its five sorted files for 600 updates.
# Which accuracy can it reach on all test rows, and why?
#
# <details><summary>Hint</summary>
#
# `accuracy_of` with `by_file(0, n=2)`, shuffled, repeated and batched. How many test rows have a
# label of these files?
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def alone():
#     return by_file(0, n=2).cache().shuffle(1000, seed=0).repeat().batch(32)
#
# accuracy, seen = accuracy_of(alone, updates=600)
# classes = set(np.concatenate(seen).tolist())
# possible = np.mean([label in classes for label in y_test])
# assert accuracy < possible + 1e-6  # it is never right about a class that it has not seen
# assert 0.4 < accuracy < 0.8
# ```
#
# </details>

# %%
# Stop what this notebook started.
stop(*workers)
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Murray et al. 2021, [tf.data: A Machine Learning Data Processing
#   Framework](https://arxiv.org/abs/2101.12127).
# - TensorFlow's guide [Better performance with the tf.data
#   API](https://www.tensorflow.org/guide/data_performance).
# - Meng et al. 2017, [Convergence Analysis of Distributed Stochastic Gradient Descent with
#   Shuffling](https://arxiv.org/abs/1709.10432): shuffling once, in each epoch, locally or globally.
# - [Operations/Train-and-Evaluate](../Operations/Train-and-Evaluate/) reads files in a cluster.
#
# Next: [Classic-Mistakes-Practice](Classic-Mistakes-Practice.ipynb).
