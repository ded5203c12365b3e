"""What each measurement counts, on rows made by hand with known answers, and what its page shows.

Nothing trains here. A check takes load(script, changes), so that a mistake can be put into a copy.
"""

import collections
import contextlib
import io
import json
import sys
import types
from unittest import mock

import made_run
import numpy as np
import pytest
import support
from rich.console import Console

MEASUREMENTS = support.ROOT / "Measurements"
sys.path.append(str(MEASUREMENTS))
import drivers


def place_of(name):
    """Returns the script of a measurement, by its folder, or by its path in the project."""
    path = support.ROOT / name
    if path.suffix:
        return path
    return MEASUREMENTS / name / (name.lower().replace("-", "_") + ".py")


def load(name, changes=()):
    """Returns the module of a script with these changes; `drivers` in it may be replaced."""
    path = place_of(name)
    sys.path.insert(0, str(path.parent))  # as if it were started
    try:
        module = support.load(path, support.replaced(path, changes))
    finally:
        sys.path.remove(str(path.parent))
    if hasattr(module, "drivers"):  # a copy, in which a test may replace functions
        module.drivers = types.SimpleNamespace(**vars(drivers))
    return module


def same(what, found, due):
    """Asserts that something is found as it is known to be, to a millionth part."""
    assert found == pytest.approx(due, rel=1e-6, abs=1e-12) if numbers(due) else found == due, (
        f"\n{what}: {found}, not {due}"
    )


def numbers(due):
    """Returns whether pytest.approx knows what this is."""
    values = due.values() if isinstance(due, dict) else due if isinstance(due, list) else [due]
    return all(isinstance(value, (int, float)) for value in values)


def cells(table):
    """Returns the rows of a table as lists of texts."""
    return [list(row) for row in zip(*(column.cells for column in table.columns))]


CHECKS = {}  # name: a check(load, tmp_path)
MISTAKES = {}  # (name of a check, what fails): {the mistake: (the script, [(text, another)])}


def check(function):
    """Makes a test of a function check_...(load, tmp_path)."""
    CHECKS[function.__name__.removeprefix("check_")] = function
    return function


# The committed tables ----------------------------------------------------------------------------

RESULTS = sorted(MEASUREMENTS.glob("*/results*.json"))
RESULTS = [path for path in RESULTS if "digests" not in path.name]


def reported(name, source, monkeypatch):
    """Returns what a driver gives to drivers.report when it draws a file again."""
    given = []
    module = load(name)
    module.drivers.report = lambda *arguments: given.append(arguments)
    monkeypatch.setattr(sys, "argv", [name, "--redraw", str(source)])
    module.main()
    return given[0]


