"""Starts the tasks of a run, shows what they print, and leaves none behind."""

import collections
import contextlib
import ctypes
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import time

import psutil

from tfrun import errors, formatting
from tfrun.launch import cluster, resources
from tfrun.runs import metrics_csv, progress, registry, run_directory

GRACE = 3  # seconds between asking a task to end and killing it
PS_GRACE = 40  # seconds that a ps may go on after the last worker: it waits 30 for late ones itself
COLOURS = {"ps": 35, "chief": 32, "worker": 36, "evaluator": 34, "tfrun": 33, "horovodrun": 33}

# What TensorFlow prints at every start and no setting removes. The logs keep it.
NOISE = re.compile(
    rb"""
    WARNING:\ All\ log\ messages\ before\ absl::InitializeLog\(\)\ is\ called
  | .*oneDNN\ custom\ operations\ are\ on
  | .*Could\ not\ find\ cuda\ drivers\ on\ your\ machine
  | .*This\ TensorFlow\ binary\ is\ optimized\ to\ use\ available\ CPU
  | To\ enable\ the\ following\ instructions:.*rebuild\ TensorFlow
  | .*Unable\ to\ register\ cu(DNN|FFT|BLAS)\ factory
  | .*computation_placer\ already\ registered
  | .*failed\ call\ to\ cuInit
  | .*TF-TRT\ Warning
""",
    re.VERBOSE,
)

# What argparse prints of a wrong flag: the usage, indented after its first line, and the error.
USAGE, USAGE_ERROR = re.compile(rb"usage: "), re.compile(rb"\S+: error: ")
TRACEBACK = errors.TRACEBACK.encode()
DONE = re.compile(rb"done(, the output is in .*)?$")  # the last line of a task
HOLD = 10  # seconds that a task may take to end after a traceback, or the traceback is shown
LAST_LINES = 15  # of a task that failed, at most, that are shown again


