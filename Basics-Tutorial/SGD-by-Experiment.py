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
# # SGD by experiment
# Your batch has 4 million tokens. Would twice as many GPUs halve the time? Synchronous ones make the
# batch twice as large; eight asynchronous ones make each gradient about seven updates old. How large
# may a batch be, and how old a gradient? You can measure both in seconds; the first helped to choose
# GPT-3's batch of 3.2 million tokens. You will be able to answer from one number, the critical batch: if
# it is 2 million tokens, you save 17% of the steps; if it is 16 million, 40%.
#
# After this notebook you can:
# - measure the noise of a gradient, and estimate the critical batch from it;
# - choose SGD's learning rate for a larger batch, and say when the rule fails;
# - compute the largest stable learning rate, with and without staleness, and tell when a warm-up helps;
# - explain why asynchrony acts like momentum.
#
# **Before it:** [Stale-Gradients](Stale-Gradients.ipynb),
# [Synchronous-Replicas](Synchronous-Replicas.ipynb). **Time:** 45 minutes.
#
# **[Notation](GLOSSARY.md#notation):** $k$ is the factor of a batch, but in $g_k$ a worker; $E$ is an
# expected value.

# %% [markdown]
# ## What more workers change
# ![Four workers, each with a gradient of a mini-batch of B rows. Synchronous: their mean is one gradient of 4 B rows, and w makes one step. Asynchronous: each gradient makes a step of its own, and w has moved three times between the pull and the push of the last.](../docs/figures/scaling.svg)
#
# With $n$ workers and mini-batches of $B$ examples:
# - synchronous SGD is plain SGD with batches of $nB$, so an epoch has $n$ times fewer steps;
# - asynchronous SGD makes as many steps as before, with gradients about $n - 1$ steps old.
#
# One process can play both. A folded cell defines `gradient(w, rows)`, `loss(w)` and `test_accuracy(w)`
# for the digits, with all parameters in one vector.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, show

course.begin()

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()
values = course.first_values().values()
w_0 = np.concatenate([value.ravel() for value in values])  # where training begins

point = tf.placeholder(tf.float32, w_0.shape)
X, Y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
pieces = tf.split(point, [value.size for value in values])
layers = [tf.reshape(piece, value.shape) for piece, value in zip(pieces, values)]
loss_op, accuracy_op = course.loss(layers, X, Y), course.accuracy(layers, X, Y)
gradient_op = tf.gradients(loss_op, point)[0]
session = tf.Session()


def gradient(w, rows):
    """The gradient at w of the mean loss of these rows: [2410]."""
    return session.run(gradient_op, {point: w, X: x[rows], Y: y[rows]})


def loss(w):
    """The loss at w of all rows for training."""
    return session.run(loss_op, {point: w, X: x, Y: y})


def test_accuracy(w):
    return session.run(accuracy_op, {point: w, X: x_test, Y: y_test})


ALL = np.arange(len(x))

# %% [markdown]
# ## Noise, and the critical batch
# A mini-batch's gradient $g_B$ estimates the gradient $g$ of all examples. Its error is
# $E\,|g_B - g|^2 = \operatorname{tr}\Sigma / B$, where $\operatorname{tr}\Sigma$ is the variance of one
# example's gradient, because a mean of $B$ independent ones has $1/B$ of its variance.


# %%
def error(w, B):
    """The mean of |g_B - g|^2 at w, of 200 mini-batches of B rows."""
    random, g = np.random.RandomState(0), gradient(w, ALL)
    several = [gradient(w, random.randint(0, len(x), B)) for _ in range(200)]
    return np.mean([np.sum((g_B - g) ** 2) for g_B in several])


random = np.random.RandomState(0)
places = {0: w_0}
for step in range(1, 201):
    places[step] = places[step - 1] - 0.2 * gradient(
        places[step - 1], random.randint(0, len(x), 32)
    )

for B in 8, 32, 128, 512:
    print("B = %3d: error times B = %.1f" % (B, B * error(places[200], B)))

# %% [markdown]
# The product stays the same, so four times the work only halves the noise. Whether that pays
# depends on the gradient (McCandlish et al. 2018):
#
# $$B_\text{noise} = \frac{\operatorname{tr}\Sigma}{|g|^2}$$
#
# With this many examples, noise and gradient are equally long. At the best learning rates, training
# takes about $1 + B_\text{noise} / B$ times the steps that it would take without noise. Well below
# $B_\text{noise}$ twice the batch needs half the steps, so more workers pay. Well above it, they save
# almost nothing. Hence the name *critical batch*. (This is the paper's *simple* noise scale, for equal
# curvature in all directions: trust its order of magnitude, not its digits.)

