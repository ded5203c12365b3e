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
#
# TensorFlow 2 hides servers, sessions and placement behind a *strategy*: one object says who
# computes, where the variables live, and how gradients meet. Here the same small model is trained
# under five of them, by the same loop.
#
# After this notebook you can:
# - write a training loop that runs under each strategy, and say what each does with `w`;
# - train over several processes, with and without a parameter server;
# - say which strategy works with what in TensorFlow 2.21, because each cell of the table was
#   executed.
#
# 25 minutes. Before it: [Hooks](Hooks.ipynb) and [Hooks-with-Files](Hooks-with-Files.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # nothing else silences oneDNN's notice
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_GRPC_REUSE_PORT"] = "1"  # a server may listen on a port that we hold for it
import inspect, json, select, socket, subprocess, sys, tempfile  # noqa: E401
CHILD = """import json, os, sys, tempfile, numpy as np, tensorflow as tf
tf.get_logger().setLevel("FATAL")
def answer(value):
    print(json.dumps(value), flush=True)
for line in sys.stdin:  # executes what it is sent; at the end of its input it ends
    exec(json.loads(line), globals())
os._exit(0)"""
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
children = [subprocess.Popen([sys.executable, "-c", CHILD], text=True, **pipes) for _ in range(4)]

# %%
import numpy as np
import tensorflow as tf
tf.get_logger().setLevel("FATAL")  # what fails below is shown by the notebook itself
tf.config.set_logical_device_configuration(  # two names for one CPU: enough to see how it works
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

def digits():
    from sklearn.datasets import load_digits
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype(np.float32), y.astype(np.int32)

x, y = digits()

# %% [markdown]
# ## One model, one loop
# One layer, `w = [weights, biases]`. Update `t` takes 64 rows of the data, the same ones whatever
# the strategy; each of `n` replicas takes every `n`-th of them, so replica `k` has `64 / n`.
#
# ```
# replica k   g_k(w) on its rows
# all-reduce  mean = (g_1 + ... + g_n) / n
# each        w <- w - lr * mean, on its own copy of w if it has one
# ```

# %%
def loss_at(w, rows):
    scores = tf.matmul(tf.gather(x, rows), w[0]) + w[1]
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(y, rows), scores)
    return tf.reduce_mean(loss)

def replica_step(w, t, lr=0.5):
    replica = tf.distribute.get_replica_context()
    k, n = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
    with tf.GradientTape() as tape:
        loss = loss_at(w, (64 * t + k + n * tf.range(64 // n)) % len(x))
    for v, d in zip(w, replica.all_reduce("MEAN", tape.gradient(loss, w))):
        v.assign_sub(lr * d)
    return loss

# %%
def parameters(strategy):
    own = tf.VariableAggregation.ONLY_FIRST_REPLICA  # all set w to the same: one may speak for all
    with strategy.scope():
        return [tf.Variable(tf.zeros(shape), aggregation=own) for shape in ([64, 10], [10])]

def everywhere(strategy, step):
    @tf.function
    def update(*arguments):  # step on each replica, as one graph; then the mean of what they return
        return strategy.reduce("MEAN", strategy.run(step, arguments), axis=None)
    return update

def train(strategy):
    w = parameters(strategy)
    update = everywhere(strategy, lambda t: replica_step(w, t))
    return w, [float(update(tf.constant(t))) for t in range(60)]

# %% [markdown]
# ## OneDeviceStrategy
# **Predict:** one device makes 60 updates on 64 rows each, from `w = 0`. What is the first loss?

# %%
one = tf.distribute.OneDeviceStrategy("/cpu:0")
w_one, losses_one = train(one)
print("w is a", type(w_one[0]).__name__, "on", w_one[0].device[-5:])
print("the first loss is log(10):", np.isclose(losses_one[0], np.log(10)))
print("the last is below 1:", losses_one[-1] < 1)
assert losses_one[-1] < 1

# %% [markdown]
# Each of ten digits is as likely as the others. The strategy did nothing but name the device: so
# the same script runs with and without others.
#
# ## MirroredStrategy, CentralStorageStrategy
# Two replicas on two devices of one process. Mirrored: each has a `w` of its own. Central: there
# is one, on the device that the second argument names, a parameter server within the process.
#
# **Predict:** each replica takes 32 of the 64 rows. Are the losses those of one device?

# %%
mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
central = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
for strategy in mirrored, central:
    w, losses = train(strategy)
    copies = strategy.experimental_local_results(w[0])
    print("%d replicas; w is a %s on %s" % (
        strategy.num_replicas_in_sync, type(w[0]).__name__, [v.device[-5:] for v in copies]))
    print("    the losses of one device:", np.allclose(losses, losses_one, atol=1e-5),
          "   all copies are equal:", all(np.array_equal(v, copies[0]) for v in copies))
    assert np.allclose(losses, losses_one, atol=1e-5)

# %% [markdown]
# The mean of two means of 32 is the mean of 64: synchronous training is one device on the union of
# the mini-batches ([Multiple-GPUs-Single-Machine](../Multiple-GPUs-Single-Machine/)). The copies
# stay equal because equal steps move them.
#
# ## MultiWorkerMirroredStrategy
# MirroredStrategy over processes. All run the same program, and `TF_CONFIG` tells each who it is;
# there is no ps and no coordinator ([Collective-AllReduce](../Collective-AllReduce/)). Two of our
# child processes are its workers: they get the functions of above as text, and answer with a line.
#
# **Predict:** are its losses those of one device? How many copies of `w` does a worker see?

# %%
held = [socket.socket() for _ in range(5)]
for s in held:  # the system chooses free ports, and we hold them to the end
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))
addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in held]

