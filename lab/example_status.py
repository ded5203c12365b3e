"""Shows how far an example is: which steps of CONTRIBUTING.md are done, and which one comes next.

new_example.py --status calls it. It asks what the tests ask of files, and runs nothing: whether the
script is that of the equation, only its test can say.

The first steps need no quiet machine. Once they are done the example is accepted, and may be
merged: somebody else may measure it. Only the tier nightly asks for the other steps.
"""

import functools
import pathlib
import re
from typing import NamedTuple

from lab import examples, reading_order
from lab.drawings import diagrams
from lab.examples import ROOT, ToolError, main_script, read, shown
from lab.measure import provenance
from lab.pages import papers, picture_digests, readmes

TODO = "@@TODO@@"  # what the author has to write; own_results.NOT_MEASURED: what to measure
EQUATIONS = ROOT / "tests" / "equations"
DRAWINGS = ROOT / "lab" / "drawings"
FIGURES = diagrams.FIGURES
COSTS = ROOT / "docs" / "costs.md"
CHANGES = ROOT / "CHANGELOG.md"
MATRIX = ROOT / "Your-Model" / "matrix.json"
PICTURES = "python lab/pages/picture_digests.py"
ACCEPTED = "  accepted: ask for a review; what follows, somebody with a quiet machine may do"
LAST_TO_ACCEPT = 3  # the step after which an example is accepted: the page and the lists
FIX_PAGES = "python lab/pages/readmes.py --fix"


class Step(NamedTuple):
    """A step of CONTRIBUTING.md, what is left of it, a line each, and what the author does next."""

    words: str
    left: list[str]
    command: str


def stem(name: str) -> str:
    """Returns the name of an example's script, without its ending."""
    return main_script(name).stem


def figure(name: str) -> pathlib.Path:
    """Returns where the figure of a new example stands."""
    return FIGURES / (name.rpartition("/")[2].lower() + ".svg")


def test_files(name: str) -> list[pathlib.Path]:
    """Returns where an example's reference stands, and a test of its own, if it has one."""
    return [EQUATIONS / f"{stem(name)}.py", EQUATIONS / f"test_{stem(name)}.py"]


def drawing(name: str) -> pathlib.Path:
    """Returns where the code stands that draws the figure of a new example."""
    return DRAWINGS / f"{stem(name)}.py"


def unfinished_files() -> list[pathlib.Path]:
    """Returns the files in which something is left to write, of all that git knows."""
    paths = [*readmes.files(), *examples.scripts(), papers.PAPERS, *examples.tracked_files("*.sh")]
    paths += examples.tracked_files("tests/equations/*.py") + examples.tracked_files(
        "lab/drawings/*.py"
    )
    return [path for path in paths if TODO in path.read_text()]


def find_marks(*paths: pathlib.Path) -> list[str]:
    """Returns a line for each of these files that has marks: the numbers of their lines."""
    files = [path for path in paths if path.exists()]
    return [line for path in files for line in name_lines(path, lines_with_marks(read(path)))]


def page_marks(name: str) -> tuple[list[str], list[str]]:
    """Returns such lines for an example's page: for its section on the result, and for all else."""
    page = ROOT / name / "README.md"
    text = read(page)
    headings = {n: line for n, line in enumerate(text.splitlines(), 1) if line.startswith("## ")}
    of_result, others = [], []
    for number in lines_with_marks(text):
        above = max((n for n in headings if n <= number), default=0)
        if headings.get(above) == "## Result":
            of_result.append(number)
        else:
            others.append(number)
    return name_lines(page, of_result), name_lines(page, others)


def lines_with_marks(text: str) -> list[int]:
    """Returns the numbers of the lines of a text that have a mark.

    Of a generated part the first line counts, which says what is generated.
    """
    text = readmes.PART.sub(lambda part: part[1] + "\n" * part[0].count("\n", len(part[1])), text)
    return [number for number, line in enumerate(text.splitlines(), 1) if TODO in line]


def name_lines(path: pathlib.Path, numbers: list[int]) -> list[str]:
    """Returns a line that names these lines of a file; none where there are none."""
    return [f"{shown(path)}: {TODO} in line {', '.join(map(str, numbers))}"] if numbers else []


def find_marks_in_lists(name: str) -> list[str]:
    """Returns such lines for the lists of all examples: only what this example has there.

    That is a line with its folder, or its paper. A title of CHANGELOG.md is that of the line below.
    """
    page = read(ROOT / name / "README.md")
    own = [f"(../{name}/)", f"({name}/)", f"{TODO}-{stem(name)} |"]
    for keys in re.findall("generated: papers ([^ ]+) -->", page):
        own += [f"{key} |" for key in keys.split(",")]
    left = []
    for path in (COSTS, papers.PAPERS, CHANGES):
        lines = [*read(path).splitlines(), ""]
        numbers = []
        for number in lines_with_marks(read(path)):
            at = number if lines[number - 1].startswith("## ") else number - 1
            if any(word in lines[at] for word in own):
                numbers.append(number)
        left += name_lines(path, numbers)
    return left


def unknown_files(name: str) -> list[str]:
    """Returns the files of an example that git does not know."""
    own = [ROOT / name, *test_files(name), drawing(name), figure(name)]
    unknown = examples.untracked_files("*")
    return [shown(path) for path in unknown if any(path.is_relative_to(part) for part in own)]


