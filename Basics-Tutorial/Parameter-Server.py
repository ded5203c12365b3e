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
# # Parameter servers
# The network between workers and parameter servers (ps) soon decides how fast you train. On a link of
# 10 Gbit/s a worker needs 256 ms to fetch the 160 MB of [Why-Distribute](Why-Distribute.ipynb) and to
# send back a gradient. With eight workers, a single server is busy for two seconds in each step. You will
# count such bytes in a trace of a real update, and compute how many servers a model of your own needs.
#
# After this notebook you can:
# - say what a device function is, and place variables on a ps with one;
# - spread variables over several servers, and see where that fails;
# - find out which task ran which operation, and how many bytes crossed the network;
# - estimate from the size of a model when the servers become the bottleneck;
# - say why dense models are trained with all-reduce today, and what has remained for the ps.
#
# **Before it:** [Servers](Servers.ipynb). **Time:** 40 minutes.

# %% [markdown]
# ## One update
# ![One update on three tasks. ps 0 sends b1, W2 and b2, 1,448 bytes, to the worker; ps 1 sends W1, 8,192 bytes. The worker computes, then sends lr·g, of the same sizes, back.](../docs/figures/placement.svg)
#
# The worker pulls, computes and pushes, and the ps only add what arrives. Up to rounding, a sum does not
# depend on the order, so several workers can push without an agreement, and no ps has to know their model.
#
# Our cluster has two parameter servers and one worker, all in this process. They exchange tensors
# through sockets, as they would on three machines.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, new_cluster, show

course.begin()
cluster = new_cluster(ps=2, worker=1)
tasks = [("ps", 0), ("ps", 1), ("worker", 0)]
servers = {task: tf.train.Server(cluster, *task) for task in tasks}
limit = tf.ConfigProto(operation_timeout_in_ms=20_000)  # a call may take 20 s

# %% [markdown]
# ## Where a variable lives
# `tf.device` takes a name, or a *device function*, which TensorFlow calls for each operation that you
# build inside the block: it gets the operation and returns a device. Operations that read or change a
# variable run where the variable lives, whatever the function says.
#
# `tf.train.replica_device_setter` makes a device function that sends variables to the ps and everything
# else to a worker. By default it distributes the variables *round robin*: the first to ps 0, the second
# to ps 1, the third to ps 0, and so on. It counts what it has placed, so each graph needs a new one.


# %%
def placement(ps_strategy=None, number_of_ps=2):
    """Returns a new device function: variables to the ps, everything else to worker 0."""
    return tf.train.replica_device_setter(
        ps_tasks=number_of_ps, worker_device="/job:worker/task:0", ps_strategy=ps_strategy
    )


# %% jupyter={"source_hidden": true}
def size(variable):
    return variable.shape.num_elements() * variable.dtype.size


def bytes_per_ps(variables):
    """Prints where each variable lives; returns {ps: bytes}."""
    load = {}
    for v in variables:
        print("%-12s %5d bytes  %s" % (v.op.name, size(v), v.device))
        load[v.device] = load.get(v.device, 0) + size(v)
    for ps, total in sorted(load.items()):
        print("%-12s %5d bytes" % (ps[5:], total))
    return load


# %% [markdown]
# The digits model has four variables. A parameter takes 4 bytes; the step counter takes 8.
#
# | variable | shape | bytes |
# | --- | --- | --- |
# | `global_step` | one number | 8 |
# | `W1` | 64 × 32 | 8,192 |
# | `b1` | 32 | 128 |
# | `W2` | 32 × 10 | 1,280 |
# | `b2` | 10 | 40 |
#
# **Predict:** we make them in this order, on two servers, round robin. How many bytes does each ps
# hold?

# %% tags=["predicted"]
tf.reset_default_graph()  # an empty graph
with tf.device(placement()):
    step = tf.train.get_or_create_global_step()
    w = course.variables()
round_robin = bytes_per_ps([step, *w])

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# global_step      8 bytes  /job:ps/task:0
# W1            8192 bytes  /job:ps/task:1
# b1             128 bytes  /job:ps/task:0
# W2            1280 bytes  /job:ps/task:1
# b2              40 bytes  /job:ps/task:0
# ps/task:0      176 bytes
# ps/task:1     9472 bytes
# ```
#
# Round robin counts variables, not bytes. Weights and biases alternate, so both weight matrices land
# on ps 1, while ps 0 is nearly idle.
#
# </details>
#
# The argument `ps_strategy` is a function from an operation to the number of a ps. The one in the folded
# cell takes the ps that holds the fewest bytes so far:


