"""`tfrun monitor [RUN]`: its tasks, live, until it ends: what they use, and how far they are."""

import contextlib
import json
import sys
import time
from typing import Any

import psutil
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tfrun import formatting
from tfrun.commands import common
from tfrun.launch import cluster
from tfrun.runs import progress, registry

QUERY = ["--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]


def command(arguments: list[str]) -> int:
    """Shows the table until the run ends; returns the exit code."""
    parser = common.parser("monitor", __doc__, run="optional")
    parser.add_argument("--once", action="store_true", help="once, instead of every second")
    flags = parser.parse_args(arguments)
    record, screen = common.find(flags.run), common.console()
    processes: dict[psutil.Process, psutil.Process] = {}
    resources(record, processes)  # a share of processor time is that between two looks
    terminal = sys.stdout.isatty() and not flags.once and not flags.json
    in_place = Live(console=screen, auto_refresh=False, vertical_overflow="visible")
    with in_place if terminal else contextlib.nullcontext():
        while True:
            time.sleep(0.25 if flags.once else 1)
            record = common.refresh(record)
            seen = snapshot(record, processes)
            if flags.json:
                print(json.dumps(seen, indent=2 if flags.once else None), flush=True)
            elif terminal:
                in_place.update(table(seen, screen.width), refresh=True)
            else:
                screen.print(table(seen, screen.width))
            if flags.once or record["state"] != "running":
                return 0


def gpu_figures() -> dict[str, tuple[float, int]]:
    """Returns {index of a GPU, as text: (its use in %, its used memory in bytes)}; {} without."""
    figures = {}
    for line in cluster.nvidia_smi(*QUERY, seconds=5):
        with contextlib.suppress(ValueError):  # no figure: the GPU is not supported
            index, use, used = (field.strip() for field in line.split(","))
            figures[index] = float(use), int(float(used) * 2**20)
    return figures


def resources(record: dict[str, Any], processes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns {task: {"cpu_percent", "memory_bytes", "threads"}} of the tasks that run.

    cpu_percent is 100 for one core in use since the last look, None at the first look at a task.
    processes: {psutil.Process: itself} of the earlier looks, as each remembers when it was seen.
    """
    used = {}
    for task in record["tasks"]:
        root = registry.process(task["process"])
        if not root:
            continue
        first_look = root not in processes
        percent, memory, threads = 0.0, 0, 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [root, *root.children(recursive=True)]:
                process = processes.setdefault(process, process)
                with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                    percent += process.cpu_percent()
                    memory += process.memory_info().rss
                    threads += process.num_threads()
        share = None if first_look else percent
        used[task["task"]] = {"cpu_percent": share, "memory_bytes": memory, "threads": threads}
    return used


def snapshot(record: dict[str, Any], processes: dict[str, Any]) -> dict[str, Any]:
    """Returns all that monitor shows of a run, as --json prints it."""
    used, now = resources(record, processes), time.time()
    gpus = gpu_figures() if any(task["gpus"] != "-1" for task in record["tasks"]) else {}
    live = [formatting.file_name(name) for name in used]
    progress_of_run = progress.of_run(record["directory"], now, live)
    progress_of_tasks = progress_of_run.pop("tasks")
    tasks, all_memory = [], psutil.virtual_memory().total
    for task in record["tasks"]:
        running = task["task"] in used
        own = used.get(task["task"], dict.fromkeys(["cpu_percent", "memory_bytes", "threads"]))
        limit, memory = task["memory_limit"], own["memory_bytes"]
        lost = record["state"] == "lost" and task["state"] in ("running", "restarting", "waiting")
        visible = [*gpus] if task["gpus"] is None else task["gpus"].split(",")
        own_gpus = [name for name in visible if running and name in gpus]
        file_name = formatting.file_name(task["task"])
        facts = {name: value for name, value in task.items() if name != "process"}
        tasks.append(
            {
                **facts,
                "state": "lost" if lost else task["state"],
                "pid": task["process"]["pid"] if running else None,
                **own,
                "memory_percent": 100 * memory / (limit or all_memory) if running else None,
                "gpus": own_gpus,
                "gpu_percent": progress.mean([gpus[name][0] for name in own_gpus]),
                "gpu_memory_bytes": sum(gpus[name][1] for name in own_gpus) if own_gpus else None,
                **progress_of_tasks.pop(file_name, progress.UNKNOWN),
            }
        )
    # The ranks of horovodrun are no tasks of tfrun's own, but leave metrics.
    for name, rank in progress_of_tasks.items():
        tasks.append({"task": name.replace("-", " "), **rank})
    facts = {name: record[name] for name in registry.FACTS}
    return {**facts, **progress_of_run, "tasks": tasks}


def memory(task: dict[str, Any]) -> str:
    """Returns what a task uses, and its limit where it has one."""
    limit = f" of {formatting.size_text(task['memory_limit'])}" if task.get("memory_limit") else ""
    return formatting.size_text(task["memory_bytes"]) + limit if task.get("memory_bytes") else ""


# The columns of the table: title, text of a task, and how wide a terminal has to be for it.
COLUMNS = [
    ("task", lambda task: task["task"], 0),
    ("state", lambda task: task.get("state", ""), 0),
    ("restarts", lambda task: formatting.number_text(task.get("restarts"), "%d"), 90),
    ("CPU %", lambda task: formatting.number_text(task.get("cpu_percent"), "%.0f"), 30),
    ("memory", memory, 60),
    ("memory %", lambda task: formatting.number_text(task.get("memory_percent"), "%.1f"), 70),
    ("GPU %", lambda task: formatting.number_text(task.get("gpu_percent"), "%.0f"), 45),
    ("GPU memory", lambda task: formatting.size_text(task.get("gpu_memory_bytes")), 55),
    ("steps/s", lambda task: formatting.rate_text(task["steps_per_second"]), 36),
    ("staleness", lambda task: formatting.number_text(task["staleness"], "%.2f"), 80),
    ("loss", lambda task: formatting.number_text(task["loss"]), 50),
]


def headline(seen: dict[str, Any]) -> str:
    """Returns one line about the run as a whole."""
    parts = [f"{seen['run']}: {seen['state']}"]
    if seen["started"]:
        how = "after" if seen["ended"] else "for" if seen["state"] == "running" else "for at most"
        parts[0] += (
            f" {how} {formatting.age_text((seen['ended'] or time.time()) - seen['started'])}"
        )
    if seen["update"]:
        steps = f" of {seen['steps']:,}" if seen["steps"] else ""
        parts.append(f"update {seen['update']:,}{steps}")
    return ", ".join(filter(None, [*parts, formatting.tests_text(seen["test"])]))


def table(seen: dict[str, Any], width: int) -> Group:
    """Returns the table of a snapshot, for a terminal of that many columns."""
    shown, texts = Table(box=None), []
    has_gpus = any(task.get("gpus") for task in seen["tasks"])
    for title, text, least_width in COLUMNS:
        if least_width <= width and (has_gpus or not title.startswith("GPU")):
            is_text = title in ("task", "state")
            shown.add_column(title, justify="left" if is_text else "right", no_wrap=True)
            texts.append(text)
    for task in seen["tasks"]:
        shown.add_row(*(text(task) for text in texts))
    return Group(Text(headline(seen), style="bold"), shown)
