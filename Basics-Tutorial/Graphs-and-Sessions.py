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
# # Graphs and sessions, for people who know Keras
# In Keras a line of Python computes at once. The parameter-server examples of this repository
# separate two things: first a program builds a *graph* of operations, then a *session* runs parts
# of it. That separation is what makes it possible to run one half of a graph on another machine.
#
# After this notebook you can:
# - read a program in graph style, and say which line builds and which line computes;
# - say which operations a call of `Session.run` executes, and in which order;
# - make, initialise and update variables, and train a network without `fit`;
# - explain what `disable_v2_behavior` changes, and why we use `tensorflow.compat.v1`.
#
# **Before it:** [Why-Distribute](Why-Distribute.ipynb). You know Keras and NumPy.
# **Time:** 35 minutes.

# %% [markdown]
# ## Build first, run later
# ![A graph: x is a placeholder, w and b are variables. matmul takes x and w, add takes its result and b, loss takes the sum. A second branch, accuracy, hangs on the sum. A session that asks for loss runs x, w, b, matmul, add and loss, but not accuracy.](../docs/figures/graph.svg)
#
# The nodes of the graph are *operations*, *ops* for short. Along its edges go *tensors*, the
# results of ops.
#
# | in Keras | here |
# | --- | --- |
# | `model(x)` computes the outputs now | `outputs = f(x)` adds operations to a graph; nothing is computed |
# | a tensor holds numbers: `.numpy()` | a tensor is the name of a future result: `session.run(tensor)` |
# | layers own their weights | `tf.get_variable` makes each variable; a session or a server holds its value |
# | `model.fit(x, y)` | a loop of your own that calls `session.run(update)` |
# | weights are initialised when the model is built | you run an initialiser once |
#
# The first cell loads TensorFlow. Its code is the same in all notebooks, and folded in JupyterLab:
# click on the bar to read it.

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

# %% [markdown]
# **Predict:** this cell builds `c` and prints it, and counts the operations of the graph. What does
# it print for `c`: 5, or something else? How many operations are there, and how many after we have
# written `a + b` a second time?

