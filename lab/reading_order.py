"""Reads docs/reading-order.txt: the examples in groups, in the order in which to read them."""

import functools
import re

from lab.examples import ROOT, ToolError, kind_of, main_script

PATH = ROOT / "docs" / "reading-order.txt"
FOLDED = " (folded)"


def read(text: str) -> dict[str, list[str]]:
    """Returns {the line of a group: its folders}. Raises ToolError on a misplaced line."""
    groups: dict[str, list[str]] = {}
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words, where = line.partition("#")[0].rstrip(), f"line {number} of docs/{PATH.name}"
        if not words:
            continue
        if not words[0].isspace():
            groups[words] = []
            folders = groups[words]
        elif not groups:
            raise ToolError(f"{where}: write a group's title above the first folder")
        elif words.strip() in seen:
            raise ToolError(f"{where}: remove {words.strip()}, which stands there twice")
        else:
            folders.append(words.strip())
            seen.add(words.strip())
    return groups


@functools.cache
def _groups() -> dict[str, list[str]]:
    try:
        return read(PATH.read_text())
    except OSError:
        raise ToolError(
            f"docs/{PATH.name} is missing: get it back with `git checkout docs/{PATH.name}`"
        ) from None


def groups() -> dict[str, list[str]]:
    """Returns {title: folders} of the groups that have a folder."""
    return {line.removesuffix(FOLDED): folders for line, folders in _groups().items() if folders}


def folded_titles() -> list[str]:
    """Returns the titles of the groups that the root page folds."""
    return [line.removesuffix(FOLDED) for line in _groups() if line.endswith(FOLDED)]


def unfolded_folders(text: str) -> list[str]:
    """Returns the folders of the groups that are not folded, of a text like the file's."""
    groups = read(text).items()
    return sum((folders for line, folders in groups if not line.endswith(FOLDED)), [])


def names() -> list[str]:
    """Returns all folders, in order."""
    return sum(groups().values(), [])


def examples() -> list[str]:
    """Returns the folders whose pages have the same sections: those of groups not folded."""
    return sum((folders for title, folders in groups().items() if title not in folded_titles()), [])


def kind_in(folder: str) -> str:
    """Returns the kind of a folder's main script, "" where there is none."""
    script = main_script(folder)
    return kind_of(script) if script.is_file() else ""


def insert_folder(text: str, name: str, source: str) -> str:
    """Returns the text of the file with the folder `name` in it.

    A folder at the root stands right behind `source`. Another one belongs to the group that is
    called as its parent folder, or has folders of that parent. There it comes last of those whose
    script has the kind of the source's, or last of all.
    """
    lines, parent = text.splitlines(), name.rpartition("/")[0]
    if not parent:
        at = next(number for number, line in enumerate(lines) if line.strip() == source)
        return "\n".join([*lines[: at + 1], f"  {name}", *lines[at + 1 :]]) + "\n"
    for line, folders in read(text).items():
        title = line.removesuffix(FOLDED).replace(" ", "-").lower()
        if title == parent.lower() or any(folder.startswith(parent + "/") for folder in folders):
            alike = [folder for folder in folders if kind_in(folder) == kind_in(source)]
            last = re.escape([line, *folders, *alike][-1])
            return re.sub(rf"(?m)^( *{last})$", rf"\g<1>\n  {name}", text)
    raise ToolError(f"add a group for {parent} to docs/{PATH.name} first")
