"""What the docstring of a script says of it: its title, and fields such as `Kind:`."""

import ast
import pathlib
import re

from lab.examples import ToolError, main_script, parse, shown


def script(folder: pathlib.Path) -> pathlib.Path:
    """The main script of a folder: the folder's name in snake case, or the one that has a kind."""
    named = main_script(folder)
    if named.exists():
        return named
    for path in sorted(folder.glob("*.py")):
        if field(path, "Kind"):
            return path
    raise ToolError(
        f"{shown(folder)} has no script: add {named.name}, or correct the folder's name"
    )


def docstring(path: pathlib.Path) -> str:
    text = ast.get_docstring(parse(path))
    if text is None:
        raise ToolError(f"{shown(path)} has no docstring: begin the script with one")
    return text


def title(path: pathlib.Path) -> str:
    """Returns what the first line of a script's docstring says after the example's name."""
    name, colon, words = docstring(path).splitlines()[0].partition(": ")
    if not colon:
        raise ToolError(
            f"{shown(path)}: begin the docstring as `{path.parent.name}: what it shows`"
        )
    return words


def field(path: pathlib.Path, name: str) -> str:
    """What the docstring says after `name:`, also on indented lines below it, or an empty text."""
    match = re.search(rf"^{name}: +(.+(?:\n {{15}}\S.*)*)$", docstring(path), re.MULTILINE)
    return " ".join(match[1].split()) if match else ""
