"""The functions that are a script's algorithm, and what they change in a neighbour's."""

import ast
import os
import pathlib
import re

from lab import regions
from lab.docstrings import script
from lab.examples import ALGORITHM, ROOT, ToolError, has_sessions, parse, read, session_form, shown
from lab.pages import result_tables

LONG_DIFF = 60  # from so many lines on, a page shows algorithm() itself


def lines_of_algorithm(path: pathlib.Path) -> list[str]:
    """Returns the lines of the functions that are a script's algorithm, without docstrings."""
    lines = read(path).splitlines()
    shown_lines: list[str] = []
    for node in parse(path).body:
        if isinstance(node, ast.FunctionDef) and node.name in ALGORITHM:
            first = node.body[0] if ast.get_docstring(node) is None else node.body[1]
            begin = first.lineno - 1
            while not lines[begin - 1].strip() or lines[begin - 1].lstrip().startswith("#"):
                begin -= 1
            head = lines[node.lineno - 1 : node.body[0].lineno - 1]
            body = "\n".join(lines[begin : node.end_lineno]).lstrip("\n").splitlines()
            shown_lines += ["", "", *head, *body] if shown_lines else [*head, *body]
    if not shown_lines:
        raise ToolError(f"{shown(path)} has no function {' or '.join(ALGORITHM)}")
    return shown_lines


def functions_of_algorithm(path: pathlib.Path) -> str:
    """Returns the names of these functions as a page says them."""
    named = [node.name for node in parse(path).body if isinstance(node, ast.FunctionDef)]
    return " and ".join(f"`{name}()`" for name in named if name in ALGORITHM)


def algorithm(folder: pathlib.Path, _: str | None) -> str:
    """The functions that are the script's algorithm, folded."""
    path = script(folder)
    summary = f"{functions_of_algorithm(path)} of {path.name}"
    return details_block(summary, "python", lines_of_algorithm(path))


def details_block(summary: str, language: str, lines: list[str], note: str = "") -> str:
    """Returns a block of code that a reader unfolds, and a note below it."""
    code = "\n".join([f"```{language}", *lines, "```"])
    summary = re.sub(r"`(\w+\(\))`", r"<code>\1</code>", summary)
    return f"<details>\n<summary>{summary}</summary>\n\n{code}\n{note}\n</details>"


def diff(folder: pathlib.Path, name: str | None) -> str:
    """What a script's algorithm changes in its neighbour's; all of it where that is no shorter.

    name: that of the neighbour: a folder, or a script in one.
    """
    neighbour = result_tables.argument(folder, "diff", name)
    own = script(folder)
    if has_sessions(own):
        neighbour = session_form(neighbour)
    other = ROOT / neighbour if neighbour.endswith(".py") else script(ROOT / neighbour)
    whole = lines_of_algorithm(own)
    before = lines_of_algorithm(other)
    lines = list(regions.unified(before, whole, other.name, own.name, n=0))[2:]
    changed = sum(line.startswith(("+", "-")) for line in lines)
    if changed >= LONG_DIFF or len(lines) > len(whole):
        return algorithm(folder, neighbour)
    tool = os.path.relpath(ROOT / "lab" / "regions.py", folder)
    there = os.path.relpath(other, folder)
    note = f"`python {tool} --diff {there} {own.name}` shows the rest.\n"
    summary = f"{functions_of_algorithm(own)}, compared with {other.name}: {changed} lines"
    return details_block(summary, "diff", lines, note)
