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
# # Sessions that recover
# On thousands of machines one dies every few hours
# ([Send-Less-Fail-Less](Send-Less-Fail-Less.ipynb)). TensorFlow's MonitoredSession goes on after such a
# loss, but not always from where it was, and it raises no error. It is no longer developed: read this
# notebook if you keep programs of TensorFlow 1, or write their heirs.
#
# After this notebook you can:
# - say what is lost when a ps, the chief or a worker dies, and what the other tasks do;
# - name the errors after which a MonitoredSession makes a new session;
# - say what a run without `checkpoint_dir` does after a loss, and prevent it;
# - say what a chief that comes back does to the model;
# - put a limit on a step that waits for a dead worker.
#
# **Before it:** [Sessions](Sessions.ipynb), [Synchronous-Replicas](Synchronous-Replicas.ipynb).
# **Time:** 45 minutes.

# %% [markdown]
# ## Who holds what
# | task | holds | when it dies |
# | --- | --- | --- |
# | ps | the only copy of its variables | nobody can go on, and the values are gone |
# | chief | nothing that is shared; it makes, restores and saves the model | asynchronous: the others train on, and nobody saves. Synchronous: they wait |
# | worker | its place in the data; with elastic averaging its own `w_k` | asynchronous: the others train on. Synchronous: they wait |
#
# (Asynchronous workers train on if *device filters* keep them apart: see [Servers](Servers.ipynb).)
# This repository's examples survive all three, if something restarts the dead task:
#
# ![Three timelines after a task was killed. A worker: the others train on, and it is back after some seconds. The chief: the others train on, and nobody saves meanwhile. A ps: no update for some seconds, then all go on from the last checkpoint, and some updates are lost.](../docs/figures/failures.svg)
#
# ## A new session when one is lost
# A MonitoredSession holds a session and its creator. A `run` can end in four ways:
#
# ![A creator makes a session, and run uses it, with hooks around it. A result goes to your loop. OutOfRange ends the block. Aborted or Unavailable means that a task was lost: the creator makes a new session, and the run is repeated. Any other error is raised in your loop.](../docs/figures/recover.svg)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import pathlib
import tempfile
import time
import matplotlib.pyplot as plt
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, RED, new_cluster, show, start

course.begin()
x, y, _, _ = course.load()

# %% [markdown]
# The ps gets a process of its own, because you will kill it. A replacement stands by, and starts its
# server when `replace_ps()` (folded) has killed the first one.

# %% jupyter={"source_hidden": true}
# %%writefile server.py
import json
import os
import sys
import time

import tensorflow.compat.v1 as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
while not os.path.exists(sys.argv[1]):  # stands by
    time.sleep(0.02)
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
server.join()

# %% jupyter={"source_hidden": true}
cluster = new_cluster(ps=1, worker=2)
all_ps = [start("server.py", cluster, "ps", 0, "ps-may-start-%d" % i) for i in range(2)]
pathlib.Path("ps-may-start-0").touch()


def replace_ps():
    """Kills the ps, as a power cut would, and lets the other one start at its address."""
    all_ps[0].kill()
    all_ps[0].wait(timeout=10)
    pathlib.Path("ps-may-start-1").touch()


# %% [markdown]
# The chief (worker 0) and worker 1 have their servers in this notebook. An `update` returns the global
# step, the number of updates that `w` has had.

# %%
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]


def config(k, seconds=30):
    """Worker k knows only itself and the ps, and no call takes longer than so many seconds."""
    filters = ["/job:ps", "/job:worker/task:%d" % k]
    return tf.ConfigProto(device_filters=filters, operation_timeout_in_ms=1000 * seconds)


def model(k, name):
    """Returns worker k's loss and update of the model with this name, in the default graph."""
    place = tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:%d" % k)
    with tf.variable_scope(name), tf.device(place):
        step = tf.train.get_or_create_global_step()
        w = course.variables()
        loss = course.loss(w, *course.batch(x, y, step))
        gradients = tf.gradients(loss, w)
        with tf.control_dependencies(gradients):
            push = tf.group(*[v.assign_sub(0.2 * g) for v, g in zip(w, gradients)])
        with tf.control_dependencies([push]):
            return loss, tf.identity(step.assign_add(1))


def open_session(k, name, checkpoint_dir=None):
    """Returns worker k's loss and update, and its session; worker 0 is the chief."""
    with tf.Graph().as_default():
        loss, update = model(k, name)
        session = tf.train.MonitoredTrainingSession(
            servers[k].target,
            is_chief=(k == 0),
            config=config(k),
            checkpoint_dir=checkpoint_dir,
            save_checkpoint_steps=50,
        )
        return loss, update, session


