"""Each program of the project reads each flag that it declares."""

import ast
import re

import pytest
import support
from lab import examples


def flags_of(tree):
    """Returns the names of the flags that a script declares, in the form in which it reads them."""
    values, flags = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = zip(ast.walk(node.targets[0]), ast.walk(node.value))
            values.update({a.id: b for a, b in pairs if isinstance(a, ast.Name)})
        elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == "MORE_FLAGS":
            values["MORE_FLAGS"].elts += node.value.elts
        elif isinstance(node, ast.For):
            values[ast.unparse(node.target)] = node.iter
    # Each is [(name, default, help)]; a default of None: no flag.
    for table in ("(name, default, text)", "MORE_FLAGS"):
        for row in getattr(values.get(table), "elts", []):
            if isinstance(row, ast.Tuple):
                name, default, _ = row.elts
                default = values.get(getattr(default, "id", None), default)
                flags |= {name.value} if ast.unparse(default) != "None" else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) in ADD_A_FLAG:
                flags.add(str(node.args[0].value))
    names = {name.removeprefix("--").replace("-", "_") for name in flags}
    return {name for name in names if name.isidentifier()}


ADD_A_FLAG = ["add_argument", "number", "add"]
# What else reads the flags of a program.
LOADED = {
    "Beyond-One-Machine/TensorFlowOnSpark/tfos.py": [
        "From-TensorFlow-1/HogWild-Sessions/hogwild_sessions.py"
    ]
}


def programs():
    """Returns all programs of the project that have flags, but those of tfrun, lab and tests."""
    names = []
    for path in examples.tracked_files("*.py"):
        name = path.relative_to(support.ROOT).as_posix()
        folders = ("tests/", "tfrun/", "lab/", "Basics-Tutorial/")
        text = path.read_text()
        if not name.startswith(folders) and "__main__" in text and flags_of(ast.parse(text)):
            names.append(name)
    return names


@pytest.mark.parametrize("name", programs())
def test_each_flag_is_read(name):
    """Catches a flag that changes nothing."""
    tree = ast.parse((support.ROOT / name).read_text())
    read = {
        node.attr
        for path in (name, *LOADED.get(name, []))
        for node in ast.walk(ast.parse((support.ROOT / path).read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and re.search(r"\bflags$|\.parse_\w+\(.*\)", ast.unparse(node.value))
    }
    unread = flags_of(tree) - read
    assert not unread
