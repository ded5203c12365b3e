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
# # Data and model parallelism
# So far every worker had the whole model and a part of the data: *data parallelism*. When a model
# no longer fits into one device, you must cut the model itself. There are several ways, and each
# sends something else over the network.
#
# After this notebook you can:
# - tell data, pipeline and tensor parallelism apart, and say what each stores and sends;
# - build in-graph and between-graph replication, and say which graph holds what;
# - put layers on different devices, and read from a run what crossed between them;
# - compute the idle share of a pipeline, and say what GPipe, 1F1B and PipeDream do about it;
# - cut two layers as Megatron-LM does, with one all-reduce forward and one backward.
#
# **Before it:** [Ring-AllReduce](Ring-AllReduce.ipynb). **Time:** 110 minutes.

# %% [markdown]
# ## Three ways to divide one step
# A step multiplies a batch $X$ by the weights $W_1$, then by $W_2$. Two devices can share that
# work in three ways:
#
# ![Two layers W1 and W2, and a batch X. Data parallelism gives each device half of the rows of X and a copy of both matrices; the devices exchange gradients as large as w. Model parallelism gives each device one matrix; h and its gradient cross. Tensor parallelism gives each device half of the columns of W1 and half of the rows of W2; the devices add partial sums.](../docs/figures/parallelism.svg)
#
# The second and third are both *model parallelism*: a device has only a part of the model. In this
# notebook the word means the second; the third is *tensor parallelism*, which papers on language
# models often call model parallelism.
#
# All three must give the same update as one device. We check each of them against this one: the
# digits model, $B$ = 64 rows, one step of SGD with lr = 0.2.

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

x, y, _, _ = digits.load()
X, labels, LR = x[:64], y[:64], 0.2
PARAMETERS = digits.first_values()
any_x, any_y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
w = [tf.placeholder(tf.float32, v.shape) for v in PARAMETERS]  # so that we can feed any values
gradients_of_w = tf.gradients(digits.loss(w, any_x, any_y), w)
local = tf.Session()

def gradient(values, rows_x, rows_y):
    """The gradient of the mean loss of these rows at w = values, on one device."""
    feed = {any_x: rows_x, any_y: rows_y, **dict(zip(w, values))}
    return local.run(gradients_of_w, feed)

def close(one, other):
    return all(np.allclose(a, b, atol=1e-6) for a, b in zip(one, other))

g_whole = gradient(PARAMETERS, X, labels)
ONE_DEVICE = [v - LR * d for v, d in zip(PARAMETERS, g_whole)]  # what all others must reach
print("parameters:", sum(v.size for v in PARAMETERS), "- bytes:", sum(v.nbytes for v in PARAMETERS))

# %% [markdown]
# ## Data parallelism: who builds the graph?
# Each device has a *replica*: a copy of the computation, with rows of its own. The guide of
# TensorFlow 1 names two ways to build replicas. In both the variables are on a parameter server.
#
# ![Left, in-graph replication: one client builds one graph with tower 0, tower 1 and the mean. Worker 0 runs tower 0, worker 1 runs tower 1, and the ps holds w. Right, between-graph replication: each worker has a client with a graph of its own that holds one replica. The graphs share w on the ps.](../docs/figures/graphs.svg)
#
# - **In-graph replication:** one client builds *one* graph with all replicas. In such a graph a
#   replica is called a *tower*.
# - **Between-graph replication:** each worker has a client of its own, which builds a graph with
#   *one* replica. The graphs share the variables, because name and device are the same.
#
# The next cells start a ps and two workers, and count what crosses between them. `traffic` asks a
# run for its metadata: they list each tensor that a server received from another one.

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
cluster = new_cluster(ps=1, worker=2)
server = {(job, k): tf.train.Server(cluster, job_name=job, task_index=k)
          for job in cluster for k in range(len(cluster[job]))}
PS, WORKER = "/job:ps/task:0", ["/job:worker/task:0", "/job:worker/task:1"]
waits = tf.ConfigProto(operation_timeout_in_ms=20_000)  # the time limit of a call: 20 s

def task(device):
    """ps 0, for /job:ps/replica:0/task:0/device:CPU:0"""
    parts = dict(part.split(":", 1) for part in device.strip("/").split("/"))
    return parts["job"] + " " + parts["task"]

