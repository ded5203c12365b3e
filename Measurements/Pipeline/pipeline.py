"""Pipeline: how long the places of a pipeline are idle, and what they store, by its schedule.

Runs the script of Model-Parallelism and reads from the timelines of its updates when each place
computed. Two workers have a core each, and wide layers. Four places stand in one process, and their
layers sleep, because two cores cannot compute four stages at once.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lab import examples
from lab.measure import arguments, charts, example_runs, sessions, text_tables
from matplotlib import colormaps
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

SCRIPT = examples.main_script("Model-Parallelism")
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B"}
WARM_UP = 5
TIMELINE_STEPS = 2  # updates between two timelines: the first one of a call also waits for the call
# Examples in a mini-batch; layers that sleep need few.
WIDE_BATCH, LATE_BATCH = 1024, 64
# What stands in the script, and what takes its place. Wide: layers whose products take
# milliseconds, and a core of its own for each worker, before TensorFlow counts the cores.
WIDE_LAYERS = [
    ('Dense(128, "relu"),', 'Dense(1024, "relu"), keras.layers.Dense(1024, "relu"),'),
    ('Dense(64, "relu")', 'Dense(1024, "relu")'),
    (
        'os.environ.setdefault("TF_CPP',
        "me = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[me]})\n"
        'os.environ.setdefault("TF_CPP',
    ),
]
# Late: four layers that sleep.
LATE_LAYERS = [
    ('keras.layers.Dense(128, "relu"),', 'late.Late(64, "relu"), late.Late(64, "relu"),'),
    ('keras.layers.Dense(64, "relu")', 'late.Late(64, "relu")'),
    ("keras.layers.Dense(np.bincount(", "late.Late(np.bincount("),
    ("import argparse\n", "import argparse\nimport late\n"),
]
# An op has one thread.
THREADS = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}

# {phase: [[place, micro-batch, begin, end in microseconds]]}
Packed = dict[str, list[list[Any]]]


class Case(NamedTuple):
    """K places, each a worker with a core of its own; or if late, devices of one process."""

    name: str
    schedule: str
    K: int
    M: int  # micro-batches
    late: bool


class Op(NamedTuple):
    """What a place has computed, and when, in seconds."""

    place: int
    phase: str  # forward, backward or update
    number: int | None  # of the micro-batch
    begin: float
    end: float


class Row(NamedTuple):
    """A row of the table: a case, and what was measured of it."""

    name: str
    schedule: str
    K: int
    M: int
    late: bool
    seconds: float  # of an update: the median
    shares: list[float]  # in which each place was idle
    mean: float  # of these shares
    stored: list[int]  # the most micro-batches that each place has stored


def read(path: pathlib.Path) -> list[Op]:
    """The ops of one update, from a timeline of the run; time 0 is the begin of the first."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    ops = []
    for event in events:
        device = re.search(r"task:(\d+)/device:CPU:(\d+) Compute", names[event["pid"]])
        if event["ph"] != "X" or not device:
            continue
        scope = re.match(r"(forward|backward)/micro_batch_(\d+)", event["args"]["name"])
        ops.append(
            Op(
                int(device[1]) + int(device[2]),  # one of them is 0
                scope[1] if scope else "update",
                int(scope[2]) if scope else None,
                event["ts"] / 1e6,
                (event["ts"] + event["dur"]) / 1e6,
            )
        )
    start = min(op.begin for op in ops)
    return [op._replace(begin=op.begin - start, end=op.end - start) for op in ops]


def covered_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the spans [(begin, end)] lasts."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def idle_shares(ops: Sequence[Op], K: int) -> tuple[float, list[float]]:
    """The seconds of an update, and of these the share in which each place computed nothing."""
    seconds = max(op.end for op in ops)
    busy = [covered_seconds([(op.begin, op.end) for op in ops if op.place == k]) for k in range(K)]
    return seconds, [1 - busy_seconds / seconds for busy_seconds in busy]


def most_stored(ops: Sequence[Op], k: int) -> int:
    """The most micro-batches that have begun forward in place k, and are not back, at any time."""
    begun: dict[int | None, float] = {}
    back: dict[int | None, float] = {}
    for op in ops:
        if (op.place, op.phase) == (k, "forward"):
            begun[op.number] = min(op.begin, begun.get(op.number, op.begin))
        elif (op.place, op.phase) == (k, "backward"):
            back[op.number] = max(op.end, back.get(op.number, op.end))
    return max(
        sum(begin <= now for begin in begun.values()) - sum(end <= now for end in back.values())
        for now in begun.values()
    )


