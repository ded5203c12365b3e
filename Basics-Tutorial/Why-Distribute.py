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
# # Why distribute?
# In 2017 it took 29 hours to train ResNet-50 on ImageNet with 8 GPUs, and [one
# hour](https://arxiv.org/abs/1706.02677) with 256. The largest [Llama
# 3](https://arxiv.org/abs/2407.21783) has 405 billion parameters, whose training step fills 6.5
# terabytes, while each of its 16,384 GPUs has 80 gigabytes. These are the two reasons to train in
# several processes: one takes too long, or the model does not fit into it.
#
# Distributing costs messages, waiting, stale gradients, and machines that fail. When does it pay? At the
# end of this notebook two processes train one network about one and a half times as fast as one process,
# and another one more slowly. You will be able to say beforehand which is which.
#
# After this notebook you can:
# - estimate the memory of a training step, and the time of its messages;
# - tell data from model parallelism, a parameter server from an all-reduce, and say who waits;
# - compute throughput, scaling efficiency and the limit of a speed-up;
# - decide when not to distribute.
#
# **Before it:** you have trained a model in Keras, and know NumPy. **Time:** 50 minutes.

# %% [markdown]
# ## Two ways to share a step
# `model.fit` repeats one step: it draws a mini-batch of examples, computes the gradient `g(w)` of
# the loss at the parameters `w`, and moves them with the learning rate `lr`:
#
# $$w \leftarrow w - lr \cdot g(w)$$
#
# Most of the work is the gradient's matrix products. A *worker* is a process that computes
# gradients, and two workers can share a product in two ways:
#
# ![A layer multiplies the rows of data x by the weights w. Data parallel: worker 0 takes the upper rows and worker 1 the lower ones, and both have all of w. Model parallel: worker 0 takes the left columns of w and worker 1 the right ones, and both have all of x.](../docs/figures/split.svg)
#
# - **Data parallelism**: every worker has the whole model and a part of the data.
# - **Model parallelism**: every worker has a part of the model: here some columns of a layer;
#   elsewhere some of the layers.
#
# The gradient of a mean loss is the mean of the gradients of its parts, so data parallelism does not
# change the mathematics. Here is a linear model:

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import json
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, GREEN, ORANGE, RED, finish, show, start

course.begin(graphs=False)

# %%
random = np.random.RandomState(0)
x, w, y = random.normal(size=[6, 4]), random.normal(size=[4, 2]), random.normal(size=[6, 2])


def gradient(x, w, y):
    """Of the mean squared error of x @ w, halved."""
    return x.T @ (x @ w - y) / len(x)


g_0, g_1 = gradient(x[:3], w, y[:3]), gradient(x[3:], w, y[3:])  # of worker 0, of worker 1
print("their mean is the gradient of all rows:", np.allclose((g_0 + g_1) / 2, gradient(x, w, y)))

# %% [markdown]
# That holds if all use the same `w`, the parts are equally large, and no layer looks across
# examples (BatchNormalization) or draws random numbers (dropout). Data-parallel workers exchange
# gradients once in a step, while workers that divide a layer wait for activations several times
# within it. (Workers that divide the layers among them send less, but wait for each other's turn.)
# So one begins with data parallelism, and so does this course.
#
# ## Does it fit? The memory of a step
# With Adam in float32 a step keeps four numbers for each parameter: the parameter, its gradient and
# two moments, together 16 bytes. Mixed precision often needs 16, too: 2 for the parameter, 2 for the
# gradient, and 12 for a float32 copy and the moments (18, if gradients stay in float32).

# %%
models = {"ResNet-50": 25.6e6, "Llama 3, 8B": 8e9, "Llama 3, 405B": 405e9}  # parameters
for name, parameters in models.items():
    print("%-14s %6.1f GB" % (name, 16 * parameters / 1e9))

# %% [markdown]
# Even 8 billion parameters need 128 GB before a single activation is stored, too much for a GPU with
# 80 GB. [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb) divides these bytes among
# workers, and [Beyond-ZeRO](Beyond-ZeRO.ipynb) adds the activations.
#
# ## How long does a message take?
# Each step of data parallelism must send its gradient. That of a model with 40 million parameters
# has 160 MB, so a link of 10 Gbit/s, or 1.25 GB/s, needs 128 ms for it.

