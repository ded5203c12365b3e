"""Same staleness, opposite outcome: the largest rate of HogWild by the law of gradients' times.

Each run is HogWild's own script, whose gradient takes a given time without using a core, as in
Scaling. The times are gamma-distributed. A search goes along a grid of rates, from one at which all
seeds learn to one at which none does. Nothing is tested before the end: a test would delay the
chief.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import functools
import json
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import theory
from lab import examples
from lab.measure import arguments, charts, delays, forked, idle, sessions, text_tables
from lab.measure.text_tables import median_of
from matplotlib.axes import Axes
from rich.console import Console, Group
from rich.table import Table
from tfrun.runs import run_directory
from tfrun.runs.data import RunData

EXAMPLE = "From-TensorFlow-1/HogWild-Sessions"
GRID = 2**0.25  # between two rates; a step of the grid counts from the rate 1
LOWEST, HIGHEST = -36, 12  # steps at which a search gives up; the table then has no such limit
LEARNS = 1.0  # a run has learned if its last test loss is below; it begins at 2.3
EIGHT, WORKERS, VARIATIONS = 8, (8, 4, 16, 2), (0.0, 1.0, 0.1, 0.25, 0.5)
PAIR_STEP = -9  # the step of the rates of the pair that is compared
UPDATES_OF_A_LOSS = 20  # updates, whose mini-batches' mean loss is noted
FEWEST_PUSHES = 5  # pushes of each worker, from which staleness is counted
SLACK = 1.65  # so much sharper are the laws than a simulation in NumPy: where a search begins
PULL, PUSH = "before the pull", "before the push"
PAUSES = (0.1, 0.25, 0.5)  # of a gradient's time
PAUSED_VARIATION = 0.1  # the coefficient of variation of workers that pause
PULL_LINES = "    with tf.device(step.device):\n        version = step.read_value()\n"
NOT_FINITE = "Tensor had "  # the chief's last test says so of w
TUNING_SEEDS = 2  # seeds that choose the rate at which losses after equal seconds are compared
SEARCH, FIXED, BEST = "search", "fixed", "best"
SAME_RATE, QUICK, EQUAL_SECONDS = "same rate: ", "quick: ", "equal seconds: "


class Case(NamedTuple):
    """What is trained."""

    name: str
    kind: str  # SEARCH, FIXED or BEST
    n: int  # workers
    cv: float  # of the gradients' times
    place: str | None  # PULL or PUSH where workers pause
    share: float  # of a gradient's time: how long they pause
    steps: tuple[int, ...]  # of the rates of a FIXED case, or where a search begins


def rate_of(step: int) -> float:
    """Returns the learning rate of a step of the grid."""
    return float(f"{GRID**step:.4g}")


def mean_of(n: int) -> float:
    """Returns the mean seconds of a gradient: n workers make 200 updates a second, or fewer."""
    return max(0.02, 0.005 * n)


def name_of(n: int, cv: float, place: str | None = None, share: float = 0) -> str:
    """Returns what a case is called."""
    return f"{n} workers, CV {cv:g}" + (f", pause of {share:.0%} {place}" if place else "")


def search_of(n: int, cv: float, place: str | None = None, share: float = 0.0) -> Case:
    """Returns the Case of a search, which begins between the two laws."""
    low, high = theory.constant(n), theory.mean_square(n)
    start = low ** (1 - cv) * high**cv / SLACK
    step = round(math.log(start, GRID))
    return Case(name_of(n, cv, place, share), SEARCH, n, cv, place, share, (step,))


def all_groups() -> list[list[Case]]:
    """Returns lists of Cases, the hardest comparison first; a group is measured by turns."""
    pair = [
        Case(SAME_RATE + name_of(EIGHT, cv), FIXED, EIGHT, cv, None, 0, (PAIR_STEP,))
        for cv in VARIATIONS[:2]
    ]
    groups = [pair, [search_of(EIGHT, cv) for cv in VARIATIONS[:2]]]
    groups.append([search_of(EIGHT, cv) for cv in VARIATIONS[2:]])
    groups += [[search_of(n, cv) for cv in VARIATIONS] for n in WORKERS[1:]]
    paused = [
        search_of(EIGHT, PAUSED_VARIATION, place, share)
        for place in (PULL, PUSH)
        for share in PAUSES
    ]
    timed = [search_of(EIGHT, PAUSED_VARIATION), *paused]
    timed = [case._replace(name=EQUAL_SECONDS + case.name, kind=BEST, steps=()) for case in timed]
    return [*groups, paused, timed]


def quick_cases() -> list[Case]:
    """Returns four workers with both laws at three rates."""
    steps = (-7, -5, -3)
    return [Case(QUICK + name_of(4, cv), FIXED, 4, cv, None, 0, steps) for cv in VARIATIONS[:2]]


# Which run is next -------------------------------------------------------------------------------


def by_step(runs: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Returns {step of the grid: [run]}."""
    runs_of_step: dict[int, list[dict[str, Any]]] = {}
    for run in runs:
        runs_of_step.setdefault(run["step"], []).append(run)
    return dict(sorted(runs_of_step.items()))


