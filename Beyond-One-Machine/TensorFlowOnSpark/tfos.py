"""TensorFlowOnSpark: HogWild in Yahoo's framework, fed through RDDs or reading its data itself.

    one Spark task for each TensorFlow task: ps, chief, workers
    InputMode.TENSORFLOW    map_fun reads the data itself, as HogWild does
    InputMode.SPARK         Spark feeds each record of an RDD through a queue; map_fun takes batches

Kind:          driver
Run:           bash run.sh
"""

import functools
import importlib.metadata
import json
import logging
import os
import pathlib
import signal
import sys
import threading
import time
import types
import warnings

import numpy as np
from lab.measure import arguments, example_runs
from tfrun.launch import signals

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOGWILD = str(ROOT / "From-TensorFlow-1" / "HogWild-Sessions")  # also on the executors


def map_fun(flags, ctx):
    """One task of the cluster, on an executor. TensorFlowOnSpark has set TF_CONFIG; ctx has more.

    It leaves a file of facts in flags.output, or of its error. Nothing else tells the driver why.
    """
    facts = {}
    try:
        sys.path.insert(0, HOGWILD)
        import hogwild_sessions as hogwild

        cluster = hogwild.Cluster()
        server = hogwild.tf.train.Server(cluster.spec, *cluster.task, config=cluster.config)
        if ctx.job_name == "ps":
            hogwild.serve(cluster, server)
        else:
            feed = ctx.get_data_feed() if flags.mode == "spark" else None
            facts = train(hogwild, cluster, server, feed, flags)
    except Exception as error:
        line = str(error).split("\n")[0]
        facts = {"error": f"{type(error).__name__}: {line}"}
        raise
    finally:
        path = pathlib.Path(flags.output) / f"{ctx.job_name}-{ctx.task_index}.json"
        path.with_suffix(".new").write_text(json.dumps(facts))
        path.with_suffix(".new").rename(path)  # whole, or not there


def train(hogwild, cluster, server, feed, flags):
    """A worker: trains until no update or no record is left; the chief then tests w."""
    tf, data, inputs = hogwild.tf, hogwild.load_data(flags.dataset), []  # a feed: for the test only
    hogwild.keras.utils.set_random_seed(flags.seed)
    model, n = hogwild.make_model(data), len(cluster.workers)
    wait = functools.partial(hogwild.wait_until, seconds=hogwild.OPTIONAL_WAIT_SECONDS)
    run = types.SimpleNamespace(is_chief=cluster.rank == 0, directory=flags.output)

    # TensorFlowOnSpark: what changes in HogWild is that a mini-batch comes from outside the graph.
    if feed:
        hogwild.gradients = functools.partial(fed_gradients, hogwild, inputs)

    with tf.Graph().as_default():
        step, make_update, test = hogwild.build(cluster, model, data, flags)
        with tf.device(cluster.device):
            row = tf.stack(hogwild.push_row(make_update(), step, flags))
        start, started = hogwild.barrier("start", cluster.rank)
        servers = range(len(cluster.ps))
        finish, finished = zip(*[hogwild.barrier("done", cluster.rank, i) for i in servers])
        for address in cluster.ps:
            hogwild.wait_for_ps(address)
        with tf.Session(server.target, config=cluster.config) as session:
            hogwild.prepare(session, tf.train.Saver(), run)
            session.run(start)
            wait(lambda: session.run(started) >= n)
            facts = loop(session.make_callable(row, inputs), feed, len(data.x_train), flags)
            if run.is_chief:
                wait(lambda: session.run(finished[0]) >= n - 1)
                facts["accuracy"] = float(session.run(test)[1])
            session.run(finish)
    return facts


