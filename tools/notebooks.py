"""Makes the notebooks of Basics-Tutorial from their sources, runs them, and checks them.

    python tools/notebooks.py [NAME ...]              check; exits with 1 and what is wrong
    python tools/notebooks.py --execute [NAME ...]    make them from their sources, with new outputs
    python tools/notebooks.py --run [NAME ...]        run them as they are; no file is written
    python tools/notebooks.py --fix NAME              copy its regions into the other sources

A source is a Python script in jupytext's percent format; the notebook of that name stands beside
it. NAME is its path within Basics-Tutorial without the suffix: Servers, Multiple-Workers/Worker-1;
without a name all are taken. The notebooks of an inner folder belong together and run at once.

A cell that several notebooks share is a region (see regions.py) with the same text in each. A cell
with the tag `measured` shows times or rates, which differ from run to run.
"""

import argparse
import ast
import asyncio
import atexit
import os
import pathlib
import re
import sys
import time
import uuid

import nbclient
import nbformat
import psutil
import regions

ROOT = pathlib.Path(__file__).resolve().parents[1] / "Basics-Tutorial"
SECONDS = 40  # the longest that a notebook may take on 2 cores, its kernel's start included
CLEAN_UP = "# Stop what this notebook started."
ANSWER = "# Your answer to "  # a cell for the reader's own code; its solution stands in the next
MEASURED = "measured"  # the tag of a cell whose numbers differ from run to run
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


def order():
    """{name: minutes it takes} in reading order, from the table in the README."""
    rows = re.findall(
        r"^\| \[(.+)\]\(\1\.ipynb\) \| (\d+) \|", (ROOT / "README.md").read_text(), re.M
    )
    return {name: int(minutes) for name, minutes in rows}


def name_of(path):
    return path.relative_to(ROOT).with_suffix("").as_posix()


def sources():
    """The sources of all notebooks, in reading order; those that it does not name come last."""
    names = [name_of(path) for path in ROOT.glob("**/*.py")]
    names = [name for name in sorted(names) if not re.search(r"(^|/)\.", name)]
    ordered = [name for name in order() if name in names]
    return [ROOT / f"{name}.py" for name in dict.fromkeys([*ordered, *names])]


def groups(paths):
    """Lists of notebooks that run at once: those of an inner folder together, the others alone."""
    lists = []
    for path in paths:
        together = [other for other in sources() if other.parent == path.parent]
        group = [path] if path.parent == ROOT else together
        if group not in lists:
            lists.append(group)
    return lists


def made(source):
    """The notebook of a source, without outputs; nothing in it but what follows from the source."""
    import jupytext

    notebook = jupytext.read(source)
    cells = []
    for number, cell in enumerate(notebook.cells, 1):
        new_cell = getattr(nbformat.v4, f"new_{cell.cell_type}_cell")
        metadata = {key: cell.metadata[key] for key in ("jupyter", "tags") if key in cell.metadata}
        cells.append(new_cell(cell.source, id=f"cell-{number}", metadata=metadata))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA, nbformat_minor=5)


def written(notebook):
    """The text of the file of a notebook."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def tidy(notebook):
    """Takes away what an execution leaves besides outputs and their order."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("text/html", None)


async def run_one(path, notebook, mark, at, ready):
    """Executes a notebook's cells in order, in a kernel that starts in its folder.

    Returns the seconds that it took, without those of the solutions.
    """
    began = cell_began = time.monotonic()
    solutions = 0  # seconds

    async def started(cell_index, **_):
        nonlocal cell_began
        at[path], cell_began = cell_index, time.monotonic()

    async def executed(cell, cell_index, **_):
        nonlocal solutions
        if cell.id.startswith("solution-"):
            solutions += time.monotonic() - cell_began
        ready.set()
        if cell_index == last:  # what it has started must have ended before the kernel does
            await nothing_left(mark, client.km.provisioner.pid, path.stem)

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
        ready.set()
        atexit.unregister(client._cleanup_kernel)  # left there when its kernel was still starting
    return time.monotonic() - began - solutions


async def nothing_left(mark, kernel, name, seconds=5):
    """Waits until nothing runs that a kernel has started; fails after some seconds."""
    deadline = time.monotonic() + seconds
    while left := [process for process in marked(mark) if process.pid != kernel]:
        if time.monotonic() > deadline:
            raise Failed("%s leaves running after its last cell: %s" % (name, left))
        await asyncio.sleep(0.2)


