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
# # Beyond ZeRO
# You have 64 GPUs for a month, and a model of 30 billion parameters. Will it fit? Will the GPUs
# compute, or wait for the network? What if one of them fails?
#
# After this notebook you can:
# - estimate the memory of a training run with its activations;
# - tell whether ZeRO 3 hides its communication;
# - say what each kind of parallelism cuts and sends;
# - say what a compressed gradient loses and how to keep it, or send only every $T$ steps;
# - compute how often a large cluster fails, and how often to save.
#
# **Before it:** [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb),
# [Data-and-Model-Parallelism](Data-and-Model-Parallelism.ipynb). You know what a block of a
# transformer does: attention with queries, keys and values, then an MLP. **Time:** 55 minutes.

# %% [markdown]
# ## Does it fit?
# ZeRO 3 divides the parameters, their gradients and the optimizer's state among $n$ workers:
#
# ![What each of n workers stores: 16 bytes for each parameter with DDP, 16/n with ZeRO 3.](../docs/figures/zero.svg)
#
# It does not divide the *activations*, which a worker stores from its forward to its backward pass.
# Those of a transformer's block, attention and MLP, have (Korthikanti et al. 2022)
#
# $$s\,b\,h\left(34 + 5\,\frac{a s}{h}\right) \text{ bytes}$$
#
# with $b$ sequences of $s$ tokens, width $h$ and $a$ heads. The second term counts the *scores*,
# one for each head and pair of tokens. Take 6.4 billion parameters, and one sequence of 8,192
# tokens on each GPU. (The block is GPT-3's; a newer one has other numbers.)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, show

course.begin(graphs=False)

# %%
STORED = [  # what a block keeps, bytes for each of its s b h values, cut by tensor parallelism?
    ("the inputs of two norms", 4, False),
    ("the input of queries, keys and values", 2, False),
    ("queries, keys and values", 6, True),
    ("the input of the projection", 2, True),
    ("the input of the MLP", 2, False),
    ("its 4 h hidden values, before and after the activation function", 16, True),
    ("two dropout masks, a byte each", 2, False),
]
LINEAR = sum(size for _, size, _ in STORED)


def activations(kept, L, h, a, s=8192, b=1):
    """Returns GB that a worker stores: all, all but the scores, or the inputs of its L blocks."""
    scores = 5 * a * s / h
    blocks = {"all": L * (LINEAR + scores), "no scores": L * LINEAR, "inputs": 2 * L + LINEAR}
    return s * b * h * blocks[kept] / 1e9


MODEL = {"L": 32, "h": 4096, "a": 32}
BLOCK = 12 * MODEL["h"] ** 2  # parameters of a block: 4 h h in the attention, 8 h h in the MLP
P = MODEL["L"] * BLOCK
memory = []
print("GB on each GPU            states  gathered blocks  activations    all")
does = {"all": "", "no scores": ", recomputes scores", "inputs": ", recomputes blocks"}
for n, kept in (1, "all"), (8, "all"), (8, "no scores"), (8, "inputs"):
    parts = 16 * P / n / 1e9, 2 * 2 * BLOCK / 1e9 if n > 1 else 0, activations(kept, **MODEL)
    memory.append(parts)
    name = ("DDP" if n == 1 else "ZeRO 3") + does[kept]
    print("%-25s %6.1f %16.1f %12.1f %6.1f" % (name, *parts, sum(parts)))

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7.5, 2.9), layout="constrained")
colors = [BLUE, PURPLE, ORANGE]
labels = ["parameters, gradients, optimizer", "two gathered blocks", "activations"]
for row, parts in enumerate(memory):
    left = 0
    for size, color, label in zip(parts, colors, labels):
        axes.barh(row, size, left=left, color=color, label=label if row == 0 else None, height=0.6)
        left += size
    text = "%.0f GB" % left
    if left > 120:
        axes.text(119, row, text + " →", ha="right", va="center", color="white", weight="bold")
    else:
        axes.text(left + 1.5, row, text, va="center")
