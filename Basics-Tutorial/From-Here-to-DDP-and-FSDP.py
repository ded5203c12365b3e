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
# # From here to DDP and FSDP
# A model of 7.5 billion parameters, trained by an all-reduce, needs 120 GB on *each* GPU, and a usual
# GPU has 80. With the same two halves of the ring, called at other moments, 64 GPUs need 1.9 GB each;
# activations and gathered layers come on top. Here you build both in NumPy: DDP and FSDP, as PyTorch
# calls them.
#
# After this notebook you can:
# - say what DDP does during the backward pass, and why it sends gradients in buckets;
# - explain the 16 bytes that training needs for each parameter;
# - derive what ZeRO 1, 2 and 3 store and send, and choose between them;
# - translate between this course, PyTorch, NCCL and JAX.
#
# **Before it:** [Ring-AllReduce](Ring-AllReduce.ipynb). **Time:** 50 minutes, and 90 for the
# project.

# %% [markdown]
# ## Where this leads
# *DDP*, *DistributedDataParallel*, trains by all-reduce, so every worker stores the whole model. *ZeRO*,
# the Zero Redundancy Optimizer, removes the copies in three stages. *FSDP*, *Fully Sharded Data Parallel*,
# is PyTorch's form of stage 3. A *shard* is the part that one worker stores.
#
# ![What each of three workers stores. DDP: all of the parameters, the gradients and the optimizer state, 16 bytes for each parameter. ZeRO 1: a third of the optimizer state. ZeRO 2: also only a third of the gradients. ZeRO 3: a third of everything.](../docs/figures/zero.svg)
#
# All stages consist of the ring's two halves: a **reduce-scatter** gives worker $k$ part $k$ of the sum,
# an **all-gather** gives every worker all parts. In each a worker sends $\frac{n-1}{n}$ of the vector.
#
# **Notation:** the [glossary](GLOSSARY.md#notation)'s, but $m$ and $v$ are Adam's.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import json
import os
import pathlib
import types
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, ORANGE, PURPLE, RED, finish, new_cluster, show, start

course.begin()
os.environ["OMP_NUM_THREADS"] = "1"  # one thread of computation for each worker process
# The ring of Ring-AllReduce is in neighbours.py: on Colab upload it, too.

# %% [markdown]
# ## The network, layer by layer
# DDP and FSDP depend on the order of events in a step, so this is the digits model without a framework.
# `weights(i)` gives the parameters of layer `i`, one flat vector. The folded `forward` keeps
# the values `a` of each layer. `backward` *yields* the gradient of a layer before it goes on to the layer
# below. PyTorch has a *hook* instead, which `loss.backward()` calls for each parameter.

# %% jupyter={"source_hidden": true}
# %%writefile layers.py
import numpy as np


def split(flat, i, sizes):
    """Returns the weights and the biases of layer i."""
    flat, rows, columns = np.asarray(flat, "float32"), sizes[i], sizes[i + 1]
    return flat[: rows * columns].reshape(rows, columns), flat[rows * columns :][:columns]


def forward(weights, sizes, x):
    """Returns the values of each layer, the input included."""
    a = [x]
    for i in range(len(sizes) - 1):
        W, b = split(weights(i), i, sizes)
        z = a[-1] @ W + b
        a.append(np.maximum(z, 0) if i < len(sizes) - 2 else z)
    return a


def joined(weights, biases, size):
    """Returns both as one vector, with zeros at its end up to this size."""
    flat = np.zeros(size, "float32")
    flat[: weights.size] = weights.ravel()
    flat[weights.size :][: len(biases)] = biases
    return flat


def derivative(scores, y):
    """Returns the derivative of the mean cross-entropy by the scores."""
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)  # the probability of each digit
    p[np.arange(len(y)), y] -= 1
    return p / len(y)


# %%
# %%writefile network.py
from layers import derivative, forward, joined, split


def backward(weights, sizes, a, y):
    """Yields (i, gradient of layer i), the last layer first."""
    d = derivative(a[-1], y)
    for i in reversed(range(len(sizes) - 1)):
        flat = weights(i)
        yield i, joined(a[i].T @ d, d.sum(axis=0), len(flat))
        if i > 0:
            W, _ = split(flat, i, sizes)
            d = (d @ W.T) * (a[i] > 0)


# %% [markdown]
# ## DDP: the all-reduce begins before the backward pass ends
# The gradient of the last layer is known first, and DDP sends it during the backward pass of the layers
# below: *overlap*. Because each message costs a latency, it collects gradients in *buckets*, in PyTorch
# of 25 MB.

# %%
# %%writefile ddp.py
import concurrent.futures
import numpy as np


