"""Puts a problem of one's own, a file with data and a model, into a copy of any script.

The run directory then has what runs: the copy, whose region `problem` imports from
adapted_problem.py; that, which gives every script the form that it takes; and own_problem.py, the
user's file. What the file imports from beside it comes along.

    python -m tfrun.problems FILE SCRIPT DIRECTORY    prints the path of the copy
"""

import ast
import importlib.util
import os
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

USER_FILE = "own_problem.py"
ADAPTER_FILE = "adapted_problem.py"
BESIDE_IT = (
    "adapted_optimizer.py",
    "adapted_data.py",
    "adapted_tables.py",
)  # files that it imports
ADAPTER_PATH_LINE = "FILE = __file__"  # which a copy replaces by the path of the user's file
# Expressions with a scope of their own: what they define is no name of the module.
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NEEDED = ("load_data", "make_model", "loss", "METRICS")
REGION = re.compile(r"(?ms)^# region: problem\b.*?^# endregion: problem$")
IMPORTS = """# region: problem -- of {}
from adapted_problem import DATASET, DATASETS, METRICS, Data, adapt, load_data, loss, make_model
# endregion: problem"""
MAIN = re.compile(r'(?m)^if __name__ == "__main__":$')
ADAPT = "adapt(globals())  # adds --accumulate, your optimizer and your tf.data.Dataset\n\n"


class ProblemCopy(NamedTuple):
    """A copy of a script that trains another problem, and all files that it needs."""

    script: str  # the name of the copy
    texts: dict[str, str]  # {name: text} of each file, the copy's, too
    original: str  # the path of the script, as the command has it

    def replace_script(self, words: list[str], copy: str) -> list[str]:
        """Returns the words of a command, in which `copy` stands in place of the script.

        A further word with the script's name, or even its path, is an argument: it stays.
        """
        place = words.index(self.original)
        return [*words[:place], copy, *words[place + 1 :]]


def read(path: pathlib.Path) -> tuple[str, ast.Module]:
    """Returns (the text of a file, its syntax tree). Raises ValueError, a line for the user."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # an editor of Windows begins with a mark
        if "\0" in text:
            raise ValueError(f"{path} is no text in UTF-8")
        return text, ast.parse(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None


def defined(tree: ast.AST) -> set[str]:
    """Returns the names that a module defines, by statements of any kind.

    Names that it defines inside a function, a class or a comprehension do not count.
    """
    names, nodes = set(), [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, SCOPES):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        nodes.extend(ast.iter_child_nodes(node))
    return names


def collect_modules(path: pathlib.Path, tree: ast.AST, texts: dict[str, str]) -> None:
    """Adds what a file imports from beside it to {name: text}. Raises ValueError."""
    nodes = list(ast.walk(tree))
    imported = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    sources = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    if relative := [node for node in sources if node.level]:
        raise ValueError(
            f"{path}, line {relative[0].lineno}: a relative import needs a package; name the file "
            "alone, as in `from readers import read`"
        )
    names = [alias.name for alias in imported] + [node.module for node in sources if node.module]
    for name in {name.split(".")[0] for name in names}:
        beside = path.with_name(f"{name}.py")
        if is_folder(path.parent / name):
            raise ValueError(
                f"{path} imports {name}, a folder: put what it needs into one file, {beside}"
            )
        if beside.exists() and f"{name}.py" not in texts:
            texts[f"{name}.py"], tree = read(beside)
            collect_modules(beside, tree, texts)


def is_folder(folder: pathlib.Path) -> bool:
    """Returns whether an import means this folder: a package, or where no package has its name."""
    if not folder.is_dir():
        return False
    spec = importlib.util.find_spec(folder.name)
    return (folder / "__init__.py").exists() or spec is None or not spec.origin


def script_of(command: Sequence[str]) -> str:
    """Returns the first word of a command that ends with .py; without one, its first word."""
    return next((word for word in command if word.endswith(".py")), command[0])


def make_copy(problem: str | pathlib.Path | None, command: Sequence[str]) -> ProblemCopy | None:
    """Returns the ProblemCopy that a run directory gets; None without a problem.

    problem: the path of the file. command: what starts a task; script_of() says which script.
    Raises ValueError, one line, where either does not fit.
    """
    if not problem:
        return None
    problem = pathlib.Path(problem).resolve()
    original = script_of(command)
    script = pathlib.Path(original)
    if not problem.is_file():
        raise ValueError(f"there is no problem {problem}")
    text, tree = read(problem)
    if missing := [name for name in NEEDED if name not in defined(tree)]:
        raise ValueError(
            f"{problem} defines no {' and no '.join(missing)}: see Your-Model/README.md"
        )
    script_text, _ = read(script)
    copy, regions = REGION.subn(lambda _: IMPORTS.format(problem.name), script_text)
    if not regions:
        raise ValueError(
            f"{script} takes no other problem, for it has no region `problem`: "
            "take another example, such as HogWild"
        )
    if "make_optimizer" in defined(tree) and not takes_optimizer(copy):
        raise ValueError(
            f"{script} takes no optimizer of yours, for its step is the algorithm's own: "
            f"remove make_optimizer from {problem}, or take another example, such as HogWild"
        )
    if "TABLES" in defined(tree) and "TABLES_BY_ROWS" not in defined(ast.parse(copy)):
        raise ValueError(
            f"{script} takes no TABLES, for its workers keep more than a copy of the last w: "
            f"remove TABLES from {problem}, or take another example, such as HogWild"
        )
    copy = MAIN.sub(lambda match: ADAPT + match[0], copy)
    texts = {script.name: copy, USER_FILE: text}
    texts[ADAPTER_FILE] = adapter_of(problem)
    texts |= {name: pathlib.Path(__file__).with_name(name).read_text("utf-8") for name in BESIDE_IT}
    beside: dict[str, str] = {}
    collect_modules(problem, tree, beside)
    if taken := sorted(beside.keys() & texts.keys()):
        raise ValueError(
            f"{problem} imports {problem.with_name(taken[0])}, but a run has another file of that "
            "name: rename it, or copy what you need of it"
        )
    return ProblemCopy(script.name, texts | beside, original)


def takes_optimizer(script: str) -> bool:
    """Returns whether the text of a script has a place where an optimizer can take its step."""
    return "OPTIMIZER" in defined(ast.parse(script))


def adapter_of(problem: pathlib.Path) -> str:
    """Returns the text of adapted_problem.py for a user's file, whose path its errors name."""
    text = pathlib.Path(__file__).with_name(ADAPTER_FILE).read_text(encoding="utf-8")
    count = text.count(f"\n{ADAPTER_PATH_LINE}")
    assert count == 1, f"{ADAPTER_FILE} needs one line `{ADAPTER_PATH_LINE}`, and has {count}"
    return text.replace(ADAPTER_PATH_LINE, f"FILE = {str(problem)!r}")


