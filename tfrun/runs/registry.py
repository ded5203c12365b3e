"""The record of each run: a small file that tfrun keeps while the run goes on, and leaves behind.

The records of a user are in $XDG_STATE_HOME/tfrun/<host>, or ~/.local/state/tfrun/<host>. There is
no daemon: a record names each process by its id and the time of its start, and each command looks
whether these still run. A record whose run directory was removed is removed, too.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import socket
import time
from typing import Any

import psutil

from tfrun.runs import run_directory, waiting

FACTS = ("run", "state", "example", "directory", "started", "ended", "exit_code")
NAMES = {*FACTS, "tfrun", "tasks"}  # what a record has
TASK_NAMES = {"task", "log", "process", "state", "gpus", "memory_limit"}  # what each task has


def folder() -> pathlib.Path:
    """Returns the folder of the records."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return pathlib.Path(state) / "tfrun" / socket.gethostname()  # a home may be on several hosts


def identity(pid: int) -> dict[str, Any] | None:
    """Returns {"pid": …, "start": …} of a running process; None where there is none."""
    return {"pid": pid, "start": start} if (start := start_of(pid)) else None


def process(who: dict[str, Any]) -> psutil.Process | None:
    """Returns the psutil.Process of an identity; None if it has ended, or its id is another's."""
    with contextlib.suppress(psutil.NoSuchProcess, TypeError, KeyError):
        process = psutil.Process(who["pid"])
        return (
            process if is_same_process(who) and process.status() != psutil.STATUS_ZOMBIE else None
        )
    return None


def is_same_process(who: dict[str, Any]) -> bool:
    """Returns whether the process with the id of an identity is still the same."""
    start = start_of(who["pid"])
    if isinstance(who["start"], float) and start is not None:  # an older tfrun has noted it
        return abs(psutil.Process(who["pid"]).create_time() - who["start"]) < 1
    return start == who["start"]


def start_of(pid: int) -> str | float | None:
    """Returns when a process started: no other has had its id then. None where there is none."""
    with contextlib.suppress(psutil.Error):
        return waiting.start_of(pid) or psutil.Process(pid).create_time()
    return None


class Record:
    """The record that this tfrun keeps. Raises OSError where it cannot be written."""

    def __init__(self, example: str, directory: pathlib.Path) -> None:
        self.content = dict.fromkeys(FACTS) | {
            "example": example,
            "directory": str(directory),
            "state": "running",
            "started": time.time(),
            "tfrun": identity(os.getpid()),
            "tasks": [],
        }
        folder().mkdir(parents=True, exist_ok=True)
        with open(folder() / ".lock", "w") as lock:
            with contextlib.suppress(OSError):  # this file system has no locks
                fcntl.flock(lock, fcntl.LOCK_EX)  # two that begin at once take different names
            # The name gets a number if a run in another directory has it.
            for name in run_directory.numbered(name_of(example, directory)):
                self.path = folder() / f"{name.replace('/', '--')}.json"
                known = read(self.path)
                ended = known and known["directory"] == str(directory) and not live_processes(known)
                if ended or not self.path.exists():
                    break
            self.write(run=name)

    def write(self, **changes: Any) -> None:
        """Writes the record with these changes. Raises OSError."""
        self.content.update(changes)
        run_directory.write_whole(self.path, json.dumps(self.content))


def name_of(example: str, directory: pathlib.Path) -> str:
    """Returns the end of the directory, from the example on: HogWild/2026-11-21_19-46-51."""
    parts = directory.parts
    if example in parts[-4:-1]:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index(example) :])
    return "/".join(parts[-2:]).lstrip("/")