# %%
noise_scales = {}
for step in 0, 200:
    squared = np.sum(gradient(places[step], ALL) ** 2)
    noise_scales[step] = 32 * error(places[step], 32) / squared
    print(
        "after %3d steps: |g|^2 = %.4f, critical batch %4.0f" % (step, squared, noise_scales[step])
    )

# %% jupyter={"source_hidden": true}
errors = [error(places[200], B) for B in (8, 32, 128, 512)]
assert np.allclose(errors[0] / np.array(errors), [1, 4, 16, 64], rtol=0.25)
assert 3 * noise_scales[0] < noise_scales[200]
two_workers = [(1 + scale / 64) / (1 + scale / 32) for scale in noise_scales.values()]
assert 0.7 < two_workers[0] < 0.75 and 0.5 < two_workers[1] < 0.6

# %% [markdown]
# On this path the critical batch has grown after 200 steps, because the gradient has shrunk more
# than the noise; McCandlish et al. find the same in large models. By the rule above, two workers
# with 32 examples each need nearly three quarters of one worker's steps at the start, and a little
# more than half after 200 steps. They can measure $B_\text{noise}$ themselves (exercise 1).
#
# ## The learning rate of a larger batch
# With a larger batch an epoch has fewer steps, so each must go farther: for SGD $k$ times as far
# (Goyal et al. 2017),
#
# $$\text{batch} \times k \quad\Rightarrow\quad lr \times k$$
#
# because $k$ small steps at almost the same $w$ move it by $k\,lr$ times their mean gradient.
#
# **Predict:** batch 32 with lr 0.1 reaches 97% in 20 epochs. Which of these does about as well:
# batch 128 with lr 0.1, 128 with 0.4, 256 with 0.8, 512 with 1.6?


# %% tags=["predicted"]
def train(B, lr, start=w_0, epochs=20, warm_up=0, seed=0):
    """SGD with batches of B rows. Returns the loss after each epoch, and the last w."""
    random, w, losses = np.random.RandomState(seed), start, [loss(start)]
    steps = len(x) // B  # per epoch
    for step in range(epochs * steps):
        rate = lr * min(1, (step + 1) / (warm_up * steps)) if warm_up else lr
        w = w - rate * gradient(w, random.randint(0, len(x), B))
        if (step + 1) % steps == 0:
            losses.append(loss(w))
    return losses, w


runs, accuracies = {}, {}
for B, lr in (32, 0.1), (128, 0.1), (128, 0.4), (256, 0.8), (512, 1.6):
    five = [train(B, lr, seed=seed) for seed in range(5)]
    runs[B, lr] = np.median([losses for losses, _ in five], axis=0)
    tests = [100 * test_accuracy(last) for _, last in five]
    accuracies[B, lr] = np.median(tests)
    shown = B, lr, runs[B, lr][-1], accuracies[B, lr], min(tests), max(tests)
    print("batch %3d, lr %.1f: loss %.2f, accuracy %2.0f%% (%.0f-%.0f)" % shown)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# batch  32, lr 0.1: loss 0.11, accuracy 97% (97-98)
# batch 128, lr 0.1: loss 0.33, accuracy 93% (93-94)
# batch 128, lr 0.4: loss 0.12, accuracy 97% (96-98)
# batch 256, lr 0.8: loss 0.12, accuracy 97% (96-98)
# batch 512, lr 1.6: loss 1.36, accuracy 54% (21-84)
# ```
#
# (The median of five runs with other mini-batches, and the range.) Batch 128 with 0.4 does as well as
# 32 with 0.1, and so does 256 with 0.8 after some jumps at the start. Batch 128 with 0.1 falls behind,
# because it makes a quarter of the steps without making them longer. With 512 and 1.6 $w$ does not
# stay "almost the same" (1.6 is above the limit of the next section), and no run is as good.
#
# </details>

# %% jupyter={"source_hidden": true}
assert min(accuracies[key] for key in [(32, 0.1), (128, 0.4), (256, 0.8)]) > 95.5
assert accuracies[128, 0.1] < 95 and accuracies[512, 1.6] < 95
figure, axes = plt.subplots()
styles = zip(runs.items(), [BLUE, GRAY, ORANGE, PURPLE, RED], ["-", "-", "--", ":", "-"])
for ((B, lr), losses), colour, style in styles:
    label = "batch %d, lr %.1f" % (B, lr)
    axes.plot(losses, style, color=colour, label=label, linewidth=2)
