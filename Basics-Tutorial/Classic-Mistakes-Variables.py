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
# # Classic mistakes: variables
# Twelve mistakes have been made again and again in distributed training. None of them raises an
# error: the program runs, and often it even learns. Each is shown failing here, and then mended.
# The first four are about variables: where they are, when they are read, and which of their updates
# run at all.
#
# After this notebook you can:
# - see from its device whether a variable is shared, and whether a ps computes;
# - explain why a difference to an earlier value can be exactly zero;
# - make a pull read what the push has written;
# - find an update that TensorFlow leaves out.
#
# About 15 minutes. Before it: [Local-then-Global-Variables](Local-then-Global-Variables.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same devices on every machine
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import socket
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # mistake 2 is what happens without this line

# %% [markdown]
# The cluster: one ps and two workers in this process. Most numbers below come from the loss
# $\frac{1}{2}(w - 100)^2$, because one can check them by head: its gradient is $w - 100$, and with
# a rate of 0.1 right steps from 0 lead to 10, 19, 27.1, 34.39.

# %%
held = [socket.socket() for _ in range(3)]
for s in held:  # the system chooses free ports (port 0), and we hold them to the end
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))
address = ["127.0.0.1:%d" % s.getsockname()[1] for s in held]
cluster = tf.train.ClusterSpec({"ps": address[:1], "worker": address[1:]})
servers = [tf.train.Server(cluster, *task) for task in (("worker", 0), ("worker", 1), ("ps", 0))]
config = tf.ConfigProto(operation_timeout_in_ms=20000)  # an error rather than a wait without end
lr = 0.1


# %%
def zero(name, make=tf.get_variable, **options):
    return make(name, [], initializer=tf.zeros_initializer(), **options)

def after_each(update, fetches, times=1):
    """Initialises all variables, and runs `update` some times; what the fetches are after each."""
    with tf.Session(config=config) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return [(session.run(update.op), session.run(fetches))[1] for _ in range(times)]


# %% [markdown]
# ## Mistake 1: half a device
# `tf.device("/cpu:0")` says which device, and not of which task. What is left open, the session
# fills in with the task that it is connected to. With the ps in the name, everything goes there.
#
# **Predict:** each worker makes `w` in this way, and initialises it if nobody has. Worker 0 adds 1.
# What does each worker read?

# %%
def both_read(name, place):
    """Worker 0 adds 1 to w. Returns what both read then, w, and the loss."""
    read = []
    for k in 0, 1:
        with tf.Graph().as_default(), tf.Session(servers[k].target, config=config) as session:
            with tf.device(place(k)):
                w = zero(name)
                loss = (w - 100) ** 2 / 2
            if session.run(tf.report_uninitialized_variables()).size:
                session.run(w.initializer)
            read.append(float(session.run(w.assign_add(1 - k))))
    return read, w, loss


# %%
for name, place in ("w_0", "/cpu:0"), ("w_1", "/job:ps/task:0/cpu:0"):
    read, w, loss = both_read(name, lambda k, place=place: place)
    print("%-20s read %s, w on %s, loss on %s" % (place, read, w.device, loss.device))

# %% [markdown]
# With `/cpu:0` each worker has a `w` of its own: they train side by side, and nobody is told. With
# the ps in the name the variable is shared, and the loss is computed on the ps, for all workers.
#
# **Mended:** `replica_device_setter` places variables on the ps and all else on the worker. A test
# looks at the devices, since values cannot tell. **Predict:** what does each worker read now?

# %%
def check(w, loss):
    assert w.device.startswith("/job:ps/"), "not shared: w is on %r" % w.device
    assert loss.device.startswith("/job:worker/"), "the loss is computed on %r" % loss.device

def setter(k):
    return tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:%d" % k)

for number, place in enumerate([lambda k: "/cpu:0", lambda k: "/job:ps/task:0/cpu:0", setter]):
    read, w, loss = both_read("w_%d" % (10 + number), place)
    try:
        check(w, loss)
        print("mended: read", read, " w:", w.device, " loss:", loss.device)
    except AssertionError as error:
        print("found:", error)
assert read == [1, 1]

# %% [markdown]
# ## Mistake 2: a name for the buffer instead of a copy
# `tf.disable_v2_behavior()` brings back the *reference variables* of old. A worker keeps its value
# from before T local steps, and pushes the difference.
#
# **Predict:** with T = 3, `w` should go to 27.1 as `w_k` does. What does it do with reference
# variables?

