"""The hierarchy of scale: more machines with each level, and what is left of their speed."""

import json
import statistics
from typing import NamedTuple

from lab.drawings.shapes import ROOT, figure, left, legend, lines, path, rect, text


class Level(NamedTuple):
    """A level of the pyramid; bars: {name in speeds(): words}."""

    where: tuple
    kind: str
    title: str
    examples: str
    bars: dict


LEVELS = (  # the top one first
    Level(
        ("thousands", "of GPUs"),
        "c",
        "Sharded and model parallel",
        "Sharded-Training, Model-Parallelism",
        {"ZeRO 3": "4,096 GPUs: ZeRO 3"},
    ),
    Level(
        ("machines,", "no server"),
        "a",
        "Data parallel, synchronous",
        "Collective-AllReduce, Ring-AllReduce, Horovod",
        {"ring": "16 workers: all wait", "64 in a ring": "64 machines: a ring"},
    ),
    Level(
        ("machines,", "and a server"),
        "b",
        "Data parallel, asynchronous",
        "HogWild, DOWNPOUR, Parameter-Server-Strategy",
        {"HogWild": "16 workers: nobody waits", "64 at a ps": "64 machines: one ps"},
    ),
    Level(
        ("machines,", "each by itself"),
        "done",
        "Experiments in parallel",
        "Parallel-Experiments",
        {"experiments": "2 processes at once"},
    ),
    Level(
        ("the GPUs", "of one machine"),
        "a",
        "Data parallel, in one process",
        "Multiple-GPUs-Single-Machine",
        {"towers": "only 1 GPU: towers", "8 in a ring": "8 GPUs: all-reduce"},
    ),
    Level(
        ("one device",),
        "box",
        "Not parallel",
        "Non-Distributed-Setup",
        {"one process": "{:,.0f} mini-batches/s"},
    ),
)


def speeds():
    """Returns {name: shares}, and the mini-batches per second of one process.

    100% is n times the speed of one. What was measured has one share, a simulated range two.
    """

    def read(*names):
        return json.loads(ROOT.joinpath(*names).read_text())

    alone = read("Measurements", "Benchmarks", "results.json")["Non-Distributed-Setup"]["digits"]
    rates = read("Measurements", "Benchmarks", "gpu.json")["rates"]
    grid = read("Beyond-One-Machine", "Parallel-Experiments", "measured.json")["seconds"]
    scaling = read("Measurements", "Scaling", "results.json")
    cases = read("Measurements", "Scale-Laboratory", "results.json")["cases"]

    def on_gpu(name):
        return statistics.median(rates[f"GPT, 1,024; {name}; GPU"])

    def with_16(name):
        one, many = (
            statistics.median(run["batches_per_second"] for run in scaling[f"{n}: {name}"])
            for n in ("1 worker, exponential", "16 workers, exponential")
        )
        return [many / one / 16]

    def simulated(case, scheme):
        n, low, high = cases[case]["curves"][scheme][-1]
        return [low / n, high / n]

    in_turn, at_once = (statistics.median(grid[name]) for name in ("one process", "two processes"))
    machines = "64 machines, 10 Gbit/s"
    return {
        "one process": [1.0],
        "towers": [on_gpu("towers") / on_gpu("one process")],
        "8 in a ring": simulated("8 GPUs in a machine", "ring"),
        "experiments": [in_turn / at_once / 2],
        "HogWild": with_16("HogWild"),
        "64 at a ps": simulated(machines, "ps, asynchronous"),
        "ring": with_16("Ring-AllReduce"),
        "64 in a ring": simulated(machines, "ring"),
        "ZeRO 3": simulated("4,096 GPUs, 400 Gbit/s", "ZeRO 3"),
    }, statistics.median(alone)


def percent(shares):
    """Returns one share, or a range, in words."""
    return "–".join(dict.fromkeys(f"{100 * share:.0f}" for share in shares)) + "%"


TOP, LINE, GAP = 40, 20, 16
COLUMN, BAR = 232, 100  # where the words begin; how long 100% is
MIDDLE, APEX, BASE = 110, 84, 216  # of the pyramid: its axis, its width above and below


def height(level):
    return LINE * (2 + len(level.bars)) + GAP


TALL = sum(map(height, LEVELS))


def stone(level, y):
    """A level of the pyramid, and where it is."""
    ends = y, y + height(level) - 5
    halves = [(APEX + (BASE - APEX) * (end - TOP) / TALL) / 2 for end in ends]
    corners = [(MIDDLE + side * half, end) for half, end in zip(halves, ends) for side in (-1, 1)]
    d = "M" + " L".join(f"{x:.1f} {end:.1f}" for x, end in (corners[i] for i in (0, 1, 3, 2))) + "z"
    kind = level.kind if level.kind == "box" else level.kind + " pale"
    first = sum(ends) / 2 + 5 - 9.5 * (len(level.where) - 1)
    return [path(d, kind, tip=False), *lines(MIDDLE, first, level.where, "", 19, text)]


def bar(y, kind, words, shares):
    """Shares of 100%: a filled bar if measured; pale, up to the lowest and the highest, if not."""
    parts = [rect(COLUMN, y - 12, BAR, 14, "box", 2)]
    for share in shares:
        if kind == "box":  # no class is filled with this grey
            grey = '<rect x="%g" y="%g" width="%g" height="14" rx="2" fill="#818b98"/>'
            parts.append(grey % (COLUMN, y - 12, BAR * share))
        else:
            filled = kind if len(shares) == 1 else kind + " pale"
            parts.append(rect(COLUMN, y - 12, BAR * share, 14, filled, 2))
    parts.append(left(COLUMN + BAR + 10, y, percent(shares), "title"))
    return [*parts, left(COLUMN + BAR + 82, y, words, "small")]


@figure("pyramid.svg", 610, TOP + TALL + 82)
def pyramid():
    """The hierarchy of scale, where 100% is n times the speed of one. From the bottom: {}."""
    shares, rate = speeds()
    parts = [left(COLUMN, 22, "100%: n workers are n times as fast as one", "small")]
    y = TOP
    title = []
    for level in LEVELS:
        bars = {name: words.format(rate) for name, words in level.bars.items()}
        parts += [*stone(level, y), left(COLUMN, y + 15, level.title, "title")]
        parts.append(left(COLUMN, y + 15 + LINE, level.examples, "small"))
        for number, (name, words) in enumerate(bars.items()):
            parts += bar(y + 15 + LINE * (2 + number), level.kind, words, shares[name])
        percentages = (f"{words} {percent(shares[name])}" for name, words in bars.items())
        title.append(
            f"{' '.join(level.where)}: {level.title}, {level.examples}; {', '.join(percentages)}"
        )
        y += height(level)
    notes = (
        "16 workers: a gradient's seconds are drawn, and exponential; messages are small.",
        "Simulated: all gradients take nearly equally long; messages are large.",
    )
    parts.append(legend(4, y + 22, "a", "measured here"))
    parts.append(legend(156, y + 22, "a pale", "simulated: the slowest and the fastest case"))
    return parts + lines(4, y + 48, notes), [". ".join(reversed(title))]
