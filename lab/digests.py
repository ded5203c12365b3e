"""Digests that tell the code of a script, without its words, from any other.

A page shows a result only while the digest of the example that gave it is that of today's script.
"""

import ast
import functools
import hashlib
import io
import pathlib
import re
import tokenize
from collections.abc import Iterable
from typing import Any

from lab.examples import lines_above, parse, parse_text, read

# Regions that may change without a change of what a script computes or reports: they start tasks,
# and move bytes. Not those with defaults, with a worker's rank, which chooses its rows, or with the
# first values of w, which reach a ps by a checkpoint.
PLUMBING = (
    "connections",
    "neighbours",
    "one_client",
    "prepare",
    "protocol",
    "servers",
    "transport",
)


def line_numbers(node: Any) -> range:
    """Returns the numbers of the lines of a node of a syntax tree."""
    return range(node.lineno, node.end_lineno + 1)


def code_lines(path: pathlib.Path) -> dict[int, str]:
    """Returns {number of a line: its code} of a file, without comments, docstrings, empty lines."""
    return code_lines_of(read(path), parse(path))


def code_lines_of(text: str, tree: ast.Module) -> dict[int, str]:
    """Returns {number of a line: its code} of a text, which has this syntax tree."""
    words: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            if ast.get_docstring(node):
                words.update(line_numbers(node.body[0]))
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return {n: line.rstrip() for n, line in enumerate(lines, 1) if n not in words and line.strip()}


def digest_of_lines(lines: Iterable[str]) -> str:
    """Returns the first 16 hexadecimal digits of the SHA-256 of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def example_digest(path: pathlib.Path) -> str:
    """Returns 16 hexadecimal digits that tell a script's experiment from any other.

    That is its code, without words, imports and the regions of PLUMBING. So the digest changes with
    the algorithm, its defaults, the data, the model, gradients, tests, the loop of training, and
    what is reported of it, and results of before are outdated.
    """
    try:
        return digest_of_text(read(path))
    except SyntaxError:
        parse(path)  # which says what is wrong
        raise


@functools.cache
def digest_of_text(text: str) -> str:
    """Returns the example_digest() of a script's text; a page asks for it many times."""
    plumbing: set[int] = set()  # numbers of lines
    tree = parse_text(text)
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            plumbing.update(line_numbers(node))
    below = lines_above(text)
    region = None
    for number, line in enumerate(text.splitlines(), 1):
        if mark := re.match(r"# (end)?region: (\w+)", line):
            region = None if mark[1] else mark[2]
        if region in PLUMBING or below is not None and number > below and not region:
            plumbing.add(number)
    code = code_lines_of(text, tree)
    return digest_of_lines(line for n, line in code.items() if n not in plumbing)
