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
# # Servers
#
# Distributed training needs processes that hold variables for each other. In TensorFlow each of
# them runs a *server*, and a *session* connects to one of the servers and uses them all.
#
# After this notebook you can:
# - describe a cluster, and start its servers in one process and in several;
# - say what a session's target is, and on which device an op runs;
# - share a variable between two sessions, and say how long it lives;
# - tell by the error what has happened when a server dies, and what is lost;
# - keep a missing task from holding up the others, by device filters.
#
# About 20 minutes. This is the first notebook; the way through all is in the [README](README.md).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import functools
import json
import select
import socket
import subprocess
import sys
import time
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()

# %% [markdown]
# ## A cluster is a list of addresses
# A cluster has *jobs*, usually `ps` (parameter servers, which hold the variables) and `worker`
# (which compute). A job has *tasks*, numbered from 0, and a task is one process with an address.
# Every process gets the same list, the `ClusterSpec`.
#
# A fixed port may be taken. So we ask the system for a free one (port 0), and hold it until the
# end: between the question and the server's start nobody else can get it.
#
# **Predict:** one ps and one worker. Which numbers do the two tasks have?

# %%
held = []
tf.reset_default_graph()        # so that all cells can be run again
tf.enable_resource_variables()  # a read is a copy of the value

def free_address():
    held.append(socket.socket())
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held[-1].bind(("127.0.0.1", 0))
    return "127.0.0.1:%d" % held[-1].getsockname()[1]

cluster = tf.train.ClusterSpec({"ps": [free_address()], "worker": [free_address()]})
for job in cluster.jobs:
    print(job, "has", cluster.num_tasks(job), "task, and these numbers:", cluster.task_indices(job))

# %% [markdown]
# ## Two servers in one process
# `tf.train.Server` starts the server of one task. Usually each task has a process of its own; for
# a first look both servers run here. `server.target` is the address for sessions: the session
# sends its graph there, and that server (the *master* of the session) shares the work out to the
# others. A server cannot be stopped: it ends with its process, here with the notebook's kernel.
#
# **Predict:** a session without a target sees the devices of this process. Which devices does one
# see that is connected to the worker's server: its own, or those of the whole cluster?

# %%
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
waits = tf.ConfigProto(operation_timeout_in_ms=10_000)  # no call may hang

def devices(session):
    return sorted(device.name for device in session.list_devices() if "CPU" in device.name)

with tf.Session(config=waits) as session:
    print("no target:      ", *devices(session))
with tf.Session(worker.target, config=waits) as session:
    print("worker's target:", *devices(session))

# %% [markdown]
# It sees the whole cluster. A device's name says where it is:
# `/job:ps/replica:0/task:0/device:CPU:0` is the processor of task 0 of the job `ps` (`replica` is
# always 0). `with tf.device("/job:ps/task:0")` pins an op to it; parts that are left out are for
# TensorFlow to choose.
#
# ## A variable lives on a server
# **Predict:** we make `v` on the ps, through the worker's server, and give it a value there. Then
# we read it in a second session, connected to the *ps's* server, without initialising it, and in a
# session without a target. What do the two give?

# %%
def attempt(call):
    """What a call gives, or the name of its error."""
    try:
        return call()
    except tf.errors.OpError as error:
        return type(error).__name__

with tf.device("/job:ps/task:0"):
    v = tf.get_variable("v", initializer=1.0)
    add_one = v.assign_add(1.0)
first, second = (tf.Session(server.target, config=waits) for server in (worker, ps))
first.run(v.initializer)
print("made through the worker, then + 1:", first.run(add_one))
print("read through the ps:              ", second.run(v))
print("without a target:                 ", attempt(lambda: tf.Session(config=waits).run(v)))

# %% [markdown]
# Both sessions use the same variable, because its place (the ps) and its name (`v`) are the same.
# The session without a target has no job `ps`, so it cannot place the op.
#
# **Predict:** we close both sessions and open a new one. Is the value still there? And after
# `tf.Session.reset`, which tells all servers of the cluster to forget their variables?

# %%
first.close()
second.close()
with tf.Session(worker.target, config=waits) as session:
    print("after both sessions are closed:", session.run(v))
tf.Session.reset(ps.target)
with tf.Session(worker.target, config=waits) as session:
    print("after the reset:               ", attempt(lambda: session.run(v)))

# %% [markdown]
# A variable belongs to its server, not to a session: it outlives them all.
# `FailedPreconditionError` means that there is a variable `v` in the graph, but no value for it
# where it lives.
#
# Here is the whole picture. The client builds a graph and holds a session; the session's target is
# one server, which sends each op to the server where it is placed.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(8, 2.3), dpi=80)
boxes = [(0.0, "client\n\ngraph, session", "white"),
         (1.5, "server\n/job:worker/task:0", "tab:blue"),
         (3.0, "server\n/job:ps/task:0\n\nv = 2.0", "tab:gray")]
for x, text, colour in boxes:
    axes.add_patch(plt.Rectangle((x, 0), 1, 1, facecolor=colour, edgecolor="black", alpha=0.5))
    axes.text(x + 0.5, 0.5, text, ha="center", va="center")
for x, text in [(1.0, "target"), (2.5, "gRPC")]:
    axes.annotate("", (x + 0.5, 0.5), (x, 0.5), arrowprops={"arrowstyle": "<->"})
    axes.text(x + 0.25, 0.58, text, ha="center")
axes.set(xlim=(-0.05, 4.05), ylim=(-0.05, 1.05), title="who talks to whom")
axes.axis("off")
plt.show()

# %% [markdown]
# ## Two processes
# Now as it is in earnest: the ps is a process of its own. It is a short program: start the server,
# then wait. It waits by reading its standard input, which ends when this notebook closes it, or
# when the kernel ends, however that happens: so no process is left behind.

