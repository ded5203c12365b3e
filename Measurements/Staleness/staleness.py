"""Staleness: what a bound on it does, and momentum that waits, with eight workers.

Each run is an example's own script, whose gradient takes a given time without using a core, as in
Scaling. The chief tests w every few updates, so that a run tells how many it needs to a test loss.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import math
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from lab import examples
from lab.measure import arguments, charts, delays, forked, sessions, text_tables
from lab.measure.text_tables import median_of
from matplotlib.axes import Axes
from rich.table import Table
from tfrun.runs.data import RunData

N = 8  # workers
MEAN = 0.04  # seconds that a mini-batch takes longer, on average but for the slow worker's
LOCAL_MEAN = 0.02  # the same where a worker takes T steps alone
GOAL = 0.2  # the test loss to which updates are counted
FURTHER = "Further-Algorithms/"
LEADS = (1, 2, 3, 5, 9, 17)
SLOW = "one slow"  # instead of exponential times
DELAYS = (1, 2, 4, 8, 16)
WARM = ", warm start"
BETA = 0.9  # of the momentum
T = 10  # local steps of the runs with momentum
NO_MOMENTUM = 1e-30  # a momentum that changes no number
BOUNDED_STALENESS, ASYNC_LOCAL_SGD, DELAY_COMPENSATION = (
    FURTHER + name for name in ("Bounded-Staleness", "Async-Local-SGD", "Delay-Compensation")
)
QUICK = ["at most 1 ahead", "at most 5 ahead", "no bound", "N = 1", "N = 8"]


class Case(NamedTuple):
    """What is trained."""

    name: str  # with its example behind a colon
    example: str
    value: Any  # of the flag that it varies; None where it has no such flag
    delay: str  # the law of the gradient's times
    warm: bool  # whether the first quarter of the pushes has no momentum


def all_cases() -> list[Case]:
    """Returns the Cases."""
    cases: list[tuple[str, str, Any]] = [
        (f"at most {lead} ahead", BOUNDED_STALENESS, lead) for lead in LEADS
    ]
    cases.append(("no bound", "HogWild", None))
    cases += [(f"lambda = {value}", DELAY_COMPENSATION, value) for value in (0.04, 1.0)]
    cases += [(f"{SLOW}, at most {lead} ahead", BOUNDED_STALENESS, lead) for lead in (1, 5, 17)]
    cases.append((f"{SLOW}, no bound", "HogWild", None))
    cases.append(("no momentum", ASYNC_LOCAL_SGD, 1))
    cases += [
        (f"N = {value}{words}", ASYNC_LOCAL_SGD, value) for words in ("", WARM) for value in DELAYS
    ]
    named = []
    for name, example, value in cases:
        delay = SLOW if SLOW in name else "exponential"
        named.append(Case(f"{name}: {example}", example, value, delay, name.endswith(WARM)))
    return named


def flags_of_case(case: Case, flags: argparse.Namespace, momentum: float = BETA) -> list[object]:
    """Returns the flags of a case's script: N comes with the outer rate at which each push moves w
    as far, whatever N is."""
    if case.example != ASYNC_LOCAL_SGD:
        case_flags = ["--learning-rate", flags.rate]
        if case.example == BOUNDED_STALENESS:
            case_flags += ["--max-lead", case.value]
        if case.example == DELAY_COMPENSATION:
            case_flags += ["--compensation", case.value]
        return case_flags
    beta = NO_MOMENTUM if "no momentum" in case.name else momentum
    outer = case.value * flags.move
    common = ["--local-steps", T, "--outer-momentum", beta, "--outer-rate", outer]
    return [*common, "--momentum-delay", case.value]


def measure(case: Case, repeat: int, flags: argparse.Namespace) -> dict[str, Any]:
    """Trains once; returns the numbers of the run."""
    script = examples.main_script(case.example)
    updates, mean = flags.updates, MEAN
    if case.example == ASYNC_LOCAL_SGD:
        updates, mean = flags.pushes, LOCAL_MEAN
    warm = 0
    stages = [(updates, BETA)]
    if case.warm:
        warm = updates // 4
        stages.insert(0, (warm, NO_MOMENTUM))
    common = ["--seed", repeat, "--checkpoint-steps", flags.every, *delays.ONE_A_CALL]
    changes = delays.changes(case.delay, mean, N, repeat + 1)
    with examples.changed_copy(script, changes) as (copy, directory):
        for steps, momentum in stages:
            script_flags = ["--steps", steps, *common, *flags_of_case(case, flags, momentum)]
            jobs = {"ps": 1, "worker": N}
            trained, samples = forked.train(copy, jobs, script_flags, directory)
        return summarize_run(trained, samples, RunData.read(directory), warm)


def summarize_run(
    trained: bool, samples: list[tuple[float, Any]], run: RunData, warm: int = 0
) -> dict[str, Any]:
    """Returns the numbers of a run that has ended, of what came after `warm` updates."""
    pushes = [push for push in run.rows("pushes") if push["global_step"] > warm]
    tests = [test for test in run.rows("tests") if test["global_step"] > warm]
    began, ended, updates = forked.window(pushes)
    has_loss = trained and math.isfinite(tests[-1]["test_loss"])
    at_goal = [test for test in tests if test["test_loss"] <= GOAL]
    return {
        "updates_per_second": updates,
        "idle": idle_share(pushes, began),
        "apart": largest_lead(pushes),
        "staleness_mean": statistics.fmean(push["staleness"] for push in pushes),
        "staleness_max": max(push["staleness"] for push in pushes),
        "updates_to": at_goal[0]["global_step"] if at_goal else None,  # None: it never came there
        "seconds_to": at_goal[0]["push_time"] - forked.common_start(pushes) if at_goal else None,
        "test_loss": tests[-1]["test_loss"] if has_loss else None,  # None: it has diverged
        "test_accuracy": tests[-1]["test_accuracy"] if has_loss else None,
        "cores": forked.per_second(samples, began, ended),
    }


def idle_share(pushes: list[dict[str, Any]], began: float) -> float:
    """Returns the share of the time, from `began` on, between a push and the next pull.

    Of all workers but the first, which tests meanwhile, and the last, which may be slow.
    """
    idle_seconds = 0.0
    seconds = 0.0
    for k in range(1, N - 1):
        pushes_of_k = [push for push in pushes if push["task"] == f"worker-{k}"]
        for push, next_push in zip(pushes_of_k, pushes_of_k[1:]):
            if push["push_time"] >= began:
                idle_seconds += next_push["pull_time"] - push["push_time"]
                seconds += next_push["push_time"] - push["push_time"]
    return idle_seconds / seconds


def largest_lead(pushes: list[dict[str, Any]]) -> int:
    """Returns by how many updates the fastest worker was ahead of the slowest at most."""
    clocks = dict.fromkeys((f"worker-{k}" for k in range(N)), 0)
    lead = 0
    for push in sorted(pushes, key=lambda push: push["global_step"]):
        clocks[push["task"]] += 1
        lead = max(lead, max(clocks.values()) - min(clocks.values()))
    return lead


def spread_or_never(runs: list[dict[str, Any]], key: str, form: str) -> str:
    """Returns the median and the range in words, and how many runs have none."""
    count = sum(run[key] is None for run in runs)
    words = text_tables.spread([run[key] for run in runs], form)
    return f"{words} {count} of {len(runs)} never".strip() if count else words


def table_of(results: dict[str, Any]) -> Table:
    """Returns the table: sections for the bounds, for a slow worker, and for the momentum."""
    previous = None
    columns = "updates/s", "idle", "apart", "staleness, mean", "most", "test loss", "accuracy, %"
    table = text_tables.plain_table("case", *columns, f"updates to {GOAL}", "seconds", "cores")
    table.columns[0].no_wrap = True
    for number, (case, runs) in enumerate(results.items()):
        case = case.partition(":")[0]
        section = SLOW if SLOW in case else case.startswith(("no momentum", "N"))
        if number and section != previous:
            table.add_section()
        previous = section
        accuracies = [text_tables.percent(run["test_accuracy"]) for run in runs]
        losses = spread_or_never(runs, "test_loss", "{:.3f}").replace("never", "diverged")
        table.add_row(
            case,
            text_tables.spread([run["updates_per_second"] for run in runs], "{:.0f}"),
            f"{median_of(runs, 'idle'):.0%}",
            f"{max(run['apart'] for run in runs)}",
            f"{median_of(runs, 'staleness_mean'):.1f}",
            f"{max(run['staleness_max'] for run in runs):.0f}",
            losses,
            text_tables.spread(accuracies, "{:.1f}"),
            # A warm start comes there before.
            "" if WARM in case else spread_or_never(runs, "updates_to", "{:.0f}"),
            ""
            if WARM in case
            else text_tables.spread([run["seconds_to"] for run in runs], "{:.1f}"),
            f"{median_of(runs, 'cores'):.2f}",
        )
    return table


def dots(
    axes: Axes,
    cases: Mapping[float, list[dict[str, Any]]],
    key: str,
    colour: str,
    style: str = "o-",
    label: str | None = None,
) -> None:
    """Draws {x: runs}: a dot for each run, and larger ones at their medians, which are joined.

    A run without a number counts as the largest of all, and is a cross at the top.
    """
    medians = {}
    for x, runs in cases.items():
        values = [math.inf if run[key] is None else run[key] for run in runs]
        numbers = [value for value in values if value < math.inf]
        median = statistics.median(values)
        if median < math.inf:
            medians[x] = median
        axes.plot([x] * len(numbers), numbers, ".", color=colour, alpha=0.5, markersize=4)
        if len(numbers) < len(values):
            top: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(x, 1, "x", color=colour, **top)
            axes.text(x, 0.96, f"{len(values) - len(numbers)} never", ha="center", va="top", **top)
    axes.plot(
        list(medians),
        list(medians.values()),
        style,
        color=colour,
        markersize=6,
        linewidth=1.2,
        label=label,
    )


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws updates to the goal and idle share against the bound; the loss against N."""
    results = {case.partition(":")[0]: runs for case, runs in results.items()}
    figure, (goal_axes, idle_axes, momentum_axes) = charts.subplots(3.4, 1, 3)
    runs_of_leads = {lead: results.get(f"at most {lead} ahead") for lead in LEADS}
    runs_of_leads[2 * LEADS[-1]] = results.get("no bound")
    leads: dict[float, Any] = {lead: runs for lead, runs in runs_of_leads.items() if runs}
    names = [f"{lead}" if lead in LEADS else "any" for lead in leads]
    dots(goal_axes, leads, "updates_to", "C0")
    dots(idle_axes, leads, "idle", "C0")
    goal_axes.set_title(f"updates to a loss of {GOAL}", fontsize=10)
    idle_axes.set_title("idle share of a worker", fontsize=10)
    idle_axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for axes in goal_axes, idle_axes:
        axes.set_xlabel("lead that it may have, s + 1", fontsize=9)
        axes.set_ylim(bottom=0)
        if leads:
            axes.set_xscale("log")
            axes.set_xticks(list(leads), names)
    for number, words in enumerate(("", WARM)):
        runs_of_delays = {delay: results.get(f"N = {delay}{words}") for delay in DELAYS}
        shifted = {delay * 1.08**number: runs for delay, runs in runs_of_delays.items() if runs}
        label, style = words[2:] or "from scratch", ("o-", "s--")[number]
        dots(momentum_axes, shifted, "test_loss", f"C{number}", style, label)
    if runs := results.get("no momentum"):
        height = median_of(runs, "test_loss")
        momentum_axes.axhline(height, label="no momentum", color="k", linestyle=":", linewidth=1)
    momentum_axes.axhline(math.log(10), color="grey", linewidth=0.8, label="guessing")
    momentum_axes.plot([], [], ".", color="grey", markersize=4, label="a run (larger: median)")
    momentum_axes.set_title("test loss at the end", fontsize=10)
    momentum_axes.set_xlabel("pushes to a momentum, N", fontsize=9)
    momentum_axes.set(xscale="log", yscale="log")
    momentum_axes.set_xticks(DELAYS, DELAYS)
    ticks = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
    momentum_axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    for axes in goal_axes, idle_axes, momentum_axes:
        axes.minorticks_off()
        axes.grid(alpha=0.25)
    handles = momentum_axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower right", ncols=5, frameon=False, fontsize=8)
    charts.save(figure, path, source)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--updates", 1000, "updates of a run with a bound")
    parser.number("--pushes", 400, "updates of a run with momentum")
    parser.number("--rate", 0.1, "lr of the runs with a bound", float)
    parser.number("--move", 0.125, "outer / N of the runs with momentum", float)
    parser.number("--every", 20, "updates between two tests")
    parser.full("all cases; without it five, once each")
    parser.redraw(__file__)
    quick = [case.name for case in all_cases() if case.name.partition(":")[0] in QUICK]
    flags, cases = parser.only(all_cases(), quick)

    session = sessions.Session(
        flags=flags,
        cases=cases,
        examples=[case.example for case in cases],
        measure=lambda case, repeat: measure(case, repeat, flags),
        words=f"{N} workers; a gradient takes {1000 * MEAN:.0f} ms longer on average, of the slow "
        f"worker {5000 * MEAN:.0f} ms; lr {flags.rate}. In the last part {T} local steps of "
        f"{1000 * LOCAL_MEAN:.0f} ms each; lr 0.1; each push moves w by {flags.move} d",
    )
    report = sessions.Report(script=__file__, flags=flags, width=176, table_of=table_of, draw=draw)
    report.make(session.measure_all)


if __name__ == "__main__":
    main()
