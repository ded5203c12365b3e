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
# # Local, then global variables
# A worker that asks the ps for `w` at each step waits for the network at each step. So let it have
# variables of its own: it trains on them for T steps, and only then moves the global ones.
#
# After this notebook you can:
# - say which variables are global and which are local, and what TensorFlow does differently with
#   them;
# - build one model twice with one function, on the ps and on a worker, and copy in both directions;
# - gather T gradients on the worker and push them at once;
# - prove from the graph that a pull comes after a push.
#
# About 20 minutes. Before it: [Parameter-Server](Parameter-Server.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same placement on every machine
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import socket
import types
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy

# %%
# One ps and two workers in this process, each behind a port of its own. They end with the kernel.
held = [socket.socket() for _ in range(3)]
for s in held:  # the system chooses free ports (port 0), and we hold them to the end
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))
address = ["127.0.0.1:%d" % s.getsockname()[1] for s in held]
cluster = tf.train.ClusterSpec({"ps": address[:1], "worker": address[1:]})
servers = [tf.train.Server(cluster, *task) for task in (("worker", 0), ("worker", 1), ("ps", 0))]
config = tf.ConfigProto(operation_timeout_in_ms=20000)  # an error rather than a wait without end
me = ["/job:worker/task:0", "/job:worker/task:1"]

def on_the_ps(k):
    return tf.train.replica_device_setter(cluster=cluster, worker_device=me[k])


# %% [markdown]
# ## Two collections
# A graph keeps lists of its variables, the *collections*. `tf.get_variable` makes a global
# variable, `tf.get_local_variable` a local one. The word says nothing about a device yet.
#
# **Predict:** one variable of each kind is made below. In which of the three lists is each, and
# which initialiser makes which?

# %%
tf.reset_default_graph()
with tf.device(on_the_ps(0)):
    w = tf.get_variable("w", [2])
with tf.device(me[0]):
    w_k = tf.get_local_variable("w_k", [2])
lists = {"global": tf.global_variables(), "trainable": tf.trainable_variables(),
         "local": tf.local_variables()}
for name, variables in lists.items():
    print("%-10s" % name, [v.op.name for v in variables])
for init in tf.global_variables_initializer(), tf.local_variables_initializer():
    print("initialises", [other.name.split("/")[0] for other in init.control_inputs])

# %% [markdown]
# A local variable is not saved (exercise 2), and initialised by its own op: each worker runs that
# op for itself, the global one is run by the chief alone. Nor is it trainable: an optimizer leaves
# it alone unless it is named in `var_list`. Whether it is shared, its device decides.
#
# **Predict:** below a local variable is made where the setter decides. On which device is it?

# %%
def counted(k, place):
    """Worker k adds one to its local variable; returns where it is, and its value."""
    with tf.Graph().as_default(), tf.device(place):
        count = tf.get_local_variable("count", [], initializer=tf.zeros_initializer())
        with tf.Session(servers[k].target, config=config) as session:
            if k == 0 or place == me[k]:
                session.run(tf.local_variables_initializer())
            return count.device, session.run(count.assign_add(1))

for kind, place in ("by the setter", on_the_ps), ("by hand", lambda k: me[k]):
    for k in 0, 1:
        print("%-14s worker %d: %s holds %g" % (kind, k, *counted(k, place(k))))
assert counted(1, me[1])[1] == 1

# %% [markdown]
# `replica_device_setter` sends *every* variable to the ps, local ones too, and there both workers
# used the same one: worker 1 counted to 2. (We left its initialiser out: it would have set worker
# 0's count back to 0.) To be local, a variable must be made under `tf.device` of its worker.
#
# ## One model, built twice
# The model is a function of a list of variables. Called with `tf.get_variable` it makes the global
# list, called with `tf.get_local_variable` the local one. Names must differ: a scope does it.

# %%
images, labels = load_digits(return_X_y=True)
images, labels, lr, T = (images / 16).astype("float32"), labels.astype("int32"), 0.2, 10

def parameters(get_variable):
    shapes = {"weights_0": [64, 32], "biases_0": [32], "weights_1": [32, 10], "biases_1": [10]}
    return [get_variable(*item) for item in shapes.items()]

def loss(w, x, y):
    scores = tf.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))

