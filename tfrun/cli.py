"""The command tfrun: finds the module of a command in tfrun/commands, and calls it."""

import importlib
import os
import sys

from tfrun.launch import quiet

COMMANDS = ("summary", "curves", "explain", "trace", "run")
WATCHING = ("status", "monitor", "logs", "kill", "tensorboard")  # Ctrl-C ends them with 0
WITH_TENSORFLOW = ("evaluate", "export")  # each in a process of its own


def main(arguments: list[str] | None = None) -> int:
    """Runs the command in `arguments`, by default the program's; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else ""
    use_any_output()
    if name in WITH_TENSORFLOW:
        return quiet.run_module(f"tfrun.commands.{name}", *arguments[1:])
    if name not in COMMANDS + WATCHING:
        return command("launch", arguments)
    if name in COMMANDS:
        return command(name, arguments[1:])
    try:
        code = command(name, arguments[1:])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def use_any_output():
    """Replaces what the terminal cannot show, and prints nothing where the output is closed."""
    if sys.stdout is None:  # closed by the caller, as by >&-
        sys.stdout = open(os.devnull, "w")
    sys.stdout.reconfigure(errors="replace")


def command(name: str, arguments: list[str]) -> int:
    """Runs tfrun/commands/<name>.py; what the others import would slow a launch down."""
    return importlib.import_module(f"tfrun.commands.{name}").command(arguments)
