"""Finds what `tfrun new` makes a folder of: in the wheel, or in the clone.

The wheel has copies of files() below tfrun/apps/material, which setup.py puts there when it is
built. The clone has no such folder: there they stand where they are written.
"""

import pathlib

from tfrun import problems

COPIES = pathlib.Path(__file__).with_name("material")
ROOT = COPIES if COPIES.is_dir() else pathlib.Path(__file__).parents[2]
PARENTS = ("", "Further-Algorithms", "Operations")  # the folders in which examples stand
HOROVOD = "Horovod-RingAllReduce"
# What builds Horovod, and where two of its functions stand.
BUILD, REQUIREMENTS = f"{HOROVOD}/build/build.py", f"{HOROVOD}/build/requirements.txt"
ENVIRONMENT = "lab/environment.py"


def scripts(root: pathlib.Path = ROOT) -> dict[str, str]:
    """Returns {name of an example: path of its script below `root`} of all that take a problem."""
    paths = {}
    for parent in PARENTS:
        for launcher in sorted((root / parent).glob("*/run.sh")):
            folder = launcher.parent
            script = folder / f"{folder.name.replace('-', '_').lower()}.py"
            if script.exists() and problems.REGION.search(script.read_text(encoding="utf-8")):
                paths[folder.name] = script.relative_to(root).as_posix()
    return paths


def equation(script: str) -> str:
    """Returns the path of the file with a script's reference and mistakes, below the root."""
    return f"tests/equations/{pathlib.PurePath(script).stem}.py"


def launcher(script: str) -> str:
    """Returns the path of the run.sh of a script, below the root."""
    return pathlib.PurePath(script).with_name("run.sh").as_posix()


def files(root: pathlib.Path = ROOT) -> list[str]:
    """Returns the paths, below `root`, of all files that `tfrun new` reads."""
    paths = [BUILD, REQUIREMENTS, ENVIRONMENT]
    for script in scripts(root).values():
        paths += [script, launcher(script), equation(script)]
    return paths


def text(path: str) -> str:
    """Returns the text of one of these files."""
    return (ROOT / path).read_text(encoding="utf-8")
