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
# # Why distribute?
# Training in several processes is harder than training in one. It pays when one process takes too
# long, or when a model does not fit into one. This notebook draws a map of the ways to do it, and
# measures one case where it pays and one where it does not.
#
# After this notebook you can:
# - tell data parallelism from model parallelism, and a parameter server from an all-reduce;
# - say what a barrier costs, and what staleness is;
# - find each folder of this repository on one map;
# - compute a speed-up by Amdahl's law, and say what messages take from it;
# - decide when not to distribute.
#
# **Before it:** you have trained a model in Keras, and know NumPy. **Time:** 40 minutes.

# %% [markdown]
# ## Two ways to share a step
# `model.fit` repeats one step. It draws a mini-batch of rows, computes the gradient `g(w)` of the
# loss at the weights `w`, and moves them:
#
# $$w \leftarrow w - lr \cdot g(w)$$
#
# Here `lr` is the learning rate. Nearly all the work is in the gradient, and most of that is
# matrix products. A *worker* is a process that computes gradients. Two workers can share the work
# of a product in two ways:
#
# ![A layer multiplies the rows of data x by the weights w. Data parallel: worker 0 takes the upper rows and worker 1 the lower ones, and both have all of w. Model parallel: worker 0 takes the left columns of w and worker 1 the right ones, and both have all of x.](../docs/figures/split.svg)
#
# - **Data parallelism**: every worker has the whole model and a part of the data.
# - **Model parallelism**: every worker has a part of the model. The figure splits a layer; you can
#   also give each worker some of the layers.
#
# The next two cells hold what every notebook needs. Their code is folded in JupyterLab: click on
# the bar to read it. You need not understand it yet.

# %% jupyter={"source_hidden": true}
# region: set_up -- the same in each notebook: TensorFlow without messages, a folder, pictures
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same results on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import io
import tempfile
import matplotlib.pyplot as plt
import numpy as np
import tensorflow.compat.v1 as tf
from IPython.display import display

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()        # graphs and sessions: see Graphs-and-Sessions
tf.enable_resource_variables()  # a read is a copy of the value
tf.reset_default_graph()        # so that you can run all cells again

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
# endregion: set_up

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

# %% [markdown]
# Do the parts give the whole? We try it with a linear model, whose gradient NumPy can compute:
#
# $$loss(w) = \frac{1}{2 \cdot rows} \sum (x w - y)^2, \qquad g(w) = \frac{1}{rows} \, x^T (x w - y)$$
#
# **Predict:** worker 0 computes the gradient of the upper half of the rows, and worker 1 that of
# the lower half. Both use the same `w`. Each divides by its own number of rows. What must you do
# with the two to get the gradient of all rows?

# %%
random = np.random.RandomState(0)
x, w, y = random.normal(size=[6, 4]), random.normal(size=[4, 2]), random.normal(size=[6, 2])

def gradient(x, w, y):
    return x.T @ (x @ w - y) / len(x)

g = gradient(x, w, y)
g_0 = gradient(x[:3], w, y[:3])  # worker 0
g_1 = gradient(x[3:], w, y[3:])  # worker 1
print("data parallel, sum: ", np.allclose(g_0 + g_1, g))
print("data parallel, mean:", np.allclose((g_0 + g_1) / 2, g))

y_0 = x @ w[:, :1]  # model parallel: worker 0 has the left column of w
y_1 = x @ w[:, 1:]  # worker 1 has the right one
print("model parallel:     ", np.allclose(np.concatenate([y_0, y_1], axis=1), x @ w))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Take their mean. The gradient of a mean loss is the mean of the gradients, if the parts are of
# the same size. The sum would be twice as long, like a step at twice the learning rate.
#
# </details>
#
# So data parallelism changes nothing in the mathematics, as long as all use the same `w`, the parts
# are equal, and no layer looks across rows (BatchNormalization) or draws random numbers (dropout).
# The workers must exchange gradients or weights after a step. With model parallelism they must
# exchange activations *within* a step. That is why data parallelism comes first, and model
# parallelism where the model is too large for one device. Most of this course is about the former.

