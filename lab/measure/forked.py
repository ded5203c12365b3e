"""Runs examples whose tasks are forked from one process that has imported TensorFlow.

Nine imports would take most of a short run's time. Each task runs the script as under `tfrun`.
"""

import ctypes
import functools
import multiprocessing
import os
import pathlib
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tfrun.launch import cluster
from tfrun.launch.task import end_with_parent

from lab.measure import idle

RUN_SECONDS = 600  # for one run
SAMPLE_SECONDS = 0.25  # between two looks at the machine
DIVERGED = "FloatingPointError"  # with it a worker ends whose loss is no number any more
CLONE_NEWNET = 0x40000000


@functools.cache
def context() -> multiprocessing.context.ForkServerContext:
    """Returns what forks the tasks: a process that has imported TensorFlow."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["tensorflow", "keras", "sklearn.datasets"])
    return forkserver


def task(
    script: pathlib.Path,
    flags: Iterable[object],
    env: Mapping[str, str],
    output: pathlib.Path,
    namespace: str | pathlib.Path | None,
) -> None:
    """In a forked process: is `python script flags` with `env`, its output in a file.

    namespace: the file of a network namespace to enter first, or None.
    """
    end_with_parent()
    # The process that forks outlives the measurement if that one is killed; this task does not.
    measurement = multiprocessing.parent_process()
    assert measurement is not None

    def end_too() -> None:
        measurement.join()
        os._exit(1)

    threading.Thread(target=end_too, daemon=True).start()
    if namespace:
        with open(namespace) as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.environ.update(env)
    sys.argv = [str(script), *map(str, flags)]
    sys.path.insert(0, str(script.parent))  # as `python script` does
    with open(output, "w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        runpy.run_path(str(script), run_name="__main__")


def train(
    script: pathlib.Path,
    jobs: Mapping[str, int],
    flags: Iterable[object],
    directory: pathlib.Path,
    sample: Callable[[], Any] = idle.own_seconds,
    hosts: Sequence[tuple[str, str | pathlib.Path | None]] | None = None,
) -> tuple[bool, list[tuple[float, Any]]]:
    """Trains to the end, in `directory`; returns (whether it did not diverge, the samples).

    sample: called every SAMPLE_SECONDS. The samples are [(seconds since 1970, what it returned)].
    hosts: (an address, the file of a namespace) of each task, the ps first; this one without them.
    """
    directory.mkdir(parents=True, exist_ok=True)  # a second run goes on with the first
    task_names = cluster.tasks(jobs)
    ports, sockets = cluster.hold_ports(len(task_names))
    host_addresses = [address for address, _ in hosts[: len(task_names)]] if hosts else None
    addresses = cluster.addresses(jobs, ports, host_addresses)
    environments = cluster.task_environments(task_names, addresses, directory, cluster.cores(), [])
    deadline = time.monotonic() + RUN_SECONDS
    tasks = {}
    samples = []
    try:
        for number, ((job, index), env) in enumerate(environments.items()):
            output = directory / f"{job}-{index}.txt"
            arguments = (script, flags, env, output, hosts[number][1] if hosts else None)
            # Daemons: they end with this process.
            tasks[output] = context().Process(target=task, args=arguments, daemon=True)
            tasks[output].start()
        while True:
            # A ps ends with the last worker. Who has ended is asked first, then how.
            all_ended = not any(process.is_alive() for process in tasks.values())
            samples.append((time.time(), sample()))
            if time.monotonic() > deadline:
                sys.exit(f"{script} did not end in {RUN_SECONDS} s: {directory}")
            failed_outputs = [output for output, process in tasks.items() if process.exitcode]
            if failed_outputs:
                texts = [output.read_text() for output in failed_outputs]
                if not any(DIVERGED in text for text in texts):
                    sys.exit(f"{failed_outputs[0].stem} of {script} failed: {texts[0][-2000:]}")
                return False, samples
            if all_ended:
                return True, samples
            time.sleep(SAMPLE_SECONDS)
    finally:
        for process in tasks.values():
            process.kill()
            process.join()
        for socket in sockets:
            socket.close()


def per_second(samples: Iterable[tuple[float, float]], began: float, ended: float) -> float:
    """Returns how much what was looked at, a number that grows, grew a second in that time."""
    times, values = zip(*samples)
    first_value, last_value = np.interp([began, ended], times, values)
    return float((last_value - first_value) / (ended - began))


def common_start(pushes: Iterable[dict[str, Any]]) -> float:
    """Returns when all had begun: each worker waits, after its first push, for that of the last."""
    first_pushes: dict[str, float] = {}
    for push in pushes:
        first_pushes.setdefault(push["task"], push["push_time"])
    return max(first_pushes.values())


def window(pushes: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Returns (when it began, when it ended, updates a second) of all that took part.

    It begins when all had begun, and behind the first tenth of the pushes.
    """
    began = max(common_start(pushes), pushes[len(pushes) // 10]["push_time"])
    first_push = next(push for push in pushes if push["push_time"] >= began)
    last_push = max(pushes, key=lambda push: push["global_step"])
    ended = last_push["push_time"]
    return began, ended, (last_push["global_step"] - first_push["global_step"]) / (ended - began)
