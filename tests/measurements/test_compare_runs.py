"""What Compare runs, and where it cuts a run or ends it early, on runs made by hand.

Nothing trains here.
"""

import json
import math
import pathlib
import re
import types

import numpy as np
import pytest
import run_files
import support
from compared import EQUAL, ONE, ONE_RUN, tried
from lab import digests
from measurements import check_rows, load

# A run -------------------------------------------------------------------------------------------

TESTS = ["test_loss", "test_accuracy", "test_own", "test_training"]


def run_by_hand(directory):
    """Two workers; a test from 112 to 113 delays worker 0, which tests; another begins at 116."""

    def push(time, step, staleness, pull):
        return run_files.push(time, step, staleness, pull_time=pull, tests=TESTS)

    def test(time, step, began, *means):
        return run_files.test(time, step, *means, began=began, tests=TESTS)

    times = [(100, 1, 0), (110, 4, 1), (111, 8, 2), (112, 12, 1)]
    first = [push(*update, update[0] - 0.101) for update in times]
    late = [
        push(*update, update[0] - 0.301) for update in [(114, 16, 1), (115, 20, 1), (116, 24, 1)]
    ]
    tests = test(113, 12, 112, 9, 0.9, 0.4, 0.2), test(116.5, 24, 116, 9, 0.98, 0.3, 0.1)
    run_files.metrics(directory, "worker-0", *first, tests[0], *late, tests[1], tests=TESTS)
    other = push(109, 3, 0, 108.899), push(111.5, 10, 0, 111.199)
    run_files.metrics(directory, "worker-1", *other, tests=TESTS)
    run_files.flags(directory, metrics={}, arguments={"batch_size": 32})
    return load(ONE_RUN).RunData.read(directory)


def start_of(module, waits=False, **more):
    """Returns a Start of two workers and a ps."""
    known = dict.fromkeys(module.Start._fields)
    known |= {"jobs": {"worker": 2, "ps": 1}, "calls": 1, "waits": waits, "mean": 0, "changes": []}
    known |= more
    return module.Start(**known)


def test_the_cut(tmp_path):
    """A run counts for its seconds only; they leave out a test for which all wait.

    Both workers train from 109 on, with 1 update of the one that counts; 23 come in the 7 s after.

    Catches: tests or pushes behind the end, seconds of a test for which all wait, and seconds
    or staleness of the start.
    """
    module, run = load(ONE_RUN), run_by_hand(tmp_path)
    for waits, pause in ((False, 0), (True, 1)):  # from 112 to its end, 113
        rate = 23 / (7 - pause)
        end = module.End(None, ("accuracy", 0.97), False, None, None)
        numbers = module.numbers(run, start_of(module, waits), end)
        assert numbers["updates_per_second"] == pytest.approx(rate)
        at = [round(3 + 1 / rate, 3), round(7 - pause + 1 / rate, 3)]
        assert numbers["evaluations"]["seconds"] == pytest.approx(at)
        assert numbers["reached"] == pytest.approx(at[1])
        assert [numbers["examples"], numbers["bytes"], numbers["updates"]] == [288, 7200, 24]
        assert [numbers["test_loss"], numbers["training_loss"]] == pytest.approx([0.3, 0.1])
        assert numbers["evaluations"]["examples"] == [192, 288]
        numbers = module.numbers(run, start_of(module, waits), end._replace(seconds=5))
        assert numbers["evaluations"]["seconds"] == pytest.approx(at[:1] if not waits else at[:1])
        assert numbers["reached"] is None
        assert [numbers["test_loss"], numbers["training_loss"]] == pytest.approx([0.4, 0.2])
        assert numbers["examples"] == 32 * (7 if waits else 6)  # until 114.7, or 113.7
    numbers = module.numbers(run, start_of(module), end._replace(seconds=5))
    assert [numbers["staleness_mean"], numbers["histogram"]] == [1, [1, 2, 1]]
    assert [numbers["cv"], numbers["gradient_seconds"]] == pytest.approx(
        [round(0.0866 / 0.15, 3), 0.15]
    )
    chief = start_of(module, jobs={"worker": 2, "ps": 1, "chief": 1})
    assert module.numbers(run, chief, end)["cv"] is None


