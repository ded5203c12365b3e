"""lab/measure/forked.py, which starts a measurement's tasks: when it counts, and how it fails."""

import itertools
from unittest import mock

import pytest
from measurements import load


def test_a_rate_leaves_out_the_start_and_the_first_tenth():
    """Catches: the time in which workers wait for the last one, or the set-up of its graph."""
    forked = load("lab/measure/forked.py")
    late = [(time, f"worker-{time % 3}") for time in range(100, 130)]
    pushes = [
        {"push_time": time, "task": task, "global_step": step}
        for step, (time, task) in enumerate([(1, "worker-0"), (2, "worker-1"), *late], 1)
    ]
    # Worker 2 has begun at 101, after which all push; a tenth of them was made before 101.
    assert forked.window(pushes) == (101, 129, 1)
    assert forked.window(pushes * 2)[0] == 104  # the first tenth of 64 ends later


@pytest.mark.parametrize(("code", "trained"), [(0, True), (3, None)])
def test_a_task_that_fails_last_fails_the_run(code, trained, tmp_path, monkeypatch):
    """Catches a failure between two looks, behind which no task is left."""
    forked = load("lab/measure/forked.py")
    alive = iter([True, False])
    process = mock.Mock(exitcode=code, is_alive=lambda: next(alive))
    monkeypatch.setattr(forked, "SAMPLE_SECONDS", 0)

    def start():
        (tmp_path / "run" / "worker-0.txt").write_text("it failed")
        process.exitcode = None

    def sample():
        process.exitcode = code if next(looks) else None
        return 0.0

    looks, process.start = itertools.count(), start
    monkeypatch.setattr(forked, "context", lambda: mock.Mock(Process=lambda **_: process))
    arguments = "script.py", {"worker": 1}, [], tmp_path / "run", sample
    if trained is None:
        with pytest.raises(SystemExit, match="worker-0 of script.py failed: it failed"):
            forked.train(*arguments)
    else:
        assert forked.train(*arguments)[0]
