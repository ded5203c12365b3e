"""Lines-Changed: how many lines of a program change when it is to run on two workers.

Runs each of the programs in programs/, and counts the lines that differ from the one for a single
process. Empty lines and comments do not count.

Kind:          driver
Run:           bash run.sh
"""

import difflib
import importlib.metadata
import importlib.util
import io
import pathlib
import re
import sys
import tempfile
import tokenize
from collections.abc import Sequence

from lab.measure import arguments, example_runs, text_tables

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
TFRUN = ["tfrun", "--workers", "2"]
# (what it is called, the program for one process, that for two, what starts it, its package)
WAYS = [
    ("fit with MirroredStrategy", "fit", "fit_strategy", ["python"], "tensorflow"),
    (
        "PyTorch's DDP",
        "torch_loop",
        "torch_ddp",
        "python -m torch.distributed.run --nproc_per_node 2".split(),
        "torch",
    ),
    ("Horovod", "loop", "loop_horovod", "horovodrun --gloo -np 2 python".split(), "horovod"),
    ("MultiWorkerMirroredStrategy", "loop", "loop_strategy", [*TFRUN, "--"], "tensorflow"),
    ("functions of a ps", "loop", "loop_ps", [*TFRUN, "--ps", "1", "--"], "tensorflow"),
]
LEAST_ACCURACY = 0.85  # the accuracy that each program must reach


def lines_of(name: str) -> list[str]:
    """Returns the lines of a program that say something."""
    text = (PROGRAMS / f"{name}.py").read_text()
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    begin = next(i for i, line in enumerate(lines) if line.startswith(("import", "from")))
    return [line.rstrip() for line in lines[begin:] if line.strip()]


def count_changes(program: str, other: str) -> tuple[int, int, int]:
    """Returns how many lines another program adds to one, changes, and takes away."""
    added, changed, removed = 0, 0, 0
    matcher = difflib.SequenceMatcher(None, lines_of(program), lines_of(other), autojunk=False)
    for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
        count, other_count = end - begin, other_end - other_begin
        if tag != "equal":
            changed += min(count, other_count)
            added += max(0, other_count - count)
            removed += max(0, count - other_count)
    return added, changed, removed


def measure_accuracy(name: str, launcher: Sequence[object]) -> float:
    """Runs a program to its end; returns the accuracy that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        output = example_runs.run([*launcher, str(PROGRAMS / f"{name}.py")], folder)
    accuracies = re.findall(r"accuracy ([\d.]+)", output)
    if not accuracies or float(accuracies[0]) < LEAST_ACCURACY:
        words = f"{name}.py ends with accuracy {accuracies[:1]}, not {LEAST_ACCURACY} at least"
        sys.exit(f"{words}:\n{output}")
    return float(accuracies[0])


def versions() -> list[str]:
    """Returns the names and versions of what the programs use."""
    by_name = {
        distribution.name.lower().replace("_", "-"): distribution.version
        for distribution in importlib.metadata.distributions()
    }
    names = ["tensorflow", "tensorflow-cpu", "torch", "horovod"]
    return [f"{name} {by_name[name]}" for name in names if name in by_name]


def main() -> None:
    parser = arguments.Parser(__doc__)
    _, chosen = parser.only(WAYS)
    console = text_tables.table_console(100)
    table = text_tables.plain_table("way", "lines", "added", "changed", "gone", "accuracy")
    for name, program, other, launcher, package in chosen:
        if not importlib.util.find_spec(package):
            console.print(f"{name} is left out: there is no {package}")
            continue
        measure_accuracy(program, ["python"])
        accuracy = measure_accuracy(other, launcher)
        counts = [len(lines_of(program)), *count_changes(program, other)]
        table.add_row(name, *map(str, counts), f"{accuracy:.2f}")
    console.print(table)
    console.print(f"lines: of the program for one process; {text_tables.setting(*versions())}")
    text_tables.write_table(console, example_runs.output_directory("Lines-Changed"), "table.txt")


if __name__ == "__main__":
    main()
