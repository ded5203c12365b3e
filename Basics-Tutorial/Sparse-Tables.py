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
# # Sparse tables
# A shop that stores 64 numbers about each of its 100 million users has a table of 26 GB. No step can
# afford to move it, but a mini-batch needs the rows of perhaps 1,000 users: 256 kB. For such tables
# parameter servers are still in use. Here you cut a table into parts on two servers, compute what
# an update of a few rows sends, and train a small recommender with two workers and one server.
#
# After this notebook you can:
# - cut a variable into parts that live on several servers;
# - look up rows of such a table, without the trap that returns the wrong ones;
# - compute the bytes of an update with sparse gradients;
# - train a small recommender with two workers, and compare them with one;
# - compute which share of the lookups a server answers.
#
# **Before it:** [Parameter-Server](Parameter-Server.ipynb). **Time:** 40 minutes.

# %% [markdown]
# ## A table in parts
# Keras holds such a table in an `Embedding` layer. Here each part of it is on a server of its own.
#
# ![A table of 1,000 word vectors in two blocks: rows 0 to 499 on ps 0, rows 500 to 999 on ps 1. A mini-batch with the words 3, 17 and 902 pulls only these three rows, and pushes gradients for only these.](../docs/figures/sparse-blocks.svg)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import json
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, RED, finish, new_cluster, show, start

course.begin()

# %% jupyter={"source_hidden": true}
cluster = new_cluster(ps=2, worker=1)
tasks = [("ps", 0), ("ps", 1), ("worker", 0)]
servers = {task: tf.train.Server(cluster, *task) for task in tasks}
limit = tf.ConfigProto(operation_timeout_in_ms=20_000)  # a call may take 20 s


def new_graph():
    """Returns a device scope for an empty graph: variables to the ps, the rest to worker 0."""
    tf.reset_default_graph()
    worker = "/job:worker/task:0"
    return tf.device(tf.train.replica_device_setter(ps_tasks=2, worker_device=worker))


# %% [markdown]
# A folded cell starts two ps and a worker. A *partitioner* cuts a variable along its rows into blocks,
# and `replica_device_setter` places each. In this table of 8 rows, each row contains its own number; we look up
# the rows 3 and 5 with `tf.nn.embedding_lookup(table, [3, 5])`, with `partition_strategy="div"` and
# without:


# %% jupyter={"source_hidden": true}
def row_numbers(shape, dtype, partition_info):
    """Initialises a part: each row contains its number in the whole table."""
    first = partition_info.var_offset[0]
    return tf.cast(tf.tile(tf.range(first, first + shape[0])[:, None], [1, shape[1]]), dtype)


halves = tf.fixed_size_partitioner(2)
with new_graph():
    table = tf.get_variable("table", [8, 2], initializer=row_numbers, partitioner=halves)
    by_div = tf.nn.embedding_lookup(table, [3, 5], partition_strategy="div")
    by_default = tf.nn.embedding_lookup(table, [3, 5])
for part in table:
    print(part.op.name, part.shape, part.device)
with tf.Session(servers["worker", 0].target, config=limit) as session:
    session.run(tf.global_variables_initializer())
    found = [session.run(rows).tolist() for rows in (by_div, by_default)]
print("rows 3 and 5:", *found[0])
print("by default:  ", *found[1])

# %% [markdown]
# **A trap:** by default the lookup returns rows 5 and 6, without an error. `"mod"`, the default, believes
# that row `id` is in part `id % 2` at place `id // 2`; `"div"` knows of blocks. Training even works,
# because the wrong rows are always the same ones, until you export the table or read it with another
# number of parts. For a partitioned variable always write `partition_strategy="div"`. `"mod"` fits
# tables whose parts you made yourself, as in [Sparse-Embeddings](../Sparse-Embeddings/).
#
# ## What an update sends
# The gradient of a lookup is *sparse*: TensorFlow represents it as `tf.IndexedSlices`, the numbers of
# the rows and a value for each. A dense update joins the parts on the worker instead.

# %%
ids, columns, lr = [3, 5], 16, 0.2


def bytes_of_an_update(rows, sparse):
    """Returns what one update of the rows `ids` sends, for the loss "sum of their squares"."""
    with new_graph():
        table = tf.get_variable("table", [rows, columns], partitioner=halves)
        if sparse:
            needed = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
        else:
            needed = tf.gather(tf.convert_to_tensor(table), ids)  # joins the parts first
        g = tf.gradients(tf.reduce_sum(needed**2), list(table))
        if sparse:
            moves = [tf.IndexedSlices(lr * d.values, d.indices) for d in g]
            push = [part.scatter_sub(move) for part, move in zip(table, moves)]
        else:
            push = [part.assign_sub(lr * tf.convert_to_tensor(d)) for part, d in zip(table, g)]
        with tf.Session(servers["worker", 0].target, config=limit) as session:
            session.run(tf.global_variables_initializer())
            return sum(course.transfers(session, tf.group(*push))[1].values())