def measure(case: Case, updates: int, threads: int) -> list[list[Op]]:
    """Returns the ops of each update of one run."""
    if case.late:
        changes, workers, batch_size = LATE_LAYERS, 1, LATE_BATCH
        devices = ["--devices", case.K]
        threads += case.K  # a thread that sleeps can do nothing else
    else:
        changes, workers, batch_size = WIDE_LAYERS, case.K, WIDE_BATCH
        devices = []
    steps = TIMELINE_STEPS * (WARM_UP + updates)
    with examples.changed_copy(SCRIPT, changes) as (script, directory):
        command = ["tfrun", "--workers", workers, "--timeout", 300, "--", script]
        command += ["--steps", steps, "--timeline-steps", TIMELINE_STEPS, *devices]
        command += ["--batch-size", batch_size, "--micro-batches", case.M]
        command += ["--schedule", case.schedule]
        env: dict[str, Any] = {**THREADS, "TF_NUM_INTEROP_THREADS": str(threads)}
        shutil.copy(pathlib.Path(__file__).with_name("late.py"), script.parent)
        example_runs.run(command, directory, **env)
        paths = {int(path.stem.split("-")[1]): path for path in directory.glob("timeline-*.json")}
        return [read(paths[step]) for step in sorted(paths) if step > TIMELINE_STEPS * WARM_UP]


def moments(ops: Sequence[Op], place: int) -> Iterator[tuple[float, float, list[Op]]]:
    """[(begin, end, the ops of a place at work between them)], with no change in between."""
    ops = [op for op in ops if op.place == place and op.end > op.begin]
    times = sorted({time for op in ops for time in (op.begin, op.end)})
    for begin, end in zip(times, times[1:]):
        yield begin, end, [op for op in ops if op.begin < end and op.end > begin]


def draw_lane(axes: Axes, ops: Sequence[Op], place: int, low: float, height: float) -> None:
    """The ops of a place; two ops at once share the core, and here the height of the lane."""
    areas: dict[tuple[str, int], tuple[float, float, float]] = {}
    for begin, end, running in moments(ops, place):
        for row, op in enumerate(sorted(running, key=lambda op: (op.phase, op.number or 0))):
            part = height / len(running)
            bottom = low + row * part
            axes.broken_barh(
                [(1000 * begin, 1000 * (end - begin))],
                (bottom, part),
                color=colour(op),
                antialiased=False,
                linewidth=0,
            )
            area = (end - begin) * part, 500 * (begin + end), bottom + part / 2
            if op.number is not None:
                areas[op.phase, op.number] = max(area, areas.get((op.phase, op.number), area))
    for (_, number), (_, x, y) in areas.items():
        axes.text(x, y, str(number), ha="center", va="center", fontsize=9)


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """The timelines of {case: ops of an update}: a lane for each place, white is idle."""
    shown = [(Case(*update["case"]), unpack(update["ops"])) for update in results["updates"]]
    # By K, so that two schedules have the same axis of time.
    ends: dict[int, float] = collections.defaultdict(float)
    for case, ops in shown:
        ends[case.K] = max(ends[case.K], *(op.end for op in ops))
    lanes = [case.K for case, _ in shown]
    ratios = {"height_ratios": [K + 0.6 for K in lanes]}
    height = 1 + 0.42 * sum(lanes) + 0.6 * len(lanes)
    figure, grid = charts.subplots(height, len(shown), 1, squeeze=False, gridspec_kw=ratios)
    for axes, (case, ops) in zip(grid[:, 0], shown):
        for k in range(case.K):
            draw_lane(axes, ops, k, case.K - 1 - k, 0.8)
        seconds, shares = idle_shares(ops, case.K)
        counts = ", ".join(str(most_stored(ops, k)) for k in range(case.K))
        axes.set_title(
            f"{SCHEDULES[case.schedule]}, {case.K} {'places' if case.late else 'workers'}, "
            f"{case.M} micro-batches: {1000 * seconds:.0f} ms, "
            f"idle {100 * statistics.mean(shares):.0f}%, stored {counts}",
            loc="left",
            fontsize=11,
        )
        names = [f"{'place' if case.late else 'worker'} {k}" for k in reversed(range(case.K))]
        axes.set(xlim=(0, 1000 * ends[case.K]), ylim=(-0.2, case.K))
        axes.set_yticks([k + 0.4 for k in range(case.K)], names)
    axes.set_xlabel(
        "milliseconds\nlight: forward, dark: backward, with the number of the micro-batch\n"
        "grey: the rest, white: idle"
    )
    charts.save(figure, path, source)


def colour(op: Op) -> str | tuple[float, ...]:
    """That of the micro-batch, light in the forward pass."""
    if op.number is None:
        return "0.35"
    tab20: Any = colormaps["tab20"]  # a ListedColormap
    return tab20.colors[op.number % 10 * 2 + (op.phase == "forward")]


