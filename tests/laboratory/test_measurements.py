"""What each measurement counts, on rows made by hand with known answers, and what its page shows.

Nothing trains here. A test may replace functions of the copy of a script that load() returns.
"""

import concurrent.futures
import contextlib
import io
import json
import math
import pathlib
import re
import statistics
import sys
import types
from unittest import mock

import numpy as np
import pytest
import run_files
import support
from lab import drivers, examples
from rich.console import Console

MEASUREMENTS = support.ROOT / "Measurements"


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
    for shared in drivers, examples:
        name = shared.__name__.rpartition(".")[2]
        if hasattr(module, name):
            setattr(module, name, types.SimpleNamespace(**vars(shared)))
    return module


def cells(table):
    """Returns the rows of a table as lists of texts."""
    return [list(row) for row in zip(*(column.cells for column in table.columns))]


# The committed tables ----------------------------------------------------------------------------

RESULTS = sorted(MEASUREMENTS.glob("*/results*.json"))
RESULTS = [path for path in RESULTS if "digests" not in path.name and "Compare" not in path.parts]


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


def of(source, name="table"):
    """Returns a function: the table that a script makes of a file of results beside it."""
    return lambda module, folder: getattr(module, name)(json.loads((folder / source).read_text()))


EXPERIMENTS = "Beyond-One-Machine/Parallel-Experiments/"
RATES = "Beyond-One-Machine/TensorFlowOnSpark/rates.py"
FORMS = "Measurements/Benchmarks/benchmarks.py"
FAULTS = "Operations/Fault-Tolerance/fault_tolerance.py"
PAGE_TABLES = {  # a table that a page shows: its script, and how that one makes it
    "vocabulary.txt": ("Sparse-Embeddings/vocabulary.py", of("vocabulary.json")),
    "batch_sizes.txt": ("Synchronous-SGD/batch_sizes.py", of("batch_sizes.json")),
    "compare_rates.txt": (
        "Synchronous-SGD-different-learning-rates/compare_rates.py",
        of("compare_rates.json"),
    ),
    "retries.txt": ("Parameter-Server-Strategy/retries.py", of("retries.json")),
    "forms.txt": (FORMS, of("forms.json", "forms_table")),
    "gpu.txt": ("Measurements/Benchmarks/gpu.py", of("gpu.json")),
    "start_up.txt": ("Beyond-One-Machine/start_up.py", of("start_up.json")),
    "kills.txt": ("Beyond-One-Machine/Spark-Cluster/kills.py", of("kills.json")),
    "measured.txt": (EXPERIMENTS + "measure.py", of("measured.json")),
    "matrix.txt": (
        "Your-Model/matrix.py",
        lambda module, folder: module.table_of(
            json.loads((folder / "matrix.json").read_text())["cells"]
        ),
    ),
    "table.txt": (FAULTS, lambda module, folder: module.page_table(folder)),
    **{
        name: (RATES, lambda *given, name=name: of("rates.json", "tables")(*given)[name])
        for name in ("rates_ways.txt", "rates_alone.txt")
    },
}


@pytest.mark.parametrize("name", PAGE_TABLES)
def test_a_table_of_a_page_is_that_of_its_results(name):
    """Catches the same of a script that makes the Markdown of a page."""
    script, table = PAGE_TABLES[name]
    folder = place_of(script).parent
    assert (folder / name).read_text() == table(load(script), folder) + "\n"


def test_a_peer_is_compared_in_its_fastest_form():
    """Catches a form that Benchmarks compares although it measured a faster one."""
    module, path = load(FORMS), support.ROOT / FORMS
    measured = json.loads(path.with_name("forms.json").read_text())["rates"]
    assert measured.keys() == module.OTHERS.keys()
    for name, forms in measured.items():
        medians = {form: statistics.median(rates) for form, rates in forms.items()}
        compared = module.FORMS[module.OTHERS[name][0]]
        assert set(medians) == set(compared)
        assert max(medians, key=medians.get) == compared[0], name


# What main() asks for, and what the table then says -----------------------------------------------


def asked(module, *words):
    """Runs main() of a script with these flags; returns what it gives to drivers.report."""
    given = []
    module.drivers.report = lambda *arguments: given.append(arguments)
    with mock.patch.object(sys, "argv", ["a script", *words]):
        module.main()
    return given[0]


def in_table(name, words):
    """Returns whether the committed table of a measurement says this, however it wraps lines."""
    text = (MEASUREMENTS / name / "table.txt").read_text()
    return f" {words}" in " ".join(text.split())


def committed(name):
    """Returns the committed results of a measurement."""
    return json.loads((MEASUREMENTS / name / "results.json").read_text())


