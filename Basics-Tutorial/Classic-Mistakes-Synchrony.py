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
# Synchronous training makes one promise: all workers compute at the same `w`, and each counts once.
# No error message tells you when it is broken; the accuracy is a little lower than it could be, or
# the program hangs at the end of an epoch. You will see eight ways to break it. For each, a number
# shows the damage; then we repair it.
#
# After this notebook you can:
# - let all workers start from one `w`, and go through an epoch without a hang;
# - say whose statistics a batch normalisation uses;
# - tell N gradients from one gradient of each of N workers, and count the tokens that this needs;
# - find sums and orders that spoil an all-reduce;
# - build synchronous training with a backup worker, and prove it equal to one worker.
#
# **Before it:** [Synchronous-Replicas](Synchronous-Replicas.ipynb),
# [Ring-AllReduce](Ring-AllReduce.ipynb),
# [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb).
# **Time:** 45 minutes, and 90 for the project.

# %% [markdown]
# The mistakes stand in the order of a step:
#
# ![A synchronous step in five stages, with the mistakes of each. Start: 9, a worker that does not wait. Data: 10, shards of different sizes. Gradient: 11, statistics of one worker's data. Mean: 12, gradients from anyone; 13, the sum; 14, another order. Step: 15, a token too many; 16, an old count.](../docs/figures/mistakes-sync.svg)
#
# In a real cluster the order of events is random. Here we script it, with one ps and two workers as
# servers in this notebook.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import tensorflow.compat.v1 as tf
from course import new_cluster, start, stop

course.begin()

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()
cluster = new_cluster(ps=1, worker=2)
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in (0, 1)]
waits = tf.ConfigProto(operation_timeout_in_ms=20_000)  # no call waits for longer
threads = ThreadPoolExecutor(2)  # for two calls at once
LR = 0.1


def variables_on_ps(k):
    """For tf.device: variables on the ps, everything else on worker k."""
    return tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:%d" % k)


Model = namedtuple("Model", "graph w w_k init_global init_local")


def model(k, name):
    """Three random numbers w on the ps, and a copy on worker k."""
    with tf.Graph().as_default() as graph, tf.device(variables_on_ps(k)):
        tf.set_random_seed(k)
        w = tf.get_variable(name, [3], initializer=tf.random_normal_initializer())
        with tf.device("/job:worker/task:%d" % k):
            w_k = tf.get_local_variable(name + "_k", initializer=w.read_value())
        return Model(
            graph, w, w_k, tf.global_variables_initializer(), tf.local_variables_initializer()
        )


with tf.Graph().as_default() as graph:
    w_in = [tf.placeholder(tf.float32, value.shape) for value in course.first_values().values()]
    x_in, y_in = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    loss = course.loss(w_in, x_in, y_in)
    session = tf.Session(graph=graph)
    gradient = session.make_callable(tf.gradients(loss, w_in), [*w_in, x_in, y_in])
    test_accuracy = session.make_callable(course.accuracy(w_in, x_test, y_test), w_in)


def first_w(seed=0):
    return list(course.first_values(seed).values())


def mini_batch(k, number, size=32):
    """The rows of worker k for its update `number`."""
    rows = np.random.RandomState([k, number]).randint(0, len(x), size)
    return x[rows], y[rows]


# %% [markdown]
# ## Mistake 9: a worker that does not wait for the start
# Both workers run the same script, which begins with `tf.global_variables_initializer()`. Worker 1
# is up first: it initialises `w` and pulls a copy `w_k`. Then the chief does the same.

# %%
models = [model(k, "each") for k in (0, 1)]  # w on the ps, and a copy w_k
sessions = [tf.Session(servers[k].target, models[k].graph, waits) for k in (0, 1)]
for k in 1, 0:
    sessions[k].run(models[k].init_global)
    sessions[k].run(models[k].init_local)  # w_k <- w
