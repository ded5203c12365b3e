"""`tfrun logs RUN [TASK]`: what tasks have printed, without TensorFlow's notices at the start."""

import json
import os
import pathlib
import sys
import time

from tfrun import known_errors
from tfrun.arguments import fail
from tfrun.commands import common

LAST_LINES = 20  # of each log that -f begins with


def command(arguments: list[str]) -> int:
    """Prints the logs; returns the exit code."""
    parser = common.parser("logs", __doc__)
    parser.add_argument("task", nargs="*", metavar="TASK", help="such as worker 0, or worker-0")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run has ended")
    flags = parser.parse_args(arguments)
    record = common.find(flags.run, moved_too=True)
    paths = {task["task"]: pathlib.Path(task["log"]) for task in record["tasks"]}
    if flags.task:
        name = " ".join(flags.task).replace("-", " ")
        if name not in paths:
            return fail(f"{record['run']} has no task {name}; it has {', '.join(paths)}")
        paths = {name: paths[name]}
    files = {name: open(path, "rb") for name, path in paths.items() if path.exists()}
    begins = True
    while True:
        live = flags.follow and common.refresh(record)["state"] == "running"
        for name, file in files.items():
            new = file.readlines()
            if live and new and not new[-1].endswith(b"\n"):  # the rest comes later
                file.seek(-len(new.pop()), os.SEEK_CUR)
            lines = b"".join(new).decode(errors="replace").splitlines()
            lines = [line for line in lines if not known_errors.NOTICE.match(line.encode())]
            for line in lines[-LAST_LINES:] if begins and live else lines:
                if flags.json:
                    print(json.dumps({"task": name, "line": line}))
                else:
                    print(f"[{name}] {line}" if len(paths) > 1 else line)
        sys.stdout.flush()
        if not live:
            return 0
        begins = False
        time.sleep(0.2)
