"""The tests of a script: the mistakes that they plant in it."""

import ast
import functools
import os
import pathlib
import re
from typing import Any

from lab.docstrings import script
from lab.examples import ROOT, ToolError, parse, read, scripts, shown

EQUATIONS = ROOT / "tests" / "equations"


def count_entries(mistakes: Any) -> dict[str, int]:
    """Returns {what fails: how many mistakes} of the node of such a dict of dicts."""
    pairs = zip(mistakes.keys, mistakes.values)
    return {ast.literal_eval(fails): len(named.keys) for fails, named in pairs}


def count_mistakes(path: pathlib.Path) -> dict[str, int]:
    """Returns {what fails: how many mistakes} of MISTAKES in a file of tests/equations/."""
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MISTAKES":
            return count_entries(node.value)
    raise ToolError(f"{shown(path)} has no MISTAKES: add those that its test must catch")


def count_all_mistakes() -> int:
    """Returns how many mistakes the files in tests/equations/ have."""
    stems = [path.stem for path in scripts()]
    return sum(sum(count_mistakes(EQUATIONS / f"{stem}.py").values()) for stem in stems)


FEW = 6  # examples that a test names at most, if it is not one of all


@functools.cache
def examples_of_tests() -> dict[pathlib.Path, set[pathlib.Path]]:
    """Returns {a test of equations or examples: the scripts that it names}, where these are few."""
    named = {
        script: re.compile(rf'["/]{script.parent.name}["/\]]|\b{script.stem}\b')
        for script in scripts()
    }
    scripts_of_tests = {}
    for folder in (EQUATIONS, ROOT / "tests" / "examples"):
        for path in sorted(folder.glob("test_*.py")):
            text = read(path)
            names = {script for script, pattern in named.items() if pattern.search(text)}
            if len(names) <= FEW:
                scripts_of_tests[path] = names
    return scripts_of_tests


def tests(folder: pathlib.Path, _: str | None) -> str:
    """The mistakes that tests plant in the script, and the tests that name few other examples."""
    own = script(folder)
    path = EQUATIONS / f"{own.stem}.py"
    link = f"[{shown(path)}]({os.path.relpath(path, folder)})"
    number = sum(count_mistakes(path).values())
    fail = "mistakes that fail" if number > 1 else "mistake that fails"
    caught = f", and {number} planted {fail}" if number else ""
    others = [f"`{test.stem}`" for test, names in examples_of_tests().items() if own in names]
    more = f" More: {', '.join(others)}." if others else ""
    return f"**Tests:** {link} has the reference{caught}.{more}"