print("w on the ps:     ", np.round(sessions[0].run(models[0].w), 2))
print("worker 1's copy: ", np.round(sessions[1].run(models[1].w_k), 2))
assert not np.allclose(sessions[0].run(models[0].w), sessions[1].run(models[1].w_k))

# %% [markdown]
# The first gradient of worker 1 belongs to a `w` that no longer exists. **Corrected:** only the chief
# initialises `w`. A `SessionManager` lets the other workers wait until all global variables have
# values, and only then runs their local initialiser.

# %%
chief, other = model(0, "chief_only"), model(1, "chief_only")
with other.graph.as_default():
    manager = tf.train.SessionManager(
        local_init_op=other.init_local,
        ready_op=tf.report_uninitialized_variables(),
        ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()),
        recovery_wait_secs=0.2,  # how often it looks; the default is 30 s
    )
tf.Session(servers[0].target, chief.graph, waits).run(chief.init_global)
session = manager.wait_for_session(servers[1].target, config=waits, max_wait_secs=20)
w, w_k = session.run([other.w, other.w_k])
print("worker 1's copy is w:", np.array_equal(w, w_k))
assert np.array_equal(w, w_k)

# %% [markdown]
# With an all-reduce the mistake is to start each worker with random values of its own: the mean
# gradient moves all copies equally, so they keep their distance for ever. DDP broadcasts the values
# of worker 0 first; with Horovod you must call the broadcast yourself.
#
# ## Mistake 10: shards of different sizes
# `run_workers` runs `work(k, all_reduce)` on a thread for each worker. `all_reduce` returns the mean
# of what they give, and matches their calls by order only, as NCCL and MPI do. Worker 0 has 45
# mini-batches, worker 1 has 44:


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

    running = [threading.Thread(target=run, args=[k]) for k in range(n)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


# %%
def epoch(batches):
    """One all-reduce for each mini-batch of a worker."""

    def work(k, all_reduce):
        for _ in range(batches[k]):
            all_reduce(k, np.ones(10))
        return "done after %d" % batches[k]

    return run_workers(work)


print("45 and 44 mini-batches:", epoch([45, 44]))
print("44 and 44 mini-batches:", epoch([44, 44]))

# %% [markdown]
# In its last step worker 0 waits for a worker that has finished: the usual hang at the end of an
# epoch. **Corrected:** use the smallest number of steps that any worker has, drop the last,
# incomplete mini-batch, or let a worker that has run out of rows contribute zeros (`join` in DDP).
#
# Unequal mini-batches do not hang, but count wrongly: the mean of two mean gradients is not the
# gradient of all rows (exercise 1). Add up sums and numbers of rows instead.


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
# Now the images of worker 1 come from another scanner and are faded: pixels go from 0.5 to 1 instead
# of from 0 to 1. Both workers average their gradients, so their weights are equal. The chief saves
# the model with its own running means.
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
# Nearly all of its own kind, and little more than half of the other. In training each worker used
# its own mean, so faded images looked like the others; in the test they meet the chief's. The mean
# of both comes too late, because training did not use it.
#
# </details>
#
# **Corrected:** all-reduce the mean and the mean of squares in the forward pass (`SyncBatchNorm` in
# PyTorch, `BatchNormalization(synchronized=True)` in Keras), or normalise each row by itself (layer
# normalisation).
#
# ## Mistake 12: N gradients, from anyone
# `SyncReplicasOptimizer` counts gradients, not workers, as you have seen in
# [Synchronous-Replicas](Synchronous-Replicas.ipynb). Worker 0 wants `w` at 100, worker 1 at −100, so
# in a synchronous step `w` stays at 0. Worker 1 is slow, and worker 0 calls `train` twice:

# %% jupyter={"source_hidden": true}
SyncWorker = namedtuple("SyncWorker", "session train make_step state")


def sync_worker(k, first_tokens):
    """Worker k of two, with steps of 2 gradients; the chief puts first_tokens into the queue."""
    with tf.Graph().as_default() as graph, tf.device(variables_on_ps(k)):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=0.0)
        loss = (w - [100.0, -100.0][k]) ** 2 / 2
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(LR), replicas_to_aggregate=2, total_num_replicas=2
        )
        train = optimizer.minimize(loss, global_step=step)
        make_step = optimizer.get_chief_queue_runner().enqueue_ops[0]
        optimizer.ready_for_local_init_op.mark_used()  # or TensorFlow complains

        session = tf.Session(servers[k].target, graph, waits)
        is_chief = k == 0
        if is_chief:
            session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        session.run(optimizer.chief_init_op if is_chief else optimizer.local_step_init_op)
        if is_chief:
            session.run(optimizer.get_init_tokens_op(first_tokens))
    return SyncWorker(session, train, make_step, [step, w])