# %% [markdown]
# ## The ps dies
# Two chiefs train a model each on the same ps. One has no `checkpoint_dir`, the other saves every 50
# updates. After 120 updates of each, the ps is killed and replaced, and both call `run` again.
#
# **Predict:** what does each chief's first call of `run` after the replacement give: an error, 121, or
# another number?

# %% tags=["predicted"]
chiefs = {
    "without checkpoints": open_session(0, "without"),
    "with checkpoints": open_session(0, "with", checkpoint_dir="saved"),
}
steps, losses = [{name: [] for name in chiefs} for _ in range(2)]
for call in range(200):
    if call == 120:
        replace_ps()
    for name, (loss, update, chief) in chiefs.items():
        loss_now, step_now = chief.run([loss, update])
        losses[name].append(loss_now)
        steps[name].append(int(step_now))

for name, (_, _, chief) in chiefs.items():
    print(
        "%-20s ... %d, the ps is replaced, %d ... %d"
        % (name, steps[name][119], steps[name][120], steps[name][199])
    )
    chief.close()

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# without checkpoints  ... 120, the ps is replaced, 1 ... 80
# with checkpoints     ... 120, the ps is replaced, 101 ... 180
# ```
#
# Neither gives an error. With checkpoints the chief restored step 100, and makes the updates 101 to 120
# again. Without them it *initialised the variables again* on the new ps: 120 updates are gone, and only
# the step and the loss betray it.
#
# </details>

# %% jupyter={"source_hidden": true}
assert [steps[name][120] for name in chiefs] == [1, 101]
figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
for name, color in zip(chiefs, [RED, BLUE]):
    for part in slice(0, 120), slice(120, 200):
        both = part.start == 0 and name == "with checkpoints"
        look = {"color": GRAY if both else color, "linewidth": 2.5}
        if part.start == 120 or both:
            axes[0].plot(range(200)[part], steps[name][part], **look)
            axes[1].plot(range(200)[part], losses[name][part], **{**look, "linewidth": 1.2})
axes[0].hlines([50, 100, 150], 0, 200, color=GRAY, linestyle=":", linewidth=1)
axes[0].text(203, 150, "saved at\n50, 100, 150", color=GRAY, va="top")
axes[0].text(203, 183, "with checkpoints", color=BLUE, va="center")
axes[0].text(203, 80, "without", color=RED, va="center")
axes[0].text(42, 78, "both", color=GRAY, ha="left", va="center")
axes[1].text(60, 0.85, "both", color=GRAY, ha="left", va="center")
for each in axes:
    each.axvline(119.5, color="black", linestyle="--", linewidth=1)
axes[0].text(117, 190, "the ps is replaced", ha="right", va="center")
axes[0].set(ylabel="global step", xlim=(0, 200), ylim=(0, 205))
axes[1].set(xlabel="calls of run", ylabel="loss of the mini-batch", ylim=(0, None))
show(
    figure,
    "Above, the global step against the calls of run. It rises to 120 for both until the ps is "
    "replaced. With checkpoints it goes on from 101, without from 1. Below, the loss: with "
    "checkpoints it stays low, without it jumps back to its first value.",
)

# %% [markdown]
# If it trained on, the run without checkpoints would recover, and you might blame the learning rate for
# the jump. Exercise 2 turns this silence into an error.
#
# With checkpoints the global step can go *back*: a learning-rate schedule repeats a part, and two lines of
# your log have the same step. A checkpoint does not hold the place in the data: draw mini-batches by the
# step, as here, or save the iterator's state, too.
#
# ## Which errors count as a loss?
# The folded cell raises each error once, in place of a run, and counts the sessions:


# %% jupyter={"source_hidden": true}
class CountingCreator(tf.train.ChiefSessionCreator):
    """It makes the chief's session and counts how often."""

    calls = 0

    def create_session(self):
        self.calls += 1
        return super().create_session()


class RaiseOnce(tf.train.SessionRunHook):
    """It raises an error in place of one of the runs."""

    def __init__(self, kind, at=1):
        self.kind, self.at, self.runs = kind, at, 0

    def before_run(self, run_context):
        self.runs += 1
        if self.runs == self.at:
            raise self.kind(None, None, "raised by a hook")