class Rows:
    """A Watch that is shown tests, as a run that trains writes them."""

    def __init__(self, module, end, waits=False):
        self.watch, self.module = module.Watch(None, start_of(module, waits), end), module
        self.watch.began, self.watch.chief, self.rows = 100.0, "metrics-worker-0.csv", []
        self.watch.columns = ["push_time", "pull_time", "examples", "test_accuracy", "test_own"]
        self.watch.new_rows = lambda path: [self.rows.pop(0)] if self.rows else []

    def ended(self, *tests):
        """Returns why the run was ended by tests (seconds, accuracy, loss), or None."""
        for seconds, accuracy, loss in tests:
            row = [100.5 + seconds, 100 + seconds, "", accuracy, loss]  # a test takes 0.5 s
            self.rows.append(list(map(str, row)))
            try:
                self.watch.poll()
            except self.module.Enough as reason:
                return str(reason)
        return None


def test_the_early_end():
    """A try ends at the target, when it is late, or hopeless in the second half; no other run.

    Catches: a reported run that ends at its target, a run called late although it has arrived,
    and one called hopeless too soon.
    """
    module = load(ONE_RUN)
    curve = [[0, 6], [2.0, 0.2]]  # of the best so far: 0.8 after 4 s

    def why(tests, target=("accuracy", 0.97), tuning=True, limit=None, curve=None):
        return Rows(module, module.End(6, target, tuning, limit, curve)).ended(*tests)

    assert why([(1, 0.9, 1), (2, 0.97, 1)]) == "reached"
    assert why([(1, 0.9, 1), (2, 0.97, 1)], tuning=False) is None
    assert why([(1, 0.99, 1), (2, 0.9, 0.5)], target=("loss", 0.5)) == "reached"
    assert why([(1, 0.99, 1), (2, 0.9, 0.5)], target=("loss", None)) is None
    assert [why([(t, 0.9, 1)], limit=3) for t in (2.9, 3.1)] == [None, "late"]
    assert why([(3.1, 0.97, 1)], limit=3) == "reached"
    for at, loss, due in ((4, 1.5, None), (4, 1.7, "hopeless"), (2, 9.0, None)):
        assert why([(at, 0.5, loss)], curve=curve) == due
    assert [why([(t, 0.5, 1)], tuning=False) for t in (6.1, 6.2)] == [None, "time"]
    for at, due in ((7.1, None), (7.2, "time")):  # behind two tests for which all wait
        rows = Rows(module, module.End(6, ("accuracy", 0.97), False, None, None), waits=True)
        assert rows.ended((1, 0.5, 1), (2, 0.5, 1), (at, 0.5, 1)) == due


# What is run -------------------------------------------------------------------------------------


def test_the_settings():
    """What an example tunes, with how many workers, and the flags of a point.

    Catches: AEASGD's alpha for one worker, an untuned T, a gossip of two, and two workers of
    an example that has one.
    """
    module = load("Compare")
    tuned = {
        ONE: "learning-rate",
        "HogWild": "learning-rate",
        "DynSGD": "learning-rate",
        "ADAG": "learning-rate local-steps",
        "ADAG --local-steps 4": "learning-rate",
        "ADAG, a server rate": "learning-rate local-steps server-rate",
        "AEASGD": "learning-rate local-steps rho",
        "DOWNPOUR": "learning-rate local-steps server-lr",
        "Further-Algorithms/DiLoCo": "learning-rate local-steps outer-rate",
        "Further-Algorithms/Delay-Compensation": "learning-rate compensation",
        "HogWild --learning-rate 0.5": "",
        "HogWild, A/A": "",
        module.ADAMW: "learning-rate",
    }
    task = module.TASKS[EQUAL]
    for name, flags in tuned.items():
        hyperparameters = module.hyperparameters_of(name, task)
        assert [hyperparameter.flag for hyperparameter in hyperparameters] == flags.split(), name
        assert module.hyperparameters_of(name, task, {"learning-rate": 9})[:1] == [
            hyperparameters[0]._replace(start=9)] if hyperparameters else True, name  # fmt: skip
    assert module.workers_of(task, ONE) == 1
    assert module.workers_of(task, "SAGN, a server rate") == 8
    assert module.jobs(module.TASKS["GPT"], module.ADAMW) == {"worker": 1, "ps": 1}
    assert module.workers_of(module.TASKS["digits"], "Further-Algorithms/D-PSGD") == 4
    hyperparameters = module.hyperparameters_of("AEASGD", task)
    arguments = module.flags_of_point("AEASGD", task, hyperparameters, (0, 1, 4)).split()
    assert arguments == "--learning-rate 0.1 --local-steps 3 --rho 1.125".split()
    name = "Synchronous-SGD-different-learning-rates"
    arguments = module.flags_of_point(name, task, module.hyperparameters_of(name, task), (2,))
    assert arguments == "--learning-rates 0.2,0.1"
    parts = [module.takes_part(folder, task) for folder in (ONE, "Distributed-Setup", "SAGN")]
    assert parts == [True, False, True]
    assert not module.takes_part("Horovod-RingAllReduce", module.TASKS["digits"])


