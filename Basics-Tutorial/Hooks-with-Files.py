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
# # Hooks with files
#
# Three hooks leave files behind: checkpoints, from which a run goes on, and events, which
# TensorBoard draws.
#
# After this notebook you can:
# - save and restore with `CheckpointSaverHook`, and say at which steps it saves;
# - write a loss curve with `SummarySaverHook` and a rate with `StepCounterHook`, and read the file
#   they write;
# - say which of them `MonitoredTrainingSession` adds by itself, and to which worker.
#
# 15 minutes. Before it: [Hooks](Hooks.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # nothing else silences oneDNN's notice
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import glob
import shutil
import tempfile
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

# %% [markdown]
# ## The model
# That of [Hooks](Hooks.ipynb): the digits and one layer, `w <- w - lr * g(w)` on mini-batches of
# 32, drawn anew for each step. So a run that goes on from a checkpoint draws the batches that it
# would have drawn without the break.

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

# %%
folder = tempfile.mkdtemp()  # removed at the end
def train(name, hooks, updates, restore=False):
    """Trains in a new graph, so many updates; returns the losses that the loop has seen."""
    path, losses = os.path.join(folder, name), []
    with tf.Graph().as_default():
        step, loss, update, accuracy = model()
        creator = tf.train.ChiefSessionCreator(checkpoint_dir=path if restore else None)
        with tf.train.MonitoredSession(creator, hooks(path, loss)) as session:
            for _ in range(updates):
                losses.append(session.run([update, loss])[1])
    return losses

def saved(name):
    files = glob.glob(os.path.join(folder, name, "*.index"))
    return sorted(int(file[:-6].rsplit("-", 1)[1]) for file in files)

# %% [markdown]
# ## CheckpointSaverHook
# It saves every `save_steps` steps, or every `save_secs` seconds.
#
# **Predict:** `save_steps=10`, and 25 updates. At which steps does it save?

# %%
def keep(path, loss):
    return [tf.train.CheckpointSaverHook(path, save_steps=10, saver=tf.train.Saver())]

first = train("checkpoints", keep, updates=25)
print("saved at steps", saved("checkpoints"))
assert saved("checkpoints") == [0, 10, 20, 25]

# %% [markdown]
# At the begin, every 10 steps, and at the end. What is saved: all global variables, so `w` and
# `step`.
#
# **Predict:** the same run goes on in a new graph, for 10 more updates. Are these the updates that
# 35 in one go would have made? What would happen without `restore`?

# %%
more = train("checkpoints", keep, updates=10, restore=True)
in_one_go = train("other", keep, updates=35)
print("after the break as without it:", np.allclose(first + more, in_one_go, atol=1e-5))
anew = train("third", keep, 10)
print("without restore, as from the start:", np.allclose(anew, first[:10], atol=1e-5))
print("saved at steps", saved("checkpoints"))
assert np.allclose(first + more, in_one_go, atol=1e-5)

# %% [markdown]
# The hook only *saves*. It is the session creator that *restores*, from its `checkpoint_dir`;
# nothing is said when that is forgotten, and the run begins anew. A `Saver` keeps its last five
# files; those of a run before it are not its own.
#
# A *listener* is called around each save, and can ask to stop.
#
# **Predict:** this one asks to stop at its third save. After how many updates is that, with
# `save_steps=10`?

# %%
class ThreeAreEnough(tf.train.CheckpointSaverListener):
    saves = 0

    def after_save(self, session, global_step_value):
        self.saves += 1
        return self.saves == 3  # True: stop
with tf.Graph().as_default():
    step, loss, update, accuracy = model()
    hook = tf.train.CheckpointSaverHook(
        os.path.join(folder, "listener"), save_steps=10, saver=tf.train.Saver(),
        listeners=[ThreeAreEnough()])
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(update)
print("saved at steps", saved("listener"))

# %% [markdown]
# ## SummarySaverHook
# It writes what summary ops yield into a file of events. We read that file ourselves, and draw what
# TensorBoard would.
#
# **Predict:** `save_steps=10`, and 100 updates. At which step is the first point, and how far
# apart are the others?

# %%
def events(name, tag):
    tf.summary.FileWriterCache.clear()  # closes the files: until then a part of them is in memory
    files = sorted(glob.glob(os.path.join(folder, name, "events*")))
    return [(event.step, value.simple_value)
            for file in files for event in tf.train.summary_iterator(file)
            for value in event.summary.value if value.tag == tag]

def summarise(path, loss):
    summary = tf.summary.scalar("loss", loss)
    return [tf.train.SummarySaverHook(save_steps=10, output_dir=path, summary_op=summary)]

losses = train("summaries", summarise, updates=100)
curve = events("summaries", "loss")
steps = np.array([step for step, _ in curve])
print("the first at step", steps[0], " the others 9 or 10 apart:", {*np.diff(steps)} <= {9, 10})

# %% [markdown]
# The hook fetches `step` beside the update and adds one, to know which step comes next. When the
# fetch came after the update, the sum is one too high: a point comes a step early. (The other
# hooks read the step again; they are exact.)
#
# **Predict:** each point is the loss of *one* mini-batch. What does a curve of them show, and what
# not?

