"""What tfrun prints and does while a run goes on, and when, to the second.

The tasks follow a script: see tests/support/scripted.py.
"""

import json
import os
import signal
import types

import psutil
import pytest
import run_files
import scripted
from tfrun.launch import exposed, horovod, resources, supervisor, without_notices
from tfrun.launch import task as tasks

TRACEBACK = ["Traceback (most recent call last):", '  File "x.py"', "ValueError: no luck"]
USAGE = ["usage: a.py [--steps N]", "       [--seed S]", "a.py: error: argument --steps: no"]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Returns a function that makes the World of {task: [its script at each start]}."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return lambda **scripts: scripted.World(
        tmp_path, monkeypatch, {name.replace("_", " "): script for name, script in scripts.items()}
    )


def at(second, *lines):
    """Returns a script that prints these lines at that second."""
    return [(second, line) for line in lines]


def test_a_run_from_its_begin_to_its_end(world, tmp_path):
    """A ps goes on for 40 s after the last worker, and a second more when it is asked to end.

    Catches a ps that is not stopped, or sooner; a word of the watchdog that is missing; and a
    record that does not say how each task ended.
    """
    seen = world(ps_0=[["late"]], worker_0=[[(1, "a"), (3, 0)]], worker_1=[[(2, b"b"), (5, 0)]])
    code, run = seen.run({"worker": 2, "ps": 1}, notes=["a note"])
    assert code == 0 and run.done and not run.interrupted
    warning = "anyone who can reach the ports of these tasks can use them"
    assert seen.printed == [
        (0, f"[tfrun] E: 2 workers, 1 ps, in {tmp_path}/E/run"),
        (0, "[tfrun] a note"),
        (0, f"[tfrun] {warning}; TFRUN_ISOLATE=1 before the command prevents that"),
        (1, "[worker 0] a"),
        (5, "[worker 1] b"),  # at its end, for it has no end of line
        (45, "[tfrun] the workers are done, and ps 0 did not end by itself: stopped"),
    ]
    assert seen.kills == [("ps 0", "SIGTERM", 45), "watchdog"]
    assert seen.starts == [("ps 0", 0), ("worker 0", 0), ("worker 1", 0)]
    told = (tmp_path / "watchdog").read_text().splitlines()
    pids = (101, 102, 103, 102, 103, 101)
    assert told == [f"{sign}{pid} at {pid}" for sign, pid in zip("+++---", pids)]
    record = seen.record()
    assert (record["state"], record["exit_code"], round(record["ended"])) == ("done", 0, 8046)
    assert [task["state"] for task in record["tasks"]] == ["stopped", "done", "done"]
    assert [task["exit_code"] for task in record["tasks"]] == [9, 0, 0]
    assert all(held.fileno() == -1 for held in run.sockets) and len(run.sockets) == 3


def test_what_a_failure_prints_and_stops(world, tmp_path):
    """Catches the exit code of a task that was stopped, and a task that is killed too soon or not.

    Asked by SIGTERM, one ends, one goes on and is killed 3 s later.
    """
    seen = world(ps_0=[["stubborn"]], worker_0=[["late"]], worker_1=[[(2, "last"), (4, 7)]])
    code, run = seen.run({"worker": 2, "ps": 1})
    assert code == 7 and not run.done and not run.interrupted
    assert seen.lines() == [
        (2, "[worker 1] last"),
        (4, "[tfrun] worker 1 failed with exit code 7; the run is stopped"),
        (4, f"[tfrun] all that it printed: {tmp_path}/E/run/worker-1.log"),
    ]
    asked = [("ps 0", "SIGTERM", 4), ("worker 0", "SIGTERM", 4)]
    assert seen.kills == [*asked, ("ps 0", "SIGKILL", 7), "watchdog"]
    record = seen.record()
    assert (record["state"], record["exit_code"]) == ("failed", 7)
    assert [task["state"] for task in record["tasks"]] == ["stopped", "stopped", "failed"]
    assert [task["exit_code"] for task in record["tasks"]] == [137, 9, 7]
    assert (tmp_path / "E/run/worker-1.log").read_text() == "last\n"