def start_workers(first_tokens):
    """Empties all servers, and makes both workers."""
    tf.Session.reset(servers[0].target)
    return [sync_worker(k, first_tokens) for k in (0, 1)]


# %%
chief, _ = start_workers(first_tokens=-1)  # the hook's default: two
for _ in range(2):
    chief.session.run(chief.train)  # gives a gradient, and takes a token
chief.session.run(chief.make_step)
step, w = chief.session.run(chief.state)
print("step %d, w = %.0f" % (step, w))
assert step == 1 and np.isclose(w, 10)

# %% [markdown]
# **Corrected:** each worker has a slot of its own on the ps, and a step takes one gradient from each,
# as in [Synchronous-SGD](../Synchronous-SGD/).
#
# ## Mistake 13: the sum where the mean is meant
# `hvd.allreduce` and DDP average; PyTorch's `all_reduce` sums unless you ask for the mean. Here are
# 200 updates with the mean, the sum, and a mean that is divided by n twice, in the loss and in the
# all-reduce:

# %%
print("workers          " + "".join("%9d" % n for n in (1, 2, 4, 8)))
for name, power in ("mean", 1), ("sum", 0), ("mean of a mean", 2):
    accuracies = []
    for n in 1, 2, 4, 8:
        w = first_w()
        for number in range(200):
            gradients = [gradient(*w, *mini_batch(k, number)) for k in range(n)]
            w = [v - 0.2 * sum(parts) / n**power for v, parts in zip(w, zip(*gradients))]
        accuracies.append(test_accuracy(*w))
    print("%-17s" % name + "".join("%8.0f%%" % (100 * a) for a in accuracies))

# %% [markdown]
# With two and four workers the sum even looks better, because it only raises a low learning rate.
# With eight it fails. Whatever is not linear also belongs after the mean: clip the norm of the mean
# gradient, not each worker's. Under ZeRO, where a worker has only a part of it, first all-reduce
# the sum of squares.
# **Corrected:** compare one step of your workers with one step of one worker on all
# their rows. It must be equal, not similar.
#
# ## Mistake 14: all-reduces in another order
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
# It does not fail, and the workers even learn, because half of each mean is a worker's own gradient,
# in its right place; the other half is noise. They train two different models.
#
# </details>
#
# **Corrected:** one fixed order on all workers, as DDP and Horovod have. Compare the copies of `w` now
# and then (exercise 2).


# %% jupyter={"source_hidden": true}
def play_rounds(first_tokens):
    """Four rounds of calls of both workers; for each whether it led to a step."""
    workers = start_workers(first_tokens)
    chief, stepped = workers[0], []
    with chief.session.graph.as_default(), tf.device("/job:ps/task:0"):
        same_name = tf.ConditionalAccumulator(tf.float32, [], shared_name="w:0/grad_accum")
        gathered = same_name.num_accumulated()  # in the optimizer's own accumulator
    for _ in range(4):
        calls = [threads.submit(worker.session.run, worker.train) for worker in workers]
        both_returned = False
        while chief.session.run(gathered) < 2 and not both_returned:
            both_returned = all(call.done() for call in calls)
        stepped.append(bool(chief.session.run(gathered) == 2))
        if stepped[-1]:
            chief.session.run(chief.make_step)
        for call in calls:
            call.result(timeout=20)
    return stepped


