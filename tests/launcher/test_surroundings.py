"""What surrounds a run and is not of its making: proxies, terminals, file systems, settings."""

import argparse
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import support
from lab import examples
from small_scripts import TFRUN, run, start, write
from tfrun import errors
from tfrun.launch import cluster, resources, task
from tfrun.ssh import hosts

ENGINES = support.ROOT / support.ENGINES
DEAD = "http://127.0.0.1:9"  # nothing listens there
PROXIES = {"http_proxy": DEAD, "https_proxy": DEAD, "KERAS_BACKEND": "jax"}
SEEN = ("grpc_proxy", "KERAS_BACKEND")
SHOW = f"print(repr([os.environ.get(name) for name in {SEEN!r}]))"
RIGHT = "['', 'tensorflow']"


def by_tfrun(folder):
    return "\n".join(run(folder, "--ps", "1", **PROXIES)[1])


def by_dry_run(folder):
    env = support.environment(folder / "run", PYTHONPATH=support.PYTHONPATH, **PROXIES)
    command = [*TFRUN, "--ps", "1", "--dry-run", "--", "train.py"]
    script = support.run_to_end(*command, cwd=folder, env=env).stdout
    done = support.run_to_end("bash", "-c", script, cwd=folder, env=env)
    return done.stdout + (folder / "run" / "ps-0.log").read_text()


def by_hosts(folder):
    spec = argparse.Namespace(
        jobs={"ps": 1, "worker": 1},
        directory=folder,
        variables=[],
        commands=dict.fromkeys(["ps", "worker"], ["train.py"]),
    )
    host = hosts.Host("h1", "h1", 2)
    answers = {host: {"ports": [1, 2], "machine": {"cores": 2, "gpus": []}}}
    tasks = hosts.Placement(spec, hosts.deal(spec.jobs, [host]), answers).make_tasks()
    envs = [json.loads(task.env["TFRUN_REQUEST"])["env"] for task in tasks]
    return "\n".join(repr([env.get(name) for name in SEEN]) for env in envs)


def by_engine(folder):
    """As Spark and Ray start a task."""
    code = """import launching, os, sys
lock = launching.lock_task(".", "worker", 0)
roles, addresses = [("ps", 0), ("worker", 0)], ["127.0.0.1:1", "127.0.0.1:2"]
for number in 0, 1:
    env = {"OUTPUT_DIR": "."}
    print(*launching.run_task(["train.py"], roles, addresses, number, env, lock))"""
    env = {**os.environ, **PROXIES, "PYTHONPATH": str(ENGINES)}
    return support.run_to_end(sys.executable, "-c", code, cwd=folder, env=env).stdout


def by_slurm(folder):
    env = {
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_JOB_ID": "42",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": "n1",
        "OUTPUT_DIR": str(folder / "run"),
    }
    command = [sys.executable, ENGINES / "Slurm" / "slurm_launch.py", folder / "train.py"]
    done = support.run_to_end(*command, env={**os.environ, **PROXIES, **env})
    return 2 * (done.stdout + done.stderr)


def by_kubernetes(folder):
    command = [sys.executable, ENGINES / "Kubernetes" / "kubernetes_launch.py", folder / "train.py"]
    env = {**os.environ, **PROXIES, "KERAS_BACKEND": "tensorflow", "OUTPUT_DIR": "/tmp"}
    done = support.run_to_end(*command, env={**env, "TF_CONFIG": "{}"})
    return 2 * (done.stdout + done.stderr)


def by_the_course(folder):
    """What a notebook and the processes that it starts have; stand-ins for what course imports."""
    (folder / "tensorflow" / "compat").mkdir(parents=True)
    for name in ("__init__", "compat/__init__", "compat/v1"):
        text = "def __getattr__(name):\n    return None\n"
        (folder / "tensorflow" / f"{name}.py").write_text(text)
    code = """import course
process = course.start("train.py", {}, "worker")
process.wait(20)
print(process.log.read_text(), process.log.read_text())
course.stop(process)"""
    path = f"{folder}:{support.ROOT / 'Basics-Tutorial'}"
    env = {**os.environ, **PROXIES, "PYTHONPATH": path}
    done = support.run_to_end(sys.executable, "-c", code, cwd=folder, env=env)
    return done.stdout + done.stderr