def test_the_times_of_restarts(world):
    """Catches: a pause that does not grow, a restart too few or too many, and a run that stops.

    Or that ends with the code of a failure after which the task started again.
    """
    fails = [[(1, 3)], [(1, 4)], [(1, "no luck"), (1.5, 5)]]
    seen = world(worker_0=[[(20, "done"), (20, 0)]], worker_1=fails)
    code, run = seen.run({"worker": 2}, restarts=2)
    assert code == 5 and run.done
    assert seen.starts == [("worker 0", 0), ("worker 1", 0), ("worker 1", 2), ("worker 1", 5)]
    path = run.tasks[1].path
    assert seen.lines() == [
        (1, "[tfrun] worker 1 failed with exit code 3; it starts again in 1 s (restart 1 of 2)"),
        (3, "[tfrun] worker 1 failed with exit code 4; it starts again in 2 s (restart 2 of 2)"),
        (6, "[worker 1] no luck"),
        (6.5, "[tfrun] worker 1 failed with exit code 5, has no restart left, and is let go: the "
         f"others go on; log: {path}"),
        (20, "[worker 0] done"),
    ]  # fmt: skip
    assert [task["restarts"] for task in seen.record()["tasks"]] == [0, 2]
    assert [task["state"] for task in seen.record()["tasks"]] == ["done", "failed"]


def test_what_the_record_says_of_a_run_that_goes_on(world):
    """Catches: a task that waits for its restart as failed, and a process that has ended."""
    seen, records = world(worker_0=[[(3, 0)]], worker_1=[[(1, 9)], [(1, 0)]]), []
    seen.scripts["chief 0"] = iter([[(0.5, lambda: note()), (1.5, lambda: note()), (4, 0)]])

    def note():
        tasks = seen.record()["tasks"]
        records.append([(task["state"], task["exit_code"], task["process"]) for task in tasks])

    share = resources.Share([0, 1], ["g"], 2**30)
    seen.run({"chief": 1, "worker": 2}, restarts=1, shares={("worker", 0): share})
    alive = [("running", None, {"pid": pid, "start": f"at {pid}"}) for pid in (101, 102, 103)]
    assert records == [alive, [*alive[:2], ("restarting", 9, None)]]
    facts = seen.record()["tasks"][1]
    assert (facts["task"], facts["role"]) == ("worker 0", "worker")
    assert (facts["cores"], facts["gpus"], facts["memory_limit"]) == ([0, 1], "g", 2**30)
    assert seen.processes[102].cpus == [0, 1] and seen.processes[101].cpus is None


def test_a_time_out(world):
    """Catches another moment, another code, and a run that is not said to be stopped."""
    seen = world(worker_0=[[(1, 0)]], worker_1=[[]])
    code, run = seen.run({"worker": 2}, timeout=2.5)
    assert code == 124 and run.interrupted
    line = "[tfrun] not done after 2.5 s (--timeout); still running: worker 1"
    assert seen.lines() == [(2.5, line)]
    assert seen.record()["state"] == "stopped"


def test_stacks_at_a_time_out(world, monkeypatch):
    """Catches stacks that are asked of a process that has ended, while it waits for its restart."""
    asked = []
    seen = world(worker_0=[[]], worker_1=[[(1, 3)]])
    monkeypatch.setattr(scripted.task.psutil, "Process", lambda pid: pid)
    monkeypatch.setattr(scripted.task.stacks, "ask", lambda pid, _: asked.append(pid))
    assert seen.run({"worker": 2}, timeout=1.5, restarts=1)[0] == 124
    assert asked == [101]


def test_the_ps_waits_for_the_chief(world):
    """Catches a ps that is stopped 40 s after the last worker, although the chief goes on."""
    seen = world(ps_0=[["late"]], chief_0=[[(60, 0)]], worker_0=[[(1, 0)]])
    assert seen.run({"ps": 1, "chief": 1, "worker": 1})[0] == 0
    assert seen.kills[0] == ("ps 0", "SIGTERM", 100)


