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
# # Which algorithm?
# Which algorithm is the first to recognise 95% of the digits? That depends on how much the time of a
# gradient varies, and on what a message costs beside it: in one of the three cases here no group of
# workers beats one. You will be able to say which case is yours.
#
# A learning rate that suits one algorithm starves or breaks another. So nine algorithms race fairly: in
# each case each is tuned with the same budget, and then trains five times for the same seconds.
#
# After this notebook you can:
# - write nine algorithms as one rule with three choices;
# - compare algorithms fairly, and split a speed-up into hardware and statistical efficiency;
# - say how much times may vary before a barrier costs too much, and why the field left parameter
#   servers;
# - choose an algorithm for a situation, and give the reason.
#
# **Before it:** [Stale-Gradients](Stale-Gradients.ipynb),
# [Local-then-Global-Variables](Local-then-Global-Variables.ipynb),
# [Synchronous-Replicas](Synchronous-Replicas.ipynb), [Ring-AllReduce](Ring-AllReduce.ipynb).
# **Time:** 50 minutes.

# %% [markdown]
# ## One rule, three choices
# A worker pulls `w`, takes `T` local steps, and sums their gradients up in `a`. Then the shared `w`
# moves:
#
# $$w \leftarrow w - lr \cdot \frac{a}{d}$$
#
# Three choices make the algorithm: `T`; whether a step waits for all `n` workers and takes the mean
# of their `a`; and the divisor `d`, which may depend on the staleness `tau`. (**Notation:** the
# [glossary](GLOSSARY.md#notation)'s, and `d`.) [SAGN](../SAGN/) is Local-SGD whose mean change is divided by `T`. The figure has seven of the nine: a ring makes the steps of
# Synchronous-SGD, in another time, and one worker those of HogWild, never stale.
#
# ![Seven algorithms, seen from one worker. HogWild and DynSGD: pull, one gradient, push, again and again. DOWNPOUR-Easy and ADAG: pull, T gradients, push. What a push does: HogWild subtracts lr times g; DynSGD lr times g / (staleness + 1); DOWNPOUR-Easy lr times the sum a of T gradients; ADAG lr times a / T. With a barrier behind each push: Synchronous SGD subtracts lr times the mean of all g, Local-SGD lr times the mean of all a, SAGN lr times this mean / T.](../docs/figures/algorithms.svg)
#
# [AEASGD](../AEASGD/) is another family, in which a spring draws `w_k` and `w` together, and
# [DiLoCo](../Further-Algorithms/DiLoCo/) puts an optimizer at both ends of
# [Local-SGD](../Further-Algorithms/Local-SGD/).

# %%
# On Colab, first upload course.py, which is beside this notebook.
import course
import sys
import matplotlib.pyplot as plt
import numpy as np
from course import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, show
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(course.HERE.parent))  # of tfrun; on Colab upload its folder simulate, too
from tfrun.simulate import cost, laws, schemes

course.begin(graphs=False)

# %%
rules = {  # T, where a worker waits for all others, and the divisor d
    "one worker": (1, "nowhere", lambda T, tau: 1),
    "HogWild": (1, "nowhere", lambda T, tau: 1),
    "DynSGD": (1, "nowhere", lambda T, tau: tau + 1),
    "DOWNPOUR-Easy": (10, "nowhere", lambda T, tau: 1),
    "ADAG": (10, "nowhere", lambda T, tau: T),
    "Synchronous-SGD": (1, "ps", lambda T, tau: 1),
    "Ring-AllReduce": (1, "ring", lambda T, tau: 1),
    "Local-SGD": (10, "ps", lambda T, tau: 1),
    "SAGN": (10, "ps", lambda T, tau: T),
}

# %% jupyter={"source_hidden": true}
# The course's network in NumPy, with its parameters in one vector w; an array [rates, seeds, 2410]
# has many models.
threadpool_limits(1)  # so small matrices need one thread
np.seterr(all="ignore")  # at too high a rate numbers overflow
x, y, x_test, y_test = course.load()
final_data = x, y, x_test, y_test
tuning_data = x[:-360], y[:-360], x[-360:], y[-360:]  # the test examples stay unseen