def traffic(session, op, feed):
    """{(from, to): bytes} of one run of an op."""
    options, received = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), {}
    for _ in range(20):  # now and then a trace misses a transfer; we take what all have together
        metadata = tf.RunMetadata()
        session.run(op, feed, options=options, run_metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                if node.node_name == "RecvTensor":  # [640B] [9Mb/s] tensor from device to device
                    size, _, tensor, _, source, _, target = node.timeline_label.split()
                    received[task(source), task(target), tensor] = int(size[1:-2])
    total = {}
    for (source, target, _), size in received.items():
        total[source, target] = total.get((source, target), 0) + size
    return total

def show_traffic(total):
    for (source, target), size in sorted(total.items()):
        print("    %s -> %s: %6d bytes" % (source, target, size))

# %% [markdown]
# First in-graph. The client feeds all 64 rows; the graph splits them among the towers.

# %%
def in_graph(K):
    """One graph with K towers: the variables, the names to feed, and the update."""
    with tf.device(PS):
        w = digits.variables()
    with tf.device(WORKER[0]):  # where the client is
        fed = {"x": tf.placeholder(tf.float32, [64, 64]), "y": tf.placeholder(tf.int32, [64])}
        rows_x, rows_y = tf.split(fed["x"], K), tf.split(fed["y"], K)
    g = []
    for k in range(K):
        with tf.device("/job:worker/task:%d" % k), tf.name_scope("tower_%d" % k):
            w_k = [tf.identity(v.read_value()) for v in w]  # pull
            g.append(tf.gradients(digits.loss(w_k, rows_x[k], rows_y[k]), w_k))
    with tf.device(PS):
        mean = [tf.add_n(of_all) / K for of_all in zip(*g)]
        update = tf.group(*[v.assign_sub(LR * d) for v, d in zip(w, mean)])
    return w, fed, update

# %% [markdown]
# Then between-graph. Client $k$ builds this graph, and feeds its own 32 rows. `pull` copies `w` to
# the worker; `push` moves `w` by a half of the gradient there.

# %%
def between_graph(k, K):
    """The graph of client k of K."""
    with tf.device(PS):
        w = digits.variables()
    with tf.device("/job:worker/task:%d" % k):
        rows = 64 // K
        fed = {"x": tf.placeholder(tf.float32, [rows, 64]), "y": tf.placeholder(tf.int32, [rows])}
        copy = digits.variables("copy", get_variable=tf.get_local_variable)
        pull = tf.group(*[c.assign(v.read_value()) for c, v in zip(copy, w)])
        w_k = [c.read_value() for c in copy]
        g_k = tf.gradients(digits.loss(w_k, fed["x"], fed["y"]), w_k)
    with tf.device(PS):
        push = tf.group(*[v.assign_sub(LR * d / K) for v, d in zip(w, g_k)])
    return w, fed, pull, push

# %% [markdown]
# **Predict:** with 1, 2, 4 and 8 workers, how does the number of ops in a client's graph grow,
# in-graph and between-graph? In a step of two workers, does in-graph replication send the same
# bytes as between-graph?

# %%
def ops(build, *arguments):
    with tf.Graph().as_default() as graph:
        build(*arguments)
    return len(graph.get_operations())

print("workers                 ", *["%5d" % K for K in (1, 2, 4, 8)])
print("ops, in-graph           ", *["%5d" % ops(in_graph, K) for K in (1, 2, 4, 8)])
print("ops, between-graph, each", *["%5d" % ops(between_graph, K - 1, K) for K in (1, 2, 4, 8)])

# %%
print("in-graph, one step:")
with tf.Graph().as_default(), tf.Session(server["worker", 0].target, config=waits) as session:
    w_ps, fed, update = in_graph(2)
    feed = {fed["x"]: X, fed["y"]: labels}
    session.run(tf.global_variables_initializer())
    session.run(update, feed)
    after_in_graph = session.run(w_ps)
    in_graph_bytes = traffic(session, update, feed)
show_traffic(in_graph_bytes)

# %%
clients, between_graph_bytes = [], {}
for k in range(2):
    with tf.Graph().as_default():
        session = tf.Session(server["worker", k].target, config=waits)
        w_ps, fed, pull, push = between_graph(k, 2)
        rows = slice(32 * k, 32 * k + 32)
        clients.append((session, pull, push, {fed["x"]: X[rows], fed["y"]: labels[rows]}))
        if k == 0:
            session.run(tf.global_variables_initializer())  # the chief's work
        session.run(tf.local_variables_initializer())
for session, pull, _, _ in clients:  # both pull the same w,
    session.run(pull)
for session, _, push, feed in clients:  # then both push
    session.run(push, feed)
after_between_graph = session.run(w_ps)

print("between-graph, one step of both:")
for session, pull, push, feed in clients:
    between_graph_bytes.update(traffic(session, pull, None))
    between_graph_bytes.update(traffic(session, push, feed))
    session.close()
show_traffic(between_graph_bytes)
print("the w of one device, in-graph:     ", close(after_in_graph, ONE_DEVICE))
print("the w of one device, between-graph:", close(after_between_graph, ONE_DEVICE))

# %% [markdown]
# <details><summary>Answer</summary>
#
# In-graph, the one graph grows with each worker. Between-graph, a client's graph does not: only
# more clients build it.
#
# Pull and push cost 9,640 bytes for each worker in both ways. In-graph replication adds 8,320
# bytes from worker 0 to worker 1: the rows of tower 1. They come from the one client, which feeds
# both towers.
#
# </details>

# %% jupyter={"source_hidden": true}
assert close(after_in_graph, ONE_DEVICE) and close(after_between_graph, ONE_DEVICE)
assert set(between_graph_bytes.values()) == {9640}

# %% [markdown]
# Both are data parallelism, and the update is the same. What differs is who does the work around
# it:
#
# | | in-graph | between-graph |
# | --- | --- | --- |
# | the graph | one, which grows with $K$ | $K$ graphs of constant size |
# | the client | one builds, feeds and runs everything; it becomes the bottleneck | each worker has its own |
# | the input | passes through the client, unless the graph reads it in each tower | each worker reads its own |
# | asynchronous training | unnatural: one `run` waits for all towers | natural: each client has its own pace |
# | if a client dies | training ends | asynchronous: the others go on |
# | where | the GPUs of one machine | several machines |
#
# In one machine a single client is no bottleneck, and one graph is simplest. That is the *towers*
# of [Multiple-GPUs-Single-Machine](../Multiple-GPUs-Single-Machine/):
#
# ![One process splits a batch over towers, one on each device, averages their gradients and updates w](../docs/figures/towers.svg)
#
# Between machines, all examples of this repository with a ps use between-graph replication. In a
# ring each worker has its own graph, too, and no variable is shared at all.
#
# ## Model parallelism: cut between the layers
# Now the model is cut, and the batch is not. Worker 0 holds the first layer, worker 1 the second.
# There is no ps: each worker keeps its own part of `w`, and updates it. One client builds the
# graph.
#
# $$h = \mathrm{relu}(X W_1 + b_1) \text{ on worker 0}, \qquad L = \mathrm{loss}(h W_2 + b_2) \text{ on worker 1}$$
#
# No line of the code sends anything. Where a tensor is needed on another device than its own,
# TensorFlow inserts a pair of ops that send and receive it. `colocate_gradients_with_ops=True` asks
# for each gradient on the device of its forward op. Without it TensorFlow would compute all of them
# on worker 0.
#
# **Predict:** which tensors cross in a step of 64 rows, and how many bytes is that? Would it be
# more for a larger batch? For a larger model?

# %%
with tf.Graph().as_default(), tf.Session(server["worker", 0].target, config=waits) as session:
    with tf.device(WORKER[0]):
        rows_x = tf.placeholder(tf.float32, [64, 64])
        first = [tf.get_variable("w_%d" % i, initializer=PARAMETERS[i]) for i in (0, 1)]
        h = tf.nn.relu(rows_x @ first[0] + first[1])
    with tf.device(WORKER[1]):
        rows_y = tf.constant(labels)
        second = [tf.get_variable("w_%d" % i, initializer=PARAMETERS[i]) for i in (2, 3)]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=rows_y, logits=h @ second[0] + second[1]))
    g = tf.gradients(loss, first + second, colocate_gradients_with_ops=True)
    update = []
    for v, d in zip(first + second, g):
        with tf.device(v.device):
            update.append(v.assign_sub(LR * d).op)

    session.run(tf.global_variables_initializer())
    session.run(update, {rows_x: X})
    print("the w of one device:", close(session.run(first + second), ONE_DEVICE))
    layer_bytes = traffic(session, update, {rows_x: X})