axes.axvline(80, color=RED, lw=1.5, ls="--")
axes.text(80.8, -0.52, "80 GB", color=RED, va="bottom", ha="left", fontsize=9)
names = ["DDP", "ZeRO 3", "ZeRO 3, recomputes\nscores", "ZeRO 3, recomputes\nblocks"]
axes.set(yticks=range(4), yticklabels=names, xlabel="GB on each GPU", xlim=(0, 120))
axes.set_ylim(3.5, -0.75)
axes.grid(axis="y", visible=False)
axes.set_axisbelow(True)
figure.legend(loc="outside upper center", ncols=3, fontsize=9)
show(
    figure,
    "Memory of each GPU for 6.4 billion parameters and 8,192 tokens. DDP and ZeRO 3 with all "
    "activations need hundreds of GB, mostly activations. ZeRO 3 that computes the attention's "
    "scores again needs about 50 GB, and one that computes whole blocks again about 17: both fit "
    "into 80 GB.",
)

# %% jupyter={"source_hidden": true}
# What the text says, checked.
assert LINEAR == 34 and sum(size for _, size, cut in STORED if cut) == 24
assert P == 6_442_450_944
assert np.isclose(memory[1][2], 8192 * 4096 * (34 + 5 * 32 * 8192 / 4096) * 32 / 1e9)
assert [round(sum(parts)) for parts in memory] == [483, 394, 50, 17]
assert 29 < memory[1][2] / memory[1][0] < 30

# %% [markdown]
# The activations are thirty times as large as a worker's share of the rest. *Recomputation*
# (activation checkpointing) computes them again in the backward pass:
#
# - **the scores only**, most of the bytes and little of the work. (We assume FlashAttention, which
#   computes attention in parts and never stores them.)
# - **whole blocks**, from their inputs. A backward pass costs two forward passes, so a step now costs
#   four instead of three.
#
# Not counted are the embeddings and the *logits*: 4.2 GB for 128,000 words, and their gradient too.
#
# ## ZeRO 3 in time
# ZeRO 3 gathers the parameters of a block, uses them, and drops them. In the backward pass it
# gathers them again, and reduce-scatters the gradient. We simulate it; `ahead` is how many blocks a
# worker gathers before it needs them.


# %%
def timeline(L, gather, forward, reduce, ahead):
    """Returns the spans (lane, what, block, begin, end) of one step with L blocks."""
    uses = [("forward", i) for i in range(L)] + [("backward", i) for i in reversed(range(L))]
    spans, ended, network = [], [], 0

    def send(what, i, earliest, duration):
        nonlocal network
        begin = max(network, earliest)
        network = begin + duration
        spans.append(("network", what, i, begin, network))
        return network

    for u, (what, i) in enumerate(uses):
        before = u - 1 - ahead  # when this use has ended, its block is dropped
        dropped = ended[before] if before >= 0 else 0
        there = u > 0 and uses[u - 1][1] == i  # the last block stays for the backward pass
        arrives = 0 if there else send("gather", i, dropped, gather)
        if before >= L:
            send("reduce", uses[before][1], dropped, reduce)
        begin = max(arrives, ended[-1] if ended else 0)
        ended.append(begin + forward * (1 if what == "forward" else 2))
        spans.append(("compute", what, i, begin, ended[-1]))
    for u in range(2 * L - 1 - ahead, 2 * L):
        send("reduce", uses[u][1], ended[u], reduce)
    return spans


# %% [markdown]
# **Predict:** each of eight blocks takes 1 ms to gather, 1 ms forward, 2 ms backward and 1 ms to
# reduce-scatter. How long is a step if a block is gathered when it is needed, and how long if it is
# gathered one block ahead?

# %% tags=["predicted"]
for ahead in (0, 1):
    print("%d ahead: %d ms" % (ahead, max(end for *_, end in timeline(8, 1, 1, 1, ahead))))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# 0 ahead: 40 ms
# 1 ahead: 26 ms
# ```
#
# Computing takes 24 ms. One ahead, only the first gather and the last reduce-scatter are not
# hidden. With none ahead each gather delays it, eight forward and seven backward (the last block
# stays).
#
# </details>

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(2, 1, figsize=(8, 3.4), sharex=True, layout="constrained")
colors = {"forward": GRAY, "backward": BLUE, "gather": ORANGE, "reduce": GREEN}
for ax, ahead in zip(axes, (0, 1)):
    spans = timeline(6, 1, 1, 1, ahead)
    for lane, what, i, begin, end in spans:
        row = 0 if lane == "compute" else 1
        ax.barh(row, end - begin, left=begin, color=colors[what], edgecolor="white", height=0.8)
        ax.text((begin + end) / 2, row, i, color="white", ha="center", va="center", fontsize=9)
    ax.set(yticks=[0, 1], yticklabels=["computes", "network"])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_axisbelow(True)
    last = max(end for *_, end in spans)
    title = (
        "each block gathered when it is needed"
        if ahead == 0
        else "the next block gathered while one computes"
    )
    ax.set_title("%s: %d ms" % (title, last), fontsize=10, loc="left")