def first_vector(seed):
    return np.concatenate([value.ravel() for value in course.first_values(seed).values()])


def layers(w):
    W1, b1, W2, b2 = np.split(w, [2048, 2080, 2400], axis=-1)
    models = w.shape[:-1]
    return W1.reshape(*models, 64, 32), b1, W2.reshape(*models, 32, 10), b2


def gradient(w, x, y):
    """Returns the gradient of the mean loss of each model's examples, a vector for each."""
    parts = course.numpy_gradient(layers(w), x, y)
    return np.concatenate([part.reshape(*w.shape[:-1], -1) for part in parts], axis=-1)


def test(w, x, y):
    """Returns the mean loss of these examples, 99 at most, and the share that is recognised."""
    _, scores = course.numpy_outputs(layers(w), x)
    loss, right = course.cross_entropy(scores, y), scores.argmax(axis=-1) == y
    return np.where(np.isfinite(loss), np.minimum(loss, 99), 99), right.mean(axis=-1)


# %% [markdown]
# ## A race on a simulated clock
# The gradients, the staleness and the losses below are real, those of the digits. Only the clock is
# simulated, so that eight workers do not disturb each other on a few cores. It is the one of
# [Scale-Laboratory](../Measurements/Scale-Laboratory/), and folded: `laws` draws how long each
# mini-batch of each worker takes, and `schemes` says who pushes when, and at which version of `w`. A
# worker's turn takes the time of its `T` gradients and of one exchange, with the server or around the
# ring. `race`, folded too, then trains by the rule.


# %% jupyter={"source_hidden": true}
eight = {  # the first case
    "n": 8,
    "seconds": 6,
    "law": "exponential",
    "shape": None,
    "mean": 0.03,
    "ps": 0.003,
    "ring": cost.ring(8, S=9640, B=1e9, a=0.0002),  # 2,410 numbers of 4 bytes
}


def clock(name, seed, case):
    """Returns who pushes when, and at which version of w, for more than the seconds of a race."""
    T, waits, _ = rules[name]
    n, exchange = case["n"], case["ring" if waits == "ring" else "ps"]
    if name == "one worker":
        n, exchange = 1, 0
    drawn = int(1.5 * case["seconds"] / case["mean"]) + 10 * T  # mini-batches of each worker
    times = laws.step_times(case["law"], n, drawn, case["mean"], seed, case["shape"])
    turns = laws.local_steps(times, T) + exchange
    return schemes.asynchronous(turns) if waits == "nowhere" else schemes.synchronous(turns)


# %% jupyter={"source_hidden": true}
def race(name, lr, seeds, case, data, tests=40):
    """Trains models [rates, seeds] by a rule; lr: the rates, [rates, 1, 1].

    Returns the seconds and the mini-batches at each test, and the models' losses and accuracies.
    """
    T, waits, divisor = rules[name]
    pushes, draws = clock(name, seeds[0], case), [np.random.RandomState(seed) for seed in seeds]

    def local_steps(w_k):
        """Returns the sum of T gradients, each of a new mini-batch at the moved w_k."""
        a = np.zeros_like(w_k)
        for _ in range(T):
            rows = np.array([random.randint(0, len(data[0]), 32) for random in draws])
            g = gradient(w_k, data[0][rows], data[1][rows])
            a, w_k = a + g, w_k - lr * g
        return a

    w = {0: np.array([[first_vector(seed) for seed in seeds]] * len(lr))}  # {version: models}
    oldest = np.minimum.accumulate(pushes.version[::-1])[::-1]  # that a later push begins at
    found, step, made = [(0, 0, *test(w[0], *data[2:]))], 0, 0
    together = 1 if waits == "nowhere" else case["n"]  # pushes that make a step
    for i in range(0, len(pushes.push), together):
        time = pushes.push[i : i + together].max()
        if time > case["seconds"]:
            break
        versions = pushes.version[i : i + together]
        a = np.mean([local_steps(w[version]) for version in versions], axis=0)
        w[step + 1] = w[step] - lr * a / np.float32(divisor(T, tau=step - versions[0]))
        step, made = step + 1, made + T * together
        w = {version: models for version, models in w.items() if version >= oldest[i]}
        if time >= len(found) * case["seconds"] / tests:
            found.append((time, made, *test(w[step], *data[2:])))
    found.append((case["seconds"], made, *test(w[step], *data[2:])))
    return [np.array(column) for column in zip(*found)]