show_traffic(layer_bytes)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The *activations* $h$, the outputs of the first layer, go forward: 64 rows of 32 numbers of 4
# bytes are 8,192. The gradient $\partial L / \partial h$ comes back and is as large. Neither `w`
# nor its gradient crosses.
#
# So it grows with the rows, and with the width of the layer where you cut. It does not grow with
# the number of parameters on either side. Data parallelism is the opposite: it sends `w`, however
# many rows there are.
#
# </details>

# %% jupyter={"source_hidden": true}
assert layer_bytes == {("worker 0", "worker 1"): 8192, ("worker 1", "worker 0"): 8192}

# %% [markdown]
# But look at the time. Worker 1 can begin only when $h$ has come. Worker 0 waits for $\partial L /
# \partial h$, and worker 1 waits for the next batch. With $K$ devices only one of them works at a
# time: you have gained memory, not speed.
#
# ## Pipelines
# GPipe (Huang et al. 2019) cuts the batch into $M$ *micro-batches*. While stage 1 computes the
# first of them, stage 0 computes the second. A *stage* is the part of the model on one device.
#
# ![Schedules of three stages: sequential, 67% idle; GPipe and 1F1B with five micro-batches, 29% idle; 1F1B keeps fewer activations](../docs/figures/pipeline.svg)
#
# `w` moves only when all micro-batches have passed, by the mean of their gradients. A mean of
# means of equal parts is the mean of all rows. So the update does not depend on $M$:

