"""What launchers of this folder share: flags, folders and the end where they start, and each task.

A launcher sends run_task and what it uses to the hosts of the tasks, which need not have this file.
"""

import argparse
import collections
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from tfrun.known_errors import NOTICE

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of every task. Its grpc_proxy is empty, too, unless somebody has set one: otherwise gRPC takes
# http_proxy between the tasks.
COMMON_VARIABLES = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": ":replace",
    "PYTHONUNBUFFERED": "1",
}
# What our caller ignores, as nohup does, stays ignored.
IGNORED = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) == signal.SIG_IGN]


def is_notice(line):
    """Returns whether TensorFlow prints a line at each start."""
    return NOTICE.match(line.encode())


def handle(number, handler):
    """Lets a function handle a signal, but not one that was ignored at the start."""
    signal.signal(number, signal.SIG_IGN if number in IGNORED else handler)


class Parser(argparse.ArgumentParser):
    """Parses the flags of a script, whose help begins with the script's docstring."""

    def __init__(self, description):
        if sys.stdout:
            sys.stdout.reconfigure(errors="replace")  # what the terminal cannot show
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, allow_abbrev=False, formatter_class=form)

    def number(self, name, default, words, low, high, metavar="N"):
        """Adds a flag that takes a whole number from low to high; `words` are its help."""

        def parse(text):
            if not low <= int(text) <= high:
                raise argparse.ArgumentTypeError(f"must be from {low} to {high}, is {text}")
            return int(text)

        parse.__name__ = "int"
        words += " (%(default)s)"
        self.add_argument(name, type=parse, default=default, metavar=metavar, help=words)

    def with_command(self):
        """Reads the flags, and a command behind them."""
        self.add_argument("command", nargs=argparse.REMAINDER)
        flags = self.parse_args()
        flags.command = flags.command[flags.command[:1] == ["--"] :]
        if not flags.command:
            self.error("it needs a command to run")
        return flags

    def with_script(self):
        """Adds the flags of all launchers; returns all. Ends with one line where one is wrong."""
        self.number("--ps", 1, "parameter servers", 0, 99)
        self.number("--workers", 2, "workers", 0, 99)
        self.add_argument("--chief", action="store_true", help="one task more, of the type chief")
        words = "how often all tasks may begin, the first time included"
        self.number("--attempts", 4, words, 1, 99)
        self.add_argument("script", help="the training script, at the same path on all hosts")
        self.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets")
        flags = self.parse_args()
        if not flags.workers and not flags.chief:
            self.error("a run needs a worker or a chief")
        if not pathlib.Path(flags.script).is_file():
            self.error(f"there is no script {flags.script} here ({os.getcwd()})")
        return flags


def lock_task(output, job, index, seconds=float("inf")):
    """Returns the locked file of a task. Raises RuntimeError where another has it for so long.

    The task of the last attempt may still be ending. Its child has this lock, too: it lasts as long
    as the child does.
    """
    os.makedirs(output, exist_ok=True)
    lock, deadline = open(os.path.join(output, f".{job}-{index}.lock"), "w"), time.time() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.time() > deadline:
                raise RuntimeError(f"another {job} {index} still runs in {output}") from None
            time.sleep(0.1)
        except OSError:  # this file system has no locks
            return lock


def hold_port():
    """Returns a socket that keeps a port.

    TensorFlow may listen on it all the same, because both ask for SO_REUSEPORT.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    return held


def run_task(script, roles, addresses, number, env, lock):
    """Runs the script as task `number`: yields its lines, and last (its failure, its facts).

    script: the path and the arguments. env: more variables; OUTPUT_DIR must be among them. The
    failure is a text that ends with the last lines; None where the task has ended well.
    """
    cluster, (job, index) = {}, roles[number]
    for (role, _), address in zip(roles, addresses):
        cluster.setdefault(role, []).append(address)
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    env = {**env, "TF_CONFIG": json.dumps(config), "TF_GRPC_REUSE_PORT": "1"}
    if job == "ps":  # at all addresses: a host may know its own name as 127.0.0.1 only
        env["PS_ADDRESS"] = "0.0.0.0:" + addresses[number].rpartition(":")[2]
    parent, last = os.getpid(), collections.deque(maxlen=20)

    def die_with_parent():
        # The engine kills this process only. A task that outlived it would write on, beside the
        # one that takes its place.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)

    with contextlib.ExitStack() as stack:
        child = stack.enter_context(
            subprocess.Popen(
                [sys.executable, *script],
                env={"grpc_proxy": "", **os.environ, **env, **COMMON_VARIABLES},
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
        for line in child.stdout:  # an engine sends to this generator; a file is none
            if not is_notice(line):
                last.append(line)
            yield line
        code = child.wait()
    failure = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    failure = f"{job} {index} {failure}\n{''.join(last)}" if code else None
    folder = pathlib.Path(env["OUTPUT_DIR"])
    paths = [folder / f"metrics-{job}-{index}.csv", folder / "flags.json"]
    yield failure, {path.name: path.read_text() for path in paths if path.exists()}


def tasks(n_ps, n_workers, chief):
    """[(job, index)] of all tasks of a run."""
    numbers = (("ps", n_ps), ("chief", int(chief)), ("worker", n_workers))
    return [(job, index) for job, n in numbers for index in range(n)]


def run_directory(engine, script):
    """OUTPUT_DIR, or a folder in RUNS_DIR that is named after engine, script and time."""
    # Here, because the hosts of the tasks may not have it.
    from tfrun.runs.run_directory import example_of

    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / engine / example_of(script)
    now = time.strftime("%Y-%m-%d_%H-%M-%S")
    return pathlib.Path(os.environ.get("OUTPUT_DIR") or runs / now).resolve()


def command(script, arguments, output):
    """Makes the folder `output`; returns what each task runs: the script and its arguments.

    With PROBLEM it is a copy of the script, in that folder, which the hosts must then share.
    """
    from tfrun import problems  # here, because the hosts of the tasks may not have it

    output.mkdir(parents=True, exist_ok=True)
    try:
        return problems.install_problem(
            os.environ.get("PROBLEM"), [str(script), *arguments], output
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def write_facts(facts, output):
    """Writes [{file name: its text}]; where the hosts share the folder, they are there already."""
    for texts in facts:
        for name, text in texts.items():
            (output / name).write_text(text)


def conclude(facts, output):
    """Writes the facts of all tasks, and what tfrun concludes from them; returns the exit code."""
    write_facts(facts, output)
    if (output / "flags.json").exists() and (ROOT / "tfrun").is_dir():
        summary = [sys.executable, "-m", "tfrun", "summary", "--line", str(output)]
        return subprocess.run(summary, cwd=ROOT).returncode
    print(f"done; everything of this run is in {output}")
    return 0
