"""tfrun --hosts: flags, then real sshds in networks of their own."""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types

import engines
import psutil
import pytest
import support
from small_scripts import TFRUN, run, write
from tfrun.launch import cluster, supervisor
from tfrun.ssh import agent, hosts

VIRTUAL = engines.FOLDER / "SSH" / "virtual_hosts.py"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
virtual = pytest.mark.needs("root", "ip", "ssh")  # of virtual_hosts.py


def test_hosts_and_slots():
    """A user that stays in the address, or a slot that counts for nothing, loses the tasks."""
    parsed = hosts.parse("host1:2,me@host-2.example:1,10.0.0.3")
    assert parsed == [
        ("host1", "host1", 2),
        ("me@host-2.example", "host-2.example", 1),
        ("10.0.0.3", "10.0.0.3", 1),
    ]
    placed = hosts.deal({"worker": 2, "chief": 1, "ps": 1}, parsed)
    assert hosts.plan(placed) == [
        "host1: ps 0, chief 0",
        "host-2.example: worker 0",
        "10.0.0.3: worker 1",
    ]
    names = [host.name for host in placed.values()]
    addresses = cluster.addresses({"worker": 2, "chief": 1, "ps": 1}, range(7, 11), names)
    assert addresses["worker"] == ["host-2.example:9", "10.0.0.3:10"]


@pytest.mark.parametrize(
    "text, due",
    [
        ("a", [("a", "a", 1)]),
        (" a:99 , me.b@c-d.e:3", [("a", "a", 99), ("me.b@c-d.e", "c-d.e", 3)]),
        ("127.0.0.1:2", [("127.0.0.1", "127.0.0.1", 2)]),
        ("a:0", "'a:0' is not like host:2 or user@host:2, with slots from 1 to 99"),
        ("a:100", "'a:100' is not like host:2"),
        ("", "'' is not like host:2"),
        ("-oA=b", "'-oA=b' is not like host:2"),
        ("-u@a", "'-u@a' is not like host:2"),
        ("a,b,you@a:2", "a is named twice: give it more slots instead"),
        ("a,127.1.2.3", "127.1.2.3 is another machine for each host: use a name that all know"),
        ("localhost,a", "localhost is another machine for each host: use a name that all know"),
    ],
)
def test_what_a_host_may_be(text, due):
    """Catches: an option of ssh as a host, a number that is no slot, and a machine of its own."""
    if isinstance(due, list):
        assert hosts.parse(text) == due
    else:
        with pytest.raises(hosts.argparse.ArgumentTypeError) as raised:
            hosts.parse(text)
        assert str(raised.value).startswith(due)


def test_slots_that_are_too_few():
    """Catches a task that has no host, and a refusal where there is one for each."""
    listed = hosts.parse("a:2,b")
    assert len(hosts.deal({"ps": 1, "worker": 2}, listed)) == 3
    with pytest.raises(ValueError) as raised:
        hosts.deal({"ps": 1, "worker": 3}, listed)
    words = "--hosts has 3 slots for 4 tasks: add hosts, or slots by host:N"
    assert str(raised.value) == words


@pytest.mark.parametrize(
    "code, output, due",
    [
        (0, 'welcome\ntfrun-reply {"ports": [1]}', {"ports": [1]}),
        (127, "no such file", "there is no Python at {python} there: it must be at the same path"),
        (126, "no", "there is no Python at {python} there: it must be at the same path"),
        (
            1,
            "x\nNo module named 'tfrun'",
            "there is no {root}/tfrun there: copy it, or share its folder",
        ),
        (255, "Permission denied (publickey)", "ssh"),
        (1, "Permission denied (publickey)\nlast ", "last"),
        (3, "", "it gave no answer (exit code 3)"),
        (None, "", "it did not answer in 30 s"),
    ],
)
def test_the_answer_of_a_host(code, output, due, monkeypatch):
    """Catches: a line of the login as the answer, and a reason that is not that of the failure."""
    seen = {}

    def run(command, input, timeout, **more):
        seen.update(command=command, input=input)
        assert more["text"] and more["errors"] == "replace"
        if code is None:
            raise subprocess.TimeoutExpired("ssh", timeout)
        return types.SimpleNamespace(returncode=code, stdout=output)

    monkeypatch.setattr(hosts.subprocess, "run", run)
    (host,) = hosts.parse("me@a")
    answer = hosts.ask({host: {"do": "check"}})[host]
    if due == "ssh":
        assert "ssh" in answer["wrong"] and "me@a" in answer["wrong"]
    elif isinstance(due, str):
        assert answer == {"wrong": due.format(python=sys.executable, root=hosts.ROOT)}
    else:
        assert answer == due
    assert seen["input"] == '{"do": "check"}\n'
    target = seen["command"].index("me@a")
    assert seen["command"][0] == "ssh" and seen["command"][target - 1] == "--"
    assert seen["command"][target + 1].startswith(f"exec {shlex.quote(sys.executable)} -c ")


