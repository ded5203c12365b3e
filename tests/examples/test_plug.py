"""The plug: other data and another model in the `problem` region; and the model it has trained."""

import difflib
import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import recovery
import regions
import support
import tensorflow as tf
from common import examples
from plugging import PROBLEMS, compare_export, plug
from tfrun import errors
from tfrun.commands import export
from tfrun.runs import summary
from tfrun.runs.data import RunData

# One of each kind: the regions around the problem are the same text in all of a kind.
EVERYTHING = ["HogWild", "Synchronous-SGD", "Collective-AllReduce"]


def plugs():
    """Each script with its problems: three with all, the others with one.

    Core has HogWild with two.
    """
    others = 0
    for script in examples.scripts():
        if "# region: problem" not in script.read_text() or support.needs_build(
            script.parent / "run.sh"
        ):
            continue
        names = list(PROBLEMS)
        if (
            script != examples.main_script(script.parent.name)
            or script.parent.name not in EVERYTHING
        ):
            # A Sequential model can be cut; the first of the problems is one.
            first = 0 if examples.kind_of(script) == "model parallel" else others % len(names)
            names, others = names[first : first + 1], others + 1
        core = names[:2] if script.parent.name == "HogWild" else []
        for name in names:
            marks = [] if name in core else [support.beyond_core(script)]
            yield pytest.param(script, name, id="%s-%s" % (script.stem, name), marks=marks)


@pytest.fixture(scope="module")
def trained(quick, tmp_path_factory):
    """A run of HogWild with layers that keep something: (its directory, its script)."""
    folder = tmp_path_factory.mktemp("trained")
    script = plug(examples.main_script("HogWild"), "convolution", folder)
    codes, output = quick.run(script, folder / "run", "--steps", "240")
    assert not any(codes), output
    return folder / "run", script


@pytest.mark.parametrize("script, problem", list(plugs()))
def test_another_problem(script, problem, quick, tmp_path, monkeypatch, request):
    """Tests that it trains, and that the exported model has the metrics of the run."""
    reused = (script, problem) == (examples.main_script("HogWild"), "convolution")
    if reused:
        directory, path = request.getfixturevalue("trained")
    else:
        directory, path = tmp_path / "run", plug(script, problem, tmp_path)
    before, text = script.read_text(), path.read_text()
    print(*difflib.unified_diff(before.splitlines(), text.splitlines(), n=0, lineterm=""), sep="\n")
    assert regions.difference(script, path) == [], "the region is all that differs"
    assert regions.regions(path).pop("problem") != regions.regions(script).pop("problem")
    kind = examples.kind_of(script)
    steps = (
        ["--steps", "80", "--local-steps", "4"] if "--local-steps" in text else ["--steps", "240"]
    )
    # A coordinator has a worker less, and a chief instead.
    one = kind in ("single process", "coordinator") or "Distributed-Setup" in script.parts
    workers = 1 if one else 2
    monkeypatch.setattr(quick, "ps", int(kind.startswith(("parameter server", "coordinator"))))
    monkeypatch.setattr(quick, "chief", int(kind == "coordinator"))
    if not reused:
        codes, output = quick.run(path, directory, *steps, workers=workers)
        assert not any(codes), output
    result = summary.summarize(RunData.read(directory))
    assert PROBLEMS[problem](result), result
    assert result["metrics"].keys() == {name for name in result if name.startswith("test_")}
    compare_export(directory, result)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('keras.layers.Dense(128, "relu"),', "Lost(),", "in the call() of a layer"),
        ("keras.Input(data.x_train.shape[1:]),\n", "", "Begin it with keras.Input"),
        ('("max", keras.metrics.sparse_categorical_accuracy)', "len", 'Write "name": ("max"'),
    ],
    ids=["constant", "input", "metric"],
)
def test_a_problem_that_cannot_be(old, new, words, quick, tmp_path, monkeypatch):
    """It ends at once, and tfrun knows why."""
    script = examples.main_script("Non-Distributed-Setup")
    lost = """class Lost(keras.layers.Layer):
    ones = keras.ops.ones(64)

    def call(self, x):
        return x + self.ones


def make_model(data):"""
    changes = [(old, new), ("def make_model(data):", lost)]
    (tmp_path / script.name).write_text(examples.replaced(script, changes))
    monkeypatch.setattr(quick, "ps", 0)
    (code,), output = quick.run(tmp_path / script.name, tmp_path / "run", workers=1)
    assert code == 1 and words in (errors.explain(output) or ""), output


