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
# # Classic mistakes: synchrony
# Synchronous training has one promise: all workers compute at the same `w`, and each counts once.
# Programs break it without an error message. This notebook shows eight ways to break it. For each a
# number shows the damage; then we repair it. It ends part three with a project.
#
# After this notebook you can:
# - let a worker wait until the chief has initialised `w`;
# - tell N gradients from one gradient of each of N workers, and count the tokens that this needs;
# - read a counter that is still true when you use it;
# - find sums, orders and unequal shards that spoil an all-reduce;
# - say whose statistics a batch normalisation uses;
# - build synchronous training with a backup worker, and prove it equal to one worker.
#
# **Before it:** [Synchronous-Replicas](Synchronous-Replicas.ipynb),
# [Ring-AllReduce](Ring-AllReduce.ipynb), [SGD-by-Experiment](SGD-by-Experiment.ipynb).
# **Time:** 110 minutes, and 90 for the project.

# %% [markdown]
# ![A synchronous step in five stages, with the mistakes of each. Start: 9, a worker that does not wait. Data: 15, shards of different sizes. Gradient: 16, statistics of one worker's data. Mean: 10, gradients from anyone; 13, the sum; 14, another order. Step: 11, a token too many; 12, an old count.](../docs/figures/mistakes-sync.svg)
#
# Mistakes 9 to 12 happen at a parameter server (ps), 13 to 16 with an all-reduce. In a real cluster
# the order of events is random. Here we script it, so every run is the same.
#
# The next three cells are folded: what every notebook needs, the start of other processes, and the
# digits with their small network.

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
# One ps and two workers run as servers in this notebook. No call waits for more than 20 seconds.

# %%
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
import digits

x, y, x_test, y_test = digits.load()
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
waits = tf.ConfigProto(operation_timeout_in_ms=20_000)
threads = ThreadPoolExecutor(2)  # for two calls at once
LR = 0.1

def variables_on_ps(k):
    """For tf.device: variables on the ps, everything else on worker k."""
    return tf.train.replica_device_setter(
        cluster=cluster, worker_device="/job:worker/task:%d" % k)

# %% [markdown]
# ## Mistake 9: a worker that does not wait for the start
# Both workers run the same script, and it begins with
# `session.run(tf.global_variables_initializer())`. Worker 1 is up first: it initialises `w`, and
# pulls a copy `w_k`. Then the chief, worker 0, comes and does the same.

# %%
Model = namedtuple("Model", "graph w w_k init_global init_local")

def model(k, name):
    """Three random numbers w on the ps, and a copy on worker k."""
    with tf.Graph().as_default() as graph, tf.device(variables_on_ps(k)):
        tf.set_random_seed(k)
        w = tf.get_variable(name, [3], initializer=tf.random_normal_initializer())
        with tf.device("/job:worker/task:%d" % k):
            w_k = tf.get_local_variable(name + "_k", initializer=w.read_value())
        return Model(graph, w, w_k,
                     tf.global_variables_initializer(), tf.local_variables_initializer())

models = [model(k, "each") for k in (0, 1)]
sessions = [tf.Session(servers[k].target, models[k].graph, waits) for k in (0, 1)]
for k in 1, 0:
    sessions[k].run(models[k].init_global)
    sessions[k].run(models[k].init_local)  # w_k <- w
print("w on the ps:     ", np.round(sessions[0].run(models[0].w), 2))
print("worker 1's copy: ", np.round(sessions[1].run(models[1].w_k), 2))
assert not np.allclose(sessions[0].run(models[0].w), sessions[1].run(models[1].w_k))

# %% [markdown]
# The first gradient of worker 1 belongs to a `w` that no longer exists. If worker 1 came late
# instead, its initialiser would erase what the others have learned so far.
#
# **Corrected:** only the chief initialises `w`. A `SessionManager` lets the other workers wait
# until no global variable is uninitialised, and only then runs their local initialiser.

# %%
chief, other = model(0, "chief_only"), model(1, "chief_only")
with other.graph.as_default():
    manager = tf.train.SessionManager(
        local_init_op=other.init_local, ready_op=tf.report_uninitialized_variables(),
        ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()),
        recovery_wait_secs=0.2)  # how often it looks; the default is 30 s
try:
    manager.wait_for_session(servers[1].target, config=waits, max_wait_secs=1)
except tf.errors.DeadlineExceededError:
    print("before the chief: worker 1 waits")
tf.Session(servers[0].target, chief.graph, waits).run(chief.init_global)
session = manager.wait_for_session(servers[1].target, config=waits, max_wait_secs=20)
w, w_k = session.run([other.w, other.w_k])
print("after the chief:  worker 1's copy is w:", np.array_equal(w, w_k))
assert np.array_equal(w, w_k)

