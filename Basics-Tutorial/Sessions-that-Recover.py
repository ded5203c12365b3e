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
# # Sessions that recover
# The more machines a run has and the longer it takes, the more likely it is that one of them dies.
# TensorFlow's MonitoredSession goes on after such a loss. But by default it may begin again from
# nothing, roll the model back, or wait for ever, and it raises no error. We kill tasks and look.
#
# After this notebook you can:
# - say what is lost when a ps, the chief or a worker dies, and what each of the others does;
# - name the errors on which a MonitoredSession makes a new session, and those on which it does not;
# - see why a run without `checkpoint_dir` loses everything silently, and choose how often to save;
# - avoid the thirty seconds that a worker can sleep, and the rollback by a chief that comes back;
# - put a limit on a step that waits for a dead worker.
#
# **Before it:** [Sessions](Sessions.ipynb), [Synchronous-Replicas](Synchronous-Replicas.ipynb).
# **Time:** 65 minutes.

# %% [markdown]
# ## Who holds what
# | task | holds | when it dies |
# | --- | --- | --- |
# | ps | the only copy of its variables | nobody can go on, and the values are gone |
# | chief | nothing; it makes, restores and saves the model | the others train on; nobody saves |
# | worker | its place in the data; in AEASGD its own `w_k` | asynchronous: the others train on. Synchronous: they wait for it |
#
# (The others train on if *device filters* keep the workers apart: see [Servers](Servers.ipynb).)
#
# The examples survive all three, if something starts the dead task again. These are measured runs:
#
# ![Three timelines after a task was killed. A worker: the others train on, and it is back after some seconds. The chief: the others train on, and nobody saves meanwhile. A ps: no update for some seconds, then all go on from the last checkpoint, and some updates are lost.](../docs/figures/failures.svg)
#
# This notebook shows what TensorFlow does by itself, where that is not enough, and what the
# examples add. The folded cells are those of all notebooks.

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
# ## MonitoredSession: a new session when one is lost
# A MonitoredSession holds a session and its creator (see [Sessions](Sessions.ipynb)). Four things
# can come out of a `run`:
#
# ![A creator makes a session, and run uses it, with hooks around it. A result goes to your loop. OutOfRange ends the block. Aborted or Unavailable means that a task was lost: the creator makes a new session, and the run is repeated. Any other error is raised in your loop.](../docs/figures/recover.svg)
#
# The ps gets a process of its own, because we are going to kill it. A replacement stands by: it has
# loaded TensorFlow already, and starts its server as soon as a certain file exists.

# %%
# %%writefile server.py
import json
import os
import sys
import time
import tensorflow.compat.v1 as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
while not os.path.exists(sys.argv[1]):  # stands by
    time.sleep(0.02)
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
server.join()

# %%
import digits

cluster = new_cluster(ps=1, worker=3)
all_ps = [start("server.py", cluster, "ps", 0, "ps-may-start-%d" % i) for i in range(2)]
alive = 0  # which of them is the ps
pathlib.Path("ps-may-start-0").touch()

def replace_ps():
    """Kills the ps, as a power cut would, and lets the next one start at its address."""
    global alive
    all_ps[alive].kill()
    all_ps[alive].wait(timeout=10)
    alive += 1
    pathlib.Path("ps-may-start-%d" % alive).touch()

# %% [markdown]
# Chief (worker 0) and worker 1 have their servers in this notebook. Each builds the digits model in
# a graph of its own. `MonitoredTrainingSession` makes a MonitoredSession for its role. An `update`
# returns the global step: the number of updates that `w` has had. Each model has a name, so that
# several fit on one ps.

# %%
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]

def config(k, seconds=30):
    """Worker k knows only itself and the ps, and no call takes longer than so many seconds."""
    return tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % k],
                          operation_timeout_in_ms=1000 * seconds)

x, y, x_test, y_test = digits.load()
lr = 0.2

def model(k, name):
    """Worker k's loss and update of the model with this name, in the default graph."""
    place = tf.train.replica_device_setter(
        cluster=cluster, worker_device="/job:worker/task:%d" % k)
    with tf.variable_scope(name), tf.device(place):
        step = tf.train.get_or_create_global_step()
        w = digits.variables()
        loss = digits.loss(w, *digits.batch(x, y, step))
        g = tf.gradients(loss, w)
        with tf.control_dependencies(g):
            push = tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])
        with tf.control_dependencies([push]):
            return loss, tf.identity(step.assign_add(1))

