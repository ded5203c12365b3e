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
# Two workers average every gradient; still their copies of `w` keep the distance at which they
# began. Synchronous training promises that all workers compute at the same `w`, and that each counts once;
# no error message tells you when the promise is broken. You will know eight ways to break it, and find
# each by a number or a hang.
#
# After this notebook you can:
# - let all workers start from one `w`, and go through an epoch without a hang;
# - say whose statistics a batch normalisation uses;
# - find sums and orders that spoil an all-reduce;
# - build synchronous training with a backup worker, and prove it equal to one worker.
#
# **Before it:** [Synchronous-Replicas](Synchronous-Replicas.ipynb),
# [Ring-AllReduce](Ring-AllReduce.ipynb),
# [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb). **Time:** 30 minutes, and 90 for the
# project.

# %% [markdown]
# The figure follows the order of a step. The last three mistakes need a parameter server (ps):
#
# ![A synchronous step in five stages, with the mistakes of each. Start: 9, a worker that does not wait. Data: 10, shards of different sizes. Gradient: 11, statistics of one worker's data. Mean: 12, the sum; 13, another order; 14, gradients from anyone. Step: 15, a token too many; 16, an old count.](../docs/figures/mistakes-sync.svg)
#
# In a real cluster events come in random order; here they are scripted, in one process.
#
# **Notation:** n, k: workers, one of them; N: gradients that a step needs; `v`, `d`: one array of `w`, of a
# gradient.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import tensorflow.compat.v1 as tf
from course import new_cluster, start, stop

course.begin()

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()
with tf.Graph().as_default() as graph:
    w_in = [tf.placeholder(tf.float32, value.shape) for value in course.first_values().values()]
    x_in, y_in = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    loss = course.loss(w_in, x_in, y_in)
    session = tf.Session(graph=graph)
    gradient = session.make_callable(tf.gradients(loss, w_in), [*w_in, x_in, y_in])
    test_accuracy = session.make_callable(course.accuracy(w_in, x_test, y_test), w_in)
    accuracy = session.make_callable(course.accuracy(w_in, x_in, y_in), [*w_in, x_in, y_in])


def first_w(seed=0):
    return list(course.first_values(seed).values())


def accuracy_of(w, group):
    """The accuracy for the digits 0 to 4, or for 5 to 9."""
    rows = y_test // 5 == group
    return accuracy(*w, x_test[rows], y_test[rows])


def mini_batch(k, number, size=32):
    """The examples of worker k for its update `number`."""
    rows = np.random.RandomState([k, number]).randint(0, len(x), size)
    return x[rows], y[rows]


# %% [markdown]
# ## Mistake 9: a worker that does not wait for the start
# With a ps, only the chief initialises `w`, and the others wait for it
# ([Sessions](Sessions.ipynb)). With an all-reduce each worker has a `w` of its own. Here nobody
# waits for the values of worker 0, so each starts with random ones:

# %%
copies = [first_w(seed=k) for k in (0, 1)]
for number in range(101):
    if number in (0, 100):
        apart = max(np.abs(a - b).max() for a, b in zip(*copies))
        print("after %3d updates the two w differ by up to %.1f" % (number, apart))
    gradients = [gradient(*w, *mini_batch(k, number)) for k, w in enumerate(copies)]
    mean = [sum(parts) / 2 for parts in zip(*gradients)]
    copies = [[v - 0.2 * d for v, d in zip(w, mean)] for w in copies]
assert apart > 1

# %% [markdown]
# The mean gradient moves both equally, so they keep their distance for ever. **Fixed:** worker
# 0 sends its values to all before the first step, a *broadcast*, as DDP does.
#
# ## Mistake 10: shards of different sizes
# `run_workers` runs `work(k, all_reduce)` on a thread for each worker. `all_reduce` returns the
# mean of what they give, and matches their calls by order only, as NCCL does. In `epoch` (folded) each
# worker calls it once for each of its mini-batches:


