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
# # Classic mistakes: variables
# The mistakes in this notebook have been made again and again in distributed training. None of them
# raises an error: the program runs and often even learns. For each one we find a number that
# exposes it, explain the cause, and fix it. All four are about variables: where they live, when
# they are read, and whether they are updated at all.
#
# After this notebook you can:
# - tell from devices whether a variable is shared, and whether a ps computes;
# - keep an old value of a variable that stays as it was;
# - read a variable after its update, and not before it;
# - find out whether an update runs at all;
# - write a training program for two parameter servers and a worker on your own.
#
# **Before it:** [Graphs-and-Sessions](Graphs-and-Sessions.ipynb), [Servers](Servers.ipynb),
# [Parameter-Server](Parameter-Server.ipynb), [Sessions](Sessions.ipynb). **Time:** 50 minutes,
# and 90 for the project.

# %% [markdown]
# ## Where variables and operations are placed
# The first mistake is about devices. Here are three ways to place the same model, on one ps and two
# workers:
#
# ![Three placements of a model on one ps and two workers. "/cpu:0": each worker has its own w and its own loss, and the ps has nothing. "/job:ps/task:0": w and the loss are on the ps, and the workers have nothing. The setter: w is on the ps, each worker computes its loss and exchanges w and gradients with the ps.](../docs/figures/placements.svg)
#
# Only the placement on the right is data parallelism with a parameter server: `w` is shared, and
# each worker computes on its own mini-batches.
#
# The next three cells are those of every notebook; their code is folded. The third writes
# `digits.py`: handwritten digits, 8 by 8 pixels each, and a network with 2,410 parameters.

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
# The cluster of this notebook: one ps and two workers, all in this process.

# %%
import digits

x, y, x_test, y_test = digits.load()
lr = 0.2
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
workers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
waits = tf.ConfigProto(operation_timeout_in_ms=20_000)  # the time limit of a call: 20 s

# %% [markdown]
# ## Mistake 1: half a device name
# A full device name says which job, which task, and which device there. `tf.device("/cpu:0")` is
# half a name: it says which device, but not of which task. The session fills in the missing half:
# the task that it is connected to. The opposite mistake, `tf.device("/job:ps/task:0")` around the
# whole model, puts everything on the ps.
#
# Worker 0 makes the model, and trains it with 300 updates. Then worker 1 makes the same model, and
# tests it. Each worker initialises the variables only if they have no values yet.

# %%
def train_then_test(name, device_of):
    """Worker 0 trains, then worker 1 tests: the accuracy that each of them finds; w; the loss."""
    accuracies = []
    for k in 0, 1:
        with tf.Graph().as_default(), tf.Session(workers[k].target, config=waits) as session:
            with tf.device(device_of(k)):
                w = digits.variables(name)
                step = tf.get_variable(name + "_step", initializer=tf.constant(0, tf.int64))
                loss = digits.loss(w, *digits.batch(x, y, step))
                update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
                accuracy = digits.accuracy(w, x_test, y_test)
            if session.run(tf.report_uninitialized_variables()).size > 0:
                session.run(tf.global_variables_initializer())
            if k == 0:
                for _ in range(300):
                    session.run(update)
            accuracies.append(session.run(accuracy))
    return accuracies, w, loss

# %% [markdown]
# **Predict:** worker 0 reaches about 97% on the test digits. Which accuracy does worker 1 find, in
# each of the first two placements of the figure?

# %%
def report(title, accuracies, w, loss):
    print("%s\n   worker 0 finds %2.0f%%, worker 1 finds %2.0f%%" % (
        title, *[100 * accuracy for accuracy in accuracies]))
    print("   w: %s   loss: %s" % (w[0].device, loss.device))

local = train_then_test("local", lambda k: "/cpu:0")
report("/cpu:0", *local)
on_ps = train_then_test("on_ps", lambda k: "/job:ps/task:0/cpu:0")
report("/job:ps/task:0/cpu:0", *on_ps)

