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
# In distributed training processes hold variables for each other. In TensorFlow each of them runs a
# *server*; your program, the *client*, connects to one server through a *session*, and can then use
# them all.
#
# On the first day three things go wrong: a variable is not where you expected it, a process dies, or
# nothing happens. Here you cause all three; afterwards you can tell from the error, or from the silence,
# which task is to blame.
#
# After this notebook you can:
# - start the servers of a cluster, and say which devices a session sees;
# - decide when two programs share a variable, and say how long it lives;
# - tell from an error what happened to a server;
# - keep a missing task from holding up the others, with device filters.
#
# **Before it:** [Graphs-and-Sessions](Graphs-and-Sessions.ipynb). **Time:** 35 minutes.

# %% [markdown]
# ## A cluster is a list of addresses
# A cluster has *jobs*: usually `ps` (parameter servers, which hold the variables) and `worker`
# (which compute). A job has *tasks*, numbered from 0. A task is one process at one address.
#
# ![TF_CONFIG on the left: the addresses of one ps and two workers, and the type and index of one of them. On the right the three processes, each with the same cluster and a task of its own.](../docs/figures/cluster.svg)
#
# Every process gets the same list, and learns from `task` which entry is its own. Both stand in the
# environment variable `TF_CONFIG`.
#
# In [course.py](course.py), `new_cluster` asks the system for free ports, and `start` sets `TF_CONFIG`.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np
import tensorflow.compat.v1 as tf
from course import attempt, new_cluster, start

course.begin()

# %% [markdown]
# ## Two servers in one process
# `tf.train.Server` starts the server of one task, which ends only with its process. For now two
# run in this notebook.
#
# The *target* of a session is the address of one server. It begins with `grpc://`, because clients
# and servers talk through *gRPC*, a protocol for calls between processes. The session sends its graph to
# its target. That server, the session's *master*, passes each part to the server where it belongs.
#
# Each session gets a time limit; a call that takes longer raises `DeadlineExceededError`.

# %%
cluster = new_cluster(ps=1, worker=1)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
limit = tf.ConfigProto(operation_timeout_in_ms=10_000)  # a call may take 10 s


def devices(session):
    return sorted(device.name for device in session.list_devices() if "CPU" in device.name)


with tf.Session(config=limit) as session:
    print("no target:      ", *devices(session))
with tf.Session(worker.target, config=limit) as session:
    print("worker's target:", *devices(session))

# %% [markdown]
# Without a target a session sees only its own process, with one the whole cluster, because each server
# knows the addresses of all tasks.
#
# A device's name says where it is (`replica` is always 0). `with tf.device("/job:ps/task:0")` places
# an op on the ps; TensorFlow chooses the parts of the name that you leave out.
#
# ## Who owns a variable?
# `attempt` returns what a call gives, or the name of its error.

# %%
with tf.device("/job:ps/task:0"):
    v = tf.get_variable("v", initializer=1.0)
    add_one = v.assign_add(1.0)

first = tf.Session(worker.target, config=limit)
first.run(v.initializer)
print("set through the worker, then + 1:", first.run(add_one))

# %% [markdown]
# **Predict:** a second session, whose target is the *ps*, reads `v`; nobody initialises it there.
# Then we close both sessions, and a third one reads `v`. Does each read give 1, 2 or an error?