axes.set(xlabel="epoch", ylabel="loss", ylim=(0, 3.2), xticks=range(0, 21, 5))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(
    figure,
    "Loss by epoch, the median of five runs. Batch 32 with lr 0.1 and 128 with 0.4 lie on each "
    "other; 256 with 0.8 joins them after 10 epochs. Batch 128 with lr 0.1 is slower. Batch 512 with lr 1.6 goes up and down and "
    "learns little.",
)

# %% [markdown]
# This *linear* rule holds for SGD, also with momentum, while the batch is not far above the critical one,
# nor the rate far above a limit that comes next. For Adam, which we do not run here, Malladi et al.
# (2022) derive $\sqrt{k}$: Adam divides by the size of the noise, which falls by $\sqrt{k}$, so the part
# of its steps along $g$ grows by $\sqrt{k}$ by itself. Their rule holds while the noise is larger than the
# gradient, and changes Adam's $\beta_1$, $\beta_2$ and $\epsilon$, too.
#
# ## The stability limit
# How large may a step be at all? On a bowl $f(w) = \frac{1}{2} \lambda w^2$ the gradient is
# $\lambda w$, and a step gives $w \leftarrow (1 - lr\,\lambda)\, w$. It shrinks $w$ only if
#
# $$lr < \frac{2}{\lambda}$$
#
# Near a point the loss of a network is like a bowl, with another $\lambda$ in each direction. The
# largest is the *sharpness*, the largest eigenvalue of the Hessian (the matrix of second
# derivatives). If you multiply a vector by it repeatedly, it turns into the steepest direction.

# %% jupyter={"source_hidden": true}
vector = tf.placeholder(tf.float32, w_0.shape)
hessian_times_vector = tf.gradients(tf.reduce_sum(gradient_op * vector), point)[0]


def sharpness(w, rounds=100):
    """Returns the largest eigenvalue of the Hessian at w, and its direction."""
    v = np.random.RandomState(0).normal(size=w.shape)
    for _ in range(rounds):
        v = v / np.linalg.norm(v)
        product = session.run(hessian_times_vector, {point: w, X: x, Y: y, vector: v})
        eigenvalue, v = v @ product, product
    return eigenvalue, v / np.linalg.norm(v)


w_2 = w_0
for _ in range(1500):  # with all rows: to a place where the slope is small
    w_2 = w_2 - 0.2 * gradient(w_2, ALL)
steep, direction = sharpness(w_2)
print("sharpness %.2f: the limit is lr = %.2f" % (steep, 2 / steep))


# %% jupyter={"source_hidden": true}
def left_of_a_push(lr, steps=6, push=0.01):
    """Returns what is left of a push of w_2 in the steepest direction, after steps with all rows."""
    pushed, plain = w_2 + push * direction, w_2
    for _ in range(steps):
        pushed, plain = pushed - lr * gradient(pushed, ALL), plain - lr * gradient(plain, ALL)
    return abs(direction @ (pushed - plain)) / push


below, above = left_of_a_push(0.8 * 2 / steep), left_of_a_push(1.2 * 2 / steep)
print("a push of w in this direction, after 6 steps 20%% below the limit: times %.1f" % below)
print(
    "                                            20%% above the limit: times %.0f or so"
    % round(above, -1)
)
assert below < 0.2 and above > 5

# %% [markdown]
# ## Warm-up
# From a steep start, the learning rate that is right later is too large at first. A *warm-up* raises
# it from almost 0 within the first epochs. Our steep start has all first values times 4.
#
# **Predict:** with batch 256 and lr 0.8, does a warm-up of 3 epochs help from the usual start, from
# the steep one, or from both?

