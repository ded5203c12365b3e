"""Measures TensorFlowOnSpark beside Spark-Cluster, and what a record of an RDD costs on its way.

    bash run.sh rates      5 rounds, 15 minutes or more

Every round runs all ways once, on one standalone cluster of Spark, so that a slow minute of the
machine meets all of them. The parts of a record's way are then timed alone, in the same round.
Writes rates.json and its tables into OUTPUT_DIR.
"""

import json
import logging
import multiprocessing
import os
import pathlib
import pickle
import statistics
import sys
import time
from importlib.metadata import version

import numpy as np
import tfos
from lab import examples
from lab.measure import arguments, example_runs, text_tables
from lab.pages import result_tables


HERE = pathlib.Path(__file__).resolve().parent
COPIES = 10  # of the digits in `large`: the same examples as 10 epochs of 4 small partitions
FEW = "--mode spark --partitions 2 --epochs 1 --dataset LARGE"
WAYS = {
    "Spark-Cluster": "--ps 1 --workers 2 HOGWILD --steps 4000",
    "TENSORFLOW mode": "--mode tensorflow",
    "SPARK mode, 40 partitions of 359 rows": "--mode spark --partitions 4",
    "SPARK mode, 2 partitions of 7185 rows": FEW,
    "the same, 32 rows in a record": f"{FEW} --record-rows 32",
}


def run(way, folder, large):
    """Returns examples a second of a worker, and what else tfos.py reports of a run."""
    paths = {"LARGE": large, "HOGWILD": examples.main_script(tfos.HOGWILD)}
    flags = [paths.get(word, word) for word in WAYS[way].split()]
    if way != "Spark-Cluster":
        example_runs.run([sys.executable, HERE / "tfos.py", *flags], folder)
        result = json.loads(next(folder.glob("*/result.json")).read_text())
        return {
            "rate": result["examples_per_second_per_worker"],
            "accuracy": result["accuracy"],
            "seconds": result["seconds"],
            "parts": result["microseconds_of_an_example"],
        }
    example_runs.run(
        [sys.executable, HERE.parent / "Spark-Cluster" / "spark_launch.py", *flags], folder
    )
    rates = []
    for task in ("worker-0", "worker-1"):
        first, *pushes = example_runs.pushes(folder, task=task)
        # As tfos.py does it: the first update sets up the graph.
        seconds = pushes[-1]["push_time"] - first["push_time"]
        rates.append(sum(push["examples"] for push in pushes) / seconds)
    return {"rate": statistics.mean(rates)}


