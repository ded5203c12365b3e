"""What several tests use: the examples, runs of them, and what must not be left of a run."""

import atexit
import concurrent.futures
import contextlib
import csv
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import psutil
import pytest
import stand_in
from lab.examples import ROOT, kind_of, replaced, scripts, tracked
from tfrun.launch import cluster

SHAPES = [(64, 128), (128,), (128, 64), (64,), (64, 10), (10,)]  # of the variables for digits
PYTHONPATH = f"{ROOT}:{ROOT}/tests/support"  # of the small scripts that tests start
ENGINES = "Beyond-One-Machine"  # the folder of what needs another engine
WARM = ROOT / "tests" / "support" / "warm"
PATIENCE = 4  # times as long as it should take, at most, may something take on a busy machine
COLD = threading.Event()  # is set in the tier nightly: each process imports TensorFlow by itself
BUILD_SECONDS = 1500  # at most, for what a run.sh builds; 4 minutes on 2 cores are usual


def launchers():
    """Every run.sh and run_<variant>.sh of an example, of the files that git knows of.

    A folder with notebooks is no example: test_notebooks.py is about those. What runs on another
    engine has tests of its own: see engines().
    """
    return [
        path
        for path in tracked("run*.sh")
        if path.parent.name != "tests"
        and path.parent.parent.name != ENGINES
        and not list(path.parent.glob("*.ipynb"))
    ]


def engines():
    """Every run.sh that needs another engine: Spark, Slurm and so on."""
    return [path for path in tracked("run*.sh") if path.parent.parent.name == ENGINES]


def needs_build(launcher):
    """Whether a run.sh builds something on its first use."""
    return (launcher.parent / "build").is_dir()


def build(launcher):
    """Builds what a run.sh builds on its first use, so that it takes no part of a test's time."""
    if needs_build(launcher):
        command = [sys.executable, launcher.parent / "build" / "build.py"]
        subprocess.run(command, check=True, timeout=BUILD_SECONDS)


def ps_scripts():
    """Returns all scripts with parameter servers, in order."""
    return [path for path in scripts() if kind_of(path).startswith("parameter server")]


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


def synchronous(script):
    """Whether the workers of a script make each step together."""
    return kind_of(script) in (
        "parameter server, synchronous",
        "all-reduce",
        "gossip, synchronous",
    )


def counts_alone(script):
    """Whether each worker of a script makes all steps, and not all together."""
    return synchronous(script) or kind_of(script) == "gossip, asynchronous"


# Every second further algorithm: each has a near relative, with the same lower half, in `all`.
BY_NIGHT = ["Async-Local-SGD", "Compressed-AllReduce", "Delay-Compensation", "DiLoCo"]


def beyond_core(path):
    """Returns the mark of a script's tests that core leaves out."""
    return pytest.mark.nightly if path.parent.name in BY_NIGHT else pytest.mark.long


def core_first(paths):
    """Returns parameters of a test: the tier core has HogWild's only; a build may take its time."""
    params = []
    for path in paths:
        marks = [] if path.parent.name == "HogWild" else [beyond_core(path)]
        if needs_build(path):
            marks.append(pytest.mark.timeout(BUILD_SECONDS + 120))
        params.append(pytest.param(path, id=path.relative_to(ROOT).as_posix(), marks=marks))
    return params


def mistakes(groups, core):
    """Parameters (case, what fails, changes) of a test, of {(case, what fails): {name: changes}}.

    The tier core has the first so many mistakes of each group.
    """

    def later(group):
        return beyond_core(group[0]) if isinstance(group[0], pathlib.Path) else pytest.mark.long

    return [
        pytest.param(*group, changes, id=name, marks=[later(group)] if number >= core else [])
        for group, named in groups.items()
        for number, (name, changes) in enumerate(named.items())
    ]


def changed(script, groups):
    """Returns {name of a mistake: the script's text with it} of such groups."""
    return {
        name: replaced(script, changes)
        for named in groups.values()
        for name, changes in named.items()
    }


def fails_comparison(fails):
    """Passes where an assertion fails, one of whose lines begins with this name."""
    return pytest.raises(AssertionError, match=rf"(?m)^ *{fails}: ")


def safely(method, default):
    """Returns what a method of a psutil.Process returns, or `default` if the process has ended."""
    try:
        return method()
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return default


def is_running(process):
    """Returns whether a process has not ended."""
    status = safely(process.status, psutil.STATUS_ZOMBIE)
    return process.is_running() and status != psutil.STATUS_ZOMBIE


def command_line(process):
    """Returns the command line of a process as text, "" if it has ended."""
    return " ".join(safely(process.cmdline, []))