# %% [markdown]
# <details><summary>Answer</summary>
#
# With `/cpu:0` worker 1 finds about 10%, which is guessing: it has a `w` of its own, with the first
# values. With the ps in the name it finds the trained `w`, since there is only one.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert local[0][1] < 0.2 and on_ps[0][1] > 0.95

# %% [markdown]
# With `/cpu:0` the workers would train two unrelated models, and no error says so. With everything
# on the ps the numbers are right, but the ps computes the loss and the gradients of all workers,
# while their machines stand idle. No test of the accuracy finds that.
#
# **Fixed:** `replica_device_setter` places variables on the ps and everything else on the worker.
# A test compares the devices of the variables and of the loss.

# %%
def check_placement(w, loss):
    for v in w:
        assert v.device.startswith("/job:ps/"), "not shared: w is on %r" % v.device
    assert loss.device.startswith("/job:worker/"), "the loss is computed on %r" % loss.device

def setter(k):
    return tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:%d" % k)

placed_well = train_then_test("placed_well", setter)
report("replica_device_setter", *placed_well)
for _, w, loss in local, on_ps, placed_well:
    try:
        check_placement(w, loss)
        print("the test passes")
    except AssertionError as error:
        print("the test fails:", error)

# %% [markdown]
# The other three mistakes need no second process.
#
# ## Mistake 2: an old value to compare with
# You want to know how far each update moves `w`, for instance to stop when it hardly moves any
# more: $\lVert w_{t+1} - w_t \rVert$. So you keep the old value, update, and subtract.
#
# `tf.disable_v2_behavior()` brings back the *reference variables* of TensorFlow 1, unless you call
# `tf.enable_resource_variables()` after it. The cell below runs both kinds.
#
# **Predict:** with reference variables the loss falls as it should. What does the program find for
# the distance that `w` moves?

# %%
def losses_and_distances(use_resource, updates=300):
    """Trains the digits; after each update: the loss of its mini-batch, how far w has moved."""
    def get_variable(name, initializer):
        return tf.get_variable(name, initializer=initializer, use_resource=use_resource)

    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int64, [])
        w = digits.variables(get_variable=get_variable)
        old = [tf.identity(v) for v in w]
        loss = digits.loss(old, *digits.batch(x, y, number))
        g = tf.gradients(loss, old)
        with tf.control_dependencies(old + g):
            update = [v.assign_sub(lr * d) for v, d in zip(w, g)]
        with tf.control_dependencies(update):
            distance = tf.linalg.global_norm([v.read_value() - o for v, o in zip(w, old)])
        session.run(tf.global_variables_initializer())
        return np.array([session.run([loss, distance], {number: t}) for t in range(updates)])

runs = {"reference variables": losses_and_distances(use_resource=False),
        "resource variables": losses_and_distances(use_resource=True)}
