"""Roles and faults: the evaluator, an early end, files that are read while training, the drills."""

import collections
import json
import re
import subprocess
import sys
import time

import pytest
import support

HERE = support.ROOT / "Operations" / "Train-and-Evaluate"
SCRIPT, DRILLS = HERE / "train_and_evaluate.py", support.ROOT / "Operations" / "Fault-Tolerance"
TFRUN = support.ROOT / "tfrun" / "bin" / "tfrun"


class Job(support.Run):
    """A script under `tfrun --evaluator` that a test meddles with; its output goes to a file."""

    def __init__(self, script, directory, *flags, workers=2, restarts=0):
        self.directory, self.text = directory, directory.with_suffix(".txt")
        command = [TFRUN, "--ps", "1", "--workers", str(workers), "--evaluator"]
        command += ["--restarts", str(restarts), "--", script, *map(str, flags)]
        with open(self.text, "a") as output:
            self.process = subprocess.Popen(
                command,
                env=support.environment(directory, TFRUN_TIMEOUT=str(int(support.patience(120)))),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ends_well(self):
        """Waits for the end: the output."""
        code = self.process.wait(support.patience(130))
        assert code == 0, self.text.read_text()
        return self.text.read_text()


def evaluations(directory, task):
    """The evaluations of a task: [(step, accuracy)], in their order."""
    path = directory / ("metrics-%s.csv" % task)
    lines = path.read_text().splitlines()
    rows = [
        dict(zip(lines[0].split(","), line.split(","))) for line in lines[1:] if "#" not in line
    ]
    return [
        (int(row["global_step"]), float(row["test_accuracy"])) for row in rows if row["test_loss"]
    ]


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """The digits as eight files."""
    folder = tmp_path_factory.mktemp("data") / "records"
    subprocess.run([sys.executable, HERE / "write_records.py", folder], check=True, timeout=120)
    return folder


# The evaluator of the other examples.


@pytest.mark.long
def test_the_evaluator_tests_instead_of_the_chief(tmp_path):
    """Each checkpoint once, and the last; the result is its last test."""
    directory = tmp_path / "run"
    script = support.main_script("HogWild")
    with Job(script, directory, "--steps", 1500, "--checkpoint-steps", 300) as job:
        job.ends_well()
    assert evaluations(directory, "worker-0") == []
    tests = evaluations(directory, "evaluator-0")
    steps = [step for step, _ in tests]
    assert steps == sorted(set(steps)) and steps[-1] == 1500 and len(steps) >= 2, steps
    result = support.result(directory)
    assert result["test_accuracy"] == tests[-1][1] > 0.9
    assert list((directory / "evaluator").glob("events.out.tfevents.*"))


IN_CORE = ["synchronous_sgd.py"]
# Those in which a worker waits in its own way; the others wait as HogWild does.
WAITING = [*IN_CORE, "synchronous_sgd_optimizer.py", "sagn.py", "dynsgd.py", "hogwild.py"]
WAITING += ["distributed_setup_supervisor.py"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.name, marks=[] if path.name in IN_CORE else [pytest.mark.long])
        for path in support.ps_scripts()
        if path.name in WAITING
    ],
)
def test_a_file_ends_training_early(script, tmp_path):
    """The last checkpoint has exactly the updates that the workers have told of, and is tested."""
    directory = tmp_path / "run"
    workers = 1 if script.parent.name == "Distributed-Setup" else 2
    with Job(script, directory, "--steps", 10**6, workers=workers) as job:
        support.wait_until(lambda: job.step() >= 60, 60, "training")
        (directory / "stop").touch()
        began = time.monotonic()
        job.ends_well()
    assert time.monotonic() - began < support.patience(30)
    last = int((directory / "stop").read_text())
    made = [int(row["global_step"]) for row in support.pushes(directory)]
    if support.synchronous(script):  # all take part in each
        assert set(made) == set(range(1, last + 1)), (max(made), last)
    else:
        assert sorted(made) == list(range(1, last + 1))
    assert support.newest_checkpoint(directory).endswith("-%d" % last)
    assert evaluations(directory, "evaluator-0")[-1][0] == last
    result = support.result(directory)
    assert (result["steps"], result["stopped_early"]) == (last, True)


