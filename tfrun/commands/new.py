"""`tfrun new NAME`: makes a folder with an example, your problem and a test of its equation.

    tfrun new my-app --from HogWild --model my.py

The folder has the script with your data and model, run.sh, job.yaml, a Dockerfile, a workflow for
GitHub, and a test that compares the script with the equation in NumPy. It needs no clone.
"""

import argparse
import pathlib
import re
import shlex

import tfrun
from tfrun.apps import app, material
from tfrun.arguments import fail
from tfrun.commands import common


def folder_name(text: str) -> str:
    """Returns the name of a folder. Raises ArgumentTypeError if it is none, or a path."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a folder: use letters, digits, - and _, as in my-app"
        )
    return text


def command(arguments: list[str]) -> int:
    """Makes the folder; returns the exit code."""
    options = common.parser("new", __doc__, run=None, json_too=False)
    options.add_argument("name", type=folder_name, metavar="NAME", help="of the new folder")
    text = "the example: " + ", ".join(material.scripts())
    options.add_argument("--from", dest="example", required=True, metavar="EXAMPLE", help=text)
    text = "your data and model, as for tfrun --problem (the digits of the example)"
    options.add_argument("--model", type=pathlib.Path, metavar="FILE", help=text)
    flags = options.parse_args(arguments)
    folder = pathlib.Path(flags.name)
    if folder.exists():
        return fail(f"{folder} exists already: choose another name")
    try:
        app.write(folder, app.texts_of(flags.name, flags.example, flags.model))
    except ValueError as error:
        return fail(error)
    except OSError as error:
        return fail(f"{folder} cannot be written: {error.strerror or error}")
    wheel = app.wheel()
    what = f"{flags.example} with {flags.model}" if flags.model else flags.example
    print(f"{folder}: {what}, by tfrun {tfrun.__version__}; README.md says how to use it")
    if wheel.source:
        source = shlex.quote(str(wheel.source))
        print(f"requirements.txt needs tfrun's wheel: pip wheel --no-deps -w {folder} {source}")
    elif wheel.requirement.startswith("./") and not wheel.file:
        print(f"requirements.txt needs tfrun's wheel: copy the one you installed into {folder}")
    return 0
