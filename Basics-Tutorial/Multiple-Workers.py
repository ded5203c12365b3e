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
# # Multiple workers
# Machines are rarely equally fast. If workers wait for each other in every step, the slowest sets the
# pace for all: here four machines, one of them slow, then compute fewer gradients than *one* fast machine.
# In *asynchronous* training nobody waits, and the same four compute three times as many as one. First two
# processes train one `w`, and you watch what they do to each other.
#
# After this notebook you can:
# - write the program of a worker that shares `w` with others;
# - divide the examples among workers, and the updates with tickets;
# - measure the staleness of each push, and read it off a timeline;
# - predict how many gradients a second a group of workers computes, with and without waiting.
#
# **Before it:** [Parameter-Server](Parameter-Server.ipynb) and [Sessions](Sessions.ipynb).
# **Time:** 45 minutes.
#
# **[Notation](GLOSSARY.md#notation):** `step` counts updates; a *synchronous step* is one update by all.

# %% [markdown]
# ## Three processes
# This notebook is the ps, and it starts the two workers, as a launcher does on a real cluster. Each
# worker trains on its *shard*, its own part of the examples.
#
# ![This notebook is the ps: it holds the parameters w and the counter step. Two processes, worker 0 and worker 1, pull from it and push to it. Each has its own copy w_k, its own gradient g, and its own shard: worker 0 the even rows, worker 1 the odd rows.](../docs/figures/shards.svg)
#
# Worker k repeats three actions:
#
# $$\text{pull: } w_k \leftarrow w \qquad \text{compute: } g \leftarrow g(w_k) \qquad
# \text{push: } w \leftarrow w - lr \cdot g$$

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, finish, new_cluster, show, start

course.begin()

# %% [markdown]
# ## What every worker has
# All workers run `task.py`; only `k` differs, which comes from TF_CONFIG. The workers meet only in
# the names of variables on the ps. `course.task()` is the head of the program in
# [Sessions](Sessions.ipynb): it reads TF_CONFIG and starts the server of the task.

# %%
# %%writefile task.py
import course
import tensorflow.compat.v1 as tf

task = course.task()
k, n, me = task.k, task.n, task.me

# Shared: the same names on the same task are the same variables.
with tf.device("/job:ps/task:0"):
    w = course.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))

# Its own: a server, a session, and its shard of the examples.
session = tf.Session(task.server.target, config=task.limits)
x, y, _, _ = course.load()
x, y = x[k::n], y[k::n]

# %% [markdown]
# ## The smallest worker
# One call of `session.run` pulls, computes and pushes.

# %%
# %%writefile worker.py
import course
import tensorflow.compat.v1 as tf
from task import k, me, session, step, w, x, y

with tf.device(me):
    number = tf.placeholder(tf.int64, [])
    gradient = tf.gradients(course.loss(w, *course.batch(x, y, number, k)), w)
    push = [v.assign_sub(0.1 * g) for v, g in zip(w, gradient)]
    update = tf.group(*push, step.assign_add(1))

for i in range(200):
    session.run(update, {number: i})

# %% [markdown]
# For the ps a server is enough. This notebook, also a client, initialises `w` and `step` *before* it
# starts the workers, so that nobody can pull too early.

# %%
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
with tf.device("/job:ps/task:0"):
    w = course.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
_, _, x_test, y_test = course.load()
accuracy = course.accuracy(w, x_test, y_test)
filters = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=60_000)
session = tf.Session(ps.target, config=filters)
session.run(tf.global_variables_initializer())

workers = [start("worker.py", cluster, "worker", k) for k in (0, 1)]
for worker in workers:
    finish(worker)
print("updates of w:        ", session.run(step))
print("more than 85% correct:", session.run(accuracy) > 0.85)

