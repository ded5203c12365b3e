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
# # Three notebooks: Worker-1
# This notebook is a worker. It pulls `w` from [Parameter-Server](Parameter-Server.ipynb), computes
# a gradient on its own rows, and pushes. [Worker-2](Worker-2.ipynb) does the same at the same time.
#
# After this notebook you can:
# - write a worker cell by cell: its server, session, pull, compute and push;
# - place each part on the ps or on the worker, and check it;
# - say when a worker sees the pushes of another, and which of them make its own push stale.
#
# **Before it:** [Parameter-Server](Parameter-Server.ipynb), which says how to run the three.
# **Time:** 20 minutes.

# %% [markdown]
# ![Three notebooks as three rows, time from left to right. Each starts at another time and waits until all three are there: the barrier met. At the barrier begin all three meet again. Then Worker-1 and Worker-2 pull, compute and push at the same time, at a pace of their own, while Parameter-Server holds w. At the barrier end all three meet once more.](../../docs/figures/kernels.svg)
#
# This notebook is the blue row, and task 0 of the job `worker`:
# [Multiple-Workers](../Multiple-Workers.ipynb) called it worker 0. The next four cells are those of
# Parameter-Server.

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

# %% jupyter={"source_hidden": true}
# region: meeting -- the same in the three notebooks: how they find each other
import contextlib
import fcntl
import time

MEETING = pathlib.Path(HERE, ".cluster")  # each notebook has a file with its address there
NAMES = ["Parameter-Server", "Worker-1", "Worker-2"]

