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
# # Which algorithm?
# You know the parts; now they compete. This notebook writes six algorithms in a few lines each.
# All train the same model with the same number of gradients. At the end stand one table, and a
# chart to choose by.
#
# After this notebook you can:
# - write HogWild, DOWNPOUR-Easy, ADAG, DynSGD, AEASGD and synchronous SGD from their equations;
# - compute how many bytes a gradient costs in each;
# - say what makes a comparison fair, and read loss against gradients and against seconds;
# - choose an algorithm for a situation, and give the reason.
#
# **Before it:** [Stale-Gradients](Stale-Gradients.ipynb),
# [Synchronous-Replicas](Synchronous-Replicas.ipynb), [Why-Distribute](Why-Distribute.ipynb).
# **Time:** 85 minutes.

# %% [markdown]
# ## The six, and a reference
# `w` are the shared weights on a parameter server (ps), and `w_k` is the copy of worker `k`.
# `g(w_k)` is the gradient of a new mini-batch at `w_k`. A worker *pulls* `w`, and *pushes* an
# update. The *staleness* of a push is how many updates the others made between its pull and the
# push.
#
# ![Six algorithms, seen from one worker. HogWild: pull, one gradient, push, again and again. DOWNPOUR-Easy, ADAG, DynSGD and AEASGD: pull, several gradients, push. What a push does: HogWild subtracts lr times g; DOWNPOUR-Easy lr times the sum a of T gradients; ADAG lr times a / T; DynSGD lr times a / (staleness + 1); AEASGD adds E to w and takes it from w_k. Synchronous SGD: pull, one gradient, push, then a barrier; w moves by the mean.](../docs/figures/algorithms.svg)
#
# The reference is a single process without a ps, which computes as many gradients. The next
# three cells are the folded ones of every notebook.

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
# To keep the algorithms short, all 2,410 weights of the model are one vector here. So a pull is
# one message, and so is a push. `matrices` cuts the vector into the weights and biases of the two
# layers.

# %%
# %%writefile vector.py
import numpy as np
import tensorflow.compat.v1 as tf
import digits

layers = digits.first_values()
first_vector = np.concatenate([layer.ravel() for layer in layers])

def matrices(vector):
    parts = tf.split(vector, [layer.size for layer in layers])
    return [tf.reshape(part, layer.shape) for part, layer in zip(parts, layers)]

# %%
import digits
import vector

bytes_of_w = vector.first_vector.nbytes
print("%d weights, %d bytes" % (len(vector.first_vector), bytes_of_w))
assert bytes_of_w == 4 * 2410

# %% [markdown]
# ## What all algorithms share
# Each algorithm is a function that builds *one* update of *one* worker; both workers run it again
# and again. It gets
#
# - `w`, the vector on the ps, and `clock`, the number of its updates so far;
# - `loss_at(w_k, number)`, the loss of this worker's mini-batch `number` at `w_k`;
# - `G`, how many gradients all workers may compute together.
#
# `tf.count_up_to` takes a *ticket*: it returns the clock and adds 1 as one operation. So no two
# pushes have the same ticket, and `ticket - version` is the staleness. At the limit it raises
# `OutOfRangeError`, which ends the run.

# %%
# %%writefile algorithms.py
import collections
import json
import os
import tensorflow.compat.v1 as tf

lr = 0.2     # the learning rate
T = 10       # local steps between two pushes
alpha = 0.5  # the strength of AEASGD's spring
config = json.loads(os.environ["TF_CONFIG"])
k, n = config["task"]["index"], len(config["cluster"]["worker"])  # worker k of n

Update = collections.namedtuple("Update", "pulled loss pushed version ticket done")
after = tf.control_dependencies  # ops in this block run after these tensors are there

def pull(w, clock):
    """The number of updates so far, then a copy of w on this worker."""
    version = clock.read_value()
    with after([version]):
        return version, tf.identity(w.read_value())

def send(tensor, w):
    """The tensor, on the ps."""
    with tf.device(w.device):
        return tf.identity(tensor)

# %% [markdown]
# ### HogWild
# Push every gradient, and wait for nobody:
#
# $$w_k \leftarrow w, \qquad w \leftarrow w - lr \cdot g(w_k)$$
#
# No lock is held from the pull to the push. TensorFlow does lock one variable while it applies
# one update to it, so no push is torn here.

