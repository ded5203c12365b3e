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
# # Synchronous replicas
# In synchronous training all workers compute a gradient at the same `w`. Then `w` moves once, by
# `lr` times the mean of their gradients. No gradient is stale. But the gradients must be gathered in
# one place, and the workers must wait for each other. This notebook builds both parts, and then uses
# TensorFlow's own: `tf.train.SyncReplicasOptimizer`.
#
# After this notebook you can:
# - gather gradients in an accumulator, and say which gradients it drops;
# - make workers wait for each other with tokens in a queue;
# - train with `SyncReplicasOptimizer` in several processes, and name what it does not guarantee;
# - say what a slow worker costs, what a backup worker gains, and what it costs;
# - compare synchronous with asynchronous training, by gradients and by time.
#
# **Before it:** [Stale-Gradients](Stale-Gradients.ipynb) and
# [Classic-Mistakes-Updates](Classic-Mistakes-Updates.ipynb). **Time:** 75 minutes.

# %% [markdown]
# ## Why wait?
# In an asynchronous step a worker pushes a gradient that it computed at an older `w`. A synchronous
# step avoids that:
# ```
# each worker k:   g_k = gradient of its own mini-batch, all at the same w
# together:        w <- w - lr * (g_1 + ... + g_n) / n
# ```
# The mean of `n` gradients of 32 rows each is the gradient of all `32 n` rows. So `n` synchronous
# workers do what one worker does with an `n` times larger mini-batch. The price is waiting: a step
# takes as long as its slowest worker.
#
# ![Three workers, one of them slow. Above, synchronous: the two fast workers wait in each step for the slow one, and w moves twice. Below, asynchronous: none waits, w moves 13 times, and the pushes of the slow worker have a staleness of 5 and 6.](../docs/figures/timelines.svg)
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

# %%
import itertools
import digits

x, y, x_test, y_test = digits.load()

# %% [markdown]
# ## An accumulator gathers gradients
# A `tf.ConditionalAccumulator` stands on the parameter server (ps). `apply_grad` adds a gradient to
# it. `take_grad(N)` waits until it has `N` gradients, returns their mean, and empties it.
#
# For a first look, one session plays all workers. The numbers 1, 2, 12 stand for gradients.
#
# **Predict:** workers 0 and 1 give 2 and 6. `take_grad(2)` returns their mean, 4. Then *three*
# workers give 1, 2 and 12. The mean of which gradients does `take_grad(2)` return? Then only one
# worker gives a gradient, 7. What does `take_grad(2)` do?

# %%
def run_or_wait(session, op, feed=None):
    """What an op returns, or "waits" after half a second without a result."""
    try:
        return session.run(op, feed, options=tf.RunOptions(timeout_in_ms=500))
    except tf.errors.DeadlineExceededError:
        return "waits"

accumulator = tf.ConditionalAccumulator(tf.float32, shape=[])
g = tf.placeholder(tf.float32, [])
version = tf.placeholder(tf.int64, [])
give = accumulator.apply_grad(g, local_step=version)
gathered = accumulator.num_accumulated()
take_2 = accumulator.take_grad(2)

