"""Lists the mistakes that score.py can plant in a file: mutations, each a small change.

In Python these are mutation operators of mutmut that stand for a mistake which somebody makes, and
others of our own: a wrong number, a missing call, and arguments in the wrong order. In JavaScript
they are of the same kinds, outside of comments, strings and patterns.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterator

import libcst as cst
from libcst import matchers
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

from lab.examples import ROOT

# Arguments with these names only change words of --help, or how a picture looks.
COSMETIC_ARGUMENTS = frozenset(
    (
        "help description metavar title label color figsize fontsize dpi linewidth linestyle lw "
        "alpha zorder marker markersize ms loc frameon ncol ncols rotation labelsize capsize pad "
        "width height ha va fmt style justify xytext textcoords layout fontweight xlim ylim size "
        "ticks"
    ).split()
)


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A mistake that can be planted; `plant()` returns the text of the file that has it."""

    file: str  # from the root of the project
    function: str  # in which it stands, such as "Class.method"; "" outside of all
    line: int
    plant: Callable[[], str] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Change:
    """What a mistake changes, as people read it, and as a list of equivalents names it."""

    file: str
    function: str
    old: str  # the lines that change, without the space around each
    new: str


def change_of(mutation: Mutation, before: str) -> Change:
    """Returns what a mistake changes in its file, whose text without it is `before`."""
    after = mutation.plant()
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    old, new = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(mutation.file, mutation.function, old, new)


