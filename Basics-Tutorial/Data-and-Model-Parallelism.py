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
# # Data and model parallelism
# When one layer exceeds the memory of a GPU, or each GPU has too few examples left, you must cut the
# model itself, between its layers or inside them. The wrong cut leaves most of your devices idle: three
# stages that take turns are idle for two thirds of the time. You will bring this below a tenth,
# and say which cut must stay inside a machine.
#
# After this notebook you can:
# - say what data, pipeline and tensor parallelism store and send;
# - put layers on different devices, and measure what they send;
# - compute the idle share of a pipeline, and say what GPipe, 1F1B and PipeDream do about it;
# - cut two layers as Megatron-LM does, with one all-reduce forward and one backward.
#
# **Before it:** [Ring-AllReduce](Ring-AllReduce.ipynb),
# [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb). **Time:** 40 minutes.

# %% [markdown]
# ## Three ways to divide one step
# A step multiplies a batch $X$ by $W_1$, then by $W_2$. Two devices can share that in three ways:
#
# ![Two layers W1 and W2, a batch X, and two devices in each of three cases. Data parallelism: each device has half of the rows of X and a copy of both matrices; they exchange gradients as large as w. Layers in two places: device 0 has X and W1, device 1 has W2; H and its gradient cross. Tensor parallelism: both have X, each has half of the columns of W1 and half of the rows of W2; they exchange and add partial sums.](../docs/figures/parallelism.svg)
#
# The second and third are *model parallelism*. All must give the update of one device, here for the
# digits' network and 64 examples: a folded cell computes it, `ONE_DEVICE`.
#
# **Notation:** the [glossary](GLOSSARY.md#notation)'s; $H$ is the hidden layer.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, new_cluster, show

course.begin()

# %% jupyter={"source_hidden": true}
x, y, _, _ = course.load()
X, labels, LR = x[:64], y[:64], 0.2
FIRST = list(course.first_values().values())  # W1, b1, W2, b2
any_x, any_y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
any_w = [tf.placeholder(tf.float32, v.shape) for v in FIRST]
gradients_of_w = tf.gradients(course.loss(any_w, any_x, any_y), any_w)
local = tf.Session()


def gradient(w, rows_x, rows_y):
    """Returns the gradient of the mean loss of these rows at w, on one device."""
    return local.run(gradients_of_w, {any_x: rows_x, any_y: rows_y, **dict(zip(any_w, w))})


def close(one, other):
    return all(np.allclose(a, b, atol=1e-6) for a, b in zip(one, other))


g_whole = gradient(FIRST, X, labels)
ONE_DEVICE = [v - LR * d for v, d in zip(FIRST, g_whole)]  # what all others must reach

cluster = new_cluster(worker=2)
server = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in range(2)]
WORKER = ["/job:worker/task:%d" % k for k in range(2)]

# %% [markdown]
# ## Model parallelism: cut between the layers
# Worker 0 holds and updates the first layer, worker 1 the second:
#
# $$H = \mathrm{relu}(X W_1 + b_1) \text{ on worker 0}, \qquad \mathrm{loss}(H W_2 + b_2) \text{ on worker 1}$$
#
# TensorFlow sends a tensor to the device that needs it. `colocate_gradients_with_ops` computes each
# gradient on the device of its forward op.

# %%
with tf.Graph().as_default(), tf.Session(server[0].target) as session:
    with tf.device(WORKER[0]):
        rows_x = tf.placeholder(tf.float32, [64, 64])
        first = [tf.get_variable(name, initializer=v) for name, v in zip(("W1", "b1"), FIRST)]
        H = tf.nn.relu(rows_x @ first[0] + first[1])
    with tf.device(WORKER[1]):
        second = [tf.get_variable(name, initializer=v) for name, v in zip(("W2", "b2"), FIRST[2:])]
        scores = H @ second[0] + second[1]
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(each)
    g = tf.gradients(loss, first + second, colocate_gradients_with_ops=True)
    update = []
    for v, d in zip(first + second, g):
        with tf.device(v.device):
            update.append(v.assign_sub(LR * d).op)
    session.run(tf.global_variables_initializer())
    session.run(update, {rows_x: X})
    assert close(session.run(first + second), ONE_DEVICE)
    _, sent = course.transfers(session, update, {rows_x: X})

# %% [markdown]
# **Predict:** $H$ and its gradient cross. How many bytes is each for 64 examples? And with twice the
# examples, or with twice the inputs, so that $W_1$ doubles?

