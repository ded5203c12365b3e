"""What surrounds a script: names of run directories, file systems, its environment, its numbers."""

import ast
import collections
import errno
import fcntl
import json
import os
import re
import sys
import types

import numpy as np
import pytest
import small_scripts
import support
from lab import examples, regions
from tfrun.runs import run_directory
from tfrun.runs.data import RunData

SCRIPTS = examples.scripts()
SESSIONS = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
WITHOUT_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP
PATTERNS = ["lr=[0.2]", "lr=[0.1,0.2]", "a[b", "all*", "wh?t", "back\\slash"]
ODD = [
    "a b",
    "{a,b}",
    "ü→",
    "a\"b'c",
    "100%s",
    "-dash",
    "a:b",
    "new\nline",
    "a]b",
    "$HOME",
    "~",
    "#",
]


def metrics_of(script, directory, monkeypatch):
    """Returns the Metrics that the chief of a script makes in a directory, without TensorFlow."""
    monkeypatch.setenv("OUTPUT_DIR", str(directory))
    train = types.SimpleNamespace(latest_checkpoint=lambda _: None)
    known = {"tf": types.SimpleNamespace(train=train, __version__="0"), "np": np, "METRICS": {}}
    known |= {"collections": collections, "os": os, "json": json, "fcntl": fcntl}
    known |= {"__doc__": "A: b", "__file__": "a.py"}
    exec(regions.regions(script)["metrics"], known)
    flags = types.SimpleNamespace(steps=3)
    return known["Metrics"](("worker", 0), [("worker", 0)], [], flags)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_that_loses_checkpoints_is_refused(name, tmp_path, monkeypatch):
    """By scripts and by tfrun, before anything is there. Catches a sign that is left out.

    latest_checkpoint() finds nothing in such a folder, or in that of another run.
    """
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / name))
    with pytest.raises(ValueError, match="none of the signs"):
        metrics_of(SESSIONS, tmp_path / name / "run", monkeypatch)
    for used in run_directory.RunDirectory, run_directory.refuse_patterns:
        with pytest.raises(OSError, match="for a pattern"):
            used(os.environ["OUTPUT_DIR"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_is_taken(name, tmp_path, monkeypatch):
    """Catches a check that refuses more than it must."""
    metrics = metrics_of(SESSIONS, tmp_path / name, monkeypatch)
    assert metrics.directory == str(tmp_path / name)
    assert {"flags.json", "metrics-worker-0.csv"} <= {
        path.name for path in (tmp_path / name).iterdir()
    }


@pytest.mark.parametrize("number", [*WITHOUT_LOCKS, errno.EAGAIN])
def test_a_file_system_without_locks(number, tmp_path, monkeypatch):
    """A chief trains where there are no locks, and not beside another. Catches either mistake."""

    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    if number in WITHOUT_LOCKS:
        assert metrics_of(SESSIONS, tmp_path, monkeypatch).is_chief
    else:
        with pytest.raises(BlockingIOError):
            metrics_of(SESSIONS, tmp_path, monkeypatch)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_the_machine_has_set_does_not_matter(script, monkeypatch):
    """Before Keras is imported its backend is set, and gRPC has no proxy. Catches a later line."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    body = ast.parse(script.read_text()).body
    imported = [getattr(node, "names", [None])[0] for node in body]
    heavy = [getattr(name, "name", "").partition(".")[0] in HEAVY for name in imported]
    before = [node for node in body[: heavy.index(True)] if isinstance(node, ast.Expr)]
    exec(compile(ast.Module(before, []), script.name, "exec"), {"os": os})
    assert os.environ["KERAS_BACKEND"] == "tensorflow"
    assert os.environ["grpc_proxy"] == ""  # gRPC takes it before http_proxy
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"  # which the user has set


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_no_script_needs_its_docstring(script):
    """Catches __doc__.split: python -OO leaves docstrings out, and __doc__ is None."""
    assert not re.search(r"__doc__[.\[]", script.read_text())


DRAWS = """
import json, os, random

import keras
import numpy as np


def load_data(name):
    words = list({f"word {i}" for i in range(20)})
    drawn = [random.random(), np.random.rand(), float(keras.random.uniform(())), words]
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    with open(f"{os.environ['OUTPUT_DIR']}/drawn-{task['index']}.json", "w") as file:
        json.dump(drawn, file)
    x = np.random.rand(64, 4).astype("float32")
    return x, (x[:, 0] > 0.5).astype("int32"), x, (x[:, 0] > 0.5).astype("int32")


def make_model(data):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def loss(y, outputs):
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_seed_comes_before_the_data(script):
    """Catches data that are drawn before: each worker would train on others, and test on them."""
    text = script.read_text().partition("\ndef main():")[2]
    # One reads files; of the other the chief alone has data.
    if script.stem not in ("train_and_evaluate", "parameter_server_strategy"):
        assert text.index("set_random_seed(flags.seed)") < text.index("= load_data(")


@pytest.mark.long
def test_all_workers_load_the_same(tmp_path):
    """Catches a generator without a seed, and a set whose order is another in each process."""
    problem = tmp_path / "mine.py"
    problem.write_text(DRAWS)
    command = [*small_scripts.TFRUN, "--ps", "1", "--workers", "2", "--problem", problem, "--"]
    env = support.environment(tmp_path / "run")
    script = examples.main_script("HogWild")
    done = support.run_to_end(*command, script, "--steps", "40", env=env, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (json.loads((tmp_path / f"run/drawn-{k}.json").read_text()) for k in (0, 1))
    assert first == second


@pytest.mark.parametrize(
    "name, ps",
    [
        pytest.param("HogWild", 1, marks=pytest.mark.long),
        pytest.param("Ring-AllReduce", 0, marks=pytest.mark.nightly),
    ],
)
def test_a_run_without_docstrings(name, ps, tmp_path):
    """Catches what else needs a docstring, or an assert, in a script or in tfrun."""
    command = [
        *small_scripts.TFRUN,
        "--ps",
        str(ps),
        "--workers",
        "2",
        "--",
        examples.main_script(name),
    ]
    env = support.environment(tmp_path, PYTHONOPTIMIZE="2")
    done = support.run_to_end(*command, "--steps", "60", env=env, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert RunData.read(tmp_path).result["steps"] == 60


HEAVY = {"keras", "tensorflow", "horovod", "numpy"}

# Each form of evaluation() stands in one region; the model's outputs do not show that w is NaN.
FINITE = """
import types
import numpy as np, tensorflow as tf2
from lab import examples, regions

class Model:
    trainable_variables = [types.SimpleNamespace(shape=(3,))]
    def stateless_call(self, w, state, x, training):
        return tf2.zeros([2]), state

known = {"np": np, "METRICS": {}, "loss": lambda y, outputs: outputs, "keras": None}
known["unpack"] = lambda model, w: w
forms = {}
for script in examples.scripts():
    for name, text in regions.regions(script).items():
        if name in ("layers", "flat", "model", "places", "variables"):
            forms.setdefault(name, (text, tf2.compat.v1 if "compat.v1 as tf" in script.read_text()
                else tf2))
def raised(function, *arguments):
    try:
        function(*arguments)
    except (tf2.errors.InvalidArgumentError, ValueError) as error:
        return "NaN" in str(error)
    return False

for name, (text, tf) in forms.items():
    there = {**known, "tf": tf}
    exec(text, there)
    there["unpack"] = known["unpack"]
    rows = tf2.Variable([1.0, 2.0])
    for last, bad in (5.0, False), (float("nan"), True):
        w = [1.0, 2.0, last]
        if name == "variables":
            found = raised(there["initial_value"], np.array(w, np.float32))
        elif name == "flat":
            found = raised(there["evaluation"], Model(), tf2.Variable(w), [], rows, rows)
        elif name == "layers":
            found = raised(there["evaluation"], Model(), [tf2.Variable(w)], [], rows, rows)
        elif name == "model":
            found = raised(there["evaluation"], Model(), [tf2.Variable(w)], [], [], rows, rows)
        else:
            found = raised(
                there["evaluation"], [[tf2.Variable(w)]], [[]], [Model()], ["/CPU:0"], rows, rows)
        print(name, last, found)
"""


@pytest.mark.long
def test_w_and_the_rows_are_finite():
    """Each form of evaluation, and what makes variables of rows. Catches one without its check.

    The loss does not show it: on a CPU the fused ReLU makes 0 of NaN.
    """
    done = support.python(FINITE, TF_CPP_MIN_LOG_LEVEL="3")
    lines = {line for line in done.stdout.splitlines() if line.endswith(("True", "False"))}
    names = "layers", "flat", "model", "places", "variables"
    assert lines == {f"{name} {last}" for name in names for last in ("5.0 False", "nan True")}, (
        done.stdout + done.stderr
    )


def on_one_core(function, *arguments, **more):
    """Calls a function; what it starts has one core, as with Slurm's --cpus-per-task=1."""
    support.warm()  # a fork server keeps the cores that it began with
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        return function(*arguments, **more)
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.long
@pytest.mark.parametrize(
    "folder",
    [
        "Parameter-Server-Strategy",
        "HogWild",
        "Synchronous-SGD",
        "Model-Parallelism",
        "Collective-AllReduce",
    ],
)
def test_one_core_is_enough(folder, tmp_path):
    """Catches a server with the one thread that a core gets, whose parts of an update wait for one
    another for ever."""
    launcher = support.ROOT / folder / "run.sh"
    code, output, _ = on_one_core(support.launch, launcher, tmp_path, "--steps", "40", seconds=60)
    assert code == 0, output
    assert {row["global_step"] for row in support.pushes(tmp_path)} == set(range(1, 41))


@pytest.mark.nightly
def test_one_core_is_enough_for_the_notebook(tmp_path):
    """The servers of TF2-Strategies, as its cells start them. Catches the same there."""
    command = [sys.executable, "lab/notebooks/make.py", "--run", "--seconds", "150"]
    done = on_one_core(support.run_to_end, *command, "TF2-Strategies", seconds=240)
    assert done.returncode == 0, done.stdout + done.stderr