# %% jupyter={"source_hidden": true}
def tune(case, runs):
    """Returns {algorithm: the median loss of some runs at each rate}."""
    lr, seeds = np.float32(rates)[:, None, None], range(10, 10 + runs)
    losses = {name: race(name, lr, seeds, case, tuning_data, tests=1)[2][-1] for name in rules}
    return {name: np.median(of_rates, axis=1) for name, of_rates in losses.items()}


def print_losses(tuned):
    print("%-16s" % "loss at lr", *["%7g" % lr for lr in rates])
    for name, losses in tuned.items():
        shown = [("*" if loss == min(losses) else "") + "%.3f" % loss for loss in losses]
        print("%-16s" % name, *["%7s" % loss for loss in shown])


# %% [markdown]
# ## What is fair?
# The first case is one of [Compare](../Measurements/Compare/), which runs the full examples as real
# processes: eight workers, whose gradients take 30 ms on average. Their times are exponential, so the
# slowest of eight needs 2.7 times the mean. An exchange with the server takes 3 ms. Around the ring
# it is 14 messages of 0.2 ms, about what one takes between two processes of a machine.
#
# Fair means that each algorithm gets the same budget: five runs at each of six rates, with other first
# values and mini-batches. The median loss of examples kept apart from training decides. (`T` is not
# tuned, and best rates are known to a factor of three. The last loss chooses the rate, and the time to
# 95% decides the race: another rate may arrive sooner, or more surely.)
#
# **Predict:** HogWild, DOWNPOUR-Easy, ADAG and DynSGD: which has the lowest best rate, and which may
# have a higher one?

# %% tags=["predicted", "measured"]
rates = 0.01, 0.03, 0.1, 0.3, 1, 3
tuned = tune(eight, runs=5)
print_losses(tuned)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
# loss at lr          0.01    0.03     0.1     0.3       1       3
# one worker         1.897   1.160   0.402   0.211  *0.178   2.345
# HogWild            0.501   0.227   0.156  *0.120   2.320   2.423
# DynSGD             1.572   0.676   0.259   0.170  *0.156   2.322
# DOWNPOUR-Easy     *0.742   1.810   2.312   2.751  11.785  36.753
# ADAG               1.985   1.358   0.477   0.219  *0.147   2.312
# Synchronous-SGD    2.171   1.839   0.935   0.361  *0.207   2.318
# Ring-AllReduce     2.168   1.833   0.921   0.353  *0.194   2.318
# Local-SGD          2.007   1.402   0.506   0.227  *0.142   2.309
# SAGN               2.401   2.277   2.016   1.426  *1.350   2.311
# ```
#
# DOWNPOUR-Easy has the lowest: seven late sums of ten gradients go so far that only 0.01, the edge
# of the search, does not break it. HogWild's best is lower than one worker's, because its gradients are stale by about seven; so
# coarse a grid does not tell how much lower. Because DynSGD divides by tau + 1 and ADAG by `T`, both
# still learn at a rate of 1, at which HogWild learns nothing.
#
# </details>

# %% jupyter={"source_hidden": true}
TARGET = 0.95


def finals(case, tuned):
    """Returns {algorithm: five runs at its best rate}."""
    runs = {}
    for name, losses in tuned.items():
        lr = np.float32(rates)[np.argmin(losses)].reshape(1, 1, 1)
        five = [race(name, lr, [seed], case, final_data) for seed in range(1, 6)]
        runs[name] = [np.transpose([column.ravel() for column in run]) for run in five]
    return runs


