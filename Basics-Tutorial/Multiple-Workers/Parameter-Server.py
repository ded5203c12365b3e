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
# # Multiple workers, three notebooks: Parameter-Server
#
# Three notebooks, three processes: this one holds the shared parameters,
# [Worker-1](Worker-1.ipynb) and [Worker-2](Worker-2.ipynb) train them, in turn. Open all three and
# choose *Run → Run All Cells* in each, in whatever order, within three minutes.
#
# After this notebook you can:
# - let processes find each other when none knows the others' ports;
# - say what a parameter server does while others train (nothing of its own);
# - tell a shared variable from a local one by its place and by its value.
#
# About 10 minutes, all three 25. Before it comes
# [Classic-Mistakes-Synchrony](../Classic-Mistakes-Synchrony.ipynb). The same in a single notebook:
# [Multiple-Workers](../Multiple-Workers.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import json
import secrets
import select
import socket
import time
import matplotlib.pyplot as plt
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

# %% [markdown]
# ## Three notebooks find each other
# Every server must know the whole cluster before it starts, and no port is fixed. So they meet
# first. This notebook listens on a free port and writes it into the file
# `.cluster/parameter-server.json` beside it; the workers look there, connect, and say their own
# addresses.
#
# The file may be left from an earlier run. So it also holds a random word, and this notebook
# greets everyone with that word: where nobody answers, or with another word, a worker goes on
# waiting.

# %%
tf.reset_default_graph()  # so that all cells can be run again

def open_the_meeting():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.5)
    word = secrets.token_hex(8)
    os.makedirs(".cluster", exist_ok=True)
    with open(".cluster/partial", "w") as file:
        json.dump([listener.getsockname()[1], word], file)
    os.replace(".cluster/partial", ".cluster/parameter-server.json")  # whole or not at all
    return listener, word

def is_gone(connection):
    """A worker says nothing while it waits: something to read there is its end."""
    return bool(select.select([connection], [], [], 0)[0])

# %% [markdown]
# The meeting: everyone who comes is greeted and says a name and an address. A worker whose kernel
# has ended meanwhile is struck out; one that comes twice counts once, with its last address.

# %%
def meet(listener, word, seconds):
    """{name: (connection, address)} of both workers, once both are there."""
    there, deadline = {}, time.monotonic() + seconds
    while len(there) < 2:
        missing = sorted({"Worker-1", "Worker-2"} - set(there))
        assert time.monotonic() < deadline, "not started: %s" % " and ".join(missing)
        try:
            connection = listener.accept()[0]
            connection.settimeout(5)
            connection.sendall((word + "\n").encode())
            name, address = json.loads(connection.makefile().readline())
            there[name] = connection, address
        except (OSError, ValueError):  # nobody came in this half second, or a stranger
            there = {name: one for name, one in there.items() if not is_gone(one[0])}
    return there

# %% [markdown]
# **Predict:** all three get the same list of addresses. How many jobs and tasks are in it? And
# which of the three notebooks must be started first?

# %%
listener, word = open_the_meeting()
there = meet(listener, word, seconds=180)
held = socket.socket()  # our own port, held for the server
held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
held.bind(("127.0.0.1", 0))
addresses = {"ps": ["127.0.0.1:%d" % held.getsockname()[1]],
             "worker": [there["Worker-1"][1], there["Worker-2"][1]]}
server = tf.train.Server(addresses, job_name="ps", task_index=0)
for connection, _ in there.values():  # the ps is ready: they may begin
    connection.sendall((json.dumps(addresses) + "\n").encode())
    connection.close()
listener.close()
os.remove(".cluster/parameter-server.json")
print({job: len(tasks) for job, tasks in addresses.items()})

# %% [markdown]
# Two jobs, three tasks; and it does not matter who starts first, because all wait for this
# meeting.
#
# ## What is shared
# The next cell is the same in all three notebooks: what has the same name on the same task *is*
# the same thing. `w` are the parameters. The queues give the turns: a worker waits for a token in
# its own queue, and afterwards puts one into the other's.

# %%
with tf.device("/job:ps/task:0"):
    w = tf.get_variable("w", initializer=[0.0, 0.0])
    turns = [tf.FIFOQueue(9, tf.bool, [[]], shared_name="turn_%d" % k) for k in range(2)]
    records = tf.FIFOQueue(9, [tf.int32, tf.float32], [[], [2]], shared_name="records")
    goodbyes = tf.FIFOQueue(2, tf.bool, [[]], shared_name="goodbyes")