# %% tags=["predicted"]
for (source, target), size in sorted(sent.items()):
    print("%s -> %s: %5d bytes" % (source, target, size))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# worker 0 -> worker 1:  8192 bytes
# worker 1 -> worker 0:  8192 bytes
# ```
#
# $H$ has 32 numbers of 4 bytes for each of 64 examples, and so has its gradient. They double with the
# examples, but not with the inputs, because only the width of $H$ counts. Data parallelism sends 9,640
# bytes, as many as `w` has, for any batch.
#
# </details>
#
# But the workers take turns: you gain memory, not speed.
#
# ## Pipelines
# GPipe (Huang et al. 2019) cuts the batch into $M$ *micro-batches*. While *stage* 1 (the layers of
# device 1) computes the first, stage 0 computes the second:
#
# ![Schedules of three stages and five micro-batches; a backward pass takes twice as long as a forward one. Sequential: one stage works at a time, 67% idle. GPipe: all forward passes, then all backward passes, 29% idle. 1F1B: the two in turn, also 29% idle, but stage 0 stores the activations of three micro-batches at most instead of five.](../docs/figures/pipeline.svg)
#
# `w` moves only after a *flush*, when all micro-batches have passed, by the mean of their
# gradients. They are equally large, so the update does not depend on $M$:

# %% jupyter={"source_hidden": true}
for M in 1, 4, 16:
    parts = [gradient(FIRST, *rows) for rows in zip(np.split(X, M), np.split(labels, M))]
    mean = [sum(of_all) / M for of_all in zip(*parts)]
    print("%2d micro-batches, the gradient of the whole batch:" % M, close(mean, g_whole))
    assert close(mean, g_whole)

# %% [markdown]
# The gaps at both ends are the *bubble*. A folded `simulate` runs $K$ stages: a forward pass takes one
# unit of time, a backward pass two, messages none. We also try *zero bubble* (Qi et al. 2024). It cuts a
# backward pass into B, the gradient of the activations, for which the stage before waits, and W, that of
# the weights.


# %%
def gpipe(k, K, M):
    """Returns what stage k does, in order: all forward passes, then all backward passes."""
    return [("F", m) for m in range(M)] + [("B", m) for m in range(M)]


def one_f_one_b(k, K, M):
    """Some forward passes to fill the pipeline; then one forward, one backward, in turn."""
    ahead = min(K - 1 - k, M)
    order = [("F", m) for m in range(ahead)]
    for m in range(M - ahead):
        order += [("F", ahead + m), ("B", m)]
    return order + [("B", m) for m in range(M - ahead, M)]


def zero_bubble(k, K, M):
    """1F1B with halved backward passes; stage k does its W's k micro-batches later."""
    order = []
    for kind, m in one_f_one_b(k, K, M):
        order += [(kind, m), ("W", m - k)] if kind == "B" and m >= k else [(kind, m)]
    return order + [("W", m) for m in range(max(M - k, 0), M)]


# %% jupyter={"source_hidden": true}
def simulate(schedule, K, M):
    """Returns the idle share, and how many micro-batches' activations stage 0 stores at most."""
    waiting = [schedule(k, K, M) for k in range(K)]
    last = "W" if ("W", 0) in waiting[0] else "B"  # then the activations are dropped
    end, free = {}, [0] * K  # when a pass ends; when a stage is free
    stored = np.cumsum([{"F": 1, last: -1}.get(kind, 0) for kind, _ in waiting[0]]).max()
    while any(waiting):
        for k in range(K):
            while waiting[k]:
                kind, m = waiting[k][0]
                before = (kind, m, {"F": k - 1, "B": k + 1, "W": -1}[kind])
                if 0 <= before[2] < K and before not in end:
                    break
                takes = 2 if (kind, last) == ("B", "B") else 1
                free[k] = end[kind, m, k] = max(free[k], end.get(before, 0)) + takes
                waiting[k].pop(0)
    return 1 - 3 * M / max(free), stored


# %% [markdown]
# **Predict:** how large is the bubble of four stages and twelve micro-batches with GPipe's schedule
# and with 1F1B? How much of it remains if the W's fill the gaps?

