"""tfrun.runs.run_directory by itself: what it makes, locks, removes and reads."""

import pytest
from tfrun.runs import run_directory
from tfrun.runs.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("OUTPUT_DIR", raising=False)
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))


def test_a_new_directory_is_removed_with_the_folders_that_it_brought(tmp_path):
    """Catches folders that stay empty, and a result that says the contrary."""
    directory = RunDirectory("HogWild")
    (directory.path / "file").touch()
    assert directory.path.parent == tmp_path / "runs" / "HogWild"
    assert directory.discard() is True
    assert list(tmp_path.iterdir()) == []


def test_a_directory_beside_another_run_goes_alone(tmp_path):
    """Catches an error, and the other run in the bin."""
    first, second = RunDirectory("HogWild"), RunDirectory("HogWild")
    assert second.discard() is True and first.path.exists() and not second.path.exists()


def test_a_directory_that_vanished_is_discarded_all_the_same():
    """Catches an error in the place of the reason for which the run was discarded."""
    directory = RunDirectory("HogWild")
    (directory.path / ".tfrun").unlink()
    directory.path.rmdir()
    assert directory.discard() is True


def test_a_directory_that_was_given_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "mine"))
    directory = RunDirectory("HogWild")
    (directory.path / "file").touch()
    assert directory.discard() is False
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_directory_in_use_is_refused(tmp_path, monkeypatch):
    """Catches a lock that is not taken. Two files lock one another out in one process, too."""
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    first = RunDirectory("HogWild")
    with pytest.raises(OSError, match="a run goes on in"):
        RunDirectory("HogWild")
    first.lock.close()
    RunDirectory("HogWild")


@pytest.mark.parametrize("sign", "*?[\\")
def test_signs_of_patterns_are_refused(sign):
    with pytest.raises(OSError, match="for a pattern"):
        run_directory.refuse_patterns(f"/tmp/a{sign}b")


def test_other_signs_are_taken():
    run_directory.refuse_patterns("/tmp/a b/ü=1,2;(3)]")


STATE = 'model_checkpoint_path: "/tmp/model.ckpt-{}"\nall_model_checkpoint_paths: "/tmp/x-7"\n'


def test_the_step_of_the_last_checkpoint(tmp_path):
    assert run_directory.saved_step(tmp_path) is None
    (tmp_path / "checkpoint").write_text("cut short")
    assert run_directory.saved_step(tmp_path) is None
    (tmp_path / "checkpoint").write_text(STATE.format(1200))
    assert run_directory.saved_step(tmp_path) == 1200