class Task:
    """One task of the run: a process, and after a restart another one in its place."""

    def __init__(self, job, name, command, env, directory, share=resources.NO_LIMIT):
        self.job, self.name, self.share = job, name, share
        self.path = directory / (name.replace(" ", "-") + ".log")
        self.command, self.env = command, {**os.environ, **env}
        self.log = open(self.path, "ab", buffering=0)
        self.process, self.code, self.starts, self.start_at = None, None, 0, 0.0
        self.identity, self.stopped, self.too_much = None, False, 0  # too_much: bytes over a limit
        self.held = {}  # {name: the lines of a usage, or from a traceback on, that are held back}
        self.held_until = {}  # {name: when these are shown at the latest}

    def start(self):
        """Starts the process; `code` is None until it has ended."""
        self.rest, self.eof, self.code, self.start_at = b"", False, None, None
        self.starts, self.too_much = self.starts + 1, 0
        # (number on the screen, name, line) of what it has shown, the end of it.
        self.last = collections.deque(maxlen=300)
        self.process = subprocess.Popen(
            self.command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: prepare(self.share.cpus),
        )
        self.identity = registry.identity(self.process.pid)
        os.set_blocking(self.process.stdout.fileno(), False)

    def signal(self, number):
        """Sends a signal to the task and to all that it has started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def running(self):
        """Whether it has a process that has not ended."""
        return self.process is not None and self.code is None

    def ended(self):
        """Whether the task has just ended; then nothing that it started is left."""
        if not self.running():
            return False
        if hasattr(os, "waitid"):  # look without reaping: until then nobody else can get its id
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
        elif self.process.poll() is None:
            return False
        self.signal(signal.SIGKILL)
        code = self.process.wait()
        self.code = code if code >= 0 else 128 - code
        return True

    def lines(self):
        """The whole lines that it has printed since the last call; all of it goes to the log."""
        if self.process.stdout.closed:
            return
        for _ in range(16 if self.code is None else 1 << 20):  # others get a turn, too
            try:
                read = os.read(self.process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not read:
                self.eof = True
                break
            if self.log:
                try:
                    self.log.write(read)
                except OSError as error:  # a full disk ends the log, not the run
                    self.log = None
                    yield b"tfrun cannot write %s: %s" % (
                        os.fsencode(self.path),
                        error.strerror.encode(),
                    )
            *whole, self.rest = (self.rest + read).split(b"\n")
            yield from whole
        if (self.eof or self.code is not None) and self.rest:  # its last line has no end
            yield self.rest
            self.rest = b""

    def display_line(self, line):
        """(whose line it is, the line) as on the screen; None if it is one of the notices."""
        return None if NOISE.match(line) else (self.name, line)

    def bad_use(self):
        """Whether it has ended as after a flag that is wrong."""
        return self.code == 2

    def exit_description(self):
        """How it ended, in words."""
        if self.too_much:
            return "used %s of memory, more than its limit of %s (--memory), and was killed" % (
                formatting.size(self.too_much),
                formatting.size(self.share.memory),
            )
        if self.process.returncode < 0:
            return "was killed by %s" % signal.Signals(-self.process.returncode).name
        return "failed with exit code %d" % self.code

    def check_memory(self):
        """Kills it where it uses more memory than it may, with all that it has started."""
        if not self.running() or self.share.memory is None:
            return
        used = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            for each in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    used += each.memory_info().rss
        if used > self.share.memory:
            self.too_much = used
            self.signal(signal.SIGKILL)

    def facts(self):
        """What the record of the run says about this task."""
        state = "waiting" if not self.starts else "running" if self.running() else "restarting"
        if self.code is not None and self.start_at is None:
            state = "stopped" if self.stopped and self.code else "failed" if self.code else "done"
        return {
            "task": self.name,
            "role": self.job,
            "state": state,
            "process": self.identity if self.running() else None,
            "restarts": max(0, self.starts - 1),
            "exit_code": self.code,
            "log": str(self.path),
            "cpus": self.share.cpus,
            "gpus": self.env.get("CUDA_VISIBLE_DEVICES"),
            "memory_limit": self.share.memory,
        }


def prepare(cpus, number=signal.SIGKILL):
    """In the new process: it gets a signal when tfrun dies, and keeps to these cores; on Linux.

    The watchdog gets what it started.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number)  # 1: PR_SET_PDEATHSIG
    if cpus:
        os.sched_setaffinity(0, cpus)


class Screen:
    """Standard output, each line behind the name of its task, in colour on a terminal."""

    def __init__(self):
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.count = 0  # of the lines so far

    def show(self, name, line):
        """Prints one line, bytes or text, of the task `name`. Raises BrokenPipeError."""
        text = line.decode(errors="replace") if isinstance(line, bytes) else line
        prefix = "[%s]" % name
        if self.colour:
            prefix = "\033[%dm%s\033[0m" % (COLOURS[name.split()[0]], prefix)
        try:
            print(prefix, text, flush=True)
        except OSError as error:  # a terminal that was closed
            raise BrokenPipeError(*error.args) from error
        self.count += 1


