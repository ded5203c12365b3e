"""A new example begins without numbers, and a contributor's wrong step ends with a sentence."""

import os
import re
import shutil
import sys
import textwrap
from xml.etree import ElementTree

import equations
import pytest
import support
from lab import example_status, examples, new_example, reading_order
from lab.drawings import shapes
from lab.pages import own_results, readmes
from tfrun.apps import references

FEW = ["Non-Distributed-Setup", "Distributed-Setup", "HogWild"]
NEW = "Further-Algorithms/Delay-Compensation"
SCRIPT = f"{NEW}/delay_compensation.py"


@pytest.fixture(scope="module")
def few_examples(tmp_path_factory):
    """A clone with the laboratory and three examples, which a contributor may spoil."""
    return clone_of_few(tmp_path_factory.mktemp("clone"))


def clone_of_few(root):
    """Makes such a clone in a folder; returns the folder."""
    patterns = ["*.py", "*.sh", "*.md", "*.txt", "*.json"]
    copied = (*FEW, "lab", "tfrun", "Measurements")
    for path in sum((examples.tracked_files(pattern) for pattern in patterns), []):
        name = path.relative_to(support.ROOT)
        if name.parts[0] in copied:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / name)
    shutil.rmtree(root / "tfrun" / "bin", ignore_errors=True)
    for page in [*root.glob("Measurements/*/README.md"), *root.glob("tfrun/*.md")]:
        page.unlink()
    for folder in "equations", "support":
        (root / "tests" / folder).mkdir(parents=True)
    (root / "docs").mkdir()
    changes = (
        "# Changes\n\n## 1.0.1.dev0, not released\n- A line.\n\n## 1.0.0, 2026-01-01\n- A line.\n"
    )
    (root / "CHANGELOG.md").write_text(changes)
    listed = ["docs/papers.txt", "docs/costs.md"]
    equation_files = [f"tests/equations/{new_example.stem(name)}.py" for name in FEW]
    for name in [*listed, *equation_files, "tfrun/apps/references.py"]:
        shutil.copyfile(support.ROOT / name, root / name)
    order = "\n  ".join(["One worker", *FEW])
    (root / "docs" / "reading-order.txt").write_text(f"{order}\n\nFurther algorithms\n")
    (root / "tests" / "pictures.txt").touch()
    (root / "README.md").write_text("<!-- generated: examples -->\n<!-- end -->\n")
    examples.git("init", "-q", folder=root)
    examples.git("add", ".", folder=root)
    return root


def tool(root, *words):
    """Runs a tool in such a clone; returns (the exit code, all that it printed)."""
    command, env = [sys.executable, root / "lab" / words[0]], {**os.environ, "PYTHONPATH": root}
    done = support.run_to_end(*command, *words[1:], cwd=root, env=env)
    return done.returncode, done.stdout + done.stderr


# Where the new example has marks.
TO_FILL = [
    *(SCRIPT, f"{NEW}/README.md", f"{NEW}/run.sh", "tests/equations/delay_compensation.py"),
    *("lab/drawings/delay_compensation.py", "docs/costs.md", "docs/papers.txt", "CHANGELOG.md"),
]
UNFINISHED = """
from lab import example_status, examples
print(*map(examples.shown, example_status.unfinished_files()))
"""
DRAW = """
from lab.drawings import diagrams
print(diagrams.DRAWN["delay-compensation.svg"]())
"""


