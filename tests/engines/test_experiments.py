"""Parallel-Experiments: the same results on Spark and here, failures as rows, what runs again."""

import csv
import functools
import json
import pathlib
import signal
import subprocess
import sys
import urllib.request

import engines
import numpy as np
import psutil
import pytest
import support
from lab import examples
from small_scripts import fake_nvidia_smi
from tfrun.launch import cluster, grid

FOLDER = engines.FOLDER / "Parallel-Experiments"
SCRIPT = FOLDER / "parallel_experiments.py"
ODD = """
import os, signal, sys, time

FACTOR = 2.0  # of the module: it must reach an executor that cannot import this file


def doubled(x):
    return FACTOR * x


def odd(kind, x, logdir):
    with open(os.path.join(os.path.dirname(logdir), "calls.txt"), "a") as file:
        file.write(kind + "\\n")
    first = not os.path.exists(os.path.join(logdir, "once"))
    open(os.path.join(logdir, "once"), "w").close()
    if kind == "raise":
        raise KeyError("it raises")
    if kind == "exit":
        sys.exit("it exits")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "kill_parent" and first:  # Spark's own Python process
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if kind == "mend" and first:
        raise ValueError("only the first time")
    if kind == "sleep":
        print("sleeping", flush=True)
        time.sleep(600)
    return {"score": float("nan") if kind == "nan" else doubled(x), "other": 0.1 + x}


def gpu(number):
    return {"score": number, "gpu": float(os.environ.get("CUDA_VISIBLE_DEVICES", "-2"))}
"""
# Imports launch as a module, as a user's own script does; nothing here is __main__'s.
DRIVER = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import odd
from parallel_experiments import launch
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
kinds = ["fine", "raise", "exit", "kill", "kill_parent", "nan", "mend"]
points = [{"kind": kind, "x": number} for number, kind in enumerate(kinds)]
tables = [launch(spark, odd.odd, points, sys.argv[3], "score", jobs=2) for _ in range(2)]
print("RESULTS" + json.dumps(tables))
spark.stop()
"""


def run(folder, *flags, launcher="run.sh", **more):
    """Runs a run.sh of the folder, with its results in `folder`; returns (exit code, output)."""
    more |= {"WARM_SOCKET": ""}
    return support.launch(FOLDER / launcher, folder, *flags, "--logdir", folder, **more)[:2]


def with_spark(*arguments, cwd, env):
    """Runs a script of Python where pyspark is installed; returns the finished process."""
    extras = engines.FOLDER / "extras.sh"
    setup = f"source {support.ROOT}/activate.sh; source {extras}; java_for_spark; extra spark; "
    return subprocess.run(
        ["bash", "-c", f'{setup}exec python "$@"', "bash", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        timeout=support.patience(100),
        env=env,
    )


def results(folder):
    """Returns {run: its result.json} of a logdir."""
    contents = [json.loads(path.read_text()) for path in folder.glob("*/result.json")]
    return {result["run"]: result for result in contents}


def table(path):
    """Returns the rows of a CSV file."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def calls(folder):
    """Returns how often each kind of odd was called."""
    lines = (folder / "calls.txt").read_text().split()
    return {kind: lines.count(kind) for kind in lines}