axes[1].set(xlabel="milliseconds", xlim=(0, 30.2))
handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in colors.values()]
names = ["forward pass", "backward pass", "gather parameters", "reduce-scatter gradient"]
figure.legend(handles, names, ncols=4, loc="outside upper center", fontsize=9)
show(
    figure,
    "A step of ZeRO 3 with six blocks, numbered 0 to 5, in two lanes. Above, the computation waits "
    "for each gather: 30 ms. Below, block i + 1 is gathered while block i computes, and gradients "
    "are reduce-scattered meanwhile: 20 ms, of which 18 compute.",
)
lengths = [max(end for *_, end in timeline(8, 1, 1, 1, ahead)) for ahead in (0, 1)]
assert lengths == [40, 26]
assert max(end for *_, end in timeline(8, 2, 1, 2, 1)) == 47  # too slow a network is not hidden
moved = [what for lane, what, *_ in timeline(8, 1, 1, 1, 1) if lane == "network"]
assert moved.count("gather") == 15 and moved.count("reduce") == 8

# %% [markdown]
# When does a forward pass hide the next gather? A block of $p$ parameters costs $2p$ operations for
# each token, and $2p$ bytes to gather. With $F$ operations and $R$ bytes a second, $p$ cancels:
#
# $$\frac{2 p \cdot \text{tokens}}{F} \ge \frac{2 p}{R} \quad\Longleftrightarrow\quad
# \text{tokens} \ge \frac{F}{R}$$
#
# The backward pass has twice the work and twice the bytes. Llama 3 reached $F$ = 400 · 10¹², waits
# included, 41% of the peak (this share is the *MFU*, model FLOPs utilization). With $R$ = 50 GB/s a
# GPU needs at least 8,000 tokens a step
# ([Sharded-Training](../Further-Algorithms/Sharded-Training/)).
#
# ## Two levels of network
# An H100 sends 450 GB/s to GPUs of its own machine, but 50 GB/s through its network card to others.
# In one ring of all GPUs only one card of each machine sends. A *hierarchical* all-reduce uses all:
# a reduce-scatter inside each machine, an all-reduce of each shard between machines, an all-gather
# inside. We run both for 4 machines of 4 GPUs.


# %%
def half(w, ranks, reduce):
    """Runs half of a ring all-reduce in place, and returns each rank's own chunk."""
    chunks = [np.array_split(w[r], len(ranks)) for r in ranks]
    for t in range(len(ranks) - 1):
        sent = [(i - t - reduce) % len(ranks) for i in range(len(ranks))]
        moving = [chunks[i][c].copy() for i, c in enumerate(sent)]
        for i, (c, chunk) in enumerate(zip(sent, moving)):
            to = (i + 1) % len(ranks)
            chunks[to][c][:] = chunk + chunks[to][c] if reduce else chunk
            all_bytes[ranks[i]] += chunk.nbytes
            if ranks[i] // 4 != ranks[to] // 4:  # to another machine
                leaves[ranks[i]] += chunk.nbytes
    return {r: chunks[i][i] for i, r in enumerate(ranks)}


def one_ring(w):
    half(w, range(16), True)
    half(w, range(16), False)


def two_levels(w):
    machines = [range(4 * j, 4 * j + 4) for j in range(4)]
    shards = {}
    for machine in machines:
        shards |= half(w, machine, True)
    for position in range(4):
        half(shards, range(position, 16, 4), True)
        half(shards, range(position, 16, 4), False)
    for machine in machines:
        half(w, machine, False)


S = 8 * 960
crossing = {}
for way in (one_ring, two_levels):
    w, all_bytes, leaves = [np.full(960, 1.0 + r) for r in range(16)], [0] * 16, [0] * 16
    way(w)
    crossing[way] = max(leaves)
    right = all((v == 136).all() for v in w)  # 1 + 2 + ... + 16
    print("%-10s sum right: %s" % (way.__name__, right), end=", ")
    print("a GPU sends %.3f S, a card %.3f S" % (max(all_bytes) / S, max(leaves) / S))