# %% jupyter={"source_hidden": true}
class AllReduce:
    """The mean over n workers. Calls are matched by their order only."""

    def __init__(self, n, seconds=2.0):
        self.barrier = threading.Barrier(n, timeout=seconds)
        self.values = [None] * n

    def __call__(self, k, value):
        self.values[k] = value
        self.barrier.wait()  # all workers have given their value
        mean = sum(self.values) / len(self.values)
        self.barrier.wait()  # all have read the values
        return mean


def run_workers(work, n=2):
    """What work(k, all_reduce) returns on each of n threads, or that it waits."""
    all_reduce, results = AllReduce(n), [None] * n

    def run(k):
        try:
            results[k] = work(k, all_reduce)
        except threading.BrokenBarrierError:
            results[k] = "waits for the other"
        except Exception as error:
            results[k] = error
            all_reduce.barrier.abort()  # or the others would wait

    running = [threading.Thread(target=run, args=[k], daemon=True) for k in range(n)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(20)
    if any(thread.is_alive() for thread in running):
        raise TimeoutError("a worker has not ended within 20 s")
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def epoch(batches):
    """One all-reduce for each mini-batch of a worker."""

    def work(k, all_reduce):
        for _ in range(batches[k]):
            all_reduce(k, np.ones(10))
        return "done after %d" % batches[k]

    return run_workers(work)


# %%
print("45 and 44 mini-batches:", epoch([45, 44]))
print("44 and 44 mini-batches:", epoch([44, 44]))

# %% [markdown]
# In its last step worker 0 waits for a worker that has finished: the usual hang at the end of an
# epoch. **Fixed:** use the smallest number of steps that any worker has. Or let a worker that
# has run out contribute zeros, as in DDP's `join`. By default it still divides by the number of
# *all* workers, so the last steps are shorter; `divide_by_initial_world_size=False` changes that.
#
# Unequal mini-batches do not hang, but count wrongly ([TF2-Strategies](TF2-Strategies.ipynb)). Add
# up sums and numbers of examples instead.


# %% jupyter={"source_hidden": true}
def normalised_outputs(w, x, statistics):
    """The digits' network, with its hidden layer normalised by (mean, mean of squares)."""
    W1, b1, W2, b2 = w
    mean, squares = tf.unstack(statistics)
    hidden = (x @ W1 - mean) * tf.math.rsqrt(squares - mean**2 + 1e-3) + b1
    return tf.nn.relu(hidden) @ W2 + b2


def statistics_of(w, x):
    """Of each hidden unit the mean, and the mean of squares, over these rows."""
    hidden = x @ w[0]
    return tf.stack([tf.reduce_mean(hidden, 0), tf.reduce_mean(hidden**2, 0)])


def faded(x):
    return x / 2 + 0.5


half = len(x) // 2
shards = (x[:half], y[:half]), (faded(x[half:]), y[half:])
tests = (x_test[:180], y_test[:180]), (faded(x_test[180:]), y_test[180:])


def train_normalised(shared):
    """300 steps of two workers; shared: with the means of both. The accuracies, in %.

    [statistics in the test: of worker 0, of worker 1, their mean] [images of worker 0, of worker 1]
    """
    with tf.Graph().as_default(), tf.Session() as session:
        w, number = course.variables(), tf.placeholder(tf.int64, [])
        batches = [course.batch(*shard, number, worker=k) for k, shard in enumerate(shards)]
        own = [statistics_of(w, x_k) for x_k, _ in batches]
        mean_of_both = (own[0] + own[1]) / 2  # an all-reduce
        used = [mean_of_both, mean_of_both] if shared else own
        losses = [
            tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=y_k, logits=normalised_outputs(w, x_k, used_k)
                )
            )
            for (x_k, y_k), used_k in zip(batches, used)
        ]
        update = tf.train.GradientDescentOptimizer(0.2).minimize((losses[0] + losses[1]) / 2)

        running = [tf.get_variable("running_%d" % k, initializer=tf.zeros([2, 32])) for k in (0, 1)]
        collect = [r.assign(0.9 * r + 0.1 * s) for r, s in zip(running, used)]
        session.run(tf.global_variables_initializer())
        for i in range(300):
            session.run([update, collect], {number: i})

        def accuracy(x_k, y_k, statistics):
            scores = normalised_outputs(w, x_k, statistics)
            return 100 * np.mean(session.run(tf.argmax(scores, 1)) == y_k)

        return [
            [accuracy(*test, statistics) for test in tests]
            for statistics in (*running, (running[0] + running[1]) / 2)
        ]


