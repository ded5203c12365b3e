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
# # Ring all-reduce
# In synchronous training every worker needs the mean of all gradients. A parameter server would
# receive all of them, and its connection becomes the bottleneck. In a ring the workers do it
# themselves, and each sends less than twice the size of its gradient, however many they are.
#
# After this notebook you can:
# - carry out reduce-scatter and all-gather step by step, and say which chunk is where;
# - count the bytes that a worker sends, and say when nobody can do with fewer;
# - write an all-reduce over sockets that does not deadlock;
# - train with it, and show that the result is that of one process with a larger batch;
# - compute when a ring, a tree or a parameter server is fastest.
#
# **Before it:** [Synchronous-Replicas](Synchronous-Replicas.ipynb). **Time:** 90 minutes.

# %% [markdown]
# ## The task
# There are $N$ workers. Worker $k$ has a vector $g_k$, its gradient. An *all-reduce* gives each of
# them the sum $g_0 + g_1 + \dots + g_{N-1}$. Divided by $N$, that is the mean.
#
# The workers form a ring: $k$ sends to its right neighbour $k+1$ and receives from its left one,
# $k-1$. Each cuts its vector into $N$ chunks. Here $N = 4$, and the chunks are called a to d.
#
# ![Animated ring of four workers at the corners of a square; each sends to the next. A gradient is cut into chunks a to d. In three steps of reduce-scatter the sums grow, until each worker has one chunk with the numbers of all four. In three steps of all-gather copies of these chunks reach all workers.](../docs/figures/ring-steps.svg)
#
# The algorithm has two halves of $N - 1$ steps each, $s = 0, \dots, N - 2$. All indices are mod
# $N$:
# - **Reduce-scatter:** worker $k$ sends chunk $k - s$. It *adds* what it receives to its own chunk
#   $k - s - 1$.
# - **All-gather:** worker $k$ sends chunk $k + 1 - s$. It *replaces* its own chunk $k - s$ by what
#   it receives.
#
# These are the names of MPI, the standard of message passing on supercomputers, and of NCCL,
# NVIDIA's library for GPUs. Some texts say *scatter-reduce* for the first half; it is the same.
# Supercomputers used the ring long before; an article and a library of Baidu made it known in deep
# learning in 2017.

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

# %% [markdown]
# ## Step by step
# First all workers in one process, in lockstep: in each step all of them send, then all of them
# receive.

# %%
def all_reduce_in_lockstep(chunk):
    """chunk[k][c] is chunk c of worker k. Yields after each step: its name, and what was sent."""
    N = len(chunk)
    for s in range(N - 1):
        sent = [chunk[k][(k - s) % N].copy() for k in range(N)]
        for k in range(N):
            chunk[k][(k - s - 1) % N] += sent[k - 1]
        yield "reduce-scatter, s = %d" % s, sent
    for s in range(N - 1):
        sent = [chunk[k][(k + 1 - s) % N].copy() for k in range(N)]
        for k in range(N):
            chunk[k][(k - s) % N][:] = sent[k - 1]
        yield "all-gather, s = %d" % s, sent

# %% [markdown]
# To see whose numbers are where, worker $k$ begins with a 1 at place $k$ of each chunk, and zeros
# elsewhere. So the chunk `[1, 0, 0, 1]` would be the sum of the numbers of workers 0 and 3. The
# picture draws each 1 as a stripe in the colour of its worker. The next cell holds the drawing.

# %% jupyter={"source_hidden": true}
COLOURS = [BLUE, ORANGE, PURPLE, GREEN]

def draw(states, description):
    """A panel for each state: a row for each worker, a column for each chunk."""
    figure, panels = plt.subplots(1, len(states), figsize=(8, 2.5), layout="constrained")
    for panel, (title, table, before) in zip(panels, states):
        for k, c, worker in np.ndindex(4, 4, 4):
            colour = COLOURS[worker] if table[k][c][worker] else "white"
            place = c - 0.4, k - 0.36 + 0.18 * worker
            panel.add_patch(plt.Rectangle(place, 0.8, 0.18, color=colour))
        for k, c in np.ndindex(4, 4):
            new = not np.array_equal(table[k][c], before[k][c])
            panel.add_patch(plt.Rectangle((c - 0.4, k - 0.36), 0.8, 0.72, fill=False,
                                          color="black" if new else GRAY, lw=2 if new else 0.8))
        panel.set_title(title, fontsize=10)
        panel.set(xlim=(-0.6, 3.6), ylim=(3.6, -0.6), xticks=range(4), xticklabels="abcd")
        panel.set(yticks=range(4), yticklabels=[])
        panel.grid(False)
        panel.tick_params(length=0)
        for side in panel.spines.values():
            side.set_visible(False)
    panels[0].set_yticklabels(["worker %d" % k for k in range(4)])
    show(figure, description)

