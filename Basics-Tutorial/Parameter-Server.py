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
# # Parameter servers
# Parameter servers (ps) hold the variables; workers compute with them. The network between them is
# usually the bottleneck, so it matters which variable lives where, and what has to travel in an
# update.
#
# After this notebook you can:
# - say what a device function is, and write one that places variables on a ps;
# - spread variables evenly over several servers, and cut a large one into parts;
# - look up rows of such a table, without the trap that gives you the wrong rows;
# - read from a trace which task ran which operation, and how many bytes crossed the network;
# - explain why a sparse gradient can cost so much less than a dense one;
# - find computation that has landed on a ps, and explain why that is a bug.
#
# **Before it:** [Servers](Servers.ipynb). **Time:** 55 minutes.

# %% [markdown]
# ## One update
# A worker repeats three steps. It *pulls* `w` from the ps, computes the gradient $g(w)$ of the loss
# on a mini-batch, and *pushes* the gradient, multiplied by the learning rate $lr$. The ps subtracts
# it:
#
# $$w \leftarrow w - lr \cdot g(w)$$
#
# ![One update as messages between a worker and the ps. Pull: the worker asks, the ps answers with w. Then the worker computes the gradient on a new mini-batch. Push: the worker sends lr·g, the ps moves w and answers that it is done.](../docs/figures/update.svg)
#
# This notebook makes one such update and looks at it closely. The folded cells load TensorFlow, and
# define `new_cluster` (see [Servers](Servers.ipynb)) and the digits model.

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
# The cluster has two parameter servers and one worker. In this notebook all three run in one
# process: they exchange tensors through their sockets, as they would on three machines.

# %%
import digits

cluster = new_cluster(ps=2, worker=1)
tasks = [("ps", 0), ("ps", 1), ("worker", 0)]
servers = {task: tf.train.Server(cluster, *task) for task in tasks}
waits = tf.ConfigProto(operation_timeout_in_ms=20_000)  # the time limit of a call: 20 s

# %% [markdown]
# ## Where a variable lives
# `tf.device` takes a name, or a *device function*. TensorFlow calls this function for each
# operation that you build inside the block. It gets the operation and returns a device. This one
# sends variables to a ps, and everything else to the worker. Operations that read or change a
# variable run where the variable lives, whatever the function says:

# %%
def variables_to_ps(op):
    is_variable = op.type == "VarHandleOp"  # the operation that stands for a variable
    return "/job:ps/task:0" if is_variable else "/job:worker/task:0"

with tf.device(variables_to_ps):
    v = tf.get_variable("v", initializer=1.0)
    doubled = 2.0 * v
print("v:      ", v.device)
print("doubled:", doubled.device)

# %% [markdown]
# You rarely write one yourself. `tf.train.replica_device_setter` *returns* such a function. Its
# default distributes the variables *round robin*: the first to ps 0, the second to ps 1, the third
# to ps 0, and so on. The function counts what it has placed, so make a new one for each graph.
#
# The digits model has four variables. A number takes 4 bytes; the step counter takes 8.
#
# | variable | shape | bytes |
# | --- | --- | --- |
# | `global_step` | one number | 8 |
# | `w_0` | 64 × 32 | 8,192 |
# | `w_1` | 32 | 128 |
# | `w_2` | 32 × 10 | 1,280 |
# | `w_3` | 10 | 40 |
#
# **Predict:** we make them in this order, on two servers, round robin. How many bytes does each ps
# hold?

# %%
def placement(ps_strategy=None, number_of_ps=2):
    """A new device function: variables to the ps, everything else to worker 0."""
    return tf.train.replica_device_setter(
        ps_tasks=number_of_ps, worker_device="/job:worker/task:0", ps_strategy=ps_strategy)

def size(variable):
    return variable.shape.num_elements() * variable.dtype.size

def bytes_per_ps(variables):
    """Prints where each variable lives; returns {ps: bytes}."""
    load = {}
    for v in variables:
        print("%-12s %5d bytes  %s" % (v.op.name, size(v), v.device))
        load[v.device] = load.get(v.device, 0) + size(v)
    for ps, total in sorted(load.items()):
        print("%-12s %5d bytes" % (ps[5:], total))
    return load

tf.reset_default_graph()  # an empty graph
with tf.device(placement()):
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
round_robin = bytes_per_ps([step, *w])