# %% [markdown]
# ## Mistake 11: statistics of one worker's data
# *Batch normalisation* normalises each unit by its mean and standard deviation over the mini-batch,
# and in the test by running means of both. They are not gradients, so no all-reduce touches them.
#
# Now the images of worker 1 come from another scanner and are faded: pixels go from 0.5 to 1. Both
# workers average their gradients. The chief saves the model with its own running means.
#
# **Predict:** how many of the test images of each scanner does the chief's model recognise?


# %% tags=["predicted"]
own, shared = train_normalised(shared=False), train_normalised(shared=True)
print("statistics in training, and in the test    images of worker 0   of worker 1")
print("of each worker, and of worker 0 (chief) %18.0f%% %12.0f%%" % tuple(own[0]))
print("of each worker, and the mean of both    %18.0f%% %12.0f%%" % tuple(own[2]))
print("the mean of both, and the same          %18.0f%% %12.0f%%" % tuple(shared[0]))
assert own[0][1] < 70 and min(shared[0]) > 90

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# statistics in training, and in the test    images of worker 0   of worker 1
# of each worker, and of worker 0 (chief)                 97%           56%
# of each worker, and the mean of both                    96%           88%
# the mean of both, and the same                          97%           98%
# ```
#
# In this run it recognises nearly all images of its own scanner, and little more than half of the
# other's. In training each worker subtracted its own mean, so faded images looked like the others;
# in the test the chief's mean is subtracted from them. To average both now is too late, because
# training did not.
#
# </details>
#
# **Fixed:** all-reduce the mean and the mean of squares in the forward pass (`SyncBatchNorm` in
# PyTorch, `BatchNormalization(synchronized=True)` in Keras), or normalise each example by itself
# (layer normalisation).
#
# ## Mistake 12: the sum where the mean is meant
# DDP averages; PyTorch's `all_reduce` sums unless you ask for the mean. Here are 200 updates, one run
# of each, with the mean, the sum, and a mean that is divided by n twice, in the loss and in the
# all-reduce:

# %% jupyter={"source_hidden": true}
print("workers          " + "".join("%9d" % n for n in (1, 2, 4, 8)))
for name, power in ("mean", 1), ("sum", 0), ("mean of a mean", 2):
    accuracies = []
    for n in 1, 2, 4, 8:
        w = first_w()
        for number in range(200):
            gradients = [gradient(*w, *mini_batch(k, number)) for k in range(n)]
            w = [v - 0.2 * sum(parts) / n**power for v, parts in zip(w, zip(*gradients))]
        accuracies.append(test_accuracy(*w))
    words = ["%.0f%%" % (100 * a) if a > 0.7 else "fails" for a in accuracies]
    print("%-17s" % name + "".join("%9s" % word for word in words))

# %% [markdown]
# With two and four workers the sum even helps, because it raises a low learning rate; with eight it
# fails. The mean of a mean lowers the rate, so the model learns more slowly. **Fixed:** compare one
# step of your workers with one step of one worker on all their examples. Only rounding may differ.
#
# Likewise clip the norm of the mean gradient, not of each worker's. (Under ZeRO a worker has only a part
# of it, so first all-reduce the sum of squares.)
#
# ## Mistake 13: all-reduces in another order
# To send one message instead of four, each worker packs its four gradients into a *bucket* of 2,410
# numbers. Worker 1 packs them in another order, in which its layers happened to finish.
#
# **Predict:** both buckets have the same length. Does the all-reduce fail? Do the workers learn?


# %% tags=["predicted"]
def train_packed(order):
    """Two workers with one all-reduce of a bucket; order[k]: how worker k packs."""

    def work(k, all_reduce):
        w = first_w()
        for number in range(300):
            g = gradient(*w, *mini_batch(k, number))
            mean = all_reduce(k, np.concatenate([g[i].ravel() for i in order[k]]))
            begin = 0
            for i in order[k]:
                part = mean[begin : begin + w[i].size].reshape(w[i].shape)
                w[i] = w[i] - 0.2 * part
                begin += w[i].size
        return w

    return run_workers(work)