def fed_gradients(hogwild, inputs, model, local_state, x, y, flags, rank):
    """HogWild's `gradients`, but for the mini-batch: its x and y are placeholders in `inputs`."""
    tf = hogwild.tf
    inputs.extend(tf.placeholder(part.dtype, [None, *part.shape[1:]]) for part in (x, y))

    def gradient(w, number):
        with tf.control_dependencies(w):
            before = [v.read_value() for v in local_state]
        outputs, after, penalties = model.stateless_call(
            hogwild.unpack(model, w), before, inputs[0], training=True, return_losses=True
        )
        # The gradient comes after the state has moved.
        with tf.control_dependencies([v.assign(new) for v, new in zip(local_state, after)]):
            outputs = tf.identity(outputs)
        mean = tf.add_n([tf.reduce_mean(hogwild.loss(inputs[1], outputs)), *penalties])
        return mean, tf.gradients(mean, w)

    return gradient


def loop(run, feed, n_rows, flags):
    """Makes updates until none is left; returns how many examples, and what took the time.

    Also returns how often it got each of the n_rows training rows from the feed.
    """
    from tensorflow.errors import OutOfRangeError

    clock, parts, sizes, rows = time.perf_counter, [], [], ()
    times_fed = np.zeros(n_rows, int)
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
        times.append(clock())
        try:
            loss = run(*rows)[5]
        except OutOfRangeError:  # --steps updates are made
            break
        times.append(clock())
        if not np.isfinite(loss):
            raise FloatingPointError(f"loss is {loss} at update {len(sizes) + 1}")
        if feed:
            np.add.at(times_fed, numbers, 1)
        sizes.append(len(rows[0]) if rows else flags.batch_size)
        parts.append(times)
    # The first update sets up the graph on all tasks: the clock starts after it.
    spent = np.diff(parts[1:]).sum(0) if sizes[1:] else [0] * 3
    return {
        "examples": sum(sizes),
        "timed": sum(sizes[1:]),
        **dict(zip(["next_batch", "numpy", "run"], map(float, spent))),
        "seconds": parts[-1][-1] - parts[0][-1] if sizes else 0,
        "times_fed": times_fed.tolist(),
    }


def records(dataset, record_rows):
    """Returns the training rows as an RDD has them: (number, x, y), or blocks of such rows."""
    sys.path.insert(0, HOGWILD)
    from hogwild_sessions import load_data

    x, y = load_data(dataset)[:2]
    if record_rows == 1:
        return list(zip(range(len(x)), x, y.tolist()))
    cuts = range(record_rows, len(x), record_rows)
    return list(zip(*[np.split(column, cuts) for column in (np.arange(len(x)), x, y)]))


