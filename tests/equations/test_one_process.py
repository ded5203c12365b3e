"""Whole runs of Non-Distributed-Setup against NumPy: its losses, its tests, its checkpoints.

The script's own main() runs in this process and ends; then it goes on from its last checkpoint.
"""

import json
import os
import sys
import time

import equations
import interleaved
import numpy as np
import pytest
import support
import tensorflow as tf
from lab import examples
from problem import BATCH, LR, SEED, command_line, digits_like, gradient_on_digits
from tfrun.apps import perceptron
from tfrun.runs import metrics_csv, models
from tfrun.runs.data import RunData

SCRIPT = examples.main_script("Non-Distributed-Setup")
PARTS, EVERY, PER_CALL = (7, 16), 3, 2  # a run of 7 updates, which goes on to 16


def run(folder, text=None, **flags):
    """Runs main() on the small problem, with its output in a folder; returns the module."""
    settings = {"checkpoint_steps": EVERY, "updates_per_call": PER_CALL, **flags}
    words = [str(part) for flag in command_line(settings).items() for part in flag]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTPUT_DIR", str(folder))
        patch.setattr(sys, "argv", [SCRIPT.name, *words])
        script = examples.load(SCRIPT, text)
        patch.setattr(script, "load_data", lambda _: script.Data(*digits_like()))
        script.keras.utils.clear_session()  # names begin again, as in a process of its own
        script.main()
    return script


def first_values(script):
    """Returns the parameters of the model with which a run of this seed begins."""
    script.keras.utils.clear_session()
    script.keras.utils.set_random_seed(SEED)
    model = script.make_model(script.Data(*digits_like()))
    return [v.numpy() for v in model.trainable_variables]


def means_at(w):
    """Returns the loss and the accuracy at w on the rows of the test."""
    x, y = digits_like()[2:]
    losses, right = zip(*[one_row(w, x[i : i + 1], y[i : i + 1]) for i in range(len(x))])
    return np.mean(losses), np.mean(right)


def one_row(w, x, y):
    """Returns the loss of a row, and whether it is smaller than that of any other class."""
    losses = [perceptron.loss_and_gradient(w, x, np.array([k]))[0] for k in range(3)]
    return losses[y[0]], np.argmin(losses) == y[0]


def expected(first):
    """Returns [(loss, parameters after it)] of each update, by NumPy alone."""
    file, updates = equations.of(SCRIPT), []
    reference = file.REFERENCE(first, 1, gradient_on_digits(1), LR)
    for _ in range(PARTS[1]):
        reference.pull(0)
        loss, *_ = reference.push(0)
        updates.append((loss, reference.copy()))
    return updates


