"""The commands about runs that there are: status, monitor, logs, kill, tensorboard."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

import psutil

from tfrun import formatting
from tfrun.commands import monitor
from tfrun.runs import metrics_csv, progress, registry

STOP = 4  # seconds that tfrun has to end its tasks before it is killed, and they
LAST_LINES = 20  # of each log that -f begins with


def parser(command, description, run="required", json_too=True):
    """Returns the parser of a command. run: whether a RUN is "required", "optional", or None."""
    made = argparse.ArgumentParser(prog=f"tfrun {command}", description=description)
    text = "its name, a part of that, or its directory"
    if run == "required":
        made.add_argument("run", metavar="RUN", help=text)
    elif run == "optional":
        text += "; by default the newest that runs"
        made.add_argument("run", metavar="RUN", nargs="?", help=text)
    if json_too:
        made.add_argument("--json", action="store_true", help="as JSON, for programs")
    return made


def console():
    """rich's console; what does not go to a terminal is not cut to the width of one."""
    from rich.console import Console

    wide = {} if sys.stdout.isatty() or "COLUMNS" in os.environ else {"width": 200}
    return Console(highlight=False, markup=False, emoji=False, **wide)


def fail(error, code=2):
    """One line on standard error; returns the exit code."""
    print("tfrun: %s" % error, file=sys.stderr)
    return code


def status_command(arguments):
    """`tfrun status`: all runs of this user on this machine; returns the exit code."""
    about = "All your runs on this machine, alive and past; the newest is the last."
    flags = parser("status", about, run=None).parse_args(arguments)
    seen = [status(record) for record in registry.read_all()]
    if flags.json:
        print(json.dumps(seen, indent=2))
        return 0
    if not seen:
        print("there is no run yet")
        return 0
    from rich.table import Table

    table = Table(box=None)
    screen = console()
    columns = {"run": 0, "state": 0, "began": 90, "lasted": 60, "updates": 70, "result": 50}
    columns = [title for title, needs in columns.items() if needs <= screen.width]
    for title in columns:
        table.add_column(title, overflow="fold", no_wrap=title != "run" and title != "result")
    for run in seen:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run["started"]))
        state = run["state"] + (" (%d)" % run["exit_code"] if run["exit_code"] else "")
        updates = "{:,}".format(run["update"]) if run["update"] else ""
        lasted = formatting.age(run["age_seconds"]) if run["state"] != "lost" else ""
        texts = {"run": run["run"], "state": state, "began": began, "lasted": lasted}
        texts |= {"updates": updates, "result": formatting.tests(run["test"])}
        table.add_row(*(texts[title] for title in columns))
    screen.print(table)
    return 0


def status(record):
    """What status shows of a run, as --json prints it. age_seconds: how long it has gone on."""
    seen = {name: record[name] for name in ("run", "state", "example", "directory")}
    seen |= {name: record[name] for name in ("started", "ended", "exit_code")}
    seen["age_seconds"] = (record["ended"] or time.time()) - record["started"]
    facts = {"update": None, "steps": None, "test": {}}
    live = [
        formatting.file_name(t["task"]) for t in record["tasks"] if record["state"] == "running"
    ]
    if record["directory"]:
        facts |= progress.of_run(record["directory"], time.time(), live)
    seen |= {name: facts[name] for name in ("update", "steps", "test")}
    return {**seen, "accuracy": facts["test"].get("test_accuracy")}


def monitor_command(arguments):
    """`tfrun monitor [RUN]`: the live table of its tasks; returns the exit code."""
    about = "The tasks of a run, live, until it ends: what they use, and how far they are."
    made = parser("monitor", about, run="optional")
    made.add_argument("--once", action="store_true", help="once, instead of every second")
    flags = made.parse_args(arguments)
    record, sampler = find(flags.run), monitor.Sampler()
    sampler.look(record)  # a share of processor time is that between two looks
    from rich.live import Live

    screen = console()
    terminal = sys.stdout.isatty() and not flags.once and not flags.json
    in_place = Live(console=screen, auto_refresh=False, vertical_overflow="visible")
    look_at = time.monotonic()
    with in_place if terminal else contextlib.nullcontext():
        while True:
            look_at += 0.25 if flags.once else 1
            time.sleep(max(0.0, look_at - time.monotonic()))
            record = again(record)
            seen = monitor.snapshot(record, sampler)
            if flags.json:
                print(json.dumps(seen, indent=2 if flags.once else None), flush=True)
            elif terminal:
                in_place.update(monitor.table(seen, screen.width), refresh=True)
            else:
                screen.print(monitor.table(seen, screen.width))
            if flags.once or record["state"] != "running":
                return 0


def run(command, arguments):
    """Runs one of these commands; Ctrl-C, or a reader that goes away, ends it with 0."""
    try:
        code = command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def find(name, unreadable_too=False):
    """Returns the record that `name` means; ends with one line where there is none."""
    try:
        record = registry.find(name)
    except LookupError as error:
        sys.exit(fail(error))
    if record["state"] == "unreadable" and not unreadable_too:
        sys.exit(fail(f"the record of {record['run']} cannot be read; tfrun kill removes it"))
    return record


