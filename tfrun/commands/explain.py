"""`tfrun explain LOG...`: what the error at the end of a log means."""

import pathlib

from tfrun import errors
from tfrun.arguments import fail
from tfrun.commands import common


def command(arguments: list[str]) -> int:
    """Explains the last known error of each log; returns the exit code."""
    parser = common.parser("explain", __doc__, run=None, json_too=False)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="LOG")
    code = 0
    for path in parser.parse_args(arguments).paths:
        try:
            meaning = errors.explain(path.read_text(errors="replace"))
        except OSError as error:
            code = fail(error)
            continue
        print(f"{path}: {meaning or 'no known error'}")
        code = code or int(meaning is None)
    return code
