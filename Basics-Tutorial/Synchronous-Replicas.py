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
# Nearly all large models are trained synchronously today: all workers compute a gradient at the same
# `w`, and `w` moves by their mean. So n workers do what one does with an n times larger mini-batch,
# except in batch normalisation and dropout.
#
# The price is waiting: one slow machine among eight cost three quarters of the throughput, and one
# spare machine won nearly all of it back ([Scaling](../Measurements/Scaling/)). You will compute
# both for machines of your own, and see that TensorFlow's `SyncReplicasOptimizer` guarantees less
# than its name says.
#
# After this notebook you can:
# - write a synchronous worker with `SyncReplicasOptimizer`;
# - say which gradients an accumulator drops, and what a token allows a worker to do;
# - tell *any* N gradients from one gradient *from each* of N workers;
# - estimate what waiting costs, and choose the number of backup workers.
#
# **Before it:** [Multiple-Workers](Multiple-Workers.ipynb),
# [Stale-Gradients](Stale-Gradients.ipynb). **Time:** 45 minutes.

# %% [markdown]
# ## One step together
# ```
# each worker k:   g_k = gradient of its own mini-batch, all at the same w
# together:        w <- w - lr * (g_0 + ... + g_(n-1)) / n
# ```
#
# ## A worker
# `tf.train.SyncReplicasOptimizer` wraps another optimizer. It puts two things on the ps: an
# *accumulator* for each variable, which gathers gradients, and one queue of *tokens*.
#
# ![Workers send gradients with their step to an accumulator on the ps, which drops older ones. A thread of the chief takes the mean of N = 2 gradients, moves w from step 7 to step 8, and puts three tokens with the number 8 in one queue. Any worker may take any token.](../docs/figures/replicas.svg)
#
# A worker that has given its gradient waits for a token, which contains the new step: the version of the
# `w` that it pulls next. `replicas_to_aggregate` is $N$, the number of gradients that a step waits for,
# and `total_num_replicas` the number of workers. A `MonitoredTrainingSession` initialises the variables on
# the chief, lets the others wait for that, and calls *hooks* around each run: the chief's starts the
# thread that makes the steps.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from course import BLUE, GRAY, ORANGE, PURPLE, RED, finish, new_cluster, show, start

course.begin()

# %%
# %%writefile worker.py
import sys
import careful
import course
import tensorflow.compat.v1 as tf

num_tokens, updates = map(int, sys.argv[1:])
task = course.task()
task.limits.operation_timeout_in_ms = 20_000  # so long the chief's thread may wait at the end
chief = task.k == 0
x, y, _, _ = course.load()
with tf.device(tf.train.replica_device_setter(cluster=task.cluster, worker_device=task.me)):
    w = course.variables()
    step = tf.train.get_or_create_global_step()
    with tf.device(task.me):  # or it would be on the ps, shared by the workers
        number = tf.get_local_variable("number", initializer=tf.constant(0, tf.int64))
    loss = course.loss(w, *course.batch(x, y, number.assign_add(1), worker=task.k))
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.2), replicas_to_aggregate=2, total_num_replicas=2
    )
    train = optimizer.minimize(loss, global_step=step)
hooks = [optimizer.make_session_run_hook(chief, num_tokens), careful.EndOptimizer()]

careful.wait_for_chief(task)
with tf.train.MonitoredTrainingSession(
    task.server.target, chief, hooks=hooks, config=task.limits
) as session:
    calls = done = 0
    while done < updates and careful.run(session, train, calls, task):
        calls, done = calls + 1, session.run(step)
print("worker %d: %d updates in %d calls" % (task.k, done, calls))

# %% [markdown]
# `run` gives a gradient, and waits for a token. By itself such a program can wait for ever: for a task that
# never starts, for a worker that has died, or at its end for more gradients. The folded `careful.py`
# prevents this: a time limit for each call, a look at the variables ten times a second, and an end of the
# chief's thread before its session closes.

# %% jupyter={"source_hidden": true}
# %%writefile careful.py
import time
import tensorflow.compat.v1 as tf