def processes_of(directory):
    """Returns the running processes that have this OUTPUT_DIR in their environment."""
    return [
        process
        for process in psutil.process_iter()
        if safely(process.environ, {}).get("OUTPUT_DIR") == str(directory) and is_running(process)
    ]


def program_of(process):
    """Returns the process in which a script runs: this one, or the one that it stands for."""
    word, _, pid = process.name().partition(" ")
    return psutil.Process(int(pid)) if word == "for" else process


def tf_config(process):
    """Returns the TF_CONFIG of a process, {} if it has none or has ended."""
    return json.loads(safely(process.environ, {}).get("TF_CONFIG", "{}"))


def task_type(process):
    """Returns the type of a task, or None for another process."""
    return tf_config(process).get("task", {}).get("type")


def task(directory, job, index):
    """Returns the process in which a task's script runs, or None if it does not run."""
    name = {"type": job, "index": index}
    for process in processes_of(directory):
        if tf_config(process).get("task") == name:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                return program_of(process)
    return None


def ports_of(processes):
    """Returns all ports in the TF_CONFIG of these processes."""
    jobs = [tasks for p in processes for tasks in tf_config(p).get("cluster", {}).values()]
    return {int(address.rsplit(":", 1)[1]) for tasks in jobs for address in tasks}