def compare(folder, changes=()):
    """The named comparisons of numbers that a mistake must fail."""
    text, began, kept = examples.replaced(SCRIPT, changes), time.time(), []
    for steps in PARTS:
        script = run(folder, text, steps=steps)
        kept.append(sorted(int(path.stem.split("-")[1]) for path in folder.glob("*.index")))
    assert script.PUSH.split(",") == metrics_csv.PUSH
    first, data, last = first_values(script), RunData.read(folder), PARTS[1]
    due, pushes, tests = expected(first), data.rows("pushes"), data.rows("tests")
    wrong = []

    def check(name, actual, known, most=0.0):
        """Notes where numbers are not those known."""
        actual, known = [np.asarray(numbers, float) for numbers in (actual, known)]
        if actual.shape != known.shape or not (np.abs(actual - known) <= most).all():
            wrong.append(f"{name}: {actual.tolist()}, not {known.tolist()}")

    def column(name):
        return [row[name] for row in pushes]

    check("steps", column("global_step"), range(1, last + 1))
    if len(pushes) == last:
        check("losses", column("loss"), [loss for loss, _ in due], 1e-5)
    for name, value in {"local_steps": 1, "staleness": 0, "bytes": 0, "wait_seconds": 0}.items():
        check(name, column(name), [value] * len(pushes))
    check("examples", column("examples"), [BATCH] * len(pushes))
    times = [row[name] for row in pushes for name in ("pull_time", "push_time")]
    if not began - 1 < times[0] or not times[-1] < time.time() + 1 or sorted(times) != times:
        wrong.append(f"times: {np.subtract(times, began)} s after the begin")
    at = [3, 6, 7, 9, 12, 15, 16]
    values = [
        [row[name] for name in ("global_step", "test_loss", "test_accuracy")] for row in tests
    ]
    check("tests", values, [(step, *means_at(due[step - 1][1])) for step in at], 1e-5)
    check("checkpoints", kept[0] + kept[1], at[:3] + at[2:])
    for step in kept[1]:
        saved = tf.train.load_checkpoint(str(folder / f"model.ckpt-{step}"))
        check("checkpoints", saved.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE"), step)
    newest = tf.train.latest_checkpoint(str(folder))
    w = models.saved_values(newest, [v.shape for v in first])["w"]
    flat = [interleaved.flat(arrays) for arrays in (first, w, due[-1][1])]
    moved, apart = (np.abs(flat[1] - flat[i]).max() for i in (0, 2))
    if not apart < 1e-5 or not moved > 0.01:
        wrong.append(f"parameters: {apart:g} apart, {moved:g} moved")
    assert not wrong, "\n".join(wrong)


def test_a_run_is_the_equation(tmp_path):
    """Each loss, test, checkpoint and count, also of a run that stops and goes on."""
    compare(tmp_path)


@pytest.mark.parametrize("script, fails, changes", equations.mistakes([SCRIPT], core=0))
def test_a_mistake_is_caught(script, fails, changes, tmp_path):
    with support.fails_comparison(fails):
        compare(tmp_path, changes)


def test_flags_json_has_what_was_given(tmp_path):
    run(tmp_path, steps=2)
    flags = {"checkpoint_steps": EVERY, "updates_per_call": PER_CALL, "steps": 2}
    flags |= {"learning_rate": LR, "batch_size": BATCH, "seed": SEED, "dataset": "digits"}
    shapes = zip(("dense", "dense_1", "dense_2"), (6, 128, 64), (128, 64, 3))
    assert json.loads((tmp_path / "flags.json").read_text()) == {
        "example": "Non-Distributed-Setup",
        "script": str(SCRIPT),
        "tasks": ["worker-0"],
        "ps": 0,
        "metrics": {"test_loss": "min", "test_accuracy": "max"},
        "variables": [
            variable
            for name, rows, columns in shapes
            for variable in (
                [f"sequential/{name}/kernel", [rows, columns]],
                [f"sequential/{name}/bias", [columns]],
            )
        ],
        "arguments": flags,
        "versions": {"tensorflow": tf.__version__},
    }
    before = os.listdir(tmp_path)
    run(tmp_path, steps=2)  # nothing is left to do
    assert os.listdir(tmp_path) == before and len(support.pushes(tmp_path)) == 2


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    """At its update, though the call makes more of them; no later checkpoint is written."""
    with pytest.raises(FloatingPointError, match="loss is (nan|inf) at update") as raised:
        run(tmp_path, learning_rate=1e9, updates_per_call=50, checkpoint_steps=50)
    losses = [row["loss"] for row in support.pushes(tmp_path)]
    assert str(raised.value).endswith(f" {len(losses)}") and len(losses) < 20
    assert np.isfinite(losses).tolist() == [True] * (len(losses) - 1) + [False]
    assert not list(tmp_path.glob("model.ckpt*"))


def test_a_checkpoint_of_the_session_form_is_refused(tmp_path):
    """Its variables have other names: it must not pass for one with nothing to restore."""
    run(tmp_path, steps=2)
    for path in tmp_path.glob("model.ckpt*"):
        path.unlink()
    values = {f"w_{i}": tf.zeros([3]) for i in range(6)}
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt-2"),
        tensor_names=list(values),
        shape_and_slices=[""] * 6,
        tensors=list(values.values()),
    )
    with pytest.raises(AssertionError, match="not restored"):
        run(tmp_path, steps=4)
    assert len(support.pushes(tmp_path)) == 2
