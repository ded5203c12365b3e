"""tfrun --hosts: the tasks of a run on several hosts, each at the end of an ssh of its own.

Each ssh, in a shell that sends it heartbeats, is a child of tfrun, which treats it as it treats a
task of this machine. agent.py runs at the other end.
"""

import argparse
import collections
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tfrun.launch import cluster
from tfrun.launch.supervisor import GRACE, LaunchSpec
from tfrun.launch.task import Task, start_process
from tfrun.ssh import agent

# target: what ssh gets; name: the address for the other tasks; slots: how many tasks it may have.
Host = collections.namedtuple("Host", "target name slots")
ANSWER = 30  # seconds that a host may take to answer, its connection included
ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENT = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tfrun.ssh import agent"
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
SSH = [
    *("ssh", "-T", "-x", "-a"),
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=10"),
    # Later than the far side ends: a task that starts again does not meet itself.
    *("-o", "ServerAliveInterval=6"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "ControlPath=none"),
    *("-o", "ClearAllForwardings=yes"),
    *("-o", "LogLevel=ERROR"),
]
REASONS = {  # what ssh says, and what it means
    "Could not resolve": "ssh does not know this name: correct it in --hosts or in /etc/hosts",
    "Permission denied": "it does not accept your key: give it one that needs no prompt, "
    "by ssh-copy-id {0}",
    "Host key verification failed": "its host key is not the one that is known here: "
    "connect once by hand, ssh {0}",
    "Connection refused": "no sshd listens there: start it, or name its port in ~/.ssh/config",
    r"timed out|No route to host|[Uu]nreachable": "it cannot be reached: is it on, and does the "
    "firewall let ssh through?",
}


class Unusable(Exception):
    """What is wrong with the hosts: a line for each."""


def parse(text):
    """Returns [Host] of "host1:2,user@host2:4". Raises ArgumentTypeError."""
    hosts = []
    for part in text.split(","):
        match = re.fullmatch(r"((?:\w[\w.-]*@)?(\w[\w.-]*))(?::([1-9]\d?))?", part.strip())
        if not match:
            raise argparse.ArgumentTypeError(
                f"{part!r} is not like host:2 or user@host:2, "
                "a name and a number of slots from 1 to 99"
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
            f"the run has {len(tasks)} tasks, and --hosts has {len(slots)} slots: "
            "add hosts, or slots by host:N"
        )
    return dict(zip(tasks, slots))


def plan(host_of_task):
    """Returns ["host1: ps 0, worker 0", ...]."""
    tasks = collections.defaultdict(list)
    for (job, index), host in host_of_task.items():
        tasks[host.name].append(f"{job} {index}")
    return [f"{name}: {', '.join(names)}" for name, names in tasks.items()]


def connect(host, request):
    """Returns the command that serves a request on a host, and its variables."""
    agent = [sys.executable, "-c", f"{AGENT}; sys.exit(agent.main())"]
    command = ["bash", "-c", CONNECT, "tfrun", *SSH, "--", host.target, f"exec {shlex.join(agent)}"]
    return command, {"TFRUN_REQUEST": json.dumps(request)}


class Connection:
    """The program on a host that checks it and holds ports, until its standard input ends."""

    def __init__(self, host, request):
        self.host = host
        command, variables = connect(host, request)
        self.process = start_process(command, {**os.environ, **variables})
        self.deadline = time.monotonic() + ANSWER
        self.lines, self.reply = [], None  # lines before the reply are the login's or ssh's
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        """Reads the output up to the reply, or to its end."""
        for line in self.process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(agent.REPLY):
                self.reply = json.loads(text.removeprefix(agent.REPLY))
                return
            if text:
                self.lines.append(text)

    def answer(self):
        """Returns the host's answer: its ports and what it has, or {"wrong": why it has none}."""
        self.reader.join(max(0.0, self.deadline - time.monotonic()))
        return self.reply or {"wrong": self.reason()}

    def reason(self):
        """Returns why there is no answer, by the exit code and what ssh has said."""
        if self.reader.is_alive():
            return f"it did not answer in {ANSWER} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.returncode
        if code in (126, 127):
            return f"there is no Python at {sys.executable} there: it must be at the same path"
        if "No module named 'tfrun'" in "".join(self.lines[-1:]):
            return f"there is no {ROOT}/tfrun there: copy it, or share its folder"
        for pattern, reason in REASONS.items():
            if code == 255 and re.search(pattern, "\n".join(self.lines)):
                return reason.format(self.host.target)
        return self.lines[-1] if self.lines else f"it gave no answer (exit code {code})"


