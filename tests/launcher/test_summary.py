"""What tfrun says of a run, from hand-made metrics, with numbers computed by hand."""

import json

import numpy as np
import pytest
import support
from lab import examples
from run_files import COLUMNS, TESTS, flags, metrics, push, test
from tfrun import formatting
from tfrun.commands.summary import conclude
from tfrun.pictures import curves
from tfrun.runs import event_files, metrics_csv, run_directory, summary
from tfrun.runs.data import RunData


def two_workers(folder):
    """Worker 1 begins 2 s after worker 0."""
    flags(folder)
    metrics(
        folder,
        "worker-0",
        *(push(10, 1), push(11, 2), test(11.5, 2, 0.95, 1.5), push(12.5, 4, 1), push(14, 6, 1)),
        test(15, 6, 0.9, 0.25),
    )
    metrics(folder, "worker-1", push(12, 3, 1), push(13, 5, 0, 64))


def test_the_whole(tmp_path):
    two_workers(tmp_path)
    assert summary.summarize(RunData.read(tmp_path)) == {
        "example": "HogWild",
        "dataset": "digits",
        "steps": 6,
        "ps": 1,
        "workers": 2,
        "test_accuracy": 0.9,
        "test_loss": 0.25,
        "metrics": {"test_loss": "min", "test_accuracy": "max"},
        "best": {"test_loss": 0.25, "test_accuracy": 0.95},
        # From 12, when both have pushed, until 14: 12.5, 13 and 14 count, not the push at 12.
        "examples_per_second": (32 + 64 + 32) / 2,
        "wall_seconds": 2.0,
        "staleness_mean": 3 / 6,
        # Worker 0 has two pushes, worker 1 one, each 0.25 s after its pull, in those 2 s.
        "staleness_by_rates": pytest.approx((2 * 0.25 * 1 / 2 + 0.25 * 2 / 2) / 3),
        "pushes_per_worker": [4, 2],
        "late_per_worker": [2, 1],
        "restarts": 0,
        "arguments": {"steps": 6, "dataset": "digits", "batch_size": 32},
        "versions": {"python": "3.11.2", "tensorflow": "2.21.0"},
    }


def test_an_early_end_and_other_data_are_said(tmp_path):
    """Catches a result that keeps either to itself, or says it of every run."""
    two_workers(tmp_path)
    (tmp_path / "stop").write_text("5")
    data = '# data {{"x_train": [[4, 1], {}, 1.0]}}'
    for k in 0, 1:
        path = tmp_path / f"metrics-worker-{k}.csv"
        header, *lines = path.read_text().splitlines()
        path.write_text("\n".join([header, data.format(k), *lines]) + "\n")
    result = summary.summarize(RunData.read(tmp_path))
    assert result["stopped_early"] is True and result["steps"] == 6
    assert result["other_data"].startswith("worker 1 has other data than worker 0")


def test_lines_behind_so_many_bytes(tmp_path):
    """The header, and then whole lines. Catches a line that is read twice, half, or not at all."""
    path = tmp_path / "metrics-worker-0.csv"
    path.write_text("header\nfirst\nsecond\nthird\nfour")
    for skipped, lines in [
        (None, ["header", "first", "second", "third"]),
        (len("header\n"), ["header", "first", "second", "third"]),
        (len("header\n") + 2, ["header", "second", "third"]),
        (len("header\nfirst\nse"), ["header", "third"]),
    ]:
        with open(path, "rb") as file:
            assert list(metrics_csv.complete_lines(file, skipped)) == lines, skipped


def test_a_test_that_is_appended(tmp_path):
    """Catches a second header, and a row that goes on with a line that was cut short."""
    path = tmp_path / "metrics-evaluator-0.csv"
    values = {"push_time": 2.5, "global_step": 7}
    metrics_csv.append(path, {"test_loss": 0.25}, **values)
    begin = path.read_text()
    assert begin.splitlines()[0] == ",".join([*COLUMNS, "test_loss"])
    path.write_text(begin + "9.5,")
    metrics_csv.append(path, {"test_loss": 0.5}, **values)
    rest = path.read_text().removeprefix(begin)
    assert rest == "9.5," + metrics_csv.RESTART + "\n" + begin.splitlines()[1][:-4] + "0.5\n"


