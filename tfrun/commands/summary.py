"""`tfrun summary DIR...`: result.json of a run that another launcher has started."""

import json
import pathlib

from tfrun import formatting
from tfrun.arguments import Parser, fail
from tfrun.runs import events, summary
from tfrun.runs.data import RunData


def command(arguments: list[str]) -> int:
    """Writes result.json and prints it; returns the exit code."""
    parser = Parser(prog="tfrun summary")
    parser.add_argument("--line", action="store_true", help="print the tests only, as a run does")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="DIR")
    flags = parser.parse_args(arguments)
    try:
        run = RunData.read(*flags.paths)
        result = summary.write(run)
        events.write(run)
    except (OSError, ValueError) as error:
        return fail(error, 1)
    if flags.line:
        tests = formatting.tests(result)
        print(f"[tfrun] {tests}; everything of this run is in {flags.paths[0]}")
    else:
        print(json.dumps(result, indent=2))
    if missing := summary.missing_tasks(result):
        fail(missing)
    return 0
