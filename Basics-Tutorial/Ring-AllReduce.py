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
# # Ring all-reduce
# A hundred workers, each with a gradient of 100 MB, have links of 10 Gbit/s. If one ps collects the
# gradients and sends back `w`, each step waits 16 seconds for its link. If the workers pass pieces
# of the gradients around a ring, it waits 0.17 seconds. Here this ring takes 30 lines over sockets;
# four processes train with it, and end with the same parameters, to the last bit. (As many servers
# as workers would be no slower: exercise 1. But an *all-reduce* needs none, so most synchronous
# training uses one.)
#
# After this notebook you can:
# - carry out reduce-scatter and all-gather step by step;
# - count the bytes that a worker sends, and say why nobody can do with fewer;
# - read an all-reduce over sockets line by line, and write another *collective* (an operation that
#   all workers call together);
# - estimate when a ring, a tree or a parameter server is fastest.
#
# **Before it:** [Why-Distribute](Why-Distribute.ipynb). **Time:** 50 minutes.

# %% [markdown]
# ## The task
# **Notation:** the [glossary](GLOSSARY.md#notation)'s, but $s$ is a step, and $p$ counts pieces.
#
# Worker $k$ of $n$ has a gradient $g_k$ of $S$ bytes. An *all-reduce* gives all workers the sum of all
# $g_k$; divided by $n$, that is the mean. The workers form a ring: $k$ sends to its right neighbour $k+1$
# and receives from its left one, $k-1$. Each cuts its vector into $n$ chunks. The algorithm has two
# halves of $n-1$ steps, $s=0,\dots,n-2$; all indices are mod $n$:
# - **Reduce-scatter:** worker $k$ sends chunk $k-1-s$, and *adds* what it receives to its own chunk
#   $k-2-s$. At the end it has the whole sum of chunk $k$.
# - **All-gather:** worker $k$ sends chunk $k-s$, and *replaces* its own chunk $k-1-s$ by what it
#   receives. At the end it has all sums.
#
# ![Four workers in a ring, each with chunks 0 to 3. In step 0 of the reduce-scatter worker 0 sends chunk 3 to worker 1, worker 1 chunk 0 to worker 2, worker 2 chunk 1 to worker 3, worker 3 chunk 2 to worker 0. Chunk k ends at worker k. In step 0 of the all-gather worker k sends chunk k.](../docs/figures/ring-steps.svg)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, finish, new_cluster, show, start

course.begin(graphs=False)

# %% [markdown]
# ## Step by step
# First all workers are in one process: in each step all send, then all receive.


# %%
def all_reduce_in_lockstep(chunk):
    """Sums in place. chunk[k][c]: chunk c of worker k. Yields after each step what was sent."""
    n = len(chunk)
    for s in range(n - 1):
        sent = [chunk[k][(k - 1 - s) % n].copy() for k in range(n)]
        for k in range(n):
            chunk[k][(k - 2 - s) % n] += sent[k - 1]
        yield "reduce-scatter, s = %d" % s, sent
    for s in range(n - 1):
        sent = [chunk[k][(k - s) % n].copy() for k in range(n)]
        for k in range(n):
            chunk[k][(k - 1 - s) % n][:] = sent[k - 1]
        yield "all-gather, s = %d" % s, sent


# %% [markdown]
# Worker $k$ has a 1 at place $k$ of each chunk, and zeros elsewhere. The figures draw each 1 as a stripe
# in its worker's colour, and frame what has just arrived. In the row `0 → 1`, worker 0 sends to worker 1.

# %% jupyter={"source_hidden": true}
COLOURS = [BLUE, ORANGE, PURPLE, GREEN]