def test_the_controls(tmp_path):
    """DynSGD's mean rate; the same step in the long run without momentum; updates in a call.

    Catches: a control that is its own base row, a rate at the mean staleness instead of the
    mean rate, a tenth of the step, and a row's own number of updates that 10 replaces.
    """
    module = load("Compare")
    runs = [{"histogram": [1, 1], "test_loss": 1}, {"histogram": [0, 0, 0, 2], "test_loss": 1}]
    runs.append({"histogram": [9], "test_loss": None})  # a failure
    base = {"chosen": "--learning-rate 0.4 --outer-rate 0.2", "runs": runs}
    mean = (1 + 1 / 2 + 2 / 4) / 4
    assert module.flags_at_mean_rate(base).split()[1] == f"{0.4 * mean:.4g}"
    arguments = "--learning-rate 0.4 --outer-rate 2 --outer-momentum 1e-06"
    assert module.flags_without_momentum(base) == arguments
    assert module.row_of("HogWild, A/A").first_seed == 200
    for name, row in module.SPECIAL_ROWS.items():  # the texts that it changes are there
        script = module.examples.main_script(module.folder_of(name))
        assert (
            module.examples.replaced(script, row.changes) != script.read_text() or not row.changes
        )
    own, strategy = types.SimpleNamespace(tasks=module.TASKS), "Parameter-Server-Strategy"
    for name, calls in (("HogWild", 1), (strategy, 10), (strategy + ", one a closure", 1)):
        start = module.Measurement(tmp_path, own).start(EQUAL, name, "", 0)
        assert [start.calls, int(start.flags[-3])] == [calls, calls]
    for own_flag in ("--updates-per-call 2", "--updates-per-call=2"):  # digits: without it 10
        start = module.Measurement(tmp_path, own).start("digits", f"HogWild {own_flag}", "", 0)
        assert [start.calls, int(start.flags[-3])] == [2, 2], own_flag
    assert [module.local_steps("ADAG --local-steps" + end, "") for end in (" 3", "=3")] == [3, 3]


def test_the_rows_of_compare(tmp_path):
    """Settings are tried on rows that are in no training and in no test; each has its label.

    Catches: rows in both halves or in neither, labels of other rows, and rows of the test in
    the validation.
    """
    module = load("Compare")
    random = np.random.RandomState(0)
    x, y = random.rand(1437, 3).astype("float32"), random.randint(0, 10, 1437)
    given = types.SimpleNamespace(
        **dict(x_train=x, y_train=y, x_test=-x[:360], y_test=-1 - y[:360]),
        _fields=("x_train", "y_train", "x_test", "y_test"),
    )
    whole = Data(*(getattr(given, name) for name in given._fields))
    module.examples.load = lambda path: types.SimpleNamespace(load_data=lambda name: whole)
    for name, path in module.data_files(tmp_path, False).items():
        with np.load(path) as file:
            x1, y1, x2, y2 = (file[key] for key in Data._fields)
        if name == "validation":
            check_rows(name, (x1, y1, x2[:360], y2[:360]), x, y, [1077, 1077, 360, 360])
        else:
            check_rows(name, (x1, y1, x2[:360], y2[:360]), *(
                np.concatenate(pair) for pair in ((x, -x[:360]), (y, -1 - y[:360]))
            ), [1437, 1437, 360, 360])  # fmt: skip
        assert [np.array_equal(x2[360:], x1[:360]), np.array_equal(y2[360:], y1[:360])] == [
            True
        ] * 2, name


class Data(tuple):
    """Four arrays, as an example's load_data returns them."""

    _fields = ("x_train", "y_train", "x_test", "y_test")

    def __new__(cls, *parts):
        return super().__new__(cls, parts)

    def __getattr__(self, name):
        return self[self._fields.index(name)]


