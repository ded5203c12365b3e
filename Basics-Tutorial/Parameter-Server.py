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
# Parameter servers (ps) hold the variables, workers compute with them. TensorFlow cuts the graph
# where a tensor must travel. This notebook looks at where the cuts are, and at what they cost.
#
# After this notebook you can:
# - tell on which task each variable lives, and spread variables evenly over several ps;
# - cut one large variable into parts on several ps;
# - read from a real run which task ran which op, and how many bytes crossed the network;
# - see from the devices when computing has landed on a ps, and why that must not be.
#
# About 20 minutes. Before it: [Servers](Servers.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same placement on every machine
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import collections
import re
import socket
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy

# %% [markdown]
# ## A cluster in this process
# Two ps and one worker, each a server with a port of its own. They talk over the network as they
# would on three machines. A server in this process cannot be stopped; it ends with the kernel.
#
# **Predict:** a task is named by its job and its number. What are the three called?

# %%
held = [socket.socket() for _ in range(3)]
for s in held:  # the system chooses free ports (port 0), and we hold them to the end
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))
address = ["127.0.0.1:%d" % s.getsockname()[1] for s in held]
cluster = tf.train.ClusterSpec({"ps": address[:2], "worker": address[2:]})
tasks = [("ps", 0), ("ps", 1), ("worker", 0)]
servers = {task: tf.train.Server(cluster, *task) for task in tasks}
config = tf.ConfigProto(operation_timeout_in_ms=20000)  # an error rather than a wait without end
print("tasks:", *["/job:%s/task:%d" % task for task in servers])

# %% [markdown]
# ## Where a variable lives
# `tf.train.replica_device_setter` is a function that `tf.device` asks about every new op. Variables
# go to the ps, *round robin*: the first to ps 0, the next to ps 1, and so on. All else goes to
# `worker_device`.
#
# **Predict:** the model below has a step counter (8 bytes), then weights and biases of two layers,
# in this order. Which ps holds more bytes, and how many times as many?

# %%
def model(get_variable=tf.get_variable):
    """The step counter, and w of a perceptron."""
    shapes = {"weights_0": [64, 128], "biases_0": [128], "weights_1": [128, 10], "biases_1": [10]}
    return tf.train.get_or_create_global_step(), [get_variable(*item) for item in shapes.items()]

def size(v):
    return v.shape.num_elements() * v.dtype.size

def show(variables):
    """Prints where the variables are; returns the bytes on each ps."""
    bytes_on = collections.Counter({"/job:ps/task:0": 0, "/job:ps/task:1": 0})
    for v in variables:
        print("%-20s %6d bytes  %s" % (v.op.name, size(v), v.device))
        bytes_on[v.device] += size(v)
    return bytes_on


# %%
tf.reset_default_graph()
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
    step, w = model()
round_robin = show([step, *w])
print(dict(round_robin))
assert round_robin["/job:ps/task:1"] > 60 * round_robin["/job:ps/task:0"]

# %% [markdown]
# Round robin counts variables, not bytes. Weights and biases take turns, so all weights are on ps
# 1: it will send and receive nearly everything, and ps 0 has nothing to do.
#
# `ps_strategy` replaces the choice: a function from an op to the number of a ps. The examples give
# each variable to the ps that has the fewest bytes so far. (`GreedyLoadBalancingStrategy` of older
# programs was in `tf.contrib`, which is gone.)
#
# **Predict:** where do the five variables go now?

# %%
def lightest(number_of_ps):
    load = [0] * number_of_ps
    def strategy(op):
        task = load.index(min(load))
        shape = tf.TensorShape(op.get_attr("shape"))
        load[task] += shape.num_elements() * op.get_attr("dtype").size
        return task
    return strategy

tf.reset_default_graph()
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0",
                                              ps_strategy=lightest(2))):
    step, w = model()
by_size = show([step, *w])
print(dict(by_size))

# %% [markdown]
# The small variables now fill up the other ps. But `weights_0` alone is more than five times as
# large as all the rest: no way of dealing out whole variables can be even.
#
# ## Partitioned variables
# A *partitioner* cuts a variable into parts, which are variables themselves.
#
# **Predict:** `weights_0` has 64 rows and is cut in two. What are the shapes of the parts, and how
# even can it become?

# %%
def cut_in_two(name, shape):
    cut = tf.fixed_size_partitioner(2) if len(shape) == 2 else None
    return tf.get_variable(name, shape, partitioner=cut)

tf.reset_default_graph()
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0",
                                              ps_strategy=lightest(2))):
    step, w = model(cut_in_two)
    whole = tf.convert_to_tensor(w[0])
cut = show(tf.global_variables())
print(dict(cut))
print("parts", *[v.shape for v in w[0]], "whole", whole.shape, "joined on", whole.device)
assert max(cut.values()) < 1.05 * min(cut.values())

