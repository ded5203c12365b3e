"""The run directory: where it is, and what is said of it at the end."""

import datetime
import itertools
import json
import os
import pathlib


def base(example):
    """The folder of all runs of an example."""
    return pathlib.Path(os.environ.get("RUNS_DIR") or "runs").resolve() / example


def prepare(example):
    """The run directory, OUTPUT_DIR or a new one that `latest` points to. Raises OSError."""
    if os.environ.get("OUTPUT_DIR"):
        directory = pathlib.Path(os.environ["OUTPUT_DIR"]).resolve()
        directory.mkdir(parents=True, exist_ok=True)
    else:
        base(example).mkdir(parents=True, exist_ok=True)
        directory = new_folder(base(example))
        # Replaced in one go, so that two runs at once never leave it missing.
        link = base(example) / (".latest-%d" % os.getpid())
        link.unlink(missing_ok=True)
        link.symlink_to(directory.name)
        link.replace(base(example) / "latest")
    with open(directory / ".writable", "w"):
        pass
    (directory / ".writable").unlink()
    return directory


def new_folder(parent):
    """A new folder in `parent` that is named after the time, with a number behind it if need be."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in itertools.chain([""], ("-%d" % i for i in itertools.count(2))):
        try:
            (parent / (now + suffix)).mkdir()
            return parent / (now + suffix)
        except FileExistsError:
            pass


def result(directory):
    """The content of result.json, or None where the run did not get that far."""
    try:
        return json.loads((directory / "result.json").read_text())
    except (OSError, ValueError):
        return None