def again(record):
    """The record as it is now; as it was where it has gone."""
    now = registry.read(record["path"]) or record
    return {**now, "path": record["path"], "state": registry.state(now)}


def logs_command(arguments):
    """`tfrun logs RUN [TASK]`: what tasks have printed; returns the exit code."""
    about = "What the tasks of a run have printed, without TensorFlow's notices at the start."
    made = parser("logs", about)
    made.add_argument("task", nargs="?", metavar="TASK", help='such as "worker 0", or worker-0')
    made.add_argument("-f", "--follow", action="store_true", help="go on until the run has ended")
    flags = made.parse_args(arguments)
    record = find(flags.run)
    logs = {task["task"]: pathlib.Path(task["log"]) for task in record["tasks"]}
    if flags.task:
        name = flags.task.replace("-", " ")
        if name not in logs:
            return fail("%s has no task %s; it has %s" % (record["run"], name, ", ".join(logs)))
        logs = {name: logs[name]}
    follow(record, logs, flags)
    return 0


def follow(record, logs, flags):
    """Prints the lines of these logs, and of a run that goes on what comes, if asked."""
    from tfrun.launch import supervisor

    read, first = dict.fromkeys(logs, 0), True
    while True:
        live = flags.follow and again(record)["state"] == "running"
        for name, path in logs.items():
            lines, position = lines_of(path, read[name], whole=live)
            for line in lines[-LAST_LINES:] if first and live else lines:
                if supervisor.NOISE.match(line.encode()):
                    continue
                if flags.json:
                    print(json.dumps({"task": name, "line": line}))
                else:
                    print(f"[{name}] {line}" if len(logs) > 1 else line)
            read[name] = position
        first = False
        sys.stdout.flush()
        if not live:
            return
        time.sleep(0.2)


def lines_of(path, position, whole):
    """([the lines of a file from a position on], the position behind them).

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


def kill_command(arguments):
    """`tfrun kill RUN`: ends a run, also one whose tfrun has died; returns the exit code."""
    about = "Ends a run and all its processes, also where its tfrun has died."
    flags = parser("kill", about).parse_args(arguments)
    record = find(flags.run, unreadable_too=True)
    if record["state"] not in ("running", "lost", "unreadable"):
        return fail("%s has ended already: %s" % (record["run"], record["state"]), 1)
    ended = kill(record)
    if left := registry.left(record):
        pids = ", ".join(str(process.pid) for process in left)
        return fail("%s: these processes do not end: %s" % (record["run"], pids), 1)
    state = (registry.read(record["path"]) or {"state": "removed"})["state"]
    if flags.json:
        print(json.dumps({"run": record["run"], "state": state, "processes_killed": ended}))
    else:
        how = {"lost": "; its tfrun had died", "unreadable": "; its record could not be read"}
        print("%s is %s%s" % (record["run"], state, how.get(record["state"], "")))
    return 0


def kill(record):
    """Ends a run, first kindly; returns the ids of the processes that had to be killed."""
    if record["state"] == "unreadable":
        record["path"].unlink(missing_ok=True)
        return []
    launcher = registry.process(record["tfrun"])
    if launcher:
        with contextlib.suppress(psutil.Error):
            launcher.send_signal(signal.SIGTERM)  # it ends its tasks, and writes its record
        if not ends(lambda: not registry.process(record["tfrun"]), STOP):
            with contextlib.suppress(psutil.Error):
                launcher.kill()
            ends(lambda: not registry.process(record["tfrun"]), STOP)
    record = again(record)
    killed = registry.left(record)
    for process in killed:
        with contextlib.suppress(psutil.Error):
            process.kill()
    if ends(lambda: not registry.left(record), STOP) and record["state"] == "lost":
        content = {name: value for name, value in record.items() if name != "path"}
        content |= {"state": "stopped", "ended": time.time()}
        for task in content["tasks"]:
            if task["process"]:
                task |= {"state": "stopped", "process": None}
        registry.replace(record["path"], content)
    return [process.pid for process in killed]


def ends(condition, seconds):
    """Waits for condition() for so many seconds at most; returns whether it came true."""
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return met


def tensorboard_command(arguments):
    """`tfrun tensorboard RUN`: serves it on loopback until Ctrl-C; returns the exit code."""
    about = "Shows a run in TensorBoard, which only this machine can reach; Ctrl-C ends it."
    made = parser("tensorboard", about, json_too=False)
    made.add_argument("--port", type=int, default=0, help="of the address (a free one)")
    flags = made.parse_args(arguments)
    if not 0 <= flags.port < 2**16:
        return fail("--port must be from 0 to 65535, is %d" % flags.port)
    directory = directory_of(flags.run)
    from tfrun import cli

    # Also where a shell has started it in the background, which ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tfrun-tensorboard-") as folder:
        code = cli.without_noise(
            "tfrun.commands.tensorboard_server", directory, folder, str(flags.port)
        )
    return 0 if code == 128 + signal.SIGINT else code


def directory_of(name):
    """Returns the run directory that `name` means: of a record, or any with what a run leaves."""
    path = pathlib.Path(name)
    if (path / "flags.json").exists() or metrics_csv.files(path):
        return str(path.resolve())
    return find(name)["directory"]
