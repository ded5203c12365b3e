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
# # Synchronous replicas
# All workers take a gradient at the same `w`, and `w` moves once, by the mean. For that the ps
# needs a place where gradients gather, and the workers something to wait for: an accumulator and a
# queue of tokens.
#
# After this notebook you can:
# - gather gradients in a `tf.ConditionalAccumulator`, and say which it drops;
# - make the workers wait for each other by tokens in a queue;
# - show what a slow worker costs, and what a backup worker buys;
# - explain why [Synchronous-SGD](../Synchronous-SGD/) tells apart whose gradient it has.
#
# 20 minutes. Before this one: [Stale-Gradients](Stale-Gradients.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or its log fills the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it announces itself
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # one parameter needs no GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"  # a server may listen on a port that is held for it
import socket
from types import SimpleNamespace
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy, never an alias of the ps's buffer
COLOURS = ["tab:blue", "tab:orange", "tab:green"]

# %%
# A cluster: one ps and three workers, all servers in this process. They talk over the network all
# the same. Such a server cannot be stopped; it ends with the kernel.
sockets = [socket.socket() for _ in range(4)]
for s in sockets:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))  # a free port, which is held until the end
addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
cluster = tf.train.ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in range(3)]

def open_sessions(graph):
    """A session at each worker in which nothing waits for more than ten seconds."""
    config = tf.ConfigProto(operation_timeout_in_ms=10000)
    return [tf.Session(server.target, graph, config) for server in servers]

# %% [markdown]
# ## A place where gradients gather
# A `tf.ConditionalAccumulator` on the ps adds up what workers give it, and `take_grad(N)` waits for
# `N` gradients, returns their mean, and begins anew.
#
# **Predict:** worker 0 gives 2 and worker 1 gives 6: what does `take_grad(2)` return? Then *three*
# give 1, 2 and 12: the mean of which does `take_grad(2)` return? Then only worker 0 gives one: what
# does `take_grad(2)` do?

# %%
with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    accumulator = tf.ConditionalAccumulator(tf.float32, [], shared_name="first try")
    g, version = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
    give = accumulator.apply_grad(g, local_step=version)
    count, take_2 = accumulator.num_accumulated(), accumulator.take_grad(2)
sessions = open_sessions(graph)
for step, gradients in enumerate([[2, 6], [1, 2, 12], [7]]):
    for k, gradient in enumerate(gradients):
        sessions[k].run(give, {g: gradient, version: step})
    print("given %-10s there: %d   " % (gradients, sessions[0].run(count)), end="")
    try:
        print("take_grad(2):", sessions[0].run(take_2, options=tf.RunOptions(timeout_in_ms=2000)))
    except tf.errors.DeadlineExceededError:
        print("take_grad(2): waits")

# %% [markdown]
# The mean of *all* that are there, three in the second case: `N` is what it waits for, not what it
# takes.
#
# ## What comes too late
# An accumulator has a clock: how often a mean was taken, or what `set_global_step` has set. Each
# gradient says at which step its `w` was pulled, `local_step`. The clock is now at 2, and one
# gradient, the 7, is there.
#
# **Predict:** now four gradients come, of the steps 0, 1, 2 and 3. Which does the accumulator keep?

# %%
for step in range(4):
    before = sessions[1].run(count)
    sessions[1].run(give, {g: 9, version: step})
    kept = sessions[1].run(count) > before
    print("a gradient at step", step, "is", "kept" if kept else "dropped")
    assert kept == (step >= 2)
print("take_grad(2):", sessions[0].run(take_2))

# %% [markdown]
# What was taken at an older `w` is dropped, and nobody is told: `apply_grad` succeeds. So nothing
# stale moves `w`. (A step ahead of the clock is kept; it does not occur where the steps come from
# the ps.)
#
# ## Something to wait for
# A worker that has given its gradient must not go on before `w` has moved. It waits for a *token*:
# it dequeues from a queue on the ps, into which the chief puts one token for each worker when the
# step is made.
#
# **Predict:** what does worker 1 get before the chief has put the tokens there, and what after?

# %%
with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    tokens = tf.FIFOQueue(100, tf.int64, [[]], shared_name="first tokens")
    token, left = tokens.dequeue(), tokens.size()
    put_tokens = tokens.enqueue_many([tf.fill([3], tf.constant(1, tf.int64))])
