"""The problem files of Your-Model in a script, and what they reach."""

import pathlib
import re
import sys

import pytest
import support
from tfrun import problems
from tfrun.runs import models

# A problem file, and what its last metric reaches at the end.
PROBLEMS = {
    "convolution": lambda test: test["test_top_2_accuracy"] > 0.9,
    "embedding": lambda test: test["test_accuracy"] > 0.8,
    "gpt": lambda test: test["test_bits_per_byte"] < 4.2,  # 4.7 by how often each byte comes
    "recommender": lambda test: test["test_absolute_error"] < 0.6,  # 0.77 by the mean rating
    "regression": lambda test: test["test_absolute_error"] < 0.65,  # 0.85 without training
    "transformer": lambda test: test["test_accuracy"] > 0.85,
}


def file_of(problem):
    """Returns the path of a problem file."""
    return support.ROOT / "Your-Model" / f"{problem}.py"


def flags_of(script, problem):
    """Returns the flags of a run of a script that is as short as this problem allows."""
    text, steps = script.read_text(), 1500 if problem == "recommender" else 240
    flags = ["--steps", f"{steps}"]
    if '"local-steps"' in text:
        flags = ["--steps", f"{steps // 3}", "--local-steps", "4"]
    rate = re.search(r"(?m)^STEPS, .+ = \d+, \d+, ([\d.]+)", text)
    adam = rate and float(rate[1]) == 0.001
    if problem == "gpt" or (problem == "recommender" and adam):  # it learns slowly
        if rate:
            flags += ["--learning-rate", f"{3 * float(rate[1]):g}"]
        else:
            flags += ["--learning-rates", "0.3,0.15"]
    return flags


def plug(script, problem, directory):
    """Puts a problem into a copy of a script, as tfrun does, in the run directory.

    Returns the path of the copy.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(*problems.install_problem(file_of(problem), [str(script)], directory))


def forget():
    """Lets the next script import its own problem, as in a process of its own."""
    for name in ("adapted_problem", "own_problem"):
        sys.modules.pop(name, None)


def compare_export(directory, result):
    """Tests that the model of the last checkpoint has the metrics that the run has reported."""
    forget()
    model, data, script, step = models.trained_model(directory)
    forget()
    assert result["steps"] <= step <= result["steps"] + 1, (step, result["steps"])
    for name, value in models.evaluate(model, data, script).items():
        assert value == pytest.approx(result[name], abs=2e-5), (name, value, result[name])
