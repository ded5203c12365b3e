"""What tfrun does on a host of --hosts, by the request in the first line of standard input.

    check     says what a task would miss on the host, or else what the host has, and free ports
    task      runs a task until it ends, or tfrun does

Standard input ends with tfrun. A connection that is cut does not end it: then the heartbeats of
tfrun are missing.
"""

import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from tfrun.launch import cluster, signals
from tfrun.launch.task import has_ended, shell_code, start_process
from tfrun.runs import run_directory
from tfrun.runs.waiting import wait_for

REPLY = "tfrun-reply "  # before the answer: a login may print lines of its own
SILENCE = 15  # seconds without a heartbeat after which tfrun counts as gone
GRACE = 2  # seconds between asking a task to end and killing it; tfrun's own is 3


def wait_for_end(over: Callable[[], Any] = lambda: False) -> Any:
    """Waits until tfrun is gone, or over(); returns over()."""
    last_heartbeat = time.monotonic()
    while not over() and time.monotonic() < last_heartbeat + SILENCE:
        if select.select([0], [], [], 0.1)[0]:
            if not os.read(0, 1 << 16):
                break
            last_heartbeat = time.monotonic()
    return over()


def problem(request: dict[str, Any]) -> str | None:
    """Returns why a task would fail on this host, one line; None if it would not."""
    script = os.path.join(request["folder"], request["script"])
    if not os.path.isfile(script):
        return f"there is no script {script} there: copy it, or share its folder"
    directory = os.path.dirname(request["mark"])
    if not os.path.exists(request["mark"]):
        remedy = "set OUTPUT_DIR to one that this machine and all hosts share"
        return f"it does not see the folder {directory}: {remedy}"
    if not os.access(directory, os.W_OK):
        remedy = "let its user write there, or set OUTPUT_DIR"
        return f"it cannot write the run directory {directory}: {remedy}"
    spec = importlib.util.find_spec("tensorflow") if request["tensorflow"] else None
    if request["tensorflow"] and (spec is None or spec.origin is None):
        return f"{sys.executable} has no TensorFlow there: install requirements.lock"
    for name in request["names"]:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            return f"it does not know the name {name}: add it to its /etc/hosts"
    return None


def check(request: dict[str, Any]) -> None:
    """Answers with free ports and what the host has, or with what is wrong."""
    answer: dict[str, Any]
    if wrong := problem(request):
        answer = {"wrong": wrong}
    else:
        machine = {"cores": cluster.cores(), "gpus": cluster.gpus()}
        answer = {"machine": machine, "ports": cluster.free_ports(request["n"])}
    print(REPLY + json.dumps(answer))


def task(request: dict[str, Any]) -> int:
    """Runs a task; returns its exit code, as a shell would."""
    os.chdir(request["folder"])
    path = os.path.join(request["env"]["OUTPUT_DIR"], f".{request['name']}.lock")
    with open(path, "w") as lock:
        # Before a lost connection another process was this task: it has time to end.
        if not wait_for(lambda: run_directory.try_lock(lock), SILENCE + 2 * GRACE, 0.2):
            print(f"tfrun: another process is this task, and has {path}")
            return 1
        stopped = []
        signals.handle(lambda *_: stopped.append(True), *signals.ENDING)
        env, inherited = {**os.environ, **request["env"]}, [lock.fileno()]
        child = start_process(request["command"], env, stdout=None, pass_fds=inherited)
        by_itself = wait_for_end(lambda: stopped or has_ended(child))
        for number, seconds in (signal.SIGTERM, GRACE), (signal.SIGKILL, 0):
            with contextlib.suppress(OSError):
                os.killpg(child.pid, number)  # with what it has started
            wait_for(lambda: has_ended(child), seconds)
        code = shell_code(child.wait())
    return code if by_itself else 255  # as ssh's own


def main() -> int | None:
    """Serves the request; returns the exit code, 1 without a request."""
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    request = json.loads(line)
    return {"check": check, "task": task}[request["do"]](request)
