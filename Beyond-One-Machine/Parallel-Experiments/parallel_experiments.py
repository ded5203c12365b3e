"""Parallel-Experiments: a training function with many settings, each in a process of its own.

    launch(spark, train, {"learning_rate": [0.001, 0.01], "dropout": [0.0, 0.5]}, logdir)

    each combination   one task of Spark; without Spark, one of the processes on this machine
    one fails          its row gets the error, and the others go on
    called again       only the combinations that have no result run

Kind:          driver
Run:           bash run.sh
"""

import argparse
import atexit
import contextlib
import functools
import inspect
import json
import math
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

import cloudpickle
import inputs
import report
from inputs import BadInput
from joblib.externals.loky import ProcessPoolExecutor
from tfrun.launch import cluster, grid, signals

HERE = pathlib.Path(__file__).resolve().parent


def one_run(map_fun, metric, reserved, params, logdir):
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
        metrics = map_fun(**params, **more)
        metrics = metrics if isinstance(metrics, dict) else {metric: metrics}
        if taken := set(metrics) & {*params, *reserved}:
            raise ValueError(f"a metric must not be named as a parameter: {sorted(taken)}")
        metrics = {name: float(value) for name, value in metrics.items()}
        # JSON has no NaN: None for a run that diverged.
        return "done", {k: v if math.isfinite(v) else None for k, v in metrics.items()}, ""
    except (Exception, SystemExit):
        return "failed", {}, traceback.format_exc(limit=-2).strip()[-1000:]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def isolated(call, params, logdir, environment, started=lambda executor: None):
    """Returns what a pickled call returns in a new process; the reason if that was killed."""
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
        return executor.submit(lambda: pickle.loads(call)(params, logdir)).result()
    except Exception as error:  # it was killed, or it cannot import what it needs
        codes = re.search(r"exit codes of the workers are \{(.*)\}", str(error))
        return "failed", {}, f"the process ended early: {codes[1]}" if codes else repr(error)
    finally:
        executor.shutdown(kill_workers=True)


def by_value(call, *functions):
    """Returns a pickled call with the code of these functions: other hosts may lack their files."""
    modules = {sys.modules.get(getattr(function, "__module__", None)) for function in functions}
    with contextlib.ExitStack() as stack:
        for module in modules:
            path = getattr(module, "__file__", None)
            if path and module.__name__ != "__main__" and "site-packages" not in path:
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        return cloudpickle.dumps(call)


def as_spark_job(spark, group, name, call, *arguments):
    """Returns what a pickled call returns, as a job of Spark with one task; or why it failed."""
    spark.sparkContext.setJobGroup(group, name, interruptOnCancel=True)
    try:
        data = spark.sparkContext.parallelize([(call, arguments)], 1)
        # A lambda travels whole: the executors cannot import this module.
        return data.map(lambda pair: pickle.loads(pair[0])(*pair[1])).collect()[0]
    except Exception as error:  # what the JVM raises has many types
        # The last line of a Python error, or what follows "Lost task ...:", or the first line.
        line = re.search(r"PythonException: Traceback.*?\n(\w[^\n]*)", str(error), re.DOTALL)
        line = line or re.search(r"Lost task [^:]*: (?:[\w.]+: )?(.*?)(?:\. |\n|$)", str(error))
        return "failed", {}, "Spark: " + (line[1] if line else str(error).splitlines()[0])


def read(folder, params):
    """Returns the result of a combination, None if it is not done. Raises BadInput."""
    try:
        result = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return None
    if json.dumps(result["parameters"]) != json.dumps(params):
        raise BadInput(f"{folder} holds another combination: use another logdir")
    return result if result["status"] == "done" else None


def environment(threads):
    """Returns the variables of a run's process, with so many threads of TensorFlow."""
    return {
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONHASHSEED": "0",
    }


