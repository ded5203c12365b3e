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
# # Inside a running worker
# A training runs for days. Does it still learn? Which worker is slow? May one machine be restarted?
# Since all its state is in variables that have a name and a device, any program that knows the addresses
# of the cluster can read them without stopping it. You will do that to two workers that train, kill one
# of them, and watch the other. (This is for those who keep TensorFlow 1 code.)
#
# After this notebook you can:
# - join a running cluster as a client, and read what is shared and what a worker has for itself;
# - say why several reads are no snapshot;
# - stop and restart a worker, and say what is lost;
# - find a slow worker from the notes on the ps.
#
# **Before it:** [Multiple-Workers](Multiple-Workers.ipynb). **Time:** 35 minutes.

# %% [markdown]
# ## A client from outside
# A ps and two workers run as processes of their own. This notebook is no task of the cluster: it
# only starts and stops the processes, and connects to their servers.
#
# ![This notebook is a client. It reads w, step, pushes and late from the process of the ps, and made from the processes of worker 0 and worker 1, which pull from the ps and push to it. Worker 1 can be stopped and restarted.](../docs/figures/inside.svg)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GREEN, ORANGE, RED, new_cluster, show, start

course.begin()

# %% [markdown]
# The two folded cells are the programs. `task.py` is nearly that of
# [Multiple-Workers](Multiple-Workers.ipynb). `worker.py` trains without end, and leaves two notes on
# the ps: how many `pushes` each worker has made, and by how many updates they were `late` in all. Each
# worker also has three variables for itself: its copy `w_k`, the `version` that it pulled, and `made`,
# the number of gradients that it has computed.

# %% jupyter={"source_hidden": true}
# %%writefile task.py
import course
import tensorflow.compat.v1 as tf

task = course.task()
k, me = task.k, task.me
if task.job == "ps":
    task.server.join()

with tf.device("/job:ps/task:0"):
    w = course.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
session = tf.Session(task.server.target, config=task.limits)
x, y, _, _ = course.load()
x, y = x[k::2], y[k::2]

# %% jupyter={"source_hidden": true}
# %%writefile worker.py
import time
import course
import numpy as np
import tensorflow.compat.v1 as tf
from task import k, me, session, step, w, x, y

with tf.device("/job:ps/task:0"):
    pushes = tf.get_variable("pushes", initializer=np.zeros(2, np.int64))
    late = tf.get_variable("late", initializer=np.zeros(2, np.int64))
with tf.device(me):
    w_k = course.variables("local_", get_variable=tf.get_local_variable)
    version = tf.get_local_variable("version", initializer=np.int64(0))
    made = tf.get_local_variable("made", initializer=np.int64(0))
    now = step.read_value()
    with tf.control_dependencies([now]):  # first the version, then w
        copy = [v_k.assign(v.read_value()) for v_k, v in zip(w_k, w)]
    pull = tf.group(version.assign(now), *copy)
    gradient = tf.gradients(course.loss(w_k, *course.batch(x, y, made, k)), w_k)
    with tf.control_dependencies(gradient):
        ticket = step.count_up_to(1_000_000)
    with tf.control_dependencies([ticket]):
        note = [tf.scatter_add(pushes, k, 1), tf.scatter_add(late, k, ticket - version)]
        subtract = [v.assign_sub(0.1 * g) for v, g in zip(w, gradient)]
        push = tf.group(*note, *subtract, made.assign_add(1))

session.run(tf.local_variables_initializer())
while True:
    session.run(pull)
    time.sleep(0.01)  # as if the model were larger
    session.run(push)

# %% [markdown]
# A client needs no server: the target of its session is the address of *some* server. The folded
# `connect` makes such a session as soon as that server answers. Its cell also starts ps and workers.


# %% jupyter={"source_hidden": true}
import socket
import time


def connect(job, index=0):
    """Returns a session of this graph with one task, which it waits for (30 s at most)."""
    only = ["/job:%s/task:%d" % (job, index)]
    config = tf.ConfigProto(device_filters=only, operation_timeout_in_ms=20_000)
    host, port = cluster[job][index].split(":")
    deadline = time.monotonic() + 30
    # A call to a server that does not listen yet would make gRPC wait longer and longer.
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return tf.Session("grpc://" + cluster[job][index], config=config)
        assert time.monotonic() < deadline, "%s %d does not answer" % (job, index)
        time.sleep(0.1)


cluster = new_cluster(ps=1, worker=2)
start("task.py", cluster, "ps")
with tf.device("/job:ps/task:0"):
    w = course.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
    pushes = tf.get_variable("pushes", initializer=np.zeros(2, np.int64))
    late = tf.get_variable("late", initializer=np.zeros(2, np.int64))