for name, order_of_1 in ("equal orders: ", [0, 1, 2, 3]), ("another order:", [3, 2, 1, 0]):
    both = train_packed([[0, 1, 2, 3], order_of_1])
    print(
        name, "accuracy %.0f%% and %.0f%%;" % tuple(100 * test_accuracy(*w) for w in both), end=""
    )
    print(" the two w differ by up to %.1f" % max(np.abs(a - b).max() for a, b in zip(*both)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# equal orders:  accuracy 96% and 96%; the two w differ by up to 0.0
# another order: accuracy 94% and 92%; the two w differ by up to 0.8
# ```
#
# It does not fail, and in this run the workers even learn, because half of each mean is a worker's
# own gradient in its right place. The other half is noise, so they train two models.
#
# </details>
#
# **Fixed:** one fixed order on all workers, as DDP has. Compare the copies of `w` now and then.
#
# ## Mistake 14: N gradients, from anyone
# `SyncReplicasOptimizer` [counts gradients, not workers](Synchronous-Replicas.ipynb). What does `w` learn
# then? Worker 0 has the digits 0 to 4; worker 1, with 5 to 9, has not started yet:


# %% jupyter={"source_hidden": true}
def ps(turns, num_tokens, slots=False):
    """SyncReplicasOptimizer, N = 2: w, whose gradients made each step, and whose were too old.

    turns: the workers in the order in which they give a gradient; one that waits for a token loses
    its turn. slots: a worker's second gradient of a step replaces its first one.
    """
    w, given, tokens, made_by, dropped = first_w(), {}, [0] * num_tokens, [], []
    pulled, waiting = [(0, w), (0, w)], []
    for turn, k in enumerate(turns):
        if k in waiting:
            continue
        token, w_k = pulled[k]
        own = np.flatnonzero(y // 5 == k)
        rows = own[np.random.RandomState(turn).randint(len(own), size=32)]
        if token == len(made_by):  # the step that it computed for is still to come
            given[k if slots else len(given)] = k, gradient(*w_k, x[rows], y[rows])
        else:
            dropped.append(k)
        if len(given) == 2:
            workers, gradients = zip(*given.values())
            w = [v - 0.2 * sum(parts) / 2 for v, parts in zip(w, zip(*gradients))]
            made_by, given = [*made_by, workers], {}
            tokens = [*tokens, len(made_by), len(made_by)]
        waiting.append(k)
        while waiting and tokens:  # it takes the next token, and pulls w
            pulled[waiting.pop(0)] = tokens.pop(0), w
    return w, made_by, dropped


for name, slots in ("any two gradients", False), ("a slot for each worker", True):
    w, made_by, _ = ps(200 * [0], num_tokens=2, slots=slots)
    found = len(made_by), *[100 * accuracy_of(w, group) for group in (0, 1)]
    print(name + ": %d steps; digits 0 to 4: %.0f%%, 5 to 9: %.0f%%" % found)

# %% [markdown]
# Worker 0's digits only. **Fixed:** on the ps a slot for each worker, as in
# [Synchronous-SGD](../Synchronous-SGD/), so a step waits for both.
#
# ## Mistake 15: a token too many
# By default the hook [begins with N tokens](Synchronous-Replicas.ipynb). What do they cost when both workers
# are there, but worker 0 is twice as fast?

# %%
for num_tokens in 2, 0:
    _, made_by, dropped = ps(6 * [0, 0, 1], num_tokens)
    steps = ", ".join("%d + %d" % workers for workers in made_by[:3])
    print("num_tokens=%d: %s; dropped: %s" % (num_tokens, steps, dropped or "none"))

# %% [markdown]
# One step counts worker 0 twice, and each worker then loses a gradient. **Fixed:**
# `make_session_run_hook(is_chief, num_tokens=0)`.
#
# ## Mistake 16: a count that is read too early
# [DynSGD](../DynSGD/) divides a step by its staleness plus one. Two workers have pulled `w` = 0, with the
# gradient −100 and `lr` = 0.1, so the pushes must move `w` by 10 and by 5. One program reads the counter
# before the lock that keeps pushes apart, the other under it:


# %% jupyter={"source_hidden": true}
def two_pushes(read_first):
    """Returns w after a push of each of two workers."""
    w, count, lock = 0.0, 0, threading.Lock()

    def push(k, all_reduce):
        nonlocal w, count
        if read_first:
            tau = count
            all_reduce(k, 0.0)  # the unlucky order: both have read before one of them pushes
        with lock:
            if not read_first:
                tau = count
            w, count = w - 0.1 * -100 / (tau + 1), count + 1

    run_workers(push)
    return w


print("read before the lock: w = %g" % two_pushes(read_first=True))
print("read under the lock:  w = %g" % two_pushes(read_first=False))

# %% [markdown]
# Before the lock both find 0, and move `w` by 10. **Fixed:** count, step and increment stand under one lock.

# %% jupyter={"source_hidden": true}
# What the text says, checked.
alone, slotted = (ps(200 * [0], 2, slots)[:2] for slots in (False, True))
assert set(alone[1]) == {(0, 0)} and slotted[1] == []
assert accuracy_of(alone[0], 0) > 0.9 and accuracy_of(alone[0], 1) < 0.1
both = ps(200 * [0, 1], 2, slots=True)[0]  # both have started
assert min(accuracy_of(both, group) for group in (0, 1)) > 0.8
assert ps(6 * [0, 0, 1], 2)[1:] == ([(0, 0), *5 * [(0, 1)]], [1, 0])
assert ps(6 * [0, 0, 1], 0)[1:] == (6 * [(0, 1)], [])
assert two_pushes(True) == 20 and two_pushes(False) == 15

# %% [markdown]
# ## Exercises
# **1. Are the copies equal?** ★★☆ Write a test that each worker calls with its copy: True on *all*
# workers if all copies are equal, else False on *all*. They have nothing but `all_reduce(k,
# value)`, which returns the mean.
#
# <details><summary>Hint</summary>
#
# A worker can compare its own copy with the mean of all. But a worker in the middle would find them
# equal, so the workers must also exchange what they found. Compute in float64, where the mean of
# equal values is exact.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    for name, offsets, moved in (
        ("equal", [0, 0, 0], 1),
        ("unequal", [0, 0.5, 1], 1),
        ("unequal", [0, 0.5, 0], 3),
        ("unequal", [0, 0, -0.001], 2),
    ):
        copies = [first_w() for _ in range(3)]
        for w, offset in zip(copies, offsets):
            w[moved][0] += offset
            w[moved][1] -= offset  # their sums stay equal
        found = run_workers(lambda k, all_reduce: answer(k, all_reduce, copies[k]), n=3)
        if "waits for the other" in found:
            return "some workers call all_reduce more often than others, which is mistake 10"
        if found != [name == "equal"] * 3:
            return "with %s copies the three workers say %s" % (name, found)


# %%
# Your answer to exercise 1
def answer_1(k, all_reduce, w):
    """Returns whether all workers have the same w. w: four arrays, the copy of worker k."""
    raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_1(k, all_reduce, w):
#     mine = np.concatenate([v.ravel() for v in w]).astype("float64")
#     distance = np.abs(mine - all_reduce(k, mine)).max()
#     return bool(all_reduce(k, distance) == 0)
#
#
# assert check_1(answer_1)
# ```
#
# The test accuracy of each worker is no test at all: after mistake 13 it looks healthy.
#
# </details>

# %% [markdown]
# ## The project of part three
# Build synchronous training with a backup worker from queues and accumulators.

# %% jupyter={"source_hidden": true}
# %%writefile server.py
import json
import os
import tensorflow.compat.v1 as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
server.join()

# %% [markdown]
# **Project. One backup worker.** ★★★ Start one ps and three workers with `server.py` (folded). This
# notebook is their client: one graph, one session, a thread for each worker. Make 30 updates of the
# digits with the first N = 2 of 3 gradients, lr 0.2 and `course.batch(x, y, version, k)`.
# 1. No worker counts twice in a step, and a gradient of an older `w` is dropped.
# 2. Worker 2 is held between its pull and its push until step 5; the others do not wait for it.
# 3. Write down whose gradients made each step: the check lets *one* worker make the same steps with
#    the examples of both, and compares `w`.
#
# <details><summary>Hint</summary>
#
# 1. `new_cluster(ps=1, worker=3)`, `start("server.py", cluster, "ps")`, and so on. Connect a
#    session to `"grpc://" + cluster["ps"][0]`, with a time limit; at the end `stop(*processes)`.
# 2. On the ps: `w`, a queue `arrivals` of (k, version, gradients), a queue of tokens for each
#    worker, and an accumulator for each of `w`.
# 3. On worker k: local copies of `w`. One op pulls; a second one computes the gradients at the
#    copies and enqueues them.
# 4. A worker's thread: pull, push, take tokens until one is greater than its version.
# 5. The chief: dequeue an arrival. Is its version the current step, and its worker not yet among
#    those who arrived? Give it to the accumulators. With two, move `w`, and put a token into each
#    queue.
# 6. Hold worker 2 with a `threading.Event`.
# 7. A thread that fails must not stay unnoticed: `ThreadPoolExecutor` and `result(timeout=60)`.
#
# </details>


# %% jupyter={"source_hidden": true}
def one_worker(made_by, lr=0.2):
    """Returns w after a step of one worker with the examples of each pair in made_by."""
    with tf.Graph().as_default(), tf.Session() as session:
        w, number, ways = course.variables(), tf.placeholder(tf.int64, []), {}
        for pair in (0, 1), (0, 2), (1, 2):
            batches = [course.batch(x, y, number, k) for k in pair]
            union = [tf.concat(parts, 0) for parts in zip(*batches)]
            ways[pair] = tf.train.GradientDescentOptimizer(lr).minimize(course.loss(w, *union))
        session.run(tf.global_variables_initializer())
        for step, pair in enumerate(made_by):
            session.run(ways[tuple(pair)], {number: step})
        return session.run(w)


@course.exercise
def check_project(answer):
    """What is wrong in words, or None."""
    before = len(course.processes)
    w, made_by, dropped = answer()
    made_by = [sorted(map(int, workers)) for workers in made_by]
    if len(made_by) != 30:
        return "there are %d updates instead of 30" % len(made_by)
    for number, workers in enumerate(made_by):
        if len(workers) != 2:
            return "update %d is made of %d gradients instead of 2" % (number, len(workers))
        if workers[0] == workers[1]:
            return "update %d is made of two gradients of worker %d" % (number, workers[0])
        if 2 in workers and number < 5:
            return "worker 2, which is held until step 5, has a gradient in update %d" % number
    if (2, 0) not in [(int(k), int(version)) for k, version in dropped]:
        return "worker 2 pushes its first gradient, of version 0, at step 5: it must be dropped"
    apart = np.max([np.abs(a - b).max() for a, b in zip(w, one_worker(made_by))])
    if not apart <= 1e-5:
        return "w differs by up to %.1g from that of one worker on the same examples" % apart
    started = {process.log.stem for process in course.processes[before:]}
    if missing := {"ps-0", "worker-0", "worker-1", "worker-2"} - started:
        return "your answer has not started " + ", ".join(sorted(missing))


# %%
# Your answer to the project
def answer_project():
    """Returns (w, made_by, dropped).

    w: four arrays. made_by: for each update the two workers whose gradients made it.
    dropped: the (worker, version) of each gradient that was dropped.
    """
    raise NotImplementedError


check_project(answer_project)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# n, N, UPDATES, lr = 3, 2, 30, 0.2
#
#
# def answer_project():
#     cluster = new_cluster(ps=1, worker=n)
#     processes = [start("server.py", cluster, "ps")]
#     processes += [start("server.py", cluster, "worker", k) for k in range(n)]
#
#     with tf.Graph().as_default() as graph:
#         version_in = tf.placeholder(tf.int64, [])
#         with tf.device("/job:ps/task:0"):
#             w = course.variables()
#             shapes = [v.shape for v in w]
#             arrivals = tf.FIFOQueue(100, [tf.int64] * 2 + [tf.float32] * 4, [[], [], *shapes])
#             tokens = [tf.FIFOQueue(100, tf.int64, [[]], name="tokens_%d" % k) for k in range(n)]
#             accumulators = [tf.ConditionalAccumulator(tf.float32, shape) for shape in shapes]
#             # The chief: look at an arrival; gather its gradients; w <- w - lr * mean; tokens.
#             arrival = arrivals.dequeue()
#             gathered = [tf.placeholder(tf.float32, shape) for shape in shapes]
#             gather = [a.apply_grad(g, version_in) for a, g in zip(accumulators, gathered)]
#             move = [v.assign_sub(lr * a.take_grad(N)) for v, a in zip(w, accumulators)]
#             put_tokens = [queue.enqueue(version_in) for queue in tokens]
#             take_token = [queue.dequeue() for queue in tokens]
#         pull, push = [], []
#         for k in range(n):
#             with tf.device("/job:worker/task:%d" % k):
#                 w_k = course.variables("copy_%d_" % k, get_variable=tf.get_local_variable)
#                 pull.append([copy.assign(v.read_value()).op for copy, v in zip(w_k, w)])
#                 at_copies = [copy.read_value() for copy in w_k]
#                 loss = course.loss(at_copies, *course.batch(x, y, version_in, k))
#                 g = tf.gradients(loss, at_copies)
#             with tf.device("/job:ps/task:0"):
#                 push.append(arrivals.enqueue([tf.constant(k, tf.int64), version_in, *g]))
#         initialise = [tf.global_variables_initializer(), tf.local_variables_initializer()]
#
#     limit = tf.ConfigProto(operation_timeout_in_ms=40_000)
#     session = tf.Session("grpc://" + cluster["ps"][0], graph, limit)
#     session.run(initialise)
#     release = threading.Event()
#
#     def work(k):
#         version = 0
#         while version < UPDATES:
#             session.run(pull[k])
#             if k == 2:
#                 assert release.wait(40)
#             session.run(push[k], {version_in: version})
#             token = version
#             while token <= version:
#                 token = int(session.run(take_token[k]))
#             version = token
#
#     def lead():
#         step, here, made_by, dropped = 0, [], [], []
#         while step < UPDATES:
#             k, version, *g = session.run(arrival)
#             if version < step or k in here:
#                 dropped.append((int(k), int(version)))
#                 continue
#             session.run(gather, {version_in: version, **dict(zip(gathered, g))})
#             here.append(int(k))
#             if len(here) == N:
#                 session.run([v.op for v in move])
#                 step, here, made_by = step + 1, [], made_by + [sorted(here)]
#                 if step == 5:
#                     release.set()
#                 session.run(put_tokens, {version_in: step})
#         return made_by, dropped
#
#     with ThreadPoolExecutor(n + 1) as pool:
#         workers, leader = [pool.submit(work, k) for k in range(n)], pool.submit(lead)
#         made_by, dropped = leader.result(timeout=60)
#         for worker in workers:
#             worker.result(timeout=60)
#     trained = session.run(w)
#     session.close()  # before its servers end: without them it would take 40 s
#     stop(*processes)
#     return trained, made_by, dropped
#
#
# assert check_project(answer_project)
# ```
#
# In real training a lasting straggler means data that are never seen.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Sergeev, Del Balso 2018, [Horovod](https://arxiv.org/abs/1802.05799): names, and a broadcast at
#   the start.
# - Li et al. 2020, [PyTorch Distributed](https://arxiv.org/abs/2006.15704): the order of buckets,
#   and uneven inputs.
# - Peng et al. 2018, [MegDet](https://arxiv.org/abs/1711.07240), which shares the statistics of
#   batch normalisation across GPUs.
#
# **Elsewhere:** mistakes 9 to 13 look the same in PyTorch, and in JAX's `shard_map`. JAX's `jit` computes on
# a sharded batch what one device would, which excludes 11 to 13.
#
# Next: [Which-Algorithm](Which-Algorithm.ipynb), the end of part three.