def wait_for_chief(task):
    """Waits until the chief has initialised the variables; raises after 30 s."""
    if task.k == 0:
        return
    with tf.device(task.me):
        missing = tf.report_uninitialized_variables(tf.global_variables())
    with tf.Session(task.server.target, config=task.limits) as session:
        began = time.monotonic()
        while len(session.run(missing)):
            assert time.monotonic() < began + 30, "the chief has not initialised the variables"
            time.sleep(0.1)


class EndOptimizer(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        self.coord = coord

    def end(self, session):
        self.coord.request_stop()
        session.close()


def run(session, train, calls, task):
    """Runs `train`, for 2 s at most, the first time longer; returns whether it was done."""
    limit = tf.RunOptions(timeout_in_ms=2000) if calls else None
    try:
        session.run(train, options=limit)
    except tf.errors.DeadlineExceededError as error:
        print("worker %d: %s in call %d" % (task.k, type(error).__name__, calls + 1))
        return False
    return True


# %% [markdown]
# ## Two runs
# - **A**: only the chief, worker 0, starts, and wants 20 updates. By default its hook first puts two
#   tokens into the queue (`num_tokens=-1`).
# - **B**: both workers start, with `num_tokens=0`. The chief wants 100 updates, but worker 1 ends
#   after 50.
#
# **Predict:** does the chief train in A, without worker 1? And what does it do in B after 50 updates?


# %% tags=["predicted", "measured"]
def start_run(num_tokens, updates):
    """Returns a ps, which runs here, and the started workers, which want so many updates."""
    cluster = new_cluster(ps=1, worker=2)
    ps = tf.train.Server(cluster, job_name="ps", task_index=0)
    wanted = enumerate(updates)
    return ps, [start("worker.py", cluster, "worker", k, num_tokens, most) for k, most in wanted]


ps, workers = start_run(num_tokens=-1, updates=[20])
print("A\n" + finish(workers[0]))
ps, workers = start_run(num_tokens=0, updates=[100, 50])
print("B\n" + "".join(map(finish, workers)), end="")

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# A
# worker 0: 20 updates in 41 calls
#
# B
# worker 0: DeadlineExceededError in call 51
# worker 0: 50 updates in 50 calls
# worker 1: 50 updates in 50 calls
# ```
#
# In A the chief trains alone, with two calls for each update, and one more in this run. It gives a
# gradient, takes one of the first tokens without waiting, and gives a second gradient at the same
# `w`. From these two its thread makes a step. In B each call makes a step, until the chief waits for
# worker 1 in vain. Its time limit ends the call, but the error names no worker.
#
# </details>
#
# So `replicas_to_aggregate` counts gradients, not workers. With `num_tokens=0` each worker usually
# gives one in each step, but nothing forbids it to take the other's token, too. Below, a slot and a
# queue for each worker guarantee it.
#
# ## Inside: an accumulator and tokens
# `apply_grad` adds a gradient to the accumulator, with the step at which its worker pulled `w`.
# `take_grad(N)` waits for *at least* N gradients and returns the mean of all. Then the accumulator
# drops gradients of that step:

# %%
accumulator = tf.ConditionalAccumulator(tf.float32, shape=[])
g, version = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
give = accumulator.apply_grad(g, local_step=version)
gathered, take_2 = accumulator.num_accumulated(), accumulator.take_grad(2)

with tf.Session() as session:
    for value in 1, 2, 12:
        session.run(give, {g: value, version: 0})
    print("take_grad(2) of 1, 2 and 12:", session.run(take_2))
    for k in 0, 1:
        session.run(give, {g: 7, version: k})
        print("a gradient of step %d comes; gathered: %d" % (k, session.run(gathered)))

# %% [markdown]
# It drops them *silently*: `apply_grad` succeeds all the same.
#
# The folded cell has one accumulator and one queue for three workers. Worker k has the gradient
# $w - C_k$ with $C$ = 1, 2 and 6, so all three together have their minimum at 3, the mean of the $C_k$.


# %% jupyter={"source_hidden": true}
class Steps:
    """What the clock below asks; `SharedParts` and `Slots` have the graph."""

    def push(self, k, g, version):
        """Worker k gives its gradient. Returns whether it was kept."""
        before = self.session.run(self.gathered)
        self.session.run(self.give, {self.g: g, self.version: version})
        return self.session.run(self.gathered) > before

    def can_step(self):
        return self.session.run(self.gathered) >= self.N

    def token(self, k, version):
        """Returns a token for worker k, or None if it must wait."""
        return self.session.run(self.next_token) if self.session.run(self.tokens_left) else None


C, LR = [1.0, 2.0, 6.0], 0.5


class SharedParts(Steps):
    """w, one accumulator and one queue of tokens, both for all three workers."""

    def __init__(self, N):
        self.N = N
        with tf.Graph().as_default():
            self.w = tf.get_variable("w", initializer=0.0)
            self.step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
            self.g, self.version = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
            accumulator = tf.ConditionalAccumulator(tf.float32, [])
            tokens = tf.FIFOQueue(100, tf.int64, [[]])

            # A worker: give a gradient; wait for a token.
            self.give = accumulator.apply_grad(self.g, local_step=self.version)
            self.next_token = tokens.dequeue()

            # The chief: w <- w - lr * mean; count the step; a token for each worker.
            moved = self.w.assign_sub(LR * accumulator.take_grad(N))
            with tf.control_dependencies([moved]):
                new_step = tf.identity(self.step.assign_add(1))
            self.make_step = tokens.enqueue_many([tf.fill([3], new_step)])

            self.gathered, self.tokens_left = accumulator.num_accumulated(), tokens.size()
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())


