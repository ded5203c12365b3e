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
# # Sessions
#
# A session is a client's line to a server. On a cluster somebody must make the model once, the
# others must wait for it, and all must go on after a failure. TensorFlow has a term for each of
# these; here they come one upon the other.
#
# After this notebook you can:
# - say what each adds: `Coordinator`, `SessionManager`, `Supervisor`, `Scaffold`,
#   `ChiefSessionCreator`, `WorkerSessionCreator`, `MonitoredSession`, `MonitoredTrainingSession`;
# - let a chief make or restore a model, and a worker wait for it;
# - say what happens to each kind of session when the ps dies, and make one that goes on.
#
# 25 minutes. Before it: [Ring-AllReduce](Ring-AllReduce.ipynb); you need [Servers](Servers.ipynb)
# for it.

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # nothing else silences oneDNN's notice
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import inspect, shutil, socket, subprocess, sys, tempfile, threading  # noqa: E401
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.FATAL)  # a lost ps is an error; we show it ourselves
tf.disable_v2_behavior()
tf.enable_resource_variables()

# %% [markdown]
# ## A cluster
# A ps, a chief (worker 0) and a worker (worker 1). The ps is a process of its own, because we are
# going to kill it; a second one stands by, which imports TensorFlow meanwhile and starts its
# server, at the same port, when it gets a line. Both end when their stdin is closed. The servers
# of the two workers are in this process and end with it. The ports are held to the end.

# %%
PS = """if True:
    import os, sys
    import tensorflow.compat.v1 as tf
    if sys.stdin.readline():
        server = tf.train.Server(%r, job_name="ps", task_index=0)
        sys.stdin.read()
    os._exit(0)"""