# %% [markdown]
# With an all-reduce there is no ps to hold the one `w`, and the mistake is to start each worker
# with random numbers of its own. The mean of the gradients moves all copies equally, so they keep
# their distance for ever (exercise 2). DDP and `MultiWorkerMirroredStrategy` broadcast the values
# of worker 0 first. With Horovod you call the broadcast yourself.
#
# ## Mistake 10: N gradients, from any worker
# `tf.train.SyncReplicasOptimizer` makes a step when it has `replicas_to_aggregate` gradients. Two
# workers whose losses pull in opposite directions show whose gradients it has:
# $\frac{1}{2}(w - 100)^2$ for worker 0 and $\frac{1}{2}(w + 100)^2$ for worker 1. At 0 the mean of
# one gradient from each is 0, so `w` must stay there.
#
# The next cell makes a worker as the optimizer's hook would. `train` gives a gradient and waits for
# a token. `make_step` is what the chief's thread runs again and again.

# %%
SyncWorker = namedtuple("SyncWorker", "session train make_step state")

def sync_worker(k, first_tokens):
    """Worker k of two, with steps of 2 gradients; the chief puts first_tokens into the queue."""
    with tf.Graph().as_default() as graph, tf.device(variables_on_ps(k)):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=0.0)
        loss = (w - [100.0, -100.0][k]) ** 2 / 2
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(LR), replicas_to_aggregate=2, total_num_replicas=2)
        train = optimizer.minimize(loss, global_step=step)
        make_step = optimizer.get_chief_queue_runner().enqueue_ops[0]
        optimizer.ready_for_local_init_op.mark_used()  # or TensorFlow complains

        session = tf.Session(servers[k].target, graph, waits)
        is_chief = k == 0
        if is_chief:
            session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        session.run(optimizer.chief_init_op if is_chief else optimizer.local_step_init_op)
        if is_chief:
            session.run(optimizer.get_init_tokens_op(first_tokens))
    return SyncWorker(session, train, make_step, [step, w])

def start_workers(first_tokens):
    """Empties all servers, and makes both workers."""
    tf.Session.reset(servers[0].target)
    return [sync_worker(k, first_tokens) for k in (0, 1)]

# %% [markdown]
# **Predict:** the first tokens are those of the hook's default (`num_tokens=-1`: two of them).
# Worker 1 is slow, and computes nothing at all. Worker 0 calls `train` twice. Where is `w`?

# %%
chief, _ = start_workers(first_tokens=-1)
for _ in range(2):
    chief.session.run(chief.train)
chief.session.run(chief.make_step)
step, w = chief.session.run(chief.state)
print("step %d, w = %.0f" % (step, w))
assert step == 1 and np.isclose(w, 10)

# %% [markdown]
# <details><summary>Answer</summary>
#
# At 10, where worker 0 alone wants it. Both gradients of this "synchronous" step are from worker 0.
# The accumulator counts gradients; it does not know their workers.
#
# </details>
#
# **Corrected:** each worker has a slot of its own on the ps, as in
# [Synchronous-SGD](../Synchronous-SGD/). The step takes one gradient from each slot. Here a slot is
# an accumulator, so two gradients of one worker count as one, their mean.

# %%
with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    w = tf.get_variable("w_of_slots", initializer=0.0)
    slots = [tf.ConditionalAccumulator(tf.float32, []) for k in (0, 1)]
    push = [slot.apply_grad(w - minimum) for slot, minimum in zip(slots, [100.0, -100.0])]
    in_slots = [slot.num_accumulated() for slot in slots]
    move = w.assign_sub(LR * sum(slot.take_grad(1) for slot in slots) / 2)

with tf.Session(servers[0].target, graph, waits) as session:
    session.run(w.initializer)
    for k in 0, 0, 1:
        session.run(push[k])
        print("worker %d has pushed; gradients in the slots:" % k, *session.run(in_slots))
    session.run(move.op)
    print("the step: w = %.0f" % session.run(w))
    assert session.run(w) == 0

# %% [markdown]
# The same on the digits. Worker 0 has the images of 0 to 4. Worker 1 has those of 5 to 9, and is
# slow. We make 300 steps of each kind, and test each digit.

