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
# A worker that asks the ps for `w` at each step waits for the network at each step, so give it
# variables of its own. It trains on them for T steps, and only then moves the global ones.
#
# After this notebook you can:
# - say which variables are global and which are local, and what TensorFlow does differently with
#   them;
# - build one model twice with one function, on the ps and on a worker, and copy it both ways;
# - sum up T gradients on the worker, and push them at once;
# - order a push and a pull with control dependencies, and check that order in the graph.
#
# **Before it:** [Sessions](Sessions.ipynb), and [Parameter-Server](Parameter-Server.ipynb) for the
# words pull and push. **Time:** 60 minutes.

# %% [markdown]
# ## Two copies of the model
# The ps has the parameters `w`, which all workers share. Worker k has a copy `w_k`, which nobody
# else uses, and a second list `a` of the same shapes. There it sums up the gradients that it has
# computed since its last pull.
#
# ![The ps holds the global variables w. Worker 0 and worker 1 each hold local variables: a copy w_k and a sum of gradients a. Pull arrows copy w down into w_k, push arrows send lr·a up, where the ps subtracts it from w.](../docs/figures/copies.svg)
#
# To *pull* is to copy `w` into `w_k`. To *push* is to send a change of `w` to the ps, which applies
# it. Between the two a worker needs no network.
#
# The cluster of this notebook has one ps and two workers. All three servers run in this process,
# and we play both workers, so we decide who does what when, and the results are the same in each
# run.

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

# %%
import digits

x, y, _, _ = digits.load()  # 1,437 images of handwritten digits, 64 pixels each, and their labels
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
devices = ["/job:worker/task:0", "/job:worker/task:1"]
waits = tf.ConfigProto(operation_timeout_in_ms=20_000)  # limits most waits: see Servers

# %% [markdown]
# ## Global and local are two lists
# A graph keeps lists of its variables, the *collections*. `tf.get_variable` puts a new variable
# into the global list, `tf.get_local_variable` into the local one. We build one of each kind, and
# look.

# %%
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", [2])
    with tf.device("/job:worker/task:0"):
        w_k = tf.get_local_variable("w_k", [2])

    def names(variables):
        return [v.op.name for v in variables]

    print("global_variables_initializer sets:", names(tf.global_variables()))
    print("local_variables_initializer sets: ", names(tf.local_variables()))
    print("an optimizer trains:              ", names(tf.trainable_variables()))

# %% [markdown]
# - Only one worker, the *chief*, runs the initialiser of the global variables. Each worker runs
#   that of the local ones for itself.
# - An optimizer leaves a local variable alone, unless you name it in `var_list`.
# - A checkpoint does not hold it (exercise 2). A worker that is started again has lost its local
#   variables.
#
# None of this says where a variable lives. So is a local variable the worker's own?
#
# **Predict:** two workers, each in a graph of its own, add 1 to a local variable `count`. First
# `tf.train.replica_device_setter` chooses its device, as in
# [Parameter-Server](Parameter-Server.ipynb). Then each worker places it on its own device. What
# does each count to?

# %%
def count_one(k, device):
    """Worker k adds 1 to the local variable `count`; returns where that is, and its value."""
    with tf.Graph().as_default(), tf.device(device):
        count = tf.get_local_variable("count", initializer=0)
        with tf.Session(servers[k].target, config=waits) as session:
            if not session.run(tf.is_variable_initialized(count)):
                session.run(tf.local_variables_initializer())
            return count.device, session.run(count.assign_add(1))

for k in 0, 1:
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=devices[k])
    print("by the setter: worker %d, count on %s: %d" % (k, *count_one(k, setter)))
for k in 0, 1:
    print("explicitly:    worker %d, count on %s: %d" % (k, *count_one(k, devices[k])))

# %% [markdown]
# <details><summary>Answer</summary>
#
# With the setter worker 1 counts to 2. `replica_device_setter` sends *every* variable to the ps,
# local ones too. There both workers find the same name on the same device, so it is one variable.
# Placed explicitly, each counts to 1.
#
# </details>
#
# A variable's device, not its collection, decides whether it is shared. A worker that wants a
# variable of its own makes it under `tf.device` of its own task.
#
# ## One model, built twice
# The model is a function of a list of variables: `digits.loss(w, x, y)`, so one function can build
# that list twice. `digits.variables` gets the function that makes a variable: `tf.get_variable` for
# `w`, `tf.get_local_variable` for `w_k`.
#
# As in [Graphs-and-Sessions](Graphs-and-Sessions.ipynb), `v.read_value()` reads `v` afresh. Where a
# variable stands in an expression, as in `v_k - v`, TensorFlow builds such a read itself.

