"""Runs scripts many times, and imports TensorFlow once: a process that forks itself.

    python zygote.py SOCKET     a Unix socket, on which it listens

It forks for each connection, and there again for each run. That is safe because the process itself
never starts TensorFlow's threads: it only imports it. A connection first reads the process id of
what serves it; then it sends a line of JSON a run, and reads the process id of the run and its exit
code. The line says {"argv", "cwd", "env"}, and has either "out", a file for the output, with
"seconds", the most that a run may take, or three open files with it, "path" of modules and "cores".
The run ends with the connection.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import sys
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import sklearn.datasets  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
for name in (
    "From-TensorFlow-1/HogWild-Sessions/hogwild_sessions.py",
    "Collective-AllReduce/collective_allreduce.py",
):
    runpy.run_path(str(ROOT / name), run_name="warm")  # as TensorFlow 1, and as TensorFlow 2


def end_with_parent():
    """Lets the kernel kill this process when the one that forked it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def child(files, argv, cwd, env, out=None, seconds=None, path=None, cores=()):
    """In the forked process: becomes `python argv...`, with its output in the file `out`."""
    end_with_parent()
    os.chdir(cwd)
    if out:
        signal.alarm(seconds)
        for name in ("TF_CONFIG", "OUTPUT_DIR"):
            os.environ.pop(name, None)
        output = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        files = [os.open(os.devnull, os.O_RDONLY), output, output]
    else:
        os.environ.clear()
        os.setsid()
        os.sched_setaffinity(0, cores)
        sys.path[:] = path
    os.environ.update(env)
    for number, file in enumerate(files):
        os.dup2(file, number)
    code = 0
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # The end of Python costs a second, for all that TensorFlow has loaded.
    os._exit(code if isinstance(code, int) else bool(code))


def receive(connection):
    """Returns (the next order, the open files with it), or (None, files) after the last."""
    text, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while more := not text.endswith(b"\n") and connection.recv(1 << 20):
        text += more
    return json.loads(text) if text.endswith(b"\n") else None, files


def serve(connection):
    """Runs what the connection asks for, one after another, until it ends."""
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.sendall(b"%d\n" % os.getpid())
    while True:
        order, files = receive(connection)
        if not order:
            os._exit(0)
        pid = os.fork()
        if not pid:
            connection.close()
            child(files, **order)
        for file in files:
            os.close(file)
        connection.sendall(b"%d\n" % pid)
        ended = os.pidfd_open(pid)
        if connection in select.select([ended, connection], [], [])[0]:  # nothing comes but its end
            os.kill(pid, signal.SIGKILL)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it has started, where it had a session of its own
        connection.sendall(b"%d\n" % code)


end_with_parent()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what serves a connection
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    while True:
        accepted, _ = listener.accept()
        if not os.fork():
            listener.close()
            serve(accepted)
        accepted.close()
