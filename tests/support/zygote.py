"""Runs a script many times, and imports TensorFlow once: a process that forks itself for each run.

    python zygote.py SCRIPT     a script to warm up with: it is loaded, but its main() is not called

The fork is safe because the process itself never starts TensorFlow's threads: it only imports it.
Reads a line of JSON a run, {"argv", "cwd", "env", "out"}, and answers with its exit code.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import sklearn.datasets  # noqa: F401

runpy.run_path(sys.argv[1], run_name="warm")


def child(argv, cwd, env, out):
    """In the forked process: becomes `python argv...`, with its output in the file `out`."""
    signal.alarm(60)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
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


for line in sys.stdin:
    pid = os.fork()
    if not pid:
        sys.stdin = open(os.devnull)
        child(**json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
