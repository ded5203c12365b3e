"""tfrun --hosts: flags, then real sshds in networks of their own."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import engines
import psutil
import pytest
import support
from small_scripts import TFRUN, run, write
from tfrun.launch import cluster
from tfrun.ssh import hosts

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
        found = json.loads(configs[0])
        assert [a.split(":")[0] for a in found["ps"] + found["worker"]] == (
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
