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
# # Sessions: how processes begin and end together
# The processes of a training run start at different moments, but must begin with the same model. In the
# end all must stop: a process that waits for ever keeps its machine, and you pay. At the end of this
# notebook three processes start in any order; two make exactly 500 updates together, and all end.
#
# After this notebook you can:
# - say what happens when a worker begins too early, or initialises the model again;
# - let a chief make the model and the others wait;
# - divide a number of updates among workers exactly, with tickets;
# - write a script for ps, chief and worker in which all end;
# - say which process waits for ever when another one is missing.
#
# **Before it:** [Servers](Servers.ipynb). **Time:** 40 minutes.

# %% [markdown]
# ## The beginning
# The *chief* is the worker that also makes the model, usually worker 0.
#
# ![The beginning and the end of a run, time downwards. The worker asks the ps whether the model is ready, and sleeps until the chief has initialised or restored the variables. Both make updates until the ps answers OutOfRange, and report done; then the ps ends, too.](../docs/figures/begin.svg)
#
# First all servers run in this process, and chief and worker are two clients with a graph each. Both
# graphs have the same variables on the ps: *between-graph replication*.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import re
import tensorflow.compat.v1 as tf
from course import finish, new_cluster, start

course.begin()

# %% [markdown]
# The folded cell starts them. Its `model(k)` builds the update of worker k, as in the last notebooks; it
# also adds 1 to `step`, and returns the step after it.

# %% jupyter={"source_hidden": true}
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
configs = [  # a worker need not know the other one; a call may take 20 s
    tf.ConfigProto(
        device_filters=["/job:ps", "/job:worker/task:%d" % k], operation_timeout_in_ms=20_000
    )
    for k in (0, 1)
]
x, y, _, _ = course.load()


def model(k):
    """Builds worker k's step counter, loss and update; an update returns the step after it."""
    worker = "/job:worker/task:%d" % k
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        step = tf.train.get_or_create_global_step()
        w = course.variables()
        loss = course.loss(w, *course.batch(x, y, step))
        g = tf.gradients(loss, w)
        with tf.control_dependencies(g):
            push = tf.group(*[v.assign_sub(0.2 * d) for v, d in zip(w, g)])
        with tf.control_dependencies([push]):
            return step, loss, tf.identity(step.assign_add(1))


# %%
chief_graph, worker_graph = tf.Graph(), tf.Graph()
with chief_graph.as_default():
    step, loss, update = model(0)
    initialise = tf.global_variables_initializer()
with worker_graph.as_default():
    workers_step, _, workers_update = model(1)
    workers_initialise = tf.global_variables_initializer()
chief = tf.Session(servers[0].target, graph=chief_graph, config=configs[0])
worker = tf.Session(servers[1].target, graph=worker_graph, config=configs[1])

# %% [markdown]
# **Predict:** the worker makes an update before the chief has initialised the variables. Then the
# chief initialises them and makes 150 updates. Now the worker runs the initialiser, too, "to be
# safe". What does each of its two actions do: nothing, an error, or damage?

# %% tags=["predicted"]
try:
    worker.run(workers_update)
except tf.errors.OpError as error:
    print("the worker's early update:", type(error).__name__)
chief.run(initialise)
for _ in range(150):
    chief.run(update)
print("before the worker initialises: step %3d, loss %.2f" % tuple(chief.run([step, loss])))
worker.run(workers_initialise)
print("after it:                      step %3d, loss %.2f" % tuple(chief.run([step, loss])))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# the worker's early update: FailedPreconditionError
# before the worker initialises: step 150, loss 0.41
# after it:                      step   0, loss 2.23
# ```
#
# The first is an error, so you notice it. The second gives none, and all that the chief has learned is
# gone.
#
# </details>

# %% [markdown]
# So *one* task makes the model, and *all others* wait until it is there. To wait, a worker asks again and
# again for `tf.report_uninitialized_variables()`, until no variable lacks a value.
#
# ## Step 1: two workers and a step
# The chief makes the model once more; then both train it. Each update adds 1 to `step`, which is on the
# ps like `w`:

# %%
chief.run(initialise)
numbers = [(chief.run(update), worker.run(workers_update)) for _ in range(3)]
print("(chief, worker):", *["(%d, %d)" % pair for pair in numbers])