# %%
# %%writefile -a algorithms.py

def hogwild(w, clock, loss_at, G):
    version, w_k = pull(w, clock)
    loss = loss_at(w_k, version)
    g = tf.gradients(loss, w_k)[0]
    arrived = send(lr * g, w)
    with after([arrived]):
        ticket = tf.count_up_to(clock, G)
    with after([ticket]):
        push = w.assign_sub(arrived)
    return Update(w_k, loss, g, version, ticket, push)

# %% [markdown]
# ### DOWNPOUR-Easy and ADAG
# Take `T` steps alone, each with a new gradient at the moved `w_k`. Sum them up in `a`, and push
# that:
#
# $$a \leftarrow a + g(w_k), \quad w_k \leftarrow w_k - lr \cdot g(w_k) \quad (T \text{ times}), \qquad
# w \leftarrow w - lr \cdot a$$
#
# ADAG differs in one place: it pushes the mean `a / T`. The body of a `tf.while_loop` is built
# once and runs `T` times.

# %%
# %%writefile -a algorithms.py

def local_steps(w_k, first, steps, loss_at):
    """w_k after so many steps, the sum of their gradients, and the last loss."""
    def one_step(t, w_k, a, _):
        loss = loss_at(w_k, first + t)
        g = tf.gradients(loss, w_k)[0]
        return t + 1, w_k - lr * g, a + g, loss
    begin = [tf.constant(0, tf.int64), w_k, tf.zeros_like(w_k), 0.0]
    _, w_k, a, loss = tf.while_loop(lambda t, *_: t < steps, one_step, begin, back_prop=False)
    return w_k, a, loss

