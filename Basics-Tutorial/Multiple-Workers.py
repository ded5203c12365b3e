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
# # Multiple workers
# One ps, two workers, three processes: now the workers really train at the same time. Neither waits
# for the other. This is *asynchronous* training, and here you watch it happen.
#
# After this notebook you can:
# - write one program for all workers, which differ in their number and in their rows only;
# - start a ps and workers from a program, and let them begin together;
# - divide the rows of a data set among workers, and the work with tickets;
# - measure the staleness of each push, and read it off a timeline;
# - say what is shared and what is local, and what a worker's death changes.
#
# **Before it:** [Local-then-Global-Variables](Local-then-Global-Variables.ipynb).
# **Time:** 60 minutes.

# %% [markdown]
# ## Three processes
# This notebook is the ps. It holds the parameters `w` and a counter, `step`. It also starts the two
# workers, as a launcher does on a real cluster. Each worker trains on its *shard*, its own part of
# the rows: worker 0 has every even row, worker 1 every odd row.
#
# ![This notebook is the ps: it holds the parameters w and the counter step. Two processes, worker 0 and worker 1, pull from it and push to it. Each has its own copy w_k, gradient g and number of pushes, and its own shard: worker 0 every even row, worker 1 every odd row.](../docs/figures/shards.svg)
#
# The algorithm is [HogWild](../HogWild/)'s, one step between a pull and a push:
#
# $$\text{pull: } w_k \leftarrow w \qquad \text{compute: } g \leftarrow g(w_k) \qquad
# \text{push: } w \leftarrow w - lr \cdot g$$
#
# All workers together make a fixed number of updates; how they share them is not fixed in advance.
# So before each push a worker takes a *ticket*: it adds 1 to `step` and receives the old value.
# `count_up_to` does both in one indivisible operation, so no two pushes get the same ticket. When
# all tickets are taken, it raises `OutOfRangeError`.
#
# Tickets also show how stale a push is. A worker reads `step` just before it pulls; that is the
# *version* of `w` that it gets (nearly: see [Stale-Gradients](Stale-Gradients.ipynb)). The
# *staleness* of its push is the number of updates that others have made in the meantime:
#
# $$\text{staleness} = \text{ticket} - \text{version}$$

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
# ## The program of a worker
# One file for both workers: the number k comes from TF_CONFIG. Read it from top to bottom. It has
# four parts: its server, what is shared, what is its own, and the loop.
#
# - Pull, compute and push are three calls, so that the program can note the time between them. What
#   lasts from one call to the next is in local variables on the worker.
# - The three processes begin together at a *barrier*, made of two queues on the ps, as in
#   [Sessions](Sessions.ipynb). A worker puts a token into `ready`, and waits for one from `go`.
# - The arguments are a pause in seconds, which makes a worker slow, and the limits of some rounds:
#   `worker.py 0 400 800` trains until 400 tickets are taken, waits, and trains on to 800.
# - `device_filters` let a session see only the ps and its own task ([Servers](Servers.ipynb)).

# %%
# %%writefile worker.py
import json
import os
import sys
import time
import digits
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()
pause, limits, lr = float(sys.argv[1]), [int(limit) for limit in sys.argv[2:]], 0.2

# The server of this task.
config = json.loads(os.environ["TF_CONFIG"])
k, n = config["task"]["index"], len(config["cluster"]["worker"])
me = "/job:worker/task:%d" % k
server = tf.train.Server(config["cluster"], job_name="worker", task_index=k)
session = tf.Session(server.target, config=tf.ConfigProto(
    device_filters=["/job:ps", me], operation_timeout_in_ms=60_000))

# What is shared: it lives on the ps.
with tf.device("/job:ps/task:0"):
    w = digits.variables("w")
    step = tf.get_variable("step", initializer=np.int64(0))
    ready = tf.FIFOQueue(9, tf.bool, [[]], shared_name="ready")
    go = {limit: tf.FIFOQueue(9, tf.bool, [[]], shared_name="go_%d" % limit) for limit in limits}

