"""Starts the tasks of a run, shows what they print, and leaves none behind."""

import contextlib
import ctypes
import dataclasses
import functools
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from tfrun import errors, formatting
from tfrun.launch import cluster, exposed, resources, signals, stacks, usage
from tfrun.launch.screen import Screen, TaskOutput
from tfrun.launch.task import Task
from tfrun.runs import (
    early_stop,
    metrics_csv,
    progress,
    registry,
    run_directory,
    same_data,
    scaling,
)

GRACE = 3  # seconds between asking a task to end and killing it
LEAVE_SECONDS = 30  # that a worker may take to leave the run
PS_GRACE = 40  # seconds that a ps may go on after the last worker
STANDSTILL = 5  # seconds that tfrun does not run although it should: the whole machine stood still
AFTER_STANDSTILL = 60  # seconds in which a task may fail because of a standstill


@dataclasses.dataclass
class LaunchSpec:
    """What to launch.

    Without `tasks`, each task of `jobs` runs its job's command on this machine. With them, these
    run instead: tasks on other hosts, or a launcher that starts the workers in `jobs` itself.
    """

    example: str
    jobs: dict[str, int]  # {job: number of tasks}
    commands: dict[str, list[str]]  # {job: command}
    directory: pathlib.Path
    timeout: float | None = None  # seconds
    restarts: int = 0
    patience: early_stop.Patience | None = None
    isolated: bool = False
    shares: dict[tuple[str, int], resources.Share] = dataclasses.field(default_factory=dict)
    variables: list[tuple[str | None, str, str]] = dataclasses.field(default_factory=list)
    tasks: list[Task] | None = None
    # Makes one more worker with this index. Raises ValueError where there is no place for it.
    make_worker: Callable[[int], Task] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)  # shown at the start

    def make_tasks(self, ports: list[int]) -> Iterator[Task]:
        """Yields a task for each port, on this machine."""
        arguments = self.jobs, ports, self.directory, self.shares, self.variables
        for (job, index), env in cluster.environments(*arguments).items():
            share, name = self.shares.get((job, index), resources.NO_LIMIT), f"{job} {index}"
            env |= stacks.variables(self.directory, name, env.get("PYTHONPATH"))
            yield Task(job, name, self.commands[job], env, self.directory, share)

    def make_local_worker(self, ports: list[int], index: int) -> Task:
        """Returns a worker more on this machine, for a cluster with these ports.

        Raises ValueError where each worker has cores or GPUs of its own.
        """
        memory = self.shares.get(("worker", 0), resources.NO_LIMIT)
        if memory.cpus or memory.gpus:
            raise ValueError("its workers have cores or GPUs of their own (--cpus, --gpus)")
        env = cluster.task_environments(
            cluster.tasks({**self.jobs, "worker": index + 1}),
            cluster.addresses(self.jobs, ports),
            self.directory,
            cluster.cores(),
            cluster.gpus(),
            variables=self.variables,
        )["worker", index]
        command = self.commands["worker" if "worker" in self.commands else "chief"]
        name = f"worker {index}"
        env |= stacks.variables(self.directory, name, env.get("PYTHONPATH"))
        return Task("worker", name, command, env, self.directory, memory)


