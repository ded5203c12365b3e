"""Makes the notebooks of Basics-Tutorial from their sources, runs them, and checks them.

    python tools/notebooks.py [NAME ...]              check; exits with 1 and what is wrong
    python tools/notebooks.py --execute [NAME ...]    make them from their sources, with new outputs
    python tools/notebooks.py --run [NAME ...]        run them as they are; no file is written

A source is a Python script in jupytext's percent format; the notebook of that name stands beside
it. NAME is its path within Basics-Tutorial without the suffix: Servers, Multiple-Workers/Worker-1;
without a name all are taken. The notebooks of an inner folder belong together and run at once.
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

ROOT = pathlib.Path(__file__).resolve().parents[1] / "Basics-Tutorial"
SECONDS = 60  # the longest that a notebook may take, its kernel's start included
CELLS, LINES, SOLUTION_LINES, OUTPUT_LINES = 30, 15, 25, 20
PICTURE_BYTES = 150_000
CLEAN_UP = "# Stop what this notebook started."
BEFORE = "what the last cell has stopped"  # the exercises that need it say so
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


def name_of(path, root=ROOT):
    return path.relative_to(root).with_suffix("").as_posix()


def sources(root=ROOT):
    """The sources of all notebooks, in reading order; those that it does not name come last."""
    found = {
        name_of(path, root): path
        for path in root.glob("**/*.py")
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    }
    places = list(order())
    return [
        found[name]
        for name in sorted(
            found, key=lambda n: (places.index(n) if n in places else len(places), n)
        )
    ]


def groups(paths, root=ROOT):
    """Lists of notebooks that run at once: those of an inner folder together, the others alone."""
    made = []
    for path in paths:
        together = [other for other in sources(root) if other.parent == path.parent]
        group = [path] if path.parent == root else together
        if group not in made:
            made.append(group)
    return made


def made(source):
    """The notebook of a source, without outputs; nothing in it but what follows from the source."""
    import jupytext

    notebook = jupytext.read(source)
    cells = []
    for number, cell in enumerate(notebook.cells, 1):
        new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
        cells.append(new[cell.cell_type](cell.source, id="cell-%d" % number))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA, nbformat_minor=5)


def written(notebook):
    """The text of the file of a notebook."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def tidy(notebook):
    """Takes away what an execution leaves besides outputs and their order."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            output.get("data", {}).pop("text/html", None)


async def run_one(path, notebook, mark, at, ready):
    """Executes a notebook's cells in order, in a kernel that starts in its folder.

    Returns the seconds that it took, without those of the solutions.
    """
    began, more = time.monotonic(), 0

    async def started(cell, cell_index, **_):
        nonlocal more
        at[path] = cell_index
        more -= cell.id.startswith("solution-") and time.monotonic()

    async def executed(cell, cell_index, **_):
        nonlocal more
        more += cell.id.startswith("solution-") and time.monotonic()
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
        told = re.sub(r"\x1b\[[0-9;]*m", "", error.traceback).strip().splitlines()[-6:]
        raise Failed(
            "%s failed in cell %d:\n    %s" % (path.stem, at[path] + 1, "\n    ".join(told))
        ) from None
    except nbclient.exceptions.DeadKernelError:
        raise Failed("%s: its kernel died in cell %d" % (path.stem, at[path] + 1)) from None
    finally:
        ready.set()
        atexit.unregister(client._cleanup_kernel)  # left there when its kernel was still starting
    return time.monotonic() - began - more


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
        mine = "%s %s" % (mark, name_of(path, path.parents[1]))
        took[path] = await run_one(path, notebook, mine, at, ready)

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


def solutions(notebook):
    """The code of the solutions, in order."""
    return [
        code
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for folded in DETAILS.findall(cell.source)
        for code in FENCE.findall(folded)
    ]


def with_solutions(notebook):
    """A copy in which the solutions are executed too, where a reader comes to them: at the end.

    Where the exercises need what the last cell has stopped, and say so: before that cell.
    """
    cells = [nbformat.from_dict(cell) for cell in notebook.cells]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    code = [i for i, cell in enumerate(cells) if cell.cell_type == "code"]
    end = code[-1] if BEFORE in " ".join(text.split()) else code[-1] + 1
    cells[end:end] = [
        nbformat.v4.new_code_cell(text, id="solution-%d" % number)
        for number, text in enumerate(solutions(notebook), 1)
    ]
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
        *predictions(notebook.cells),
        *exercises(fresh.cells),
        *outputs(notebook.cells),
    ]


def differences(notebook, fresh):
    """Where a notebook is not that of its source, or was not run from top to bottom."""
    for number, (cell, expected) in enumerate(zip(notebook.cells, fresh.cells), 1):
        if (cell.cell_type, cell.source) != (expected.cell_type, expected.source):
            yield "cell %d is not that of the source" % number
            return
        if cell.id != expected.id or cell.metadata:
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
    """Lengths, goals, predictions, the cell that cleans up."""
    if len(cells) > CELLS:
        yield "%d cells; %d are allowed" % (len(cells), CELLS)
    for number, cell in enumerate(cells, 1):
        unfolded = DETAILS.sub("", cell.source)
        if len(unfolded.strip().splitlines()) > LINES:
            yield "cell %d has %d lines; %d are allowed" % (
                number,
                len(unfolded.strip().splitlines()),
                LINES,
            )
    first, second = cells[0].source, cells[1]
    if "After this notebook you can" not in first or not 3 <= first.count("\n- ") <= 5:
        yield "the first cell lacks `After this notebook you can`, and 3 to 5 points below it"
    if not re.search(r"\b\d+ minutes\b", first):
        yield "the first cell does not say how many minutes it takes to read"
    if second.cell_type != "code" or not second.source.startswith("import os\n"):
        yield "the second cell is not the set-up, which begins with `import os`"
    if "TF_CPP_MIN_LOG_LEVEL" not in second.source.split("tensorflow")[0]:
        yield "the second cell does not set TF_CPP_MIN_LOG_LEVEL before it imports TensorFlow"
    asked = [i for i, cell in enumerate(cells) if "**Predict:**" in cell.source]
    if len(asked) < 3:
        yield "%d predictions are asked for; at least 3 are wanted" % len(asked)
    for i in asked:
        if i + 1 == len(cells) or cells[i + 1].cell_type != "code":
            yield "cell %d asks for a prediction, but no run follows" % (i + 1)
    code = [i for i, cell in enumerate(cells) if cell.cell_type == "code"]
    for i in code:
        if cells[i].source.startswith(CLEAN_UP) != (i == code[-1]):
            yield "cell %d: the last cell of code cleans up, and no other" % (i + 1)


def predictions(cells):
    """Before each run that prints something there is one, but for the cell that cleans up."""
    asked = False
    for number, cell in enumerate(cells, 1):
        asked |= "**Predict:**" in cell.source
        if any(output.output_type == "stream" for output in cell.get("outputs", [])):
            if not asked and not cell.source.startswith(CLEAN_UP):
                yield "no prediction is asked for before cell %d prints" % number
            asked = False


def exercises(cells):
    """Three of them at the end, each with a folded solution that asserts something."""
    begin = [i for i, cell in enumerate(cells) if cell.source.startswith("## Exercises")]
    if not begin:
        yield "there is no cell that begins with `## Exercises`"
        return
    after = cells[begin[0] :]
    if any(cell.cell_type == "code" for cell in after):
        yield "code follows the exercises"
    numbers = [n for cell in after for n in re.findall(r"^\*\*(\d)\. ", cell.source, re.M)]
    folded = [text for cell in after for text in DETAILS.findall(cell.source)]
    if numbers != ["1", "2", "3"] or len(folded) != 3:
        yield "exercises %s with %d solutions; three are wanted, **1. ** to **3. **" % (
            numbers,
            len(folded),
        )
    for number, text in enumerate(folded, 1):
        code = "".join(FENCE.findall(text))
        if len(code.splitlines()) > SOLUTION_LINES:
            yield "solution %d has %d lines; %d are allowed" % (
                number,
                len(code.splitlines()),
                SOLUTION_LINES,
            )
        try:
            found = any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code)))
        except SyntaxError as error:
            yield "solution %d: %s" % (number, error)
            continue
        if not found:
            yield "solution %d asserts nothing" % number


def outputs(cells):
    """Short, stable, and nothing in them that differs from run to run."""
    for number, cell in enumerate(cells, 1):
        for output in cell.get("outputs", []):
            if output.output_type == "error" or output.get("name") == "stderr":
                yield "cell %d shows %s" % (number, output.get("name", "an error"))
            text = texts(output)
            if len(text.splitlines()) > OUTPUT_LINES:
                yield "cell %d shows %d lines; %d are allowed" % (
                    number,
                    len(text.splitlines()),
                    OUTPUT_LINES,
                )
            for what, pattern in UNWANTED.items():
                if found := pattern.search(text):
                    yield "cell %d shows %s: %s" % (number, what, found[0].strip())
            for kind, data in output.get("data", {}).items():
                if kind.startswith("image/") and len(data) > PICTURE_BYTES:
                    yield "cell %d has a picture of %d bytes" % (number, len(data))
                if not kind.startswith("image/") and kind != "text/plain":
                    yield "cell %d has an output of type %s" % (number, kind)


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
    parser.add_argument("--seconds", type=int, default=SECONDS, help="the longest a run may take")
    parser.add_argument("names", nargs="*", metavar="NAME")
    flags = parser.parse_args()
    paths = chosen(flags.names)
    if flags.execute or flags.run:
        return run(paths, flags.execute, flags.seconds)
    found = ["%s: %s" % (name_of(path), what) for path in paths for what in problems(path)]
    print("\n".join(found) or "%d notebooks are in order" % len(paths))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
