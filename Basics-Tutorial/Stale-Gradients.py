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
# # Stale gradients
# When gradients take random times, eight workers that wait for nobody compute nearly eight times as
# many mini-batches per second as one. Eight that wait for each other compute only three times as many
# ([Scaling](../Measurements/Scaling/)). What does the speed cost? While one worker computes, the
# others move the shared parameters, so its gradient belongs to parameters that no longer exist. You will
# be able to name the price of such *stale* gradients: how much smaller the learning rate must be.
#
# After this notebook you can:
# - compute the staleness of each push, for any order of pulls and pushes;
# - explain how a stale gradient takes `w` past the minimum, and why it limits the learning rate;
# - weigh what asynchronous workers lose per update against what they gain per second;
# - say when DynSGD's factor `1 / (tau + 1)` helps, and when it does not;
# - place bounded staleness between waiting always and never.
#
# **Before it:** [Multiple-Workers](Multiple-Workers.ipynb). **Time:** 50 minutes.

# %% [markdown]
# ## What staleness counts
# *Asynchronous SGD*, in this repository [HogWild](../HogWild/), subtracts each gradient from `w` as it
# is by then:
# ```
# pull    w_k <- w                  version: how many updates w has had
# push    w <- w - lr * g(w_k)      ticket: how many updates w has had just before this push
#         tau = ticket - version    staleness: updates by others since the pull
# ```
# ![Staleness. Worker 0 pulls version 0 of w and pushes first: staleness 0. Worker 1 has pulled version 0, too, and pushes after worker 0: staleness 1. Worker 0 has pulled version 1, and pushes after worker 1: staleness 1.](../docs/figures/staleness.svg)
#
# ## Workers that you drive
# In a real run the order of pulls and pushes is a race. Here you decide it: `play` makes the moves
# that you list. The loss is $\frac{1}{2} w^2$, a bowl with its minimum at 0, so the gradient at `w`
# is `w` itself.

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import collections
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, show

course.begin()


# %%
def play(moves, lr, factor=lambda tau: 1.0):
    """Makes moves such as "pull 0, push 0" on the bowl, from w = 4 on.

    factor(tau): what the step of a push is multiplied by.
    Returns a row for the start and for each move: (move, w, {k: w_k}, tau of a push).
    """
    w, updates = 4.0, 0
    copies, versions, taus = {}, {}, {}
    rows = [("start", w, {}, None)]
    for move in moves.split(", "):
        kind, k = move.split()
        if kind == "pull":
            copies[k], versions[k] = w, updates
        if kind in ("push", "ticket"):  # the first half of a push
            taus[k] = updates - versions[k]
            updates = updates + 1
        if kind in ("push", "move"):  # the second half
            w = w - lr * factor(taus[k]) * copies[k]
        rows.append((move, w, dict(copies), taus[k] if kind == "push" else None))
    return rows


def report(rows):
    for move, w, _, tau in rows:
        print("%-6s  w = %5.2f%s" % (move, w, "" if tau is None else "   tau = %d" % tau))


report(play("pull 0, push 0, pull 0, push 0", lr=0.8))

# %% [markdown]
# With one worker no push is stale, and each multiplies `w` by 1 − 0.8.
#
# **Predict:** now two workers pull before either of them pushes. Where is `w` after both have
# pushed: nearer to the minimum than 0.8, or farther away?

# %% tags=["predicted"]
BOTH_PULL = "pull 0, pull 1, push 0, push 1"
report(play(BOTH_PULL, lr=0.8))

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# start   w =  4.00
# pull 0  w =  4.00
# pull 1  w =  4.00
# push 0  w =  0.80   tau = 0
# push 1  w = -2.40   tau = 1
# ```
#
# Farther away, and on the other side. Worker 1's gradient is right for its copy, 4, but it is
# subtracted from 0.8.
#
# </details>
#
# The slope of the dashed tangent at a ring is the gradient that a worker has computed; the arrow is
# its step. In the last panel the slope is that of 4, but the step begins at 0.8.


