"""What each measurement counts, on rows made by hand with known answers, and what its page shows.

Nothing trains here. A check takes load(script, changes), so that a mistake can be put into a copy.
"""

import contextlib
import io
import json
import pathlib
import statistics
import sys
import types
from unittest import mock

import made_run
import numpy as np
import pytest
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


def load(name, changes=()):
    """Returns the module of a script with these changes; what it has of common may be replaced."""
    path = place_of(name)
    module = examples.load(path, examples.replaced(path, changes))
    for shared in drivers, examples:  # a copy, in which a test may replace functions
        name = shared.__name__.rpartition(".")[2]
        if hasattr(module, name):
            setattr(module, name, types.SimpleNamespace(**vars(shared)))
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


def checks():
    """Returns {name: a check_...}, and the decorator that puts one there."""
    found = {}

    def check(function):
        found[function.__name__.removeprefix("check_")] = function
        return function

    return found, check


def mistaken(place, changes):
    """Returns load(script, changes), which puts a mistake into the script `place` as well."""
    return lambda name, more=(): load(name, [*changes, *more] if name == place else more)


def both_tests(found, mistakes):
    """Returns the tests of all checks: what each counts is right, and it finds its mistakes."""

    @pytest.mark.parametrize("name", found)
    def counted(name, tmp_path):
        found[name](load, tmp_path)

    @pytest.mark.parametrize("name, fails, place, changes", support.mistakes(mistakes, core=1))
    def caught(name, fails, place, changes, tmp_path):
        with support.caught(fails):
            found[name](mistaken(place, changes), tmp_path)

    return counted, caught


CHECKS, check = checks()
MISTAKES = {}  # (name of a check, what fails, the script): {the mistake: [(text, another)]}


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
    "batch-sizes.txt": ("Synchronous-SGD/batch_sizes.py", of("batch-sizes.json")),
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
        for name in ("rates-ways.txt", "rates-alone.txt")
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


# What all share ----------------------------------------------------------------------------------

SHARED = "lab/drivers.py"


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


