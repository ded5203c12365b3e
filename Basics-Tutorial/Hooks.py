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
# A session calls a *hook* before and after each of your `session.run` calls, as `fit` calls a Keras
# callback around each batch. So you can add logging, stopping, feeding and profiling, and the loop
# itself does not change.
#
# After this notebook you can:
# - say when each of a hook's five methods is called, also when a session is lost;
# - write a hook that tests the model and stops the training;
# - log, feed, stop and wait with TensorFlow's own hooks, and name the trap in each;
# - say what a NaN loss means, and keep it from spoiling the parameters;
# - see by ProfilerHook where the time of a step goes.
#
# **Before it:** [Sessions-that-Recover](Sessions-that-Recover.ipynb). **Time:** 70 minutes.

# %% [markdown]
# ## The life of a MonitoredSession
# `tf.train.MonitoredSession` is the session with hooks. When a parameter server dies, a call fails
# with `UnavailableError` or `AbortedError`. Then it makes a new session inside, and repeats the call.
#
# ![The life of a MonitoredSession from top to bottom: begin is called once, then the graph is finalized. Session 1 calls after_create_session, then before_run, session.run and after_run in each step. When it is lost, session 2 calls after_create_session again. When the loop is done, end is called.](../docs/figures/session-life.svg)
#
# | hook | Keras callback | what it is for |
# | --- | --- | --- |
# | `begin` | `set_model` | add ops to the graph: afterwards it is *finalized*, so nobody can change it |
# | `after_create_session` | `on_train_begin` | look at the new session, which may be the second or third |
# | `before_run` | `on_train_batch_begin` | ask for more tensors, or feed some |
# | `after_run` | `on_train_batch_end` | use their values; ask the loop to stop |
# | `end` | `on_train_end` | a last test, a last file; the session is still open |
#
# `before_run` returns what it wants from this step. TensorFlow fetches it in the *same* call of
# `session.run` as what your loop fetches, and gives it to `after_run`.

# %% [markdown]
# The next two cells, which are folded, hold what every notebook needs: TensorFlow, and the
# handwritten digits with their network.

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
# `model` builds the training of the digits. `step` is the *global step*: it counts the updates, and
# the hooks find it in the graph by themselves. It also numbers the mini-batches, so each run draws
# the same ones.

# %%
import digits

x_train, y_train, x_test, y_test = digits.load()

def model(lr=0.2):
    """Builds in the current graph: w <- w - lr * g(w), and step <- step + 1."""
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
    x, y = digits.batch(x_train, y_train, step.read_value())
    loss = digits.loss(w, x, y)
    update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
    return step, w, loss, update

# %% [markdown]
# Our first hook prints each call. The second one plays a lost parameter server: before the third
# update it raises the same error, once.

# %%
class PrintCalls(tf.train.SessionRunHook):
    def __init__(self, loss):
        self.loss = loss

    def begin(self):
        print("begin                 is the graph finalized?", tf.get_default_graph().finalized)

    def after_create_session(self, session, coord):
        print("after_create_session  is it now?", session.graph.finalized,
              "- step", session.run(tf.train.get_global_step()))

    def before_run(self, context):
        print("    before_run        the loop fetches", context.original_args.fetches.name)
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, context, values):
        print("    after_run         loss %.2f" % values.results)

    def end(self, session):
        print("end                   step", session.run(tf.train.get_global_step()))

class LoseOnce(tf.train.SessionRunHook):
    runs = 0

    def before_run(self, context):
        self.runs += 1
        if self.runs == 3:
            raise tf.errors.UnavailableError(None, None, "the ps is gone")

# %% [markdown]
# **Predict:** the loop calls `run` three times, and the session is lost before the third update. How
# often is `before_run` called, and which step does `end` print?

# %%
with tf.Graph().as_default():
    step, w, loss, update = model()
    hooks = [PrintCalls(loss), LoseOnce()]
    with tf.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(3):
            session.run(update)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Four times: the third update is tried twice. The new session calls `after_create_session`, but not
