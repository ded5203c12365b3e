"""The processes of a run: which there are, which task each is, and their ports and threads."""

import contextlib
import json
import os
import socket
import threading
import time

import numpy as np
import psutil


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


class ThreadCounts:
    """Counts the threads of all processes of a run, up to 200 times a second, while it goes on."""

    def __init__(self, directory):
        self.directory, self.counts, self.over = directory, {}, threading.Event()
        self.running = []
        # A look at all processes of a busy machine takes longer than a quick run trains.
        self.threads = [threading.Thread(target=target) for target in (self.find, self.sample)]

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
            tasks = [p for p in processes_of(self.directory) if task_type(p) != "evaluator"]
            self.running = tasks

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