# %% [markdown]
# ## One worker is slow
# Worker 0 needs 2 ticks for a gradient, worker 1 needs 5, worker 2 needs 9. A folded loop moves the
# clock; `w`, the accumulator and the tokens are the real ones from above.

# %% jupyter={"source_hidden": true}
TICKS, UNTIL = [2, 5, 9], 42


def simulate(ps):
    """Three workers for 42 ticks: bars (k, pull, push, go on, kept), and steps (tick, whose)."""
    w_k, version = 3 * [ps.session.run(ps.w)], 3 * [0]  # what each worker has pulled
    pulled, ready = 3 * [0], list(TICKS)
    bars, steps, contributors, waiting = [], [], [], []
    for now in range(1, UNTIL + 1):
        for k in [k for k in range(3) if ready[k] == now]:
            kept = ps.push(k, w_k[k] - C[k], version[k])
            contributors += [k] if kept else []
            waiting.append((k, now, kept))
            if ps.can_step():
                ps.session.run(ps.make_step)
                steps.append((now, sorted(contributors)))
                contributors = []
            for k, pushed, kept in list(waiting):  # who came first gets a token first
                token = ps.token(k, version[k])
                if token is not None:
                    waiting.remove((k, pushed, kept))
                    bars.append((k, pulled[k], pushed, now, kept))
                    w_k[k], version[k] = ps.session.run(ps.w), token  # pull
                    pulled[k], ready[k] = now, now + TICKS[k]
    bars += [(k, pulled[k], pushed, UNTIL, kept) for k, pushed, kept in waiting]
    bars += [(k, pulled[k], UNTIL, UNTIL, True) for k in range(3) if ready[k] > UNTIL]
    return bars, steps


