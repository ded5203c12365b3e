"""Late-Workers: what late pushes do to five algorithms, with 8 workers and with one slow of 4.

Each run trains on the same number of mini-batches, by the tasks that the example's run.sh starts.
Here all tasks are forked from one process that has imported TensorFlow, which saves minutes. The
slow worker is stopped by signals for two thirds of the time.

Kind:          driver
Run:           bash run.sh
"""

import contextlib
import json
import math
import multiprocessing
import os
import pathlib
import runpy
import signal
import statistics
import sys
import time

from rich.table import Table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers
from tfrun.launch import cluster

EXAMPLES = {"HogWild": 1, "DOWNPOUR-Easy": 10, "DOWNPOUR": 10, "ADAG": 10, "DynSGD": 1}  # name: T
EIGHT, SLOW, HIGH = "8 workers", "one of 4 slow", ", lr 0.5"
CASES = [  # what it is called, the example, workers, whether the last one is slow, lr
    *(("%s: %s" % (EIGHT, example), example, 8, False, 0.1) for example in EXAMPLES),
    *(("%s: %s" % (EIGHT + HIGH, each), each, 8, False, 0.5) for each in ("DOWNPOUR-Easy", "ADAG")),
    *(("%s: %s" % (SLOW, example), example, 4, True, 0.1) for example in EXAMPLES),
    ("4 workers%s: HogWild" % HIGH, "HogWild", 4, False, 0.5),
    *(("%s: %s" % (SLOW + HIGH, each), each, 4, True, 0.5) for each in ("HogWild", "DynSGD")),
]
RUN_SECONDS = 600  # for one run; the longest takes a tenth of that
DIVERGED = "FloatingPointError"  # with it a worker ends whose loss is no number any more


