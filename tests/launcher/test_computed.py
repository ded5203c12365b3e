"""What the commands of tfrun compute, from run directories, records and tables made by hand."""

import json
import math
import os
import pathlib
import shlex
import signal
import socket
import sys
import threading
import time
import types

import numpy as np
import psutil
import pytest
import run_files
from tfrun import formatting
from tfrun.commands import (
    common,
    explain,
    job,
    kill,
    logs,
    monitor,
    status,
    summary,
    tensorboard,
    trace,
)
from tfrun.commands import curves as curves_command
from tfrun.launch import cluster, grid, resources, signals, supervisor
from tfrun.launch.task import Task
from tfrun.pictures import curves
from tfrun.runs import activities, events, progress, registry
from tfrun.runs.data import RunData
from tfrun.ssh import hosts


@pytest.fixture(autouse=True)
def own_records(tmp_path, monkeypatch):
    """Each test begins without a record, in a folder of its own, at the same time of day."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 5000.0)


def record(name, state="done", started=1000.0, ended=1090.0, **changes):
    """Writes the record of a run in a folder of that name, which it makes."""
    directory = os.path.realpath(name)
    os.makedirs(directory, exist_ok=True)
    running = state in ("running", "lost")
    content = dict.fromkeys(registry.FACTS) | {"run": name, "example": "E", "directory": directory}
    content |= {"state": "running" if running else state, "exit_code": None if running else 0}
    content |= {"started": started, "ended": None if running else ended, "tasks": []}
    content["tfrun"] = registry.identity(os.getpid()) if state == "running" else None
    path = registry.folder() / f"{name.replace('/', '--')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    return registry.read(path)


def task(folder, name="worker 0", **changes):
    """Returns what a record says of a task that runs."""
    facts = {"task": name, "role": name.split()[0], "state": "running", "process": None}
    facts |= {"restarts": 0, "exit_code": None, "cores": None, "gpus": "-1", "memory_limit": None}
    return {**facts, "log": os.path.realpath(f"{folder}/{name.replace(' ', '-')}.log"), **changes}


# status, and which run is meant ------------------------------------------------------------------


def test_how_long_a_run_lasted(capsys, monkeypatch):
    """Catches: a past run that grows older, a lost run or record with a length that nobody knows.

    And the updates of one task alone, an order by name, -n of the oldest.
    """
    record("b/done", "done", 1000, 1090)
    record("a/failed", "failed", 2000, 2400, exit_code=3)
    record("c/lost", "lost", 3000)
    record("a/runs", "running", 4955)
    run_files.flags("a/runs", steps=2000)
    run_files.metrics(
        "a/runs", "worker-0", run_files.push(4990, 1200), run_files.test(4991, 1200, 0.75, 2)
    )
    run_files.metrics("a/runs", "worker-1", run_files.push(4992, 1204), run_files.push(4989, 7))
    (registry.folder() / "cut.json").write_text("{")
    os.utime(registry.folder() / "cut.json", (4000, 4000))
    assert status.command(["--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert [(each["run"], each["state"], each["age_seconds"]) for each in seen] == [
        ("b/done", "done", 90),
        ("a/failed", "failed", 400),
        ("c/lost", "lost", None),
        ("cut", "unreadable", None),
        ("a/runs", "running", 45),
    ]
    assert [each["update"] for each in seen] == [None] * 4 + [1204]
    assert (seen[4]["steps"], seen[4]["accuracy"]) == (2000, 0.75)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert status.command(["-n", "4"]) == 0
    title, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert title == ["run", "state", "began", "lasted", "updates", "result"]
    assert lines == [
        ["a/failed", "failed", "(3)", "1970-01-01", "00:33", "7", "min"],
        ["c/lost", "lost", "1970-01-01", "00:50"],
        ["cut", "unreadable", "1970-01-01", "01:06"],
        ["a/runs", "running", "1970-01-01", "01:22", "45", "s", "1,204"]
        + ["test", "accuracy", "75.0%"],
    ]


@pytest.mark.parametrize(
    ("name", "due"),
    [
        (None, "x/2"),  # the newest that runs, though others have begun later
        ("x/1", "x/1"),  # exactly, though x/11 and x/12 have it in their names
        ("x/11", "x/11"),
        ("1", "x/11"),  # of several the one that runs
        ("2", "x/2"),
        ("y", "y/3"),  # by a part
        ("y/3/", "y/3"),
        ("./y/../x/1", "x/1"),
        ("link", "y/3"),
        ("x/", None),  # two of them run
        ("none", None),
    ],
)
def test_which_run_is_meant(name, due, capsys):
    """Catches: the oldest, a part before the whole name, a path that is compared as written."""
    for number, (run_name, state) in enumerate(
        [
            ("x/11", "running"),
            ("x/2", "running"),
            ("x/1", "done"),
            ("x/12", "lost"),
            ("y/3", "done"),
        ]
    ):
        record(run_name, state, 1000 + number)
    os.symlink("y/3", "link")
    if due:
        assert common.find(name)["run"] == due
    else:
        with pytest.raises(SystemExit, match="2"):
            common.find(name)
        said = capsys.readouterr().err
        assert (
            ("x/11" in said and "x/2" in said) if name == "x/" else "there is no run none" in said
        )


def test_names_that_mean_several_runs(capsys):
    """Catches another number, the oldest of them, and one that is taken where two are meant."""
    for number in range(7):
        record(f"x/{number}", "done", 1000 + number)
    with pytest.raises(SystemExit, match="2"):
        common.find("x/")
    names = "x/2, x/3, x/4, x/5, x/6"
    line = f"tfrun: x/ may mean 7 runs: {names} (tfrun status lists all)\n"
    assert capsys.readouterr().err == line
    for number in range(5):
        os.remove(registry.folder() / f"x--{number}.json")
    with pytest.raises(SystemExit, match="2"):
        common.find("x/")
    assert "x/ may mean 2 runs: x/5, x/6 (" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, words",
    [
        ("", "RUN is empty (tfrun status lists all)"),
        (None, "there is no run yet"),
        ("x", "there is no run x (tfrun status lists all)"),
        ("cut", "the record of cut cannot be read; tfrun kill removes it"),
    ],
)
def test_a_run_that_is_not_meant(name, words, capsys):
    """Catches a traceback, and a record that is used although it cannot be read."""
    if name:
        registry.folder().mkdir(parents=True)
        (registry.folder() / "cut.json").write_text("{")
        assert common.find("cut", unreadable_too=True)["state"] == "unreadable"
    with pytest.raises(SystemExit, match="2"):
        common.find(name)
    assert capsys.readouterr().err == f"tfrun: {words}\n"


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {name: "removed"}
            for name in ("task", "log", "process", "state", "gpus", "memory_limit")
        ),
        {"gpus": 0},
        {"memory_limit": "1 GiB"},
        {"process": {"pid": 7}},
    ],
    ids=lambda changes: "-".join(f"{name} {value}" for name, value in changes.items()),
)
def test_a_record_without_what_commands_read(changes, capsys):
    """Somebody has changed a task of it. Catches a traceback of monitor, status and kill."""
    assert record("a", tasks=[task("a")])["state"] == "done"
    assert monitor.command(["a", "--once"]) == 0
    whole = task("a") | {name: value for name, value in changes.items() if value != "removed"}
    kept = {name: value for name, value in whole.items() if changes.get(name) != "removed"}
    assert record("a", tasks=[kept]) is None
    with pytest.raises(SystemExit, match="2"):
        monitor.command(["a", "--once"])
    assert capsys.readouterr().err.endswith("cannot be read; tfrun kill removes it\n")
    assert status.command([]) == 0 and "unreadable" in capsys.readouterr().out
    assert kill.command(["a"]) == 0 and registry.read_all() == []


def test_a_record_that_has_gone():
    """Catches a monitor that goes on for ever, and the state of before."""
    seen = record("a", "running")
    assert common.refreshed(seen)["state"] == "running"
    record("a", "done")
    assert common.refreshed(seen)["state"] == "done"
    os.remove(seen["path"])
    assert common.refreshed(seen) == {**seen, "state": "removed"}
    assert common.refreshed({**seen, "path": None})["state"] == "running"


def test_logs_of_a_directory_that_has_moved(capsys):
    """Catches a directory that needs a record, and one without logs that is taken for a run."""
    os.makedirs("b")
    with pytest.raises(SystemExit, match="2"):
        common.find("b", moved_too=True)
    pathlib.Path("b/worker-0.log").write_text("a line\n")
    assert logs.command(["b"]) == 0 and capsys.readouterr().out == "a line\n"
    assert logs.command(["b", "ps-0"]) == 2
    assert capsys.readouterr().err == "tfrun: b has no task ps 0; it has worker 0\n"


def test_how_wide_a_table_is(monkeypatch):
    """Catches lines that are cut in a file, and a terminal's own width that is not used."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert common.console().width == 200
    monkeypatch.setenv("COLUMNS", "77")
    assert common.console().width == 77