# %% [markdown]
# <details><summary>Answer</summary>
#
# 176 and 9,472. Round robin counts variables, not bytes. Weights and biases alternate, so both
# weight matrices land on ps 1. It sends and receives nearly everything, and ps 0 is nearly idle.
#
# </details>
#
# The argument `ps_strategy` replaces the choice. It is a function from an operation to the number
# of a ps. This one takes the ps that holds the fewest bytes so far:

# %%
def lightest(number_of_ps):
    load = [0] * number_of_ps

    def choose(op):
        ps = load.index(min(load))
        shape, dtype = op.get_attr("shape"), op.get_attr("dtype")
        load[ps] += tf.TensorShape(shape).num_elements() * dtype.size
        return ps
    return choose

tf.reset_default_graph()
with tf.device(placement(lightest(2))):
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
by_size = bytes_per_ps([step, *w])
assert max(by_size.values()) < max(round_robin.values())

# %% [markdown]
# Better, but `w_0` alone is larger than all the others together. No distribution of whole variables
# is even.
#
# ## A variable in parts
# A *partitioner* cuts a variable along its rows. The parts are variables themselves, so each can
# live on another ps.

# %%
def in_two_parts(name, initializer):
    """Like tf.get_variable; matrices are cut into two parts."""
    cut = tf.fixed_size_partitioner(2) if initializer.ndim == 2 else None
    return tf.get_variable(name, initializer=tf.constant(initializer), partitioner=cut)

tf.reset_default_graph()
with tf.device(placement(lightest(2))):
    step = tf.train.get_or_create_global_step()
    w = digits.variables(get_variable=in_two_parts)
in_parts = bytes_per_ps(tf.global_variables())
assert max(in_parts.values()) < 1.05 * min(in_parts.values())

# %% [markdown]
# Now each ps holds half, but for the small variables, which go to a ps as a whole. The model of the
# examples is larger. This figure shows its three placements, in numbers instead of bytes; each
# takes 4 bytes. The examples do otherwise: they join all variables into one vector, and the
# partitioner cuts that into equal parts.
#
# ![The variables of the examples' model on two parameter servers. Round robin: 203 numbers on ps 0 and 17,024 on ps 1. By size: 8,331 and 8,896. With large variables split by rows: 8,267 and 8,960.](../docs/figures/sharding.svg)
#
# Where the graph uses a partitioned *matrix*, TensorFlow pulls all parts and joins them on the
# worker. For a *table* that is too large to be joined there is a better way.
#
# ## Rows of a large table
# In Keras an `Embedding` layer holds a table with a vector for each word. A mini-batch needs only
# the rows of its own words. In graph style this is `tf.nn.embedding_lookup(table, ids)`. It asks
# each ps for the rows that it holds; nothing is joined.
#
# A lookup must know how the rows were distributed. There are two conventions. For a table of 8 rows
# in 2 parts of 4 rows they say:
#
# | `partition_strategy` | row `id` is in part | at place |
# | --- | --- | --- |
# | `"mod"`, the default | `id % 2` | `id // 2` |
# | `"div"` | `id // 4` | `id % 4` |
#
# A partitioner cuts contiguous blocks: rows 0 to 3 are part 0, rows 4 to 7 are part 1. To see which
# rows we get, each row of this table holds its own number.
#
# **Predict:** we look up rows 3 and 5, once by each convention. Both calls run without an error.
# Which rows does each return?

# %%
def row_numbers(shape, dtype, partition_info):
    """An initialiser: each row of a part holds its number in the whole table."""
    first = partition_info.var_offset[0]
    return tf.cast(tf.tile(tf.range(first, first + shape[0])[:, None], [1, shape[1]]), dtype)

tf.reset_default_graph()
with tf.device(placement()):
    table = tf.get_variable("table", [8, 2], initializer=row_numbers,
                            partitioner=tf.fixed_size_partitioner(2))
    by_default = tf.nn.embedding_lookup(table, [3, 5])
    by_div = tf.nn.embedding_lookup(table, [3, 5], partition_strategy="div")

with tf.Session(servers["worker", 0].target, config=waits) as session:
    session.run(tf.global_variables_initializer())
    print("default:", session.run(by_default).tolist())
    print("div:    ", session.run(by_div).tolist())

# %% [markdown]
# <details><summary>Answer</summary>
#
# The default returns rows 5 and 6: by `"mod"`, rows 3 and 5 are both in part 1, at places 1 and 2.
# There the partitioner has put rows 5 and 6. By `"div"` they are in part 0 at place 3, and in part
# 1 at place 1: that is where rows 3 and 5 are. Contiguous blocks need `"div"`.
#
# </details>
#
# **The trap:** no error says so. Training even works, because the wrong rows are always the
# same ones. You notice it when you export the table, or use it with another number of parts. For a
# partitioned variable always write `partition_strategy="div"`. `"mod"` fits tables whose parts you
# made and filled yourself, as [Sparse-Embeddings](../Sparse-Embeddings/) does: there the frequent
# words, which have the smallest numbers, spread over all servers.
#
# ## Where each operation runs
# Back to the digits. `update` builds one update on a mini-batch, with the variables placed by size.