# %% [markdown]
# In another run the two interleave in another order, so `w` and its accuracy differ a little.
#
# ## Tickets, versions, and a barrier
# **Who makes how many updates?** With 200 for each, a faster worker would finish early. Instead a
# worker takes a *ticket* before each push, with `step.count_up_to(400)`, until all 400 are taken.
#
# **How old is a gradient when it arrives?** Just before it pulls, the worker reads `step`, the
# *version* of `w` that it gets. The updates that others make after that are missing in its gradient.
# Their number is the *staleness* of the push:
#
# $$\text{staleness} = \text{ticket} - \text{version}$$
#
# **How can you see it happen?** Pull, compute and push become three calls, with the time noted
# between them. To begin together, the workers meet at a *barrier* of two queues on the ps: each puts
# a token into `ready`, and waits for one from `go`, which the folded cell sends when both are there.

# %%
# %%writefile watched.py
import time
import course
import numpy as np
import tensorflow.compat.v1 as tf
from task import k, me, session, step, w, x, y

with tf.device(me):
    number = tf.placeholder(tf.int64, [])
    version = step.read_value()
    with tf.control_dependencies([version]):  # first the version, then w
        pulled = [v.read_value() for v in w]
    gradient = tf.gradients(course.loss(pulled, *course.batch(x, y, number, k)), pulled)
    ticket = step.count_up_to(400)
    with tf.control_dependencies([ticket]):  # no push without a ticket
        push = tf.group(*[v.assign_sub(0.1 * g) for v, g in zip(w, gradient)])
with tf.device("/job:ps/task:0"):
    ready = tf.FIFOQueue(2, tf.bool, [[]], shared_name="ready")
    go = tf.FIFOQueue(2, tf.bool, [[]], shared_name="go")

session.run(ready.enqueue(True))  # the barrier
session.run(go.dequeue())
notes = []
try:
    for i in range(400):
        times = [time.time()]
        version_k, w_k = session.run([version, pulled])
        times.append(time.time())
        g = session.run(gradient, {number: i, **dict(zip(pulled, w_k))})
        times.append(time.time())
        ticket_k, _ = session.run([ticket, push], dict(zip(gradient, g)))
        notes.append([k, version_k, ticket_k, *times, time.time()])
except tf.errors.OutOfRangeError:  # all tickets are taken
    np.savetxt("notes-%d.txt" % k, notes)

# %% jupyter={"source_hidden": true}
with tf.device("/job:ps/task:0"):
    ready = tf.FIFOQueue(2, tf.bool, [[]], shared_name="ready")
    go = tf.FIFOQueue(2, tf.bool, [[]], shared_name="go")
session.run(tf.global_variables_initializer())  # from the beginning again
workers = [start("watched.py", cluster, "worker", k) for k in (0, 1)]
session.run(ready.dequeue_many(2))  # both are at the barrier
session.run(go.enqueue_many([[True, True]]))
for worker in workers:
    finish(worker)
rows = np.concatenate([np.loadtxt("notes-%d.txt" % k) for k in (0, 1)])
rows = rows[np.argsort(rows[:, 2])]  # in the order of their tickets
WORKER, VERSION, TICKET, BEGAN, PULLED, COMPUTED, PUSHED = range(7)  # the columns

# %% [markdown]
# **Predict:** both workers are equally fast, so between two pushes of one the other makes about one.
# Is the mean staleness therefore 1, or more, or less?

# %% tags=["predicted", "measured"]
staleness = rows[:, TICKET] - rows[:, VERSION]
for value in 0, 1:
    print(
        "staleness %d:         %3.0f%% of the pushes" % (value, 100 * np.mean(staleness == value))
    )
print("staleness 2 or more: %3.0f%%" % (100 * np.mean(staleness > 1)))
print("mean %.2f, largest %d" % (staleness.mean(), staleness.max()))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# staleness 0:          37% of the pushes
# staleness 1:          63% of the pushes
# staleness 2 or more:   0%
# mean 0.64, largest 2
# ```
#
# Less: the other's push counts only if it falls between the first worker's pull and its ticket, and
# not between its push and its next pull. A staleness of 2 or more needs a pause: the operating
# system stops a worker for a moment, and the other goes on.
#
# </details>
#
# The figure shows a short piece of this run. A dot marks where a worker reads the version; from each
# ticket a line leads into the row of the other worker. Count the lines of the *other* colour between
# a block's dot and its own line (each has a square there): this is its staleness. Below, each push raises
# the version of `w` by one.

