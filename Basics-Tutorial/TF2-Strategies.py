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
# # TensorFlow 2's strategies
# In TensorFlow 2 one object, the *strategy*, places variables, starts servers and exchanges gradients.
# You change one line, and a training step moves from one device to two machines. The same line can silently
# make it another step: the gradient differs, or some examples are never read. Here one loop runs under
# four strategies, and you measure what stays equal.
#
# After this notebook you can:
# - write one training step that runs on one device, on several, and in several processes;
# - tell when synchronous training equals training on one device;
# - predict which examples the workers read, and what happens when a worker dies;
# - decide whether `tf.distribute` is the right choice in 2026.
#
# **Before it:** [Ring-AllReduce](Ring-AllReduce.ipynb), [Stale-Gradients](Stale-Gradients.ipynb).
# **Time:** 50 minutes.
#
# **[Notation](GLOSSARY.md#notation):** $k$ of $n$ counts replicas, in `shard` workers.

# %% [markdown]
# ## Four answers to the same questions
# A *replica* is one copy of the training step; usually each device has one. A strategy decides on
# which devices the replicas run, where the variables live, and how gradients meet.
#
# ![Four strategies. OneDevice: one process, one device with w. Mirrored: one process, two devices, each with a copy of w and a gradient, joined by an all-reduce. MultiWorkerMirrored: the same with a process for each device. ParameterServer: a coordinator schedules updates on two worker processes, which pull w from a ps and push to it.](../docs/figures/strategies.svg)
#
# Strategies need TensorFlow 2 as Keras uses it: operations run at once, and `tf.function` turns a
# Python function into a graph. Two *logical devices* divide this machine's processor, which makes nothing
# faster.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import json
import pathlib
import time
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from course import BLUE, GRAY, GREEN, ORANGE, finish, new_cluster, show, start

course.begin(graphs=False)
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)

# %% [markdown]
# ## One step for all strategies
# All strategies get the same mini-batch of 32 examples, number `t`; replica $k$ of $n$ takes every
# $n$-th of them, and all make the step $w\leftarrow w-\mathrm{lr}\cdot\frac1n\sum_k g_k(w)$. Three
# calls make the code independent of the strategy: `strategy.scope()` places and copies variables,
# `strategy.run` runs the step on each replica, and `replica.all_reduce` gives all the mean.

# %%
# %%writefile training.py
import course
import tensorflow as tf

x, y, x_test, y_test = course.load()


def make_variables(strategy):
    with strategy.scope():
        return [tf.Variable(value) for value in course.first_values().values()]


def step(w, t):
    """Makes update t, as one replica."""
    replica = tf.distribute.get_replica_context()
    k, n = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
    rows_x, rows_y = course.batch(x, y, t)
    with tf.GradientTape() as tape:  # it records the computation
        loss = course.loss(w, rows_x[k::n], rows_y[k::n])
    mean = replica.all_reduce("MEAN", tape.gradient(loss, w))
    for v, d in zip(w, mean):
        v.assign_sub(0.2 * d)
    return loss


def make_update(strategy, w):
    @tf.function
    def update(t):
        losses = strategy.run(step, (w, t))  # one loss for each replica
        return strategy.reduce("MEAN", losses, axis=None)

    return update


def train(strategy, updates=300):
    """Returns the variables after so many updates, and the loss of each update."""
    w = make_variables(strategy)
    update = make_update(strategy, w)
    return w, [float(update(tf.constant(t))) for t in range(updates)]


# %% [markdown]
# **OneDeviceStrategy** only names a device; it is our reference. **MirroredStrategy** has a copy of
# `w`, a *mirror*, on each of two devices of one process.

# %%
import training

one_device = tf.distribute.OneDeviceStrategy("/cpu:0")
w, losses = training.train(one_device)
all_losses = {"OneDevice": losses}
accuracy = float(course.accuracy(w, training.x_test, training.y_test))
print("one device: test accuracy after 300 updates %.1f%%" % (100 * accuracy))

mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
w, losses = training.train(mirrored)
all_losses["Mirrored"] = losses
copies = [mirrored.experimental_local_results(v) for v in w]
equal = all(np.array_equal(first, second) for first, second in copies)
difference = np.abs(np.subtract(losses, all_losses["OneDevice"])).max()
print("the copies of W1 are on", *[copy.device[-5:] for copy in copies[0]])
print("the copies are equal, bit for bit:", equal)
print("the losses are those of one device, up to 1e-5:", bool(difference < 1e-5))

# %% jupyter={"source_hidden": true}
assert equal and difference < 1e-5 and accuracy > 0.95

# %% [markdown]
# ## When two halves are not one whole
# Synchronous training equals training on one device with the union of the mini-batches under two
# conditions:
# - **Equal shares.** A plain mean counts each *replica* once. If one has 20 examples and the other
#   12, an example of the smaller share counts more.
# - **Independent examples.** Batch normalisation uses the mean and the variance of its own
#   replica's examples, unless Keras' layer has `synchronized=True`.


# %% jupyter={"source_hidden": true}
def mean_gradient(strategy, shares, normalisation=None):
    """The gradient by W1, averaged over the replicas; replica k has shares[k] examples."""
    with strategy.scope():
        W1, b1, W2, b2 = training.make_variables(strategy)
        if normalisation:
            synchronized = normalisation == "synchronized"
            normalise = keras.layers.BatchNormalization(synchronized=synchronized)
            normalise.build([None, 32])
        else:
            normalise = lambda hidden, training: hidden
    rows = np.split(np.arange(32), np.cumsum(shares)[:-1])
    rows_of_replica = strategy.experimental_distribute_values_from_function(
        lambda replica: tf.constant(rows[replica.replica_id_in_sync_group])
    )

    def gradient(rows):
        x, y = tf.gather(training.x, rows), tf.gather(training.y, rows)
        with tf.GradientTape() as tape:
            hidden = normalise(x @ W1 + b1, training=True)
            scores = tf.nn.relu(hidden) @ W2 + b2
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
            )
        return tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, W1))

    means = tf.function(lambda: strategy.run(gradient, (rows_of_replica,)))()
    return strategy.experimental_local_results(means)[0].numpy()


CASES = [
    ("none", [16, 16]),
    ("none", [20, 12]),
    ("per replica", [16, 16]),
    ("synchronized", [16, 16]),
    ("synchronized", [20, 12]),
]


def error_of(kind, shares):
    """How far the gradient of two replicas is from that of one device, as a share of it."""
    normalisation = None if kind == "none" else kind
    alone = mean_gradient(one_device, [32], normalisation and "per replica")
    error = np.linalg.norm(mean_gradient(mirrored, shares, normalisation) - alone)
    return error / np.linalg.norm(alone)


# %% [markdown]
# **Predict:** which of the five cases do not give the gradient of one device? Is the error small,
# like rounding, or large?

# %% tags=["predicted"]
errors = [error_of(kind, shares) for kind, shares in CASES]
print("%-22s %-10s error of the gradient" % ("batch normalisation", "shares"))
for (kind, shares), error in zip(CASES, errors):
    words = "%.0f%%" % (100 * error) if error > 1e-5 else "only rounding"
    print("%-22s %-10s %s" % (kind, "%d + %d" % tuple(shares), words))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# batch normalisation    shares     error of the gradient
# none                   16 + 16    only rounding
# none                   20 + 12    24%
# per replica            16 + 16    41%
# synchronized           16 + 16    only rounding
# synchronized           20 + 12    22%
# ```
#
# Unequal shares and batch normalisation per replica change the gradient a lot. Synchronised batch
# normalisation corrects the second, for equal shares; exercise 1 corrects the first.
#
# </details>
#
# Neither is rare: 1,437 examples in batches of 32 leave a last one of 29, which is 15 + 14, and
# batch normalisation per replica is Keras' default.

# %% jupyter={"source_hidden": true}
assert [error > 0.1 for error in errors] == [False, True, True, False, True]

