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
# # Stale gradients
# Asynchronous workers do not wait for each other. While one computes its gradient, the others move
# the shared parameters, so the gradient that it pushes belongs to parameters that no longer exist.
# This notebook shows what such a *stale* gradient does: first on a loss with one parameter, where
# you can follow each move, then on the digits.
#
# After this notebook you can:
# - say what the staleness of a push is, and measure it;
# - show how a stale gradient takes `w` past the minimum, and why it limits the learning rate;
# - say what DynSGD's factor `1 / (tau + 1)` changes, when it helps and when it does not;
# - explain how a measured staleness can be wrong, and what a lock has to do with it;
# - tell what holds in every run of a race, and what only in some.
#
# **Before it:** [Multiple-Workers](Multiple-Workers.ipynb). **Time:** 70 minutes.

# %% [markdown]
# ## What staleness counts
# Each update of a worker has three parts. It *pulls* the parameters `w` from the ps into its copy
# `w_k`. It computes the gradient `g(w_k)`. It *pushes*: the ps subtracts `lr * g(w_k)` from `w`, as
# `w` is by then.
# ```
# pull    w_k <- w                  version: how many updates w has had
# push    w <- w - lr * g(w_k)      ticket: how many updates w has had just before it
#         tau = ticket - version    staleness: updates by others, since the pull
# ```
# ![Staleness. Worker 0 pulls version 0 of w and pushes first: staleness 0. Worker 1 has pulled version 0, too, and pushes after worker 0: staleness 1. Worker 0 has pulled version 1, and pushes after worker 1: staleness 1.](../docs/figures/staleness.svg)
#
# There is one `w`, on the ps, and each worker has a copy of it. No lock keeps `w` in place between
# a pull and its push. [HogWild](../HogWild/) trains like this. Elsewhere it is called asynchronous
# SGD: Hogwild! itself has threads that share memory, and sparse gradients.

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
# region: cluster -- the same in each notebook: free ports, and processes that end with this one
import json
import pathlib
import socket
import subprocess
import sys

held = []  # sockets that keep the ports of our clusters until the kernel ends

def new_cluster(**counts):
    """{job: addresses} at free ports: new_cluster(ps=1, worker=2)."""
    cluster = {}
    for job, count in counts.items():
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", 0))
        cluster[job] = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
        held.extend(sockets)
    return cluster

RUN = """if True:
    import os, runpy, sys, threading
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")"""

def start(file, cluster, job, index=0, *arguments):
    """Starts a Python file as a task of a cluster, which TF_CONFIG names.

    The process ends with its standard input: by stop(), or when the kernel ends, however that
    happens. What it prints goes to the file job-index.log.
    """
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    with open("%s-%d.log" % (job, index), "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", RUN, file, *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=log, stderr=log, env={**os.environ, "TF_CONFIG": json.dumps(config)})
    process.log = pathlib.Path(log.name).absolute()
    return process