# %%
class Worker:
    """The graph of worker k, and its session."""

    def __init__(self, k):
        self.k, self.graph = k, tf.Graph()
        with self.graph.as_default():
            with tf.device("/job:ps/task:0"):
                self.w = digits.variables("w")
            with tf.device(devices[k]):
                self.w_k = digits.variables("w_k", seed=1 + k, get_variable=tf.get_local_variable)
                self.pull = tf.group(
                    *[v_k.assign(v.read_value()) for v_k, v in zip(self.w_k, self.w)])
                self.distance = tf.reduce_max(
                    [tf.reduce_max(abs(v_k - v)) for v_k, v in zip(self.w_k, self.w)])
            self.initialise_w = tf.global_variables_initializer()
            self.initialise_own = tf.local_variables_initializer()
        self.session = tf.Session(servers[k].target, graph=self.graph, config=waits)
        self.run = self.session.run

workers = chief, other = Worker(0), Worker(1)
chief.run(chief.initialise_w)
for worker in workers:
    worker.run(worker.initialise_own)
    before = worker.run(worker.distance)
    worker.run(worker.pull)
    after = worker.run(worker.distance)
    print("worker %d: w_k = w before the pull: %s, after it: %s" % (
        worker.k, before == 0, after == 0))
    assert before > 0 and after == 0

# %% [markdown]
# The two lists began with different random numbers, so each worker must pull before its first step,
# or it trains from a point that nobody else has.
#
# ## Push changes, not copies
# How should a worker send its result up? Two ways come to mind: copy `w_k` over `w`, or add to `w`
# what has changed in `w_k`.
#
# **Predict:** both workers pull. Each adds 1 to all of its `w_k`; that stands for its training.
# Then worker 0 sends its result, and after it worker 1. By how much has `w` moved, if they send
# copies? And if they send changes?

# %%
for worker in workers:
    with worker.graph.as_default(), tf.device(devices[worker.k]):
        pairs = list(zip(worker.w, worker.w_k))
        worker.train = tf.group(*[v_k.assign_add(tf.ones_like(v_k)) for _, v_k in pairs])
        worker.send_copy = tf.group(*[v.assign(v_k.read_value()) for v, v_k in pairs])
        worker.send_change = tf.group(*[v.assign_add(tf.ones_like(v_k)) for v, v_k in pairs])

def moved_by(send):
    """By how much w moves when both pull, both train, and then both send."""
    before = chief.run(chief.w[3])
    for op in "pull", "train", send:
        for worker in workers:
            worker.run(getattr(worker, op))
    return (chief.run(chief.w[3]) - before)[0]