LAUNCHERS = [by_tfrun, by_hosts, by_engine, by_slurm, by_kubernetes]
LAUNCHERS += [
    pytest.param(launcher, marks=pytest.mark.long) for launcher in (by_dry_run, by_the_course)
]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_no_proxy_stands_between_tasks(tmp_path, launcher):
    """gRPC takes http_proxy also for 127.0.0.1, and waits for ever: catches who lets it do so.

    KERAS_BACKEND=jax, which other programs of the user may need, does not reach the tasks either.
    """
    write(tmp_path, SHOW)
    output = launcher(tmp_path)
    expected = 1 if launcher is by_dry_run else 2
    assert output.count(RIGHT) >= expected and "jax" not in output, output


def test_a_proxy_that_is_asked_for(tmp_path):
    """Whoever needs one between the tasks can have it."""
    write(tmp_path, SHOW)
    _, lines = run(tmp_path, "--env", f"grpc_proxy={DEAD}")
    assert f"[worker 0] ['{DEAD}', 'tensorflow']" in lines, lines


@pytest.mark.long
def test_training_with_a_dead_proxy(tmp_path):
    """Catches: the variable is set, but gRPC still asks the proxy."""
    launcher = support.ROOT / "HogWild" / "run.sh"
    code, output, _ = support.launch(launcher, tmp_path / "run", "--steps", "40", **PROXIES)
    assert code == 0, output


@pytest.mark.parametrize(
    "error, words",
    {
        "ModuleNotFoundError: No module named 'torch'": "KERAS_BACKEND=tensorflow",
        "ImportError: cannot import name 'ops' from 'keras' (/old/keras/__init__.py)": "PYTHONPATH",
        "ModuleNotFoundError: No module named 'pandas'": "activate.sh",
        "worker 1 was killed by SIGTERM": "asked the task to end",
        "worker 1 was killed by SIGHUP": "asked the task to end",
        "worker 1 was killed by SIGXCPU": "ulimit -t",
        "worker 1 was killed by SIGKILL": "ulimit -t",
        "RuntimeError: can't start new thread": "ulimit -v",
        "std::bad_alloc": "ulimit -v",
        'InvalidArgumentError: Could not parse port for local server from "grpc://h1:2222".': "sch",
        'InvalidArgumentError: Could not parse port for local server from "h1".': "no port",
        "InvalidArgumentError: /job:worker/replica:0/task:1/device:CPU:0 unknown device.": "own",
    }.items(),
)
def test_the_cause_outside_is_named(error, words):
    """Catches advice that changes nothing, such as activate.sh where KERAS_BACKEND is the cause."""
    assert words in errors.explain(error)


LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def test_a_character_that_the_terminal_lacks(tmp_path):
    """Catches one arrow, of a task or of a library, that ends the run."""
    write(tmp_path, r"os.write(1, '→ a\n'.encode()); print('\u2192 b')")
    code, lines = run(tmp_path, **LATIN)
    assert code == 0 and {"[worker 0] ? a", "[worker 0] ? b"} <= {*lines}, lines


GRID = pytest.param("run job.yaml", marks=pytest.mark.long)


@pytest.mark.parametrize("command", ["status", "explain LOG", GRID])
def test_commands_on_such_a_terminal(tmp_path, command):
    """Each command prints the names of runs, or text with signs beyond ASCII."""
    folder = tmp_path / "Übung→"
    write(folder, "print(1)")
    (folder / "LOG").write_text("zipfile.BadZipFile: File is not a zip file\n")
    (folder / "job.yaml").write_text("script: train.py\n# ü\ngrid: {seed: [0]}\n", encoding="utf-8")
    env = {**LATIN, "PYTHONPATH": support.PYTHONPATH, "XDG_STATE_HOME": str(tmp_path)}
    if command == "status":
        env["PYTHONUTF8"] = "1"
        run(folder, XDG_STATE_HOME=str(tmp_path))
    env = support.environment(folder / "run", **env)
    done = support.run_to_end(*TFRUN, *command.split(), cwd=folder, env=env)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["-- train.py", "status", GRID])