REDUCE_SCATTER = (
    "The four chunks of four workers at the start and after the three steps of reduce-scatter. A "
    "framed chunk has just grown. At the end worker 3 has all of a, worker 0 all of b, worker 1 "
    "all of c, worker 2 all of d.")
ALL_GATHER = (
    "The chunks after the reduce-scatter and after the three steps of all-gather. In each step "
    "every worker receives one finished chunk. At the end all have all.")

# %% [markdown]
# **Predict:** which worker has the whole sum of chunk a after the reduce-scatter, that is after
# three steps? And which chunk has worker 0 whole by then?

# %%
chunk = np.array([[np.eye(4)[k]] * 4 for k in range(4)])  # [worker, chunk, whose numbers]
states = [("start", chunk.copy(), chunk.copy())]
for title, _ in all_reduce_in_lockstep(chunk):
    states.append((title, chunk.copy(), states[-1][1]))

draw(states[:4], REDUCE_SCATTER)

# %% [markdown]
# <details><summary>Answer</summary>
#
# In the step $s = 0$ worker 0 sends chunk $k - s = 0$, which is a. In each step the growing sum of
# a moves one place to the right: worker 1, worker 2, worker 3. So worker 3 has all of it. In
# general worker $k$ ends with chunk $k + 1$, and worker 0 with b.
#
# </details>
#
# A black frame marks what a worker has just received. Every worker adds in every step, so the work
# is shared evenly. The all-gather passes the four finished sums around once more:

# %%
draw(states[3:], ALL_GATHER)
assert (chunk == 1).all()

# %% [markdown]
# ## Bytes and bits
# Now the same with gradients of the digits model, which has 2,410 parameters. Worker $k$ takes 32
# images of its own. The vectors have $S$ = 2,410 · 4 = 9,640 bytes.

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
import digits

x, y, x_test, y_test = digits.load()
w = digits.variables()
images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
loss = digits.loss(w, images, labels)
g = tf.concat([tf.reshape(part, [-1]) for part in tf.gradients(loss, w)], 0)
session = tf.Session()
session.run(tf.global_variables_initializer())

def gradient(rows):
    """The gradient of the mean loss of these rows, as one vector."""
    return session.run(g, {images: x[rows], labels: y[rows]})

# %% [markdown]
# **Predict:** how many bytes does a worker send in all? Will the four workers have the same sum,
# bit for bit? And will it be the sum that NumPy computes, bit for bit?

# %%
N = 4
vectors = [gradient(np.arange(32 * k, 32 * k + 32)) for k in range(N)]
S = vectors[0].nbytes
result = [vector.copy() for vector in vectors]
chunk = [np.array_split(vector, N) for vector in result]  # views: a change in one is in both
sent = sum(np.array([part.nbytes for part in parts])
           for _, parts in all_reduce_in_lockstep(chunk))

print("S = %d bytes; the workers sent" % S, *sent)
print("all workers have the same bits:  ", all(np.array_equal(result[0], one) for one in result))
print("NumPy's sum has the same bits:   ", np.array_equal(result[0], sum(vectors)))
union = gradient(np.arange(128))
print("the mean is that of all 128 rows:", np.allclose(result[0] / N, union, atol=1e-6))

