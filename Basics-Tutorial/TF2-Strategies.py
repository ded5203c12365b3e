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
# So far you placed variables, started servers and exchanged gradients by hand. In TensorFlow 2 one
# object, the *strategy*, does this. Here the same training loop runs under four of them.
#
# After this notebook you can:
# - write one training step that runs on one device, on several, and in several processes;
# - say for each strategy where `w` lives, who computes, and how gradients meet;
# - tell when synchronous training equals training on one device, and when it does not;
# - predict what a strategy does when a worker dies;
# - name the algorithm of this course behind each strategy.
#
# **Before it:** [Data-and-Model-Parallelism](Data-and-Model-Parallelism.ipynb),
# [Ring-AllReduce](Ring-AllReduce.ipynb). **Time:** 90 minutes.

# %% [markdown]
# ## Four answers to the same questions
# A *replica* is one copy of the training step. Usually each device has one. A strategy decides
# three things: on which devices the replicas run, where the variables live, and how the replicas
# combine their gradients.
#
# ![Four strategies. OneDevice: one process, one device with w. Mirrored: one process, two devices, each with a copy of w and a gradient, joined by an all-reduce. MultiWorkerMirrored: the same with a process for each device. ParameterServer: a coordinator schedules updates on two worker processes, which pull w from a ps and push to it.](../docs/figures/strategies.svg)
#
# The next cells are folded, as in every notebook. One thing is different: this notebook has a
# set-up of its own. The set-up of the others calls `tf.disable_v2_behavior()`, which gives you
# graphs and sessions. Strategies need TensorFlow 2 as Keras uses it: operations run at once, and
# `tf.function` turns a Python function into a graph.

# %% jupyter={"source_hidden": true}
# The set-up of this notebook: as in the others, but TensorFlow 2's behaviour stays on.
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same results on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import io
import tempfile
import time
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import display

tf.get_logger().setLevel("ERROR")
tf.config.set_logical_device_configuration(  # two devices out of one processor
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

HERE = globals().get("HERE", os.getcwd())
folder = tempfile.TemporaryDirectory()  # what this notebook writes goes there
os.chdir(folder.name)

BLUE, ORANGE, PURPLE, GREEN, GRAY, RED = (
    "#0969da", "#bc4c00", "#8250df", "#1a7f37", "#818b98", "#cf222e")  # workers 0, 1, 2, ...
plt.rcParams.update({
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, PURPLE, GREEN, RED, GRAY]),
    "legend.frameon": False, "figure.figsize": (7, 3)})

def show(figure, description):
    """Shows a figure at 150 dpi, with a description for those who cannot see it."""
    stored = io.BytesIO()
    figure.savefig(stored, format="png", dpi=150, bbox_inches="tight")
    plt.close(figure)
    size = {"width": round(100 * figure.get_figwidth()), "alt": description}
    display({"image/png": stored.getvalue(), "text/plain": description}, raw=True,
            metadata={"image/png": size})

# %% jupyter={"source_hidden": true}
# region: cluster -- the same in each notebook: free ports, and processes that end with this one
import json
import pathlib
import socket
import subprocess
import sys

held = []  # sockets that keep the ports of our clusters until the kernel ends

def new_cluster(**counts):
    """{job: addresses} at free ports: new_cluster(ps=1, worker=2)."""
    cluster = {}
    for job, count in counts.items():
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", 0))
        cluster[job] = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
        held.extend(sockets)
    return cluster

RUN = """if True:
    import os, runpy, sys, threading
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")"""

def start(file, cluster, job, index=0, *arguments):
    """Starts a Python file as a task of a cluster, which TF_CONFIG names.

    The process ends with its standard input: by stop(), or when the kernel ends, however that
    happens. What it prints goes to the file job-index.log.
    """
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    with open("%s-%d.log" % (job, index), "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", RUN, file, *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=log, stderr=log, env={**os.environ, "TF_CONFIG": json.dumps(config)})
    process.log = pathlib.Path(log.name).absolute()
    return process