# %% jupyter={"source_hidden": true}
# What the text says, checked; and the same for 8 machines of 8.
assert crossing[one_ring] == 2 * 15 / 16 * S and crossing[two_levels] == 2 * 3 / 4 * S / 4
assert crossing[one_ring] == 5 * crossing[two_levels]
assert np.isclose(2 * 3 / 4 + 2 * 3 / 4 / 4, 2 * 15 / 16)
seconds = 2 * 63 / 64 * 2 * P / 50e9, 2 * 7 / 8 * 2 * P / 450e9 + 2 * 7 / 8 / 8 * 2 * P / 50e9
assert [round(1000 * t) for t in seconds] == [507, 106]

# %% [markdown]
# A GPU sends as many bytes as before, but a card only a fifth. For our model's gradient on 8
# machines of 8 GPUs that is 106 ms instead of 507. Therefore:
#
# - **HSDP** (hybrid sharding) shards inside a machine only. So gathers never leave it, and each GPU
#   sends an eighth of the gradient to others, but more machines do not reduce the 16/8 bytes.
# - **Tensor parallelism** stays inside. A block computes $72 h^2/n$ operations a token and sends
#   $16 h$ bytes: with $h$ = 8,192 and 8 GPUs that is 4,608 operations for each byte. Inside a
#   machine $F/R$ = 889 are needed, between machines 8,000.
#
# ## All the cuts in one table
# | parallelism | cuts | sends |
# | --- | --- | --- |
# | data (DDP) | examples | gradients |
# | ZeRO 3, FSDP | examples, the 16 bytes | parameters twice, gradients once |
# | pipeline | layers | activations and their gradients, between stages |
# | tensor | matrices | activations, in four all-reduces a block |
# | + sequence | norms, dropout by tokens | the same, as reduce-scatters and all-gathers |
# | context | tokens | keys and values, part by part |
# | expert | experts of a layer | tokens, there and back by two *all-to-alls* |
#
# Tensor parallelism on eight GPUs leaves 10 of the 34 bytes whole, 10 + 24/8 = 13 on each; with
# *sequence* parallelism it is 34/8 = 4.25. With *experts* (MoE) each token uses a few of many MLPs.
#
# Large runs combine these cuts, and what sends most gets neighbouring ranks. In Llama 3 eight ranks
# shared matrices, 16 such groups were a pipeline, and 128 pipelines were data-parallel.

# %% jupyter={"source_hidden": true}
# What the text says, checked; first that context parallelism agrees: 12 tokens on 3 devices.
q, k, v = np.random.default_rng(0).normal(size=(3, 12, 4))
whole = np.exp(q @ k.T) @ v / np.exp(q @ k.T).sum(1, keepdims=True)
parts = [(np.exp(q[:4] @ k_j.T), v_j) for k_j, v_j in zip(np.split(k, 3), np.split(v, 3))]
first = sum(e @ v_j for e, v_j in parts) / sum(e.sum(1, keepdims=True) for e, _ in parts)
assert np.allclose(first, whole[:4])  # (a real one also subtracts a maximum before each exp)
assert 8 * 16 * 128 == 16384
whole_bytes = sum(size for _, size, cut in STORED if not cut)
assert (whole_bytes, whole_bytes + 24 / 8, LINEAR / 8) == (10, 13, 4.25)
assert 72 * 8192**2 / 8 / (16 * 8192) == 4608
assert round(400e12 / 450e9) == 889 and 400e12 / 50e9 == 8000

# %% [markdown]
# ## Send less: compression
# *Top-k* sends only the $k$ largest entries of a gradient; *error feedback* keeps the others for
# the next step:
#
# ```
# worker k   p <- lr * g_k(w) + e_k;   c_k <- top-k of p;   e_k <- p - c_k
# together   w <- w - mean of all c_k
# ```
# Four workers train the digits. The top 1% are 24 of 2,410 numbers and their places, 192 bytes
# instead of 9,640.

# %% jupyter={"source_hidden": true}
# The digits' network in NumPy; w is one vector of 2,410 numbers.
x, y, x_test, y_test = course.load()
START = np.concatenate([value.ravel() for value in course.first_values().values()])


