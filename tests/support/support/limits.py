"""Limits of time, which grow with the load of the machine."""

import os
import time

PATIENCE = 4  # times as long as it should take, at most, may something take on a busy machine


def patience(seconds):
    """A limit of time that grows with the load of the machine, to PATIENCE times at most."""
    return seconds * min(PATIENCE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


class Limit:
    """A limit of time as `patience`, which goes on to grow while the load does."""

    def __init__(self, seconds):
        self.least, self.seconds, self.began = seconds, seconds, time.monotonic()

    def is_over(self):
        """Returns whether the time is up."""
        self.seconds = max(self.seconds, patience(self.least))
        return time.monotonic() > self.began + self.seconds


def wait_until(condition, seconds, what):
    """Waits for `condition()` to be true; fails with `what` after that many seconds."""
    limit = Limit(seconds)
    while not (value := condition()):
        assert not limit.is_over(), f"after {limit.seconds} s: not {what}"
        time.sleep(0.05)
    return value


def wait_for_exit(process, seconds):
    """Waits for a process to end; returns its exit code. Fails after that many seconds."""
    wait_until(lambda: process.poll() is not None, seconds, "ended")
    return process.returncode


def at_most(seconds):
    """Returns the variable with which tfrun ends a run at the longest that a Limit may become."""
    return {"TFRUN_TIMEOUT": str(PATIENCE * seconds + 15)}