def draw(states, description):
    """A panel for each state: a row for each worker, a column for each chunk."""
    figure, panels = plt.subplots(1, len(states), figsize=(8, 2.5), layout="constrained")
    for panel, (title, table, before) in zip(panels, states):
        for k, c, worker in np.ndindex(4, 4, 4):
            colour = COLOURS[worker] if table[k][c][worker] else "white"
            place = c - 0.4, k - 0.36 + 0.18 * worker
            panel.add_patch(plt.Rectangle(place, 0.8, 0.18, color=colour))
        for k, c in np.ndindex(4, 4):
            new = not np.array_equal(table[k][c], before[k][c])
            frame = {"edgecolor": "black" if new else GRAY, "lw": 2 if new else 0.8}
            panel.add_patch(plt.Rectangle((c - 0.4, k - 0.36), 0.8, 0.72, fill=False, **frame))
        panel.set_title(title, fontsize=10)
        panel.set(xlim=(-0.6, 3.6), ylim=(3.6, -0.6), xticks=range(4), xticklabels="0123")
        panel.set(yticks=range(4), yticklabels=[])
        panel.grid(False)
        panel.tick_params(length=0)
        for side in panel.spines.values():
            side.set_visible(False)
    panels[0].set_yticklabels(["%d → %d" % (k, (k + 1) % 4) for k in range(4)])
    show(figure, description)


REDUCE_SCATTER = (
    "The four chunks of four workers at the start and after the three steps of reduce-scatter. A "
    "framed chunk has just grown. At the end worker k has all of chunk k."
)
ALL_GATHER = (
    "The chunks after the reduce-scatter and after the three steps of all-gather. In each step "
    "every worker receives one finished chunk. At the end all have all."
)

# %% jupyter={"source_hidden": true}
chunk = np.array([[np.eye(4)[k]] * 4 for k in range(4)])  # [worker, chunk, whose numbers]
states = [("start", chunk.copy(), chunk.copy())]
for title, _ in all_reduce_in_lockstep(chunk):
    states.append((title, chunk.copy(), states[-1][1]))
assert (chunk == 1).all()

draw(states[:4], REDUCE_SCATTER)
draw(states[3:], ALL_GATHER)

# %% [markdown]
# Worker 1 sends chunk 0 first, and its growing sum moves to the right until worker 0 has all four
# stripes.
#
# ## Bytes and bits
# Now four workers have gradients of the digits model, of 32 examples each: $S$ = 9,640 bytes for
# 2,410 parameters.

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()
w = list(course.first_values().values())  # W1, b1, W2, b2


def gradient(rows):
    """The gradient of the mean loss of these rows, as one vector."""
    parts = course.numpy_gradient(w, x[rows], y[rows])
    return np.concatenate([part.ravel() for part in parts])


n = 4
vectors = [gradient(np.arange(32 * k, 32 * k + 32)) for k in range(n)]
S = vectors[0].nbytes

# %% [markdown]
# **Predict:** how many bytes does a worker send? Do all four end with the same bits? Are they also
# those of NumPy's sum?

# %% tags=["predicted"]
result = [vector.copy() for vector in vectors]
chunk = [np.array_split(vector, n) for vector in result]  # views: a change in one is in both
sent = sum(np.array([part.nbytes for part in parts]) for _, parts in all_reduce_in_lockstep(chunk))
print("S is %d bytes; the workers sent" % S, *sent)
print("all workers have the same bits:  ", all(np.array_equal(result[0], one) for one in result))
print("NumPy's sum has the same bits:   ", np.array_equal(result[0], sum(vectors)))
union = gradient(np.arange(128))
print("the mean is that of all 128 rows:", np.allclose(result[0] / n, union, atol=1e-6))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# S is 9640 bytes; the workers sent 14456 14460 14464 14460
# all workers have the same bits:   True
# NumPy's sum has the same bits:    False
# the mean is that of all 128 rows: True
# ```
#
# In each half a worker sends $n-1$ chunks of about $S/n$ bytes, together $2\frac{n-1}{n}S$ = 14,460.
# (Some chunks are longer by one.) The workers add each chunk once, in one order, and copy the result, so
# all have the same bits, and their copies of `w` cannot drift apart. NumPy adds in another order.
#
# </details>
#
# **Can it be done with fewer bytes?** To combine $n$ values takes $n-1$ messages, because a message
# merges at most one value into another. To tell the $n-1$ others the sum takes $n-1$ more. For $S$
# bytes that makes $2(n-1)S$ in all, so some worker sends at least $2\frac{n-1}{n}S$: the ring is
# optimal. (Unless the network's *switches* add, as in NVIDIA's SHARP.)
#
# (In a hurry, stop here: the rest is about sockets, real training, and costs.)
#
# ## Between processes
# Now each worker is a process with its own vector and two *sockets*, the ends of its connections to
# the neighbours. [neighbours.py](neighbours.py), which is beside this notebook, makes them. `start` runs a
# file as a process, and tells it all addresses and its number.

