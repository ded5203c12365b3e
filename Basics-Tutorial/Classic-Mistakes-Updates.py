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
# # Classic mistakes: updates
# [Part one](Classic-Mistakes-Variables.ipynb) ended with four mistakes about variables. The next
# four are in the update itself: the program moves `w`, but not as its equation says. Often it
# learns all the same, so nobody looks. Each is shown failing here, and then fixed. At the end
# you see which data and which checks can find such mistakes.
#
# After this notebook you can:
# - tell T local steps from T times the same step;
# - find a local step that TensorFlow leaves out;
# - find a learning rate, or an optimizer, that is applied on the worker instead of the ps, or the
#   reverse;
# - check an EAMSGD implementation against its equation, term by term;
# - choose data and a length of run that can tell a right algorithm from a wrong one;
# - write an algorithm with real worker processes from its equation.
#
# **Before it:** [Local-then-Global-Variables](Local-then-Global-Variables.ipynb),
# [Multiple-Workers](Multiple-Workers.ipynb), [Stale-Gradients](Stale-Gradients.ipynb).
# **Time:** 60 minutes, and 90 for the project.

# %% [markdown]
# ## A window of T local steps
# The algorithms of part two share this frame: a worker makes T steps on its copy `w_k`, and then
# pushes what it has gathered. Here it is with the sum `a` of the gradients, as in
# [DOWNPOUR-Easy](../DOWNPOUR-Easy/):
#
# ![A window of DOWNPOUR-Easy. The worker pulls w, makes T local steps with gradients g_1 to g_4, each at its moved copy w_k, and pushes lr·a once, where a is their sum. The ps subtracts it from w. Then the worker pulls again.](../docs/figures/window.svg)
#
# $$\text{T times:} \quad a \leftarrow a + g(w_k), \quad w_k \leftarrow w_k - lr \cdot g(w_k)
# \qquad\qquad \text{push:} \quad w \leftarrow w - lr \cdot a$$
#
# These mistakes need no second machine, so only the project has a cluster.

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
import digits

x, y, x_test, y_test = digits.load()

def gradient_on_the_digits(w_k, number):
    """g(w_k) on mini-batch `number`."""
    return tf.gradients(digits.loss(w_k, *digits.batch(x, y, number)), w_k)

# %% [markdown]
# For numbers that you can check in your head we use a bowl with one parameter,
# $\frac{1}{2}(w - 100)^2$, from `w` = 0. Its gradient is $w - 100$. With `lr` = 0.1, right steps
# lead to 10, 19, 27.1: a tenth of the distance each.

# %%
def bowl_variables():
    return [tf.get_variable("w", initializer=0.0)]

def gradient_on_the_bowl(w_k, number):
    return [w_k[0] - 100.0]

# %% [markdown]
# ## Mistake 5: one gradient, T times
# The loop over the local steps is there, but the line that builds the gradient stands before it.
# TensorFlow computes a tensor once in each run, so all T passes use the same number.

# %%
def train(variables, gradient, lr, T, pushes, new_gradient=True, test=lambda w: w):
    """What test(w) gives after each push; and the gradients of the first window."""
    with tf.Graph().as_default(), tf.Session() as session:
        window = tf.placeholder(tf.int64, [])
        w = variables()
        w_k, gathered = [v.read_value() for v in w], []
        for t in range(T):
            if new_gradient or t == 0:
                g = gradient(w_k, window * T + t)
            gathered.append(g)
            w_k = [c - lr * d for c, d in zip(w_k, g)]
        a = [tf.add_n(of_one_variable) for of_one_variable in zip(*gathered)]
        push = tf.group(*[v.assign_sub(lr * s) for v, s in zip(w, a)])
        tested = test(w)
        session.run(tf.global_variables_initializer())
        first_window = session.run(gathered, {window: 0})
        return [(session.run(push, {window: i}), session.run(tested))[1]
                for i in range(pushes)], first_window

def accuracy_in_percent(w):
    return 100 * digits.accuracy(w, x_test, y_test)

# %% [markdown]
# **Predict:** on the bowl with T = 30, where does the wrong program take `w` in one push? And does
# the wrong program learn the digits, with T = 10, at `lr` = 0.02 and at `lr` = 0.2?