# `begin`: the graph is the same and already finalized.
#
# `end` prints 1. The step was 0 again, because the variables were initialised again: this session
# has no `checkpoint_dir`. Three calls of `run` succeeded, and the model has learned from one.
#
# </details>
#
# So make what belongs to one session, such as a thread that uses it, in `after_create_session`. A
# count of calls that a hook keeps, like `runs`, survives the loss, and then no longer agrees with
# `step`.
#
# ## Log, test and stop
# `tf.train.LoggingTensorHook` writes tensors to TensorFlow's log. A log has levels, and these lines
# are of the level INFO. The notebooks show only errors, so we lower the level for one run, and send
# the log to the page.
#
# The second hook is our own. Every 25 updates it computes the accuracy on the test data, which
# costs time. At 95% it asks the loop to stop.

# %%
class StopWhenGood(tf.train.SessionRunHook):
    def __init__(self, accuracy, enough, every=25):
        self.accuracy, self.enough, self.every = accuracy, enough, every
        self.runs, self.seen = 0, []

    def before_run(self, context):
        self.runs += 1
        if self.runs % self.every == 0:
            return tf.train.SessionRunArgs(self.accuracy)

    def after_run(self, context, values):
        if values.results is not None:
            self.seen.append((self.runs, values.results))
            if values.results >= self.enough:
                context.request_stop()

class Record(tf.train.SessionRunHook):
    """Keeps the loss of each update."""
    def __init__(self, loss):
        self.loss, self.losses = loss, []

    def before_run(self, context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, context, values):
        self.losses.append(values.results)

# %% [markdown]
# The loop knows nothing of all this. It asks only whether it should stop.

# %%
import logging
import sys

tf.get_logger().handlers = [logging.StreamHandler(sys.stdout)]

with tf.Graph().as_default():
    step, w, loss, update = model()
    record = Record(loss)
    stop_when_good = StopWhenGood(digits.accuracy(w, x_test, y_test), enough=0.95)
    log = tf.train.LoggingTensorHook(
        {"loss": loss}, every_n_iter=50, formatter=lambda values: "loss %.3f" % values["loss"])
    tf.logging.set_verbosity(tf.logging.INFO)
    with tf.train.MonitoredSession(hooks=[record, stop_when_good, log]) as session:
        while not session.should_stop():
            session.run(update)
    tf.logging.set_verbosity(tf.logging.ERROR)

assert stop_when_good.seen[-1][1] >= 0.95
print("stopped after", stop_when_good.runs, "updates")

# %% jupyter={"source_hidden": true}
figure, (above, below) = plt.subplots(2, 1, figsize=(7, 4), sharex=True)
updates = np.arange(1, 1 + len(record.losses))
above.plot(updates, record.losses, color=BLUE, lw=0.8, alpha=0.6)
logged = updates[::50]
above.plot(logged, [record.losses[k - 1] for k in logged], "o", color=ORANGE)
above.set_ylabel("loss of a batch")
above.annotate("LoggingTensorHook", (logged[2], record.losses[logged[2] - 1]), (112, 1.5),
               color=ORANGE, arrowprops={"arrowstyle": "-", "color": ORANGE})
below.plot(*zip(*stop_when_good.seen), "o-", color=GREEN)
below.axhline(0.95, color=GRAY, lw=1, ls="--")
below.annotate("StopWhenGood: enough", (0, 0.95), (0, 0.965), color=GRAY)
below.set(xlabel="update", ylabel="test accuracy", ylim=(0.5, 1.02))
for axes in above, below:
    axes.axvline(updates[-1], color=RED, lw=1)
above.annotate("request_stop ", (updates[-1], 2.1), ha="right", color=RED)
figure.align_ylabels()
show(figure, "Above, the loss of each mini-batch falls; points mark the updates that were logged. "
     "Below, the test accuracy every 25 updates; at 95% the hook ends the run.")