# %% [markdown]
# Each part has half of the rows. Where the graph uses the variable, the parts are pulled and joined
# on the worker. A variable that is too large for one ps, such as an embedding table, can live in
# this way. (Each part begins with random numbers of its own.)
#
# ## Where each op runs
# One update of one worker: pull `w`, compute the gradient on a mini-batch of digits, push.
#
# $$w \leftarrow w - lr \cdot g(w)$$
#
# TensorFlow notes what each task did when asked for a full trace. `update` builds the update;
# `trace` runs it.

# %%
images, labels = load_digits(return_X_y=True)
images, labels, lr = (images / 16).astype("float32"), labels.astype("int32"), 0.1

def update(batch, place=None):
    """w, the loss, its gradient and the push, for an update on `batch` digits."""
    tf.reset_default_graph()
    with tf.device(place or tf.train.replica_device_setter(
            cluster=cluster, worker_device="/job:worker/task:0", ps_strategy=lightest(2))):
        step, w = model()
        x, y = tf.constant(images[:batch]), tf.constant(labels[:batch])
        scores = tf.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]
        loss = tf.losses.sparse_softmax_cross_entropy(y, scores)
        g = tf.gradients(loss, w)
        push = tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])
    return w, loss, g, push


# %%
full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)

def run_traced(fetches):
    """What TensorFlow has noted in a run of the fetches."""
    noted = tf.RunMetadata()
    with tf.Session(servers["worker", 0].target, config=config) as session:
        session.run(tf.global_variables_initializer())
        session.run(fetches, options=full, run_metadata=noted)
    return noted

def short(device):
    """/job:ps/replica:0/task:1/device:CPU:0 is ps 1."""
    return "%s %s" % re.search(r"job:(\w+)/.*task:(\d)", device).groups()


# %%
def trace(fetches):
    """The ops that each task runs, and the bytes that travel from task to task."""
    noted, made = run_traced(fetches), {}  # made: what each op put out
    for event in [event for device in noted.step_stats.dev_stats for event in device.node_stats]:
        made.update((event.node_name, out.tensor_description) for out in event.output[:1])
    ops, sent = collections.defaultdict(list), collections.Counter()
    for node in [node for part in noted.partition_graphs for node in part.node]:
        ops[short(node.device)].append(node.op)
        if node.op == "_Send" and not node.attr["client_terminated"].b:  # not to this notebook
            ends = [short(node.attr[end].s.decode()) for end in ("send_device", "recv_device")]
            tensor = made[node.input[0]]
            elements = tf.TensorShape(tensor.shape).num_elements()
            sent[tuple(ends)] += elements * tf.as_dtype(tensor.dtype).size
    return ops, sent


# %% [markdown]
# **Predict:** on which task is each of these: the matrix products (`MatMul`), the reading of a
# variable (`ReadVariableOp`), the subtraction from a variable (`AssignSubVariableOp`)?

# %%
w, loss, g, push = update(batch=32)
ops, sent = trace([loss, push])
for task, names in sorted(ops.items()):
    count = {kind: sum(kind in name for name in names)
             for kind in ("MatMul", "ReadVariableOp", "AssignSubVariableOp", "_Send", "_Recv")}
    print(task, {kind: n for kind, n in count.items() if n})
assert not any("MatMul" in name for name in ops["ps 0"] + ops["ps 1"])

# %% [markdown]
# The ps only read and subtract; all computing is on the worker. The `_Send` and `_Recv` stand where
# TensorFlow cut the graph: for each tensor that travels one on either side, and for each word that
# a ps is done (one more sends the loss to this notebook). The picture is drawn from that run.

# %%
fig, ax = plt.subplots(figsize=(8, 3.4), dpi=80)
for task, x, y in ("worker 0", 0.9, 0.5), ("ps 0", 0.1, 0.85), ("ps 1", 0.1, 0.15):
    kinds = [kind for kind in ("MatMul", "Relu", "ReadVariableOp", "AssignSubVariableOp")
             if any(kind in name for name in ops[task])]
    ax.text(x, y, "\n".join([task, *kinds]), ha="center", va="center", color="white", bbox=dict(
        boxstyle="round,pad=0.6", color="tab:gray" if "ps" in task else "tab:blue"))
for y, end, ps in (0.95, 0.67, "ps 0"), (0.25, 0.47, "ps 1"):
    for lower, style, words in (0, "<-", "pull %d bytes" % sent[ps, "worker 0"]), (
            1, "->", "push %d bytes" % sent["worker 0", ps]):
        ends = y - 0.2 * lower, end - 0.14 * lower
        ax.annotate("", (0.29, ends[0]), (0.8, ends[1]), arrowprops=dict(arrowstyle=style))
        ax.text(0.55, sum(ends) / 2, words, ha="center", va="center", backgroundcolor="white")
ax.axis("off")
plt.show()

# %% [markdown]
# ## What crosses the network
# `w` comes down once, gradients of the same size go up once.
#
# **Predict:** the mini-batch grows from 32 digits to 512. How many times as many bytes travel?

