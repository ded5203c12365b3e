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
# # Local, then global variables
# A billion parameters of 4 bytes need 32 s to cross a link of 1 Gbit/s, and as long to come back.
# So give each worker variables of its own: it trains on them for T steps, and only then moves the
# global ones, with a T-th of the messages. Data centres and phones that train a model together rest
# on this idea. Here eight workers train well with a thirtieth of the messages, if `w` takes the
# mean of their changes. You will be able to say what their sum does instead, and why.
#
# After this notebook you can:
# - place variables globally on the ps, or locally on a worker, and say what TensorFlow does with each
#   kind;
# - write pull, local step and push, put them in the right order with control dependencies, and say
#   what goes wrong in another order;
# - explain with a drawing when the sum of two workers' changes helps, and when it overshoots;
# - name the heirs: local SGD, federated averaging, DiLoCo.
#
# **Before it:** [Stale-Gradients](Stale-Gradients.ipynb), and
# [Graphs-and-Sessions](Graphs-and-Sessions.ipynb) for control dependencies. **Time:** 45 minutes.

# %% [markdown]
# ## Two copies of the model
# The ps has the parameters `w`, which all workers share. Worker k has a copy `w_k` of its own, and a
# second list `a` of the same shapes, in which it sums up the gradients since its last pull.
#
# ![The ps holds the global variables w. Worker 0 and worker 1 each hold local variables: a copy w_k and a sum of gradients a. Pull arrows copy w down into w_k, push arrows send lr·a up, where the ps subtracts it from w.](../docs/figures/copies.svg)
#
# All three servers run in this process, and you play both workers, so the results are the same in
# each run.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, GREEN, ORANGE, RED, new_cluster, show

course.begin()
x, y, _, _ = course.load()

# %% jupyter={"source_hidden": true}
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
devices = ["/job:worker/task:0", "/job:worker/task:1"]
limit = tf.ConfigProto(operation_timeout_in_ms=20_000)

# %% [markdown]
# ## Global and local are two lists
# A graph keeps lists of its variables, the *collections*. `tf.get_variable` puts a new variable into
# the global list, and `tf.get_local_variable` into the local one. Only one worker, the *chief*,
# initialises the global variables; each worker initialises its local ones. A checkpoint does not contain
# local variables, so a worker that restarts has lost them.
#
# A variable's device, not its list, decides whether it is shared. The setter of
# [Parameter-Server](Parameter-Server.ipynb) sends *every* variable to the ps, local ones too; there all
# workers find the same name on the same device. So a worker places its local variables itself.
#
# ## Pull, T local steps, push
# T steps of SGD change `w_k` by $-lr$ times the sum of their gradients. So the worker sums these up
# in `a`, and pushes `lr * a`, as [DOWNPOUR-Easy](../DOWNPOUR-Easy/) does. Each g is that of a new
# mini-batch:
#
# $$\text{pull:}\quad w_k \leftarrow w, \qquad a \leftarrow 0$$
# $$T \text{ times:}\quad a \leftarrow a + g(w_k), \qquad w_k \leftarrow w_k - lr \cdot g(w_k)$$
# $$\text{push:}\quad w \leftarrow w - lr \cdot a$$
#
# ![A window of DOWNPOUR-Easy. The worker pulls w, makes T local steps with gradients g_1 to g_4, each at its moved copy w_k, and pushes lr·a once, where a is their sum. The ps subtracts it from w. Then the worker pulls again.](../docs/figures/window.svg)
#
# Why not copy `w_k` over `w`? The second worker's copy would overwrite the first one's work, while
# *changes* add up, in any order.
#
# Here a step must not move `w_k` before the whole gradient is computed, and the next pull must come after
# the push. `tf.control_dependencies` adds these edges, to ops that are *made* within its block; so
# `pulling()` is called there.