class RemoteTask(Task):
    """A task on a host; its process here is the shell around ssh."""

    def __init__(self, host, job, index, command, env, directory):
        request = {
            "do": "task",
            "name": f"{job}-{index}",
            "folder": os.getcwd(),
            "env": env,
            "command": command,
        }
        command, variables = connect(host, request)
        super().__init__(job, f"{job} {index}", command, env | variables, directory)
        self.host = host

    def exit_description(self):
        """Returns how it ended, and where."""
        if self.exit_code == 255:
            return f"lost its connection to {self.host.name}"
        return f"{super().exit_description()} at {self.host.name}"


class Hosts:
    """The hosts of a run, ready for its tasks. Raises Unusable, and leaves nothing then."""

    def __init__(self, spec: LaunchSpec, host_of_task: dict[tuple[str, int], Host]):
        if not shutil.which("ssh"):
            raise Unusable("there is no ssh on this machine: apt install openssh-client")
        self.spec, self.host_of_task, self.connections = spec, host_of_task, []
        try:
            self.tasks = self.make_tasks(self.hold_ports())
        except BaseException:
            self.close()
            raise

    def hold_ports(self):
        """Returns {host: its answer}; each host holds a port for each of its tasks."""
        n = collections.Counter(self.host_of_task.values())
        chief = "chief" if "chief" in self.spec.jobs else "worker"
        with tempfile.NamedTemporaryFile(dir=self.spec.directory, prefix=".host-") as mark:
            request = {
                "do": "hold",
                "folder": os.getcwd(),
                "script": self.spec.commands[chief][1],
                "mark": mark.name,
                "names": [host.name for host in n],
                "tensorflow": importlib.util.find_spec("tensorflow") is not None,
            }
            for host in n:
                self.connections.append(Connection(host, {**request, "ports": n[host]}))
            answers = {connection.host: connection.answer() for connection in self.connections}
        wrong = [(host, answer["wrong"]) for host, answer in answers.items() if "wrong" in answer]
        if wrong:
            raise Unusable("\n".join(f"{host.target}: {reason}" for host, reason in wrong))
        return answers

    def make_tasks(self, answers) -> list[Task]:
        """Returns the tasks, each with the environment that its host's answer gives it."""
        spec, order = self.spec, cluster.tasks(self.spec.jobs)
        hosts = [self.host_of_task[task] for task in order]
        ports = {host: iter(answer["ports"]) for host, answer in answers.items()}
        addresses = cluster.addresses(
            spec.jobs, [next(ports[host]) for host in hosts], [host.name for host in hosts]
        )
        env = {}
        for host, answer in answers.items():
            env |= cluster.on_machine(
                [task for task in order if self.host_of_task[task] == host],
                addresses,
                spec.directory,
                **answer["machine"],
                variables=spec.variables,
                already_set=(),
            )
        return [
            RemoteTask(host, job, index, spec.commands[job], env[job, index], spec.directory)
            for host, (job, index) in zip(hosts, order)
        ]

    def notes(self):
        """Returns what tfrun says at the start of the run."""
        return plan(self.host_of_task) + [
            "anyone who can reach the ports of these tasks can use them: keep the hosts on a "
            "network of their own"
        ]

    def close(self):
        """Lets the ports go: ends the programs on the hosts, within a few seconds."""
        processes = [connection.process for connection in self.connections]
        for process in processes:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
