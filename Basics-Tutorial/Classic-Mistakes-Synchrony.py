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
# # Classic mistakes: synchrony
# The last four of the twelve classic mistakes are in who waits for whom: a worker that does not
# wait for the start, steps that do not wait for every worker, and a clock that is read before its
# time.
#
# After this notebook you can:
# - let a worker wait until the chief has made `w`;
# - tell n gradients from one gradient of each of n workers;
# - say what each token in a queue allows, and what one too many costs;
# - read a staleness that is still true when it is used.
#
# About 15 minutes. Before it: [Classic-Mistakes-Updates](Classic-Mistakes-Updates.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same numbers on every machine
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import socket
from concurrent.futures import ThreadPoolExecutor
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy

# %% [markdown]
# One ps and two workers in this process. The order of events, which is chance in a real cluster, is
# written out here: what you see happens each time. No call waits for more than 20 seconds.

# %%
held = [socket.socket() for _ in range(3)]
for s in held:  # the system chooses free ports (port 0), and we hold them to the end
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))
address = ["127.0.0.1:%d" % s.getsockname()[1] for s in held]
cluster = tf.train.ClusterSpec({"ps": address[:1], "worker": address[1:]})
servers = [tf.train.Server(cluster, *task) for task in (("worker", 0), ("worker", 1), ("ps", 0))]
config = tf.ConfigProto(operation_timeout_in_ms=20000)
lr, zero, pool = 0.1, tf.zeros_initializer(), ThreadPoolExecutor(2)  # the pool: two calls at once

def setter(k):
    return tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:%d" % k)


# %% [markdown]
# ## Mistake 9: a worker that does not wait for the start
# Both workers run the same script, and it begins with
# `session.run(tf.global_variables_initializer())`. Worker 1 is up first: it initialises, and pulls.
# Then comes the chief.
#
# **Predict:** is `w_1` what is on the ps?

# %%
def model(k, name):
    with tf.Graph().as_default() as graph, tf.device(setter(k)):
        tf.set_random_seed(k)  # random numbers of its own
        w = tf.get_variable(name, [3], initializer=tf.random_normal_initializer())
        with tf.device("/job:worker/task:%d" % k):
            w_k = tf.get_local_variable(name + "_k", initializer=w.read_value())
        return graph, w, w_k, tf.global_variables_initializer(), tf.local_variables_initializer()

models = [model(k, "each") for k in (0, 1)]
sessions = [tf.Session(servers[k].target, models[k][0], config=config) for k in (0, 1)]
for k in 1, 0:
    sessions[k].run(models[k][3])  # w: each worker for itself
    sessions[k].run(models[k][4])  # w_k <- w
print("w   %6.2f %6.2f %6.2f" % tuple(sessions[0].run(models[0][1])))
print("w_1 %6.2f %6.2f %6.2f" % tuple(sessions[1].run(models[1][2])))

# %% [markdown]
# Worker 1 goes on from a point that nobody else has, and pushes gradients from there. Had it come
# later, it would have thrown away what the others had learned so far.
#
# **Mended:** only the chief initialises `w`. A `SessionManager` lets the others wait until nothing
# global is uninitialised, and only then runs their local initialiser. **Predict:** worker 1 is
# first again. What does it get before the chief has come, and what after?

# %%
(graph, w, w_k, init, local), chief = model(1, "chief_only"), model(0, "chief_only")
with graph.as_default():
    manager = tf.train.SessionManager(
        local_init_op=local, ready_op=tf.report_uninitialized_variables(),
        ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()),
        recovery_wait_secs=0.2)  # how often it looks; the default is 30 s
try:
    manager.wait_for_session(servers[1].target, config=config, max_wait_secs=1)
except tf.errors.DeadlineExceededError:
    print("before the chief: no session")
tf.Session(servers[0].target, chief[0], config=config).run(chief[3])
session = manager.wait_for_session(servers[1].target, config=config, max_wait_secs=20)
print("after the chief:  w_1 = w:", np.array_equal(*session.run([w, w_k])))
assert np.array_equal(*session.run([w, w_k]))

