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
# # From here to DDP and FSDP
# Most large models are trained with PyTorch's DDP and FSDP, DeepSpeed's ZeRO, or JAX. They use the
# ideas of this course under other names. Here you build DDP and the three stages of ZeRO yourself,
# in a few lines each, and measure them.
#
# After this notebook you can:
# - translate between this course, PyTorch, NCCL, Horovod and JAX;
# - say what DDP does during the backward pass, and why it sends gradients in buckets;
# - explain the 16 bytes that training needs for each parameter;
# - compute what ZeRO 1, 2 and 3 store and send, for any model and number of workers;
# - choose between DDP and FSDP.
#
# **Before it:** [Ring-AllReduce](Ring-AllReduce.ipynb),
# [TF2-Strategies](TF2-Strategies.ipynb). **Time:** 100 minutes.

# %% [markdown]
# ## Where this leads
# When you train by an all-reduce, every worker stores the whole model. This is *DDP*,
# *DistributedDataParallel*. *ZeRO*, the Zero Redundancy Optimizer, removes the copies in three
# stages. *FSDP*, *Fully Sharded Data Parallel*, is PyTorch's form of stage 3. A *shard* is the part
# that one worker stores.
#
# ![What each of three workers stores. DDP: all of the parameters, the gradients and the optimizer state, 16 bytes for each parameter. ZeRO 1: a third of the optimizer state. ZeRO 2: also only a third of the gradients. ZeRO 3: a third of everything.](../docs/figures/zero.svg)
#
# PyTorch is not installed here, and you do not need it. The workers below are real processes that
# use NumPy only, so that you see every line.

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
import concurrent.futures
import digits

os.environ["OMP_NUM_THREADS"] = "1"  # one thread of computation for each worker process

# %% [markdown]
# ## Three collectives
# A *collective* is an operation that all workers call together. You know the ring all-reduce. It has
# two halves, and each half is a collective of its own:
# - **reduce-scatter**: worker $k$ gets part $k$ of the sum;
# - **all-gather**: every worker gets the parts of all.
#
# In one line: all-reduce = reduce-scatter, then all-gather. Everything below follows from it. Each
# half sends $(n-1)/n$ times the bytes of the vector.
#
# `ring.py` (folded) is the ring of [Ring-AllReduce](Ring-AllReduce.ipynb) over TCP. Its `exchange`
# can also imitate a slower network; we need this later.

# %% jupyter={"source_hidden": true}
# %%writefile ring.py
"""Collectives on a ring of workers, joined by TCP: reduce-scatter, all-gather, all-reduce."""
import concurrent.futures
import socket
import time
import numpy as np

class Ring:
    """Worker k among its neighbours; `sent` counts the bytes that it has sent.

    With a bandwidth (bytes per second) each exchange lasts as long as on such a network.
    """

    def __init__(self, addresses, k, bandwidth=None, latency=0.0):
        self.k, self.n, self.sent = k, len(addresses), 0
        self.bandwidth, self.latency = bandwidth, latency
        self.sender = concurrent.futures.ThreadPoolExecutor(1)
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(host_and_port(addresses[k]))
        server.listen()
        server.settimeout(30)
        self.right = connect(host_and_port(addresses[(k + 1) % self.n]))
        self.left, _ = server.accept()
        server.close()
        for connection in (self.left, self.right):
            connection.settimeout(30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, out):
        """Sends an array to the right; returns one of its size and type, from the left."""
        began, received = time.perf_counter(), np.empty_like(out)
        out = np.ascontiguousarray(out)
        sending = self.sender.submit(self.right.sendall, out.data.cast("B"))
        missing = received.data.cast("B")
        while missing:
            count = self.left.recv_into(missing)
            if not count:
                raise ConnectionError("the left neighbour has closed the connection")
            missing = missing[count:]
        sending.result()
        self.sent += out.nbytes
        if self.bandwidth:
            there = began + self.latency + out.nbytes / self.bandwidth
            time.sleep(max(0.0, there - time.perf_counter()))
        return received

    def reduce_scatter(self, x):
        """Part k of the sum over all workers; x has n parts of equal size."""
        part = [one.copy() for one in np.split(x, self.n)]
        for s in range(self.n - 1):
            part[(self.k - 2 - s) % self.n] += self.exchange(part[(self.k - 1 - s) % self.n])
        return part[self.k]

    def all_gather(self, mine):
        """The parts of all workers, joined in order."""
        part = [mine] * self.n
        for s in range(self.n - 1):
            part[(self.k - 1 - s) % self.n] = self.exchange(part[(self.k - s) % self.n])
        return np.concatenate(part)

    def all_reduce(self, x):
        """The sum over all workers."""
        return self.all_gather(self.reduce_scatter(x))

def host_and_port(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)

