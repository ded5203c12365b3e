"""How fast other engines start and train: start_up.py and rates.py, on rows made by hand."""

import json
import types

import pytest
import run_files
from measurements import RATES, Clock, load


def test_the_start_of_an_engine():
    """From the command to the first update of all, from the last update to the command's end.

    Catches: the last update for the first one, or the other way round.
    """
    module = load("Beyond-One-Machine/start_up.py")
    clock = Clock()
    module.time = clock

    def popen(command, env, **more):
        for task, times in (("worker-0", (105, 110)), ("worker-1", (103, 120))):
            run_files.metrics(
                env["OUTPUT_DIR"], task, *(run_files.push(t, n) for n, t in enumerate(times))
            )
        rows = [run_files.test(125, 9, 0.5, 0.5)]
        run_files.metrics(env["OUTPUT_DIR"], "evaluator-0", *rows)
        clock.tick(30)
        return types.SimpleNamespace(wait=lambda seconds: 0)

    module.subprocess = types.SimpleNamespace(Popen=popen, DEVNULL=None, STDOUT=None)
    assert list(module.run("run.sh", 100, 5)) == [3, 10]


def test_the_rates_of_spark(tmp_path):
    """Examples a second of one worker, without its first update; medians, to Spark-Cluster's.

    Catches: the sum of both workers, the first update's examples, a ratio to the best rate,
    and means for medians.
    """
    module = load(RATES)

    def run(command, folder):
        for task, times in (("worker-0", (10, 20, 22, 30)), ("worker-1", (15, 25))):
            run_files.metrics(folder, task, *(run_files.push(t, n) for n, t in enumerate(times)))
        result = {"examples_per_second_per_worker": 7, "accuracy": 1, "seconds": 2}
        (folder / "mode").mkdir()
        (folder / "mode" / "result.json").write_text(
            json.dumps({**result, "microseconds_of_an_example": {}})
        )

    module.example_runs.run = run
    assert module.run("Spark-Cluster", tmp_path / "a", "") == pytest.approx(
        {"rate": (3 * 32 / 20 + 3.2) / 2}
    )
    assert module.run("TENSORFLOW mode", tmp_path / "b", "")["rate"] == 7
    assert [module.spread([4, 1, 2, 9]), module.cell(module.spread([100, 300]))] == [
        {"median": 3, "range": [1, 9]},
        "200 (100-300)",
    ]
    ways = {"Spark-Cluster": [{"rate": rate} for rate in (40, 10, 20, 90)]}
    ways["SPARK"] = [
        {"rate": rate, "parts": {"next_batch": rate, "numpy": 0.01, "run": 3}}
        for rate in (15, 3, 5, 45)
    ]
    measured = {"ways": ways, "alone": {"put": module.spread([1, 2])}, "load": [1, 3], "about": ""}
    lines = module.tables(measured)["rates_ways.txt"].splitlines()
    assert lines[3] == "| SPARK | 10.0 (3.0-45.0) | 33% | 10.0 (3.0-45.0) |  | 3.0 (3.0-3.0) |"
