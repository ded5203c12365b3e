"""The checks of the exercises: none accepts a wrong answer, none refuses a right one."""

import ast
import copy
import json
import os
import re
import subprocess
import sys

import pytest
import support
from lab.notebooks import cells as notebook_cells
from lab.notebooks import sources as notebook_sources

HERE = support.ROOT / "tests" / "notebooks"


def exercises(source):
    """Yields the exercises of a notebook: their number, the cells before, begin, solution."""
    cells = notebook_cells.notebook_from(source).cells
    for i, cell in enumerate(cells):
        if cell.source.startswith(notebook_cells.ANSWER):
            folded = notebook_cells.DETAILS.findall(cells[i + 1].source)
            solution = "\n".join("\n".join(notebook_cells.FENCE.findall(text)) for text in folded)
            before = [cell.source for cell in cells[:i] if cell.cell_type == "code"]
            yield notebook_cells.number_of(cell), before, cell.source, solution


def asked(tree, number):
    """Cuts off what a text does after it has made the answer."""
    answer = f"answer_{number}"
    makes = [
        i
        for i, node in enumerate(tree.body)
        for part in ast.walk(node)
        if getattr(part, "name", None) == answer
        or (isinstance(part, ast.Name) and part.id == answer and isinstance(part.ctx, ast.Store))
    ]
    tree.body = tree.body[: makes[-1] + 1]
    return tree


def shorter(node):
    """Yields each node with a part left out."""
    if isinstance(node, ast.BinOp) and not isinstance(node.left, ast.Constant):
        yield from (node.left, node.right)
    elif isinstance(node, ast.BinOp):
        yield node.right
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)) and isinstance(
        getattr(node, "ctx", ast.Load()), ast.Load
    ):
        for i in range(len(node.elts)):
            other = copy.copy(node)
            other.elts = node.elts[:i] + node.elts[i + 1 :]
            yield other
    elif isinstance(node, ast.Call):
        for i in range(len(node.args) if len(node.args) > 1 else 0):
            other = copy.copy(node)
            other.args = node.args[:i] + node.args[i + 1 :]
            yield other
        for i in range(len(node.keywords)):
            other = copy.copy(node)
            other.keywords = node.keywords[:i] + node.keywords[i + 1 :]
            yield other
        if isinstance(node.func, ast.Attribute):  # x.method(...) without the method
            yield node.func.value
    elif isinstance(node, ast.comprehension) and node.ifs:
        other = copy.copy(node)
        other.ifs = []
        yield other


def mutants(text, number):
    """Yields (what is left out, text) for each part of the functions of a solution."""
    tree = asked(ast.parse(text), number)
    seen = {ast.unparse(tree)}

    def new_code(what):
        code = ast.unparse(ast.fix_missing_locations(tree))
        if code not in seen:
            seen.add(code)
            yield what, code

    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        raised = [node for node in ast.walk(function) if isinstance(node, ast.Raise)]
        messages = {part for node in raised for part in ast.walk(node)}
        for parent in [node for node in ast.walk(function) if node not in messages]:
            for field, value in list(ast.iter_fields(parent)):
                if not isinstance(value, list):
                    for other in shorter(value) if isinstance(value, ast.AST) else ():
                        setattr(parent, field, other)
                        yield from new_code(f"{ast.unparse(value)} is {ast.unparse(other)}")
                    setattr(parent, field, value)
                    continue
                for i, node in enumerate(list(value)):
                    if isinstance(node, ast.stmt):
                        others = {"is left out": [ast.Pass()]}
                        if isinstance(node, (ast.With, ast.If)):
                            others["is only its body"] = node.body
                        if isinstance(node, (ast.For, ast.While)):
                            once = copy.copy(node)
                            once.body = [*node.body, ast.Break()]
                            others["ends after a round"] = [once]
                    elif isinstance(node, ast.AST):
                        others = {"is " + ast.unparse(one): [one] for one in shorter(node)}
                    else:
                        continue
                    first_line = ast.unparse(node).partition("\n")[0]
                    for what, other in others.items():
                        value[i : i + 1] = other
                        yield from new_code(f"{first_line} {what}")
                        value[i : i + len(other)] = [node]


def given(folder, source, number):
    """Answers that were written by hand, in a folder beside this file: [(what, code)]."""
    path = HERE / folder / source.name
    answers = []
    for cell in path.read_text().split("# %% ")[1:] if path.exists() else []:
        title, _, code = cell.partition("\n")
        exercise, _, what = title.partition(": ")
        if exercise == number:
            answers.append((what, code))
    return answers


@pytest.mark.parametrize("source", notebook_sources.sources(), ids=lambda source: source.stem)
def test_each_check_meets_six_wrong_answers_and_another_right_one(source):
    """A list of answers, which those below and test_notebooks.py give to the checks.

    Wrong: six at least, as a learner gives them. Right: in another way than the solution does it;
    a project has none, because each run of one costs several processes.
    """
    for number, _, _, solution in exercises(source):
        wrong, right = given("wrong", source, number), given("right", source, number)
        assert len({ast.unparse(ast.parse(code)) for _, code in wrong}) >= 6, number
        own = ast.unparse(asked(ast.parse(solution), number))
        others = {ast.unparse(ast.parse(code)) for _, code in right} - {own}
        assert others or number == "project", number