# %% [markdown]
# `LoggingTensorHook` logs the runs 1, 51, 101 and 151. It counts the runs of its own
# session, not global steps: two workers each log their own. The other lines came from the session.
# At the level ERROR nothing appears. Between its lines this hook fetches nothing
# and costs nothing.
#
# One warning about `StopWhenGood`. It fetches the accuracy in the same run as the update, and
# nothing orders the two. So the accuracy may belong to `w` before or after that update. For a test
# this hardly matters. Exercise 4 needs the exact `w`, and reads it in a second run.
#
# ## StopAtStepHook with two workers
# `StopAtStepHook(last_step=20)` asks the loop to stop at a global step. (`num_steps` counts from the
# step at which the session begins.) Now two sessions on one server train the same variables: one as
# the chief, which initialises them, and one as a second worker.
#
# **Predict:** the two take turns, the chief first. Each has its own `StopAtStepHook(last_step=20)`.
# Where is `step` at the end?

# %%
server = tf.train.Server.create_local_server()  # it ends with the kernel

with tf.Graph().as_default():
    step, w, loss, update = model()
    chief = tf.train.MonitoredSession(
        tf.train.ChiefSessionCreator(master=server.target),
        hooks=[tf.train.StopAtStepHook(last_step=20)])
    worker = tf.train.MonitoredSession(
        tf.train.WorkerSessionCreator(master=server.target),
        hooks=[tf.train.StopAtStepHook(last_step=20)])
    while not (chief.should_stop() and worker.should_stop()):
        for session in chief, worker:
            if not session.should_stop():
                session.run(update)
    with tf.Session(server.target) as session:
        last_step = session.run(step)
print("step:", last_step)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 21. The second worker makes update 20 and stops. The chief's hook looks at the step only in
# `after_run`, that is after one more update.
#
# </details>

# %% jupyter={"source_hidden": true}
assert last_step == 21

# %% [markdown]
# With n workers in turn there are n - 1 updates too many. The examples of this repository use
# `tf.count_up_to`, an op that gives out each number once and then fails: exercise 3 stops exactly
# at 20.
#
# ## FeedFnHook
# `FeedFnHook` calls a function before each run and feeds what it returns. So the loop need not know
# where the data come from. In this model the rows come through two *placeholders*: tensors that get
# their values from the caller of each run.

# %%
def fed_model(lr=0.2):
    """As model, but each batch is fed."""
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    loss = digits.loss(w, x, y)
    update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
    return step, w, loss, update, x, y

class Batches:
    """Calls to it return one batch of 32 rows after the other."""
    def __init__(self, x, y, spoil=None):
        self.x, self.y, self.spoil, self.calls = x, y, spoil, 0

    def __call__(self):
        self.calls += 1
        rows = np.arange(32 * (self.calls - 1), 32 * self.calls) % len(x_train)
        images = x_train[rows]
        if self.calls == self.spoil:
            images[0, 0] = np.nan  # one bad pixel
        return {self.x: images, self.y: y_train[rows]}

with tf.Graph().as_default():
    step, w, loss, update, x, y = fed_model()
    batches = Batches(x, y)
    with tf.train.MonitoredSession(hooks=[tf.train.FeedFnHook(batches)]) as session:
        for _ in range(4):
            session.run(update)
        made = session.run(step)
print(made, "updates,", batches.calls, "batches")

# %% [markdown]
# The fifth batch was lost: `session.run(step)` is a run, too, so the hook fed it. For a call without
# hooks, `session.run_step_fn` gives you the plain session.
#
# ## A NaN loss
# `NanTensorHook` fetches the loss in every run, and stops when it is not a number. By default it
# raises an error; with `fail_on_nan_loss=False` it asks the loop to stop.
#
# We train twice. The first run has an absurd learning rate, `1e10`. The second has a good one, but
# one pixel of its 40th batch is NaN.
#
# **Predict:** the hook stops each run at the first NaN loss. In which of the two runs are the
# parameters still good *before* that run's last update? In which are they good after it?

# %%
class LargestWeight(tf.train.SessionRunHook):
    """Keeps the largest |w| before each run, and after the last one."""
    def __init__(self, w):
        self.w, self.sizes = w, []

    def largest(self, session):
        return max(np.abs(layer).max() for layer in session.run(self.w))

    def before_run(self, context):
        self.sizes.append(self.largest(context.session))

    def end(self, session):
        self.sizes.append(self.largest(session))