def missing_results(name: str) -> list[str]:
    """Returns a line if an example has no results, or those of another script.

    A form with sessions needs none.
    """
    try:
        results = provenance.measured_runs(ROOT / name, None)
    except ToolError as error:
        return [str(error)]
    if results or examples.SESSIONS in name:
        return []
    return [f"there is no {name}/results.json"]


@functools.cache
def noted_pictures() -> set[str]:
    """Returns the paths of the pictures that git knows, and that are as they were noted."""
    noted = picture_digests.noted_digests()
    return {
        path
        for path, digests in picture_digests.current_digests().items()
        if noted.get(path) == digests
    }


def unnoted_pictures(name: str) -> list[str]:
    """Returns the pictures on an example's page that are missing, or not those of the notes."""
    pictures = re.findall(r"\]\(([\w-]+\.png)\)", read(ROOT / name / "README.md"))
    paths = [f"{name}/{picture}" for picture in pictures]
    return [path for path in paths if path not in noted_pictures()]


def missing_row(name: str) -> list[str]:
    """Returns a line if the table of Your-Model lacks an example. It has no form with sessions."""
    own = name.rpartition("/")[2]
    if examples.SESSIONS in name or own in examples.read_json(MATRIX)["cells"]:
        return []
    return [f"{shown(MATRIX)} has no {own}"]


def outdated_figures(name: str) -> list[str]:
    """Returns the figures on an example's page that are not as they are drawn today."""
    lines = []
    for file in re.findall(r"docs/figures/([\w-]+\.svg)", read(ROOT / name / "README.md")):
        path, draw = FIGURES / file, diagrams.DRAWN.get(file)
        if not path.exists() or draw and read(path) != draw():
            lines.append(shown(path))
    return lines


def outdated_pages() -> list[str]:
    """Returns the pages whose generated parts are not up to date, or why they cannot be made."""
    lines = []
    for path in readmes.files():
        try:
            if readmes.updated_text(path) != read(path):
                lines.append(shown(path))
        except ToolError as error:
            lines += str(error).splitlines()
    return lines


def steps(name: str, pages: list[str]) -> list[Step]:
    """Returns the steps of an example, in their order. pages: what outdated_pages() returns."""
    write = f"write what {TODO} asks for"
    on_result, on_page = page_marks(name)
    test = f"bash tests/run.sh all equations -k {stem(name)}"
    row = "OUTPUT_DIR=Your-Model bash Your-Model/run_matrix.sh --only " + name.rpartition("/")[2]
    return [
        Step("git knows all files", unknown_files(name), "git add -A"),
        Step("the script", find_marks(main_script(name), ROOT / name / "run.sh"), write),
        Step("the reference and mistakes", find_marks(*test_files(name)), f"{write}; then {test}"),
        Step("the page and the lists", [*on_page, *find_marks_in_lists(name)], write),
        Step("results", missing_results(name), f"python lab/measure/results.py {name}"),
        Step("pictures and their notes", unnoted_pictures(name), PICTURES),
        Step("the row in Your-Model", missing_row(name), row),
        Step("what the page says of its result", on_result, write),
        Step("the drawing of the figure", find_marks(drawing(name)), write),
        Step("the figure", outdated_figures(name), "python lab/drawings/diagrams.py --fix"),
        Step("generated parts", pages, FIX_PAGES),
    ]


def awaiting() -> list[str]:
    """Returns the examples that are accepted, and wait for somebody with a quiet machine."""
    unmeasured = [name for name in names() if not [*(ROOT / name).glob("results*.json")]]
    unmeasured = [name for name in unmeasured if missing_results(name)]
    todo = {name: steps(name, []) for name in unmeasured}
    return [
        name
        for name in unmeasured
        if not any(step.left for step in todo[name][: LAST_TO_ACCEPT + 1])
    ]


def text_of(name: str, todo: list[Step]) -> str:
    """Returns the steps of an example as lines: which are done, which is next, what is left."""
    next_step = next((step for step in todo if step.left), None)
    lines = [name]
    for number, step in enumerate(todo):
        mark = "next" if step is next_step else "left" if step.left else "done"
        lines += [f"  {mark}  {step.words}", *(f"          {line}" for line in step.left)]
        if number == LAST_TO_ACCEPT and next_step in todo[number + 1 :]:
            lines.append(ACCEPTED)
    return "\n".join([*lines, f"next: {next_step.command}" if next_step else "all is done"])


def names() -> list[str]:
    """Returns the folders of examples, in reading order: those with the script of an algorithm.

    Git need not know it yet.
    """
    kinds = {name: reading_order.kind_in(name) for name in reading_order.names()}
    return [name for name, kind in kinds.items() if kind not in ("", "driver")]


def show(name: str | None) -> int:
    """Prints the steps of an example, or of all that are unfinished; returns 1 if one is left.

    Raises ToolError if there is no such example.
    """
    if name and name not in names():
        raise ToolError(f"there is no example {name}: docs/reading-order.txt names all that are")
    pages = outdated_pages()
    if name:
        todo = steps(name, pages)
        print(text_of(name, todo))
        return int(any(step.left for step in todo))
    unfinished_ones = [
        example  # a new one makes pages of others outdated, which are finished all the same
        for example in names()
        if any(step.left for step in steps(example, []))
    ]
    for example in unfinished_ones:
        print(text_of(example, steps(example, pages)))
    if not unfinished_ones:
        print("\n".join([*pages, f"next: {FIX_PAGES}"] if pages else ["all examples are done"]))
    return int(bool(unfinished_ones or pages))
