"""Scaling: 1 to 16 workers whose gradient takes a given time without using a core.

Each run is an example's own script, to which a delay on the way back from the loss is added. All
workers then compute at once, as on machines of their own, although there are two cores here.

Kind:          driver
Run:           bash run.sh
"""

import collections
import itertools
import math
import pathlib
import statistics
from typing import Any, NamedTuple

import numpy as np
from lab import examples
from lab.measure import arguments, charts, delays, forked, sessions, text_tables
from lab.measure.text_tables import median_of
from rich.table import Table
from tfrun.runs import summary
from tfrun.runs.data import RunData
from tfrun.simulate import laws, schemes

MEAN = 0.07  # seconds that a gradient takes longer, on average, but for the slow worker's
T = 10  # mini-batches of an update, in those examples whose workers take steps alone
WITH_LOCAL_STEPS = ("DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "SAGN")  # the examples with T local steps
SYNCHRONOUS = ("Synchronous-SGD", "SAGN", "Ring-AllReduce")
BACKUP, OPTIMIZER = "Synchronous-SGD, a backup", "Synchronous-SGD, the optimizer"
OPTIMIZER_BACKUP = OPTIMIZER + ", a backup"
WITH_MORE_WORKERS = ("HogWild", "Synchronous-SGD", "Ring-AllReduce")
COMPARED = (
    "HogWild",
    "DynSGD",
    "DOWNPOUR-Easy",
    "Synchronous-SGD",
    BACKUP,
    "SAGN",
    "Ring-AllReduce",
)
ASYNCHRONOUS = ("HogWild", "DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "DynSGD")
QUANTILES = [0, 0.01, 0.05, *(i / 10 for i in range(1, 10)), 0.95, 0.99, 1]
QUICK = ["1 worker, constant: HogWild", f"8 workers, exponential: {BACKUP}"]
QUICK += [f"{n} workers, exponential: {name}" for n in (2, 8) for name in WITH_MORE_WORKERS[:2]]


def all_cases() -> list[arguments.Case]:
    """Returns [(what a case is called, the example, workers, delay, lr)]."""
    cases = [("HogWild", 1, "constant", 0.1)]
    cases += [(name, n, "exponential", 0.1) for n in (1, 2, 4, 8, 16) for name in WITH_MORE_WORKERS]
    cases += [(name, 8, "exponential", 0.1) for name in (*COMPARED, *ASYNCHRONOUS)]
    cases += [(name, 8, "exponential", 0.5) for name in ("DOWNPOUR-Easy", "ADAG")]
    for delay in ("constant", "heavy-tailed"):
        names = ("HogWild", "DOWNPOUR-Easy", "Synchronous-SGD", BACKUP)
        cases += [(name, 8, delay, 0.1) for name in names]
    cases += [(name, 8, "one slow", 0.1) for name in COMPARED]
    one_slow = (*ASYNCHRONOUS, "Synchronous-SGD", BACKUP, OPTIMIZER, OPTIMIZER_BACKUP)
    cases += [(name, 4, "one slow", 0.1) for name in one_slow]
    cases.append(("HogWild", 4, "exponential", 0.5))
    cases += [(name, 4, "one slow", 0.5) for name in ("HogWild", "DynSGD")]
    named = []
    for name, n, delay, lr in dict.fromkeys(cases):
        cluster = f"{n} workers, {delay}" if n > 1 else f"{n} worker, {delay}"
        if lr != 0.1:
            cluster += f", lr {lr}"
        named.append((f"{cluster}: {name}", name, n, delay, lr))
    return named


def script_of(name: str) -> pathlib.Path:
    """Returns the script of what a case runs."""
    if name.startswith(OPTIMIZER):
        return examples.main_script("From-TensorFlow-1/Synchronous-SGD-Optimizer")
    return examples.main_script(name.split(",")[0])


def gradients_needed(name: str, n: int) -> int:
    """Returns how many gradients an update needs: one, or those of all workers, or all but one."""
    if name.split(",")[0] not in SYNCHRONOUS:
        return 1
    return n - 1 if name.endswith("a backup") else n


def law(name: str, n: int, delay: str, own: float, mean: float = MEAN) -> float | None:
    """Returns the mini-batches a second of a cluster that is simulated, without TensorFlow.

    own: mean seconds of a worker for an update beside the delays, which vary: exponentially. Where
    workers make updates together, each waits for the last, or for the last but one. A worker whose
    gradient comes too late for its step ends it all the same, and only then begins the next. None
    for the optimizer with a backup: there a fast worker takes the place of a slow one.
    """
    if name == OPTIMIZER_BACKUP:
        return None
    local = T if name in WITH_LOCAL_STEPS else 1
    draws = [delays.draws(delay, mean, k, n, seed=7) for k in range(n)]
    times = np.stack([list(itertools.islice(seconds, 6000)) for seconds in draws], axis=1)
    times = laws.local_steps(times, local)
    if own:
        times += laws.step_times("exponential", n, len(times), own, seed=7)
    if name.split(",")[0] in SYNCHRONOUS:
        trace = schemes.synchronous(times, gradients_needed(name, n))
    else:
        trace = schemes.asynchronous(times)
    return schemes.rate(trace) * local


def batches_of(case: arguments.Case, batches: int) -> int:
    """Returns the mini-batches of a run: `batches` where a loss is compared, or fewer."""
    _, name, n, delay, _ = case
    is_synchronous = gradients_needed(name, n) > 1
    if (n, delay) == (8, "exponential") or n >= 4 and not is_synchronous:
        return batches
    seconds = batches / 100
    return int(min(batches, seconds * (law(name, n, delay, 0) or 3 / MEAN)))


def measure(case: arguments.Case, repeat: int, batches: int) -> dict[str, Any]:
    """Trains once; returns the numbers of the run."""
    _, name, n, delay, lr = case
    batches = batches_of(case, batches)
    script, local = script_of(name), T if name in WITH_LOCAL_STEPS else 1
    fewest = 8 if name == "SAGN" else 20
    flags = [
        "--steps",
        max(fewest, batches // local // gradients_needed(name, n)),
        "--seed",
        repeat,
    ]
    flags += ["--learning-rate", lr]
    if name in (*WITH_LOCAL_STEPS, "DynSGD"):
        flags += ["--local-steps", local]
    if name.endswith("a backup"):
        flags += ["--backup-workers", 1]
    if not name.startswith(("Ring-AllReduce", OPTIMIZER)):
        flags += delays.ONE_A_CALL
    jobs = {"worker": n} if name == "Ring-AllReduce" else {"ps": 1, "worker": n}
    changes = delays.changes(delay, MEAN, n, repeat + 1)
    with examples.changed_copy(script, changes) as (copy, directory):
        trained, samples = forked.train(copy, jobs, flags, directory)
        return {**summarize_run(name, n, trained, samples, directory), "batches": batches}


def summarize_run(
    name: str, n: int, trained: bool, samples: list[tuple[float, Any]], directory: pathlib.Path
) -> dict[str, Any]:
    """Returns the numbers of a run that has ended."""
    run = RunData.read(directory)
    pushes, tests = run.rows("pushes"), run.rows("tests")
    began, ended, updates = forked.window(pushes)
    timed_pushes = [push for push in pushes if push["push_time"] > began]
    staleness = [push["staleness"] for push in pushes]
    of_last_worker = [push["staleness"] for push in pushes if push["task"] == f"worker-{n - 1}"]
    # The last test is that of the w at the end; a run that diverges has none.
    has_loss = trained and math.isfinite(tests[-1]["test_loss"])
    waited = sum(push["wait_seconds"] for push in timed_pushes)
    computed = sum(push["push_time"] - push["pull_time"] for push in timed_pushes)
    return {
        "batches_per_second": updates
        * (T if name in WITH_LOCAL_STEPS else 1)
        * gradients_needed(name, n),
        "test_loss": tests[-1]["test_loss"] if has_loss else None,  # None: it has diverged
        "test_accuracy": tests[-1]["test_accuracy"] if has_loss else None,
        "staleness_mean": statistics.fmean(staleness),
        "staleness_by_rates": summary.summarize(run)["staleness_by_rates"] if has_loss else None,
        "staleness_max": max(staleness),
        "staleness_counts": np.bincount(np.array(staleness, int)).tolist(),  # of 0, 1, 2, ...
        **durations(pushes),
        "late": sum(age > 0 for age in staleness) / len(staleness),
        "staleness_of_last_worker": statistics.fmean(of_last_worker or [0]),
        "twice": share_pushed_twice(pushes),
        "waiting": waited / computed,
        "cores": forked.per_second(samples, began, ended),
        "seconds": ended - forked.common_start(pushes),
    }


def durations(pushes: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Returns QUANTILES of the seconds from pull to push, of computing in them, and to a pull.

    From these times a plan for more workers can be made.
    """
    phases: dict[str, list[float]] = {"pull_to_push": [], "computing": [], "push_to_pull": []}
    last_push: dict[str, float] = {}  # when each task has pushed
    for push in pushes:
        seconds = push["push_time"] - push["pull_time"]
        phases["pull_to_push"].append(seconds)
        phases["computing"].append(seconds - push["wait_seconds"])
        if push["task"] in last_push:
            phases["push_to_pull"].append(push["pull_time"] - last_push[push["task"]])
        last_push[push["task"]] = push["push_time"]
    return {
        name: np.quantile(seconds or [0], QUANTILES).round(6).tolist()
        for name, seconds in phases.items()
    }


def share_pushed_twice(pushes: list[dict[str, Any]]) -> float:
    """Returns the share of the steps for which some worker pushed two gradients, both in time."""
    counts = collections.Counter(
        (push["global_step"], push["task"]) for push in pushes if push["staleness"] == 0
    )
    steps = {step for step, _ in counts}
    steps_pushed_twice = {step for (step, _), count in counts.items() if count > 1}
    return len(steps_pushed_twice) / max(1, len(steps))


class Parts(NamedTuple):
    """What the name of a case says."""

    cluster: str  # in words
    example: str
    workers: int
    delay: str


def parts(case: str) -> Parts:
    """Returns the Parts of the name of a case."""
    cluster, name = case.split(": ")
    workers, delay, *_ = cluster.split(", ")
    return Parts(cluster, name, int(workers.split()[0]), delay)


def own_seconds(results: dict[str, Any]) -> float:
    """Returns the seconds of a worker for a mini-batch beside the delay: of one that is alone."""
    runs = results.get("1 worker, constant: HogWild")
    rate = median_of(runs, "batches_per_second") if runs else None
    return 1 / rate - MEAN if rate else 0


def losses(runs: list[dict[str, Any]]) -> str:
    """Returns the median and the range of the test losses, and how many runs diverged."""
    diverged = sum(run["test_loss"] is None for run in runs)
    words = text_tables.spread([run["test_loss"] for run in runs], "{:.3f}")
    return f"{words} {diverged} diverged".strip() if diverged else words


def table_of(results: dict[str, Any]) -> Table:
    """Returns the table, a section for each cluster."""
    columns = ["workers, delay", "example", "mini-batches/s", "to the law", "staleness / by rates"]
    columns += ["waiting", "twice", "test loss", "seconds", "cores"]
    table = text_tables.plain_table(*columns)
    previous = ""
    own = own_seconds(results)
    most_batches = max(run["batches"] for runs in results.values() for run in runs)
    clusters = list(dict.fromkeys(parts(case).cluster for case in results))
    for case in sorted(results, key=lambda case: clusters.index(parts(case).cluster)):
        runs, (cluster, name, n, delay) = results[case], parts(case)
        if previous != cluster:
            table.add_section()
        rate = median_of(runs, "batches_per_second")
        by_rates = median_of(runs, "staleness_by_rates")
        expected = law(name, n, delay, own)
        is_synchronous = gradients_needed(name, n) > 1
        staleness = ""
        if by_rates and not is_synchronous:
            staleness = f"{median_of(runs, 'staleness_mean'):.2f} / {by_rates:.2f}"
        table.add_row(
            cluster if previous != cluster else "",
            name,
            text_tables.spread([run["batches_per_second"] for run in runs], "{:.1f}"),
            f"{rate / expected:.2f}" if rate and expected else "",
            staleness,
            # The ring's graph notes when it has pulled only after the delay.
            "" if name == "Ring-AllReduce" else f"{median_of(runs, 'waiting'):.0%}",
            f"{median_of(runs, 'twice'):.0%}" if is_synchronous else "",
            losses(runs) if runs[0]["batches"] == most_batches else "",
            f"{median_of(runs, 'seconds'):.0f}",
            f"{median_of(runs, 'cores'):.2f}",
        )
        previous = cluster
    return table


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the rates beside their laws, and the test loss of 8 workers against the time."""
    figure, (rate_axes, loss_axes) = charts.subplots(4.2, 1, 2)
    own = own_seconds(results)
    colours = {name: f"C{number}" for number, name in enumerate((*COMPARED, *ASYNCHRONOUS[2:4]))}
    for name in WITH_MORE_WORKERS:
        runs_of_n = {}
        for case, runs in results.items():
            _, other, n, delay = parts(case)
            if (other, delay) == (name, "exponential") and "lr" not in case:
                runs_of_n[n] = runs
        for n, runs in runs_of_n.items():
            rate_axes.plot(
                [n] * len(runs),
                [run["batches_per_second"] for run in runs],
                ".",
                color=colours[name],
            )
        if not runs_of_n:
            continue
        expected = [law(name, n, "exponential", own) for n in runs_of_n]
        style = "--" if name == "Ring-AllReduce" else "-"
        rate_axes.plot(
            list(runs_of_n), expected, color=colours[name], label=name, linestyle=style, linewidth=1
        )
    for case, runs in results.items():
        cluster, name, n, _ = parts(case)
        if cluster != "8 workers, exponential" or not losses(runs):
            continue
        colour = colours[name]
        tested = [run for run in runs if run["test_loss"] is not None]
        seconds = [run["seconds"] for run in tested]
        test_losses = [run["test_loss"] for run in tested]
        loss_axes.plot(seconds, test_losses, "o", label=name, color=colour, markersize=5)
        if crosses := [run["seconds"] for run in runs if run["test_loss"] is None]:  # diverged
            loss_axes.plot(
                crosses,
                [1] * len(crosses),
                "x",
                color=colour,
                markersize=5,
                transform=loss_axes.get_xaxis_transform(),
                clip_on=False,
            )
    loss_axes.axhline(math.log(10), color="grey", linewidth=0.8, label="guessing")
    rate_axes.set(xlabel="workers (line: simulated)", ylabel="mini-batches per second")
    rate_axes.set_xticks(sorted({parts(case).workers for case in results}))
    loss_axes.set(xlabel="seconds, 8 workers", ylabel="test loss", yscale="log")
    loss_axes.yaxis.set_major_formatter("{x:g}")
    handle_of: dict[str, Any] = {}
    for axes in (rate_axes, loss_axes):
        handles, names = axes.get_legend_handles_labels()
        handle_of.update(zip(names, handles))
    figure.legend(
        handle_of.values(),
        handle_of.keys(),
        ncols=4,
        loc="outside lower center",
        frameon=False,
        fontsize=8,
    )
    for axes in (rate_axes, loss_axes):
        axes.grid(alpha=0.25)
    charts.save(figure, path, source)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--batches", 1000, "mini-batches of a run whose loss is compared")
    parser.full("all cases; without it six, once each")
    parser.redraw(__file__)
    flags, cases = parser.only(all_cases(), QUICK)

    scripts = [script_of(name) for _, name, *_ in cases]
    session = sessions.Session(
        flags=flags,
        cases=cases,
        examples=[path.parent.relative_to(examples.ROOT).as_posix() for path in scripts],
        measure=lambda case, repeat: measure(case, repeat, flags.batches),
        words=f"{flags.batches} mini-batches of 32 where a loss stands; a gradient takes "
        f"{1000 * MEAN:.0f} ms longer on average",
    )
    report = sessions.Report(script=__file__, flags=flags, width=160, table_of=table_of, draw=draw)
    report.make(session.measure_all)


if __name__ == "__main__":
    main()
