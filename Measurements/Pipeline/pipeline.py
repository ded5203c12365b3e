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

from matplotlib import colormaps
from rich.table import Table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers

SCRIPT = drivers.script_of("Model-Parallelism")
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


def measure(workers, micro_batches, updates, threads):
    """The ops of each update of one run."""
    with tempfile.TemporaryDirectory() as name:
        script, directory = pathlib.Path(name, SCRIPT.name), pathlib.Path(name, "run")
        script.write_text(drivers.changed(SCRIPT, CHANGES))
        command = ["tfrun", "--workers", workers, "--timeout", 300, "--", script]
        command += ["--steps", WARM_UP + updates, "--batch-size", BATCH, "--timeline-steps", 1]
        command += ["--micro-batches", micro_batches]
        drivers.run(command, directory, **THREADS, TF_NUM_INTEROP_THREADS=str(threads))
        steps = {int(path.stem.split("-")[1]): path for path in directory.glob("timeline-*.json")}
        return [read(steps[step]) for step in sorted(steps) if step > WARM_UP]


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


def draw(results, path, source):
    """The timelines of {micro-batches: ops of an update}: a lane for each worker, white is idle.

    Above the measured update stands the ideal one, of the same work.
    """
    updates = {int(M): unpack(packed) for M, packed in results["updates"].items()}
    height = 1 + 2.3 * len(updates)
    figure, grid = drivers.subplots(height, len(updates), 1, sharex=True, squeeze=False)
    for axes, (M, ops) in zip(grid[:, 0], updates.items()):
        best = ideal(ops)
        for worker in 0, 1:
            draw_lane(axes, best, worker, 3.25 - worker, 0.7)
            draw_lane(axes, ops, worker, 0.75 - worker, 0.7)
        seconds, shares = idle(ops, 2)
        axes.set_title(
            f"{M} micro-batch{'es' * (M > 1)}: {1000 * seconds:.0f} ms, "
            f"idle {100 * shares[0]:.0f}% and {100 * shares[1]:.0f}%; "
            f"ideal: {1000 * max(op.end for op in best):.0f} ms",
            loc="left",
            fontsize=11,
        )
        names = ["ideal: worker 0", "worker 1", "measured: worker 0", "worker 1"]
        axes.set(ylim=(-0.4, 4.1), yticks=[3.6, 2.6, 1.1, 0.1], yticklabels=names)
    axes.set_xlabel(
        "milliseconds\nlight: forward, dark: backward, with the number of the micro-batch\n"
        "grey: the rest, white: idle"
    )
    drivers.save(figure, path, source)


def colour(op):
    """That of the micro-batch, light in the forward pass."""
    if op.number is None:
        return "0.35"
    return colormaps["tab20"].colors[op.number % 10 * 2 + (op.what == "forward")]


def numbers(text):
    """A type of flag: whole numbers that divide the mini-batch, with commas between them."""
    made = [int(part) for part in text.split(",")]
    if not all(M > 0 and BATCH % M == 0 for M in made):
        raise argparse.ArgumentTypeError(f"must divide {BATCH}, is {text}")
    return made


def main():
    parser = drivers.Parser(__doc__)
    parser.add_argument(
        "--micro-batches", type=numbers, default="1,2,4,8,16", help="of each case (%(default)s)"
    )
    parser.number("--updates", 20, "of each run")
    parser.number("--repeats", 3, "of each case")
    parser.number(
        "--threads",
        2,
        "of a worker, on its one core: while one computes another can answer the other worker",
    )
    parser.redraw(__file__)
    flags = parser.parse_args()

    def measure_all(console, _):
        if len(getattr(os, "sched_getaffinity", lambda _: [])(0)) < 2:
            sys.exit("pipeline: two cores are needed, and Linux, to give each worker its own")
        # (workers, micro-batches), and these again
        cases = [(pair, *pair) for pair in [(1, 1)] + [(2, M) for M in flags.micro_batches]]
        runs = drivers.by_turns(
            console,
            cases,
            flags.repeats,
            lambda case, _: measure(*case[1:], flags.updates, flags.threads),
        )
        table, middle = [], {}
        for (workers, M), repeats in runs.items():
            updates = sum(repeats, [])
            times = [idle(ops, workers) for ops in updates]
            seconds = statistics.median(seconds for seconds, _ in times)
            shares = [statistics.median(shares[k] for _, shares in times) for k in range(workers)]
            both = statistics.median(sum(shares) / workers for _, shares in times)
            table.append([workers, M, seconds, shares, both, len(times)])
            # Shown is the update nearest to the medians of the table, of both times.
            apart = [
                abs(time / seconds - 1) + abs(sum(shares) / workers - both)
                for time, shares in times
            ]
            middle[workers, M] = updates[apart.index(min(apart))]
        shown = sorted({flags.micro_batches[0], *[M for M in (4, 8) if M in flags.micro_batches]})
        return {"table": table, "updates": {M: pack(middle[2, M]) for M in shown}}, (
            f"medians of {table[0][5]} updates; mini-batch {BATCH}; {flags.threads} threads a "
            f"worker; {drivers.setting()}"
        )

    drivers.report(__file__, flags, 100, measure_all, table_of, draw)


def table_of(results):
    """Returns the table."""
    table = Table("micro-batches")
    for column in "ms an update", "idle: worker 0", "worker 1", "both", "(K-1)/(M+K-1)", "speed-up":
        table.add_column(column, justify="right")
    for workers, M, seconds, shares, both, _ in results["table"]:
        table.add_row(
            str(M) if workers > 1 else "one worker",
            f"{1000 * seconds:.0f}",
            *([f"{100 * share:.0f}%" for share in shares] + [""])[:2],
            f"{100 * both:.0f}%",
            f"{100 * (workers - 1) / (M + workers - 1):.0f}%",
            f"{results['table'][0][2] / seconds:.2f}",
        )
    return table


def pack(ops):
    """The ops as lists of numbers: {what: [[worker, micro-batch, begin, end in microseconds]]}."""
    found = collections.defaultdict(list)
    for op in ops:
        times = round(1e6 * op.begin), round(1e6 * op.end)
        found[op.what].append([op.worker, op.number, *times])
    return found


def unpack(packed):
    """Returns the ops that pack() has made lists of numbers."""
    return [
        Op(worker, what, number, begin / 1e6, end / 1e6)
        for what, rows in packed.items()
        for worker, number, begin, end in rows
    ]


if __name__ == "__main__":
    main()