# %% jupyter={"source_hidden": true}
def draw(rows):
    """The bowl after both pulls and after each push: w, the copies, and what the push does."""
    figure, panels = plt.subplots(1, 3, figsize=(7.5, 3.2), sharey=True, layout="constrained")
    bowl = np.linspace(-4.9, 4.9, 99)
    for panel, before, (move, w, copies, tau) in zip(panels, rows[1:], rows[2:]):
        panel.plot(bowl, bowl**2 / 2, color="lightgray", zorder=0)
        for k, color, size in ("1", ORANGE, 17), ("0", BLUE, 12):  # so that none hides another
            panel.plot(
                copies[k],
                copies[k] ** 2 / 2,
                "o",
                markersize=size,
                fillstyle="none",
                color=color,
                markeredgewidth=2,
            )
        panel.plot(w, w**2 / 2, "o", color="black", markersize=6)
        panel.text(0, 5.2, "w = %.1f" % w, ha="center")
        if tau is None:
            panel.set_title("both have pulled", fontsize=10.5)
        else:
            k = move[-1]
            color, at = (BLUE, ORANGE)[int(k)], copies[k]
            along = np.array([at - 1.9, at + 0.9])
            panel.plot(along, at**2 / 2 + at * (along - at), "--", color=color, linewidth=2)
            arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2.5}
            arrow.update(shrinkA=0, shrinkB=0)
            panel.annotate("", (w, -1.6), (before[1], -1.6), arrowprops=arrow)
            title = "worker %s pushes, tau = %d" % (k, tau)
            panel.set_title(title, color=color, fontsize=10.5)
        panel.set(xlabel="w", xticks=range(-4, 5, 2), yticks=[0, 5, 10], ylim=(-2.8, 12.5))
    panels[0].set_ylabel("loss")
    keys = [
        plt.Line2D([], [], marker="o", linestyle="", color="black", label="w on the ps"),
        plt.Line2D(
            [], [], marker="o", linestyle="", color=GRAY, fillstyle="none", label="a worker's copy"
        ),
        plt.Line2D([], [], linestyle="--", color=GRAY, label="slope there: the gradient"),
        plt.Line2D([], [], marker=">", color=GRAY, label="the step of the push"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=4, fontsize=9)
    return figure


hogwild = play(BOTH_PULL, lr=0.8)
assert np.isclose(hogwild[-1][1], -2.4)
show(
    draw(hogwild),
    "Three bowls. Both workers have pulled w = 4. Worker 0 pushes a step along the slope at 4 and "
    "takes w to 0.8. Worker 1 still has the slope at 4, pushes as far, and takes w past the "
    "minimum to minus 2.4.",
)

# %% [markdown]
# ## Round robin
# One order is convenient for theory: the workers take turns, and each pushes and at once pulls again.
#
# **Predict:** what is `tau` of each push? With `lr` = 1.2 one worker alone goes 4, −0.8, 0.16. Does
# `w` still converge to 0 with two workers taking turns?

# %% tags=["predicted"]
ALONE = "pull 0" + ", push 0, pull 0" * 24
IN_TURNS = "pull 0, pull 1" + ", push 0, pull 0, push 1, pull 1" * 12


def pushes_only(rows):
    """Returns w at the start and after each push, and tau of each push."""
    pushes = [row for row in rows if row[3] is not None]
    return np.array([4.0] + [row[1] for row in pushes]), [row[3] for row in pushes]


alone, _ = pushes_only(play(ALONE, lr=1.2))
in_turns, taus = pushes_only(play(IN_TURNS, lr=1.2))
print("taking turns, tau of the pushes:", *taus[:8], "...")
print("alone:        largest |w| of the last 6 is %.2f" % abs(alone[-6:]).max())
print("taking turns: largest |w| of the last 6 is %.2f" % abs(in_turns[-6:]).max())

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# taking turns, tau of the pushes: 0 1 1 1 1 1 1 1 ...
# alone:        largest |w| of the last 6 is 0.00
# taking turns: largest |w| of the last 6 is 33.98
# ```
#
# Every push but the first has `tau` = 1, because the other worker's push always comes between. `w`
# does not converge: it swings more and more widely.
#
# </details>
#
# When two take turns, the gradient is that of the step before: $w_{t+1} = w_t - lr \cdot w_{t-1}$. This
# converges only for `lr < 1`; without the delay, $w_{t+1} = w_t - lr \cdot w_t$ does for `lr < 2`.
# With 4 workers taking turns `lr` must stay below 0.45, and with 8 below 0.21. That is the price of staleness: *a
# learning rate that is good for one worker can be too large for two.*
#
# Real workers race, and some of their pushes are not stale at all. Whatever the order, the *mean*
# of `tau` is at most n − 1: an update adds 1 to the `tau` of each worker that has pulled and not
# yet pushed, and there are at most n − 1 others. A single `tau` has no limit, because a worker may
# sleep after its pull.

# %% jupyter={"source_hidden": true}
# The answer, checked.
assert taus == [0] + 23 * [1] and abs(in_turns[-6:]).max() > 4 > abs(alone[-6:]).max()


def largest_rate(n):
    """Up to which rate all roots z of z**n = z**(n - 1) - lr lie within the unit circle."""
    low, high = 0.0, 4.0
    for _ in range(30):
        lr = (low + high) / 2
        roots = np.roots([1, -1, *[0] * (n - 2), lr] if n > 1 else [1, lr - 1])
        low, high = (lr, high) if abs(roots).max() < 1 else (low, lr)
    return low


assert np.allclose([largest_rate(n) for n in (1, 2, 4, 8)], [2, 1, 0.45, 0.21], atol=0.006)

random = np.random.RandomState(0)
for n in 2, 3, 4:
    has_pulled, moves = set(), []
    for k in random.randint(n, size=1000):  # any order: it pulls, or it pushes what it has pulled
        moves.append("%s %d" % ("push" if k in has_pulled else "pull", k))
        has_pulled ^= {k}
    assert np.mean(pushes_only(play(", ".join(moves), lr=0.01))[1]) <= n - 1

# %% [markdown]
# ## DynSGD: the staler a push, the smaller its step
# [DynSGD](../DynSGD/) divides each step by its staleness plus one:
#
# $$w \leftarrow w - \frac{lr}{\tau + 1} \, g(w_k)$$


# %%
def dynsgd_factor(tau):
    return 1 / (tau + 1)


report(play(BOTH_PULL, 0.8, dynsgd_factor))
dynsgd_in_turns, _ = pushes_only(play(IN_TURNS, 1.2, dynsgd_factor))
print("taking turns: largest |w| of the last 6 is %.2f" % abs(dynsgd_in_turns[-6:]).max())
assert abs(dynsgd_in_turns[-1]) < 0.1

# %% [markdown]
# The stale push still passes the minimum, but only as far as −0.8. With two workers taking turns at
# the rate of 1.2, with which HogWild diverged, `w` converges. (There every push is equally stale, so you
# could have halved the rate yourself.)
#
# **A staleness that lies.** A push takes its ticket first and moves `w` a moment later. What if
# another worker pulls in between?

# %%
*_, before, after = play("pull 0, ticket 0, pull 1, move 0, push 1", lr=0.8)
print(
    "worker 1 has pulled %.1f and pushes onto %.1f: tau = %d"
    % (before[2]["1"], before[1], after[3])
)

# %% [markdown]
# It has missed an update and believes that it has missed none. In HogWild that is only a wrong
# number in a report, but in DynSGD it sets the learning rate. So DynSGD has a lock on the ps
# (`tf.CriticalSection`): version and `w` are read as one, ticket and move made as one.

# %% jupyter={"source_hidden": true}
# The answer, checked: the staleness is 0, although worker 1 has missed an update.
assert after[3] == 0 and before[2]["1"] != before[1]

# %% [markdown]
# ## The digits
# Now the network with 2,410 parameters, in NumPy. To try many cases fast, we prescribe the staleness:
# an update uses the gradient at the parameters of `tau` updates before. Each case trains five models,
# with first values and mini-batches of their own. The models of all learning rates stand in the same
# four arrays [rates, seeds, ...].

# %%
x, y, _, _ = course.load()
SEEDS = 5


def train(taus, rates, factor=lambda tau: 1.0):
    """Returns the losses on all training digits after an update for each staleness in `taus`.

    They are [rates, seeds], inf where training has failed.
    """
    rates, random = np.float32(rates), np.random.RandomState(0)
    firsts = [course.first_values(seed).values() for seed in range(SEEDS)]
    w = [np.stack([values] * len(rates)) for values in map(np.stack, zip(*firsts))]
    history = collections.deque([w], maxlen=16)  # history[-1 - tau] is w of tau updates before
    with np.errstate(all="ignore"):
        for t, tau in enumerate(taus):
            rows, tau = random.randint(len(x), size=[SEEDS, 32]), min(tau, t)
            g = course.numpy_gradient(history[-1 - tau], x[rows], y[rows])
            lr = rates * np.float32(factor(tau))
            moved = zip(history[-1], g, [lr[:, None, None, None], lr[:, None, None]] * 2)
            history.append([v - of_rate * d for v, d, of_rate in moved])  # weights, biases, ...
        found = course.numpy_loss(history[-1], x, y)
    return np.where(np.isfinite(found), found, np.inf)


# %% jupyter={"source_hidden": true}
def table(losses):
    """Prints the best rates; returns {case: medians of five} and {case: the best rate}."""
    medians = {case: np.median(of_case, axis=1) for case, of_case in losses.items()}
    best = {case: rates[np.argmin(of_case)] for case, of_case in medians.items()}
    names = {
        1: "one worker",
        "HogWild": "fast and slow, HogWild",
        "DynSGD": "fast and slow, DynSGD",
    }
    print("%36s  loss: median (range)" % "best rate")
    for case, of_case in losses.items():
        name = "%d equal workers" % case if case in (2, 4, 8) else names.get(case, case)
        of_best = of_case[np.argmin(medians[case])]
        spread = np.median(of_best), of_best.min(), of_best.max()
        print("%-27s %8.2f  %11.2f (%.2f to %.2f)" % (name, best[case], *spread))
    return medians, best


# %% [markdown]
# 300 updates at each of seven learning rates, in two kinds of clusters:
# - **equal workers**: 1, 2, 4 or 8 taking turns, so each push has staleness 0, 1, 3 or 7;
# - **a fast and eight slow workers**: the fast one makes every second update, with staleness 1. Each
#   slow one takes as long as 16 updates, so its pushes have staleness 15.
#
# **Predict:** how does the best rate, with the lowest median loss at the end, change with the number
# of equal workers? In the second cluster, which of HogWild and DynSGD reaches the lower loss, each at
# its best rate? Does it beat the fast worker alone, with its 150 updates?

# %% tags=["predicted"]
rates = 0.05 * 2.0 ** np.arange(7)
UNEQUAL = [1, 15] * 150
losses = {n: train([n - 1] * 300, rates) for n in (1, 2, 4, 8)}
losses["HogWild"] = train(UNEQUAL, rates)
losses["DynSGD"] = train(UNEQUAL, rates, dynsgd_factor)
losses["the fast one alone"] = train([0] * 150, rates)
medians, best = table(losses)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
#                            best rate  loss: median (range)
# one worker                      0.80         0.07 (0.05 to 0.13)
# 2 equal workers                 0.40         0.11 (0.09 to 0.21)
# 4 equal workers                 0.20         0.19 (0.15 to 0.31)
# 8 equal workers                 0.10         0.43 (0.39 to 0.54)
# fast and slow, HogWild          0.20         0.25 (0.21 to 0.83)
# fast and slow, DynSGD           1.60         0.15 (0.10 to 0.24)
# the fast one alone              0.80         0.14 (0.09 to 0.16)
# ```
#
# Each doubling of the workers halves the best of these rates; on the bowl it about halves the largest.
# With unequal workers DynSGD reaches the lower loss: the stale pushes forbid HogWild a large rate for
# *all* pushes, and DynSGD shortens only those. But it does about as well as the fast worker alone, and
# the seed decides which is ahead. DynSGD limits the harm of pushes as stale as these; here the
# work of the eight slow machines is worth nearly nothing.
#
# </details>

# %% jupyter={"source_hidden": true}
# The answer, checked. Each best rate lies within those that were tried.
lowest = {case: of_case.min() for case, of_case in medians.items()}
assert best[1] >= best[2] >= best[4] >= best[8] <= best[1] / 4
assert lowest["DynSGD"] < 0.8 * lowest["HogWild"]
assert 0.6 < lowest["the fast one alone"] / lowest["DynSGD"] < 1.5
assert all(rates[0] < rate < rates[-1] for rate in best.values())

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.1), sharey=True, layout="constrained")
for n, color in zip((1, 2, 4, 8), (GRAY, BLUE, PURPLE, ORANGE)):
    left.plot(rates, medians[n], ".-", color=color, label=n)
