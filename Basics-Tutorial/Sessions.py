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
# # Sessions: how processes begin and end together
# The processes of a training run start at different moments. One of them must make the model,
# exactly once, and the others must wait for it. In the end all must stop, and none may be left
# behind. TensorFlow has a class for each job; we meet them one at a time, each built on the last.
#
# After this notebook you can:
# - say what goes wrong when a worker begins too early, or initialises the model a second time;
# - let a chief make the model and the others wait, with SessionManager, Scaffold and session
#   creators;
# - end several threads together, with a Coordinator;
# - write a complete script for ps, chief and worker with MonitoredTrainingSession;
# - recognise a Supervisor in older programs, and say what has replaced it.
#
# **Before it:** [Parameter-Server](Parameter-Server.ipynb). **Time:** 50 minutes.

# %% [markdown]
# ## One initialises, the others wait
# The *chief* is the worker that also makes the model, usually worker 0.
#
# ![The beginning and the end of a run, time downwards. The worker asks the ps whether the model is ready, hears no, and sleeps. The chief initialises the variables on the ps, or restores a checkpoint. The worker asks again and hears yes. Both make updates until the ps answers OutOfRange: all are taken. Both report done, and then the ps ends, too.](../docs/figures/begin.svg)
#
# We build this up step by step. The folded cells load TensorFlow, and define `new_cluster`, `start`
# and `finish` (see [Servers](Servers.ipynb)) and the digits model.

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
# First all servers run in this process. Chief and worker are two clients with a graph each. Both
# graphs have the same variables on the ps: that is *between-graph replication*.

# %%
import digits

cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
configs = [tf.ConfigProto(  # a worker need not know the other; the time limit of a call is 20 s
    device_filters=["/job:ps", "/job:worker/task:%d" % k], operation_timeout_in_ms=20_000)
    for k in (0, 1)]
x, y, x_test, y_test = digits.load()
lr = 0.2

def model(k):
    """Worker k's step counter, loss and update; an update returns the step after it."""
    with tf.device(tf.train.replica_device_setter(
            cluster=cluster, worker_device="/job:worker/task:%d" % k)):
        step = tf.train.get_or_create_global_step()
        w = digits.variables()
        loss = digits.loss(w, *digits.batch(x, y, step))
        g = tf.gradients(loss, w)
        with tf.control_dependencies(g):
            push = tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])
        with tf.control_dependencies([push]):
            return step, loss, tf.identity(step.assign_add(1))

# %% [markdown]
# ## A plain session
# **Predict:** the worker makes an update before the chief has initialised the variables. Then the
# chief initialises them and makes 150 updates. Now the worker runs the initialiser, too, "to be
# safe". What does each of these do to the model?

# %%
chief_graph, worker_graph = tf.Graph(), tf.Graph()
with chief_graph.as_default():
    step, loss, update = model(0)
    initialise = tf.global_variables_initializer()
with worker_graph.as_default():
    _, _, workers_update = model(1)
    workers_initialise = tf.global_variables_initializer()
chief = tf.Session(servers[0].target, graph=chief_graph, config=configs[0])
worker = tf.Session(servers[1].target, graph=worker_graph, config=configs[1])

try:
    worker.run(workers_update)
except tf.errors.FailedPreconditionError as error:
    print("the worker, too early:", type(error).__name__)
chief.run(initialise)
losses = [chief.run([loss, update])[0] for _ in range(150)]
print("step before the worker initialises:", chief.run(step))
worker.run(workers_initialise)
print("step after it:                     ", chief.run(step))
losses += [chief.run([loss, update])[0] for _ in range(150)]