# %% [markdown]
# ## MultiWorkerMirroredStrategy, and which examples a worker reads
# Now each replica has a process; the strategy reads TF_CONFIG, starts a server, and connects them.
# A dataset goes through `experimental_distribute_dataset`, whose
# default is `AutoShardPolicy.AUTO`: each worker gets some of the files, or, without files, its
# share of each batch. In this program each worker also takes its share explicitly, as you would
# without a strategy.

# %% jupyter={"source_hidden": true}
# %%writefile worker.py
import json
import os
import pathlib
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts the server
import checks
import training

k = strategy.cluster_resolver.task_id
w, losses = training.train(strategy)


def rows_read(policy):
    """Returns the examples of an epoch that this worker reads, of 64."""
    dataset = tf.data.Dataset.range(64).shard(2, k).batch(8)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    batches = strategy.experimental_distribute_dataset(dataset.with_options(options))
    return [int(row) for b in batches for row in strategy.experimental_local_results(b)[0]]


Policy = tf.data.experimental.AutoShardPolicy
result = {
    "losses": losses,
    "w": [v.numpy().tolist() for v in w],
    "rows": {policy.name: rows_read(policy) for policy in (Policy.AUTO, Policy.OFF)},
    "checks": checks.attempt_all(strategy),
}
pathlib.Path("worker-%d.json" % k).write_text(json.dumps(result))

update = training.make_update(strategy, w)
print("trains on", flush=True)
try:
    for t in range(300, 1_000_000):
        update(tf.constant(t))
except tf.errors.OpError as error:
    print("the all-reduce failed:", type(error).__name__, flush=True)
    os._exit(0)  # without the lost worker TensorFlow cannot end in an orderly way

# %% jupyter={"source_hidden": true}
# %%writefile checks.py
"""What works under a strategy: each check says in a word what it found."""
import tempfile
import course
import keras
import numpy as np
import tensorflow as tf
import training


def own_loop(strategy, call):
    update = training.make_update(strategy, training.make_variables(strategy))
    losses = [float(call(update, tf.constant(t))) for t in range(20)]
    return "learns" if losses[-1] < losses[0] else "fails"


def keras_fit(strategy, call):
    with strategy.scope():
        model = keras.Sequential([keras.Input([64]), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.2), loss)
    fitted = model.fit(training.x, training.y, batch_size=128, epochs=2, verbose=0)
    losses = fitted.history["loss"]
    return "learns" if losses[1] < losses[0] else "fails"


def checkpoint(strategy, call):
    """Can a plain program read what was saved under the strategy?"""
    values = list(course.first_values().values())
    w, plain = training.make_variables(strategy), [tf.Variable(0 * v) for v in values]
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(w=w).save(folder + "/checkpoint")
        tf.train.Checkpoint(w=plain).restore(saved).assert_consumed()
    return "readable" if all(map(np.array_equal, plain, values)) else "differs"


def outside_scope(strategy, call):
    """Each replica adds 1 to a variable that was made without strategy.scope()."""
    v = tf.Variable(0.0)

    def add_one():
        v.assign_add(1.0)

    call(tf.function(lambda: strategy.run(add_one)))
    return "v = %d" % v


def attempt_all(strategy, call=lambda update, *values: update(*values)):
    """{check: what it found, or the name of the error}; call: how an update is run."""
    found = {}
    for check in own_loop, keras_fit, checkpoint, outside_scope:
        try:
            found[check.__name__] = check(strategy, call)
        except Exception as error:  # whichever it is: the table names it
            found[check.__name__] = type(error).__name__
    return found


# %% jupyter={"source_hidden": true}
def wait_until_printed(words, *processes, seconds=60):
    """Waits until each of these processes has printed these words."""
    deadline = time.monotonic() + seconds
    while not all(words in process.log.read_text() for process in processes):
        ended = [process for process in processes if process.poll() is not None]
        assert not ended and time.monotonic() < deadline, processes[0].log.read_text()[-2000:]
        time.sleep(0.05)


