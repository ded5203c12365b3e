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
# Worker 0 trains a model, worker 1 opens the same one and finds another, and nobody gets an error. None
# of the four mistakes of this notebook raises one, and often the program even learns. For each one
# you find a number that exposes it, explain the cause, and fix it. All are about variables: where they
# live, when they are read, and whether they are updated at all.
#
# After this notebook you can:
# - tell from devices whether a variable is shared, and whether a ps computes;
# - read a variable after its update, and not before it;
# - find out whether an update runs at all;
# - write a training program for two parameter servers and a worker on your own.
#
# **Before it:** [Graphs-and-Sessions](Graphs-and-Sessions.ipynb), [Servers](Servers.ipynb),
# [Parameter-Server](Parameter-Server.ipynb), [Sessions](Sessions.ipynb). **Time:** 40 minutes,
# and 90 for the project.

# %% [markdown]
# ## Where variables and operations are placed
# Here are three ways to place the same model on one ps and two workers:
#
# ![Three placements of a model on one ps and two workers. "/cpu:0": each worker has its own w and its own loss. "/job:ps/task:0": w and the loss are on the ps. The setter: w is on the ps, and each worker computes its loss.](../docs/figures/placements.svg)
#
# Only the placement on the right is data parallelism with a parameter server. Our three servers all
# run in this process.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np
import tensorflow.compat.v1 as tf
from course import new_cluster

course.begin()

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()
lr = 0.2
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
workers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
limit = tf.ConfigProto(operation_timeout_in_ms=20_000)  # a call may take 20 s

# %% [markdown]
# ## Mistake 1: half a device name
# `tf.device("/cpu:0")` is half a name: it names the device, but neither job nor task. The opposite
# mistake, `tf.device("/job:ps/task:0")` around the whole model, puts everything on the ps.
#
# Worker 0 trains the model with 300 updates. Then worker 1 makes the same model and tests it. Each
# worker initialises the variables only if they have no values yet.


# %%
def train_then_test(name, device_of):
    """Worker 0 trains, then worker 1 tests. Returns the accuracy that each finds, w, the loss."""
    accuracies = []
    for k in 0, 1:
        with tf.Graph().as_default(), tf.Session(workers[k].target, config=limit) as session:
            with tf.device(device_of(k)):
                w = course.variables(name + "_")
                step = tf.get_variable(name + "_step", initializer=tf.constant(0, tf.int64))
                loss = course.loss(w, *course.batch(x, y, step))
                update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
                accuracy = course.accuracy(w, x_test, y_test)
            if session.run(tf.report_uninitialized_variables()).size > 0:
                session.run(tf.global_variables_initializer())
            if k == 0:
                for _ in range(300):
                    session.run(update)
            accuracies.append(session.run(accuracy))
    return accuracies, w, loss


def report(title, accuracies, w, loss):
    found = [100 * accuracy for accuracy in accuracies]
    print("%s\n   worker 0 finds %2.0f%%, worker 1 finds %2.0f%%" % (title, *found))
    print("   W1: %s   loss: %s" % (w[0].device, loss.device))


# %% [markdown]
# **Predict:** worker 0 reaches about 97% on the test digits. How accurate is the model that worker 1
# finds, in each of the first two placements of the figure?

# %% tags=["predicted"]
local = train_then_test("local", lambda k: "/cpu:0")
report("/cpu:0", *local)
on_ps = train_then_test("on_ps", lambda k: "/job:ps/task:0/cpu:0")
report("/job:ps/task:0/cpu:0", *on_ps)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# /cpu:0
#    worker 0 finds 97%, worker 1 finds  9%
#    W1: /device:CPU:0   loss: /device:CPU:0
# /job:ps/task:0/cpu:0
#    worker 0 finds 97%, worker 1 finds 97%
#    W1: /job:ps/task:0/device:CPU:0   loss: /job:ps/task:0/device:CPU:0
# ```
#
# With `/cpu:0` the session fills in the task that it is connected to, so worker 1 has a `w` of its
# own. With the ps in the name it finds the trained `w`; but the ps computes all gradients.
#
# </details>
#
# **Fixed:** `replica_device_setter` places variables on the ps and everything else on the worker. A
# test compares the devices of the variables and of the loss.

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert local[0][1] < 0.2 and on_ps[0][1] > 0.95


# %%
def misplaced(w, loss):
    not_shared = [v.op.name for v in w if not v.device.startswith("/job:ps/")]
    return not_shared + ["the loss"] * (not loss.device.startswith("/job:worker/"))


def setter(k):
    return tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:%d" % k)


placed_well = train_then_test("placed_well", setter)
report("replica_device_setter", *placed_well)
for _, w, loss in local, on_ps, placed_well:
    print("misplaced:", ", ".join(misplaced(w, loss)) or "nothing")