# %% [markdown]
# ## Mistake 15: a token too many
# A call of `train` gives a gradient, and returns when it gets a token; each step puts two into the
# queue. A program has put four there at the start: the hook's two, and two more "to be safe". In each
# of four rounds, both workers call `train` at the same time.
#
# **Predict:** how many steps do the four rounds make, with 4, 2 and 0 tokens at the start?


# %% tags=["predicted"]
for first_tokens in 4, 2, 0:
    stepped = play_rounds(first_tokens)
    rounds = "  ".join("step" if led else "lost" for led in stepped)
    print("%d tokens at the start: %d steps; %s" % (first_tokens, sum(stepped), rounds))
    assert sum(stepped) == 4 - first_tokens / 2

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# 4 tokens at the start: 2 steps; step  lost  lost  step
# 2 tokens at the start: 3 steps; step  lost  step  step
# 0 tokens at the start: 4 steps; step  step  step  step
# ```
#
# Every two tokens cost a round. If a token is already there, the call returns before its gradient has
# been used. The token says "step 0", so the accumulator drops the worker's *next* gradient as stale.
#
# </details>
#
# **Corrected:** `make_session_run_hook(is_chief, num_tokens=0)`. First tokens are needed only where a
# step takes more gradients than there are workers.
#
# ## Mistake 16: a count that is read too early
# [DynSGD](../DynSGD/) divides a step by its staleness plus one. Two workers have pulled `w` at 0, with
# the gradient −100, so the first push must move `w` by 10 and the second by 5, to 15. The mistake is
# to read the counter before the lock that keeps pushes apart:

# %%
with tf.Graph().as_default(), tf.Session() as session:
    w, updates = tf.get_variable("w", initializer=0.0), tf.get_variable("updates", initializer=0.0)
    counted = tf.placeholder(tf.float32, [])

    def push(count):
        """w <- w - lr * g / (staleness + 1); both versions are 0."""
        return w.assign_sub(LR * -100 / (count + 1), read_value=False)

    def count_and_push():
        count = updates.assign_add(1.0) - 1.0  # the count before this update
        with tf.control_dependencies([push(count)]):
            return tf.identity(count)

    early = tf.group(push(counted), updates.assign_add(1.0))
    under_the_lock = tf.CriticalSection().execute(count_and_push)
    session.run(tf.global_variables_initializer())

    for count in [session.run(updates) for k in (0, 1)]:  # both read, then both push
        session.run(early, {counted: count})
    print("read before the lock: w = %.0f" % session.run(w))
    session.run(tf.global_variables_initializer())
    for k in 0, 1:
        session.run(under_the_lock)
    print("read under the lock:  w = %.0f" % session.run(w))
    assert session.run(w) == 15

# %% [markdown]
# Both early reads find 0, so both take a full step. **Corrected:** count, step and increment stand
# under one lock.

# %% [markdown]
# ## Exercises
# **1. Unequal mini-batches.** ★☆☆ With paper and pencil: worker 0 has 32 rows with the mean gradient
# 3, worker 1 has 8 rows with the mean gradient −2. Which gradient does an all-reduce of the means
# give, and what is the gradient of all 40 rows?
#
# <details><summary>Hint</summary>
#
# A mean gradient times its number of rows is a sum. Add the sums, and divide by all rows.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    of_means, of_rows = answer
    if of_means == 1:
        return "3 - 2 is the sum of the means; the all-reduce here gives their mean"
    if of_means == 2 and of_rows == 0.5:
        return "the right numbers, but in the other order"
    if of_means != 0.5:
        return "the first number: each worker counts 1/2, whatever its rows"
    if of_rows == 0.5:
        return "the second number: the 8 rows must not count as much as the 32"
    if of_rows != 2:
        return "the second number: sum over all rows, divided by 40"


