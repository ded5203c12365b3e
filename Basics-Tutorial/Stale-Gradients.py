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
# # Stale gradients
# Two workers that do not wait for each other push gradients that were right a moment ago. On a loss
# with one parameter one can see what that does: two balls roll past the minimum.
#
# After this notebook you can:
# - say what the staleness `tau` of a push is, and measure it;
# - show how a gradient that is too late moves `w` past the minimum, and from which learning rate on
#   it diverges;
# - explain what DynSGD's `1 / (tau + 1)` changes, and why its clock needs a lock;
# - say what holds in every race, and what only in some.
#
# 20 minutes. Before this one: [Multiple-Workers](Multiple-Workers.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or its log fills the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it announces itself
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # one parameter needs no GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"  # a server may listen on a port that is held for it
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy, never an alias of the ps's buffer

# %%
# A cluster: one ps and three workers (the third is for the exercises), all servers in this process.
# They talk over the network all the same. Such a server cannot be stopped; it ends with the kernel.
sockets = [socket.socket() for _ in range(4)]
for s in sockets:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))  # a free port, which is held until the end
addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
cluster = tf.train.ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in range(3)]
sessions, bounded = [], tf.ConfigProto(operation_timeout_in_ms=10000)  # nothing waits for ever

def open_session(k):
    sessions.append(tf.Session(servers[k].target, config=bounded))
    return sessions[-1]

# %% [markdown]
# ## A worker that the notebook drives
# The loss is ½ `w`², a bowl with its minimum at 0; the gradient is `g(w) = w`. In the symbols of
# the examples:
# ```
# pull    w_k <- w               version: the number of updates that w has had
# push    w <- w - lr * g(w_k)   tau = ticket - version: the updates by others since the pull
# ```
# A real worker does both in one `session.run`, as in [HogWild](../HogWild/). Here they are two
# calls, and *we* say who comes when: a real race on a real server, that comes out the same each
# time. `w_k` and `version` last from one call to the next, as local variables on the worker.

# %%
def make_worker(k, lr, rule=lambda tau: 1.0, limit=10**6):
    """Worker k with a graph and a session of its own. rule(tau) changes the rate of a push."""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", initializer=4.0)
        step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
        with tf.device("/job:worker/task:%d" % k):
            w_k = tf.get_local_variable("w_k", initializer=0.0)
            version = tf.get_local_variable("version", initializer=tf.constant(0, tf.int64))
            pull, ticket, move, push = pull_and_push(w, step, w_k, version, lr, rule, limit)
        start = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        session = open_session(k)
    return SimpleNamespace(run=session.run, start=start, w=w, w_k=w_k, version=version,
                           pull=pull, push=push, ticket=ticket, move=move)

# %%
def pull_and_push(w, step, w_k, version, lr, rule, limit):
    with tf.control_dependencies([version.assign(step.read_value())]):
        pull = w_k.assign(w.read_value()).op  # after the version was noted

    g = w_k.read_value()  # the gradient of w_k ** 2 / 2
    with tf.control_dependencies([g]):
        ticket = tf.count_up_to(step, limit)  # which update this is; no two get the same number
        move = w.assign_sub(lr * g).op  # for later: a push without a ticket
    tau = ticket - version.read_value()
    with tf.control_dependencies([ticket]):
        moved = w.assign_sub(lr * rule(tf.to_float(tau)) * g)
    with tf.control_dependencies([moved]):
        return pull, ticket, move, tf.stack([ticket, tau])

# %% [markdown]
# ## One worker alone
# **Predict:** `w` starts at 4, `lr` is 0.8. Where is `w` after one pull and one push? After two?

# %%
def play(workers, moves):
    """Makes the moves, "pull 0" for one; returns [(move, w, copies, tau)], one for each."""
    for worker in workers:
        worker.run(worker.start)
    strip = [("start", 4.0, {}, None)]
    for move in moves.split(", "):
        worker = workers[int(move[-1])]
        done = worker.run(worker.pull if "pull" in move else worker.push)
        copies = {**strip[-1][2], int(move[-1]): worker.run(worker.w_k)}
        strip.append((move, worker.run(worker.w), copies, None if done is None else done[1]))
    return strip

strip = play([make_worker(0, 0.8)], "pull 0, push 0, pull 0, push 0")
for move, w, *_ in strip:
    print("%-7s w = %5.2f" % (move, w))

# %% [markdown]
# Each push takes `w` to `(1 - 0.8) w`, a fifth: 4, 0.8, 0.16. Alone, a gradient is never late.
#
# ## Two workers, and the same rate
# Now both pull before either pushes. Nothing forbids it, and with two workers of about the same
# speed it happens all the time.
#
# **Predict:** where is `w` after both have pushed? Nearer to the minimum than the one worker, or
# further away?