# %% [markdown]
# The other three mistakes need only one worker.
#
# ## Mistake 2: an old value that changes
# (In code of TensorFlow 1 only.) You keep `old = tf.identity(v)`, update `v`, and subtract. A *reference
# variable*, which `tf.disable_v2_behavior()` brings back, gives its memory and no copy, so the
# difference is zero. **Fixed:** call `tf.enable_resource_variables()` right after it, as `course` does.


# %% jupyter={"source_hidden": true}
def moved_by(use_resource):
    """Returns how far a program believes that its update has moved w."""
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=np.ones(1000, "float32"), use_resource=use_resource)
        old = tf.identity(v)
        with tf.control_dependencies([old]):
            update = v.assign_sub(0.5 * tf.ones(1000))
        with tf.control_dependencies([update]):
            moved = tf.reduce_max(old - v.read_value())
        session.run(v.initializer)
        return session.run(moved)


print("reference variable: moved by", moved_by(use_resource=False))
print("resource variable:  moved by", moved_by(use_resource=True))
assert moved_by(False) == 0 and moved_by(True) == 0.5

# %% [markdown]
# ## Mistake 3: a read that is too early
# You want to log the loss *after* each update, so the line that computes it stands within
# `tf.control_dependencies(update)`. Is that enough?


# %%
def logged_losses(value_to_test, updates=4):
    """Prints and returns, after each update, the loss that the program logs, and the true loss."""
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int64, [])
        w = course.variables()
        pulled = [v.read_value() for v in w]
        g = tf.gradients(course.loss(pulled, *course.batch(x, y, number)), pulled)
        update = [v.assign_sub(lr * d) for v, d in zip(w, g)]
        with tf.control_dependencies(update):
            logged = course.loss(value_to_test(w, pulled), x, y)
        true_loss = course.loss(w, x, y)  # in a run of its own
        session.run(tf.global_variables_initializer())
        losses = []
        for t in range(updates):
            losses.append([session.run(logged, {number: t}), session.run(true_loss)])
            print("after update %d: logged %.3f, true loss %.3f" % (t + 1, *losses[-1]))
    return np.array(losses)


# %% [markdown]
# **Predict:** this program logs the loss at `pulled`, within the control dependency. How do the two
# columns differ?

# %% tags=["predicted"]
early = logged_losses(lambda w, pulled: pulled)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# after update 1: logged 2.332, true loss 2.305
# after update 2: logged 2.305, true loss 2.288
# after update 3: logged 2.288, true loss 2.131
# after update 4: logged 2.131, true loss 2.082
# ```
#
# The log is one update behind. The ops that compute the loss did wait for the update, but their input
# `pulled` had been read before it. A control dependency makes an op wait; it does not renew the op's
# inputs.
#
# </details>
#
# **Fixed:** read the variable again, within the control dependency.

# %%
fresh = logged_losses(lambda w, pulled: [v.read_value() for v in w])

# %% jupyter={"source_hidden": true}
# The answer and the fix, checked.
assert np.allclose(early[1:, 0], early[:-1, 1], rtol=1e-5)
assert np.allclose(fresh[:, 0], fresh[:, 1], rtol=1e-5)

# %% [markdown]
# The same holds for `session.run([update, w])`: nothing orders the read and the update, so you get
# either value. A worker that pulls in this way may train with a `w` that is one update too old.
#
# ## Mistake 4: an update beside the training
# Some variables have an update op of their own: the moving mean of a BatchNormalization layer, or a
# moving average of the weights. `tf.train.ExponentialMovingAverage` keeps a smoothed copy of `w`,
# which many programs export: `average <- 0.95 * average + 0.05 * w`. Its method `apply` returns the
# op that does this.


# %%
def final_accuracies(run_the_average, updates=300):
    """Returns the accuracy of w and of its moving average in percent, at the end."""
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int64, [])
        w = course.variables()
        loss = course.loss(w, *course.batch(x, y, number))
        train = tf.train.GradientDescentOptimizer(lr).minimize(loss)
        moving = tf.train.ExponentialMovingAverage(decay=0.95)
        with tf.control_dependencies([train]):
            update_average = moving.apply(w)
        if run_the_average:
            train = update_average  # it needs the gradient step, so both run
        averages = [moving.average(v) for v in w]
        tests = [course.accuracy(some, x_test, y_test) for some in (w, averages)]
        session.run(tf.global_variables_initializer())
        for t in range(updates):
            session.run(train, {number: t})
        return 100 * np.array(session.run(tests))


# %% [markdown]
# The program makes that op so that it waits for the training op `train`. Then it runs `train` 300 times:

# %%
forgotten = final_accuracies(run_the_average=False)
print("at the end: w %.0f%%, its average %.0f%%" % tuple(forgotten))