# %%
PROGRAM = """
import json, os, sys
import tensorflow.compat.v1 as tf
cluster = tf.train.ClusterSpec(json.loads(sys.argv[1]))
server = tf.train.Server(cluster, job_name=sys.argv[2], task_index=0)
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""

def start_process(cluster, job):
    command = [sys.executable, "-c", PROGRAM, json.dumps(cluster.as_dict()), job]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert select.select([process.stdout], [], [], 60)[0], "not ready after 60 s"
    return process

# %% [markdown]
# **Predict:** the same graph, in a new cluster: its ps is the other process, its worker is here.
# We set `v` through the worker, and read it through the ps's own address, `grpc://host:port`. In
# which of the two processes is `v`, and does the second session see it?

# %%
cluster = tf.train.ClusterSpec({"ps": [free_address()], "worker": [free_address()]})
process = start_process(cluster, "ps")
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
session = tf.Session(worker.target, config=waits)
session.run(v.initializer)
session.run(add_one)
with tf.Session("grpc://" + cluster.task_address("ps", 0), config=waits) as other:
    print("read through the other process:", other.run(v))
print("v is on", v.device, "- the other process runs:", process.poll() is None)

# %% [markdown]
# Nothing has changed but the process: a program that names its devices does not care where they
# are.
#
# ## When a server dies
# **Predict:** we kill the ps (as `kill -9` does, or a power cut). What does the next `run` give?
# Then we start it again at the same address. What does a new session find?

# %%
process.kill()
process.wait(timeout=10)
print("the ps is dead:     ", attempt(lambda: session.run(v)))
process = start_process(cluster, "ps")
deadline = time.monotonic() + 20
found = "UnavailableError"
while found in ("UnavailableError", "AbortedError") and time.monotonic() < deadline:
    with tf.Session(worker.target, config=waits) as new:  # until the connection is made again
        found = attempt(functools.partial(new.run, v))
print("it has been replaced:", found)
session.close()
process.stdin.close()
assert found == "FailedPreconditionError"

# %% [markdown]
# `UnavailableError`: nobody is there. A new process at the same address is found again, but the
# value died with the old one: `FailedPreconditionError`. That is why training saves checkpoints,
# and why `tf.train.MonitoredSession` answers the first by a new session, which in the chief
# restores the last checkpoint before anything runs: so the second does not come up.
#
# ## When a task never comes: device filters
# The next cluster has two workers, and worker 1 never starts. Before its first step a session's
# master asks *all* servers what devices they have. (Worker 0 is the other process this time: a
# session to a server in its own process does not keep to the time limit while it waits.)
#
# **Predict:** does a session of worker 0 work, if it uses only itself and the ps? And if we tell
# it, by *device filters*, that these two are all it will ever talk to?

# %%
addresses = {"ps": [free_address()], "worker": [free_address(), free_address()]}
cluster = tf.train.ClusterSpec(addresses)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
process = start_process(cluster, "worker")
with tf.device("/job:ps/task:0"):
    total = tf.add(1, 2)
for filters in [], ["/job:ps", "/job:worker/task:0"]:
    config = tf.ConfigProto(operation_timeout_in_ms=3000, device_filters=filters)
    with tf.Session("grpc://" + cluster.task_address("worker", 0), config=config) as session:
        print(filters or "no filters", "->", attempt(functools.partial(session.run, total)))

# %% [markdown]
# Without filters it waits for worker 1, here until our time limit; without a limit it waits for
# ever. With them it starts at once, in whatever order the tasks come, and the death of worker 1
# would not disturb it. All asynchronous examples do so: see `config` in
# [hogwild.py](../HogWild/hogwild.py).

# %%
# Stop what this notebook started.
process.stdin.close()
print("the other process has ended with code", process.wait(timeout=10))

# %% [markdown]
# ## Exercises
# They need what the last cell has stopped: restart the kernel, and run the cells above that one.
#
# The next notebook is [Parameter-Server](Parameter-Server.ipynb): how many variables get their
# places.

# %% [markdown]
# **1. Two names.** Make a second variable with the same value on the ps of the last cluster, under
# another name, and add to one of them. Does the other change?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.device("/job:ps/task:0"):
#     a = tf.get_variable("a", initializer=1.0)
#     b = tf.get_variable("b", initializer=1.0)
# with tf.Session(ps.target, config=config) as session_1:
#     session_1.run([a.initializer, b.initializer])
#     session_1.run(a.assign_add(1.0))
#     assert session_1.run([a, b]) == [2.0, 1.0]  # the name is the identity, not the value
# ```
#
# </details>

# %% [markdown]
# **2. Two graphs.** A second client would have a graph of its own. Build `v` in a fresh
# `tf.Graph()`, and show that it is the same variable. What must be equal in the two graphs?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.Session(ps.target, config=config) as session_2:
#     session_2.run(v.initializer)
#     session_2.run(add_one)
# with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
#     again = tf.get_variable("v", initializer=7.0)
#     with tf.Session(ps.target, config=config) as session_3:
#         assert session_3.run(again) == 2.0  # device and name are equal; it was never set to 7
# ```
#
# </details>

# %% [markdown]
# **3. No such task.** Place an op on `/job:ps/task:7`. When does TensorFlow complain: when the
# graph is built, when the session is made, or when it runs? With what error?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.device("/job:ps/task:7"):
#     lost = tf.constant(1)
# with tf.Session(ps.target, config=config) as session_4:
#     assert attempt(lambda: session_4.run(lost)) == "InvalidArgumentError"  # only when it runs
# ```
#
# </details>
