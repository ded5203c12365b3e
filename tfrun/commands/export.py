"""`tfrun export DIR`: the trained model of a run as a .keras file and as a SavedModel.

tfrun/runs/models.py says how the model is made anew.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from tfrun import formatting
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
    parser = common.parser_of_script("export", __doc__)
    return common.exit_code(run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
