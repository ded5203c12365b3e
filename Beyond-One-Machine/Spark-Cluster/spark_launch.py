"""Spark-Cluster: any example as one barrier stage of Spark, unmodified.

    one Spark task for each TensorFlow task: ps, workers (and a chief)
    each            holds a port, and tells its address to the others (allGather)
    each            runs the script, with TF_CONFIG and OUTPUT_DIR in its environment
    one fails       Spark ends all of them and begins the stage again; the script goes on from its
                    last checkpoint

Kind:          driver
Run:           bash run.sh ../../HogWild/hogwild.py --steps 600
"""

import contextlib
import os
import pathlib
import re
import secrets
import signal
import socket
import socketserver
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import launching

FAILED, END = "TASK FAILED: ", "END OF TASK"  # what stands around the error of a task
BEGIN = "begin"  # what the first task reports of each attempt


def run_task(roles, script, env, report_to, token, local):
    """On an executor: runs the script as the task of this partition; yields its facts.

    Raises RuntimeError with the last lines of a task that failed.
    """
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    number = context.partitionId()
    job, index = roles[number]
    # The log of the executor; a local one shares that of the driver, which shows the reports.
    log = open(os.devnull, "w") if local else sys.stderr
    # Where slots are free, Spark begins again before the tasks of the last attempt have ended.
    lock, held = launching.lock_task(env["OUTPUT_DIR"], job, index), launching.hold_port()
    host = context.getTaskInfos()[number].address.rsplit(":", 1)[0]
    addresses = context.allGather(f"{host}:{held.getsockname()[1]}")

    gpus = context.resources()["gpu"].addresses if "gpu" in context.resources() else []
    env = {"TF_NUM_INTRAOP_THREADS": str(context.cpus()), **os.environ, **env}
    if gpus or job == "ps":
        env["CUDA_VISIBLE_DEVICES"] = "-1" if job == "ps" else ",".join(gpus)

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
                    text = line.rstrip("\n")
                    driver.sendall(f"{name}\t{text}\n".encode())
            except OSError:  # training must not wait for a driver that does not read
                driver = None

        if number == 0:
            report("spark", BEGIN)
        for line in launching.run_task(script, roles, addresses, number, env, lock):
            if isinstance(line, str):
                print(line, end="", file=log, flush=True)
                report(f"{job} {index}", line)
        failure, facts = line  # the last that it yields
        if failure:
            report("spark", failure.split("\n", 1)[0])
            raise RuntimeError(FAILED + failure + END)
    yield facts


class Reports(socketserver.ThreadingTCPServer):
    """Shows the lines of the tasks, each behind the name of its task."""

    daemon_threads = True
    attempts = 0
    connected = 0
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
                    text = f"attempt {Reports.attempts}: all tasks begin"
                if not launching.is_notice(text):
                    print(f"[{name}] {text}", flush=True)


def launch(spark, script, roles, env):
    """Runs a script as a cluster of TensorFlow; returns the facts of its tasks.

    script: the path and the arguments. env: more variables; OUTPUT_DIR must be among them, a folder
    that all hosts share. Raises pyspark's errors when the last attempt has failed.
    """
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(launching)
    host = spark.conf.get("spark.driver.host")
    with Reports((spark.conf.get("spark.driver.bindAddress", host), 0), Reports.Lines) as reports:
        threading.Thread(target=reports.serve_forever, daemon=True).start()
        address, token = (host, reports.server_address[1]), reports.token
        tasks = spark.sparkContext.parallelize(range(len(roles)), len(roles)).barrier()
        local = re.match(r"local(\[|$)", spark.sparkContext.master) is not None
        facts = tasks.mapPartitions(lambda _: run_task(roles, script, env, address, token, local))
        # Spark begins a barrier stage again only where a shuffle follows it.
        try:
            return facts.repartition(1).collect()
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
    parser = launching.Parser(__doc__)
    parser.add_argument(
        "--master",
        default=os.environ.get("SPARK_MASTER", "local[*]"),
        help="Spark's master, such as spark://host:7077, yarn, k8s://... "
        "(SPARK_MASTER, or local[*])",
    )
    words = "seconds that the cluster may take to have a slot for each task"
    parser.number("--slots-timeout", 60, words, 1, 86400, "S")
    levels, words = ["OFF", "ERROR", "WARN", "INFO"], "what Spark itself logs here (OFF)"
    parser.add_argument("--log-level", default="OFF", choices=levels, help=words)
    return parser.with_script()


def main():
    flags = parse()
    script = pathlib.Path(flags.script).resolve()
    output = launching.run_directory("Spark", script)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        print(f"[spark] {error}: pip install pyspark==4.0.5, or use run.sh", file=sys.stderr)
        return 2
    command = launching.command(script, flags.arguments, output)
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
        why = str(error).strip().splitlines()[-1]
        text = f"[spark] there is no session with the master {flags.master}: {why}"
        print(text, file=sys.stderr)
        return 1
    # Spark's own handler of Ctrl-C asks over the connection that just waits for the result. The JVM
    # ends when this process does, and the tasks with it.
    launching.handle(signal.SIGINT, lambda *_: os._exit(130))
    spark.sparkContext.setLogLevel(flags.log_level)
    tasks = f"{flags.ps} ps, {flags.workers} workers"
    print(f"[spark] {script.parent.name}: {tasks}, in {output}", flush=True)
    roles = launching.tasks(flags.ps, flags.workers, flags.chief)
    try:
        facts = launch(spark, command, roles, {"OUTPUT_DIR": str(output)})
    except Exception as error:  # what the JVM raises has many types
        print(f"[spark] {explain(error)}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return launching.conclude(facts, output)


if __name__ == "__main__":
    sys.exit(main())
