"""`tfrun explain LOG...`: what the error at the end of a log means."""

import pathlib

from tfrun import errors
from tfrun.arguments import Parser, fail


def command(arguments: list[str]) -> int:
    """Explains the last known error of each log; returns the exit code."""
    parser = Parser(prog="tfrun explain")
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
