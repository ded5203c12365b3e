"""TensorFlowOnSpark: HogWild in Yahoo's framework, fed through RDDs or reading its data itself.

    one Spark task for each TensorFlow task: ps, chief, workers
    InputMode.TENSORFLOW    map_fun reads the data itself, as HogWild does
    InputMode.SPARK         Spark feeds each record of an RDD through a queue; map_fun takes batches

Kind:          driver
Run:           bash run.sh
"""
import argparse
import json
import logging
import os
import pathlib
import shutil
import signal
import sys
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
        server = cluster.server()
        if ctx.job_name == "ps":
            with hogwild.tf.Graph().as_default():
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
    tf, data = hogwild.tf, hogwild.load_data(flags.dataset)  # with a feed, for the test alone
    hogwild.keras.utils.set_random_seed(flags.seed)
    model, inputs = hogwild.make_model(data), []

    def fed_batches(model, state, x, y, flags, rank):
        """Takes the place of HogWild's batches: the rows come from outside of the graph."""
        inputs.extend(tf.placeholder(part.dtype, [None, *part.shape[1:]]) for part in (x, y))

        def batch_loss(w, number):
            outputs, _ = model.stateless_call(w, state, inputs[0], training=True)
            return tf.reduce_mean(hogwild.loss(inputs[1], outputs))
        return batch_loss
    # TensorFlowOnSpark: what changes in HogWild is where a mini-batch comes from.
    hogwild.batches = fed_batches if feed else hogwild.batches

    with tf.Graph().as_default():
        step, update, test = hogwild.build(cluster, model, data, flags)
        row = hogwild.push_row(update, step, flags)
        start = hogwild.Barrier("start", cluster)
        done = [hogwild.Barrier("done", cluster, ps) for ps in range(len(cluster.ps))]
        creator = hogwild.SessionCreator(cluster, server, tf.train.Saver(), flags.output)
        with tf.train.MonitoredSession(creator) as session:
            session = session.run_step_fn(lambda step_context: step_context.session)
            run, evaluate = (session.make_callable(row, inputs),
                             session.make_callable(test, ["first:0"]))
            session.run(start.arrive)
            start.wait(session, len(cluster.workers))
            facts = loop(run, feed, flags)
            if cluster.is_chief:
                done[0].wait(session, len(cluster.workers) - 1)
                tested = [evaluate(first)
                          for first in range(0, len(data.x_test), hogwild.TEST_ROWS)]
                rows = [min(hogwild.TEST_ROWS, len(data.x_test) - hogwild.TEST_ROWS * i)
                        for i in range(len(tested))]
                facts["accuracy"] = float(np.average([t[2] for t in tested], weights=rows))
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
    names = ["next_batch", "numpy", "run"] if feed else ["run"]
    spent = np.diff(parts[1:]).sum(0).tolist() if sizes[1:] else [0] * len(names)
    return {"examples": sum(sizes), "timed": sum(sizes[1:]), **dict(zip(names, spent)),
            "seconds": parts[-1][-1] - parts[0][-1] if sizes else 0,
            "fed": np.bincount(np.concatenate(fed)).tolist() if fed else []}


def records(flags):
    """The training rows as an RDD has them: (number, x, y), or blocks of --record-rows rows."""
    sys.path.insert(0, flags.hogwild)
    from hogwild import load_data
    x, y = load_data(flags.dataset)[:2]
    rows = [np.arange(len(x)), x, y]
    if flags.record_rows > 1:
        cuts = range(flags.record_rows, len(x), flags.record_rows)
        return list(zip(*[np.split(column, cuts) for column in rows])), len(x)
    return list(zip(*[[int(n) for n in rows[0]], x, [int(n) for n in y]])), len(x)


class Ended(BaseException):
    """This run has to end, and why. Py4J would wrap an Exception that a signal raises in it."""


