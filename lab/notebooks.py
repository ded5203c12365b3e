"""Makes the notebooks of Basics-Tutorial from their sources, runs them, and checks them.

    python lab/notebooks.py [NAME ...]              check; exits with 1 and what is wrong
    python lab/notebooks.py --execute [NAME ...]    make them from their sources, with new outputs
    python lab/notebooks.py --run [NAME ...]        run them as they are; no file is written
    python lab/notebooks.py --minutes               count the minutes of all, and write them into
                                                      the sources and the README

A source is a Python script in jupytext's percent format; the notebook NAME.ipynb stands beside
NAME.py. Without a name all are taken. What several share is in course.py and neighbours.py.

A cell with the tag `measured` shows times or rates, which differ from run to run. One with the tag
`predicted` is committed without its output, which a reader is asked to predict: --execute writes it
into the folded answer below that cell, in the source and in the notebook.
"""

import ast
import asyncio
import atexit
import os
import pathlib
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import nbclient
import nbformat
import psutil
from jupyter_client.provisioning import LocalProvisioner
from nbformat import NotebookNode

from lab.measure import arguments

ROOT = pathlib.Path(__file__).resolve().parents[1] / "Basics-Tutorial"
SECONDS = 40  # the longest that a notebook may take on 2 cores, its kernel's start included
SHARED = {"course", "neighbours"}  # what notebooks import
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

# What differs from run to run, or from machine to machine, or what nobody wants to read.
UNWANTED = {
    "a port": re.compile(r":\d{4,5}\b|\bport\W+\d+|(?<!/job:)\blocalhost\b|\b127\.0\.0\.1\b", re.I),
    "a path": re.compile(r"(?:^|[\s\"'`(=\[,:])(?:~|/[\w.+-]+)(?:/[\w.+-]+)+/?|\b[A-Z]:\\", re.M),
    "a process id": re.compile(r"\bpid\b\W*\d+|\bprocess(?:es)?(?: id)?\W+\d{2,}", re.I),
    "an address in memory": re.compile(r"\b0x[0-9a-f]{6,}\b", re.I),
    "a warning": re.compile(r"\b\w*Warning\b|\bWARNING\b|^W0000", re.M),
}


class Failed(Exception):
    """A notebook did not run to its end; says where and why."""


def order() -> dict[str, int]:
    """{name: minutes it takes} in reading order, from the table in the README."""
    rows = re.findall(
        r"^\| \[(.+)\]\(\1\.ipynb\) \| (\d+) \|", (ROOT / "README.md").read_text(), re.M
    )
    return {name: int(minutes) for name, minutes in rows}


def sources() -> list[pathlib.Path]:
    """The sources of all notebooks, in reading order; those that it does not name come last."""
    names = sorted({path.stem for path in ROOT.glob("*.py")} - SHARED)
    ordered = [name for name in order() if name in names]
    return [ROOT / f"{name}.py" for name in dict.fromkeys([*ordered, *names])]


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


def notebook_text(notebook: NotebookNode) -> str:
    """The text of the file of a notebook."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def tidy(notebook: NotebookNode) -> None:
    """Takes away what an execution leaves besides outputs and their order."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("text/html", None)


