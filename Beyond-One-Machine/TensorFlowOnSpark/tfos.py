"""TensorFlowOnSpark: HogWild in Yahoo's framework, fed through RDDs or reading its data itself.

    one Spark task for each TensorFlow task: ps, chief, workers
    InputMode.TENSORFLOW    map_fun reads the data itself, as HogWild does
    InputMode.SPARK         Spark feeds each record of an RDD through a queue; map_fun takes batches

Kind:          driver
Run:           bash run.sh
"""

import argparse
import importlib.metadata
import json
import logging
import os
import pathlib
import signal
import sys
import threading
import time
import warnings

import numpy as np

HOGWILD = pathlib.Path(__file__).resolve().parents[2] / "HogWild"


def map_fun(flags, ctx):
    """One task of the cluster, on an executor. TensorFlowOnSpark has set TF_CONFIG; ctx has more.

    It leaves a file of facts in flags.output, or of its error. Nothing else tells the driver why.
    """
    facts = {}
    try:
        sys.path.insert(0, flags.hogwild)
        import hogwild

        cluster = hogwild.Cluster()
        server = hogwild.tf.train.Server(
            cluster.spec, cluster.job, cluster.index, config=cluster.config
        )
        if ctx.job_name == "ps":
            hogwild.serve(cluster, server)
        else:
            feed = ctx.get_data_feed() if flags.mode == "spark" else None
            facts = train(hogwild, cluster, server, feed, flags)
    except Exception as error:
        facts = {"error": "%s: %s" % (type(error).__name__, str(error).split("\n")[0])}
        raise
    finally:
        path = pathlib.Path(flags.output) / ("%s-%d.json" % (ctx.job_name, ctx.task_index))
        path.with_suffix(".new").write_text(json.dumps(facts))
        path.with_suffix(".new").rename(path)  # whole, or not there


def train(hogwild, cluster, server, feed, flags):
    """A worker: trains until no update or no record is left; the chief then tests w."""
    tf, data, inputs = hogwild.tf, hogwild.load_data(flags.dataset), []  # a feed: for the test only
    hogwild.keras.utils.set_random_seed(flags.seed)
    model = hogwild.make_model(data)

    def fed_gradients(model, local_state, x, y, flags, rank):
        inputs.extend(tf.placeholder(part.dtype, [None, *part.shape[1:]]) for part in (x, y))

        def gradient(w, number):
            variables = hogwild.unpack(model, w)
            outputs, _ = model.stateless_call(variables, local_state, inputs[0], training=True)
            mean = tf.reduce_mean(hogwild.loss(inputs[1], outputs))
            return mean, tf.gradients(mean, w)

        return gradient

    # TensorFlowOnSpark: what changes in HogWild is that a mini-batch comes from outside the graph.
    if feed:
        hogwild.gradients = fed_gradients

    with tf.Graph().as_default():
        step, update, test = hogwild.build(cluster, model, data, flags)
        row = hogwild.push_row(update, step, flags)
        start = hogwild.Barrier("start", cluster.rank)
        done = [hogwild.Barrier("done", cluster.rank, ps) for ps in range(len(cluster.ps))]
        hogwild.wait_for_ps(cluster)
        with tf.Session(server.target, config=cluster.config) as session:
            hogwild.prepare(session, cluster, tf.train.Saver(), flags.output)
            session.run(start.arrive)
            start.wait(session, len(cluster.workers))
            facts = loop(session.make_callable(row, inputs), feed, flags)
            if cluster.is_chief:
                done[0].wait(session, len(cluster.workers) - 1)
                facts["accuracy"] = float(session.run(test)[1])
            session.run([barrier.arrive for barrier in done])
    return facts