cluster = new_cluster(worker=2)
workers = [start("worker.py", cluster, "worker", k) for k in range(2)]
wait_until_printed("trains on", *workers)
results = [json.loads(pathlib.Path("worker-%d.json" % k).read_text()) for k in range(2)]
all_losses["MultiWorkerMirrored"] = losses = results[0]["losses"]

# %%
difference = np.abs(np.subtract(losses, all_losses["OneDevice"])).max()
equal = results[0]["w"] == results[1]["w"]
print("the two workers have the same w, bit for bit:", equal)
print("the losses are those of one device, up to 1e-5:", bool(difference < 1e-5))

# %% jupyter={"source_hidden": true}
assert equal and difference < 1e-5

# %% [markdown]
# **Predict:** with `.shard(2, k)` in the program, how many of the 64 examples do the two workers
# read in an epoch under AUTO, and how many under OFF?

# %% tags=["predicted"]
rows = {}
for policy in "AUTO", "OFF":
    read = [set(result["rows"][policy]) for result in results]
    rows[policy] = len(read[0] | read[1])
    print("%-5s worker 0 begins with %s" % (policy, sorted(read[0])[:6]))
    print("      together they read %d of 64 examples" % rows[policy])

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# AUTO  worker 0 begins with [0, 2, 4, 6, 16, 18]
#       together they read 32 of 64 examples
# OFF   worker 0 begins with [0, 2, 4, 6, 8, 10]
#       together they read 64 of 64 examples
# ```
#
# AUTO shards what is already sharded. It cuts each batch of 8, which holds only this worker's
# examples, into two of 4, and the worker keeps only one of the two. So shard once: yourself with
# OFF, or by the strategy.
#
# </details>
#
# Another way, `distribute_datasets_from_function`, shards nothing, and takes the batch size of
# *one* replica.

# %% jupyter={"source_hidden": true}
assert rows == {"AUTO": 32, "OFF": 64}


def rows_per_replica(strategy, batch):
    """Examples of the first batch on a replica: of a distributed dataset, and of a function."""
    dataset = tf.data.Dataset.range(1024).batch(batch)
    ways = [
        strategy.experimental_distribute_dataset(dataset),
        strategy.distribute_datasets_from_function(lambda context: dataset),
    ]
    return [len(strategy.experimental_local_results(next(iter(way)))[0]) for way in ways]


assert rows_per_replica(mirrored, 64) == [32, 64]

# %% [markdown]
# **Predict:** both workers train on, and we kill worker 1. What does worker 0 do: train on alone, wait for
# ever, or fail?

# %% tags=["predicted"]
workers[1].kill()
print("worker 0:", finish(workers[0]).splitlines()[-1])

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# worker 0: the all-reduce failed: UnavailableError
# ```
#
# It fails: the mean needs all gradients, and a broken connection is an error.
#
# </details>
#
# So you start all workers again from the last checkpoint. If a worker hangs instead of dying, the others
# wait for ever; [Collective-AllReduce](../Collective-AllReduce/) therefore watches its own progress.
#
# ## ParameterServerStrategy
# This strategy is asynchronous. `w` lives on a ps, and the workers run only a server. A *coordinator*
# hands them work. `schedule` puts a
# *closure*, a function and its arguments, into a queue and returns at once; a free worker takes it;
# `join` waits until all are done.
#
# ![The coordinator runs the only training loop. It schedules closures of one update each in a queue. A free worker takes the next one, pulls w from the ps, computes a gradient, pushes it, and returns a result.](../docs/figures/closures.svg)

# %% jupyter={"source_hidden": true}
# %%writefile server.py
import tensorflow as tf

task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
# With one thread, which one core gets, the parts of an update would wait for one another.
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)
tf.distribute.Server(task.cluster_spec(), task.task_type, task.task_id, config=config).join()

# %% jupyter={"source_hidden": true}
# %%writefile chief.py
import json
import pathlib
import checks
import course
import tensorflow as tf
import training

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
w = training.make_variables(strategy)
update = training.make_update(strategy, w)