# %%
def train_digits(workers):
    """w after 300 steps, each with the mean of one gradient from each of these workers."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = digits.variables()
        number = tf.placeholder(tf.int64, [])
        losses = []
        for k, some in enumerate([y < 5, y >= 5]):
            losses.append(digits.loss(w, *digits.batch(x[some], y[some], number, worker=k)))
        mean = sum(losses[k] for k in workers) / len(workers)
        update = tf.train.GradientDescentOptimizer(0.2).minimize(mean)
        right = tf.equal(tf.argmax(digits.outputs(w, x_test), 1, output_type=tf.int32), y_test)
        session.run(tf.global_variables_initializer())
        for i in range(300):
            session.run(update, {number: i})
        return session.run(right)

figure, axes = plt.subplots(1, 2, figsize=(7, 2.7), sharey=True)
for ax, name, workers in zip(axes, ["two gradients from anyone", "one gradient from each"],
                             [(0, 0), (0, 1)]):
    right = train_digits(workers)
    shares = [100 * right[y_test == digit].mean() for digit in range(10)]
    print("%-26s 0 to 4: %3.0f%%   5 to 9: %3.0f%%" % (
        name, np.mean(shares[:5]), np.mean(shares[5:])))
    ax.bar(range(10), shares, color=[BLUE] * 5 + [ORANGE] * 5)
    ax.set(title=name, xlabel="digit", xticks=range(10))
    ax.grid(axis="x", visible=False)
axes[0].set_ylabel("classified correctly, %")
show(figure, "Share of each digit that is classified correctly. With two gradients from anyone, "
             "the digits 5 to 9 of the slow worker stay at 0. With one from each, all are above "
             "80%.")
assert min(shares) > 80

# %% [markdown]
# ## Mistake 11: a token too many
# A call of `train` gives its gradient, and returns when it has a token. Each step puts two tokens
# with its number into the queue, one for each worker. A program has put four tokens there at the
# start: two by the hook, and two more "to be safe".
#
# The script plays four rounds. In each, both workers call `train` at the same time. The chief makes
# a step as soon as the accumulator has two gradients.

# %%
def play_rounds(first_tokens):
    """Four rounds of calls of both workers; for each whether it led to a step."""
    workers = start_workers(first_tokens)
    chief, stepped = workers[0], []
    with chief.session.graph.as_default(), tf.device("/job:ps/task:0"):
        same_name = tf.ConditionalAccumulator(tf.float32, [], shared_name="w:0/grad_accum")
        gathered = same_name.num_accumulated()  # in the optimizer's own accumulator
    for _ in range(4):
        calls = [threads.submit(worker.session.run, worker.train) for worker in workers]
        both_returned = False
        while chief.session.run(gathered) < 2 and not both_returned:
            both_returned = all(call.done() for call in calls)
        stepped.append(bool(chief.session.run(gathered) == 2))
        if stepped[-1]:
            chief.session.run(chief.make_step)
        for call in calls:
            call.result(timeout=20)
    return stepped

# %% [markdown]
# **Predict:** how many steps do four rounds make, with 4, 2 and 0 tokens at the start?

# %%
for first_tokens in 4, 2, 0:
    stepped = play_rounds(first_tokens)
    print("%d tokens at the start: %d steps in 4 rounds; %s" % (
        first_tokens, sum(stepped), "  ".join("step" if s else "lost" for s in stepped)))
    assert sum(stepped) == 4 - first_tokens / 2

# %% [markdown]
# <details><summary>Answer</summary>
#
# 2, 3 and 4: every two tokens cost a round of both workers. With a token that is already there, a
# call returns before its gradient has been used, and the worker goes on at the old `w`. The token
# says step 0. So the worker's *next* gradient is marked as one of step 0, and the accumulator drops
# it silently.
#
# </details>
#
# **Corrected:** no tokens at the start, by `make_session_run_hook(is_chief, num_tokens=0)`.
#
# That is right where `replicas_to_aggregate` is at most `total_num_replicas`. Otherwise a step
# needs more gradients than there are workers, and no worker could give a second one without a first
# token. TensorFlow refuses too few of them:

# %%
with tf.Graph().as_default(), tf.device(variables_on_ps(0)):
    w = tf.get_variable("w", initializer=0.0)
    four_of_two = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(LR), replicas_to_aggregate=4, total_num_replicas=2)
    four_of_two.minimize(w * w, global_step=tf.train.get_or_create_global_step())
    four_of_two.ready_for_local_init_op.mark_used()
    for number in 0, 2:
        hook = four_of_two.make_session_run_hook(is_chief=True, num_tokens=number)
        try:
            hook.begin()  # as a session does when it is made
            print("4 of 2, num_tokens=%d: accepted" % number)
        except ValueError as error:
            print("4 of 2, num_tokens=%d: ValueError: %s" % (number, error))

# %% [markdown]
# And Mistake 10 is still there: a token has no name on it, and a fast worker can take two. Slots
# and a queue of tokens for each worker prevent both.
#
# ## Mistake 12: a count that is read too early
# [DynSGD](../DynSGD/) divides a step by its staleness plus one. Both workers have pulled `w`
# when it was 0, where the gradient is -100. The first push moves `w` by 10. The second is one
# update late, so it must move `w` by 5.
#
# Two workers that push at the same time need a *lock*, so that one waits for the other: a
# `CriticalSection`. The mistake is to read the counter before the lock. Two queues hold both
# workers between the read and the lock, as a slow network might.

# %%
def push_at_once(read_under_the_lock):
    """Two workers push at the same time: the staleness that each used, and w."""
    tf.Session.reset(servers[0].target)
    calls = []
    for k in 0, 1:
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", initializer=0.0)
            updates = tf.get_variable("updates", initializer=0.0)
            arrived = tf.FIFOQueue(2, tf.float32, [[]], shared_name="arrived")
            go_on = tf.FIFOQueue(2, tf.float32, [[]], shared_name="go_on")
            version = 0.0
            read_early = updates.read_value()

            def push():
                counted = updates.assign_add(1.0) - 1.0  # the count before this update
                staleness = (counted if read_under_the_lock else read_early) - version
                with tf.control_dependencies([w.assign_sub(LR * -100 / (staleness + 1)), counted]):
                    return tf.identity(staleness)

            with tf.control_dependencies([arrived.enqueue(read_early)]):
                go = go_on.dequeue()
            with tf.control_dependencies([go]):
                pushed = tf.CriticalSection(shared_name="lock").execute(push)
            session = tf.Session(servers[k].target, graph, waits)
            if k == 0:
                session.run([w.initializer, updates.initializer])
            calls.append(threads.submit(session.run, pushed))
    with graph.as_default(), tf.device("/job:ps/task:0"):
        session.run(arrived.dequeue_many(2))         # both have read the counter
        session.run(go_on.enqueue_many([[1.0, 1.0]]))  # now both may push
    used = sorted(float(call.result(timeout=20)) for call in calls)
    return used, float(session.run(w))

for name, under_the_lock in ("read before the lock:", False), ("read under the lock: ", True):
    print(name, "staleness %s, w = %.0f" % push_at_once(under_the_lock))

# %% [markdown]
# Read early, both find a staleness of 0, and both take a full step. The lock kept the two pushes
# apart, but the number was already old when it was used. **Corrected:** the count, the step and
# the increment stand under one lock.

# %% [markdown]
# ## Mistake 13: the sum where the mean is meant
# From here on there is no ps: each worker has its own `w`, and an all-reduce gives all of them the
# sum of their gradients. `w` must move by `lr` times the *mean*. Some interfaces average, such as
# `hvd.allreduce` and DDP. Others sum unless you ask for the mean, such as PyTorch's `all_reduce`.
#
# We train the digits for 200 updates with 1, 2, 4 and 8 workers: with the mean, with the sum, and
# with a mean that is divided by the number of workers twice (in the loss, and in the all-reduce).

# %%
with tf.Graph().as_default() as graph:
    w_in = [tf.placeholder(tf.float32, value.shape) for value in digits.first_values()]
    x_in, y_in = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    loss = digits.loss(w_in, x_in, y_in)
    session = tf.Session(graph=graph)
    gradient = session.make_callable(tf.gradients(loss, w_in), [*w_in, x_in, y_in])
    test_accuracy = session.make_callable(digits.accuracy(w_in, x_test, y_test), w_in)

def mini_batch(k, number, size=32):
    """The rows of worker k for its update `number`."""
    rows = np.random.RandomState([k, number]).randint(0, len(x), size)
    return x[rows], y[rows]

print("workers          " + "".join("%9d" % n for n in (1, 2, 4, 8)))
for name, factor in [("mean", lambda n: 1 / n), ("sum", lambda n: 1),
                     ("mean of a mean", lambda n: 1 / n ** 2)]:
    accuracies = []
    for n in 1, 2, 4, 8:
        w = digits.first_values()
        for number in range(200):
            gradients = [gradient(*w, *mini_batch(k, number)) for k in range(n)]
            w = [v - 0.2 * factor(n) * sum(parts) for v, parts in zip(w, zip(*gradients))]
        accuracies.append(test_accuracy(*w))
    print("%-17s" % name + "".join("%8.0f%%" % (100 * a) for a in accuracies))

# %% [markdown]
# The sum passes a test with two workers: it only doubles the learning rate. With eight it fails.
# The mean of a mean learns ever more slowly. A test with two workers finds neither of them.
#
# **Corrected:** compare one step of your workers with one step of one worker on the union of their
# rows, as the project below does. It must be equal, not similar.
#
# ## Mistake 14: all-reduces in another order
# An all-reduce in MPI or NCCL has no name. The first call of worker 0 meets the first call of
# worker 1, the second meets the second. Here are two workers, as threads, and such an all-reduce.

# %%
class AllReduce:
    """The mean over n workers. Calls are matched by their order only."""

    def __init__(self, n, seconds=1.0):
        self.barrier = threading.Barrier(n, timeout=seconds)
        self.values = [None] * n

    def __call__(self, k, value):
        self.values[k] = value
        self.barrier.wait()  # all workers have given their value
        mean = sum(self.values) / len(self.values)
        self.barrier.wait()  # all have read the values
        return mean

def run_workers(work, n=2):
    """What work(k, all_reduce) returns on each of n threads, or the name of its error."""
    all_reduce, results = AllReduce(n), [None] * n
    def run(k):
        try:
            results[k] = work(k, all_reduce)
        except threading.BrokenBarrierError:
            results[k] = "waits for the other"
    running = [threading.Thread(target=run, args=[k]) for k in range(n)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return results

# %% [markdown]
# To send one message instead of four, each worker packs its four gradients into one vector, a
# *bucket* of 2,410 numbers. Worker 1 packs them in another order, because its program goes through
# a set of names, or because its layers finished in another order.
#
# **Predict:** the vectors of both workers have the same length. Does the all-reduce fail? Do the
# workers learn?

# %%
def train_packed(order):
    """Two workers with one all-reduce of a packed vector; order[k]: how worker k packs."""
    def work(k, all_reduce):
        w = digits.first_values()
        for number in range(300):
            g = gradient(*w, *mini_batch(k, number))
            mean = all_reduce(k, np.concatenate([g[i].ravel() for i in order[k]]))
            begin = 0
            for i in order[k]:
                part = mean[begin:begin + w[i].size].reshape(w[i].shape)
                w[i] = w[i] - 0.2 * part
                begin += w[i].size
        return w

    both = run_workers(work)
    apart = max(np.abs(a - b).max() for a, b in zip(*both))
    return [100 * test_accuracy(*w) for w in both], apart

for name, order_of_1 in ("equal orders:  ", [0, 1, 2, 3]), ("another order: ", [3, 2, 1, 0]):
    (zero, one), apart = train_packed([[0, 1, 2, 3], order_of_1])
    assert (apart == 0) == (order_of_1 == [0, 1, 2, 3])
    print(name, "worker 0 %.0f%%, worker 1 %.0f%%; their w differ by up to %.1f" % (
        zero, one, apart))

# %% [markdown]
# <details><summary>Answer</summary>
#
# It does not fail: 2,410 numbers meet 2,410 numbers. And the workers even learn, because half of
# each sum is a worker's own gradient, in its right place. The other half belongs to other
# parameters: it is noise. The two `w` drift apart, and the workers train two different models.
#
# </details>
#
# The accuracy hardly shows it, and the chief saves its own `w` without a complaint. With equal
# orders the two `w` are equal to the last bit.
#
# If the tensors have different sizes, the call hangs or crashes, depending on the library.
# **Corrected:** one fixed order on all workers, such as that of a list of layers. Horovod gives
# each tensor a name, and a coordinator puts the calls in one order. Compare a checksum of `w` on
# all workers now and then: it must be equal.
#
# ## Mistake 15: shards of different sizes
# Worker 0 has 45 mini-batches, worker 1 has 44. Each goes through its own: one *epoch*.

# %%
def epoch(batches):
    """One all-reduce for each mini-batch of a worker."""
    def work(k, all_reduce):
        for _ in range(batches[k]):
            all_reduce(k, np.ones(10))
        return "done after %d" % batches[k]
    return run_workers(work)

print("45 and 44 mini-batches:", epoch([45, 44]))
print("44 and 44 mini-batches:", epoch([44, 44]))
assert epoch([45, 44])[0] == "waits for the other"

# %% [markdown]
# In its last step worker 0 waits for a worker that has finished; without a time limit for ever.
# This is the usual hang at the end of an epoch.
#
# The second form of the mistake does not hang. Worker 0 has 32 rows in its last mini-batch, worker
# 1 only 8. The mean of the two mean gradients is not the gradient of all 40 rows: the 8 rows count
# as much as the 32.

# %%
def direction_error(weights):
    """How far a weighted mean of the two gradients is from the gradient of all rows, relatively."""
    w = digits.first_values()
    shards = mini_batch(0, 0, size=32), mini_batch(1, 0, size=8)
    union = gradient(*w, *[np.concatenate(parts) for parts in zip(*shards)])
    mean = [sum(weight * part for weight, part in zip(weights, parts))
            for parts in zip(*[gradient(*w, *shard) for shard in shards])]
    flat = [np.concatenate([part.ravel() for part in parts]) for parts in (mean, union)]
    return np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])

print("each worker counts 1/2:     error %.2f" % direction_error([1 / 2, 1 / 2]))
print("each row counts 1/40:       error %.2f" % direction_error([32 / 40, 8 / 40]))
assert direction_error([32 / 40, 8 / 40]) < 1e-5 < 0.1 < direction_error([1 / 2, 1 / 2])

# %% [markdown]
# **Corrected:** all workers make the same number of steps. Take the smallest number that any of them
# has, drop the last, incomplete mini-batch, or let a worker without rows contribute zeros (`join` in
# DDP). And add up sums and numbers of rows instead of means.
#
# ## Mistake 16: statistics of one worker's data
# *Batch normalisation* subtracts from each unit its mean over the mini-batch, and divides by the
# standard deviation. For the test it uses running means of both, which it has collected during
# training. They are not gradients, so no all-reduce touches them.
#
# Now the workers have images of two scanners. Those of worker 1 are faded: its pixels go from 0.5
# to 1, those of worker 0 from 0 to 1. Both workers average their gradients in each step, so their
# weights are equal. The chief, worker 0, saves the model with its running means.
#
# **Predict:** how many of the test images of each scanner does the chief's model classify
# correctly?

# %%
def normalised_outputs(w, x, statistics):
    """The digits' network, with its hidden layer normalised by (mean, mean of squares)."""
    mean, squares = tf.unstack(statistics)
    hidden = (x @ w[0] - mean) * tf.math.rsqrt(squares - mean ** 2 + 1e-3) + w[1]
    return tf.nn.relu(hidden) @ w[2] + w[3]