def until_nan(lr, spoil):
    with tf.Graph().as_default():
        step, w, loss, update, x, y = fed_model(lr)
        record, weight = Record(loss), LargestWeight(w)
        hooks = [tf.train.FeedFnHook(Batches(x, y, spoil)), record, weight,
                 tf.train.NanTensorHook(loss, fail_on_nan_loss=False)]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(update)
    return record.losses, weight.sizes

runs = {"lr = 1e10": until_nan(1e10, None), "a NaN pixel": until_nan(0.2, 40)}
for name, (losses, sizes) in runs.items():
    print("%-11s  stopped at update %2d, largest |w| before it %7.1e, after it %s" % (
        name, len(losses), sizes[-2], sizes[-1]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# With the bad pixel the parameters were good before the last update: *this batch* spoilt the loss.
# With the absurd learning rate an *earlier update* had spoilt them: they had become so large that
# the outputs overflow.
#
# After it, both are NaN. The loss of a run belongs to the parameters before its update, and the same
# run makes that update.
#
# </details>
#
# The history tells the two cases apart. It shows the parameters before each update:

# %% jupyter={"source_hidden": true}
assert all(np.isnan(losses[-1]) and np.isnan(sizes[-1]) for losses, sizes in runs.values())
figure, both = plt.subplots(1, 2, figsize=(7, 3))
for axes, (name, (losses, sizes)) in zip(both, runs.items()):
    finite = [k for k, loss in enumerate(losses) if np.isfinite(loss)]
    axes.semilogy([k + 1 for k in finite], [losses[k] for k in finite], "o-", ms=3, color=BLUE)
    axes.semilogy(range(1, 1 + len(losses)), sizes[:-1], "s-", ms=3, color=ORANGE)
    axes.axvline(len(losses), color=RED, lw=1)
    axes.set(title=name, xlabel="update")
left, right = both
left.set(ylim=(1e-2, 1e36), xlim=(0.8, 4.9), xticks=[1, 2, 3, 4])
left.annotate("loss", (2, runs["lr = 1e10"][0][1]), (1.4, 1e22), color=BLUE)
left.annotate("largest |w|", (2, 1e9), (2.4, 1e8), color=ORANGE)
left.plot(3, 1e34, "^", color=BLUE)
left.annotate("inf ", (2.9, 1e33), ha="right", color=BLUE)
left.annotate(" NaN", (4, 1e33), color=RED)
right.set(ylim=(0.1, 10), xlim=(0, 48))
right.annotate("loss", (7, 2.4), color=BLUE)
right.annotate("largest |w|", (7, 0.45), color=ORANGE)
right.annotate(" NaN", (40, 6), color=RED)
figure.tight_layout()
show(figure, "Two runs that end with a NaN loss. With the absurd learning rate, loss and parameters "
     "before the update grow from update to update. With a NaN pixel both look healthy until the "
     "last update.")

# %% [markdown]
# | what you see | what spoilt the loss | what to do |
# | --- | --- | --- |
# | the loss grows for some updates, may become `inf`, then NaN | an earlier update | lower the learning rate, go back to a checkpoint from before the growth |
# | a healthy loss, then NaN | this batch (or a log or a division in the loss) | look at the batch, go back to the last checkpoint |
#
# `NanTensorHook` looks for NaN alone: `inf` passes. And it always comes one update late. To stop
# *before* the update, make the update depend on a check. `tf.check_numerics` is an op that fails on
# NaN and `inf`; `tf.control_dependencies` makes everything built in its block wait for that op.

# %%
def guarded_model(lr=0.2):
    step = tf.train.get_or_create_global_step()
    w = digits.variables()
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    loss = digits.loss(w, x, y)
    optimizer = tf.train.GradientDescentOptimizer(lr)
    gradients = optimizer.compute_gradients(loss, w)
    checks = [tf.check_numerics(g, "a gradient is not finite") for g, _ in gradients]
    with tf.control_dependencies([tf.check_numerics(loss, "the loss is not finite"), *checks]):
        update = optimizer.apply_gradients(gradients, global_step=step)
    return step, w, loss, update, x, y

with tf.Graph().as_default():
    step, w, loss, update, x, y = guarded_model()
    feed = tf.train.FeedFnHook(Batches(x, y, spoil=40))
    with tf.train.MonitoredSession(hooks=[feed]) as session:
        try:
            while True:
                session.run(update)
        except tf.errors.InvalidArgumentError:
            print("InvalidArgumentError, stopped in run", feed.feed_fn.calls)
        finite = all(np.isfinite(layer).all() for layer in session.run(w))
        print("step", session.run(step), "- w is finite:", finite)
        assert finite

# %% [markdown]
# Run 40 failed, so there were 39 updates, and `w` is good.
#
# ## GlobalStepWaiterHook
# Many workers at once can harm a training whose parameters are still random. `GlobalStepWaiterHook`
# holds a worker's first run back until the others have brought the global step to a number. It looks
# twice a second. Here a second worker waits for step 30, in a thread of its own.
#
# **Predict:** after 29 updates the first worker pauses. Does the second one begin after a while? And
# if the first worker ended there, when would the second one give up?

# %%
import threading

server = tf.train.Server.create_local_server()
waiting, first_step = threading.Event(), []

class SayThatItWaits(tf.train.SessionRunHook):
    def before_run(self, context):  # hooks are called in their order: this one before the waiter
        waiting.set()

def second_worker():
    with tf.Graph().as_default():
        step, w, loss, update = model()
        creator = tf.train.WorkerSessionCreator(master=server.target)
        hooks = [SayThatItWaits(), tf.train.GlobalStepWaiterHook(wait_until_step=30)]
        with tf.train.MonitoredSession(creator, hooks) as session:
            session.run(update)
            first_step.append(int(session.run(step)))

thread = threading.Thread(target=second_worker, daemon=True)
with tf.Graph().as_default():
    step, w, loss, update = model()
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(master=server.target)) as chief:
        thread.start()
        for _ in range(29):
            chief.run(update)
        assert waiting.wait(30)
        thread.join(timeout=1.5)  # it looks three times meanwhile
        print("after update 29, does the second worker wait?", thread.is_alive())
        chief.run(update)
        thread.join(timeout=20)
print("after update 30, does it wait?", thread.is_alive(), "- its first update is", first_step[0])

# %% [markdown]
# <details><summary>Answer</summary>
#
# It does not begin, and it never gives up: the hook has no time limit. Without the 30th update the
# second worker would wait for ever.
#
# </details>

# %% jupyter={"source_hidden": true}
assert not thread.is_alive() and first_step == [31]

# %% [markdown]
# ## FinalOpsHook
# `FinalOpsHook` runs ops when the session ends, and keeps their values. It is a last test that the
# loop does not contain.

# %%
with tf.Graph().as_default():
    step, w, loss, update = model()
    last = tf.train.FinalOpsHook({"step": step, "accuracy": digits.accuracy(w, x_test, y_test)})
    hooks = [tf.train.StopAtStepHook(last_step=300), last]
    with tf.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(update)
values = last.final_ops_values
print("after %d updates: test accuracy %.1f%%" % (values["step"], 100 * values["accuracy"]))

# %% [markdown]
# It acts in `end`, and `end` is not called after an error in the loop. Then there is no test:
# exercise 2.
#
# ## ProfilerHook: where the time goes
# With `save_steps=5`, `ProfilerHook` measures every op of each fifth step or so. It writes the result
# to a file `timeline-N.json`. Your browser draws it at `chrome://tracing` or at
# [ui.perfetto.dev](https://ui.perfetto.dev).
#
# We train with the parameters on a parameter server (ps) and the computation on a worker. Both
# servers run in this notebook. Then we draw the shortest of the profiled steps ourselves: other
# programs have disturbed it least.

# %%
import glob
import json
import socket

sockets = [socket.socket() for _ in ("ps", "worker")]  # hold two free ports until the servers listen
for one in sockets:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("127.0.0.1", 0))
addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
cluster = {"ps": addresses[:1], "worker": addresses[1:]}
servers = [tf.train.Server(cluster, job_name=job) for job in cluster]

