"""tfrun --hosts: the tasks of a run on several hosts, each at the end of an ssh of its own.

Each ssh, in a shell that sends it heartbeats, is a child of tfrun, which treats it as it treats a
task of this machine. agent.py runs at the other end.
"""

import argparse
import collections
import dataclasses
import importlib.util
import json
import multiprocessing.pool
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfrun import known_errors
from tfrun.launch import cluster, exposed
from tfrun.launch.supervisor import LaunchSpec
from tfrun.launch.task import Task, end_with_parent
from tfrun.ssh import agent


class Host(NamedTuple):
    """A host of --hosts."""

    target: str  # what ssh gets
    name: str  # the address for the other tasks
    slots: int  # how many tasks it may have


ANSWER = 30  # seconds that a host may take to answer, its connection included
ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENT = f"""import sys; sys.path.insert(0, {str(ROOT)!r})
from tfrun.ssh import agent; sys.exit(agent.main())"""
# A shell that ends as the program at the host does, by its exit code or its signal. What stops the
# shell, or tfrun, ends the heartbeats, but not ssh: the host then has time to end.
CONNECT = """
trap : HUP INT TERM
(trap '' HUP INT TERM; exec "$@") < <(
    echo "$TFRUN_REQUEST"; while kill -0 $PPID && sleep 3; do echo; done 2> /dev/null)
code=$?
trap - HUP INT TERM
if [ $code -gt 128 ]; then ulimit -c 0; kill -$((code - 128)) $$ 2> /dev/null; fi
exit $code
"""
OPTIONS = ["BatchMode=yes", "ConnectTimeout=10", "ControlPath=none", "ClearAllForwardings=yes"]
# A cut connection ends here later than at the host: a task that starts again does not meet itself.
OPTIONS += ["LogLevel=ERROR", "ServerAliveInterval=6", "ServerAliveCountMax=3"]
SSH = ["ssh", "-T", "-x", "-a", *(f"-o{option}" for option in OPTIONS)]


def parse(text: str) -> list[Host]:
    """Returns [Host] of "host1:2,user@host2:4". Raises ArgumentTypeError."""
    hosts = []
    for part in text.split(","):
        match = re.fullmatch(r"((?:\w[\w.-]*@)?(\w[\w.-]*))(?::([1-9]\d?))?", part.strip())
        if not match:
            raise argparse.ArgumentTypeError(
                f"{part!r} is not like host:2 or user@host:2, with slots from 1 to 99"
            )
        hosts.append(Host(match[1], match[2], int(match[3] or 1)))
    names = [host.name for host in hosts]
    if twice := [name for name in names if names.count(name) > 1]:
        raise argparse.ArgumentTypeError(f"{twice[0]} is named twice: give it more slots instead")
    if len(hosts) > 1 and (own := [n for n in names if re.match(r"localhost$|127\.", n)]):
        raise argparse.ArgumentTypeError(
            f"{own[0]} is another machine for each host: use a name that all know"
        )
    return hosts


def deal(jobs: dict[str, int], hosts: list[Host]) -> dict[tuple[str, int], Host]:
    """Returns {(job, index): Host}: the ps first, then the others, into the slots in order.

    Raises ValueError where the slots are too few.
    """
    tasks = cluster.tasks(jobs)
    slots = [host for host in hosts for _ in range(host.slots)]
    if len(tasks) > len(slots):
        raise ValueError(
            f"--hosts has {len(slots)} slots for {len(tasks)} tasks: add hosts, or slots by host:N"
        )
    return dict(zip(tasks, slots))


def plan(host_of_task: Mapping[tuple[str, int], Host]) -> list[str]:
    """Returns ["host1: ps 0, worker 0", ...]."""
    tasks = collections.defaultdict(list)
    for (job, index), host in host_of_task.items():
        tasks[host.name].append(f"{job} {index}")
    return [f"{name}: {', '.join(names)}" for name, names in tasks.items()]


def ssh_command(host: Host) -> list[str]:
    """Returns the command that runs agent.py on a host."""
    agent = [sys.executable, "-c", AGENT]
    return [*SSH, "--", host.target, f"exec {shlex.join(agent)}"]


def ask(requests: dict[Host, dict[str, Any]]) -> dict[Host, dict[str, Any]]:
    """Returns the answers of agent.check() on some hosts, each to its request."""
    with multiprocessing.pool.ThreadPool(len(requests)) as pool:  # Ctrl-C does not wait for it
        return dict(zip(requests, pool.starmap(answer, requests.items())))