def run_all(numbers):
    losses = [coordinator.schedule(update, (tf.constant(t),)) for t in numbers]
    coordinator.join()
    return [float(loss) for loss in coordinator.fetch(losses)]


def call(update, *values):
    return coordinator.schedule(update, values).fetch()


result = {"losses": run_all(range(300)), "checks": checks.attempt_all(strategy, call)}
pathlib.Path("chief.json").write_text(json.dumps(result))

print("trains on", flush=True)
for t in range(300, 500, 50):
    run_all(range(t, t + 50))
values = [v.numpy() for v in w]
accuracy = float(course.accuracy(values, training.x_test, training.y_test))
print("500 updates are done; test accuracy above 95%:", accuracy > 0.95, flush=True)

# %% [markdown]
# The folded `chief.py` calls `coordinator.schedule(update, (tf.constant(t),))` for the same 300
# mini-batches in the same order, and while it hands out 200 more, we kill worker 1.

# %% jupyter={"source_hidden": true}
cluster = new_cluster(chief=1, ps=1, worker=2)
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)  # also where there is one core
here = [tf.distribute.Server(cluster, job, 0, config=config) for job in ("ps", "worker")]
worker_1 = start("server.py", cluster, "worker", 1)
chief = start("chief.py", cluster, "chief")
wait_until_printed("trains on", chief)

# %%
worker_1.kill()
result = json.loads(pathlib.Path("chief.json").read_text())
losses = all_losses["ParameterServer"] = result["losses"]
difference = np.abs(np.subtract(losses, all_losses["OneDevice"])).max()
print("the losses are those of one device, up to 1e-5:", bool(difference < 1e-5))
print("chief:", finish(chief).splitlines()[-1])

# %% jupyter={"source_hidden": true} tags=["measured"]
assert difference > 1e-3 and np.mean(losses[-20:]) < 0.5
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for name, color, width, line in (
    ("Mirrored", BLUE, 3, "-"),
    ("MultiWorkerMirrored", ORANGE, 2, ":"),
    ("ParameterServer", GREEN, 2, "-"),
):
    far = np.maximum(np.abs(np.subtract(all_losses[name], all_losses["OneDevice"])), 1e-8)
    smooth = np.exp(np.convolve(np.log(far), np.ones(10) / 10, "valid"))
    axes.plot(np.arange(10, 301), smooth, line, color=color, lw=width, label=name)
axes.axhline(np.mean(all_losses["OneDevice"][-50:]), color=GRAY, lw=1, ls="--")
axes.text(300, 1.15 * np.mean(all_losses["OneDevice"][-50:]), "the loss itself", ha="right")
axes.set(xlabel="updates", ylabel="distance to the loss\nof one device", yscale="log")
axes.set(ylim=(3e-9, 3))
axes.legend(loc="center right", bbox_to_anchor=(1, 0.45))
show(
    figure,
    "How far the losses of 300 updates are from those of one device. Both mirrored strategies stay "
    "at the size of rounding errors; ParameterServer is far above them, and below the loss itself.",
)

# %% [markdown]
# Because gradients are stale, the steps are not those of one device. In return the death of a
# worker stops nothing: the coordinator gives its closures to the other one. The chief and the ps must
# live.
#
# ## What works with what, in 2026
# The folded `checks.py` was executed under each strategy above:

# %% jupyter={"source_hidden": true}
import checks

table = {
    "OneDevice": checks.attempt_all(one_device),
    "Mirrored": checks.attempt_all(mirrored),
    "MultiWorker": results[0]["checks"],
    "ParameterServer": result["checks"],
}
print(" " * 14, *["%-16s" % name for name in table])
for check in table["OneDevice"]:
    print("%-14s" % check, *["%-16s" % found[check] for found in table.values()])
assert [column["keras_fit"] for column in table.values()] == ["learns"] * 2 + ["ValueError"] * 2
assert all(column["own_loop"] == "learns" for column in table.values())

