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
# Your program trains, but is it the algorithm of the paper? The mistakes of this notebook are in the
# update itself: `w` moves, but not as the equation says. For each one you find a number that exposes it,
# and the fix; in the end you can test an update rule so that none of them passes.
#
# After this notebook you can:
# - tell T local steps from T times the same step;
# - find a local step that TensorFlow leaves out;
# - find an optimizer that is applied in the wrong place;
# - check an implementation of EAMSGD against its equation, term by term;
# - choose data and tests that can tell a right algorithm from a wrong one;
# - write an algorithm for real worker processes from its equation.
#
# **Before it:** [Local-then-Global-Variables](Local-then-Global-Variables.ipynb). **Time:** 50 minutes,
# and 90 for the project.

# %% [markdown]
# ## A window of T local steps
# As in [DOWNPOUR-Easy](../DOWNPOUR-Easy/), a worker makes T steps on its copy `w_k`, sums up the
# gradients in `a`, and then pushes `lr * a`.
#
# ![A window of DOWNPOUR-Easy: the worker pulls w, makes T local steps, each at its moved copy w_k, and pushes lr·a once.](../docs/figures/window.svg)
#
# Only the project needs a cluster. Beside the digits there is a bowl with one parameter,
# $\frac{1}{2}(w - 100)^2$, from `w` = 0. With `lr` = 0.1, right steps lead to 10, 19, 27.1: a tenth of
# the distance each. (A folded cell defines both gradients.)
#
# **Notation:** `v`, `c`, `d`, `s`: one array of `w`, `w_k`, `g`, `a`; in mistake 8, `v`: velocity.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import numpy as np
import tensorflow.compat.v1 as tf

course.begin()

# %% jupyter={"source_hidden": true}
x, y, x_test, y_test = course.load()


def gradient_on_the_digits(w_k, number):
    return tf.gradients(course.loss(w_k, *course.batch(x, y, number)), w_k)


def bowl_variables():
    return [tf.get_variable("w", initializer=0.0)]


def gradient_on_the_bowl(w_k, number):
    return [w_k[0] - 100.0]


# %% [markdown]
# ## Mistake 5: one gradient, T times
# The line that builds the gradient stands before the loop over the local steps: here with
# `new_gradient=False`. TensorFlow computes a tensor once in each run, so all T passes use the same
# value.


# %%
def train(variables, gradient, lr, T, pushes, new_gradient=True, test=lambda w: w):
    """Returns what test(w) gives after each push, and the gradients of the first window."""
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
        curve = []
        for i in range(pushes):
            session.run(push, {window: i})
            curve.append(session.run(tested))
        return curve, first_window


def percent(w):
    return 100 * course.accuracy(w, x_test, y_test)


kinds = {"T gradients": True, "one gradient, T times": False}

# %% [markdown]
# **Predict:** on the bowl with T = 30, where does the wrong program take `w` in one push? Does it
# learn the digits, with T = 10, at `lr` = 0.02 and at `lr` = 0.2?

# %% tags=["predicted"]
bowl, digits = {}, {}
for name, new in kinds.items():
    curve, _ = train(bowl_variables, gradient_on_the_bowl, 0.1, 30, 5, new)
    bowl[name] = [w for [w] in curve]
    print("bowl, %-22s w after 1, 2, 3 pushes:" % name, *["%.1f" % w for w in bowl[name][:3]])
for lr in 0.02, 0.2:
    for name, new in kinds.items():
        curve, _ = train(course.variables, gradient_on_the_digits, lr, 10, 60, new, percent)
        digits[lr, name] = curve
        end = "%.0f%%" % curve[-1] if curve[-1] > 40 else "below 40%"
        print("digits, lr = %.2f, %-22s accuracy %s" % (lr, name, end))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# bowl, T gradients            w after 1, 2, 3 pushes: 95.8 99.8 100.0