class DDP:
    def __init__(self, ring, bucket_bytes, overlap=True):
        self.ring, self.bucket_bytes, self.overlap = ring, bucket_bytes, overlap
        # On a GPU: a stream, a queue of operations that run beside the others.
        self.communication = concurrent.futures.ThreadPoolExecutor(1)

    def means(self, gradients):
        """Returns {i: mean of layer i's gradient}. gradients: what backward() yields."""
        if not self.overlap:
            gradients = list(gradients)  # the whole backward pass
        bucket, running = [], []
        for i, g in gradients:
            bucket.append((i, g))
            if sum(g.nbytes for _, g in bucket) >= self.bucket_bytes or i == 0:
                running.append(self.communication.submit(self.all_reduce, bucket))
                bucket = []
        return dict(pair for one in running for pair in one.result())

    def all_reduce(self, bucket):
        """Returns [(i, mean)] for the layers of a bucket, which travel as one vector."""
        total = self.ring.all_reduce(np.concatenate([g for _, g in bucket]))
        ends = np.cumsum([len(g) for _, g in bucket])[:-1]
        return [(i, mean) for (i, _), mean in zip(bucket, np.split(total / self.ring.n, ends))]


# %% [markdown]
# Two processes have nine layers with 7.5 MB of gradients. Each layer takes 4 ms
# forward and 8 ms backward; the network has 1 Gbit/s and a latency of 3 ms. Both are imitated. Four
# ways: each layer alone or all in one, after the backward pass; each alone or in buckets of 2.5 MB, during it.

# %% jupyter={"source_hidden": true}
# %%writefile time_ddp.py
import json
import time
import numpy as np
from ddp import DDP
from neighbours import Ring, this_task

FORWARD, BACKWARD = 0.004, 0.008  # seconds for each layer; asleep, so both workers are equally fast


class SlowRing(Ring):
    """Each exchange lasts as long as on a network of 1 Gbit/s with a latency of 3 ms."""

    def exchange(self, out, into):
        there = time.perf_counter() + 0.003 + out.nbytes / 125e6
        super().exchange(out, into)
        time.sleep(max(0.0, there - time.perf_counter()))
        return into


class Timed(DDP):
    """Notes when it computes and when it sends."""

    def all_reduce(self, bucket):
        began = time.perf_counter()
        found = super().all_reduce(bucket)
        self.spans.append(("send", began, time.perf_counter()))
        return found

    def backward(self):
        for i in reversed(range(len(gradients))):
            began = time.perf_counter()
            time.sleep(BACKWARD)
            self.spans.append(("backward", began, time.perf_counter()))
            yield i, gradients[i]

    def step(self):
        """Returns the seconds that a step takes, and its spans."""
        self.ring.all_reduce(np.zeros(2))  # both workers begin together
        began, self.spans = time.perf_counter(), []
        time.sleep(len(gradients) * FORWARD)
        self.spans.append(("forward", began, time.perf_counter()))
        self.means(self.backward())
        seconds = time.perf_counter() - began
        return seconds, [(what, a - began, b - began) for what, a, b in self.spans]


sizes = [64] + [512] * 8 + [10]
gradients = [np.ones(i * o + o, "float32") for i, o in zip(sizes, sizes[1:])]
ring = SlowRing(*this_task())
ways = {
    "each layer alone, after": Timed(ring, 1, overlap=False),
    "all in one, after": Timed(ring, 1e9, overlap=False),
    "each layer alone, during": Timed(ring, 1),
    "buckets, during": Timed(ring, 2.5e6),
}
steps = {name: [] for name in ways}
for repeat in range(8):
    for name, way in ways.items():
        steps[name].append(way.step())
middle = {name: min(those[1:]) for name, those in steps.items()}  # the least disturbed of seven
print(json.dumps(middle))

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()
values = course.first_values()
layers = {
    "layer_%d" % i: np.append(values["W%d" % (i + 1)], values["b%d" % (i + 1)]) for i in range(2)
}
np.savez("digits.npz", x=x, y=y, **layers)


def run(file, n):
    """Runs a program as n workers; returns what each has printed."""
    cluster = new_cluster(worker=n)
    return [finish(one) for one in [start(file, cluster, "worker", k) for k in range(n)]]


# %% [markdown]
# **Predict:** which of the four is the fastest, and which is the slowest?

# %% tags=["predicted", "measured"]
steps = json.loads(run("time_ddp.py", 2)[0])
longest = max(seconds for seconds, _ in steps.values())
for name, (seconds, _) in steps.items():
    print(
        "%-25s %4.0f ms, %3.0f%% of the slowest" % (name, 1000 * seconds, 100 * seconds / longest)
    )

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# each layer alone, after    231 ms, 100% of the slowest
# all in one, after          179 ms,  78% of the slowest
# each layer alone, during   170 ms,  73% of the slowest
# buckets, during            151 ms,  65% of the slowest
# ```
#
# Fastest: buckets during the backward pass. They pay six latencies instead of eighteen, and a part of
# the sending hides behind the computation. Slowest: each layer alone, after it. (Computed from these
# times and rates, the four take 222, 174, 160 and 146 ms.)
#
# </details>