def marked(mark):
    """The running processes of a run, by what it has put into their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("NOTEBOOK_RUN", "").startswith(mark):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            pass
    return found


def execute(notebooks, in_turn=False, seconds=SECONDS):
    """Executes {source: notebook} at once, in a kernel each; returns {source: seconds it took}.

    The seconds are those without the solutions.
    in_turn: the kernel of each starts only when the one before has executed its first cell.
    Nothing is left running, whatever happens. Raises Failed.
    """
    mark, at, took = uuid.uuid4().hex, {}, {}

    async def one(path, notebook, wait_for, ready):
        if in_turn:
            await wait_for.wait()
        took[path] = await run_one(path, notebook, f"{mark} {path.stem}", at, ready)

    async def all_of_them():
        gates = [asyncio.Event() for _ in range(len(notebooks) + 1)]
        gates[0].set()
        tasks = [
            asyncio.ensure_future(one(path, notebook, gates[i], gates[i + 1]))
            for i, (path, notebook) in enumerate(notebooks.items())
        ]
        done, pending = await asyncio.wait(
            tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()
        if pending:
            where = ["%s (cell %d)" % (p.stem, at.get(p, -1) + 1) for p in notebooks.keys() - took]
            raise Failed("not done after %d s: %s" % (seconds, ", ".join(sorted(where))))

    try:
        asyncio.run(all_of_them())
    finally:
        end_all(mark)
    for notebook in notebooks.values():
        tidy(notebook)
    return took


def end_all(mark):
    """Ends what a run has left, wherever it is in the tree of processes."""
    left = marked(mark)
    for process in psutil.wait_procs(left, timeout=3)[1]:
        process.kill()
    psutil.wait_procs(left, timeout=5)


def with_solutions(notebook):
    """A copy in which each solution is executed where a reader stands: after the answer's cell."""
    cells, number = [], 0
    for cell in notebook.cells:
        cells.append(nbformat.from_dict(cell))
        for folded in DETAILS.findall(cell.source) if cell.cell_type == "markdown" else []:
            for code in FENCE.findall(folded):
                number += 1
                cells.append(nbformat.v4.new_code_cell(code, id="solution-%d" % number))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def texts(output):
    """What an output shows as text."""
    data = output.get("data", {})
    shown = [output.get("text", "")]
    shown += ["".join(data[kind]) for kind in data if kind.startswith("text/")]
    return "\n".join(filter(None, shown))


def problems(source):
    """What is wrong with a notebook and its source, a line each."""
    notebook_path = source.with_suffix(".ipynb")
    if not notebook_path.exists():
        return ["there is no notebook: python tools/notebooks.py --execute %s" % source.stem]
    notebook, fresh = nbformat.read(notebook_path, nbformat.NO_CONVERT), made(source)
    if not source.read_text().startswith(HEADER):
        return ["the source does not begin with the header, and a cell with the title"]
    return [
        *differences(notebook, fresh),
        *form(fresh.cells),
        *predictions(fresh.cells),
        *exercises(fresh.cells),
        *outputs(notebook.cells),
        *copies(source),
    ]


def differences(notebook, fresh):
    """Where a notebook is not that of its source, or was not run from top to bottom."""
    for number, (cell, expected) in enumerate(zip(notebook.cells, fresh.cells), 1):
        if (cell.cell_type, cell.source) != (expected.cell_type, expected.source):
            yield "cell %d is not that of the source" % number
            return
        if cell.id != expected.id or cell.metadata != expected.metadata:
            yield "cell %d has metadata that the source does not give" % number
            return
    if len(notebook.cells) != len(fresh.cells):
        yield "%d cells, and %d in the source" % (len(notebook.cells), len(fresh.cells))
    if notebook.metadata != fresh.metadata:
        yield "the metadata are not those that the source gives"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    if counts != list(range(1, len(counts) + 1)):
        yield "it was not executed from top to bottom: %s" % counts


def form(cells):
    """Goals, prerequisites, minutes; a figure before the code; the cell that cleans up; links."""
    first, code = cells[0].source, [i for i, cell in enumerate(cells) if cell.cell_type == "code"]
    if "After this notebook you can" not in first or not 3 <= first.count("\n- ") <= 6:
        yield "the first cell lacks `After this notebook you can`, and 3 to 6 points below it"
    if "**Before it:**" not in first or not re.search(r"\*\*Time:\*\* \d+ minutes", first):
        yield "the first cell lacks `**Before it:**`, or `**Time:** ... minutes`"
    if not any(PICTURE.search(cell.source) for cell in cells[: code[0]]):
        yield "there is no figure before the first cell of code"
    for number, cell in enumerate(cells, 1):
        for alt, target in PICTURE.findall(cell.source) if cell.cell_type == "markdown" else []:
            if len(alt) < 30:
                yield "cell %d: %s has no description, or a short one" % (number, target)
    for i in code:
        if cells[i].source.startswith(CLEAN_UP) != (i == code[-1]):
            yield "cell %d: the last cell of code cleans up, and no other" % (i + 1)
    last = cells[-1].source
    if "## Read more" not in last or "](https://" not in last:
        yield "the last cell lacks `## Read more` with a link to a paper or a manual"