async def run_one(
    path: pathlib.Path, notebook: NotebookNode, mark: str, at: dict[pathlib.Path, int]
) -> float:
    """Executes a notebook's cells in order, in a kernel that starts in its folder.

    Returns the seconds that it took, without those of the solutions.
    """
    began = time.monotonic()
    cell_began = began
    solutions = 0.0  # seconds

    async def started(cell_index: int, **_: Any) -> None:
        nonlocal cell_began
        at[path], cell_began = cell_index, time.monotonic()

    async def executed(cell: NotebookNode, cell_index: int, **_: Any) -> None:
        nonlocal solutions
        if cell.id.startswith("solution-"):
            solutions += time.monotonic() - cell_began
        if cell_index == last:  # what it has started must have ended before the kernel does
            assert client.km is not None
            kernel = client.km.provisioner
            assert isinstance(kernel, LocalProvisioner)
            await nothing_left(mark, kernel.pid, path.stem)

    client = nbclient.NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=CRITICAL"],
        on_cell_execute=started,
        on_cell_executed=executed,
    )
    last = max(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    environment = {**os.environ, "NOTEBOOK_RUN": mark}
    environment.pop("PYTEST_CURRENT_TEST", None)  # with it a kernel does not show C++'s messages
    try:
        await client.async_execute(env=environment)
    except nbclient.exceptions.CellExecutionError as error:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", error.traceback).strip().splitlines()[-6:]
        end = "\n    ".join(lines)
        raise Failed(f"{path.stem} failed in cell {at[path] + 1}:\n    {end}") from None
    except nbclient.exceptions.DeadKernelError:
        raise Failed(f"{path.stem}: its kernel died in cell {at[path] + 1}") from None
    finally:
        atexit.unregister(client._cleanup_kernel)  # left there when its kernel was still starting
    return time.monotonic() - began - solutions


async def nothing_left(mark: str, kernel: int | None, name: str, seconds: float = 5) -> None:
    """Waits until nothing runs that a kernel has started; fails after some seconds."""
    deadline = time.monotonic() + seconds
    while left := [process for process in marked_processes(mark) if process.pid != kernel]:
        if time.monotonic() > deadline:
            raise Failed(f"{name} leaves running after its last cell: {left}")
        await asyncio.sleep(0.2)


def marked_processes(mark: str) -> list[psutil.Process]:
    """The running processes of a run, by what it has put into their environment."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("NOTEBOOK_RUN", "").startswith(mark):
                if process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            pass
    return processes


def execute(
    path: pathlib.Path,
    notebook: NotebookNode,
    seconds: float = SECONDS,
    is_over: Callable[[], bool] | None = None,
) -> float:
    """Executes the notebook of a source in a kernel; returns the seconds that it took.

    The seconds are those without the solutions. is_over: a function without arguments, asked each
    second, that says whether the time is up; without one it is after `seconds`. Nothing is left
    running, whatever happens. Raises Failed.
    """
    mark, began = uuid.uuid4().hex, time.monotonic()
    is_over = is_over or (lambda: time.monotonic() > began + seconds)
    at: dict[pathlib.Path, int] = {}  # the cell that is executed

    async def bounded() -> float:
        one = asyncio.ensure_future(run_one(path, notebook, f"{mark} {path.stem}", at))
        while not one.done() and not is_over():
            await asyncio.wait([one], timeout=1)
        if not one.done():
            one.cancel()
            await asyncio.gather(one, return_exceptions=True)
            where = f"{path.stem} (cell {at.get(path, -1) + 1})"
            raise Failed(f"not done after {time.monotonic() - began:.0f} s: {where}")
        return one.result()

    try:
        took = asyncio.run(bounded())
    finally:
        end_all(mark)
    tidy(notebook)
    return took


def write(source: pathlib.Path, executed: NotebookNode) -> None:
    """Writes an executed notebook, and the outputs of predicted cells into the folded answers."""
    asked = [cell for cell in executed.cells if has_tag(cell, PREDICTED)]
    cell_outputs = ["\n".join(map(texts, cell.outputs)).strip("\n") for cell in asked]
    text = source.read_text()
    if len(SHOWN.findall(text)) != len(cell_outputs):
        raise Failed(f"{source.stem}: not every predicted cell has an answer with a text below it")
    lines = iter(
        "".join(f"# {line}".rstrip() + "\n" for line in one.splitlines()) for one in cell_outputs
    )
    source.write_text(SHOWN.sub(lambda match: match[1] + next(lines) + match[3], text))
    notebook = notebook_from(source)
    for cell, ran in zip(notebook.cells, executed.cells, strict=True):
        if cell.cell_type == "code":
            cell.execution_count = ran.execution_count
            cell.outputs = [] if has_tag(cell, PREDICTED) else ran.outputs
    source.with_suffix(".ipynb").write_text(notebook_text(notebook))


def has_tag(cell: NotebookNode, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def end_all(mark: str) -> None:
    """Ends what a run has left, wherever it is in the tree of processes."""
    left = marked_processes(mark)
    for process in psutil.wait_procs(left, timeout=3)[1]:
        process.kill()
    psutil.wait_procs(left, timeout=5)


def with_solutions(
    notebook: NotebookNode,
    wrong: Iterable[tuple[str, str]] = (),
    right: Iterable[tuple[str, str]] = (),
) -> NotebookNode:
    """A copy in which each solution is executed where a reader stands: after the answer's cell.

    wrong: [(an exercise's number, code)] of wrong answers, which its check must refuse; they are
    executed after its solution. right: other right answers, which it must accept.
    """
    cells, number, asked = [], 0, None
    for cell in notebook.cells:
        cells.append(nbformat.from_dict(cell))
        if cell.source.startswith(ANSWER):
            asked = number_of(cell)
        if cell.cell_type != "markdown":
            continue
        for folded in DETAILS.findall(cell.source):
            check = f"assert check_{asked}(answer_{asked})"
            more = [f"{code}\n\n{check}" for exercise, code in right if exercise == asked]
            more += [f"{code}\n\n{check} is False" for exercise, code in wrong if exercise == asked]
            for code in [*FENCE.findall(folded), *more]:
                number += 1
                cells.append(nbformat.v4.new_code_cell(code, id=f"solution-{number}"))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


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


def find_faults(source: pathlib.Path) -> list[str]:
    """What is wrong with a notebook and its source, a line each."""
    notebook_path = source.with_suffix(".ipynb")
    if not notebook_path.exists():
        return [f"there is no notebook: python lab/notebooks.py --execute {source.stem}"]
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


def write_minutes() -> None:
    """Writes the minutes of all notebooks into their first cells, and into the README."""
    readme = ROOT / "README.md"
    page = readme.read_text()
    for source in sources():
        text, number = source.read_text(), count_minutes(notebook_from(source).cells)
        source.write_text(re.sub(r"(\*\*Time:\*\* )\d+", rf"\g<1>{number}", text, count=1))
        row = rf"(\| \[{source.stem}\]\({source.stem}\.ipynb\) \| )\d+"
        page = re.sub(row, rf"\g<1>{number}", page)
    before, *parts = page.split("\n### ")
    sums = [sum(map(int, re.findall(r"\.ipynb\) \| (\d+) \|", part))) for part in parts]
    parts = [
        re.sub(r"^(.*): [\dhmin ]+\n", rf"\1: {hours(own)}\n", part, count=1)
        for part, own in zip(parts, sums)
    ]
    before = re.sub(r"\d+ h(?: \d+ min)?(?= with all exercises)", hours(sum(sums)), before)
    readme.write_text("\n### ".join([before, *parts]))
    print(f"all notebooks: {hours(sum(sums))}")


def hours(total: int) -> str:
    return "%d h %d min" % divmod(total, 60)


def time_of(cells: list[NotebookNode]) -> Iterator[str]:
    """The minutes that the first cell names are those that are counted."""
    match = re.search(r"\*\*Time:\*\* (\d+) minutes", cells[0].source)
    if not match or int(match[1]) != count_minutes(cells):
        yield f"it takes {count_minutes(cells)} minutes: python lab/notebooks.py --minutes"


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


def folded_output(cell: NotebookNode) -> str:
    """The output that stands in a folded answer."""
    match = OUTPUT.search(cell.source)
    return match[1].strip("\n") if match else ""


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


def choose_sources(names: list[str]) -> list[pathlib.Path]:
    """The sources of these names, all without any."""
    by_name = {path.stem: path for path in sources()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        sys.exit(
            "no such notebook: {}; there are {}".format(", ".join(unknown), ", ".join(by_name))
        )
    return [by_name[name] for name in names] if names else list(by_name.values())


def run(paths: list[pathlib.Path], fresh: bool, seconds: float) -> bool:
    """Executes notebooks, one after the other, and says how long each took; 1 if one failed.

    fresh: made from their sources, and written with their outputs.
    """
    failed = 0
    for path in paths:
        notebook = notebook_from(path) if fresh else notebook_of(path)
        try:
            took = execute(path, notebook, seconds)
            if fresh:
                write(path, notebook)
        except Failed as error:
            failed += 1
            print(error, file=sys.stderr, flush=True)
            continue
        print(f"{path.stem:<36} {took:5.1f} s", flush=True)
    return failed > 0


def notebook_of(source: pathlib.Path) -> NotebookNode:
    return nbformat.read(source.with_suffix(".ipynb"), nbformat.NO_CONVERT)


def main() -> int | None:
    parser = arguments.Parser(__doc__)
    parser.add_argument("--execute", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--minutes", action="store_true")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="the longest a run may take")
    parser.add_argument("names", nargs="*", metavar="NAME")
    flags = parser.parse_args()
    paths = choose_sources(flags.names)
    if flags.minutes:
        write_minutes()
        return 0
    if flags.execute or flags.run:
        return run(paths, flags.execute, flags.seconds)
    faults = [f"{path.stem}: {what}" for path in paths for what in find_faults(path)]
    print("\n".join(faults) or f"{len(paths)} notebooks are in order")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