def test_a_session_of_compare(tmp_path):
    """A second session goes on; a row that follows waits; each run has its own seed and delays.

    Catches: an A/A row with the seeds of its base, a setting that the test rows choose, and a
    save for which others wait.
    """
    module, starts = load("Compare"), []
    flags = types.SimpleNamespace(seeds=2, tasks=module.TASKS, anyway=True)

    def run(start, end, steps, interval, dataset, validation):
        starts.append((start, end, pathlib.Path(dataset).stem, validation))
        reached = 2.0 if "0.141" in start.flags else 3.0
        evaluations = {"seconds": [reached], "loss": [0.1], "accuracy": [0.98]}
        return {"ended": "reached", "reached": reached, "evaluations": evaluations, "took": 9,
                "updates_per_second": 100.0, "test_loss": 0.1, "others": 0.0, "seed": start.seed,
                "histogram": [1], "cv": 1, "staleness_mean": 0}  # fmt: skip

    files = {name: tmp_path / f"{name}.npz" for name in ("validation", "final")}
    module.data_files = lambda directory, streams: files
    module.one_run = types.SimpleNamespace(**vars(module.one_run))
    module.one_run.run = run
    for task, name in ((EQUAL, "HogWild, A/A"), (EQUAL, "HogWild"), (EQUAL, "HogWild, A/A")):
        module.Measurement(tmp_path, flags).measure(task, name)
    number = len(starts)
    module.Measurement(tmp_path, flags).measure(EQUAL, "HogWild")
    assert len(starts) == number
    reported = [(start.seed, data) for start, _, data, validation in starts if not validation]
    assert reported == [(seed, "final") for seed in (100, 101, 200, 201)]
    tuning = {data for _, _, data, validation in starts if validation}
    assert tuning == {"validation"}
    assert starts[-1][0].flags[:4][-2:] == ["--learning-rate", "0.141"]
    assert [end.tuning for _, end, _, validation in starts if validation != end.tuning] == []
    assert {(start.law, start.mean) for start, *_ in starts} == {(0.1, 0.03)}
    known = json.loads((tmp_path / "measured.json").read_text())[f"{EQUAL}: HogWild"]
    assert known["digest"] == digests.example_digest(support.ROOT / "HogWild/hogwild.py")
    script = support.ROOT / "HogWild" / "hogwild.py"
    changed = load(ONE_RUN).changed_texts(starts[-1][0], False)["hogwild.py"]
    assert "late(outputs, 0.1, 0.03, 8, 202)" in changed
    assert "ps.save(" in changed
    for folder in ("HogWild", "Ring-AllReduce", "SAGN", "Further-Algorithms/Sharded-Training"):
        start = starts[-1][0]._replace(script=module.examples.main_script(folder), waits=True)
        lines = load(ONE_RUN).changed_texts(start, False)[start.script.name].splitlines()
        saves = [line for line in lines if re.match(r" +(\w+\.)?save\(", line)]
        assert saves == []
    assert "test_training" not in script.read_text()


def test_the_minutes(tmp_path):
    """What is left of a plan: runs at the best setting, and tries up to the most.

    Catches: runs that are measured and count again.
    """
    module = load("Compare")
    flags = types.SimpleNamespace(seeds=5, tasks=module.TASKS)
    measurement = module.Measurement(tmp_path, flags)
    plan = [(EQUAL, "HogWild"), (EQUAL, "HogWild, A/A")]
    # 15 tries as a guess, 40 at most, twice 5 runs; 6 s and 8 s more each.
    due = tuple(math.ceil((tries + 10) * 14 / 60) for tries in (15, 40))
    assert module.estimate_minutes(measurement, plan) == due
    tries = [tried((3,), 0, 1, None, 0.1, took=10.0)]
    measurement.cases = {f"{EQUAL}: HogWild": {"tries": tries, "runs": []}}
    due = tuple(math.ceil((tries + 10) * 10 / 60) for tries in (14, 39))
    assert module.estimate_minutes(measurement, plan) == due
    measurement.cases[f"{EQUAL}: HogWild"] |= {"chosen": "", "runs": [{}] * 5}
    assert module.estimate_minutes(measurement, plan) == (1, 1)


def test_a_problem_of_ones_own(monkeypatch, capsys):
    """Catches: no single process to compare with, an example without its parent, a bad file."""
    module = load("Compare")

    def parse(*arguments):
        monkeypatch.setattr("sys.argv", ["compare", *arguments])
        return module.parse_flags()

    path = support.ROOT / "Your-Model" / "regression.py"
    flags = parse("--problem", str(path), "HogWild", "Local-SGD --local-steps 5", "--workers", "4")
    (task,) = flags.tasks.values()
    assert task.rows == [ONE, "HogWild", "Further-Algorithms/Local-SGD --local-steps 5"]
    assert (task.workers, task.seconds, flags.seeds) == (4, 20, 3)
    assert module.plan_of(flags) == [("regression", row) for row in task.rows]
    assert module.Measurement(path.parent, flags).target("regression", "HogWild", True)[0] == "loss"
    with pytest.raises(SystemExit):
        parse("--problem", str(support.ROOT / "lab" / "measure" / "idle.py"))
    assert "idle.py" in capsys.readouterr().err
    assert parse().seeds == 5 and parse("--seeds", "2").seeds == 2