def statistics_of(w, x):
    """Of each hidden unit the mean, and the mean of squares, over these rows."""
    hidden = x @ w[0]
    return tf.stack([tf.reduce_mean(hidden, 0), tf.reduce_mean(hidden ** 2, 0)])

def faded(x):
    return x / 2 + 0.5

half = len(x) // 2
shards = (x[:half], y[:half]), (faded(x[half:]), y[half:])
tests = (x_test[:180], y_test[:180]), (faded(x_test[180:]), y_test[180:])

def train_normalised(shared):
    """300 steps of two workers; shared: with the means of both. The accuracies, in %.

    [statistics in the test: of worker 0, of worker 1, their mean] [images of worker 0, of worker 1]
    """
    with tf.Graph().as_default(), tf.Session() as session:
        w, number = digits.variables(), tf.placeholder(tf.int64, [])
        batches = [digits.batch(*shard, number, worker=k) for k, shard in enumerate(shards)]
        own = [statistics_of(w, x_k) for x_k, _ in batches]
        mean_of_both = (own[0] + own[1]) / 2  # an all-reduce
        used = [mean_of_both, mean_of_both] if shared else own
        losses = [tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=y_k, logits=normalised_outputs(w, x_k, used_k)))
            for (x_k, y_k), used_k in zip(batches, used)]
        update = tf.train.GradientDescentOptimizer(0.2).minimize((losses[0] + losses[1]) / 2)

        running = [tf.get_variable("running_%d" % k, initializer=tf.zeros([2, 32])) for k in (0, 1)]
        collect = [r.assign(0.9 * r + 0.1 * s) for r, s in zip(running, used)]
        session.run(tf.global_variables_initializer())
        for i in range(300):
            session.run([update, collect], {number: i})

        def accuracy(x_k, y_k, statistics):
            scores = normalised_outputs(w, x_k, statistics)
            return 100 * np.mean(session.run(tf.argmax(scores, 1)) == y_k)
        return [[accuracy(*test, statistics) for test in tests]
                for statistics in (*running, (running[0] + running[1]) / 2)]

