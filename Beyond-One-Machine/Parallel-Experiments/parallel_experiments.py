"""Parallel-Experiments: a training function with many settings, each in a process of its own.

    launch(spark, train, {"learning_rate": [0.001, 0.01], "dropout": [0.0, 0.5]}, logdir)

    each combination   one task of Spark; without Spark, one of the processes on this machine
    one fails          its row gets the error, and the others go on
    called again       only the combinations that have no result run

Kind:          driver
Run:           bash run.sh
"""

import argparse
import concurrent.futures
import contextlib
import functools
import inspect
import json
import math
import os
import pathlib
import pickle
import queue
import re
import signal
import sys
import threading
import time
import traceback

import cloudpickle
from joblib.externals.loky import ProcessPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]  # tfrun is not installed
import inputs
import report
from inputs import BadInput
from tfrun import cluster, grid, resources

BY_VALUE = threading.Lock()  # cloudpickle has one list of modules for all threads


def one_run(map_fun, params, logdir, metric, reserved):
    """In a new process: calls the function; returns (status, metrics, error)."""
    if sys.platform == "linux":  # it must not outlive the task that waits for it
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
    try:
        os.makedirs(logdir, exist_ok=True)
        with open(os.path.join(logdir, "log.txt"), "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        more = {"logdir": logdir} if "logdir" in inspect.signature(map_fun).parameters else {}
        found = map_fun(**params, **more)
        found = {
            name: float(value)
            for name, value in (found if isinstance(found, dict) else {metric: found}).items()
        }
        if taken := set(found) & {*params, *reserved}:
            raise ValueError("a metric must not be named as a parameter: %s" % sorted(taken))
        # JSON has no NaN: None for a run that diverged.
        return "done", {k: v if math.isfinite(v) else None for k, v in found.items()}, ""
    except (Exception, SystemExit):
        return "failed", {}, traceback.format_exc(limit=-2).strip()[-1000:]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def isolated(call, environment, started=lambda executor: None):
    """What a pickled call returns in a new process; the reason where that was killed."""
    # Spark deals out the GPUs of its executors, where it was told of them.
    context = sys.modules["pyspark"].TaskContext.get() if "pyspark" in sys.modules else None
    if context and "gpu" in context.resources():
        addresses = context.resources()["gpu"].addresses
        environment = {**environment, "CUDA_VISIBLE_DEVICES": ",".join(addresses)}
    # One process for each combination. In a shared pool, one that is killed takes its neighbours
    # along, and TensorFlow can change neither its GPU nor its threads after the first run.
    executor = ProcessPoolExecutor(1, env=environment)
    started(executor)
    try:
        return executor.submit(lambda: pickle.loads(call)()).result()
    except Exception as error:  # it was killed, or it cannot import what it needs
        codes = re.search(r"exit codes of the workers are \{(.*)\}", str(error))
        return "failed", {}, ("the process ended early: %s" % codes[1] if codes else repr(error))
    finally:
        executor.shutdown(kill_workers=True)


def by_value(call, *functions):
    """A pickled call with the code of these functions: other hosts may be unable to import it."""
    modules = {sys.modules.get(getattr(each, "__module__", None)) for each in functions}
    modules = [
        module
        for module in modules
        if getattr(module, "__file__", None)
        and module.__name__ != "__main__"
        and "site-packages" not in module.__file__
    ]
    with BY_VALUE:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            return cloudpickle.dumps(call)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def as_spark_job(spark, group, name, call):
    """What a pickled call returns, as a job of Spark with one task; the reason where it failed."""
    spark.sparkContext.setJobGroup(group, name, interruptOnCancel=True)
    try:
        data = spark.sparkContext.parallelize([call], 1)
        # A lambda travels whole: the executors cannot import this module.
        return data.map(lambda call: pickle.loads(call)()).collect()[0]
    except Exception as error:  # what the JVM raises has many types
        # The last line of a Python error, or what follows "Lost task ...:", or the first line.
        found = re.search(r"PythonException: Traceback.*?\n(\w[^\n]*)", str(error), re.DOTALL)
        found = found or re.search(r"Lost task [^:]*: (?:[\w.]+: )?(.*?)(?:\. |\n|$)", str(error))
        return "failed", {}, "Spark: " + (found[1] if found else str(error).splitlines()[0])


def write(path, text):
    """A file as a whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, newline="")
    os.replace(temporary, path)


def read(folder, params):
    """The result of a combination that is done, else None. Raises BadInput for another's."""
    try:
        result = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return None
    if json.dumps(result["parameters"]) != json.dumps(params):
        raise BadInput("%s holds another combination: use another logdir" % folder)
    return result if result["status"] == "done" else None


def new_folder():
    """A folder for one search: OUTPUT_DIR, or one in runs/ that has the time for its name."""
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / "Parallel-Experiments"
    return os.environ.get("OUTPUT_DIR") or runs / time.strftime("%Y-%m-%d_%H-%M-%S")


def launch(
    spark, map_fun, args_dict, logdir=None, metric="accuracy", direction="max", jobs=None, threads=1
):
    """Calls map_fun with each combination; returns the results, the best first.

    spark: a SparkSession, or None for processes on this machine.
    map_fun: returns {metric: number}, or one number; it may take `logdir`, a folder of its own.
    args_dict: {parameter: [values]} for all combinations, or a list of {parameter: value}.
    logdir: where the results are, and TensorBoard's files; hosts of Spark should share it.
        None: a new folder, as new_folder() says.
    metric, direction: what the results are sorted by, and whether "max" or "min" is best.
    jobs: runs at once (the cores here, or Spark's). threads: of TensorFlow in each run.
    Raises ValueError for bad input. A run that fails raises nothing: its result has the error.
    """
    logdir = logdir or new_folder()
    runs, folder, function = inputs.checked(map_fun, args_dict, logdir, direction, jobs, threads)
    results = {name: read(folder / name, params) for name, params in runs.items()}
    results = {name: result for name, result in results.items() if result}
    inputs.check_metric(results.values(), metric)

    context = spark and spark.sparkContext
    here = not spark or context.master.startswith("local")  # else the hosts have GPUs of their own
    if not jobs:  # a cluster may get more slots later: Spark lets runs wait for one
        jobs = (
            min(len(runs), 100)
            if not here
            else (context.defaultParallelism if spark else len(resources.cores() or [0]))
        )
    slots, group, over = queue.SimpleQueue(), "experiments-%s" % time.time_ns(), threading.Event()
    for gpus in grid.deal(cluster.gpus() if here else [], min(jobs, len(runs))):
        slots.put(gpus)
    base = {
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": 2,
        "PYTHONHASHSEED": 0,
    }
    live = []

    def run(name):
        gpus, began = slots.get(), time.time()
        try:
            if over.is_set():
                return None
            env = {**base, **({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {})}
            env = {key: str(value) for key, value in env.items()}
            call = functools.partial(
                one_run, map_fun, runs[name], str(folder / name), metric, inputs.COLUMNS
            )
            call = by_value(call, one_run, function)
            if spark:
                call = by_value(functools.partial(isolated, call, env), isolated)
                status, metrics, error = as_spark_job(spark, group, name, call)
            else:
                status, metrics, error = isolated(call, env, live.append)
        finally:
            slots.put(gpus)
        if over.is_set():  # it was stopped, and so it has no result
            return None
        return {
            "run": name,
            "parameters": runs[name],
            "status": status,
            "metrics": metrics,
            "began": began,
            "seconds": round(time.time() - began, 2),
            "error": error,
        }

    def keep(result):
        path = folder / result["run"]
        path.mkdir(exist_ok=True)  # hosts of Spark may share no folder
        report.write_events(path, report.hparams_of(result))
        write(path / "result.json", json.dumps(result, indent=2) + "\n")
        results[result["run"]] = result

    pool, futures = concurrent.futures.ThreadPoolExecutor(jobs), []
    try:
        futures += [pool.submit(run, name) for name in runs if name not in results]
        pending = set(futures)
        with report.progress(len(runs), len(results), metric) as show:
            while pending:
                done, pending = concurrent.futures.wait(pending, timeout=0.5)
                found = [future.result() for future in done]
                for result in found:
                    keep(result)
                show(found)
                inputs.check_metric(found, metric)
    except BaseException:  # Ctrl-C, or a metric that is not there
        over.set()
        for future in futures:  # what has ended meanwhile is done
            if future.done() and not future.cancelled() and not future.exception():
                if (result := future.result()) and result["run"] not in results:
                    keep(result)
        pool.shutdown(wait=False, cancel_futures=True)
        while any(future.running() for future in futures):
            if spark:
                context.cancelJobGroup(group)  # again, because a job may have begun since
            for executor in live:
                with contextlib.suppress(Exception):  # its own thread may shut it down just now
                    executor.shutdown(wait=False, kill_workers=True)
            time.sleep(0.1)
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    results = report.in_order(results.values(), metric, direction)
    report.write_events(folder, [report.hparams_config(results)])
    report.write_csv(results, folder / "results.csv")
    report.draw(results, metric, folder / "results.png")
    return results


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(flag, kind, default, text, **options):
        text += " (%(default)s)"
        parser.add_argument(flag, type=kind, default=default, help=text, **options)

    parser.add_argument(
        "--set",
        type=inputs.values_of,
        action="append",
        metavar="NAME=V1,V2",
        help="values of a parameter, once for each parameter "
        "(learning_rate=0.001,0.01 and dropout=0.0,0.5)",
    )
    add("--function", str, "digits.py:train", "what is trained, as FILE.py:NAME")
    add(
        "--backend",
        str,
        "both",
        "spark, local, or both and a comparison",
        choices=["spark", "local", "both"],
    )
    add("--metric", str, "accuracy", "what the table is sorted by")
    add("--direction", str, "max", "max or min: which metric is best")
    add("--jobs", int, 0, "runs at once; 0: as many as there are cores, or slots of Spark")
    add("--threads", int, 1, "threads of TensorFlow in each run")
    add("--logdir", str, "", "where results are kept, and found again; else a new folder in runs/")
    add("--master", str, os.environ.get("SPARK_MASTER", ""), "Spark's master; else Spark's default")
    return parser.parse_args()


def session(master):
    """A session of Spark. Raises BadInput where it is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadInput("%s; bash run.sh installs Spark" % error) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("Parallel-Experiments")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(master) if master else builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main():
    flags, spark, found = parse(), None, {}
    logdir = pathlib.Path(flags.logdir or new_folder()).resolve()
    given = flags.set or [("learning_rate", [0.001, 0.01]), ("dropout", [0.0, 0.5])]
    try:
        # A path of the default is beside this script, and one of the user's where the user is.
        default = flags.function == "digits.py:train"
        function = inputs.function_of(str(HERE / flags.function) if default else flags.function)
        options = [
            dict(given),
            logdir,
            flags.metric,
            flags.direction,
            flags.jobs or None,
            flags.threads,
        ]
        inputs.checked(function, *options[:2], *options[3:])  # before Spark starts
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        for backend in ["spark", "local"] if flags.backend == "both" else [flags.backend]:
            spark = session(flags.master) if backend == "spark" else None
            # Instead of pyspark's own, and where a shell has started this in the background.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            options[1] = logdir / backend
            print("[experiments] %s, in %s" % (backend, options[1]), flush=True)
            found[backend] = launch(spark, function, *options)
            report.print_table(found[backend])
            if spark:
                spark.stop()
    except BadInput as error:
        print("parallel_experiments.py: %s" % error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("[experiments] stopped; the same --logdir goes on", file=sys.stderr)
        return 130
    code = int(any(result["error"] for results in found.values() for result in results))
    if len(found) == 2:
        same = report.equal(found["spark"], found["local"])
        print(
            "[experiments] Spark's results and the local ones are %s"
            % ("equal" if same else "NOT equal")
        )
        code = code or int(not same)
    return code


if __name__ == "__main__":
    sys.exit(main())