def layers(w):
    return w[:2048].reshape(64, 32), w[2048:2080], w[2080:2400].reshape(32, 10), w[2400:]


def probabilities(w, x):
    W1, b1, W2, b2 = layers(w)
    hidden = np.maximum(x @ W1 + b1, 0)
    scores = hidden @ W2 + b2
    p = np.exp(scores - scores.max(1, keepdims=True))
    return hidden, p / p.sum(1, keepdims=True)


def loss(w):
    """Returns the loss on all rows for training."""
    return -np.log(probabilities(w, x)[1][np.arange(len(y)), y]).mean()


def gradient(w, worker, t):
    """Returns the gradient on mini-batch t of a worker: 32 rows."""
    rows = np.random.default_rng([worker, t]).integers(0, len(x), 32)
    hidden, d = probabilities(w, x[rows])
    d[np.arange(32), y[rows]] -= 1
    d /= 32
    d_hidden = d @ layers(w)[2].T * (hidden > 0)
    parts = x[rows].T @ d_hidden, d_hidden.sum(0), hidden.T @ d, d.sum(0)
    return np.concatenate([part.ravel() for part in parts])


# %%
def top(p, share):
    """Returns p with all but its largest entries set to 0."""
    largest = np.argsort(-np.abs(p), kind="stable")[: int(share * len(p))]
    c = np.zeros_like(p)
    c[largest] = p[largest]
    return c


def compressed(share, feedback, n=4, lr=0.2, updates=400):
    """Returns the training loss after each tenth update."""
    w, e, losses = START, np.zeros([n, len(START)]), []
    for t in range(updates):
        p = lr * np.array([gradient(w, k, t) for k in range(n)]) + e
        c = np.array([top(p_k, share) for p_k in p])
        e = p - c if feedback else 0
        w = w - c.mean(0)
        if t % 10 == 9:
            losses.append(loss(w))
    return losses


# %% [markdown]
# **Predict:** after 400 updates, which loss is lower: that of the top 10% without error feedback,
# or that of the top 1% with it?

# %% tags=["predicted"]
curves = {
    "all entries": compressed(1, True),
    "top 10%, rest forgotten": compressed(0.1, False),
    "top 1%, rest forgotten": compressed(0.01, False),
    "top 1%, error feedback": compressed(0.01, True),
}
for name, losses in curves.items():
    print("%-24s loss %.2f" % (name, losses[-1]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# all entries              loss 0.12
# top 10%, rest forgotten  loss 0.18
# top 1%, rest forgotten   loss 0.54
# top 1%, error feedback   loss 0.13
# ```
#
# With error feedback nothing is lost: all that a worker has sent, plus its last `e`, is the sum of
# its `lr * g`. Without it, the same entries are left out again and again. Top-k is *biased*:
# neither steps nor workers average that out.
#
# </details>

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 3.1), layout="constrained")
for (name, losses), color in zip(curves.items(), (GRAY, PURPLE, ORANGE, BLUE)):
    axes.plot(np.arange(10, 401, 10), losses, color=color, lw=2, label=name)
axes.set(xlabel="updates", ylabel="training loss", yscale="log", xlim=(0, 400))
axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
axes.minorticks_off()
axes.legend(loc="upper right", fontsize=9)
show(
    figure,
    "Training loss against updates of four workers on the digits. The top 1% without error "
    "feedback falls slowest, the top 10% without it is in between; the top 1% with error feedback "
    "follows the curve of all entries after a late start.",
)
last = {name: losses[-1] for name, losses in curves.items()}
assert last["top 1%, error feedback"] < last["top 10%, rest forgotten"]
assert last["top 10%, rest forgotten"] < last["top 1%, rest forgotten"]
assert int(0.01 * 2410) == 24 and 24 * 8 == 192 and START.size * 4 == 9640

# %% [markdown]
# A ring cannot add up such messages, so the gain shrinks with the number of workers. PowerSGD,
# which sends two thin factors of a matrix, keeps it
# ([Compressed-AllReduce](../Further-Algorithms/Compressed-AllReduce/)).
#
# ## Send less often: local SGD and DiLoCo
# In *local SGD* workers take $T$ steps alone, and then go on from the mean of their parameters.
# *DiLoCo* (Douillard et al. 2023) takes AdamW for these steps, and the mean change $d$ as a gradient
# for an *outer* optimizer, Nesterov's momentum:
#
# ```
# T times    w_k <- w_k - lr * (SGD's or AdamW's step)
# together   d <- w - mean of all w_k;   u <- beta * u + d;   w <- w - outer * (d + beta * u)
# ```
#
# ![Local-SGD moves w to the mean of where two workers' T steps end, DiLoCo, with momentum, beyond it.](../docs/figures/local-steps.svg)