def test_without_a_ps_rates_lead_to_no_staleness(tmp_path):
    """Each worker has a w of its own, to which the others do not push."""
    two_workers(tmp_path)
    flags(tmp_path, ps=0)
    result = summary.summarize(RunData.read(tmp_path))
    assert result["staleness_mean"] == 3 / 6 and result["staleness_by_rates"] is None


def test_the_staleness_that_the_rates_lead_to(tmp_path):
    """Against counted staleness, to 5%. Catches: own pushes counted, a worker's rate for all."""
    flags(tmp_path, ["worker-0", "worker-1", "worker-2"], steps=6000)
    random, pushes = np.random.RandomState(0), []
    for worker, mean in enumerate((1.0, 2.0, 5.0)):
        time = 0.0
        while time < 3500:
            pulled = time + random.exponential(mean)  # it idles, which the law must not count
            time = pulled + random.exponential(mean)
            pushes.append((time, pulled, worker))
    pushes.sort()
    lines, ends = [[], [], []], np.array([end for end, *_ in pushes])
    for step, (time, pulled, worker) in enumerate(pushes, 1):
        between = pushes[np.searchsorted(ends, pulled) : step - 1]
        late = sum(other != worker for *_, other in between)
        lines[worker].append(push(time, step, late, pull_time=pulled))
    lines[0].append(test(4000, len(pushes), 0.9, 0.25))
    for worker, rows in enumerate(lines):
        metrics(tmp_path, f"worker-{worker}", *rows)
    flags(tmp_path, ["worker-0", "worker-1", "worker-2"], steps=len(pushes))
    result = summary.summarize(RunData.read(tmp_path))
    assert result["staleness_by_rates"] == pytest.approx(result["staleness_mean"], 0.05)
    assert result["staleness_mean"] > 0.5


def test_a_restart_loses_no_count(tmp_path):
    """The mark stands alone, or behind a line that was cut short; that line is no row."""
    two_workers(tmp_path)
    lines = [push(12, 3, 1), "# restart", push(13, 5, 0, 64), "13.5,13.2,5,1,3# restart"]
    metrics(tmp_path, "worker-1", *lines, push(13.75, 5, 2))
    result = summary.summarize(RunData.read(tmp_path))
    assert result["restarts"] == 2 and result["pushes_per_worker"] == [4, 3]
    assert result["late_per_worker"] == [2, 2] and result["staleness_mean"] == 5 / 7


@pytest.mark.parametrize(
    "line",
    [
        "13.5,13.2,5\n",  # too few columns
        push(13.5, 5) + ",1\n",  # too many
        push(13.5, 5).replace("0.5,", "0.5.5,") + "\n",  # no number
        "\n",
        ",".join(COLUMNS + TESTS) + "\n",  # no number either
        push(13.5, 5) + "# restart\n",
        test(16, 6, 0.95, 0.2),  # it may have been cut within a number
    ],
)
def test_lines_that_are_no_rows(tmp_path, line):
    two_workers(tmp_path)
    good = summary.summarize(RunData.read(tmp_path))
    path = tmp_path / "metrics-worker-1.csv"
    path.write_text(path.read_text() + line)
    result = summary.summarize(RunData.read(tmp_path))
    assert {**result, "restarts": 0} == good and (result == good or line.endswith("\n"))


def test_a_missing_task_has_no_numbers(tmp_path):
    """Neither one that left no file, nor one that was killed before it wrote the header."""
    two_workers(tmp_path)
    flags(tmp_path, ["chief-0", "worker-0", "worker-1"])
    (tmp_path / "metrics-chief-0.csv").write_text("push_ti")
    result = summary.summarize(RunData.read(tmp_path))
    assert result["pushes_per_worker"] == [None, 4, 2]
    assert result["late_per_worker"] == [None, 2, 1]
    assert result["missing"] == ["chief-0"] and result["workers"] == 3
    assert "chief-0" in summary.missing_tasks(result)