def reached(run):
    """Returns the seconds and the mini-batches after which a run reaches the target, or inf."""
    there = run[run[:, 3] >= TARGET]
    return there[0, :2] if len(there) else (np.inf, np.inf)


def table(runs, case):
    """Prints medians of five runs."""
    print("                    mini-    hardware       to 95%  statistical     seconds")
    print("                  batches  efficiency  mini-batches  efficiency     (range)")
    made_alone = np.median([run[-1, 1] for run in runs["one worker"]])
    needed_alone = np.median([reached(run)[1] for run in runs["one worker"]])
    for name, each in runs.items():
        made = np.median([run[-1, 1] for run in each])
        n = 1 if name == "one worker" else case["n"]
        print("%-16s %8d %11.2f" % (name, made, made / (n * made_alone)), end="")
        seconds, needed = np.median([reached(run) for run in each], axis=0)
        low, high = np.sort([reached(run)[0] for run in each])[[0, -1]]
        there = needed, needed_alone / needed, "%.2g (%.2g-%.2g)" % (seconds, low, high)
        print(" %13.0f %11.2f     %s" % there if needed < np.inf else "%14s" % "never")


# %% [markdown]
# ## Eight workers, slow gradients
# Now each algorithm trains five times at its best rate, with other seeds, and is tested with unseen
# digits. Its speed-up is `n` times two factors: *hardware efficiency*, the mini-batches made, divided by
# `n` times one worker's; and *statistical efficiency*, the mini-batches that one worker needs to 95%,
# divided by those needed here. (`inf`: a run that does not arrive.)
#
# **Predict:** which is the first to recognise 95% of them? Which are no faster than one worker?

# %% tags=["predicted", "measured"]
runs = finals(eight, tuned)
table(runs, eight)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
#                     mini-    hardware       to 95%  statistical     seconds
#                   batches  efficiency  mini-batches  efficiency     (range)
# one worker            198        1.00           134        1.00     4.2 (3.2-4.7)
# HogWild              1451        0.92           455        0.29     1.8 (0.9-2.7)
# DynSGD               1451        0.92           376        0.36     1.7 (1.1-3.2)
# DOWNPOUR-Easy        1540        0.97         never
# ADAG                 1540        0.97           740        0.18     3 (2.3-4.1)
# Synchronous-SGD       552        0.35           424        0.32     4.6 (3.6-inf)
# Ring-AllReduce        552        0.35           424        0.32     4.6 (3.6-5.8)
# Local-SGD             960        0.61           640        0.21     3.7 (2.9-4.8)
# SAGN                  960        0.61         never
# ```
#
# In the median HogWild and DynSGD are first, in half the time of one worker: they use the machines
# well, but each mini-batch teaches a third as much. Synchronous-SGD arrives no sooner than one
# worker. Because each step waits for the slowest of eight, its hardware efficiency is 0.35. And because
# the next rate that was tried, 3, breaks it, each mini-batch teaches only 0.32 as much: its speed-up
# is 8 · 0.35 · 0.32 = 0.9. ADAG and Local-SGD gain little, while DOWNPOUR-Easy and SAGN do not
# arrive: one goes too far, the other not far enough.
#
# </details>
#
# ## Eight equal workers
# Equal GPUs do not wait for each other that long: from step to step their times vary by a few percent.
# The law `jitter` makes a share of each time exponential, here 3%, and the rest constant. We tune with
# three runs a rate, and race again.
#
# **Predict:** which algorithms are now about as fast as HogWild, or faster?

# %% tags=["predicted", "measured"]
equal = {**eight, "law": "jitter", "shape": 0.03}
tuned_equal = tune(equal, runs=3)
runs_equal = finals(equal, tuned_equal)
table(runs_equal, equal)

