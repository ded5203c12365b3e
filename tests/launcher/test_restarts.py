"""Whether the failure of a task stops a run, and when the task starts again."""

import types

import pytest
from tfrun.launch import supervisor
from tfrun.launch.task import Task

pytestmark = pytest.mark.usefixtures("own_records")


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Returns a function: whether a failure of a task stops a run, and when the task starts."""
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: 1000.0)

    def decide(name, starts, restarts, code=1, chief="worker 0", lines=()):
        task = Task(name.split()[0], name, [], {}, tmp_path)
        task.log.close()
        task.starts, task.exit_code, task.start_at = starts, code, None
        task.process = types.SimpleNamespace(returncode=code)
        fake = object.__new__(supervisor.Run)
        fake.spec = supervisor.LaunchSpec("E", {}, {}, tmp_path, restarts=restarts)
        fake.screen, fake.chief = supervisor.Screen(), chief
        fake.tasks = [task]
        fake.data_lines = supervisor.same_data.DataLines(tmp_path, is_live=True)
        fake.rows_before, fake.outputs = 0, {task: supervisor.TaskOutput(fake.screen)}
        return fake.handle_failure(task), task.start_at and task.start_at - 1000

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
