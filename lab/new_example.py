"""Begins a new example as a copy of the most similar one, without its results.

    python lab/new_example.py HogWild My-Algorithm
    python lab/new_example.py HogWild Further-Algorithms/My-Algorithm
    python lab/new_example.py --status Further-Algorithms/My-Algorithm
    python lab/new_example.py --status

Writes the script and run.sh under the new name, a page with all sections, a file for its reference
and mistakes in tests/equations/, a drawing, and lines in docs/reading-order.txt, docs/costs.md,
docs/papers.txt and CHANGELOG.md. It also begins a test where the source's script has one of its
own. Then it lists all files of an example, and who writes them. TODO marks what you have to write;
a test fails while one is left.

--status shows the steps of CONTRIBUTING.md that are done, and the next one, of this example or of
all that are unfinished; it exits with 1 while a step is left.
"""

import argparse
import ast
import importlib.util
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

from lab import docstrings, example_status, examples, reading_order, regions
from lab.example_status import CHANGES, COSTS, EQUATIONS, TODO, stem
from lab.examples import ROOT, ToolError, shown
from lab.pages import papers

TEMPLATES = ROOT / "lab" / "templates"
# {a kind of script that tests/equations/ compares: (the class of tfrun/apps/references.py that a
# reference derives from, the method that it has to write, what this does)}. A script whose source
# has COMPARED_BY, whatever its kind, needs a test of its own.
ASYNCHRONOUS = (
    "HogWild",
    "update(self, k, version, w_k)",
    "moves self.w by the push of worker k, which has pulled w_k; returns the loss.",
)
SYNCHRONOUS = (
    "Synchronous",
    "move(self, g, those)",
    "moves self.w by the gradients g of the workers `those`.",
)
GOSSIP = (
    "Gossip",
    "move(self, g, those)",
    "moves self.own[k] of each worker k of `those` by their gradients g.",
)
REFERENCES = {
    "parameter server, asynchronous": ASYNCHRONOUS,
    "train and evaluate": ASYNCHRONOUS,
    "parameter server, synchronous": SYNCHRONOUS,
    "all-reduce": SYNCHRONOUS,
    "gossip, synchronous": GOSSIP,
}
# What an example still needs behind create(), and which command writes it.
BY_TOOLS = {
    "lab/measure/results.py {name}": "{name}/results.json, {name}/curves.png",
    "lab/pages/picture_digests.py": "tests/pictures.txt",
    "OUTPUT_DIR=Your-Model bash Your-Model/run_matrix.sh --only {own}": (
        "Your-Model/matrix.json, Your-Model/matrix.txt"
    ),
    "lab/drawings/diagrams.py --fix": "docs/figures/{figure}",
    "lab/pages/readmes.py --fix": "what is generated of README.md, {name}/README.md and others",
}


def paper(name: str) -> str:
    """Returns the key of an example's paper, until its author chooses one."""
    return f"{TODO}-{stem(name)}"


def check_source(source: str) -> None:
    """Raises ToolError unless one can copy this example."""
    if source not in reading_order.names() or ROOT / source not in examples.folders():
        raise ToolError(f"there is no example {source} to copy: docs/reading-order.txt names them")
    script = docstrings.script(ROOT / source)
    if script not in examples.scripts():
        raise ToolError(f"{source} has no algorithm of its own: choose an example with a script")
    launcher = (ROOT / source / "run.sh").read_text()
    if more := set(re.findall(r"\$here/([\w-]+\.py)", launcher)) - {script.name}:
        raise ToolError(f"run.sh of {source} also starts {', '.join(more)}: copy a simpler example")


def check_name(name: str) -> None:
    """Raises ToolError unless a new example can have this name."""
    parent, _, own = name.rpartition("/")
    if parent not in examples.PARENTS:
        parents = " or ".join(f"{folder}/{own}" for folder in examples.PARENTS if folder)
        raise ToolError(f"there are no examples in {parent}: call it {own}, or {parents}")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*(-[A-Za-z0-9]+)*", own):
        raise ToolError(
            f"{own!r} is no name for an example: write words of letters and digits with hyphens "
            "between them, and a capital letter first, as in My-Algorithm"
        )
    if importlib.util.find_spec(stem(name)):
        raise ToolError(f"{stem(name)}.py would hide a Python module of that name: choose another")
    others = [other for other in reading_order.names() if stem(other) == stem(name)]
    files = [
        *example_status.test_files(name),
        example_status.drawing(name),
        example_status.figure(name),
    ]
    for path in [ROOT / name, *files, *(ROOT / other for other in others)]:
        if path.exists():
            raise ToolError(f"{shown(path)} exists already: remove it, or choose another name")