print("both send a copy:   w has moved by", moved_by("send_copy"))
print("both send a change: w has moved by", moved_by("send_change"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# By 1 and by 2. The second copy overwrites the first, and the work of worker 0 is lost. Changes add
# up in any order, because the ps does the addition.
#
# </details>
#
# So workers push changes, usually gradients times `lr`. Copies go only from the ps to the workers.
#
# ## T gradients, then one push
# The change that T steps of SGD have made to `w_k` is $-lr$ times the sum of their gradients. So
# the worker sums them up in `a`, and pushes `lr * a`. This is the algorithm of
# [DOWNPOUR-Easy](../DOWNPOUR-Easy/); g is the gradient of the loss on a new mini-batch:
#
# $$T \text{ times:}\quad a \leftarrow a + g(w_k), \qquad w_k \leftarrow w_k - lr \cdot g(w_k)$$
# $$\text{push:}\quad w \leftarrow w - lr \cdot a$$
# $$\text{pull:}\quad w_k \leftarrow w, \qquad a \leftarrow 0$$
#
# ![A window of DOWNPOUR-Easy. The worker pulls w, makes T local steps with gradients g_1 to g_4, each at its moved copy w_k, and pushes lr·a once, where a is their sum. The ps subtracts it from w. Then the worker pulls again.](../docs/figures/window.svg)
#
# The T steps between a pull and a push are a *communication window*.
#
# In a graph nothing happens "first" unless an edge says so. An op waits for its inputs and for its
# *control inputs*, which `tf.control_dependencies` gives it, and for nothing else. Two places need
# them here: the step must not move `w_k` while its gradient is still being computed, and the pull
# must come after the push.

# %%
lr, T = 0.2, 10

def add_training(worker):
    """Adds the ops local_step, push, and push_then_pull to the graph of a worker."""
    with worker.graph.as_default(), tf.device(devices[worker.k]):
        worker.a = [tf.get_local_variable("a_%d" % i, initializer=tf.zeros(v.shape))
                    for i, v in enumerate(worker.w_k)]
        number = tf.get_local_variable("number", initializer=np.int64(0))  # of the mini-batch

        w_k = [v.read_value() for v in worker.w_k]
        g = tf.gradients(digits.loss(w_k, *digits.batch(x, y, number, worker.k)), w_k)
        with tf.control_dependencies(g):  # first the whole gradient, then the step
            worker.local_step = tf.group(
                *[a.assign_add(d) for a, d in zip(worker.a, g)],
                *[v.assign_sub(lr * d) for v, d in zip(worker.w_k, g)],
                number.assign_add(1))

        worker.push = tf.group(*[v.assign_sub(lr * a) for v, a in zip(worker.w, worker.a)])
        with tf.control_dependencies([worker.push]):  # first the push, then the pull
            worker.push_then_pull = tf.group(
                *[v_k.assign(v.read_value()) for v_k, v in zip(worker.w_k, worker.w)],
                *[a.assign(tf.zeros_like(a)) for a in worker.a])

        worker.losses = [digits.loss(worker.w, x, y), digits.loss(worker.w_k, x, y)]
        worker.initialise_own = tf.local_variables_initializer()  # now with a and number

def restart():
    chief.run(chief.initialise_w)
    for worker in workers:
        worker.run(worker.initialise_own)
        worker.run(worker.pull)

for worker in workers:
    add_training(worker)

# %% [markdown]
# First worker 0 alone, for one window.

# %%
restart()
w_before = chief.run(chief.w)
for _ in range(T):
    chief.run(chief.local_step)
w, w_k, a = chief.run([chief.w, chief.w_k, chief.a])
chief.run(chief.push)

def equal(one, two):
    return all(np.allclose(u, v, atol=1e-5) for u, v in zip(one, two))

print("w has moved during the local steps:", not equal(w, w_before))
print("w_k = w - lr * a before the push:  ", equal(w_k, [v - lr * s for v, s in zip(w, a)]))
print("w_k = w after the push:            ", equal(w_k, chief.run(chief.w)))
assert equal(w, w_before) and equal(w_k, chief.run(chief.w))

# %% [markdown]
# With one worker, T local steps and a push give the same `w` as T steps of plain SGD. With two
# workers they do not. Both start at the same `w`, and `w` receives both sums.
#
# **Predict:** both workers take T = 10 local steps at the same pace. Then worker 0 pushes and
# pulls, and after it worker 1. They do so four times. After the *first* window, is the loss of `w`
# lower or higher than what each worker reached alone? And after the fourth? (Think of training at
# twice the learning rate.)

# %%
def losses():
    """The loss of w, of w_0 and of w_1, on all training rows."""
    return [*chief.run(chief.losses), other.run(other.losses[1])]

restart()
curve = [(0, *losses())]  # (local steps, loss of w, of w_0, of w_1)
reached = []              # what w_0 and w_1 had reached before each exchange, and then w
for t in range(1, 4 * T + 1):
    for worker in workers:
        worker.run(worker.local_step)
    curve.append((t, *losses()))
    if t % T == 0:
        for worker in workers:
            worker.run(worker.push_then_pull)
        alone, now = curve[-1][2:], losses()
        reached.append((*alone, now[0]))
        curve.append((t, *now))

for window, (w_0, w_1, w) in enumerate(reached, 1):
    print("window %d: worker 0 alone %.2f, worker 1 alone %.2f, both sums %.2f" % (
        window, w_0, w_1, w))

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 3.4))
step, *curves = np.transpose(curve)
for values, name, color, width in zip(
        curves, ["w, on the ps", "w_0, on worker 0", "w_1, on worker 1"], [GRAY, BLUE, ORANGE],
        [3, 1.5, 1.5]):
    axes.plot(step, values, color=color, linewidth=width, label=name)
for t in range(T, 4 * T + 1, T):
    axes.axvline(t, color=GRAY, linestyle=":", linewidth=1)
axes.set(xlabel="local steps of each worker (dotted: both push, then pull)",
         ylabel="loss on all training rows")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "The loss of w and of the two copies over four windows. Within a window w stands still "
     "and the copies fall; at its end w jumps. After the fourth window w is higher than both copies.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Here `w_0` and `w_1` are the copies of worker 0 and worker 1, not the layers of digits.py, and