SHARED_FLAGS = {"only": "", "redraw": None, "anyway": False}
STALENESS_FLAGS = {"updates": 1000, "pushes": 400, "rate": 0.1, "move": 0.125, "every": 20}
FEW_OF_SLOW_NETWORK = [
    f"69 KB, {rate} Mbit/s: {name}"
    for rate in (10, 100, 1000)
    for name in ("HogWild", "Synchronous-SGD", "Ring-AllReduce", "Collective-AllReduce")
]
SITTINGS = {  # a measurement: (its flags, the cases without --full, what else measure() gets)
    "Compression": (
        {"updates": 2000},
        [
            f"{name}: Further-Algorithms/Compressed-AllReduce"
            for name in ("PowerSGD, rank 1", "sign")
        ]
        + ["sign, without e: Further-Algorithms/Compressed-AllReduce"],
        lambda flags: [flags],
    ),
    "Scaling": (
        {"batches": 1000},
        ["1 worker, constant: HogWild"]
        + [f"{n} workers, exponential: HogWild" for n in (2, 8)]
        + [f"{n} workers, exponential: Synchronous-SGD" for n in (2, 8)]
        + ["8 workers, exponential: Synchronous-SGD, a backup"],
        lambda flags: [flags.batches],
    ),
    "Slow-Network": ({}, FEW_OF_SLOW_NETWORK, lambda flags: []),
    "Staleness": (
        STALENESS_FLAGS,
        [f"at most {n} ahead: Further-Algorithms/Bounded-Staleness" for n in (1, 5)]
        + ["no bound: HogWild"]
        + [f"N = {n}: Further-Algorithms/Async-Local-SGD" for n in (1, 8)],
        lambda flags: [flags],
    ),
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", SITTINGS)
def test_a_sitting_measures_what_its_table_says(name, full, tmp_path):
    """With --full these are the cases of the committed results, and the last line fits the flags.

    Catches: another default, a case that is left out, a flag that changes nothing, and the name of
    an example that is not there, with which --full ended at once.
    """
    own, few, more = SITTINGS[name]
    module = load(name)
    if name == "Slow-Network":
        module.hosts = types.SimpleNamespace(
            enter=lambda: None, make=lambda n: n, Unavailable=OSError
        )
    _, flags, _, measure_all, *last = asked(module, *["--full"] * full)
    assert last == [module.table_of, module.draw]
    assert vars(flags) == {**own, **SHARED_FLAGS, "full": full, "repeats": 3}
    module.drivers.sitting = lambda *arguments: arguments
    module.measure = lambda *arguments: list(arguments)
    *given, cases, run, words, measured = measure_all("a console", tmp_path)
    assert given == ["a console", tmp_path, flags]
    assert len(measured) == len(cases)
    assert all(examples.main_script(example).exists() for example in measured)
    names = [case[0] for case in cases]
    assert sorted(names) == sorted(committed(name) if full else few)
    assert names == [case for case in committed(name) if case in names]
    hosts = [6] if name == "Slow-Network" else []
    assert run(cases[1], 5) == [*hosts, cases[1], 5, *more(flags)]
    if full:
        assert in_table(name, f"{words}; median (range) of 3; 2")
        due = json.loads((MEASUREMENTS / name / "results_digests.json").read_text())
        # The optimizer was measured before its digest was noted.
        later = {"From-TensorFlow-1/Synchronous-SGD-Optimizer"} if name == "Scaling" else set()
        assert set(measured) == {*due, *later}


def turned(module, name, *words):
    """Returns (flags, cases, repeats, what measures one, the rest) that a script gives to by_turns.

    Its last line is compared with the committed table.
    """
    given = []

    def by_turns(console, cases, repeats, measure, *rest):
        assert console == "a console"
        given.extend([list(cases), repeats, measure, rest])
        return {case[0]: [[case[0], repeat] for repeat in range(repeats)] for case in cases}

    _, flags, _, measure_all, *last = asked(module, *words)
    assert last == [module.table_of, module.draw]
    module.drivers.by_turns, module.drivers.setting = by_turns, lambda *versions: "2"
    results, text = measure_all("a console", pathlib.Path("a folder"))
    if not words:
        assert in_table(name, text)
    return [flags, *given, results]


def test_what_packing_asks_for():
    """Catches another default, a run without its flags, and sizes of packs of other cases."""
    module, commands = load("Packing"), []
    flags, cases, repeats, one, _, results = turned(module, "Packing")
    due = {"steps": 200, "repeats": 5, "batch_size": 64}
    assert (vars(flags), repeats) == ({**SHARED_FLAGS, **due}, 5)
    assert list(results) == list(committed("Packing"))

    def run(command, directory):
        commands.append(list(map(str, command)))
        commands[-1][4] = pathlib.Path(commands[-1][4]).read_text()
        directory.mkdir()
        (directory / "result.json").write_text('{"examples_per_second": 640, "workers": 2}')

    module.drivers.run = run
    assert [one(case, 0) for case in cases] == [200] * 5
    texts = [command.pop(4) for command in commands]
    sizes = {"each tensor alone": "1", "packs of 4 MB": "4194304", "all in one": "0"}
    for case, text, command in zip(cases, texts, commands):
        name, when = case[0].split(", ")
        due = f"tfrun --workers 2 -- --steps 200 --batch-size 64 --bytes-per-pack {sizes[name]}"
        assert command == due.split()
        # All in one is the last of its kind: with one pack it makes no difference.
        waits = when.startswith("after") and name != "all in one"
        assert ("tf.control_dependencies(g)" in text) == waits
        assert 'keras.layers.Dense(1024, "relu") for _ in range(3)' in text
    colours = []
    module.drivers.bars = lambda *given: colours.append(given[3])
    module.draw(dict.fromkeys((case[0] for case in cases), [40]), None, None)
    a, b, c, d, e = colours[0].values()
    assert a == b != c == d != e != a


def test_what_a_pipeline_is_asked_for():
    """Its cases are those of the committed table; shown are the updates that the page shows.

    Catches: another default, cases of too few micro-batches, a machine with one core, and updates
    of one repeat.
    """
    module = load("Pipeline")
    module.os = types.SimpleNamespace(sched_getaffinity=lambda _: [0, 1])
    module.summary = lambda case, updates: ([*case, updates], updates)
    module.pack, rows = list, committed("Pipeline")
    flags, cases, repeats, one, _, results = turned(module, "Pipeline")
    due = {"micro_batches": [1, 2, 4, 8, 16], "updates": 20, "repeats": 3, "threads": 2}
    assert (vars(flags), repeats) == ({**due, "redraw": None, "anyway": False}, 3)
    assert [list(case) for case in cases] == [row[:5] for row in rows["table"]]
    runs = [[part for n in range(3) for part in (case.name, n)] for case in cases]
    assert results["table"] == [[*case, of] for case, of in zip(cases, runs)]
    assert [list(each["case"]) for each in results["updates"]] == [
        each["case"] for each in rows["updates"]
    ]
    assert [each["ops"] for each in results["updates"]] == [
        runs[cases.index(each["case"])] for each in results["updates"]
    ]
    module.measure = lambda *arguments: arguments
    assert one(cases[2], 1) == (cases[2], 20, 2)
    *_, results = turned(module, "", "--micro-batches", "2,16")
    assert [each["case"][1:4] for each in results["updates"]] == [
        (schedule, K, 16) for K in (4, 2) for schedule in ("gpipe", "1f1b")
    ]
    module.os.sched_getaffinity = lambda _: [0]
    with pytest.raises(SystemExit, match="two cores"):
        turned(module, "", "--updates", "1")
    assert [module.numbers(text) for text in ("64", "1,32")] == [[64], [1, 32]]
    for text in ("0", "3", "128", "1,-1", "1,24"):
        with pytest.raises(Exception, match="must divide 64"):
            module.numbers(text)


def test_the_runs_of_a_pipeline(tmp_path):
    """Catches: updates of the warm-up, another number of tasks, and threads of late layers."""
    module, runs = load("Pipeline"), []

    def run(command, directory, **env):
        words = list(map(str, command))
        script = pathlib.Path(words[6])
        assert (script.parent / "late.py").exists()
        runs.append((" ".join(words[:6] + words[7:]), script.read_text(), env))
        directory.mkdir()

    module.drivers.run = run
    for case in (module.Case("", "1f1b", 2, 8, False), module.Case("", "gpipe", 4, 16, True)):
        assert module.measure(case, 20, 3) == []
    common = "--steps 50 --timeline-steps 2 "
    wide, late = runs
    assert wide[0] == "tfrun --workers 2 --timeout 300 -- " + common + (
        "--batch-size 1024 --micro-batches 8 --schedule 1f1b"
    )
    assert late[0] == "tfrun --workers 1 --timeout 300 -- " + common + (
        "--devices 4 --batch-size 64 --micro-batches 16 --schedule gpipe"
    )
    ones = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert wide[2] == {**ones, "TF_NUM_INTEROP_THREADS": "3"}
    assert late[2] == {**ones, "TF_NUM_INTEROP_THREADS": "7"}
    assert "sched_setaffinity" in wide[1] and "late.Late" not in wide[1]
    assert "sched_setaffinity" not in late[1] and late[1].count("late.Late(") == 4


def test_what_ring_bandwidth_asks_for():
    """Catches: another default, sizes or cases than those of the page, and a ring that goes on."""
    module, rings, ended = load("Ring-Bandwidth"), [], []

    def start(script, n, *more):
        rings.append((script, n, *more))
        return types.SimpleNamespace(cost=lambda size: (n, more, size), end=lambda: ended.append(n))

    module.start = start
    script = types.SimpleNamespace(tf=types.SimpleNamespace(__version__="2"))
    module.examples.load = lambda path: script
    with mock.patch.dict("os.environ"):
        flags, cases, repeats, one, _, results = turned(module, "", "--repeats", "9")
    assert list(results) == list(committed("Ring-Bandwidth"))
    tensorflow = (None, 2, module.of_tensorflow, "spawn")
    assert rings == [(script, 1), (script, 2), (script, 3), (script, 4), tensorflow]
    assert ended == [1, 2, 3, 4, 2]
    assert [one(case, 0) for case in cases[:5]] == [
        *((n, (), 1000) for n in (1, 2, 3, 4)),
        (2, tensorflow[2:], 1000),
    ]
    due = {"megabytes": [0.001, 0.01, 0.069, 1, 8.7, 100], "workers": [2, 3, 4], "repeats": 9}
    assert (vars(flags), repeats) == ({**due, "redraw": None, "anyway": False}, 9)
    assert asked(module)[1].repeats == 15
    asked(module, "--megabytes", "0.000004", "--workers", "2")
    for wrong in (["--workers", "2", "1"], ["--megabytes", "1", "0.0000039"]):
        with pytest.raises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as error:
            asked(module, *wrong)
        assert "--workers must be at least 2, --megabytes" in error.getvalue()


@pytest.mark.parametrize("torch", [True, False])
def test_what_benchmarks_ask_for(torch, tmp_path):
    """Catches: another default, a program that is left out, and rates of another model."""
    module = load("Benchmarks")
    with mock.patch("importlib.util.find_spec", lambda name: torch):
        flags, cases, rounds, one, (kept,), results = turned(module, "Benchmarks")
    del results["HogWild (10)"]["digits"][3:]
    due = committed("Benchmarks")
    if not torch:
        due = {name: of for name, of in due.items() if "PyTorch" not in name and name != "DDP"}
    assert {name: list(of) for name, of in results.items()} == {
        name: list(of) for name, of in due.items()
    }
    for name, of in results.items():
        assert all(of[model][0] == [f"{name}; {model}", 0] for model in of)
    due = {"rounds": 5, "quick": False, "forms": False, "gpu": False}
    assert (vars(flags), rounds) == ({**SHARED_FLAGS, **due}, 5)
    module.measure = lambda *arguments: arguments
    name = "Synchronous-SGD (10 steps a call)"
    case = next(case for case in cases if case[0] == f"{name}; wide")
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert one(case, 1) == (name, "wide", threads)
    assert kept == pathlib.Path("a folder/measured.json")
    with mock.patch("importlib.util.find_spec", lambda name: torch):
        _, cases, rounds, *_ = turned(module, "Benchmarks", "--quick", "--only", "HogWild")
    assert rounds == 1 and [case[1:] for case in cases] == [
        (name, "digits") for name in due_of_hogwild(module)
    ]


def due_of_hogwild(module):
    """Returns the programs of Benchmarks with HogWild in their names."""
    return [*(name for name in module.EXAMPLES if "HogWild" in name), module.START_UP]


# What all share ----------------------------------------------------------------------------------

SHARED = "lab/drivers.py"


def test_the_others(tmp_path):
    """The largest share of any measurement of the cases that count.

    Catches: the last share for the largest, and the shares of cases that do not count.
    """
    kept = tmp_path / "measured.json"
    shares = {"digits: a": [0.1, 0.3, 0.2], "digits: b": [0.05], "local: a": [0.9]}
    kept.write_text(json.dumps({drivers.OTHERS: shares}))
    others_of = load(SHARED).others_of
    assert [others_of(kept), others_of(kept, ["digits"]), others_of(kept, ["x"])] == pytest.approx(
        [0.9, 0.3, 0]
    )


def test_a_sitting(tmp_path):
    """--repeats counts with --full only; how often what others disturb is measured again."""
    module, asked = load(SHARED), []
    module.by_turns = lambda _, cases, repeats, measure, kept, *rest: asked.append((repeats, *rest))
    (tmp_path / "measured.json").write_text('{"others": {"a": [0.25]}}')
    sittings = []
    for full, anyway in ((True, False), (False, True)):
        flags = types.SimpleNamespace(repeats=5, full=full, anyway=anyway)
        sittings.append(module.sitting(None, tmp_path, flags, [], None, "words", [])[1:])
    assert asked == [(5, 3, {}), (1, 1, {})]
    assert [text.partition("; 2")[0] for text, _ in sittings] == [
        f"words; median (range) of {n}" for n in (5, 1)
    ]
    assert [share for _, share in sittings] == pytest.approx([0.25, 0.25])


def test_a_report(tmp_path):
    """results.json holds what was measured, and the table has the name of its picture beside it."""
    module, drawn, place = load(SHARED), [], tmp_path / "A-Name"
    results = {"a": [1.5, [2, [3]], "a, b", {"b": [0.1, 2e-9]}], "c": [], "d": None}
    module.output_directory = lambda name: tmp_path
    module.idle = types.SimpleNamespace(
        wait=lambda anyway: types.SimpleNamespace(share=lambda: 0.5),
        words=lambda share: f"others {share}",
    )

    def draw(*arguments):
        drawn.append(arguments)

    def go(redraw, *share):
        flags, output = types.SimpleNamespace(redraw=redraw, anyway=True), io.StringIO()
        with contextlib.redirect_stdout(output):
            module.report(
                place / "a_name.py", flags, 40, lambda *_: (results, "when", *share), str, draw
            )

    go(None, 0.25)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert (tmp_path / "table.txt").read_text().splitlines()[-1] == "when; others 0.25"
    go(None)  # its own share, where a measurement has noted none
    assert (tmp_path / "table.txt").read_text().splitlines()[-1] == "when; others 0.5"
    source = tmp_path / "results-wide.json"
    (tmp_path / "results.json").rename(source)
    go(source)
    pictures = [(given[1].name, given[2].name) for given in drawn]
    assert pictures == [("a-name.png", "results.json")] * 2 + [
        ("a-name-wide.png", "results-wide.json")
    ]
    assert drawn[2][0] == results


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


def test_bars():
    """As long as a median, with its number; a dot is a run.

    Catches: a bar of the best run.
    """
    module, figure = load(SHARED), []
    module.save = lambda drawn, path, source: figure.append(drawn)
    values = {"a": [3.0, 1.0, 2.0, 8.0], "b\nb": [5.0]}
    module.bars("", "", values, dict.fromkeys(values, "C0"), "{:.1f}".format, None, None)
    assert widths(figure[0].axes[0]) == ([2.5, 5.0], ["2.5", "5.0"])
    dots = [points(line) for line in figure[0].axes[0].lines]
    assert dots == [[(x, 0) for x in values["a"]], [(5, 1)]]


def test_a_command(tmp_path):
    """A run has its own folder, nothing that its run.sh refuses, and its failure ends us."""
    script = tmp_path / "run.sh"
    script.write_text(
        'echo "${WORKERS:-2} none${PS:-} $MORE $OUTPUT_DIR" > "$OUTPUT_DIR/said"; exit $CODE'
    )
    run = load(SHARED).run
    env = {"PATH": "/usr/bin:/bin", "WORKERS": "7", "PS": "8", "CODE": "0"}
    run(["bash", script], tmp_path, env, MORE="x")
    assert (tmp_path / "said").read_text().split() == ["7", "none", "x", str(tmp_path)]
    with pytest.raises(SystemExit, match="exit code 3"):
        run(["bash", script], tmp_path, env, CODE="3")


def test_which_cases(tmp_path):
    """--only, --full, or the few; a script is changed where the text stands once."""
    module = load(SHARED)
    cases = [("1 worker: a",), ("2 workers: a",), ("2 workers: b",)]

    def chosen(*flags):
        parser = module.Parser("")
        parser.full("")
        sys_argv, sys.argv = sys.argv, ["a script", *flags]
        try:
            parsed, names = parser.only(cases, ("2 workers: b",))
        finally:
            sys.argv = sys_argv
        return [cases.index(name) for name in names], parsed.repeats

    assert chosen() == ([2], 3)
    assert chosen("--full", "--repeats", "4") == ([0, 1, 2], 4)
    assert chosen("--only", ": a") == ([0, 1], 3)
    path = tmp_path / "script.py"
    path.write_text("a b c")
    assert examples.replaced(path, [("a", "b"), ("b b", "c"), ("c c", "d")]) == "d"
    with pytest.raises(ValueError, match="stands 2 times"):
        examples.replaced(path, [("b", "a"), ("a", "x")])


def test_digests(tmp_path):
    """Each measured example has the digest of its own script."""
    module = load(SHARED)
    module.leave_digests(module.digests_of(["HogWild", "DynSGD", "HogWild"]), tmp_path)
    due = [
        f' "{name}": "{examples.example_digest(examples.main_script(name))}"'
        for name in ("DynSGD", "HogWild")
    ]
    text = (tmp_path / "results_digests.json").read_text()
    assert text == "{\n" + ",\n".join(due) + "\n}\n"


# Splits ------------------------------------------------------------------------------------------


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


def test_the_rows_of_experiments():
    """Of the digits, and of a dataset of Keras, which is played.

    Catches: labels of other rows, rows in both halves, and another scale.
    """
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
    assert sorted(parts[3]) == list(range(20, 30))


SPLIT = "x, y, x_test, y_test = x[:-360], y[:-360], x[-360:], y[-360:]"


def test_random_rows(tmp_path):
    """The wide model is tested on rows that it never saw, of 784 numbers and 10 classes."""
    with np.load(load("Benchmarks").wide_data(tmp_path)) as file:
        parts = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    random = np.random.RandomState(0)
    x, y = random.rand(1200, 784).astype("float32"), random.randint(0, 10, 1200)
    check_rows("wide", parts, x, y, [1000, 1000, 200, 200])


# Benchmarks --------------------------------------------------------------------------------------


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


def peers_of(chief=False):
    """Returns the peers of Benchmarks as a task of two workers, and their clock."""
    task = {"type": "chief" if chief else "worker", "index": 0}
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": task}
    with mock.patch.dict("os.environ", TF_CONFIG=json.dumps(config), OUTPUT_DIR="/none"):
        module = load("Measurements/Benchmarks/peers.py")
    module.time = Clock()
    return module, module.time


def test_the_rates_of_peers():
    """Mini-batches of all workers, without the first calls: 2 workers, a step takes a second.

    Catches: rates of one worker, calls that count as steps, and seconds of the first calls.
    """
    flags = types.SimpleNamespace(seconds=60, together=10, layers=[2, 3, 4], batch_size=5, form="")
    module, clock = peers_of(chief=True)
    slow = iter([1000] * 5)  # the first calls
    rate = module.rate_of(lambda: clock.tick(next(slow, 3)), 60, 12)
    assert rate == pytest.approx(12 / 3)
    # A closure is 10 mini-batches, and takes 10 s of one worker; all of them at once, two by two.
    tf, scheduled = mock.MagicMock(), []
    coordinator = tf.distribute.coordinator.ClusterCoordinator.return_value
    coordinator.schedule = scheduled.append

    def join():
        clock.tick(10 * len(scheduled) / 2)
        scheduled.clear()

    coordinator.join = join
    with mock.patch.dict(sys.modules, tensorflow=tf):
        assert module.parameter_server(flags) == 2
    module, clock = peers_of(load)
    calls, tf = [], mock.MagicMock()
    tf.function = lambda function: lambda: calls.append(clock.tick(1000 if len(calls) < 5 else 10))
    tf.distribute.MultiWorkerMirroredStrategy.return_value.reduce.return_value = 4.5
    with mock.patch.dict(sys.modules, tensorflow=tf):
        assert module.multi_worker(flags) == 2
    assert len(calls) == 5 + 1 + 4
    for kind in ("ddp", "averaged", "alone"):
        module, clock = peers_of(load)
        steps, agreed, torch = [], [], mock.MagicMock()
        torch.optim.SGD.return_value.step = lambda s=steps, c=clock: s.append(
            c.tick(1000 if len(s) < 50 else 1)
        )
        torch.tensor = np.array

        def all_reduce(number, agreed=agreed):
            if isinstance(number, np.ndarray):  # the other worker would make a third as many
                agreed.append(number)
                number += number / 3

        torch.distributed.all_reduce = all_reduce
        with mock.patch.dict(sys.modules, torch=torch):
            assert module.pytorch(flags, kind) == 2, kind
        assert [len(agreed), len(steps)] == [1, 50 + 10 + 10 * 4], kind


PEERS = "Measurements/Benchmarks/peers.py"


def closure_of(form):
    """Returns the ops of a closure of ParameterServerStrategy in this form, of ten steps."""
    import tensorflow as tf

    module, closures = peers_of(chief=True)[0], []
    flags = types.SimpleNamespace(seconds=1, together=10, layers=[2, 3, 4], batch_size=5, form=form)
    with mock.patch.object(tf, "distribute") as distribute:
        distribute.ParameterServerStrategy.return_value.run = lambda step: step()
        coordinator = distribute.coordinator.ClusterCoordinator.return_value
        coordinator.schedule = closures.append
        module.rate_of = lambda call, *_: call()
        module.parameter_server(flags)
    return [op.type for op in closures[0].get_concrete_function().graph.get_operations()]


def test_the_closure_of_the_peer_is_unrolled():
    """Catches a peer that runs in a slower form: a loop of the graph made half of its updates."""
    assert "While" in closure_of("loop")
    ops = closure_of(load("Benchmarks").FORMS["parameter-server"][0])
    assert "While" not in ops and ops.count("AssignSubVariableOp") % 10 == 0 < len(ops)


def test_what_benchmarks_run(tmp_path):
    """The flags of a program, and the start of the last worker, from the command on.

    Catches: the start of the first worker or the last push, batches of another model, and
    ratios the other way round.
    """
    module, commands = load("Benchmarks"), []
    module.time = Clock()

    def run(command, directory, **environment):
        commands.append(list(map(str, command)))
        directory.mkdir(parents=True)
        (directory / "result.json").write_text('{"examples_per_second": 6400}')
        (directory / "rate.json").write_text("55")
        assert environment["TF_NUM_INTRAOP_THREADS"] == "1"
        for task, times in (("worker-0", (103, 104, 120)), ("worker-1", (107, 110, 121))):
            rows = [run_files.push(time, n) for n, time in enumerate(times)]
            run_files.metrics(directory, task, *rows)
        module.time.tick(50)

    module.drivers.run = run
    assert module.start_up(tmp_path / "start") == 7
    for name, model, rate in (("HogWild (10)", "digits", 200), ("HogWild (10)", "wide", 64)):
        (tmp_path / model).mkdir()
        assert module.example(name, model, tmp_path / model, module.ONE_THREAD) == rate, name
        row = commands[-1]
        given = [row[row.index(flag) + 1] for flag in ("--workers", "--steps", "--batch-size")]
        assert given == ["2", *(["4000", "32"] if model == "digits" else ["800", "100"])], name
        assert ("--dataset" in row) == (model == "wide"), name
    module.peer(
        "MultiWorkerMirroredStrategy (10 steps a call)",
        "wide",
        tmp_path / "peer",
        module.ONE_THREAD,
    )
    row = commands[-1][commands[-1].index("multi-worker") :]
    form = module.FORMS["multi-worker"][0]
    assert row[2::2] == ["[784, 512, 512, 10]", "100", "10", form, "3"]
    rates = [
        module.measure(n, "digits", module.ONE_THREAD) for n in ("HogWild, timed", module.TWICE)
    ]
    assert rates == [55, 400]
    pairs = module.ratios(
        {"HogWild (10)": {"digits": [6.0, 1]}, module.ALONE: {"digits": [3.0, 2, 9]}}
    )
    drawn = figures(module)
    module.draw(
        {"HogWild (10)": {"digits": [6.0, 1, 2]}, module.ALONE: {"digits": [3.0, 2, 2]}}, 0, 0
    )
    assert list(pairs.values()) == [{"digits": [2.0, 0.5]}]
    dots, middle = drawn[0].axes[0].lines[:2]
    assert [x for x, _ in points(dots) + points(middle)] == pytest.approx([2, 0.5, 1, 1])


def test_each_run_of_benchmarks(tmp_path):
    """The command of each program, and of a peer as often as its name says that it talks.

    Catches: another cluster, steps of another program, and a program that a name does not fit.
    """
    module, commands = load("Benchmarks"), []

    def run(command, directory, **environment):
        words = list(map(str, command))
        place = words.index("--") + 1
        commands.append((words[:place], pathlib.Path(words[place]).name, words[place + 1 :]))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "result.json").write_text('{"examples_per_second": 6400}')
        (directory / "rate.json").write_text("55")

    module.drivers.run = run
    steps = dict(zip(module.EXAMPLES, [2, 4, 1.5, 1.5, 2, 5, 0.8, 2, 15, 4, 4, 2], strict=True))
    ps, ring = "--ps 1 --workers 2", "--workers 2"
    for name, thousand in steps.items():
        rate = module.example(name, "digits", tmp_path, {})
        cluster, script, more = commands[-1]
        assert rate == (55 if "timed" in name or "without rows" in name else 200), name
        due = ring if "AllReduce" in name else ps
        due = {"Parameter": f"--chief {ps}", "Non": "--workers 1"}.get(name.split("-")[0], due)
        assert cluster == f"tfrun {due} --".split(), name
        own = f"--steps {thousand * 1000:.0f} --batch-size 32"
        own = "--updates-per-call 1 " * ("1 update" in name) + own
        own = "--closure-steps 1 " * ("1 a closure" in name) + own
        assert more == own.split(), name
        folder = re.split(r"[ ,]", name)[0]
        assert script == folder.lower().replace("-", "_") + ".py"
    for name in module.OTHERS:
        module.peer(name, "digits", tmp_path, {})
        cluster, script, (kind, *more) = commands[-1]
        together = "10" if "10" in name or "never" in name else "1"
        assert script == "peers.py" and more[:7:2] == [
            "--layers",
            "--batch-size",
            "--together",
            "--form",
        ]
        assert more[1::2] == ["[64, 128, 64, 10]", "32", together, module.FORMS[kind][0], "3"]
        assert cluster == f"tfrun {f'--chief {ps}' if 'Parameter' in name else ring} --".split()
    module.peer("DDP", "digits", tmp_path, {}, "plain")
    assert commands[-1][2][8] == "plain"