# %%
links = {  # bytes per second, in each direction
    "NVLink 4 (GPUs in a machine)": 450e9,
    "PCIe 5.0, 16 lanes": 64e9,
    "InfiniBand, 400 Gbit/s": 400e9 / 8,
    "Ethernet, 10 Gbit/s": 10e9 / 8,
    "Ethernet, 1 Gbit/s": 1e9 / 8,
    "Internet, 100 Mbit/s": 100e6 / 8,
}
milliseconds = {name: 1000 * 160e6 / rate for name, rate in links.items()}

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(8, 2.6))
axes.barh(list(milliseconds), list(milliseconds.values()), color=BLUE)
for row, value in enumerate(milliseconds.values()):
    text = "%.2g ms" % value if value < 100 else "%.3g s" % (value / 1000)
    axes.text(1.15 * value, row, text, va="center")
axes.axvline(100, color=ORANGE)
axes.text(90, -0.9, "a gradient of 100 ms", color=ORANGE, ha="right", va="center", size=9)
axes.set(xscale="log", xlim=(0.1, 1e5), ylim=(5.6, -1.3), xlabel="ms for 160 MB, at best")
axes.grid(axis="y", visible=False)
show(
    figure,
    "The time of 160 MB on six links: from 0.36 ms on NVLink, 2.5 ms on PCIe and 3.2 ms on "
    "InfiniBand to 0.128 s, 1.28 s and 12.8 s on Ethernet and the internet. The last three are longer "
    "than a gradient of 100 ms.",
)
assert round(milliseconds["Ethernet, 10 Gbit/s"]) == 128

# %% [markdown]
# A GPU that computes its gradient in 100 ms spends more time than that on sending at 10 Gbit/s, and
# next to none inside a machine. [Slow-Network](../Measurements/Slow-Network/) measures real programs.
#
# ## Where are the parameters, and who waits?
# **A parameter server** (*ps*) is a process that holds `w`. A worker *pulls* a copy `w_k`, computes
# a gradient `g` there, and *pushes* `lr * g`, which the ps subtracts from `w`.
#
# ![One update as messages: the worker pulls w from the ps, computes a gradient at its copy w_k, and pushes lr·g.](../docs/figures/update.svg)
#
# **An all-reduce** needs no server. Every worker holds a copy of `w`. They exchange gradients until
# each has the mean of all; each then makes the same step, so the copies stay equal.
#
# ![Three workers with a copy of w and a mini-batch each. An all-reduce gives each the mean of the three gradients, by which it moves its copy.](../docs/figures/collective.svg)
#
# Workers are never equally fast. Who waits for the slow one?
#
# - **Synchronous**: all do. Nobody passes a *barrier*, red in the figure, before all have arrived, so
#   a slow worker, a *straggler*, holds up everybody.
# - **Asynchronous**: nobody does. Each worker pushes when it is ready. How many updates the others
#   have made since its pull is the *staleness* of its push.
#
# ![Timelines of three workers, of which worker 2 is slow. Synchronous: each step waits for it, and w moves 2 times. Asynchronous: nobody waits, and w moves 13 times; the staleness is up to 2 for the fast workers and up to 6 for the slow one.](../docs/figures/timelines.svg)

# %% jupyter={"source_hidden": true}
# A row for each push: the worker, four moments in ms, and the staleness. The worker called at the
# first time, had w at the second and the gradient at the third; its push was done at the fourth.
pushes = [
    (1, 0.00, 3.47, 3.69, 4.51, 0),
    (0, 0.24, 3.77, 3.87, 5.10, 1),
    (1, 4.51, 7.29, 7.41, 7.99, 0),
    (0, 5.10, 8.02, 8.17, 8.75, 1),
    (1, 7.99, 10.92, 11.03, 11.71, 0),
    (1, 11.71, 13.43, 13.57, 14.35, 1),
    (0, 8.75, 12.95, 13.49, 14.43, 1),
    (0, 14.43, 17.01, 17.15, 17.71, 0),
    (1, 14.35, 17.15, 17.31, 18.58, 1),
    (0, 17.71, 20.38, 20.49, 21.03, 0),
    (1, 18.58, 22.22, 22.35, 23.23, 1),
    (0, 21.03, 24.67, 24.87, 25.60, 0),
    (1, 23.23, 25.70, 25.82, 26.42, 1),
    (0, 25.60, 28.63, 28.75, 29.34, 0),
    (1, 26.42, 29.26, 29.42, 30.24, 1),
    (1, 30.24, 32.63, 32.71, 33.28, 0),
]