with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        step, w, loss, update = model()
    profiler = tf.train.ProfilerHook(save_steps=5, output_dir="profile")
    creator = tf.train.ChiefSessionCreator(master=servers[1].target)
    with tf.train.MonitoredSession(creator, hooks=[profiler]) as session:
        for _ in range(50):
            session.run(update)
timelines = glob.glob("profile/timeline-*.json")

# %% tags=["measured"]
def read(timeline):
    """The time that a step took, its ops, and the names of the places where they ran."""
    with open(timeline) as file:
        records = json.load(file)["traceEvents"]
    places = {each["pid"]: each["args"]["name"] for each in records if each["ph"] == "M"}
    ops = [each for each in records if each["ph"] == "X" and "Compute" in places[each["pid"]]]
    duration = max(op["ts"] + op["dur"] for op in ops) - min(op["ts"] for op in ops)
    return duration, ops, places

duration, ops, places = min(map(read, timelines), key=lambda step: step[0])
print("%d profiled steps, the shortest took %.1f ms" % (len(timelines), duration / 1000))
begin = min(op["ts"] for op in ops)

rows = ["ps: waits for tensors", "ps: reads and updates w",
        "worker: waits for tensors", "worker: computes"]
figure, axes = plt.subplots(figsize=(7, 2.6))
for op in ops:
    on_worker, waits = "worker" in places[op["pid"]], op["name"] == "RecvTensor"
    row = 2 * on_worker + (not waits)
    color = GRAY if waits else BLUE if on_worker else GREEN
    axes.barh(row, op["dur"] / 1000, left=(op["ts"] - begin) / 1000, height=0.6,
              color=color, edgecolor=color, lw=0.8, alpha=0.5 if waits else 1)