def finish(process, seconds=60):
    """Waits until a process has ended, and returns what it printed."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = "none after %d s" % seconds
    printed = process.log.read_text()
    assert code == 0, "%s: exit code %s\n%s" % (process.log.stem, code, printed[-2000:])
    return printed

def stop(*processes):
    """Ends processes that still run."""
    for process in processes:
        process.stdin.close()
        process.wait(10)
# endregion: cluster

# %% jupyter={"source_hidden": true}
# %%writefile digits.py
# region: digits -- the same in each notebook: handwritten digits, and a network 64 - 32 - 10
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

def load():
    """1,437 rows for training and 360 for the test: x [rows, 64] from 0 to 1, y [rows]; twice."""
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order].astype("int32")
    return x[:-360], y[:-360], x[-360:], y[-360:]

def first_values(seed=0):
    """Where training begins: the weights and biases of two layers, 2,410 numbers in all."""
    random = np.random.RandomState(seed)
    layers = [random.normal(0, (2 / 64) ** 0.5, [64, 32]), np.zeros(32),
              random.normal(0, (2 / 32) ** 0.5, [32, 10]), np.zeros(10)]
    return [layer.astype("float32") for layer in layers]

def variables(name="w", seed=0, get_variable=tf.get_variable):
    """The four variables name_0 to name_3."""
    return [get_variable("%s_%d" % (name, i), initializer=value)
            for i, value in enumerate(first_values(seed))]

def outputs(w, x):
    """A score for each of the ten digits: [rows, 10]."""
    return tf.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]

def loss(w, x, y):
    """The mean cross-entropy of these rows."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs(w, x)))

def accuracy(w, x, y):
    """The share of rows whose digit has the highest score."""
    right = tf.equal(tf.argmax(outputs(w, x), 1, output_type=tf.int32), y)
    return tf.reduce_mean(tf.cast(right, tf.float32))

def batch(x, y, number, worker=0, size=32):
    """Mini-batch `number` of a worker: rows drawn by (worker, number), the same in each run."""
    rows = tf.random.stateless_uniform(
        [size], tf.stack([tf.cast(worker, tf.int64), tf.cast(number, tf.int64)]),
        0, len(x), tf.int32)
    return tf.gather(x, rows), tf.gather(y, rows)
# endregion: digits

# %% [markdown]
# This machine may have no GPU. So the set-up divides its processor into two *logical devices*,
# `/cpu:0` and `/cpu:1`. They show where everything is placed, but they make nothing faster.
#
# ## One step for all strategies
# All strategies get the same mini-batch of 32 rows, number `t`. Replica `k` of `n` takes every
# `n`-th row of it. With the gradients $g_k$ of the replicas, each of them makes the same step:
#
# $$\bar g = \frac{1}{n} \sum_{k=0}^{n-1} g_k(w), \qquad w \leftarrow w - \mathrm{lr} \cdot \bar g$$
#
# The code stands in a file, because processes other than this notebook will use it, too. Three
# calls make it independent of the strategy:
# - `strategy.scope()`: variables made here are placed, and copied, as the strategy wants;
# - `strategy.run(step, ...)`: each replica runs `step`;
# - `replica.all_reduce`: every replica gets the mean of what all have.
#
# A `tf.GradientTape` records the computation of the loss, and then gives its gradient.

# %%
# %%writefile training.py
import tensorflow as tf
import digits

x, y, x_test, y_test = digits.load()
LR, BATCH = 0.2, 32

def make_variables(strategy):
    with strategy.scope():
        return [tf.Variable(value) for value in digits.first_values()]

def step(w, t):
    """Update t, as one replica makes it."""
    replica = tf.distribute.get_replica_context()
    k, n = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
    rows_x, rows_y = digits.batch(x, y, t, size=BATCH)
    with tf.GradientTape() as tape:
        loss = digits.loss(w, rows_x[k::n], rows_y[k::n])
    g = tape.gradient(loss, w)
    mean = replica.all_reduce("MEAN", g)
    for v, d in zip(w, mean):
        v.assign_sub(LR * d)
    return loss

def make_update(strategy, w):
    @tf.function
    def update(t):
        losses = strategy.run(step, (w, t))  # one loss for each replica
        return strategy.reduce("MEAN", losses, axis=None)
    return update

