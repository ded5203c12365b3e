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
# # Classic mistakes: practice
# A training run prints nothing for ten minutes. Is it slow, or does it wait for a task that never
# started? Another one ends with a worse model than last week's. Is that chance, or has a worker read the
# wrong rows? You will be able to go from eight such symptoms to their causes, each by one check. The last
# program of this notebook trains on when you kill a worker, and then the ps.
#
# After this notebook you can:
# - name the first check for each symptom, and the mistake that it points to;
# - give every wait a deadline, and an error that names the missing task;
# - refuse the checkpoint of another model;
# - number the updates of several workers so that no number comes twice;
# - kill tasks of a training on purpose, and prove that it survives.
#
# **Before it:** [Input-Pipelines](Input-Pipelines.ipynb),
# [Sessions-that-Recover](Sessions-that-Recover.ipynb).
# **Time:** 40 minutes, and 90 for the project.

# %% [markdown]
# ## From the symptom to the mistake
# ![Eight rows, each with a symptom, the first check and the mistake. It prints nothing: which call hits its limit, mistake 17, no deadline. A worker starts 30 s late: how often does it look, 18. The accuracy falls back: is step below the calls of run, 19, from scratch. After a restore there are errors, or old results: compare names and shapes, 20. Some classes are never right: a checksum of each worker's rows, 21, the same shard. The test is too good: which test rows have copies in the training, 22. Batches come twice: count the different numbers, 23. Each step is slower: count the ops, 24, a graph that grows.](../docs/figures/practice.svg)
#
# You know six already: 17 in [Servers](Servers.ipynb), 18 and 19 in
# [Sessions-that-Recover](Sessions-that-Recover.ipynb), 21 in [Input-Pipelines](Input-Pipelines.ipynb), 23 in
# [Sessions](Sessions.ipynb), 24 in [Graphs-and-Sessions](Graphs-and-Sessions.ipynb).

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np
import tensorflow.compat.v1 as tf
from course import attempt, finish, new_cluster, start, stop

course.begin()
x, y, x_test, y_test = course.load()

# %% [markdown]
# ## Mistake 17: a wait without a deadline
# A worker takes its rows from a queue that nobody fills. By default `session.run` would wait for ever. Two
# limits exist: for all calls of a session, or for one.

# %%
with tf.Graph().as_default():
    next_row = tf.FIFOQueue(capacity=10, dtypes=tf.int32, shapes=[[]]).dequeue()
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=500)) as session:
        print("limit of the session:", attempt(lambda: session.run(next_row)))
    with tf.Session() as session:
        limit = tf.RunOptions(timeout_in_ms=500)
        print("limit of one call:   ", attempt(lambda: session.run(next_row, options=limit)))
        try:
            session.run(next_row, options=limit)
        except tf.errors.DeadlineExceededError:
            print("your program's error: no row in 0.5 s: does the task run that reads the data?")

# %% [markdown]
# Only your program knows which task should have filled the queue, so let its error say that. A good limit is
# longer than the slowest healthy wait, such as a save.
#
# ## Mistake 20: the checkpoint of another model
# A run continues from its folder, with another model: once the names of its variables have changed, once
# the width of its hidden layer, from 32 to 64. `use` (folded) restores if there is a checkpoint, trains
# and tests.


# %% jupyter={"source_hidden": true}
def network(prefix, hidden):
    """Returns the variables of a network 64 - hidden - 10, with names that begin with a prefix."""
    random = np.random.RandomState(0)
    shapes = {"W1": [64, hidden], "b1": [hidden], "W2": [hidden, 10], "b2": [10]}
    values = {name: random.normal(0, 0.2, shape) for name, shape in shapes.items()}
    return [
        tf.get_variable(prefix + name, initializer=value.astype("float32"))
        for name, value in values.items()
    ]