# %% [markdown]
# The average is no better than guessing, because it still has its first values. Its op waits for `train`,
# but `train` does not need it, so it never ran. Keras' `fit` runs such updates for you.
#
# **Fixed:** run the last op of the chain, which needs both.

# %%
fixed = final_accuracies(run_the_average=True)
print("at the end: w %.0f%%, its average %.0f%%" % tuple(fixed))

# %% jupyter={"source_hidden": true}
# The answer and the fix, checked.
assert forgotten[1] < 20 and fixed[1] > 95

# %% [markdown]
# With all four mistakes the training loss falls. So look elsewhere: at devices, at a difference
# that must not be 0, at the loss in a run of its own, at the accuracy of what you export.
#
# ## Exercises
# **1. A counter of its own.** ★☆☆ Each worker's program makes its counter `step` *before* the line
# `with tf.device(setter(k)):`, and the model within it; each update adds 1 to `step`. Worker 0 makes
# 30 updates, then worker 1 makes 20. Which number does each of them read from `step` at the end?
#
# <details><summary>Hint</summary>
#
# Which device does the counter have? An empty part of a name is filled in as in mistake 1.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (worker 0, worker 1)"
    if tuple(answer) == (50, 50):
        return "that would be a shared counter; but no ps is in its device name"
    if tuple(answer) == (30, 50):
        return "for worker 1 to go on from 30, both would have to use the same variable"
    if tuple(answer) != (30, 20):
        return "each session fills in the task that it is connected to"


# %%
# Your answer to exercise 1
answer_1 = ...  # (worker 0, worker 1)

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = 30, 20
#
# assert check_1(answer_1)
# with tf.Graph().as_default():
#     step = tf.train.get_or_create_global_step()
#     with tf.device(setter(0)):
#         w = course.variables()
# assert step.device == ""  # each session fills in its own task: every worker counts for itself
# assert all(v.device == "/job:ps/task:0" for v in w)
# ```
#
# </details>

# %% [markdown]
# **2. What will run.** ★★☆ Write `needed(op)`: the set of all ops that a fetch of `op` executes. For
# `train` of mistake 4 it must leave the moving average out.
#
# <details><summary>Hint</summary>
#
# Start at `op`, and follow `op.inputs` (their `.op`) and `op.control_inputs` backwards until you
# find nothing new.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    with tf.Graph().as_default():
        w = course.variables()
        train = tf.train.GradientDescentOptimizer(lr).minimize(course.loss(w, x, y))
        moving = tf.train.ExponentialMovingAverage(decay=0.95)
        with tf.control_dependencies([train]):
            update_average = moving.apply(w)
        of_train, of_both = set(answer(train)), set(answer(update_average))
        averages = {moving.average(v).handle.op for v in w}
        if not all(isinstance(op, tf.Operation) for op in of_train | of_both):
            return "the set must hold operations; a tensor has its operation in `.op`"
        if train not in of_train:
            return "a fetch of `op` executes `op` itself, too"
        if averages & of_train:
            return "`train` does not need the variables of the average"
        if train not in of_both:
            return "the average waits for `train`: follow `control_inputs`, too"
        if not {v.handle.op for v in w} <= of_train:
            return "follow the inputs of the inputs, until nothing new comes"
        graph = tf.get_default_graph()
        for op, found in (train, of_train), (update_average, of_both):
            nodes = tf.graph_util.extract_sub_graph(graph.as_graph_def(), [op.name]).node
            wanted = {node.name for node in nodes}
            wrong = sorted(wanted.symmetric_difference(one.name for one in found))
            if wrong:
                state = "missing from" if wrong[0] in wanted else "too much in"
                return "%s is %s the set of `%s`" % (wrong[0], state, op.name)