def numbers(text: str) -> list[int]:
    """A type of flag: whole numbers that divide the mini-batches, with commas between them."""
    values = [int(part) for part in text.split(",")]
    if not all(M > 0 and LATE_BATCH % M == 0 for M in values):
        raise argparse.ArgumentTypeError(f"must divide {LATE_BATCH}, is {text}")
    return values


def all_cases(micro_batches: Iterable[int]) -> list[Case]:
    """Returns the cases. Below four micro-batches four places would have nothing to choose."""
    cases = [("gpipe", 1, 1, False)]
    cases += [(schedule, 2, M, False) for schedule in SCHEDULES for M in micro_batches]
    cases += [(schedule, 4, M, True) for schedule in SCHEDULES for M in micro_batches if M >= 4]
    return [Case(f"{schedule} {K} {M}", schedule, K, M, late) for schedule, K, M, late in cases]


def summary(case: Case, updates: Sequence[Sequence[Op]]) -> tuple[Row, Sequence[Op]]:
    """Returns the Row of a case, and the update nearest to its medians."""
    times = [idle_shares(ops, case.K) for ops in updates]
    seconds = statistics.median(seconds for seconds, _ in times)
    shares = [statistics.median(shares[k] for _, shares in times) for k in range(case.K)]
    mean = statistics.median(statistics.mean(shares) for _, shares in times)
    stored = [max(most_stored(ops, k) for ops in updates) for k in range(case.K)]
    distances = [
        abs(time / seconds - 1) + abs(statistics.mean(shares) - mean) for time, shares in times
    ]
    nearest = updates[distances.index(min(distances))]
    return Row(*case, seconds, shares, mean, stored), nearest


def main() -> None:
    parser = arguments.Parser(__doc__)
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

    def measure_all(console: Console, _: object) -> tuple[dict[str, Any], str]:
        if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
            sys.exit("pipeline: two cores are needed, and Linux, to give each worker its own")
        runs = sessions.measure_round_robin(
            console,
            all_cases(flags.micro_batches),
            flags.repeats,
            lambda case, _: measure(case, flags.updates, flags.threads),
        )
        rows = []
        nearest = {}
        for case in all_cases(flags.micro_batches):
            row, nearest[case] = summary(case, sum(runs[case.name], []))
            rows.append(row)
        # Shown are four places with eight micro-batches, and two workers with four.
        shown = [
            case
            for K, M in ((4, 8), (2, 4))
            for case in nearest
            if case.K == K
            and case.M == (M if M in flags.micro_batches else max(flags.micro_batches))
        ]
        updates = [{"case": case, "ops": pack(nearest[case])} for case in shown]
        return {"table": rows, "updates": updates}, (
            f"medians of {flags.updates * flags.repeats} updates; K = 2: mini-batch {WIDE_BATCH}, "
            f"{flags.threads} threads a worker; K = 4: a forward pass sleeps 10 ms, a "
            f"backward pass 20 ms; {text_tables.setting()}"
        )

    report = sessions.Report(script=__file__, flags=flags, width=100, table_of=table_of, draw=draw)
    report.make(measure_all)


def table_of(results: dict[str, Any]) -> Table:
    """Returns the table."""
    table = text_tables.plain_table("schedule")
    for column in "K", "M", "ms", "idle, each", "all", "(K-1)/(M+K-1)", "stored, each", "speed-up":
        table.add_column(column, justify="right")
    rows = [Row(*values) for values in results["table"]]
    one_worker = rows[0]
    for row in rows:
        table.add_row(
            SCHEDULES[row.schedule] if row.K > 1 else "one worker",
            str(row.K),
            str(row.M),
            f"{1000 * row.seconds:.0f}",
            " ".join(f"{100 * share:.0f}%" for share in row.shares),
            f"{100 * row.mean:.0f}%",
            f"{100 * (row.K - 1) / (row.M + row.K - 1):.0f}%",
            " ".join(map(str, row.stored)),
            "" if row.late else f"{one_worker.seconds / row.seconds:.2f}",
        )
    return table


def pack(ops: Iterable[Op]) -> Packed:
    """The ops as lists of numbers: {phase: [[place, micro-batch, begin, end in microseconds]]}."""
    packed = collections.defaultdict(list)
    for op in ops:
        times = round(1e6 * op.begin), round(1e6 * op.end)
        packed[op.phase].append([op.place, op.number, *times])
    return packed


def unpack(packed: Packed) -> list[Op]:
    """Returns the ops that pack() has made lists of numbers."""
    return [
        Op(place, phase, number, begin / 1e6, end / 1e6)
        for phase, rows in packed.items()
        for place, number, begin, end in rows
    ]


if __name__ == "__main__":
    main()
