"""The command tfrun: finds the module of a command in tfrun/commands, and calls it."""

import importlib.util
import io
import os
import sys

from tfrun.arguments import fail
from tfrun.launch import quiet

COMMANDS = ("summary", "curves", "explain", "trace", "plan", "run")
WATCHING = ("status", "monitor", "logs", "kill", "tensorboard")  # Ctrl-C ends them with 0
WITH_TENSORFLOW = ("evaluate", "export")  # each in a process of its own


def main(arguments: list[str] | None = None) -> int:
    """Runs the command in `arguments`, by default the program's; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else ""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # it was closed by the caller, as by >&-
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the terminal cannot show
    if name in WITH_TENSORFLOW and not importlib.util.find_spec("tensorflow"):
        return fail(f"tfrun {name} needs TensorFlow 2.21: pip install 'tensorflow==2.21.*'", 1)
    if name in WITH_TENSORFLOW:
        return quiet.run_module(f"tfrun.commands.{name}", *arguments[1:])
    known = name in COMMANDS + WATCHING
    try:
        # This one only: what the others import would slow a launch down.
        own = {"run": "job"}.get(name, name) if known else "start"
        code = importlib.import_module(f"tfrun.commands.{own}").command(arguments[known:])
        if name in WATCHING:
            sys.stdout.flush()
        return code
    except (KeyboardInterrupt, BrokenPipeError) as error:
        if name not in WATCHING:
            raise
        if isinstance(error, BrokenPipeError):  # whoever read the output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