# %%
COLOURS = {"ps": "tab:gray", 0: "tab:blue", 1: "tab:orange", 2: "tab:green"}
def draw(strip, title):
    """One bowl for each move: w in grey, the copies in the workers' colours, a push as an arrow."""
    figure, panels = plt.subplots(2, 4, figsize=(8, 4.2), dpi=80, sharex=True, sharey=True)
    bowl = np.linspace(-4.9, 4.9, 99)
    for panel, (_, before, _, _), (move, w, copies, tau) in zip(panels.flat, strip, strip[1:]):
        panel.plot(bowl, bowl ** 2 / 2, color="lightgray", zorder=0)
        for k, w_k in copies.items():
            panel.plot(w_k, w_k ** 2 / 2 + 1.3 * (k + 1), "o", color=COLOURS[k], markersize=7)
        panel.plot(w, w ** 2 / 2, "o", color=COLOURS["ps"], markersize=13)
        if tau is not None:
            arrow = dict(arrowstyle="->", color=COLOURS[int(move[-1])], linewidth=2)
            panel.annotate("", (w, w ** 2 / 2), (before, before ** 2 / 2), arrowprops=arrow)
        panel.set_title(move + ("" if tau is None else ", tau = %d" % tau), fontsize=10)
    return finish(figure, title)

# %%
def finish(figure, title):
    """What both pictures of balls have: labels and a title."""
    figure.suptitle(title, fontsize=11)
    figure.axes[0].set_xticks([-4, 0, 4])
    figure.supxlabel("w (grey, on the ps) and its copies (above it, on the workers)", fontsize=10)
    figure.supylabel("loss", fontsize=10)
    figure.tight_layout()
    plt.show()

TWO_ROUNDS = "pull 0, pull 1, push 0, push 1, pull 0, pull 1, push 0, push 1"
hogwild = play([make_worker(0, 0.8), make_worker(1, 0.8)], TWO_ROUNDS)
draw(hogwild, "Two workers, no lock: the second push rolls w past the minimum")
print("w after each push:", ["%.2f" % w for move, w, _, _ in hogwild if "push" in move])
assert hogwild[4][1] < 0 < hogwild[2][1]  # on the other side

# %% [markdown]
# Worker 0 (blue) takes `w` to 0.8, nearly there. Worker 1 (orange) does not know: its copy is still
# 4, and its gradient, right for 4, is subtracted from 0.8. `w` rolls past the minimum to −2.4. Two
# gradients at one point are one step of twice the length; a round takes `w` to `(1 - 2 * 0.8) w`.
# `tau` says so without a picture: one update of another worker came between the pull and the push.
#
# ## In step, one behind the other
# Workers that run on end up in turns: each pulls again right after its push.
#
# **Predict:** what is `tau` of each push then? And with `lr` = 1.2, with which one worker goes 4,
# −0.8, 0.16: does `w` still come to rest?

# %%
TURNS = "pull 0, pull 1" + ", push 0, pull 0, push 1, pull 1" * 12
runs = {"one worker": play([make_worker(0, 1.2)], "pull 0" + ", push 0, pull 0" * 24),
        "two workers in turns": play([make_worker(k, 1.2) for k in range(2)], TURNS)}
path = {name: [w for move, w, _, tau in strip if tau is not None] for name, strip in runs.items()}
taus = {name: [int(tau) for _, _, _, tau in strip[1:] if tau is not None]
        for name, strip in runs.items()}
for name in runs:
    print("%-21s tau %s ...   |w| at the end up to %.2f" % (
        name, taus[name][:6], max(np.abs(path[name][-6:]))))
assert taus["two workers in turns"] == [0] + 23 * [1]
assert max(np.abs(path["two workers in turns"][-6:])) > 4 > abs(path["one worker"][-1])

# %% [markdown]
# Every push but the first is late by one: with `n` workers in turns `tau` is `n - 1`. So
# ```
# w_(t+1) = w_t - lr * w_(t-1)      comes to rest for lr < 1 only, without delay for lr < 2
# ```
# This is a price of asynchronous training: the rate that was good for one worker can be too large
# for two.
#
# ## DynSGD: the later a push, the smaller its step
# ```
# push    w <- w - lr * g(w_k) / (tau + 1)
# ```
# A push that one other has overtaken counts for a half. **Predict:** where is `w` after the first
# two pushes at `lr` = 0.8? And do two workers in turns come to rest at `lr` = 1.2?