# %% tags=["predicted"]
second = tf.Session(ps.target, config=limit)
print("read through the ps:     ", attempt(lambda: second.run(v)))
first.close()
second.close()
with tf.Session(worker.target, config=limit) as third:
    print("after both are closed:   ", attempt(lambda: third.run(v)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# read through the ps:      2.0
# after both are closed:    2.0
# ```
#
# Device (the ps) and name (`v`) identify a variable, so both sessions mean the same one. It lives as
# long as its server.
#
# </details>
#
# ![Two clients, each with a graph and a session. The target of client 1 is the worker's server, that of client 2 the ps's server. The variable v lives on the ps.](../docs/figures/sessions.svg)
#
# Conversely, the same name on two devices makes two variables.
#
# ## Two processes
# Usually the ps runs in its own process. Its program reads TF_CONFIG, starts its server, and waits
# for ever in `server.join()`.

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
# In the new cluster the other process is the ps, and this notebook is the worker. The graph names
# devices, not processes.

# %%
cluster = new_cluster(ps=1, worker=1)
process = start("server.py", cluster, "ps")
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
limit = tf.ConfigProto(operation_timeout_in_ms=40_000)  # the other process needs some seconds
session = tf.Session(worker.target, config=limit)
session.run(v.initializer)
print("in the other process, v is now", session.run(add_one))

# %% [markdown]
# ## When a server dies
# We kill the ps.

# %%
process.kill()
process.wait(timeout=10)
print("the ps is dead:", attempt(lambda: session.run(v)))
session.close()

# %% [markdown]
# `UnavailableError` says that no process answers at that address. A new ps would answer a new
# session, but with `FailedPreconditionError`: the value of `v` died with the old process. That is why
# training saves *checkpoints*, files with the values of all variables.
#
# ## When a task never comes
# The next cluster has two workers, and worker 1 never starts. The op that we run is on the ps, and
# the session's target is worker 0, so nobody needs worker 1.

# %% jupyter={"source_hidden": true}
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
process = start("server.py", cluster, "worker", 0)
target = "grpc://" + cluster["worker"][0]
with tf.device("/job:ps/task:0"):
    total = tf.add(1, 2)

short_limit = tf.ConfigProto(operation_timeout_in_ms=3_000)

# %% [markdown]
# **Predict:** does `run` give 3 without worker 1?

# %% tags=["predicted"]
with tf.Session(target, config=short_limit) as session:
    print("no filters:  ", attempt(lambda: session.run(total)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# no filters:   DeadlineExceededError
# ```
#
# No. Before its first step a session's master asks *all* servers for their devices, also those that the
# graph does not use. So it waits for worker 1: here until our time limit, otherwise for ever.
#
# </details>
#
# **Fixed:** *device filters* name the tasks that a session will ever talk to. Its master asks only
# these, and starts as soon as they are there.

# %%
config = tf.ConfigProto(
    device_filters=["/job:ps", "/job:worker/task:0"], operation_timeout_in_ms=40_000
)
with tf.Session(target, config=config) as session:
    print("with filters:", attempt(lambda: session.run(total)))
    v.load(10.0, session)  # exercise 2 reads it

# %% [markdown]
# When nothing happens, first ask which of the tasks that the filters name is not there. A time limit
# has one exception: if the session's master runs in your own process, it waits without a limit for a
# task that never starts. So here worker 0 has its own process.
#
# A TensorFlow server listens on every network interface and runs what any client
# sends. Isolate it ([SECURITY.md](../.github/SECURITY.md)) before you start tasks on [machines of
# your own](../docs/your-cluster.md).

# %% [markdown]
# ## Exercises
# **1. Who waits?** ★☆☆ In the last cluster, worker 1 is still missing. Five clients run `total`,
# which is on the ps. Which of them get 3? Decide on paper.
#
# | client | target | device filters |
# | --- | --- | --- |
# | A | worker 0 | none |
# | B | worker 0 | `/job:ps`, `/job:worker` |
# | C | the ps | `/job:ps` |
# | D | worker 0 | `/job:worker/task:0` |
# | E | the ps | `/job:ps`, `/job:worker/task:0` |
#
# <details><summary>Hint</summary>
#
# A filter without a task names all tasks of its job. And a session can place an op only on a device
# that it sees.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    letters = set("".join(answer).upper().replace(" ", "").replace(",", ""))
    if letters - set("ABCDE"):
        return "name the clients by their letters, as in {'A', 'B'}"
    if "A" in letters:
        return "A has no filters, so its master asks all servers, and worker 1 does not answer"
    if "B" in letters:
        return "B's filters name the whole job worker, and so the missing worker 1"
    if "D" in letters:
        return "D's session never talks to the ps, so it sees no device for an op that is there"
    if letters != {"C", "E"}:
        return "a client is missing that gets 3: what counts are its filters, not its target"


# %%
# Your answer to exercise 1: a set of letters
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = {"C", "E"}
#
# assert check_1(answer_1)
# ```
#
# A and B wait for worker 1 until their time limit. D gets an `InvalidArgumentError` at once, because
# its session sees no device of the ps. What counts are the filters, not the target.
#
# </details>

# %% [markdown]
# **2. A second program.** ★★☆ Another client wants the value of `v` on the ps of the last cluster (10
# by now). Write it.
#
# <details><summary>Hint</summary>
#
# Which two things must be equal in both graphs? Give your variable another initial value, and you
# will see whether you have read the other client's.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    for secret in 10.0 + np.random.permutation(80)[:2]:
        with tf.Session(target, config=config) as session:
            v.load(secret, session)
        try:
            with tf.Graph().as_default():
                value = answer(target, config)
        except tf.errors.FailedPreconditionError:
            return "your variable has no value where it lives: compare its device and name with v's"
        if value is None:
            return "return the value of v"
        if not isinstance(value, (int, float, np.number, np.ndarray)):
            return "return the number that a session reads, not the %s" % type(value).__name__
        with tf.Session(target, config=config) as session:
            kept = session.run(v)
        if kept != secret:
            return (
                "v was %g, and you have set it to %g: only the client that makes v initialises it"
                % (secret, kept)
            )
        if value != secret:
            return "v is %g, and you have read %s: yours is another variable" % (secret, value)


# %%
# Your answer to exercise 2
def answer_2(target, config):
    """Returns the value of `v`. target: the address of worker 0; config: with device filters."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(target, config):
#     with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
#         again = tf.get_variable("v", initializer=7.0)  # it is never set to 7
#         with tf.Session(target, config=config) as session:
#             return session.run(again)
#
#
# assert check_2(answer_2)
# ```
#
# The device and the name must be equal. The initial value is only an input of the initialiser,
# which this client does not run.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 3 and 4.
# - [Distributed-Setup](../Distributed-Setup/): the same cluster trains the digits.
#   [Troubleshooting](../docs/troubleshooting.md): when nothing happens.
# - **Elsewhere:** `tf.distribute` reads the same TF_CONFIG. In PyTorch (`torchrun`) and JAX a process gets
#   its rank and the address of one meeting point.
#
# Next: [Parameter-Server](Parameter-Server.ipynb), where many variables get their places.