def train(strategy, updates=300):
    """The variables after so many updates, and the loss of each update."""
    w = make_variables(strategy)
    update = make_update(strategy, w)
    return w, [float(update(tf.constant(t))) for t in range(updates)]

# %% [markdown]
# ## OneDeviceStrategy
# The simplest strategy names a device, and does nothing else. It is our reference. Because of it,
# the same script runs on one device and on many.

# %%
import digits
import training

one_device = tf.distribute.OneDeviceStrategy("/cpu:0")
w, losses = training.train(one_device)
all_losses = {"OneDevice": losses}
accuracy = float(digits.accuracy(w, training.x_test, training.y_test))
print("w is a %s; test accuracy after 300 updates: %.1f%%" % (type(w[0]).__name__, 100 * accuracy))
assert accuracy > 0.95

# %% [markdown]
# ## MirroredStrategy
# Two devices of one process. Each has a copy of `w`, a *mirror*, and computes a gradient on 16 of
# the 32 rows. The all-reduce gives both the mean.
#
# **Predict:** how far do the losses of the two devices together lie from those of one device? Do
# the two copies of `w` stay equal, although nobody ever compares them?

# %%
mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
w, losses = training.train(mirrored)
all_losses["Mirrored"] = losses
copies = [mirrored.experimental_local_results(v) for v in w]
equal = all(np.array_equal(first, second) for first, second in copies)
difference = np.abs(np.subtract(losses, all_losses["OneDevice"])).max()

print("w[0] is a", type(w[0]).__name__)
print("its copies are on:", *[copy.device[-5:] for copy in copies[0]])
print("the copies are equal, bit for bit:", equal)
print("the 300 losses differ from those of one device by less than 1e-5:", bool(difference < 1e-5))

# %% [markdown]
# <details><summary>Answer</summary>
#
# They differ by rounding only. The loss is a mean over rows, and the mean of two means of 16 rows
# is the mean of all 32. The copies begin with the same values and move by the same mean. So they
# stay equal, and need no comparison.
#
# </details>

# %% jupyter={"source_hidden": true}
assert equal and difference < 1e-5

# %% [markdown]
# ## When two halves are not one whole
# "Synchronous training is training on one device with the union of the mini-batches." You will
# often read this sentence. It holds under two conditions:
# - **Equal shares.** A plain mean counts each *replica* once. If one has 20 rows and the other 12,
#   a row of the smaller share counts more.
# - **Independent rows.** Batch normalisation computes the mean and the variance of the rows that it
#   sees. A replica sees only its own.
#
# `mean_gradient` computes the gradient once, for shares of your choice, with or without a
# `BatchNormalization` layer of Keras. Its option `synchronized=True` takes the mean and the
# variance over all replicas.
#
# **Predict:** which of the five rows below do not give the gradient of one device? Is the error
# small, like rounding, or large?

# %%
def mean_gradient(strategy, shares, normalisation=None):
    """The gradient by w[0], averaged over the replicas; replica k has shares[k] rows."""
    with strategy.scope():
        w = training.make_variables(strategy)
        if normalisation:
            normalise = keras.layers.BatchNormalization(
                synchronized=normalisation == "synchronized")
            normalise.build([None, 32])
        else:
            normalise = lambda hidden, training: hidden
    rows = np.split(np.arange(32), np.cumsum(shares)[:-1])
    rows_of_replica = strategy.experimental_distribute_values_from_function(
        lambda replica: tf.constant(rows[replica.replica_id_in_sync_group]))

    def gradient(rows):
        x, y = tf.gather(training.x, rows), tf.gather(training.y, rows)
        with tf.GradientTape() as tape:
            hidden = normalise(x @ w[0] + w[1], training=True)
            scores = tf.nn.relu(hidden) @ w[2] + w[3]
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))
        return tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, w[0]))

    means = tf.function(lambda: strategy.run(gradient, (rows_of_replica,)))()
    return strategy.experimental_local_results(means)[0].numpy()