def queue_alone(records, blocks):
    """Returns microseconds of a record in TensorFlowOnSpark's queue: put, got, and both at once.

    blocks: the same rows, 32 in a record.
    """
    from tensorflowonspark import TFManager, TFNode

    microseconds, fork = {}, multiprocessing.get_context("fork")
    manager, started = TFManager.start(b"a key", ["input", "output", "error"]), fork.Event()
    queue, feed = manager.get_queue("input"), TFNode.DataFeed(manager)

    def timed(what, function, *arguments):
        began = time.perf_counter()
        function(*arguments)
        microseconds[what] = 1e6 * (time.perf_counter() - began) / len(records)

    def put(items):
        for item in items:
            queue.put(item, block=True)

    def get():
        for _ in range(len(records) // 32):
            feed.next_batch(32)

    def read():
        """In a process of its own: what a worker does, without the training."""
        feed, n = TFNode.DataFeed(manager), len(records)
        started.set()
        while n > 0:
            n -= len(feed.next_batch(32))

    def put_and_wait():
        put(records)
        reader.join(120)

    def put_and_get_blocks():
        put(blocks)
        feed.next_batch(len(blocks))

    try:
        timed("pickled and back", lambda: [pickle.loads(pickle.dumps(row)) for row in records])
        timed("put", put, records)
        timed("next_batch", get)
        reader = fork.Process(target=read)
        reader.start()
        started.wait(60)
        timed("put and next_batch at once", put_and_wait)
        timed("32 rows in a record", put_and_get_blocks)
    finally:
        manager.shutdown()
    return microseconds


def spark_alone(records):
    """Returns microseconds of a record from the JVM to a Python that does nothing with it."""
    spark = tfos.spark_session(os.environ["SPARK_MASTER"])

    def seconds(records):
        began = time.perf_counter()
        for _ in records:
            pass
        yield time.perf_counter() - began

    try:
        rdd = spark.sparkContext.parallelize(records, 1)
        least = min(rdd.mapPartitions(seconds).first() for _ in range(3))
        return {"JVM to Python": 1e6 * least / len(records)}
    finally:
        spark.stop()


def spread(values):
    """Returns the median and the range."""
    return {"median": statistics.median(values), "range": [min(values), max(values)]}


def cell(spread):
    """Returns a median and its range as text."""
    digits = ".0f" if spread["median"] >= 100 else ".1f"
    least, most = spread["range"]
    return f"{spread['median']:{digits}} ({least:{digits}}-{most:{digits}})"


def tables(measured):
    """Returns {the name of a file: the table of the page that it holds}."""
    columns = "way", "examples/s a worker", "of Spark-Cluster's", "next_batch, us", "NumPy, us"
    rows = []
    base = statistics.median(result["rate"] for result in measured["ways"]["Spark-Cluster"])
    for way, rounds in measured["ways"].items():
        rate, parts = spread([result["rate"] for result in rounds]), []
        for name in ("next_batch", "numpy", "run"):
            part = spread([result.get("parts", {}).get(name, 0) for result in rounds])
            parts.append(cell(part) if part["median"] >= 0.05 else "")
        rows.append((way, cell(rate), f"{rate['median'] / base:.0%}", *parts))
    alone = [(name, cell(figures)) for name, figures in measured["alone"].items()]
    least, most = min(measured["load"]), max(measured["load"])
    about = f"{len(rounds)} rounds, with a load of {least:.0f} to {most:.0f}.\n{measured['about']}."
    return {
        "rates_ways.txt": result_tables.table((*columns, "update, us"), rows, about),
        "rates_alone.txt": result_tables.table(["a record, alone", "us"], alone),
    }


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--rounds", 5, "of all ways", metavar="N")
    flags = parser.parse_args()
    output = example_runs.output_directory("TensorFlowOnSpark").resolve()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.basicConfig(level=logging.CRITICAL)  # before TensorFlowOnSpark sets it to INFO
    sys.path.append(tfos.HOGWILD)
    import hogwild_sessions as hogwild

    data, large = hogwild.load_data("digits"), output / "large.npz"
    np.savez(
        large,
        x_train=np.tile(data.x_train, (COPIES, 1)),
        y_train=np.tile(data.y_train, COPIES),
        x_test=data.x_test,
        y_test=data.y_test,
    )
    records, blocks = tfos.records(str(large), 1), tfos.records(str(large), 32)
    packages = {"TensorFlowOnSpark": "tensorflowonspark", "Spark": "pyspark"}
    versions = [f"{name} {version(package)}" for name, package in packages.items()]
    ways, alone, load = {way: [] for way in WAYS}, [], []
    for number in range(flags.rounds):
        for way, rounds in ways.items():
            rounds.append(run(way, output / f"{number} {way}", large))
            rate = f"{rounds[-1]['rate']:6.0f} examples/s a worker"
            print(f"round {number + 1}   {rate}   {way}", flush=True)
            load.append(os.getloadavg()[0])
        alone.append({**queue_alone(records[: 32 * 200], blocks[:200]), **spark_alone(records)})
        measured = {
            "ways": ways,
            "alone": {name: spread([row[name] for row in alone]) for name in alone[0]},
            "load": load,
            "about": text_tables.setting(f"TensorFlow {hogwild.tf.version.VERSION}", *versions),
        }
        # After each round, so that a failure in a later one loses none.
        (output / "rates.json").write_text(json.dumps(measured, indent=1) + "\n")
    for name, text in tables(measured).items():
        result_tables.leave(output / name, text)
    print(f"rates.json, and its tables, are in {output}")


if __name__ == "__main__":
    main()
