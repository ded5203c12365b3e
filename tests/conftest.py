"""For all tests: a skip that is not in skips.txt is a failure; no process of ours is left."""

import os
import pathlib
import shutil
import tempfile

import parts
import psutil
import pytest

ALLOWED = {
    line.strip()
    for line in (pathlib.Path(__file__).parent / "skips.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
}


def pytest_sessionstart(session):
    """Runs leave their records apart; each module of tests belongs to one part of `all`."""
    session.records = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="records-")
    here = {
        path.stem.removeprefix("test_") for path in pathlib.Path(__file__).parent.rglob("test_*.py")
    }
    named = sum(parts.PARTS.values(), [])
    assert sorted(named) == sorted(here), "tests/parts.py: %s" % (here ^ set(named))


def pytest_sessionfinish(session):
    shutil.rmtree(session.records, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if "%s %s" % (item.nodeid, reason) not in ALLOWED:
            report.outcome = "failed"
            report.longrepr = "skipped, but not in tests/skips.txt: %s %s" % (item.nodeid, reason)
    return report


@pytest.fixture(autouse=True)
def no_child_left():
    """Fails a test after which a process that it started still runs; ends that process."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [
        p
        for p in psutil.Process().children(recursive=True)
        if p not in before and p.status() != psutil.STATUS_ZOMBIE
    ]
    for process in left:
        process.kill()
    assert not left, "left running: %s" % left