own, shared = train_normalised(shared=False), train_normalised(shared=True)
print("                                   images of worker 0   of worker 1")
for name, row in [("own; test with those of worker 0", own[0]), ("own; of worker 1", own[1]),
                  ("own; the mean of both", own[2]), ("shared in training and test", shared[0])]:
    print("%-33s %15.0f%% %14.0f%%" % (name, *row))
assert own[0][1] < 70 and min(shared[0]) > 90

# %% [markdown]
# <details><summary>Answer</summary>
#
# 97% of its own kind, and little more than half of the other. In training, each worker normalised
# with its own mean, so the faded images looked like the others. In the test they are normalised
# with the chief's mean, which was never theirs. The weights were never tried like that.
#
# </details>
#
# The mean of both workers' statistics comes too late, because the training did not use it.
# **Corrected:** all-reduce the mean and the mean of squares in the forward pass, before
# normalising. This is *synchronised* batch normalisation
# (`BatchNormalization(synchronized=True)` in Keras). With shuffled data and large mini-batches the
# effect is small; layer normalisation, which uses one row at a time, does not have it at all.
#
# So synchronous training with batch normalisation is *not* one worker on the union of the rows,
# unless the statistics are shared.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. The second initialiser.** ★☆☆ `w` is at 50 when a worker that was started again runs
# `tf.global_variables_initializer()`. What is `w` then? How does
# `tf.report_uninitialized_variables` prevent it?
#
# <details><summary>Hint</summary>
#
# Its value is the list of names of the variables that have no value. Run the initialiser only if
# the list is not empty.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def w_after_restart(careful):
#     with tf.Graph().as_default(), tf.device(variables_on_ps(1)):
#         w = tf.get_variable("kept", initializer=0.0)
#         missing, init = tf.report_uninitialized_variables(), tf.global_variables_initializer()
#         with tf.Session(servers[1].target, config=waits) as session:
#             session.run(init)
#             session.run(w.assign(50))
#         with tf.Session(servers[1].target, config=waits) as session:  # started again
#             if session.run(missing).size or not careful:
#                 session.run(init)
#             return session.run(w)
#
# assert w_after_restart(careful=False) == 0
# assert w_after_restart(careful=True) == 50
# ```
#
# </details>