def test_the_ps_waits_for_the_evaluator(world):
    """Catches a ps that is stopped while the evaluator tests the last checkpoint."""
    seen = world(ps_0=[["late"]], worker_0=[[(1, 0)]], evaluator_0=[[(50, 0)]])
    assert seen.run({"ps": 1, "worker": 1, "evaluator": 1})[0] == 0
    assert seen.kills[0] == ("ps 0", "SIGTERM", 90)


def test_notices_stay_in_the_log(world, tmp_path):
    """Catches what TensorFlow says at every start, on the screen; and a log without it."""
    notice = "I0000 oneDNN custom operations are on. You may see"
    seen = world(worker_0=[at(1, notice, "a") + [(2, 0)]])
    seen.run({"worker": 1})
    assert seen.texts() == ["[worker 0] a"]
    assert notice in (tmp_path / "E/run/worker-0.log").read_text()


def test_the_worker_that_joins_a_chief(tmp_path):
    """Catches a command that is not there, where only a chief trains."""
    commands = {"chief": ["python", "train.py"], "ps": ["python", "serve.py"]}
    spec = supervisor.LaunchSpec("E", {"chief": 1, "ps": 1}, commands, tmp_path)
    worker = spec.make_local_worker([1, 2], 3)
    worker.log.close()
    assert (worker.name, worker.index, worker.command) == ("worker 3", 3, commands["chief"])
    assert json.loads(worker.env["TF_CONFIG"])["task"] == {"type": "worker", "index": 3}


