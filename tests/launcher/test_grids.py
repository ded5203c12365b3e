"""Which runs a job.yaml starts, with which flags, and how many at once; none of them starts."""

import json
import os
import pathlib
import shlex
import signal
import sys
import threading
import types

import pytest
from tfrun.commands import job
from tfrun.launch import cluster, grid, resources, signals

pytestmark = pytest.mark.usefixtures("own_records")


def test_the_exit_code_and_the_slots_of_a_grid(monkeypatch, tmp_path, capsys):
    """Catches: the code of the last run, a run that shares cores with another, a mixed-up row."""
    codes, seen = {"a=1,b=x": 0, "a=1,b=y": -9, "a=2,b=x": 3, "a=2,b=y": 0}, {}
    monkeypatch.setattr(cluster, "core_numbers", lambda: [0, 1, 4, 5, 6])
    monkeypatch.setattr(cluster, "gpus", lambda: ["g", "h", "i"])
    monkeypatch.setattr(job.signal, "signal", lambda *_: None)

    def start(command, env, cores, number):
        name = os.path.basename(env["OUTPUT_DIR"])
        seen[name] = command[command.index("--") :], env.get("CUDA_VISIBLE_DEVICES"), cores
        if not codes[name]:
            os.makedirs(env["OUTPUT_DIR"])
            result = {"steps": 7, "wall_seconds": 2.5, "test_accuracy": len(seen) / 10}
            with open(f"{env['OUTPUT_DIR']}/result.json", "w") as file:
                json.dump(result, file)
        return types.SimpleNamespace(stdout=[b"line\n"], wait=lambda: codes[name])

    monkeypatch.setattr(job, "start_process", start)
    points = {"grid": {"a": [1, 2], "b": ["x", "y"]}, "arguments": {"c": True, "d": False, "a": 9}}
    points |= {"roles": {}, "environment": {}, "script": "train.py"}
    assert job.run_grid(points, 1, tmp_path) == 137
    assert [*seen] == [*codes]
    assert seen["a=2,b=x"] == (
        ["--", "train.py", "--c", "--a", "2", "--b", "x"],
        "g,h,i",
        [0, 1, 4, 5, 6],
    )
    rows = {row["run"]: row for row in json.loads((tmp_path / "grid.json").read_text())}
    assert [row["exit_code"] for row in rows.values()] == [0, 137, 3, 0]
    assert rows["a=1,b=x"]["test_accuracy"] == 0.1 and rows["a=2,b=y"]["test_accuracy"] == 0.4
    assert rows["a=2,b=y"]["arguments"] == {"a": 2, "b": "y"} and rows["a=2,b=y"]["steps"] == 7
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[4:9]]
    assert lines[0] == ["a", "b", "result", "updates", "seconds", "end"]
    assert lines[2] == ["1", "y", "exit", "code", "137"] and lines[3][-1] == "3"
    assert lines[4] == ["2", "y", "test", "accuracy", "40.0%", "7", "2.5", "done"]
    slots = []
    monkeypatch.setattr(job.grids, "run", lambda points, dealt, *_: slots.extend(dealt))
    job.run_grid(points, 2, tmp_path)
    assert slots == [([0, 4, 6], ["g", "i"]), ([1, 5], ["h"])]


def test_runs_at_once_have_enough(monkeypatch):
    """Catches the cores of one task for those of all, and a whole machine for each run."""
    monkeypatch.setattr(cluster, "core_numbers", lambda: [*range(8)])
    monkeypatch.setattr(cluster, "gpus", lambda: ["a", "b", "c"])
    needs = {"worker": 2}, {"worker": 2}, {}, {"worker": 2**20}
    shares = resources.shares(*needs, runs=2)
    assert [share.cpus for share in shares.values()] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match=r"asks for 4 cores .* has 2 for each of 3 runs at once"):
        resources.shares(*needs, runs=3)
    with pytest.raises(ValueError, match=r"asks for 2 GPUs .* has 1 for each of 2 runs at once"):
        resources.shares({"worker": 2}, {}, {"worker": 1}, {}, runs=2)


