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
# # Send less, fail less
# Two data centres are joined by a link of 1 Gbit/s. The gradient of a billion parameters, of 4
# bytes each, takes 32 seconds on it, and a step computes for one. On 16,384 GPUs something fails
# every three hours, and stops all of them. Here you shrink messages to 2%, then send one for 200
# steps, and see what each costs. In the end you compute how much time failures leave you.
#
# After this notebook you can:
# - say what a compressed gradient loses, and how to keep it;
# - train with local steps and an outer optimizer, and say what they save;
# - compute how often a large cluster fails, and how often to save.
#
# **Before it:** [Local-then-Global-Variables](Local-then-Global-Variables.ipynb),
# [Ring-AllReduce](Ring-AllReduce.ipynb), [Beyond-ZeRO](Beyond-ZeRO.ipynb). **Time:** 40 minutes.

# %% [markdown]
# ## Send less: compression
# ![Two steps of one worker with top-k, k = 2. In the first it sends the largest entries, and keeps the others as e. In the second it adds e to lr g, and sends entries that were left out before. Below, what a worker sends with 2, 4 and 8 workers: 1, 1.5 and 1.75 messages if they are added up in the ring, as PowerSGD's, and 1, 3 and 7 if they are gathered.](../docs/figures/compressed.svg)
#
# *Top-k* sends only the largest entries of a gradient. *Error feedback* keeps the others in `e`, for the
# next step. **Notation:** the [glossary](GLOSSARY.md#notation)'s, so $k$ is the worker, but not in *top-k*:
#
# ```
# worker k   p <- lr * g_k(w) + e_k;   c_k <- top-k of p;   e_k <- p - c_k
# together   w <- w - mean of all c_k
# ```
# Four workers train the digits, in five runs with other first values and mini-batches. The top 1% are
# 24 of 2,410 numbers and their places, 192 bytes instead of 9,640.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, ORANGE, PURPLE, show

course.begin(graphs=False)

# %% jupyter={"source_hidden": true}
# The course's network in NumPy, with its parameters in one vector w of 2,410 numbers.
x, y, x_test, y_test = course.load()
SEEDS = range(5)


def first_w(seed):
    """Returns where run `seed` begins."""
    return np.concatenate([value.ravel() for value in course.first_values(seed).values()])


def layers(w):
    return w[:2048].reshape(64, 32), w[2048:2080], w[2080:2400].reshape(32, 10), w[2400:]


def loss(w):
    """Returns the loss on all rows for training."""
    return course.numpy_loss(layers(w), x, y)


def gradient(w, worker, t, seed=0):
    """Returns the gradient on mini-batch t of a worker in run `seed`: 32 rows."""
    rows = np.random.default_rng([seed, worker, t]).integers(0, len(x), 32)
    parts = course.numpy_gradient(layers(w), x[rows], y[rows])
    return np.concatenate([part.ravel() for part in parts])


def shown(values):
    """Returns the median of five runs, and their range."""
    return "%.2f (%.2f-%.2f)" % (np.median(values), min(values), max(values))


# %%
def top(p, share):
    """Returns p with all but its largest entries set to 0."""
    count = int(share * len(p))
    largest = np.argpartition(-np.abs(p), count - 1)[:count]
    c = np.zeros_like(p)
    c[largest] = p[largest]
    return c


def compressed(share, feedback, seed=0, n=4, lr=0.2, updates=400):
    """Returns the training loss after each 20th update."""
    w, e, losses = first_w(seed), np.zeros([n, 2410]), []
    for t in range(updates):
        p = lr * np.array([gradient(w, k, t, seed) for k in range(n)]) + e
        c = np.array([top(p_k, share) for p_k in p])
        e = p - c if feedback else 0
        w = w - c.mean(0)
        if t % 20 == 19:
            losses.append(loss(w))
    return losses


# %% [markdown]
# **Predict:** after 400 updates, which loss is lower: that of the top 10% without error feedback,
# or that of the top 1% with it?

