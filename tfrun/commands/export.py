"""`tfrun export DIR`: the trained model of a run as a .keras file and as a SavedModel.

tfrun/runs/models.py says how the model is made anew.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from tfrun import formatting
from tfrun.arguments import Parser, fail
from tfrun.commands import common
from tfrun.runs import models


def write(model: Any, directory: pathlib.Path) -> Iterator[str]:
    """Writes model.keras and saved_model/, each whole or not at all; yields a line about each.

    Of a problem of one's own it is the user's model.
    """
    model, names = getattr(model, "own", model), ["model.keras", "saved_model"]
    with tempfile.TemporaryDirectory(prefix=".export-", dir=directory) as folder:
        partial = pathlib.Path(folder)
        model.export(partial / "saved_model", verbose=False)
        try:
            model.save(partial / "model.keras")
        except (NotImplementedError, TypeError, ValueError) as error:  # a layer has no get_config()
            yield f"no {names.pop(0)}: {' '.join(str(error).split())[:300]}"
        shutil.rmtree(directory / "saved_model", ignore_errors=True)
        for name in names:
            yield f"wrote {(partial / name).replace(directory / name)}"


def parser(name: str, description: str) -> Parser:
    """Returns the parser of a command that imports the script of a run."""
    made = common.parser(name, description, run=None, json_too=False)
    made.add_argument("directory", metavar="DIR", type=pathlib.Path, help="the run directory")
    made.add_argument("--script", metavar="FILE", help="instead of the script that ran")
    return made


def exit_code(action: Callable[[argparse.Namespace], object], flags: argparse.Namespace) -> int:
    """Calls action(flags); returns 0, or 1 after one line that says what does not work."""
    try:
        action(flags)
    except (OSError, ValueError, ImportError) as error:
        return fail(error, 1)
    return 0


def run(flags: argparse.Namespace) -> None:
    """Exports the model. Raises OSError, ValueError, ImportError."""
    directory = flags.directory.resolve()
    model, data, module, step = models.trained_model(directory, flags.script)
    tests = [formatting.test_text(*test) for test in models.evaluate(model, data, module).items()]
    print(f"after {step} updates: {', '.join(tests)}")
    for line in write(model, directory):
        print(line)


def command(arguments: list[str]) -> int:
    """Runs the command; returns its exit code."""
    return exit_code(run, parser("export", __doc__).parse_args(arguments))


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