# %% [markdown]
# **2. No broadcast.** ★★☆ Two workers average their gradients in each of 300 steps, but start with
# `digits.first_values(seed=k)`. How far apart are their `w` at the beginning and at the end? What
# is the test accuracy of each?
#
# <details><summary>Hint</summary>
#
# Use `run_workers`, and an all-reduce for each of the four gradients, as in `train_packed`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def work(k, all_reduce):
#     w = digits.first_values(seed=k)
#     for number in range(300):
#         g = gradient(*w, *mini_batch(k, number))
#         w = [v - 0.2 * all_reduce(k, part) for v, part in zip(w, g)]
#     return w
#
# both = run_workers(work)
# first = [digits.first_values(seed=k) for k in (0, 1)]
# for i in range(4):  # the same sum was subtracted from both
#     assert np.allclose(both[0][i] - both[1][i], first[0][i] - first[1][i], atol=1e-4)
# assert min(test_accuracy(*w) for w in both) > 0.9  # so the accuracy does not reveal it
# ```
#
# </details>

# %% [markdown]
# ## The project of part three
# Build synchronous training with a backup worker from queues and an accumulator, with servers in
# processes of their own, and prove what it computes.

# %%
# %%writefile server.py
import json
import os
import tensorflow.compat.v1 as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
server.join()