# %% jupyter={"source_hidden": true}
def lightest(number_of_ps):
    """Returns a function that takes the operation of a variable, and returns a ps."""
    load = [0] * number_of_ps

    def choose(op):
        ps = load.index(min(load))
        shape, dtype = op.get_attr("shape"), op.get_attr("dtype")
        load[ps] += tf.TensorShape(shape).num_elements() * dtype.size
        return ps

    return choose


# %%
tf.reset_default_graph()
with tf.device(placement(lightest(2))):
    step = tf.train.get_or_create_global_step()
    w = course.variables()
by_size = bytes_per_ps([step, *w])

# %% [markdown]
# That is better, but `W1` alone is larger than all the others together, so no distribution of whole
# variables is even. This repository's programs therefore join all variables into one vector and cut
# that into equal parts.

# %% jupyter={"source_hidden": true}
# The answers, checked.
assert sorted(round_robin.values()) == [176, 9472]
assert sorted(by_size.values()) == [1456, 8192] and 2 * size(w[0]) > sum(by_size.values())

# %% [markdown]
# ## Where each operation runs, and what crosses the network
# `update` builds one update of the digits model, with the variables placed by size.

# %%
x, y, _, _ = course.load()
lr = 0.2


def update(batch_size):
    """Builds in a new graph: w, the loss on a mini-batch, its gradient, and the push."""
    tf.reset_default_graph()
    with tf.device(placement(lightest(2))):
        tf.train.get_or_create_global_step()
        w = course.variables()
        loss = course.loss(w, *course.batch(x, y, number=0, size=batch_size))
        g = tf.gradients(loss, w)
        push = tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])
    return w, loss, g, push


# %% [markdown]
# TensorFlow cuts the graph where a tensor goes from one task to another: one side of the cut gets a
# `_Send`, the other a `_Recv`. Does that give the bytes of the figure? `course.transfers` asks `run` for a
# *trace*, and returns the operations of each task, and the bytes that each task sent to each other.


# %% jupyter={"source_hidden": true}
def trace(fetches):
    """Returns the operations of each task, and {(sender, receiver): bytes}, which it prints."""
    with tf.Session(servers["worker", 0].target, config=limit) as session:
        session.run(tf.global_variables_initializer())
        operations, sent = course.transfers(session, fetches)
    for (sender, receiver), count in sorted(sent.items()):
        print("%-8s -> %-8s %5d bytes" % (sender, receiver, count))
    return operations, sent


w, loss, g, push = update(batch_size=32)
operations, sent = trace([loss, push])

kinds = ["ReadVariableOp", "MatMul", "AssignSubVariableOp"]
print("%-10s" % "", *["%20s" % kind for kind in kinds])
for task, names in sorted(operations.items()):
    print("%-10s" % task, *["%20d" % sum(kind in name for name in names) for kind in kinds])

# %% [markdown]
# As drawn, the servers only read and subtract, and all five matrix products are on the worker: two
# forward, and three backward, for the gradients of `W1`, `W2` and the hidden layer. One careless
# `tf.device` [would put them on a ps](Classic-Mistakes-Variables.ipynb).
#
# **Predict:** the mini-batch grows from 32 examples to 512. By what factor does the traffic of one
# update grow?

# %% tags=["predicted"]
w, loss, g, push = update(batch_size=512)
operations, sent = trace([loss, push])

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# ps 0     -> worker 0  1448 bytes
# ps 1     -> worker 0  8192 bytes
# worker 0 -> ps 0      1448 bytes
# worker 0 -> ps 1      8192 bytes
# ```
#
# It does not grow. The mini-batch stays on the worker; only `w` and $lr \cdot g$ travel, and $g$ has
# the shape of `w`, however many examples it was computed from.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
S = sum(map(size, w))
pulled = sum(count for (sender, receiver), count in sent.items() if "ps" in sender)
pushed = sum(count for (sender, receiver), count in sent.items() if "ps" in receiver)
assert pulled == pushed == S == 9640 and sent["ps 1", "worker 0"] == 8192
assert [sum("MatMul" in name for name in operations[task]) for task in ("ps 0", "worker 0")] == [
    0,
    5,
]

