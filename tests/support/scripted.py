"""Runs of tasks that follow a script, by a clock of the test: what tfrun prints and does, and when.

tfrun's own Run supervises them. No process starts and nothing waits: where tfrun would wait, the
clock goes on to the next event.
"""

import io
import itertools
import json
import os
import pathlib
import select
import signal
import sys
import types

from tfrun.launch import cluster, screen, supervisor, task
from tfrun.runs import registry

START = 1000.0  # the time by the clock at which a run begins
MOST_LOOKS = 5000  # at what has happened, in a run that ends


class Process:
    """A process that prints and ends as its script says: [(seconds after its start, what)].

    what: a line, bytes, a code to end with, or a function to call. Where the script begins with
    "stubborn", the process ignores SIGTERM; with "late", it ends a second after it, with 9.
    """

    def __init__(self, world, pid, name, script):
        self.world, self.pid, self.name = world, pid, name
        self.manner = script[0] if script and isinstance(script[0], str) else ""
        self.script = [(world.now + at, what) for at, what in script[bool(self.manner) :]]
        self.code = self.returncode = None
        end, self.pipe = os.pipe()
        self.stdout = open(end, "rb")

    def next_time(self):
        """Returns when something happens next."""
        return self.script[0][0] if self.script and self.code is None else float("inf")

    def go_on(self):
        """Does what its script has for this time."""
        while self.next_time() <= self.world.now:
            what = self.script.pop(0)[1]
            if callable(what):
                what()
            elif isinstance(what, int):
                self.end(what)
            else:
                os.write(self.pipe, what if isinstance(what, bytes) else f"{what}\n".encode())

    def end(self, code):
        """Ends with this code, as subprocess has it."""
        if self.code is None:
            self.code = code
            os.close(self.pipe)

    def wait(self):
        self.returncode = self.code
        return self.code


class Out(io.TextIOBase):
    """Standard output, which notes when each line was printed."""

    def __init__(self, world):
        self.world, self.line, self.is_terminal, self.has_reader = world, "", False, True

    def isatty(self):
        return self.is_terminal

    def fileno(self):
        return 1

    def write(self, text):
        if not self.has_reader:
            raise BrokenPipeError
        *lines, self.line = (self.line + text).split("\n")
        self.world.printed += [(self.world.second(), line) for line in lines]
        return len(text)


