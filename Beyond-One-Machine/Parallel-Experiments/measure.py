"""How long the 2x2 grid takes: runs one after another, two at once, and two at once on Spark.

    bash run_measure.sh --repeats 5

The ways take turns, so that a slow minute of the machine meets all of them. Writes measured.json
and its table, measured.txt.
"""

import datetime
import json
import os
import pathlib
import platform
import sys
import tempfile
import time

import parallel_experiments
from lab.measure import arguments, sessions, text_tables
from lab.pages import result_tables
from digits import train

HERE = pathlib.Path(__file__).resolve().parent

GRID = {"learning_rate": [0.001, 0.01], "dropout": [0.0, 0.5]}
WAYS = [("one process", False, 1), ("two processes", False, 2), ("Spark, two slots", True, 2)]


def table(results):
    """Returns the table of the page."""
    times = results["seconds"]
    return result_tables.table(
        ["the 2×2 grid", "seconds"],
        [(way, result_tables.spread(seconds)) for way, seconds in times.items()],
        f"Median (and range) of {len(next(iter(times.values())))} runs on {results['date']}; "
        f"{results['cores']} cores, with a load of {results['load']:.0f}.",
    )


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--repeats", 5, "of each way")
    flags, different = parser.parse_args(), set()
    # Starting the session is no part of the time; it is measured by itself.
    began = time.monotonic()
    spark = parallel_experiments.session("local[2]")
    start = time.monotonic() - began

    def measure(case, _):
        _, on_spark, jobs = case
        with tempfile.TemporaryDirectory() as logdir:
            began, session = time.monotonic(), spark if on_spark else None
            table = parallel_experiments.launch(session, train, GRID, logdir, jobs=jobs)
            seconds = round(time.monotonic() - began, 1)
        different.add(json.dumps([[result["run"], result["metrics"]] for result in table]))
        return seconds

    seconds = sessions.measure_round_robin(
        text_tables.table_console(80), WAYS, flags.repeats, measure
    )
    spark.stop()
    measured = {
        "command": f"bash run_measure.sh --repeats {flags.repeats}",
        "date": str(datetime.date.today()),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load": os.getloadavg()[2],
        "session_of_spark_seconds": round(start, 1),
        "seconds": seconds,
        "different_results": len(different),
    }
    (HERE / "measured.json").write_text(json.dumps(measured, indent=2) + "\n")
    result_tables.leave(HERE / "measured.txt", table(measured))
    print(f"sets of results: {len(different)}")
    return int(len(different) != 1)


if __name__ == "__main__":
    sys.exit(main())