def inside(root, code):
    """Returns what Python code prints in such a clone."""
    env = {**os.environ, "PYTHONPATH": root}
    done = support.run_to_end(sys.executable, "-c", code, cwd=root, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_example_has_no_numbers(few_examples):
    """Begins one, and finds it in the reading order, with all sections and nothing measured."""
    root = few_examples
    before = set(inside(root, UNFINISHED).split())  # of an example that nobody has measured yet
    code, output = tool(root, "new_example.py", "HogWild", NEW)
    assert code == 0, output
    filled = re.findall(r"(?m)^written, fill in: (.+)$", output)
    assert sorted(filled) == sorted(TO_FILL)
    for file in (f"{NEW}/results.json", "docs/figures/delay-compensation.svg"):
        assert file in output, f"it does not list {file}"
    examples.git("add", ".", folder=root)
    unfinished = set(inside(root, UNFINISHED).split()) - before
    assert sorted(unfinished) == sorted(TO_FILL), "a mark is not found"
    assert sorted(path.name for path in (root / NEW).iterdir()) == [
        *("README.md", "delay_compensation.py", "run.sh"),
    ]
    code, output = tool(root, "pages/readmes.py", "--fix")
    assert code == 0, output
    page = (root / NEW / "README.md").read_text()
    assert re.findall(r"(?m)^## (.+)$", page) == list(readmes.SECTIONS)
    assert own_results.NOT_MEASURED in page and new_example.TODO in page
    assert "Previous: [HogWild]" in page
    script = (root / SCRIPT).read_text()
    assert (
        script.startswith('"""Delay-Compensation: ') and "# Delay-Compensation: subtract" in script
    )
    assert "Differs from:  HogWild: " in script and "# HogWild:" not in script
    assert "\ndef server(w, step, flags):" in script and "\ndef update(ps, " in script
    assert f'\nOPTIMIZER = "ps"  # {new_example.TODO}' in script
    assert '"$here/../../activate.sh"' in (root / NEW / "run.sh").read_text()
    env = {**os.environ, "PYTHONPATH": f"{root}:{root}/tests/support"}
    equation = root / "tests" / "equations" / "delay_compensation.py"
    done = support.run_to_end(sys.executable, equation, env=env)
    assert done.returncode == 0, done.stderr
    code, output = tool(root, "regions.py")
    assert code == 0, output
    lines = (root / "docs" / "costs.md").read_text().splitlines()
    row = next(number for number, line in enumerate(lines) if f"](../{NEW}/) |" in line)
    assert "](../HogWild/) |" in lines[row - 1], "it stands behind the example before it"
    assert lines[row].count("|") == lines[row - 1].count("|")
    line = f"- **[Delay-Compensation]({NEW}/):** {new_example.TODO} what it does."
    changes = (root / "CHANGELOG.md").read_text()
    assert changes.startswith(
        f"# Changes\n\n## 1.0.1.dev0, not released\n{line}\n- A line.\n\n## 1"
    )
    assert f"]({'https://' + new_example.TODO})" in page, "the page shows the new paper"
    figure = re.search(r"!\[[^\]]{20,}\]\((\S+\.svg)\)", page)[1]
    assert os.path.normpath(f"{NEW}/{figure}") == "docs/figures/delay-compensation.svg"
    drawn = ElementTree.fromstring(inside(root, DRAW))
    assert new_example.TODO in drawn.find("{*}title").text


WRITE = f"write what {new_example.TODO} asks for"
TEST = "bash tests/run.sh all equations -k delay_compensation"
STEPS = [  # what --status says is next, while one does it
    "git add -A",
    WRITE,  # in the script
    f"{WRITE}; then {TEST}",  # in the reference
    WRITE,  # on the page, and in the lists; then the example is accepted
    f"python lab/measure/results.py {NEW}",
    "git add -A",
    "python lab/pages/picture_digests.py",
    "OUTPUT_DIR=Your-Model bash Your-Model/run_matrix.sh --only Delay-Compensation",
    WRITE,  # of the result
    WRITE,  # in the drawing
    "python lab/drawings/diagrams.py --fix",
    "git add -A",
    "python lab/pages/readmes.py --fix",
]
MEASURED = f"""
import json
from lab import examples
from lab.measure import provenance
launcher = provenance.launcher_of("{NEW}")
results = examples.read_json(examples.ROOT / "HogWild" / "results.json")
results.update(provenance.identity_of(launcher))
provenance.results_of(launcher).write_text(json.dumps(results))
"""


def do(root, command, output):
    """Does what --status says is next; it writes what comes of runs, and draws one figure only."""
    if command.startswith(WRITE):
        for name, numbers in re.findall(
            r"(?m)^ {10}(\S+): @@TODO@@ in line ([\d, ]+)$", output.split("left")[0]
        ):
            lines = (root / name).read_text().split("\n")
            for number in map(int, numbers.split(", ")):
                lines[number - 1] = lines[number - 1].replace(new_example.TODO, "words")
            (root / name).write_text("\n".join(lines))
    elif "results.py" in command:
        inside(root, MEASURED)
        shutil.copy(support.ROOT / "HogWild" / "curves.png", root / NEW)
    elif "run_matrix.sh" in command:
        (root / "Your-Model" / "matrix.json").write_text('{"cells": {"Delay-Compensation": {}}}')
    elif "diagrams.py" in command:
        svg = inside(root, DRAW).removesuffix("\n")
        (root / "docs" / "figures" / "delay-compensation.svg").write_text(svg)
    elif command.startswith("git "):
        examples.git(*command.split()[1:], folder=root)
    else:
        code, output = tool(root, *command.removeprefix("python lab/").split())
        assert code == 0, output


@pytest.mark.long
def test_the_status_leads_through_all_steps(tmp_path):
    """Catches a step that is forgotten, comes too early, or stays when it is done; a wrong line."""
    root, steps = clone_of_few(tmp_path), []
    for folder in "Your-Model", "docs/figures":
        (root / folder).mkdir()
    (root / "Your-Model" / "matrix.json").write_text('{"cells": {}}')
    code, output = tool(root, "new_example.py", "HogWild", NEW)
    assert code == 0, output
    for _ in range(len(STEPS)):
        code, output = tool(root, "new_example.py", "--status", NEW)
        assert code == 1 and "\nnext: " in output, output
        is_accepted = len(steps) > 3 and STEPS[len(steps)] != "git add -A"
        assert ("\n  accepted: " in output) == is_accepted, output
        steps.append(output.splitlines()[-1].removeprefix("next: "))
        do(root, steps[-1], output)
    assert steps == STEPS
    code, output = tool(root, "new_example.py", "--status", NEW)
    assert code == 0 and output.endswith("\nall is done\n"), output
    script = root / SCRIPT
    script.write_text(examples.replaced(script, [("assign_sub(delta)", "assign_sub(0.5 * delta)")]))
    code, output = tool(root, "new_example.py", "--status")
    assert code == 1 and f"\n{NEW}\n" in output, "of all that are unfinished, as here those of FEW"
    assert "results.json is outdated" in output and output.endswith(f"\nnext: {STEPS[4]}\n"), output


def test_every_example_is_done(request):
    """Catches a step that asks for what an example never has, and a group that is passed over."""
    names = example_status.names()
    assert {"Operations/Train-and-Evaluate", "Sparse-Embeddings", "HogWild"} <= set(names)
    assert not [name for name in names if name.startswith("Measurements/")]
    if not request.config.getoption("--require-needs"):
        names = [name for name in names if name not in example_status.awaiting()]
    left = {name: [step for step in example_status.steps(name, []) if step.left] for name in names}
    assert not any(left.values()), left


@pytest.mark.parametrize(
    "name, source, before",
    [
        ("Further-Algorithms/X", "HogWild", "Further-Algorithms/Async-Local-SGD"),
        ("Further-Algorithms/X", "Ring-AllReduce", "Further-Algorithms/Sharded-Training"),
        ("Further-Algorithms/X", "Model-Parallelism", "Further-Algorithms/Gradients-To-All"),
        ("X", "ADAG", "ADAG"),
    ],
)
def test_where_a_new_example_stands(name, source, before):
    """Catches a page whose section of one kind comes twice, the second time with this example."""
    text = reading_order.PATH.read_text()
    for other in example_status.awaiting():  # a new one may stand there, too
        text = re.sub(rf"(?m)^ +{re.escape(other)}\n", "", text)
    text = reading_order.insert_folder(text, name, source)
    order = reading_order.unfolded_folders(text)
    assert order[order.index(name) - 1] == before


def test_a_line_of_changes_begins_the_next_version():
    """Catches a line in the section of a version that is released."""
    released = "# Changes\n\n## 1.0.0, 2026-01-01\n- A line.\n"
    top, added, *rest = new_example.new_changes(released, NEW).split("\n\n")
    assert [top, *rest] == released.split("\n\n")
    assert added.startswith(f"## {new_example.TODO} the next version, not released\n- **[Delay-")


def test_the_worked_example_of_a_figure(monkeypatch):
    """Catches a docstring of shapes.py with functions or arguments of before."""
    monkeypatch.setattr(shapes, "DRAWN", {})
    code = shapes.__doc__[shapes.__doc__.index("    @figure(") :]
    exec(textwrap.dedent(code), vars(shapes).copy())
    drawn = ElementTree.fromstring(shapes.DRAWN["my-algorithm.svg"]())
    assert drawn.find("{*}title").text.startswith("Worker 0 pushes a gradient g to the ps.")
    assert [words.text for words in drawn.findall("{*}text")] == ["worker 0", "ps", "g"]


SOURCES = [name for name in reading_order.examples() if examples.main_script(name).is_file()]


@pytest.mark.parametrize("source", SOURCES)
def test_a_reference_begins_by_the_kind_of_the_source(source):
    """Catches a reference of two workers that push, for a script that no such test can compare."""
    script = examples.main_script(source)
    kind, texts = examples.kind_of(script), new_example.new_tests(source, NEW)
    path, *own_test = texts
    namespace = {}
    for text in texts.values():
        assert max(map(len, text.splitlines())) <= 100, "ruff refuses a longer line"
        compile(text, source, "exec")
    exec(texts[path], namespace)
    if equations.of(script).COMPARED_BY:
        test, _, function = namespace["COMPARED_BY"].partition("::")
        assert own_test == [support.ROOT / test] and "REFERENCE" not in namespace
        assert f"\ndef {function}():\n" in texts[own_test[0]]
        return
    kinds = {
        references.HogWild: equations.INTERLEAVED,
        references.Synchronous: [*equations.TOGETHER, "all-reduce"],
        references.Gossip: ["gossip, synchronous"],
    }
    assert not own_test and kind in kinds[namespace["REFERENCE"].__base__]


BEGUN = {  # {a new example: its source}, one of each harness of tests/equations/
    "Further-Algorithms/My-Algorithm": "HogWild",
    "Further-Algorithms/My-Algorithm-In-A-Ring": "Ring-AllReduce",
    "Further-Algorithms/My-Algorithm-Of-Neighbours": "Further-Algorithms/D-PSGD",
}
WITH_A_TEST = {"Further-Algorithms/My-Algorithm-Alone": "Further-Algorithms/Gossip-SGD"}
MISSING, NO_MISTAKES = "        raise NotImplementedError\n", 'MISTAKES = {"parameters": {}}'
OWN = [  # the walk of CONTRIBUTING: (file, what new_example.py wrote, what a contributor writes)
    (
        "Further-Algorithms/My-Algorithm/my_algorithm.py",
        "w.assign_sub(delta)",
        "w.assign_sub(0.5 * delta)",
    ),
    (
        "tests/equations/my_algorithm.py",
        MISSING,
        "        loss, g = self.gradient(k, version, w_k)\n"
        "        self.w = [v - 0.5 * self.lr * d for v, d in zip(self.w, g)]\n"
        "        return loss\n",
    ),
    (
        "tests/equations/my_algorithm.py",
        NO_MISTAKES,
        'MISTAKES = {"parameters": {"the whole step": [("0.5 * delta", "delta")]}}',
    ),
    (
        "tests/equations/my_algorithm_in_a_ring.py",
        MISSING,
        "        sums = [sum(parts) for parts in zip(*g)]\n"
        "        self.w = [v - self.lr / self.n * d for v, d in zip(self.w, sums)]\n",
    ),
    (
        "tests/equations/my_algorithm_in_a_ring.py",
        NO_MISTAKES,
        'MISTAKES = {"parameters": {"the sum": [("total / buckets.ring.n", "total")]}}',
    ),
    (
        "tests/equations/my_algorithm_of_neighbours.py",
        MISSING,
        "        before, n = list(self.own), self.n\n"
        "        for k in those:\n"
        "            around = zip(before[k - 1], before[k], before[(k + 1) % n])\n"
        "            means = [sum(parts) / 3 for parts in around]\n"
        "            self.own[k] = [v - self.lr * d for v, d in zip(means, g[k])]\n",
    ),
    (
        "tests/equations/my_algorithm_of_neighbours.py",
        NO_MISTAKES,
        'MISTAKES = {"parameters": {"a larger step": [("change - flags", "change - 2 * flags")]}}',
    ),
]


def begun_in_a_clone(root, begun):
    """Makes a clone of all in a folder, and begins these examples there."""
    for path in examples.tracked_files("*"):
        copy = root / path.relative_to(support.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    examples.git("init", "-q", folder=root)
    examples.git("add", ".", folder=root)
    for name, source in begun.items():
        code, output = tool(root, "new_example.py", source, name)
        assert code == 0, output
    examples.git("add", ".", folder=root)


def results_of(root, *paths):
    """Returns what the new examples' tests print, of these paths."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long and not nightly", *paths]
    env = {**os.environ, "PYTHONPATH": root}
    done = support.run_to_end(*command, "-k", "my_algorithm", cwd=root, env=env, seconds=120)
    return done.stdout


def assert_references_are_missing(output, begun):
    """Asserts that nothing else fails, such as a test that cannot be collected."""
    assert re.search(f"(?m)^{len(begun)} failed, ", output), output
    errors = re.findall("(?m)^E +(.+)$", output)
    assert errors == ["NotImplementedError"] * len(begun), output


@pytest.mark.short
def test_a_new_example_can_be_tested_at_once(tmp_path):
    """Of the next test the first half, on the files of tests that compare and train all scripts.

    Also: a test that new_example.py begins, where the source has one of its own, runs, and fails.
    """
    begun = {**BEGUN, **WITH_A_TEST}
    begun_in_a_clone(tmp_path, begun)
    output = results_of(tmp_path, "tests/equations", "tests/examples/test_plug.py")
    assert_references_are_missing(output, begun)
    assert re.search("(?m)^[^=]+, 1 error in ", output), "of the test that has no mistakes yet"
    assert "got empty parameter set" in output, output


@pytest.mark.long
def test_a_new_example_is_tested_from_its_first_step_on(tmp_path):
    """Catches a template that cannot be imported, and tests that do not collect beside it.

    Its reference is missing at first, which a test says. With the reference and a mistake, and a
    line in the first one's script, all is green.
    """
    begun_in_a_clone(tmp_path, BEGUN)
    output = results_of(tmp_path)
    assert_references_are_missing(output, BEGUN)
    assert " error" not in output, output
    for name, old, new in OWN:
        path = tmp_path / name
        path.write_text(examples.replaced(path, [(old, new)]))
    output = results_of(tmp_path)
    assert "failed" not in output and " passed" in output, output


# What a contributor may do wrong: (the tool's words, the file that is spoilt, what stands in it,
# what takes its place, the sentence). Without a file nothing is spoilt; with nothing in its place
# the whole file is gone.
ORDER, PAGE, HOGWILD = "docs/reading-order.txt", "HogWild/README.md", "HogWild/hogwild.py"
READMES, RESULTS, PAPERS = ["pages/readmes.py"], "HogWild/results.json", "docs/papers.txt"
WRONG = [
    (["new_example.py", "HogWild", "DOWNPOUR!"], None, "", "", "'DOWNPOUR!' is no name"),
    (["new_example.py", "HogWild", "Distributed-Setup"], None, "", "", "exists already"),
    (["new_example.py", "HogWild", "Keras"], None, "", "", "keras.py would hide a Python module"),
    (["new_example.py", "HogWild", "No-Parent/My"], None, "", "", "no examples in No-Parent"),
    (["new_example.py", "Hogwild", "My"], None, "", "", "no example Hogwild to copy"),
    (["new_example.py", "HogWild"], None, "", "", "name the most similar example and the new one"),
    (["new_example.py", "--status", "My"], None, "", "", "there is no example My: docs/reading"),
    (READMES, ORDER, "  HogWild\n", "", "add HogWild to docs/reading-order.txt"),
    (READMES, ORDER, "  HogWild\n", "  HogWild\n  HogWild\n", "remove HogWild"),
    (READMES, ORDER, "  HogWild\n", "  HogWild\n  My-Algorithm\n", "My-Algorithm has no script"),
    (READMES, ORDER, "One worker\n", "", "write a group's title above the first folder"),
    (READMES, ORDER, None, None, "git checkout docs/reading-order.txt"),
    (READMES, PAGE, "generated: flags", "generated: flag", "there is no part flag"),
    (READMES, PAGE, "diff Distributed-Setup", "diff My-Algorithm", "My-Algorithm has no script"),
    (READMES, PAGE, "diff Distributed-Setup", "diff My.py", "My.py cannot be read"),
    (READMES, PAGE, "diff Distributed-Setup", "diff", "name a folder or file"),
    (
        READMES,
        PAGE,
        "generated: papers ",
        "generated: papers my2026,",
        "no line that begins with my",
    ),
    (READMES, PAPERS, " | 2011 | ", " | ", "write a key of its own, authors, year"),
    (READMES, "tests/equations/hogwild.py", "MISTAKES = {", "WRONG = {", "has no MISTAKES"),
    (READMES, PAGE, "generated: compare -", "generated:compare -", "write each generated part as"),
    (READMES, HOGWILD, "", "def main(\n", "line [0-9]+: correct this"),
    (READMES, HOGWILD, '"""HogWild: ', '"""HogWild ', "begin the docstring as `HogWild: "),
    (READMES, HOGWILD, "MORE_FLAGS = []", 'MORE_FLAGS = [("a", 2**3, "b")]', "plain number"),
    (READMES, RESULTS, '"runs": [', '"runs": ', "is not JSON"),
    (READMES, RESULTS, '"HogWild"', '"DynSGD"', "DynSGD's results.json is shown on HogWild's page"),
    (READMES, RESULTS, '"digest": "', '"digest": "0', "results.json is outdated"),
    (["measure/results.py", "My-Algorithm"], None, "", "", "there is no My-Algorithm/run.sh"),
    (["measure/results.py", "HogWild", "--repeats", "1"], None, "", "", "must be at least 3"),
    (
        ["measure/results.py", "HogWild", "--anyway"],
        "HogWild/run.sh",
        "exec tfrun",
        "exit 3 #",
        "starts no script",
    ),
    (
        ["measure/results.py", "HogWild", "--anyway"],
        "HogWild/run.sh",
        "set -euo",
        "exit 3 #",
        "failed with exit code 3",
    ),
    (
        ["measure/results.py", "HogWild", "--unchanged"],
        RESULTS,
        '"HogWild"',
        '"DynSGD"',
        "DynSGD's results.json is shown on HogWild's page",
    ),
    (["regions.py"], HOGWILD, "", "# endregion: other\n", "endregion: other, inside no region"),
    (["regions.py", "--fix", "My.py"], None, "", "", "My.py cannot be read"),
    (["regions.py", "--diff", HOGWILD, "My.py"], None, "", "", "My.py cannot be read"),
    (["pages/picture_digests.py", "My.png"], None, "", "", "My.png is no picture that git knows"),
    (["pages/picture_digests.py"], "tests/pictures.txt", "", "a line", "remove the line `a line`"),
]


@pytest.mark.parametrize(
    "words, name, old, new, sentence", WRONG, ids=[f"{case[0][0]}: {case[4]}" for case in WRONG]
)
def test_a_tool_says_what_to_do(words, name, old, new, sentence, few_examples):
    """Tests that a wrong step ends with a sentence, and not with a traceback."""
    path = few_examples / (name or "tests/pictures.txt")
    whole = path.read_text()
    try:
        if old is None:
            path.unlink()
        else:
            path.write_text(whole.replace(old, new, 1))
        assert not name or not path.exists() or path.read_text() != whole, "nothing is spoilt"
        code, output = tool(few_examples, *words)
    finally:
        path.write_text(whole)
    assert code in (1, 2) and "Traceback" not in output, output
    assert re.search(sentence, output), output