# %% [markdown]
# **Project. One backup worker.** ★★★ One ps and three workers run `server.py`. This notebook is
# their client: it has one graph, one session, and a thread for each worker. Make 30 updates of the
# digits with the first `N = 2` of 3 gradients, `lr` 0.2 and `digits.batch(x, y, version, k)`.
# 1. No worker counts twice in a step, and a gradient of an older `w` is dropped.
# 2. Worker 2 is held between its pull and its push until step 5. The others do not wait for it.
# 3. Write down whose gradients made each step. Then let *one* worker make the same steps with the
#    union of these mini-batches. Its `w` must be equal to yours within 0.00001.
#
# <details><summary>Hint</summary>
#
# 1. `new_cluster(ps=1, worker=3)`, `start("server.py", cluster, "ps")`, and so on. Connect a
#    session to `"grpc://" + cluster["ps"][0]`, with a time limit.
# 2. On the ps: `w`, a queue `arrivals` of (k, version, gradients), a queue of tokens for each
#    worker, and an accumulator for each of `w`.
# 3. On worker k: local copies of `w`. One op pulls; a second one computes the gradients at the
#    copies and enqueues them.
# 4. A worker's thread: pull, push, take tokens until one is greater than its version.
# 5. The chief: dequeue an arrival. Is its version the current step, and its worker not yet among
#    those who arrived? Give it to the accumulators. With two, move `w`, and put a token into each
#    queue.
# 6. Hold worker 2 with a `threading.Event`.
# 7. A thread that fails must not stay unnoticed: `ThreadPoolExecutor` and `result(timeout=60)`.
#
# </details>