# %% [markdown]
# <details><summary>Answer</summary>
#
# In each half a worker sends $N - 1$ chunks of about $S/N$ bytes: $2 \frac{N-1}{N} S$ = 14,460. The
# chunks have 603 or 602 numbers, because 4 does not divide 2,410; so some send a little more.
#
# The workers add each chunk once, in one order, and then copy the result. So all have the same
# bits. NumPy adds in another order and rounds otherwise.
#
# </details>
#
# Equal bits matter. Each worker keeps its own copy of `w`. If the copies moved by slightly
# different steps, they would drift apart.
#
# **Can it be done with fewer bytes?** Look at one number of the gradient. Each of $N$ workers has
# its own value. Combining them needs at least $N - 1$ messages, because a message merges at most one
# value into another. Then each of the $N - 1$ others must still receive the sum. That is
# $2 (N - 1) S$ bytes in all, so some worker sends at least $2 \frac{N-1}{N} S$. Patarasuk and Yuan
# proved it in 2009, and showed that the ring needs no more.
#
# The bound holds if only the workers add. With NVIDIA's SHARP the *switches* of the network add:
# then a worker sends its gradient once, $S$ bytes, and receives the sum once.
#
# ## The same between processes
# Now each worker is a process, and sees only its own vector and two sockets. A *socket* is the end
# of a connection over the network. The file `ring.py` needs NumPy and Python's own libraries, but
# no TensorFlow. The last function is the algorithm; compare it with the two rules at the top.

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

# %%
# %%writefile ring.py
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
import numpy as np

config = json.loads(os.environ["TF_CONFIG"])
addresses, k = config["cluster"]["worker"], config["task"]["index"]
N = len(addresses)
pool = ThreadPoolExecutor(1)  # a second thread, which sends
sent = 0  # bytes

def connect(seconds=20):
    """Connects to the right neighbour, and waits for the left one."""
    global right, left
    (host, port), (right_host, right_port) = (
        addresses[i % N].split(":") for i in (k, k + 1))
    with socket.create_server((host, int(port)), reuse_port=True) as server:
        server.settimeout(seconds)
        end = time.monotonic() + seconds
        while True:
            try:
                right = socket.create_connection((right_host, int(right_port)), timeout=seconds)
                break
            except ConnectionRefusedError:  # it has not started yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        left, _ = server.accept()
    left.settimeout(seconds)
    right.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no waiting for more to send

def receive(array):
    """Fills an array from the left."""
    data = array.view(np.uint8)
    while data.size:
        count = left.recv_into(data)
        if not count:
            raise ConnectionError("the left neighbour closed the connection")
        data = data[count:]

def exchange(out, array):
    """Sends `out` to the right, and at the same time fills `array` from the left."""
    global sent
    sending = pool.submit(right.sendall, out)
    receive(array)
    sending.result()  # wait until all is sent
    sent += out.nbytes
    return array

def all_reduce(x):
    """Replaces x, a vector, by the sum of the x of all workers."""
    chunk = np.array_split(x, N)
    for s in range(N - 1):  # reduce-scatter
        mine, theirs = chunk[(k - s) % N], chunk[(k - s - 1) % N]
        theirs += exchange(mine, np.empty_like(theirs))
    for s in range(N - 1):  # all-gather
        exchange(chunk[(k + 1 - s) % N], chunk[(k - s) % N])

# %% [markdown]
# `exchange` sends in a second thread. Is that necessary? Would it not be simpler to send first, and
# to receive after that?
#
# **Predict:** four processes send first and then receive. Does it work for the digits' gradient of
# 9,640 bytes? And for a vector of 64 MB?

# %%
# %%writefile send_first.py
import sys
import numpy as np
import ring

def send_first(out, array):
    ring.right.sendall(out)
    ring.receive(array)
    return array

ring.exchange = send_first
x = np.full(int(sys.argv[1]), 1 + ring.k, "float32")
ring.connect(seconds=3)
try:
    ring.all_reduce(x)
    print("the sum is", x[0])
except (TimeoutError, ConnectionError):
    print("no progress in 3 s")

# %%
def run(file, *arguments):
    """Runs a file in four processes, and returns what each printed."""
    cluster = new_cluster(worker=N)
    processes = [start(file, cluster, "worker", k, *arguments) for k in range(N)]
    return [finish(process).strip() for process in processes]

for numbers in 2_410, 16_000_000:
    print("%10d bytes:" % (4 * numbers), *sorted(set(run("send_first.py", numbers))))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The short vector arrives: 1 + 2 + 3 + 4 = 10. With the long one all four hang, until our time
