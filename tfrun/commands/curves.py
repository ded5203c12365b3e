"""`tfrun curves DIR...`: the picture of a run, also of one that goes on."""

import pathlib

from tfrun.arguments import Parser, fail
from tfrun.pictures import curves
from tfrun.runs import run_directory
from tfrun.runs.data import RunData


def command(arguments: list[str]) -> int:
    """Draws each run and prints where its picture is; returns the exit code."""
    parser = Parser(prog="tfrun curves")
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