def test_a_table_fits_its_terminal(capsys, monkeypatch):
    """Catches a column where there is no room for it, and one that is missing."""
    record("a", "failed", 1000, 1090, exit_code=3)
    titles = {}
    for columns in (40, 55, 65, 75, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert status.command([]) == 0
        titles[columns] = capsys.readouterr().out.splitlines()[0].split()
    assert [*titles.values()] == [
        ["run", "state"],
        ["run", "state", "result"],
        ["run", "state", "lasted", "result"],
        ["run", "state", "lasted", "updates", "result"],
        ["run", "state", "began", "lasted", "updates", "result"],
    ]


def test_no_run_yet(capsys):
    """Catches an error where there is nothing to show."""
    assert status.command([]) == 0 and capsys.readouterr().out == "there is no run yet\n"
    assert status.command(["--json"]) == 0 and capsys.readouterr().out == "[]\n"


def test_the_newest_where_none_runs():
    """Catches the first one, and one that was written last."""
    record("b/2", "failed", 2000)
    record("a/1", "lost", 1000)
    assert common.find(None)["run"] == "b/2"


def test_a_run_directory_that_was_moved(capsys):
    """Catches a command that needs the record, or looks where the directory was."""
    record("a/run", tasks=[task("a/run")])
    run_files.flags("a/run")
    run_files.metrics("a/run", "worker-0", run_files.push(10, 1))
    os.makedirs("b")
    os.rename("a/run", "b/moved")
    os.symlink("b/moved", "link")
    for name in "b/moved", "link", "./b/../b/moved/":
        assert common.directory_of(name) == os.path.realpath("b/moved")
    assert status.command(["--json"]) == 0 and json.loads(capsys.readouterr().out) == []


# monitor -----------------------------------------------------------------------------------------


class Process:
    """A process as far as monitor asks it."""

    def __init__(self, pid, percent, mib, threads, *children):
        self.pid, self.percent, self.mib, self.threads = pid, percent, mib, threads
        self.below = children

    def children(self, recursive):
        below = [each for child in self.below for each in [child, *child.children(True)]]
        return below if recursive else [*self.below]

    def cpu_percent(self):
        return self.percent

    def memory_info(self):
        return types.SimpleNamespace(rss=self.mib << 20, vms=1 << 50)

    def num_threads(self):
        return self.threads

    def oneshot(self):
        return open(os.devnull)


def test_what_monitor_computes(monkeypatch):
    """Catches: a share of another task's limit or of the machine's free memory, one child's use,

    the figures of worker 1 for worker 10, a rate of a task that has ended by now, others' GPUs.
    """
    processes = {
        7: Process(7, 50.0, 100, 3, Process(71, 25.0, 30, 2, Process(72, 5.0, 20, 1))),
        8: Process(8, 10.0, 512, 4),
        os.getpid(): Process(9, 0, 0, 0),  # of tfrun
    }
    monkeypatch.setattr(registry, "process", lambda who: who and processes.get(who["pid"]))
    memory = types.SimpleNamespace(total=4 << 30, available=1 << 30, used=3 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    listed = ["0, 40, 1000", "1, 80, 3000", "2, 10, 10", "3, [N/A], [N/A]"]
    monkeypatch.setattr(cluster, "nvidia_smi", lambda *_, **__: listed)
    tasks = [
        task("r", "ps 0", process={"pid": 7, "start": "1 x"}),
        task("r", "worker 1", process={"pid": 8, "start": "1 x"}, gpus="0,1", memory_limit=1 << 30),
        task("r", "worker 10", gpus="2", state="failed", exit_code=1, restarts=2),
        task("r", "worker 2", gpus=None, state="waiting"),
    ]
    seen_record = record("r", "running", 4910, tasks=tasks)
    run_files.flags("r", steps=900)
    more = {"local_steps": 10}
    pushes = [run_files.push(t, t, 2, loss=5000.25 - t, **more) for t in (4980, 4998, 4999)]
    run_files.metrics("r", "worker-1", *pushes)
    run_files.metrics("r", "worker-10", *(run_files.push(t, t - 4000) for t in (4001, 4002, 4004)))
    run_files.metrics("r", "worker-11", run_files.push(4999, 3))
    first = monitor.snapshot(seen_record, {})
    assert [each.get("cpu_percent") for each in first["tasks"][:3]] == [None, None, None]
    looks = {each: each for each in processes.values()}
    seen = monitor.snapshot(seen_record, looks)
    names = ["cpu_percent", "memory_bytes", "threads", "pid", "memory_percent", "gpu_percent"]
    names += ["gpu_memory_bytes", "steps_per_second", "staleness", "loss", "update"]
    ps, one, ten, two, rank = ([each.get(name) for name in names] for each in seen["tasks"])
    assert ps == [80.0, 150 << 20, 6, 7, pytest.approx(100 * 150 / 4096)] + [None] * 6
    assert one == [10.0, 512 << 20, 4, 8, 50.0, 60.0, 4000 << 20, 20 / 5, 2.0, 1.25, 4999]
    assert ten == [None] * 7 + [2 / 3, 0.0, 0.5, 4]
    assert two == [None] * 11 and seen["tasks"][4]["task"] == "worker 11" and rank[-1] == 3
    assert (seen["update"], seen["steps"]) == (4999, 900)
    assert monitor.headline(seen) == "r: running for 2 min, update 4,999 of 900"
    texts = [text(seen["tasks"][1]) for _, text, _ in monitor.COLUMNS]
    assert texts == [
        *("worker 1", "running", "0", "10", "512 MiB of 1 GiB", "50.0", "60", "3.91 GiB"),
        *("4", "2.00", "1.25"),
    ]


def test_the_columns_of_monitor(monkeypatch, capsys):
    """Catches GPUs where there are none, and a column that is not there at its width."""
    monkeypatch.setattr(cluster, "nvidia_smi", lambda *_, **__: ["0, 40, 1000"])
    tasks = [task("r", gpus="0", state="done")]
    run_files.flags("r")
    seen = monitor.snapshot(record("r", "done", tasks=tasks), {})
    seen["tasks"][0]["gpus"] = ["0"]

    def titles(width):
        return [column.header for column in monitor.table(seen, width).renderables[1].columns]

    order = ["task", "state", "restarts", "CPU %", "memory", "memory %", "GPU %", "GPU memory"]
    order += ["steps/s", "staleness", "loss"]
    least = {0: 2, 30: 3, 36: 4, 45: 5, 50: 6, 55: 7, 60: 8, 70: 9, 80: 10, 90: 11}
    for width, number in least.items():
        found = titles(width)
        assert len(found) == number and found == [title for title in order if title in found]
        assert len(titles(width - 1)) == number - 1 or not width
    seen["tasks"][0]["gpus"] = []
    assert titles(200) == [title for title in order if not title.startswith("GPU")]


def test_monitor_ends_with_the_run(monkeypatch, capsys):
    """Catches: a look that never comes again, a second one with --once, no table at the end."""
    waited, states = [], iter(["running", "running", "done"])
    now = time.time

    def sleep(seconds):
        waited.append(seconds)
        record("r", next(states), tasks=[task("r")])

    monkeypatch.setattr(monitor, "time", types.SimpleNamespace(sleep=sleep, time=now))
    monkeypatch.setattr(cluster, "nvidia_smi", lambda *_, **__: [])
    record("r", "running", tasks=[task("r")])
    run_files.flags("r")
    assert monitor.command(["r", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["running", "running", "done"]
    assert waited == [1, 1, 1]
    states = iter(["running"])
    record("r", "running", tasks=[task("r")])
    assert monitor.command(["--once"]) == 0 and waited[3:] == [0.25]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "r: running for 67 min" and shown[1].split()[:2] == ["task", "state"]
    states = iter(["running"])
    assert monitor.command(["--once", "--json"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["run"] == "r" and len(text.splitlines()) > 20


def test_monitor_on_a_terminal(monkeypatch, capsys):
    """Catches: lines below each other, a table that stays as it was, JSON in a table."""
    seen = []

    class Live:
        def __init__(self, **_):
            self.is_open = False

        def __enter__(self):
            self.is_open = True

        def __exit__(self, *_):
            self.is_open = False

        def update(self, table, refresh):
            assert self.is_open and refresh
            seen.append(table.renderables[0].plain)

    states = iter(["running", "done"])
    now = time.time
    sleep = types.SimpleNamespace(sleep=lambda _: record("r", next(states)), time=now)
    monkeypatch.setattr(monitor, "time", sleep)
    monkeypatch.setattr(monitor, "Live", Live)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    record("r", "running")
    run_files.flags("r")
    assert monitor.command(["r"]) == 0
    assert seen == ["r: running for 67 min", "r: done after 2 min"]
    assert not capsys.readouterr().out.strip()
    for flag in "--once", "--json":
        states = iter(["done"])
        assert monitor.command(["r", flag]) == 0 and len(seen) == 2
        assert "done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "ended", "words"),
    [("done", 1090, "done after 2 min"), ("lost", None, "lost for at most 67 min")],
)
def test_the_headline_of_a_run_that_has_ended(state, ended, words):
    """Catches an age that goes on after the end."""
    tasks = [task("r"), task("r", "worker 1", state="done", exit_code=0)]
    seen = monitor.snapshot(record("r", state, 1000, ended, tasks=tasks), {})
    assert monitor.headline(seen) == f"r: {words}"
    states = [each["state"] for each in seen["tasks"]]
    assert states == ["lost" if state == "lost" else "running", "done"]


def test_how_far_a_run_is(tmp_path):
    """Catches: the last row for the largest, a test of fewer updates, a window that has no end."""
    run_files.flags("r", steps=50)
    rows = [run_files.push(4990 + k / 10, 2 * k, k % 4) for k in range(1, 80)]
    run_files.metrics(
        "r", "worker-0", *rows, run_files.test(4999, 158, 0.5, 1), run_files.push(4999, 3)
    )
    run_files.metrics(
        "r", "worker-1", run_files.test(4999.5, 158, 0.75, "nan"), run_files.test(5000, 2, 0, 9)
    )
    found = progress.of_run("r", 5000.0, ["worker-0"])
    assert (found["update"], found["steps"], found["test"]) == (158, 50, {"test_accuracy": 0.75})
    # In the last 5 s: k = 51 to 79 at 4995.1 to 4997.9, and the last row.
    assert found["tasks"]["worker-0"]["steps_per_second"] == pytest.approx(30 / 5)
    mean = (sum(k % 4 for k in range(51, 80)) + 0) / 30
    assert found["tasks"]["worker-0"]["staleness"] == pytest.approx(mean)
    assert found["tasks"]["worker-1"]["update"] is None  # it has tested, and made no update
    later = progress.of_run("r", 5200.0, ["worker-0"])["tasks"]["worker-0"]
    assert (later["steps_per_second"], later["staleness"], later["loss"]) == (0, None, 0.5)
    ended = progress.of_run("r", 9000.0)["tasks"]["worker-0"]  # 4994 to 4999
    assert ended["steps_per_second"] == pytest.approx(40 / 5)
    run_files.metrics(
        "r", "worker-1", run_files.push(1, 1, loss="nan"), run_files.push(2, 2, loss="nan")
    )
    diverged = progress.of_run("r", 2.0)["tasks"]["worker-1"]
    assert diverged["loss"] is None and diverged["steps_per_second"] == 1.0, "JSON has no NaN"


def test_a_long_file_is_read_from_its_end(monkeypatch):
    """Catches a rate that counts from a line cut in two, and all rows read."""
    rows = [run_files.push(4000 + k, k) for k in range(900)]
    run_files.metrics("r", "worker-0", *rows)
    monkeypatch.setattr(progress, "TAIL", len(rows[-1]) * 3 + 10)
    task_seen = progress.of_run("r", 4900.0)["tasks"]["worker-0"]
    assert (task_seen["update"], task_seen["steps_per_second"]) == (899, 1.0)


def test_the_age_of_a_checkpoint():
    """Catches: flags.json that counts after a checkpoint, another start's files, 300 s too many."""
    run_files.flags("r", arguments={"checkpoint_steps": 100})
    os.utime("r/flags.json", (1000, 1000))

    def warned(now, began=900):
        return progress.checkpoint_warning(pathlib.Path("r"), began, now)

    assert not warned(1299) and "5 min" in warned(1300) and "(now 100)" in warned(1300)
    assert not warned(1300, began=1001)
    open("r/checkpoint", "w").close()
    os.utime("r/checkpoint", (1200, 1200))
    assert not warned(1499) and "8 min" in warned(1680)


# logs --------------------------------------------------------------------------------------------


def test_logs_that_grow(capsys, monkeypatch):
    """Catches: more than the last 20 lines at first, a line in two, what came last not shown."""
    two = [task("r"), task("r", "worker 1")]
    record("r", "running", tasks=two)
    with open("r/worker-0.log", "w") as log:
        log.writelines(f"{k}\n" for k in range(50))
        log.write("in")
    open("r/worker-1.log", "w").close()
    looks = iter(range(3))

    def sleep(seconds):
        assert 0 < seconds < 1
        look = next(looks)
        with open("r/worker-0.log", "a") as log:
            log.write(["complete\n", "".join(f"more {k}\n" for k in range(30)), "the en"][look])
        if look == 2:
            record("r", "done", tasks=two)

    monkeypatch.setattr(logs, "time", types.SimpleNamespace(sleep=sleep))
    assert logs.command(["r", "-f"]) == 0
    lines = [line.removeprefix("[worker 0] ") for line in capsys.readouterr().out.splitlines()]
    more = [f"more {k}" for k in range(30)]
    assert lines == [*map(str, range(30, 50)), "incomplete", *more, "the en"]
    assert logs.command(["r", "worker", "0", "--json"]) == 0  # a run that has ended: all of it
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 82 and lines[0] == {"task": "worker 0", "line": "0"}


# summary -----------------------------------------------------------------------------------------


def test_what_summary_prints(capsys):
    """Catches: other text than the file has, another line, and a run whose data differ as right."""
    three_pushes()
    assert summary.command(["r"]) == 0
    said = capsys.readouterr()
    assert said.out == pathlib.Path("r/result.json").read_text() and not said.err
    assert summary.command(["--line", "r"]) == 0
    line = "[tfrun] test accuracy 100.0%; everything of this run is in r\n"
    assert capsys.readouterr().out == line
    for name, rows in ("worker-0", 8), ("worker-1", 7):
        with open(f"r/metrics-{name}.csv", "a") as file:
            file.write(f'# data {{"x_train": [[{rows}, 6], 1.0, 10.0]}}\n')
    assert summary.command(["r"]) == 1
    words = "worker 1 has other data than worker 0: x_train has 7 rows, not 8"
    assert words in capsys.readouterr().err
    os.remove("r/metrics-worker-1.csv")
    assert summary.command(["r"]) == 0
    words = "there are no metrics of worker-1: is the folder of its host among those given?"
    assert capsys.readouterr().err == f"tfrun: {words}\n"
    assert summary.command(["none"]) == 1 and "no flags.json in none" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 3])
def test_how_a_run_is_concluded(code, monkeypatch):
    """Catches: a code of the tasks that is lost, a picture that is not named, and a silent end."""
    three_pushes()
    directory, said = pathlib.Path("r").resolve(), []
    assert summary.conclude(directory, code, said.append) == code
    words = "everything of this run, and its picture curves.png, is in"
    assert said == [f"test accuracy 100.0%; {words} {directory}"]
    assert (directory / "result.json").exists() and (directory / "curves.png").exists()

    def full(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(summary.curves, "draw", full)
    said.clear()
    assert summary.conclude(directory, code, said.append) == (code or 2)
    assert said == ["there is no picture: the disk is full"]
    monkeypatch.setattr(summary.curves, "draw", lambda _: None)
    for name, rows in ("worker-0", 8), ("worker-1", 7):
        with open(f"r/metrics-{name}.csv", "a") as file:
            file.write(f'# data {{"x_train": [[{rows}, 6], 1.0, 10.0]}}\n')
    said.clear()
    assert summary.conclude(directory, code, said.append) == (code or 1)
    assert said[0].startswith("worker 1 has other data than worker 0")
    assert said[1] == f"test accuracy 100.0%; everything of this run is in {directory}"
    run_files.flags("r", ["worker-0", "worker-1", "worker-2"], steps=4)
    said.clear()
    summary.conclude(directory, code, said.append)
    assert said[0].startswith("there are no metrics of worker-2")
    monkeypatch.setattr(summary.summary, "write", full)
    said.clear()
    assert summary.conclude(directory, code, said.append) == (code or 1)
    assert said == ["there is no result: the disk is full"]


# curves, trace, events ---------------------------------------------------------------------------


def three_pushes():
    """A run in r: worker 0 pushes three times, worker 1 once; each computes 0.1 s, pushes 0.05."""

    def push(time, step, late):
        return run_files.push(time, step, late, pull_time=time - 0.15, wait_seconds=0.05)

    run_files.flags("r", steps=4)
    tests = (
        run_files.test(12.25, 2, 0.75, 1.5, began=12.125),
        run_files.test(14, 4, 1.0, 0.5, began=13.5),
    )
    run_files.metrics(
        "r", "worker-0", push(11, 1, 0), push(12, 2, 1), tests[0], push(13, 4, 3), tests[1]
    )
    run_files.metrics("r", "worker-1", push(12.5, 3, 1))
    return RunData.read("r")


@pytest.fixture
def drawn(monkeypatch):
    """Returns a function that draws a run, by this module, and returns the axes of its picture."""

    def draw(run, module=curves):
        monkeypatch.setattr(curves.plt, "close", lambda figure: None)
        path = module.draw(run)
        assert path.stat().st_size > 10000
        return curves.plt.gcf().axes

    yield draw
    monkeypatch.undo()
    curves.plt.close("all")


def widths(axes):
    """Returns {name of a lane: the widths of its bars}."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    bars = {name: [] for name in names}
    for bar in axes.patches:
        name = names[round(bar.get_y() + bar.get_height() / 2)]
        bars[name].append(pytest.approx(bar.get_width(), abs=1e-4))
    return bars


def test_what_the_picture_shows(drawn):
    """Catches: milliseconds by the pushes of all tasks or in another unit, accuracy for error,

    times that do not begin with the first push, staleness in the neighbour's bin.
    """
    loss, tests, counts, parts, moment = drawn(three_pushes())
    dots = [line for line in loss.lines if line.get_marker() == "."]
    assert [list(line.get_xdata()) for line in dots] == [[0, 1, 2], [1.5]]
    (error,) = tests.lines
    assert list(error.get_xdata()) == [1.25, 3.0]
    assert list(error.get_ydata()) == [0.25, 0]  # which a log scale would not show
    ticks = [label.get_text() for label in tests.get_yticklabels()]
    assert ticks == ["0.0%", "25.0%"] and not tests.get_yticks(minor=True).size
    assert "100.0%" in tests.get_legend().get_texts()[0].get_text()
    bins = {bar.get_x() + bar.get_width() / 2: 0 for bar in counts.patches}
    for bar in counts.patches:
        bins[bar.get_x() + bar.get_width() / 2] += bar.get_height()
    assert {x: n for x, n in bins.items() if n} == pytest.approx({0: 1, 1: 2, 3: 1})
    assert counts.get_title() == "Staleness, mean 1.25"  # not the mean of the means of workers
    # Worker 0 pulls for 0.85 s and 0.6 s, and evaluates for 0.125 s and 0.5 s.
    assert widths(parts) == {
        "worker 1": [0, 100, 50, 0, 0],
        "worker 0": [1450 / 3, 100, 50, 0, 625 / 3],
    }
    assert moment.get_title() == "A moment of the run"


def test_the_times_of_updates_in_the_picture(drawn):
    """Where nothing is stale. Catches seconds for milliseconds, and gaps between tasks."""
    run_files.flags("r", ["worker-0"], steps=3)
    pushes = [run_files.push(at, k) for k, at in enumerate((1.0, 1.004, 1.010), 1)]
    run_files.metrics("r", "worker-0", *pushes)
    counts = drawn(RunData.read("r"))[2]
    filled = [bar for bar in counts.patches if bar.get_height()]
    inside = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in filled]
    assert len(filled) == 2
    for (left, right), gap in zip(inside, (4, 6)):
        assert left - 0.1 < gap < right + 0.1


def test_losses_around_a_stall(drawn):
    """No line crosses a stall, and a loss that is no number is a cross.

    Catches: a line or a mean across a stall, and a loss of infinity that is not drawn.
    """
    run_files.flags("r", ["worker-0"], steps=160)
    losses = [*[1] * 80, *[0.1] * 78, "nan", "inf"]
    times = [1 + k / 100 + (k > 80) for k in range(1, 161)]
    pushes = [run_files.push(at, k, loss=losses[k - 1]) for k, at in enumerate(times, 1)]
    run_files.metrics("r", "worker-0", *pushes)
    axes = drawn(RunData.read("r"))[0]
    means = [line for line in axes.lines if line.get_marker() == "None"]
    assert len(means) == 2
    before, after = [line.get_ydata() for line in means]
    assert list(before) == [1] * 80 and list(after[:70]) == pytest.approx([0.1] * 70)
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [pytest.approx([2.58, 2.59])]
    assert "x: no number" in axes.get_xlabel()
    for at in crosses[0].get_transform().transform(crosses[0].get_xydata()):
        assert axes.get_window_extent().contains(*at)


def test_errors_of_the_tests(drawn):
    """Errors stand between 0 and the legend, with ticks at some of them.

    There are 5, 6 or 15 in 360 examples; a second metric ends with none.

    Catches: ticks beside whole examples, minor ticks, a legend on a curve or with room for one
    metric, and an axis of time that differs from the loss's.
    """
    names = ["test_accuracy", "test_top_5_accuracy", "test_loss"]
    wrong = [(6, 15), (5, 5), (6, 1), (15, 0), (5, 0)]
    tests = [
        run_files.test(2 + k, k, 1 - some / 360, 1 - others / 360, 0.5, tests=names)
        for k, (some, others) in enumerate(wrong)
    ]
    pushes = [run_files.push(at, at, tests=names) for at in (1, 9)]
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", *pushes, *tests, tests=names)
    axes = drawn(RunData.read("r"))[1]
    axes.figure.canvas.draw()
    legend, inside = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert len(axes.lines) == 2 and legend.y1 <= inside.y1
    for line in axes.lines:
        curve = axes.transData.transform(line.get_xydata())
        assert len(curve) == 5 and inside.y0 - 0.01 < min(curve[:, 1])
        assert max(curve[:, 1]) < legend.y0
    counts = [360 * tick for tick in axes.get_yticks()]
    assert counts == pytest.approx([0, 1, 5, 15]) and not axes.get_yticks(minor=True).size
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["0.0%", "0.3%", "1.4%", "4.2%"]
    assert axes.get_xlim()[0] < 0 and axes.get_xlim()[1] > 8


def test_a_long_time_in_words():
    """Catches 1.04e+03 ms."""
    axes = curves.plt.figure().subplots()
    times = {"worker 0": np.array([1.0] * 400 + [1040.4])}
    curves.draw_counts(axes, times, {"worker 0": "C0"}, whole=False)
    assert axes.texts[0].get_text() == "1 beyond, up to 1,040 ms"


def test_the_parts_of_a_pipeline_are_not_drawn(drawn, monkeypatch):
    """Catches worker 0 of a pipeline, which calls all others, as computing while it waits."""
    spans = [(0, 0, "forward", 0, 0, 0.01), (1, 0, "forward", 0, 0.02, 0.03)]
    monkeypatch.setattr(curves, "stages", lambda directory: spans)
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", run_files.push(1, 1), run_files.push(2, 2))
    *_, counts, moment = drawn(RunData.read("r"))
    assert counts.get_title() == "Time of an update" and not moment.figure.legends
    assert moment.get_title() == "What each worker did in one update"


def test_the_running_mean():
    """Catches a mean that is shifted, or lower at the ends."""
    values = np.array([1.0, 2, 3, 4, 10])
    assert list(curves.smooth(values, 1)) == list(values)
    assert list(curves.smooth(values, 3)) == pytest.approx([4 / 3, 2, 3, 17 / 3, 8])
    assert list(curves.smooth(values, 3, 2)) == pytest.approx([4 / 3, 3, 8])


def test_a_long_run_is_drawn_from_its_middle(drawn, monkeypatch):
    """Catches an Activity for each push of a million, a part of another time, a mean over both."""
    monkeypatch.setattr(activities, "MOST", 10)
    monkeypatch.setattr(curves, "MOST_DOTS", 10)
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", *(run_files.push(at, at) for at in range(1, 101)))
    run = RunData.read("r")

    def steps(*around):
        found = activities.activities(run, *around)
        return [int(each.facts["global_step"]) for each in found if each.name == "push"]

    assert steps() == list(range(56, 66)) and steps(0) == list(range(1, 11))
    assert steps(200) == list(range(91, 101))
    loss, _, _, parts, moment = drawn(run)
    dots, mean = loss.lines
    assert 0 < len(dots.get_xdata()) == len(mean.get_xdata()) <= 10
    assert dots.get_xdata()[-1] >= 90 and moment.get_title() == "A moment of the run"
    widths = {patch.get_width() for patch in parts.patches}
    assert max(widths) <= 1000, "milliseconds an update: they are a second apart"


def test_each_directory_has_its_picture(capsys, monkeypatch):
    """Catches the first one alone, or one picture for all."""
    monkeypatch.setattr(curves, "draw", lambda run: run.directory / "curves.png")
    for name in "a", "b":
        run_files.flags(name)
    assert curves_command.command(["a", "b"]) == 0
    assert capsys.readouterr().out.split() == ["a/curves.png", "b/curves.png"]
    assert curves_command.command(["a", "none"]) == 1


def test_a_run_of_one_process_only_computes():
    """Catches a wait or a push in Non-Distributed-Setup."""
    run_files.flags("r", ["worker-0"], ps=0)
    run_files.metrics(
        "r", "worker-0", run_files.push(10, 1), run_files.push(10.5, 2, pull_time=10.25)
    )
    spans = [each[1:4] for each in activities.activities(RunData.read("r"))]
    assert [each for each in spans if each[2] > each[1]] == [
        ("compute", 9.75, 10.0),
        ("pull", 10.0, 10.25),
        ("compute", 10.25, 10.5),
    ]


def test_the_window_of_a_trace(capsys, monkeypatch):
    """Catches: seconds from another moment than the first push, a length for an end."""
    three_pushes()
    seen = []
    monkeypatch.setattr(trace.timeline, "draw", lambda *arguments: seen.append(arguments))
    assert trace.command(["r", "--json", "--from", "1.5", "--seconds", "0.25"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["from"], said["seconds"]) == (1.5, 0.25)
    assert (
        seen[0][-2:] == (12.5, 12.75)
        and seen[0][1] == "HogWild, from 1.500 s after the first push on"
    )
    made = json.load(open("r/trace.json"))
    start = made["otherData"]["begin_seconds_since_1970"]
    moments = {e["name"]: start + e["ts"] / 1e6 for e in made["traceEvents"] if e["ph"] == "i"}
    assert moments == pytest.approx(
        {
            f"update {k} by worker {w}": at
            for k, w, at in ((1, 0, 11), (2, 0, 12), (3, 1, 12.5), (4, 0, 13))
        }
    )


def test_what_trace_says(capsys, monkeypatch):
    """Catches: files of another folder, a window that is empty or without a length, and no code."""
    three_pushes()
    seen = []
    monkeypatch.setattr(trace.timeline, "draw", lambda *arguments: seen.append(arguments))
    assert trace.command(["r", "--output", "new/o"]) == 0
    lines = capsys.readouterr().out.splitlines()
    json_line = "new/o/trace.json   open it in https://ui.perfetto.dev"
    assert lines == ["new/o/trace.png", json_line] and os.path.exists("new/o/trace.json")
    path, _, activities_seen, begin, end = seen[0]
    assert str(path) == "new/o/trace.png" and begin < end and len(activities_seen) > 8
    assert trace.command(["r", "--from", "99"]) == 2
    words = "no task did anything in that time: see --from, --seconds"
    assert capsys.readouterr().err == f"tfrun: {words}\n"
    assert trace.command(["r", "--from", "-1.5", "--seconds", "0.5"]) == 2
    assert trace.command(["r", "--from", "3.1", "--seconds", "1", "--json"]) == 2
    capsys.readouterr()
    assert trace.command(["r", "--from", "0.5", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["from"] == 0.5 and made["seconds"] == pytest.approx(end - begin)
    pathlib.Path("file").touch()
    assert trace.command(["r", "--output", "file"]) == 2
    assert capsys.readouterr().err.startswith("tfrun: the trace cannot be written: ")
    run_files.flags("empty")
    run_files.metrics("empty", "worker-0")
    assert trace.command(["empty"]) == 1
    assert "no update was made yet in " in capsys.readouterr().err
    monkeypatch.setattr(activities, "MOST", 2)
    assert trace.command(["r"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "2 of 4 pushes, those around the picture; --from S: others"


def test_the_time_of_an_event():
    """Catches events at the time at which they were written, and a step that is a count."""
    three_pushes()
    os.utime("r/flags.json", (77, 77))
    written, content = [], []
    board = events.Events("board")
    board.write_event = lambda *arguments: written.append(arguments[:3])
    board.write_scalars = lambda name, row, scalars: content.append(
        (name, row["push_time"], row["global_step"], sorted(scalars))
    )
    board.update(RunData.read("r"))
    board.update(RunData.read("r"))
    assert written == [("worker-0", 77, 0)]
    tests, pushes = ["test_accuracy", "test_loss"], ["loss", "staleness"]
    assert content == [
        ("worker-0", 12.25, 2, tests),
        ("worker-0", 14, 4, tests),
        ("worker-0", 11, 1, pushes),
        ("worker-0", 12, 2, [*pushes, "updates_per_second"]),
        ("worker-0", 13, 4, [*pushes, "updates_per_second"]),
        ("worker-1", 12.5, 3, pushes),
    ]


# what the tasks get ------------------------------------------------------------------------------


def test_shares_of_a_machine(monkeypatch):
    """Catches: a core that two tasks have, cores of the first role for all, GPUs for the others."""
    monkeypatch.setattr(cluster, "core_numbers", lambda: [0, 2, 3, 5, 7, 8])
    monkeypatch.setattr(cluster, "gpus", lambda: ["a", "b", "c", "d"])
    jobs = {"worker": 2, "chief": 1, "ps": 1}
    shares = resources.shares(jobs, {"worker": 2, "ps": 1}, {"worker": 1}, {"ps": 5, "chief": 7})
    assert {task: tuple(share) for task, share in shares.items()} == {
        ("ps", 0): ([0], [], 5),
        ("chief", 0): (None, [], 7),
        ("worker", 0): ([2, 3], ["a"], None),
        ("worker", 1): ([5, 7], ["b"], None),
    }
    with pytest.raises(ValueError, match=r"asks for 8 cores \(2 worker x 4\), and .* has 6"):
        resources.shares(jobs, {"worker": 4}, {}, {})
    env = cluster.on_machine([*shares], {}, "d", 6, ["a", "b", "c", "d"], shares, (), ())
    seen = [(e["CUDA_VISIBLE_DEVICES"], e["TF_NUM_INTRAOP_THREADS"]) for e in env.values()]
    assert seen == [("-1", "1"), ("-1", "2"), ("a", "2"), ("b", "2")]
    assert [resources.size(text) for text in ("512M", "1.5G", "2GiB")] == [2**29, 3 * 2**29, 2**31]


@pytest.mark.parametrize(
    ("cores", "gpus", "due"),
    [
        (8, "ab", {"chief 0": ("a", "2"), "worker 0": ("b", "2"), "worker 1": ("a", "2")}),
        (2, "", {"chief 0": (None, "1"), "worker 0": (None, "1"), "worker 1": (None, "1")}),
    ],
)
def test_what_tasks_share(cores, gpus, due):
    """Catches: the ps counted among those that compute, GPUs from the second on, 0 threads."""
    tasks = cluster.tasks({"worker": 2, "ps": 2, "chief": 1})
    assert tasks[:3] == [("ps", 0), ("ps", 1), ("chief", 0)]
    env = cluster.on_machine(tasks, {"worker": ["x"]}, "d", cores, [*gpus], already_set=())
    seen = {
        f"{job} {index}": (each.get("CUDA_VISIBLE_DEVICES"), each["OMP_NUM_THREADS"])
        for (job, index), each in env.items()
        if job != "ps"
    }
    threads = str(max(1, cores // 3))
    assert seen == due and env["ps", 1]["OMP_NUM_THREADS"] == threads
    assert env["ps", 0]["CUDA_VISIBLE_DEVICES"] == "-1"
    assert json.loads(env["worker", 1]["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}


def test_one_task_alone_has_all_gpus():
    """Catches one GPU for a worker that is alone."""
    env = cluster.on_machine([("ps", 0), ("worker", 0)], {}, "d", 4, ["0", "1"], already_set=())
    assert "CUDA_VISIBLE_DEVICES" not in env["worker", 0]
    assert env["worker", 0]["TF_NUM_INTRAOP_THREADS"] == "4"


def test_tasks_on_hosts(monkeypatch, tmp_path):
    """Two GPUs here, one there. Catches: GPUs, cores or ports of another host, or of all hosts.

    And a user in an address, a variable for another role, the environment of this machine.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    listed = hosts.parse("me@one:2, two:3")
    jobs = {"worker": 3, "ps": 1, "evaluator": 1}
    with pytest.raises(hosts.argparse.ArgumentTypeError, match="one is named twice"):
        hosts.parse("me@one:1,you@one:2")
    dealt = hosts.deal(jobs, listed)
    answers = {
        listed[1]: {"ports": [21, 22, 23], "machine": {"cores": 9, "gpus": ["0"]}},
        listed[0]: {"ports": [11, 12], "machine": {"cores": 4, "gpus": ["0", "1"]}},
    }
    spec = supervisor.LaunchSpec(
        "E",
        jobs,
        {job: ["py", f"{job}.py"] for job in jobs},
        tmp_path,
        variables=[("ps", "C", "1")],
    )
    tasks = hosts.make_tasks(spec, dealt, answers)
    assert [each.name for each in tasks] == [
        "ps 0",
        "worker 0",
        "worker 1",
        "worker 2",
        "evaluator 0",
    ]
    assert [each.host.target for each in tasks] == ["me@one"] * 2 + ["two"] * 3
    assert all("me@one" in each.command for each in tasks[:2])
    requests = [json.loads(each.env["TFRUN_REQUEST"]) for each in tasks]
    env = [request["env"] for request in requests]
    assert json.loads(env[3]["TF_CONFIG"]) == {
        "cluster": {"ps": ["one:11"], "worker": ["one:12", "two:21", "two:22"]},
        "task": {"type": "worker", "index": 2},
    }
    assert [each.get("CUDA_VISIBLE_DEVICES") for each in env] == ["-1", None, "0", "0", "0"]
    assert [each["OMP_NUM_THREADS"] for each in env] == ["4", "4", "3", "3", "3"]
    assert [each.get("C") for each in env] == ["1", None, None, None, None]
    assert [request["command"][1] for request in requests][3:] == ["worker.py", "evaluator.py"]
    assert [request["name"] for request in requests][2:4] == ["worker-1", "worker-2"]
    for each in tasks:
        each.log.close()


def test_ports_that_nobody_else_gets():
    """Catches a port of one kind of address alone, two tasks with one port, and a port let go."""
    ports, held = cluster.hold_ports(2)
    try:
        assert len({*ports}) == len(held) == 2 and all(port > 1023 for port in ports)
        families = {socket.AF_INET: "127.0.0.1"}
        if socket.has_dualstack_ipv6():
            families[socket.AF_INET6] = "::1"
        for family, address in families.items():
            with socket.socket(family) as thief, pytest.raises(OSError, match="in use"):
                thief.bind((address, ports[0]))
            with socket.socket(family) as server:  # as TensorFlow does it
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                server.bind((address, ports[0]))
    finally:
        for each in held:
            each.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[1]))
        free = cluster.free_ports(50)
        assert len({*free}) == 50 and ports[1] not in free
    assert all(20000 <= port < 30000 for port in free), "Linux takes others for connections"


def test_a_loopback_that_is_up_or_down(monkeypatch):
    """Catches a check that always fails, and one that cannot."""
    cluster.check_loopback()
    monkeypatch.setattr(socket.socket, "connect", lambda *_: open("/none"))
    with pytest.raises(OSError, match="the loopback of this machine is down, .*No such file"):
        cluster.check_loopback()


@pytest.mark.parametrize(
    "visible, listed, due",
    [
        ("2,GPU-7", 4, ["2", "GPU-7"]),
        ("-1", 4, []),
        ("", 4, []),
        (None, 2, ["0", "1"]),
        (None, 0, []),
    ],
)
def test_the_gpus_of_a_machine(visible, listed, due, monkeypatch, tmp_path):
    """Catches: GPUs that another has, a line that is no GPU, and a machine without nvidia-smi."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    lines = [f"GPU {i}: A (UUID: {i})\n  MIG 1g.5gb Device 0:" for i in range(listed)]
    program = tmp_path / "nvidia-smi"
    if listed:
        program.write_text("#!/bin/sh\n[ $1 = -L ] && cat <<'END'\n" + "\n".join(lines) + "\nEND\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert cluster.gpus() == due


def test_a_program_that_does_not_answer(monkeypatch):
    """Catches a monitor that waits for nvidia-smi for ever."""
    seen = []

    def run(*_, timeout, **__):
        seen.append(timeout)
        raise cluster.subprocess.TimeoutExpired("nvidia-smi", timeout)

    monkeypatch.setattr(cluster.subprocess, "run", run)
    assert cluster.nvidia_smi("-L", seconds=5) == cluster.nvidia_smi("-L") == []
    assert seen[0] == 5 < seen[1] <= 60


def test_the_cores_of_a_machine(monkeypatch):
    """Catches one core where the system does not tell which this process may use, as on macOS."""
    monkeypatch.setattr(cluster, "cpu_quota", lambda: 99.0)
    monkeypatch.delattr(os, "sched_getaffinity")
    for known, due in (6, 6), (None, 1):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert cluster.core_numbers() is None and cluster.cores() == due
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 2, 3}, raising=False)
    assert cluster.core_numbers() == [2, 3, 5] and cluster.cores() == 3


def test_what_a_role_gets_from_a_flag():
    """Catches: another role's amount, a unit of 1,000, an environment of all for that of one."""
    memory = resources.per_role(resources.size)
    assert memory("ps=1M,worker=1.5G") == {"ps": 2**20, "worker": 3 * 2**29}
    assert [resources.size(f"2{unit}") for unit in ("M", "G", "T", "GB", "GiB")] == [
        2**21,
        2**31,
        2**41,
        2**31,
        2**31,
    ]
    assert resources.size("4096K") == 2**22 and resources.size("1048576") == 2**20
    assert resources.per_role(resources.whole)("chief=9999") == {"chief": 9999}
    variable = resources.environment_variable
    assert variable("A=b=c") == (None, "A", "b=c")
    assert variable("ps:_1=a\nb") == ("ps", "_1", "a\nb")
    for wrong in "TF_CONFIG=1", "ps:OUTPUT_DIR=1":
        with pytest.raises(resources.argparse.ArgumentTypeError, match="is set by tfrun"):
            variable(wrong)
    for wrong in "A", "boss:A=b", "1=b", "=b":
        with pytest.raises(resources.argparse.ArgumentTypeError, match="is not like NAME=VALUE"):
            variable(wrong)
    for wrong, words in {
        "ps": "'ps' is not like worker=2G; the roles are ps, chief, worker, evaluator",
        "boss=1G": "'boss=1G' is not like worker=2G; the roles are ps, chief, worker, evaluator",
        "ps=1G,ps=2G": "ps is named twice",
        "ps=0G": "must be a size such as 512M or 2G, is '0G'",
        "ps=1023K": "must be 1M or more, is '1023K'",
    }.items():
        with pytest.raises(resources.argparse.ArgumentTypeError) as raised:
            memory(wrong)
        assert str(raised.value) == words
    for wrong in "worker=0", "worker=10000", "worker=1.5":
        with pytest.raises(resources.argparse.ArgumentTypeError, match="a whole number above 0"):
            resources.per_role(resources.whole)(wrong)
    with pytest.raises(resources.argparse.ArgumentTypeError, match="'ps' is not like worker=1;"):
        resources.per_role(resources.whole)("ps")


def test_a_machine_that_has_too_little(monkeypatch):
    """Catches a run that has as much as there is and is refused, and one that has one more."""
    monkeypatch.setattr(cluster, "core_numbers", lambda: [*range(6)])
    monkeypatch.setattr(cluster, "gpus", lambda: ["a"])
    memory = types.SimpleNamespace(total=8 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    jobs = {"ps": 1, "worker": 2}
    assert resources.shares(jobs, {"worker": 3}, {"ps": 1}, {"worker": 4 << 30})
    for wanted, words in {
        "cores": ({"worker": 3, "ps": 1}, {}, {}),
        "GPUs": ({}, {"worker": 1}, {}),
        "memory": ({}, {}, {"worker": 5 << 30}),
    }.items():
        due = {
            "cores": "7 cores (2 worker x 3, 1 ps x 1), and this machine has 6",
            "GPUs": "2 GPUs (2 worker x 1), and this machine has 1",
            "memory": "10 GiB of memory (2 worker x 5 GiB), and this machine has 8 GiB",
        }[wanted]
        with pytest.raises(ValueError) as raised:
            resources.shares(jobs, *words)
        assert str(raised.value) == f"the run asks for {due}"
    with pytest.raises(ValueError) as raised:
        resources.shares({"ps": 1}, {}, {"ps": 1}, {}, runs=2)
    due = "1 GPU (1 ps x 1), and this machine has 0 for each of 2 runs at once: lower parallel"
    assert str(raised.value) == f"the run asks for {due}"
    with pytest.raises(ValueError, match="--gpus names chief, and this run has none"):
        resources.shares(jobs, {}, {"chief": 1}, {})
    monkeypatch.setattr(cluster, "core_numbers", lambda: None)
    with pytest.raises(ValueError, match="--cpus needs Linux"):
        resources.shares(jobs, {"ps": 1}, {}, {})
    assert resources.shares(jobs, {}, {"ps": 1}, {}), "without --cpus it needs none"


# grids -------------------------------------------------------------------------------------------


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


# how numbers are written -------------------------------------------------------------------------


def test_numbers_in_words():
    """Catches another unit, a unit too early or too late, and a digit too few or too many."""
    ages = {0: "0 s", -3: "0 s", 89: "89 s", 90: "2 min", 5399: "90 min", 5400: "2 h"}
    ages |= {172799: "48 h", 172800: "2 days", 864000: "10 days"}
    assert {seconds: formatting.age_text(seconds) for seconds in ages} == ages
    sizes = {None: "", 512: "0.5 KiB", 2**10: "1 KiB", 2**20 - 1: "1024 KiB", 2**20: "1 MiB"}
    sizes |= {1536 * 2**20: "1.5 GiB", 100 * 2**30: "100 GiB", 1234 * 2**20: "1.21 GiB"}
    sizes |= {2**40: "1 TiB", 99.94 * 2**20: "99.9 MiB", 100.4 * 2**20: "100 MiB"}
    assert {n: formatting.size_text(n) for n in sizes} == sizes
    rates = {None: "", 0: "0", 12.34: "12.3", 99.94: "99.9", 100: "100", 1234.4: "1,234"}
    assert {rate: formatting.rate_text(rate) for rate in rates} == rates
    assert [
        formatting.number_text(None),
        formatting.number_text(0.12345),
        formatting.number_text(7, "%d"),
    ] == [*("", "0.123", "7")]
    assert formatting.plural(1, "worker") == "1 worker"
    assert formatting.plural(0, "worker") + formatting.plural(3000, "x") == "0 workers3,000 xs"
    assert [formatting.finite(value) for value in (1, math.nan, math.inf)] == [1.0, None, None]
    assert formatting.file_name("worker 10") == "worker-10"


def test_a_run_in_words():
    """Catches the loss beside another metric, a share for a loss, and a cluster that is none."""
    tests = {"steps": 3, "test_loss": 1.23456, "test_top_5_accuracy": 0.98765, "test_error": 12.5}
    assert formatting.tests_text(tests) == "test top 5 accuracy 98.8%, test error 12.5"
    assert formatting.tests_text({"test_loss": 1.23456}) == "test loss 1.235"
    assert formatting.tests_text({"test_accuracy": None}) == "test accuracy unknown"
    assert formatting.tests_text({}) == ""
    facts = {"ps": 2, "workers": 1, "steps": 1200, "dataset": "/a/b.csv", "wall_seconds": 2.34}
    assert formatting.run_text("E", facts) == "E, 2 ps, 1 worker\n1,200 updates on b.csv in 2.3 s"
    facts |= {"ps": 0, "steps": 1, "dataset": None, "wall_seconds": None}
    assert formatting.run_text("E", facts) == "E\n1 update on data of its own in 0.0 s"
    assert formatting.run_text("E", {**facts, "workers": 2}).startswith("E, 2 workers\n")


# explain, tensorboard, kill ----------------------------------------------------------------------


def test_what_explain_prints(capsys):
    """Catches the code of the last log alone, and logs that are passed over after a missing one."""
    pathlib.Path("known").write_text("MemoryError")
    pathlib.Path("unknown").write_text("TypeError: strange")
    for names, code in {
        ("known",): 0,
        ("unknown", "known"): 1,
        ("none", "unknown", "known"): 2,
        ("unknown", "none"): 2,
    }.items():
        assert explain.command([*names]) == code
        said = capsys.readouterr()
        lines = [line.split(": ", 1) for line in said.out.splitlines()]
        assert [name for name, _ in lines] == [name for name in names if name != "none"]
        for name, meaning in lines:
            assert (meaning == "no known error") == (name == "unknown")
        assert ("none" in said.err) == ("none" in names)


@pytest.mark.parametrize("code, due", [(130, 0), (2, 2), (0, 0)])
def test_tensorboard_ends(code, due, capsys, monkeypatch):
    """Catches: Ctrl-C as a failure, another directory or port, and events that are left behind."""
    seen = []
    run_files.flags("r")

    def run_module(*arguments):
        assert os.path.isdir(arguments[2])
        return seen.append(arguments) or code

    monkeypatch.setattr(tensorboard.quiet, "run_module", run_module)
    assert tensorboard.command(["r", "--port", "65535"]) == due
    ((module, directory, folder, port),) = seen
    assert (module, port) == ("tfrun.commands.tensorboard", "65535")
    assert directory == os.path.realpath("r") and not os.path.exists(folder)
    for port in "-1", "65536":
        assert tensorboard.command(["r", f"--port={port}"]) == 2
        assert f"--port must be from 0 to 65535, is {port}" in capsys.readouterr().err
    assert tensorboard.command(["r", "--port=0"]) == due and len(seen) == 2


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_kill_asks_first(asked, capsys, monkeypatch):
    """Its tfrun ends when it is asked, when it is killed, or not before the tasks were killed.

    Catches a tfrun that is killed at once, a task that is, and a state that is not of now.
    """
    done, alive = [], {"tfrun": True, "task": True}
    seen = record("r", "running")

    def end(number):
        done.append(number)
        if number == asked:
            alive.update(tfrun=False, task=asked > 1)
            record("r", "stopped" if asked == 1 else "lost")

    launcher = types.SimpleNamespace(terminate=lambda: end(1), kill=lambda: end(2))
    one = types.SimpleNamespace(pid=7, kill=lambda: done.append("task") or alive.update(task=False))
    monkeypatch.setattr(registry, "process", lambda _: launcher if alive["tfrun"] else None)
    monkeypatch.setattr(registry, "live_processes", lambda _: [one] if alive["task"] else [])
    monkeypatch.setattr(kill, "STOP_SECONDS", 0.01)
    assert kill.command(["r", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["run"] == seen["run"] and said["processes_killed"] == ([] if asked == 1 else [7])
    assert done == [[1], [1, 2, "task"], [1, 2, "task"]][asked - 1]
    assert said["state"] == {1: "stopped", 2: "stopped", 3: "running"}[asked]


def test_what_kill_says(capsys, monkeypatch):
    """Catches a run that has ended and is killed again, and a record that stays unreadable."""
    record("a", "done")
    assert kill.command(["a"]) == 1
    assert capsys.readouterr().err == "tfrun: a has ended already: done\n"
    record(
        "a",
        "lost",
        tasks=[task("a", process={"pid": 7, "start": "1 x"}), task("a", "ps 0", state="done")],
    )
    monkeypatch.setattr(registry, "live_processes", lambda _: [])
    assert kill.command(["a"]) == 0
    assert capsys.readouterr().out == "a is stopped; its tfrun had died\n"
    after = registry.read_all()[0]
    assert (after["state"], after["ended"]) == ("stopped", 5000)
    assert [(each["state"], each["process"]) for each in after["tasks"]] == [
        *(("stopped", None), ("done", None))
    ]
    (registry.folder() / "cut.json").write_text("{")
    assert kill.command(["cut"]) == 0
    assert capsys.readouterr().out == "cut is removed; its record could not be read\n"
    assert not (registry.folder() / "cut.json").exists()


# restarts ----------------------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Returns a function: whether a failure of a task stops a run, and when the task starts."""
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: 1000.0)

    def decide(name, starts, restarts, code=1, chief="worker 0", said=()):
        each = Task(name.split()[0], name, [], {}, tmp_path)
        each.log.close()
        each.starts, each.exit_code, each.start_at = starts, code, None
        each.process = types.SimpleNamespace(returncode=code)
        fake = object.__new__(supervisor.Run)
        fake.spec = supervisor.LaunchSpec("E", {}, {}, tmp_path, restarts=restarts)
        fake.screen, fake.chief = supervisor.Screen(), chief
        fake.data_lines = supervisor.same_data.DataLines(tmp_path, is_live=True)
        fake.rows_before, fake.outputs = 0, {each: supervisor.TaskOutput(fake.screen)}
        return fake.handle_failure(each), each.start_at and each.start_at - 1000

    return decide


def test_restarts_and_their_pauses(failing, capsys):
    """Catches: one restart too few or too many, a pause that does not grow or has no end."""
    for starts, pause in [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (9, 30)]:
        assert failing("ps 0", starts, 9) == (False, pause)
        assert f"starts again in {pause} s (restart {starts} of 9)" in capsys.readouterr().out
    assert failing("worker 1", 4, 3) == (False, None), "it is let go"
    assert failing("worker 1", 1, 0) == (True, None)
    assert failing("evaluator 0", 3, 2) == (False, None)
    for name, chief in ("worker 0", "worker 0"), ("chief 0", "chief 0"), ("ps 1", "worker 0"):
        assert failing(name, 3, 2, chief=chief) == (True, None)
    assert failing("worker 0", 3, 2, chief="chief 0") == (False, None)
    assert failing("worker 1", 1, 3, code=2) == (True, None), "a wrong flag starts no run again"
