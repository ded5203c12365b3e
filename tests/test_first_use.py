"""What a first user meets: live progress, a run that is stopped and goes on, wrong settings."""

import argparse
import itertools
import re
import shlex
import signal
import subprocess
import time

import numpy as np
import pytest
import support

LAUNCHERS = [
    path for path in support.launchers() if support.kind_of(support.script_of(path)) != "driver"
]
SINGLE = support.ROOT / "Non-Distributed-Setup" / "run.sh"


# Those whose command does not have the setting in it.
MEANINGLESS = [
    pytest.param(launcher, name, id="%s, %s" % ("/".join(launcher.parts[-2:]), name))
    for launcher in LAUNCHERS
    for name in ("WORKERS", "PS")
    if not re.search(r"(?m)^(?:exec|tfrun) .*\$\{%s:-\d\}" % name, launcher.read_text())
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
        env=support.environment("my-run"),
        capture_output=True,
        text=True,
        timeout=support.patience(60),
    )
    assert done.returncode == 0, done.stdout
    assert support.result(tmp_path / "my-run")["dataset"] == "my.npz"


def goes_on(output):
    """(the update from which the run goes on, the command for it), as tfrun has printed them."""
    found = re.search(r"it goes on from update (\d+) with: (.+)", output)
    assert found, output
    return int(found[1]), found[2]


@pytest.mark.long
def test_a_run_that_is_stopped_goes_on(tmp_path):
    """By the command that it prints; at most --checkpoint-seconds are lost; then further."""
    directory = tmp_path / "my run"
    flags = ["--steps", "90000", "--checkpoint-steps", "1000000", "--checkpoint-seconds", "1"]
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
    at, command = goes_on(output)
    rows = support.pushes(directory)
    times = {row["global_step"]: row["push_time"] for row in rows}
    assert 0 < at < 90000 and support.newest_checkpoint(directory).endswith("-%d" % at)
    lost = rows[-1]["push_time"] - times[at]
    assert lost < support.patience(3), "%s s are lost" % lost

    more = command.replace("90000", str(len(times) + 100))
    assert more != command
    for text, said in [
        (more, "it goes on from update %d," % at),
        (more, "There is a finished run in"),
        (more.replace(str(len(times) + 100), str(len(times) + 200)), "it goes on from update"),
    ]:
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=support.environment(tmp_path / "not here"),
            capture_output=True,
            text=True,
            timeout=support.patience(90),
        )
        assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr
    assert shlex.split(command)[0] == "OUTPUT_DIR=%s" % directory
    assert support.result(directory)["steps"] == len(times) + 200


def test_tests_leave_time_for_updates(tmp_path, monkeypatch, capsys):
    """A test of ten parts, of 20 ms each: its share of the time, the lines, and what it reports.

    The rows of a part count as they are; each second a line with the rate; the last test is whole.
    """
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "run"))
    script = support.load(support.main_script("HogWild"))
    flags = argparse.Namespace(steps=10**6, checkpoint_steps=10**6, checkpoint_seconds=10)
    metrics, spent, tests = script.Metrics("worker-0", [("worker", 0)], flags), [], 0
    rows = 9 * script.TEST_ROWS + script.TEST_ROWS // 2
    values = np.arange(rows) / rows

    def evaluate(first):
        time.sleep(0.02)
        part = values[first : first + script.TEST_ROWS]
        return metrics.step, rows, part.mean(), 1 - part.mean()

    began = time.time()
    for step in itertools.count(1):
        now = time.time()
        if now > began + 9:
            break
        metrics.push([now, now, step, 1, 32, 0.5, 3, 800, 0.001])
        if (before := time.time()) > metrics.next_test:
            metrics.test(evaluate)
            spent.append(time.time() - before)
        time.sleep(0.002)
    assert 12 < len(spent) and sum(spent) < 0.06 * 9, (len(spent), sum(spent))
    metrics.test(evaluate, all_rows=True)

    lines = [re.findall(r"(\w+) ([\d.]+)", line) for line in capsys.readouterr().out.splitlines()]
    lines = [{name: float(value) for name, value in line} for line in lines]
    steps = [line["update"] for line in lines]
    assert 7 <= len(steps) <= 11 and steps == sorted(set(steps[:-1])) + steps[-1:], steps
    rate = (steps[-2] - steps[1]) / (len(steps) - 3)
    for line in lines[2:-1]:
        assert line["updates_per_second"] == pytest.approx(rate, rel=0.5), (line, rate)
    text = (tmp_path / "run" / "metrics-worker-0.csv").read_text().splitlines()
    found = [line.split(",") for line in text if ",,," in line and not line.startswith("push")]
    tests = [fields[-2:] for fields in found if fields[-1]]
    assert len(tests) >= 2 and int(found[-1][2]) == step - 1
    for loss, accuracy in tests:
        assert float(loss) == pytest.approx(values.mean(), abs=2e-6)
        assert float(accuracy) == pytest.approx(1 - values.mean(), abs=2e-6)


@pytest.mark.long
def test_tensorboard_has_rate_staleness_and_flags(tmp_path):
    """Each run once, with the scalars of its evaluations, and the flags as a text."""
    directory = tmp_path / "runs"
    for name in "a", "b":
        code, output, _ = support.launch(SINGLE, directory / name, "--steps", "3000")
        assert code == 0, output
    read = support.python(
        """
import sys
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
runs = EventMultiplexer(); runs.AddRunsFromDirectory(sys.argv[1]); runs.Reload()
for run, tags in sorted(runs.Runs().items()):
    flags = runs.Tensors(run, "flags/text_summary" if "flags/text_summary" in tags["tensors"] else
                         "flags")[0].tensor_proto.string_val[0].decode()
    print(run, ",".join(sorted(tags["scalars"])), "--steps" if '"steps": 3000' in flags else flags)
    assert all(e.value > 0 for e in runs.Scalars(run, "updates_per_second"))
""",
        str(directory),
    )
    scalars = "loss,staleness,test_accuracy,test_loss,updates_per_second"
    assert read.stdout.splitlines() == ["%s %s --steps" % (run, scalars) for run in "ab"], read
