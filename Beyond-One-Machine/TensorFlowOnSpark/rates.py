"""Measures TensorFlowOnSpark beside Spark-Cluster, and what a record of an RDD costs on its way.

    bash run.sh rates      5 rounds, 15 minutes or more; writes rates.json into OUTPUT_DIR

Every round runs all ways once, on one standalone cluster of Spark, so that a slow minute of the
machine meets all of them. The parts of a record's way are then timed alone, in the same round.
"""

import argparse
import csv
import datetime
import json
import logging
import multiprocessing
import os
import pathlib
import pickle
import platform
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
HOGWILD = HERE.parents[1] / "HogWild" / "hogwild.py"
LAUNCH = HERE.parent / "Spark-Cluster" / "spark_launch.py"
COPIES = 10  # of the digits in `large`: the same examples as 10 epochs of 4 small partitions
WAYS = {
    "Spark-Cluster": [],
    "TENSORFLOW mode": ["--mode", "tensorflow"],
    "SPARK mode, 40 partitions of 359 rows": ["--mode", "spark", "--partitions", "4"],
    "SPARK mode, 2 partitions of 7185 rows": [
        "--mode",
        "spark",
        "--partitions",
        "2",
        "--epochs",
        "1",
        "--dataset",
        "large",
    ],
    "the same, 32 rows in a record": [
        "--mode",
        "spark",
        "--partitions",
        "2",
        "--epochs",
        "1",
        "--dataset",
        "large",
        "--record-rows",
        "32",
    ],
}