# %% tags=["predicted"]
ways = {
    "all entries": (1, True),
    "top 10%, rest forgotten": (0.1, False),
    "top 1%, rest forgotten": (0.01, False),
    "top 1%, error feedback": (0.01, True),
}
curves = {name: [compressed(*way, seed) for seed in SEEDS] for name, way in ways.items()}
for name, runs in curves.items():
    print("%-24s loss %s" % (name, shown([run[-1] for run in runs])))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# all entries              loss 0.12 (0.11-0.12)
# top 10%, rest forgotten  loss 0.17 (0.16-0.17)
# top 1%, rest forgotten   loss 0.49 (0.45-0.52)
# top 1%, error feedback   loss 0.12 (0.12-0.12)
# ```
#
# That of the top 1% with it, in each of the five runs. With error feedback nothing is lost: all that
# a worker has sent, plus its last `e`, is the sum of its `lr * g`. Without it, the same entries are
# left out again and again. Top-k is *biased*: neither steps nor workers average that out.
#
# </details>

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 3.1), layout="constrained")
for (name, runs), color in zip(curves.items(), (GRAY, PURPLE, ORANGE, BLUE)):
    low, *_, high = np.sort(runs, axis=0)
    axes.fill_between(np.arange(20, 401, 20), low, high, color=color, alpha=0.15, lw=0)
    axes.plot(np.arange(20, 401, 20), np.median(runs, axis=0), color=color, lw=2, label=name)
axes.set(xlabel="updates", ylabel="training loss", yscale="log", xlim=(0, 400))
axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
axes.minorticks_off()
axes.legend(loc="upper right", fontsize=9)
show(
    figure,
    "Training loss against updates of four workers on the digits, the median and the range of five "
    "runs. The top 1% without error feedback falls slowest, the top 10% without it is in between; "
    "the top 1% with error feedback follows the curve of all entries after a late start.",
)
last = {name: np.array([run[-1] for run in runs]) for name, runs in curves.items()}
assert (last["top 1%, error feedback"] < last["top 10%, rest forgotten"]).all()
assert (last["top 10%, rest forgotten"] < last["top 1%, rest forgotten"]).all()
assert int(0.01 * 2410) == 24 and 24 * 8 == 192 and first_w(0).size * 4 == 9640
assert 2 * 3 / 4 * 9640 == 14460 and round(3 * 192 / 14460, 2) == 0.04

# %% [markdown]
# A ring cannot add up such messages, but hands on all: here 3 · 192 bytes instead of 14,460, so 4%,
# and more with more workers. *PowerSGD* sends two thin factors of a matrix instead, which can be added up
# ([Compressed-AllReduce](../Further-Algorithms/Compressed-AllReduce/)).
#
# ## Send less often: local SGD and DiLoCo
# In *local SGD* workers take $T$ steps alone, and then go on from the mean of their parameters.
# *DiLoCo* (Douillard et al. 2023) takes these steps with AdamW, which is Adam whose weights also
# decay. The workers' mean change $d$ then serves as a gradient for an *outer* optimizer, Nesterov's
# momentum $u$:
#
# ```
# T times    w_k <- w_k - lr * (SGD's or AdamW's step)
# together   d <- w - mean of all w_k;   u <- beta * u + d;   w <- w - outer * (d + beta * u)
# ```
#
# ![Local-SGD moves w to the mean of where two workers' T steps end, DiLoCo, with momentum, beyond it.](../docs/figures/local-steps.svg)
#
# (The picture has `outer` = 0.2 and `beta` = 0.9; SAGN, its third point, goes only a $T$-th of the
# way.)


