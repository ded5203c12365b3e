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
# In Keras `model(x)` computes at once, in your own process. Here you must also say which machine
# holds a variable, and which computes a sum. So a program first builds a *graph* of operations;
# then a *session* runs parts of it, wherever they are placed.
#
# You will train the network of this course with one operation, `update`, instead of `fit`; in the next
# notebooks each part of this operation gets a machine. If you train with FSDP, you may go on to
# [From-Here-to-DDP-and-FSDP](From-Here-to-DDP-and-FSDP.ipynb).
#
# After this notebook you can:
# - read a program in graph style, and say which line builds and which line computes;
# - say which operations a call of `Session.run` executes, and in which order;
# - make, initialise and update variables, and train a network without `fit`.
#
# **Before it:** [Why-Distribute](Why-Distribute.ipynb). You know Keras and NumPy.
# **Time:** 40 minutes.

# %% [markdown]
# ## Build first, run later
# ![A graph: x is a placeholder, w and b are variables. matmul takes x and w, add takes its result and b, loss takes the sum. A second branch, accuracy, hangs on the sum. A session that asks for loss runs x, w, b, matmul, add and loss, but not accuracy.](../docs/figures/graph.svg)
#
# The nodes of the graph are *operations*, or *ops*. Along its edges go *tensors*, the results of ops.
#
# | in Keras | here |
# | --- | --- |
# | `model(x)` computes the outputs now | `outputs = f(x)` adds operations to a graph and computes nothing |
# | a tensor holds numbers: `.numpy()` | a tensor stands for a future result: `session.run(tensor)` |
# | layers own their weights | `tf.get_variable` makes each variable; a session or a server holds its value |
# | `model.fit(x, y)` | a loop of your own that calls `session.run(update)` |
#
# [course.py](course.py) holds what all notebooks share. `course.begin()` also switches the whole program
# from Keras's way, *eager execution*, to graphs (`tf.disable_v2_behavior()`).

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np
import tensorflow.compat.v1 as tf
from course import attempt

course.begin()

# %%
a = tf.constant(2, name="a")
b = tf.constant(3, name="b")
c = a + b
print(c)
print("operations:", [op.name for op in tf.get_default_graph().get_operations()])
with tf.Session() as session:
    print("run:", session.run(c), session.run([a, c]))

# %% [markdown]
# `print(c)` shows no number, because nothing has been computed yet. Only `session.run` computes, and it
# returns NumPy values.
#
# ## A run executes what it needs
# You name what you want, the *fetches*. TensorFlow walks back from them along the edges, and
# executes the operations that it meets, each of them once.
#
# A *placeholder* is a node whose value you give with the call, in `feed_dict`. A *variable* keeps
# its value between two calls.
#
# **Predict:** `count_up` adds 1 to a variable, and `double` does not depend on it. We run `double`
# three times, `count_up` twice, and then both in one call. What is `count` in the end?

# %% tags=["predicted"]
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
# ```text
# double: [2. 4. 6.]
# count:  3
# ```
#
# Three calls fetched `count_up`, so it ran three times. No edge leads from `double` to it.
#
# </details>
#
# ## Variables
# `tf.get_variable(name, ...)` makes a variable in the graph. Three facts about it matter later:
# - The graph holds the variable's name, shape and initialiser. Its *value* lives elsewhere: here in
#   the session, in the next notebook on a server, where many programs share it.
# - It has no value until you run its initialiser. `tf.global_variables_initializer()` runs all.
# - A name exists once in a graph. `tf.variable_scope("local")` puts a prefix before the names.
#
# `attempt` returns what a call gives, or the name of its error.

# %%
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
# In a graph two operations have an order only if an edge says so: an input, or a *control dependency*.
# Whatever you make inside `with tf.control_dependencies([a, b]):` waits until `a` and `b` are done.
# `tf.group(a, b)` is one operation that is done when both are, and promises no order between them.
#
# **Predict:** `v` is 10. One `run` reads it `before` an addition of 1, and `after` it. What does it
# return for `same`, which also waits for the addition: 10 or 11?