# %%
# %%writefile ring.py
import concurrent.futures
import numpy as np
from neighbours import connected, receive


class Ring:
    """Worker k of n, which are joined in a ring; `sent` counts the bytes that it has sent."""

    def __init__(self, addresses, k, seconds=20):
        self.k, self.n, self.sent = k, len(addresses), 0
        self.second_thread = concurrent.futures.ThreadPoolExecutor(1)
        self.left, self.right = connected(addresses, k, seconds)

    def exchange(self, out, into):
        """Sends `out` to the right, and meanwhile fills `into` from the left."""
        sending = self.second_thread.submit(self.right.sendall, out)
        receive(self.left, into)
        sending.result()  # wait until all is sent
        self.sent += out.nbytes
        return into

    def reduce_scatter(self, x):
        """Returns chunk k of the sum over all workers."""
        chunk = np.array_split(x.copy(), self.n)
        for s in range(self.n - 1):
            mine, theirs = chunk[(self.k - 1 - s) % self.n], chunk[(self.k - 2 - s) % self.n]
            theirs += self.exchange(mine, np.empty_like(theirs))
        return chunk[self.k]

    def all_gather(self, part, size=None):
        """Returns the chunks of all workers as one vector. size: if they are not equally long."""
        whole = np.empty(size or self.n * len(part), part.dtype)
        chunk = np.array_split(whole, self.n)
        chunk[self.k][:] = part
        for s in range(self.n - 1):
            self.exchange(chunk[(self.k - s) % self.n], chunk[(self.k - 1 - s) % self.n])
        return whole

    def all_reduce(self, x):
        """Returns the sum over all workers."""
        return self.all_gather(self.reduce_scatter(x), len(x))


# %% [markdown]
# `exchange` sends in a second thread. Would it not be simpler to send first and receive afterwards?

# %%
# %%writefile send_first.py
import sys
import numpy as np
from neighbours import receive, this_task
from ring import Ring


class SendFirst(Ring):
    def exchange(self, out, into):
        self.right.sendall(out)
        return receive(self.left, into)


ring = SendFirst(*this_task(), seconds=2)
try:
    total = ring.all_reduce(np.full(int(sys.argv[1]), 1 + ring.k, "float32"))
    print("the sum is", total[0])
except (TimeoutError, ConnectionError):
    print("no progress in 2 s")


# %% [markdown]
# **Predict:** four processes send first. Does it work for the digits' gradient of 9,640 bytes? And
# for a vector of 64 MB?


# %% tags=["predicted"]
def run(file, *arguments):
    """Runs a file in four processes, and returns what each printed."""
    cluster = new_cluster(worker=n)
    processes = [start(file, cluster, "worker", k, *arguments) for k in range(n)]
    return [finish(process).strip() for process in processes]


for numbers in 2_410, 16_000_000:
    print("%10d bytes:" % (4 * numbers), *sorted(set(run("send_first.py", numbers))))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
#       9640 bytes: the sum is 10.0
#   64000000 bytes: no progress in 2 s
# ```
#
# The short vector arrives: 1 + 2 + 3 + 4 = 10. With the long one all four hang until our time limit
# ends them. The operating system buffers what nobody has received yet, but a chunk of 16 MB does not
# fit. So each worker blocks in `sendall` until its neighbour receives, and the neighbour blocks in
# `sendall`, too: a *deadlock*, which no test with a small model finds.
#
# </details>
#
# ## Training
# Each worker starts with the same `w`, computes a gradient on 32 examples of its own, and moves its
# copy by the mean.