# bowl, one gradient, T times  w after 1, 2, 3 pushes: 300.0 -300.0 900.0
# digits, lr = 0.02, T gradients            accuracy 90%
# digits, lr = 0.02, one gradient, T times  accuracy 85%
# digits, lr = 0.20, T gradients            accuracy 98%
# digits, lr = 0.20, one gradient, T times  accuracy below 40%
# ```
#
# To 300, which is 200 too far, because the wrong window is a single step at T times the rate: here
# 30 · 0.1 = 3. On the digits the small rate thus becomes 0.2, which still trains, and the large one
# 2, which fails. (One run of each.)
#
# </details>
#
# **Fixed:** build a new gradient in each pass, at the moved `w_k`. A test looks at the gradients of one
# window. On the bowl they must shrink by a tenth each.

# %%
for name, new in kinds.items():
    _, first_window = train(bowl_variables, gradient_on_the_bowl, 0.1, 30, 0, new)
    gradients = np.array(first_window)[:, 0]
    right = np.allclose(gradients, -100 * 0.9 ** np.arange(30), rtol=1e-4)
    print("%-22s" % name, *["%.1f" % g for g in gradients[:4]], "...  right:", right)

# %% jupyter={"source_hidden": true}
# The answer, checked: the wrong program learns at the small rate, and fails at the large one.
assert np.isclose(bowl["one gradient, T times"][0], 300)
assert digits[0.02, "one gradient, T times"][-1] > 80
assert digits[0.2, "one gradient, T times"][-1] < 40 < 95 < digits[0.2, "T gradients"][-1]

# %% [markdown]
# ## Mistake 6: the last local step is left out
# `session.run` executes what its fetches need, and nothing else. The push needs the T gradients. The
# last of them is taken *before* the last step, so the push does not need that step.
#
# Where a pull replaces `w_k` after each push, this does no harm. But [AEASGD](../AEASGD/) and others
# keep `w_k` from window to window. With one worker, `w` and `w_k` begin alike and take the same steps,
# so they must stay equal.


# %%
def two_copies(variables, gradient, lr, T, pushes, wait_for_last_step):
    """Returns w, and the worker's w_k, after so many pushes."""
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


for wait in False, True:
    [w], [w_k] = two_copies(bowl_variables, gradient_on_the_bowl, 0.1, 3, 1, wait)
    print("push waits for the last step: %-5s  w = %.1f, w_k = %.1f" % (wait, w, w_k))

# %% [markdown]
# Nothing that ran depends on the third step. So `w` is right, but `w_k` has made only two of three
# steps. **Fixed:** `tf.control_dependencies(step_done)` around the push. A test compares `w_k`, too.

# %% jupyter={"source_hidden": true}
# The answer, checked; and on the digits, w_k falls behind w, too.
assert np.allclose([w, w_k], 27.1)
assert np.allclose(
    two_copies(bowl_variables, gradient_on_the_bowl, 0.1, 3, 1, False), [[27.1], [19]]
)
for wait in False, True:
    w, w_k = two_copies(course.variables, gradient_on_the_digits, 0.1, 2, 100, wait)
    assert (sum(np.sum((v - c) ** 2) for v, c in zip(w, w_k)) < 1e-6) == wait

# %% [markdown]
# ## Mistake 7: an optimizer in the wrong place
# [DOWNPOUR](../DOWNPOUR/) has *Adagrad* on the ps: $h \leftarrow h + a^2$, then
# $w \leftarrow w - lr\, a / \sqrt{h}$, for each coordinate. In the wrong program the worker uses it,
# too, and pushes what comes out. One push, from a loss a hundred times as steep along the second
# coordinate:


# %% jupyter={"source_hidden": true}
def push_to_adagrad(adagrad_on_the_worker, T=5):
    """Returns w and h on the ps, after one push of a window."""
    w, h = np.zeros(2), np.full(2, 0.1)
    w_k, h_k, a = w, np.full(2, 0.1), np.zeros(2)
    for _ in range(T):
        g = np.array([1.0, 100.0]) * (w_k - 1)
        if adagrad_on_the_worker:
            h_k = h_k + g**2
            g = g / np.sqrt(h_k)
        a, w_k = a + g, w_k - 0.001 * g
    h = h + a**2
    return w - 0.1 / np.sqrt(h) * a, h


