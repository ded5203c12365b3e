"""Gives answers to exercises of the course to their checks, in one process for many.

python answers.py < EXERCISES    prints a line of JSON for each answer
"""

import contextlib
import copy
import dis
import functools
import io
import json
import pathlib
import signal
import sys
import types

import numpy as np

SECONDS = 60  # the longest that a check may take
VALUES = [None, 0, 1, -1, 2.5, np.nan, np.inf, True, False, "", "right", (), [], {}, (0, 0), "ABC"]
ERRORS = [ValueError, RuntimeError, KeyError, TypeError, AssertionError, IndexError, StopIteration]
ERRORS += [SystemExit, OSError, TimeoutError, ZeroDivisionError, AttributeError]
OF_TENSORFLOW = "FailedPreconditionError", "OutOfRangeError", "UnavailableError", "NotFoundError"


def names(code):
    """Returns the global names that a cell sets, and those that it or its functions read."""
    stores, loads, inside = set(), set(), [code]
    while inside:
        one = inside.pop()
        for step in dis.get_instructions(one):
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                loads.add(step.argval)
            elif one is code and step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                stores.add(step.argval)
        inside += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    return stores, loads


def needed(cells, answers, writes=None):
    """Returns those cells of a notebook that define, directly or not, what answers read."""
    wanted, kept = set(), []
    for text in answers:
        stores, loads = names(compile(text, "answer", "exec"))
        wanted |= loads - stores
    for i, text in reversed(list(enumerate(cells))):
        if text.startswith("%%writefile"):
            kept.insert(0, text)
            continue
        stores, loads = names(compile(text, "cell", "exec"))
        by_text = writes is not None and writes in text
        if stores & wanted or by_text or i in (0, len(cells) - 1):  # the last one is the check
            kept.insert(0, text)
            wanted |= loads
    return kept


def run(cells):
    """Returns the names that the cells leave."""
    space = {"__name__": "__main__"}
    for text in cells:
        if text.startswith("%%writefile"):
            first, _, rest = text.partition("\n")
            pathlib.Path(first.split()[1]).write_text(rest)
        else:
            exec(compile(text, "cell", "exec"), space)
    return space


class Late(BaseException):
    """A check has not ended in time."""


def late(*_):
    raise Late


def verdict(check, answer, seconds=SECONDS):
    """Returns what a check returns, and what it prints. answer: a function that makes it."""
    output = io.StringIO()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.redirect_stdout(output):
            result = check(answer())
    except Late:
        result = "late"
    except BaseException as error:
        result = f"raised {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return result, output.getvalue()


def number(value):
    return isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_))


def spoiled(value):
    """Yields what a value is not: other numbers, parts that are missing or wrong."""
    if isinstance(value, (bool, np.bool_)):
        yield not value
        return
    yield None
    if number(value):
        yield from (np.nan, value + max(1, abs(value)), -value if value else 5)
    elif isinstance(value, str):
        yield ""
    elif isinstance(value, dict):
        for key in value:
            yield {other: value[other] for other in value if other != key}
            for one in spoiled(value[key]):
                yield {**value, key: one}
    elif isinstance(value, (set, frozenset)):
        yield from (value - {one} for one in value)
        yield value | {"D", 3}
    elif isinstance(value, (list, tuple)):
        yield value[:-1]
        for i, part in enumerate(value):
            for one in spoiled(part):
                yield type(value)([*value[:i], one, *value[i + 1 :]])
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield value[:-1]
        for index in {(0,) * value.ndim, tuple(size - 1 for size in value.shape)}:
            for more in (1, np.nan) if value.dtype.kind == "f" else (1,):
                other = value.copy()
                other[index] += more
                yield other


def alike(value):
    """Yields the same value in other types."""

    def deep(of_number, of_list=None):
        def changed(one):
            if isinstance(one, (bool, np.bool_)):
                return np.bool_(one)
            if number(one):
                return of_number(one)
            if isinstance(one, dict):
                return {key: changed(part) for key, part in one.items()}
            if isinstance(one, (list, tuple)):
                return (of_list or type(one))([changed(part) for part in one])
            if isinstance(one, np.ndarray) and one.dtype.kind == "f":
                return one.astype(np.float32 if of_number is np.float32 else np.float64)
            return one

        return changed(value)

    yield deep(np.float64, list)
    yield deep(np.float32, tuple)
    yield deep(float)
    yield deep(lambda one: np.int64(one) if one == int(one) else one)
    yield deep(np.asarray, list)
    if isinstance(value, (list, tuple)) and all(map(number, value)):
        yield np.array(value)
    if isinstance(value, (set, frozenset)):
        yield from (frozenset(value), sorted(value))
    if isinstance(value, np.ndarray) and value.ndim == 1:
        yield from (value.tolist(), tuple(value))