@pytest.mark.long
def test_the_files_of_an_export_predict(trained, tmp_path):
    """As a program does that knows nothing of us: Keras loads one, TensorFlow the other."""
    directory, script = trained
    command = [sys.executable, "-m", "tfrun", "export", directory]
    done = subprocess.run(command, cwd=support.ROOT, capture_output=True, text=True)
    result = summary.summarize(RunData.read(directory))
    accuracy = "test accuracy %.1f%%" % (100 * result["test_accuracy"])
    assert done.returncode == 0 and accuracy in done.stdout.splitlines()[0], done
    data = examples.load(script).load_data("digits")
    np.savez(tmp_path / "test.npz", x=data.x_test, y=data.y_test)
    program = """
import sys
import keras, numpy as np, tensorflow as tf
test = np.load(sys.argv[1])
model = keras.models.load_model(sys.argv[2] + "/model.keras")
saved = tf.saved_model.load(sys.argv[2] + "/saved_model")
for outputs in model.predict(test["x"], verbose=0), saved.serve(test["x"]).numpy():
    print((outputs.argmax(1) == test["y"]).mean())
"""
    done = support.python(program, str(tmp_path / "test.npz"), str(directory))
    assert [float(line) for line in done.stdout.split()] == pytest.approx(
        [result["test_accuracy"]] * 2, abs=1e-6
    ), done.stderr
    assert not list(directory.glob(".*keras")) and not list(directory.glob(".*model"))


def test_an_export_that_cannot_be(trained, tmp_path, capsys):
    """Each ends in 1, with one line that says what is wrong."""
    directory, script = trained
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    shutil.copy(directory / "flags.json", tmp_path / "begun")
    (tmp_path / "other.py").write_text(examples.main_script("HogWild").read_text())
    older = shutil.copytree(directory, tmp_path / "older")
    flags = json.loads((older / "flags.json").read_text())
    del flags["variables"]
    (older / "flags.json").write_text(json.dumps(flags))
    words = examples.main_script("Sparse-Embeddings")
    for arguments, expected in [
        ([tmp_path / "empty"], "there is no checkpoint in"),
        ([tmp_path / "begun"], "there is no checkpoint in"),
        ([directory, "--script", tmp_path / "gone.py"], "there is no script"),
        (
            [directory, "--script", tmp_path / "other.py"],
            "has a checkpoint of another model than make_model",
        ),
        ([directory, "--script", words], "has no make_model()"),
        ([older], "has a checkpoint of an older version of its script"),
    ]:
        code = export.main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        lines = (output.out + output.err).splitlines()
        assert code == 1 and len(lines) == 1 and expected in lines[0], lines


@pytest.mark.long
def test_the_state_outlives_its_ps(tmp_path):
    """kill -9 in the middle: the end is still that of one model, and its state has not begun anew.

    Dropout counts how often it has drawn: once for each push of the chief.
    """
    folder, directory = tmp_path / "HogWild", tmp_path / "run"
    folder.mkdir()
    shutil.copy(support.ROOT / "HogWild" / "run.sh", folder)
    (tmp_path / "activate.sh").write_text("source '%s'\n" % (support.ROOT / "activate.sh"))
    plug(examples.main_script("HogWild"), "convolution", folder)
    process = recovery.begin(directory, 1500, folder / "run.sh", TFRUN_RESTARTS="2")
    support.wait_until(lambda: recovery.checkpoint(directory) >= 500, 60, "a checkpoint at 500")
    killed = time.time()
    support.task(directory, "ps", 0).kill()
    result, output = recovery.check_the_end(process, directory, 1500)
    assert "ps 0 was killed by SIGKILL; it starts again" in output
    compare_export(directory, result)
    pushes = RunData.read(directory).tasks["worker-0"].pushes
    before = (pushes["push_time"] < killed).sum()
    drawn = tf.train.load_variable(support.newest_checkpoint(directory), "state_2")[1]
    assert drawn > result["pushes_per_worker"][0] - 0.5 * before, (drawn, before, result)