def on_this_machine(spark):
    """Returns whether the runs are here; Spark's other hosts have GPUs of their own."""
    return not spark or spark.sparkContext.master.startswith("local")


def slots(spark):
    """Returns how many runs go on at once where the user says nothing."""
    if not on_this_machine(spark):  # a cluster may get more slots later: Spark lets runs wait
        return 100
    return spark.sparkContext.defaultParallelism if spark else len(cluster.core_numbers() or [0])


class Experiments:
    """The runs of one launch: starts each, keeps its result, stops all.

    runs: {name: parameters}. results: {name: its result}, which grows. call: a pickled function of
    (parameters, folder).
    """

    def __init__(self, spark, runs, results, folder, metric, call, variables):
        self.spark, self.runs, self.results, self.folder = spark, runs, results, folder
        self.metric, self.call, self.variables = metric, call, variables
        self.isolated = by_value(isolated, isolated)
        self.group, self.executors = f"experiments-{time.time_ns()}", []
        self.lock, self.stopped = threading.Lock(), threading.Event()

    def run(self, name, gpus):
        """Calls the function with one combination, and keeps what comes out."""
        began, variables = time.time(), dict(self.variables)
        if gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        arguments = self.call, self.runs[name], str(self.folder / name), variables
        if self.spark:
            outcome = as_spark_job(self.spark, self.group, name, self.isolated, *arguments)
        else:
            outcome = isolated(*arguments, self.executors.append)
        status, metrics, error = outcome
        result = {
            "run": name,
            "parameters": self.runs[name],
            "status": status,
            "metrics": metrics,
            "began": began,
            "seconds": round(time.time() - began, 2),
            "error": error,
        }
        with self.lock:  # a run that was stopped has no result
            if not self.stopped.is_set():
                self.keep(result)

    def keep(self, result):
        """Writes a result, and shows it."""
        path = self.folder / result["run"]
        path.mkdir(exist_ok=True)  # hosts of Spark may share no folder
        report.write_events(path, report.hparams_of(result))
        (path / "result.json.new").write_text(json.dumps(result, indent=2) + "\n")
        (path / "result.json.new").replace(path / "result.json")  # whole, or not there
        self.results[result["run"]] = result
        report.show(result, self.metric, len(self.results), len(self.runs))
        inputs.check_metric([result], self.metric)

    def stop(self):
        """Ends the runs that go on; from here on none leaves a result."""
        self.stopped.set()
        if self.spark:
            self.spark.sparkContext.cancelJobGroup(self.group)
        for executor in self.executors:
            with contextlib.suppress(Exception):  # its own thread may shut it down just now
                executor.shutdown(wait=False, kill_workers=True)


def launch(
    spark, map_fun, args_dict, logdir=None, metric="accuracy", direction="max", jobs=None, threads=1
):
    """Calls map_fun with each combination; returns the results, the best first.

    spark: a SparkSession, or None for processes on this machine.
    map_fun: returns {metric: number}, or one number; it may take `logdir`, a folder of its own.
    args_dict: {parameter: [values]} for all combinations, or a list of {parameter: value}.
    logdir: where the results are, and TensorBoard's files; hosts of Spark should share it.
        None: OUTPUT_DIR, or a new folder in runs/.
    metric, direction: what the results are sorted by, and whether "max" or "min" is best.
    jobs: runs at once (the cores here, or Spark's). threads: of TensorFlow in each run.
    Raises ValueError for bad input. A run that fails raises nothing: its result has the error.
    """
    runs, folder, function = inputs.checked(map_fun, args_dict, logdir, direction, jobs, threads)
    results = {name: read(folder / name, params) for name, params in runs.items()}
    results = {name: result for name, result in results.items() if result}
    inputs.check_metric(results.values(), metric)
    if results:
        print(f"[experiments] {len(results)} of {len(runs)} have a result from before", flush=True)
    missing = [name for name in runs if name not in results]

    call = functools.partial(one_run, map_fun, metric, inputs.COLUMNS)
    call = by_value(call, one_run, function)
    started = Experiments(spark, runs, results, folder, metric, call, environment(threads))
    there = cluster.gpus() if on_this_machine(spark) else []
    gpus = grid.deal(there, min(jobs or slots(spark), len(runs)))
    grid.run(missing, gpus, started.run, started.stop)

    results = report.in_order(results.values(), metric, direction)
    report.write_events(folder, [report.hparams_config(results)])
    report.write_csv(results, folder / "results.csv")
    report.draw(results, metric, folder / "results.png")
    return results