# %%
def late(tau):
    return 1 / (tau + 1)


dynsgd = play([make_worker(k, 0.8, late) for k in range(2)], TWO_ROUNDS)
draw(dynsgd, "The same race with DynSGD: the late push is halved")
print("w after each push:", ["%.2f" % w for move, w, _, _ in dynsgd if "push" in move])
assert abs(dynsgd[-1][1]) < abs(hogwild[-1][1])

# %%
runs["two in turns, DynSGD"] = play([make_worker(k, 1.2, late) for k in range(2)], TURNS)
plt.figure(figsize=(8, 3.2), dpi=80)
for (name, strip), colour in zip(runs.items(), ["black", "tab:purple", "tab:cyan"]):
    w = [4.0] + [w for _, w, _, tau in strip if tau is not None]
    plt.plot(range(len(w)), w, ".-", color=colour, label=name)
plt.axhline(0, color="lightgray", zorder=0)
plt.xlabel("updates of w, all workers together")
plt.ylabel("w (the minimum is 0)")
plt.title("lr = 1.2", fontsize=11)
plt.legend()
plt.show()
assert abs(w[-1]) < 0.1  # of the last one, DynSGD

# %% [markdown]
# With DynSGD the second ball still rolls past, to −0.8 instead of −2.4, and the rate 1.2 is one
# that two workers can use. With `lr / 2` in place of `lr` the equation above comes to rest for `lr`
# < 2, like one worker alone. It is no gift: in turns all pushes are late by one, so that both
# workers together move `w` as far as one.
#
# ## How the measurement can lie
# `tau` counts tickets. But a ticket is not yet an update: first the step counter moves, then `w`.
#
# **Predict:** worker 1 pulls when worker 0 has its ticket and has not moved `w` yet. What is `tau`
# of worker 1?

# %%
a, b = make_worker(0, 0.8), make_worker(1, 0.8)
for worker in a, b:
    worker.run(worker.start)
a.run(a.pull)
a.run(a.ticket)  # the first half of a push
b.run(b.pull)
a.run(a.move)  # the second half
version, w_1, w = b.run([b.version, b.w_k, b.w])
ticket, tau = b.run(b.push)
print("worker 1 pulled version %d, w = %.1f; that version of w is %.1f" % (version, w_1, w))
print("tau = %d, although an update came between" % tau)
assert tau == 0 and w_1 != w

# %% [markdown]
# It says 0, but the gradient is late by one. In [HogWild](../HogWild/) that is a flaw in a number
# on a page. In DynSGD the number is the rate. So [DynSGD](../DynSGD/) holds a lock on the ps, a
# `tf.CriticalSection`, while it pulls `w` and the clock, and while it takes its ticket and moves
# `w`.
#
# **Predict:** worker 0 has the lock, and stops between ticket and `w` (a gate holds it there). What
# happens to worker 1 that wants to pull?

# %%
def with_lock(k):
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", initializer=4.0)
        step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
        clock = tf.CriticalSection(shared_name="clock")
        gate = tf.FIFOQueue(1, tf.int32, [[]], shared_name="gate")
        def move():
            with tf.control_dependencies([tf.count_up_to(step, 10**6)]):
                with tf.control_dependencies([gate.dequeue()]):  # stops it at the worst moment
                    return w.assign_sub(0.8 * 4)
        pull = clock.execute(lambda: [tf.identity(v.read_value()) for v in [step, w]])
        return SimpleNamespace(run=open_session(k).run, start=tf.global_variables_initializer(),
                               step=step.read_value(), pull=pull, push=clock.execute(move),
                               open_gate=gate.enqueue(1))

# %%
a, b = with_lock(0), with_lock(1)
a.run(a.start)
pushing = threading.Thread(target=a.run, args=[a.push], daemon=True)
pushing.start()
while a.run(a.step) == 0 and pushing.is_alive():
    pass  # until worker 0 has its ticket
try:
    b.run(b.pull, options=tf.RunOptions(timeout_in_ms=500))
except tf.errors.DeadlineExceededError:
    print("worker 1 has waited for half a second in vain")
a.run(a.open_gate)
pushing.join(10)
print("then it pulls: version %d, w = %.1f" % tuple(b.run(b.pull)))

# %% [markdown]
# It waits, and what it gets is whole: version 1 and the `w` that belongs to it. Waiting is the
# price of a `tau` that is right.
#
# ## A race that nobody drives
# Now two threads run as they like, until 400 updates are made. Who pushes how often, and how late,
# differs from run to run. **Predict:** what must hold in every run? Can one number be drawn twice?
# How large can the mean of `tau` be?