def test_a_task_ends_with_tfrun(monkeypatch):
    """Catches another signal than the one that is asked for, or another command of prctl."""
    asked = []
    libc = types.SimpleNamespace(prctl=lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(tasks.ctypes, "CDLL", lambda _: libc)
    monkeypatch.setattr(tasks.signal, "signal", lambda *_: None)
    monkeypatch.setattr(tasks.sys, "platform", "linux")
    tasks.end_with_parent()
    tasks.end_with_parent(signal.SIGTERM)
    assert asked == [(1, signal.SIGKILL), (1, signal.SIGTERM)]


def test_the_first_signal_counts(world, monkeypatch):
    """Catches: the second signal's code, Ctrl-Z for an end, and a child of others that is reaped.

    Of the children of tfrun, 1 is the watchdog, 101 a task, and 999 what a task has left behind.
    """
    reaped = []
    children = [types.SimpleNamespace(pid=pid) for pid in (1, 101, 999)]
    monkeypatch.setattr(
        psutil, "Process", lambda *_: types.SimpleNamespace(children=lambda: children)
    )
    monkeypatch.setattr(os, "waitpid", lambda pid, _: reaped.append(pid))
    seen = world(worker_0=[[]])
    script = [(1, seen.send(signal.SIGCHLD)), (1.5, seen.send(signal.SIGTSTP))]
    script += [(2, seen.send(signal.SIGINT, signal.SIGTERM)), (9, 0)]
    seen.scripts["worker 0"] = iter([script])
    code, run = seen.run({"worker": 1})
    assert code == 130 and run.interrupted and reaped == [999] and seen.pauses == 1
    assert seen.lines() == [(2, "[tfrun] stopped by SIGINT")]
    assert seen.kills == [("worker 0", "SIGTERM", 2), "watchdog"]
    assert seen.record()["state"] == "stopped" and seen.record()["exit_code"] == 130


def data(rows):
    """Returns what a task writes about its data."""
    return "# data " + json.dumps({"x_train": [[rows, 6], 1.0, 10.0]})


@pytest.mark.parametrize("second, code", [(2, None), (1, 3), (1, 0)])
def test_other_data_stop_a_run(second, code, world, tmp_path):
    """While it goes on, where a task fails by them, and at its end.

    Catches the code of the task that failed, and a traceback that is shown beside the reason.
    """

    def write():
        run_files.metrics(tmp_path / "E/run", "worker-0", data(8))
        run_files.metrics(tmp_path / "E/run", "worker-1", data(7))

    end = [] if code is None else [(1, code)]
    seen = world(
        worker_0=[at(0.9, *TRACEBACK) + ([(1, 0)] if code == 0 else [])],
        worker_1=[[(0.9, write), *end]],
    )
    assert seen.run({"worker": 2})[0] == 1
    ((when, line),) = seen.lines()
    begin = "[tfrun] worker 1 has other data than worker 0: x_train has 7 rows, not 8. "
    assert line.startswith(begin) and line.endswith(" The run is stopped.")
    assert when <= second
    assert seen.record()["state"] == "failed"


def test_a_standstill(world):
    """The machine stands still for 10 s from second 2 on.

    Catches: seconds that tfrun slept anyway, a second failure that is excused, and one that comes
    a minute later; and restarts that are counted.
    """
    fails = [[(20, 3)], [(2, 4)], [(1, 5)]]
    seen = world(worker_0=[[(90, 6)], [(1, 0)]], worker_1=fails)
    seen.jumps[2] = 10
    code, _ = seen.run({"worker": 2}, restarts=1)
    assert code == 5
    assert seen.lines()[:3] == [
        (12, "[tfrun] this machine stood still for 10 s, and goes on"),
        (20, "[tfrun] worker 1 failed with exit code 3 after the standstill; it starts again"),
        (23, "[tfrun] worker 1 failed with exit code 4; it starts again in 1 s (restart 1 of 1)"),
    ]
    assert seen.lines()[3][0] == 25
    assert seen.lines()[3][1].startswith("[tfrun] worker 1 failed with exit code 5, has no restart")
    assert [when for name, when in seen.starts if name == "worker 1"] == [0, 21, 24]
    assert seen.lines()[4] == (
        90,
        "[tfrun] worker 0 failed with exit code 6; it starts again in 1 s (restart 1 of 1)",
    )


def test_a_wrong_flag_after_a_standstill(world):
    """Catches a second start of what cannot start."""
    seen = world(worker_0=[[*at(4, *USAGE), (5, 2)], [(1, 0)]])
    seen.jumps[2] = 10
    assert seen.run({"worker": 1})[0] == 2
    assert len(seen.starts) == 1


def test_a_busy_machine_is_no_standstill(world):
    """Catches an excuse for what failed because of itself."""
    seen = world(worker_0=[[(5, 3)]])
    seen.jumps[2] = 4
    assert seen.run({"worker": 1})[0] == 3
    assert seen.texts()[0] == "[tfrun] worker 0 failed with exit code 3; the run is stopped"


@pytest.mark.parametrize(
    "last, how, code",
    [(["done"], -9, 0), (["done, the output is in x"], -9, 0), (["done for today"], -9, 137)]
    + [(["done"], 3, 3), (["done", "and more"], -9, 137), ([], -9, 137)],
)
def test_killed_after_it_was_done(last, how, code, world):
    """Catches a failure that is none, one that is not seen, and a line that only begins so."""
    seen = world(worker_0=[[*at(1, "begins", *last), (2, how)]])
    assert seen.run({"worker": 1})[0] == code
    message = seen.texts()[1 + len(last)]
    words = "was killed by SIGKILL" if how < 0 else "failed with exit code 3"
    assert message == f"[tfrun] worker 0 {words}" + (
        "; the run is stopped" if code else " after it was done"
    )


def test_a_traceback_is_held_back(world):
    """Until the task ends, or for 10 s; of tasks that fail with it, the error alone is shown.

    Catches all tracebacks at once, and one that is not shown.
    """
    others = [*TRACEBACK[:-1], "KeyError: 1"]
    seen = world(
        worker_0=[at(1, *TRACEBACK) + at(2, "goes on")],
        worker_1=[at(3, *TRACEBACK)],
        worker_2=[at(18, *others) + [(20, 1)]],
        worker_3=[at(19, *TRACEBACK)],
    )
    assert seen.run({"worker": 4})[0] == 1
    assert seen.lines()[:10] == [
        *((12, f"[worker 0] {line}") for line in [*TRACEBACK, "goes on"]),
        *((14, f"[worker 1] {line}") for line in TRACEBACK),
        *((20, f"[worker 2] {line}") for line in others),
    ]
    failed, *_, path, end = seen.texts()[10:]
    assert failed == "[tfrun] worker 2 failed with exit code 1; the run is stopped"
    assert path.startswith("[tfrun] all that it printed: ")
    assert end == "[worker 3] ValueError: no luck"


def test_what_was_not_just_shown_is_shown_again(world):
    """Catches: another task's lines, more than the last 15, and no lines where others came between.

    Of an error with a traceback it is the error alone.
    """
    lines = [f"line {k}" for k in range(20)]
    seen = world(worker_0=[[(2, "between")]], worker_1=[at(1, *lines) + [(3, 1)]])
    seen.run({"worker": 2})
    due = [f"[worker 1] {line}" for line in lines]
    assert seen.texts()[:21] == [*due, "[worker 0] between"]
    assert seen.texts()[22:-1] == due[5:]


def test_an_error_that_was_not_just_shown_is_shown_again(world):
    """Catches its traceback once more, or nothing."""
    error = [*TRACEBACK, *(f"more {k}" for k in range(20))]
    seen = world(worker_0=[[(14, "between")]], worker_1=[at(1, "before", *error) + [(15, 1)]])
    seen.run({"worker": 2})
    due = [f"[worker 1] {line}" for line in ["before", *error]]
    assert seen.texts()[:25] == [*due, "[worker 0] between"]
    assert seen.texts()[26:-1] == due[3:18]


@pytest.mark.parametrize("error", ["", "MemoryError"])
def test_the_meaning_of_a_failure(error, world):
    """Catches an explanation that is not shown, or that stands before the failure."""
    seen = world(worker_0=[at(1, *TRACEBACK[:2], error or "Error: my own") + [(2, 1)]])
    seen.run({"worker": 1})
    kinds = [line.partition("] ")[2][:6] for line in seen.texts()]
    assert kinds[3] == "worker" and len(kinds) == (6 if error else 5)
    assert kinds[-1] == "all th"


def test_a_reader_that_has_gone(world, monkeypatch):
    """As of `| head`. Catches a run that goes on, and an output that breaks the rest of tfrun."""
    dups = []
    monkeypatch.setattr(
        os, "dup2", lambda old, new: dups.append((os.readlink(f"/proc/self/fd/{old}"), new))
    )
    seen = world(worker_0=[[]])
    script = [(2, lambda: setattr(seen.out, "has_reader", False)), (3, "a"), (9, 0)]
    seen.scripts["worker 0"] = iter([script])
    code, run = seen.run({"worker": 1})
    assert code == 141 and run.interrupted and dups == [("/dev/null", 1)]
    assert seen.kills == [("worker 0", "SIGTERM", 3), "watchdog"]


def test_the_limit_of_memory(world, monkeypatch):
    """Catches: the memory of a child that is not counted, or of all tasks, and another limit."""

    def process(pid):
        used = {101: 90, 102: 60}[pid] << 20
        child = types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=50 << 20))
        own = types.SimpleNamespace(rss=used)
        return types.SimpleNamespace(memory_info=lambda: own, children=lambda recursive: [child])

    monkeypatch.setattr(tasks.psutil, "Process", process)
    seen = world(ps_0=[[]], worker_0=[[(9, 0)]])
    shares = {("worker", 0): resources.Share(memory=100 << 20)}
    code, _ = seen.run({"ps": 1, "worker": 1}, shares=shares)
    assert code == 137
    words = "used 110 MiB of memory, more than its limit of 100 MiB (--memory), and was killed"
    assert seen.texts()[0] == f"[tfrun] worker 0 {words}; the run is stopped"
    assert seen.lines()[0][0] <= 1 and seen.kills[0][:2] == ("worker 0", "SIGKILL")