# %%
kinds = {"T gradients": True, "one gradient, T times": False}
bowl, on_digits = {}, {}
for name, new_gradient in kinds.items():
    values, _ = train(bowl_variables, gradient_on_the_bowl, 0.1, 30, 5, new_gradient)
    bowl[name] = [value for [value] in values]
    print("bowl, %-22s w after each push:" % name, *["%.1f" % value for value in bowl[name]])
for lr in 0.02, 0.2:
    for name, new_gradient in kinds.items():
        curve, _ = train(digits.variables, gradient_on_the_digits, lr, 10, 60, new_gradient,
                         accuracy_in_percent)
        on_digits[lr, name] = curve
        end = "%.0f%%" % curve[-1] if curve[-1] > 40 else "below 40%"
        print("digits, lr = %.2f, %-22s accuracy after 60 pushes: %s" % (lr, name, end))

# %% [markdown]
# <details><summary>Answer</summary>
#
# To 300, which is 200 too far. The wrong window is one single step with T times the rate: 30 · 0.1
# is 3 on the bowl. On the digits it is a step with 0.2 at the small rate, which trains well, and a
# step with 2 at the large one, which fails.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: the wrong program learns at the small rate, and fails at the large one.
assert np.isclose(bowl["one gradient, T times"][0], 300)
assert on_digits[0.02, "one gradient, T times"][-1] > 80
assert on_digits[0.2, "one gradient, T times"][-1] < 40 < 95 < on_digits[0.2, "T gradients"][-1]

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained")
for (name, values), colour in zip(bowl.items(), (BLUE, RED)):
    distances = abs(np.array([0.0, *values]) - 100)
    left.plot(distances, ".-", color=colour)
    right.plot(range(1, 61), on_digits[0.2, name], color=colour)
left.set(yscale="log", ylim=(1e-6, 1e5), xlabel="pushes", ylabel="|w − 100|",
         title="bowl, T = 30, lr = 0.1")
left.text(2.2, 9000, "one gradient, T times", color=RED, ha="center")
left.text(2.2, 0.3, "T gradients", color=BLUE)
right.set(xlabel="pushes", ylabel="test accuracy, %", ylim=(0, 100), xlim=(0, 60),
          title="digits, T = 10, lr = 0.2")
right.text(30, 80, "T gradients", color=BLUE)
right.text(30, 30, "one gradient, T times", color=RED, ha="center")
show(figure, "Left: the distance of w from the minimum on a logarithmic scale. With T gradients it "
     "falls more than twentyfold in each push, with one gradient it doubles each time. Right: with "
     "T gradients the accuracy on the digits rises to 98 percent, with one it stays low.")

# %% [markdown]
# **Fixed:** build a new forward pass and a new gradient in each pass of the loop, at the moved
# `w_k`. A test looks at the gradients of one window. On the bowl they must shrink by a tenth each:
# $-100 \cdot 0.9^j$.

# %%
for name, new_gradient in kinds.items():
    _, first_window = train(bowl_variables, gradient_on_the_bowl, 0.1, 30, 0, new_gradient)
    gradients = np.array(first_window)[:, 0]
    right_ones = np.allclose(gradients, -100 * 0.9 ** np.arange(30), rtol=1e-4)
    print("%-22s" % name, *["%.1f" % g for g in gradients[:4]], "...  as they must be:", right_ones)

# %% [markdown]
# ## Mistake 6: the last local step is left out
# `session.run` executes what its fetches need, and nothing else. The push needs the T gradients.
# The last gradient is computed at the copy *before* the last step, so the push does not need that
# step.
#
# Where a pull replaces `w_k` after each push, no harm is done. But some algorithms keep `w_k` from
# window to window, as [AEASGD](../AEASGD/) does. Here `w_k` is a local variable that no pull
# replaces. With one worker, `w` and `w_k` begin alike and take the same steps: they must stay
# equal.
#
# **Predict:** on the bowl with T = 3, one push takes `w` to 27.1. Where is `w_k` then?

