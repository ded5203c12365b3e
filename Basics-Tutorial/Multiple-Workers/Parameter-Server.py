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
# # Three notebooks: Parameter-Server
# Three notebooks, three kernels, three processes. This one is the ps; [Worker-1](Worker-1.ipynb)
# and [Worker-2](Worker-2.ipynb) train its parameters at the same time. In
# [Multiple-Workers](../Multiple-Workers.ipynb) the workers were programs in the background. Here
# you can look into each process while it runs.
#
# After this notebook you can:
# - let processes that do not know each other's ports find each other;
# - let three processes begin and end together with barriers;
# - say what a ps does while others train, and watch a training from outside;
# - read from notes on the ps who pushed when, and how stale each push was.
#
# **Before it:** [Multiple-Workers](../Multiple-Workers.ipynb). **Time:** 20 minutes.

# %% [markdown]
# ## How to run the three
# Open all three notebooks and choose *Run → Run All Cells* in each, in any order, within three
# minutes. To do the exercises, stop before the last code cell: select it, and choose *Run → Run All
# Above Selected Cell*. The last cell ends the cluster for all.
#
# ![Three notebooks as three rows, time from left to right. Each starts at another time and waits until all three are there: the barrier met. At the barrier begin all three meet again. Then Worker-1 and Worker-2 pull, compute and push at the same time, at a pace of their own, while Parameter-Server holds w. At the barrier end all three meet once more.](../../docs/figures/kernels.svg)
#
# Each server must know the addresses of all three before it starts. A launcher would pass them in
# TF_CONFIG. Here nobody launches the notebooks but you, so they have to find each other. Each
# writes its address into a file in the folder `.cluster`, and locks that file. The operating system
# takes the lock away when the kernel ends, so a file without a lock is left over from an earlier
# run, and the notebooks ignore it. The folded cell `meeting` has the code.

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
# ## What is shared
# The next cell is the same in all three notebooks, so it gives all three the same variables: `w`,
# the counter of tickets, and for each ticket a note who used it and how stale the push was.
#
# The queues make three barriers, `met`, `begin` and `end`. A worker puts a token into `begin_ready`
# and waits for one from `begin_go`. The ps waits for two tokens in the first, and then puts two
# into the second.

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

# %% [markdown]
# ## Begin together
# All three meet, and the server starts. This notebook gives the variables their first values. Only
# then does it open the first barrier, `met`, so no worker pulls too early.

# %%
def open_barrier(name):
    """Waits for both workers, and then lets both go on."""
    session.run(queues[name + "_ready"].dequeue_many(2), options=barrier_wait)
    session.run(queues[name + "_go"].enqueue_many([[True, True]]))

with meeting("Parameter-Server", seconds=180) as cluster:
    server = tf.train.Server(cluster, job_name="ps", task_index=0)
    session = tf.Session(server.target, config=tf.ConfigProto(
        device_filters=["/job:ps"], operation_timeout_in_ms=60_000))
    session.run(tf.global_variables_initializer())
    open_barrier("met")

# %% [markdown]
# At the second barrier, `begin`, the training begins. What does this notebook have to do for it?
# The next cell only watches. It reads `step` and the accuracy of `w`, sleeps for 50 milliseconds,
# and reads `step` again, until all tickets are taken.
#
# **Predict:** does `step` grow while the Python of this notebook sleeps?

# %%
_, _, x_test, y_test = digits.load()
test_accuracy = digits.accuracy(w, x_test, y_test)

open_barrier("begin")
watched = []  # (step before the sleep, step after it, accuracy)
for _ in range(1200):
    before, accuracy = session.run([step, test_accuracy])
    time.sleep(0.05)
    after = session.run(step)
    watched.append((before, after, accuracy))
    if after == UPDATES:
        break
print("step has grown in my sleep:", any(after > before for before, after, _ in watched))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Yes. The server has threads of its own, which run TensorFlow's C++ and need no Python. A ps is a
# server and nothing else: it holds variables, and applies what the workers push.
#
# </details>
#
# So this notebook is free to watch. A process that only tests is called an *evaluator*. This is
# what it saw:

# %% tags=["measured"]
steps, _, accuracies = zip(*watched)
figure, axes = plt.subplots(figsize=(7, 3))
axes.plot(steps, accuracies, ".-", color=GREEN)
axes.set(xlabel="updates of w, by both workers", ylabel="accuracy on the test rows", ylim=(0, 1))
show(figure, "The accuracy of w on the test rows, as this notebook saw it during the training. It "
     "rises steeply at first, and then slowly.")

