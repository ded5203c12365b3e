"""Begins a new example as a copy of the most similar one, without its results.

    python lab/new_example.py HogWild My-Algorithm
    python lab/new_example.py HogWild Further-Algorithms/My-Algorithm

Writes the script and run.sh under the new name, a page with all sections, a file for its reference
and mistakes in tests/equations/, and a line in docs/reading-order.txt. Then it lists all files that
belong to an example, and who writes them.
TODO marks what you have to write; a test fails while one is left. CONTRIBUTING.md has the steps.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import sys

from lab import examples, reading_order, readmes, regions
from lab.examples import ROOT, ToolError, shown

TODO = "@@TODO@@"  # what the author has to write; readmes.NOT_MEASURED: what to measure
EQUATIONS = ROOT / "tests" / "equations"

TEMPLATES = ROOT / "lab" / "templates"
# {a kind of script that tests/equations/ compares: (the class of lab/references.py that a reference
# derives from, the method that it has to write, what this does)}. Scripts of another kind need a
# test of their own.
ASYNCHRONOUS = (
    "HogWild",
    "update(self, k, version, w_k)",
    "moves self.w by the push of worker k, which has pulled w_k; returns the loss.",
)
SYNCHRONOUS = (
    "Synchronous",
    "move(self, g, those)",
    "moves self.w by the gradients g of the workers `those`, which make a step together.",
)
REFERENCES = {
    "parameter server, asynchronous": ASYNCHRONOUS,
    "single process": ASYNCHRONOUS,
    "train and evaluate": ASYNCHRONOUS,
    "parameter server, synchronous": SYNCHRONOUS,
}
# What an example still needs behind create(): by hand, and by which command.
BY_HAND = ["docs/costs.md", "docs/papers.txt", "CHANGELOG.md", "a function in lab/drawings/"]
BY_TOOLS = {
    "lab/results.py {name}": "{name}/results.json, {name}/curves.png",
    "lab/picture_marks.py": "tests/pictures.txt",
    "Your-Model/run_matrix.sh --only {own}": "Your-Model/matrix.json, Your-Model/matrix.txt",
    "lab/diagrams.py --fix": "docs/figures/NAME.svg",
    "lab/readmes.py --fix": "generated parts of README.md, {name}/README.md, and its neighbours",
}


def stem(name):
    """Returns the name of an example's script, without its ending."""
    return name.rpartition("/")[2].replace("-", "_").lower()


def check_source(source):
    """Raises ToolError unless one can copy this example."""
    if source not in reading_order.names() or ROOT / source not in examples.folders():
        raise ToolError(f"there is no example {source} to copy: docs/reading-order.txt names them")
    script = readmes.script(ROOT / source)
    if script not in examples.scripts():
        raise ToolError(f"{source} has no algorithm of its own: choose an example with a script")
    launcher = (ROOT / source / "run.sh").read_text()
    if more := set(re.findall(r"\$here/([\w-]+\.py)", launcher)) - {script.name}:
        raise ToolError(f"run.sh of {source} also starts {', '.join(more)}: copy a simpler example")


def check_name(name):
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
    for path in [ROOT / name, EQUATIONS / f"{stem(name)}.py", *(ROOT / other for other in others)]:
        if path.exists():
            raise ToolError(f"{shown(path)} exists already: remove it, or choose another name")


def new_script(path, source, name):
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
    kind = readmes.field(path, "Kind")
    return f'''"""{own}: {TODO} what it shows, in one line.

{TODO} the update rule, in place of that of {source}:

{rule}

Kind:          {kind}
Paper:         {TODO} authors, year, title
Differs from:  {source}: {TODO} what
Simplified:    {TODO} where this departs from the paper, or: nothing
Run:           bash run.sh
"""{code}'''


def rename(own, source):
    """Returns a function for re.sub: a comment's prefix becomes `own` if it is the source's."""
    name = source.rpartition("/")[2].replace("-", "")

    def replace(match):
        is_source = name.startswith(match[2].replace("-", ""))
        return match[1] + (own if is_source else match[2])

    return replace


def new_launcher(text, source, name):
    """Returns the source's run.sh for the new script, at its place."""
    text = text.replace(f"{stem(source)}.py", f"{stem(name)}.py")
    text = text.replace(f"# {source.rpartition('/')[2]} ", f"# {name.rpartition('/')[2]} ")
    up = "../" * (1 + name.count("/"))
    return re.sub(r"\$here/(\.\./)+activate\.sh", f"$here/{up}activate.sh", text)


def from_template(template, source, name, **more):
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
            todo=TODO,
            **more,
        )
    )


def new_equation(source, name):
    """Returns the text of the file in tests/equations/, by the kind of the source's script."""
    script = readmes.script(ROOT / source)
    kind = readmes.field(script, "Kind")
    if kind in REFERENCES:
        base, method, task = REFERENCES[kind]
        return from_template("equation.txt", source, name, base=base, method=method, task=task)
    module = examples.load(EQUATIONS / f"{script.stem}.py")
    return from_template("compared.txt", source, name, compared_by=module.COMPARED_BY)


def what_remains(written, name):
    """Returns lines with all files of an example: those to edit by hand, and those of tools."""
    by_hand = [*(shown(path) for path in written if path != reading_order.PATH), *BY_HAND]
    own = name.rpartition("/")[2]
    lines = ["by hand:", *(f"  {file}" for file in by_hand), "by a command:"]
    for command, files in BY_TOOLS.items():
        lines.append(f"  {files.format(name=name)}: {command.format(name=name, own=own)}")
    return lines


def create(source, name):
    """Writes all files of a new example; returns their paths. Raises ToolError, before it does."""
    check_source(source)
    check_name(name)
    script, folder = readmes.script(ROOT / source), ROOT / name
    launcher = ROOT / source / "run.sh"
    order = reading_order.PATH
    texts = {
        folder / f"{stem(name)}.py": new_script(script, source, name),
        folder / "run.sh": new_launcher(launcher.read_text(), source, name),
        folder / "README.md": from_template("page.txt", source, name),
        EQUATIONS / f"{stem(name)}.py": new_equation(source, name),
        order: reading_order.inserted(examples.read(order), name, source),
    }
    folder.mkdir(parents=True)
    for path, text in texts.items():
        path.write_text(text)
    shutil.copymode(launcher, folder / "run.sh")
    return list(texts)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="the folder of the most similar example")
    parser.add_argument("name", help="the folder of the new one")
    flags = parser.parse_args()
    source, name = (
        pathlib.PurePath(os.path.normpath(folder)).as_posix()
        for folder in (flags.source, flags.name)
    )
    written = create(source, name)
    for path in written:
        print("written:", shown(path))
    print("\n".join(what_remains(written, name)))
    print(f"next: git add -A; then write what {TODO} asks for")


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