for name, color in ("HogWild", RED), ("DynSGD", GREEN), ("the fast one alone", GRAY):
    right.plot(rates, medians[name], ".-", color=color, label=name)
    right.fill_between(rates, losses[name].min(1), losses[name].max(1), color=color, alpha=0.15)
for ax, title in (left, "equal workers, HogWild"), (right, "a fast and eight slow"):
    ax.set(xscale="log", yscale="log", title=title, xlabel="learning rate", xticks=rates)
    ax.set(yticks=[0.1, 0.2, 0.5, 1, 2], ylim=(0.06, 4))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
left.set_ylabel("loss at the end, median of five")
left.legend(title="workers", loc="lower right", handlelength=1)
right.legend(loc="lower left", handlelength=1.2)
show(
    figure,
    "Loss at the end against the learning rate, medians of five. Left, equal workers with HogWild: "
    "the more workers, the lower the rate at which the loss jumps up. Right, a fast and eight slow "
    "workers, with bands from the lowest to the highest of five: DynSGD reaches a lower loss than "
    "HogWild, at higher rates, and the band of the fast one alone overlaps with that of DynSGD.",
)

# %% [markdown]
# (The fast one alone makes 150 updates, all others 300.) All this is the price per *update*. As
# long as the ps keeps up, n equal workers make n times as many updates in the same *time*:

# %%
in_time = train([7] * 2400, [best[8]])[0]
print("one worker, 300 updates:                  median loss %.2f" % lowest[1])
print("eight workers, 300 updates:               median loss %.2f" % lowest[8])
print("eight workers, the time of 300 by one:    median loss %.2f" % np.median(in_time))
assert np.median(in_time) < lowest[1]

# %% [markdown]
# Each update is worth less, but there are more of them, and here that pays. (One small model and equal
# times: no law.) [Scaling](../Measurements/Scaling/) measures this with real processes.
#
# ## Between always and never: bounded staleness
# HogWild never waits; synchronous training waits at each update. *Bounded staleness* (stale
# synchronous parallel) lies between: before its pull a worker waits while it is more than s
# updates ahead of the slowest.
#
# ![Three workers, s = 1: two of them make two updates, then wait after each for the slow third one.](../docs/figures/bounded.svg)
#
# Any other worker is at most s behind at the pull and at most s + 1 ahead at the push. So `tau` is
# at most (n − 1)(2s + 1). [Bounded-Staleness](../Further-Algorithms/Bounded-Staleness/) is the
# program, and [Staleness](../Measurements/Staleness/) measures it: on the digits, at a small rate,
# the bound costs waiting, and three runs show no gain.

# %% jupyter={"source_hidden": true}
# The answer, checked: the largest staleness in many updates of random order, with a bound s.
for n, s in (2, 0), (2, 1), (2, 2), (3, 1):
    random, largest, total = np.random.RandomState(1), 0, 0
    clocks, pulled = [0] * n, [None] * n  # updates of each worker; of all, when it has pulled
    for k in random.randint(n, size=20_000):
        if pulled[k] is not None:
            largest = max(largest, total - pulled[k])
            clocks[k], pulled[k], total = clocks[k] + 1, None, total + 1
        elif clocks[k] - min(clocks) <= s:
            pulled[k] = total
    assert largest <= (n - 1) * (2 * s + 1) and (n > 2 or largest == 2 * s + 1)