def test_a_task_that_came_too_late_has_pushed_nothing(tmp_path):
    two_workers(tmp_path)
    metrics(tmp_path, "worker-1")
    result = summary.summarize(RunData.read(tmp_path))
    assert result["pushes_per_worker"] == [4, 0] and "missing" not in result
    assert result["wall_seconds"] == 4 and result["examples_per_second"] == 3 * 32 / 4


def test_order_is_that_of_the_tasks(tmp_path):
    two_workers(tmp_path)
    flags(tmp_path, ["worker-1", "worker-0"])
    assert summary.summarize(RunData.read(tmp_path))["pushes_per_worker"] == [2, 4]


def test_folders_of_several_hosts(tmp_path):
    """Together they give what one folder gives; a copy counts once."""
    two_workers(tmp_path / "one")
    one = summary.summarize(RunData.read(tmp_path / "one"))
    two_workers(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "metrics-worker-1.csv").rename(tmp_path / "b" / "metrics-worker-1.csv")
    assert summary.summarize(RunData.read(tmp_path / "a"))["missing"] == ["worker-1"]
    assert summary.summarize(RunData.read(tmp_path / "a", tmp_path / "b")) == one
    assert summary.summarize(RunData.read(tmp_path / "b", tmp_path / "a", tmp_path / "one")) == one


def test_two_runs_are_not_one(tmp_path):
    """Their metrics have the names of the same tasks, but each has a chief's flags.json."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        two_workers(folder)
    flags(folders[1], versions={"tensorflow": "2.20.0"})  # of one run, on two hosts
    summary.summarize(RunData.read(*folders))
    arguments = {"steps": 6, "dataset": "digits", "batch_size": 64}
    for other in {"example": "X"}, {"ps": 2}, {"tasks": ["worker-0"]}, {"arguments": arguments}:
        flags(folders[1], **other)
        with pytest.raises(ValueError, match="not of one run"):
            summary.summarize(RunData.read(*folders))
    process = support.tfrun("summary", "--line", *folders)
    assert process.returncode == 1 and "/a, " in process.stderr, process.stdout
    assert not (folders[0] / "result.json").exists()


def test_a_task_that_moved_to_another_host(tmp_path):
    two_workers(tmp_path / "a")
    metrics(tmp_path / "b", "worker-1", push(13.5, 5, 3))
    result = summary.summarize(RunData.read(tmp_path / "b", tmp_path / "a"))
    assert result["pushes_per_worker"] == [4, 3] and result["restarts"] == 1
    assert result["late_per_worker"] == [2, 2]


def test_any_metrics_of_the_test(tmp_path):
    best = {"test_loss": "min", "test_top5_accuracy": "max", "test_mae": "min", "test_gone": "max"}
    flags(tmp_path, ["worker-0"], steps=1, metrics=best)
    tests = ["test_loss", "test_top5_accuracy", "test_mae"]
    lines = [test(2, 1, 0.5, 0.75, 3, tests=tests), test(3, 1, 0.4, "", 4, tests=tests)]
    metrics(tmp_path, "worker-0", push(1, 1, tests=tests), *lines, tests=tests)
    result = summary.summarize(RunData.read(tmp_path))
    assert [name for name in result if name.startswith("test_")] == tests
    assert (result["test_loss"], result["test_top5_accuracy"], result["test_mae"]) == (0.4, None, 4)
    assert result["best"] == {"test_loss": 0.4, "test_top5_accuracy": 0.75, "test_mae": 3}
    assert result["examples_per_second"] is None and result["wall_seconds"] == 0
    assert formatting.tests_text(result) == "test top5 accuracy unknown, test mae 4"
    assert curves.draw(RunData.read(tmp_path)).exists()


def test_a_direction_that_is_none(tmp_path):
    two_workers(tmp_path)
    flags(tmp_path, metrics={"test_loss": "min", "test_accuracy": "maximum"})
    words = """test_accuracy is 'maximum', neither "max" nor "min\""""
    with pytest.raises(ValueError, match=words):
        summary.summarize(RunData.read(tmp_path))
    process = support.tfrun("summary", tmp_path)
    assert process.returncode == 1 and "'maximum'" in process.stderr, process.stderr
    assert not (tmp_path / "result.json").exists()


