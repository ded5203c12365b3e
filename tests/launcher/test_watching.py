"""tfrun's commands about runs: status, monitor, logs, kill, tensorboard; small scripts as tasks."""

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest
import support
from small_scripts import TFRUN, run, start, tasks, write
from support import tfrun
from tfrun.commands import common, tensorboard
from tfrun.commands.monitor import resources
from tfrun.launch import without_notices
from tfrun.runs import progress, registry

SLEEP = "print('ready', flush=True); time.sleep(60)\n"
BUSY = """
held = bytearray(200 << 20) if index else None
print('ready', flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    index and time.sleep(0.1)
"""


@pytest.fixture(autouse=True)
def own_records(tmp_path, monkeypatch):
    """Each test begins without a record."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def status():
    """{run: what status says of it}"""
    done = tfrun("status", "--json")
    assert done.returncode == 0, done.stderr
    return {run["run"]: run for run in json.loads(done.stdout)}


def states():
    """Returns the states of all runs, sorted."""
    return sorted(seen["state"] for seen in status().values())


def monitor(*run, **env):
    """Returns what `tfrun monitor --once --json` says of a run."""
    done = tfrun("monitor", *run, "--once", "--json", **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def record(tmp_path):
    """The record of a run that has ended: (its path, its content)."""
    write(tmp_path, "")
    run(tmp_path)
    (path,) = registry.folder().glob("*.json")
    return path, json.loads(path.read_text())


@contextlib.contextmanager
def running(folder, body=SLEEP, *flags, **env):
    """A run whose tasks have all printed `ready`; ended afterwards. Yields tfrun's process."""
    write(folder, body)
    flags = flags or ("--ps", "1", "--workers", "2")
    process, expected = start(folder, *flags, **env), sum(map(int, flags[1::2]))
    try:
        logs = folder / "run"
        support.wait_until(
            lambda: sum("ready" in log.read_text() for log in logs.glob("*.log")) >= expected,
            *(20, "ready"),
        )
        yield process
    finally:
        for task in tasks(folder):
            task.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=support.patience(20))
        for task in tasks(folder):
            task.kill()


def test_status_of_runs_that_live_and_that_have_ended(tmp_path):
    """Two at once; one done, one failed, one stopped by Ctrl-C, one by its time-out."""
    with running(tmp_path / "a") as first, running(tmp_path / "b"):
        seen = status()
        assert seen.keys() == {"a/run", "b/run"} and states() == ["running", "running"]
        assert (
            seen["a/run"]["example"] == "train" and abs(time.time() - seen["a/run"]["started"]) < 60
        )
        assert 0 < seen["a/run"]["age_seconds"] < 60
        first.send_signal(signal.SIGINT)
        first.wait(support.patience(20))
    for name, body, flags in [
        ("good", "", []),
        ("bad", "sys.exit(3)", []),
        ("late", "time.sleep(60)", ["--timeout", "1"]),
    ]:
        write(tmp_path / name, body)
        run(tmp_path / name, *flags)
    ends = {name: (entry["state"], entry["exit_code"]) for name, entry in status().items()}
    assert ends == {
        "a/run": ("stopped", 130),
        "b/run": ("stopped", 143),
        "good/run": ("done", 0),
        "bad/run": ("failed", 3),
        "late/run": ("stopped", 124),
    }
    lines = tfrun("status").stdout.splitlines()
    assert len(lines) == 6 and "failed (3)" in lines[4]
    newest = tfrun("status", "-n", "2").stdout.splitlines()
    assert [line.split()[0] for line in newest] == ["run", "bad/run", "late/run"]
    assert lines[5].split()[:2] == ["late/run", "stopped"]


def test_a_result_in_status(tmp_path):
    """It comes from the evaluation after the most updates; other scripts' files hide nothing."""
    body = """
import run_files
rows = [run_files.test(time.time(), 7, 0.25, 1.5), run_files.test(time.time(), 5, 0.75, 1.5)]
run_files.metrics(os.environ["OUTPUT_DIR"], "worker-0", *rows)
"""
    with running(tmp_path / "live", body + SLEEP):
        seen = status()["live/run"]
        assert (seen["accuracy"], seen["update"]) == (0.25, 7)
    (tmp_path / "live/run/result.json").write_text("[]")
    (tmp_path / "live/run/flags.json").write_text("[]")
    (tmp_path / "live/run/metrics-worker-1.csv").write_text("push_time,global_step\n1,inf\n")
    assert status()["live/run"]["accuracy"] == 0.25