# %% jupyter={"source_hidden": true}
# The order, checked: what the four must take at least, and that no run was faster.
sizes = [64] + [512] * 8 + [10]
layer_bytes = [4 * (i * o + o) for i, o in zip(sizes, sizes[1:])]


def computed(bucket, overlap):
    """Returns the ms of a step; buckets end as in DDP.means."""
    now = free = 9 * 4.0  # the forward pass; when the network is free
    waiting, held = [], 0
    for i in reversed(range(9)):
        now, held = now + 8, held + layer_bytes[i]
        if held >= bucket or i == 0:
            waiting.append((now, held))
            held = 0
    for ready, size in waiting:  # two messages of half the bytes each
        free = max(free, ready if overlap else now) + 2 * 3 + 1000 * size / 125e6
    return free


least = [computed(*way) for way in ((1, False), (1e9, False), (1, True), (2.5e6, True))]
assert [round(ms) for ms in least] == [222, 174, 160, 146]
assert all(1000 * seconds > ms - 1 for (seconds, _), ms in zip(steps.values(), least))

# %% jupyter={"source_hidden": true} tags=["measured"]
figure, axes = plt.subplots(figsize=(8, 4))
for row, (name, (seconds, spans)) in enumerate(steps.items()):
    for what, began, ended in spans:
        color = {"forward": GRAY, "backward": BLUE, "send": ORANGE}[what]
        place = row + (0.19 if what == "send" else -0.19)
        width = 1000 * (ended - began)
        axes.barh(place, width, 0.36, 1000 * began, color=color, edgecolor="white", linewidth=1)
    axes.text(1000 * seconds + 2, row, "%.0f ms" % (1000 * seconds), va="center")
axes.set(yticks=range(4), yticklabels=steps, xlim=(0, 1120 * longest))
axes.set_xlabel("milliseconds since the step began")
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set_axisbelow(True)
axes.legend(
    handles=[plt.Rectangle((0, 0), 1, 1, color=color) for color in (GRAY, BLUE, ORANGE)],
    labels=["forward pass", "backward pass, layer by layer", "all-reduce"],
    ncols=3,
    loc="lower center",
    bbox_to_anchor=(0.4, 1),
)
show(
    figure,
    "When worker 0 computes and when it sends, in a step of each of the four ways. After: the "
    "all-reduces follow the backward pass. During: they begin with it. Buckets during the backward "
    "pass end first; each layer alone after it ends last.",
)

# %% [markdown]
# The bytes take 60 ms. An all-reduce of two workers adds two latencies of 3 ms: nine add 54 ms, three 18,
# and one 6. The last bucket cannot hide, because the backward pass ends with it. (On two busy cores nothing
# hides: [Packing](../Measurements/Packing/) found no gain.)

# %% [markdown]
# ## Sixteen bytes for each parameter
# Large models are trained with Adam in *mixed precision*: the two passes compute with 2-byte numbers, and
# the optimizer keeps 4-byte ones, in which small steps are not lost. Today the short ones are bfloat16,
# with float32's range. (In float16 small gradients become 0, unless you scale the loss.)
#
# | what | bytes |
# | --- | --- |
# | parameters, for the passes | 2 |
# | gradients | 2 |
# | *optimizer state*: a copy of the parameters, Adam's $m$ and $v$ | 4 + 4 + 4 |
#
# PyTorch's `autocast` and FSDP keep parameters and gradients in float32, without a second copy. The
# sum is the same: 4 + 4 + 4 + 4. Megatron-LM has float32 gradients, so 18 bytes; its ZeRO 1 leaves
# $6 + 12/n$. *Activations*, the values between the layers, come on top ([Beyond-ZeRO](Beyond-ZeRO.ipynb)).

# %% [markdown]
# ## ZeRO: every byte is stored once
# DDP stores all of this $n$ times, but only the worker that updates a parameter needs its optimizer
# state. DDP once more, without buckets:

# %% jupyter={"source_hidden": true}
# %%writefile training.py
"""Adam in float32, a worker's rows of a mini-batch, and its part of a vector."""
import numpy as np

SIZES = [64, 32, 10]
data = np.load("digits.npz")


def first_values(n):
    """Returns a flat vector for each layer, with zeros at its end so that n divides its length."""
    flats = data["layer_0"], data["layer_1"]
    return [np.append(flat, np.zeros(-len(flat) % n)) for flat in flats]


