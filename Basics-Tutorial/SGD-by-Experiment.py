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
# # The theory of SGD, by experiment
# Add workers, and you change the algorithm: synchronous workers make the batch larger, and
# asynchronous workers make the gradients older. How large, and how old, may they be? This notebook
# measures it, on the digits and within seconds.
#
# After this notebook you can:
# - say how the noise of a gradient depends on the batch size;
# - apply the linear scaling rule for the learning rate, and find where it breaks;
# - compute the largest stable learning rate, with and without staleness;
# - tell when a warm-up helps;
# - explain why asynchrony acts like momentum, and choose the learning rate with that in mind.
#
# **Before it:** [Stale-Gradients](Stale-Gradients.ipynb),
# [Synchronous-Replicas](Synchronous-Replicas.ipynb). **Time:** 75 minutes.

# %% [markdown]
# ## What more workers change
# ![Four workers, each with a gradient of a mini-batch of B rows. Synchronous: their mean is one gradient of 4 B rows, and w makes one step. Asynchronous: each gradient makes a step of its own, and w has moved three times between the pull and the push of the last.](../docs/figures/scaling.svg)
#
# With $n$ workers and mini-batches of $B$ rows:
# - synchronous SGD is plain SGD with batches of $n B$ rows, and makes $n$ times fewer steps an epoch;
# - asynchronous SGD makes as many steps as before, with gradients that are about $n - 1$ steps old.
#
# So we need no cluster here. One process can play both, and repeat each run exactly.

# %% jupyter={"source_hidden": true}
# region: set_up -- the same in each notebook: TensorFlow without messages, a folder, pictures
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same results on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import io
import tempfile
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from IPython.display import display

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()        # graphs and sessions: see Graphs-and-Sessions
tf.enable_resource_variables()  # a read is a copy of the value
tf.reset_default_graph()        # so that you can run all cells again

HERE = globals().get("HERE", os.getcwd())
folder = tempfile.TemporaryDirectory()  # what this notebook writes goes there
os.chdir(folder.name)

BLUE, ORANGE, PURPLE, GREEN, GRAY, RED = (
    "#0969da", "#bc4c00", "#8250df", "#1a7f37", "#818b98", "#cf222e")  # workers 0, 1, 2, ...
plt.rcParams.update({
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, PURPLE, GREEN, RED, GRAY]),
    "legend.frameon": False, "figure.figsize": (7, 3)})

def show(figure, description):
    """Shows a figure at 150 dpi, with a description for those who cannot see it."""
    stored = io.BytesIO()
    figure.savefig(stored, format="png", dpi=150, bbox_inches="tight")
    plt.close(figure)
    size = {"width": round(100 * figure.get_figwidth()), "alt": description}
    display({"image/png": stored.getvalue(), "text/plain": description}, raw=True,
            metadata={"image/png": size})
# endregion: set_up

# %% jupyter={"source_hidden": true}
# %%writefile digits.py
# region: digits -- the same in each notebook: handwritten digits, and a network 64 - 32 - 10
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

def load():
    """1,437 rows for training and 360 for the test: x [rows, 64] from 0 to 1, y [rows]; twice."""
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order].astype("int32")
    return x[:-360], y[:-360], x[-360:], y[-360:]

def first_values(seed=0):
    """Where training begins: the weights and biases of two layers, 2,410 numbers in all."""
    random = np.random.RandomState(seed)
    layers = [random.normal(0, (2 / 64) ** 0.5, [64, 32]), np.zeros(32),
              random.normal(0, (2 / 32) ** 0.5, [32, 10]), np.zeros(10)]
    return [layer.astype("float32") for layer in layers]

def variables(name="w", seed=0, get_variable=tf.get_variable):
    """The four variables name_0 to name_3."""
    return [get_variable("%s_%d" % (name, i), initializer=value)
            for i, value in enumerate(first_values(seed))]

def outputs(w, x):
    """A score for each of the ten digits: [rows, 10]."""
    return tf.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]