sessions += open_sessions(graph)
chief, worker_1, worker_2 = sessions[-3:]
try:
    worker_1.run(token, options=tf.RunOptions(timeout_in_ms=500))
except tf.errors.DeadlineExceededError:
    print("no token: worker 1 waits")
chief.run(put_tokens)
for name, session in ("worker 1", worker_1), ("worker 2", worker_2):
    print("%s gets token %d, %d left" % (name, session.run(token), session.run(left)))

# %% [markdown]
# ## The parts put together
# ```
# each worker   g_k(w) on data of its own, all at the same w
# together      w <- w - lr * (1/N) * (g_1 + ... + g_N)     the first N of n gradients to arrive
# ```
# The data of worker `k` is one number `c_k`, its loss ½ (`w` − `c_k`)², its gradient `w` − `c_k`.
# All three together have their minimum at the mean of 1, 2 and 6, at 3. A token holds the number of
# the step; the worker notes it as the `version` of the `w` that it pulls then.
#
# **Predict:** `w` starts at 0, `lr` is 0.5. Where is it after one step? After two?

# %%
C, LR = [1.0, 2.0, 6.0], 0.5

def ready(**parts):
    """run(part) or run(part, k), in the session of worker k, after everything was initialised."""
    mine = open_sessions(tf.get_default_graph())
    sessions.extend(mine)
    mine[0].run([tf.global_variables_initializer(), tf.local_variables_initializer()])

    def run(part, k=None):
        return mine[k or 0].run(parts[part] if k is None else parts[part][k])
    return SimpleNamespace(run=run, N=parts["N"])

# %%
def model():
    """w and the step on the ps; of each worker its version, its gradient, and how it pulls."""
    w = tf.get_variable("w", initializer=0.0)
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
    workers = []
    for k in range(3):
        with tf.device("/job:worker/task:%d" % k):
            w_k = tf.get_local_variable("w_%d" % k, initializer=0.0)
            version = tf.get_local_variable("v_%d" % k, initializer=tf.zeros([], tf.int64))
            def pull(now, w_k=w_k, version=version):
                with tf.control_dependencies([version.assign(now)]):
                    return w_k.assign(w.read_value()).op
            workers.append(SimpleNamespace(version=version, g=w_k - C[k], pull=pull))
    return w, step, workers

# %%
def common(name, N):
    """An accumulator and a queue for all. push, may_go and go have one entry for each worker."""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w, step, workers = model()
        accumulator = tf.ConditionalAccumulator(tf.float32, [], shared_name="gradients " + name)
        tokens = tf.FIFOQueue(100, tf.int64, [[]], shared_name="tokens " + name)
        with tf.control_dependencies([w.assign_sub(LR * accumulator.take_grad(N))]):
            after = tf.identity(step.assign_add(1))
        return ready(w=w, N=N, there=accumulator.num_accumulated(),
                     push=[accumulator.apply_grad(worker.g, local_step=worker.version)
                           for worker in workers],
                     make_step=tokens.enqueue_many([tf.fill([3], after)]),
                     may_go=3 * [tokens.size() > 0],
                     go=[worker.pull(tokens.dequeue()) for worker in workers])

# %%
three = common("by hand", N=3)
for step in range(2):
    for k in range(3):
        three.run("push", k)
        print("worker %d has pushed: %d there" % (k, three.run("there")))
    three.run("make_step")
    print("the chief makes step %d: w = %.2f" % (step + 1, three.run("w")))
    for k in range(3):
        three.run("go", k)  # takes a token, and pulls
alone = 0.0
for _ in range(2):
    alone -= LR * (alone - np.mean(C))  # one worker that has the data of all
assert three.run("w") == alone

# %% [markdown]
# The same as one worker that has the data of all, to the last digit.
#
# ## One worker is slow
# Now the workers compute at the same time: worker 0 takes 2 ticks of a clock for a gradient, worker
# 1 takes 4, worker 2 takes 7. The clock is the notebook's, so that the picture comes out the same
# each time; accumulator and tokens are the real ones.
#
# **Predict:** how many steps do they make in 42 ticks? How much of its time does worker 0 compute?