def mini_batch(t, ring):
    """Returns this worker's rows of mini-batch t, which has 32."""
    rows = np.random.RandomState(t).randint(0, len(data["x"]), 32)[ring.k :: ring.n]
    return x[rows], y[rows]


def part(flat, ring):
    return np.split(flat, ring.n)[ring.k].copy()


class Adam:
    def __init__(self, w, lr=0.01):
        self.lr, self.t = lr, 0
        self.w = w.astype("float32")
        self.m, self.v = np.zeros_like(self.w), np.zeros_like(self.w)

    def step(self, g):
        """Returns the new parameters."""
        g, self.t = g.astype("float32"), self.t + 1
        self.m += 0.1 * (g - self.m)
        self.v += 0.001 * (g * g - self.v)
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        self.w -= self.lr * m / (np.sqrt(v) + 1e-8)
        return self.w


x, y = data["x"], data["y"]

# %%
# %%writefile zero_0.py
from network import backward, forward
from training import SIZES, Adam, mini_batch, part


def train(ring, first, dtype, updates):
    w = [flat.astype(dtype) for flat in first]
    adam = [Adam(flat) for flat in first]
    g = [None] * len(first)
    weights = lambda i: w[i]
    for t in range(updates):
        x, y = mini_batch(t, ring)
        a = forward(weights, SIZES, x)
        for i, gradient in backward(weights, SIZES, a, y):
            g[i] = gradient.astype(dtype)
        for i in range(len(w)):
            mean = ring.all_reduce(g[i]) / ring.n
            w[i] = adam[i].step(mean).astype(dtype)
    return w, g, adam


# %% [markdown]
# Each stage changes a few lines of the one before. `part(flat, ring)` is part $k$.
# **Stage 1** shards the optimizer: between the halves of the all-reduce, worker $k$ updates its
# part, so the second half carries parameters.


# %% jupyter={"source_hidden": true}
def changed(before, after, diff):
    """Writes a program: another one with these lines, `-` replaced by `+`; others are context."""
    text, old, new = pathlib.Path(before).read_text(), "", ""
    for line in [*diff.strip("\n").split("\n"), ""]:
        if old and not line.startswith("+"):  # the end of a change
            assert text.count(old) == 1, old
            text, old, new = text.replace(old, new), "", ""
        if line.startswith("-"):
            old += line[1:] + "\n"
        elif line.startswith("+"):
            new += line[1:] + "\n"
    pathlib.Path(after).write_text(text)


# %%
changed(
    "zero_0.py",
    "zero_1.py",
    """
-    adam = [Adam(flat) for flat in first]
+    adam = [Adam(part(flat, ring)) for flat in first]

-            mean = ring.all_reduce(g[i]) / ring.n
-            w[i] = adam[i].step(mean).astype(dtype)
+            mean = ring.reduce_scatter(g[i]) / ring.n
+            w[i] = ring.all_gather(adam[i].step(mean).astype(dtype))
""",
)

# %% [markdown]
# **Stage 2** shards the gradients: each is reduced as soon as it is known, and worker $k$ keeps part $k$.

# %%
changed(
    "zero_1.py",
    "zero_2.py",
    """
-            g[i] = gradient.astype(dtype)
+            g[i] = ring.reduce_scatter(gradient.astype(dtype)) / ring.n

-            mean = ring.reduce_scatter(g[i]) / ring.n
-            w[i] = ring.all_gather(adam[i].step(mean).astype(dtype))
+            w[i] = ring.all_gather(adam[i].step(g[i]).astype(dtype))
""",
)

# %% [markdown]
# **Stage 3** shards the parameters: nobody stores a whole layer. `weights` gathers it for the forward
# pass and again for the backward pass, which drop it after use.

# %%
changed(
    "zero_2.py",
    "zero_3.py",
    """
-    w = [flat.astype(dtype) for flat in first]
+    w = [part(flat, ring).astype(dtype) for flat in first]

-    weights = lambda i: w[i]
+    weights = lambda i: ring.all_gather(w[i])

-            w[i] = ring.all_gather(adam[i].step(g[i]).astype(dtype))
+            w[i] = adam[i].step(g[i]).astype(dtype)
""",
)

# %% [markdown]
# Four workers train the digits in each stage, in float32 and float16.

# %% jupyter={"source_hidden": true}
# %%writefile stages.py
import importlib
import json
import numpy as np
from neighbours import Ring, this_task
from training import first_values