def cpu_seconds(*processes):
    """Returns the processor time that these processes have used, without that of their children."""
    times = [process.cpu_times() for process in processes]
    return sum(cpu.user + cpu.system for cpu in times)


def compare_shares(families, seconds=1.0):
    """Compares the shares that monitor computes with the times that the kernel counts.

    families: {task: its processes}. The second look comes when they have used that many seconds of
    processor time together, however long that takes on a busy machine. Returns {task: share}.
    """

    def measure():
        before = {task: (time.monotonic(), cpu_seconds(*own)) for task, own in families.items()}
        used = resources(common.find(None), processes)
        after = {task: (time.monotonic(), cpu_seconds(*own)) for task, own in families.items()}
        return before, {task: one["cpu_percent"] for task, one in used.items()}, after

    processes = {}
    first, shares, began = measure()
    assert shares == dict.fromkeys(families), "a first look knows no share"
    everybody = [process for own in families.values() for process in own]
    until = cpu_seconds(*everybody) + seconds
    support.wait_until(lambda: cpu_seconds(*everybody) > until, 60, "computed")
    ended, shares, last = measure()
    for task, own in families.items():
        tick = 0.02 * len(own)  # seconds; the kernel counts in hundredths
        least = (ended[task][1] - began[task][1] - tick) / (last[task][0] - first[task][0])
        most = (last[task][1] - first[task][1] + tick) / (ended[task][0] - began[task][0])
        assert 100 * least - 0.2 <= shares[task] <= 100 * most + 0.2, (task, shares, least, most)
    return shares


def test_monitor_shows_what_psutil_sees(tmp_path):
    """A task that computes, one that sleeps and holds 200 MiB; --once, as JSON."""
    with running(tmp_path, BUSY, "--workers", "2"):
        own = {task: support.task(tmp_path / "run", "worker", task) for task in (0, 1)}
        seen = monitor()
        assert [task["task"] for task in seen["tasks"]] == ["worker 0", "worker 1"]
        for number, task in enumerate(seen["tasks"]):
            process = own[number]
            assert task["pid"] == process.pid and task["state"] == "running"
            memory = process.memory_info().rss
            assert abs(task["memory_bytes"] - memory) < 0.05 * memory
            total = psutil.virtual_memory().total
            assert task["memory_percent"] == pytest.approx(100 * task["memory_bytes"] / total)
            assert task["cpu_percent"] >= 0  # of the time between two looks, also with --once
        assert seen["tasks"][1]["memory_bytes"] > 200 << 20 > seen["tasks"][0]["memory_bytes"]
        shares = compare_shares({f"worker {number}": [own[number]] for number in own})
        assert shares["worker 0"] > 2 * shares["worker 1"]


FAMILY = """
import subprocess
code = "held = bytearray(150 << 20); print('ready', flush=True)\\nwhile True: pass"
subprocess.run([sys.executable, "-c", code])
"""


def test_monitor_counts_the_children_of_a_task(tmp_path):
    """The task sleeps; its child computes, and holds 150 MiB."""
    with running(tmp_path, FAMILY, "--workers", "1"):
        family = tasks(tmp_path)
        assert len(family) == 2
        (seen,) = monitor()["tasks"]
        memory = sum(process.memory_info().rss for process in family)
        assert abs(seen["memory_bytes"] - memory) < 0.05 * memory
        assert seen["threads"] == sum(process.num_threads() for process in family)
        compare_shares({"worker 0": family})


NVIDIA_SMI = """#!/bin/sh
case "$1" in
    -L) echo 'GPU 0: A (UUID: 1)'; echo 'GPU 1: A (UUID: 2)';;
    *) echo '0, 37, 1024'; echo '1, 90, 2048';;
esac
"""


def test_monitor_of_gpus(tmp_path):
    """With a stand-in for nvidia-smi, which answers as the real one does."""
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = {"PATH": "{}:{}".format(tmp_path, os.environ["PATH"])}
    with running(tmp_path, SLEEP, "--ps", "1", "--workers", "2", **path):
        seen = monitor(**path)["tasks"]
        gpus = [(task["gpu_percent"], task["gpu_memory_bytes"]) for task in seen]
        assert gpus == [(None, None), (37, 2**30), (90, 2**31)]
        table = tfrun("monitor", "--once", COLUMNS="150", **path).stdout
        assert "GPU %" in table and "2 GiB" in table