for kind in (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.OutOfRangeError,
    tf.errors.DeadlineExceededError,
    tf.errors.InvalidArgumentError,
):
    with tf.Graph().as_default():
        one = tf.constant(1)
        creator, outcome = CountingCreator(), "the block ends, no result"
        try:
            with tf.train.MonitoredSession(creator, [RaiseOnce(kind)]) as session:
                outcome = "result %d" % session.run(one)
        except tf.errors.OpError:
            outcome = "the error reaches the loop"
    print("%-22s %-28s sessions made: %d" % (kind.__name__, outcome, creator.calls))

# %% [markdown]
# `operation_timeout_in_ms` raises `DeadlineExceededError`, so a MonitoredSession does *not* recover when a
# ps is alive and merely slow. Choose a limit that is longer than any pause that you want to survive.
#
# A worker that finds the model not ready sleeps for 30 seconds (`recovery_wait_secs`) before it looks
# again. In MonitoredTrainingSession no argument changes that, so a short run is over before.
#
# ## A chief that comes back
# Now the *chief* dies. It has saved at the steps 50 and 100, and `w` is at step 130. A worker makes 20 more
# updates, and then a new chief starts. (We just leave the old session: a ps cannot tell that from a death.)
#
# **Predict:** what is the global step of the new chief's first update?

# %% tags=["predicted"]
_, update, chief = open_session(0, "returning", "returns")
for _ in range(130):
    step_now = chief.run(update)
print("the chief dies at step:   ", step_now)

_, workers_update, worker = open_session(1, "returning")
for _ in range(20):
    step_now = worker.run(workers_update)
print("the worker trains on to:  ", step_now)

_, update, new_chief = open_session(0, "returning", "returns")
print("the new chief's update is:", new_chief.run(update))
print("the worker's next one is: ", worker.run(workers_update))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# the chief dies at step:    130
# the worker trains on to:   150
# the new chief's update is: 101
# the worker's next one is:  102
# ```
#
# The chief's creator restores the newest checkpoint, although the ps holds a newer model. The worker goes
# on from the old values, too, and notices nothing. 50 updates are lost; without a `checkpoint_dir` it
# would be all.
#
# </details>
#
# ## A creator that does better
# With a creator of your own, the chief makes or restores the model only if the ps has none, and the others
# look every 0.02 seconds.


# %%
class CarefulCreator(tf.train.SessionCreator):
    """The chief makes or restores the model if the ps has lost it; the others wait."""

    def __init__(self, k, checkpoint_dir):
        self.k, self.checkpoint_dir = k, checkpoint_dir
        self.scaffold = tf.train.Scaffold()

    def create_session(self):
        scaffold = self.scaffold.finalize()
        target, settings = servers[self.k].target, config(self.k)
        chief = tf.train.ChiefSessionCreator(scaffold, target, settings, self.checkpoint_dir)
        worker = tf.train.WorkerSessionCreator(scaffold, target, settings)
        deadline = time.monotonic() + 60
        with tf.Session(target, config=settings) as session:
            while len(session.run(scaffold.ready_for_local_init_op)):  # names without a value
                if self.k == 0:
                    return chief.create_session()
                assert time.monotonic() < deadline, "the chief made no model in 60 s"
                time.sleep(0.02)
        return worker.create_session()


with tf.Graph().as_default():
    _, update = model(0, "returning")
    saves = tf.train.CheckpointSaverHook("returns", save_steps=50)
    careful_chief = tf.train.MonitoredSession(CarefulCreator(0, "returns"), [saves])
before, after = worker.run(workers_update), careful_chief.run(update)
print("before: %d - the new chief's update is: %d" % (before, after))
assert after == before + 1

# %% [markdown]
# Nothing was lost. If the ps has died, the same creator restores the checkpoint. The examples do this
# around plain sessions: see `prepare` in [hogwild.py](../HogWild/hogwild.py).
#
# ## A synchronous step, and a dead worker
# An accumulator on the ps needs two gradients; the chief gives its own, and worker 1 is dead.

# %%
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        gathered = tf.ConditionalAccumulator(tf.float32, [], shared_name="gathered")
        give, mean_of_two = gathered.apply_grad(0.7, local_step=0), gathered.take_grad(2)
        mean_of_one = gathered.take_grad(1)
    patient = tf.Session(servers[0].target, config=config(0, seconds=60))
    hasty = tf.Session(servers[0].target, config=config(0, seconds=1))
    patient.run(give)
    try:
        hasty.run(mean_of_two)
    except tf.errors.DeadlineExceededError as error:
        print("after one second:", type(error).__name__)
    print("the chief's own gradient is still there: %.1f" % patient.run(mean_of_one))

