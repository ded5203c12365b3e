"""`tfrun curves DIR...`: draws curves.png of such a run, also while it goes on."""

import pathlib

from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.pictures import curves
from tfrun.runs import run_directory
from tfrun.runs.data import RunData


def command(arguments: list[str]) -> int:
    """Draws each run and prints where its picture is; returns the exit code."""
    parser = common.parser("curves", __doc__, run=None, json_too=False)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="DIR")
    for path in parser.parse_args(arguments).paths:
        try:
            run_directory.read_flags(path)
            picture = curves.draw(RunData.read(path))
        except (OSError, ValueError) as error:
            return fail(error, 1)
        if not picture:
            return fail(f"no update was made yet in {path}", 1)
        print(picture)
    return 0