def draw(ps, title, description):
    """Simulates, draws, and prints a summary; returns whose gradients made each step."""
    bars, steps = simulate(ps)
    figure, ax = plt.subplots(figsize=(7, 2.6))
    for k, pull, push, go, kept in bars:
        colour = [BLUE, ORANGE, PURPLE][k]
        ax.barh(k, push - pull, 0.6, pull, color=colour, edgecolor="white", linewidth=0.8)
        ax.barh(k, go - push, 0.6, push, color=colour, alpha=0.25)
        if not kept:
            middle = (pull + push) / 2
            ax.text(middle, k, "dropped", color="white", ha="center", va="center", fontsize=9)
    for tick, whose in steps:
        ax.axvline(tick, color=GRAY, linestyle=":", ymax=0.84, zorder=0)
        colour = RED if len(set(whose)) < len(whose) else "black"
        ax.text(tick, -0.62, " + ".join(map(str, whose)), ha="center", fontsize=8.5, color=colour)
    ax.set(yticks=range(3), yticklabels=["worker %d" % k for k in range(3)], ylim=(2.5, -1.0))
    ax.set(xlim=(0, UNTIL + 1), xlabel="time, ticks")
    ax.set_title(title, fontsize=10, loc="left")
    ax.grid(False)
    show(figure, description)
    busy = sum(push - pull for k, pull, push, _, _ in bars if k == 0)
    dropped = sum(not kept for *_, kept in bars)
    print(
        "%d steps; worker 0 computes for %d of %d ticks; %d gradients dropped; w = %.2f"
        % (len(steps), busy, UNTIL, dropped, ps.session.run(ps.w))
    )
    return [whose for _, whose in steps]


# %% jupyter={"source_hidden": true}
whose = draw(
    SharedParts(N=3),
    "N = 3 of 3. Dark: computes. Light: waits. Above: whose gradients",
    "Time line of three workers. Each step ends when the slow worker 2 has pushed; the others wait "
    "for most of the time.",
)
assert len(whose) == UNTIL // max(TICKS)

# %% [markdown]
# Worker 0 waits for 7 of 9 ticks, and `w` approaches 3, the minimum of all.
#
# ## A backup worker
# Chen et al. (2016) make the step with the first $N$ gradients of $n$ workers. The other $n - N$ are
# *backup workers*: a gradient that comes after the step is dropped, and its worker goes on from the
# new `w`. With $N = 2$ of 3, worker 1 should complete a step every 5 ticks. But worker 2's token lies
# in the queue until *somebody* takes it.
#
# **Predict:** the first step is at tick 5. Whose gradients make the second step, and at which tick?

# %% tags=["predicted"]
for tick, whose in simulate(SharedParts(N=2))[1][:3]:
    print("tick %2d: a step from the gradients of workers %d and %d" % (tick, *whose))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# tick  5: a step from the gradients of workers 0 and 1
# tick  9: a step from the gradients of workers 0 and 0
# tick 15: a step from the gradients of workers 0 and 1
# ```
#
# Both are from worker 0. Of the three tokens of tick 5, workers 0 and 1 take one each. At tick 7
# worker 0 pushes, takes the third, and goes on at the *same* `w`. Its push at tick 9 completes the
# step, and worker 1's at tick 10 is dropped.
#
# </details>
#
# The remedy: on the ps each worker has a *slot* for its gradient, and a queue of its own for its
# tokens, so nobody can push twice at the same `w`. [Synchronous-SGD](../Synchronous-SGD/) does this.
#
# ![Workers 0 and 1 store their gradients in their slots on the ps. The second of them makes the step with their mean, and each worker gets a token for step 8 in a queue of its own. The gradient of worker 2 is of step 7; it comes later, and is dropped.](../docs/figures/sync.svg)