sockets = [socket.socket() for _ in range(3)]
for s in sockets:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))  # the system chooses free ports
addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
cluster = {"ps": addresses[:1], "worker": addresses[1:]}
ps, stand_by = [subprocess.Popen([sys.executable, "-c", PS % cluster], text=True,
                                 stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in "12"]

# %%
print("start", file=ps.stdin, flush=True)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
configs = [tf.ConfigProto(  # a worker need not know the other; and no wait is without an end
    device_filters=["/job:ps", "/job:worker/task:%d" % k],
    operation_timeout_in_ms=30000) for k in (0, 1)]
folder = tempfile.mkdtemp()

def model():
    """In the present graph, on the ps: (step, update). An update moves w half of the way to 1."""
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        with tf.control_dependencies([w.assign_add(0.5 * (1 - w))]):
            return step, tf.identity(step.assign_add(1))

# %% [markdown]
# ## A plain session
# **Predict:** worker 1 is ready before the chief has initialised the variables. What does it get?

# %%
with tf.Graph().as_default():
    step, update = model()
    initialise = tf.global_variables_initializer()
    with tf.Session(servers[1].target, config=configs[1]) as worker:
        try:
            worker.run(update)
        except tf.errors.FailedPreconditionError as error:
            print("the worker, too early:", type(error).__name__)
        with tf.Session(servers[0].target, config=configs[0]) as chief:
            chief.run(initialise)
            print("the chief's update is number ", chief.run(update))
        print("the worker's update is number", worker.run(update))

# %% [markdown]
# An error, and worse is possible: had the worker run `initialise` itself, it would have undone
# what the chief had learned. So: one makes the model, the others wait.
#
# ## Coordinator: several threads end together
# **Predict:** three threads count; the second fails at 3. When do the others end, and who hears of
# the error?

# %%
coordinator, counts = tf.train.Coordinator(), [0, 0, 0]

def work(k):
    with coordinator.stop_on_exception():  # tells the coordinator, and with it the others
        while not coordinator.should_stop():
            counts[k] += 1
            if k == 1 and counts[k] == 3:
                raise ValueError("thread 1 failed")
            coordinator.wait_for_stop(timeout=0.01)  # sleeps, or wakes up at the stop

threads = [threading.Thread(target=work, args=[k], daemon=True) for k in range(3)]
for thread in threads:
    thread.start()

# %%
try:
    coordinator.join(threads, stop_grace_period_secs=10)
except ValueError as error:
    print("join raised:", error)
print("still running:", sum(thread.is_alive() for thread in threads))
assert counts[1] == 3

# %% [markdown]
# `join` waits for all, and raises in the main thread what the first that failed has raised. Queues
# and savers run in such threads; Supervisor and MonitoredSession have a
# coordinator within them.
#
# ## SessionManager: one makes the model, the others wait
# **Predict:** a new variable `x`, and nobody makes the model: the worker waits for one second.
# Then the chief makes it, and the worker waits again. What does each wait give?

# %%
with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
    x = tf.get_variable("x", [], initializer=tf.ones_initializer())
    ready = tf.report_uninitialized_variables()
    manager = tf.train.SessionManager(ready_op=ready, recovery_wait_secs=0.2)
    try:
        manager.wait_for_session(servers[1].target, configs[1], max_wait_secs=1)
    except tf.errors.DeadlineExceededError as error:
        print("the first wait: ", type(error).__name__)
    initialise = tf.global_variables_initializer()
    chief = manager.prepare_session(servers[0].target, initialise, config=configs[0])
    worker = manager.wait_for_session(servers[1].target, configs[1], max_wait_secs=10)
    print("the second wait: x is there, and is", worker.run(x))
default = inspect.signature(tf.train.SessionManager).parameters["recovery_wait_secs"].default
print("without recovery_wait_secs it looks every", default, "seconds")

# %% [markdown]
# The worker looks, sleeps, and looks again: every 30 s by default, so that it may miss a short
# run. The examples set half a second. `prepare_session` also restores a checkpoint where there is
# one.
#
# ## Supervisor: a manager, a coordinator and a saver in one
# **Predict:** the chief makes 4 updates under a Supervisor, and saves. Then it all begins again, in
# a new graph. With which update does it go on?

# %%
def supervised(updates):
    with tf.Graph().as_default():
        step, update = model()
        supervisor = tf.train.Supervisor(  # 0: without its thread, which would save by the clock
            logdir=os.path.join(folder, "supervisor"), global_step=step, summary_op=None,
            save_model_secs=0)
        with supervisor.managed_session(servers[0].target, configs[0]) as session:
            assert type(session) is tf.Session
            made = [int(session.run(update)) for _ in range(updates)]
            supervisor.saver.save(session, supervisor.save_path, step)
            return made

print("first:", supervised(4), " then:", supervised(2))

# %% [markdown]
# It found the checkpoint and restored it. (The save is ours: the Supervisor's thread saves at once,
# and then every ten minutes, beside whatever the loop does.) Deprecated, and one sees why: it is
# all or nothing, and its session is a plain one: nothing comes between a `run` and a failure. What
# follows takes it apart.
#
# ## Scaffold, ChiefSessionCreator, WorkerSessionCreator: a session, as often as one is needed
# A Scaffold holds what a session needs to begin: ops, a `saver`, perhaps an `init_fn`. A creator
# has one method, `create_session`, which can be called again. That is the point of it.
#
# **Predict:** which of the two runs `init_fn`? Can the graph be changed after the Scaffold was
# finalized?

# %%
with tf.Graph().as_default():
    step, update = model()
    scaffold = tf.train.Scaffold(init_fn=lambda scaffold, session: print("init_fn is run"))
    scaffold.finalize()
    parts = "init_op", "ready_op", "ready_for_local_init_op", "local_init_op", "saver"
    print("made by default:", *[part for part in parts if getattr(scaffold, part) is not None])
    try:
        tf.constant(1)
    except RuntimeError as error:
        print(error)
    chief = tf.train.ChiefSessionCreator(scaffold, servers[0].target, configs[0]).create_session()
    print("the chief's", type(chief).__name__, "makes update number", chief.run(update))
    worker = tf.train.WorkerSessionCreator(scaffold, servers[1].target, configs[1]).create_session()
    print("the worker's", type(worker).__name__, "makes update number", worker.run(update))

# %% [markdown]
# The chief's creator initialises, the worker's waits. What is not given is made with the default;
# then the graph is finalized, so that no loop can make it grow with each step. The sessions are
# plain ones still.
#
# ## MonitoredSession: hooks, and a new session when one is lost
# The chief saves every 5 updates, and the worker has a MonitoredSession, too; beside them there is
# a plain session.
#
# **Predict:** the chief makes 12 updates, then the ps is killed and replaced. What does the
# chief's next `run` return? And that of the worker, and that of the plain session?

# %%
class Counting(tf.train.ChiefSessionCreator):
    made = 0

    def create_session(self):
        self.made += 1
        return super().create_session()

def kill_the_ps():
    global ps
    ps.kill()
    ps.wait(timeout=10)
    ps = stand_by
    print("start", file=ps.stdin, flush=True)

# %%
directory = os.path.join(folder, "monitored")
with tf.Graph().as_default():
    step, update = model()
    scaffold = tf.train.Scaffold()
    creator = Counting(scaffold, servers[0].target, configs[0], directory)
    saves = tf.train.CheckpointSaverHook(directory, save_steps=5, scaffold=scaffold)
    waits = tf.train.WorkerSessionCreator(scaffold, servers[1].target, configs[1])
    monitored = tf.train.MonitoredSession
    with monitored(creator, [saves]) as chief, monitored(waits) as worker:
        plain = tf.Session(servers[1].target, config=configs[1])
        seen = [int(chief.run(update)) for _ in range(12)]
        assert worker.run(step) == plain.run(step) == 12
        kill_the_ps()
        seen += [int(chief.run(update)) for _ in range(8)]
        workers = int(worker.run(update))

# %%
print("the chief's updates:", seen)
print("its creator was called", creator.made, "times, and no error reached the loop")
print("the worker's next update:", workers)
try:
    plain.run(update)
except (tf.errors.AbortedError, tf.errors.UnavailableError):
    print("the plain session: an error, which its loop must handle")
else:
    raise AssertionError("the plain session has not noticed")
assert seen == [*range(1, 13), *range(11, 19)] and creator.made == 2 and workers == 19

# %% [markdown]
# `UnavailableError` and `AbortedError` mean that a task was lost: on these, and no others, a
# MonitoredSession calls its creator again, and the `run` anew. The chief's creator restored update
# 10; 11 and 12 were made twice. The worker's creator found the model there; had it looked before
# the chief, it would have waited 30 s. `OutOfRangeError` ends the block in peace; any other error
# reaches the loop.

# %%
import matplotlib.pyplot as plt
plt.figure(figsize=(6.4, 3), dpi=80)
plt.plot(range(1, 13), seen[:12], "o-", color="tab:blue", label="the chief's updates")
plt.plot(range(13, 21), seen[12:], "o-", color="tab:blue")
plt.axvline(12.5, color="tab:gray", linestyle="--", label="the ps dies, another takes its place")
plt.hlines([5, 10, 15], 0, 21, color="tab:gray", linewidth=0.5, label="checkpoints")
plt.xlabel("call of run")
plt.ylabel("number of the update")
plt.yticks(range(0, 21, 5))
plt.legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# ## MonitoredTrainingSession: all of it in one call
# **Predict:** chief and worker run the same two lines; only `is_chief` differs. The chief's folder
# holds the checkpoint of update 19. With which updates do they go on, in turn?

# %%
def open_session(k):
    graph = tf.Graph()
    with graph.as_default():
        step, update = model()
        return update, tf.train.MonitoredTrainingSession(
            servers[k].target, is_chief=k == 0, checkpoint_dir=directory, config=configs[k],
            hooks=[tf.train.StopAtStepHook(last_step=23)], save_checkpoint_steps=5)

tasks, turns = [open_session(0), open_session(1)], []
for k in 0, 1, 0, 1, 0:
    update, session = tasks[k]
    turns.append((["chief", "worker"][k], int(session.run(update))))
print(turns, " stop?", [session.should_stop() for _, session in tasks])
for _, session in tasks:
    session.close()

# %% [markdown]
# They went on at 20; the worker saw 23 and stopped, the chief one later ([Hooks](Hooks.ipynb)
# shows why).
#
# | what is added | by | see |
# | --- | --- | --- |
# | threads that end together | Coordinator | Supervisor, MonitoredSession |
# | one makes or restores, the others wait | SessionManager | Supervisor, the creators |
# | a thread that saves by the clock | Supervisor | [by hand](../Distributed-Setup/) |
# | the ops for it, with defaults | Scaffold | the creators |
# | a session, again and again | Chief-, WorkerSessionCreator | MonitoredSession |
# | hooks, and going on after a loss | MonitoredSession | [HogWild](../HogWild/), all with a ps |
# | all by `is_chief` | MonitoredTrainingSession | [alone](../Non-Distributed-Setup/) |

# %%
# Stop what this notebook started.
for process in ps, stand_by:
    process.stdin.close()
    process.wait(timeout=10)
for s in sockets:
    s.close()
shutil.rmtree(folder)

# %% [markdown]
# ## Exercises
# The second needs what the last cell has stopped: restart the kernel, and run the cells above that
# one. Next: [Hooks](Hooks.ipynb).

# %% [markdown]
# **1. A good end.** Let `MonitoredSession` end by `OutOfRangeError`, and show that no error leaves
# the block.
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     counter = tf.get_local_variable("counter", [], tf.int64, tf.zeros_initializer())
#     ticket, calls = tf.count_up_to(counter, 3), 0
#     with tf.train.MonitoredSession() as session:
#         while not session.should_stop():
#             session.run(ticket)
#             calls += 1
# assert calls == 3
# ```
#
# </details>

# %% [markdown]
# **2. A worker in more of a hurry.** Write a creator of a worker's session that looks twice a
# second, not every 30 s; and a model that comes a second late.
# <details><summary>Solution</summary>
#
# ```python
# class QuickWorker(tf.train.SessionCreator):
#     def create_session(self):
#         scaffold = tf.train.Scaffold().finalize()
#         return tf.train.SessionManager(
#             local_init_op=scaffold.local_init_op, ready_op=scaffold.ready_op,
#             ready_for_local_init_op=scaffold.ready_for_local_init_op, recovery_wait_secs=0.5,
#         ).wait_for_session(servers[1].target, configs[1], max_wait_secs=20)
#
# with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
#     late = tf.get_variable("late", [], initializer=tf.ones_initializer())
#     import time
#     with tf.Session(servers[0].target, config=configs[0]) as chief:
#         threading.Timer(1, chief.run, [late.initializer]).start()
#         before = time.monotonic()
#         with tf.train.MonitoredSession(QuickWorker()) as session:
#             assert session.run(late) == 1
# assert 1 <= time.monotonic() - before < 20  # the default looks again after 30 s
# ```
#
# </details>

# %% [markdown]
# **3. Not every error.** Show that a MonitoredSession does not make a new session on an error of
# the model itself.
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default():
#     bad = tf.debugging.Assert(False, ["the model is wrong"])
#     creator = Counting()
#     try:
#         with tf.train.MonitoredSession(creator) as session:
#             session.run(bad)
#     except tf.errors.InvalidArgumentError:
#         assert creator.made == 1
#     else:
#         assert False
# ```
#
# </details>
