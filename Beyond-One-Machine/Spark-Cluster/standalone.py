"""A real standalone cluster of Spark on this machine, as long as a command runs.

    python standalone.py --workers 3 -- python spark_launch.py ...

The command gets SPARK_MASTER. The master and its workers come from the package pyspark, listen on
loopback only, and end with this process, whatever happens.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from tfrun.launch.task import end_with_parent

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import launching

QUIET = """rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
"""
WAIT = 60  # seconds for the master, and for its workers


def start(name, folder, *arguments):
    """Starts a daemon of Spark in the foreground: (its process, its log)."""
    import pyspark

    home = pathlib.Path(pyspark.__file__).parent
    log = folder / (name + ".log")
    classes = "org.apache.spark.deploy."
    command = [home / "bin" / "spark-class", classes + arguments[0], "-h", "127.0.0.1"]
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }
    with open(log, "w") as output:
        process = subprocess.Popen(
            [*map(str, command), *arguments[1:]],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
            start_new_session=True,
        )
    return process, log


def wait_for(pattern, times, daemons, log):
    """What a pattern finds in a log, so many times. Raises RuntimeError if that does not come."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline and all(daemon.poll() is None for daemon in daemons):
        if len(matches := re.findall(pattern, log.read_text())) >= times:
            return matches
        time.sleep(0.1)
    raise RuntimeError("Spark did not start:\n" + log.read_text()[-1000:])


def main():
    parser = launching.Parser(__doc__)
    parser.number("--workers", 3, "Spark's workers", 1, 99)
    parser.number("--cores", 1, "slots of each", 1, 99)
    flags = parser.with_command()
    launching.handle(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # An executor that is just ending may still write there.
    with tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as name:
        folder, daemons = pathlib.Path(name), []
        # Of the command's own Spark: spark_launch.py --log-level shows more.
        (folder / "log4j2.properties").write_text(QUIET)
        env = {"SPARK_CONF_DIR": str(folder), **os.environ}
        try:
            master, log = start("master", folder, "master.Master", "-p", "0", "--webui-port", "0")
            daemons.append(master)
            address = wait_for(r"spark://127\.0\.0\.1:\d+", 1, daemons, log)[0]
            for number in range(flags.workers):
                words = ["-c", str(flags.cores), "-m", "1g", "-d", str(folder / str(number))]
                words += ["--webui-port", "0", address]
                daemons.append(start(f"worker-{number}", folder, "worker.Worker", *words)[0])
            wait_for("Registering worker", flags.workers, daemons, log)
            print(f"[spark] {address} has {flags.workers} workers", flush=True)
            child = subprocess.Popen(
                flags.command, env={**env, "SPARK_MASTER": address}, preexec_fn=end_with_parent
            )
            try:
                code = child.wait()
            except KeyboardInterrupt:
                code = child.wait()  # it had the Ctrl-C, too
            finally:
                child.kill()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            return 130
        except (RuntimeError, OSError, ImportError) as error:
            print(f"standalone.py: {error}", file=sys.stderr)
            return 1
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            for daemon in daemons:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
