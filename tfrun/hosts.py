"""tfrun --hosts: the tasks of a run on several hosts, each at the end of an ssh of its own.

The ssh is a child of tfrun, which treats it as it treats a task of this machine. far.py is what
runs on the hosts, ssh.py what connects the two.
"""

import collections
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading

from tfrun import cluster, far, launch

# target: what ssh gets; name: the address for the other tasks; slots: how many tasks it may have.
Host = collections.namedtuple("Host", "target name slots")
ANSWER = 30  # seconds that a host may take to answer, its connection included
CHIEF_FILES = ("flags.json", "checkpoint", "stop")  # beside the metrics of each task
REASONS = [  # (in what ssh says, what it means)
    ("Could not resolve", "ssh does not know this name: correct it in --hosts or in /etc/hosts"),
    (
        "Permission denied",
        "it does not accept your key: give it one that needs no prompt, by ssh-copy-id {0}",
    ),
    (
        "Host key verification failed",
        "its host key is not the one that is known here: connect once by hand, ssh {0}",
    ),
    ("Connection refused", "no sshd listens there: start it, or name its port in ~/.ssh/config"),
    (
        r"timed out|No route to host|[Uu]nreachable",
        "it cannot be reached: is it on, and does the firewall let ssh through?",
    ),
]


class Unusable(Exception):
    """What is wrong with the hosts: a line for each."""


