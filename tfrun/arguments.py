"""Types of flags, and how a command says in one line what is wrong."""

import argparse
import math
import sys
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with a flag, without the usage above it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        sys.exit(fail(f"{message} ({self.prog} --help lists the flags)"))


def fail(error: object, code: int = 2) -> int:
    """Prints one line on standard error; returns the exit code."""
    print(f"tfrun: {error}", file=sys.stderr)
    return code


def count(text: str) -> int:
    """Returns a whole number from 0 to 99. Raises ArgumentTypeError."""
    if not 0 <= int(text) <= 99:
        raise argparse.ArgumentTypeError(f"must be from 0 to 99, is {text}")
    return int(text)


def seconds(text: str) -> float:
    """Returns a positive, finite number of seconds. Raises ArgumentTypeError."""
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, is {text}")
    return float(text)
