"""tfrun doctor: each rule just inside and just outside of its threshold, on rows made by hand.

test_bottlenecks.py has runs with real bottlenecks.
"""

import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import psutil
import pytest
import run_files
import support
from records import record, task
from tfrun.commands import doctor
from tfrun.diagnosis import facts, gains, rules, usage
from tfrun.launch import stacks
from tfrun.launch import usage as recorder
from tfrun.runs.data import RunData
from tfrun.simulate import plan

BEGIN, SECONDS = 1000.0, 30.0  # of the time that counts


@pytest.fixture(autouse=True)
def short_simulations(monkeypatch):
    """A gain is simulated from fewer updates than in earnest."""
    monkeypatch.setattr(plan, "PUSHES", 600)
    monkeypatch.setattr(gains, "UPDATES", 300)


OWN = {"compute": 0.02, "way": 0.004, "waiting": 0.0, "size": 100_000, "cpu": 0.8, "queued": 0.05}


def worker_rows(own, begin, end, losses):
    """Returns the lines of a worker from one time to another, as its `own` says."""
    step = own["compute"] + own["way"] + own["waiting"]
    times = np.arange(begin, end, step)
    lines = [run_files.push(begin - 1, 1, pull_time=begin - 2, loss=losses[0])]  # it traces
    for i, pull in enumerate(times):
        if any(b < pull + step and pull < e for b, e in own.get("silences", [])):
            continue
        number = i + 2 if own.get("together") else 2 * i + own["offset"]
        line = run_files.push(
            pull + step,
            number,
            staleness=own.get("staleness", 0),
            pull_time=pull,
            wait_seconds=own["way"] + own["waiting"],
            bytes=own["size"],
            loss=losses[min(len(losses) - 1, int(len(losses) * i / len(times)))],
        )
        lines.append(line)
    return lines


def usage_lines(
    rates, begin, end, cores=2.0, own=2, machine=None, machine_cores=2, stopped=(), there=None
):
    """Returns usage.jsonl of tasks {name: (cpu, queued)}, cores in use from one time to another.

    cores: that the run may use; own: that each task may. machine: cores that all programs use.
    there: {name: (first second, last second)} of tasks that did not run all the time.
    """
    lines = []
    for second in np.arange(begin, end + 0.5, 1.0):
        past = second - begin
        tasks = {
            name: [cpu * past, queued * past, own, "stopped" if name in stopped else "sleeping"]
            for name, (cpu, queued) in rates.items()
            if (there or {}).get(name, (0, end))[0] <= past <= (there or {}).get(name, (0, end))[1]
        }
        busy = (sum(cpu for cpu, _ in rates.values()) if machine is None else machine) * past
        line = {"time": second, "cores": cores, "machine": busy, "machine_cores": machine_cores}
        lines.append(json.dumps({**line, "tasks": tasks}))
    return "\n".join(lines) + "\n"


def diagnosed(folder, losses=(1.0, 0.5, 0.3), ps=(0.3, 0.02), tests=(), more=None, **changes):
    """Returns the findings about a run with two workers; changes: {worker, or "each": {…}}.

    tests: of worker 0, (begin, end). more: for facts.of_run, "arguments", "together", or "usage",
    for usage_lines().
    """
    more = {"arguments": {}, "usage": {}, "together": False, **(more or {})}
    arguments = {"steps": 1000, "batch_size": 32, "learning_rate": 0.1, **more.pop("arguments")}
    run_files.flags(folder, ps=1, arguments=arguments)
    rates = {"ps-0": ps}
    used, is_synchronous = more.pop("usage"), more.pop("together")
    for k, name in enumerate(["worker-0", "worker-1"]):
        own = {**OWN, "offset": k, "together": is_synchronous}
        own |= {**changes.get("each", {}), **changes.get(name.replace("-", "_"), {})}
        rates[name] = own["cpu"], own["queued"]
        silences = [*own.get("silences", []), *(tests if k == 0 else [])]
        lines = worker_rows({**own, "silences": silences}, BEGIN, BEGIN + SECONDS, list(losses))
        if k == 0:
            for begin, end in tests:
                lines.append(run_files.test(end, 500, 0.9, 0.3, began=begin))
        if not own.get("absent"):
            run_files.metrics(folder, name, *lines)
    text = usage_lines(rates, BEGIN, BEGIN + SECONDS, **used)
    (folder / "usage.jsonl").write_text(text)
    known = facts.of_run(RunData.read(folder), usage.read(folder), **{"state": "done", **more})
    return rules.findings(known)


