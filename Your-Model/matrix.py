"""Your-Model: which problem files train under which examples?

Each file goes into the script of each example, as `tfrun --problem` puts it there, and trains a
few updates on this machine. The table says which train, and why the others are refused. A second
call with the same OUTPUT_DIR goes on where the first was stopped, and tries again what has failed.

Kind:          driver
Run:           python matrix.py
"""

import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import sys
import tempfile
import time

from tfrun import problems
from lab.measure import arguments, example_runs, forked
from lab import examples
from lab.pages import result_tables
from tfrun import errors
from tfrun.runs import summary

FOLDER = pathlib.Path(__file__).resolve().parent
STEPS, LOCAL_STEPS, BATCH_SIZE = 8, 2, 8
TRAINS, ERROR = "trains", "error: "  # of a cell; any other is the line of a refusal


def all_scripts():
    """Returns [(an example, its main script)] of all but drivers and old forms of others."""
    kinds = examples.scripts()
    mains = [(folder.name, examples.main_script(folder)) for folder in examples.folders()]
    return [
        (name, script)
        for name, script in mains
        if script in kinds and examples.SESSIONS not in script.parts
    ]


def all_files():
    """Returns the problem files of this folder, and the dataset that needs no other files."""
    files = [
        path
        for path in sorted(FOLDER.glob("*.py"))
        if problems.defined(problems.read(path)[1]).issuperset(problems.NEEDED)
    ]
    return [*files, FOLDER / "Datasets" / "generator.py"]


def file_name(path):
    """Returns how the table calls a problem file."""
    path = path.resolve()
    return path.relative_to(FOLDER).as_posix() if path.is_relative_to(FOLDER) else path.name


def problem_file(word):
    """Returns the path of a problem file that a flag names: of this folder, or any other."""
    path = pathlib.Path(word)
    return path if path.exists() else FOLDER / path


def jobs_of(script):
    """Returns {job: tasks} of a small cluster for a script."""
    kind, run = examples.kind_of(script), (script.parent / "run.sh").read_text()
    if kind == "coordinator":  # whose chief is one more
        return {"ps": 1, "chief": 1, "worker": 1}
    jobs = {"worker": 2 if re.search(r"\$\{WORKERS:-\d", run) else 1}
    return jobs | {"ps": 1} if kind.startswith("parameter server") else jobs


def train(script, problem, directory):
    """Trains a few updates. Raises ValueError where the file is refused before that.

    Raises SystemExit with the output of a task that has failed.
    """
    flags = ["--steps", STEPS, "--batch-size", BATCH_SIZE]
    if '("local-steps", ' in script.read_text():
        flags += ["--local-steps", LOCAL_STEPS]
    run = script.parent / "run.sh"
    if "horovodrun" in run.read_text():
        problems.make_copy(problem, [str(script)])
        example_runs.run(["bash", run, *flags], directory, PROBLEM=str(problem))
        return
    directory.mkdir()
    (copy,) = problems.install_problem(problem, [str(script)], directory)
    try:
        trained = forked.train(pathlib.Path(copy), jobs_of(script), flags, directory)[0]
    except SystemExit as error:  # "worker-0 of SCRIPT failed: " and the end of what is in its file
        output = directory / f"{str(error).split()[0]}.txt"
        sys.exit(output.read_text() if output.exists() else error)
    if not trained:
        sys.exit(f"the loss is no number after at most {STEPS} updates")


def refusal(text, directory):
    """Returns the line with which a task has refused a model; None if it has failed otherwise.

    A refusal is an error of one line that the script, or what adapts the problem, raises by itself.
    What tfrun knows to do about it stands behind it.
    """
    lines = text.rstrip().splitlines()
    at = errors.begin(lines)
    frames = [i for i, line in enumerate(lines[:at]) if line.startswith('  File "')]
    if at != len(lines) - 1 or not frames:
        return None
    where, code = lines[frames[-1] : frames[-1] + 2]
    if not where.startswith(f'  File "{directory}/') or not code.lstrip().startswith("raise "):
        return None
    known, words = errors.known(lines[at]), lines[at].partition(": ")[2]
    return f"{words}: {known.do[0].lower()}{known.do[1:].rstrip('.')}" if known else words