def test_no_output_at_all(tmp_path, command):
    """`>&-` closes standard output: catches an AttributeError of None."""
    write(tmp_path, "open('done', 'w')")
    (tmp_path / "job.yaml").write_text("script: train.py\ngrid: {seed: [0]}\n")
    text = f"exec {shlex.join(map(str, TFRUN))} {command} >&-"
    env = support.environment(tmp_path / "run", PYTHONPATH=support.PYTHONPATH)
    done = support.run_to_end("bash", "-c", text, cwd=tmp_path, env=env)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (tmp_path / "done").exists() or command == "status"


def test_a_progress_bar_is_seen_while_it_grows(tmp_path):
    """Drawn with carriage returns and without an end of line; the log keeps all of it."""
    body = """
for i in range(200):
    print("\\r%d of 200" % i, end="", flush=True)
    if os.path.exists("seen"):
        break
    time.sleep(0.1)
print("\\rall 200\\r\\nthe end")"""
    write(tmp_path, body)
    process = start(tmp_path)
    try:
        while not re.search(r"\d+ of 200", line := process.stdout.readline()):
            assert line and "end" not in line
        (tmp_path / "seen").touch()
        lines = process.communicate(timeout=support.patience(20))[0].splitlines()
    finally:
        process.kill()
    assert re.fullmatch(r"\[worker 0\] \d+ of 200\n", line), line
    assert "[worker 0] all 200" in lines and "[worker 0] the end" in lines, lines
    log = (tmp_path / "run" / "worker-0.log").read_bytes()
    assert log.startswith(b"\r0 of 200") and b"\rall 200\r\nthe end\n" in log


@pytest.mark.parametrize(
    "output, lines",
    [
        ([b"a\rb\rc\n"], [b"c"]),
        ([b"10%\r20%\r", b"30%\r\n"], [b"20%", b"30%"]),
        ([b"\r10", b"%\r", b"20%\nx"], [b"10", b"20%", b"x"]),
        ([b"plain\r\n", b"a", b"b\n"], [b"plain", b"ab"]),
    ],
)
def test_lines_with_carriage_returns(tmp_path, monkeypatch, output, lines):
    """Of each line what a terminal would show at last; of one that grows a look now and then."""
    one = task.Task("worker", "worker 0", [], {}, tmp_path)
    one.incomplete_line, one.output_ended, one.next_bar = b"", False, 0.0
    end, other = os.pipe()
    os.set_blocking(end, False)
    with open(end, "rb") as pipe:
        one.process = argparse.Namespace(stdout=pipe)
        seen = []
        for part in output:
            os.write(other, part)
            seen += one.new_lines()
        os.close(other)
        seen += one.new_lines()
    assert seen == lines


def test_no_locks_for_records_and_tasks(tmp_path):
    """Lustre without flock: a run has its record, and an engine's task begins."""
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, fcntl\ndef flock(*_):\n    raise OSError(errno.ENOSYS, 'no')\n"
        "fcntl.flock = flock\n"
    )
    write(tmp_path, "print('trains')")
    path = f"{tmp_path}:{support.PYTHONPATH}:{ENGINES}"
    env = support.environment(tmp_path / "run", PYTHONPATH=path, XDG_STATE_HOME=str(tmp_path))
    done = support.run_to_end(*TFRUN, "--", "train.py", cwd=tmp_path, env=env)
    assert "[worker 0] trains" in done.stdout and "will not know" not in done.stdout, done.stdout
    code = "import launching; launching.lock_task('.', 'worker', 0, 0)"
    done = support.run_to_end(sys.executable, "-c", code, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "own, files, cores",
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),  # in a container
        ("0::/", {"cpu.max": "max 100000"}, math.inf),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "300000 100000"}, 0.5),
        ("0::/a", {"b/cpu.max": "100000 100000"}, math.inf),  # another group's
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "1"}, math.inf),
        (
            "4:memory:/m\n2:cpu,cpuacct:/a\n0::/",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            3,
        ),
        (None, {}, math.inf),  # macOS
    ],
)
def test_the_quota_of_a_container(own, files, cores, tmp_path):
    """Catches a quota that is not seen: that of an outer group, or of an older kernel."""
    if own:
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "cgroup").write_text(own + "\n")
    for name, text in files.items():
        path = tmp_path / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert cluster.cpu_quota(tmp_path) == cores