def test_what_hosts_are_asked(monkeypatch, tmp_path):
    """Catches: another script or folder, ports for the tasks of another host, one host alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hosts.shutil, "which", lambda _: "/bin/ssh")
    asked = {}

    def ask(requests):
        asked.update({host.name: request for host, request in requests.items()})
        assert all(os.path.exists(request["mark"]) for request in requests.values())
        machine = {"cores": 4, "gpus": []}
        return {
            host: {"ports": [*range(20, 20 + request["n"])], "machine": machine}
            for host, request in requests.items()
        }

    monkeypatch.setattr(hosts, "ask", ask)
    jobs = {"chief": 1, "ps": 1, "worker": 1}
    commands = {job: ["python", f"{job}.py"] for job in jobs}
    spec = supervisor.LaunchSpec("E", jobs, commands, tmp_path)
    host_of_task = hosts.deal(jobs, hosts.parse("a:2,b:1"))
    prepared = hosts.prepare(spec, host_of_task)
    assert {name: request["n"] for name, request in asked.items()} == {"a": 2, "b": 1}
    request = asked["b"]
    assert (request["do"], request["script"]) == ("check", "chief.py")
    assert request["folder"] == str(tmp_path) and request["names"] == ["a", "b"]
    assert request["tensorflow"] is True
    assert os.path.dirname(request["mark"]) == str(tmp_path) and not os.path.exists(request["mark"])
    assert [task.name for task in prepared.tasks] == ["ps 0", "chief 0", "worker 0"]
    words = "anyone who can reach the ports of these tasks can use them"
    notes = [
        "a: ps 0, chief 0",
        "b: worker 0",
        f"{words}: keep the hosts on a network of their own",
    ]
    assert prepared.notes == notes and not spec.notes and prepared.make_worker
    for task in prepared.tasks:
        task.log.close()
    no_chief = supervisor.LaunchSpec("E", {"ps": 1, "worker": 1}, commands, tmp_path)
    for task in hosts.prepare(no_chief, hosts.deal(no_chief.jobs, hosts.parse("b:2"))).tasks:
        task.log.close()
    assert asked["b"]["script"] == "worker.py"
    monkeypatch.setattr(hosts, "ask", lambda requests: {host: {"wrong": "no"} for host in requests})
    with pytest.raises(ValueError) as raised:
        hosts.prepare(spec, host_of_task)
    assert str(raised.value) == "a: no\nb: no"
    monkeypatch.setattr(hosts.shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match="there is no ssh on this machine: apt install openssh-c"):
        hosts.prepare(spec, host_of_task)


def test_a_host_kills_before_tfrun_does():
    """Catches a task that lives on at a host, because tfrun has killed the way to it first."""
    assert 0 < agent.GRACE < supervisor.GRACE


def test_how_a_task_at_a_host_ended(tmp_path):
    """Catches a lost connection as a failure of the task, and a failure without its place."""
    (host,) = hosts.parse("me@a")
    task = hosts.RemoteTask(host, "worker", 1, ["python"], {"A": "b"}, tmp_path)
    task.log.close()
    for code, words in {255: "lost its connection to a", 3: "failed with exit code 3 at a"}.items():
        task.exit_code, task.process = code, types.SimpleNamespace(returncode=code)
        assert task.exit_description() == words
    request = json.loads(task.env["TFRUN_REQUEST"])
    assert request == {
        "do": "task",
        "name": "worker-1",
        "folder": os.getcwd(),
        "env": {"A": "b"},
        "command": ["python"],
    }


WRONG = {
    "script": "there is no script {folder}/none.py there: copy it, or share its folder",
    "mark": "it does not see the folder {folder}/none: set OUTPUT_DIR to one that this machine and "
    "all hosts share",
    "access": "it cannot write the run directory {folder}: let its user write there, or set "
    "OUTPUT_DIR",
    "tensorflow": "{python} has no TensorFlow there: install requirements.lock",
    "names": "it does not know the name no.invalid: add it to its /etc/hosts",
    None: None,
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_task_would_miss_at_a_host(what, monkeypatch, tmp_path, capsys):
    """Catches another reason than the first, and a host that is refused for nothing."""
    (tmp_path / "train.py").touch()
    (tmp_path / ".mark").touch()
    request = {"do": "check", "folder": str(tmp_path), "script": "train.py", "n": 3}
    request |= {"mark": str(tmp_path / ".mark"), "names": ["localhost"], "tensorflow": True}
    request |= {
        "script": {"script": "none.py"},
        "mark": {"mark": f"{tmp_path}/none/.mark"},
        "names": {"names": ["localhost", "no.invalid"]},
    }.get(what, {})
    if what == "access":
        monkeypatch.setattr(os, "access", lambda *_: False)
    if what == "tensorflow":
        monkeypatch.setattr(agent.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(cluster, "cores", lambda: 5)
    monkeypatch.setattr(cluster, "gpus", lambda: ["7"])
    agent.check(request)
    begin, _, text = capsys.readouterr().out.partition(" ")
    answer = json.loads(text)
    assert begin == "tfrun-reply"
    if what:
        words = WRONG[what].format(folder=tmp_path, python=sys.executable)
        assert answer == {"wrong": words}
        monkeypatch.setattr(agent.importlib.util, "find_spec", lambda _: None)
        request = {**request, "tensorflow": False}
        assert (agent.problem(request) is None) == (what == "tensorflow")
    else:
        assert answer["machine"] == {"cores": 5, "gpus": ["7"]} and len({*answer["ports"]}) == 3


def test_the_heartbeats_of_tfrun(monkeypatch):
    """Catches a task that goes on without them, that ends although they come, or that is over."""
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    beats = {}

    def select(read, *_):
        clock.now += _[-1]
        return [read if round(clock.now, 1) in beats else []]

    def read(*_):
        return beats[round(clock.now, 1)]

    monkeypatch.setattr(agent, "time", clock)
    monkeypatch.setattr(agent, "select", types.SimpleNamespace(select=select))
    monkeypatch.setattr(agent, "os", types.SimpleNamespace(read=read))
    assert agent.wait_for_end() is False and clock.now == pytest.approx(15, abs=0.2)
    clock.now, beats = 0.0, {second / 1: b"\n" for second in range(3, 31, 3)}
    assert agent.wait_for_end() is False and clock.now == pytest.approx(45, abs=0.2)
    clock.now, beats = 0.0, {3.0: b"\n", 6.0: b""}
    assert agent.wait_for_end() is False and clock.now == pytest.approx(6, abs=0.2)
    clock.now, beats = 0.0, {}
    assert agent.wait_for_end(lambda: clock.now > 2) is True and clock.now < 3


def test_what_a_host_is_asked_to_do(monkeypatch):
    """Catches a connection without a request that begins a task."""

    def asked(line):
        buffer = types.SimpleNamespace(readline=lambda: line)
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=buffer))
        return agent.main()

    monkeypatch.setattr(agent, "check", lambda request: 5 + request["n"])
    monkeypatch.setattr(agent, "task", lambda request: 7)
    assert asked(b"") == 1
    assert asked(b'{"do": "check", "n": 4}\n') == 9 and asked(b'{"do": "task"}\n') == 7


@pytest.mark.parametrize("code, by_itself, due", [(3, True, 3), (3, False, 255), (-9, True, 137)])
def test_a_task_at_a_host(code, by_itself, due, monkeypatch, tmp_path, capfd):
    """Catches: a code that is not the task's, one task as two processes, and what it leaves.

    Also a lock that the task's process does not have: it ends with tfrun's, and not with the task.
    """
    monkeypatch.setattr(agent.signals, "handle", lambda *_: None)
    monkeypatch.setattr(agent, "wait_for_end", lambda over: agent.wait_for(over, 20) and by_itself)
    monkeypatch.chdir("/")
    body = f"echo $A $PWD; ls -l /proc/$$/fd | grep -c worker-1.lock; [ {code} -lt 0 ] && "
    body += f"kill {code} $$; sleep 99 & exit {code}"
    env = {"OUTPUT_DIR": str(tmp_path), "A": "b"}
    request = {"folder": str(tmp_path), "name": "worker-1", "env": env}
    request["command"] = ["sh", "-c", body]
    assert agent.task(request) == due
    assert capfd.readouterr().out == f"b {tmp_path}\n1\n"
    with open(tmp_path / ".worker-1.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(agent, "SILENCE", 0)
        monkeypatch.setattr(agent, "GRACE", 0.1)
        assert agent.task(request) == 1
    text = capfd.readouterr().out
    assert text == f"tfrun: another process is this task, and has {tmp_path}/.worker-1.lock\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--hosts", "0", "--", "true"], "--hosts must be from 1 to 99"),
        (["--hosts", "2"], "it needs a command to run"),
        (["--own", "/nowhere", "--", "true"], "there is no folder /nowhere"),
    ],
)
def test_bad_use_of_virtual_hosts(arguments, message):
    """Before root is needed: so also that the script can be imported."""
    done = support.run_to_end(sys.executable, VIRTUAL, *arguments, seconds=30)
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1], done.stderr


def test_the_plan_of_a_dry_run(tmp_path):
    """It connects to nobody: these hosts do not exist."""
    write(tmp_path, "")
    flags = ["--hosts", "a.invalid:2,b.invalid:2", "--ps", "1", "--workers", "2", "--dry-run"]
    assert run(tmp_path, *flags) == (0, ["a.invalid: ps 0, worker 0", "b.invalid: worker 1"])


class Hosts:
    """tfrun under virtual_hosts.py, in a folder with train.py; the hosts outlive it.

    Its output grows in `output`. Leaving ends the hosts, and fails where something of them is left.
    """

    def __init__(self, folder, *flags, own=(), script=("train.py",), command=None):
        self.folder = folder
        command = command or shlex.join([*TFRUN, *flags, "--", *script])
        with open(folder / "output.txt", "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, VIRTUAL]
                + [word for path in own for word in ("--own", path)]
                + ["--", "sh", "-c", command + '; echo "the end: $?"; read _'],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=support.environment(folder / "run", PYTHONPATH=str(support.ROOT), PATH=PATH),
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        known = self.processes()
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(support.patience(20))
        print(self.output)
        engines.none_is_left(known)

    @property
    def output(self):
        return (self.folder / "output.txt").read_text()

    def wait_for(self, text, seconds=40):
        """Waits until the output has that text."""

        def there():
            return text in self.output or self.process.poll() is not None

        support.wait_until(there, seconds, text)
        assert text in self.output

    def end(self, seconds=40):
        """Waits for the end of tfrun; returns (exit code, its lines)."""
        self.wait_for("the end: ", seconds)
        support.wait_until(lambda: self.output.endswith("\n"), 5, "whole")
        lines = self.output.splitlines()
        return int(lines[-1].split()[-1]), lines[1:-1]

    def processes(self):
        """Returns all processes, those of the hosts included."""
        return engines.descendants(psutil.Process(self.process.pid))

    def find(self, is_meant):
        """Returns the process whose command line, a list of words, is meant."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if is_meant(process.cmdline()):
                    return process
        raise LookupError("there is no such process")

    def tfrun(self):
        """Returns the process of tfrun."""
        return self.find(lambda words: words[1:3] == ["-m", "tfrun"])

    def sshd(self, host):
        """Returns the process of a host's sshd, which listens."""
        pattern = rf"sshd .*/{host}\.conf"
        return self.find(lambda words: re.search(pattern, " ".join(words)))

    def far(self, host=None):
        """Returns what runs on one or all hosts: tfrun's programs, tasks, what these started."""
        far = []
        for process in engines.descendants(self.sshd(host)) if host else self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                words, env = process.cmdline(), process.environ()
                sent = words[1:2] == ["-c"] and "tfrun.ssh import agent" in words[2]
                # The ssh of a task has the variables, too, here.
                if sent or ("TF_CONFIG" in env and "TFRUN_REQUEST" not in env):
                    far.append(process)
        return far

    def network(self, *command):
        """Runs `ip link` in the network of tfrun, the bridge's."""
        inside = ["nsenter", "--net", "--target", str(self.tfrun().pid), "ip", "link", *command]
        subprocess.run(inside, check=True, env={**os.environ, "PATH": PATH}, timeout=20)