# %%
x, y, _, _ = digits.load()
lr = 0.2

def update(batch_size, place=None):
    """In a new graph: w, the loss on a mini-batch, its gradient, and the push."""
    tf.reset_default_graph()
    with tf.device(place or placement(lightest(2))):
        tf.train.get_or_create_global_step()
        w = digits.variables()
        loss = digits.loss(w, *digits.batch(x, y, number=0, size=batch_size))
        g = tf.gradients(loss, w)
        push = tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])
    return w, loss, g, push

# %% [markdown]
# TensorFlow cuts the graph where a tensor goes from one task to another. On one side of the cut it
# inserts a `_Send`, on the other a `_Recv`.
#
# ![One update on three tasks. ps 0 reads w_1, w_2 and w_3 and sends 1,448 bytes to the worker; ps 1 reads w_0 and sends 8,192 bytes. The worker computes forward and backward, then sends lr·g, of the same sizes, back. Each ps subtracts what it receives.](../docs/figures/placement.svg)
#
# Is that what happens? A call of `run` reports what each task did, if you ask for a *full trace*.
# `read_report` collects two things from the report: the operations of each task, and the bytes of
# each `_Send`. `trace` makes a session, runs something in it, and reads the report. You need not
# follow the details of `read_report`; the project of part one uses it again as it is.

# %%
import collections
import re

full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)

def short(device):
    """/job:ps/replica:0/task:1/device:CPU:0 is ps 1."""
    return "%s %s" % re.search(r"job:(\w+)/.*task:(\d)", device).groups()

def read_report(report):
    """{task: its operations}, {(sender, receiver): bytes} of a run with the options `full`."""
    results = {(node.node_name, output.slot): output.tensor_description  # slot: its 1st, 2nd, ...
               for device in report.step_stats.dev_stats
               for node in device.node_stats for output in node.output}
    operations, sent = collections.defaultdict(list), collections.Counter()
    for node in [node for part in report.partition_graphs for node in part.node]:
        operations[short(node.device)].append(node.op)
        # What goes to this program, the client, does not go from task to task: client_terminated.
        if node.op == "_Send" and not node.attr["client_terminated"].b:
            name, _, slot = node.input[0].partition(":")
            tensor = results[name, int(slot or 0)]
            numbers = tf.TensorShape(tensor.shape).num_elements()
            sender = short(node.attr["send_device"].s.decode())
            receiver = short(node.attr["recv_device"].s.decode())
            sent[sender, receiver] += numbers * tf.as_dtype(tensor.dtype).size
    return operations, sent

def trace(fetches):
    """The operations and the bytes of one run in the default graph."""
    report = tf.RunMetadata()
    with tf.Session(servers["worker", 0].target, config=waits) as session:
        session.run(tf.global_variables_initializer())
        session.run(fetches, options=full, run_metadata=report)
    return read_report(report)

# %%
w, loss, g, push = update(batch_size=32)
operations, sent = trace([loss, push])

kinds = ["ReadVariableOp", "MatMul", "AssignSubVariableOp"]
print("%-10s" % "", *["%20s" % kind for kind in kinds])
for task, names in sorted(operations.items()):
    print("%-10s" % task, *["%20d" % sum(kind in name for name in names) for kind in kinds])
for (sender, receiver), n in sorted(sent.items()):
    print("%-8s -> %-8s %5d bytes" % (sender, receiver, n))
assert sent["ps 1", "worker 0"] == sent["worker 0", "ps 1"] == 8192

# %% [markdown]
# As drawn: the servers only read and subtract, and all matrix products are on the worker. There are
# five: one forward in each of the two layers, and three backward, for the gradients of `w_0`, of
# `w_2` and of the hidden layer. For each variable that comes down, `lr * g` of the same shape goes
# up. Besides, each ps sends an empty message: a control dependency that says "my update is done".
#
# ## What crosses the network: dense gradients
# **Predict:** the mini-batch grows from 32 rows to 512. By what factor do the bytes of one update
# grow?

