"""A problem of one's own: the files of Your-Model under the examples; the models they train."""

import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest
import recovery
import support
import tensorflow as tf
from lab import examples, regions
from plugging import PROBLEMS, compare_export, file_of, flags_of, forget, plug
from tfrun import errors
from tfrun.commands import export
from tfrun.runs import summary
from tfrun.runs.data import RunData

MATRIX = support.ROOT / "Your-Model" / "matrix.json"
# In `all`: each kind of algorithm with two files, and each file with two algorithms or more.
CHOSEN = {
    "HogWild": ["convolution", "recommender"],
    "DiLoCo": ["gpt"],
    "Synchronous-SGD": ["transformer"],
    "Sharded-Training": ["gpt"],
    "Collective-AllReduce": ["recommender"],
    "D-PSGD": ["embedding", "regression"],
    "Gossip-SGD": ["convolution", "transformer"],
    "Model-Parallelism": ["convolution", "regression"],
    "Parameter-Server-Strategy": ["embedding", "recommender"],
    "Non-Distributed-Setup": ["regression", "transformer"],
}


def scripts():
    """Returns the scripts that take a problem and need no build, but old forms of others."""
    there = [path for path in examples.scripts() if examples.SESSIONS not in path.parts]
    takes = [path for path in there if "# region: problem" in path.read_text()]
    return [path for path in takes if not support.needs_build(path.parent / "run.sh")]


def plugs():
    """Each script with each problem that it does not refuse: the core has HogWild with one."""
    cells = json.loads(MATRIX.read_text())["cells"]
    for script in scripts():
        folder = script.parent.name
        is_main = script == examples.main_script(script.parent)
        for name in PROBLEMS:
            # A new example has not been tried yet, and is left out as well.
            if cells.get(folder, {}).get(f"{name}.py") != "trains":
                continue
            chosen = is_main and name in CHOSEN.get(folder, [])
            mark = pytest.mark.long if chosen else pytest.mark.nightly
            marks = [] if (chosen, folder, name) == (True, "HogWild", "convolution") else [mark]
            yield pytest.param(script, name, id=f"{script.stem}-{name}", marks=marks)


def test_each_file_and_each_kind_is_there_twice():
    """Catches a problem file, or a kind of algorithm, that `all` never trains."""
    files = {path.stem for path in (support.ROOT / "Your-Model").glob("*.py")}
    # The last: test_own_optimizer.py has optimizers.
    assert files - {"generate", "matrix", "optimizer"} == set(PROBLEMS)
    names = [name for chosen in CHOSEN.values() for name in chosen]
    assert all(names.count(name) >= 2 for name in PROBLEMS)
    mains = {folder.name: examples.main_script(folder) for folder in examples.folders()}
    of_kind = {examples.kind_of(script): set() for script in scripts()}
    for folder, chosen in CHOSEN.items():
        of_kind[examples.kind_of(mains[folder])].update(chosen)
    assert all(len(chosen) >= 2 for chosen in of_kind.values()), of_kind


@pytest.fixture(autouse=True)
def another_problem():
    """Lets each test import its own adapted_problem.py."""
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def trained(quick, tmp_path_factory):
    """Runs of HogWild: a function of a problem, which returns (the run directory, its script)."""
    runs = {}

    def train(problem):
        if problem not in runs:
            directory = tmp_path_factory.mktemp("trained") / problem
            runs[problem] = (
                directory,
                run(examples.main_script("HogWild"), problem, quick, directory),
            )
        return runs[problem]

    return train


def run(script, problem, quick, directory):
    """Trains a script with a problem in a small cluster; returns the path of the copy that ran."""
    path, kind = plug(script, problem, directory), examples.kind_of(script)
    # A coordinator has a worker less, and a chief instead.
    one = kind in ("single process", "coordinator") or "Distributed-Setup" in script.parts
    jobs = {"ps": int(kind.startswith(("parameter server", "coordinator")))}
    jobs["chief"] = int(kind == "coordinator")
    with mock.patch.multiple(quick, **jobs, seconds=round(support.patience(60))):
        flags = flags_of(script, problem)
        codes, output = quick.run(path, directory, *flags, workers=1 if one else 2)
    assert not any(codes), output
    return path