def refuse_another_problem(
    directory: pathlib.Path | None, script: str | pathlib.Path, copy: ProblemCopy | None
) -> None:
    """Raises ValueError where a run directory has a run of another problem than a ProblemCopy.

    directory: None for a new one. script: of the command; the copy itself may run again. copy: None
    for the script's own problem.
    """
    if not directory or pathlib.Path(script).resolve().parent == directory:
        return
    if not (directory / "flags.json").exists():
        return
    # The user's file, None without a problem, and the modules that it imports.
    texts: dict[str, str | None] = {USER_FILE: None}
    if copy:
        ours = {copy.script, ADAPTER_FILE, *BESIDE_IT}
        texts |= {name: text for name, text in copy.texts.items() if name not in ours}
    for name, text in texts.items():
        path = directory / name
        if text != (path.read_text(encoding="utf-8") if path.exists() else None):
            what = "problem" if name == USER_FILE else name
            raise ValueError(
                f"the run in {directory} has another {what}: set OUTPUT_DIR to another folder"
            )


def with_problem_variable(command: str) -> str:
    """Returns a command, with the problem in front that PROBLEM has named."""
    name = os.environ.get("PROBLEM")
    return f"PROBLEM={shlex.quote(os.path.abspath(name))} {command}" if name else command


def write_copy(
    directory: pathlib.Path, copy: ProblemCopy | None, command: Sequence[str]
) -> list[str]:
    """Writes a ProblemCopy into a run directory; returns the command with it as its script.

    copy: None where the script trains its own problem.
    """
    if copy is None:
        return list(command)
    for name, text in copy.texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    return copy.replace_script(list(command), str(directory / copy.script))


def install_problem(
    problem: str | pathlib.Path | None, command: Sequence[str], directory: pathlib.Path
) -> list[str]:
    """Does all of it; returns the command. Raises ValueError, one line, or OSError."""
    copy = make_copy(problem, command)
    refuse_another_problem(directory, command[0], copy)
    return write_copy(directory, copy, command)


def as_bash(copy: ProblemCopy | None, command: Sequence[str]) -> tuple[str, str]:
    """Returns the command as bash, with a ProblemCopy in $OUTPUT_DIR, and lines that write it.

    copy: None where the script trains its own problem, which needs no such lines.
    """
    if copy is None:
        return shlex.join(command), ""
    words = [shlex.quote(word) for word in command]
    words[list(command).index(copy.original)] = f'"$OUTPUT_DIR"/{copy.script}'
    files = []
    for name, text in copy.texts.items():
        text = text.removesuffix("\n")
        files.append(f"cat > \"$OUTPUT_DIR\"/{name} <<'END of {name}'\n{text}\nEND of {name}\n")
    return " ".join(words), "".join(files)