# %%
def rounds(T, adam=False, outer=1.0, beta=0.0, n=4, steps=400):
    """Returns the training loss after `steps` local steps. By default it is local SGD."""
    w, u, m, v = START, 0, np.zeros([n, len(START)]), np.zeros([n, len(START)])
    for t in range(0, steps, T):
        w_k = np.array([w] * n)
        for s in range(t, t + T):
            g = np.array([gradient(w_k[k], k, s) for k in range(n)])
            if adam:  # its moments stay with the worker (no weight decay here)
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                g = m / (1 - 0.9 ** (s + 1)) / (np.sqrt(v / (1 - 0.999 ** (s + 1))) + 1e-8)
            w_k = w_k - (0.01 if adam else 0.2) * g
        d = w - w_k.mean(0)
        u = beta * u + d
        w = w - outer * (d + beta * u)
    return loss(w)


print("T     KB sent by a worker   local SGD   DiLoCo")
lost = {}
for T in (1, 20, 200):
    lost[T] = rounds(T), rounds(T, adam=True, outer=0.5, beta=0.5)
    print("%-5d %19.1f %11.2f %8.2f" % (T, 400 / T * 2 * 3 / 4 * 9.64, *lost[T]))

# %% jupyter={"source_hidden": true}
# What the text says, checked.
assert np.isclose(rounds(1, steps=100), compressed(1, True, updates=100)[-1])
assert lost[200][0] < 1.1 * lost[1][0]

# %% [markdown]
# Compare each column with its own first row, because the local steps differ. With $T$ = 200 local
# SGD sends 200 times less and learns as well, because the digits are easy. On ImageNet it lost six
# points of accuracy with $T$ = 12 (SlowMo). [DiLoCo](../Further-Algorithms/DiLoCo/)'s authors took
# $T$ = 500, `outer` = 0.7 and `beta` = 0.9 for language models.
#
# You tune these and the local rate together. A longer $T$ saves messages, but the copies drift
# apart. Two sites exchange $S$ bytes in about $S/R$ seconds, so let $T$ steps take several times as
# long ([Slow-Network](../Measurements/Slow-Network/)). Momentum gained nothing in
# [Compare](../Measurements/Compare/), with $T$ = 100.
#
# ## Failures at scale
# If each GPU brings one interruption in $M$ hours, $n$ bring one in $M/n$, and each stops all.
# Llama 3's 16,384 GPUs had 419 in 54 days, of any cause. Which share of the time is then work that
# lasts, the *goodput*?
#
# Saving every $I$ seconds costs $C/I$ of the time, and an interruption loses $I/2$ of every $M/n$.
# The sum is smallest at Young's interval, $I = \sqrt{2 C \cdot M/n}$. A restart takes 10 minutes
# more. We take $C$ = 60 s, or 5 s if training waits only for a copy in memory (an *asynchronous
# checkpoint*).

# %%
M = 54 * 24 * 16384 / 419  # hours between two interruptions by one GPU


def goodput(n, C, restart=600, lives=200_000):
    """Returns Young's interval in s, and the share of time that lasts, simulated and estimated."""
    mtbf = M / n * 3600
    interval = (2 * C * mtbf) ** 0.5
    life = np.random.default_rng(0).exponential(mtbf, lives)  # from one failure to the next
    saved = np.maximum(life - restart, 0) // (interval + C) * interval
    return interval, saved.mean() / mtbf, 1 - C / interval - interval / 2 / mtbf - restart / mtbf