# %% jupyter={"source_hidden": true}
# %%writefile numpy_digits.py
import numpy as np

data = np.load("data.npz")
x, y = data["x"], data["y"]
first = [data[name] for name in ("W1", "b1", "W2", "b2")]


def gradient(w, rows):
    """Of the mean cross-entropy of these rows, as one vector."""
    W1, b1, W2, b2 = w
    h = np.maximum(x[rows] @ W1 + b1, 0)
    scores = h @ W2 + b2
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    d_scores = (p - np.eye(10, dtype="float32")[y[rows]]) / np.float32(len(rows))
    d_h = d_scores @ W2.T * (h > 0)
    parts = x[rows].T @ d_h, d_h.sum(0), h.T @ d_scores, d_scores.sum(0)
    return np.concatenate([part.ravel() for part in parts])


def move(w, step):
    """Adds to each of the variables w its part of a vector."""
    ends = np.cumsum([v.size for v in w])[:-1]
    for v, part in zip(w, np.split(step, ends)):
        v += part.reshape(v.shape)


# %%
# %%writefile worker.py
import sys
import numpy as np
from neighbours import this_task
from numpy_digits import first, gradient, move
from ring import Ring

ring, w = Ring(*this_task()), first
for step in range(int(sys.argv[1])):
    rows = np.random.default_rng([ring.k, step]).integers(0, 1437, 32)
    g = ring.all_reduce(gradient(w, rows))
    move(w, -0.2 * g / ring.n)
np.savez("trained-%d.npz" % ring.k, *w)

# %% [markdown]
# This notebook trains one more copy, on all four mini-batches as one.

# %% jupyter={"source_hidden": true}
STEPS = 300
np.savez("data.npz", x=x, y=y, **course.first_values())
run("worker.py", STEPS)
ring_w = [list(np.load("trained-%d.npz" % k).values()) for k in range(n)]

single = w
for step in range(STEPS):
    draws = [np.random.default_rng([k, step]).integers(0, 1437, 32) for k in range(n)]
    rows = np.concatenate(draws)
    g = course.numpy_gradient(single, x[rows], y[rows])
    single = [v - np.float32(0.2) * part for v, part in zip(single, g)]


def accuracy(w):
    """The share of the test rows whose digit has the highest score."""
    return (course.numpy_outputs(w, x_test)[1].argmax(axis=1) == y_test).mean()


accuracies = [accuracy(ring_w[0]), accuracy(single)]


def equal_bits(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other))


# %%
same = [equal_bits(ring_w[0], other) for other in ring_w]
distance = max(np.abs(a - b).max() for a, b in zip(ring_w[0], single))
print("the four workers have the same bits: ", all(same))
print("one process has the same bits:       ", equal_bits(ring_w[0], single))
print("... the same up to 0.0001:           ", bool(distance < 1e-4))
print("test accuracy: %.1f%%, and %.1f%% in one process" % tuple(100 * np.array(accuracies)))

# %% [markdown]
# One process adds the same 128 gradients in another order, so only the rounding differs. A ring
# changes the time of a step, and nothing about learning.
#
# ## What it costs
# A simple model of a network: a message of $m$ bytes takes $\alpha+\beta m$ seconds, where $\alpha$
# is the *latency* and $1/\beta$ the bandwidth. A machine sends and receives at the same time.
# Messages that arrive together share its connection, and their latencies overlap. (In the usual
# model a machine receives one message at a time, so one ps takes $2n(\alpha+\beta S)$.)
#
# | way | seconds |
# | --- | --- |
# | one ps: $n$ gradients come in together, $n$ copies of `w` go out | $2(\alpha+\beta nS)$ |
# | tree: pairs add, then pairs of pairs; the sum goes back | $2\lceil\log_2n\rceil(\alpha+\beta S)$ |
# | double tree: $p$ pieces follow each other through each of two trees | $2(\lceil\log_2n\rceil+p-1)(\alpha+\beta S/p)$ |
# | ring: $2(n-1)$ steps, one chunk each | $2(n-1)(\alpha+\beta S/n)$ |
#
# In the *double tree* of NCCL, NVIDIA's library for GPUs, half of the vector travels through each tree.
# The inner nodes of one are leaves of the other, so a machine sends and receives at most two pieces
# at a time, together $S/p$ bytes. We take the best $p$.