def address_of(name):
    """The address in a notebook's file, or None if that notebook is not there."""
    with contextlib.suppress(FileNotFoundError), open(MEETING / (name.lower() + ".json")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # left over: nobody has locked it
        except BlockingIOError:  # a running kernel has locked it
            return json.load(file)

@contextlib.contextmanager
def meeting(name, seconds):
    """The cluster {job: addresses}, once all three notebooks are there; name: that of this one."""
    MEETING.mkdir(exist_ok=True)
    path = MEETING / (name.lower() + ".json")
    with open(str(path) + ".new", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file or with the kernel
        json.dump(new_cluster(own=1)["own"][0], file)
        file.flush()
        os.replace(file.name, path)       # nobody sees it half written, or without its lock
        try:
            deadline = time.monotonic() + seconds
            while None in (addresses := [address_of(other) for other in NAMES]):
                missing = [other for other, found in zip(NAMES, addresses) if not found]
                assert time.monotonic() < deadline, "not started: " + " and ".join(missing)
                time.sleep(0.1)
            yield {"ps": addresses[:1], "worker": addresses[1:]}
        finally:
            path.unlink(missing_ok=True)
# endregion: meeting

# %% [markdown]
# ## What is shared, and what is its own
# The first cell is the same in all three notebooks: what all share, on the ps. The second is this
# worker's own: a shard of the rows, its local variables, and the three ops that it repeats.
#
# $$\text{pull: } w_k \leftarrow w \qquad \text{compute: } g \leftarrow g(w_k) \qquad
# \text{push: } w \leftarrow w - lr \cdot g$$

# %%
import digits

# %%
# region: shared -- the same in the three notebooks: equal names on one task are one thing
UPDATES, lr = 400, 0.2
with tf.device("/job:ps/task:0"):
    w = digits.variables("w")
    step = tf.get_variable("step", initializer=np.int64(0))  # the next ticket
    # What each ticket's push was: who made it, 1 or 2, and its staleness.
    pushed_by = tf.get_variable("pushed_by", initializer=np.zeros(UPDATES, np.int64))
    staleness = tf.get_variable("staleness", initializer=np.zeros(UPDATES, np.int64))
    queues = {name: tf.FIFOQueue(2, tf.bool, [[]], shared_name=name)
              for name in ("met_ready", "met_go", "begin_ready", "begin_go",
                           "end_ready", "end_go", "goodbye")}
barrier_wait = tf.RunOptions(timeout_in_ms=180_000)  # for the slowest of the three
# endregion: shared

# %%
number = 1  # this is Worker-1: task 0 of the job worker
me = "/job:worker/task:%d" % (number - 1)
x, y, _, _ = digits.load()
x, y = x[number - 1::2], y[number - 1::2]  # its shard: every second row

with tf.device(me):
    w_k = digits.variables("w_k", get_variable=tf.get_local_variable)
    g = digits.variables("g", get_variable=tf.get_local_variable)
    version = tf.get_local_variable("version", initializer=np.int64(0))  # of w, when it was pulled
    pushes = tf.get_local_variable("pushes", initializer=np.int64(0))    # by this worker

    now = step.read_value()
    with tf.control_dependencies([now]):  # first the version, then w
        read = [v.read_value() for v in w]
        pull = tf.group(version.assign(now), *[v_k.assign(r) for v_k, r in zip(w_k, read)])

    values = [v_k.read_value() for v_k in w_k]
    loss = digits.loss(values, *digits.batch(x, y, pushes, number))
    gradient = tf.gradients(loss, values)
    compute = tf.group(*[g_i.assign(d) for g_i, d in zip(g, gradient)])

    ticket = step.count_up_to(UPDATES)
    with tf.control_dependencies([ticket]):  # no push without a ticket
        subtract = [v.assign_sub(lr * g_i, read_value=False) for v, g_i in zip(w, g)]
        note = [tf.scatter_update(pushed_by, ticket, number),
                tf.scatter_update(staleness, ticket, ticket - version)]
        push = tf.group(*subtract, *note, pushes.assign_add(1))

# %% [markdown]
# ## Meet
# The three meet, this worker's server starts, and the worker waits until the ps is ready.

# %%
def barrier(name):
    """Tells the ps that this worker is there, and waits until both are."""
    session.run(queues[name + "_ready"].enqueue(True), options=barrier_wait)
    session.run(queues[name + "_go"].dequeue(), options=barrier_wait)

with meeting("Worker-1", seconds=180) as cluster:
    server = tf.train.Server(cluster, job_name="worker", task_index=number - 1)
    session = tf.Session(server.target, config=tf.ConfigProto(
        device_filters=["/job:ps", me], operation_timeout_in_ms=60_000))
    session.run(tf.local_variables_initializer())
    barrier("met")

# %% [markdown]
# Where do these ops run? `tf.device` is what a program asks for. A *trace* shows what TensorFlow
# did. We trace a pull, a gradient, and what a push does, with one change: it subtracts `0 * g`, so
# that `w` stays as it is. The program builds all of these ops under `tf.device(me)`.
#
# **Predict:** on which task runs the read of `w_0`? The assignment to `w_k_0`? The gradient? The
# subtraction from `w_0`?

# %%
read_op = read[0].op.inputs[0].op  # `read_value` is a copy of what this op returns
assign_op = next(op for op in read[0].consumers() if op.type == "AssignVariableOp")
with tf.device(me):
    subtract_nothing = w[0].assign_sub(0 * g[0], read_value=False)

trace = tf.RunMetadata()
session.run([pull, compute, subtract_nothing], run_metadata=trace,
            options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, timeout_in_ms=60_000))
task_of = {node.node_name: device.device.split("/device")[0]
           for device in trace.step_stats.dev_stats for node in device.node_stats}
for name, op in [("read of w_0", read_op), ("assignment to w_k_0", assign_op),
                 ("gradient", gradient[0].op), ("subtraction from w_0", subtract_nothing)]:
    print("%-20s asked for %s, ran on %s" % (name, op.device, task_of[op.name]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The read of `w_0` and the subtraction run on the ps: an op that reads or changes a variable runs
# where the variable is, whatever the program asked for. The assignment and the gradient run here,
# so only values of `w` and `lr * g` travel, and no work of the model lands on the ps.
#
# </details>

# %% [markdown]
# ## Train
# At the next barrier both workers begin. The loop is three lines. It ends when `count_up_to` raises
# `OutOfRangeError`: all tickets are taken, by this worker or by the other. We keep the version and
# the ticket of each push.
#
# **Predict:** the worker pulls right after its own push. Does it get the `w` that its push has
# left, every time?

# %%
barrier("begin")
own = []  # (version, ticket) of each push of this worker
try:
    while True:
        session.run(pull)
        session.run(compute)
        own.append(session.run([version, ticket, push])[:2])
except tf.errors.OutOfRangeError:
    pass
barrier("end")

versions, tickets = np.transpose(own)
who = session.run(pushed_by)
print("its tickets rise:                  ", np.all(np.diff(tickets) > 0))
print("they are those noted as worker 1's:", np.array_equal(tickets, np.flatnonzero(who == 1)))
print("the other has all the rest:        ", np.sum(who == 2) == UPDATES - len(own))
assert np.array_equal(tickets, np.flatnonzero(who == 1))

# %% tags=["measured"]
pulls = versions[1:] - tickets[:-1] - 1  # pushes of the other between a push and the next pull
print("worker 1 made %d of %d pushes" % (len(own), UPDATES))
print("its pull found a push of worker 2 in %.0f%% of the cases" % (100 * np.mean(pulls > 0)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. Often worker 2 has pushed in the meantime: look at the last line above. Then the pull brings
# the work of both.
#
# </details>
#
# ## When a worker sees the other's pushes
# A worker sees another's push at its next pull, and not before, so a push of worker 2 can come at
# two kinds of moments:
#
# - after this worker's push and before its next pull: the pull brings it, and all is well;
# - after this worker's pull and before its ticket: it makes the coming push stale.
#
# **Predict:** the code below counts both kinds, and those before this worker's first pull and after
# its last ticket. What is the sum?

# %% tags=["measured"]
between_push_and_pull = np.sum(pulls)
between_pull_and_push = np.sum(tickets - versions)
before_and_after = versions[0] + (UPDATES - 1 - tickets[-1])
total = between_push_and_pull + between_pull_and_push + before_and_after
print("%d + %d + %d = %d" % (
    between_push_and_pull, between_pull_and_push, before_and_after, total))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The number of all pushes of worker 2: each comes at one of these moments, and none is lost.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer, with the notes on the ps.
assert total == np.sum(who == 2)

# %% [markdown]
# The figure shows some tickets of this run, a dot for each. A bar reaches from the pull of a push
# of this worker to its ticket. Orange dots under a bar are what this push has not seen: their
# number is its staleness.

# %% tags=["measured"]
begin = UPDATES // 2
shown = np.arange(begin, begin + 40)
figure, axes = plt.subplots(figsize=(7.5, 2.2))
for pulled_at, taken_at in zip(versions, tickets):
    if begin <= pulled_at and taken_at < begin + 40:
        axes.barh(1.3, taken_at - pulled_at + 0.7, 0.5, pulled_at - 0.35, color=BLUE, alpha=0.4)
        axes.text((pulled_at + taken_at) / 2, 1.72, taken_at - pulled_at, ha="center", fontsize=9)
for worker, color in (1, BLUE), (2, ORANGE):
    taken = shown[who[shown] == worker]
    axes.plot(taken, 0.5 + 0 * taken, "o", color=color, label="push of worker %d" % worker)
axes.barh(0, 0, color=BLUE, alpha=0.4, label="from pull to ticket,\nand its staleness")
axes.set(xlabel="ticket", yticks=[], ylim=(0, 2.2), xlim=(begin - 1, begin + 40))
axes.grid(False)
axes.spines["left"].set_visible(False)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Forty tickets in a row, blue dots for worker 1 and orange ones for worker 2. Above "
     "them a bar for each push of worker 1, from its pull to its ticket, with its staleness.")

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise. Then go on with [Worker-2](Worker-2.ipynb).
#
# **1. The shards.** ★☆☆ Show that the two workers have no row in common, and together have all
# 1,437. How would three workers divide them?
#
# <details><summary>Hint</summary>
#
# Divide the numbers of the rows, `np.arange(1437)`, in the same way.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# numbers = np.arange(1437)
# first, second = numbers[0::2], numbers[1::2]
# assert len(first) == len(x) and not set(first) & set(second)
# assert len(first) + len(second) == 1437
# assert [len(numbers[k::3]) for k in range(3)] == [479, 479, 479]
# ```
#
# </details>

# %% [markdown]
# **2. How wrong is a stale gradient?** ★★☆ Compute a gradient at the pulled `w`. Then move `w_k` by
# one step of that gradient, as if another had pushed, and compute the gradient of the same
# mini-batch there. What is the cosine of the angle between the two?
#
# <details><summary>Hint</summary>
#
# As long as you do not push, `compute` takes the same mini-batch. Flatten the four parts of `g` and
# join them into one vector. The cosine is $a \cdot b / (|a| |b|)$.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.device(me):
#     local_step = tf.group(*[v_k.assign_sub(lr * g_i) for v_k, g_i in zip(w_k, g)])
#     joined = tf.concat([tf.reshape(g_i, [-1]) for g_i in g], 0)
#
# session.run(pull)
# session.run(compute)
# stale = session.run(joined)
# session.run(local_step)
# session.run(compute)
# fresh = session.run(joined)
# cosine = stale @ fresh / np.linalg.norm(stale) / np.linalg.norm(fresh)
# assert 0.5 < cosine < 1  # one update later the gradient still points nearly the same way
# ```
#
# </details>

# %%
# Stop what this notebook started.
session.run(queues["goodbye"].enqueue(True))
session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Niu, Recht, Ré, Wright 2011, [Hogwild!: A Lock-Free Approach to Parallelizing Stochastic
#   Gradient Descent](https://arxiv.org/abs/1106.5730): updates without locks.
# - [HogWild](../../HogWild/): the script of such a worker, with checkpoints and recovery.
#
# Next: [Worker-2](Worker-2.ipynb).
