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
# # Beyond ZeRO: memory, time and networks
# You have 64 GPUs for a month, and a model of 30 billion parameters. Will it fit? Will the GPUs
# compute, or wait for the network? And how do you divide the model among them?
#
# After this notebook you can:
# - estimate the memory of a training run with its activations;
# - tell whether ZeRO 3 hides its communication;
# - compute what crosses which of a cluster's two networks;
# - say what each kind of parallelism cuts and sends;
# - choose a layout for 64 GPUs.
#
# **Before it:** [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb),
# [Data-and-Model-Parallelism](Data-and-Model-Parallelism.ipynb). You know a transformer's
# block: attention, then an MLP. **Time:** 50 minutes.

# %% [markdown]
# ## Does it fit?
# In the end you choose such a layout:
#
# ![The place of 16 ranks: 4 share each matrix, in one machine; 2 such groups are the stages of a pipeline; 2 pipelines are data-parallel. Ranks of a group all-reduce activations, stages send activations to each other, and ranks at the same place of both pipelines all-reduce gradients.](../docs/figures/mesh.svg)
#
# ZeRO 3 divides the parameters, their gradients and the optimizer's state (16 bytes a parameter) among
# $n$ workers, but not the *activations*, stored from the forward to the backward pass. Those of a
# transformer's block have (Korthikanti et al. 2022)
#
# $$s\,b\,h\left(34 + 5\,\frac{a s}{h}\right) \text{ bytes}$$
#
# **Notation:** the [glossary](GLOSSARY.md#notation)'s: $b$ sequences of $s$ tokens (pieces of text), width
# $h$, $a$ heads. The second term is the *scores*, for each head and pair of tokens. Take 6.4 billion
# parameters (32 blocks of width 4,096, 32 heads), and one sequence of 8,192 tokens on each GPU.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np

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


# %% jupyter={"source_hidden": true}
MODEL = {"L": 32, "h": 4096, "a": 32}
BLOCK = 12 * MODEL["h"] ** 2  # parameters of a block: 4 h h in the attention, 8 h h in the MLP
P = MODEL["L"] * BLOCK
memory = []
print("GB on each GPU            states  gathered blocks  activations    all")
names = ["DDP", "ZeRO 3", "ZeRO 3, FlashAttention", "  and blocks recomputed"]
for name, n, kept in zip(names, (1, 8, 8, 8), ("all", "all", "no scores", "inputs")):
    parts = 16 * P / n / 1e9, 2 * 2 * BLOCK / 1e9 if n > 1 else 0, activations(kept, **MODEL)
    memory.append(parts)
    print("%-25s %6.1f %16.1f %12.1f %6.1f" % (name, *parts, sum(parts)))

# %% jupyter={"source_hidden": true}
import matplotlib.pyplot as plt
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, show

figure, axes = plt.subplots(figsize=(7.5, 2.9), layout="constrained")
colors = [BLUE, PURPLE, ORANGE]
labels = ["parameters, gradients, optimizer", "two gathered blocks", "activations"]
for row, parts in enumerate(memory):
    left = 0
    for size, color, label in zip(parts, colors, labels):
        axes.barh(row, size, left=left, color=color, label=label if row == 0 else None, height=0.6)
        left += size
    axes.text(left + 6, row, "%.0f GB" % left, va="center")
axes.axvline(80, color=RED, lw=1.5, ls="--")
axes.text(83, -0.52, "80 GB", color=RED, va="bottom", ha="left", fontsize=9)
axes.set(yticks=range(4), yticklabels=names, xlabel="GB on each GPU", xlim=(0, 550))
axes.set_ylim(3.5, -0.75)
axes.grid(axis="y", visible=False)
axes.set_axisbelow(True)
figure.legend(loc="outside upper center", ncols=3, fontsize=9)
show(
    figure,
    "Memory of each GPU for 6.4 billion parameters and 8,192 tokens. DDP and ZeRO 3 with all "
    "activations need hundreds of GB, mostly activations. ZeRO 3 with FlashAttention, which never "
    "stores the attention's scores, needs about 50 GB, and if it computes whole blocks again "
    "about 17: both fit into 80 GB.",
)

