"""`tfrun kill RUN`: ends a run and all its processes, also where its tfrun has died."""

import contextlib
import json
import time
from typing import Any

import psutil

from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.runs import registry, run_directory
from tfrun.runs.waiting import wait_for

STOP_SECONDS = 4  # that tfrun has to end its tasks before it is killed, and they


def command(arguments: list[str]) -> int:
    """Ends the run; returns the exit code."""
    flags = common.parser("kill", __doc__).parse_args(arguments)
    record = common.find(flags.run, unreadable_too=True)
    if record["state"] not in ("running", "lost", "unreadable"):
        return fail(f"{record['run']} has ended already: {record['state']}", 1)
    killed = kill(record)
    if left := registry.live_processes(record):
        pids = ", ".join(str(process.pid) for process in left)
        return fail(f"{record['run']}: these processes do not end: {pids}", 1)
    state = common.refresh(record)["state"]
    if flags.json:
        print(json.dumps({"run": record["run"], "state": state, "processes_killed": killed}))
    else:
        why = {"lost": "; its tfrun had died", "unreadable": "; its record could not be read"}
        print(f"{record['run']} is {state}{why.get(record['state'], '')}")
    return 0


def kill(record: dict[str, Any]) -> list[int]:
    """Ends a run, first kindly; returns the ids of the processes that had to be killed."""
    if record["state"] == "unreadable":
        record["path"].unlink(missing_ok=True)
        return []
    if launcher := registry.process(record["tfrun"]):
        for end in (launcher.terminate, launcher.kill):  # the first: it ends its tasks itself
            with contextlib.suppress(psutil.Error):
                end()
            if wait_for(lambda: not registry.process(record["tfrun"]), STOP_SECONDS):
                break
    record = common.refresh(record)
    killed = registry.live_processes(record)
    for process in killed:
        with contextlib.suppress(psutil.Error):
            process.kill()
    ended = wait_for(lambda: not registry.live_processes(record), STOP_SECONDS)
    if ended and record["state"] == "lost":
        for task in record["tasks"]:
            if task["process"]:
                task |= {"state": "stopped", "process": None}
        record |= {"state": "stopped", "ended": time.time()}
        content = {name: value for name, value in record.items() if name != "path"}
        run_directory.write_whole(record["path"], json.dumps(content))
    return [process.pid for process in killed]