def test_the_evaluation_of_the_highest_step(tmp_path):
    """Not the last in time: after a restart the steps begin again from the checkpoint."""
    two_workers(tmp_path)
    path = tmp_path / "metrics-worker-0.csv"
    path.write_text(path.read_text() + test(20, 4, 0.1, 2) + "\n")
    assert summary.summarize(RunData.read(tmp_path))["test_accuracy"] == 0.9
    path.write_text(path.read_text() + test(21, 6, 0.8, 0.3) + "\n")
    assert summary.summarize(RunData.read(tmp_path))["test_accuracy"] == 0.8


def test_a_loss_that_is_no_number_is_a_push(tmp_path):
    """And JSON has no NaN."""
    two_workers(tmp_path)
    nan = push(13, 5).replace("0.5,", "nan,")
    metrics(tmp_path, "worker-1", push(12, 3), nan, test(16, 6, 0.7, "nan"))
    result = summary.summarize(RunData.read(tmp_path))
    assert result["pushes_per_worker"] == [4, 2] and result["test_loss"] is None
    assert "NaN" not in json.dumps(result)


def test_not_measured_is_not_zero(tmp_path):
    flags(tmp_path, ["worker-0"], steps=1)
    metrics(tmp_path, "worker-0", push(1, 1, ""), test(2, 1, 0.5, 0.75))
    result = summary.summarize(RunData.read(tmp_path))
    assert result["staleness_mean"] is None and result["late_per_worker"] == [None]
    assert curves.draw(RunData.read(tmp_path)).exists()


@pytest.mark.parametrize("tests", [[], [test(11.5, 4, 0.5, 1.5)]])
def test_not_finished(tmp_path, tests):
    flags(tmp_path)
    metrics(tmp_path, "worker-0", push(10, 1), *tests, push(12, 6))
    with pytest.raises(ValueError, match="not finished.*6"):
        summary.write(RunData.read(tmp_path))
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("content", [None, "{", "[]", '{"example": "HogWild"}'])
def test_no_flags(tmp_path, content):
    two_workers(tmp_path)
    (tmp_path / "flags.json").unlink()
    if content:
        (tmp_path / "flags.json").write_text(content)
    with pytest.raises(ValueError, match="flags.json"):
        summary.summarize(RunData.read(tmp_path))