@pytest.fixture
def odd(tmp_path):
    """The flags of a run of the odd function here."""
    (tmp_path / "odd.py").write_text(ODD)
    function = f"{tmp_path / 'odd.py'}:odd"
    return ["--backend", "local", "--function", function, "--metric", "score"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The 2x2 grid by run.sh, on Spark and here: (its folder, its output)."""
    folder = tmp_path_factory.mktemp("both") / "logdir"
    flags = ["--set", "learning_rate=0.001,0.01", "--set", "dropout=0.0,0.5", "--set", "epochs=2"]
    code, output = run(folder, *flags, seconds=150)
    assert code == 0, output
    return folder, output


@pytest.fixture(scope="module")
def on_spark(tmp_path_factory):
    """The odd function in one session of Spark, twice: (its logdir, both lists of results)."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.py").write_text(ODD)
    (folder / "driver.py").write_text(DRIVER)
    done = with_spark(
        *(folder / "driver.py", FOLDER, folder, folder / "logdir"),
        cwd="/",  # the executors' Python finds neither odd.py nor parallel_experiments.py
        env=support.environment(folder, PYSPARK_PYTHON=sys.executable),
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS")]
    assert done.returncode == 0 and lines, done.stdout
    return folder / "logdir", json.loads(lines[0].removeprefix("RESULTS"))


def test_names_are_unique_and_fit_for_folders(tmp_path):
    """Catches: two combinations in one folder; a value that leads to another folder."""
    values = ["a/b", "a_b", "../x", "ä", "", " ", "x" * 300, "x" * 301, 1, "1", 1.0, True, "true"]
    names = grid.named([{"rate": value} for value in values])
    assert [point["rate"] for point in names.values()] == values
    for name in names:
        (tmp_path / name).mkdir()
        assert (tmp_path / name).resolve().parent == tmp_path


def test_gpus_are_dealt_out():
    """Catches: a GPU that two runs use while another is idle; a run without a GPU."""
    assert grid.deal(["0", "1", "2", "3"], 2) == [["0", "2"], ["1", "3"]]
    assert grid.deal(["0", "1"], 3) == [["0"], ["1"], ["0"]]
    assert grid.deal([], 2) == [[], []]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--set", "learning_rate=null"], "learning_rate must be a number, a text, true or false"),
        (["--set", "learning_rate=1", "--set", "rate=1"], "unexpected keyword argument 'rate'"),
        (["--set", "dropout=0.5"], "missing a required argument: 'learning_rate'"),
        (["--set", "learning_rate=1,1"], "a combination is named twice"),
        (["--set", "logdir=1"], "no parameter may be named logdir"),
        (["--set", "learning_rate"], "is not NAME=VALUE,VALUE"),
        (["--direction", "up"], "direction must be max or min"),
        (["--jobs", "-1"], "jobs must be a whole number above 0, is -1"),
        (["--threads", "0"], "threads must be a whole number above 0, is 0"),
        (["--logdir", "/dev/null/x"], "the logdir cannot be written"),
        (["--function", "none.py:train"], "is no FILE.py:NAME"),
        (["--function", str(FOLDER / "digits.py") + ":none"], "is no FILE.py:NAME"),
    ],
)
def test_what_the_command_refuses(tmp_path, monkeypatch, capsys, flags, words):
    """Catches: a traceback, or a Spark session, where one line would do. Exit code 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--backend", "local", *flags])
    try:
        code = examples.load(SCRIPT).main()
    except SystemExit as end:
        code = end.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and words in lines[-1] and not any("Traceback" in line for line in lines)


def test_the_jvm_ends_first(tmp_path):
    """Catches a JVM that outlives run.sh. It is a shell here, which needs a second for its end."""
    program = """
import subprocess, sys, types
jvm = subprocess.Popen(
    ["sh", "-c", "cat; sleep 1; touch ended"], stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
)

class Spark:
    sparkContext = types.SimpleNamespace(
        _gateway=types.SimpleNamespace(proc=jvm),
        _accumulatorServer=None,
        setLogLevel=lambda level: None,
    )
    appName = config = lambda self, *_: self
    getOrCreate = lambda self: self

