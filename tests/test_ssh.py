"""tfrun --hosts: flags, then real sshds in networks of their own."""

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
from small import TFRUN, write
from tfrun import cluster, hosts

HERE = engines.FOLDER / "SSH"
VIRTUAL = HERE / "virtual_hosts.py"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
virtual = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or not shutil.which("sshd", path=PATH),
    reason="no root or no sshd",
)


def test_hosts_and_slots():
    """A user that stays in the address, or a slot that counts for nothing, loses the tasks."""
    found = hosts.parse("host1:2,me@host-2.example:1,10.0.0.3")
    assert found == [
        ("host1", "host1", 2),
        ("me@host-2.example", "host-2.example", 1),
        ("10.0.0.3", "10.0.0.3", 1),
    ]
    placed = hosts.deal({"worker": 2, "chief": 1, "ps": 1}, found)
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
        (["--hosts", "host1:0", "--", "train.py"], "is not like host:2"),
        (["--hosts", "-oProxyCommand=true", "--", "train.py"], "expected one argument"),
        (["--hosts=-oProxyCommand=true", "--", "train.py"], "is not like host:2"),
        (["--hosts", "a;b", "--", "train.py"], "is not like host:2"),
        (["--hosts", "a:1,a:2", "--", "train.py"], "a is named twice"),
        (["--hosts", "localhost:1,a:2", "--", "train.py"], "localhost is another machine"),
        (["--hosts", "a:2", "--ps", "1", "--workers", "2", "--", "train.py"], "3 tasks, and"),
        (["--hosts", "a:2", "--isolate", "--", "train.py"], "--isolate is for the tasks of this"),
        (["--hosts", "a:2", "--cpus", "worker=1", "--", "train.py"], "--cpus is for"),
        (["--hosts", "a:2", "--memory", "worker=1G", "--", "train.py"], "--memory is for"),
        (["--hosts", "a:2", "--", "./horovodrun", "-np", "2"], "horovodrun has its own -H"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value[:4]),
)
def test_bad_use_of_hosts(tmp_path, arguments, message):
    """Each would start tasks where they cannot be, or without what they were to have."""
    write(tmp_path, "")
    (tmp_path / "horovodrun").touch(0o755)
    done = subprocess.run(
        [*TFRUN, *arguments],
        cwd=tmp_path,
        env=support.environment(tmp_path / "run", PYTHONPATH=str(support.ROOT)),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert message in done.stderr and not (tmp_path / "run").exists()


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
    command = [sys.executable, VIRTUAL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1], done.stderr


def test_the_plan_of_a_dry_run(tmp_path):
    """It connects to nobody: these hosts do not exist."""
    write(tmp_path, "")
    command = [*TFRUN, "--hosts", "a.invalid:2,b.invalid:2", "--ps", "1", "--workers", "2"]
    done = subprocess.run(
        [*command, "--dry-run", "--", "train.py"],
        cwd=tmp_path,
        env=support.environment(tmp_path / "run", PYTHONPATH=str(support.ROOT)),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["a.invalid: ps 0, worker 0", "b.invalid: worker 1"]


def hostname(process):
    """The name of the host that a process runs on: that of its sshd's settings."""
    for each in process.parents():
        if found := re.search(r"sshd .*/(host\d+)\.conf", " ".join(each.cmdline())):
            return found[1]


class Hosts:
    """tfrun under virtual_hosts.py, in a folder with train.py; the hosts outlive it.

    Its output grows in `output`. Leaving ends the hosts, and fails where something of them is left.
    """

    def __init__(self, folder, *flags, own=(), script=("train.py",), command=None):
        self.folder, self.directory = folder, folder / "run"
        command = command or shlex.join([*TFRUN, *flags, "--", *script])
        owned = [word for each in own for word in ("--own", str(each))]
        self.text = open(folder / "output.txt", "w+")
        self.process = subprocess.Popen(
            [sys.executable, str(VIRTUAL), *owned, "--"]
            + ["sh", "-c", command + '; echo "the end: $?"; read _'],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=self.text,
            stderr=subprocess.STDOUT,
            env=support.environment(self.directory, PYTHONPATH=str(support.ROOT), PATH=PATH),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        known = engines.descendants(psutil.Process(self.process.pid))
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(support.patience(20))
        self.text.close()
        engines.none_is_left(known)

    @property
    def output(self):
        return (self.folder / "output.txt").read_text()

    def wait_for(self, text, seconds=40):
        def there():
            assert self.process.poll() is None, self.output
            return text in self.output

        try:
            support.wait_until(there, seconds, text)
        except AssertionError as error:
            raise AssertionError("%s\n%s" % (error, self.output)) from None

    def end(self, seconds=40):
        """Waits for the end of tfrun: (exit code, its lines)."""
        self.wait_for("the end: ", seconds)
        support.wait_until(lambda: self.output.endswith("\n"), 5, "whole")
        lines = self.output.splitlines()
        return int(lines[-1].split()[-1]), lines[1:-1]

    def tfrun(self):
        """The process of tfrun."""
        for each in engines.descendants(psutil.Process(self.process.pid)):
            if each.cmdline()[1:3] == ["-m", "tfrun"]:
                return each

    def far(self, host=None):
        """What runs for tfrun on one or all hosts: its programs, tasks, what these have started."""
        found = []
        for each in engines.descendants(psutil.Process(self.process.pid)):
            try:
                words = each.cmdline()
                sent = words[1:2] == ["-c"] and "tfrun.far" in words[2]
                # The ssh of a task has the variables, too, here.
                task = "TF_CONFIG" in each.environ() and "TFRUN_REQUEST" not in each.environ()
                there = host in (None, hostname(each))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if there and (sent or task):
                found.append(each)
        return found

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
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGKILL, 137)])
def test_nothing_is_left_on_the_hosts(tmp_path, number, code):
    """Neither tasks that ignore SIGTERM, nor what these started, nor tfrun's own programs there."""
    write(tmp_path, GRANDCHILD)
    with Hosts(tmp_path, *THREE) as run:
        support.wait_until(lambda: run.output.count("it trains") == 3, 60, "all train")
        # Two that hold ports, three that watch over tasks, three tasks, three of these.
        assert len(run.far()) == 11, run.far()
        run.tfrun().send_signal(number)
        assert run.end(20)[0] == code, run.output
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
        assert len(before) == 4 and len(run.far("host1")) == 7
        began = time.monotonic()
        run.network("set", "host2", "down")
        support.wait_until(lambda: not run.far("host2"), 25, "all gone")
        assert time.monotonic() - began > 10, "not by the silence"
        assert "lost its connection" not in run.output, "tfrun was first: two could run at once"
        run.wait_for("worker 1 lost its connection to host2; it starts again")
        run.network("set", "host2", "up")
        support.wait_until(lambda: run.output.count("it trains") == 4, 40, "it trains again")
        # Without the one that has held its port.
        assert len(run.far("host2")) == 3 and len(run.far("host1")) == 7


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
    # tfrun itself need not be there.
    own = [support.ROOT / "tfrun"]
    with Hosts(tmp_path, *flags, script=("train.py", "--flag", "'x"), own=own) as run:
        code, lines = run.end()
        text = "\n".join(lines)
        for task, host in ("ps 0", 1), ("worker 0", 1), ("worker 1", 2), ("worker 2", 2):
            started = "[%s] on host%d with %r %r" % (task, host, ["--flag", "'x"], words)
            assert text.count(started) == (2 if task in ("worker 1", "worker 2") else 1), text
            assert "[%s] to standard error" % task in lines
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
@pytest.mark.long
def test_hosts_without_a_common_folder(tmp_path):
    """The facts come to tfrun at the end; a checkpoint in parts would lose those of other hosts."""
    write(
        tmp_path / "code",
        """
name = "metrics-%s-%d.csv" % (job, index)
if job == "worker":
    with open(os.path.join(os.environ["OUTPUT_DIR"], name), "w") as file:
        file.write("of %s %d\\n" % (job, index))
""",
    )
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "metrics-worker-0.csv").write_text("of an earlier run")
    flags = ["--hosts", "host1:2,host2:2", "--workers", "2"]
    script = [str(tmp_path / "code" / "train.py")]
    with Hosts(tmp_path, *flags, "--ps", "1", script=script, own=[directory]) as run:
        code, lines = run.end()
        assert code == 0, lines
        assert [(directory / ("metrics-worker-%d.csv" % i)).read_text() for i in (0, 1)] == (
            ["of worker 0\n", "of worker 1\n"]
        )
        assert not (directory / "metrics-ps-0.csv").exists()
    with Hosts(tmp_path, *flags, "--ps", "2", script=script, own=[directory]) as run:
        code, lines = run.end()
        assert code == 2 and len(lines) == 1, lines
        assert (
            "several ps write checkpoints beside the chief, and the hosts do not share" in lines[0]
        )