# %%
def rounds(T, adam=False, outer=1.0, beta=0.0, seed=0, n=4, steps=400):
    """Returns the training loss after `steps` local steps. By default it is local SGD."""
    w, u, m, v = first_w(seed), 0, np.zeros([n, 2410]), np.zeros([n, 2410])
    for t in range(0, steps, T):
        w_k = np.array([w] * n)
        for s in range(t, t + T):
            g = np.array([gradient(w_k[k], k, s, seed) for k in range(n)])
            if adam:  # its moments stay with the worker (no weight decay here)
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                g = m / (1 - 0.9 ** (s + 1)) / (np.sqrt(v / (1 - 0.999 ** (s + 1))) + 1e-8)
            w_k = w_k - (0.01 if adam else 0.2) * g
        d = w - w_k.mean(0)
        u = beta * u + d
        w = w - outer * (d + beta * u)
    return loss(w)


# %% [markdown]
# **Predict:** each worker takes 400 steps. After which $T$ is local SGD's loss higher than with
# $T$ = 1: 20, 200, both or neither?

# %% tags=["predicted"]
print("T     KB sent by a worker        local SGD             DiLoCo")
lost = {}
for T in (1, 20, 200):
    local = [rounds(T, seed=seed) for seed in SEEDS]
    diloco = [rounds(T, adam=True, outer=0.5, beta=0.5, seed=seed) for seed in SEEDS]
    lost[T] = local, diloco
    print("%-5d %19.1f %18s %18s" % (T, 400 / T * 2 * 3 / 4 * 9.64, shown(local), shown(diloco)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# T     KB sent by a worker        local SGD             DiLoCo
# 1                  5784.0   0.12 (0.11-0.12)   0.04 (0.03-0.05)
# 20                  289.2   0.12 (0.11-0.12)   0.04 (0.04-0.05)
# 200                  28.9   0.12 (0.11-0.12)   0.06 (0.05-0.06)
# ```
#
# Neither, up to the range of the runs: the digits are easy, and 200 times fewer bytes cost local SGD
# nothing. DiLoCo, whose outer rates are not tuned here, ends higher with $T$ = 200. (Compare each
# column with its own first row, because the local steps differ.)
#
# </details>

# %% jupyter={"source_hidden": true}
# What the text says, checked.
assert np.isclose(rounds(1, steps=100), compressed(1, True, updates=100)[-1], rtol=1e-3)
for T in (20, 200):
    assert np.median(lost[T][0]) < 1.1 * np.median(lost[1][0])

# %% [markdown]
# On ImageNet, local SGD with $T$ = 12 lost six points of accuracy. *SlowMo* (Wang et al. 2020) wins a
# part of them back by a momentum of the mean, as DiLoCo's outer optimizer does.
# [DiLoCo](../Further-Algorithms/DiLoCo/)'s authors took $T$ = 500, `outer` = 0.7 and `beta` = 0.9 for
# language models.
#
# You tune these and the local rate together. A longer $T$ saves messages, but the copies drift
# apart. Two sites exchange $S$ bytes in about $S/R$ seconds, so let $T$ steps take several times as
# long ([Slow-Network](../Measurements/Slow-Network/)).
#
# ## Failures at scale
# If each GPU brings one interruption in $t_f$ hours, $n$ bring one in $t_f/n$, and each stops all.
# Llama 3's 16,384 GPUs had 419 unexpected ones in 54 days, of any cause. Which share of the time is then
# work that lasts, the *goodput*?
#
# Saving every $I$ seconds costs $C/I$ of the time, and an interruption loses $I/2$ of every $t_f/n$.
# The sum is smallest at Young's interval, $I = \sqrt{2 C \cdot t_f/n}$. A restart takes 10 minutes
# more. We take $C$ = 60 s, or 5 s if training waits only for a copy in memory (an *asynchronous
# checkpoint*).

# %%
t_f = 54 * 24 * 16384 / 419  # hours between two interruptions by one GPU


def goodput(n, C, restart=600, lives=200_000):
    """Returns Young's interval in s, and the share of time that lasts, simulated and estimated."""
    mtbf = t_f / n * 3600
    interval = (2 * C * mtbf) ** 0.5
    life = np.random.default_rng(0).exponential(mtbf, lives)  # from one failure to the next
    saved = np.maximum(life - restart, 0) // (interval + C) * interval
    return interval, saved.mean() / mtbf, 1 - C / interval - interval / 2 / mtbf - restart / mtbf


print("for each GPU one interruption in %.1f years" % (t_f / 24 / 365))
print("   GPUs   hours to the next    save every   goodput   with C = 5 s")
for n in (64, 1024, 16384, 65536):
    interval, share, _ = goodput(n, 60)
    row = n, t_f / n, interval / 60, 100 * share, 100 * goodput(n, 5)[1]
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
assert round(t_f) == 50677 and round(t_f / 16384, 1) == 3.1
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
# **1. How often to save?** ★☆☆ Pencil and paper: 2,048 of these GPUs, a checkpoint takes $C$ = 30 s
# and a restart 10 minutes. Give the hours from one interruption to the next, Young's interval in
# minutes, and the goodput in % by the estimate.
#
# <details><summary>Hint</summary>
#
# $t_f$ is 50,677 hours. The estimate takes from 1 the shares of saving, of lost work and of restarts.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.size(answer) != 3:
        return "give three numbers: hours, minutes, %"
    hours, minutes, percent = answer
    interval, _, estimate = goodput(2048, 30, lives=10)

    def near(value, right, share=0.02):
        return abs(value - right) <= share * right

    if near(hours, t_f):
        return "that is one GPU's time; any of 2,048 stops all of them"
    if not near(hours, t_f / 2048):
        return "each GPU brings one interruption in t_f hours; how many do 2,048 bring?"
    if near(minutes, interval):
        return "the interval is right in seconds; give minutes"
    if near(minutes, interval / 60 / 2**0.5):
        return "the interval is the root of 2 C t_f/n: you left out the 2"
    if not near(minutes, interval / 60):
        return "the interval is the root of 2 C t_f/n, with both times in seconds"
    if near(percent, estimate):
        return "that is a share of 1; give it in %"
    if near(percent, 100 * (estimate + 600 / (t_f / 2048 * 3600)), 0.001):
        return "you left out the restarts"
    if near(percent, 100 * (1 - 30 / interval - 600 / (t_f / 2048 * 3600)), 0.001):
        return "you left out the work since the last checkpoint, half an interval on average"
    if not near(percent, 100 * estimate, 0.004):
        return "take C/I, I/2 of the time between failures, and the restart's share from 1"


# %%
# Your answer to exercise 1: hours, minutes, %
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# hours = t_f / 2048
# interval = (2 * 30 * hours * 3600) ** 0.5
# lost = 30 / interval + interval / 2 / (hours * 3600) + 600 / (hours * 3600)
# answer_1 = hours, interval / 60, 100 * (1 - lost)  # 24.7 hours, 38.5 minutes, 96.7%
# assert check_1(answer_1)
# ```
#
# At Young's interval, saving and lost work cost the same: 1.3% each.
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
    w, e = first_w(0), np.zeros(2410)
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
# - Karimireddy et al. 2019, [Error Feedback](https://arxiv.org/abs/1901.09847).
# - Douillard et al. 2023, [DiLoCo](https://arxiv.org/abs/2311.08105).
# - Wang et al. 2020, [SlowMo](https://arxiv.org/abs/1910.00643).
# - Young 1974, [Optimum Checkpoint Interval](https://doi.org/10.1145/361147.361115).
# - Grattafiori et al. 2024, [The Llama 3 Herd of Models](https://arxiv.org/abs/2407.21783), 3.3.4.
#
# **Elsewhere:** in PyTorch a *communication hook* of DDP compresses, and `torchft` trains on when
# workers fail; in JAX Orbax saves asynchronously.
#
# Next: [Classic-Mistakes-Synchrony](Classic-Mistakes-Synchrony.ipynb).
