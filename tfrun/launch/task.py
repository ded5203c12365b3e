"""A task of a run: a process, its log, and what it may use."""

import contextlib
import ctypes
import io
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from tfrun import formatting, known_errors
from tfrun.launch import resources, stacks
from tfrun.runs import registry

BAR_SECONDS = 2  # between two looks at a progress bar, which a task draws without an end of line


class Task:
    """One task of the run: a process, and after a restart another one in its place."""

    is_local = True  # whether the process is the task's own, and not one that leads to its host

    def __init__(
        self,
        job: str,
        name: str,
        command: list[str],
        env: dict[str, str],
        directory: pathlib.Path,
        share: resources.Share = resources.NO_LIMIT,
    ) -> None:
        self.job, self.name, self.share = job, name, share
        self.path: pathlib.Path = directory / f"{formatting.file_name(name)}.log"
        self.command, self.env = command, {**os.environ, **env}
        self.log: io.FileIO | None = open(self.path, "ab", buffering=0)
        self.process: subprocess.Popen[bytes] | None = None
        self.identity: dict[str, Any] | None = None
        self.exit_code: int | None = None  # of the last process; None while it runs
        self.starts = 0
        self.free_starts = 0  # of these, which --restarts does not count
        self.may_fail = False  # once, because the machine stood still
        # When it is to start, by time.monotonic(); None if it is not.
        self.start_at: float | None = 0.0
        self.was_stopped = False  # by tfrun
        self.leave_by: float | None = None  # when it must have left the run; None: it stays
        self.rows_before: int | None = None  # in its metrics when it joined; None: it did not join
        self.memory_at_kill = 0  # bytes, if it was killed because it used too much

    @property
    def index(self) -> int:
        """Its number among the tasks of its job."""
        return int(self.name.rpartition(" ")[2])

    def start(self) -> None:
        """Starts the process."""
        self.incomplete_line, self.output_ended, self.next_bar = b"", False, 0.0
        self.exit_code, self.start_at, self.memory_at_kill = None, None, 0
        self.starts += 1
        self.process = start_process(self.command, self.env, self.share.cpus)
        self.identity = registry.identity(self.process.pid)
        os.set_blocking(self.pipe().fileno(), False)

    def pipe(self) -> io.BufferedReader:
        """Returns what the process, which has been started, prints into."""
        assert self.process is not None and isinstance(self.process.stdout, io.BufferedReader)
        return self.process.stdout

    def signal(self, number: int) -> None:
        """Sends a signal to the task and to all that it has started."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def running(self) -> bool:
        """Returns whether it has a process that has not ended."""
        return self.process is not None and self.exit_code is None

    def is_unfinished(self) -> bool:
        """Returns whether it runs or is to start."""
        return self.running() or self.start_at is not None

    def has_just_ended(self) -> bool:
        """Returns whether the process has ended since the last call; ends what it has started."""
        if self.process is None or not self.running() or not has_ended(self.process):
            return False
        self.signal(signal.SIGKILL)
        self.exit_code = shell_code(self.process.wait())
        return True

    def new_lines(self) -> Iterator[bytes]:
        """Yields the complete lines since the last call; the log gets all that it has printed."""
        pipe = self.pipe()
        if pipe.closed:
            return
        for _ in range(16 if self.exit_code is None else 1 << 20):  # others get a turn, too
            output = pipe.raw.read(1 << 16)  # None: nothing came yet
            if not output:
                self.output_ended = output is not None
                break
            if self.log:
                try:
                    self.log.write(output)
                except OSError as error:  # a full disk ends the log, not the run
                    self.log = None
                    yield f"tfrun cannot write {self.path}: {error.strerror}".encode()
            *lines, rest = (self.incomplete_line + output).split(b"\n")
            yield from map(as_on_a_terminal, lines)
            self.incomplete_line = rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :]
            if b"\r" in rest and time.monotonic() > self.next_bar:
                self.next_bar = time.monotonic() + BAR_SECONDS
                yield as_on_a_terminal(rest)
        if (self.output_ended or self.exit_code is not None) and self.incomplete_line:
            yield as_on_a_terminal(self.incomplete_line)
            self.incomplete_line = b""

    def on_screen(self, line: bytes) -> tuple[str, bytes] | None:
        """Returns whose line it is and the line; None for one of the notices."""
        return None if known_errors.NOTICE.match(line) else (self.name, line)

    def found_a_wrong_flag(self) -> bool:
        """Returns whether it ended because of a wrong flag (exit code 2)."""
        return self.exit_code == 2

    def exit_description(self) -> str:
        """Returns how it ended, in words."""
        if self.memory_at_kill:
            used = formatting.size_text(self.memory_at_kill)
            limit = formatting.size_text(self.share.memory)
            return (
                f"used {used} of memory, more than its limit of {limit} (--memory), and was killed"
            )
        assert self.process is not None
        if self.process.returncode < 0:
            return f"was killed by {signal.Signals(-self.process.returncode).name}"
        return f"failed with exit code {self.exit_code}"

    def check_memory(self) -> None:
        """Kills it, with all that it has started, if it uses more memory than it may."""
        if self.process is None or not self.running() or self.share.memory is None:
            return
        used = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    used += process.memory_info().rss
        if used > self.share.memory:
            self.memory_at_kill = used
            self.signal(signal.SIGKILL)

    def write_stacks(self) -> None:
        """Lets it append its stacks to its file of them, if it can."""
        if self.process is not None and self.running():
            with contextlib.suppress(psutil.Error, OSError):
                stacks.ask(psutil.Process(self.process.pid), stacks.path_of(self.path))

    def state(self) -> str:
        """Returns waiting, running, restarting, done, failed, or stopped."""
        if self.leave_by is not None:
            return "leaving" if self.running() else "left"
        if not self.starts:
            return "waiting"
        if self.running():
            return "running"
        if self.start_at is not None:
            return "restarting"
        if not self.exit_code:
            return "done"
        return "stopped" if self.was_stopped else "failed"

    def record(self) -> dict[str, Any]:
        """Returns what the record of the run says about this task."""
        return {
            "task": self.name,
            "role": self.job,
            "state": self.state(),
            "process": self.identity if self.running() else None,
            "restarts": max(0, self.starts - 1),
            "exit_code": self.exit_code,
            "log": str(self.path),
            "cores": self.share.cpus,
            "gpus": self.env.get("CUDA_VISIBLE_DEVICES"),
            "memory_limit": self.share.memory,
        }


def as_on_a_terminal(line: bytes) -> bytes:
    """Returns what is seen of a line, such as a progress bar, that was drawn several times."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether a child has ended, if possible without reaping, so that it keeps its id."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def start_process(
    command: list[str],
    env: dict[str, str],
    cpus: list[int] | None = None,
    number: int = signal.SIGKILL,
    **more: Any,
) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, with one pipe for all that it prints, bytes.

    cpus, number: the cores that it may use; the signal that it gets when tfrun dies. more: for
    Popen.
    """
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: end_with_parent(number, cpus),
        **{"stdout": subprocess.PIPE, **more},
    )


def end_with_parent(number: int = signal.SIGKILL, cpus: list[int] | None = None) -> None:
    """In a new process, on Linux: it gets a signal when tfrun dies, and keeps to these cores.

    It ends at SIGTERM, which tfrun may ignore. The watchdog ends what it has started.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number)  # 1: PR_SET_PDEATHSIG
    if cpus:
        os.sched_setaffinity(0, cpus)


def shell_code(returncode: int) -> int:
    """Returns an exit code as a shell tells it: 128 + the number of the signal that killed."""
    return returncode if returncode >= 0 else 128 - returncode
