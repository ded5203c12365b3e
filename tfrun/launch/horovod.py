"""horovodrun as the one task of a run: it starts the workers itself, and calls them ranks."""

import ctypes
import os
import pathlib
import re
import signal
import sys

import psutil

from tfrun.launch import cluster, supervisor

PREFIX = re.compile(rb"\[(\d+)\]<std(?:out|err)>:")  # how it marks the lines of a rank
ENDED = re.compile(rb"Process (\d+) exit with status code (\d+)\.")
# What it, its shells and its library say of a failure, which tfrun says in one line. The log keeps
# it.
NOISE = re.compile(
    rb"""
    Traceback\ \(most\ recent\ call\ last\)
  | \ \ .*  # of the traceback
  | RuntimeError:\ Horovod\ detected
  | Process\ name:
  | Exit\ code:
  | Terminating\ remaining\ workers
  | (Killed|Terminated)$
  | \[\d{4}-.*\ Horovod\ background\ loop\ uncaught\ exception
  | .*resource_tracker:
  | $
""",
    re.VERBOSE,
)


def is_meant(script):
    """Whether what tfrun is to start is no script, but horovodrun."""
    return pathlib.Path(script).name == "horovodrun"


def ranks(command):
    """The number of ranks that `command` asks for, 0 where that is no number."""
    for flag, value in zip(command, command[1:]):
        if flag in ("-np", "--num-proc"):
            return int(value) if value.isdigit() else 0
    return 0


def of_a_rank(command):
    """The part of `command` that each rank runs: from Python on, or from the script."""
    scripts = [i for i, word in enumerate(command) if word.endswith(".py")]
    if not scripts:
        return command
    before = scripts[0] - 1
    return command[before:] if "python" in command[before] else command[scripts[0] :]


class Horovodrun(supervisor.Task):
    """The process of horovodrun, and all below it."""

    def __init__(self, command, directory):
        env = {"OUTPUT_DIR": str(directory), "PYTHONUNBUFFERED": "1"}
        for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
            if name not in os.environ:
                env[name] = str(max(1, cluster.cores() // ranks(command)))
        super().__init__("chief", "horovodrun", command, env, directory)

    def start(self):
        """Starts it. On Linux what it leaves behind becomes ours, not that of process 1."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(36, 1)  # 36: PR_SET_CHILD_SUBREAPER
        self.others, self.failures = set(psutil.Process().children()), []
        super().start()

    def ended(self):
        """Whether it has just ended; then none of its ranks is left."""
        if not super().ended():
            return False
        for child in set(psutil.Process().children()) - self.others:
            for process in [*child.children(recursive=True), child]:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
        return True

    def display_line(self, line):
        """(whose it is, the line) as on the screen, or None."""
        found = PREFIX.match(line)
        name = "worker %d" % int(found[1]) if found else self.name
        line = line[found.end() :] if found else line
        if failure := ENDED.match(line):
            self.failures.append((int(failure[1]), int(failure[2])))
            return None
        # A traceback is of interest where it is a rank's.
        quiet = NOISE.match(line) and not (found and line.startswith((b"Traceback", b"  ")))
        return None if quiet or supervisor.NOISE.match(line) else (name, line)

    def bad_use(self):
        """Whether a rank has found a flag that is wrong."""
        return bool(self.failures) and self.failures[0][1] == 2

    def exit_description(self):
        """How it ended, in words: by the rank that it saw fail first; it stops the others then."""
        if not self.failures:
            return super().exit_description()
        rank, code = self.failures[0]
        if code - 128 in {*signal.Signals}:
            return "failed: worker %d was killed by %s" % (rank, signal.Signals(code - 128).name)
        return "failed: worker %d has exit code %d" % (rank, code)
