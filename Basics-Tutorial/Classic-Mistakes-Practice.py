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
# # Classic mistakes: practice
# The algorithm is right, and the code raises no error. Still the training hangs, starts from scratch,
# or reports a number that is too good. Here are eight such mistakes. You watch each one fail, and
# then fix it.
#
# After this notebook you can:
# - give every wait a deadline, and see why a worker comes 30 s late;
# - notice a training that silently begins again, or restores another model;
# - check which rows each worker reads, and whether your test rows are new to the model;
# - number the updates of several workers so that no number comes twice;
# - find out why a loop is slow, and its memory grows;
# - kill tasks of a training on purpose, and prove that it survives.
#
# **Before it:** [Hooks-with-Files](Hooks-with-Files.ipynb),
# [Input-Pipelines](Input-Pipelines.ipynb). **Time:** 75 minutes, and 90 for the project.

# %% [markdown]
# ## Most mistakes raise no error
# ![The eight mistakes by what you see. It waits, two mistakes: a queue that nobody fills, a worker that sleeps. It goes on, but is wrong, five mistakes: initialised anew, the shapes of another model, the same shard, test rows in the training, a number given out twice. It is slow: a graph that grows.](../docs/figures/practice.svg)
#
# The folded cells hold what every notebook needs: TensorFlow, free ports and processes, the digits.

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
# The model is the network for the digits that you know.

# %%
import threading
import time
import digits

x_train, y_train, x_test, y_test = digits.load()

def model():
    """Builds in the current graph: w <- w - 0.2 * g(w), and step <- step + 1."""
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
    x, y = digits.batch(x_train, y_train, step.read_value())
    loss = digits.loss(w, x, y)
    update = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
    return step, w, loss, update

def attempt(call):
    """What a call gives, or the name of its error."""
    try:
        return call()
    except tf.errors.OpError as error:
        return type(error).__name__

# %% [markdown]
# ## Waiting
# ### Mistake 1: a wait without a deadline
# A worker takes its rows from a queue on another task. A *queue* is an op that holds tensors: one
# task enqueues, another one dequeues, and waits while the queue is empty. The task that should fill
# this one never started.
#
# `session.run` has no time limit by default. It would wait for ever, without a message. Two limits
# exist: for all calls of a session, and for one call.

# %%
with tf.Graph().as_default():
    rows = tf.FIFOQueue(capacity=10, dtypes=tf.int32, shapes=[[]])
    next_row = rows.dequeue()
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=500)) as session:
        print("limit of the session:", attempt(lambda: session.run(next_row)))
    with tf.Session() as session:
        limit = tf.RunOptions(timeout_in_ms=500)
        print("limit of one call:   ", attempt(lambda: session.run(next_row, options=limit)))

# %% [markdown]
# The error says only that something was late. Your program knows more: which task should have filled
# the queue. So turn the error into a sentence that names this task.

# %%
def row_in_time(session, seconds):
    limit = tf.RunOptions(timeout_in_ms=int(1000 * seconds))
    try:
        return session.run(next_row, options=limit)
    except tf.errors.DeadlineExceededError:
        message = "no row in %s s: is the task running that reads the data?" % seconds
        raise TimeoutError(message) from None

with tf.Session(graph=next_row.graph) as session:
    try:
        row_in_time(session, 0.5)
    except TimeoutError as error:
        print("TimeoutError:", error)

# %% [markdown]
# A good limit is longer than the slowest healthy wait: the start of a process, a save, a long step.
#
# ### Mistake 2: a worker that sleeps for 30 s
# The chief initialises the variables. The other workers look whether that is done, sleep, and look
# again. The class that looks is `SessionManager`, and it sleeps `recovery_wait_secs`: 30 s by
# default. `MonitoredTrainingSession` and `WorkerSessionCreator` have no argument to change it, only
# `max_wait_secs`, the longest wait in all.
#
# **Predict:** a worker sets `max_wait_secs=20`, and the chief never comes. After how many seconds does
# the worker give up?

# %%
server = tf.train.Server.create_local_server()  # it ends with the kernel