def test_what_a_program_of_benchmarks_is(tmp_path):
    """Catches: a program that is measured as another one is, and an import that may fail."""
    module, calls = load("Benchmarks"), []
    for name in ("example", "peer", "twice"):
        setattr(module, name, lambda *given, name=name: (name, *given[:2], given[3]))
    module.start_up, module.seconds_of_import = (
        (lambda folder: ("start", folder.is_dir())),
        lambda: 3,
    )
    measure = module.measure
    assert measure("HogWild (10)", "wide", "env") == ("example", "HogWild (10)", "wide", "env")
    assert measure("DDP", "wide", "env") == ("peer", "DDP", "wide", "env")
    assert measure(module.TWICE, "wide", "env") == ("twice", "Non-Distributed-Setup", "wide", "env")
    assert [measure(name, "digits", {}) for name in (module.START_UP, module.IMPORT)] == [
        ("start", True),
        3,
    ]
    module = load("Benchmarks")
    module.time = Clock()

    def run(command, **more):
        calls.append((command[1:], more))
        module.time.tick(4)

    module.subprocess = types.SimpleNamespace(run=run)
    assert module.seconds_of_import() == 4
    assert calls == [(["-c", "import tensorflow"], {"check": True, "capture_output": True})]
    module.example = lambda name, model, folder, env: len(folder.name) if folder.is_dir() else None
    assert module.twice("a", "digits", tmp_path, {}) == len("first") + len("second")


def test_the_forms_of_the_peers(tmp_path):
    """Each form of each peer three times, by the smaller model; the fastest first.

    Catches: a form that is left out, rates of another one, and an order by the slowest run.
    """
    module, given = load("Benchmarks"), []
    module.drivers.output_directory = lambda name: tmp_path
    module.idle = types.SimpleNamespace(
        wait=lambda anyway: types.SimpleNamespace(share=lambda: 0.25),
        words=lambda share: f"{share}",
    )
    module.drivers.setting = lambda *versions: "here"
    module.peer = lambda *arguments: arguments

    def by_turns(console, plan, repeats, rate, kept):
        given.extend([repeats, kept.name, [rate(case, 0) for case in plan]])
        return {key: [float(len(form)), 2.0 * len(form), 1] for key, _, form in plan}

    module.drivers.by_turns = by_turns
    with contextlib.redirect_stdout(io.StringIO()):
        flags = types.SimpleNamespace(anyway=True)
        module.measure_forms(["DDP", "PyTorch, averaged every 10 steps"], flags)
    repeats, kept, rates = given
    assert (repeats, kept) == (3, "measured-forms.json")
    plan = [("DDP", form) for form in module.FORMS["ddp"]]
    plan += [("PyTorch, averaged every 10 steps", form) for form in module.FORMS["averaged"]]
    assert [(rate[0], rate[1], *rate[3:]) for rate in rates] == [
        (name, "digits", module.ONE_THREAD, form) for name, form in plan
    ]
    found = json.loads((tmp_path / "forms.json").read_text())
    assert found["about"] == "here; 0.25"
    due = {}
    for name, form in plan:
        due.setdefault(name, {})[form] = [len(form), 2 * len(form), 1]
    assert found["rates"] == due
    rows = (tmp_path / "forms.txt").read_text().splitlines()[2:8]
    assert [row.split(" | ")[1] for row in rows[:3]] == ["fused, views", "plain", "fused"]
    chosen = []
    module = load("Benchmarks")
    module.measure_forms = lambda names, flags: chosen.append(names)
    module.gpu = types.SimpleNamespace(measure=lambda flags, versions: chosen.append(flags.gpu))
    module.drivers.report = lambda *arguments: chosen.append("report")
    with mock.patch("importlib.util.find_spec", lambda name: True):
        for words in (["--forms", "--only", "PyTorch"], ["--gpu"]):
            with mock.patch.object(sys, "argv", ["a script", *words]):
                module.main()
    assert chosen == [[name for name in module.OTHERS if "PyTorch" in name], True]


GPU = "Measurements/Benchmarks/gpu.py"


def test_what_runs_on_a_gpu(tmp_path):
    """Each place with its device and steps; the rate of the second half of all workers' updates.

    Catches: seconds of the start, an update too many, one worker of two, a GPU on both sides,
    and a ratio the other way round.
    """
    module, commands = load(GPU), []

    def run(command, directory, **environment):
        commands.append((list(map(str, command)), environment))
        for task in ("worker-0", "worker-1"):  # slow at first: 3.2 s; then 32 images in 0.1 s
            times = [100, 102, 103, 103.1, 103.2, 103.3]
            rows = [run_files.push(time, step) for step, time in enumerate(times)]
            run_files.metrics(directory, task, *rows)

    module.drivers.run = run
    measured = {place: module.rate(*module.CASES[2], place, tmp_path) for place in module.PLACES}
    assert measured == pytest.approx({place: 5 * 32 / 0.2 for place in module.PLACES})
    steps = [command[command.index("--steps") + 1] for command, _ in commands]
    assert steps == ["300", "40"]
    hidden = [environment.get("CUDA_VISIBLE_DEVICES") for _, environment in commands]
    assert hidden == [None, "-1"]
    rates = {f"{t}; {p}; {place}": [] for t, p in module.CASES for place in module.PLACES}
    rates |= {f"{'; '.join(module.CASES[0])}; {place}": [3.0, 4] for place in module.PLACES}
    rates[f"{'; '.join(module.CASES[0])}; GPU"] = [6.0, 4]
    row = module.table({"rates": rates, "about": ""}).splitlines()[2]
    assert row.split(" | ")[-1] == "1.50 (1.00-2.00) |"


# Packing, Pipeline -------------------------------------------------------------------------------


def test_milliseconds_of_packing():
    """Both workers make a gradient in each step, and a bar is their number a second.

    Catches: the examples of one worker, one gradient a step, and a ratio to the first case.
    """
    module = load("Packing")

    def run(command, directory):
        directory.mkdir()
        (directory / "result.json").write_text('{"examples_per_second": 3200, "workers": 2}')

    module.drivers.run, given = run, []
    flags = types.SimpleNamespace(steps=5, batch_size=64)
    assert module.milliseconds(0, True, flags) == 40
    module.drivers.bars = lambda *values: given.append(values)
    times = {module.CASES[0][0]: [40, 20, 10, 50], module.CASES[-1][0]: [40.0]}
    module.draw(times, None, None)
    assert list(given[0][2].values()) == [[50, 100, 200, 40], [50]]
    assert given[0][4](50) == "50.0 (40.0 ms)"
    assert [row[1:] for row in cells(module.table_of(times))] == [
        ["30.0", "0.75"],
        ["40.0", "1.00"],
    ]


def test_the_updates_of_a_pipeline():
    """Those after the warm-up, in their order; medians, and the update that is nearest to them.

    Every second update has a timeline.

    Catches: an update of the warm-up, the least that is stored, another update than the
    nearest, and a bubble of M - 1.
    """
    module = load("Pipeline")

    def run(command, directory, **env):
        directory.mkdir()
        for step in range(2, 2 * (5 + 6) + 1, 2):
            (directory / f"timeline-{step}.json").write_text(str(step))

    module.drivers.run, module.read = run, lambda path: int(path.read_text())
    case = module.Case("a", "gpipe", 2, 4, False)
    assert module.measure(case, 6, 2) == [12, 14, 16, 18, 20, 22]
    Op, updates = module.Op, []
    for seconds, busy in ((4, 2), (2, 1), (3, 1.8), (10, 10)):  # of the second place half as much
        updates.append(
            [
                Op(0, "forward", 0, 0, busy),
                Op(1, "forward", 0, 0, busy / 2),
                Op(0, "update", None, seconds, seconds),
            ]
        )
        updates[-1] += [Op(1, "forward", n, 0, busy / 4) for n in range(1, len(updates))]
    line, nearest = module.summary(case, updates)
    assert line[:5] == [*case]
    assert [line[5], line[7]] == pytest.approx([3.5, np.median([0.625, 0.625, 0.55, 0.25])])
    assert line[6] == pytest.approx(
        [np.median([0.5, 0.5, 0.4, 0]), np.median([0.75, 0.75, 0.7, 0.5])]
    )
    assert line[8] == [1, 4]
    assert nearest is updates[0]
    rows = [
        ["", "gpipe", 1, 1, False, 0.1, [0], 0, [1]],
        ["", "1f1b", 2, 4, False, 0.08, [0.25, 0.5], 0.375, [2, 1]],
    ]
    (_, row) = cells(module.table_of({"table": rows}))
    assert row == ["1F1B", "2", "4", "80", "25% 50%", "38%", "20%", "2 1", "1.25"]


# Scale-Laboratory --------------------------------------------------------------------------------


def test_the_laboratory():
    """Rates of equal workers by hand; what a straggler, a slow link and a lost worker leave.

    Catches: another model or its seconds for two workers, updates for mini-batches, and a
    straggler or a slow link that costs nothing.
    """
    module = load("Scale-Laboratory")
    # 4 workers, a second, 4 MB at 2 MB/s: a ring takes 3 s, of which 2/3 s can hide.
    case = module.Case(4, 1.0, 4e6, 2e6, 0.0, shape=1e-6)
    usual = module.rates(case, 4)
    slow = {name: module.rates(case, 4, name) for name in (module.STRAGGLER, module.SLOW_LINK)}
    local, added, ps = "ring, 10 local steps", "ring, 1/100 of the bytes, added up", module.PS

    def near(what, value, *due):
        assert value == pytest.approx(due, rel=0.01), f"\n{what}: {value}, not {due}"

    near("rates, ring", usual["ring"], 4 / 4, 4 / (1 + 3 - 2 / 3))
    near("rates, local", usual[local], 40 / 13, 40 / (10 + 3 - 2 / 3))
    near("rates, added up", usual[added], 4 / 1.03, 4 / 1)
    near("rates, gathered", usual["1/100 of the bytes, gathered"], 4 / 1.06, 4 / 1)
    near("rates, ps", usual[ps], 4 / (1 + 2 * 4 * 2), 1 / 2)
    near("rates, synchronous", usual["ps, synchronous"], 4 / 17, 4 / 11)
    near("straggler, ring", slow[module.STRAGGLER]["ring"], 4 / 8, 4 / (5 + 3 - 2 / 3))
    near("straggler, ps", slow[module.STRAGGLER][ps], 4 / 17, 1 / 2)
    near("link, ring", slow[module.SLOW_LINK]["ring"], 4 / 31, 4 / (31 - 2 / 3))
    near("link, synchronous", slow[module.SLOW_LINK]["ps, synchronous"], 4 / 53, 4 / 47)
    for name, due in (("ring", 0), (ps, 3 / 4), ("ps, at most 4 ahead", 0.02), ("gossip", 3 / 4)):
        value = module.left_of(name, 4, 1e-6)
        assert value == pytest.approx(due, abs=0.02), f"\nlost, {name}: {value}"
    laptop, layers = module.cases()["a laptop, 2 cores"], load("Benchmarks").MODELS["wide"][0]
    rates = json.loads((MEASUREMENTS / "Benchmarks" / "results.json").read_text())
    near(
        "laptop, seconds",
        (laptop.c,),
        1 / statistics.median(rates["Non-Distributed-Setup"]["wide"]),
    )
    near("laptop, bytes", (laptop.S,), 4 * sum((i + 1) * o for i, o in zip(layers, layers[1:])))
    curve = [[2, 0.8, 1.2], [4, 1.0, 2.0]]
    points = [(0.5, "measured", 2), (2.03, "published", 4)]
    labels = [module.known([(n, value, source)], curve) for value, source, n in points]
    due = ["measured 0.5 at 2: outside 0.8-1.2", "published 2.03 at 4: inside"]
    assert [*labels, module.known([], curve)] == [*due, "assumed"]
    for name, of in module.planned().items():
        error = of["planned"][1] / of["measured"] - 1
        assert abs(error) < 0.12, f"\nplanned, {name}: {error:+.1%}"
        if of["staleness"][0]:
            value, due = of["staleness"][::-1]
            assert value == pytest.approx(due, rel=0.05), f"\nplanned, {name}: {value}, not {due}"


def same(path, value, due):
    """Asserts that a value is what JSON has of it; losses of another machine may differ a bit."""
    if isinstance(due, dict):
        assert list(value) == list(due), path
        value, due = list(value.values()), list(due.values())
    if isinstance(due, list):
        assert len(value) == len(due), path
        for number, (part, other) in enumerate(zip(value, due)):
            same(f"{path}, {number}", part, other)
    elif isinstance(due, float):
        assert value == pytest.approx(due, rel=0.001, abs=1e-9), path
    else:
        assert value == due, path