def learned_by_step(runs: list[dict[str, Any]]) -> dict[int, list[bool]]:
    """Returns {step of the grid: [whether each run has learned]}."""
    return {
        step: [run["learned"] for run in step_runs] for step, step_runs in by_step(runs).items()
    }


def next_of_search(runs: list[dict[str, Any]], start: int, seeds: int) -> tuple[int, int] | None:
    """Returns the (step, seed) of the next run, None if all rates of the search are bracketed.

    It goes down until all seeds learn, up until none does, and leaves out no rate between. Where
    one seed has learned and another has not, the rate is neither, and needs no third seed.
    """
    learned = learned_by_step(runs)
    for step, outcomes in learned.items():
        if len(outcomes) < seeds and len(set(outcomes)) == 1:
            return step, len(outcomes)
    if not learned:
        return start, 0
    if not all(learned[min(learned)]):
        return (min(learned) - 1, 0) if min(learned) > LOWEST else None
    if any(learned[max(learned)]):
        return (max(learned) + 1, 0) if max(learned) < HIGHEST else None
    return None


def bracket(runs: list[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Returns (the greatest step at which all seeds learn, the least one above at which none does).

    None stands for one that was not found.
    """
    learned = learned_by_step(runs)
    low = max((step for step, outcomes in learned.items() if all(outcomes)), default=None)
    higher = [step for step in learned if low is None or step > low]
    return low, min((step for step in higher if not any(learned[step])), default=None)


def next_of_fixed(
    runs: list[dict[str, Any]], steps: Iterable[int], seeds: int
) -> tuple[int, int] | None:
    """Returns the (step, seed) of the next run, None if each step has its seeds."""
    counts = {step: len(step_runs) for step, step_runs in by_step(runs).items()}
    step = min(steps, key=lambda step: (counts.get(step, 0), -step))
    seed = counts.get(step, 0)
    return (step, seed) if seed < seeds else None


def loss_at(runs: list[dict[str, Any]]) -> dict[int, float]:
    """Returns {step: the median loss of the runs}; a run that diverged counts as infinite."""
    return {
        step: statistics.median(
            math.inf if run["test_loss"] is None else run["test_loss"] for run in step_runs
        )
        for step, step_runs in by_step(runs).items()
    }


def next_of_best(runs: list[dict[str, Any]], start: int, seeds: int) -> tuple[int, int] | None:
    """Returns the (step, seed) of the next run, None after the runs at the best rate.

    TUNING_SEEDS seeds choose it among every second step of the grid, and `seeds` others run at it:
    the best is never the lowest or the highest rate that was tried.
    """
    tuning = [run for run in runs if run["seed"] < TUNING_SEEDS]
    for step, step_runs in by_step(tuning).items():
        if len(step_runs) < TUNING_SEEDS:
            return step, len(step_runs)
    if not tuning:
        return start, 0
    losses = loss_at(tuning)
    best = min(losses, key=losses.__getitem__)
    if best == min(losses):
        return best - 2, 0
    if best == max(losses):
        return best + 2, 0
    final = [run for run in runs if run["seed"] >= TUNING_SEEDS]
    return (best, TUNING_SEEDS + len(final)) if len(final) < seeds else None


def next_run(case: Case, results: dict[str, Any], seeds: int) -> tuple[int, int] | None:
    """Returns the (step, seed) of a case's next run, None if it has all."""
    runs = results.get(case.name, [])
    if case.kind == SEARCH:
        return next_of_search(runs, case.steps[0], seeds)
    if case.kind == FIXED:
        return next_of_fixed(runs, case.steps, seeds)
    low, _ = bracket(results.get(case.name.removeprefix(EQUAL_SECONDS), []))
    if low is None:
        sys.exit(f"measure this search first: {case.name.removeprefix(EQUAL_SECONDS)}")
    return next_of_best(runs, low - 4, seeds)


def by_rounds(
    groups: Iterable[Sequence[Case]],
    seeds: int,
    measure: Callable[[Case, int, int, dict[str, Any]], dict[str, Any]],
    kept: pathlib.Path,
    tries: int,
    digest: str | None = None,
) -> dict[str, Any]:
    """Measures groups of cases; in a round each case of a group that is not done has one run.

    Returns {name: [run]}. kept: a file with what an earlier session has measured. tries: how often
    a run is measured at most while other processes use the machine. digest: of the script that all
    cases measure; what was kept of another one does not count.
    """
    results = json.loads(kept.read_text()) if kept.exists() else {sessions.OTHERS: {}}
    if digest:
        names = {case.name for group in groups for case in group}
        names |= results.keys() - {sessions.OTHERS, sessions.DIGESTS}
        sessions.forget_outdated(results, dict.fromkeys(sorted(names), digest))
    shares = results[sessions.OTHERS]
    for group in groups:
        while True:
            due = [(case, next_run(case, results, seeds)) for case in group]
            next_runs = [(case, run) for case, run in due if run]
            if not next_runs:
                break
            for case, (step, seed) in next_runs:
                began = time.monotonic()
                for _ in range(tries):
                    others = idle.Others()
                    result = measure(case, step, seed, results)
                    share = others.share()
                    if share < idle.MOST_SHARE:
                        break
                results.setdefault(case.name, []).append(result)
                shares.setdefault(case.name, []).append(share)
                run_directory.write_whole(kept, json.dumps(results))
                words = f"{case.name}, lr {result['rate']}, seed {seed}: loss {result['test_loss']}"
                print(f"{words}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    in_order = [case.name for group in groups for case in group]
    return {name: results[name] for name in in_order if name in results}


# One run -----------------------------------------------------------------------------------------


def changes_of(case: Case, seed: int) -> list[tuple[str, str]]:
    """Returns the changes of the script: late gradients, and the pause of a case."""
    mean = mean_of(case.n)
    changes = delays.changes(case.cv, mean, case.n, seed + 1)
    words = f"1.0, {mean * case.share}, {case.n}, {seed + 101}"  # 1.0: exponential times
    if case.place == PUSH:
        (call, late), *others = changes
        return [(call, late.replace("outputs", f"delays.late(outputs, {words})")), *others]
    if case.place == PULL:
        pause = f"[delays.pause({words})]"
        paused_lines = PULL_LINES.replace(
            "    with ", f"    with tf.control_dependencies({pause}), ", 1
        )
        return [*changes, (PULL_LINES, paused_lines)]
    return changes


def updates_of(case: Case, results: dict[str, Any], flags: argparse.Namespace) -> int:
    """Returns the updates of a run: as many for all, or those of `seconds` at the case's rate."""
    if case.kind != BEST:
        return flags.updates
    runs = results[case.name.removeprefix(EQUAL_SECONDS)]
    return round(flags.seconds * median_of(runs, "updates_per_second"))


def measure(
    case: Case, step: int, seed: int, results: dict[str, Any], flags: argparse.Namespace
) -> dict[str, Any]:
    """Trains once; returns the numbers of the run."""
    script, rate = examples.main_script(EXAMPLE), rate_of(step)
    updates = updates_of(case, results, flags)
    script_flags = ["--steps", updates, "--seed", seed, "--learning-rate", rate]
    script_flags += delays.ONE_A_CALL
    script_flags += ["--checkpoint-steps", 10 * updates]  # one test, at the end
    with examples.changed_copy(script, changes_of(case, seed)) as (copy, directory):
        trained, samples = train(copy, {"ps": 1, "worker": case.n}, script_flags, directory)
        run = RunData.read(directory)
        numbers = summarize_run(trained, samples, run.rows("pushes"), run.rows("tests"), case.n)
        sharpness = sharpness_of(directory) if numbers["learned"] else None
    final = case.kind == BEST and seed >= TUNING_SEEDS  # it had no part in the choice of its rate
    setting = {"step": step, "rate": rate, "seed": seed, "final": final}
    return {**setting, **numbers, "sharpness": sharpness}


def train(
    script: pathlib.Path, jobs: dict[str, int], flags: Sequence[object], directory: pathlib.Path
) -> tuple[bool, list[tuple[float, Any]]]:
    """Trains as forked.train; a w that is no number any more at the last test has diverged, too."""
    try:
        return forked.train(script, jobs, flags, directory)
    except SystemExit as error:
        if NOT_FINITE not in str(error):
            raise
        return False, []


def summarize_run(
    trained: bool,
    samples: list[tuple[float, Any]],
    pushes: list[dict[str, Any]],
    tests: list[dict[str, Any]],
    n: int,
) -> dict[str, Any]:
    """Returns the numbers of a run that has ended. trained: whether it did not diverge."""
    has_loss = bool(trained and tests and math.isfinite(tests[-1]["test_loss"]))
    loss = tests[-1]["test_loss"] if has_loss else None
    return {
        "learned": loss is not None and loss < LEARNS,
        "test_loss": loss,  # None: it has diverged
        "losses": loss_curve(pushes),
        **(steady_numbers(pushes, samples, n) or dict.fromkeys(STEADY_NUMBERS)),
    }


STEADY_NUMBERS = (
    "updates_per_second",
    "seconds",
    "cores",
    "cv",
    "staleness_mean",
    "staleness_sd",
    "histogram",
)


def steady_numbers(
    pushes: list[dict[str, Any]], samples: list[tuple[float, Any]], n: int
) -> dict[str, Any] | None:
    """Returns how late the pushes were once all workers had begun; None if there are too few."""
    if len({push["task"] for push in pushes}) < n:
        return None
    began, last = forked.common_start(pushes), max(push["push_time"] for push in pushes)
    if sum(push["push_time"] > began for push in pushes) < FEWEST_PUSHES * n:
        return None
    began, ended, updates = forked.window(pushes)
    timed_pushes = [push for push in pushes if push["push_time"] > began]
    durations = [push["push_time"] - push["pull_time"] for push in timed_pushes]
    staleness = [int(push["staleness"]) for push in timed_pushes]
    return {
        "updates_per_second": updates,
        "seconds": last - forked.common_start(pushes),
        "cores": forked.per_second(samples, began, ended) if samples else None,
        "cv": statistics.pstdev(durations) / statistics.fmean(durations),
        "staleness_mean": statistics.fmean(staleness),
        "staleness_sd": statistics.pstdev(staleness),
        "histogram": np.bincount(staleness).tolist(),
    }


def loss_curve(pushes: list[dict[str, Any]]) -> list[float | None]:
    """Returns the mean loss of each UPDATES_OF_A_LOSS mini-batches, in the order of the updates."""
    losses = [push["loss"] for push in sorted(pushes, key=lambda push: push["global_step"])]
    parts = [losses[at : at + UPDATES_OF_A_LOSS] for at in range(0, len(losses), UPDATES_OF_A_LOSS)]
    means = [statistics.fmean(part) for part in parts if len(part) == UPDATES_OF_A_LOSS]
    return [float(f"{mean:.4g}") if math.isfinite(mean) else None for mean in means]


def sharpness_of(directory: pathlib.Path) -> float:
    """Returns the sharpness of the training loss at the w of a run's checkpoint."""
    import tensorflow as tf  # here, because --redraw needs none

    run_flags = json.loads((directory / "flags.json").read_text())
    shapes = [shape for _, shape in run_flags["variables"]]
    vector = tf.train.load_checkpoint(str(directory)).get_tensor("w")
    parts = np.split(vector, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    w = [part.reshape(shape) for part, shape in zip(parts, shapes)]
    return theory.sharpness(w, *training_rows())


@functools.cache
def training_rows() -> tuple[np.ndarray, np.ndarray]:
    """Returns the inputs and labels with which a run trains."""
    data = examples.load(examples.main_script(EXAMPLE)).load_data("digits")
    return data.x_train, data.y_train


# What is shown -----------------------------------------------------------------------------------


class Parts(NamedTuple):
    """What the name of a case says."""

    workers: int
    cv: float
    pause: str  # in words; "" without one


def parts(name: str) -> Parts:
    """Returns the Parts of a case's name."""
    workers, cv, *pause = name.rpartition(": ")[2].split(", ")
    return Parts(int(workers.split()[0]), float(cv.split()[1]), ", ".join(pause))


def searches(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Returns {name: runs} of the cases in which rates were searched."""
    return {
        name: runs
        for name, runs in results.items()
        if not name.startswith((SAME_RATE, EQUAL_SECONDS))
    }


def value(runs: list[dict[str, Any]], key: str, form: str) -> str:
    """Returns the median in words, "" if there is none."""
    median = median_of(runs, key)
    return "" if median is None else form.format(median)


def share_at(runs: list[dict[str, Any]], staleness: int) -> float:
    """Returns the share of the pushes that were so late, of all runs together."""
    counts = [run["histogram"] for run in runs if run["histogram"]]
    count = sum(histogram[staleness] for histogram in counts if len(histogram) > staleness)
    return count / max(1, sum(map(sum, counts)))


def limits(runs: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Returns the limits of the rate in words, and the median lr * lambda at the greater one."""
    low, high = bracket(runs)
    lowest, highest = ("" if step is None else f"{rate_of(step):.3f}" for step in (low, high))
    at_low = [] if low is None else by_step(runs).get(low, [])
    products = [run["sharpness"] * run["rate"] for run in at_low]
    return lowest, highest, f"{statistics.median(products):.2f}" if products else ""


def law_of(n: int, cv: float) -> str:
    """Returns the law of lr * lambda in words, where there is one."""
    laws: dict[float, Callable[[int], float]] = {0.0: theory.constant, 1.0: theory.mean_square}
    return f"{laws[cv](n):.2f}" if cv in laws else ""


def table_of(results: dict[str, Any]) -> Group:
    """Returns the tables: the limits of the rate, the pair at one rate, and the pauses."""
    columns = "CV measured", "staleness", "SD", "at n - 1", "updates/s", "cores"
    limits_table = text_tables.plain_table(
        "workers", "CV", *columns, "runs", "diverged", "all learn", "none", "lr*lambda", "law"
    )
    previous = None
    for name, runs in sorted(searches(results).items(), key=lambda item: parts(item[0])):
        n, cv, pause = parts(name)
        if pause:
            continue
        if previous not in (None, n):
            limits_table.add_section()
        workers = str(n) if previous != n else ""
        diverged = sum(run["test_loss"] is None for run in runs)
        row = [*late_cells(runs, n), str(len(runs)), str(diverged), *limits(runs), law_of(n, cv)]
        limits_table.add_row(workers, f"{cv:g}", *row)
        previous = n
    tables = [limits_table] if previous else []
    if pair := {name: runs for name, runs in results.items() if name.startswith(SAME_RATE)}:
        tables.append(pair_table(pair, columns))
    if any(parts(name).pause for name in results):
        tables.append(pause_table(results))
    return Group(*tables)


def late_cells(runs: list[dict[str, Any]], n: int) -> list[str]:
    """Returns what a table says of how late pushes were, n workers."""
    return [
        value(runs, "cv", "{:.2f}"),
        value(runs, "staleness_mean", "{:.2f}"),
        value(runs, "staleness_sd", "{:.2f}"),
        f"{share_at(runs, n - 1):.0%}",
        value(runs, "updates_per_second", "{:.0f}"),
        value(runs, "cores", "{:.2f}"),
    ]


def losses(runs: list[dict[str, Any]]) -> str:
    """Returns the median and the range of the test losses, and how many runs diverged."""
    diverged = sum(run["test_loss"] is None for run in runs)
    words = text_tables.spread([run["test_loss"] for run in runs], "{:.3f}")
    return f"{words} {diverged} diverged".strip() if diverged else words


def pair_table(pair: Mapping[str, list[dict[str, Any]]], columns: Sequence[str]) -> Table:
    """Returns the table of the runs at one rate."""
    table = text_tables.plain_table("at one rate", *columns, "lr", "test loss")
    for name, runs in pair.items():
        n, _, _ = parts(name)
        rate = f"{runs[0]['rate']:.3f}"
        table.add_row(name.removeprefix(SAME_RATE), *late_cells(runs, n), rate, losses(runs))
    return table


def pause_table(results: dict[str, Any]) -> Table:
    """Returns the table of the workers that pause, the first row without a pause."""
    columns = "staleness", "SD", "updates/s", "lost", "all learn", "none", "best lr", "test loss"
    table = text_tables.plain_table(f"{EIGHT} workers, CV {PAUSED_VARIATION:g}", *columns)
    unpaused = results.get(name_of(EIGHT, PAUSED_VARIATION), [])
    fastest = median_of(unpaused, "updates_per_second") if unpaused else None
    for name, runs in searches(results).items():
        n, cv, pause = parts(name)
        if (n, cv) != (EIGHT, PAUSED_VARIATION):
            continue
        speed = median_of(runs, "updates_per_second")
        final_runs = [run for run in results.get(EQUAL_SECONDS + name, []) if run["final"]]
        low, high, _ = limits(runs)
        table.add_row(
            pause or "no pause",
            value(runs, "staleness_mean", "{:.2f}"),
            value(runs, "staleness_sd", "{:.2f}"),
            value(runs, "updates_per_second", "{:.0f}"),
            f"{1 - speed / fastest:.0%}" if speed and fastest else "",
            low,
            high,
            f"{final_runs[0]['rate']:.3f}" if final_runs else "",
            losses(final_runs) if final_runs else "",
        )
    return table


def sharpness_fitted(results: dict[str, Any]) -> float:
    """Returns the lambda with which the law of constant times is that of eight workers; else 1."""
    low, high = bracket(results.get(name_of(EIGHT, 0.0), []))
    if low is None or high is None:
        return 1.0
    return theory.constant(EIGHT) / GRID ** ((low + high) / 2)


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the limits, the pair at one rate, and the pauses."""
    draw_limits(results, path, source)
    if any(name.startswith(SAME_RATE) for name in results):
        draw_pair(results, path.with_name("same-rate.png"), source)
    if any(parts(name).pause for name in results):
        draw_pauses(results, path.with_name("pauses.png"), source)


class Band(NamedTuple):
    """What a search has found."""

    workers: int
    cv: float  # of the law
    measured_cv: float  # of the gradients' times
    low: float  # the largest rate at which all runs learn
    high: float  # the least rate at which none does


def bands(results: dict[str, Any]) -> list[Band]:
    """Returns the Bands of the searches without a pause."""
    known_bands = []
    for name, runs in searches(results).items():
        n, cv, pause = parts(name)
        low, high = bracket(runs)
        measured_cv = median_of(runs, "cv")
        if not pause and low is not None and high is not None and measured_cv is not None:
            known_bands.append(Band(n, cv, measured_cv, low=rate_of(low), high=rate_of(high)))
    return sorted(known_bands)


def draw_limits(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the limits against the workers with the laws, and against the CV."""
    figure, (workers_axes, variation_axes) = charts.subplots(4.2, 1, 2)
    scale, known_bands = sharpness_fitted(results), bands(results)
    for number, cv in enumerate(sorted(VARIATIONS)):
        bands_drawn = [band for band in known_bands if band.cv == cv]
        xs = [band.workers * 1.05 ** (number - 2) for band in bands_drawn]
        lows, highs = [band.low for band in bands_drawn], [band.high for band in bands_drawn]
        colour = drawn_colour(number)
        workers_axes.vlines(xs, lows, highs, color=colour, linewidth=5, label=f"CV {cv:g}")
    n = np.geomspace(2, 16, 60)
    laws = [(theory.constant(n), "-", "law, constant times")]
    laws.append((closed_mean_square(n), "--", "law, random times"))
    for limit, style, words in laws:
        workers_axes.plot(n, limit / scale, style, color="k", linewidth=1, label=words)
    drawn_rates = [rate for band in known_bands for rate in (band.low, band.high)] or [0.1, 1]
    workers_axes.set(
        xscale="log", yscale="log", ylim=(min(drawn_rates) / 1.5, 2 * max(drawn_rates))
    )
    workers_axes.set(xlabel="workers", ylabel="learning rate")
    workers_axes.set_xticks((2, 4, 8, 16), (2, 4, 8, 16))
    workers_axes.set_title(f"bar: from all learn to none; λ = {scale:.2f}", fontsize=9)
    for number, workers in enumerate(sorted(WORKERS)):
        bands_drawn = [band for band in known_bands if band.workers == workers]
        centres = [math.sqrt(band.low * band.high) for band in bands_drawn]
        spans = [
            [centre - band.low for centre, band in zip(centres, bands_drawn)],
            [band.high - centre for centre, band in zip(centres, bands_drawn)],
        ]
        variation_axes.errorbar(
            [band.measured_cv for band in bands_drawn],
            centres,
            spans,
            label=f"{workers} workers",
            marker="o",
            markersize=3,
            color=charts.COLOURS[number],
            capsize=2,
        )
    variation_axes.set(
        xlabel="measured CV of a gradient's time", yscale="log", ylim=workers_axes.get_ylim()
    )
    labels = workers_axes.get_legend_handles_labels(), variation_axes.get_legend_handles_labels()
    handles, names = (first + second for first, second in zip(*labels))
    place: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
    figure.legend(handles, names, ncols=4, **place)
    for axes in (workers_axes, variation_axes):
        plain_ticks(axes)
    charts.save(figure, path, source)


def drawn_colour(number: int) -> str:
    """Returns the colour of a CV: the darker, the larger."""
    return ["#bdd7e7", "#8fbcdb", "#5a9bc9", "#2f78b3", "#08457e"][number]


def closed_mean_square(n: np.ndarray) -> np.ndarray:
    """Returns theory.mean_square(n) for an array: the root of n h^2 - h - 2."""
    return (1 + np.sqrt(1 + 8 * n)) / (2 * n)


def draw_pair(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws how late pushes were in the runs at one rate, and their losses."""
    figure, (staleness_axes, loss_axes) = charts.subplots(3.3, 1, 2)
    pair = {name: runs for name, runs in results.items() if name.startswith(SAME_RATE)}
    for number, (name, runs) in enumerate(pair.items()):
        n, cv, _ = parts(name)
        counts = [run["histogram"] for run in runs if run["histogram"]]
        total = np.zeros(max(map(len, counts), default=1))
        for counts_of_run in counts:
            total[: len(counts_of_run)] += counts_of_run
        words = {0.0: "gradient times equal", 1.0: "gradient times vary (exponential)"}[cv]
        late_by = value(runs, "staleness_mean", "{:.1f}")
        colour, label = f"C{number}", f"{words}: on average {late_by} updates late"
        staleness_axes.stairs(total / max(1, total.sum()), color=colour, label=label, baseline=None)
        for run in runs:
            losses_of_run = [np.nan if loss is None else loss for loss in run["losses"]]
            updates: np.ndarray = UPDATES_OF_A_LOSS * (np.arange(len(losses_of_run)) + 1)
            loss_axes.plot(updates, losses_of_run, color=colour, linewidth=1)
    staleness_axes.set(
        xlabel="staleness: how many updates late", ylabel="share of the pushes", xlim=(0, 40)
    )
    place: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 9}
    figure.legend(*staleness_axes.get_legend_handles_labels(), **place)
    loss_axes.set(
        xlabel="updates", ylabel=f"loss, mean of {UPDATES_OF_A_LOSS} mini-batches", yscale="log"
    )
    plain_ticks(loss_axes)
    charts.save(figure, path, source)


def draw_pauses(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the limits of workers that pause, and their losses after equal seconds."""
    figure, (rate_axes, loss_axes) = charts.subplots(3.0, 1, 2)
    unpaused = results.get(name_of(EIGHT, PAUSED_VARIATION), [])
    fastest = median_of(unpaused, "updates_per_second") if unpaused else None
    for number, place in enumerate((None, PULL, PUSH)):
        colour = ("k", "C0", "C1")[number]
        label: str | None = place or "no pause"
        for share in PAUSES if place else (0,):
            name = name_of(EIGHT, PAUSED_VARIATION, place, share)
            x = 100 * share + (0, -1, 1)[number]
            runs = results.get(name, [])
            low, high = bracket(runs)
            if low is not None and high is not None and fastest is not None:
                rate_axes.vlines(x, rate_of(low), rate_of(high), colour, linewidth=6, label=label)
                change = ""
                speed = median_of(runs, "updates_per_second")
                if place and speed is not None:
                    change = f"{speed / fastest - 1:+.0%}"
                side = ("center", "right", "left")[number]
                top = rate_of(high)
                rate_axes.text(x, top, change, color=colour, ha=side, va="bottom", fontsize=7)
            test_losses = [
                run["test_loss"] for run in results.get(EQUAL_SECONDS + name, []) if run["final"]
            ]
            test_losses = [test_loss for test_loss in test_losses if test_loss is not None]
            loss_axes.plot([x] * len(test_losses), test_losses, ".", color=colour, markersize=7)
            label = None  # once a place
    rate_axes.set(ylabel="learning rate")
    rate_axes.set_title("bar: from all learn to none; text: change of updates/s", fontsize=9)
    loss_axes.set(ylabel="test loss after equal seconds")
    for axes in (rate_axes, loss_axes):
        axes.set(xlabel="mean pause, % of a gradient's time", yscale="log")
        axes.margins(x=0.15, y=0.15)
        plain_ticks(axes)
    if rate_axes.collections:
        rate_axes.legend(frameon=False, fontsize=7)
    charts.save(figure, path, source)


def plain_ticks(axes: Axes) -> None:
    """Makes ticks at 1, 2 and 5 times the powers of ten, as plain numbers, and a grid."""
    ticks = [digit * 10.0**power for power in range(-4, 2) for digit in (1, 2, 5)]
    low, high = axes.get_ylim()
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.grid(alpha=0.25)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--updates", 600, "updates of a run")
    parser.number("--seconds", 3, "seconds of a run where losses after equal seconds are compared")
    parser.full("all searches, three seeds a rate; without it six runs of four workers")
    parser.redraw(__file__)
    groups, quick = all_groups(), quick_cases()
    cases = [*quick, *(case for group in groups for case in group)]
    flags, chosen_cases = parser.only(cases, [case.name for case in quick])
    if flags.full:
        chosen_cases = [case for case in chosen_cases if case not in quick]
    groups = [[case for case in group if case in chosen_cases] for group in [quick, *groups]]

    def measure_all(console: Console, directory: pathlib.Path) -> tuple[dict[str, Any], str, float]:
        digests = sessions.digests_of([EXAMPLE])
        seeds, kept = flags.repeats if flags.full else 1, directory / "measured.json"

        def run(case: Case, step: int, seed: int, results: dict[str, Any]) -> dict[str, Any]:
            return measure(case, step, seed, results, flags)

        tries = 1 if flags.anyway else 3
        results = by_rounds(groups, seeds, run, kept, tries, digests[EXAMPLE])
        sessions.write_digests(digests, directory)
        words = f"{flags.updates} updates of mini-batches of 32, at most {seeds} "
        words += f"{'seeds' if seeds > 1 else 'seed'} a rate; a gradient takes 5 ms longer a "
        words += f"worker, at least 20 ms; {text_tables.setting()}"
        return results, words, sessions.other_processes_share(kept)

    report = sessions.Report(script=__file__, flags=flags, width=160, table_of=table_of, draw=draw)
    report.make(measure_all)


if __name__ == "__main__":
    main()
