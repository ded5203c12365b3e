"""Makes the notebooks of Basics-Tutorial from their sources, runs them, and checks them.

    python lab/notebooks/make.py [NAME ...]            check; exits with 1 and what is wrong
    python lab/notebooks/make.py --execute [NAME ...]  make them from their sources, outputs too
    python lab/notebooks/make.py --run [NAME ...]      run them as they are; no file is written
    python lab/notebooks/make.py --minutes             count the minutes of all, and write them into
                                                       the sources and the README

A source is a Python script in jupytext's percent format; the notebook NAME.ipynb stands beside
NAME.py. Without a name all are taken. What several share is in course.py and neighbours.py.

A cell with the tag `measured` shows times or rates, which differ from run to run. One with the tag
`predicted` is committed without its output, which a reader is asked to predict: --execute writes it
into the folded answer below that cell, in the source and in the notebook.
"""

import asyncio
import atexit
import os
import pathlib
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import nbclient
import nbformat
import psutil
from jupyter_client.provisioning import LocalProvisioner
from nbformat import NotebookNode

from lab.measure import arguments
from lab.notebooks.cells import (
    ANSWER,
    DETAILS,
    FENCE,
    METADATA,
    PREDICTED,
    SHOWN,
    count_minutes,
    has_tag,
    notebook_from,
    number_of,
    texts,
)
from lab.notebooks.faults import find_faults
from lab.notebooks.sources import COURSE, sources

SECONDS = 40  # the longest that a notebook may take on 2 cores, its kernel's start included


class Failed(Exception):
    """A notebook did not run to its end; says where and why."""


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


def write_minutes() -> None:
    """Writes the minutes of all notebooks into their first cells, and into the README."""
    readme = COURSE / "README.md"
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