LABORATORY = committed("Scale-Laboratory")


@pytest.mark.parametrize("name", LABORATORY["cases"])
def test_the_laboratory_simulates_what_is_committed(name):
    """Of 4,096 GPUs a few numbers of workers: of less than a machine, a machine, and some.

    Catches: another cluster, cost or law of times than that of the page's table and pictures.
    """
    module = load("Scale-Laboratory")
    assert list(module.cases()) == list(LABORATORY["cases"])
    case, due = module.cases()[name], LABORATORY["cases"][name]
    if case.n < 1000:
        same(name, module.simulate(case), due)
        return
    assert [case.n, *due["curves"]["ring"][-1][:1]] == [4096, 4096]
    for n in (2, 8, 16):
        for scheme, rates in module.rates(case, n).items():
            known = [row[1:] for row in due["curves"][scheme] if row[0] == n]
            same(f"{name}, {scheme}", [[rate * case.c for rate in rates]], known)
    left = {scheme: module.left_of(scheme, 64, case.shape) for scheme in due["left"]}
    same(f"{name}, lost", left, {scheme: of["one is lost"] for scheme, of in due["left"].items()})
    module.rates = lambda case, n, trouble=None: {"ring": (n / case.c,) * 2}
    module.left_of = lambda name, n, shape: n
    few = module.simulate(case)
    same(f"{name}, first", few["first"], due["first"])
    assert [n for n, *_ in few["curves"]["ring"]] == [2**i for i in range(1, 13)]
    assert few["left"] == {"ring": {"a straggler": 1, "a slow link": 1, "one is lost": 64}}


@pytest.mark.parametrize("n", [8, 100])
def test_the_laboratory_learns_what_is_committed(n):
    """Catches: other data, schemes, rates or moments than those of the table; a seed that counts
    twice."""
    module = load("Scale-Laboratory")
    module.SIZES, due = (n,), LABORATORY["learning"][f"{n} workers"]
    if n > 8:  # it takes long: the first seed only
        module.SEEDS = 1
    found = module.learn_all(json.loads(module.RATES.read_text()))[f"{n} workers"]
    assert list(found) == list(due)
    for name, of in due.items():
        assert found[name]["lr"] == of["lr"] and of["lr"] in module.GRID
        assert found[name]["last"] == pytest.approx(of["last"][: module.SEEDS], rel=0.02), name
        if n == 8:
            assert found[name]["median"] == pytest.approx(of["median"], rel=0.02, abs=2e-4), name
    if "own w" in due["gossip"]:
        own = due["gossip"]["own w"][: module.SEEDS]
        assert found["gossip"]["own w"] == pytest.approx(own, rel=0.02)
    assert module.GRID[0] == 45 and 0 < module.GRID[-1] < 2e-4
    steps = [one / two for one, two in zip(module.GRID, module.GRID[1:])]
    assert steps == pytest.approx([1 / 0.45] * 16, rel=0.01)


def test_the_laboratory_knows_what_is_committed():
    """Catches: runs with two workers that are read otherwise, and published points that fit
    another law."""
    module = load("Scale-Laboratory")
    same("planned", module.planned(), LABORATORY["planned"])
    assert module.trusted() == LABORATORY["trusted"]
    curve = [[2, 1.0, 2.0], [4, 2.0, 4.0]]
    two = [(2, 0.981, "a"), (4, 4.09, "b")]
    assert module.known(two, curve) == "b 4.09 at 4: outside 2-4"
    assert module.known(two[:1], curve) == "a 0.981 at 2: inside"
    edges = {0.979: "out", 2.039: "in", 2.041: "out"}
    for value, word in edges.items():
        assert f": {word}side" in module.known([(2, value, "a")], curve)


def test_how_published_points_fit(tmp_path):
    """Points made by hand, just inside and just outside of each range.

    Catches: a point that fits although it does not, a fit with the points that it comes from, and
    the smallest error for the worst.
    """
    module = load("Scale-Laboratory")
    # A second each, of which 0.602 s are messages: from 1 / 1.602 to 1, and 2 points allowed.
    usual = {"by": "ring", "n": 2, "c": 1, "megabytes": 75.25, "gigabits": 1}
    shares = [0.605, 0.604, 1.019, 1.021, 0.8, 0.7721, 0.7719]
    efficiencies = [{**usual, "case": f"x {share}", "efficiency": share} for share in shares]
    # Of two ps each has half: 4 * 1 s.
    ps = {"case": "x ps", "by": "ps_together", "n": 4, "c": 4, "P": 2, "efficiency": 0.51}
    efficiencies += [{**ps, "megabytes": 125, "gigabits": 1}]
    efficiencies += [{**usual, "case": "x 128 GPUs", "efficiency": 0.1}]
    names = "compute", "communication", "T", "seconds"
    steps = [dict(zip(names, values)) for values in ((1, 2, 4, 1.25), (1, 2, 1, 4))]
    servers = [
        {"n": n, "c": 1, "megabytes": 125, "gigabits": 1, "P": 4, "times_one_gpu": times}
        for n, times in ((2, 0.4), (8, 0.5))
    ]
    points_ = {"efficiencies": efficiencies, "steps": steps, "servers": servers}
    (tmp_path / "published.json").write_text(json.dumps(points_))
    module.FOLDER = tmp_path
    fitted = 1 / (1.065 + 0.28 * 0.602)
    errors = [abs(fitted / share - 1) for share in shares] + [4 / (4.26 + 1.12) / 0.51 - 1]
    assert module.trusted() == {
        "9 efficiencies, none to full overlap": "6 inside, 2 points allowed; "
        "the range is 38 points wide in the median",
        "8 of them, by the two fitted numbers": f"median error {statistics.median(errors):.1%}, "
        f"2 within 5%, worst +{errors[-1]:.0%}: x ps",
        "2 steps with local steps or one peer": "errors +20%, -25%",
        "2 speed-ups with four ps": "simulated to published 2.0, 4.0",
    }


def test_rates_are_tuned_by_the_worst_end():
    """The largest loss behind three quarters of the time decides, with a seed that is not shown.

    Catches: the last loss, the largest of all, a rate at which it is no number, and another seed.
    """
    module, calls = load("Scale-Laboratory"), []
    ends = {8.0: [9, 9, 1, math.inf], 4.0: [9, 9, 3, 1], 2.0: [9, 9, 2, 2], 1.0: [0, 0, 2.5, 0]}

    def learners(n, seed):
        calls.append((n, seed))
        return {"a": lambda lr: (list(zip((0, 30, 30.5, 40), ends[lr])), None)}

    module.GRID, module.learners = list(ends), learners
    assert module.tuned(7) == {"a": 2.0}
    assert calls == [(7, 0)]


def test_a_case_of_ones_own(tmp_path, monkeypatch):
    """Each flag alone or all together; what is not given is as the help says. Then it is written.

    Catches: bits for bytes, a flag in another's place, a limit that does not hold, and results
    that are simulated although only one case was asked for.
    """
    module = load("Scale-Laboratory")

    def case(*words):
        monkeypatch.setattr(sys, "argv", ["a script", *words])
        return module.parsed().case

    assert case() is None and case("--tune") is None
    usual = (64, 0.26, 4 * 25.6e6, 1.25e9, 5e-5, 1, 1e10, math.inf, 0.1, ())
    assert case("--workers", "64") == usual
    for flag, value, place, due in (
        ("--workers", "4096", 0, 4096),
        ("--parameters", "1e6", 2, 4e6),
        ("--compute", "0.5", 1, 0.5),
        ("--variation", "0.5", 8, 0.5),
        ("--latency", "0.1", 4, 0.1),
        ("--inside", "8", 5, 8),
    ):
        assert case(flag, value) == (*usual[:place], due, *usual[place + 1 :]), flag
    assert case("--gigabits", "8")[3:7] == (1e9, 5e-5, 1, 8e9)
    for wrong in ("4097", "0"):
        with pytest.raises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            case("--workers", wrong)
    simulated, drawn = [], []
    module.simulate = lambda one: simulated.append(one.n) or {"of": [one.n, np.float64(0.5)]}
    module.table_of, module.draw = (lambda results: "a table"), lambda *given: drawn.append(given)
    module.drivers.output_directory = lambda name: tmp_path
    monkeypatch.setattr(sys, "argv", ["a script", "--workers", "8"])
    module.main()
    assert simulated == [8]
    text = (tmp_path / "results.json").read_text()
    # The numbers of a list share a line.
    assert text == '{\n "cases": {\n  "your case, 8 workers": {\n   "of": [ 8, 0.5 ]\n  }\n }\n}\n'
    ((known, path, source),) = drawn
    assert list(known["cases"]) == ["your case, 8 workers"]
    assert (path, source) == (tmp_path / "scale-laboratory.png", tmp_path / "results.json")
    lines = (tmp_path / "table.txt").read_text().splitlines()
    assert lines == ["a table", "simulated, not measured; loss: median (range) of 5 seeds"]
    module.RATES, module.tuned = tmp_path / "rates.json", lambda n: {"a": n}
    module.learn_all, module.planned, module.trusted = (lambda rates: rates), dict, dict
    monkeypatch.setattr(sys, "argv", ["a script", "--tune"])
    module.main()
    assert list(drawn[-1][0]["cases"]) == list(LABORATORY["cases"])
    assert drawn[-1][0]["learning"] == {"8": {"a": 8}, "100": {"a": 100}, "1000": {"a": 1000}}
    assert "planned" in drawn[-1][0] and "trusted" in drawn[-1][0]


# Compression, Scaling, Slow-Network, Staleness ---------------------------------------------------


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

    return types.SimpleNamespace(train=train, window=None, started=None)


def test_the_bytes_of_compression():
    """The first run also counts them with 4 and 8 workers; half of what a row says is sent.

    Catches: bytes that are received, those of two workers for four, the last loss for a mean,
    and labels that are swapped.
    """
    module, calls = load("Compression"), []
    module.forked = trained(calls)
    module.facts = lambda ended, place: {"kilobytes": {}}
    module.drivers.pushes = lambda place: [{"bytes": 2000 * int(place.name)}, {"bytes": 0}]
    flags, case = types.SimpleNamespace(updates=70), ("", "Ring-AllReduce", ["--a", 1], True)
    counted = [module.measure(case, repeat, flags)["kilobytes"] for repeat in (0, 1)]
    assert counted == [{"4": 2.0, "8": 4.0}, {}]
    started = [(jobs["worker"], row["--steps"], row["--seed"], row["--a"]) for jobs, row in calls]
    assert started == [(2, 70, 0, 1), (4, 20, 0, 1), (8, 20, 0, 1), (2, 70, 1, 1)]
    losses = [{"losses": [9] * 18 + [3, 1]}, {"losses": [5, 4]}]
    assert [module.last_losses(run) for run in losses] == [2, 4]
    drawn = figures(module)
    runs = [{"updates": [1, 2], "losses": [n, n + 1]} for n in (1, 5)]
    module.draw({"sign: x": runs, "sign, without e: x": runs[:1], "none: x": runs[1:]}, None, None)
    lines = [(line.get_label(), points(line)) for line in drawn[0].axes[0].lines]
    assert lines == [
        ("no compressor", [(1, 5), (2, 6)]),
        ("with its error e", [(1, 1), (2, 2)]),
        ("with its error e", [(1, 5), (2, 6)]),
        ("without e", [(1, 1), (2, 2)]),
    ]


def test_the_runs_of_scaling():
    """Updates for as many mini-batches: of 8 workers together, but for a backup, with T steps.

    Catches: mini-batches of one worker, a backup worker that counts, steps for mini-batches,
    and delays in an update's own time.
    """
    module, calls = load("Scaling"), []
    module.forked, module.facts = trained(calls), lambda *words: {"words": words[:3]}

    def steps(name, n, delay, batches=1000):
        result = module.measure(("", name, n, delay, 0.1), 2, batches)
        return calls[-1][1]["--steps"], result["batches"]

    due = {"HogWild": 1000, "DOWNPOUR-Easy": 100, "Synchronous-SGD": 125, "DynSGD": 1000}
    due |= {module.BACKUP: 142, "SAGN": 12, "Ring-AllReduce": 125}
    for name, number in due.items():
        assert steps(name, 8, "exponential") == (number, 1000), name
    assert steps("Synchronous-SGD", 8, "exponential", 80) == (20, 80)
    # Alone: 10 s of 1 / 70 ms; eight together, one of whom takes 0.35 s: 8 / 0.35 of these.
    assert steps("HogWild", 1, "constant")[1] == 142
    assert steps("Synchronous-SGD", 8, "one slow")[1] == 228
    assert steps("HogWild", 8, "one slow")[1] == 1000
    jobs, row = calls[0]
    assert (jobs, row["--seed"]) == ({"ps": 1, "worker": 8}, 2)
    assert ["--backup-workers" in row for _, row in calls[:7]] == [
        name == module.BACKUP for name in due
    ]
    runs = [{"batches_per_second": rate} for rate in (12.0, 10.0, 12.5, 20.0)]
    own = module.own_seconds({"1 worker, constant: HogWild": runs})
    assert [own, module.own_seconds({})] == pytest.approx([1 / 12.25 - 0.07, 0])
    lost = [{"test_loss": loss} for loss in (0.5, None, 0.25, None, 0.3, 0.1)]
    assert module.losses(lost) == "0.275 (0.100-0.500) 2 diverged"
    needed = [module.needed(name, 8) for name in due]
    assert needed == [1, 1, 8, 1, 7, 8, 8]


def test_the_runs_of_a_slow_network(tmp_path):
    """Updates for as many mini-batches; a link's rate in bytes; sent and received.

    Catches: asynchronous workers counted together, a mean of links for the fullest, the ps
    among the workers, and packets for bytes.
    """
    module, calls = load("Slow-Network"), []
    module.forked, module.hosts = trained(calls), mock.MagicMock()
    module.facts = lambda ended, samples, place, batches, rate: (batches, rate)
    programs = {}
    for name in (
        "HogWild",
        "Synchronous-SGD",
        "DOWNPOUR-Easy, T = 50",
        "SAGN, T = 10, lr 0.5",
        "Ring-AllReduce, 4 workers",
    ):
        batches_each, rate = module.measure([1] * 6, ("", name, module.SMALL, 100, 2000), 1)
        programs[name] = batches_each, rate, calls[-1][1]["--steps"], calls[-1][0]
    two = {"ps": 1, "worker": 2}
    assert list(programs.values()) == [
        (1, 100, 2000, two),
        (2, 100, 1000, two),
        (50, 100, 40, two),
        (20, 100, 100, two),
        (4, 100, 500, {"worker": 4}),
    ]
    assert module.hosts.limit.call_args.args == (6, 100)
    runs = [
        {"links": [a, b, c]}
        for a, b, c in ((0.5, 0.25, 0.75), (0.75, 0.5, 0.25), (0.25, 0.125, 0.375), (0.5, 1, 0))
    ]
    assert [module.full(runs, 1), module.full(runs, 0), module.full(runs, 2)] == [
        ["50%", "62%"],
        ["", "75%"],
        ["62%", "31%"],
    ]
    own = load("Measurements/Slow-Network/hosts.py")
    commands = []
    own.run = lambda *line: commands.extend(line)
    own.limit(1, 1000)
    assert [line.partition("root ")[2] for line in commands] == [
        "tbf rate 1000mbit burst 125000 latency 300ms"
    ] * 2
    assert [line.split()[:6] for line in commands] == [
        "tc qdisc replace dev link0 root".split(),
        "tc -n host0 qdisc replace dev".split(),
    ]
    (tmp_path / "dev").write_text(
        "a\nb\n link1: 9 9 9 9 9 9 9 9 9 9\n link0: 10 1 2 3 4 5 6 7 80 1 2\n"
    )
    own.pathlib = types.SimpleNamespace(Path=lambda path: tmp_path / "dev")
    assert own.moved(0) == (10, 80)