def open_session(k, name, checkpoint_dir=None):
    """Worker k's loss and update, and its session; worker 0 is the chief."""
    with tf.Graph().as_default():
        loss, update = model(k, name)
        return loss, update, tf.train.MonitoredTrainingSession(
            servers[k].target, is_chief=(k == 0), config=config(k),
            checkpoint_dir=checkpoint_dir, save_checkpoint_steps=50)

# %% [markdown]
# ## The ps dies
# Two chiefs train a model each, side by side on the same ps. One has no `checkpoint_dir`, the other
# saves every 50 updates. Each makes 120 updates. Then the ps is killed and replaced, and both go
# on.
#
# **Predict:** what does each chief's first call of `run` after the replacement give: an error, 121,
# or another number?

# %%
chiefs = {"without checkpoints": open_session(0, "without"),
          "with checkpoints": open_session(0, "with", checkpoint_dir="saved")}
steps, losses = [{name: [] for name in chiefs} for _ in range(2)]
for call in range(200):
    if call == 120:
        replace_ps()
    for name, (loss, update, chief) in chiefs.items():
        loss_now, step_now = chief.run([loss, update])
        losses[name].append(loss_now)
        steps[name].append(int(step_now))

for name, (_, _, chief) in chiefs.items():
    print("%-20s ... %d, the ps is replaced, %d ... %d" % (
        name, steps[name][119], steps[name][120], steps[name][199]))
    chief.close()

# %% jupyter={"source_hidden": true}
assert [steps[name][120] for name in chiefs] == [1, 101]
figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
for name, color in zip(chiefs, [RED, BLUE]):
    for part in slice(0, 120), slice(120, 200):
        axes[0].plot(range(200)[part], steps[name][part], color=color, linewidth=2)
        axes[1].plot(range(200)[part], losses[name][part], color=color, linewidth=1.2)
axes[0].hlines([50, 100, 150], 0, 200, color=GRAY, linestyle=":", linewidth=1)
axes[0].text(203, 150, "saved at\n50, 100, 150", color=GRAY, va="top")
axes[0].text(203, 183, "with checkpoints", color=BLUE, va="center")
axes[0].text(203, 80, "without", color=RED, va="center")
for each in axes:
    each.axvline(119.5, color="black", linestyle="--", linewidth=1)
