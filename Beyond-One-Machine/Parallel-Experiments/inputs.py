"""What launch and its command line refuse, each with one line that says why."""

import argparse
import functools
import importlib.util
import inspect
import json
import pathlib
import sys
import tempfile

from tfrun.launch import grid
from tfrun.runs import run_directory

COLUMNS = ["run", "status", "seconds", "error", "logdir"]  # no parameter or metric has these names


class BadInput(ValueError):
    """What is wrong with the arguments of launch, in one line."""


def points_of(args_dict):
    """Returns the combinations that a dict of lists, a list of dicts or one dict means.

    Raises BadInput where there is none, or one that is no mapping of names to plain values.
    """
    if isinstance(args_dict, dict):
        for name, values in args_dict.items():
            if not isinstance(values, (list, tuple)) or not values:
                raise BadInput(f"{name} must be a list with a value, is {values!r}")
        points = grid.product(args_dict) if args_dict else []
    else:
        points = args_dict if isinstance(args_dict, (list, tuple)) else [args_dict]
    if not points:
        raise BadInput("the grid is empty")
    for point in points:
        if not isinstance(point, dict) or not point:
            raise BadInput(f"a combination must be a mapping {{name: value}}, is {point!r}")
        for name, value in point.items():
            if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
                raise BadInput(f"{name} must be a number, a text, true or false, is {value!r}")
            if name in COLUMNS:
                raise BadInput(f"no parameter may be named {name}")
    return points


def checked(map_fun, args_dict, logdir, direction, jobs, threads):
    """({name: combination}, the folder, the function under its partials). Raises BadInput."""
    points = points_of(args_dict)
    for point in points:
        signature = inspect.signature(map_fun)
        try:
            if "logdir" in signature.parameters:
                signature.bind(**point, logdir="")
            else:
                signature.bind(**point)
        except TypeError as error:
            raise BadInput(f"the function refuses {grid.name_of(point)}: {error}") from None
    if len({json.dumps(point, sort_keys=True) for point in points}) < len(points):
        raise BadInput("a combination is named twice")
    if direction not in ("max", "min"):
        raise BadInput(f"direction must be max or min, is {direction!r}")
    for name, value in (("jobs", jobs), ("threads", threads)):
        if value is not None and (type(value) is not int or value < 1):
            raise BadInput(f"{name} must be a whole number above 0, is {value!r}")
    try:
        folder = logdir or run_directory.RunDirectory("Parallel-Experiments").path
        folder = pathlib.Path(folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BadInput(f"the logdir cannot be written: {error}") from None
    while isinstance(map_fun, functools.partial):
        map_fun = map_fun.func
    return grid.named(points), folder, map_fun


def check_metric(results, metric):
    """Raises BadInput where a run that is done lacks the metric."""
    for result in results:
        if result["status"] == "done" and metric not in result["metrics"]:
            there = ", ".join(result["metrics"]) or "none"
            raise BadInput(f"there is no metric {metric!r}; the function returns {there}")


def function_of(text):
    """The function that FILE.py:NAME means."""
    path, _, name = text.rpartition(":")
    path = pathlib.Path(path)
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        if not callable(getattr(module, name)):
            raise TypeError("it cannot be called")
        return getattr(module, name)
    except Exception as error:  # whatever the file raises
        raise BadInput(f"{text} is no FILE.py:NAME of a function: {error}") from None


def values_of(text):
    """("name", [values]) of NAME=V1,V2: numbers, true and false as in JSON, else texts."""

    def value(word):
        try:
            return json.loads(word)
        except ValueError:
            return word

    name, sign, values = text.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE,VALUE")
    return name, [value(word) for word in values.split(",")]