print("%-22s %-10s error of the gradient" % ("batch normalisation", "shares"))
errors = []
alone = {kind: mean_gradient(one_device, [32], kind) for kind in (None, "per replica")}
alone["synchronized"] = alone["per replica"]  # one replica has nothing to synchronise
for normalisation, shares in [(None, [16, 16]), (None, [20, 12]), ("per replica", [16, 16]),
                              ("synchronized", [16, 16]), ("synchronized", [20, 12])]:
    error = np.linalg.norm(mean_gradient(mirrored, shares, normalisation) - alone[normalisation])
    errors.append(error / np.linalg.norm(alone[normalisation]))
    told = "%.0f%%" % (100 * errors[-1]) if errors[-1] > 1e-5 else "only rounding"
    print("%-22s %-10s %s" % (normalisation or "none", "%d + %d" % tuple(shares), told))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Unequal shares and batch normalisation per replica change the gradient a lot, not by rounding.
# Synchronised batch normalisation repairs the second, for equal shares. Exercise 2 repairs the
# first.
#
# </details>

# %% jupyter={"source_hidden": true}
assert [error > 0.1 for error in errors] == [False, True, True, False, True]

# %% [markdown]
# Neither is rare. The last batch of an epoch often has an odd number of rows: 1,437 rows in batches
# of 32 leave 29, which is 15 + 14. Batch normalisation per replica is Keras' default. Such training still
# learns. But it is another computation than that of one device, so do not expect equal losses.
#
# ## MultiWorkerMirroredStrategy
# The same, with a process for each replica. All processes run the same program. The strategy reads
# `TF_CONFIG`, starts a server in each process, and connects them. There is no ps and no
# `ClusterCoordinator`. But one process has an extra duty: worker 0 leads TensorFlow's *coordination
# service*, which notices who has joined and who has died.
#
# ![Three workers, no ps. Each has a copy of w and computes a gradient on a mini-batch of its own. The all-reduce gives every worker the mean of the three, and each applies it to its own copy, so that all copies stay the same.](../docs/figures/collective.svg)
#
# This is the whole program of a worker. It trains as above, notes what works under its strategy
# (`checks`, the next cell, comes to this later), and trains on until its all-reduce fails.

# %% jupyter={"source_hidden": true}
# %%writefile checks.py
"""What works under a strategy: each check says in a word what it found."""
import tempfile
import keras
import numpy as np
import tensorflow as tf
import digits
import training

def own_loop(strategy, call):
    update = training.make_update(strategy, training.make_variables(strategy))
    losses = [float(call(update, tf.constant(t))) for t in range(20)]
    return "learns" if losses[-1] < losses[0] else "fails"

def keras_optimizer(strategy, call):
    with strategy.scope():
        w = training.make_variables(strategy)
        optimizer = keras.optimizers.SGD(0.2)
        optimizer.build(w)
    def step():
        with tf.GradientTape() as tape:
            loss = digits.loss(w, training.x, training.y)
        optimizer.apply(tape.gradient(loss, w))
        return loss
    update = tf.function(lambda: strategy.reduce("MEAN", strategy.run(step), axis=None))
    return "learns" if call(update) > call(update) else "fails"

def keras_fit(strategy, call):
    with strategy.scope():
        model = keras.Sequential([keras.Input([64]), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.2), loss)
    losses = model.fit(training.x, training.y, batch_size=128, epochs=2, verbose=0).history["loss"]
    return "learns" if losses[1] < losses[0] else "fails"

def distributed_dataset(strategy, call):
    data = tf.data.Dataset.from_tensor_slices(training.x).batch(64)
    batch = next(iter(strategy.experimental_distribute_dataset(data)))
    rows = lambda part: tf.cast(tf.shape(part)[0], tf.float32)
    count = tf.function(lambda: strategy.reduce("MEAN", strategy.run(rows, (batch,)), axis=None))
    return "%d of 64 rows" % count()

def checkpoint(strategy, call):
    """Can a plain program read what was saved under the strategy?"""
    w, plain = training.make_variables(strategy), [tf.Variable(0 * v) for v in digits.first_values()]
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(w=w).save(folder + "/checkpoint")
        tf.train.Checkpoint(w=plain).restore(saved).assert_consumed()
    return "readable" if all(map(np.array_equal, plain, digits.first_values())) else "differs"

