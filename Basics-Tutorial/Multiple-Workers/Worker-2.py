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
# # Three notebooks: Worker-2
# This notebook is the second worker. Its code is that of [Worker-1](Worker-1.ipynb) except for its
# number; it trains on the other half of the rows, at the same time. Here we look at what a worker
# cannot reach, and at where the time goes.
#
# After this notebook you can:
# - say which of two notebooks' variables with equal names are the same;
# - measure how long a pull, a gradient and a push take;
# - train a local copy on, and say what that changes for the others.
#
# **Before it:** [Worker-1](Worker-1.ipynb). **Time:** 20 minutes.

# %% [markdown]
# ![Three notebooks as three rows, time from left to right. Each starts at another time and waits until all three are there: the barrier met. At the barrier begin all three meet again. Then Worker-1 and Worker-2 pull, compute and push at the same time, at a pace of their own, while Parameter-Server holds w. At the barrier end all three meet once more.](../../docs/figures/kernels.svg)
#
# This notebook is the orange row. The next four cells are those of Parameter-Server.

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
# Both cells are as in Worker-1. Only `number` differs, and with it the device `me` and the shard.

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
number = 2  # this is Worker-2: task 1 of the job worker
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
# The three meet.

# %%
def barrier(name):
    """Tells the ps that this worker is there, and waits until both are."""
    session.run(queues[name + "_ready"].enqueue(True), options=barrier_wait)
    session.run(queues[name + "_go"].dequeue(), options=barrier_wait)

with meeting("Worker-2", seconds=180) as cluster:
    server = tf.train.Server(cluster, job_name="worker", task_index=number - 1)
    session = tf.Session(server.target, config=tf.ConfigProto(
        device_filters=["/job:ps", me], operation_timeout_in_ms=60_000))
    session.run(tf.local_variables_initializer())
    barrier("met")

# %% [markdown]
# ## Train, and take the time
# At the barrier both workers begin: the same three lines, with the time between them.
#
# **Predict:** the model is small: 2,410 parameters, 32 rows in a mini-batch. Do pull and push
# together take about as long as computing, three times as long, or ten times?

# %%
barrier("begin")
times = []  # of begin, pull, compute, push
try:
    while True:
        began = time.time()
        session.run(pull)
        pulled = time.time()
        session.run(compute)
        computed = time.time()
        session.run(push)
        times.append([began, pulled, computed, time.time()])
except tf.errors.OutOfRangeError:
    pass
barrier("end")

made, counted, noted = len(times), session.run(pushes), np.sum(session.run(pushed_by) == 2)
print("pushes made here, counted in `pushes`, and noted on the ps are the same:",
      made == counted == noted)
assert made == counted == noted

# %% tags=["measured"]
milliseconds = 1000 * np.diff(times)
figure, axes = plt.subplots(figsize=(7, 2.4))
boxes = axes.boxplot(milliseconds, orientation="horizontal", showfliers=False, widths=0.6,
                     patch_artist=True, tick_labels=["pull", "compute", "push"])
for box in boxes["boxes"]:
    box.set(facecolor=ORANGE, alpha=0.6)
for median in boxes["medians"]:
    median.set(color="black")
axes.invert_yaxis()
axes.set(xlabel="milliseconds (box: the middle half; line: the median)", xlim=(0, None))
show(figure, "How long the pulls, the gradients and the pushes of this worker took. Pull and push "
     "take several times as long as compute.")
pull_ms, compute_ms, push_ms = np.median(milliseconds, axis=0)
print("pull and push together take %.1f times as long as compute" % (
    (pull_ms + push_ms) / compute_ms))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Several times as long: the line above says how many. Each sends several messages to the ps and
# waits for the answers; the gradient of so small a model is quickly computed. So two such workers
# are not faster than one process without a network. A second worker pays when computing takes
# longer than sending, or when a worker makes several local steps between two pushes
# ([Local-then-Global-Variables](../Local-then-Global-Variables.ipynb)).
#
# </details>
#
# ## Equal names
# Both workers have a variable `w_k_0`. This session has device filters: it sees the ps and itself.
#
# **Predict:** what happens when this notebook builds `w_k_0` on the task of Worker-1, and reads it?

# %%
seen = sorted({device.name.split("/device")[0] for device in session.list_devices()})
print("tasks that this session sees:", *seen)

with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
    of_the_other = tf.get_variable("w_k_0", [64, 32])
    config = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=20_000)
    with tf.Session(server.target, config=config) as another:
        try:
            another.run(of_the_other)
            print("a value")
        except tf.errors.OpError as error:
            print("reading the other's w_k_0:   ", type(error).__name__)

