"""Ray: any example as the actors of one placement group, unmodified.

    placement group   a CPU for each TensorFlow task, on the hosts of the cluster, all or none
    each actor        holds a port, and tells its address
    each actor        runs the script, with TF_CONFIG and OUTPUT_DIR in its environment
    one fails         ray_launch.py ends all of them and begins again; the script goes on from its
                      last checkpoint

Kind:          driver
Run:           bash run.sh ../../HogWild/hogwild.py --steps 600
"""

import contextlib
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

from tfrun.runs import scaling

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import launching

POLL_SECONDS = 0.5  # between two looks whether somebody asks for another number of workers
JOINED_SECONDS = 30  # that workers which have joined may take when all others are done


class Task:
    """On a host of the cluster, in a worker process of Ray: one task of TensorFlow."""

    def __init__(self, number, roles, output):
        self.number, self.roles, self.output = number, roles, output

    def address(self, seconds):
        """Takes the lock of this task, and a port; returns its address."""
        import ray

        self.lock = launching.lock_task(self.output, *self.roles[self.number], seconds)
        self.held = launching.hold_port()
        return f"{ray.util.get_node_ip_address()}:{self.held.getsockname()[1]}"

    def run(self, script, addresses):
        """Runs the script: yields what launching.run_task yields."""
        cores = os.environ.get("TF_NUM_INTRAOP_THREADS", "1")
        env = {"OUTPUT_DIR": self.output, "TF_NUM_INTRAOP_THREADS": cores}
        yield from launching.run_task(script, self.roles, addresses, self.number, env, self.lock)


class AttemptFailed(Exception):
    """A task has failed, or Ray has lost it: all may begin again."""


class Workers:
    """The workers of an attempt, which come and go when `tfrun scale` asks for it."""

    def __init__(self, roles, output):
        self.roles, self.output = roles, output
        self.has_chief = ("chief", 0) in roles
        self.kept = set() if self.has_chief else {0}  # without a chief, worker 0 is it
        self.running = {index for job, index in roles if job == "worker"}
        self.leaving = set()
        scaling.forget(output)

    def mark(self, index):
        """Returns the file that lets a worker leave, or says that it has."""
        return scaling.mark(self.output, index + self.has_chief)

    def changes(self):
        """Returns the indices of workers that shall join; lets others leave, and says so."""
        n = scaling.asked(self.output)
        if n is None or ("ps", 0) not in self.roles:
            return []
        staying = self.running - self.leaving
        joining, to_leave = scaling.plan(n, staying, self.leaving, self.kept)
        for index in to_leave:
            self.mark(index).touch()
            self.leaving.add(index)
            print(f"[ray] worker {index} leaves", flush=True)
        for index in joining:
            self.mark(index).unlink(missing_ok=True)
            self.running.add(index)
            print(f"[ray] worker {index} joins", flush=True)
        scaling.answer(self.output)
        return joining

    def end(self, index):
        """Notes that a worker has ended: nobody waits for it, and its index is free."""
        self.running.discard(index)
        self.leaving.discard(index)


class Actors:
    """The actors of an attempt, a task of TensorFlow each; those of the roles start together."""

    def __init__(self, script, roles, output, seconds):
        self.script, self.roles, self.output, self.seconds = script, roles, str(output), seconds
        self.tasks, self.names, self.addresses = [], [f"{job} {index}" for job, index in roles], []
        self.running, self.joined = {}, {}  # {the lines of a task, a stream: its name, or index}
        self.workers = Workers(roles, output)

    def start(self, actor):
        """Starts the tasks of the roles, once each has told its address."""
        import ray

        numbers = range(len(self.roles))
        self.tasks = [actor.remote(number, self.roles, self.output) for number in numbers]
        addresses = [task.address.remote(self.seconds) for task in self.tasks]
        self.addresses = ray.get(addresses, timeout=2 * self.seconds)
        for task, name in zip(self.tasks, self.names):
            self.run(task, name)

    def join(self, actor, index):
        """Starts one more worker. TF_CONFIG's cluster lacks it, for nobody connects to it."""
        task = actor.remote(len(self.roles), [*self.roles, ("worker", index)], self.output)
        task.address.remote(self.seconds)  # it waits for the lock of the worker before it
        self.tasks.append(task)
        self.names.append(f"worker {index}")
        self.joined[self.run(task, self.names[-1])] = index

    def run(self, task, name):
        """Lets a task run the script; returns the stream of its lines."""
        stream = task.run.options(num_returns="streaming").remote(self.script, self.addresses)
        self.running[stream] = name
        return stream

    def next_line(self):
        """Returns a stream, and what its task yields: a line, or at its end how it has ended.

        Returns None for both where no task yields anything just now.
        """
        import ray

        ready, _ = ray.wait(list(self.running), num_returns=1, timeout=POLL_SECONDS)
        if not ready:
            return None, None
        (stream,) = ready
        try:
            return stream, ray.get(next(stream))
        except StopIteration:
            del self.running[stream]
            return None, None
        except ray.exceptions.RayError as error:
            if stream not in self.joined:
                raise
            return stream, (str(error).strip().splitlines()[-1], {})

    def note_end(self, stream, failure):
        """Notes that a task has ended. Raises AttemptFailed for one of the roles that failed."""
        job, index = self.running[stream].split()
        may_fail = stream in self.joined
        if job == "worker":
            may_fail = may_fail or int(index) in self.workers.leaving
            self.workers.end(int(index))
        if failure and not may_fail:
            raise AttemptFailed(failure)
        if failure:  # the others go on without it
            self.workers.mark(int(index)).touch()
            print(f"[ray] {failure.rstrip()}", file=sys.stderr, flush=True)
            del self.running[stream]

    def name_of(self, actor_id):
        """Returns the name of the task in an actor."""
        names = {task._actor_id.hex(): name for task, name in zip(self.tasks, self.names)}
        return names.get(actor_id, "a task")