def batch_loss(w, k, number):
    """The loss at w on mini-batch `number` of worker k: the same number, the same rows."""
    rows = tf.random.stateless_uniform([32], [k, number], 0, 1437, tf.int32)
    return loss(w, tf.gather(images, rows), tf.gather(labels, rows))


# %%
def worker(k):
    """The graph of worker k; its variables, and the copies in both directions."""
    it = types.SimpleNamespace(k=k, graph=tf.Graph())
    with it.graph.as_default():
        tf.set_random_seed(k)
        with tf.device(on_the_ps(k)):
            it.w = parameters(tf.get_variable)
        with tf.device(me[k]), tf.variable_scope("local"):
            it.w_k = parameters(tf.get_local_variable)
            it.pull = tf.group(*[v_k.assign(v) for v_k, v in zip(it.w_k, it.w)])
        it.put = tf.group(*[v.assign(v_k) for v_k, v in zip(it.w_k, it.w)])
        it.apart = tf.reduce_max([tf.reduce_max(abs(a - b)) for a, b in zip(it.w_k, it.w)])
        it.init = [tf.global_variables_initializer(), tf.local_variables_initializer()]
        it.session = tf.Session(servers[k].target, config=config)
    return it


# %% [markdown]
# **Predict:** worker 0 runs both initialisers. The two lists were made by the same function: are
# they equal?

# %%
workers = [worker(0), worker(1)]
for v, v_k in zip(workers[1].w, workers[1].w_k):
    print("%-10s %-18s %-16s %s" % (v.op.name, v.device, v_k.op.name, v_k.device))
chief, other = workers
chief.session.run(chief.init)
other.session.run(other.init[1])  # its local variables only: the global ones are the chief's
print("equal after the initialisers:", *[it.session.run(it.apart) == 0 for it in workers])
for it in workers:
    it.session.run(it.pull)
print("equal after a pull:          ", *[it.session.run(it.apart) == 0 for it in workers])
assert all(it.session.run(it.apart) == 0 for it in workers)

# %% [markdown]
# Each list drew random numbers of its own; only a pull makes them equal. Every worker must pull
# before its first step, or it trains from a point that nobody else has.
#
# ## What to push
# `put` copies `w_k` over `w`. **Predict:** both workers pull, add 1 to all of their `w_k`, and put.
# By how much has `w` moved? And when they push the *difference* instead?

# %%
def moved(push_difference):
    """By how much w has moved when both workers have pulled, added 1, and pushed."""
    before = chief.session.run(chief.w[3])
    for it in workers:
        it.session.run(it.pull)
    for it in workers:
        with it.graph.as_default():
            it.session.run([v.assign_add(tf.ones_like(v)) for v in it.w_k])
            add = tf.group(*[v.assign_add(tf.ones_like(v)) for v in it.w])
        it.session.run(add if push_difference else it.put)
    return (chief.session.run(chief.w[3]) - before)[0]

print("by copies: %.0f   by differences: %.0f" % (moved(False), moved(True)))

# %% [markdown]
# The second copy overwrote the first: the work of worker 0 is gone. Differences add up, whoever
# comes first, because the ps adds. So workers push differences, or gradients, and copy only
# downwards.
#
# ## T gradients, then one push
# The local variable `a` gathers what worker k has found since its pull
# ([DOWNPOUR-Easy](../DOWNPOUR-Easy/) pushes this sum):
#
# $$T \text{ times:}\quad a \leftarrow a + g(w_k), \quad w_k \leftarrow w_k - lr \cdot g(w_k)$$
# $$\text{then:}\quad w \leftarrow w - lr \cdot a, \quad w_k \leftarrow w, \quad a \leftarrow 0$$

# %%
def add_training(it):
    """it.step_alone, it.push, and it.exchange: a push, then a pull, then a <- 0."""
    with it.graph.as_default(), tf.device(me[it.k]):
        number, nothing = tf.get_local_variable("number", initializer=0), tf.zeros_initializer()
        it.a = [tf.get_local_variable("a" + v.op.name, v.shape, initializer=nothing) for v in it.w]
        at = [v.read_value() for v in it.w_k]
        g = tf.gradients(batch_loss(at, it.k, number), at)
        with tf.control_dependencies(g):  # all of g is taken before any variable moves
            it.step_alone = tf.group(number.assign_add(1),
                                     *[s.assign_add(d) for s, d in zip(it.a, g)],
                                     *[v.assign_sub(lr * d) for v, d in zip(it.w_k, g)])
        it.push = tf.group(*[v.assign_sub(lr * s) for v, s in zip(it.w, it.a)])
        with tf.control_dependencies([it.push]):
            it.exchange = tf.group(*[v_k.assign(v.read_value()) for v_k, v in zip(it.w_k, it.w)],
                                   *[s.assign(tf.zeros_like(s)) for s in it.a])