for name, both in ("on both sides", True), ("on the ps only (fixed)", False):
    w, h = push_to_adagrad(both)
    print("%-24s w: %.3f, %.3f   h: %.1f, %.1f" % (name, *w, *h))
assert h[1] > 1000 * h[0] and np.allclose(w, 0.1, atol=0.002)
wrong_w, wrong_h = push_to_adagrad(True)
assert np.allclose(wrong_w, w, atol=0.002) and wrong_h[1] < 2 * wrong_h[0]

# %% [markdown]
# `w` moves by 0.1 in both; only `h` shows that the worker has already divided the scale away. **Fixed:**
# one Adagrad, on the ps. A test compares the *slots* of an optimizer, too: the variables that it keeps
# beside `w`, here `h`.

# %% [markdown]
# ## Mistake 8: elastic averaging with momentum, term by term
# In *elastic averaging* each worker keeps its own `w_k` for the whole run, so that workers can search
# in different places. A spring ties it to the shared `w`:
#
# ![Springs tie the parameters w_0 and w_1 of two workers to the shared w. Each worker follows its own gradient. In every T-th step the force E = alpha times (w_k − w) draws w_k towards w, and w as far towards w_k.](../docs/figures/spring.svg)
#
# EAMSGD, our [AEAMSGD](../AEAMSGD/), adds Nesterov momentum: the gradient is taken a little ahead, at
# `w_k + delta * v`. At the last of T local steps the equation is:
#
# $$E = \alpha (w_k - w), \qquad v \leftarrow \delta v - lr \cdot g(w_k + \delta v), \qquad
# w_k \leftarrow w_k + v - E, \qquad w \leftarrow w + E$$
#
# Three slips are common: the look-ahead with the wrong sign, `lr` multiplied twice, and `E` taken
# after the step instead of before it.


# %%
def eamsgd_step(w, w_k, v, elastic, look_ahead=1, second_lr=1, late_E=False):
    """Returns w, w_k, v after a local step on the bowl; elastic: it is the last of T."""
    lr, delta, alpha = 0.15, 0.9, 0.3
    E = alpha * (w_k - w)
    v = delta * v - lr * (w_k + look_ahead * delta * v - 100)
    w_k = w_k + second_lr * v
    if late_E:
        E = alpha * (w_k - w)
    return (w + E, w_k - E, v) if elastic else (w, w_k, v)


def eamsgd(pushes, T=4, **slip):
    """Returns w at the start, and after each push."""
    state, history = (0.0, 0.0, 0.0), [0.0]
    for t in range(1, pushes * T + 1):
        state = eamsgd_step(*state, elastic=t % T == 0, **slip)
        if t % T == 0:
            history.append(state[0])
    return np.array(history)


variants = {
    "the equation": {},
    "look-ahead, wrong sign": {"look_ahead": -1},
    "lr twice": {"second_lr": 0.15},
    "E after the step": {"late_E": True},
}

# %% [markdown]
# **Predict:** one worker makes 40 pushes. With which of the slips does `w` not arrive at 100?

# %% tags=["predicted"]
for name, slip in variants.items():
    w = eamsgd(40, **slip)
    print("%-24s w after 1 push: %4.1f   10: %6.2f   40: %6.2f" % (name, w[1], w[10], w[40]))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# the equation             w after 1 push: 20.1   10:  97.62   40: 100.00