# Files that are read while training.


@pytest.fixture(scope="module")
def pipeline(records):
    """order(files, place, n): the labels and places of the next n mini-batches of eight."""
    script = support.load(SCRIPT)
    tf, flags = script.tf, collections.namedtuple("F", "seed shuffle_buffer batch_size")(3, 100, 8)

    def order(files, place, n):
        with tf.Graph().as_default(), tf.Session() as session:
            start = tf.constant(place, tf.int64)
            iterator = tf.data.make_initializable_iterator(
                script.mini_batches(files, [64], start, flags)
            )
            session.run(iterator.initializer)
            following = iterator.get_next()
            return [session.run(following) for _ in range(n)]

    return script.load_data(str(records)), order


def keys(batches):
    """A name for each example of these mini-batches, one after the other."""
    return [x.tobytes() for _, inputs, _ in batches for x in inputs]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_over_an_epoch_every_example_comes_once(workers, pipeline, records):
    data, order = pipeline
    from sklearn.datasets import load_digits

    seen, sizes = [], []
    for rank in range(workers):
        files = data.files[rank::workers]
        size = sum(1 for file in files for _ in pipeline_rows(file))
        found = keys(order(files, [0, 0], size // 8 + 2))
        first, second = found[:size], found[size:]
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


def test_who_starts_again_goes_on_where_it_was(pipeline):
    """From each place on come the mini-batches that would have come, over the end of an epoch."""
    data, order = pipeline
    files = data.files[::2]
    whole = order(files, [0, 0], 200)
    assert whole[-1][0][0] >= 1, "no second epoch: %s" % whole[-1][0]
    for at in (0, 40, 89, 150):
        again = order(files, whole[at][0], 20)
        for (place, x, y), (other, u, v) in zip(again, whole[at + 1 :]):
            assert (place == other).all() and (x == u).all() and (y == v).all(), (at, place, other)


# Train-and-Evaluate as a whole.


@pytest.mark.long
def test_the_exported_model_is_the_best_one(tmp_path):
    """run.sh: the client is right as often as the evaluator says of the best checkpoint."""
    flags = ["--steps", "400", "--checkpoint-steps", "100"]
    code, output, _ = support.launch(
        HERE / "run.sh", tmp_path / "run", *flags, RECORDS=str(tmp_path / "records")
    )
    assert code == 0, output
    tests = evaluations(tmp_path / "run", "evaluator-0")
    known = json.loads((tmp_path / "run" / "evaluator.json").read_text())
    assert known["value"] == pytest.approx(max(accuracy for _, accuracy in tests), abs=1e-6)
    right, rows = map(int, re.search(r"right: (\d+) of (\d+)", output).groups())
    assert right / rows == pytest.approx(known["value"], abs=1e-4), output
    assert "exported %s" % (tmp_path / "run" / "best" / known["best"]) in output
    best = {path.name.split(".")[1] for path in (tmp_path / "run" / "best").iterdir()}
    assert len(best) == 1 and known["best"].endswith(best.pop())


@pytest.mark.long
def test_training_ends_when_nothing_gets_better(records, tmp_path):
    """A rate of almost nothing: after three tests the evaluator ends it."""
    directory = tmp_path / "run"
    flags = ["--dataset", records, "--steps", 10**6, "--learning-rate", 1e-12]
    flags += ["--checkpoint-steps", 50, "--early-stopping", 3]
    with Job(SCRIPT, directory, *flags) as job:
        output = job.ends_well()
    assert "no better one in 3 tests" in output
    tests = evaluations(directory, "evaluator-0")
    assert tests[-1][0] == int((directory / "stop").read_text())


@pytest.mark.long
def test_an_evaluator_that_dies_tests_no_checkpoint_twice(records, tmp_path):
    directory = tmp_path / "run"
    flags = ["--dataset", records, "--steps", 10**6, "--checkpoint-steps", 100]
    flags += ["--early-stopping", 0]
    with Job(SCRIPT, directory, *flags, restarts=9) as job:
        for kills in range(2):
            count = len(evaluations(directory, "evaluator-0")) if kills else 0
            support.wait_until(
                lambda n=count: (
                    (directory / "metrics-evaluator-0.csv").exists()
                    and len(evaluations(directory, "evaluator-0")) > n + 1
                ),
                60,
                "two more tests",
            )
            support.task(directory, "evaluator", 0).kill()
        (directory / "stop").touch()
        output = job.ends_well()
    assert output.count("evaluator 0 was killed by SIGKILL; it starts again") == 2
    tests = evaluations(directory, "evaluator-0")
    steps = [step for step, _ in tests]
    # A kill between a test and the note of it may repeat that one.
    assert len(steps) - len(set(steps)) <= 2 and steps == sorted(steps), steps
    assert steps[-1] == int((directory / "stop").read_text())
    known = json.loads((directory / "evaluator.json").read_text())
    assert known["value"] == pytest.approx(max(accuracy for _, accuracy in tests), abs=1e-6)


@pytest.mark.long
def test_a_worker_that_dies_repeats_one_mini_batch_at_most(records, tmp_path):
    """The places in the last checkpoint against the pushes that each worker has told of."""
    import tensorflow as tf

    directory = tmp_path / "run"
    flags = ["--dataset", records, "--steps", 10**6, "--early-stopping", 0]
    with Job(SCRIPT, directory, *flags, restarts=9) as job:
        for _ in range(2):
            before = len([row for row in support.pushes(directory)]) if directory.exists() else 0
            support.wait_until(
                lambda n=before: (
                    (directory / "metrics-worker-1.csv").exists()
                    and len(support.pushes(directory)) > n + 300
                    and support.task(directory, "worker", 1)
                ),
                60,
                "training",
            )
            support.task(directory, "worker", 1).kill()
        count = (directory / "metrics-worker-1.csv").read_text().count("\n")
        support.wait_until(
            lambda: (directory / "metrics-worker-1.csv").read_text().count("\n") > count + 50,
            60,
            "worker 1 trains again",
        )
        (directory / "stop").touch()
        job.ends_well()
    reader = tf.train.load_checkpoint(str(directory))
    data = support.load(SCRIPT).load_data(str(records))
    pushes = support.result(directory)["pushes_per_worker"]
    for rank, (kills, count) in enumerate(zip((0, 2), pushes)):
        size = sum(1 for file in data.files[rank::2] for _ in pipeline_rows(file))
        epoch, read = reader.get_tensor("place_%d_of_2" % rank)
        # A kill can also lose the line of a push that was made.
        assert abs(32 * count - (epoch * size + read)) <= 32 * kills, (rank, count, epoch, read)


# The drills.


def drills(directory, *flags):
    """(the exit code, the output) of the drills."""
    done = subprocess.run(
        [sys.executable, DRILLS / "fault_tolerance.py", *flags],
        env=support.environment(directory),
        capture_output=True,
        text=True,
        timeout=support.patience(200),
    )
    return done.returncode, done.stdout + done.stderr


NAMES = [line.split(":")[0] for line in drills("unused", "--list")[1].splitlines()]


# The chief is a worker, so its two drills say the same of any; test_synchronous stops one for good.
TESTED_ELSEWHERE = "SIG[A-Z]+ of a worker.*|Synchronous, a worker stops for good"
OTHERS = [name for name in NAMES if not re.fullmatch(TESTED_ELSEWHERE, name)]


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_a_promise_is_kept(name, tmp_path):
    code, output = drills(tmp_path, "--only", name)
    assert code == 0, output
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == [name] and not results[name]["broken"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["SIGSTOP of a ps for 10 s"])
def test_without_recovery_a_promise_is_broken(name, tmp_path):
    """And the drill says so; all of them, in the results that are committed."""
    code, output = drills(tmp_path, "--without-recovery", "--only", name)
    assert code == 0 and "broken: " in output, output
