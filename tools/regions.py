"""Keeps the regions that example scripts share the same text, and shows what is left of a script.

    python tools/regions.py                   check; exits with 1 and the differences
    python tools/regions.py --fix SCRIPT      copy its regions into all scripts that have them
    python tools/regions.py --fix A B         copy the regions of A into B
    python tools/regions.py --diff A B        the difference of two scripts, regions folded
    python tools/regions.py --limits          lower tests/limits.txt to what the scripts have
    python tools/regions.py --limits SCRIPT   the same for this script only

A region is what stands between "# region: name" and "# endregion: name".
"""

import argparse
import ast
import difflib
import functools
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARENTS = ("", "Further-Algorithms", "Operations")  # where folders of examples stand
LIMITS = ROOT / "tests" / "limits.txt"
# What each script has for itself, or in one form of several.
OWN = {"algorithm", "add_flags", "build", "train", "main", "Cluster", "variables", "batches"}
DIVIDER = "# From here to the end: the same text"  # above it the example, below it only regions
MARKER = re.compile(r"^# (region|endregion): (\w+)(?: -- [^\n]*)?$")


class ToolError(Exception):
    """What somebody did wrong, in a sentence that says what to do."""


def exit_code(main):
    """Runs the main function of a tool; returns its exit code. A ToolError ends it as a line."""
    try:
        return main()
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1


def shown(path):
    """Returns a path as it stands in a sentence: from the root of the project, if it is there."""
    path = pathlib.Path(path).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def read(path):
    """Returns the text of a file that somebody named. Raises ToolError if it cannot be read."""
    try:
        return pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ToolError(f"{shown(path)} cannot be read: {reason}; check the path") from None


def parsed(path):
    """Returns the syntax tree of a script. Raises ToolError if it is no Python."""
    try:
        return ast.parse(read(path))
    except SyntaxError as error:
        raise ToolError(f"{shown(path)}, line {error.lineno}: correct this: {error.msg}") from None


def tracked(pattern, root=ROOT, which="--cached"):
    """The files that git knows of, by a pattern as of pathlib.Path.match: not what a run left."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--exclude-standard", which],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        reason = (listed.stderr.splitlines() or ["git failed"])[0]
        raise ToolError(f"this needs a clone that git knows, and git says: {reason}")
    paths = sorted(pathlib.PurePath(name) for name in listed.stdout.split("\0") if name)
    return [root / path for path in paths if path.match(pattern) and (root / path).exists()]


def untracked(pattern):
    """The files that git neither knows of nor ignores."""
    return tracked(pattern, which="--others")


def folders(root=ROOT):
    """The folders of the examples: those with a run.sh, and without notebooks."""
    return [
        run.parent
        for run in tracked("run.sh", root)
        if run.parent.parent in [root / parent for parent in PARENTS]
        and run.parent.name != "tests"
        and not list(run.parent.glob("*.ipynb"))
    ]


def scripts(root=ROOT):
    """The example scripts: every Python file beside a run.sh that says its kind, but drivers."""
    there = folders(root)
    beside = [path for path in tracked("*.py", root) if path.parent in there]
    return sorted(
        path for path in beside if re.search(r"^Kind: +(?!\s|driver)", path.read_text(), re.M)
    )


def script_of(launcher):
    """Returns the script that a run.sh starts."""
    command = re.split(r"(?m)^ *(?:exec|tfrun) ", read(launcher), maxsplit=1)
    script = re.search(r"(?:here/)?([\w./]+\.py)", command[-1]) if command[1:] else None
    if not script:
        raise ToolError(f"{shown(launcher)} starts no script: it needs a line `exec tfrun ... --`")
    return launcher.parent / script[1]


def split(text):
    """[(region's name or None, its lines with the markers)]. Raises ValueError on a bad marker."""
    parts, name = [(None, [])], None
    for number, line in enumerate(text.splitlines(), 1):
        found = MARKER.match(line)
        if not found and re.match(r"\s*#\s*(end)?region\b", line):
            raise ValueError("line %d is not a marker, but looks like one: %s" % (number, line))
        opens = found and found[1] == "region"
        closes = found and found[1] == "endregion"
        if (opens and name) or (closes and name != found[2]):
            raise ValueError("line %d: %s, inside %s" % (number, line, name or "no region"))
        if opens:
            name = found[2]
            parts.append((name, []))
        parts[-1][1].append(line)
        if closes:
            name = None
            parts.append((None, []))
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
        lines += ["# [%s]" % name] if name else part
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


def lines_above(text):
    """Returns how many lines of a script stand above its divider; None where it has none."""
    starts = (line.startswith(DIVIDER) for line in text.splitlines())
    return next((number for number, starts_here in enumerate(starts) if starts_here), None)


def example_digest(path):
    """Returns the first 16 hexadecimal digits of the SHA-256 of a script's example.

    That is what stands above the divider, without comments, docstrings, imports and main(). So the
    digest changes with the algorithm, its defaults, the data and the model, and results of before
    are outdated. It does not change with the words, or with the plumbing: an edit of a region below
    the divider would else make the results of all examples outdated at once.
    """
    text = "\n".join(read(path).splitlines()[: lines_above(read(path))])
    plumbing, kept = set(), set()  # numbers of lines
    for node in parsed(path).body:
        lines = range(node.lineno, node.end_lineno + 1)
        is_main = isinstance(node, ast.FunctionDef) and node.name == "main"
        if isinstance(node, (ast.Import, ast.ImportFrom)) or is_main:
            plumbing.update(lines)
        kept.update(lines)
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(
            node
        ):
            plumbing.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.line[: token.start[1]]
    counted = [line.rstrip() for n, line in enumerate(lines, 1) if n in kept - plumbing]
    return hashlib.sha256("\n".join(filter(None, counted)).encode()).hexdigest()[:16]


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
    """Returns what a line of tests/limits.txt limits: lines above the divider, and tokens."""
    parsed(ROOT / name)
    text = read(ROOT / name)
    return lines_above(text) or sys.maxsize, tokens(text)


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
