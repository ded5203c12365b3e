"""The regions that scripts share are the same text, and scripts stay short."""

import ast

import pytest
import regions
import support

SCRIPTS = regions.scripts()
# Lines of a whole script, by its name or by its kind: HogWild, which has everything, and 18 more.
LIMITS = {
    "aeasgd.py": 645,  # what a worker keeps between two pushes
    "aeamsgd.py": 655,
    "non_distributed_setup.py": 370,
    "sparse_embeddings.py": 610,
    "collective_allreduce.py": 490,
    "multiple_gpus_single_machine.py": 400,
    "multiple_gpus_single_machine_mirrored.py": 480,
    "horovod_ringallreduce.py": 440,
    "horovod_embeddings.py": 440,
    "ring_allreduce.py": 630,
    "model_parallelism.py": 560,
    "parameter server, asynchronous": 630,
    "parameter server, synchronous": 710,
    "coordinator": 620,
    "train and evaluate": 700,
}
COLUMNS, ALGORITHM, OUTSIDE = 100, 60, 120  # of regions
KINDS = {
    *("single process", "parameter server, asynchronous", "parameter server, synchronous"),
    *("all-reduce", "model parallel", "coordinator", "driver", "train and evaluate"),
}


def name(path):
    return path.relative_to(support.ROOT).as_posix()


def test_all_copies_are_the_same():
    found, copies = regions.problems()
    assert not found, "\n".join(found)
    assert copies >= 20
    run = {support.script_of(path) for path in support.launchers()}
    kinds = {path: support.kind_of(path) for path in run}
    assert set(SCRIPTS) >= {path for path, kind in kinds.items() if kind != "driver"}


def test_a_difference_is_found(tmp_path):
    """In a copy of two scripts: a changed word, a lost marker, one function in two scripts."""
    for folder in ("HogWild", "DOWNPOUR"):
        (tmp_path / folder).mkdir()
        script = support.main_script(folder)
        (tmp_path / folder / script.name).write_text(script.read_text())
        (tmp_path / folder / "run.sh").touch()
    support.git(tmp_path, "init", "-q")
    support.git(tmp_path, "add", ".")
    assert regions.problems(tmp_path)[0] == []
    victim = tmp_path / "HogWild" / "hogwild.py"
    neighbour = tmp_path / "DOWNPOUR" / "downpour.py"
    whole = victim.read_text()
    for old, new in [
        ("with times in seconds", "with times in minutes"),
        ("# endregion: flags\n", ""),
        ("\n\ndef add_flags", "\n\ndef helper():\n    pass\n\n\ndef add_flags"),
    ]:
        for script in [victim, neighbour] if "helper" in new else [victim]:
            script.write_text(support.replaced(script, [(old, new)]))
        assert regions.problems(tmp_path)[0], "not found: %r" % new
        victim.write_text(whole)


def test_every_script_says_its_kind():
    for launcher in support.launchers():
        assert support.kind_of(support.script_of(launcher)) in KINDS, launcher


def faults(script):
    """What is too long in a script, a text each."""
    text = script.read_text()
    lines, functions = text.splitlines(), ast.parse(text).body
    (algorithm,) = [node for node in functions if getattr(node, "name", "") == "algorithm"]
    sizes = {  # what: how much there is, how much there may be
        "lines": (len(lines), LIMITS.get(script.name) or LIMITS[support.kind_of(script)]),
        "columns": (max(map(len, lines)), COLUMNS),
        "lines of algorithm": (algorithm.end_lineno - algorithm.lineno + 1, ALGORITHM),
        "lines outside of regions": (len(regions.folded(script)), OUTSIDE),
    }
    return ["%d %s of %d" % (n, what, most) for what, (n, most) in sizes.items() if n > most]


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_a_script_is_short(script):
    assert not faults(script), faults(script)


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_the_algorithm_stands_first(script):
    """Before it there are but imports, constants and whole regions."""
    text = script.read_text()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    first = [node for node in functions if not node.name.startswith("_")][0]
    assert first.name == "algorithm", "%s comes before it" % first.name


@pytest.mark.parametrize(
    "a, b, most",
    [
        ("Distributed-Setup", "HogWild", 40),
        ("HogWild", "DOWNPOUR-Easy", 40),
        ("DOWNPOUR-Easy", "DOWNPOUR", 40),
        ("DOWNPOUR-Easy", "DynSGD", 40),
        ("AEASGD", "AEAMSGD", 40),
        ("DOWNPOUR-Easy", "ADAG", 5),
    ],
)
def test_neighbours_differ_little(a, b, most):
    """Only so many lines come or go between two neighbours, their regions folded."""
    lines = regions.difference(support.main_script(a), support.main_script(b))
    changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert 2 <= len(changed) <= most, "\n".join(changed)
