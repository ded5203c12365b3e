"""Ray: any example as the actors of one placement group, unmodified.

    placement group   a CPU for each TensorFlow task, on the hosts of the cluster, all or none
    each actor        holds a port, and tells its address
    each actor        runs the script, with TF_CONFIG and OUTPUT_DIR in its environment
    one fails         ray_launch.py ends all of them and begins again; the script goes on from its
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
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import launching

FACTS = ("metrics-%s.csv", "flags.json")  # of a task; they go to the driver, too


class Task:
    """On a host of the cluster, in a worker process of Ray: one task of TensorFlow."""

    def __init__(self, job, index, output):
        self.job, self.index, self.output = job, index, output

    def address(self, seconds):
        """Takes the lock of this task, and a port; returns its address."""
        import fcntl

        import ray

        # The task of the last attempt may still be ending. Its child has this lock, too: it lasts
        # as long as the child does.
        os.makedirs(self.output, exist_ok=True)
        self.lock = open(os.path.join(self.output, ".%s-%d.lock" % (self.job, self.index)), "w")
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        "another %s %d still runs in %s" % (self.job, self.index, self.output)
                    ) from None
                time.sleep(0.1)
        # A socket that is bound keeps the port; TensorFlow may listen on it all the same, because
        # both ask for SO_REUSEPORT.
        self.held = socket.socket()
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.held.bind(("", 0))
        return "%s:%d" % (ray.util.get_node_ip_address(), self.held.getsockname()[1])

    def run(self, script, cluster, cpus):
        """Runs the script: yields its lines, and last (its exit code, its facts)."""
        import ctypes

        config = {"cluster": cluster, "task": {"type": self.job, "index": self.index}}
        env = {
            "TF_NUM_INTRAOP_THREADS": str(cpus),
            **os.environ,
            "OUTPUT_DIR": self.output,
            "TF_CONFIG": json.dumps(config),
            "TF_GRPC_REUSE_PORT": "1",
            "PYTHONUNBUFFERED": "1",
        }
        parent = os.getpid()

        def die_with_parent():
            # A task that outlived its Ray worker would write on, beside the one in its place.
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)

        with contextlib.ExitStack() as stack:
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
                    pass_fds=[self.lock.fileno()],
                )
            )
            stack.callback(child.kill)
            for line in child.stdout:  # Ray sends to this generator; a file is none
                yield line
            child.wait()
        paths = [
            pathlib.Path(self.output) / (name.replace("%s", "%s-%d" % (self.job, self.index)))
            for name in FACTS
        ]
        yield child.returncode, {path.name: path.read_text() for path in paths if path.exists()}


class AttemptFailed(Exception):
    """A task has failed, or Ray has lost it: all may begin again."""


def attempt(script, roles, output, seconds):
    """Runs the tasks once; shows their lines; returns [the facts of each task].

    Raises AttemptFailed; TimeoutError where Ray has no place for the tasks.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group, tasks = ray.util.placement_group([{"CPU": 1}] * len(roles), strategy="SPREAD"), []
    try:
        if not group.wait(seconds):
            raise TimeoutError
        place = PlacementGroupSchedulingStrategy(group)
        actor = ray.remote(Task).options(num_cpus=1, scheduling_strategy=place)
        tasks = [actor.remote(job, index, str(output)) for job, index in roles]
        cluster, names = {}, ["%s %d" % role for role in roles]
        addresses = ray.get([task.address.remote(seconds) for task in tasks], timeout=2 * seconds)
        for (job, _), address in zip(roles, addresses):
            cluster.setdefault(job, []).append(address)
        running = {
            task.run.options(num_returns="streaming").remote(script, cluster, 1): name
            for task, name in zip(tasks, names)
        }
        last, facts = {name: collections.deque(maxlen=20) for name in names}, []
        while running:
            stream = ray.wait(list(running), num_returns=1)[0][0]
            name = running[stream]
            try:
                line = ray.get(next(stream))
            except StopIteration:
                del running[stream]
                continue
            if isinstance(line, str):
                if not launching.NOTICES.match(line):
                    last[name].append(line)
                    print("[%s] %s" % (name, line.rstrip("\n")), flush=True)
                continue
            code, found = line
            if code:
                how = "was killed by signal %d" if code < 0 else "failed with exit code %d"
                raise AttemptFailed("%s %s\n%s" % (name, how % abs(code), "".join(last[name])))
            facts.append(found)
        return facts
    except ray.exceptions.GetTimeoutError:
        raise AttemptFailed("Ray has not started all tasks after %d s" % (2 * seconds)) from None
    except ray.exceptions.ActorDiedError as error:
        name = next(
            (name for name, task in zip(names, tasks) if task._actor_id.hex() == error.actor_id),
            "a task",
        )
        raise AttemptFailed("%s: its Ray worker has died" % name) from None
    except ray.exceptions.RayError as error:
        raise AttemptFailed(str(error).strip().splitlines()[-1]) from None
    finally:
        for task in tasks:
            ray.kill(task)
        ray.util.remove_placement_group(group)