def answer(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer of a host, {"wrong": why} where none comes in time."""
    try:
        done = subprocess.run(
            ssh_command(host),
            input=json.dumps(request) + "\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ANSWER,
            preexec_fn=end_with_parent,
        )
    except subprocess.TimeoutExpired:
        return {"wrong": f"it did not answer in {ANSWER} s"}
    for line in done.stdout.splitlines():
        if line.startswith(agent.REPLY):  # before it are the lines of the login
            return json.loads(line.removeprefix(agent.REPLY))
    return {"wrong": reason(host, done.returncode, done.stdout.strip())}


def reason(host: Host, code: int, output: str) -> str:
    """Returns why there is no answer, by the exit code and what ssh or Python has said."""
    if code in (126, 127):
        return f"there is no Python at {sys.executable} there: it must be at the same path"
    if "No module named 'tfrun'" in output:
        return f"there is no {ROOT}/tfrun there: copy it, or share its folder"
    for pattern, meaning in known_errors.SSH.items():
        if code == 255 and re.search(pattern, output):
            return meaning.format(host.target)
    return output.splitlines()[-1] if output else f"it gave no answer (exit code {code})"


class RemoteTask(Task):
    """A task on a host; its process here is the shell around ssh."""

    is_local = False

    def __init__(
        self,
        host: Host,
        job: str,
        index: int,
        command: list[str],
        env: dict[str, str],
        directory: pathlib.Path,
    ) -> None:
        request = {
            "do": "task",
            "name": f"{job}-{index}",
            "folder": os.getcwd(),
            "env": env,
            "command": command,
        }
        command = ["bash", "-c", CONNECT, "tfrun", *ssh_command(host)]
        env = {**env, "TFRUN_REQUEST": json.dumps(request)}
        super().__init__(job, f"{job} {index}", command, env, directory)
        self.host = host

    def exit_description(self) -> str:
        """Returns how it ended, and where."""
        if self.exit_code == 255:
            return f"lost its connection to {self.host.name}"
        return f"{super().exit_description()} at {self.host.name}"


def prepare(spec: LaunchSpec, host_of_task: dict[tuple[str, int], Host]) -> LaunchSpec:
    """Returns the LaunchSpec with tasks on hosts, which were checked.

    Raises ValueError: a line for each host that cannot be used.
    """
    if not shutil.which("ssh"):
        raise ValueError("there is no ssh on this machine: apt install openssh-client")
    chief = "chief" if "chief" in spec.jobs else "worker"
    n_tasks = collections.Counter(host_of_task.values())
    with tempfile.NamedTemporaryFile(dir=spec.directory, prefix=".host-") as mark:
        request = {
            "do": "check",
            "folder": os.getcwd(),
            "script": spec.commands[chief][1],
            "mark": mark.name,
            "names": [host.name for host in n_tasks],
            "tensorflow": importlib.util.find_spec("tensorflow") is not None,
        }
        answers = ask({host: {**request, "n": n} for host, n in n_tasks.items()})
    if wrong := [f"{host.target}: {a['wrong']}" for host, a in answers.items() if "wrong" in a]:
        raise ValueError("\n".join(wrong))
    placement = Placement(spec, host_of_task, answers)
    tasks = placement.make_tasks()
    warning = exposed.exposure_warning(spec.commands[chief])
    notes = [
        *plan(host_of_task),
        f"{warning}: keep the hosts on a network of their own",
    ]
    more = placement.make_worker if "ps" in spec.jobs else None
    return dataclasses.replace(spec, tasks=tasks, notes=notes, make_worker=more)


class Placement:
    """Makes the tasks of a run on its hosts, by what these have answered."""

    def __init__(
        self,
        spec: LaunchSpec,
        host_of_task: Mapping[tuple[str, int], Host],
        answers: Mapping[Host, dict[str, Any]],
    ) -> None:
        self.spec, self.host_of_task, self.answers = spec, dict(host_of_task), answers
        hosts = host_of_task.values()
        ports = {host: iter(answer["ports"]) for host, answer in answers.items()}
        self.addresses = cluster.addresses(
            spec.jobs, [next(ports[host]) for host in hosts], [host.name for host in hosts]
        )
        self.tasks: list[RemoteTask] = []

    def make_tasks(self) -> list[Task]:
        """Returns the tasks of the spec."""
        return [self.make(*task) for task in self.host_of_task]

    def make(self, job: str, index: int) -> Task:
        """Returns a task, with the environment that the answer of its host gives it."""
        host = self.host_of_task[job, index]
        own = [task for task in self.host_of_task if self.host_of_task[task] == host]
        machine = self.answers[host]["machine"]
        more = {**machine, "variables": self.spec.variables, "already_set": ()}
        env = cluster.task_environments(own, self.addresses, self.spec.directory, **more)
        command = self.spec.commands[job if job in self.spec.commands else "chief"]
        task = RemoteTask(host, job, index, command, env[job, index], self.spec.directory)
        self.tasks.append(task)
        return task

    def make_worker(self, index: int) -> Task:
        """Returns one worker more, in the first free slot. Raises ValueError if there is none."""
        taken = collections.Counter(task.host for task in self.tasks if task.is_unfinished())
        for host in self.answers:
            if taken[host] < host.slots:
                self.host_of_task["worker", index] = host
                return self.make("worker", index)
        raise ValueError("no slot of --hosts is free")