with tf.Graph().as_default():
    step, w, loss, update = model()
    creator = tf.train.WorkerSessionCreator(master=server.target, max_wait_secs=20)
    began = time.monotonic()
    try:
        creator.create_session()
    except tf.errors.DeadlineExceededError as error:
        print(error.message)
    print("It waited less than 5 s:", time.monotonic() - began < 5)

# %% [markdown]
# <details><summary>Answer</summary>
#
# At once. After its first look it would have to sleep for 30 s. That is longer than 20 s, so it does
# not even begin to sleep. The message is wrong: it has not waited 20 s.
#
# </details>
#
# With a longer limit it sleeps through the first 30 s, and perhaps through your whole training. It
# does so again after each loss of the session. To fix it, give `MonitoredSession` a *session
# creator*, the object that makes its sessions, whose `SessionManager` looks more often.

# %%
class QuickWorker(tf.train.SessionCreator):
    """As WorkerSessionCreator, but it looks twice a second."""
    def __init__(self, target, config=None):
        self.target, self.config, self.scaffold = target, config, tf.train.Scaffold()

    def create_session(self):
        self.scaffold.finalize()  # adds the op that tells whether the variables are there
        manager = tf.train.SessionManager(
            ready_op=self.scaffold.ready_op, local_init_op=self.scaffold.local_init_op,
            ready_for_local_init_op=self.scaffold.ready_for_local_init_op,
            recovery_wait_secs=0.5)
        return manager.wait_for_session(self.target, self.config, max_wait_secs=60)

def late_worker():
    with tf.Graph().as_default():
        step, w, loss, update = model()
        with tf.train.MonitoredSession(QuickWorker(server.target)) as session:
            session.run(update)

thread = threading.Thread(target=late_worker, daemon=True)
thread.start()  # before the chief
with tf.Graph().as_default():
    step, w, loss, update = model()
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(master=server.target)) as chief:
        thread.join(timeout=15)
        print("the worker has made", chief.run(step), "update while the chief was waiting")
assert not thread.is_alive()

# %% [markdown]
# ## Checkpoints
# ### Mistake 3: the training begins again from scratch, and says nothing
# `MonitoredSession` makes a new session when it has lost one. Without a `checkpoint_dir` it
# initialises the variables once more. A hook plays the lost parameter server: at the 190th run it
# raises the error that its death would raise.
#
# **Predict:** the loop calls `run` 300 times, and the session is lost at the 190th call. We train with
# `checkpoint_dir` (a save every 50 steps) and without. How far apart are the two test accuracies at
# the end: 2%, 20% or 80%? And where is `step` in each?

# %%
class LoseOnce(tf.train.SessionRunHook):
    """The ps dies at run 190, as far as the session can see."""
    runs = 0

    def before_run(self, context):
        self.runs += 1
        if self.runs == 190:
            raise tf.errors.UnavailableError(None, None, "the ps is gone")

class Test(tf.train.SessionRunHook):
    """Measures the accuracy after each tenth run."""
    def __init__(self, accuracy):
        self.accuracy, self.runs, self.seen = accuracy, 0, []

    def after_run(self, context, values):
        self.runs += 1
        if self.runs % 10 == 0:
            self.seen.append((self.runs, 100 * context.session.run(self.accuracy)))

def train(checkpoint_dir, *more_hooks):
    with tf.Graph().as_default():
        step, w, loss, update = model()
        test = Test(digits.accuracy(w, x_test, y_test))
        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=checkpoint_dir, hooks=[LoseOnce(), test, *more_hooks],
                save_checkpoint_steps=50, save_summaries_steps=None,
                log_step_count_steps=None) as session:
            for _ in range(300):
                session.run(update)
            return test.seen, int(session.run(step))

seen_without, step_without = train(None)
seen_with, step_with = train("checkpoints of mistake 3")
print("300 calls without checkpoint_dir: step %d, accuracy %.1f%%" % (
    step_without, seen_without[-1][1]))