# limit ends them. The operating system stores what was sent but not yet received, in a buffer of
# limited size. A chunk of 16 MB does not fit. So each worker blocks in `sendall` until its
# neighbour receives, and the neighbour blocks in `sendall`, too: a *deadlock*.
#
# </details>
#
# Such a bug passes every test with a small model. That is why `exchange` sends and receives at the
# same time.
#
# ## Training
# Each worker starts with the same `w`. In each step it computes a gradient on its own 32 rows, and
# all move their own copy of `w` by the mean:
#
# $$w \leftarrow w - \mathrm{lr} \cdot \frac{1}{N} (g_0 + \dots + g_{N-1})$$
#
# The workers do without TensorFlow, so that they start quickly: `gradient` computes by hand what
# `tf.gradients` would. The example [Ring-AllReduce](../Ring-AllReduce/) calls the same `all_reduce`
# from a TensorFlow graph.

# %%
# %%writefile worker.py
import sys
import numpy as np
import ring

def gradient(w, x, y):
    """Of the mean cross-entropy of these rows."""
    h = np.maximum(x @ w[0] + w[1], 0)
    scores = h @ w[2] + w[3]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    d_scores = (p - np.eye(10, dtype="float32")[y]) / np.float32(len(y))
    d_h = d_scores @ w[2].T * (h > 0)
    return [x.T @ d_h, d_h.sum(0), h.T @ d_scores, d_scores.sum(0)]

data = np.load("data.npz")
x, y, w = data["x"], data["y"], [data["w_%d" % i] for i in range(4)]
ends = np.cumsum([v.size for v in w])[:-1]  # where one variable ends in the vector

ring.connect()
for step in range(int(sys.argv[1])):
    rows = np.random.default_rng([ring.k, step]).integers(0, len(x), 32)
    g = np.concatenate([part.ravel() for part in gradient(w, x[rows], y[rows])])
    ring.all_reduce(g)  # g is now the sum
    for v, mean in zip(w, np.split(g / ring.N, ends)):
        v -= 0.2 * mean.reshape(v.shape)

np.savez("trained-%d.npz" % ring.k, *w)
print(ring.sent)

# %% [markdown]
# To compare, this notebook trains one copy of `w` with TensorFlow, on the *union* of the four
# mini-batches: 128 rows in each step.
#
# **Predict:** after 300 steps, are the four copies of `w` equal, bit for bit? Are they equal to
# that of one process, bit for bit, or nearly, or only in accuracy?

# %%
STEPS = 300
values = digits.first_values()
np.savez("data.npz", x=x, y=y, **{"w_%d" % i: value for i, value in enumerate(values)})
sent = [int(printed) for printed in run("worker.py", STEPS)]

def load(k):
    with np.load("trained-%d.npz" % k) as trained:
        return [trained[name] for name in trained.files]

update = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
for step in range(STEPS):
    rows = np.concatenate([
        np.random.default_rng([k, step]).integers(0, len(x), 32) for k in range(N)])
    session.run(update, {images: x[rows], labels: y[rows]})
single = session.run(w)

# %%
any_w = [tf.placeholder(tf.float32, value.shape) for value in values]
accuracy = digits.accuracy(any_w, x_test, y_test)

def test_accuracy(values):
    return session.run(accuracy, dict(zip(any_w, values)))

def equal_bits(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other))