def attempt(script, roles, output, seconds, cpus):
    """Runs the tasks once; shows their lines; returns [the facts of each task].

    cpus: what Ray shall reserve for a worker that joins. Raises AttemptFailed; TimeoutError where
    Ray has no place for the tasks.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(launching)
    group = ray.util.placement_group([{"CPU": 1}] * len(roles), strategy="SPREAD")
    actors, facts = Actors(script, roles, output, seconds), []
    try:
        if not group.wait(seconds):
            raise TimeoutError
        place = PlacementGroupSchedulingStrategy(group)
        actors.start(ray.remote(Task).options(num_cpus=1, scheduling_strategy=place))
        alone = ray.remote(Task).options(num_cpus=cpus)
        deadline = float("inf")
        while actors.running and time.monotonic() < deadline:
            if actors.running.keys() <= actors.joined.keys():  # one may never have got a processor
                deadline = min(deadline, time.monotonic() + JOINED_SECONDS)
            for index in actors.workers.changes():
                actors.join(alone, index)
            stream, line = actors.next_line()
            if isinstance(line, tuple):
                failure, texts = line
                actors.note_end(stream, failure)
                facts.append(texts)
            elif line is not None and not launching.is_notice(line):
                print(f"[{actors.running[stream]}] {line.rstrip()}", flush=True)
        return facts
    except ray.exceptions.GetTimeoutError:
        raise AttemptFailed(f"Ray has not started all tasks after {2 * seconds} s") from None
    except ray.exceptions.ActorDiedError as error:
        raise AttemptFailed(f"{actors.name_of(error.actor_id)}: its Ray worker has died") from None
    except ray.exceptions.RayError as error:
        raise AttemptFailed(str(error).strip().splitlines()[-1]) from None
    finally:
        for task in actors.tasks:
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
                shell.stdin.write(f"{each.pid}\n")
        shell.stdin.flush()
        yield
    finally:
        ray.shutdown()
        shell.kill()  # first: those numbers may be others' now
        shell.wait()
        shell.stdin.close()
        shutil.rmtree(folder, ignore_errors=True)


def parse():
    parser = launching.Parser(__doc__)
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_ADDRESS"),
        help="a Ray cluster: host:6379, or auto (RAY_ADDRESS, or a Ray of its own)",
    )
    words = "seconds that the cluster may take to have a CPU for each task"
    parser.number("--cpus-timeout", 60, words, 1, 86400, "S")
    return parser.with_script()


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
        print(f"[ray] {error}: pip install ray==2.60.0, or use run.sh", file=sys.stderr)
        return 2
    command = launching.command(script, flags.arguments, output)
    roles = launching.tasks(flags.ps, flags.workers, flags.chief)
    launching.handle(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
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
            what = f"there is no Ray at {flags.address}" if flags.address else "Ray does not start"
            print(f"[ray] {what}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
            return 1
        name, tasks = script.parent.name, f"{flags.ps} ps, {flags.workers} workers"
        print(f"[ray] {name}: {tasks}, in {output}", flush=True)
        for number in range(1, flags.attempts + 1):
            print(f"[ray] attempt {number}: all tasks begin", flush=True)
            try:
                # Our own Ray has a CPU for each task of the start: more workers share them.
                cpus = 1 if flags.address else 0
                facts = attempt(command, roles, output, flags.cpus_timeout, cpus)
                break
            except AttemptFailed as error:
                print(f"[ray] {str(error).rstrip()}", file=sys.stderr, flush=True)
            except TimeoutError:
                cpus = int(ray.cluster_resources().get("CPU", 0))
                print(
                    f"[ray] the cluster has no CPU for each of the {len(roles)} tasks after "
                    f"{flags.cpus_timeout} s (it has {cpus} in all): add hosts, or use fewer tasks",
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