# %% [markdown]
# The folded cell has the times of 16 pushes from a real run of [HogWild](../HogWild/), here the
# name of asynchronous SGD with a ps: two equal workers train 17,226 parameters, all on one machine.
#
# **Predict:** which takes longest: the pull, the gradient or the push? How stale are the pushes?

# %% tags=["predicted"]
_, called, pulled, computed, pushed, staleness = np.transpose(pushes)
parts = {"pull": pulled - called, "gradient": computed - pulled, "push": pushed - computed}
for name, times in parts.items():
    print("%-9s %3.0f%%" % (name, 100 * sum(times) / sum(pushed - called)))
print("staleness:", *staleness.astype(int))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# pull       76%
# gradient    4%
# push       20%
# staleness: 0 1 0 1 0 1 1 0 1 0 1 0 1 0 1 0
# ```
#
# The pull takes longest, and the gradient of so small a model only 4%: nearly all of the time goes
# into calls and messages. Equal workers seldom push more than once between the other's pull and
# push; a slower worker's pushes would be staler.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
shares = {name: sum(times) for name, times in parts.items()}
assert max(shares, key=shares.get) == "pull" and {push[-1] for push in pushes} == {0, 1}
assert round(100 * shares["gradient"] / sum(shares.values())) == 4

# %% [markdown]
# Because messages take so much of their time, [one process](../Non-Distributed-Setup/#result) without a
# server makes several times as many updates a second as [two such workers](../HogWild/#result).
#
# ## How much faster can it be?
# *Throughput* is examples per second. The *speed-up* of `n` workers is the time of one divided by
# that of `n`, and the *scaling efficiency* is the speed-up divided by the increase in workers: 29 /
# 32, about 90%, for ImageNet above. Two laws bound the speed-up:
#
# - **Amdahl's law.** If a share $f$ of a step cannot be divided, such as drawing examples, the
#   speed-up is $1 / (f + (1 - f) / n)$, and stays below $1 / f$.
# - **Messages.** If a gradient takes $t_g$ and an exchange $t_m$, a step that `n` workers share
#   takes at least $t_g / n + t_m$; if they [overlap](From-Here-to-DDP-and-FSDP.ipynb), the longer
#   of the two. `n` asynchronous workers make $n / (t_g + t_m)$ updates a second, and one process
#   alone $1 / t_g$: with 1 ms and 3 ms two workers make 500, and one process 1,000. With one ps,
#   $t_m$ grows with `n`.
#
# Throughput does not help if an example teaches less, so the speed-up is n times two efficiencies:
#
# $$speedup = n \cdot hardware\ efficiency \cdot statistical\ efficiency$$
#
# The first is the throughput of `n` workers, divided by `n` times that of one. The second is the
# number of examples that one worker needs, divided by the number that `n` need to learn as much;
# larger mini-batches and stale gradients lower it. In the simulated race of
# [Which-Algorithm](Which-Algorithm.ipynb) HogWild's eight workers, whose gradients take random times,
# have 0.92 and 0.3: their speed-up is 8 · 0.92 · 0.3 = 2.2.
#
# ## A measured speed-up
# Two processes now share a step, in Keras: each computes the gradient of its half of the mini-batch,
# and both move by the mean, an all-reduce of two. Only the line under the comment is new:

# %%
# %%writefile step.py
import keras
import tensorflow as tf


def make_step(model, lr, exchange):
    """Returns step(x, y, together): one step on these examples, alone or with the other worker.

    exchange(g) sends a gradient to the other worker, and returns that worker's.
    """
    w = model.trainable_variables

    @tf.function  # makes a graph of this function once, and then runs the graph
    def gradient(x, y):
        """Of the mean loss of these examples, as one vector."""
        with tf.GradientTape() as tape:  # records what is computed, to differentiate it
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            loss = tf.reduce_mean(losses)
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(loss, w)], 0)

    @tf.function
    def move(g):
        sizes = [v.shape.num_elements() for v in w]
        for v, part in zip(w, tf.split(g, sizes)):
            v.assign_sub(lr * tf.reshape(part, v.shape))

    def step(x, y, together):
        g = gradient(x, y).numpy()
        if together:
            # Data parallel: the mean of both halves.
            g = (g + exchange(g)) / 2
        move(g)

    return step