# %%
class Worker:
    """The graph of worker k, and its session."""

    def __init__(self, k, lr=0.2):
        with tf.Graph().as_default() as graph:
            with tf.device("/job:ps/task:0"):  # global
                self.w = w = course.variables()
            with tf.device(devices[k]):  # local
                self.w_k = w_k = course.variables("local_", 1 + k, tf.get_local_variable)
                self.a = a = [
                    tf.get_local_variable("a_" + v.op.name, initializer=tf.zeros(v.shape))
                    for v in w
                ]
                number = tf.get_local_variable("number", initializer=np.int64(0))

                def pulling():
                    copies = [c.assign(v.read_value()) for c, v in zip(w_k, w)]
                    return tf.group(copies, [s.assign(tf.zeros(s.shape)) for s in a])

                self.pull = pulling()

                values = [c.read_value() for c in w_k]
                g = tf.gradients(course.loss(values, *course.batch(x, y, number, k)), values)
                with tf.control_dependencies(g):  # first the whole gradient, then the step
                    self.local_step = tf.group(
                        [s.assign_add(d) for s, d in zip(a, g)],
                        [c.assign_sub(lr * d) for c, d in zip(w_k, g)],
                        number.assign_add(1),
                    )

                self.push = tf.group([v.assign_sub(lr * s) for v, s in zip(w, a)])
                with tf.control_dependencies([self.push]):  # first the push, then the pull
                    self.push_then_pull = pulling()

            self.loss = course.loss(w, x, y)
            self.initialise_w = tf.global_variables_initializer()
            self.initialise_own = tf.local_variables_initializer()
        self.session = tf.Session(servers[k].target, graph=graph, config=limit)
        self.run = self.session.run


workers = chief, other = Worker(0), Worker(1)

# %% [markdown]
# The copies begin with random numbers of their own, so a worker must pull before its first step. With
# T = 10 (`local_steps` is folded):


# %% jupyter={"source_hidden": true}
def restart():
    chief.run(chief.initialise_w)
    for worker in workers:
        worker.run(worker.initialise_own)
        worker.run(worker.pull)


def local_steps(worker, T=10):
    for _ in range(T):
        worker.run(worker.local_step)


def equal(one, two):
    return all(np.allclose(u, v, atol=1e-5) for u, v in zip(one, two))


restart()
first = chief.run(chief.w)
local_steps(chief)
w, w_k = chief.run([chief.w, chief.w_k])
print(
    "after the local steps: w has moved:", not equal(w, first), " w_k has:", not equal(w_k, first)
)
chief.run(chief.push)
print("after the push: w = w_k:", equal(chief.run(chief.w), w_k))

# %% [markdown]
# With one worker, T local steps and a push give the same `w` as T steps of plain SGD.
#
# **Predict:** what if the pull comes *before* the push? How many of the window's steps reach `w`?