# %% [markdown]
# ## Mistake 10: n gradients, from anyone
# `tf.train.SyncReplicasOptimizer` makes a step when it has `replicas_to_aggregate` gradients. Two
# workers whose losses pull in opposite directions show whose they are: $\frac{1}{2}(w - 100)^2$ and
# $\frac{1}{2}(w + 100)^2$. At 0 the mean of one gradient from each is 0, so `w` must stay there.
#
# **Predict:** worker 1 is slow, and computes nothing at all. Worker 0 makes two calls. Where is
# `w`?

# %%
def sync_worker(k, tokens):
    """A worker of SyncReplicasOptimizer, 2 of 2; the chief puts so many tokens into the queue."""
    with tf.Graph().as_default(), tf.device(setter(k)):
        step, w = tf.train.get_or_create_global_step(), tf.get_variable("w", [], initializer=zero)
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(lr), 2, 2)
        call = optimizer.minimize((w - [100.0, -100.0][k]) ** 2 / 2, global_step=step)
        collect = optimizer.get_chief_queue_runner().enqueue_ops[0]  # the chief: take 2, move w
        session = tf.Session(servers[k].target, config=config)
        if k == 0:
            session.run(tf.global_variables_initializer())
        assert not session.run(optimizer.ready_for_local_init_op).size
        session.run(tf.local_variables_initializer())
        session.run(optimizer.chief_init_op if k == 0 else optimizer.local_step_init_op)
        session.run([optimizer.get_init_tokens_op(n) for n in tokens if k == 0])
    return session, call, collect, [step, w]


# %%
def begin_again(tokens):
    """Empties all servers; both workers begin."""
    tf.Session.reset(servers[0].target)
    return [sync_worker(k, tokens) for k in (0, 1)]

workers = begin_again([-1])  # -1: as the optimizer's own hook does it
session, call, collect, state = workers[0]
for _ in range(2):
    session.run(call)
session.run(collect)
print("step %d, w %.0f" % tuple(session.run(state)))
assert np.allclose(session.run(state), [1, 10])

# %% [markdown]
# A "synchronous" step without a gradient from worker 1: `w` went where worker 0 alone wants it. In
# a real run the fast worker supplies more gradients than its share, and nobody is told.
#
# **Mended:** each worker has a place of its own on the ps, as in
# [Synchronous-SGD](../Synchronous-SGD/). The step takes one gradient from each place. **Predict:**
# worker 0 pushes twice, then worker 1 once. When can the step be made, and where is `w`?

# %%
with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    w = tf.get_variable("w_of_places", [], initializer=zero)
    places = [tf.ConditionalAccumulator(tf.float32, []) for k in (0, 1)]
    push = [place.apply_grad(w - c) for place, c in zip(places, [100.0, -100.0])]
    filled = [place.num_accumulated() for place in places]
    move = w.assign_sub(lr * sum(place.take_grad(1) for place in places) / 2)

with tf.Session(servers[0].target, graph, config=config) as session:
    session.run(w.initializer)
    for k in 0, 0, 1:
        session.run(push[k])
        print("worker %d has pushed; in each place:" % k, *session.run(filled))
    session.run(move.op)
    print("w %.0f" % session.run(w))
    assert session.run(w) == 0

# %% [markdown]
# The step can be made when no place is empty; what a place holds is averaged, so that two gradients
# of worker 0 count as one. (This one graph stands for both workers.)
#
# On digits: worker 0 has images of 0 to 4, worker 1 those of 5 to 9, and is slow. **Predict:** how
# many of each digit does `w` read rightly after 60 steps of either kind?

# %%
images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype("float32"), labels.astype("int32")