def connect(address, seconds=30):
    """A connection to a neighbour, which may still be starting."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(address, timeout=seconds)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)

# %%
from ring import Ring

def in_threads(n, work):
    """work(ring) for each of n workers, which are threads of this notebook here."""
    addresses = new_cluster(worker=n)["worker"]
    with concurrent.futures.ThreadPoolExecutor(n) as threads:
        return list(threads.map(lambda k: work(Ring(addresses, k)), range(n)))

def both_halves(ring):
    x = (ring.k + 1) * np.array([1, 10, 100, 1000])
    part = ring.reduce_scatter(x)
    return x, part, ring.all_gather(part)

print("worker   x                     reduce-scatter   all-gather")
for k, (x, part, total) in enumerate(in_threads(4, both_halves)):
    print("%-8d %-21s %-16s %s" % (k, x, part, total))
    assert part == [10, 100, 1000, 10000][k] and list(total) == [10, 100, 1000, 10000]

# %% [markdown]
# ## The network, layer by layer
# DDP and FSDP depend on the order in which things happen within one step. So here is the digits
# model without a framework. The parameters of a layer are one flat vector: its weights, then its
# biases. The first version of FSDP joins parameters like this, in a FlatParameter; FSDP2 shards
# each tensor by itself. It takes only two functions:
# - `forward` needs the parameters of layer 0, 1, 2, … in turn;
# - `backward` needs them in the opposite order. It *yields* the gradient of a layer as soon as it
#   is known, before it goes on to the layer below.
#
# In PyTorch the `yield` is a *hook*: a function that `loss.backward()` calls for each parameter
# whose gradient is ready.

# %%
# %%writefile network.py
import numpy as np

def weights_and_biases(flat, inputs, outputs):
    weights, biases = flat[:inputs * outputs], flat[inputs * outputs:][:outputs]
    return weights.reshape(inputs, outputs), biases

def forward(w, sizes, x):
    """The values of each layer, the input included. w(i) gives the parameters of layer i."""
    a = [x]
    for i in range(len(sizes) - 1):
        weights, biases = weights_and_biases(w(i).astype("float32"), sizes[i], sizes[i + 1])
        z = a[-1] @ weights + biases
        a.append(np.maximum(z, 0) if i < len(sizes) - 2 else z)
    return a

def backward(w, sizes, a, y):
    """Yields (i, gradient of layer i), the last layer first."""
    p = np.exp(a[-1] - a[-1].max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)     # the probability of each digit
    p[np.arange(len(y)), y] -= 1
    d = p / len(y)                        # of the mean cross-entropy by the scores
    for i in reversed(range(len(sizes) - 1)):
        flat = w(i)
        g = np.zeros(len(flat), "float32")
        of_weights, of_biases = weights_and_biases(g, sizes[i], sizes[i + 1])
        of_weights[:], of_biases[:] = a[i].T @ d, d.sum(axis=0)
        yield i, g
        if i > 0:
            weights, _ = weights_and_biases(flat.astype("float32"), sizes[i], sizes[i + 1])
            d = (d @ weights.T) * (a[i] > 0)

def accuracy(w, sizes, x, y):
    return float(np.mean(forward(w, sizes, x)[-1].argmax(axis=1) == y))

# %% [markdown]
# The reference: one process, plain SGD, mini-batches of 32. The workers will find the data and the
# first values in `digits.npz`. Mini-batch `t` is drawn by the seed `t`, so that all processes draw
# the same rows.

# %%
import network

SIZES = [64, 32, 10]
first = digits.first_values()
first = [np.concatenate([first[i].ravel(), first[i + 1]]) for i in (0, 2)]
x, y, x_test, y_test = digits.load()
np.savez("digits.npz", x=x, y=y, w_0=first[0], w_1=first[1])

def mini_batch(t):
    rows = np.random.RandomState(t).randint(0, len(x), 32)
    return x[rows], y[rows]

def train_alone(updates=300, lr=0.2):
    w = [flat.copy() for flat in first]
    for t in range(updates):
        x, y = mini_batch(t)
        a = network.forward(w.__getitem__, SIZES, x)
        gradients = dict(network.backward(w.__getitem__, SIZES, a, y))
        for i, g in gradients.items():
            w[i] -= lr * g
    return w

alone = train_alone()
print("parameters of each layer:", [len(flat) for flat in alone])
accuracy = network.accuracy(alone.__getitem__, SIZES, x_test, y_test)
print("test accuracy after 300 updates: %.1f%%" % (100 * accuracy))
assert accuracy > 0.94

# %% [markdown]
# ## DDP: the all-reduce begins before the backward pass ends
# A simple worker computes all gradients, and then calls one all-reduce. While it computes, its
# network is idle; while it sends, its processor is idle. But the gradient of the last layer is
# known first. DDP sends it while the backward pass works on the layers below. This is *overlap*.
#
# Sending each gradient alone would cost a latency for each. So DDP collects gradients in a *bucket*
# until it has some megabytes, in PyTorch 25. Then it sends the bucket. Horovod calls the same
# Tensor Fusion; TensorFlow calls it packs.
#
# The class below does both. `communication` is one thread, beside the one that computes. On a GPU
# this would be a second *stream*. `if not self.overlap` shows the difference: `list` runs the whole
# backward pass first.

# %%
# %%writefile ddp.py
import concurrent.futures
import numpy as np

class DDP:
    def __init__(self, ring, bucket_bytes, overlap=True):
        self.ring, self.bucket_bytes, self.overlap = ring, bucket_bytes, overlap
        self.communication = concurrent.futures.ThreadPoolExecutor(1)

    def means(self, gradients):
        """{i: mean of layer i's gradient over all workers}; gradients: what backward() yields."""
        if not self.overlap:
            gradients = list(gradients)
        bucket, running = [], []
        for i, g in gradients:
            bucket.append((i, g))
            if sum(g.nbytes for _, g in bucket) >= self.bucket_bytes or i == 0:
                running.append(self.communication.submit(self.all_reduce, bucket))
                bucket = []
        return dict(pair for each in running for pair in each.result())

    def all_reduce(self, bucket):
        """[(i, mean)] for the layers of a bucket, which travel as one vector."""
        total = self.ring.all_reduce(np.concatenate([g for _, g in bucket]))
        ends = np.cumsum([len(g) for _, g in bucket])
        return [(i, mean) for (i, _), mean in zip(bucket, np.split(total / self.ring.n, ends[:-1]))]

# %%
# %%writefile train_ddp.py
import json
import os
import numpy as np
import network
from ddp import DDP
from ring import Ring

config = json.loads(os.environ["TF_CONFIG"])
k, addresses = config["task"]["index"], config["cluster"]["worker"]
data = np.load("digits.npz")
x, y, w, sizes = data["x"], data["y"], [data["w_0"], data["w_1"]], [64, 32, 10]
ddp = DDP(Ring(addresses, k), bucket_bytes=4096)
for t in range(300):
    rows = np.random.RandomState(t).randint(0, len(x), 32)[k::len(addresses)]  # its own rows
    a = network.forward(w.__getitem__, sizes, x[rows])
    for i, mean in ddp.means(network.backward(w.__getitem__, sizes, a, y[rows])).items():
        w[i] -= 0.2 * mean
np.savez("ddp-%d.npz" % k, *w)

# %%
def run(file, n):
    """Runs a program as n workers; what each has printed."""
    cluster = new_cluster(worker=n)
    return [finish(one) for one in [start(file, cluster, "worker", k) for k in range(n)]]

run("train_ddp.py", 2)
both = [list(np.load("ddp-%d.npz" % k).values()) for k in range(2)]
equal = all(map(np.array_equal, *both))
difference = max(np.abs(one - other).max() for one, other in zip(both[0], alone))
print("both workers have the same w, bit for bit:", equal)
print("w differs from that of one process by less than 1e-5:", bool(difference < 1e-5))
assert equal and difference < 1e-5

# %% [markdown]
# DDP makes the steps of one process, because the shares are equal. What does it save?
#
# To see that, we need a larger model and a network. The model has nine layers, eight of them 512 wide:
# 7.5 MB of gradients. Two processes on one machine have no network between them, so
# `ring.exchange` imitates one: 1 Gbit/s, and a latency of 3 ms for each exchange. (The latency
# within a data centre is more like 0.05 ms. But real models have hundreds of tensors, not nine.)
#
# We compare four ways: each layer alone or all in one, *after* the backward pass; and each layer
# alone or buckets of 2.5 MB, *during* it.
#
# **Predict:** which of the four is the fastest, and which is the slowest?

# %% jupyter={"source_hidden": true}
# %%writefile time_ddp.py
import json
import os
import time
import numpy as np
import network
from ddp import DDP
from ring import Ring

config = json.loads(os.environ["TF_CONFIG"])
k, addresses = config["task"]["index"], config["cluster"]["worker"]
data = np.load("digits.npz")
x, y = data["x"][:1024][k::2], data["y"][:1024][k::2]
sizes = [64] + [512] * 8 + [10]
random = np.random.RandomState(0)
w = [random.normal(0, (2 / i) ** 0.5, i * o + o).astype("float32") for i, o in zip(sizes, sizes[1:])]
ring = Ring(addresses, k, bandwidth=125e6, latency=0.003)

class Timed(DDP):
    """Notes when it computes and when it sends."""

    def all_reduce(self, bucket):
        began = time.perf_counter()
        found = super().all_reduce(bucket)
        self.spans.append(("send", began, time.perf_counter()))
        return found

    def noted(self, gradients):
        began = time.perf_counter()
        for pair in gradients:
            self.spans.append(("backward", began, time.perf_counter()))
            yield pair
            began = time.perf_counter()

    def step(self):
        """Seconds that a step takes, and its spans."""
        self.ring.all_reduce(np.zeros(2))  # both workers begin together
        began, self.spans = time.perf_counter(), []
        a = network.forward(w.__getitem__, sizes, x)
        self.spans.append(("forward", began, time.perf_counter()))
        self.means(self.noted(network.backward(w.__getitem__, sizes, a, y)))
        seconds = time.perf_counter() - began
        return seconds, [(what, a - began, b - began) for what, a, b in self.spans]

ways = {"each layer alone, after": Timed(ring, 1, overlap=False),
        "all in one, after": Timed(ring, 1e9, overlap=False),
        "each layer alone, during": Timed(ring, 1),
        "buckets, during": Timed(ring, 2.5e6)}
steps = {name: [] for name in ways}
for repeat in range(8):
    for name, way in ways.items():
        steps[name].append(way.step())
middle = {name: sorted(those[1:])[3] for name, those in steps.items()}  # the median of seven
print(json.dumps(middle))

# %% tags=["measured"]
steps = json.loads(run("time_ddp.py", 2)[0])
longest = max(seconds for seconds, _ in steps.values())
for name, (seconds, _) in steps.items():
    print("%-25s %4.0f ms, %3.0f%% of the slowest" % (name, 1000 * seconds, 100 * seconds / longest))

# %% jupyter={"source_hidden": true} tags=["measured"]
figure, axes = plt.subplots(figsize=(8, 4))
for row, (name, (seconds, spans)) in enumerate(steps.items()):
    for what, began, ended in spans:
        color = {"forward": GRAY, "backward": BLUE, "send": ORANGE}[what]
        axes.barh(row + (0.19 if what == "send" else -0.19), 1000 * (ended - began), height=0.36,
                  left=1000 * began, color=color, edgecolor="white", linewidth=1)
    axes.text(1000 * seconds + 2, row, "%.0f ms" % (1000 * seconds), va="center")
axes.set(yticks=range(4), yticklabels=steps, xlabel="milliseconds since the step began",
         xlim=(0, 1120 * longest))
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set_axisbelow(True)
axes.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=color) for color in (GRAY, BLUE, ORANGE)],
            labels=["forward pass", "backward pass, layer by layer", "all-reduce"], ncols=3,
            loc="lower center", bbox_to_anchor=(0.4, 1))