@pytest.mark.parametrize("script, problem", list(plugs()))
def test_another_problem(script, problem, quick, trained, tmp_path):
    """Tests that it trains, and that the exported model has the metrics of the run."""
    directory = tmp_path / "run"
    if script == examples.main_script("HogWild") and problem in CHOSEN["HogWild"]:
        directory, _ = trained(problem)
    else:
        run(script, problem, quick, directory)
    result = summary.summarize(RunData.read(directory))
    assert PROBLEMS[problem](result), result
    assert result["metrics"].keys() == {name for name in result if name.startswith("test_")}
    compare_export(directory, result)


def test_a_region_can_be_replaced_by_hand(tmp_path):
    """lab/regions.py puts a problem file into a copy of a script, and changes nothing else."""
    script, path = examples.main_script("HogWild"), tmp_path / "mine.py"
    shutil.copy(script, path)
    regions.fix(file_of("convolution"), path)
    assert regions.difference(script, path) == []
    put = regions.regions(file_of("convolution"))["problem"]
    assert regions.regions(path)["problem"] == put != regions.regions(script)["problem"]
    own, changed = examples.load(file_of("convolution")), examples.load(path)
    data = own.load_data("digits")
    assert changed.make_model(data).count_params() == own.make_model(data).count_params()


@pytest.mark.nightly
@pytest.mark.timeout(5400)
def test_the_matrix_is_what_it_says(tmp_path):
    """All cells anew; the script fails by itself where a file neither trains nor is refused."""
    command = [sys.executable, MATRIX.with_suffix(".py")]
    env = support.environment(tmp_path)
    done = support.run_to_end(*command, env=env, seconds=5000)
    assert done.returncode == 0, done.stdout + done.stderr
    table, committed = (json.loads(path.read_text()) for path in (tmp_path / "matrix.json", MATRIX))
    assert table["cells"] == committed["cells"]
    assert (tmp_path / "matrix.txt").read_text() == MATRIX.with_suffix(".txt").read_text()


BREAKS = """
from regression import METRICS, load_data, make_model

def loss(y, outputs):
    return 1 / 0
"""
REFUSED = """
import numpy as np
import regression
from regression import METRICS, loss, make_model

def load_data(name):
    data = regression.load_data(name)
    return data._replace(x_train=np.inf * data.x_train)
"""


@pytest.mark.long
def test_a_cell_of_the_matrix_that_fails(tmp_path):
    """Catches a file that fails and is counted as one that trains, or as one that is refused."""
    shutil.copy(file_of("regression"), tmp_path)
    (tmp_path / "breaks.py").write_text(BREAKS)
    (tmp_path / "refused.py").write_text(REFUSED)
    files = [tmp_path / "breaks.py", tmp_path / "refused.py", "regression.py"]
    command = [sys.executable, MATRIX.with_suffix(".py"), "--only", "Non-Distributed-Setup"]
    env = support.environment(tmp_path)
    done = support.run_to_end(*command, "--files", *files, env=env, seconds=100)
    cells = json.loads((tmp_path / "matrix.json").read_text())["cells"]["Non-Distributed-Setup"]
    assert done.returncode == 1, done.stdout + done.stderr
    assert cells == {
        "breaks.py": "error: ZeroDivisionError: division by zero",
        "refused.py": "x_train has NaN or infinite numbers: drop or fill them in load_data",
        "regression.py": "trains",
    }