# %% [markdown]
# <details><summary>Answer</summary>
#
# ```text
#                     mini-    hardware       to 95%  statistical     seconds
#                   batches  efficiency  mini-batches  efficiency     (range)
# one worker            199        1.00           136        1.00     4.1 (2.9-4.7)
# HogWild              1451        0.91           505        0.27     2.1 (1.8-2.7)
# DynSGD               1451        0.91           616        0.22     2.6 (2.1-3.3)
# DOWNPOUR-Easy        1520        0.95         never
# ADAG                 1520        0.95           820        0.17     3.3 (2.4-3.9)
# Synchronous-SGD      1384        0.87           424        0.32     1.8 (1.2-2.7)
# Ring-AllReduce       1392        0.87           424        0.32     1.8 (1.2-2.3)
# Local-SGD            1520        0.95           640        0.21     2.5 (2.1-3.1)
# SAGN                 1520        0.95         never
# ```
#
# Ring-AllReduce and Synchronous-SGD: their medians are the lowest, but their ranges overlap those
# of HogWild and DynSGD. The barrier now costs little, a hardware efficiency of 0.87 beside 0.91,
# and no gradient is stale, so they keep a rate of 1, where HogWild's falls to 0.1.
#
# </details>
#
# So the law of times decides. The folded cell changes only that law:


# %% jupyter={"source_hidden": true} tags=["measured"]
def rate(v, waits, n=8, steps=2000):
    """Returns mini-batches a second; v: the share of a time that is exponential."""
    law = ("jitter", v) if v else ("constant", None)
    turns = laws.step_times(law[0], n, steps, 0.03, 0, law[1]) + 0.003
    scheme = schemes.synchronous if waits else schemes.asynchronous
    return schemes.rate(scheme(turns))


shares = np.linspace(0, 1, 11)
rates_of = {waits: [rate(v, waits) for v in shares] for waits in (False, True)}
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
for waits, color, name in (False, BLUE, "asynchronous"), (True, PURPLE, "with a barrier"):
    axes.plot(shares, rates_of[waits], "o-", ms=4, color=color)
    axes.text(1.03, rates_of[waits][-1], name, color=color, va="center")
axes.set(xlabel="share of a gradient's time that is exponential", ylabel="mini-batches a second")
axes.set(ylim=(0, 270), xlim=(-0.03, 1.3))
show(
    figure,
    "Mini-batches a second of eight workers against the share of a gradient's time that is "
    "exponential. Asynchronous workers make about 240 whatever the share is; with a barrier they "
    "make as many if it is 0, and about 95 if it is 1.",
)
assert np.allclose(rates_of[False], 8 / 0.033, rtol=0.03)
assert abs(rates_of[True][0] / rates_of[False][0] - 1) < 0.02 and rates_of[True][-1] < 100

# %% [markdown]
# ## Two workers, fast gradients
# In truth a gradient of the examples' network takes 0.16 ms on a core, and an exchange with the ps 1.4 ms.
# Its ring takes 0.4 ms. We race again with these times and two workers for 0.2 s, tuned anew.

# %% tags=["measured"]
two = {**equal, "n": 2, "seconds": 0.2, "mean": 0.00016, "ps": 0.0014}
two["ring"] = cost.ring(2, S=9640, B=1e9, a=0.0002)
tuned_two = tune(two, runs=3)
runs_two = finals(two, tuned_two)
table(runs_two, two)

# %% [markdown]
# No median is below one worker's. HogWild, DynSGD and Synchronous-SGD spend nine tenths of their time
# on messages, the ring nearly three quarters. The algorithms with `T` = 10 make about as many
# mini-batches as one worker, but each teaches less. Local-SGD's range overlaps one worker's, and its
# loss ends as low.
#
# All three races, as the median of five runs; the bands go from the second to the fourth:

# %% jupyter={"source_hidden": true} tags=["measured"]
styles = {
    "one worker": ("black", "-"),
    "HogWild": (BLUE, "-"),
    "DynSGD": (RED, "-"),
    "DOWNPOUR-Easy": (GRAY, ":"),
    "ADAG": (GRAY, "-"),
    "Synchronous-SGD": (PURPLE, "-"),
    "Ring-AllReduce": (GREEN, "--"),
    "Local-SGD": (ORANGE, "-"),
    "SAGN": (GRAY, "--"),
}
figure, panels = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True)
for axes, some, case in zip(panels, (runs, runs_equal, runs_two), (eight, equal, two)):
    for name, each in some.items():
        color, line = styles[name]
        grid = np.linspace(0, case["seconds"], 80)
        losses = [np.interp(grid, run[:, 0], run[:, 2]) for run in each]
        low, median, high = np.sort(losses, axis=0)[1:4]
        if color != GRAY:
            axes.fill_between(grid, low, high, color=color, alpha=0.12, lw=0)
        axes.plot(grid, median, line, color=color, lw=1 if color == GRAY else 1.5, label=name)
    axes.set(yscale="log", ylim=(0.05, 3), xlabel="simulated seconds")
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
panels[0].set(title="eight, times vary", ylabel="test loss")
panels[1].set(title="eight, equal")
panels[2].set(title="two, fast gradients")
panels[2].legend(loc="center left", bbox_to_anchor=(1, 0.5))
show(
    figure,
    "Test loss of nine algorithms against simulated seconds, medians of five runs. Eight workers "
    "whose times vary: HogWild and DynSGD fall first, DOWNPOUR-Easy and SAGN stay high. Eight equal "
    "workers: the ring, Synchronous-SGD, HogWild and DynSGD fall together. Two workers with fast "
    "gradients: one worker alone and Local-SGD fall first. DOWNPOUR-Easy, ADAG and SAGN are gray.",
)

# %% [markdown]
# Here no two workers arrive clearly before one: *this model should not be distributed*. What pays
# depends on the ratio of gradient and message.

# %% jupyter={"source_hidden": true}
# The answers, checked.
arrived, arrived_equal, arrived_two = (
    {name: np.median([reached(run)[0] for run in each]) for name, each in some.items()}
    for some in (runs, runs_equal, runs_two)
)
assert 1.8 * max(arrived["HogWild"], arrived["DynSGD"]) < arrived["one worker"] < np.inf
assert arrived["Synchronous-SGD"] > 0.8 * arrived["one worker"]
assert arrived["DOWNPOUR-Easy"] == arrived["SAGN"] == np.inf
for name in ("Ring-AllReduce", "Synchronous-SGD"):
    assert arrived_equal[name] < 1.1 * min(arrived_equal["HogWild"], arrived_equal["DynSGD"])
    assert arrived_equal[name] < 0.6 * arrived_equal["one worker"]
assert arrived_two["one worker"] < 1.1 * min(arrived_two.values())
best_rates = {name: rates[int(np.argmin(losses))] for name, losses in tuned.items()}
assert best_rates["DOWNPOUR-Easy"] == 0.01 and best_rates["HogWild"] == 0.3
assert best_rates["one worker"] == best_rates["ADAG"] == best_rates["DynSGD"] == 1
assert rates[int(np.argmin(tuned_equal["HogWild"]))] == 0.1
assert rates[int(np.argmin(tuned_equal["Ring-AllReduce"]))] == 1
mini_batches = {
    name: np.median([reached(run)[1] for run in each]) for name, each in runs_two.items()
}
assert all(
    mini_batches[name] > mini_batches["one worker"] for name in rules if rules[name][0] == 10
)