# %% tags=["predicted"]
for order in ("push", "pull"), ("pull", "push"):
    restart()
    print("loss of w %.2f" % chief.run(chief.loss), end="; ")
    local_steps(chief)
    for op in order:
        chief.run(getattr(chief, op))
    print("after T local steps, %s, %s: %.2f" % (*order, chief.run(chief.loss)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# loss of w 2.33; after T local steps, push, pull: 1.80
# loss of w 2.33; after T local steps, pull, push: 2.33
# ```
#
# None. The pull overwrites `w_k` and empties `a`, so the push has nothing left to send, and no
# error tells you. `session.run([push, pull])` promises neither order; `push_then_pull` does, because
# there the order is an edge of the graph.
#
# </details>
#
# ## Two sums
# With several workers `w` receives all their sums, although each was computed without the others. It can
# also receive their *mean*: then each of n workers pushes the n-th part of its sum. To compare many
# windows, `train` makes the same moves in NumPy: all pull, all take T local steps, all push. One run
# proves little, so it trains five times, with first values and mini-batches of its own each time.

# %%
SEEDS, T = 5, 30


def train(n, share, windows=20, lr=0.2):
    """Returns the loss of w at the start and after each window: [windows + 1, seeds].

    share: the part of its sum that each of n workers pushes: 1, or 1 / n for the mean.
    """
    random = np.random.RandomState(0)
    firsts = [course.first_values(seed).values() for seed in range(SEEDS)]
    w = [np.stack(values)[:, None] for values in zip(*firsts)]  # [seeds, 1, ...]
    losses = [course.numpy_loss(w, x, y)]
    with np.errstate(all="ignore"):  # of a w that runs away
        for _ in range(windows):
            w_k = [np.repeat(v, n, axis=1) for v in w]  # all pull: [seeds, n, ...]
            for _ in range(T):
                rows = random.randint(len(x), size=[SEEDS, n, 32])
                g = course.numpy_gradient(w_k, x[rows], y[rows])
                w_k = [c - np.float32(lr) * d for c, d in zip(w_k, g)]
            # All push: lr * a is how far w_k has come.
            w = [v + share * (c - v).sum(axis=1, keepdims=True) for v, c in zip(w, w_k)]
            losses.append(course.numpy_loss(w, x, y))
    losses = np.array(losses)[..., 0]
    return np.where(np.isfinite(losses), losses, np.inf)


# %% [markdown]
# **Predict:** two workers: which has the lower loss after the *first* window, the sums or the mean?
# And which after 20? What do the sums of eight workers do?

# %% tags=["predicted"]
losses = {(n, share): train(n, share) for n in (2, 8) for share in (1, 1 / n)}
after = [1, 2, 3, 6, 12, 20]
print("windows:          ", *["%5d" % window for window in after], "  (medians of five)")
for (n, share), of_case in losses.items():
    medians = np.median(of_case[after], axis=1)
    words = ["%5.2f" % loss if loss < 40 else " > 40" for loss in medians]
    print("%d workers, %-8s" % (n, "sums" if share == 1 else "mean"), *words)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# windows:               1     2     3     6    12    20   (medians of five)
# 2 workers, sums      0.78  0.47  0.40  0.28  0.28  0.14
# 2 workers, mean      1.14  0.58  0.40  0.22  0.13  0.09
# 8 workers, sums      8.24 21.24  > 40  > 40  4.62  4.72
# 8 workers, mean      1.14  0.57  0.40  0.21  0.13  0.08
# ```
#
# Two sums are ahead at first: adding both is like training at twice the learning rate, which helps
# far from the minimum. Then they fall behind, in each of the five runs: each worker covers the
# remaining distance by itself, so the ps covers it twice, and `w` overshoots. The sums of eight
# workers go eight times as far, and never train at this rate.
#
# </details>
#
# The figure shows both effects on the contours of a loss of two parameters. Two workers go from `w`
# to `w_0` and `w_1`. Their minima differ a little, as their mini-batches do.

# %% jupyter={"source_hidden": true}
# The answer, checked.
# And the network in NumPy is that in TensorFlow.
values = list(course.first_values().values())
with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.constant(value) for value in values]
    loss = course.loss(tensors, x, y)
    by_tensorflow = session.run([loss, *tf.gradients(loss, tensors)])
in_numpy = [course.numpy_loss(values, x, y), *course.numpy_gradient(values, x, y)]
assert all(np.allclose(u, v, atol=1e-5) for u, v in zip(by_tensorflow, in_numpy))
found = {case: np.median(of_case, axis=1) for case, of_case in losses.items()}
assert (losses[2, 1][1] < losses[2, 1 / 2][1]).all()
assert (losses[2, 1][20] > losses[2, 1 / 2][20]).all()
assert found[2, 1][20] > 1.3 * found[2, 1 / 2][20]
assert found[8, 1][20] > 1 > 0.3 > found[8, 1 / 8][20]

hessian, start, step = np.array([[1.0, 0.6], [0.6, 1.5]]), np.array([-3.2, 2.0]), 0.2
centers = np.array([[0.5, 0.45], [-0.5, -0.45]])  # of the two workers' losses; their mean is 0


def loss_at(points):
    return 0.5 * np.einsum("...i,ij,...j", points, hessian, points)


figure, panels = plt.subplots(
    1, 2, figsize=(7.5, 3.6), sharex=True, sharey=True, layout="constrained"
)
grid = np.stack(np.meshgrid(np.linspace(-4, 4.6, 90), np.linspace(-3.4, 3, 90)), axis=-1)
ended = {}
for panel, steps in zip(panels, (3, 20)):
    panel.contour(*np.moveaxis(grid, -1, 0), loss_at(grid), levels=9, colors="lightgray", zorder=0)
    changes = []
    for k, color in enumerate((BLUE, ORANGE)):
        path = [start]
        for _ in range(steps):
            path.append(path[-1] - step * hessian @ (path[-1] - centers[k]))
        changes.append(path[-1] - start)
        panel.plot(*np.transpose(path), ".", color=color, markersize=4)
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
        panel.annotate("", path[-1], start, arrowprops=arrow)
        away = (0, 11) if k == 0 else (-4, -17)
        panel.annotate(
            "w_%d" % k, path[-1], away, textcoords="offset points", color=color, ha="center"
        )
    for name, share, color in ("sum", 1, RED), ("mean", 0.5, GREEN):
        at = start + share * sum(changes)
        ended[steps, name] = loss_at(at)
        panel.plot(*at, "o", color=color, markersize=8)
        away = (0, -19) if name == "sum" else (25, -3) if steps == 3 else (-6, 8)
        panel.annotate(name, at, away, textcoords="offset points", color=color, ha="center")
        for change in changes if name == "sum" else []:  # the parallelogram
            panel.plot(*np.transpose([start + change, at]), ":", color=RED, linewidth=1.2)
    panel.plot(*start, "o", color="black", markersize=6)
    panel.annotate("w", start, (-9, 6), textcoords="offset points", ha="center")
    panel.plot(0, 0, "+", color="black", markersize=11, markeredgewidth=2)
    panel.set_title("T = %d" % steps)
    panel.set(xlabel="first parameter", aspect="equal")
    panel.grid(False)
panels[0].set_ylabel("second parameter")
show(
    figure,
    "Contours of a loss of two parameters, with a plus at the minimum. Left, T = 3: the two workers "
    "have gone a third of the way from w; the sum of their arrows ends nearer to the minimum than "
    "the mean. Right, T = 20: both stand beside the minimum; the mean lies between them, close to "
    "it, and the sum far beyond it.",
)
assert ended[3, "sum"] < ended[3, "mean"] and ended[20, "sum"] > 20 * ended[20, "mean"]

# %% [markdown]
# After a short window, far from the minimum, the sum is nearer to it (left). After a long one both
# workers have arrived; then the mean lies between them, and the sum overshoots by as far as they came
# (right).
#
# ## How far should a push go?
# The algorithms differ in their answer:
#
# | algorithm | what moves `w` |
# | --- | --- |
# | [DOWNPOUR-Easy](../DOWNPOUR-Easy/) | each worker's sum, `lr * a` |
# | [DOWNPOUR](../DOWNPOUR/) | the sum, through Adagrad on the ps |
# | [ADAG](../ADAG/) | each worker's mean gradient, `lr * a / T` |
# | [AEASGD](../AEASGD/) | a part of `w_k - w`; the worker keeps its `w_k` throughout |
# | [Local-SGD](../Further-Algorithms/Local-SGD/), on phones *federated averaging* | all workers together: `w` becomes the mean of their `w_k` |
# | [DiLoCo](../Further-Algorithms/DiLoCo/) | their mean change, taken as a gradient for momentum |
#
# These are two different means: Local-SGD's is over n workers, ADAG's over one worker's T gradients.
# After a long window n sums go n times as far as they should, so they fail when workers are many, unless
# the learning rate is small (exercise 2).
# ADAG's n pushes go n / T of the way, so they overshoot only with more than T workers.
# [Slow-Network](../Measurements/Slow-Network/) measures what local steps save.
#
# ## Exercises
# **1. How many local steps?** ★★☆ A model has 100 million parameters of 4 bytes. A worker computes a
# step in 0.2 s, and has a link of 1 Gbit/s to the ps. Compute on paper the smallest T with which
# pull and push take at most 10% of the worker's time. Nothing overlaps.
#
# <details><summary>Hint</summary>
#
# A byte has 8 bits. The time of a window is that of T steps *and* of the messages.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    slips = {
        36: "a link of 1 Gbit/s carries an eighth of a gigabyte per second",
        144: "w travels down and lr * a up: both take time",
        160: "w travels down and lr * a up, and 10% of the whole time, not of the computing",
        320: "the messages may take 10% of the whole time, not of the time of the steps",
    }
    answer = float(answer)
    if answer in slips:
        return slips[answer]
    if not answer.is_integer():
        return "T is a number of steps, so a whole number"
    messages = 2 * 100e6 * 4 * 8 / 1e9
    if not messages / (messages + 0.2 * answer) <= 0.1 + 1e-9:
        return "with T = %g the messages take more than 10%% of the time" % answer
    if messages / (messages + 0.2 * (answer - 1)) <= 0.1 + 1e-9:
        return "with T = %g the messages take less than 10%%; a smaller T will do" % answer