# %% [markdown]
# **Predict:** a mini-batch needs two rows of 16 columns, from a table of 100 rows. How many bytes does
# an update send, dense and sparse? And from a table of 100,000 rows?

# %% tags=["predicted"]
sizes = [100, 1000, 10_000, 100_000]
traffic = {}
for sparse in False, True:
    traffic[sparse] = [bytes_of_an_update(rows, sparse) for rows in sizes]
    print("sparse:" if sparse else "dense: ", *["%10d" % n for n in traffic[sparse]], "bytes")

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# dense:       12800     128000    1280000   12800000 bytes
# sparse:        264        264        264        264 bytes
# ```
#
# Dense, the whole table comes down, and `lr` times its gradient goes up: 2 · 4 · 16 bytes for each
# row. Sparse traffic does not grow with the table; exercise 1 asks why it is 264 bytes.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answers, checked.
assert found == [[[3.0, 3.0], [5.0, 5.0]], [[5.0, 5.0], [6.0, 6.0]]]
assert set(traffic[True]) == {len(ids) * (2 * 4 * columns + 4)} == {264}
assert traffic[False] == [2 * 4 * columns * rows for rows in sizes]

# %% [markdown]
# ## A recommender
# Will a user click on an item? The model has a table of 100,000 users and one of 2,000 items, with
# 32 numbers a row. For a pair it takes both rows through two hidden layers and an output layer, and
# adds the rows' dot product. The clicks are invented, by a rule that is hidden from it; few users
# and items make most of them. Two worker processes share tables and layers on a
# ps. Worker 0, the *chief*, initialises them. At a *barrier*, the counter `arrived`, both wait for each
# other; then each pushes as soon as it is ready (*asynchronously*). These lines decide whether the
# tables travel:

# %%
# %%writefile lookup.py
import tensorflow.compat.v1 as tf


def lookup(table, ids, sparse):
    """The rows of a mini-batch: taken on the ps, or from the whole table, which comes first."""
    return tf.nn.embedding_lookup(table, ids) if sparse else tf.gather(table.read_value(), ids)


def to_push(g, sparse):
    """The gradient of a table: of the rows of the mini-batch, or with zeros for all others."""
    return g if sparse else tf.convert_to_tensor(g)


# %% jupyter={"source_hidden": true}
# %%writefile recommender.py
import json
import sys
import time

import course
import numpy as np
import tensorflow.compat.v1 as tf
from lookup import lookup, to_push

SECONDS, BATCH, USERS, ITEMS, COLUMNS = float(sys.argv[1]), 1024, 100_000, 2_000, 32
task = course.task(threads=1)  # each worker has one core

# The same log of clicks in each process; its first rows are for the test.
random, CLICKS, TEST = np.random.default_rng(0), 1_000_000, 5_000
users = (USERS * random.random(CLICKS) ** 8).astype("int32")
items = (ITEMS * random.random(CLICKS) ** 3).astype("int32")
taste, kind = random.normal(size=[USERS, 4]), random.normal(size=[ITEMS, 4])
chance = 1 / (1 + np.exp(-1.5 * (taste[users] * kind[items]).sum(axis=1)))
clicks = (random.random(CLICKS) < chance).astype("float32")
data = users, items, clicks


def build(mode):
    """Returns placeholders of a mini-batch, the update, the loss, and who has arrived."""
    sparse = mode != "dense"
    with tf.variable_scope(mode), tf.device(task.me if mode == "alone" else "/job:ps/task:0"):
        normal = [tf.random_normal_initializer(0, 0.1, seed=seed) for seed in range(5)]
        tables = [
            tf.get_variable("users", [USERS, COLUMNS], initializer=normal[0]),
            tf.get_variable("items", [ITEMS, COLUMNS], initializer=normal[1]),
        ]
        layers = [
            tf.get_variable("W1", [2 * COLUMNS, 256], initializer=normal[2]),
            tf.get_variable("W2", [256, 128], initializer=normal[3]),
            tf.get_variable("W3", [128, 1], initializer=normal[4]),
        ]
        arrived = tf.get_variable("arrived", initializer=0)
    with tf.device(task.me):
        types = tf.int32, tf.int32, tf.float32
        *ids, clicked = batch = [tf.placeholder(kind, [None]) for kind in types]

        def losses(sparse):
            u, v = [lookup(table, rows, sparse) for table, rows in zip(tables, ids)]
            W1, W2, W3 = layers
            hidden = tf.nn.relu(tf.nn.relu(tf.concat([u, v], 1) @ W1) @ W2)
            scores = (hidden @ W3)[:, 0] + tf.reduce_sum(u * v, 1)
            return tf.nn.sigmoid_cross_entropy_with_logits(labels=clicked, logits=scores)

        g = tf.gradients(tf.reduce_sum(losses(sparse)), tables + layers)
        of_tables, of_layers = [to_push(d, sparse) for d in g[:2]], g[2:]
        adagrad = [tf.train.AdagradOptimizer(lr) for lr in (0.1, 0.001)]
        update = tf.group(
            adagrad[0].apply_gradients(zip(of_tables, tables)),
            adagrad[1].apply_gradients(zip(of_layers, layers)),
        )
        return batch, update, tf.reduce_mean(losses(True)), arrived