def ask(some, text):
    """Each child executes the text and answers with a line of JSON."""
    for child in some:
        print(json.dumps(text), file=child.stdin, flush=True)
    assert all(select.select([child.stdout], [], [], 40)[0] for child in some), "no answer"
    return [json.loads(child.stdout.readline()) for child in some]

# %%
functions = digits, parameters, loss_at, replica_step, everywhere, train
source = "\n".join(inspect.getsource(f) for f in functions) + "\nx, y = digits()"
workers = children[:2]
for k, child in enumerate(workers):
    config = {"cluster": {"worker": addresses[:2]}, "task": {"type": "worker", "index": k}}
    text = "os.environ['TF_CONFIG'] = %r\n" % json.dumps(config)
    text += "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n" + source
    print(json.dumps(text), file=child.stdin, flush=True)
for k, (copies, losses) in enumerate(ask(workers, """w, losses = train(strategy)
answer([len(strategy.experimental_local_results(w[0])), losses])""")):
    print("worker %d: %d copy of w here, the losses of one device: %s" % (
        k, copies, np.allclose(losses, losses_one, atol=1e-5)))

# %% [markdown]
# Each has its own `w` and cannot see the other's. They exchange the first value of `w`, then
# gradients, and the losses for their mean; never `w` again.
#
# ## What works with what
# A function for each line of a table. It gets the strategy, and `call`, which calls an update
# under it, and it returns what it found; `attempt` turns an error into its name. First, what the
# notebook has done already, and Keras' `fit`.
#
# **Predict:** under which of the five does `fit` work?

# %%
def attempt(line, strategy, call):
    try:
        return str(line(strategy, call))
    except Exception as error:  # whichever: the table names it
        return type(error).__name__

def directly(update, *arguments):
    return update(*map(tf.constant, arguments))

def loop_of_ones_own(strategy, call):
    w = parameters(strategy)
    update = everywhere(strategy, lambda t: replica_step(w, t))
    losses = [float(call(update, t)) for t in range(20)]
    return "learns" if losses[-1] < losses[0] - 0.5 else "fails"

# %%
def keras_fit(strategy, call):
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([64]), tf.keras.layers.Dense(10)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = loss_at(model.get_weights(), tf.range(len(x)))
    model.fit(x, y, batch_size=64, verbose=0)
    return "learns" if loss_at(model.get_weights(), tf.range(len(x))) < before else "fails"

def rows_of_a_batch_of_64(strategy, call):
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
    batch = next(iter(strategy.experimental_distribute_dataset(data)))
    return "%d each" % everywhere(strategy, lambda x, y: tf.reduce_sum(x[:, 0] * 0 + 1))(*batch)

def with_v_made_outside_the_scope(strategy, call):
    return each_replica_adds_1(strategy, call, v=tf.Variable(0.0))