def downpour_easy(w, clock, loss_at, G, factor=1.0):
    version, w_k = pull(w, clock)
    _, a, loss = local_steps(w_k, T * version, T, loss_at)
    arrived = send(lr * factor * a, w)
    with after([arrived]):
        ticket = tf.count_up_to(clock, G // T)
    with after([ticket]):
        push = w.assign_sub(arrived)
    return Update(w_k, loss, a, version, ticket, push)

def adag(w, clock, loss_at, G):
    return downpour_easy(w, clock, loss_at, G, factor=1 / T)

# %% [markdown]
# ### DynSGD
# The staler a push, the smaller its step:
#
# $$w \leftarrow w - lr \cdot \frac{a}{staleness + 1}$$
#
# The staleness now decides how `w` moves. So the clock and `w` must be read together, and changed
# together. `tf.CriticalSection` is a lock: only one worker at a time runs what it executes. This
# is the rule of the library dist-keras; the paper's own rule is more elaborate.

# %%
# %%writefile -a algorithms.py

def dynsgd(w, clock, loss_at, G):
    with tf.device(w.device):
        lock = tf.CriticalSection(shared_name="lock")
    version, now = lock.execute(lambda: [clock.read_value(), w.read_value()])
    w_k = tf.identity(now)
    _, a, loss = local_steps(w_k, T * version, T, loss_at)
    arrived = send(lr * a, w)

    def move():
        ticket = tf.count_up_to(clock, G // T)
        staleness = tf.cast(ticket - version, tf.float32)
        with after([w.assign_sub(arrived / (staleness + 1))]):
            return tf.identity(ticket)
    with after([arrived]), tf.device(w.device):
        ticket = lock.execute(move)
    return Update(w_k, loss, a, version, ticket, ticket)

# %% [markdown]
# ### AEASGD: elastic averaging
# Each worker keeps a `w_k` of its own, which `w` never replaces. In every `T`-th step a spring
# draws the two together by `E`:
#
# $$E = \alpha (w_k - w), \qquad w_k \leftarrow w_k - lr \cdot g(w_k) - E, \qquad w \leftarrow w + E$$
#
# `E` and `g` both belong to the `w_k` before that step.

# %%
# %%writefile -a algorithms.py

def aeasgd(w, clock, loss_at, G):
    own = tf.get_local_variable("own", initializer=w.read_value())
    pushes = tf.get_local_variable("pushes", initializer=tf.constant(0, tf.int64))
    first = T * pushes.read_value()
    w_k, _, _ = local_steps(own.read_value(), first, T - 1, loss_at)
    with after([w_k]):
        version, pulled = pull(w, clock)
    loss = loss_at(w_k, first + T - 1)
    g = tf.gradients(loss, w_k)[0]
    E = alpha * (w_k - pulled)
    arrived = send(E, w)
    with after([arrived, g]):
        ticket = tf.count_up_to(clock, G // T)
    with after([ticket]):
        push = [w.assign_add(arrived), own.assign(w_k - lr * g - E), pushes.assign_add(1)]
    return Update(pulled, loss, E, version, ticket, tf.group(push))

# %% [markdown]
# ### Synchronous SGD
# All workers make one step together, by the mean of their gradients at the same `w`:
#
# $$w \leftarrow w - lr \cdot \frac{1}{n} \sum_{k} g_k(w)$$
#
# The gradients meet in a queue on the ps. Worker 0 waits for all `n` of them, and moves `w`. Then
# it puts a token into the queue of each other worker, which waits for it. So no worker gives two
# gradients to one step.

# %%
# %%writefile -a algorithms.py

def synchronous_sgd(w, clock, loss_at, G):
    steps = tf.get_local_variable("steps", initializer=tf.constant(0, tf.int64))
    turn = tf.count_up_to(steps, G // n)  # this worker's own count: all make as many steps
    with after([turn]):
        version, w_k = pull(w, clock)
    loss = loss_at(w_k, version)
    g = tf.gradients(loss, w_k)[0]
    with tf.device(w.device):
        gradients = tf.FIFOQueue(n, tf.float32, g.shape, shared_name="gradients")
        tokens = [tf.FIFOQueue(1, tf.int64, [], shared_name="token_%d" % j) for j in range(n)]
        with after([gradients.enqueue(g)]):
            if k > 0:
                done = tokens[k].dequeue()
            else:
                mean = tf.reduce_mean(gradients.dequeue_many(n), axis=0)
                with after([w.assign_sub(lr * mean)]):
                    moved = clock.assign_add(1)
                with after([moved]):
                    done = tf.group([tokens[j].enqueue(version) for j in range(1, n)])
    return Update(w_k, loss, g, version, turn, done)

# %% [markdown]
# ## The race
# The ps is the short program of [Servers](Servers.ipynb). A worker imports TensorFlow once, and
# then runs all algorithms, one after another. All have these in common:
#
# - the same first weights, the same batch size and `G` = 1,200 gradients in all; also the same
#   learning rate, which is not fair: each should have its own best one, found with equal effort;
# - each worker has mini-batches of its own, drawn by its number and a counter;
# - the clock starts when both workers are ready. The first update sends the graph to the ps and is
#   slow, so it happens before, and `w` is set back after it.
#
# To draw the loss during a run, a worker keeps each copy that it has pulled. We test these copies
# later, so the tests cost no time in the run.

# %%
# %%writefile server.py
import json
import os
import tensorflow.compat.v1 as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
server.join()

# %%
# %%writefile worker.py
import importlib
import sys
import time
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()
import digits
import vector
from algorithms import after, config, k, n

# worker.py FILE G NAME ...: the algorithms NAME of FILE, each with G gradients
file, G, names = importlib.import_module(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
x, y = digits.load()[:2]
ps, me = "/job:ps/task:0", "/job:worker/task:%d" % k
proto = tf.ConfigProto(device_filters=[ps, me], operation_timeout_in_ms=40_000)
proto.experimental.disable_thread_spinning = True  # the other processes need the cores
server = tf.train.Server(config["cluster"], job_name="worker", task_index=k, config=proto)

def barrier_ops():
    """Run the first, then the second: it ends when all workers have run the first."""
    def queue(i, j):
        return tf.FIFOQueue(8, tf.bool, [], shared_name="from_%d_to_%d" % (i, j))
    others = [j for j in range(n) if j != k]
    with tf.device(ps):
        return [queue(k, j).enqueue(True) for j in others], [queue(j, k).dequeue() for j in others]

def run(name):
    alone = name == "one_process"  # HogWild's code, but w is at home, and only worker 0 runs it
    with tf.device(me if alone else ps):
        w = tf.get_variable("w", initializer=vector.first_vector)
        clock = tf.get_variable("clock", initializer=tf.constant(0, tf.int64))
    arrive, wait = barrier_ops()

    def loss_at(w_k, number):
        return digits.loss(vector.matrices(w_k), *digits.batch(x, y, number, k))
    with tf.device(me):
        build = file.hogwild if alone else getattr(file, name)
        update = build(w, clock, loss_at, G)
        with after([update.done]):
            row = [update.version, tf.identity(update.ticket), update.loss, update.pulled,
                   tf.size(update.pushed)]

    with tf.Session(server.target, config=proto) as session:
        def barrier():
            session.run(arrive)
            session.run(wait)

        def begin():
            if k == 0:
                session.run(tf.global_variables_initializer())
            barrier()
            session.run(tf.local_variables_initializer())
            barrier()
        begin()
        update_w = session.make_callable(row)
        takes_part = k == 0 or not alone
        if takes_part:
            update_w()  # the first one: it sends the graph
        barrier()
        begin()
        rows, seconds, start = [], [], time.time()
        try:
            while takes_part:
                rows.append(update_w())
                seconds.append(time.time() - start)
        except tf.errors.OutOfRangeError:  # all gradients are made
            pass
        barrier()
        final = session.run(w) if takes_part else vector.first_vector
        barrier()
    version, ticket, loss, pulled, pushed = [list(column) for column in zip(*rows)] or [[]] * 5
    np.savez("%s-%d.npz" % (name, k), version=version, ticket=ticket, loss=loss, pulled=pulled,
             pushed=pushed, seconds=seconds, final=final)

for name in names:
    with tf.Graph().as_default():
        run(name)

# %% [markdown]
# **Predict:** w has 9,640 bytes. How many bytes cross the network for each *gradient* in HogWild?
# In synchronous SGD? In the algorithms with `T` = 10 local steps?

# %%
G, T, n = 1200, 10, 2
names = {"one_process": "one process", "hogwild": "HogWild", "downpour_easy": "DOWNPOUR-Easy",
         "adag": "ADAG", "dynsgd": "DynSGD", "aeasgd": "AEASGD",
         "synchronous_sgd": "Synchronous SGD"}

def train(*names, file="algorithms", G=G):
    """Trains by algorithms of a file; returns {name: what its workers have kept}."""
    cluster = new_cluster(ps=1, worker=n)
    ps = start("server.py", cluster, "ps")
    workers = [start("worker.py", cluster, "worker", k, file, G, *names) for k in range(n)]
    for worker in workers:
        finish(worker)
    stop(ps)
    return {name: [dict(np.load("%s-%d.npz" % (name, k))) for k in range(n)] for name in names}

runs = train(*names)

def bytes_per_gradient(name, G=G):
    """Those of w pulled and of updates pushed, without the clock and the headers of messages."""
    numbers = sum(run["pulled"].size + run["pushed"].sum() for run in runs[name])
    return 0 if name == "one_process" else 4 * numbers / G

for name in names:
    print("%-16s %6d bytes a gradient" % (names[name], bytes_per_gradient(name)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 19,280 in the first two: each gradient needs a pull and a push of 9,640 bytes. Waiting for others
# does not change that. With `T` local steps one pull and one push serve ten gradients:
# 1,928. Whether a worker pushes a sum, a mean or a force, it is as large as `w`.
#
# </details>

# %% jupyter={"source_hidden": true}
assert bytes_per_gradient("hogwild") == bytes_per_gradient("synchronous_sgd") == 2 * bytes_of_w
assert {bytes_per_gradient(name) for name in list(names)[2:6]} == {2 * bytes_of_w / T}

# %% [markdown]
# All runs use exactly 1,200 gradients. But `w` moves 1,200 times in HogWild, 120 times with ten
# local steps, and 600 times in synchronous SGD, where a step takes two gradients.

# %%
for name in names:
    updates = 1 + max(run["ticket"].max(initial=-1) for run in runs[name])
    print("%-16s w moved %4d times" % (names[name], updates))
    assert updates == {"hogwild": G, "one_process": G, "synchronous_sgd": G // n}.get(name, G // T)
    stale = np.concatenate([run["ticket"] - run["version"] for run in runs[name]])
    assert min(stale) >= 0 and (name not in ("one_process", "synchronous_sgd") or max(stale) == 0)

# %% [markdown]
# ## One table
# Now we test the last `w` of each run on the 360 digits that no worker has seen.
#
# **Predict:** all computed the same number of gradients at the same learning rate. Which algorithm
# ends with the highest loss? Which takes the longest time, and which of those with a ps the
# shortest?

# %%
x_test, y_test = digits.load()[2:]
tested = tf.placeholder(tf.float32, vector.first_vector.shape)
test_ops = [measure(vector.matrices(tested), x_test, y_test)
            for measure in (digits.loss, digits.accuracy)]
test_session = tf.Session()

def test(w):
    """Loss and accuracy on the test rows."""
    return test_session.run(test_ops, {tested: w})

def summary(name):
    """One row of the table."""
    loss, accuracy = test(runs[name][0]["final"])
    staleness = np.concatenate([run["ticket"] - run["version"] for run in runs[name]])
    seconds = max(run["seconds"].max(initial=0) for run in runs[name])
    return (names[name], loss, 100 * accuracy, seconds, bytes_per_gradient(name), staleness.mean(),
            staleness.max())

# %% tags=["measured"]
print("                  test  accuracy  seconds   bytes a   staleness")
print("                  loss         %            gradient  mean  largest")
for name in names:
    print("%-16s %.3f  %8.1f  %7.2f  %8d  %5.2f  %7d" % summary(name))

# %% [markdown]
# <details><summary>Answer</summary>
#
# **Loss:** ADAG's is the highest. A mean of ten gradients is a tenth of their sum. At the same
# learning rate `w` moves about ten times less. HogWild and DOWNPOUR-Easy end close to one
# process: two workers are seldom late by more than one update. DynSGD halves the pushes that are
# late by one, so it may be a little behind. AEASGD is behind because `w` lags behind the workers.
# Synchronous SGD makes half as many steps, each by a mean of two.
#
# **Time:** one process is among the fastest. HogWild and synchronous SGD take longest, because
# each gradient needs a round trip to the ps. Ten local steps need a tenth of the round trips. The
# four algorithms that take them hardly differ.
#
# </details>
#
# The asynchronous rows differ each time you run the cells; one process and synchronous SGD always
# do the same steps. To see what is chance, you need several runs, and to compare algorithms, a
# learning rate that suits each of them. [Compare](../Measurements/Compare/) tunes each one with six
# settings, and then trains all for the same seconds, with five seeds each. Held against its table
# for two workers:
#
# - **The losses.** At a rate of their own, all algorithms end with the loss of one process there.
#   Here ADAG is behind because it shares the rate of the others, AEASGD because training is short,
#   and Synchronous SGD because it makes half as many steps: see exercise 2.
# - **The time** agrees. HogWild and Synchronous SGD make a fifth of the mini-batches of those with
#   ten local steps.
# - **DynSGD** is slow there and among the fastest here. There it has `T` = 1, its default. Here we
#   gave it ten local steps, so that it differs from DOWNPOUR-Easy in one thing only.
#
# ## Loss against gradients, and against seconds
# **Predict:** which curves will change places when you replace gradients by seconds?

# %% tags=["measured"]
styles = dict(zip(names, [(GRAY, "-", 4), (BLUE, "-", 1.5), (ORANGE, "-", 1.5), (RED, "-", 1.5),
                          (PURPLE, "--", 1.5), (GREEN, "-", 1.5), ("black", ":", 2)]))
figure, (by_gradients, by_seconds) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
for name in names:
    run = runs[name][0]  # the copies that worker 0 has pulled
    updates = 1 + max(each["ticket"].max(initial=-1) for each in runs[name])
    last = len(run["version"]) - 1
    shown = np.unique(np.concatenate(  # many of the first copies, then some of all
        [np.geomspace(1, last, 15), np.linspace(1, last, 25)]).astype(int))
    losses = [test(run["pulled"][i])[0] for i in shown]
    color, line, width = styles[name]
    by_gradients.plot(run["version"][shown] * G / updates, losses, line, color=color,
                      linewidth=width)
    by_seconds.plot(run["seconds"][shown - 1], losses, line, color=color, linewidth=width,
                    label=names[name])
by_gradients.set(yscale="log", xlabel="gradients of all workers", ylabel="test loss")
by_seconds.set(xscale="log", xlabel="seconds (logarithmic)")
by_gradients.set_yticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
by_seconds.set_xticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
by_gradients.minorticks_off()
by_seconds.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "Test loss of seven runs. Against gradients one process, HogWild and DOWNPOUR-Easy "
     "lie close together, ADAG is far behind. Against seconds HogWild and synchronous SGD are far "
     "to the right of DOWNPOUR-Easy.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Against gradients HogWild is among the best. Against seconds it is far to the right, and so is
# synchronous SGD: they spend their time on round trips. Compare ADAG and HogWild in both panels:
# the large lead on the left shrinks or is gone on the right. Gradients measure how well an
# algorithm learns. Seconds measure how well it learns *on this machine, with this model*.
#
# </details>
#
# So the right panel would look different elsewhere. If a gradient takes 100 ms, a round trip of 2
# ms hardly matters, and two workers can be nearly twice as fast as one.
# [Why-Distribute](Why-Distribute.ipynb) measures such a case. With eight workers or a straggler,
# staleness grows, and the left panel changes, too. [Scaling](../Measurements/Scaling/) measures
# that.
#
# ## Which one to use
# Begin at the top, and stop at the first "yes":
#
# ![Decision chart. Is the model too large for a device? If yes: Sharded-Training, Model-Parallelism, Sparse-Embeddings. Is one device fast enough? If yes: do not distribute: Non-Distributed-Setup. Do the devices of one machine suffice? If yes: Multiple-GPUs-Single-Machine. Are the machines equal, and do all stay? If yes: Collective-AllReduce; slow network: Local-SGD, DiLoCo. Are just one or two slow at a time? If yes: Synchronous-SGD with --backup-workers. Do gradients cost far more than pulls? If yes: HogWild; DynSGD near the highest rate that learns. Otherwise T steps between two pushes: DOWNPOUR-Easy with two or three workers; ADAG, DOWNPOUR or AEASGD with more, each at a rate of its own.](../docs/figures/choose.svg)
#
# | choose | when | what it costs you |
# | --- | --- | --- |
# | [Non-Distributed-Setup](../Non-Distributed-Setup/) | one device is fast enough | nothing |
# | [Collective-AllReduce](../Collective-AllReduce/) | equal machines that all stay | all wait for the slowest; one failure stops all |
# | [Local-SGD](../Further-Algorithms/Local-SGD/) | the same, on a slow network | workers drift apart for T steps |
# | [Synchronous-SGD](../Synchronous-SGD/) with `--backup-workers` | one or two slow workers | the late gradients are thrown away |
# | [HogWild](../HogWild/) | unequal machines, gradients that cost much | stale gradients |
# | [DynSGD](../DynSGD/) | the same, near the highest rate that learns | a lock, and smaller steps |
# | [DOWNPOUR-Easy](../DOWNPOUR-Easy/) | two or three workers, slow round trips | sums go far: eight workers learn at no rate |
# | [DOWNPOUR](../DOWNPOUR/) | the same with more workers | Adagrad's rate only falls |
# | [ADAG](../ADAG/) | the same with more workers | a mean goes a short way: the learning rate must be tuned |
# | [AEASGD](../AEASGD/), [AEAMSGD](../AEAMSGD/) | slow round trips; each worker may explore | one more constant, `alpha`, and `w` lags behind |
# | [Model-Parallelism](../Model-Parallelism/), [Sharded-Training](../Further-Algorithms/Sharded-Training/), [Sparse-Embeddings](../Sparse-Embeddings/) | the model, or a table, is too large | workers wait for activations or parameters; sparse updates only |
#
# In new TensorFlow 2 code the asynchronous choice is
# [Parameter-Server-Strategy](../Parameter-Server-Strategy/), and the synchronous one
# `tf.distribute` with an all-reduce: see [TF2-Strategies](TF2-Strategies.ipynb). And tune the
# learning rate of each algorithm before you decide.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Bytes of an all-reduce.** ★☆☆ In a step of a ring all-reduce, each of `n` workers sends
# `2 (n - 1) / n` times the size of the gradient. How many bytes is that for each gradient, with 2
# and with 100 workers? From which `T` on does DOWNPOUR-Easy need fewer?
#
# <details><summary>Hint</summary>
#
# In a step of `n` workers there are `n` gradients. So the bytes of one worker are those of one
# gradient. DOWNPOUR-Easy needs `2 * bytes_of_w / T`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def ring(n):
#     return 2 * (n - 1) / n * bytes_of_w
#
# assert ring(2) == 9640 and round(ring(100)) == 19087
# # 2 w / T < 2 (n - 1) / n w, so T > n / (n - 1)
# needed = {n: next(T for T in range(1, 99) if 2 * bytes_of_w / T < ring(n)) for n in (2, 100)}
# assert needed == {2: 3, 100: 2}
# ```
#
# </details>

# %% [markdown]
# **2. A fair learning rate.** ★★☆ A step of synchronous SGD sees two mini-batches. The linear
# scaling rule says: `n` times the batch, `n` times the learning rate. Write a file `mine.py`,
# whose function `twice` is synchronous SGD at twice the rate. Is it closer to one process?
#
# <details><summary>Hint</summary>
#
# In `mine.py`: import `algorithms`, set `algorithms.lr`, and return
# `algorithms.synchronous_sgd(...)`. Then
# call `train("twice", file="mine")`. It returns what the workers have kept, and `[0]["final"]` of
# `"twice"` is the last `w`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# pathlib.Path("mine.py").write_text('''
# import algorithms
#
# def twice(w, clock, loss_at, G):
#     algorithms.lr = 0.4
#     return algorithms.synchronous_sgd(w, clock, loss_at, G)
# ''')
# runs.update(train("twice", file="mine"))
# three = "one_process", "synchronous_sgd", "twice"
# loss = {name: test(runs[name][0]["final"])[0] for name in three}
# assert loss["twice"] < loss["synchronous_sgd"]
# assert abs(loss["twice"] - loss["one_process"]) < loss["synchronous_sgd"] - loss["one_process"]
# ```
#
# </details>

# %% [markdown]
# **3. SAGN.** ★★★ Write SAGN. Each worker takes `T` steps alone. Then all make one step together,
# by the mean of all their gradients:
#
# $$w \leftarrow w - lr \cdot \frac{1}{n} \sum_k \frac{a_k}{T}$$
#
# How many bytes does a gradient cost? How often does `w` move?
#
# <details><summary>Hint</summary>
#
# Begin with `synchronous_sgd`. Replace its gradient by `a / T` of `local_steps`, and `G // n` by
# what each worker now has to do. The batches of a round begin at `T * version`.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# source = pathlib.Path("algorithms.py").read_text()
# source = source.replace("def synchronous_sgd", "def sagn").replace("G // n)", "G // (n * T))")
# old = "    loss = loss_at(w_k, version)\n    g = tf.gradients(loss, w_k)[0]\n    with tf.device("
# assert source.count(old) == 1
# pathlib.Path("mine_too.py").write_text(source.replace(old, '''
#     _, a, loss = local_steps(w_k, T * version, T, loss_at)
#     g = a / T
#     with tf.device('''))
# runs.update(train("sagn", file="mine_too"))
# assert bytes_per_gradient("sagn") == 2 * bytes_of_w / T
# assert 1 + runs["sagn"][0]["ticket"].max() == G // (n * T) == 60
# assert all((run["ticket"] == run["version"]).all() for run in runs["sagn"])  # never stale
# assert test(runs["sagn"][0]["final"])[0] > test(runs["synchronous_sgd"][0]["final"])[0]  # as ADAG
# ```
#
# </details>

# %%
# Stop what this notebook started.
test_session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Niu, Recht, Ré, Wright 2011, [Hogwild!](https://arxiv.org/abs/1106.5730)
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html): DOWNPOUR.
# - Zhang, Choromanska, LeCun 2015, [Deep learning with Elastic Averaging
#   SGD](https://arxiv.org/abs/1412.6651).
# - Chen, Pan, Monga, Bengio, Jozefowicz 2016, [Revisiting Distributed Synchronous
#   SGD](https://arxiv.org/abs/1604.00981).
# - Hermans, Spanakis, Moeckel 2017, [Accumulated Gradient
#   Normalization](https://arxiv.org/abs/1710.02368): ADAG, which the paper calls AGN.
# - Jiang, Cui, Zhang, Yu 2017, *Heterogeneity-aware Distributed Parameter Servers*, SIGMOD: DynSGD.
# - [Compare](../Measurements/Compare/), [Scaling](../Measurements/Scaling/),
#   [Slow-Network](../Measurements/Slow-Network/): the measurements of the full examples.
#
# Next: [your model, your data, your cluster](../docs/your-cluster.md).
