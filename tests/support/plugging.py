"""Other problems in a script's region `problem`, and what they reach."""

import shutil

import pytest
import regions
import support
from tfrun.commands import export

# What a test puts into the region `problem`, and what its last metric reaches at the end.
PROBLEMS = {
    "convolution": lambda test: test["test_top_2_accuracy"] > 0.9,
    "embedding": lambda test: test["test_accuracy"] > 0.8,
    "regression": lambda test: test["test_absolute_error"] < 0.65,  # 0.85 without training
    "transformer": lambda test: test["test_accuracy"] > 0.85,
}


def plug(script, problem, folder):
    """Copies a script into that folder, with another problem in its region; returns its path."""
    path = folder / script.name
    shutil.copy(script, path)
    regions.fix(support.ROOT / "tests" / "problems" / (problem + ".py"), path)
    return path


def compare_export(directory, result):
    """Tests that the model of the last checkpoint has the metrics that the run has reported."""
    model, data, script, step = export.trained_model(directory)
    assert result["steps"] <= step <= result["steps"] + 1, (step, result["steps"])
    for name, value in export.evaluate(model, data, script).items():
        assert value == pytest.approx(result[name], abs=2e-5), (name, value, result[name])
