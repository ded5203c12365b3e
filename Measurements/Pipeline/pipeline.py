"""Pipeline: how long two workers are idle when each holds half of a model.

Runs the script of Model-Parallelism with a wide model in its `problem` region, each worker on one
core, and reads from the timelines of its updates when each worker computed.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile

import matplotlib
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers
from tfrun import drawn

SCRIPT = drivers.ROOT / "Model-Parallelism" / "model_parallelism.py"
BATCH, WARM_UP = 1024, 5
# What stands in the script, and what takes its place: layers whose products take milliseconds, and
# a core of its own for each worker, before TensorFlow counts the cores.
CHANGES = [
    ('Dense(128, "relu"),', 'Dense(1024, "relu"), keras.layers.Dense(1024, "relu"),'),
    ('Dense(64, "relu")', 'Dense(1024, "relu")'),
    (
        'os.environ.setdefault("TF_CPP',
        "me = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[me]})\n"
        'os.environ.setdefault("TF_CPP',
    ),
]
# An op has one thread.
THREADS = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}

# An op: the worker, forward / backward / update, the micro-batch or None, begin and end in seconds.
Op = collections.namedtuple("Op", "worker what number begin end")


def read(path):
    """The ops of one update, from a timeline of the run; time 0 is the begin of the first."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    made = []
    for event in events:
        place = re.search(r"task:(\d+).* Compute", names[event["pid"]])
        if event["ph"] != "X" or not place or event["name"] == "RecvTensor":
            continue
        name = event["args"]["name"]
        number = re.search(r"micro_batch_(\d+)", name)
        what = "backward" if name.startswith("gradients/") else "forward"
        made.append(
            Op(
                int(place[1]),
                what if number else "update",
                int(number[1]) if number else None,
                event["ts"] / 1e6,
                (event["ts"] + event["dur"]) / 1e6,
            )
        )
    zero = min(op.begin for op in made)
    return [op._replace(begin=op.begin - zero, end=op.end - zero) for op in made]


def covered(spans):
    """How long at least one of the spans [(begin, end)] lasts."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def idle(ops, workers):
    """The seconds of an update, and of these the share in which each worker computed nothing."""
    seconds = max(op.end for op in ops)
    busy = [covered([op[3:] for op in ops if op.worker == k]) for k in range(workers)]
    return seconds, [1 - each / seconds for each in busy]


def run(folder, workers, micro_batches, updates, threads):
    """The ops of each update of one run."""
    directory = folder / "run"
    command = ["tfrun", "--workers", workers, "--timeout", 300, "--", folder / SCRIPT.name]
    command += ["--steps", WARM_UP + updates, "--batch-size", BATCH, "--timeline-steps", 1]
    command += ["--micro-batches", micro_batches]
    drivers.run(command, directory, **THREADS, TF_NUM_INTEROP_THREADS=str(threads))
    steps = {int(path.stem.split("-")[1]): path for path in directory.glob("timeline-*.json")}
    return [read(steps[step]) for step in sorted(steps) if step > WARM_UP]


def measure(*case):
    """The same, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / SCRIPT.name).write_text(drivers.changed(SCRIPT, CHANGES))
        return run(folder, *case)


def moments(ops, worker):
    """[(begin, end, the ops of a worker at work between them)], with no change in between."""
    mine = [op for op in ops if op.worker == worker and op.end > op.begin]
    times = sorted({time for op in mine for time in (op.begin, op.end)})
    for begin, end in zip(times, times[1:]):
        yield begin, end, [op for op in mine if op.begin < end and op.end > begin]


def ideal(ops, workers=2):
    """The same work as in these ops without a wait for a message: GPipe's schedule.

    A micro-batch takes as long at each worker as it took on average. It goes forward as soon as the
    worker is free and the one before it has finished; after all have, they go backward.
    """
    M, free, made = 1 + max(op.number or 0 for op in ops), [0.0] * workers, []
    for what, order in ("forward", range(workers)), ("backward", range(workers)[::-1]):
        ready = [0.0] * M
        for worker in order:
            length = share_of(ops, worker, what) / M
            for number in range(M):
                begin = max(free[worker], ready[number])
                free[worker] = ready[number] = begin + length
                made.append(Op(worker, what, number, begin, begin + length))
    return made


def share_of(ops, worker, what):
    """The seconds of a worker's core that its ops of one kind had; two ops at once share it."""
    return sum(
        (end - begin) * sum(op.what == what for op in now) / len(now)
        for begin, end, now in moments(ops, worker)
        if now
    )


def draw_lane(axes, ops, worker, low, height):
    """The ops of a worker; two ops at once share the core, and here the height of the lane."""
    areas = {}
    for begin, end, now in moments(ops, worker):
        for place, op in enumerate(sorted(now, key=lambda op: (op.what, op.number or 0))):
            part = height / len(now)
            bottom = low + place * part
            look = dict(color=colour(op), antialiased=False, linewidth=0)
            axes.broken_barh([(1000 * begin, 1000 * (end - begin))], (bottom, part), **look)
            area = (end - begin) * part, 500 * (begin + end), bottom + part / 2
            if op.number is not None:
                areas[op.what, op.number] = max(area, areas.get((op.what, op.number), area))
    for (_, number), (_, x, y) in areas.items():
        axes.text(x, y, number, ha="center", va="center", fontsize=9)