# %% [markdown]
# `step` counts the updates of all workers together. How do they stop after exactly 500? It is not
# enough that each stops when it reads 500 (exercise 1).
#
# ## Step 2: the ticket
# `tf.count_up_to(step, limit)` adds 1 to `step` and returns the value before. At the limit it raises
# `OutOfRangeError` instead, and adds nothing. It is atomic: no two workers can get the same number,
# which we call a *ticket*.
#
# **Predict:** `step` is 6, and the limit is 9. Chief, worker, chief and worker ask for a ticket, in
# this order. What does each get?

# %% tags=["predicted"]
with chief_graph.as_default():
    chiefs_ticket = tf.count_up_to(step, 9)
with worker_graph.as_default():
    workers_ticket = tf.count_up_to(workers_step, 9)
for name, session, ticket in 2 * [
    ("chief", chief, chiefs_ticket),
    ("worker", worker, workers_ticket),
]:
    try:
        print(name, session.run(ticket))
    except tf.errors.OutOfRangeError as error:
        print(name, type(error).__name__)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# chief 6
# worker 7
# chief 8
# worker OutOfRangeError
# ```
#
# A worker takes its ticket first and moves `w` after that, so there are exactly as many updates as
# tickets.
#
# </details>
#
# ## Step 3: the end, in three processes
# A worker ends when no tickets are left. A ps has no updates to make, and `server.join()`
# would wait for ever. So each worker reports that it is done: it puts a *token* into a `tf.FIFOQueue`
# on the ps. Each task makes this queue in its own graph, and the same `shared_name` makes it one
# queue. The ps looks from time to time how many tokens there are.
#
# One file is the program of all three tasks: a whole asynchronous training script. What it lacks,
# checkpoints and recovery, is in [Sessions-that-Recover](Sessions-that-Recover.ipynb).

# %%
# %%writefile train.py
import json
import os
import time
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()
config = json.loads(os.environ["TF_CONFIG"])
cluster, job, k = config["cluster"], config["task"]["type"], config["task"]["index"]
me, n = "/job:%s/task:%d" % (job, k), len(cluster["worker"])
server = tf.train.Server(cluster, job_name=job, task_index=k)
limits = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=60_000)
with tf.device("/job:ps/task:0"):  # a queue lives on the ps, as variables do
    done = tf.FIFOQueue(n, tf.int32, shapes=[[]], shared_name="done")


def serve():
    """The ps: runs until each worker has put a token into the queue `done`."""
    tokens = done.size()
    with tf.Session(server.target, config=limits) as session:
        while session.run(tokens) < n:
            time.sleep(0.1)
    print("ps: %d workers are done" % n)


def train():
    import course  # here, because the ps needs no data

    x, y, x_test, y_test = course.load()
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
        step = tf.train.get_or_create_global_step()
        w = course.variables()
        batch = course.batch(x, y, step.read_value(), worker=k)
        g = tf.gradients(course.loss(w, *batch), w)
        with tf.control_dependencies(g):
            ticket = tf.count_up_to(step, 500)
        with tf.control_dependencies([ticket]):
            push = tf.group(*[v.assign_sub(0.2 * d) for v, d in zip(w, g)])
        accuracy = course.accuracy(w, x_test, y_test)
        token = done.enqueue(k)
    initialise = tf.global_variables_initializer()
    missing = tf.report_uninitialized_variables()

    updates = 0
    with tf.Session(server.target, config=limits) as session:
        if k == 0:  # the chief makes the model
            session.run(initialise)
        deadline = time.monotonic() + 60
        while session.run(missing).size:  # the others wait for it
            if time.monotonic() > deadline:
                raise TimeoutError("nobody has made the model")
            time.sleep(0.2)
        try:
            while True:
                session.run(push)
                updates += 1
        except tf.errors.OutOfRangeError:  # no tickets are left
            percent = 100 * session.run(accuracy)
            print("worker %d: %d updates, accuracy %.1f%%" % (k, updates, percent))
            session.run(token)


serve() if job == "ps" else train()

# %%
cluster = new_cluster(ps=1, worker=2)
tasks = [("worker", 1), ("ps", 0), ("worker", 0)]  # the order does not matter
processes = [start("train.py", cluster, job, index) for job, index in tasks]
printed = "".join(finish(process) for process in processes)

# %% tags=["measured"]
print(printed)

# %% jupyter={"source_hidden": true}
updates = [int(number) for number in re.findall(r"(\d+) updates", printed)]
accuracies = [float(number) for number in re.findall(r"accuracy ([\d.]+)", printed)]
print("updates together:", sum(updates))
print("accuracy above 90%:", min(accuracies) > 90)
print("processes that still run:", sum(process.poll() is None for process in processes))