# %% tags=["predicted"]
for schedule in gpipe, one_f_one_b, zero_bubble:
    idle, stored = simulate(schedule, 4, 12)
    print("%-12s %4.1f%% idle, stage 0 stores %2d" % (schedule.__name__, 100 * idle, stored))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# gpipe        20.0% idle, stage 0 stores 12
# one_f_one_b  20.0% idle, stage 0 stores  4
# zero_bubble   7.7% idle, stage 0 stores  4
# ```
#
# It is 3/15 for both: beside its twelve turns a stage waits for three, until the first micro-batch and
# the last gradient come. 1F1B saves memory, because at most $K$ micro-batches are under way. With W in the
# gaps, as in the paper's ZB-H1, a third of the bubble remains; ZB-H2 removes nearly all, for about twice
# the activations.
#
# </details>
#
# In general this is their idle share (many texts divide by the *ideal* time instead, $(K - 1)/M$):
#
# $$\frac{K - 1}{M + K - 1}$$
#
# *Interleaved* 1F1B gives each device $v$ short stages instead of a long one: the bubble becomes $v$
# times shorter, for $v$ times the messages.

# %% jupyter={"source_hidden": true}
counts = np.arange(1, 33)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for K, color in (2, BLUE), (4, ORANGE), (8, PURPLE):
    left.plot(counts, 100 * (K - 1) / (counts + K - 1), color=color)
    idle = [100 * simulate(one_f_one_b, K, M)[0] for M in counts[::3]]
    left.plot(counts[::3], idle, "o", ms=4, color=color)
    left.text(33, 100 * (K - 1) / (32 + K - 1), "K = %d" % K, color=color, va="center")
left.set(xlabel="M, micro-batches", ylabel="idle share of a stage, %", ylim=(0, 100), xlim=(0, 39))
left.set_title("lines: $(K-1)/(M+K-1)$; dots: 1F1B, simulated", fontsize=10)
for schedule, color in (gpipe, GRAY), (one_f_one_b, GREEN):
    right.plot(counts, [simulate(schedule, 4, M)[1] for M in counts], color=color, lw=2)
right.text(20, 24, "GPipe", color=GRAY, ha="right")
right.text(20, 5.5, "1F1B", color=GREEN)
right.set(xlabel="M, micro-batches", ylabel="micro-batches stored", ylim=(0, 34))
right.set_title("activations in stage 0, K = 4", fontsize=10)
show(
    figure,
    "Left: the idle share of a pipeline falls with the number of micro-batches and grows with the "
    "number of stages; simulated dots lie on the lines of the formula. Right: GPipe stores the "
    "activations of all micro-batches in stage 0, 1F1B those of at most 4.",
)
for K, M in (2, 1), (3, 4), (4, 12), (8, 16):
    for schedule in (gpipe, one_f_one_b):
        assert np.isclose(simulate(schedule, K, M)[0], (K - 1) / (M + K - 1))
for K, M in (3, 6), (4, 12), (8, 16):
    assert np.isclose(simulate(zero_bubble, K, M)[0], (K - 1) / (3 * M + K - 1))
    assert simulate(zero_bubble, K, M)[1] == simulate(one_f_one_b, K, M)[1] == K

# %% [markdown]
# $M$ should be much larger than $K$, but small micro-batches use a device badly, so there is a best $M$
# ([Pipeline](../Measurements/Pipeline/)).
#
# **PipeDream** (Narayanan et al. 2019) is 1F1B without a bubble, because it never flushes. A stage
# updates its part of `w` as soon as a gradient arrives, while other mini-batches are on their way. So
# stage $k$ computes $K - 1 - k$ updates behind, which is [staleness](Stale-Gradients.ipynb) inside one
# model. *Weight stashing* keeps the version of a forward pass for its backward pass.
#
# ## Tensor parallelism: cut inside the layers
# Megatron-LM (Shoeybi et al. 2019) cuts two layers, the first by columns $U_k$ of $W_1$, the second
# by rows $V_k$ of $W_2$:
#
# $$Y = \mathrm{relu}(X W_1) W_2 = \mathrm{relu}(X U_0) V_0 + \mathrm{relu}(X U_1) V_1$$
#
# ![Tensor parallelism of two layers on two devices. Device 0 has U_0 and V_0, device 1 the others. Forward: f, the identity, gives X to both; each computes H_k and H_k V_k; g, an all-reduce, adds these to Y. Backward: g is the identity; f is an all-reduce, which adds their parts of dX.](../docs/figures/tensor.svg)
#
# Device $k$ computes those columns $H_k$ of the hidden layer that its rows $V_k$ need, so nothing
# crosses between the layers.

