"""Sentences about Compare say what its committed results say, by the marks beside them."""

import json
import re

import pytest
import support
from lab import examples

COMPARE = support.ROOT / "Measurements" / "Compare"
# Where a sentence that compares two rows needs a mark: the sections about what was found.
SECTIONS = {"README.md": "What was found", "Measurements/Compare/README.md": "What follows"}
COMPARING = re.compile(r"\b(sooner|faster|later than|separable|before any|lower loss|wins?)\b")
verdict = examples.load(COMPARE / "verdict.py")


def results():
    """Returns the committed results; none before they are measured."""
    path = COMPARE / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def without_mark(text):
    """Returns the paragraphs and items of a text that compare rows without a mark."""
    parts = re.split(r"\n(?=- )|\n\n", text)
    return [
        part
        for part in parts
        if COMPARING.search(re.sub(r"<!--.*?-->", "", part, flags=re.DOTALL))
        and not verdict.MARK.search(part)
        and "](" not in part  # a link says whose result it is
    ]


def test_each_mark_says_what_the_results_say():
    """Catches a sentence that the results, or the test, do not bear out, and a misspelt mark."""
    faults = []
    for page in examples.tracked_files("*.md"):
        text = page.read_text()
        marks = verdict.MARK.findall(text)
        faults += [
            f"{examples.shown(page)}: {fault}"
            for mark in marks
            if (fault := verdict.fault(results(), *mark))
        ]
        written = re.findall(rf"<!-- *(?:{'|'.join(verdict.MARKS)})\b", text)
        if len(written) != len(marks):
            faults.append(f"{examples.shown(page)}: write a mark as in {VERDICT}")
    assert not faults, "\n".join(faults)


VERDICT = examples.shown(COMPARE / "verdict.py")


@pytest.mark.parametrize("page", SECTIONS)
def test_a_sentence_that_compares_has_a_mark(page):
    """Catches a claim about two rows that no test holds to the results."""
    text = (support.ROOT / page).read_text()
    section = text.partition(f"\n## {SECTIONS[page]}\n")[2].partition("\n## ")[0]
    assert section
    assert not without_mark(section)


def test_marks_that_are_missing_are_found():
    claim = "- HogWild is sooner than SAGN."
    mark = "<!-- sooner: 8 workers, CV 1: HogWild / SAGN -->"
    assert without_mark(f"- a\n{claim}\n- b") == [claim]
    assert without_mark(f"{claim} {mark}\n- b is [sooner](x)\n\nc") == []
    assert verdict.fault({}, *verdict.MARK.findall(mark)[0]).startswith("the results have no row")