# %% [markdown]
# ## End together
# Now the third barrier, `end`. After it all pushes are done.
#
# **Predict:** what is certain about the notes on the ps? Do the pushes of worker 1 and worker 2
# alternate: 1, 2, 1, 2?

# %%
open_barrier("end")
who, late = session.run([pushed_by, staleness])
print("tickets taken:                  ", session.run(step))
print("pushes with a note:             ", np.sum(who > 0))
print("both workers have pushed:       ", set(who) == {1, 2})
print("accuracy on the test rows > 0.9:", session.run(test_accuracy) > 0.9)

# %% tags=["measured"]
some = np.arange(100, 160)
figure, axes = plt.subplots(figsize=(7.5, 2.4))
for number, color in (1, BLUE), (2, ORANGE):
    own = some[who[some] == number]
    axes.plot(own, late[own], "o", color=color, label="pushed by worker %d" % number)
axes.set(xlabel="ticket", ylabel="staleness", yticks=np.arange(late[some].max() + 1),
         ylim=(-0.4, late[some].max() + 0.4))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Sixty pushes in the order of their tickets. The colour says which worker pushed, the "
     "height how stale the push was.")
print("worker 1 made %d pushes, worker 2 made %d" % (np.sum(who == 1), np.sum(who == 2)))
print("in %.0f%% of the cases the next push is the other worker's" % (
    100 * np.mean(np.diff(who) != 0)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# There are 400 pushes, each with one note. They alternate often, because both workers are about
# equally fast and each is busy for a while after its push. But nothing makes them alternate. Look
# for two neighbours of one colour: there the other worker was slow.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: each push has one note, and both workers have pushed.
assert set(who) == {1, 2} and len(who) == session.run(step) == UPDATES

# %% [markdown]
# ## What is not shared
# Each worker has a local copy of `w`. Its four variables are called `w_k_0` to `w_k_3` in both.
#
# **Predict:** this notebook builds `w_k_0` too, on the ps, and does not initialise it. How many
# variables of this name does the cluster have then, and how many of them have a value?

# %%
with tf.device("/job:ps/task:0"):
    namesake = tf.get_variable("w_k_0", [64, 32])
try:
    session.run(namesake)
    print("on the ps: a value")
except tf.errors.FailedPreconditionError:
    print("on the ps: no value, FailedPreconditionError")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Three, and two of them have a value. The same name on three tasks is three variables. Each worker
# has initialised its own; nobody has initialised the one on the ps.
#
# </details>

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise. Then go on with [Worker-1](Worker-1.ipynb).
#
# **1. A second client.** ★☆☆ Read `w_0` in a graph of its own, through a new session. Which two
# things must be right for it to be the same variable?
#
# <details><summary>Hint</summary>
#
# Do not initialise it. Give the session the same device filters.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# only_ps = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=20_000)
# with tf.Graph().as_default(), tf.device("/job:ps/task:0"):  # the device
#     same = tf.get_variable("w_0", [64, 32])                  # and the name
#     with tf.Session(server.target, config=only_ps) as second:
#         assert np.array_equal(second.run(same), session.run(w[0]))
# ```
#
# </details>

# %% [markdown]
# **2. Read the notes.** ★★☆ A push with ticket t and staleness s was computed from version t − s.
# Show that each worker pulled after its own previous push: its version is always above its previous
# ticket.
#
# <details><summary>Hint</summary>
#
# The tickets of worker 1 are `np.flatnonzero(who == 1)`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# for number in 1, 2:
#     tickets = np.flatnonzero(who == number)
#     versions = tickets - late[tickets]
#     assert np.all(versions[1:] > tickets[:-1])
#     # So all that makes a push stale was pushed by the other worker.
# ```
#
# </details>

# %% [markdown]
# The servers end with their kernels, and a worker without its ps would fail, so the ps waits until
# both workers have said goodbye, for ten minutes at most.

# %%
# Stop what this notebook started.
session.run(queues["goodbye"].dequeue_many(2), options=tf.RunOptions(timeout_in_ms=600_000))
session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu):
#   servers, workers, and a scheduler that knows who is there.
# - [HogWild](../../HogWild/): the same training as a script, started by a launcher.
#
# Next: [Worker-1](Worker-1.ipynb).