# %% jupyter={"source_hidden": true}
# Each ticket was taken once, and on average a push misses at most one of the other's.
assert np.array_equal(rows[:, TICKET], np.arange(400)) and staleness.mean() <= 1


# %% tags=["measured"] jupyter={"source_hidden": true}
def timeline(rows, first, count=13):
    taken, read = course.moments(*rows[:, BEGAN:].T, rows[:, VERSION].astype(int))
    chosen, drawn = slice(first, first + count), range(first - 3, first + count + 3)
    begin = rows[chosen, BEGAN].min()
    end = 1000 * (rows[chosen, PUSHED].max() - begin)
    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(8, 4.2), sharex=True, height_ratios=[3, 1.4], layout="constrained"
    )
    for row, t, r in zip(rows[drawn], taken[drawn], read[drawn]):
        k = int(row[WORKER])
        own, other = ((BLUE, ORANGE), (ORANGE, BLUE))[k]
        place = 1 - k
        times = 1000 * (row[[BEGAN, PULLED, COMPUTED, PUSHED]] - begin)
        for left, right, alpha in zip(times, times[1:], (0.25, 0.8, 0.45)):
            axes.barh(place, right - left, 0.4, left, color=own, alpha=alpha, linewidth=0)
        axes.barh(place, times[3] - times[0], 0.4, times[0], color="none", edgecolor="white")
        counted = taken[(rows[:, WORKER] != k) & (taken > r) & (taken < t)]
        squares = {"color": other, "markeredgecolor": "white", "markersize": 5, "zorder": 4}
        axes.plot(1000 * (counted - begin), 0 * counted + place, "s", **squares)
        t, r = 1000 * (t - begin), 1000 * (r - begin)
        axes.plot([t, t], [place + 0.2 * (1 - 2 * place), 1 - place], color=own, linewidth=1.4)
        below.plot([t, t], [row[TICKET], row[TICKET] + 1], color=own, linewidth=2.5)
        axes.plot(r, place, "o", color="white", markeredgecolor=own, markersize=6, zorder=3)
        late = int(row[TICKET] - row[VERSION])
        color = other if late else GRAY
        middle = (times[0] + times[3]) / 2
        if not 0.02 * end < middle < 0.98 * end:
            continue
        axes.text(
            middle,
            place + (0.3 if place else -0.3),
            "%d" % late,
            color=color,
            ha="center",
            va="center",
            fontsize=11,
            fontweight="bold" if late else "normal",
        )
    ends = 1000 * (taken[drawn] - begin)
    below.hlines(np.array(drawn)[:-1] + 1, ends[:-1], ends[1:], color=GRAY, linewidth=1)
    below.set(ylim=(first - 1, first + count + 1))
    axes.set_xlim(0, end)
    axes.set_yticks([1, 0], ["worker 0", "worker 1"])
    axes.set_ylim(-0.6, 1.6)
    for alpha, name in (0.25, "pull"), (0.8, "compute"), (0.45, "push"):
        axes.barh(0, 0, color=GRAY, alpha=alpha, label=name)
    axes.plot([], [], "o", color="white", markeredgecolor=GRAY, label="reads the version")
    axes.plot([], [], color=GRAY, label="takes a ticket")
    axes.plot([], [], "s", color=GRAY, markersize=5, label="an update missed")
    axes.legend(
        loc="lower center", ncols=6, bbox_to_anchor=(0.47, 1), fontsize=9, columnspacing=1.2
    )
    below.set(xlabel="time in milliseconds", ylabel="version of w")
    axes.grid(False)
    below.grid(False)
    return figure