# %%
def own_loop_with_keras_optimizer(strategy, call):
    with strategy.scope():
        w, optimizer = parameters(strategy), tf.keras.optimizers.SGD(0.1)
        optimizer.build(w)
    def step():
        with tf.GradientTape() as tape:
            loss = loss_at(w, tf.range(len(x)))
        optimizer.apply(tape.gradient(loss, w))
        return loss
    update = everywhere(strategy, step)
    return "learns" if call(update) > call(update) else "fails"

def with_aggregation_sum(strategy, call):
    return each_replica_adds_1(strategy, call, aggregation=tf.VariableAggregation.SUM)

# %%
def checkpoint_to_plain_variables(strategy, call):
    w, plain = parameters(strategy), [tf.Variable(tf.zeros([64, 10])), tf.Variable(tf.zeros([10]))]
    w[1].assign(np.arange(10.0))
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(w=w).save(folder + "/checkpoint")
        tf.train.Checkpoint(w=plain).restore(saved).assert_consumed()
    return "equal" if np.array_equal(plain[1].numpy(), np.arange(10.0)) else "differs"

def variable_made_in_a_replica(strategy, call):
    made = []
    def step():
        made.append(made[0] if made else tf.Variable(1.0))
        return made[0].read_value()
    return "v is %d" % call(everywhere(strategy, step))

# %%
def each_replica_adds_1(strategy, call, v=None, **how):
    with strategy.scope():
        v = tf.Variable(0.0, **how) if v is None else v
    call(everywhere(strategy, lambda: v.assign_add(tf.ones([]))))
    return "v is %d" % v.numpy()

table = [loop_of_ones_own, keras_fit, own_loop_with_keras_optimizer, rows_of_a_batch_of_64,
         checkpoint_to_plain_variables, variable_made_in_a_replica, each_replica_adds_1,
         with_aggregation_sum, with_v_made_outside_the_scope]
results = {name: [attempt(line, strategy, directly) for line in table] for name, strategy in [
    ("OneDevice", one), ("Mirrored", mirrored), ("CentralStorage", central)]}
text = "\n".join(inspect.getsource(f) for f in [attempt, directly, *table])
lines = "[%s]" % ", ".join(line.__name__ for line in table)
text += "\nanswer([attempt(line, strategy, directly) for line in %s])" % lines
results["MultiWorker"] = ask(workers, text)[0]

# %% [markdown]
# ## ParameterServerStrategy
# Asynchronous: the variables are on a ps; a *coordinator*, here this notebook, hands out functions
# to workers that take the next when they are done. They only run servers: the ps and worker 0 in
# one child, worker 1 in another.
#
# **Predict:** 60 updates, handed out at once. Are the losses those of one device, too?

# %%
cluster = tf.train.ClusterSpec({"ps": addresses[2:3], "worker": addresses[3:]})
for job, k, child in ("ps", 0, children[2]), ("worker", 0, children[2]), ("worker", 1, children[3]):
    ask([child], "%s_%d = tf.distribute.Server(%r, job_name=%r, task_index=%d)\nanswer(1)" % (
        job, k, cluster.as_dict(), job, k))
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
async_strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(async_strategy)

# %%
w_ps = parameters(async_strategy)
update = everywhere(async_strategy, lambda t: replica_step(w_ps, t))
losses = [coordinator.schedule(update, args=(tf.constant(t),)) for t in range(60)]
coordinator.join()  # waits for all
losses = [float(loss.fetch()) for loss in losses]
print("w is a", type(w_ps[0]).__name__, "on", w_ps[0].device.split("/replica")[0])
print("replicas in sync:", async_strategy.num_replicas_in_sync)
print("it learns:", np.mean(losses[-5:]) < 1)
assert np.mean(losses[-5:]) < 1

def by_the_coordinator(update, *arguments):
    return coordinator.schedule(update, args=tuple(map(tf.constant, arguments))).fetch()

results["ParameterServer"] = [attempt(line, async_strategy, by_the_coordinator) for line in table]

# %% [markdown]
# It learns, but which update saw which `w` is another story each time: a worker's gradient is late
# when the other has moved `w` meanwhile, as in [HogWild](../HogWild/). "Replicas in sync" is 1:
# nobody waits for anybody.
#
# **Predict:** of each pair of workers one is killed, the coordinator's and the mirrored one. What
# becomes of the updates of those that are left?