# %% jupyter={"source_hidden": true}
def double_tree(n, S):
    depth = np.ceil(np.log2(n))
    best = np.sqrt((depth - 1) * BETA * S / ALPHA)  # here the derivative is 0
    p = np.maximum(1, np.round(best))
    return 2 * (depth + p - 1) * (ALPHA + BETA * S / p)


# %% [markdown]
# **Predict:** 100 workers, 50 µs, 10 Gbit/s. Which way is fastest for 1 KB, for 69 KB (the network of
# this repository's programs), for 100 MB (25 million parameters)?

# %% tags=["predicted"]
ALPHA, BETA = 50e-6, 8 / 10e9  # seconds a message, seconds a byte
WAYS = {
    "one ps": lambda n, S: 2 * (ALPHA + BETA * n * S),
    "tree": lambda n, S: 2 * np.ceil(np.log2(n)) * (ALPHA + BETA * S),
    "double tree": double_tree,
    "ring": lambda n, S: 2 * (n - 1) * (ALPHA + BETA * S / n),
}
print("milliseconds", "".join("%13s" % name for name in WAYS))
for name, size in ("1 KB", 1e3), ("69 KB", 69e3), ("100 MB", 100e6):
    print("%-12s" % name, "".join("%13.2f" % (1000 * way(100, size)) for way in WAYS.values()))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# milliseconds        one ps         tree  double tree         ring
# 1 KB                  0.26         0.71         0.71         9.90
# 69 KB                11.14         1.47         1.23        10.01
# 100 MB            16000.10      1120.70       180.20       168.30
# ```
#
# For 1 KB one ps, because it pays the latency twice, and the ring 198 times. For 69 KB the double
# tree: with $p$ = 3 it pays 18 latencies and $6S$ bytes, the tree 14 and $14S$, one ps 2 and $200S$. For
# 100 MB the ring, then the double tree: both send about $2S$ bytes, but the tree's levels also
# fill up one by one.
#
# </details>

# %% jupyter={"source_hidden": true}
from matplotlib.colors import ListedColormap

assert round(WAYS["one ps"](100, 100e6)) == 16 and round(WAYS["ring"](100, 100e6), 2) == 0.17
assert round(WAYS["one ps"](100, 100e6) / WAYS["ring"](100, 100e6)) == 95
colours = {"one ps": GRAY, "tree": ORANGE, "double tree": PURPLE, "ring": BLUE}
figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.5), layout="constrained")
sizes, workers = np.logspace(2, 9, 200), np.arange(2, 257)
for name, way in WAYS.items():
    line = "--" if name == "double tree" else "-"  # the tree is below it
    left.loglog(sizes, 1000 * way(100, sizes), line, color=colours[name], lw=2)
left.text(130, 13, "ring", color=BLUE)
left.text(130, 0.36, "tree", color=ORANGE)
left.text(130, 1.25, "double tree", color=PURPLE)
left.text(900, 0.11, "one ps", color=GRAY)
left.text(2e6, 6e2, "one ps", color=GRAY, ha="right")
left.text(1.3e7, 2.2e2, "tree", color=ORANGE, ha="right")
left.set(xlabel="S, bytes", ylabel="time of an all-reduce, ms", title="100 workers")
times = np.array([[way(workers, size) for way in WAYS.values()] for size in sizes])
fastest = times.argmin(1)
assert (fastest[:, 0] == 3).all() and set(fastest.ravel()) == {0, 1, 2, 3}  # two: the ring
right.pcolormesh(
    workers, sizes, fastest, alpha=0.4, vmin=0, vmax=3, cmap=ListedColormap(list(colours.values()))
)
right.set(xlabel="n, workers", ylabel="S, bytes", title="The fastest of the four")
right.loglog()
right.set_xticks(2 ** np.arange(1, 9), 2 ** np.arange(1, 9))
right.minorticks_off()
places = {"one ps": (30, 4e2), "tree": (80, 1.1e4), "double tree": (80, 5e5), "ring": (6, 5e7)}
for name, (n_workers, size) in places.items():
    right.text(n_workers, size, name, ha="center", va="center")
    assert WAYS[name](n_workers, size) == min(way(n_workers, size) for way in WAYS.values())
