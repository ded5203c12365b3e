"""Ends the tasks when tfrun itself is gone, even by kill -9.

A process of its own. tfrun writes "+ID" when it starts a process group, and "-ID" when that has
ended; the end of the pipe without a "-ID" means that tfrun died.
"""

import contextlib
import os
import signal
import sys


def main():
    """Reads from standard input until it ends; kills the groups that are left then."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