# Where both kinds of staleness occur, if there is such a place.
both = [i for i in range(150, 380) if set(staleness[i : i + 13]) == {0, 1}]
taken, _ = course.moments(*rows[:, BEGAN:].T, rows[:, VERSION].astype(int))
both = [i for i in both if np.diff(taken[i : i + 13]).min() > 5e-4] or both  # no ties
first = both[len(both) // 2] if both else 200
show(
    timeline(rows, first),
    "A timeline of a short piece of the run. Both workers pull, compute and push at the same time. A "
    "line from each ticket enters the other worker's row: where it falls between a dot and that "
    "block's own line, it ends in a square, and the number of the block is 1 or more. Below, the "
    "version of w rises by one for each.",
)

# %% [markdown]
# ## What it is worth: loss against seconds
# This model's gradient takes a few milliseconds when both processors are busy, so two workers gain
# little. To imitate a large model, a worker sleeps after each gradient, which needs no processor, so
# four run at once, as on machines of their own. Three sleep for 25 ms on average; the fourth, a
# *straggler*, for 150 ms. Each time differs from the mean by up to a half, as those of real workers vary.
#
# The workers are now threads of this process. Their loop is asynchronous without a barrier, and
# synchronous with one: then all pull the same `w`, and all push before anyone pulls again. Usually
# a synchronous step takes the mean of the gradients. Here it takes their sum, so that a gradient
# moves `w` as far in all three runs. ([SGD-by-Experiment](SGD-by-Experiment.ipynb): when is that
# allowed?)


# %%
def work(k, pause, run, barrier):
    """Worker k, until the time is over. run: session and operations; barrier: None if asynchronous."""
    random = np.random.RandomState(k)
    while not run.over.is_set():
        if barrier:
            barrier.wait()  # nobody pulls before all have pushed
        version = sum(run.made)
        g = run.session.run(run.gradient, {run.k: k, run.number: run.made[k]})
        time.sleep(pause * random.uniform(0.5, 1.5))  # as if the model were larger
        if barrier:
            barrier.wait()  # nobody pushes before all have computed
        run.staleness[k].append(sum(run.made) - version)  # ticket - version
        run.made[k] += 1  # its ticket
        run.session.run(run.push, dict(zip(run.gradient, g)))


# %% jupyter={"source_hidden": true}
import contextlib
import threading
import time
import types

SECONDS = 2.5
x, y, _, _ = course.load()


def train(pauses, synchronous=False, target="", device=None):
    """Trains with a thread for each pause; returns the run, with rows of time, gradients, loss."""
    run = types.SimpleNamespace(over=threading.Event(), made=[0] * len(pauses), curve=[])
    run.staleness = [[] for _ in pauses]
    with tf.Graph().as_default():
        with tf.device(device):
            w = course.variables()
            run.k, run.number = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
            run.gradient = tf.gradients(course.loss(w, *course.batch(x, y, run.number, run.k)), w)
            run.push = tf.group(*[v.assign_sub(0.1 * g) for v, g in zip(w, run.gradient)])
            loss = course.loss(w, x, y)
            initialize = tf.global_variables_initializer()
        only = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=20_000)
        run.session = tf.Session(target, config=only)
    run.session.run(initialize)
    g = run.session.run(run.gradient, {run.k: 0, run.number: 0})
    run.session.run(run.push, dict(zip(run.gradient, g)))  # a first call takes longer: not counted
    run.session.run(loss)
    run.session.run(initialize)
    barrier = threading.Barrier(len(pauses)) if synchronous else None

    def thread(k, pause):
        with contextlib.suppress(threading.BrokenBarrierError):  # the time was over
            work(k, pause, run, barrier)

    threads = [threading.Thread(target=thread, args=each) for each in enumerate(pauses)]
    for each in threads:
        each.start()
    began = time.monotonic()
    while time.monotonic() < began + SECONDS:
        made = sum(run.made)
        run.curve.append((time.monotonic() - began, made, run.session.run(loss)))
        time.sleep(0.03)
    run.over.set()
    if barrier:
        barrier.abort()
    for each in threads:
        each.join(10)
    run.session.close()
    run.curve = np.array(run.curve)
    return run


# %% [markdown]
# **Predict:** how many gradients does one fast machine, a single process without a ps, compute in 2.5
# seconds? How many do the four workers compute together with the barrier, and how many without?