axes.set_yticks(range(4), rows)
axes.set(xlabel="time in this step (ms)", ylim=(-0.6, 3.6))
axes.grid(axis="y", visible=False)
show(figure, "One update as ProfilerHook saw it: on four lines the ps and the worker, each waiting "
     "for tensors and at work. Both work for a part of the time. In the rest they wait, or no op is "
     "recorded.")

# %% [markdown]
# Blue and green: the ops that compute. Grey: `RecvTensor` ops, which wait for a tensor of the other
# server. Where all lines are empty, no op was recorded: TensorFlow was busy with its own messages and
# threads. So computation is only a part of this small step. To make it faster, you would have to
# shorten the rest, too. (A profiled step is slower than the others. Compare its parts, not its
# length.)
#
# ## What the hooks cost
# | hook | fetches | its trap |
# | --- | --- | --- |
# | `LoggingTensorHook` | its tensors, every so many runs | silent at the log level ERROR |
# | `StopAtStepHook` | `step`, in each run | several workers overshoot |
# | `NanTensorHook` | the loss, in each run | one update late; `inf` passes |
# | `FeedFnHook` | nothing | feeds each run, also one that only tests |
# | `GlobalStepWaiterHook` | `step`, until it may begin | no time limit |
# | `FinalOpsHook` | its tensors, at the end | not after an error |
# | `ProfilerHook` | `step`, in each run | the profiled step is slower |
#
# In a cluster, a fetch of `step` in each run is one more message from the ps. That is why the
# examples count and log in their own loops: see [hogwild.py](../HogWild/hogwild.py).

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Infinity.** ★☆☆ Show that `NanTensorHook` lets an infinite loss pass.
#
# <details><summary>Hint</summary>
#
# Watch `tf.constant(np.inf)`. A loop of five calls of `session.run([])` is enough.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# runs = 0
# with tf.Graph().as_default():
#     hook = tf.train.NanTensorHook(tf.constant(np.inf))
#     with tf.train.MonitoredSession(hooks=[hook]) as session:
#         while runs < 5 and not session.should_stop():
#             session.run([])
#             runs += 1
# assert runs == 5
# ```
#
# </details>

# %% [markdown]
# **2. A bad end.** ★☆☆ Show that `end` is not called when your loop fails.
#
# <details><summary>Hint</summary>
#
# Give the session a `FinalOpsHook`, raise an error in the block, and look at `final_ops_values`.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     hook = tf.train.FinalOpsHook(tf.constant(7))
#     try:
#         with tf.train.MonitoredSession(hooks=[hook]) as session:
#             raise KeyError("a bug in the loop")
#     except KeyError:
#         assert hook.final_ops_values is None
# ```
#
# </details>