session = tf.Session()
for step, given in enumerate([[2, 6], [1, 2, 12], [7]]):
    for value in given:
        session.run(give, {g: value, version: step})
    print("given %-11s gathered %d   take_grad(2): %s" % (
        given, session.run(gathered), run_or_wait(session, take_2)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 5, the mean of all three. `N` says how many gradients `take_grad` waits for, not how many it
# takes. With one gradient it waits.
#
# </details>
#
# `version` is the step at which a worker pulled its `w`. The accumulator has a step of its own: how
# often `take_grad` has returned. It is now at 2, and the 7 is still there. Four more gradients
# come, of the steps 0, 1, 2 and 3.

# %%
for step in range(4):
    before = session.run(gathered)
    session.run(give, {g: 9, version: step})
    kept = session.run(gathered) > before
    print("a gradient of step %d: %s" % (step, "kept" if kept else "dropped"))
    assert kept == (step >= 2)
print("take_grad(2):", session.run(take_2))

# %% [markdown]
# The accumulator drops a gradient that was computed at an older `w`. It does so silently:
# `apply_grad` succeeds all the same. So no stale gradient moves `w`. It keeps a gradient that is
# ahead of its step. In a training none is ahead, because the workers get their step numbers from the
# ps. `take_grad(2)` gave the mean of 7, 9 and 9.
#
# ## Tokens let the workers go on
# A worker that has given its gradient must wait until `w` has moved. It waits for a *token*. The
# tokens are numbers in a queue on the ps: the chief puts one for each worker there after each step.
# `dequeue` waits while the queue is empty.

# %%
tokens = tf.FIFOQueue(capacity=100, dtypes=tf.int64, shapes=[[]])
next_token, left = tokens.dequeue(), tokens.size()
put_tokens = tokens.enqueue_many([tf.fill([3], tf.constant(1, tf.int64))])

print("before the step, worker 1 asks for a token:", run_or_wait(session, next_token))
session.run(put_tokens)
for k in range(3):
    print("after it, worker %d gets token %d; tokens left: %d" % (
        k, session.run(next_token), session.run(left)))
session.close()

# %% [markdown]
# ## A step by hand
# Now we put the parts together. The data of worker `k` is one number, `C[k]`. Its loss is
# $\frac{1}{2}(w - C_k)^2$, and its gradient $w - C_k$. The mean loss of all three workers has its
# minimum at the mean of 1, 2 and 6: at 3.
#
# The token carries the number of the step. The worker keeps it as the `version` of the `w` that it
# pulls next.

# %%
C, LR = [1.0, 2.0, 6.0], 0.5

class SharedParts:
    """w, one accumulator and one queue of tokens, both for all three workers."""

    def __init__(self, N):
        self.N = N
        with tf.Graph().as_default():
            self.w = tf.get_variable("w", initializer=0.0)
            self.step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
            self.g, self.version = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
            accumulator = tf.ConditionalAccumulator(tf.float32, [])
            tokens = tf.FIFOQueue(100, tf.int64, [[]])

            # A worker: give a gradient; wait for a token.
            self.give = accumulator.apply_grad(self.g, local_step=self.version)
            self.next_token = tokens.dequeue()

            # The chief: w <- w - lr * mean; count the step; three tokens.
            moved = self.w.assign_sub(LR * accumulator.take_grad(N))
            with tf.control_dependencies([moved]):
                new_step = tf.identity(self.step.assign_add(1))
            self.make_step = tokens.enqueue_many([tf.fill([3], new_step)])

            self.gathered, self.tokens_left = accumulator.num_accumulated(), tokens.size()
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

    def push(self, k, g, version):
        """Worker k gives its gradient. Returns whether it was kept."""
        before = self.session.run(self.gathered)
        self.session.run(self.give, {self.g: g, self.version: version})
        return self.session.run(self.gathered) > before

    def can_step(self):
        return self.session.run(self.gathered) >= self.N

    def token(self, k, version):
        """A token for worker k, or None if it must wait."""
        return self.session.run(self.next_token) if self.session.run(self.tokens_left) else None

# %%
ps = SharedParts(N=3)
alone = 0.0  # one worker that has all the data
for step in range(2):
    w = ps.session.run(ps.w)  # all pull the same w
    for k in range(3):
        ps.push(k, w - C[k], step)
    ps.session.run(ps.make_step)
    received = [int(ps.token(k, step)) for k in range(3)]
    alone -= LR * (alone - np.mean(C))
    print("step %d: w = %.2f, one worker with all data: %.2f; tokens %s" % (
        step + 1, ps.session.run(ps.w), alone, received))
    assert ps.session.run(ps.w) == alone

# %% [markdown]
# ## SyncReplicasOptimizer, in several processes
# `tf.train.SyncReplicasOptimizer` has the same parts: an accumulator for each variable and one
# queue of tokens. It wraps another optimizer, such as gradient descent.
#
# ![Workers send gradients with their step to an accumulator on the ps, which drops older ones. A thread of the chief takes the mean of N = 2 gradients, moves w from step 7 to step 8, and puts three tokens with the number 8 in one queue. Any worker may take any token.](../docs/figures/replicas.svg)
#
# Its parameters are two counts. `replicas_to_aggregate` is `N`, the number of gradients that a step
# waits for. `total_num_replicas` is the number of workers. Each step puts one token for each worker
# into the queue (or `N` tokens, if `N` is larger).
#
# Below is the usual program, with time limits and an orderly end. `make_session_run_hook` makes a
# *hook*: code that a session calls at its beginning, around each run and at its end, like a Keras
# callback. The chief's hook starts the thread that makes the steps, and puts the first tokens into
# the queue. `MonitoredTrainingSession` initialises the variables on the chief, and waits for them on
# the other workers ([Sessions](Sessions.ipynb)).

# %%
# %%writefile worker.py
import json
import os
import sys
import time
import digits
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

num_tokens, updates = map(int, sys.argv[1:])
config = json.loads(os.environ["TF_CONFIG"])
cluster, k = config["cluster"], config["task"]["index"]
is_chief, me = k == 0, "/job:worker/task:%d" % k
waits = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=30_000)
server = tf.train.Server(cluster, job_name="worker", task_index=k, config=waits)

x, y, x_test, y_test = digits.load()
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
    w = digits.variables()
    step = tf.train.get_or_create_global_step()
    with tf.device(me):  # or it would be on the ps, shared by the workers
        number = tf.get_local_variable("number", initializer=tf.constant(0, tf.int64))
    loss = digits.loss(w, *digits.batch(x, y, number.assign_add(1), worker=k))
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.2), replicas_to_aggregate=2, total_num_replicas=2)
    train = optimizer.minimize(loss, global_step=step)
    accuracy = digits.accuracy(w, x_test, y_test)
    missing = tf.report_uninitialized_variables(tf.global_variables())
    missing.mark_used()  # or TensorFlow complains that the chief does not use it
