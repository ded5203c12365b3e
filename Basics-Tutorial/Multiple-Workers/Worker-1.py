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
# # Multiple workers, three notebooks: Worker-1
#
# This notebook is a worker: it pulls the shared parameters, trains its own copy, and pushes, in
# turn with [Worker-2](Worker-2.ipynb). [Parameter-Server](Parameter-Server.ipynb) holds what they
# share. Open all three and choose *Run → Run All Cells* in each, in whatever order, within three
# minutes.
#
# After this notebook you can:
# - write a worker: server, session, pull, local steps, push;
# - place local variables on the worker and shared ones on the ps, and check it;
# - say when a worker sees another's push: at its next pull, not before.
#
# About 8 minutes. Before it comes [Parameter-Server](Parameter-Server.ipynb).

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
addresses = meet("Worker-1", "127.0.0.1:%d" % held.getsockname()[1], seconds=180)
server = tf.train.Server(addresses, job_name="worker", task_index=0)
me = "/job:worker/task:0"
config = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=60_000)
session = tf.Session(server.target, config=config)
for device in sorted(device.name for device in session.list_devices()):
    print(device)

# %% [markdown]
# Tasks count from 0, so worker 1 is task 0. The other worker is not among them: what happens to it
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
# c = (8, 0), so its gradient is w − c.
#
# **Predict:** on which task is each of the variables `w`, `local/w`, `local/a`, and on which the
# ops that compute the gradient and that apply the push?

# %%
lr, c = 0.5, [8.0, 0.0]
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
# **Predict:** three turns, each with a pull, two local steps and a push. Between our turns worker
# 2 has its own. Does our second pull give what our first push has left?

# %%
my_turn, your_turn = turns[0].dequeue(), turns[1].enqueue(True)
tell = records.enqueue([tf.constant(1), w.read_value()])
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
# No: worker 2 was between. We see its push at our next pull, and not before.
#
# The picture shows our three turns, one after the other: the local copy moves with each step, the
# shared `w` only by pushes. Between two of our turns it has jumped: that was the other worker.

# %%
figure, axes = plt.subplots(figsize=(8, 3), dpi=80)
axes.step(range(12), [shared[0] for _, shared, _ in seen], where="mid", color="tab:gray",
          linewidth=3, label="w[0] on the ps")
axes.plot(range(12), [local[0] for _, _, local in seen], "o", color="tab:blue",
          label="w_k[0] here")
axes.axhline(8, color="tab:blue", linestyle=":", label="our minimum")
axes.set_xticks(range(12), [what for what, _, _ in seen], rotation=45, ha="right")
axes.set(ylabel="value", title="the turns of worker 1")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.tight_layout()
plt.show()

# %% [markdown]
# **Predict:** after our last turn worker 2 has one more, which ends with a token for us. We wait
# for it, without pulling. Then we read `w` and `local/w`. Which of them has changed since our last
# push?

# %%
session.run(my_turn)
shared, local = (value.tolist() for value in session.run([w, w_k]))
print("w       changed:", shared != seen[-1][1])
print("local/w changed:", local != seen[-1][2])
assert shared != seen[-1][1] and local == seen[-1][2]

# %% [markdown]
# `w` is shared: others change it. `local/w` is ours: worker 2 has a variable of the same name on
# its own task, and has trained that one.

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
# The next notebook is [Worker-2](Worker-2.ipynb).

# %% [markdown]
# **1. By hand.** Compute the sum a of the two gradients of the first turn, and from it `w`.
#
# <details><summary>Solution</summary>
#
# ```python
# g_1 = [0.0 - 8.0, 0.0 - 0.0]             # at (0, 0)
# g_2 = [4.0 - 8.0, 0.0 - 0.0]             # at (4, 0), after a step with lr = 0.5
# pushed = [x + y for x, y in zip(g_1, g_2)]
# assert [0.0 - lr * x for x in pushed] == seen[3][1] == [6.0, 0.0]
# ```
#
# </details>

# %% [markdown]
# **2. One gradient twice.** What would be pushed if both gradients were taken at the *pulled* w,
# as some implementations do by mistake? How far does it go?
#
# <details><summary>Solution</summary>
#
# ```python
# wrong = [2 * (0.0 - 8.0), 0.0]
# assert [0.0 - lr * x for x in wrong] == [8.0, 0.0]  # too far: right at our minimum
# assert seen[3][1] == [6.0, 0.0]
# ```
#
# </details>

# %% [markdown]
# **3. Mean.** [ADAG](../../ADAG/) pushes the mean of the gradients instead of the sum. Build that
# push, as an op that does not change `w`: what would `w` have been after the first turn?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.device(me):
#     at = tf.constant([[0.0, 0.0], [4.0, 0.0]])  # where the two gradients of the turn were taken
#     moved = at[0] - lr * tf.reduce_mean(at - c, axis=0)
# assert session.run(moved).tolist() == [3.0, 0.0]  # half as far
# ```
#
# </details>