def train(gradients_from):
    """w after 60 steps, each with the mean of two gradients, from these workers."""
    with tf.Graph().as_default(), tf.Session() as session:
        w, g = tf.get_variable("w", [64, 10], initializer=zero), []
        for k in 0, 1:
            x, y = images[labels // 5 == k], labels[labels // 5 == k]
            loss = tf.losses.sparse_softmax_cross_entropy(y, x @ w)
            g.append(tf.gradients(loss, w)[0])
        move = w.assign_sub((g[gradients_from[0]] + g[gradients_from[1]]) / 2)
        session.run(w.initializer)
        return [session.run(move) for _ in range(60)][-1]


# %%
fig, axes = plt.subplots(1, 2, figsize=(8, 2.8), dpi=80, sharey=True)
for ax, name, who in zip(axes, ["two from anyone", "one from each"], [(0, 0), (0, 1)]):
    right = np.argmax(images @ train(who), axis=1) == labels
    share = [100 * np.mean(right[labels == digit]) for digit in range(10)]
    low, high = np.mean(share[:5]), np.mean(share[5:])
    print("%-16s 0 to 4: %3.0f%%   5 to 9: %3.0f%%" % (name, low, high))
    ax.bar(range(10), share, color=["tab:blue"] * 5 + ["tab:orange"] * 5)
    ax.set(title=name, xlabel="digit", xticks=range(10))
axes[0].set_ylabel("read rightly, %")
plt.show()
assert min(share) > 70

# %% [markdown]
# ## Mistake 11: tokens beside the hook
# In `SyncReplicasOptimizer` a call pushes its gradient, and returns when it has a token. Each step
# puts one token for each worker into the queue, with the number of the step on it. The hook of the
# optimizer puts two there at the start, and a program put two more, "to be safe".
#
# **Predict:** four rounds, in each of which both workers make a call. How many steps are made with
# these four tokens, and with the hook's two?

# %%
def rounds(tokens):
    """Four rounds of calls of both workers; whether each has led to a step."""
    workers, stepped = begin_again(tokens), []
    session, _, collect, _ = workers[0]
    with session.graph.as_default(), tf.device("/job:ps/task:0"):  # the optimizer's accumulator
        gradients = tf.ConditionalAccumulator(tf.float32, [], shared_name="w:0/grad_accum")
        number = gradients.num_accumulated()
    for _ in range(4):
        calls, done = [pool.submit(it[0].run, it[1]) for it in workers], False
        while not done and session.run(number) < 2:
            done = all(call.done() for call in calls)
        stepped.append(bool(session.run(number) == 2))
        session.run([collect] if stepped[-1] else [])
        [call.result(timeout=20) for call in calls]
    return stepped


# %%
for name, tokens in ("the hook's 2, and 2 more", [-1, 2]), ("the hook's 2", [-1]):
    stepped = rounds(tokens)
    print("%-26s %d steps in 4 rounds: %s" % (name, sum(stepped), stepped))

# %% [markdown]
# With a token that was there from the start, a call returns before its gradient has been used: the
# worker goes on at the old `w`. And the token says step 0, so the worker's *next* gradient is
# marked as one from step 0, taken for stale, and dropped without a word. Every two tokens cost a
# round of both workers.
#
# **Mended:** no tokens at the start: `make_session_run_hook(is_chief, num_tokens=0)`, and none by
# hand. (Mistake 10 is still there: a token has no name on it, and a fast worker can take two.)
# **Predict:** the same four rounds.

# %%
stepped = rounds([0])
print("%-26s %d steps in 4 rounds: %s" % ("none at the start", sum(stepped), stepped))
assert all(stepped)

# %% [markdown]
# ## Mistake 12: a clock that is read before its time
# [DynSGD](../DynSGD/) divides a step by its staleness plus one. Both workers have pulled at 0,
# where the gradient is -100. The first push moves `w` by 10. The second is one update late: it
# should move it by 5.
#
# Here the staleness is read first, then the push waits for its turn at a lock. The two queues hold
# both workers between the two, as a slow network might. **Predict:** where is `w` in the end?

# %%
def dynsgd_worker(k, read_under_the_lock):
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w, clock = [tf.get_variable(name, [], initializer=zero) for name in ("w", "clock")]
        here, go = [tf.FIFOQueue(2, tf.float32, [[]], shared_name=name) for name in ("here", "go")]
        early = clock.read_value()  # minus the version, which is 0: the staleness
        def push():
            now = clock.assign_add(1) - 1  # the clock advances, and this is what it was
            tau = now if read_under_the_lock else early
            with tf.control_dependencies([now, w.assign_sub(lr * -100 / (tau + 1))]):
                return tf.identity(tau)
        come = here.enqueue(early)
        with tf.control_dependencies([come]), tf.control_dependencies([go.dequeue()]):
            pushed = tf.CriticalSection(shared_name="lock").execute(push)
        return (tf.Session(servers[k].target, config=config), pushed,
                here.dequeue_many(2), go.enqueue_many([[1.0, 1.0]]), [w, clock])


# %%
def both_push(read_under_the_lock):
    """The staleness that each worker used, and w."""
    tf.Session.reset(servers[0].target)
    workers = [dynsgd_worker(k, read_under_the_lock) for k in (0, 1)]
    session, _, both_are_here, both_may_go, state = workers[0]
    session.run([v.initializer for v in state])
    calls = [pool.submit(it[0].run, it[1]) for it in workers]
    session.run(both_are_here)
    session.run(both_may_go)
    used = sorted(float(call.result(timeout=20)) for call in calls)
    return used, float(session.run(state[0]))

print("read before the lock: staleness %s, w %.0f" % both_push(read_under_the_lock=False))

# %% [markdown]
# Both found a staleness of 0, and both took a full step. The lock kept the two pushes apart, but
# the number had been read outside, and was old when it was used.
#
# **Mended:** clock, step and the clock's advance under one lock. **Predict:** the same two pushes.

# %%
print("read under the lock:  staleness %s, w %.0f" % both_push(read_under_the_lock=True))
assert both_push(False) == ([0, 0], 20) and both_push(True) == ([0, 1], 15)

# %%
# Stop what this notebook started.
tf.Session.reset(servers[0].target)
pool.shutdown()
print("no session is open; the servers end with the kernel")

# %% [markdown]
# ## Exercises
# The right forms at work: [Synchronous-SGD](../Synchronous-SGD/) and [DynSGD](../DynSGD/). Next:
# [three notebooks at once](Multiple-Workers/Parameter-Server.ipynb).
#
# **1. The second initialiser.** `w` is at 50 when a worker that was started again runs
# `tf.global_variables_initializer()`. What is `w` then, and how does
# `tf.report_uninitialized_variables` prevent it?
#
# <details><summary>Solution</summary>
#
# ```python
# def come_back(careful):
#     with tf.Graph().as_default(), tf.device(setter(1)):
#         w = tf.get_variable("kept", [], initializer=zero)
#         missing, init = tf.report_uninitialized_variables(), tf.global_variables_initializer()
#         with tf.Session(servers[1].target, config=config) as session:
#             session.run(init)
#             session.run(w.assign(50))
#         with tf.Session(servers[1].target, config=config) as session:  # started again
#             anything_missing = session.run(missing).size > 0
#             if anything_missing or not careful:
#                 session.run(init)
#             return session.run(w)
#
# assert come_back(careful=False) == 0 and come_back(careful=True) == 50
# ```
#
# </details>

# %% [markdown]
# **2. Late, and dropped.** An accumulator drops a gradient whose `local_step` is below its own.
# Take one step, then push a gradient of step 0. How many does the accumulator hold?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.Session() as session:
#     place = tf.ConditionalAccumulator(tf.float32, [])
#     stamp = tf.placeholder(tf.int64, [])
#     push, take = place.apply_grad(1.0, local_step=stamp), place.take_grad(1)
#     session.run(push, {stamp: 0})
#     session.run(take)  # the accumulator is at step 1 now
#     session.run(push, {stamp: 0})
#     assert session.run(place.num_accumulated()) == 0
#     session.run(push, {stamp: 1})
#     assert session.run(place.num_accumulated()) == 1
# ```
#
# </details>

# %% [markdown]
# **3. A backup worker.** Let the step of mistake 10, mended, need only one gradient of two, from
# whichever place is filled. Where is `w` when worker 0 alone has pushed? What is gained, and what
# is paid?
#
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.Session() as session:
#     w = tf.get_variable("w", [], initializer=zero)
#     places = [tf.ConditionalAccumulator(tf.float32, []) for k in (0, 1)]
#     push = [place.apply_grad(w - c) for place, c in zip(places, [100.0, -100.0])]
#     taken = [tf.cond(place.num_accumulated() > 0, lambda: (place.take_grad(1), 1.0),
#                      lambda: (0.0, 0.0)) for place in places]
#     move = w.assign_sub(lr * sum(g for g, _ in taken) / sum(n for _, n in taken))
#     session.run(w.initializer)
#     session.run(push[0])
#     session.run(move.op)
#     # Nobody waits for the slow worker; and the step knows nothing of its data.
#     assert np.isclose(session.run(w), 10)
# ```
#
# </details>
