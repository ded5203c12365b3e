"""`tfrun scale RUN --workers N`: adds workers to a live run, or lets some leave it."""

import json
import pathlib
from typing import Any

from tfrun import formatting
from tfrun.arguments import count, fail
from tfrun.commands import common
from tfrun.runs import registry, scaling
from tfrun.runs.waiting import wait_for

TAKE_SECONDS = 10  # that a launcher may take to see the request
STAYING = ("waiting", "running", "restarting")  # the states of workers that count


def command(arguments: list[str]) -> int:
    """Asks the launcher of the run; returns the exit code."""
    parser = common.parser("scale", __doc__)
    parser.add_argument(
        "--workers", type=count, required=True, metavar="N", help="how many it shall have"
    )
    flags = parser.parse_args(arguments)
    if not flags.workers:
        parser.error("--workers must be at least 1: the first one tests and saves w")
    directory = pathlib.Path(common.directory_of(flags.run))
    record = registry.record_of(directory)
    if record and record["state"] != "running":
        return fail(f"{record['run']} has ended already: {record['state']}", 1)
    if record and not any(task["role"] == "ps" for task in record["tasks"]):
        return fail(f"{record['run']} has no ps: its number of workers cannot change", 1)
    before = names_of_workers(record)
    scaling.ask(directory, flags.workers)
    if not wait_for(lambda: scaling.asked(directory) is None, TAKE_SECONDS, 0.1):
        scaling.answer(directory)
        return fail(
            f"no launcher of {directory} has answered: it has ended, or cannot add workers",
            1,
        )
    record = registry.record_of(directory)
    if record is None:  # a launcher of another engine
        print(f"the launcher of {directory} has been asked for {flags.workers} workers")
        return 0
    after = names_of_workers(record)
    changes = {"join": sorted(after - before), "leave": sorted(before - after)}
    if flags.json:
        print(json.dumps({"run": record["run"], "workers": len(after), **changes}))
    if len(after) != flags.workers:
        return fail(f"{record['run']} has {len(after)} workers: what its tfrun printed says why", 1)
    if not flags.json:
        texts = [
            f"{', '.join(names)} {what}{'s' * (len(names) == 1)}"
            for what, names in changes.items()
            if names
        ]
        number = formatting.plural(len(after), "worker")
        print(f"{record['run']}, {number}: {'; '.join(texts) or 'as before'}")
    return 0


def names_of_workers(record: dict[str, Any] | None) -> set[str]:
    """Returns the names of the workers that run and stay."""
    tasks = record["tasks"] if record else []
    return {t["task"] for t in tasks if t["role"] == "worker" and t["state"] in STAYING}
