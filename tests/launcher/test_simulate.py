"""The simulator against closed forms, its costs, and its learning.

Every tolerance was written down before the run that it judges: 3.5 standard errors of twelve runs,
or what the check says.
"""

import math

import numpy as np
import pytest
from lab.measure import learn, step_cost
from support import within
from tfrun.runs import summary
from tfrun.simulate import cost, laws, plan, schemes

RUNS = 12


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
    times = laws.lose_worker(np.ones((100, 4)), 2, 40, 50)
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
    "nobody lost": lambda: laws.lose_worker(np.ones((3, 2)), 2, 0, 1),
    "one moment": lambda: schemes.rate(schemes.asynchronous(np.ones((1, 2)))),
    "no bandwidth": lambda: cost.ring(2, 1e6, 0),
    "bytes of NaN": lambda: cost.ring(2, math.nan, 1e9),
    "negative latency": lambda: step_cost.tree(2, 1e6, 1e9, -1),
    "no machine": lambda: step_cost.hierarchical(0, 8, 1e6, 1e9),
    "no compute": lambda: step_cost.step_range(0, 1),
    "a rate of 0": lambda: learn.follow(
        schemes.asynchronous(np.ones((3, 1))), 1, np.ones((4, 2)), np.arange(4) % 2, None, 0, 3
    ),
}


def a_run():
    return plan.MeasuredRun(2, 1, False, np.ones(50), 0.1, 0.1, 8.0, 1.0)


NONSENSE |= {
    "few rows": lambda: plan.measure_run({"worker-0": {"push_time": np.ones(3)}}, 1),
    "gossip": lambda: plan.measure_run({}, 0, 0, 0, "gossip, synchronous"),
    "no rows": lambda: plan.measure_run({}, 1),
    "another script's rows": lambda: plan.measure_run({"worker-0": {"push_time": np.ones(30)}}, 1),
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
        "least": (step_cost.step_range(3, 5)[0], 3 + 3),
        "most": (step_cost.step_range(3, 5)[1], 8),
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
