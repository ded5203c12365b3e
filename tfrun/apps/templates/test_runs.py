"""Trains the script on a small problem; NumPy must get the same losses by the equation.

    python -m pytest

Then each mistake of equation.py stands in a copy of the script: that must train to its end, too,
and its losses must differ.
"""

import csv
import os
import pathlib
import subprocess
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")  # for all runs, too
import equation
import numpy as np
import pytest
import small_problem
import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / equation.SCRIPT
STEPS, BATCH = 12, 8
FLAGS = {"steps": STEPS, "batch_size": BATCH, "learning_rate": 0.3, "seed": 5, **equation.FLAGS}


def command_line():
    """Returns FLAGS as words. A list has commas; None is a flag that the script does not have."""
    words = []
    for name, value in FLAGS.items():
        if isinstance(value, list):
            value = ",".join(map(str, value))
        if value is not None:
            words.extend([f"--{name.replace('_', '-')}", str(value)])
    return words


def train(script, folder):
    """Trains a script. Returns its losses, [steps, tasks], and the loss of its last test."""
    tfrun = [sys.executable, "-m", "tfrun", "--problem", HERE / "small_problem.py"]
    command = [*tfrun, *equation.START, script, *command_line()]
    env = {**os.environ, "OUTPUT_DIR": str(folder / "run"), "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    losses, tests = [], {}
    for path in sorted((folder / "run").glob("metrics-*.csv")):
        with open(path) as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        tests.update(
            {int(row["global_step"]): row["test_loss"] for row in rows if row["test_loss"]}
        )
        pushes = {int(row["global_step"]): float(row["loss"]) for row in rows if row["loss"]}
        if pushes:
            assert sorted(pushes) == [*range(1, STEPS + 1)], f"{path.name} has other steps"
            losses.append([pushes[step] for step in sorted(pushes)])
    return np.transpose(losses), float(tests[STEPS])


def expected():
    """Returns what train() returns, by the equation."""
    x, y, x_test, y_test = small_problem.load_data("small")

    def gradient(k, number, w):
        own_x, own_y = x[k :: equation.N], y[k :: equation.N]
        key = [FLAGS["seed"] * 65536 + k, number]  # the same rows as the script draws
        rows = tf.random.stateless_uniform([BATCH], key, 0, len(own_x), tf.int32).numpy()
        return equation.loss_and_gradient(w, own_x[rows], own_y[rows], "tanh")

    lr = FLAGS["learning_rate"]
    workers = equation.REFERENCE(
        small_problem.first_values(), equation.N, gradient, lr, **equation.FLAGS
    )
    losses = [workers.joint_step(range(equation.N)) for _ in range(STEPS)]
    return np.array(losses), equation.loss_and_gradient(workers.w_of(0), x_test, y_test, "tanh")[0]


def compare(script, folder):
    """Asserts that the losses of a script are those of the equation."""
    losses, test_loss = train(script, folder)
    due, due_test_loss = expected()
    if losses.shape[1] == 1:  # one task reports the mean of all
        due = due.mean(1, keepdims=True)
    np.testing.assert_allclose(losses, due, rtol=1e-4)
    np.testing.assert_allclose(test_loss, due_test_loss, rtol=1e-4)


def test_the_script_is_the_equation(tmp_path):
    compare(SCRIPT, tmp_path)


@pytest.mark.parametrize("name", equation.MISTAKES)
def test_a_mistake_changes_the_losses(name, tmp_path):
    text = SCRIPT.read_text()
    for old, new in equation.MISTAKES[name]:
        assert text.count(old) == 1, f"write this mistake anew, the script lacks its text: {old}"
        text = text.replace(old, new)
    (tmp_path / SCRIPT.name).write_text(text)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compare(tmp_path / SCRIPT.name, tmp_path)
