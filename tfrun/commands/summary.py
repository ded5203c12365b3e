"""`tfrun summary DIR...`: result.json of a run that another launcher has started."""

import json
import pathlib
from collections.abc import Callable

from tfrun import formatting
from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.pictures import curves
from tfrun.runs import event_files, summary
from tfrun.runs.data import RunData


def command(arguments: list[str]) -> int:
    """Writes result.json and prints it; returns the exit code."""
    parser = common.parser("summary", __doc__, run=None, json_too=False)
    parser.add_argument("--line", action="store_true", help="print the tests only, as a run does")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="DIR")
    flags = parser.parse_args(arguments)
    try:
        run = RunData.read(*flags.paths)
        result = summary.write(run)
        event_files.write(run)
    except (OSError, ValueError) as error:
        return fail(error, 1)
    if flags.line:
        print(
            f"[tfrun] {formatting.tests_text(result)}; everything of this run is in {run.directory}"
        )
    else:
        print(json.dumps(result, indent=2))
    if missing := summary.missing_tasks(result):
        fail(missing)
    if "other_data" in result:
        return fail(result["other_data"], 1)
    return 0


def conclude(directory: pathlib.Path, code: int, say: Callable[[str], object]) -> int:
    """Writes what comes of a run whose tasks are done, and says it; returns the exit code.

    code: that of the tasks, which stays unless it is 0. say: prints a line.
    """
    try:
        run = RunData.read(directory)
        result = summary.write(run)
    except (OSError, ValueError) as error:
        say(f"there is no result: {error}")
        return code or 1
    if missing := summary.missing_tasks(result):
        say(missing)
    if "other_data" in result:
        say(result["other_data"])
        code = code or 1
    try:
        event_files.write(run)
        picture = curves.draw(run)
    except OSError as error:
        say(f"there is no picture: {error}")
        return code or 2
    its_picture = f", and its picture {picture.name}," if picture else ""
    say(f"{formatting.tests_text(result)}; everything of this run{its_picture} is in {directory}")
    return code