@pytest.mark.parametrize("source", RESULTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_committed_table_is_that_of_its_results(source, monkeypatch):
    """Catches a table that its driver makes otherwise today: from other rows, another median."""
    _, _, width, _, table_of, _ = reported(source.parent.name, source, monkeypatch)
    table = table_of(json.loads(source.read_text()))
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(table)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    committed = source.with_name(source.stem.replace("results", "table") + ".txt").read_text()
    assert committed.splitlines()[: len(lines)] == lines
    assert len(committed.splitlines()) > len(lines)


# What all share ----------------------------------------------------------------------------------

SHARED = "Measurements/drivers.py"


@check
def check_medians(load, tmp_path):
    """Of an even number, and without those that have no value."""
    spread = load(SHARED).spread
    same("spread", spread([4, None, 1, 2, 9], "{:.1f}"), "3.0 (1.0-9.0)")
    same("spread", spread([5.0, 1.0, 3.0], "{:.0f}"), "3 (1-5)")
    same("spread", spread([None], "{:.0f}"), "")


MISTAKES["medians", "spread"] = {
    "the mean": (
        SHARED,
        [("statistics.median(known)", "statistics.fmean(known)")],
    ),
    "the lower middle": (
        SHARED,
        [("statistics.median(known)", "statistics.median_low(known)")],
    ),
    "the range of others": (
        SHARED,
        [("middle, min(known), max(known)", "middle, known[0], known[-1]")],
    ),
    "none counts as 0": (
        SHARED,
        [("[value for value in values if value is not None]", "[value or 0 for value in values]")],
    ),
}


def run_of(accuracies, **more):
    """Returns a run of Compare with these tests: a second, 100 examples and 2 MB between two."""
    tests = {"accuracy": accuracies, "loss": [1 - each for each in accuracies]}
    for what, each in (("seconds", 1), ("examples", 100), ("megabytes", 2)):
        tests[what] = [each * (number + 1) for number in range(len(accuracies))]
    return {"test_loss": 0.5, "test_accuracy": 0.9, **more, "evaluations": tests}


@check
def check_the_target(load, tmp_path):
    """The first test at or above it, even if a later one is below; None where no test is."""
    module = load(SHARED)
    runs = [run_of([0.5, 0.97, 0.9, 0.99]), run_of([0.96, 0.969]), run_of([0.98]), {"failed": ""}]
    same("target", module.to_target(runs), [2, None, 1, None])
    same("target", module.to_target(runs, "examples"), [200, None, 100, None])
    same("target", module.to_target(runs, "megabytes", 0.99), [8, None, None, None])


MISTAKES["the_target", "target"] = {
    "only above": (SHARED, [("if right >= target)", "if right > target)")]),
    "the last one": (
        SHARED,
        [("in pairs if right >= target)", "in [*pairs][::-1] if right >= target)")],
    ),
    "the best test": (
        SHARED,
        [("pairs = zip(tests[what], ", "pairs = zip(sorted(tests[what])[::-1], ")],
    ),
    "another target": (SHARED, [("if right >= target)", "if right >= TARGET)")]),
    "those that never came are left out": (
        SHARED,
        [("    return found\n\n\ndef after", "    return [x for x in found if x]\n\n\ndef after")],
    ),
}


@check
def check_the_test_at_a_time(load, tmp_path):
    """The last one within the seconds, one at that moment too; without a limit the last."""
    after, run = load(SHARED).after, run_of([0.5, 0.7, 0.6, 0.9])
    for seconds, accuracy in ((2.9, 0.7), (3, 0.6), (99, 0.9), (None, 0.9), (0.5, 0.5)):
        same(f"after {seconds}", after(run, seconds, "accuracy"), accuracy)
    same("after 3", after(run, 3), 0.4)


MISTAKES["the_test_at_a_time", "after .*"] = {
    "before that moment": (SHARED, [("if at <= (seconds or at)", "if at < (seconds or at + 1)")]),
    "the best one": (
        SHARED,
        [("return (early or tests[what])[-1 if early else 0]", "return min(early or tests[what])")],
    ),
    "the last of all": (SHARED, [("[-1 if early else 0]", "[-1]")]),
}


@check
def check_the_others(load, tmp_path):
    """The largest share of any measurement of the cases that count."""
    kept = tmp_path / "measured.json"
    shares = {"digits: a": [0.1, 0.3, 0.2], "digits: b": [0.05], "local: a": [0.9]}
    kept.write_text(json.dumps({drivers.OTHERS: shares}))
    others_of = load(SHARED).others_of
    same(
        "others",
        [others_of(kept), others_of(kept, ["digits"]), others_of(kept, ["x"])],
        [0.9, 0.3, 0],
    )


MISTAKES["the_others", "others"] = {
    "the last": (
        SHARED,
        [
            (
                "max((share for name in names for share in shares[name])",
                "max((shares[name][-1] for name in names)",
            )
        ],
    ),
    "all cases": (SHARED, [("if name.startswith(tuple(begins))]", "]")]),
}


@check
def check_a_sitting(load, tmp_path):
    """--repeats counts with --full only; how often what others disturb is measured again."""
    module, asked = load(SHARED), []
    module.by_turns = lambda _, cases, repeats, measure, kept, tries: asked.append((repeats, tries))
    (tmp_path / "measured.json").write_text('{"others": {"a": [0.25]}}')
    words = []
    for full, anyway in ((True, False), (False, True)):
        flags = types.SimpleNamespace(repeats=5, full=full, anyway=anyway)
        words.append(module.sitting(None, tmp_path, flags, [], None, "words")[1:])
    same("asked", asked, [(5, 3), (1, 1)])
    same(
        "words",
        [text.partition("; 2")[0] for text, _ in words],
        [f"words; median (range) of {n}" for n in (5, 1)],
    )
    same("others", [share for _, share in words], [0.25, 0.25])


@check
def check_a_report(load, tmp_path):
    """results.json holds what was measured, and the table has the name of its picture beside it."""
    module, drawn, place = load(SHARED), [], tmp_path / "A-Name"
    results = {"a": [1.5, [2, [3]], "a, b", {"b": [0.1, 2e-9]}], "c": [], "d": None}
    module.output_directory = lambda name: tmp_path
    module.quiet = types.SimpleNamespace(
        wait=lambda anyway: types.SimpleNamespace(share=lambda: 0.5),
        words=lambda share: f"others {share}",
    )

    def draw(*arguments):
        drawn.append(arguments)

    def go(redraw, *share):
        flags, words = types.SimpleNamespace(redraw=redraw, anyway=True), io.StringIO()
        with contextlib.redirect_stdout(words):
            module.report(
                place / "a_name.py", flags, 40, lambda *_: (results, "when", *share), str, draw
            )

    go(None, 0.25)
    same("results", json.loads((tmp_path / "results.json").read_text()), results)
    same("table", (tmp_path / "table.txt").read_text().splitlines()[-1], "when; others 0.25")
    go(None)  # its own share, where a measurement has noted none
    same("table", (tmp_path / "table.txt").read_text().splitlines()[-1], "when; others 0.5")
    source = tmp_path / "results-wide.json"
    (tmp_path / "results.json").rename(source)
    go(source)
    pictures = [(given[1].name, given[2].name) for given in drawn]
    same(
        "pictures",
        pictures,
        [("a-name.png", "results.json")] * 2 + [("a-name-wide.png", "results-wide.json")],
    )
    same("drawn", drawn[2][0], results)


def figures(module):
    """Replaces drivers.save of a module; returns the list in which the figures will be."""
    drawn = []
    module.drivers.save = lambda figure, path, source: drawn.append(figure)
    return drawn


def widths(axes):
    """Returns the ends of all bars, and the texts beside them."""
    return [bar.get_width() for bar in axes.patches], [text.get_text() for text in axes.texts]


def points(line):
    """Returns the points of a line."""
    return [(float(x), float(y)) for x, y in zip(*line.get_data())]


@check
def check_bars(load, tmp_path):
    """As long as a median, with its number; a dot is a run."""
    module, figure = load(SHARED), []
    module.save = lambda drawn, path, source: figure.append(drawn)
    values = {"a": [3.0, 1.0, 2.0, 8.0], "b\nb": [5.0]}
    module.bars("", "", values, dict.fromkeys(values, "C0"), "{:.1f}".format, None, None)
    same("bars", widths(figure[0].axes[0]), ([2.5, 5.0], ["2.5", "5.0"]))
    dots = [points(line) for line in figure[0].axes[0].lines]
    same("dots", dots, [[(x, 0) for x in values["a"]], [(5, 1)]])


MISTAKES["bars", "bars"] = {
    "the best run": (
        SHARED,
        [("        middle = statistics.median(runs)\n", "        middle = max(runs)\n")],
    ),
}


@check
def check_a_command(load, tmp_path):
    """A run has its own folder, nothing that its run.sh refuses, and its failure ends us."""
    script = tmp_path / "run.sh"
    script.write_text(
        'echo "${WORKERS:-2} none${PS:-} $MORE $OUTPUT_DIR" > "$OUTPUT_DIR/said"; exit $CODE'
    )
    run = load(SHARED).run
    env = {"PATH": "/usr/bin:/bin", "WORKERS": "7", "PS": "8", "CODE": "0"}
    run(["bash", script], tmp_path, env, MORE="x")
    same("said", (tmp_path / "said").read_text().split(), ["7", "none", "x", str(tmp_path)])
    with pytest.raises(SystemExit, match="exit code 3"):
        run(["bash", script], tmp_path, env, CODE="3")


@check
def check_which_cases(load, tmp_path):
    """--only, --full, or the few; a script is changed where the text stands once."""
    module = load(SHARED)
    cases = [("1 worker: a",), ("2 workers: a",), ("2 workers: b",)]

    def chosen(*flags):
        parser = module.Parser("")
        parser.full("")
        sys_argv, sys.argv = sys.argv, ["a script", *flags]
        try:
            found, names = parser.only(cases, ("2 workers: b",))
        finally:
            sys.argv = sys_argv
        return [cases.index(each) for each in names], found.repeats

    same("chosen", chosen(), ([2], 3))
    same("chosen", chosen("--full", "--repeats", "4"), ([0, 1, 2], 4))
    same("chosen", chosen("--only", ": a"), ([0, 1], 3))
    path = tmp_path / "script.py"
    path.write_text("a b c")
    same("changed", module.changed(path, [("a", "b"), ("b b", "c"), ("c c", "d")]), "d")
    with pytest.raises(SystemExit, match="stands 2 times"):
        module.changed(path, [("b", "a"), ("a", "x")])


@check
def check_digests(load, tmp_path):
    """Each measured example has the digest of its own script."""
    load(SHARED).leave_digests(["HogWild", "DynSGD", "HogWild"], tmp_path)
    digests = json.loads((tmp_path / "results_digests.json").read_text())
    due = {
        name: support.regions.example_digest(support.main_script(name))
        for name in ("DynSGD", "HogWild")
    }
    same("digests", digests, due)


# Splits ------------------------------------------------------------------------------------------


def check_rows(what, parts, x, y, sizes):
    """Asserts that the parts (x, y, x, y) hold each row once, with its label, in these sizes."""
    x_train, y_train, x_test, y_test = map(np.asarray, parts)
    same(f"{what}: sizes", [len(each) for each in (x_train, y_train, x_test, y_test)], sizes)
    rows = [*zip(map(bytes, x_train), y_train), *zip(map(bytes, x_test), y_test)]
    assert sorted(rows) == sorted(zip(map(bytes, x), y)), f"\n{what}: other rows, or labels"


@check
def check_the_validation_rows(load, tmp_path):
    """Settings are tried on rows that are in no training and in no test; each has its label."""
    module = load("Compare")
    random = np.random.RandomState(0)
    x, y = random.rand(1437, 3).astype("float32"), random.randint(0, 10, 1437)
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")
    given = data(x, y, -x[:5], -1 - y[:5])
    module.drivers.load = lambda path: types.SimpleNamespace(load_data=lambda name: given)
    with np.load(module.validation_data(tmp_path)) as file:
        parts = [file[name] for name in data._fields]
    check_rows("validation", parts, x, y, [1077, 1077, 360, 360])


PARTS = "parts = (x[:-VALIDATION], y[:-VALIDATION], x[-VALIDATION:], y[-VALIDATION:])"
MISTAKES["the_validation_rows", "validation.*"] = {
    "labels of other rows": (
        "Compare",
        [(PARTS, PARTS.replace(" y[-VALIDATION:]", " y[:VALIDATION]"))],
    ),
    "rows in both": (
        "Compare",
        [(PARTS, PARTS.replace("(x[:-VALIDATION], y[:-VALIDATION]", "(x, y"))],
    ),
    "the rows of the test": (
        "Compare",
        [(PARTS, PARTS.replace("x[-VALIDATION:], y[-VALIDATION:]", "data.x_test, data.y_test"))],
    ),
    "one row lost": (
        "Compare",
        [(PARTS, PARTS.replace("(x[:-V", "(x[1:-V").replace(" y[:-V", " y[1:-V"))],
    ),
}


def digits():
    """Returns all rows of the digits, and their labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16).astype("float32"), y


@check
def check_the_rows_of_experiments(load, tmp_path):
    """Of the digits, and of a dataset of Keras, which is played."""
    module = load(EXPERIMENTS + "digits.py")
    check_rows("digits", module.load("digits"), *digits(), [1437, 1437, 360, 360])
    random = np.random.RandomState(0)
    x, y = random.randint(0, 256, [30, 2, 2]), np.arange(30)
    played = types.SimpleNamespace(load_data=lambda: ((x[:20], y[:20]), (x[20:], y[20:])))
    keras = types.SimpleNamespace(datasets=types.SimpleNamespace(mnist=played))
    with mock.patch.dict(sys.modules, keras=keras):
        parts = module.load("mnist")
    flat = (x.reshape(30, 4) / 255).astype("float32")
    check_rows("mnist", parts, flat, y, [20, 20, 10, 10])
    same("mnist", sorted(parts[3]), list(range(20, 30)))


EXPERIMENTS = "Beyond-One-Machine/Parallel-Experiments/"
SPLIT = "x, y, x_test, y_test = x[:-360], y[:-360], x[-360:], y[-360:]"
MISTAKES["the_rows_of_experiments", "digits.*"] = {
    "labels that were not shuffled": (
        EXPERIMENTS + "digits.py",
        [("x, y = x[order] / 16, y[order]", "x = x[order] / 16")],
    ),
    "the first labels": (
        EXPERIMENTS + "digits.py",
        [(SPLIT, SPLIT.replace("y[-360:]", "y[:360]"))],
    ),
    "rows in both": (
        EXPERIMENTS + "digits.py",
        [(SPLIT, SPLIT.replace("= x[:-360], y[:-360]", "= x, y"))],
    ),
    "another scale": (EXPERIMENTS + "digits.py", [("x[order] / 16", "x[order] / 15")]),
}
MISTAKES["the_rows_of_experiments", "mnist.*"] = {
    "training rows are tested": (
        EXPERIMENTS + "digits.py",
        [
            (
                "x, x_test = [each.reshape(len(each), -1) / 255 for each in (x, x_test)]",
                "x, x_test = [each.reshape(len(each), -1) / 255 for each in (x, x[:10])]",
            )
        ],
    ),
}


@check
def check_random_rows(load, tmp_path):
    """Messages' wide model is tested on rows that it never saw, of 784 numbers and 10 classes."""
    with np.load(load("Messages").wide_data(tmp_path)) as file:
        parts = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    random = np.random.RandomState(0)
    x, y = random.rand(1200, 784).astype("float32"), random.randint(0, 10, 1200)
    check_rows("wide", parts, x, y, [1000, 1000, 200, 200])


# Compare -----------------------------------------------------------------------------------------


@check
def check_the_length_of_compared_runs(load, tmp_path):
    """As many updates as fit into the seconds, or as make so many mini-batches of each worker.

    A rate is that of the same setting, and of the pilot where that one has none.
    """
    module, flags_of = load("Compare"), []
    module.train = lambda _, example, task, flags, place: flags_of.append(flags)
    module.RunData = types.SimpleNamespace(read=lambda place: None)
    module.numbers = lambda run, trained, waits: waits
    found = {"digits: HogWild: pilot": [{"updates_per_second": 100.0}]}
    found["digits: HogWild: --learning-rate 1"] = [{"seconds": 4.0, "updates": 1000}]
    found["digits: HogWild: --learning-rate 2"] = [{"test_loss": None}]
    local = module.drawing.FURTHER + "Local-SGD --local-steps 20"
    found[f"local steps: {local}: pilot"] = [{"updates_per_second": 7.0}]

    def words(name, example, words, seconds, data=None):
        case = ("", name, example, words)
        waits = module.measure(None, case, 3, seconds, found, data)
        row = dict(zip(flags_of[-1][::2], flags_of[-1][1::2]))
        keys = ("--steps", "--checkpoint-steps", "--seed", "--batch-size", "--dataset")
        return [*(row.get(key) for key in keys), waits]

    # A pilot of 1000 mini-batches, or of 10 updates of each worker; of these tests one.
    same("pilot", words("digits", "HogWild", "pilot", 3), [1000, 1000, 3, 32, None, False])
    same("pilot", words("8 workers", "SAGN", "pilot", 3), [10, 10, 3, 32, None, True])
    same("pilot", words("8 workers", "ADAG", "pilot", 3), [80, 80, 3, 32, None, False])
    same("pilot", words("digits", "ADAG", "pilot", 3), [100, 100, 3, 32, None, False])
    same("pilot", words("digits", "Synchronous-SGD", "pilot", 3), [500, 500, 3, 32, None, True])
    for lr, steps in ((1, 750), (2, 300), (3, 300)):
        due = [steps, steps // 25, 3, 32, "rows", False]
        same(f"lr {lr}", words("digits", "HogWild", f"--learning-rate {lr}", 3, "rows"), due)
    # 2000 mini-batches of each of 8 workers, 20 of each in an update.
    due = [100, 4, 3, 32, None, True]
    same("local", words("local steps", local, "--learning-rate 1", None), due)
    own = words("convolution", "Ring-AllReduce --batch-size 64", "pilot", 3)
    same("own", own, [200, 200, 3, None, None, True])


MISTAKES["the_length_of_compared_runs", "(pilot|lr|local).*"] = {
    "updates for mini-batches": ("Compare", [("task.pilot // together", "task.pilot")]),
    "the other setting's rate": (
        "Compare",
        [
            (
                'found.get(": ".join((task, example, words)))',
                "found.get(list(found)[1])",
            )
        ],
    ),
    "one worker's mini-batches": (
        "Compare",
        [("task.local * workers_of(name, example) / together", "task.local / together")],
    ),
    "a ps counts as a worker": (
        "Compare",
        [
            (
                'return jobs_of(example.split()[0], TASKS[task].workers)["worker"]',
                "return sum(jobs_of(example.split()[0], TASKS[task].workers).values())",
            )
        ],
    ),
}


@check
def check_what_is_sent_and_received(load, tmp_path):
    """Horovod's rows tell what is sent; all other rows what is received, too."""
    module = load("Compare")
    made_run.metrics(tmp_path / "kept", "worker-0", *(made_run.push(n, n) for n in (1, 2)))
    read = module.RunData.read
    module.RunData = types.SimpleNamespace(read=lambda place: read(tmp_path / "kept"))
    module.train = lambda *_: True
    module.numbers = lambda run, trained, waits: sum(push["bytes"] for push in run.rows("pushes"))
    sent = [
        module.measure(None, ("", "digits", example, "pilot"), 0, 3, {}, None)
        for example in ("HogWild", "Horovod-RingAllReduce")
    ]
    same("bytes", sent, [1600, 3200])


MISTAKES["what_is_sent_and_received", "bytes"] = {
    "all twice": (
        "Compare",
        [("        if with_horovod(folder):  # whose", "        if True:  # whose")],
    ),
    "Horovod's once": (
        "Compare",
        [('metrics.pushes["bytes"] *= 2', 'metrics.pushes["bytes"] *= 1')],
    ),
}


@check
def check_the_best_setting(load, tmp_path):
    """The least loss; the edge is the least and the greatest rate of those that were tried."""
    module = load("Compare")
    search = {"--learning-rate 0.01": 0.5, "--learning-rate 1": None, "--learning-rate 0.1": 0.2}
    same("best", module.best(search), "--learning-rate 0.1")
    same(
        "best", [module.best(each) for each in ({}, {"a": None}, {"a": 0, "b": 1})], ["", None, "a"]
    )
    pairs = {f"--learning-rate {lr} --rho {rho}": 1 for lr in (3e-4, 1e-3, 3e-3) for rho in (9, 2)}
    several = {f"--learning-rates {lr},{lr}": 1 for lr in (0.1, 0.3, 1)}
    edges = [
        module.at_the_edge(words, tried)
        for tried in (
            pairs,
            several,
            {"--learning-rate 1 --rho 2": 1, "--learning-rate 1 --rho 3": 1},
        )
        for words in tried
    ]
    same("edge", edges, [True, True, False, False, True, True, True, False, True, False, False])


MISTAKES["the_best_setting", "(best|edge)"] = {
    "the greatest": (
        "Compare",
        [("return min(known, key=known.get)", "return max(known, key=known.get)")],
    ),
    "only the least rate": (
        "Compare",
        [("own in (min(all_rates), max(all_rates))", "own in (min(all_rates),)")],
    ),
    "its place in the list": (
        "Compare",
        [
            (
                "own in (min(all_rates), max(all_rates))",
                "chosen in (list(search)[0], list(search)[-1])",
            )
        ],
    ),
}


@check
def check_what_it_takes_to_the_target(load, tmp_path):
    """The upper middle, those that never came there behind all others; "≤" at a first test."""
    module = load("Compare")
    runs = [run_of([0.5, 0.5, 0.97]), run_of([0.5, 0.97]), run_of([0.5]), run_of([0.98])]
    same("examples", module.middle_of(runs, "examples", "{:.0f}"), "300")
    same("examples", module.middle_of(runs[2:], "examples", "{:.0f}"), "")
    same("examples", module.middle_of(runs[3:], "examples", "{:.0f}"), "≤ 100")
    times = drivers.to_target(runs)
    same("reached", module.reached(times, "{:.0f}"), "2 (1-3) 1 never")
    same("reached", module.reached(times[2:3], "{:.0f}"), "never")
    same("lost", module.lost(runs, runs[1:]), " 1 of 4 failed")


MISTAKES["what_it_takes_to_the_target", "(examples|reached)"] = {
    "the least": ("Compare", [("middle = statistics.median_high(values)", "middle = min(values)")]),
    "those that came are counted": (
        "Compare",
        [("never = sum(value is None for", "never = sum(value is not None for")],
    ),
}


@check
def check_delays_of_compare(load, tmp_path):
    """Each seed has delays of its own, for as many workers as train; else a script is as it is."""
    module, given = load("Compare"), []
    module.delays = types.SimpleNamespace(changes=lambda *words: given.append(words) or [])
    module.drivers.changed = lambda script, changes: repr(changes)
    module.forked = types.SimpleNamespace(
        train=lambda _, copy, jobs, flags, place: (jobs, flags, copy.read_text())
    )
    flags = ["--steps", 10, "--seed", 3]
    place = tmp_path / "run"
    same(
        "jobs",
        module.train(None, "HogWild --x 1", "8 workers", flags, place),
        {"worker": 8, "ps": 1},
    )
    same("jobs", module.train(None, "Ring-AllReduce", "digits", flags, place), {"worker": 2})
    same("delays", given, [("exponential", 0.03, 8, 4)])


MISTAKES["delays_of_compare", "(delays|jobs)"] = {
    "the same delays for each seed": (
        "Compare",
        [('jobs["worker"], seed + 1)', 'jobs["worker"], 1)')],
    ),
    "of two workers": ("Compare", [('task.mean, jobs["worker"], seed', "task.mean, 2, seed")]),
}


@check
def check_the_pictures_of_compare(load, tmp_path):
    """A dot at the median of all runs, none where half never came there; medians elsewhere."""
    module = load("Measurements/Compare/drawing.py")
    figure, axes = drivers.subplots(3)
    for place, values in enumerate(([3, 1, 2, 6], [1, 2, 4, None], [1, 9, None, None], [None])):
        module.row(axes, place, values, "C0")
    dots = [points(line)[0] for line in axes.lines if line.get_marker() == "o"]
    same("dots", dots, [(2.5, 0), (3, 1)])
    bars = [points(line) for line in axes.lines if line.get_linewidth() == 6]
    same("bars", bars, [[(1, 0), (6, 0)], [(1, 1), (4, 1)], [(1, 2), (9, 2)]])
    texts = [text.get_text() for text in axes.texts]
    same("never", texts, ["1 of 4 never", "2 of 4 never", "1 of 1 never"])
    drawn = figures(module)
    hogwild = [run_of([0.5] * n + [0.95, 0.97]) for n in (4, 2, 1)]
    ring = [run_of([0.9] * n + [0.96]) for n in (1, 1, 8)]
    runs = {"HogWild": hogwild, "Ring-AllReduce": ring, "AEASGD": [run_of([0.9])] * 2 + hogwild[:1]}
    results = {f"8 workers: {example}": {"runs": each} for example, each in runs.items()}
    module.front({**results, "digits: HogWild": {"runs": ring}}, None, None)
    front = widths(drawn[0].axes[0])
    same("front", front, ([2, 3, 0], [" 2.0 s", " 3.0 s", " never"]))
    names = [text.get_text() for text in drawn[0].axes[0].get_yticklabels()]
    same("front", names, ["Ring-AllReduce", "HogWild", "AEASGD"])
    module.curves(
        {"digits: HogWild": {"runs": [{**run, "bytes": 1} for run in hogwild]}}, None, None
    )
    lines = [points(axes.lines[0]) for axes in drawn[1].axes]
    losses = [0.5, 0.5, 0.05]  # medians of the tests that all three runs have
    due = [[(x * (n + 1), loss) for n, loss in enumerate(losses)] for x in (1, 100, 2)]
    for line, known in zip(lines, due):
        same("curves", [x for pair in line for x in pair], [x for pair in known for x in pair])
    rounds = {
        f"DiLoCo --local-steps {T}": [{"test_loss": T / n} for n in (1, 2, 4)] for T in (5, 20)
    }
    rounds["DiLoCo --local-steps 100"] = [{"test_loss": None}]
    module.local_steps(rounds, None, None)
    line, *ranges = drawn[2].axes[0].lines
    same("rounds", points(line), [(5, 2.5), (20, 10)])
    same("rounds", [points(each) for each in ranges], [[(5, 1.25), (5, 5)], [(20, 5), (20, 20)]])


DRAWING = "Measurements/Compare/drawing.py"
MISTAKES["the_pictures_of_compare", "(dots|bars|front|curves|rounds)"] = {
    "a median without those that never came": (
        DRAWING,
        [('known + [float("inf")] * (len(values) - len(known)))', "known)")],
    ),
    "the front page's target": (
        DRAWING,
        [("drivers.to_target(runs[example], target=0.95)", "drivers.to_target(runs[example])")],
    ),
    "the front page's best run": (
        DRAWING,
        [('statistics.median(each or float("inf") for', 'min(each or float("inf") for')],
    ),
    "never is at once": (
        DRAWING,
        [('statistics.median(each or float("inf") for', "statistics.median(each or 0 for")],
    ),
    "the first run": (
        DRAWING,
        [
            (
                'statistics.median(run["evaluations"][name][i] for run in runs)',
                'runs[0]["evaluations"][name][i]',
            )
        ],
    ),
    "the least loss": (
        DRAWING,
        [("middles = [statistics.median(losses)", "middles = [min(losses)")],
    ),
}


# The tests of all checks -------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_counted(name, tmp_path):
    CHECKS[name](load, tmp_path)


@pytest.mark.parametrize(
    "name, fails, mistake",
    support.mistakes(MISTAKES, core=1),
)
def test_a_mistake_is_caught(name, fails, mistake, tmp_path):
    place, changes = mistake

    def mistaken(name, more=()):
        return load(name, [*changes, *more] if name == place else more)

    with support.caught(fails):
        CHECKS[name](mistaken, tmp_path)