# %%
figure, axes = plt.subplots()
axes.plot(losses, color=BLUE, linewidth=1.2)
axes.axvline(149.5, color=RED, linestyle="--")
axes.text(172, 2.2, "the worker runs the initialiser", color=RED)
axes.set(xlabel="updates that the chief has made", ylabel="loss of the mini-batch", ylim=(0, None))
show(figure, "The chief's loss falls over 150 updates. Then the worker initialises, the loss jumps "
     "back to where it began, and the same curve follows once more.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first is an error, so you notice it. The second is worse: no error, and all that the chief has
# learned is gone. The curve repeats itself, because initial values and mini-batches are the same.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked: both halves of the curve are equal.
assert losses[150:] == losses[:150]

# %% [markdown]
# So there are two rules. *One* task makes the model. *All others* wait until it is there.
#
# ## SessionManager: make it, or wait for it
# A `SessionManager` has a method for each rule. `prepare_session` makes the model: from a
# checkpoint if there is one (a file with the values of all variables), otherwise by the
# initialiser. `wait_for_session` runs `ready_op` again and again until it says that no variable
# lacks a value.
#
# **Predict:** for a new variable `x_0` the worker waits one second, and the chief does not make it.
# Then the chief prepares it, and the worker waits again. What does each wait give?

# %%
chief.close()
worker.close()
with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
    x_0 = tf.get_variable("x_0", initializer=7.0)
    initialise = tf.global_variables_initializer()
    manager = tf.train.SessionManager(
        ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=0.2)
    try:
        manager.wait_for_session(servers[1].target, configs[1], max_wait_secs=1)
    except tf.errors.DeadlineExceededError as error:
        print("first wait: ", type(error).__name__)
    chief = manager.prepare_session(servers[0].target, initialise, config=configs[0])
    worker = manager.wait_for_session(servers[1].target, configs[1], max_wait_secs=10)
    print("second wait: a session, and x_0 is", worker.run(x_0))

# %% [markdown]
# <details><summary>Answer</summary>
#
# `DeadlineExceededError` after one second, then a session that can be used at once. The worker
# never touched the initialiser.
#
# </details>
#
# The worker looks, sleeps for `recovery_wait_secs`, and looks again. The default is 30 seconds, so
# a worker that asks one second too early sleeps for 30 seconds, and may miss a short run. We work
# around this default in `train.py` and in exercise 3.
#
# ## Scaffold and session creators
# What does a session need before training? An initialiser, an operation that says "ready", an
# object that saves and restores checkpoints (a `Saver`). A `Scaffold` holds these; it makes what
# you do not give. Then it *finalizes* the graph, so that no loop can make it grow unnoticed.
#
# A *session creator* has one method, `create_session`. `ChiefSessionCreator` prepares the model,
# `WorkerSessionCreator` waits for it. The point is that the method can be called again, when a
# session is lost.

# %%
def created(k):
    """A session of chief (0) or worker (1) by its creator, and its update."""
    with tf.Graph().as_default():
        _, _, update = model(k)
        scaffold = tf.train.Scaffold(
            init_fn=lambda scaffold, session: print("  init_fn runs in task", k))
        creator = [tf.train.ChiefSessionCreator, tf.train.WorkerSessionCreator][k]
        session = creator(scaffold, servers[k].target, configs[k]).create_session()
        try:
            tf.constant(1)
        except RuntimeError as error:
            print("  a new operation:", error)
    return session, update

print("chief")
chief, update = created(0)
print("  update number", chief.run(update))
print("worker")
worker, workers_update = created(1)
print("  update number", worker.run(workers_update), "by a", type(worker).__name__)

# %% [markdown]
# Only the chief ran `init_fn`, a function of yours that runs after the initialiser. The worker went
# on with the chief's model: its update has number 2. Both sessions are plain sessions still.
#
# ## Coordinator: several threads end together
# A training process can have several threads: one trains, one fills a queue, one saves. If one
# fails, the others must end, too.
#
# **Predict:** three threads count. Thread 1 fails when it has counted to 3. When do the other two
# end, and where does the error appear?

# %%
import threading

coordinator = tf.train.Coordinator()
counts = [0, 0, 0]

def count(k):
    with coordinator.stop_on_exception():  # an error in here asks all threads to stop
        while not coordinator.should_stop():
            counts[k] += 1
            if k == 1 and counts[k] == 3:
                raise ValueError("thread 1 failed")
            coordinator.wait_for_stop(timeout=0.01)  # sleeps, or wakes up when all must stop

threads = [threading.Thread(target=count, args=[k], daemon=True) for k in range(3)]
for thread in threads:
    thread.start()
try:
    coordinator.join(threads, stop_grace_period_secs=10)
except ValueError as error:
    print("join raised:", error)
print("threads that still run:", sum(thread.is_alive() for thread in threads))
assert counts[1] == 3

# %% [markdown]
# <details><summary>Answer</summary>
#
# Each ends when it next asks `should_stop`. `join` waits for all of them, and then raises in the
# main thread what the first thread that failed had raised. Without it the error would end one
# thread, and the main program would not know.
#
# </details>
#
# You rarely write this yourself, but each of the next two classes has a coordinator inside.
#
# ## Supervisor: all of it in one object, deprecated
# In programs of 2016 and 2017 you will find `tf.train.Supervisor`. It is a SessionManager, a
# Coordinator and a Saver in one. Its threads save checkpoints and write summaries at fixed
# intervals.

# %%
def supervised(updates):
    """The numbers of the updates that a chief makes under a Supervisor; then it saves."""
    with tf.Graph().as_default():
        step, _, update = model(0)
        supervisor = tf.train.Supervisor(  # 0: we save ourselves, not its thread
            logdir="supervised", global_step=step, summary_op=None, save_model_secs=0)
        with supervisor.managed_session(servers[0].target, configs[0]) as session:
            numbers = [int(session.run(update)) for _ in range(updates)]
            supervisor.saver.save(session, supervisor.save_path, step)
            return numbers

print("first run: ", supervised(4))
print("second run:", supervised(2))

# %% [markdown]
# The second run found the first one's checkpoint and went on. But the session is a plain one. If
# the ps dies, `session.run` raises, and the program ends. Its replacement puts a layer between your
# loop and the session.
#
# ## MonitoredTrainingSession, in three processes
# `tf.train.MonitoredTrainingSession` chooses the creator by `is_chief`, and wraps the session:
# - before and after each `run` it calls *hooks*, for instance to save ([Hooks](Hooks.ipynb));
# - when a ps is lost it makes a new session
#   ([Sessions-that-Recover](Sessions-that-Recover.ipynb));
# - on `OutOfRangeError` it ends its `with` block without an error.
#
# The last point is how all workers end together. `tf.count_up_to(step, limit)` adds 1 to `step` and
# returns the value before. At the limit it raises `OutOfRangeError` instead, and adds nothing. It
# is atomic: it runs on the ps, and no two workers can get the same number. We call that number a
# *ticket*. A worker takes its ticket first, and moves `w` after that, so `step` can be ahead of `w`
# for a moment; [Stale-Gradients](Stale-Gradients.ipynb) shows when that matters.
#
# The tasks also talk through two *queues* on the ps. `enqueue` puts a value into a `tf.FIFOQueue`;
# `dequeue_many(n)` takes `n` values out, and waits until there are so many. Each task makes the
# queues in its own graph. The same `shared_name` makes them one queue on the ps, as the same name
# does for a variable. Each worker puts one value in, its *token*: into `started` when it begins,
# into `done` when it has finished.
#
# One file is the program of all three tasks. Read it from top to bottom: it is a whole
# asynchronous training script but for checkpoints.

# %%
# %%writefile train.py
import json
import os
import time
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

config = json.loads(os.environ["TF_CONFIG"])
cluster, job, k = config["cluster"], config["task"]["type"], config["task"]["index"]
me, n = "/job:%s/task:%d" % (job, k), len(cluster["worker"])
server = tf.train.Server(cluster, job_name=job, task_index=k)
filters = tf.ConfigProto(device_filters=["/job:ps", me])
if job == "worker":  # a ps waits without a limit: training takes as long as it takes
    filters.operation_timeout_in_ms = 60_000
with tf.device("/job:ps/task:0"):  # queues live on the ps, as variables do
    started = tf.FIFOQueue(n, tf.int32, shapes=[[]], shared_name="started")
    done = tf.FIFOQueue(n, tf.int32, shapes=[[]], shared_name="done")

def serve():
    """The ps: it waits until each worker has put a token into the queue `done`."""
    with tf.Session(server.target, config=filters) as session:
        session.run(done.dequeue_many(n))
    print("ps: %d workers are done" % n)

def train():
    import digits  # here, because the ps needs no data
    x, y, x_test, y_test = digits.load()
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
        step = tf.train.get_or_create_global_step()
        w = digits.variables()
        g = tf.gradients(digits.loss(w, *digits.batch(x, y, step.read_value(), worker=k)), w)
        with tf.control_dependencies(g):
            ticket = tf.count_up_to(step, 500)  # 500 updates, all workers together
        with tf.control_dependencies([ticket]):
            push = tf.group(*[v.assign_sub(0.2 * d) for v, d in zip(w, g)])
        accuracy = digits.accuracy(w, x_test, y_test)
        token, all_started = started.enqueue(k), started.size()
        finished = done.enqueue(k)
    if k > 0:  # or MonitoredTrainingSession would look only every 30 seconds
        tf.train.SessionManager(
            ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=0.2
        ).wait_for_session(server.target, filters, max_wait_secs=60).close()

    updates = 0
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief=(k == 0), config=filters) as session:
        session.run(token)
        for _ in range(3000):  # a common start, if all come within a minute
            if session.run(all_started) == n:
                break
            time.sleep(0.02)
        while not session.should_stop():
            session.run(push)
            updates += 1
    with tf.Session(server.target, config=filters) as session:
        print("worker %d: %d updates, accuracy %.1f%%" % (
            k, updates, 100 * session.run(accuracy)))
        session.run(finished)