def predictions(cells):
    """Three to five, each with a run behind it and then a folded answer."""
    marks = [
        (i, mark)
        for i, cell in enumerate(cells)
        if cell.cell_type == "markdown"
        for mark in re.findall(rf"\*\*Predict:\*\*|{FOLDED_ANSWER}", cell.source)
    ]
    asked = [i for i, mark in marks if mark != FOLDED_ANSWER]
    answered = [i for i, mark in marks if mark == FOLDED_ANSWER]
    if not 3 <= len(asked) <= 5:
        yield "%d predictions are asked for; 3 to 5 are wanted" % len(asked)
    if [mark == FOLDED_ANSWER for _, mark in marks] != [False, True] * len(asked):
        yield "not every `**Predict:**` has a folded answer before the next one"
    for begin, end in zip(asked, answered):
        if not any(cell.cell_type == "code" for cell in cells[begin:end]):
            yield "cell %d asks for a prediction, but no run follows" % (begin + 1)


def exercises(cells):
    """Two or more: a grade, a hint, a cell for the answer, a solution that asserts something."""
    answers = [i for i, cell in enumerate(cells) if cell.source.startswith(ANSWER)]
    if len(answers) < 2 or not any(c.source.startswith("## Exercises") for c in cells):
        yield "there is no `## Exercises` with two exercises or more"
    for i in answers:
        before, after = cells[i - 1].source, cells[i + 1].source
        if not re.search(r"^\*\*(\d|Project)\. .*★", before, re.M) or HINT not in before:
            yield "cell %d: an exercise begins with `**1. Title.** ★`, and has a folded hint" % i
        if any(line and not line.startswith("#") for line in cells[i].source.splitlines()):
            yield "cell %d: the cell for an answer has code" % (i + 1)
        code = "".join("".join(FENCE.findall(text)) for text in DETAILS.findall(after))
        try:
            found = any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code)))
        except SyntaxError as error:
            yield "cell %d: %s" % (i + 2, error)
            continue
        if not found:
            yield "cell %d: no folded solution that asserts something" % (i + 2)
    if sum(len(DETAILS.findall(cell.source)) for cell in cells) != len(answers):
        yield "the solutions are not as many as the cells for answers"


def outputs(cells):
    """Nothing in them that differs from run to run; a description of each picture."""
    for number, cell in enumerate(cells, 1):
        for output in cell.get("outputs", []):
            if output.output_type == "error" or output.get("name") == "stderr":
                yield "cell %d shows %s" % (number, output.get("name", "an error"))
            text = texts(output)
            for what, pattern in UNWANTED.items():
                if found := pattern.search(text):
                    yield "cell %d shows %s: %s" % (number, what, found[0].strip())
            for kind in output.get("data", {}):
                if kind.startswith("image/"):
                    if len(output.metadata.get(kind, {}).get("alt", "")) < 30:
                        yield "cell %d has a picture without a description" % number
                elif kind != "text/plain":
                    yield "cell %d has an output of type %s" % (number, kind)


def copies(source):
    """The regions that are not the same text as in the first notebook that has them."""
    first = {}
    for path in sources():
        for name, text in regions.regions(path).items():
            first.setdefault(name, (path, text))
    for name, text in regions.regions(source).items():
        if text != first[name][1]:
            yield f"its region {name} is not that of {first[name][0].name}"


def chosen(names):
    """The sources of these names, all without any."""
    found = {name_of(path): path for path in sources()}
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.exit("no such notebook: %s; there are %s" % (", ".join(unknown), ", ".join(found)))
    return [found[name] for name in names] if names else list(found.values())


def run(paths, write, seconds):
    """Executes notebooks, a group after the other, and says how long each took; 1 if one failed."""
    failed = 0
    for group in groups(paths):
        read = made if write else notebook_of
        notebooks = {path: read(path) for path in group}
        try:
            took = execute(notebooks, seconds=seconds)
        except Failed as error:
            failed += 1
            print(error, file=sys.stderr, flush=True)
            continue
        for path, notebook in notebooks.items():
            print("%-36s %5.1f s" % (name_of(path), took[path]), flush=True)
            if write:
                path.with_suffix(".ipynb").write_text(written(notebook))
    return failed > 0


def notebook_of(source):
    return nbformat.read(source.with_suffix(".ipynb"), nbformat.NO_CONVERT)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--execute", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="the longest a run may take")
    parser.add_argument("names", nargs="*", metavar="NAME")
    flags = parser.parse_args()
    paths = chosen(flags.names)
    if flags.fix:
        if len(flags.names) != 1:
            parser.error("--fix needs one name: the notebook whose regions are right")
        return regions.fix(*paths, *sources())
    if flags.execute or flags.run:
        return run(paths, flags.execute, flags.seconds)
    found = ["%s: %s" % (name_of(path), what) for path in paths for what in problems(path)]
    print("\n".join(found) or "%d notebooks are in order" % len(paths))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
