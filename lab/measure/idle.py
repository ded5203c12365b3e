"""Rates are measured when the machine is quiet, and say how much of it others used meanwhile."""

import sys
import time

import psutil

MOST_SHARE = 0.1  # of a core: what all other processes together may use
WATCH_SECONDS, PATIENCE_SECONDS = 5, 600


def busy_seconds() -> float:
    """Returns the processor time of all processes since the start of the machine."""
    times = psutil.cpu_times()._asdict()
    # A guest's time is in its user's, too; steal is what other machines on this host took.
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(times.get(name, 0) for name in names)


def own_seconds() -> float:
    """Returns the processor time of this process and all that it has started, ended or not."""
    own = psutil.Process()
    spent = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended; its parent counts it from now on
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return spent


class Others:
    """Measures what all other processes use, from now on."""

    def __init__(self) -> None:
        self.began, self.before = time.monotonic(), busy_seconds() - own_seconds()

    def share(self) -> float:
        """Returns their processor time per second since then, in cores."""
        spent = busy_seconds() - own_seconds() - self.before
        return max(0, spent / (time.monotonic() - self.began))


def wait(anyway: bool = False) -> Others:
    """Returns Others once these were quiet for WATCH_SECONDS; at once where `anyway` is true.

    Raises TimeoutError if they are not within PATIENCE_SECONDS.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not anyway:
        others = Others()
        time.sleep(WATCH_SECONDS)
        share = others.share()
        if share < MOST_SHARE:
            break
        used = f"other processes use {share:.0%} of a core"
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{used}, and rates need less than {MOST_SHARE:.0%}: end them, or add --anyway, "
                "which measures and calls the result busy"
            )
        print(f"waiting for a quiet machine: {used}", file=sys.stderr, flush=True)
    return Others()


def words(share: float) -> str:
    """Returns what stands beside rates about the other processes, of which Others.share() tells."""
    busy = "busy: " if share >= MOST_SHARE else ""
    return f"{busy}others used {share:.0%} of a core"