# %% tags=["predicted"]
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
# ```text
# before 10, after 11, same 10
# ```
#
# `after` is a new read, made inside the block, so it sees the addition. `same` waits for `add`,
# too, but passes on what `before` has read, because a tensor never changes. If you need the new
# value, read the variable again inside the block.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert values == [10, 11, 10]

# %% [markdown]
# Many bugs in distributed training are a missing edge, or one at the wrong place.
#
# ## Training without `fit`
# Most notebooks train one small network on scikit-learn's handwritten digits: 64 pixels, 32 hidden
# units, 10 classes, 2,410 parameters. `course.py` defines it as functions of a *list of variables*
# W1, b1, W2, b2, because later we compute it at shared variables and at local copies.
#
# `tf.gradients` adds the backward pass to the graph. `step` counts the updates and chooses the
# mini-batch: `course.batch(x, y, number, worker)` draws 32 examples by these two numbers, so another
# worker with the same number gets other examples.

# %%
tf.reset_default_graph()  # an empty graph
x, y, x_test, y_test = course.load()
lr = 0.2

w = course.variables()
step = tf.train.get_or_create_global_step()  # a variable of type int64
batch_loss = course.loss(w, *course.batch(x, y, step))
g = tf.gradients(batch_loss, w)
with tf.control_dependencies(g):  # all gradients are computed before any variable moves
    update = tf.group(step.assign_add(1), *[v.assign_sub(lr * d) for v, d in zip(w, g)])
test_accuracy = course.accuracy(w, x_test, y_test)

session.close()
session = tf.Session()
session.run(tf.global_variables_initializer())
losses = [session.run([batch_loss, update])[0] for _ in range(300)]
print("loss of the mini-batch: %.2f at first, %.2f at last" % (losses[0], losses[-1]))
print("accuracy after %d updates: %.1f%%" % (session.run(step), 100 * session.run(test_accuracy)))

# %% [markdown]
# That is what `fit` does for you. (A line that *builds* inside such a loop makes the graph larger in each
# round: build before the loop.)
#
# ## Why `compat.v1`, and what of it lasts
# Asynchronous algorithms need independent programs that share variables. TensorFlow 2 has no
# supported way for that: in its `ParameterServerStrategy` one coordinator hands out all work. The price
# is a frozen API, which still works in TensorFlow 2.21; do not begin a new project with it. The ideas
# come back under other names ([TF2-Strategies](TF2-Strategies.ipynb) and From-Here-to-DDP-and-FSDP show
# today's ways):
#
# | here | elsewhere |
# | --- | --- |
# | a graph, built once and run often | `tf.function`, `jax.jit`, `torch.compile` |
# | `tf.device("/job:ps/task:0")` | JAX's shardings, PyTorch's DTensor placements and `to(device)` |
# | a control dependency | what `tf.function` adds by itself; CUDA's events; `wait()` of a collective |
# | a run on another machine | a future of Ray or `torch.distributed.rpc` |
# | variables on a server | the embedding servers of recommenders |

# %% [markdown]
# ## Exercises
# **1. What runs?** ★☆☆ On paper: the variable `n` is 0; `one` adds 1 to it and `ten` adds 10. `y` is
# a constant, and `z = 2 * y` is made inside `with tf.control_dependencies([one]):`. What is `n`
# after `run(y)`, `run(z)`, `run([z, one])` and `run([y, ten])`?
#
# <details><summary>Hint</summary>
#
# For each call, walk back from the fetches, also along control dependencies, and list the
# operations that you meet.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.ndim(answer) > 0:
        return "give one number: what `n` is in the end, after all four calls"
    if answer == 13:
        return "in one call each operation runs at most once, however many paths lead to it"
    if answer == 11:
        return "a control dependency is an edge, too: z needs what it waits for"
    if answer in (14, 24):
        return "an operation runs only in the calls whose fetches lead back to it"
    if answer != 12:
        return "list what runs in each of the four calls; the first one runs no addition"