# look-ahead, wrong sign   w after 1 push: 24.3   10: 100.14   40: 100.07
# lr twice                 w after 1 push:  3.4   10:  76.34   40:  99.84
# E after the step         w after 1 push: 27.9   10:  98.47   40: 100.00
# ```
#
# With none: all three arrive. A test that only asks whether training ends well finds no slip.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked; and after one push all four differ.
assert all(abs(eamsgd(40, **slip)[40] - 100) < 1 for slip in variants.values())
assert len({round(eamsgd(1, **slip)[1]) for slip in variants.values()}) == 4
assert abs(eamsgd(40, late_E=True) - eamsgd(40)).argmax() == 1  # widest after the first push
assert np.allclose([eamsgd(1, late_E=True)[1], eamsgd(1)[1]], [27.9, 20.1], atol=0.05)

# %% [markdown]
# The late `E` is farthest from the equation after the first push. **Fixed:** the equation, term by
# term, with `w_k` and `w` read before either of them moves. A test compares a *single* update with the
# equation.
#
# ## Data and runs that tell nothing
# Another common slip: all T local steps use the *same mini-batch*. Constant data do not show it: here
# every pixel is 1, and every label is 0.


# %% jupyter={"source_hidden": true}
def accuracy_and_w(constant, same_batch, pushes=100, T=10, lr=0.1):
    """Returns the test accuracy in percent after each push, and w at the end."""
    data, test_data = (x, y), (x_test, y_test)
    if constant:
        data, test_data = [(np.ones_like(a), np.zeros_like(b)) for a, b in (data, test_data)]

    def gradient(w_k, number):
        if same_batch:
            number = number // T * T
        return tf.gradients(course.loss(w_k, *course.batch(*data, number, size=8)), w_k)

    def test(w):
        return [100 * course.accuracy(w, *test_data), w]

    tested, _ = train(course.variables, gradient, lr, T, pushes, test=test)
    return np.array([accuracy for accuracy, _ in tested]), tested[-1][1]


# %% jupyter={"source_hidden": true}
runs = {(c, same): accuracy_and_w(c, same) for c in (True, False) for same in (False, True)}
for (constant, same), (curve, _) in runs.items():
    data, kind = "constant" if constant else "digits", "the same batch" if same else "T batches"
    print("%-9s %-15s accuracy after 1, 20, 100 pushes:" % (data, kind), end=" ")
    print(*["%.0f%%" % accuracy for accuracy in curve[[0, 19, 99]]])
equal = [np.array_equal(a, b) for a, b in zip(runs[True, False][1], runs[True, True][1])]
print("constant data: the same w at the end, to the last bit:", all(equal))

# %% [markdown]
# On the digits the wrong program learns, too, although it has seen 43% of the examples instead of
# nearly all. At the end this costs 3 points of accuracy (one run of each), which show only beside
# the right curve. For your own tests, therefore:
# - use examples that differ, and mini-batches that differ from step to step;
# - compare *single updates* with the equation, with slots and local copies;
# - compare the whole curve with a right one, not one number at the end.

# %% jupyter={"source_hidden": true}
# The answer, checked: right is ahead on the digits, and the share of the rows that each has seen.
assert all(equal) and (runs[False, False][0][19:] > runs[False, True][0][19:]).mean() > 0.8
with tf.Graph().as_default(), tf.Session() as session:
    number = tf.placeholder(tf.int64, [])
    rows = session.make_callable(course.batch(x, np.arange(len(x)), number, size=8)[1], [number])
    shares = [len(set(np.ravel([rows(i) for i in range(0, 1000, j)]))) / len(x) for j in (1, 10)]
assert shares[0] > 0.99 and round(100 * shares[1]) == 43

# %% [markdown]
# ## Exercises
# **1. The lucky T.** ★☆☆ Mistake 5, on the bowl with `lr` = 0.1, on paper: with which T does the wrong
# window hit the minimum in one push? From which T on does `w` run away?
#
# <details><summary>Hint</summary>
#
# By which factor does one wrong push multiply the distance to 100?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "the answer is two numbers: (T that hits, first T that runs away)"
    hits, runs_away = answer
    if hits != 10:
        return "one push at T = %s takes w to %g, not to 100" % (hits, 10 * hits)
    if runs_away == 20:
        return "at T = 20 w jumps between 0 and 200 for ever, but it does not run away"
    factor = abs(1 - 0.1 * runs_away)
    if factor <= 1:
        return "at T = %s each push multiplies the distance by %.2g: w arrives" % (
            runs_away,
            factor,
        )
    if runs_away != 21:
        return "w runs away at T = %s, but also at a smaller T" % runs_away


