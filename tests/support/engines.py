"""Engines that run an example on a cluster of theirs: what their tests share."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import psutil
import pytest
import support

FOLDER = support.ROOT / "Beyond-One-Machine"


def one_kill(first, *others):
    """Returns parameters for `number`: the tier `all` has one signal, `nightly` has the others."""
    rare = [pytest.param(number, marks=pytest.mark.nightly) for number in others]
    return pytest.mark.parametrize("number", [first, *rare])


@functools.cache
def environment(*extras):
    """os.environ as in a run.sh of Beyond-One-Machine for Spark."""
    tools = os.path.dirname(sys.executable)
    lines = [f"cd {FOLDER}", "source extras.sh"]
    lines += [f"extra {name}" for name in extras] + ["env -0"]
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)],
        env={**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)


def descendants(process):
    """A process and all that it has started, as far as they run."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    return [process for process in family if support.is_running(process)]


def none_is_left(processes, directories=(), seconds=20):
    """Waits until these have ended, and all with one of these OUTPUT_DIRs."""
    support.wait_until(
        lambda: (
            not any(map(support.is_running, processes))
            and not any(support.processes_of(pathlib.Path(directory)) for directory in directories)
        ),
        seconds,
        "all processes have ended",
    )


class Run:
    """A command that a test meddles with while it runs; no process is left of it afterwards.

    directory: its OUTPUT_DIR; beside it is a file for what the command prints. Of the processes
    with this OUTPUT_DIR it notes the tasks, as (type, index, *command), and how many chiefs there
    were at once.
    """

    def __init__(self, command, directory, **env):
        self.directory, self.file = directory, directory.with_suffix(".txt")
        self.known, self.tasks, self.chiefs = set(), set(), 0
        with open(self.file, "w") as output:
            self.process = subprocess.Popen(
                list(map(str, command)),
                env=support.environment(directory, **env),
                cwd=directory.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self):
        self.over, self.watch = threading.Event(), threading.Thread(target=self.note_tasks)
        self.watch.start()
        return self

    def note_tasks(self):
        mine = psutil.Process(self.process.pid)
        while not self.over.wait(0.05):
            self.known |= set(descendants(mine))
            chiefs = {}  # {pid: its parent's}
            for process in support.processes_of(self.directory):
                with contextlib.suppress(psutil.Error):
                    task = json.loads(process.environ().get("TF_CONFIG", "{}")).get("task")
                    if task:
                        self.tasks.add((task["type"], task["index"], *process.cmdline()))
                        if task["type"] == "chief":
                            chiefs[process.pid] = process.ppid()
            # What a chief starts looks like itself until it has become another program.
            count = sum(parent not in chiefs for parent in chiefs.values())
            self.chiefs = max(self.chiefs, count)

    def __exit__(self, *_):
        watched = self.watch.is_alive()
        self.over.set()
        self.watch.join()
        self.process.kill()
        self.process.wait()
        assert watched
        none_is_left(self.known, [self.directory])

    def says(self, line, seconds=60):
        """Waits until it has printed this."""
        support.wait_until(
            lambda: line in self.file.read_text() or self.process.poll() is not None,
            seconds,
            "it says: " + line,
        )
        assert line in self.file.read_text(), self.file.read_text()

    def end(self, seconds=100):
        """(exit code, output)"""
        support.wait_until(lambda: self.process.poll() is not None, seconds, "it has ended")
        return self.process.returncode, self.file.read_text()

    def stop(self, number, names):
        """Ends it by Ctrl-C in its terminal, or by another signal; returns what it had started.

        names: what must stand in the commands of these processes.
        """
        running = descendants(psutil.Process(self.process.pid))
        self.known.update(running)
        commands = " ".join(map(support.command_line, running))
        for name in names:
            assert name in commands
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code, output = self.end(30)
        assert code == (-9 if number == signal.SIGKILL else 128 + number), output
        assert "Traceback" not in output
        none_is_left(self.known, [self.directory])
        return commands
