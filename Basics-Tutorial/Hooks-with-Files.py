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
# A training that takes days must survive a crash, and you want to see its curves while it runs. Four
# hooks write the files for that: checkpoints, from which a run continues; *events*, the points of
# the curves that TensorBoard draws; and timelines.
#
# After this notebook you can:
# - save by `CheckpointSaverHook`, and say at which steps it saves;
# - continue a run, and prove that it continued;
# - say which checkpoints a `Saver` deletes, and keep those that you need;
# - write a loss curve and a rate to an event file, and read them without TensorBoard;
# - say what `MonitoredTrainingSession` adds by itself, and to which worker.
#
# **Before it:** [Hooks](Hooks.ipynb). **Time:** 60 minutes.

# %% [markdown]
# ## Who writes what, and who reads it
# ![CheckpointSaverHook writes the files checkpoint, model.ckpt-20 in three parts, and graph.pbtxt; a session creator with this checkpoint_dir reads them. SummarySaverHook and StepCounterHook write one file of events for TensorBoard. ProfilerHook writes timeline-20.json for your browser.](../docs/figures/hook-files.svg)
#
# Note the two ends of the first row. The hook only *saves*. The *session creator*, which makes the
# session, *restores*.
#
# The other hooks of the last notebook write no files: `FinalOpsHook` keeps its values in memory,
# `LoggingTensorHook` and `NanTensorHook` write to the log. What they know you must save yourself.
#
# The folded cells hold TensorFlow and the digits, as in every notebook.

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

# %% jupyter={"source_hidden": true}
# %%writefile digits.py
# region: digits -- the same in each notebook: handwritten digits, and a network 64 - 32 - 10
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

def load():
    """1,437 rows for training and 360 for the test: x [rows, 64] from 0 to 1, y [rows]; twice."""
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order].astype("int32")
    return x[:-360], y[:-360], x[-360:], y[-360:]

def first_values(seed=0):
    """Where training begins: the weights and biases of two layers, 2,410 numbers in all."""
    random = np.random.RandomState(seed)
    layers = [random.normal(0, (2 / 64) ** 0.5, [64, 32]), np.zeros(32),
              random.normal(0, (2 / 32) ** 0.5, [32, 10]), np.zeros(10)]
    return [layer.astype("float32") for layer in layers]

def variables(name="w", seed=0, get_variable=tf.get_variable):
    """The four variables name_0 to name_3."""
    return [get_variable("%s_%d" % (name, i), initializer=value)
            for i, value in enumerate(first_values(seed))]

def outputs(w, x):
    """A score for each of the ten digits: [rows, 10]."""
    return tf.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]