@virtual
@pytest.mark.long
def test_hosts_that_cannot_be_used(tmp_path):
    """One line for each, with the host and what to do, and soon; nothing is started anywhere."""
    code, empty, tools = (tmp_path / name for name in ("code", "code/empty", "tools"))
    packages = os.path.dirname(os.path.dirname(psutil.__file__))
    for folder in (code / "inner", empty, tools):
        write(folder, "print('never')")
    write(code, "print('never')")
    (tools / "python").symlink_to(sys.executable)
    outer = tmp_path / "outer"
    write(outer / "inner", "print('never')")
    own = [empty, outer, tools, os.path.join(packages, "tensorflow")]
    cases = [
        (code, "no.invalid:2", "tfrun: no.invalid: ssh does not know this name"),
        (code, "nobody@host2:2", "tfrun: nobody@host2: it does not accept your key"),
        (code, "10.77.0.2:2", "tfrun: 10.77.0.2: its host key is not the one that is known here"),
        (code, "10.77.0.99:2", "tfrun: 10.77.0.99: it cannot be reached"),
        (outer / "inner", "host1:2", "tfrun: host1: there is no folder %s/inner there" % outer),
        (empty, "host2:2", "tfrun: host2: there is no script train.py there"),
        (code, "host2:2", "tfrun: host2: %s has no TensorFlow there" % sys.executable),
        (code, "host1:2", "tfrun: host1: there is no Python at %s/python there" % tools),
    ]
    lines = ["PYTHONPATH=%s:%s" % (support.ROOT, packages)]
    for folder, each, message in cases:
        python = tools / "python" if "no Python" in message else sys.executable
        command = [python, "-m", "tfrun", "--hosts", each, "--workers", "2", "--", "train.py"]
        lines += ["cd %s; %s; echo $?" % (folder, shlex.join(map(str, command)))]
    began = time.monotonic()
    with Hosts(tmp_path, command="\n".join(lines), own=own) as run:
        _, output = run.end(100)
        assert time.monotonic() - began < support.patience(60)
        assert output[1::2] == ["2"] * len(cases), output
        for line, (_, _, message) in zip(output[::2], cases):
            assert line.startswith(message) and "Traceback" not in line, (line, message)
        assert not run.far()