# %% jupyter={"source_hidden": true}
# %%writefile bench.py
import sys
import time
from multiprocessing.connection import Client, Listener

import course
import json
import keras
import numpy as np
import tensorflow as tf
from step import make_step

k, repeats = int(sys.argv[1]), int(sys.argv[2])  # which of the two workers this is
tf.config.threading.set_intra_op_parallelism_threads(1)  # each worker has one core
tf.config.threading.set_inter_op_parallelism_threads(1)
x, y = course.load()[:2]
keras.utils.set_random_seed(0)  # both workers begin with the same parameters


def connect():
    """Returns the connection to the other worker. Worker 0 listens, and worker 1 calls."""
    if k == 0:
        return Listener("link").accept()
    for _ in range(600):
        try:
            return Client("link")
        except OSError:  # worker 0 does not listen yet
            time.sleep(0.05)
    sys.exit("worker 0 does not answer")


other, exchanging = connect(), 0.0  # seconds in exchanges


def exchange(vector):
    """Sends a vector to the other worker, and returns that worker's."""
    global exchanging
    began = time.perf_counter()
    if k == 0:
        other.send_bytes(vector)
        received = np.frombuffer(other.recv_bytes(), "float32")
    else:
        received = np.frombuffer(other.recv_bytes(), "float32")
        other.send_bytes(vector)
    exchanging += time.perf_counter() - began
    return received


def trainer(layers, batch_size):
    """Returns a function train(together, steps) for a model, and its number of parameters."""
    model = keras.Sequential([keras.Input([64]), *layers])
    first = model.get_weights()
    step = make_step(model, 0.2, exchange)

    def train(together, steps, half=False):
        """Trains on each mini-batch, or on this worker's half of it.

        Returns the seconds that it took, those of them in exchanges, and the parameters after it.
        """
        global exchanging
        model.set_weights(first)
        began, exchanging = time.perf_counter(), 0.0
        for number in range(steps):
            rows = np.random.RandomState(number).randint(0, len(x), batch_size)
            if half:
                rows = np.split(rows, 2)[k]
            step(x[rows], y[rows], together)
        after = np.concatenate([v.ravel() for v in model.get_weights()])
        return time.perf_counter() - began, exchanging, after

    return train, sum(v.size for v in first)


MODELS = {
    "digits": (200, 32, [keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]),
    "convolutions": (
        8,
        512,
        [
            keras.layers.Reshape([8, 8, 1]),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ],
    ),
}
results = {}
for name, (steps, batch_size, layers) in MODELS.items():
    train, parameters = trainer(layers, batch_size)
    train(False, 1), train(True, 1, half=True)  # the first steps build the functions
    alone, half, together, exchanges = [], [], [], []
    for _ in range(repeats):  # by turns, so that a busy minute hits both
        exchange(np.zeros(1, "float32"))  # both are here
        if k == 0:
            seconds, _, w_alone = train(False, steps)
            alone.append(seconds / steps)
            half.append(train(False, steps, half=True)[0] / steps)
        exchange(np.zeros(1, "float32"))
        seconds, part, w_together = train(True, steps, half=True)
        together.append(seconds / steps)
        exchanges.append(part / steps)
    if k == 0:
        results[name] = {
            "parameters": parameters,
            "batch size": batch_size,
            "alone": alone,
            "half": half,
            "together": together,
            "exchange": exchanges,
            "apart": float(abs(w_alone - w_together).max()),
        }
print(json.dumps(results))

# %% [markdown]
# The folded `bench.py` lets worker 0 train alone on whole mini-batches, and both together on halves,
# five times by turns. `start` runs a Python file as a process of its own, here without a cluster
# (`{}`), and `finish` waits for its end and returns what it printed. The models are
#
# - **digits**, the network of this course: 64 inputs, 32 hidden units, 10 outputs; batches of 32;
# - **convolutions**: two layers of 32 filters of 3 × 3 over 8 × 8 pixels; batches of 512.
#
# **Predict:** about which speed-up, at most 2, does each model have? Do one worker and two end with
# the same parameters?