# %% [markdown]
# So let a worker compute more for each exchange: with a larger mini-batch, or [several local
# steps](Local-then-Global-Variables.ipynb).
#
# ## What many workers cost
# Now $n$ workers make an update each, and $m$ servers share the $S$ bytes of `w` evenly. A worker
# receives $S$ bytes and sends $S$ bytes; a server sends $S \cdot n / m$ and receives as many. If a
# link carries $R$ bytes per second in each direction, and pulls and pushes take turns, the messages
# of a step take
#
# $$t = \frac{2S}{R} \cdot \max\left(1, \frac{n}{m}\right)$$
#
# ![Four machines with a worker each and two with a server, at a switch. In a step the link of a worker carries S bytes in and S out. The link of a server carries S times n divided by m bytes out, and as many in: here twice as many.](../docs/figures/hosts.svg)
#
# One server needs $O(n)$, and $m$ servers need $O(n/m)$, until with $m = n$ the workers' own links
# are the limit. Let a gradient take one second; this is when the messages of our 160 MB take longer:


# %%
def server_ms(S, n, m, R=10e9 / 8):
    """Returns the ms for the messages of n workers with m servers. R: bytes per second."""
    return 1000 * 2 * S / R * max(1, n / m)


# %% jupyter={"source_hidden": true}
gradient_ms = 1000
figure, axes = plt.subplots()
n = np.arange(1, 17)
for m, color in zip((1, 2, 4), (BLUE, ORANGE, PURPLE)):
    axes.plot(n, [server_ms(160e6, workers, m) for workers in n], color=color)
    crossing = m * gradient_ms / server_ms(160e6, 1, 1)
    axes.plot(crossing, gradient_ms, "o", color=color)
    axes.text(crossing - 0.15, 1070, "%d server%s" % (m, "s" * (m > 1)), color=color, ha="right")
axes.plot(n, server_ms(160e6, 1, 1) * (n - 1) / n, color=GREEN)
axes.text(15.9, 90, "ring all-reduce, no server", color=GREEN, ha="right", va="center")
axes.axhline(gradient_ms, color=GRAY, linestyle="--")
axes.text(8.3, 960, "a gradient takes 1 s", color=GRAY, va="top")
axes.set(xlabel="workers", ylabel="messages of a step in ms", ylim=(0, 2000), xlim=(1, 16))
show(
    figure,
    "Time for the messages of a step against the number of workers, for 160 MB and links "
    "of 10 Gbit/s. With one server it grows by 256 ms for each worker, and crosses the line of a "
    "gradient of 1 s at 3.9 workers; with two servers at 7.8, with four at 15.6. With a ring "
    "all-reduce it stays below 256 ms.",
)

# %% jupyter={"source_hidden": true}
# The numbers of the text and of the figure, checked.
assert server_ms(160e6, 1, 1) == 256 and server_ms(160e6, 8, 1) == 2048
assert server_ms(160e6, 8, 8) == server_ms(160e6, 1, 1)
assert [round(m * 1000 / 256, 1) for m in (1, 2, 4)] == [3.9, 7.8, 15.6]

# %% [markdown]
# With one server, the messages of four workers already take longer than a gradient. As many servers
# as workers keep pace, and they may run on the same machines; but then you must divide `w` evenly
# among them.
#
# That pulls and pushes take turns holds for workers in lock-step. Asynchronous ones mix: while the server
# sends `w` to one it receives a gradient from another, so both directions of its link are busy. Then $n$
# workers occupy it for $S n / (m R)$ only, and the crossing with one server is at 7.8 workers. The ring
# below always uses both directions.
#
# The green line is the [ring all-reduce](Ring-AllReduce.ipynb), in which each worker sends and receives
# $2S(n-1)/n$ bytes. It needs no placement, and all copies stay equal, so most dense models are trained
# with it today. Parameter servers have remained where it does not fit: for tables of which a step needs
# only a few rows, as in recommender systems, and for workers that must not wait for each other (part
# two).