THREE = ["--hosts", "host1:2,host2:2", "--ps", "1", "--workers", "2"]
GRANDCHILD = """
import subprocess, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("it trains", flush=True)
time.sleep(600)
"""


@virtual
@pytest.mark.long
@engines.one_kill(signal.SIGKILL, signal.SIGINT)
def test_nothing_is_left_on_the_hosts(tmp_path, number):
    """Neither tasks that ignore SIGTERM, nor what these started, nor tfrun's own programs there."""
    write(tmp_path, GRANDCHILD)
    with Hosts(tmp_path, *THREE) as run:
        support.wait_until(lambda: run.output.count("it trains") == 3, 60, "all train")
        # Three that watch over tasks, three tasks, three of these.
        assert len(run.far()) == 9, run.far()
        run.tfrun().send_signal(number)
        assert run.end(20)[0] == 128 + number, run.output
        if number == signal.SIGINT:
            assert not run.far(), "tfrun has not waited for them"
        support.wait_until(lambda: not run.far(), 8, "all gone")


@virtual
@pytest.mark.long
def test_a_cut_connection(tmp_path):
    """No end comes through it: the hosts end the tasks by themselves, before they start again."""
    write(tmp_path, GRANDCHILD)
    with Hosts(tmp_path, *THREE, "--restarts", "1") as run:
        support.wait_until(lambda: run.output.count("it trains") == 3, 60, "all train")
        before = run.far("host2")
        assert len(before) == 3 and len(run.far("host1")) == 6
        began = time.monotonic()
        run.network("set", "host2", "down")
        support.wait_until(lambda: not run.far("host2"), 25, "all gone")
        assert time.monotonic() - began > 10, "not by the silence"
        assert "lost its connection" not in run.output, "tfrun was first: two could run at once"
        run.wait_for("worker 1 lost its connection to host2; it starts again")
        run.network("set", "host2", "up")
        support.wait_until(lambda: run.output.count("it trains") == 4, 40, "it trains again")
        assert len(run.far("host2")) == 3 and len(run.far("host1")) == 6