print("for each GPU one interruption in %.1f years" % (M / 24 / 365))
print("   GPUs   hours to the next    save every   goodput   with C = 5 s")
for n in (64, 1024, 16384, 65536):
    interval, share, _ = goodput(n, 60)
    row = n, M / n, interval / 60, 100 * share, 100 * goodput(n, 5)[1]
    print("%7d %20.1f %8.0f min %8.0f%% %13.0f%%" % row)

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
counts = 2 ** np.arange(6, 18)
for C, color, name in (60, ORANGE, "C = 60 s"), (5, BLUE, "C = 5 s"):
    values = np.array([goodput(n, C) for n in counts])
    axes.semilogx(counts, 100 * values[:, 1], color=color, lw=2, base=2)
    estimated = values[:, 2] > 0.3
    axes.plot(counts[estimated], 100 * values[estimated, 2], "--", color=color, lw=1)
    axes.text(counts[-1] * 1.1, 100 * values[-1, 1], name, color=color, va="center")
axes.axvline(16384, color=GRAY, lw=1, ls=":")
axes.text(15000, 8, "Llama 3", color=GRAY, ha="right")
axes.set(xlabel="GPUs", ylabel="goodput, %", ylim=(0, 103))
axes.set_xticks(counts[::2], ["{:,}".format(n) for n in counts[::2]])
axes.minorticks_off()
show(
    figure,
    "Goodput against the number of GPUs, from 64 to 131,072. It stays above 95% up to about a "
    "thousand GPUs and falls steeply beyond 16,384; saving in 5 seconds keeps it higher than "
    "saving in 60. Dashed lines: the estimate from Young's formula, a little below; beyond 65,536 "
    "GPUs it does not hold, because the interval is no longer short against the time to a failure.",
)
assert round(M) == 50677 and round(M / 16384, 1) == 3.1
for n, C in (1024, 60), (16384, 60), (16384, 5):
    interval, share, estimate = goodput(n, C)
    assert abs(share - estimate) < 0.02

# %% [markdown]
# Meta reports more than 90%. With cheap checkpoints the restarts cost most, so *elastic* training
# goes on with fewer workers, which must cut ZeRO's saved shards anew. Some failures raise no error:
# GPUs compute wrong numbers, or all ranks wait for one that never entered the collective.
#
# ## Exercises

# %% [markdown]
# **1. Size a run.** ★★★ Pencil and paper: 30 billion parameters, in 48 blocks of width 7,168; 8
# machines of 8 GPUs with 80 GB; sequences of 8,192 tokens. You choose ZeRO 3 over all GPUs, gather
# one block ahead, and compute whole blocks again, with FlashAttention. Give:
# - GB of states (the 16 bytes) on a GPU;
# - the most sequences that fit on it beside states and two gathered blocks;
# - with *one* sequence, the seconds that its step computes, at $F$ = 400 · 10¹² (6 operations for
#   each parameter and token, and those that are repeated);
# - the seconds that a card of 50 GB/s sends, with two levels.
#
# <details><summary>Hint</summary>
#
# A forward pass costs 2 of the 6 operations. In a two-level all-gather of $S$ bytes each machine
# receives 7/8 of them, through eight cards. How often does ZeRO 3 send as many bytes as the
# parameters have?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if len(answer) != 4:
        return "give four numbers: GB, sequences, seconds, seconds"
    states, sequences, computes, sends = answer
    P = 12 * 48 * 7168**2

    def near(value, right):
        return abs(value - right) <= 0.03 * right

    if near(states, 16 * P / 1e9):
        return "these are the states of the whole model; ZeRO 3 divides them among 64 GPUs"
    if near(states, 16 * P / 8 / 1e9):
        return "you divide by the GPUs of one machine, as HSDP does; here all 64 share"
    if not near(states, 16 * P / 64 / 1e9):
        return "the states are 16 bytes for each of 12 L h h parameters, divided by 64"
    if sequences == 0:
        return "it fits if only the inputs of the blocks are kept"
    if sequences != 9:
        return (
            "each sequence needs (2 L + 34) s h bytes; find the most that fit beside the states "
            "and two gathered blocks of 2 bytes for each parameter"
        )
    if near(computes, 6 * P * 8192 / 400e12):
        return "you left out that each forward pass is computed again: 8 operations, not 6"
    if near(computes, 8 * P * 8192 * 64 / 400e12):
        return "that is the work of all 64 GPUs; one computes only its own sequence"
    if not near(computes, 8 * P * 8192 / 400e12):
        return "a GPU makes 8 operations for each parameter and each of its 8,192 tokens"
    if near(sends, 3 * 2 * P * 63 / 64 / 50e9) or near(sends, 3 * 2 * P / 50e9):
        return "that is one ring, which uses one card of each machine; two levels use eight"
    if near(sends, 2 * 2 * P * 7 / 8 / 8 / 50e9):
        return "that is DDP's traffic; ZeRO 3 gathers twice and reduces once"
    if not (near(sends, 3 * 2 * P * 7 / 8 / 8 / 50e9) or near(sends, 3 * 2 * P / 8 / 50e9)):
        return "three times 2 bytes for each parameter reach a machine, less the eighth it has"


