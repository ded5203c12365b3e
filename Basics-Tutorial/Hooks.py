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
# # Hooks
#
# A hook is an object that a `MonitoredSession` calls before and after each `run`. Logging,
# stopping, feeding: all of it can be added to a training loop without touching the loop.
#
# After this notebook you can:
# - say when each method of a hook is called, and write a hook of your own;
# - log with `LoggingTensorHook`, stop with `StopAtStepHook`, `NanTensorHook` or a rule of yours;
# - feed with `FeedFnHook`, hold a worker back with `GlobalStepWaiterHook`, end with
#   `FinalOpsHook`;
# - name the trap in each of them.
#
# 20 minutes. Before it: [Sessions](Sessions.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # nothing else silences oneDNN's notice
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import logging
import sys
import threading
import numpy as np
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

# %% [markdown]
# ## The model
# The digits, and one layer: `w <- w - lr * g(w)` on mini-batches of 32. `step` counts the updates.
# Most hooks look at it; they find it in the graph by themselves, because
# `get_or_create_global_step` has put it into a collection.

# %%
from sklearn.datasets import load_digits
digits, labels = load_digits(return_X_y=True)
digits, labels = (digits / 16).astype(np.float32), labels.astype(np.int32)

def model(lr=0.5):
    """In the present graph: (step, loss, update, accuracy)."""
    step = tf.train.get_or_create_global_step()
    x, y = tf.constant(digits), tf.constant(labels)
    w = tf.get_variable("w", [64, 10], initializer=tf.zeros_initializer())
    key = tf.stack([tf.constant(0, tf.int64), step.read_value()])  # every run: the same batches
    rows = tf.random.stateless_uniform([32], key, 0, len(digits), tf.int32)
    scores = tf.matmul(tf.gather(x, rows), w)
    loss = tf.losses.sparse_softmax_cross_entropy(tf.gather(y, rows), scores)
    update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
    return step, loss, update, tf.reduce_mean(tf.to_float(tf.nn.in_top_k(tf.matmul(x, w), y, 1)))

# %% [markdown]
# ## When a hook is called
# A hook is a subclass of `tf.train.SessionRunHook` with any of five methods. `before_run` may ask
# for tensors: they are fetched in the *same* call of `session.run` as what the loop asks for, and
# come back in `after_run`.
#
# **Predict:** the loop below calls `run` twice. Which methods are called how often, and in which
# order?

# %%
class Watch(tf.train.SessionRunHook):
    def begin(self):
        print("begin: is the graph finalized?", tf.get_default_graph().finalized)
    def after_create_session(self, session, coord):
        print("after_create_session: is it now?", session.graph.finalized)
    def before_run(self, context):
        print("  before_run: the loop asks for", context.original_args.fetches.name)
        return tf.train.SessionRunArgs(tf.train.get_global_step())
    def after_run(self, context, values):
        print("  after_run: what I asked for has come:", values.results is not None)
    def end(self, session):
        print("end: can I still run something?", session.run(tf.train.get_global_step()) == 2)

# %%
with tf.Graph().as_default():
    step, loss, update, accuracy = model()
    with tf.train.MonitoredSession(hooks=[Watch()]) as session:
        session.run(update)
        session.run(update)

# %% [markdown]
# `begin` is the last chance to add operations to the graph. `after_create_session` is called again
# when a lost session was replaced; `end` only when the loop ended without an error. Whether the
# step fetched beside the update is the one before or after it is left open; hooks that must know
# read it again in `after_run`.
#
# ## LoggingTensorHook
# It writes to TensorFlow's log. That goes to stderr by default; here a handler sends it to the
# page.
#
# **Predict:** with `every_n_iter=10`, for which of 25 runs does it log?

# %%
tf.get_logger().handlers = [logging.StreamHandler(sys.stdout)]

def train(hooks, runs=None, lr=0.5):
    """Trains until a hook stops it, or for so many runs; returns the number of runs."""
    with tf.Graph().as_default():
        step, loss, update, accuracy = model(lr)
        made = 0
        with tf.train.MonitoredSession(hooks=hooks(step, loss, accuracy)) as session:
            while not session.should_stop() and made != runs:
                session.run(update)
                made += 1
        return made

# %%
tf.logging.set_verbosity(tf.logging.INFO)
runs = train(lambda step, loss, accuracy: [tf.train.LoggingTensorHook(
    {"loss": loss}, every_n_iter=10, formatter=lambda seen: "loss %.1f" % seen["loss"])], runs=25)
tf.logging.set_verbosity(tf.logging.ERROR)

