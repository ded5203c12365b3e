"""Where the sources of the notebooks of Basics-Tutorial are, and their order."""

import pathlib
import re

COURSE = pathlib.Path(__file__).resolve().parents[2] / "Basics-Tutorial"
SHARED = {"course", "neighbours"}  # what notebooks import


def order() -> dict[str, int]:
    """{name: minutes it takes} in reading order, from the table in the README."""
    rows = re.findall(
        r"^\| \[(.+)\]\(\1\.ipynb\) \| (\d+) \|", (COURSE / "README.md").read_text(), re.M
    )
    return {name: int(minutes) for name, minutes in rows}


def sources() -> list[pathlib.Path]:
    """The sources of all notebooks, in reading order; those that it does not name come last."""
    names = sorted({path.stem for path in COURSE.glob("*.py")} - SHARED)
    ordered = [name for name in order() if name in names]
    return [COURSE / f"{name}.py" for name in dict.fromkeys([*ordered, *names])]