# %%
def two_copies(variables, gradient, lr, T, pushes, wait_for_last_step):
    """w, and the worker's w_k, after so many pushes."""
    with tf.Graph().as_default(), tf.Session() as session:
        window = tf.placeholder(tf.int64, [])
        w = variables()
        w_k = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
        step_done, a = [], [0.0] * len(w)
        for t in range(T):
            with tf.control_dependencies(step_done):
                g = gradient([c.read_value() for c in w_k], window * T + t)
            with tf.control_dependencies(g):
                step_done = [c.assign_sub(lr * d) for c, d in zip(w_k, g)]
            a = [s + d for s, d in zip(a, g)]
        with tf.control_dependencies(step_done if wait_for_last_step else []):
            push = tf.group(*[v.assign_sub(lr * s) for v, s in zip(w, a)])
        session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        for i in range(pushes):
            session.run(push, {window: i})
        return session.run([w, w_k])

after_one_push = {}
for wait in False, True:
    w, w_k = two_copies(bowl_variables, gradient_on_the_bowl, 0.1, 3, 1, wait)
    after_one_push[wait] = [*w, *w_k]
    print("push waits for the last step: %-5s   bowl after 1 push: w = %.1f, w_k = %.1f" % (
        wait, *w, *w_k))

# %% [markdown]
# <details><summary>Answer</summary>
#
# At 19: it has made two of its three steps. The third exists in the graph, but nothing that ran
# depends on it. Nothing fails; `w` is right.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: without the wait the copy is one step behind.
assert np.allclose(after_one_push[False], [27.1, 19]) and np.allclose(after_one_push[True], 27.1)

# %% [markdown]
# **Fixed:** `tf.control_dependencies(step_done)` around the push, as in the second line. On the
# digits, with T = 2, `w_k` misses every second step:

# %%
for wait in False, True:
    w, w_k = two_copies(digits.variables, gradient_on_the_digits, 0.1, 2, 100, wait)
    apart = np.sqrt(sum(np.sum((v - c) ** 2) for v, c in zip(w, w_k)))
    print("push waits: %-5s   digits after 100 pushes: distance from w to w_k %.3f" % (wait, apart))
    assert (apart < 1e-3) == wait

# %% [markdown]
# ## Mistake 7: a rate, or an optimizer, in the wrong place
# A program gives each worker a learning rate of its own: `lr * task_index`. Workers are numbered
# from 0. Each of three workers trains alone, with 300 updates:

# %%
for name, rate in ("lr * task_index", lambda k: 0.2 * k), ("lr (fixed)", lambda k: 0.2):
    found = [train(digits.variables, gradient_on_the_digits, rate(k), 1, 300,
                   test=accuracy_in_percent)[0][-1] for k in range(3)]
    print("%-16s accuracy of workers 0, 1, 2: %.0f%%, %.0f%%, %.0f%%" % (name, *found))
assert min(found) > 90

# %% [markdown]
# The rate of worker 0 is 0, so its work is wasted. With several workers you would not notice,
# because the others still lower the loss. But worker 0 is the chief, and the only worker when you
# try the program alone; then nothing is learned.
#
# The second case is subtler. [DOWNPOUR](../DOWNPOUR/) has *Adagrad* on the ps. Adagrad keeps for
# each coordinate the sum `h` of all its squared gradients so far, and divides by the root of that
# sum. So a steep coordinate and a flat one take steps of about the same size:
#
# $$h \leftarrow h + a^2, \qquad w \leftarrow w - \frac{lr}{\sqrt{h}} \, a$$
#
# For that the ps needs the true gradients, so the worker pushes `a` itself. Its own steps are plain
# SGD. Here the worker uses Adagrad, too, and pushes what comes out of it. `w` has two coordinates;
# the gradient of the second is a hundred times as large.
#
# **Predict:** after one push, which of the two shows the mistake clearly: `w`, or `h`?

