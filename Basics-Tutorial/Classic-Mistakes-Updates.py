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
# Four of the twelve classic mistakes are in the update itself: the program moves `w`, but not as
# the equation says. Often it learns all the same, and so nobody looks.
#
# After this notebook you can:
# - tell T local steps from T times the same step;
# - find a rate, or an optimizer, that stands on the wrong side of the network;
# - hold elastic averaging with momentum against its equation, sign by sign;
# - choose data and a length of run that can tell a right algorithm from a wrong one.
#
# About 15 minutes. Before it: [Classic-Mistakes-Variables](Classic-Mistakes-Variables.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same numbers on every machine
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy

# %% [markdown]
# What goes wrong here goes wrong on one machine as well as on many: no cluster is needed to see it.
# `w` is the shared variable, `w_k` the copy of worker k. Where numbers should be checked by head,
# the loss is $\frac{1}{2}(w - 100)^2$ from `w = 0`, with `lr = 0.1`.

# %%
lr = 0.1

def after_each(update, fetches, times=1):
    """Initialises all variables, and runs `update` some times; what the fetches are after each."""
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return [(session.run(update), session.run(fetches))[1] for _ in range(times)]

def once(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


# %% [markdown]
# ## Mistake 5: one gradient, T times
# The loop over local steps is there, but the gradient was built before it. TensorFlow computes a
# tensor once a call: all T passes use the same number.
#
# **Predict:** the first five gradients that the worker gathers. And with T = 30, where is `w` after
# the push?

# %%
def window(T, gradient_in_the_loop):
    """A push after T local steps; w, and the gradients of the window."""
    tf.reset_default_graph()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    w_k, gathered = w.read_value(), []
    for t in range(T):
        if gradient_in_the_loop or t == 0:
            g = tf.gradients((w_k - 100) ** 2 / 2, w_k)[0]
        gathered.append(g)
        w_k = w_k - lr * g
    return w.assign_sub(lr * tf.add_n(gathered)), w, gathered

push, w, gathered = window(T=30, gradient_in_the_loop=False)
print("the first gradients:", *["%.2f" % g for g in once(gathered)[:5]])
print("w after each push:  ", *["%.2f" % value for value in after_each(push, w, times=5)])

# %% [markdown]
# One step with thirty times the rate: it jumps over the minimum, further each time. With T = 10 it
# would have hit the minimum at once, which looks like a triumph.
#
# **Mended:** a new forward pass and a new gradient in each pass of the loop, at the moved `w_k`.
# The gradients of this loss are then $-100 \cdot 0.9^j$. **Predict:** `w` after each push.

# %%
fig, ax = plt.subplots(figsize=(8, 3), dpi=80)
for inside, style, name in (False, ":", "one gradient, T times"), (True, "-", "T gradients"):
    push, w, gathered = window(T=30, gradient_in_the_loop=inside)
    values = after_each(push, w, times=5)
    ax.plot([0, 1, 2, 3, 4, 5], [0, *values], style, marker="o", color="tab:gray", label=name)
found = once(gathered)
print("the first gradients:", *["%.2f" % g for g in found[:5]])
print("w after each push:  ", *["%.2f" % value for value in values])
assert np.allclose(found, -100 * 0.9 ** np.arange(30), rtol=1e-4)
ax.set(xlabel="pushes", ylabel="w; the minimum is at 100")
ax.legend()
plt.show()

# %% [markdown]
# ## Mistake 6: a rate, or an optimizer, in the wrong place
# A program gave each worker a rate of its own, `lr * task_index`. Three workers push the same
# gradient of -100.
#
# **Predict:** by how much does each of them move `w`?

# %%
for name, rate in ("lr * task_index", lambda k: lr * k), ("lr (mended)", lambda k: lr):
    tf.reset_default_graph()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    moves = [float(after_each(w.assign_sub(rate(k) * -100.0), w)[0]) for k in range(3)]
    print("%-16s" % name, moves)
assert moves == [10, 10, 10]

# %% [markdown]
# Worker 0 computes for nothing, and it is the chief, the only worker when one tries the program
# alone.
#
# [DOWNPOUR](../DOWNPOUR/) has Adagrad on the ps: it divides each coordinate by the root of all its
# squared gradients, so the ps needs the true gradients. The worker's own steps are plain SGD. Here
# the worker uses Adagrad too. `w` has two coordinates, one with a gradient a hundred times the
# other's.
#
# **Predict:** after one push, is `w` different? Is what Adagrad keeps, the sum of squares,
# different?

# %%
def two_sides(adagrad_on_the_worker, T=5, server_lr=0.1):
    """A push of one window; w, and the sum of squares that the ps keeps."""
    tf.reset_default_graph()
    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    w_k, squares, a = w.read_value(), 0.1, 0.0
    for _ in range(T):
        g = [1.0, 100.0] * (w_k - 1)
        if adagrad_on_the_worker:
            squares = squares + g ** 2
            g = g / tf.sqrt(squares)
        a, w_k = a + g, w_k - 0.001 * g
    server = tf.train.AdagradOptimizer(server_lr, initial_accumulator_value=0.1)
    push = server.apply_gradients([(a, w)])
    return push, [w, server.get_slot(w, "accumulator")]


# %%
for name, both in ("on both sides", True), ("on the ps only (mended)", False):
    w, squares = after_each(*two_sides(both))[0]
    print("%-24s w %.3f %.3f   squares %.1f %.1f" % (name, *w, *squares))
assert squares[1] > 1000 * squares[0]  # the ps can tell the steep coordinate from the flat one

# %% [markdown]
# **Mended:** plain SGD on the worker. And `w` would have hidden it: Adagrad nearly cancels the
# scale of what it is given. The sums of squares differ: the worker had already divided the scale
# away, so that the ps can no longer tell the steep coordinate from the flat one. So compare the
# slots of an optimizer, and not only `w`.
#
# ## Mistake 7: elastic averaging with momentum, sign by sign
# [AEAMSGD](../AEAMSGD/) says, at the last of T local steps:
#
# $$E = \alpha (w_k - w), \quad v \leftarrow \delta v - lr \cdot g(w_k + \delta v), \quad
# w_k \leftarrow w_k + v - E, \quad w \leftarrow w + E$$
#
# Three slips are common: the look-ahead with the wrong sign, `lr` twice, and `E` taken after the
# step.
#
# **Predict:** one worker, 40 pushes. With which of the slips does `w` not arrive at 100?

# %%
def elastic(pushes, ahead=1, lr_again=1, late=False, T=4, lr=0.15, delta=0.9, alpha=0.3):
    """w after each push of one worker; the loss is (w - 100)^2 / 2."""
    w = w_k = v = 0.0
    seen = [w]
    for t in range(1, pushes * T + 1):
        E = alpha * (w_k - w) if t % T == 0 else 0.0
        v = delta * v - lr * (w_k + ahead * delta * v - 100)
        w_k = w_k + lr_again * v
        if t % T == 0:
            E = alpha * (w_k - w) if late else E
            w_k, w = w_k - E, w + E
            seen.append(w)
    return np.array(seen)


# %%
slips = {"look-ahead with the wrong sign": dict(ahead=-1), "lr twice": dict(lr_again=0.15),
         "E after the step": dict(late=True)}

def show(name, **slip):
    print("%-32s w after 1 push: %5.2f   after 40: %6.2f" % (name, *elastic(40, **slip)[[1, 40]]))

for name, slip in slips.items():
    show(name, **slip)

# %% [markdown]
# All three arrive. A test that asks only whether training ends well finds none of them.
#
# **Mended:** the equation, term by term, with `w_k` and `w` read before either moves. In a graph
# that is an order of reads and assigns: see `algorithm` in [aeamsgd.py](../AEAMSGD/aeamsgd.py).
#
# **Predict:** which slip lies closest to the equation's curve, and which swings?

# %%
fig, ax = plt.subplots(figsize=(8, 3.2), dpi=80)
for (name, slip), colour in zip(slips.items(), ("tab:purple", "tab:brown", "tab:pink")):
    ax.plot(elastic(20, **slip), color=colour, label=name)
ax.plot(elastic(20), color="tab:gray", label="the equation")
ax.set(xlabel="pushes", ylabel="w; the minimum is at 100", xticks=range(0, 21, 5))
ax.legend()
plt.show()
show("the equation")
assert all(abs(elastic(1, **slip)[1] - elastic(1)[1]) > 1 for slip in slips.values())

# %% [markdown]
# The late `E` lies beside the equation, and even a little ahead. What finds all three is a single
# push, compared with the equation: `w` after the first is another number in each. The tests of this
# project compare every update.
#
# ## Mistake 8: data and runs that tell nothing
# A demonstration feeds ones, all of one class, for a few steps. It has mistake 5 in another form:
# all T local steps use the same mini-batch.
#
# **Predict:** on such data, how do right and wrong differ after 200 pushes? On digits, which one is
# ahead after one push?

# %%
images, labels = load_digits(return_X_y=True)
digits = (images / 16).astype("float32"), labels.astype("int32")
constant = np.ones_like(digits[0]), np.zeros_like(digits[1])

def loss(w, x, y):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ w))

