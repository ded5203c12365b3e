"""Runs a script in the tests' fork server, which has imported TensorFlow, instead of here.

A process whose program needs TensorFlow lets the fork server run it, with the same arguments,
variables, folder, cores, and files, and stands for it: it passes signals on, and ends as the
program does. If it is killed, the fork server kills the program.
"""

import json
import os
import signal
import socket
import sys
import time

MODULES = ["tfrun.commands.evaluate", "tfrun.commands.export"]


def program(words):
    """Returns the arguments of a program that needs TensorFlow, or None for any other."""
    if words[:1] == ["-m"]:
        return words if words[1] in MODULES else None
    if words and words[0].endswith(".py") and os.path.exists(words[0]):
        with open(words[0], encoding="utf-8", errors="replace") as file:
            return words if "\nimport tensorflow" in file.read() else None
    return None


def connect(connection, path):
    """Connects to the fork server, which may still import TensorFlow."""
    for attempt in range(600):
        try:
            return connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if attempt == 599:
                raise
            time.sleep(0.1)


def stand_for(argv):
    """Lets the fork server run a program, and ends as it does."""
    connection = socket.socket(socket.AF_UNIX)
    connect(connection, os.environ["WARM_SOCKET"])
    stream = connection.makefile("r")
    stream.readline()
    order = {
        "argv": argv,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "path": sys.path,
        "cores": list(os.sched_getaffinity(0)),
    }
    message = json.dumps(order).encode() + b"\n"
    sent = socket.send_fds(connection, [message], [0, 1, 2])
    connection.sendall(message[sent:])
    pid = int(stream.readline())
    with open("/proc/self/comm", "w") as file:
        file.write(f"for {pid}")
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(stream.readline() or -signal.SIGKILL)
    if code < 0:
        if -code != signal.SIGKILL:  # nobody may handle that one
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main():
    """Returns at once where the program needs no TensorFlow, and otherwise never."""
    words = program(sys.orig_argv[1:])
    if words and os.environ.get("WARM_SOCKET"):
        stand_for(words)
