"""A new example begins without numbers, and a contributor's wrong step ends with a sentence."""

import os
import re
import shutil
import sys

import equations
import pytest
import support
from lab import examples, new_example, reading_order, readmes, references

FEW = ["Non-Distributed-Setup", "Distributed-Setup", "HogWild"]
NEW = "Further-Algorithms/Delay-Compensation"
SCRIPT = f"{NEW}/delay_compensation.py"


@pytest.fixture(scope="module")
def few_examples(tmp_path_factory):
    """A clone with the laboratory and three examples, which a contributor may spoil."""
    root = tmp_path_factory.mktemp("clone")
    patterns = ["*.py", "*.sh", "*.md", "*.txt", "*.json"]
    copied = (*FEW, "lab", "tfrun", "Measurements")
    for path in sum((examples.tracked(pattern) for pattern in patterns), []):
        name = path.relative_to(support.ROOT)
        if name.parts[0] in copied:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / name)
    shutil.rmtree(root / "tfrun" / "bin", ignore_errors=True)
    for page in [*root.glob("Measurements/*/README.md"), *root.glob("tfrun/*.md")]:
        page.unlink()
    (root / "tests" / "equations").mkdir(parents=True)
    (root / "docs").mkdir()
    for name in ["docs/papers.txt", *(f"tests/equations/{new_example.stem(n)}.py" for n in FEW)]:
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


def test_a_new_example_has_no_numbers(few_examples):
    """Begins one, and finds it in the reading order, with all sections and nothing measured."""
    root = few_examples
    code, output = tool(root, "new_example.py", "HogWild", NEW)
    assert code == 0, output
    for file in (SCRIPT, "docs/costs.md", "CHANGELOG.md", f"{NEW}/results.json"):
        assert file in output, f"it does not list {file}"
    examples.git("add", ".", folder=root)
    assert sorted(path.name for path in (root / NEW).iterdir()) == [
        *("README.md", "delay_compensation.py", "run.sh"),
    ]
    code, output = tool(root, "readmes.py", "--fix")
    assert code == 0, output
    page = (root / NEW / "README.md").read_text()
    assert re.findall(r"(?m)^## (.+)$", page) == list(readmes.SECTIONS)
    assert (
        readmes.NOT_MEASURED in page and new_example.TODO in page and "Previous: [HogWild]" in page
    )
    script = (root / SCRIPT).read_text()
    assert (
        script.startswith('"""Delay-Compensation: ') and "# Delay-Compensation: subtract" in script
    )
    assert "Differs from:  HogWild: " in script and "# HogWild:" not in script
    assert "\ndef server(w, step, flags):" in script and "\ndef update(ps, " in script
    assert '"$here/../../activate.sh"' in (root / NEW / "run.sh").read_text()
    env = {**os.environ, "PYTHONPATH": root}
    equation = root / "tests" / "equations" / "delay_compensation.py"
    done = support.run_to_end(sys.executable, equation, env=env)
    assert done.returncode == 0, done.stderr
    code, output = tool(root, "regions.py")
    assert code == 0, output


SOURCES = [name for name in reading_order.examples() if examples.main_script(name).is_file()]


@pytest.mark.parametrize("source", SOURCES)
def test_a_reference_begins_by_the_kind_of_the_source(source):
    """Catches a reference of two workers that push, for a script that no such test can compare."""
    kind = readmes.field(examples.main_script(source), "Kind")
    made = {}
    exec(new_example.new_equation(source, NEW), made)
    if kind in equations.INTERLEAVED:
        assert issubclass(made["REFERENCE"], references.HogWild)
        assert not issubclass(made["REFERENCE"], references.Synchronous)
    elif kind in equations.TOGETHER:
        assert issubclass(made["REFERENCE"], references.Synchronous)
    else:
        assert made["COMPARED_BY"].startswith("tests/") and "REFERENCE" not in made
    assert (kind in new_example.REFERENCES) == ("REFERENCE" in made)