# %%
def race(n, updates, lr=0.05):
    """[(ticket, tau)] of each of n workers that run freely, each in a thread."""
    workers = [make_worker(k, lr, limit=updates) for k in range(n)]
    for worker in workers:
        worker.run(worker.start)
    def work(worker):
        mine = []
        try:
            while True:
                worker.run(worker.pull)
                mine.append(tuple(worker.run(worker.push)))
        except tf.errors.OutOfRangeError:
            return mine  # all tickets are taken
    with ThreadPoolExecutor(n) as threads:
        return list(threads.map(work, workers))

# %%
n = 2
pushes = race(n, updates=400)
tickets = sorted(ticket for mine in pushes for ticket, _ in mine)
taus = [tau for mine in pushes for _, tau in mine]
between = [sum(ticket - tau <= other < ticket for others in pushes[:k] + pushes[k + 1:]
               for other, _ in others) for k, mine in enumerate(pushes) for ticket, tau in mine]
print("each number from 0 to 399 is drawn once:", tickets == list(range(400)))
print("no tau is negative:", min(taus) >= 0)
print("tau is the number of the others' tickets between pull and push:", taus == between)
print("the mean of tau is at most n - 1:", np.mean(taus) <= n - 1)
assert tickets == list(range(400)) and min(taus) >= 0
assert taus == between and np.mean(taus) <= n - 1

# %% [markdown]
# `tf.count_up_to` is atomic, so the tickets are distinct. And an update falls between pull and push
# of each *other* worker at most once; so all `tau` together are at most `n - 1` times the updates.
# Nothing bounds a single `tau`: a worker that sleeps between pull and push is as late as it likes.
# What staleness costs on real data is measured in [HogWild](../HogWild/) and [DynSGD](../DynSGD/).
# Next: [Synchronous-Replicas](Synchronous-Replicas.ipynb), where nothing is stale, and everybody
# waits.

# %%
# Stop what this notebook started.
assert not pushing.is_alive()
for session in sessions:
    session.close()
print("the sessions are closed; the servers end with the kernel")

# %% [markdown]
# ## Exercises

# %% [markdown]
# **1. Three at once.** Three workers pull, then all push. Before you run it, compute `w` after the
# three pushes at `lr` = 0.5, with HogWild and with DynSGD.
#
# <details><summary>Solution</summary>
#
# ```python
# moves = "pull 0, pull 1, pull 2, push 0, push 1, push 2"
# three = play([make_worker(k, 0.5) for k in range(3)], moves)[-1][1]
# three_late = play([make_worker(k, 0.5, late) for k in range(3)], moves)[-1][1]
# assert np.isclose(three, 4 - 3 * 0.5 * 4)  # three steps of 2: -2
# assert np.isclose(three_late, 4 - 0.5 * 4 * (1 + 1 / 2 + 1 / 3), atol=1e-5)  # 1/3
# ```
#
# </details>

# %% [markdown]
# **2. Three in turns.** Three workers in turns: from which rate on does HogWild not come to rest?
# Try 0.55 and 0.7, with 60 updates. (The theory says `2 sin(π / (4n - 2))` for `n` workers in
# turns.)
#
# <details><summary>Solution</summary>
#
# ```python
# turns = "pull 0, pull 1, pull 2" + ", push 0, pull 0, push 1, pull 1, push 2, pull 2" * 20
# end = {lr: [abs(w) for _, w, _, _ in play([make_worker(k, lr) for k in range(3)], turns)][-20:]
#        for lr in (0.55, 0.7)}
# assert 0.55 < 2 * np.sin(np.pi / 10) < 0.7
# assert max(end[0.55]) < 4 < max(end[0.7])
# ```
#
# </details>

# %% [markdown]
# **3. A worker that slept.** Worker 1 pulls, then worker 0 pulls and pushes ten times, then worker
# 1 pushes. At `lr` = 0.3, how far does the old push throw `w` with HogWild, how far with DynSGD?
#
# <details><summary>Solution</summary>
#
# ```python
# sleeper = "pull 1" + ", pull 0, push 0" * 10 + ", push 1"
# thrown = play([make_worker(k, 0.3) for k in range(2)], sleeper)
# thrown_late = play([make_worker(k, 0.3, late) for k in range(2)], sleeper)
# assert thrown[-1][3] == thrown_late[-1][3] == 10  # tau
# assert abs(thrown[-1][1]) > 1 and abs(thrown_late[-1][1]) < 0.1
# ```
#
# </details>