# What is its own: the shard, and the local variables.
x, y, _, _ = digits.load()
x, y = x[k::n], y[k::n]
with tf.device(me):
    w_k = digits.variables("w_k", get_variable=tf.get_local_variable)
    g = digits.variables("g", get_variable=tf.get_local_variable)
    pushes = tf.get_local_variable("pushes", initializer=np.int64(0))

    version = step.read_value()
    with tf.control_dependencies([version]):  # first the version, then w
        pull = tf.group(*[v_k.assign(v.read_value()) for v_k, v in zip(w_k, w)])

    values = [v_k.read_value() for v_k in w_k]
    gradient = tf.gradients(digits.loss(values, *digits.batch(x, y, pushes, k)), values)
    compute = tf.group(*[g_i.assign(d) for g_i, d in zip(g, gradient)])

def ticket_and_push(limit):
    ticket = step.count_up_to(limit)
    with tf.device(me), tf.control_dependencies([ticket]):  # no push without a ticket
        push = tf.group(*[v.assign_sub(lr * g_i) for v, g_i in zip(w, g)], pushes.assign_add(1))
    return ticket, push

# The loop: it prints one line for each push.
session.run(tf.local_variables_initializer())
for limit in limits:
    push = ticket_and_push(limit)
    # The barrier.
    session.run(ready.enqueue(True))
    session.run(go[limit].dequeue())
    try:
        while True:
            began = time.time()
            got, _ = session.run([version, pull])
            pulled = time.time()
            session.run(compute)
            time.sleep(pause)
            computed = time.time()
            ticket, _ = session.run(push)
            print("push", got, ticket, began, pulled, computed, time.time())
    except tf.errors.OutOfRangeError:  # all tickets are taken
        pass

# %% [markdown]
# ## The ps, and the start
# The ps has no program of its own: a server is enough. This notebook is also a client of it. It
# sets `w` and `step` to their first values, before it opens the barrier, so no worker can pull too
# early.

# %%
import time
import digits

cluster = new_cluster(ps=1, worker=2)
workers = [start("worker.py", cluster, "worker", k, 0, 400, 800) for k in (0, 1)]

ps = tf.train.Server(cluster, job_name="ps", task_index=0)
with tf.device("/job:ps/task:0"):
    w = digits.variables("w")
    step = tf.get_variable("step", initializer=np.int64(0))
    ready = tf.FIFOQueue(9, tf.bool, [[]], shared_name="ready")
_, _, x_test, y_test = digits.load()
test_accuracy = digits.accuracy(w, x_test, y_test)
session = tf.Session(ps.target, config=tf.ConfigProto(
    device_filters=["/job:ps"], operation_timeout_in_ms=60_000))
session.run(tf.global_variables_initializer())

def wait_for(count):
    """Waits until so many workers are ready."""
    session.run(ready.dequeue_many(count))

def open_barrier(limit, count):
    """Lets so many workers begin the round with this limit."""
    with tf.device("/job:ps/task:0"):
        go = tf.FIFOQueue(9, tf.bool, [[]], shared_name="go_%d" % limit)
    session.run(go.enqueue_many([[True] * count]))

# %% [markdown]
# One more helper reads what a worker has printed.

# %%
def pushes_of(text, worker):
    """A row for each push that a worker has printed."""
    lines = [line[5:] for line in text.splitlines() if line.startswith("push ")]
    rows = np.loadtxt(lines, ndmin=2)
    return np.column_stack([np.full(len(rows), worker), rows])

WORKER, VERSION, TICKET, BEGAN, PULLED, COMPUTED, PUSHED = range(7)  # the columns

# %% [markdown]
# The first round has 400 tickets.
#
# **Predict:** which of these are the same in each run: how many pushes there are in all, how many
# each worker makes, the accuracy on the test rows, the order of the pushes?

# %%
wait_for(2)
open_barrier(400, 2)
wait_for(2)  # for the second round: then the first is over
rows = np.concatenate([pushes_of(worker.log.read_text(), k) for k, worker in enumerate(workers)])
rows = rows[np.argsort(rows[:, TICKET])]
staleness = rows[:, TICKET] - rows[:, VERSION]
accuracy = session.run(test_accuracy)

