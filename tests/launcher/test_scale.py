"""tfrun scale: who joins and leaves a live run, when, and what tfrun then says and records.

The tasks follow a script: see tests/support/scripted.py.
"""

import json

import pytest
import scripted
from tfrun.commands import scale
from tfrun.launch import resources, supervisor
from tfrun.runs import scaling

PUSH = "1,1,1,1,32,0.5,0,8,0.1,,\n"  # a line of metrics


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Returns a function that makes the World of {task: [its script at each start]}."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return lambda **scripts: scripted.World(
        tmp_path, monkeypatch, {name.replace("_", " "): script for name, script in scripts.items()}
    )


@pytest.fixture
def directory(tmp_path):
    """Returns the directory of the run in a World."""
    return tmp_path / "E" / "run"


def asking(directory, n):
    """Returns a function that asks for n workers, as `tfrun scale` does."""
    return lambda: scaling.ask(directory, n)


def pushing(directory, task):
    """Returns a function by which a task writes a line into its metrics."""
    path = directory / f"metrics-{task.replace(' ', '-')}.csv"
    return lambda: path.write_text(PUSH)


def states(seen):
    """Returns {task: its state} of the record."""
    return {task["task"]: task["state"] for task in seen.record()["tasks"]}


@pytest.mark.parametrize(
    "n, staying, leaving, kept, expected",
    [
        (2, [0, 1], [], [0], ([], [])),
        (4, [0, 1], [], [0], ([2, 3], [])),
        (3, [0, 2], [], [0], ([1], [])),  # the lowest that is free
        (3, [0, 1], [2], [0], ([3], [])),  # one that leaves still has its place
        (1, [0, 1, 2], [], [0], ([], [1, 2])),
        (2, [0, 1, 2], [], [0], ([], [2])),  # the highest
        (1, [0, 1], [], [1], ([], [0])),  # but not the one that is kept
        (0, [0, 1, 2, 3], [], [0], ([], [1, 2, 3])),
    ],
)
def test_who_joins_and_who_leaves(n, staying, leaving, kept, expected):
    """Catches another number, a rank that is taken twice, and a chief that leaves."""
    assert scaling.plan(n, staying, leaving, kept) == expected


@pytest.mark.parametrize(
    "text, n", [("3\n", 3), ("", None), ("-1", None), ("many", None), ("0", None), ("²", None)]
)
def test_what_somebody_asks_for(text, n, tmp_path):
    """Catches a file that is read while it is half there, or has no number."""
    (tmp_path / scaling.REQUEST).write_text(text)
    assert scaling.asked(tmp_path) == n
    scaling.answer(tmp_path)
    assert scaling.asked(tmp_path) is None


def test_workers_join_and_leave(world, directory):
    """Catches a request that stays, a worker that starts twice, and marks of an earlier start."""
    directory.mkdir(parents=True)
    for name in "left-0", "left-1", scaling.REQUEST:
        (directory / name).write_text("7")
    noted = []

    def note():
        marks = sorted(path.name for path in directory.glob("left-*"))
        noted.append((scaling.asked(directory), marks, states(seen).get("worker 2")))

    first = [(3, asking(directory, 3)), (5, note), (8, asking(directory, 2)), (9, note), (20, 0)]
    seen = world(
        ps_0=[[(21, 0)]],
        worker_0=[[(0.5, note), *first]],
        worker_1=[[(20, 0)]],
        worker_2=[[(1, pushing(directory, "worker 2")), (7, 0)]],
    )
    code, run = seen.run({"worker": 2, "ps": 1})
    assert code == 0 and run.done
    assert [name for name, _ in seen.starts].count("worker 2") == 1
    assert 3 <= dict(seen.starts)["worker 2"] <= 4
    assert noted == [(None, [], None), (None, [], "running"), (None, ["left-2"], "leaving")]
    texts = seen.texts()
    assert "[tfrun] worker 2 joins" in texts and "[tfrun] worker 2 leaves" in texts
    assert states(seen) == {
        "ps 0": "done",
        "worker 0": "done",
        "worker 1": "done",
        "worker 2": "left",
    }


def test_a_worker_that_does_not_leave_in_time(world, directory):
    """Catches one that holds the run for ever, one that is killed too soon, and its exit code."""
    seen = world(
        ps_0=[[(61, 0)]],
        worker_0=[[(2, asking(directory, 1)), (60, 0)]],
        worker_1=[["stubborn"]],
    )
    code, run = seen.run({"worker": 2, "ps": 1})
    assert code == 0 and run.done
    (kill,) = [kill for kill in seen.kills if kill[0] == "worker 1"]
    assert kill[1] == "SIGKILL"
    assert 2 <= kill[2] - supervisor.LEAVE_SECONDS <= 4


def test_one_that_left_may_join_again(world, directory):
    """Catches a mark that stays, by which it would leave at once, and another rank."""
    marks = []
    mark = scaling.mark(directory, 1)
    seen = world(
        ps_0=[[(31, 0)]],
        worker_0=[[(2, asking(directory, 1)), (6, asking(directory, 2)), (30, 0)]],
        worker_1=[[(4, 0)], [(1, lambda: marks.append(mark.exists())), (20, 0)]],
    )
    code, _ = seen.run({"worker": 2, "ps": 1})
    assert code == 0 and marks == [False]
    assert [name for name, _ in seen.starts].count("worker 1") == 2
    assert states(seen)["worker 1"] == "done"


