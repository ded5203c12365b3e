"""Whom tfrun kill ends, in which order, and what it says; no process runs."""

import json
import types

import pytest
from records import record, task
from tfrun.commands import kill
from tfrun.runs import registry

pytestmark = pytest.mark.usefixtures("own_records")


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
    answer = json.loads(capsys.readouterr().out)
    assert answer["run"] == seen["run"] and answer["processes_killed"] == (
        [] if asked == 1 else [7]
    )
    assert done == [[1], [1, 2, "task"], [1, 2, "task"]][asked - 1]
    assert answer["state"] == {1: "stopped", 2: "stopped", 3: "running"}[asked]


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
    assert [(entry["state"], entry["process"]) for entry in after["tasks"]] == [
        *(("stopped", None), ("done", None))
    ]
    (registry.folder() / "cut.json").write_text("{")
    assert kill.command(["cut"]) == 0
    assert capsys.readouterr().out == "cut is removed; its record could not be read\n"
    assert not (registry.folder() / "cut.json").exists()
