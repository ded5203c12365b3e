"""tfrun --patience: after which test a run ends, and what it leaves; its tasks follow a script."""

import argparse
import json

import pytest
import scripted
from tfrun.runs import early_stop, metrics_csv, run_directory

HEADER = ",".join([*metrics_csv.PUSH, "test_loss", "test_accuracy"])
FLAGS = dict.fromkeys(run_directory.FLAGS, {}) | {
    "metrics": {"test_loss": "min", "test_accuracy": "max"}
}


def row_of_test(step, loss, accuracy=0.5):
    """Returns a test as a line of metrics."""
    return f"{step},{step - 1},{step},,,,,,,{loss},{accuracy}\n"


def row_of_push(step):
    """Returns a push as a line of metrics."""
    return f"{step},{step - 1},{step},1,32,0.7,0,8,0.1,,\n"


@pytest.fixture
def directory(tmp_path):
    """Returns a run directory, as a chief begins it."""
    path = tmp_path / "E" / "run"
    path.mkdir(parents=True)
    (path / "flags.json").write_text(json.dumps(FLAGS))
    return path


def saved(directory, step):
    """Writes what names the last checkpoint."""
    (directory / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')


def write(directory, *rows, task="worker-0"):
    """Writes rows into the metrics of a task, behind those that are there."""
    path = directory / f"metrics-{task}.csv"
    text = path.read_text() if path.exists() else HEADER + "\n"
    path.write_text(text + "".join(rows))


@pytest.mark.parametrize(
    "losses, accuracies, asked, last",
    [
        ([0.9, 0.5, 0.6, 0.7], None, early_stop.Patience(2), 40),
        ([0.9, 0.5, 0.6, 0.7], None, early_stop.Patience(3), None),
        ([0.9, 0.8, 0.7, 0.6], None, early_stop.Patience(1), None),
        ([0.5, 0.5, 0.5], None, early_stop.Patience(2), 30),  # as good is no better
        ([0.9, 0.5, 0.4], None, early_stop.Patience(1), None),  # the last is the best
        ([0.9, 0.5, 0.6], [0.1, 0.2, 0.3], early_stop.Patience(1, "accuracy"), None),
        ([0.9, 0.8, 0.7], [0.3, 0.2, 0.1], early_stop.Patience(2, "accuracy"), 30),
        ([0.9, 0.8, 0.7], ["nan", 0.5, 0.6], early_stop.Patience(1, "accuracy"), None),
    ],
)
def test_when_a_run_ends(losses, accuracies, asked, last, directory):
    """Catches one test too few or too many, a metric in the wrong direction, and another metric."""
    tests = early_stop.Tests(directory)
    for number, loss in enumerate(losses):
        step = 10 * (number + 1)
        write(directory, row_of_push(step), row_of_test(step, loss, (accuracies or losses)[number]))
        saved(directory, step)
        due = tests.end(asked)
        assert (due and due[0]) == (last if step == last else None)


def test_what_counts_as_a_test(directory):
    """Catches tests of an earlier start, half a line, and one update that two tasks have tested."""
    write(directory, *(row_of_test(step, 0.1) for step in (10, 20, 30)))
    tests, asked = early_stop.Tests(directory), early_stop.Patience(2)
    saved(directory, 60)
    write(directory, row_of_test(40, 0.5), row_of_test(50, 0.6))
    write(directory, row_of_test(40, 0.5), row_of_test(50, 0.6), task="evaluator-0")
    assert tests.end(asked) is None
    write(directory, row_of_test(60, 0.7)[:-3])
    assert tests.end(asked) is None
    write(directory, row_of_test(60, 0.7)[-3:])
    assert tests.end(asked)[0] == 60


def test_a_test_of_a_w_that_was_lost(directory):
    """Catches a best value of updates after the checkpoint from which the run went on."""
    tests, asked = early_stop.Tests(directory), early_stop.Patience(2)
    write(directory, row_of_test(10, 0.5), row_of_test(20, 0.1))
    saved(directory, 40)
    assert tests.end(asked) is None
    write(directory, "# restart\n", row_of_test(20, 0.4), row_of_test(30, 0.3))
    assert tests.end(asked) is None
    write(directory, row_of_test(40, 0.35))
    assert tests.end(asked) is None


def test_a_metric_without_a_column(directory):
    """Catches a KeyError where METRICS has changed since the metrics began."""
    flags = {**FLAGS, "metrics": {"test_loss": "min", "test_f1": "max"}}
    (directory / "flags.json").write_text(json.dumps(flags))
    tests = early_stop.Tests(directory)
    write(directory, row_of_test(10, 0.5))
    with pytest.raises(ValueError, match="no column test_f1: use a new OUTPUT_DIR"):
        tests.end(early_stop.Patience(1, "f1"))


def test_it_waits_for_the_checkpoint(directory):
    """Catches a run that ends between the test and the checkpoint of what was tested."""
    tests, asked = early_stop.Tests(directory), early_stop.Patience(1)
    write(directory, row_of_test(10, 0.5), row_of_test(20, 0.6))
    assert tests.end(asked) is None
    saved(directory, 10)
    assert tests.end(asked) is None
    saved(directory, 20)
    assert tests.end(asked)[0] == 20


@pytest.mark.parametrize("text", ["0", "-1", "accuracy", "accuracy=", "1.5", ""])
def test_a_bad_flag(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of tests"):
        early_stop.patience(text)


@pytest.mark.parametrize(
    "asked, code, words",
    [
        (None, 0, ""),
        (early_stop.Patience(2), 0, "test loss 0.5 after update 10 is the best"),
        (early_stop.Patience(2, "f1"), 2, "names f1, and the tests have loss, accuracy"),
    ],
)
def test_a_run_ends_early(asked, code, words, directory, tmp_path, monkeypatch):
    """Catches tasks that fail, or start again, because the run has ended, and a note too many."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()

    def tested():
        write(
            directory, *(row_of_test(10 * (i + 1), loss) for i, loss in enumerate([0.5, 0.6, 0.7]))
        )
        saved(directory, 30)

    world = scripted.World(
        tmp_path,
        monkeypatch,
        {"ps 0": [[(31, 0)]], "worker 0": [[(3, tested), (30, 0)]], "worker 1": [[(30, 0)]]},
    )
    result, run = world.run({"worker": 2, "ps": 1}, patience=asked, restarts=1)
    assert result == code and run.done == (code == 0)
    assert not words or any(words in text for text in world.texts())
    assert len(world.starts) == 3 and world.second() < (40 if asked is None else 6)
    assert run_directory.stopped_at(directory) == (30 if asked and not code else None)
