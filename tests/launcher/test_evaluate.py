"""tfrun evaluate and tfrun export: checkpoints of a real run, and of known values."""

import json
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import support
from lab import examples
from tfrun.commands import evaluate, export
from tfrun.runs import metrics_csv
from tfrun.runs.data import RunData

TFRUN = support.ROOT / "tfrun" / "bin" / "tfrun"

# A script as far as tfrun uses it: two layers of equal size, a frozen one, and
# BatchNormalization's state.
SCRIPT = """
import collections
import keras
import numpy as np

def load_data(name):
    x = np.random.RandomState(0).rand(40, 8).astype("float32")
    y = (np.arange(40) % 3).astype("int32")
    Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
    return Data(x[:10], y[:10], x[10:], y[10:])

def make_model(data):
    return keras.Sequential([
        keras.Input([8]), keras.layers.Dense(8, name="one"), keras.layers.Dense(8, name="two"),
        keras.layers.Dense(8, use_bias=False, trainable=False, name="frozen"),
        keras.layers.BatchNormalization(), keras.layers.Dense(3)])

def loss(y, outputs):
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)

METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
"""
SHAPES = [(8, 8), (8,), (8, 8), (8,), (8,), (8,), (8, 3), (3,)]
STATE_SHAPES = [(8, 8), (8,), (8,)]
LAYERS = ["one/kernel", "one/bias", "two/kernel", "two/bias", "batch_normalization/gamma"]
LAYERS += ["batch_normalization/beta", "dense/kernel", "dense/bias"]


def evaluations_of(directory, task="evaluator-0"):
    """Returns the tests of a task in their order, each as {column: number}."""
    return RunData.read(directory).rows("tests", task)


def steps_tested(directory):
    """Returns the steps of the evaluator's tests, in their order."""
    return [int(row["global_step"]) for row in evaluations_of(directory)]


# A real run.


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """(the directory of a HogWild run that tfrun --evaluator has started, what it printed)"""
    directory = tmp_path_factory.mktemp("real") / "run"
    script = examples.main_script("HogWild")
    command = [TFRUN, "--ps", "1", "--workers", "2", "--evaluator", "--"]
    done = subprocess.run(
        [*command, script, "--steps", "4000", "--checkpoint-steps", "100"],
        env=support.warm_environment(directory, **support.at_most(120)),
        capture_output=True,
        text=True,
        timeout=support.patience(150),
    )
    assert done.returncode == 0, done.stdout
    return directory, done.stdout


@pytest.mark.long
def test_an_evaluator_beside_a_run_that_trains(real):
    """It tests each newest checkpoint once, and the run waits for it; it prints with its name.

    That it may begin before the run is in test_follow.

    Catches an evaluator that tests a checkpoint twice, that stops before the last, or that is
    stopped in its last test.
    """
    directory, printed = real
    assert "\n[evaluator 0] " in printed
    steps = steps_tested(directory)
    assert steps == sorted(set(steps)) and steps[-1] == 4000 and len(steps) >= 2, steps
    assert support.result(directory)["steps"] == 4000


@pytest.mark.long
def test_it_equals_the_test_of_the_chief(real, tmp_path):
    """tfrun evaluate gives what the chief's last test gave, of the same parameters.

    Catches an evaluator that tests the training rows, or the first values of the parameters.
    """
    copy = tmp_path / "copy"
    shutil.copytree(real[0], copy, ignore=shutil.ignore_patterns("metrics-evaluator-0.csv"))
    assert evaluate.command([str(copy)]) == 0
    mine, due = evaluations_of(copy)[-1], evaluations_of(copy, "worker-0")[-1]
    assert mine["global_step"] == due["global_step"] == 4000
    for name in "test_loss", "test_accuracy":
        assert mine[name] == pytest.approx(due[name], abs=1e-5), name
    assert mine["pull_time"] < mine["push_time"] and mine["pull_time"] > due["push_time"]


def test_a_script_does_not_evaluate(tmp_path):
    """As a task of the type evaluator it ends with one sentence that tfrun explains."""
    script = examples.main_script("HogWild")
    cluster, task = {"ps": ["a:1"], "worker": ["a:2"]}, {"type": "evaluator", "index": 0}
    config = json.dumps({"cluster": cluster, "task": task})
    done = subprocess.run(
        [sys.executable, script],
        env=support.warm_environment(tmp_path / "run", TF_CONFIG=config),
        capture_output=True,
        text=True,
        timeout=support.patience(60),
    )
    (tmp_path / "log").write_text(done.stderr)
    explained = support.tfrun("explain", tmp_path / "log").stdout
    assert done.returncode == 1 and "tfrun evaluate DIR --follow" in explained, done.stderr


# Checkpoints whose values are known.