sys.modules["pyspark"] = types.ModuleType("pyspark")
sys.modules["pyspark.sql"] = types.SimpleNamespace(
    SparkSession=types.SimpleNamespace(builder=Spark())
)
sys.path.insert(0, sys.argv[1])
import parallel_experiments
parallel_experiments.session("")
sys.exit(7)
"""
    done = support.run_to_end(sys.executable, "-c", program, FOLDER, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(
    "args_dict, words",
    [
        ({}, "the grid is empty"),
        ([], "the grid is empty"),
        ({"a": []}, "a must be a list with a value"),
        ({"a": 1}, "a must be a list with a value"),
        ({"a": [[1]]}, "a must be a number, a text, true or false, is [1]"),
        ([{"a": np.zeros(1)}], "a must be a number"),
        ([1], "a combination must be a mapping"),
        ([{}], "a combination must be a mapping"),
        ("a", "a combination must be a mapping"),
        ([{1: 1}], "1 must be a number"),
    ],
)
def test_what_launch_refuses(tmp_path, args_dict, words):
    """Catches: bad input that fails late, in every run, or not at all."""
    with pytest.raises(ValueError, match="^" + words.replace("[", r"\[")):
        examples.load(SCRIPT).launch(None, lambda a: a, args_dict, tmp_path / "logdir")
    assert not (tmp_path / "logdir").exists()


def test_the_order_of_the_table():
    """Catches: NaN or a failure at the top; the worst first where less is better."""
    report = examples.load(FOLDER / "report.py")

    def row(name, value, status="done"):
        return {"run": name, "metrics": {"m": value} if value != "" else {}, "status": status}

    rows = [row("nan", None), row("b", 0.5), row("bad", "", "failed"), row("c", 2.0)]
    for direction, names in ("max", ["c", "b", "nan", "bad"]), ("min", ["b", "c", "nan", "bad"]):
        assert [row["run"] for row in report.in_order(rows, "m", direction)] == names


@pytest.mark.long
@pytest.mark.needs("java")
def test_spark_and_local_give_equal_results(both):
    """Catches: other seeds, threads or data on an executor; a comparison that compares nothing; a
    table with rounded numbers, rows of other runs, or an order that is not the metric's."""
    folder, output = both
    spark, local = results(folder / "spark"), results(folder / "local")
    assert len(spark) == 4 and spark.keys() == local.keys()
    for name, result in spark.items():
        assert result["metrics"] == local[name]["metrics"] and result["status"] == "done"
        assert 0.5 < result["metrics"]["accuracy"] <= 1
    assert len({str(result["metrics"]) for result in spark.values()}) == 4
    assert "Spark's results and the local ones are equal" in output
    # What it prints follows from the files: after a change there, it says so.
    report = examples.load(FOLDER / "report.py")
    name, result = next(iter(local.items()))
    metrics = {**result["metrics"], "accuracy": result["metrics"]["accuracy"] - 1e-6}
    changed = {**local, name: {**result, "metrics": metrics}}
    assert not report.equal(list(spark.values()), list(changed.values()))
    for backend, tables in ("spark", spark), ("local", local):
        assert (folder / backend / "results.png").read_bytes().startswith(b"\x89PNG")
        rows = table(folder / backend / "results.csv")
        assert [row["run"] for row in rows] == sorted(
            tables, key=lambda name: -tables[name]["metrics"]["accuracy"]
        )
        for row in rows:
            result = tables[row["run"]]
            for name, value in {**result["parameters"], **result["metrics"]}.items():
                assert float(row[name]) == value


def ask(port, path, body):
    """Returns what TensorBoard's HParams plugin answers."""
    address = f"http://127.0.0.1:{port}/data/plugin/hparams/{path}"
    header = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), header)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def hparams(folder, n):
    """(the experiment, its n session groups) of a logdir, as a real TensorBoard serves them."""
    port, held = cluster.hold_ports(1)
    held[0].close()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tfrun.commands.tensorboard",
            folder,  # the run directory, in which no task has left metrics
            folder,
            str(port[0]),
        ],
        cwd=support.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert "http" in process.stdout.readline()
        body = {"experimentName": "", "startIndex": 0, "sliceSize": 100}
        body["allowedStatuses"] = ["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_UNKNOWN"]

        def groups():
            sessions = ask(port[0], "session_groups", body).get("sessionGroups", [])
            return sessions if len(sessions) == n else None

        sessions = support.wait_until(groups, 30, f"{n} session groups")
        return ask(port[0], "experiment", {"experimentName": ""}), sessions
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.long
@pytest.mark.needs("java")
def test_tensorboard_shows_the_hparams(both):
    """Catches: event files that TensorBoard cannot read, or does not join with their metrics."""
    experiment, groups = hparams(both[0] / "spark", 4)
    names = {info["name"] for info in experiment["hparamInfos"]}
    assert names == {"learning_rate", "dropout", "epochs"}
    names = {info["name"]["tag"] for info in experiment["metricInfos"]}
    assert names >= {"accuracy", "loss"}
    runs = results(both[0] / "spark")
    for group in groups:
        (session,) = group["sessions"]
        result = runs[pathlib.PurePath(session["name"]).name]
        assert session["status"] == "STATUS_SUCCESS"
        assert session["endTimeSecs"] > session["startTimeSecs"]
        assert group["hparams"] == result["parameters"]
        values = {m["name"]["tag"]: m["value"] for m in group["metricValues"] if "tag" in m["name"]}
        for name, value in result["metrics"].items():
            assert values[name] == pytest.approx(value, rel=1e-6)  # TensorBoard's are float32


