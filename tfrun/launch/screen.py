"""What tfrun shows of a run: the lines of all tasks, each behind the name of its task."""

import collections
import os
import re
import sys
import time

from tfrun import errors

COLOURS = {"ps": 35, "chief": 32, "worker": 36, "evaluator": 34, "tfrun": 33, "horovodrun": 33}
# What argparse prints of a wrong flag: the usage, indented after its first line, and the error.
USAGE, USAGE_ERROR = re.compile(rb"usage: "), re.compile(rb"\S+: error: ")
TRACEBACK = errors.TRACEBACK.encode()
DONE = re.compile(rb"done(, the output is in .*)?$")  # the last line of a task
HOLD_SECONDS = 10  # that a task may take to end after a traceback, or the traceback is shown
LAST_LINES = 15  # of a task that failed, at most, that are shown again


class Screen:
    """Standard output, each line behind the name of its task, in colour on a terminal."""

    def __init__(self) -> None:
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.line_count = 0

    def show(self, name: str, line: bytes | str) -> None:
        """Prints one line of the task `name`. Raises BrokenPipeError."""
        text = line.decode(errors="replace") if isinstance(line, bytes) else line
        prefix = f"[{name}]"
        if self.colour:
            prefix = f"\033[{COLOURS[name.split()[0]]}m{prefix}\033[0m"
        try:
            print(prefix, text, flush=True)
        except OSError as error:  # a terminal that was closed
            raise BrokenPipeError(*error.args) from error
        self.line_count += 1


class TaskOutput:
    """The lines of one task on the screen.

    A usage or a traceback is held back, with the error below it, until it is known how the task
    ends: where several tasks fail, one of them is shown. horovodrun prints for several names.
    """

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.begin()

    def begin(self) -> None:
        """Forgets what the process before a restart has printed."""
        # {name: the lines that are held back}, {name: when these are shown at the latest}
        self.held_lines: dict[str, list[bytes]] = {}
        self.deadlines: dict[str, float] = {}
        # (number on the screen, name, line) of what it has shown, the end of it.
        self.last: collections.deque[tuple[int, str, bytes]] = collections.deque(maxlen=300)

    def add(self, name: str, line: bytes) -> None:
        """Shows a line, or holds it back. Raises BrokenPipeError, as all here that shows."""
        held = self.held_lines.get(name)
        if held and (held[0] == TRACEBACK or line[:1] == b" " or USAGE_ERROR.match(line)):
            held.append(line)
            return
        self.release(name)
        if line == TRACEBACK or USAGE.match(line):
            self.held_lines[name] = [line]
            self.deadlines[name] = time.monotonic() + HOLD_SECONDS
        else:
            self.show(name, line)

    def show(self, name: str, line: bytes) -> None:
        """Shows a line, and remembers it."""
        self.screen.show(name, line)
        self.last.append((self.screen.line_count, name, line))

    def release(self, *names: str) -> None:
        """Shows what is held back under these names."""
        for name in names:
            for line in self.held_lines.pop(name, []):
                self.show(name, line)

    def release_overdue(self) -> None:
        """Shows what was held back for too long."""
        self.release(*(name for name, at in self.deadlines.items() if time.monotonic() > at))

    def show_failure(self, wrong_flag: bool) -> None:
        """Shows the first usage or traceback that is held back, of the others their error.

        wrong_flag: show the error of the usage alone.
        """
        if self.held_lines:
            name = next(iter(self.held_lines))
            if wrong_flag:
                self.held_lines = {name: self.held_lines[name][-1:]}
            self.release(name)
        self.show_errors()

    def show_errors(self) -> None:
        """Shows of each traceback that is held back one line: its error, if it came so far."""
        for name, lines in self.held_lines.items():
            text = [line.decode(errors="replace") for line in lines]
            if (begin := errors.begin(text)) is not None and lines[begin] != TRACEBACK:
                self.show(name, lines[begin])
        self.held_lines = {}

    def is_done(self) -> bool:
        """Returns whether its last line says that the task is done."""
        return bool(not self.held_lines and self.last and DONE.match(self.last[-1][2]))

    def explain(self, description: str) -> str | None:
        """Shows the error again unless it was just shown; returns what it means, if that is known.

        description: how the task ended. Called right after a line of tfrun's own.
        """
        last = list(self.last)
        text = [line.decode(errors="replace") for _, _, line in last]
        begin = errors.begin(text)
        # Where there is no traceback, the last line is the error.
        error = last[begin:] if begin is not None else last[-1:]
        # From its first line on nothing else was shown but, after it, tfrun's own line.
        if error and error[0][0] + len(error) != self.screen.line_count:
            lines = error[:LAST_LINES] if begin is not None else last[-LAST_LINES:]
            for _, name, line in lines:
                self.screen.show(name, line)
        return errors.explain("\n".join(text)) or errors.explain(description)