# %% tags=["predicted"]
for name, start in ("usual start", w_0), ("steep start", 4 * w_0):
    results = []
    for warm_up in 0, 3:
        lasts = [train(256, 0.8, start, warm_up=warm_up, seed=seed)[1] for seed in range(5)]
        results.append(100 * np.median([test_accuracy(last) for last in lasts]))
    print("%s, sharpness %4.1f: " % (name, sharpness(start)[0]), end="")
    print("%2.0f%% without a warm-up, %2.0f%% with one" % (results[0], results[1]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# usual start, sharpness  2.9: 97% without a warm-up, 97% with one
# steep start, sharpness 30.7: 85% without a warm-up, 94% with one
# ```
#
# (Medians of five runs.) Only from the steep one. There the limit is 2/30.7 = 0.07, so steps at 0.8
# throw `w` to a place from which 20 epochs do not bring it back. The usual start survives: 0.8 is only a
# little above its limit of 0.69.
#
# </details>
#
# ## Staleness lowers the limit
# If each gradient is $\tau$ steps old, $w_{t+1} = w_t - lr\, g(w_{t-\tau})$, the limit of
# [Stale-Gradients](Stale-Gradients.ipynb) is, for any curvature $\lambda$,
#
# $$lr < \frac{2}{\lambda} \sin\frac{\pi}{2\,(2\tau + 1)}$$
#
# For $n$ workers in turn, $\tau = n - 1$. The limit is half of $2/\lambda$ for two, and about
# $\pi / (2 \lambda n)$ for many: twice the workers need about half the learning rate.
#
# ## Asynchrony acts like momentum
# If each push comes from any of $n$ workers with the same chance, its gradient is $\tau$ steps old with
# probability $(1 - \mu)\,\mu^\tau$, where $\mu = 1 - 1/n$. On a bowl the *mean* of many such runs obeys
#
# $$E[w_{t+1} - w_t] = \mu\, E[w_t - w_{t-1}] - (1 - \mu)\, lr\; g(E[w_t])$$
#
# That is momentum $\mu$ with the learning rate $lr / n$ (Mitliagkas et al. 2016). We compare it with 4,000
# runs of eight asynchronous workers on the bowl, with $\lambda = 1$ and lr = 0.5:

# %%
n, lr, runs_at_once, steps = 8, 0.5, 4000, 60
mu, random = 1 - 1 / n, np.random.RandomState(0)

asynchronous = [np.ones(runs_at_once)]
for t in range(steps):
    delays = np.minimum(random.geometric(1 / n, runs_at_once) - 1, t)  # before 0, w was at 1
    old = np.array(asynchronous)[t - delays, np.arange(runs_at_once)]
    asynchronous.append(asynchronous[-1] - lr * old)
mean = np.mean(asynchronous, axis=1)

momentum, move = [1.0], -lr  # before 0 the old gradients were those at 1, too
for t in range(steps):
    move = mu * move - lr / n * momentum[-1]
    momentum.append(momentum[-1] + move)

print("update            " + "".join("%7d" % t for t in range(0, 31, 5)))
print("asynchronous: mean" + "".join("%7.2f" % value for value in mean[:31:5]))
print("momentum 7/8      " + "".join("%7.2f" % value for value in momentum[:31:5]))

# %% [markdown]
# The mean swings through the minimum and back like a heavy ball, though each step with a fresh gradient
# would halve `w`. A single run (gray) swings still more.

# %% jupyter={"source_hidden": true}
assert np.allclose(mean, momentum, atol=0.05)
figure, axes = plt.subplots()
axes.plot(np.array(asynchronous)[:, :3], color=GRAY, linewidth=0.6)
axes.plot(mean, color=ORANGE, linewidth=4, alpha=0.5, label="8 asynchronous workers, lr 1/2: mean")
axes.plot(momentum, "--", color=BLUE, label="momentum 7/8, lr 1/16")
axes.plot((1 - lr / n) ** np.arange(steps + 1), color=GREEN, label="lr 1/16 alone")
axes.plot([], color=GRAY, linewidth=0.6, label="three of the asynchronous runs")
axes.axhline(0, color="black", linewidth=0.5)
axes.set(xlabel="update", ylabel="w", ylim=(-2.5, 2.5))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(
    figure,
    "The mean of the asynchronous runs swings through the minimum and back; the curve of momentum "
    "7/8 lies on it. lr 1/16 alone goes to the minimum without a swing.",
)

# %% [markdown]
# For a network the equation holds near a minimum only. But asynchrony adds to your optimizer's
# momentum, so lower that one (exercise 2).
#
# Back to your 4 million tokens. If you measure a critical batch of 2 million, twice the batch needs
# $(1 + 2/8)/(1 + 2/4)$ = 83% of the steps: hardly worth it. If it is 16 million, $(1 + 16/8)/(1 + 16/4)$
# = 60%.

# %% [markdown]
# ## Exercises
# **1. The critical batch from four workers.** ★★☆ With paper and pencil: four workers have 32
# examples each. The mean of their $|g_k|^2$ is 0.5, and their mean gradient has $|\bar g|^2$ = 0.2.
# Estimate the critical batch; then write it as a function.
#
# <details><summary>Hint</summary>
#
# Noise makes a gradient longer: $E\,|g_B|^2 = |g|^2 + \operatorname{tr}\Sigma / B$. Write this for
# $B = 32$ and for $B = 128$.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    for small, large, B, n in (0.5, 0.2, 32, 4), (3.0, 2.5, 16, 3):
        trace = (small - large) / (1 / B - 1 / (n * B))
        squared = small - trace / B
        value = answer(small, large, B, n)
        where = "for %g and %g with %d workers and B = %d: " % (small, large, n, B)
        if np.isclose(value, trace / squared):
            continue
        if np.isclose(value, trace):
            return where + "this is tr Sigma; divide it by |g|^2"
        if np.isclose(value, squared / trace):
            return where + "that is upside down: the critical batch is tr Sigma / |g|^2"
        if np.isclose(value, trace / large):
            return where + "|g_mean|^2 still has noise in it: it is not |g|^2"
        if np.isclose(value, B * (small - large) / large):
            return where + "the difference is not tr Sigma / B, because both have noise"
        return where + "the critical batch is not %g" % value


# %%
# Your answer to exercise 1
def answer_1(small, large, B, n):
    """Returns the critical batch. small: mean of |g_k|^2 with B rows; large: |g_mean|^2 of n B."""
    raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_1(small, large, B, n):
#     trace = (small - large) / (1 / B - 1 / (n * B))
#     squared = large - trace / (n * B)
#     return trace / squared
#
#
# assert check_1(answer_1)
# ```
#
# $0.5 - 0.2 = \operatorname{tr}\Sigma\,(1/32 - 1/128)$ gives $\operatorname{tr}\Sigma = 12.8$; then
# $|g|^2 = 0.5 - 12.8/32 = 0.1$, and the critical batch is 128, just what the four workers have
# together. They need $1 + 128/128 = 2$ times the steps of a run without noise, one worker
# $1 + 128/32 = 5$ times. (A real estimate averages over many steps.)
#
# </details>


# %% jupyter={"source_hidden": true} tags=["measured"]
def train_stale(momentum, n, lr=0.05, steps=600, seed=0):
    """The loss after SGD with the delays of n asynchronous workers."""
    random, move, past = np.random.RandomState(seed), 0, [w_0]
    for step in range(steps):
        old = past[max(0, step - (random.geometric(1 / n) - 1))]
        move = momentum * move + lr * gradient(old, random.randint(0, len(x), 32))
        past.append(past[-1] - move)
    return loss(past[-1])


for n in 1, 4:
    losses = [train_stale(0.9, n, seed=seed) for seed in range(3)]
    print("momentum 0.9, workers: %d, losses of three runs:" % n, *np.round(losses, 2))

# %% [markdown]
# **2. Too much momentum.** ★★☆ With lr 0.05 and momentum 0.9 one worker trains the digits well; with
# four asynchronous ones the loss is higher, and different in each run, as you see above. Choose a
# momentum with which all three runs of four workers end below 0.2.
#
# <details><summary>Hint</summary>
#
# Asynchrony itself brings momentum 1 − 1/4, so less is enough. But a small momentum is also a slow one.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if not 0 <= answer < 1:
        return "a momentum is from 0 to below 1"
    last = np.max([train_stale(answer, 4, seed=seed) for seed in range(3)])
    if not last < 0.2:
        end = "%g: the highest of three losses is %.2f" % (answer, last)
        return ("too large, " if answer > 0.6 else "too small, ") + end


# %%
# Your answer to exercise 2
answer_2 = ...  # the momentum

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = 0.6
#
# assert check_2(answer_2)
# assert train_stale(0.9, 1) < 0.2  # one worker: no delay
# ```
#
# The theory tells you to go lower than 0.9, and a search how far.
#
# </details>

# %%
# Stop what this notebook started.
session.close()
course.end()

# %% [markdown]
# ## Read more
# - McCandlish et al. 2018, [An Empirical Model of Large-Batch
#   Training](https://arxiv.org/abs/1812.06162): the critical batch.
# - Goyal et al. 2017, [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677): linear
#   scaling and warm-up; Malladi et al. 2022, [On the SDEs and Scaling Rules for Adaptive Gradient
#   Algorithms](https://arxiv.org/abs/2205.10287): Adam's rule.
# - Mitliagkas et al. 2016, [Asynchrony begets Momentum](https://arxiv.org/abs/1605.09774);
#   Cohen et al. 2021, [the edge of stability](https://arxiv.org/abs/2103.00065): why networks survive
#   steps beyond the limit.
# - Real workers: [Synchronous-SGD](../Synchronous-SGD/) measures batch size and warm-up,
#   [Compare](../Measurements/Compare/) each algorithm's best learning rate.
#
# **Elsewhere:** a warm-up is `LinearLR` in PyTorch, `CosineDecay(warmup_steps=…)` in Keras and
# `warmup_cosine_decay_schedule` in JAX's Optax.
#
# Next: [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb): the ring under today's names.