class World:
    """The clock, the processes, and all else that a run asks of the system.

    scripts: {task: [its script at each start]}.
    """

    EVENT_READ, PIPE = 1, -1  # of selectors, and of subprocess

    def __init__(self, folder, monkeypatch, scripts):
        self.folder, self.now = folder, START
        self.scripts = {name: iter(starts) for name, starts in scripts.items()}
        self.pids, self.processes, self.keys = itertools.count(101), {}, {}
        self.jumps = {}  # {second: how many it lasts more, because the machine stands still}
        self.printed, self.starts, self.kills, self.pauses, self.wake = [], [], [], 0, None
        self.looks, self.begun, self.is_woken = 0, 0, False
        self.out, self.watchdog = Out(self), folder / "watchdog"
        for module in supervisor, task, screen:
            monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(registry, "time", self)
        monkeypatch.setattr(supervisor, "selectors", self)
        monkeypatch.setattr(supervisor, "subprocess", self)
        monkeypatch.setattr(supervisor, "ctypes", types.SimpleNamespace(CDLL=self.libc))
        monkeypatch.setattr(supervisor.signals, "handle", lambda *_: None)
        monkeypatch.setattr(supervisor.signals, "pause", self.pause)
        monkeypatch.setattr(signal, "set_wakeup_fd", self.set_wakeup_fd)
        monkeypatch.setattr(task, "start_process", self.start_process)
        monkeypatch.setattr(task, "has_ended", lambda process: process.code is not None)
        monkeypatch.setattr(os, "killpg", self.killpg)
        monkeypatch.setattr(registry, "identity", lambda pid: {"pid": pid, "start": f"at {pid}"})
        monkeypatch.setattr(cluster, "check_loopback", lambda: None)
        monkeypatch.setattr(cluster, "gpus", list)
        # The ids of its processes are those of others.
        monkeypatch.setattr(task.stacks, "ask", lambda *_: None)
        monkeypatch.setattr(supervisor.usage.Recorder, "record", lambda *_: None)
        monkeypatch.setattr(sys, "stdout", self.out)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))

    def run(self, jobs, **options):
        """Supervises a run of such tasks; returns (exit code, the Run)."""
        directory = self.folder / "E" / "run"
        directory.mkdir(parents=True, exist_ok=True)
        commands = {job: ["python", "train.py"] for job in jobs}
        run = supervisor.Run(supervisor.LaunchSpec("E", jobs, commands, directory, **options))
        code = run.supervise()
        run.close_record(code)
        os.close(run.wake)
        os.close(self.wake)
        return code, run

    def lines(self):
        """Returns [(second, line)] of what was printed since the first task started."""
        return self.printed[self.begun :]

    def texts(self):
        """Returns the same lines without their times."""
        return [line for _, line in self.lines()]

    def record(self):
        """Returns the record of the run."""
        (path,) = pathlib.Path(self.folder / "state").glob("tfrun/*/*.json")
        return json.loads(path.read_text())

    def send(self, *numbers):
        """Returns a function that sends signals to tfrun."""
        return lambda: os.write(self.wake, bytes(numbers))

    def second(self):
        """Returns how many seconds the run goes on."""
        return round(self.now - START, 2)

    # What a run asks of the system.

    def monotonic(self):
        return self.now

    def time(self):
        return self.now + 7000

    def libc(self, _):
        return types.SimpleNamespace(prctl=lambda *_: 0)

    def pause(self, say):
        self.pauses += 1

    def set_wakeup_fd(self, number):
        self.wake = number

    def start_process(self, command, env, cpus=None):
        own = json.loads(env["TF_CONFIG"])["task"]
        name = f"{own['type']} {own['index']}"
        self.starts.append((name, self.second()))
        process = Process(self, next(self.pids), name, next(self.scripts[name]))
        process.cpus = cpus
        self.processes[process.pid] = process
        return process

    def killpg(self, pid, number):
        process = self.processes[pid]
        if process.code is not None:
            raise ProcessLookupError
        self.kills.append((process.name, signal.Signals(number).name, self.second()))
        self.is_woken = True  # by SIGCHLD
        if number == signal.SIGKILL:
            process.end(-9)
        elif process.manner == "late":
            process.script = [(self.now + 1, 9)]
        elif process.manner != "stubborn":
            process.end(-number)

    def Popen(self, command, **_):
        """Starts the watchdog: a file with what it is told."""
        return types.SimpleNamespace(
            pid=1, stdin=self.watchdog.open("ab"), communicate=lambda: self.kills.append("watchdog")
        )

    def DefaultSelector(self):
        return self

    def register(self, file, _, data=None):
        self.keys[file if isinstance(file, int) else file.fileno()] = data

    def unregister(self, file):
        del self.keys[file.fileno()]

    def select(self, timeout):
        """Goes on to the next event, or so many seconds; returns what can be read then."""
        assert timeout >= 0
        self.begun = self.begun if self.looks else len(self.printed)
        self.looks += 1
        assert self.looks < MOST_LOOKS, "it does not end"
        processes = [*self.processes.values()]
        times = [child.next_time() for child in processes]
        next_time = self.now if self.is_woken else min([self.now + timeout, *times])
        self.is_woken = False
        self.now = max(self.now + 1e-5, next_time)  # time passes at each look
        for process in processes:
            process.go_on()
        self.now += self.jumps.pop(int(self.now - START), 0)
        poll = select.poll()
        for number in self.keys:
            poll.register(number, select.POLLIN)
        return [(types.SimpleNamespace(data=self.keys[n]), 1) for n, _ in poll.poll(0)]