# %% [markdown]
# The 1st, 11th and 21st; the first three lines are the session's. It counts the runs of *its own*
# session, not global steps; with two workers each logs its own. In the runs between it fetches
# nothing and costs nothing. Without a `formatter` it also prints the seconds since its last line.
# At log level ERROR it says nothing, a common surprise.
#
# ## StopAtStepHook
# `last_step` is a global step; `num_steps` counts from the step at which the session begins.
#
# **Predict:** two workers share `w` and `step`, take turns, and each has
# `StopAtStepHook(last_step=20)`. Where is `step` at the end?

# %%
print("one worker: ", train(lambda *_: [tf.train.StopAtStepHook(last_step=20)]), "updates")
server = tf.train.Server.create_local_server()  # it ends with the kernel
with tf.Graph().as_default():
    step, loss, update, accuracy = model()
    chief, worker = tf.train.ChiefSessionCreator, tf.train.WorkerSessionCreator
    workers = [tf.train.MonitoredSession(
        creator(master=server.target), [tf.train.StopAtStepHook(last_step=20)]
    ) for creator in (chief, worker)]
    while not all(worker.should_stop() for worker in workers):
        for worker in workers:
            if not worker.should_stop():
                worker.run(update)
    with tf.Session(server.target) as session:
        print("two workers:", session.run(step), "updates")

# %% [markdown]
# One too many: the second worker reaches 20 and stops; the first learns it only after a run of its
# own. In turns that is one too many for each other worker. Running freely it can be more: a worker
# that fetched an old step does not look again before its next run. The examples' scripts use
# `tf.count_up_to`, which gives each number once and no more.
#
# ## NanTensorHook
# It fetches the loss in *every* run, and stops when it is NaN, with an error or without.
#
# **Predict:** the learning rate is absurd, `1e38`. Is it stopped before the 50th run, with
# `fail_on_nan_loss=False`?

# %%
def stops(step, loss, accuracy):
    return [tf.train.NanTensorHook(loss, fail_on_nan_loss=False)]

runs = train(stops, runs=50, lr=1e38)
print("stopped before the 50th run:", runs < 50)
try:
    train(lambda step, loss, _: [tf.train.NanTensorHook(loss)], runs=50, lr=1e38)
except tf.train.NanLossDuringTrainingError as error:
    print(type(error).__name__)
assert runs < 50

# %% [markdown]
# The middle line is the hook's own. It looks for NaN alone: an infinite loss passes.
# And it looks at the loss *before* the update of the same run, so that `w` is spoilt already when
# it stops: go back to a checkpoint.
#
# ## FeedFnHook
# It calls a function for the `feed_dict` of every `run`, so that the loop need not know what is
# fed.
#
# **Predict:** the loop asks for the loss at a fed mini-batch, 4 times, and once for a constant
# that needs no feed. How often is the function called?

# %%
calls = []
def next_batch():
    first = 32 * len(calls)
    calls.append(first)
    return {x: digits[first:first + 32]}

with tf.Graph().as_default():
    x, seven = tf.placeholder(tf.float32, [None, 64]), tf.constant(7)
    mean = tf.reduce_mean(x)
    with tf.train.MonitoredSession(hooks=[tf.train.FeedFnHook(next_batch)]) as session:
        seen = [session.run(mean) for k in range(4)]
        session.run(seven)
same = np.allclose(seen, [digits[32 * k:32 * k + 32].mean() for k in range(4)])
print("each run had the next batch:", same, " calls:", len(calls))
assert same and len(calls) == 5

# %% [markdown]
# Five: with every `run`, whatever it fetches. An evaluation in the same session would throw a
# mini-batch away. (`session.run_step_fn` reaches the plain session, without hooks.)
#
# ## GlobalStepWaiterHook
# It holds a worker back until the others have brought the global step to a number: so one starts
# workers one by one, because many at once do harm while `w` is still random. It looks twice a
# second.
#
# **Predict:** a second worker may begin at step 30. The first makes 20 updates and looks after it
# for 1.5 s, then makes 10 more and waits. Does the second wait at step 20? Which number has its
# first update?

# %%
first_step, ready = [], threading.Event()

class Ready(tf.train.SessionRunHook):
    def before_run(self, context):  # hooks are called in their order: this one before it waits
        ready.set()

def second_worker(server):
    with tf.Graph().as_default():
        step, loss, update, accuracy = model()
        creator = tf.train.WorkerSessionCreator(master=server.target)
        hooks = [Ready(), tf.train.GlobalStepWaiterHook(wait_until_step=30)]
        with tf.train.MonitoredSession(creator, hooks) as session:
            session.run(update)
            first_step.append(int(session.run(step)))