# %% [markdown]
# **3. Exactly twenty.** ★★☆ Let the two workers of `StopAtStepHook` stop exactly at step 20. Make
# `tf.count_up_to(step, 20)` a part of the update. It returns the step that it found, and adds 1 to
# it. At 20 it raises `OutOfRangeError` instead.
#
# <details><summary>Hint</summary>
#
# The update must not count itself: call `minimize` without `global_step`, under a control dependency
# on `count_up_to`. Catch the error in the loop. It does not close the session, so the other worker
# can go on.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# server = tf.train.Server.create_local_server()
# with tf.Graph().as_default():
#     step = tf.train.get_or_create_global_step()
#     w = digits.variables()
#     x, y = digits.batch(x_train, y_train, step.read_value())
#     loss = digits.loss(w, x, y)
#     pushes = tf.get_variable("pushes", initializer=0)
#     with tf.control_dependencies([tf.count_up_to(step, 20)]):
#         update = tf.group(tf.train.GradientDescentOptimizer(0.2).minimize(loss),
#                           pushes.assign_add(1))
#     creators = [tf.train.ChiefSessionCreator(master=server.target),
#                 tf.train.WorkerSessionCreator(master=server.target)]
#     working = [tf.train.MonitoredSession(creator) for creator in creators]
#     while working:
#         for session in list(working):
#             try:
#                 session.run(update)
#             except tf.errors.OutOfRangeError:  # no ticket is left
#                 working.remove(session)
#     with tf.Session(server.target) as session:
#         assert session.run([step, pushes]) == [20, 20]
# ```
#
# </details>

# %% [markdown]
# **4. The best parameters.** ★★★ Keras' `EarlyStopping` has `restore_best_weights`. Write a hook that
# tests every 25 updates, remembers the best parameters, and puts them back into `w` at the end. Try
# it with `lr=1.5`, where the accuracy jumps up and down.
#
# <details><summary>Hint</summary>
#
# You need ops that set `w`. When is the last moment to build them? In `after_run`,
# `context.session.run` reads `w`; in `end` you run the ops with a `feed_dict`.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# class RestoreBest(tf.train.SessionRunHook):
#     def __init__(self, w, accuracy, every=25):
#         self.w, self.accuracy, self.every = w, accuracy, every
#         self.runs, self.best, self.history = 0, -1, []
#
#     def begin(self):  # the graph is still open
#         self.values = [tf.placeholder(layer.dtype, layer.shape) for layer in self.w]
#         self.put_back = [layer.assign(value) for layer, value in zip(self.w, self.values)]
#
#     def after_run(self, context, values):
#         self.runs += 1
#         if self.runs % self.every == 0:  # a second run: the parameters after the update
#             accuracy, w = context.session.run([self.accuracy, self.w])
#             self.history.append(accuracy)
#             if accuracy > self.best:
#                 self.best, self.best_w = accuracy, w
#
#     def end(self, session):
#         session.run(self.put_back, dict(zip(self.values, self.best_w)))
#
# with tf.Graph().as_default():
#     step, w, loss, update = model(lr=1.5)
#     accuracy = digits.accuracy(w, x_test, y_test)
#     best, last = RestoreBest(w, accuracy), tf.train.FinalOpsHook(accuracy)
#     with tf.train.MonitoredSession(hooks=[best, last]) as session:
#         for _ in range(300):
#             session.run(update)
# assert last.final_ops_values == max(best.history) > best.history[-1]
# ```
#
# (To choose by the *test* data makes the reported accuracy too good: take a third part of the data in
# practice. [Classic-Mistakes-Practice](Classic-Mistakes-Practice.ipynb) says more.)
#
# </details>

# %%
# Stop what this notebook started.
thread.join(timeout=20)  # the servers end with the kernel
assert not thread.is_alive()
for one in sockets:
    one.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - [SessionRunHook](https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/SessionRunHook) in
#   TensorFlow's reference, and [from hooks to Keras
#   callbacks](https://www.tensorflow.org/guide/migrate/sessionrunhook_callback).
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 4.3: fault tolerance.
# - [HogWild](../HogWild/): a training loop without hooks, and why.
#
# Next: [Hooks-with-Files](Hooks-with-Files.ipynb), where hooks save, and a run continues.
