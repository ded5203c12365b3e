"""`tfrun monitor [RUN]`: the live table of the tasks of a run: what they cost, how far they are."""

import contextlib
import json
import shutil
import subprocess
import sys
import time

import psutil
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tfrun import formatting
from tfrun.commands import common
from tfrun.commands.console import console
from tfrun.runs import progress, registry

QUERY = ["--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]


def command(arguments: list[str]) -> int:
    """Shows the table until the run ends; returns the exit code."""
    about = "The tasks of a run, live, until it ends: what they use, and how far they are."
    parser = common.parser("monitor", about, run="optional")
    parser.add_argument("--once", action="store_true", help="once, instead of every second")
    flags = parser.parse_args(arguments)
    record, sampler, screen = common.find(flags.run), Sampler(), console()
    sampler.look(record)  # a share of processor time is that between two looks
    terminal = sys.stdout.isatty() and not flags.once and not flags.json
    in_place = Live(console=screen, auto_refresh=False, vertical_overflow="visible")
    look_at = time.monotonic()
    with in_place if terminal else contextlib.nullcontext():
        while True:
            look_at += 0.25 if flags.once else 1
            time.sleep(max(0.0, look_at - time.monotonic()))
            record = common.refreshed(record)
            seen = snapshot(record, sampler)
            if flags.json:
                print(json.dumps(seen, indent=2 if flags.once else None), flush=True)
            elif terminal:
                in_place.update(table(seen, screen.width), refresh=True)
            else:
                screen.print(table(seen, screen.width))
            if flags.once or record["state"] != "running":
                return 0


def gpu_figures():
    """{index of a GPU, as text: (its use in %, its used memory in bytes)}; {} without any."""
    if not shutil.which("nvidia-smi"):
        return {}
    figures = {}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
        command = ["nvidia-smi", *QUERY]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
        for line in listed.splitlines():
            index, use, used = (field.strip() for field in line.split(","))
            figures[index] = float(use), int(float(used) * 2**20)
    return figures


class Sampler:
    """Looks at the processes of a run's tasks; processor time is that since the look before."""

    def __init__(self):
        self.before = {}  # {identity of a task: (time, processor seconds of each of its processes)}

    def look(self, record):
        """{task: {"cpu_percent", "memory_bytes", "threads"}} of the tasks that run.

        cpu_percent is 100 for one core in use, None at the first look at a task.
        """
        found, children = {}, self.children(record)
        for task in record["tasks"]:
            root = registry.process(task["process"]) if task["process"] else None
            if not root:
                continue
            seconds, memory, threads = {}, 0, 0
            for process in [root, *children(root.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                    times = process.cpu_times()
                    seconds[process.pid] = times.user + times.system
                    memory += process.memory_info().rss
                    threads += process.num_threads()
            key, now = tuple(task["process"].values()), time.monotonic()
            then, earlier = self.before.get(key, (now, {}))
            self.before[key] = now, seconds
            spent = sum(spent - earlier.get(pid, 0.0) for pid, spent in seconds.items())
            found[task["task"]] = {
                "cpu_percent": 100 * spent / (now - then) if now > then else None,
                "memory_bytes": memory,
                "threads": threads,
            }
        return found

    @staticmethod
    def children(record):
        """A function: the processes below a process, by one look at all that tfrun has started."""
        parents = {}
        launcher = registry.process(record["tfrun"])
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in launcher.children(recursive=True) if launcher else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    parents.setdefault(each.ppid(), []).append(each)

        def below(pid):
            return [p for child in parents.get(pid, []) for p in (child, *below(child.pid))]

        return below


def snapshot(record, sampler):
    """All that monitor shows of a run, as --json prints it."""
    costs, now = sampler.look(record), time.time()
    gpus = gpu_figures() if any(task["gpus"] != "-1" for task in record["tasks"]) else {}
    live = [formatting.file_name(name) for name in costs]
    facts = progress.of_run(record["directory"], now, live)
    tasks, total = [], psutil.virtual_memory().total
    for task in record["tasks"]:
        cost = costs.get(task["task"], {})
        lost = record["state"] == "lost" and task["state"] in ("running", "restarting", "waiting")
        seen = [*gpus] if task["gpus"] is None else task["gpus"].split(",")
        own = [name for name in seen if name in gpus and cost]
        memory = cost.get("memory_bytes")
        tasks.append(
            {
                **{name: task[name] for name in ("task", "role", "restarts", "exit_code", "log")},
                "state": "lost" if lost else task["state"],
                "pid": task["process"]["pid"] if cost else None,
                "cpu_percent": cost.get("cpu_percent"),
                "cores": task["cpus"],
                "threads": cost.get("threads"),
                "memory_bytes": memory,
                "memory_limit": task["memory_limit"],
                "memory_percent": 100 * memory / (task["memory_limit"] or total) if cost else None,
                "gpus": own,
                "gpu_percent": progress.mean([gpus[name][0] for name in own]),
                "gpu_memory_bytes": sum(gpus[name][1] for name in own) if own else None,
                **facts["tasks"].pop(
                    formatting.file_name(task["task"]), progress.of_task([], now, 0)
                ),
            }
        )
    # The ranks of horovodrun are no tasks of tfrun's own, but leave metrics.
    ranks = [{"task": name.replace("-", " "), **each} for name, each in facts["tasks"].items()]
    return {
        **{name: record[name] for name in ("run", "state", "example", "directory")},
        **{name: record[name] for name in ("started", "ended", "exit_code")},
        **{name: facts[name] for name in ("update", "steps", "test")},
        "tasks": tasks + ranks,
    }


def memory(task):
    """What a task uses, and its limit where it has one."""
    limit = " of " + formatting.size(task["memory_limit"]) if task.get("memory_limit") else ""
    return formatting.size(task["memory_bytes"]) + limit if task.get("memory_bytes") else ""


# The columns of the table: title, text of a task, and how wide a terminal has to be for it.
COLUMNS = [
    ("task", lambda task: task["task"], 0),
    ("state", lambda task: task.get("state", ""), 0),
    ("restarts", lambda task: formatting.number(task.get("restarts"), "%d"), 90),
    ("CPU %", lambda task: formatting.number(task.get("cpu_percent"), "%.0f"), 30),
    ("memory", memory, 60),
    ("memory %", lambda task: formatting.number(task.get("memory_percent"), "%.1f"), 70),
    ("GPU %", lambda task: formatting.number(task.get("gpu_percent"), "%.0f"), 45),
    ("GPU memory", lambda task: formatting.size(task.get("gpu_memory_bytes")), 55),
    ("steps/s", lambda task: formatting.rate(task["steps_per_second"]), 36),
    ("staleness", lambda task: formatting.number(task["staleness"], "%.2f"), 80),
    ("loss", lambda task: formatting.number(task["loss"]), 50),
]


def headline(seen):
    """One line about the run as a whole."""
    parts = ["%s: %s" % (seen["run"], seen["state"])]
    if seen["started"]:
        end = seen["ended"] or time.time()
        how = "after" if seen["ended"] else "for" if seen["state"] == "running" else "for at most"
        parts[0] += " %s %s" % (how, formatting.age(end - seen["started"]))
    if seen["update"]:
        of = " of {:,}".format(seen["steps"]) if seen["steps"] else ""
        parts.append("update {:,}{}".format(seen["update"], of))
    return ", ".join(filter(None, [*parts, formatting.tests(seen["test"])]))


def table(seen, width):
    """The table of a snapshot, for a terminal of that many columns."""
    shown = Table(box=None)
    gpus = any(task.get("gpus") for task in seen["tasks"])
    columns = [
        (title, text)
        for title, text, needs in COLUMNS
        if needs <= width and (gpus or not title.startswith("GPU"))
    ]
    for title, _ in columns:
        left = title in ("task", "state")
        shown.add_column(title, justify="left" if left else "right", no_wrap=True)
    for task in seen["tasks"]:
        shown.add_row(*(text(task) for _, text in columns))
    return Group(Text(headline(seen), style="bold"), shown)
