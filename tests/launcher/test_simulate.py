"""The simulator against closed forms, committed measurements and published points.

Every tolerance was written down before the run that it judges: 3.5 standard errors of twelve runs,
or what the check says.
"""

import functools
import itertools
import json
import math
import re
import statistics

import numpy as np
import pytest
import run_files
import support
from lab import delays, learn, step_cost
from tfrun.commands.plan import command
from tfrun.runs import summary
from tfrun.simulate import cost, laws, plan, schemes

RUNS = 12


def within(what, known, value, tolerance):
    """Asserts that something is as it is known to be, to this share."""
    assert abs(value - known) <= tolerance * abs(known), (
        f"\n{what}: {value:.5g}, not {known:.5g}: {value / known - 1:+.1%} (±{tolerance:.2%})"
    )


def close(what, known, simulate, runs=RUNS):
    """Asserts that the mean of simulate(seed) over so many runs is within 3.5 standard errors."""
    values = [simulate(seed) for seed in range(runs)]
    error = np.std(values, ddof=1) / math.sqrt(runs)
    assert error < 0.02 * known, f"\n{what}: {runs} runs say little, ±{error / known:.1%}"
    within(what, known, np.mean(values), 3.5 * error / known)


# Closed forms ------------------------------------------------------------------------------------


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def dropped_step(n, needed):
    """Returns the seconds of a step where late gradients are computed to their end.

    A Markov chain, for exponential times with mean 1: `late` workers compute for an older step,
    `done` have reported for this one.
    """
    E = [0.0] * (n - needed + 1)  # for done = needed: the step is over
    for done in range(needed - 1, -1, -1):
        new = []
        for late in range(n - needed + 1):
            on = n - done - late
            value = 1 / (n - done)
            value += late / (n - done) * new[late - 1] if late else 0
            value += on / (n - done) * E[late] if on > 0 else 0
            new.append(value)
        E = new
    return E[n - needed]


def repairman(n, Z, S, visits=1):
    """Returns updates a second of n workers that compute Z and wait S for so many servers.

    All times exponential: mean-value analysis, exact.
    """
    queue = 0.0
    for k in range(1, n + 1):
        R = S * (1 + queue)  # an arrival sees the queue of k - 1 workers
        X = k / (Z + visits * R)
        queue = X * R
    return X


def maximum_of_sums(n, T):
    """Returns E[max of n sums of T exponential times] / T."""
    x = np.linspace(0, T + 12 * math.sqrt(T) + 30, 40001)
    term, whole = np.exp(-x), np.zeros_like(x)
    for i in range(T):
        whole += term
        term = term * x / (i + 1)
    return np.trapezoid(1 - np.clip(1 - whole, 0, 1) ** n, x) / T


def exponential(n, seed, updates=600):
    return laws.step_times("exponential", n, updates, seed=100 + seed)


def step(n, seed, needed=None, late="dropped"):
    """Returns the simulated seconds of a synchronous step."""
    trace = schemes.synchronous(exponential(n, seed), needed, late)
    return (needed or n) / schemes.rate(trace)


def test_the_last_of_n():
    """The latest of n exponential times takes H_n, of constant ones 1; one waits for none.

    Catches: one stream of times for all workers, and a step that does not wait for its last
    worker.
    """
    for n in (1, 2, 16, 100):
        close(f"H_{n}", harmonic(n), lambda seed, n=n: step(n, seed))
    constant = schemes.synchronous(np.ones((200, 100)))
    within("constant", 100, schemes.rate(constant), 1e-9)


def test_backup_workers():
    """Cancelled H_n - H_{n-N}; computed to the end more, by a Markov chain; kept as cancelled.

    Catches: a late worker that joins at once, and a next gradient that takes the same time.
    """
    four = harmonic(100) - harmonic(4)
    close("cancelled 96 of 100", four, lambda seed: step(100, seed, 96, "cancelled"))
    close("kept 96 of 100", four, lambda seed: step(100, seed, 96, "kept"))
    within("chain", 3.226, dropped_step(100, 96), 1e-3)  # not 3.104
    for n, needed in ((100, 96), (8, 7)):
        known = dropped_step(n, needed)
        close(f"dropped {needed} of {n}", known, lambda seed, n=n, m=needed: step(n, seed, m))
    assert dropped_step(2, 1) == 0.75


def test_k_batch():
    """25 of 100 gradients of any version make a step in K / n.

    Catches: versions that count gradients instead of steps.
    """

    def simulated(seed):
        return 25 / schemes.rate(schemes.asynchronous(exponential(100, seed), gather=25))

    close("K / n", 0.25, simulated)
    trace = schemes.asynchronous(exponential(8, 0), gather=4)
    within("staleness in steps", 7 / 4, schemes.staleness(trace).mean(), 0.15)


def test_local_steps():
    """Of sums of T times the latest takes less than T times that of one: E[max of sums] / T.

    Catches: sums of T - 1 times.
    """
    for T in (10, 40):

        def simulated(seed, T=T):
            times = laws.local_steps(exponential(16, seed, 100 * T), T)
            return 16 / T / schemes.rate(schemes.synchronous(times))

        close(f"T = {T}", maximum_of_sums(16, T), simulated)