# %%
size_of_w = sum(map(size, w))
for batch_size in 32, 512:
    w, loss, g, push = update(batch_size)
    operations, sent = trace([loss, push])
    pulled = sum(n for (sender, receiver), n in sent.items() if "ps" in sender)
    pushed = sum(n for (sender, receiver), n in sent.items() if "ps" in receiver)
    print("batch of %3d: %d bytes pulled, %d pushed" % (batch_size, pulled, pushed))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Equally many. The mini-batch stays on the worker. Only `w` and `lr * g` travel, and `g` has the
# shape of `w`, however many rows it was computed from.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked for the last batch, of 512 rows.
assert pulled == pushed == size_of_w

# %% [markdown]
# With a *dense* gradient, each update costs every worker $2\,|w|$ bytes, where $|w|$ is the size of
# `w` in bytes. The more a worker computes for one such exchange, the less the network matters: take
# a larger mini-batch, or [several local steps](Local-then-Global-Variables.ipynb).
#
# ## What crosses the network: sparse gradients
# The gradient of a lookup is *sparse*. Only the rows that were looked up have a gradient that is
# not zero. TensorFlow represents it by `tf.IndexedSlices`: the numbers of the rows, and their
# values. `scatter_sub` subtracts from these rows only.
#
# We build an update of two rows of a table with 16 columns, in two ways: by lookup, with sparse
# gradients; and by joining the parts, with dense gradients. Then we let the table grow.

# %%
ids, columns = [3, 5], 16

def table_update(rows, sparse):
    """One update of the rows `ids`, for the loss "sum of the squares of their numbers"."""
    tf.reset_default_graph()
    with tf.device(placement()):
        table = tf.get_variable("table", [rows, columns],
                                partitioner=tf.fixed_size_partitioner(2))
        if sparse:
            needed = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
        else:
            needed = tf.gather(tf.convert_to_tensor(table), ids)  # joins the parts first
        g = tf.gradients(tf.reduce_sum(needed ** 2), list(table))
        if sparse:
            return [part.scatter_sub(tf.IndexedSlices(lr * d.values, d.indices))
                    for part, d in zip(table, g)]
        return [part.assign_sub(lr * tf.convert_to_tensor(d)) for part, d in zip(table, g)]

sizes = [100, 1000, 10_000, 100_000]
traffic = {}
for sparse in False, True:
    traffic[sparse] = [sum(trace(tf.group(*table_update(rows, sparse)))[1].values())
                       for rows in sizes]
    print("sparse:" if sparse else "dense: ", *["%10d" % n for n in traffic[sparse]], "bytes")

# %%
figure, axes = plt.subplots()
axes.loglog(sizes, traffic[False], "o-", color=RED)
axes.loglog(sizes, traffic[True], "o-", color=GREEN)
axes.set(xlabel="rows of the table", ylabel="bytes in an update", ylim=(50, 1e8), xlim=(80, 4e5))
axes.text(8e3, 6e6, "dense: the whole table, down and up", color=RED, ha="right")
axes.text(8e3, 6e2, "sparse: two rows, down and up", color=GREEN, ha="left")
show(figure, "Bytes in one update against the rows of the table, both on logarithmic scales. With "
     "dense gradients they grow in proportion, to 13 million bytes at 100,000 rows. With sparse "
     "gradients they stay at 264 bytes.")
assert set(traffic[True]) == {len(ids) * (2 * 4 * columns + 4)}

# %% [markdown]
# For $r$ rows of $c$ columns a sparse update costs $r \cdot (2 \cdot 4 c + 4)$ bytes: the rows'
# numbers up, the rows down, and `lr` times their gradients up. The numbers go up only once: each ps
# uses the same message for the lookup and for the subtraction. Here that is 264 bytes. It does not
# depend on the size of the table. That is how people train a table that fits on no single machine.
#
# ## Computation must not land on a ps
# One careless `tf.device` is enough. Here a program builds the whole model within
# `tf.device("/job:ps/task:0")`, "because the variables are there".
#
# **Predict:** how many bytes go from task to task in an update now? Is that good news?

# %%
w, loss, g, push = update(batch_size=512, place="/job:ps/task:0")
operations, sent = trace([loss, push])
for task in "ps 0", "worker 0":
    print("%-8s: %d matrix products" % (task, sum("MatMul" in name for name in operations[task])))
print("bytes between tasks:", sum(sent.values()))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Four: the loss, which travels to you through the worker. Everything else happens on ps 0. That is
# bad news: with ten workers, ps 0 computes ten gradients while ten machines wait. More workers make
# nothing faster.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert "MatMul" in operations["ps 0"] and "MatMul" not in operations["worker 0"]
assert sum(sent.values()) == 4

