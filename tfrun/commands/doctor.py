"""`tfrun doctor RUN`: what limits a run, live or ended, with its evidence, and what to change.

If it finds nothing, the run spends its time computing, as it should. --stacks shows where the
Python threads of all its tasks are; a live run that hangs shows it without the flag.
"""

import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import psutil

from tfrun import formatting
from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.diagnosis import facts, places, rules, usage
from tfrun.launch import cluster, stacks
from tfrun.runs import registry
from tfrun.runs.data import RunData

PARTS = {"compute": "computing", "way": "on the way", "waiting": "waiting", "testing": "testing"}


def command(arguments: list[str]) -> int:
    """Prints what limits the run; returns the exit code."""
    parser = common.parser("doctor", __doc__)
    parser.add_argument("--stacks", action="store_true", help="show where all threads are")
    flags = parser.parse_args(arguments)
    directory = pathlib.Path(common.directory_of(flags.run))
    record = registry.record_of(directory)
    try:
        data = RunData.read(directory)
    except OSError as error:
        return fail(error, 1)
    if record is None:
        data = data.without_pauses()
    known = facts.of_run(
        data,
        usage.read(directory),
        state=record["state"] if record else "unknown",
        started=record["started"] if record else None,
        ended=record["ended"] if record else None,
        now=time.time() if record and record["state"] == "running" else None,
        has_gpus=sees_gpus(record),
    )
    limits = rules.findings(known)
    shown = {}
    if record and (flags.stacks or any(finding.limit == rules.HANG for finding in limits)):
        shown = stacks_of(record)
    if flags.json:
        print(json.dumps(as_json(known, limits, shown), indent=2))
    else:
        print("\n".join(words(known, limits, shown)))
    return 0


def sees_gpus(record: Mapping[str, Any] | None) -> bool:
    """Returns whether a task may compute on a GPU. How busy a GPU is, nobody records."""
    visible = [task["gpus"] for task in record["tasks"]] if record else [None]
    own = any(gpus not in (None, "", "-1") for gpus in visible)
    return own or None in visible and bool(cluster.gpus())


def stacks_of(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns {task: a line for each of its threads}; of a task that runs, where they are now."""
    lines = {}
    for task in record["tasks"]:
        path = stacks.path_of(pathlib.Path(task["log"]))
        text, process = None, registry.process(task["process"])
        if process:
            try:
                text = stacks.ask(process, path)
            except (psutil.Error, OSError):
                text = None
        elif path.exists():
            text = stacks.last_dump(path)
        seen = places.read(path.parent, formatting.file_name(task["task"])).last()
        lines[task["task"]] = stacks.summary(text) if text else seen
    return lines


def as_json(
    known: facts.Facts, limits: list[rules.Finding], shown: dict[str, list[str]]
) -> dict[str, Any]:
    """Returns what --json prints: findings, the shares of each worker's time, cores, stacks.

    A use is in cores: those that a worker had, and those that its threads waited for.
    """
    shares = {
        worker.name: {name: worker.share(part) for part, name in PARTS.items()}
        for worker in known.active
    }
    uses = {worker.name: worker.use._asdict() for worker in known.active if worker.use}
    numbers = {"run": known.run_cores, "all": known.all_cores, "allowed": known.cores}
    cores = {name: formatting.finite(number) for name, number in numbers.items()}
    findings = [finding._asdict() for finding in limits]
    return {"findings": findings, "shares": shares, "use": uses, "cores": cores, "stacks": shown}


def words(
    known: facts.Facts, limits: list[rules.Finding], shown: dict[str, list[str]]
) -> list[str]:
    """Returns the lines about a run."""
    count = formatting.plural(len(known.active), "worker")
    lines = [f"{known.example}: {known.state}, {known.steps:,.0f} updates by {count}"]
    if known.active:
        shares = [f"{known.mean(part):.0%} {name}" for part, name in PARTS.items()]
        lines.append(f"a worker's time: {', '.join(shares)}")
    for finding in limits:
        gain = f" ({finding.gain:.2g} times as fast)" if finding.gain else ""
        lines += [
            f"limited by {finding.limit}",
            f"  evidence:  {finding.evidence}",
            f"  to change: {finding.change}{gain}",
        ]
    if not limits:
        lines.append("nothing limits it but its own work")
    for task, threads in shown.items():
        lines.append(f"{task}: {'its threads are in' if threads else 'it has left no stacks'}")
        lines += [f"  {line}" for line in threads]
    return lines