# %%
W1, b1, W2, b2 = FIRST
U, u, V = np.split(W1, 2, axis=1), np.split(b1, 2), np.split(W2, 2, axis=0)
devices, reduced = range(2), []


def all_reduce(parts):
    reduced.append(parts[0].nbytes)
    return sum(parts)


# Forward.
H = [np.maximum(X @ U[k] + u[k], 0) for k in devices]
Y = all_reduce([H[k] @ V[k] for k in devices]) + b2  # on both

# The gradient of the mean cross-entropy at the scores Y, on both.
p = np.exp(Y - Y.max(1, keepdims=True))
dY = (p / p.sum(1, keepdims=True) - np.eye(10, dtype="float32")[labels]) / len(X)

# Backward.
dV = [H[k].T @ dY for k in devices]
dZ = [dY @ V[k].T * (H[k] > 0) for k in devices]
dU, du = [X.T @ dZ[k] for k in devices], [dZ[k].sum(0) for k in devices]
dX = all_reduce([dZ[k] @ U[k].T for k in devices])  # for a layer before this

g_tensor = [np.hstack(dU), np.hstack(du), np.vstack(dV), dY.sum(0)]
print("the gradient of one device:", close(g_tensor, g_whole))
print("all-reduced: Y %d bytes, dX %d bytes" % tuple(reduced))

# %% jupyter={"source_hidden": true}
# What the text says, checked.
assert close(g_tensor, g_whole) and len(reduced) == 2
half_sums = X[:, :32] @ W1[:32], X[:, 32:] @ W1[32:]  # W1 cut by rows instead
assert np.allclose(np.maximum(sum(half_sums) + b1, 0), np.hstack(H), atol=1e-5)
separate = sum(np.maximum(part + b1 / 2, 0) for part in half_sums)
assert not np.allclose(separate, np.hstack(H), atol=1e-5)

# %% [markdown]
# If you cut $W_1$ by rows, relu needs an all-reduce before it. Attention is cut by its heads.
#
# ## What each of them costs
# A model has $L$ layers of $h \times h$, and the batch $B$ examples (in a language model, tokens).
# Each example and layer takes $6 h^2$ operations, $2 h^2$ forward and $4 h^2$ backward, and a
# number 4 bytes. On each of $n$ = $K$ devices:
#
# | | stores | sends about | operations for each byte |
# | --- | --- | --- | --- |
# | data parallelism | $L h^2$ | $8 L h^2$, while it computes | $\frac{3}{4} B/n$ |
# | pipeline | $L h^2 / K$ | $8 B h$, in $2M$ messages | $\frac{3}{4} L h / K$ |
# | tensor parallelism | $L h^2 / n$ | $8 L B h$; each layer waits | $\frac{3}{4} h / n$ |
#
# The last column decides whether a device computes at least as long as it sends. Take an A100:
# about 300 · 10¹² operations a second, 300 GB/s inside its machine and 25 outside. Numbers of 2
# bytes double the column:

# %% jupyter={"source_hidden": true}
for network, rate in ("inside a machine", 300e9), ("between machines", 25e9):
    print("%s: %6d operations while a byte is sent" % (network, 300e12 / rate))
print("tensor parallelism, h = 8192, n = 8: offers %d" % (2 * 3 / 4 * 8192 / 8))
print("a pipeline, h = 8192, L = 80, K = 8: offers %d" % (2 * 3 / 4 * 80 * 8192 / 8))

# %% [markdown]
# A transformer's block has twelve matrices of $h \times h$ for its four all-reduces. So its tensor
# parallelism offers 4,608 operations for each byte: enough inside a machine, too few between machines.
# Hence a common order:
#
# 1. If all fits into a device: **data parallelism**.
# 2. If it does not: **shard** what data parallelism stores (ZeRO, FSDP).
# 3. If a device has too few examples to hide that traffic, or a layer is too large: **tensor
#    parallelism**, up to the GPUs of one machine.
# 4. If that is not enough: a **pipeline**, between machines, which sends least.
#
# ## Exercises

