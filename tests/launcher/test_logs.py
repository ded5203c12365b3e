"""What tfrun logs shows, of logs written by hand."""

import json
import os
import pathlib
import types

import pytest
from records import record, task
from tfrun.commands import common, logs

pytestmark = pytest.mark.usefixtures("own_records")


def test_logs_of_a_directory_that_has_moved(capsys):
    """Catches a directory that needs a record, and one without logs that is taken for a run."""
    os.makedirs("b")
    with pytest.raises(SystemExit, match="2"):
        common.find("b", moved_too=True)
    pathlib.Path("b/worker-0.log").write_text("a line\n")
    assert logs.command(["b"]) == 0 and capsys.readouterr().out == "a line\n"
    assert logs.command(["b", "ps-0"]) == 2
    assert capsys.readouterr().err == "tfrun: b has no task ps 0; it has worker 0\n"


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
        number = next(looks)
        with open("r/worker-0.log", "a") as log:
            log.write(["complete\n", "".join(f"more {k}\n" for k in range(30)), "the en"][number])
        if number == 2:
            record("r", "done", tasks=two)

    monkeypatch.setattr(logs, "time", types.SimpleNamespace(sleep=sleep))
    assert logs.command(["r", "-f"]) == 0
    lines = [line.removeprefix("[worker 0] ") for line in capsys.readouterr().out.splitlines()]
    more = [f"more {k}" for k in range(30)]
    assert lines == [*map(str, range(30, 50)), "incomplete", *more, "the en"]
    assert logs.command(["r", "worker", "0", "--json"]) == 0  # a run that has ended: all of it
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 82 and lines[0] == {"task": "worker 0", "line": "0"}