def task(script, flags, env, output):
    """In a forked process: is `python script flags` with `env`, its output in a file."""
    drivers.end_with_us(signal.SIGKILL)  # which ends a stopped process, too
    os.environ.update(env)
    sys.argv = [str(script), *map(str, flags)]
    with open(output, "w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        runpy.run_path(str(script), run_name="__main__")


def train(context, example, workers, slow, flags, directory):
    """Trains to the end; whether it did not diverge."""
    script = drivers.script_of(example)
    directory.mkdir()
    jobs = {"ps": 1, "worker": workers}
    ports, held = cluster.hold_ports(1 + workers)
    tasks = {}
    for (job, index), env in cluster.environments(jobs, ports, directory).items():
        output = directory / ("%s-%d.txt" % (job, index))
        # Daemons: they end with this process.
        tasks[output] = context.Process(target=task, args=(script, flags, env, output), daemon=True)
        tasks[output].start()
    slow_file = directory / ("metrics-worker-%d.csv" % (workers - 1))
    *_, last = tasks.values()
    deadline = time.monotonic() + RUN_SECONDS
    try:
        while any(each.is_alive() for each in tasks.values()):
            if time.monotonic() > deadline:
                sys.exit("%s did not end in %d s: %s" % (example, RUN_SECONDS, directory))
            failed = [output for output, each in tasks.items() if each.exitcode]
            if failed:
                texts = [output.read_text() for output in failed]
                if not any(DIVERGED in text for text in texts):
                    sys.exit("%s of %s failed: %s" % (failed[0].stem, example, texts[0][-2000:]))
                return False
            # From its first push on: before, it imports and builds the graph at full speed.
            if slow and last.is_alive() and slow_file.exists() and slow_file.stat().st_size > 100:
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    drivers.slow_down(last.pid)
            else:
                time.sleep(0.05)
        return True
    finally:
        for each in tasks.values():
            each.kill()
            each.join()
        for each in held:
            each.close()


def measure(context, case, seed, steps, directory):
    """Returns what one run has found."""
    _, example, workers, slow, rate = case
    windows = ["--local-steps", EXAMPLES[example]] if example != "HogWild" else []
    flags = ["--steps", steps // EXAMPLES[example], "--seed", seed, "--learning-rate", rate]
    trained = train(context, example, workers, slow, [*flags, *windows], directory)
    pushes, tests = drivers.pushes(directory), drivers.tests(directory)
    # The last test is that of the w at the end; a run that diverges has none.
    ended = trained and math.isfinite(tests[-1]["test_loss"])
    late = [int(row["staleness"]) for row in pushes]
    own = [int(row["staleness"]) for row in pushes if row["task"] == f"worker-{workers - 1}"]
    return {
        "test_loss": tests[-1]["test_loss"] if ended else None,  # None: it has diverged
        "test_accuracy": tests[-1]["test_accuracy"] if ended else None,
        "staleness_mean": statistics.mean(late),
        "staleness_max": max(late),
        "late": sum(staleness > 0 for staleness in late) / len(late),
        "staleness_of_last_worker": statistics.mean(own or [0]),
        "pushes": len(pushes),
        "pushes_of_last_worker": len(own),
        "seconds": pushes[-1]["push_time"] - pushes[0]["push_time"],
    }


def spread(values):
    """The median and the range, of those runs that did not diverge."""
    known = [value for value in values if value is not None]
    text = f"{statistics.median(known):.3f} ({min(known):.3f}-{max(known):.3f})" if known else ""
    lost = len(values) - len(known)
    return f"{text} {lost} diverged".strip() if lost else text


def table_of(results):
    """The table, a section for each cluster."""
    columns = "mean staleness", "of the last", "largest", "late pushes", "seconds"
    table, before = Table("workers", "example", "test loss", "accuracy", *columns), ""
    for name, runs in results.items():
        workers, example = name.split(": ")
        if before != workers:
            table.add_section()
        whole = {key: [run[key] for run in runs] for key in runs[0]}
        accuracies = [value for value in whole["test_accuracy"] if value is not None]
        table.add_row(
            workers if before != workers else "",
            example,
            spread(whole["test_loss"]),
            f"{100 * statistics.median(accuracies):.1f}%" if accuracies else "",
            f"{statistics.median(whole['staleness_mean']):.2f}",
            f"{statistics.median(whole['staleness_of_last_worker']):.2f}",
            str(max(whole["staleness_max"])),
            f"{100 * statistics.median(whole['late']):.0f}%",
            f"{statistics.median(whole['seconds']):.1f}",
        )
        before = workers
    return table


def draw(results, path, source):
    """Draws the test loss of each run, and how late its pushes were."""
    figure, (loss, late) = drivers.subplots(0.6 + 0.3 * len(results), 1, 2, sharey=True)
    colours = {example: f"C{number}" for number, example in enumerate(EXAMPLES)}
    for y, (name, runs) in enumerate(results.items()):
        style = dict(color=colours[name.split(": ")[1]], markersize=6)
        losses = [run["test_loss"] for run in runs if run["test_loss"] is not None]
        loss.plot(losses, [y] * len(losses), "o", alpha=0.8, **style)
        if len(losses) < len(runs):
            loss.text(0.98, y, "diverged", transform=loss.get_yaxis_transform(), ha="right")
        means = [run["staleness_mean"] for run in runs]
        late.plot(means, [y] * len(means), "o", alpha=0.8, **style)
        late.plot([max(run["staleness_max"] for run in runs)], [y], "|", **style)
    loss.set(xscale="log", yticks=range(len(results)))
    loss.set_yticklabels(results)
    loss.invert_yaxis()
    late.set(xscale="log", xticks=[2, 5, 10, 20, 40])
    loss.set_title("Test loss (dot: a run)", size=11, loc="left")
    late.set_title("Staleness: mean, largest (bar)", size=11, loc="left")
    for axes in (loss, late):
        axes.tick_params(labelsize=9)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.grid(alpha=0.25)
    drivers.save(figure, path, source)


def main():
    parser = drivers.Parser(__doc__)
    parser.number("--steps", 3000, "mini-batches of a run")
    parser.number("--repeats", 3, "seeds of each case")
    parser.redraw(__file__)
    flags, cases = parser.only(CASES)
    if flags.steps < 200:
        parser.error("--steps must be at least 200: several updates of each worker")

    def measure_all(console, directory):
        began = time.monotonic()
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["__main__", "tensorflow.compat.v1", "keras", "sklearn.datasets"]
        )

        def folder(case, seed):
            name = case[0].replace(": ", "-").replace(", ", "-")
            return directory / f"{name}-{seed}"

        def run(case, seed):
            return measure(context, case, seed, flags.steps, folder(case, seed))

        drivers.leave_digests([case[1] for case in cases], directory)
        results = drivers.by_turns(console, cases, flags.repeats, run)
        facts = json.loads((folder(cases[0], 0) / "flags.json").read_text())
        return results, (
            f"{flags.steps} mini-batches of 32 a run; seeds: {flags.repeats}, median (range); "
            f"{time.monotonic() - began:.0f} s in all; "
            + drivers.setting(f"TensorFlow {facts['versions']['tensorflow']}")
        )

    drivers.report(__file__, flags, 150, measure_all, table_of, draw)


if __name__ == "__main__":
    main()
