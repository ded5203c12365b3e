"""`tfrun status`: all your runs on this machine, alive and past; the newest is the last."""

import json
import time
from typing import Any

from rich.table import Table

from tfrun import formatting
from tfrun.arguments import count
from tfrun.commands import common
from tfrun.runs import progress, registry

# The columns, and how wide a terminal has to be for each.
COLUMNS = {"run": 0, "state": 0, "began": 90, "lasted": 60, "updates": 70, "result": 50}


def command(arguments: list[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = common.parser("status", __doc__, run=None)
    parser.add_argument("-n", type=count, default=0, metavar="N", help="only the newest N (0: all)")
    flags = parser.parse_args(arguments)
    runs = [status(record) for record in registry.read_all()[-flags.n :]]
    if flags.json:
        print(json.dumps(runs, indent=2))
        return 0
    if not runs:
        print("there is no run yet")
        return 0
    screen, table = common.console(), Table(box=None)
    columns = [title for title, width in COLUMNS.items() if width <= screen.width]
    for title in columns:
        table.add_column(title, overflow="fold", no_wrap=title not in ("run", "result"))
    for run in runs:
        texts = {
            "run": run["run"],
            "state": run["state"] + (f" ({run['exit_code']})" if run["exit_code"] else ""),
            "began": time.strftime("%Y-%m-%d %H:%M", time.localtime(run["started"])),
            "lasted": "" if run["age_seconds"] is None else formatting.age_text(run["age_seconds"]),
            "updates": f"{run['update']:,}" if run["update"] else "",
            "result": formatting.tests_text(run["test"]),
        }
        table.add_row(*(texts[title] for title in columns))
    screen.print(table)
    return 0


def status(record: dict[str, Any]) -> dict[str, Any]:
    """Returns what status shows of a run, as --json prints it. age_seconds: how long it ran."""
    facts = {n: record[n] for n in registry.FACTS} | {"update": None, "steps": None, "test": {}}
    end = time.time() if record["state"] == "running" else record["ended"]
    facts["age_seconds"] = end - record["started"] if end else None  # lost: nobody knows
    if record["directory"]:
        facts |= progress.of_run(record["directory"], time.time())
        del facts["tasks"]
    return {**facts, "accuracy": facts["test"].get("test_accuracy")}
