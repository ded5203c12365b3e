"""horovodrun as the one task of a run: it starts the workers itself, and calls them ranks."""

import contextlib
import os
import pathlib
import re
import signal

import psutil

from tfrun import known_errors
from tfrun.launch import cluster, task

PREFIX = re.compile(rb"\[(\d+)\]<std(?:out|err)>:")  # how it marks the lines of a rank
ENDED = re.compile(rb"Process (\d+) exit with status code (\d+)\.")


def is_horovodrun(script: str) -> bool:
    """Returns whether what tfrun is to start is no script, but horovodrun."""
    return pathlib.Path(script).name == "horovodrun"


def ranks(command: list[str]) -> int:
    """Returns the number of ranks that `command` asks for, 0 where that is no number."""
    for flag, value in zip(command, command[1:]):
        if flag in ("-np", "--num-proc"):
            return int(value) if value.isdigit() else 0
    return 0


class Horovodrun(task.Task):
    """The process of horovodrun, and all below it."""

    def __init__(self, command: list[str], directory: pathlib.Path) -> None:
        env = {"OUTPUT_DIR": str(directory), **cluster.COMMON_VARIABLES}
        env |= cluster.thread_variables(cluster.cores(), ranks(command), os.environ)
        super().__init__("chief", "horovodrun", command, env, directory)

    def start(self) -> None:
        """Starts it. On Linux what it leaves behind becomes ours: see supervisor.Run."""
        self.others = set(psutil.Process().children())
        self.failures: list[tuple[int, int]] = []  # a rank and its exit code
        super().start()

    def has_just_ended(self) -> bool:
        """Returns whether it has ended since the last call; then none of its ranks is left."""
        if not super().has_just_ended():
            return False
        for process in set(psutil.Process().children(recursive=True)) - self.others:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return True

    def on_screen(self, line: bytes) -> tuple[str, bytes] | None:
        """Returns whose line it is, a rank's or horovodrun's, and the line; None for noise."""
        prefix = PREFIX.match(line)
        name = f"worker {int(prefix[1])}" if prefix else self.name
        line = line[prefix.end() :] if prefix else line
        if failure := ENDED.match(line):
            self.failures.append((int(failure[1]), int(failure[2])))
            return None
        # A traceback is of interest where it is a rank's.
        quiet = known_errors.AFTERMATH.match(line) and not (
            prefix and line.startswith((b"Traceback", b"  "))
        )
        return None if quiet or known_errors.NOTICE.match(line) else (name, line)

    def found_a_wrong_flag(self) -> bool:
        """Returns whether a rank ended because of a wrong flag."""
        return bool(self.failures) and self.failures[0][1] == 2

    def exit_description(self) -> str:
        """Returns how it ended, in words: by the rank that failed first; the others are stopped."""
        if not self.failures:
            return super().exit_description()
        rank, code = self.failures[0]
        if code - 128 in {*signal.Signals}:
            return f"failed: worker {rank} was killed by {signal.Signals(code - 128).name}"
        return f"failed: worker {rank} has exit code {code}"