# %% [markdown]
# ## Exercises
# **1. How many servers?** ★☆☆ A model has 250 million parameters of 4 bytes. 16 workers compute a
# gradient in 2 seconds; each link carries 25 Gbit/s. How many servers are needed at least, so that
# the messages of a step take no longer than the gradient? Use paper and pencil.
#
# <details><summary>Hint</summary>
#
# How many bytes are 25 Gbit? Solve $t = 2$ for $m$, and remember that there are no half servers.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if isinstance(answer, float) and not answer.is_integer():
        return "a number of servers is a whole number"
    if answer == 3:
        return "each worker pulls and pushes: 2S"
    if answer == 5:
        return "with 5 the messages take a little longer than the gradient"
    if answer in (1, 41):
        return "a byte has 8 bits, and the link is given in bits"
    if answer == 2:
        return "250 million parameters are not 250 MB"
    if answer == 11:
        return "the messages may take as long as the gradient, 2 seconds"
    if answer < 6:
        return "with %d servers the messages take longer than 2 s" % answer
    if answer != 6:
        return "fewer are enough"


# %%
# Your answer to exercise 1: a number
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# $S$ = 1 GB, and $R$ = 25/8 = 3.125 GB per second, so $2S/R$ = 0.64 s. For 16 workers $t$ =
# 0.64 · 16 / $m$ = 10.24 / $m$ seconds, which is at most 2 for $m \ge$ 5.12.
#
# ```python
# answer_1 = 6
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. Half the bytes.** ★★☆ Push $lr \cdot g$ in a type of 2 bytes, such as `tf.bfloat16`. The
# variables stay `float32`, so the ps must convert what it receives.
#
# <details><summary>Hint</summary>
#
# `tf.cast` converts. The first one belongs on the worker, the second inside
# `tf.device(v.device)`: an operation without a device runs on the worker, the session's target.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    w, _, g, _ = update(batch_size=32)
    push = tf.group(*answer(w, g))
    with tf.Session(servers["worker", 0].target, config=limit) as session:
        session.run(tf.global_variables_initializer())
        before, gradients = session.run([w, g])
        _, sent = course.transfers(session, push)
        moved = [old - new for old, new in zip(before, session.run(w))]
    far = max(np.abs(a - lr * b).max() / np.abs(lr * b).max() for a, b in zip(moved, gradients))
    if all(not np.any(change) for change in moved):
        return "w has not moved: return what assign_sub returns, and do not round lr * g to 0"
    if not far <= 0.01:
        return "w has not moved by lr * g: one entry is off by %.0f%% of the largest" % (100 * far)
    pushed, half = sum(sent[key] for key in sent if "ps" in key[1]), sum(map(size, w)) / 2
    if pushed == 2 * half:
        return "w moves well, but 4 bytes for each parameter are sent: on which task is each cast?"
    if pushed != half:
        return "%d bytes are pushed, and half of w's are %d" % (pushed, half)


# %%
# Your answer to exercise 2
def answer_2(w, g):
    """Returns a list of updates, one for each variable. g: the gradient of each."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(w, g):
#     updates = []
#     for v, d in zip(w, g):
#         short = tf.cast(lr * d, tf.bfloat16)  # on the worker
#         with tf.device(v.device):
#             received = tf.cast(short, tf.float32)
#         updates.append(v.assign_sub(received))
#     return updates
#
#
# assert check_2(answer_2)
# ```
#
# bfloat16 keeps 8 significant bits: an error of 0.4% at most. float16 keeps 11, but rounds tiny
# numbers to 0. [Compression](../Measurements/Compression/) measures much coarser numbers.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/4687-large-scale-distributed-deep-networks): the
#   parameter server for neural networks (DistBelief).
# - Zhang et al., [Dive into Deep Learning, Parameter
#   Servers](https://d2l.ai/chapter_computational-performance/parameterserver.html): the same costs
#   on the links of one machine and of many.
# - [Distributed-Setup](../Distributed-Setup/): this update in two processes.
#   [Slow-Network](../Measurements/Slow-Network/): the bytes of all programs on slow links.
# - **Elsewhere:** `tf.distribute` has [ParameterServerStrategy](../Parameter-Server-Strategy/).
#   PyTorch and JAX have none built in; PyTorch's RPC has what is needed to write one.
#
# Next: [Sparse-Tables](Sparse-Tables.ipynb), where a step moves only the rows that it needs.