ring, report, updates = Ring(*this_task()), {}, 200
for dtype in ("float32", "float16"):
    for stage in range(4):
        program, ring.sent = importlib.import_module("zero_%d" % stage), 0
        w, g, adam = program.train(ring, first_values(ring.n), dtype, updates)
        state = [one for a in adam for one in (a.w, a.m, a.v)]
        stored = [sum(one.nbytes for one in those) for those in (w, g, state)]
        report["%s %d" % (dtype, stage)] = [*stored, ring.sent // updates]
        whole = [ring.all_gather(flat) if stage == 3 else flat for flat in w]
        np.savez("zero-%s-%d-%d.npz" % (dtype, stage, ring.k), *whole)
print(json.dumps(report))


# %% jupyter={"source_hidden": true}
def trained(dtype, stage, k=0):
    return list(np.load("zero-%s-%d-%d.npz" % (dtype, stage, k)).values())


def accuracy(w):
    a = network.forward(w.__getitem__, [64, 32, 10], x_test)
    return float(np.mean(a[-1].argmax(axis=1) == y_test))


def print_bytes(counts):
    """Prints what a worker stores and sends with float16."""
    print("\nbytes for each parameter, with float16 and 4 workers")
    print("          w     g   optimizer   together   sent in an update")
    for stage, name in enumerate(["DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3"]):
        # 2,410 parameters, and two zeros, so that four workers can divide each layer
        w, g, optimizer, sent = (count / 2412 for count in counts["float16 %d" % stage])
        row = name, w, g, optimizer, w + g + optimizer, sent
        print("%-7s %4.1f  %4.1f  %10.1f  %9.1f  %18.1f" % row)


# %% [markdown]
# **Predict:** do all four stages end with the same bits? Which stages send more bytes than DDP?

# %% tags=["predicted"]
counts = json.loads(run("stages.py", 4)[0])
for dtype in ("float32", "float16"):
    reference = trained(dtype, 0)
    others = [trained(dtype, stage, k) for stage in range(4) for k in range(4)]
    same = all(np.array_equal(a, b) for other in others for a, b in zip(reference, other))
    print("%s: the same bits in all stages, on all workers: %s" % (dtype, same))
print_bytes(counts)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# float32: the same bits in all stages, on all workers: True
# float16: the same bits in all stages, on all workers: True
#
# bytes for each parameter, with float16 and 4 workers
#           w     g   optimizer   together   sent in an update
# DDP      2.0   2.0        12.0       16.0                 3.0
# ZeRO 1   2.0   2.0         3.0        7.0                 3.0
# ZeRO 2   2.0   0.5         3.0        5.5                 3.0
# ZeRO 3   0.5   0.5         3.0        4.0                 4.5
# ```
#
# They do: all make the same sums in the same order. Stages 1 and 2 send as much as DDP, whose
# all-reduce *is* their reduce-scatter and all-gather. Stage 3 sends 1.5 times as much, because it gathers
# the parameters twice.
#
# </details>

# %% jupyter={"source_hidden": true}
import network
import training
import zero_0

alone = types.SimpleNamespace(k=0, n=1, all_reduce=lambda x: x)  # one worker, without a ring
single, _, _ = zero_0.train(alone, training.first_values(1), "float32", 200)
for one, other in zip(single, trained("float32", 0)):
    assert np.abs(one - other[: len(one)]).max() < 1e-3
assert min(accuracy(single), accuracy(trained("float16", 3))) > 0.94

# %% [markdown]
# In general, DDP and stages 1 to 3 store $16$, $4+12/n$, $2+14/n$ and $16/n$ bytes for each parameter. An
# update of $P$ parameters of 2 bytes sends $2\frac{n-1}{n}2P$ bytes, in stage 3 $3\frac{n-1}{n}2P$.

# %% [markdown]
# In stage 3 a layer is whole while it is used, so you wrap *parts* of a model, such as the blocks of a
# transformer. FSDP gathers the next block meanwhile, as
# [Sharded-Training](../Further-Algorithms/Sharded-Training/) does. In PyTorch (not run here; `reshard_after_forward=False`
# is close to stage 2):
#
# ```python
# model = DistributedDataParallel(model)   # sends rank 0's w to all; loss.backward() all-reduces
#
# for block in model.blocks:               # or, for ZeRO 3:
#     fully_shard(block)                   # gather, use, drop, block by block
# fully_shard(model)                       # what is left
# ```
#
# ## How large is large?
# The ZeRO paper's example has 7.5 billion parameters.


# %%
def gigabytes(stage, parameters, n):
    """What a worker stores of the model, its gradients and Adam's state in mixed precision."""
    return parameters * [16, 4 + 12 / n, 2 + 14 / n, 16 / n][stage] / 1e9


# %% jupyter={"source_hidden": true}
names = ["DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
for stage in range(4):
    stored = sum(counts["float16 %d" % stage][:3]) / 2412
    assert stored == gigabytes(stage, 1e9, 4), "the formulas are those of the run"
    assert counts["float16 %d" % stage][3] == [3, 3, 3, 4.5][stage] * 2412
assert [round(gigabytes(stage, 7.5e9, 64), 1) for stage in range(4)] == [120, 31.4, 16.6, 1.9]
figure, axes = plt.subplots(figsize=(7, 3.2))
n = 2 ** np.arange(0, 11)
for stage, color in enumerate((GRAY, BLUE, ORANGE, PURPLE)):
    size = np.array([gigabytes(stage, 7.5e9, each) for each in n])
    axes.plot(n, size, "o-", color=color, ms=4)
    axes.text(1150, size[-1], names[stage], va="center", color=color)
axes.axhline(80, color=RED, ls="--", lw=1)
axes.text(1024, 74, "a GPU with 80 GB", color=RED, va="top", ha="right")
axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="GB on each worker", ylim=(0.08, 250))
axes.set_xticks(n, n)
axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
axes.minorticks_off()
show(
    figure,
    "Gigabytes that each worker stores of a model with 7.5 billion parameters, for 1 to 1,024 "
    "workers. DDP stays at 120. ZeRO 1 falls towards 30, ZeRO 2 towards 15. ZeRO 3 falls without a "
    "limit, to 0.1 GB.",
)

# %% [markdown]
# Choose
# - **DDP**, if 16 bytes for each parameter and the activations fit into one device;
# - **ZeRO 1**, if the optimizer state does not fit. It sends no more, also with *gradient accumulation*
#   (several mini-batches before an update), and suits pipelines;
# - **ZeRO 2**, if the gradients do not fit either. With accumulation it sends more (exercise 2);
# - **ZeRO 3**, if the parameters do not fit. It needs a fast network and large mini-batches;
# - more than ZeRO, if activations or a single *layer* are too large:
#   [Data-and-Model-Parallelism](Data-and-Model-Parallelism.ipynb),
#   [Beyond-ZeRO](Beyond-ZeRO.ipynb).
#
# ## The dictionary
# | here | PyTorch | NCCL | JAX |
# | --- | --- | --- | --- |
# | rank `k` of `n` | rank, world size | rank, `nranks` | `lax.axis_index` |
# | all-reduce | `all_reduce` | `ncclAllReduce` | `lax.psum` |
# | reduce-scatter | `reduce_scatter_tensor` | `ncclReduceScatter` | `lax.psum_scatter` |
# | all-gather | `all_gather_into_tensor` | `ncclAllGather` | `lax.all_gather` |
# | synchronous SGD | DDP | – | a sharded batch |
# | `w` on several servers | FSDP | – | sharded parameters |

# %% [markdown]
# ## Exercises
# **1. How many GPUs?** ★☆☆ On paper: a model has 70 billion parameters, and a GPU 80 GB, of which 30
# are for the activations. How many GPUs does each stage need? `None` if it never fits.
#
# <details><summary>Hint</summary>
#
# `gigabytes(stage, 70e9, n)` must be at most 50. For a large `n`, what is left of $4+12/n$?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.size(answer) != 4:
        return "give four entries, for DDP and for the stages 1 to 3"
    if answer[0] is not None:
        return "DDP stores 16 bytes for each parameter, 1,120 GB, on every GPU"
    if answer[1] is not None or answer[2] is not None:
        return "stages 1 and 2 have a floor of 4 and 2 bytes, 280 and 140 GB, however many GPUs"
    if answer[3] == 14:
        return "30 of the 80 GB are for the activations"
    if answer[3] == 22:
        return "22 GPUs store 50.9 GB each: round up"
    if answer[3] != 23:
        return "stage 3 divides 1,120 GB by n, and 50 GB are free"


# %%
# Your answer to exercise 1: [DDP, ZeRO 1, ZeRO 2, ZeRO 3]
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def needed(stage):
#     return next((n for n in range(1, 10_000) if gigabytes(stage, 70e9, n) <= 50), None)
#
#
# answer_1 = [needed(stage) for stage in range(4)]
#
# assert check_1(answer_1)
# ```
#
# DDP and stages 1 and 2 need at least 1,120, 280 and 140 GB, whatever `n` is. Only stage 3 has no floor:
# 1,120 / 50 = 22.4, so 23 GPUs.
#
# </details>

# %% [markdown]
# **2. Gradient accumulation.** ★★☆ A worker computes the gradients of `M` mini-batches before each
# update. How many bytes does it send for each parameter in an update, in each stage, if it never
# stores more than the stage allows? The numbers that travel have 2 bytes.
#
# <details><summary>Hint</summary>
#
# Count the reduce-scatters and all-gathers of an update; each sends $\frac{n-1}{n}\cdot2$ bytes for
# each parameter. Stages 0 and 1 may store a whole gradient, the others may not.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    half = 3 / 4 * 2  # of a reduce-scatter or an all-gather of 4 workers
    ddp, one, two, three = (answer(stage, 4, 8) / half for stage in range(4))
    if np.isclose(ddp, 16):
        return "DDP adds up its 8 gradients, and calls one all-reduce (PyTorch: no_sync)"
    if np.isclose(ddp, 2 / (3 / 4)):
        return "(n - 1)/n is missing: a worker does not send its own part to itself"
    if np.isclose(ddp, 4):
        return "the numbers that travel have 2 bytes each, not 4"
    if not np.isclose(ddp, 2):
        return "DDP: an all-reduce is one reduce-scatter and one all-gather"
    if not np.isclose(one, 2):
        return "stage 1 stores a whole gradient, as DDP does, and can add up before it reduces"
    if np.isclose(two, 2):
        return "stage 2 stores only a part of the gradient: it cannot wait for the 8th mini-batch"
    if np.isclose(two, 16):
        return "stage 2 reduces each gradient, but it gathers w only once, after the update"
    if not np.isclose(two, 9):
        return "stage 2: count the reduce-scatters of 8 mini-batches and the all-gathers of w"
    if np.isclose(three, 3):
        return "stage 3 drops w after each use: it gathers w for each of the 8 mini-batches"
    if not np.isclose(three, 24):
        return "stage 3: two all-gathers and a reduce-scatter for each mini-batch"
    for n, M in (8, 1), (2, 3):
        halves = np.array([answer(stage, n, M) for stage in range(4)]) / ((n - 1) / n * 2)
        if not np.allclose(halves, [2, 2, M + 1, 3 * M]):
            return "right for 4 workers and 8 mini-batches, and wrong for %d and %d" % (n, M)


# %%
# Your answer to exercise 2
def answer_2(stage, n, M):
    """Returns the bytes sent for each parameter in an update of n workers and M mini-batches."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(stage, n, M):
#     reduce_scatters, all_gathers = [(1, 1), (1, 1), (M, 1), (M, 2 * M)][stage]
#     return (reduce_scatters + all_gathers) * (n - 1) / n * 2
#
#
# assert check_2(answer_2)
# assert [answer_2(stage, 4, 1) for stage in range(4)] == [3, 3, 3, 4.5]  # as measured above
# ```
#
# With 8 mini-batches and 4 workers, stage 2 sends 13.5 bytes instead of 3, stage 3 36 instead of 4.5.
# Only DDP and stage 1 keep their cost.
#
# </details>

# %% [markdown]
# ## A project: one block ahead
# `zero_3.py` gathers a layer when it is needed, so network and computation take turns. A folded file
# imitates a slow network: each layer computes 20 ms forward and 40 ms backward, and each message takes
# 20 ms.

# %% jupyter={"source_hidden": true}
# %%writefile time_ahead.py
"""python time_ahead.py MODULE: trains with its train(), slowly; prints what it found."""
import importlib
import json
import sys
import time
import numpy as np
import network
import training
from neighbours import Ring, this_task

LAYERS = 4
training.SIZES[:] = [64] + [32] * (LAYERS - 1) + [10]
events, uses = [], []  # +1: a layer is being gathered; -1: one is in use, and when


class SlowRing(Ring):
    def exchange(self, out, into):
        there = time.perf_counter() + 0.020
        super().exchange(out, into)
        time.sleep(max(0.0, there - time.perf_counter()))
        return into

    def all_gather(self, part, size=None):
        events.append(1)
        return super().all_gather(part, size)


def slowly(one_pass, seconds):
    """Returns a pass whose layers compute for so many seconds."""

    def slow_pass(weights, *rest):
        def used(i):
            whole = weights(i)
            events.append(-1)
            uses.append(time.perf_counter())
            time.sleep(seconds)
            return whole

        return one_pass(used, *rest)

    return slow_pass


network.forward = slowly(network.forward, 0.020)
network.backward = slowly(network.backward, 0.040)
program, ring = importlib.import_module(sys.argv[1]), SlowRing(*this_task())
random = np.random.RandomState(0)
first = []
for rows, columns in zip(training.SIZES, training.SIZES[1:]):
    flat = random.normal(0, (2 / rows) ** 0.5, rows * columns + columns)
    first.append(np.append(flat, np.zeros(-len(flat) % ring.n)).astype("float32"))
ring.all_reduce(np.zeros(2))  # both workers begin together
ring.sent = 0
events.clear()
w, g, adam = program.train(ring, first, "float32", 5)
found = {
    "seconds": float(min(np.diff(uses[:: 2 * LAYERS]))),  # of the least disturbed update
    "sent": ring.sent,
    "ahead": int(max(np.cumsum(events))),
    "stored": [len(flat) for flat in w],
    "whole": [len(flat) for flat in first],
    "w": [np.asarray(flat, "float64").tolist() for flat in w],
}
print(json.dumps(found))

# %% [markdown]
# **Project. ZeRO 3, one block ahead.** ★★★ `print(pathlib.Path("zero_3.py").read_text())` shows where
# to begin. Write its `train` anew, as one function, with what it imports and `ThreadPoolExecutor`:
# - while a layer computes, the network gathers the next one or reduce-scatters the last gradient;
# - no more than *one* layer is gathered before it is needed;
# - bits and bytes are those of `zero_3.py`, and each worker stores only its parts.
#
# <details><summary>Hint</summary>
#
# 1. One thread for the network, `ThreadPoolExecutor(1)`: it takes all calls of the ring in their order,
#    which must be that of the other workers.
# 2. The order in which layers are used is known: 0 to L − 1, then L − 1 to 0.
# 3. `weights(i)` waits for its layer, submits the gather of the next one, and returns its own.
# 4. `backward` yields a gradient before it asks for the layer below: submit its reduce-scatter, and wait
#    for all of them after the loop.
#
# </details>


# %% jupyter={"source_hidden": true}
import inspect


def timed(module):
    """Runs a module's train() as two workers; returns what each has found."""
    cluster = new_cluster(worker=2)
    processes = [start("time_ahead.py", cluster, "worker", k, module) for k in range(2)]
    return [json.loads(finish(one)) for one in processes]


IMPORTS = """from concurrent.futures import ThreadPoolExecutor
from network import backward, forward
from training import SIZES, Adam, mini_batch, part


"""


def as_module(answer):
    """Returns the text of a module whose train() is this function."""
    return IMPORTS + inspect.getsource(answer) + "\n\ntrain = %s\n" % answer.__name__


@course.exercise
def check_project(answer):
    """What is wrong in words, or None."""
    text = answer if isinstance(answer, str) else as_module(answer)
    if "raise NotImplementedError" in text:
        raise NotImplementedError
    pathlib.Path("zero_3_ahead.py").write_text(text)
    slow, fast = timed("zero_3"), timed("zero_3_ahead")
    for k, (before, after) in enumerate(zip(slow, fast)):
        if after["stored"] != before["stored"]:
            return "worker %d stores %s numbers of the layers, and may store %s" % (
                k,
                after["stored"],
                before["stored"],
            )
        if after["w"] != before["w"]:
            return "worker %d does not end with the bits of zero_3.py" % k
        if after["sent"] != before["sent"]:
            return "worker %d sends %d bytes instead of %d" % (k, after["sent"], before["sent"])
        if after["ahead"] > 2:
            return (
                "%d layers are gathered before they are used: one ahead, and the one in use"
                % (after["ahead"])
            )
        if not after["seconds"] < 0.8 * before["seconds"]:
            return (
                "an update takes %.2f s, with zero_3.py %.2f s: network and layers take turns"
                % (
                    after["seconds"],
                    before["seconds"],
                )
            )


# %%
# Your answer to the project
def answer_project(ring, first, dtype, updates):
    raise NotImplementedError


check_project(answer_project)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_project(ring, first, dtype, updates):
#     w = [part(flat, ring).astype(dtype) for flat in first]
#     adam = [Adam(part(flat, ring)) for flat in first]
#     g, L = [None] * len(first), len(first)
#     uses = [*range(L), *reversed(range(L))]
#     network = ThreadPoolExecutor(1)
#     for t in range(updates):
#         x, y = mini_batch(t, ring)
#         order = iter(uses)
#         coming = [network.submit(ring.all_gather, w[next(order)])]
#
#         def weights(i):
#             whole, following = coming.pop().result(), next(order, None)
#             if following is not None:
#                 coming.append(network.submit(ring.all_gather, w[following]))
#             return whole
#
#         a = forward(weights, SIZES, x)
#         sums = {}
#         for i, gradient in backward(weights, SIZES, a, y):
#             sums[i] = network.submit(ring.reduce_scatter, gradient.astype(dtype))
#         for i in range(L):
#             g[i] = sums[i].result() / ring.n
#             w[i] = adam[i].step(g[i]).astype(dtype)
#     return w, g, adam
#
#
# assert check_project(answer_project)
# ```
#
# FSDP does the same with a stream of the GPU instead of a thread.
# [Sharded-Training](../Further-Algorithms/Sharded-Training/) is a whole program of this kind.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Li et al. 2020, [PyTorch Distributed](https://arxiv.org/abs/2006.15704): hooks and buckets.
# - Rajbhandari et al. 2020, [ZeRO](https://arxiv.org/abs/1910.02054): the stages and the 16 bytes.
# - Zhao et al. 2023, [PyTorch FSDP](https://arxiv.org/abs/2304.11277).
# - **Elsewhere:** TensorFlow's DDP is `MultiWorkerMirroredStrategy`; its strategies have no FSDP.
#
# Next: [Data-and-Model-Parallelism](Data-and-Model-Parallelism.ipynb), which cuts the model.