def other_numbers(value: float) -> list[float]:
    """Returns one more and one less than a number; of a large one, twice and half as much."""
    if value > 1000:
        return [value * 2, value // 2 if isinstance(value, int) else value / 2]
    return [value + 1] + ([value - 1] if value >= 1 else [])  # a literal has no sign


# Python ------------------------------------------------------------------------------------------


def mutate_constants(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields other numbers in place of one, and the other truth value."""
    if isinstance(node, (cst.Integer, cst.Float)):
        for value in other_numbers(node.evaluated_value):
            yield node.with_changes(value=repr(value))
    if isinstance(node, cst.Name) and node.value in ("True", "False"):
        yield from mutators.operator_name(node)


def mutate_operators(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields comparisons, bounds, arithmetic, logic and conditions that are different."""
    yield from mutators.operator_swap_op(node)
    yield from mutators.operator_keywords(node)
    if isinstance(node, cst.UnaryOperation):
        yield from mutators.operator_remove_unary_ops(node)
    if isinstance(node, cst.AugAssign):
        yield from mutators.operator_augmented_assignment(node)
    if isinstance(node, cst.IfExp):
        yield from mutators.operator_if_exp(node)


def remove_calls(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields `pass` in place of a statement that is a call."""
    if matchers.matches(node, matchers.Expr(value=matchers.Call())):
        yield cst.Pass()


SYMMETRIC = (  # functions whose arguments may stand in any order
    matchers.Name("max")
    | matchers.Name("min")
    | matchers.Attribute(attr=matchers.Name("maximum") | matchers.Name("minimum"))
    | matchers.Attribute(attr=matchers.Name("suppress"))
)


def mutate_arguments(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields a call whose arguments are in another order, or one fewer, so that a default holds."""
    if not isinstance(node, cst.Call):
        return
    arguments = list(node.args)
    for number, (first, second) in enumerate(zip(arguments, arguments[1:])):
        by_name = any(argument.star or argument.keyword for argument in (first, second))
        in_any_order = matchers.matches(node.func, SYMMETRIC)
        if not by_name and not in_any_order and not first.value.deep_equals(second.value):
            swapped = [
                first.with_changes(value=second.value),
                second.with_changes(value=first.value),
            ]
            rest = arguments[number + 2 :]
            yield node.with_changes(args=[*arguments[:number], *swapped, *rest])
    for number, argument in enumerate(arguments):
        if len(arguments) > 1 and not argument.star and not is_cosmetic(argument):
            yield node.with_changes(args=[*arguments[:number], *arguments[number + 1 :]])
    yield from mutators.operator_symmetric_string_methods_swap(node)


def is_cosmetic(argument: cst.Arg) -> bool:
    """Returns whether an argument of a call only changes words or how a picture looks."""
    return argument.keyword is not None and argument.keyword.value in COSMETIC_ARGUMENTS


OPERATORS = (mutate_constants, mutate_operators, remove_calls, mutate_arguments)
SKIPPED = (cst.Annotation, cst.Import, cst.ImportFrom, cst.Decorator, cst.Assert)
MAIN_GUARD = matchers.If(test=matchers.Comparison(left=matchers.Name("__name__")))


class MutationFinder(cst.CSTVisitor):
    """Collects (function, line, a node, what takes its place) of a module."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.scope: list[str] = []
        self.changes: list[tuple[str, int, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Collects the changes of a node; returns whether its parts are visited as well."""
        if isinstance(node, SKIPPED) or matchers.matches(node, MAIN_GUARD):
            return False
        if isinstance(node, cst.Arg) and is_cosmetic(node):
            return False
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self.scope.append(node.name.value)
        for operator in OPERATORS:
            for new in operator(node):
                line = self.get_metadata(PositionProvider, node).start.line
                self.changes.append((".".join(self.scope), line, node, new))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self.scope.pop()


def python_mutations(file: str, text: str) -> list[Mutation]:
    """Returns the mistakes that can be planted in a Python file."""
    wrapper, finder = MetadataWrapper(cst.parse_module(text)), MutationFinder()
    wrapper.visit(finder)
    module = wrapper.module

    def plant(node: cst.CSTNode, new: cst.CSTNode) -> Callable[[], str]:
        def planted() -> str:
            changed = module.deep_replace(node, new)
            assert isinstance(changed, cst.Module)
            return changed.code

        return planted

    return [
        Mutation(file, function, line, plant(node, new))
        for function, line, node, new in finder.changes
    ]


# JavaScript --------------------------------------------------------------------------------------

NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"  # strings
    r"|(?<=[(,=:?&|!])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n])+/[a-z]*",  # patterns
    re.DOTALL,
)
NUMBER = re.compile(r"(?<![\w.$])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
REPLACEMENTS = {  # of a symbol: those that may stand in its place
    " + ": [" - "],
    " - ": [" + "],
    " * ": [" / "],
    " / ": [" * "],
    " ** ": [" * "],
    " < ": [" <= "],
    " <= ": [" < "],
    " > ": [" >= "],
    " >= ": [" > "],
    " === ": [" !== "],
    " !== ": [" === "],
    " && ": [" || "],
    " || ": [" && "],
    " += ": [" -= ", " = "],
    " -= ": [" += ", " = "],
    " *= ": [" = "],
    " /= ": [" = "],
    "Math.max(": ["Math.min("],
    "Math.min(": ["Math.max("],
    ".floor(": [".ceil("],
    ".ceil(": [".floor("],
    "true": ["false"],
    "false": ["true"],
}
SYMBOL = re.compile("|".join(re.escape(s) for s in sorted(REPLACEMENTS, key=len, reverse=True)))
CALL = re.compile(r"(?<=[;{}\n])[ \t]*[\w$.]+\([^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\);")
ARGUMENT_PAIR = re.compile(r"(?<=[\w$]\()([\w$.]+), ([\w$.]+)(?=[,)])")
FUNCTION = re.compile(r"function\*? (\w+)|(?:const|let) (\w+) = (?:\([^()]*\)|\w+) =>")
# Code that only places and sizes the shapes of a picture on the page.
DRAWING = re.compile(r"<(?:path|rect|svg|text|circle|g|line)\b|viewBox|\.toFixed\(")


def blank_out_words(text: str) -> str:
    """Returns JavaScript with spaces in place of comments, strings, patterns and templates."""
    text = NOT_CODE.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), text)
    result: list[str] = []
    depth: list[int] = []  # of braces, in each template that is open; -1 in its words
    position = 0
    while position < len(text):
        sign, words = text[position], bool(depth) and depth[-1] < 0
        if sign == "`":
            if words:
                depth.pop()
            else:
                depth.append(-1)
            result.append(" ")
        elif words and text.startswith("${", position):
            depth[-1] = 0
            result.append("  ")
            position += 1
        elif words:
            result.append("\n" if sign == "\n" else " ")
        else:
            if depth and sign in "{}":
                depth[-1] += 1 if sign == "{" else -1
            result.append(sign)
        position += 1
    return "".join(result)


def javascript_mutations(file: str, text: str) -> list[Mutation]:
    """Returns the mistakes that can be planted in a JavaScript file."""
    code = blank_out_words(text)
    changes: list[tuple[int, int, str]] = []
    for match in NUMBER.finditer(code):
        value = float(match[0]) if re.search("[.e]", match[0]) else int(match[0])
        changes += [(match.start(), match.end(), repr(new)) for new in other_numbers(value)]
    for match in SYMBOL.finditer(code):
        changes += [(match.start(), match.end(), new) for new in REPLACEMENTS[match[0]]]
    changes += [(match.start(), match.end(), ";") for match in CALL.finditer(code)]
    for match in ARGUMENT_PAIR.finditer(code):
        if match[1] != match[2]:
            changes.append((match.start(), match.end(), f"{match[2]}, {match[1]}"))
    functions = [(match.start(), match[1] or match[2]) for match in FUNCTION.finditer(code)]

    def plant(start: int, end: int, new: str) -> Callable[[], str]:
        return lambda: text[:start] + new + text[end:]

    mutations = []
    for start, end, new in sorted(changes):
        line = text.count("\n", 0, start) + 1
        if DRAWING.search(text.splitlines()[line - 1]):
            continue
        inside = [name for begin, name in functions if begin <= start]
        function = inside[-1] if inside else ""
        mutations.append(Mutation(file, function, line, plant(start, end, new)))
    return mutations


def find_mutations(file: str, after: str = "") -> list[Mutation]:
    """Returns the mistakes that can be planted in a file, below the line that begins with `after`.

    file: its path from the root of the project. Raises ValueError if no line begins so.
    """
    text = (ROOT / file).read_text()
    find = javascript_mutations if file.endswith(".js") else python_mutations
    mutations = find(file, text)
    if not after:
        return mutations
    numbers = [n for n, line in enumerate(text.splitlines(), 1) if line.startswith(after)]
    if not numbers:
        raise ValueError(f"no line of {file} begins with {after!r}")
    return [mutation for mutation in mutations if mutation.line > numbers[0]]
