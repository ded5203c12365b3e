"""How long the 2x2 grid takes: runs one after another, two at once, and two at once on Spark.

    bash run_measure.sh --repeats 5

The ways take turns, so that a slow minute of the machine meets all of them. Writes measured.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

import parallel_experiments
from digits import train

GRID = {"learning_rate": [0.001, 0.01], "dropout": [0.0, 0.5]}
WAYS = {
    "one process": ("local", 1),
    "two processes": ("local", 2),
    "Spark, two slots": ("spark", 2),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="of each way (%(default)s)")
    flags = parser.parse_args()
    # Starting the session is no part of the time; it is measured by itself.
    began = time.monotonic()
    spark = parallel_experiments.session("local[2]")
    start, seconds, metrics = time.monotonic() - began, {way: [] for way in WAYS}, set()
    for _ in range(flags.repeats):
        for way, (backend, jobs) in WAYS.items():
            with tempfile.TemporaryDirectory() as logdir:
                began = time.monotonic()
                found = parallel_experiments.launch(
                    spark if backend == "spark" else None, train, GRID, logdir, jobs=jobs
                )
                seconds[way].append(round(time.monotonic() - began, 1))
            metrics.add(json.dumps([[result["run"], result["metrics"]] for result in found]))
    spark.stop()
    measured = {
        "command": "bash run_measure.sh --repeats %d" % flags.repeats,
        "date": str(datetime.date.today()),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load": os.getloadavg()[2],
        "session_of_spark_seconds": round(start, 1),
        "seconds": seconds,
        "different_results": len(metrics),
    }
    path = pathlib.Path(__file__).with_name("measured.json")
    path.write_text(json.dumps(measured, indent=2) + "\n")
    for way, values in seconds.items():
        print(
            "%-18s median %.1f s, %.1f to %.1f, n = %d"
            % (way, statistics.median(values), min(values), max(values), len(values))
        )
    print("sets of results: %d" % len(metrics))
    return int(len(metrics) != 1)


if __name__ == "__main__":
    sys.exit(main())
