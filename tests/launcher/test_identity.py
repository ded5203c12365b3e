"""Which processes tfrun takes for those of a run: records by hand, and processes that only sleep.

Nothing here asks psutil when a process was created: that moves with the clock.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

import psutil
import pytest
import support
from tfrun.commands import kill, monitor, status
from tfrun.launch.supervisor import Run
from tfrun.runs import registry, waiting

SLEEPS = ["sleep", "60"]


@pytest.fixture(autouse=True)
def own_records(tmp_path, monkeypatch):
    """Each test begins without a record."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()


@pytest.fixture
def start(tmp_path):
    """Returns a function that starts a task of the run in tmp_path; all end with the test."""
    started = []

    def begin(*command, **env):
        env = {**os.environ, "OUTPUT_DIR": str(tmp_path / "run"), **env}
        process = subprocess.Popen(
            command or SLEEPS, env=env, start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


def with_child(start, end="wait", variable=""):
    """Returns (a process that `start` has begun, the id of one that this has begun)."""
    process = start("sh", "-c", f"{variable} sleep 60 & echo $!; {end}")
    child = int(process.stdout.readline())
    # Before that it has the environment of the shell.
    support.wait_until(lambda: psutil.Process(child).name() == "sleep", 30, "its program")
    return process, child


def record(folder, tfrun, *processes, **changes):
    """Writes a record of a run of these identities, and returns it as it is read."""
    tasks = [
        {"task": f"worker {k}", "role": "worker", "state": "running", "process": who}
        | {"log": str(folder / f"run/worker-{k}.log"), "restarts": 0, "exit_code": None}
        | {"cores": None, "gpus": None, "memory_limit": None}
        for k, who in enumerate(processes)
    ]
    content = dict.fromkeys(registry.FACTS) | {"run": f"{folder.name}/run", "state": "running"}
    content |= {"directory": str(folder / "run"), "started": time.time() - 60, "tfrun": tfrun}
    path = registry.folder() / f"{folder.name}--run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, "tasks": tasks, **changes}))
    return registry.read(path)


def other_start(pid):
    """Returns the identity of an earlier process that had this id."""
    first, boot = waiting.start_of(pid).split()
    return {"pid": pid, "start": f"{int(first) - 1} {boot}"}


def test_a_clock_that_is_set_changes_nothing(start, tmp_path, monkeypatch, capsys):
    """Catches a start by the clock: all runs would be lost, and kill would end nothing."""
    launcher, task = start(), start()
    record(tmp_path, registry.identity(launcher.pid), registry.identity(task.pid))
    before, boot = psutil.Process(task.pid).create_time(), psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot + 3600)
    monkeypatch.setattr("psutil._pslinux.BOOT_TIME", None, raising=False)
    assert psutil.Process(task.pid).create_time() > before + 3000, "psutil's start has not moved"
    (seen,) = map(status.status, registry.read_all())
    assert seen["state"] == "running"
    (task_seen,) = monitor.snapshot(registry.read_all()[0], {})["tasks"]
    assert (task_seen["pid"], task_seen["state"]) == (task.pid, "running")
    assert [child.pid for child in registry.live_processes(registry.read_all()[0])] == [task.pid]
    assert kill.command([tmp_path.name]) == 0 and "is stopped" in capsys.readouterr().out
    assert (launcher.wait(5), task.wait(5)) == (-15, -9)


def test_another_name_of_the_host_hides_no_run(start, tmp_path, monkeypatch):
    """Catches records of this machine that are lost with its name, and another machine's here."""
    launcher, task = start(), start()
    record(tmp_path, registry.identity(launcher.pid), registry.identity(task.pid))
    monkeypatch.setattr("socket.gethostname", lambda: "renamed")
    (seen,) = registry.read_all()
    assert seen["state"] == "running"
    assert [process.pid for process in registry.live_processes(seen)] == [task.pid]
    elsewhere = {"pid": launcher.pid, "start": "1 another-boot"}
    record(tmp_path, elsewhere)
    monkeypatch.setattr("socket.gethostname", lambda: "third")
    assert [run["path"].parent.name for run in registry.read_all()] == [seen["path"].parent.name]


def test_a_record_of_an_older_tfrun(start, tmp_path, capsys):
    """Catches a run that trains on, and is called lost: it had noted the start as a number."""
    launcher, task = start(), start()
    older = [
        {"pid": process.pid, "start": psutil.Process(process.pid).create_time()}
        for process in (launcher, task)
    ]
    assert record(tmp_path, *older)["state"] == "running"
    assert kill.command([tmp_path.name]) == 0 and "is stopped" in capsys.readouterr().out
    assert (launcher.wait(support.patience(20)), task.wait(support.patience(20))) == (-15, -9)
    other = {**older[0], "start": older[0]["start"] - 100}
    assert record(tmp_path, other)["state"] == "lost"


@pytest.mark.parametrize(
    "changes", [{"directory": None}, {"tasks": None}, {"tasks": [{}]}, {"started": "now"}]
)
def test_a_damaged_record_hides_no_other(changes, start, tmp_path):
    """Catches a traceback of status, kill and logs, for all runs."""
    launcher = start()
    record(tmp_path, registry.identity(launcher.pid))
    other = tmp_path / "other"
    (other / "run").mkdir(parents=True)
    record(other, registry.identity(launcher.pid), **changes)
    assert sorted(run["state"] for run in registry.read_all()) == ["running", "unreadable"]