def loss(w, x, y):
    """The mean cross-entropy of these rows."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs(w, x)))

def accuracy(w, x, y):
    """The share of rows whose digit has the highest score."""
    right = tf.equal(tf.argmax(outputs(w, x), 1, output_type=tf.int32), y)
    return tf.reduce_mean(tf.cast(right, tf.float32))

def batch(x, y, number, worker=0, size=32):
    """Mini-batch `number` of a worker: rows drawn by (worker, number), the same in each run."""
    rows = tf.random.stateless_uniform(
        [size], tf.stack([tf.cast(worker, tf.int64), tf.cast(number, tf.int64)]),
        0, len(x), tf.int32)
    return tf.gather(x, rows), tf.gather(y, rows)
# endregion: digits

# %% [markdown]
# All variables of the network stand in one vector `w` of 2,410 numbers. TensorFlow computes a
# gradient at any `w` that we feed. Each algorithm is then a few lines of NumPy.

# %%
import digits

x, y, x_test, y_test = digits.load()
values = digits.first_values()
w_0 = np.concatenate([value.ravel() for value in values])  # where training begins

point = tf.placeholder(tf.float32, w_0.shape)
X, Y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
pieces = tf.split(point, [value.size for value in values])
w = [tf.reshape(piece, value.shape) for piece, value in zip(pieces, values)]
loss_op, accuracy_op = digits.loss(w, X, Y), digits.accuracy(w, X, Y)
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

# %% [markdown]
# ## Noise: a larger batch is a better estimate
# A mini-batch gradient $g_B$ is an estimate of the gradient $g$ of all rows. Its error is
# $E\,|g_B - g|^2$.
#
# **Predict:** we take 200 gradients with 8, 32, 128 and 512 rows each. By what factor does the error
# fall from one size to the next?

# %%
random = np.random.RandomState(0)
w_1 = w_0
for _ in range(200):  # a place on the way
    w_1 = w_1 - 0.2 * gradient(w_1, random.randint(0, len(x), 32))

sizes, errors = [8, 32, 128, 512], []
g = gradient(w_1, np.arange(len(x)))
for B in sizes:
    several = [gradient(w_1, random.randint(0, len(x), B)) for _ in range(200)]
    errors.append(np.mean([np.sum((g_B - g) ** 2) for g_B in several]))
    print("B = %3d: error %.3f, error times B %4.1f" % (B, errors[-1], B * errors[-1]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# By 4, as the batch grows by 4: the error is $\text{const} / B$, so error times B stays the same.
# The mean of B independent estimates has a variance B times smaller. In length ($\sqrt{\ }$) it is
# only 2 times smaller: 4 times the work only halves the noise.
#
# </details>

# %% jupyter={"source_hidden": true}
assert np.allclose(errors[0] / np.array(errors), [1, 4, 16, 64], rtol=0.25)

# %% [markdown]
# ## The linear scaling rule
# With a larger batch you make fewer steps an epoch. If nothing else changes, you learn less from
# each epoch. But the gradient is less noisy, so a larger step is safe. The rule
# (Goyal et al. 2017):
#
# $$\text{batch} \times k \quad\Rightarrow\quad lr \times k$$
#
# The reason: $k$ small steps at almost the same $w$ move it by
# $-lr\,(g_1 + \dots + g_k) = -(k\,lr)\cdot\text{mean}$, and that is one step with the mean of all.
#
# **Predict:** batch 32 with lr 0.1 reaches 97% in 20 epochs. Which of these does about as well:
# batch 128 with lr 0.1, 128 with 0.4, 256 with 0.8, 512 with 1.6?

# %%
def train(B, lr, start=w_0, epochs=20, warm_up=0, seed=0):
    """SGD with batches of B rows; (the loss after each epoch, the last w)."""
    random, w, losses = np.random.RandomState(seed), start, [loss(start)]
    steps = len(x) // B  # in an epoch
    for step in range(epochs * steps):
        rate = lr * min(1, (step + 1) / (warm_up * steps)) if warm_up else lr
        w = w - rate * gradient(w, random.randint(0, len(x), B))
        if (step + 1) % steps == 0:
            losses.append(loss(w))
    return losses, w

runs = {}
for B, lr in (32, 0.1), (128, 0.1), (128, 0.4), (256, 0.8), (512, 1.6):
    losses, last = train(B, lr)
    runs["batch %d, lr %.1f" % (B, lr)] = losses
    print("batch %3d, lr %.1f: loss %.2f, test accuracy %2.0f%%" % (
        B, lr, losses[-1], 100 * test_accuracy(last)))

# %%
figure, axes = plt.subplots()
styles = zip(runs.items(), [BLUE, GRAY, ORANGE, PURPLE, RED], ["-", "-", "--", ":", "-"])
for (name, losses), colour, style in styles:
    axes.plot(losses, style, color=colour, label=name, linewidth=2)
axes.set(xlabel="epoch", ylabel="loss", ylim=(0, 3.2), xticks=range(0, 21, 5))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Loss by epoch. Batch 32 with lr 0.1 and 128 with 0.4 lie on each other; 256 with 0.8 "
     "joins them after 10 epochs. Batch 128 with lr 0.1 is slower. Batch 512 with lr 1.6 goes up "
     "and down and learns little.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 128 with 0.4 lies on the curve of 32 with 0.1; 256 with 0.8 is rough at first, and ends at the same
# loss. 128 with 0.1 makes a quarter of the steps, and is behind. 512 with 1.6 breaks: the $k$
# small steps are no longer at "almost the same $w$", and one large step goes too far. The next
# section says how large a step may be.
#
# </details>
#
# So synchronous SGD scales as long as the rule holds: here up to 8 workers with 32 rows each. With
# more workers the gradients get better still, but the step may not grow with them. Then you need
# more epochs, and the additional workers save little time.
#
# ## The stability limit
# On a bowl $f(w) = \frac{1}{2} \lambda w^2$ the gradient is $\lambda w$, and a step gives
# $w \leftarrow (1 - lr\,\lambda)\, w$. It shrinks $w$ only if
#
# $$lr < \frac{2}{\lambda}$$
#
# Near a point the loss of a network is like a bowl, too, with another $\lambda$ in each direction.
# The largest belongs to the steepest direction. It is the largest eigenvalue of the Hessian, the
# matrix of the second derivatives, and is called the *sharpness*. We need no matrix of 2,410 x
# 2,410 for it. Multiply a random vector again and again by the Hessian: it turns into the
# direction of the eigenvalue of largest size (*power iteration*).

# %%
vector = tf.placeholder(tf.float32, w_0.shape)
hessian_times_vector = tf.gradients(tf.reduce_sum(gradient_op * vector), point)[0]

def sharpness(w, rounds=100):
    """(The largest eigenvalue of the Hessian at w, its direction.)"""
    v = np.random.RandomState(0).normal(size=w.shape)
    for _ in range(rounds):
        v = v / np.linalg.norm(v)
        product = session.run(hessian_times_vector, {point: w, X: x, Y: y, vector: v})
        eigenvalue, v = v @ product, product
    return eigenvalue, v / np.linalg.norm(v)

w_2 = w_0
for _ in range(1500):  # with all rows: to a place where the slope is small
    w_2 = w_2 - 0.2 * gradient(w_2, np.arange(len(x)))
steep, direction = sharpness(w_2)
print("sharpness %.2f: the limit is lr = %.2f" % (steep, 2 / steep))

# %% [markdown]
# **Predict:** we push `w_2` a little in the steepest direction, and make steps with all rows: once
# with lr 20% below the limit, once 20% above. By what factor does the distance that we pushed
# change within six steps?

# %%
def follow(lr, steps, push=0.01):
    """(Distance of a pushed w from one without the push, along the steepest direction; loss)."""
    pushed, plain, distances, losses = w_2 + push * direction, w_2, [], []
    for _ in range(steps + 1):
        distances.append(abs(direction @ (pushed - plain)))
        losses.append(loss(pushed))
        pushed = pushed - lr * gradient(pushed, np.arange(len(x)))
        plain = plain - lr * gradient(plain, np.arange(len(x)))
    return np.array(distances) / distances[0], losses

below, losses_below = follow(0.8 * 2 / steep, 40)
above, losses_above = follow(1.2 * 2 / steep, 40)
print("below the limit: times %.1f, above it: times %.0f" % (below[6], above[6]))

figure, axes = plt.subplots()
axes.semilogy(losses_below, color=BLUE, label="20% below the limit")
axes.semilogy(losses_above, color=RED, label="20% above")
axes.set(xlabel="step with all rows", ylabel="loss")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Loss by step. Below the limit it falls slowly. Above it, it first rises steeply, "
     "then falls again.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# A step multiplies it by $|1 - lr\,\lambda|$: by 0.6 below the limit, by 1.4 above. In six steps
# that is 0.05 and 7.5. The measured factors differ, because $\lambda$ changes on the way.
#
# </details>

# %% jupyter={"source_hidden": true}
assert below[6] < 0.2 and above[6] > 5

# %% [markdown]
# In a real network the growth does not go on for ever: it throws `w` to a flatter place, where
# such a step is stable again (Lewkowycz et al. 2020 call it a catapult). From there training goes
# on, as the red curve shows.
#
# ## Warm-up
# The sharpness changes on the way. If the start is steep, the learning rate that is right later is
# too large at first. A *warm-up* raises it from almost 0 within the first epochs.
#
# We make a steep start on purpose: all first values times 4.
#
# **Predict:** batch 256 with lr 0.8 again. From which start does a warm-up of 3 epochs help: from
# the usual one, from the steep one, or from both?

# %%
for name, start in ("usual start", w_0), ("steep start", 4 * w_0):
    results = []
    for warm_up in 0, 3:
        accuracies = [test_accuracy(train(256, 0.8, start, warm_up=warm_up, seed=seed)[1])
                      for seed in range(3)]
        results.append(100 * np.median(accuracies))
    print("%s, sharpness %4.1f: %2.0f%% without a warm-up, %2.0f%% with one" % (
        name, sharpness(start)[0], *results))

# %% [markdown]
# <details><summary>Answer</summary>
#
# From the steep one. There the limit is $2 / 30.7 = 0.07$, and lr 0.8 is far above it: the first
# steps throw `w` to a bad place, from which 20 epochs do not bring it back. From the usual start a
# warm-up changes nothing. Good first values, or layers that normalise, do the same job. Goyal et al.
# needed a warm-up for ResNet-50 with batches of 8,192.
#
# </details>
#
# ## Staleness lowers the limit
# Now the gradient is `tau` steps old: $w_{t+1} = w_t - lr\, g(w_{t-\tau})$. On the bowl this is
# stable only if
#
# $$lr < \frac{2}{\lambda} \sin\frac{\pi}{2\,(2\tau + 1)}$$
#
# which is $2/\lambda$ for $\tau = 0$, half of it for $\tau = 1$, and about $\pi / (2 \lambda \tau)$
# for large $\tau$. We check the formula by simulation, then look at the digits.

# %%
def largest_stable(tau, steps=4000):
    """The largest lr * lambda at which |w| stays small on the bowl, by bisection."""
    low, high = 0.0, 3.0
    for _ in range(20):
        middle = (low + high) / 2
        w = [1.0] * (tau + 1)
        for _ in range(steps):
            w.append(w[-1] - middle * w[-1 - tau])
            if abs(w[-1]) > 10:
                break
        low, high = (middle, high) if abs(w[-1]) <= 10 else (low, middle)
    return low

taus = [0, 1, 3, 7, 15]
formula = [2 * np.sin(np.pi / (2 * (2 * tau + 1))) for tau in taus]
simulated = [largest_stable(tau) for tau in taus]
for row in zip(taus, formula, simulated):
    print("tau %2d: lr * lambda below %.3f by the formula, %.3f by simulation" % row)
assert np.allclose(formula, simulated, atol=0.01)

# %%
def train_stale(lr, delay, steps=600, momentum=0.0, seed=0):
    """SGD whose gradient number t is taken at the w of delay(random) steps ago."""
    random, move = np.random.RandomState(seed), 0
    past, losses = [w_0], []
    for step in range(steps):
        w = past[-1]
        old = past[max(0, step - delay(random))]
        move = momentum * move + lr * gradient(old, random.randint(0, len(x), 32))
        past.append(w - move)
        if step % 20 == 19:
            losses.append(loss(past[-1]))
    return losses

figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
last = {}
for panel, lr in zip(axes, (0.1, 0.2)):
    for tau, colour in zip((0, 3, 7, 15), (BLUE, GREEN, ORANGE, RED)):
        losses = train_stale(lr, lambda random, tau=tau: tau)
        last[lr, tau] = losses[-1]
        panel.plot(range(20, 601, 20), losses, color=colour, label="tau = %d" % tau)
    panel.set(title="lr = %.1f" % lr, xlabel="update", ylim=(0, 3))
axes[0].set(ylabel="loss")
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Loss by update for staleness 0, 3, 7 and 15. With lr 0.1 staleness 7 still learns, "
     "15 hardly does. With lr 0.2 staleness 3 learns, 7 and 15 do not.")
assert last[0.1, 7] < 0.5 and last[0.2, 3] < 0.5 < last[0.2, 7]

# %% [markdown]
# A little staleness is almost free; beyond a limit nothing is learnt. tau = 3 costs little, and
# tau = 7 learns with lr 0.1 and not with 0.2. So halve the learning rate when you double the number
# of asynchronous workers, or let each push shrink by its staleness, as [DynSGD](../DynSGD/) does.
#
# ## Asynchrony acts like momentum
# Real staleness is random. Take $n$ workers, of which each next push comes from any with the same
# chance $1/n$. Then a push is $k$ steps old with probability $(1 - \mu)\,\mu^k$, with
# $\mu = 1 - 1/n$. On a bowl the *mean* of many such runs obeys
#
# $$E[w_{t+1} - w_t] = \mu\, E[w_t - w_{t-1}] - (1 - \mu)\, lr\; g(E[w_t])$$
#
# That is momentum $\mu$ with the learning rate $lr / n$ (Mitliagkas et al. 2016). It comes without
# any momentum in the optimizer: the old gradients go on pushing.
#
# **Predict:** eight asynchronous workers on the bowl with $\lambda = 1$ and lr = 0.5. With fresh
# gradients each step halves the way to the minimum. What does the mean of 4,000 asynchronous runs do?

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
print("the largest difference of the two: %.2f" % np.max(np.abs(mean - momentum)))

figure, axes = plt.subplots()
axes.plot(np.array(asynchronous)[:, :3], color=GRAY, linewidth=0.6)
axes.plot(mean, color=ORANGE, linewidth=4, alpha=0.5, label="8 asynchronous workers, lr 1/2: mean")
axes.plot(momentum, "--", color=BLUE, label="momentum 7/8, lr 1/16")
axes.plot((1 - lr / n) ** np.arange(steps + 1), color=GREEN, label="lr 1/16 alone")
axes.plot([], color=GRAY, linewidth=0.6, label="three of the asynchronous runs")
axes.axhline(0, color="black", linewidth=0.5)
axes.set(xlabel="update", ylabel="w", ylim=(-2.5, 2.5))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "The mean of the asynchronous runs swings through the minimum and back; the curve of "
     "momentum 7/8 lies on it. lr 1/16 alone goes to the minimum without a swing.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It swings through the minimum and back, as a heavy ball does, exactly as the momentum recursion
# says. A single run (gray) swings still more; only the mean obeys the equation.
#
# </details>

# %% jupyter={"source_hidden": true}
assert np.allclose(mean, momentum, atol=0.05)

# %% [markdown]
# A network is no bowl, and there the equation holds near a minimum only. Two consequences stay. If
# your optimizer has momentum already, asynchrony adds more: lower one of them (exercise 3). And the
# more workers, the more momentum: with 16 it is 0.94.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. The largest delay.** ★☆☆ By the formula, how old may gradients be at lr = 0.2 on a network
# with sharpness 2.25? Check with the figure of the stale runs.
#
# <details><summary>Hint</summary>
#
# Compute `2 * sin(pi / (2 * (2 * tau + 1)))` for growing `tau` until it falls below `lr * 2.25`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# allowed = [tau for tau in range(50)
#            if 0.2 * 2.25 < 2 * np.sin(np.pi / (2 * (2 * tau + 1)))]
# assert max(allowed) == 2
# ```
# On the figure tau = 3 still learns: the sharpness of the network gives way when the limit is near.
# 7 is far beyond.
#
# </details>

# %% [markdown]
# **2. The square root rule.** ★☆☆ Some scale the learning rate by $\sqrt{k}$ instead of $k$. Compare
# the two for batch 256 (k = 8) after 20 epochs, by the loss.
#
# <details><summary>Hint</summary>
#
# `train(256, 0.1 * 8 ** 0.5)` and `train(256, 0.8)`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# by_root = train(256, 0.1 * 8 ** 0.5)[0][-1]
# linear = train(256, 0.1 * 8)[0][-1]
# assert linear < by_root  # with this seed; the root rule suits Adam
# ```
#
# </details>

# %% [markdown]
# **3. Too much momentum.** ★★★ Train the digits with momentum 0.9 and lr 0.05, once with fresh
# gradients and once with the delays of four workers. Then find a smaller momentum with which the
# asynchronous run learns, too.
#
# <details><summary>Hint</summary>
#
# `train_stale(0.05, delay, momentum=...)` with
# `delay = lambda random: random.geometric(1 / 4) - 1`, or one that returns 0.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def last_loss(delay, momentum):
#     return np.median([train_stale(0.05, delay, momentum=momentum, seed=seed)[-1]
#                       for seed in range(3)])
#
# def fresh(random):
#     return 0
#
# def four_workers(random):
#     return random.geometric(1 / 4) - 1
#
# good, bad, less = last_loss(fresh, 0.9), last_loss(four_workers, 0.9), last_loss(four_workers, 0.6)
# assert good < 0.2 and less < 0.2 < bad
# ```
#
# </details>

# %%
# Stop what this notebook started.
session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Goyal et al. 2017, [Accurate, Large Minibatch SGD: Training ImageNet in 1
#   Hour](https://arxiv.org/abs/1706.02677): linear scaling and warm-up.
# - Shallue et al. 2019, [Measuring the Effects of Data Parallelism on Neural Network
#   Training](https://arxiv.org/abs/1811.03600): how far it goes, for many models.
# - McCandlish et al. 2018, [An Empirical Model of Large-Batch
#   Training](https://arxiv.org/abs/1812.06162): noise tells how large a batch pays.
# - Mitliagkas et al. 2016, [Asynchrony begets Momentum](https://arxiv.org/abs/1605.09774).
# - Cohen et al. 2021, [Gradient Descent on Neural Networks Typically Occurs at the Edge of
#   Stability](https://arxiv.org/abs/2103.00065).
# - Lewkowycz et al. 2020, [The large learning rate phase of deep learning: the catapult
#   mechanism](https://arxiv.org/abs/2003.02218).
# - In this repository: [Synchronous-SGD](../Synchronous-SGD/) measures batch size and warm-up with
#   real workers, [DynSGD](../DynSGD/) scales each push by its staleness.
#
# Next: [Classic-Mistakes-Synchrony](Classic-Mistakes-Synchrony.ipynb).
