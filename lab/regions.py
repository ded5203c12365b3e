"""Keeps the regions that example scripts share the same text, and shows what is left of a script.

    python lab/regions.py                   check; exits with 1 and the differences
    python lab/regions.py --fix SCRIPT      copy its regions into all scripts that have them
    python lab/regions.py --fix A B         copy the regions of A into B
    python lab/regions.py --diff A B        the difference of two scripts, regions folded

A region is what stands between "# region: name" and "# endregion: name". Below the divider all text
stands in regions, so that each ends where the next begins, or at `if __name__`. A region there that
no other script has says so in its first line, behind its name: OF_ONE.
"""

import argparse
import ast
import difflib
import functools
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # pages show its command
from lab.examples import (
    ALGORITHM,
    DIVIDER,
    ROOT,
    ToolError,
    exit_code,
    folders,
    read,
    scripts,
    shown,
    tracked_files,
)

# What each script has for itself, or in one form of several.
OWN = {*ALGORITHM, "build", "train", "main", "Cluster", "variables", "batches"}
OF_ONE = "of this example only"
# Regions of examples with a parameter server, and of those without, and what both define alike.
TWINS = [
    ("network", "flat", ["unpack"]),
    ("facts", "metrics", ["PUSH", "Push", "TEST", "Metrics.push", "Metrics.test"]),
    ("tasks", "peers", ["REQUIRED_WAIT_SECONDS"]),
]
MARKER = re.compile(r"^# (region|endregion): (\w+)(?: -- [^\n]*)?$")


def split(text: str) -> list[tuple[str | None, list[str]]]:
    """[(region's name or None, its lines)]. Raises ValueError on a bad marker.

    The marker of a region's begin is its first line; that of its end is behind it.
    """
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    name, below = None, False
    for number, line in enumerate(text.splitlines(), 1):
        marker = MARKER.match(line)
        if not marker and re.match(r"\s*#\s*(end)?region\b", line):
            raise ValueError(f"line {number} is not a marker, but looks like one: {line}")
        kind, marked = marker.groups() if marker else (None, None)
        opens = kind == "region"
        closes = kind == "endregion"
        divides = line.startswith(DIVIDER)
        below = below or divides
        ends = opens or line.startswith("if __name__ ") if below else closes and name == marked
        if name and ends:
            name, blank = None, []
            while not parts[-1][1][-1]:
                blank.append(parts[-1][1].pop())
            parts.append((None, blank))
        elif closes or (name and (opens or divides)):
            raise ValueError(f"line {number}: {line}, inside {name or 'no region'}")
        if opens:
            name = marked
            parts.append((name, []))
        parts[-1][1].append(line)
    if name:
        raise ValueError(f"the region {name} has no end")
    return parts


def split_file(path: pathlib.Path) -> list[tuple[str | None, list[str]]]:
    """Returns the parts of a script's file, as split() does. Raises ToolError."""
    try:
        return split(read(path))
    except ValueError as error:
        raise ToolError(f"{shown(path)}: {error}") from None


def regions(path: pathlib.Path) -> dict[str, str]:
    """Returns {name: text} of one script. Raises ToolError where a name stands twice."""
    texts = {}
    for name, lines in split_file(path):
        if name in texts:
            raise ToolError(f"{shown(path)}: the region {name} stands twice; remove one")
        if name:
            texts[name] = "\n".join(lines)
    return texts


def fold_regions(path: pathlib.Path) -> list[str]:
    """The script's lines, each region as one line and without the docstring: its own part."""
    lines = []
    for name, part in split_file(path):
        if name:
            lines.append(f"# [{name}]")
        else:
            lines.extend(line for line in part if not MARKER.match(line))
    if '"""' not in lines[1:]:
        raise ToolError(f'{shown(path)}: end its docstring with a line """')
    lines = lines[lines.index('"""', 1) + 1 :]
    # An empty line counts neither beside another one nor beside a region.
    return [
        line
        for before, line in zip(["", *lines], lines)
        if line or before and not before.startswith("# [")
    ]


unified = functools.partial(difflib.unified_diff, lineterm="", n=1)


def difference(a: pathlib.Path, b: pathlib.Path) -> list[str]:
    """The unified diff of two folded scripts, a list of lines."""
    return list(unified(fold_regions(a), fold_regions(b), a.name, b.name))


def names_outside(path: pathlib.Path) -> list[str]:
    """Returns the functions and classes of a script that stand in no region."""
    begins = [re.match(r"(?:def|class) (\w+)", line) for line in fold_regions(path)]
    return [begin[1] for begin in begins if begin]