# %% [markdown]
# The values are right, so no test of the loss or the accuracy finds this bug. Test the devices:

# %%
def check_placement(variables, computed):
    """Raises AssertionError unless variables are on a ps, and what is computed on a worker."""
    for v in variables:
        assert v.device.startswith("/job:ps/"), "%s is on %r" % (v.op.name, v.device)
    for tensor in computed:
        assert tensor.device.startswith("/job:worker/"), "%s is on %r" % (
            tensor.op.name, tensor.device)

for place in None, "/job:ps/task:0":
    w, loss, g, push = update(batch_size=32, place=place)
    try:
        check_placement(w, [loss, *g])
        print("placed well")
    except AssertionError as error:
        print("placed badly:", error)

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Three servers.** ★☆☆ Distribute the digits' variables over three servers by size. You need
# not start the third. Which ps holds most now, and what does the third one change?
#
# <details><summary>Hint</summary>
#
# `placement` has an argument `number_of_ps`, and `lightest` takes the same number.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# tf.reset_default_graph()
# with tf.device(placement(lightest(3), number_of_ps=3)):
#     step = tf.train.get_or_create_global_step()
#     w = digits.variables()
# load = bytes_per_ps([step, *w])
# # w_0 is as large as before: a third ps does not help the one that holds it.
# assert max(load.values()) == max(by_size.values()) == 8192
# ```
#
# </details>

# %% [markdown]
# **2. An update on the worker.** ★★☆ Push by `v.assign(v - lr * d)`, computed on the worker,
# instead of `v.assign_sub(lr * d)`. For one worker the result is the same. How many bytes travel?
# What goes wrong when there are two workers?
#
# <details><summary>Hint</summary>
#
# Make `w, loss, g, push = update(batch_size=32)`, then a `push` of your own within
# `tf.device("/job:worker/task:0")`. Write `v.read_value()` for a new read.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# w, loss, g, push = update(batch_size=32)
# with tf.device("/job:worker/task:0"):
#     push = tf.group(*[v.assign(v.read_value() - lr * d) for v, d in zip(w, g)])
# operations, sent = trace([loss, push])
# # Half as many bytes again: the worker pulls w twice. Worse, it overwrites what another worker pushed
# # between its read and its assign: that update is lost. assign_sub subtracts on the ps, from the
# # value that is there by then.
# assert sum(sent.values()) == 3 * size_of_w
# ```
#
# </details>

# %% [markdown]
# **3. Half the bytes.** ★★★ Push `lr * g` as `tf.bfloat16`, which takes 2 bytes a number. The
# variables stay `float32`. How many bytes does an update push? By how much does the step change?
#
# <details><summary>Hint</summary>
#
# Cast to `tf.bfloat16` on the worker. Cast back on the ps: inside `tf.device(v.device)`. bfloat16
# keeps 8 significant bits.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# w, loss, g, _ = update(batch_size=32)
# pushes, errors = [], []
# for v, d in zip(w, g):
#     with tf.device("/job:worker/task:0"):
#         delta = lr * d
#         short_delta = tf.cast(delta, tf.bfloat16)
#     with tf.device(v.device):
#         received = tf.cast(short_delta, tf.float32)
#         pushes.append(v.assign_sub(received))
#     errors.append(tf.reduce_max(tf.abs(received - delta) / (tf.abs(delta) + 1e-12)))
# operations, sent = trace([loss, tf.group(*pushes)])
# pushed = sum(n for (sender, receiver), n in sent.items() if "ps" in receiver)
# assert pushed == size_of_w / 2
# with tf.Session(servers["worker", 0].target, config=waits) as session:
#     session.run(tf.global_variables_initializer())
#     assert max(session.run(errors)) <= 2 ** -8  # of each number: 0.4% at most
# ```
#
# </details>

# %%
# Stop what this notebook started.
os.chdir(HERE)  # the servers end with the kernel
folder.cleanup()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/4687-large-scale-distributed-deep-networks): the
#   parameter server for neural networks (DistBelief).
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu): sparse
#   pushes and pulls of key ranges.
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 4.2: embedding tables over several servers.
# - [Distributed-Setup](../Distributed-Setup/): this update in two processes. `PS=2 bash
#   Distributed-Setup/run.sh` runs it with two.
# - [Sparse-Embeddings](../Sparse-Embeddings/): word vectors; each push touches only a few rows.
#
# Next: [Sessions](Sessions.ipynb), where several processes begin and end together.