OWN = [  # the walk of CONTRIBUTING: (file, what new_example.py wrote, what a contributor writes)
    (
        "Further-Algorithms/My-Algorithm/my_algorithm.py",
        "w.assign_sub(delta)",
        "w.assign_sub(0.5 * delta)",
    ),
    (
        "tests/equations/my_algorithm.py",
        "        raise NotImplementedError\n",
        "        loss, g = self.gradient(k, version, w_k)\n"
        "        self.w = [v - 0.5 * self.lr * d for v, d in zip(self.w, g)]\n"
        "        return loss\n",
    ),
    (
        "tests/equations/my_algorithm.py",
        'MISTAKES = {"parameters": {}}',
        'MISTAKES = {"parameters": {"the whole step": [("0.5 * delta", "delta")]}}',
    ),
]


@pytest.mark.long
def test_a_new_example_is_tested_from_its_first_step_on(tmp_path):
    """Catches a template that cannot be imported, and tests that do not collect beside it.

    Its reference is missing at first, which a test says. With the script's line, the reference and
    a mistake all is green: three edits in two files.
    """
    root = tmp_path / "clone"
    for path in examples.tracked("*"):
        copy = root / path.relative_to(support.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    examples.git("init", "-q", folder=root)
    examples.git("add", ".", folder=root)
    code, output = tool(root, "new_example.py", "HogWild", "Further-Algorithms/My-Algorithm")
    assert code == 0, output
    examples.git("add", ".", folder=root)

    def results():
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not long and not nightly"]
        env = {**os.environ, "PYTHONPATH": root}
        done = support.run_to_end(*command, "-k", "my_algorithm", cwd=root, env=env, seconds=120)
        return done.stdout

    output = results()
    assert "1 failed" in output and "NotImplementedError" in output, output
    for name, old, new in OWN:
        path = root / name
        path.write_text(examples.replaced(path, [(old, new)]))
    output = results()
    assert "failed" not in output and " passed" in output, output


# What a contributor may do wrong: (the tool's words, the file that is spoilt, what stands in it,
# what takes its place, the sentence). Without a file nothing is spoilt; with nothing in its place
# the whole file is gone.
ORDER, PAGE, HOGWILD = "docs/reading-order.txt", "HogWild/README.md", "HogWild/hogwild.py"
READMES, RESULTS, PAPERS = ["readmes.py"], "HogWild/results.json", "docs/papers.txt"
WRONG = [
    (["new_example.py", "HogWild", "DOWNPOUR!"], None, "", "", "'DOWNPOUR!' is no name"),
    (["new_example.py", "HogWild", "Distributed-Setup"], None, "", "", "exists already"),
    (["new_example.py", "HogWild", "Keras"], None, "", "", "keras.py would hide a Python module"),
    (["new_example.py", "HogWild", "No-Parent/My"], None, "", "", "no examples in No-Parent"),
    (["new_example.py", "Hogwild", "My"], None, "", "", "no example Hogwild to copy"),
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
    (["results.py", "My-Algorithm"], None, "", "", "there is no My-Algorithm/run.sh"),
    (["results.py", "HogWild", "--repeats", "1"], None, "", "", "must be at least 3"),
    (
        ["results.py", "HogWild", "--anyway"],
        "HogWild/run.sh",
        "exec tfrun",
        "exit 3 #",
        "starts no script",
    ),
    (
        ["results.py", "HogWild", "--anyway"],
        "HogWild/run.sh",
        "set -euo",
        "exit 3 #",
        "failed with exit code 3",
    ),
    (
        ["results.py", "HogWild", "--unchanged"],
        RESULTS,
        '"HogWild"',
        '"DynSGD"',
        "DynSGD's results.json is shown on HogWild's page",
    ),
    (["regions.py"], HOGWILD, "", "# endregion: other\n", "endregion: other, inside no region"),
    (["regions.py", "--fix", "My.py"], None, "", "", "My.py cannot be read"),
    (["regions.py", "--diff", HOGWILD, "My.py"], None, "", "", "My.py cannot be read"),
    (["picture_marks.py", "My.png"], None, "", "", "My.png is no picture that git knows"),
    (["picture_marks.py"], "tests/pictures.txt", "", "a line", "remove the line `a line`"),
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
