"""Scale-Laboratory: what eight to thousands of workers would do, simulated by tfrun/simulate.

It measures nothing, and needs no quiet machine. Beside each line of the table stands what is known
of it: a measured or published speed-up and whether the simulated range has it, or "assumed".

    bash run.sh                                             four clusters, and loss over seconds
    bash run.sh --workers 64 --parameters 25.6e6 --compute 0.26 --gigabits 10     your own case
    bash run.sh --tune                                      finds the learning rates again

Kind:          driver
Run:           bash run.sh
"""

import argparse
import functools
import itertools
import json
import math
import pathlib
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from lab import examples
from lab.measure import (
    arguments,
    charts,
    delays,
    example_runs,
    learn,
    sessions,
    step_cost,
    text_tables,
)
from matplotlib.axes import Axes
from rich.console import Group
from tfrun.simulate import cost, laws, plan, schemes

FOLDER = examples.ROOT / "Measurements" / "Scale-Laboratory"
STRAGGLER, SLOW_LINK, LOST = "a straggler", "a slow link", "one is lost"
STRAGGLER_FACTOR, LINK_FACTOR = 5, 10  # how slow a straggler is, and a slow link
LOST_BATCHES = 200  # how many mini-batches long a lost worker is away
T, RATIO, LEAD = 10, 100, 4  # local steps; of the bytes; updates ahead at most
USUAL_SHAPE = 0.1  # of the lognormal times, unless you give --variation
EQUAL_SHAPE = 0.02  # of equal GPUs: with a tenth eight were slower than those that were published
PS = "ps, asynchronous"
WIDTH = 160  # of table.txt
ONE_PROCESS = "Non-Distributed-Setup"
WIDE_LAYERS = (784, 512, 512, 10)  # of Benchmarks' wide model


class Case(NamedTuple):
    """A cluster, and what a mini-batch takes there: seconds, bytes, bytes a second."""

    n: int
    c: float
    S: float
    B: float
    a: float
    inside: int = 1  # workers in a machine, with links of B_inside between them
    B_inside: float = math.inf
    cores: float = math.inf  # that all workers share
    shape: float = USUAL_SHAPE
    points: tuple[Any, ...] = ()  # (scheme, workers, speed-up, where from)


def benchmark(name: str) -> float:
    """Returns the mini-batches a second of a program of Benchmarks with its wide model."""
    results = json.loads((FOLDER.parent / "Benchmarks" / "results.json").read_text())
    return statistics.median(results[name]["wide"])


@functools.cache
def cases() -> dict[str, Case]:
    """Returns {words: Case}. Sources of the numbers: the page."""
    measured = {
        "ring": "Ring-AllReduce (10)",
        PS: "HogWild (1 update a call)",
        "ps, synchronous": "Synchronous-SGD (10 steps a call)",
        f"{PS}, {T} local steps": "DOWNPOUR-Easy (a push every 10 steps)",
    }
    c = 1 / benchmark(ONE_PROCESS)
    S = sum(4 * (inputs + 1) * outputs for inputs, outputs in itertools.pairwise(WIDE_LAYERS))
    here = [(scheme, 2, c * benchmark(name), "measured") for scheme, name in measured.items()]
    gpus = [("ring", n, images / 219, "published") for n, images in ((2, 422), (4, 852), (8, 1734))]
    slowmo = [(f"ring, {T} local steps", 32, 32 * 0.262 / 0.294, "published")]
    return {
        "a laptop, 2 cores": Case(16, c, S, 2e9, 1e-4, cores=2, points=tuple(here)),
        "8 GPUs in a machine": Case(
            8, 64 / 219, 102.2e6, 10e9, 2e-5, shape=EQUAL_SHAPE, points=tuple(gpus)
        ),
        "64 machines, 10 Gbit/s": Case(
            64, 0.262, 102.2e6, 1.25e9, 5e-5, shape=EQUAL_SHAPE, points=tuple(slowmo)
        ),
        "4,096 GPUs, 400 Gbit/s": Case(4096, 0.86, 14e9, 50e9, 1e-5, 8, 400e9, shape=EQUAL_SHAPE),
    }


