"""The commands of tfrun, each in a module that cli.py imports when somebody calls the command."""

from typing import NamedTuple


class Command(NamedTuple):
    """Where a command is, and what cli.py needs to know of it before the import."""

    module: str  # in tfrun/commands; its function command(arguments) returns the exit code
    is_watching: bool = False  # Ctrl-C ends it with exit code 0
    needs_tensorflow: bool = False  # it runs in a process of its own


LAUNCH = Command("start")  # what tfrun does where no command is named
COMMANDS = {
    "curves": Command("curves"),
    "doctor": Command("doctor"),
    "evaluate": Command("evaluate", needs_tensorflow=True),
    "explain": Command("explain"),
    "export": Command("export", needs_tensorflow=True),
    "run": Command("job"),
    "kill": Command("kill", is_watching=True),
    "logs": Command("logs", is_watching=True),
    "monitor": Command("monitor", is_watching=True),
    "new": Command("new"),
    "plan": Command("plan"),
    "scale": Command("scale"),
    "status": Command("status", is_watching=True),
    "summary": Command("summary"),
    "tensorboard": Command("tensorboard", is_watching=True),
    "trace": Command("trace"),
}