# %%
# Your answer to exercise 1: T
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# 400 MB are 3.2 Gbit, so pull and push take 6.4 s together. 6.4 / (6.4 + 0.2 T) ≤ 0.1 gives
# 0.2 T ≥ 57.6, so T ≥ 288.
#
# ```python
# answer_1 = 288
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. Change it, and say why.** ★☆☆ With `lr` = 0.2 and T = 30 the sums of two workers end behind their
# mean. Find a rate at which they end ahead, both in `train(2, 1, lr=...)` against
# `train(2, 1 / 2, lr=...)` and on the bowl $\frac{1}{2} w^2$. There, which part of the way to the
# minimum (0 to 1) does a worker cover in T = 30 steps at your rate?
#
# <details><summary>Hint</summary>
#
# In which of the two panels above does the sum end nearer to the minimum, and how far have the workers
# come there? On the bowl each step covers the part `lr` of what is still left.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (a learning rate, the part of the way)"
    lr, part = float(answer[0]), float(answer[1])
    if not 0 < lr <= 10:
        return "the rate must be a number above 0, and not above 10"
    sums, mean = (np.median(train(2, share, lr=lr)[-1]) for share in (1, 1 / 2))
    if not sums < mean:
        return "at %g the sums end at %.2f, and the mean at %.2f" % (lr, sums, mean)
    left = (1 - lr) ** T
    if not abs(2 * left - 1) < left:  # what the sum leaves of the way, and what the mean leaves
        return "on the bowl the sums end behind: they overshoot by %.2f of the way" % (1 - 2 * left)
    if abs(part - (1 - left)) <= 0.03 * (1 - left):
        return
    if abs(part - left) < 0.02:
        return "the rate is right; %.2f is the part of the way that is left" % part
    if abs(part - lr * T) < 0.02:
        return "the rate is right; a step covers the part lr of what is left, not of the whole way"
    return "the rate is right; after one step 1 - lr of the way is left: and after T?"


# %%
# Your answer to exercise 2: (a learning rate, the part of the way)
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = (0.02, 1 - (1 - 0.02) ** 30)
#
# assert check_2(answer_2)
# ```
#
# At this rate a worker covers 45% of the way in a window, and two together 91%, as in the left panel. At
# 0.2 one covers 99.9%, and two twice the way. On the bowl the sum ends nearer than the mean as long as
# a worker covers less than two thirds. The same happens with T = 1 at the old rate: what counts is the
# product `lr` · T · n, and how curved the loss is.
#
# </details>

# %%
# Stop what this notebook started.
for worker in workers:
    worker.session.close()
course.end()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html),
#   section 4.1: DOWNPOUR.
# - McMahan et al. 2017, [Communication-Efficient Learning of Deep Networks from Decentralized
#   Data](https://arxiv.org/abs/1602.05629): federated averaging.
#
# **Elsewhere:** PyTorch has local SGD in `torch.distributed.algorithms.model_averaging`; in JAX you
# average with `jax.lax.pmean` every T steps; `tf.distribute` has no local steps.
#
# Next: [Classic-Mistakes-Updates](Classic-Mistakes-Updates.ipynb), the end of part two.