# %%
for M in 1, 2, 4, 8:
    parts = [gradient(PARAMETERS, rows_x, rows_y)
             for rows_x, rows_y in zip(np.split(X, M), np.split(labels, M))]
    mean = [sum(of_all) / M for of_all in zip(*parts)]
    print("%d micro-batches, the gradient of the whole batch:" % M, close(mean, g_whole))

# %% [markdown]
# The gaps at the beginning and the end of a schedule are the *bubble*. How large is it? We simulate a
# schedule of $K$ stages: each forward and each backward pass takes one unit of time, messages take
# none. (A real backward pass takes about twice as long; the bubble is the same.) Under both schedules
# `w` waits for the last micro-batch, which is called a *flush*.

# %%
def gpipe(k, K, M):
    """What stage k does, in order: all forward passes, then all backward passes."""
    return [("F", m) for m in range(M)] + [("B", m) for m in range(M)]

def one_f_one_b(k, K, M):
    """Some forward passes to fill the pipeline; then one backward, one forward, in turn."""
    warm_up = min(K - 1 - k, M)
    order = [("F", m) for m in range(warm_up)]
    for m in range(M - warm_up):
        order += [("F", warm_up + m), ("B", m)]
    return order + [("B", m) for m in range(M - warm_up, M)]

def simulate(schedule, K, M):
    """The idle share, and how many micro-batches' activations stage 0 stores at most."""
    waiting = [schedule(k, K, M) for k in range(K)]
    end, free = {}, [0] * K  # when a pass ends; when a stage is free
    while any(waiting):
        for k in range(K):
            while waiting[k]:
                kind, m = waiting[k][0]
                before = ("F", m, k - 1) if kind == "F" else ("B", m, k + 1)
                if 0 <= before[2] < K and before not in end:
                    break
                free[k] = end[kind, m, k] = max(free[k], end.get(before, 0)) + 1
                waiting[k].pop(0)
    stored = np.cumsum([1 if kind == "F" else -1 for kind, _ in schedule(0, K, M)])
    return 1 - 2 * M / max(free), stored.max()

# %% [markdown]
# **Predict:** four stages, twelve micro-batches. How large is the bubble with GPipe's schedule, in
# which all forward passes come first? Is it smaller with *1F1B*, where each stage alternates one
# forward and one backward pass? What else does 1F1B change?

# %%
print("K = 4, M = 12          idle   stored by stage 0")
for schedule in gpipe, one_f_one_b:
    idle, stored = simulate(schedule, 4, 12)
    print("%-20s %5.1f%%   of %d micro-batches" % (schedule.__name__, 100 * idle, stored))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 3/15 = 20% for both. Each stage must wait for the first micro-batch to arrive and for the last
# gradient to come back, in whatever order it works in between.
#
# What 1F1B changes is memory. A stage must store the activations of a micro-batch from its forward
# to its backward pass. Under 1F1B at most $K$ micro-batches are under way. (The GPipe of the
# paper stores only the input of a stage for each micro-batch, and computes the rest again.)
#
# </details>
#
# In general the bubble is
#
# $$\frac{K - 1}{M + K - 1}$$
#
# Many texts divide by the ideal time instead, which gives $(K - 1) / M$.

