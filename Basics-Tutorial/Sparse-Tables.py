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
# parameter servers are still in use today.
#
# After this notebook you can:
# - cut a variable into parts that live on several servers;
# - look up rows of such a table, without the trap that returns the wrong ones;
# - compute the bytes of an update with sparse gradients;
# - distribute rows so that all servers are about equally busy.
#
# **Before it:** [Parameter-Server](Parameter-Server.ipynb). **Time:** 35 minutes.

# %% [markdown]
# ## A table in parts
# Keras holds such a table in an `Embedding` layer. Here each part of it is on a server of its own.
#
# ![A table of word vectors on two parameter servers: even rows on ps 0, odd rows on ps 1. A mini-batch with the words 3, 17 and 902 pulls only these three rows, and pushes gradients for only these.](../docs/figures/sparse.svg)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import GREEN, RED, new_cluster, show

course.begin()
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
# A *partitioner* cuts a variable along its rows, and the setter places each part. In this table of 8
# rows, each row contains its own number:


# %%
def row_numbers(shape, dtype, partition_info):
    """Initialises a part: each row contains its number in the whole table."""
    first = partition_info.var_offset[0]
    return tf.cast(tf.tile(tf.range(first, first + shape[0])[:, None], [1, shape[1]]), dtype)


halves = tf.fixed_size_partitioner(2)
with new_graph():
    table = tf.get_variable("table", [8, 2], initializer=row_numbers, partitioner=halves)
    by_default = tf.nn.embedding_lookup(table, [3, 5])
    by_div = tf.nn.embedding_lookup(table, [3, 5], partition_strategy="div")
for part in table:
    print(part.op.name, part.shape, part.device)

# %% [markdown]
# `tf.nn.embedding_lookup` asks each server for its rows, by one of two conventions. For our 2 parts of
# 4 rows they say:
#
# | `partition_strategy` | row `id` is in part | at place |
# | --- | --- | --- |
# | `"mod"`, the default | `id % 2` | `id // 2` |
# | `"div"` | `id // 4` | `id % 4` |
#
# The partitioner, unlike the figure, has cut contiguous blocks: rows 0 to 3 are part 0, rows 4 to 7
# are part 1.
#
# **Predict:** we look up rows 3 and 5 with each convention. Which rows do we get?

# %% tags=["predicted"]
with tf.Session(servers["worker", 0].target, config=limit) as session:
    session.run(tf.global_variables_initializer())
    print("default:", session.run(by_default).tolist())
    print("div:    ", session.run(by_div).tolist())

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# default: [[5.0, 5.0], [6.0, 6.0]]
# div:     [[3.0, 3.0], [5.0, 5.0]]
# ```
#
# The default, `"mod"`, looks for rows 3 and 5 in part 1, at places 1 and 2, where the partitioner has
# put rows 5 and 6.
#
# </details>
#
# **The trap:** no error tells you. Training even works, because the wrong rows are always the same
# ones, until you export the table or read it with another number of parts. For a partitioned
# variable always write `partition_strategy="div"`. `"mod"` fits tables whose parts you made yourself,
# as in [Sparse-Embeddings](../Sparse-Embeddings/).
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
# The answer, checked.
assert set(traffic[True]) == {len(ids) * (2 * 4 * columns + 4)} == {264}
assert traffic[False] == [2 * 4 * columns * rows for rows in sizes]
figure, axes = plt.subplots()
axes.loglog(sizes, traffic[False], "o-", color=RED)
axes.loglog(sizes, traffic[True], "o-", color=GREEN)
axes.set(xlabel="rows of the table", ylabel="bytes of an update", ylim=(50, 1e8), xlim=(80, 4e5))
axes.text(8e3, 6e6, "dense: the whole table, down and up", color=RED, ha="right")
axes.text(8e3, 6e2, "sparse: two rows, down and up", color=GREEN, ha="left")
show(
    figure,
    "Bytes of one update against the rows of the table, both on logarithmic scales. With dense "
    "gradients they grow in proportion, to 13 million bytes at 100,000 rows. With sparse gradients "
    "they stay at 264 bytes.",
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
    sparse, dense = answer
    if sparse in (500 * 64 * 4, 500 * (64 * 4 + 4)) or dense == 10_000_000 * 64 * 4:
        return "the rows go down, and their gradients go up"
    if sparse == 500 * 2 * 64 * 4:
        return "the numbers of the rows are sent, too"
    if sparse == 500 * 2 * (4 * 64 + 4):
        return "the numbers of the rows go up only once"
    if sparse in (4 * 258_000, 258_000 / 4) or dense in (4 * 5.12e9, 5.12e9 / 4):
        return "all servers together send each row once, so their number does not matter"
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
        return "a share is at most 1: divide by the sum of all frequencies"
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