# %% [markdown]
# ## Why the field left parameter servers
# In 2012 a cluster was thousands of unequal CPUs, and asynchronous parameter servers kept them busy.
# Four things have changed since:
#
# - **Equal GPUs.** A barrier costs them little, as in the second race. In
#   [Scaling](../Measurements/Scaling/) eight equal workers make 100 mini-batches a second with it, and
#   109 without.
# - **All-reduce.** Its links carry less than twice the model, and a single server's link `n` times.
# - **Large batches** train as well up to the critical batch, with a larger rate and a warm-up
#   ([SGD-by-Experiment](SGD-by-Experiment.ipynb)). Besides, you can repeat and debug synchronous runs,
#   while staleness lowers the best rate.
# - **Sharding** took over the servers' memory: under ZeRO 3 each worker serves its share of `w`.
#
# Asynchrony survives where waiting or sending is expensive:
# - in the tables of recommenders, whose [sparse](../Sparse-Embeddings/) pushes seldom collide;
# - in reinforcement learning, whose actors play at their own pace;
# - between data centres, as [Async-Local-SGD](../Further-Algorithms/Async-Local-SGD/).
#
# ## Which one to use
# Begin at the top, and stop at the first "yes":
#
# ![Decision chart. Is one device large and fast enough? If yes: do not distribute: Non-Distributed-Setup. Is the model too large for a device? If yes: Sharded-Training; then Model-Parallelism, Sparse-Embeddings. Do the devices of one machine suffice? If yes: Multiple-GPUs-Single-Machine. Are the machines equal, and do all stay? If yes: Collective-AllReduce; slow network: Local-SGD, DiLoCo. Is just one slow at a time? If yes: HogWild; DynSGD; with a backup: Synchronous-SGD. Do gradients cost far more than pulls? If yes: HogWild or Parameter-Server-Strategy; if unstable, DynSGD. Otherwise T steps between two messages, each tuned: DOWNPOUR-Easy, ADAG, AEASGD; if all stay, Local-SGD, at 100 Mbit/s sooner than ADAG.](../docs/figures/choose.svg)
#
# [Compare](../Measurements/Compare/#which-one-to-use-and-why) names measured rows behind this advice.

# %% [markdown]
# ## Exercises
# **1. The law of times.** ★★☆ Turn the dial `v` of `rate(v, waits)`, the share of a gradient's time
# that is exponential. With which `v` do eight workers behind a barrier make half as many mini-batches
# a second as asynchronous ones? (On paper: the longest of eight exponential times is on average
# 1 + 1/2 + ... + 1/8 = 2.72 times their mean.)
#
# <details><summary>Hint</summary>
#
# A step with a barrier takes the exchange, and of 30 ms the constant part and 2.72 times the
# exponential part. When is that twice 33 ms?
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_1(answer):
    """What is wrong in words, or None."""
    v = float(answer)
    if not 0 <= v <= 1:
        return "v is a share, from 0 to 1"
    share = rate(v, True) / rate(v, False)
    if abs(v - 0.033 / (0.03 * 2.718)) < 0.02:
        return "the constant part becomes shorter when v grows: 1 - v + 2.72 v, not 1 + 2.72 v"
    if not abs(share - 0.5) < 0.02:
        longer = "shorter" if share < 0.5 else "longer"
        return "with %g it is %.2f of them: the longest time must be %s" % (v, share, longer)


# %%
# Your answer to exercise 1
answer_1 = ...  # v

check_1(answer_1)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# longest = sum(1 / k for k in range(1, 9))
# answer_1 = (2 * 0.033 - 0.003 - 0.03) / (0.03 * (longest - 1))  # 0.64
#
# assert check_1(answer_1)
# ```
#
# Then a gradient's time has a standard deviation of 64% of its mean, which equal machines do not have.
# Half the speed is not half as good: the race counts what each mini-batch teaches, too.
#
# </details>

# %% [markdown]
# **2. Choose.** ★★☆ Name a folder of this repository for each situation. For d also give `T`,
# the fewest local steps with which exchanges take at most a tenth of the time.
#
# - a: 2,410 parameters learn in 5 s on a laptop; eight servers are idle
# - b: 30 billion parameters and Adam, on 64 equal GPUs of 80 GB with fast links
# - c: ResNet-50 fits into a GPU; two machines with eight equal GPUs each, for a week
# - d: two data centres, a billion parameters; a gradient takes 2 s, an exchange on their link 32 s
# - e: a gradient takes 1 to 20 s, at random; rented machines that may vanish
# - f: eight machines of which now one, now another is three times slower for a minute
#
# <details><summary>Hint</summary>
#
# Walk through the chart from the top. For b, compute 16 bytes a parameter, divided by 64. For d, a
# worker's turn takes `T` gradients and an exchange.
#
# </details>


