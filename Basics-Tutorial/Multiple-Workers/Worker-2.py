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
# # Multiple workers, three notebooks: Worker-2
#
# This notebook is a worker: it pulls the shared parameters, trains its own copy, and pushes, in
# turn with [Worker-1](Worker-1.ipynb). [Parameter-Server](Parameter-Server.ipynb) holds what they
# share. Open all three and choose *Run → Run All Cells* in each, in whatever order, within three
# minutes.
#
# After this notebook you can:
# - tell which of two notebooks with the same graph has moved a variable;
# - say why equal names are one variable on the ps, and two on the workers;
# - follow a value from one process through the ps into another.
#
# About 7 minutes. Before it comes [Worker-1](Worker-1.ipynb); but for its number and its data this
# one has the same code.

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import json
import socket
import time
import matplotlib.pyplot as plt
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

# %% [markdown]
# ## Meet the others
# The notebook Parameter-Server writes the port where it waits into a file, and greets with the
# word that stands there too: an old file leads nowhere, or to somebody who does not know the word.
# We say our name and our address, and get the addresses of all, as soon as all are there.

# %%
def meet(name, address, seconds):
    """The addresses of the whole cluster, from the notebook Parameter-Server."""
    deadline, missing = time.monotonic() + seconds, "Parameter-Server"
    while time.monotonic() < deadline:
        try:
            port, word = json.load(open(".cluster/parameter-server.json"))
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                if connection.makefile().readline() == word + "\n":
                    missing = "the other worker"
                    connection.sendall((json.dumps([name, address]) + "\n").encode())
                    connection.settimeout(deadline - time.monotonic())
                    return json.loads(connection.makefile().readline())
        except (OSError, ValueError):  # no file yet, or an old one, or the ps has left
            time.sleep(0.2)
    raise TimeoutError("not started: %s" % missing)

# %% [markdown]
# **Predict:** the server of this notebook is one of three. Which devices does our session see,
# when its *device filters* name the ps and ourselves only?

# %%
tf.reset_default_graph()  # so that all cells can be run again
held = socket.socket()    # holds our port for the server
held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
held.bind(("127.0.0.1", 0))
addresses = meet("Worker-2", "127.0.0.1:%d" % held.getsockname()[1], seconds=180)
server = tf.train.Server(addresses, job_name="worker", task_index=1)
me = "/job:worker/task:1"
config = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=60_000)
session = tf.Session(server.target, config=config)
for device in sorted(device.name for device in session.list_devices()):
    print(device)

# %% [markdown]
# Tasks count from 0, so worker 2 is task 1. The other worker is not among them: what happens to it
# is none of our business, and it can end before us.
#
# ## What is shared, and what is local
# This cell is the same in all three notebooks: the same names on the same task are the same
# things.

# %%
with tf.device("/job:ps/task:0"):
    w = tf.get_variable("w", initializer=[0.0, 0.0])
    turns = [tf.FIFOQueue(9, tf.bool, [[]], shared_name="turn_%d" % k) for k in range(2)]
    records = tf.FIFOQueue(9, [tf.int32, tf.float32], [[], [2]], shared_name="records")
    goodbyes = tf.FIFOQueue(2, tf.bool, [[]], shared_name="goodbyes")

# %% [markdown]
# Our own: the copy w_k, and the sum a of the gradients since the pull. Our loss is ½|w − c|² with
# c = (0, 8), so its gradient is w − c.
#
# **Predict:** on which task is each of the variables `w`, `local/w`, `local/a`, and on which the
# ops that compute the gradient and that apply the push?

# %%
lr, c = 0.5, [0.0, 8.0]
with tf.device(me):
    w_k = tf.get_variable("local/w", initializer=[0.0, 0.0])
    a = tf.get_variable("local/a", initializer=[0.0, 0.0])
    pull = tf.group(w_k.assign(w), a.assign([0.0, 0.0]))
    g = w_k.read_value() - c
    with tf.control_dependencies([g]):  # both use the gradient at w_k before the step
        step = tf.group(w_k.assign_sub(lr * g), a.assign_add(g))
    push = w.assign_sub(lr * a)         # runs where its variable is
for name, thing in [("w", w), ("local/w", w_k), ("local/a", a), ("gradient", g), ("push", push)]:
    print("%-8s on %s" % (name, thing.device))
assert w.device == push.device == "/job:ps/task:0" and w_k.device == a.device == g.device == me

