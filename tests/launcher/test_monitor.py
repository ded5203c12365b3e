"""What tfrun monitor computes and shows, and how far a run is, from files made by hand."""

import json
import os
import pathlib
import sys
import time
import types

import psutil
import pytest
import run_files
from records import record, task
from tfrun.commands import monitor
from tfrun.launch import cluster
from tfrun.runs import progress, registry

pytestmark = pytest.mark.usefixtures("own_records")


class Process:
    """A process as far as monitor asks it."""

    def __init__(self, pid, percent, mib, threads, *children):
        self.pid, self.percent, self.mib, self.threads = pid, percent, mib, threads
        self.below = children

    def children(self, recursive):
        below = [process for child in self.below for process in [child, *child.children(True)]]
        return below if recursive else [*self.below]

    def cpu_percent(self):
        return self.percent

    def memory_info(self):
        return types.SimpleNamespace(rss=self.mib << 20, vms=1 << 50)

    def num_threads(self):
        return self.threads

    def oneshot(self):
        return open(os.devnull)


def test_what_monitor_computes(monkeypatch):
    """Catches: a share of another task's limit or of the machine's free memory, one child's use,

    the figures of worker 1 for worker 10, a rate of a task that has ended by now, others' GPUs.
    """
    processes = {
        7: Process(7, 50.0, 100, 3, Process(71, 25.0, 30, 2, Process(72, 5.0, 20, 1))),
        8: Process(8, 10.0, 512, 4),
        os.getpid(): Process(9, 0, 0, 0),  # of tfrun
    }
    monkeypatch.setattr(registry, "process", lambda who: who and processes.get(who["pid"]))
    memory = types.SimpleNamespace(total=4 << 30, available=1 << 30, used=3 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    listed = ["0, 40, 1000", "1, 80, 3000", "2, 10, 10", "3, [N/A], [N/A]"]
    monkeypatch.setattr(cluster, "nvidia_smi", lambda *_, **__: listed)
    tasks = [
        task("r", "ps 0", process={"pid": 7, "start": "1 x"}),
        task("r", "worker 1", process={"pid": 8, "start": "1 x"}, gpus="0,1", memory_limit=1 << 30),
        task("r", "worker 10", gpus="2", state="failed", exit_code=1, restarts=2),
        task("r", "worker 2", gpus=None, state="waiting"),
    ]
    seen_record = record("r", "running", 4910, tasks=tasks)
    run_files.flags("r", steps=900)
    more = {"local_steps": 10}
    pushes = [run_files.push(t, t, 2, loss=5000.25 - t, **more) for t in (4980, 4998, 4999)]
    run_files.metrics("r", "worker-1", *pushes)
    run_files.metrics("r", "worker-10", *(run_files.push(t, t - 4000) for t in (4001, 4002, 4004)))
    run_files.metrics("r", "worker-11", run_files.push(4999, 3))
    first = monitor.snapshot(seen_record, {})
    assert [entry.get("cpu_percent") for entry in first["tasks"][:3]] == [None, None, None]
    looks = {process: process for process in processes.values()}
    seen = monitor.snapshot(seen_record, looks)
    names = ["cpu_percent", "memory_bytes", "threads", "pid", "memory_percent", "gpu_percent"]
    names += ["gpu_memory_bytes", "steps_per_second", "staleness", "loss", "update"]
    ps, one, ten, two, rank = ([entry.get(name) for name in names] for entry in seen["tasks"])
    assert ps == [80.0, 150 << 20, 6, 7, pytest.approx(100 * 150 / 4096)] + [None] * 6
    assert one == [10.0, 512 << 20, 4, 8, 50.0, 60.0, 4000 << 20, 20 / 5, 2.0, 1.25, 4999]
    assert ten == [None] * 7 + [2 / 3, 0.0, 0.5, 4]
    assert two == [None] * 11 and seen["tasks"][4]["task"] == "worker 11" and rank[-1] == 3
    assert (seen["update"], seen["steps"]) == (4999, 900)
    assert monitor.headline(seen) == "r: running for 2 min, update 4,999 of 900"
    texts = [text(seen["tasks"][1]) for _, text, _ in monitor.COLUMNS]
    assert texts == [
        *("worker 1", "running", "0", "10", "512 MiB of 1 GiB", "50.0", "60", "3.91 GiB"),
        *("4", "2.00", "1.25"),
    ]


def test_the_columns_of_monitor(monkeypatch, capsys):
    """Catches GPUs where there are none, and a column that is not there at its width."""
    monkeypatch.setattr(cluster, "nvidia_smi", lambda *_, **__: ["0, 40, 1000"])
    tasks = [task("r", gpus="0", state="done")]
    run_files.flags("r")
    seen = monitor.snapshot(record("r", "done", tasks=tasks), {})
    seen["tasks"][0]["gpus"] = ["0"]

    def titles(width):
        return [column.header for column in monitor.table(seen, width).renderables[1].columns]

    order = ["task", "state", "restarts", "CPU %", "memory", "memory %", "GPU %", "GPU memory"]
    order += ["steps/s", "staleness", "loss"]
    least = {0: 2, 30: 3, 36: 4, 45: 5, 50: 6, 55: 7, 60: 8, 70: 9, 80: 10, 90: 11}
    for width, number in least.items():
        names = titles(width)
        assert len(names) == number and names == [title for title in order if title in names]
        assert len(titles(width - 1)) == number - 1 or not width
    seen["tasks"][0]["gpus"] = []
    assert titles(200) == [title for title in order if not title.startswith("GPU")]


def test_monitor_ends_with_the_run(monkeypatch, capsys):
    """Catches: a look that never comes again, a second one with --once, no table at the end."""
    waited, states = [], iter(["running", "running", "done"])
    now = time.time

    def sleep(seconds):
        waited.append(seconds)
        record("r", next(states), tasks=[task("r")])

    monkeypatch.setattr(monitor, "time", types.SimpleNamespace(sleep=sleep, time=now))
    monkeypatch.setattr(cluster, "nvidia_smi", lambda *_, **__: [])
    record("r", "running", tasks=[task("r")])
    run_files.flags("r")
    assert monitor.command(["r", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["running", "running", "done"]
    assert waited == [1, 1, 1]
    states = iter(["running"])
    record("r", "running", tasks=[task("r")])
    assert monitor.command(["--once"]) == 0 and waited[3:] == [0.25]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "r: running for 67 min" and shown[1].split()[:2] == ["task", "state"]
    states = iter(["running"])
    assert monitor.command(["--once", "--json"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["run"] == "r" and len(text.splitlines()) > 20


def test_monitor_on_a_terminal(monkeypatch, capsys):
    """Catches: lines below each other, a table that stays as it was, JSON in a table."""
    seen = []

    class Live:
        def __init__(self, **_):
            self.is_open = False

        def __enter__(self):
            self.is_open = True

        def __exit__(self, *_):
            self.is_open = False

        def update(self, table, refresh):
            assert self.is_open and refresh
            seen.append(table.renderables[0].plain)

    states = iter(["running", "done"])
    now = time.time
    sleep = types.SimpleNamespace(sleep=lambda _: record("r", next(states)), time=now)
    monkeypatch.setattr(monitor, "time", sleep)
    monkeypatch.setattr(monitor, "Live", Live)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    record("r", "running")
    run_files.flags("r")
    assert monitor.command(["r"]) == 0
    assert seen == ["r: running for 67 min", "r: done after 2 min"]
    assert not capsys.readouterr().out.strip()
    for flag in "--once", "--json":
        states = iter(["done"])
        assert monitor.command(["r", flag]) == 0 and len(seen) == 2
        assert "done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "ended", "words"),
    [("done", 1090, "done after 2 min"), ("lost", None, "lost for at most 67 min")],
)
def test_the_headline_of_a_run_that_has_ended(state, ended, words):
    """Catches an age that goes on after the end."""
    tasks = [task("r"), task("r", "worker 1", state="done", exit_code=0)]
    seen = monitor.snapshot(record("r", state, 1000, ended, tasks=tasks), {})
    assert monitor.headline(seen) == f"r: {words}"
    states = [entry["state"] for entry in seen["tasks"]]
    assert states == ["lost" if state == "lost" else "running", "done"]


def test_how_far_a_run_is(tmp_path):
    """Catches: the last row for the largest, a test of fewer updates, a window that has no end."""
    run_files.flags("r", steps=50)
    rows = [run_files.push(4990 + k / 10, 2 * k, k % 4) for k in range(1, 80)]
    run_files.metrics(
        "r", "worker-0", *rows, run_files.test(4999, 158, 0.5, 1), run_files.push(4999, 3)
    )
    run_files.metrics(
        "r", "worker-1", run_files.test(4999.5, 158, 0.75, "nan"), run_files.test(5000, 2, 0, 9)
    )
    report = progress.of_run("r", 5000.0, ["worker-0"])
    assert (report["update"], report["steps"], report["test"]) == (158, 50, {"test_accuracy": 0.75})
    # In the last 5 s: k = 51 to 79 at 4995.1 to 4997.9, and the last row.
    assert report["tasks"]["worker-0"]["steps_per_second"] == pytest.approx(30 / 5)
    mean = (sum(k % 4 for k in range(51, 80)) + 0) / 30
    assert report["tasks"]["worker-0"]["staleness"] == pytest.approx(mean)
    assert report["tasks"]["worker-1"]["update"] is None  # it has tested, and made no update
    later = progress.of_run("r", 5200.0, ["worker-0"])["tasks"]["worker-0"]
    assert (later["steps_per_second"], later["staleness"], later["loss"]) == (0, None, 0.5)
    ended = progress.of_run("r", 9000.0)["tasks"]["worker-0"]  # 4994 to 4999
    assert ended["steps_per_second"] == pytest.approx(40 / 5)
    run_files.metrics(
        "r", "worker-1", run_files.push(1, 1, loss="nan"), run_files.push(2, 2, loss="nan")
    )
    diverged = progress.of_run("r", 2.0)["tasks"]["worker-1"]
    assert diverged["loss"] is None and diverged["steps_per_second"] == 1.0, "JSON has no NaN"


def test_a_long_file_is_read_from_its_end(monkeypatch):
    """Catches a rate that counts from a line cut in two, and all rows read."""
    rows = [run_files.push(4000 + k, k) for k in range(900)]
    run_files.metrics("r", "worker-0", *rows)
    monkeypatch.setattr(progress, "TAIL", len(rows[-1]) * 3 + 10)
    task_seen = progress.of_run("r", 4900.0)["tasks"]["worker-0"]
    assert (task_seen["update"], task_seen["steps_per_second"]) == (899, 1.0)


def test_the_age_of_a_checkpoint():
    """Catches: flags.json that counts after a checkpoint, another start's files, 300 s too many."""
    run_files.flags("r", arguments={"checkpoint_steps": 100})
    os.utime("r/flags.json", (1000, 1000))

    def warned(now, began=900):
        return progress.checkpoint_warning(pathlib.Path("r"), began, now)

    assert not warned(1299) and "5 min" in warned(1300) and "(now 100)" in warned(1300)
    assert not warned(1300, began=1001)
    open("r/checkpoint", "w").close()
    os.utime("r/checkpoint", (1200, 1200))
    assert not warned(1499) and "8 min" in warned(1680)
