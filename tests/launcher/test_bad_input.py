"""Bad input: a script raises, in bounded time, and loses nothing; tfrun has an explanation."""

import ast
import collections
import concurrent.futures
import fcntl
import json
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import support
from lab import examples
from tfrun import errors

SINGLE = support.ROOT / "Non-Distributed-Setup" / "non_distributed_setup.py"
HOGWILD = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
FUNCTIONS = examples.main_script("HogWild")  # its ps serves functions
EASY = support.ROOT / "DOWNPOUR-Easy" / "downpour_easy.py"
DOWNPOUR = support.ROOT / "DOWNPOUR" / "downpour.py"
AEASGD = support.ROOT / "AEASGD" / "aeasgd.py"
SPARSE = support.ROOT / "Sparse-Embeddings" / "sparse_embeddings.py"
SYNCHRONOUS = examples.main_script("Synchronous-SGD")
PLACES = examples.main_script("Model-Parallelism")
COLLECTIVE = examples.main_script("Collective-AllReduce")
RING = examples.main_script("Ring-AllReduce")
RATES = examples.main_script("Synchronous-SGD-different-learning-rates")
COORDINATOR = examples.main_script("Parameter-Server-Strategy")
MIRRORED = SINGLE.parents[1] / "Multiple-GPUs-Single-Machine"
MIRRORED = MIRRORED / "multiple_gpus_single_machine_mirrored.py"


def config(cluster=None, job="worker", index=0, **more):
    """Returns a TF_CONFIG as text; nobody listens at its addresses."""
    cluster = cluster or {"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:19", "127.0.0.1:29"]}
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}, **more})


def dataset(folder, **arrays):
    """Writes folder/data.npz: a good data set but for the arrays given; None leaves one out."""
    good = {
        "x_train": np.ones((8, 3)),
        "y_train": np.arange(8) % 2,
        "x_test": np.ones((4, 3)),
        "y_test": np.arange(4) % 2,
    }
    kept = {name: array for name, array in {**good, **arrays}.items() if array is not None}
    np.savez(folder / "data.npz", **kept)


def nan(folder):
    x = np.ones((8, 3))
    x[3, 1] = np.nan
    dataset(folder, x_train=x)