# %% [markdown]
# The parameters are on the ps, the computing is here. That is the rule of all parameter-server
# examples.
#
# **Predict:** worker 1 has the first turn, and `w` was (0, 0) before it. We have done nothing yet.
# Do we pull (0, 0)?

# %%
my_turn, your_turn = turns[1].dequeue(), turns[0].enqueue(True)
tell = records.enqueue([tf.constant(2), w.read_value()])
session.run([w_k.initializer, a.initializer])
seen = []  # (what, w on the ps, w_k here)
for _ in range(3):
    session.run(my_turn)  # waits for a token
    for what, op in [("pulled", pull), ("stepped", step), ("stepped", step), ("pushed", push)]:
        session.run(op)
        seen.append((what, *[value.tolist() for value in session.run([w, w_k])]))
    print("pulled %s, trained to %s; then w = %s" % (seen[-4][1], seen[-1][2], seen[-1][1]))
    session.run(tell)
    session.run(your_turn)

# %% [markdown]
# No: worker 1 has moved it, and we have pulled what it has pushed.
#
# The picture shows our three turns, one after the other: the local copy moves with each step, the
# shared `w` only by pushes. Between two of our turns it has jumped: that was the other worker.

# %%
figure, axes = plt.subplots(figsize=(8, 3), dpi=80)
axes.step(range(12), [shared[1] for _, shared, _ in seen], where="mid", color="tab:gray",
          linewidth=3, label="w[1] on the ps")
axes.plot(range(12), [local[1] for _, _, local in seen], "o", color="tab:orange",
          label="w_k[1] here")
axes.axhline(8, color="tab:orange", linestyle=":", label="our minimum")
axes.set_xticks(range(12), [what for what, _, _ in seen], rotation=45, ha="right")
axes.set(ylabel="value", title="the turns of worker 2")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.tight_layout()
plt.show()

# %% [markdown]
# **Predict:** worker 1 also has a variable `local/w`. What is in ours after its turns: its values,
# or what our own steps have left? Is `local/w` equal to `w` now, right after our own last push?

# %%
shared, local = (value.tolist() for value in session.run([w, w_k]))
print("local/w is what our last step left:", local == seen[-1][2])
print("w is what our last push left:      ", shared == seen[-1][1])
print("both are equal:                    ", shared == local)
assert shared == local == seen[-1][2] == seen[-1][1]

# %% [markdown]
# Ours only: the same name on another task is another variable. And after a push in turn the two
# are equal, because nobody has pushed between our pull and our push. Without turns somebody may
# have: then the push is *stale*, and `w` ends elsewhere than our copy:
# [Stale-Gradients](../Stale-Gradients.ipynb).

# %%
# Stop what this notebook started.
session.run(goodbyes.enqueue(True))
session.close()
print("said goodbye")

# %% [markdown]
# ## Exercises
# They need what the last cell has stopped: restart all three kernels, and run in each the cells
# above the last.
#
# The next notebook is [Multiple-Workers](../Multiple-Workers.ipynb).

# %% [markdown]
# **1. By hand.** Worker 1 had pushed (6, 0) when we pulled. Compute our first push from it.
#
# <details><summary>Solution</summary>
#
# ```python
# at = [6.0, 0.0]
# for _ in range(2):
#     at = [x - lr * (x - y) for x, y in zip(at, c)]
# assert seen[0][1] == [6.0, 0.0] and seen[3][1] == at == [1.5, 6.0]
# ```
#
# </details>

# %% [markdown]
# **2. A late push.** Suppose that we had pulled (0, 0), before worker 1's push of (6, 0), and
# pushed after it. Where would `w` be?
#
# <details><summary>Solution</summary>
#
# ```python
# stale = [(0.0 - 0.0) + (0.0 - 0.0), (0.0 - 8.0) + (4.0 - 8.0)]  # two gradients from (0, 0)
# late = [x - lr * y for x, y in zip([6.0, 0.0], stale)]
# assert late == [6.0, 6.0] != seen[3][1]  # both pushes count in full: neither knew of the other
# ```
#
# </details>

# %% [markdown]
# **3. The other's local variable.** With which device would `local/w` be worker 1's? Build it, and
# show that our session, with its filters, cannot reach it.
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     with tf.device("/job:worker/task:0"):
#         theirs = tf.get_variable("local/w", shape=[2])
#     with tf.Session(server.target, config=config) as another:
#         try:
#             another.run(theirs)
#             reached = True
#         except tf.errors.InvalidArgumentError:  # no such device, for this session
#             reached = False
# assert not reached
# ```
#
# </details>