# %%
for child in children[1], children[3]:
    child.kill()
    child.wait(timeout=10)
results["MultiWorker"] += ask(workers[:1], "answer(attempt(loop_of_ones_own, strategy, directly))")
results["ParameterServer"] += [attempt(loop_of_ones_own, async_strategy, by_the_coordinator)]
print({name: results[name][-1] for name in ("MultiWorker", "ParameterServer")})

# %% [markdown]
# The coordinator gives what was lost to another worker, and goes on; the ps must live, `w` is
# there and nowhere else. The mirrored worker's all-reduce needs all of them: the whole run has to
# be started again, from a checkpoint.
#
# **Predict:** now the table. In which of its lines do the columns differ?

# %%
names = [line.__name__.replace("_", " ") for line in table] + ["loop without a worker"]
print(" " * 30, *["%-16s" % name for name in results])
for i, name in enumerate(names):
    print("%-30s" % name, *["%-16s" % (r[i] if i < len(r) else "-") for r in results.values()])
assert results["MultiWorker"][1] == results["ParameterServer"][1] == "ValueError"
assert all(r[0] == r[2] == "learns" for r in results.values())

# %% [markdown]
# How to read some of its lines:
# - Keras' `fit` learns within one process only. With several write the loop; Keras' optimizer
#   works in it.
# - "each replica adds 1": a mirrored variable has a copy for each replica, and each copy had its
#   1. CentralStorage has one variable for two replicas, refuses to guess what is meant, and wants
#   an `aggregation`.
# - "made outside the scope": in one process both replicas add to the one variable. Under
#   MultiWorker each process has its own, and no word is said: they would drift apart.
# - The ps' workers get their data through the coordinator: exercise 3.

# %%
# Stop what this notebook started.
for child in children:
    child.stdin.close()
for child in children:
    child.wait(timeout=10)

# %% [markdown]
# ## Exercises
# [Collective-AllReduce](../Collective-AllReduce/) is the fourth of these strategies as a script.
# Since the coordinator was connected this process is `/job:chief`; strategies made before that
# fail, and a new mirrored one cannot all-reduce beside the old. Make them anew, and take
# CentralStorage to reduce. The third exercise needs what the last cell has stopped: restart the
# kernel, and run the cells above that one.
#
# **1. Sum or mean.** Let the all-reduce give the sum. How far does `w` move, compared with the
# mean?
# <details><summary>Solution</summary>
#
# ```python
# two = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
#
# def moved_by(what):
#     w = parameters(two)
#     def step():
#         with tf.GradientTape() as tape:
#             loss = loss_at(w, tf.range(64))
#         g = tf.distribute.get_replica_context().all_reduce(what, tape.gradient(loss, w))
#         for v, d in zip(w, g):
#             v.assign_sub(0.5 * d)
#         return loss
#     everywhere(two, step)()
#     return w[0].numpy()
#
# assert np.allclose(moved_by("SUM"), 2 * moved_by("MEAN"), atol=1e-6)  # as if lr were doubled
# ```
#
# </details>

# %% [markdown]
# **2. One's own.** Make a variable in which each replica keeps a value of its own
# (`synchronization`), here its number. What does reading it outside of the replicas give, with
# `aggregation` SUM?
# <details><summary>Solution</summary>
#
# ```python
# two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
# with two.scope():
#     v = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ,
#                     aggregation=tf.VariableAggregation.SUM)
#
# def step():
#     v.assign(tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32))
#
# @tf.function
# def on_both():
#     two.run(step)
#
# on_both()
# assert [float(copy) for copy in two.experimental_local_results(v)] == [0.0, 1.0]
# assert float(v.read_value()) == 1.0  # the sum
# ```
#
# </details>
#
# **3. Data for the ps' workers.** The coordinator refuses the strategy's dataset. Use
# `create_per_worker_dataset`.
# <details><summary>Solution</summary>
#
# ```python
# def on_each_worker():
#     return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(64)
#
# batches = iter(coordinator.create_per_worker_dataset(on_each_worker))
#
# @tf.function
# def rows_of_the_next(batches):
#     return tf.shape(next(batches)[0])[0]
#
# assert coordinator.schedule(rows_of_the_next, args=(batches,)).fetch() == 64
# ```
#
# </details>