def queue(n, seed, **more):
    """Returns the updates in the time of a service, a tenth of a gradient's."""
    times = exponential(n, seed, 6000 // n)
    return schemes.rate(schemes.queued(times, law="exponential", seed=seed, **more)) / 10


def test_servers():
    """One ps is the machine repairman's queue; four make the latest of four; more wait less.

    Catches: a server that is never busy, one queue for pulls and pushes, and servers that each
    serve all of w.
    """
    for n in (4, 16, 64):
        known = repairman(n, 1, 0.1) / 10
        close(f"queue, {n} workers", known, lambda seed, n=n: queue(n, seed, push=0.1))
    known = repairman(12, 1, 0.1, 2) / 10
    close("two queues", known, lambda seed: queue(12, seed, pull=0.1, push=0.1))
    known = 1 / (10 + harmonic(4))
    close("the latest of 4", known, lambda seed: queue(1, seed, push=0.4, servers=4))
    few = exponential(16, 3, 400)
    several, one = (
        schemes.rate(schemes.queued(few, push=s, servers=P)) for s, P in ((0.4, 4), (0.1, 1))
    )
    within("4 ps", one, several, 1e-9)


def test_laws():
    """The mean of each law, its coefficient of variation, and its workers' own streams.

    Catches: a mean that is not 1, a variance for a coefficient of variation, times that depend
    on n, and one slowness for all workers.
    """
    variations = {"constant": 0, "jitter": 0.05, "exponential": 1, "gamma": 0.3}
    variations["lognormal"] = math.sqrt(math.exp(0.25) - 1)
    for law in laws.LAWS:
        times = [laws.step_times(law, 65, 400, seed=seed)[:, :-1] for seed in range(RUNS)]
        if law != "constant" and law != "one slow":
            close(f"mean, {law}", 1, lambda seed, times=times: times[seed].mean())
        if law in variations:
            within(f"variation, {law}", variations[law], np.std(times), 0.02)
        few, many = (laws.step_times(law, n, 5)[:, :8] for n in (9, 300))
        assert np.array_equal(few, many), f"\nstreams, {law}: they depend on n"
    times = laws.step_times("one slow", 3, 2)
    assert times.tolist() == [[1, 1, 5]] * 2
    listed = laws.step_times([1, 2, 6], 200, 200)
    within("mean, a list", 3, listed.mean(), 0.02)
    assert set(listed.ravel()) == {1, 2, 6}
    within("mean, a list that is set", 0.5, laws.step_times([1, 2, 6], 200, 200, 0.5).mean(), 0.02)
    within("variation, gamma at 1", 1, laws.step_times("gamma", 50, 2000, shape=1).std(), 0.02)
    slow = laws.step_times("constant", 2000, 3, slowness=0.3)
    assert (slow == slow[0]).all(), "\npersistent: a worker's slowness changes"
    within("persistent, mean", 1, slow.mean(), 0.03)
    within("persistent, spread", 0.3, np.log(slow[0]).std(), 0.06)


def test_staleness():
    """n - 1 for all laws and with a queue; E[1 / (tau + 1)] = ln n / (n - 1); 0 of one worker.

    Catches: a version that is too new, and a worker's own pushes in its staleness.
    """
    several = ["constant", "exponential", "lognormal", "heavy-tailed", "pauses", "one slow"]
    for law in several:
        trace = schemes.asynchronous(laws.step_times(law, 16, 3000, seed=4))
        within(f"n - 1, {law}", 15, schemes.staleness(trace).mean(), 0.01)
        if law == "lognormal":
            spans = [(trace.push - trace.pull)[trace.worker == k] for k in range(16)]
            rates = summary.staleness_by_rates(spans, trace.push[-1])
            within("n - 1, by rates", 15, rates, 0.01)
    trace = schemes.queued(laws.step_times("exponential", 16, 800, seed=4), push=0.1)
    within("n - 1, a queue", 15, schemes.staleness(trace).mean(), 0.02)
    long = laws.step_times("exponential", 8, 20000, seed=5)
    late = schemes.staleness(schemes.asynchronous(long))
    within("geometric", math.log(8) / 7, (1 / (late + 1)).mean(), 0.01)
    two = schemes.staleness(schemes.asynchronous(long[:, :2] * [1, 3]))
    within("two speeds", 0.7614, (1 / (two + 1)).mean(), 0.01)
    one = schemes.staleness(schemes.asynchronous(long[:50, :1]))
    assert not one.any(), "\none worker: it is late"
    # A trap: a pull that sees all pushes of its own instant.
    push = np.cumsum(np.ones((500, 16)), 0)
    same = schemes.in_order(push - 1, push, np.ones((500, 16), bool))
    within("ties", 7.5, schemes.staleness(same).mean(), 0.01)


def test_bounded_staleness():
    """At most s + 1 apart, staleness at most (2 s + 1)(n - 1); s = 0 waits for all.

    Catches: a bound that is off by one, and a worker that knows at once that it may go on.
    """
    times = laws.step_times("exponential", 16, 1200, seed=6)
    for s in (0, 1, 4):
        trace = schemes.bounded(times, s)
        counts, apart = np.zeros(16, int), 0
        for k in trace.worker:
            counts[k] += 1
            apart = max(apart, counts[k] - counts.min())
        assert apart == s + 1, f"\napart, s = {s}: {apart}"
        most = schemes.staleness(trace).max()
        assert most <= (2 * s + 1) * 15, f"\nat most, s = {s}: {most}"
    rate = schemes.rate(schemes.bounded(times, 0))
    within("s = 0", 16 / harmonic(16), rate, 0.03)
    free = schemes.rate(schemes.bounded(times, 10**6))
    within("no bound", schemes.rate(schemes.asynchronous(times)), free, 1e-9)
    asked = schemes.rate(schemes.bounded(times, 0, lambda waited: waited + 0.5))
    assert asked < 0.95 * rate, "\nnotice: asking takes no time"


def test_gossip():
    """Others average once with w during a gradient, whatever n is; what disagreement is left.

    Catches: a worker's own averaging in what came late, and a worker that is its own partner.
    """
    for law in ("exponential", "lognormal"):
        pairs = schemes.gossip(laws.step_times(law, 64, 600, seed=7))
        assert (pairs.worker != pairs.partner).all(), "\npartner: oneself"
        within(f"late, {law}", 1, pairs.late[6400:].mean(), 0.02)
        w = np.random.default_rng(0).normal(size=(64, 2000))
        w -= w.mean(0)
        before = (w**2).sum()
        for k, j in zip(pairs.worker[-640:], pairs.partner[-640:]):
            w[k] = w[j] = (w[k] + w[j]) / 2
        # Each averaging is that of any worker, or each worker's about once (Jelasity 2005).
        known = (1 - 1 / 63) ** 64 if law == "exponential" else 0.5 * math.exp(-0.5)
        within(f"disagreement, {law}", known, ((w**2).sum() / before) ** 0.1, 0.05)
    near = schemes.gossip(np.ones((20, 9)), ring=True)
    assert set((near.worker - near.partner) % 9) == {1, 8}
    alone = schemes.gossip(np.ones((20, 1)))
    assert alone.push.tolist() == list(range(1, 21)) and not alone.late.any()


def test_a_lost_worker():
    """It stops those who wait for it, costs others its own gradients only, and comes back.

    Catches: a loss of another worker, and one that never comes back.
    """
    times = laws.lost(np.ones((100, 4)), 2, 40, 50)
    ends = {
        "synchronous": (schemes.synchronous(times), 150),
        "bounded": (schemes.bounded(times, 3), 100 + 50 - 3),
        "a backup": (schemes.synchronous(times, 3), 100),
        "asynchronous": (schemes.asynchronous(times), 100),
    }
    for name, (trace, end) in ends.items():
        within(f"lost, {name}", end, trace.push[-1], 0.03)
    trace = ends["asynchronous"][0]
    gradients = trace.worker.tolist().count(2)
    assert gradients == 50, f"\nlost, its gradients: {gradients}"
    late = schemes.staleness(trace)[trace.worker == 2].max()
    assert late > 140, f"\nlost, its staleness: {late}"
    back = ends["a backup"][0]
    dropped = (back.step[back.worker == 2] < 0).sum()
    assert dropped == 1, f"\nlost, dropped: {dropped}"


NONSENSE = {
    "no worker": lambda: laws.step_times("constant", 0, 5),
    "a negative mean": lambda: laws.step_times("constant", 2, 5, -1),
    "NaN": lambda: laws.step_times("constant", 2, 5, math.nan),
    "half an update": lambda: laws.step_times("constant", 2, 2.5),
    "True workers": lambda: laws.step_times("constant", True, 5),
    "no law": lambda: laws.step_times("weekly", 2, 5),
    "no mean": lambda: laws.step_times("heavy-tailed", 2, 5, shape=1),
    "an empty list": lambda: laws.step_times([], 2, 5),
    "a list with 0": lambda: laws.step_times([1, 0], 2, 5),
    "negative slowness": lambda: laws.step_times("constant", 2, 5, slowness=-1),
    "negative times": lambda: schemes.asynchronous(-np.ones((3, 2))),
    "times of NaN": lambda: schemes.synchronous(np.full((3, 2), np.nan)),
    "no times": lambda: schemes.gossip(np.ones((0, 2))),
    "flat times": lambda: schemes.bounded(np.ones(3), 1),
    "a negative bound": lambda: schemes.bounded(np.ones((3, 2)), -1),
    "3 of 2": lambda: schemes.synchronous(np.ones((3, 2)), 3),
    "late ones eaten": lambda: schemes.synchronous(np.ones((3, 2)), 1, "eaten"),
    "no server": lambda: schemes.queued(np.ones((3, 2)), servers=0),
    "a negative push": lambda: schemes.queued(np.ones((3, 2)), push=-1),
    "a negative pause": lambda: schemes.asynchronous(np.ones((3, 2)), pause=-1),
    "no local step": lambda: laws.local_steps(np.ones((3, 2)), 0),
    "too many local steps": lambda: laws.local_steps(np.ones((3, 2)), 4),
    "nobody lost": lambda: laws.lost(np.ones((3, 2)), 2, 0, 1),
    "one moment": lambda: schemes.rate(schemes.asynchronous(np.ones((1, 2)))),
    "no bandwidth": lambda: cost.ring(2, 1e6, 0),
    "bytes of NaN": lambda: cost.ring(2, math.nan, 1e9),
    "negative latency": lambda: step_cost.tree(2, 1e6, 1e9, -1),
    "no machine": lambda: step_cost.hierarchical(0, 8, 1e6, 1e9),
    "no compute": lambda: step_cost.between(0, 1),
    "a rate of 0": lambda: learn.follow(
        schemes.asynchronous(np.ones((3, 1))), 1, np.ones((4, 2)), np.arange(4) % 2, None, 0, 3
    ),
}


def test_nonsense():
    """Refused by ValueError with one line.

    Catches: 0 where a number must be above it, and times of NaN.
    """
    for name, call in NONSENSE.items():
        try:
            call()
        except Exception as error:
            good = isinstance(error, ValueError) and str(error) and "\n" not in str(error)
            assert good, f"\nnonsense, {name}: {error!r}"
        else:
            raise AssertionError(f"\nnonsense, {name}: it is not refused")


# Costs -------------------------------------------------------------------------------------------


def test_costs():
    """The cost model's terms, by hand: bytes of a link, messages, what overlaps.

    Catches: all of S in each message, half of a ring, communication that hides behind all of
    c, and a tree of one piece.
    """
    # 4 workers, 8 MB, 1 MB/s, 1 s a message.
    known = {
        "ring": (cost.ring(4, 8e6, 1e6, 1), 12 + 6),
        "halving": (step_cost.halving_doubling(4, 8e6, 1e6, 1), 12 + 4),
        "tree": (step_cost.tree(4, 8e6, 1e6, 1), 2 * 2 * 9),
        "tree in 8 pieces": (step_cost.tree(4, 8e6, 1e6, 1, 8), 2 * (2 + 7) * 2),
        "hierarchical": (step_cost.hierarchical(2, 2, 8e6, 1e6, 1, 4e6), 2 + 8 + 2),
        "gathered": (step_cost.gather(4, 8e6, 1e6, 1), 3 * 9),
        "ZeRO 3": (step_cost.sharded(4, 8e6, 1e6, 1, 5), 18 + 45),
        "ps, together": (cost.ps_together(4, 8e6, 1e6, 1), 64 + 2),
        "ps, in turn": (cost.ps_in_turn(4, 8e6, 1e6, 1, 2), 20 + 2),
        "local": (step_cost.local(2, 5, 10), 2.5),
        "least": (step_cost.between(3, 5)[0], 3 + 3),
        "most": (step_cost.between(3, 5)[1], 8),
        "asynchronous": (step_cost.ps_asynchronous(4, 2, 8e6, 1e6, 1)[0], 8),
        "in step": (step_cost.ps_asynchronous(4, 2, 8e6, 1e6, 1)[1], 68 / 4),
    }
    for name, (value, due) in known.items():
        within(f"cost, {name}", due, value, 1e-9)
    for name in ("ring", "halving_doubling", "tree", "gather", "sharded"):
        assert getattr(step_cost, name)(1, 8e6, 1e6, 1) == 0, f"\ncost, {name} of one worker"
    table = step_cost.schemes(64, 0.262, 102.2e6, 1.25e9, 5e-5)
    assert all(0.262 <= low <= high for low, high in table.values()), f"\ncost, ranges: {table}"
    first, *_ = step_cost.first_to_change(64, 0.262, 102.2e6, 1.25e9, 5e-5)
    assert first == "full overlap", f"\ncost, the first: {first}"


# Learning ----------------------------------------------------------------------------------------


def problem():
    """Returns inputs and labels, of a made-up problem with 3 classes."""
    random = np.random.RandomState(0)
    y = np.arange(240) % 3
    x = random.normal(size=(240, 6)).astype(np.float32) + np.eye(3, 6)[y].astype(np.float32)
    return np.hstack([x, np.ones((240, 1), np.float32)]), y


def test_learning():
    """Each trace's updates, one by one in float64; a synchronous step is one of the union.

    Catches: gradients at the newest w instead of the one that was pulled, and local steps of
    several workers that add up.
    """
    x, y = problem()
    n, lr = 5, 0.5
    times = laws.step_times("exponential", n, 12, seed=3)
    rows = learn.rows_of(n, 12, len(x))

    def g(w, batch):
        z = np.exp(x[batch].astype(float) @ w)
        p = z / z.sum(1, keepdims=True) - np.eye(3)[y[batch]]
        return x[batch].T.astype(float) @ p / len(batch)

    for name, trace, local in (
        ("asynchronous", schemes.asynchronous(times), 1),
        ("synchronous", schemes.synchronous(times), 1),
        ("K-async", schemes.synchronous(times, 3, "kept"), 1),
        ("a backup", schemes.synchronous(times, 4), 1),
        ("3 local steps", schemes.asynchronous(laws.local_steps(times, 3)), 3),
    ):
        W, counts = [np.zeros((7, 3))], [0] * n
        changes = {}
        for k, version, step in zip(trace.worker, trace.version, trace.step):
            w = W[version]
            for t in range(local):
                w = w - lr * g(w, rows[k, counts[k] * local + t])
            counts[k] += 1
            if step >= 0:
                changes.setdefault(step, []).append(w - W[version])
            if step >= 0 and len(changes[step]) == (trace.step == step).sum():
                W.append(W[-1] + np.mean(changes[step], axis=0))
        points = learn.follow(trace, n, x, y, rows, lr, trace.push[-1], local)
        due = [learn.loss(w, x, y) for w in W]
        assert points[0] == (0.0, pytest.approx(math.log(3)))
        losses = [loss for _, loss in points]
        near = [min(abs(exact - loss) for exact in due) for loss in losses]
        assert max(near) < 1e-4 and len(points) > 3, f"\nlearning, {name}: {max(near)}"
    pairs = schemes.gossip(laws.step_times("lognormal", n, 60))
    rows = learn.rows_of(n, 60, len(x))
    points, own = learn.follow_pairs(pairs, n, x, y, rows, lr, 60)
    assert points[-1][1] < 0.95 and own < 1, f"\nlearning, gossip: {points[-1][1]}, {own}"


# Published points --------------------------------------------------------------------------------

MEASUREMENTS = support.ROOT / "Measurements"
PUBLISHED = json.loads((MEASUREMENTS / "Scale-Laboratory" / "published.json").read_text())


def communication(point):
    """Returns the seconds of communication of a published step."""
    more = {"P": point["P"]} if point["by"].startswith("ps") else {}
    B = point["gigabits"] * 1e9 / 8
    return getattr(step_cost, point["by"])(point["n"], point["megabytes"] * 1e6, B, **more)


def test_published_efficiencies():
    """All lie between no overlap and a full one, two points allowed; two numbers fit most.

    Catches: another share of communication that is hidden, and half of a ring.
    """
    errors = []
    for point in PUBLISHED["efficiencies"]:
        c, x = point["c"], communication(point)
        high, low = (c / seconds for seconds in step_cost.between(c, x))
        inside = low - 0.02 <= point["efficiency"] <= high + 0.02
        assert inside, f"\nrange, {point['case']}: {low:.1%} to {high:.1%}"
        if not point["case"].endswith("128 GPUs"):  # which the two numbers were fitted to
            errors.append(c / step_cost.fitted(c, x) / point["efficiency"] - 1)
    within("points, not fitted", 25, len(errors), 0)
    within("fitted, median error", 0.022, np.median(np.abs(errors)), 0.05)
    within("fitted, within 5%", 14, np.sum(np.abs(errors) <= 0.05), 0)
    within("fitted, the worst, a miss", 0.277, max(errors, key=abs), 0.05)


def test_published_steps():
    """Local steps and gossip, from two figures of each source; each point has its tolerance.

    Catches: communication after each of T local steps.
    """
    for point in PUBLISHED["steps"]:
        value = step_cost.local(point["compute"], point["communication"], point["T"])
        within(f"step, {point['case']}", point["seconds"], value, point["allowed"])
    steps = []
    for row in PUBLISHED["utilizations"]:
        for used, wanted in zip(row["utilization"], row["gigabits"]):
            # All of S hides behind one whole step of T.
            value = row["gigabits_of_S"] / (row["T"] * row["c"] * (1 / used - 1) + row["c"])
            steps.append(math.log(value / wanted) / math.log(1.21))
    assert (len(steps), sum(abs(step) <= 2 for step in steps)) == (34, 33)


def test_published_servers():
    """A ps is known within a factor of two, but for VGG-16: that is a miss.

    Catches: bytes that cross a ps's link one way only.
    """
    for point in PUBLISHED["servers"]:
        n, P, c = point["n"], point["P"], point["c"]
        S, B = point["megabytes"] * 1e6, point["gigabits"] * 1e9 / 8
        workers = n * c / (c + cost.ps_together(n, 3 / 4 * S, B, P=P))
        ratio = workers / point["times_one_gpu"]
        limits = (8, 9) if point["case"].startswith("VGG") else (1 / 2, 2)
        assert limits[0] < ratio < limits[1], f"\nservers, {point['case']}: {workers:.1f}"


# Scaling, replayed with each run's own delays --------------------------------------------------

MEAN = 0.07  # seconds of a delay there
TOGETHER = ("Synchronous-SGD", "SAGN", "Ring-AllReduce")
ALONE = ("DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "SAGN")  # ten local steps
# There a fast worker takes the place of a slow one: not modelled.
NOT_MODELLED = "optimizer, a backup"
# Misses in staleness: workers with equal times fall into step, so that fewer pushes lie between.
# Those of eight do after ten local steps each.
IN_STEP = re.compile("4 workers, one slow|8 workers, (constant|one slow): DOWNPOUR-Easy")


def results_of(folder):
    return json.loads((MEASUREMENTS / folder / "results.json").read_text())


def middle(runs, key):
    return statistics.median(run[key] for run in runs)


@functools.cache
def drawn(delay, mean, n, seed, rows):
    """Returns the seconds that a measured run drew for each gradient, [rows, n]."""
    columns = [itertools.islice(delays.draws(delay, mean, k, n, seed), rows) for k in range(n)]
    return np.array([list(column) for column in columns]).T


def replay(name, n, delay, seed, batches, own, gap=0.0):
    """Returns (mini-batches/s, mean staleness) of a measured run's draws, simulated.

    own: seconds of an update beside the delays, of which `gap` are between push and pull; they are
    exponential, with these means.
    """
    T, together = 10 if name in ALONE else 1, name.split(",")[0] in TOGETHER
    needed = n - name.endswith("a backup") if together else 1
    updates = max(8 if name == "SAGN" else 20, batches // T // needed)
    rows = updates + 1 if together else min(updates, 6 * updates // n + 40)
    times = laws.local_steps(drawn(delay, MEAN, n, seed, rows * T), T)
    vary = np.random.default_rng([seed, n]).exponential
    times, pause = times + vary(own - gap, times.shape), vary(gap, times.shape)
    if together:
        trace = schemes.synchronous((times + pause)[:updates], needed)
        return schemes.rate(trace) * T, 0
    # All wait, after their first push, for that of the last worker.
    trace = schemes.asynchronous(times[1:], pause=pause[1:])
    push = np.concatenate([np.zeros(n), trace.push])[:updates]
    late = np.concatenate([np.arange(n), schemes.staleness(trace)])[:updates]
    began = push[updates // 10]
    first = np.searchsorted(push, began)
    return (updates - 1 - first) * T / (push[-1] - began), late.mean()


def beside(results, name):
    """Returns the seconds of an update beside the delay, of one worker alone."""
    seconds = []
    for seed, run in enumerate(results[f"1 worker, exponential: {name}"], 1):
        updates = max(20, run["batches"])
        times = drawn("exponential", MEAN, 1, seed, updates)
        seconds.append(1 / run["batches_per_second"] - times[1 + updates // 10 :].mean())
    return statistics.median(seconds)


def replayed(chosen):
    """Yields (case, measured and simulated mini-batches/s, measured and simulated staleness).

    Four numbers are fitted, to rows with one and two workers.
    """
    results = results_of("Scaling")
    own = {name: beside(results, name) for name in ("Synchronous-SGD", "Ring-AllReduce")}
    alone = 1 / middle(results["1 worker, constant: HogWild"], "batches_per_second") - MEAN
    late = middle(results["2 workers, exponential: HogWild"], "staleness_by_rates")
    gap = (1 - late) * (MEAN + alone)
    for case, runs in results.items():
        cluster, name = case.split(": ")
        n, delay, first = int(cluster.split()[0]), cluster.split(", ")[1], name.split(",")[0]
        if NOT_MODELLED in name or not chosen(case):
            continue
        seconds = own.get(first, alone)
        between = gap if n > 1 and first not in TOGETHER else 0
        replays = [
            replay(
                name.replace(", the optimizer", ""),
                n,
                delay,
                seed,
                run["batches"],
                seconds,
                between,
            )
            for seed, run in enumerate(runs, 1)
        ]
        rates = [rate / run["batches_per_second"] for (rate, _), run in zip(replays, runs)]
        measured = 0 if first in TOGETHER or n == 1 else middle(runs, "staleness_mean")
        yield case, statistics.median(rates) - 1, measured, statistics.median(s for _, s in replays)


def check_replays(chosen):
    """Rates within 12%, staleness within 10%, but for workers that fall into step."""
    errors, late = [], []
    for case, error, measured, simulated in replayed(chosen):
        assert abs(error) <= 0.12, f"\nrate, {case}: {error:+.1%}"
        errors.append(error)
        if measured and not IN_STEP.match(case):
            within(f"staleness, {case}", measured, simulated, 0.1)
            late.append(simulated / measured - 1)
    return errors, late


def test_some_replays():
    """With jitter beside the delay, as measured: without it eight would make more.

    Catches: a version that is too new behind a pause, and a step that ends with its first
    gradient.
    """
    some = (
        "8 workers, constant: ",
        "16 workers, exponential: HogWild",
        "2 workers, exponential: Sync",
    )
    errors, _ = check_replays(lambda case: case.startswith(some))
    assert len(errors) == 6, f"\nrate, replayed: {len(errors)}"


@pytest.mark.long
def test_all_replays():
    """As the page of Scale-Laboratory says: 50 rates, their median error; staleness of 16 cases."""
    errors, late = check_replays(lambda case: True)
    assert len(errors) == 50 and np.median(np.abs(errors)) < 0.012 and max(map(abs, errors)) < 0.05
    assert len(late) == 16 and np.median(np.abs(late)) < 0.006
    missed = [
        simulated / measured for case, _, measured, simulated in replayed(IN_STEP.match) if measured
    ]
    assert min(missed) > 1.1 and max(missed) > 1.3  # each is too high: no other is left out


LOOKS = np.cumsum([0] + [min(0.0005 * 2**i, 0.02) for i in range(400)])


def asked(waited):
    """Returns seconds until a worker of Bounded-Staleness knows: it looks after .5, 1, 2 ... ms."""
    return LOOKS[np.minimum(np.searchsorted(LOOKS, waited), 400)]


def test_replays_of_staleness():
    """Updates/s within 15%, mean staleness within 20%: 8 workers, 40 ms, of which 3.7 ms fitted.

    Catches: a bound that is off by one.
    """
    compared = 0
    for case, runs in results_of("Staleness").items():
        if "ahead" not in case and "no bound: HogWild" not in case:
            continue
        s = int(case.split("most ")[1].split()[0]) - 1 if "ahead" in case else 10**6
        delay, simulated = "one slow" if "slow" in case else "exponential", []
        for seed, _ in enumerate(runs, 1):
            times = drawn(delay, 0.04, 8, seed, 600) + 0.0037
            trace = schemes.bounded(times, s, asked)
            late = schemes.staleness(trace)[:1000].mean()
            simulated.append((schemes.rate(trace), late))
        rate, late = (statistics.median(column) for column in zip(*simulated))
        within(f"bounded, {case}", middle(runs, "updates_per_second"), rate, 0.15)
        within(f"bounded, {case}, late", middle(runs, "staleness_mean"), late, 0.2)
        compared += 1
    assert compared > 8


def test_a_slow_network():
    """A ring of two and four workers within 10%; two numbers are fitted to other rows.

    Catches: all of S in each message of a ring.
    """
    results, S = results_of("Slow-Network"), 68904

    def seconds(case):
        n = 4 if case.endswith("4 workers") else 2
        return n / middle(results[f"69 KB, {case}"], "batches_per_second")

    name = "Mbit/s: Ring-AllReduce"
    share = cost.ring(2, S, 1.25e6) / seconds(f"10 {name}")  # of a link that is payload
    own = seconds(f"1000 {name}") - cost.ring(2, S, share * 125e6)
    for case, n, B in (
        ("10 %s, 4 workers", 4, 1.25e6),
        ("100 %s", 2, 1.25e7),
        ("100 %s, 4 workers", 4, 1.25e7),
    ):
        value = own + cost.ring(n, S, share * B)
        within(f"ring, {case % name}", seconds(case % name), value, 0.1)


# A plan -----------------------------------------------------------------------------------------

SEND, PULL, MINI = 0.004, 0.002, 0.07  # seconds of a push, of a pull, of a gradient


def run_of(n, together, updates=1500, seed=1, law="exponential", T=1):
    """Returns (the rows {task: columns} of a simulated run, its mini-batches/s, its staleness)."""
    times = laws.step_times(law, n, updates, mean=MINI, seed=seed)
    if together:
        trace = schemes.synchronous(times + SEND + PULL)
        begin = trace.pull + PULL
        end = np.array([trace.push[trace.step == s].max() for s in range(trace.step[-1] + 1)])
        end = end[trace.step]
    else:
        trace = schemes.asynchronous(times + SEND, pause=PULL)
        begin, end = trace.pull, trace.push
    rows = {}
    for k in range(n):
        mine = trace.worker == k
        computed = times[: mine.sum(), k]
        rows[f"worker-{k}"] = {
            "push_time": end[mine],
            "pull_time": begin[mine],
            "wait_seconds": end[mine] - begin[mine] - computed,
            "global_step": trace.step[mine] + 1.0,
            "bytes": np.full(mine.sum(), 2e5),
            "local_steps": np.full(mine.sum(), float(T)),
        }
    return rows, schemes.rate(trace) * T, schemes.staleness(trace).mean()


def test_a_plan():
    """From two workers' rows: 8 and 16, as simulated from the law itself; links by hand.

    Catches: waits in a gradient's time, a median wait for the way of a push, both directions
    on one link, and updates that count as mini-batches.
    """
    for together in (False, True):
        what = "together" if together else "asynchronous"
        rows, *_ = run_of(2, together)
        run = plan.measured(rows, 1)
        assert run.together == together, f"\nplan, {what}: taken for the other"
        within(f"plan, {what}, a gradient", MINI, run.compute.mean(), 0.04)
        within(f"plan, {what}, a push", SEND, run.send, 0.01)
        within(f"plan, {what}, a pull", PULL, run.pull, 0.01)
        for n in (8, 16):
            _, rate, late = run_of(n, together, 800, seed=9)
            predicted = plan.predict(run, n)
            within(f"plan, {what}, {n} workers", rate, predicted["rate"][1], 0.05)
            assert predicted["rate"][0] <= predicted["rate"][1], (
                f"\nplan, {what}, lowest: {predicted}"
            )
            within(f"plan, {what}, shares", 1, sum(predicted["shares"].values()), 0.02)
            if not together:
                within(f"plan, {what}, staleness", late, predicted["staleness"][1], 0.05)
    rows, *_ = run_of(2, False, law="constant")
    run = plan.measured(rows, 1)
    # A link of 1 MB/s each way: the ps takes 0.1 s for a push, whatever the workers do.
    within("plan, a slow link", 10, plan.predict(run, 64, 1e6)["rate"][1], 0.01)
    within("plan, two ps", 20, plan.predict(run._replace(servers=2), 64, 1e6)["rate"][1], 0.01)
    ten = run._replace(batches=10)
    within("plan, mini-batches", 100, plan.predict(ten, 64, 1e6)["rate"][1], 0.01)
    changed = plan.first_to_change(run, 64, 1e6)
    assert list(changed)[0] == "ten times the local steps", f"\nplan, to change first: {changed}"
    four = plan.measured(run_of(4, True)[0], 1)
    within("plan, a push of four", SEND, four.send, 0.01)
    # Without a ps: 100 KB on a link with four workers are 3/2 of w; 16 send 15/8 of it.
    ring = plan.measured(run_of(4, True, law="constant")[0], 0)
    link = 15 / 8 * (1e5 / 1.5) / 1e5 + 30 * 0.01
    predicted = plan.predict(ring, 16, 1e5, 0.01)["rate"]
    within("plan, a ring", 16 / (MINI + SEND + PULL + link), predicted[1], 0.01)
    within("plan, a ring's messages", 16 / (MINI + 5 * (SEND + PULL) + link), predicted[0], 0.01)
    one = plan.predict(run, 1)
    within("plan, one worker", 1 / (MINI + SEND + PULL), one["rate"][1], 0.02)
    assert one["staleness"] == [0, 0], f"\nplan, one worker: {one}"
    slow = plan.predict(run._replace(lead=1, compute=np.array([0.05, 0.1])), 16)
    fast = plan.predict(run._replace(lead=9, compute=np.array([0.05, 0.1])), 16)
    assert slow["rate"][1] < 0.85 * fast["rate"][1], f"\nplan, a bound: {slow}, {fast}"
    assert plan.quantity("10Gbit/s", plan.BANDWIDTH) == 1.25e9
    assert plan.quantity("1.5 MB/s", plan.BANDWIDTH) == 1.5e6
    assert plan.quantity("0.1ms", plan.LATENCY) == pytest.approx(1e-4)


NONSENSE |= {
    "few rows": lambda: plan.measured({"worker-0": {"push_time": np.ones(3)}}, 1),
    "gossip": lambda: plan.measured({}, 0, 0, 0, "gossip, synchronous"),
    "no rows": lambda: plan.measured({}, 1),
    "another script's rows": lambda: plan.measured({"worker-0": {"push_time": np.ones(30)}}, 1),
    "no workers": lambda: plan.predict(a_run(), 0),
    "a negative rate": lambda: plan.predict(a_run(), 4, -1),
    "a latency of NaN": lambda: plan.predict(a_run(), 4, 1e6, math.nan),
    "a ring of one": lambda: plan.predict(a_run()._replace(n=1, servers=0, together=True), 4),
    "no ps and alone": lambda: plan.predict(a_run()._replace(servers=0), 4),
    **{
        f"a quantity {text!r}": lambda text=text: plan.quantity(text, plan.BANDWIDTH)
        for text in (
            "",
            "10",
            "Gbit/s",
            "-1Gbit/s",
            "nanbit/s",
            "10 apples",
            "1e400B/s",
            "10mbit/s",
        )
    },
}


def a_run():
    return plan.Run(2, 1, False, np.ones(50), 0.1, 0.1, 8.0, 1.0)


def plan_of(capsys, *arguments):
    """Returns (exit code, output, errors) of tfrun plan."""
    try:
        code = command([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    return code, *capsys.readouterr()


def write_run(folder, rows):
    """Writes the metrics of {task: {column: array}}."""
    for task, columns in rows.items():
        lines = [
            run_files.push(p, s, pull_time=q, wait_seconds=w, bytes=b)
            for p, q, w, s, b in zip(
                *(
                    columns[c]
                    for c in ("push_time", "pull_time", "wait_seconds", "global_step", "bytes")
                )
            )
        ]
        run_files.metrics(folder, task, *lines)


@pytest.mark.parametrize("name, together", [("backup_workers", True), ("max_lead", False)])
def test_a_plan_reads_the_flags_of_its_run(name, together, tmp_path, capsys):
    """Catches a flag that counts for nothing, and one that is needed: other scripts have none."""
    rates = []
    write_run(tmp_path, run_of(4, together)[0])
    for flags in {}, {name: 0}, {name: 1}:
        run_files.flags(tmp_path, arguments={"steps": 6, **flags})
        code, output, _ = plan_of(capsys, tmp_path, "--workers", "8", "--json")
        assert code == 0
        rates.append(json.loads(output)["rate"])
    assert rates[0] == rates[1] != rates[2]


def test_the_command(tmp_path, capsys):
    """Catches numbers that are not the simulator's, a plan without what it assumes."""
    run_files.flags(tmp_path)
    rows, *_ = run_of(2, False)
    write_run(tmp_path, rows)
    predicted = plan.predict(plan.measured(rows, 1), 16, 1.25e9, 1e-4)
    more = ("--workers", "16", "--bandwidth", "10Gbit/s", "--latency", "0.1ms")
    code, output, _ = plan_of(capsys, tmp_path, *more, "--json")
    given = json.loads(output)
    assert code == 0 and given["rate"] == pytest.approx(predicted["rate"], rel=1e-3)
    assert len(given["to_change"]) == 6
    code, output, _ = plan_of(capsys, tmp_path, *more)
    assert code == 0 and [line.split(":")[0].split()[0] for line in output.splitlines()] == [
        "measured",
        "assumed",
        "simulated",
        "a",
        "to",
    ]
    assert f"16 workers make {predicted['rate'][0]:,.1f} to {predicted['rate'][1]:,.1f}" in output
    assert "10Gbit/s and 0.1ms on top" in output


@pytest.mark.parametrize(
    "flags",
    [("--workers", "0"), ("--workers", "two"), ("--bandwidth", "fast"), ("--latency", "-1ms"), ()],
)
def test_what_the_command_refuses(flags, tmp_path, capsys):
    run_files.flags(tmp_path)
    run_files.metrics(
        tmp_path, "worker-0", *(run_files.push(10 + i, i) for i in range(1, 3 + 40 * bool(flags)))
    )
    code, output, errors = plan_of(capsys, tmp_path, *flags)
    assert code and not output and errors.startswith("tfrun: ") and errors.count("\n") == 1