def answers(source, number, begin, solution):
    """All answers to an exercise: [(what, whether it is right, code)]."""
    text = ast.unparse(asked(ast.parse(solution), number))
    rows = [["the solution", True, text]]
    rows.append(["no answer yet", None, ast.unparse(asked(ast.parse(begin), number))])
    rows += [["right: " + what, True, code] for what, code in given("right", source, number)]
    rows += [["wrong: " + what, False, code] for what, code in given("wrong", source, number)]
    if "def answer_" in text or "class answer_" in text:
        rows += [[what, False, code] for what, code in mutants(solution, number)]
    return rows


# Exercises of which an answer takes no time: those of the tier core.
QUICK = {
    "Sessions": "12",
    "Inside-a-Running-Worker": "12",
    "Ring-AllReduce": "1",
    "From-Here-to-DDP-and-FSDP": "12",
    "Which-Algorithm": "12",
}
EAGER = {"TF2-Strategies": "12"}  # they begin without graphs, so another process runs them
SLOW = {  # each answer costs a training or a pipeline
    "Why-Distribute": "2",
    "Parameter-Server": "2",
    "SGD-by-Experiment": "2",
    "Input-Pipelines": "2",
}
ELSEWHERE = {  # their sessions wait for servers: test_notebooks.py has wrong answers to them
    "Servers": "12",
    "Sessions-that-Recover": "12",
}
# (notebook, exercise): parts of its solution that can be left out, and why.
REDUNDANT = {
    ("Classic-Mistakes-Variables", "2"): {
        "if op not in found: is only its body": "it only saves time: a graph has no loop",
    },
    ("Classic-Mistakes-Practice", "2"): {
        "variable.shape.as_list() is variable.shape": "a TensorShape equals its list",
    },
    ("Synchronous-Replicas", "2"): {
        "np.sort(durations, axis=1) is np.sort(durations)": "the last axis is the default",
    },
}
# What the cell writes that an exercise needs, although it sets no name that the exercise reads.
WRITES = {("Classic-Mistakes-Practice", "2"): "the first run:"}
CALLS = {("Send-Less-Fail-Less", "2"): 2}  # how many results a check compares; otherwise at least 6


def chosen(tier):
    """Yields (source, number, cells, begin, solution) of the exercises of a tier."""
    listed = {"quick": QUICK, "eager": EAGER, "slow": SLOW, "elsewhere": ELSEWHERE}
    for source in notebook_sources.sources():
        for number, *parts in exercises(source):
            own = [name for name, some in listed.items() if number in some.get(source.stem, "")]
            if number != "project" and tier in (own or ["graphs"]):
                yield source, number, *parts


def verdicts(tier):
    """Runs all answers of a tier: [(notebook, exercise, what, whether right, verdict, printed)]."""
    asked = [
        {
            "name": source.stem,
            "number": number,
            "cells": cells,
            "writes": WRITES.get((source.stem, number)),
            "calls": CALLS.get((source.stem, number), 6),
            "answers": answers(source, number, begin, solution),
        }
        for source, number, cells, begin, solution in chosen(tier)
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", support.ROOT / "tests" / "support" / "answers.py"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=support.patience(200),
        env={**os.environ, "PYTHONPATH": str(notebook_sources.COURSE)},
    )
    assert not done.returncode, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert {tuple(row[:2]) for row in rows} == {(one["name"], one["number"]) for one in asked}
    return rows


def misjudged(rows):
    """Yields the answers that a check takes for what they are not, or refuses without words."""
    for name, number, what, right, judged, output in rows:
        if right is False and what in REDUNDANT.get((name, number), {}):
            right = True
        refused = "not yet: .{15}"
        if what.startswith("wrong: "):  # by hand, so the check knows the slip
            refused = "not yet: (?!the check cannot read).{15}"
        words = f"^Exercise {number}: " + {True: "right", None: "no answer"}.get(right, refused)
        if right is False and judged == "late":  # an endless loop passes no check
            continue
        if judged is not right or not re.search(words, output, re.M):
            yield f"{name} {number}: {what!r}: {judged}, {output.strip()[-200:]}"


@pytest.mark.parametrize(
    "tier",
    [
        pytest.param("quick", marks=pytest.mark.long),
        pytest.param("graphs", marks=pytest.mark.long),
        pytest.param("eager", marks=pytest.mark.long),
        pytest.param("slow", marks=pytest.mark.nightly),
    ],
)
def test_a_check_refuses_what_is_wrong_and_accepts_what_is_right(tier):
    """Each check on a hundred answers that are made from the begin cell and the solution.

    Wrong: a constant, an exception, the result of one case in all others, one result spoiled, and
    the solution with one part left out. Right: the same in other types, and those in right/.
    Catches a check that no wrong answer in wrong/ meets: that compares one case, swallows an
    exception, or lets nan pass.
    """
    rows = verdicts(tier)
    assert not [*misjudged(rows)], "\n".join(misjudged(rows))
