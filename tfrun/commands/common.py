"""What commands share: the argument RUN, the record that it means, and tables on the screen."""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from tfrun.arguments import Parser, fail
from tfrun.runs import metrics_csv, registry

SEE = "(tfrun status lists all)"


def console() -> Console:
    """Returns rich's console; what goes to no terminal is not cut to the width of one."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return Console(highlight=False, markup=False, emoji=False, width=width)


def parser(
    command: str, description: str, run: str | None = "required", json_too: bool = True
) -> Parser:
    """Returns the parser of a command. run: whether a RUN is "required", "optional", or None."""
    new_parser = Parser(prog=f"tfrun {command}", description=description)
    if run:
        optional, text = run == "optional", "its name, a part of that, or its directory"
        if optional:
            text += "; by default the newest that runs"
        new_parser.add_argument("run", metavar="RUN", nargs="?" if optional else None, help=text)
    if json_too:
        new_parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    return new_parser


def parser_of_script(name: str, description: str) -> Parser:
    """Returns the parser of a command that imports the script of a run."""
    new_parser = parser(name, description, run=None, json_too=False)
    new_parser.add_argument("directory", metavar="DIR", type=pathlib.Path, help="the run directory")
    new_parser.add_argument("--script", metavar="FILE", help="instead of the script that ran")
    return new_parser


def exit_code(action: Callable[[argparse.Namespace], object], flags: argparse.Namespace) -> int:
    """Calls action(flags); returns 0, or 1 after one line that says what does not work."""
    try:
        action(flags)
    except (OSError, ValueError, ImportError) as error:
        return fail(error, 1)
    return 0


def find(name: str | None, unreadable_too: bool = False, moved_too: bool = False) -> dict[str, Any]:
    """Returns the record that `name` means: a run, a part of its name, or its directory.

    Without a name it is the newest run that goes on, else the newest. Ends with one line if there
    is no such record, if there are several, or if it cannot be read. moved_too: a directory with
    logs that no record names counts as well.
    """
    if name == "":
        sys.exit(fail(f"RUN is empty {SEE}"))
    records = registry.read_all()
    if name is None and not records:
        sys.exit(fail("there is no run yet"))
    matching = (
        [record for record in records if name in (None, record["run"])]
        or [record for record in records if name and record["directory"] == os.path.realpath(name)]
        or [record for record in records if name in record["run"]]
    )
    matching = [record for record in matching if record["state"] == "running"] or matching
    if not matching and moved_too and name and (record := registry.record_of_moved(name)):
        return record
    if not matching:
        sys.exit(fail(f"there is no run {name} {SEE}"))
    if name is not None and len(matching) > 1:
        names = ", ".join(record["run"] for record in matching[-5:])
        sys.exit(fail(f"{name} may mean {len(matching)} runs: {names} {SEE}"))
    record = matching[-1]
    if record["state"] == "unreadable" and not unreadable_too:
        sys.exit(fail(f"the record of {record['run']} cannot be read; tfrun kill removes it"))
    return record


def refresh(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the record as it is now; if it has gone, as it was, with the state removed."""
    if record["path"] is None:  # a directory that has moved
        return record
    return registry.read(record["path"]) or {**record, "state": "removed"}


def directory_of(name: str) -> str:
    """Returns the run directory that `name` means: of a record, or any with what a run leaves."""
    path = pathlib.Path(name)
    if (path / "flags.json").exists() or metrics_csv.files(path):
        return str(path.resolve())
    return find(name)["directory"]