# %% jupyter={"source_hidden": true}
counts = np.arange(1, 33)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for K, colour in (2, BLUE), (4, ORANGE), (8, PURPLE):
    left.plot(counts, 100 * (K - 1) / (counts + K - 1), color=colour)
    idle = [100 * simulate(gpipe, K, M)[0] for M in counts[::3]]
    left.plot(counts[::3], idle, "o", ms=4, color=colour)
    left.text(33, 100 * (K - 1) / (32 + K - 1), "K = %d" % K, color=colour, va="center")
left.set(xlabel="M, micro-batches", ylabel="idle share of a stage, %", ylim=(0, 100), xlim=(0, 38))
left.set_title("lines: $(K-1)/(M+K-1)$; dots: simulated", fontsize=10)
for schedule, colour in (gpipe, GRAY), (one_f_one_b, GREEN):
    stored = [simulate(schedule, 4, M)[1] for M in counts]
    right.plot(counts, stored, color=colour, lw=2)
right.text(20, 24, "GPipe", color=GRAY, ha="right")
right.text(20, 5.5, "1F1B", color=GREEN)
right.set(xlabel="M, micro-batches", ylabel="micro-batches stored", ylim=(0, 34))
right.set_title("activations in stage 0, K = 4", fontsize=10)
show(figure, "Left: the idle share of a pipeline falls with the number of micro-batches and grows "
     "with the number of stages; simulated dots lie on the lines of the formula. Right: GPipe "
     "stores the activations of all micro-batches in stage 0, 1F1B those of at most 4.")
assert all(np.isclose(simulate(schedule, K, M)[0], (K - 1) / (M + K - 1))
           for schedule in (gpipe, one_f_one_b) for K in (2, 3, 8) for M in (1, 4, 16))

# %% [markdown]
# So you want $M$ much larger than $K$. But small micro-batches use a device badly, and each sends
# messages of its own: the [measured pipeline](../Measurements/Pipeline/) has a best $M$.
#
# **PipeDream** (Narayanan et al. 2019) avoids the bubble: it never flushes. A stage updates its
# part of `w` as soon as the gradient of a mini-batch arrives, while others are on their way with
# older parameters. That is *staleness* again, known from [Stale-Gradients](Stale-Gradients.ipynb),
# now inside one model. With $K$ stages, stage $k$ works with parameters that are $K - 1 - k$
# updates old:
#
# $$w^{t+1} = w^t - \mathrm{lr} \cdot \nabla f(w_0^{t-K+1}, w_1^{t-K+2}, \dots, w_{K-1}^{t})$$
#
# A stage keeps the version of its parameters that it used in the forward pass until the backward
# pass (*weight stashing*). Otherwise forward and backward would not belong together, and the
# result would be no gradient of anything. Exercise 4 trains like this.
#
# ## Tensor parallelism: cut inside the layers
# Megatron-LM (Shoeybi et al. 2019) cuts the matrices of two layers, the first by columns, the
# second by rows:
#
# $$Y = \mathrm{relu}(X W_1) W_2 = \mathrm{relu}(X A_0) B_0 + \mathrm{relu}(X A_1) B_1$$
#
# Here $A_0$ and $A_1$ are the left and the right columns of $W_1$. $B_0$ and $B_1$ are the upper
# and the lower rows of $W_2$.
#
# ![Tensor parallelism of two layers. Both devices have X. Device 0 has columns A_0 of W1 and rows B_0 of W2, device 1 the others. Each computes H_k, then H_k B_k. One all-reduce between the devices adds these to Y; in the backward pass another adds the gradients of X.](../docs/figures/tensor.svg)
#
# Both devices have all rows of $X$. Device $k$ computes its own columns $H_k$ of the hidden layer.
# They are just what its rows of $W_2$ need. Nothing crosses between the two layers. The biases:
# $b_1$ is cut like the columns, and $b_2$ is added once, after the sum.
#
# Backward, each device gets the gradients of its own parts alone. Only the gradient of the input
# is a sum over both devices:
#
# $$\frac{\partial L}{\partial X} = \frac{\partial L}{\partial Z_0} A_0^T
# + \frac{\partial L}{\partial Z_1} A_1^T, \qquad Z_k = X A_k + a_k$$
#
# The code is NumPy, in these symbols. `all_reduce` stands for the ring of the last notebook.