axes[0].text(117, 190, "the ps is replaced", ha="right", va="center")
axes[0].set(ylabel="global step", xlim=(0, 200), ylim=(0, 205))
axes[1].set(xlabel="calls of run", ylabel="loss of the mini-batch", ylim=(0, None))
show(figure, "Above, the global step against the calls of run. It rises to 120 until the ps is "
     "replaced. With checkpoints it goes on from 101, without from 1. Below, the loss: with "
     "checkpoints it stays low, without it jumps back to its first value.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# No error in either case. With checkpoints the call gives 101. The chief restored step 100, so
# updates 101 to 120 are lost, and it makes them again. Without checkpoints it gives 1: the chief
# initialised the variables on the new ps. Only the step and the loss betray that 120 updates are
# gone.
#
# </details>
#
# A plain session would have raised `UnavailableError` or `AbortedError`, as in
# [Servers](Servers.ipynb), and ended the program.
#
# The global step can go *back*. Code that counts on its growth breaks. A learning-rate schedule
# repeats a part, and two lines of your log have the same step. Even a staleness (see
# [Stale-Gradients](Stale-Gradients.ipynb)) can be negative once.
#
# **How often should you save?** On average half an interval is lost with each failure. Saving more
# often costs time, too. If a checkpoint takes $\delta$ seconds and a failure comes every $M$
# seconds on average, the best interval is roughly
#
# $$T \approx \sqrt{2\, \delta\, M}$$
#
# (Young 1974). Half a second and a failure a day: about 300 s between checkpoints. Exercise 2
# checks the formula.
#
# ## Which errors count as a loss
# The creator is called again after `AbortedError` and `UnavailableError`, and after no other error.
# We count the calls. A hook raises each error once, in place of the run.

# %%
class CountingCreator(tf.train.ChiefSessionCreator):
    """It makes the chief's session and counts how often."""
    calls = 0

    def create_session(self):
        self.calls += 1
        return super().create_session()

class RaiseOnce(tf.train.SessionRunHook):
    """It raises an error before the first run."""
    def __init__(self, kind):
        self.error = kind(None, None, "raised by a hook")

    def before_run(self, run_context):
        error, self.error = self.error, None
        if error:
            raise error

for kind in (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.OutOfRangeError,
             tf.errors.DeadlineExceededError, tf.errors.InvalidArgumentError):
    with tf.Graph().as_default():
        one = tf.constant(1)
        creator, outcome = CountingCreator(), "the block ends, no result"
        try:
            with tf.train.MonitoredSession(creator, [RaiseOnce(kind)]) as session:
                outcome = "result %d" % session.run(one)
        except tf.errors.OpError:
            outcome = "the error reaches the loop"
    print("%-22s %-28s sessions made: %d" % (kind.__name__, outcome, creator.calls))

# %% [markdown]
# `DeadlineExceededError` is what `operation_timeout_in_ms` raises. So a MonitoredSession does *not*
# recover when a ps is alive and only slow: the error ends your loop. Choose a limit that is longer
# than any pause that you want to survive (exercise 3).
#
# ## Thirty seconds
# After the loss of a ps every worker makes a new session. The chief restores. Each of the others
# looks whether the model is ready. If it is not, the worker sleeps for `recovery_wait_secs` and
# looks again. In MonitoredTrainingSession that is 30 seconds, and no argument changes it.
#
# We measure how long a worker waits for a model that is ready after 0.5 seconds.

# %% tags=["measured"]
import threading
import time

for recovery_wait_secs in 0.1, 0.4, 1.2:
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            late = tf.get_variable("late_%g" % recovery_wait_secs, initializer=1.0)
        manager = tf.train.SessionManager(
            ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=recovery_wait_secs)
        with tf.Session(servers[0].target, config=config(0)) as chief:
            timer = threading.Timer(0.5, chief.run, [late.initializer])
            began = time.monotonic()
            timer.start()
            manager.wait_for_session(servers[1].target, config(1), max_wait_secs=20).close()
            print("recovery_wait_secs = %3.1f: waited %.1f s" % (
                recovery_wait_secs, time.monotonic() - began))
            timer.join()

# %% [markdown]
# The worker begins at its first look after the model is ready. With 30 s a short run is over before
# the worker comes back.
#
# ## A chief that comes back
# Now the ps lives, and the *chief* dies. It has saved at step 50 and 100, and `w` is at step 130
# when it is killed. A worker makes 20 more updates. Then a new chief process starts.
#
# To a ps a killed chief is a client that sends nothing any more. So we need no second process: we
# leave the first session as it is, without `close`, and open a new one.
#
# **Predict:** what is the global step of the new chief's first update?

# %%
_, update, chief = open_session(0, "returning", "returns")
for _ in range(130):
    step_now = chief.run(update)
print("the chief dies at step:   ", step_now)

_, workers_update, worker = open_session(1, "returning")
for _ in range(20):
    step_now = worker.run(workers_update)
print("the worker trains on to:  ", step_now)

_, update, new_chief = open_session(0, "returning", "returns")
print("the new chief's update is:", new_chief.run(update))
print("the worker's next one is: ", worker.run(workers_update))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 101. The chief's creator restores the newest checkpoint, although the ps holds a newer model. `w`
# is shared, so the worker goes on from the old values, too, and notices nothing. 50 updates are
# lost. Without a `checkpoint_dir` it would be worse: the new chief would initialise, and all would
# be lost.
#
# </details>
#
# ## A creator that does better
# A creator of our own settles both problems:
# - the chief makes or restores the model only if the ps has none;
# - the others look every 0.02 seconds.

# %%
class CarefulCreator(tf.train.SessionCreator):
    """The chief makes or restores the model if the ps has lost it; the others wait."""
    def __init__(self, k, checkpoint_dir):
        self.k, self.checkpoint_dir = k, checkpoint_dir
        self.scaffold = tf.train.Scaffold()

    def create_session(self):
        scaffold = self.scaffold.finalize()
        target, settings = servers[self.k].target, config(self.k)
        chief = tf.train.ChiefSessionCreator(scaffold, target, settings, self.checkpoint_dir)
        worker = tf.train.WorkerSessionCreator(scaffold, target, settings)
        deadline = time.monotonic() + 60
        with tf.Session(target, config=settings) as session:
            while len(session.run(scaffold.ready_for_local_init_op)):  # names without a value
                if self.k == 0:
                    return chief.create_session()
                assert time.monotonic() < deadline, "the chief made no model in 60 s"
                time.sleep(0.02)
        return worker.create_session()

with tf.Graph().as_default():
    _, update = model(0, "returning")
    saves = tf.train.CheckpointSaverHook("returns", save_steps=50)
    careful_chief = tf.train.MonitoredSession(CarefulCreator(0, "returns"), [saves])
print("before:", worker.run(workers_update), "- the new chief's update is:",
      careful_chief.run(update))

# %% [markdown]
# Nothing was lost. The same creator restores the checkpoint when the ps has died, because then the
# new ps has no values. The examples do the same around plain sessions: see `prepare` in
# [hogwild.py](../HogWild/hogwild.py). [Fault-Tolerance](../Operations/Fault-Tolerance/) kills every
# task in turn to test it.
#
# ## A synchronous step, and a worker that is dead
# In synchronous training each step waits for all gradients (see
# [Synchronous-Replicas](Synchronous-Replicas.ipynb)). Accumulators on the ps collect them, and
# `take_grad(n)` gives the mean when `n` have come. The queue `go` tells worker 2 that a step
# begins. Here worker 2 is a process of its own. Chief and worker use the same file: read `take`
# and `work`.

# %%
# %%writefile synchronous.py
import json
import os
import digits
import tensorflow.compat.v1 as tf

def build(cluster, k):
    """Operations of worker k: its gradient goes in; a step takes the mean of n; the queue `go`."""
    x, y, _, _ = digits.load()
    with tf.device(tf.train.replica_device_setter(
            cluster=cluster, worker_device="/job:worker/task:%d" % k)):
        step = tf.train.get_or_create_global_step()
        w = digits.variables()
        version = step.read_value()
        g = tf.gradients(digits.loss(w, *digits.batch(x, y, version, worker=k)), w)
    with tf.device("/job:ps/task:0"):
        sums = [tf.ConditionalAccumulator(tf.float32, v.shape, shared_name="sum_%d" % i)
                for i, v in enumerate(w)]
        go = tf.FIFOQueue(1, tf.int32, shapes=[[]], shared_name="go")
        give = tf.group(*[a.apply_grad(d, version) for a, d in zip(sums, g)])

        def take(n):
            means = [a.take_grad(n) for a in sums]
            with tf.control_dependencies(means):
                move = tf.group(*[v.assign_sub(0.2 * mean) for v, mean in zip(w, means)])
            with tf.control_dependencies([move]):
                return tf.identity(step.assign_add(1))
        return give, take, go.enqueue(0), go.dequeue()

def work():
    """Worker k gives a gradient for each token in the queue, until it is killed."""
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, k = config["cluster"], config["task"]["index"]
    server = tf.train.Server(cluster, job_name="worker", task_index=k)
    filters = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % k])
    give, _, _, wait_for_go = build(cluster, k)
    with tf.Session(server.target, config=filters) as session:
        while True:
            session.run(wait_for_go)
            session.run(give)

