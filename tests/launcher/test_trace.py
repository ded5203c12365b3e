"""tfrun trace: what the tasks did when, from their metrics; its form, and its figures."""

import json
import os
import pathlib
import subprocess

import pytest
import run_files
import support
from matplotlib import image
from records import three_pushes
from small_scripts import TFRUN
from tfrun.commands import trace
from tfrun.pictures import timeline
from tfrun.runs import activities
from tfrun.runs.data import RunData

TESTS = ["test_loss"]


def write(folder, **tasks):
    """Metrics of tasks from their lines."""
    for task, lines in tasks.items():
        run_files.metrics(folder, task.replace("_", "-"), *lines, tests=TESTS)


def push(pull, ready, arrival, step, late=0):
    """The line of a push, from its times."""
    times = {"pull_time": pull, "wait_seconds": arrival - ready}
    return run_files.push(arrival, step, late, tests=TESTS, **times)


def evaluation(end, step, began=""):
    """The line of a test, from its times."""
    return run_files.test(end, step, 0.5, began=began, tests=TESTS)


def tfrun_trace(directory, *flags):
    return subprocess.run(
        [*TFRUN, "trace", str(directory), *flags],
        cwd=support.ROOT,
        capture_output=True,
        text=True,
        timeout=support.patience(40),
    )


def test_a_coordinator_evaluates_beside_its_workers(tmp_path):
    """Also while none computes. Catches an evaluation that stands in a worker's time."""
    first, last = push(10.00, 10.01, 10.02, 1), push(10.0295, 10.04, 10.05, 2)
    write(tmp_path, worker_0=[first, evaluation(10.03, 1, 10.025), last])

    def evaluation_and_pull():
        spans = {span.name: span for span in activities.activities(RunData.read(tmp_path))}
        return spans["evaluation"].task, round(spans["pull"].begin, 4)

    assert evaluation_and_pull()[0] == "worker 0"  # its end may have been noted late
    (tmp_path / "chief-0.log").touch()
    assert evaluation_and_pull() == ("chief 0", 10.02)
    write(tmp_path, chief_0=[push(10.00, 10.01, 10.03, 3)])  # a chief that trains
    assert evaluation_and_pull()[0] == "worker 0"


def test_activities_by_hand(tmp_path):
    """A pull begins where what came before has ended; a long gap is a wait before it."""
    write(
        tmp_path,
        worker_0=[
            push(10.00, 10.01, 10.02, 1),
            evaluation(10.03, 1, 10.02),
            push(10.04, 10.05, 10.06, 3, 1),
            push(10.07, 10.08, 10.09, 4, 2),
            "# checkpoint 10.090000 10.300000",  # as older scripts wrote it: it is ignored
            "# restart",
            evaluation(10.31, 4),  # and a test of theirs, which has no begin
            push(12.00, 12.01, 12.02, 5),
        ],
        worker_1=[push(10.00, 10.02, 10.03, 2, 1)],
    )
    rows = [
        (
            activity.task,
            activity.name,
            round(activity.begin, 6),
            round(activity.end, 6),
            activity.facts.get("staleness"),
        )
        for activity in activities.activities(RunData.read(tmp_path))
    ]
    one = "worker 0"
    assert sorted(rows[:-3], key=lambda row: row[2:4]) == [
        (one, "pull", 10.00, 10.00, None),
        (one, "compute", 10.00, 10.01, None),
        (one, "push", 10.01, 10.02, 0),
        (one, "evaluation", 10.02, 10.03, None),
        (one, "pull", 10.03, 10.04, None),
        (one, "compute", 10.04, 10.05, None),
        (one, "push", 10.05, 10.06, 1),
        (one, "pull", 10.06, 10.07, None),
        (one, "compute", 10.07, 10.08, None),
        (one, "push", 10.08, 10.09, 2),
        (one, "wait", 10.09, 12.00, None),
        (one, "pull", 12.00, 12.00, None),
        (one, "compute", 12.00, 12.01, None),
        (one, "push", 12.01, 12.02, 0),
    ]
    assert rows[-3:] == [
        ("worker 1", "pull", 10.00, 10.00, None),
        ("worker 1", "compute", 10.00, 10.02, None),
        ("worker 1", "push", 10.02, 10.03, 1),
    ]