# %%
for it in workers:
    add_training(it)
    with it.graph.as_default():
        it.init = [tf.global_variables_initializer(), tf.local_variables_initializer()]
        it.losses = [loss(it.w, images, labels), loss(it.w_k, images, labels)]

def begin_again():
    for it in workers:
        it.session.run(it.init if it is chief else it.init[1])
    for it in workers:
        it.session.run(it.pull)

def losses():
    """Of w, w_0 and w_1, on all digits."""
    return [*chief.session.run(chief.losses), other.session.run(other.losses[1])]


# %% [markdown]
# **Predict:** worker 0 trains alone for T = 10 steps. Has `w` moved? What is `w_k - (w - lr * a)`?
# And how far apart are `w` and `w_k` after the push, when no other worker has pushed?

# %%
begin_again()
before = chief.session.run(chief.w)
for _ in range(T):
    chief.session.run(chief.step_alone)
w, w_k, a = chief.session.run([chief.w, chief.w_k, chief.a])
print("w has moved:           ", not all(np.array_equal(u, v) for u, v in zip(w, before)))
print("w_k is w - lr * a:     ", all(np.allclose(v_k, v - lr * s, atol=1e-5)
                                     for v_k, v, s in zip(w_k, w, a)))
chief.session.run(chief.push)
print("w = w_k after the push:", bool(chief.session.run(chief.apart) < 1e-5))
assert all(np.array_equal(u, v) for u, v in zip(w, before))

# %% [markdown]
# For one worker, T local steps and a push of the sum are T steps of plain SGD. Two workers differ:
# each pushes what it found from the same start, and `w` takes both sums.
#
# **Predict:** below both take T steps, then worker 0 exchanges, then worker 1, three times over.
# Draw the loss of `w`, of `w_0` and of `w_1`. Where does each jump?

# %%
begin_again()
seen = [(0, *losses())]
for t in range(1, 3 * T + 1):
    for it in workers:
        it.session.run(it.step_alone)
    seen.append((t, *losses()))
    if t % T == 0:
        for it in workers:
            it.session.run(it.exchange)
        seen.append((t, *losses()))
step, *curves = np.transpose(seen)
print("each exchange lowers the loss of w:", all(np.diff(curves[0][::T + 1]) < 0))

# %%
fig, ax = plt.subplots(figsize=(8, 3.4), dpi=80)
for curve, name, colour in zip(curves, ["w, on the ps", "w_0, on worker 0", "w_1, on worker 1"],
                               ["tab:gray", "tab:blue", "tab:orange"]):
    ax.plot(step, curve, ".-", color=colour, label=name)
ax.set(xlabel="local steps of each worker", ylabel="loss on all digits")
ax.legend()
plt.show()

# %% [markdown]
# `w` stands still between two pushes. When both have pushed, it is below where each of them came:
# it has taken two sums. Worker 0 pulled before worker 1 pushed, so `w_0` gets that sum one exchange
# later.
#
# ## The pull after the push
# `session.run([push, pull])` promises no order. An order stands in the graph, or there is none: an
# op waits for its inputs and for its control inputs, and for nothing else.
#
# **Predict:** for `it.pull` and for `it.exchange`: does each read of `w` wait for the push?

# %%
def waits_for(op, other):
    """Whether `op` cannot begin before `other` is done: there is a way in the graph."""
    before, known = [op], set()
    while before and other not in known:
        op = before.pop()
        if op not in known:
            known.add(op)
            before += [t.op for t in op.inputs] + op.control_inputs
    return other in known

reads = [op for op in chief.graph.get_operations() if op.type == "ReadVariableOp"
         and op.inputs[0] in [v.handle for v in chief.w]]
for name, op in ("pull", chief.pull), ("exchange", chief.exchange):
    print(name, [waits_for(read, chief.push) for read in reads if waits_for(op, read)])


