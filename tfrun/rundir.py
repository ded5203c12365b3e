"""The run directory: where it is, and what is made and removed there."""

import datetime
import itertools
import json
import os
import pathlib
import shutil

FINISHED = "There is a finished run in {}; set OUTPUT_DIR to another folder"


def base(example):
    """The folder of all runs of an example."""
    return pathlib.Path(os.environ.get("RUNS_DIR") or "runs").resolve() / example


class RunDirectory:
    """OUTPUT_DIR, or a new folder that `latest` points to; `path` is where. Raises OSError."""

    def __init__(self, example):
        self.made, self.latest = [], None
        if os.environ.get("OUTPUT_DIR"):
            self.path = given()
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            parents = [base(example), base(example).parent]
            new = [folder for folder in parents if not folder.exists()]
            base(example).mkdir(parents=True, exist_ok=True)
            self.path = new_folder(base(example))
            self.made = [self.path, *new]
            link = base(example) / "latest"
            self.latest = os.readlink(link) if link.is_symlink() else None
            point(link, self.path.name)
        with open(self.path / ".writable", "w"):
            pass
        (self.path / ".writable").unlink()

    def discard(self):
        """Removes the folder and points `latest` where it was; returns whether it did.

        A folder that was given is left as it is.
        """
        if not self.made:
            return False
        link = self.path.parent / "latest"
        if link.is_symlink() and os.readlink(link) == self.path.name:
            if self.latest:
                point(link, self.latest)
            else:
                link.unlink()
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self.made[1:]:
            try:
                folder.rmdir()
            except OSError:  # another run is there
                break
        return True


def given():
    """The folder that OUTPUT_DIR names, None where it names none."""
    name = os.environ.get("OUTPUT_DIR")
    return pathlib.Path(name).resolve() if name else None


def point(link, target):
    """Points a link at `target` in one go, so that two runs at once never leave it missing."""
    new = link.with_name(".latest-%d" % os.getpid())
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


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
    """The content of result.json, or None where there is none."""
    try:
        return json.loads((directory / "result.json").read_text())
    except (OSError, ValueError):
        return None


def count_rows(directory):
    """The number of lines in all metrics of a directory, less headers and marks."""
    return sum(
        line[:1].isdigit()
        for path in directory.glob("metrics-*.csv")
        for line in path.read_bytes().splitlines()
    )