print("step on the ps:                 ", session.run(step))
print("pushes in all:                  ", len(rows))
print("each ticket was taken once:     ", np.array_equal(rows[:, TICKET], np.arange(400)))
print("accuracy on the test rows > 0.9:", accuracy > 0.9)

# %% tags=["measured"]
for k in 0, 1:
    print("worker %d made %d pushes" % (k, np.sum(rows[:, WORKER] == k)))
print("accuracy %.3f" % accuracy)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the first: 400 tickets are 400 pushes. How many each worker makes, and in what order, depends
# on how fast the machine runs each process. The order changes each `w`, and so the accuracy differs
# a little. The two outputs above show what is certain, and what was measured in this run.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: what is the same in each run.
assert len(rows) == 400 and np.array_equal(rows[:, TICKET], np.arange(400)) and accuracy > 0.9

# %% [markdown]
# ## As it happened
# Each row of the figure is a worker, each block one of its pushes: pull, compute, push. In the row
# of the ps a tick stands where a push has ended. The number above a block is the staleness of that
# push.
#
# Look for a block with a 1: after its pull and before its ticket, the other worker has taken a
# ticket. The ticket is taken early in a push, so a tick stands a little later than the ticket.

# %% tags=["measured"] jupyter={"source_hidden": true}
def timeline(rows, count=14):
    """Some pushes from the middle of the rows, in milliseconds from the first."""
    some = rows[len(rows) // 2:][:count]
    ms = 1000 * (some - some[:, BEGAN].min())
    figure, axes = plt.subplots(figsize=(8, 3))
    for k, color in (0, BLUE), (1, ORANGE):
        for row, times in zip(some[some[:, WORKER] == k], ms[some[:, WORKER] == k]):
            parts = times[[BEGAN, PULLED, COMPUTED, PUSHED]]
            for begin, end, alpha in zip(parts, parts[1:], (0.25, 1, 0.55)):
                axes.barh(2 - k, end - begin, 0.6, begin, color=color, alpha=alpha)
            axes.barh(2 - k, parts[3] - parts[0], 0.6, parts[0], color="none", edgecolor="white")
            axes.text((parts[0] + parts[3]) / 2, 2 - k + 0.42, "%d" % (row[TICKET] - row[VERSION]),
                      ha="center", fontsize=10)
            axes.plot([parts[3]] * 2, [-0.3, 0.3], color=color, linewidth=3)
    axes.set_yticks([2, 1, 0], ["worker 0", "worker 1", "ps"])
    axes.set(xlabel="time in milliseconds", ylim=(-0.5, 2.7))
    axes.grid(False)
    for alpha, name in (0.25, "pull"), (1, "compute"), (0.55, "push"):
        axes.barh(0, 0, color=GRAY, alpha=alpha, label=name)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure

show(timeline(rows), "A timeline of some milliseconds. Both workers pull, compute and push again "
     "and again, at the same time; the number above each push is its staleness.")

# %% [markdown]
# Nobody waits. A slow worker does not hold up the other, and pays with staleness: its
# gradient belongs to an older `w`. How often does that happen?
#
# **Predict:** two equally fast workers repeat pull, compute, push, as in the figure of 16 pushes
# in [Why-Distribute](Why-Distribute.ipynb). Which values of the staleness do you expect often? Can
# it be more than 1?

# %% tags=["measured"]
figure, axes = plt.subplots(figsize=(7, 3))
values = np.arange(staleness.max() + 1)
for k, color in (0, BLUE), (1, ORANGE):
    counts = [np.sum(staleness[rows[:, WORKER] == k] == value) for value in values]
    axes.bar(values + 0.4 * k - 0.2, counts, 0.38, color=color, label="worker %d" % k)
axes.set(xlabel="staleness: updates by others between pull and push", ylabel="pushes",
         xticks=values)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "For each staleness, how many pushes of worker 0 and of worker 1 had it.")