# %% jupyter={"source_hidden": true}
# What the text says, checked.
assert LINEAR == 34 and sum(size for _, size, cut in STORED if cut) == 24
assert P == 6_442_450_944
assert np.isclose(memory[1][2], 8192 * 4096 * (34 + 5 * 32 * 8192 / 4096) * 32 / 1e9)
assert [round(sum(parts)) for parts in memory] == [483, 394, 50, 17]
assert 29 < memory[1][2] / memory[1][0] < 30
assert round(5 * MODEL["a"] * 8192**2 / 1e9, 1) == 10.7

# %% [markdown]
# The activations are thirty times a worker's share of the rest. *Recomputation* (activation
# checkpointing) computes them again in the backward pass:
#
# - **the scores only**, most of the bytes and little of the work. FlashAttention never stores them,
#   not even the 10.7 GB of one block.
# - **whole blocks**, from their inputs. A step then costs four forward passes instead of three.
#
# Not counted are the embeddings and the *logits*, a score of each possible word for each token: 4.2 GB
# for 128,000 words, and their gradient.

# %% [markdown]
# ## ZeRO 3 in time
# ZeRO 3 gathers a block, uses it, and drops it. In the backward pass it gathers it again, and
# reduce-scatters the gradient. We simulate it; `ahead` is how many blocks a worker gathers before it
# needs them.


# %% jupyter={"source_hidden": true}
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
# reduce-scatter. How long is a step if a block is gathered when it is needed, and if it is gathered
# one block ahead?

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
# hidden. With none ahead each of 15 gathers delays it (the last block stays).
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
# The backward pass has twice the work and twice the bytes.
#
# **FP8** raises $F$: since the H100, GPUs multiply 8-bit floats about twice as fast as 16-bit ones. Then
# hiding takes up to twice the tokens, unless the parameters travel in 8 bits, too. The format E4M3, with 4
# bits for the exponent and 3 for the mantissa, ends at 448 and rounds by up to 6%. E5M2, meant for
# gradients, ends at 57,344. So small a range needs a scale for each tensor or block. DeepSeek-V3
# has one for 128 numbers of an activation or 128 × 128 weights.

# %% [markdown]
# ## Two networks
# An H100 sends 450 GB/s to GPUs of its own machine, but 50 GB/s through its network card:
#
# ![Two machines of four GPUs. Inside a machine a fast network joins its GPUs, with 450 GB/s for each. Each GPU also has a network card of 50 GB/s to the other machine. The GPUs at the same place of both machines have one colour: on two levels they all-reduce one shard.](../docs/figures/networks.svg)
#
# In one ring of all GPUs only one card of each machine sends. Two remedies:
#
# - **Several rings**, each for a part of the vector, leave a machine by different cards, as
#   [in NCCL](https://github.com/NVIDIA/nccl/issues/530).
# - **Two levels**, a *hierarchical* all-reduce: a reduce-scatter inside each machine, an all-reduce
#   of each shard between machines, an all-gather inside.
#
# We run all three for 4 machines of 4 GPUs and a vector of $S$ bytes.


# %% jupyter={"source_hidden": true}
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


def four_rings(w):
    """Ring j carries a quarter of the vector, and leaves each machine from its GPU j."""
    for j in range(4):
        ranks = [4 * machine + (j + 1 + i) % 4 for machine in range(4) for i in range(4)]
        quarter = {r: np.array_split(w[r], 4)[j] for r in ranks}
        half(quarter, ranks, True)
        half(quarter, ranks, False)


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


S, crossing = 8 * 960, {}