print("300 calls with checkpoint_dir:    step %d, accuracy %.1f%%" % (
    step_with, seen_with[-1][1]))

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots()
axes.plot(*zip(*seen_without), "o-", ms=4, color=RED)
axes.plot(*zip(*seen_with), "o-", ms=4, color=GREEN)
axes.axvline(190, color=GRAY, lw=1, ls="--")
axes.annotate("the session is lost", (178, 22), ha="right", color=GRAY)
axes.annotate("without checkpoint_dir:\nfrom the beginning", (213, 50), color=RED)
axes.annotate("with it: from step 150", (212, 99), color=GREEN)
axes.set(xlabel="call of run", ylabel="test accuracy (%)", ylim=(10, 106))
show(figure, "The test accuracy of two trainings that lose their session at call 190. With a "
     "checkpoint_dir the curve goes on; without one it falls back to the start and climbs again.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only about 2%. Without `checkpoint_dir` the accuracy falls back to that of an untrained network, but
# it climbs again. You would blame the learning rate. The global step tells: it is 111 after 300
# calls.
#
# With `checkpoint_dir` the training goes on at step 150. It has lost 39 updates, so it ends at 261.
#
# </details>
#
# So set `checkpoint_dir`, and let a hook refuse a silent second beginning:

# %%
class RefuseToBeginAgain(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
            raise RuntimeError("the session was lost, and nothing was restored: set checkpoint_dir")

try:
    train(None, RefuseToBeginAgain())
except RuntimeError as error:
    print("RuntimeError:", error)

# %% [markdown]
# ### Mistake 4: the checkpoint of another model
# A run continues from its folder. Meanwhile you have changed the model: once a name, once the width
# of the hidden layer, from 32 to 64.
#
# **Predict:** which of the two changes does the restore notice?

# %%
def network(name, hidden):
    random = np.random.RandomState(0)
    shapes = [[64, hidden], [hidden], [hidden, 10], [10]]
    values = [random.normal(0, 0.2, shape).astype("float32") for shape in shapes]
    return [tf.get_variable("%s_%d" % (name, i), initializer=value)
            for i, value in enumerate(values)]

def use(name, hidden, updates, path="checkpoints of mistake 4"):
    """Restores if there is something to restore, trains and tests."""
    with tf.Graph().as_default():
        step, w = tf.train.get_or_create_global_step(), network(name, hidden)
        loss = digits.loss(w, *digits.batch(x_train, y_train, step.read_value()))
        update = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
        accuracy = digits.accuracy(w, x_test, y_test)
        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=path, save_summaries_steps=None, log_step_count_steps=None) as session:
            for _ in range(updates):
                session.run(update)
            print("in the graph %s, restored %s, accuracy %.0f%%" % (
                w[0].shape, session.run(w[0]).shape, 100 * session.run(accuracy)))

use("w", hidden=32, updates=300)
print("another name:  ", attempt(lambda: use("v", hidden=32, updates=0)))
print("another width: ", end="")
use("w", hidden=64, updates=0)
print("and one update:", attempt(lambda: use("w", hidden=64, updates=1)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the name: `NotFoundError`, "Key v_0 not found in checkpoint". The width passes: the variable
# takes the value of the checkpoint, whatever its shape. The graph says `(64, 64)`, and the value is
# the old `(64, 32)`. You test the *old* network and believe that you test the new one. Only the
# gradient fails, with an error that does not mention the checkpoint.
#
# </details>
#
# One folder for one model avoids all this. Where folders come from outside, compare names and shapes
# before you restore:

# %%
def check_checkpoint(path, variables):
    stored = dict(tf.train.list_variables(path))
    for variable in variables:
        name, shape = variable.op.name, variable.shape.as_list()
        if stored.get(name) != shape:
            raise ValueError("%s is %s here and %s in the checkpoint" % (name, shape, stored.get(name)))

with tf.Graph().as_default():
    check_checkpoint("checkpoints of mistake 4", network("w", hidden=32))  # silent: they fit
    try:
        check_checkpoint("checkpoints of mistake 4", network("v", hidden=64))
    except ValueError as error:
        print("ValueError:", error)

# %% [markdown]
# ## Data
# ### Mistake 5: all workers read the same shard
# A *shard* is one worker's part of the data. Shard k of n comes from the worker's index k. When k
# comes from a variable that is not set, or from a constant, all workers read shard 0. Here the file
# is sorted by digit, as many data sets are sorted by class, and cut into two halves.
#
# Two workers train synchronously: each update uses the mean of their gradients.
#
# **Predict:** how many percent of the test digits does the network recognise when both workers read
# the first half? Which digits?

# %%
def train_together(shards, updates=600):
    """shards: (x, y) of each worker. Returns a function from (x, y) to the accuracy."""
    with tf.Graph().as_default():
        step, w = tf.train.get_or_create_global_step(), digits.variables()
        gradients = []
        for k, (x, y) in enumerate(shards):
            batch = digits.batch(x, y, step.read_value(), worker=k)
            gradients.append(tf.gradients(digits.loss(w, *batch), w))
        mean = [sum(g) / len(shards) for g in zip(*gradients)]
        optimizer = tf.train.GradientDescentOptimizer(0.2)
        update = optimizer.apply_gradients(zip(mean, w), global_step=step)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(updates):
                session.run(update)
            trained = session.run(w)

    def accuracy(x, y):
        with tf.Graph().as_default(), tf.Session() as session:
            w = [tf.constant(layer) for layer in trained]
            return 100 * session.run(digits.accuracy(w, x, y))
    return accuracy

order = np.argsort(y_train, kind="stable")
halves = [(x_train[rows], y_train[rows]) for rows in np.array_split(order, 2)]
shards = {"both read shard 0": [halves[0], halves[0]], "each reads its own": [halves[0], halves[1]]}
trained = {name: train_together(parts) for name, parts in shards.items()}
for name, accuracy in trained.items():
    print("%s: %.1f%%" % (name, accuracy(x_test, y_test)))

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 2.8))
for shift, (name, accuracy), color in zip((-0.2, 0.2), trained.items(), (RED, GREEN)):
    right = [accuracy(x_test[y_test == digit], y_test[y_test == digit]) for digit in range(10)]
    axes.bar(np.arange(10) + shift, right, width=0.4, color=color, label=name)
axes.set(xlabel="digit", ylabel="recognised (%)", xticks=range(10))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.22), ncols=2)
axes.grid(axis="x", visible=False)
show(figure, "The accuracy for each digit. When both workers read shard 0, the digits 0 to 4 are "
     "recognised, 5 to 9 never. When each reads its own shard, all are recognised.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# About half: the digits 0 to 4, which stand in the first half of the sorted file. The network has
# never seen the others. (The middle of the file is close to the border of 4 and 5.)
#
# </details>
#
# To make this mistake harmless, shuffle before you cut, or give worker k the rows `k::n`. Then shard 0
# holds all digits, and you merely waste the second worker.
#
# To find the mistake, let each worker print the number and a checksum of its rows: no two lines may
# be equal. Check the seed of the batches, too. With one seed and one shard for all, n workers compute
# the same gradient n times.

# %%
import zlib

for name, parts in shards.items():
    lines = ["%d rows, checksum %08x" % (len(x), zlib.crc32(x.tobytes())) for x, _ in parts]
    print(name + ":", *lines, sep="\n    ")

# %% [markdown]
# ### Mistake 6: test rows in the training data
# You have 200 images, and make ten noisy copies of each to have more data. Then you shuffle, and set
# a fifth aside for the test.
#
# The first test takes a fifth of the *copies*, at random. The second takes all copies of a fifth of
# the *images*. We compare both with the accuracy on 360 images that really are new.
#
# **Predict:** how many percent does the first test say too much: 1, 6 or 20? And does the second one
# say too much or too little?

# %%
random = np.random.RandomState(1)
image = np.repeat(np.arange(200), 10)  # which image each copy shows
x_copies = x_train[image] + random.normal(0, 0.1, [2000, 64]).astype("float32")
y_copies = y_train[image]

def report(name, is_test):
    accuracy = train_together([(x_copies[~is_test], y_copies[~is_test])], updates=1000)
    print("%-17s the test says %5.1f%%, new images %.1f%%" % (
        name + ":", accuracy(x_copies[is_test], y_copies[is_test]), accuracy(x_test, y_test)))

report("rows at random", random.permutation(2000) < 400)
report("whole images", random.permutation(200)[image] < 40)

# %% [markdown]
# <details><summary>Answer</summary>
#
# More than 6: its images have copies in the training data, so it rewards memory. With whole images
# the test no longer flatters. Here it even says too little. It is rough, because it has only 40
# images. (The second network is worse on new images, too: it has seen 160
# images instead of 200.)
#
# </details>
#
# So cut first, and copy afterwards. Several photographs of one patient, or overlapping parts of one
# text, do the same harm as copies. You also spoil a test when you choose the best of many runs by it.
# For choices take a third part of the data, the validation data.
#
# ## Counting
# ### Mistake 7: a number that two workers get
# Several workers number their batches by the shared global step: read the step, compute, add 1. But
# between the read and the addition another worker may read the same number. A *ticket* is a number
# that only one worker gets. `tf.count_up_to` gives tickets: in one op it reads the step and adds 1,
# so nothing can come between.
#
# In a cluster the order is random. We script the worst one: in each round both workers take their
# number before either of them updates.

# %%
def two_workers(take_ticket):
    """600 updates by two workers in turn; returns the number of different batches."""
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default():
        step, w = tf.train.get_or_create_global_step(), digits.variables()
        number = tf.placeholder(tf.int64, [])
        loss = digits.loss(w, *digits.batch(x_train, y_train, number))
        optimizer = tf.train.GradientDescentOptimizer(0.2)
        if take_ticket:
            take, update = tf.count_up_to(step, limit=600), optimizer.minimize(loss)
        else:
            take, update = step.read_value(), optimizer.minimize(loss, global_step=step)
        initialise = tf.global_variables_initializer()
        workers = [tf.Session(server.target) for _ in range(2)]
        workers[0].run(initialise)
        used = []
        for _ in range(300):
            numbers = [int(worker.run(take)) for worker in workers]
            for worker, mine in zip(workers, numbers):
                worker.run(update, {number: mine})
            used += numbers
        print("step %d, 600 updates, %d different batches" % (workers[0].run(step), len(set(used))))
        if take_ticket:
            print("one more ticket:", attempt(lambda: workers[0].run(take)))
        for worker in workers:
            worker.close()
    return len(set(used))

print("read, then add: ", end="")
assert two_workers(take_ticket=False) == 300
print("tickets:        ", end="")
assert two_workers(take_ticket=True) == 600

# %% [markdown]
# The step is right in both cases, so nothing looks wrong. But half of the batches were used twice and
# half never. The other order, add 1 and then read, is no better: two workers add, then both read the
# same number.
#
# Tickets also end the training after exactly 600 updates: the next one raises an `OutOfRangeError`,
# which `MonitoredSession` treats as a normal end. Note the price: if a worker dies between its
# ticket and its update, that update is missing.
#
# ## The process itself
# ### Mistake 8: a graph that grows
# This loop tests the model after each update. `digits.accuracy(...)` looks like a call that computes
# something. It *builds ops*, again in each round. Each time TensorFlow must prepare the larger graph
# before it can run.

# %% tags=["measured"]
def loop(grows):
    with tf.Graph().as_default() as graph:
        step, w, loss, update = model()
        accuracy = digits.accuracy(w, x_test, y_test)
        seconds, ops = [], []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(60):
                began = time.perf_counter()
                session.run(update)
                session.run(digits.accuracy(w, x_test, y_test) if grows else accuracy)
                seconds.append(time.perf_counter() - began)
                ops.append(len(graph.get_operations()))
    return 1000 * np.array(seconds), ops

times_grown, ops_grown = loop(grows=True)
times_built, ops_built = loop(grows=False)
print("built in each round: %.1f ms a round, %d ops at the end" % (
    np.median(times_grown), ops_grown[-1]))
print("built once:          %.1f ms a round, %d ops at the end" % (
    np.median(times_built), ops_built[-1]))
print("the first is slower: %.0f times" % (np.median(times_grown) / np.median(times_built)))

# %% jupyter={"source_hidden": true} tags=["measured"]
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
left.plot(range(1, 61), ops_grown, color=RED)
left.plot(range(1, 61), ops_built, color=GREEN)
left.set(xlabel="round", ylabel="ops in the graph", ylim=(0, None))
left.annotate("built in\neach round", (8, 700), color=RED)
left.annotate("built once", (38, 170), color=GREEN)
right.semilogy(range(1, 61), times_grown, color=RED)
right.semilogy(range(1, 61), times_built, color=GREEN)
right.set(xlabel="round", ylabel="time (ms)")
figure.tight_layout()
show(figure, "On the left the number of ops in the graph: with the loop that builds, red, it grows in "
     "each round; green, it stays the same. On the right the time of each round on a logarithmic "
     "scale: the loop that builds is far slower.")

# %% [markdown]
# The memory grows, too, and a long training can die of it. `graph.finalize()` turns the mistake into
# an error. `MonitoredSession` does that by itself, a plain `Session` does not.

# %%
with tf.Graph().as_default() as graph:
    step, w, loss, update = model()
    graph.finalize()
    try:
        digits.accuracy(w, x_test, y_test)
    except RuntimeError as error:
        print("RuntimeError:", error)

# %% [markdown]
# ## What you see, what it means, what to do
# | what you see | what it means | what to do |
# | --- | --- | --- |
# | it waits, and prints nothing | a task did not start, or a queue stays empty | `operation_timeout_in_ms`, or a limit for the call; name the task that is missing |
# | a worker begins 30 s late, or "was not ready after waiting" | `SessionManager` looks only every 30 s | a session creator with `recovery_wait_secs=0.5` |
# | `UnknownError: Could not start gRPC server` | another program has the port | choose a free one: exercise 1 |
# | the accuracy falls back, `step` is too small | a new session initialised the variables | set `checkpoint_dir`; refuse to begin again |
# | `Key … not found`, or errors about shapes after a restore | the checkpoint of another model | a folder for each model; compare names and shapes |
# | some classes are never recognised | workers read the same shard, or a sorted file | shuffle, `k::n`, print a checksum of each shard |
# | the test is better than practice | test rows, or copies of them, were in the training | cut first, then copy; choose by validation data |
# | a worker reports a bad accuracy of a good model | it tested its old local copy | pull, then test: exercise 2 |
# | batches come twice | read and add are two ops | a ticket: `tf.count_up_to` |
# | the loop is slow, the memory grows | ops are built in the loop | build once, `graph.finalize()` |
# | the loss is NaN | an earlier update, or this batch | see [Hooks](Hooks.ipynb) |
# | old checkpoints are gone | a `Saver` keeps five | see [Hooks-with-Files](Hooks-with-Files.ipynb) |
#
# [When something goes wrong](../docs/troubleshooting.md) lists the errors of this repository's
# scripts, with their cause and cure.

# %% [markdown]
# ## A program that survives
# Here is a whole task of a training, without these mistakes. It is the program of the project below,
# so read it well. The chief is worker 0. Each step pauses for 10 ms, as if the model were larger:
# otherwise the training would be over before you can disturb it.
#
# One weakness is left. A chief that comes back would restore the last checkpoint, although the model
# lives on the ps. `CarefulCreator` of [Sessions-that-Recover](Sessions-that-Recover.ipynb) fixes that.

# %%
# %%writefile train.py
"""One task: python train.py CHECKPOINT_DIR UPDATES. It prints each ticket that it has used."""
import json
import os
import sys
import time
import tensorflow.compat.v1 as tf
import digits

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()
checkpoint_dir, updates = sys.argv[1], int(sys.argv[2])
config = json.loads(os.environ["TF_CONFIG"])
cluster, job, k = config["cluster"], config["task"]["type"], config["task"]["index"]
device = "/job:%s/task:%d" % (job, k)

# Mistake 1: every call has a deadline, and nobody waits for another worker
options = tf.ConfigProto(device_filters=["/job:ps", device], operation_timeout_in_ms=60_000)
server = tf.train.Server(cluster, job_name=job, task_index=k, config=options)
if job == "ps":
    server.join()

# Mistake 5: every second row is this worker's
x_train, y_train, _, _ = digits.load()
n = len(cluster["worker"])
x_train, y_train = x_train[k::n], y_train[k::n]

with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=device)):
    step, w = tf.train.get_or_create_global_step(), digits.variables()
    ticket = tf.count_up_to(step, updates)  # Mistake 7: each number once
    x, y = digits.batch(x_train, y_train, ticket, worker=k)
    update = tf.train.GradientDescentOptimizer(0.2).minimize(digits.loss(w, x, y))
    with tf.control_dependencies([update]):
        used = tf.identity(ticket)