@contextlib.contextmanager
def ray_of_our_own(cpus):
    """A Ray of this machine alone, as long as this process runs, whatever happens."""
    import psutil
    import ray

    # Ray's sockets are files there, whose paths must be short. After kill -9 of this process, a
    # shell cleans up: it reads until then. The kernel kills what Ray has started here. The agents
    # are children of the raylet, and would stay for a minute: the shell reads their numbers.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    remove = 'kill -9 $(cat); for _ in 1 2 3 4 5; do sleep 1; rm -rf "$0"; done'
    shell = subprocess.Popen(
        ["sh", "-c", remove, folder],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    try:
        for last in (False, False, True):
            try:
                ray.init(
                    "local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    object_store_memory=100 * 2**20,
                    _temp_dir=folder,
                )
                break
            except Exception:  # it gives its processes 30 s, too few on a machine with much to do
                ray.shutdown()
                if last:
                    raise
        for each in psutil.Process().children(recursive=True):
            if each.pid != shell.pid:
                shell.stdin.write("%d\n" % each.pid)
        shell.stdin.flush()
        yield
    finally:
        ray.shutdown()
        shell.kill()  # first: those numbers may be others' now
        shell.wait()
        shell.stdin.close()
        shutil.rmtree(folder, ignore_errors=True)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_ADDRESS"),
        help="a Ray cluster: host:6379, or auto (RAY_ADDRESS, or a Ray of its own)",
    )
    parser.add_argument(
        "--cpus-timeout",
        type=int,
        default=60,
        metavar="S",
        help="seconds that the cluster may take to have a CPU for each task (60)",
    )
    return launching.read_flags(parser, "cpus_timeout")


def main():
    flags = parse()
    script = pathlib.Path(flags.script).resolve()
    output = launching.run_directory("Ray", script)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not flags.address:
        # A token of this run's own, which Ray would else write into the home folder; and loopback
        # only, which Ray has a switch for on other systems, but reads on Linux, too.
        os.environ.update(
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(32),
            RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        )
    try:
        import ray
    except ImportError as error:
        print("[ray] %s: pip install ray==2.60.0, or use run.sh" % error, file=sys.stderr)
        return 2
    output.mkdir(parents=True, exist_ok=True)
    roles = launching.tasks(flags.ps, flags.workers, flags.chief)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.ExitStack() as stack:
        try:
            if flags.address:
                if found := re.fullmatch(r"([^/]+):(\d+)", flags.address):  # Ray tries for long
                    socket.create_connection((found[1], int(found[2])), timeout=10).close()
                stack.callback(ray.shutdown)
                ray.init(flags.address, log_to_driver=False, logging_level="ERROR")
            else:
                stack.enter_context(ray_of_our_own(len(roles)))
        except Exception as error:  # no such cluster, another version of Ray, a wrong token
            print(
                "[ray] %s: %s"
                % (
                    "there is no Ray at " + flags.address
                    if flags.address
                    else "Ray does not start",
                    str(error).strip().splitlines()[0],
                ),
                file=sys.stderr,
            )
            return 1
        print(
            "[ray] %s: %d ps, %d workers, in %s"
            % (script.parent.name, flags.ps, flags.workers, output),
            flush=True,
        )
        for number in range(1, flags.attempts + 1):
            print("[ray] attempt %d: all tasks begin" % number, flush=True)
            try:
                facts = attempt([str(script), *flags.arguments], roles, output, flags.cpus_timeout)
                break
            except AttemptFailed as error:
                print("[ray] %s" % str(error).rstrip(), file=sys.stderr, flush=True)
            except TimeoutError:
                there = ray.cluster_resources().get("CPU", 0)
                print(
                    "[ray] the cluster has no CPU for each of the %d tasks after %d s (it has %d "
                    "in all): add hosts, or use fewer tasks"
                    % (len(roles), flags.cpus_timeout, there),
                    file=sys.stderr,
                )
                return 1
        else:
            return 1
    return launching.conclude(facts, output)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