@pytest.mark.parametrize("trained", [False, True])
def test_a_wrong_flag(trained, world, tmp_path):
    """Catches: the usage, the error of a second task, and a restart of what was wrong at once.

    After the first row of metrics the flags were right, and it is a failure like others.
    """
    write = [(0.5, lambda: run_files.metrics(tmp_path / "E/run", "worker-0", run_files.push(1, 1)))]
    ends = at(1, *USAGE) + [(1, 2)]
    seen = world(worker_0=[(write if trained else []) + ends, ends], worker_1=[at(1, *USAGE), []])
    code, run = seen.run({"worker": 2}, restarts=1)
    assert code == 2 and run.wrong_flag == (not trained)
    if trained:
        assert seen.texts()[0] == f"[worker 0] {USAGE[2]}" and len(seen.starts) == 3
        assert "it starts again in 1 s (restart 1 of 1)" in seen.texts()[1]
    else:
        words = "worker 0 failed with exit code 2; the run is stopped"
        assert seen.texts()[:2] == [f"[worker 0] {USAGE[2]}", f"[tfrun] {words}"]
        assert len(seen.starts) == 2 and not any("printed" in line for line in seen.texts())


def test_the_exit_code_of_a_wrong_flag(world, monkeypatch):
    """Catches the exit code of horovodrun, which is 1 where that of a rank is 2."""
    monkeypatch.setattr(tasks.Task, "found_a_wrong_flag", lambda task: task.exit_code == 1)
    assert world(worker_0=[[(1, 1)]]).run({"worker": 1})[0] == 2


