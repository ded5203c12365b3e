"""Signals that the caller ignores, Ctrl-Z, and tfrun as the first process of a container."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import psutil
import pytest
import support
from small_scripts import TFRUN, tasks, write

IGNORE = 'trap "" INT TERM HUP; exec "$@"'
GRID = "script: train.py\nroles: {worker: {replicas: 1}}\ngrid: {seed: [0, 1]}\n"
COMMANDS = [
    pytest.param(["--", "train.py"], id="run"),
    pytest.param(["run", "job.yaml"], id="grid", marks=pytest.mark.long),
]
# Goes on until the file "end" is there; a task then says what it ignores, and what it has done.
UNTIL_THE_END = """
import pathlib, signal
folder = pathlib.Path(__file__).parent
while not (folder / "end").exists():
    (folder / "turns").write_text(str(time.monotonic()))
    time.sleep(0.02)
print("ends, and SIGTERM is", signal.getsignal(signal.SIGTERM).name, flush=True)
"""


def begin(folder, *command, before=(), **more):
    """Starts a command of tfrun on the script above, in `folder`."""
    write(folder, UNTIL_THE_END)
    (folder / "job.yaml").write_text(GRID)
    return subprocess.Popen(
        [*before, *TFRUN, *command],
        cwd=folder,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=support.environment(folder / "run", PYTHONPATH=support.PYTHONPATH),
        **more,
    )


def turns(folder):
    """Returns what changes while a task goes on; None before the first turn."""
    path = folder / "turns"
    return path.exists() and path.read_text()


def goes_on(folder):
    """Waits until a task has made another turn."""
    before = turns(folder)
    support.wait_until(lambda: turns(folder) not in (before, ""), 20, "another turn")


@pytest.mark.parametrize(
    "command, before",
    [
        (["--ps", "1", "--", "train.py"], ["nohup"]),
        (["--", "train.py"], ["bash", "-c", IGNORE, "bash"]),
        pytest.param(["run", "job.yaml"], ["bash", "-c", IGNORE, "bash"], marks=pytest.mark.long),
    ],
    ids=["nohup", "all", "grid"],
)
def test_ignored_signals_stay_ignored(tmp_path, command, before):
    """Catches handlers that take back what nohup, or a script's `trap ""`, has set to be ignored.

    Tasks end at SIGTERM all the same: by this tfrun ends them.
    """
    process = begin(tmp_path, *command, before=before)
    try:
        goes_on(tmp_path)
        for number in [signal.SIGHUP] if before == ["nohup"] else [1, 2, 15]:
            process.send_signal(number)
        goes_on(tmp_path)
        (tmp_path / "end").touch()
        output = process.communicate(timeout=support.patience(30))[0]
    finally:
        process.kill()
    assert process.returncode == 0 and "stopped by" not in output, output
    assert "ends, and SIGTERM is SIG_DFL" in output, output


HANDLES = """import signal, sys
import {0}
{1}
print("ignored:", *(n for n in (2, 15) if signal.getsignal(n) == signal.SIG_IGN))
"""


@pytest.mark.parametrize(
    "module, call",
    [
        ("tfrun.launch.signals as s", "s.handle(print, *s.ENDING)"),
        ("launching as s", "s.handle(signal.SIGINT, print); s.handle(signal.SIGTERM, print)"),
    ],
    ids=["tfrun", "engines"],
)
def test_what_sets_a_handler(module, call):
    """Also after a library, such as pyspark, has taken an ignored signal back."""
    code = HANDLES.format(module, "signal.signal(2, print)\n" + call)
    path = os.pathsep.join([support.PYTHONPATH, str(support.ROOT / support.ENGINES)])
    for ignored, expected in ((IGNORE, "ignored: 2 15\n"), ('exec "$@"', "ignored:\n")):
        command = ["bash", "-c", ignored, "bash", sys.executable, "-c", code]
        done = support.run_to_end(*command, env={**os.environ, "PYTHONPATH": path})
        assert done.stdout == expected, done.stderr


def catches(process, number):
    """Returns whether a process has a handler of that signal."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"SigCgt:\s+(\w+)", status)[1], 16) >> (number - 1) & 1


def stopped(process):
    """Returns whether a process stands still, as after Ctrl-Z."""
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_z(tmp_path, command):
    """tfrun stands still as the shell says, and says itself that its tasks do not.

    In a process group of its own, as jobs of a shell are.
    """
    process = begin(tmp_path, *command, preexec_fn=os.setpgrp)
    try:
        goes_on(tmp_path)
        for _ in range(2):
            process.send_signal(signal.SIGTSTP)
            support.wait_until(lambda: stopped(process), 10, "stopped")
            goes_on(tmp_path)
            process.send_signal(signal.SIGCONT)
            support.wait_until(lambda: catches(process, signal.SIGTSTP), 10, "ready for the next")
        (tmp_path / "end").touch()
        output = process.communicate(timeout=support.patience(30))[0]
    finally:
        process.kill()
    assert process.returncode == 0 and output.count("training goes on") == 2, output


def test_a_paused_run_can_be_ended(tmp_path):
    """`kill %1` of a shell sends SIGTERM and SIGCONT to what stands still; nothing is left."""
    process = begin(tmp_path, "--ps", "1", "--", "train.py", preexec_fn=os.setpgrp)
    try:
        goes_on(tmp_path)
        process.send_signal(signal.SIGTSTP)
        support.wait_until(lambda: stopped(process), 10, "stopped")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        output = process.communicate(timeout=support.patience(30))[0]
    finally:
        process.kill()
    assert process.returncode == 143 and "stopped by SIGTERM" in output, output
    assert not tasks(tmp_path)


ORPHANS = """
import psutil, subprocess
for _ in range(5):  # each leaves a process whose parent is gone
    subprocess.run(["sh", "-c", "setsid sleep 0.1 &"])
def zombies():
    found = psutil.process_iter(["status"])  # one that ends meanwhile is left out
    return [p for p in found if p.info["status"] == psutil.STATUS_ZOMBIE]
end = time.monotonic() + 10
while time.monotonic() < end and any(
    p.info["name"] == "sleep" for p in psutil.process_iter(["name"])
):
    time.sleep(0.05)
left = zombies()
while time.monotonic() < end and left:  # those of the other run end, too
    time.sleep(0.05)
    left = zombies()
print("zombies:", len(left))
"""


@pytest.mark.needs("unshare")
@pytest.mark.parametrize("command", COMMANDS)
def test_process_1_of_a_container(tmp_path, command):
    """It gets all orphans, and must wait for them, or the container runs out of processes."""
    write(tmp_path, ORPHANS)
    (tmp_path / "job.yaml").write_text(GRID)
    unshare = "unshare --mount --pid --fork --mount-proc --kill-child".split()
    env = support.environment(tmp_path / "run", PYTHONPATH=support.PYTHONPATH)
    done = support.run_to_end(*unshare, *TFRUN, *command, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("zombies:") == done.stdout.count("zombies: 0")