# %%
# Your answer to the project

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# n, N, UPDATES, lr = 3, 2, 30, 0.2
# cluster = new_cluster(ps=1, worker=n)
# processes = [start("server.py", cluster, "ps")]
# processes += [start("server.py", cluster, "worker", k) for k in range(n)]
#
# with tf.Graph().as_default() as graph:
#     version_in, k_in = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
#     with tf.device("/job:ps/task:0"):
#         w = digits.variables()
#         shapes = [v.shape for v in w]
#         arrivals = tf.FIFOQueue(100, [tf.int64] * 2 + [tf.float32] * 4, [[], [], *shapes])
#         tokens = [tf.FIFOQueue(100, tf.int64, [[]], name="tokens_%d" % k) for k in range(n)]
#         accumulators = [tf.ConditionalAccumulator(tf.float32, shape) for shape in shapes]
#         # The chief: look at an arrival; gather its gradients; w <- w - lr * mean; tokens.
#         arrival = arrivals.dequeue()
#         gathered = [tf.placeholder(tf.float32, shape) for shape in shapes]
#         gather = [a.apply_grad(g, version_in) for a, g in zip(accumulators, gathered)]
#         move = [v.assign_sub(lr * a.take_grad(N)) for v, a in zip(w, accumulators)]
#         put_tokens = [queue.enqueue(version_in) for queue in tokens]
#         take_token = [queue.dequeue() for queue in tokens]
#     pull, push = [], []
#     for k in range(n):
#         with tf.device("/job:worker/task:%d" % k):
#             w_k = digits.variables("copy_of_%d" % k, get_variable=tf.get_local_variable)
#             pull.append([copy.assign(v.read_value()).op for copy, v in zip(w_k, w)])
#             at_copies = [copy.read_value() for copy in w_k]
#             loss = digits.loss(at_copies, *digits.batch(x, y, version_in, k))
#             g = tf.gradients(loss, at_copies)
#         with tf.device("/job:ps/task:0"):
#             push.append(arrivals.enqueue([tf.constant(k, tf.int64), version_in, *g]))
#     initialise = [tf.global_variables_initializer(), tf.local_variables_initializer()]
#
# config = tf.ConfigProto(operation_timeout_in_ms=40_000)
# session = tf.Session("grpc://" + cluster["ps"][0], graph, config)
# session.run(initialise)
# release = threading.Event()
#
# def work(k):
#     version = 0
#     while version < UPDATES:
#         session.run(pull[k])
#         if k == 2:
#             assert release.wait(40)
#         session.run(push[k], {version_in: version})
#         token = version
#         while token <= version:
#             token = int(session.run(take_token[k]))
#         version = token
#
# def lead():
#     step, here, made_by, dropped = 0, [], [], []
#     while step < UPDATES:
#         k, version, *g = session.run(arrival)
#         if version < step or k in here:
#             dropped.append((int(k), int(version)))
#             continue
#         session.run(gather, {version_in: version, **dict(zip(gathered, g))})
#         here.append(int(k))
#         if len(here) == N:
#             session.run([v.op for v in move])
#             step, here, made_by = step + 1, [], made_by + [sorted(here)]
#             if step == 5:
#                 release.set()
#             session.run(put_tokens, {version_in: step})
#     return made_by, dropped
#
# with ThreadPoolExecutor(n + 1) as pool:
#     workers, leader = [pool.submit(work, k) for k in range(n)], pool.submit(lead)
#     made_by, dropped = leader.result(timeout=60)
#     for worker in workers:
#         worker.result(timeout=60)
# ours = session.run(w)
# session.close()  # before its servers end: without them it would take 40 s
# stop(*processes)
#
# assert made_by[:5] == [[0, 1]] * 5                      # nobody waited for worker 2
# assert dropped[0] == (2, 0)                             # its gradient came at step 5
# assert all(len(set(workers)) == N for workers in made_by)  # none counted twice
#
# with tf.Graph().as_default(), tf.Session() as session:  # one worker on the unions
#     w, number = digits.variables(), tf.placeholder(tf.int64, [])
#     ways = {}
#     for pair in ([0, 1], [0, 2], [1, 2]):
#         batches = [digits.batch(x, y, number, k) for k in pair]
#         union = [tf.concat(parts, 0) for parts in zip(*batches)]
#         ways[tuple(pair)] = tf.train.GradientDescentOptimizer(lr).minimize(digits.loss(w, *union))
#     session.run(tf.global_variables_initializer())
#     for step, workers in enumerate(made_by):
#         session.run(ways[tuple(workers)], {number: step})
#     alone = session.run(w)
# assert max(np.abs(a - b).max() for a, b in zip(ours, alone)) < 1e-5
# ```
#
# The proof holds whether a worker is late or not: the log says which rows made each step. In real
# training a lasting straggler means data that are never seen, as in Mistake 10.
#
# </details>

# %%
# Stop what this notebook started.
tf.Session.reset(servers[0].target)
threads.shutdown()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Chen et al. 2016, [Revisiting Distributed Synchronous SGD](https://arxiv.org/abs/1604.00981):
#   backup workers.
# - Sergeev, Del Balso 2018, [Horovod](https://arxiv.org/abs/1802.05799): names, a broadcast at the
#   start, and buckets.
# - Li et al. 2020, [PyTorch Distributed](https://arxiv.org/abs/2006.15704): the order of buckets,
#   and uneven inputs.
# - Ioffe, Szegedy 2015, [Batch Normalization](https://arxiv.org/abs/1502.03167), and Peng et al.
#   2018, [MegDet](https://arxiv.org/abs/1711.07240), which shares its statistics across GPUs.
# - The correct forms at work: [Synchronous-SGD](../Synchronous-SGD/), [DynSGD](../DynSGD/),
#   [Ring-AllReduce](../Ring-AllReduce/).
#
# Next: [Sessions-that-Recover](Sessions-that-Recover.ipynb), the first of part four.
