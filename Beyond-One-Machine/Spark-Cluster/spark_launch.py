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
import fcntl
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import launching

FAILED, END = "TASK FAILED: ", "END OF TASK"  # what stands around the error of a task
BEGIN = "begin"  # what the first task reports of each attempt
FACTS = ("metrics-%s.csv", "flags.json")  # of a task; they go to the driver, too


def run_task(roles, script, env, report_to, token, local):
    """On an executor: runs the script as the task of this partition; yields (its name, its facts).

    Raises RuntimeError with the last lines of a task that failed.
    """
    import ctypes

    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    job, index = roles[context.partitionId()]
    last = collections.deque(maxlen=20)
    # Where slots are free, Spark begins again before the tasks of the last attempt have ended. The
    # child has this lock, too: it lasts as long as the child does.
    os.makedirs(env["OUTPUT_DIR"], exist_ok=True)
    lock = open(os.path.join(env["OUTPUT_DIR"], ".%s-%d.lock" % (job, index)), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
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
    env = {
        "TF_NUM_INTRAOP_THREADS": str(context.cpus()),
        **os.environ,
        **env,
        "TF_CONFIG": json.dumps(config),
        "TF_GRPC_REUSE_PORT": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if gpus or job == "ps":
        env["CUDA_VISIBLE_DEVICES"] = "-1" if job == "ps" else ",".join(gpus)
    parent = os.getpid()

    def die_with_parent():
        # Spark kills its Python worker only. A task that outlived it would write on, beside the
        # one that takes its place.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)

    with contextlib.ExitStack() as stack:
        stack.enter_context(lock)
        stack.enter_context(held)
        driver = None
        with contextlib.suppress(OSError):  # it may not be reachable; then it hears nothing
            driver = stack.enter_context(socket.create_connection(report_to, timeout=5))
            driver.sendall(token.encode())

        def report(name, line):
            nonlocal driver
            try:
                if driver:
                    driver.sendall(("%s\t%s\n" % (name, line.rstrip("\n"))).encode())
            except OSError:  # training must not wait for a driver that does not read
                driver = None

        if context.partitionId() == 0:
            report("spark", BEGIN)
        child = stack.enter_context(
            subprocess.Popen(
                [sys.executable, *script],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                preexec_fn=die_with_parent,
                pass_fds=[lock.fileno()],
            )
        )
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
    paths = [
        pathlib.Path(env["OUTPUT_DIR"]) / (kept.replace("%s", "%s-%d" % (job, index)))
        for kept in FACTS
    ]
    yield "%s-%d" % (job, index), {path.name: path.read_text() for path in paths if path.exists()}


class Reports(socketserver.ThreadingTCPServer):
    """Shows the lines of the tasks, each behind the name of its task."""

    daemon_threads = True
    attempts = connected = 0
    token = secrets.token_hex(16)  # somebody else's lines do not begin with it

    class Lines(socketserver.StreamRequestHandler):
        def handle(self):
            if self.rfile.read(len(Reports.token)).decode(errors="replace") != Reports.token:
                return
            Reports.connected += 1
            self.show()
            Reports.connected -= 1

        def show(self):
            for line in self.rfile:
                name, _, text = line.decode(errors="replace").rstrip("\n").partition("\t")
                if (name, text) == ("spark", BEGIN):
                    Reports.attempts += 1
                    text = "attempt %d: all tasks begin" % Reports.attempts
                if not launching.NOTICES.match(text):
                    print("[%s] %s" % (name, text), flush=True)


def launch(spark, script, n_ps, n_workers, chief, env):
    """Runs a script as a cluster of TensorFlow; returns {task: {file name: its text}}.

    script: the path and the arguments. env: more variables; OUTPUT_DIR must be among them, a folder
    that all hosts share. Raises pyspark's errors when the last attempt has failed.
    """
    roles = launching.tasks(n_ps, n_workers, chief)
    host = spark.conf.get("spark.driver.host")
    with Reports((spark.conf.get("spark.driver.bindAddress", host), 0), Reports.Lines) as reports:
        threading.Thread(target=reports.serve_forever, daemon=True).start()
        address, token = (host, reports.server_address[1]), reports.token
        tasks = spark.sparkContext.parallelize(range(len(roles)), len(roles)).barrier()
        local = re.match(r"local(\[|$)", spark.sparkContext.master) is not None
        facts = tasks.mapPartitions(lambda _: run_task(roles, script, env, address, token, local))
        # Spark begins a barrier stage again only where a shuffle follows it.
        try:
            return dict(facts.repartition(1).collect())
        finally:
            deadline = time.monotonic() + 2
            while Reports.connected and time.monotonic() < deadline:  # for the last lines
                time.sleep(0.05)
            reports.shutdown()


def explain(error):
    """One text that says why Spark has given up, from its own long one."""
    text = str(error)
    if found := re.findall(re.escape(FAILED) + "(.*?)" + END, text, re.DOTALL):
        return found[-1].strip()  # of the last attempt
    if "requires more slots" in text:
        return (
            "the cluster has fewer free slots than this run has tasks: start more workers of "
            "Spark, or use fewer tasks"
        )
    lines = [line for line in text.strip().splitlines() if not re.match(r"\s+at |An error", line)]
    return "Spark has given up:\n" + "\n".join(lines[:30])


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--master",
        default=os.environ.get("SPARK_MASTER", "local[*]"),
        help="Spark's master, such as spark://host:7077, yarn, k8s://... "
        "(SPARK_MASTER, or local[*])",
    )
    parser.add_argument(
        "--slots-timeout",
        type=int,
        default=60,
        metavar="S",
        help="seconds that the cluster may take to have a slot for each task (60)",
    )
    parser.add_argument(
        "--log-level",
        default="OFF",
        choices=["OFF", "ERROR", "WARN", "INFO"],
        help="what Spark itself logs here (OFF)",
    )
    return launching.read_flags(parser, "slots_timeout")


def main():
    flags = parse()
    script = pathlib.Path(flags.script).resolve()
    output = launching.run_directory("Spark", script)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        print("[spark] %s: pip install pyspark==4.0.5, or use run.sh" % error, file=sys.stderr)
        return 2
    output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(flags.master).appName(script.stem)
    for name, value in {
        "spark.stage.maxConsecutiveAttempts": flags.attempts,
        "spark.python.task.killTimeout": "100ms",  # for the other tasks, when one has failed
        # How often, and how many times, Spark looks for enough slots: its defaults are 15 s and 40.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": flags.slots_timeout,
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # no Java, a master that does not exist
        print(
            "[spark] there is no session with the master %s: %s"
            % (flags.master, str(error).strip().splitlines()[-1]),
            file=sys.stderr,
        )
        return 1
    # Spark's own handler of Ctrl-C asks over the connection that just waits for the result. The JVM
    # ends when this process does, and the tasks with it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    spark.sparkContext.setLogLevel(flags.log_level)
    print(
        "[spark] %s: %d ps, %d workers, in %s"
        % (script.parent.name, flags.ps, flags.workers, output),
        flush=True,
    )
    try:
        facts = launch(
            spark,
            [str(script), *flags.arguments],
            flags.ps,
            flags.workers,
            flags.chief,
            {"OUTPUT_DIR": str(output)},
        )
    except Exception as error:  # what the JVM raises has many types
        print("[spark] %s" % explain(error), file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return launching.conclude(facts.values(), output)


if __name__ == "__main__":
    sys.exit(main())
