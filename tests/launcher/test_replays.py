"""The simulator against published points, and against committed measurements that it replays.

Every tolerance was written down before the run that it judges.
"""

import functools
import itertools
import json
import math
import re
import statistics

import numpy as np
import pytest
import support
from lab.measure import delays, step_cost
from support import within
from tfrun.simulate import cost, laws, schemes

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
        high, low = (c / seconds for seconds in step_cost.step_range(c, x))
        inside = low - 0.02 <= point["efficiency"] <= high + 0.02
        assert inside, f"\nrange, {point['case']}: {low:.1%} to {high:.1%}"
        if not point["case"].endswith("128 GPUs"):  # which the two numbers were fitted to
            errors.append(c / step_cost.fitted_step(c, x) / point["efficiency"] - 1)
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


# Scaling, replayed with each run's own delays ----------------------------------------------------

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
    T, is_synchronous = 10 if name in ALONE else 1, name.split(",")[0] in TOGETHER
    needed = n - name.endswith("a backup") if is_synchronous else 1
    updates = max(8 if name == "SAGN" else 20, batches // T // needed)
    rows = updates + 1 if is_synchronous else min(updates, 6 * updates // n + 40)
    times = laws.local_steps(drawn(delay, MEAN, n, seed, rows * T), T)
    vary = np.random.default_rng([seed, n]).exponential
    times, pause = times + vary(own - gap, times.shape), vary(gap, times.shape)
    if is_synchronous:
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