# %%
# Your answer to exercise 2
def answer_2(op):
    """Returns the set of all operations that a fetch of op executes."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(op):
#     found, to_visit = set(), [op]
#     while to_visit:
#         op = to_visit.pop()
#         if op not in found:
#             found.add(op)
#             to_visit += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
#     return found
#
# assert check_2(answer_2)
# ```
#
# </details>

# %% [markdown]
# ## The project of part one
# **Project. Two servers and a worker.** ★★★ Write two programs: `server.py` for each of two parameter
# servers, and `train.py` for one worker, which trains until at least 95% of the test digits are
# classified correctly. It prints these lines (the numbers are yours):
#
# ```text
# W1 is on /job:ps/task:1
# b1 is on ...
# bytes of an update: ...
# accuracy: 96.1%
# ```
#
# `answer_project()` starts the cluster with `course.start`, and returns what the worker printed.
#
# <details><summary>Hint</summary>
#
# 1. `server.py` is that of [Servers](Servers.ipynb). Begin each file's cell with `%%writefile`.
# 2. In `train.py`: read TF_CONFIG, start the worker's server (`course.task()` does both), and build the
#    model within `replica_device_setter(cluster=...)`. The model and the data are in `course`.
# 3. `tf.Session(server.target, config=limit)` makes the session; `limit` is a ConfigProto with a time
#    limit. The worker is the only one, so it also initialises the variables.
# 4. Print `v.device` for each variable. Which ps has nearly all the bytes, and why?
# 5. `course.transfers(session, update)` counts the bytes of one update. Expect the size of `w`
#    twice, and a little more: the number of the mini-batch is read from the step counter, on a ps.
# 6. Train for 300 updates, and test.
# 7. In `answer_project`: `new_cluster(ps=2, worker=1)`, `course.start` both servers and the worker,
#    `course.finish` the worker, `course.stop` the servers, return what the worker printed.
#
# </details>


# %% jupyter={"source_hidden": true}
import re


@course.exercise
def check_project(answer):
    """What is wrong in words, or None."""
    before = len(course.processes)
    printed = answer()
    if not isinstance(printed, str):
        return "return what the worker printed, the result of `course.finish`"
    homes = dict(re.findall(r"^(W1|b1|W2|b2) is on (\S+)", printed, re.M))
    sent = re.search(r"^bytes of an update: (\d+)", printed, re.M)
    accuracy = re.search(r"^accuracy: ([\d.]+)%", printed, re.M)
    if len(homes) < 4 or not sent or not accuracy:
        return "a line is missing or looks otherwise; printed was: %s" % printed[-300:]
    if not all(home.startswith("/job:ps/") for home in homes.values()):
        return "a variable is not on a ps: mistake 1"
    if len(set(homes.values())) < 2:
        return "all variables are on one ps, and the other is idle"
    if int(sent[1]) < 9640 * 2:
        return "w has 9,640 bytes, and an update moves it there and lr * g back"
    if int(sent[1]) > 9640 * 2 + 1000:
        return "that is far more than w and lr * g: is the loss on a ps, or the data?"
    if float(accuracy[1]) < 95:
        return "fewer than 95% of the test digits are right: train longer"
    started = {process.log.stem: process for process in course.processes[before:]}
    if missing := {"ps-0", "ps-1", "worker-0"} - set(started):
        return "your answer has not started " + ", ".join(sorted(missing))
    if printed.strip() not in started["worker-0"].log.read_text():
        return "the worker printed something else"


# %%
# Your answer to the project
def answer_project():
    """Runs the cluster, and returns what the worker has printed."""
    raise NotImplementedError


check_project(answer_project)

# %% [markdown]
# <details><summary>Solution</summary>
#
# In your own solution each program is in a `%%writefile` cell; here a string holds its text.
#
# ```python
# import pathlib
#
# pathlib.Path("server.py").write_text("""
# import json
# import os
# import tensorflow.compat.v1 as tf
#
# config = json.loads(os.environ["TF_CONFIG"])
# task = config["task"]
# tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"]).join()
# """)
#
# pathlib.Path("train.py").write_text("""
# import course
# import tensorflow.compat.v1 as tf
#
# task = course.task()
# x, y, x_test, y_test = course.load()
#
# with tf.device(tf.train.replica_device_setter(cluster=task.cluster, worker_device=task.me)):
#     step = tf.train.get_or_create_global_step()
#     w = course.variables()
#     loss = course.loss(w, *course.batch(x, y, step))
#     update = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
#     accuracy = course.accuracy(w, x_test, y_test)
# for v in w:
#     print(v.op.name, "is on", v.device)
#
# session = tf.Session(task.server.target, config=task.limits)
# session.run(tf.global_variables_initializer())
# operations, sent = course.transfers(session, update)
# print("bytes of an update:", sum(sent.values()))
# for _ in range(299):
#     session.run(update)
# print("accuracy: %.1f%%" % (100 * session.run(accuracy)))
# """)
#
# def answer_project():
#     cluster = new_cluster(ps=2, worker=1)
#     servers = [course.start("server.py", cluster, "ps", i) for i in (0, 1)]
#     printed = course.finish(course.start("train.py", cluster, "worker"))
#     course.stop(*servers)
#     return printed
#
# assert check_project(answer_project)
# ```
#
# Round robin puts W1 and W2 on ps 1, which therefore has 98% of the bytes.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 3 and 4: what a run executes, and where.
# - Humbatova et al. 2020, [Taxonomy of Real Faults in Deep Learning
#   Systems](https://arxiv.org/abs/1910.11015), from people's own reports.
# - [Distributed-Setup](../Distributed-Setup/): the project's program as a complete example.
#
# **Elsewhere:** PyTorch, JAX and `tf.function` run your lines in order, so mistake 3 is rare there.
# Mistake 4 is not: whoever forgets to update the average sees no error there, either.
#
# Next: [Multiple-Workers](Multiple-Workers.ipynb), the first of part two: two processes train one
# `w` at the same time.