serve() if job == "ps" else train()

# %% [markdown]
# **Predict:** two workers run this file, and the limit is 500. How many updates do they make
# together: 500, 1,000, or something between? And each?

# %% tags=["measured"]
cluster = new_cluster(ps=1, worker=2)
tasks = [("worker", 1), ("ps", 0), ("worker", 0)]  # the order does not matter
processes = [start("train.py", cluster, job, index) for job, index in tasks]
printed = "".join(finish(process) for process in processes)
print(printed)

# %%
import re

updates = [int(number) for number in re.findall(r"(\d+) updates", printed)]
print("together:", sum(updates))
print("accuracy above 90%:", all(float(a) > 90 for a in re.findall(r"accuracy ([\d.]+)", printed)))
print("processes that still run:", sum(process.poll() is None for process in processes))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Exactly 500 together, because each update needs a ticket. How many each makes differs from run
# to run: a ticket goes to the worker that asks first.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert sum(updates) == 500 and min(updates) > 0

# %% [markdown]
# All three processes ended by themselves, with exit code 0. You can start them in any order: before
# the ps is there the workers' servers try to connect, and before the model is there worker 1 waits.
# A ps does not end by itself: `server.join()` waits for ever, so this one waits for the workers'
# tokens instead. In the examples it looks at a table on the ps from time to time: see `serve` in
# [hogwild.py](../HogWild/hogwild.py).
#
# | what is added | by | used by |
# | --- | --- | --- |
# | one makes or restores the model, the others wait | SessionManager | the creators, Supervisor |
# | threads that end together | Coordinator | MonitoredSession, Supervisor |
# | initialiser, ready operation, saver, with defaults | Scaffold | the creators |
# | a fresh session whenever one is lost | ChiefSessionCreator and WorkerSessionCreator | MonitoredSession |
# | hooks; a new session after a loss; an end by OutOfRange | MonitoredSession | MonitoredTrainingSession |
# | all of it, by `is_chief` | MonitoredTrainingSession | your script |

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise. `ps`, `servers` and `configs` still belong to
# the first cluster, which runs.
#
# **1. An end by OutOfRange.** ★☆☆ Count a local variable up to 3 in a `tf.train.MonitoredSession()`
# without arguments. Show that the loop ends after 3 calls, and that no error leaves the block.
#
# <details><summary>Hint</summary>
#
# `tf.get_local_variable("tickets", initializer=0)`, and a loop `while not session.should_stop()`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     tickets = tf.get_local_variable("tickets", initializer=0)
#     next_ticket, calls = tf.count_up_to(tickets, 3), 0
#     with tf.train.MonitoredSession() as session:
#         while not session.should_stop():
#             session.run(next_ticket)
#             calls += 1
# assert calls == 3
# ```
#
# </details>