class Run:
    """The tasks of one run and what becomes of them."""

    def __init__(self, jobs, commands, example, place, timeout, restarts, tasks, shares, more_env):
        self.screen = Screen()
        self.timeout = timeout
        self.restarts = restarts
        self.stopped_by = None
        self.place, self.wrong_flag = place, False
        self.stopped, self.interrupted = True, False  # interrupted: by a signal or the time-out
        self.rows_before = metrics_csv.count_rows(place.path)
        self.began = time.time()
        self.selector = selectors.DefaultSelector()
        # A signal ends the wait of the selector through this pipe; its number is looked at there.
        self.wake, wake = os.pipe()
        for end in (self.wake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        self.selector.register(self.wake, selectors.EVENT_READ)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self.watchdog = subprocess.Popen(
            [sys.executable, "-SE", str(pathlib.Path(__file__).with_name("watchdog.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        ports, self.held = cluster.hold_ports(0 if tasks else len(cluster.tasks(jobs)))
        self.tasks = tasks or [
            Task(
                job=job,
                name="%s %d" % (job, index),
                command=commands[job],
                env=env,
                directory=place.path,
                share=shares[job, index],
            )
            for (job, index), env in cluster.environments(
                jobs, ports, place.path, shares, more_env
            ).items()
        ]
        self.record = None
        try:
            self.record = registry.Record(example, place.path)
            self.write_record()
        except OSError as error:
            self.say("tfrun status will not know of this run: %s" % error)
        # As the scripts see it: without a task of the type chief, worker 0 is the chief.
        self.chief = "chief 0" if "chief" in jobs else "worker 0"

    def write_record(self, **changes):
        """Writes what has become of the run and its tasks into its record."""
        if self.record:
            try:
                self.record.write(tasks=[task.facts() for task in self.tasks], **changes)
            except OSError:  # a full disk: the record stays as it was
                pass

    def tell_watchdog(self, sign, task):
        """Says that the process group of a task is there, or is no more."""
        try:
            os.write(self.watchdog.stdin.fileno(), b"%s%d\n" % (sign.encode(), task.process.pid))
        except OSError:  # someone killed the watchdog; the run can do without
            pass

    def running(self, *jobs):
        """The tasks that run or are to start, of these jobs or of all."""
        return [
            task
            for task in self.tasks
            if (task.running() or task.start_at is not None) and (not jobs or task.job in jobs)
        ]

    def poll(self, deadline):
        """Waits until something happens, at most until `deadline`; returns the tasks that ended."""
        starts = [task.start_at for task in self.tasks if task.start_at is not None]
        until = min([deadline, time.monotonic() + 1, *starts])
        events = self.selector.select(max(0.0, until - time.monotonic()))
        for key, _ in events:
            if key.data is None:
                for number in os.read(self.wake, 512):
                    if number != signal.SIGCHLD and self.stopped_by is None:
                        self.stopped_by = signal.Signals(number)
        ended = [task for task in self.tasks if task.ended()]
        for task in self.tasks:
            if task not in ended and not any(key.data is task for key, _ in events):
                continue
            self.print_lines(task)
            if task in ended:
                self.tell_watchdog("-", task)
            if (task in ended or task.eof) and not task.process.stdout.closed:
                self.selector.unregister(task.process.stdout)
                task.process.stdout.close()
        return ended

    def print_lines(self, task):
        """Shows what a task has printed, less TensorFlow's notices.

        A usage or a traceback is held back, with the error below it, until it is known how the
        task ends: where several tasks fail, one of them is shown.
        """
        for line in task.lines():
            if not (shown := task.display_line(line)):
                continue
            name, line = shown
            held = task.held.get(name)
            if held and (held[0] == TRACEBACK or line[:1] == b" " or USAGE_ERROR.match(line)):
                held.append(line)
                continue
            self.print_held(task, name)
            if line == TRACEBACK or USAGE.match(line):
                task.held[name], task.held_until[name] = [line], time.monotonic() + HOLD
            else:
                self.print_line(task, name, line)

    def print_line(self, task, name, line):
        """Shows a line of a task, and remembers it."""
        self.screen.show(name, line)
        task.last.append((self.screen.count, name, line))

    def print_held(self, task, name):
        """Shows what was held back under that name."""
        for line in task.held.pop(name, []):
            self.print_line(task, name, line)

    def print_errors(self, task):
        """Shows of each traceback that is still held back one line: its error."""
        for name, lines in task.held.items():
            text = [line.decode(errors="replace") for line in lines]
            if (begin := errors.begin(text)) is not None:
                self.print_line(task, name, lines[begin])
        task.held = {}

    def failed(self, task):
        """Decides about a task that failed: a new start, let it go, or (True) stop the run."""
        if (
            task.process.returncode < 0
            and not task.held
            and task.last
            and DONE.match(task.last[-1][2])
        ):
            # There is nothing left to do again, and the ps may have gone.
            self.say("%s %s after it was done" % (task.name, task.exit_description()))
            task.code = 0
            return False
        if task.bad_use():  # the error without the usage; of several ranks the first
            task.held = {name: lines[-1:] for name, lines in [*task.held.items()][:1]}
        if task.held:  # of several ranks the first
            self.print_held(task, next(iter(task.held)))
        self.print_errors(task)
        # No task has trained yet: the flag was wrong from the start.
        if task.bad_use() and metrics_csv.count_rows(self.place.path) == self.rows_before:
            self.wrong_flag = True
            self.say("%s %s; the run is stopped" % (task.name, task.exit_description()))
            self.print_error(task)
            return True
        if task.starts <= self.restarts:
            wait = min(30, 2 ** (task.starts - 1))
            task.start_at = time.monotonic() + wait
            self.say(
                "%s %s; it starts again in %d s (restart %d of %d)"
                % (task.name, task.exit_description(), wait, task.starts, self.restarts)
            )
            return False
        if self.restarts and task.job in ("worker", "evaluator") and task.name != self.chief:
            self.say(
                "%s %s, has no restart left, and is let go: the others go on; log: %s"
                % (task.name, task.exit_description(), task.path)
            )
            self.print_error(task)
            return False
        self.say("%s %s; the run is stopped" % (task.name, task.exit_description()))
        self.print_error(task)
        self.say("all that it printed: %s" % task.path)
        return True

    def print_error(self, task):
        """Shows the error of a task, unless it was just shown; below it what the error means.

        Called right after a line of tfrun's own.
        """
        last = list(task.last)
        text = [line.decode(errors="replace") for _, _, line in last]
        begin = errors.begin(text)
        # Where there is no traceback, the last line is the error.
        error = last[begin:] if begin is not None else last[-1:]
        # From its first line on nothing else was shown but, after it, tfrun's own line.
        if error and error[0][0] + len(error) != self.screen.count:
            again = error[:LAST_LINES] if begin is not None else last[-LAST_LINES:]
            for _, name, line in again:
                self.screen.show(name, line)
        meaning = errors.explain("\n".join(text)) or errors.explain(
            "%s %s" % (task.name, task.exit_description())
        )
        if meaning:
            self.say(meaning)

    def watch(self):
        """Runs to the end; returns 0, or the exit code of the first task that failed for good.

        `stopped` says whether there was an end before all tasks were done.
        """
        deadline = time.monotonic() + (self.timeout or float("inf"))
        ps_deadline, next_check, next_warning, code = float("inf"), 0.0, 0.0, 0
        warned = False
        while self.running():
            for task in self.tasks:
                if task.start_at is not None and task.start_at <= time.monotonic():
                    task.start()
                    self.tell_watchdog("+", task)
                    self.selector.register(task.process.stdout, selectors.EVENT_READ, task)
                    self.write_record()
            ended = self.poll(min(deadline, ps_deadline))
            for task in ended:
                if task.code:
                    if self.failed(task):
                        return code or (2 if task.bad_use() else task.code)
                    if task.start_at is None:
                        code = code or task.code
                for name in [*task.held]:
                    self.print_held(task, name)
            if ended:
                self.write_record()
            for task in self.tasks:
                for name, until in task.held_until.items():
                    if time.monotonic() > until:
                        self.print_held(task, name)
            if time.monotonic() > next_check:
                next_check = time.monotonic() + 0.5
                for task in self.tasks:
                    task.check_memory()
            if not warned and time.monotonic() > next_warning:
                next_warning = time.monotonic() + 2
                if warning := progress.checkpoint_warning(self.place.path, self.began, time.time()):
                    self.say(warning)
                    warned = True
            if self.stopped_by is not None:
                self.interrupted = True
                self.say("stopped by %s" % self.stopped_by.name)
                return 128 + self.stopped_by
            if time.monotonic() > deadline:
                self.interrupted = True
                self.say(
                    "not done after %g s (--timeout); still running: %s"
                    % (self.timeout, ", ".join(task.name for task in self.running()))
                )
                return 124
            if not self.running("chief", "worker", "evaluator"):
                ps_deadline = min(ps_deadline, time.monotonic() + PS_GRACE)
                if time.monotonic() > ps_deadline:
                    self.say(
                        "the workers are done, and %s did not end by itself: stopped"
                        % ", ".join(task.name for task in self.running())
                    )
                    break
        self.stopped = False
        return code

    def say(self, text):
        """Prints a line of tfrun's own."""
        self.screen.show("tfrun", text)

    def end(self):
        """Stops what still runs, first kindly."""
        for task in self.tasks:
            task.start_at = None
        for number in (signal.SIGTERM, signal.SIGKILL):
            for task in self.running():
                task.stopped = True
                task.signal(number)
            deadline = time.monotonic() + GRACE
            while self.running() and time.monotonic() < deadline:
                try:
                    self.poll(deadline)
                except BrokenPipeError:
                    pass
        for task in self.tasks:
            with contextlib.suppress(BrokenPipeError):
                self.print_errors(task)
        self.watchdog.stdin.close()
        self.watchdog.wait()
        for s in self.held:
            s.close()


def run(
    jobs,
    commands,
    example,
    place,
    timeout=None,
    restarts=0,
    isolated=False,
    tasks=None,
    again=None,
    shares=None,
    more_env=(),
    hosts=None,
):
    """Runs a command for each task of `jobs`, {job: number}; returns the exit code.

    commands: {job: its command}. place: the rundir.RunDirectory. tasks: what to run instead, where
    the workers in `jobs` are started by a launcher of their own. again: the command that goes on
    with this run.
    shares, more_env: as cluster.environments takes them. hosts: the hosts.Hosts of the tasks.
    """
    directory = place.path
    try:
        launched = Run(
            *(jobs, commands, example, place, timeout, restarts, tasks), shares, more_env
        )
    except OSError as error:
        print("tfrun: the run cannot start: %s" % error, file=sys.stderr)
        return 2
    try:
        numbers = [
            "%d %s" % (n, job + "s" * (job == "worker" and n > 1)) for job, n in jobs.items()
        ]
        launched.say("%s: %s, in %s" % (example, ", ".join(numbers), directory))
        for note in hosts.notes() if hosts else []:
            launched.say(note)
        if isolated:
            launched.say("isolated: nothing outside this run can reach its tasks")
        elif not tasks and sum(jobs.values()) > 1:
            launched.say(
                "anyone who can reach the ports of these tasks can use them; "
                "TFRUN_ISOLATE=1 before the command prevents that"
            )
        if saved := run_directory.saved_step(directory):
            launched.say("it goes on from update %d, the last that was saved" % saved)
        code = launched.watch()
    except BrokenPipeError:  # whoever read our output has gone: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    finally:
        launched.end()
    with contextlib.suppress(BrokenPipeError):
        if launched.wrong_flag and place.discard():
            if launched.record:
                launched.record.remove()
            launched.say("nothing is left of this run: it had not begun")
        elif launched.interrupted and again:
            saved = run_directory.saved_step(directory)
            launched.say(
                "this run is in %s; it %s with: %s"
                % (directory, "goes on from update %d" % saved if saved else "begins again", again)
            )
        elif not launched.stopped:
            code = conclude(launched, code)
    if launched.record and launched.record.path.exists():
        ended_by_user = launched.interrupted or code == 128 + signal.SIGPIPE
        state = "stopped" if ended_by_user else "failed" if code else "done"
        launched.write_record(state=state, ended=time.time(), exit_code=code)
    return code


def conclude(launched, code):
    """Writes result.json and draws the picture of a run whose tasks are done; the exit code."""
    directory = launched.place.path
    if not (directory / "flags.json").exists():  # a script that leaves no facts
        return code
    # Here, because they take a while, and start threads: --isolate must come before.
    from tfrun.pictures import curves
    from tfrun.runs import events, summary
    from tfrun.runs.data import RunData

    try:
        run_data = RunData.read(directory)
        result = summary.write(run_data)
    except (OSError, ValueError) as error:
        launched.say("there is no result: %s" % error)
        return code or 1
    if missing := summary.missing_tasks(result):
        launched.say(missing)
    try:
        events.write(run_data)
        picture = curves.draw(run_data)
    except OSError as error:
        launched.say("there is no picture: %s" % error)
        return code or 2
    launched.say(
        "%s; everything of this run%s is in %s"
        % (
            formatting.tests(result),
            ", and its picture %s," % picture.name if picture else "",
            directory,
        )
    )
    return code