if __name__ == "__main__":
    work()

# %% [markdown]
# **Predict:** after 20 steps we kill worker 2. The chief gives its gradient and asks for the mean
# of two, with a limit of one second (`operation_timeout_in_ms`). Which error comes, and which task
# does it name? Then the chief asks for the mean of *one*: is its own gradient still there?

# %%
import synchronous

process = start("synchronous.py", cluster, "worker", 2)
with tf.Graph().as_default():
    give, take, go, _ = synchronous.build(cluster, 0)
    take_two, take_one = take(2), take(1)
    patient = tf.train.MonitoredTrainingSession(servers[0].target, config=config(0, seconds=60))
    hasty = tf.Session(servers[0].target, config=config(0, seconds=1))

    for _ in range(20):
        patient.run(go)    # worker 2 may begin
        patient.run(give)  # the chief's own gradient
        step_now = patient.run(take_two)
    print("step", step_now)
    process.kill()
    process.wait(timeout=10)
    patient.run(go)
    patient.run(give)
    try:
        hasty.run(take_two)
    except tf.errors.DeadlineExceededError as error:
        print("worker 2 is dead:", type(error).__name__)
    print("with the gradient of the chief alone: step", patient.run(take_one))

# %% [markdown]
# <details><summary>Answer</summary>
#
# `DeadlineExceededError` after one second, and it names no task. Without a limit the call waits for
# ever, and silently, because nothing has failed: only a gradient does not come. The call that failed
# took nothing, because no accumulator had two gradients. So the chief's gradient is still there, and
# makes step 21.
#
# </details>
#
# A session cannot repair that: it does not know that a worker is missing. There are three remedies:
# - **a limit**: the step fails after some time, and the run starts again from a checkpoint. The
#   examples have `--step-timeout`, and their error names the missing worker;
# - **backup workers**: the step needs fewer gradients than there are workers, as in the last line
#   above;
# - **a supervisor of processes**, such as Kubernetes or `tfrun`, the launcher of this repository.
#   It starts the worker again, and the new one gives the missing gradient. (In our program it cannot
#   if the old one had taken the only token.)
#
# ## What to remember
# | what happens | TensorFlow by itself | the examples |
# | --- | --- | --- |
# | a ps is lost, no `checkpoint_dir` | begins again from nothing, silently | always have a directory |
# | a ps is lost, with checkpoints | the chief restores; the step goes back | the same |
# | a worker looks before the chief | sleeps 30 s | looks every 0.02 s |
# | the chief comes back | rolls a living model back | restores only if values are missing |
# | a synchronous worker is dead | waits for ever | `--step-timeout`, backup workers |
# | a call takes too long | waits for ever | `operation_timeout_in_ms` |

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. A worker dies.** ★☆☆ In asynchronous training, how many updates are lost when a worker dies
# between two calls of `run`? Show it with `careful_chief` and `worker`: close the worker's session
# after its update, and let the chief go on.
#
# <details><summary>Hint</summary>
#
# Compare the global step of the worker's last update with that of the chief's next one.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# last = worker.run(workers_update)
# worker.close()
# # None: all that lasts is on the ps. The worker loses only the gradient that it was computing.
# assert careful_chief.run(update) == last + 1
# ```
#
# </details>