def spark_session(master):
    """Returns a session of Spark with what TensorFlowOnSpark needs."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("tfos")
    for name, value in {
        "spark.executor.cores": 1,  # TensorFlowOnSpark finds a queue by its executor: a task each
        "spark.dynamicAllocation.enabled": "false",
        "spark.task.maxFailures": 1,  # a task that ran again would feed its records twice
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run_mode(flags):
    """Trains in one input mode, with a SparkContext of its own; returns the facts of each task."""
    from tensorflowonspark import TFCluster, TFSparkNode

    tasks, deadline = flags.ps + flags.workers, time.monotonic() + flags.timeout

    def facts():
        paths = sorted(pathlib.Path(flags.output).glob("*-*.json"))
        return {path.stem: json.loads(path.read_text()) for path in paths}

    def look():
        """TFCluster itself sees neither the error of a ps nor a worker that hangs."""
        for task, values in facts().items():
            if "error" in values:
                raise RuntimeError(f"{task}: {values['error']}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done in {flags.timeout} s (--timeout)")

    spark, ends = spark_session(flags.master), []
    sc = spark.sparkContext

    def drive():
        """In a thread: its calls to the JVM must not be interrupted halfway."""
        try:
            TFCluster.tf_status.clear()  # or the error of one run would end the next
            mode = getattr(TFCluster.InputMode, flags.mode.upper())
            more = {"master_node": "chief", "reservation_timeout": flags.timeout}
            cluster = TFCluster.run(sc, map_fun, flags, tasks, flags.ps, input_mode=mode, **more)
            if flags.mode == "spark":
                rdd = sc.parallelize(records(flags.dataset, flags.record_rows), flags.partitions)
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
        signals.handle(signal.default_int_handler, signal.SIGINT)  # pyspark's hides the Ctrl-C
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
    """Returns what the facts of the workers say about the run."""
    workers = [values for task, values in facts.items() if not task.startswith("ps")]
    rate = sum(values["timed"] / values["seconds"] for values in workers if values["seconds"])
    timed = max(1, sum(values["timed"] for values in workers))
    times_fed = np.sum([values["times_fed"] for values in workers], axis=0).tolist()
    return {
        "mode": flags.mode,
        "ps": flags.ps,
        "workers": flags.workers,
        "seconds": seconds,
        "accuracy": facts["chief-0"]["accuracy"],
        "examples": sum(values["examples"] for values in workers),
        "examples_per_second": rate,
        "examples_per_second_per_worker": rate / flags.workers,
        "microseconds_of_an_example": {
            part: 1e6 * sum(values[part] for values in workers) / timed
            for part in ("next_batch", "numpy", "run")
        },
        "times_fed": [min(times_fed), max(times_fed)],
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("tensorflowonspark", "pyspark", "keras", "numpy")
        },
    }


def parse():
    parser = arguments.Parser(__doc__)
    master = os.environ.get("SPARK_MASTER", "local-cluster[3,1,1024]")
    for flag, default, words, more in (
        ("--mode", "both", "input mode", {"choices": ["tensorflow", "spark", "both"]}),
        ("--master", master, "Spark's master", {}),
        ("--dataset", "digits", "digits, or an .npz file", {}),
        ("--seed", 0, "of the first parameters", {"type": int}),
    ):
        parser.add_argument(flag, default=default, help=f"{words} (%(default)s)", **more)
    parser.number("--ps", 1, "parameter servers", metavar="N")
    parser.number("--workers", 2, "workers, the chief included", metavar="N")
    parser.number("--steps", 4000, "TENSORFLOW: updates of w, all workers together", metavar="N")
    parser.number("--epochs", 10, "SPARK: how often each record is fed", metavar="N")
    parser.number("--partitions", 4, "SPARK: of the RDD", metavar="N")
    parser.number("--record-rows", 1, "SPARK: training rows in a record of the RDD", metavar="N")
    parser.number("--batch-size", 32, "examples in a mini-batch", metavar="B")
    parser.number("--learning-rate", 0.1, "lr in the update rule", float, metavar="LR")
    parser.number("--timeout", 300, "seconds that one mode may take", metavar="S")
    return parser.parse_args()


def main():
    flags, code = parse(), 0
    logging.basicConfig(level=logging.CRITICAL)  # before TensorFlowOnSpark sets it to INFO
    warnings.filterwarnings("ignore", "pkg_resources")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    output, steps = example_runs.output_directory("TensorFlowOnSpark").resolve(), flags.steps
    for mode in ["tensorflow", "spark"] if flags.mode == "both" else [flags.mode]:
        flags.mode, flags.output = mode, str(output / mode)
        flags.steps = steps if mode == "tensorflow" else 2**62  # the feed ends it
        os.makedirs(flags.output, exist_ok=True)
        for path in pathlib.Path(flags.output).glob("*-*.json"):  # facts of an earlier run
            path.unlink()
        head, began = f"[tfos] InputMode.{mode.upper()}:", time.monotonic()
        size = f"{flags.ps} ps, {flags.workers} workers"
        print(f"{head} {size}, in {flags.output}", flush=True)
        try:
            result = summary(flags, run_mode(flags), time.monotonic() - began)
        except KeyboardInterrupt:
            return 130
        except (Exception, SystemExit) as error:
            line = str(error).strip().split("\n")[0]
            print(f"{head} {type(error).__name__}: {line}", file=sys.stderr, flush=True)
            code = 1
            continue
        (output / mode / "result.json").write_text(json.dumps(result, indent=1))
        print(
            f"{head} test accuracy {result['accuracy']:.1%}, "
            f"{result['examples_per_second_per_worker']:.0f} examples/s a worker, "
            f"{result['examples']} examples, {result['seconds']:.0f} s",
            flush=True,
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