def train(mode, n):
    """Trains for SECONDS with n workers; returns the updates of this one, and [seconds, loss]."""
    batch, update, loss, arrived = build(mode)
    arrive = arrived.assign_add(1)
    initialise, missing = tf.global_variables_initializer(), tf.report_uninitialized_variables()
    test = {place: column[:TEST] for place, column in zip(batch, data)}
    draws, made, curve = np.random.default_rng(1 + task.k), 0, []
    with tf.Session(task.server.target, config=task.limits) as session:
        if task.k == 0:
            session.run(initialise)
        while session.run(missing).size:
            time.sleep(0.2)
        session.run(loss, test)  # a first call takes longer
        session.run(arrive)
        while session.run(arrived) < n:
            time.sleep(0.01)
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < SECONDS:
            if task.k == 0 and seconds >= 0.25 * len(curve):
                curve.append([seconds, float(session.run(loss, test))])
            rows = draws.integers(TEST, CLICKS, size=BATCH)
            session.run(update, {place: column[rows] for place, column in zip(batch, data)})
            made += 1
        if task.k == 0:
            curve.append([SECONDS, float(session.run(loss, test))])
    return made, curve


results = {}
for mode in "alone", "dense", "sparse":
    if mode != "alone" or task.k == 0:
        with tf.Graph().as_default():
            results[mode] = train(mode, 1 if mode == "alone" else task.n)
print(json.dumps(results))

# %% [markdown]
# In the folded program, whose server `course.task` starts, each worker trains for 3 seconds in each of
# three ways, with one thread: worker 0 *alone* with tables of its own; then both, *dense*; then both,
# *sparse*. The loss is that of clicks which nobody trains on. A mini-batch has 1,024 pairs.
#
# **Predict:** about how many bytes does an update send, dense and sparse? In which order do the three
# ways stand after 3 seconds?

# %% tags=["predicted", "measured"]
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
workers = [start("recommender.py", cluster, "worker", k, 3) for k in (0, 1)]
results = [json.loads(finish(worker).splitlines()[-1]) for worker in workers]
layers = 64 * 256 + 256 * 128 + 128
rows = {"alone": 0, "dense": 102_000, "sparse": 2 * 1024}
updates = {mode: sum(result[mode][0] for result in results if mode in result) for mode in rows}
for mode, count in rows.items():
    sent = 2 * 4 * (32 * count + layers) if count else 0
    loss = results[0][mode][1][-1][1]
    print("%-7s about %4.1f MB an update, " % (mode, sent / 1e6), end="")
    print("%4d updates, loss %.3f" % (updates[mode], loss))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# alone   about  0.0 MB an update,  210 updates, loss 0.554
# dense   about 26.5 MB an update,   29 updates, loss 0.614
# sparse  about  0.9 MB an update,  154 updates, loss 0.564
# ```
#
# A dense update moves both tables, a sparse one at most 2,048 of their 102,000 rows, and the layers. So
# dense workers make the fewest updates, and stop at the highest loss. Sparse ones have two cores
# where a worker alone has one, but share them with the ps and with the messages: here the worker alone
# is ahead. A costlier gradient, or a machine for each task, may change that. (One run of each. But the
# tables of a real shop do not fit into one process.)
#
# </details>

# %% tags=["measured"] jupyter={"source_hidden": true}
assert updates["sparse"] > 1.5 * updates["dense"]
figure, axes = plt.subplots()
for mode, color in ("alone", GRAY), ("dense", RED), ("sparse", BLUE):
    seconds, losses = np.transpose(results[0][mode][1])
    axes.plot(
        seconds,
        losses,
        color=color,
        label="one worker" if mode == "alone" else mode + ", two workers",
    )
