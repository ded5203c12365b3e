"""Parameters of tests: which examples, and which planted mistakes, each tier has."""

import pathlib

import pytest
from lab.examples import ROOT, replaced

from support.scripts import BUILD_SECONDS, needs_build

# Every second further algorithm: each has a near relative, with the same lower half, in `all`.
BY_NIGHT = ["Async-Local-SGD", "Compressed-AllReduce", "Delay-Compensation", "DiLoCo"]


def beyond_core(path):
    """Returns the mark of a script's tests that core leaves out."""
    return pytest.mark.nightly if path.parent.name in BY_NIGHT else pytest.mark.long


def core_first(paths):
    """Returns parameters of a test: the tier core has HogWild's only; a build may take its time."""
    params = []
    for path in paths:
        marks = [] if path.parent.name == "HogWild" else [beyond_core(path)]
        if needs_build(path):
            marks.append(pytest.mark.timeout(BUILD_SECONDS + 120))
        params.append(pytest.param(path, id=path.relative_to(ROOT).as_posix(), marks=marks))
    return params


def some_in_core(values, core):
    """Returns parameters of a test, of which the tier core has those in `core` only."""
    return [
        pytest.param(value, marks=[] if getattr(value, "stem", value) in core else pytest.mark.long)
        for value in values
    ]


def mistakes(groups, core):
    """Parameters (case, what fails, changes) of a test, of {(case, what fails): {name: changes}}.

    The tier core has the first so many mistakes of each group. All have the mark plants_mistakes.
    """

    def marks(group, number):
        later = beyond_core(group[0]) if isinstance(group[0], pathlib.Path) else pytest.mark.long
        return [pytest.mark.plants_mistakes, *([later] if number >= core else [])]

    return [
        pytest.param(*group, changes, id=name, marks=marks(group, number))
        for group, named in groups.items()
        for number, (name, changes) in enumerate(named.items())
    ]


def changed(script, groups):
    """Returns {name of a mistake: the script's text with it} of such groups."""
    return {
        name: replaced(script, changes)
        for named in groups.values()
        for name, changes in named.items()
    }