@virtual
@pytest.mark.long
def test_environment_output_failures_and_restarts(tmp_path):
    """What a task gets there, what it prints, how it fails, and its restart in its place."""
    words = "a \"b\" 'c' $HOME `d` \\ é"
    write(
        tmp_path,
        """
import socket
print("on", socket.gethostname(), "with", repr(sys.argv[1:]), repr(os.environ["WORDS"]))
print("to standard error", file=sys.stderr, flush=True)
if job == "ps":
    time.sleep(3)
    sys.exit()
mark = os.path.join(os.environ["OUTPUT_DIR"], "mark-%d" % index)
config = json.loads(os.environ["TF_CONFIG"])["cluster"]
print(json.dumps(config))
if index == 1 and not os.path.exists(mark):
    open(mark, "w")
    os.kill(os.getpid(), 9)
if index == 2:
    raise ValueError("bad luck")
""",
    )
    flags = ["--hosts", "host1:2,host2:2", "--ps", "1", "--workers", "3", "--restarts", "1"]
    flags += ["--env", "WORDS=" + words]
    with Hosts(tmp_path, *flags, script=("train.py", "--flag", "'x")) as run:
        code, lines = run.end()
        text = "\n".join(lines)
        for task, host in ("ps 0", 1), ("worker 0", 1), ("worker 1", 2), ("worker 2", 2):
            started = "[%s] on host%d with %r %r" % (task, host, ["--flag", "'x"], words)
            assert text.count(started) == (2 if task in ("worker 1", "worker 2") else 1), text
            assert f"[{task}] to standard error" in lines
            (log,) = (tmp_path / "run").glob(task.replace(" ", "-") + ".log")
            assert "to standard error" in log.read_text()
        assert "worker 1 was killed by SIGKILL at host2; it starts again" in text
        assert "worker 2 failed with exit code 1 at host2, has no restart left" in text
        assert "[worker 2] ValueError: bad luck" in lines and code == 1
        # The same addresses after the restart.
        configs = [line.partition("] ")[2] for line in lines if '"worker": [' in line]
        assert len(configs) == 5 and len(set(configs)) == 1
        addresses = json.loads(configs[0])
        assert [a.split(":")[0] for a in addresses["ps"] + addresses["worker"]] == (
            ["host1", "host1", "host2", "host2"]
        )