@pytest.mark.nightly
@pytest.mark.needs("java")
def test_on_spark_failures_are_rows_and_run_again(on_spark):
    """Catches: a combination that ends the job of the others, whichever way it fails; a result that
    is not found again; a failure that is taken for a result."""
    logdir, tables = on_spark
    first, second = ({row["parameters"]["kind"]: row for row in table} for table in tables)
    assert {kind: result["status"] for kind, result in first.items()} == {
        **dict.fromkeys(["fine", "nan", "kill_parent"], "done"),
        **dict.fromkeys(["raise", "exit", "kill", "mend"], "failed"),
    }
    assert first["raise"]["error"].endswith("KeyError: 'it raises'")
    assert first["exit"]["error"].endswith("SystemExit: it exits")
    assert "SIGKILL" in first["kill"]["error"]
    assert first["kill_parent"]["metrics"]["score"] == 8  # Spark began the task again
    assert first["nan"]["metrics"] == {"score": None, "other": 5.1}
    assert calls(logdir) == {
        **{"fine": 1, "nan": 1, "kill_parent": 2},
        **{"raise": 2, "exit": 2, "kill": 2, "mend": 2},
    }
    assert second["mend"]["status"] == "done"


@pytest.mark.long
def test_failures_here_are_rows_and_run_again(tmp_path, odd):
    """Catches: the same with processes on this machine; a killed one takes no other along; a
    failure that TensorBoard shows as a success, or that stays one once mended."""
    flags = [*odd, "--set", "kind=fine,raise,exit,kill,nan,mend"]
    folder = tmp_path / "logdir" / "local"

    def mended(n):
        """Returns {x: (the status of the run "mend", what TensorBoard says of it)}, of n runs."""
        groups = [group for group in hparams(folder, n)[1] if group["hparams"]["kind"] == "mend"]
        shown = {group["hparams"]["x"]: group["sessions"][0]["status"] for group in groups}
        rows = [row for row in results(folder).values() if row["parameters"]["kind"] == "mend"]
        return {
            row["parameters"]["x"]: (row["status"], shown[row["parameters"]["x"]]) for row in rows
        }

    code, output = run(tmp_path / "logdir", *flags, "--set", "x=1,2")
    assert code == 1, output
    rows = table(folder / "results.csv")
    assert [row["score"] for row in rows[:4]] == ["4.0", "2.0", "", ""]
    assert [row["kind"] for row in rows[:4]] == ["fine", "fine", "nan", "nan"]
    assert [row["status"] for row in rows] == ["done"] * 4 + ["failed"] * 8
    assert set(calls(folder).values()) == {2}
    assert "SIGKILL(-9)" in output and "it exits" in output
    failed, done = ("failed", "STATUS_FAILURE"), ("done", "STATUS_SUCCESS")
    assert mended(12) == {1: failed, 2: failed}

    code, output = run(tmp_path / "logdir", *flags, "--set", "x=1,2,3")
    assert "4 of 18 have a result from before" in output
    # Those of x=3 are new; they have failed once, or are done.
    assert calls(folder) == {"fine": 3, "nan": 3, "raise": 5, "exit": 5, "kill": 5, "mend": 5}
    assert mended(18) == {1: done, 2: done, 3: failed}


@pytest.mark.long
def test_a_metric_that_is_not_there(tmp_path, odd):
    """Catches: a typo in --metric that shows only when all runs are over."""
    flags = [*odd[:-1], "scor", "--set", "kind=fine,sleep", "--set", "x=1"]
    code, output = run(tmp_path / "logdir", *flags, seconds=40)
    assert code == 2 and "there is no metric 'scor'; the function returns score, other" in output
    assert "Traceback" not in output


@pytest.mark.long
@pytest.mark.parametrize(
    "backend",
    ["local", pytest.param("spark", marks=[pytest.mark.needs("java"), pytest.mark.nightly])],
)
def test_ctrl_c_ends_all_and_keeps_what_is_done(backend, tmp_path, odd):
    """Catches: processes that train on after Ctrl-C; an interrupted run that counts as done, or as
    failed; a run that begins after Ctrl-C."""
    flags = [backend if word == "local" else word for word in odd]
    flags += ["--jobs", "1", "--set", "kind=fine,sleep", "--set", "x=1,2", "--master", "local[1]"]
    logdir = tmp_path / "logdir"
    process = support.begin(FOLDER / "run.sh", logdir, *flags, "--logdir", logdir)
    folder = tmp_path / "logdir" / backend
    log = folder / "kind=sleep,x=1" / "log.txt"
    support.wait_until(lambda: log.exists() and "sleeping" in log.read_text(), 40, "asleep")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=support.patience(20))[0]
    assert process.returncode == 130 and "stopped" in output and "Traceback" not in output
    assert not psutil.wait_procs(children, timeout=support.patience(10))[1]
    assert {result["parameters"]["kind"] for result in results(folder).values()} == {"fine"}
    assert not (folder / "kind=sleep,x=2").exists()


