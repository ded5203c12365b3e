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
# # Sessions that recover, and their hooks
# On thousands of machines one dies every few hours
# ([Send-Less-Fail-Less](Send-Less-Fail-Less.ipynb)). TensorFlow's MonitoredSession goes on after such a
# loss, but not always from where it was, and without a word. You will be able to say from where, and to
# write *hooks*, which it calls around each `run`: they refuse, test and stop. MonitoredSession is no longer
# developed: read this notebook if you keep programs of TensorFlow 1, or write their heirs.
#
# After this notebook you can:
# - say what is lost when a ps, the chief or a worker dies, and what the other tasks do;
# - say what a run without `checkpoint_dir` does after a loss, and prevent it;
# - say what a chief that comes back does to the model;
# - write a hook that tests the model and stops the training;
# - tell what spoilt a NaN loss, and keep it from spoiling the parameters;
# - say who deletes which checkpoints.
#
# **Before it:** [Sessions](Sessions.ipynb), [Synchronous-Replicas](Synchronous-Replicas.ipynb).
# **Time:** 50 minutes.

# %% [markdown]
# ## Who holds what
# | task | holds | when it dies |
# | --- | --- | --- |
# | ps | the only copy of its variables | nobody can go on, and the values are gone |
# | chief | nothing that is shared; it makes, restores and saves the model | asynchronous: the others train on, and nobody saves. Synchronous: they wait |
# | worker | its place in the data; with elastic averaging its own `w_k` | asynchronous: the others train on. Synchronous: they wait |
#
# (Asynchronous workers train on if *device filters* keep them apart: see [Servers](Servers.ipynb).)
# This repository's programs survive all three, if something restarts the dead task:
#
# ![Three timelines after a task was killed. A worker: the others train on, and it is back after some seconds. The chief: the others train on, and nobody saves meanwhile. A ps: no update for some seconds, then all go on from the last checkpoint, and some updates are lost.](../docs/figures/failures.svg)
#
# ## A new session when one is lost
# A MonitoredSession holds a session and its creator. (`MonitoredTrainingSession` makes one, with the usual
# hooks.) A `run` can end in four ways:
#
# ![A creator makes a session, and run uses it, with hooks around it. A result goes to your loop. OutOfRange ends the block. Aborted or Unavailable means that a task was lost: the creator makes a new session, and the run is repeated. Any other error is raised in your loop.](../docs/figures/recover.svg)

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np
import tensorflow.compat.v1 as tf
from course import new_cluster, start

course.begin()
x, y, x_test, y_test = course.load()

# %% [markdown]
# The ps gets a process of its own, because you will kill it; `replace_ps()` (folded) then starts
# another one at its address. The chief (worker 0) and worker 1 have their servers in this notebook. An
# `update` returns the global step, the number of updates that `w` has had.

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
import glob
import os
import pathlib
import tempfile
import time

cluster = new_cluster(ps=1, worker=2)
all_ps = [start("server.py", cluster, "ps", 0, "ps-may-start-%d" % i) for i in range(2)]
pathlib.Path("ps-may-start-0").touch()


def replace_ps():
    """Kills the ps, as a power cut would, and lets the other one start at its address."""
    all_ps[0].kill()
    all_ps[0].wait(timeout=10)
    pathlib.Path("ps-may-start-1").touch()


# %% jupyter={"source_hidden": true}
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
# Two chiefs train a model each on the same ps: one without a `checkpoint_dir`, the other saves every 50
# updates. After 120 updates of each, the ps is killed and replaced.
#
# **Predict:** what does each chief's first call of `run` after the replacement give: an error, 121, or
# another number?

# %% tags=["predicted"]
chiefs = {
    "without checkpoints": open_session(0, "without"),
    "with checkpoints": open_session(0, "with", checkpoint_dir="saved"),
}
steps = {name: [] for name in chiefs}
for call in range(200):
    if call == 120:
        replace_ps()
    for name, (_, update, chief) in chiefs.items():
        steps[name].append(int(chief.run(update)))

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
# Neither gives an error. With checkpoints the chief restored step 100, and makes 20 updates again.
# Without them it *initialised the variables again* on the new ps: 120 updates are gone, and only the
# step and a jump of the loss betray it. Exercise 1 turns this silence into an error.
#
# </details>

# %% jupyter={"source_hidden": true}
assert [steps[name][120] for name in chiefs] == [1, 101]

