"""The examples in reading order: tables of them, and links from each to its neighbours."""

import pathlib

from lab import reading_order
from lab.docstrings import field, script, title
from lab.examples import ROOT, ToolError
from lab.pages import result_tables
from lab.pages.papers import paper_link


def examples(_: pathlib.Path, __: str | None) -> str:
    """The examples in reading order: one table, and a line of links for each folded group."""
    rows = []
    folded = []
    for group, names in reading_order.groups().items():
        paths = [script(ROOT / name) for name in names]
        links = [f"[{path.parent.name}]({name}/)" for path, name in zip(paths, names)]
        if group in reading_order.folded_titles():
            folded.append(f"**{group}:** {', '.join(links)}")
            continue
        rows.append((f"**{group}**", "", ""))
        rows += [(link, title(path), paper_link(path)) for path, link in zip(paths, links)]
    return "\n\n".join([result_tables.table(["example", "what it shows", "paper"], rows), *folded])


def further(folder: pathlib.Path, _: str | None) -> str:
    """What each example in a folder of examples changes, in reading order, below its kind."""
    lines = []
    kind = None
    for path in [script(ROOT / name) for name in reading_order.names()]:
        if path.parent.parent != folder:
            continue
        if field(path, "Kind") != kind:
            kind = field(path, "Kind")
            lines += ["", f"**{kind.capitalize()}**"]
        source, _, change = field(path, "Differs from").partition(": ")
        beside = folder / source.rpartition("/")[2]
        link = f"{beside.name}/" if beside.is_dir() else f"../{source}/"
        name = path.parent.name
        lines.append(f"- [{name}]({name}/) changes [{beside.name}]({link}): {change}")
    return "\n".join(lines[1:])


def links(folder: pathlib.Path, _: str | None) -> str:
    """Links to the previous and the next example in reading order."""
    names = reading_order.names()
    name = folder.relative_to(ROOT)
    if name.as_posix() not in names:
        raise ToolError(f"add {name.as_posix()} to docs/reading-order.txt, at its place")
    at = names.index(name.as_posix())
    up = "../" * len(name.parts)
    parts = []
    if at > 0:
        previous = names[at - 1]
        parts.append(f"Previous: [{previous}]({up}{previous}/)")
    if at + 1 < len(names):
        following = names[at + 1]
        parts.append(f"next: [{following}]({up}{following}/)")
    return ", ".join(parts)