# %%
a = tf.constant(2, name="a")
b = tf.constant(3, name="b")
c = a + b
print(c)
print("operations:", [op.name for op in tf.get_default_graph().get_operations()])
d = a + b
print("and now:   ", [op.name for op in tf.get_default_graph().get_operations()])
with tf.Session() as session:
    print("run:", session.run(c), session.run([c, d]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# It prints a description: name, shape and type, but no number. `c` is the result of a node that has
# not run yet. Each `a + b` adds one more node, even if it is the same sum: three operations, then
# four. Only `session.run` computes, and it returns NumPy values.
#
# </details>
#
# ## A run executes what it needs
# You name what you want, the *fetches*. TensorFlow walks back from them along the edges and
# executes exactly these operations.
#
# A *placeholder* is a node whose value you give with the call, in `feed_dict`. A *variable* keeps
# its value between two calls.
#
# **Predict:** `count_up` adds 1 to a variable, and `double` does not depend on it. We run `double`
# three times, `count_up` twice, and both in one call once. What is `count` in the end?

# %%
x = tf.placeholder(tf.float32, [None], name="x")
double = 2 * x
count = tf.get_variable("count", initializer=0)
count_up = count.assign_add(1)

session = tf.Session()
session.run(count.initializer)
for _ in range(3):
    result = session.run(double, feed_dict={x: [1, 2, 3]})
print("double:", result)
session.run(count_up)
session.run(count_up)
session.run([double, count_up], feed_dict={x: [4]})
print("count: ", session.run(count))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 3: `count_up` ran in the three calls that fetched it, and in no other. Running `double` does not
# touch `count`, because no edge leads from one to the other. A call without `feed_dict` could not
# run `double`: its placeholder would have no value.
#
# </details>
#
# ## Variables
# `tf.get_variable(name, ...)` makes a variable in the graph. Three facts about it matter later:
# - The graph holds the variable's name, shape and initialiser. The *value* lives elsewhere: here in
#   the session, in the next notebook on a server, where many programs can share it.
# - There is no value until you run the initialiser. `tf.global_variables_initializer()` is one
#   operation that runs all of them.
# - A name exists once in a graph. `tf.variable_scope("local")` puts a prefix before the names.

# %%
def attempt(call):
    """What a call gives, or the name of its error."""
    try:
        return call()
    except (tf.errors.OpError, ValueError) as error:
        return type(error).__name__

w = tf.get_variable("w", initializer=[1.0, 2.0])
print("no value yet:      ", attempt(lambda: session.run(w)))
session.run(tf.global_variables_initializer())
session.run(w.assign([3.0, 4.0]))
print("initialised:       ", session.run(w))
with tf.Session() as other:
    print("in another session:", attempt(lambda: other.run(w)))
print("the name again:    ", attempt(lambda: tf.get_variable("w", initializer=0.0)))
with tf.variable_scope("local"):
    print("in a scope:        ", tf.get_variable("w", initializer=0.0).op.name)

# %% [markdown]
# ## Order is an edge of the graph
# In Keras lines run one after the other. In a graph two operations have an order only if an edge
# says so: an input, or a *control dependency*. Everything that you make inside
# `with tf.control_dependencies([a, b]):` waits until `a` and `b` are done.
#
# `tf.group(a, b)` is one operation that is done when `a` and `b` are; it promises no order between
# them.
#
# **Predict:** `v` is 10. One `run` gives 10 for `before`, and 11 for `after`, which waits for the
# addition. What does it give for `same`, which waits for the addition, too: 10 or 11?

# %%
v = tf.get_variable("v", initializer=10)
before = v.read_value()
with tf.control_dependencies([before]):
    add = v.assign_add(1)
with tf.control_dependencies([add]):
    after = v.read_value()
    same = tf.identity(before)

session.run(v.initializer)
values = session.run([before, after, same])
print("before %d, after %d, same %d" % tuple(values))

# %% [markdown]
# <details><summary>Answer</summary>
#
# 10. `after` is a new read, made inside the block, so it sees the addition. `same` waits for `add`,
# too, but it takes the value that `before` read earlier: a tensor never changes. If you need
# the new value, read the variable again inside the block.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert values == [10, 11, 10]

# %% [markdown]
# Many bugs in distributed training scripts are a missing edge, or an edge at the wrong place. You
# will meet this pattern in each example: pull (read), compute, push (assign), in this order.
#
# Variables of today are *resource variables*: a read gives a copy. Variables of 2016 were
# references, and a read could show a later change;
# [Classic-Mistakes-Variables](Classic-Mistakes-Variables.ipynb) shows what that broke. The folded
# cell calls `tf.enable_resource_variables()`.
#
# ## Training without `fit`
# Most notebooks train one small network on scikit-learn's handwritten digits: 64 pixels, 32 hidden
# units, 10 classes. The next cell writes it to a file, because worker processes will need it, too.
# The model is a function of a *list of variables*, so that it can be computed at shared variables,
# at local copies, or in the middle of an update.

# %%
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
# One update of stochastic gradient descent, with the learning rate `lr`:
#
# $$w \leftarrow w - lr \cdot g(w)$$
#
# `tf.gradients` adds the backward pass to the graph. `step` counts the updates, and chooses the
# mini-batch: the same number, the same rows.

# %%
import digits

tf.reset_default_graph()  # an empty graph
x, y, x_test, y_test = digits.load()
lr = 0.2

w = digits.variables()
step = tf.train.get_or_create_global_step()  # a variable of type int64
batch_loss = digits.loss(w, *digits.batch(x, y, step))
g = tf.gradients(batch_loss, w)
with tf.control_dependencies(g):  # all gradients are taken before any variable moves
    update = tf.group(step.assign_add(1), *[v.assign_sub(lr * d) for v, d in zip(w, g)])
test_accuracy = digits.accuracy(w, x_test, y_test)

session = tf.Session()
session.run(tf.global_variables_initializer())
losses = []
for _ in range(300):
    loss_now, _ = session.run([batch_loss, update])
    losses.append(loss_now)
print("operations in the graph: ", len(tf.get_default_graph().get_operations()))
print("accuracy after %d updates: %.1f%%" % (session.run(step), 100 * session.run(test_accuracy)))

# %%
figure, axes = plt.subplots()
axes.plot(losses, color=BLUE, linewidth=1)
axes.set(xlabel="update", ylabel="loss of the mini-batch", ylim=(0, None))
show(figure, "The loss of the mini-batch falls in 300 updates, at first steeply, and with noise.")

# %% [markdown]
# That is what `fit` does for you: the loop, the batches, the optimizer's update. Here each part is
# an operation, and soon each will have its place: `w` on a parameter server, `g` on a worker.
#
# ## A graph that grows
# **Predict:** both loops print ten sums. Which of them makes the graph larger, and by how many
# operations at least?

# %%
graph = tf.get_default_graph()
size = len(graph.get_operations())
for i in range(10):
    session.run(step + i)  # builds, then runs
print("built inside the loop:", len(graph.get_operations()) - size, "more operations")

number = tf.placeholder(tf.int64, [])
total = step + number
size = len(graph.get_operations())
for i in range(10):
    session.run(total, {number: i})
print("built before the loop:", len(graph.get_operations()) - size, "more operations")

graph.finalize()  # from now on the graph is read-only
try:
    step + 1
except RuntimeError as error:
    print("after finalize:        RuntimeError:", error)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first: each `step + i` adds a constant, a read of the variable and a sum, 30 operations in ten
# rounds. Training becomes slower and slower, and memory fills. Build before the loop, and let
# `graph.finalize()` forbid the rest. TensorFlow's `MonitoredSession` does it for you.
#
# </details>
#
# ## What `disable_v2_behavior` does
# TensorFlow 2 computes at once, as Keras does: this is called *eager execution*. The old API is
# in the same package, under `tensorflow.compat.v1`. `tf.disable_v2_behavior()` switches the whole
# program to graphs. There is a second way: leave TensorFlow 2 as it is, and build the graph under
# `with tf.Graph().as_default():`. We run that in a process of its own.

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

# %%
# %%writefile both.py
import keras
import numpy as np
import tensorflow.compat.v1 as tf

print("at first, eager:", tf.executing_eagerly(), "- 2 + 3 is", (tf.constant(2) + 3).numpy())
model = keras.Sequential([keras.Input([64]), keras.layers.Dense(10)])  # outside the graph
values = [w.numpy() for w in model.trainable_variables]

with tf.Graph().as_default():
    print("in the graph, eager:", tf.executing_eagerly())
    w = [tf.get_variable("w_%d" % i, initializer=value) for i, value in enumerate(values)]
    outputs, _ = model.stateless_call(w, [], np.ones([5, 64], "float32"))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        print("the Keras model, at our variables:", session.run(outputs).shape)

# %%
print(finish(start("both.py", {}, "worker")))

# %% [markdown]
# The example scripts of this repository use the second way, because a Keras model can then be the
# model: `stateless_call` computes it at any list of variables. The notebooks use the first way: it
# is shorter, and one network of four variables needs no Keras.
#
# ## Why `compat.v1` at all?
# - Asynchronous algorithms need several programs that share variables: a `tf.train.Server` in each
#   process, and sessions that reach the variables of others.
# - TensorFlow 2 supports no other way for independent programs to share variables.
#   `ParameterServerStrategy` has one coordinator that hands out the work; no worker has a loop of
#   its own.
# - `compat.v1` is part of every TensorFlow 2 release, and all that we need works in 2.21. Where a
#   newer way exists, the examples show that, too: see [TF2-Strategies](TF2-Strategies.ipynb).

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise. Use a new graph: the old one is read-only.
#
# **1. What is needed.** ★☆☆ Build `y = 3 * x` and `z = y + 1` with a placeholder `x`. Show that you
# can feed `y` itself, so that `z` needs no `x`.
#
# <details><summary>Hint</summary>
#
# `feed_dict` takes every tensor of the graph as a key, not only placeholders.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.Session() as fresh:
#     x_1 = tf.placeholder(tf.float32, [])
#     y_1 = 3 * x_1
#     z_1 = y_1 + 1
#     assert fresh.run(z_1, {x_1: 2}) == 7
#     assert fresh.run(z_1, {y_1: 10}) == 11  # the walk back from z ends at y
# ```
#
# </details>

# %% [markdown]
# **2. Swap.** ★★☆ Two variables hold 1 and 2. Write one operation that swaps them, whatever order
# TensorFlow chooses. Why is `tf.group(p.assign(q), q.assign(p))` wrong?
#
# <details><summary>Hint</summary>
#
# Both reads must be done before the first assignment begins.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.Session() as fresh:
#     p, q = (tf.get_variable(name, initializer=value) for name, value in (("p", 1), ("q", 2)))
#     old_p, old_q = p.read_value(), q.read_value()
#     with tf.control_dependencies([old_p, old_q]):
#         swap = tf.group(p.assign(old_q), q.assign(old_p))
#     fresh.run(tf.global_variables_initializer())
#     for _ in range(101):
#         fresh.run(swap)
#     assert fresh.run([p, q]) == [2, 1]
# # Without the edges one assignment may come before the other's read: both hold the same then.
# ```
#
# </details>

# %% [markdown]
# **3. Momentum.** ★★★ Train the digits with momentum: `m <- 0.9 m + g`, then `w <- w - lr m`, with
# lr = 0.05. Each variable needs an `m` of its own. Do 300 updates reach 95%?
#
# <details><summary>Hint</summary>
#
# Make the four `m` with `digits.variables("m")` and assign zeros, or with
# `tf.get_variable(name, initializer=tf.zeros(shape))`. The new value of `m` must be read after its
# assignment: `m.assign(...)` returns it.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.Session() as fresh:
#     w = digits.variables()
#     m = [tf.get_variable("m_%d" % i, initializer=tf.zeros(v.shape)) for i, v in enumerate(w)]
#     step = tf.train.get_or_create_global_step()
#     g = tf.gradients(digits.loss(w, *digits.batch(x, y, step)), w)
#     with tf.control_dependencies(g):
#         m_new = [m_i.assign(0.9 * m_i + g_i) for m_i, g_i in zip(m, g)]
#         update = tf.group(step.assign_add(1),
#                           *[w_i.assign_sub(0.05 * m_i) for w_i, m_i in zip(w, m_new)])
#     fresh.run(tf.global_variables_initializer())
#     for _ in range(300):
#         fresh.run(update)
#     assert fresh.run(digits.accuracy(w, x_test, y_test)) > 0.95
# ```
#
# </details>

# %%
# Stop what this notebook started.
session.close()
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 3: why a graph, and what a session does.
# - [Non-Distributed-Setup](../Non-Distributed-Setup/): the problem of all examples in one process.
# - The [glossary](GLOSSARY.md) explains the terms of the course.
#
# Next: [Servers](Servers.ipynb), where the value of a variable moves to another process.