def test_the_runs_of_staleness():
    """N comes with an outer rate at which w moves as far; a warm start has a quarter of all.

    Catches: an outer rate that does not grow with N, half of the pushes, and a median of the
    runs that came.
    """
    module, calls, warm = load("Staleness"), [], []
    module.forked = trained(calls)
    module.RunData = types.SimpleNamespace(read=lambda place: None)
    module.facts = lambda ended, samples, run, quarter: warm.append(quarter)
    flags = types.SimpleNamespace(updates=1000, pushes=400, rate=0.1, move=0.125, every=20)
    cases = {case.name.partition(":")[0]: case for case in module.all_cases()}
    for name in (
        "at most 5 ahead",
        "no bound",
        "lambda = 0.04",
        "N = 4",
        "N = 8, warm start",
        "no momentum",
    ):
        module.measure(cases[name], 1, flags)
    rows = [row for _, row in calls]
    assert [row["--steps"] for row in rows] == [1000, 1000, 1000, 400, 100, 400, 400]
    assert warm == [0, 0, 0, 0, 100, 0]
    assert [row.get("--max-lead") for row in rows[:3]] == [5, None, None]
    assert [row.get("--compensation") for row in rows[:3]] == [None, None, 0.04]
    momentum = [
        (row["--momentum-delay"], row["--outer-rate"], row["--outer-momentum"]) for row in rows[3:]
    ]
    assert momentum == [(4, 0.5, 0.9), (8, 1, 1e-30), (8, 1, 0.9), (1, 0.125, 1e-30)]
    assert calls[0][0] == {"ps": 1, "worker": 8}
    runs = [{"x": x} for x in (3, None, 1, 2, 8)]
    assert module.some(runs, "x", "{:.1f}") == "2.5 (1.0-8.0) 1 of 5 never"
    drawn = figures(module)
    results = {
        f"at most {n} ahead: x": [{"updates_to": n * x, "idle": 1 / n / x} for x in (1, 3, 8, 4)]
        for n in (1, 5)
    }
    results["N = 2: x"] = [{"test_loss": x} for x in (0.5, None, 0.25)]
    results["no momentum: x"] = [{"test_loss": x} for x in (1, 3, 8)]
    module.draw(results, None, None)
    goal, share, loss = (axes.lines for axes in drawn[0].axes)
    assert points(goal[2]) == [(1, 3.5), (5, 17.5)]
    assert points(goal[0]) == [(1, 1), (1, 3), (1, 8), (1, 4)]
    assert points(share[2]) == [(1, pytest.approx(7 / 24)), (5, pytest.approx(7 / 120))]
    assert points(loss[0]) + points(loss[2]) == [(2, 0.5), (2, 0.25), (2, 0.5)]
    assert (loss[1].get_marker(), points(loss[1])) == ("x", [(2, 1)])
    (never,) = drawn[0].axes[2].texts
    assert (never.get_text(), never.get_position()) == ("1 never", (2, 0.96))
    for top in loss[1], never:
        assert top.get_transform() == drawn[0].axes[2].get_xaxis_transform()
        assert not top.get_clip_on()
    none = next(line for line in loss if line.get_label() == "no momentum")
    assert points(none)[0] == (0, 3)