# %% jupyter={"source_hidden": true}
class Slots(SharedParts):
    """w, and for each worker a slot for its gradient and a queue of its own tokens."""

    def __init__(self, N):
        self.N = N
        with tf.Graph().as_default():
            self.w = tf.get_variable("w", initializer=0.0)
            self.step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
            self.g, self.version = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
            slots = [tf.get_variable("slot_%d" % k, initializer=0.0) for k in range(3)]
            self.versions = tf.get_variable("versions", initializer=tf.constant(3 * [-1], tf.int64))
            queues = [tf.FIFOQueue(100, tf.int64, [[]]) for k in range(3)]

            # A worker: store a gradient and its version; wait for a token of its own.
            self.give = [
                tf.group(slots[k].assign(self.g), self.versions[k].assign(self.version))
                for k in range(3)
            ]
            self.next_token = [queue.dequeue() for queue in queues]

            # The worker with the N-th gradient of this w: take the mean, count the step, give tokens.
            here = tf.equal(self.versions.read_value(), self.step.read_value())
            mean = tf.reduce_mean(tf.boolean_mask(tf.stack(slots), here))
            with tf.control_dependencies([self.w.assign_sub(LR * mean)]):
                new_step = tf.identity(self.step.assign_add(1))
            self.make_step = tf.group(*[queue.enqueue(new_step) for queue in queues])

            self.gathered = tf.reduce_sum(tf.cast(here, tf.int32))
            self.tokens_left = [queue.size() for queue in queues]
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

    def push(self, k, g, version):
        self.session.run(self.give[k], {self.g: g, self.version: version})
        return version == self.session.run(self.step)

    def token(self, k, version):
        while self.session.run(self.tokens_left[k]):
            token = self.session.run(self.next_token[k])
            if token > version:  # an older one is discarded
                return token


# %% jupyter={"source_hidden": true}
whose = draw(
    SharedParts(N=2),
    "N = 2 of 3, one queue of tokens. Red: two gradients of one worker",
    "Time line of three workers. Every second step is made of two gradients of worker 0. Then the "
    "gradient of worker 1 comes too late and is dropped. All gradients of worker 2 are dropped.",
)
assert whose.count([0, 0]) == 4

# %% jupyter={"source_hidden": true}
whose = draw(
    Slots(N=2),
    "N = 2 of 3, a slot and a queue for each worker",
    "Time line of three workers. Each step is made of one gradient of worker 0 and one of worker "
    "1; all gradients of worker 2 are dropped.",
)
assert all(step == [0, 1] for step in whose)

# %% [markdown]
# With one queue, `w` leans towards worker 0's minimum. With slots it ends near 1.5, the minimum of
# workers 0 and 1. That is the price of backup workers: `w` never learns from a worker that is always
# the last.
#
# ## What waiting costs
# A step waits for the longest of $n$ times. If these are exponential, the longest of eight is 2.7 times
# their mean (exercise 1), so the barrier costs 63% of the gradients a second.
# [Scaling](../Measurements/Scaling/) measures real workers. There a backup worker gains a little, a lot
# where one machine is slow, and does harm where all take equally long. Synchronous training loses least
# where times hardly vary, as on equal GPUs.

# %% [markdown]
# ## Exercises
# **1. The longest of eight.** ★★☆ With paper and pencil: a gradient takes 70 ms on average, with
# exponential times. How many gradients per second do eight synchronous workers compute?
#
# <details><summary>Hint</summary>
#
# Exponential times have no memory. The first of eight is done after 70/8 ms on average; the next
# one after 70/7 ms more, as if the other seven began afresh, and so on.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if abs(answer - 8 / 0.07) < 1:
        return "so many come if nobody waits; here all wait for the longest of eight times"
    if abs(answer - 1 / 0.07) < 0.5:
        return "that is one worker alone, or a step of 560 ms; the longest of eight is far shorter"
    if abs(answer - 8 / 0.07 / 2.718) < 42 * 0.02:
        return None
    if abs(answer - 1 / 0.07 / 2.718) < 0.1:
        return "these are the steps per second; each has eight gradients"
    if abs(answer - 70 * 2.718) < 2 or abs(answer - 0.07 * 2.718) < 0.002:
        return "that is the length of a step; the question is gradients per second"
    return "a step takes 70 (1/8 + 1/7 + ...) ms: check your sum"


# %%
# Your answer to exercise 1
answer_1 = ...  # gradients per second

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# step = 0.070 * sum(1 / k for k in range(1, 9))  # 0.190 s
# answer_1 = 8 / step
#
# assert check_1(answer_1)
# ```
#
# A step takes 70 · (1 + 1/2 + … + 1/8) = 190 ms, so there are 42 gradients per second. A worker
# waits for 120 of 190 ms.
#
# </details>