# "alone" means: since the last pull. After the first window the loss of `w` is lower than either
# worker reached alone, because `w` received both sums, as in training at twice the rate. Far from
# the minimum that helps. After the fourth window the loss of `w` is higher than either. Near the
# minimum each worker has already covered the whole distance by itself; the ps covers it twice, and
# `w` overshoots.
#
# </details>
#
# Read the figure from left to right. Within a window `w` stands still, and the copies go down. At
# a dotted line `w` jumps. Worker 0 pulls before worker 1 pushes, so `w_0` does not jump to the same
# place: it gets that sum one window later.
#
# How far a push should go is what tells the algorithms apart. [ADAG](../ADAG/) pushes `lr` times
# the mean $a / T$ instead of the sum, [AEASGD](../AEASGD/) a part of the difference between `w_k`
# and `w`.

# %% jupyter={"source_hidden": true}
# A check of the answer: lower than both after the first window, higher than both after the fourth.
assert reached[0][2] < min(reached[0][:2]) and reached[3][2] > max(reached[3][:2])

# %% [markdown]
# ## The pull after the push
# `session.run([push, pull])` promises no order. If order matters, it must be an edge of the graph.
#
# Both `pull` and `push_then_pull` read the four variables of `w`. We search the graph backwards
# from each read, along inputs and control inputs, and look whether we meet the push.
#
# **Predict:** do the four reads of `pull` wait for the push? And those of `push_then_pull`?

# %%
def waits_for(op, earlier):
    """Whether `op` cannot begin before `earlier` is done: there is a path in the graph."""
    to_visit, visited = [op], set()
    while to_visit:
        op = to_visit.pop()
        if op is earlier:
            return True
        if op not in visited:
            visited.add(op)
            to_visit += [tensor.op for tensor in op.inputs] + op.control_inputs
    return False

handles = [v.handle for v in chief.w]  # what names a variable; each read takes it as its input
reads = [op for op in chief.graph.get_operations()
         if op.type == "ReadVariableOp" and op.inputs[0] in handles]
for name in "pull", "push_then_pull":
    own_reads = [read for read in reads if waits_for(getattr(chief, name), read)]
    print("%-15s reads that wait for the push:" % name,
          [waits_for(read, chief.push) for read in own_reads])

# %% [markdown]
# <details><summary>Answer</summary>
#
# Those of `pull` do not: they may happen before, during or after the push. Those of
# `push_then_pull` do, because `v.read_value()` was *called* within
# `tf.control_dependencies([push])`.
#
# </details>
#
# Only ops that are made within the block wait. A tensor that was read before it keeps its old value
# there: see exercise 3.
#
# ## A whole window in one call
# T steps and a push are T + 1 calls of `session.run`. Most examples with local steps make it one
# call: a `tf.while_loop` repeats its body within the graph, and `w_k` and `a` are the loop's
# variables. Here is the same window in this form, from the same start and with the same
# mini-batches.

# %%
with chief.graph.as_default(), tf.device(devices[0]):
    def local_step(t, w_k, a):
        g = tf.gradients(digits.loss(w_k, *digits.batch(x, y, t, worker=0)), w_k)
        return t + 1, [v - lr * d for v, d in zip(w_k, g)], [s + d for s, d in zip(a, g)]

    pulled = [v.read_value() for v in chief.w]
    zeros = [tf.zeros_like(v) for v in pulled]
    _, _, a_of_loop = tf.while_loop(lambda t, *_: t < T, local_step, [0, pulled, zeros])

restart()
by_loop = chief.run(a_of_loop)
for _ in range(T):
    chief.run(chief.local_step)
print("the same sum of gradients:", equal(by_loop, chief.run(chief.a)))
assert equal(by_loop, chief.run(chief.a))

# %% [markdown]
# The loop's variables exist only during one call. Use local variables for what must last from one
# push to the next, such as each worker's own parameters in [AEASGD](../AEASGD/). One call is also
# faster, because every call costs time of its own.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. The mean.** ★☆☆ [ADAG](../ADAG/) pushes `lr * a / T` instead of `lr * a`. Build that push for
# worker 0. From the same start, how much shorter is its move of `w`?
#
# <details><summary>Hint</summary>
#
# Build it within `chief.graph.as_default()`. Call `restart()` before each of the two windows.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with chief.graph.as_default(), tf.device(devices[0]):
#     push_mean = tf.group(*[v.assign_sub(lr * a / T) for v, a in zip(chief.w, chief.a)])
#
# def move_of(push):
#     restart()
#     before = chief.run(chief.w[3])
#     for _ in range(T):
#         chief.run(chief.local_step)
#     chief.run(push)
#     return chief.run(chief.w[3]) - before
#
# assert np.allclose(move_of(chief.push), T * move_of(push_mean), atol=1e-5)  # T times shorter
# ```
#
# </details>