# %%
# Your answer to exercise 1: (T that hits the minimum, first T that runs away)
answer_1 = ...

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# One wrong push multiplies the distance to 100 by 1 − `lr` T: by 0 for T = 10, by −1 for T = 20, and
# by a number below −1 from T = 21 on, so that the distance grows.
#
# ```python
# answer_1 = 10, 21
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. A test that finds all.** ★★★ Write a function that returns whether `step` is the elastic step of
# EAMSGD, on a bowl with its minimum at 40: False for each of the three slips. Compute the right result
# from the equation.
#
# <details><summary>Hint</summary>
#
# Which slip can you not see if `v` is 0? Which, if you compare only `w`, or only the sum `w + w_k`?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""

    def step(w, w_k, v):  # eamsgd_step has its minimum at 100, this one at 40
        w, w_k, v = eamsgd_step(w + 60, w_k + 60, v, True, **slip)
        return w - 60, w_k - 60, v

    for name, slip in variants.items():
        verdict = answer(step)
        if verdict is None:
            return "your test returns nothing: return True or False"
        if name == "the equation" and not verdict:
            return "your test refuses the right step, whose minimum is at 40"
        if name != "the equation" and verdict:
            return "your test accepts a program with this slip: %s" % name


# %%
# Your answer to exercise 2
def answer_2(step):
    """Returns whether a step is right. step(w, w_k, v) gives the new w, w_k, v.

    It is the last of T steps on this bowl, with lr = 0.15, delta = 0.9 and alpha = 0.3.
    """
    raise NotImplementedError


check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# With `v` = 0 the look-ahead is invisible. The late `E` does not change the sum `w + w_k`, and `w` alone
# does not depend on `v`. So: a state in which all three differ, and all three results.
#
# ```python
# def answer_2(step):
#     E = 0.3 * (70 - 20)
#     v = 0.9 * 5 - 0.15 * (70 + 0.9 * 5 - 40)
#     return np.allclose(step(20.0, 70.0, 5.0), [20 + E, 70 + v - E, v])
#
# assert check_2(answer_2)
# ```
#
# </details>

# %% [markdown]
# ## The project of part two
# Two worker processes train the digits with asynchronous elastic averaging. The folded `worker.py` has
# their server, the shared `w` and `step`, the gradient and the loop. You write the algorithm, which it
# imports.

# %% jupyter={"source_hidden": true}
# %%writefile worker.py
import course
import tensorflow.compat.v1 as tf
from answer import answer_project

task = course.task()
x, y, _, _ = course.load()


def gradient(w_k, t):
    return tf.gradients(course.loss(w_k, *course.batch(x, y, t, worker=task.k)), w_k)


with tf.device("/job:ps/task:0"):
    w = course.variables()
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
with tf.device(task.me):
    window = answer_project(w, step, gradient)

pushes = 0
with tf.Session(task.server.target, config=task.limits) as session:
    session.run(tf.local_variables_initializer())
    try:
        while True:
            session.run(window)
            pushes += 1
    except tf.errors.OutOfRangeError:
        print(pushes)