def outside_scope(strategy, call):
    """Each replica adds 1 to a variable that was made without strategy.scope()."""
    v = tf.Variable(0.0)
    def add_one():
        v.assign_add(1.0)
    call(tf.function(lambda: strategy.run(add_one)))
    return "v = %d" % v

ALL = [own_loop, keras_optimizer, keras_fit, distributed_dataset, checkpoint, outside_scope]

def attempt_all(strategy, call=lambda update, *values: update(*values)):
    """{check: what it found, or the name of the error}; call: how an update is run."""
    found = {}
    for check in ALL:
        try:
            found[check.__name__] = check(strategy, call)
        except Exception as error:  # whichever it is: the table names it
            found[check.__name__] = type(error).__name__
    return found

# %%
# %%writefile worker.py
import json
import os
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts the server
import checks
import training

w, losses = training.train(strategy)
result = {"losses": losses, "copies": len(strategy.experimental_local_results(w[0])),
          "w": [v.numpy().tolist() for v in w], "checks": checks.attempt_all(strategy)}
with open("worker-%d.json" % strategy.cluster_resolver.task_id, "w") as file:
    json.dump(result, file)

update = training.make_update(strategy, w)
print("trains on", flush=True)
try:
    for t in range(300, 1_000_000):
        update(tf.constant(t))
except tf.errors.OpError as error:
    print("the all-reduce failed:", type(error).__name__, flush=True)
    os._exit(0)  # without the lost worker TensorFlow cannot end in an orderly way

# %%
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
difference = np.abs(np.subtract(losses, all_losses["OneDevice"])).max()
equal = results[0]["w"] == results[1]["w"]

print("copies of w in each process:", [result["copies"] for result in results])
print("the two workers have the same w, bit for bit:", equal)
print("the 300 losses differ from those of one device by less than 1e-5:", bool(difference < 1e-5))
assert equal and difference < 1e-5

# %% [markdown]
# The same step, the same losses: only the number of processes has changed. A worker sees its own
# copy of `w`, and cannot see the other's. The workers exchange `w` once, at the beginning. Then
# only gradients travel, and the losses for their mean.
#
# Both workers train on in the background.
#
# **Predict:** we kill worker 1. What does worker 0 do: train on alone, wait for ever, or fail?

# %%
workers[1].kill()
print("worker 0:", finish(workers[0]).splitlines()[-1])

# %% [markdown]
# <details><summary>Answer</summary>
#
# It fails, as soon as the connection breaks. The mean of all gradients needs all gradients. Worker
# 1 would fail in the same way if worker 0 had died.
#
# </details>
#
# So the loss of one worker ends the run. You start all of them again, from the last checkpoint:
# [Collective-AllReduce](../Collective-AllReduce/) does it. If a worker does not die but hangs, the
# others wait. That is why its script watches its own progress.
#
# ## ParameterServerStrategy
# This strategy is asynchronous. `w` lives on a ps. The workers run no program of their own: they
# only start a server. A *coordinator*, usually in a process called chief, hands them updates.
#
# ![A chief with a queue of closures. Two workers take closures from it, pull w from two parameter servers, and push updates to them.](../docs/figures/strategy.svg)
#
# The figure shows two servers and closures of K updates; here it is one server and one update.
#
# `schedule` puts an update into a queue and returns at once. A *closure* is such an entry: a
# function and its arguments. A free worker takes the next one. `join` waits until all are done.
# The rest of the program is as before.

# %%
# %%writefile server.py
import tensorflow as tf

task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
tf.distribute.Server(task.cluster_spec(), task.task_type, task.task_id).join()

# %%
# %%writefile chief.py
import json
import tensorflow as tf
import checks
import digits
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

result = {"losses": run_all(range(300)), "device": w[0].device,
          "in sync": strategy.num_replicas_in_sync, "checks": checks.attempt_all(strategy, call)}
with open("chief.json", "w") as file:
    json.dump(result, file)

print("trains on", flush=True)
for t in range(300, 500, 50):
    run_all(range(t, t + 50))
accuracy = float(digits.accuracy([v.numpy() for v in w], training.x_test, training.y_test))
print("500 updates are done; test accuracy above 95%:", accuracy > 0.95, flush=True)