# %% tags=["predicted", "measured"]
PAUSES = [0.025, 0.025, 0.025, 0.150]  # the last one is the straggler
on_ps = {"target": ps.target, "device": "/job:ps/task:0"}
runs = {
    "one machine": train(PAUSES[:1]),
    "synchronous": train(PAUSES, synchronous=True, **on_ps),
    "asynchronous": train(PAUSES, **on_ps),
}
for name, run in runs.items():
    print("%3d gradients, loss %.2f: %s" % (sum(run.made), run.curve[-1, 2], name))
late = [np.mean(of_one) for of_one in runs["asynchronous"].staleness]
print("asynchronous, mean staleness of each worker:", *["%.1f" % mean for mean in late])

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
#  96 gradients, loss 0.71: one machine
#  68 gradients, loss 0.94: synchronous
# 311 gradients, loss 0.27: asynchronous
# asynchronous, mean staleness of each worker: 2.1 2.2 2.0 16.2
# ```
#
# About 2.5 / 0.025 = 100 for one machine. A synchronous step takes as long as its slowest worker: about
# 2.5 / 0.150 = 17 steps of 4 gradients make about 67 (the last one may be cut off), so *four* machines
# achieve less than *one*. Asynchronously each makes what it can, 3 · 100 + 17 = 317. Calls take time,
# too, which keeps one machine and the asynchronous run below these numbers.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
made = {name: sum(run.made) for name, run in runs.items()}
loss = {name: run.curve[-1, 2] for name, run in runs.items()}
assert made["synchronous"] < made["one machine"] < made["asynchronous"] / 1.5
assert 1.5 < np.mean(np.concatenate(runs["asynchronous"].staleness)) < 3.2
assert loss["asynchronous"] < min(loss["one machine"], loss["synchronous"])
same = 0.8 * min(made.values())  # gradients
assert np.ptp([np.interp(same, run.curve[:, 1], run.curve[:, 2]) for run in runs.values()]) < 0.25

# %% tags=["measured"] jupyter={"source_hidden": true}
figure, both = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for (name, run), color in zip(runs.items(), (GRAY, PURPLE, GREEN)):
    seconds, gradients, losses = run.curve.T
    both[0].plot(seconds, losses, color=color, label=name)
    both[1].plot(gradients, losses, color=color, drawstyle="steps-post")
both[0].set(xlabel="seconds", ylabel="loss on all rows for training", ylim=(0, None))
both[1].set(xlabel="gradients", xlim=(0, made["one machine"]))
both[0].legend(loc="lower left")
show(
    figure,
    "Left: loss against seconds. With a straggler the asynchronous run falls fastest, then one "
    "machine; the synchronous run of four workers is slowest. Right: the same losses against the "
    "number of gradients: there the three curves lie close together.",
)

# %% [markdown]
# The left panel is about the straggler: four equal machines, with times that vary as here, would compute
# about three quarters as many gradients with a barrier as without one (exercise 2). Against *gradients*,
# on the right, the runs lie close together: at this rate a stale gradient is worth nearly as much as a
# fresh one. Asynchrony buys gradients per second and pays with progress per gradient. How much depends
# on the learning rate and the number of workers. (This is one run of each kind;
# [Scaling](../Measurements/Scaling/) measures up to 16 processes.)

# %% [markdown]
# ## Exercises
# **1. Who is stale?** ★★☆ Asynchronous worker k takes `seconds[k]` from one pull to the next, and
# nearly all of them lie between its pull and its push. How stale are its pushes on average? Write
# the formula as a function. The solution compares it with the run above, `late`.
#
# <details><summary>Hint</summary>
#
# How many pushes does worker j make in `seconds[k]`? Add them up over all *other* workers.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    two, different = np.array([1.0, 1.0]), np.array([1.0, 4.0])
    of_two, of_different = answer(two), answer(different)
    if np.shape(of_two) != (2,) or np.shape(of_different) != (2,):
        return "return one number for each worker"
    if np.allclose(of_two, 2):
        return "two equal workers: each misses one update, because its own pushes do not count"
    if not np.allclose(of_two, 1):
        return "two equal workers miss one update each, and you have %s" % (of_two,)
    if np.allclose(of_different, [4, 0.25]):
        return "it is the *slow* worker that misses many updates, not the fast one"
    if np.allclose(of_different, 1):
        return "n - 1 is the mean over all pushes; a slow worker misses more than a fast one"
    if not np.allclose(of_different, [0.25, 4]):
        return "for 1 and 4 seconds the answer is 0.25 and 4"
    of_three = answer(np.array([1.0, 2.0, 2.0]))
    if np.shape(of_three) != (3,) or not np.allclose(of_three, [1, 3, 3]):
        return "right for two workers, but not for three"