# %% jupyter={"source_hidden": true}
@course.exercise
def check_2(answer):
    """What is wrong in words, or None."""
    both = {"Async-Local-SGD", "DOWNPOUR", "DOWNPOUR-Easy", "ADAG", "AEASGD", "AEAMSGD"}
    nobody_waits = both | {"HogWild", "DynSGD", "Parameter-Server-Strategy"}
    nobody_waits |= {"Bounded-Staleness", "Delay-Compensation", "Gossip-SGD"}
    rare = both | {"DiLoCo", "Local-SGD", "SAGN"}  # every T-th step
    all_reduces = {"Collective-AllReduce", "Compressed-AllReduce"}
    all_reduces |= {"Ring-AllReduce", "Horovod-RingAllReduce"}
    if "T" not in answer:
        return 'give T for d, too, as in {"a": "...", ..., "T": 10}'
    good = {
        "a": ({"Non-Distributed-Setup"}, "what would any message gain if training takes 5 s?"),
        "b": ({"Sharded-Training"}, "480 GB fit into no GPU, but a 64th of them does"),
        "c": (
            all_reduces,
            "equal GPUs need no staleness; which synchronous ways have no server?",
        ),
        "d": (
            rare,
            "after each gradient of 2 s an exchange of 32 s: who sends only every T steps?",
        ),
        "e": (nobody_waits, "a step that waits would take as long as the slowest, or for ever"),
        "f": (
            {"Synchronous-SGD"} | nobody_waits,
            "an all-reduce waits for the slow one; what can a step do without it?",
        ),
    }
    for situation, (folders, why) in good.items():
        if str(answer.get(situation)).strip("/ ").rpartition("/")[2] not in folders:
            return "in %s: %s" % (situation, why)
    T = float(answer["T"])
    if not T > 0:
        return "in d: T is a number of steps, at least 1"
    if T == 16:
        return "in d: with T = 16 exchanges take half of the time, not a tenth"
    if T == 160:
        return "in d: exchanges may take a tenth of the *whole* time, so a ninth of the gradients'"
    if not 32 / (32 + 2 * T) <= 0.1 + 1e-9:
        return "in d: with T = %g exchanges take %.1f%% of the time" % (T, 3200 / (32 + 2 * T))
    if T != 144:
        return "in d: with T = %g exchanges take less than a tenth; a smaller whole T will do" % T


# %%
# Your answer to exercise 2: {"a": "...", "b": "...", ..., "f": "...", "T": ...}
answer_2 = ...

check_2(answer_2)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer_2 = {
#     "a": "Non-Distributed-Setup",
#     "b": "Sharded-Training",
#     "c": "Collective-AllReduce",
#     "d": "DiLoCo",
#     "e": "HogWild",
#     "f": "Synchronous-SGD",
#     "T": 144,
# }
#
# assert check_2(answer_2)
# ```
#
# In b, 16 bytes · 30 billion / 64 = 7.5 GB for each GPU, and activations come on top. In d, 32 / (32 +
# 2 T) ≤ 0.1 gives T ≥ 144; DiLoCo's authors take 500, and whether so long a window still trains well
# only a run can tell. In f, a backup worker makes the slow gradient superfluous. The check accepts more
# than one folder for c to f: in c any all-reduce, for instance.
#
# </details>

# %%
# Stop what this notebook started.
course.end()

# %% [markdown]
# ## Read more
# - Dean et al. 2012, [Large Scale Distributed Deep
#   Networks](https://papers.nips.cc/paper/2012/hash/6aca97005c68f1206823815f66102863-Abstract.html):
#   DOWNPOUR, and thousands of unequal machines.
# - Chen et al. 2016, [Revisiting Distributed Synchronous SGD](https://arxiv.org/abs/1604.00981): the
#   turn away from asynchrony.
# - Shallue et al. 2019, [Measuring the Effects of Data Parallelism](https://arxiv.org/abs/1811.03600):
#   why conclusions depend on how rates were tuned.
#
# **Elsewhere:** PyTorch has Collective-AllReduce as DDP, Sharded-Training as FSDP, and Local-SGD as
# its post-local SGD optimizer; JAX has the first two as shardings.
#
# Next: [Input-Pipelines](Input-Pipelines.ipynb), the first of part four.