# %% [markdown]
# ## Exercises
# **1. The largest rate.** ★★★ Up to which learning rate do n workers taking turns still converge on the
# bowl? Find it with `play` and a bisection, or derive a formula.
#
# <details><summary>Hint</summary>
#
# By experiment, compare the largest of the last values of `|w|` with 4. For a formula, put
# $w_t = z^t$ into $w_{t+1} = w_t - lr \cdot w_{t-n+1}$, and look for the smallest `lr` with
# $|z| = 1$, so $z = e^{i\theta}$.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    found = {n: answer(n) for n in (1, 2, 3, 8)}
    if all(abs(lr - 2 / n) < 0.01 * lr for n, lr in found.items()):
        return "2 / n is right for one and two workers only; try three taking turns at 0.66"
    for n, lr in found.items():
        if not lr <= 1.03 * largest_rate(n):
            return "at your %.3f, %d taking turns diverge" % (lr, n)
        if lr < 0.97 * largest_rate(n):
            return "%d taking turns converge at %.3f, too, above your limit" % (n, 1.01 * lr)


# %%
# Your answer to exercise 1
def answer_1(n):
    """Returns the largest learning rate at which n workers taking turns converge."""
    raise NotImplementedError


check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# With $z = e^{i\theta}$ the equation is $z^{n-1} (1 - z) = lr$. Taking absolute values gives
# $lr = 2 \sin(\theta / 2)$. Taking arguments (angles) gives $(n - 1) \theta - (\pi - \theta) / 2 =
# 0$, so $\theta = \pi / (2n - 1)$. For large n the largest rate is close to $\pi / 2n$. (With a curvature
# $\lambda$ instead of 1, divide it by $\lambda$.)
#
# ```python
# def answer_1(n):
#     return 2 * np.sin(np.pi / (4 * n - 2))
#
# assert check_1(answer_1)
# ```
#
# </details>