def share_right(w, data):
    """The share of the last 360 digits that w reads rightly."""
    return float(np.mean(np.argmax(data[0][-360:] @ w, axis=1) == data[1][-360:]))


# %%
def train(data, pushes, new_batches=True, T=10):
    """w after some pushes of the sum of T gradients, each on 8 rows."""
    tf.reset_default_graph()
    w = tf.get_variable("w", [64, 10], initializer=tf.zeros_initializer())
    step = tf.get_variable("step", [], tf.int32, initializer=tf.zeros_initializer())
    w_k, a = w.read_value(), 0.0
    for t in range(T):
        number = step * T + (t if new_batches else 0)
        rows = tf.random.stateless_uniform([8], [0, number], 0, 1437, tf.int32)
        g = tf.gradients(loss(w_k, tf.gather(data[0], rows), tf.gather(data[1], rows)), w_k)[0]
        w_k, a = w_k - 0.1 * g, a + g
    with tf.control_dependencies([a]):
        push = tf.group(w.assign_sub(0.1 * a), step.assign_add(1))
    return after_each(push, w, pushes)[-1]


# %%
def compare(name, data, pushes):
    right, wrong = train(data, pushes), train(data, pushes, new_batches=False)
    shares = share_right(right, data), share_right(wrong, data)
    apart = np.abs(right - wrong).max()
    print("%-14s %3d pushes: right %3.0f%%, wrong %3.0f%%, w apart by %.3f" % (
        name, pushes, 100 * shares[0], 100 * shares[1], apart))
    return apart