def read(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns a record with its path; None of another file, or one that was cut short.

    The state is running, done, failed or stopped; lost if its tfrun ended without writing how.
    """
    with contextlib.suppress(OSError):
        record = run_directory.read_json(path)
        if record and NAMES <= record.keys() and is_whole(record):
            lost = record["state"] == "running" and not process(record["tfrun"])
            return {**record, "state": "lost" if lost else record["state"], "path": path}
    return None


def is_whole(record: dict[str, Any]) -> bool:
    """Returns whether a record has what commands need of it: somebody may have changed the file."""
    return (
        all(isinstance(record[name], str) for name in ("run", "directory", "state"))
        and isinstance(record["started"], (int, float))
        and isinstance(record["ended"], (int, float, type(None)))
        and isinstance(record["tfrun"], (dict, type(None)))
        and isinstance(record["tasks"], list)
        and all(is_whole_task(task) for task in record["tasks"])
    )


def is_whole_task(task: object) -> bool:
    """Returns whether one of a record's tasks has what commands need of it."""
    if not isinstance(task, dict) or not TASK_NAMES <= task.keys():
        return False
    process = task["process"]
    return (
        all(isinstance(task[name], str) for name in ("task", "log", "state"))
        and isinstance(task["gpus"], (str, type(None)))
        and isinstance(task["memory_limit"], (int, float, type(None)))
        and (process is None or isinstance(process, dict) and {"pid", "start"} <= process.keys())
    )


def is_ours(path: pathlib.Path, record: dict[str, Any] | None) -> bool:
    """Returns whether a record is of this machine, which may have had another name."""
    boot = str(start_of(os.getpid())).partition(" ")[2]
    start = str(((record or {}).get("tfrun") or {}).get("start"))
    return path.parent == folder() or bool(boot) and start.endswith(boot)


def read_all() -> list[dict[str, Any]]:
    """Returns all records of this machine in the order of their start.

    What cannot be read has the state unreadable; a live tfrun writes it again at the next change.
    """
    records = []
    for path in folder().parent.glob("*/*.json"):
        record = read(path)
        if not is_ours(path, record):
            continue
        with contextlib.suppress(OSError):  # another command has just removed it
            if record is None:
                name, started = path.stem.replace("--", "/"), path.stat().st_mtime
                record = dict.fromkeys(NAMES) | {"run": name, "state": "unreadable", "tasks": []}
                records.append({**record, "started": started, "path": path})
            elif (
                record["state"] == "running"
                or os.path.isdir(record["directory"])
                or live_processes(record)
            ):
                records.append(record)
            else:
                path.unlink()
    return sorted(records, key=lambda record: record["started"])


def record_of(directory: pathlib.Path) -> dict[str, Any] | None:
    """Returns the newest record of a run directory; None where tfrun has not launched it here."""
    records = [record for record in read_all() if record["directory"] == str(directory.resolve())]
    return records[-1] if records else None


def record_of_moved(directory: str | pathlib.Path) -> dict[str, Any] | None:
    """Returns a record of a directory that has logs and no record: it has moved. None without."""
    logs = sorted(pathlib.Path(directory).glob("*-*.log"))
    if not logs:
        return None
    tasks = [
        {"task": path.stem.replace("-", " "), "log": str(path), "process": None} for path in logs
    ]
    facts = {"run": str(directory), "directory": str(directory), "state": "moved", "tasks": tasks}
    return dict.fromkeys(NAMES) | facts | {"path": None}


def live_processes(record: dict[str, Any]) -> list[psutil.Process]:
    """Returns the processes of a run's tasks that still run, with all in their groups.

    A task begins a session of its own. Where it has ended, what it has started is known by its
    OUTPUT_DIR, should others have the ids of a run that ended long ago.
    """
    groups: dict[int, bool] = {}  # {id of a group: whether its leader lives}
    for leader in (task["process"] for task in record["tasks"] if task["process"]):
        # A group outlives its leader; while it does nobody else gets the leader's id.
        lives = start_of(leader["pid"]) is not None
        if not lives or is_same_process(leader):
            groups[leader["pid"]] = lives
    alive: list[psutil.Process] = []
    if not groups:
        return alive
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if (group := os.getpgid(pid)) in groups and os.getsid(pid) == group:
                running = psutil.Process(pid)
                ours = groups[group] or running.environ().get("OUTPUT_DIR") == record["directory"]
                if ours and running.status() != psutil.STATUS_ZOMBIE:
                    alive.append(running)
    return alive