def loss(w, x, y):
    """The mean cross-entropy of these rows."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs(w, x)))

def accuracy(w, x, y):
    """The share of rows whose digit has the highest score."""
    right = tf.equal(tf.argmax(outputs(w, x), 1, output_type=tf.int32), y)
    return tf.reduce_mean(tf.cast(right, tf.float32))

def batch(x, y, number, worker=0, size=32):
    """Mini-batch `number` of a worker: rows drawn by (worker, number), the same in each run."""
    rows = tf.random.stateless_uniform(
        [size], tf.stack([tf.cast(worker, tf.int64), tf.cast(number, tf.int64)]),
        0, len(x), tf.int32)
    return tf.gather(x, rows), tf.gather(y, rows)
# endregion: digits

# %% [markdown]
# The training is that of [Hooks](Hooks.ipynb). The global step numbers the mini-batches. So a run
# that continues at step 30 draws batch 30, as it would have done without the break.

# %%
import digits
import glob

x_train, y_train, x_test, y_test = digits.load()

def model(lr=0.2):
    """Builds in the current graph: w <- w - lr * g(w), and step <- step + 1."""
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
    x, y = digits.batch(x_train, y_train, step.read_value())
    loss = digits.loss(w, x, y)
    update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
    return step, w, loss, update

def saved(path):
    """The steps of the checkpoints that are in a folder."""
    files = glob.glob(os.path.join(path, "*.index"))
    return sorted(int(file[:-len(".index")].rsplit("-", 1)[1]) for file in files)

# %% [markdown]
# ## CheckpointSaverHook
# It saves every `save_steps` steps, or every `save_secs` seconds. It uses a `Saver`, the class that
# writes the values of variables to files, and reads them back.
#
# **Predict:** with `save_steps=10` we make 25 updates. At which steps does it save?

# %%
def train(path, updates, restore, curve="curve"):
    """Trains in a new graph, saves every 10 steps, and writes each loss to a folder of events."""
    with tf.Graph().as_default():
        step, w, loss, update = model()
        summary = tf.summary.scalar("loss", loss)
        hooks = [tf.train.CheckpointSaverHook(path, save_steps=10, saver=tf.train.Saver()),
                 tf.train.SummarySaverHook(save_steps=1, output_dir=curve, summary_op=summary)]
        creator = tf.train.ChiefSessionCreator(checkpoint_dir=path if restore else None)
        with tf.train.MonitoredSession(creator, hooks) as session:
            first = session.run_step_fn(  # without hooks
                lambda step_context: step_context.session.run(step))
            for _ in range(updates):
                session.run(update)
    return int(first)

train("run", 25, restore=True)
print("saved at steps", saved("run"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# At the beginning (step 0), every 10 steps, and at the end, whatever the step. After an error in
# your loop there is no last save: exercise 2.
#
# </details>

# %% jupyter={"source_hidden": true}
assert saved("run") == [0, 10, 20, 25]

# %% [markdown]
# Each checkpoint has three files. `.index` and `.data` hold the names and the values of all
# variables: the four of the network, and the global step. `.meta` holds the graph. The small text
# file `checkpoint` says which one is the newest.

# %%
for name, shape in tf.train.list_variables("run"):
    print("%-12s %s" % (name, shape))
print("the newest:", os.path.basename(tf.train.latest_checkpoint("run")))

# %% [markdown]
# ## Continue a run
# We make the same 25 updates again, in a new folder, and continue in a new graph with 25 more. A
# third run forgets to restore. A fourth makes 50 updates without a break, for comparison.
#
# Each run writes its losses to a folder of its own, and `events` reads them. The name of an event
# file contains the second in which it began. Two runs that start in one folder within a second
# would share a name, and one would overwrite the other's file.

# %%
def events(path, tag="loss"):
    """[(step, value)] from the event file in a folder."""
    tf.summary.FileWriterCache.clear()  # closes the files: until then a part of them is in memory
    (file,) = glob.glob(os.path.join(path, "events*"))
    return [(event.step, value.simple_value) for event in tf.train.summary_iterator(file)
            for value in event.summary.value if value.tag == tag]

print("the first run begins at step", train("long run", 25, restore=True, curve="first"))
print("the second one at step      ", train("long run", 25, restore=True, curve="second"))
print("forgot to restore: at step  ", train("long run", 25, restore=False, curve="forgot"))
train("no break", 50, restore=True, curve="no break")

curves = {name: events(name) for name in ("first", "second", "forgot", "no break")}
losses = {name: [loss for _, loss in curve] for name, curve in curves.items()}
assert np.allclose(losses["first"] + losses["second"], losses["no break"], atol=1e-5)
print("saved by all three:", saved("long run"))
print("the newest, as the file checkpoint says:",
      os.path.basename(tf.train.latest_checkpoint("long run")))

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots()
axes.plot(range(1, 51), losses["no break"], color=GRAY, lw=7, alpha=0.3)
axes.plot(range(1, 26), losses["first"], ".-", color=BLUE)
axes.plot(range(26, 51), losses["second"], ".-", color=GREEN)
axes.plot(range(26, 51), losses["forgot"], ".-", color=RED)
axes.axvline(25.5, color=GRAY, lw=1, ls="--")
axes.annotate("the break", (25, 2.55), ha="right", color=GRAY)
axes.annotate("first run", (6, 2.25), color=BLUE)
axes.annotate("wide: without a break", (1, 1.1), color=GRAY)
axes.annotate("continued", (29, 0.62), color=GREEN)
axes.annotate("forgot to restore", (36.5, 2.05), color=RED)
axes.set(xlabel="updates made, in both runs together", ylabel="loss of a batch", ylim=(0.4, 2.75))
show(figure, "The losses from the event files. After the break the continued run goes on along "
     "the curve of a run without a break. The run that forgot to restore jumps back to the start.")

# %% [markdown]
# The continued run lies on the wide curve of the run without a break: parameters, step and batches
# are the same. Nothing warns you when you forget to restore. The run begins at step 0, and the loss
# of its first update gives it away.
#
# It also does damage. It overwrote the first run's checkpoints 0 to 25, because the names are the
# same. And the file `checkpoint` now says that its `model.ckpt-25` is the newest. The next run
# in this folder would restore that one, and not `model.ckpt-50` of the second run.
#
# ## Which checkpoints are deleted
# A `Saver` keeps its last five checkpoints (`max_to_keep=5`) and deletes older ones. Which ones are
# *its own*, when a run continues?
#
# Usually you do not build the hooks yourself: `tf.train.MonitoredTrainingSession` is a function that
# returns a `MonitoredSession` with them. Below, a first run saves at 0, 10, 20 and 30. The second run
# saves at 30, 40, 50 and 60. We try it in three ways:
# - by `MonitoredTrainingSession`;
# - by the same, with a `Saver` that keeps all;
# - by a hook with a `Saver` of its own, as above.
#
# **Predict:** which of the first run's checkpoints are still there after each?

# %%
def monitored_training(path, updates, keep=5):
    with tf.Graph().as_default():
        step, w, loss, update = model()
        scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=keep))  # what a session needs
        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=path, scaffold=scaffold, save_checkpoint_steps=10,
                save_summaries_steps=None, log_step_count_steps=None) as session:
            for _ in range(updates):
                session.run(update)

ways = {"MonitoredTrainingSession": lambda path: monitored_training(path, 30),
        "the same, max_to_keep=None": lambda path: monitored_training(path, 30, keep=None),
        "a Saver of the hook's own": lambda path: train(path, 30, restore=True)}
left = {}
for number, (name, second_run) in enumerate(ways.items()):
    path = "way-%d" % number
    monitored_training(path, 30)
    assert saved(path) == [0, 10, 20, 30]
    second_run(path)
    left[name] = saved(path)

# %% jupyter={"source_hidden": true}
figure, axes = plt.subplots(figsize=(7, 2.4))
rows = {"after the first run": [0, 10, 20, 30], **left}
for row, (name, steps) in enumerate(reversed(rows.items())):
    for at in range(0, 61, 10):
        if at in steps:
            axes.plot(at, row, "s", ms=13, color=BLUE if at <= 30 else ORANGE)
        elif at <= 30:
            axes.plot(at, row, "x", ms=10, mew=2, color=RED)
axes.set_yticks(range(len(rows)), reversed(rows))
axes.set(xlabel="step of the checkpoint", ylim=(-0.6, 3.6))
axes.axvline(35, color=GRAY, lw=1, ls="--")
axes.text(15, 3.75, "first run", color=BLUE, ha="center")
axes.text(50, 3.75, "second run", color=ORANGE, ha="center")
axes.grid(False)
show(figure, "Squares: checkpoints that are there; crosses: deleted. MonitoredTrainingSession "
     "deletes 0 and 10 of the first run. The other two ways keep all of them.")

# %%
for name, steps in left.items():
    print("%-27s %s" % (name, steps))

# %% [markdown]
# <details><summary>Answer</summary>
#
# `MonitoredTrainingSession` restores and saves by *one* `Saver`. When it restores, it takes the
# first run's list from the file `checkpoint`, and counts those checkpoints as its own. So five are
# left in all: 0 and 10 are gone. A longer second run deletes all of the first run.
#
# With `max_to_keep=None` it deletes none. The hook with a `Saver` of its own knows only what that
# `Saver` has written. That is 30, which it saves again as it begins, and the later ones. So 0, 10
# and 20 stay. But nothing else deletes them either, and the disk fills.
#
# </details>

# %% jupyter={"source_hidden": true}
assert list(left.values()) == [[20, 30, 40, 50, 60]] + 2 * [[0, 10, 20, 30, 40, 50, 60]]

# %% [markdown]
# So a checkpoint that you want to keep does not belong in the folder of a run that goes on. Copy it
# elsewhere: exercise 3 keeps the best one that way. Or give the `Saver` a larger `max_to_keep`, or
# `keep_checkpoint_every_n_hours`.
#
# A *listener* is called around each save, and can stop the training. This one stops at the third.

# %%
class ThreeAreEnough(tf.train.CheckpointSaverListener):
    saves = 0

    def after_save(self, session, global_step_value):
        self.saves += 1
        return self.saves == 3  # True: stop

with tf.Graph().as_default():
    step, w, loss, update = model()
    hook = tf.train.CheckpointSaverHook(
        "listener", save_steps=10, saver=tf.train.Saver(), listeners=[ThreeAreEnough()])
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(update)
print("saved at steps", saved("listener"))

# %% [markdown]
# ## SummarySaverHook: what a point of the curve shows
# A *summary op* packs values for TensorBoard; `SummarySaverHook` writes them to the event file.
# Above it wrote each step. In a long run you write every 100 steps, say. A point is not the mean of
# these steps: it is the loss of *one* mini-batch. Here it writes every 10 of 300 steps.

# %%
with tf.Graph().as_default():
    step, w, loss, update = model()
    summary = tf.summary.scalar("loss", loss)
    hook = tf.train.SummarySaverHook(save_steps=10, output_dir="points", summary_op=summary)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        losses = [session.run([update, loss])[1] for _ in range(300)]
curve = events("points")
assert all(np.isclose(value, losses[at - 1], atol=1e-5) for at, value in curve)

figure, axes = plt.subplots()
axes.plot(range(1, 301), losses, color=BLUE, lw=0.8, alpha=0.5)
axes.plot(*zip(*curve), "o-", ms=3, lw=1, color=ORANGE)
axes.annotate("every mini-batch", (40, 1.5), color=BLUE)
axes.annotate("the event file", (120, 0.75), color=ORANGE)
axes.set(xlabel="global step", ylabel="loss of a batch")
show(figure, "The loss of every mini-batch, a restless line, and over it the points of the file of "
     "events, one in ten: the trend is the same, but most peaks and dips are not in the file.")

# %% [markdown]
# A high point may be one hard batch and no trend, and most peaks are missing. Exercise 4 writes
# means instead.
#
# The points need not be exactly 10 steps apart. The hook fetches the step beside the update, and
# nothing orders the two: the fetched value may be from before the update or from after it. So a
# point may come one step early. The same holds for the numbers in the names `timeline-N.json`.
#
# ## StepCounterHook: a rate, and a warning
# It divides global steps by seconds and writes `global_step/sec` to the events and to the log. With
# several workers this is the rate of all of them, because they share the step.
#
# Some runs fill the log with its warning: "It seems that global step … has not been increased." A
# chief trains, and a second worker with a `StepCounterHook` only tests.
#
# **Predict:** when does the second worker get the warning: when the chief trains between its tests,
# when it does not, or in both cases?

# %%
import logging

class CountWarnings(logging.Handler):
    count = 0

    def emit(self, record):
        self.count += "global step" in record.getMessage()

    def since_last(self):
        found, self.count = self.count, 0
        return found

warnings = CountWarnings()
tf.get_logger().handlers = [warnings]
tf.logging.set_verbosity(tf.logging.WARN)
server = tf.train.Server.create_local_server()  # it ends with the kernel

with tf.Graph().as_default():
    step, w, loss, update = model()
    chief = tf.train.MonitoredSession(tf.train.ChiefSessionCreator(master=server.target))
with tf.Graph().as_default():
    step, w, *_ = model()
    accuracy = digits.accuracy(w, x_test, y_test)
    tester = tf.train.MonitoredSession(
        tf.train.WorkerSessionCreator(master=server.target),
        hooks=[tf.train.StepCounterHook(every_n_steps=10, output_dir="rates")])

for _ in range(4):
    chief.run(update)
    tester.run(accuracy)
print("4 tests, an update before each:", warnings.since_last(), "warnings")
for _ in range(4):
    tester.run(accuracy)
print("4 tests, and no update:        ", warnings.since_last(), "warnings")
chief.close()
tester.close()
tf.logging.set_verbosity(tf.logging.ERROR)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only when the chief does not train between them. The hook compares the step with that of *this
# session's* previous run. Who moved it does not matter.
#
# </details>
#
# So the warning has four causes:
# - one session both trains and tests: a test does not move the step;
# - a session that only tests is faster than those that train;
# - `SyncReplicasOptimizer`, whose steps the chief's thread makes;
# - the update does not count, because you called `minimize` without `global_step`.
#
# Only the last one is a bug. The warning comes five times in a process at most.
#
# The rates are in the event file. The first period has no rate: the clock starts at the first
# look, so building the graph does not count.

# %%
with tf.Graph().as_default():
    step, w, loss, update = model()
    hook = tf.train.StepCounterHook(every_n_steps=50, output_dir="training rates")
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(220):
            session.run(update)
rates = [rate for _, rate in events("training rates", "global_step/sec")]
print(len(rates), "rates, all above zero:", all(rate > 0 for rate in rates))

# %% [markdown]
# ## What the files weigh
# `ProfilerHook` writes a timeline every `save_steps` steps, with a record of every op of that step.
# [Hooks](Hooks.ipynb) draws one. Here are the sizes of all files of a run of 25 updates, with a
# checkpoint and a profile every 10.

# %% tags=["measured"]
with tf.Graph().as_default():
    step, w, loss, update = model()
    hooks = [tf.train.ProfilerHook(save_steps=10, output_dir="sizes"),
             tf.train.CheckpointSaverHook("sizes", save_steps=10, saver=tf.train.Saver())]
    with tf.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(25):
            session.run(update)
tf.summary.FileWriterCache.clear()

sizes = {}
for file in os.listdir("sizes"):
    kinds = ".data", ".index", ".meta", "timeline", "events", "pbtxt", "checkpoint"
    kind = next(kind for kind in kinds if kind in file)
    sizes.setdefault(kind, []).append(os.path.getsize(os.path.join("sizes", file)))
for kind, each in sorted(sizes.items(), key=lambda item: -max(item[1])):
    print("%-10s %d files, the largest %6.1f kB" % (kind, len(each), max(each) / 1000))

# %% [markdown]
# The values of the 2,410 parameters are the small `.data` files. What is large is the graph: it
# stands in each `.meta`, in `graph.pbtxt` and in the events. Our training data are constants of
# this graph. `CheckpointSaverHook(..., save_graph_def=False)` leaves out `.meta` and `graph.pbtxt`.
# Real data belong outside the graph: see [Input-Pipelines](Input-Pipelines.ipynb).
#
# ## What MonitoredTrainingSession adds
# Two sessions use one server: one is the chief, the other is not. Each has a folder of its own. We
# look which files each of them writes.

# %%
def written(path, tag):
    return os.path.exists(path) and bool(events(path, tag))

for name in "chief", "worker":
    with tf.Graph().as_default():
        step, w, loss, update = model()
        tf.summary.scalar("loss", loss)
        with tf.train.MonitoredTrainingSession(
                server.target, is_chief=name == "chief", checkpoint_dir=name,
                save_checkpoint_steps=20, save_summaries_steps=10,
                log_step_count_steps=10) as session:
            for _ in range(40):
                session.run(update)
    print("%-7s checkpoints %-13s loss curve: %-6s rates: %s" % (
        name, saved(name), written(name, "loss"), written(name, "global_step/sec")))
assert not os.path.exists("worker")

# %% [markdown]
# The chief has all three hooks, the worker none. By default the chief saves every 600 seconds, and
# writes summaries and the rate every 100 steps. `None` for a number turns that hook off.
# `MonitoredTrainingSession` finds the summary ops of the graph by itself.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Not all of it.** ★☆☆ Save the global step alone. Which names are in the checkpoint?
#
# <details><summary>Hint</summary>
#
# `tf.train.Saver` takes a list of variables.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     step, w, loss, update = model()
#     saver = tf.train.Saver([step])
#     hook = tf.train.CheckpointSaverHook("step alone", save_steps=10, saver=saver)
#     with tf.train.MonitoredSession(hooks=[hook]) as session:
#         session.run(update)
# assert [name for name, _ in tf.train.list_variables("step alone")] == ["global_step"]
# ```
#
# </details>

# %% [markdown]
# **2. After an error.** ★☆☆ The loop fails at update 15, with `save_steps=10`. From which step can
# the run continue? How many updates are lost?
#
# <details><summary>Hint</summary>
#
# The last save is made in the hook's `end`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     step, w, loss, update = model()
#     hook = tf.train.CheckpointSaverHook("broken", save_steps=10, saver=tf.train.Saver())
#     try:
#         with tf.train.MonitoredSession(hooks=[hook]) as session:
#             for _ in range(15):
#                 session.run(update)
#             raise KeyError("a bug in the loop")
#     except KeyError:
#         assert saved("broken") == [0, 10]  # `end` was not called: five updates are lost
# assert train("broken", 1, restore=True) == 10
# ```
#
# </details>

# %% [markdown]
# **3. Keep the best.** ★★☆ A listener tests the model after each save. It copies the best checkpoint
# so far into a folder of its own, where no `Saver` deletes it. Train 300 updates with `lr=1.5`, and
# save every 25.
#
# <details><summary>Hint</summary>
#
# Build the accuracy before the session begins, and give it to the listener. In `after_save`,
# `tf.train.latest_checkpoint` names the files; `glob` finds them, and `shutil.copy` copies them.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# import shutil
#
# class KeepBest(tf.train.CheckpointSaverListener):
#     def __init__(self, accuracy, path, best_path):
#         self.accuracy, self.path, self.best_path, self.seen = accuracy, path, best_path, {}
#         os.makedirs(best_path)
#
#     def after_save(self, session, global_step_value):
#         accuracy = session.run(self.accuracy)
#         if accuracy > max(self.seen.values(), default=-1):
#             for file in os.listdir(self.best_path):
#                 os.remove(os.path.join(self.best_path, file))
#             for file in glob.glob(tf.train.latest_checkpoint(self.path) + ".*"):
#                 shutil.copy(file, self.best_path)
#         self.seen[int(global_step_value)] = accuracy
#
# with tf.Graph().as_default():
#     step, w, loss, update = model(lr=1.5)
#     keep_best = KeepBest(digits.accuracy(w, x_test, y_test), "all", "best")
#     hook = tf.train.CheckpointSaverHook(
#         "all", save_steps=25, saver=tf.train.Saver(), listeners=[keep_best])
#     with tf.train.MonitoredSession(hooks=[hook]) as session:
#         for _ in range(300):
#             session.run(update)
# best_step = max(keep_best.seen, key=keep_best.seen.get)
# assert saved("best") == [best_step] and len(saved("all")) == 5
# ```
#
# </details>

# %% [markdown]
# **4. A smoother curve.** ★★★ Write a hook that stores the mean of the last ten losses every ten
# updates. It uses the same event file as the other hooks.
#
# <details><summary>Hint</summary>
#
# `tf.summary.FileWriterCache.get(path)` is the writer. A summary without an op is
# `tf.Summary(value=[tf.Summary.Value(tag=..., simple_value=...)])`.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# class MeanLoss(tf.train.SessionRunHook):
#     def __init__(self, path, loss):
#         self.writer, self.loss, self.losses = tf.summary.FileWriterCache.get(path), loss, []
#
#     def before_run(self, context):
#         return tf.train.SessionRunArgs(self.loss)
#
#     def after_run(self, context, values):
#         self.losses.append(values.results)
#         if len(self.losses) % 10 == 0:
#             mean = tf.Summary.Value(tag="mean loss", simple_value=np.mean(self.losses[-10:]))
#             self.writer.add_summary(tf.Summary(value=[mean]), len(self.losses))
#
#     def end(self, session):
#         self.writer.flush()
#
# with tf.Graph().as_default():
#     step, w, loss, update = model()
#     hook = MeanLoss("means", loss)
#     with tf.train.MonitoredSession(hooks=[hook]) as session:
#         for _ in range(30):
#             session.run(update)
# means = events("means", "mean loss")
# assert [at for at, _ in means] == [10, 20, 30]
# assert np.isclose(means[0][1], np.mean(hook.losses[:10]))
# ```
#
# </details>

# %%
# Stop what this notebook started.
tf.summary.FileWriterCache.clear()  # the server ends with the kernel
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - [CheckpointSaverHook](https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/CheckpointSaverHook)
#   and [Saver](https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/Saver) in TensorFlow's
#   reference.
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 4.3: checkpoints.
# - [Distributed-Setup](../Distributed-Setup/): a run that saves and continues;
#   [HogWild](../HogWild/) saves in its own loop, because a hook fetches the step in every run.
#
# Next: [Input-Pipelines](Input-Pipelines.ipynb), which brings the data.