assert compare("constant data", constant, 200) < 1e-5
assert compare("digits", digits, 1) > 0.01

# %% [markdown]
# On constant data the two are one and the same, to the last digit, and both are perfect. After one
# push on digits the wrong one is ahead, by luck: ten steps on eight digits, or one step on each of
# ten mini-batches, neither has learned anything yet.
#
# **Mended:** real data, and enough of them. **Predict:** who is ahead after 20 pushes? And after
# 100?

# %%
for pushes in 20, 100:
    compare("digits", digits, pushes)

# %% [markdown]
# After 20 pushes the right one is ahead; after 100 both have learned what this small model can. So
# one number at the end says little: look at the whole curve, and compare single updates with the
# equation.

# %%
# Stop what this notebook started.
tf.reset_default_graph()
print("nothing is left")

# %% [markdown]
# ## Exercises
# Next: [Classic-Mistakes-Synchrony](Classic-Mistakes-Synchrony.ipynb), four mistakes in who waits
# for whom.

# %% [markdown]
# **1. The lucky T.** For the loss of mistake 5 and `lr = 0.1`, with which T does the wrong window
# hit the minimum in one push, and from which T on does it run away?
#
# <details><summary>Solution</summary>
#
# ```python
# # One push multiplies the distance to 100 by 1 - lr * T: 0 for T = 10, below -1 from T = 21 on.
# for T, end in (10, 100), (19, 100), (20, 0), (21, None):
#     push, w, _ = window(T, gradient_in_the_loop=False)
#     values = after_each(push, w, times=60)
#     assert np.isclose(values[0], 10 * T)
#     if end is None:
#         assert abs(values[-1] - 100) > 1000
#     else:
#         assert abs(values[-1] - end) < 1
# ```
#
# </details>

# %% [markdown]
# **2. The force keeps the sum.** Show that the elastic move alone keeps `w_k + w`, and that the
# late `E` keeps it too: so this law does not find that slip.
#
# <details><summary>Solution</summary>
#
# ```python
# w_k, w, alpha = 70.0, 20.0, 0.3
# for step in 0.0, 15.0:  # E before a step of v = 15, and after it
#     E = alpha * (w_k + step - w)
#     assert np.isclose((w_k - E) + (w + E), w_k + w)
# ```
#
# </details>

# %% [markdown]
# **3. How many rows.** A window of T = 10 takes mini-batches of 8 of 1,437 rows. How many different
# rows does it see when each step has a mini-batch of its own, and how many with the mistake?
#
# <details><summary>Solution</summary>
#
# ```python
# def rows_seen(numbers):
#     tf.reset_default_graph()
#     rows = [tf.random.stateless_uniform([8], [0, number], 0, 1437, tf.int32)
#             for number in numbers]
#     return len(set(np.concatenate(once(rows))))
#
# assert rows_seen([0] * 10) <= 8
# assert rows_seen(range(10)) > 70
# ```
#
# </details>