# %%
# Your answer to exercise 1
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# P, block, tokens = 12 * 48 * 7168**2, 12 * 7168**2, 8192
# states = 16 * P / 64 / 1e9                                       # 7.4 GB
# room = 80 - states - 2 * 2 * block / 1e9                         # 70.1 GB
# sequences = int(room // activations("inputs", 48, 7168, 56))     # 7.6 GB each: 9
# computes = 8 * P * tokens / 400e12                               # 4.8 s
# sends = 3 * 2 * P * 7 / 8 / 8 / 50e9                             # 0.39 s
# answer_1 = states, sequences, computes, sends
# assert check_1(answer_1)
# ```
#
# It hides easily; a single ring would need 3.5 s. Real runs are slower, because attention computes
# a fifth more, and no network reaches its full rate.
#
# </details>

# %% [markdown]
# **2. One bit for each entry.** ★★☆ Write one worker's step of sign compression with error
# feedback: `c` has the signs of `p`, all in one size, the mean of the sizes of `p`. Return `c` and
# the new `e`.
#
# <details><summary>Hint</summary>
#
# What `c` gets wrong is `p - c`. `p` is what the worker wants to send *now*, the old `e` included.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    for step, e in ([3.0, -1.0, 0.5, -0.5], [0.0, 2.0, 0.5, 0.25]), ([-0.2, 7.0], [1.0, -0.5]):
        step, e = np.array(step), np.array(e)
        c, new = answer(step, e)
        p = step + e
        if np.shape(c) != p.shape or np.shape(new) != p.shape:
            return "return two vectors, c and e"
        if np.allclose(np.sign(c), np.sign(step)) and not np.allclose(np.sign(c), np.sign(p)):
            return "c must compress step + e; you have left out e"
        if np.allclose(np.abs(c), 1):
            return "the signs must be scaled by the mean size of p, or c does not fit it"
        if not np.allclose(c, np.sign(p) * np.abs(p).mean()):
            return "c is sign(p) times the mean of |p|, with p = step + e"
        if not np.allclose(new, p - c):
            return "what was sent and what is kept must add up to p; something is lost or doubled"
    w, e = START, np.zeros_like(START)
    for t in range(300):
        c, e = answer(0.2 * gradient(w, 0, t), e)
        w = w - c
    if not loss(w) <= 0.5:
        return "the digits' loss after 300 updates is %.2f; it should be below 0.5" % loss(w)


# %%
# Your answer to exercise 2
def answer_2(step, e):
    """Returns c and the new e. step: lr * g of this worker. e: what it has not sent so far."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(step, e):
#     p = step + e
#     c = np.where(p < 0, -1, 1) * np.abs(p).mean()
#     return c, p - c
#
# assert check_2(answer_2)
# ```
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Korthikanti et al. 2022, [Activation Recomputation](https://arxiv.org/abs/2205.05198).
# - Grattafiori et al. 2024, [The Llama 3 Herd of Models](https://arxiv.org/abs/2407.21783), 3.3.
# - Liu et al. 2023, [Ring Attention](https://arxiv.org/abs/2310.01889).
# - Karimireddy et al. 2019, [Error Feedback](https://arxiv.org/abs/1901.09847).
# - Douillard et al. 2023, [DiLoCo](https://arxiv.org/abs/2311.08105).
# - Wang et al. 2020, [SlowMo](https://arxiv.org/abs/1910.00643).
# - Young 1974, [Optimum Checkpoint Interval](https://doi.org/10.1145/361147.361115).
#
# **Elsewhere:** in PyTorch `fully_shard` on a 2D `DeviceMesh` is HSDP, `torch.utils.checkpoint`
# recomputes; in JAX `Mesh` and `jax.checkpoint`; in TensorFlow DTensor and `tf.recompute_grad`.
#
# Next: [TF2-Strategies](TF2-Strategies.ipynb).
