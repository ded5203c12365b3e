"""Scaling: 1 to 16 workers whose gradient takes a given time without using a core.

Each run is an example's own script, to which a delay on the way back from the loss is added. All
workers then compute at once, as on machines of their own, although there are two cores here.

Kind:          driver
Run:           bash run.sh
"""

import collections
import itertools
import math
import statistics

import numpy as np
from lab import examples
from lab.measure import arguments, charts, delays, forked, sessions, text_tables
from lab.measure.text_tables import median_of
from tfrun.runs import summary
from tfrun.runs.data import RunData
from tfrun.simulate import laws, schemes

MEAN = 0.07  # seconds that a gradient takes longer, on average, but for the slow worker's
T = 10  # mini-batches of an update, in those examples whose workers take steps alone
ALONE = ("DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "SAGN")  # the examples with T local steps
TOGETHER = ("Synchronous-SGD", "SAGN", "Ring-AllReduce")
BACKUP, OPTIMIZER = "Synchronous-SGD, a backup", "Synchronous-SGD, the optimizer"
OPTIMIZER_BACKUP = OPTIMIZER + ", a backup"
GROWING = ("HogWild", "Synchronous-SGD", "Ring-AllReduce")
SEVEN = ("HogWild", "DynSGD", "DOWNPOUR-Easy", "Synchronous-SGD", BACKUP, "SAGN", "Ring-AllReduce")
LATE = ("HogWild", "DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "DynSGD")
QUANTILES = [0, 0.01, 0.05, *(i / 10 for i in range(1, 10)), 0.95, 0.99, 1]
QUICK = ["1 worker, constant: HogWild", f"8 workers, exponential: {BACKUP}"]
QUICK += [f"{n} workers, exponential: {name}" for n in (2, 8) for name in GROWING[:2]]


def all_cases():
    """Returns [(what a case is called, the example, workers, delay, lr)]."""
    cases = [("HogWild", 1, "constant", 0.1)]
    cases += [(name, n, "exponential", 0.1) for n in (1, 2, 4, 8, 16) for name in GROWING]
    cases += [(name, 8, "exponential", 0.1) for name in (*SEVEN, *LATE)]
    cases += [(name, 8, "exponential", 0.5) for name in ("DOWNPOUR-Easy", "ADAG")]
    four = ("HogWild", "DOWNPOUR-Easy", "Synchronous-SGD", BACKUP)
    cases += [(name, 8, delay, 0.1) for delay in ("constant", "heavy-tailed") for name in four]
    cases += [(name, 8, "one slow", 0.1) for name in SEVEN]
    four = ("Synchronous-SGD", BACKUP, OPTIMIZER, OPTIMIZER_BACKUP)
    cases += [(name, 4, "one slow", 0.1) for name in (*LATE, *four)]
    cases.append(("HogWild", 4, "exponential", 0.5))
    cases += [(name, 4, "one slow", 0.5) for name in ("HogWild", "DynSGD")]
    named = []
    for name, n, delay, lr in dict.fromkeys(cases):
        cluster = f"{n} workers, {delay}" if n > 1 else f"{n} worker, {delay}"
        if lr != 0.1:
            cluster += f", lr {lr}"
        named.append((f"{cluster}: {name}", name, n, delay, lr))
    return named


def script_of(name):
    """Returns the script of what a case runs."""
    if name.startswith(OPTIMIZER):
        return examples.main_script("From-TensorFlow-1/Synchronous-SGD-Optimizer")
    return examples.main_script(name.split(",")[0])


def needed(name, n):
    """Returns how many gradients an update needs: one, or those of all workers, or all but one."""
    if name.split(",")[0] not in TOGETHER:
        return 1
    return n - name.endswith("a backup")


def law(name, n, delay, own, mean=MEAN):
    """Returns the mini-batches a second of a cluster that is simulated, without TensorFlow.

    own: mean seconds of a worker for an update beside the delays, which vary: exponentially. Where
    workers make updates together, each waits for the last, or for the last but one. A worker whose
    gradient comes too late for its step ends it all the same, and only then begins the next. None
    for the optimizer with a backup: there a fast worker takes the place of a slow one.
    """
    if name == OPTIMIZER_BACKUP:
        return None
    local = T if name in ALONE else 1
    drawn = (delays.draws(delay, mean, k, n, seed=7) for k in range(n))
    times = np.stack([list(itertools.islice(worker_times, 6000)) for worker_times in drawn], axis=1)
    times = laws.local_steps(times, local)
    if own:
        times += laws.step_times("exponential", n, len(times), own, seed=7)
    is_synchronous = name.split(",")[0] in TOGETHER
    scheme = (
        schemes.synchronous(times, needed(name, n))
        if is_synchronous
        else schemes.asynchronous(times)
    )
    return schemes.rate(scheme) * local


def batches_of(case, batches):
    """Returns the mini-batches of a run: `batches` where a loss is compared, or fewer."""
    _, name, n, delay, _ = case
    synchronous = needed(name, n) > 1
    if (n, delay) == (8, "exponential") or n >= 4 and not synchronous:
        return batches
    seconds = batches / 100
    return int(min(batches, seconds * (law(name, n, delay, 0) or 3 / MEAN)))


def measure(case, repeat, batches):
    """Returns what one run has found."""
    _, name, n, delay, lr = case
    batches = batches_of(case, batches)
    script, local = script_of(name), T if name in ALONE else 1
    fewest = 8 if name == "SAGN" else 20
    flags = ["--steps", max(fewest, batches // local // needed(name, n)), "--seed", repeat]
    flags += ["--learning-rate", lr]
    flags += ["--local-steps", local] if name in (*ALONE, "DynSGD") else []
    flags += ["--backup-workers", 1] if name.endswith("a backup") else []
    flags += [] if name.startswith(("Ring-AllReduce", OPTIMIZER)) else delays.ONE_A_CALL
    jobs = {"worker": n} if name == "Ring-AllReduce" else {"ps": 1, "worker": n}
    changes = delays.changes(delay, MEAN, n, repeat + 1)
    with examples.changed_copy(script, changes) as (copy, directory):
        trained, samples = forked.train(copy, jobs, flags, directory)
        return {**facts(name, n, trained, samples, directory), "batches": batches}


def facts(name, n, trained, samples, directory):
    """Returns the numbers of a run that has ended."""
    run = RunData.read(directory)
    pushes, tests = run.rows("pushes"), run.rows("tests")
    began, ended, updates = forked.window(pushes)
    inside = [push for push in pushes if push["push_time"] > began]
    late = [push["staleness"] for push in pushes]
    own = [push["staleness"] for push in pushes if push["task"] == f"worker-{n - 1}"]
    # The last test is that of the w at the end; a run that diverges has none.
    whole = trained and math.isfinite(tests[-1]["test_loss"])
    waited = sum(push["wait_seconds"] for push in inside)
    return {
        "batches_per_second": updates * (T if name in ALONE else 1) * needed(name, n),
        "test_loss": tests[-1]["test_loss"] if whole else None,  # None: it has diverged
        "test_accuracy": tests[-1]["test_accuracy"] if whole else None,
        "staleness_mean": statistics.fmean(late),
        "staleness_by_rates": summary.summarize(run)["staleness_by_rates"] if whole else None,
        "staleness_max": max(late),
        "staleness_counts": np.bincount(np.array(late, int)).tolist(),  # of 0, 1, 2, ...
        **durations(pushes),
        "late": sum(staleness > 0 for staleness in late) / len(late),
        "staleness_of_last_worker": statistics.fmean(own or [0]),
        "twice": twice(pushes),
        "waiting": waited / sum(push["push_time"] - push["pull_time"] for push in inside),
        "cores": forked.per_second(samples, began, ended),
        "seconds": ended - forked.common_start(pushes),
    }


def durations(pushes):
    """Returns QUANTILES of the seconds from pull to push, of computing in them, and to a pull.

    From these times a plan for more workers can be made.
    """
    whole, computing, pauses, before = [], [], [], {}
    for push in pushes:
        whole.append(push["push_time"] - push["pull_time"])
        computing.append(whole[-1] - push["wait_seconds"])
        if push["task"] in before:
            pauses.append(push["pull_time"] - before[push["task"]])
        before[push["task"]] = push["push_time"]
    phases = {"pull_to_push": whole, "computing": computing, "push_to_pull": pauses}
    return {
        name: np.quantile(seconds or [0], QUANTILES).round(6).tolist()
        for name, seconds in phases.items()
    }


def twice(pushes):
    """Returns the share of the steps for which some worker pushed two gradients, both in time."""
    pushed = collections.Counter(
        (push["global_step"], push["task"]) for push in pushes if push["staleness"] == 0
    )
    several = {step for (step, _), times in pushed.items() if times > 1}
    return len(several) / max(1, len({step for step, _ in pushed}))


def parts(case):
    """Returns (the cluster in words, the example, the number of workers, the delay) of a name."""
    cluster, name = case.split(": ")
    n, delay, *_ = cluster.split(", ")
    return cluster, name, int(n.split()[0]), delay


def own_seconds(results):
    """Returns the seconds of a worker for a mini-batch beside the delay: of one that is alone."""
    alone = results.get("1 worker, constant: HogWild")
    return 1 / median_of(alone, "batches_per_second") - MEAN if alone else 0


def losses(runs):
    """Returns the median and the range of the test losses, and how many runs diverged."""
    lost = sum(run["test_loss"] is None for run in runs)
    words = text_tables.spread([run["test_loss"] for run in runs], "{:.3f}")
    return f"{words} {lost} diverged".strip() if lost else words


def table_of(results):
    """Returns the table, a section for each cluster."""
    columns = "mini-batches/s", "to the law", "staleness / by rates"
    columns += "waiting", "twice", "test loss", "seconds", "cores"
    table = text_tables.plain_table("workers, delay", "example", *columns)
    before, own = "", own_seconds(results)
    whole = max(run["batches"] for runs in results.values() for run in runs)
    clusters = list(dict.fromkeys(parts(case)[0] for case in results))
    for case in sorted(results, key=lambda case: clusters.index(parts(case)[0])):
        runs, (cluster, name, n, delay) = results[case], parts(case)
        if before != cluster:
            table.add_section()
        rate, by_rates = (
            median_of(runs, "batches_per_second"),
            median_of(runs, "staleness_by_rates"),
        )
        expected, synchronous = law(name, n, delay, own), needed(name, n) > 1
        table.add_row(
            cluster if before != cluster else "",
            name,
            text_tables.spread([run["batches_per_second"] for run in runs], "{:.1f}"),
            f"{rate / expected:.2f}" if expected else "",
            ""
            if synchronous or not by_rates
            else f"{median_of(runs, 'staleness_mean'):.2f} / {by_rates:.2f}",
            # The ring's graph notes when it has pulled only after the delay.
            "" if name == "Ring-AllReduce" else f"{median_of(runs, 'waiting'):.0%}",
            f"{median_of(runs, 'twice'):.0%}" if synchronous else "",
            losses(runs) if runs[0]["batches"] == whole else "",
            f"{median_of(runs, 'seconds'):.0f}",
            f"{median_of(runs, 'cores'):.2f}",
        )
        before = cluster
    return table


def draw(results, path, source):
    """Draws the rates beside their laws, and the test loss of 8 workers against the time."""
    figure, (rates, loss) = charts.subplots(4.2, 1, 2)
    own = own_seconds(results)
    colours = {name: f"C{number}" for number, name in enumerate((*SEVEN, *LATE[2:4]))}
    for name in GROWING:
        known = {
            n: runs
            for case, runs in results.items()
            for _, other, n, delay in [parts(case)]
            if (other, delay) == (name, "exponential") and "lr" not in case
        }
        for n, runs in known.items():
            rates.plot(
                [n] * len(runs),
                [run["batches_per_second"] for run in runs],
                ".",
                color=colours[name],
            )
        if not known:
            continue
        expected = [law(name, n, "exponential", own) for n in known]
        style = "--" if name == "Ring-AllReduce" else "-"
        rates.plot(
            list(known), expected, color=colours[name], label=name, linestyle=style, linewidth=1
        )
    for case, runs in results.items():
        cluster, name, n, _ = parts(case)
        if cluster != "8 workers, exponential" or not losses(runs):
            continue
        colour = colours[name]
        known = [run for run in runs if run["test_loss"] is not None]
        seconds = [run["seconds"] for run in known]
        test_losses = [run["test_loss"] for run in known]
        loss.plot(seconds, test_losses, "o", label=name, color=colour, markersize=5)
        if lost := [run["seconds"] for run in runs if run["test_loss"] is None]:  # diverged
            loss.plot(
                lost,
                [1] * len(lost),
                "x",
                color=colour,
                markersize=5,
                transform=loss.get_xaxis_transform(),
                clip_on=False,
            )
    loss.axhline(math.log(10), color="grey", linewidth=0.8, label="guessing")
    rates.set(xlabel="workers (line: simulated)", ylabel="mini-batches per second")
    rates.set_xticks(sorted({parts(case)[2] for case in results}))
    loss.set(xlabel="seconds, 8 workers", ylabel="test loss", yscale="log")
    loss.yaxis.set_major_formatter("{x:g}")
    known = dict(zip(*reversed(rates.get_legend_handles_labels())))
    known.update(zip(*reversed(loss.get_legend_handles_labels())))
    figure.legend(
        known.values(),
        known.keys(),
        ncols=4,
        loc="outside lower center",
        frameon=False,
        fontsize=8,
    )
    for axes in (rates, loss):
        axes.grid(alpha=0.25)
    charts.save(figure, path, source)


def main():
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