# %% [markdown]
# **Project. AEASGD from its equation.** ★★★ Each worker keeps its own `w_k` for the whole run; it
# begins as `w`. Of the T steps of a window, T − 1 are plain SGD, alone. At the last one:
#
# $$E = \alpha (w_k - w), \quad w_k \leftarrow w_k - lr \cdot g(w_k) - E, \quad w \leftarrow w + E$$
#
# `E` and `g` are both taken at the `w_k` before that step. Write `answer_project`, which builds one
# window. The check compares two windows of it with the equation, on a bowl; then it runs two
# processes. HogWild reads `w` and sends an update for each gradient: which share of this traffic is left?
#
# <details><summary>Hint</summary>
#
# 1. `w_k` are local variables with `initializer=v.read_value()`; a local counter of windows gives each
#    step its own mini-batch.
# 2. Compute the T − 1 moved copies as tensors, as `train` does, and the last gradient there.
# 3. Read `w`, compute `E`, take a ticket with `tf.count_up_to(step, pushes)`, which raises
#    `OutOfRangeError` when all are taken; only then assign `w_k` and `w`. Each "then" is a control
#    dependency.
#
# </details>

# %% jupyter={"source_hidden": true}
import inspect
import pathlib
import textwrap


def on_paper(late_E=False, keep=True, same_batch=False, restart=False, last_step=True, force=True):
    """Returns w after each of two windows of AEASGD on a bowl; by default as in the equation."""
    w, w_k, found = 0.0, 0.0, []
    for window in range(2):
        w_k = w_k if keep else w
        for t in range(3):
            number = (0 if restart else 3 * window) + (0 if same_batch else t)
            E, g = 0.3 * (w_k - w), w_k - 100 - 7 * number
            w_k = w_k - 0.1 * g if last_step or t < 2 else w_k
        E = 0.3 * (w_k - w) if late_E else E
        w, w_k = w + E, w_k - E if force else w_k
        found.append(w)
    return found


slips = {
    "E is taken after the last step; the equation takes it before": {"late_E": True},
    "each window begins at w; a worker must keep its own w_k": {"keep": False},
    "all steps of a window use the same mini-batch": {"same_batch": True},
    "the second window uses the mini-batches of the first": {"restart": True},
    "the last local step does not reach w_k: see mistake 6": {"last_step": False},
    "w_k does not feel E: the spring must pull at both ends": {"force": False},
}