# %% [markdown]
# - **outside_scope**: a variable made without the scope. Under Mirrored both replicas add to it; under
#   MultiWorker each process has its own, and they drift apart without a warning.
# - **keras_fit**: on the *TensorFlow* backend, Keras 3's `fit` works within one process only. For several GPUs in
#   one machine it is [all you need](../Multiple-GPUs-Single-Machine/).
#
# On TensorFlow, Keras 3 supports MirroredStrategy and TPUStrategy. The others work with your own loop, and
# are kept rather than developed. There is no ZeRO.
#
# For many machines Keras' author
# [names another way](https://github.com/keras-team/keras/issues/20585): Keras 3 on the *JAX* backend,
# with `keras.distribution`. You name a mesh of devices and the axis along which each variable is cut; the
# compiler inserts the all-reduces.
#
# <details><summary>Data and tensor parallelism by <code>fit</code>, in two processes</summary>
#
# The tests do not run this: `pip install keras==3.15.1 jax==0.10.2 scikit-learn`, in an environment of its own.
#
# ```python
# import sys
#
# import keras
# from sklearn.datasets import load_digits
#
# k, rows, columns = map(int, sys.argv[1:])
# keras.utils.set_random_seed(0)
# keras.distribution.initialize("127.0.0.1:1234", num_processes=2, process_id=k)
# devices = keras.distribution.list_devices()
# mesh = keras.distribution.DeviceMesh((rows, columns), ["batch", "model"], devices)
# cuts = keras.distribution.LayoutMap(mesh)
# cuts[".*first.*kernel"] = (None, "model")  # W1 by columns
# cuts[".*first.*bias"] = ("model",)
# cuts[".*second.*kernel"] = ("model", None)  # W2 by rows
# how = {"batch_dim_name": "batch", "auto_shard_dataset": False}
# keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=cuts, **how))
#
# hidden = keras.layers.Dense(32, "relu", name="first")
# model = keras.Sequential([hidden, keras.layers.Dense(10, "softmax", name="second")])
# model.compile(keras.optimizers.SGD(0.2), "sparse_categorical_crossentropy")
# x, y = load_digits(return_X_y=True)
# own = slice(k // columns, 1792, rows)  # whole batches only
# fit = model.fit(x[own] / 16, y[own], batch_size=32 // rows, epochs=10, verbose=0)
# (part,) = hidden.kernel.value.addressable_shards
# print(f"process {k}: {len(y[own])} rows, W1 {part.data.shape}, loss {fit.history['loss'][-1]:.3f}")
# ```
#
# `export KERAS_BACKEND=jax; python mesh.py 0 2 1 & python mesh.py 1 2 1` trains data parallel: each process
# has half of the rows. With the mesh `1 2` for `2 1` each has half of W1. Process 0 printed:
#
# ```text
# process 0: 896 rows, W1 (64, 32), loss 0.107
# process 0: 1792 rows, W1 (64, 16), loss 0.101
# ```
#
# </details>
#
# A new project on many machines that is free to choose takes JAX or PyTorch. For one in TensorFlow, begin with
# [Collective-AllReduce](../Collective-AllReduce/), which is the loop of MultiWorker above.

# %% [markdown]
# ## Exercises
# **1. Unequal shares.** ★★☆ Two replicas have 20 and 12 examples, and the all-reduce is a `"SUM"`.
# Which loss must a replica differentiate, so that the gradient is that of one device with all 32?
#
# <details><summary>Hint</summary>
#
# Each example must count 1/32, wherever it is. (TensorFlow has `tf.nn.compute_average_loss` for
# this.)
#
# </details>


# %% jupyter={"source_hidden": true}
def summed_gradient(strategy, shares, loss_of):
    """The gradient by W1, summed over the replicas; replica k has shares[k] examples."""
    w = training.make_variables(strategy)
    parts = np.split(np.arange(32), np.cumsum(shares)[:-1])
    part = strategy.experimental_distribute_values_from_function(
        lambda replica: tf.constant(parts[replica.replica_id_in_sync_group])
    )

    def gradient(rows):
        x, y = tf.gather(training.x, rows), tf.gather(training.y, rows)
        with tf.GradientTape() as tape:
            row_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=y, logits=course.outputs(w, x)
            )
            loss = loss_of(row_losses, 32)
        g = tape.gradient(loss, w[0])
        return tf.distribute.get_replica_context().all_reduce("SUM", g)

    means = tf.function(lambda: strategy.run(gradient, (part,)))()
    return strategy.experimental_local_results(means)[0].numpy()


