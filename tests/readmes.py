"""Writes the parts of the README files that follow from the code.

    python tests/readmes.py          check; exits with 1 and the names of what is out of date
    python tests/readmes.py --fix    write them

Such a part stands between <!-- generated: NAME --> and <!-- end -->; NAME is a key of PARTS.
"""

import ast
import pathlib
import re
import sys

import regions

ROOT = pathlib.Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- generated: (\w+)(?: ([^ ]+))? -->\n).*?(<!-- end -->)", re.DOTALL)

# The order in which to read the examples: the alphabet is none.
ORDER = ["Non-Distributed-Setup", "Distributed-Setup", "HogWild", "Measurements/Compare"]


def script(folder):
    """The main script of an example's folder: the folder's name in snake case."""
    return folder / (folder.name.replace("-", "_").lower() + ".py")


def docstring(path):
    return ast.get_docstring(ast.parse(path.read_text()))


def field(path, name):
    """What the docstring says after `name:`, or an empty text."""
    found = re.search(r"^%s: +(.+)$" % name, docstring(path), re.MULTILINE)
    return found[1] if found else ""


def table(_, __):
    """The table of all examples in reading order."""
    rows = ["| example | what it shows | paper |", "| --- | --- | --- |"]
    for name in ORDER:
        what = docstring(script(ROOT / name)).splitlines()[0].split(": ", 1)[1]
        rows.append(
            "| [%s](%s/) | %s | %s |" % (name, name, what, field(script(ROOT / name), "Paper"))
        )
    return "\n".join(rows)


def links(folder, _):
    """Links to the previous and the next example in reading order."""
    place = ORDER.index(folder.relative_to(ROOT).as_posix())
    up = "../" * len(folder.relative_to(ROOT).parts)
    around = [
        (ORDER[place - 1], "Previous") if place else None,
        (ORDER[place + 1], "Next") if place + 1 < len(ORDER) else None,
    ]
    return " · ".join(
        "%s: [%s](%s%s/)" % (word, name, up, name) for name, word in filter(None, around)
    )


def diff(folder, neighbour):
    """What the example's own part changes in its neighbour's: the shared regions are folded."""
    lines = regions.difference(script(ROOT / neighbour), script(folder))
    return "```diff\n%s\n```" % "\n".join(lines)


def flags(folder, _):
    """The flags of the script, from its calls of add()."""
    rows = ["| flag | default | meaning |", "| --- | --- | --- |"]
    for node in ast.walk(ast.parse(script(folder).read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "add":
            flag, _, default, text = node.args
            rows.append("| `%s` | %s | %s |" % (flag.value, ast.literal_eval(default), text.value))
    return "\n".join(rows)


PARTS = {"table": table, "links": links, "diff": diff, "flags": flags}


def updated(path):
    """The text of a README with its generated parts as they should be."""

    def part(found):
        return "%s%s\n%s" % (found[1], PARTS[found[2]](path.parent, found[3]), found[4])

    return PART.sub(part, path.read_text())


def files():
    """All README files of the project."""
    return [
        ROOT / "README.md",
        *sorted(
            path
            for path in ROOT.glob("*/**/README.md")
            if not {".venv", "runs"} & set(path.relative_to(ROOT).parts)
        ),
    ]


def main():
    stale = [path for path in files() if updated(path) != path.read_text()]
    if "--fix" in sys.argv:
        for path in stale:
            path.write_text(updated(path))
    for path in stale:
        print(
            ("written: " if "--fix" in sys.argv else "out of date: ") + str(path.relative_to(ROOT))
        )
    return bool(stale) and "--fix" not in sys.argv


if __name__ == "__main__":
    sys.exit(main())