@pytest.mark.parametrize("quota, threads", [(0.5, "1"), (3.5, "2"), (99, "4"), (math.inf, "4")])
def test_threads_follow_the_quota(quota, threads, monkeypatch):
    """Catches two workers that start threads for all eight cores, of which they get a few."""
    monkeypatch.setattr(cluster, "core_numbers", lambda: [*range(8)])
    monkeypatch.setattr(cluster, "cpu_quota", lambda: quota)
    monkeypatch.setattr(cluster, "gpus", list)
    for name in "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS":
        monkeypatch.delenv(name, raising=False)
    shares = {("worker", 1): resources.Share([4, 5])}  # it has asked for two cores
    env = cluster.environments({"ps": 1, "worker": 2}, [1, 2, 3], "d", shares)
    assert env["worker", 0]["OMP_NUM_THREADS"] == threads
    assert env["worker", 1]["OMP_NUM_THREADS"] == min(threads, "2")


@pytest.mark.needs("unshare")
@pytest.mark.parametrize("flags, code", [(["--ps", "1"], 2), (["--workers", "1"], 0)])
def test_a_loopback_that_is_down(tmp_path, flags, code):
    """Catches two minutes of waiting for a ps that nobody can reach; a task alone needs none."""
    write(tmp_path, "print('begun')")
    env = support.environment("", PYTHONPATH=support.PYTHONPATH, RUNS_DIR=str(tmp_path / "runs"))
    command = ["unshare", "--net", *TFRUN, *flags, "--", "train.py"]
    done = support.run_to_end(*command, cwd=tmp_path, env=env)
    assert done.returncode == code
    if code:
        (line,) = done.stderr.splitlines()
        assert "the loopback of this machine is down" in line and "ip link set lo up" in line
        assert "begun" not in done.stdout and not (tmp_path / "runs").exists()


@pytest.mark.needs("unshare")
@pytest.mark.long
def test_a_home_that_is_read_only_and_a_temporary_folder_without_programs(tmp_path):
    """Catches a run, its picture or an export that writes into one, or starts from the other."""
    home, temporary, own = tmp_path / "home", tmp_path / "temporary", tmp_path / "run"
    script = examples.main_script("HogWild")
    tfrun = shlex.join(map(str, TFRUN))
    commands = f"""set -e
mkdir {home} {temporary}
mount -t tmpfs -o ro none {home}
mount -t tmpfs -o noexec none {temporary}
{tfrun} --ps 1 --workers 2 -- {script} --steps 20
{tfrun} export {own}"""
    env = support.environment(own, PYTHONPATH=support.PYTHONPATH)
    env |= {"HOME": str(home), "TMPDIR": str(temporary)}
    for name in "XDG_STATE_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR":
        env.pop(name, None)
    done = support.run_to_end("unshare", "--mount", "bash", "-c", commands, seconds=120, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"curves.png", "model.keras", "saved_model"} <= {path.name for path in own.iterdir()}


def test_line_ends_of_a_clone(tmp_path):
    """`core.autocrlf=true`, as Git has it under Windows and WSL: bash reads no script with CR."""
    command = [
        "git",
        "-c",
        "core.autocrlf=true",
        "checkout-index",
        "--all",
        f"--prefix={tmp_path}/",
    ]
    subprocess.run(command, cwd=support.ROOT, check=True, timeout=60)
    named = subprocess.check_output(["git", "ls-files"], cwd=support.ROOT, text=True).split("\n")
    read = [tmp_path / name for name in named if pathlib.Path(name).suffix in (".sh", ".py", "")]
    assert not [path for path in read if path.is_file() and b"\r\n" in path.read_bytes()]


def test_any_shell_starts_a_script_of_bash(tmp_path):
    """Catches `sh HogWild/run.sh` that ends with "Illegal option -o pipefail"."""
    (tmp_path / "bash").write_text('#!/bin/sh\necho bash "$@"\n')
    (tmp_path / "bash").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    dash = shutil.which("dash") or "sh"  # sh may be bash, which needs no other
    scripts = [path for path in examples.tracked_files("*.sh") if path.read_text().startswith("#!")]
    assert len(scripts) > 50
    for script in scripts:
        done = support.run_to_end(dash, script, "--steps", "a b", env=env)
        assert done.stdout == f"bash {script} --steps a b\n", done.stderr
