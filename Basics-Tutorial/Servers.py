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
# Distributed training needs processes that hold variables for each other. In TensorFlow each of
# these processes runs a *server*. Your program, the *client*, connects to one server through a
# *session*, and so can use them all.
#
# After this notebook you can:
# - describe a cluster in TF_CONFIG, and start its servers in one process and in several;
# - say what a session's target is, and on which device an op runs;
# - share a variable between two sessions, and say how long it lives;
# - tell from the error what happened when a server died, and what is lost;
# - keep a missing task from holding up the others, with device filters.
#
# **Before it:** [Graphs-and-Sessions](Graphs-and-Sessions.ipynb). **Time:** 35 minutes.

# %% [markdown]
# ## A cluster is a list of addresses
# A cluster has *jobs*: usually `ps` (parameter servers, which hold the variables) and `worker`
# (which compute). A job has *tasks*, numbered from 0. A task is one process at one address.
#
# ![TF_CONFIG on the left: the addresses of one ps and two workers, and the type and index of one of them. On the right the three processes at their hosts and ports. Each gets the same cluster and a task of its own.](../docs/figures/cluster.svg)
#
# Every process gets the same list, and learns from `task` which entry is its own. TensorFlow
# launchers and cloud services pass both in one environment variable, `TF_CONFIG`.
#
# The next two cells hold what every notebook needs. Their code is folded in JupyterLab: click on
# the bar to read it.

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

# %% [markdown]
# A fixed port may be in use. So `new_cluster` asks the system for free ports, and holds them until
# the notebook ends: nobody else can take them in the meantime. `start` runs a Python file as one
# task of a cluster. It gives the process its `TF_CONFIG`, and makes sure that the process ends with
# this notebook.

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

# %% [markdown]
# ## Two servers in one process
# `tf.train.Server` starts the server of one task. Usually each task has a process of its own; for
# a first look, both servers run in this notebook. A server ends with its process. You cannot stop
# it before.
#
# The *target* of a session is the address of one server. It begins with `grpc://`, because clients
# and servers talk by *gRPC*, a protocol by which one process calls a function in another. The
# session sends its graph to its target. That server, the session's *master*, passes each part of
# the graph to the server where it belongs.
#
# A distributed call can wait for something that never comes, so each session gets a time limit. If
# a call takes longer, it ends with `DeadlineExceededError`. There is one exception: if the
# session's master runs in your own process, the wait for a task that never starts has no limit. The
# last section shows how to avoid it.
#
# **Predict:** a session without a target sees the devices of its own process. Which devices does a
# session see that is connected to the worker's server: the worker's, or those of the whole cluster?

# %%
cluster = new_cluster(ps=1, worker=1)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
waits = tf.ConfigProto(operation_timeout_in_ms=10_000)  # the time limit of a call: 10 s

def devices(session):
    return sorted(device.name for device in session.list_devices() if "CPU" in device.name)

with tf.Session(config=waits) as session:
    print("no target:      ", *devices(session))
with tf.Session(worker.target, config=waits) as session:
    print("worker's target:", *devices(session))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Those of the whole cluster. The worker's server knows the addresses of all tasks, so it can pass
# work on to each of them.
#
# </details>
#
# A device's name says where it is. `/job:ps/replica:0/task:0/device:CPU:0` is the processor of
# task 0 of the job `ps`; `replica` is always 0. `with tf.device("/job:ps/task:0")` places an op
# there. TensorFlow chooses the parts of the name that you leave out.
#
# ## A variable lives on a server
# Now two clients use one variable. The first is connected to the worker, the second to the ps.
#
# ![Two clients, each with a graph and a session. The target of client 1 is the worker's server, the target of client 2 is the ps's server. Both targets and the connection between the servers use gRPC. The variable v lives on the ps.](../docs/figures/sessions.svg)
#
# **Predict:** we make `v` on the ps through the worker, and add 1 to it. Then we read it through
# the *ps*, without initialising it there. Last, we read it in a session without a target. What do
# the two reads give?

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