def use(prefix, hidden, updates, path="checkpoints"):
    """Restores if there is something to restore, trains and tests."""
    with tf.Graph().as_default():
        step, w = tf.train.get_or_create_global_step(), network(prefix, hidden)
        loss = course.loss(w, *course.batch(x, y, step.read_value()))
        update = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
        accuracy = course.accuracy(w, x_test, y_test)
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=path, save_summaries_steps=None, log_step_count_steps=None
        ) as session:
            for _ in range(updates):
                session.run(update)
            shape, tested = session.run(w[0]).shape, 100 * session.run(accuracy)
    return "W1 %s in the graph, %s in the session, accuracy %.0f%%" % (w[0].shape, shape, tested)


print("the first run:", use("", hidden=32, updates=300))

# %% [markdown]
# **Predict:** which of the two changes does the restore notice?

# %% tags=["predicted"]
print("other names:   ", attempt(lambda: use("other_", hidden=32, updates=0)))
print("another width: ", attempt(lambda: use("", hidden=64, updates=0)))
print("and one update:", attempt(lambda: use("", hidden=64, updates=1)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# other names:    NotFoundError
# another width:  W1 (64, 64) in the graph, (64, 32) in the session, accuracy 95%
# and one update: InvalidArgumentError
# ```
#
# Only the names. The variable takes the value of the checkpoint, whatever its shape, so you test the *old*
# network. The update fails, with an error that does not mention the checkpoint.
#
# </details>
#
# One folder for each model avoids this. Otherwise compare names and shapes before you restore
# (exercise 2).
#
# ## Mistake 23: a number that two workers get
# Workers number their mini-batches by the shared global step: they read it, compute, and add 1. Meanwhile
# another worker may read the same number, but not take the same *ticket* (`tf.count_up_to`). The folded cell
# has the worst order: in each round both workers take their number before either of them updates.


# %% jupyter={"source_hidden": true}
def two_workers(take_ticket):
    """Makes 600 updates with two workers in turn; returns the numbers that they used, and the step."""
    server = tf.train.Server.create_local_server()  # it ends with the kernel
    with tf.Graph().as_default():
        step, w = tf.train.get_or_create_global_step(), course.variables()
        number = tf.placeholder(tf.int64, [])
        loss = course.loss(w, *course.batch(x, y, number))
        optimizer = tf.train.GradientDescentOptimizer(0.2)
        if take_ticket:
            take, update = tf.count_up_to(step, limit=600), optimizer.minimize(loss)
        else:
            take, update = step.read_value(), optimizer.minimize(loss, global_step=step)
        initialise = tf.global_variables_initializer()
    workers = [tf.Session(server.target, graph=take.graph) for _ in range(2)]
    workers[0].run(initialise)
    used = []
    for _ in range(300):
        numbers = [int(worker.run(take)) for worker in workers]
        for worker, own in zip(workers, numbers):
            worker.run(update, {number: own})
        used += numbers
    return used, workers[0].run(step), attempt(lambda: workers[0].run(take))


# %% [markdown]
# **Predict:** after 600 updates, how many different mini-batches were used, when the workers read and then
# add? And when they take tickets?

# %% tags=["predicted"]
for name, take_ticket in {"read, then add": False, "tickets": True}.items():
    used, step, one_more = two_workers(take_ticket)
    print("%-14s  step %d, %d different batches" % (name, step, len(set(used))), end="; ")
    print("one more number:", one_more)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# read, then add  step 600, 300 different batches; one more number: 600
# tickets         step 600, 600 different batches; one more number: OutOfRangeError
# ```
#
# The step is right in both cases, so nothing looks wrong. Without tickets half of the mini-batches were
# used twice, and half never. To add first and then read is no better.
#
# </details>
#
# The price of tickets: if a worker dies between its ticket and its update, that update is missing.
#
# ## Two that need no cluster
# - **22, leaked test rows.** If you copy images, with noise, before you set a fifth aside for the test,
#   the test has copies of the training data, and is too good. Cut first, and copy afterwards.
# - **24, a graph that grows.** `course.accuracy(...)` *builds ops*: in a loop it builds them again in each
#   round, and each round is slower. `graph.finalize()` turns that into an error; `MonitoredSession` calls
#   it for you.
#
# ## A program that survives
# Each comment names the mistake that the lines below it avoid.

# %%
# %%writefile train.py
"""One task: python train.py CHECKPOINT_DIR UPDATES. It prints each ticket that it has used."""

import sys
import time

import course
import tensorflow.compat.v1 as tf

checkpoint_dir, updates = sys.argv[1], int(sys.argv[2])
task = course.task()
k, n, server = task.k, task.n, task.server
# Mistake 17: task.limits give every call a deadline, and nobody waits for another worker
options = task.limits
if task.job == "ps":
    server.join()

x, y, _, _ = course.load()
# Mistake 21: every n-th row is this worker's
x, y = x[k::n], y[k::n]

with tf.device(tf.train.replica_device_setter(cluster=task.cluster, worker_device=task.me)):
    step, w = tf.train.get_or_create_global_step(), course.variables()
    # Mistake 23: each number once; after the last one the block below ends
    ticket = tf.count_up_to(step, updates)
    loss = course.loss(w, *course.batch(x, y, ticket, worker=k))
    update = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    with tf.control_dependencies([update]):
        used = tf.identity(ticket)

scaffold = tf.train.Scaffold()


class QuickWorker(tf.train.SessionCreator):
    def create_session(self):
        scaffold.finalize()
        manager = tf.train.SessionManager(
            ready_op=scaffold.ready_op,
            local_init_op=scaffold.local_init_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            # Mistake 18: look twice a second
            recovery_wait_secs=0.5,
        )
        return manager.wait_for_session(server.target, options, max_wait_secs=60)


class SayWhere(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        print("new session", flush=True)


hooks = [SayWhere()]
if k == 0:
    # Mistake 19: save, and restore after a loss
    creator = tf.train.ChiefSessionCreator(scaffold, server.target, options, checkpoint_dir)
    hooks.append(tf.train.CheckpointSaverHook(checkpoint_dir, save_steps=50, scaffold=scaffold))
else:
    creator = QuickWorker()

with tf.train.MonitoredSession(creator, hooks) as session:
    while not session.should_stop():
        print(int(session.run(used)), flush=True)
        time.sleep(0.01)  # as if the model were larger

# %% [markdown]
# Mistake 20 needs one folder for each model, 22 concerns the data, and 24 is an error here. One weakness is
# left: a chief that comes back restores the last checkpoint, although the model lives on the ps
# (`CarefulCreator` in [Sessions-that-Recover](Sessions-that-Recover.ipynb) fixes that).

# %% [markdown]
# ## Exercises
# **1. Name the mistake.** ★☆☆ On paper: what is the most likely mistake (17 to 24) in each case?
#
# - (a) After 8,000 calls of `run` on a single worker, `step` is 3,100. The accuracy had a dip at half time.
# - (b) Two workers print `718 rows, checksum 1f0c22d7` and `718 rows, checksum 1f0c22d7`.
# - (c) You doubled the width of a layer, and the first test gives the old accuracy, to the last digit.
# - (d) A job of 25 s shows no update of worker 1, although its log says that its server runs.
# - (e) The ps and one of two workers have been at 0% CPU for an hour; the other worker never started.
# - (f) The first 100 steps took 1 s, the last 100 took 40 s.
#
# <details><summary>Hint</summary>
#
# Which column of the figure do you need: what you see, or the result of the first check?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    why = {
        "a": (
            19,
            "4,900 calls are missing: compare the step with the calls; where did it begin again?",
        ),
        "b": (21, "the checksums are equal, so the rows are"),
        "c": (20, "a new network would be untrained; where did it get the old values?"),
        "d": (18, "how long does a worker sleep that looks before the chief is done?"),
        "e": (17, "nobody computes, and nobody fails: what do the others wait for, and how long?"),
        "f": (24, "what does a session have to prepare again, if each step is slower?"),
    }
    if not isinstance(answer, dict) or set(answer) != set(why):
        return "give a dictionary with the keys a to f"
    for case, (number, hint) in why.items():
        if answer[case] != number:
            return "(%s): %s" % (case, hint)


# %%
# Your answer to exercise 1: {"a": number, ..., "f": number}
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = {"a": 19, "b": 21, "c": 20, "d": 18, "e": 17, "f": 24}
#
# assert check_1(answer_1)
# ```
#
# In (a) a session was lost after 4,900 calls, and the next one started from scratch. In (e) each call needs
# a limit, and device filters keep a session from waiting for the task that never started.
#
# </details>

# %% [markdown]
# **2. Refuse another model's checkpoint.** ★★☆ Write `answer_2(path, variables)`: it raises a `ValueError`
# if a variable is not in the newest checkpoint of a folder, or has another shape there.
#
# <details><summary>Hint</summary>
#
# `tf.train.list_variables(path)` gives names and shapes, as lists. A variable has `op.name` and
# `shape.as_list()`.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""

    def refuses(prefix, hidden, changed=range(4)):
        with tf.Graph().as_default():
            variables = []
            for i, name in enumerate(["W1", "b1", "W2", "b2"]):
                begins, h = (prefix, hidden) if i in changed else ("", 32)
                shape = [[64, h], [h], [h, 10], [10]][i]
                variables.append(tf.get_variable(begins + name, shape))
            try:
                answer("checkpoints", variables)
            except ValueError:
                return True
        return False

    if refuses("", 32):
        return "it refuses the model that the checkpoint is of"
    if not refuses("other_", 32):
        return "it accepts variables whose names are not in the checkpoint"
    if not refuses("", 64):
        return "it accepts a layer of another width"
    for i in range(4):
        if not refuses("other_", 32, [i]) or (i < 3 and not refuses("", 64, [i])):
            return "it must look at each variable, also where only one is another"


# %%
# Your answer to exercise 2
def answer_2(path, variables):
    """Raises ValueError if the checkpoint in this folder is not one of these variables."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(path, variables):
#     stored = dict(tf.train.list_variables(path))
#     for variable in variables:
#         name, shape = variable.op.name, variable.shape.as_list()
#         if stored.get(name) != shape:
#             raise ValueError("%s: %s here, %s in the file" % (name, shape, stored.get(name)))
#
# assert check_2(answer_2)
# ```
#
# </details>

# %% [markdown]
# **Project. A drill.** ★★★ Prove that `train.py` survives. Start a ps and two workers with 1,500 updates.
# When worker 1 has used 100 tickets, kill it, and start a new one. When the new one has used 50, kill the
# ps, and start a new one. Let both workers finish. Then decide which tickets the final model comes from:
# those of updates that the ps took with it do not count. The check looks whether any of them was used twice,
# whether more than a few are missing, and whether the model recognises 96% of the test digits.
#
# <details><summary>Hint</summary>
#
# 1. `start("train.py", cluster, "worker", 1, folder, updates)` starts a task, `process.kill()` and
#    `process.wait(10)` end it, `finish(process)` waits for its end.
# 2. Two helpers are in the folded cell: `tickets(process)` gives a list of tickets for each of its
#    sessions, and `wait_until(condition)` has a deadline.
# 3. Keep the tickets of the killed worker before you start the new one: both write to the same log.
# 4. The smallest ticket after the ps came back says where the restored model stood. Of the tickets from
#    before its death, only smaller ones count.
#
# </details>


# %% jupyter={"source_hidden": true}
import os
import tempfile
import time


def wait_until(condition, seconds=60):
    """Waits until condition() is true, with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited %d s in vain" % seconds
        time.sleep(0.05)


def tickets(process):
    """Returns the tickets that a task has used: a list for each of its sessions."""
    sessions = []
    for line in process.log.read_text().splitlines(keepends=True):
        if line == "new session\n":
            sessions.append([])
        elif line.endswith("\n") and line.strip().isdigit():  # the last one may be half written
            sessions[-1].append(int(line))
    return sessions


@course.exercise
def check_project(answer):
    """What is wrong in words, or None."""
    updates, folder = 1500, tempfile.mkdtemp(dir=os.getcwd())
    try:
        killed, chief, worker, final = answer(folder, updates)
    finally:
        stop(*course.processes)
    if len(chief) < 2 or len(worker) < 2:
        return "a task has only one session, so the ps did not die and come back while they trained"
    if not sum(killed, []) or not worker[0] or not sum(worker[1:], []):
        return "worker 1 must have used tickets before it was killed, and the new one with both ps"
    if len(set(final)) < len(final):
        twice = len(final) - len(set(final))
        return "%d tickets count twice: those that the dead ps took with it do not count" % twice
    if not final or max(final) != updates - 1:
        return "the training did not come to its last ticket, %d" % (updates - 1)
    if len(final) < updates - 3:
        return "%d tickets are missing: whose are they?" % (updates - len(final))
    if tf.train.latest_checkpoint(folder) is None:
        return "there is no checkpoint in the folder: let the tasks write theirs there"
    reader = tf.train.load_checkpoint(folder)
    with tf.Graph().as_default(), tf.Session() as session:
        w = [tf.constant(reader.get_tensor(name)) for name in ("W1", "b1", "W2", "b2")]
        accuracy = session.run(course.accuracy(w, x_test, y_test))
    if accuracy < 0.96:
        return "the final model recognises only %.1f%% of the test digits" % (100 * accuracy)


# %%
# Your answer to the project
def answer_project(folder, updates):
    """Runs the drill, with checkpoints in this folder.

    Returns tickets(...) of the killed worker 1, of the chief and of the new worker 1, and the list
    of all tickets from which the final model comes.
    """
    raise NotImplementedError


check_project(answer_project)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_project(folder, updates):
#     cluster = new_cluster(ps=1, worker=2)
#     ps, chief, worker = [
#         start("train.py", cluster, job, k, folder, updates)
#         for job, k in (("ps", 0), ("worker", 0), ("worker", 1))
#     ]
#     wait_until(lambda: len(sum(tickets(worker), [])) >= 100)
#     worker.kill()
#     worker.wait(10)
#     killed = tickets(worker)
#     worker = start("train.py", cluster, "worker", 1, folder, updates)
#     wait_until(lambda: len(sum(tickets(worker), [])) >= 50)
#     ps.kill()
#     ps.wait(10)
#     ps = start("train.py", cluster, "ps", 0, folder, updates)
#     finish(chief)
#     finish(worker)
#
#     chief_before, *chief_after = tickets(chief)
#     worker_before, *worker_after = tickets(worker)
#     after = sum(chief_after + worker_after, [])
#     before = sum(killed, []) + chief_before + worker_before
#     final = [ticket for ticket in before if ticket < min(after)] + after
#     return killed, tickets(chief), tickets(worker), final
#
# assert check_project(answer_project)
# ```
#
# A few tickets may be missing, because their worker was killed, or lost its session, before it could print
# them.
#
# The drill does not prove that no *update* is lost. A ticket moves `step` before its push moves `w`. If a
# checkpoint is saved in between, its `step` already counts an update that its `w` still lacks. After a
# restore nobody makes that update, although `final` has its ticket. Synchronous training without backup
# workers avoids this, because the next update needs the chief, which is busy saving.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Sculley et al. 2015, [Hidden Technical Debt in Machine Learning
#   Systems](https://papers.nips.cc/paper/5656-hidden-technical-debt-in-machine-learning-systems).
# - Kapoor and Narayanan 2022, [Leakage and the Reproducibility Crisis in ML-based
#   Science](https://arxiv.org/abs/2207.07048): leaked test rows in 17 fields.
# - [When something goes wrong](../docs/troubleshooting.md): the errors of this repository's scripts.
#   [HogWild](../HogWild/) survives the same kills.
#
# **Elsewhere:** in PyTorch, 17 is a collective that hangs until the time-out of `init_process_group`, 20
# is an error of `load_state_dict(strict=True)`, and 21 a missing `DistributedSampler`. In
# `tf.distribute`, 21 is the wrong `AutoShardPolicy`. In JAX, 24 is a function that is compiled in each
# step.
#
# Next: this was the last notebook. Take the course to [your own cluster](../docs/your-cluster.md).