class Run:
    """The tasks of one run and what becomes of them. Raises OSError if it cannot start."""

    done = False  # whether all tasks have ended by themselves
    interrupted = False  # by a signal, the time-out, or the end of our reader
    wrong_flag = False  # before any task has trained
    data_differ = False  # between two tasks
    early_code: int | None = None  # 0: the tests have stopped getting better
    first_failure = 0  # the exit code of the first task that failed for good
    went_on_at = float("-inf")  # after the last standstill, by time.monotonic()

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        if not spec.tasks and len(cluster.tasks(spec.jobs)) > 1:
            cluster.check_loopback()
        self.screen = Screen()
        self.signal: signal.Signals | None = None  # the first that has come
        self.rows_before = metrics_csv.count_rows(spec.directory)
        self.data_lines = same_data.DataLines(spec.directory, is_live=True)
        self.tests = early_stop.Tests(spec.directory)
        self.usage = usage.Recorder(spec.directory)
        self.began = time.time()
        self.selector = selectors.DefaultSelector()
        # A signal ends the wait of the selector through this pipe; its number is looked at there.
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        self.selector.register(self.wake, selectors.EVENT_READ)
        signals.handle(lambda *_: None, *signals.ENDING, signal.SIGTSTP, signal.SIGCHLD)
        if sys.platform == "linux":  # what tasks leave behind becomes ours, not that of process 1
            ctypes.CDLL(None).prctl(36, 1)  # 36: PR_SET_CHILD_SUBREAPER
        self.watchdog = subprocess.Popen(
            [sys.executable, "-SE", "-m", "tfrun.launch.watchdog"],
            cwd=pathlib.Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        n_ports = 0 if spec.tasks else len(cluster.tasks(spec.jobs))
        ports, self.sockets = cluster.hold_ports(n_ports)
        self.tasks = spec.tasks or [*spec.make_tasks(ports)]
        self.make_worker = spec.make_worker
        if not spec.tasks and "ps" in spec.jobs:
            self.make_worker = functools.partial(spec.make_local_worker, ports)
        scaling.forget(spec.directory)
        self.outputs = {task: TaskOutput(self.screen) for task in self.tasks}
        self.record = None
        try:
            self.record = registry.Record(spec.example, spec.directory)
            self.write_record()
        except OSError as error:
            self.say(f"tfrun status will not know of this run: {error}")
        # As the scripts see it: without a task of the type chief, worker 0 is the chief.
        self.chief = "chief 0" if "chief" in spec.jobs else "worker 0"

    def say(self, text: str) -> None:
        """Prints a line of tfrun's own. Raises BrokenPipeError."""
        self.screen.show("tfrun", text)

    def write_record(self, **changes: Any) -> None:
        """Writes what has become of the run and its tasks into its record."""
        if self.record:
            with contextlib.suppress(OSError):  # a full disk: the record stays as it was
                self.record.write(tasks=[task.record() for task in self.tasks], **changes)

    def tell_watchdog(self, sign: str, task: Task) -> None:
        """Says that the process group of a task is there, "+", or is no more, "-"."""
        assert self.watchdog.stdin is not None and task.process is not None
        with contextlib.suppress(OSError):  # someone killed the watchdog; the run can do without
            start = (task.identity or {}).get("start")
            os.write(self.watchdog.stdin.fileno(), f"{sign}{task.process.pid} {start}\n".encode())

    def unfinished(self, *jobs: str) -> list[Task]:
        """Returns the tasks that run or are to start, of these jobs or of all."""
        chosen = (task for task in self.tasks if not jobs or task.job in jobs)
        return [task for task in chosen if task.is_unfinished()]

    def start_due_tasks(self) -> None:
        """Starts the tasks whose time has come."""
        for task in self.tasks:
            if task.start_at is not None and task.start_at <= time.monotonic():
                task.start()
                self.outputs[task].begin()
                self.tell_watchdog("+", task)
                self.selector.register(task.pipe(), selectors.EVENT_READ, task)
                self.write_record()

    def poll(self, deadline: float) -> list[Task]:
        """Waits until something happens, at most until `deadline`; returns the tasks that ended."""
        starts = [task.start_at for task in self.tasks if task.start_at is not None]
        until = max(time.monotonic(), min([deadline, time.monotonic() + 1, *starts]))
        events = self.selector.select(until - time.monotonic())
        if time.monotonic() > until + STANDSTILL:
            self.excuse_failures(time.monotonic() - until)
        if any(key.data is None for key, _ in events):
            self.take_signals()
        ended = [task for task in self.tasks if task.has_just_ended()]
        for task in self.tasks:
            if task in ended or any(key.data is task for key, _ in events):
                self.take_output(task, task in ended)
        return ended

    def excuse_failures(self, seconds: float) -> None:
        """Lets each task fail once without a restart less, after all stood still for so long.

        A container was paused, or a virtual machine: the time limits in tasks ran meanwhile.
        """
        self.went_on_at = time.monotonic()
        self.say(f"this machine stood still for {seconds:.0f} s, and goes on")
        for task in self.unfinished():
            task.may_fail = True

    def take_signals(self) -> None:
        """Does what the signals ask for that have come since the last call."""
        for number in os.read(self.wake, 512):
            if number == signal.SIGCHLD:
                self.reap()
            elif number == signal.SIGTSTP:
                signals.pause(self.say)
            elif number in signals.ENDING and self.signal is None:
                self.signal = signal.Signals(number)

    def take_output(self, task: Task, has_ended: bool) -> None:
        """Shows what a task has printed since the last call, and closes its pipe at the end."""
        for line in task.new_lines():
            if shown := task.on_screen(line):
                self.outputs[task].add(*shown)
        if has_ended:
            self.tell_watchdog("-", task)
        if (has_ended or task.output_ended) and not task.pipe().closed:
            self.selector.unregister(task.pipe())
            task.pipe().close()

    def reap(self) -> None:
        """Lets go the processes that have ended after their parents, and so have become ours."""
        own = [self.watchdog.pid, *(task.process.pid for task in self.tasks if task.process)]
        for child in psutil.Process().children():
            if child.pid not in own:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    def report_differing_data(self) -> bool:
        """Says it if a task has other data than the chief; returns whether one has."""
        if other := self.data_lines.difference():
            self.say(f"{other}. {errors.explain(other)} The run is stopped.")
            self.data_differ = True
        return self.data_differ

    def scale_if_asked(self) -> None:
        """Adds workers, or lets some leave, if somebody has asked for another number of them."""
        n = scaling.asked(self.spec.directory)
        if n is None:
            return
        if self.is_ps_done():
            self.say("the ps has ended: no worker joins or leaves any more")
            scaling.answer(self.spec.directory)
            return
        workers = self.unfinished("worker")
        leaving = [task.index for task in workers if task.leave_by is not None]
        staying = [task.index for task in workers if task.leave_by is None]
        kept = [task.index for task in workers if task.name == self.chief]
        joining, to_leave = scaling.plan(n, staying, leaving, kept)
        try:
            for index in joining:
                self.add_worker(index)
        except (OSError, ValueError) as error:  # a full disk: its log cannot be opened
            self.say(f"no worker can join this run: {error}")
        for task in workers:
            if task.index in to_leave:
                self.mark_as_left(task)
                task.leave_by, task.start_at = time.monotonic() + LEAVE_SECONDS, None
                self.say(f"{task.name} leaves")
        self.write_record()
        scaling.answer(self.spec.directory)

    def end_early_if_due(self) -> None:
        """Lets the run end, and says so, if its tests have stopped getting better."""
        if not self.spec.patience:
            return
        try:
            if due := self.tests.end(self.spec.patience):
                step, why = due
                early_stop.note(self.spec.directory, step)
                self.early_code = 0
                self.say(why)
        except (OSError, ValueError) as error:  # a full disk, or no test has this metric
            self.early_code = 2 if isinstance(error, ValueError) else 1
            self.say(f"{error}; the run is stopped")

    def add_worker(self, index: int) -> None:
        """Lets the worker with this index start. Raises ValueError where it has no place."""
        task = next((t for t in self.tasks if (t.job, t.index) == ("worker", index)), None)
        if task is None:
            if self.make_worker is None:
                raise ValueError("its tasks have no ps, or another launcher")
            task = self.make_worker(index)
            self.tasks.append(task)
            self.outputs[task] = TaskOutput(self.screen)
        scaling.mark(self.spec.directory, self.rank(task)).unlink(missing_ok=True)
        task.leave_by, task.was_stopped, task.free_starts = None, False, task.starts
        task.rows_before, task.start_at = self.count_rows_of(task), time.monotonic()
        self.say(f"{task.name} joins")

    def rank(self, task: Task) -> int:
        """Returns the rank of a chief or worker, as the scripts count."""
        return task.index + int(task.job == "worker" and "chief" in self.spec.jobs)

    def count_rows_of(self, task: Task) -> int:
        """Returns how many rows the metrics of a task have."""
        name = f"metrics-{formatting.file_name(task.name)}.csv"
        return metrics_csv.count_rows_of(self.spec.directory / name)

    def has_taken_part(self, task: Task) -> bool:
        """Returns whether a task is one of those at the start, or has pushed since it joined."""
        return task.rows_before is None or self.count_rows_of(task) > task.rows_before

    def mark_as_left(self, task: Task) -> None:
        """Lets a worker leave, and all other tasks go on without it."""
        with contextlib.suppress(OSError):  # a full disk: they wait for it, as long as they may
            scaling.mark(self.spec.directory, self.rank(task)).touch()

    def is_ps_done(self) -> bool:
        """Returns whether the run had a ps, and none is left."""
        return "ps" in self.spec.jobs and not self.unfinished("ps")

    def end_leavers(self) -> None:
        """Ends the workers that have not left in time, and those for which the run has ended."""
        for task in self.unfinished("worker"):
            if self.is_ps_done() and not self.has_taken_part(task) and task.leave_by is None:
                task.leave_by = time.monotonic()
                self.say(f"{task.name} has come too late: the run has ended")
            if task.leave_by is not None and time.monotonic() > task.leave_by:
                if task.running():
                    task.was_stopped = True
                    task.signal(signal.SIGKILL)
                task.start_at = None

    def handle_failure(self, task: Task) -> bool:
        """Starts a task that failed again, or lets it go; returns True where the run must stop."""
        if self.report_differing_data():  # that may be why it failed
            return True
        output, how = self.outputs[task], f"{task.name} {task.exit_description()}"
        assert task.process is not None
        if task.leave_by is not None:
            self.say(f"{how} while it left")
            task.exit_code = 0
            return False
        if not self.has_taken_part(task):
            output.show_failure(task.found_a_wrong_flag())
            self.say(f"{how}, and cannot join: the others go on; log: {task.path}")
            self.mark_as_left(task)
            return False
        if task.process.returncode < 0 and output.is_done():
            # There is nothing left to do again, and the ps may have gone.
            self.say(f"{how} after it was done")
            task.exit_code = 0
            return False
        output.show_failure(task.found_a_wrong_flag())
        has_trained = metrics_csv.count_rows(self.spec.directory) != self.rows_before
        # It was wrong from the start.
        self.wrong_flag = task.found_a_wrong_flag() and not has_trained
        is_soon = time.monotonic() < self.went_on_at + AFTER_STANDSTILL
        if task.may_fail and is_soon and not self.wrong_flag:
            task.may_fail, task.free_starts = False, task.free_starts + 1
            task.start_at = time.monotonic() + 1
            self.say(f"{how} after the standstill; it starts again")
            return False
        starts = task.starts - task.free_starts
        if starts <= self.spec.restarts and not self.wrong_flag:
            wait = min(30, 2 ** (starts - 1))
            task.start_at = time.monotonic() + wait
            restart = f"restart {starts} of {self.spec.restarts}"
            self.say(f"{how}; it starts again in {wait} s ({restart})")
            return False
        can_go = task.job in ("worker", "evaluator") and task.name != self.chief
        if let_go := bool(self.spec.restarts and can_go and not self.wrong_flag):
            what = f", has no restart left, and is let go: the others go on; log: {task.path}"
        else:
            what = "; the run is stopped"
        self.say(how + what)
        if let_go and "ps" in self.spec.jobs and task.job == "worker":
            self.mark_as_left(task)
        lost = self.lost_directory()  # then the error says only that some file is not there
        if meaning := lost or output.explain(how):
            self.say(meaning)
        if not (let_go or self.wrong_flag or lost):
            self.say(f"all that it printed: {task.path}")
        return not let_go

    def lost_directory(self) -> str | None:
        """Returns a sentence where somebody has removed the run directory; None where it is there.

        A task that saves a checkpoint makes the directory anew, but logs and flags are gone.
        """
        kept = [self.spec.directory / "flags.json", *(task.path for task in self.tasks)]
        if any(path.exists() for path in kept):
            return None
        return f"{self.spec.directory} was removed while the run went on: what it had is lost"

    def supervise(self) -> int:
        """Runs all tasks to the end, and leaves none; returns what watch() does.

        Returns 1 where a task has loaded other data than the chief.
        """
        try:
            self.begin()
            code = self.watch()
            if self.done and self.report_differing_data():
                self.done = False
            return 1 if self.data_differ else code
        except BrokenPipeError:  # `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.interrupted = True
            return 128 + signal.SIGPIPE
        finally:
            self.end()

    def begin(self) -> None:
        """Says what begins. Raises BrokenPipeError."""
        spec = self.spec
        numbers = [f"{n} {job}{'s' * (job == 'worker' and n > 1)}" for job, n in spec.jobs.items()]
        self.say(f"{spec.example}: {', '.join(numbers)}, in {spec.directory}")
        for note in spec.notes:
            self.say(note)
        if spec.isolated:
            self.say("isolated: nothing outside this run can reach its tasks")
        elif not spec.tasks and len(self.tasks) > 1:
            command = spec.commands["ps" if "ps" in spec.jobs else "worker"]
            warning = exposed.exposure_warning(command)
            self.say(f"{warning}; TFRUN_ISOLATE=1 before the command prevents that")
        if saved := run_directory.saved_step(spec.directory):
            self.say(f"it goes on from update {saved}, the last that was saved")
        elif self.rows_before:
            self.say("nothing was saved of the run that was here: it begins again")

    def watch(self) -> int:
        """Runs to the end; returns 0, or the exit code of the first task that failed for good."""
        deadline = time.monotonic() + (self.spec.timeout or float("inf"))
        ps_deadline = float("inf")
        checks = self.periodic_checks()
        while self.unfinished():
            self.start_due_tasks()
            if self.handle_ended(self.poll(min(deadline, ps_deadline))):
                return self.first_failure
            for output in self.outputs.values():
                output.release_overdue()
            if next(checks):
                return self.first_failure
            if self.early_code is not None:
                self.done = not self.early_code
                return self.early_code or self.first_failure
            if self.report_interruption(deadline):
                return 124 if self.signal is None else 128 + self.signal
            if not self.unfinished("chief", "worker", "evaluator"):
                ps_deadline = min(ps_deadline, time.monotonic() + PS_GRACE)
            if time.monotonic() > ps_deadline:
                names = ", ".join(task.name for task in self.unfinished())
                self.say(f"the workers are done, and {names} did not end by itself: stopped")
                break
        self.done = True
        return self.first_failure

    def handle_ended(self, ended: list[Task]) -> bool:
        """Notes how these tasks ended, in the record, too; returns True where the run must stop."""
        for task in ended:
            if task.exit_code and self.handle_failure(task):
                code = 2 if task.found_a_wrong_flag() else task.exit_code
                self.first_failure = self.first_failure or code
                return True
            if task.exit_code and task.start_at is None and self.has_taken_part(task):
                self.first_failure = self.first_failure or task.exit_code
            self.outputs[task].release(*self.outputs[task].held_lines)
        if ended:
            self.write_record()
        return False

    def report_interruption(self, deadline: float) -> bool:
        """Says it if a signal or the time-out ends the run; returns whether one does."""
        if self.signal is not None:
            self.interrupted = True
            self.say(f"stopped by {self.signal.name}")
        elif time.monotonic() > deadline:
            self.interrupted = True
            names = ", ".join(task.name for task in self.unfinished())
            seconds = f"{self.spec.timeout:g} s (--timeout)"
            self.say(f"not done after {seconds}; still running: {names}")
            for task in self.unfinished():
                task.write_stacks()  # for `tfrun doctor`: what they wait for
        return self.interrupted

    def periodic_checks(self) -> Iterator[bool]:
        """Looks at each call at what is due: what tasks use, the age of checkpoints, the data.

        Yields whether a task has other data.
        """
        next_check, warning = 0.0, None
        while True:
            self.usage.record(self.tasks)
            data_differ = False
            if time.monotonic() > next_check:
                next_check = time.monotonic() + 0.5
                for task in self.tasks:
                    task.check_memory()
                self.scale_if_asked()
                self.end_early_if_due()
                self.end_leavers()
                if not warning:  # once is enough
                    directory, now = self.spec.directory, time.time()
                    if warning := progress.checkpoint_warning(directory, self.began, now):
                        self.say(warning)
                data_differ = self.report_differing_data()
            yield data_differ

    def end(self) -> None:
        """Stops what still runs, first kindly."""
        for task in self.tasks:
            task.start_at = None
        for number in (signal.SIGTERM, signal.SIGKILL):
            for task in self.unfinished():
                task.was_stopped = True
                task.signal(number)
            deadline = time.monotonic() + GRACE
            while self.unfinished() and time.monotonic() < deadline:
                with contextlib.suppress(BrokenPipeError):
                    self.poll(deadline)
        if not self.data_differ:  # errors follow from that
            for output in self.outputs.values():
                with contextlib.suppress(BrokenPipeError):
                    output.show_errors()
        self.watchdog.communicate()
        stacks.remove_empty(self.spec.directory)
        for held in self.sockets:
            held.close()

    def close_record(self, exit_code: int) -> None:
        """Writes how the run ended into its record."""
        if self.record and self.record.path.exists():
            state = "stopped" if self.interrupted else "failed" if exit_code else "done"
            self.write_record(state=state, ended=time.time(), exit_code=exit_code)
