"""Runs scripts many times, and imports TensorFlow once: a process that forks itself for each run.

Good for runs that end before TensorFlow starts threads: those that a wrong flag or file stops.
Reads a line of JSON a run, {"argv", "cwd", "env", "out"}, and answers with its exit code.
"""

import json
import os
import runpy
import signal
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import sklearn.datasets  # noqa: F401
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)


def child(argv, cwd, env, out):
    """In the forked process: becomes `python argv...`, with its output in the file `out`."""
    signal.alarm(60)
    os.chdir(cwd)
    for name in ("TF_CONFIG", "OUTPUT_DIR"):
        os.environ.pop(name, None)
    os.environ.update(env)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


for line in sys.stdin:
    pid = os.fork()
    if not pid:
        sys.stdin = open(os.devnull)
        child(**json.loads(line))
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
