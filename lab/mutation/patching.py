"""Puts the code of a file's new text into a process that has imported the old one.

A function that other modules have imported stays the same object, with other code in it. A name of
the module with another value gets that value wherever it was imported.
"""

import gc
import itertools
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

PACKAGES = ("lab", "tfrun")  # of this project
TESTS = f"{os.sep}tests{os.sep}"  # in the path of a test, or of what tests use
ADDRESS = re.compile(r"0x[0-9a-f]+")  # of an object, in its repr()
IMPORT_NAMES = ("__name__", "__package__", "__file__", "__spec__", "__loader__")


def code_objects(text: str, path: str) -> dict[tuple[str, int], types.CodeType]:
    """Returns {(qualified name, its number among those of that name): code} of all functions."""
    objects: dict[tuple[str, int], types.CodeType] = {}
    counts: dict[str, Iterator[int]] = {}

    def visit(code: types.CodeType, prefix: str) -> None:
        for constant in code.co_consts:
            if not isinstance(constant, types.CodeType):
                continue
            name = prefix + constant.co_name
            objects[name, next(counts.setdefault(name, itertools.count()))] = constant
            # A class body has no CO_OPTIMIZED, 1; what stands in a function is one of its locals.
            visit(constant, name + (".<locals>." if constant.co_flags & 1 else "."))

    visit(compile(text, path, "exec"), "")
    return objects


def loaded_functions(files: dict[str, str]) -> dict[str, list[types.FunctionType]]:
    """Returns {file: the functions of it that this process has}; files: {path: file}."""
    functions: dict[str, list[types.FunctionType]] = {file: [] for file in files.values()}
    for value in gc.get_objects():
        if isinstance(value, types.FunctionType) and value.__code__.co_filename in files:
            functions[files[value.__code__.co_filename]].append(value)
    return functions


def run_module(text: str, path: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Returns the namespace of a module after this text has run.

    namespace: that of the same module as it was imported, for its name and where it stands.
    """
    fresh = {name: namespace[name] for name in IMPORT_NAMES if name in namespace}
    exec(compile(text, path, "exec"), fresh)
    return fresh


def are_alike(first: object, second: object) -> bool:
    """Returns whether two values read the same, but for the addresses of objects."""
    return ADDRESS.sub("", repr(first)) == ADDRESS.sub("", repr(second))


def functions_of(namespace: dict[str, Any]) -> dict[str, types.FunctionType]:
    """Returns {qualified name: a function} of a module and its classes."""
    functions = {}
    for value in list(namespace.values()):
        members = vars(value).values() if isinstance(value, type) else ()
        for member in [value, *members]:
            function = getattr(member, "__wrapped__", getattr(member, "__func__", member))
            if isinstance(function, types.FunctionType) and function.__globals__ is namespace:
                functions[function.__qualname__] = function
    return functions


def is_of_project(module: object) -> bool:
    """Returns whether a module is of this project: a package, a test, or what tests use."""
    name = getattr(module, "__name__", "")
    path = getattr(module, "__file__", None) or ""
    return name.split(".")[0] in PACKAGES or TESTS in path


def patch(path: str, before: str, after: str, functions: list[types.FunctionType]) -> None:
    """Puts the code of a file's new text into its functions, and new values to its names.

    before, after: the text that this process has imported, and the new one. functions: those of
    loaded_functions(). Raises whatever the new text raises where it is imported.
    """
    namespaces = {id(function.__globals__): function.__globals__ for function in functions}
    old = {key: run_module(before, path, names) for key, names in namespaces.items()}
    new = {key: run_module(after, path, names) for key, names in namespaces.items()}
    patch_code(path, before, after, functions)
    patch_defaults(functions, {key: functions_of(names) for key, names in new.items()})
    for key, namespace in namespaces.items():
        patch_values(namespace, old[key], new[key])


def patch_code(path: str, before: str, after: str, functions: list[types.FunctionType]) -> None:
    """Puts the new code into each function that both texts have."""
    old_code, new_code = code_objects(before, path), code_objects(after, path)
    keys = {(code, code.co_firstlineno): key for key, code in old_code.items()}
    for function in functions:
        code = function.__code__
        new = new_code.get(keys.get((code, code.co_firstlineno), ("", 0)))
        if new and len(new.co_freevars) == len(code.co_freevars):
            function.__code__ = new


def patch_defaults(
    functions: list[types.FunctionType], fresh: dict[int, dict[str, types.FunctionType]]
) -> None:
    """Gives each function the default arguments that it has in the new text.

    fresh: {id of a namespace: functions_of() the new one in its place}.
    """
    for function in functions:
        new = fresh[id(function.__globals__)].get(function.__qualname__)
        if new:
            function.__defaults__ = new.__defaults__
            function.__kwdefaults__ = new.__kwdefaults__


def patch_values(namespace: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> None:
    """Gives each name that the two texts set to different values its new one.

    namespace: that of the imported module. A module that has imported the name gets it, too.
    """
    modules = [module for module in list(sys.modules.values()) if is_of_project(module)]
    for name in set(old) & set(new) - {"__builtins__"}:
        if isinstance(new[name], type) and isinstance(old[name], type):
            patch_attributes(namespace.get(name), old[name], new[name])
        if are_alike(old[name], new[name]):
            continue
        imported = namespace.get(name)
        for names in [namespace, *(vars(module) for module in modules)]:
            if name in names and names[name] is imported:
                names[name] = new[name]


def patch_attributes(imported: Any, old: type, new: type) -> None:
    """Gives each attribute of a class that is data its new value.

    imported: the class that the process has; old, new: those of the two texts.
    """
    for name, value in vars(new).items():
        is_data = not (name.startswith("__") or callable(value) or hasattr(value, "__get__"))
        if is_data and name in vars(old) and not are_alike(vars(old)[name], value):
            setattr(imported, name, value)
