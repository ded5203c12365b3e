"""Keeps the regions that example scripts share the same text, and shows what is left of a script.

    python tools/regions.py                   check; exits with 1 and the differences
    python tools/regions.py --fix SCRIPT      copy its regions into all scripts that have them
    python tools/regions.py --fix A B         copy the regions of A into B
    python tools/regions.py --diff A B        the difference of two scripts, regions folded
    python tools/regions.py --limits          lower tests/limits.txt to what the scripts have
    python tools/regions.py --limits SCRIPT   the same for this script only

A region is what stands between "# region: name" and "# endregion: name". Below the divider all text
stands in regions, so that each ends where the next begins, or at `if __name__`.
"""

import argparse
import ast
import difflib
import functools
import io
import pathlib
import re
import sys
import tokenize

from common.examples import DIVIDER, ROOT, ToolError, exit_code, folders, lines_above, parsed, read
from common.examples import scripts, shown, tracked

LIMITS = ROOT / "tests" / "limits.txt"
# What each script has for itself, or in one form of several.
OWN = {"algorithm", "add_flags", "build", "train", "main", "Cluster", "variables", "batches"}
MARKER = re.compile(r"^# (region|endregion): (\w+)(?: -- [^\n]*)?$")


def split(text):
    """[(region's name or None, its lines)]. Raises ValueError on a bad marker.

    The marker of a region's begin is its first line; that of its end is behind it.
    """
    parts, name, below = [(None, [])], None, False
    for number, line in enumerate(text.splitlines(), 1):
        found = MARKER.match(line)
        if not found and re.match(r"\s*#\s*(end)?region\b", line):
            raise ValueError("line %d is not a marker, but looks like one: %s" % (number, line))
        opens = found and found[1] == "region"
        closes = found and found[1] == "endregion"
        divides = line.startswith(DIVIDER)
        below = below or divides
        ends = opens or line.startswith("if __name__ ") if below else closes and name == found[2]
        if name and ends:
            name, blank = None, []
            while not parts[-1][1][-1]:
                blank.append(parts[-1][1].pop())
            parts.append((None, blank))
        elif closes or (name and (opens or divides)):
            raise ValueError("line %d: %s, inside %s" % (number, line, name or "no region"))
        if opens:
            name = found[2]
            parts.append((name, []))
        parts[-1][1].append(line)
    if name:
        raise ValueError("the region %s has no end" % name)
    return parts


def split_file(path):
    """Returns the same of a script's file. Raises ToolError."""
    try:
        return split(read(path))
    except ValueError as error:
        raise ToolError(f"{shown(path)}: {error}") from None


def regions(path):
    """Returns {name: text} of one script. Raises ToolError where a name stands twice."""
    made = {}
    for name, lines in split_file(path):
        if name in made:
            raise ToolError(f"{shown(path)}: the region {name} stands twice; remove one")
        if name:
            made[name] = "\n".join(lines)
    return made


def folded(path):
    """The script's lines, each region as one line and without the docstring: its own part."""
    lines = []
    for name, part in split_file(path):
        lines += ["# [%s]" % name] if name else [line for line in part if not MARKER.match(line)]
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


def difference(a, b):
    """The unified diff of two folded scripts, a list of lines."""
    return list(unified(folded(a), folded(b), a.name, b.name))


def problems(root=ROOT):
    """(one text for each fault, the number of copies of regions that were compared)."""
    first, found, copies, defined = {}, [], 0, {}
    for folder in folders(root):
        if not any(path.parent == folder for path in tracked("*.py", root)):
            found.append("%s has a run.sh and no script" % folder)
    for path in scripts(root):
        try:
            for line in folded(path):
                if begin := re.match(r"(?:def|class) (\w+)", line):
                    defined.setdefault(begin[1], set()).add(path)
            for name, text in regions(path).items():
                copies += 1
                reference, standard = first.setdefault(name, (path, text))
                if text != standard:
                    parts = standard.splitlines(), text.splitlines()
                    found.append("\n".join(unified(*parts, str(reference), str(path))))
        except ToolError as error:
            found.append(str(error))
    for name, paths in defined.items():
        if len(paths) > 1 and name not in OWN:
            found.append("%s is in %d scripts, but in no region" % (name, len(paths)))
    return found, copies


def fix(source, *targets):
    """Copies the regions of `source` into those scripts, or all, that have one of that name."""
    standard = regions(source)
    for path in targets or scripts():
        lines = []
        for name, part in split_file(path):
            lines += standard[name].splitlines() if name in standard else part
        path.write_text("\n".join(lines) + "\n")


def tokens(text):
    """Returns the number of a script's tokens, without comments and docstrings.

    An f-string counts as one: it is one token up to Python 3.11, and several from 3.12 on.
    """
    docstrings = set()  # the lines on which they begin
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            if ast.get_docstring(node, clean=False) is not None:
                docstrings.add(node.body[0].lineno)
    layout = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}
    number, inside = 0, 0  # inside: how many f-strings are open
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_END":
            inside -= 1
        elif kind not in layout and not inside:
            number += not (kind == "STRING" and token.start[0] in docstrings)
        if kind == "FSTRING_START":
            inside += 1
    return number


def read_limits(text):
    """Returns {path: its numbers} of a text like tests/limits.txt: as many on each line."""
    limits = {}
    for line in text.splitlines():
        if fields := line.partition("#")[0].split():
            name, *numbers = fields
            as_many = len(numbers) == len(next(iter(limits.values()), numbers)) > 0
            if not as_many or not all(map(str.isdigit, numbers)):
                raise ToolError(f"a line of limits must be a path and its numbers; it is: {line}")
            limits[name] = tuple(map(int, numbers))
    return limits


def size(name):
    """Returns what tests/limits.txt limits: lines above the divider, tokens, and all lines."""
    parsed(ROOT / name)
    text = read(ROOT / name)
    return lines_above(text) or sys.maxsize, tokens(text), len(text.splitlines())


def lower_limits(only=(), path=LIMITS, size=size):
    """Writes each file's own size, or only those of some, into the file of limits, where lower."""
    text = read(path)
    limits = read_limits(text)
    for name in only or limits:
        if name not in limits:
            raise ToolError(f"{shown(path)} has no line of {name}: add one, as the others have it")
        line = " ".join([name, *map(str, map(min, limits[name], size(name)))])
        text = re.sub(r"(?m)^%s( +\d+)+" % re.escape(name), line, text)
    path.write_text(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fix", nargs="+", type=pathlib.Path, metavar="SCRIPT")
    parser.add_argument("--diff", nargs=2, type=pathlib.Path, metavar="SCRIPT")
    parser.add_argument("--limits", nargs="*", type=pathlib.Path, metavar="SCRIPT")
    flags = parser.parse_args()
    if flags.limits is not None:
        lower_limits([shown(script) for script in flags.limits])
        return 0
    if flags.fix:
        fix(*flags.fix)
        if flags.fix[1:]:
            return 0
    if flags.diff:
        print("\n".join(difference(*flags.diff)))
        return 0
    found, copies = problems()
    fine = f"{copies} copies of regions in {len(scripts())} scripts are the same"
    print("\n\n".join(found) or fine)
    return bool(found)


if __name__ == "__main__":
    sys.exit(exit_code(main))