def truncated(folder):
    dataset(folder)
    whole = (folder / "data.npz").read_bytes()
    (folder / "data.npz").write_bytes(whole[: len(whole) // 2])


def file_in_the_way(folder):
    (folder / "output").write_text("something of mine")


def another_chief(folder):
    """Holds the lock until the test's process ends."""
    (folder / "output").mkdir()
    lock = open(folder / "output" / ".chief", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def port_in_use(folder):
    """Listens at a port, and does not share it. Returns the socket, and a TF_CONFIG with it."""
    server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port = server.getsockname()[1]
    tasks = {"ps": ["127.0.0.1:9"], "worker": [f"127.0.0.1:{port}"]}
    return server, {"TF_CONFIG": config(tasks)}


def port_of_a_ps_in_use(folder):
    """Listens at a port. Returns the socket, and the TF_CONFIG of a ps with it."""
    server = socket.create_server(("127.0.0.1", 0))
    cluster = {"ps": [f"127.0.0.1:{server.getsockname()[1]}"], "worker": ["127.0.0.1:9"]}
    return server, {"TF_CONFIG": config(cluster, "ps")}


def impatient(folder):
    """Returns what lets HogWild wait 2 s instead of 120 for a task that it needs."""
    return None, {"REQUIRED_WAIT_SECONDS": "2"}


def checkpoint_of(folder, sizes):
    """Writes a checkpoint that is none, of a model with these sizes."""
    output = folder / "output"
    output.mkdir()
    (output / "flags.json").write_text(json.dumps({"sizes": sizes}))
    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    (output / "model.ckpt-3.index").write_bytes(bytes(100))


BEGIN = """
import sys
import tensorflow as tf
client = tf.distribute.experimental.rpc.Client.create("grpc", sys.argv[1], timeout_in_ms=60000)
client.begin(tf.constant(1, "int64"))
"""


def ps_that_begins(folder):
    """Returns what tells a ps at a free port to begin, as a chief does, and its TF_CONFIG."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        address = f"127.0.0.1:{s.getsockname()[1]}"
    tasks = {"ps": [address], "worker": ["127.0.0.1:9"]}
    chief = subprocess.Popen(
        [sys.executable, "-c", BEGIN, address],
        env=support.warm_environment(folder / "chief"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return chief, {"TF_CONFIG": config(tasks, "ps")}


def broken_checkpoint_of_a_ps(folder):
    checkpoint_of(folder, [["w", "float32", 9]])
    return ps_that_begins(folder)


def checkpoint_of_another_model(folder):
    checkpoint_of(folder, [["w", "float32", 9]])


def checkpoint_of_sessions(folder):
    """Writes one as the scripts of TensorFlow 1 did, whose flags.json has no sizes."""
    checkpoint_of(folder, None)
    (folder / "output" / "flags.json").write_text("{}")


def checkpoint_without_flags(folder):
    checkpoint_of(folder, None)
    (folder / "output" / "flags.json").unlink()


def broken_checkpoint(folder):
    """Trains 3 steps, and cuts the checkpoint short."""
    trained = run(SINGLE, ["--steps", "3"], folder)
    assert trained.returncode == 0, trained.stderr
    index = folder / "output" / "model.ckpt-3.index"
    index.write_bytes(index.read_bytes()[:40])


def two_types(folder):
    """Writes a HogWild whose second layer has parameters of another type than the others."""
    old = 'keras.layers.Dense(64, "relu"),'
    new = 'keras.layers.Dense(64, "relu", dtype="float16"),'
    (folder / HOGWILD.name).write_text(examples.replaced(HOGWILD, [(old, new)]))


def quick(folder):
    """Copies HogWild. Returns what lets it wait 2 s instead of 120 for a task that it needs."""
    shutil.copy(HOGWILD, folder)
    return None, {"REQUIRED_WAIT_SECONDS": "2"}


def ps_without_chief(folder):
    """Starts a ps. Returns its process, and what a worker that is not the chief has set."""
    _, impatient = quick(folder)
    with socket.create_server(("", 0)) as a, socket.create_server(("", 0)) as b:
        ports = [s.getsockname()[1] for s in (a, b)]
    tasks = {
        "ps": [f"127.0.0.1:{ports[0]}"],
        "worker": ["127.0.0.1:9", f"127.0.0.1:{ports[1]}"],
    }
    ps = subprocess.Popen(
        [sys.executable, folder / HOGWILD.name],
        cwd=folder,
        env=support.warm_environment("output", TF_CONFIG=config(tasks, "ps")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return ps, {"TF_CONFIG": config(tasks, "worker", 1), **impatient}


def one_of_two(folder):
    """Returns the TF_CONFIG of the first of two workers, of which the second never comes.

    It waits 2 s instead of 120.
    """
    with socket.create_server(("", 0)) as s:
        # No other case, which may run at the same time, has a task at this port.
        tasks = {"worker": [f"127.0.0.1:{s.getsockname()[1]}", "127.0.0.1:11"]}
    return None, {"TF_CONFIG": config(tasks), "REQUIRED_WAIT_SECONDS": "2"}


NPZ = ["--dataset", "data.npz"]
ONE = config({"worker": ["127.0.0.1:0"]})
TWO = config({"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:0"] * 2})


# words: a part of the error. prepare(folder) comes first; it may return a process to kill or a
# socket to close, and environment variables. A script that is a name stands in the folder by then.
Case = collections.namedtuple("Case", "script flags words tf_config prepare code")
Case.__new__.__defaults__ = (None, None, 1)


def flag(script, name, value, words):
    """Returns a case that is refused as soon as the flags are read."""
    return Case(script, [name, value], f"argument {name}: {words}", code=2)


def task(tf_config, words):
    """Returns a case of HogWild with that TF_CONFIG."""
    return Case(HOGWILD, [], words, tf_config)


def data(words, **arrays):
    """Returns a case with a data set that differs in these arrays from a good one."""
    return Case(SINGLE, NPZ, words, prepare=lambda folder: dataset(folder, **arrays))


WRITTEN_ANEW = (".chief", "flags.json")  # by each try: the lock and the flags
UNKNOWN_TYPE = "names a task of type 'boss': the types are chief, worker, ps and evaluator"
COMPLETE = {job: ["127.0.0.1:9"] for job in ("chief", "ps", "worker")}
ABOVE_0, AT_LEAST_0 = "must be above 0, below 2^31", "must be at least 0, below 2^31"

CASES = {
    "no steps": flag(SINGLE, "--steps", "0", ABOVE_0),
    "negative steps": flag(SINGLE, "--steps", "-5", ABOVE_0),
    "steps not a number": flag(SINGLE, "--steps", "x", "invalid int value"),
    "too many steps": flag(SINGLE, "--steps", "2147483648", ABOVE_0),
    "no batch": flag(SINGLE, "--batch-size", "0", ABOVE_0),
    "rate of zero": flag(SINGLE, "--learning-rate", "0", ABOVE_0),
    "rate of NaN": flag(SINGLE, "--learning-rate", "nan", ABOVE_0),
    "endless rate": flag(SINGLE, "--learning-rate", "inf", ABOVE_0),
    "negative seed": flag(SINGLE, "--seed", "-1", AT_LEAST_0),
    "no checkpoints": flag(SINGLE, "--checkpoint-steps", "0", ABOVE_0),
    "no local steps": flag(EASY, "--local-steps", "0", ABOVE_0),
    "no rate on the ps": flag(DOWNPOUR, "--server-lr", "-1", ABOVE_0),
    "no accumulator": flag(DOWNPOUR, "--initial-accumulator", "0", ABOVE_0),
    "no force": flag(AEASGD, "--rho", "0", ABOVE_0),
    "a force that is too strong": Case(AEASGD, ["--rho", "10"], "must be below 1", TWO),
    "vectors of no numbers": flag(SPARSE, "--dimensions", "0", ABOVE_0),
    "no noise": flag(SPARSE, "--noise-words", "0", ABOVE_0),
    "negative backup": flag(SYNCHRONOUS, "--backup-workers", "-1", AT_LEAST_0),
    "too many backup workers": Case(
        SYNCHRONOUS, ["--backup-workers", "2"], "must be below the number of workers, 2", TWO
    ),
    "negative warm-up": flag(SYNCHRONOUS, "--warmup-steps", "-1", AT_LEAST_0),
    "no time for a step": flag(SYNCHRONOUS, "--step-timeout", "0", ABOVE_0),
    "a rate of zero among others": Case(
        RATES, ["--learning-rates", "0.1,0"], "--learning-rates: each must be above 0", TWO
    ),
    "a rate that is no number": Case(
        RATES, ["--learning-rates", "0.1;0.2"], "could not convert string to float: '0.1;0.2'", TWO
    ),
    "no micro-batch": flag(PLACES, "--micro-batches", "0", ABOVE_0),
    "micro-batches that are not equal": Case(
        PLACES, ["--micro-batches", "5"], "cannot be cut into 5 equal parts", ONE
    ),
    "a schedule of another name": Case(
        PLACES, ["--schedule", "2f2b"], "--schedule 2f2b is neither gpipe nor 1f1b", ONE
    ),
    "no device": flag(PLACES, "--devices", "0", ABOVE_0),
    "more devices than layers": Case(PLACES, ["--devices", "4"], "layers, too few for 4", ONE),
    "no steps in a closure": flag(COORDINATOR, "--closure-steps", "0", ABOVE_0),
    "unknown flag": Case(SINGLE, ["--stepz", "3"], "--stepz", code=2),
    "shortened flag": Case(SINGLE, ["--step", "3"], "--step", code=2),
    "a rate that is too high": Case(SINGLE, ["--learning-rate", "1e9", "--steps", "9"], "loss is"),
    "no TF_CONFIG": task(None, "No such job in cluster: 'ps'"),
    "not JSON": task("{", "JSONDecodeError"),
    "JSON of another form": task("[1]", "Error"),
    "no task": task('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}', "None"),
    "a task too many": task(config(index=9), "9"),
    "negative task": task(config(index=-1), "-1"),
    **{
        f"{what} of an unknown type: {script.stem}": Case(script, [], words, tf_config)
        for script, several in [
            *((script, UNKNOWN_TYPE) for script in (COLLECTIVE, COORDINATOR)),
            *((script, "types of tasks are chief, worker, ps") for script in (PLACES, RING)),
        ]
        for what, words, tf_config in [
            (
                "a task outside the cluster",
                UNKNOWN_TYPE if several == UNKNOWN_TYPE else "('boss', 0) is not in list",
                config(COMPLETE, "boss"),
            ),
            ("a task", several, config({**COMPLETE, "boss": ["127.0.0.1:9"]}, "boss")),
            ("a colleague", several, config({**COMPLETE, "boss": ["127.0.0.1:9"]})),
        ]
    },
    **{
        f"a scheme: {script.stem}": Case(
            script, [], words, config({job: ["grpc://127.0.0.1:9"] * 2 for job in ("ps", "worker")})
        )
        for script, words in {
            HOGWILD: "Could not interpret",
            PLACES: "TF_CONFIG has an address with ://",
            COLLECTIVE: "TF_CONFIG has an address with ://",
            RING: "Name or service not known",
        }.items()
    },
    "a task of an unknown type": task(config(job="boss"), "('boss', 0) is not in list"),
    "an evaluator": task(config(job="evaluator"), "('evaluator', 0) is not in list"),
    "no ps": task(config({"worker": ["a:1"]}), "No such job in cluster: 'ps'"),
    "no worker": task(config({"ps": ["127.0.0.1:0"]}), "not in list"),
    "a ps where there is none": Case(PLACES, [], "ps", config(job="ps")),
    "no chief": Case(COORDINATOR, [], "chief", config()),
    "no port": Case(
        HOGWILD.name, [], "port", config({"ps": ["a"], "worker": ["b:1"]}, "ps"), quick
    ),
    "port in use": Case(HOGWILD, [], "Could not start gRPC server", None, port_in_use),
    "a ps that never comes": Case(
        HOGWILD.name, [], "no ps answered at 127.0.0.1:9 in 2 s", config(), quick
    ),
    "a chief that never comes": Case(
        HOGWILD.name, [], "the chief made no model in 2 s", None, ps_without_chief
    ),
    "a worker that never comes": Case(
        PLACES, [], "worker 1 did not answer at 127.0.0.1:11", None, one_of_two
    ),
    "port of a ps in use": Case(
        FUNCTIONS, [], "another server listens at", None, port_of_a_ps_in_use
    ),
    "address of another machine": Case(
        FUNCTIONS,
        [],
        "no server can listen at 192.0.2.7:2222: Cannot assign requested address",
        config({"ps": ["192.0.2.7:2222"], "worker": ["127.0.0.1:9"]}, "ps"),
    ),
    "a ps with functions that never comes": Case(
        FUNCTIONS, [], "no ps answered at 127.0.0.1:9 in 2 s", config(), impatient
    ),
    "broken checkpoint of a ps": Case(
        FUNCTIONS, [], "not an sstable", None, broken_checkpoint_of_a_ps
    ),
    "a ps in another folder than the chief": Case(
        FUNCTIONS, [], "/output/flags.json'", None, ps_that_begins
    ),
    "checkpoint of another model": Case(
        FUNCTIONS, [], "checkpoint of another model", config(), checkpoint_of_another_model
    ),
    "checkpoint of sessions": Case(
        FUNCTIONS, [], "checkpoint of another model", config(), checkpoint_of_sessions
    ),
    "checkpoint without flags.json": Case(
        FUNCTIONS, [], "flags.json'", config(), checkpoint_without_flags
    ),
    "a second chief of a ps with functions": Case(
        FUNCTIONS, [], "BlockingIOError", config(), another_chief
    ),
    "output is a file, of a worker": Case(FUNCTIONS, [], "File exists", config(), file_in_the_way),
    "another chief": Case(SINGLE, [], "BlockingIOError", None, another_chief),
    "output is a file": Case(SINGLE, [], "File exists", None, file_in_the_way),
    "broken checkpoint": Case(SINGLE, [], "sstable", None, broken_checkpoint),
    "parameters of two types": Case(HOGWILD.name, [], "that don't all match", TWO, two_types),
    "no data file": Case(SINGLE, NPZ, "No such file or directory: 'data.npz'"),
    "truncated data file": Case(SINGLE, NPZ, "File is not a zip file", None, truncated),
    "an array is missing": data("y_test is not a file in the archive", y_test=None),
    "NaN in the data": Case(SINGLE, NPZ, "must not contain infs or NaNs", None, nan),
    "fewer labels than rows": data("is not in [0, 7)", y_train=np.arange(7) % 2),
    "features that do not match": data("incompatible", x_test=np.ones((4, 5))),
    "no rows": data("Received: units=0", x_train=np.ones((0, 3)), y_train=np.ones(0, int)),
    "negative label": data("must have no negative elements", y_train=np.arange(8) - 1),
    "label unknown to training": data("outside the valid range", y_test=np.arange(4)),
    "labels that are words": data("invalid literal for int", y_train=np.array(list("abababab"))),
}


def run(script, flags, folder, **env):
    """Runs a script in `folder`, and with its OUTPUT_DIR there."""
    env = support.warm_environment("output", **env)
    return support.run_to_end(sys.executable, folder / script, *flags, cwd=folder, env=env)


def contents(folder, without=()):
    """Returns {file: what is in it} of the files in a folder, but for those of these names."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in without]
    return {path: path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def zygote():
    with support.Zygote() as process:
        yield process


def problem(case, folder, run):
    """Returns what is wrong with how a case ends, or None. run: how to run it."""
    script, flags, words, tf_config, prepare, code = CASES[case]
    folder.mkdir()
    env, held = {}, None
    if tf_config:
        env["TF_CONFIG"] = tf_config
    prepared = prepare(folder) if prepare else None
    if isinstance(prepared, tuple):
        held, more = prepared
        env |= more
    before = contents(folder, WRITTEN_ANEW)
    try:
        began = time.monotonic()
        process = run(script, flags, folder, **env)
        took = time.monotonic() - began
    finally:
        if isinstance(held, subprocess.Popen):
            held.kill()
            held.wait()
    after = contents(folder, WRITTEN_ANEW)
    if process.returncode != code or words not in process.stderr:
        return f"{case}: exit {process.returncode}: {process.stderr}"
    if not errors.explain(process.stderr):
        return f"{case}: not explained: {process.stderr}"
    if took > support.patience(30):
        return f"{case}: took {took:.0f} s"
    if any(not after.get(path, b"").startswith(text) for path, text in before.items()):
        return f"{case}: changed what was there"
    print(f"{case}:\n  {errors.explain(process.stderr)}")
    return None


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_kind_is_raised_and_explained(zygote, tmp_path):
    # Those that start a server, or wait, have a process of their own.
    alone = [name for name, case in CASES.items() if isinstance(case.script, str)]
    alone += ["a rate that is too high", "port in use", "a worker that never comes"]
    folders = {case: tmp_path / (f"case {number}") for number, case in enumerate(CASES)}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(problem, case, folders[case], run) for case in alone]
        problems = [problem(case, folders[case], zygote.run) for case in CASES if case not in alone]
        problems += [future.result() for future in slow]
    problems = list(filter(None, problems))
    assert not problems, "\n\n".join(problems)


MORE_AXES = {"x_train": np.ones((8, 3, 3)), "x_test": np.ones((4, 3, 3))}
ONE_HOT = {"y_train": np.eye(2)[np.arange(8) % 2], "y_test": np.eye(2)[np.arange(4) % 2]}
# {what was done: (script, changes of its text, arrays of its data set, words of the explanation)}
OWN_MODELS = {
    "inputs with more axes": (SINGLE, [], MORE_AXES, "keras.layers.Flatten()"),
    "one-hot labels": (SINGLE, [], ONE_HOT, "y.argmax(axis=-1)"),
    "a number to predict": (
        SINGLE,
        [],
        {"y_train": np.linspace(0, 9, 8), "y_test": np.linspace(0, 9, 4)},
        "To predict a number",
    ),
    "arguments the wrong way round": (
        SINGLE,
        [("def loss(y, outputs):", "def loss(outputs, y):")],
        {},
        "wrong order",
    ),
    "too few outputs": (
        SINGLE,
        [("Dense(np.bincount(data.y_train.flat).size)", "Dense(1)")],
        {},
        "fewer outputs than there are classes",
    ),
    "words of pandas": (
        SINGLE,
        [],
        {"y_train": np.array(list("abababab"), dtype=object)},
        "Number the classes from 0",
    ),
    "inputs with more axes, in a tf.function": (MIRRORED, [], MORE_AXES, "keras.layers.Flatten()"),
}


@pytest.mark.long
def test_a_mistake_in_an_own_model_is_explained_by_what_it_is(zygote, tmp_path):
    problems = []
    for number, (what, case) in enumerate(OWN_MODELS.items()):
        script, changes, arrays, words = case
        folder = tmp_path / (f"case {number}")
        folder.mkdir()
        (folder / script.name).write_text(examples.replaced(script, changes))
        dataset(folder, **arrays)
        process = zygote.run(script.name, [*NPZ, "--steps", "2"], folder)
        explanation = errors.explain(process.stderr) or "not explained: " + process.stderr
        if process.returncode != 1 or words not in explanation:
            problems.append(f"{what}: exit {process.returncode}: {explanation}")
    assert not problems, "\n\n".join(problems)


METRIC = '("max", keras.metrics.sparse_categorical_accuracy)'
OBJECT = '("max", keras.metrics.SparseCategoricalAccuracy())'


@pytest.mark.long
@pytest.mark.parametrize(
    "entry, shown, explanation",
    [
        (METRIC.replace("max", "maximum"), "('maximum', <function ", 'Write "max" if higher'),
        (OBJECT, "('max', <SparseCategoricalAccuracy ", "METRICS has an object of Keras"),
    ],
    ids=["a direction that is none", "an object of Keras"],
)
def test_a_wrong_entry_of_metrics_is_refused_at_the_start(
    entry, shown, explanation, zygote, tmp_path
):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / SINGLE.name).write_text(examples.replaced(SINGLE, [(METRIC, entry)]))
    process = zygote.run(SINGLE.name, ["--steps", "3"], folder)
    words = 'ValueError: METRICS needs ("max" or "min", function), not ' + shown
    assert process.returncode == 1, process.stderr
    assert process.stderr.splitlines()[-1].startswith(words), process.stderr
    assert explanation in errors.explain(process.stderr)
    assert [path.name for path in folder.iterdir()] == [SINGLE.name]


def test_no_script_waits_by_a_clock_that_can_be_set():
    """Tests that no example calculates or compares with time.time(): it may jump back an hour."""
    checked = 0
    for path in examples.scripts():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.BinOp, ast.Compare)):
                checked += "time.monotonic()" in ast.unparse(node)
                assert "time.time()" not in ast.unparse(node), f"{path}:{node.lineno}"
    assert checked > 25