def rates(case: Case, n: int, trouble: str | None = None) -> dict[str, tuple[float, float]]:
    """Returns {scheme: (lowest, highest)}: mini-batches a second of n workers.

    trouble: STRAGGLER or SLOW_LINK, of one worker. A ring goes at the speed of its slowest link.
    """
    c, S, a, inside = case.c * max(1, n / case.cores), case.S, case.a, min(n, case.inside)
    count = max(12, min(200, 20000 // n))
    times = laws.step_times("lognormal", n, max(120, count * T), c, shape=case.shape)
    if trouble == STRAGGLER:
        times[:, -1] *= STRAGGLER_FACTOR
    B = case.B / (LINK_FACTOR if trouble == SLOW_LINK else 1)
    cycles = times + 2 * a  # where each worker sends by its own link
    cycles[:, -1] += 2 * S / B - 2 * S / case.B
    local_cycles = laws.local_steps(cycles, T)[: max(12, count // T)]
    times, local_times = times[:count], laws.local_steps(times, T)
    cycles = cycles[:count]
    step_seconds, local_seconds = times.max(axis=1).mean(), local_times.max(axis=1).mean()
    ranges = {}

    def add_synchronous(
        name: str, communication: float, T: int = 1, step_seconds: float = step_seconds
    ) -> None:
        low, high = (seconds - c for seconds in step_cost.step_range(c, communication))
        ranges[name] = n * T / (step_seconds + high), n * T / (step_seconds + low)

    def add_ps(name: str, times: np.ndarray, P: int, T: int = 1) -> None:
        queue = schemes.rate(schemes.queued(times, pull=S / case.B, push=S / case.B, servers=P))
        in_step = 1 / step_cost.ps_asynchronous(n, T * c, S, case.B, a, P)[1]
        ranges[name] = T * min(queue, in_step), T * queue

    ring = cost.ring(n, S, B, a)
    add_synchronous("ring", ring)
    if inside > 1:
        machines = math.ceil(n / inside)
        add_synchronous(
            "hierarchical", step_cost.hierarchical(machines, inside, S, B, a, case.B_inside)
        )
    add_synchronous("ZeRO 3", step_cost.sharded(n, S, B, a))
    add_synchronous(f"ring, {T} local steps", ring, T, local_seconds)
    add_synchronous(f"ring, 1/{RATIO} of the bytes, added up", cost.ring(n, S / RATIO, B, a))
    add_synchronous(f"1/{RATIO} of the bytes, gathered", step_cost.gather(n, S / RATIO, B, a))
    pairs = schemes.gossip(cycles - a, exchange=S / case.B)
    gossip = len(pairs.push) / pairs.push[-1]
    ranges["gossip"] = gossip, gossip
    add_ps(PS, cycles, 1)
    add_ps(f"{PS}, a ps for 4 workers", cycles, max(1, n // 4))
    add_ps(f"{PS}, {T} local steps", local_cycles, 1, T)
    bounded = schemes.rate(schemes.bounded(cycles + 2 * S / case.B, LEAD - 1))
    bounded = min(bounded, case.B / S)  # by the link of the ps
    ranges[f"ps, at most {LEAD} ahead"] = bounded, bounded
    together, in_turn = (way(n, S, case.B, a) for way in (cost.ps_together, cost.ps_in_turn))
    low, high = min(together, in_turn), max(together, in_turn)
    # The worker with a slow link sends and receives by it.
    slow_low, slow_high = (seconds + 2 * S / B - 2 * S / case.B for seconds in (low, high))
    ranges["ps, synchronous"] = n / (step_seconds + slow_high), n / (step_seconds + slow_low)
    needed = max(1, n - max(1, n // 25))
    needed_seconds = needed / schemes.rate(schemes.synchronous(times, needed))
    ranges["ps, synchronous, 4% backups"] = (
        needed / (needed_seconds + high),
        needed / (needed_seconds + low),
    )
    return ranges


def remaining_share(name: str, n: int, shape: float) -> float:
    """Returns the share of the usual gradients that come while one of n workers is away."""
    loss_step = 4
    steps = T if "local" in name else 1
    times = laws.step_times("lognormal", n, LOST_BATCHES + 10 * steps, shape=shape)
    times = laws.local_steps(times, steps)
    times_with_loss = laws.lose_worker(times, n - 1, loss_step, LOST_BATCHES)
    needed = max(1, n - max(1, n // 25)) if "backups" in name else n

    def gradients(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if name == "gossip":
            pairs = schemes.gossip(times)
            return pairs.worker, pairs.push
        if name.startswith("ps, at most"):
            trace = schemes.bounded(times, LEAD - 1)
        elif name.startswith(PS):
            trace = schemes.asynchronous(times)
        else:
            trace = schemes.synchronous(times, needed)
        worker, _, push, _, step = (column[trace.step >= 0] for column in trace)
        moved = np.zeros(step.max() + 1)  # when each step has moved w
        np.maximum.at(moved, step, push)
        return worker, moved[step]

    worker, push = gradients(times)
    _, push_with_loss = gradients(times_with_loss)
    begin = push[worker == n - 1][loss_step - 1]
    usual, remaining = (
        ((begin < pushes) & (pushes <= begin + LOST_BATCHES)).sum()
        for pushes in (push, push_with_loss)
    )
    return remaining / usual


def simulate(case: Case) -> dict[str, Any]:
    """Returns what the table and the picture show of a case."""
    sizes = [2**i for i in range(1, 13) if 2**i < case.n] + [case.n]
    curves: dict[str, list[list[float]]] = {}
    for n in sizes:
        for name, ranges in rates(case, n).items():
            curves.setdefault(name, []).append([n, *(rate * case.c for rate in ranges)])
    usual = {name: sum(points[-1][1:]) for name, points in curves.items()}
    left: dict[str, dict[str, float]] = {}
    for trouble in (STRAGGLER, SLOW_LINK):
        for name, ranges in rates(case, case.n, trouble).items():
            left.setdefault(name, {})[trouble] = sum(ranges) * case.c / usual[name]
    for name in left:
        left[name][LOST] = remaining_share(name, min(case.n, 64), case.shape)
    changes = {}
    if case.n > 1:
        n = int(min(case.n, case.cores))
        changes = step_cost.first_to_change(n, case.c, case.S, case.B, case.a)
    return {"curves": curves, "left": left, "first": changes, "points": case.points}


# Loss over seconds ------------------------------------------------------------------------------

# A curve, and the loss of one's own w, where each worker has a w of its own.
Learned = tuple[list[tuple[float, float]], float | None]
SIZES, SECONDS, SEEDS, TUNING_SEED = (8, 100, 1000), 40, 5, 0
GRID = [round(45.0 * 0.45**i, 6) for i in range(17)]  # 45 to 0.0001
RATES = FOLDER / "rates.json"


@functools.cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns the training inputs [1437, 65], the last one always 1, and the labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))[:1437]
    return np.hstack([x[order] / 16, np.ones((len(order), 1))]).astype(np.float32), y[order]


def learners(n: int, seed: int) -> dict[str, Callable[[float], Learned]]:
    """Returns {scheme: a function of a rate that returns (its curve, the loss of one's own w)}.

    Times are lognormal with the shape 0.5 and the mean 1; no message takes time.
    """
    x, y = digits()
    times = laws.step_times("lognormal", n, 3 * SECONDS, seed=seed)
    rows = learn.rows_of(n, 3 * SECONDS, len(x), seed)
    sums = laws.local_steps(times, T)
    traces = {
        "asynchronous": (schemes.asynchronous(times), 1),
        f"at most {LEAD} ahead": (schemes.bounded(times, LEAD - 1), 1),
        "synchronous": (schemes.synchronous(times), 1),
        "synchronous, 4% backups": (schemes.synchronous(times, n - max(1, n // 25)), 1),
        f"synchronous, {T} local steps": (schemes.synchronous(sums), T),
        f"asynchronous, {T} local steps": (schemes.asynchronous(sums), T),
    }

    def follow(trace: schemes.Trace, local: int, lr: float) -> Learned:
        return learn.follow(trace, n, x, y, rows, lr, SECONDS, local), None

    functions: dict[str, Callable[[float], Learned]] = {
        name: functools.partial(follow, trace, local) for name, (trace, local) in traces.items()
    }
    pairs = schemes.gossip(times, seed=seed)
    functions["gossip"] = lambda lr: learn.follow_pairs(pairs, n, x, y, rows, lr, SECONDS)
    return functions


def tune_rates(n: int) -> dict[str, float]:
    """Returns {scheme: the best rate of GRID}, by the worst loss of the last quarter.

    So no rate wins by a lucky end. The seed is none of those that are shown.
    """
    best = {}
    for name, run in learners(n, TUNING_SEED).items():
        ends = {}
        with np.errstate(all="ignore"):
            for lr in GRID:
                points, _ = run(lr)
                ends[lr] = max(loss for seconds, loss in points if seconds > 0.75 * SECONDS)
        best[name] = min((lr for lr in GRID if math.isfinite(ends[lr])), key=ends.__getitem__)
    return best


def learn_all(rates: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Returns {"n workers": {scheme: its losses over seconds, and those at the end}}."""
    grid, results = np.linspace(0, SECONDS, 41), {}
    for n in SIZES:
        runs: dict[str, list[Any]] = {}
        for seed in range(1, SEEDS + 1):
            for name, run in learners(n, seed).items():
                points, own = run(rates[str(n)][name])
                seconds, curve = zip(*points)
                runs.setdefault(name, []).append((np.interp(grid, seconds, curve), own))
        by_scheme: dict[str, dict[str, Any]] = {}
        results[f"{n} workers"] = by_scheme
        for name, pairs in runs.items():
            losses = [loss for loss, _ in pairs]
            by_scheme[name] = {
                "lr": rates[str(n)][name],
                "median": np.round(np.median(losses, axis=0), 4).tolist(),
                "last": [round(float(loss[-1]), 4) for loss in losses],
            }
            if name == "gossip":
                by_scheme[name]["own w"] = [round(own, 4) for _, own in pairs]
    return results


# Scaling's 8 and 16 workers, from its runs with 2 -----------------------------------------------

PLANNED = ("HogWild", "Synchronous-SGD", "Ring-AllReduce")
DELAY, BYTES = 0.07, 2 * 68904  # of Scaling: mean seconds of a gradient; pulled and pushed


def run_with_two(name: str, runs: list[dict[str, Any]]) -> plan.MeasuredRun:
    """Returns the plan.MeasuredRun of Scaling's runs with two workers.

    They commit no durations, but the delays that they drew can be drawn again. What an update takes
    beside them follows from the rate, and its part between push and pull from the staleness.
    """
    is_synchronous = name != "HogWild"
    rows = runs[0]["batches"] // 2
    drawn = [
        [
            list(itertools.islice(delays.draws("exponential", DELAY, k, 2, seed), rows))
            for k in (0, 1)
        ]
        for seed in range(1, len(runs) + 1)
    ]
    steps = np.array(drawn).max(axis=1) if is_synchronous else np.array(drawn)
    rate = text_tables.median_of(runs, "batches_per_second")
    staleness = 1 if is_synchronous else text_tables.median_of(runs, "staleness_by_rates")
    assert rate is not None and staleness is not None, f"Scaling has no whole run of {name}"
    own_seconds = 2 / rate - steps.mean()
    pull = max(0.0, (1 - staleness) * (steps.mean() + own_seconds))
    push = own_seconds - pull
    servers = 0 if name == "Ring-AllReduce" else 1
    return plan.MeasuredRun(2, servers, is_synchronous, np.ravel(drawn), pull, push, BYTES, 1)


def plan_scaling() -> dict[str, Any]:
    """Returns {"example, workers": measured and planned mini-batches/s and staleness}."""
    results = json.loads((FOLDER.parent / "Scaling" / "results.json").read_text())
    plans = {}
    for name in PLANNED:
        run = run_with_two(name, results[f"2 workers, exponential: {name}"])
        for n in (8, 16):
            runs = results[f"{n} workers, exponential: {name}"]
            predicted = plan.predict(run, n)
            staleness = None if run.together else text_tables.median_of(runs, "staleness_mean")
            plans[f"{name}, {n} workers"] = {
                "measured": text_tables.median_of(runs, "batches_per_second"),
                "planned": predicted["rate"],
                "staleness": [staleness, predicted["staleness"][1]],
            }
    return plans


# Published points -------------------------------------------------------------------------------


def check_published() -> dict[str, str]:
    """Returns {kind of published points: in words how many fit}. They stand in published.json."""
    points = json.loads((FOLDER / "published.json").read_text())
    inside, widths, errors = 0, [], {}
    for point in points["efficiencies"]:
        servers = {"P": point["P"]} if point["by"].startswith("ps") else {}
        S, B = point["megabytes"] * 1e6, point["gigabits"] * 1e9 / 8
        c = point["c"]
        communication = getattr(step_cost, point["by"])(point["n"], S, B, **servers)
        high, low = (c / seconds for seconds in step_cost.step_range(c, communication))
        if low - 0.02 <= point["efficiency"] <= high + 0.02:
            inside += 1
        widths.append(high - low)
        if not point["case"].endswith("128 GPUs"):  # which the two numbers come from
            efficiency = c / step_cost.fitted_step(c, communication)
            errors[point["case"]] = efficiency / point["efficiency"] - 1
    sizes = list(map(abs, errors.values()))
    worst = max(errors, key=lambda case: abs(errors[case]))
    comparisons = {
        f"{len(widths)} efficiencies, none to full overlap": f"{inside} inside, 2 points allowed; "
        f"the range is {100 * statistics.median(widths):.0f} points wide in the median",
        f"{len(sizes)} of them, by the two fitted numbers": f"median error "
        f"{statistics.median(sizes):.1%}, {sum(size <= 0.05 for size in sizes)} within 5%, worst "
        f"{errors[worst]:+.0%}: {worst}",
    }
    steps = [
        step_cost.local(published["compute"], published["communication"], published["T"])
        / published["seconds"]
        - 1
        for published in points["steps"]
    ]
    words = ", ".join(f"{error:+.0%}" for error in steps)
    comparisons[f"{len(steps)} steps with local steps or one peer"] = f"errors {words}"
    ratios = []
    for published in points["servers"]:
        S, B = published["megabytes"] * 1e6, published["gigabits"] * 1e9 / 8
        communication = cost.ps_together(published["n"], 3 / 4 * S, B, P=published["P"])
        speed_up = published["n"] * published["c"] / (published["c"] + communication)
        ratios.append(speed_up / published["times_one_gpu"])
    words = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    comparisons[f"{len(ratios)} speed-ups with four ps"] = f"simulated to published {words}"
    return comparisons


# The tables and the pictures --------------------------------------------------------------------


def describe_points(points: Sequence[Sequence[Any]], curve: Sequence[Sequence[float]]) -> str:
    """Returns in words what is known of a scheme in a case, from measured or published points."""
    if not points:
        return "assumed"
    n, value, source = points[-1]
    ranges = {size: (low, high) for size, low, high in curve}
    low, high = ranges[n]
    words = f"{source} {value:.3g} at {n}"
    if 0.98 * low <= value <= 1.02 * high:
        return f"{words}: inside"
    return f"{words}: outside {low:.3g}-{high:.3g}"


def range_in_words(low: float, high: float) -> str:
    """Returns a range in words."""
    if high >= 100:
        form = "{:,.0f}"
    elif high >= 10:
        form = "{:.1f}"
    else:
        form = "{:.2f}"
    return "-".join(dict.fromkeys((form.format(low), form.format(high))))


def table_of(results: dict[str, Any]) -> Group:
    """Returns the tables."""
    troubles = (STRAGGLER, SLOW_LINK, LOST)
    speed_table = text_tables.plain_table(
        "workers", "scheme", "speed-up", *troubles, "what is known"
    )
    changes = text_tables.plain_table(
        "workers", "a ring's first change, and how much faster", "", ""
    )
    for case, result in results["cases"].items():
        curves = result["curves"]
        for name, curve in curves.items():
            points = [point[1:] for point in result["points"] if point[0] == name]
            speed_table.add_row(
                case if name == next(iter(curves)) else "",
                name,
                range_in_words(*curve[-1][1:]),
                *(f"{result['left'][name][trouble]:.0%}" for trouble in troubles),
                describe_points(points, curve),
            )
        speed_table.add_section()
        best = [f"{change} {gain:.2f}" for change, gain in list(result["first"].items())[:3]]
        changes.add_row(case, *best, *[""] * (3 - len(best)))
    tables = [speed_table, changes]
    if results.get("learning"):
        loss_table = text_tables.plain_table(f"loss after {SECONDS} s", *results["learning"])
        for name in next(iter(results["learning"].values())):
            losses = [by_scheme[name]["last"] for by_scheme in results["learning"].values()]
            loss_table.add_row(name, *(text_tables.spread(values, "{:.3f}") for values in losses))
        losses = [by_scheme["gossip"]["own w"] for by_scheme in results["learning"].values()]
        cells = [text_tables.spread(values, "{:.3f}") for values in losses]
        loss_table.add_row("gossip, one worker's own w", *cells)
        tables.append(loss_table)
    if results.get("planned"):
        columns = "measured", "planned", "error", "staleness", "planned"
        plan_table = text_tables.plain_table("Scaling, from its runs with 2", *columns)
        for name, run in results["planned"].items():
            staleness = ["", ""]
            if run["staleness"][0]:
                staleness = [f"{value:.2f}" for value in run["staleness"]]
            error = run["planned"][1] / run["measured"] - 1
            rates = f"{run['measured']:.1f}", range_in_words(*run["planned"]), f"{error:+.1%}"
            plan_table.add_row(name, *rates, *staleness)
        tables.append(plan_table)
    if results.get("trusted"):
        fit_table = text_tables.plain_table("published points", "how they fit")
        for row in results["trusted"].items():
            fit_table.add_row(*row)
        tables.append(fit_table)
    return Group(*tables)


STRIP = 0.8  # of a row is as high as 100%


def draw_strip(
    axes: Axes, base: float, curve: Sequence[Sequence[float]], points: Sequence[Sequence[Any]]
) -> None:
    """Draws a scheme's range against the workers, as a share of them; 0% stands at base."""
    n, low, high = np.transpose(curve)
    bottom, top = (base + STRIP * rate / n for rate in (low, high))
    for line in (base, base + STRIP):
        axes.axhline(line, color="0.75", linewidth=0.6)
    axes.fill_between(n, base, bottom, color="C0", alpha=0.55, linewidth=0)
    axes.fill_between(n, bottom, top, color="C0", alpha=0.2, linewidth=0)
    axes.plot(n, top, color="C0", linewidth=1.2)
    for workers, speed_up in points:
        height = base + STRIP * speed_up / workers
        axes.plot(workers, height, "kx", markersize=5, markeredgewidth=1.5, clip_on=False)
    words = shares_in_words(low[-1] / n[-1], high[-1] / n[-1])
    right = axes.get_yaxis_transform()
    axes.text(1.05, base + STRIP / 2, words, transform=right, fontsize=8.5, va="center")


def shares_in_words(low: float, high: float) -> str:
    """Returns a range of shares in words."""
    shares = [100 * share for share in (low, high)]
    words = [f"{share:.0f}" if share >= 1 else f"{share:.1g}" for share in shares]
    return "-".join(dict.fromkeys(words)) + "%"


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the speed-ups, a strip for each scheme, and beside it loss-over-seconds.png."""
    simulated = results["cases"]
    longest = max(simulated.values(), key=lambda result: len(result["curves"]))
    names = list(longest["curves"])
    figure, axes = charts.subplots(7.2, 1, len(simulated), sharey=True, squeeze=False)
    figure.set_figwidth(6.3)  # narrow, so that its words are large on a telephone
    for (case, result), panel in zip(simulated.items(), axes[0]):
        for base, name in enumerate(reversed(names)):
            if name in result["curves"]:
                points = [point[1:3] for point in result["points"] if point[0] == name]
                draw_strip(panel, base, result["curves"][name], points)
        n = [values[0] for values in result["curves"]["ring"]]
        panel.set(xscale="log", ylim=(-0.15, len(names)))
        panel.set_title(case.replace(", ", "\n").replace(" in a", "\nin a"), fontsize=9)
        ticks = [n[0], n[-1]]
        panel.set_xticks(ticks, [f"{value:,.0f}" for value in ticks], fontsize=8.5)
        panel.minorticks_off()
        panel.spines[["left", "bottom"]].set_visible(False)
        panel.tick_params(left=False)
    centres = [base + STRIP / 2 for base in range(len(names))]
    labels = [textwrap.fill(name, 19) for name in reversed(names)]
    axes[0][0].set_yticks(centres, labels, fontsize=8.5)
    words = "Strips: speed-up, 0 to 100% of the number of workers; dark to light: the range;\n"
    words += "cross: measured or published. Numbers: the range with all workers."
    figure.supxlabel(words, fontsize=8)
    charts.save(figure, path, source)
    if results.get("learning"):
        figure, axes = charts.subplots(3.4, 1, len(results["learning"]), sharey=True)
        for (size, result), panel in zip(results["learning"].items(), axes):
            for number, (name, losses) in enumerate(result.items()):
                seconds = np.linspace(0, SECONDS, len(losses["median"]))
                panel.plot(seconds, losses["median"], color=f"C{number}", label=name, linewidth=1.2)
            panel.set(title=size, yscale="log", xlabel="seconds (a gradient takes 1)")
            losses_shown = 0.1, 0.2, 0.5, 1, 2, 5, 10
            panel.set_yticks(losses_shown, map("{:g}".format, losses_shown))
            panel.minorticks_off()
            panel.grid(alpha=0.25)
        axes[0].set_ylabel("training loss, median of 5")
        style: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 7.5}
        figure.legend(*axes[0].get_legend_handles_labels(), ncols=3, **style)
        charts.save(figure, path.with_name("loss-over-seconds.png"), source)


def parse_flags() -> argparse.Namespace:
    """Returns the flags."""
    parser = arguments.Parser(__doc__)
    case_flags = (
        ("--workers", int, "of your case; with any of these flags only it is simulated"),
        ("--parameters", float, "of the model, 4 bytes each (25.6e6)"),
        ("--compute", float, "seconds of a mini-batch (0.26)"),
        ("--variation", float, f"of these seconds, lognormal ({USUAL_SHAPE})"),
        ("--gigabits", float, "a second of each link (10)"),
        ("--latency", float, "seconds of a message (5e-5)"),
        ("--inside", int, "workers in a machine, whose links are 8 times as fast (1)"),
    )
    for flag, kind, words in case_flags:
        parser.add_argument(flag, type=arguments.positive(kind), help=words)
    parser.add_argument("--tune", action="store_true", help="find the learning rates again")
    parser.redraw(__file__)
    flags = parser.parse_args()
    given = [getattr(flags, flag[2:]) for flag, *_ in case_flags]
    flags.case = None
    if any(given):
        B = (flags.gigabits or 10) * 1e9 / 8
        flags.case = Case(
            n=flags.workers or 64,
            c=flags.compute or 0.26,
            S=4 * (flags.parameters or 25.6e6),
            B=B,
            a=flags.latency or 5e-5,
            inside=flags.inside or 1,
            B_inside=8 * B,
            shape=flags.variation or USUAL_SHAPE,
        )
        if flags.case.n > 4096:
            parser.error(f"--workers must be at most 4096, is {flags.case.n}")
    return flags


def main() -> None:
    flags = parse_flags()
    if flags.redraw:
        report = sessions.Report(
            script=__file__, flags=flags, width=WIDTH, table_of=table_of, draw=draw
        )
        report.draw_again()
        return
    directory = example_runs.output_directory("scale-laboratory")
    if flags.tune:
        RATES.write_text(json.dumps({n: tune_rates(n) for n in SIZES}, indent=1) + "\n")
    results: dict[str, Any]
    if flags.case:
        results = {"cases": {f"your case, {flags.case.n} workers": simulate(flags.case)}}
    else:
        results = {"cases": {name: simulate(case) for name, case in cases().items()}}
        results["learning"] = learn_all(json.loads(RATES.read_text()))
        results["planned"], results["trusted"] = plan_scaling(), check_published()
    console = text_tables.table_console(WIDTH)
    console.print(table_of(results))
    console.print(f"simulated, not measured; loss: median (range) of {SEEDS} seeds")
    text = json.dumps(results, indent=1, default=float)
    text = re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    source = directory / "results.json"
    source.write_text(text + "\n")
    draw(results, directory / "scale-laboratory.png", source)
    text_tables.write_table(console, directory, "scale-laboratory.png")


if __name__ == "__main__":
    main()