@pytest.mark.parametrize("pushes", [False, True])
def test_a_worker_that_fails_after_it_joined(pushes, world, directory):
    """One that cannot join is let go; one that has taken part starts again, as any other."""
    script = [(1, pushing(directory, "worker 1"))] * pushes + [(2, 3)]
    seen = world(
        ps_0=[[(31, 0)]],
        worker_0=[[(2, asking(directory, 2)), (30, 0)]],
        worker_1=[script, [(5, 0)]],
    )
    code, _ = seen.run({"worker": 1, "ps": 1}, restarts=2)
    assert code == 0
    assert [name for name, _ in seen.starts].count("worker 1") == 1 + pushes
    assert any("cannot join" in text for text in seen.texts()) != pushes
    assert scaling.mark(directory, 1).exists() != pushes


def test_a_worker_that_joins_too_late(world, directory):
    """Catches one that waits for a ps that has gone: it holds the run for minutes."""
    seen = world(
        ps_0=[[(6, 0)]],
        worker_0=[[(2, asking(directory, 2)), (5, 0)]],
        worker_1=[["stubborn"]],
    )
    code, run = seen.run({"worker": 1, "ps": 1})
    assert code == 0 and run.done and seen.second() < 10
    assert any("worker 1 has come too late" in text for text in seen.texts())


def test_nobody_joins_once_the_ps_has_ended(world, directory):
    """Catches a worker that is to end before it has a process, and one that is done and starts."""
    seen = world(
        ps_0=[[(3, 0)]], worker_0=[[(4, 0)]], worker_1=[[(5, asking(directory, 3)), (8, 0)]]
    )
    code, run = seen.run({"worker": 2, "ps": 1})
    assert code == 0 and run.done and scaling.asked(directory) is None
    assert any("the ps has ended: no worker joins" in text for text in seen.texts())
    assert len(seen.starts) == 3


@pytest.mark.parametrize(
    "jobs, share, why",
    [
        ({"worker": 2}, None, "its tasks have no ps"),
        ({"worker": 2, "ps": 1}, resources.Share([0], "", 0), "cores or GPUs of their own"),
    ],
)
def test_a_run_that_takes_no_worker(jobs, share, why, world, directory):
    """Catches a request that nobody answers, and a failure of the whole run."""
    seen = world(
        **({"ps_0": [[(9, 0)]]} if "ps" in jobs else {}),
        worker_0=[[(2, asking(directory, 3)), (8, 0)]],
        worker_1=[[(8, 0)]],
    )
    shares = {("worker", k): share for k in range(2)} if share else {}
    code, _ = seen.run(jobs, shares=shares)
    assert code == 0 and scaling.asked(directory) is None
    assert any(why in text for text in seen.texts())


def record(directory, state="running", ps=1):
    """Returns a record as far as the command reads it."""
    workers = [{"task": f"worker {k}", "role": "worker", "state": "running"} for k in range(2)]
    tasks = [*workers, *({"task": "ps 0", "role": "ps", "state": "running"} for _ in range(ps))]
    return {"run": "E/run", "directory": str(directory), "state": state, "tasks": tasks}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"state": "done"}, "E/run has ended already: done"),
        ({"ps": 0}, "E/run has no ps"),
        ({}, "has answered"),
    ],
)
def test_what_the_command_refuses(changes, words, tmp_path, monkeypatch, capsys):
    """Catches a request that stays behind for the next start, and one to a run that has ended."""
    monkeypatch.setattr(scale, "TAKE_SECONDS", 0.2)
    monkeypatch.setattr(scale.registry, "read_all", lambda: [record(tmp_path, **changes)])
    monkeypatch.setattr(scale.common, "directory_of", lambda run: str(tmp_path))
    assert scale.command(["E/run", "--workers", "3"]) == 1
    assert words in capsys.readouterr().err
    assert scaling.asked(tmp_path) is None


def test_what_the_command_says(tmp_path, monkeypatch, capsys):
    """Catches workers that are counted although they leave, and JSON that is none."""
    before, after = record(tmp_path), record(tmp_path)
    after["tasks"][1]["state"] = "leaving"
    records = [before, before, after, before, after]
    monkeypatch.setattr(scale.registry, "read_all", lambda: [records.pop(0)])
    monkeypatch.setattr(scale.common, "directory_of", lambda run: str(tmp_path))
    monkeypatch.setattr(scale, "wait_for", lambda *_: True)
    records.pop(0)
    assert scale.command(["E/run", "--workers", "1"]) == 0
    assert capsys.readouterr().out == "E/run, 1 worker: worker 1 leaves\n"
    assert scale.command(["E/run", "--workers", "1", "--json"]) == 0
    facts = {"run": "E/run", "workers": 1, "join": [], "leave": ["worker 1"]}
    assert json.loads(capsys.readouterr().out) == facts