show(
    figure,
    "Left: time of an all-reduce between 100 workers against its size. All are flat at first: one "
    "ps lowest, then tree and double tree, one line, and the ring. Then they rise: the ps first, the "
    "tree next; double tree and ring last, close together. Right: a map of the fastest. One ps is fastest "
    "for small vectors; for longer ones the tree, then, among many workers, the double tree, then the "
    "ring. With two workers the ring is always fastest.",
)

# %% [markdown]
# Where a curve is flat, latencies decide, and where it rises, bytes. The ring loads
# the busiest link least, but pays $2(n-1)$ latencies for any vector. So it wins for long ones; for
# shorter ones, only among few workers, such as the GPUs of one machine.
# ([Ring-Bandwidth](../Measurements/Ring-Bandwidth/) measures real connections.) Whatever the way,
# all workers wait for the slowest, and if one is lost, none can go on.

# %% [markdown]
# ## Exercises
# **1. As many parameter servers as workers.** ★★☆ Each of $n$ machines runs a worker and a ps, and
# each ps holds one chunk of `w`. How long does an all-reduce take in the model? Is it faster than
# the ring?
#
# <details><summary>Hint</summary>
#
# As a worker, a machine pushes one chunk to each of the others; as a ps, it sends its chunk of `w` to
# each of them. Messages that arrive together share the connection, and their latencies overlap.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    for n, S in (8, 1e6), (3, 1e4):
        seconds, right = answer(n, S), 2 * (ALPHA + BETA * (n - 1) * S / n)
        if np.isclose(seconds, WAYS["ring"](n, S)):
            return "these are the bytes of the ring, but here messages do not wait for each other"
        if np.isclose(seconds, right / 2):
            return "the chunks are pushed, and then pulled: two rounds"
        if np.isclose(seconds, 2 * (ALPHA + BETA * S)):
            return "nearly; but a machine need not send its own chunk to itself"
        if np.isclose(seconds, WAYS["one ps"](n, S)):
            return "that is one ps; here each has only a chunk of S / n bytes"
        if np.isclose(seconds, 2 * (ALPHA + BETA * S / n)):
            return "a ps receives its chunk from each of the others, through one connection"
        if not np.isclose(seconds, right):
            where = "%d machines and %g bytes: " % (n, S)
            return where + "count the bytes that one connection carries in each round"


# %%
# Your answer to exercise 1
def answer_1(n, S):
    """Returns the seconds of an all-reduce with n parameter servers; see ALPHA and BETA."""
    raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_1(n, S):
#     return 2 * (ALPHA + BETA * (n - 1) * S / n)
#
#
# assert check_1(answer_1)
# assert answer_1(2, S) == WAYS["ring"](2, S)
# assert all(answer_1(n, 1e6) < WAYS["ring"](n, 1e6) for n in (4, 16, 64))
# ```
#
# A machine sends $\frac{n-1}{n}S$ bytes as a worker and as many as a ps: the bytes of the ring, in two
# rounds instead of $2(n-1)$. The model prefers it, because it does not see that the messages of all
# pairs meet inside the network.
#
# </details>