# %%
def simulate(task, ticks, until=42):
    """[(k, pull, push, go, kept)] of each gradient, and [(tick, whose gradients)] of each step."""
    bars, steps, whose = [], [], []
    pulled, waiting = [0, 0, 0], {}
    for now, k in [(now, k) for now in range(1, until + 1) for k in range(3)]:
        if k not in waiting and now == pulled[k] + ticks[k]:
            before = task.run("there")
            task.run("push", k)
            kept = bool(task.run("there") > before)
            waiting[k], whose = (k, pulled[k], now, kept), whose + [k] * kept
            if task.run("there") == task.N:
                task.run("make_step")
                steps, whose = steps + [(now, whose)], []
            go_on(task, now, pulled, waiting, bars)
    return bars + [(*bar[:3], until, bar[3]) for bar in waiting.values()], steps

# %%
def go_on(task, now, pulled, waiting, bars):
    """Those who wait and find a token go on, who came first before the others."""
    for k in list(waiting):
        if task.run("may_go", k):
            task.run("go", k)
            pulled[k], (_, *bar, kept) = now, waiting.pop(k)
            bars.append((k, *bar, now, kept))

def show(task, title):
    bars, steps = simulate(task, TICKS)
    draw(bars, steps, title)
    busy = sum(push - pull for k, pull, push, _, _ in bars if k == 0)
    print("%d steps; worker 0 computes for %d of 42 ticks; %d gradients dropped; w = %.2f" % (
        len(steps), busy, sum(not kept for *_, kept in bars), task.run("w")))
    return steps

# %%
def draw(bars, steps, title):
    plt.figure(figsize=(8, 2.6), dpi=80)
    for k, pull, push, go, kept in bars:
        plt.barh(k, push - pull, 0.6, pull, color=COLOURS[k], alpha=0.85, edgecolor="white")
        plt.barh(k, go - push, 0.6, push, color=COLOURS[k], alpha=0.3)
        if not kept:
            plt.plot(push - 0.3, k, "x", color="black", markersize=8)
    for tick, whose in steps:
        plt.axvline(tick, color="gray", linestyle=":")
        plt.text(tick, -0.75, "+".join(map(str, sorted(whose))), ha="center", fontsize=9)
    plt.yticks(range(3), ["worker %d" % k for k in range(3)])
    plt.ylim(2.5, -1.1)
    plt.xlabel("ticks")
    plt.title(title, fontsize=11)
    plt.show()

# %%
TICKS = [2, 4, 7]
steps = show(common("all three", N=3),
             "N = 3 of 3. Dark: computing, light: waiting; above: whose gradients")
assert len(steps) == 42 // max(TICKS)

# %% [markdown]
# A step takes as long as the slowest worker. Of its seven ticks worker 0 waits for five, worker 1
# for three.
#
# ## A backup worker
# The step is made with the first `N` of `n` gradients (Chen, Pan, Monga, Bengio, Jozefowicz 2016,
# arXiv 1604.00981). Who comes later is dropped, and goes on from the new `w`. With `N` = 2 of 3
# nobody need wait for worker 2.
#
# **Predict:** how many steps now? Whose gradients make them? Where does `w` end: at 3, or
# elsewhere?

# %%
steps = show(common("backup", N=2), "N = 2 of 3: a cross is a gradient that was dropped")
twice = sum(whose[0] == whose[1] for _, whose in steps)
print("steps from two gradients of one worker:", twice)
assert twice > 0

# %% [markdown]
# More steps, and nobody waits for worker 2. But look at the top: `0+0` is a step from two gradients
# of worker 0. Each step puts three tokens into the queue; at tick 4 the workers 0 and 1 take one
# each, and that of worker 2 lies there. At tick 6 worker 0 takes it too, and goes on at the same
# `w`; at tick 8 it has pushed two gradients, and the accumulator counts gradients, not workers.
# Worker 1 is dropped. So `w` leans towards the minimum of worker 0.
#
# ## Who is who
# [Synchronous-SGD](../Synchronous-SGD/) gives each worker a *place* for its gradient and a queue of
# its own. A second gradient at the same `w` could only overwrite the first; and a worker takes no
# token but its own, of a later step than its version. (Here one worker pushes at a time. Real ones
# come at once, and the script has a lock for that.)
#
# **Predict:** how many steps now, and whose gradients make them? Where does `w` end?