# %%
server = tf.train.Server.create_local_server()
thread = threading.Thread(target=second_worker, args=[server], daemon=True)
with tf.Graph().as_default():
    step, loss, update, accuracy = model()
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(master=server.target)) as session:
        thread.start()
        for _ in range(20):
            session.run(update)
        assert ready.wait(30)
        thread.join(1.5)  # three looks
        print("at step 20 it waits:", thread.is_alive())
        for _ in range(10):
            session.run(update)
        thread.join(20)
print("its first update is number", first_step[0])

# %% [markdown]
# If the first had ended at step 29, the second would wait for ever: the hook has no time limit.
#
# ## FinalOpsHook
# It runs ops when the session ends well, and keeps their values in `final_ops_values`.
#
# **Predict:** which is larger: the accuracy after 100 updates, or after 5?

# %%
def last_test(updates):
    def hooks(step, loss, accuracy):
        final.append(tf.train.FinalOpsHook({"step": step, "accuracy": accuracy}))
        return [tf.train.StopAtStepHook(last_step=updates), final[-1]]
    final = []
    train(hooks)
    return final[0].final_ops_values

for values in last_test(5), last_test(100):
    print("%d updates: accuracy %.0f%%" % (values["step"], 100 * values["accuracy"]))

# %% [markdown]
# A test at the end that the loop does not contain. After an error in the loop it is not made, as
# `end` is not called.
#
# ## A hook of one's own
# A rule to stop by: enough is enough. It asks for the accuracy in every 10th run only, because
# that costs time.
#
# **Predict:** it asks the session to stop at 90%. What does the loop have to do for that?

# %%
class StopWhenGood(tf.train.SessionRunHook):
    def __init__(self, accuracy, enough, every=10):
        self.accuracy, self.enough, self.every, self.runs = accuracy, enough, every, 0

    def before_run(self, context):
        self.runs += 1
        if self.runs % self.every == 0:
            return tf.train.SessionRunArgs(self.accuracy)

    def after_run(self, context, values):
        if values.results is not None and values.results >= self.enough:
            context.request_stop()

# %%
runs = train(lambda step, loss, accuracy: [StopWhenGood(accuracy, 0.9)], runs=1000)
print("stopped before the 1000th run, at a multiple of 10:", runs < 1000 and runs % 10 == 0)
assert runs < 1000 and runs % 10 == 0

# %%
# Stop what this notebook started.
thread.join(timeout=20)  # the servers end with the kernel; nothing else is left
assert not thread.is_alive()

# %% [markdown]
# ## Exercises
# The loop had to do nothing but ask `session.should_stop()`. The hooks that write files are next:
# [Hooks-with-Files](Hooks-with-Files.ipynb). The examples write their own loops instead, and say
# why: [HogWild](../HogWild/).

# %% [markdown]
# **1. Exactly twenty.** Stop the two workers of above exactly at 20, whichever comes first: make
# `tf.count_up_to` part of the update.
# <details><summary>Solution</summary>
#
# ```python
# server = tf.train.Server.create_local_server()
# with tf.Graph().as_default():
#     step, w = tf.train.get_or_create_global_step(), tf.get_variable("w", initializer=0.0)
#     with tf.control_dependencies([tf.count_up_to(step, 20)]):  # fails where there is none left
#         update = w.assign_add(1.0)
#     chief, worker = tf.train.ChiefSessionCreator, tf.train.WorkerSessionCreator
#     workers = [tf.train.MonitoredSession(creator(master=server.target))
#                for creator in (chief, worker)]
#     for k in range(30):
#         try:
#             workers[k % 2].run(update)
#         except tf.errors.OutOfRangeError:  # a `with` block would end in peace
#             pass
#     with tf.Session(server.target) as session:
#         assert session.run([step, w]) == [20, 20.0]
# ```
#
# </details>

# %% [markdown]
# **2. Infinity.** Show that `NanTensorHook` lets an infinite loss pass.
# <details><summary>Solution</summary>
#
# ```python
# runs = 0
# with tf.Graph().as_default(), tf.train.MonitoredSession(
#         hooks=[tf.train.NanTensorHook(tf.constant(np.inf))]) as session:
#     while runs < 5 and not session.should_stop():
#         session.run([])
#         runs += 1
# assert runs == 5
# ```
# </details>

# %% [markdown]
# **3. A bad end.** Show that `end` is not called when the loop fails.
# <details><summary>Solution</summary>
#
# ```python
# hook = tf.train.FinalOpsHook([])
# try:
#     with tf.Graph().as_default(), tf.train.MonitoredSession(hooks=[hook]) as session:
#         raise KeyError
# except KeyError:
#     assert hook.final_ops_values is None
# ```
#
# </details>