# %%
size_of_w = sum(size(v) for v in w)
for batch in (32, 512):
    w, loss, g, push = update(batch)
    ops, sent = trace([loss, push])
    pulled = sum(n for (a, b), n in sent.items() if "ps" in a)
    pushed = sum(n for (a, b), n in sent.items() if "ps" in b)
    print("batch %3d: pulled %d bytes, pushed %d; w has %d" % (batch, pulled, pushed, size_of_w))
    assert pulled == pushed == size_of_w

# %% [markdown]
# As many. What travels depends on the size of `w` alone: each update costs `2 * size` bytes for
# each worker. The more a worker computes between a pull and a push, a larger mini-batch or [several
# local steps](Local-then-Global-Variables.ipynb), the less the network matters.
#
# ## Computing must not land on the ps
# One word too much does it: here every op is asked for on ps 0, as if the model had been built
# within `tf.device("/job:ps/task:0")`.
#
# **Predict:** how many bytes travel now? Is that good news?

# %%
w, loss, g, push = update(batch=512, place="/job:ps/task:0")
ops, sent = trace([loss, push])
for task in ("ps 0", "worker 0"):
    print(task, "matrix products:", sum("MatMul" in name for name in ops[task]))
print("bytes:", dict(sent))
print("the loss is on", loss.device)
assert sum(sent.values()) < 100 and loss.device.startswith("/job:ps")

# %% [markdown]
# Hardly a byte, since nobody but the ps works. With n workers it computes n gradients while n
# machines wait: more workers make nothing faster. The values are right, so no test of the loss
# finds this. Test the devices: every variable on a ps, the loss and the gradients on the worker.
#
# The opposite slip is an update that is computed on the worker: `v.assign(v - lr * d)`; exercise 2
# counts it.
#
# **Predict:** here is such a test, for both placements. Which op does it name in the bad one?

# %%
def check_placement(variables, computed):
    """Raises AssertionError unless variables are on a ps, and what is computed on a worker."""
    for v in variables:
        assert v.device.startswith("/job:ps/"), "%s is on %r" % (v.op.name, v.device)
    for t in computed:
        assert t.device.startswith("/job:worker/"), "%s is on %r" % (t.op.name, t.device)

for place in None, "/job:ps/task:0":
    w, loss, g, push = update(batch=32, place=place)
    try:
        check_placement(w, [loss, *g])
        print("placed well")
    except AssertionError as error:
        print("placed badly:", error)

# %%
# Stop what this notebook started.
tf.reset_default_graph()
print("the servers end with the kernel")

# %% [markdown]
# ## Exercises
# The idea at work: [Distributed-Setup](../Distributed-Setup/) is this update in two processes. With
# `PS=2 bash Distributed-Setup/run.sh` it has two ps. Next:
# [Local-then-Global-Variables](Local-then-Global-Variables.ipynb).

# %% [markdown]
# **1. Three ps.** Deal the variables of `model` out to three ps with `lightest(3)`, without
# starting any server. What does each ps hold?
#
# <details><summary>Solution</summary>
#
# ```python
# tf.reset_default_graph()
# with tf.device(tf.train.replica_device_setter(ps_tasks=3, ps_strategy=lightest(3))):
#     step, w = model()
# bytes_on = show([step, *w])
# # weights_0 is as large as ever: a third ps does not help the one that holds it.
# assert bytes_on["/job:ps/task:1"] == 32768
# ```
#
# </details>

# %% [markdown]
# **2. An update on the worker.** Push with `v.assign(v - lr * d)` instead of `v.assign_sub(lr *
# d)`. The value is the same. How many bytes travel, and what else is wrong with it when there are
# two workers?
#
# <details><summary>Solution</summary>
#
# ```python
# w, loss, g, push = update(batch=32)
# with tf.device("/job:worker/task:0"):
#     push = tf.group(*[v.assign(v.read_value() - lr * d) for v, d in zip(w, g)])
# ops, sent = trace([loss, push])
# print(sum(sent.values()), "bytes; by assign_sub", 2 * size_of_w)
# # Half as many again: w is pulled a second time. Worse: what another worker pushed between the
# # read and the assign is overwritten and lost. assign_sub subtracts on the ps, from what is
# # there by then.
# assert sum(sent.values()) == 3 * size_of_w
# ```
#
# </details>

# %% [markdown]
# **3. Only the touched rows.** A table of 1,000 rows of 16 numbers is on ps 0. A worker needs rows
# 3 and 5. Compare the bytes of `tf.gather(table.read_value(), rows)` with those of
# `table.sparse_read(rows)`.
#
# <details><summary>Solution</summary>
#
# ```python
# def bytes_for(read):
#     tf.reset_default_graph()
#     with tf.device("/job:ps/task:0"):
#         table = tf.get_variable("table", [1000, 16])
#     with tf.device("/job:worker/task:0"):
#         ops, sent = trace(tf.reduce_sum(read(table)))
#     return sent["ps 0", "worker 0"]
# dense = bytes_for(lambda table: tf.gather(table.read_value(), [3, 5]))
# sparse = bytes_for(lambda table: table.sparse_read([3, 5]))
# print(dense, sparse)
# assert dense == 1000 * 16 * 4 and sparse == 2 * 16 * 4
# ```
#
# </details>