def parse():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=form)

    def add(flag, default, text, **more):
        text += " (%(default)s)"
        parser.add_argument(flag, type=type(default), default=default, help=text, **more)

    words = "values of a parameter, once for each parameter"
    words += " (learning_rate=0.001,0.01 and dropout=0.0,0.5)"
    example = "NAME=V1,V2"
    parser.add_argument(
        "--set", type=inputs.values_of, action="append", metavar=example, help=words
    )
    words = "spark, local, or both and a comparison"
    add("--function", f"{HERE / 'digits.py'}:train", "what is trained, as FILE.py:NAME")
    add("--backend", "both", words, choices=["spark", "local", "both"])
    add("--metric", "accuracy", "what the table is sorted by")
    add("--direction", "max", "max or min: which metric is best")
    add("--jobs", 0, "runs at once; 0: as many as there are cores, or slots of Spark")
    add("--threads", 1, "threads of TensorFlow in each run")
    add("--logdir", "", "where results are kept, and found again; else a new folder in runs/")
    add("--master", os.environ.get("SPARK_MASTER", ""), "Spark's master; else Spark's default")
    return parser.parse_args()


def session(master):
    """A session of Spark. Raises BadInput where it is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadInput(f"{error}; bash run.sh installs Spark") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("Parallel-Experiments")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(master) if master else builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    atexit.register(end, spark.sparkContext)
    return spark


def end(context):
    """Ends the JVM that a session has started, if it has, and waits: it must not outlive run.sh."""
    if server := context._accumulatorServer:  # after Ctrl-C; it would print the end of the JVM
        server.shutdown()
    if jvm := context._gateway.proc:
        jvm.stdin.close()  # Spark's sign that its Python process has ended
        try:
            jvm.wait(20)
        except subprocess.TimeoutExpired:
            jvm.kill()


def main():
    flags, tables = parse(), {}
    points = dict(flags.set or [("learning_rate", [0.001, 0.01]), ("dropout", [0.0, 0.5])])
    options = [flags.direction, flags.jobs or None, flags.threads]
    try:
        function = inputs.function_of(flags.function)
        # Before Spark starts.
        _, folder, _ = inputs.checked(function, points, flags.logdir, *options)
        signals.handle(lambda *_: sys.exit(128 + signal.SIGTERM), signal.SIGTERM)
        for backend in ["spark", "local"] if flags.backend == "both" else [flags.backend]:
            spark = session(flags.master) if backend == "spark" else None
            # Instead of pyspark's own.
            signals.handle(signal.default_int_handler, signal.SIGINT)
            logdir = folder / backend
            print(f"[experiments] {backend}, in {logdir}", flush=True)
            tables[backend] = launch(spark, function, points, logdir, flags.metric, *options)
            report.print_table(tables[backend])
            if spark:
                spark.stop()
    except BadInput as error:
        print(f"parallel_experiments.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("[experiments] stopped; the same --logdir goes on", file=sys.stderr)
        return 130
    code = int(any(result["error"] for results in tables.values() for result in results))
    if len(tables) == 2:
        same = report.equal(tables["spark"], tables["local"])
        equal = "equal" if same else "NOT equal"
        print(f"[experiments] Spark's results and the local ones are {equal}")
        code = code or int(not same)
    return code


if __name__ == "__main__":
    sys.exit(main())