def run_mode(flags):
    """Trains in one input mode, with a SparkContext of its own.

    Returns (the facts of each task, the rows of the RDD, the seconds it took).
    """
    from pyspark.sql import SparkSession
    from tensorflowonspark import TFCluster, TFSparkNode
    output, began = pathlib.Path(flags.output), time.monotonic()

    def facts():
        return {path.stem: json.loads(path.read_text()) for path in sorted(output.glob("*-*.json"))}

    def look(*_):
        """Each second: TFCluster itself never sees the error of a ps, nor a worker that hangs."""
        if errors := ["%s: %s" % (task, each["error"])
                      for task, each in facts().items() if "error" in each]:
            raise Ended(errors[0])
        if time.monotonic() > began + flags.timeout:
            raise Ended("not done in %d s (--timeout)" % flags.timeout)
    builder = SparkSession.builder.master(flags.master).appName("tfos")
    for name, value in {
        "spark.task.maxFailures": 1,  # a task that ran again would feed its records twice
        "spark.python.worker.reuse": "true",  # the queue lives in a worker of Python
        "spark.dynamicAllocation.enabled": "false", "spark.task.cpus": 1,
        "spark.executor.cores": 1,  # one task each: TensorFlowOnSpark finds a queue by its executor
        "spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        sc, modes = spark.sparkContext, TFCluster.InputMode
        sc.setLogLevel("OFF")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # pyspark's hides the Ctrl-C
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
        tasks = flags.ps + flags.workers
        cluster = TFCluster.run(sc, map_fun, flags, tasks, flags.ps, master_node="chief",
                                input_mode=getattr(modes, flags.mode.upper()),
                                reservation_timeout=flags.timeout)
        n_rows = 0
        if flags.mode == "spark":
            rows, n_rows = records(flags)
            rdd = sc.parallelize(rows, flags.partitions)
            cluster.train(rdd, flags.epochs, feed_timeout=flags.timeout)
            # shutdown() would end the ps while the chief still tests w. So the first half of it
            # comes now, the end of the feed, and the second when all workers have left their facts.
            sc.parallelize(range(flags.workers), flags.workers).foreachPartition(
                TFSparkNode.shutdown(cluster.cluster_info, 0, cluster.queues))
            while len(facts()) < tasks:
                time.sleep(0.05)
        cluster.shutdown(timeout=-1)  # its own alarm would never be switched off
        look()
        return facts(), n_rows, time.monotonic() - began
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        spark.stop()


def summary(flags, facts, n_rows, seconds):
    """What the facts of the workers say about the run."""
    from importlib.metadata import version
    workers = {task: each for task, each in facts.items() if not task.startswith("ps")}
    rates = {task: each["timed"] / each["seconds"] for task, each in workers.items()
             if each["seconds"]}
    result = {
        "mode": flags.mode, "ps": flags.ps, "workers": flags.workers,
        "accuracy": workers["chief-0"]["accuracy"], "seconds": seconds,
        "examples": sum(each["examples"] for each in workers.values()),
        "examples_per_second": sum(rates.values()),
        "examples_per_second_per_worker": sum(rates.values()) / flags.workers,
        "microseconds_of_an_example": {
            part: 1e6 * sum(each.get(part, 0) for each in workers.values())
            / max(1, sum(each["timed"] for each in workers.values()))
            for part in ("next_batch", "numpy", "run")},
        "versions": {name: version(name) for name in (
            "tensorflowonspark", "pyspark", "keras", "numpy")}, "workers_facts": workers}
    if flags.mode == "spark":
        fed = sum(np.pad(np.array(each["fed"], int), (0, n_rows - len(each["fed"])))
                  for each in workers.values())
        result["times_fed"] = [int(fed.min()), int(fed.max())]
    return result


def parse():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(flag, default, text, **options):
        parser.add_argument(flag, type=type(default), default=default,
                            help=text + " (%(default)s)", **options)
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
            parser.error("--%s must be at least 1, is %d" % (
                name.replace("_", "-"), vars(flags)[name]))
    if not 0 < flags.learning_rate < float("inf"):
        parser.error("--learning-rate must be above 0, is %s" % flags.learning_rate)
    return flags


def main():
    flags = parse()
    logging.basicConfig(level=logging.CRITICAL)  # before TensorFlowOnSpark sets it to INFO
    warnings.filterwarnings("ignore", "pkg_resources")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / "TensorFlowOnSpark"
    output = pathlib.Path(os.environ.get("OUTPUT_DIR") or
                          runs / time.strftime("%Y-%m-%d_%H-%M-%S")).resolve()
    flags.hogwild, steps, code = str(HOGWILD), flags.steps, 0
    for mode in ["tensorflow", "spark"] if flags.mode == "both" else [flags.mode]:
        flags.mode, flags.output = mode, str(output / mode)
        flags.steps = steps if mode == "tensorflow" else 2**62  # the feed ends it
        shutil.rmtree(flags.output, ignore_errors=True)  # facts of an earlier run
        os.makedirs(flags.output)
        print("[tfos] InputMode.%s: %d ps, %d workers, in %s" % (
            mode.upper(), flags.ps, flags.workers, flags.output), flush=True)
        try:
            result = summary(flags, *run_mode(flags))
        except KeyboardInterrupt:
            return 130
        except (Exception, Ended, SystemExit) as error:  # TFCluster calls sys.exit
            print("[tfos] InputMode.%s: %s" % (mode.upper(), explain(error, output / mode)),
                  file=sys.stderr, flush=True)
            code = 1
            continue
        (output / mode / "result.json").write_text(json.dumps(result, indent=1))
        print("[tfos] InputMode.%s: test accuracy %.1f%%, %.0f examples/s a worker, %d examples, "
              "%.0f s in all" % (mode.upper(), 100 * result["accuracy"],
                                 result["examples_per_second_per_worker"], result["examples"],
                                 result["seconds"]), flush=True)
    return code


def explain(error, output):
    """One line that says why a run has failed: what a task wrote, before what Spark says."""
    for path in sorted(output.glob("*-*.json")):
        if "error" in (facts := json.loads(path.read_text())):
            return "%s: %s" % (path.stem, facts["error"])
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    return reason if isinstance(error, Ended) else "%s: %s" % (type(error).__name__, reason)


if __name__ == "__main__":
    sys.exit(main())
