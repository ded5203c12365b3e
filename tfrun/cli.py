"""The command tfrun: finds the module of a command in tfrun/commands, and calls it."""

import importlib.util
import io
import os
import sys

from tfrun.arguments import fail
from tfrun.commands import COMMANDS, LAUNCH
from tfrun.launch import without_notices


def main(arguments: list[str] | None = None) -> int:
    """Runs the command in `arguments`, by default the program's; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else ""
    command = COMMANDS.get(name, LAUNCH)
    if command is not LAUNCH:
        arguments = arguments[1:]
    sys.stdout = sys.stdout or open(os.devnull, "w")  # it was closed by the caller, as by >&-
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the terminal cannot show
    if command.needs_tensorflow:
        if not importlib.util.find_spec("tensorflow"):
            return fail(f"tfrun {name} needs TensorFlow 2.21: pip install 'tensorflow==2.21.*'", 1)
        return without_notices.run_module(f"tfrun.commands.{command.module}", *arguments)
    try:
        # This one only: what the others import would slow a launch down.
        module = importlib.import_module(f"tfrun.commands.{command.module}")
        code = module.command(arguments)
        if command.is_watching:
            sys.stdout.flush()
        return code
    except (KeyboardInterrupt, BrokenPipeError) as error:
        if not command.is_watching:
            raise
        if isinstance(error, BrokenPipeError):  # whoever read the output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
