"""Roles and faults: the evaluator, an early end, files that are read while training, the drills."""

import collections
import json
import re
import shutil
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import support
from lab import examples
from problem import digits_like
from tfrun.commands import evaluate
from tfrun.runs.data import RunData

HERE = support.ROOT / "Operations" / "Train-and-Evaluate"
SCRIPT, DRILLS = HERE / "train_and_evaluate.py", support.ROOT / "Operations" / "Fault-Tolerance"
TFRUN = support.ROOT / "tfrun" / "bin" / "tfrun"


class Job(support.Run):
    """Train-and-Evaluate, while a test does something to it; its output goes to a file."""

    def __init__(self, records, directory, *flags, restarts=0):
        self.directory, self.text = directory, directory.with_suffix(".txt")
        command = [TFRUN, "--ps", "1", "--workers", "2", "--own-evaluator"]
        command += ["--restarts", str(restarts), "--", SCRIPT, "--dataset", records]
        command += map(str, flags)
        with open(self.text, "a") as output:
            self.process = subprocess.Popen(
                command,
                env=support.warm_environment(directory, **support.at_most(120)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ends_well(self):
        """Waits for the end; returns the output."""
        code = support.wait_for_exit(self.process, 130)
        assert code == 0, self.text.read_text()
        return self.text.read_text()


def evaluations(directory, task="evaluator-0"):
    """Returns the tests of a task, [(step, accuracy)] in their order."""
    tests = RunData.read(directory).rows("tests", task)
    return [(int(row["global_step"]), row["test_accuracy"]) for row in tests]


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """The digits as eight files."""
    folder = tmp_path_factory.mktemp("data") / "records"
    subprocess.run([sys.executable, HERE / "write_records.py", folder], check=True, timeout=120)
    return folder


def steps_of_tests(directory):
    """Returns the steps of the evaluator's tests: each once, in order, to the last update."""
    steps = [step for step, _ in evaluations(directory)]
    assert steps == sorted(set(steps)) and steps[-1] == int((directory / "stop").read_text())
    return steps


def updates(directory):
    """Returns the updates of which the workers have written a line, sorted."""
    return sorted(int(row["global_step"]) for row in support.pushes(directory))


# Files that are read while training.


@pytest.fixture(scope="module")
def pipeline(records):
    """(the data; order(files, place, n): the next n mini-batches of eight, with their places)"""
    script = examples.load(SCRIPT)
    tf, flags = script.tf, collections.namedtuple("F", "seed shuffle_buffer batch_size")(3, 100, 8)

    def order(files, place, n):
        batches = script.mini_batches(files, [64], tf.constant(place, tf.int64), flags)
        return [[part.numpy() for part in batch] for batch in batches.take(n)]

    return script.load_data(str(records)), order


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_over_an_epoch_every_example_comes_once(workers, pipeline, records):
    data, order = pipeline
    from sklearn.datasets import load_digits

    seen, sizes = [], []
    for rank in range(workers):
        files = data.files[rank::workers]
        size = sum(1 for file in files for _ in pipeline_rows(file))
        batches = order(files, [0, 0], size // 8 + 2)
        examples = [x.tobytes() for _, inputs, _ in batches for x in inputs]
        first, second = examples[:size], examples[size:]
        assert first[: len(second)] != second, "the second epoch has the order of the first"
        assert set(second) <= set(first)
        seen += first
        sizes.append(size)
    x = (load_digits(return_X_y=True)[0] / 16).astype("float32")
    everything = collections.Counter(row.tobytes() for row in x)
    test = collections.Counter(row.tobytes() for row in data.x_test)
    assert collections.Counter(seen) == everything - test
    assert sum(sizes) == json.loads((records / "records.json").read_text())["train_rows"]


def pipeline_rows(file):
    """The examples of a file, as bytes."""
    import tensorflow as tf

    return tf.data.TFRecordDataset(file).as_numpy_iterator()


@pytest.mark.long
def test_who_starts_again_goes_on_where_it_was(pipeline):
    """From each place on come the mini-batches that would have come, over the end of an epoch."""
    data, order = pipeline
    files = data.files[::2]
    whole = order(files, [0, 0], 200)
    assert whole[-1][0][0] >= 1, f"no second epoch: {whole[-1][0]}"
    for at in (0, 40, 89, 150):
        again = order(files, whole[at][0], 20)
        for (place, x, y), (other, u, v) in zip(again, whole[at + 1 :]):
            assert (place == other).all() and (x == u).all() and (y == v).all(), (at, place, other)


# The evaluator alone, with a chief that saves checkpoints and trains nothing.


class Chief:
    """Saves the parameters of a model as a chief does, which keeps five checkpoints."""

    def __init__(self, script, model, directory, step):
        self.script, self.directory, self.step = script, directory, step
        self.vectors = script.vectors_of(model)

    def save(self, times=1):
        """Saves so many times. If the file `stop` is there, it writes its last update into it."""
        if (self.directory / "stop").exists():
            (self.directory / "stop").write_text(str(self.step))
            return
        for _ in range(times):
            self.step += 10
            path = f"{self.directory}/model.ckpt-{self.step}_temp/0"
            saved = [(name, f"{v.size} 0,{v.size}", v) for name, v in self.vectors.items()]
            self.script.write(path, [*saved, ("global_step", "", np.int64(self.step))])
            self.script.merge(str(self.directory), self.step, [path])


def judged(directory, monkeypatch, steps, patience=0, begin=0, in_a_test=1, lost=0):
    """Runs judge() up to the update `steps`; returns (steps of its tests, names in best/).

    The parameters stay the same, so the first test is the best. begin: the chief's last update
    before. in_a_test: how often the chief saves during a test. lost: how many checkpoints it
    removes as soon as the evaluator has found them.
    """
    script = examples.load(SCRIPT)
    x, y = digits_like()[2:]
    data = script.Data([], x, y, [6], 3)
    script.keras.utils.set_random_seed(0)  # the same parameters each time
    model = script.make_model(data)
    directory.mkdir(exist_ok=True)
    chief = Chief(script, model, directory, begin)
    chief.save()
    write_test, find = script.Metrics.test, script.tf.train.latest_checkpoint

    def test(*row):
        chief.save(in_a_test)
        write_test(*row)

    def latest_checkpoint(folder):
        nonlocal lost
        path = find(folder)
        if lost:
            lost -= 1
            chief.save(5)
        return path

    script.Metrics.test = test
    flags = types.SimpleNamespace(steps=steps, early_stopping=patience, checkpoint_timeout=5)
    cluster = types.SimpleNamespace(directory=str(directory), rank=None, workers=[], ps=[])
    with monkeypatch.context() as patch:
        patch.setattr(script.tf.train, "latest_checkpoint", latest_checkpoint)
        best = script.judge(cluster, model, data, flags)
    tests = list(script.read_tests(str(directory)))
    assert best == f"{directory}/best/model.ckpt-{min(tests)}"
    return tests, {path.stem for path in (directory / "best").iterdir()}


def test_the_best_checkpoint_outlives_a_long_test(tmp_path, monkeypatch):
    """best/ holds the best one although the chief has removed it during its test.

    Catches an evaluator that keeps a checkpoint only when it has been tested.
    """
    directory = tmp_path / "run"
    tests, names = judged(directory, monkeypatch, 130, in_a_test=6)
    assert tests == [10, 70, 130]
    assert names == {"model.ckpt-10"}
    assert not (directory / "model.ckpt-10.index").exists()
    assert np.isfinite(saved(directory / "best" / "model.ckpt-10", "w")).all()


def test_a_checkpoint_that_was_just_removed_is_not_tested(tmp_path, monkeypatch):
    """Catches an evaluator that dies of it, in place of taking a newer one."""
    assert judged(tmp_path / "run", monkeypatch, 210, lost=4) == ([210], {"model.ckpt-210"})


def test_early_stopping_ends_each_run(tmp_path, monkeypatch):
    """Catches one that ends a directory's first run only, and one that ends the next at once.

    After `stop` comes the chief's last checkpoint, which is tested, too.
    """
    for begin in 0, 50:
        tests, names = judged(tmp_path / "run", monkeypatch, 300, patience=3, begin=begin)
        # The first run has its best test at update 10, and the second has none.
        assert tests == list(range(10, 60 if begin == 0 else 100, 10)), begin
        assert names == {"model.ckpt-10"}
        (tmp_path / "run" / "stop").unlink()


# Train-and-Evaluate as a whole.


@pytest.fixture(scope="module")
def stopped(records, tmp_path_factory):
    """Returns the directory of a run that a file `stop` has ended."""
    directory = tmp_path_factory.mktemp("stopped") / "run"
    with Job(records, directory, "--steps", 10**6, "--checkpoint-steps", 100) as job:

        def learned():
            tests = evaluations(directory)
            return len(tests) >= 2 and tests[-1][1] > 0.97

        support.wait_until(learned, 60, "two tests, and a model that has learned")
        (directory / "stop").touch()
        began = time.monotonic()
        job.ends_well()
    assert time.monotonic() - began < support.patience(30)
    return directory


@pytest.mark.long
def test_a_file_ends_training_early(stopped):
    """The last checkpoint holds exactly the updates of which the workers have written a line."""
    last = int((stopped / "stop").read_text())
    assert updates(stopped) == list(range(1, last + 1))
    checkpoint = support.newest_checkpoint(stopped)
    assert checkpoint.endswith("-%d" % last) and saved(checkpoint, "global_step") == last
    result = support.result(stopped)
    assert (result["steps"], result["stopped_early"]) == (last, True)


@pytest.mark.long
def test_only_the_evaluator_tests(stopped):
    """It tests checkpoints once each, in their order and up to the last; the chief tests none."""
    assert len(steps_of_tests(stopped)) >= 2
    assert evaluations(stopped, "worker-0") == []
    assert support.result(stopped)["test_accuracy"] == evaluations(stopped)[-1][1] > 0.9


@pytest.mark.long
def test_tfrun_evaluate_agrees(stopped, tmp_path):
    """`tfrun evaluate` finds the same loss and accuracy of the last checkpoint."""
    copy = tmp_path / "copy"
    shutil.copytree(stopped, copy, ignore=shutil.ignore_patterns("metrics-evaluator-0.csv"))
    assert evaluate.command([str(copy)]) == 0
    both = [RunData.read(path).rows("tests", evaluate.TASK)[-1] for path in (stopped, copy)]
    for column in ("global_step", "test_loss", "test_accuracy"):
        assert both[0][column] == pytest.approx(both[1][column], abs=1e-5), column


@pytest.mark.long
def test_a_stopped_run_goes_on(stopped, records, tmp_path):
    """Without the file `stop`, from the update after the last; what was tested stays tested."""
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    last = int((directory / "stop").read_text())
    (directory / "stop").unlink()
    with Job(records, directory, "--steps", last + 300, "--checkpoint-steps", 100) as job:
        job.ends_well()
    assert updates(directory) == list(range(1, last + 301))
    steps = [step for step, _ in evaluations(directory)]
    assert steps == sorted(set(steps)) and steps[-1] == last + 300


def saved(checkpoint, name):
    """Returns the value of a tensor in a checkpoint."""
    import tensorflow as tf

    return tf.train.load_checkpoint(str(checkpoint)).get_tensor(name)


@pytest.mark.long
def test_training_ends_when_nothing_gets_better(records, tmp_path):
    """A rate of almost nothing: the evaluator ends it after three tests."""
    directory = tmp_path / "run"
    flags = ["--steps", 10**6, "--learning-rate", 1e-12]
    flags += ["--checkpoint-steps", 50, "--early-stopping", 3]
    with Job(records, directory, *flags) as job:
        output = job.ends_well()
    assert "no better one in 3 tests" in output
    assert evaluations(directory)[-1][0] == int((directory / "stop").read_text())


@pytest.mark.long
def test_an_evaluator_that_dies_tests_no_checkpoint_twice(records, tmp_path):
    directory = tmp_path / "run"
    flags = ["--steps", 10**6, "--checkpoint-steps", 100]
    with Job(records, directory, *flags, restarts=9) as job:
        for _ in range(2):
            count = len(evaluations(directory))
            support.wait_until(
                lambda n=count: len(evaluations(directory)) > n + 1, 60, "two more tests"
            )
            support.task(directory, "evaluator", 0).kill()
        (directory / "stop").touch()
        output = job.ends_well()
    assert output.count("evaluator 0 was killed by SIGKILL; it starts again") == 2
    assert steps_of_tests(directory)
    best = max(evaluations(directory), key=lambda test: test[1])[0]
    assert {path.stem for path in (directory / "best").iterdir()} == {"model.ckpt-%d" % best}


def rows_read(checkpoint, data, rank):
    """Returns how many rows worker `rank` of two has read, as its place in a checkpoint says."""
    epoch, read = saved(checkpoint, "places_of_2")[rank]
    size = sum(1 for file in data.files[rank::2] for _ in pipeline_rows(file))
    return epoch * size + read


@pytest.mark.long
def test_a_worker_that_dies_repeats_one_mini_batch_at_most(records, tmp_path):
    """The places in the last checkpoint against the pushes of which each worker has a line."""
    directory = tmp_path / "run"
    metrics = directory / "metrics-worker-1.csv"

    def lines():
        return metrics.read_text().count("\n") if metrics.exists() else 0

    with Job(records, directory, "--steps", 10**6, restarts=9) as job:
        for _ in range(2):
            before = lines()
            support.wait_until(lambda n=before: lines() > n + 150, 60, "worker 1 trains")
            support.task(directory, "worker", 1).kill()
        before = lines()
        support.wait_until(lambda: lines() > before + 50, 60, "worker 1 trains again")
        (directory / "stop").touch()
        job.ends_well()
    data = examples.load(SCRIPT).load_data(str(records))
    pushes = support.result(directory)["pushes_per_worker"]
    for rank, (kills, count) in enumerate(zip((0, 2), pushes)):
        read = rows_read(support.newest_checkpoint(directory), data, rank)
        # A kill can also lose the line of a push that was made.
        assert abs(32 * count - read) <= 32 * kills, (rank, count, read)


# The drills.


def drills(directory, *flags):
    """(the exit code, the output) of the drills."""
    command = [sys.executable, DRILLS / "fault_tolerance.py", *flags]
    done = support.run_to_end(*command, seconds=200, env=support.environment(directory))
    return done.returncode, done.stdout + done.stderr


LIST = support.run_to_end(sys.executable, DRILLS / "fault_tolerance.py", "--list").stdout
NAMES = [line.split(":")[0] for line in LIST.splitlines()]


# test_recovery kills a task, too; test_tfrun kills tfrun; test_synchronous stops a worker; and
# test_bad_input has another chief.
BY_NIGHT = "SIGKILL of .*|SIGSTOP of .*|Synchronous, .*|A second chief .*"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.nightly if re.fullmatch(BY_NIGHT, name) else pytest.mark.long,
        )
        for name in NAMES
    ],
)
def test_a_promise_is_kept(name, tmp_path):
    slack = support.patience(2)  # beside another test
    code, output = drills(tmp_path, "--only", name, "--slack", str(slack))
    assert code == 0, output
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == [name] and not results[name]["broken"]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_without_recovery_a_promise_is_broken(tmp_path):
    """And the drill says so; all of them, in the results that are committed."""
    code, output = drills(tmp_path, "--without-recovery", "--only", "SIGSTOP of a ps for 10 s")
    assert code == 0 and "broken: " in output, output