# %%
# Your answer to exercise 1
answer_1 = ...  # two numbers: (mean of the means, gradient of all rows)

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_1 = (3 - 2) / 2, (32 * 3 + 8 * -2) / 40
#
# assert check_1(answer_1)
# ```
#
# The mean of the means is 0.5, the gradient of all rows 2. A row of worker 1 counts four times as
# much as a row of worker 0.
#
# </details>

# %% [markdown]
# **2. Are the copies equal?** ★★☆ Write a test that each worker calls with its copy: True on *all*
# workers if all copies are equal, else False on *all*. They have nothing but `all_reduce(k, value)`,
# which returns the mean.
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
def check_2(answer):
    """What is wrong in words, or None."""
    for name, offsets, moved in (
        ("equal", [0, 0, 0], 1),
        ("unequal", [0, 0.5, 1], 1),
        ("unequal", [0, 0.5, 0], 3),
    ):
        copies = [first_w() for _ in range(3)]
        for w, offset in zip(copies, offsets):
            w[moved][0] += offset
        found = run_workers(lambda k, all_reduce: answer(k, all_reduce, copies[k]), n=3)
        if "waits for the other" in found:
            return "some workers call all_reduce more often than others, which is Mistake 10"
        if found != [name == "equal"] * 3:
            return "with %s copies the three workers say %s" % (name, found)


# %%
# Your answer to exercise 2
def answer_2(k, all_reduce, w):
    """Returns whether all workers have the same w. w: four arrays, the copy of worker k."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(k, all_reduce, w):
#     mine = np.concatenate([v.ravel() for v in w]).astype("float64")
#     distance = np.abs(mine - all_reduce(k, mine)).max()
#     return bool(all_reduce(k, distance) == 0)
#
#
# assert check_2(answer_2)
# ```
#
# The first all-reduce sends a whole copy. To save bytes, send a few random projections of it. The
# test accuracy of each worker is no test at all: after Mistake 14 it looks healthy.
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
#    the rows of both, and compares `w`.
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
    """Returns w after a step of one worker with the rows of each pair of workers in made_by."""
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
    apart = max(np.abs(a - b).max() for a, b in zip(w, one_worker(made_by)))
    if apart > 1e-5:
        return "w differs by up to %.1g from that of one worker on the same rows" % apart


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
#     config = tf.ConfigProto(operation_timeout_in_ms=40_000)
#     session = tf.Session("grpc://" + cluster["ps"][0], graph, config)
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
# The proof holds whether a worker is slow or not: the log says which rows made each step. In real
# training a lasting straggler means data that are never seen.
#
# </details>

# %%
# Stop what this notebook started.
tf.Session.reset(servers[0].target)
threads.shutdown()
course.end()

# %% [markdown]
# ## Read more
# - Sergeev, Del Balso 2018, [Horovod](https://arxiv.org/abs/1802.05799): names, a broadcast at the
#   start, and buckets; Li et al. 2020, [PyTorch Distributed](https://arxiv.org/abs/2006.15704): the
#   order of buckets, and uneven inputs.
# - Ioffe, Szegedy 2015, [Batch Normalization](https://arxiv.org/abs/1502.03167), and Peng et al.
#   2018, [MegDet](https://arxiv.org/abs/1711.07240), which shares its statistics across GPUs.
# - The correct forms at work: [Synchronous-SGD](../Synchronous-SGD/), [DynSGD](../DynSGD/),
#   [Ring-AllReduce](../Ring-AllReduce/).
#
# **Elsewhere:** mistakes 9 to 11, 13 and 14 look the same in PyTorch, Horovod and JAX; 12, 15 and 16
# need a ps.
#
# Next: [Input-Pipelines](Input-Pipelines.ipynb), the first of part four.
