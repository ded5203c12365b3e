"""The problem files of Your-Model in a script, and what they reach."""

import pathlib
import sys

import pytest
import support
from common import problems
from tfrun.commands import export

# A problem file, and what its last metric reaches at the end.
PROBLEMS = {
    "convolution": lambda test: test["test_top_2_accuracy"] > 0.9,
    "embedding": lambda test: test["test_accuracy"] > 0.8,
    "gpt": lambda test: test["test_bits_per_byte"] < 4.2,  # 4.7 for who knows how often each comes
    "recommender": lambda test: test["test_absolute_error"] < 0.6,  # 0.78 for the mean rating
    "regression": lambda test: test["test_absolute_error"] < 0.65,  # 0.85 without training
    "transformer": lambda test: test["test_accuracy"] > 0.85,
}


def file_of(problem):
    """Returns the path of a problem file."""
    return support.ROOT / "Your-Model" / f"{problem}.py"


def flags_of(script, problem):
    """Returns the flags of a short run in which a script learns a problem."""
    steps = 1200 if problem == "recommender" else 240  # most rows of its tables are drawn rarely
    if '("local-steps", ' in script.read_text():
        return ["--steps", str(steps // 3), "--local-steps", "4"]
    return ["--steps", str(steps)]


def plug(script, problem, directory):
    """Puts a problem into a copy of a script, as tfrun does, in the run directory.

    Returns the path of the copy.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(*problems.plug(file_of(problem), [str(script)], directory))


def forget():
    """Lets the next script import its own problem, as in a process of its own."""
    for name in ("adapted_problem", "own_problem"):
        sys.modules.pop(name, None)


def compare_export(directory, result):
    """Tests that the model of the last checkpoint has the metrics that the run has reported."""
    forget()
    model, data, script, step = export.trained_model(directory)
    forget()
    assert result["steps"] <= step <= result["steps"] + 1, (step, result["steps"])
    for name, value in export.evaluate(model, data, script).items():
        assert value == pytest.approx(result[name], abs=2e-5), (name, value, result[name])
