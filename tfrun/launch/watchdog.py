"""Ends the tasks when tfrun itself is gone, even by kill -9.

A process of its own. tfrun writes "+ID START" when it starts a process group, and "-ID" when that
has ended; the end of the pipe without a "-ID" means that tfrun died.
"""

import contextlib
import os
import signal
import sys

from tfrun.runs import waiting


def main() -> None:
    """Reads from standard input until it ends; kills the groups that are left then."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: dict[int, str | None] = {}  # {its id: the start of its leader}
    for line in sys.stdin:
        group, _, start = line[1:].strip().partition(" ")
        groups[int(group)] = start if line[0] == "+" else None
    for group, start in groups.items():
        # If the leader has ended, the processes that it started keep its group. If another process
        # has the leader's id, the group is a stranger's.
        if start and waiting.start_of(group) in (None, start):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
