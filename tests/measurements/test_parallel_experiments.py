"""Parallel-Experiments: the rows of its data, its report and its picture; Keras is played."""

import sys
import types
from unittest import mock

import numpy as np
from measurements import EXPERIMENTS, check_rows, digits, load, points


def test_the_rows_of_experiments():
    """Of the digits, and of a dataset of Keras, which is played.

    Catches: labels of other rows, rows in both halves, and another scale.
    """
    module = load(EXPERIMENTS + "digits.py")
    check_rows("digits", module.load("digits"), *digits(), [1437, 1437, 360, 360])
    random = np.random.RandomState(0)
    x, y = random.randint(0, 256, [30, 2, 2]), np.arange(30)
    played = types.SimpleNamespace(load_data=lambda: ((x[:20], y[:20]), (x[20:], y[20:])))
    keras = types.SimpleNamespace(datasets=types.SimpleNamespace(mnist=played))
    with mock.patch.dict(sys.modules, keras=keras):
        parts = module.load("mnist")
    flat = (x.reshape(30, 4) / 255).astype("float32")
    check_rows("mnist", parts, flat, y, [20, 20, 10, 10])
    assert sorted(parts[3]) == list(range(20, 30))


def test_an_experiment_is_tested_on_rows_that_it_never_saw(monkeypatch):
    """Without Keras, which is played. Catches: an accuracy of training rows; loss as accuracy."""
    digits = load(EXPERIMENTS + "digits.py")
    keras = mock.MagicMock()
    model = keras.Sequential.return_value
    model.evaluate.return_value = 0.25, 0.75
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setitem(sys.modules, "tensorflow", mock.MagicMock())
    assert digits.train(0.01, 0.5, epochs=3, batch_size=64) == {"accuracy": 0.75, "loss": 0.25}
    x, y, batch_size, epochs = model.fit.call_args.args
    assert (batch_size, epochs) == (64, 3)
    validation = model.fit.call_args.kwargs["validation_data"]
    for x_test, y_test in (model.evaluate.call_args.args, validation):
        seen = {row.tobytes() for row in x}
        assert len(x_test) == len(y_test) == 360 and len(x) == len(y) == 1797 - 360
        assert not any(row.tobytes() in seen for row in x_test)
    assert keras.layers.Dropout.call_args.args == (0.5,)
    assert keras.optimizers.Adam.call_args.args == (0.01,)


def test_each_result_has_the_numbers_of_its_own_run(tmp_path):
    """In the table and in the file, the best first. Catches rows that are sorted apart."""
    report = load(EXPERIMENTS + "report.py")
    results = [
        {
            "run": f"x={x}",
            "parameters": {"x": x, "same": 1},
            "metrics": {} if x == 3 else {"accuracy": None if x == 4 else x / 10, "loss": -x},
            "status": "failed" if x == 3 else "done",
            "seconds": x + 0.5,
            "error": "KeyError: x" if x == 3 else "",
        }
        for x in (3, 1, 4, 5, 2)
    ]
    for direction, order in ("max", [5, 2, 1, 4, 3]), ("min", [1, 2, 5, 4, 3]):
        ordered = report.in_order(results, "accuracy", direction)
        assert [result["parameters"]["x"] for result in ordered] == order
        report.write_csv(ordered, tmp_path / "results.csv")
        lines = (tmp_path / "results.csv").read_text().splitlines()
        assert lines[0] == "run,x,same,accuracy,loss,status,seconds,error"
        assert lines[1:] == [
            f"x={x},{x},1,"
            + {4: ",-4,done", 3: ",,failed"}.get(x, f"{x / 10},-{x},done")
            + f",{x + 0.5},"
            + ("KeyError: x" if x == 3 else "")
            for x in order
        ]


def test_the_picture_of_experiments(tmp_path):
    """The star is the first of the table, which is the best; a difference is told."""
    module = load(EXPERIMENTS + "report.py")
    results = [
        {"run": f"x={x}", "parameters": {"x": x}, "metrics": {"m": x / 10}, "status": "done"}
        for x in (3, 1, 2)
    ]
    saved = []
    with mock.patch(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: saved.append(figure)
    ):
        module.draw(module.in_order(results, "m", "min"), "m", tmp_path / "x.png")
    marks = [(line.get_marker(), *points(line)[0]) for line in saved[0].axes[0].lines]
    assert sorted(marks) == [("*", 0, 0.1), ("o", 1, 0.2), ("o", 2, 0.3)]
    other = [
        {**result, "metrics": {"m": result["metrics"]["m"] + 1e-9 * (result["run"] == "x=2")}}
        for result in results
    ]
    assert [module.equal(results, results[::-1]), module.equal(results, other)] == [True, False]