# %% [markdown]
# <details><summary>Answer</summary>
#
# `InvalidArgumentError`: for this session there is no such device. The filters keep the workers
# apart. That is also why one can start, fail or end without the other.
#
# </details>
#
# ## Local steps move nothing but the copy
# All tickets are taken, so `w` stands still. We pull it, and train the copy on: 200 steps of
# `w_k ← w_k − lr · g(w_k)`, without a push.
#
# **Predict:** does `w` change? Does the accuracy of `w_k` on the test rows?

# %%
_, _, x_test, y_test = digits.load()
with tf.device(me):
    accuracy_of_copy = digits.accuracy(w_k, x_test, y_test)
    loss_of_copy = digits.loss(w_k, x, y)
    local_step = tf.group(*[v_k.assign_sub(lr * g_i) for v_k, g_i in zip(w_k, g)],
                          pushes.assign_add(1))  # it numbers the mini-batches

session.run(pull)
w_before = session.run(w)
losses, accuracies = [], []
for _ in range(200):
    losses.append(session.run(loss_of_copy))
    accuracies.append(session.run(accuracy_of_copy))
    session.run(compute)
    session.run(local_step)

unchanged = all(np.array_equal(one, two) for one, two in zip(w_before, session.run(w)))
print("w is unchanged:                            ", unchanged)
print("the copy's loss on its own rows has fallen:", np.mean(losses[-20:]) < losses[0])
session.run(pull)
print("after a pull the copy has its old loss:    ",
      np.isclose(session.run(loss_of_copy), losses[0]))

# %% tags=["measured"]
figure, (above, below) = plt.subplots(2, 1, figsize=(7, 3.6), sharex=True)
above.plot(losses, color=ORANGE, label="w_k, on this worker")
above.axhline(losses[0], color=GRAY, linewidth=2.5, label="w, on the ps")
above.set(ylabel="loss, own rows")
below.plot(accuracies, color=ORANGE)
below.axhline(accuracies[0], color=GRAY, linewidth=2.5)
below.set(ylabel="accuracy, test", xlabel="local steps after the pull")
above.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Loss and accuracy of the local copy over 200 local steps, and of w, which stays "
     "where it is.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# `w` stays as it is, and Worker-1 notices nothing. The loss of the copy on its own rows falls; its
# accuracy on the test rows changes little. Without a push all of this work is lost at the next
# pull.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: w stands still, and the copy's loss on its own rows falls.
assert unchanged and np.mean(losses[-20:]) < losses[0]

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Half way.** ★☆☆ Take some local steps after a pull. Then move the copy half way back to `w`:
# `w_k ← (w_k + w) / 2`. By how much does its distance from `w` shrink? Why is this a softer pull?
#
# <details><summary>Hint</summary>
#
# Build the op like `pull`. The distance: the largest difference between `session.run(w)` and
# `session.run(w_k)`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.device(me):
#     half_way = tf.group(*[v_k.assign((v_k + v) / 2) for v_k, v in zip(w_k, w)])
#
# def distance():
#     return max(abs(one - two).max() for one, two in zip(session.run(w), session.run(w_k)))
#
# session.run(pull)
# for _ in range(10):
#     session.run(compute)
#     session.run(local_step)
# before = distance()
# session.run(half_way)
# assert np.isclose(distance(), before / 2, rtol=1e-2)  # half of the local work is kept
# ```
#
# AEASGD moves each copy towards `w` in this way, by a smaller part, and `w` towards the copy.
#
# </details>

# %% [markdown]
# **2. One call less.** ★★☆ A local step takes two calls: `compute` stores the gradient in `g`, and
# `local_step` uses it. Compute and step in one `run`, without `g`: the step must wait for the whole
# gradient. Show that the copy moves as before.
#
# <details><summary>Hint</summary>
#
# An op that was made before the block does not wait. Make new assignments within
# `tf.control_dependencies(gradient)`, straight from `gradient`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.device(me), tf.control_dependencies(gradient):  # first the whole gradient, then the step
#     in_one_call = tf.group(*[v_k.assign_sub(lr * d) for v_k, d in zip(w_k, gradient)])
#
# session.run(pull)
# session.run(compute)
# session.run(tf.group(*[v_k.assign_sub(lr * g_i) for v_k, g_i in zip(w_k, g)]))
# in_two = session.run(w_k)
# session.run(pull)
# session.run(in_one_call)  # the same mini-batch: `pushes` has not grown
# assert all(np.allclose(one, two, atol=1e-6) for one, two in zip(in_two, session.run(w_k)))
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
# - Zhang, Choromanska, LeCun 2015, [Deep learning with Elastic Averaging
#   SGD](https://arxiv.org/abs/1412.6651): copies that explore on their own, and are drawn back.
# - [AEASGD](../../AEASGD/), [DOWNPOUR-Easy](../../DOWNPOUR-Easy/): several local steps between two
#   exchanges.
#
# Next: [Stale-Gradients](../Stale-Gradients.ipynb), which shows what staleness does to training.