def rows(*pushes):
    """Rows of metrics, from (time, local steps, staleness, loss)."""
    return [
        {"push_time": at, "local_steps": n, "staleness": late, "loss": loss, "global_step": number}
        for number, (at, n, late, loss) in enumerate(pushes, 1)
    ]


def test_rates_by_hand():
    """The rate of a live task falls when it pushes no more; that of another is its last."""
    pushes = rows((100, 10, 0, 3.0), (101, 10, 4, 2.0), (102, 10, 0, 1.0), (103, 10, 2, 0.5))
    live = progress.of_task(pushes, now=104.0, live=True)
    assert live == {"steps_per_second": 30 / 4, "staleness": 1.5, "loss": 0.5, "update": 4}
    later = progress.of_task(pushes, now=107.0, live=True)
    assert (later["steps_per_second"], later["staleness"]) == (10 / 5, 2.0)
    assert progress.of_task(pushes, now=200.0, live=True)["steps_per_second"] == 0
    assert progress.of_task(pushes, now=200.0, live=False)["steps_per_second"] == 30 / 3
    assert progress.of_task([], now=1.0, live=True)["loss"] is None
    diverged = rows((100, 1, 0, 3.0), (101, 1, 0, float("nan")))
    assert progress.of_task(diverged, now=101.0, live=True)["loss"] is None, "JSON has no NaN"


def test_terminals_of_any_width(tmp_path):
    """Nothing is lost at any width: the names are folded, not cut."""
    with running(tmp_path, SLEEP, "--workers", "1"):
        for columns in 20, 40, 80, 200:
            for command in ["status"], ["monitor", "--once"]:
                done = tfrun(*command, COLUMNS=str(columns))
                lines, text = done.stdout.splitlines(), "".join(done.stdout.split())
                assert done.returncode == 0 and max(map(len, lines)) <= columns, done.stderr
                if command == ["status"]:
                    name = "".join(line.split()[0] for line in lines[1:])
                    assert "running" in text
                    assert name == tmp_path.name + "/run" or columns < 40
                else:
                    assert "worker0running" in text and ("CPU%" in text or columns < 30)


def test_a_live_table_on_a_terminal(tmp_path):
    """It is drawn anew until the run has ended, and then ends itself."""
    with running(tmp_path, SLEEP) as process:
        ours, theirs = pty.openpty()
        env = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
        live = subprocess.Popen(
            [*TFRUN, "monitor"], cwd=support.ROOT, stdin=theirs, stdout=theirs, env=env
        )
        os.close(theirs)
        output = b""
        while output.count(b"worker 1") < 2:  # a second table
            output += os.read(ours, 10000)
        process.terminate()
        with contextlib.suppress(OSError):  # it closes its side
            while part := os.read(ours, 10000):
                output += part
        assert live.wait(support.patience(10)) == 0
        os.close(ours)
        assert b"stopped" in output.split(b"worker 1")[-1]


@pytest.mark.long
def test_monitor_of_runs_that_have_ended(tmp_path):
    write(tmp_path, "sys.exit(4 * index)")
    run(tmp_path, "--workers", "2")
    seen = json.loads(tfrun("monitor", "--json").stdout)
    assert (seen["state"], seen["exit_code"]) == ("failed", 4)
    ends = {task["task"]: (task["state"], task["exit_code"]) for task in seen["tasks"]}
    assert ends["worker 1"] == ("failed", 4) and ends["worker 0"][0] in ("done", "stopped")
    write(tmp_path / "again", "time.sleep(3 if index else 0); sys.exit(index)")
    process = start(tmp_path / "again", "--workers", "2", "--restarts", "1")
    try:
        support.wait_until(
            lambda: [task["restarts"] for task in monitor()["tasks"]] == [0, 1], 20, "restarted"
        )
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_kill_ends_a_run(tmp_path):
    """Nothing is left within 5 s, though tasks ignore SIGTERM; a second kill finds nothing."""
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    with running(tmp_path, stubborn + SLEEP) as process:
        began = time.monotonic()
        done = tfrun("kill", str(tmp_path / "run"))
        assert done.returncode == 0 and "is stopped" in done.stdout, done.stderr
        assert time.monotonic() - began < support.patience(5)
        assert not tasks(tmp_path) and process.wait(5) == 143
        (seen,) = status().values()
        assert seen["state"] == "stopped" and seen["ended"]
        again = tfrun("kill", seen["run"])
        assert again.returncode == 1 and "has ended already: stopped" in again.stderr