def test_the_points_of_a_grid():
    """Catches: a combination that is missing, two runs in one folder, and two that are the same."""
    points = grid.product({"a": [1, 2], "b": [True, "x/y"]})
    assert points == [
        {"a": 1, "b": True},
        {"a": 1, "b": "x/y"},
        {"a": 2, "b": True},
        {"a": 2, "b": "x/y"},
    ]
    assert grid.product({}) == [{}]
    assert [*grid.named(points)] == ["a=1,b=true", "a=1,b=x_y", "a=2,b=true", "a=2,b=x_y"]
    alike = [{"a": "x/y"}, {"a": "x y"}, {"a": "x:y"}, {"a": "z" * 200}, {"a": "z" * 201}]
    names = [*grid.named(alike)]
    assert names[:3] == ["a=x_y", "a=x_y+", "a=x_y++"]
    assert [len(name) for name in names[3:]] == [120, 121] and names[3] == "a=" + "z" * 118
    assert [*grid.named(alike).values()] == alike
    for values, due in [
        ([0.1, "a", "0.10"], ("0.1", "0.10")),
        ([True, 1, "true"], None),
        ([1, 2, "1"], ("1", "1")),
        (["a", "b", "a"], ("a", "a")),
        ([True, False, True], ("true", "true")),
        ([], None),
    ]:
        assert grid.first_duplicate(values) == due


@pytest.mark.parametrize(
    "gpus, n, due",
    [
        ("", 2, [[], []]),
        ("abc", 2, [["a", "c"], ["b"]]),
        ("ab", 5, [["a"], ["b"], ["a"], ["b"], ["a"]]),
    ],
)
def test_the_gpus_of_runs_at_once(gpus, n, due):
    """Catches a GPU that two runs have while another is free."""
    assert grid.deal([*gpus], n) == due


def test_the_slots_of_runs_at_once():
    """Catches two runs in one slot, and runs one after another."""
    both, seen = threading.Barrier(2), []

    def run_one(name, slot):
        seen.append((name, slot))
        both.wait(20)  # the other one runs meanwhile

    grid.run("abcd", ["first", "second"], run_one, None)
    assert sorted(name for name, _ in seen) == [*"abcd"]
    for two in seen[:2], seen[2:]:
        assert sorted(slot for _, slot in two) == ["first", "second"]


def test_a_grid_in_which_a_run_ends_all():
    """Catches runs that begin after that, and one that goes on until its own end."""
    begun, stop = [], threading.Event()

    def run_one(name, _):
        begun.append(name)
        if name == "a":
            raise ZeroDivisionError
        stop.wait(20)

    with pytest.raises(ZeroDivisionError):
        grid.run("abcd", [1, 2], run_one, stop.set)
    assert stop.is_set() and "a" in begun and "d" not in begun


def test_ctrl_c_while_runs_are_dealt_out():
    """Catches a run that began before it, and goes on until its own end."""
    stop, has_begun = threading.Event(), threading.Event()

    def run_one(name, _):
        has_begun.set()
        assert stop.wait(20)

    def names():
        yield "a"
        assert has_begun.wait(20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grid.run(names(), [1], run_one, stop.set)
    assert stop.is_set()


def test_a_grid_that_a_signal_ends(monkeypatch, tmp_path, capsys):
    """Catches another exit code, a second signal that is heard, and no table at the end."""
    handlers = {}

    def handle(handler, *numbers):
        handlers.update(dict.fromkeys(numbers, handler))

    def run(points, slots, run_one, stop):
        handlers[15](15, None)

    monkeypatch.setattr(job.signals, "handle", handle)
    monkeypatch.setattr(job.grids, "run", run)
    points = {"grid": {"a": [1, 2]}, "arguments": {}, "roles": {}, "environment": {}}
    assert job.run_grid({**points, "script": "train.py"}, 1, tmp_path) == 143
    assert handlers[2](2, None) is None and {*handlers} == {*signals.ENDING, signal.SIGTSTP}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["a", "result", "updates", "seconds", "end"],
        ["1", "not", "begun"],
        ["2", "not", "begun"],
    ]
    assert lines[-1] == f"the runs are in {tmp_path}"


def test_a_signal_while_the_report_of_a_grid_is_written(monkeypatch, tmp_path):
    """Catches a report that Ctrl-C cuts short."""
    handlers, seen = {}, []
    monkeypatch.setattr(
        job.signals, "handle", lambda do, *numbers: handlers.update(dict.fromkeys(numbers, do))
    )
    monkeypatch.setattr(job.grids, "run", lambda *_: None)
    monkeypatch.setattr(
        job, "report", lambda *_: seen.extend(handlers[n](n, None) for n in signals.ENDING)
    )
    points = {"grid": {"a": [1, 2]}, "arguments": {}, "roles": {}, "environment": {}}
    assert job.run_grid({**points, "script": "train.py"}, 1, tmp_path) == 0
    assert seen == [None] * 3