# %% [markdown]
# ## Two places where the weights can be
# **A parameter server** (*ps*) is a process that holds `w`. A worker *pulls* a copy `w_k`,
# computes a gradient `g` there, and *pushes* `lr * g`, which the server subtracts from `w`. The sum
# is the same if the worker pushes `g` and the server multiplies.
#
# ![One update as messages between a worker and the ps. Pull: the worker asks, the ps answers with w. Compute: the gradient of a mini-batch at the copy w_k. Push: the worker sends lr·g, the ps moves w and says that it is done. Updates of others between pull and push are the staleness.](../docs/figures/update.svg)
#
# **An all-reduce** needs no server. Every worker holds a copy of `w`. After each gradient all
# workers exchange theirs, until each has the mean of all. Each makes the same step, so the copies
# stay equal.
#
# ![Three workers, each with its own copy of w and the gradient of its own mini-batch. An all-reduce gives each the mean of the three gradients, and each moves its copy by it.](../docs/figures/collective.svg)

# %% [markdown]
# ## To wait, or not to wait
# Workers are never equally fast. Who waits for the slow one?
#
# - **Synchronous**: all make a step together. The point that nobody passes before all have arrived
#   is a *barrier*, red in the figure. A slow worker, a *straggler*, holds up everybody.
# - **Asynchronous**: each worker pushes when it is ready, and none waits. But the others may have
#   moved `w` since its pull. How many updates they made in the meantime is the push's *staleness*.
#
# ![Timelines of three workers, of which worker 2 is slow. Synchronous: each step waits for worker 2, and w moves 2 times. Asynchronous: nobody waits, and w moves 13 times; the staleness of a push, the updates by others since its pull, is up to 2 for the fast workers and up to 6 for the slow one.](../docs/figures/timelines.svg)
#
# The next figure shows a real asynchronous run, 400 times slower. Two workers train on the
# handwritten digits that you will meet in most notebooks. The model of that run is tiny: 17,226
# weights. The notebooks' own is smaller still: 2,410.
#
# ![16 pushes of a real run of HogWild, 400 times slower. Two workers pull the parameters, compute a gradient and push it, without waiting for each other.](../docs/figures/pushes.svg)
#
# **Predict:** the next cells show the times of these 16 pushes. Which of the three takes longest:
# pull, compute or push? And how stale is a push of one of two workers?

# %% jupyter={"source_hidden": true}
# A row for each push: the worker, four times in ms, and the staleness. The worker called at the
# first time, had w at the second and the gradient at the third, and its push was done at the fourth.
pushes = [
    (1,  0.00,  3.47,  3.69,  4.51, 0),
    (0,  0.24,  3.77,  3.87,  5.10, 1),
    (1,  4.51,  7.29,  7.41,  7.99, 0),
    (0,  5.10,  8.02,  8.17,  8.75, 1),
    (1,  7.99, 10.92, 11.03, 11.71, 0),
    (1, 11.71, 13.43, 13.57, 14.35, 1),
    (0,  8.75, 12.95, 13.49, 14.43, 1),
    (0, 14.43, 17.01, 17.15, 17.71, 0),
    (1, 14.35, 17.15, 17.31, 18.58, 1),
    (0, 17.71, 20.38, 20.49, 21.03, 0),
    (1, 18.58, 22.22, 22.35, 23.23, 1),
    (0, 21.03, 24.67, 24.87, 25.60, 0),
    (1, 23.23, 25.70, 25.82, 26.42, 1),
    (0, 25.60, 28.63, 28.75, 29.34, 0),
    (1, 26.42, 29.26, 29.42, 30.24, 1),
    (1, 30.24, 32.63, 32.71, 33.28, 0),
]

# %%
figure, axes = plt.subplots(figsize=(8, 2.6))
for k, called, pulled, computed, pushed, staleness in pushes:
    color = (BLUE, ORANGE)[k]
    axes.barh(-k, pulled - called, 0.34, called, color=color, alpha=0.25)
    axes.barh(-k, computed - pulled, 0.62, pulled, color="black")
    axes.barh(-k, pushed - computed, 0.34, computed, color=color)
    axes.text(pushed, 0.42 - k, staleness, ha="center", size=9, color=color)
axes.set(yticks=[0, -1], yticklabels=["worker 0", "worker 1"], ylim=(-1.5, 1.15),
         xlabel="time in ms; the number at the end of a push is its staleness")
axes.grid(False)
axes.legend([plt.Rectangle((0, 0), 1, 1, color=color, alpha=alpha) for color, alpha in
             ((GRAY, 0.25), ("black", 1), (GRAY, 1))], ["pull", "compute", "push"],
            ncol=3, loc="upper center")