class QuickWorker(tf.train.SessionCreator):  # Mistake 2: look twice a second
    def create_session(self):
        scaffold.finalize()
        manager = tf.train.SessionManager(
            ready_op=scaffold.ready_op, local_init_op=scaffold.local_init_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op, recovery_wait_secs=0.5)
        return manager.wait_for_session(server.target, options, max_wait_secs=60)


class SayWhere(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        print("new session", flush=True)


scaffold, hooks = tf.train.Scaffold(), [SayWhere()]
if k == 0:  # Mistake 3: restore after a loss
    creator = tf.train.ChiefSessionCreator(scaffold, server.target, options, checkpoint_dir)
    hooks.append(tf.train.CheckpointSaverHook(checkpoint_dir, save_steps=50, scaffold=scaffold))
else:
    creator = QuickWorker()
with tf.train.MonitoredSession(creator, hooks) as session:  # Mistake 8: it finalizes the graph
    while not session.should_stop():
        print(int(session.run(used)), flush=True)  # after the last ticket: the block ends
        time.sleep(0.01)

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. A port in use.** ★☆☆ Let a socket of your own listen at a port, and start a TensorFlow server
# there. Which error comes? Then write `free_port()`, which asks the system for a port that nobody
# uses.
#
# <details><summary>Hint</summary>
#
# `socket.create_server(("", 0))` listens at a free port; `getsockname()[1]` is its number.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def free_port():
#     with socket.create_server(("127.0.0.1", 0)) as probe:
#         return probe.getsockname()[1]  # free again, but somebody may take it before you do
#
# def serve(port):
#     tf.train.Server({"ps": ["127.0.0.1:%d" % port]}, job_name="ps", task_index=0)
#     return "serving"
#
# with socket.create_server(("", 0)) as other:
#     assert attempt(lambda: serve(other.getsockname()[1])) == "UnknownError"
# assert attempt(lambda: serve(free_port())) == "serving"
# ```
#
# (`new_cluster` in the folded cell holds its ports instead, so nobody can take them.)
#
# </details>

# %% [markdown]
# **2. The accuracy of an old copy.** ★★☆ A worker pulls `w` into a local copy, then the others make
# 300 updates. The worker reports the accuracy of its copy. Show by how much it is wrong, and fix it.
#
# <details><summary>Hint</summary>
#
# Build `model()`, and a second list of variables with `digits.variables("local")`. The pull is a
# group of `assign` ops.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     step, w, loss, update = model()
#     local = digits.variables("local")
#     pull = tf.group(*[mine.assign(theirs.read_value()) for mine, theirs in zip(local, w)])
#     accuracy = digits.accuracy(local, x_test, y_test)
#     with tf.Session() as session:
#         session.run(tf.global_variables_initializer())
#         session.run(pull)
#         for _ in range(300):
#             session.run(update)
#         reported = session.run(accuracy)
#         session.run(pull)  # the fix: pull, then test
#         assert reported < 0.3 and session.run(accuracy) > 0.95
# ```
#
# </details>

# %% [markdown]
# **Project. A drill.** ★★★ Prove that `train.py` survives. Start a ps and two workers with 1,500
# updates. Kill worker 1 in the middle and start a new one. Then kill the ps and start a new one. At
# the end show three things:
# - the new worker 1 has worked;
# - no ticket was used twice among those from which the final model comes;
# - the final model recognises 96% of the test digits.
#
# <details><summary>Hint</summary>
#
# 1. `start("train.py", cluster, "worker", 1, folder, 1500)` starts a task. Write `tickets(process)`,
#    which reads the numbers from `process.log` in the order of its sessions: `new session` separates
#    them. The last line may be half written.
# 2. Write `wait_until(condition, seconds)`, a loop with a deadline.
# 3. Wait until worker 1 has used 100 tickets. Kill it. Keep its tickets before you start the new
#    one: both write to the same log.
# 4. Wait until the new one has used 50, kill the ps, wait until it is dead, start the new one.
# 5. `finish` both workers.
# 6. The first ticket after the ps came back says where the restored model stood. Tickets from before
#    its death count only below that number: later ones died with the ps.
# 7. `tf.train.load_checkpoint(folder).get_tensor("w_0")` reads the final model.
#
# </details>

# %%
# Your answer to the project

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def wait_until(condition, seconds=60):
#     deadline = time.monotonic() + seconds
#     while not condition():
#         assert time.monotonic() < deadline, "waited %d s in vain" % seconds
#         time.sleep(0.05)
#
# def tickets(process):
#     """The tickets that a task has used: a list for each of its sessions."""
#     sessions = []
#     for line in process.log.read_text().splitlines(keepends=True):
#         if line == "new session\n":
#             sessions.append([])
#         elif line.endswith("\n") and line.strip().isdigit():
#             sessions[-1].append(int(line))
#     return sessions
#
# def used(process):
#     return sum(map(len, tickets(process)))
#
# updates, path = 1500, os.path.abspath("drill")
# cluster = new_cluster(ps=1, worker=2)
# ps = start("train.py", cluster, "ps", 0, path, updates)
# chief = start("train.py", cluster, "worker", 0, path, updates)
# worker = start("train.py", cluster, "worker", 1, path, updates)
#
# wait_until(lambda: used(worker) >= 100)
# worker.kill()
# worker.wait(10)
# (first_worker,) = tickets(worker)
# worker = start("train.py", cluster, "worker", 1, path, updates)
#
# wait_until(lambda: used(worker) >= 50)
# ps.kill()
# ps.wait(10)
# ps = start("train.py", cluster, "ps", 0, path, updates)
# finish(chief)
# finish(worker)
# stop(ps)
#
# chief_before, *chief_after = tickets(chief)  # the first session, and those after the ps came back
# worker_before, *worker_after = tickets(worker)
# assert worker_before and sum(worker_after, [])  # the new worker 1 has worked, with both ps
# after = sum(chief_after + worker_after, [])
# restored = min(after)
# before = [t for t in first_worker + chief_before + worker_before if t < restored]
# final = before + after
# assert len(set(final)) == len(final)  # no ticket twice
# # A ticket may be missing: its worker was killed, or lost its session, before it could print it.
# assert max(final) == updates - 1 and len(final) >= updates - 3
#
# reader = tf.train.load_checkpoint(path)
# with tf.Graph().as_default(), tf.Session() as session:
#     w = [tf.constant(reader.get_tensor("w_%d" % i)) for i in range(4)]
#     assert session.run(digits.accuracy(w, x_test, y_test)) >= 0.96
# ```
#
# What this does not prove: a checkpoint is not taken in one instant. While the `Saver` reads one
# variable after the other, a worker may push. So `w` in the file may be ahead of `step`; or behind,
# because a worker takes its ticket before its push. After a restore nobody makes that update.
# Synchronous training without backup workers avoids this: the next update needs the gradient of the
# chief, which is busy saving. See [Synchronous-SGD](../Synchronous-SGD/).
#
# </details>

# %%
# Stop what this notebook started.
thread.join(timeout=10)  # the servers of this process end with the kernel
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Sculley et al. 2015, [Hidden Technical Debt in Machine Learning
#   Systems](https://papers.nips.cc/paper/5656-hidden-technical-debt-in-machine-learning-systems): what
#   surrounds the model, and fails.
# - Kapoor and Narayanan 2022, [Leakage and the Reproducibility Crisis in ML-based
#   Science](https://arxiv.org/abs/2207.07048): test rows in the training data, in 17 fields.
# - [When something goes wrong](../docs/troubleshooting.md), and [HogWild](../HogWild/), a script
#   that survives the same kills.
#
# Next: [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb).