# %% [markdown]
# **2. How often to save.** ★★☆ Simulate a run. After every `interval` seconds of work a checkpoint
# takes `cost = 2` seconds. Failures come at random, one in 3,600 seconds on average, and each loses
# the work since the last checkpoint. Which interval loses least? Compare it with Young's formula.
#
# <details><summary>Hint</summary>
#
# Draw the times between failures by `np.random.RandomState(0).exponential(3600, 20_000)`. In a time
# `t` between two failures, `t // (interval + cost)` checkpoints are completed. Each saves
# `interval` seconds of work.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# cost, mean = 2, 3600
# times = np.random.RandomState(0).exponential(mean, 20_000)
# intervals = np.arange(20, 401, 10)
# lasting = [np.sum(times // (interval + cost)) * interval / np.sum(times)
#            for interval in intervals]
# best, young = intervals[np.argmax(lasting)], (2 * cost * mean) ** 0.5
# print("best %d s, Young's formula %.0f s, work that lasts %.1f%%" % (
#     best, young, 100 * max(lasting)))
# assert abs(young - 120) < 1 and abs(best - young) < 40
# # Around the best the curve is flat: half or twice the interval costs little more.
# assert lasting[list(intervals).index(60)] > max(lasting) - 0.02
# ```
#
# </details>

# %% [markdown]
# **3. A ps that is only slow.** ★★★ Suspend the ps for one second (`signal.SIGSTOP`, then
# `signal.SIGCONT`) while the chief makes an update: once with a limit of 30 seconds for a call,
# once with 0.3 seconds. What does each `run` give? Do you know afterwards whether `w` has moved?
#
# <details><summary>Hint</summary>
#
# `all_ps[alive].send_signal(signal.SIGSTOP)`, and a `threading.Timer` for SIGCONT. For the short
# limit open a plain `tf.Session`, and set `operation_timeout_in_ms` of its config to 300. A second
# session with a long limit tells the step before.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# import signal
#
# def update_while_suspended(seconds):
#     settings = config(0)
#     settings.operation_timeout_in_ms = int(1000 * seconds)
#     with tf.Graph().as_default():
#         _, update = model(0, "returning")
#         with tf.Session(servers[0].target, config=settings) as session, \
#                 tf.Session(servers[0].target, config=config(0)) as patient:
#             before = patient.run(update)
#             all_ps[alive].send_signal(signal.SIGSTOP)
#             timer = threading.Timer(1, all_ps[alive].send_signal, [signal.SIGCONT])
#             timer.start()
#             try:
#                 return int(session.run(update) - before)
#             except tf.errors.DeadlineExceededError as error:
#                 return type(error).__name__
#             finally:
#                 timer.join()
#
# assert update_while_suspended(30) == 1  # a second late, and nothing is lost
# assert update_while_suspended(0.3) == "DeadlineExceededError"
# # The error does not say whether the update was made: read the step. A MonitoredSession would not
# # go on after this error. A limit that is too short turns a pause into the end of the run.
# ```
#
# </details>

# %%
# Stop what this notebook started.
stop(*all_ps[alive:])  # the servers in this notebook end with the kernel
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Young 1974, [A first order approximation to the optimum checkpoint
#   interval](https://dl.acm.org/doi/10.1145/361147.361115).
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 4.3: fault tolerance; 4.4: synchronous
#   training with backup workers.
# - [Fault-Tolerance](../Operations/Fault-Tolerance/): faults in real runs, what was promised and
#   what happened. [Troubleshooting](../docs/troubleshooting.md): the errors.
#
# Next: [Hooks](Hooks.ipynb), which act before and after each call of `run`.