# %% [markdown]
# **2. Write a collective.** ★★☆ In an *all-to-all* worker $k$ has a row for each worker, and gets from
# each worker the row for itself. Mixture-of-experts models send pieces of text this way. Write it on
# a ring, with nothing but `ring.exchange(out, into)`: it sends the array `out` to the right, and fills `into`, of
# the same shape, from the left. A row should travel no farther than to its worker.
#
# <details><summary>Hint</summary>
#
# Order the rows by their distance: first the one for $k+1$, last the one for $k-1$. After each exchange
# the first of those that have come is your own; the others travel on.
#
# </details>


# %% jupyter={"source_hidden": true}
import concurrent.futures
import queue
import threading


class LocalRing:
    """Worker k of n threads, of which one runs at a time; `sent` counts numbers."""

    def __init__(self, k, arrivals, turn):
        self.k, self.n, self.sent = k, len(arrivals), 0
        self.arrivals, self.turn = arrivals, turn

    def exchange(self, out, into):
        self.arrivals[(self.k + 1) % self.n].put(np.array(out))
        self.turn.release()
        try:
            came = self.arrivals[self.k].get(timeout=1)
        except queue.Empty:
            words = "nothing comes from the left: do all call exchange equally often?"
            raise TimeoutError(words) from None
        finally:
            self.turn.acquire()
        if came.shape != into.shape:
            raise ValueError("%s comes from the left, and into is %s" % (came.shape, into.shape))
        into[...] = came
        self.sent += came.size
        return into


@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    for n, m in (4, 3), (3, 2):
        x = np.random.default_rng(n).normal(size=(n, n, m))  # x[k]: what worker k has
        arrivals, turn = [queue.Queue() for _ in range(n)], threading.Lock()
        rings = [LocalRing(k, arrivals, turn) for k in range(n)]

        def run_worker(k):
            with turn:
                return answer(rings[k], x[k].copy())

        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            found = list(pool.map(run_worker, range(n)))
        for k in range(n):
            if np.shape(found[k]) != (n, m):
                return "return an array of n rows: row j is what worker j had for this worker"
            if np.allclose(found[k], x[k]):
                return "worker %d returns the rows that it had" % k
            for j in range(n):
                if not np.allclose(found[k][j], x[j, k]):
                    return (
                        "with %d workers, row %d of worker %d is not what worker %d had for it"
                        % (*(n, j, k, j),)
                    )
        rows = max(ring.sent for ring in rings) / m
        if rows > n * (n - 1) / 2:
            return "the rows arrive, but of %d workers one sends %g, and %g are enough" % (
                *(n, rows, n * (n - 1) / 2),
            )


# %%
# Your answer to exercise 2
def answer_2(ring, x):
    """Returns [n, m]: row j from worker j. x: [n, m], row j is for worker j; ring.k, ring.n."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(ring, x):
#     k, n = ring.k, ring.n
#     mine = np.zeros_like(x)
#     mine[k] = x[k]
#     moving = np.array([x[(k + d) % n] for d in range(1, n)])
#     for s in range(1, n):
#         moving = ring.exchange(moving, np.empty_like(moving))
#         mine[k - s] = moving[0]
#         moving = moving[1:]
#     return mine
#
#
# assert check_2(answer_2)
# ```
#
# A worker sends $n(n-1)/2$ rows. Where a switch joins all pairs directly, it sends each of its $n-1$
# rows once: for an all-to-all a ring is a poor network.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Patarasuk and Yuan 2009, *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*:
#   the bound. [baidu-allreduce](https://github.com/baidu-research/baidu-allreduce) made it known.
# - Sanders, Speck and Träff 2009, *Two-tree algorithms for full bandwidth broadcast, reduction and
#   scan*: the double tree.
# - [Ring-AllReduce](../Ring-AllReduce/), the whole program. It begins one chunk further: worker $k$
#   first sends chunk $k$, and ends the reduce-scatter with chunk $k+1$.
#
# **Elsewhere:** `torch.distributed.all_reduce`, `jax.lax.psum`.
# [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb) takes the ring's two halves apart.
#
# Next: [Graphs-and-Sessions](Graphs-and-Sessions.ipynb), the language of all programs with a parameter
# server.