print("mean staleness %.2f, the largest %d" % (staleness.mean(), staleness.max()))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Mostly 0 and 1, as in that figure (0 1 0 1 ...). From one push of a worker to its next, the other
# makes about one push. That push falls between this worker's pull and its ticket, or outside. The
# staleness is 2 or more where the system has stopped one worker for a moment, and the other has
# made several pushes. With n workers the mean of a whole run is at most n − 1.
#
# </details>
#
# [Stale-Gradients](Stale-Gradients.ipynb) shows what staleness does to training.
#
# ## What is shared, and what is local
# Both workers now wait for the second round, so their servers still answer. Each has a local
# variable with the name `pushes`. We read this name on all three tasks, through a session without
# filters.
#
# **Predict:** which of the three tasks have a value for `pushes`? What is the sum of the values?

# %%
def read(name, device):
    """The number that a task holds under a name, or None."""
    with tf.Graph().as_default(), tf.device(device):
        variable = tf.get_variable(name, [], tf.int64)
        config = tf.ConfigProto(operation_timeout_in_ms=20_000)
        with tf.Session(ps.target, config=config) as session:
            try:
                return session.run(variable)
            except tf.errors.FailedPreconditionError:
                return None

found = [read("pushes", "/job:worker/task:%d" % k) for k in (0, 1)]
print("the ps has a value:  ", read("pushes", "/job:ps/task:0") is not None)
print("worker 0 has a value:", found[0] is not None)
print("worker 1 has a value:", found[1] is not None)
print("sum of the values:   ", sum(value for value in found if value is not None))
print("step, on the ps:     ", read("step", "/job:ps/task:0"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The two workers, with a value each; the ps has none. A variable is its name *and* its device.
# `step` is one variable, and counts the pushes of both.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: each worker's variable has counted its own pushes.
assert sum(found) == read("step", "/job:ps/task:0") == 400
assert found == [np.sum(rows[:, WORKER] == k) for k in (0, 1)]

# %% [markdown]
# ## A worker dies
# The second round goes to 800 tickets. When 600 are taken, this notebook kills worker 1 as a power
# cut would: wherever it is.
#
# **Predict:** does worker 0 see an error? How many tickets are taken in the end?

# %%
open_barrier(800, 2)
for _ in range(3000):
    if session.run(step) >= 600:
        break
    time.sleep(0.01)
workers[1].kill()
killed_at = time.time()

print("worker 1 was ended by signal ", -workers[1].wait(10))
text = finish(workers[0])
print("worker 0 ended without error:", workers[0].returncode == 0)
print("tickets taken:               ", session.run(step))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Worker 0 notices nothing: it has no connection to worker 1, and never waits for it. It takes all
# tickets that are left.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: all tickets are taken.
assert session.run(step) == 800

# %% [markdown]
# The figure shows the second round. After the dotted line only worker 0 goes on. Compare its slope
# before and after: alone it has the ps and the processors for itself.

# %% tags=["measured"]
second = [pushes_of(text, 0), pushes_of(workers[1].log.read_text(), 1)]
second = [own[own[:, TICKET] >= 400] for own in second]
begin = min(own[:, BEGAN].min() for own in second)
figure, axes = plt.subplots(figsize=(7, 3))
for own, color, name, width in zip(second, (BLUE, ORANGE), ("worker 0", "worker 1"), (4, 1.5)):
    axes.plot(own[:, PUSHED] - begin, np.arange(1, len(own) + 1), color=color, linewidth=width,
              label=name)
axes.axvline(killed_at - begin, color=RED, linestyle=":", label="worker 1 is killed")
axes.set(xlabel="seconds since the round began", ylabel="pushes of this worker")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Pushes of both workers against time. Worker 1's line ends where it is killed, worker "
     "0's goes on.")
print("pushes that no worker has reported:", 400 - sum(map(len, second)))

# %% [markdown]
# The last line is 0 or 1. If worker 1 was killed within a push, it had a ticket, but could not
# print its line. Then the update may be complete, or in part (the four variables move one by one),
# or missing. Asynchronous training lives with that: one update more or less hardly matters.
#
# What worker 1 had for itself is lost: `w_k`, `g`, and `pushes`. Now it is started again, and has a
# third round for itself.

# %%
workers[1] = start("worker.py", cluster, "worker", 1, 0, 900)
wait_for(1)
open_barrier(900, 1)
third = pushes_of(finish(workers[1]), 1)
print("its first pull is of version:  ", int(third[0, VERSION]))
print("its pushes:                    ", len(third))
print("the largest staleness:         ", int((third[:, TICKET] - third[:, VERSION]).max()))
print("accuracy on the test rows > 0.9:", session.run(test_accuracy) > 0.9)

# %% [markdown]
# It had lost its local variables, but training did not start over: it pulled the `w` of 800
# updates, and went on. Alone it never pushes a stale gradient. It numbers its mini-batches by
# `pushes`, though, which is 0 after a restart, so it draws the same ones once more.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Count it.** ★☆☆ `staleness` was computed as ticket − version. Count it instead. For each push
# of the first round, look at the tickets from its version up to the one before its own. How many of
# them did the *other* worker take? Are both the same?
#
# <details><summary>Hint</summary>
#
# `rows` has the first round. Compare the columns of all rows with the numbers of one row.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# counted = [np.sum((rows[:, WORKER] != row[WORKER]) & (rows[:, TICKET] >= row[VERSION])
#                   & (rows[:, TICKET] < row[TICKET])) for row in rows]
# assert np.array_equal(counted, staleness)  # no other kind of push can lie between the two
# ```
#
# </details>

# %% [markdown]
# **2. A slow worker.** ★★☆ Let both workers train from 900 to 1,100 tickets, worker 1 with a pause
# of 0.05 seconds in each step. Who makes more pushes? Whose pushes are staler, and why?
#
# <details><summary>Hint</summary>
#
# The first argument of `worker.py` is the pause. Then `wait_for(2)`, `open_barrier`, and `finish`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# workers = [start("worker.py", cluster, "worker", k, (0, 0.05)[k], 1100) for k in (0, 1)]
# wait_for(2)
# open_barrier(1100, 2)
# fast, slow = [pushes_of(finish(worker), k) for k, worker in enumerate(workers)]
# late = [np.mean(own[:, TICKET] - own[:, VERSION]) for own in (fast, slow)]
# assert len(fast) > len(slow)
# assert late[1] > late[0]  # while the slow one computes, the fast one makes several pushes
# ```
#
# </details>

# %% [markdown]
# **3. A worker with data of its own.** ★★★ Until now both shards had all ten digits. Write
# `by_digit.py`: worker 0 has only the digits 0 to 4, worker 1 only 5 to 9. Restart with `step`
# and `w` at their first values. Both train to 300 tickets, then worker 0 alone to 600. How does the
# accuracy change? What does the death of a worker cost here?
#
# <details><summary>Hint</summary>
#
# Only the line that takes the shard changes: choose rows by `y`. Copy the cell of `worker.py` and
# change the line; or read the file and replace the line, as the solution does. Start worker 0 with
# the limits 300 and 600.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# program = pathlib.Path("worker.py").read_text()
# pathlib.Path("by_digit.py").write_text(program.replace(
#     "x, y = x[k::n], y[k::n]", "own = (y < 5) == (k == 0)\nx, y = x[own], y[own]"))
# session.run(tf.global_variables_initializer())
# workers = [start("by_digit.py", cluster, "worker", 0, 0, 300, 600),
#            start("by_digit.py", cluster, "worker", 1, 0, 300)]
# wait_for(2)
# open_barrier(300, 2)
# finish(workers[1])
# wait_for(1)  # worker 0 is done with its first round, too
# together = session.run(test_accuracy)
# open_barrier(600, 1)
# finish(workers[0])
# alone = session.run(test_accuracy)
# print(together, alone)
# assert together > 0.75
# assert alone < together - 0.1  # nobody has the digits 5 to 9: w forgets them
# ```
#
# </details>

# %%
# Stop what this notebook started.
stop(*workers)
session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Niu, Recht, Ré, Wright 2011, [Hogwild!: A Lock-Free Approach to Parallelizing Stochastic
#   Gradient Descent](https://arxiv.org/abs/1106.5730): why updates without locks can work.
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html):
#   asynchronous workers at scale, and why it is robust when machines fail.
# - [HogWild](../HogWild/): the same algorithm as a script, with checkpoints and recovery.
#
# Next: [three notebooks](Multiple-Workers/Parameter-Server.ipynb), one for each process, where you
# look into the workers while they train.