def finish(process, seconds=60):
    """Waits until a process has ended, and returns what it printed."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = "none after %d s" % seconds
    printed = process.log.read_text()
    assert code == 0, "%s: exit code %s\n%s" % (process.log.stem, code, printed[-2000:])
    return printed

def stop(*processes):
    """Ends processes that still run."""
    for process in processes:
        process.stdin.close()
        process.wait(10)
# endregion: cluster

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
# ## Workers that you drive
# In a real run the order of pulls and pushes is a race: it differs from run to run. For a look in
# slow motion we *script* the order: pull and push are two calls, and you say which comes next. The
# variables still live on a real server. At the end of the notebook the workers run freely.
#
# The cluster has one ps and three workers, all in this process; the third worker is for the
# exercises. `Worker` below builds the graph of one of them: pull, and then push. `w_k` and
# `version` must last from the pull to the push, so they are local variables, on the worker.

# %%
import digits

cluster = new_cluster(ps=1, worker=3)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in range(3)]
waits = tf.ConfigProto(operation_timeout_in_ms=10_000)  # limits most waits: see Servers
sessions = []

class Worker:
    """Worker k, with a graph and a session of its own.

    variables(): makes w. gradient(w_k, number): the gradient there, on mini-batch `number`.
    factor(tau): what the step of a push is multiplied by. limit: the updates of all workers.
    """
    def __init__(self, k, variables, gradient, lr, factor=lambda tau: 1.0, limit=10**6):
        with tf.Graph().as_default() as graph:
            zero = tf.constant(0, tf.int64)
            with tf.device("/job:ps/task:0"):
                w = variables()
                step = tf.get_variable("step", initializer=zero)
            with tf.device("/job:worker/task:%d" % k):
                w_k = [tf.get_local_variable(v.op.name + "_k", initializer=tf.zeros(v.shape))
                       for v in w]
                version = tf.get_local_variable("version", initializer=zero)

                # pull: first the version, then w
                with tf.control_dependencies([version.assign(step.read_value())]):
                    self.pull = tf.group(*[c.assign(v.read_value()) for v, c in zip(w, w_k)])

                # push: the gradient, then a ticket, then the update. No ticket is given twice.
                g = gradient([c.read_value() for c in w_k], version.read_value())
                with tf.control_dependencies(g):
                    self.ticket = tf.count_up_to(step, limit)
                tau = self.ticket - version.read_value()
                step_size = lr * factor(tf.to_float(tau))
                with tf.control_dependencies([self.ticket]):
                    moved = [v.assign_sub(step_size * d) for v, d in zip(w, g)]
                with tf.control_dependencies(moved):
                    self.push = tf.stack([self.ticket, tau])

                # The update without a ticket. You need it only in `How the measurement can lie`,
                # where a push is made in two halves: first `ticket`, and later `move_only`.
                with tf.control_dependencies(g):
                    self.move_only = tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])

            self.w, self.w_k, self.version = w, w_k, version
            self.initialise = [tf.global_variables_initializer(), tf.local_variables_initializer()]
        sessions.append(tf.Session(servers[k].target, graph, config=waits))
        self.run = sessions[-1].run

# %% [markdown]
# The loss is $\frac{1}{2} w^2$, a bowl with its minimum at 0. Its gradient at `w` is `w` itself.
# `play` makes the moves that you list, and notes `w` and the copies after each.

# %%
def on_the_bowl(k, lr, factor=lambda tau: 1.0):
    return Worker(k, lambda: [tf.get_variable("w", initializer=4.0)], lambda w_k, number: w_k,
                  lr, factor)

def play(workers, moves):
    """Makes the moves "pull 0, push 0, ...": [(move, w, {k: w_k}, tau)], from the start on."""
    for worker in workers:
        worker.run(worker.initialise)
    moments = [("start", 4.0, {}, None)]
    for move in moves.split(", "):
        kind, k = move.split()
        worker = workers[int(k)]
        if kind == "pull":
            worker.run(worker.pull)
            tau = None
        else:
            tau = int(worker.run(worker.push)[1])
        copies = {**moments[-1][2], int(k): worker.run(worker.w_k)[0]}
        moments.append((move, worker.run(worker.w)[0], copies, tau))
    return moments

for move, w, _, tau in play([on_the_bowl(0, lr=0.8)], "pull 0, push 0, pull 0, push 0"):
    print("%-7s w = %4.2f" % (move, w), "" if tau is None else "  tau = %d" % tau)

# %% [markdown]
# With one worker no push is stale. Each takes `w` to `(1 - 0.8) * w`: 4, 0.8, 0.16.
#
# ## Two workers, the same learning rate
# Now both workers pull before either of them pushes.
#
# **Predict:** where is `w` after both have pushed: nearer to the minimum than 0.8, or farther away?

# %%
BOTH_PULL = "pull 0, pull 1, push 0, push 1"
hogwild = play([on_the_bowl(k, lr=0.8) for k in (0, 1)], BOTH_PULL)
assert np.isclose(hogwild[-1][1], -2.4)  # w at the end

def draw(moments, title):
    """The bowl after both pulls and after each push: w, the copies, and what the push does."""
    figure, panels = plt.subplots(1, 3, figsize=(7, 2.7), sharey=True, layout="constrained")
    bowl = np.linspace(-4.6, 4.6, 99)
    for panel, before, moment in zip(panels, moments[1:], moments[2:]):
        (move, w, copies, tau), w_before = moment, before[1]
        panel.plot(bowl, bowl ** 2 / 2, color="lightgray", zorder=0)
        for k, size in (1, 17), (0, 12):  # rings of two sizes, so that none hides another
            panel.plot(copies[k], copies[k] ** 2 / 2, "o", markersize=size, fillstyle="none",
                       color=(BLUE, ORANGE)[k], markeredgewidth=2)
        panel.plot(w, w ** 2 / 2, "o", color="black", markersize=6)
        panel.text(0, 5.5, "w = %.1f" % w, ha="center")
        if tau is None:
            panel.set_title("both have pulled", fontsize=10.5)
        else:
            k = int(move[-1])
            panel.annotate("", (w, -1.6), (w_before, -1.6), arrowprops=dict(
                arrowstyle="-|>", color=(BLUE, ORANGE)[k], linewidth=2.5, shrinkA=0, shrinkB=0))
            panel.set_title("worker %d pushes, tau = %d" % (k, tau), color=(BLUE, ORANGE)[k],
                            fontsize=10.5)
        panel.set(xlabel="w", xticks=range(-4, 5, 2), yticks=[0, 5, 10],
                  ylim=(-2.8, 11.5))
    panels[0].set_ylabel("loss")
    panels[0].text(-4.6, -1.7, "dot: w on the ps\nrings: copies", fontsize=8.5, va="center")
    figure.suptitle(title)
    return figure

show(draw(hogwild, "HogWild, lr = 0.8"),
     "Three bowls. Both workers have pulled w = 4. Worker 0 pushes and takes w to 0.8. Worker 1, "
     "whose copy is still at 4, pushes as far and takes w past the minimum, to minus 2.4.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Farther away, and on the other side: −2.4. Worker 1 still has its copy at 4. Its gradient is right
# for 4, but it is subtracted from 0.8. Two gradients from the same point are one step of twice the
# length: `w` goes to `(1 - 2 * 0.8) * w`. The staleness says so: one other update came between.
#
# </details>
#
# ## How stale are real pushes?
# The script above is one possible order. Here is a measured run of [HogWild](../HogWild/), with two
# worker processes on the digits:
#
# ![A measured run of HogWild with two workers: training loss and test error over time, a histogram of the staleness with about as many pushes at 0 as at 1, where the time goes, and a moment of the run with the staleness beside each push](../HogWild/curves.png)
#
# Look at the histogram in the middle. The mean staleness is about 0.5: about half of the pushes
# are not stale at all. Only what others push between a worker's read of `w` and its push counts. At
# the bottom it reads `w` somewhere within the thin part of a line, and pushes at the end of the
# thick part.
#
# ## The worst order: strictly in turns
# For the theory one order is convenient: worker 0 pushes and pulls again at once, then worker 1,
# then worker 0. It is an idealisation. No order of two workers has a larger mean staleness.
#
# **Predict:** what is `tau` of each push? With `lr` = 1.2, one worker alone goes 4, −0.8, 0.16.
# Does `w` still settle at 0 with two workers in turns?

# %%
ALONE = "pull 0" + ", push 0, pull 0" * 24
IN_TURNS = "pull 0, pull 1" + ", push 0, pull 0, push 1, pull 1" * 12

def pushes_only(moments):
    """w at the start and after each push; tau of each push."""
    pushes = [moment for moment in moments if moment[3] is not None]
    return np.array([4.0] + [w for _, w, _, _ in pushes]), [tau for _, _, _, tau in pushes]

alone, _ = pushes_only(play([on_the_bowl(0, lr=1.2)], ALONE))
in_turns, taus = pushes_only(play([on_the_bowl(k, lr=1.2) for k in (0, 1)], IN_TURNS))
print("tau of the pushes in turns:", *taus[:8], "...")
for name, w in ("alone", alone), ("in turns", in_turns):
    print("%-9s |w| at the start 4.00, largest of the last 6: %.2f" % (name, abs(w[-6:]).max()))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Every push but the first has `tau` = 1: the other worker's push always comes between. With n
# workers in turns it is n − 1. And `w` does not settle; it swings more and more widely.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: the staleness is 1, and w ends farther away than it began.
assert taus == [0] + 23 * [1] and abs(in_turns[-6:]).max() > 4

# %% [markdown]
# In turns, the gradient is always that of the step before:
#
# $$w_{t+1} = w_t - lr \cdot w_{t-1}$$
#
# This settles only for `lr < 1`. Without the delay, $w_{t+1} = w_t - lr \cdot w_t$ settles for
# `lr < 2`. That is the price of staleness: *a learning rate that is good for one worker can be too
# large for two.*
#
# ## DynSGD: the staler a push, the smaller its step
# [DynSGD](../DynSGD/) divides each step by its staleness plus one:
#
# $$w \leftarrow w - \frac{lr}{\tau + 1} \, g(w_k)$$

# %%
def dynsgd_factor(tau):
    return 1 / (tau + 1)

dynsgd = play([on_the_bowl(k, 0.8, dynsgd_factor) for k in (0, 1)], BOTH_PULL)
assert np.isclose(dynsgd[-1][1], -0.8)
show(draw(dynsgd, "DynSGD, lr = 0.8: the stale step is halved"),
     "Three bowls. Both workers have pulled w = 4. Worker 0 pushes and takes w to 0.8. The "
     "stale step of worker 1 is halved and takes w to minus 0.8 only.")

# %% [markdown]
# The stale push still passes the minimum, but only as far as −0.8. And in turns, at `lr` = 1.2? The
# distance from the minimum is drawn on a logarithmic scale, so that each update counts alike.

# %%
workers = [on_the_bowl(k, 1.2, dynsgd_factor) for k in (0, 1)]
dynsgd_in_turns, _ = pushes_only(play(workers, IN_TURNS))
figure, ax = plt.subplots(figsize=(7, 2.9))
for w, colour, name, place in ((in_turns, RED, "two in turns, HogWild", (24.5, 30)),
                               (dynsgd_in_turns, GREEN, "two in turns, DynSGD", (24.5, 0.012)),
                               (alone, GRAY, "one worker alone", (5.3, 0.003))):
    ax.plot(abs(w), ".-", color=colour)
    ax.text(*place, name, color=colour, va="center")
ax.set(yscale="log", ylim=(1e-3, 100), xlim=(0, 24), xlabel="updates of w, all workers together",
       ylabel="|w|, distance to minimum", title="lr = 1.2")
show(figure, "Distance from the minimum on a logarithmic scale over 24 updates. One worker alone "
     "falls fast. Two in turns with HogWild grow from 4 to more than 10. With DynSGD they fall.")
assert abs(dynsgd_in_turns[-1]) < 0.1

# %% [markdown]
# In turns every push has the same staleness, 1, so DynSGD is then plain HogWild at half the rate,
# and you could have halved the rate yourself. Its strength is to shorten *only* the stale pushes,
# as the digits will show.
#
# ## The digits
# Now the network with 2,410 parameters. To try many cases fast, we script the staleness itself: the
# update number t uses the gradient at the parameters of `tau` updates before. No cluster is needed
# for that; the arithmetic is the same.

# %%
x, y, x_test, y_test = digits.load()
w_old = [tf.placeholder(tf.float32, v.shape) for v in digits.first_values()]
number = tf.placeholder(tf.int64, [])
here = tf.Session()
sessions.append(here)
gradient = here.make_callable(  # a function of the placeholders' values
    tf.gradients(digits.loss(w_old, *digits.batch(x, y, number)), w_old), [number, *w_old])
training_loss = here.make_callable(digits.loss(w_old, x, y), w_old)

def train(taus, lr, factor=lambda tau: 1.0):
    """The loss on all training digits after one update for each staleness in `taus`."""
    history = [digits.first_values()]
    for t, tau in enumerate(taus):
        tau = min(tau, t)
        g = gradient(t, *history[t - tau])
        history.append([v - lr * factor(tau) * d for v, d in zip(history[t], g)])
    return training_loss(*history[-1])

# %% [markdown]
# We train with 300 updates, at seven learning rates, in two kinds of clusters:
# - **equal workers**: 1, 2, 4 or 8 workers in turns, so each push has staleness 0, 1, 3 or 7;
# - **a fast and eight slow workers**: the fast one makes every second update, with staleness 1. The
#   slow ones share the others: each takes as long as 16 updates, and its pushes have staleness 15.
#
# The *best rate* is the one with the lowest loss at the end.
#
# **Predict:** how does the best rate change with the number of equal workers? With a fast and eight
# slow workers, which of HogWild and DynSGD reaches the lower loss, each at its best rate?

# %%
rates = 0.05 * 2.0 ** np.arange(7)
UNEQUAL = [1, 15] * 150
equal = {tau + 1: [train([tau] * 300, lr) for lr in rates] for tau in (0, 1, 3, 7)}
unequal = {"HogWild": [train(UNEQUAL, lr) for lr in rates],
           "DynSGD": [train(UNEQUAL, lr, dynsgd_factor) for lr in rates]}

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.1), sharey=True, layout="constrained")
for (workers, losses), colour in zip(equal.items(), (GRAY, BLUE, PURPLE, ORANGE)):
    left.plot(rates, losses, ".-", color=colour, label=workers)
for (name, losses), colour in zip(unequal.items(), (RED, GREEN)):
    right.plot(rates, losses, ".-", color=colour, label=name)
for ax, title in (left, "equal workers, HogWild"), (right, "a fast and eight slow"):
    ax.set(xscale="log", yscale="log", title=title, xlabel="learning rate",
           xticks=rates, yticks=[0.1, 0.2, 0.5, 1, 2], ylim=(0.06, 4))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
left.set_ylabel("loss after 300 updates")
left.legend(title="workers", loc="lower right", handlelength=1)
right.legend(loc="lower left", handlelength=1.2)
show(figure, "Loss after 300 updates against the learning rate. Left, equal workers with HogWild: "
     "the more workers, the lower the rate at which the loss jumps up. Right, a fast and eight "
     "slow workers: DynSGD reaches a lower loss than HogWild, at higher rates.")
for workers, losses in equal.items():
    print("equal workers, %d:         lowest loss %.2f, best rate %.2f" % (
        workers, min(losses), rates[np.argmin(losses)]))
for name, losses in unequal.items():
    print("fast and slow, %-8s   lowest loss %.2f, best rate %.2f" % (
        name + ":", min(losses), rates[np.argmin(losses)]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# With twice the workers the best rate is about half, on a grid of factor 2; just above it the loss
# jumps up. On the bowl the limit falls alike: $2 \sin \frac{\pi}{4n - 2}$, see exercise 3. With
# unequal workers DynSGD reaches the lower loss. The stale pushes forbid HogWild a large rate for
# *all* pushes. DynSGD shortens the stale ones alone. With equal workers it would gain nothing: it
# is HogWild at the rate `lr / (tau + 1)`, but for the first few pushes.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer. Each best rate lies within those that were tried.
best = [rates[np.argmin(losses)] for losses in equal.values()]
assert all(one > two for one, two in zip(best, best[1:]))
assert min(unequal["DynSGD"]) < 0.7 * min(unequal["HogWild"])
for losses in [*equal.values(), *unequal.values()]:
    assert 0 < np.argmin(losses) < len(rates) - 1

# %% [markdown]
# One seed and one small model: take the shape from this figure, not the numbers.
# [Scaling](../Measurements/Scaling/) measures the same question with real processes. It finds the
# price, too: at a small learning rate a stale push does little harm, and DynSGD is slower
# because it shortens it all the same.
#
# ## How the measurement can lie
# `tau` counts tickets. But a push is not done when it has its ticket: first the step counter moves,
# then `w`. In between, another worker may pull.
#
# **Predict:** worker 0 takes its ticket. Worker 1 pulls. Only then does `w` move. Worker 1 has
# missed that update: what is its `tau`?

# %%
first, second = [on_the_bowl(k, lr=0.8) for k in (0, 1)]
for worker in first, second:
    worker.run(worker.initialise)
first.run(first.pull)
first.run(first.ticket)     # the first half of a push
second.run(second.pull)
first.run(first.move_only)  # the second half
version, [w_1], [w] = second.run([second.version, second.w_k, second.w])
ticket, tau = second.run(second.push)
print("worker 1 believes: version %d.  Its copy: %.1f.  w of version %d: %.1f" % (
    version, w_1, version, w))
print("measured tau = %d, although one update came between" % tau)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 0: worker 1 read version 1, and its ticket is 1, too. But its copy is that of version 0.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: the staleness is 0, although worker 1 has missed an update.
assert tau == 0 and w_1 != w

# %% [markdown]
# In [HogWild](../HogWild/) this is only a reporting error. There `w` is one vector on each ps,
# which TensorFlow updates whole: with two servers or more a pull may see half an update, with one
# it cannot. In DynSGD that number sets the learning rate. So DynSGD has a lock on the ps, a
# `tf.CriticalSection`, which only one worker holds at a time. Under the lock a worker reads `w` and
# the step together, with nothing between. Under the same lock it takes its ticket and moves `w`.
#
# The next cell shows the lock. Worker 0 pushes under the lock. A queue, `gate`, stops it between
# its ticket and the move of `w`, at the worst moment, until we put something in. Then worker 1
# wants to pull, and gives up after half a second.

# %%
import threading

class LockedWorker:
    """On the bowl, with one lock on the ps around each pull and each push."""
    def __init__(self, k):
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", initializer=4.0)
            step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
            lock = tf.CriticalSection(shared_name="lock")
            gate = tf.FIFOQueue(1, tf.int32, [[]], shared_name="gate")

            def read_both():
                return [tf.identity(step.read_value()), tf.identity(w.read_value())]

            def ticket_and_move():
                with tf.control_dependencies([tf.count_up_to(step, 10**6)]):
                    with tf.control_dependencies([gate.dequeue()]):
                        return w.assign_sub(0.8 * 4.0)

            self.pull = lock.execute(read_both)
            self.push = lock.execute(ticket_and_move)
            self.step, self.open_gate = step.read_value(), gate.enqueue(1)
            self.initialise = tf.global_variables_initializer()
        sessions.append(tf.Session(servers[k].target, graph, config=waits))
        self.run = sessions[-1].run

first, second = LockedWorker(0), LockedWorker(1)
first.run(first.initialise)
pushing = threading.Thread(target=first.run, args=[first.push], daemon=True)
pushing.start()
while first.run(first.step) == 0 and pushing.is_alive():
    pass  # until worker 0 has its ticket; w has not moved yet
try:
    second.run(second.pull, options=tf.RunOptions(timeout_in_ms=500))
except tf.errors.DeadlineExceededError:
    print("worker 1 waits for the lock")
first.run(first.open_gate)
pushing.join(10)
print("then it pulls: version %d, w = %.1f" % tuple(second.run(second.pull)))

# %% [markdown]
# Worker 1 waits, and what it gets belongs together: version 1, and the `w` of version 1. Waiting is
# the price of a `tau` that is right.
#
# ## A race
# At last the workers run freely: two threads train the digits, each with its own session, until 400
# updates are made. Who pushes how often, and how stale, differs from run to run.
#
# **Predict:** which of these holds in *every* run? (a) No ticket is given twice. (b) Both workers
# make 200 updates. (c) No `tau` is larger than 1. (d) The mean of `tau` is at most 1.

# %%
from concurrent.futures import ThreadPoolExecutor

UPDATES = 400

def on_the_digits(k):
    def gradient_at(w_k, number):
        return tf.gradients(digits.loss(w_k, *digits.batch(x, y, number, worker=k)), w_k)
    return Worker(k, digits.variables, gradient_at, lr=0.2, limit=UPDATES)

def work(worker):
    """Pulls and pushes until all tickets are taken: the (ticket, tau) of each push."""
    pushes = []
    try:
        while True:
            worker.run(worker.pull)
            pushes.append(tuple(worker.run(worker.push)))
    except tf.errors.OutOfRangeError:
        return pushes

tf.Session.reset(ps.target)  # forgets the bowl's variables
racers = [on_the_digits(k) for k in (0, 1)]
for racer in racers:
    racer.run(racer.initialise)
with ThreadPoolExecutor(2) as threads:
    pushes = list(threads.map(work, racers))

tickets = sorted(ticket for of_worker in pushes for ticket, _ in of_worker)
taus = [[tau for _, tau in of_worker] for of_worker in pushes]
accuracy = here.run(digits.accuracy(racers[0].run(racers[0].w), x_test, y_test))
print("more than 90% of the test digits are right:", accuracy > 0.9)
assert accuracy > 0.9

# %% tags=["measured"]
print("(a) tickets: %d, different ones: %d" % (len(tickets), len(set(tickets))))
print("(b) updates of worker 0: %d, of worker 1: %d" % (len(taus[0]), len(taus[1])))
print("(c) the largest tau: %d" % max(sum(taus, [])))
print("(d) the mean of tau: %.2f" % np.mean(sum(taus, [])))

# %% [markdown]
# <details><summary>Answer</summary>
#
# (a) and (d). `tf.count_up_to` is atomic, so no ticket is given twice. And an update can fall
# between pull and push of each *other* worker at most once, so all `tau` together are at most n − 1
# times the updates. (b) and (c) can fail: a worker that is interrupted between its pull and its
# push makes fewer updates, and its push can be arbitrarily stale.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: (a) and (d) hold in every run.
assert tickets == list(range(UPDATES)) and np.mean(sum(taus, [])) <= 1

# %% [markdown]
# This is the staleness of the run above; yours will differ. Look for two things: how many pushes
# were not stale, and how stale the stalest was.

# %% tags=["measured"]
figure, ax = plt.subplots(figsize=(7, 2.4))
latest = max(sum(taus, []))
for k, colour in enumerate((BLUE, ORANGE)):
    counts = np.bincount(taus[k], minlength=latest + 1)
    ax.bar(np.arange(latest + 1) + 0.4 * k - 0.2, counts, width=0.38, color=colour,
           label="worker %d" % k)
ax.set(xlabel="staleness of a push", ylabel="pushes", xticks=range(latest + 1))
ax.grid(axis="x")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Bars: how many pushes of each of the two workers had staleness 0, 1 and more.")

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise. `on_the_bowl` and `play` are all you need.
#
# **1. Three at once.** ★☆☆ Three workers pull, then all push, at `lr` = 0.5. Compute by hand where
# `w` is then, with HogWild and with DynSGD. Then check.
#
# <details><summary>Hint</summary>
#
# All three gradients are 4. The three pushes have staleness 0, 1 and 2.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# tf.Session.reset(ps.target)
# moves = "pull 0, pull 1, pull 2, push 0, push 1, push 2"
# three = play([on_the_bowl(k, 0.5) for k in range(3)], moves)[-1][1]
# three_dynsgd = play([on_the_bowl(k, 0.5, dynsgd_factor) for k in range(3)], moves)[-1][1]
# assert np.isclose(three, 4 - 3 * 0.5 * 4)  # three steps of 2: at -2
# assert np.isclose(three_dynsgd, 4 - 0.5 * 4 * (1 + 1 / 2 + 1 / 3), atol=1e-5)  # at 1/3
# ```
#
# </details>

# %% [markdown]
# **2. A worker that slept.** ★★☆ Worker 1 pulls. Then worker 0 pulls and pushes ten times. Then
# worker 1 pushes. At `lr` = 0.3, how far does the old push throw `w` with HogWild, and how far with
# DynSGD?
#
# <details><summary>Hint</summary>
#
# Build the string of moves with `", pull 0, push 0" * 10`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# tf.Session.reset(ps.target)
# sleeper = "pull 1" + ", pull 0, push 0" * 10 + ", push 1"
# thrown = play([on_the_bowl(k, 0.3) for k in (0, 1)], sleeper)[-1]
# thrown_dynsgd = play([on_the_bowl(k, 0.3, dynsgd_factor) for k in (0, 1)], sleeper)[-1]
# assert thrown[3] == thrown_dynsgd[3] == 10  # tau
# assert abs(thrown[1]) > 1 and abs(thrown_dynsgd[1]) < 0.1
# ```
#
# </details>

# %% [markdown]
# **3. Three in turns.** ★★★ From which learning rate on do three workers in turns no longer settle?
# The theory for n workers in turns says $2 \sin \frac{\pi}{4n - 2}$. Check a rate on either side of
# it. Then derive the formula.
#
# <details><summary>Hint</summary>
#
# Use 60 updates, and compare the largest of the last 20 values of `|w|` with 4. For the formula,
# put $w_t = z^t$ into $w_{t+1} = w_t - lr \cdot w_{t-n+1}$, and look for the smallest `lr` with
# $|z| = 1$.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# With $z = e^{i\theta}$ the equation is $z^{n-1} (1 - z) = lr$. Taking absolute values
# gives $lr = 2 \sin(\theta / 2)$. Taking arguments (angles) gives
# $(n - 1) \theta - (\pi - \theta) / 2 = 0$, so $\theta = \pi / (2n - 1)$.
#
# ```python
# tf.Session.reset(ps.target)
# in_turns_3 = "pull 0, pull 1, pull 2" + ", push 0, pull 0, push 1, pull 1, push 2, pull 2" * 20
# ends = {lr: pushes_only(play([on_the_bowl(k, lr) for k in range(3)], in_turns_3))[0][-20:]
#         for lr in (0.55, 0.7)}
# assert 0.55 < 2 * np.sin(np.pi / 10) < 0.7
# assert abs(ends[0.55]).max() < 4 < abs(ends[0.7]).max()
# ```
#
# </details>

# %%
# Stop what this notebook started.
for session in sessions:
    session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Niu et al. 2011, [Hogwild!](https://arxiv.org/abs/1106.5730): threads without locks, for sparse
#   gradients.
# - Jiang et al. 2017, [Heterogeneity-aware Distributed Parameter
#   Servers](https://doi.org/10.1145/3035918.3035933): DynSGD.
# - Zhang et al. 2015, [Staleness-aware Async-SGD](https://arxiv.org/abs/1511.05950): another way to
#   divide the rate by the staleness.
# - Dutta et al. 2018, [Slow and Stale Gradients Can Win the
#   Race](https://arxiv.org/abs/1803.01113): what staleness costs, against the time that waiting
#   costs.
# - [HogWild](../HogWild/) and [DynSGD](../DynSGD/): both algorithms with real worker processes.
#
# Next: [Classic-Mistakes-Updates](Classic-Mistakes-Updates.ipynb), which ends part two.
