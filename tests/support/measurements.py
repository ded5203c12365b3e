"""What the tests of measurements use: their scripts, what those ask for and draw, runs by hand.

Nothing trains. A test may replace functions of the copy of a script that load() returns.
"""

import json
import pathlib
import sys
import types
from unittest import mock

import numpy as np
import run_files
import support
from lab import examples
from lab.measure import charts, example_runs, sessions, text_tables

MEASUREMENTS = support.ROOT / "Measurements"
EXPERIMENTS = "Beyond-One-Machine/Parallel-Experiments/"
RATES = "Beyond-One-Machine/TensorFlowOnSpark/rates.py"
FORMS = "Measurements/Benchmarks/benchmarks.py"
SHARED_FLAGS = {"only": "", "redraw": None, "anyway": False}
TESTS = ["test_loss", "test_accuracy"]


def place_of(name):
    """Returns the script of a measurement, by its folder, or by its path in the project."""
    path = support.ROOT / name
    if path.suffix:
        return path
    return examples.main_script(f"Measurements/{name}")


def load(name):
    """Returns a new module of a script; what it has of lab is a copy, which a test may change."""
    path = place_of(name)
    module = examples.load(path)
    for beside in path.parent.glob("*.py"):  # two folders have a report.py of their own
        sys.modules.pop(beside.stem, None)
    for shared in charts, example_runs, examples, sessions, text_tables:
        name = shared.__name__.rpartition(".")[2]
        if hasattr(module, name):
            setattr(module, name, types.SimpleNamespace(**vars(shared)))
    return module


def cells(table):
    """Returns the rows of a table as lists of texts."""
    return [list(row) for row in zip(*(column.cells for column in table.columns))]


def in_table(name, words):
    """Returns whether the committed table of a measurement says this, however it wraps lines."""
    text = (MEASUREMENTS / name / "table.txt").read_text()
    return f" {words}" in " ".join(text.split())


def committed(name):
    """Returns the committed results of a measurement."""
    return json.loads((MEASUREMENTS / name / "results.json").read_text())


def asked(module, *words):
    """Runs main() of a script with these flags; returns its sessions.Report, and what it makes."""
    with (
        mock.patch.object(sys, "argv", ["a script", *words]),
        mock.patch.object(sessions.Report, "make", autospec=True) as make,
    ):
        module.main()
    return make.call_args.args


def turned(module, name, *words):
    """Returns what a script gives to measure_round_robin.

    These are (flags, cases, repeats, what measures one, the named ones). Its last line is compared
    with the committed table.
    """
    given = []

    def measure_round_robin(console, cases, repeats, measure, **named):
        assert console == "a console"
        given.extend([list(cases), repeats, measure, named])
        return {case[0]: [[case[0], repeat] for repeat in range(repeats)] for case in cases}

    report, measure_all = asked(module, *words)
    assert (report.table_of, report.draw) == (module.table_of, module.draw)
    module.sessions.measure_round_robin = measure_round_robin
    module.text_tables.setting = lambda *versions: "2"
    results, text = measure_all("a console", pathlib.Path("a folder"))
    if not words:
        assert in_table(name, text)
    return [report.flags, *given, results]


def figures(module):
    """Replaces charts.save of a module; returns the list in which the figures will be."""
    drawn = []
    module.charts.save = lambda figure, path, source: drawn.append(figure)
    return drawn


def points(line):
    """Returns the points of a line."""
    return [(float(x), float(y)) for x, y in zip(*line.get_data())]


def lines_of(axes):
    """Returns [(marker, label, points)] of the lines of a picture that have points."""
    lines = [(line.get_marker(), line.get_label(), points(line)) for line in axes.lines]
    return [
        (marker, "" if label.startswith("_") else label, known)
        for marker, label, known in lines
        if known
    ]


def legend_of(figure):
    """Returns the names in the legend of a figure."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


class Axes:
    """Notes what is drawn into it, as (what, arguments)."""

    def __init__(self):
        self.drawn = []

    def __getattr__(self, name):
        return lambda *arguments, **style: self.drawn.append((name, *arguments))

    def of(self, name):
        """Returns the arguments of the calls of this name."""
        return [arguments for what, *arguments in self.drawn if what == name]


def write(directory, rows):
    """Writes {task: rows}: (time, step, staleness) of a push, (time, step, loss, accuracy).

    A test may have a fifth number, when it began.
    """
    for task, own in rows.items():
        lines = [
            run_files.push(*row, pull_time=row[0] - 0.1)
            if len(row) == 3
            else run_files.test(*row[:4], began=[*row, ""][4], tests=TESTS)
            for row in own
        ]
        run_files.metrics(directory, task, *lines, tests=TESTS)


def check_rows(what, parts, x, y, sizes):
    """Asserts that the parts (x, y, x, y) hold each row once, with its label, in these sizes."""
    x_train, y_train, x_test, y_test = map(np.asarray, parts)
    assert [len(part) for part in (x_train, y_train, x_test, y_test)] == sizes, f"{what}: sizes"
    rows = [*zip(map(bytes, x_train), y_train), *zip(map(bytes, x_test), y_test)]
    assert sorted(rows) == sorted(zip(map(bytes, x), y)), f"\n{what}: other rows, or labels"


def digits():
    """Returns all rows of the digits, and their labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16).astype("float32"), y


class Clock:
    """Seconds that pass only where a test lets them."""

    def __init__(self):
        self.now = 100.0

    def tick(self, seconds=1.0):
        self.now += seconds

    def monotonic(self):
        return self.now

    time = monotonic
    perf_counter = monotonic


class Calls(list):
    """What trained() notes: (jobs, {flag: value}), and beside it the texts and what else it got."""

    def __init__(self):
        super().__init__()
        self.texts, self.more = [], []


def trained(calls):
    """Returns what stands for forked.train, and notes (jobs, {flag: value}) of each run."""

    def train(script, jobs, flags, directory, *more):
        calls.append((jobs, dict(zip(flags[::2], flags[1::2]))))
        if isinstance(calls, Calls):
            calls.texts.append(script.read_text())
            calls.more.append(more)
        return True, [(0, [0.0])]

    return types.SimpleNamespace(train=train, window=None, common_start=None)
