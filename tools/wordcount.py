"""Counts the words of each page, which tests/words.txt limits.

    python tools/wordcount.py                  check; exits with 1 and the pages that are too long
    python tools/wordcount.py --limits         lower tests/words.txt to what the pages have
    python tools/wordcount.py --limits PAGE    the same for this page, and for the sum

Neither the generated parts of a page count nor its blocks of code and comments. The line `all` is
the sum of all that `wc -w` counts on the pages without .github. CHANGELOG.md, which grows, has no
limit.
"""

import pathlib
import re
import sys

import readmes
import regions
from common import drivers, examples
from common.examples import ROOT

WORDS = ROOT / "tests" / "words.txt"
ALL = "all"
CODE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)  # such as a mark of verdict.py


IN_ALL = 1100  # words that an example's page may have, as `wc -w` counts them


def most(name):
    """Returns how many words the page of an example may have, apart from `IN_ALL`."""
    return 600 if name.startswith(readmes.FURTHER) else 700


def counted(text):
    """Returns how many words of a page somebody has to write, and to read."""
    return len(re.findall(r"\S*\w\S*", COMMENT.sub("", CODE.sub("", readmes.PART.sub("", text)))))


def pages():
    """Returns the pages that have a limit."""
    return [path for path in readmes.files() if path.name != "CHANGELOG.md"]


def size(name):
    """Returns the number that a line of tests/words.txt limits, as a tuple."""
    if name == ALL:
        counting = [page for page in pages() if page.parent.name != ".github"]
        return (sum(len(examples.read(page).split()) for page in counting),)
    return (counted(examples.read(ROOT / name)),)


def faults(limits):
    """Returns a sentence for each page, or the sum, that is above its limit."""
    sizes = {name: size(name)[0] for name in limits}
    return [
        f"{name} has {sizes[name]} words of {limit}: cut some"
        for name, (limit,) in limits.items()
        if sizes[name] > limit
    ]


def main():
    parser = drivers.Parser(__doc__)
    parser.add_argument("--limits", nargs="*", type=pathlib.Path, metavar="PAGE")
    lower = parser.parse_args().limits
    if lower is not None:
        only = [*map(examples.shown, lower), ALL] if lower else ()
        regions.lower_limits(only, WORDS, size)
        return 0
    found = faults(regions.read_limits(examples.read(WORDS)))
    print("\n".join(found) or "no page is too long")
    return bool(found)


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