# %% [markdown]
# A worker and a ps need no more than `server.py` does. To save processes, this notebook starts the
# servers of the ps and of worker 0 itself. Worker 1 and the chief are processes of their own.
#
# **Predict:** the chief hands out the same 300 mini-batches, in the same order, all at once. Are
# the losses those of one device again?

# %%
cluster = new_cluster(chief=1, ps=1, worker=2)
here = [tf.distribute.Server(cluster, job_name=job, task_index=0) for job in ("ps", "worker")]
worker_1 = start("server.py", cluster, "worker", 1)
chief = start("chief.py", cluster, "chief")
wait_until_printed("trains on", chief)
result = json.loads(pathlib.Path("chief.json").read_text())
all_losses["ParameterServer"] = losses = result["losses"]
difference = np.abs(np.subtract(losses, all_losses["OneDevice"])).max()

print("w[0] is on", result["device"].split("/replica")[0])
print("replicas in sync:", result["in sync"])
print("the 300 losses differ from those of one device by less than 1e-5:", bool(difference < 1e-5))

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. While worker 0 computes a gradient, worker 1 pushes its own, so `w` has moved meanwhile. The
# gradients are a little stale, as in [Stale-Gradients](Stale-Gradients.ipynb). Which update saw
# which `w` differs from run to run. "Replicas in sync: 1" says that no replica waits for another.
#
# </details>

# %% jupyter={"source_hidden": true}
assert difference > 1e-3 and np.mean(losses[-20:]) < 0.5

# %% [markdown]
# And we kill worker 1 here, too, while the chief hands out 200 further updates.

# %%
worker_1.kill()
print("chief:", finish(chief).splitlines()[-1])

# %% [markdown]
# The coordinator gives the updates of the lost worker to the other one, and the training goes on.
# An update that was half done may be done twice. The chief and the ps must live: the chief has the
# queue, the ps has the only `w`. [Parameter-Server-Strategy](../Parameter-Server-Strategy/) measured
# each of these cases.
#
# ## All losses in one picture
# On the left are the losses of the four strategies. On the right you see how far each of them is
# from the loss of one device.

# %% jupyter={"source_hidden": true} tags=["measured"]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
styles = {"OneDevice": (GRAY, "-", 7), "Mirrored": (BLUE, "-", 3),
          "MultiWorkerMirrored": (ORANGE, ":", 2), "ParameterServer": (GREEN, "-", 1)}
smooth = lambda losses: np.convolve(losses, np.ones(10) / 10, "valid")  # ten updates
for name, (color, line, width) in styles.items():
    losses = np.array(all_losses[name])
    left.plot(np.arange(10, 301), smooth(losses), line, color=color, lw=width, label=name)
    if name != "OneDevice":
        far = np.maximum(np.abs(losses - all_losses["OneDevice"]), 1e-8)
        right.plot(np.arange(10, 301), np.exp(smooth(np.log(far))), line, color=color,
                   lw=max(width, 2), label=name)
left.set(xlabel="updates", ylabel="loss, mean of 10 updates", yscale="log")
left.set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
left.minorticks_off()
right.set(xlabel="updates", ylabel="distance to OneDevice", yscale="log", ylim=(3e-9, 1))
left.legend()
right.legend(loc="center right", bbox_to_anchor=(1, 0.45))
show(figure, "Left: the loss of 300 updates. The curves of OneDevice, Mirrored and "
     "MultiWorkerMirrored lie on each other; that of ParameterServer is close to them. Right: the "
     "distance of each to OneDevice. Both mirrored strategies stay at the size of rounding errors; "
     "ParameterServer is far above them.")

# %% [markdown]
# Three curves are one: the two synchronous strategies make the steps of one device. The fourth,
# which is asynchronous, learns as well, but it takes other steps.
#
# ## What works with what
# Each entry of this table was executed: `checks.py` ran in this notebook, in the workers, and in
# the chief. CentralStorageStrategy is a fifth strategy, still experimental: two devices, and only
# one `w` for both. `own_loop` is the loop of above.

# %%
central = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
import checks

table = {"OneDevice": checks.attempt_all(one_device), "Mirrored": checks.attempt_all(mirrored),
         "CentralStorage": checks.attempt_all(central), "MultiWorker": results[0]["checks"],
         "ParameterServer": result["checks"]}
