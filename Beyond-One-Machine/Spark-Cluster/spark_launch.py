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
import secrets
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time

FAILED, END = "TASK FAILED: ", "END OF TASK"  # what stands around the error of a task
BEGIN = "begin"  # what the first task reports of each attempt
FACTS = ("metrics-%s.csv", "flags.json")  # of a task; they go to the driver, too
NOTICES = re.compile(r"WARNING: All log messages before absl|.*oneDNN custom operations are on|"
                     r".*Could not find cuda drivers|.*TensorFlow binary is optimized|"
                     r"To enable the following instructions")  # at each start of TensorFlow


def run_task(roles, script, env, report_to, token, local):
    """On an executor: runs the script as the task of this partition; yields (its name, its facts).

    Raises RuntimeError with the last lines of a task that failed.
    """
    import ctypes

    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    job, index = roles[context.partitionId()]
    last = collections.deque(maxlen=20)
    # The log of the executor; a local one shares that of the driver, which shows the reports.
    log = open(os.devnull, "w") if local else sys.stderr

    # A socket that is bound keeps the port; TensorFlow may listen on it all the same, because both
    # ask for SO_REUSEPORT.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    host = context.getTaskInfos()[context.partitionId()].address.rsplit(":", 1)[0]
    cluster = {}
    addresses = context.allGather("%s:%d" % (host, held.getsockname()[1]))
    for (role, _), address in zip(roles, addresses):
        cluster.setdefault(role, []).append(address)
    config = {"cluster": cluster, "task": {"type": job, "index": index}}

    gpus = context.resources()["gpu"].addresses if "gpu" in context.resources() else []
    env = {"TF_NUM_INTRAOP_THREADS": str(context.cpus()), **os.environ, **env,
           "TF_CONFIG": json.dumps(config), "TF_GRPC_REUSE_PORT": "1", "PYTHONUNBUFFERED": "1",
           "CUDA_VISIBLE_DEVICES": ",".join(gpus) if gpus and job != "ps" else "-1"}
    parent = os.getpid()

    def die_with_parent():
        # Spark kills its Python worker only. A task that outlived it would write on, beside the
        # one that takes its place.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG; Linux
        if os.getppid() != parent:
            os._exit(1)
    os.makedirs(env["OUTPUT_DIR"], exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(held)
        driver = None
        with contextlib.suppress(OSError):  # it may not be reachable; then it hears nothing
            driver = stack.enter_context(socket.create_connection(report_to, timeout=5))
            driver.sendall(token.encode())

        def report(name, line):
            with contextlib.suppress(OSError, AttributeError):
                driver.sendall(("%s\t%s\n" % (name, line.rstrip("\n"))).encode())
        if context.partitionId() == 0:
            report("spark", BEGIN)
        child = stack.enter_context(subprocess.Popen(
            [sys.executable, *script], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=die_with_parent))
        stack.callback(child.kill)
        for line in child.stdout:
            print(line, end="", file=log, flush=True)
            last.append(line)
            report("%s %d" % (job, index), line)
        code = child.wait()
        if code:
            how = "was killed by signal %d" if code < 0 else "failed with exit code %d"
            how = "%s %d %s" % (job, index, how % abs(code))
            report("spark", how)
            raise RuntimeError("%s%s\n%s%s" % (FAILED, how, "".join(last), END))
    paths = [pathlib.Path(env["OUTPUT_DIR"]) / (kept.replace("%s", "%s-%d" % (job, index)))
             for kept in FACTS]
    yield "%s-%d" % (job, index), {path.name: path.read_text() for path in paths if path.exists()}


class Reports(socketserver.ThreadingTCPServer):
    """Shows the lines of the tasks, each behind the name of its task."""

    daemon_threads = True
    attempts, token = 0, secrets.token_hex(16)  # somebody else's lines do not begin with it

    class Lines(socketserver.StreamRequestHandler):
        def handle(self):
            if self.rfile.read(len(Reports.token)).decode(errors="replace") != Reports.token:
                return
            for line in self.rfile:
                name, _, text = line.decode(errors="replace").rstrip("\n").partition("\t")
                if (name, text) == ("spark", BEGIN):
                    Reports.attempts += 1
                    text = "attempt %d: all tasks begin" % Reports.attempts
                if not NOTICES.match(text):
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
        address, token = (host, reports.server_address[1]), reports.token
        tasks = spark.sparkContext.parallelize(range(len(roles)), len(roles)).barrier()
        local = re.match(r"local(\[|$)", spark.sparkContext.master) is not None
        facts = tasks.mapPartitions(lambda _: run_task(roles, script, env, address, token, local))
        # Spark begins a barrier stage again only where a shuffle follows it.
        try:
            return dict(facts.repartition(1).collect())
        finally:
            time.sleep(0.2)  # the last lines
            reports.shutdown()


def write_facts(facts, output):
    """Writes the facts of hosts that do not share the folder `output`: those it does not have."""
    for texts in facts.values():
        for name, text in texts.items():
            if not (output / name).exists():
                (output / name).write_text(text)


def explain(error):
    """One text that says why Spark has given up, from its own long one."""
    text = str(error)
    if found := re.findall(re.escape(FAILED) + "(.*?)" + END, text, re.DOTALL):
        return found[-1].strip()  # of the last attempt
    if "requires more slots" in text:
        return "the cluster has fewer free slots than this run has tasks: start more workers of " \
               "Spark, or use fewer tasks"
    lines = [line for line in text.strip().splitlines() if not re.match(r"\s+at |An error", line)]
    return "Spark has given up:\n" + "\n".join(lines[:30])


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
    parser.add_argument("--log-level", default="OFF", choices=["OFF", "ERROR", "WARN", "INFO"],
                        help="what Spark itself logs here (OFF)")
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
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(flags.master).appName(script.stem)
    for name, value in {
        "spark.stage.maxConsecutiveAttempts": flags.attempts,
        "spark.python.task.killTimeout": "100ms",  # for the other tasks, when one has failed
        # How often, and how many times, Spark looks for enough slots before it says that there
        # are too few: its defaults are 15 s and 40.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": 10,
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # Spark's own handler of Ctrl-C asks over the connection that just waits for the result. The JVM
    # ends when this process does, and the tasks with it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    spark.sparkContext.setLogLevel(flags.log_level)
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
    write_facts(facts, output)
    tests = "done"
    if (output / "flags.json").exists() and shutil.which("tfrun"):
        code = subprocess.run(["tfrun", "summary", output], stdout=subprocess.DEVNULL).returncode
        if code:
            return code
        result = json.loads((output / "result.json").read_text())
        tests = ", ".join("%s %.4g" % (name, result[name]) for name in result if "test_" in name)
    print("[spark] %s; everything of this run is in %s" % (tests, output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
