"""What is wrong with a notebook of Basics-Tutorial and its source: their form, and what varies."""

import ast
import pathlib
import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

from lab.notebooks.cells import (
    ANSWER,
    CLEAN_UP,
    COLAB,
    DETAILS,
    FENCE,
    FOLDED_ANSWER,
    HEADER,
    HINT,
    PICTURE,
    PREDICTED,
    count_minutes,
    folded_output,
    has_tag,
    notebook_from,
    number_of,
    texts,
)

# What differs from run to run, or from machine to machine, or what nobody wants to read.
UNWANTED = {
    "a port": re.compile(r":\d{4,5}\b|\bport\W+\d+|(?<!/job:)\blocalhost\b|\b127\.0\.0\.1\b", re.I),
    "a path": re.compile(r"(?:^|[\s\"'`(=\[,:])(?:~|/[\w.+-]+)(?:/[\w.+-]+)+/?|\b[A-Z]:\\", re.M),
    "a process id": re.compile(r"\bpid\b\W*\d+|\bprocess(?:es)?(?: id)?\W+\d{2,}", re.I),
    "an address in memory": re.compile(r"\b0x[0-9a-f]{6,}\b", re.I),
    "a warning": re.compile(r"\b\w*Warning\b|\bWARNING\b|^W0000", re.M),
}


def find_faults(source: pathlib.Path) -> list[str]:
    """What is wrong with a notebook and its source, a line each."""
    notebook_path = source.with_suffix(".ipynb")
    if not notebook_path.exists():
        return [f"there is no notebook: python lab/notebooks/make.py --execute {source.stem}"]
    notebook, fresh = nbformat.read(notebook_path, nbformat.NO_CONVERT), notebook_from(source)
    if not source.read_text().startswith(HEADER):
        return ["the source does not begin with the header, and a cell with the title"]
    return [
        *differences(notebook, fresh),
        *form(fresh.cells),
        *time_of(fresh.cells),
        *predictions(fresh.cells),
        *exercises(fresh.cells),
        *outputs(notebook.cells),
    ]


def differences(notebook: NotebookNode, fresh: NotebookNode) -> Iterator[str]:
    """Where a notebook is not that of its source, or was not run from top to bottom."""
    for number, (cell, expected) in enumerate(zip(notebook.cells, fresh.cells), 1):
        if (cell.cell_type, cell.source) != (expected.cell_type, expected.source):
            yield f"cell {number} is not that of the source"
            return
        if cell.id != expected.id or cell.metadata != expected.metadata:
            yield f"cell {number} has metadata that the source does not give"
            return
    if len(notebook.cells) != len(fresh.cells):
        yield f"{len(notebook.cells)} cells, and {len(fresh.cells)} in the source"
    if notebook.metadata != fresh.metadata:
        yield "the metadata are not those that the source gives"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    if counts != list(range(1, len(counts) + 1)):
        yield f"it was not executed from top to bottom: {counts}"


def form(cells: list[NotebookNode]) -> Iterator[str]:
    """Goals, prerequisites, minutes; a figure before the code; the cell that cleans up; links."""
    first = cells[0].source
    code = [i for i, cell in enumerate(cells) if cell.cell_type == "code"]
    if "After this notebook you can" not in first or not 3 <= first.count("\n- ") <= 6:
        yield "the first cell lacks `After this notebook you can`, and 3 to 6 points below it"
    if "**Before it:**" not in first or not re.search(r"\*\*Time:\*\* \d+ minutes", first):
        yield "the first cell lacks `**Before it:**`, or `**Time:** ... minutes`"
    if not any(PICTURE.search(cell.source) for cell in cells[: code[0]]):
        yield "there is no figure before the first cell of code"
    yield from undescribed_pictures(cells)
    for i in code:
        if cells[i].source.startswith(CLEAN_UP) != (i == code[-1]):
            yield f"cell {i + 1}: the last cell of code cleans up, and no other"
    if not cells[code[0]].source.startswith(f"{COLAB}\nimport course\n"):
        yield f"the first cell of code does not begin with `{COLAB}` and `import course`"
    if "course.begin(" not in cells[code[0]].source or "course.end()" not in cells[code[-1]].source:
        yield "the first cell of code lacks course.begin(), or the last one course.end()"
    last = cells[-1].source
    if "## Read more" not in last or "](https://" not in last:
        yield "the last cell lacks `## Read more` with a link to a paper or a manual"


def undescribed_pictures(cells: list[NotebookNode]) -> Iterator[str]:
    """Which pictures have no description that tells what they show."""
    for number, cell in enumerate(cells, 1):
        if cell.cell_type == "markdown":
            for alt, target in PICTURE.findall(cell.source):
                if len(alt) < 30:
                    yield f"cell {number}: {target} has no description, or a short one"