# %%
def pushed(use_resource):
    """w and w_k after T = 3 local steps and the push of the difference."""
    tf.reset_default_graph()
    w = zero("w", use_resource=use_resource)
    w_k = zero("w_k", tf.get_local_variable, use_resource=use_resource)
    done = before = tf.identity(w_k)
    for _ in range(3):
        with tf.control_dependencies([done]):
            done = w_k.assign_sub(lr * (w_k.read_value() - 100))
    with tf.control_dependencies([done]):
        push = w.assign_add(w_k.read_value() - before)
    return after_each(push, [w, w_k])[0]

print("reference variables: w %.1f, w_k %.1f" % tuple(pushed(use_resource=False)))

# %% [markdown]
# `before` is not the old value but the variable's buffer, into which the steps wrote: the
# difference is that of a thing and itself. `tf.identity` does not copy, and on one device nobody
# else does.
#
# **Mended:** resource variables, for which a read is a copy: `tf.enable_resource_variables()` once,
# after `disable_v2_behavior`. **Predict:** where is `w` now? And what did the mistake do to a
# training on digits?

# %%
print("resource variables: w %.1f, w_k %.1f" % tuple(pushed(use_resource=True)))
assert pushed(False)[0] == 0 and np.isclose(pushed(True)[0], 27.1)

images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype("float32"), labels.astype("int32")

def loss_at(w, rows=slice(None)):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels[rows], logits=images[rows] @ w))

def zeros(name, make, use_resource):
    return make(name, [64, 10], initializer=tf.zeros_initializer(), use_resource=use_resource)


# %%
def losses_of_w(use_resource):
    """30 times a worker pulls, takes 5 steps, pushes the difference. The loss after each."""
    tf.reset_default_graph()
    w = zeros("w", tf.get_variable, use_resource)
    w_k = zeros("w_k", tf.get_local_variable, use_resource)
    with tf.control_dependencies([w_k.assign(w.read_value())]):
        done = before = tf.identity(w_k)
    for t in range(5):
        with tf.control_dependencies([done]):
            at = w_k.read_value()
            done = w_k.assign_sub(tf.gradients(loss_at(at, slice(32 * t, 32 * t + 32)), at)[0])
    with tf.control_dependencies([done]):
        push = w.assign_add(w_k.read_value() - before)
    return after_each(push, loss_at(w), 30)

# %% [markdown]
# **Predict:** the loss of `w` on all digits, after each of 30 pushes: what does it do with
# reference variables, what with resource variables?

# %%
fig, ax = plt.subplots(figsize=(8, 3), dpi=80)
for use_resource, name, style in (False, "reference variables: nothing is pushed", ":"), (
        True, "resource variables", "-"):
    losses = losses_of_w(use_resource)
    ax.plot(range(1, 31), losses, style, color="tab:gray", label=name)
    print("%-40s loss of w: first %.3f, last %.3f" % (name, losses[0], losses[-1]))
ax.set(xlabel="pushes", ylabel="loss of w on all digits", ylim=(0, 2.5))
ax.legend()
plt.show()

# %% [markdown]
# ## Mistake 3: a pull that reads too early
# "The assign waits for the push" is not enough. What matters is when `w` was *read*.
#
# **Predict:** four rounds of push and pull. What is in `w`, and what in `w_k`, after each?

# %%
def rounds(pull_of):
    """w and w_k after each of four rounds."""
    tf.reset_default_graph()
    w, w_k = zero("w"), zero("w_k", tf.get_local_variable)
    now = w.read_value()  # for the gradient
    push = w.assign_sub(lr * (now - 100))
    with tf.control_dependencies([push]):
        pull = w_k.assign(pull_of(w, now))
    return after_each(pull, [w, w_k], 4)

early = rounds(lambda w, now: now)
for number, (w, w_k) in enumerate(early, 1):
    print("round %d: w %.2f, w_k %.2f" % (number, w, w_k))

# %% [markdown]
# The worker is always one update behind, and staler than any counter says: the assign waited for
# the push, its input `now` did not.
#
# **Mended:** a new read, made within `tf.control_dependencies([push])`. **Predict:** the same four
# rounds.

# %%
ordered = rounds(lambda w, now: w.read_value())
for number, (w, w_k) in enumerate(ordered, 1):
    print("round %d: w %.2f, w_k %.2f" % (number, w, w_k))