def test_whole_or_not_at_all(tmp_path, monkeypatch):
    """A full disk leaves no part of result.json, and not the partial file either."""
    two_workers(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    for method in "write_text", "replace":
        with monkeypatch.context() as patched:

            def full(path, *_, **__):
                path.touch()
                raise OSError(28, "No space left on device")

            patched.setattr("pathlib.PosixPath." + method, full, raising=False)
            with pytest.raises(OSError, match="No space"):
                summary.write(RunData.read(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_end_of_a_run_reads_each_file_once(tmp_path, monkeypatch):
    """Result, events and picture are made from the same RunData."""
    two_workers(tmp_path)
    read, names = metrics_csv.read, []

    def counted(path):
        names.append(path.name)
        return read(path)

    monkeypatch.setattr(metrics_csv, "read", counted)
    messages = []
    assert conclude(tmp_path, 0, messages.append) == 0
    assert names == ["metrics-worker-0.csv", "metrics-worker-1.csv"]
    assert (
        len(messages) == 1
        and messages[0].startswith("test accuracy 90.0%")
        and "curves.png" in messages[0]
    )


def test_time_in_which_nothing_ran_does_not_count(tmp_path):
    """The run stopped at 2.2 and went on at 100; worker 1 alone had started again before that."""
    flags(tmp_path, steps=8)
    one = push(1, 1), push(1.5, 2), push(2, 4), "# restart", push(100.25, 5), push(101.25, 7)
    metrics(tmp_path, "worker-0", *one, test(101.5, 8, 0.9, 0.25))
    two = push(1.1, 1), "# restart", push(2.2, 3), "# restart", push(100.75, 6), push(101.25, 8)
    metrics(tmp_path, "worker-1", *two)
    run = RunData.read(tmp_path)
    ends = [row["push_time"] for row in run.without_pauses().rows("pushes")]
    expected = [1, 1.1, 1.5, 2, 2.2, 2.45, 2.95, 3.45, 3.45]
    assert ends == pytest.approx(expected) and run.rows("pushes")[-1]["push_time"] == 101.25
    result = summary.summarize(run)
    assert result["wall_seconds"] == pytest.approx(3.45 - 1.1) and result["restarts"] == 3


def test_the_command_that_draws(tmp_path):
    """Also where the run goes on; where there is nothing to draw one line says so."""

    flags(tmp_path)
    done = support.tfrun("curves", tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("tfrun: no update was made yet in")
    metrics(tmp_path, "worker-0", push(10, 1), push(11, 2))
    done = support.tfrun("curves", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/curves.png\n"), done.stderr
    assert (tmp_path / "curves.png").stat().st_size > 10000


def test_the_command(tmp_path):
    two_workers(tmp_path)
    process = support.tfrun("summary", tmp_path)
    assert process.returncode == 0 and process.stderr == ""
    assert (
        json.loads(process.stdout)
        == support.result(tmp_path)
        == summary.summarize(RunData.read(tmp_path))
    )
    accuracy = "test accuracy %.1f%%" % (100 * support.result(tmp_path)["test_accuracy"])
    line = f"[tfrun] {accuracy}; everything of this run is in {tmp_path}\n"
    assert support.tfrun("summary", "--line", tmp_path).stdout == line
    (tmp_path / "metrics-worker-1.csv").unlink()
    process = support.tfrun("summary", tmp_path)
    assert process.returncode == 0 and len(process.stderr.splitlines()) == 1
    assert "worker-1" in process.stderr and support.result(tmp_path)["missing"] == ["worker-1"]


def board(folder):
    """{task: {tag: [(step, value)]}} of the events in a folder, as TensorBoard reads them."""
    from tensorboard.backend.event_processing import event_accumulator

    events = {}
    for path in sorted(folder.iterdir()):
        run = event_accumulator.EventAccumulator(str(path)).Reload()
        tags = run.Tags()
        events[path.name] = {
            tag: [(point.step, point.value) for point in run.Scalars(tag)]
            for tag in tags["scalars"]
        }
        for tag in tags["tensors"]:
            (text,) = run.Tensors(tag)
            events[path.name][tag] = text.tensor_proto.string_val[0].decode()
    return events


def test_events_for_tensorboard(tmp_path):
    """Means of each second, the tests, and the flags, once, also after a second conclusion.

    The numbers are by hand, from the rows of two_workers() and those below. Catches a push for the
    mean of its second, and a first push that counts in the rate.
    """
    directory = tmp_path / "run"
    two_workers(directory)
    late = [push(14.5, 7, 3).replace(",0.5,", ",2.5,"), push(16.5, 8)]
    lines = [push(12, 3, 1), push(12.5, 4, 3), push(13, 5, 0, 64), push(14.25, 6), *late]
    metrics(directory, "worker-1", *lines)
    for _ in range(2):  # a run that goes on is concluded twice
        event_files.write(RunData.read(directory))
    events = board(directory / "tensorboard")
    assert '"batch_size": 32' in events["worker-0"].pop("flags")
    assert events == {
        "worker-0": {
            "loss": [(1, 0.5), (2, 0.5), (4, 0.5), (6, 0.5)],
            "staleness": [(1, 0), (2, 0), (4, 1), (6, 1)],
            "updates_per_second": [
                (2, 1),
                (4, pytest.approx(1 / 1.5)),
                (6, pytest.approx(1 / 1.5)),
            ],
            "test_accuracy": [(2, pytest.approx(0.95)), (6, pytest.approx(0.9))],
            "test_loss": [(2, 1.5), (6, 0.25)],
        },
        "worker-1": {
            "loss": [(4, 0.5), (5, 0.5), (7, 1.5), (8, 0.5)],  # of 14 s the mean of 0.5 and 2.5
            "staleness": [(4, 2), (5, 0), (7, 1.5), (8, 0)],
            "updates_per_second": [(4, 2), (5, 2), (7, pytest.approx(2 / 1.5)), (8, 0.5)],
        },
    }
    assert [path.name for path in directory.glob(".*")] == []


def test_events_while_a_run_trains(tmp_path):
    """What `tfrun tensorboard` adds: rows that came since, and flags.json once there is one."""
    metrics(tmp_path / "run", "worker-0", push(10, 1), push(11, 2))
    live = event_files.Events(tmp_path / "board")
    live.update(RunData.read(tmp_path / "run"))
    assert board(tmp_path / "board")["worker-0"]["loss"] == [(1, 0.5), (2, 0.5)]
    flags(tmp_path / "run")
    metrics(tmp_path / "run", "worker-0", push(10, 1), push(11, 2), push(12, 3, 4))
    for _ in range(2):
        live.update(RunData.read(tmp_path / "run"))
    events = board(tmp_path / "board")["worker-0"]
    assert events["staleness"] == [(1, 0), (2, 0), (3, 4)] and '"steps": 6' in events["flags"]
    assert events["updates_per_second"] == [(2, 1), (3, 1)]


def test_the_command_where_a_run_is_not_finished(tmp_path):
    flags(tmp_path)
    metrics(tmp_path, "worker-0", push(10, 1))
    for directory, message in (tmp_path, "not finished"), (tmp_path / "none", "no flags.json"):
        process = support.tfrun("summary", directory)
        assert process.returncode == 1 and process.stdout == ""
        assert len(process.stderr.splitlines()) == 1 and message in process.stderr
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_what_a_docstring_says_of_a_script(tmp_path, monkeypatch):
    """Catches a run that is called after its folder, and a plan for workers that gossip."""
    for script in examples.scripts():
        text = script.read_text()
        name = text.removeprefix('"""').partition(": ")[0]
        assert run_directory.example_of(script) == (script.stem if " " in name else name)
        kind = text.partition("\nKind: ")[2].partition("\n")[0].strip()
        assert kind and run_directory.kind_of(script) == kind
    path = tmp_path / "train.py"
    path.write_text("print()\n")
    assert (run_directory.example_of(path), run_directory.kind_of(path)) == ("train", "")
    monkeypatch.delenv("OUTPUT_DIR", raising=False)
    launching = examples.load(support.ROOT / "Beyond-One-Machine" / "launching.py")
    assert launching.run_directory("Ray", path).parts[-3:-1] == ("Ray", "train")
    gone = tmp_path / "gone.py"
    assert (run_directory.example_of(gone), run_directory.kind_of(gone)) == ("gone", "")


def test_a_worker_that_has_joined_counts(tmp_path):
    """Catches a staleness and a rate without the updates of who came later, and a later begin."""
    flags(tmp_path, tasks=["worker-0", "worker-1"], steps=8)
    metrics(tmp_path, "worker-0", push(1, 1), push(2, 3), push(4, 7), test(4.5, 8, 0.9, 0.25))
    metrics(tmp_path, "worker-1", push(1, 2), push(3, 5), push(4, 8))
    metrics(tmp_path, "worker-2", push(2.5, 4, 6), push(3.5, 6, 2))
    result = summary.summarize(RunData.read(tmp_path))
    assert result["also_pushed"] == ["worker-2"] and result["workers"] == 2
    assert result["pushes_per_worker"] == [3, 3, 2]
    assert result["staleness_mean"] == 1
    assert result["examples_per_second"] == pytest.approx(6 * 32 / 3)


def test_another_example_takes_another_directory(tmp_path):
    """Catches a script that begins again over a run whose checkpoints it cannot read."""
    hogwild, ring = examples.main_script("HogWild"), examples.main_script("Ring-AllReduce")
    own = tmp_path / "train.py"
    own.write_text("print()\n")
    run_directory.refuse_another_example(tmp_path, ring)
    flags(tmp_path, tasks=["worker-0"])
    for script in hogwild, own:
        run_directory.refuse_another_example(tmp_path, script)
    with pytest.raises(
        ValueError, match="has a run of HogWild, not of Ring-AllReduce: set OUTPUT_DIR"
    ):
        run_directory.refuse_another_example(tmp_path, ring)
    run_directory.refuse_another_example(None, ring)
    flags(tmp_path, example="hogwild.py")  # of a run without docstrings, by python -OO
    run_directory.refuse_another_example(tmp_path, hogwild)