def two_layers(folder, first, second):
    """Writes a script with two layers of the same size, of these names."""
    old = '            keras.layers.Dense(64, "relu"),\n'
    new = "".join(
        f'            keras.layers.Dense(128, name="{name}"),\n' for name in (first, second)
    )
    (folder / SINGLE.name).write_text(examples.replaced(SINGLE, [(old, new)]))


def without_variables(folder, *_):
    """Makes flags.json one of before it named the variables."""
    path = folder / "output" / "flags.json"
    flags = json.loads(path.read_text())
    del flags["variables"]
    path.write_text(json.dumps(flags))


@pytest.mark.parametrize(
    "change", [pytest.param(two_layers, marks=pytest.mark.long), without_variables]
)
def test_a_refused_checkpoint_loses_nothing(change, zygote, tmp_path):
    """Tests that the chief refuses another model in one sentence, and leaves all as it was.

    The other model has two layers swapped, so that all shapes are the same.
    """
    tmp_path = tmp_path / "folder"
    tmp_path.mkdir()
    two_layers(tmp_path, "a", "b")
    done = zygote.run(SINGLE.name, ["--steps", "3"], tmp_path)
    assert done.returncode == 0, done.stderr
    change(tmp_path, "b", "a")
    before = contents(tmp_path / "output")
    done = zygote.run(SINGLE.name, ["--steps", "6"], tmp_path)
    assert done.returncode == 1, done.stderr
    words = f"ValueError: {tmp_path / 'output'} has a checkpoint of another model"
    assert done.stderr.splitlines()[-1] == words, done.stderr
    assert "another model" in errors.explain(done.stderr)
    assert contents(tmp_path / "output") == before
    if change is two_layers:
        two_layers(tmp_path, "a", "b")
        done = zygote.run(SINGLE.name, ["--steps", "6"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert [row["global_step"] for row in support.pushes(tmp_path / "output")] == [*range(1, 7)]


@pytest.mark.long
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_data_sets_without_a_network(name, tmp_path):
    command = ["unshare", "--user", "--net", sys.executable, SINGLE, "--dataset", name]
    env = support.environment(tmp_path / "output", KERAS_HOME=str(tmp_path / "keras"))
    process = support.run_to_end(*command, env=env)
    assert process.returncode == 1, process.stderr
    assert "digits, which needs no network" in errors.explain(process.stderr)


@pytest.mark.long
def test_a_full_disk(tmp_path):
    """In a small file system of its own: it ends with an error; the last checkpoint is whole."""
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    mount = "mount -t tmpfs -o size=600k none small"
    train = f"'{sys.executable}' '{SINGLE}' --steps 100000 --checkpoint-steps 100"
    script = f"{mount} && {train}; code=$?; cp -r small kept; exit $code"
    command = ["unshare", "-Urm", "sh", "-c", script]
    process = support.run_to_end(*command, seconds=90, cwd=tmp_path, env=support.environment(small))
    assert process.returncode == 1, process.stderr
    assert errors.explain(process.stderr).startswith("The disk is full"), process.stderr

    # The same command, where there is room, goes on.
    begun = max(int(path.stem.split("-")[1]) for path in kept.glob("model.ckpt-*.index"))
    assert begun >= 100
    process = run(SINGLE, ["--steps", str(begun + 50)], tmp_path, OUTPUT_DIR=str(kept))
    assert process.returncode == 0, process.stderr
    steps = [row["global_step"] for row in support.pushes(kept)]
    assert steps[-1] == begun + 50 and steps.count(begun + 50) <= 2
