"""No script, and no page, is longer than its cap in tests/caps.txt."""

import re

import pytest
import support
from lab import examples, reading_order
from lab.pages import wordcount

SCRIPTS = examples.scripts()
ALL = "all pages"


def read_caps(text):
    """Returns {a kind, a script, or ALL: its numbers} of a text like tests/caps.txt."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    rows = [re.fullmatch(r"(.+?)((?: \d+)+)", line).groups() for line in lines]
    return {name: [*map(int, numbers.split())] for name, numbers in rows}


CAPS = read_caps((support.ROOT / "tests" / "caps.txt").read_text())


def key(script):
    """Returns whose caps a script has: its own, or those of its kind."""
    own = examples.shown(script)
    return own if own in CAPS else examples.kind_of(script)


def script_faults(script, text):
    """Returns what a script's text has more of than its caps allow, a sentence each."""
    above, lines = CAPS[key(script)]
    sizes = {
        "lines above the divider": (examples.lines_above(text), above),
        "lines": (len(text.splitlines()), lines),
    }
    return [f"{n} {what}, at most {most}" for what, (n, most) in sizes.items() if n > most]


def all_pages_faults(texts):
    """Returns a sentence if these texts together have too many words."""
    words, (most,) = wordcount.count_all_words(texts), CAPS[ALL]
    count = "lab/pages/wordcount.py counts those of a page"
    text = f"{words} words, at most {most} by tests/caps.txt; {count}"
    return [text] if words > most else []


def example_faults(name, text):
    """Returns what the page of an example has too many words of, a sentence each."""
    sizes = {
        "words without code and generated parts": (
            wordcount.count_words(text),
            wordcount.word_limit(name),
        ),
        "words": (len(text.split()), wordcount.IN_ALL),
    }
    return [f"{n} {what}, at most {most}" for what, (n, most) in sizes.items() if n > most]


@pytest.mark.parametrize("script", SCRIPTS, ids=examples.shown)
def test_a_script_is_short(script):
    assert not script_faults(script, script.read_text())


def test_a_longer_script_is_found():
    """Catches a count that counts nothing, of lines above or of all lines; and a cap of no use."""
    assert CAPS.keys() == {ALL, *map(key, SCRIPTS)}
    script = examples.main_script(f"{examples.SESSIONS}/HogWild-Sessions")
    text = script.read_text()
    above, lines = CAPS[examples.kind_of(script)]
    longer = "# a comment\n" * (above - examples.lines_above(text)) + text
    assert not script_faults(script, longer)
    faults = script_faults(script, "# a comment\n" + longer)
    assert faults == [f"{above + 1} lines above the divider, at most {above}"]
    longer = text + "# a comment\n" * (lines - len(text.splitlines()))
    assert not script_faults(script, longer)
    faults = script_faults(script, longer + "# a comment\n")
    assert faults == [f"{lines + 1} lines, at most {lines}"]


def test_all_pages_are_short():
    """Catches pages that grow, and words that are not counted."""
    assert not all_pages_faults([page.read_text() for page in wordcount.pages()])
    (most,) = CAPS[ALL]
    assert not all_pages_faults(["a `word` " * (most // 2)])
    assert all_pages_faults(["a `word` " * (most // 2), "more"])


def test_the_page_of_an_example_is_short():
    """Catches a page that nobody reads to its end, and a word that is not counted."""
    for name in [*reading_order.examples(), "Your-Model"]:
        faults = example_faults(name, (support.ROOT / name / "README.md").read_text())
        assert not faults, (name, faults)
    page, part = "| one | `two` - |\n", "<!-- generated: output -->\nno\n<!-- end -->\n"
    assert wordcount.count_words(page + part + "  ```\n  no\n  ```\nthree\n") == 3
    for name, most in (("HogWild", 700), ("Further-Algorithms/DiLoCo", 600)):
        assert not example_faults(name, "word " * most)
        assert len(example_faults(name, "word " * (most + 1))) == 1
    code = "```\n" + "word " * wordcount.IN_ALL + "\n```\n"
    assert len(example_faults("HogWild", code)) == 1
