"""Grids: combinations of values, their names, and what each of several runs at once may use."""

import itertools

SCALARS = (str, int, float, bool)  # what a value of a grid may be


def product(grid):
    """The combinations of {name: [values]}, each {name: value}; one empty one without a name."""
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def text(value):
    """A value as on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def name_of(point):
    """A name for a combination, fit for a folder: learning-rate=0.1,seed=0."""
    made = ",".join("%s=%s" % (name, text(value)) for name, value in point.items())
    return "".join(c if c.isascii() and c.isalnum() or c in "=,.-_+" else "_" for c in made)[:120]


def named(points):
    """{name: combination}; no two have the same name, so each has a folder of its own."""
    made = {}
    for point in points:
        name = name_of(point)
        while name in made:  # names that differ in what no folder's name may have
            name += "+"
        made[name] = point
    return made


def deal(gpus, n):
    """The GPUs of each of n runs at once: [[GPU, ...]]. Runs share GPUs where there are too few."""
    return [gpus[i::n] or gpus[i % len(gpus) :][:1] if gpus else [] for i in range(n)]