# %%
plt.figure(figsize=(6.4, 3), dpi=80)
plt.plot(range(1, 101), losses, color="tab:blue", alpha=0.35, label="the loop: every mini-batch")
# The hook reads the step while the update moves it: a point may be for a step earlier.
plt.plot(*zip(*curve), "o", markersize=3, color="tab:blue", label="the file of events")
plt.xlabel("update")
plt.ylabel("loss")
plt.legend(loc="upper right")
plt.tight_layout()
plt.show()
assert all(np.isclose(value, losses[step - 1], atol=1e-5) for step, value in curve)

# %% [markdown]
# It shows the trend, and hides how much the mini-batches differ.
#
# ## StepCounterHook
# It divides global steps by seconds, and writes `global_step/sec` to the events and to the log.
#
# **Predict:** `every_n_steps=10`, and 35 updates. How many rates does it write? One worker of two
# makes the updates: is it that worker's rate, or both workers'?

# %%
def count(path, loss):
    return [tf.train.StepCounterHook(every_n_steps=10, output_dir=path)]

train("rates", count, updates=35)
rates = events("rates", "global_step/sec")
print("rates written at steps", [step for step, _ in rates])
print("all above zero:", all(rate > 0 for _, rate in rates))

# %% [markdown]
# The clock starts at the first look, so that the time in which the graph is set up is not counted.
# It counts the *global* step: both workers' rate, whoever looks. It warns when two runs see the
# same step, which a second worker that only tests would cause.
#
# ## What MonitoredTrainingSession adds
# **Predict:** two sessions on one server, one as the chief and one not, each with a
# `checkpoint_dir` of its own. Which files does each write?

# %%
server = tf.train.Server.create_local_server()  # it ends with the kernel
for name in "chief", "worker":
    with tf.Graph().as_default():
        step, loss, update, accuracy = model()
        tf.summary.scalar("loss", loss)
        with tf.train.MonitoredTrainingSession(
                server.target, name == "chief", os.path.join(folder, name),
                save_checkpoint_steps=20, save_summaries_steps=10,
                log_step_count_steps=10) as session:
            for _ in range(40):
                session.run(update)
    print("%-7s checkpoints %s, losses: %s, rates: %s" % (
        name, saved(name), bool(events(name, "loss")), bool(events(name, "global_step/sec"))))
assert not os.path.exists(os.path.join(folder, "worker"))

# %% [markdown]
# The chief has all three, the worker none. By default the chief saves every 600 seconds and writes
# summaries and the rate every 100 steps; 0 or `None` for the numbers turns a hook off. A summary
# op is found by `tf.summary.merge_all`.

# %%
# Stop what this notebook started.
shutil.rmtree(folder)  # the server ends with the kernel

# %% [markdown]
# ## Exercises
# The examples call a `Saver` themselves, because these hooks fetch the step in every run, from the
# ps: [HogWild](../HogWild/). Next: [TF2-Strategies](TF2-Strategies.ipynb).

# %% [markdown]
# **1. Not all of it.** Save `step` alone. Which names are in the checkpoint?
# <details><summary>Solution</summary>
#
# ```python
# def step_alone(path, loss):
#     saver = tf.train.Saver([tf.train.get_global_step()])
#     return [tf.train.CheckpointSaverHook(path, save_steps=10, saver=saver)]
#
# train("alone", step_alone, updates=5)
# names = [name for name, shape in tf.train.list_variables(os.path.join(folder, "alone"))]
# assert names == ["global_step"]
# ```
#
# </details>

# %% [markdown]
# **2. A smoother curve.** Write the mean of the last ten losses instead of one, by a hook of your
# own.
# <details><summary>Solution</summary>
#
# ```python
# class MeanLoss(tf.train.SessionRunHook):
#     def __init__(self, path, loss):
#         self.path, self.loss, self.losses = path, loss, []
#
#     def before_run(self, context):
#         return tf.train.SessionRunArgs(self.loss)
#
#     def after_run(self, context, values):
#         self.losses.append(values.results)
#         if len(self.losses) % 10 == 0:
#             value = tf.Summary.Value(tag="mean", simple_value=np.mean(self.losses[-10:]))
#             tf.summary.FileWriterCache.get(self.path).add_summary(
#                 tf.Summary(value=[value]), len(self.losses))
#
#     def end(self, session):
#         tf.summary.FileWriterCache.get(self.path).flush()
#
# means = train("means", lambda *both: [MeanLoss(*both)], updates=30)
# assert [step for step, _ in events("means", "mean")] == [10, 20, 30]
# assert np.isclose(events("means", "mean")[0][1], np.mean(means[:10]))
# ```
#
# </details>

# %% [markdown]
# **3. After an error.** The loop fails at update 15, with `save_steps=10`. From which step can it
# go on?
# <details><summary>Solution</summary>
#
# ```python
# try:
#     with tf.Graph().as_default():
#         step, loss, update, accuracy = model()
#         hooks = keep(os.path.join(folder, "broken"), loss)
#         with tf.train.MonitoredSession(hooks=hooks) as session:
#             for k in range(15):
#                 session.run(update)
#             raise KeyError
# except KeyError:
#     assert saved("broken") == [0, 10]  # `end` was not called
# ```
#
# </details>