def test_each_run_of_scaling():
    """What a case's name says, in what its script is given: of all cases.

    Catches: the delay, rate or workers of another case, steps alone where the example has none,
    and several updates in a call.
    """
    module, calls = load("Scaling"), Calls()
    module.forked, module.facts = trained(calls), lambda *words: {}
    module.law = lambda *case: 50.0
    for case in module.all_cases():
        cluster, _, name = case[0].partition(": ")
        words = cluster.split(", ")
        n = int(words[0].split()[0])
        assert words[0] == (f"{n} workers" if n > 1 else "1 worker")
        lr = float(words[2].removeprefix("lr ")) if len(words) > 2 else 0.1
        assert case[1:] == (name, n, words[1], lr)
        module.measure(case, 4, 1000)
        jobs, row = calls[-1]
        ring, optimizer = name == "Ring-AllReduce", "the optimizer" in name
        assert jobs == ({"worker": n} if ring else {"ps": 1, "worker": n})
        alone = name in ("DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "SAGN")
        due = {"--seed": 4, "--learning-rate": lr}
        due |= {"--local-steps": 10 if alone else 1} if alone or name == "DynSGD" else {}
        due |= {"--backup-workers": 1} if name.endswith("a backup") else {}
        due |= {} if ring or optimizer else {"--updates-per-call": "1"}
        assert {flag: value for flag, value in row.items() if flag != "--steps"} == due, case[0]
        text = calls.texts[-1]
        assert f"delays.late(outputs, {words[1]!r}, 0.07, {n}, 5)" in text
        whole = (n, words[1]) == (8, "exponential") or (n > 3 and module.needed(name, n) == 1)
        batches = 1000 if whole else 500
        each = (10 if alone else 1) * module.needed(name, n)
        assert row["--steps"] == max(8 if name == "SAGN" else 20, batches // each)
    module.law = lambda *case: 3.0 if "backup" not in case[0] else None
    few = [module.batches_of(("", name, 4, "one slow", 0.1), 1000) for name in module.TOGETHER]
    assert few == [30, 30, 30]
    assert module.batches_of(("", module.OPTIMIZER_BACKUP, 4, "one slow", 0.1), 1000) == 428
    assert module.batches_of(("", "HogWild", 3, "one slow", 0.1), 1000) == 30
    assert module.batches_of(("", "HogWild", 4, "one slow", 0.1), 1000) == 1000
    assert module.batches_of(("", "Synchronous-SGD", 8, "exponential", 0.1), 1000) == 1000
    assert module.batches_of(("", "Synchronous-SGD", 8, "constant", 0.1), 5) == 0


def test_each_run_of_a_slow_network():
    """What a program's name says, in what its script is given, and the rate of all links.

    Catches: a ps too many, steps of another T, a flag of another case, and a model or a latency
    that its name does not say.
    """
    module, calls = load("Slow-Network"), Calls()
    module.forked, module.hosts = trained(calls), mock.MagicMock()
    module.facts = lambda ended, samples, place, batches, rate: (batches, rate)
    module.hosts.moved = lambda k: (10 * k, 10 * k + 1)
    batches = {("69 KB", 100): 1000, ("8.7 MB", 100): 16, ("7.5 MB", 100): 40}
    batches |= {("69 KB", 1000): 3000, ("8.7 MB", 1000): 60}
    texts = {
        "69 KB": 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),',
        "8.7 MB": 'keras.layers.Dense(1024, "relu") for _ in range(3)',
        "7.5 MB": 'keras.layers.Dense(512, "relu") for _ in range(8)',
    }
    together = ("Synchronous-SGD", "SAGN", "Ring-AllReduce", "Collective-AllReduce", "Compressed")
    for case in module.all_cases():
        where, _, name = case[0].partition(": ")
        model, link = where.removesuffix(" Mbit/s").split(", ")
        T = int(name.partition("T = ")[2].partition(",")[0] or 1)
        n, ps = (4 if "4 workers" in name else 2), 0 if "AllReduce" in name else 1
        ps += "2 ps" in name
        due = {"--seed": 3, **({"--local-steps": T} if T > 1 else {})}
        for words, flags in (
            ("lr 0.5", {"--learning-rate": 0.5}),
            ("lr 1", {"--learning-rate": 1}),
            ("alpha 0.45", {"--rho": pytest.approx(0.45 / 0.1)}),
            ("batches of 8192", {"--batch-size": 8192, "--steps-per-call": 1}),
            ("4 buckets", {"--buckets": 4}),
            ("not packed", {"--bytes-per-pack": 1}),
            ("rank 1", {"--rank": 1}),
            ("top 1%", {"--compress": "top-k", "--top": 0.01}),
            (", sign", {"--compress": "sign"}),
        ):
            due |= flags if name.endswith(words) or f"{words}, " in name else {}
        own = 120 if T == 1 and "Compressed" not in name else 2000
        total = 800 if "later" in name else batches.get((model, int(link)), own)
        a_step = T * (n if name.startswith(together) else 1)
        assert case[1:] == (name, model, int(link), total), case[0]
        assert module.measure([0] * 6, case, 3) == (a_step, int(link)), case[0]
        jobs, row = calls[-1]
        assert jobs == {**({"ps": ps} if ps else {}), "worker": n}, case[0]
        assert row == {"--steps": max(10, total // a_step), **due}, case[0]
        assert module.hosts.limit.call_args.args == (6, int(link))
        text = calls.texts[-1]
        assert [words in text for words in texts.values()] == [words == model for words in texts]
        # The text of a folder without hidden layers of its own: each replaced one stands once.
        assert ("tf.numpy_function(lambda x: time.sleep(seconds)" in text) == ("later" in name)
        assert text.count("delayed(ready, 0.02)") >= ("later" in name)
        assert ("tf.float16" in text) == ("float16" in name)
        look, hosts = calls.more[-1]
        assert look() == [number for k in range(ps + n) for number in (10 * k, 10 * k + 1)]
        assert hosts == [0] * 6


def test_each_run_of_staleness():
    """What a case's name says, in what its script is given.

    Catches: a delay of a slow worker elsewhere, seconds of another part, and a run whose tests are
    too far apart.
    """
    module, calls = load("Staleness"), Calls()
    module.forked = trained(calls)
    module.RunData = types.SimpleNamespace(read=lambda place: None)
    module.facts = lambda ended, samples, run, quarter: quarter
    flags = types.SimpleNamespace(updates=1000, pushes=400, rate=0.3, move=0.125, every=7)
    for case in module.all_cases():
        name, momentum = case.name.partition(":")[0], "Async-Local-SGD" in case.script
        del calls[:], calls.texts[:]
        assert module.measure(case, 2, flags) == (100 if "warm" in name else 0)
        for (jobs, row), text in zip(calls, calls.texts, strict=True):
            assert jobs == {"ps": 1, "worker": 8}
            assert [row["--seed"], row["--checkpoint-steps"]] == [2, 7]
            assert row["--updates-per-call"] == "1"
            assert row.get("--learning-rate") == (None if momentum else 0.3)
            assert row.get("--local-steps") == (10 if momentum else None)
            delay = "one slow" if name.startswith("one slow") else "exponential"
            seconds = 0.02 if momentum else 0.04
            assert f"delays.late(outputs, {delay!r}, {seconds}, 8, 3)" in text
    names = {case.name: case.value for case in module.all_cases()}
    for name, value in names.items():
        known = [
            word for word in name.partition(":")[0].replace(",", "").split() if word[0].isdigit()
        ]
        assert [float(word) for word in known] == (
            [] if value is None or "no " in name else [value]
        )


def test_each_run_of_compression():
    """Catches: a flag of another compressor, and e where the name says without."""
    module, calls = load("Compression"), []
    module.forked = trained(calls)
    module.facts, module.drivers.pushes = (
        (lambda *given: {"kilobytes": {}}),
        lambda place: [{"bytes": 1}],
    )
    due = {"none": {}, "PowerSGD, rank 1": {"--rank": 1}, "PowerSGD, rank 4": {"--rank": 4}}
    due |= {f"top {x}%": {"--compress": "top-k", "--top": x / 100} for x in (1, 0.1)}
    due |= {"sign": {"--compress": "sign"}, "QSGD": {"--compress": "qsgd"}}
    flags = types.SimpleNamespace(updates=70)
    for case in module.all_cases():
        name = case[0].partition(": ")[0]
        without = name.endswith(", without e")
        del calls[:]
        module.measure(case, 0, flags)
        assert len(calls) == (1 if without else 3)
        for number, (_, row) in enumerate(calls):
            more = {"--forget-error": 1} if without else {}
            own = {"--steps": 20 if number else 70, "--seed": 0}
            assert row == {**own, **due[name.removesuffix(", without e")], **more}


class Orders:
    """Stands for a process's end of a pipe: gives these orders, and keeps the answers."""

    def __init__(self, *orders):
        self.orders, self.answers = list(orders), []
        self.send = self.answers.append

    def recv(self):
        if not self.orders:
            raise EOFError
        return self.orders.pop(0)


def obey(target, *arguments, orders):
    """Runs the target of a process until it has no orders; returns what it answered."""
    orders = Orders(*orders)
    with mock.patch.dict("os.environ"), contextlib.suppress(EOFError):
        target(*arguments, orders)
    return orders.answers


def test_what_an_all_reduce_costs():
    """A process's own seconds, processor seconds and waits, of one of its all-reduces.

    Catches: the first call that counts, the cost of all calls for one, and a wrong sum that passes.
    """
    module, calls = load("Ring-Bandwidth"), []
    module.time, used = Clock(), types.SimpleNamespace(ru_utime=5.0, ru_stime=7.0, ru_nvcsw=11)
    module.resource = types.SimpleNamespace(
        RUSAGE_SELF=0, getrusage=lambda who: types.SimpleNamespace(**vars(used))
    )
    module.drivers.end_with_us = lambda: None
    module.drivers.end_with_parent = lambda: None

    def work(seconds):
        module.time.tick(seconds)
        used.ru_utime, used.ru_stime = used.ru_utime + seconds / 4, used.ru_stime + seconds / 8
        used.ru_nvcsw += 3

    ring = types.SimpleNamespace(sent=100)

    def all_reduce(x, ring):
        calls.append((x.copy(), x.dtype))
        work(100 if len(calls) == 1 else 2)
        ring.sent += 1000 if len(calls) == 1 else 40
        x[:] = 6 if not x.size or x[0] == 2 else 5

    joined = []
    script = types.SimpleNamespace(
        Ring=lambda cluster, seconds: ring,
        Cluster=lambda: joined.append(json.loads(module.os.environ["TF_CONFIG"])),
        join=lambda *given: joined.append(given),
        all_reduce=all_reduce,
    )
    cost = {"seconds": 2, "processor": 0.75, "waits": 3}
    answers = obey(module.worker, script, 3, 1, ["a:1", "b:2"], orders=[(8, 4), (0, 2)])
    assert answers == [(cost, 40, True), (cost, 40, True)]
    task = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    assert joined == [task, (ring, "bandwidth")]
    assert [len(x) for x, _ in calls] == [2] * 5 + [0] * 3
    assert calls[0][0].tolist() == [2, 2] and calls[1][0].tolist() == [0, 0]
    assert {kind for _, kind in calls} == {np.dtype("float32")}
    wrong = obey(module.worker, script, 3, 0, [], orders=[(8, 1)])
    assert [right for _, _, right in wrong] == [False]


def test_the_ring_of_tensorflow():
    """The bytes that a ring of n sends, in one graph of so many all-reduces, by its own ring.

    Catches: bytes of all workers, a wrong sum that passes, and calls from Python that count.
    """
    import tensorflow as tf

    module, sums = load("Ring-Bandwidth"), []
    module.drivers.end_with_parent = lambda: None
    with mock.patch.object(tf, "distribute") as distribute:
        context = distribute.get_replica_context.return_value
        context.all_reduce = lambda kind, x, how: sums.append((kind, how)) or x * 2 + 2
        strategy = distribute.MultiWorkerMirroredStrategy.return_value
        strategy.run = lambda total, arguments: total(*arguments)
        orders = [(8, 3), (0, 2)]
        answers = obey(module.of_tensorflow, None, 3, 1, ["a:1"], orders=orders)
        wrong = obey(module.of_tensorflow, None, 3, 0, ["a:1"], orders=orders[:1])
        how = distribute.experimental.CommunicationOptions
        ring = distribute.experimental.CommunicationImplementation.RING
    assert [answer[1:] for answer in answers] == [(pytest.approx(2 * 2 / 3 * 8), True), (0, True)]
    assert all(answer[0]["seconds"] > 0 for answer in answers)
    assert not wrong[0][2]
    assert set(sums) == {("SUM", how.return_value)}
    assert all(call.kwargs == {"implementation": ring} for call in how.call_args_list)


def test_raw_tcp():
    """Through a socket of this machine: each byte arrives, and each vector is answered for.

    Catches: a vector that is cut, bytes of all vectors for one, and a receiver that takes any.
    """
    module, ends = load("Ring-Bandwidth"), []
    module.drivers.end_with_us = lambda: ends.append("each ends with this process")
    listener = module.socket.create_server(("127.0.0.1", 0))
    orders = [(300_000, 3), (0, 1), (1, 2)]
    with listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(obey, module.receiver, None, listener, orders=orders[::2])
        ours = obey(module.sender, None, listener.getsockname(), orders=orders[::2])
        taken = theirs.result(60)
    assert [answer[1:] for answer in ours] == [(300_000, True), (1, True)]
    assert [answer[1:] for answer in taken] == [(0, True), (0, True)]
    assert len(ends) == 2


def test_the_cost_of_the_slowest():
    """So many vectors at once as have 64 MB, at most 300; the process to which it costs most.

    Catches: the cost of the first process, a rate of the fastest, and an answer that is wrong or
    does not come and nobody says so.
    """
    module = load("Ring-Bandwidth")
    processes, sent = module.Processes.__new__(module.Processes), []

    def pipe(seconds, bytes_, right=True, there=True):
        cost = {"seconds": seconds, "waits": 1 / seconds}
        answer = cost, bytes_, right
        return types.SimpleNamespace(
            send=sent.append, poll=lambda limit: there and limit == 60, recv=lambda: answer
        )

    processes.pipes = [pipe(2, 100), pipe(4, 80)]
    assert processes.cost(10**6) == {"seconds": 4, "waits": 0.5, "rate": 25}
    for size in (8, 0, 10**8, 64 * 10**6 // 299):
        processes.cost(size)
    due = [(10**6, 64), (8, 300), (0, 300), (10**8, 1), (64 * 10**6 // 299, 299)]
    assert sent[::2] == sent[1::2] == due
    for broken, words in (
        (pipe(1, 1, right=False), "sum is wrong"),
        (pipe(1, 1, there=False), "60 s"),
    ):
        processes.pipes[1] = broken
        with pytest.raises(SystemExit, match=words):
            processes.cost(8)


# One-Step, Lines-Changed -------------------------------------------------------------------------


def step_of(w, x, y, lr):
    """Returns w after a step on these rows, by TensorFlow in double precision."""
    import tensorflow as tf

    variables = [tf.Variable(v) for v in w]
    with tf.GradientTape() as tape:
        h = tf.constant(x, tf.float64)
        for i in (0, 2):
            h = tf.nn.relu(h @ variables[i] + variables[i + 1])
        scores = h @ variables[4] + variables[5]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))
    return [v - lr * d.numpy() for v, d in zip(w, tape.gradient(loss, variables))]


def test_a_step_is_compared_with_that_on_the_union():
    """Three workers' mini-batches of their own rows, by TensorFlow; then one number of w is off.

    Catches: rows of another worker or step, another rate, the smallest difference, a parameter or a
    step that is not compared, and a run that lacks a checkpoint.
    """
    import tensorflow as tf

    module = load("One-Step")
    x, y = module.data()
    rows = digits()
    order = np.random.RandomState(0).permutation(1797)[:1437]
    np.testing.assert_allclose(x, rows[0][order])
    assert (y == rows[1][order]).all() and x.dtype == np.float32
    random, n = np.random.RandomState(1), 3
    shapes = [(64, 128), (128,), (128, 64), (64,), (64, 10), (10,)]
    w = {1: [random.normal(0, 0.1, shape) for shape in shapes]}
    for step in range(1, 5):
        batch = []
        for k in range(n):
            drawn = tf.random.stateless_uniform([32], [k, step], 0, 479, tf.int32).numpy()
            batch += (n * drawn + k).tolist()
        assert module.union(n, step, 1437).tolist() == batch
        w[step + 1] = step_of(w[step], x[batch], y[batch], 0.1)
    module.saved = lambda path: w
    apart, moved = module.compare("a path", n)
    due = max(np.abs(a - b).max() for step in range(1, 5) for a, b in zip(w[step], w[step + 1]))
    assert apart < 1e-12 and moved == pytest.approx(due)
    w[5][5] = w[5][5] + np.eye(10)[3] * 0.5
    assert module.compare("a path", n)[0] == pytest.approx(0.5)
    w[0] = w[1]
    assert module.compare("a path", n)[0] > 1e-4  # the step from 0 moves nothing
    del w[0]
    for missing in (2, 5):
        module.saved = lambda path, missing=missing: {n: w[n] for n in w if n != missing}
        with pytest.raises(AssertionError, match="a path: checkpoints"):
            module.compare("a path", n)


def test_the_parameters_of_a_checkpoint():
    """In the three forms in which examples save them: one vector, or variables of either API.

    Catches: layers in another order, single precision, and the step of another checkpoint.
    """
    module, suffix = load("One-Step"), "/.ATTRIBUTES/VARIABLE_VALUE"
    sizes = [64 * 128, 128, 128 * 64, 64, 64 * 10, 10]
    whole = np.arange(sum(sizes), dtype=np.float32)
    parts = [
        part.reshape(shape)
        for part, shape in zip(np.split(whole, np.cumsum(sizes)[:-1]), module.SHAPES)
    ]
    forms = [{"w": whole}, {f"w{suffix}": whole}]
    forms += [{f"w/{i}{suffix}": part for i, part in enumerate(parts)}]
    forms += [{f"w_{i}": part for i, part in enumerate(parts)}]
    checkpoints = {f"a/ckpt-{10 + n}": form for n, form in enumerate(forms)}

    def load_checkpoint(path):
        known = checkpoints[path]
        return types.SimpleNamespace(has_tensor=known.__contains__, get_tensor=known.__getitem__)

    state = types.SimpleNamespace(all_model_checkpoint_paths=list(checkpoints))
    train = types.SimpleNamespace(
        load_checkpoint=load_checkpoint, get_checkpoint_state=lambda directory: state
    )
    module.tf = types.SimpleNamespace(train=train)
    saved = module.saved("a")
    assert list(saved) == [10, 11, 12, 13]
    for found in saved.values():
        assert [part.dtype for part in found] == [np.float64] * 6
        for part, due in zip(found, parts, strict=True):
            np.testing.assert_array_equal(part, due)


def test_what_one_step_runs(tmp_path, monkeypatch):
    """The flags of each implementation, the table, and the exit code: one just outside a bound.

    Catches: a rate that is not divided, devices for workers, and a bound that anything keeps.
    """
    module, commands = load("One-Step"), []
    module.drivers.run = lambda command, folder, **env: commands.append(
        (" ".join(map(str, command)).removeprefix(f"bash {support.ROOT}/"), env)
    )
    module.compare = lambda directory, n: (n, directory)
    for _, *rest in module.IMPLEMENTATIONS:
        assert module.measure(3, *rest)[0] == 3
    common = "--steps 5 --checkpoint-steps 1 --batch-size 32 --seed 0 --learning-rate"
    once, gpus = "--steps-per-call 1", "Multiple-GPUs-Single-Machine"
    due = [
        f"Synchronous-SGD/run.sh {common} 0.1",
        f"From-TensorFlow-1/Synchronous-SGD-Optimizer/run.sh {common} 0.1",
        f"{gpus}/run.sh {once} --devices 3 {common} 0.1",
        f"{gpus}/run_mirrored.sh {once} --devices 3 {common} 0.1",
        f"Collective-AllReduce/run.sh {once} {common} 0.1",
        f"Ring-AllReduce/run.sh {once} {common} 0.1",
        f"Horovod-RingAllReduce/run.sh {once} {common} {0.1 / 3}",
    ]
    assert commands == [(command, {"WORKERS": "3", "PS": "1"}) for command in due]
    answers, hidden = {}, []
    module.measure = lambda n, launcher, *_: answers[launcher.split("/")[0]][n]
    module.tf = types.SimpleNamespace(
        __version__="2",
        config=types.SimpleNamespace(set_visible_devices=lambda *given: hidden.append(given)),
    )
    module.drivers.output_directory = lambda name: tmp_path / name
    (tmp_path / "One-Step").mkdir()

    def main(apart, moved):
        answers["Ring-AllReduce"] = {2: (1e-6, 1e-3), 3: (apart, moved)}
        words = ["--only", "Ring", "--workers", "2", "3", "2"]
        monkeypatch.setattr(sys, "argv", ["a script", *words])
        module.main()

    main(0.99e-6, 1.01e-3)
    table = (tmp_path / "One-Step" / "table.txt").read_text()
    rows = [line.split() for line in table.splitlines() if "Ring" in line]
    assert rows == [
        ["Ring-AllReduce", "2", "1.0e-06", "1.0e-03"],
        ["Ring-AllReduce", "3", "9.9e-07", "1.0e-03"],
    ]
    assert hidden == [([], "GPU")]
    for wrong in ((1.01e-6, 1), (0, 0.99e-3), (1, 0)):
        with pytest.raises(SystemExit, match="1 of 2 are further than 1e-06"):
            main(*wrong)
    monkeypatch.setattr(sys, "argv", ["a script"])
    module.measure = lambda n, *_: (0, n)
    module.main()
    rows = (tmp_path / "One-Step" / "table.txt").read_text()
    names = re.findall(r"^ (\S+) +([23]) +0.0e\+00 +([23]).0e\+00", rows, re.MULTILINE)
    assert names == [(name, n, n) for name, *_ in module.IMPLEMENTATIONS for n in "23"]
    page = (MEASUREMENTS / "One-Step" / "table.txt").read_text()
    assert re.findall(r"^ (\S+) +([23]) ", page, re.MULTILINE) == [of[:2] for of in names]
    heads = [re.search("^ implementation .*$", of, re.MULTILINE)[0].split() for of in (rows, page)]
    assert heads[0] == heads[1]


ONE = '''"""A docstring.

Of two lines.
"""

import a  # why
from b import c

x = "# no comment"  # but this is
# a line of its own
one(x)
two(x)

three(x)
'''


def test_the_lines_that_change(tmp_path):
    """Lines that say something, and which of them a second program adds, changes and takes away.

    Catches: comments and empty lines that count, a change that counts as two, and lines of the
    docstring.
    """
    module = load("Lines-Changed")
    module.PROGRAMS = tmp_path
    texts = {"one": ONE, "same": ONE.replace("  # why", "").replace("\n\nthree", "\nthree")}
    texts["more"] = ONE.replace("two(x)", "two(y)\nand(y)\nmore(y)")
    texts["less"] = ONE.replace("one(x)\ntwo(x)\n", "two(z)\n").replace("import a", "import d")
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    due = ["import a", "from b import c", 'x = "# no comment"', "one(x)", "two(x)", "three(x)"]
    assert module.lines_of("one") == due
    changes = [module.changed("one", name) for name in ("one", "same", "more", "less")]
    assert changes == [(0, 0, 0), (0, 0, 0), (2, 1, 0), (0, 2, 1)]
    assert module.changed("more", "one") == (0, 1, 2)


def test_the_programs_whose_lines_are_counted(tmp_path, monkeypatch):
    """Both programs of a way run; one just below the accuracy ends the measurement.

    Catches: a program that is counted although nobody ran it, another one's launcher, and a way
    whose package is missing.
    """
    module, commands = load("Lines-Changed"), []
    output = {"loop_ps": "accuracy 0.5\naccuracy 0.9", "fit_strategy": "accuracy 0.875"}

    def run(command, folder):
        commands.append(command)
        assert pathlib.Path(folder).is_dir()
        return output.get(pathlib.Path(command[-1]).stem, "accuracy 0.85 or so")

    module.drivers.run = run
    assert module.accuracy("loop", ["python"]) == 0.85
    assert commands == [["python", str(module.PROGRAMS / "loop.py")]]
    for wrong in ("accuracy 0.849", "no number", "accuracy 0.8\naccuracy 0.9"):
        output["loop"] = wrong
        with pytest.raises(SystemExit, match=r"loop.py ends with accuracy .*not 0.85"):
            module.accuracy("loop", ["python"])
    output["loop"] = "accuracy 0.9"
    output["loop_ps"] = "accuracy 0.95"
    module.drivers.output_directory = lambda name: tmp_path
    module.importlib = types.SimpleNamespace(
        util=types.SimpleNamespace(find_spec=lambda name: name != "torch"),
        metadata=types.SimpleNamespace(
            distributions=lambda: [
                types.SimpleNamespace(name=name, version=f"{n}.5")
                for n, name in enumerate(("Torch", "tensorflow_cpu", "other"))
            ]
        ),
    )
    assert module.versions() == ["tensorflow-cpu 1.5", "torch 0.5"]
    monkeypatch.setattr(sys, "argv", ["a script"])
    del commands[:]
    module.main()
    stems = [[*command[:-1], pathlib.Path(command[-1]).stem] for command in commands]
    horovod = "horovodrun --gloo -np 2 python loop_horovod".split()
    assert stems == [
        *(["python", "fit"], ["python", "fit_strategy"]),
        *(["python", "loop"], horovod),
        *(["python", "loop"], ["tfrun", "--workers", "2", "--", "loop_strategy"]),
        *(["python", "loop"], "tfrun --workers 2 --ps 1 -- loop_ps".split()),
    ]
    text = (tmp_path / "table.txt").read_text()
    page = (MEASUREMENTS / "Lines-Changed" / "table.txt").read_text()
    heads = [re.search("^ way .*$", of, re.MULTILINE)[0].split() for of in (text, page)]
    assert heads[0] == heads[1]
    form = re.compile(r"^ (\S.*?)  +(\d+) +(\d+) +(\d+) +(\d+) +(0\.\d\d)$", re.MULTILINE)
    found, due = ({row[0]: row[1:] for row in form.findall(of)} for of in (text, page))
    assert list(found) == [name for name in due if name != "PyTorch's DDP"] and len(due) == 5
    assert all(found[name][:4] == due[name][:4] for name in found)
    # The lines of PyTorch's programs, which no package is needed for.
    ddp = [len(module.lines_of("torch_loop")), *module.changed("torch_loop", "torch_ddp")]
    assert [str(number) for number in ddp] == list(due["PyTorch's DDP"][:4])
    assert (
        found["functions of a ps"][4] == "0.95" and found["fit with MirroredStrategy"][4] == "0.88"
    )
    assert "PyTorch's DDP is left out: there is no torch" in text
    assert "\nlines: of the program for one process; 2" in text and "torch 0.5" in text


# Pictures ----------------------------------------------------------------------------------------


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


def test_the_picture_of_scaling():
    """A dot is a run, a line the law; a run that diverged is a cross at the top, at its seconds.

    Catches: runs with another delay or learning rate, another number of workers, and the law
    without the seconds of one worker.
    """
    module, asked_for = load("Scaling"), []

    def law(name, n, delay, own):
        asked_for.append((name, delay, own))
        return 100 * n

    def run(rate, loss=None, seconds=0):
        return {"batches_per_second": rate, "test_loss": loss, "seconds": seconds}

    module.law, drawn = law, figures(module)
    results = {
        "1 worker, constant: HogWild": [run(10)],
        "1 worker, exponential: HogWild": [run(10), run(12)],
        "4 workers, exponential: HogWild": [run(40)],
        "4 workers, exponential, lr 0.5: HogWild": [run(41)],
        "4 workers, one slow: HogWild": [run(42)],
        "8 workers, exponential: Ring-AllReduce": [run(50, 0.5, 20), run(60, None, 30)],
        "8 workers, exponential: ADAG": [run(1, 0.25, 5), run(1, 0.125, 6)],
        "8 workers, exponential, lr 0.5: ADAG": [run(1, 0.75, 5)],
    }
    module.draw(results, None, None)
    rates, loss = drawn[0].axes
    assert lines_of(rates) == [
        (".", "", [(1, 10), (1, 12)]),
        (".", "", [(4, 40)]),
        ("None", "HogWild", [(1, 100), (4, 400)]),
        (".", "", [(8, 50), (8, 60)]),
        ("None", "Ring-AllReduce", [(8, 800)]),
    ]
    assert [line.get_linestyle() for line in rates.lines[2::2]] == ["-", "--"]
    assert asked_for == [
        (name, "exponential", pytest.approx(0.03))
        for name in ("HogWild", "HogWild", "Ring-AllReduce")
    ]
    assert lines_of(loss) == [
        ("o", "Ring-AllReduce", [(20, 0.5)]),
        ("x", "", [(30, 1)]),
        ("o", "ADAG", [(5, 0.25), (6, 0.125)]),
        ("None", "guessing", [(0, pytest.approx(2.302585)), (1, pytest.approx(2.302585))]),
    ]
    cross = loss.lines[1]
    assert cross.get_transform() == loss.get_xaxis_transform() and not cross.get_clip_on()
    assert list(rates.get_xticks()) == [1, 4, 8] and loss.get_yscale() == "log"
    assert legend_of(drawn[0]) == ["HogWild", "Ring-AllReduce", "ADAG", "guessing"]
    colours = {line.get_label(): line.get_color() for axes in (rates, loss) for line in axes.lines}
    assert rates.lines[4].get_color() == loss.lines[0].get_color() != colours["HogWild"]


def test_the_picture_of_a_ring(monkeypatch):
    """MB a second and the share of raw TCP, against the size of a vector in its unit.

    Catches: bytes for MB, the best repeat for the median, a ratio of medians, the share of one
    worker, and a size in another unit.
    """
    module = load("Ring-Bandwidth")
    drawn = figures(module)
    results = {
        f"{name}, {size} bytes": [{"rate": rate * 1e6 * n} for rate in rates]
        for n, size in enumerate((69_000, 8_700_000), 1)
        for name, rates in (("raw TCP", (1, 2, 8)), ("ring, 3 workers", (3, 1, 4)))
    }
    module.draw(results, None, None)
    one, together = drawn[0].axes
    raw = [("None", [(69e3, 2), (87e5, 4)])]
    raw += [(".", [(size, n * rate) for rate in (1, 2, 8)]) for n, size in ((1, 69e3), (2, 87e5))]
    ring = [("None", [(69e3, 3), (87e5, 6)])]
    ring += [(".", [(size, n * rate) for rate in (3, 1, 4)]) for n, size in ((1, 69e3), (2, 87e5))]
    assert [(marker, known) for marker, _, known in lines_of(one)] == raw + ring
    assert lines_of(together) == [
        ("o", "raw TCP", [(69e3, 1), (87e5, 1)]),
        ("o", "ring, 3 workers", [(69e3, 1.5), (87e5, 1.5)]),  # 3 * the median of 3, 1/2, 1/2
    ]
    assert [text.get_text() for text in together.get_xticklabels()] == ["69 KB", "8.7 MB"]
    assert [module.in_units(size) for size in (10**6, 999_000)] == ["1 MB", "999 KB"]
    assert one.get_yscale() == "log" and together.get_ylim()[0] == 0
    assert legend_of(drawn[0]) == ["raw TCP", "ring, 3 workers"]
    rates = {("ring, 4 workers", 8): [1, 2], ("raw TCP", 8): [2, 8]}
    assert module.share(rates, "ring, 4 workers", 8) == 1.5
    assert module.share(rates, "raw TCP", 8) == 1


def test_the_picture_of_a_slow_network():
    """Medians and runs of each program against the rate of the link, a picture for each model.

    Catches: rates of another model, the first run for the median, a link that one model was not
    measured with and nobody says so, and no bars where only the overlap was measured.
    """
    module = load("Slow-Network")
    drawn = figures(module)

    def runs(*rates):
        return [{"batches_per_second": rate} for rate in rates]

    results = {
        "69 KB, 10 Mbit/s: HogWild": runs(3, 1, 2, 8),
        "69 KB, 100 Mbit/s: HogWild": runs(30),
        "69 KB, 10 Mbit/s: HogWild, 4 workers": runs(7),
        "69 KB, 10 Mbit/s: Ring-AllReduce": runs(5),
        "8.7 MB, 100 Mbit/s: HogWild": runs(0.5),
    }
    module.draw(results, None, None)
    small, large = drawn[0].axes
    assert lines_of(small) == [
        ("None", "HogWild", [(10, 2.5), (100, 30)]),
        (".", "", [(10, 3), (10, 1), (10, 2), (10, 8)]),
        (".", "", [(100, 30)]),
        ("None", "Ring-AllReduce", [(10, 5)]),
        (".", "", [(10, 5)]),
    ]
    assert lines_of(large) == [("None", "HogWild", [(100, 0.5)]), (".", "", [(100, 0.5)])]
    assert small.lines[0].get_color() == large.lines[0].get_color() != small.lines[3].get_color()
    assert small.lines[1].get_color() == small.lines[0].get_color()
    assert [text.get_text() for text in small.texts] == []
    ((text, at),) = [(text.get_text(), text.get_position()) for text in large.texts]
    assert (text, at) == ("not measured", (10, 0.5))
    assert large.texts[0].get_transform() == large.get_xaxis_transform()
    assert [axes.get_title() for axes in (small, large)] == ["model of 69 KB", "model of 8.7 MB"]
    assert [axes.get_xscale() + axes.get_yscale() for axes in (small, large)] == ["loglog"] * 2
    assert legend_of(drawn[0]) == ["HogWild", "Ring-AllReduce"]
    module.draw(dict(list(results.items())[:3]), None, None)
    assert len(drawn[1].axes) == 1
    given = []
    module.drivers.bars = lambda *arguments: given.extend(arguments)
    name = "Ring-AllReduce, batches of 8192, 4 buckets"
    module.draw({f"7.5 MB, 100 Mbit/s: {name}": runs(1.25, 2)}, "a path", "a source")
    _, _, rates, colours, form, *paths = given
    due = name.replace(", ", "\n")
    assert (rates, colours) == ({due: [1.25, 2]}, {due: "C0"})
    assert [form(1.5), *paths] == ["1.50", "a path", "a source"]


class Axes:
    """Notes what is drawn into it, as (what, arguments)."""

    def __init__(self):
        self.drawn = []

    def __getattr__(self, name):
        return lambda *arguments, **look: self.drawn.append((name, *arguments))

    def of(self, name):
        """Returns the arguments of the calls of this name."""
        return [arguments for what, *arguments in self.drawn if what == name]


def test_a_lane_of_a_pipeline():
    """Two ops at once share the height of the lane; a number stands where its op is largest.

    Catches: seconds for milliseconds, ops of another place, an op that is drawn twice, and the
    number of an update.
    """
    module, axes = load("Pipeline"), Axes()
    Op = module.Op
    ops = [
        Op(1, "forward", 3, 0.0, 0.004),
        Op(1, "backward", 2, 0.002, 0.008),
        Op(1, "update", None, 0.009, 0.010),
        Op(0, "forward", 0, 0.0, 0.1),
        Op(1, "forward", 9, 0.005, 0.005),
    ]
    module.draw_lane(axes, ops, 1, 10, 0.8)
    bars = [(*at, *heights) for (at,), heights in axes.of("broken_barh")]
    due = [(0, 2, 10, 0.8), (2, 2, 10, 0.4), (2, 2, 10.4, 0.4), (4, 4, 10, 0.8), (9, 1, 10, 0.8)]
    assert bars == [pytest.approx(bar) for bar in due]
    assert axes.of("text") == [
        [pytest.approx(1), pytest.approx(10.4), 3],
        [pytest.approx(6), pytest.approx(10.4), 2],
    ]
    light, dark, rest = map(module.colour, ops[:3])
    assert rest == "0.35" and sum(light) > sum(dark)
    assert light == module.colour(Op(0, "forward", 13, 0, 1)) != dark
    pairs = {module.colour(Op(0, what, n, 0, 1)) for n in range(10) for what in ("forward", "back")}
    assert len(pairs) == 20


def test_the_picture_of_a_pipeline():
    """Lanes from the first place on top to the last; the title has what the table has.

    Catches: another place's lane, one axis of time for two and four places, and shares of a place.
    """
    module, lanes = load("Pipeline"), []
    drawn, Op, Case = figures(module), module.Op, module.Case
    module.draw_lane = lambda axes, ops, *more: lanes.append((len(ops), *more))
    two = [
        Op(0, "forward", 0, 0, 0.05),
        Op(1, "forward", 0, 0, 0.1),
        Op(1, "update", None, 0.1, 0.2),
    ]
    four = [Op(k, "forward", k % 2, 0, 0.25 if k else 0.5) for k in range(4)]
    longer = [op._replace(end=op.end + 0.3) for op in two]
    cases = Case("", "gpipe", 2, 4, False), Case("", "1f1b", 4, 8, True), Case("", "1f1b", 2, 1, 0)
    updates = [
        {"case": case, "ops": module.pack(ops)} for case, ops in zip(cases, (two, four, longer))
    ]
    module.draw({"updates": updates}, None, None)
    axes = drawn[0].axes
    assert lanes == [
        (len(ops), k, len(range(K)) - 1 - k, 0.8)
        for ops, K in ((two, 2), (four, 4), (longer, 2))
        for k in range(K)
    ]
    assert [each.get_title(loc="left") for each in axes] == [
        "GPipe, 2 workers, 4 micro-batches: 200 ms, idle 38%, stored 1, 1",
        "1F1B, 4 places, 8 micro-batches: 500 ms, idle 38%, stored 1, 1, 1, 1",
        "1F1B, 2 workers, 1 micro-batches: 500 ms, idle 15%, stored 1, 1",
    ]
    assert [each.get_xlim() for each in axes] == [(0, 500)] * 3
    module.draw({"updates": updates[:1]}, None, None)
    assert drawn[1].axes[0].get_xlim() == (0, 200)
    names = [[text.get_text() for text in each.get_yticklabels()] for each in axes]
    assert names[0] == ["worker 1", "worker 0"] and names[1][0] == "place 3"
    assert list(axes[1].get_yticks()) == [0.4, 1.4, 2.4, 3.4]
    heights = [each.get_subplotspec().get_gridspec().get_height_ratios() for each in axes]
    assert heights[0] == [2.6, 4.6, 2.6]


def test_the_strips_of_the_laboratory():
    """A strip is the share of the workers; 0.8 of a row is all of it; a cross is a known speed-up.

    Catches: the speed-up for a share, a range the other way round, numbers of fewer workers, and a
    cross of another scheme.
    """
    module, axes = load("Scale-Laboratory"), Axes()
    curve = [[2, 0.5, 1.5], [4, 1.0, 3.0]]
    module.draw_strip(axes, 3, curve, [(2, 1.0)])
    assert axes.of("axhline") == [[3], [3.8]]
    (n, base, bottom), (other, low, top) = axes.of("fill_between")
    assert [list(n), base, list(other)] == [[2, 4], 3, [2, 4]]
    assert list(bottom) == list(low) == pytest.approx([3.2, 3.2])
    assert list(top) == pytest.approx([3.6, 3.6])
    (line, cross) = axes.of("plot")
    assert list(line[1]) == list(top) and cross == [2, pytest.approx(3.4), "kx"]
    assert axes.of("text") == [[1.05, pytest.approx(3.4), "25-75%"]]
    ranges = (0.5, 0.5), (0.25, 0.5), (0.0052, 0.01), (0.0017, 0.0049)
    words = [module.between_shares(*shares) for shares in ranges]
    assert words == ["50%", "25-50%", "0.5-1%", "0.2-0.5%"]
    ranges = (0.5, 0.5), (9.994, 10), (2, 100), (1500, 1500.2)
    words = [module.between(*rates) for rates in ranges]
    assert words == ["0.50", "10.0", "2-100", "1,500"]


def test_the_pictures_of_the_laboratory(tmp_path):
    """A column for each case, a row for each scheme of any; beside it the losses over seconds.

    Catches: a scheme in another's row, points of another scheme, and losses in updates.
    """
    module, strips = load("Scale-Laboratory"), []
    saved = []
    module.drivers.save = lambda figure, path, source: saved.append((figure, path, source))
    module.draw_strip = lambda axes, *more: strips.append((axes.get_title(), *more))
    one, two, three = [[2, 1, 2], [4, 2, 3]], [[2, 1, 1], [4, 1, 1]], [[4, 0, 1]]
    few = {"curves": {"ring": one}, "points": []}
    points_ = [("gossip", 4, 0.5, "measured"), ("ring", 2, 1.5, "published")]
    all_ = {"curves": {"ring": two, "ps": one, "gossip": three}, "points": points_}
    results = {"cases": {"a, b": few, "8 GPUs in a machine": all_}}
    module.draw(results, tmp_path / "x.png", "a source")
    assert strips == [
        ("", 2, one, []),
        ("", 0, three, [(4, 0.5)]),
        ("", 1, one, []),
        ("", 2, two, [(2, 1.5)]),
    ]
    ((figure, *paths),) = saved
    first, second = figure.axes
    assert paths == [tmp_path / "x.png", "a source"]
    assert [axes.get_title() for axes in figure.axes] == ["a\nb", "8 GPUs\nin a machine"]
    assert [text.get_text() for text in first.get_yticklabels()] == ["gossip", "ps", "ring"]
    assert list(first.get_yticks()) == pytest.approx([0.4, 1.4, 2.4])
    for axes in first, second:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["2", "4"]
        assert (axes.get_xscale(), axes.get_ylim()) == ("log", (-0.15, 3))
    losses = {"ring": {"median": [2.0, 1.0, 0.5]}, "gossip": {"median": [2.0, 3.0, 4.0]}}
    results["learning"] = {"8 workers": losses, "100 workers": dict(list(losses.items())[:1])}
    module.draw(results, tmp_path / "x.png", "a source")
    figure, *paths = saved[-1]
    assert len(saved) == 3 and paths == [tmp_path / "loss-over-seconds.png", "a source"]
    eight, hundred = figure.axes
    ring = ("None", "ring", [(0, 2), (20, 1), (40, 0.5)])
    assert lines_of(eight) == [ring, ("None", "gossip", [(0, 2), (20, 3), (40, 4)])]
    assert lines_of(hundred) == [ring] and eight.get_yscale() == "log"
    assert [axes.get_title() for axes in figure.axes] == ["8 workers", "100 workers"]
    assert legend_of(figure) == ["ring", "gossip"]


def test_the_picture_of_benchmarks():
    """A dot is the ratio of a round, a bar their median; a row for each pair, of both models.

    Catches: another row, a model in the other's place, and start-up times among the rates.
    """
    module = load("Benchmarks")
    drawn = figures(module)
    results = {
        "HogWild (10)": {"digits": [6.0, 1, 2], "wide": [1.0, 4]},
        module.ALONE: {"digits": [3.0, 2, 2], "wide": [4.0, 1]},
        "DDP": {"digits": [2.0]},
        "Ring-AllReduce (10)": {"digits": [1.0]},
        module.START_UP: {"digits": [9.0]},
        module.IMPORT: {"digits": [3.0]},
    }
    module.draw(results, None, None)
    (axes,) = drawn[0].axes
    assert [(marker, known) for marker, _, known in lines_of(axes)[:6]] == [
        (".", [(2, -0.2), (0.5, -0.2), (1, -0.2)]),
        ("|", [(1, -0.2)]),
        (".", [(0.25, 0.2), (4, 0.2)]),
        ("|", [(2.125, 0.2)]),
        (".", [(0.5, 0.8)]),
        ("|", [(0.5, 0.8)]),
    ]
    assert lines_of(axes)[6:] == [("None", "", [(1, 0), (1, 1)])]
    assert [text.get_text().split("\n")[0] for text in axes.get_yticklabels()] == [
        "HogWild (10) ÷",
        "Ring-AllReduce (10) ÷",
    ]
    assert list(axes.get_yticks()) == [0, 1] and axes.yaxis_inverted()
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert [float(text) for text in ticks] == list(axes.get_xticks()) and 1 in axes.get_xticks()
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    colours = [line.get_color() for line in axes.get_legend().get_lines()]
    assert named == ["digits", "wide"]
    assert colours == [axes.lines[0].get_color(), axes.lines[2].get_color()]
    assert colours[0] != colours[1] and axes.get_xscale() == "log"
    ratios = module.ratios(results)
    assert ratios[module.START_UP, module.IMPORT] == {"digits": [3]}
    assert [module.words([99.99]), module.words([100.0]), module.words([])] == [
        "99.99 (99.99-99.99)",
        "100 (100-100)",
        "",
    ]


def test_the_grid_of_compression():
    """A picture for each compressor that has an e, three in a row; the rest of the grid is empty.

    Catches: an empty picture that stays, a name over another's curves, and a legend that has each
    run.
    """
    module = load("Compression")
    drawn = figures(module)
    run = {"updates": [1], "losses": [1]}
    biased = ["PowerSGD, rank 1", "PowerSGD, rank 4", "top 1%", "top 0.1%", "sign"]
    module.draw({f"{name}: x": [run, run] for name in [*biased, "none", "QSGD"]}, None, None)
    axes = drawn[0].axes
    assert [each.get_title() for each in axes if each.get_visible()] == biased
    assert [len(axes), len(drawn[0].axes[0].get_gridspec().get_height_ratios())] == [6, 2]
    assert legend_of(drawn[0]) == ["no compressor", "with its error e"]
    assert [bool(each.get_ylabel()) for each in axes] == [True, False, False] * 2
    assert {each.get_yscale() for each in axes} == {"log"}
    module.draw({f"{name}: x": [run] for name in ("none", f"sign{module.WITHOUT}")}, None, None)
    assert [each.get_title() for each in drawn[1].axes if each.get_visible()] == ["sign"]
    module.draw({"none: x": [run]}, None, None)
    assert [each.get_visible() for each in drawn[2].axes] == [False] * 3


def test_the_picture_of_staleness():
    """Marks of the leads and of N, and the titles; without a bound the lead is twice the largest.

    Catches: a warm start in the place of the others, another goal, and a bound under another name.
    """
    module = load("Staleness")
    drawn = figures(module)
    bound = {"updates_to": 100, "idle": 0.25}
    results = {f"{name}: x": [bound] for name in ("at most 5 ahead", "no bound")}
    results |= {
        f"N = {n}{words}: x": [{"test_loss": 0.5 * n}]
        for n in (1, 4)
        for words in ("", ", warm start")
    }
    module.draw(results, None, None)
    goal, share, loss = drawn[0].axes
    assert lines_of(goal)[-1] == ("o", "", [(5, 100), (34, 100)])
    assert lines_of(share)[-1] == ("o", "", [(5, 0.25), (34, 0.25)])
    for axes in goal, share:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "any"]
        assert list(axes.get_xticks()) == [5, 34]
        assert (axes.get_ylim()[0], axes.get_xscale()) == (0, "log")
    assert share.yaxis.get_major_formatter()(0.25, None) == "25%"
    curves = {label: known for _, label, known in lines_of(loss)}
    assert curves["from scratch"] == [(1, 0.5), (4, 2)]
    assert curves["warm start"] == [(pytest.approx(1.08), 0.5), (pytest.approx(4.32), 2)]
    assert curves["guessing"][0] == (0, pytest.approx(2.302585)) and "no momentum" not in curves
    assert [loss.get_xscale(), loss.get_yscale(), goal.get_title()] == [
        "log",
        "log",
        "updates to a loss of 0.2",
    ]
    assert [text.get_text() for text in loss.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert [float(text.get_text()) for text in loss.get_yticklabels()] == list(loss.get_yticks())
    assert {"from scratch", "warm start", "guessing"} < set(legend_of(drawn[0]))
    module.draw({"no momentum: x": [{"test_loss": 1}]}, None, None)
    assert lines_of(drawn[1].axes[0]) == []


# Engines, and what a page says of runs -----------------------------------------------------------


def test_the_start_of_an_engine():
    """From the command to the first update of all, from the last update to the command's end.

    Catches: the last update for the first one, or the other way round.
    """
    module = load("Beyond-One-Machine/start_up.py")
    clock = Clock()
    module.time = clock

    def popen(command, env, **more):
        for task, times in (("worker-0", (105, 110)), ("worker-1", (103, 120))):
            run_files.metrics(
                env["OUTPUT_DIR"], task, *(run_files.push(t, n) for n, t in enumerate(times))
            )
        rows = [run_files.test(125, 9, 0.5, 0.5)]
        run_files.metrics(env["OUTPUT_DIR"], "evaluator-0", *rows)
        clock.tick(30)
        return types.SimpleNamespace(wait=lambda seconds: 0)

    module.subprocess = types.SimpleNamespace(Popen=popen, DEVNULL=None, STDOUT=None)
    assert list(module.run("run.sh", 100, 5)) == [3, 10]


def test_the_rates_of_spark(tmp_path):
    """Examples a second of one worker, without its first update; medians, to Spark-Cluster's.

    Catches: the sum of both workers, the first update's examples, a ratio to the best rate,
    and means for medians.
    """
    module = load(RATES)

    def run(command, folder):
        for task, times in (("worker-0", (10, 20, 22, 30)), ("worker-1", (15, 25))):
            run_files.metrics(folder, task, *(run_files.push(t, n) for n, t in enumerate(times)))
        result = {"examples_per_second_per_worker": 7, "accuracy": 1, "seconds": 2}
        (folder / "mode").mkdir()
        (folder / "mode" / "result.json").write_text(
            json.dumps({**result, "microseconds_of_an_example": {}})
        )

    module.drivers.run = run
    assert module.run("Spark-Cluster", tmp_path / "a", "") == pytest.approx(
        {"rate": (3 * 32 / 20 + 3.2) / 2}
    )
    assert module.run("TENSORFLOW mode", tmp_path / "b", "")["rate"] == 7
    assert [module.spread([4, 1, 2, 9]), module.cell(module.spread([100, 300]))] == [
        {"median": 3, "range": [1, 9]},
        "200 (100-300)",
    ]
    ways = {"Spark-Cluster": [{"rate": rate} for rate in (40, 10, 20, 90)]}
    ways["SPARK"] = [
        {"rate": rate, "parts": {"next_batch": rate, "numpy": 0.01, "run": 3}}
        for rate in (15, 3, 5, 45)
    ]
    measured = {"ways": ways, "alone": {"put": module.spread([1, 2])}, "load": [1, 3], "about": ""}
    lines = module.tables(measured)["rates_ways.txt"].splitlines()
    assert lines[3] == "| SPARK | 10.0 (3.0-45.0) | 33% | 10.0 (3.0-45.0) |  | 3.0 (3.0-3.0) |"


def test_what_a_page_says_of_runs():
    """Medians of an even number; the sample and the pictures are those of the seed 0.

    Catches: the sample of the last run, seconds that add up, and the lower of two middle
    values.
    """
    module = load("lab/pages.py")
    assert module.spread([4, 1, 2, 9]) == "3.0 (1.0 to 9.0)"
    reported = {"x": ("words", "%.1f", 100), "y": ("others", "%d", 1)}
    runs = [{"x": x, "y": 1} for x in (0.4, 0.1, 0.2)] + [{"x": 0.9}]
    rows = [("words", "30.0", "10.0 to 90.0"), ("others", "1", "1 to 1")]
    assert module.medians(runs, reported) == rows
    module = load("lab/results.py")
    kept, seeds = [], []

    def run(command, folder, **_):
        seeds.append(int(command[-1]))
        facts = {"versions": {"tensorflow": str(seeds[-1])}}
        (pathlib.Path(folder) / "result.json").write_text(json.dumps(facts))
        clock.tick(5 + seeds[-1])
        return f"[worker 0] seed {seeds[-1]}\nx\n[tfrun] {folder}\n"

    clock = Clock()
    module.time = clock
    module.run, module.facts = run, lambda directory, seconds: {"seconds": seconds}
    module.keep_pictures = lambda directory, launcher, page: kept.append(seeds[-1])
    results = module.measure(support.ROOT / "HogWild" / "run.sh", 3, True)
    assert [run["seconds"] for run in results["runs"]] == [5, 6, 7]
    assert results["output"] == ["[worker 0] seed 0", "[tfrun] .../runs/HogWild/<time>"]
    assert (seeds, kept, results["versions"]["tensorflow"]) == ([0, 1, 2], [0], "0")
    lines = [f"[worker 0] update {n} of 5" for n in range(1, 6)]
    shown = module.sample("\n".join(["[tfrun] a", *lines, "noise", "[tfrun] /run"]), "/run", "X")
    assert shown == ["[tfrun] a", *lines[:2], "...", lines[-1], "[tfrun] .../runs/X/<time>"]


def test_the_picture_of_experiments(tmp_path):
    """The star is the first of the table, which is the best; a difference is told."""
    module = load(EXPERIMENTS + "report.py")
    results = [
        {"run": f"x={x}", "parameters": {"x": x}, "metrics": {"m": x / 10}, "status": "done"}
        for x in (3, 1, 2)
    ]
    saved = []
    with mock.patch(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: saved.append(figure)
    ):
        module.draw(module.in_order(results, "m", "min"), "m", tmp_path / "x.png")
    marks = [(line.get_marker(), *points(line)[0]) for line in saved[0].axes[0].lines]
    assert sorted(marks) == [("*", 0, 0.1), ("o", 1, 0.2), ("o", 2, 0.3)]
    other = [
        {**result, "metrics": {"m": result["metrics"]["m"] + 1e-9 * (result["run"] == "x=2")}}
        for result in results
    ]
    assert [module.equal(results, results[::-1]), module.equal(results, other)] == [True, False]


def test_what_a_drill_reads(tmp_path):
    """Pushes after a moment, of one task; the last test of the evaluator.

    Catches: the first test, the test of a worker, a gap that begins after the fault, and gaps
    of all tasks for one.
    """
    module = load("Operations/Fault-Tolerance/fault_tolerance.py")
    run = module.Run.__new__(module.Run)
    run.directory, run.synchronous, run.faults = tmp_path, False, [(12, 13)]
    rows = [run_files.push(t, n) for n, t in ((1, 10), (3, 12), (5, 20), (6, 21))]
    run_files.metrics(tmp_path, "worker-0", *rows, run_files.test(22, 6, 0.5, 0.9))
    run_files.metrics(
        tmp_path, "worker-1", run_files.push(11, 2), run_files.push(16, 4), run_files.push(22, 7)
    )
    rows = [run_files.test(30, 6, 0.99, 0.1), run_files.test(31, 7, 0.96, 0.2)]
    run_files.metrics(tmp_path, "evaluator-0", *rows)
    assert run.pushes(12) == [(16, 4), (20, 5), (21, 6), (22, 7)]
    assert run.pushes(10, "worker-1") == [(11, 2), (16, 4), (22, 7)]
    assert [run.longest_gap(), run.longest_gap("worker-0"), run.longest_gap("worker-1")] == [
        4,
        8,
        6,
    ]
    done = types.SimpleNamespace(returncode=0, stdout="", stderr="")
    module.subprocess = types.SimpleNamespace(run=lambda *_, **__: done)
    assert run.accuracy() == pytest.approx(0.96)
    done.returncode = 1
    assert run.accuracy() == 0
    assert [run.lost(), sorted(run.twice())] == [0, []]