class Known:
    """A run directory, whose checkpoints a test writes as a chief would."""

    def __init__(self, folder):
        self.directory, self.script = folder / "run", folder / "script.py"
        self.directory.mkdir()
        self.script.write_text(SCRIPT)
        self.random = np.random.RandomState(0)

    def flags(self, names=LAYERS, **more):
        content = {
            **{"example": "Known", "tasks": ["worker-0"], "ps": 1, "versions": {}},
            "script": str(self.script),
            "arguments": {"steps": 30, "seed": 0, "dataset": "digits"},
            "variables": [["sequential/" + n, [*shape]] for n, shape in zip(names, SHAPES)],
            **more,
        }
        content = {name: value for name, value in content.items() if value is not None}
        (self.directory / "flags.json").write_text(json.dumps(content))

    def save(self, step, form="vector"):
        """Writes a checkpoint; returns (loss, accuracy) of its values by NumPy.

        form: "vector", as sessions on parameter servers save it; "vectors", as a ps does that
        serves functions: a state is flat, too; or "a variable for each".
        """
        import tensorflow.compat.v1 as tf

        values = [self.random.normal(size=shape).astype("float32") for shape in SHAPES]
        state = [self.random.uniform(size=shape).astype("float32") for shape in STATE_SHAPES]
        with tf.Graph().as_default(), tf.Session() as session:
            if form != "a variable for each":
                vector = np.concatenate([value.ravel() for value in values])
                halves = tf.fixed_size_partitioner(2)
                tf.get_variable("w", initializer=tf.constant(vector), partitioner=halves)
            else:
                for i, value in enumerate(values):
                    tf.get_variable(f"w_{i}", initializer=tf.constant(value))
            for i, value in enumerate(state):
                saved = value.ravel() if form == "vectors" else value
                tf.get_variable(f"state_{i}", initializer=tf.constant(saved))
            session.run(tf.global_variables_initializer())
            path, saver = self.directory / "model.ckpt", tf.train.Saver(save_relative_paths=True)
            saver.save(session, str(path), step, write_meta_graph=False)
        return self.by_numpy(values, state)

    def by_numpy(self, w, state):
        data = examples.load(self.script).load_data("digits")
        h = ((data.x_test @ w[0] + w[1]) @ w[2] + w[3]) @ state[0]
        h = (h - state[1]) / np.sqrt(state[2] + 1e-3) * w[4] + w[5]
        outputs = h @ w[6] + w[7]
        top = outputs.max(1, keepdims=True)
        of_rows = np.log(np.exp(outputs - top).sum(1)) + top[:, 0]
        of_rows -= outputs[np.arange(len(outputs)), data.y_test]
        return of_rows.mean(), (outputs.argmax(1) == data.y_test).mean()


@pytest.fixture
def known(tmp_path):
    return Known(tmp_path)


@pytest.mark.parametrize("form", ["vector", "vectors", "a variable for each"])
def test_the_values_are_those_of_the_checkpoint(known, form):
    """Catches a vector that is cut in another order, and a state that is left out."""
    known.flags()
    due = known.save(20, form)
    assert evaluate.command([str(known.directory)]) == 0
    (test,) = evaluations_of(known.directory)
    assert [test["test_loss"], test["test_accuracy"]] == pytest.approx(due, rel=1e-5)