def test_a_grid_without_a_run(monkeypatch, tmp_path, capsys):
    """Catches a run that begins after a wrong flag, and one that is not stopped, or twice."""
    stopped = []

    def start(command, env, *_):
        process = types.SimpleNamespace(stdout=[], wait=lambda: 2)
        process.terminate = lambda: stopped.append(env["OUTPUT_DIR"])
        return process

    def run(points, slots, run_one, stop):
        run_one("a=1", slots[0])
        stop()
        stop()
        with pytest.raises(SystemExit, match="2"):
            run_one("a=2", slots[0])
        sys.exit(2)

    monkeypatch.setattr(job.signals, "handle", lambda *_: None)
    monkeypatch.setattr(job.grids, "run", run)
    monkeypatch.setattr(job, "start_process", start)
    points = {"grid": {"a": [1, 2]}, "arguments": {}, "roles": {}, "environment": {}}
    assert job.run_grid({**points, "script": "train.py"}, 1, tmp_path) == 2
    assert stopped == [f"{tmp_path}/a=1"]
    assert [row["exit_code"] for row in json.loads((tmp_path / "grid.json").read_text())] == [
        2,
        None,
    ]


def test_the_command_line_of_a_job(capsys, monkeypatch):
    """Catches a role, an amount, a variable or a value that does not arrive."""
    pathlib.Path("jobs").mkdir()
    pathlib.Path("jobs/train.py").touch()
    pathlib.Path("jobs/a.yaml").write_text("""
script: train.py
arguments: {steps: 5, fast: true, slow: false}
environment: {A: b c}
roles:
  ps: {replicas: 2, cpus: 1, memory: 1G}
  worker: {replicas: 3, memory: 2M, environment: {A: d}}
  chief:
  evaluator: {replicas: 0}
timeout: 60
restarts: 2
isolate: true
grid: {rate: [0.1, 0.2]}
""")
    monkeypatch.setattr(cluster, "core_numbers", lambda: [*range(8)])
    assert job.command(["jobs/a.yaml", "--dry-run"]) == 0
    script = os.path.realpath("jobs/train.py")
    flags = ["tfrun", "--ps", "2", "--workers", "3", "--chief", "--cpus", "ps=1"]
    flags += ["--memory", "ps=1G,worker=2M", "--env", "A=b c", "--env", "worker:A=d"]
    flags += ["--timeout", "60", "--restarts", "2", "--isolate", "--", script]
    flags += ["--steps", "5", "--fast", "--rate"]
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line) for line in lines] == [[*flags, "0.1"], [*flags, "0.2"]]


def test_the_problem_of_a_job():
    """Catches a problem that no run gets, and one that is not looked for beside the job's file."""
    pathlib.Path("jobs").mkdir()
    pathlib.Path("jobs/a.yaml").write_text("script: train.py\nproblem: mine.py")
    line = job.command_line(job.read(pathlib.Path("jobs/a.yaml")), {})
    script, problem = map(os.path.realpath, ("jobs/train.py", "jobs/mine.py"))
    assert line == ["--problem", problem, "--", script]


def test_which_runs_a_job_starts(capsys, monkeypatch, tmp_path):
    """Catches more runs at once than there are, a grid in another folder, and one run as a grid."""
    monkeypatch.delenv("RUNS_DIR", raising=False)
    pathlib.Path("train.py").touch()
    seen = []
    monkeypatch.setattr(job, "run_grid", lambda given, n, where: seen.append((n, where)) or 7)
    monkeypatch.setattr(job.start, "command", lambda line: seen.append(line) or 8)
    path = pathlib.Path("a.yaml")
    for parallel, due in ("", 1), ("parallel: 2", 2), ("parallel: 9", 3):
        path.write_text(f"script: train.py\ngrid: {{a: [1, 2, 3]}}\n{parallel}")
        assert job.command(["a.yaml"]) == 7
        n, where = seen.pop()
        assert n == due and where.parent == tmp_path / "runs/train"
    path.write_text("script: train.py")
    assert job.command(["a.yaml"]) == 8
    assert seen == [["--", os.path.realpath("train.py")]]
    monkeypatch.setenv("OUTPUT_DIR", "train.py")
    path.write_text("script: train.py\ngrid: {a: [1, 2]}")
    assert job.command(["a.yaml"]) == 2
    assert "the run directory cannot be written" in capsys.readouterr().err
    assert job.command(["none.yaml"]) == 2
    assert capsys.readouterr().err.startswith("tfrun: none.yaml: ")