def on_the_bowl(build):
    """Returns w after each of two windows of an answer; raises OutOfRangeError in the third."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = [tf.get_variable("w", initializer=0.0)]
        step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))

        def gradient(w_k, t):
            return [w_k[0] - 100 - 7 * tf.cast(t, tf.float32)]

        window = build(w, step, gradient, T=3, alpha=0.3, lr=0.1, pushes=2)
        session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        found = []
        try:
            while len(found) < 3:
                session.run(window)
                found.append(session.run(w[0]))
        except tf.errors.OutOfRangeError:
            pass
        return found


@course.exercise
def check_project(answer):
    """What is wrong in words, or None."""
    found = on_the_bowl(answer)
    if len(found) != 2:
        return "for pushes=2 it made %d pushes; take a ticket before each" % len(found)
    for slip, changed in slips.items():
        if np.allclose(found, on_paper(**changed), rtol=1e-4):
            return slip
    if not np.allclose(found, on_paper(), rtol=1e-4):
        return (
            "on a bowl w is %.2f and %.2f after two windows; by the equation it is %.2f and %.2f"
            % (
                *found,
                *on_paper(),
            )
        )
    heading = "import course\nimport numpy as np\nimport tensorflow.compat.v1 as tf\n\n\n"
    text = textwrap.dedent(inspect.getsource(answer))
    pathlib.Path("answer.py").write_text(heading + text)
    cluster = course.new_cluster(ps=1, worker=2)
    limit = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=40_000)
    ps = tf.train.Server(cluster, job_name="ps", task_index=0, config=limit)
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w = course.variables()
        step = tf.get_variable("step", initializer=tf.constant(0, tf.int64))
        accuracy = course.accuracy(w, x_test, y_test)
        with tf.Session(ps.target, config=limit) as session:
            session.run(tf.global_variables_initializer())
            workers = [course.start("worker.py", cluster, "worker", k) for k in (0, 1)]
            made = [int(course.finish(worker)) for worker in workers]
            steps, share = session.run([step, accuracy])
    print("Worker 0 made %d pushes, worker 1 %d." % tuple(made), end=" ")
    print("w recognises %.0f%% of the test digits." % (100 * share))
    if not sum(made) == steps == 100:
        return "together the workers must make 100 pushes, and the step is %d" % steps
    if share < 0.9:
        return "w recognises less than 90% of the test digits"


# %%
# Your answer to the project
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    """Builds one window of a worker, and returns its op. It may use tf, np and course.

    w: the variables on the ps. step: the counter of pushes, there, too.
    gradient(w_k, t): g at a list of tensors, on this worker's mini-batch number t = 0, 1, 2, ...
    pushes: how many all workers make together.
    """
    raise NotImplementedError


check_project(answer_project)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
#     own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
#     windows = tf.get_local_variable("windows", initializer=tf.constant(0, tf.int64))
#     first = windows.read_value() * T
#     w_k = [v.read_value() for v in own]
#     for t in range(T - 1):
#         w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, first + t))]
#     g = gradient(w_k, first + T - 1)
#     with tf.control_dependencies(g):  # w as late as possible
#         E = [alpha * (c - v.read_value()) for c, v in zip(w_k, w)]
#     with tf.control_dependencies(E):
#         ticket = tf.count_up_to(step, pushes)
#     with tf.control_dependencies([ticket]):
#         return tf.group(
#             windows.assign_add(1),
#             *[o.assign(c - lr * d - e) for o, c, d, e in zip(own, w_k, g, E)],
#             *[v.assign_add(e) for v, e in zip(w, E)],
#         )
#
# assert check_project(answer_project)
# ```
#
# A tenth: 100 windows read and send 2,410 parameters each, 482,000 in all, where HogWild's
# 1,000 updates need 4.82 million.
#
# </details>
#
# **T local steps for a GPT.** [Your-Model](../Your-Model/) trains a small GPT under any script
# here: under AEASGD by `bash ../Your-Model/run.sh gpt.py AEASGD --local-steps 10`. Without
# arguments, `run.sh` takes [DiLoCo](../Further-Algorithms/DiLoCo/). Its two workers
# wait for each other, and take T = 50 steps of AdamW (Adam with weight decay) between two messages.
# After 50 windows, 90 s, a byte of unseen text cost 1.97 bits; a uniform guess costs 8. (One run,
# on two cores.) With 137,216 parameters a worker pushed 27 MB; a push after each of its 2,500
# gradients would have made 1.4 GB.

# %% jupyter={"source_hidden": true}
# What the text says of the GPT, checked.
import json

W, parameters = 64, 137_216
block = 4 * W + 4 * (W * W + W) + (4 * W * W + 4 * W) + (4 * W * W + W)  # two norms, attention, MLP
assert parameters == (256 * W + 64 * W) + 2 * block + 2 * W + (256 * W + 256)
path = course.HERE.parent / "Your-Model" / "results.json"
if path.exists():
    gpt = json.loads(path.read_text())
    found = gpt["example"], gpt["workers"], gpt["updates"], gpt["arguments"]["local_steps"]
    assert found == ("DiLoCo", 2, 50, 50)
    assert (round(gpt["test_bits_per_byte"], 2), round(gpt["seconds"])) == (1.97, 90)
assert round(4 * parameters * 50 / 1e6) == 27 and round(4 * parameters * 2500 / 1e9, 1) == 1.4

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Zhang, Choromanska, LeCun 2015, [Deep learning with Elastic Averaging
#   SGD](https://arxiv.org/abs/1412.6651): mistake 8 and the project.
#
# **Elsewhere:** PyTorch executes each line, so mistake 6 cannot happen there. The others can, in JAX as
# well, and `torch.testing.assert_close` or `numpy.testing` on a single update finds them.
#
# Next: [Synchronous-Replicas](Synchronous-Replicas.ipynb), where workers wait for each other.
