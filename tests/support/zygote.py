"""Runs scripts many times, and imports TensorFlow once: a process that forks itself.

    python zygote.py SOCKET     a Unix socket, on which it listens

It forks for each connection, and there again for each run. That is safe because the process itself
never starts TensorFlow's threads: it only imports it. A connection first reads the process id of
what serves it; then it sends a line of JSON a run, {"argv", "cwd", "env", "out"}, and reads the
exit code.
"""

import ctypes
import json
import os
import pathlib
import runpy
import signal
import socket
import sys
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import sklearn.datasets  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
for name in "HogWild/hogwild.py", "Collective-AllReduce/collective_allreduce.py":
    runpy.run_path(str(ROOT / name), run_name="warm")  # as TensorFlow 1, and as TensorFlow 2


def end_with_parent():
    """Lets the kernel kill this process when the one that forked it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def child(argv, cwd, env, out):
    """In the forked process: becomes `python argv...`, with its output in the file `out`."""
    signal.alarm(60)
    end_with_parent()
    os.chdir(cwd)
    for name in ("TF_CONFIG", "OUTPUT_DIR"):
        os.environ.pop(name, None)
    os.environ.update(env)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv, code = argv, 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the end of Python costs a second, for all that TensorFlow has loaded


def serve(connection):
    """Runs what the connection asks for, one after another, until it ends."""
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stream = connection.makefile("rw")
    print(os.getpid(), file=stream, flush=True)
    for line in stream:
        pid = os.fork()
        if not pid:
            sys.stdin = open(os.devnull)
            connection.close()
            child(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=stream, flush=True)
    os._exit(0)


end_with_parent()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what serves a connection
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listening", flush=True)
    while True:
        accepted, _ = listener.accept()
        if not os.fork():
            listener.close()
            serve(accepted)
        accepted.close()