def draw(updates, path, source):
    """The timelines of {micro-batches: ops of an update}: a lane for each worker, white is idle.

    Above the measured update stands the ideal one, of the same work.
    """
    figure, grid = plt.subplots(
        len(updates), 1, figsize=(7.2, 1 + 2.3 * len(updates)), sharex=True, layout="constrained"
    )
    for axes, (M, ops) in zip(grid if len(updates) > 1 else [grid], updates.items()):
        best = ideal(ops)
        for worker in 0, 1:
            draw_lane(axes, best, worker, 3.25 - worker, 0.7)
            draw_lane(axes, ops, worker, 0.75 - worker, 0.7)
        seconds, shares = idle(ops, 2)
        axes.set_title(
            "%d micro-batch%s: %.0f ms, idle %.0f%% and %.0f%%; ideal: %.0f ms"
            % (
                *(M, "es" * (M > 1), 1000 * seconds, 100 * shares[0], 100 * shares[1]),
                1000 * max(op.end for op in best),
            ),
            loc="left",
            fontsize=11,
        )
        names = ["ideal: worker 0", "worker 1", "measured: worker 0", "worker 1"]
        axes.set(ylim=(-0.4, 4.1), yticks=[3.6, 2.6, 1.1, 0.1], yticklabels=names)
        axes.tick_params(labelsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(
        "milliseconds\nlight: forward, dark: backward, with the number of the micro-batch\n"
        "grey: the rest, white: idle"
    )
    drawn.save(figure, path, draw, results=source)
    plt.close(figure)


def colour(op):
    """That of the micro-batch, light in the forward pass."""
    if op.number is None:
        return "0.35"
    return plt.cm.tab20.colors[op.number % 10 * 2 + (op.what == "forward")]


def numbers(text):
    """A type of flag: whole numbers that divide the mini-batch, with commas between them."""
    made = [int(part) for part in text.split(",")]
    if not all(M > 0 and BATCH % M == 0 for M in made):
        raise argparse.ArgumentTypeError("must divide %d, is %s" % (BATCH, text))
    return made


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--micro-batches", type=numbers, default="1,2,4,8,16", help="of each case (%(default)s)"
    )
    parser.add_argument(
        "--updates", type=drivers.positive(int), default=20, help="of each run (%(default)d)"
    )
    parser.add_argument(
        "--repeats", type=drivers.positive(int), default=3, help="of each case (%(default)d)"
    )
    parser.add_argument(
        "--threads",
        type=drivers.positive(int),
        default=2,
        help="of a worker, on its one core: while one computes another can answer the other "
        "worker (%(default)d)",
    )
    parser.add_argument("--redraw", **drivers.redraw(__file__))
    flags, console = parser.parse_args(), drivers.console(100)
    if flags.redraw:
        results = json.loads(flags.redraw.read_text())
        show(results["table"], console)
        draw(unpack(results), drivers.picture(flags.redraw, "pipeline"), flags.redraw)
        return
    if len(getattr(os, "sched_getaffinity", lambda _: [])(0)) < 2:
        sys.exit("pipeline: two cores are needed, and Linux, to give each worker its own")
    directory = drivers.output_directory("Pipeline")
    cases = [(1, 1)] + [(2, M) for M in flags.micro_batches]  # workers, micro-batches
    made = {case: [] for case in cases}
    # By turns, so that a slow minute meets all of them.
    plan = cases * flags.repeats
    for case in track(plan, "running", console=console, disable=not console.is_terminal):
        made[case] += measure(*case, flags.updates, flags.threads)
    table, middle = [], {}
    for (workers, M), each in made.items():
        found = [idle(ops, workers) for ops in each]
        seconds = statistics.median(seconds for seconds, _ in found)
        shares = [statistics.median(shares[k] for _, shares in found) for k in range(workers)]
        both = statistics.median(sum(shares) / workers for _, shares in found)
        # Shown is the update nearest to the medians of the table, of both times.
        middle[workers, M] = min(
            each,
            key=lambda ops: (
                abs(idle(ops, workers)[0] / seconds - 1)
                + abs(sum(idle(ops, workers)[1]) / workers - both)
            ),
        )
        table.append([workers, M, seconds, shares, both, len(found)])
    show(table, console)
    console.print(
        "medians of %d updates; mini-batch %d; %d threads a worker; %s"
        % (table[0][5], BATCH, flags.threads, drivers.setting())
    )
    shown = sorted({flags.micro_batches[0], *[M for M in (4, 8) if M in flags.micro_batches]})
    results = {"table": table, "updates": {M: pack(middle[2, M]) for M in shown}}
    drivers.write(directory / "results.json", results)
    draw(unpack(results), directory / "pipeline.png", directory / "results.json")
    drivers.leave(console, directory, "pipeline.png")


def show(results, console):
    """Prints the table."""
    table = Table("micro-batches")
    for column in "ms an update", "idle: worker 0", "worker 1", "both", "(K-1)/(M+K-1)", "speed-up":
        table.add_column(column, justify="right")
    for workers, M, seconds, shares, both, _ in results:
        table.add_row(
            str(M) if workers > 1 else "one worker",
            "%.0f" % (1000 * seconds),
            *(["%.0f%%" % (100 * share) for share in shares] + [""])[:2],
            "%.0f%%" % (100 * both),
            "%.0f%%" % (100 * (workers - 1) / (M + workers - 1)),
            "%.2f" % (results[0][2] / seconds),
        )
    console.print(table)


def pack(ops):
    """The ops as lists of numbers: {what: [[worker, micro-batch, begin, end in microseconds]]}."""
    found = collections.defaultdict(list)
    for op in ops:
        times = round(1e6 * op.begin), round(1e6 * op.end)
        found[op.what].append([op.worker, op.number, *times])
    return found


def unpack(results):
    """{micro-batches: the ops of an update}, from the content of results.json."""
    return {
        int(M): [
            Op(worker, what, number, begin / 1e6, end / 1e6)
            for what, rows in found.items()
            for worker, number, begin, end in rows
        ]
        for M, found in results["updates"].items()
    }


if __name__ == "__main__":
    main()