def raises(error):
    def answer(*_, **__):
        raise error

    return answer


def as_is(value):
    return lambda *_, **__: value


def changed_at(solution, call, change):
    """Returns the solution with the result of one call changed."""
    calls = []

    def answer(*args, **kwargs):
        value = solution(*args, **kwargs)
        calls.append(None)
        return change(value) if call in (None, len(calls) - 1) else value

    return answer


def made_with(base, method, answer):
    """Returns the class with one method replaced."""
    return type("answer", (base,), {method: answer})


def errors(space):
    exceptions = [kind("of the answer") for kind in ERRORS]
    exceptions.append(NotImplementedError("Cannot convert a symbolic tf.Tensor to a numpy array"))
    tf = space["course"].tf
    return exceptions + [getattr(tf.errors, kind)(None, None, "of it") for kind in OF_TENSORFLOW]


def generic(space, check, solution, calls):
    """Yields (what, whether it is right, an answer). calls: how many results must be looked at."""
    if not callable(solution):
        for value in [*VALUES, *spoiled(solution)]:
            if value is None or type(value) is not type(solution) or value != solution:
                yield f"{value!r}", False, value
        for value in alike(solution):
            yield f"{value!r}", True, value
        return
    for value in VALUES:
        yield f"always {value!r}", False, as_is(value)
    yield "nothing but ...", False, as_is(...)
    for error in errors(space):
        yield f"raises {error!r}", False, raises(error)
    if isinstance(solution, type):
        for method in [name for name, what in vars(solution).items() if callable(what)]:
            yield method + " does nothing", False, made_with(solution, method, as_is(None))
            for error in errors(space):
                yield (
                    method + f" raises {error!r}",
                    False,
                    made_with(solution, method, raises(error)),
                )
        return
    yield "the first argument", False, lambda *args, **_: args[0] if args else None
    results = []

    def recorded(*args, **kwargs):
        results.append(solution(*args, **kwargs))
        return copy.copy(results[-1])

    verdict(check, lambda: recorded)
    plain = [
        isinstance(one, (int, float, tuple, list, dict, np.ndarray, np.generic, bool))
        for one in results
    ]
    if not all(plain):
        for k, value in enumerate(results):
            yield f"always that of call {k}", False, as_is(value)
        return
    for k, value in list(enumerate(results))[:calls]:
        yield f"always that of call {k}: {value!r}", False, as_is(value)
        for i in range(len(list(spoiled(value)))):
            change = changed_at(solution, k, lambda one, i=i: list(spoiled(one))[i])
            yield f"call {k} gives {list(spoiled(value))[i]!r} for {value!r}", False, change
    for i in range(min((len(list(alike(value))) for value in results), default=0)):
        change = changed_at(solution, None, lambda one, i=i: list(alike(one))[i])
        yield f"the same as {list(alike(results[0]))[i]!r}", True, change


def judge(exercise):
    """Gives an exercise's answers to its check, and prints what it makes of each."""
    number, texts = exercise["number"], [code for _, _, code in exercise["answers"]]
    with contextlib.redirect_stdout(io.StringIO()):
        space = run(needed(exercise["cells"], texts, exercise["writes"]))
    check = space["check_" + number]

    def executed(code):
        own = dict(space)
        exec(compile(code, "answer", "exec"), own)
        return own["answer_" + number]

    def tell(what, right, make, seconds=SECONDS):
        row = [exercise["name"], number, what, right, *verdict(check, make, seconds)]
        print(json.dumps(row), flush=True)

    for what, right, code in exercise["answers"]:
        endless = right is False and "while " in code  # it may be, with a part left out
        tell(what, right, functools.partial(executed, code), 4 if endless else SECONDS)
    with contextlib.redirect_stdout(io.StringIO()):
        solution = executed(texts[0])
    for what, right, answer in generic(space, check, solution, exercise["calls"]):
        tell(what, right, lambda answer=answer: answer)
    space["course"].end()


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, late)
    sys.path.insert(0, "")  # the notebook's folder, as in a kernel
    for one in json.load(sys.stdin):
        judge(one)