def test_a_usage_that_is_no_error(world):
    """Catches lines that are held back for ever, and a line in front of those before it."""
    seen = world(worker_0=[at(1, *USAGE[:2]) + [(2, 0)]], worker_1=[at(1, USAGE[0], "then")])
    seen.scripts["worker 1"] = iter([[(1, USAGE[0]), (1, "then"), (3, 0)]])
    assert seen.run({"worker": 2})[0] == 0
    assert seen.lines() == [
        *((1, f"[worker 1] {line}") for line in (USAGE[0], "then")),
        *((2, f"[worker 0] {line}") for line in USAGE[:2]),
    ]


def test_what_a_run_says_that_goes_on(world, tmp_path):
    """Catches a run that seems to begin again, or to go on, and a warning where none is due."""
    run_files.metrics(tmp_path / "E/run", "worker-0", run_files.push(1, 1))
    seen = world(worker_0=[[(1, 0)], [(1, 0)]])
    seen.run({"worker": 1}, isolated=True)
    assert [line for _, line in seen.printed[1:]] == [
        "[tfrun] isolated: nothing outside this run can reach its tasks",
        "[tfrun] nothing was saved of the run that was here: it begins again",
    ]
    (tmp_path / "E/run/checkpoint").write_text('model_checkpoint_path: "model-70"\n')
    seen.printed.clear()
    seen.run({"worker": 1})
    assert [line for _, line in seen.printed] == [
        f"[tfrun] E: 1 worker, in {tmp_path}/E/run",
        "[tfrun] it goes on from update 70, the last that was saved",
    ]


def test_a_warning_of_checkpoints_comes_once(world, tmp_path):
    """Catches a line every half a second from the fifth minute on, and none."""
    seen = world(worker_0=[[(1000, 0)]])
    run_files.flags(tmp_path / "E/run", arguments={"checkpoint_steps": 70})
    os.utime(tmp_path / "E/run/flags.json", (8010, 8010))
    seen.run({"worker": 1})
    ((when, line),) = seen.lines()
    assert 310 <= when < 312 and "no checkpoint came in the last 5 min" in line


def test_the_loopback_is_needed_by_several_tasks(world, monkeypatch):
    """Catches a run of one task that needs it, and one of two that does not look."""
    seen = world(worker_0=[[(1, 0)]])

    def down():
        raise OSError("down")

    monkeypatch.setattr(scripted.cluster, "check_loopback", down)
    assert seen.run({"worker": 1})[0] == 0
    with pytest.raises(OSError, match="down"):
        seen.run({"worker": 2})