@pytest.mark.long
def test_kill_ends_a_launcher_that_hangs(tmp_path):
    with running(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        done = tfrun("kill", tmp_path.name)
        assert done.returncode == 0 and process.wait(5) == -signal.SIGKILL, done.stderr
        support.wait_until(lambda: not tasks(tmp_path), 5, "ended")
        assert states() == ["stopped"]


CHILD = """
import subprocess
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])
"""


def test_a_killed_launcher_is_lost_and_kill_cleans(tmp_path):
    """Its watchdog is killed, too, so that what a task has started lives on."""
    with running(tmp_path, CHILD + SLEEP, "--workers", "1") as process:
        children = psutil.Process(process.pid).children()
        (watchdog,) = [p for p in children if "watchdog" in support.command_line(p)]
        watchdog.kill()
        process.kill()
        process.wait()
        support.wait_until(lambda: len(tasks(tmp_path)) == 1, 5, "the task has ended")
        (orphan,) = tasks(tmp_path)
        assert "time.sleep(99)" in str(orphan.cmdline())
        (seen,) = status().values()
        assert seen["state"] == "lost"
        assert [task["state"] for task in monitor()["tasks"]] == ["lost"]
        done = tfrun("kill", "--json", seen["run"])
        assert json.loads(done.stdout)["processes_killed"] == [orphan.pid], done.stderr
        assert not tasks(tmp_path) and states() == ["stopped"]


@pytest.mark.long
def test_records_that_are_stale_or_cut_short(tmp_path, record):
    """Another process with the same id is not the run's; a half-written record is none."""
    path, content = record
    me = psutil.Process()
    mine = registry.identity(me.pid)
    for began, state in (mine["start"], "running"), ("1" + mine["start"], "lost"):
        who = {"pid": me.pid, "start": began}
        path.write_text(json.dumps({**content, "state": "running", "tfrun": who}))
        assert states() == [state]
    path.write_text(path.read_text()[:-20])
    ((name, seen),) = status().items()
    assert seen["state"] == "unreadable"
    for command in ("monitor", "logs", "trace", "tensorboard"):
        done = tfrun(command, name)
        assert done.returncode == 2 and "cannot be read; tfrun kill removes it" in done.stderr
    run(tmp_path)  # the same directory: it keeps a name of its own
    assert states() == ["done", "unreadable"]
    assert tfrun("kill", name).returncode == 0
    assert states() == ["done"]


def test_a_record_goes_with_its_run_directory(tmp_path, record):
    assert len(status()) == 1
    shutil.rmtree(tmp_path / "run")
    assert not status() and not record[0].exists()


def test_odd_names(tmp_path):
    """What means something to a file's name or to rich is shown as it is, and is found."""
    folder = tmp_path / "a--b {old} :c"
    write(folder, "print('hello')")
    run(folder)
    (name,) = status()
    assert name == "a--b {old} :c/run" and name in tfrun("status").stdout
    assert tfrun("logs", name).stdout == "hello\n"


def test_what_is_not_of_the_run_is_not_killed(tmp_path, record):
    """A group that has the id of a task of long ago, as after a restart of the machine."""
    path, content = record
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        for began in "1", 1700000000.25:
            who = {"pid": other.pid, "start": began}
            task = {**content["tasks"][0], "process": who}
            gone = {"pid": other.pid, "start": began}
            changes = {"state": "running", "tfrun": gone, "tasks": [task]}
            path.write_text(json.dumps({**content, **changes}))
            assert tfrun("kill", tmp_path.name).returncode == 0 and other.poll() is None
    finally:
        other.kill()
        other.wait()


def read_logs(folder):
    """Returns {path: its bytes} of the logs of a run."""
    return {path: path.read_bytes() for path in (folder / "run").glob("*.log")}


def test_a_run_directory_has_one_run_at_a_time(tmp_path):
    """The second ends with one line, and the first one's files stay as they are."""
    with running(tmp_path) as first:
        support.wait_until(  # a line may come in two pieces
            lambda: all(text.endswith(b"\n") for text in read_logs(tmp_path).values()), 10, "lines"
        )
        logs = read_logs(tmp_path)
        second = start(tmp_path, "--workers", "1")
        try:
            line = second.stdout.readline()
            assert f"a run goes on in {tmp_path / 'run'}: wait for it" in line
            assert second.wait(support.patience(20)) == 2 and not second.stdout.read()
        finally:
            second.terminate()
            second.communicate()
        assert read_logs(tmp_path) == logs
        assert states() == ["running"]
        first.kill()
        support.wait_until(lambda: not tasks(tmp_path), 10, "an end of the tasks")
    write(tmp_path, "print('trained')")
    code, lines = run(tmp_path)
    assert code == 0 and "[worker 0] trained" in lines, lines


def test_two_runs_in_one_directory_have_two_records(tmp_path):
    """That can be where a file system has no locks."""
    with running(tmp_path):
        other = start(tmp_path, "--workers", "1", patch="import fcntl; fcntl.flock = print")
        try:
            support.wait_until(lambda: states() == ["running", "running"], 10, "two records")
        finally:
            other.terminate()
            other.communicate(timeout=20)
        assert states() == ["running", "stopped"]


def test_a_run_without_a_place_for_its_record(tmp_path):
    """It goes on, and says so."""
    (tmp_path / "state").write_text("a file")
    write(tmp_path, "")
    code, lines = run(tmp_path)
    assert code == 0 and "tfrun status will not know" in lines[0]


@pytest.mark.long
def test_which_run_is_meant(tmp_path):
    with running(tmp_path / "one"), running(tmp_path / "two"):
        names = [("run", "may mean 2 runs"), ("none", "there is no run none"), ("", "RUN is empty")]
        for name, words in names:
            for command in ("kill", "logs", "monitor", "trace", "tensorboard"):
                done = tfrun(command, name)
                assert done.returncode == 2 and words in done.stderr, command
                assert len(done.stderr.splitlines()) == 1
        assert (monitor()["run"], monitor("one")["run"]) == ("two/run", "one/run")


def test_logs(tmp_path):
    """Of all tasks, of one, as JSON, without the notices, and to a reader that goes away."""
    write(tmp_path, "print('a line', job, index)\nprint('2026 oneDNN custom operations are on.')\n")
    run(tmp_path, "--ps", "1", "--workers", "2")
    name = tmp_path.name
    lines = [f"[{task}] a line {task}" for task in ("ps 0", "worker 0", "worker 1")]
    assert tfrun("logs", name).stdout.splitlines() == lines
    for task in ("worker-1", "worker 1"):
        assert tfrun("logs", name, task).stdout == "a line worker 1\n"
    assert tfrun("logs", name, "worker", "1").stdout == "a line worker 1\n"
    seen = [json.loads(line) for line in tfrun("logs", name, "--json").stdout.splitlines()]
    assert seen[0] == {"task": "ps 0", "line": "a line ps 0"}
    wrong = tfrun("logs", name, "worker-7")
    assert wrong.returncode == 2 and "no task worker 7; it has ps 0, worker 0" in wrong.stderr
    (tmp_path / "run" / "ps-0.log").write_text("x\n" * 10**6)
    logs = shlex.join([sys.executable, "-m", "tfrun", "logs", str(name)])
    cut = support.run_to_end("bash", "-c", f"{logs} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (cut.returncode, cut.stdout, cut.stderr) == (0, "[ps 0] x\n", "")


def test_logs_that_are_followed(tmp_path):
    """They end with the run; each line comes once."""
    body = "for i in range(30): print('line', i, flush=True); time.sleep(0.1 if i > 24 else 0)"
    write(tmp_path, body)
    process = start(tmp_path, "--workers", "1")
    support.wait_until(lambda: status(), 10, "a record")
    followed = tfrun("logs", tmp_path.name, "worker-0", "-f").stdout.splitlines()
    process.communicate(timeout=20)
    numbers = [int(line.split()[1]) for line in followed]
    assert numbers == [*range(numbers[0], 30)] and numbers[0] <= 24


@pytest.mark.parametrize(
    "arguments", [["status", "x"], ["monitor", "--often"], ["logs"], ["kill"], ["trace"]]
)
def test_bad_use(arguments):
    done = tfrun(*arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_tensorboard_says_that_it_starts(record, monkeypatch, capsys):
    """Its import takes long on a busy machine."""
    outputs = []
    monkeypatch.setattr(
        without_notices, "run_module", lambda *_: outputs.append(capsys.readouterr()) or 0
    )
    assert tensorboard.command([record[1]["run"]]) == 0
    assert outputs[0].err.startswith("TensorBoard starts") and not outputs[0].out


def test_a_run_that_nothing_was_saved_of(tmp_path):
    """The next one begins again, and says so."""
    body = "open(os.environ['OUTPUT_DIR'] + '/metrics-worker-0.csv', 'a').write('1,1\\n')"
    write(tmp_path, body)
    notes = [any("nothing was saved" in line for line in run(tmp_path)[1]) for _ in range(2)]
    assert notes == [False, True]


# What real examples do.


@pytest.fixture(scope="module")
def downpour(tmp_path_factory):
    """DOWNPOUR while it trains: (its directory, its process), in processes of its own."""
    folder = tmp_path_factory.mktemp("real")
    state = {"XDG_STATE_HOME": str(folder / "state"), "WARM_SOCKET": ""}
    launcher = support.ROOT / "DOWNPOUR" / "run.sh"
    with support.Run(launcher, folder / "run", "--steps", "100000", **state) as run:
        support.wait_until(lambda: run.step() > 100, 60, "training")
        for process in support.processes_of(run.directory):
            process.nice(10)  # what watches the run comes first
        time.sleep(2)
        yield run, state


@pytest.mark.long
def test_tensorboard(downpour):
    """On loopback only; the scalars of its HTTP API are those of the metrics; Ctrl-C ends it."""
    run, state = downpour
    board = subprocess.Popen(
        [*TFRUN, "tensorboard", str(run.directory)],
        cwd=support.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **state},
    )
    try:
        address = board.stdout.readline().split()[0]
        assert address.startswith(("http://127.0.0.1:", "http://localhost:"))
        query = address + "data/plugin/scalars/scalars?run=worker-0&tag=test_accuracy"

        def scalars():
            with contextlib.suppress(urllib.error.URLError):
                return json.load(urllib.request.urlopen(query, timeout=10))

        first = len(support.wait_until(scalars, 40, "scalars"))
        # It follows the run, which tests each of its checkpoints.
        points = support.wait_until(
            lambda: len(events := scalars()) > first and events, 60, "more scalars"
        )
        seen = {int(step): value for _, step, value in points}
        with open(run.directory / "metrics-worker-0.csv") as file:
            lines = [line.strip().split(",") for line in file if line[0] != "#"]
        column = lines[0].index("test_accuracy")
        written = {int(row[2]): float(row[column]) for row in lines[1:] if row[column:][0]}
        assert len(seen) == len(points) >= 2
        assert seen == pytest.approx({step: written[step] for step in seen}, abs=1e-5)
        (server,) = psutil.Process(board.pid).children()
        (listens,) = {c.laddr for c in server.net_connections() if c.status == "LISTEN"}
        assert listens.ip == "127.0.0.1" and str(listens.port) in address
    finally:
        board.send_signal(signal.SIGINT)
    assert board.wait(support.patience(10)) == 0, board.stderr.read()
    assert board.stderr.read() == "TensorBoard starts, which takes some seconds\n"


@pytest.mark.long
def test_a_real_run_is_watched_and_killed(downpour):
    """All tasks have figures; then nothing is left within 5 s."""
    run, state = downpour
    seen = monitor(**state)
    assert [task["task"] for task in seen["tasks"]] == ["ps 0", "worker 0", "worker 1"]
    assert seen["test"]["test_accuracy"] > 0.5 and seen["steps"] == 100000
    for task in seen["tasks"]:
        assert task["cpu_percent"] > 1 and task["memory_bytes"] > 200 << 20
    losses = {row["loss"] for row in support.pushes(run.directory)}
    for task in seen["tasks"][1:]:
        assert task["steps_per_second"] > 10 and 0 <= task["staleness"] < 5
        assert task["loss"] in losses
    began = time.monotonic()
    done = tfrun("kill", str(run.directory), **state)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < support.patience(5)
    assert not support.processes_of(run.directory)