# %%
K = 2
W1, b1, W2, b2 = PARAMETERS
A, a, B = np.split(W1, K, axis=1), np.split(b1, K), np.split(W2, K, axis=0)
reduced = []  # the size of each all-reduce

def all_reduce(parts):
    reduced.append(parts[0].nbytes)
    return sum(parts)

# Forward.
H = [np.maximum(X @ A[k] + a[k], 0) for k in range(K)]  # device k
Y = all_reduce([H[k] @ B[k] for k in range(K)]) + b2  # on both

# The gradient of the mean cross-entropy at the scores Y, on both.
p = np.exp(Y - Y.max(1, keepdims=True))
dY = (p / p.sum(1, keepdims=True) - np.eye(10, dtype="float32")[labels]) / len(X)

# Backward.
dB = [H[k].T @ dY for k in range(K)]
dZ = [dY @ B[k].T * (H[k] > 0) for k in range(K)]
dA, da = [X.T @ dZ[k] for k in range(K)], [dZ[k].sum(0) for k in range(K)]
dX = all_reduce([dZ[k] @ A[k].T for k in range(K)])  # for a layer before this

g_tensor = [np.hstack(dA), np.hstack(da), np.vstack(dB), dY.sum(0)]
print("the gradient of one device:", close(g_tensor, g_whole))
print("all-reduced: Y %d bytes, dX %d bytes" % tuple(reduced))
assert close(g_tensor, g_whole)

# %% [markdown]
# The parts are exact: together they are the gradient of the whole. There is one all-reduce forward
# and one backward, for two layers. (For the first layers of a network $dX$ is not needed: its
# input is the data.)
#
# **Predict:** could you cut $W_1$ by *rows* instead, and $X$ by columns, so that a device needs
# only a part of $X$? What would that cost?

# %%
left_half, right_half = X[:, :32] @ W1[:32], X[:, 32:] @ W1[32:]  # devices 0 and 1
relu_of_sum = np.maximum(left_half + right_half + b1, 0)
sum_of_relu = np.maximum(left_half + b1 / 2, 0) + np.maximum(right_half + b1 / 2, 0)
print("relu of the sum is the hidden layer:", np.allclose(relu_of_sum, np.hstack(H), atol=1e-5))
print("the sum of both relu is it, too:    ", np.allclose(sum_of_relu, np.hstack(H), atol=1e-5))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Each device would have a partial sum of the hidden layer. relu is not linear: the devices must
# add their parts *before* relu. That is a second all-reduce in the forward pass. With columns each
# device has whole sums, for half of the hidden layer, and can apply relu to them alone.
#
# </details>
#
# The same cut works for the attention of a transformer: its heads are independent, so each device
# takes some of them. These all-reduces are harder to hide than those of data parallelism, because
# the next layer waits for each of them. Only in the backward pass is there other work meanwhile:
# $dA$ does not need the sum $dX$.
#
# ## What each of them costs
# For the digits model, $B$ = 64 rows, $K$ = 2 devices, a ring for the all-reduces:

# %%
def ring_bytes(size, K):
    """What a device sends in an all-reduce of `size` bytes."""
    return 2 * (K - 1) * size // K

size = [v.size for v in PARAMETERS]  # W1, b1, W2, b2
h_bytes = 64 * 32 * 4
print("a device of            stores   sends in a step")
for name, stored, sent, what in (
        ("data parallelism", sum(size), ring_bytes(4 * sum(size), K), "the gradient of w"),
        ("layer 1 alone", size[0] + size[1], h_bytes, "h, all rows"),
        ("layer 2 alone", size[2] + size[3], h_bytes, "the gradient of h, all rows"),
        ("tensor parallelism", sum(size[:3]) // K + size[3], ring_bytes(Y.nbytes + dX.nbytes, K),
         "partial Y and dX, all rows")):
    print("%-20s %5d numbers %6d bytes: %s" % (name, stored, sent, what))

# %% [markdown]
# Now in general. Let the model have $D$ layers of width $d$: matrices of $d \times d$. A device
# sends in a step, with numbers of 4 bytes:
#
# | | parameters of a device | bytes that it sends | grows with | messages |
# | --- | --- | --- | --- | --- |
# | data parallelism | $D d^2$ | $4 \cdot 2\frac{K-1}{K} D d^2$ | the model | one all-reduce, in parts during the backward pass |
# | pipeline | $D d^2 / K$ | $4 \cdot 2 B d$ | the batch | $2 M$ |
# | tensor parallelism | $D d^2 / K$ | $4 \cdot 2\frac{K-1}{K} D B d$ | batch and depth | $D$ all-reduces, and the next layer waits for each |
#
# For tensor parallelism: each pair of layers has two all-reduces of $B d$ numbers. There $B$ counts
# all rows of the step; with data parallelism the bytes do not depend on it. For language models,
# a row is one token.