def time_of(cells: list[NotebookNode]) -> Iterator[str]:
    """The minutes that the first cell names are those that are counted."""
    match = re.search(r"\*\*Time:\*\* (\d+) minutes", cells[0].source)
    if not match or int(match[1]) != count_minutes(cells):
        yield f"it takes {count_minutes(cells)} minutes: python lab/notebooks/make.py --minutes"


def predictions(cells: list[NotebookNode]) -> Iterator[str]:
    """One to three: a question, the cell to run, and behind it a folded answer with the output."""
    code = [i for i, cell in enumerate(cells) if cell.cell_type == "code"]
    predicted = [i for i in code if has_tag(cells[i], PREDICTED)]
    questions = sum(cell.source.count("**Predict:**") for cell in cells)
    answers = sum(cell.source.count(FOLDED_ANSWER) for cell in cells)
    if not 1 <= len(predicted) <= 3 or not len(predicted) == questions == answers:
        yield (
            f"{len(predicted)} cells are predicted, with {questions} questions and {answers} "
            "answers; 1 to 3 are wanted"
        )
    for i in predicted:
        before = [cell.source for cell in cells[max([0, *(k for k in code if k < i)]) : i]]
        if "**Predict:**" not in "".join(before):
            yield f"cell {i + 1} is predicted, and no `**Predict:**` stands right before it"
        if not cells[i + 1].source.startswith(FOLDED_ANSWER) or not folded_output(cells[i + 1]):
            yield f"cell {i + 1}: the next one does not begin with the answer and its output"


def exercises(cells: list[NotebookNode]) -> Iterator[str]:
    """Two or more: a grade, a hint, a check, a cell for the answer, a solution that is checked."""
    answers = [i for i, cell in enumerate(cells) if cell.source.startswith(ANSWER)]
    if len(answers) < 2 or not any("## Exercises" in c.source for c in cells):
        yield "there is no `## Exercises` with two exercises or more"
    for i in answers:
        number = number_of(cells[i])
        before, check, after = cells[i - 2].source, cells[i - 1], cells[i + 1].source
        if not re.search(r"^\*\*(\d|Project)\. .*★", before, re.M) or HINT not in before:
            yield f"cell {i - 1}: an exercise begins with `**1. Title.** ★`, and has a folded hint"
        hidden = check.metadata.get("jupyter", {}).get("source_hidden")
        if f"@course.exercise\ndef check_{number}(" not in check.source or not hidden:
            yield f"cell {i} is no folded `@course.exercise def check_{number}`"
        if cells[i].source.splitlines()[-1] != f"check_{number}(answer_{number})":
            yield f"cell {i + 1} does not end with check_{number}(answer_{number})"
        code = "".join("".join(FENCE.findall(text)) for text in DETAILS.findall(after))
        try:
            ast.parse(code)
        except SyntaxError as error:
            yield f"cell {i + 2}: {error}"
        if f"assert check_{number}(answer_{number})" not in code:
            yield f"cell {i + 2}: no folded solution that asserts check_{number}"
    if sum(len(DETAILS.findall(cell.source)) for cell in cells) != len(answers):
        yield "the solutions are not as many as the cells for answers"


def faults_of_output(output: NotebookNode) -> Iterator[str]:
    """Yields what an output shows or has that it must not."""
    if output.output_type == "error" or output.get("name") == "stderr":
        yield f"shows {output.get('name', 'an error')}"
    text = texts(output)
    for what, pattern in UNWANTED.items():
        if match := pattern.search(text):
            yield f"shows {what}: {match[0].strip()}"
    for kind in output.get("data", {}):
        if kind.startswith("image/"):
            if len(output.metadata.get(kind, {}).get("alt", "")) < 30:
                yield "has a picture without a description"
        elif kind != "text/plain":
            yield f"has an output of type {kind}"


def outputs(cells: list[NotebookNode]) -> Iterator[str]:
    """Nothing in them that differs from run to run; a description of each picture."""
    for number, cell in enumerate(cells, 1):
        if has_tag(cell, PREDICTED) and cell.outputs:
            yield f"cell {number} is predicted, and shows its output"
        if cell.cell_type == "markdown":
            for what, pattern in UNWANTED.items():
                if match := pattern.search(folded_output(cell)):
                    yield f"cell {number} shows {what}: {match[0].strip()}"
        for output in cell.get("outputs", []):
            yield from (f"cell {number} {what}" for what in faults_of_output(output))