@pytest.mark.long
def test_from_a_copy_to_a_prediction(tmp_path):
    """README's own lines, as they stand there, in a copy of the project."""
    for path in examples.tracked("*"):
        copy = tmp_path / path.relative_to(support.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    section = (tmp_path / "README.md").read_text().partition("## Your model")[2]
    blocks = re.findall(r"^```\n(.*?)^```$", section.partition("\n## ")[0], re.M | re.S)
    assert len(blocks) == 2 and sum(len(block.splitlines()) for block in blocks) <= 10
    for command in ["bash", "-euc", blocks[0]], [sys.executable, "-c", blocks[1]]:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=support.patience(100),
            env={**os.environ, "RUNS_DIR": str(tmp_path / "runs")},
        )
        assert done.returncode == 0, done.stdout + done.stderr
    predicted, labels = re.findall(r"\[([\d ]+)\]", done.stdout)
    assert sum(a == b for a, b in zip(predicted.split(), labels.split())) >= 8, done.stdout


@pytest.mark.long
def test_a_text_of_ones_own(quick, tmp_path):
    """Words that come in pairs, of ten kinds: in a minute it knows what goes with what."""
    import random

    draw = random.Random(0)
    kinds = ["".join(draw.choices("bcdfglmnprst", k=4)) for _ in range(40)]
    text = "\n\n".join(
        " ".join(draw.choice(kinds[4 * kind : 4 * kind + 4]) for _ in range(30))
        for kind in [draw.randrange(10) for _ in range(200)]
    )
    (tmp_path / "mine.txt").write_text(text)
    flags = ["--dataset", str(tmp_path / "mine.txt"), "--steps", "600", "--noise-words", "32"]
    codes, output = quick.run(examples.main_script("Sparse-Embeddings"), tmp_path / "run", *flags)
    assert codes == [0, 0, 0], output
    assert summary.summarize(RunData.read(tmp_path / "run"))["test_accuracy"] > 0.8, output


def test_an_npz_file_sets_the_sizes(tmp_path):
    """One's own data needs no code: three classes of five features."""
    random = np.random.RandomState(0)
    x, y = random.randn(400, 5), random.randint(0, 3, 400)
    x[np.arange(400), y] += 3
    parts = {"x_train": x[:300], "y_train": y[:300], "x_test": x[300:], "y_test": y[300:]}
    np.savez(tmp_path / "mine.npz", **parts)
    launcher = support.ROOT / "HogWild" / "run.sh"
    flags = ["--dataset", str(tmp_path / "mine.npz"), "--steps", "300"]
    code, output, _ = support.launch(launcher, tmp_path / "run", *flags)
    assert code == 0, output
    assert summary.summarize(RunData.read(tmp_path / "run"))["test_accuracy"] > 0.85


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_loaders_of_known_data_sets(name, tmp_path, monkeypatch):
    """keras' own loader reads small files of the real form; only the fetching is replaced."""
    random = np.random.RandomState(0)
    x, y = random.randint(0, 256, (30, 28, 28)).astype("u1"), (np.arange(30) % 10).astype("u1")
    parts = {"x_train": x[:20], "y_train": y[:20], "x_test": x[20:], "y_test": y[20:]}
    np.savez(tmp_path / "mnist.npz", **parts)
    for part, rows in ("train", slice(0, 20)), ("t10k", slice(20, 30)):
        for kind, array, header in ("images-idx3", x, 16), ("labels-idx1", y, 8):
            with gzip.open(tmp_path / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(b"\0" * header + array[rows].tobytes())
    script = examples.load(examples.main_script("HogWild"))
    module = importlib.import_module("keras.src.datasets." + name)
    monkeypatch.setattr(module, "get_file", lambda fname, **_: str(tmp_path / fname))
    data = script.load_data(name)
    assert data.x_train.shape == (20, 784) and data.x_train.dtype == np.float32
    assert np.allclose(data.x_test, x[20:].reshape(10, 784) / 255)
    assert (data.y_train == y[:20]).all() and data.y_test.dtype == np.int32
