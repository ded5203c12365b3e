"""The numbers on the front page, which stand in its sentences."""

import re

from lab import reading_order
from lab.examples import ROOT, read_json, tracked_files
from lab.pages.mistakes import count_all_mistakes
from lab.pages.own_results import YOUR_MODEL


def matrix_cells() -> list[str]:
    """Returns the cells of Your-Model/matrix.json: how each example took each problem file."""
    cells = read_json(YOUR_MODEL / "matrix.json")["cells"]
    return [cell for row in cells.values() for cell in row.values()]


NUMBERS = {  # words around a number on the front page: what the number is
    r"(\*\*)\d+( examples\*\*)": lambda: len(reading_order.examples()),
    r"(They catch all )\d+( mistakes)": count_all_mistakes,
    r"(\*\*)\d+( faults\*\*)": lambda: len(
        read_json(ROOT / "Operations" / "Fault-Tolerance" / "results.json")
    ),
    r"( has )\d+( notebooks)": lambda: len(tracked_files("*.ipynb")),
    r"()\d+( of \d+ pairs)": lambda: matrix_cells().count("trains"),
    r"( of )\d+( pairs)": lambda: len(matrix_cells()),
}


def with_numbers(text: str) -> str:
    """Returns the text of the front page with its numbers as they should be."""
    for words, number in NUMBERS.items():
        if re.search(words, text):
            text = re.sub(words, rf"\g<1>{number()}\g<2>", text)
    return text