# %% [markdown]
# **2. What is lost with a worker.** ★★☆ Save a checkpoint of worker 0's graph, and list what is in
# it. Then let worker 0 lose its local variables. What must it do before it can train again?
#
# <details><summary>Hint</summary>
#
# `tf.train.Saver().save(session, path)` returns a path; `tf.train.list_variables` lists its
# content. The initialiser of the local variables sets them back, as a restart would.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with chief.graph.as_default():
#     path = tf.train.Saver().save(chief.session, os.path.join(folder.name, "model"))
# assert [name for name, _ in tf.train.list_variables(path)] == ["w_0", "w_1", "w_2", "w_3"]
# chief.run(chief.initialise_own)         # w_k, a and number are lost: gradients that it had not
# assert chief.run(chief.distance) > 0    # pushed are gone, and w_k is a random point
# chief.run(chief.pull)
# assert chief.run(chief.distance) == 0   # after a pull it can go on
# ```
#
# </details>

# %% [markdown]
# **3. Half an order.** ★★☆ Read a variable of `w` first. Then assign the value that you have read
# to `w_k`, within `tf.control_dependencies([push])`. Show with `waits_for` that the assignment
# waits for the push, and the read does not.
#
# <details><summary>Hint</summary>
#
# `waits_for` takes ops: use `read.op` for a tensor, and the same for what `assign` returns.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with chief.graph.as_default():
#     read = chief.w[0].read_value()
#     with tf.control_dependencies([chief.push]):
#         copy = chief.w_k[0].assign(read)
# assert waits_for(copy.op, chief.push)
# assert not waits_for(read.op, chief.push)  # so w_k may get the value before the push
# ```
#
# </details>

# %% [markdown]
# **4. Half of each sum.** ★★★ Two whole sums went too far. Let each of the two workers push
# `lr * a / 2`, so that `w` moves by the mean of the two. Repeat the training for 12 windows in both
# ways. In which windows is the whole sum better, and in which the half?
#
# <details><summary>Hint</summary>
#
# Make `worker.push_half` and, after it, a pull with control dependencies, as in `add_training`.
# Record `losses()[0]` after each window.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# for worker in workers:
#     with worker.graph.as_default(), tf.device(devices[worker.k]):
#         half = tf.group(*[v.assign_sub(lr * a / 2) for v, a in zip(worker.w, worker.a)])
#         with tf.control_dependencies([half]):
#             worker.half_then_pull = tf.group(
#                 *[v_k.assign(v.read_value()) for v_k, v in zip(worker.w_k, worker.w)],
#                 *[a.assign(tf.zeros_like(a)) for a in worker.a])
#
# def train(exchange, windows=12):
#     restart()
#     found = []
#     for _ in range(windows):
#         for worker in workers:
#             for _ in range(T):
#                 worker.run(worker.local_step)
#         for worker in workers:
#             worker.run(getattr(worker, exchange))
#         found.append(losses()[0])
#     return found
#
# whole, half = train("push_then_pull"), train("half_then_pull")
# assert whole[0] < half[0]              # at first two whole sums go further
# assert all(np.diff(half) < 0)          # the half falls in each window,
# assert not all(np.diff(whole) < 0)     # the whole sum jumps up and down after the fourth
# ```
#
# </details>

# %%
# Stop what this notebook started.
for worker in workers:
    worker.session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html),
#   section 4.1: Downpour SGD, with separate periods for the push and the pull.
# - Zhang, Choromanska, LeCun 2015, [Deep learning with Elastic Averaging
#   SGD](https://arxiv.org/abs/1412.6651): workers that keep parameters of their own.
# - Stich 2019, [Local SGD Converges Fast and Communicates
#   Little](https://arxiv.org/abs/1805.09767): why T local steps lose little.
# - [DOWNPOUR-Easy](../DOWNPOUR-Easy/), [ADAG](../ADAG/), [AEASGD](../AEASGD/): the idea at work.
#
# Next: [Multiple-Workers](Multiple-Workers.ipynb), where two processes do this at the same time.
