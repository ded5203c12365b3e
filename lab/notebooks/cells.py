"""The sources of the notebooks of Basics-Tutorial, and what their cells are."""

import pathlib
import re

import nbformat
from nbformat import NotebookNode

CLEAN_UP = "# Stop what this notebook started."
ANSWER = "# Your answer to "  # a cell for the reader's own code; its solution stands in the next
MEASURED = "measured"  # the tag of a cell whose numbers differ from run to run
PREDICTED = "predicted"  # the tag of a cell whose output is committed in the answer below it only
COLAB = "# On Colab, first upload course.py, which is beside this notebook."
WORDS, LINES, FOLDED_LINES = 150, 10, 60  # that a reader reads in a minute
PREDICTION, DRAWN = 1, 0.5  # minutes for an answer of one's own, and for a picture
GRADES = {"★☆☆": 10, "★★☆": 12, "★★★": 15}  # minutes that an exercise takes
HEADER = """\
# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # """
# Nothing about jupytext: with the pair named in a notebook, JupyterLab refuses to open one that is
# newer than its source, as it may be after a checkout, and writes the source anew when it saves.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
DETAILS = re.compile(r"<details><summary>Solution</summary>\n(.*?)\n</details>", re.DOTALL)
FOLDED_ANSWER = "<details><summary>Answer</summary>"
HINT = "<details><summary>Hint</summary>"
# In a source, the output that stands in a folded answer; and in the cell of a notebook.
SHOWN = re.compile(r"(# <details><summary>Answer</summary>\n#\n# ```text\n)((?:#.*\n)*?)(# ```\n)")
OUTPUT = re.compile(r"<details><summary>Answer</summary>\n\n```text\n(.*?)```\n", re.DOTALL)
FOLDED = re.compile(r"<details><summary>(?:Solution|Hint)</summary>.*?</details>", re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def notebook_from(source: pathlib.Path) -> NotebookNode:
    """The notebook of a source, without outputs; nothing in it but what follows from the source."""
    import jupytext

    notebook = jupytext.read(source)
    cells = []
    for number, cell in enumerate(notebook.cells, 1):
        new_cell = getattr(nbformat.v4, f"new_{cell.cell_type}_cell")
        metadata = {key: cell.metadata[key] for key in ("jupyter", "tags") if key in cell.metadata}
        cells.append(new_cell(cell.source, id=f"cell-{number}", metadata=metadata))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA, nbformat_minor=5)


def has_tag(cell: NotebookNode, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def number_of(cell: NotebookNode) -> str:
    """Which exercise the cell of an answer is for: "1", "2", ..., or "project"."""
    match = re.match(rf"{ANSWER}(?:exercise |the )(\w+)", cell.source)
    assert match, cell.source
    return match[1]


def texts(output: NotebookNode) -> str:
    """What an output shows as text."""
    data = output.get("data", {})
    shown = [output.get("text", "")]
    shown += ["".join(data[kind]) for kind in data if kind.startswith("text/")]
    return "\n".join(filter(None, shown))


def folded_output(cell: NotebookNode) -> str:
    """The output that stands in a folded answer."""
    match = OUTPUT.search(cell.source)
    return match[1].strip("\n") if match else ""


def minutes(cells: list[NotebookNode]) -> float:
    """How long a reader needs: for words, code, pictures, predictions and exercises.

    Without solutions, hints, links' targets, and without a project.
    """
    words, lines, folded = 0, 0, 0
    pictures, exercises = 0, 0
    for cell in cells:
        if cell.cell_type == "markdown":
            pictures += len(PICTURE.findall(cell.source))
            text = PICTURE.sub("", FOLDED.sub("", cell.source))
            words += len(re.sub(r"\]\([^)]*\)", "]", text).split())
            for grade in re.findall(r"^\*\*\d\. .*?(★[★☆]{2})", cell.source, re.M):
                exercises += GRADES[grade]
            continue
        own = [line.strip() for line in cell.source.splitlines()]
        count = sum(bool(line) and not line.startswith("#") for line in own)
        pictures += sum(line.startswith("show(") for line in own)
        if not cell.metadata.get("jupyter", {}).get("source_hidden"):
            lines += count
        elif "@course.exercise" not in own:  # nobody needs to read a check
            folded += count
    predictions = sum(has_tag(cell, PREDICTED) for cell in cells)
    reading = words / WORDS + lines / LINES + folded / FOLDED_LINES
    return reading + DRAWN * pictures + PREDICTION * predictions + exercises


def count_minutes(cells: list[NotebookNode]) -> int:
    return 5 * round(minutes(cells) / 5)