# %% jupyter={"source_hidden": true}
D, B_ROWS, K_DEVICES = 24, 1024, 8
d = np.logspace(6, 15, 100, base=2)
share = 2 * (K_DEVICES - 1) / K_DEVICES
curves = {"data parallelism": (4 * share * D * d**2, BLUE),
          "tensor parallelism": (4 * share * D * B_ROWS * d, ORANGE),
          "pipeline": (4 * 2 * B_ROWS * d, PURPLE)}
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for name, (sent, colour) in curves.items():
    axes.loglog(d, sent / 1e6, color=colour, lw=2, base=10)
    axes.text(3.6e4, sent[-1] / 1e6, name, color=colour, va="center")
axes.axvline(B_ROWS, color=GRAY, ls="--", lw=1)
axes.text(B_ROWS * 0.9, 8e4, "d = B", color=GRAY, ha="right")
axes.set_xticks(2 ** np.arange(6, 16, 3), 2 ** np.arange(6, 16, 3))
axes.minorticks_off()
axes.set(xlabel="d, width of a layer", ylabel="MB that a device sends in a step")
show(figure, "Bytes that a device sends in a step against the width d of 24 layers, for 1,024 "
     "rows and 8 devices. Data parallelism grows with the square of d, tensor parallelism and "
     "pipelines with d. Data and tensor parallelism cross where d equals the number of rows; a "
     "pipeline sends least.")

# %% [markdown]
# Data and tensor parallelism send the same where the layers are as wide as the batch has rows.
# Here a pipeline sends the least, but it pays with its bubble. Bytes alone do not decide; compare
# them with the time of a step. A training step computes about $6 D d^2$ operations for each row.
# So for each byte that it sends, a device computes:
#
# | | operations for each byte, about | hides its communication if |
# | --- | --- | --- |
# | data parallelism, $b$ rows a device | $\frac{3}{4} b$ | each device has many rows |
# | tensor parallelism | $\frac{3}{4} d / K$ | layers are wide, and devices few |
# | pipeline | $\frac{3}{4} D d / K$ | each stage has many wide layers |
#
# Take a device of 300 · 10¹² operations a second. Inside a machine, with 300 GB/s between the
# devices, it can compute 1,000 operations while it sends one byte. Between machines, with 25 GB/s,
# it can compute 12,000. With numbers of 2 bytes, which such devices prefer, the figures of the
# table double. For $d$ = 8,192 and $K$ = 8 tensor parallelism then offers 1,536: enough inside a
# machine, far too little between machines. All this is computed, not measured, but it explains a
# common practice:
#
# 1. The model, its gradients and the optimizer's state fit into one device: **data parallelism**.
#    It is simplest, and keeps all devices busy.
# 2. It does not fit, but one layer does: shard what data parallelism stores (ZeRO, FSDP:
#    [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb)), or build a **pipeline**, also
#    between machines.
# 3. Single layers are too large or too slow: **tensor parallelism**, inside one machine.
# 4. The largest models combine all three: tensor parallelism inside a machine, a pipeline over some
#    machines, and data parallelism over copies of that.
#
# The digits model is a case of 1, and by far too small for the others.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. How many micro-batches?** ★☆☆ A pipeline has eight stages. How many micro-batches keep the
# bubble below 10%? How many does stage 0 store then, with GPipe and with 1F1B?
#
# <details><summary>Hint</summary>
#
# Solve $(K - 1) / (M + K - 1) < 0.1$, and check your $M$ with `simulate`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# M = next(M for M in range(1, 1000) if 7 / (M + 7) < 0.1)
# assert M == 64  # 7 / 71 = 9.9%
# assert simulate(gpipe, 8, M)[0] < 0.1 <= simulate(gpipe, 8, M - 1)[0] + 1e-9
# assert simulate(gpipe, 8, M)[1] == 64 and simulate(one_f_one_b, 8, M)[1] == 8
# ```
#
# </details>