@virtual
@pytest.mark.nightly
def test_hosts_that_cannot_be_used(tmp_path):
    """One line for each, with the host and what to do, and soon; nothing is started anywhere."""
    code, empty, tools, alone = (
        tmp_path / name for name in ("code", "code/empty", "tools", "alone")
    )
    outer = tmp_path / "outer"
    packages = os.path.dirname(os.path.dirname(psutil.__file__))
    for folder in (code, code / "inner", empty, tools, outer / "inner"):
        write(folder, "print('never')")
    alone.mkdir()
    (tools / "python").symlink_to(sys.executable)
    other = tmp_path / "other"  # a tfrun that the hosts do not have
    shutil.copytree(support.ROOT / "tfrun", other / "tfrun")
    own = [empty, outer, tools, alone, other, os.path.join(packages, "tensorflow")]
    cases = [
        (code, "no.invalid:2", "no.invalid: ssh does not know this name"),
        (code, "nobody@host2:2", "nobody@host2: it does not accept your key"),
        (code, "10.77.0.2:2", "10.77.0.2: its host key is not the one that is known here"),
        (code, "10.77.0.99:2", "10.77.0.99: it cannot be reached"),
        (outer / "inner", "host1:2", f"host1: there is no script {outer}/inner/train.py there"),
        (empty, "host2:2", f"host2: there is no script {empty}/train.py there"),
        (code, "host2:2", f"host2: {sys.executable} has no TensorFlow there"),
        (code, "host1:2", f"host1: there is no Python at {tools}/python there"),
        (code, "host1:2", f"host1: it does not see the folder {alone}: set OUTPUT_DIR"),
        (code, "host2:2", f"host2: there is no {other}/tfrun there: copy it"),
    ]
    lines = []
    for folder, host, message in cases:
        python = tools / "python" if "no Python" in message else sys.executable
        directory = alone if "see the folder" in message else tmp_path / "run"
        root = other if f"{other}/tfrun" in message else support.ROOT
        command = [python, "-m", "tfrun", "--hosts", host, "--workers", "2", "--", "train.py"]
        command = shlex.join(map(str, command))
        variables = f"PYTHONPATH={root}:{packages} OUTPUT_DIR={directory}"
        lines.append(f"cd {folder}; {variables} {command}; echo $?")
    began = time.monotonic()
    with Hosts(tmp_path, command="\n".join(lines), own=own) as hosts:
        _, output = hosts.end(100)
        assert time.monotonic() - began < support.patience(60)
        assert output[1::2] == ["2"] * len(cases)
        for line, (_, _, message) in zip(output[::2], cases):
            assert line.startswith("tfrun: " + message)
        assert not hosts.far() and not [*alone.iterdir()]