def parse(text):
    """[Host] of "host1:2,user@host2:4". Raises ValueError."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"((?:\w[\w.-]*@)?(\w[\w.-]*))(?::([1-9]\d?))?", part.strip())
        if not match:
            raise ValueError(
                "%r is not like host:2 or user@host:2, a name and a number of slots from 1 to 99"
                % part
            )
        found.append(Host(match[1], match[2], int(match[3] or 1)))
    names = [host.name for host in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError("%s is named twice: give it more slots instead" % twice[0])
    if len(found) > 1 and (own := [n for n in names if re.match(r"localhost$|127\.", n)]):
        raise ValueError("%s is another machine for each host: use a name that all know" % own[0])
    return found


def deal(jobs, hosts):
    """{(job, index): Host}: the ps first, then the others, into the slots in order.

    Raises ValueError where the slots are too few.
    """
    tasks = cluster.tasks(jobs)
    slots = [host for host in hosts for _ in range(host.slots)]
    if len(tasks) > len(slots):
        raise ValueError(
            "the run has %d tasks, and --hosts has %d slots: add hosts, or slots by host:N"
            % (len(tasks), len(slots))
        )
    return dict(zip(tasks, slots))


def plan(placed):
    """["host1: ps 0, worker 0", ...]"""
    made = collections.defaultdict(list)
    for (job, index), host in placed.items():
        made[host.name].append("%s %d" % (job, index))
    return ["%s: %s" % (name, ", ".join(tasks)) for name, tasks in made.items()]


def command(host):
    """The command that connects to a host, and runs far.py there."""
    program = pathlib.Path(__file__).with_name("ssh.py")
    return [sys.executable, "-SE", str(program), host.target, sys.executable]


class Question:
    """A request to a host, while the program there runs."""

    def __init__(self, host, **request):
        self.host, self.lines, self.answered = host, [], threading.Event()
        self.content = None
        self.process = subprocess.Popen(
            command(host),
            env={**os.environ, "TFRUN_REQUEST": json.dumps(request)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=lambda: launch.prepare(None),
        )
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Notes what comes; what stands before the answer is the login's or ssh's."""
        for line in self.process.stdout:
            if line.startswith(far.REPLY):
                self.content = json.loads(line.removeprefix(far.REPLY))
                self.answered.set()
            self.lines.append(line.strip())
        self.answered.set()

    def answer(self):
        """What the host has answered. Raises Unusable."""
        if not self.answered.wait(ANSWER):
            raise Unusable("%s: it did not answer in %d s" % (self.host.target, ANSWER))
        if self.content is None:
            raise Unusable("%s: %s" % (self.host.target, self.reason()))
        if isinstance(self.content, dict) and "wrong" in self.content:
            raise Unusable("%s: %s" % (self.host.target, self.content["wrong"]))
        return self.content

    def reason(self):
        """Why there is no answer, by the exit code and what ssh has said."""
        code, text = self.process.wait(), "\n".join(filter(None, self.lines))
        if code in (126, 127):
            return "there is no Python at %s there: it must be at the same path" % sys.executable
        for pattern, reason in REASONS:
            if code == 255 and re.search(pattern, text):
                return reason.format(self.host.target)
        return text.splitlines()[-1] if text else "it gave no answer (exit code %d)" % code

    def close(self):
        """Ends the program there; bounded."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(launch.GRACE)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def ask(hosts, **request):
    """{host: its answer}; all are asked at once. Raises Unusable."""
    questions = [Question(host, **request) for host in hosts]
    try:
        return dict(zip(hosts, answers(questions)))
    finally:
        for question in questions:
            question.close()


def answers(questions):
    """The answers, in order. Raises Unusable with a line for each that has none."""
    found, wrong = [], []
    for question in questions:
        try:
            found.append(question.answer())
        except Unusable as error:
            wrong.append(str(error))
    if wrong:
        raise Unusable("\n".join(wrong))
    return found


class Task(launch.Task):
    """A task on a host; its process here is that of ssh.py."""

    def __init__(self, host, job, index, request, directory):
        env = {**request["env"], "TFRUN_REQUEST": json.dumps(request)}
        super().__init__(job, "%s %d" % (job, index), command(host), env, directory)
        self.host = host

    def exit_description(self):
        """How it ended, and where."""
        if self.code == 255:
            return "lost its connection to %s" % self.host.name
        return "%s at %s" % (super().exit_description(), self.host.name)


class Hosts:
    """The hosts of a run, ready for its tasks. Raises Unusable, and leaves nothing then."""

    def __init__(self, jobs, placed, commands, place, more_env):
        if not shutil.which("ssh"):
            raise Unusable("there is no ssh on this machine: apt install openssh-client")
        self.placed, self.directory = placed, place.path
        self.hosts = [*dict.fromkeys(placed.values())]
        self.tasks, self.holding = [], []
        marks = ".host-" + secrets.token_hex(8) + "-%s"  # who sees which shares the folder
        mark = self.directory / (marks % "tfrun")
        mark.touch()
        try:
            script = commands["chief" if "chief" in jobs else "worker"][1]
            self.hold(script, marks)
            self.far = [host for host in self.hosts if not self.found[host]["with_tfrun"]]
            self.check_sharing(jobs, marks)
        except BaseException:
            self.close()
            raise
        finally:
            mark.unlink(missing_ok=True)
        self.make_tasks(jobs, commands, more_env)

    def hold(self, script, mark):
        """Each host holds a port for each of its tasks, until close()."""
        of_all = {
            "do": "hold",
            "folder": os.getcwd(),
            "script": script,
            "directory": str(self.directory),
            "mark": mark,
            "names": [host.name for host in self.hosts],
            "tensorflow": importlib.util.find_spec("tensorflow") is not None,
        }
        n = collections.Counter(self.placed.values())
        for number, host in enumerate(self.hosts):
            self.holding.append(Question(host, **of_all, ports=n[host], number=number))
        self.found = dict(zip(self.hosts, answers(self.holding)))

    def check_sharing(self, jobs, mark):
        """Raises Unusable where tasks that read each other's files would not see them."""
        chief = ("chief", 0) if "chief" in jobs else ("worker", 0)
        together = [chief, ("evaluator", 0)]
        together += [("ps", i) for i in range(jobs.get("ps", 0))] * (jobs.get("ps", 0) > 1)
        need = {self.placed[task] for task in together if task in self.placed}
        if len(need) == 1 or not self.far:
            return
        seen = ask(self.hosts, do="look", directory=str(self.directory), mark=mark)
        if set(seen.values()) != {len(self.hosts)}:
            what = "an evaluator reads" if "evaluator" in jobs else "several ps write"
            raise Unusable(
                "%s checkpoints beside the chief, and the hosts do not share %s: set OUTPUT_DIR to "
                "a folder that they share, or start fewer tasks" % (what, self.directory)
            )

    def make_tasks(self, jobs, commands, more_env):
        """Makes the tasks, for launch.run. commands: as there."""
        ports = {host: iter(answer["ports"]) for host, answer in self.found.items()}
        order = cluster.tasks(jobs)
        addresses = cluster.addresses(
            *(jobs, [next(ports[self.placed[task]]) for task in order]),
            [self.placed[task].name for task in order],
        )
        env = {}
        for host, found in self.found.items():
            own = [task for task in order if self.placed[task] == host]
            env |= cluster.on_machine(
                *(own, addresses, self.directory, found["cores"], found["gpus"], {}, more_env)
            )
        for job, index in order:
            request = {
                "do": "task",
                "name": "%s-%d" % (job, index),
                "folder": os.getcwd(),
                "env": env[job, index],
                "command": commands[job],
            }
            host = self.placed[job, index]
            self.tasks.append(Task(host, job, index, request, self.directory))

    def notes(self):
        """What tfrun says at the start of the run."""
        yield from plan(self.placed)
        if self.far:
            yield (
                "%s: the run directory there is not the one here; checkpoints stay there, and the "
                "metrics come at the end" % ", ".join(host.name for host in self.far)
            )
        yield (
            "anyone who can reach the ports of these tasks can use them: keep the hosts on a "
            "network of their own"
        )

    def collect(self):
        """Fetches the facts from the hosts that do not share the run directory; yields lines."""
        for host in self.far:
            names = ["%s-%d" % task for task, at in self.placed.items() if at == host]
            files = ["metrics-%s.csv" % name for name in names]
            if {"chief-0", "worker-0"} & set(names):
                files += CHIEF_FILES
            try:
                found = ask([host], do="collect", directory=str(self.directory), files=files)
                for name, text in found[host].items():
                    (self.directory / name).write_text(text)
            except (Unusable, OSError) as error:
                yield "no metrics from %s: %s" % (host.name, error)

    def close(self):
        """Lets the ports go."""
        for question in self.holding:
            question.process.terminate()
        for question in self.holding:
            question.close()