first = tf.Session(worker.target, config=waits)
second = tf.Session(ps.target, config=waits)
first.run(v.initializer)
print("set through the worker, then + 1:", first.run(add_one))
print("read through the ps:             ", second.run(v))
print("without a target:                ", attempt(lambda: tf.Session(config=waits).run(v)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The second session reads 2. Device (the ps) and name (`v`) are the same, so it is the same
# variable. A session without a target has no job `ps`, so it cannot place the op.
#
# </details>
#
# Does `v` outlive its sessions? We close both and open a new one. Then `tf.Session.reset` tells
# all servers of the cluster to forget their variables.

# %%
first.close()
second.close()
with tf.Session(worker.target, config=waits) as session:
    print("after both sessions are closed:", session.run(v))
tf.Session.reset(ps.target)
with tf.Session(worker.target, config=waits) as session:
    print("after the reset:               ", attempt(lambda: session.run(v)))

# %% [markdown]
# A variable belongs to its server, not to a session. `FailedPreconditionError` means: the graph has
# a variable `v`, but there is no value for it where it lives.
#
# ## Two processes
# Now the realistic setup: the ps runs in its own process. Its program is short. It reads TF_CONFIG,
# starts its server, and waits. `server.join()` waits for ever; here `start` ends the process when
# the notebook ends.

# %%
# %%writefile server.py
import json
import os
import tensorflow.compat.v1 as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
server.join()

# %% [markdown]
# The graph is the same as before. In the new cluster the other process is the ps, and this
# notebook is the worker. We set `v` through the worker, and read it through the ps's own address.

# %%
cluster = new_cluster(ps=1, worker=1)
process = start("server.py", cluster, "ps")
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
waits = tf.ConfigProto(operation_timeout_in_ms=40_000)  # the other process needs some seconds
session = tf.Session(worker.target, config=waits)
session.run(v.initializer)
session.run(add_one)
with tf.Session("grpc://" + cluster["ps"][0], config=waits) as other:
    print("read through the other process:", other.run(v))
print("v is on", v.device, "- the other process runs:", process.poll() is None)

# %% [markdown]
# The client code did not change: it names devices, and need not know in which process they are.
#
# ## When a server dies
# **Predict:** we kill the ps, as `kill -9` or a power cut would. What does the next `run` give?
# Then we start a new ps at the same address. What does a new session find there?

# %%
process.kill()
process.wait(timeout=10)
print("the ps is dead:     ", attempt(lambda: session.run(v)))
session.close()

process = start("server.py", cluster, "ps")
for _ in range(100):  # until the connection is made again
    with tf.Session(worker.target, config=waits) as new:
        found = attempt(lambda: new.run(v))
    if found not in ("UnavailableError", "AbortedError"):
        break
print("it has been replaced:", found)

# %% [markdown]
# <details><summary>Answer</summary>
#
# `UnavailableError`: no process answers at that address. The worker finds the new process there,
# but the value of `v` died with the old one: `FailedPreconditionError`.
#
# </details>
#
# That is why training saves *checkpoints*, files with the values of all variables.
# `tf.train.MonitoredSession`, TensorFlow's session for a cluster, reacts to `UnavailableError` by
# opening a new session. The *chief*, the worker that makes the model, then restores the last
# checkpoint, if you gave it a folder for checkpoints (`checkpoint_dir`). So you never see
# `FailedPreconditionError`. Without such a folder it initialises the variables anew, and says
# nothing. [Sessions](Sessions.ipynb) introduces the chief;
# [Sessions-that-Recover](Sessions-that-Recover.ipynb) shows both cases.
#
# ## When a task never comes: device filters
# The next cluster has two workers, and worker 1 never starts. A session may have *device filters*:
# the list of the tasks that it will ever talk to. Worker 0 is in the other process this time. Our
# time limit does not end the wait for a missing task if the master is in the same process as the
# session.
#
# **Predict:** the op is on the ps, and the session's target is worker 0. Does `run` give a result
# without worker 1, if the filters name only the ps and worker 0? And without filters?

# %%
stop(process)
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
process = start("server.py", cluster, "worker", 0)
with tf.device("/job:ps/task:0"):
    total = tf.add(1, 2)

target = "grpc://" + cluster["worker"][0]
with tf.Session(target, config=tf.ConfigProto(
        device_filters=["/job:ps", "/job:worker/task:0"], operation_timeout_in_ms=40_000)) as session:
    print("with filters:", session.run(total))
with tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=3000)) as session:
    print("no filters:  ", attempt(lambda: session.run(total)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Before its first step a session's master asks *all* servers for their devices, also those that the
# graph does not use. So without filters the session waits for worker 1, here until our time limit,
# otherwise for ever. With filters it asks only the tasks that they name, and starts as soon as
# these are there. The death of worker 1 would not disturb it either.
#
# </details>
#
# All asynchronous examples set filters: see `config` in [hogwild.py](../HogWild/hogwild.py).
#
# One warning. A TensorFlow server listens on every network interface, and runs what any client
# sends. [SECURITY.md](../.github/SECURITY.md) says how to isolate it.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Two names.** ★☆☆ Make two variables `a` and `b` with the same value on the ps of the last
# cluster. Add to one of them. Does the other change?
#
# <details><summary>Hint</summary>
#
# Place both with `tf.device("/job:ps/task:0")`, and use a session to `ps.target` with device
# filters.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# alone = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=10_000)
# with tf.device("/job:ps/task:0"):
#     a = tf.get_variable("a", initializer=1.0)
#     b = tf.get_variable("b", initializer=1.0)
# with tf.Session(ps.target, config=alone) as session:
#     session.run([a.initializer, b.initializer])
#     session.run(a.assign_add(1.0))
#     assert session.run([a, b]) == [2.0, 1.0]  # the name is the identity, not the value
# ```
#
# </details>

# %% [markdown]
# **2. Two graphs.** ★★☆ A second client has a graph of its own. Build `v` in a fresh `tf.Graph()`,
# and show that it is the same variable. What must be equal in the two graphs?
#
# <details><summary>Hint</summary>
#
# Give the second `v` another initial value, and do not run its initialiser.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# alone = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=10_000)
# with tf.Session(ps.target, config=alone) as session:
#     session.run(v.initializer)
#     session.run(add_one)
# with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
#     again = tf.get_variable("v", initializer=7.0)
#     with tf.Session(ps.target, config=alone) as session:
#         assert session.run(again) == 2.0  # device and name are equal; it was never set to 7
# ```
#
# </details>

# %% [markdown]
# **3. No such task.** ★★☆ Place an op on `/job:ps/task:7`. When does TensorFlow complain: when you
# build the graph, when you make the session, or when you run it? With which error?
#
# <details><summary>Hint</summary>
#
# Put each of the three steps into a line of its own, and wrap the last one in `attempt`.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# alone = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=10_000)
# with tf.device("/job:ps/task:7"):
#     lost = tf.constant(1)
# with tf.Session(ps.target, config=alone) as session:
#     assert attempt(lambda: session.run(lost)) == "InvalidArgumentError"  # only when it runs
# ```
#
# </details>

# %%
# Stop what this notebook started.
stop(process)
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 3 and 4: graphs, devices, masters and
#   workers.
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu).
# - [Distributed-Setup](../Distributed-Setup/): the same cluster trains the digits.
#
# Next: [Parameter-Server](Parameter-Server.ipynb), where many variables get their places.