session = connect("ps")
session.run(tf.global_variables_initializer())
workers = [start("worker.py", cluster, "worker", k) for k in (0, 1)]

# %% [markdown]
# `session` reads the variables of the ps. To read a worker's own variable, we connect to that worker,
# with a graph that has the same name on the same device.


# %%
def look(k, name):
    """Returns the value that worker k has under this name, now."""
    with tf.Graph().as_default(), tf.device("/job:worker/task:%d" % k):
        variable = tf.get_variable(name, [], tf.int64)
        with connect("worker", k) as worker:
            return worker.run(variable)


# %% jupyter={"source_hidden": true}
# Both workers are there.
deadline = time.monotonic() + 30
while session.run(pushes).min() < 20:
    assert time.monotonic() < deadline, "a worker does not push"
    time.sleep(0.05)

# %% [markdown]
# **Predict:** `made` of worker 0, `made` of worker 1, then `step`, read one after the other. Is
# `step` exactly the sum of the other two?

# %% tags=["predicted", "measured"]
made = [look(0, "made"), look(1, "made")]
steps = session.run(step)
print("made by worker 0: %d, by worker 1: %d, together %d" % (*made, sum(made)))
print("step: %d" % steps)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# made by worker 0: 105, by worker 1: 23, together 128
# step: 129
# ```
#
# Most likely `step` is ahead, because the numbers grow while you read. (One worker began sooner.) Several
# reads see several moments, so they are no *snapshot*. Nor is a checkpoint of an asynchronous training.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked: step was read last, so it cannot be behind.
assert steps >= sum(made) > 0

# %% [markdown]
# ## Stop a worker, and start it again
# `watch` reads the notes 50 times a second. Meanwhile we stop worker 1, and later start it again.


# %%
def watch(seconds):
    """Reads the notes for so many seconds."""
    end = time.time() + seconds
    while time.time() < end:
        seen.append(np.hstack([time.time(), *session.run([step, pushes, late])]))
        time.sleep(0.02)


# %% jupyter={"source_hidden": true}
def summary(seen, parts):
    """Prints and returns the rate of updates, and worker 0's staleness, of each part."""
    rates, means = {}, {}
    for name, (begin, end) in parts.items():
        seconds, steps, pushes_0, _, late_0, _ = seen[end - 1] - seen[begin]
        rates[name], means[name] = steps / seconds, late_0 / pushes_0
        print(
            "%-15s %3.0f updates/s, staleness of worker 0: %.2f" % (name, rates[name], means[name])
        )
    return rates, means


# %% [markdown]
# **Predict:** what happens to worker 0, to the rate of updates, and to the staleness of worker 0's
# pushes while worker 1 is away? With which `made` and which `version` does worker 1 come back?

# %% tags=["predicted", "measured"]
seen = []
watch(2)
stopped = len(seen)
course.stop(workers[1])
watch(1.5)
workers[1] = start("worker.py", cluster, "worker", 1)
while seen[-1][3] == seen[stopped][3]:  # its pushes, noted on the ps
    watch(0.1)
back = len(seen)
print("worker 1 is back: made %d, version %d" % (look(1, "made"), look(1, "version")))
watch(2)

seen = np.array(seen)
parts = {"both": (0, stopped), "worker 0 alone": (stopped, back), "both again": (back, len(seen))}
rates, means = summary(seen, parts)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# worker 1 is back: made 3, version 720
# both             72 updates/s, staleness of worker 0: 0.54
# worker 0 alone   33 updates/s, staleness of worker 0: 0.00
# both again       77 updates/s, staleness of worker 0: 0.49
# ```
#
# Worker 0 notices nothing, because it has no connection to worker 1 and never waits for it. The rate
# falls to about half, and nobody makes worker 0's pushes stale. With both, each of them misses less than
# one update on average: only what worker 1 pushes between worker 0's pull and push. Worker 1 has lost
# what was its own: `made` began at 0, so it draws the same mini-batches again. But `version` is large,
# because it pulled the `w` of all updates so far.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert rates["worker 0 alone"] < 0.8 * min(rates["both"], rates["both again"])
assert means["worker 0 alone"] < 0.2 < means["both"]

# %% tags=["measured"] jupyter={"source_hidden": true}
seconds = seen[:, 0] - seen[0, 0]
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7, 4), sharex=True, height_ratios=[2.2, 1], layout="constrained"
)
above.plot(seconds, seen[:, 1] - seen[0, 1], color=GREEN, linewidth=2)
top = seen[-1, 1] - seen[0, 1]
for name, (begin, end) in parts.items():
    middle = (seconds[begin] + seconds[end - 1]) / 2
    words = "%s:\n%.0f updates/s" % (name, rates[name])
    above.text(middle, 1.1 * top, words, ha="center", fontsize=9)