# %%
def push_to_adagrad(adagrad_on_the_worker, T=5):
    """w and h on the ps, after one push of a window."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[0.0, 0.0])
        w_k, h_k, a = w.read_value(), 0.1, 0.0
        for _ in range(T):
            g = [1.0, 100.0] * (w_k - 1.0)
            if adagrad_on_the_worker:
                h_k = h_k + g ** 2
                g = g / tf.sqrt(h_k)
            a, w_k = a + g, w_k - 0.001 * g
        adagrad = tf.train.AdagradOptimizer(0.1, initial_accumulator_value=0.1)
        push = adagrad.apply_gradients([(a, w)])
        session.run(tf.global_variables_initializer())
        session.run(push)
        return session.run([w, adagrad.get_slot(w, "accumulator")])

for name, both in ("on both sides", True), ("on the ps only (fixed)", False):
    w, h = push_to_adagrad(both)
    print("%-24s w: %.3f, %.3f   h: %.1f, %.1f" % (name, *w, *h))

# %% [markdown]
# <details><summary>Answer</summary>
#
# `h`. In the first push Adagrad nearly cancels the scale of what it is given, right or wrong, so
# `w` moves by 0.1 in both cases. But with the mistake the worker has divided the scale away
# already. The ps can no longer tell the steep coordinate from the flat one.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer: fixed, the ps can tell the steep coordinate from the flat one.
assert h[1] > 1000 * h[0]

# %% [markdown]
# Looking at `w` alone would not have revealed the bug. Compare the *slots* of an optimizer, too:
# the variables that it keeps beside `w`, here `h`.
#
# ## Mistake 8: elastic averaging with momentum, term by term
# In *elastic averaging* each worker keeps its own `w_k`, and a spring ties it to the shared `w`.
# EAMSGD adds Nesterov momentum: the gradient is taken a little ahead, at `w_k + delta * v`. See
# [AEAMSGD](../AEAMSGD/). At the last of T local steps the equation is:
#
# $$E = \alpha (w_k - w), \qquad v \leftarrow \delta v - lr \cdot g(w_k + \delta v), \qquad
# w_k \leftarrow w_k + v - E, \qquad w \leftarrow w + E$$
#
# Three slips are common: the look-ahead with the wrong sign, `lr` multiplied twice, and `E` taken
# after the step instead of before it.

# %%
def eamsgd(pushes, look_ahead=1, second_lr=1, late_E=False, T=4, lr=0.15, delta=0.9, alpha=0.3):
    """w on the bowl at the start and after each push; the defaults are the equation."""
    w, w_k, v = 0.0, 0.0, 0.0
    history = [w]
    for t in range(1, pushes * T + 1):
        E = alpha * (w_k - w)
        v = delta * v - lr * (w_k + look_ahead * delta * v - 100)
        w_k = w_k + second_lr * v
        if t % T == 0:
            if late_E:
                E = alpha * (w_k - w)
            w_k, w = w_k - E, w + E
            history.append(w)
    return np.array(history)

variants = {"the equation": {}, "look-ahead, wrong sign": {"look_ahead": -1},
            "lr twice": {"second_lr": 0.15}, "E after the step": {"late_E": True}}

# %% [markdown]
# **Predict:** one worker makes 40 pushes. With which of the slips does `w` not arrive at 100?

# %%
for name, slip in variants.items():
    w = eamsgd(40, **slip)
    print("%-24s w after 1 push: %5.2f   after 40 pushes: %6.2f" % (name, w[1], w[40]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# With none: all three arrive. A test that only asks whether training ends well finds no slip.
#
# </details>

# %% jupyter={"source_hidden": true}
# A check of the answer, and of what follows: after one push all four differ.
assert all(abs(eamsgd(40, **slip)[40] - 100) < 1 for slip in variants.values())
first_pushes = [eamsgd(1, **slip)[1] for slip in variants.values()]
assert len(set(np.round(first_pushes))) == 4
assert abs(eamsgd(40, late_E=True) - eamsgd(40)).argmax() == 1  # widest after the first push

# %%
figure, ax = plt.subplots(figsize=(7, 3))
styles = (BLUE, 3, "-"), (RED, 1.5, "-"), (PURPLE, 1.5, "-"), (ORANGE, 1.5, "--")
for (name, slip), (colour, width, style) in zip(variants.items(), styles):
    ax.plot(eamsgd(20, **slip), color=colour, linewidth=width, linestyle=style, label=name)
ax.set(xlabel="pushes", ylabel="w; the minimum is at 100", xlim=(0, 20), xticks=range(0, 21, 5))
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(figure, "w over 20 pushes, four curves that end near 100. The late E begins above the "
     "equation and then lies close to it, the wrong sign swings about it, and lr twice comes slowly.")

# %% [markdown]
# Within a few pushes the late `E` comes close to the equation, so a plot of the whole run hides it.
# Its own gap is widest after the first push. After *one* push, `w` differs in every variant.
# **Fixed:** the equation, term by term, with `w_k` and `w` read before either of them moves. A test
# compares a single update with the equation.
#
# ## Data and runs that tell nothing
# Take another common slip: all T local steps use the *same mini-batch*, with T right gradients on
# it. Do your data show the difference?
#
# A quick demonstration feeds constant data: every picture is all ones, and every label is 0.

# %%
def accuracy_curve(constant, same_batch, pushes=100, T=10, lr=0.1):
    """The test accuracy in percent after each push; mini-batches of 8; w at the end."""
    data, test_data = (x, y), (x_test, y_test)
    if constant:
        data, test_data = [(np.ones_like(a), np.zeros_like(b)) for a, b in (data, test_data)]

    def gradient(w_k, number):
        if same_batch:
            number = number // T * T
        return tf.gradients(digits.loss(w_k, *digits.batch(*data, number, size=8)), w_k)

    def accuracy_and_w(w):
        return [100 * digits.accuracy(w, *test_data), w]

    tested, _ = train(digits.variables, gradient, lr, T, pushes, test=accuracy_and_w)
    return np.array([accuracy for accuracy, _ in tested]), tested[-1][1]

runs = {(constant, same): accuracy_curve(constant, same)
        for constant in (True, False) for same in (False, True)}
figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), sharey=True, layout="constrained")
for panel, constant, title in zip(panels, (True, False), ("constant data", "digits")):
    for same, colour, style in (False, BLUE, "-"), (True, RED, "--"):
        panel.plot(range(1, 101), runs[constant, same][0], style, color=colour,
                   label="the same mini-batch T times" if same else "T mini-batches")
    panel.set(title=title, xlabel="pushes", xlim=(1, 100), ylim=(0, 103))
panels[0].set_ylabel("test accuracy, %")
panels[1].legend(loc="lower right")
show(figure, "Test accuracy over 100 pushes. On constant data, right and wrong are the same line "
     "at 100 percent. On the digits the wrong one learns more slowly and stays a few points below.")
for constant, same in runs:
    curve, w = runs[constant, same]
    print("%-14s %-28s after 1 push %3.0f%%, after 20 %3.0f%%, after 100 %3.0f%%" % (
        "constant data" if constant else "digits",
        "the same mini-batch T times" if same else "T mini-batches", *curve[[0, 19, 99]]))
same_w = [np.array_equal(a, b) for a, b in zip(runs[True, False][1], runs[True, True][1])]
print("on constant data both end at the same w, to the last bit:", all(same_w))
assert all(same_w) and (runs[False, False][0][19:] > runs[False, True][0][19:]).mean() > 0.8

# %% [markdown]
# On constant data right and wrong are the same to the last bit, and both look perfect. On the
# digits the wrong program learns, too. It has made a tenth of the draws, so it has seen fewer rows,
# and that costs it a few points of accuracy at the end. Without the right curve beside it you would
# not notice.
#
# So, for your own tests:
# - use data in which examples differ, and batches that differ from step to step;
# - compare *single updates* with the equation, with slots and local copies, in numbers;
# - look at the whole curve against a run that is known to be right, not at one number at the end.

# %% [markdown]
# ## Exercises
# Write your code into the cell below each exercise.
#
# **1. The lucky T.** ★☆☆ Mistake 5, on the bowl with `lr` = 0.1. For which T does the wrong window
# hit the minimum in one push? From which T on does it run away?
#
# <details><summary>Hint</summary>
#
# One wrong push multiplies the distance to 100 by `1 - lr * T`.
#
# </details>

# %%
# Your answer to exercise 1

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# # The factor is 0 for T = 10, -1 for T = 20, and below -1 from T = 21 on.
# for T, end in (10, 100), (19, 100), (20, 0), (21, None):
#     values, _ = train(bowl_variables, gradient_on_the_bowl, 0.1, T, 60, new_gradient=False)
#     assert np.isclose(values[0][0], 10 * T)
#     if end is None:
#         assert abs(values[-1][0] - 100) > 1000
#     else:
#         assert abs(values[-1][0] - end) < 1
# ```
#
# </details>

# %% [markdown]
# **2. A law that does not help.** ★★☆ Show that the elastic move alone keeps the sum `w_k + w`.
# Show that the late `E` keeps it, too, so that this law cannot find the slip. Which law can?
#
# <details><summary>Hint</summary>
#
# Write the move for any `w_k`, `w` and step `v`. Then compare one push with the equation.
#
# </details>

# %%
# Your answer to exercise 2

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# w_k, w, v, alpha = 70.0, 20.0, 15.0, 0.3
# for E in alpha * (w_k - w), alpha * (w_k + v - w):  # before the step, and after it
#     assert np.isclose((w_k + v - E) + (w + E), w_k + w + v)
# # What finds it: w itself after one push moves by alpha * (w_k - w) of *before* the step.
# assert not np.isclose(eamsgd(1)[1], eamsgd(1, late_E=True)[1])
# ```
#
# </details>

# %% [markdown]
# **3. How many rows?** ★★☆ A window of T = 10 takes mini-batches of 8 of 1,437 rows. How many
# different rows does it see if each step has its own mini-batch? How many with one mini-batch?
#
# <details><summary>Hint</summary>
#
# Give `digits.batch` the row numbers instead of the pictures: `np.arange(1437)` in the place of
# `y`.
#
# </details>

# %%
# Your answer to exercise 3

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def rows_seen(numbers):
#     with tf.Graph().as_default(), tf.Session() as session:
#         rows = [digits.batch(x, np.arange(len(x)), number, size=8)[1] for number in numbers]
#         return len(set(np.concatenate(session.run(rows))))
#
# assert rows_seen([0] * 10) <= 8
# assert rows_seen(range(10)) > 70
# ```
#
# </details>

# %% [markdown]
# ## The project of part two
# **Project. AEASGD from its equation.** ★★★ Two worker processes train the digits by asynchronous
# elastic averaging. Each worker k keeps its own `w_k` for the whole run. Before its T-th step of a
# window it reads `w`, and then:
#
# $$E = \alpha (w_k - w), \quad w_k \leftarrow w_k - lr \cdot g(w_k) - E, \quad w \leftarrow w + E$$
#
# `E` and `g` are both taken at the `w_k` before that step. The other T − 1 steps are plain SGD,
# alone. Train with T = 10, $\alpha$ = 0.3, `lr` = 0.2 and 100 pushes of both workers together.
# Train plain HogWild beside it, on as many mini-batches: 1,000 pushes of one gradient. Compare the
# accuracy of `w`, and how many numbers cross the network.
#
# <details><summary>Hint</summary>
#
# 1. Let this notebook be the ps. It makes the variables of both algorithms (`hogwild_0` to
#    `hogwild_3`, `aeasgd_0` to `aeasgd_3`, and a counter for each), and initialises them. So the
#    workers need not wait for each other, and you can test `w` here at the end.
# 2. Write `worker.py`. It starts its server, builds the same variables within
#    `replica_device_setter`, and initialises only its local variables. Set device filters.
# 3. Count pushes with `tf.count_up_to` on the ps: it raises `OutOfRangeError` when all are made.
# 4. HogWild first: read `w`, take the gradient, take a ticket, subtract. Order each of these with a
#    control dependency.
# 5. AEASGD: `w_k` are local variables, and begin as `w`. Compute the T − 1 moved copies as tensors.
#    Then `E`, and the last gradient at the same copies. Only after both, assign `w_k` and `w`.
# 6. Remember mistakes 5, 6 and 8, and give each local step and each worker its own mini-batch.
# 7. One process can run both algorithms, one after the other: TensorFlow is imported once.
#
# </details>

# %%
# Your answer to the project

# %% [markdown]
# <details><summary>Solution</summary>
#
# In your own solution the program stands in a `%%writefile` cell. Here it is a function, so that
# one cell can hold everything; `inspect.getsource` gives its text, and the file is made from it.
#
# ```python
# import inspect
#
# def work():
#     import json
#     import os
#     import digits
#     import tensorflow.compat.v1 as tf
#
#     tf.logging.set_verbosity(tf.logging.ERROR)
#     tf.disable_v2_behavior()
#     tf.enable_resource_variables()
#     config = json.loads(os.environ["TF_CONFIG"])
#     cluster, k = config["cluster"], config["task"]["index"]
#     me = "/job:worker/task:%d" % k
#     waits = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=40_000)
#     server = tf.train.Server(cluster, job_name="worker", task_index=k, config=waits)
#     x, y, _, _ = digits.load()
#     T, alpha, lr = 10, 0.3, 0.2
#
#     def gradient(w_k, number):
#         return tf.gradients(digits.loss(w_k, *digits.batch(x, y, number, worker=k)), w_k)
#
#     def hogwild(w, step):
#         number = step.read_value()
#         w_k = [v.read_value() for v in w]
#         g = gradient(w_k, number)
#         with tf.control_dependencies(g):
#             ticket = tf.count_up_to(step, 1000)
#         with tf.control_dependencies([ticket]):
#             return tf.group(*[v.assign_sub(lr * d) for v, d in zip(w, g)])
#
#     def aeasgd(w, step):
#         own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
#         window = tf.get_local_variable("window", initializer=tf.constant(0, tf.int64))
#         first = window.read_value() * T
#         w_k = [v.read_value() for v in own]
#         for t in range(T - 1):
#             w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, first + t))]
#         g = gradient(w_k, first + T - 1)
#         with tf.control_dependencies(g):  # w as late as possible
#             E = [alpha * (c - v.read_value()) for c, v in zip(w_k, w)]
#         with tf.control_dependencies(E):
#             ticket = tf.count_up_to(step, 100)
#         with tf.control_dependencies([ticket]):
#             return tf.group(window.assign_add(1),
#                             *[v.assign(c - lr * d - e) for v, c, d, e in zip(own, w_k, g, E)],
#                             *[v.assign_add(e) for v, e in zip(w, E)])
#
#     for algorithm in hogwild, aeasgd:
#         name, pushes = algorithm.__name__, 0
#         with tf.Graph().as_default():
#             with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
#                 w = digits.variables(name)
#                 step = tf.get_variable(name + "_step", initializer=tf.constant(0, tf.int64))
#                 with tf.device(me):  # the inner device wins: local variables are made here
#                     push = algorithm(w, step)
#             with tf.Session(server.target, config=waits) as session:
#                 session.run(tf.local_variables_initializer())
#                 try:
#                     while True:
#                         session.run(push)
#                         pushes += 1
#                 except tf.errors.OutOfRangeError:
#                     print(name, pushes)
#
# pathlib.Path("worker.py").write_text(inspect.getsource(work) + "\nwork()\n")
# cluster = new_cluster(ps=1, worker=2)
# alone = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=40_000)
# ps = tf.train.Server(cluster, job_name="ps", task_index=0, config=alone)
# with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
#     w = {name: digits.variables(name) for name in ("hogwild", "aeasgd")}
#     for name in w:
#         tf.get_variable(name + "_step", initializer=tf.constant(0, tf.int64))
#     accuracy = {name: digits.accuracy(w[name], x_test, y_test) for name in w}
#     with tf.Session(ps.target, config=alone) as session:
#         session.run(tf.global_variables_initializer())
#         workers = [start("worker.py", cluster, "worker", k) for k in (0, 1)]
#         printed = [dict(line.split() for line in finish(worker).splitlines())
#                    for worker in workers]
#         found = session.run(accuracy)
# for name in w:
#     pushes = sum(int(of_worker[name]) for of_worker in printed)
#     print("%-8s accuracy %.0f%% after %4d pushes: %.2f million numbers crossed the network" % (
#         name, 100 * found[name], pushes, pushes * 2 * 2410 / 1e6))
#     assert pushes == {"hogwild": 1000, "aeasgd": 100}[name] and found[name] > 0.9
# ```
#
# AEASGD sends a tenth of the numbers, and learns nearly as well here. Repeat the run: which worker
# pushes how often differs, and so does the accuracy.
#
# </details>

# %%
# Stop what this notebook started.
os.chdir(HERE)
folder.cleanup()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/4687-large-scale-distributed-deep-networks): DOWNPOUR,
#   with Adagrad on the ps.
# - Zhang, Choromanska, LeCun 2015, [Deep learning with Elastic Averaging
#   SGD](https://arxiv.org/abs/1412.6651): the equations of mistake 8 and of the project.
# - Sculley et al. 2015, [Hidden Technical Debt in Machine Learning
#   Systems](https://papers.nips.cc/paper/5656-hidden-technical-debt-in-machine-learning-systems):
#   why such mistakes stay.
# - [AEASGD](../AEASGD/), [AEAMSGD](../AEAMSGD/), [DOWNPOUR](../DOWNPOUR/): the complete examples,
#   whose tests compare single updates with the equations.
#
# Next: [Synchronous-Replicas](Synchronous-Replicas.ipynb), the first of part three, where workers
# wait for each other.
