"""Writes the parts of the README files that follow from the code.

    python lab/pages/readmes.py          check; exits with 1 and the names of what is out of date
    python lab/pages/readmes.py --fix    write them

Such a part stands between <!-- generated: NAME --> and <!-- end -->; NAME is a function in PARTS.
docs/reading-order.txt has the examples in their order, docs/papers.txt the papers. Numbers are
shown only on the page of the example that they were measured on. Those of its own page need the
script that was measured; those of other measurements may be of the script of session_results.py,
and then say so.
"""

import pathlib
import re
import sys

from lab import reading_order
from lab.docstrings import script
from lab.examples import ROOT, ToolError, exit_code, read, shown, tracked_files
from lab.measure import arguments
from lab.pages import (
    algorithm,
    contents,
    errors,
    flags,
    front_page,
    measurements,
    mistakes,
    own_results,
    papers,
)

PART = re.compile(r"(<!-- generated: (\w+)(?: ([^ ]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
SECTIONS = (  # of an example's page, below what it is and its result
    "The algorithm",
    "When to use it",
    "Run it",
    "Result",
    "Pitfalls",
    "Two things to try",
    "Behind it",
)
PARTS = {
    part.__name__: part
    for part in (
        contents.examples,
        contents.further,
        contents.links,
        measurements.compare,
        measurements.scaling,
        measurements.text,
        errors.errors,
        papers.papers,
        mistakes.tests,
        algorithm.algorithm,
        algorithm.diff,
        flags.flags,
        flags.shared_flags,
        own_results.result,
        own_results.output,
        own_results.excerpt,
        own_results.written,
    )
}


def updated_text(path: pathlib.Path) -> str:
    """Returns the text of a README with its generated parts as they should be.

    Raises ToolError with a sentence for each part that cannot be made.
    """
    text = read(path)
    faults = []
    if path == ROOT / "README.md":
        text = front_page.with_numbers(text)
    if len(PART.findall(text)) != len(re.findall("(?m)^<!-- generated", text)):
        raise ToolError(
            f"{shown(path)}: write each generated part as `<!-- generated: NAME -->`, with at most "
            "one WORD behind the name, and `<!-- end -->` on a line of its own below it"
        )

    def part(match: re.Match[str]) -> str:
        if match[2] not in PARTS:
            known = ", ".join(PARTS)
            raise ToolError(f"{shown(path)}: there is no part {match[2]}, only {known}")
        try:
            return f"{match[1]}{PARTS[match[2]](path.parent, match[3])}\n{match[4]}"
        except ToolError as error:
            faults.append(str(error))
            return match[0]

    text = PART.sub(part, text)
    if faults:
        raise ToolError("\n".join(dict.fromkeys(faults)))
    return text


def files() -> list[pathlib.Path]:
    """All pages of the project."""
    return tracked_files("*.md")


def check_order() -> None:
    """Raises ToolError unless the reading order names folders with pages that git knows."""
    pages = set(files())
    for name in reading_order.names():
        script(ROOT / name)
        if ROOT / name / "README.md" not in pages:
            raise ToolError(f"git does not know {name}/README.md: run git add {name}")


def main() -> int:
    parser = arguments.Parser(__doc__)
    parser.add_argument("--fix", action="store_true", help="write what is out of date")
    fix = parser.parse_args().fix
    check_order()
    code = 0
    for path in files():
        try:
            text = updated_text(path)
        except ToolError as error:  # the other pages do not wait for this one
            print(error, file=sys.stderr)
            code = 1
            continue
        if text != path.read_text():
            if fix:
                path.write_text(text)
            else:
                code = 1
            print("written:" if fix else "out of date:", shown(path))
    return code


if __name__ == "__main__":
    sys.exit(exit_code(main))