# %% [markdown]
# **2. Unequal shares.** ★★☆ With data parallelism, device 0 takes 48 of the 64 rows, and device 1
# takes 16. Is the mean of their two gradients still that of one device? What must you average
# instead?
#
# <details><summary>Hint</summary>
#
# `gradient` gives the *mean* over the rows of a device. A row of device 1 counts three times as
# much.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# g_0 = gradient(PARAMETERS, X[:48], labels[:48])
# g_1 = gradient(PARAMETERS, X[48:], labels[48:])
# assert not close([(p + q) / 2 for p, q in zip(g_0, g_1)], g_whole)
# assert close([(48 * p + 16 * q) / 64 for p, q in zip(g_0, g_1)], g_whole)  # weighted by the rows
# ```
#
# </details>

# %% [markdown]
# **3. Three devices.** ★★☆ The hidden layer has 32 units, and three does not divide 32. Cut both
# layers for three devices anyway, and show that the scores are those of one device. How many
# numbers does each device store?
#
# <details><summary>Hint</summary>
#
# `np.array_split` makes parts of nearly equal size. Cut `W1`, `b1` and `W2` at the same places.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# A_3, a_3 = np.array_split(W1, 3, axis=1), np.array_split(b1, 3)
# B_3 = np.array_split(W2, 3, axis=0)
# Y_3 = sum(np.maximum(X @ A_3[k] + a_3[k], 0) @ B_3[k] for k in range(3)) + b2
# assert np.allclose(Y_3, Y, atol=1e-5)
# stored = [A_3[k].size + a_3[k].size + B_3[k].size + b2.size for k in range(3)]
# assert stored == [835, 835, 760]  # 11, 11 and 10 hidden units; b2 is on each
# ```
#
# </details>

# %% [markdown]
# **4. PipeDream.** ★★★ Train the digits for 300 updates as PipeDream's two stages would. The
# gradient is taken at layer 1 as it was one update ago, and at layer 2 as it is now. How many
# training rows does it classify correctly? Compare with no delay, and with sixteen updates of
# delay, as the first of seventeen stages would have.
#
# <details><summary>Hint</summary>
#
# Keep a list of all versions of `w`. The gradient is
# `gradient([*versions[-1 - delay][:2], *versions[-1][2:]], ...)`. Draw the rows with
# `np.random.default_rng(t).integers(0, len(x), 32)`.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def train(delay):
#     versions = [PARAMETERS] * (delay + 1)
#     for t in range(300):
#         rows = np.random.default_rng(t).integers(0, len(x), 32)
#         mixed = [*versions[-1 - delay][:2], *versions[-1][2:]]  # what stages 0 and 1 used
#         g = gradient(mixed, x[rows], y[rows])
#         versions.append([v - LR * d for v, d in zip(versions[-1], g)])
#     W1, b1, W2, b2 = versions[-1]
#     scores = np.maximum(x @ W1 + b1, 0) @ W2 + b2
#     return np.mean(scores.argmax(1) == y)
#
# correct = {delay: train(delay) for delay in (0, 1, 16)}
# assert correct[0] - correct[1] < 0.03  # two stages learn nearly as well
# assert correct[16] < 0.9  # at this learning rate a long pipeline would not
# ```
#
# </details>

# %%
# Stop what this notebook started.
local.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper_files/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html):
#   DistBelief cut models between machines, and ran copies of them side by side.
# - Huang et al. 2019, [GPipe](https://arxiv.org/abs/1811.06965): micro-batches; it frees
#   activations and computes them again.
# - Narayanan et al. 2019, *PipeDream: Generalized Pipeline Parallelism for DNN Training*, SOSP:
#   1F1B and weight stashing. The [preprint](https://arxiv.org/abs/1806.03377) is of 2018, by
#   Harlap et al.
# - Shoeybi et al. 2019, [Megatron-LM](https://arxiv.org/abs/1909.08053): tensor parallelism of
#   transformers.
# - Narayanan et al. 2021, [Efficient Large-Scale Language Model Training on GPU Clusters Using
#   Megatron-LM](https://arxiv.org/abs/2104.04473): 1F1B with a flush, and how to combine all three.
# - [Model-Parallelism](../Model-Parallelism/): a pipeline between processes that trains the digits.
#   [Pipeline](../Measurements/Pipeline/): its bubble, measured.
#
# Next: [TF2-Strategies](TF2-Strategies.ipynb), TensorFlow 2's own way to replicate.
