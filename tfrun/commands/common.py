"""What the commands about runs share: the argument RUN, and the record that it means."""

import argparse
import pathlib
import sys

from tfrun.arguments import fail
from tfrun.runs import metrics_csv, registry


def parser(command: str, description: str, run="required", json_too=True):
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


def find(name: str | None, unreadable_too=False) -> dict:
    """Returns the record that `name` means; ends with one line if there is none."""
    try:
        record = registry.find(name)
    except LookupError as error:
        sys.exit(fail(error))
    if record["state"] == "unreadable" and not unreadable_too:
        sys.exit(fail(f"the record of {record['run']} cannot be read; tfrun kill removes it"))
    return record


def refreshed(record: dict) -> dict:
    """Returns the record as it is now; if it has gone, as it was, with the state removed."""
    return registry.read(record["path"]) or {**record, "state": "removed"}


def directory_of(name: str) -> str:
    """Returns the run directory that `name` means: of a record, or any with what a run leaves."""
    path = pathlib.Path(name)
    if (path / "flags.json").exists() or metrics_csv.files(path):
        return str(path.resolve())
    return find(name)["directory"]