# %% [markdown]
# With checkpoints the global step goes *back*: a learning-rate schedule repeats a part, and two lines of
# your log have the same step. A checkpoint does not hold the place in the data: draw mini-batches by the
# step, as here, or save the iterator's state.
#
# ## A slow ps is not a lost one
# `operation_timeout_in_ms` raises `DeadlineExceededError`, so a MonitoredSession does *not* recover when a
# ps is alive and merely slow. Choose a limit that is longer than any pause that you want to survive.
#
# A worker that finds the model not ready sleeps for 30 seconds (`recovery_wait_secs`) before it looks
# again. In MonitoredTrainingSession no argument changes that, so a short run is over before.
#
# ## A chief that comes back
# Now the *chief* dies. It has saved at the steps 50 and 100, and `w` is at step 130. A worker makes 20 more
# updates, and then a new chief starts. (We just leave the old session: a ps cannot tell that from a death.)

# %%
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
# The chief's creator restores the newest checkpoint, although the ps holds a newer model. The worker goes
# on from the old values, too, and notices nothing. 50 updates are lost; without a `checkpoint_dir` it
# would be all.
#
# ## A creator that does better
# With the folded creator of our own, the chief makes or restores the model only if
# `scaffold.ready_for_local_init_op` names variables without a value. The others look every 0.02 seconds:


# %% jupyter={"source_hidden": true}
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
# Nothing was lost. This repository's programs do this around plain sessions: see `prepare` in
# [hogwild_sessions.py](../From-TensorFlow-1/HogWild-Sessions/hogwild_sessions.py).
#
# ## Hooks: the life of a MonitoredSession
# ![The life of a MonitoredSession from top to bottom: begin is called once, then the graph is finalized. Session 1 calls after_create_session, then before_run, session.run and after_run in each step. When it is lost, session 2 calls after_create_session again. When the loop is done, end is called.](../docs/figures/session-life.svg)
#
# | hook | Keras callback | what it is for |
# | --- | --- | --- |
# | `begin` | `set_model` | add ops to the graph; afterwards it is *finalized*, so nobody can change it |
# | `after_create_session` | `on_train_begin` | look at the new session, which may be the second or third |
# | `before_run` | `on_train_batch_begin` | ask for more tensors, or feed some |
# | `after_run` | `on_train_batch_end` | use their values; ask the loop to stop |
# | `end` | `on_train_end` | a last test, a last file; the session is still open |
#
# TensorFlow fetches what `before_run` asks for in the *same* call of `session.run` as your loop's own
# tensors, and gives it to `after_run`.


# %% jupyter={"source_hidden": true}
def local_model(lr=0.2, spoilt=None):
    """Builds w <- w - lr * g(w), step <- step + 1. Mini-batch number `spoilt` has NaN pixels."""
    step = tf.train.get_or_create_global_step()
    w = course.variables()
    number = step.read_value()
    images, labels = course.batch(x, y, number)
    if spoilt:
        images += tf.where(tf.equal(number, spoilt), np.nan, 0.0)
    loss = course.loss(w, images, labels)
    update = tf.train.GradientDescentOptimizer(lr).minimize(loss, global_step=step)
    return step, w, loss, update


# %% [markdown]
# ## A hook of your own
# From here on we train in one process; `local_model` is folded. This hook computes the accuracy on the
# test data every 25 updates, and at 95% asks the loop to stop.


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


with tf.Graph().as_default():
    step, w, loss, update = local_model()
    stop_when_good = StopWhenGood(course.accuracy(w, x_test, y_test), enough=0.95)
    with tf.train.MonitoredSession(hooks=[stop_when_good]) as session:
        while not session.should_stop():
            session.run(update)
print(*["update %d: %.0f%%" % (runs, 100 * seen) for runs, seen in stop_when_good.seen], sep="\n")

# %% [markdown]
# Nothing orders the accuracy and the update of one run, so it may belong to `w` from before that update or
# after it. If you need the exact `w`, read it in a second run, as in exercise 2.
#
# ## A NaN loss
# `NanTensorHook` fetches the loss in every run, and stops when it is not a number. We train twice: with an
# absurd learning rate, `1e10`, and with a good one, but a mini-batch with NaN pixels.


# %% jupyter={"source_hidden": true}
class Record(tf.train.SessionRunHook):
    """Keeps the loss of each update."""

    def __init__(self, loss):
        self.loss, self.losses = loss, []

    def before_run(self, context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, context, values):
        self.losses.append(values.results)


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


def until_nan(lr, spoilt):
    """Returns the losses up to the first NaN, and the largest |w| before each update and at the end."""
    with tf.Graph().as_default():
        step, w, loss, update = local_model(lr, spoilt)
        record, weight = Record(loss), LargestWeight(w)
        stop = tf.train.NanTensorHook(loss, fail_on_nan_loss=False)
        with tf.train.MonitoredSession(hooks=[record, weight, stop]) as session:
            while not session.should_stop():
                session.run(update)
    return record.losses, weight.sizes