def loop(run, feed, flags):
    """Makes updates until none is left; returns how many examples, and what took the time."""
    from tensorflow.errors import OutOfRangeError

    clock, parts, sizes, fed, rows = time.perf_counter, [], [], [], ()
    join = np.concatenate if flags.record_rows > 1 else np.array
    # A next_batch() after the end of the feed would wait for ever.
    while not (feed and feed.should_stop()):
        times = [clock()]
        if feed:
            # TensorFlowOnSpark: two messages to the queue's process for each record.
            records = feed.next_batch(max(1, flags.batch_size // flags.record_rows))
            if not records:  # it ended just after a whole batch
                break
        times.append(clock())
        if feed:
            numbers, *rows = [join(column) for column in zip(*records)]
            fed.append(numbers)
        times.append(clock())
        try:
            loss = run(*rows)[5]
        except OutOfRangeError:  # --steps updates are made
            break
        times.append(clock())
        if not np.isfinite(loss):
            raise FloatingPointError("loss is %s at update %d" % (loss, len(sizes) + 1))
        sizes.append(len(rows[0]) if rows else flags.batch_size)
        parts.append(times)
    # The first update sets up the graph on all tasks: the clock starts after it.
    spent = np.diff(parts[1:]).sum(0) if sizes[1:] else [0] * 3
    return {
        "examples": sum(sizes),
        "timed": sum(sizes[1:]),
        **dict(zip(["next_batch", "numpy", "run"], map(float, spent))),
        "seconds": parts[-1][-1] - parts[0][-1] if sizes else 0,
        "fed": np.bincount(np.concatenate(fed)).tolist() if fed else [],
    }


def records(flags):
    """The training rows as an RDD has them: (number, x, y), or blocks of --record-rows rows."""
    sys.path.insert(0, flags.hogwild)
    from hogwild import load_data

    x, y = load_data(flags.dataset)[:2]
    if flags.record_rows == 1:
        return list(zip(range(len(x)), x, y.tolist()))
    cuts = range(flags.record_rows, len(x), flags.record_rows)
    return list(zip(*[np.split(column, cuts) for column in (np.arange(len(x)), x, y)]))


class Ended(Exception):
    """This run has to end, and why."""


def run_mode(flags):
    """Trains in one input mode, with a SparkContext of its own; returns the facts of each task."""
    from pyspark.sql import SparkSession
    from tensorflowonspark import TFCluster, TFSparkNode

    tasks, deadline = flags.ps + flags.workers, time.monotonic() + flags.timeout

    def facts():
        paths = sorted(pathlib.Path(flags.output).glob("*-*.json"))
        return {path.stem: json.loads(path.read_text()) for path in paths}

    def look():
        """TFCluster itself sees neither the error of a ps nor a worker that hangs."""
        for task, each in facts().items():
            if "error" in each:
                raise Ended("%s: %s" % (task, each["error"]))
        if time.monotonic() > deadline:
            raise Ended("not done in %d s (--timeout)" % flags.timeout)

    builder = SparkSession.builder.master(flags.master).appName("tfos")
    for name, value in {
        "spark.executor.cores": 1,  # TensorFlowOnSpark finds a queue by its executor: a task each
        "spark.dynamicAllocation.enabled": "false",
        "spark.task.maxFailures": 1,  # a task that ran again would feed its records twice
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    sc, ends = spark.sparkContext, []

    def drive():
        """In a thread: its calls to the JVM must not be interrupted halfway."""
        try:
            TFCluster.tf_status.clear()  # or the error of one run would end the next
            cluster = TFCluster.run(
                sc,
                map_fun,
                flags,
                tasks,
                flags.ps,
                master_node="chief",
                input_mode=getattr(TFCluster.InputMode, flags.mode.upper()),
                reservation_timeout=flags.timeout,
            )
            if flags.mode == "spark":
                rdd = sc.parallelize(records(flags), flags.partitions)
                cluster.train(rdd, flags.epochs, feed_timeout=flags.timeout)
                # shutdown() would end the ps while the chief still tests w. So its first half comes
                # now, the end of the feed, and the second when all workers have left their facts.
                sc.parallelize(range(flags.workers), flags.workers).foreachPartition(
                    TFSparkNode.shutdown(cluster.cluster_info, 0, cluster.queues)
                )
                while len(facts()) < tasks:
                    time.sleep(0.05)
            cluster.shutdown(timeout=-1)  # its own alarm would never be switched off
        except (Exception, SystemExit) as error:  # TFCluster calls sys.exit
            ends.append(error)

    thread = threading.Thread(target=drive, daemon=True)
    try:
        sc.setLogLevel("OFF")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # pyspark's hides the Ctrl-C
        thread.start()
        while thread.is_alive():
            thread.join(0.5)
            look()  # also at the end: what a task wrote says more
        for error in ends:
            raise error
        return facts()
    finally:
        spark.stop()
        thread.join(10)


def summary(flags, facts, seconds):
    """What the facts of the workers say about the run."""
    workers = [each for task, each in facts.items() if not task.startswith("ps")]
    rate = sum(each["timed"] / each["seconds"] for each in workers if each["seconds"])
    timed = max(1, sum(each["timed"] for each in workers))
    lengths = max(len(each["fed"]) for each in workers)
    fed = sum(
        np.pad(np.array(each["fed"], int), (0, lengths - len(each["fed"]))) for each in workers
    )
    return {
        "mode": flags.mode,
        "ps": flags.ps,
        "workers": flags.workers,
        "seconds": seconds,
        "accuracy": facts["chief-0"]["accuracy"],
        "examples": sum(each["examples"] for each in workers),
        "examples_per_second": rate,
        "examples_per_second_per_worker": rate / flags.workers,
        "microseconds_of_an_example": {
            part: 1e6 * sum(each.get(part, 0) for each in workers) / timed
            for part in ("next_batch", "numpy", "run")
        },
        **({"times_fed": [int(fed.min()), int(fed.max())]} if lengths else {}),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("tensorflowonspark", "pyspark", "keras", "numpy")
        },
    }


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(flag, default, text, **options):
        parser.add_argument(
            flag, type=type(default), default=default, help=text + " (%(default)s)", **options
        )

    add("--mode", "both", "input mode", choices=["tensorflow", "spark", "both"])
    add("--master", os.environ.get("SPARK_MASTER", "local-cluster[3,1,1024]"), "Spark's master")
    add("--ps", 1, "parameter servers", metavar="N")
    add("--workers", 2, "workers, the chief included", metavar="N")
    add("--steps", 4000, "TENSORFLOW: updates of w, all workers together", metavar="N")
    add("--epochs", 10, "SPARK: how often each record is fed", metavar="N")
    add("--partitions", 4, "SPARK: of the RDD", metavar="N")
    add("--record-rows", 1, "SPARK: training rows in a record of the RDD", metavar="N")
    add("--batch-size", 32, "examples in a mini-batch", metavar="B")
    add("--learning-rate", 0.1, "lr in the update rule", metavar="LR")
    add("--seed", 0, "of the first parameters")
    add("--dataset", "digits", "digits, or an .npz file")
    add("--timeout", 300, "seconds that one mode may take", metavar="S")
    flags = parser.parse_args()
    for name in "ps workers steps epochs partitions record_rows batch_size timeout".split():
        if not 1 <= vars(flags)[name] < 2**31:
            parser.error(
                "--%s must be at least 1, is %d" % (name.replace("_", "-"), vars(flags)[name])
            )
    if not 0 < flags.learning_rate < float("inf"):
        parser.error("--learning-rate must be above 0, is %s" % flags.learning_rate)
    return flags


def main():
    flags, code = parse(), 0
    logging.basicConfig(level=logging.CRITICAL)  # before TensorFlowOnSpark sets it to INFO
    warnings.filterwarnings("ignore", "pkg_resources")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / "TensorFlowOnSpark"
    output = pathlib.Path(
        os.environ.get("OUTPUT_DIR") or runs / time.strftime("%Y-%m-%d_%H-%M-%S")
    ).resolve()
    flags.hogwild, steps = str(HOGWILD), flags.steps
    for mode in ["tensorflow", "spark"] if flags.mode == "both" else [flags.mode]:
        flags.mode, flags.output = mode, str(output / mode)
        flags.steps = steps if mode == "tensorflow" else 2**62  # the feed ends it
        os.makedirs(flags.output, exist_ok=True)
        for path in pathlib.Path(flags.output).glob("*-*.json"):  # facts of an earlier run
            path.unlink()
        head, began = "[tfos] InputMode.%s: " % mode.upper(), time.monotonic()
        print(
            head + "%d ps, %d workers, in %s" % (flags.ps, flags.workers, flags.output), flush=True
        )
        try:
            result = summary(flags, run_mode(flags), time.monotonic() - began)
        except KeyboardInterrupt:
            return 130
        except (Exception, SystemExit) as error:
            name = "" if isinstance(error, Ended) else type(error).__name__ + ": "
            print(head + name + str(error).strip().split("\n")[0], file=sys.stderr, flush=True)
            code = 1
            continue
        (output / mode / "result.json").write_text(json.dumps(result, indent=1))
        print(
            head
            + "test accuracy %.1f%%, %.0f examples/s a worker, %d examples, %.0f s"
            % (
                100 * result["accuracy"],
                result["examples_per_second_per_worker"],
                result["examples"],
                result["seconds"],
            ),
            flush=True,
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