MISTAKES["the_others", "others", SHARED] = {
    "the last": [
        (
            "max((share for name in names for share in shares[name])",
            "max((shares[name][-1] for name in names)",
        )
    ],
    "all cases": [("if name.startswith(tuple(begins))]", "]")],
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
    module.idle = types.SimpleNamespace(
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


MISTAKES["bars", "bars", SHARED] = {
    "the best run": [
        ("        middle = statistics.median(runs)\n", "        middle = max(runs)\n")
    ],
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
    same("changed", examples.replaced(path, [("a", "b"), ("b b", "c"), ("c c", "d")]), "d")
    with pytest.raises(ValueError, match="stands 2 times"):
        examples.replaced(path, [("b", "a"), ("a", "x")])


@check
def check_digests(load, tmp_path):
    """Each measured example has the digest of its own script."""
    load(SHARED).leave_digests(["HogWild", "DynSGD", "HogWild"], tmp_path)
    digests = json.loads((tmp_path / "results_digests.json").read_text())
    due = {
        name: examples.example_digest(examples.main_script(name)) for name in ("DynSGD", "HogWild")
    }
    same("digests", digests, due)


# Splits ------------------------------------------------------------------------------------------


def check_rows(what, parts, x, y, sizes):
    """Asserts that the parts (x, y, x, y) hold each row once, with its label, in these sizes."""
    x_train, y_train, x_test, y_test = map(np.asarray, parts)
    same(f"{what}: sizes", [len(each) for each in (x_train, y_train, x_test, y_test)], sizes)
    rows = [*zip(map(bytes, x_train), y_train), *zip(map(bytes, x_test), y_test)]
    assert sorted(rows) == sorted(zip(map(bytes, x), y)), f"\n{what}: other rows, or labels"


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


SPLIT = "x, y, x_test, y_test = x[:-360], y[:-360], x[-360:], y[-360:]"
MISTAKES["the_rows_of_experiments", "digits.*", EXPERIMENTS + "digits.py"] = {
    "labels that were not shuffled": [("x, y = x[order] / 16, y[order]", "x = x[order] / 16")],
    "the first labels": [(SPLIT, SPLIT.replace("y[-360:]", "y[:360]"))],
    "rows in both": [(SPLIT, SPLIT.replace("= x[:-360], y[:-360]", "= x, y"))],
    "another scale": [("x[order] / 16", "x[order] / 15")],
}
MISTAKES["the_rows_of_experiments", "mnist.*", EXPERIMENTS + "digits.py"] = {
    "training rows are tested": [
        (
            "x, x_test = [each.reshape(len(each), -1) / 255 for each in (x, x_test)]",
            "x, x_test = [each.reshape(len(each), -1) / 255 for each in (x, x[:10])]",
        )
    ],
}


@check
def check_random_rows(load, tmp_path):
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

    time = perf_counter = monotonic


def peers_of(load, chief=False):
    """Returns the peers of Benchmarks as a task of two workers, and their clock."""
    task = {"type": "chief" if chief else "worker", "index": 0}
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": task}
    with mock.patch.dict("os.environ", TF_CONFIG=json.dumps(config), OUTPUT_DIR="/none"):
        module = load("Measurements/Benchmarks/peers.py")
    module.time = Clock()
    return module, module.time


@check
def check_the_rates_of_peers(load, tmp_path):
    """Mini-batches of all workers, without the first calls: 2 workers, a step takes a second."""
    flags = types.SimpleNamespace(seconds=60, together=10, layers=[2, 3, 4], batch_size=5, form="")
    module, clock = peers_of(load, chief=True)
    slow = iter([1000] * 5)  # the first calls
    rate = module.rate_of(lambda: clock.tick(next(slow, 3)), 60, 12)
    same("alone", rate, 12 / 3)
    # A closure is 10 mini-batches, and takes 10 s of one worker; all of them at once, two by two.
    tf, scheduled = mock.MagicMock(), []
    coordinator = tf.distribute.coordinator.ClusterCoordinator.return_value
    coordinator.schedule = scheduled.append

    def join():
        clock.tick(10 * len(scheduled) / 2)
        scheduled.clear()

    coordinator.join = join
    with mock.patch.dict(sys.modules, tensorflow=tf):
        same("closures", module.parameter_server(flags), 2)
    module, clock = peers_of(load)
    calls, tf = [], mock.MagicMock()
    tf.function = lambda function: lambda: calls.append(clock.tick(1000 if len(calls) < 5 else 10))
    tf.distribute.MultiWorkerMirroredStrategy.return_value.reduce.return_value = 4.5
    with mock.patch.dict(sys.modules, tensorflow=tf):
        same("replicas", module.multi_worker(flags), 2)
    same("replicas", len(calls), 5 + 1 + 4)
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
            same(kind, module.pytorch(flags, kind), 2)
        same(kind, [len(agreed), len(steps)], [1, 50 + 10 + 10 * 4])


PEERS = "Measurements/Benchmarks/peers.py"
MISTAKES["the_rates_of_peers", "(alone|closures|replicas|ddp)", PEERS] = {
    "PyTorch's rate of one worker": [
        (
            "distributed.barrier()\n    return number * flags.together * len(WORKERS) /",
            "distributed.barrier()\n    return number * flags.together /",
        )
    ],
    "closures count once for each worker": [
        (
            "return rate_of(call, flags.seconds, at_once * flags.together)",
            "return rate_of(call, flags.seconds, at_once * flags.together * len(WORKERS))",
        )
    ],
    "the first calls": [
        (
            "    for _ in range(WARM_UP):\n        call()\n    began = time.monotonic()\n",
            "    began = time.monotonic()\n",
        )
    ],
    "calls for steps": [
        (
            "        steps()\n    return number * flags.together * len(WORKERS)",
            "        steps()\n    return number * len(WORKERS)",
        )
    ],
}


def closure_of(load, form):
    """Returns the ops of a closure of ParameterServerStrategy in this form, of ten steps."""
    import tensorflow as tf

    module, closures = peers_of(load, chief=True)[0], []
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
    assert "While" in closure_of(load, "loop")
    ops = closure_of(load, load("Benchmarks").FORMS["parameter-server"][0])
    assert "While" not in ops and ops.count("AssignSubVariableOp") % 10 == 0 < len(ops)


@check
def check_what_benchmarks_run(load, tmp_path):
    """The flags of a program, and the start of the last worker, from the command on."""
    module, commands = load("Benchmarks"), []
    module.time = Clock()

    def run(command, directory, **environment):
        commands.append(list(map(str, command)))
        directory.mkdir(parents=True)
        (directory / "result.json").write_text('{"examples_per_second": 6400}')
        (directory / "rate.json").write_text("55")
        same("threads", environment["TF_NUM_INTRAOP_THREADS"], "1")
        for task, times in (("worker-0", (103, 104, 120)), ("worker-1", (107, 110, 121))):
            rows = [made_run.push(time, n) for n, time in enumerate(times)]
            made_run.metrics(directory, task, *rows)
        module.time.tick(50)

    module.drivers.run = run
    same("start", module.start_up(tmp_path / "start"), 7)
    for name, model, rate in (("HogWild (10)", "digits", 200), ("HogWild (10)", "wide", 64)):
        (tmp_path / model).mkdir()
        same(name, module.example(name, model, tmp_path / model, module.ONE_THREAD), rate)
        row = commands[-1]
        found = [row[row.index(flag) + 1] for flag in ("--workers", "--steps", "--batch-size")]
        same(name, found, ["2", *(["4000", "32"] if model == "digits" else ["800", "100"])])
        same(name, "--dataset" in row, model == "wide")
    module.peer(
        "MultiWorkerMirroredStrategy (10 steps a call)",
        "wide",
        tmp_path / "peer",
        module.ONE_THREAD,
    )
    row = commands[-1][commands[-1].index("multi-worker") :]
    form = module.FORMS["multi-worker"][0]
    same("peer", row[2::2], ["[784, 512, 512, 10]", "100", "10", form, "3"])
    rates = [
        module.measure(n, "digits", module.ONE_THREAD) for n in ("HogWild, timed", module.TWICE)
    ]
    same("measured", rates, [55, 400])
    pairs = module.ratios(
        {"HogWild (10)": {"digits": [6.0, 1]}, module.ALONE: {"digits": [3.0, 2, 9]}}
    )
    drawn = figures(module)
    module.draw(
        {"HogWild (10)": {"digits": [6.0, 1, 2]}, module.ALONE: {"digits": [3.0, 2, 2]}}, 0, 0
    )
    same("ratios", list(pairs.values()), [{"digits": [2.0, 0.5]}])
    dots, middle = drawn[0].axes[0].lines[:2]
    same("drawn", [x for x, _ in points(dots) + points(middle)], [2, 0.5, 1, 1])


MISTAKES["what_benchmarks_run", "(start|HogWild.*|ratios|drawn|peer)", "Benchmarks"] = {
    "the first worker's start": [
        ("return max(first.values()) - began", "return min(first.values()) - began")
    ],
    "the last push": [
        (
            'first.setdefault(push["task"], push["push_time"])',
            'first[push["task"]] = push["push_time"]',
        )
    ],
    "batches of another model": [
        (
            'return result["examples_per_second"] / batch_size',
            'return result["examples_per_second"] / 32',
        )
    ],
    "the other way round": [("values = [a / b for", "values = [b / a for")],
    "a median of another pair": [
        ("axes.plot(statistics.median(values), height", "axes.plot(values[0], height")
    ],
}


GPU = "Measurements/Benchmarks/gpu.py"


@check
def check_what_runs_on_a_gpu(load, tmp_path):
    """Each place with its device and steps; the rate of the second half of all workers' updates."""
    module, commands = load(GPU), []

    def run(command, directory, **environment):
        commands.append((list(map(str, command)), environment))
        for task in ("worker-0", "worker-1"):  # slow at first: 3.2 s; then 32 images in 0.1 s
            times = [100, 102, 103, 103.1, 103.2, 103.3]
            rows = [made_run.push(time, step) for step, time in enumerate(times)]
            made_run.metrics(directory, task, *rows)

    module.drivers.run = run
    found = {place: module.rate(*module.CASES[2], place, tmp_path) for place in module.PLACES}
    same("rate", found, {place: 5 * 32 / 0.2 for place in module.PLACES})
    steps = [words[words.index("--steps") + 1] for words, _ in commands]
    same("steps", steps, ["300", "40"])
    hidden = [environment.get("CUDA_VISIBLE_DEVICES") for _, environment in commands]
    same("devices", hidden, [None, "-1"])
    rates = {f"{t}; {p}; {place}": [] for t, p in module.CASES for place in module.PLACES}
    rates |= {f"{'; '.join(module.CASES[0])}; {place}": [3.0, 4] for place in module.PLACES}
    rates[f"{'; '.join(module.CASES[0])}; GPU"] = [6.0, 4]
    row = module.table({"rates": rates, "about": ""}).splitlines()[2]
    same("ratio", row.split(" | ")[-1], "1.50 (1.00-2.00) |")


MISTAKES["what_runs_on_a_gpu", "(rate|steps|devices|ratio)", GPU] = {
    "the start counts": [("rows[len(rows) // 2 :]", "rows")],
    "an update more": [("in later[1:]", "in later")],
    "one worker": [("drivers.pushes(folder)", 'drivers.pushes(folder, "worker-0")')],
    "a GPU on both sides": [("folder, **PLACES[place])", "folder)")],
    "the other's steps": [("list(PLACES).index(place)", "0")],
    "the other way round": [("gpu / processor for", "processor / gpu for")],
}


# Packing, Pipeline -------------------------------------------------------------------------------


@check
def check_milliseconds_of_packing(load, tmp_path):
    """Both workers make a gradient in each step, and a bar is their number a second."""
    module = load("Packing")

    def run(command, directory):
        directory.mkdir()
        (directory / "result.json").write_text('{"examples_per_second": 3200, "workers": 2}')

    module.drivers.run, given = run, []
    flags = types.SimpleNamespace(steps=5, batch_size=64)
    same("step", module.milliseconds(0, True, flags), 40)
    module.drivers.bars = lambda *values: given.append(values)
    times = {module.CASES[0][0]: [40, 20, 10, 50], module.CASES[-1][0]: [40.0]}
    module.draw(times, None, None)
    same("gradients", list(given[0][2].values()), [[50, 100, 200, 40], [50]])
    same("gradients", given[0][4](50), "50.0 (40.0 ms)")
    same(
        "table",
        [row[1:] for row in cells(module.table_of(times))],
        [["30.0", "0.75"], ["40.0", "1.00"]],
    )


MISTAKES["milliseconds_of_packing", "(step|gradients|table)", "Packing"] = {
    "one worker's examples": [('flags.batch_size * result["workers"]', "flags.batch_size")],
    "one gradient a step": [("[2000 / time for time in runs]", "[1000 / time for time in runs]")],
    "to the first": [("last = middle.get(CASES[-1][0])", "last = middle.get(CASES[0][0])")],
}


@check
def check_the_updates_of_a_pipeline(load, tmp_path):
    """Those after the warm-up, in their order; medians, and the update that is nearest to them.

    Every second update has a timeline.
    """
    module = load("Pipeline")

    def run(command, directory, **env):
        directory.mkdir()
        for step in range(2, 2 * (5 + 6) + 1, 2):
            (directory / f"timeline-{step}.json").write_text(str(step))

    module.drivers.run, module.read = run, lambda path: int(path.read_text())
    case = module.Case("a", "gpipe", 2, 4, False)
    same("updates", module.measure(case, 6, 2), [12, 14, 16, 18, 20, 22])
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
    same("line", line[:5], [*case])
    same("line", [line[5], line[7]], [3.5, np.median([0.625, 0.625, 0.55, 0.25])])
    same("line", line[6], [np.median([0.5, 0.5, 0.4, 0]), np.median([0.75, 0.75, 0.7, 0.5])])
    same("stored", line[8], [1, 4])
    same("nearest", nearest is updates[0], True)
    rows = [
        ["", "gpipe", 1, 1, False, 0.1, [0], 0, [1]],
        ["", "1f1b", 2, 4, False, 0.08, [0.25, 0.5], 0.375, [2, 1]],
    ]
    (_, row) = cells(module.table_of({"table": rows}))
    same("table", row, ["1F1B", "2", "4", "80", "25% 50%", "38%", "20%", "2 1", "1.25"])


MISTAKES["the_updates_of_a_pipeline", "(updates|line|stored|nearest|table)", "Pipeline"] = {
    "an update of the warm-up": [("if step > EVERY * WARM_UP]", "if step >= EVERY * WARM_UP]")],
    "the least that is stored": [("most = [max(stored(ops, k)", "most = [min(stored(ops, k)")],
    "the farthest update": [("apart.index(min(apart))", "apart.index(max(apart))")],
    "a slow-down": [("{alone / seconds:.2f}", "{seconds / alone:.2f}")],
    "the bubble of M - 1": [("(K - 1) / (M + K - 1)", "(K - 1) / (M + K)")],
}


# Scale-Laboratory --------------------------------------------------------------------------------


@check
def check_the_laboratory(load, tmp_path):
    """Rates of equal workers by hand; what a straggler, a slow link and a lost worker leave."""
    module = load("Scale-Laboratory")
    # 4 workers, a second, 4 MB at 2 MB/s: a ring takes 3 s, of which 2/3 s can hide.
    case = module.Case(4, 1.0, 4e6, 2e6, 0.0, shape=1e-6)
    usual = module.rates(case, 4)
    slow = {name: module.rates(case, 4, name) for name in (module.STRAGGLER, module.SLOW_LINK)}
    local, added, ps = "ring, 10 local steps", "ring, 1/100 of the bytes, added up", module.PS

    def near(what, found, *due):
        assert found == pytest.approx(due, rel=0.01), f"\n{what}: {found}, not {due}"

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
        found = module.left_of(name, 4, 1e-6)
        assert found == pytest.approx(due, abs=0.02), f"\nlost, {name}: {found}"
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
    words = [module.known([(n, value, source)], curve) for value, source, n in points]
    due = ["measured 0.5 at 2: outside 0.8-1.2", "published 2.03 at 4: inside"]
    same("known", [*words, module.known([], curve)], [*due, "assumed"])
    for name, of in module.planned().items():
        error = of["planned"][1] / of["measured"] - 1
        assert abs(error) < 0.12, f"\nplanned, {name}: {error:+.1%}"
        if of["staleness"][0]:
            found, due = of["staleness"][::-1]
            assert found == pytest.approx(due, rel=0.05), f"\nplanned, {name}: {found}, not {due}"


MISTAKES[
    "the_laboratory", "(rates|straggler|link|lost|known|planned|laptop).*", "Scale-Laboratory"
] = {
    "another wide model": [("(784, 512, 512, 10)", "(784, 512, 128, 10)")],
    "the time of two workers": [("c = 1 / benchmark(ALONE)", "c = 2 / benchmark(ALONE)")],
    "a slow link is as fast": [("/ (LINK if trouble == SLOW_LINK else 1)", "/ 1")],
    "updates for mini-batches": [
        ("found[name] = n * T / (last + high), n * T /", "found[name] = n / (last + high), n /")
    ],
    "a whole ring for a hundredth": [("cost.ring(n, S / RATIO, B, a)", "cost.ring(n, S, B, a)")],
    "a straggler is as fast": [("times[:, -1] *= TIMES", "times[:, -1] *= 1")],
    "it comes back at once": [("n - 1, at, AWAY)", "n - 1, at, 1)")],
    "outside is inside": [("0.98 * low <= value <= 1.02 * high", "value > 0")],
    "a delay of one for two": [("np.array(drawn).max(axis=1)", "np.array(drawn).min(axis=1)")],
}


# Compression, Scaling, Slow-Network, Staleness ---------------------------------------------------


def trained(calls):
    """Returns what stands for forked.train, and notes (jobs, {flag: value}) of each run."""

    def train(script, jobs, flags, directory, *more):
        calls.append((jobs, dict(zip(flags[::2], flags[1::2]))))
        return True, [(0, [0.0])]

    return types.SimpleNamespace(train=train, **{name: None for name in ("window", "started")})


@check
def check_the_bytes_of_compression(load, tmp_path):
    """The first run also counts them with 4 and 8 workers; half of what a row says is sent."""
    module, calls = load("Compression"), []
    module.forked = trained(calls)
    module.found = lambda ended, place: {"kilobytes": {}}
    module.drivers.pushes = lambda place: [{"bytes": 2000 * int(place.name)}, {"bytes": 0}]
    flags, case = types.SimpleNamespace(updates=70), ("", "Ring-AllReduce", ["--a", 1], True)
    counted = [module.measure(case, repeat, flags)["kilobytes"] for repeat in (0, 1)]
    same("kilobytes", counted, [{"4": 2.0, "8": 4.0}, {}])
    found = [(jobs["worker"], row["--steps"], row["--seed"], row["--a"]) for jobs, row in calls]
    same("runs", found, [(2, 70, 0, 1), (4, 20, 0, 1), (8, 20, 0, 1), (2, 70, 1, 1)])
    losses = [{"losses": [9] * 18 + [3, 1]}, {"losses": [5, 4]}]
    same("last", [module.last_losses(run) for run in losses], [2, 4])
    drawn = figures(module)
    runs = [{"updates": [1, 2], "losses": [n, n + 1]} for n in (1, 5)]
    module.draw({"sign: x": runs, "sign, without e: x": runs[:1], "none: x": runs[1:]}, None, None)
    lines = [(line.get_label(), points(line)) for line in drawn[0].axes[0].lines]
    same(
        "drawn",
        lines,
        [
            ("no compressor", [(1, 5), (2, 6)]),
            ("with its error e", [(1, 1), (2, 2)]),
            ("with its error e", [(1, 5), (2, 6)]),
            ("without e", [(1, 1), (2, 2)]),
        ],
    )


MISTAKES["the_bytes_of_compression", "(kilobytes|runs|last|drawn)", "Compression"] = {
    "what is received, too": [(" for push in pushes) / 2 / 1000", " for push in pushes) / 1000")],
    "of two workers": [("train(case, workers, COUNTED", "train(case, WORKERS, COUNTED")],
    "the last loss": [('-max(1, len(run["losses"]) // 10) :]', "-1:]")],
    "with e and without": [('("none", name, name + WITHOUT)', '("none", name + WITHOUT, name)')],
}


@check
def check_the_runs_of_scaling(load, tmp_path):
    """Updates for as many mini-batches: of 8 workers together, but for a backup, with T steps."""
    module, calls = load("Scaling"), []
    module.forked, module.found = trained(calls), lambda *words: {"words": words[:3]}

    def steps(name, n, delay, batches=1000):
        result = module.measure(("", name, n, delay, 0.1), 2, batches)
        return calls[-1][1]["--steps"], result["batches"]

    due = {"HogWild": 1000, "DOWNPOUR-Easy": 100, "Synchronous-SGD": 125, "DynSGD": 1000}
    due |= {module.BACKUP: 142, "SAGN": 12, "Ring-AllReduce": 125}
    for name, number in due.items():
        same(name, steps(name, 8, "exponential"), (number, 1000))
    same("least", steps("Synchronous-SGD", 8, "exponential", 80), (20, 80))
    # Alone: 10 s of 1 / 70 ms; eight together, one of whom takes 0.35 s: 8 / 0.35 of these.
    same("short", steps("HogWild", 1, "constant")[1], 142)
    same("short", steps("Synchronous-SGD", 8, "one slow")[1], 228)
    same("short", steps("HogWild", 8, "one slow")[1], 1000)
    jobs, row = calls[0]
    same("flags", (jobs, row["--seed"]), ({"ps": 1, "worker": 8}, 2))
    same(
        "backup",
        ["--backup-workers" in row for _, row in calls[:7]],
        [name == module.BACKUP for name in due],
    )
    runs = [{"batches_per_second": each} for each in (12.0, 10.0, 12.5, 20.0)]
    own = module.own_seconds({"1 worker, constant: HogWild": runs})
    same("own", [own, module.own_seconds({})], [1 / 12.25 - 0.07, 0])
    lost = [{"test_loss": loss} for loss in (0.5, None, 0.25, None, 0.3, 0.1)]
    same("losses", module.losses(lost), "0.275 (0.100-0.500) 2 diverged")
    needed = [module.needed(name, 8) for name in due]
    same("needed", needed, [1, 1, 8, 1, 7, 8, 8])


MISTAKES[
    "the_runs_of_scaling",
    "(HogWild|DOWN.*|Sync.*|SAGN|least|short|own|losses|needed|backup)",
    "Scaling",
] = {
    "one worker's mini-batches": [("batches // local // needed(name, n))", "batches // local)")],
    "a backup counts": [('return n - name.endswith("a backup")', "return n")],
    "steps for mini-batches": [("batches // local // needed", "batches // needed")],
    "the delay is its own": [
        ('"batches_per_second") - MEAN if alone', '"batches_per_second") if alone')
    ],
    "those that came are lost": [
        ('lost = sum(run["test_loss"] is None', 'lost = sum(run["test_loss"] is not None')
    ],
}


@check
def check_the_runs_of_a_slow_network(load, tmp_path):
    """Updates for as many mini-batches; a link's rate in bytes; sent and received."""
    module, calls = load("Slow-Network"), []
    module.forked, module.hosts = trained(calls), mock.MagicMock()
    module.found = lambda ended, samples, place, batches, rate: (batches, rate)
    found = {}
    for name in (
        "HogWild",
        "Synchronous-SGD",
        "DOWNPOUR-Easy, T = 50",
        "SAGN, T = 10, lr 0.5",
        "Ring-AllReduce, 4 workers",
    ):
        each, rate = module.measure([1] * 6, ("", name, module.SMALL, 100, 2000), 1)
        found[name] = each, rate, calls[-1][1]["--steps"], calls[-1][0]
    two = {"ps": 1, "worker": 2}
    same(
        "runs",
        list(found.values()),
        [
            (1, 100, 2000, two),
            (2, 100, 1000, two),
            (50, 100, 40, two),
            (20, 100, 100, two),
            (4, 100, 500, {"worker": 4}),
        ],
    )
    same("limit", module.hosts.limit.call_args.args, (6, 100))
    runs = [
        {"links": [a, b, c]}
        for a, b, c in ((0.5, 0.25, 0.75), (0.75, 0.5, 0.25), (0.25, 0.125, 0.375), (0.5, 1, 0))
    ]
    same(
        "full",
        [module.full(runs, 1), module.full(runs, 0), module.full(runs, 2)],
        [["50%", "62%"], ["", "75%"], ["62%", "31%"]],
    )
    own = load("Measurements/Slow-Network/hosts.py")
    commands = []
    own.run = lambda *words: commands.extend(words)
    own.limit(1, 1000)
    same(
        "rule",
        [words.partition("root ")[2] for words in commands],
        ["tbf rate 1000mbit burst 125000 latency 300ms"] * 2,
    )
    same(
        "rule",
        [words.split()[:6] for words in commands],
        ["tc qdisc replace dev link0 root".split(), "tc -n host0 qdisc replace dev".split()],
    )
    (tmp_path / "dev").write_text(
        "a\nb\n link1: 9 9 9 9 9 9 9 9 9 9\n link0: 10 1 2 3 4 5 6 7 80 1 2\n"
    )
    own.pathlib = types.SimpleNamespace(Path=lambda path: tmp_path / "dev")
    same("moved", own.moved(0), (10, 80))


MISTAKES["the_runs_of_a_slow_network", "(runs|full|rule|moved)", "Slow-Network"] = {
    "workers that push alone, together": [("(n if folder in TOGETHER else 1)", "n")],
    "the mean link": [
        ('max(run["links"][which], default=0)', 'statistics.fmean(run["links"][which] or [0])')
    ],
    "the ps among the workers": [
        ("(slice(0, ps), slice(ps, None))", "(slice(0, ps), slice(0, None))")
    ],
}
MISTAKES[
    "the_runs_of_a_slow_network", "(runs|full|rule|moved)", "Measurements/Slow-Network/hosts.py"
] = {
    "packets for bytes": [("return numbers[0], numbers[8]", "return numbers[1], numbers[9]")],
}


@check
def check_the_runs_of_staleness(load, tmp_path):
    """N comes with an outer rate at which w moves as far; a warm start has a quarter of all."""
    module, calls, warm = load("Staleness"), [], []
    module.forked = trained(calls)
    module.RunData = types.SimpleNamespace(read=lambda place: None)
    module.found = lambda ended, samples, run, quarter: warm.append(quarter)
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
    same("steps", [row["--steps"] for row in rows], [1000, 1000, 1000, 400, 100, 400, 400])
    same("warm", warm, [0, 0, 0, 0, 100, 0])
    same("lead", [row.get("--max-lead") for row in rows[:3]], [5, None, None])
    same("lambda", [row.get("--compensation") for row in rows[:3]], [None, None, 0.04])
    momentum = [
        (row["--momentum-delay"], row["--outer-rate"], row["--outer-momentum"]) for row in rows[3:]
    ]
    same("momentum", momentum, [(4, 0.5, 0.9), (8, 1, 1e-30), (8, 1, 0.9), (1, 0.125, 1e-30)])
    same("jobs", calls[0][0], {"ps": 1, "worker": 8})
    runs = [{"x": x} for x in (3, None, 1, 2, 8)]
    same("some", module.some(runs, "x", "{:.1f}"), "2.5 (1.0-8.0) 1 of 5 never")
    drawn = figures(module)
    results = {
        f"at most {n} ahead: x": [{"updates_to": n * x, "idle": 1 / n / x} for x in (1, 3, 8, 4)]
        for n in (1, 5)
    }
    results["N = 2: x"] = [{"test_loss": x} for x in (0.5, None, 0.25)]
    results["no momentum: x"] = [{"test_loss": x} for x in (1, 3, 8)]
    module.draw(results, None, None)
    goal, share, loss = (axes.lines for axes in drawn[0].axes)
    same("drawn", points(goal[2]), [(1, 3.5), (5, 17.5)])
    same("drawn", points(goal[0]), [(1, 1), (1, 3), (1, 8), (1, 4)])
    same("drawn", points(share[2]), [(1, pytest.approx(7 / 24)), (5, pytest.approx(7 / 120))])
    same("drawn", points(loss[0]) + points(loss[2]), [(2, 0.5), (2, 0.25), (2, 0.5)])
    same("drawn", (loss[1].get_marker(), drawn[0].axes[2].texts[0].get_text()), ("x", "1 never"))
    none = next(line for line in loss if line.get_label() == "no momentum")
    same("drawn", points(none)[0], (0, 3))


MISTAKES["the_runs_of_staleness", "(steps|warm|lead|momentum|some|drawn)", "Staleness"] = {
    "an outer rate that does not grow": [("outer = case.value * flags.move", "outer = flags.move")],
    "half of the pushes": [("updates // 4 if case.warm", "updates // 2 if case.warm")],
    "never of those that came": [
        (
            "    lost = sum(run[key] is None for run in runs)\n",
            "    lost = sum(run[key] is not None for run in runs)\n",
        )
    ],
    "a median of those that came": [("statistics.median(values)", "statistics.median(known)")],
}


# Engines, and what a page says of runs -----------------------------------------------------------


@check
def check_the_start_of_an_engine(load, tmp_path):
    """From the command to the first update of all, from the last update to the command's end."""
    module = load("Beyond-One-Machine/start_up.py")
    clock = module.time = Clock()

    def popen(command, env, **more):
        for task, times in (("worker-0", (105, 110)), ("worker-1", (103, 120))):
            made_run.metrics(
                env["OUTPUT_DIR"], task, *(made_run.push(t, n) for n, t in enumerate(times))
            )
        rows = [made_run.test(125, 9, 0.5, 0.5)]
        made_run.metrics(env["OUTPUT_DIR"], "evaluator-0", *rows)
        clock.tick(30)
        return types.SimpleNamespace(wait=lambda seconds: 0)

    module.subprocess = types.SimpleNamespace(Popen=popen, DEVNULL=None, STDOUT=None)
    same("seconds", list(module.run("run.sh", 100, 5)), [3, 10])


MISTAKES["the_start_of_an_engine", "seconds", "Beyond-One-Machine/start_up.py"] = {
    "the last update's start": [("return pushes[0] - began", "return pushes[-1] - began")],
    "from the first update on": [("ended - pushes[-1]", "ended - pushes[0]")],
}


@check
def check_the_rates_of_spark(load, tmp_path):
    """Examples a second of one worker, without its first update; medians, to Spark-Cluster's."""
    module = load(RATES)

    def run(command, folder):
        for task, times in (("worker-0", (10, 20, 22, 30)), ("worker-1", (15, 25))):
            made_run.metrics(folder, task, *(made_run.push(t, n) for n, t in enumerate(times)))
        result = {"examples_per_second_per_worker": 7, "accuracy": 1, "seconds": 2}
        (folder / "mode").mkdir()
        (folder / "mode" / "result.json").write_text(
            json.dumps({**result, "microseconds_of_an_example": {}})
        )

    module.drivers.run = run
    same("rate", module.run("Spark-Cluster", tmp_path / "a", ""), {"rate": (3 * 32 / 20 + 3.2) / 2})
    same("rate", module.run("TENSORFLOW mode", tmp_path / "b", "")["rate"], 7)
    same(
        "spread",
        [module.spread([4, 1, 2, 9]), module.cell(module.spread([100, 300]))],
        [{"median": 3, "range": [1, 9]}, "200 (100-300)"],
    )
    ways = {"Spark-Cluster": [{"rate": rate} for rate in (40, 10, 20, 90)]}
    ways["SPARK"] = [
        {"rate": rate, "parts": {"next_batch": rate, "numpy": 0.01, "run": 3}}
        for rate in (15, 3, 5, 45)
    ]
    measured = {"ways": ways, "alone": {"put": module.spread([1, 2])}, "load": [1, 3], "about": ""}
    lines = module.tables(measured)["rates-ways.txt"].splitlines()
    same(
        "table", lines[3], "| SPARK | 10.0 (3.0-45.0) | 33% | 10.0 (3.0-45.0) |  | 3.0 (3.0-3.0) |"
    )


MISTAKES["the_rates_of_spark", "(rate|spread|table)", RATES] = {
    "of both workers": [('return {"rate": statistics.mean(rates)}', 'return {"rate": sum(rates)}')],
    "from the first update on, with its examples": [
        (
            "first, *pushes = drivers.pushes(folder, task=task)",
            "pushes = drivers.pushes(folder, task=task)\n        first = pushes[0]",
        )
    ],
    "to the best rate": [('base = statistics.median(each["rate"]', 'base = max(each["rate"]')],
    "the mean": [('{"median": statistics.median(values)', '{"median": statistics.mean(values)')],
}


@check
def check_what_a_page_says_of_runs(load, tmp_path):
    """Medians of an even number; the sample and the pictures are those of the seed 0."""
    module = load("lab/pages.py")
    same("spread", module.spread([4, 1, 2, 9]), "3.0 (1.0 to 9.0)")
    reported = {"x": ("words", "%.1f", 100), "y": ("others", "%d", 1)}
    runs = [{"x": x, "y": 1} for x in (0.4, 0.1, 0.2)] + [{"x": 0.9}]
    rows = [("words", "30.0", "10.0 to 90.0"), ("others", "1", "1 to 1")]
    same("medians", module.medians(runs, reported), rows)
    module = load("lab/results.py")
    kept, seeds = [], []

    def run(command, folder, **_):
        seeds.append(int(command[-1]))
        facts = {"versions": {"tensorflow": str(seeds[-1])}}
        (pathlib.Path(folder) / "result.json").write_text(json.dumps(facts))
        clock.tick(5 + seeds[-1])
        return f"[worker 0] seed {seeds[-1]}\nx\n[tfrun] {folder}\n"

    clock = module.time = Clock()
    module.run, module.facts = run, lambda directory, seconds: {"seconds": seconds}
    module.keep_pictures = lambda directory, launcher, page: kept.append(seeds[-1])
    found = module.measure(support.ROOT / "HogWild" / "run.sh", 3, True)
    same("runs", [run["seconds"] for run in found["runs"]], [5, 6, 7])
    same("sample", found["output"], ["[worker 0] seed 0", "[tfrun] .../runs/HogWild/<time>"])
    same("sample", (seeds, kept, found["versions"]["tensorflow"]), ([0, 1, 2], [0], "0"))
    lines = [f"[worker 0] update {n} of 5" for n in range(1, 6)]
    shown = module.sample("\n".join(["[tfrun] a", *lines, "noise", "[tfrun] /run"]), "/run", "X")
    same("sample", shown, ["[tfrun] a", *lines[:2], "...", lines[-1], "[tfrun] .../runs/X/<time>"])


MISTAKES["what_a_page_says_of_runs", "(spread|medians|runs|sample)", "lab/results.py"] = {
    "the last run's sample": [
        ("            if seed == 0:\n", "            if seed == repeats - 1:\n")
    ],
    "seconds of all runs": [
        (
            "            began = time.monotonic()\n            command",
            "            began = began if seed else time.monotonic()\n            command",
        )
    ],
}
MISTAKES["what_a_page_says_of_runs", "(spread|medians|runs|sample)", "lab/pages.py"] = {
    "the lower middle": [
        ("(statistics.median(values), min", "(statistics.median_low(values), min")
    ],
}


@check
def check_the_picture_of_experiments(load, tmp_path):
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
    same("star", sorted(marks), [("*", 0, 0.1), ("o", 1, 0.2), ("o", 2, 0.3)])
    other = [
        {**result, "metrics": {"m": result["metrics"]["m"] + 1e-9 * (result["run"] == "x=2")}}
        for result in results
    ]
    same(
        "equal", [module.equal(results, results[::-1]), module.equal(results, other)], [True, False]
    )


@check
def check_what_a_drill_reads(load, tmp_path):
    """Pushes after a moment, of one task; the last test of the evaluator."""
    module = load("Operations/Fault-Tolerance/fault_tolerance.py")
    run = module.Run.__new__(module.Run)
    run.directory, run.synchronous, run.faults = tmp_path, False, [(12, 13)]
    rows = [made_run.push(t, n) for n, t in ((1, 10), (3, 12), (5, 20), (6, 21))]
    made_run.metrics(tmp_path, "worker-0", *rows, made_run.test(22, 6, 0.5, 0.9))
    made_run.metrics(
        tmp_path, "worker-1", made_run.push(11, 2), made_run.push(16, 4), made_run.push(22, 7)
    )
    rows = [made_run.test(30, 6, 0.99, 0.1), made_run.test(31, 7, 0.96, 0.2)]
    made_run.metrics(tmp_path, "evaluator-0", *rows)
    same("pushes", run.pushes(12), [(16, 4), (20, 5), (21, 6), (22, 7)])
    same("pushes", run.pushes(10, "worker-1"), [(11, 2), (16, 4), (22, 7)])
    same(
        "gap",
        [run.longest_gap(), run.longest_gap("worker-0"), run.longest_gap("worker-1")],
        [4, 8, 6],
    )
    done = types.SimpleNamespace(returncode=0, stdout="", stderr="")
    module.subprocess = types.SimpleNamespace(run=lambda *_, **__: done)
    same("accuracy", run.accuracy(), 0.96)
    done.returncode = 1
    same("accuracy", run.accuracy(), 0)
    same("lost", [run.lost(), sorted(run.twice())], [0, []])


MISTAKES["what_a_drill_reads", "(pushes|gap|accuracy)", FAULTS] = {
    "the first test": [('self.tests("evaluator-0")[-1][1]', 'self.tests("evaluator-0")[0][1]')],
    "the worker's test": [('self.tests("evaluator-0")[-1][1]', "self.tests()[-1][1]")],
    "a gap from the end of the fault on": [("self.faults[0][0] - 0.5", "self.faults[0][1] + 1")],
    "gaps of all": [
        (
            "for at, _ in self.pushes(self.faults[0][0] - 0.5, task)]",
            "for at, _ in self.pushes(self.faults[0][0] - 0.5)]",
        )
    ],
}


# The tests of all checks -------------------------------------------------------------------------

test_what_is_counted, test_a_mistake_is_caught = both_tests(CHECKS, MISTAKES)
