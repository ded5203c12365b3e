"""Marks each picture with the code that drew it, so that a test finds pictures of older code.

A PNG file has room for texts. "Drawn by" says which function drew it, and has a digest of its code:
of the function and all that it uses from this repository, without comments and docstrings. "Drawn
from" has a digest of the file of results that it shows, where there is one.
"""

import ast
import functools
import hashlib
import inspect
import pathlib

HERE = pathlib.Path(__file__).resolve()  # what only marks pictures is no part of their code
ROOT = HERE.parents[1]
BY, FROM = "Drawn by", "Drawn from"


def save(figure, path, draw, *more, results=None, dpi=140):
    """Saves a figure that the function `draw` has drawn, from the file `results` if there is one.

    more: functions of the same file that made what it draws.

    The width of pages is 1000 pixels at most: with 7.2 inches letters stay readable on a phone.
    """
    source = pathlib.Path(inspect.getsourcefile(draw)).resolve()
    texts = {BY: mark(source, *(each.__name__ for each in (draw, *more)))}
    if results:
        texts[FROM] = digest(pathlib.Path(results).read_text())
    figure.savefig(path, dpi=dpi, metadata=texts)


def mark(source, *names):
    """What "Drawn by" says of functions: "tfrun/curves.py draw 0123456789abcdef"."""
    place = source.relative_to(ROOT).as_posix() if source.is_relative_to(ROOT) else source.name
    return "%s %s %s" % (place, " ".join(names), digest("\n".join(code(source, *names))))


def digest(text):
    """The first 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def code(source, *names):
    """The text of functions, and of all that they use, each once, in an order that stays."""
    found, waiting = {}, [(source, name) for name in names]
    while waiting:
        source, name = waiting.pop()
        imported, defined = contents(source)
        if (source, name) in found or name not in defined or source == HERE:
            continue
        node = found[source, name] = defined[name]
        local = own_names(node) if isinstance(node, ast.FunctionDef) else ()
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id not in local:
                waiting.append(imported.get(each.id, (source, each.id)))
            elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                module, inside = imported.get(each.value.id, (None, None))
                if module and not inside:
                    waiting.append((module, each.attr))
    return sorted(ast.unparse(node) for node in found.values())


def own_names(function):
    """The names of a function's parameters and variables: they hide those of its module."""
    stored = {
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return stored | {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}


@functools.cache
def contents(source):
    """What a file imports from this repository, {name: (file, name in it or None)}, and defines."""
    imported, defined = {}, {}
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            for each in node.names:
                parts = "%s.%s" % (module, each.name) if module else each.name
                if place := file(source, parts):
                    imported[each.asname or each.name] = (place, None)
                elif module and (place := file(source, module)):
                    imported[each.asname or each.name] = (place, each.name)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for inner in ast.walk(node):
                if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(inner):
                    inner.body = inner.body[1:] or [ast.Pass()]
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            for each in (each for target in node.targets for each in ast.walk(target)):
                if isinstance(each, ast.Name):
                    defined[each.id] = node
    return imported, defined


def file(source, module):
    """The file of a module beside `source`, in the folder above it, or in the repository."""
    for folder in (source.parent, source.parents[1], ROOT):
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        if path.is_file():
            return path
    return None


def texts(path):
    """{key: text} of a PNG file: the chunks tEXt between its signature and its end."""
    found, rest = {}, path.read_bytes()[8:]
    while rest:
        length = int.from_bytes(rest[:4], "big")
        if rest[4:8] == b"tEXt":
            key, _, text = rest[8 : 8 + length].partition(b"\0")
            found[key.decode("latin-1")] = text.decode("latin-1")
        rest = rest[12 + length :]
    return found


def out_of_date(path):
    """Whether other code would draw this PNG file today, or it has no mark."""
    place, _, rest = texts(path).get(BY, "").partition(".py ")
    source, names = ROOT / (place + ".py"), rest.split(" ")[:-1]
    return not source.is_file() or mark(source, *names) != texts(path)[BY]
