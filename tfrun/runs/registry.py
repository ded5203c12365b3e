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

import psutil

from tfrun.runs import run_directory, times

FACTS = ("run", "state", "example", "directory", "started", "ended", "exit_code")
NAMES = {*FACTS, "tfrun", "tasks"}  # what a record has


def folder():
    """Returns the folder of the records."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return pathlib.Path(state) / "tfrun" / socket.gethostname()  # a home may be on several hosts


def identity(pid):
    """Returns {"pid": …, "start": …} of a running process; None where there is none."""
    return {"pid": pid, "start": start} if (start := start_of(pid)) else None


def process(who):
    """Returns the psutil.Process of an identity; None if it has ended, or its id is another's."""
    with contextlib.suppress(psutil.NoSuchProcess, TypeError, KeyError):
        process, same = psutil.Process(who["pid"]), start_of(who["pid"]) == who["start"]
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None


def start_of(pid):
    """Returns what no other process with this id ever has; None where there is no such process."""
    with contextlib.suppress(psutil.Error):
        return times.start_of(pid) or psutil.Process(pid).create_time()


class Record:
    """The record that this tfrun keeps. Raises OSError where it cannot be written."""

    def __init__(self, example, directory):
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
                ended = known and known["directory"] == str(directory) and not left(known)
                if ended or not self.path.exists():
                    break
            self.write(run=name)

    def write(self, **changes):
        """Writes the record with these changes. Raises OSError."""
        self.content.update(changes)
        run_directory.write_whole(self.path, json.dumps(self.content))


def name_of(example, directory):
    """Returns the end of the directory, from the example on: HogWild/2026-11-21_19-46-51."""
    parts = directory.parts
    if example in parts[-4:-1]:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index(example) :])
    return "/".join(parts[-2:]).lstrip("/")


def read(path):
    """Returns a record with its path; None of another file, or one that was cut short.

    The state is running, done, failed or stopped; lost if its tfrun ended without writing how.
    """
    with contextlib.suppress(OSError):
        record = run_directory.read_json(path)
        if record and NAMES <= record.keys():
            lost = record["state"] == "running" and not process(record["tfrun"])
            return {**record, "state": "lost" if lost else record["state"], "path": path}


def read_all():
    """Returns all records in the order of their start.

    What cannot be read has the state unreadable; a live tfrun writes it again at the next change.
    """
    records = []
    for path in folder().glob("*.json"):
        record = read(path)
        with contextlib.suppress(OSError):  # another command has just removed it
            if record is None:
                name, started = path.stem.replace("--", "/"), path.stat().st_mtime
                record = dict.fromkeys(NAMES) | {"run": name, "state": "unreadable", "tasks": []}
                records.append({**record, "started": started, "path": path})
            elif record["state"] == "running" or os.path.isdir(record["directory"]) or left(record):
                records.append(record)
            else:
                path.unlink()
    return sorted(records, key=lambda record: record["started"])


def left(record):
    """Returns the processes of a run's tasks that still run, with all in their groups.

    A task begins a session of its own. Where it has ended, what it has started is known by its
    OUTPUT_DIR, should others have the ids of a run that ended long ago.
    """
    groups, alive = {}, []  # {id of a group: whether its leader lives}
    for leader in (task["process"] for task in record["tasks"] if task["process"]):
        # A group outlives its leader; while it does nobody else gets the leader's id.
        if (start := start_of(leader["pid"])) in (None, leader["start"]):
            groups[leader["pid"]] = start is not None
    for pid in psutil.pids() if groups else []:
        with contextlib.suppress(psutil.Error, OSError):
            if (group := os.getpgid(pid)) in groups and os.getsid(pid) == group:
                running = psutil.Process(pid)
                ours = groups[group] or running.environ().get("OUTPUT_DIR") == record["directory"]
                if ours and running.status() != psutil.STATUS_ZOMBIE:
                    alive.append(running)
    return alive