def sums_and_bytes(way):
    """Returns whether all sums are right, and what a GPU and a card send at most, in units of S."""
    global all_bytes, leaves
    w, all_bytes, leaves = [np.full(960, 1.0 + r) for r in range(16)], [0] * 16, [0] * 16
    way(w)
    crossing[way] = max(leaves)
    right = all((v == 136).all() for v in w)  # 1 + 2 + ... + 16
    return right, max(all_bytes) / S, max(leaves) / S


# %% [markdown]
# **Predict:** which share of what it sends in one ring does the busiest card send in four rings, and
# which on two levels?

# %% tags=["predicted"]
for way in (one_ring, four_rings, two_levels):
    words = "%-10s sum right: %s, a GPU sends %.3f S, a card %.3f S"
    print(words % (way.__name__, *sums_and_bytes(way)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# one_ring   sum right: True, a GPU sends 1.875 S, a card 1.875 S
# four_rings sum right: True, a GPU sends 1.875 S, a card 0.469 S
# two_levels sum right: True, a GPU sends 1.875 S, a card 0.375 S
# ```
#
# A quarter, because four cards share the bytes; and a fifth.
#
# </details>

# %% jupyter={"source_hidden": true}
# What the text says, checked; and the same for 8 machines of 8.
assert crossing[one_ring] == 2 * 15 / 16 * S and crossing[two_levels] == 2 * 3 / 4 * S / 4
assert crossing[one_ring] == 4 * crossing[four_rings] == 5 * crossing[two_levels]
assert np.isclose(2 * 3 / 4 + 2 * 3 / 4 / 4, 2 * 15 / 16)
flat, inside, between = 2 * 63 / 64, 2 * 7 / 8, 2 * 7 / 8 / 8  # of the gradient's bytes
seconds = flat / 50e9, flat / 8 / 50e9, inside / 450e9 + between / 50e9, between / 50e9
assert [round(1000 * 2 * P * each) for each in seconds] == [507, 63, 106, 56]
R = 1 / (63 / 64 / 8 / 50e9)  # an all-gather by eight rings
assert round(R / 1e9) == 406 and round(400e12 / R) == 984 and round(400e12 / 0.41 / R, -2) == 2400
messages = [2 * (n - 1) for n in (64, 16384)], [2 * 7 + 2 * (m - 1) for m in (8, 2048)]
assert messages == ([126, 32766], [28, 4108])

# %% [markdown]
# For our model's gradient on 8 machines of 8 GPUs:
#
# | all-reduce | cards busy | seconds | messages, one after the other |
# | --- | --- | --- | --- |
# | one ring | 1 of 8 | 0.507 | 126 |
# | eight rings | all | 0.063 | 126 |
# | two levels | all | 0.106; 0.056 if pieces overlap | 28 |
#
# So what two levels save is *latency*: on 16,384 GPUs they have 4,108 messages in a row, a ring 32,766.
#
# **Does it hide?** If ZeRO 3 gathers over these 64 GPUs by eight rings, a GPU gets $R$ = 406 GB/s.
# Llama 3 reached $F$ = 400 · 10¹², 41% of the peak, waits included (the *MFU*, model FLOPs
# utilization). So 984 tokens a step are enough; at the peak, about 2,400.

# %% [markdown]
# ## What stays inside a machine
# **HSDP** (hybrid) shards inside a machine only:
#
# ![HSDP on two machines of four GPUs. In each machine a GPU has a quarter of the parameters, the gradient and the optimizer's state, and gathers the rest from its own machine. GPUs with the same quarter all-reduce that quarter of the gradient between the machines.](../docs/figures/hsdp.svg)
#
# Its gathers never leave a machine; with eight machines of eight GPUs a card sends only 2 · 7/8 of an
# eighth of the gradient. But states keep 16/8 bytes for each parameter, on however many machines.
#
# **Tensor parallelism** stays inside, too, because its all-reduces hide badly: the next product needs
# their sum. For a token each of $n$ GPUs computes $72 h^2/n$ operations of a block, and all-reduces four
# vectors of $2h$ bytes. That sends about twice their bytes, $16 h$. With $h$ = 8,192 and 8 GPUs there are
# 4,608 operations for each byte. Inside a machine $F/R$ = 889, so if none hides, they add 889/4,608 = 19%
# to the time; between machines $F/R$ = 8,000, and they add 174%.

# %% [markdown]
# ## All the cuts in one table
# | parallelism | cuts | sends |
# | --- | --- | --- |
# | data (DDP) | examples | gradients |
# | ZeRO 3, FSDP | examples, the 16 bytes | parameters twice, gradients once |
# | pipeline | layers | activations and their gradients, between stages |
# | tensor | matrices | activations, in four all-reduces a block |
# | + sequence | norms, dropout by tokens | the same, as reduce-scatters and all-gathers |
# | context | tokens | keys and values, part by part |
# | expert | experts of a layer | tokens, by four *all-to-alls*: there and back, forward and backward |
#
# **Sequence.** Under tensor parallelism each GPU computes norms and dropout for all tokens, so eight
# GPUs divide only 24 of a block's 34 bytes: 10 + 24/8 = 13 are left. If they also divide the tokens of
# norms and dropout, 34/8 = 4.25 are left.
#
# **Context.** In *ring attention* devices divide the tokens of one long sequence. Queries stay, keys
# and values go around the ring, and each device adds up its softmax part by part:
#
# ![Ring attention on three devices. Each keeps the queries of its third of the tokens. Keys and values move one device to the right after steps 0 and 1; in step 2 all queries have met all keys and values.](../docs/figures/attention.svg)
#
# **Experts.** A *mixture of experts* (MoE) replaces the MLP of a block by many. A small matrix, the
# *router*, sends each token to the few with the highest scores: of DeepSeek-V3's 671 billion parameters
# a token uses 37 billion. The experts stand on several devices:
#
# ![Expert parallelism on two devices, each with four tokens and two of four experts. A router sends each token to one expert, by an all-to-all; the results come back by a second one. Expert 2 gets 4 of the eight tokens, expert 1 only one, so some devices wait for others.](../docs/figures/experts.svg)
#
# All wait for the device with the most tokens. So a term of the loss punishes uneven use, or a bias
# lowers a popular expert's score.

# %% [markdown]
# **Together.** A rank has a place in each cut, and ranks that send each other most are neighbours
# (first picture). In Llama 3 these were groups of 8 ranks, 16 stages and 128 pipelines.

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
assert (2**8 * 1.75, 2**15 * 1.75) == (448, 57344) and 2.0**-4 < 0.063  # E4M3 and E5M2

# %% [markdown]
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
    if np.size(answer) != 4:
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
# The messages hide easily; with one busy card in each machine they would take 3.5 s.
#
# </details>

# %% [markdown]
# **2. A layout for 64 GPUs.** ★★★ GPT-3 has 96 blocks of width 12,288, together $P$ = 174 billion
# parameters. You have 8 machines of 8 GPUs, and an update takes 64 sequences of 2,048 tokens, each of
# which is a micro-batch. $t$ ranks share each matrix, $K$ such groups are a pipeline under 1F1B, and
# $d$ pipelines are data-parallel with ZeRO 1. Whole blocks are computed again. Choose $t$, $K$, $d$ so that
# - the states, with gradients of 2 bytes, take at most 60 of a GPU's 80 GB;
# - the all-reduces of tensor parallelism stay inside a machine;
# - the pipeline is idle as little as possible.
#
# Give these, the GB of states on a GPU, the idle share (from 0 to 1), and the seconds in which a card
# of 50 GB/s sends what data parallelism exchanges in an update.
#
# <details><summary>Hint</summary>
#
# A GPU has $P/(tK)$ parameters, with $4 + 12/d$ bytes for each. A pipeline has $64/d$ micro-batches.
# ZeRO 1 reduce-scatters gradients of 2 bytes, and all-gathers parameters of 2 bytes.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if np.size(answer) != 6:
        return "give six numbers: t, K, d, GB, the idle share, seconds"
    t, K, d, states, idle, sends = answer
    P = 12 * 96 * 12288**2

    def near(value, right):
        return abs(value - right) <= 0.03 * right

    if any(value != int(value) or value < 1 for value in (t, K, d)) or t * K * d != 64:
        return "t, K and d are whole numbers, and t K d is 64; yours are %s, %s, %s" % (t, K, d)
    if t > 8:
        return "%d ranks that share a matrix stand in more than one machine" % t
    if 96 % K:
        return "96 blocks make no %d equal stages" % K
    right, M = (4 + 12 / d) * P / (t * K) / 1e9, 64 // d
    if right > 60:
        return "with this layout the states take %.0f GB of each GPU" % right
    if (t, K, d) != (8, 4, 2):
        return (
            "it fits, but the pipeline is idle for %.1f%%: another layout that fits is less so"
            % (100 * (K - 1) / (M + K - 1))
        )
    if near(states, 16 * P / (t * K) / 1e9):
        return "ZeRO 1 divides the 12 bytes of the optimizer among the d pipelines"
    if not near(states, right):
        return "the states are 4 + 12/d bytes for each of P/(t K) parameters"
    if near(idle, 100 * 3 / 35):
        return "the idle share is right in %; give it from 0 to 1"
    if near(idle, (K - 1) / M):
        return "you divide by the ideal time; the pipeline takes M + K - 1 turns"
    if near(idle, 3 / 67):
        return "the 64 micro-batches are those of both pipelines; each has 32"
    if not near(idle, 3 / 35):
        return "the idle share is (K - 1) / (M + K - 1), with M = 64 / d"
    if near(sends, 2 * P / (t * K) / 50e9 / 2):
        return "that is the reduce-scatter; an all-gather of the new parameters follows"
    if not near(sends, 2 * P / (t * K) / 50e9):
        return "2 bytes of P/(t K) parameters, of which each half sends (d - 1)/d"


# %%
# Your answer to exercise 2: t, K, d, GB, idle share, seconds
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# P = 12 * 96 * 12288**2
# fits = []
# for t in (1, 2, 4, 8):
#     for d in (1, 2, 4, 8, 16, 32, 64):
#         K = 64 // (t * d)
#         if K and 96 % K == 0:
#             states, idle = (4 + 12 / d) * P / (t * K) / 1e9, (K - 1) / (64 // d + K - 1)
#             fits += [(idle, t, K, d, states)] if states <= 60 else []
# idle, t, K, d, states = min(fits)
# sends = 2 * (d - 1) / d * 2 * P / (t * K) / 50e9
# answer_2 = t, K, d, states, idle, sends  # 8, 4, 2, 54 GB, 0.086, 0.22 s
# assert check_2(answer_2)
# ```
#
# Eight stages (8, 8, 1) would take 44 GB but be idle for 9.9%, and two (8, 2, 4) take 76 GB. The
# update computes for 7.1 s at $F$, so its 0.22 s can hide. Were only the scores computed again,
# stage 0 would store four micro-batches of 24 blocks, 13 bytes a value: 31 GB more.
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
# - DeepSeek-AI 2024, [DeepSeek-V3](https://arxiv.org/abs/2412.19437): experts and FP8, with NVIDIA's
#   [primer](https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/fp8_primer.html).
#
# **Elsewhere:** in PyTorch `fully_shard` on a 2D `DeviceMesh` is HSDP, `torch.utils.checkpoint`
# recomputes; in JAX `Mesh` and `jax.checkpoint`.
#
# Next: [Send-Less-Fail-Less](Send-Less-Fail-Less.ipynb): compression, local steps and failures.
