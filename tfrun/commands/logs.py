"""`tfrun logs RUN [TASK]`: what tasks have printed."""

import json
import pathlib
import sys
import time

from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.launch.task import NOISE

LAST_LINES = 20  # of each log that -f begins with


def command(arguments: list[str]) -> int:
    """Prints the logs; returns the exit code."""
    about = "What the tasks of a run have printed, without TensorFlow's notices at the start."
    parser = common.parser("logs", about)
    parser.add_argument("task", nargs="?", metavar="TASK", help='such as "worker 0", or worker-0')
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run has ended")
    flags = parser.parse_args(arguments)
    record = common.find(flags.run)
    logs = {task["task"]: pathlib.Path(task["log"]) for task in record["tasks"]}
    if flags.task:
        name = flags.task.replace("-", " ")
        if name not in logs:
            return fail(f"{record['run']} has no task {name}; it has {', '.join(logs)}")
        logs = {name: logs[name]}
    follow(record, logs, flags)
    return 0


def follow(record: dict, logs: dict[str, pathlib.Path], flags):
    """Prints the lines of these logs, and of a run that goes on what comes, if asked."""
    positions, first = dict.fromkeys(logs, 0), True
    while True:
        live = flags.follow and common.refreshed(record)["state"] == "running"
        for name, path in logs.items():
            lines, positions[name] = lines_of(path, positions[name], whole=live)
            for line in lines[-LAST_LINES:] if first and live else lines:
                if NOISE.match(line.encode()):
                    continue
                if flags.json:
                    print(json.dumps({"task": name, "line": line}))
                else:
                    print(f"[{name}] {line}" if len(logs) > 1 else line)
        first = False
        sys.stdout.flush()
        if not live:
            return
        time.sleep(0.2)


def lines_of(path: pathlib.Path, position: int, whole: bool) -> tuple[list[str], int]:
    """Returns the lines of a file from a position on, and the position behind them.

    whole: leave the last line for later if it has no end yet.
    """
    try:
        with open(path, "rb") as file:
            file.seek(position)
            text = file.read()
    except FileNotFoundError:
        return [], position
    if whole:
        text = text[: text.rfind(b"\n") + 1]
    return text.decode(errors="replace").splitlines(), position + len(text)