show(figure, "When worker 0 computes and when it sends, in a step of each of the four ways. After: "
     "the all-reduces follow the backward pass. During: they begin with it. Buckets during the "
     "backward pass end first; each layer alone after it ends last.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Fastest: buckets during the backward pass. Most of the sending is hidden behind the computation.
# Slowest: each layer alone, after it. Its nine all-reduces pay eighteen latencies, one after the
# other, and nothing is hidden. The two in the middle have one of the two advantages each. One message
# for all cannot overlap, because it is complete only when the backward pass ends. (On a busy machine
# the computation takes longer and hides the latencies, too. Then each layer alone, during the pass,
# can catch up.)
#
# </details>
#
# What cannot be hidden? The last bucket: it is complete when the backward pass ends. So buckets must
# not be too large. DDP also makes its first bucket small (1 MB), to begin early. Overlap also needs
# hardware that sends while the processor computes. Our imitated network does, because it only waits.
# On the loopback of two busy cores [Packing](../Measurements/Packing/) found no gain.
#
# In PyTorch all of this is one line, `DDP(model)`. (These cells of PyTorch code are to read. They
# were not executed here.)
#
# ```python
# # torchrun --nproc-per-node=4 train.py          starts 4 processes, as tfrun does here
# import os
# import torch
# import torch.distributed as dist
# from torch.nn.parallel import DistributedDataParallel as DDP
#
# dist.init_process_group("nccl")                 # reads RANK, WORLD_SIZE, MASTER_ADDR
# device = int(os.environ["LOCAL_RANK"])
# torch.cuda.set_device(device)
# model = DDP(model.to(device), device_ids=[device])   # sends rank 0's w to all; adds the hooks
# for x, y in loader:                             # a DistributedSampler gives each rank its rows
#     loss = loss_function(model(x.to(device)), y.to(device))
#     loss.backward()                             # all-reduces bucket after bucket meanwhile
#     optimizer.step()                            # the same step on each rank
#     optimizer.zero_grad()
# ```
#
# ## Sixteen bytes for each parameter
# DDP stores the whole model on each worker. How much is that? Large models use Adam in *mixed
# precision* (Micikevicius et al. 2017): the two passes compute with 2-byte numbers, and the
# optimizer keeps 4-byte numbers, because small steps would be lost in 2 bytes.
#
# | what | type | bytes |
# | --- | --- | --- |
# | parameters, for the passes | float16 or bfloat16 | 2 |
# | gradients | float16 or bfloat16 | 2 |
# | the optimizer's own copy of the parameters | float32 | 4 |
# | Adam's mean of the gradients, $m$ | float32 | 4 |
# | Adam's mean of their squares, $v$ | float32 | 4 |
# | together | | **16** |
#
# Rajbhandari et al. 2020 call the last three the *optimizer state*, 12 bytes. Plain float32 training
# with Adam needs 16 bytes, too: 4 + 4 + 0 + 4 + 4. So do PyTorch's `autocast` and FSDP's mixed
# precision, which keep parameters and gradients in float32. Mixed precision saves time, and
# memory for *activations*, the values between the layers. They come on top of the 16 bytes.
#
# ## ZeRO: every byte is stored once
# With $n$ workers DDP stores all of this $n$ times. But who needs the optimizer state of a
# parameter? Only the one who updates it. ZeRO lets worker $k$ update part $k$ of each layer:
#
# | stage | sharded | the gradient travels by | the parameters travel by | bytes stored |
# | --- | --- | --- | --- | --- |
# | 0, DDP | nothing | all-reduce | — | $16$ |
# | 1 | optimizer state | reduce-scatter | all-gather, after the update | $4 + 12/n$ |
# | 2 | + gradients | reduce-scatter, layer by layer | all-gather, after the update | $2 + 14/n$ |
# | 3, FSDP | + parameters | reduce-scatter, layer by layer | all-gather, before each use | $16/n$ |
#
# The program below is all four. Read `train`: a condition on `stage` stands where the stages
# differ, and nowhere else. `weights` is the heart of stage 3. It gathers one layer, in the forward
# pass and once more in the backward pass. After use, this copy is dropped.

# %% jupyter={"source_hidden": true}
# %%writefile adam.py
"""Adam (Kingma, Ba 2014) in float32, for all of a vector or a part of it."""
import numpy as np

class Adam:
    def __init__(self, w, lr=0.01):
        self.lr, self.t = lr, 0
        self.w = w.astype("float32")
        self.m, self.v = np.zeros_like(self.w), np.zeros_like(self.w)

    def step(self, g):
        """The new parameters."""
        g, self.t = g.astype("float32"), self.t + 1
        self.m += 0.1 * (g - self.m)
        self.v += 0.001 * (g * g - self.v)
        m, v = self.m / (1 - 0.9 ** self.t), self.v / (1 - 0.999 ** self.t)
        self.w -= self.lr * m / (np.sqrt(v) + 1e-8)
        return self.w

    def state(self):
        return [self.w, self.m, self.v]

# %%
# %%writefile zero.py
import json
import os
import numpy as np
import network
from adam import Adam
from ring import Ring

config = json.loads(os.environ["TF_CONFIG"])
k, addresses = config["task"]["index"], config["cluster"]["worker"]
n, ring, sizes = len(addresses), Ring(addresses, k), [64, 32, 10]
data = np.load("digits.npz")
x, y = data["x"], data["y"]
first = [np.append(flat, np.zeros(-len(flat) % n)) for flat in (data["w_0"], data["w_1"])]

def part(flat):
    return np.split(flat, n)[k].copy()

def train(stage, dtype, updates=200):
    """Trains; returns what this worker stores in the end, and the whole w."""
    w = [part(flat) if stage >= 3 else flat for flat in first]
    w = [flat.astype(dtype) for flat in w]
    g = [np.zeros_like(part(flat) if stage >= 2 else flat, dtype) for flat in first]
    adam = [Adam(part(flat) if stage >= 1 else flat) for flat in first]

    def weights(i):
        return ring.all_gather(w[i]) if stage >= 3 else w[i]

    ring.sent = 0
    for t in range(updates):
        rows = np.random.RandomState(t).randint(0, len(x), 32)[k::n]
        a = network.forward(weights, sizes, x[rows])
        for i, gradient in network.backward(weights, sizes, a, y[rows]):
            gradient = gradient.astype(dtype)
            g[i][:] = ring.reduce_scatter(gradient) / n if stage >= 2 else gradient
        for i in range(len(w)):
            if stage == 0:
                mean = ring.all_reduce(g[i]) / n
            elif stage == 1:
                mean = ring.reduce_scatter(g[i]) / n
            else:
                mean = g[i]
            new = adam[i].step(mean).astype(dtype)  # the whole layer, or this worker's part
            w[i][:] = ring.all_gather(new) if stage in (1, 2) else new
    stored = {"parameters": w, "gradients": g, "optimizer": [one for a in adam for one in a.state()]}
    bytes_stored = {name: sum(one.nbytes for one in those) for name, those in stored.items()}
    return {**bytes_stored, "sent": ring.sent // updates}, [weights(i) for i in range(len(w))]

report = {}
for dtype in ("float32", "float16"):
    for stage in range(4):
        report["%s %d" % (dtype, stage)], w = train(stage, dtype)
        np.savez("zero-%s-%d-%d.npz" % (dtype, stage, k), *w)
print(json.dumps(report))

# %% [markdown]
# Four workers train the digits model, 200 updates in each stage. It has 2,410 parameters, padded to
# 2,412, so that four can share each layer. We train with float32 first, to compare with one process
# that uses the same Adam. Then we count the bytes with float16.
#
# **Predict:** does the stage change what is learnt? And which stages send more bytes than DDP?

# %%
from adam import Adam

def train_adam_alone(updates=200):
    adam = [Adam(flat) for flat in first]
    w = lambda i: adam[i].w
    for t in range(updates):
        x, y = mini_batch(t)
        a = network.forward(w, SIZES, x)
        gradients = dict(network.backward(w, SIZES, a, y))
        for i, g in gradients.items():
            adam[i].step(g)
    return [one.w for one in adam]

counts = [json.loads(printed) for printed in run("zero.py", 4)]
assert counts[0] == counts[1] == counts[2] == counts[3]

def trained(dtype, stage, k=0):
    return list(np.load("zero-%s-%d-%d.npz" % (dtype, stage, k)).values())

learnt, rows = [], []
for dtype in ("float32", "float16"):
    reference = trained(dtype, 0)
    equal = all(np.array_equal(one, other) for stage in range(4) for k in range(4)
                for one, other in zip(reference, trained(dtype, stage, k)))
    accuracy = network.accuracy(reference.__getitem__, SIZES, x_test, y_test)
    print("%s: test accuracy %.1f%%; equal bit for bit in all stages, on all workers: %s" % (
        dtype, 100 * accuracy, equal))
    learnt.append(equal and accuracy > 0.94)

distance = max(np.abs(one[:len(other)] - other).max()
               for one, other in zip(trained("float32", 0), train_adam_alone()))
print("float32: differs from one process by less than 1e-3:", bool(distance < 1e-3))

P, n = 2412, 4
print("\n             bytes for each parameter                  sent in an update,")
print("         w     g   optimizer   together   formula     bytes for each parameter")
formulas = [16, 4 + 12 / n, 2 + 14 / n, 16 / n]
for stage, formula in enumerate(formulas):
    count = counts[0]["float16 %d" % stage]
    w, g, optimizer, sent = (count[name] / P for name in ("parameters", "gradients", "optimizer", "sent"))
    name = "ZeRO %d" % stage if stage else "DDP"
    print("%-7s %4.1f  %4.1f  %6.1f  %10.1f  %8.1f  %14.1f" % (
        name, w, g, optimizer, w + g + optimizer, formula, sent))
    rows.append((w + g + optimizer, sent))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The stages do not change what is learnt, not even by one bit. They make the same sums in the same
# order, in other places. Stages 1 and 2 send as much as DDP: reduce-scatter and all-gather *are* the
# two halves of the all-reduce. Stage 3 sends one and a half times as much: it gathers the
# parameters twice, for the forward and for the backward pass.
#
# </details>

# %% jupyter={"source_hidden": true}
assert all(learnt) and distance < 1e-3
assert rows == list(zip(formulas, [3, 3, 3, 4.5]))

# %% [markdown]
# In symbols, for $\Psi$ parameters of 2 bytes: DDP and stages 1 and 2 send
# $2 \cdot \frac{n-1}{n} \cdot 2\Psi$ bytes in an update, stage 3 sends $3 \cdot \frac{n-1}{n} \cdot 2\Psi$.
# (float16 needs one more trick in large models: the loss is multiplied by a large number, so that
# small gradients do not become 0. bfloat16 does not need this *loss scaling*.)

# %% jupyter={"source_hidden": true}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), width_ratios=[2, 1], layout="constrained")
names = ["DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
done = np.zeros(4)
for kind, color in (("parameters", BLUE), ("gradients", ORANGE), ("optimizer", PURPLE)):
    size = np.array([counts[0]["float16 %d" % stage][kind] / P for stage in range(4)])
    left.barh(names, size, left=done, color=color, edgecolor="white",
              label="optimizer state" if kind == "optimizer" else kind)
    done += size
for stage, size in enumerate(done):
    left.text(size + 0.2, stage, "%g" % size, va="center")
left.set(xlabel="bytes stored for each parameter, 4 workers", xlim=(0, 18))
left.legend(loc="lower right")
sent = [counts[0]["float16 %d" % stage]["sent"] / P for stage in range(4)]
right.barh(names, sent, color=GREEN, edgecolor="white")
for stage, size in enumerate(sent):
    right.text(size + 0.1, stage, "%g" % size, va="center")
right.set(xlabel="bytes sent for each parameter", xlim=(0, 5.5), yticklabels=[])
for axes in (left, right):
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
show(figure, "Measured with four workers. Stored for each parameter: DDP 16 bytes, ZeRO 1 7, ZeRO 2 "
     "5.5, ZeRO 3 4. Sent for each parameter in an update: 3 bytes in DDP, ZeRO 1 and ZeRO 2, 4.5 "
     "in ZeRO 3.")

# %% [markdown]
# Stage 3 stores little, but a layer must be whole while it is used. So for a moment each worker
# holds the parameters of one layer as well, and in stages 2 and 3 the gradient of one layer. That is
# why you wrap *parts* of a model in FSDP, such as each block of a transformer. One wrapper around
# the whole model would gather all of it at once. FSDP also gathers the next block while the current
# one computes: overlap again.
#
# ```python
# from torch.distributed.fsdp import fully_shard          # FSDP2; to read, not executed here
#
# for block in model.blocks:
#     fully_shard(block)            # ZeRO 3: gather, use, drop, block by block
# fully_shard(model)                # what is left: embeddings, the last layer
# optimizer = torch.optim.Adam(model.parameters())        # sees only this rank's shards
# ```
#
# With `reshard_after_forward=False` the parameters stay whole between the two passes. This saves the
# second all-gather, and costs their memory for the time of a step, as in ZeRO 2.
#
# ## How large is large?
# Rajbhandari et al. 2020 take a model of 7.5 billion parameters and 64 workers.
#
# **Predict:** how many gigabytes does each worker store under DDP, and under ZeRO 3? With how many
# workers does ZeRO 2 fit into 80 GB, with nothing left for the activations?

# %%
def gigabytes(stage, parameters, n):
    """What a worker stores of the model, its gradients and Adam's state in mixed precision."""
    return parameters * [16, 4 + 12 / n, 2 + 14 / n, 16 / n][stage] / 1e9

for stage, name in enumerate(names):
    print("%-7s %6.1f GB on each of 64 workers" % (name, gigabytes(stage, 7.5e9, 64)))
fits = next(n for n in range(1, 100) if gigabytes(2, 7.5e9, n) <= 80)
print("ZeRO 2 fits into 80 GB with", fits, "workers or more")

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 3.2))
n = 2 ** np.arange(0, 11)
for stage, color in enumerate((GRAY, BLUE, ORANGE, PURPLE)):
    size = np.array([gigabytes(stage, 7.5e9, each) for each in n])
    axes.plot(n, size, "o-", color=color, ms=4)
    axes.text(1150, size[-1], names[stage], va="center", color=color)
assert [round(gigabytes(stage, 7.5e9, 64), 1) for stage in range(4)] == [120, 31.4, 16.6, 1.9]
axes.axhline(80, color=RED, ls="--", lw=1)
axes.text(1024, 74, "a GPU with 80 GB", color=RED, va="top", ha="right")
axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="GB on each worker", ylim=(0.08, 250))
axes.set_xticks(n, n)
axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
axes.minorticks_off()
show(figure, "Gigabytes that each worker stores of a model with 7.5 billion parameters, for 1 to "
     "1,024 workers. DDP stays at 120. ZeRO 1 falls towards 30, ZeRO 2 towards 15. ZeRO 3 falls "
     "without a limit, to 0.1 GB.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# DDP: 120 GB, whatever the number of workers. ZeRO 3: 1.9 GB. ZeRO 2 fits with two workers: 2 + 14/2
# = 9 bytes, 67.5 GB. Stages 1 and 2 have a floor of 4 and 2 bytes. Only stage 3 divides everything.
#
# </details>
#
# So how do you choose?
# - **DDP**, if 16 bytes for each parameter and the activations fit into one device. It is the
#   simplest, and no stage of ZeRO sends less.
# - **ZeRO 1 or 2**, if the model fits but the optimizer state does not. They send no more than DDP,
#   but with gradient accumulation (below) stage 2 sends for every mini-batch.
# - **ZeRO 3, FSDP**, if the model does not fit. It needs a fast network, and large mini-batches that
#   hide the all-gathers.
# - If even one *layer* is too large, or the activations: *tensor parallelism* divides the matrices
#   (Shoeybi et al. 2019), *pipeline parallelism* the layers ([Model-Parallelism](../Model-Parallelism/)).
#   Large models combine them with ZeRO; a pipeline with stage 1, because of its micro-batches.
#
# Three more tools go with all of these:
# - *Gradient accumulation* adds up the gradients of several mini-batches before one all-reduce, and
#   one update. In DDP: `with model.no_sync():` for all but the last.
# - *Activation checkpointing* keeps few activations, and computes the others again (Chen et al. 2016).
# - *Compression* sends gradients in fewer bits. In DDP: `register_comm_hook`. Exercise 3.
#
# ## The dictionary
# | in this course | PyTorch | NCCL | Horovod | JAX |
# | --- | --- | --- | --- | --- |
# | `TF_CONFIG`, task `k` of `n` | `torchrun`, rank, world size | rank, `nranks` | `hvd.rank()`, `hvd.size()` | `jax.process_index()`, `jax.process_count()` |
# | the cluster starts | `init_process_group` | `ncclCommInitRank` | `hvd.init()` | `jax.distributed.initialize()` |
# | all-reduce | `all_reduce` | `ncclAllReduce` | `hvd.allreduce` | `lax.psum`, `lax.pmean` |
# | reduce-scatter | `reduce_scatter_tensor` | `ncclReduceScatter` | `hvd.reducescatter` | `lax.psum_scatter` |
# | all-gather | `all_gather_into_tensor` | `ncclAllGather` | `hvd.allgather` | `lax.all_gather` |
# | all begin with the chief's `w` | the constructor of DDP | `ncclBroadcast` | `broadcast_variables` | a replicated array |
# | synchronous SGD by all-reduce | DDP | – | `DistributedOptimizer` | `jit`, the batch sharded over a mesh |
# | packs | buckets, `bucket_cap_mb` | `ncclGroupStart` | Tensor Fusion | the compiler joins them |
# | `w` divided over several ps | FSDP, `fully_shard` | – | – | parameters sharded over a mesh |
# | T local steps (DOWNPOUR, SAGN) | `PostLocalSGDOptimizer` | – | – | your own loop |
# | restart from a checkpoint | `torchrun --max-restarts` | – | Elastic Horovod | your own script |
#
# ZeRO 3 resembles an older idea of this course. Several parameter servers divide `w` among them, and
# a worker pulls it before use. In ZeRO 3 the workers are each other's servers, and all of them step
# together.
#
# - **NCCL** trains nothing. It is NVIDIA's library of collectives between GPUs, below all the
#   others. It chooses between rings, trees, and switches that add on the way. *Gloo* does the same
#   for CPUs.
# - **Horovod is dormant**: its last release, 0.28.1, is from June 2023. Its idea, one `w` per process
#   and an all-reduce, is what DDP does. So new code uses DDP with `torchrun` in PyTorch, and
#   `MultiWorkerMirroredStrategy` in TensorFlow ([Collective-AllReduce](../Collective-AllReduce/)).
#   [Horovod-RingAllReduce](../Horovod-RingAllReduce/) shows how to read older programs.
# - **JAX** has no class for DDP or FSDP. You say how each array is divided over a *mesh* of devices,
#   and the compiler inserts the collectives. Replicated parameters give DDP, sharded ones ZeRO 3.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. How many GPUs?** ★☆☆ A model has 70 billion parameters. A GPU has 80 GB, and 30 of them are for
# the activations. From how many GPUs on does it fit, in each stage?
#
# <details><summary>Hint</summary>
#
# `gigabytes(stage, 70e9, n)` must be at most 50. For some stages no `n` is enough: what is the limit
# for a large `n`?
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def needed(stage, parameters=70e9, room=50):
#     return next((n for n in range(1, 10_000) if gigabytes(stage, parameters, n) <= room), None)
#
# # 16, 4 and 2 bytes for each parameter are 1,120, 280 and 140 GB: only stage 3 fits.
# assert [needed(stage) for stage in range(4)] == [None, None, None, 23]
# ```
#
# </details>

# %% [markdown]
# **2. Gradient accumulation.** ★★☆ Two workers compute the gradient of 128 rows: each in four
# mini-batches of 16, with one all-reduce in the end. Show that it equals the gradient of one process,
# and that a worker sends a fourth of the bytes of four all-reduces.
#
# <details><summary>Hint</summary>
#
# Write `work(ring)` for `in_threads(2, work)`. Join the two layers by `np.concatenate`. The mean over
# 2 workers and 4 mini-batches is the sum divided by 8.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def gradient_of(rows):
#     a = network.forward(first.__getitem__, SIZES, x[rows])
#     layers = dict(network.backward(first.__getitem__, SIZES, a, y[rows]))
#     return np.concatenate([layers[0], layers[1]])
#
# def accumulated(ring):
#     total = 0
#     for number in range(4):
#         total = total + gradient_of(np.arange(128)[ring.k::2][16 * number:16 * (number + 1)])
#     return ring.all_reduce(total) / 8, ring.sent
#
# def four_times(ring):
#     for number in range(4):
#         ring.all_reduce(gradient_of(np.arange(16)))
#     return ring.sent
#
# whole = gradient_of(np.arange(128))
# for mean, sent in in_threads(2, accumulated):
#     assert np.allclose(mean, whole, atol=1e-6) and 4 * sent == in_threads(2, four_times)[0]
# ```
#
# </details>

# %% [markdown]
# **3. A compressed all-reduce.** ★★★ Write a subclass of `DDP` that sends float16 instead of float32, as
# `fp16_compress_hook` of PyTorch does. Train 300 updates with two workers. Half the bytes are sent. Is
# the accuracy the same? Are the two copies of `w` still equal, bit for bit?
#
# <details><summary>Hint</summary>
#
# Override `all_reduce`: convert the gradients of the bucket, call `super().all_reduce`, and convert
# the means back. The loop is that of `train_ddp.py`; run it by `in_threads`.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# from ddp import DDP
#
# class Compressed(DDP):
#     def all_reduce(self, bucket):
#         means = super().all_reduce([(i, g.astype("float16")) for i, g in bucket])
#         return [(i, mean.astype("float32")) for i, mean in means]
#
# def training_with(kind):
#     def work(ring):
#         ddp, w = kind(ring, bucket_bytes=4096), [flat.copy() for flat in first]
#         for t in range(300):
#             x, y = (rows[ring.k::2] for rows in mini_batch(t))
#             a = network.forward(w.__getitem__, SIZES, x)
#             for i, mean in ddp.means(network.backward(w.__getitem__, SIZES, a, y)).items():
#                 w[i] -= 0.2 * mean
#         return w, ring.sent
#     return in_threads(2, work)
#
# (plain, sent), _ = training_with(DDP)
# (compressed, fewer), (other, _) = training_with(Compressed)
# assert 2 * fewer == sent
# assert all(map(np.array_equal, compressed, other))  # both got the same rounded mean
# accuracies = [network.accuracy(w.__getitem__, SIZES, x_test, y_test) for w in (plain, compressed)]
# assert abs(accuracies[0] - accuracies[1]) < 0.01
# ```
#
# </details>

# %%
# Stop what this notebook started.
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Li et al. 2020, [PyTorch Distributed: Experiences on Accelerating Data Parallel
#   Training](https://arxiv.org/abs/2006.15704): DDP, its hooks and buckets.
# - Rajbhandari et al. 2020, [ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models](https://arxiv.org/abs/1910.02054): the three stages and the 16 bytes.
# - Zhao et al. 2023, [PyTorch FSDP: Experiences on Scaling Fully Sharded Data
#   Parallel](https://arxiv.org/abs/2304.11277).
# - Sergeev, Del Balso 2018, [Horovod: fast and easy distributed deep learning in
#   TensorFlow](https://arxiv.org/abs/1802.05799).
# - Micikevicius et al. 2017, [Mixed Precision Training](https://arxiv.org/abs/1710.03740); Chen et al.
#   2016, [Training Deep Nets with Sublinear Memory Cost](https://arxiv.org/abs/1604.06174); Shoeybi et
#   al. 2019, [Megatron-LM](https://arxiv.org/abs/1909.08053).
# - [Collective-AllReduce](../Collective-AllReduce/), [Horovod-RingAllReduce](../Horovod-RingAllReduce/),
#   and the measurement [Packing](../Measurements/Packing/).
#
# Next: [Which-Algorithm](Which-Algorithm.ipynb), which helps you to decide.