def run(way, folder, large):
    """Examples a second of a worker, and the microseconds of an example that tfos.py reports."""
    words = [str(large) if word == "large" else word for word in WAYS[way]]
    command = (
        [HERE / "tfos.py", *words]
        if words
        else [LAUNCH, "--ps", "1", "--workers", "2", HOGWILD, "--steps", "4000"]
    )
    subprocess.run(
        [sys.executable, *map(str, command)],
        check=True,
        timeout=400,
        env={**os.environ, "OUTPUT_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if words:
        result = json.loads(next(folder.glob("*/result.json")).read_text())
        return {
            "rate": result["examples_per_second_per_worker"],
            "accuracy": result["accuracy"],
            "seconds": result["seconds"],
            "parts": result["microseconds_of_an_example"],
        }
    rates = []
    for path in folder.glob("metrics-worker-*.csv"):
        rows = [row for row in csv.DictReader(path.open()) if row["loss"]]
        # As tfos.py does it: the first update sets up the graph.
        times = [float(row["push_time"]) for row in rows]
        rates.append(sum(float(row["examples"]) for row in rows[1:]) / (times[-1] - times[0]))
    return {"rate": statistics.mean(rates)}


def rows(n):
    """Records as tfos.py makes them."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    return [(i, x[i % len(x)], int(y[i % len(x)])) for i in range(n)]


def empty_the_queue(manager, n, started):
    """In a process of its own: what a worker does, without the training."""
    from tensorflowonspark import TFNode

    feed = TFNode.DataFeed(manager)
    started.set()
    while n > 0:
        n -= len(feed.next_batch(32))


def queue_alone(n):
    """Microseconds of a record in TensorFlowOnSpark's queue: put, got, and both at once."""
    from tensorflowonspark import TFManager, TFNode

    records, each = rows(n), {}
    manager = TFManager.start(b"a key", ["input", "output", "error"])
    try:
        queue = manager.get_queue("input")

        def timed(what, function):
            began = time.perf_counter()
            function()
            each[what] = 1e6 * (time.perf_counter() - began) / n

        timed("pickled and back", lambda: [pickle.loads(pickle.dumps(r)) for r in records])
        timed("put", lambda: [queue.put(record, block=True) for record in records])
        feed = TFNode.DataFeed(manager)
        timed("next_batch", lambda: [feed.next_batch(32) for _ in range(n // 32)])
        fork = multiprocessing.get_context("fork")
        started = fork.Event()
        reader = fork.Process(target=empty_the_queue, args=(manager, n, started))
        reader.start()
        started.wait(60)

        def put_all():
            for record in records:
                queue.put(record, block=True)
            reader.join(120)

        timed("put and next_batch at once", put_all)
        blocks = [
            [np.stack(column) for column in zip(*records[i : i + 32])] for i in range(0, n, 32)
        ]

        def by_blocks():
            for block in blocks:
                queue.put(block, block=True)
            feed.next_batch(len(blocks))

        timed("32 rows in a record", by_blocks)
    finally:
        manager.shutdown()
    return each


def spark_alone(n):
    """Microseconds of a record from the JVM to a Python that does nothing with it."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(os.environ["SPARK_MASTER"])
        .config("spark.executor.cores", 1)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def seconds(records):
        began = time.perf_counter()
        for _ in records:
            pass
        yield time.perf_counter() - began

    try:
        rdd = spark.sparkContext.parallelize(rows(n), 1)
        return {
            "JVM to Python": 1e6 * min(rdd.mapPartitions(seconds).first() for _ in range(3)) / n
        }
    finally:
        spark.stop()


def spread(values):
    """The median and the range."""
    return {"median": statistics.median(values), "range": [min(values), max(values)]}


def write(path, ways, parts, loads):
    """The measurement so far."""
    from importlib.metadata import version

    result = {
        "ways": {
            way: {
                "rate": spread([each["rate"] for each in some]),
                "rounds": some,
                **(
                    {
                        "parts": {
                            name: spread([each["parts"][name] for each in some])
                            for name in some[0]["parts"]
                        }
                    }
                    if "parts" in some[0]
                    else {}
                ),
            }
            for way, some in ways.items()
            if some
        },
        "alone": {name: spread([each[name] for each in parts]) for name in parts[0]},
        "about": {
            "date": datetime.date.today().isoformat(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "rounds": len(parts),
            "load": loads,
            **{name: version(name) for name in ("tensorflowonspark", "pyspark", "keras", "numpy")},
            "tensorflow": next(version(d) for d in ("tensorflow-cpu", "tensorflow") if has(d)),
        },
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    return result


def has(distribution):
    import importlib.metadata

    try:
        return bool(importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return False


def tables(measured):
    """The parts of the page that come from rates.json."""

    def cell(each):
        digits = "%.0f" if each["median"] >= 100 else "%.1f"
        return "%s (%s)" % (digits % each["median"], "-".join(digits % x for x in each["range"]))

    ways = [
        "| way | examples/s a worker | of Spark-Cluster's | next_batch, us | NumPy, us | "
        "update, us |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    first = measured["ways"]["Spark-Cluster"]["rate"]["median"]
    for way, each in measured["ways"].items():
        parts = (
            [each["parts"][name] for name in ("next_batch", "numpy", "run")]
            if "parts" in each
            else []
        )
        cells = [cell(part) if part["median"] >= 0.05 else "" for part in parts] or [""] * 3
        ways.append(
            "| %s | %s | %.0f%% | %s |"
            % (way, cell(each["rate"]), 100 * each["rate"]["median"] / first, " | ".join(cells))
        )
    alone = ["| a record, alone | us |", "| --- | --- |"]
    alone += ["| %s | %s |" % (name, cell(each)) for name, each in measured["alone"].items()]
    about, loads = measured["about"], measured["about"]["load"]
    text = (
        "%d rounds on %s; %d cores (%s), with a load of %.0f to %.0f; TensorFlow %s,\n"
        "TensorFlowOnSpark %s, Spark %s, Python %s."
        % (
            about["rounds"],
            about["date"],
            about["cores"],
            about["machine"],
            min(loads),
            max(loads),
            about["tensorflow"],
            about["tensorflowonspark"],
            about["pyspark"],
            about["python"],
        )
    )
    return {"ways": "\n".join(ways), "alone": "\n".join(alone), "about": text}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of all ways (5)")
    flags = parser.parse_args()
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / "TensorFlowOnSpark"
    output = pathlib.Path(
        os.environ.get("OUTPUT_DIR") or runs / time.strftime("rates_%Y-%m-%d_%H-%M-%S")
    ).resolve()
    output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.basicConfig(level=logging.CRITICAL)  # before TensorFlowOnSpark sets it to INFO
    sys.path.insert(0, str(HOGWILD.parent))
    from hogwild import load_data

    data, large = load_data("digits"), output / "large.npz"
    np.savez(
        large,
        x_train=np.tile(data.x_train, (COPIES, 1)),
        y_train=np.tile(data.y_train, COPIES),
        x_test=data.x_test,
        y_test=data.y_test,
    )
    ways, parts, loads = {way: [] for way in WAYS}, [], []
    for number in range(flags.rounds):
        for way in WAYS:
            found = run(way, output / ("%d %s" % (number, way)), large)
            ways[way].append(found)
            print(
                "round %d   %6.0f examples/s a worker   %s" % (number + 1, found["rate"], way),
                flush=True,
            )
            loads.append(os.getloadavg()[0])
        parts.append({**queue_alone(32 * 200), **spark_alone(14370)})
        measured = write(output / "rates.json", ways, parts, loads)
    print(*tables(measured).values(), "written: %s" % (output / "rates.json"), sep="\n\n")


if __name__ == "__main__":
    main()
