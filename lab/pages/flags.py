"""The flags of a script, as its text has them."""

import ast
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from lab.docstrings import script
from lab.examples import ROOT, ToolError, parse, shown
from lab.pages import result_tables

SHARED_FLAGS = "HogWild"  # an example with no flags of its own
STEPS = "`--steps`"
FLAG = "(name, default, text)"  # of the loop in parse_flags()


def flags(folder: pathlib.Path, _: str | None) -> str:
    """The flags that the script has beside HogWild's, or with another default; a link to those.

    Where more than one of HogWild's is missing all are shown. Each has its own `--steps`.
    """
    shared = flag_rows(ROOT / SHARED_FLAGS)
    rows = flag_rows(folder)
    link = os.path.relpath(ROOT / "docs" / "runs.md", folder) + "#flags"
    missing = [f" but {name}" for name, *_ in shared if name not in {row[0] for row in rows}]
    common = f"[Common flags]({link}){''.join(missing)}"
    if len(missing) > 1:
        own = rows
        common = "Flags"
    else:
        own = [row for row in rows if row not in shared and row[0] != STEPS]
    lines = [f"- {name} ({default}): {meaning}" for name, default, meaning in own]
    head = f"{common}, and:" if own and common != "Flags" else f"{common}{':' if own else '.'}"
    return "\n".join([head, *lines])


def shared_flags(_: pathlib.Path, __: str | None) -> str:
    """The flags that most examples share, as a table."""
    rows = flag_rows(ROOT / SHARED_FLAGS)
    rows = [(flag, "its own" if flag == STEPS else default, text) for flag, default, text in rows]
    return result_tables.table(["flag", "default", "meaning"], rows)


def find_assignments(tree: ast.Module) -> dict[str, Any]:
    """Returns {name: the node that a script assigns to it}, and FLAG: the list in parse_flags()."""
    constants: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts))
            constants.update({to.id: value for to, value in pairs if isinstance(to, ast.Name)})
        elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == "MORE_FLAGS":
            assert isinstance(node.value, (ast.List, ast.Tuple))
            # Below, in the region of what reads it.
            all_flags = [*constants["MORE_FLAGS"].elts, *node.value.elts]
            constants["MORE_FLAGS"] = ast.List(all_flags, ast.Load())
        elif isinstance(node, ast.For) and ast.unparse(node.target) == FLAG:
            constants[FLAG] = node.iter
    return constants


def flag_entries(constants: dict[str, Any]) -> Iterator[Any]:
    """Yields the entries of the list in parse_flags(), and those of MORE_FLAGS in their place."""
    for entry in constants[FLAG].elts:
        if isinstance(entry, ast.Starred):
            yield from constants[ast.unparse(entry.value)].elts
        else:
            yield entry


def flag_rows(folder: pathlib.Path) -> list[tuple[str, Any, str]]:
    """Returns [(flag, default, meaning)] of the list in parse_flags(), with the defaults above it.

    Raises ToolError where the list cannot be read.
    """
    constants = find_assignments(parse(script(folder)))

    def value(node: ast.expr) -> Any:
        return ast.literal_eval(constants[node.id] if isinstance(node, ast.Name) else node)

    rows = []
    try:
        for entry in flag_entries(constants):
            name, default, meaning = map(value, entry.elts)
            if default is not None:  # the script has no such flag
                rows.append((f"`--{name}`", default, meaning))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ToolError(
            f"{shown(script(folder))}: write each of MORE_FLAGS as (name, default, help), with a "
            "plain number or text as its default"
        ) from None
    return rows