assert all(w == w_k for w, w_k in ordered) and all(w != w_k for w, w_k in early)

# %% [markdown]
# ## Mistake 4: an update that nobody asked for
# `session.run` executes what its fetches need, and nothing else. The push needs `a`, the sum of T
# gradients.
#
# **Predict:** one call of `session.run(push)` with T = 3. The sum is $-100 - 90 - 81$, so `w` moves
# to 27.1. Where is `w_k`, which should have taken the same three steps?

# %%
def window(last_of):
    """w and w_k after T = 3 local steps and a push, in one call."""
    tf.reset_default_graph()
    w, w_k, a, done = zero("w"), zero("w_k", tf.get_local_variable), 0.0, []
    for _ in range(3):
        with tf.control_dependencies(done):
            g = w_k.read_value() - 100
            a = a + g
            done = [w_k.assign_sub(lr * g)]
    with tf.control_dependencies(last_of(done)):
        push = w.assign_sub(lr * a)
    return after_each(push, [w, w_k])[0]

print("w %.1f, w_k %.1f" % tuple(window(lambda done: [])))

# %% [markdown]
# The third gradient is in `a`, but the third step of `w_k` was never taken: no op that ran depends
# on it. Where `w_k` is overwritten by a pull this is only wasteful; with parameters that stay on
# the worker ([AEASGD](../AEASGD/)) each window loses its last step.
#
# **Mended:** the push waits for the last step, by a control dependency. **Predict:** where is `w_k`
# now?

# %%
print("w %.1f, w_k %.1f" % tuple(window(lambda done: done)))
assert np.allclose(window(lambda done: []), [27.1, 19])
assert np.allclose(window(lambda done: done), [27.1, 27.1])

# %%
# Stop what this notebook started.
tf.reset_default_graph()
print("the servers end with the kernel")

# %% [markdown]
# ## Exercises
# Next: [Classic-Mistakes-Updates](Classic-Mistakes-Updates.ipynb), four mistakes in the update
# itself.

# %% [markdown]
# **1. The one that hides the setter.** Within the setter, write `with tf.device(None):` around the
# model. Where is `w` then, and does `check` find it?
#
# <details><summary>Solution</summary>
#
# ```python
# # tf.device(None) is not "no change": it hides every tf.device around it.
# with tf.Graph().as_default(), tf.device(setter(0)), tf.device(None):
#     w = zero("w")
#     loss = (w - 100) ** 2 / 2
# assert w.device == ""
# try:
#     check(w, loss)
#     found = False
# except AssertionError:
#     found = True
# assert found
# ```
#
# </details>

# %% [markdown]
# **2. A cache.** `tf.get_variable(…, caching_device="/cpu:0")` keeps a read of the variable beside
# the worker. Does `w_k.assign(w)` within `tf.control_dependencies([push])` see the push? And
# `w_k.assign(w.read_value())`?
#
# <details><summary>Solution</summary>
#
# ```python
# seen = []
# for read in (lambda w: w), (lambda w: w.read_value()):
#     tf.reset_default_graph()
#     w, w_k = zero("w", caching_device="/cpu:0"), zero("w_k", tf.get_local_variable)
#     push = w.assign_sub(lr * (w - 100))
#     with tf.control_dependencies([push]):
#         pull = w_k.assign(read(w))
#     seen.append(after_each(pull, w_k)[0])
# print(seen)
# assert np.allclose(seen, [0, 10])  # the cached read came first; read_value() is always new
# ```
#
# </details>

# %% [markdown]
# **3. What will run.** Write `needed(op)`, the set of all ops that a fetch of `op` executes, and
# find with it which `AssignSubVariableOp`s of mistake 4 a fetch of the push leaves out.
#
# <details><summary>Solution</summary>
#
# ```python
# def needed(op):
#     found, ways = set(), [op]
#     while ways:
#         op = ways.pop()
#         if op not in found:
#             found.add(op)
#             ways += [t.op for t in op.inputs] + op.control_inputs
#     return found
#
# left_out = []
# for last_of in (lambda done: []), (lambda done: done):
#     window(last_of)
#     subtractions = [op for op in tf.get_default_graph().get_operations()
#                     if op.type == "AssignSubVariableOp"]
#     left_out.append([op for op in subtractions if op not in needed(subtractions[-1])])
# assert [len(ops) for ops in left_out] == [1, 0]
# ```
#
# </details>