# %% [markdown]
# Here `w` gets its first value, and only then worker 1 its first token: nobody can pull too early.
#
# **Predict:** worker k trains on the loss ½|w − c_k|², with c_1 = (8, 0) and c_2 = (0, 8). Each
# has three turns. In a turn it pulls w, makes two local steps with lr = 0.5, and pushes the sum a
# of its gradients: w ← w − lr·a. What is w after the first turn? Where does it end?

# %%
config = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=60_000)
session = tf.Session(server.target, config=config)
session.run(w.initializer)
session.run(turns[0].enqueue(True))
next_record, history = records.dequeue(), [(0, [0.0, 0.0])]
for _ in range(6):
    who, value = session.run(next_record)
    history.append((int(who), value.tolist()))
    print("worker", who, "has pushed: w =", value.tolist())

# %% [markdown]
# This notebook has computed nothing: it only reads what the workers say. Each push carries `w`
# three quarters of the way to that worker's own minimum (two steps of one half), and the other
# carries it back. With real data both have parts of the same data set, and their minima are close
# to each other.

# %%
figure, axes = plt.subplots(figsize=(6, 4.2), dpi=80)
for (_, start), (who, end) in zip(history, history[1:]):
    axes.annotate("", end, start, arrowprops={
        "arrowstyle": "->", "color": ["tab:blue", "tab:orange"][who - 1], "linewidth": 2})
axes.plot(8, 0, "*", color="tab:blue", markersize=14, label="minimum of worker 1")
axes.plot(0, 8, "*", color="tab:orange", markersize=14, label="minimum of worker 2")
axes.plot(*zip(*[value for _, value in history]), "o", color="tab:gray", label="w on the ps")
axes.set(xlabel="w[0]", ylabel="w[1]", title="six pushes, in turn", xlim=(-0.6, 8.6))
axes.legend()
plt.show()

# %% [markdown]
# ## What is not shared
# Each worker also has variables of its own: `local/w`, its copy, and `local/a`, the sum of
# gradients.
#
# **Predict:** we make a variable `local/w` too, placed on the ps, and do not initialise it. Do we
# see the value of worker 1, of worker 2, or none?

# %%
with tf.device("/job:ps/task:0"):
    namesake = tf.get_variable("local/w", initializer=[0.0, 0.0])
try:
    print(session.run(namesake))
except tf.errors.FailedPreconditionError:
    print("local/w has no value on the ps;", "w is", session.run(w).tolist())

# %% [markdown]
# None: those of the workers have the same name, but other places. `w`, on the ps, is as the last
# push has left it. The three servers end with their kernels; so the ps waits until both workers
# have said goodbye, or they would lose it in the middle of a turn.

# %%
# Stop what this notebook started.
session.run(goodbyes.dequeue_many(2))
session.close()
print("both workers are done")

# %% [markdown]
# ## Exercises
# The next notebook is [Worker-1](Worker-1.ipynb). The algorithm is that of
# [DOWNPOUR-Easy](../../DOWNPOUR-Easy/), there without turns.

# %% [markdown]
# **1. Where it goes.** With ever more turns `w` ends in a cycle of two points. Which ones? Compute
# them from the rule: a push carries w three quarters of the way to c_k.
#
# <details><summary>Solution</summary>
#
# ```python
# point = [0.0, 0.0]
# for turn in range(100):
#     c = [(8.0, 0.0), (0.0, 8.0)][turn % 2]
#     point = [x + 0.75 * (y - x) for x, y in zip(point, c)]
#     if turn < 6:
#         assert point == history[turn + 1][1]  # to the last bit: halves are exact in binary
# assert [round(x, 6) for x in point] == [1.6, 6.4]  # and before worker 2's turn (6.4, 1.6)
# ```
#
# </details>

# %% [markdown]
# **2. A second client.** Read `w` from a graph of its own, through a new session. Which two things
# must be right, so that it is the same `w`?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     with tf.device("/job:ps/task:0"):                              # the place
#         same = tf.get_variable("w", shape=[2])                     # the name
#     with tf.Session(server.target, config=config) as another:
#         assert another.run(same).tolist() == history[-1][1]
# ```
#
# </details>

# %% [markdown]
# **3. Nobody there.** What does `meet` do when no worker comes? Call it with one second.
#
# <details><summary>Solution</summary>
#
# ```python
# with socket.create_server(("127.0.0.1", 0)) as lonely:
#     lonely.settimeout(0.2)
#     try:
#         meet(lonely, "hello", seconds=1)
#         found = None
#     except AssertionError as error:
#         found = str(error)
# assert found == "not started: Worker-1 and Worker-2"
# ```
#
# </details>