@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    loss = answer(tf.constant([1.0, 2.0, 3.0]), 32)
    if loss.shape.rank != 0:
        return "the loss of a replica is one number"
    right = summed_gradient(one_device, [32], lambda losses, size: tf.reduce_mean(losses))
    found = summed_gradient(mirrored, [20, 12], answer)
    if np.allclose(found, right, atol=1e-6):
        if not np.isclose(float(answer(tf.constant([1.0, 2.0]), 6)), 0.5):
            return "right for 32 examples; with 6 each must count 1/6: use global_batch"
        return None
    size = np.linalg.norm(found) / np.linalg.norm(right)
    if np.isclose(float(loss), 2):
        return "the sum of two means is %.1f times as long as the gradient of one device" % size
    if np.isclose(float(loss), 1):
        return "each replica counts half, so an example of the smaller share counts more"
    if np.isclose(float(loss), 6):
        return "that is the sum over all examples: %.0f times the mean" % size
    return "its length is %.2f of that of one device; let each example count 1/32" % size


# %%
# Your answer to exercise 1
def answer_1(row_losses, global_batch):
    """Returns a replica's loss. row_losses: one for each of its examples; global_batch: 32."""
    raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_1(row_losses, global_batch):
#     return tf.reduce_sum(row_losses) / global_batch
#
#
# assert check_1(answer_1)
# ```
# </details>

# %% [markdown]
# **2. Batches on paper.** ★☆☆ MultiWorkerMirroredStrategy has 4 workers with 2 GPUs each. How many
# examples are in one update if `dataset.batch(256)` goes through `experimental_distribute_dataset`,
# and how many with `distribute_datasets_from_function`? And how many of 64,000 examples are read in
# an epoch, if each worker calls `.shard(4, k)` and the policy is AUTO?
#
# <details><summary>Hint</summary>
#
# The first takes the batch size of all together. AUTO divides once more by the number of workers.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if np.size(answer) != 3:
        return "give three numbers"
    dataset, function, read = answer
    if dataset in (1024, 2048):
        return "experimental_distribute_dataset divides the batch: 256 examples for all together"
    if dataset == 32:
        return "32 examples are those of one replica; an update has those of all"
    if dataset != 256:
        return "the first number is the batch size that you wrote"
    if function == 1024:
        return "each replica takes a batch of its own, and there are 8 of them"
    if function != 2048:
        return "with a function each of the 8 replicas gets 256 examples"
    if read == 64_000:
        return "the dataset is sharded twice: by your code and by AUTO"
    if read == 4_000:
        return "that is one worker; the four read different examples"
    if read != 16_000:
        return "each worker keeps a fourth of its fourth, and there are four workers"


# %%
# Your answer to exercise 2: examples, examples, examples
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = 256, 8 * 256, 64_000 // 4
#
# assert check_2(answer_2)
# ```
#
# If you change from one way to the other, the batch is 8 times as large, and needs another learning
# rate.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - TensorFlow's guides [Distributed training](https://www.tensorflow.org/guide/distributed_training)
#   and [Distributed input](https://www.tensorflow.org/tutorials/distribute/input).
# - [Parameter-Server-Strategy](../Parameter-Server-Strategy/) and
#   [Collective-AllReduce](../Collective-AllReduce/): complete scripts, with checkpoints and restarts.
# - Keras' guide [Multi-device distribution](https://keras.io/guides/distribution/).
#
# **Elsewhere:** the mirrored strategies are DDP in PyTorch, and a sharded batch in JAX.
#
# Next, only if you keep TensorFlow 1 code: [Inside-a-Running-Worker](Inside-a-Running-Worker.ipynb).