# %%
def own(name, N):
    """As common, but each worker has a place for its gradient and a queue of its own."""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w, step, workers = model()
        places = [tf.get_variable("place_%d" % k, initializer=0.0) for k in range(3)]
        arrived = tf.get_variable("arrived", initializer=tf.constant(3 * [-1], tf.int64))
        here = tf.equal(arrived.read_value(), step.read_value())  # whose gradient is of this w
        mean = tf.reduce_mean(tf.boolean_mask(tf.stack(places), here))
        with tf.control_dependencies([w.assign_sub(LR * mean)]):
            after = tf.identity(step.assign_add(1))
        return ready(w=w, N=N, step=step, arrived=arrived, there=tf.reduce_sum(tf.to_int32(here)),
                     push=[tf.group(places[k].assign(worker.g), arrived[k].assign(worker.version))
                           for k, worker in enumerate(workers)],
                     **own_tokens(name, step, after, workers))

# %%
def own_tokens(name, step, after, workers):
    """For each worker a queue; it goes on with a token of a later step than its version."""
    queues = [tf.FIFOQueue(100, tf.int64, [[]], shared_name=name + str(k)) for k in range(3)]
    go = []
    for queue, worker in zip(queues, workers):
        version = worker.version.read_value()
        newer = tf.while_loop(
            lambda t, v=version: t <= v, lambda _, q=queue: q.dequeue(), [version])
        with tf.control_dependencies([newer]):
            go.append(worker.pull(step.read_value()))
    return dict(make_step=tf.group(*[queue.enqueue(after) for queue in queues]), go=go,
                may_go=[step > worker.version for worker in workers])  # then there is a token

steps = show(own("own places", N=2), "N = 2 of 3, each gradient in a place of its own")
assert all(whose == [0, 1] for _, whose in steps)

# %% [markdown]
# As many steps, each from two workers. `w` ends at 1.5, the mean of 1 and 2: a step without worker
# 2 is a step without its data. That is the price of backup workers, where it is always the same who
# is late.
#
# TensorFlow's `tf.train.SyncReplicasOptimizer` is made of the parts of `common`: an accumulator for
# each variable, which decides for itself whose gradients it has, and one queue of tokens. What it
# does with one slow worker and one backup is measured in [Stragglers](../Measurements/Stragglers/).
# Next: [Ring-AllReduce](Ring-AllReduce.ipynb), where there is no ps.

# %%
# Stop what this notebook started.
for session in sessions:
    session.close()
print("the sessions are closed, the servers end with the kernel")

# %% [markdown]
# ## Exercises

# %% [markdown]
# **1. Two backup workers.** With `N` = 1 of 3 and own places: whose gradients count, and where does
# `w` end?
#
# <details><summary>Solution</summary>
#
# ```python
# task = own("two backups", N=1)
# steps = show(task, "N = 1 of 3")
# assert all(whose == [0] for _, whose in steps)  # the fastest is always the first
# assert np.isclose(task.run("w"), C[0])
# ```
#
# </details>

# %% [markdown]
# **2. Who is missing?** With `N` = 3 worker 2 never pushes. How can the others find out for whom
# they wait? Could they with an accumulator?
#
# <details><summary>Solution</summary>
#
# ```python
# # The places say for which step each gradient is. An accumulator only has their number, 2.
# task = own("missing", N=3)
# task.run("push", 0)
# task.run("push", 1)
# missing = np.flatnonzero(task.run("arrived") != task.run("step"))
# assert list(missing) == [2] and task.run("there") == 2
# ```
#
# </details>

# %% [markdown]
# **3. The optimizer taken apart.** Build a `SyncReplicasOptimizer` for two variables on the ps.
# Which accumulators and queues does its graph have, and on which device?
#
# <details><summary>Solution</summary>
#
# ```python
# place = tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
# with tf.Graph().as_default() as graph, tf.device(place):
#     a, b = tf.get_variable("a", initializer=1.0), tf.get_variable("b", initializer=1.0)
#     optimizer = tf.train.SyncReplicasOptimizer(
#         tf.train.GradientDescentOptimizer(LR), replicas_to_aggregate=2, total_num_replicas=3)
#     optimizer.minimize(a * a + b * b, global_step=tf.train.get_or_create_global_step())
# optimizer.ready_for_local_init_op.mark_used()  # or TensorFlow complains that nobody wants it
# parts = [(op.type, op.device) for op in graph.get_operations()
#          if op.type.endswith(("Accumulator", "QueueV2"))]
# assert sum("Accumulator" in kind for kind, _ in parts) == 2  # one for each variable
# assert sum("Queue" in kind for kind, _ in parts) == 1  # for all workers
# assert all("/job:ps" in device for _, device in parts)
# ```
#
# </details>