def patience(seconds):
    """A limit of time that grows with the load of the machine, to PATIENCE times at most."""
    return seconds * min(PATIENCE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


class Limit:
    """A limit of time as `patience`, which goes on to grow while the load does."""

    def __init__(self, seconds):
        self.least, self.seconds, self.began = seconds, seconds, time.monotonic()

    def is_over(self):
        """Returns whether the time is up."""
        self.seconds = max(self.seconds, patience(self.least))
        return time.monotonic() > self.began + self.seconds


def wait_for_exit(process, seconds):
    """Waits for a process to end; returns its exit code. Fails after that many seconds."""
    wait_until(lambda: process.poll() is not None, seconds, "ended")
    return process.returncode


def is_of_another_worker(process):
    """Returns whether a process is another worker of pytest-xdist, or was started by one."""
    own = os.environ.get("PYTEST_XDIST_WORKER")
    if not own:
        return False
    is_worker = safely(process.ppid, 0) == os.getppid() and process.pid != os.getpid()
    return is_worker or safely(process.environ, {}).get("PYTEST_XDIST_WORKER", own) != own


def listening_ports(ports):
    """Returns those of `ports` that somebody listens on, but for the tests that run meanwhile.

    When a run has ended, its ports are free, and a test of another worker may get one.
    """
    taken = []
    for port in ports:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(port)
    listeners = {port: [] for port in taken}
    for connection in psutil.net_connections("tcp") if taken else []:
        port = connection.laddr.port
        if connection.status == psutil.CONN_LISTEN and port in listeners and connection.pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                listeners[port].append(psutil.Process(connection.pid))
    return [
        port
        for port, processes in listeners.items()
        if not processes or not all(map(is_of_another_worker, processes))
    ]


def wait_until(condition, seconds, what):
    """Waits for `condition()` to be true; fails with `what` after that many seconds."""
    limit = Limit(seconds)
    while not (value := condition()):
        assert not limit.is_over(), f"after {limit.seconds} s: not {what}"
        time.sleep(0.05)
    return value


def environment(directory, **more):
    """The environment of a run that writes into `directory`."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TF_CONFIG", "DRY_RUN", "WORKERS", "PS", "TFRUN_TIMEOUT")
        and name != "TF_CPP_MIN_LOG_LEVEL"  # a script that a test has loaded has set its own
    }
    return {**env, "OUTPUT_DIR": str(directory), **more}


def warm_environment(directory, **more):
    """The same for a run whose programs the fork server runs, so that none imports TensorFlow.

    In the tier nightly each does so by itself.
    """
    return environment(directory, **{**warm(), **more})


def at_most(seconds):
    """Returns the variable with which tfrun ends a run at the longest that a Limit may become."""
    return {"TFRUN_TIMEOUT": str(PATIENCE * seconds + 15)}


def begin(launcher, directory, *arguments, output=subprocess.PIPE, **env):
    """Starts a run.sh, whose output, as text, can be read or goes to a file."""
    return subprocess.Popen(
        ["bash", launcher, *arguments],
        env=warm_environment(directory, **env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )


def launch(launcher, directory, *arguments, seconds=100, **env):
    """Runs a run.sh to its end: (exit code, output, ports it used). Kills it after `seconds`."""
    build(launcher)
    process = begin(launcher, directory, *arguments, **at_most(seconds), **env)
    ports, limit = set(), Limit(seconds)
    try:
        while process.poll() is None and not limit.is_over():
            if not ports:
                ports = ports_of(processes_of(directory))
            time.sleep(0.2)
        process.terminate()  # where its time is up
        output = process.communicate(timeout=20)[0]
    finally:
        process.kill()
    return process.returncode, output, ports


class ThreadCounts:
    """Counts the threads of all processes of a run, up to 200 times a second, while it goes on."""

    def __init__(self, directory):
        self.directory, self.counts, self.over = directory, {}, threading.Event()
        self.running = []
        # A look at all processes of a busy machine takes longer than a quick run trains.
        self.threads = [threading.Thread(target=each) for each in (self.find, self.sample)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def find(self):
        """Finds the processes, again and again: a quick one lives for two seconds."""
        while not self.over.wait(0.2):
            # An evaluator sets itself up while others train; and what asks a model is no task.
            found = [p for p in processes_of(self.directory) if task_type(p) != "evaluator"]
            self.running = found

    def sample(self):
        while not self.over.wait(0.005):
            for process in self.running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    count = time.time(), program_of(process).num_threads()
                    self.counts.setdefault(process.pid, []).append(count)

    def growth(self, times):
        """By how many threads a process that was there grew at least in each fifth of the updates.

        times: of these updates. Those that updates leave behind grow from fifth to fifth. A pool
        grows, too, the more the busier the machine is, but not all the time; and threads of calls
        come and go. While w is tested there are no updates, and nothing has to grow.
        """
        edges, grown = np.quantile(times, np.linspace(0, 1, 6)), []
        for looks in self.counts.values():
            at, counts = np.array(looks).T
            if at[0] < edges[0] and ((edges[0] <= at) & (at <= edges[-1])).sum() >= 5:
                grown.append(np.diff(np.interp(edges, at, counts)).min())
        assert grown, "no process was seen before these updates, and five times during them"
        return max(grown)


def result(directory):
    return json.loads((pathlib.Path(directory) / "result.json").read_text())


def pushes(directory):
    """Returns the pushes of all tasks, each a dict of numbers, in order of time.

    The reader is not tfrun's, which drops doubled rows: tests compare tfrun's results with these.
    """
    rows = []
    for path in sorted(pathlib.Path(directory).glob("metrics-*.csv")):
        with open(path, newline="") as file:
            lines = [line for line in file if "#" not in line and line.endswith("\n")]
        for row in csv.DictReader(lines):
            if row["loss"]:
                numbers = {name: float(value or "nan") for name, value in row.items()}
                rows.append({**numbers, "task": path.stem.removeprefix("metrics-")})
    return sorted(rows, key=lambda row: row["push_time"])


class Run:
    """A run.sh that a test meddles with while it runs; nothing is left of it afterwards."""

    def __init__(self, launcher, directory, *flags, **env):
        self.directory = directory
        self.process = begin(launcher, directory, *flags, **{**at_most(100), **env})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in processes_of(self.directory):
            with contextlib.suppress(psutil.NoSuchProcess):
                program_of(process).send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.communicate(timeout=patience(30))
        assert not processes_of(self.directory)

    def worker(self, index):
        return task(self.directory, "worker", index)

    def step(self):
        """The highest step in its metrics."""
        return max([row["global_step"] for row in pushes(self.directory)], default=0)


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


def browser():
    """Returns the path of a browser that playwright can drive, or None."""
    names = ["chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


def newest_checkpoint(directory):
    """The path of the newest checkpoint, as TensorFlow takes it."""
    import tensorflow as tf

    return tf.train.latest_checkpoint(directory)


def run_to_end(*command, seconds=60, cwd=ROOT, env=None):
    """Runs a command; returns the finished process, with its output as text."""
    pipes = dict.fromkeys(["stdout", "stderr"], subprocess.PIPE)
    limit = Limit(seconds)
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, text=True, **pipes
    ) as process:
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=1)
                    return subprocess.CompletedProcess(command, process.returncode, output, errors)
                except subprocess.TimeoutExpired:
                    if limit.is_over():
                        raise
        finally:
            process.kill()


def python(code, *arguments, seconds=60, **env):
    """Runs `code` with Python; returns the finished process with its output as text."""
    command = [sys.executable, "-c", code, *arguments]
    return run_to_end(*command, seconds=seconds, env={**os.environ, **env})


def tfrun(*arguments, **env):
    """Runs a command of tfrun to its end; returns the process as `run_to_end` does."""
    env = {**os.environ, **warm(), **env}
    return run_to_end(sys.executable, "-m", "tfrun", *arguments, env=env)


def within(what, known, value, tolerance):
    """Asserts that something is as it is known to be, to this share."""
    assert abs(value - known) <= tolerance * abs(known), (
        f"\n{what}: {value:.5g}, not {known:.5g}: {value / known - 1:+.1%} (±{tolerance:.2%})"
    )