print(" " * 19, *["%-14s" % name for name in table])
for check in table["OneDevice"]:
    print("%-19s" % check, *["%-14s" % found[check] for found in table.values()])
fits = [column["keras_fit"] for column in table.values()]
assert fits == ["learns"] * 3 + ["ValueError"] * 2, fits

# %% [markdown]
# How to read the rows:
# - **own_loop, keras_optimizer.** Only CentralStorage refuses a loop of your own: two replicas write
#   to one variable, so you must say how their values combine (exercise 3). With an optimizer of
#   Keras the loop works everywhere.
# - **keras_fit.** In TensorFlow 2.21 with Keras 3.15, `fit` learns within one process only. This is
#   a limit of Keras 3, not of the strategies. TensorFlow up to 2.15 contained Keras 2, and documents
#   `fit` with several workers. You can still have Keras 2: install the package `tf_keras`, and set
#   the environment variable `TF_USE_LEGACY_KERAS=1`. With tf_keras 2.21 we saw `fit` learn under
#   both strategies; ParameterServer needed `steps_per_epoch`. This notebook does not repeat that.
# - **distributed_dataset.** The strategy divides each batch of 64. ParameterServer refuses. There
#   each worker makes its own dataset: `coordinator.create_per_worker_dataset`.
# - **outside_scope.** Do not do it. Under Mirrored both replicas add to one variable. Under
#   MultiWorker each process has its own variable, and they drift apart without any warning.
#
# ## Which algorithm is it?
# | strategy | the algorithm | in this course |
# | --- | --- | --- |
# | OneDeviceStrategy | plain SGD | [Non-Distributed-Setup](../Non-Distributed-Setup/) |
# | MirroredStrategy (on TPUs: TPUStrategy) | synchronous SGD over devices, by all-reduce | [Multiple-GPUs-Single-Machine](../Multiple-GPUs-Single-Machine/) |
# | CentralStorageStrategy | the same, with one `w`: the towers of TensorFlow 1 | [Multiple-GPUs-Single-Machine](../Multiple-GPUs-Single-Machine/) |
# | MultiWorkerMirroredStrategy | synchronous SGD over processes, by all-reduce | [Collective-AllReduce](../Collective-AllReduce/), [Ring-AllReduce](../Ring-AllReduce/) |
# | ParameterServerStrategy | asynchronous SGD without locks, as HogWild | [Parameter-Server-Strategy](../Parameter-Server-Strategy/), [HogWild](../HogWild/) |
# | none | local steps (DOWNPOUR, SAGN), rates by staleness (DynSGD), elastic averaging, backup workers | write it yourself, as the examples do; exercise 4 |

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. Sum or mean.** ★☆☆ Change the all-reduce of a step to `"SUM"`. How far does one update move
# `w` on two devices, compared with the mean? With which learning rate would both be equal?
#
# <details><summary>Hint</summary>
#
# Copy `step`, give it the operation as an argument, and compare `w` before and after.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def movement(operation):
#     w = training.make_variables(mirrored)
#     def step():
#         with tf.GradientTape() as tape:
#             loss = digits.loss(w, training.x[:32], training.y[:32])
#         g = tf.distribute.get_replica_context().all_reduce(operation, tape.gradient(loss, w))
#         for v, d in zip(w, g):
#             v.assign_sub(training.LR * d)
#     tf.function(lambda: mirrored.run(step))()
#     return w[0].numpy() - digits.first_values()[0]
#
# # Twice as far, for two replicas: as if the learning rate were doubled. Halve it for the sum.
# assert np.allclose(movement("SUM"), 2 * movement("MEAN"), atol=1e-6)
# ```
#
# </details>