def definitions(text: str) -> dict[str, str]:
    """Returns {name: text} of what Python code assigns or defines; methods as Class.method."""
    texts = {}
    for node in ast.parse(text).body:
        lines = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.Assign):
            texts.update({name.id: lines for name in node.targets if isinstance(name, ast.Name)})
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            texts[node.name] = lines
        if isinstance(node, ast.ClassDef):
            methods = definitions(textwrap.dedent("\n".join(lines.splitlines()[1:])))
            texts.update({f"{node.name}.{name}": method for name, method in methods.items()})
    return texts


def find_unlike_twins(texts: dict[str, str]) -> list[str]:
    """Returns a text for each definition in which two regions of TWINS differ.

    texts: {region: its text}; a pair of which one is missing is passed over.
    """
    faults = []
    for one, other, names in TWINS:
        if one in texts and other in texts:
            a, b = definitions(texts[one]), definitions(texts[other])
            faults += [
                f"{name} differs between the regions {one} and {other}; make both the same"
                for name in names
                if name not in a or a[name] != b.get(name)
            ]
    return faults


def regions_below(path: pathlib.Path) -> list[str]:
    """Returns the first lines of the regions below a script's divider."""
    _, divider, below = read(path).partition("\n" + DIVIDER)
    return re.findall(r"(?m)^# region: .*$", below) if divider else []


def find_wrong_marks(paths: Iterable[pathlib.Path]) -> list[str]:
    """Returns a text for each region below a divider whose mark OF_ONE is missing, or is untrue."""
    having: dict[str, list[tuple[pathlib.Path, str]]] = {}
    for path in paths:
        for line in regions_below(path):
            having.setdefault(line.split()[2], []).append((path, line))
    faults = []
    for scripts_with_it in having.values():
        for path, line in scripts_with_it:
            is_marked = line.endswith(f" -- {OF_ONE}")
            if len(scripts_with_it) == 1 and not is_marked:
                faults.append(
                    f"{shown(path)}: no other script has this region; "
                    f"write `-- {OF_ONE}` behind {line}"
                )
            elif len(scripts_with_it) > 1 and is_marked:
                faults.append(f"{shown(path)}: other scripts have this region, too: {line}")
    return faults


def find_faults(root: pathlib.Path = ROOT) -> tuple[list[str], int]:
    """(one text for each fault, the number of copies of regions that were compared)."""
    first: dict[str, tuple[pathlib.Path, str]] = {}  # {region: the first script with it, its text}
    defined: dict[str, set[pathlib.Path]] = {}  # {function or class: scripts}
    with_scripts = {path.parent for path in tracked_files("*.py", root)}
    without = [folder for folder in folders(root) if folder not in with_scripts]
    faults = [f"{folder} has a run.sh and no script" for folder in without]
    copies = 0
    for path in scripts(root):
        try:
            for name in names_outside(path):
                defined.setdefault(name, set()).add(path)
            for name, text in regions(path).items():
                copies += 1
                reference, standard = first.setdefault(name, (path, text))
                if text != standard:
                    parts = standard.splitlines(), text.splitlines()
                    faults.append("\n".join(unified(*parts, str(reference), str(path))))
        except ToolError as error:
            faults.append(str(error))
    for name, paths in defined.items():
        if len(paths) > 1 and name not in OWN:
            faults.append(f"{name} is in {len(paths)} scripts, but in no region")
    faults += find_unlike_twins({name: text for name, (_, text) in first.items()})
    return faults, copies


def fix(source: pathlib.Path, *targets: pathlib.Path) -> None:
    """Copies the regions of `source` into those scripts, or all, that have one of that name."""
    standard = regions(source)
    for path in targets or scripts():
        lines = []
        for name, part in split_file(path):
            lines += standard[name].splitlines() if name in standard else part
        path.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fix", nargs="+", type=pathlib.Path, metavar="SCRIPT")
    parser.add_argument("--diff", nargs=2, type=pathlib.Path, metavar="SCRIPT")
    flags = parser.parse_args()
    if flags.fix:
        fix(*flags.fix)
        if flags.fix[1:]:
            return 0
    if flags.diff:
        print("\n".join(difference(*flags.diff)))
        return 0
    faults, copies = find_faults()
    fine = f"{copies} copies of regions in {len(scripts())} scripts are the same"
    print("\n\n".join(faults) or fine)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(exit_code(main))
