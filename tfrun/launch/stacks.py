"""The stacks of a task's Python threads: which variables let it write them, and how it is asked.

at_start/sitecustomize.py, which Python imports in the task, registers the signal. It also notes the
places where threads are, once a second, with Python's lock held: to write stacks without that, as
at the signal, is for tasks that hang.
"""

import contextlib
import os
import pathlib
import re
import signal

import psutil

from tfrun import formatting
from tfrun.runs.waiting import wait_for

AT_START = pathlib.Path(__file__).with_name("at_start")
SECONDS = 2.0  # that a task may take to write its stacks
THREAD = re.compile(r"(?m)^(?:Current thread|Thread) 0x\w+.*$")
NEXT_DUMP = re.compile(r"(?<=[^\n]\n)(?=(?:Current thread|Thread) 0x)")
LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python3[.\d]*)/|^<")
FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')


def path_of(log: pathlib.Path) -> pathlib.Path:
    """Returns the file of the stacks of a task with this log, such as .stacks-worker-0."""
    return log.with_name(f".stacks-{log.stem}")


def places_of(log: pathlib.Path) -> pathlib.Path:
    """Returns the file of the places of a task with this log, such as .places-worker-0."""
    return log.with_name(f".places-{log.stem}")


def remove_empty(directory: pathlib.Path) -> None:
    """Removes the files of stacks that no task has written."""
    for path in directory.glob(".stacks-*"):
        with contextlib.suppress(OSError):
            if not path.stat().st_size:
                path.unlink()


def variables(directory: pathlib.Path, task: str, path: str | None) -> dict[str, str]:
    """Returns the variables with which a task writes its stacks.

    path: its own PYTHONPATH; None for that of this process.
    """
    path = os.environ.get("PYTHONPATH") if path is None else path
    folders = filter(None, [str(AT_START), path])
    log = directory / f"{formatting.file_name(task)}.log"
    return {
        "PYTHONPATH": os.pathsep.join(folders),
        "TFRUN_STACKS": str(path_of(log)),
        "TFRUN_PLACES": str(places_of(log)),
    }


def ask(process: psutil.Process, file: pathlib.Path) -> str | None:
    """Lets a task write its stacks, and returns them; None where it cannot.

    A process that does not catch the signal, as while Python starts, would be ended by it.
    """
    if process.status() == psutil.STATUS_STOPPED or not catches(process.pid):
        return None
    size = file.stat().st_size if file.exists() else 0
    process.send_signal(signal.SIGUSR2)
    wait_for(lambda: file.exists() and file.stat().st_size > size, SECONDS)
    previous = -1

    def is_whole() -> bool:
        nonlocal previous
        before, previous = previous, file.stat().st_size
        return before == previous

    wait_for(is_whole, SECONDS, pause=0.05)
    return file.read_bytes()[size:].decode(errors="replace") or None


def last_dump(file: pathlib.Path) -> str:
    """Returns the last stacks in a file: no empty line stands between two times."""
    return NEXT_DUMP.split(file.read_text(errors="replace"))[-1]


def catches(pid: int) -> bool:
    """Returns whether a process has a handler for the signal; False where the system tells none."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"(?m)^SigCgt:\s*(\w+)", status)
    return bool(caught and int(caught[1], 16) >> (signal.SIGUSR2 - 1) & 1)


def summary(text: str) -> list[str]:
    """Returns a line for each thread: where it is, innermost first, its own code before a library.

    text: what faulthandler has written, its last dump at least.
    """
    lines = []
    for thread in THREAD.split(text)[1:]:
        frames = FRAME.findall(thread)
        if not frames:
            continue
        own = [frame for frame in frames if not is_library(frame[0])]
        shown = list(dict.fromkeys([frames[0], *own]))[:4]
        calls = [f"{name} ({pathlib.Path(path).name}:{line})" for path, line, name in shown]
        lines.append(" < ".join(calls))
    return lines


def is_library(path: str) -> bool:
    """Returns whether a file is Python's own or an installed package's."""
    return bool(LIBRARY.search(path))