# %% [markdown]
# **2. Change it, and say why.** ★☆☆ At its best rate DynSGD ends ahead of HogWild in the cluster with
# slow workers. Find a rate, the same for both, at which HogWild ends ahead: `train(UNEQUAL, [lr])`
# gives the losses of the five models. Why? DynSGD's 300 shortened steps together are
# as long as how many full ones?
#
# <details><summary>Hint</summary>
#
# Look at the two curves in the figure, and at both ends of the axis. By what does DynSGD multiply a step
# of staleness 1, and one of staleness 15?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    if np.shape(answer) != (2,):
        return "give two numbers: (a learning rate, the number of full steps)"
    lr, steps = float(answer[0]), float(answer[1])
    if not 0 < lr <= 10:
        return "the rate must be a number above 0, and not above 10"
    hogwild, dynsgd = (
        np.median(train(UNEQUAL, [lr], factor)) for factor in (lambda tau: 1.0, dynsgd_factor)
    )
    if not hogwild < dynsgd:
        return "at %g HogWild ends at %.2f and DynSGD at %.2f" % (lr, hogwild, dynsgd)
    if abs(steps - 300) < 1:
        return "the rate is right; but only HogWild makes 300 full steps"
    if 150 <= steps < 160:
        return "the rate is right; the fast worker's pushes have staleness 1, so they are halved"
    if not abs(steps - sum(map(dynsgd_factor, UNEQUAL))) <= 1:
        return "the rate is right; add up 1 / (tau + 1) over the 300 pushes of `UNEQUAL`"


# %%
# Your answer to exercise 2: (a learning rate, the number of full steps)
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = (0.05, 150 / 2 + 150 / 16)
#
# assert check_2(answer_2)
# ```
#
# At a small rate `w` is nearly the same 15 updates later, so all gradients are nearly as good as fresh
# ones. DynSGD shortens their steps all the same: in all it goes as far as about 84 full steps, HogWild
# as far as 300.
# ([Scaling](../Measurements/Scaling/) shows the same with real processes.)
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Ho et al. 2013, [Stale Synchronous Parallel Parameter
#   Server](https://papers.nips.cc/paper/4894-more-effective-distributed-ml-via-a-stale-synchronous-parallel-parameter-server):
#   bounded staleness.
# - Jiang, Cui, Zhang, Yu 2017, [Heterogeneity-aware Distributed Parameter
#   Servers](https://doi.org/10.1145/3035918.3035933): DynSGD.
# - Dutta et al. 2018, [Slow and Stale Gradients Can Win the
#   Race](https://arxiv.org/abs/1803.01113): error against time.
#
# **Elsewhere:** stale gradients live on in recommenders' embedding servers and in asynchronous
# reinforcement learning.
#
# Next: [Local-then-Global-Variables](Local-then-Global-Variables.ipynb), where a worker takes T steps
# between its pull and its push.
