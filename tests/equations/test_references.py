"""Every script that computes updates has a reference, and mistakes that fit its text."""

import ast

import equations
import pytest
import support
from lab import examples

SCRIPTS = examples.scripts()
IMPORTS = {"numpy", "problem", "tfrun.apps.references"}  # what a reference may need


def names(text):
    """Returns the names of the functions that a test module defines."""
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def imported(text):
    """Returns the names of the modules that a module imports."""
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    return modules


@pytest.mark.parametrize("script", SCRIPTS, ids=equations.ids)
def test_a_script_has_a_reference(script):
    """A test compares it: the one of its kind, or the one that its file names."""
    file = equations.of(script)
    if file.COMPARED_BY:
        path, _, test = file.COMPARED_BY.partition("::")
        text = (support.ROOT / path).read_text()
        assert test in names(text), f"there is no test {file.COMPARED_BY}"
        named = script.stem in text or script.parent.name in text
        assert named, f"{file.COMPARED_BY} does not compare {script.name}"
        assert not hasattr(file, "REFERENCE") or "REFERENCE" in text, f"{path} ignores it"
    else:
        kind = examples.kind_of(script)
        advice = "name the test that does it in COMPARED_BY"
        kinds = equations.INTERLEAVED + equations.TOGETHER + equations.RINGS
        assert kind in kinds, f"no test compares the reference of a {kind}: {advice}"
        assert file.MISTAKES or file.WORKERS == 1, (
            f"{script.name} has no MISTAKES that its test must catch"
        )


@pytest.mark.parametrize("script", SCRIPTS, ids=equations.ids)
def test_a_reference_imports_nothing_of_the_script(script):
    modules = imported(equations.path_of(script).read_text())
    assert modules <= IMPORTS, f"it imports {', '.join(modules - IMPORTS)}"


@pytest.mark.plants_mistakes
@pytest.mark.parametrize("script", SCRIPTS, ids=equations.ids)
def test_its_mistakes_fit_the_script(script):
    """Each text stands in it once; so a script that was changed fails here, in the core tier."""
    for named in equations.of(script).MISTAKES.values():
        for name, changes in named.items():
            assert examples.replaced(script, changes) != script.read_text(), name


# Their trainings are not those in which their mistakes are caught; they need no ps.
ALONE = ["Model-Parallelism"]
ALONE += [f"Further-Algorithms/{name}" for name in ("Gossip-SGD", "Sharded-Training")]
TO_ALL = "Further-Algorithms/Gradients-To-All"  # without a ps, and with one


@pytest.mark.plants_mistakes
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "those, ps",
    [
        (equations.compared(equations.INTERLEAVED), 1),
        (equations.compared(equations.TOGETHER), 1),
        (equations.compared(equations.RINGS), 0),
        *(([examples.main_script(name)], 0) for name in [*ALONE, TO_ALL]),
        ([examples.main_script(TO_ALL)], 1),
    ],
)
def test_mistaken_scripts_run(those, ps, tmp_path):
    """A mistake counts only if nothing but a number gives it away: `--steps 20` ends well."""
    support.run_well(equations.mistaken(those), tmp_path, ps)


def test_a_file_has_a_script():
    """No two scripts have the same name, and no file is left of one that has gone."""
    stems = sorted(script.stem for script in SCRIPTS)
    files = [path.stem for path in sorted(equations.FOLDER.glob("[!_]*.py"))]
    assert stems == [name for name in files if not name.startswith("test_")]


def test_a_script_without_a_reference_is_found():
    script = support.ROOT / "No Example" / "no example.py"  # no example may have such a name
    words = "No Example/no example.py has no reference: write tests/equations/no example.py"
    with pytest.raises(AssertionError, match=words):
        equations.of(script)