@pytest.mark.long
def test_runs_here_have_gpus_of_their_own(tmp_path, odd, monkeypatch):
    """Catches: two runs at once on one GPU, with another idle."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    odd[3] = odd[3].replace(":odd", ":gpu")
    flags = [*odd, "--jobs", "2", "--set", "number=1,2,3,4"]
    code, output = run(tmp_path / "logdir", *flags, PATH=fake_nvidia_smi(tmp_path, 2))
    assert code == 0, output
    runs = results(tmp_path / "logdir" / "local")
    assert {result["metrics"]["gpu"] for result in runs.values()} == {0, 1}


@pytest.mark.nightly
@pytest.mark.needs("java")
def test_a_standalone_cluster_deals_out_its_gpus(tmp_path, odd):
    """Catches: code that only the driver's folder has; GPUs that Spark names and nobody sets."""
    script = tmp_path / "find.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["7"]}'\n""")
    script.chmod(0o755)
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.executor.resource.gpu.amount 1\nspark.task.resource.gpu.amount 1\n"
        "spark.executor.memory 512m\n"
    )
    gpu = "-Dspark.worker.resource.gpu"
    flags = ["--backend", "spark", "--function", odd[3].replace(":odd", ":gpu"), "--metric", "gpu"]
    flags += ["--set", "number=1,2,3", "--logdir", tmp_path / "logdir", "--jobs", "2"]
    done = with_spark(
        *(engines.FOLDER / "Spark-Cluster" / "standalone.py", "--workers", "2", "--"),
        *("bash", FOLDER / "run.sh", *flags),
        cwd=tmp_path,
        env=support.environment(
            tmp_path,
            SPARK_CONF_DIR=str(tmp_path),
            SPARK_WORKER_OPTS=f"{gpu}.amount=1 {gpu}.discoveryScript={script}",
        ),
    )
    runs = results(tmp_path / "logdir" / "spark")
    assert done.returncode == 0, done.stdout
    assert {result["metrics"]["gpu"] for result in runs.values()} == {7} and len(runs) == 3


@pytest.mark.long
def test_fashion_mnist():
    """Catches: pixels that are not scaled, rows that are not flat, a dataset that is ignored."""
    code = """
import keras
import numpy as np
import digits
images = np.random.RandomState(0).randint(0, 256, (96, 28, 28)).astype("uint8")
labels = np.arange(96).astype("uint8") % 10
parts = (images[:64], labels[:64]), (images[64:], labels[64:])
keras.datasets.fashion_mnist.load_data = lambda: parts
x, y, x_test, y_test = digits.load("fashion_mnist")
print(x.shape, x.dtype, float(x.max()), x_test.shape, y.shape, int(y_test.max()))
print(digits.train(0.01, epochs=1, dataset="fashion_mnist"))
"""
    done = support.python(code, PYTHONPATH=str(FOLDER))
    lines = done.stdout.splitlines()
    assert lines[0] == "(64, 784) float32 1.0 (32, 784) (64,) 9", done.stderr
    assert "accuracy" in lines[1]


@pytest.mark.long
def test_a_study_goes_on(tmp_path):
    """Catches: trials that are made again or suggested twice; a study that forgets its results."""
    study = functools.partial(run, tmp_path / "study", "--epochs", "1", launcher="run_study.sh")
    code, output = study("--trials", "2")
    assert code == 0 and "0 of 2 trials are done" in output, output
    first = table(tmp_path / "study" / "study.csv")
    code, output = study("--trials", "3")
    assert code == 0 and "2 of 3 trials are done" in output, output
    assert output.count("[study] trial") == 1
    rows = table(tmp_path / "study" / "study.csv")
    assert len(rows) == 3 and all(row in rows for row in first)
    assert len({row["learning_rate"] for row in rows}) == 3
    accuracies = [float(row["accuracy"]) for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