# %% [markdown]
# Without a limit the call waits for ever, because nothing has failed; and the error names no task. Here
# the failed call took nothing. With an accumulator for each variable, a worker may die in the middle of its
# push: then the call takes some of the means, and they are lost.
#
# There are three remedies:
# - **a limit**: the step fails, and the run restarts from a checkpoint. The examples have
#   `--step-timeout`, and their error names the missing worker;
# - **backup workers**: a step needs fewer gradients than there are workers;
# - **a supervisor of processes**, such as Kubernetes: it restarts the worker, which gives the missing
#   gradient.

# %% [markdown]
# ## Exercises
# **1. What is lost?** ★☆☆ A run of three asynchronous workers saves every 100 updates. At step 1,234 one
# task dies. How many updates are lost if it is
#
# - (a) the only ps, with `checkpoint_dir`;
# - (b) the same without;
# - (c) the chief, which comes back with the default creator when the others have reached 1,274;
# - (d) the same with `CarefulCreator`;
# - (e) worker 2, between two calls of `run`?
#
# <details><summary>Hint</summary>
#
# Ask for each: which values does the ps hold now, and who replaces them by which checkpoint?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if len(answer) != 5:
        return "give five numbers: (a) to (e)"
    a, b, c, d, e = answer
    if a != 34:
        return "(a): the newest checkpoint is that of step 1,200"
    if b != 1234:
        return "(b): from what does the chief restore, when there is no checkpoint?"
    if c == 34:
        return "(c): the others have trained on to 1,274, and their updates are rolled back, too"
    if c != 74:
        return "(c): the ps goes from the state at 1,274 to that of the newest checkpoint"
    if d != 0:
        return "(d): this creator restores only if the ps has no values"
    if e != 0:
        return "(e): all updates of worker 2 are in w, on the ps"


# %%
# Your answer to exercise 1: five numbers, (a) to (e)
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = 1234 - 1200, 1234, 1274 - 1200, 0, 0
#
# assert check_1(answer_1)
# ```
#
# In (c) nobody saves while the chief is away, so the checkpoint of step 1,200 is still the newest.
#
# </details>

# %% [markdown]
# **2. Refuse to start from scratch.** ★★☆ Write a hook that raises a `RuntimeError` when a session was
# lost and the next one begins at step 0. It must allow the first session, and a restored one.
#
# <details><summary>Hint</summary>
#
# MonitoredSession calls `after_create_session(self, session, coord)` of each hook for every new session.
# `session.run(tf.train.get_global_step())` gives the step.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""

    def refuses(lose, checkpoint_dir):
        with tf.Graph().as_default():
            update = tf.train.get_or_create_global_step().assign_add(1)
            hooks = [answer(), *([RaiseOnce(tf.errors.UnavailableError, at=3)] if lose else [])]
            try:
                with tf.train.MonitoredTrainingSession(
                    checkpoint_dir=checkpoint_dir,
                    hooks=hooks,
                    save_checkpoint_steps=1,
                    save_summaries_steps=None,
                    log_step_count_steps=None,
                ) as session:
                    for _ in range(5):
                        session.run(update)
            except NotImplementedError:  # it is a RuntimeError, too
                raise
            except RuntimeError as error:
                return "finalized" not in str(error)  # that one is TensorFlow's
        return False

    if refuses(lose=False, checkpoint_dir=None):
        return "it refuses the first session, which has to begin at step 0"
    if not refuses(lose=True, checkpoint_dir=None):
        return "a session was lost without checkpoint_dir, and your hook did not raise RuntimeError"
    if refuses(lose=True, checkpoint_dir=tempfile.mkdtemp(dir=".")):
        return (
            "the lost model was restored from a checkpoint, and your hook refused it all the same"
        )


# %%
# Your answer to exercise 2
class answer_2(tf.train.SessionRunHook):
    """Raises RuntimeError when a session was lost and nothing was restored."""

    def after_create_session(self, session, coord):
        raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# class answer_2(tf.train.SessionRunHook):
#     sessions = 0
#
#     def after_create_session(self, session, coord):
#         self.sessions += 1
#         if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
#             raise RuntimeError("the session was lost, and nothing was restored: set checkpoint_dir")
#
# assert check_2(answer_2)
# ```
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 4.3 and 4.4.
# - [Fault-Tolerance](../Operations/Fault-Tolerance/) kills every task of real runs in turn.
#
# **Elsewhere:** in PyTorch `torchrun` restarts all workers when one fails, and your script loads the last
# checkpoint. In `tf.distribute` a coordinator gives a lost worker's work to another, and Keras has
# `BackupAndRestore`. In JAX all processes restart, and Orbax restores.
#
# Next: [Hooks](Hooks.ipynb), which act before and after each call of `run`.
