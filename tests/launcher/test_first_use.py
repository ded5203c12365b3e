"""What a first user meets: live progress, a run that is stopped and goes on, wrong settings."""

import argparse
import re
import shlex
import signal
import subprocess
import time

import numpy as np
import pytest
import support
from lab import examples
from tfrun.runs import metrics_csv

LAUNCHERS = [
    path for path in support.launchers() if examples.kind_of(examples.script_of(path)) != "driver"
]
SINGLE = support.ROOT / "Non-Distributed-Setup" / "run.sh"


# Those whose command does not have the setting in it.
MEANINGLESS = [
    pytest.param(launcher, name, id="{}, {}".format("/".join(launcher.parts[-2:]), name))
    for launcher in LAUNCHERS
    for name in ("WORKERS", "PS")
    if not re.search(rf"(?m)^(?:exec|tfrun) .*\$\{{{name}:-\d\}}", launcher.read_text())
]


@pytest.mark.parametrize("launcher, name", MEANINGLESS)
def test_a_setting_without_a_meaning_is_refused(launcher, name, tmp_path):
    """In one line."""
    done = subprocess.run(
        ["bash", launcher],
        env=support.environment(tmp_path / "run", DRY_RUN="1", **{name: "3"}),
        capture_output=True,
        text=True,
        timeout=support.patience(60),
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and len(lines) == 1, done
    assert lines[0].startswith(launcher.name) and name in lines[0], lines


def test_paths_are_relative_to_the_user(tmp_path):
    """OUTPUT_DIR and --dataset are seen from the folder where the user stands."""
    x, y = np.random.RandomState(0).rand(40, 6).astype("float32"), np.arange(40) % 3
    np.savez(tmp_path / "my.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    done = subprocess.run(
        ["bash", SINGLE, "--dataset", "my.npz", "--steps", "20"],
        cwd=tmp_path,
        env=support.warm_environment("my-run"),
        capture_output=True,
        text=True,
        timeout=support.patience(60),
    )
    assert done.returncode == 0, done.stdout
    assert support.result(tmp_path / "my-run")["dataset"] == "my.npz"


@pytest.mark.long
def test_a_run_that_is_stopped_goes_on(tmp_path):
    """By the command that it prints; at most --checkpoint-steps updates are lost; then further."""
    directory = tmp_path / "my run"
    flags = ["--steps", "90000", "--checkpoint-steps", "300"]
    process = support.begin(SINGLE, directory, *flags)
    try:
        saved = "model.ckpt-*.index"
        support.wait_until(lambda: len([*directory.glob(saved)]) > 1, 60, "two checkpoints")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=support.patience(30))[0]
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT, output
    ((at, command),) = re.findall(r"it goes on from update (\d+) with: (.+)", output)
    at = int(at)
    assert 0 < at < 90000 and support.newest_checkpoint(directory).endswith(f"-{at}")
    last_step = int(max(row["global_step"] for row in support.pushes(directory)))
    assert at % 300 == 0 and last_step - at <= 300, "%d updates are lost" % (last_step - at)

    more = command.replace("90000", str(last_step + 100))
    assert more != command
    for text, message in [
        (more, f"it goes on from update {at},"),
        (more, "There is a finished run in"),
        (more.replace(str(last_step + 100), str(last_step + 200)), "it goes on from update"),
    ]:
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=support.environment(tmp_path / "not here"),
            capture_output=True,
            text=True,
            timeout=support.patience(90),
        )
        assert done.returncode == 0 and message in done.stdout, done.stdout + done.stderr
    assert shlex.split(command)[0] == f"OUTPUT_DIR={directory}"
    assert support.result(directory)["steps"] == last_step + 200


def progress(monkeypatch, capsys, directory, pushes, task=("worker", 0)):
    """Returns what a task prints for these pushes."""
    monkeypatch.setenv("OUTPUT_DIR", str(directory))
    script = examples.load(examples.main_script("From-TensorFlow-1/HogWild-Sessions"))
    flags = argparse.Namespace(steps=3000)
    metrics = script.Metrics(task, [("worker", 0), ("worker", 1)], [], flags)
    capsys.readouterr()
    for push in pushes:
        metrics.push(push)
    metrics.test(25.0, 500, 0.20713, 0.93611)
    return capsys.readouterr().out.splitlines()


# A push each 10 ms, for ten seconds: its columns as the graph gives them.
ROWS = [
    [20 + number / 100, 20.0, number, 1, 32, 0.05123, 1, 800, 0.001] for number in range(1, 1001)
]


def test_the_chief_prints_a_line_a_second(monkeypatch, capsys, tmp_path):
    """Tests step, loss and staleness of these lines, and those of a test."""
    *lines, test = progress(monkeypatch, capsys, tmp_path, ROWS)
    assert lines[0] == "update 1 of 3000   loss 0.05123   staleness 1"
    assert test == "update 500 of 3000   test_loss 0.2071   test_accuracy 0.9361"
    steps = [int(line.split()[1]) for line in lines]
    between = [later - earlier for earlier, later in zip(steps, steps[1:])]
    assert 9 <= len(lines) <= 10 and all(100 <= difference <= 102 for difference in between), steps
    others = progress(monkeypatch, capsys, tmp_path, ROWS, ("worker", 1))
    assert others == [test], "only the chief prints its pushes"


def test_what_a_task_writes_for_them(monkeypatch, capsys, tmp_path):
    """Tests the columns: a push leaves those of a test empty, and a test those of a push."""
    progress(monkeypatch, capsys, tmp_path, ROWS[:1])
    file = metrics_csv.read(tmp_path / "metrics-worker-0.csv")
    (push,), (test,) = file.rows("pushes"), file.rows("tests")
    assert [push[name] for name in metrics_csv.PUSH] == [
        20.01,
        20,
        1,
        1,
        32,
        0.05123,
        1,
        800,
        0.001,
    ]
    assert np.isnan([push["test_loss"], push["test_accuracy"]]).all()
    assert test["push_time"] == pytest.approx(time.time(), abs=60)
    assert (test["pull_time"], test["global_step"]) == (25, 500)
    assert np.isnan([test[name] for name in metrics_csv.PUSH[3:]]).all()
    assert (test["test_loss"], test["test_accuracy"]) == (0.20713, 0.93611)
    assert "nan" not in (tmp_path / "metrics-worker-0.csv").read_text()


def test_a_loss_that_is_not_finite_ends_the_run(monkeypatch, capsys, tmp_path):
    """Tests that the error names the update, whose line is written."""
    with pytest.raises(FloatingPointError, match="loss is nan at update 7"):
        progress(monkeypatch, capsys, tmp_path, [[20, 20, 7, 1, 32, float("nan"), 0, 800, 0]])
    assert ",7,1,32,nan,0," in (tmp_path / "metrics-worker-0.csv").read_text()