# %% tags=["predicted", "measured"]
workers = [start("bench.py", {}, "worker", k, k, 5) for k in range(2)]
results = json.loads(finish(workers[0]).splitlines()[-1])
finish(workers[1])
print("              parameters  examples per second     speed-up  efficiency  same result")
print("                          one worker     two")
for name, result in results.items():
    # The least disturbed of the repeats.
    rates = [result["batch size"] / min(result[who]) for who in ("alone", "together")]
    ratio = rates[1] / rates[0]
    same = "yes" if result["apart"] < 1e-4 else "no"
    row = (name, result["parameters"], *rates, ratio, 50 * ratio, same)
    print("%-12s  %10d  %10.0f  %6.0f  %9.2f  %9.0f%%  %s" % row)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
#               parameters  examples per second     speed-up  efficiency  same result
#                           one worker     two
# digits              2410       24672   18875       0.77         38%  yes
# convolutions        9898       11442   17549       1.53         77%  yes
# ```
#
# One worker and two make the same steps, up to rounding, so only throughput counts. For the
# convolutions two are faster, each with one thread, because half of the examples take about half of
# the time and the exchange is short. For the digits two are *slower*.
#
# </details>

# %% jupyter={"source_hidden": true} tags=["measured"]
(figure, axes), times = plt.subplots(figsize=(8, 2.8)), []
for row, (name, result) in enumerate(results.items()):
    alone, half, together, exchange = [
        min(result[part]) for part in ("alone", "half", "together", "exchange")
    ]
    times += [half / alone, together / alone]
    axes.barh(-row + 0.26, 1, 0.22, color=GRAY)
    axes.barh(-row, half / alone, 0.22, color=GREEN)
    own = (together - exchange) / alone
    axes.barh(-row - 0.26, own, 0.22, color=BLUE)
    axes.barh(-row - 0.26, exchange / alone, 0.22, own, color=RED)
axes.axvline(0.5, color="black", linestyle=":")
axes.text(0.505, 0.55, "half: a speed-up of 2", size=8, va="center")
axes.grid(axis="y", visible=False)
axes.set(
    yticks=[0, -1],
    yticklabels=results,
    ylim=(-1.55, 0.7),
    xlabel="time of a step (one worker = 1)",
)
axes.legend(
    [plt.Rectangle((0, 0), 1, 1, color=color) for color in (GRAY, GREEN, BLUE, RED)],
    ["one worker", "one worker, half of the examples", "two workers: own work", "their exchange"],
    loc="lower center",
    bbox_to_anchor=(0.5, 1),
    ncol=2,
    fontsize=8,
)
show(
    figure,
    "The time of a step of each model: one worker, the same worker with half of the examples, and "
    "two workers, whose exchange is red. Where one worker needs 1, half of the examples of the "
    "digits need %.2f and two workers %.2f; of the convolutions %.2f and %.2f." % tuple(times),
)

# %% [markdown]
# The digits lose by their exchange (red), and by Amdahl's law: one worker alone needs about as long
# for half of the examples (green) as for all of them (grey). Calling TensorFlow and moving `w` cost
# the same for 16 as for 32. Where green is even longer than grey, that is probably noise. Where
# blue is longer than green, two busy processes probably share memory and caches.
#
# The mini-batch kept its size here, *strong scaling*. If each worker keeps its own, *weak scaling*,
# the exchange weighs less, but the larger mini-batch [changes the
# training](SGD-by-Experiment.ipynb). The task *convolution* of
# [Compare](../Measurements/Compare/) has both.
#
# ## Who trains this way, and what is old here
# Most large models today are trained with all-reduce, sharding and model parallelism. Parameter
# servers and asynchrony live on where messages are sparse, rare or slow:
#
# - **Recommenders** keep huge tables on parameter servers and touch few rows in a step, as
#   [ByteDance](https://arxiv.org/abs/2209.07663) does.
# - **Federated averaging** trains on phones, and **[DiLoCo](../Further-Algorithms/DiLoCo/)** in
#   distant data centres, through rare messages.
# - **Reinforcement learning** has actors that play with slightly stale parameters.
#
# TensorFlow calls the functions that a ps serves here experimental, and few programs use them. For a
# new project take PyTorch or JAX or, within TensorFlow,
# [Collective-AllReduce](../Collective-AllReduce/) or
# [Parameter-Server-Strategy](../Parameter-Server-Strategy/). The ideas, and the mistakes, are the same.
#
# ## When not to distribute
# Stop at the first row that is yours. [Which-Algorithm](Which-Algorithm.ipynb) goes on from here.
#
# | your situation | do this |
# | --- | --- |
# | an epoch takes minutes | nothing: one process is the simplest |
# | the device waits for data | a better [input pipeline](Input-Pipelines.ipynb) |
# | many settings to try | one process for each: no messages, a speed-up of `n` |
# | a GPU computes small batches | a larger batch, mixed precision, compilation |
# | the model does not fit | smaller pieces of a mini-batch, activations computed twice; then shares of Adam's numbers on all workers, then model parallelism |
# | one device is too slow | several in one machine, then equal machines, with an all-reduce |
# | unequal machines | smaller shares for the slow ones, or asynchronous training |
# | failing machines | checkpoints and restarts, or workers that may come and go |

