"""The links of the glossary; its words stand on the page."""

import os
import pathlib
import re

from lab import notebook_sources, reading_order
from lab.examples import ROOT

METHODS = {"ClusterSpec": r"\.cluster_spec\("}  # what makes one without its name


def glossary(folder: pathlib.Path, _: str | None) -> str:
    """The terms of the classic API, each with a link to the first line of ours that uses it."""
    text = (folder / "GLOSSARY.md").read_text().partition("<!-- generated: glossary -->\n")[2]
    header, dashes, *rows = text.partition("\n<!-- end -->")[0].splitlines()
    lines = [header, dashes]
    for row in rows:  # a term, its words, and the link, which is written anew
        term = row.split("`")[1]
        words = row[:-2].rpartition(" |")[0]
        lines.append(f"{words} | {usage(term, folder)} |")
    return "\n".join(lines)


def usage(term: str, folder: pathlib.Path) -> str:
    """Links from a folder to the first line of an example, or the first notebook, with a term."""
    pattern = METHODS.get(term, rf"tf\.train\.{term}\b")
    # The terms are TensorFlow 1's: what is kept in it comes first.
    names = sorted(reading_order.names(), key=lambda name: not name.startswith("From-TensorFlow-1"))
    for name in names:
        for path in sorted((ROOT / name).glob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line.split("  #")[0]) and "(" in line:
                    return f"[{path.stem}]({os.path.relpath(path, folder)}#L{number})"
    for path in notebook_sources.sources():
        if re.search(rf"^[^#\n]*tf\.train\.{term}\(", path.read_text(), re.MULTILINE):
            link = os.path.relpath(path.with_suffix(".ipynb"), folder)
            return f"[{path.stem}]({link})"
    raise ValueError(f"neither a script nor a notebook uses {term}")