show(figure, "Timeline of 16 pushes of two workers: the pulls take most of the time, the gradients "
     "are thin black lines. Each push has a staleness of 0 or 1.")

_, called, pulled, computed, pushed, staleness = np.transpose(pushes)
share = sum(computed - pulled) / sum(pushed - called)
print("compute takes %.0f%% of an update" % (100 * share))
print("staleness:", *staleness.astype(int))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The pull. It includes the time to call TensorFlow and to send the request to the server. The
# gradient of so small a model takes 4% of the time. The two workers are about equally fast, so the
# other one pushes once or not at all between a pull and its push. It could be more: a slow worker's
# push can have any staleness.
#
# </details>
#
# With few workers of equal speed, staleness is small. And these two workers pass messages nearly
# all the time, so one process without a server would be faster than both.

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert share < 0.05 and sum(pulled - called) > sum(pushed - computed)
assert set(staleness) == {0, 1}

# %% [markdown]
# ## The map
# Two questions place every algorithm of data parallelism: where are the weights, and who waits?
# Each name on the map is a folder of this repository.
#
# ![Map of the algorithms, by folder. Data parallel, asynchronous, parameter server: HogWild, Sparse-Embeddings, DOWNPOUR-Easy, DOWNPOUR, ADAG, DynSGD, AEASGD, AEAMSGD, Async-Local-SGD, Bounded-Staleness, Delay-Compensation, Parameter-Server-Strategy. Synchronous, parameter server: Synchronous-SGD, with different learning rates, SAGN, Local-SGD, DiLoCo. Asynchronous, no server: Gossip-SGD. Synchronous, no server: Ring-AllReduce, Collective-AllReduce, Horovod-RingAllReduce, Compressed-AllReduce, Sharded-Training, Multiple-GPUs-Single-Machine. Model parallel: Model-Parallelism. One worker: Non-Distributed-Setup, Distributed-Setup.](../docs/figures/field.svg)
#
# How the algorithms of one field differ:
#
# | folder | what is special about it |
# | --- | --- |
# | [HogWild](../HogWild/) | push every gradient at once; no lock makes one worker wait for another |
# | [Sparse-Embeddings](../Sparse-Embeddings/) | the same, where a gradient touches a few rows only |
# | [DOWNPOUR-Easy](../DOWNPOUR-Easy/), [DOWNPOUR](../DOWNPOUR/) | take T steps alone, then push the sum of the gradients; the second has Adagrad on the server |
# | [ADAG](../ADAG/) | take T steps alone, then push the mean |
# | [DynSGD](../DynSGD/) | the staler a push, the smaller its step |
# | [AEASGD](../AEASGD/), [AEAMSGD](../AEAMSGD/) | workers keep weights of their own, tied to the shared ones as by a spring |
# | [Parameter-Server-Strategy](../Parameter-Server-Strategy/) | asynchronous training in TensorFlow 2 |
# | [Synchronous-SGD](../Synchronous-SGD/) | one step from one gradient of each worker; with *backup workers*, a step does not wait for the slowest |
# | [Synchronous-SGD-different-learning-rates](../Synchronous-SGD-different-learning-rates/) | the same, with a learning rate for each worker |
# | [SAGN](../SAGN/) | take T steps alone, then one step together |
# | [Ring-AllReduce](../Ring-AllReduce/), [Collective-AllReduce](../Collective-AllReduce/), [Horovod-RingAllReduce](../Horovod-RingAllReduce/) | one all-reduce, by our own sockets, by TensorFlow, by Horovod |
# | [Multiple-GPUs-Single-Machine](../Multiple-GPUs-Single-Machine/) | one process with several devices, which average their gradients |
# | [Model-Parallelism](../Model-Parallelism/) | each worker has some of the layers |
# | [Non-Distributed-Setup](../Non-Distributed-Setup/), [Distributed-Setup](../Distributed-Setup/) | one worker: the reference, and the same with a parameter server |

# %% [markdown]
# ## How much faster can it be? Amdahl's law
# The *speed-up* of `n` workers is the time of one divided by the time of `n`. A part `s` of a
# step cannot be shared: to draw a batch, to move `w`, to wait. The rest, `1 - s`, is divided by
# `n`:
#
# $$speedup(n) = \frac{1}{s + (1 - s) / n}$$
#
# **Predict:** 5% of a step cannot be shared. How many times as fast are 1,000 workers: about 20,
# 200 or 950 times?

