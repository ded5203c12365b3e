"""Whether tfrun sees that a task has loaded other data than the chief."""

import collections
import json

import numpy as np
import pytest
import support
from lab import examples
from run_files import flags, metrics, push, test
from small_scripts import run, write
from tfrun.commands.summary import conclude
from tfrun.runs.same_data import DataLines

Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DRAW = np.random.RandomState(0)
DATA = Data(
    DRAW.randn(40, 6).astype("float32"),
    DRAW.randint(0, 10, 40).astype("int32"),
    DRAW.randn(8, 6).astype("float32"),
    DRAW.randint(0, 10, 8).astype("int32"),
)


def line(rows=40, columns=6, value=1.0, norm=10.0, **more):
    """Returns what a task writes about its data."""
    return "# data " + json.dumps({"x_train": [[rows, columns], value, norm], **more})


def difference_of(folder, *lines, chief="worker-0"):
    """Returns the difference between a chief's line and these of worker 1."""
    metrics(folder, chief, line())
    metrics(folder, "worker-1", *lines)
    return DataLines(folder).difference()


CASES = {
    "rows": (line(rows=1037), "x_train has 1,037 rows, not 40"),
    "columns": (line(columns=7), "x_train has rows of shape [7], not [6]"),
    "values": (line(value=1.01), "other values, or another order of rows, in x_train"),
    "just outside": (line(value=1.0002), "other values, or another order of rows, in x_train"),
}


@pytest.mark.parametrize("chief", ["worker-0", "chief-0"])
@pytest.mark.parametrize("case", CASES)
def test_other_data_is_named(case, chief, tmp_path):
    """Catches a branch that says nothing, or the numbers of one task for those of the other."""
    name = chief.replace("-", " ")
    due = f"worker 1 has other data than {name}: {CASES[case][1]}"
    assert difference_of(tmp_path, CASES[case][0], chief=chief) == due


@pytest.mark.parametrize(
    "lines",
    [
        [line()],
        [line(value=1.0001)],  # 1e-5 of a norm of 10
        [line(value=float("nan"))],  # the script itself refuses it
        [line(rows=7), "# restart", line()],
        [line(), "# restart", line(rows=7)[:-9] + "# restart"],  # cut short by a kill
        [push(1, 1)],  # of an older script
        [],
    ],
    ids=range(7),
)
def test_the_same_data_are_right(lines, tmp_path):
    """Catches a run that is stopped for the rounding of another processor, or for a line of old."""
    assert difference_of(tmp_path, *lines) is None


def test_the_last_start_counts(tmp_path):
    """Catches a file that changes while a run goes on, and a run that has gone on with others."""
    metrics(tmp_path, "worker-0", line(), "# restart", line(rows=7))
    metrics(tmp_path, "worker-1", line())  # it has not taken part in the chief's last start
    live, after = DataLines(tmp_path, is_live=True), DataLines(tmp_path)
    assert live.difference() is None and after.difference() is None
    for task, text in ("worker-0", line(rows=7)), ("worker-1", line()):
        assert live.difference() is None
        with open(tmp_path / f"metrics-{task}.csv", "a") as file:
            file.write(f"# restart\n{text[:20]}")
            file.flush()
            assert live.difference() is None  # half of a line
            file.write(text[20:] + "\n")
    assert "x_train has 40 rows, not 7" in live.difference()
    metrics(tmp_path, "worker-5", line(rows=9))  # one joins
    metrics(tmp_path, "worker-1", line(rows=7))
    assert "worker 5 has other data than worker 0" in DataLines(tmp_path).difference()


def changed(**parts):
    """Returns DATA with other arrays."""
    return DATA._replace(**parts)


def one_more(part, size=1):
    """Returns a copy of an array with another last value."""
    part = part.copy()
    part[-1] += size
    return part


ORDER = np.random.RandomState(1).permutation(40)
OTHERS = {
    "the same": (DATA, None),
    "rounding": (changed(x_train=DATA.x_train * np.float32(1 + 2e-7)), None),
    "a label": (changed(y_train=one_more(DATA.y_train)), "y_train"),
    "a value of the test": (changed(x_test=one_more(DATA.x_test, 0.01)), "x_test"),
    "rows": (changed(x_train=DATA.x_train[ORDER], y_train=DATA.y_train[ORDER]), "x_train, y_train"),
    "columns": (changed(x_train=DATA.x_train[:, ::-1]), "x_train"),
}


@pytest.mark.parametrize("name", ["HogWild", "Collective-AllReduce"])
@pytest.mark.parametrize("case", OTHERS)
def test_scripts_write_what_tells_data_apart(case, name, tmp_path, monkeypatch):
    """Catches a sum that lacks an array or a value, or knows no order."""
    module = examples.load(examples.main_script(name))
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    for index, data in enumerate([DATA, OTHERS[case][0]]):
        task = "worker", index
        metrics = object.__new__(module.Metrics)
        if name == "HogWild":
            metrics.directory = str(tmp_path)
            metrics.begin(*task, data)
        else:
            metrics.file = open(tmp_path / f"metrics-worker-{index}.csv", "a")
            metrics.describe(data)
        metrics.file.close()
    difference = DataLines(tmp_path).difference()
    where = OTHERS[case][1]
    assert difference == (where and f"worker 1 has other data than worker 0: {where_of(where)}")


def where_of(arrays):
    """Returns the end of the sentence."""
    return f"other values, or another order of rows, in {arrays}"


def test_a_result_says_it(tmp_path):
    """Catches a wrong result with exit code 0, of a run that tfrun did not start."""
    flags(tmp_path, steps=2)
    metrics(tmp_path, "worker-0", line(), push(1, 1), test(2, 2, 0.9, 0.5))
    metrics(tmp_path, "worker-1", line(rows=7), push(1.5, 2))
    lines = []
    assert conclude(tmp_path, 0, lines.append) == 1
    assert lines[0] == "worker 1 has other data than worker 0: x_train has 7 rows, not 40"
    done = support.tfrun("summary", str(tmp_path))
    assert done.returncode == 1 and lines[0] in done.stderr
    assert json.loads(done.stdout)["other_data"] == lines[0]
    metrics(tmp_path, "worker-1", line(), push(1.5, 2))
    done = support.tfrun("summary", str(tmp_path))
    assert done.returncode == 0 and "other_data" not in json.loads(done.stdout)


WORKER = f"""
import run_files
index == 1 and time.sleep(1)
run_files.metrics("run", f"worker-{{index}}", [{line()!r}, {line(rows=7)!r}][index])
"""


@pytest.mark.parametrize("end", ["time.sleep(60)", "sys.exit(7 * index)", "pass"])
def test_tfrun_stops_a_run_with_other_data(end, tmp_path):
    """Catches a check that comes too late for a task that fails, or is done at once."""
    write(tmp_path, WORKER + end + "\n")
    code, lines = run(tmp_path, "--workers", "2", "--restarts", "3")
    message = "worker 1 has other data than worker 0: x_train has 7 rows, not 40. `load_data()` "
    assert code == 1 and message in lines[-1], lines
    assert not any("starts again" in line for line in lines)