# %% [markdown]
# The reads of `pull` may happen before, during or after the push, those of `exchange` only after
# it: they were *made* within `tf.control_dependencies([it.push])`. A tensor that was read before
# keeps its old value there.
#
# ## All in one call
# T steps and a push were T + 1 calls of `session.run`. Most examples with local steps keep `w_k`
# and `a` as loop variables of a `tf.while_loop`, which live for one call, and all of it is one
# call. Local variables are for what must last from push to push, such as the workers' own
# parameters in [AEASGD](../AEASGD/).
#
# **Predict:** from the same start, with the same mini-batches: how far apart are the two sums `a`?

# %%
with chief.graph.as_default(), tf.device(me[0]):
    def step_alone(t, w_k, a):
        g = tf.gradients(batch_loss(w_k, 0, t), w_k)  # a new forward pass, at the moved w_k
        return t + 1, [v - lr * d for v, d in zip(w_k, g)], [s + d for s, d in zip(a, g)]

    start = [v.read_value() for v in chief.w]
    zeros = [tf.zeros_like(v) for v in start]
    a = tf.while_loop(lambda t, *_: t < T, step_alone, [0, start, zeros])[2]
begin_again()
looped = chief.session.run(a)
for _ in range(T):
    chief.session.run(chief.step_alone)
kept = chief.session.run(chief.a)
print("the same:", all(np.allclose(u, v, atol=1e-5) for u, v in zip(looped, kept)))
assert np.allclose(looped[3], kept[3], atol=1e-5)

# %%
# Stop what this notebook started.
for it in workers:
    it.session.close()
print("the sessions are closed; the servers end with the kernel")

# %% [markdown]
# ## Exercises
# They need what the last cell has stopped: restart the kernel, and run the cells above that one.
#
# The idea at work: [DOWNPOUR-Easy](../DOWNPOUR-Easy/), [ADAG](../ADAG/), [AEASGD](../AEASGD/).
# Next: twelve ways to get it wrong, beginning with
# [Classic-Mistakes-Variables](Classic-Mistakes-Variables.ipynb).
#
# **1. The mean.** [ADAG](../ADAG/) pushes `a / T` instead of `a`. From the same start, how much
# shorter is its move of `w`?
#
# <details><summary>Solution</summary>
#
# ```python
# with chief.graph.as_default():
#     push_mean = tf.group(*[v.assign_sub(lr * s / T) for v, s in zip(chief.w, chief.a)])
#
# def move_of(push):
#     begin_again()
#     before = chief.session.run(chief.w[3])
#     for t in range(T):
#         chief.session.run(chief.step_alone)
#     a = chief.session.run(chief.a[3])
#     chief.session.run(push)
#     return (chief.session.run(chief.w[3]) - before) / a
#
# assert np.allclose(move_of(chief.push) / move_of(push_mean), T, rtol=1e-2)
# ```
#
# </details>

# %% [markdown]
# **2. What is lost with a worker.** Save a checkpoint of worker 0's graph in a temporary folder,
# and list what is in it. What must a worker do that was started again?
#
# <details><summary>Solution</summary>
#
# ```python
# import tempfile
# begin_again()
# with chief.graph.as_default(), tempfile.TemporaryDirectory() as folder:
#     path = tf.train.Saver().save(chief.session, folder + "/model")
#     names = [name for name, shape in tf.train.list_variables(path)]
# # Only w is there. The worker runs its local initialiser and pulls; what was in its a is lost.
# assert names == ["biases_0", "biases_1", "weights_0", "weights_1"]
# chief.session.run(chief.init[1])
# chief.session.run(chief.pull)
# assert chief.session.run(chief.apart) == 0
# ```
#
# </details>

# %% [markdown]
# **3. Half an order.** Read `w` first, then assign the value that was read within
# `tf.control_dependencies([push])`. Show with `waits_for` that the assign waits for the push and
# the read does not.
#
# <details><summary>Solution</summary>
#
# ```python
# with chief.graph.as_default():
#     v, v_k = chief.w[0], chief.w_k[0]
#     read = v.read_value()
#     with tf.control_dependencies([chief.push]):
#         half = v_k.assign(read)
# assert waits_for(half.op, chief.push)
# assert not waits_for(read.op, chief.push)
# ```
#
# </details>