# %%
def speedup(n, s):
    return 1 / (s + (1 - s) / n)

n = 2.0 ** np.arange(0, 11)
figure, axes = plt.subplots(figsize=(7, 3.4))
for s, color in (0.0, GRAY), (0.01, BLUE), (0.05, ORANGE), (0.2, PURPLE):
    axes.plot(n, speedup(n, s), "o-", color=color, markersize=4)
    axes.text(1200, speedup(1024, s), "s = %g%%" % (100 * s), color=color, va="center")
axes.set(xscale="log", yscale="log", xlabel="workers n", ylabel="speed-up",
         xticks=[1, 2, 4, 8, 16, 64, 256, 1024], yticks=[1, 2, 5, 10, 20, 100, 1000])
axes.get_xaxis().set_major_formatter("{x:g}")
axes.get_yaxis().set_major_formatter("{x:g}")
axes.minorticks_off()
show(figure, "Speed-up against the number of workers, up to 1,024. Without a serial part it equals "
     "the number of workers. With 1, 5 and 20% it levels off near 100, 20 and 5.")

for workers in 2, 10, 100, 1000:
    print("%4d workers: %5.1f times as fast" % (workers, speedup(workers, 0.05)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 20. However many workers there are, the serial 5% remain, so the speed-up stays below
# `1/s`, here 20. A hundred workers already reach 16.8.
#
# </details>
#
# Amdahl's law is too kind: it has no messages. Let `t_g` be the time of the gradient of the whole
# batch, and `t_m` that of an exchange. Unless the exchange begins before the gradient is complete,
# as in [DDP](From-Here-to-DDP-and-FSDP.ipynb), a step of `n` workers takes
# at least `t_g / n + t_m`:
#
# $$speedup(n) \leq \frac{t_g}{t_g / n + t_m}.$$
#
# Two workers then gain nothing unless a gradient takes more than *twice* as long as an exchange.
# Even that may not suffice: the measurement below shows what else they can lose.
# And `t_m` seldom stays the same. With one parameter server it grows with `n`, because every
# message goes to the same place.

# %% jupyter={"source_hidden": true}
# The answer, checked: even a billion workers stay below 20.
assert speedup(1000, 0.05) < speedup(1e9, 0.05) < 20

# %% [markdown]
# ## A measured speed-up
# Now two processes share the same step, in Keras. Each has one core. Each computes the gradient
# of its half of the mini-batch. Then they exchange the gradients, and both move by the mean: an
# all-reduce of two. Data parallelism needs no more. In `worker.py` below, it is the line
# `g = (g + exchanged(g)) / 2`; the first cell is the folded model of the digits.

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

# %%
# %%writefile worker.py
import json
import sys
import time
from multiprocessing.connection import Client, Listener

import keras
import numpy as np
import tensorflow as tf

import digits

k, repeats = int(sys.argv[1]), int(sys.argv[2])  # which of the two workers this is
tf.config.threading.set_intra_op_parallelism_threads(1)  # each worker has one core
tf.config.threading.set_inter_op_parallelism_threads(1)
x, y = digits.load()[:2]
lr = 0.2
keras.utils.set_random_seed(0)  # both workers begin with the same weights

def connect():
    """The connection to the other worker. Worker 0 listens, and worker 1 calls."""
    if k == 0:
        return Listener("link").accept()
    for _ in range(600):
        try:
            return Client("link")
        except OSError:  # worker 0 does not listen yet
            time.sleep(0.05)
    sys.exit("worker 0 does not answer")

def exchanged(vector):
    """The other worker's vector."""
    if k == 0:
        other.send_bytes(vector)
        return np.frombuffer(other.recv_bytes(), "float32")
    received = np.frombuffer(other.recv_bytes(), "float32")
    other.send_bytes(vector)
    return received

def trainer(layers, batch_size):
    """A function train(workers, steps) for a model, and its number of weights."""
    model = keras.Sequential([keras.Input([64]), *layers])
    w = model.trainable_variables
    first, sizes = model.get_weights(), [v.shape.num_elements() for v in w]

    @tf.function
    def gradient(x, y):
        """The gradient of the mean loss of these rows, as one vector."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(
                y, model(x), from_logits=True))
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(loss, w)], 0)

    @tf.function
    def move(g):
        for v, part in zip(w, tf.split(g, sizes)):
            v.assign_sub(lr * tf.reshape(part, v.shape))

    def train(workers, steps, parts=1):
        """One of these parts of each mini-batch, by one worker or by two.

        Returns the seconds that it took, those of them in exchanges, and the weights after it.
        """
        model.set_weights(first)
        began, exchange = time.perf_counter(), 0.0
        for step in range(steps):
            rows = np.random.RandomState(step).randint(0, len(x), batch_size)
            if parts == 2:
                rows = np.split(rows, 2)[k]  # this worker's half
            g = gradient(x[rows], y[rows]).numpy()
            if workers == 2:
                before = time.perf_counter()
                g = (g + exchanged(g)) / 2  # the mean of both halves
                exchange += time.perf_counter() - before
            move(g)
        after = np.concatenate([v.ravel() for v in model.get_weights()])
        return time.perf_counter() - began, exchange, after
    return train, sum(sizes)

MODELS = {
    "digits": (200, 32, [keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]),
    "convolutions": (8, 512, [
        keras.layers.Reshape([8, 8, 1]),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]),
}

other, results = connect(), {}
for name, (steps, batch_size, layers) in MODELS.items():
    train, weights = trainer(layers, batch_size)
    train(1, 1), train(2, 1, parts=2)  # the first steps build the functions
    alone, half, together, exchange = [], [], [], []
    for _ in range(repeats):  # by turns, so that a busy minute hits both
        exchanged(np.zeros(1, "float32"))  # both are here
        if k == 0:
            seconds, _, w_alone = train(1, steps)
            alone.append(seconds / steps)
            half.append(train(1, steps, parts=2)[0] / steps)
        exchanged(np.zeros(1, "float32"))
        seconds, part, w_together = train(2, steps, parts=2)
        together.append(seconds / steps)
        exchange.append(part / steps)
    if k == 0:
        results[name] = {"weights": weights, "alone": alone, "half": half, "together": together,
                         "exchange": exchange, "apart": float(abs(w_alone - w_together).max())}
print(json.dumps(results))

# %% [markdown]
# Worker 0 trains alone, on the whole mini-batch, while worker 1 waits. Then worker 0 trains alone
# on its half only, for comparison. Then both train together, each on its half. We measure two
# models:
#
# - **digits**: the small model of this course: 64 inputs, 32 hidden units, 10 outputs; batches of
#   32;
# - **convolutions**: two layers of 32 filters of 3 × 3 on the 8 × 8 pixels; batches of 512.
#
# The second has about four times as many weights, so its message is as many times longer. Its
# gradient takes far more than four times as long, because it uses each weight at all 64 pixels of a
# row, and a batch has 16 times as many rows.
#
# **Predict:** at most a speed-up of 2 is possible. About which do you expect for each model? And
# do one worker and two workers end with the same weights?

# %%
workers = [start("worker.py", {}, "worker", k, k, 7) for k in range(2)]
results = json.loads(finish(workers[0]).splitlines()[-1])
finish(workers[1])
for name, result in results.items():
    print("%-12s  %5d weights, a message of %6d bytes. The same weights after training: %s" % (
        name, result["weights"], 4 * result["weights"], result["apart"] < 1e-4))

# %% tags=["measured"]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), width_ratios=(5, 3),
                                   gridspec_kw={"wspace": 0.35})
print("medians, ms of a step:")
print("              one worker  its half alone  two workers: own work  exchange  speed-up by pairs")
for row, (name, result) in enumerate(results.items()):
    alone, half, together, exchange = [
        1000 * np.median(result[part]) for part in ("alone", "half", "together", "exchange")]
    left.barh(-row + 0.26, 1, 0.22, color=GRAY)
    left.barh(-row, half / alone, 0.22, color=GREEN)
    left.barh(-row - 0.26, (together - exchange) / alone, 0.22, color=BLUE)
    left.barh(-row - 0.26, exchange / alone, 0.22, (together - exchange) / alone, color=RED)
    ratios = np.array(result["alone"]) / result["together"]
    right.plot(np.full(len(ratios), row) + np.linspace(-0.15, 0.15, len(ratios)), ratios, "o",
               color=BLUE, alpha=0.4)
    right.plot([row - 0.25, row + 0.25], [np.median(ratios)] * 2, color=BLUE, linewidth=3)
    print("%-12s  %10.2f  %14.2f  %21.2f  %8.2f  %8.2f" % (
        name, alone, half, together - exchange, exchange, np.median(ratios)))
left.grid(axis="y", visible=False)
left.axvline(0.5, color="black", linestyle=":")
left.set(yticks=[0, -1], yticklabels=results, xlabel="time of a step (one worker = 1)")
left.legend([plt.Rectangle((0, 0), 1, 1, color=color) for color in (GRAY, GREEN, BLUE, RED)],
            ["one worker", "one worker, half of the rows", "two workers: own work",
             "two workers: exchange"],
            loc="lower center", bbox_to_anchor=(0.5, 1), ncol=2, fontsize=8, columnspacing=1)
right.axhline(1, color="black", linewidth=1)
right.axhline(2, color="black", linestyle=":")
right.set(xticks=[0, 1], xticklabels=results, xlim=(-0.5, 1.5), ylim=(0, 2.2),
          ylabel="speed-up of two workers")
right.grid(axis="x", visible=False)
show(figure, "Left: the time of a step of each model: one worker, the same worker with half of the "
     "rows, and two workers, whose exchange is red. Right: the speed-up in each of seven repeats, "
     "with the median: below 1 for the digits model, clearly above 1 for the convolutions.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The weights are the same, but for the rounding of sums in another order: data parallelism made
# the same steps. The speed-up is not the same. For the convolutions half of the rows take about
# half of the time, green, and the exchange, red, is short beside that. So the speed-up is clearly
# above 1, if both cores are free for us. For the digits two workers were *slower* than one, and the
# exchange is not the only reason:
#
# - Half of the rows do not take half of the time, even for one worker alone. To draw the rows, to
#   call TensorFlow and to move `w` costs the same for 16 rows as for 32. This is the serial part
#   of Amdahl's law.
# - Two busy processes disturb each other. Compare blue with green: the rows are the same, but now
#   two processes compute at once. They share the machine's memory, and its cores with all other
#   programs. The busier the machine, the longer blue becomes.
#
# The rule that a gradient must take more than twice as long as an exchange counts neither of
# these. That is why it is not sufficient.
#
# </details>
#
# Keep three things in mind:
#
# - **The total batch is the same.** The two workers share a step's work. That is *strong scaling*.
#   Often each worker keeps its batch instead, so that a step of `n` workers sees `n` times as many
#   rows: *weak scaling*. The exchange weighs less there, but the larger batch changes the training.
#   [SGD-by-Experiment](SGD-by-Experiment.ipynb) shows how.
# - **Each worker has one core.** A worker stands for a machine here. On one machine of two cores
#   you would let TensorFlow use both for each operation, and not distribute.
# - **The workers are neighbours.** Their messages never leave the machine. Over a network an
#   exchange takes longer, so a gradient must take longer, too, before distributing pays.

# %% [markdown]
# ## When not to distribute
# | your situation | do this first |
# | --- | --- |
# | an epoch takes minutes | nothing: one process is the simplest and here the fastest |
# | the device waits for data | a better input pipeline: [Input-Pipelines](Input-Pipelines.ipynb) |
# | a GPU computes a small batch | a larger batch, mixed precision or compilation on that GPU |
# | many settings to try | one process for each setting: no messages, and a speed-up of `n` |
# | one device is too slow | several devices in one machine |
# | one machine is too slow | several machines, with an all-reduce, if they are equal and the network is fast |
# | unequal machines, or some that may fail | asynchronous, or synchronous with backup workers |
# | the model does not fit into a device | smaller micro-batches, then sharding (ZeRO, FSDP) or model parallelism |
#
# Most rows cost more than those above them: in code, in messages, and in what can fail, so stop
# at the first that suffices. The last notebook, [Which-Algorithm](Which-Algorithm.ipynb), trains
# the digits by seven algorithms and chooses between them.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. How many workers?** ★☆☆ 2% of a step cannot be shared. What is the limit of the speed-up?
# How many workers reach half of it?
#
# <details><summary>Hint</summary>
#
# Set `speedup(n, s)` to `1 / (2 s)` and solve for `n`, or try all `n` from 1 to 200.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# s = 0.02
# limit = 1 / s
# enough = next(n for n in range(1, 200) if speedup(n, s) >= limit / 2)
# assert limit == 50 and enough == 49  # n = (1 - s) / s
# ```
#
# </details>

# %% [markdown]
# **2. The parameter server as a bottleneck.** ★★☆ One machine needs `t_g` = 100 ms for a
# gradient. A worker's exchange with the only parameter server takes `t_m` = 1 ms, and the server
# serves one worker after another. So a step of `n` workers takes `t_g / n + n * t_m`. Which
# `n` is the best, and what is its speed-up? What happens with 100 workers?
#
# <details><summary>Hint</summary>
#
# Compute the speed-up for all `n` from 1 to 100, and use `np.argmax`. Where is the derivative of
# the time zero?
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# t_g, t_m = 100, 1
# workers = np.arange(1, 101)
# faster = t_g / (t_g / workers + workers * t_m)
# best = workers[np.argmax(faster)]
# assert best == np.sqrt(t_g / t_m) == 10 and faster.max() == 5
# assert faster[-1] < 1  # 100 workers are slower than one
# # One remedy is a ring all-reduce, in which each worker talks to its neighbour only. No process
# # receives more than about twice the size of the gradient, however many take part.
# ```
#
# </details>

# %% [markdown]
# **3. Staleness by hand.** ★★☆ Here are the pulls and pushes of three workers, in order of time.
# Compute the staleness of each push. Which worker is the straggler?
#
# `0 pull, 1 pull, 2 pull, 0 push, 0 pull, 1 push, 1 pull, 0 push, 2 push`
#
# <details><summary>Hint</summary>
#
# Count all pushes. Remember the count at each worker's last pull. The staleness of a push is the
# count just before it, minus the count at the pull of the same worker.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# events = "0 pull, 1 pull, 2 pull, 0 push, 0 pull, 1 push, 1 pull, 0 push, 2 push"
# updates, version, staleness = 0, {}, []
# for event in events.split(", "):
#     worker, what = event.split()
#     if what == "pull":
#         version[worker] = updates
#     else:
#         staleness.append((worker, updates - version[worker]))
#         updates += 1
# assert staleness == [("0", 0), ("1", 1), ("0", 1), ("2", 3)]  # worker 2 is the straggler
# ```
#
# </details>

# %% [markdown]
# **4. A cheaper gradient.** ★★★ Change `worker.py` so that the convolutions have 4
# filters instead of 32. Predict how the message, the gradient and the speed-up change. Then run
# it, and print both speed-ups.
#
# <details><summary>Hint</summary>
#
# Read the file, replace `Conv2D(32` by `Conv2D(4`, write it under another name, and start both
# workers as above, with fewer repeats. Assert about the message, not about times.
#
# </details>

# %%
# Your answer to exercise 4

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# fewer = pathlib.Path("worker.py").read_text().replace("Conv2D(32", "Conv2D(4")
# pathlib.Path("fewer.py").write_text(fewer)
# workers = [start("fewer.py", {}, "worker", k, k, 3) for k in range(2)]
# changed = json.loads(finish(workers[0]).splitlines()[-1])["convolutions"]
# finish(workers[1])
# weights = 9 * 4 + 4 + 9 * 4 * 4 + 4 + 4 * 10 + 10
# assert changed["weights"] == weights  # 238: a message of 952 bytes instead of 39,592
# speedups = [np.median(np.array(result["alone"]) / result["together"])
#             for result in (results["convolutions"], changed)]
# print("speed-up with 32 filters %.2f, with 4 filters %.2f" % tuple(speedups))
# # The second layer's work falls with the square of the filters, but the fixed costs of a step and
# # of an exchange stay. So expect a smaller speed-up, perhaps below 1.
# ```
#
# </details>

# %%
# Stop what this notebook started.
stop(*workers)
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Ben-Nun and Hoefler 2018, [Demystifying Parallel and Distributed Deep
#   Learning](https://arxiv.org/abs/1802.09941): the whole field, with its costs.
# - Li et al. 2014, [Scaling Distributed Machine Learning with the Parameter
#   Server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu).
# - Sergeev and Del Balso 2018, [Horovod](https://arxiv.org/abs/1802.05799): why all-reduce scaled
#   better than parameter servers on dense models.
# - Amdahl 1967, [Validity of the single processor approach to achieving large scale computing
#   capabilities](https://doi.org/10.1145/1465482.1465560).
# - [Messages](../Measurements/Messages/): where the time of an update goes.
#
# Next: [Graphs-and-Sessions](Graphs-and-Sessions.ipynb), the API in which the examples are
# written.
