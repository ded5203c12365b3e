"""Finds the file of each script in tests/equations/, and says what such a file has."""

import functools

import problem
import support
from lab import examples

FOLDER = support.ROOT / "tests" / "equations"
# The kinds of script that test_equations.py compares, those of test_synchronous.py, and those of
# test_ring_steps.py.
INTERLEAVED = ["parameter server, asynchronous", "single process", "train and evaluate"]
TOGETHER = ["parameter server, synchronous"]
RINGS = ["all-reduce", "gossip, synchronous"]
NEEDED = {  # what a file has; with COMPARED_BY only MISTAKES
    # The equation in NumPy: a class as those of tfrun/apps/references.py, or one of them.
    # Derive it from HogWild and write `update`, or from Synchronous or Gossip and write `move`.
    "REFERENCE",
    # {"local_steps": 4}: the flags of the script, and keyword arguments of the reference. Without
    # them a script has problem.command_line({}). None: the script lacks that flag.
    "FLAGS",
    # {"parameters": {"the push adds": [(text of the script, what replaces it)]}}: the comparison
    # that must fail, the name of the mistake, and the mistake. Comparisons are "parameters",
    # "losses", "steps", "staleness", and those of VARIABLES; in a ring also "ranks" and "bytes".
    "MISTAKES",
}
DEFAULTS = {  # what a file may leave out, and what it then has
    # 1 where a single worker pulls and pushes in turn; else two are interleaved.
    "WORKERS": 2,
    # {"velocities": ".*_v"}: what else lasts from push to push, as values() of the reference calls
    # it, and the pattern of the whole names of the script's variables for it. They are compared as
    # well as w. Where a ps has functions: the name of what they save beside w, or a function of
    # what a worker keeps (its update has a `begin`).
    "VARIABLES": {},
    # "pull": what update() calls to pull, where it does not use the w_k that it is given.
    "PULLS": None,
    # What the script trains on: the name of a function in tests/support/problem.py.
    "PROBLEM": "digits",
    # "tests/equations/test_gossip.py::test_...": the test that compares a script that those of
    # its kind cannot, such as one that has another build(). It takes the fields from of(script);
    # without REFERENCE it has a reference of its own.
    "COMPARED_BY": None,
    # The mistakes that the test of whole runs leaves out, because they wait for ever, or because a
    # run needs more than the script.
    "NOT_RUN": [],
    # What the test of a folder that `tfrun new` makes has instead of REFERENCE, FLAGS and the first
    # two MISTAKES: {"reference": a class, "flags": more of them, "mistakes": two names, "test": a
    # file of tfrun/apps/templates, "workers": tasks in a run, "n": workers in the equation}.
    "APP": {},
    # By how many lines at most an asynchronous script differs from the one that its docstring
    # names.
    "DIFFERS": 40,
}


def path_of(script):
    """Returns where the file of a script stands, or would stand."""
    return FOLDER / f"{script.stem}.py"


@functools.cache
def of(script):
    """Returns the module of a script's file. Fails where it has none, or not all that it needs."""
    name, path = (p.relative_to(support.ROOT).as_posix() for p in (script, path_of(script)))
    advice = f"write {path} with REFERENCE, FLAGS and MISTAKES (CONTRIBUTING.md)"
    assert path_of(script).exists(), f"{name} has no reference: {advice}"
    module = examples.load(path_of(script))
    needed = {"MISTAKES"} if hasattr(module, "COMPARED_BY") else NEEDED
    missing = needed - set(vars(module))
    assert not missing, f"the reference of {name} lacks {', '.join(sorted(missing))}: {advice}"
    for field, value in DEFAULTS.items():
        vars(module).setdefault(field, value)
    module.PROBLEM = getattr(problem, module.PROBLEM)
    return module


def variables(script):
    """Returns VARIABLES of a script's file, {} where it has no file."""
    return of(script).VARIABLES if path_of(script).exists() else {}


def pulls(script):
    """Returns PULLS of a script's file, None where it has no file."""
    return of(script).PULLS if path_of(script).exists() else None


def compared(kinds):
    """Returns the scripts of these kinds that have a file, but for those with COMPARED_BY.

    test_references.py fails for a script that has no file.
    """
    there = [path for path in examples.scripts() if examples.kind_of(path) in kinds]
    return [path for path in there if path_of(path).exists() and not of(path).COMPARED_BY]


def asynchronous():
    """Returns the folders of all examples whose workers push to a ps, on the digits."""
    return [
        path.parent.relative_to(support.ROOT).as_posix()
        for path in compared(INTERLEAVED)
        if of(path).WORKERS > 1 and of(path).PROBLEM is problem.digits
    ]


def ids(value):
    """Returns the name of a script without its ending, for the names of tests."""
    return getattr(value, "stem", None)


def mistakes(scripts, core):
    """Returns parameters (script, what fails, changes) of a test: all MISTAKES of these scripts.

    The tier core has the first so many of each comparison of each script.
    """
    groups = {
        (script, fails): {f"{script.stem}: {name}": changes for name, changes in named.items()}
        for script in scripts
        for fails, named in of(script).MISTAKES.items()
    }
    return support.mistakes(groups, core)


def mistaken(scripts):
    """Returns {name: text} of these scripts with each mistake but for those of NOT_RUN."""
    return {
        f"{script.stem}: {name}": text
        for script in scripts
        for name, text in support.changed(script, of(script).MISTAKES).items()
        if name not in of(script).NOT_RUN
    }
