"""tfrun's end of a connection: sends far.py to a host, and heartbeats while tfrun lives.

    TFRUN_REQUEST=JSON python ssh.py HOST PYTHON

It ends as the program there does: with its exit code, or by its signal.
"""

import ctypes
import json
import os
import pathlib
import resource
import select
import shlex
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
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
ENDING = {
    getattr(signal, "SIG" + name) for name in "HUP INT ABRT BUS FPE ILL KILL SEGV TERM".split()
}
# Reads a line from standard input: the request, and the modules that serve it.
BEGIN = """import json, sys, types
request = json.loads(sys.stdin.buffer.readline() or sys.exit(1))
for name, text in request["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(sys.modules["tfrun.far"].main(request))
"""


def message(request):
    """The line that BEGIN reads."""
    modules = [(name, (HERE / (name + ".py")).read_text()) for name in ("cluster", "far")]
    modules = [("tfrun", "")] + [("tfrun." + name, text) for name, text in modules]
    return json.dumps({**request, "modules": modules}).encode() + b"\n"


def main():
    """Returns the exit code of the program there, 255 without a connection."""
    host, python = sys.argv[1:]
    tfrun, stopped = os.getppid(), []
    wake, signals = os.pipe()
    for end in (wake, signals):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(signals)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.append(True))

    def prepare():
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
        # What ends us ends the standard input of ssh: the far side then has time to end.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    command = "exec %s -c %s" % (shlex.quote(python), shlex.quote(BEGIN))
    child = subprocess.Popen(
        ["ssh", *OPTIONS, "--", host, command], stdin=subprocess.PIPE, preexec_fn=prepare
    )
    os.set_blocking(child.stdin.fileno(), False)
    left, beat = message(json.loads(os.environ["TFRUN_REQUEST"])), 0.0
    while child.poll() is None and not stopped and os.getppid() == tfrun:
        if not left and time.monotonic() > beat + HEARTBEAT:
            left, beat = b"\n", time.monotonic()
        try:
            left = left[os.write(child.stdin.fileno(), left) :] if left else left
        except BlockingIOError:  # nothing is read just now
            pass
        except OSError:  # ssh has just ended
            left = b""
        wait(wake, 0.05 if len(left) > 1 else 1)
    child.stdin.close()
    code = child.wait()
    if code - 128 in ENDING:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code - 128 != signal.SIGKILL:
            signal.signal(code - 128, signal.SIG_DFL)
        os.kill(os.getpid(), code - 128)
    return code


def wait(wake, seconds):
    """Waits until a signal comes, so many seconds at most."""
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 512)


if __name__ == "__main__":
    sys.exit(main())