# %% [markdown]
# **2. Tickets without `count_up_to`.** ★★☆ A colleague writes `step.assign_add(1)` instead, and
# lets each worker stop when it reads 10 or more. Show with two sessions on the first cluster that
# the two can make 11 updates. Which property of `count_up_to` prevents that?
#
# <details><summary>Hint</summary>
#
# Let the sessions act in this order: both read `step` when it is 9, then both make an update.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
#     step = tf.get_variable("step_2", initializer=9)
#     read, add = step.read_value(), step.assign_add(1)
#     ticket, back = tf.count_up_to(step, 10), step.assign(9)
#     first, second = [tf.Session(server.target, config=config)
#                      for server, config in zip(servers, configs)]
#     first.run(step.initializer)
#     seen = first.run(read), second.run(read)
#     for session, value in zip((first, second), seen):
#         if value < 10:
#             session.run(add)
#     assert first.run(read) == 11  # both had read 9
#     first.run(back)
#     assert first.run(ticket) == 9
#     try:  # count_up_to compares and adds in one step on the ps
#         second.run(ticket)
#         assert False
#     except tf.errors.OutOfRangeError:
#         assert first.run(read) == 10
# ```
#
# </details>

# %% [markdown]
# **3. A worker in a hurry.** ★★★ Write a session creator for workers that looks every 0.2 seconds
# instead of every 30, and pass it to `tf.train.MonitoredSession`. Test it with a variable that the
# chief initialises one second late.
#
# <details><summary>Hint</summary>
#
# Derive from `tf.train.SessionCreator`. Its `create_session` finalizes a `tf.train.Scaffold()` and
# returns `tf.train.SessionManager(...).wait_for_session(...)`. `threading.Timer` runs the chief's
# initialiser later.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# import time
#
# class HurriedWorker(tf.train.SessionCreator):
#     def create_session(self):
#         scaffold = tf.train.Scaffold().finalize()
#         manager = tf.train.SessionManager(
#             local_init_op=scaffold.local_init_op, ready_op=scaffold.ready_op,
#             ready_for_local_init_op=scaffold.ready_for_local_init_op, recovery_wait_secs=0.2)
#         return manager.wait_for_session(servers[1].target, configs[1], max_wait_secs=20)
#
# with tf.Graph().as_default():
#     with tf.device("/job:ps/task:0"):
#         late = tf.get_variable("late", initializer=1.0)
#     chief = tf.Session(servers[0].target, config=configs[0])
#     threading.Timer(1, chief.run, [late.initializer]).start()
#     began = time.monotonic()
#     with tf.train.MonitoredSession(HurriedWorker()) as session:
#         assert session.run(late) == 1.0
# assert 1 <= time.monotonic() - began < 20
# ```
#
# </details>

# %%
# Stop what this notebook started.
stop(*processes)  # they have ended; the servers of the first cluster end with the kernel
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 4.3 and 4.4: checkpoints, and how workers
#   are coordinated.
# -
#   [tf.compat.v1.train.MonitoredTrainingSession](https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/MonitoredTrainingSession)
#   in TensorFlow's reference.
# - [Distributed-Setup](../Distributed-Setup/): the same with plain sessions and with Supervisor.
#   [HogWild](../HogWild/): several workers.
#
# Next: [Classic-Mistakes-Variables](Classic-Mistakes-Variables.ipynb), the end of part one.