def new_script(path: pathlib.Path, source: str, name: str) -> str:
    """Returns the text of the source's script under the new name, with its docstring to write."""
    own = name.rpartition("/")[2]
    parts = []
    for region, lines in regions.split_file(path):
        part = "\n".join(lines)
        parts.append(
            part if region else re.sub(r"(?m)^( *# )([\w-]+)(?=: )", rename(own, source), part)
        )
    text = "\n".join(parts) + "\n"
    _, docstring, code = text.split('"""', 2)
    rule = docstring.partition("\n\n")[2].partition("\n\nKind:")[0]
    kind = docstrings.field(path, "Kind")
    place = f"{TODO} keep it if the optimizer of a user can take this step, too"
    code = re.sub(r"(?m)^TABLES_BY_ROWS = .*\n", "", code)  # not before a test compares them
    code = re.sub(r"(?m)^(OPTIMIZER = \S+)  # .*$", rf"\1  # {place}", code)
    return f'''"""{own}: {TODO} what it shows, in one line.

{TODO} the update rule, in place of that of {source}:

{rule}

Kind:          {kind}
Paper:         {TODO} authors, year, title
Differs from:  {source}: {TODO} what
Simplified:    {TODO} where this departs from the paper, or: nothing
Run:           bash run.sh
"""{code}'''


def unmarked(text: str) -> str:
    """Returns a script's text without the mark OF_ONE: the new script has these regions, too."""
    return text.replace(f" -- {regions.OF_ONE}\n", "\n")


def rename(own: str, source: str) -> Callable[[re.Match[str]], str]:
    """Returns a function for re.sub: a comment's prefix becomes `own` if it is the source's."""
    name = source.rpartition("/")[2].replace("-", "")

    def replace(match: re.Match[str]) -> str:
        is_source = name.startswith(match[2].replace("-", ""))
        return match[1] + (own if is_source else match[2])

    return replace


def new_launcher(text: str, source: str, name: str) -> str:
    """Returns the source's run.sh for the new script, at its place."""
    text = text.replace(f"{stem(source)}.py", f"{stem(name)}.py")
    text = text.replace(f"# {source.rpartition('/')[2]} ", f"# {name.rpartition('/')[2]} ")
    text = re.sub(r"(?m)^(# .*); about [^\n]*$", rf"\1; {TODO} how long it takes.", text, count=1)
    up = "../" * (1 + name.count("/"))
    return re.sub(r"\$here/(\.\./)+activate\.sh", f"$here/{up}activate.sh", text)


def from_template(template: str, source: str, name: str, **more: str) -> str:
    """Returns the text of a template for this example: {name}, {up} and the like filled in."""
    own = name.rpartition("/")[2]
    return (
        (TEMPLATES / template)
        .read_text()
        .format(
            source=source,
            name=own,
            class_name="".join(word[0].upper() + word[1:] for word in own.split("-")),
            up="../" * (1 + name.count("/")),
            folder=name,
            stem=stem(name),
            figure=example_status.figure(name).name,
            paper=paper(name),
            todo=TODO,
            **more,
        )
    )


def new_tests(source: str, name: str) -> dict[pathlib.Path, str]:
    """Returns {path in tests/equations/: its text}: a reference, for the test of the source.

    If that one compares the source alone, the new example begins a test of its own.
    """
    equation, test = example_status.test_files(name)
    script = docstrings.script(ROOT / source)
    test_of_source = compared_by(EQUATIONS / f"{script.stem}.py")
    if test_of_source:
        model = test_of_source.partition("::")[0]
        return {
            equation: from_template("compared.txt", source, name),
            test: from_template("test.txt", source, name, model=model),
        }
    base, method, task = REFERENCES[docstrings.field(script, "Kind")]
    text = from_template("equation.txt", source, name, base=base, method=method, task=task)
    return {equation: text}