# %% [markdown]
# **2. Unequal shares.** ★★☆ Repair the gradient for shares of 20 and 12 rows, without batch
# normalisation: it must equal that of one device.
#
# <details><summary>Hint</summary>
#
# Each row must count 1/32. Divide the *sum* of the losses of a replica by 32, and let the
# all-reduce give the sum. `tf.nn.compute_average_loss` of TensorFlow does the division.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def gradient_of_rows(strategy, shares):
#     w = training.make_variables(strategy)
#     parts = np.split(np.arange(32), np.cumsum(shares)[:-1])
#     part = strategy.experimental_distribute_values_from_function(
#         lambda replica: tf.constant(parts[replica.replica_id_in_sync_group]))
#     def gradient(rows):
#         x, y = tf.gather(training.x, rows), tf.gather(training.y, rows)
#         with tf.GradientTape() as tape:
#             of_each_row = tf.nn.sparse_softmax_cross_entropy_with_logits(
#                 labels=y, logits=digits.outputs(w, x))
#             loss = tf.nn.compute_average_loss(of_each_row, global_batch_size=32)
#         g = tape.gradient(loss, w[0])
#         return tf.distribute.get_replica_context().all_reduce("SUM", g)
#     means = tf.function(lambda: strategy.run(gradient, (part,)))()
#     return strategy.experimental_local_results(means)[0].numpy()
#
# assert np.allclose(gradient_of_rows(mirrored, [20, 12]),
#                    gradient_of_rows(one_device, [32]), atol=1e-6)
# ```
#
# </details>

# %% [markdown]
# **3. One variable for two replicas.** ★★☆ `training.train(central)` raises an error. Read it, and
# make the variables so that it trains. Why does MirroredStrategy not ask this question?
#
# <details><summary>Hint</summary>
#
# `tf.Variable` has an argument `aggregation`. Both replicas subtract the same mean from `w`.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with central.scope():
#     w = [tf.Variable(value, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
#          for value in digits.first_values()]
# update = training.make_update(central, w)
# losses = [float(update(tf.constant(t))) for t in range(50)]
# # One replica may speak for both, because both subtract the same. With SUM, w would move twice.
# # Under MirroredStrategy each replica writes to its own copy, so there is nothing to combine.
# assert np.allclose(losses, all_losses["OneDevice"][:50], atol=1e-5)
# ```
#
# </details>

# %% [markdown]
# **4. Local SGD.** ★★★ No strategy offers it, but you can build it on MirroredStrategy. Each replica
# makes ten steps alone, on mini-batches of its own, and then both take the mean of their `w`. Show
# that the copies differ in between, and that the training learns.
#
# <details><summary>Hint</summary>
#
# Without an all-reduce, `v.assign_sub` in a replica changes that replica's copy only. For the mean:
# `v.assign(replica.all_reduce("MEAN", v.read_value()))`. `digits.batch` has an argument `worker`.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# w = training.make_variables(mirrored)
#
# def local_step(t):
#     k = tf.distribute.get_replica_context().replica_id_in_sync_group
#     with tf.GradientTape() as tape:
#         loss = digits.loss(w, *digits.batch(training.x, training.y, t, worker=k))
#     for v, d in zip(w, tape.gradient(loss, w)):
#         v.assign_sub(training.LR * d)
#
# def average():
#     replica = tf.distribute.get_replica_context()
#     for v in w:
#         v.assign(replica.all_reduce("MEAN", v.read_value()))
#
# def copies_are_equal():
#     return np.array_equal(*mirrored.experimental_local_results(w[0]))
#
# ten_steps = tf.function(lambda t: [mirrored.run(local_step, (t + i,)) for i in range(10)])
# mean_of_w = tf.function(lambda: mirrored.run(average))
# for t in range(0, 300, 10):
#     ten_steps(tf.constant(t))
#     assert not copies_are_equal()
#     mean_of_w()
#     assert copies_are_equal()
# assert digits.accuracy(w, training.x_test, training.y_test) > 0.95
# ```
#
# </details>

# %%
# Stop what this notebook started.
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - TensorFlow's guide [Distributed training](https://www.tensorflow.org/guide/distributed_training),
#   and the tutorial [Parameter server
#   training](https://www.tensorflow.org/tutorials/distribute/parameter_server_training).
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu).
# - [Collective-AllReduce](../Collective-AllReduce/) and
#   [Parameter-Server-Strategy](../Parameter-Server-Strategy/): the last two strategies as complete
#   scripts, with checkpoints and restarts.
#
# Next: [SGD-by-Experiment](SGD-by-Experiment.ipynb), how the batch and the learning rate go
# together.
