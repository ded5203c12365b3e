"""Benchmarks: what it runs, the rates and forms of its peers, and its picture; nothing trains."""

import contextlib
import io
import json
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
from measurements import (
    FORMS,
    SHARED_FLAGS,
    Clock,
    check_rows,
    committed,
    figures,
    lines_of,
    load,
    points,
    turned,
)

# What it asks for --------------------------------------------------------------------------------


@pytest.mark.parametrize("torch", [True, False])
def test_what_benchmarks_ask_for(torch, tmp_path):
    """Catches: another default, a program that is left out, and rates of another model."""
    module = load("Benchmarks")
    with mock.patch("importlib.util.find_spec", lambda name: torch):
        flags, cases, rounds, one, named, results = turned(module, "Benchmarks")
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
    assert named == {"kept": pathlib.Path("a folder/measured.json")}
    with mock.patch("importlib.util.find_spec", lambda name: torch):
        _, cases, rounds, *_ = turned(module, "Benchmarks", "--quick", "--only", "HogWild")
    assert rounds == 1 and [case[1:] for case in cases] == [
        (name, "digits") for name in due_of_hogwild(module)
    ]


def due_of_hogwild(module):
    """Returns the programs of Benchmarks with HogWild in their names."""
    return [*(name for name in module.EXAMPLES if "HogWild" in name), module.START_UP]


def test_a_peer_is_compared_in_its_fastest_form():
    """Catches a form that Benchmarks compares although it measured a faster one."""
    module, path = load(FORMS), support.ROOT / FORMS
    measured = json.loads(path.with_name("forms.json").read_text())["rates"]
    assert measured.keys() == module.PEERS.keys()
    for name, forms in measured.items():
        medians = {form: statistics.median(rates) for form, rates in forms.items()}
        compared = module.FORMS[module.PEERS[name].name]
        assert set(medians) == set(compared)
        assert max(medians, key=medians.get) == compared[0], name


def test_random_rows(tmp_path):
    """The wide model is tested on rows that it never saw, of 784 numbers and 10 classes."""
    with np.load(load("Benchmarks").wide_data(tmp_path)) as file:
        parts = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    random = np.random.RandomState(0)
    x, y = random.rand(1200, 784).astype("float32"), random.randint(0, 10, 1200)
    check_rows("wide", parts, x, y, [1000, 1000, 200, 200])


# The peers ---------------------------------------------------------------------------------------


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


def test_the_forms_of_the_peers(tmp_path):
    """Each form of each peer three times, by the smaller model; the fastest first.

    Catches: a form that is left out, rates of another one, and an order by the slowest run.
    """
    module, given = load("Benchmarks"), []
    module.example_runs.output_directory = lambda name: tmp_path
    module.idle = types.SimpleNamespace(
        wait=lambda anyway: types.SimpleNamespace(share=lambda: 0.25),
        words=lambda share: f"{share}",
    )
    module.text_tables.setting = lambda *versions: "here"
    module.run_peer = lambda *arguments: arguments

    def measure_round_robin(console, plan, repeats, rate, *, kept):
        given.extend([repeats, kept.name, [rate(case, 0) for case in plan]])
        return {key: [float(len(form)), 2.0 * len(form), 1] for key, _, form in plan}

    module.sessions.measure_round_robin = measure_round_robin
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
    results = json.loads((tmp_path / "forms.json").read_text())
    assert results["about"] == "here; 0.25"
    due = {}
    for name, form in plan:
        due.setdefault(name, {})[form] = [len(form), 2 * len(form), 1]
    assert results["rates"] == due
    rows = (tmp_path / "forms.txt").read_text().splitlines()[2:8]
    assert [row.split(" | ")[1] for row in rows[:3]] == ["fused, views", "plain", "fused"]
    chosen = []
    module = load("Benchmarks")
    module.measure_forms = lambda names, flags: chosen.append(names)
    module.gpu = types.SimpleNamespace(measure=lambda flags, versions: chosen.append(flags.gpu))
    module.sessions.Report = lambda **fields: chosen.append("report")
    with mock.patch("importlib.util.find_spec", lambda name: True):
        for words in (["--forms", "--only", "PyTorch"], ["--gpu"]):
            with mock.patch.object(sys, "argv", ["a script", *words]):
                module.main()
    assert chosen == [[name for name in module.PEERS if "PyTorch" in name], True]