# %% [markdown]
# **2. How many backup workers?** ★★☆ `durations[i, k]` is how long worker k takes in step i. A step
# ends with the N-th gradient, and all begin the next at once. The mean of fewer gradients is
# noisier, so training needs more steps: `steps[N - 1]`. Which N ends first, and after how many ticks?
#
# <details><summary>Hint</summary>
#
# Sort each row: column N − 1 is the duration of a step with N gradients. A training run takes the
# mean of this column times its number of steps.
#
# </details>


# %% jupyter={"source_hidden": true}
def some_durations(seed):
    """10,000 steps of eight workers; in 8% of the cases a gradient takes six times as long."""
    random = np.random.RandomState(seed)
    durations = 1 + random.exponential(0.2, [10_000, 8])
    return durations * np.where(random.rand(10_000, 8) < 0.08, 6, 1)


def some_steps(noise):
    """How many steps training needs with 1 to 8 gradients in each."""
    return np.round(1000 * (1 + noise / np.arange(1, 9)))


@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    slow_first = np.tile(np.arange(8.0, 0, -1) ** 2, [10, 1])  # alone, the fastest is best
    for durations, steps in (
        (some_durations(0), some_steps(8)),
        (some_durations(0), some_steps(1000)),
        (np.ones([10, 8]), some_steps(8)),
        (slow_first, some_steps(8)),
    ):
        of_step = np.sort(durations, axis=1).mean(axis=0)
        ticks = of_step * steps
        N, mine = answer(durations.copy(), steps.copy())
        best = 1 + np.argmin(ticks)
        if N == best - 1 and np.isclose(mine, ticks[best - 1]):
            return "N = %d is the index of the best column, which holds the times of N + 1" % N
        if N not in range(1, 9):
            return "N is a number of gradients, from 1 to 8"
        N = int(N)
        if N != best and N == 1 + np.argmin(of_step):
            return "N = %d has the shortest steps, but needs %d of them" % (N, steps[N - 1])
        if N != best and N == 1 + np.argmax(np.arange(1, 9) / of_step):
            return "N = %d gives the most gradients per tick, but another N ends first" % N
        if N != best:
            return "with N = %d training takes %.0f ticks; another N ends first" % (N, ticks[N - 1])
        if not np.isclose(mine, ticks[N - 1]):
            return "N = %d is right, but it takes %.0f ticks" % (N, ticks[N - 1])


# %%
# Your answer to exercise 2
def answer_2(durations, steps):
    """Returns (N, ticks of a training run with it). durations: [rows, 8]; steps: [8]."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(durations, steps):
#     ticks = np.sort(durations, axis=1).mean(axis=0) * steps
#     best = int(np.argmin(ticks))
#     return best + 1, ticks[best]
#
#
# assert check_2(answer_2)
# of_step = np.sort(some_durations(0), axis=1).mean(axis=0)
# ticks = of_step * some_steps(8)
# assert answer_2(some_durations(0), some_steps(8))[0] == 5  # three backup workers
# assert 1 + np.argmax(np.arange(1, 9) / of_step) == 6 and 2.6 < ticks[7] / ticks[4] < 2.9
# ```
#
# In the example N = 6 gives the most gradients per tick, but N = 5 ends first: 2.8 times as soon as
# N = 8. So compare steps · seconds per step, not gradients per second. A real program gains less,
# because a late worker first finishes its stale gradient, which is then dropped.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Chen et al. 2016, [Revisiting Distributed Synchronous SGD](https://arxiv.org/abs/1604.00981):
#   backup workers, and staleness measured.
# - Dean, Barroso 2013, [The Tail at Scale](https://doi.org/10.1145/2408776.2408794): why some of
#   many machines are always slow.
# - Our page on [SyncReplicasOptimizer](../From-TensorFlow-1/Synchronous-SGD-Optimizer/).
#
# **Elsewhere:** DDP, `MultiWorkerMirroredStrategy` and JAX wait for *all* workers; none has backup
# workers built in.
#
# Next: [SGD-by-Experiment](SGD-by-Experiment.ipynb): how large may a batch be?
