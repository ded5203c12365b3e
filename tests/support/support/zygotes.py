"""Processes that have imported TensorFlow, and fork for each run, which then begins at once.

A worker of pytest has one fork server, ../zygote.py. A Zygote is its client: it forks a process for
a test. A whole program, such as a run.sh, is in the surroundings of warm(): the sitecustomize in
../warm then makes each Python of it a stand-in (../stand_in.py), which passes signals and output
between its parent and a fork of the server. In the tier nightly COLD is set, and nothing forks.
"""

import atexit
import concurrent.futures
import contextlib
import functools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import psutil
import stand_in
from lab.examples import ROOT
from tfrun.launch import cluster

from support.limits import patience

WARM = ROOT / "tests" / "support" / "warm"
COLD = threading.Event()  # is set in the tier nightly: each process imports TensorFlow by itself


@functools.cache
def fork_server():
    """Returns (the process that forks for each Zygote, its socket); started at the first call.

    It serves all tests of this process of pytest, and ends with it.
    """
    folder = tempfile.mkdtemp(prefix="zygote-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "support" / "zygote.py", f"{folder}/socket"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.kill)
    return process, f"{folder}/socket"


ONE_SERVER = threading.Lock()  # two threads that call fork_server() for the first time make two


def warm():
    """Returns the variables with which programs run in the fork server; see its sitecustomize."""
    if COLD.is_set() or sys.platform != "linux":
        return {}
    with ONE_SERVER:
        return {"WARM_SOCKET": fork_server()[1], "PYTHONPATH": f"{WARM}:{ROOT}"}


class Zygote:
    """A process that has imported TensorFlow, and forks for each run."""

    def __enter__(self):
        with socket.socket(socket.AF_UNIX) as connection:
            stand_in.connect(connection, fork_server()[1])
            self.stream = connection.makefile("rw")
        self.process = psutil.Process(int(self.stream.readline()))
        self.task = None  # the process of the newest run
        return self

    def __exit__(self, *_):
        self.stream.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
            self.process.wait(timeout=10)

    def run(self, script, flags, folder, seconds=60, **env):
        """Runs a script, so long at most; returns the finished process, its output as stderr."""
        out = folder.with_suffix(".txt")
        order = {
            "argv": [str(folder / script), *flags],
            "cwd": str(folder),
            "env": {"OUTPUT_DIR": "output", **env},
            "out": str(out),
            "seconds": seconds,
        }
        print(json.dumps(order), file=self.stream, flush=True)
        pid = int(self.stream.readline())
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended by now
            self.task = psutil.Process(pid)
        code = int(self.stream.readline())
        return subprocess.CompletedProcess(order["argv"], code, stderr=out.read_text())

    def end_task(self):
        """Kills the newest run, if it still runs."""
        if self.task:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.task.kill()


class QuickCluster:
    """Runs scripts as tfrun does, as so many tasks at most, which need not import TensorFlow."""

    def __init__(self, ps=1, chief=0, tasks=3):
        self.ps, self.chief, self.tasks = ps, chief, tasks
        self.evaluator, self.seconds = 0, 60  # seconds: that a run may take
        self.ends_together = False  # whether the first task that ends ends the others

    def __enter__(self):
        self.zygotes = [Zygote().__enter__() for _ in range(self.tasks)]
        return self

    def __exit__(self, *_):
        for zygote in self.zygotes:
            zygote.__exit__()

    def run(self, script, directory, *flags, workers=2, **env):
        """(the exit codes of the ps, the chief, the workers, and the evaluator; their output)"""
        numbers = {"ps": self.ps, "chief": self.chief, "worker": workers}
        numbers["evaluator"] = self.evaluator
        jobs = {job: n for job, n in numbers.items() if n}
        ports, held = cluster.hold_ports(sum(jobs.values()))
        environments = cluster.environments(jobs, ports, directory)
        folders = [directory / ("%s-%d" % task) for task in environments]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(len(folders)) as pool:
            runs = [
                pool.submit(zygote.run, script, flags, folder, self.seconds, **{**own, **env})
                for zygote, folder, own in zip(self.zygotes, folders, environments.values())
            ]
            if self.ends_together:
                concurrent.futures.wait(runs, return_when=concurrent.futures.FIRST_COMPLETED)
                for zygote in self.zygotes:
                    zygote.end_task()
            ended = [run.result(timeout=patience(self.seconds + 10)) for run in runs]
        for s in held:
            s.close()
        return [p.returncode for p in ended], "\n".join(p.stderr for p in ended)


def run_well(texts, folder, ps=1):
    """Asserts that each script of {name: text} ends well after `--steps 20`."""
    failed = []
    with QuickCluster(ps=ps) as quick:
        for number, (name, text) in enumerate(texts.items()):
            script = folder / (f"{number}.py")
            script.write_text(text)
            codes, output = quick.run(script, folder / str(number), "--steps", "20")
            if any(codes):
                failed.append(f"{name}: exit codes {codes}\n{output}")
    assert not failed, "\n".join(failed)