# %% [markdown]
# **Predict:** the hook stops each run at the first NaN loss. In which of the two are the parameters still
# good *before* that run's last update? In which are they good after it?

# %% tags=["predicted"]
runs = {"lr = 1e10": until_nan(1e10, None), "a NaN batch": until_nan(0.2, 39)}
for name, (losses, sizes) in runs.items():
    last = ", ".join("%.2g" % loss for loss in losses[-4:])
    print("%-11s  stopped at update %2d; the last losses: %s" % (name, len(losses), last))
    print("%-11s  largest |w| before it %.1e, after it %s" % ("", *sizes[-2:]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# lr = 1e10    stopped at update  4; the last losses: 2.2, 1.3e+19, inf, nan
#              largest |w| before it 2.1e+29, after it nan
# a NaN batch  stopped at update 40; the last losses: 0.94, 0.77, 0.96, nan
#              largest |w| before it 9.2e-01, after it nan
# ```
#
# With the bad mini-batch loss and parameters were good before the last update: *this batch* spoilt the
# loss. With the absurd learning rate an *earlier update* had made the parameters so large that the outputs
# overflow. After the last update both are NaN, because the run that shows the NaN loss also makes its
# update.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert all(np.isnan(losses[-1]) and np.isnan(sizes[-1]) for losses, sizes in runs.values())

# %% [markdown]
# If the loss grew before it became NaN, lower the learning rate, and go back to a checkpoint from before the
# growth. If it was healthy, look at that batch (or at a logarithm or a division in the loss), and go back to
# the last checkpoint.
#
# The hook comes one update late, and lets `inf` pass. To stop *before* the update, make it depend on
# `tf.check_numerics(value, message)` of the loss and of each gradient, which fails on NaN and `inf`:

# %% jupyter={"source_hidden": true}
with tf.Graph().as_default():
    step, w, loss, _ = local_model(spoilt=39)
    gradients = tf.gradients(loss, w)
    checks = [tf.check_numerics(value, "not finite") for value in (loss, *gradients)]
    with tf.control_dependencies(checks):
        optimizer = tf.train.GradientDescentOptimizer(0.2)
        guarded = optimizer.apply_gradients(zip(gradients, w), global_step=step)
    with tf.train.MonitoredSession() as session:
        try:
            while True:
                session.run(guarded)
        except tf.errors.InvalidArgumentError:
            made, layers = session.run([step, w])
            finite = all(np.isfinite(layer).all() for layer in layers)
            print("InvalidArgumentError after %d updates; is w finite? %s" % (made, finite))

# %% [markdown]
# ## Who deletes what
# A `Saver` keeps its last five checkpoints (`max_to_keep=5`) and deletes older ones. Which are *its own*
# when a run continues? In `train` (folded) one `Saver` restores and saves, as in
# `MonitoredTrainingSession`, or the saving hook has another. A first run saves at 0, 10, 20 and 30; the
# second continues it, and saves at 30, 40, 50 and 60:


# %% jupyter={"source_hidden": true}
def train(path, hooks_own=False):
    """Makes 30 updates of a new graph, and saves every 10."""
    with tf.Graph().as_default():
        step, w, loss, update = local_model()
        scaffold = tf.train.Scaffold(saver=tf.train.Saver())
        creator = tf.train.ChiefSessionCreator(scaffold, checkpoint_dir=path)
        saver = tf.train.Saver() if hooks_own else scaffold.saver
        hook = tf.train.CheckpointSaverHook(path, save_steps=10, saver=saver)
        with tf.train.MonitoredSession(creator, [hook]) as session:
            for _ in range(30):
                session.run(update)


def saved(path):
    """Returns the steps of the checkpoints in a folder."""
    files = glob.glob(os.path.join(path, "*.index"))
    return sorted(int(file[: -len(".index")].rsplit("-", 1)[1]) for file in files)


# %%
left = {}
for name, hooks_own in ("one Saver", False), ("a Saver of the hook's own", True):
    train(name)
    train(name, hooks_own)
    left[name] = saved(name)
    print("%-26s %s" % (name, left[name]))

# %% [markdown]
# When a session restores, its `Saver` takes over the first run's list from the file `checkpoint`, so a longer
# second run deletes all of those checkpoints. A `Saver` of the hook knows only its own, so nobody ever
# deletes the older files. Copy what you want to keep out of the folder, or set a larger `max_to_keep`.

# %% jupyter={"source_hidden": true}
# The text, checked.
assert list(left.values()) == [[20, 30, 40, 50, 60], [0, 10, 20, 30, 40, 50, 60]]

# %% [markdown]
# ## Exercises
# **1. Refuse to start from scratch.** ★★☆ Write a hook that raises a `RuntimeError` when a session was
# lost and the next one begins at step 0. It must allow the first session, and a restored one.
#
# <details><summary>Hint</summary>
#
# MonitoredSession calls `after_create_session(self, session, coord)` of each hook for every new session.
# `session.run(tf.train.get_global_step())` gives the step.
#
# </details>


# %% jupyter={"source_hidden": true}
class RaiseOnce(tf.train.SessionRunHook):
    """It raises an error in place of one of the runs."""

    def __init__(self, kind, at=1):
        self.kind, self.at, self.runs = kind, at, 0

    def before_run(self, run_context):
        self.runs += 1
        if self.runs == self.at:
            raise self.kind(None, None, "raised by a hook")


@course.exercise
def check_1(answer):
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
                words = "finalized", "should_stop"  # in TensorFlow's own errors
                return not any(word in str(error) for word in words)
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
# Your answer to exercise 1
class answer_1(tf.train.SessionRunHook):
    """Raises RuntimeError when a session was lost and nothing was restored."""

    def after_create_session(self, session, coord):
        raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# class answer_1(tf.train.SessionRunHook):
#     sessions = 0
#
#     def after_create_session(self, session, coord):
#         self.sessions += 1
#         if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
#             raise RuntimeError("the session was lost, and nothing was restored: set checkpoint_dir")
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. The best parameters.** ★★★ Keras' `EarlyStopping` has `restore_best_weights`. Write a hook that tests
# after every 25th update, remembers the best parameters, and puts them back into `w` at the end.
#
# <details><summary>Hint</summary>
#
# You need ops that set `w`. When is the last moment to build them? In `after_run`, `context.session.run`
# reads the `w` that the update has left; in `end` you run the ops with a `feed_dict`.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    seen = []

    class Watch(tf.train.SessionRunHook):
        runs = 0

        def after_run(self, context, values):
            self.runs += 1
            if self.runs % 25 == 0:
                seen.append(context.session.run(accuracy))

    with tf.Graph().as_default():
        step, w, loss, update = local_model(lr=1.5)
        accuracy = course.accuracy(w, x_test, y_test)
        last = tf.train.FinalOpsHook(accuracy)
        hooks = [Watch(), answer(w, accuracy), last]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            for _ in range(300):
                session.run(update)
    reached = "%.1f%%, and the best was %.1f%%" % (100 * last.final_ops_values, 100 * max(seen))
    if last.final_ops_values == seen[-1] < max(seen):
        return "w is as good as the last update left it: " + reached
    if last.final_ops_values > max(seen):
        return "w is better than after each 25th update, so your hook tests at others: " + reached
    if last.final_ops_values != max(seen):
        return "w is neither the last nor the best: " + reached


# %%
# Your answer to exercise 2
class answer_2(tf.train.SessionRunHook):
    """Puts the best parameters back into w. accuracy: the tensor to test by."""

    def __init__(self, w, accuracy):
        raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# class answer_2(tf.train.SessionRunHook):
#     def __init__(self, w, accuracy):
#         self.w, self.accuracy, self.runs, self.best = w, accuracy, 0, -1
#
#     def begin(self):  # the graph is still open
#         self.values = [tf.placeholder(layer.dtype, layer.shape) for layer in self.w]
#         self.put_back = [layer.assign(value) for layer, value in zip(self.w, self.values)]
#
#     def after_run(self, context, values):
#         self.runs += 1
#         if self.runs % 25 == 0:  # a second run: the parameters after the update
#             accuracy, w = context.session.run([self.accuracy, self.w])
#             if accuracy > self.best:
#                 self.best, self.best_w = accuracy, w
#
#     def end(self, session):
#         session.run(self.put_back, dict(zip(self.values, self.best_w)))
#
# assert check_2(answer_2)
# ```
#
# A choice by the *test* data makes the reported accuracy too good: in practice choose by a third part, the
# validation data.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), sections 4.3 and 4.4.
# - [SessionRunHook](https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/SessionRunHook) in
#   TensorFlow's reference, and [from hooks to Keras
#   callbacks](https://www.tensorflow.org/guide/migrate/sessionrunhook_callback).
# - [Fault-Tolerance](../Operations/Fault-Tolerance/) kills every task of real runs in turn.
#
# **Elsewhere:** in PyTorch `torchrun` ends all workers when one fails; with `--max-restarts` it restarts
# them, and your script loads the last checkpoint. In `tf.distribute` a coordinator gives a lost worker's
# work to another, and Keras has `BackupAndRestore`. In JAX all processes restart, and Orbax restores. A
# hook is a callback in Keras (`ModelCheckpoint`, `TerminateOnNaN`) and in PyTorch Lightning.
#
# Next: [Classic-Mistakes-Practice](Classic-Mistakes-Practice.ipynb).