def limits(findings):
    return [finding.limit for finding in findings]


SLEEPY = {"cpu": 0.1, "queued": 0.0}
STEADY, SLOW = {"together": True}, {"compute": 0.02 * 1.6, "waiting": 0.0}
# {the rule: (what it says, inside of its threshold, outside of it)}
CASES = {
    "link: less than half of the time is on the way": (
        "the link of the ps",
        {"each": {"compute": 0.019, "way": 0.02, **SLEEPY}, "ps": (0.05, 0)},
        {"each": {"compute": 0.021, "way": 0.02, "cpu": 0.4}, "ps": (0.05, 0)},
    ),
    "link: no slower than a loopback": (
        "the link of the ps",
        {"each": {"compute": 0.001, "way": 0.0066, **SLEEPY}, "ps": (0.05, 0)},
        {"each": {"compute": 0.001, "way": 0.0063, **SLEEPY}, "ps": (0.05, 0)},
    ),
    "link: a ps that computes is none": (
        "the link of the ps",
        {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.5, 0.05)},
        {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.5, 0.15)},
    ),
    "straggler: not much slower": (
        "a straggler: worker 1",
        {"worker_1": {"compute": 0.0325}},
        {"worker_1": {"compute": 0.031}},
    ),
    "straggler: of a step made together": (
        "a straggler: worker 1",
        {"worker_0": {"waiting": 0.011}, "worker_1": {"compute": 0.031}, "more": STEADY},
        {"worker_0": {"waiting": 0.009}, "worker_1": {"compute": 0.029}, "more": STEADY},
    ),
    "input: the workers compute": (
        "input: the workers wait for their data",
        {"each": {"compute": 0.1, "cpu": 0.6}},
        {"each": {"compute": 0.1, "cpu": 0.65}},
    ),
    "input: they wait for a core": (
        "input: the workers wait for their data",
        {"each": {"compute": 0.1, "cpu": 0.5, "queued": 0.1}},
        {"each": {"compute": 0.1, "cpu": 0.5, "queued": 0.2}},
    ),
    "processor: other programs use little": (
        "processor time",
        {"each": {"cpu": 0.6, "queued": 0.9}, "more": {"usage": {"machine": 1.95}}},
        {"each": {"cpu": 0.6, "queued": 0.9}, "more": {"usage": {"machine": 1.85}}},
    ),
    "processor: a core is idle": (
        "processor time",
        {"each": {"cpu": 0.55, "queued": 0.9}, "more": {"usage": {"machine": 1.85}}},
        {"each": {"cpu": 0.5, "queued": 0.9}, "more": {"usage": {"machine": 1.75}}},
    ),
    "processor: a core that all share": (
        "processor time",
        {"each": {"cpu": 0.32, "queued": 0.6}, "more": {"usage": {"own": 1}}},
        {"each": {"cpu": 0.28, "queued": 0.6}, "more": {"usage": {"own": 1}}},
    ),
    "processor: each has a core of its own": (
        "processor time",
        {"each": {"cpu": 0.36, "queued": 0.6}, "more": {"usage": {"own": 1}}},
        {"each": {"cpu": 0.4, "queued": 0.6}, "more": {"usage": {"own": 1}}},
    ),
    "processor: as many cores as workers": (
        "processor time",
        {"each": {"cpu": 0.35, "queued": 0.6}, "more": {"usage": {"cores": 1, "machine_cores": 1}}},
        {"each": {"cpu": 0.8, "queued": 0.6}},
    ),
    "processor: a quota that is not used": (
        "processor time",
        {"each": {"cpu": 0.78, "queued": 0.0}, "more": {"usage": {"own": 0.9}}},
        {"each": {"cpu": 0.75, "queued": 0.0}, "more": {"usage": {"own": 0.9}}},
    ),
    "processor of the ps: it has time left": (
        "processor time of the ps",
        {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.9, 0.0)},
        {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.8, 0.0)},
    ),
    "processor of the ps: its threads run": (
        "processor time of the ps",
        {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.2, 0.6)},
        {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.3, 0.5)},
    ),
    "tests: a small share": (
        "a chief that tests too often",
        {"tests": [(BEGIN + 3 * i, BEGIN + 3 * i + 0.8) for i in range(1, 10)]},
        {"tests": [(BEGIN + 3 * i, BEGIN + 3 * i + 0.7) for i in range(1, 10)]},
    ),
    "idle: a short silence": (
        "a worker that does nothing: worker 1",
        {"worker_1": {"silences": [(BEGIN + 10, BEGIN + 17.7)]}},
        {"worker_1": {"silences": [(BEGIN + 10, BEGIN + 17.3)]}},
    ),
    "idle: it has left": (
        "a worker that does nothing: worker 1",
        {"worker_1": {"silences": [(BEGIN + 20, BEGIN + 99)]}},
        {
            "worker_1": {"silences": [(BEGIN + 20, BEGIN + 99)]},
            "more": {"usage": {"there": {"worker-1": (0, 21)}}},
        },
    ),
    "idle: it has just joined": (
        "a worker that does nothing: worker 1",
        {"worker_1": {"absent": True}, "more": {"usage": {"there": {"worker-1": (21, 30)}}}},
        {"worker_1": {"absent": True}, "more": {"usage": {"there": {"worker-1": (24, 30)}}}},
    ),
    "idle: it was slow to begin": (
        "a worker that does nothing: worker 1",
        {"worker_1": {"silences": [(BEGIN, BEGIN + 8)]}},
        {
            "worker_1": {"silences": [(BEGIN, BEGIN + 12)]},
            "more": {"usage": {"there": {"worker-1": (2, 30)}}},
        },
    ),
    "idle: it has made an update": (
        "a worker that does nothing: worker 1",
        {"worker_1": {"absent": True}},
        {},
    ),
    "learning rate: the loss is no number": (
        "a learning rate too high",
        {"losses": [1.0, 0.5, np.nan]},
        {"losses": [1.0, 0.5, 0.5]},
    ),
    "learning rate: the loss rises again": (
        "a learning rate too high",
        {"losses": [1.0, *[0.4] * 9, *[0.61] * 10]},
        {"losses": [1.0, *[0.4] * 9, *[0.59] * 10]},
    ),
    "learning rate: the loss hardly falls": (
        "a learning rate too low",
        {"losses": np.linspace(1, 0.91, 50)},
        {"losses": np.linspace(1, 0.87, 50)},
    ),
    "learning rate: the staleness counts": (
        "a learning rate too high for the staleness",
        {"losses": [1.0, *[0.4] * 9, *[0.7] * 10], "each": {"staleness": 1}},
        {"losses": [1.0, *[0.4] * 9, *[0.5] * 10], "each": {"staleness": 1}},
    ),
    "hang: the run goes on": (
        "a hang",
        {"more": {"state": "running", "now": BEGIN + SECONDS + 11}, "each": SLEEPY, "ps": (0, 0)},
        {
            "more": {"state": "running", "now": BEGIN + SECONDS + 9},
            "each": {"cpu": 0.7},
            "ps": (0, 0),
        },
    ),
    "hang: in the middle": (
        "a hang",
        {"each": {"silences": [(BEGIN + 10, BEGIN + 17.7)]}},
        {"each": {"silences": [(BEGIN + 10, BEGIN + 17.3)]}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_threshold(case, tmp_path):
    """Catches a rule that says nothing, one that always speaks, and one that says another's."""
    expected, inside, outside = CASES[case]
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    assert limits(diagnosed(tmp_path / "inside", **inside))[:1] == [expected]
    assert limits(diagnosed(tmp_path / "outside", **outside)) == []


def test_a_hang_that_began_long_ago(tmp_path):
    """Catches a live run whose last minute has no update, and that blames a worker for it."""
    more = {"state": "running", "now": BEGIN + SECONDS + 200}
    assert limits(diagnosed(tmp_path, more=more)) == ["a hang"]


def test_a_run_that_goes_on_from_a_checkpoint(tmp_path):
    """Catches a loss that is compared with the first one after the restart."""
    losses = np.linspace(0.3, 0.29, 50)
    assert limits(diagnosed(tmp_path, losses=losses)) == ["a learning rate too low"]
    for name in "worker-0", "worker-1":
        path = tmp_path / f"metrics-{name}.csv"
        header, rows = path.read_text().split("\n", 1)
        before = worker_rows({**OWN, "offset": 0}, BEGIN - 90, BEGIN - 60, [1.0, 0.6])
        path.write_text("\n".join([header, *before, "# restart", rows]))
    known = facts.of_run(RunData.read(tmp_path), usage.read(tmp_path), "done")
    assert limits(rules.findings(known)) == []


def test_advice_that_a_script_has_no_flag_for(tmp_path):
    """Catches --backup-workers where the script refuses it."""
    slow = {"worker_0": {"waiting": 0.011}, "worker_1": {"compute": 0.031}}
    for arguments, expected in ({"backup_workers": 0}, True), ({}, False):
        folder = tmp_path / str(expected)
        folder.mkdir()
        (finding,) = diagnosed(folder, more={**STEADY, "arguments": arguments}, **slow)
        assert ("--backup-workers" in finding.change) is expected


def test_a_late_gradient_does_nothing(tmp_path):
    """Catches a worker whose gradients are dropped, which makes as many updates as the others."""
    for share, expected in (0.85, ["a worker that does nothing: worker 1"]), (0.75, []):
        for k, name in enumerate(["worker-0", "worker-1"]):
            rows = [
                run_files.push(
                    BEGIN + i / 10,
                    i + 1,
                    staleness=int(k and i % 100 < 100 * share),
                    pull_time=BEGIN + i / 10 - 0.08,
                    wait_seconds=0.004,
                    loss=1 / (1 + i / 100),
                )
                for i in range(301)
            ]
            run_files.metrics(tmp_path, name, *rows)
        arguments = {"steps": 300, "backup_workers": 1}
        run_files.flags(tmp_path, arguments=arguments)
        assert limits(rules.findings(facts.of_run(RunData.read(tmp_path), None))) == expected


def test_where_nobody_watched(tmp_path):
    """Catches a rule that takes unknown processor time for none, in a run of another launcher."""
    (tmp_path / "link").mkdir()
    sleepy = {"each": {"compute": 0.001, "way": 0.022}}
    for folder, size, expected in (("link", 1e5, ["the link of the ps"]), ("fast", 1e6, [])):
        (tmp_path / folder).mkdir(exist_ok=True)
        changes = {"each": {**sleepy["each"], "size": size}}
        diagnosed(tmp_path / folder, **changes)
        (tmp_path / folder / "usage.jsonl").unlink()
        known = facts.of_run(RunData.read(tmp_path / folder), None)
        assert limits(rules.findings(known)) == expected
    diagnosed(tmp_path / "link", each={"compute": 0.1})
    (tmp_path / "link" / "usage.jsonl").unlink()
    assert rules.findings(facts.of_run(RunData.read(tmp_path / "link"), None)) == []


def test_the_gains(tmp_path):
    """By hand, of times that do not vary. Catches a gain of another change, and its inverse."""
    for name in "link", "straggler", "tests", "input":
        (tmp_path / name).mkdir()
    (link,) = diagnosed(
        tmp_path / "link", each={"compute": 0.01, "way": 0.09, **SLEEPY}, ps=(0.05, 0)
    )
    support.within("gain, ten times the local steps", 10 * 0.1 / 0.19, link.gain, 0.1)
    assert "local steps" in link.change
    (straggler,) = diagnosed(tmp_path / "straggler", worker_1={"compute": 0.068})
    support.within("gain, without a straggler", 2 / (1 + 1 / 3), straggler.gain, 0.1)
    every = [(BEGIN + i + 0.5, BEGIN + i + 1) for i in range(29)]
    (tests,) = diagnosed(tmp_path / "tests", tests=every)
    support.within("gain, without tests", 2 / 1.5, tests.gain, 0.1)
    (data,) = diagnosed(tmp_path / "input", each={"compute": 0.096, "cpu": 0.48})
    support.within("gain, without input", 0.1 / 0.052, data.gain, 0.1)


def test_a_slow_start(tmp_path):
    """Catches a start that counts as training, or that waits for a core, or for the others."""
    rates = {"ps-0": (0.1, 0), "worker-0": (1.0, 0), "worker-1": (1.0, 0)}
    for idle, expected in (12, ["input: the start"]), (8, []):
        run_files.flags(tmp_path)
        own = {**OWN, "offset": 0}
        for k, name in enumerate(["worker-0", "worker-1"]):
            lines = worker_rows({**own, "offset": k}, BEGIN, BEGIN + 15, [1, 0.4])
            run_files.metrics(tmp_path, name, *lines)
        first = BEGIN - 1 - idle  # one row comes a second before the others
        lines = []
        for second in np.arange(first, BEGIN + 16):
            past = max(0.0, second - BEGIN + 1)
            tasks = {n: [cpu * past, q * past, 2, "sleeping"] for n, (cpu, q) in rates.items()}
            line = {"time": second, "cores": 2, "machine": 0, "machine_cores": 2, "tasks": tasks}
            lines.append(json.dumps(line))
        (tmp_path / "usage.jsonl").write_text("\n".join(lines) + "\n")
        known = facts.of_run(
            RunData.read(tmp_path), usage.read(tmp_path), "done", first, BEGIN + 15
        )
        assert limits(rules.findings(known)) == expected


def test_what_is_recorded(tmp_path, monkeypatch):
    """Catches: a counter that falls at a restart, a line too many, and one of an ended task.

    Also what threads have waited for a core: not added up, of one thread alone, or in nanoseconds.
    """
    clock = types.SimpleNamespace(now=0.0)
    clock.monotonic, clock.time = (lambda: clock.now), (lambda: 5000 + clock.now)
    monkeypatch.setattr(recorder, "time", clock)
    used, searches = {1: 0.0, 2: 0.0}, []

    def own_proc(path):
        return tmp_path / path.removeprefix("/")

    def wait_for_a_core(pid, *seconds):
        for thread, waited in enumerate(seconds, 100):
            path = tmp_path / "proc" / str(pid) / "task" / str(thread) / "schedstat"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"7 {waited}000000000 8\n")

    class Process:
        def __init__(self, pid):
            if pid not in used:
                raise psutil.NoSuchProcess(pid)
            self.pid = pid

        def children(self, recursive):
            searches.append(self.pid)
            return []

        def status(self):
            return "stopped" if self.pid == 2 else "running"

        def cpu_times(self):
            return used[self.pid], 0.25, 0, 0, 99

        def cpu_affinity(self):
            return [0, 1, 2]

    monkeypatch.setattr(recorder.psutil, "Process", Process)
    monkeypatch.setattr(recorder, "pathlib", types.SimpleNamespace(Path=own_proc))
    task = types.SimpleNamespace(name="worker 0", process=None, running=lambda: True, is_local=True)
    watch = recorder.Recorder(tmp_path)
    for second, pid, seconds in (0, 1, 1), (0.5, 1, 2), (1, 1, 3), (2, 2, 1), (3, 9, 0), (4, 2, 4):
        clock.now, task.process = second, types.SimpleNamespace(pid=pid)
        used[pid] = seconds
        wait_for_a_core(pid, second, 2 * second)
        if pid == 9:
            used.pop(pid)
        watch.record([task])
    seen = usage.read(tmp_path)
    own = seen.tasks["worker-0"]
    assert seen.time.tolist() == [5000, 5001, 5002, 5003, 5004]
    assert own.time.tolist() == [5000, 5001, 5002, 5004]
    assert own.cpu.tolist() == [1.25, 3.25, 4.5, 7.5] and own.cores.tolist() == [3] * 4
    # Of two threads, which have waited 3 s a second; the second start begins with what is known.
    assert own.queued.tolist() == [0, 3, 9, 15]
    for second in range(5, 5 + 2 * recorder.LOOKS):
        clock.now = second
        watch.record([task])
    assert searches == [1, 2, 2, 2]  # at the start of each process, and at each tenth look
    assert own.states == ["running", "running", "stopped", "stopped"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_stacks_of_a_task(tmp_path):
    """Catches a process that the signal ends, a dump that is cut short, and an older one.

    The task waits inside of C. Its own sitecustomize is imported as well.
    """
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins\nbuiltins.own = 1\n")
    (tmp_path / "task.py").write_text(
        "import sys, threading\n"
        "def reader():\n    print(own, sys.path[0], flush=True)\n    threading.Event().wait()\n"
        "reader()\n"
    )
    path = stacks.path_of(tmp_path / "worker-0.log")
    env = {**os.environ, **stacks.variables(tmp_path, "worker 0", str(tmp_path / "own"))}
    command = [sys.executable, tmp_path / "task.py"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"1 {tmp_path}\n"
            first, second = (stacks.ask(psutil.Process(process.pid), path) for _ in range(2))
            assert process.poll() is None
        finally:
            process.kill()
    # Lines at the begin, of a thread whose name is cut off, do not count.
    (line,) = stacks.summary('  File "cut.py", line 1 in cut\n' + second)
    assert "reader (task.py:4)" in line and "<module> (task.py:5)" in line
    assert stacks.last_dump(path) == second and path.read_text() == first + second
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "own")}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline()
            assert stacks.ask(psutil.Process(process.pid), path) is None and process.poll() is None
        finally:
            process.kill()
    assert path.exists()
    (tmp_path / ".stacks-ps-0").touch()
    stacks.remove_empty(tmp_path)
    assert [p.name for p in tmp_path.glob(".stacks-*")] == [".stacks-worker-0"]


@pytest.mark.usefixtures("own_records")
def test_the_command(capsys, monkeypatch):
    """Catches a finding that is not printed, and JSON that no program reads."""
    monkeypatch.setattr(doctor.cluster, "gpus", list)
    folder = pathlib.Path("r")
    folder.mkdir()
    sleepy = {"each": {"compute": 0.001, "way": 0.02, **SLEEPY}, "ps": (0.05, 0)}
    (link,) = diagnosed(folder, **sleepy)
    record("r", "done", started=BEGIN - 1, ended=BEGIN + SECONDS, tasks=[task("r")])
    assert doctor.command(["r", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["findings"] == [link._asdict()] and seen["stacks"] == {}
    assert seen["shares"]["worker-1"]["on the way"] == pytest.approx(0.95, abs=0.01)
    assert doctor.command(["r"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == f"limited by {link.limit}" and lines[3].endswith(link.evidence)
    assert f"({link.gain:.2g} times as fast)" in lines[4]
    (folder / ".stacks-worker-0").write_text('Thread 0x1\n  File "/a/x.py", line 3 in f\n')
    diagnosed(folder)
    assert doctor.command(["r", "--stacks"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "nothing limits it but its own work",
        "worker 0: its threads are in",
        "  f (x.py:3)",
    ]