for name, values in runs.items():
    print("%-20s loss: first %.2f, last %.2f   w moved by: first %.3f, last %.3f" % (
        name, *values[[0, -1], 0], *values[[0, -1], 1]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Exactly 0, in every update. With reference variables `old` is not the old value. It is a name for
# the variable's memory, and the update has written into that memory. You subtract the variable from
# itself: `tf.identity` does not copy, and on one device nothing else forces a copy.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert (runs["reference variables"][:, 1] == 0).all()
assert (runs["resource variables"][:, 1] > 0).all()

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for values, colour, style in zip(runs.values(), (RED, BLUE), ("-", ":")):
    left.plot(values[:, 0], color=colour, linestyle=style, linewidth=1.5)
    right.plot(values[:, 1], color=colour, linewidth=1.5)
left.set(xlabel="update", ylabel="loss of the mini-batch", ylim=0)
right.set(xlabel="update", ylabel="how far it moved w", xlim=(0, 300), ylim=(-0.1, 0.5))
left.text(150, 1.5, "both kinds of variables,\nthe same curve", ha="center")
right.text(150, 0.38, "resource variables", color=BLUE, ha="center")
right.text(150, -0.07, "reference variables", color=RED, ha="center")
show(figure, "Two curves over 300 updates. Left: the loss falls, the same with both kinds of "
     "variables. Right: the distance that an update moves w; with reference variables it is zero.")

# %% [markdown]
# Both runs train the same model: their losses are equal. Only what the program *says* about itself
# is wrong. A program that stops when `w` no longer moves would stop after its first update. In part
# two, workers will push such differences to the ps; with this mistake they push zeros.
#
# **Fixed:** call `tf.enable_resource_variables()` once, after `disable_v2_behavior`. A read of a
# resource variable is a copy.
#
# ## Mistake 3: a read that is too early
# You want to log the loss *after* each update. In a graph the order of your Python lines means
# nothing; a control dependency makes an op wait. So the line that computes the loss stands within
# `tf.control_dependencies(update)`. Is that enough?

# %%
def logged_losses(value_to_test, updates=4):
    """After each update: the loss that the program logs, and the true loss."""
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int64, [])
        w = digits.variables()
        pulled = [v.read_value() for v in w]
        g = tf.gradients(digits.loss(pulled, *digits.batch(x, y, number)), pulled)
        update = [v.assign_sub(lr * d) for v, d in zip(w, g)]
        with tf.control_dependencies(update):
            logged = digits.loss(value_to_test(w, pulled), x, y)
        true_loss = digits.loss(w, x, y)  # in a run of its own
        session.run(tf.global_variables_initializer())
        return np.array([[session.run(logged, {number: t}), session.run(true_loss)]
                         for t in range(updates)])

def print_table(losses):
    for t, (logged, true_loss) in enumerate(losses, 1):
        print("after update %d: logged %.3f, true loss %.3f" % (t, logged, true_loss))

# %% [markdown]
# **Predict:** this program logs the loss at `pulled`, within the control dependency. How will the
# two columns differ?

# %%
early = logged_losses(lambda w, pulled: pulled)
print_table(early)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The log is one update behind: each logged loss is the true one of the line above. The ops that
# compute the loss did wait for the update. But their input `pulled` is a value that was read before
# it, for the gradient. A control dependency makes an op wait; it does not renew the op's inputs.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert np.allclose(early[1:, 0], early[:-1, 1], rtol=1e-5)

# %% [markdown]
# **Fixed:** read the variable again, within the control dependency. `v.read_value()` makes a new
# read each time you call it.

# %%
fresh = logged_losses(lambda w, pulled: [v.read_value() for v in w])
print_table(fresh)
assert np.allclose(fresh[:, 0], fresh[:, 1], rtol=1e-5)

# %% [markdown]
# The same holds for `session.run([update, w])`: nothing orders the read of `w` and the update, so
# you get either value. A worker that makes this mistake when it pulls `w` from a ps trains with
# parameters that are one update older than it believes.
#
# ## Mistake 4: an update beside the training
# Some variables are not trained by gradients, but by an update op of their own: the moving mean of
# a BatchNormalization layer, or a moving average of the weights.
#
# `tf.train.ExponentialMovingAverage` keeps a second, smoothed copy of `w`, which many programs test
# and export instead of `w`: `average <- 0.95 * average + 0.05 * w`. Its method `apply` returns the
# op that does this once.
#
# **Predict:** the program makes that op, so that it waits for the training op `train`. Then it runs
# `train` 300 times. How accurate is the average at the end?

# %%
def accuracy_curves(run_the_average, updates=300):
    """The accuracy of w and of its moving average, after each tenth update."""
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int64, [])
        w = digits.variables()
        loss = digits.loss(w, *digits.batch(x, y, number))
        train = tf.train.GradientDescentOptimizer(lr).minimize(loss)
        moving = tf.train.ExponentialMovingAverage(decay=0.95)
        with tf.control_dependencies([train]):
            update_average = moving.apply(w)
        if run_the_average:
            train = update_average  # it needs the gradient step, so both run
        tests = [digits.accuracy(w, x_test, y_test),
                 digits.accuracy([moving.average(v) for v in w], x_test, y_test)]
        session.run(tf.global_variables_initializer())
        curve = []
        for t in range(updates):
            session.run(train, {number: t})
            if t % 10 == 9:
                curve.append(session.run(tests))
        return 100 * np.array(curve)