def test_what_evaluate_and_export_say(known, capsys):
    """Catches: another update, a test that is made twice, and files that are not those named."""
    known.flags()
    loss, accuracy = known.save(20)
    directory = known.directory
    assert evaluate.command([str(directory)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    words = line.split()
    assert words[:3] == ["update", "20", "test_loss"] and words[4] == "test_accuracy"
    assert float(words[3]) == pytest.approx(loss, rel=1e-3)
    assert float(words[5]) == pytest.approx(accuracy, rel=1e-3)
    assert evaluate.command([str(directory)]) == 0
    file = directory / "metrics-evaluator-0.csv"
    assert capsys.readouterr().out == f"the newest checkpoint was tested before: see {file}\n"
    assert len(evaluations_of(directory)) == 1
    for _ in range(2):  # a second one takes the place of the first
        assert export.command([str(directory)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("after 20 updates: test ") and f"{accuracy:.1%}" in lines[0]
        names = ["model.keras", "saved_model"]
        assert lines[1:] == [f"wrote {directory / name}" for name in names]
        assert all((directory / name).exists() for name in names)
    assert not [*directory.glob(".export-*")]


def test_a_model_that_cannot_be_saved(tmp_path):
    """A layer without get_config(). Catches a SavedModel that is lost with it, or half a file."""

    def save(path):
        path.touch()
        raise NotImplementedError("no\n get_config()")

    def write(path, verbose):
        path.mkdir()

    model = types.SimpleNamespace(save=save, export=write)
    (tmp_path / "saved_model" / "of before").mkdir(parents=True)
    lines = [*export.write(types.SimpleNamespace(own=model), tmp_path)]
    assert lines == ["no model.keras: no get_config()", f"wrote {tmp_path / 'saved_model'}"]
    assert [path.name for path in tmp_path.rglob("*")] == ["saved_model"]


def test_follow(known):
    """Started before the run, killed within a line, and started again: each checkpoint once.

    Catches an evaluator that begins anew, or that writes its next row behind a cut line.
    """
    command = [TFRUN, "evaluate", known.directory, "--follow", "--timeout", "60"]
    begin = {
        "env": support.warm_environment(known.directory),
        "text": True,
        "stdout": subprocess.PIPE,
    }
    process = subprocess.Popen(command, **begin)
    try:
        assert process.stdout.readline().startswith("waiting for the chief to write")
        known.flags()
        due = {10: known.save(10)}
        support.wait_until(lambda: steps_tested(known.directory) == [10], 30, "the first test")
        due[20] = known.save(20)
        support.wait_until(lambda: steps_tested(known.directory) == [10, 20], 20, "the second")
    finally:
        process.terminate()
        process.communicate(timeout=20)
    path = metrics_csv.files(known.directory)[evaluate.TASK]
    with open(path, "a") as file:
        file.write(path.read_text().splitlines()[-1][:30])
    due[30] = known.save(30)
    again = subprocess.run(command, **begin, timeout=support.patience(60))
    assert again.returncode == 0 and again.stdout.splitlines()[-1] == "done", again.stdout
    assert len(RunData.read(known.directory).tasks[evaluate.TASK].spans) == 2
    tests = {int(row["global_step"]): row["test_loss"] for row in evaluations_of(known.directory)}
    assert [*tests] == steps_tested(known.directory) == [10, 20, 30]
    assert tests == pytest.approx({step: loss for step, (loss, _) in due.items()}, rel=1e-5)
    # A run that goes on has the flags.json of before at first: --steps says more.
    assert evaluate.command([*map(str, command[2:4])]) == 0
    assert (
        evaluate.command([str(known.directory), "--follow", "--steps", "40", "--timeout", "1"]) == 1
    )


def test_waits_are_bounded(known, capsys):
    """And a run without a checkpoint is told in one line."""
    arguments = [str(known.directory), "--follow", "--timeout", "1"]
    assert evaluate.command(arguments) == 1
    assert "no new flags.json came in 1 s" in capsys.readouterr().err
    known.flags()
    assert evaluate.command(arguments) == 1
    assert "no new checkpoint came in 1 s" in capsys.readouterr().err
    assert evaluate.command(arguments[:1]) == 1
    assert capsys.readouterr().err.startswith("tfrun: there is no checkpoint in ")


def test_another_model_is_refused(known, capsys):
    """Two layers of equal size are swapped, or the run is of before flags.json named them.

    Catches a comparison of shapes alone, which would give each layer the values of the other.
    """
    known.flags(LAYERS[2:4] + LAYERS[:2] + LAYERS[4:])
    known.save(20)
    for program in evaluate, export:
        assert program.command([str(known.directory)]) == 1
        error = capsys.readouterr().err
        assert "has a checkpoint of another model" in error and len(error.splitlines()) == 1
    known.flags(variables=None)
    assert export.command([str(known.directory)]) == 1
    assert "has a checkpoint of an older version" in capsys.readouterr().err
    known.flags()
    assert export.command([str(known.directory)]) == 0  # automatic names are those of a new process
    assert (known.directory / "model.keras").exists()


@pytest.mark.parametrize("error", ["FileNotFoundError('my.csv.')", "KeyError('label')"])
def test_data_that_are_not_there_any_more(error, known, capsys):
    """Catches a traceback, or a line of the user's own code that says nothing of load_data."""
    known.flags()
    known.save(20)
    text = known.script.read_text()
    known.script.write_text(text.replace("(name):\n", f"(name):\n    raise {error}\n", 1))
    for program in evaluate, export:
        assert program.command([str(known.directory)]) == 1
        error_lines = capsys.readouterr().err.splitlines()
        assert len(error_lines) == 1 and "load_data of the run fails here: " in error_lines[0]
        assert ".;" not in error_lines[0]
        assert "in the folder from which you started the run" in error_lines[0]


def test_a_script_without_a_model_from_keras(known, capsys):
    known.script.write_text("def load_data(name): pass\n")
    known.flags()
    assert evaluate.command([str(known.directory)]) == 1
    error = capsys.readouterr().err
    assert "has no make_model()" in error and len(error.splitlines()) == 1


def test_the_dry_run_of_an_evaluator(known):
    """The script is started for the ps and the worker, and the verb for the evaluator."""
    command = [TFRUN, "--dry-run", "--ps", "1", "--evaluator", "--", known.script]
    env = support.warm_environment(known.directory)
    lines = subprocess.run(command, env=env, capture_output=True, text=True).stdout.splitlines()
    started = [line.split(" > ")[0].strip() for line in lines if line.endswith("2>&1 &")]
    assert [line.endswith("script.py") for line in started] == [True, True, False]
    assert started[2] == 'tfrun evaluate "$OUTPUT_DIR" --follow'