def test_each_role_has_its_colour(world, monkeypatch):
    """On a terminal. Catches two roles of one colour, and letters that stay coloured."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    jobs = {"ps": 1, "chief": 1, "worker": 1, "evaluator": 1}
    seen = world(**{f"{job}_0": [[(1, job), (2, 0)]] for job in jobs})
    seen.out.is_terminal = True
    seen.run(jobs)
    colours = {}
    for line in seen.texts() + [seen.printed[0][1]]:
        begin, name, text = line.split("[", 2)
        assert begin == "\033" and text.split("]")[1].startswith("\033[0m ")
        colours[text.split(" ")[0].split("]")[0]] = name
    assert len({*colours.values()}) == len(colours) == 5


def test_without_colours(world, monkeypatch):
    """Catches NO_COLOR that is not asked."""
    monkeypatch.setenv("NO_COLOR", "1")
    seen = world(worker_0=[[(1, "a"), (2, 0)]])
    seen.out.is_terminal = True
    seen.run({"worker": 1})
    assert seen.texts() == ["[worker 0] a"]


# What is no task of tfrun's own ------------------------------------------------------------------


def rank(number, *lines):
    """Returns lines as horovodrun marks those of a rank."""
    return [f"[{number}]<stderr>:{line}" for line in lines]


class Child:
    """A process below tfrun."""

    def __init__(self, name, killed):
        self.kill = lambda: killed.append(name)


@pytest.fixture
def horovodrun(tmp_path, monkeypatch):
    """Returns a function that starts a horovodrun that prints some lines and has a code."""
    children = []
    process = types.SimpleNamespace(
        children=lambda recursive=False: [*children] if recursive else children[:1]
    )
    monkeypatch.setattr(psutil, "Process", lambda *_: process)

    def begin(*lines, code=1):
        command = ["horovodrun", "--gloo", "-np", "3", "python", "train.py"]
        one = horovod.Horovodrun(command, tmp_path)
        one.killed = []
        before, after = Child("before", one.killed), Child("after", one.killed)
        children[:] = [before]
        monkeypatch.setattr(tasks.Task, "start", lambda _: None)
        monkeypatch.setattr(tasks.Task, "has_just_ended", lambda _: True)
        one.start()
        children.append(after)
        one.exit_code, one.process = code, types.SimpleNamespace(returncode=code)
        one.seen = [one.on_screen(line.encode()) for line in lines]
        one.log.close()
        return one

    return begin


def test_the_lines_of_ranks(horovodrun):
    """Catches a line under another rank's name, a rank's traceback as noise, and noise that is not.

    horovodrun's own traceback says nothing that the ranks' do not.
    """
    one = horovodrun(
        *["[1]<stdout>:done", *rank(0, *TRACEBACK, "Killed"), *TRACEBACK[:2], "its own words"],
        "[12]<stderr>:x",
        "[2]<stderr>:I0000 port.cc:153] oneDNN custom operations are on.",
        "Process 1 exit with status code 137.",
    )
    due = [("worker 1", b"done"), *(("worker 0", line.encode()) for line in TRACEBACK), None]
    assert one.seen == [
        *due,
        None,
        None,
        ("horovodrun", b"its own words"),
        ("worker 12", b"x"),
        None,
        None,
    ]


@pytest.mark.parametrize(
    "codes, words, wrong",
    [
        ([(1, 137), (0, 143)], "failed: worker 1 was killed by SIGKILL", False),
        ([(1, 129)], "failed: worker 1 was killed by SIGHUP", False),
        ([(2, 255)], "failed: worker 2 has exit code 255", False),
        ([(0, 2), (1, 1)], "failed: worker 0 has exit code 2", True),
        ([(1, 1), (0, 2)], "failed: worker 1 has exit code 1", False),
        ([], "failed with exit code 1", False),
    ],
)
def test_which_rank_has_failed(codes, words, wrong, horovodrun):
    """Catches the last rank for the first, a signal as a code, and a wrong flag as a failure."""
    one = horovodrun(*(f"Process {rank} exit with status code {code}." for rank, code in codes))
    assert one.exit_description() == words and one.found_a_wrong_flag() == wrong


def test_what_horovodrun_leaves_behind(horovodrun, monkeypatch):
    """Catches a child of another kind that is killed, and threads for one rank alone."""
    monkeypatch.setattr(scripted.cluster, "cores", lambda: 7)
    for name in "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS":
        monkeypatch.delenv(name, raising=False)
    one = horovodrun()
    assert one.has_just_ended() and one.killed == ["after"]
    assert one.env["OMP_NUM_THREADS"] == "2" and one.env["OUTPUT_DIR"] == str(one.path.parent)
    monkeypatch.setattr(tasks.Task, "has_just_ended", lambda _: False)
    assert not one.has_just_ended() and one.killed == ["after"]


@pytest.mark.parametrize(
    "command, n",
    [
        (["horovodrun", "-np", "2", "python"], 2),
        (["horovodrun", "--gloo", "--num-proc", "12"], 12),
        (["horovodrun", "-np", "x", "-np", "3"], 0),
        (["horovodrun", "python", "-np"], 0),
    ],
)
def test_the_number_of_ranks(command, n):
    """Catches a flag of another name, and a number that is none."""
    assert horovod.ranks(command) == n
    assert horovod.is_horovodrun("/usr/bin/horovodrun") and not horovod.is_horovodrun("horovod.py")


def test_a_program_without_notices(capsys, monkeypatch):
    """Catches: a notice that is shown, an error that is not, another code, and a cluster."""
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    lines = "oneDNN custom operations are on\\nan error: ${TF_CONFIG-no} $TF_CPP_MIN_LOG_LEVEL $A"
    command = ["sh", "-c", f'printf "{lines}\\n" >&2; read _; kill -TERM $$']
    assert without_notices.run(command, A="b") == 143
    assert capsys.readouterr().err == "an error: no 2 b\n"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    assert without_notices.run(["sh", "-c", "exit $((3 + TF_CPP_MIN_LOG_LEVEL))"]) == 3


def test_ctrl_c_ends_a_quiet_program(monkeypatch):
    """Catches a program that goes on, and the code of one that has ended by itself."""

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        without_notices,
        "known_errors",
        types.SimpleNamespace(NOTICE=types.SimpleNamespace(match=interrupted)),
    )
    assert without_notices.run(["sh", "-c", "echo a >&2; exec sleep 30"]) == 130


@pytest.mark.parametrize("path", [None, "a:b"])
def test_a_module_is_found(path, monkeypatch):
    """Catches another PYTHONPATH that is lost, or that comes first."""
    seen = []
    monkeypatch.setattr(
        without_notices, "run", lambda *command, **env: seen.append((*command, env)) or 7
    )
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path:
        monkeypatch.setenv("PYTHONPATH", path)
    assert without_notices.run_module("tfrun.x", "1", "2") == 7
    ((command, env),) = seen
    assert command[1:] == ["-m", "tfrun.x", "1", "2"]
    first, *rest = env["PYTHONPATH"].split(":", 1)
    assert rest == ([path] if path else []) and os.path.isfile(f"{first}/tfrun/cli.py")


@pytest.mark.parametrize(
    "jobs, text, words",
    [
        ({"worker": 2}, "", "can use them"),
        ({"ps": 1, "worker": 1}, "tf.distribute.experimental.rpc", "change the parameters"),
    ],
)
def test_what_a_stranger_can_do(jobs, text, words, world, tmp_path):
    """Catches a warning for a script of another kind, and an error where there is no script."""
    assert exposed.exposure_warning(["horovodrun", "-m", "x"]).endswith("can use them")
    (tmp_path / "train.py").write_text(text)
    seen = world(ps_0=[[(1, 0)]], worker_0=[[(1, 0)]], worker_1=[[(1, 0)]])
    seen.run(jobs)
    assert words in seen.printed[1][1]