def test_numbers_of_updates_stand_in_order():
    """Also where an answer comes after that of a later update; those without room have none."""
    pushes = [
        activities.Activity(f"worker {step % 2}", "push", at - 1, at, {"global_step": step})
        for step, at in ((7, 10.0), (8, 14.0), (9, 12.0), (10, 20.0), (10, 21.0))
    ]
    times = activities.latest_update_times(pushes)
    assert list(times.items()) == [(7, 10.0), (8, 12.0), (9, 12.0), (10, 20.0)]
    for end, due in (22, [("7", 1), ("8", 3), ("10", 11)]), (20, [("7", 1), ("8", 3)]):
        axes = timeline.plt.figure().subplots()
        timeline.timeline(axes, pushes, 9, end)
        assert [(text.get_text(), text.xy[0]) for text in axes.texts] == due


def test_the_window_has_every_worker(tmp_path):
    """Also one that is ten times slower than the other seven."""
    tasks = {
        f"worker_{k}": [
            push(t - 0.004 * slow, t - 0.001, t, step)
            for step in range(1, 400 // slow)
            for t in [100 + k / 1000 + step * 0.01 * slow]
        ]
        for k, slow in enumerate([10, *[1] * 7])
    }
    write(tmp_path, **tasks)
    spans = activities.activities(RunData.read(tmp_path))
    begin, end = activities.window(spans)
    ends = {span.task for span in spans if span.name == "push" and begin < span.end < end}
    assert len(ends) == 8 == len(timeline.lanes(spans)) and end - begin < 0.2


def test_the_window_is_not_in_a_stall(tmp_path):
    """It has pushes of both workers, who both wait for a second of this run.

    Catches a moment in which all wait while one tests or saves, and one in the middle of the run.
    """
    times = [10 + step / 100 + (step > 60) for step in range(1, 101)]
    lines = [push(t - 0.006, t - 0.004, t, step) for step, t in enumerate(times, 1)]
    write(tmp_path, worker_0=lines, worker_1=lines)
    spans = activities.activities(RunData.read(tmp_path))
    begin, end = activities.window(spans)
    for task in "worker 0", "worker 1":
        ends = [span.end for span in spans if (span.task, span.name) == (task, "push")]
        inside = [at for at in ends if begin < at < end]
        assert len(inside) >= 3 and inside[0] > begin + 0.0002 and inside[-1] < end - 0.0002
    assert end - begin < 0.1


@pytest.mark.parametrize("steps, late", [(1, False), (10, True)])
def test_local_steps_before_a_pull_have_their_name(steps, late):
    """Catches the steps of elastic averaging, which pulls after them, as a wait for w."""
    times = ("pull", 0, 9, {}), ("compute", 9, 9.1, {}), ("push", 9.1, 10, {"local_steps": steps})
    names = [
        patch.get_label()
        for patch in timeline.legend([activities.Activity("worker 0", *fields) for fields in times])
    ]
    assert names[0] == (timeline.LATE_PULL if late else timeline.LABELS["pull"])
    assert names[1:] == [timeline.LABELS["compute"], timeline.LABELS["push"]]


@pytest.mark.parametrize("steps, shared", [((1, 2, 3, 4), True), ((1, 2, 1, 2), False)])
def test_a_w_of_its_own_has_no_line_of_updates(steps, shared, tmp_path):
    """Catches lines from the steps of one worker to those of another with the same number."""
    rows = [push(10 + t, 10.01 + t, 10.02 + t, step, 1) for t, step in zip((0, 0.1, 0, 0.1), steps)]
    write(tmp_path, worker_0=rows[:2], worker_1=rows[2:])
    axes = timeline.plt.figure().subplots()
    timeline.timeline(axes, activities.activities(RunData.read(tmp_path)), 10, 11)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["worker 1", "worker 0", *["updates of w"] * shared]
    assert any(line.get_linewidth() for line in axes.lines) == shared


def test_stages_of_model_parallelism(tmp_path):
    """From the script's timeline: a span for each pass of a micro-batch, none for the update."""

    def span(pid, name, ts, dur):
        return {"ph": "X", "pid": pid, "name": name, "ts": ts, "dur": dur, "args": {"name": name}}

    devices = {1: "/job:worker/task:0/device:CPU:0 Compute", 2: "/job:worker/task:1/CPU:0 Compute"}
    events = [{"ph": "M", "pid": pid, "args": {"name": name}} for pid, name in devices.items()]
    events += [
        span(1, "forward/micro_batch_0", 1000, 30),
        span(2, "forward/micro_batch_0", 1050, 20),
        span(2, "backward/micro_batch_0", 1080, 20),
        span(1, "update", 1200, 10),
    ]
    (tmp_path / "timeline-9.json").write_text("{}")
    (tmp_path / "timeline-10.json").write_text(json.dumps({"traceEvents": events}))
    rows = [
        (*stage[:4], *(round(1e6 * x) for x in stage[4:])) for stage in activities.stages(tmp_path)
    ]
    first = (0, 0, "forward", 0, 0, 30)
    assert rows == [first, (1, 0, "forward", 0, 50, 70), (1, 1, "backward", 0, 80, 100)]


def test_a_step_of_sharded_training(tmp_path):
    """From the timelines of its workers. Catches: an earlier step, the lane of another, a count."""

    def write_step(step, worker, begin):
        span = {"ph": "X", "pid": worker, "ts": begin, "dur": 20, "args": {"held": 1}}
        count = {"ph": "C", "pid": worker, "name": "bytes", "ts": begin, "args": {"held": 1}}
        events = [
            {**span, "tid": "compute", "name": "forward 0"},
            {**span, "tid": "ring", "name": "gather 1", "ts": begin + 5, "dur": 10},
            count,
        ]
        path = tmp_path / f"timeline-{step}-{worker}.json"
        path.write_text(json.dumps({"traceEvents": events}))

    write_step(9, 0, 100), write_step(10, 0, 1000), write_step(10, 1, 1002)
    spans = activities.stages(tmp_path)
    assert [(*span[:4], *(round(1e6 * x) for x in span[4:])) for span in spans] == [
        (0, 0, "forward", 0, 0, 20),
        (0, 1, "gather", 1, 5, 15),
        (1, 0, "forward", 0, 2, 22),
        (1, 1, "gather", 1, 7, 17),
    ]


def check_form(trace, pushes):
    """The Trace Event Format, as Perfetto reads it, and every push of the metrics in it."""
    assert trace["displayTimeUnit"] == "ms"
    events, start = trace["traceEvents"], trace["otherData"]["begin_seconds_since_1970"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    for event in events:
        assert event["ph"] in "MXi" and event["pid"] in names and event["tid"] == 0
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            assert event["name"] in {"pull", "compute", "push", "wait", "evaluation"}
        if event["ph"] == "i":
            assert names[event["pid"]] == "updates of w" and event["s"] == "t"
    for task in set(names.values()) - {"updates of w"}:
        mine = [e for e in events if e["ph"] == "X" and names[e["pid"]] == task]
        order = sorted(mine, key=lambda e: (e["ts"], e["ts"] + e["dur"]))
        for before, after in zip(order, order[1:]):  # a task does one thing at a time
            assert before["ts"] + before["dur"] <= after["ts"] + 0.5, (before, after)
        names_in_order = [e["name"] for e in order if e["name"] in ("pull", "compute", "push")]
        assert names_in_order == ["pull", "compute", "push"] * (len(names_in_order) // 3)
    # The times of each push are those of its row: pulled, computed, arrived.
    seen, due = [], []
    for task, name in names.items():
        bars = [e for e in events if e["ph"] == "X" and e["pid"] == task]
        of_a_push = [[e for e in bars if e["name"] == name] for name in ("pull", "compute", "push")]
        for push in zip(*of_a_push, strict=True):
            ends = [start + (e["ts"] + e["dur"]) / 1e6 for e in push]
            seen.append((ends, *(push[-1]["args"][key] for key in ("global_step", "staleness"))))
    last = {}  # {task: when its push before arrived}
    for row in pushes:  # a clock may be read late: no time is after a later one's, or before `last`
        end, first = row["push_time"], last.get(row["task"], 0)
        ready = max(first, min(end - row["wait_seconds"], end))
        pulled = max(first, min(row["pull_time"], ready))
        due.append(([pulled, ready, end], row["global_step"], row["staleness"]))
        last[row["task"]] = end
    assert len(seen) == len(due)
    for (some, *facts), (others, *more) in zip(sorted(seen), sorted(due)):
        assert facts == more and some == pytest.approx(others, abs=1e-4), (some, others, facts)
    return names, events


@pytest.fixture(scope="module", params=["HogWild", "Synchronous-SGD", "Parameter-Server-Strategy"])
def real(request, tmp_path_factory):
    """The run directory of a short real run."""
    directory = tmp_path_factory.mktemp("real") / "run"
    launcher = support.ROOT / request.param / "run.sh"
    flags = ["--steps", "300", "--checkpoint-steps", "100"]
    code, output, _ = support.launch(launcher, directory, *flags)
    assert code == 0, output
    return directory


@pytest.mark.long
def test_the_trace_of_a_real_run(real):
    """Every push has its pull before it, the times that its row says, and a possible staleness."""
    done = tfrun_trace(real)
    assert done.returncode == 0, done.stderr
    pushes = support.pushes(real)
    trace = json.loads((real / "trace.json").read_text())
    names, events = check_form(trace, pushes)
    # A coordinator writes what its workers do, and evaluates while they do it.
    lead = {"chief 0"} if (real / "chief-0.log").exists() else set()
    assert set(names.values()) == {"updates of w", "worker 0", "worker 1"} | lead
    bars = [event for event in events if event["ph"] == "X"]
    data = RunData.read(real)  # the chief may have tested once only, where others were faster
    tests = sum(len(data.rows("tests", task)) for task in data.tasks)
    assert sum(bar["name"] == "evaluation" for bar in bars) == tests >= 1
    height, width, _ = image.imread(real / "trace.png").shape
    assert width > 3 * height
    # Those with a ticket before its own: none that came before the task's last update.
    pulls, pushes = ([bar for bar in bars if bar["name"] == name] for name in ("pull", "push"))
    previous = {}  # {task: its push before this one}
    for own in pushes:  # in order of task and time
        step, before = own["args"]["global_step"], previous.get(own["pid"], 0)
        others = [other["args"]["global_step"] for other in pushes if other["pid"] != own["pid"]]
        assert own["args"]["staleness"] <= sum(before < other < step for other in others), own
        previous[own["pid"]] = step


def test_the_form_and_the_window(tmp_path):
    """--from and --seconds choose the window; the files go where --output says."""
    lines = [push(i / 100, i / 100 + 0.004, i / 100 + 0.008, i, i % 3) for i in range(1, 60)]
    write(tmp_path, worker_0=lines)
    where = tmp_path / "there"
    flags = ["--json", "--output", str(where), "--from", "0.1", "--seconds", "0.05"]
    done = tfrun_trace(tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert (written["from"], written["seconds"]) == (pytest.approx(0.1), 0.05)
    check_form(json.loads((where / "trace.json").read_text()), support.pushes(tmp_path))
    assert pathlib.Path(written["picture"]).stat().st_size > 10000
    late = tfrun_trace(tmp_path, "--from", "100")
    assert late.returncode == 2 and "no task did anything in that time" in late.stderr


def test_runs_without_updates(tmp_path):
    write(tmp_path, worker_0=[])
    done = tfrun_trace(tmp_path)
    assert done.returncode == 1 and "no update was made yet" in done.stderr
    done = tfrun_trace(tmp_path, "--seconds", "-1")
    assert done.returncode == 2 and "must be above 0" in done.stderr
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.usefixtures("own_records")
def test_a_run_of_one_process_only_computes():
    """Catches a wait or a push in Non-Distributed-Setup."""
    run_files.flags("r", ["worker-0"], ps=0)
    run_files.metrics(
        "r", "worker-0", run_files.push(10, 1), run_files.push(10.5, 2, pull_time=10.25)
    )
    spans = [span[1:4] for span in activities.activities(RunData.read("r"))]
    assert [span for span in spans if span[2] > span[1]] == [
        ("compute", 9.75, 10.0),
        ("pull", 10.0, 10.25),
        ("compute", 10.25, 10.5),
    ]


@pytest.mark.usefixtures("own_records")
def test_the_window_of_a_trace(capsys, monkeypatch):
    """Catches: seconds from another moment than the first push, a length for an end."""
    three_pushes()
    seen = []
    monkeypatch.setattr(trace.timeline, "draw", lambda *arguments: seen.append(arguments))
    assert trace.command(["r", "--json", "--from", "1.5", "--seconds", "0.25"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["from"], answer["seconds"]) == (1.5, 0.25)
    assert (
        seen[0][-2:] == (12.5, 12.75)
        and seen[0][1] == "HogWild, from 1.500 s after the first push on"
    )
    content = json.load(open("r/trace.json"))
    start = content["otherData"]["begin_seconds_since_1970"]
    moments = {e["name"]: start + e["ts"] / 1e6 for e in content["traceEvents"] if e["ph"] == "i"}
    assert moments == pytest.approx(
        {
            f"update {k} by worker {w}": at
            for k, w, at in ((1, 0, 11), (2, 0, 12), (3, 1, 12.5), (4, 0, 13))
        }
    )


@pytest.mark.usefixtures("own_records")
def test_what_trace_says(capsys, monkeypatch):
    """Catches: files of another folder, a window that is empty or without a length, and no code."""
    three_pushes()
    seen = []
    monkeypatch.setattr(trace.timeline, "draw", lambda *arguments: seen.append(arguments))
    assert trace.command(["r", "--output", "new/o"]) == 0
    lines = capsys.readouterr().out.splitlines()
    json_line = "new/o/trace.json   open it in https://ui.perfetto.dev"
    assert lines == ["new/o/trace.png", json_line] and os.path.exists("new/o/trace.json")
    path, _, activities_seen, begin, end = seen[0]
    assert str(path) == "new/o/trace.png" and begin < end and len(activities_seen) > 8
    assert trace.command(["r", "--from", "99"]) == 2
    words = "no task did anything in that time: see --from, --seconds"
    assert capsys.readouterr().err == f"tfrun: {words}\n"
    assert trace.command(["r", "--from", "-1.5", "--seconds", "0.5"]) == 2
    assert trace.command(["r", "--from", "3.1", "--seconds", "1", "--json"]) == 2
    capsys.readouterr()
    assert trace.command(["r", "--from", "0.5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["from"] == 0.5 and answer["seconds"] == pytest.approx(end - begin)
    pathlib.Path("file").touch()
    assert trace.command(["r", "--output", "file"]) == 2
    assert capsys.readouterr().err.startswith("tfrun: the trace cannot be written: ")
    run_files.flags("empty")
    run_files.metrics("empty", "worker-0")
    assert trace.command(["empty"]) == 1
    assert "no update was made yet in " in capsys.readouterr().err
    monkeypatch.setattr(activities, "MOST", 2)
    assert trace.command(["r"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "2 of 4 pushes, those around the picture; --from S: others"
