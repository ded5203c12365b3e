"""tfrun status, and which run a command means, by records made by hand."""

import json
import os
import time

import pytest
import run_files
from records import record, task
from tfrun.commands import common, kill, monitor, status
from tfrun.runs import registry

pytestmark = pytest.mark.usefixtures("own_records")


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
    assert [(entry["run"], entry["state"], entry["age_seconds"]) for entry in seen] == [
        ("b/done", "done", 90),
        ("a/failed", "failed", 400),
        ("c/lost", "lost", None),
        ("cut", "unreadable", None),
        ("a/runs", "running", 45),
    ]
    assert [entry["update"] for entry in seen] == [None] * 4 + [1204]
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
        error = capsys.readouterr().err
        assert (
            ("x/11" in error and "x/2" in error)
            if name == "x/"
            else "there is no run none" in error
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
    assert common.refresh(seen)["state"] == "running"
    record("a", "done")
    assert common.refresh(seen)["state"] == "done"
    os.remove(seen["path"])
    assert common.refresh(seen) == {**seen, "state": "removed"}
    assert common.refresh({**seen, "path": None})["state"] == "running"


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
