"""Spark-Cluster: any example as one barrier stage of Spark, unmodified.

    one Spark task for each TensorFlow task: ps, workers (and a chief)
    each            holds a port, and tells its address to the others (allGather)
    each            runs the script, with TF_CONFIG and OUTPUT_DIR in its environment
    one fails       Spark ends all of them and begins the stage again; the script goes on from its
                    last checkpoint

Kind:          driver
Run:           bash run.sh ../../HogWild/hogwild.py --steps 600
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time

from pyspark.sql import SparkSession

FAILED, END = "TASK FAILED: ", "END OF TASK"  # what stands around the error of a task
KEPT = ("metrics-%s.csv", "flags.json")  # the facts of a task, which go to the driver


def run_task(roles, script, env, report_to):
    """On an executor: runs the script as the task of this partition; yields (its name, its facts)."""
    import ctypes
    import signal

    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    job, index = roles[context.partitionId()]
    name = "%s-%d" % (job, index)

    # A socket that is bound keeps the port; TensorFlow may listen on it all the same, because both
    # ask for SO_REUSEPORT.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    host = context.getTaskInfos()[context.partitionId()].address.rsplit(":", 1)[0]
    cluster = {}
    for (role, _), address in zip(roles, context.allGather("%s:%d" % (host, held.getsockname()[1]))):
        cluster.setdefault(role, []).append(address)
    config = {"cluster": cluster, "task": {"type": job, "index": index}}

    def die_with_parent():
        # Spark kills the Python worker only. A task that outlived it would write on, beside the
        # one that takes its place.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG; Linux
    env = {**os.environ, **env, "TF_CONFIG": json.dumps(config), "TF_GRPC_REUSE_PORT": "1",
           "PYTHONUNBUFFERED": "1", **({"CUDA_VISIBLE_DEVICES": "-1"} if job == "ps" else {})}
    for name_of_spark in ("SPARK_HOME", "PYTHONPATH"):  # they are for Spark's Python
        env.pop(name_of_spark, None)
    os.makedirs(env["OUTPUT_DIR"], exist_ok=True)
    last = collections.deque(maxlen=20)
    with contextlib.ExitStack() as stack:
        driver = None
        with contextlib.suppress(OSError):  # it may not be reachable; then it hears nothing
            driver = stack.enter_context(socket.create_connection(report_to, timeout=5))
        child = subprocess.Popen([sys.executable, *script], env=env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 errors="replace", preexec_fn=die_with_parent)
        for line in child.stdout:
            sys.stderr.write(line)  # the executor's log
            sys.stderr.flush()
            last.append(line)
            with contextlib.suppress(OSError, AttributeError):
                driver.sendall(("%s %d\t%s" % (job, index, line)).encode())
        code = child.wait()
    held.close()
    if code:
        how = "was killed by signal %d" % -code if code < 0 else "failed with exit code %d" % code
        raise RuntimeError("%s%s %d %s\n%s%s" % (FAILED, job, index, how, "".join(last), END))
    paths = [pathlib.Path(env["OUTPUT_DIR"]) / kept.replace("%s", name) for kept in KEPT]
    yield name, {path.name: path.read_text() for path in paths if path.exists()}


class Reports(socketserver.ThreadingTCPServer):
    """Shows what the tasks print, each line behind the name of its task."""

    allow_reuse_address = daemon_threads = True

    class Lines(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                name, _, text = line.decode(errors="replace").rstrip("\n").partition("\t")
                print("[%s] %s" % (name, text), flush=True)


def launch(spark, script, n_ps, n_workers, chief, env):
    """Runs a script as a cluster of TensorFlow; returns {task: {file name: its text}}.

    script: the path and the arguments. env: more variables; OUTPUT_DIR must be among them, a folder
    that all hosts share. Raises pyspark's errors when the last attempt has failed.
    """
    roles = [(job, index) for job, n in (("ps", n_ps), ("chief", int(chief)), ("worker", n_workers))
             for index in range(n)]
    host = spark.conf.get("spark.driver.host")
    with Reports((host, 0), Reports.Lines) as reports:
        threading.Thread(target=reports.serve_forever, daemon=True).start()
        port = reports.server_address[1]
        stage = spark.sparkContext.parallelize(range(len(roles)), len(roles)).barrier()
        facts = stage.mapPartitions(lambda _: run_task(roles, script, env, (host, port)))
        # Spark begins a barrier stage again only where a shuffle follows it.
        try:
            return dict(facts.repartition(1).collect())
        finally:
            time.sleep(0.2)  # the last lines
            reports.shutdown()


def explain(error):
    """One text that says why Spark has given up, from its own long one."""
    text = str(error)
    if found := re.findall(re.escape(FAILED) + "(.*?)" + END, text, re.DOTALL):
        return found[-1].strip()  # of the last attempt
    if "requires more slots" in text:
        return "the cluster has fewer free slots than this run has tasks: start more workers of " \
               "Spark, or use fewer tasks"
    return text.strip().splitlines()[0]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--master", default=os.environ.get("SPARK_MASTER", "local[*]"),
                        help="Spark's master, such as spark://host:7077, yarn, k8s://... "
                             "(SPARK_MASTER, or local[*])")
    parser.add_argument("--ps", type=int, default=1, metavar="N", help="parameter servers (1)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="workers (2)")
    parser.add_argument("--chief", action="store_true", help="one task more, of the type chief")
    parser.add_argument("--attempts", type=int, default=4, metavar="N",
                        help="how often Spark may begin the tasks, the first time included (4)")
    parser.add_argument("script", help="the training script, at the same path on all hosts")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets")
    flags = parser.parse_args()
    for name, low in (("ps", 0), ("workers", 0), ("attempts", 1)):
        if not low <= vars(flags)[name] <= 99:
            parser.error("--%s must be from %d to 99, is %d" % (name, low, vars(flags)[name]))
    if not flags.workers and not flags.chief:
        parser.error("a run needs a worker or a chief")
    if not pathlib.Path(flags.script).is_file():
        parser.error("there is no script %s here (%s)" % (flags.script, os.getcwd()))
    return flags


def main():
    flags = parse()
    script = pathlib.Path(flags.script).resolve()
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / "Spark" / script.parent.name
    output = pathlib.Path(os.environ.get("OUTPUT_DIR") or
                          runs / time.strftime("%Y-%m-%d_%H-%M-%S")).resolve()
    output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(flags.master).appName(script.stem)
    for name, value in {
        "spark.stage.maxConsecutiveAttempts": flags.attempts,
        # How often, and how many times, Spark looks for enough slots before it says that there
        # are too few: its defaults are 15 s and 40.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": 10,
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("[spark] %s: %d ps, %d workers, in %s" % (
        script.parent.name, flags.ps, flags.workers, output), flush=True)
    try:
        facts = launch(spark, [str(script), *flags.arguments], flags.ps, flags.workers, flags.chief,
                       {"OUTPUT_DIR": str(output)})
    except Exception as error:  # what the JVM raises has many types
        print("[spark] %s" % explain(error), file=sys.stderr)
        return 1
    finally:
        spark.stop()
    for texts in facts.values():  # of hosts that share no folder
        for name, text in texts.items():
            if not (output / name).exists():
                (output / name).write_text(text)
    if shutil.which("tfrun"):
        return subprocess.run(["tfrun", "summary", output]).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