def cell(script, problem):
    """Returns TRAINS, the line of a refusal, or ERROR and the last line of a failure."""
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place).resolve() / "run"
        try:
            train(script, problem, directory)
        except ValueError as error:
            words = str(error).replace(f"{examples.ROOT}/", "")
            return words.replace(examples.shown(script), "the script")
        except SystemExit as error:
            if line := refusal(str(error), directory):
                return line
            print(error, file=sys.stderr)
            return ERROR + str(error).rstrip().splitlines()[-1]
        try:
            found = summary.summarize(example_runs.read_run(directory))
        except ValueError as error:
            return ERROR + str(error)
    tests = {name: value for name, value in found.items() if name.startswith("test_")}
    trained = None not in tests.values() and tests.keys() == found["metrics"].keys()
    return TRAINS if trained else f"{ERROR}the tests of the run are {tests}"


def table_of(cells):
    """Returns the table in Markdown: {example: {file: cell}}. A number stands for a note below.

    Files that train under the same examples share a column, and examples that train the same files
    a row; of those that train every file it has the number.
    """
    lines = [line for row in cells.values() for line in row.values() if line != TRAINS]
    notes, scripts = list(dict.fromkeys(lines)), dict(all_scripts())

    def mark(line):
        return "✓" if line == TRAINS else str(notes.index(line) + 1)

    files_of = {}  # {the marks of a file, one for each example: its links}
    for file in next(iter(cells.values())):
        column = tuple(mark(row[file]) for row in cells.values())
        files_of.setdefault(column, []).append(f"[{pathlib.Path(file).name}]({file})")
    examples_of = {}  # {the marks of an example, one for each column: its links}
    for name, row in zip(cells, zip(*files_of)):
        link = f"[{name}]({os.path.relpath(scripts[name].parent, FOLDER)}/)"
        examples_of.setdefault(row, []).append(link)
    every = ("✓",) * len(files_of)
    others = len(examples_of.pop(every, []))
    rows = [(", ".join(links), *marks) for marks, links in examples_of.items()]
    if others:
        rows.append((f"{others} others", *every))
    columns = [", ".join(links) for links in files_of.values()]
    # tfrun also says what to do, behind a colon.
    numbered = [f"{number}. {note.split(': ')[0]}" for number, note in enumerate(notes, 1)]
    return "\n".join([result_tables.table(["", *columns], rows), "", *numbered])


@functools.cache
def facts():
    """Returns when and where this was found."""
    packages = importlib.metadata.packages_distributions()
    names = {name: packages[name][0] for name in ("tensorflow", "keras")}
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(package) for name, package in names.items()},
        "cores": os.cpu_count(),
    }


def write(path, cells):
    """Writes what was found as JSON."""
    path.write_text(json.dumps({"facts": facts(), "cells": cells}, indent=1) + "\n")


def main():
    """Returns the exit code: 1 if a run has neither trained nor been refused in a line."""
    parser = arguments.Parser(__doc__)
    words = "problem files, of this folder or your own (all of this folder)"
    parser.add_argument("--files", nargs="+", type=problem_file, metavar="FILE", help=words)
    flags, chosen = parser.only(all_scripts())
    files, directory = flags.files or all_files(), example_runs.output_directory("Your-Model")
    kept = directory / "matrix.json"
    known = json.loads(kept.read_text())["cells"] if kept.exists() else {}
    plan = [(name, script, path) for name, script in chosen for path in files]
    for number, (name, script, path) in enumerate(plan, 1):
        began, row = time.monotonic(), known.setdefault(name, {})
        file = file_name(path)
        if row.get(file, ERROR).startswith(ERROR):
            row[file] = cell(script, path)
            write(kept, known)
        seconds = time.monotonic() - began
        words = f"{name}, {file}: {row[file]} ({seconds:.0f} s)"
        print(f"{number}/{len(plan)} {words}", flush=True)
    names = [file_name(path) for path in files]
    whole = [name for name, _ in all_scripts() if {*names} <= known.get(name, {}).keys()]
    cells = {name: {file: known[name][file] for file in names} for name in whole}
    write(kept, cells)
    result_tables.leave(directory / "matrix.txt", table_of(cells))
    return any(line.startswith(ERROR) for row in cells.values() for line in row.values())


if __name__ == "__main__":
    sys.exit(main())