def test_the_start_of_a_process_of_any_name(start, tmp_path):
    """Catches fields that are counted from the front: a name may have spaces and brackets."""
    odd = tmp_path / "a) 1 (b"
    shutil.copy(shutil.which("sleep"), odd)
    plain, named = start(), start(str(odd), "60")
    support.wait_until(lambda: psutil.Process(named.pid).name() == odd.name, 5, "a name")
    first, second = (waiting.start_of(process.pid).split() for process in (plain, named))
    assert first[1] == second[1] and 0 <= int(second[0]) - int(first[0]) < 1000
    ticks_now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    assert abs(ticks_now - int(second[0])) < 60 * os.sysconf("SC_CLK_TCK")
    named.kill()
    named.wait()
    assert waiting.start_of(named.pid) is None and registry.identity(named.pid) is None


def test_what_is_left_of_a_run(start, tmp_path):
    """A task with its child of any environment; the child of one that has ended; nothing else.

    Catches: only leaders, all that has the OUTPUT_DIR, a zombie, an id that is another's now.
    """
    alive, child = with_child(start, variable="OUTPUT_DIR=x")
    gone, orphan = with_child(start, "exit")
    gone.wait()
    other, its_child = with_child(start)
    foreign, stranger = with_child(start, "exit", "OUTPUT_DIR=/elsewhere")
    foreign.wait()
    neighbour, ended = start(), start("true")
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    known = [registry.identity(process.pid) for process in (alive, ended)]
    dead = [{"pid": process.pid, "start": "1 x"} for process in (gone, foreign)]
    taken = other_start(other.pid)
    processes = registry.live_processes(record(tmp_path, None, *known, *dead, taken))
    assert sorted(process.pid for process in processes) == sorted([alive.pid, child, orphan])
    assert {other.pid, its_child, neighbour.pid, stranger} <= set(psutil.pids())


def test_kill_where_tfrun_has_died(start, tmp_path, capsys):
    """It ends what is left and no process that has the id of tfrun, or of a task, now."""
    launcher, other, task = start(), start(), start()
    gone, orphan = with_child(start, "exit")
    gone.wait()
    lost = record(
        tmp_path,
        other_start(launcher.pid),
        other_start(other.pid),
        registry.identity(task.pid),
        {"pid": gone.pid, "start": "1 x"},
        None,
    )
    assert lost["state"] == "lost"
    assert kill.command([tmp_path.name, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sorted(answer["processes_killed"]) == sorted([task.pid, orphan])
    assert launcher.poll() is None and other.poll() is None and task.wait(5) == -9
    (after,) = registry.read_all()
    assert (answer["state"], after["state"]) == ("stopped", "stopped") and after["ended"]
    assert [entry["process"] for entry in after["tasks"]] == [None] * 4
    assert [entry["state"] for entry in after["tasks"]] == ["stopped"] * 3 + ["running"]


def test_stopped_is_not_said_while_a_process_lives(start, tmp_path, monkeypatch, capsys):
    """Catches a state that is written before all have ended."""
    task = start()
    record(tmp_path, None, registry.identity(task.pid))
    monkeypatch.setattr(psutil.Process, "kill", lambda process: None)
    monkeypatch.setattr(kill, "STOP_SECONDS", 0.1)
    assert kill.command([tmp_path.name]) == 1
    output = capsys.readouterr()
    assert f"do not end: {task.pid}" in output.err and not output.out
    assert registry.read_all()[0]["state"] == "lost"


def test_the_watchdog_ends_what_is_left_and_nothing_else(start):
    """Catches an id that another process has by then; a group without its leader that is spared."""
    left, ended, other = start(), start(), start()
    gone, orphan = with_child(start, "exit")
    gone.wait()
    told = [f"+{text}" for text in map(line, (left, ended))]
    told += [f"+{other.pid} {other_start(other.pid)['start']}", f"+{gone.pid} 1 x"]
    told.append(f"-{line(ended)}")
    command = [sys.executable, "-SE", "-m", "tfrun.launch.watchdog"]
    subprocess.run(
        command,
        input="".join(f"{text}\n" for text in told),
        text=True,
        cwd=support.ROOT,
        timeout=60,
    ).check_returncode()
    assert left.wait(5) == -9 and ended.poll() is None and other.poll() is None
    support.wait_until(lambda: not psutil.pid_exists(orphan) or zombie(orphan), 5, "ended")


def test_a_build_that_is_killed_leaves_no_compiler(tmp_path):
    """Catches a watchdog that cannot start, and one that is told too little to end anything."""
    code = """
import runpy, sys
build = runpy.run_path(sys.argv[1])
compilers = "sleep 100 & echo $! $$ > %s; exec sleep 100" % sys.argv[2]
build["run"](["sh", "-c", compilers], open(sys.argv[2] + ".log", "w"))
"""
    path, started = support.ROOT / "Horovod-RingAllReduce" / "build" / "build.py", tmp_path / "ids"
    killed = subprocess.Popen([sys.executable, "-c", code, path, started], stderr=subprocess.PIPE)
    try:
        support.wait_until(lambda: started.exists() and started.read_text(), 30, "started")
        time.sleep(0.5)  # the watchdog is told
    finally:
        killed.kill()
    ids = map(int, started.read_text().split())
    for pid in ids:
        support.wait_until(lambda pid=pid: not psutil.pid_exists(pid) or zombie(pid), 5, "ended")
    assert not killed.communicate(timeout=10)[1]


def line(process):
    """Returns what stands behind the sign in a line to the watchdog, as tfrun writes it."""
    read, write = os.pipe()
    task = type("Task", (), {"process": process, "identity": registry.identity(process.pid)})
    with open(write, "wb") as pipe:
        watchdog = type("Watchdog", (), {"stdin": pipe})
        Run.tell_watchdog(type("Run", (), {"watchdog": watchdog}), "+", task)
    with open(read) as pipe:
        return pipe.read().strip()[1:]


def zombie(pid):
    """Returns whether nothing but an entry in the table is left of a process."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