sync_hook = optimizer.make_session_run_hook(is_chief, num_tokens=num_tokens)

class EndOptimizer(tf.train.SessionRunHook):
    """Ends the chief's thread, which would wait for the next gradients."""

    def after_create_session(self, session, coord):
        self.coord = coord

    def end(self, session):
        self.coord.request_stop()
        session.close()

if not is_chief:  # MonitoredTrainingSession would look for the chief's variables every 30 s only
    with tf.Session(server.target, config=waits) as session:
        for _ in range(300):  # half a minute at most
            if not len(session.run(missing)):
                break
            time.sleep(0.1)
        else:
            raise TimeoutError("the chief has not initialised the variables")

calls = done = 0
with tf.train.MonitoredTrainingSession(server.target, is_chief, config=waits,
                                       hooks=[sync_hook, EndOptimizer()]) as session:
    while done < updates:
        limit = tf.RunOptions(timeout_in_ms=2000) if calls else None  # the first waits longer
        try:
            session.run(train, options=limit)  # gives a gradient, waits for a token
        except tf.errors.DeadlineExceededError as error:
            print("worker %d: %s in call %d" % (k, type(error).__name__, calls + 1))
            break
        calls, done = calls + 1, session.run(step)
    print("worker %d: %d updates in %d calls, test accuracy %.3f" % (
        k, done, calls, session.run(accuracy)))

# %% [markdown]
# Both counts are 2: each step needs two gradients, and there are two workers. The ps is a server in
# this notebook. We train twice:
#
# - A: only the chief, worker 0, is started. It wants 20 updates. The hook has its default,
#   `num_tokens=-1`, and puts 2 tokens into the queue at the start.
# - B: both workers, with `num_tokens=0`. Worker 1 ends after 100 updates, as if it had died. The
#   chief wants 200.
#
# **Predict:** does the chief train in A, where worker 1 never comes? And in B, what does it do
# after the 100 updates?

# %% tags=["measured"]
def start_run(num_tokens, updates):
    """A cluster of two workers and a ps here; the started workers, which want so many updates."""
    cluster = new_cluster(ps=1, worker=2)
    ps = tf.train.Server(cluster, job_name="ps", task_index=0)
    return ps, [start("worker.py", cluster, "worker", k, num_tokens, wanted)
                for k, wanted in enumerate(updates)]