# %%
# Your answer to exercise 1
def answer_1(seconds):
    """Returns the mean staleness of each worker: [n]. seconds: of a round of each worker, [n]."""
    raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_1(seconds):
#     return seconds * np.sum(1 / seconds) - 1  # all pushes in that time, without its own
#
# assert check_1(answer_1)
# print("formula: ", np.round(answer_1(np.array(PAUSES)), 1))
# print("measured:", np.round(late, 1))
# ```
#
# By the formula the straggler's pushes are 18 updates late, those of the others 2.2. Fast workers
# push more often, so the mean over all pushes is n − 1 = 3. What was measured lies below: a ticket
# that another takes between a worker's push and its next pull makes nobody stale, and calls make
# the others' rounds longer.
#
# </details>

# %% [markdown]
# **2. Change it, and say why.** ★☆☆ With a straggler of 150 ms four synchronous machines compute fewer
# gradients than one. Change its pause in `PAUSES`, and run
# `sum(train(PAUSES, synchronous=True, **on_ps).made)` until they compute clearly more: at least 1.3 times
# as many. Give such a pause in seconds, and the pause at which four with a barrier would compute just as
# many as one.
#
# <details><summary>Hint</summary>
#
# How many gradients a second does one fast machine compute, and how many has a step that takes as
# long as the straggler?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (the straggler's pause, the pause at which four equal one)"
    pause, equal = float(answer[0]), float(answer[1])
    if not 0 <= pause < 60:
        return "a pause is a number of seconds, of at least 0"
    if pause >= 1:
        return "%g s: the pauses of the run are given in seconds, and all are below 1" % pause
    if pause >= 0.08:
        rate = "%.3g gradients a second, and one 40: not clearly more" % (4 / pause)
        return "with %g s four machines compute %s" % (pause, rate)
    if abs(equal - 0.025) < 0.001:
        return "with equal pauses four compute far more than one, also with a barrier"
    if not abs(equal - 0.1) <= 0.002:
        return "at the second pause a step is as long as four gradients of one fast machine"
    made = sum(train([*PAUSES[:3], pause], synchronous=True, **on_ps).made)
    alone = sum(runs["one machine"].made)
    if made < 1.3 * alone:
        return "with %g s four computed %d gradients, and one machine %d" % (pause, made, alone)


# %%
# Your answer to exercise 2: (the straggler's pause, the pause with which four equal one), in seconds
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = (0.05, 4 * 0.025)
#
# assert check_2(answer_2)
# ```
#
# A step of four gradients takes as long as the straggler: with a pause of 0.05 s that makes 4 / 0.05 =
# 80 gradients a second, where one fast machine computes 1 / 0.025 = 40. So they are ahead below 0.1 s.
# Four equal machines do not reach 160: their times vary by up to a half, and the longest of four is on
# average 1.3 times the mean, so they compute about 123. The less the times vary, the less asynchrony
# gains, and with a barrier no gradient is stale.
#
# </details>

# %%
# Stop what this notebook started.
session.close()
course.end()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html):
#   asynchronous workers at scale, and why they survive the failure of machines.
# - [HogWild](../HogWild/): the same algorithm as a script, with checkpoints and recovery.
#
# **Elsewhere:** in tf.distribute this is `ParameterServerStrategy`; in PyTorch, the Hogwild example
# with shared memory (`torch.multiprocessing`); JAX has none built in.
#
# Next: [Stale-Gradients](Stale-Gradients.ipynb), which shows what staleness does to training.
# ([Inside-a-Running-Worker](Inside-a-Running-Worker.ipynb), in part four, looks into such workers while
# they train, and stops one.)