ring_w = [load(k) for k in range(N)]
print("bytes that a worker sent in each step:", *[total // STEPS for total in sent])
print("the four workers have the same bits:  ", all(equal_bits(ring_w[0], one) for one in ring_w))
print("one process has the same bits:        ", equal_bits(ring_w[0], single))
print("... the same up to 0.0001:            ",
      all(np.allclose(a, b, atol=1e-4) for a, b in zip(ring_w[0], single)))
print("test accuracy: %.1f%% with the ring, %.1f%% with one process" % (
    100 * test_accuracy(ring_w[0]), 100 * test_accuracy(single)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The four copies have the same bits: they began equal, and moved by the same means. One process
# computes the same mathematical mean, but adds 128 numbers in another order. So its `w` differs by
# rounding, here by less than 0.0001.
#
# </details>
#
# So the ring changes nothing about learning. All that you know of larger batches holds: see
# [SGD-by-Experiment](SGD-by-Experiment.ipynb). What it changes is the time.
#
# ## What it costs
# A usual model of a network: a message of $m$ bytes takes $\alpha + \beta m$ seconds. The *latency*
# $\alpha$ is paid once a message, $\beta$ for each byte; $1/\beta$ is the bandwidth. A machine can
# send and receive at the same time. Messages that arrive at one machine together share its
# connection. Adding costs nothing. Then an all-reduce of $S$ bytes takes:
#
# | way | seconds | why |
# | --- | --- | --- |
# | ring | $2 (N - 1) (\alpha + \beta S/N)$ | $2(N-1)$ steps, one chunk each |
# | one parameter server | $2 (\alpha + \beta N S)$ | $N$ gradients come in at once, then $N$ copies of `w` go out |
# | tree | $2 \lceil \log_2 N \rceil (\alpha + \beta S)$ | pairs add, then pairs of pairs, ...; then the sum goes back |
#
# **Predict:** 100 workers, a latency of 50 µs, a bandwidth of 10 Gbit/s. Which way is fastest for 1
# KB, which for 69 KB (the network of the examples), which for 100 MB (25 million parameters)?

# %%
ALPHA, BETA = 50e-6, 8 / 10e9  # seconds a message, seconds a byte
assert round(ALPHA / BETA) == 62_500  # so many bytes pass during one latency

def ring_seconds(N, S, alpha=ALPHA, beta=BETA):
    return 2 * (N - 1) * (alpha + beta * S / N)

def ps_seconds(N, S, alpha=ALPHA, beta=BETA):
    return 2 * (alpha + beta * N * S)

def tree_seconds(N, S, alpha=ALPHA, beta=BETA):
    return 2 * np.ceil(np.log2(N)) * (alpha + beta * S)

print("100 workers        ring     one ps       tree   (milliseconds)")
for name, size in ("1 KB", 1e3), ("69 KB", 69e3), ("100 MB", 100e6):
    print("%11s %11.2f %10.2f %10.2f" % (name, *[
        1000 * seconds(100, size) for seconds in (ring_seconds, ps_seconds, tree_seconds)]))

# %% jupyter={"source_hidden": true}
from matplotlib.colors import ListedColormap

WAYS = {"one ps": (ps_seconds, GRAY), "tree": (tree_seconds, ORANGE), "ring": (ring_seconds, BLUE)}
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
sizes, workers = np.logspace(2, 9, 200), np.arange(2, 257)
for seconds, colour in WAYS.values():
    left.loglog(sizes, 1000 * seconds(100, sizes), color=colour, lw=2)
for name, place in ("ring", (130, 14)), ("tree", (130, 1)), ("one ps", (900, 0.1)):
    left.text(*place, name, color=WAYS[name][1])
left.set(xlabel="S, bytes", ylabel="time of an all-reduce, ms", title="100 workers")
times = np.array([[seconds(workers, size) for seconds, _ in WAYS.values()] for size in sizes])
right.pcolormesh(workers, sizes, times.argmin(1), alpha=0.4,
                 cmap=ListedColormap([colour for _, colour in WAYS.values()]))
right.set(xlabel="N, workers", ylabel="S, bytes", title="The fastest of the three")
right.loglog()
right.set_xticks(2 ** np.arange(1, 9), 2 ** np.arange(1, 9))
right.minorticks_off()
for name, place in ("one ps", (40, 3e2)), ("tree", (110, 3e4)), ("ring", (16, 1e7)):
    right.text(*place, name, ha="center")
show(figure, "Left: time of an all-reduce between 100 workers against its size. All three are flat "
     "at first: one ps lowest, then the tree, then the ring. Then they rise, the ps first, the "
     "ring last and lowest. Right: a map of the fastest. One ps is fastest for small vectors, "
     "the tree for middle ones and many workers, the ring for all large ones. With two workers the "
     "ring is always fastest.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# For 1 KB one parameter server: a short message costs its latency only, and the ring pays it 198
# times. For 69 KB the tree, which pays it 14 times. For 100 MB the ring, because only its bytes do
# not grow with $N$.
#
# </details>
#
# The left picture shows both regimes. Where a curve is flat, latency decides and the number of
# steps counts. Where it rises, bandwidth decides and the bytes count. The ring is best at bytes
# and worst at steps.
#
# The teeth on the right come from the tree: after each power of two it gets one more level. Where the
# fields meet depends on $\alpha/\beta$: the number of bytes that pass during one latency, here 62.5
# KB. With two workers the ring always wins, because it has only two steps. The model is kind to the
# parameter server: 100 messages that arrive together cost it one latency. A real server needs some
# time for each of them.
#
# Several parameter servers share the bytes among them (exercise 3). Rabenseifner's algorithm sends
# as few bytes as the ring in $2 \log_2 N$ steps, if $N$ is a power of two. But its workers talk to
# partners all over the network, and large messages then meet on the same cables. A ring can be
# laid so that each cable carries one message in each direction.
#
# ## Measured on this machine
# Does the model hold? We time all-reduces from 100 bytes to 10 MB between four processes. We fit
# $\alpha$ to the three shortest and $\beta$ to the longest. The "network" is the memory of this machine,
# and the four share its processors; so the two numbers say nothing about a cluster. Look at the
# shape.

# %%
# %%writefile stopwatch.py
import time
import numpy as np
import ring

ring.connect()
for _ in range(30):
    ring.all_reduce(np.zeros(1000, "float32"))  # the first ones are slower
seconds = {size: [] for size in 10 ** np.arange(2, 8)}
for _ in range(30):
    for size in seconds:  # in turn, so that a disturbance meets all sizes
        x = np.zeros(size // 4, "float32")
        ring.all_reduce(np.zeros(ring.N, "float32"))  # so that all begin together
        begin = time.perf_counter()
        ring.all_reduce(x)
        seconds[size].append(time.perf_counter() - begin)
for size in seconds:
    print(size, np.median(seconds[size]))

# %% tags=["measured"]
size, seconds = np.array([line.split() for line in run("stopwatch.py")[0].splitlines()], float).T
alpha = np.median(seconds[:3]) / (2 * (N - 1))
beta = (seconds[-1] / (2 * (N - 1)) - alpha) * N / size[-1]
print("alpha = %.0f microseconds, 1 / beta = %.1f GB/s" % (1e6 * alpha, 1e-9 / beta))

figure, axes = plt.subplots(layout="constrained")
many = np.logspace(2, 7, 100)
axes.loglog(many, 1000 * ring_seconds(N, many, alpha, beta), color=GRAY,
            label="$2 (N - 1) (\\alpha + \\beta S / N)$")
axes.loglog(size, 1000 * seconds, "o", color=BLUE, label="measured, median of 30")
axes.set(xlabel="S, bytes", ylabel="time of an all-reduce, ms")
bottom, top = np.log10(1000 * np.array([seconds.min(), seconds.max()]))
axes.set_ylim(10 ** np.floor(bottom), 10 ** np.ceil(top))
figure.legend(loc="outside right center")
show(figure, "Time of an all-reduce of four processes against its size: measured points and the "
     "fitted curve. Both are flat for small vectors and rise in proportion for large ones.")

# %% [markdown]
# The flat part ends where $\beta S / N$ reaches $\alpha$. The gradient of the digits model, 9,640
# bytes, lies in the flat part: its all-reduce costs latency, hardly any bytes.
#
# Real libraries soften both costs. They send the gradients of the last layers while the first ones
# are still computed. They join small tensors into *buckets*, and choose ring or tree by size. NCCL's
# tree is pipelined, which makes it faster than ours for long vectors.
# [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb) shows where you find that.
#
# One cost remains, whatever the algorithm: all workers wait for the slowest, and if one is lost,
# none can go on.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Whole vectors.** ★☆☆ Let whole vectors go around the ring, $N - 1$ times: each worker passes
# on what it has just received, and adds it to its sum. How many bytes does each worker send?
#
# <details><summary>Hint</summary>
#
# In lockstep, as above: keep a list `moving` of what each worker sends next, and a list `total`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# total, moving, sent = [v.copy() for v in vectors], list(vectors), 0
# for s in range(N - 1):
#     sent += moving[0].nbytes
#     moving = [moving[k - 1] for k in range(N)]  # worker k receives from k - 1
#     for k in range(N):
#         total[k] += moving[k]
# assert all(np.allclose(one, sum(vectors), atol=1e-5) for one in total)
# assert sent == (N - 1) * S  # N / 2 times as many bytes as with chunks
# # And the workers add in different orders, so nothing guarantees them the same bits.
# ```
#
# </details>

# %% [markdown]
# **2. Fewer numbers than workers.** ★☆☆ Four workers reduce a vector of two numbers. How many steps
# does it take, and how many bytes does each worker send? What does that say about small tensors?
#
# <details><summary>Hint</summary>
#
# `np.array_split` makes empty chunks. Call `all_reduce_in_lockstep` and add up `nbytes`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# small = [np.full(2, k + 1.0, "float32") for k in range(N)]
# steps = list(all_reduce_in_lockstep([np.array_split(v, N) for v in small]))
# sent = sum(np.array([part.nbytes for part in parts]) for _, parts in steps)
# assert all((v == 10).all() for v in small)
# assert len(steps) == 2 * (N - 1)  # as many steps as ever
# assert sent.sum() == 2 * (N - 1) * small[0].nbytes  # 48 bytes in all; half of the chunks are empty
# # A small tensor costs as many latencies as a large one: join many of them into one vector.
# ```
#
# </details>

# %% [markdown]
# **3. As many parameter servers as workers.** ★★☆ Each machine holds a worker and a ps, and each ps
# holds one chunk of `w`. How many bytes does a machine send in a step? How long does it take in the
# model? Is it faster than the ring?
#
# <details><summary>Hint</summary>
#
# As a worker it pushes one chunk to each of the $N - 1$ other machines; as a ps it sends its chunk
# of `w` to each of them. Messages that share a connection overlap their latencies.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def sharded_seconds(N, S):
#     return 2 * (ALPHA + BETA * (N - 1) * S / N)
#
# pushed = pulled = (N - 1) / N * S
# assert pushed + pulled == 2 * (N - 1) / N * S  # the bytes of the ring, in two rounds
# assert sharded_seconds(2, S) == ring_seconds(2, S)
# assert all(sharded_seconds(n, 1e6) < ring_seconds(n, 1e6) for n in (4, 16, 64))
# # The model prefers it. But each machine talks to all others at once, on all cables of the network.
# ```
#
# </details>

# %% [markdown]
# **4. Recursive doubling.** ★★★ In round $r = 0, 1, \dots$ worker $k$ exchanges its whole vector
# with the partner whose number differs in bit $r$, and both add. Write it in lockstep for eight
# workers. How many rounds does it take? When does it beat the ring in the model?
#
# <details><summary>Hint</summary>
#
# The partner of worker `k` in round `r` is `k ^ (1 << r)`. One round costs $\alpha + \beta S$.
# Compare $\log_2 N (\alpha + \beta S)$ with `ring_seconds`.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# many = [np.full(5, 10.0**k) for k in range(8)]
# rounds = 0
# while 2**rounds < len(many):
#     many = [many[k] + many[k ^ (1 << rounds)] for k in range(len(many))]
#     rounds += 1
# assert rounds == 3 and all((v == 11_111_111).all() for v in many)
#
# def doubling_seconds(N, S):
#     return np.log2(N) * (ALPHA + BETA * S)
#
# assert doubling_seconds(8, 1e4) < ring_seconds(8, 1e4)  # few steps: good for small vectors
# assert doubling_seconds(8, 1e8) > ring_seconds(8, 1e8)  # many bytes: bad for large ones
# ```
#
# </details>

# %%
# Stop what this notebook started.
session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Patarasuk and Yuan 2009, *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*,
#   Journal of Parallel and Distributed Computing 69(2): the bound, and the ring.
# - Gibiansky 2017, *Bringing HPC Techniques to Deep Learning*: the ring comes to deep learning; the
#   code is [baidu-allreduce](https://github.com/baidu-research/baidu-allreduce).
# - Sergeev and Del Balso 2018, [Horovod: fast and easy distributed deep learning in
#   TensorFlow](https://arxiv.org/abs/1802.05799).
# - Hockney 1994, *The Communication Challenge for MPP*, Parallel Computing 20(3): the model
#   $\alpha + \beta m$.
# - Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
#   MPICH*, IJHPCA 19(1): trees, and Rabenseifner's algorithm.
# - Graham et al. 2016, *Scalable Hierarchical Aggregation Protocol (SHArP)*, COM-HPC: switches
#   that add.
# - [Ring-AllReduce](../Ring-AllReduce/): the whole program.
#   [Collective-AllReduce](../Collective-AllReduce/) and
#   [Horovod-RingAllReduce](../Horovod-RingAllReduce/) leave the ring to a library.
#
# Next: [Data-and-Model-Parallelism](Data-and-Model-Parallelism.ipynb), which cuts the model instead
# of the batch.
