"""tfrun's end of a connection: sends agent.py to a host, and heartbeats while tfrun lives.

    TFRUN_REQUEST=JSON python connection.py HOST PYTHON

It ends as the program there does: with its exit code, or by its signal.
"""

import contextlib
import json
import os
import pathlib
import resource
import shlex
import signal
import subprocess
import sys

TFRUN = pathlib.Path(__file__).resolve().parents[1]
HEARTBEAT = 3  # seconds
OPTIONS = [
    *("-T", "-x", "-a"),
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=10"),
    # Later than the far side ends: a task that starts again does not meet itself.
    *("-o", "ServerAliveInterval=6"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "ControlPath=none"),
    *("-o", "ClearAllForwardings=yes"),
    *("-o", "LogLevel=ERROR"),
]
STOP = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
ENDING = {getattr(signal, "SIG" + name) for name in "ABRT BUS FPE ILL KILL SEGV".split()} | {*STOP}
# Reads a line from standard input: the request, and the modules that serve it.
BEGIN = """import json, sys, types
request = json.loads(sys.stdin.buffer.readline() or sys.exit(1))
for name, text in request["modules"].items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
agent = sys.modules["tfrun.ssh.agent"]
sys.exit({"hold": agent.hold, "task": agent.task}[request["do"]](request))
"""


def message(request):
    """Returns the line that BEGIN reads."""
    modules = dict.fromkeys(["tfrun", "tfrun.launch", "tfrun.ssh"], "")
    modules["tfrun.launch.cluster"] = (TFRUN / "launch" / "cluster.py").read_text()
    modules["tfrun.ssh.agent"] = (TFRUN / "ssh" / "agent.py").read_text()
    return json.dumps({**request, "modules": modules}).encode() + b"\n"


def main():
    """Returns the exit code of the program there, 255 without a connection."""
    host, python = sys.argv[1:]
    tfrun = os.getppid()
    command = f"exec {shlex.quote(python)} -c {shlex.quote(BEGIN)}"
    # ssh ignores what stops this process, which only ends the standard input of ssh: the far side
    # then has time to end.
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(
        ["ssh", *OPTIONS, "--", host, command], stdin=subprocess.PIPE, bufsize=0
    )
    for number in STOP:
        signal.signal(number, lambda *_: child.stdin.close())
    with contextlib.suppress(OSError, ValueError):  # ssh has ended; its standard input is closed
        child.stdin.write(message(json.loads(os.environ["TFRUN_REQUEST"])))
        while child.poll() is None and os.getppid() == tfrun:
            child.stdin.write(b"\n")
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(HEARTBEAT)
    child.stdin.close()
    code = child.wait()
    if code - 128 in ENDING:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code - 128 != signal.SIGKILL:
            signal.signal(code - 128, signal.SIG_DFL)
        os.kill(os.getpid(), code - 128)
    return code


if __name__ == "__main__":
    sys.exit(main())