# %% [markdown]
# ## Exercises
# **1. How many workers?** ★☆☆ On paper: 2% of a step cannot be divided. What is the limit of the
# speed-up, and how many workers reach half of it?
#
# <details><summary>Hint</summary>
#
# Set $1 / (f + (1 - f) / n)$ equal to $1 / (2 f)$, and solve for $n$.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (the limit, the number of workers)"
    limit, n = answer
    if abs(limit - 1 / 0.98) < 0.1:
        return (
            "you divided by the share that can be divided; with endless workers that one vanishes"
        )
    if not abs(limit - 50) <= 0.1:
        return "with endless workers only the share f is left of a step, so the limit is 1 / f"
    if n == 25:
        return "25 workers would be 25 times as fast only if all of the step could be divided"
    if n != 49:
        return "%g workers are %.4g times as fast, not 25 times" % (n, 1 / (0.02 + 0.98 / n))


# %%
# Your answer to exercise 1: (the limit, the number of workers)
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# f = 0.02
# answer_1 = 1 / f, round((1 - f) / f)
#
# assert check_1(answer_1)
# ```
#
# The limit is 50. From f + (1 − f) / n = 2 f follows n = (1 − f) / f = 49.
#
# </details>

# %% [markdown]
# **2. One server, many workers.** ★★☆ A mini-batch's gradient takes one worker 25.6 s. The model has
# 160 MB, and the only server a link of 10 Gbit/s, so a pull and a push take 256 ms. The server serves
# one worker after another, so a step of `n` workers takes $t_g / n + n \cdot t_m$. Which `n` is the
# best, and what is its speed-up?
#
# <details><summary>Hint</summary>
#
# Where is the derivative of the time zero? Or compute it for all `n` from 1 to 100.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (the best number of workers, its speed-up)"
    n, faster = answer
    if n == 100:
        return "with t_g / t_m workers a step takes longer than one worker alone needs"
    if n != 10:
        return "%g workers need %.3g s; there is a better number" % (n, 25.6 / n + 0.256 * n)
    if abs(faster - 10) < 0.01:
        return "10 workers would be 10 times as fast only if messages took no time"
    if not abs(faster - 5) <= 0.01:
        return "the speed-up is the time of one worker alone, 25.6 s, divided by that of 10"


# %%
# Your answer to exercise 2: (the best number of workers, its speed-up)
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# workers = np.arange(1, 101)
# faster = 25.6 / (25.6 / workers + workers * 0.256)
# answer_2 = workers[np.argmax(faster)], faster.max()
#
# assert check_2(answer_2) and faster[-1] < 1
# ```
#
# The derivative is zero at n = √(t_g / t_m) = 10, where computing and sending take 2.56 s each. 100
# workers are slower than one. Two remedies are [several servers](Parameter-Server.ipynb) and
# a [ring](Ring-AllReduce.ipynb).
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Ben-Nun and Hoefler 2018, [Demystifying Parallel and Distributed Deep
#   Learning](https://arxiv.org/abs/1802.09941): the whole field.
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu).
# - McMahan et al. 2017, [federated averaging](https://arxiv.org/abs/1602.05629).
#
# **Elsewhere:** the measured step is DistributedDataParallel in PyTorch, MultiWorkerMirroredStrategy
# in `tf.distribute`, and `jax.lax.pmean` in JAX.
#
# Next: [Ring-AllReduce](Ring-AllReduce.ipynb), how workers without a server get their mean.
