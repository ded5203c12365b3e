"""What tfrun does on a host of --hosts. ssh.py sends this module there; it needs no tfrun there.

    hold      checks the host, and holds ports until tfrun has ended
    look      counts the marks that the hosts have left in the run directory
    collect   the texts of files in the run directory
    task      runs a task until it ends, or tfrun does

Standard input ends with tfrun. A connection that is cut does not end it: then the heartbeats of
tfrun are missing.
"""

import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

from tfrun import cluster

REPLY = "tfrun-reply "  # before the answer: a login may print lines of its own
SILENCE = 15  # seconds without a heartbeat after which tfrun counts as gone
GRACE = 2  # seconds between asking a task to end and killing it; tfrun's own is 3


class Wrong(Exception):
    """What is wrong with this host, one line."""


def reply(content):
    print(REPLY + json.dumps(content), flush=True)


def wait_for_end(wake=None, over=lambda: False):
    """Waits until tfrun is gone, or over(); returns over(). A signal comes by `wake`."""
    os.set_blocking(0, False)
    heard = time.monotonic()
    while not over() and time.monotonic() < heard + SILENCE:
        ready, _, _ = select.select([0, wake] if wake else [0], [], [], 1)
        if 0 in ready:
            if not os.read(0, 1 << 16):
                break
            heard = time.monotonic()
        if wake in ready:
            os.read(wake, 512)
    return over()


def check(request):
    """Raises Wrong where a task would fail on this host."""
    folder, script = request["folder"], request["script"]
    if not os.path.isdir(folder):
        raise Wrong("there is no folder %s there: copy it, or share it" % folder)
    os.chdir(folder)
    if not os.path.isfile(script):
        raise Wrong("there is no script %s there: copy it, or share its folder" % script)
    found = importlib.util.find_spec("tensorflow") if request["tensorflow"] else None
    if request["tensorflow"] and (found is None or found.origin is None):
        raise Wrong("%s has no TensorFlow there: install requirements.lock" % sys.executable)
    for name in request["names"]:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            raise Wrong("it does not know the name %s: add it to its /etc/hosts" % name) from None


def hold(request):
    """Answers with free ports and what the host has; holds the ports until tfrun is gone."""
    directory, mark = pathlib.Path(request["directory"]), request["mark"] % request["number"]
    check(request)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / mark).touch()
    except OSError as error:
        raise Wrong("it cannot write the run directory: %s" % error) from None
    try:
        ports, held = cluster.hold_ports(request["ports"])
        reply(
            {
                "ports": ports,
                "cores": cluster.cores(),
                "gpus": cluster.gpus(),
                "with_tfrun": (directory / (request["mark"] % "tfrun")).exists(),
            }
        )
        wait_for_end()
        for each in held:
            each.close()
    finally:
        (directory / mark).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it is not empty
            directory.rmdir()


def look(request):
    """Answers with the number of hosts whose marks are in the run directory."""
    reply(len([*pathlib.Path(request["directory"]).glob(request["mark"] % "[0-9]*")]))


def collect(request):
    """Answers with {name: text} of those files that are in the run directory."""
    paths = [pathlib.Path(request["directory"]) / name for name in request["files"]]
    reply({path.name: path.read_text(errors="replace") for path in paths if path.exists()})


def task(request):
    """Runs a task; returns its exit code, as a shell would."""
    os.chdir(request["folder"])
    env, parent = request["env"], os.getpid()
    with open(os.path.join(env["OUTPUT_DIR"], ".%s.lock" % request["name"]), "w") as lock:
        lock_it(lock)
        wake, signals = os.pipe()
        for end in (wake, signals):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(signals)
        stopped = []
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: stopped.append(True))

        def end_with_parent():
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)

        child = subprocess.Popen(
            request["command"],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
            pass_fds=[lock.fileno()],
        )

        def ended():
            """Looks without reaping: until then nobody else can get its id."""
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return bool(stopped) or os.waitid(os.P_PID, child.pid, how) is not None

        by_itself = wait_for_end(wake, ended)
        for number, seconds in (signal.SIGTERM, GRACE), (signal.SIGKILL, 0):
            with contextlib.suppress(OSError):
                os.killpg(child.pid, number)  # with what it has started
            stopped.clear()
            deadline = time.monotonic() + seconds
            while not ended() and time.monotonic() < deadline:
                time.sleep(0.05)
        code = child.wait()
        return 255 if not by_itself else code if code >= 0 else 128 - code  # 255: as ssh's own


def lock_it(lock):
    """Waits for the process that had this task before, after a lost connection. Raises Wrong."""
    deadline = time.monotonic() + SILENCE + 2 * GRACE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Wrong("another process is this task, and has %s" % lock.name) from None
        except OSError:  # a file system without locks
            return None
        time.sleep(0.2)


def main(request):
    """Does what is asked for; returns the exit code."""
    try:
        return globals()[request["do"]](request) or 0
    except Wrong as error:
        if request["do"] == "task":
            print("tfrun: %s" % error, flush=True)
        else:
            reply({"wrong": str(error)})
        return 1