# What it runs, and its picture -------------------------------------------------------------------


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

    module.example_runs.run = run
    assert module.measure_start_up(tmp_path / "start") == 7
    for name, model, rate in (("HogWild (10)", "digits", 200), ("HogWild (10)", "wide", 64)):
        (tmp_path / model).mkdir()
        assert module.run_example(name, model, tmp_path / model, module.ONE_THREAD) == rate, name
        row = commands[-1]
        given = [row[row.index(flag) + 1] for flag in ("--workers", "--steps", "--batch-size")]
        assert given == ["2", *(["4000", "32"] if model == "digits" else ["800", "100"])], name
        assert ("--dataset" in row) == (model == "wide"), name
    module.run_peer(
        "MultiWorkerMirroredStrategy (10 steps a call)",
        "wide",
        tmp_path / "peer",
        module.ONE_THREAD,
    )
    row = commands[-1][commands[-1].index("multi-worker") :]
    form = module.FORMS["multi-worker"][0]
    assert row[2::2] == ["[784, 512, 512, 10]", "100", "10", form, "3"]
    rates = [
        module.measure(n, "digits", module.ONE_THREAD)
        for n in ("HogWild, timed", module.TWO_PROCESSES)
    ]
    assert rates == [55, 400]
    pairs = module.ratios(
        {"HogWild (10)": {"digits": [6.0, 1]}, module.ONE_PROCESS: {"digits": [3.0, 2, 9]}}
    )
    drawn = figures(module)
    module.draw(
        {"HogWild (10)": {"digits": [6.0, 1, 2]}, module.ONE_PROCESS: {"digits": [3.0, 2, 2]}}, 0, 0
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

    module.example_runs.run = run
    steps = dict(zip(module.EXAMPLES, [2, 4, 1.5, 1.5, 2, 5, 0.8, 2, 15, 4, 4, 2], strict=True))
    ps, ring = "--ps 1 --workers 2", "--workers 2"
    for name, thousand in steps.items():
        rate = module.run_example(name, "digits", tmp_path, {})
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
    for name in module.PEERS:
        module.run_peer(name, "digits", tmp_path, {})
        cluster, script, (kind, *more) = commands[-1]
        steps_per_call = "10" if "10" in name or "never" in name else "1"
        assert script == "peers.py" and more[:7:2] == [
            "--layers",
            "--batch-size",
            "--together",
            "--form",
        ]
        assert more[1::2] == ["[64, 128, 64, 10]", "32", steps_per_call, module.FORMS[kind][0], "3"]
        assert cluster == f"tfrun {f'--chief {ps}' if 'Parameter' in name else ring} --".split()
    module.run_peer("DDP", "digits", tmp_path, {}, "plain")
    assert commands[-1][2][8] == "plain"


def test_what_a_program_of_benchmarks_is(tmp_path):
    """Catches: a program that is measured as another one is, and an import that may fail."""
    module, calls = load("Benchmarks"), []
    for name in ("run_example", "run_peer", "run_twice"):
        setattr(module, name, lambda *given, name=name: (name, *given[:2], given[3]))
    module.measure_start_up = lambda folder: ("start", folder.is_dir())
    module.measure_import = lambda: 3
    measure = module.measure
    assert measure("HogWild (10)", "wide", "env") == ("run_example", "HogWild (10)", "wide", "env")
    assert measure("DDP", "wide", "env") == ("run_peer", "DDP", "wide", "env")
    assert measure(module.TWO_PROCESSES, "wide", "env") == (
        "run_twice",
        "Non-Distributed-Setup",
        "wide",
        "env",
    )
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
    assert module.measure_import() == 4
    assert calls == [(["-c", "import tensorflow"], {"check": True, "capture_output": True})]
    module.run_example = lambda name, model, folder, env: (
        len(folder.name) if folder.is_dir() else None
    )
    assert module.run_twice("a", "digits", tmp_path, {}) == len("first") + len("second")


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

    module.example_runs.run = run
    measured = {
        place: module.measure_rate(*module.CASES[2], place, tmp_path) for place in module.PLACES
    }
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


def test_the_picture_of_benchmarks():
    """A dot is the ratio of a round, a bar their median; a row for each pair, of both models.

    Catches: another row, a model in the other's place, and start-up times among the rates.
    """
    module = load("Benchmarks")
    drawn = figures(module)
    results = {
        "HogWild (10)": {"digits": [6.0, 1, 2], "wide": [1.0, 4]},
        module.ONE_PROCESS: {"digits": [3.0, 2, 2], "wide": [4.0, 1]},
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