def compared_by(path: pathlib.Path) -> str:
    """Returns COMPARED_BY of a file of tests/equations/, the test of its script; "" without one."""
    for node in examples.parse(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPARED_BY":
            return ast.literal_eval(node.value)
    return ""


def new_costs(text: str, name: str, order: list[str]) -> str:
    """Returns the table of costs with a row for this example, below that of the one before it.

    order: the folders that have rows, and this one's, in reading order.
    """
    links = [re.escape(f"](../{other}/) |") for other in order[: order.index(name)]]
    rows = [row for link in links if (row := re.search(rf"(?m)^\| \[[^]]*{link}.*\n", text))]
    if not rows:
        raise ToolError(f"{shown(COSTS)} has no row of an example before {name}: add one")
    cells = [f"[{name.rpartition('/')[2]}](../{name}/)"]
    cells += [f"{TODO} {column}" for column in ("bytes", "waits for", "staleness", "memory")]
    return text[: rows[-1].end()] + f"| {' | '.join(cells)} |\n" + text[rows[-1].end() :]


def new_papers(text: str, name: str) -> str:
    """Returns the list of papers with a line for the paper of this example."""
    return f"{text}{paper(name)} | {TODO} authors | {TODO} year | {TODO} title | https://{TODO}\n"


def new_changes(text: str, name: str) -> str:
    """Returns the list of changes with a line for this example, below the coming version."""
    line = f"- **[{name.rpartition('/')[2]}]({name}/):** {TODO} what it does.\n"
    top, mark, newest = text.partition("\n## ")
    head, _, rest = newest.partition("\n")
    if head.endswith(", not released"):
        return f"{top}{mark}{head}\n{line}{rest}"
    return f"{top}\n## {TODO} the next version, not released\n{line}{mark}{newest}"


def what_remains(written: list[pathlib.Path], name: str) -> list[str]:
    """Returns lines with all files of an example: those that are written, and those of tools."""
    to_fill = [path for path in written if TODO in path.read_text()]
    lines = [f"written: {shown(path)}" for path in written if path not in to_fill]
    lines += [f"written, fill in: {shown(path)}" for path in to_fill]
    figure = example_status.figure(name).name
    for command, files in BY_TOOLS.items():
        line = f"by a command: {files}: {command}"
        lines.append(line.format(name=name, own=name.rpartition("/")[2], figure=figure))
    return lines


def create(source: str, name: str) -> list[pathlib.Path]:
    """Writes all files of a new example; returns their paths. Raises ToolError, before it does."""
    check_source(source)
    check_name(name)
    script, folder = docstrings.script(ROOT / source), ROOT / name
    launcher = ROOT / source / "run.sh"
    order = reading_order.insert_folder(examples.read(reading_order.PATH), name, source)
    texts = {
        folder / f"{stem(name)}.py": unmarked(new_script(script, source, name)),
        folder / "run.sh": new_launcher(launcher.read_text(), source, name),
        folder / "README.md": from_template("page.txt", source, name),
        **new_tests(source, name),
        example_status.drawing(name): from_template("drawing.txt", source, name),
        reading_order.PATH: order,
        papers.PAPERS: new_papers(examples.read(papers.PAPERS), name),
        CHANGES: new_changes(examples.read(CHANGES), name),
    }
    if regions.OF_ONE in (source_text := examples.read(script)):
        texts[script] = unmarked(source_text)
    if name in (with_costs := reading_order.unfolded_folders(order)):  # the others have no row
        texts[COSTS] = new_costs(examples.read(COSTS), name, with_costs)
    folder.mkdir(parents=True)
    for path, text in texts.items():
        path.write_text(text)
    shutil.copymode(launcher, folder / "run.sh")
    return list(texts)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", help="the folder of the most similar example")
    parser.add_argument("name", nargs="?", help="the folder of the new one")
    parser.add_argument("--status", nargs="?", const="", metavar="NAME", help="show what is left")
    flags = parser.parse_args()
    if flags.status is not None:
        return example_status.show(folder_name(flags.status) if flags.status else None)
    if not flags.name:
        parser.error("name the most similar example and the new one, or ask for the --status")
    source, name = folder_name(flags.source), folder_name(flags.name)
    written = create(source, name)
    print("\n".join(what_remains(written, name)))
    print(f"next: git add -A; then python lab/new_example.py --status {name}")
    return 0


def folder_name(words: str) -> str:
    """Returns the name of a folder as docs/reading-order.txt has it, of what somebody typed."""
    return pathlib.PurePath(os.path.normpath(words)).as_posix()


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