forgotten = accuracy_curves(run_the_average=False)
print("at the end: w %.0f%%, its average %.0f%%" % tuple(forgotten[-1]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 10%: the average still has its first values. `session.run` executes what its fetches need,
# and nothing else. The op of the average exists in the graph, and even waits for `train`. But
# `train` does not need it, so it never ran. Keras' `fit` runs such updates for you. Here you must
# ask for them.
#
# </details>
#
# **Fixed:** run the last op of the chain. `update_average` waits for `train`, so a fetch of it
# runs both. Where there is no such chain, `tf.group` joins several ops into one.

# %%
fixed = accuracy_curves(run_the_average=True)
figure, ax = plt.subplots(figsize=(7, 2.8))
updates = 10 * np.arange(1, 31)
for curve, colour, name, shift in ((fixed[:, 0], GRAY, "w", -6.5),
                                   (fixed[:, 1], BLUE, "average, fixed", 0),
                                   (forgotten[:, 1], RED, "average, never updated", 0)):
    ax.plot(updates, curve, color=colour)
    ax.text(305, curve[-1] + shift, name, color=colour, va="center")
ax.set(xlabel="updates", ylabel="test accuracy, %", xlim=(0, 300), ylim=(0, 100))
show(figure, "Test accuracy over 300 updates: that of w and that of its moving average rise to "
     "about 97 percent. The average that is never updated stays at about 10 percent.")
print("at the end: w %.0f%%, its average %.0f%%" % tuple(fixed[-1]))
assert forgotten[-1, 1] < 20 and fixed[-1, 1] > 95

# %% [markdown]
# ## What the four have in common
# | mistake | what looks fine | what finds it |
# | --- | --- | --- |
# | 1. half a device name | each worker's loss falls | the devices of variables and loss |
# | 2. a name for the memory, not a copy | the loss | a difference that must not be 0 |
# | 3. a read that is too early | the numbers are plausible | the first update, compared with a second run |
# | 4. an update that no fetch needs | the training loss | a test with the variable that it should move |
#
# A falling loss finds none of them. Part two continues this list with mistakes that need workers
# with copies of their own: [Classic-Mistakes-Updates](Classic-Mistakes-Updates.ipynb).

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. A step of its own.** ★☆☆ A program makes its step counter *before* the line `with
# tf.device(setter(0)):`, and the model within it. On which device is the counter? What goes wrong
# when two workers count their updates with it?
#
# <details><summary>Hint</summary>
#
# Print `.device` of the variable. An empty part is filled in as in mistake 1.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     step = tf.train.get_or_create_global_step()
#     with tf.device(setter(0)):
#         w = digits.variables()
# assert step.device == ""  # each session fills in its own task: every worker counts for itself
# assert all(v.device == "/job:ps/task:0" for v in w)
# ```
#
# </details>

# %% [markdown]
# **2. A scope that hides the setter.** ★★☆ Within the setter, write `with tf.device(None):` around
# the model. Where is `w` then? Does `check_placement` find it?
#
# <details><summary>Hint</summary>
#
# `tf.device(None)` does not mean "no change". It hides every `tf.device` around it.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.device(setter(0)), tf.device(None):
#     w = digits.variables()
#     loss = digits.loss(w, x, y)
# assert all(v.device == "" for v in w)
# try:
#     check_placement(w, loss)
#     found = False
# except AssertionError:
#     found = True
# assert found
# ```
#
# </details>

# %% [markdown]
# **3. What will run.** ★★★ Write `needed(op)`: the set of all ops that a fetch of `op` executes.
# Use it to show that a fetch of `train` in mistake 4 leaves the moving average out.
#
# <details><summary>Hint</summary>
#
# Start at `op`, and follow `op.inputs` (their `.op`) and `op.control_inputs` backwards until you
# find nothing new. An op that writes a variable `v` has `v.handle` as an input, the tensor that
# names the variable. `v.handle.op` is the op that makes it.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def needed(op):
#     found, to_visit = set(), [op]
#     while to_visit:
#         op = to_visit.pop()
#         if op not in found:
#             found.add(op)
#             to_visit += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
#     return found
#
# with tf.Graph().as_default():
#     w = digits.variables()
#     train = tf.train.GradientDescentOptimizer(lr).minimize(digits.loss(w, x, y))
#     moving = tf.train.ExponentialMovingAverage(decay=0.95)
#     with tf.control_dependencies([train]):
#         update_average = moving.apply(w)
#     averages = {moving.average(v).handle.op for v in w}
#     assert not averages & needed(train)  # no variable of the average is touched
#     assert averages <= needed(update_average) and needed(train) <= needed(update_average)
# ```
#
# </details>

# %% [markdown]
# ## The project of part one
# **Project. Two servers and a worker.** ★★★ Write the two programs of a small cluster, as real
# files: `server.py` for each of two servers, and `train.py` for one worker. The worker trains the
# digits until at least 95% of the test digits are classified correctly. It prints on which ps each
# variable lives, how many bytes an update moves from task to task, and the accuracy. You have met
# all that you need.
#
# <details><summary>Hint</summary>
#
# 1. `server.py` is that of [Servers](Servers.ipynb). Begin each file's cell with `%%writefile`.
# 2. In `train.py`: read TF_CONFIG, start the worker's server, and build the model within
#    `replica_device_setter(cluster=...)`. The model and the data are in `digits.py`: import it.
# 3. Let a `ChiefSessionCreator` make the session; give it a ConfigProto with a time limit.
# 4. Print `v.device` for each variable. Which ps has nearly all the bytes, and why?
# 5. Copy `full`, `short` and `read_report` from [Parameter-Server](Parameter-Server.ipynb). Run one
#    update with the options `full`, and add up the bytes in the report. Expect the size of `w`
#    twice, and a little more: the batch number is read from the step counter, on a ps.
# 6. Train for 300 updates, and test.
# 7. In the notebook: `new_cluster(ps=2, worker=1)`, `start` both servers and the worker, `finish`
#    the worker, print what it returns, `stop` the servers.
#
# </details>

# %%
# Your answer to the project

# %% [markdown]
# <details><summary>Solution</summary>
#
# In your own solution, each program is in a `%%writefile` cell. Here the programs are functions, so
# that one cell can hold everything. `inspect.getsource` gives their text, and the files are made
# from it. `short` and `read_report` are those of [Parameter-Server](Parameter-Server.ipynb).
#
# ```python
# import collections
# import inspect
# import re
#
# def serve():
#     import json
#     import os
#     import tensorflow.compat.v1 as tf
#
#     config = json.loads(os.environ["TF_CONFIG"])
#     task = config["task"]
#     server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
#     server.join()
#
# def short(device):
#     """/job:ps/replica:0/task:1/device:CPU:0 is ps 1."""
#     return "%s %s" % re.search(r"job:(\w+)/.*task:(\d)", device).groups()
#
# def read_report(report):
#     """{task: its operations}, {(sender, receiver): bytes} of a run with the options `full`."""
#     results = {(node.node_name, output.slot): output.tensor_description  # slot: its 1st, 2nd, ...
#                for device in report.step_stats.dev_stats
#                for node in device.node_stats for output in node.output}
#     operations, sent = collections.defaultdict(list), collections.Counter()
#     for node in [node for part in report.partition_graphs for node in part.node]:
#         operations[short(node.device)].append(node.op)
#         # What goes to this program, the client, does not go from task to task: client_terminated.
#         if node.op == "_Send" and not node.attr["client_terminated"].b:
#             name, _, slot = node.input[0].partition(":")
#             tensor = results[name, int(slot or 0)]
#             numbers = tf.TensorShape(tensor.shape).num_elements()
#             sender = short(node.attr["send_device"].s.decode())
#             receiver = short(node.attr["recv_device"].s.decode())
#             sent[sender, receiver] += numbers * tf.as_dtype(tensor.dtype).size
#     return operations, sent
#
# def train():
#     import json
#     import os
#     import digits
#
#     tf.logging.set_verbosity(tf.logging.ERROR)
#     tf.disable_v2_behavior()
#     tf.enable_resource_variables()
#     cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
#     server = tf.train.Server(cluster, job_name="worker", task_index=0)
#     x, y, x_test, y_test = digits.load()
#
#     with tf.device(tf.train.replica_device_setter(
#             cluster=cluster, worker_device="/job:worker/task:0")):
#         step = tf.train.get_or_create_global_step()
#         w = digits.variables()
#         loss = digits.loss(w, *digits.batch(x, y, step))
#         update = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
#         accuracy = digits.accuracy(w, x_test, y_test)
#     for v in [step, *w]:
#         print(v.op.name, "is on", v.device)
#
#     scaffold = tf.train.Scaffold()
#     waits = tf.ConfigProto(operation_timeout_in_ms=40_000)
#     session = tf.train.ChiefSessionCreator(scaffold, server.target, waits).create_session()
#
#     full = tf.RunOptions(
#         trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
#     report = tf.RunMetadata()
#     session.run(update, options=full, run_metadata=report)
#     operations, sent = read_report(report)
#     print("bytes of an update:", sum(sent.values()))
#
#     for _ in range(299):
#         session.run(update)
#     print("accuracy: %.1f%%" % (100 * session.run(accuracy)))
#
# pathlib.Path("server.py").write_text(inspect.getsource(serve) + "\nserve()\n")
# imports = "import collections\nimport re\nimport tensorflow.compat.v1 as tf\n\n"
# functions = "\n".join(inspect.getsource(f) for f in (short, read_report, train))
# pathlib.Path("train.py").write_text(imports + functions + "\ntrain()\n")
# two_ps = new_cluster(ps=2, worker=1)
# servers = [start("server.py", two_ps, "ps", i) for i in (0, 1)]
# printed = finish(start("train.py", two_ps, "worker"))
# stop(*servers)
# print(printed)
#
# lines = printed.splitlines()
# assert sum("/job:ps/task:0" in line for line in lines) == 3  # round-robin: ps 0, ps 1, ps 0, ...
# assert sum("/job:ps/task:1" in line for line in lines) == 2
# sent, accuracy = [float(line.split()[-1].rstrip("%")) for line in lines[-2:]]
# assert 2 * 4 * 2410 <= sent < 2 * 4 * 2410 + 100 and accuracy >= 95
# ```
#
# </details>

# %%
# Stop what this notebook started.
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 3 and 4: what a run executes, and where.
# - Humbatova et al. 2020, [Taxonomy of Real Faults in Deep Learning
#   Systems](https://arxiv.org/abs/1910.11015): which mistakes people make, from their own reports.
# - [Distributed-Setup](../Distributed-Setup/): the project's program as a complete example, with
#   checkpoints and a clean end. [Non-Distributed-Setup](../Non-Distributed-Setup/) is the
#   program it is compared with.
#
# Next: [Local-then-Global-Variables](Local-then-Global-Variables.ipynb), the first of part two:
# workers with copies of their own.