@pytest.mark.parametrize(
    "old, new, words",
    [
        pytest.param(
            *('keras.layers.Dense(128, "relu"),', "Lost(),", "in the call() of a layer"),
            marks=pytest.mark.long,  # its ps waits for a minute
        ),
        ("keras.Input(data.x_train.shape[1:]),\n", "", "Begin it with keras.Input"),
        ('("max", keras.metrics.sparse_categorical_accuracy)', "len", 'Write "name": ("max"'),
    ],
    ids=["constant", "input", "metric"],
)
def test_a_problem_that_cannot_be(old, new, words, quick, tmp_path, monkeypatch):
    """It ends at once, and tfrun knows why."""
    # A tf.function takes a tensor from outside, the graph of a session does not.
    sessions = "Lost" in new
    folder = "From-TensorFlow-1/HogWild-Sessions" if sessions else "Non-Distributed-Setup"
    script = examples.main_script(folder)
    lost = """class Lost(keras.layers.Layer):
    ones = keras.ops.ones(64)

    def call(self, x):
        return x + self.ones


def make_model(data):"""
    changes = [(old, new), ("def make_model(data):", lost)]
    (tmp_path / script.name).write_text(examples.replaced(script, changes))
    monkeypatch.setattr(quick, "ps", int(sessions))
    monkeypatch.setattr(quick, "ends_together", True)  # the ps would wait
    codes, output = quick.run(tmp_path / script.name, tmp_path / "run", workers=1)
    assert codes[-1] == 1 and words in (errors.explain(output) or ""), (codes, output)


@pytest.mark.long
def test_the_files_of_an_export_predict(trained, tmp_path):
    """As a program does that knows nothing of us: Keras loads one, TensorFlow the other."""
    directory, script = trained("convolution")
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
    directory, _ = trained("convolution")
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
        code = export.command([str(argument) for argument in arguments])
        output = capsys.readouterr()
        lines = (output.out + output.err).splitlines()
        assert code == 1 and len(lines) == 1 and expected in lines[0], lines


@pytest.mark.long
def test_the_state_outlives_its_ps(tmp_path):
    """kill -9 in the middle: the end is still that of one model, and its state has not begun anew.

    Dropout counts how often it has drawn: once for each push of the chief.
    """
    directory, problem = tmp_path / "run", str(file_of("convolution"))
    process = recovery.begin(directory, 1500, TFRUN_RESTARTS="2", PROBLEM=problem)
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
def test_a_killed_worker_comes_back(tmp_path):
    """kill -9 of a worker: the one that starts in its place has the problem, too.

    Of so many updates the other worker has not made all before that one is ready.
    """
    directory, problem = tmp_path / "run", str(file_of("convolution"))
    steps = 3 * recovery.STEPS
    process = recovery.begin(directory, steps, TFRUN_RESTARTS="1", PROBLEM=problem)
    support.wait_until(lambda: recovery.checkpoint(directory) >= 300, 60, "a checkpoint at 300")
    support.task(directory, "worker", 1).kill()
    killed = time.time()
    result, output = recovery.check_the_end(process, directory, steps)
    assert "worker 1 was killed by SIGKILL; it starts again" in output
    pushes = RunData.read(directory).tasks["worker-1"].pushes
    assert (pushes["push_time"] > killed + 1).any(), "the second one has made no update"
    compare_export(directory, result)


@pytest.mark.long
def test_from_a_copy_to_a_prediction(tmp_path):
    """README's own lines, as they stand there, in a copy of the project."""
    for path in examples.tracked_files("*"):
        copy = tmp_path / path.relative_to(support.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    section = (tmp_path / "README.md").read_text().partition("## Your model")[2]
    blocks = re.findall(r"^```\w*\n(.*?)^```$", section.partition("\n## ")[0], re.M | re.S)
    # What else stands in a block, such as an output, is no program.
    programs = {r"import |from ": [sys.executable, "-c"], r"source |bash |\w+=": ["bash", "-euc"]}
    commands = [
        [*program, block]
        for block in blocks
        for begin, program in programs.items()
        if re.match(begin, block)
    ]
    assert commands and sum(len(command[-1].splitlines()) for command in commands) <= 10
    for command in commands:
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


@pytest.mark.long
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