ps, workers = start_run(num_tokens=-1, updates=[20])
print("A\n" + finish(workers[0]))
ps, workers = start_run(num_tokens=0, updates=[200, 100])
print("B\n" + "".join(map(finish, workers)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# In A the chief trains alone. It gives a gradient, takes one of the two first tokens without
# waiting, and gives a second gradient at the same `w`. Now the accumulators have two gradients, and
# the chief's thread makes a step: "2 of 2", both from worker 0. In B the chief waits for worker 1
# until the time limit ends its call.
#
# </details>
#
# Look for three things in the output:
# - **A**: about two calls for each update. `replicas_to_aggregate` counts gradients, not workers.
# - **B, worker 1**: one call for each update. Without the first tokens, the steps are what we want.
# - **B, worker 0**: `DeadlineExceededError` in its 101st call. The error names no worker. Without
#   a time limit it would wait for ever.
#
# The end of such a program needs care, too. The chief's thread still waits for gradients. A session
# that closes waits for its threads, for up to two minutes. `EndOptimizer` asks the thread to stop,
# and closes the session first.
#
# Were the 100 updates of B the same as those of one worker with both mini-batches? We train that
# worker here, and compare it with the `w` that B has left on its ps.

# %%
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        w_b = digits.variables()  # the same names and device as in worker.py
    with tf.Session(ps.target, config=tf.ConfigProto(
            device_filters=["/job:ps"], operation_timeout_in_ms=10_000)) as session:
        left_by_b = session.run(w_b)

with tf.Graph().as_default(), tf.Session() as session:
    w = digits.variables()
    number = tf.get_variable("number", initializer=tf.constant(0, tf.int64))
    now = number.assign_add(1)
    batches = [digits.batch(x, y, now, worker=k) for k in (0, 1)]
    union = [tf.concat(parts, 0) for parts in zip(*batches)]  # 64 rows
    train = tf.train.GradientDescentOptimizer(0.2).minimize(digits.loss(w, *union))
    accuracy = digits.accuracy(w, x_test, y_test)
    session.run(tf.global_variables_initializer())
    for _ in range(100):
        session.run(train)
    of_union = session.run(w)
    print("one worker, 100 updates of 64 rows: test accuracy %.3f" % session.run(accuracy))

difference = max(np.abs(a - b).max() for a, b in zip(left_by_b, of_union))
print("the largest difference of a parameter is below 0.0001:", difference < 1e-4)
assert difference < 1e-4

# %% [markdown]
# ## One worker is slow
# Now we give the workers different speeds. Worker 0 needs 2 ticks of a clock for a gradient, worker
# 1 needs 5, worker 2 needs 9. The clock is a loop, so that you see the same picture each time.
# Accumulator, tokens and `w` are the real ones from above. The next cell is folded; it moves the
# clock, and draws.

# %% jupyter={"source_hidden": true}
TICKS, UNTIL = [2, 5, 9], 42

def simulate(ps, order=(0, 1, 2)):
    """Three workers for 42 ticks. order: who pushes first where two are ready in the same tick.

    Returns the bars (k, pull, push, go on, kept), and the steps (tick, whose gradients).
    """
    w_k, version = 3 * [ps.session.run(ps.w)], 3 * [0]  # what each worker has pulled
    pulled, ready = 3 * [0], list(TICKS)
    bars, steps, contributors, waiting = [], [], [], []
    for now in range(1, UNTIL + 1):
        for k in [k for k in order if ready[k] == now]:
            kept = ps.push(k, w_k[k] - C[k], version[k])
            contributors += [k] if kept else []
            waiting.append((k, now, kept))
            if ps.can_step():
                ps.session.run(ps.make_step)
                steps.append((now, sorted(contributors)))
                contributors = []
            for k, pushed, kept in list(waiting):  # who came first gets a token first
                token = ps.token(k, version[k])
                if token is not None:
                    waiting.remove((k, pushed, kept))
                    bars.append((k, pulled[k], pushed, now, kept))
                    w_k[k], version[k] = ps.session.run(ps.w), token  # pull
                    pulled[k], ready[k] = now, now + TICKS[k]
    bars += [(k, pulled[k], pushed, UNTIL, kept) for k, pushed, kept in waiting]
    bars += [(k, pulled[k], UNTIL, UNTIL, True) for k in range(3) if ready[k] > UNTIL]
    return bars, steps

def draw(ps, title, description):
    """Simulates, draws, and prints a summary; returns whose gradients made each step."""
    bars, steps = simulate(ps)
    figure, ax = plt.subplots(figsize=(7, 2.6))
    for k, pull, push, go, kept in bars:
        colour = [BLUE, ORANGE, PURPLE][k]
        ax.barh(k, push - pull, 0.6, pull, color=colour, edgecolor="white", linewidth=0.8)
        ax.barh(k, go - push, 0.6, push, color=colour, alpha=0.25)
        if not kept:
            ax.text((pull + push) / 2, k, "dropped", color="white", ha="center", va="center",
                    fontsize=9)
    for tick, whose in steps:
        ax.axvline(tick, color=GRAY, linestyle=":", ymax=0.84, zorder=0)
        ax.text(tick, -0.62, " + ".join(map(str, whose)), ha="center", fontsize=8.5,
                color=RED if len(set(whose)) < len(whose) else "black")
    ax.set(yticks=range(3), yticklabels=["worker %d" % k for k in range(3)], ylim=(2.5, -1.0),
           xlim=(0, UNTIL + 1), xlabel="time, ticks")
    ax.set_title(title, fontsize=10, loc="left")
    ax.grid(False)
    show(figure, description)
    busy = sum(push - pull for k, pull, push, _, _ in bars if k == 0)
    print("%d steps; worker 0 computes for %d of %d ticks; %d gradients dropped; w = %.2f" % (
        len(steps), busy, UNTIL, sum(not kept for *_, kept in bars), ps.session.run(ps.w)))
    return [whose for _, whose in steps]

# %%
whose = draw(SharedParts(N=3), "N = 3 of 3. Dark: computes. Light: waits. Above: whose gradients",
             "Time line of three workers. Each step ends when the slow worker 2 has pushed; the "
             "others wait for most of the time.")
assert len(whose) == UNTIL // max(TICKS)

# %% [markdown]
# A step takes as long as the slowest worker. Worker 0 waits for 7 of 9 ticks. `w` approaches 3, the
# minimum of all.
#
# ## A backup worker
# Chen et al. (2016) make the step with the first `N` gradients of `n` workers. The other `n - N` are
# *backup workers*: a gradient that comes too late is dropped, and its worker goes on from the new
# `w`. With `N = 2` of 3, no step needs to wait for the slow worker 2.
#
# You would expect a step every 5 ticks, when worker 1 pushes. Each would be made of one gradient of
# worker 0 and one of worker 1. But the token of worker 2 lies in the queue until a worker takes it.
#
# **Predict:** worker 0 waits for worker 1 until tick 5. Which worker gives the second gradient of the
# next step, and at which tick?

# %%
whose = draw(SharedParts(N=2), "N = 2 of 3, one queue of tokens. Red: two gradients of one worker",
             "Time line of three workers. Every second step is made of two gradients of worker 0. "
             "Then the gradient of worker 1 comes too late and is dropped. All gradients of worker "
             "2 are dropped.")
print("steps from two gradients of worker 0: %d of %d" % (whose.count([0, 0]), len(whose)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Worker 0 again, at tick 9. Each step puts three tokens into the queue. At tick 5, workers 0 and 1
# take one each, and the third stays there. At tick 7 worker 0 pushes a gradient, takes the third
# token, and goes on at the *same* `w`. At tick 9 it pushes again. Now the accumulator has two
# gradients of this `w`, and the step is made. Worker 1 pushes at tick 10, and its gradient is
# dropped. So half of the steps come from worker 0 alone.
#
# </details>

# %% jupyter={"source_hidden": true}
assert whose.count([0, 0]) == 4

# %% [markdown]
# So `w` leans towards the data of worker 0: it is at 1.16, between 1 and 1.5, the mean of the
# minima of workers 0 and 1. Do these steps depend on who comes first when two workers push in the
# same tick? We try all six orders.

# %%
runs = [simulate(SharedParts(N=2), order)[1] for order in itertools.permutations(range(3))]
print("the same steps in all %d orders:" % len(runs), all(run == runs[0] for run in runs))
assert all(run == runs[0] for run in runs)

# %% [markdown]
# ## Slots: one gradient from each worker
# [Synchronous-SGD](../Synchronous-SGD/) of this repository knows whose gradient it has. Each worker
# has a *slot* on the ps for its gradient, and a queue of its own for its tokens.
#
# ![Workers 0 and 1 store their gradients in their slots on the ps. The second of them makes the step with their mean, and each worker gets a token for step 8 in a queue of its own. The gradient of worker 2 is of step 7; it comes later, and is dropped.](../docs/figures/sync.svg)
#
# A second gradient of a worker at the same `w` could only replace its first. And a worker accepts a
# token only if its step is later than that of its `w`. So it cannot push twice at the same `w`.

# %%
class Slots(SharedParts):
    """w, and for each worker a slot for its gradient and a queue of its own tokens."""

    def __init__(self, N):
        self.N = N
        with tf.Graph().as_default():
            self.w = tf.get_variable("w", initializer=0.0)
            self.step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
            self.g, self.version = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
            slots = [tf.get_variable("slot_%d" % k, initializer=0.0) for k in range(3)]
            self.versions = tf.get_variable("versions", initializer=tf.constant(3 * [-1], tf.int64))
            queues = [tf.FIFOQueue(100, tf.int64, [[]]) for k in range(3)]

            # A worker: store a gradient and its version; wait for a token of its own.
            self.give = [tf.group(slots[k].assign(self.g), self.versions[k].assign(self.version))
                         for k in range(3)]
            self.next_token = [queue.dequeue() for queue in queues]

            # The worker with the N-th gradient of this w: take the mean, count the step, give tokens.
            here = tf.equal(self.versions.read_value(), self.step.read_value())
            mean = tf.reduce_mean(tf.boolean_mask(tf.stack(slots), here))
            with tf.control_dependencies([self.w.assign_sub(LR * mean)]):
                new_step = tf.identity(self.step.assign_add(1))
            self.make_step = tf.group(*[queue.enqueue(new_step) for queue in queues])

            self.gathered = tf.reduce_sum(tf.cast(here, tf.int32))
            self.tokens_left = [queue.size() for queue in queues]
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

    def push(self, k, g, version):
        self.session.run(self.give[k], {self.g: g, self.version: version})
        return version == self.session.run(self.step)

    def token(self, k, version):
        while self.session.run(self.tokens_left[k]):
            token = self.session.run(self.next_token[k])
            if token > version:  # an older one is discarded
                return token

whose = draw(Slots(N=2), "N = 2 of 3, a slot and a queue for each worker",
             "Time line of three workers. Each step is made of one gradient of worker 0 and one of "
             "worker 1; all gradients of worker 2 are dropped.")
assert all(step == [0, 1] for step in whose)

# %% [markdown]
# There are as many steps, each with one gradient of worker 0 and one of worker 1. `w` ends at 1.49,
# near 1.5, and not near 3. That is the price of backup workers: a step without worker 2 is a step
# without its data. If the same worker is always late, `w` never learns from its data.
# [Scaling](../Measurements/Scaling/) measures backup workers with real processes.
#
# (Real pushes come at the same time, so Synchronous-SGD has a lock around the report of a gradient.)
#
# ## Synchronous against asynchronous, on the digits
# Now eight workers train the digits. All draw from the same data. A gradient takes 1.2 ticks on
# average, but in 8% of the cases six times as long: another program uses the machine, or a packet
# is lost. The clock is simulated again; each gradient is a real one of the network.
#
# Three ways:
# - *synchronous*: the mean of 8 of 8;
# - *6 of 8*: synchronous, with two backup workers;
# - *asynchronous*: each worker pushes at once, as in HogWild.

# %%
with tf.Graph().as_default() as graph:
    w_in = [tf.placeholder(tf.float32, value.shape) for value in digits.first_values()]
    k_in, number_in = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
    loss = digits.loss(w_in, *digits.batch(x, y, number_in, k_in))
    clients = tf.Session(graph=graph)
    gradient = clients.make_callable(tf.gradients(loss, w_in), [*w_in, k_in, number_in])
    test_loss = clients.make_callable(digits.loss(w_in, x_test, y_test), w_in)

def train(n, N, lr, ticks, synchronous, seed=0, most=10**9):
    """[gradients, ticks, test loss, updates] during a run; an update takes the mean of N of n."""
    random = np.random.RandomState(seed)
    def duration():
        return (1 + random.exponential(0.2)) * (6 if random.rand() < 0.08 else 1)

    w, step, number, gathered, waiting, curve = digits.first_values(), 0, 0, [], [], []
    copy, version = n * [w], n * [0]              # what each worker has pulled
    ready = [duration() for _ in range(n)]        # when it has its gradient
    while min(ready) < ticks and number < most:
        k = int(np.argmin(ready))
        now, ready[k], number = ready[k], np.inf, number + 1
        g = gradient(*copy[k], k, number)
        waiting.append(k)
        if not synchronous or version[k] == step:
            gathered.append(g)
        if len(gathered) == N:
            mean = [np.mean(parts, axis=0) for parts in zip(*gathered)]
            w = [v - lr * m for v, m in zip(w, mean)]
            step, gathered = step + 1, []
        for j in [j for j in waiting if version[j] < step]:  # they pull
            waiting.remove(j)
            copy[j], version[j], ready[j] = w, step, now + duration()
        if number % 16 == 0:
            curve.append((number, now, test_loss(*w), step))
    return np.array(curve)

# %% [markdown]
# An asynchronous update uses one gradient, a synchronous one the mean of eight. So which learning
# rate is fair? We try 0.1, 0.2, 0.4, 0.8 and 1.6, and compare the test loss after 320 gradients. A
# loss of 2 or more counts as "fails".
#
# **Predict:** which rate is the best for the synchronous workers? Up to which rate do the
# asynchronous ones learn? The staleness with eight workers is about 7.

# %%
print("lr              " + "".join("%8g" % lr for lr in (0.1, 0.2, 0.4, 0.8, 1.6)))
for name, N, synchronous in ("synchronous", 8, True), ("asynchronous", 1, False):
    losses = []
    for lr in 0.1, 0.2, 0.4, 0.8, 1.6:
        curve = train(8, N, lr, ticks=1e9, synchronous=synchronous, most=320)
        losses.append(curve[-1, 2])
    print("%-16s" % name + "".join("%8.2f" % v if v < 2 else "   fails" for v in losses))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The synchronous workers learn best at 0.8. At 0.1 they are slow, because 320 gradients are only 40
# updates. The asynchronous ones learn at 0.1 and 0.2, and fail from 0.4 on. A gradient that is
# seven updates old is right only while `w` has moved little. That limits the asynchronous rate. The
# mean of eight gradients has less noise and no staleness, so its rate can be larger.
#
# </details>
#
# So we take 0.8 for the synchronous ways. For the asynchronous one we take 0.1, although 0.2 was a
# little better. Then one gradient moves `w` about equally far in all of them: by 0.8 / 8 = 0.1 times
# the gradient, or 0.8 / 6 = 0.13 with two backup workers, which drop some gradients.

# %%
ways = {"synchronous, 8 of 8": (8, 0.8, True, BLUE), "6 of 8, two backups": (6, 0.8, True, GREEN),
        "asynchronous": (1, 0.1, False, ORANGE)}
figure, axes = plt.subplots(1, 2, figsize=(7.5, 3), sharey=True)
for name, (N, lr, synchronous, colour) in ways.items():
    curves = [train(8, N, lr, 150, synchronous, seed) for seed in range(3)]
    for ax, column in zip(axes, (0, 1)):
        grid = np.linspace(16, min(curve[-1, column] for curve in curves), 60)
        middle = np.median([np.interp(grid, c[:, column], c[:, 2]) for c in curves], axis=0)
        ax.plot(grid, middle, color=colour, label=name)
    print("%-20s %4d gradients and %3d updates in 150 ticks; test loss %.2f" % (
        name, curves[0][-1, 0], curves[0][-1, 3], np.median([c[-1, 2] for c in curves])))
axes[0].set(yscale="log", xlabel="gradients computed", ylabel="test loss (median of 3 runs)")
axes[1].set(xlabel="time, ticks")
axes[0].set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
axes[0].minorticks_off()
axes[0].legend(loc="upper right")
show(figure, "The test loss of synchronous, backup and asynchronous training of the digits. "
             "Against the number of gradients the three curves agree; against time the synchronous "
             "one falls far more slowly, and the one with two backup workers lies between.")

# %% [markdown]
# By gradients, the three are alike, partly because we chose the rates so. By time they are not. All
# eight wait for the slowest of eight draws, so synchronous workers compute fewer gradients. Two
# backup workers recover much of that.
#
# Two warnings before you generalise. The asynchronous rate depends on the number of workers: with
# twice as many, 0.1 may fail. And Chen et al. found that on other networks staleness costs test
# accuracy.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Two backup workers.** ★☆☆ Use `Slots` with `N = 1` of 3. Whose gradients count, and where
# does `w` end?
#
# <details><summary>Hint</summary>
#
# `simulate(Slots(N=1))` returns the bars and the steps.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# ps = Slots(N=1)
# _, steps = simulate(ps)
# assert all(whose == [0] for _, whose in steps)  # the fastest is always the first
# assert np.isclose(ps.session.run(ps.w), C[0])   # so w goes to the minimum of worker 0
# ```
#
# </details>

# %% [markdown]
# **2. Who is missing?** ★★☆ With `N = 3`, worker 2 never pushes. Let the others find out for whom
# they wait. Could they do so with `SharedParts`?
#
# <details><summary>Hint</summary>
#
# `Slots` keeps the version of each worker's gradient in `versions`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# ps = Slots(N=3)
# for k in 0, 1:
#     ps.push(k, g=1.0, version=0)
# missing = np.flatnonzero(ps.session.run(ps.versions) != ps.session.run(ps.step))
# assert list(missing) == [2]
#
# shared = SharedParts(N=3)
# for k in 0, 1:
#     shared.push(k, g=1.0, version=0)
# assert shared.session.run(shared.gathered) == 2  # a number, and no names
# ```
#
# </details>

# %% [markdown]
# **3. Inside the optimizer.** ★★☆ Build a `SyncReplicasOptimizer` for two variables on the ps.
# Which accumulators and queues does its graph have, and on which device?
#
# <details><summary>Hint</summary>
#
# `graph.get_operations()` lists all ops; each has a `type` and a `device`. The types end with
# `Accumulator` and `QueueV2`.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# place = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
# with tf.Graph().as_default() as graph, tf.device(place):
#     a, b = tf.get_variable("a", initializer=1.0), tf.get_variable("b", initializer=1.0)
#     optimizer = tf.train.SyncReplicasOptimizer(
#         tf.train.GradientDescentOptimizer(LR), replicas_to_aggregate=2, total_num_replicas=3)
#     optimizer.minimize(a * a + b * b, global_step=tf.train.get_or_create_global_step())
# optimizer.ready_for_local_init_op.mark_used()  # or TensorFlow complains that it was not used
# parts = [(op.type, op.device) for op in graph.get_operations()
#          if op.type.endswith(("Accumulator", "QueueV2"))]
# assert sum("Accumulator" in kind for kind, _ in parts) == 2  # one for each variable
# assert sum("Queue" in kind for kind, _ in parts) == 1        # one for all workers
# assert all("/job:ps" in device for _, device in parts)
# ```
#
# </details>

# %% [markdown]
# **4. How many backup workers?** ★★★ Draw the durations of eight workers 10,000 times, as `train`
# does. A step ends with the `N`-th of them. Unlike in `train`, the later workers stop at once and
# begin again. Which `N` gives the most gradients per tick? How much more than `N = 8`?
#
# <details><summary>Hint</summary>
#
# Sort each row of an array [10000, 8]. Column `N - 1` is the duration of a step with `N` gradients.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# random = np.random.RandomState(0)
# durations = 1 + random.exponential(0.2, [10_000, 8])
# durations *= np.where(random.rand(10_000, 8) < 0.08, 6, 1)
# of_step = np.sort(durations, axis=1).mean(axis=0)
# rate = np.arange(1, 9) / of_step  # gradients in a tick, for N = 1 to 8
# assert 1 + np.argmax(rate) == 6   # two backup workers
# assert rate[5] > 1.7 * rate[7]
# ```
#
# </details>

# %%
# Stop what this notebook started.
clients.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Chen, Pan, Monga, Bengio, Jozefowicz 2016, [Revisiting Distributed Synchronous
#   SGD](https://arxiv.org/abs/1604.00981): stragglers, backup workers, and staleness measured.
# - Dean, Barroso 2013, [The Tail at Scale](https://doi.org/10.1145/2408776.2408794): why some of
#   many machines are always slow.
# - Goyal et al. 2017, [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677): the
#   learning rate of the mean of many gradients.
# - [Synchronous-SGD](../Synchronous-SGD/) and its [page about
#   SyncReplicasOptimizer](../Synchronous-SGD/OPTIMIZER.md);
#   [Scaling](../Measurements/Scaling/).
#
# Next: [Ring-AllReduce](Ring-AllReduce.ipynb), which needs no ps.
