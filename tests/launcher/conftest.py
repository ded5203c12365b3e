"""For the tests of what tfrun computes of runs that they make by hand."""

import time

import pytest


@pytest.fixture
def own_records(tmp_path, monkeypatch):
    """Each test begins without a record, in a folder of its own, at the same time of day."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 5000.0)
