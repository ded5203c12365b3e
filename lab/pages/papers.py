"""The papers that pages name, as links: docs/papers.txt has them."""

import functools
import os
import pathlib
import re

from lab.docstrings import field
from lab.examples import ROOT, ToolError, read, shown
from lab.pages import result_tables

PAPERS = ROOT / "docs" / "papers.txt"


@functools.cache
def all_papers() -> dict[str, tuple[str, ...]]:
    """Returns {key: (authors, year, title, link)} of docs/papers.txt. Raises ToolError."""
    papers_by_key: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read(PAPERS).splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            fields = tuple(field.strip() for field in line.split("|"))
            if len(fields) != 5 or fields[0] in papers_by_key or not fields[4].startswith("http"):
                raise ToolError(
                    f"{shown(PAPERS)}, line {number}: write a key of its own, authors, year, title "
                    "and link, with | between them"
                )
            papers_by_key[fields[0]] = fields[1:]
    return papers_by_key


def keys_of(page: str) -> list[str]:
    """Returns the keys of the papers that a page's text names, in its order."""
    return sum((keys.split(",") for keys in re.findall(r"generated: papers (\S+)", page)), [])


def papers(folder: pathlib.Path, keys: str | None) -> str:
    """The papers of a page as links: first author and year, or the title of another text."""
    parts = []
    for key in result_tables.argument(folder, "papers", keys).split(","):
        if key not in all_papers():
            raise ToolError(f"{shown(folder)}: {shown(PAPERS)} has no line that begins with {key}")
        authors, year, title, link = all_papers()[key]
        words = f"{first_author(authors)} {year}" if year else title
        parts.append(f"[{words}]({link})")
    titles = os.path.relpath(PAPERS, folder)
    return f"**Papers** ([titles]({titles})): {', '.join(parts)}"


def first_author(authors: str) -> str:
    return authors.split(",")[0].removesuffix(" et al.")


def paper_link(path: pathlib.Path) -> str:
    """Returns the first author and the year of a script's paper, with its link.

    Of several papers of that author and year it is the one that the script's page names.
    """
    text = field(path, "Paper")
    match = re.match(r"(\w+).*?\b((?:19|20)\d\d)\b", text)
    if not match:
        return "" if text == "none" else text.partition(",")[0]
    for key in [*keys_of(read(path.with_name("README.md"))), *all_papers()]:
        authors, year, _, link = all_papers().get(key, ("", "", "", ""))
        if (first_author(authors), year) == match.groups():
            return f"[{match[1]} {year}]({link})"
    return f"{match[1]} {match[2]}"