every = np.arange(0, len(seen), 10)  # about 0.25 s
for column, color in (0, BLUE), (1, ORANGE):
    made, stale = np.diff(seen[every][:, [2 + column, 4 + column]], axis=0).T
    mean = np.divide(stale, made, out=np.full(len(made), np.nan), where=made > 0)
    below.plot(seconds[every][1:], mean, color=color, label="worker %d" % column)
for axes, height in (above, 0.78), (below, 1):  # below the words
    for moment in seconds[stopped], seconds[back]:
        axes.axvline(moment, ymax=height, color=RED, linestyle=":")
above.set(ylabel="updates of w", ylim=(0, 1.35 * top))
below.set(xlabel="seconds", ylabel="staleness", ylim=(-0.1, 2))
below.text(seconds[stopped], 1.6, "  worker 1 is stopped", color=RED)
below.text(seconds[back], 1.6, "it is back  ", color=RED, ha="right")
below.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(
    figure,
    "Above, the number of updates against time: a line with a steep slope, half the slope while "
    "worker 1 is away, and the steep slope again. Below, the mean staleness of each worker's "
    "pushes in each quarter of a second: it goes up and down, seldom above 1, and is zero while "
    "worker 0 is alone.",
)

# %% [markdown]
# ## Exercises
# **1. What a failure costs.** ★☆☆ Pencil and paper: five equal workers make 50 updates per second
# together. After 30 seconds two machines fail; 30 seconds later they are back. How many updates
# have been made after 120 seconds? How many by a synchronous training that is otherwise as fast?
#
# <details><summary>Hint</summary>
#
# How many updates per second do three workers make?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (asynchronous, synchronous)"
    asynchronous, synchronous = answer
    if asynchronous == 6000:
        return "asynchronous: that is without a failure"
    if asynchronous == 4500:
        return "asynchronous: three workers go on while two are away"
    if asynchronous == 5100:
        return "asynchronous: two workers are missing, not three"
    if asynchronous != 5400:
        return "asynchronous: count the updates of 30, 30 and 60 seconds, and add them"
    if synchronous != 4500:
        return "synchronous: all wait for the missing two, for 30 of the 120 seconds"


# %%
# Your answer to exercise 1
answer_1 = ...  # (asynchronous, synchronous)

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = 50 * 30 + 30 * 30 + 50 * 60, 50 * 90  # 5,400 and 4,500
#
# assert check_1(answer_1)
# ```
# </details>

# %% [markdown]
# **2. Who is slow?** ★☆☆ You have read `pushes` twice, some seconds apart. Write a function that
# returns the number of the slowest worker.
#
# <details><summary>Hint</summary>
#
# A worker may have joined late, so a total does not say who is fast.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    before, after = np.array([900, 800, 10]), np.array([1000, 830, 90])
    found = answer(before, after)
    if np.shape(found) != ():
        return "return one number, that of the slowest worker"
    if found not in (0, 1, 2):
        return "return which worker is the slowest: 0, 1 or 2"
    if found == 2:
        return "worker 2, the last of three, joined late; it made 80 pushes in this time"
    if found == 0:
        return "worker 0 is the fastest: it made 100 pushes in this time"
    if found != 1:
        return "worker 1 made 30 pushes in this time, the others 100 and 80"
    if answer(np.array([20, 5000]), np.array([60, 5100])) != 0:
        return (
            "20 and 5,000 became 60 and 5,100: compare what was added, not by which factor it grew"
        )
    if answer(np.array([4, 3, 2, 1]), np.array([9, 8, 9, 5])) != 3:
        return "4, 3, 2, 1 became 9, 8, 9, 5: worker 3 is the slowest, with 4 pushes"


# %%
# Your answer to exercise 2
def answer_2(before, after):
    """Returns the number of the slowest worker. before, after: pushes of each worker, [n]."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(before, after):
#     return np.argmin(after - before)
#
# assert check_2(answer_2)
# ```
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu).
# - [Operations/Fault-Tolerance](../Operations/Fault-Tolerance/): each task is stopped in turn.
#
# **Elsewhere:** in PyTorch and JAX you look at logs, at checkpoints, or with `py-spy dump` at what a
# process is doing.
#
# Next: [Sessions-that-Recover](Sessions-that-Recover.ipynb), which survive the loss of a server, too.
