"""Shows the words of each page, and those of all pages together.

    python lab/pages/wordcount.py

Of a page neither the generated parts count nor its blocks of code and comments. The last line is
the sum of all that `wc -w` counts; tests/caps.txt has its cap. CHANGELOG.md, which grows, and the
pages of .github do not count.
"""

import pathlib
import re
import sys
from collections.abc import Iterable

from lab import examples
from lab.measure import arguments
from lab.pages import readmes

CODE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)  # such as a mark of verdict.py
IN_ALL = 1100  # words that an example's page may have, as `wc -w` counts them


def word_limit(name: str) -> int:
    """Returns how many words the page of an example may have, apart from `IN_ALL`."""
    return 600 if name.startswith(examples.FURTHER) else 700


def count_words(text: str) -> int:
    """Returns how many words of a page somebody has to write, and to read."""
    return len(re.findall(r"\S*\w\S*", COMMENT.sub("", CODE.sub("", readmes.PART.sub("", text)))))


def count_all_words(texts: Iterable[str]) -> int:
    """Returns what `wc -w` counts in these texts together."""
    return sum(len(text.split()) for text in texts)


def pages() -> list[pathlib.Path]:
    """Returns the pages whose words count."""
    files = readmes.files()
    return [path for path in files if path.name != "CHANGELOG.md" and path.parent.name != ".github"]


def main() -> int:
    arguments.Parser(__doc__).parse_args()
    texts = {examples.shown(page): examples.read(page) for page in pages()}
    for name, text in texts.items():
        print(f"{count_words(text):6} {name}")
    print(f"{count_all_words(texts.values()):6} all pages, as wc -w counts")
    return 0


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
