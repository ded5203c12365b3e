"""Whether the machine is quiet, by processor time that this test knows from elsewhere."""

import subprocess
import sys
import time

import pytest
import support
from lab.measure import idle

# It works for a while, and so does its child, each a little longer than the test asks for, because
# the system counts in hundredths of a second, and rounds each number down.
WORK = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]]) if len(sys.argv) > 1 else None
while time.process_time() < 0.55:
    pass
if child:
    child.wait()
"""
PLAIN = "import time\nwhile time.process_time() < 0.55: pass"


def test_what_we_start_is_our_own():
    """Of a child, and of its child, which have ended. Catches one that counts as others."""
    before, own = time.process_time(), idle.own_seconds()
    assert subprocess.run([sys.executable, "-c", WORK, PLAIN]).returncode == 0
    spent = idle.own_seconds() - own - (time.process_time() - before)
    assert 1 <= spent < 2.5, f"{spent:.2f} s of 1.1 s"


def test_what_still_runs_is_our_own():
    """Catches a child, or its child, that counts as others until it has ended."""
    before, own = time.process_time(), idle.own_seconds()
    command = [sys.executable, "-c", WORK, PLAIN + "\ninput()"]

    def spent():
        return idle.own_seconds() - own - (time.process_time() - before)

    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        try:
            support.wait_until(lambda: spent() >= 1, 30, "two processes have worked")
            assert process.poll() is None and spent() < 2.5
        finally:
            process.communicate("\n")
    assert process.returncode == 0


def test_what_others_start_is_not():
    """Catches a share without them: the process is none of ours, because its parent has ended."""
    leave = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    others = idle.Others()
    subprocess.run([sys.executable, "-c", leave, PLAIN.replace("0.55", "1")], check=True)
    support.wait_until(
        lambda: others.share() * (time.monotonic() - others.began) > 0.9, 60, "others have worked"
    )


class Machine:
    """A machine whose other processes use so many cores, one number for each watch."""

    def __init__(self, monkeypatch, cores):
        self.now, self.cores, self.spent = 0.0, iter(cores), 0.0
        monkeypatch.setattr(idle.time, "sleep", self.sleep)
        monkeypatch.setattr(idle.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(idle, "busy_seconds", lambda: self.spent + 2 * self.now)
        monkeypatch.setattr(idle, "own_seconds", lambda: 2 * self.now)

    def sleep(self, seconds):
        self.now += seconds
        self.spent += seconds * next(self.cores)


def test_it_waits_until_others_are_quiet(monkeypatch, capsys):
    machine = Machine(monkeypatch, [1.5, 0.5, 0.11, 0.09, 0.7])
    others = idle.wait()
    assert machine.now == 4 * idle.WATCH_SECONDS
    assert [line.split()[-4] for line in capsys.readouterr().err.splitlines()] == [
        "150%",
        "50%",
        "11%",
    ]
    machine.sleep(10)  # what is measured, while others are busy again
    assert others.share() == pytest.approx(0.7)
    assert idle.words(others.share()) == "busy: others used 70% of a core"
    assert idle.words(0.04) == "others used 4% of a core"


def test_it_does_not_wait_for_ever(monkeypatch):
    machine = Machine(monkeypatch, [0.3] * 999)
    with pytest.raises(TimeoutError, match="use 30% of a core.*--anyway"):
        idle.wait()
    assert 600 < machine.now < 620
    assert idle.wait(anyway=True) and machine.now < 620