# %% [markdown]
# **1. How many micro-batches?** ★☆☆ On paper: what is the least $M$ with which eight stages are
# idle for less than 10% of the time? How many does stage 0 then store with GPipe and with 1F1B?
#
# <details><summary>Hint</summary>
#
# Solve $(K - 1) / (M + K - 1) < 0.1$.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (3,):
        return "give three numbers: M, stored with GPipe, stored with 1F1B"
    M, by_gpipe, by_1f1b = answer
    if M == 63:
        return "63 micro-batches give exactly 7/70 = 10%, not less"
    if M == 71:  # 7/71 < 0.1 = 7/70
        return "71 is the least for (K - 1) / M, the bubble as a share of the ideal time"
    if M != 64:
        return "with M = %s the idle share is %.1f%%; find the least M below 10%%" % (
            M,
            700 / (M + 7),
        )
    if by_gpipe != 64:
        return "under GPipe all forward passes come first, so stage 0 stores all M"
    if by_1f1b != 8:
        return "under 1F1B a micro-batch comes back after K of them have begun"


# %%
# Your answer to exercise 1
answer_1 = ...  # M, stored with GPipe, stored with 1F1B

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = 64, 64, 8  # 7 / 71 = 9.9%
# assert check_1(answer_1)
# assert simulate(gpipe, 8, 64)[0] < 0.1 <= simulate(gpipe, 8, 63)[0] + 1e-9
# assert simulate(gpipe, 8, 64)[1] == 64 and simulate(one_f_one_b, 8, 64)[1] == 8
# ```
# </details>

# %% [markdown]
# **2. Any number of devices.** ★★☆ Three does not divide the 32 hidden units. Return device $k$'s
# parts for any $n$ up to 32. Two devices differ by one unit at most.
#
# <details><summary>Hint</summary>
#
# `np.array_split` makes parts of nearly equal size.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    rows = np.random.RandomState(1).normal(size=[20, 64])  # digits have pixels that are always 0
    right = np.maximum(rows @ W1 + b1, 0) @ W2
    for n in (2, 3, 12, 32):
        parts = [answer(k, n) for k in range(n)]
        for U_k, u_k, V_k in parts:
            if U_k.shape[0] != 64:
                return "U_k has columns of W1, so 64 rows; yours has %d" % U_k.shape[0]
            if V_k.shape[1] != 10:
                return "V_k has rows of W2, so 10 columns; yours has %d" % V_k.shape[1]
            if not U_k.shape[1] == u_k.shape[0] == V_k.shape[0]:
                return "cut W1, b1 and W2 at the same places: a device has %d, %d and %d units" % (
                    U_k.shape[1],
                    u_k.shape[0],
                    V_k.shape[0],
                )
        units = [len(u_k) for _, u_k, _ in parts]
        if sum(units) != 32:
            return "with n = %d your devices have %d of the 32 hidden units" % (n, sum(units))
        if max(units) - min(units) > 1:
            return "with n = %d the parts differ by more than one unit" % n
        scores = sum(np.maximum(rows @ U_k + u_k, 0) @ V_k for U_k, u_k, V_k in parts)
        if not np.allclose(scores, right, atol=1e-5):
            return "with n = %d the scores are not those of one device" % n


# %%
# Your answer to exercise 2
def answer_2(k, n):
    """Returns U_k, u_k and V_k: device k's parts of W1, b1 and W2."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(k, n):
#     units = np.array_split(np.arange(32), n)[k]
#     return W1[:, units], b1[units], W2[units]
#
# assert check_2(answer_2)
# ```
# </details>

# %%
# Stop what this notebook started.
local.close()
course.end()

# %% [markdown]
# ## Read more
# - Huang et al. 2019, [GPipe](https://arxiv.org/abs/1811.06965).
# - Narayanan et al. 2019, [PipeDream](https://doi.org/10.1145/3341301.3359646): 1F1B and weight
#   stashing.
# - Shoeybi et al. 2019, [Megatron-LM](https://arxiv.org/abs/1909.08053): tensor parallelism.
# - Narayanan et al. 2021, [all three together](https://arxiv.org/abs/2104.04473), and interleaved
#   1F1B.
# - Qi et al. 2024, [Zero Bubble](https://arxiv.org/abs/2401.10241).
# - [Model-Parallelism](../Model-Parallelism/): a pipeline that trains the digits.
#
# **Elsewhere:** in PyTorch `torch.distributed.pipelining` and `parallelize_module`; in JAX a `Mesh`;
# in TensorFlow DTensor.
#
# Next: [Beyond-ZeRO](Beyond-ZeRO.ipynb), which combines them.