axes.set(xlabel="seconds", ylabel="loss on other clicks")
axes.legend()
show(
    figure,
    "Loss against seconds for one worker alone, two dense workers and two sparse workers. The dense "
    "ones are the slowest, because each of their updates moves both tables.",
)

# %% [markdown]
# ## Exercises
# **1. Two bills.** ★★☆ On paper, find a formula that explains the 264 bytes. Then take a table of 10
# million rows with 64 columns of 4 bytes on four servers; a mini-batch needs 500 different rows. How
# many bytes does an update send, sparse and dense?
#
# <details><summary>Hint</summary>
#
# A row needs 132 bytes. How does a server know which one is meant?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (bytes with sparse gradients, bytes with dense ones)"
    sparse, dense = answer
    if sparse in (500 * 64 * 4, 500 * (64 * 4 + 4)) or dense == 10_000_000 * 64 * 4:
        return "the rows go down, and their gradients go up"
    if sparse == 500 * 2 * 64 * 4:
        return "the numbers of the rows are sent, too"
    if sparse == 500 * 2 * (4 * 64 + 4):
        return "the numbers of the rows go up only once"
    if sparse in (4 * 258_000, 258_000 / 4) or dense in (4 * 5.12e9, 5.12e9 / 4):
        return (
            "count the bytes, 4 for each number, of all servers together: each sends its own rows"
        )
    if sparse != 258_000:
        return "the bytes with sparse gradients are others"
    if dense != 5_120_000_000:
        return "the bytes with dense gradients are others: all rows, down and up"


# %%
# Your answer to exercise 1: (bytes with sparse gradients, bytes with dense gradients)
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# A row's number goes up (4 bytes, and only once), the row comes down, and `lr` times its gradient goes
# up. So $r$ rows of $c$ columns send $r \cdot (2 \cdot 4 c + 4)$ bytes: above 2 · (2 · 4 · 16 + 4), here
# 500 · (2 · 4 · 64 + 4) = 258,000. Dense it is 2 · 4 · 64 · 10,000,000 bytes = 5.12 GB.
#
# ```python
# answer_1 = (258_000, 5_120_000_000)
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. Who is busy?** ★☆☆ Words are often numbered by frequency: word `id` occurs in proportion to
# 1 / (`id` + 1). A table of 1,000 words is on four servers, in blocks (`"div"`) or in turn
# (`"mod"`). Compute the share of all lookups that goes to ps 0.
#
# <details><summary>Hint</summary>
#
# Make an array of the 1,000 frequencies, and add up the slice that ps 0 holds.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    frequency = 1 / np.arange(1, 1001)
    div, mod = frequency[:250].sum() / frequency.sum(), frequency[::4].sum() / frequency.sum()
    by_div, by_mod = answer("div"), answer("mod")
    if by_div is None or by_mod is None:
        return "return a share, from 0 to 1"
    if max(by_div, by_mod) > 1:
        return "a share is from 0 to 1, not in %: divide by the sum of all frequencies"
    if by_div == by_mod == 0.25:
        return "ps 0 holds a quarter of the rows, but frequent rows are looked up more often"
    if abs(by_div - mod) < 1e-3 and abs(by_mod - div) < 1e-3:
        return "that is div for mod, and mod for div"
    if not abs(by_div - div) <= 1e-3:
        return 'for "div" ps 0 holds the first 250 words; your share of them is %.3f' % by_div
    if not abs(by_mod - mod) <= 1e-3:
        return 'for "mod" ps 0 holds the words 0, 4, 8, ...; your share of them is %.3f' % by_mod


# %%
# Your answer to exercise 2
def answer_2(strategy):
    """Returns the share of the lookups that goes to ps 0. strategy: "div" or "mod"."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(strategy):
#     frequency = 1 / np.arange(1, 1001)
#     on_ps_0 = frequency[:250] if strategy == "div" else frequency[::4]
#     return on_ps_0.sum() / frequency.sum()
#
#
# assert check_2(answer_2)
# ```
#
# In blocks, ps 0 answers 0.815 of all lookups; in turn 0.326, where 0.25 would be fair.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Niu, Recht, Ré, Wright 2011, [HOGWILD!](https://arxiv.org/abs/1106.5730): sparse updates need no
#   lock, because workers rarely update the same row at the same time.
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 4.2.
#
# **Elsewhere:** PyTorch has `EmbeddingBag(sparse=True)`; TorchRec divides tables among the workers,
# which exchange rows by an *all-to-all*; `ParameterServerStrategy` takes a partitioner.
#
# Next: [Sessions](Sessions.ipynb), where several processes begin and end together.
