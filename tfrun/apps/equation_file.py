"""Reads an example's file of tests/equations: its reference in NumPy, and two of its mistakes."""

import ast
import inspect
import types
from typing import Any, NamedTuple

from tfrun.apps import material, perceptron, references

# {a kind of script: the test in templates/ for it}; any other kind is tested by whole runs.
TESTS = {"parameter server, asynchronous": "test_functions.py"}
RUNS = "test_runs.py"
USED = ("Callable", "Sequence", "Any")  # names that a reference may import


class Equation(NamedTuple):
    """What the test of a made folder has of an example."""

    sources: str  # of the reference and of all classes and functions that it needs
    reference: str  # its name
    flags: dict[str, Any]  # {"local_steps": 4}: of the script, and hyperparameters of the reference
    mistakes: dict[str, list[tuple[str, str]]]  # {name: [(text of the script, its replacement)]}
    test: str  # the name of a template
    workers: int | None  # tasks in a run of the test; None: as many as run.sh starts
    n: int | None  # workers in the equation; None: as many as tasks

    @property
    def imports(self) -> str:
        """Returns the lines that import what the sources use."""
        names = [name for name in USED if name in self.sources]
        abc = ", ".join(name for name in names if name != "Any")
        lines = [f"from collections.abc import {abc}"] if abc else []
        lines += ["from typing import Any"] if "Any" in names else []
        return "\n".join([*lines, "", "import numpy as np"]).lstrip()


def read(script: str, kind: str) -> Equation:
    """Returns the Equation of a script, of which `kind` says what its docstring says.

    Its APP, if it has one, says what the test takes instead of REFERENCE, FLAGS and the first two
    MISTAKES; DEFAULTS in tests/support/equations.py lists what APP may have.
    """
    path = material.equation(script)
    file = module("equation", path)
    chosen = getattr(file, "APP", {})
    mistakes = {
        name: changes for named in file.MISTAKES.values() for name, changes in named.items()
    }
    names = chosen.get("mistakes") or list(mistakes)[:2]
    reference = chosen.get("reference") or file.REFERENCE
    test = chosen.get("test") or TESTS.get(kind, RUNS)
    return Equation(
        sources=sources(reference, path, test == RUNS),
        reference=reference.__name__,
        flags={**getattr(file, "FLAGS", {}), **chosen.get("flags", {})},
        mistakes={name: mistakes[name] for name in names},
        test=test,
        workers=chosen.get("workers"),
        n=chosen.get("n"),
    )


def module(name: str, path: str) -> types.ModuleType:
    """Returns the module of a file of the material."""
    new_module = types.ModuleType(name)
    exec(compile(material.text(path), path, "exec"), new_module.__dict__)
    return new_module


def sources(reference: type, path: str, trains: bool) -> str:
    """Returns the source of a reference, below those of its bases.

    path: of its example's file, whose other classes and functions come along. trains: whether the
    test trains the perceptron of perceptron.py, which then stands there, too.
    """
    order = [kind for kind in reversed(reference.__mro__) if kind is not object]
    shared = [kind.__name__ for kind in order if getattr(references, kind.__name__, None) is kind]
    wanted = ["Gradient", *shared] if shared else []
    parts = definitions(inspect.getsource(references), wanted)
    if trains:
        text = inspect.getsource(perceptron)
        parts += definitions(text, ["ACTIVATIONS", "loss_and_gradient"])
    if reference.__name__ not in shared:
        parts += definitions(material.text(path), None)
    return "\n\n\n".join(parts)


def definitions(text: str, names: list[str] | None) -> list[str]:
    """Returns the source of these top-level names of a text; of all classes and functions if None.

    They come in the order of the text.
    """
    parts: list[str] = []
    lines = text.splitlines()
    for node in ast.parse(text).body:
        own = defined_names(node)
        is_code = isinstance(node, (ast.ClassDef, ast.FunctionDef))
        if is_code if names is None else own & set(names or []):
            parts.append("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return parts


def defined_names(node: ast.stmt) -> set[str]:
    """Returns the names that a top-level statement defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return {node.name}
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}