# %% [markdown]
# Each update needs a ticket, so there are exactly 500 of them, divided differently in each run. You can
# start the tasks in any order: before the ps is there the workers' servers try to connect, and before
# the model is there worker 1 waits.
#
# One case is missing: a worker that dies leaves no token, and our ps waits for ever. `serve` in
# [hogwild_sessions.py](../From-TensorFlow-1/HogWild-Sessions/hogwild_sessions.py) therefore waits only five minutes for the rest, once the first
# worker is done.

# %% jupyter={"source_hidden": true}
# The text, checked.
assert sum(updates) == 500 and "ps: 2 workers are done" in printed

# %% [markdown]
# ## Exercises
# **1. Without tickets.** ★☆☆ A colleague lets each worker read `step`, stop if it is 500 or more, and
# otherwise compute a gradient, push it and run `step.assign_add(1)`. How many updates can eight
# workers make at most? Use paper and pencil.
#
# <details><summary>Hint</summary>
#
# How many workers can have read 499 before one of them adds 1?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if answer == 500:
        return "between a read and its assign_add, others may read the same step"
    if answer == 501:
        return "that is the most for two workers"
    if answer == 508:
        return "one of the eight makes update 500 itself, and only the other seven are too many"
    if answer == 4000:
        return "a worker stops once it reads 500, whoever made those updates"
    if answer != 507:
        return "let step be 499, and count the workers that may still push"


# %%
# Your answer to exercise 1: a number
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# All eight read 499, and each of them goes on: 499 + 8 = 507, or $n - 1$ too many. `count_up_to`
# compares and adds in one operation on the ps, so nobody can read in between.
#
# ```python
# answer_1 = 507
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. Who never ends?** ★★☆ Four accidents happen to `train.py` with two workers. For each, name the
# tasks that never end by themselves.
#
# - a: The chief is never started.
# - b: Worker 1 is killed after its tenth update.
# - c: The ps is started 20 seconds after the workers.
# - d: Worker 1 is started when all 500 tickets are taken.
#
# <details><summary>Hint</summary>
#
# For each task that is left, find the line at which it stands. What is that line waiting for, and has
# it a limit?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    same = {"ps 0": "ps", "chief": "worker 0"}  # two names of a task

    def names(tasks):
        if isinstance(tasks, str):  # one task without its set
            tasks = [tasks]
        lower = [one.lower().strip() for one in tasks]
        return {same.get(one, one) for one in lower}

    never = {case: names(answer[case]) for case in "abcd"}
    if "worker 1" in never["a"]:
        return "a: worker 1 waits for the model, for 60 seconds, and then raises an error"
    if "ps" not in never["a"]:
        return "a: how many tokens does the ps get, if there is no chief?"
    if "worker 0" in never["b"]:
        return "b: the chief does not wait for worker 1: it takes the tickets that are left"
    if "ps" not in never["b"]:
        return "b: who puts worker 1's token into the queue?"
    if never["c"]:
        return "c: the workers' servers try to connect until the ps is there"
    if never["d"]:
        return "d: worker 1 gets OutOfRangeError at once, makes no update, and leaves its token"
    if never["a"] != {"ps"} or never["b"] != {"ps"}:
        return 'name tasks as in {"ps", "worker 1"}; a task that is not there is not meant'


# %%
# Your answer to exercise 2: {"a": ..., "b": ..., "c": ..., "d": ...}, each a set of tasks, which may
# be empty: set(), {"ps"}, {"ps", "worker 0"}, ...
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = {"a": {"ps"}, "b": {"ps"}, "c": set(), "d": set()}
#
# assert check_2(answer_2)
# ```
#
# In a, worker 1 waits for the model for 60 seconds and then ends with an error; in b, the chief
# takes all tickets that are left. In both the ps, the only task that waits without a limit, waits for
# a token that nobody will send.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 4.3 and 4.4: checkpoints, and how workers
#   are coordinated.
# - [HogWild](../HogWild/): several workers. [Your cluster](../docs/your-cluster.md): such a script on
#   machines of your own.
# - **Elsewhere:** in PyTorch, `init_process_group` is the common beginning, and rank 0 broadcasts the
#   values; `torchrun` by default ends all processes when one fails.
#
# Next: [Classic-Mistakes-Variables](Classic-Mistakes-Variables.ipynb), the end of part one.