# %%
# Your answer to exercise 1: a number
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# with tf.Graph().as_default(), tf.Session() as fresh:
#     n = tf.get_variable("n", initializer=0)
#     one, ten = n.assign_add(1).op, n.assign_add(10).op
#     constant = tf.constant(3)
#     with tf.control_dependencies([one]):
#         z = 2 * constant
#     fresh.run(n.initializer)
#     for fetches in constant, z, [z, one], [constant, ten]:
#         fresh.run(fetches)
#     answer_1 = fresh.run(n)
#
# assert check_1(answer_1)
# ```
#
# 0 + 1 + 1 + 10 = 12: the second call runs `one` for `z`, and the third runs it once for both fetches.
#
# </details>

# %% [markdown]
# **2. Swap.** ★★☆ Return one operation that swaps two variables, whatever order TensorFlow chooses.
# Why is `tf.group(p.assign(q), q.assign(p))` wrong?
#
# <details><summary>Hint</summary>
#
# Each variable must be read before it is overwritten. Which edges say so?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""

    def before(op, control):
        """All operations that lead to this one, also by control dependencies or not."""
        found, ahead = {}, [op]
        while ahead:
            op = ahead.pop()
            nearest = [tensor.op for tensor in op.inputs] + control * list(op.control_inputs)
            ahead += [one for one in nearest if one.name not in found]
            found.update((one.name, one) for one in nearest)
        return found.values()

    def variable_of(op):
        return op.inputs[0].op.name

    with tf.Graph().as_default() as graph, tf.Session() as fresh:
        p, q = (tf.get_variable(name, initializer=value) for name, value in (("p", 1), ("q", 2)))
        old = {op.name for op in graph.get_operations()}
        swap = answer(p, q)
        kinds = "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"
        assigns = [op for op in graph.get_operations() if op.type in kinds]
        assigns = [op for op in assigns if op.name not in old]
        fresh.run([p.initializer, q.initializer])
        fresh.run(swap)
        now = fresh.run([p, q])
        p.load(7, fresh)
        fresh.run(swap)
        later = fresh.run([p, q])
    if now == [1, 2] or {variable_of(op) for op in assigns} != {"p", "q"}:
        return "it must assign both variables; now they are %d and %d" % tuple(now)
    sources = [each for op in assigns for each in before(op, control=False)]
    reads = [op for op in sources if op.type == "ReadVariableOp"]
    for assign in assigns:
        first = {op.name for op in before(assign, control=True)}
        for read in reads:
            if variable_of(read) != variable_of(assign) or read.name in first:
                continue
            if assign.name not in {op.name for op in before(read, control=True)}:
                return "no edge makes the assignment of %s wait for the read of its old value" % (
                    variable_of(assign)
                )
    if now != [2, 1]:
        return "1 and 2 became %d and %d" % tuple(now)
    if later != [1, 7]:
        return "1 and 2 were swapped, but then 7 and 1 became %d and %d" % tuple(later)


# %%
# Your answer to exercise 2
def answer_2(p, q):
    """Returns an operation that swaps the values of two variables."""
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_2(p, q):
#     old_p, old_q = p.read_value(), q.read_value()
#     with tf.control_dependencies([old_p, old_q]):
#         return tf.group(p.assign(old_q), q.assign(old_p))
#
# assert check_2(answer_2)
# ```
#
# Without the edges one assignment may come before the other's read, and then both variables hold the
# same value. This may differ from call to call, so a test that only runs the operation can miss it.
#
# </details>

# %%
# Stop what this notebook started.
session.close()
course.end()

# %% [markdown]
# ## Read more
# - Abadi et al. 2016, [TensorFlow: A System for Large-Scale Machine
#   Learning](https://arxiv.org/abs/1605.08695), section 3: why a graph, and what a session does.
# - [Non-Distributed-Setup](../Non-Distributed-Setup/): the problem of all examples in one process.
# - The [glossary](GLOSSARY.md) explains the terms of the course.
#
# Next: [Servers](Servers.ipynb), where the value of a variable moves to another process.
