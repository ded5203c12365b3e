"""The regions that scripts share are the same text, and scripts have one order."""

import ast
import itertools
import re

import equations
import pytest
import support
from lab import examples, regions

SCRIPTS = examples.scripts()
ALGORITHM_LINES = 60
# The regions below the divider, in their order; no script has all of them.
BELOW = [
    *("rounds", "clocks", "together"),
    "flags",
    *("tasks", "transport", "parts", "serve", "checkpoint", "call"),
    *("network", "rows", "word_pairs", "facts", "train"),
    *("evaluator", "train_until_stopped"),
    *("log", "one_process"),
    *("cluster", "servers", "workers", "devices", "peers"),
    *("all_reduce", "ring", "connections", "neighbours", "pairs", "group"),
    *("variables", "vector", "tensors", "buckets", "flat"),
    *("model", "layers", "skip_gram", "places"),
    *("per_worker", "schedule"),
    "metrics",
    "prepare",
    *("session", "stoppable_session", "local_session", "monitored_session"),
    *("strategy", "calls", "one_client"),
    *("blocks", "shards"),
]
SESSIONS = "From-TensorFlow-1/HogWild-Sessions"
KINDS = {
    *("single process", "parameter server, asynchronous", "parameter server, synchronous"),
    *("all-reduce", "gossip, synchronous", "gossip, asynchronous", "model parallel"),
    *("coordinator", "driver", "train and evaluate"),
}


def name(path):
    return path.relative_to(support.ROOT).as_posix()


def test_all_copies_are_the_same():
    found, copies = regions.problems()
    assert not found, "\n".join(found)
    assert copies >= 20
    run = {examples.script_of(path) for path in support.launchers()}
    kinds = {path: examples.kind_of(path) for path in run}
    assert set(SCRIPTS) >= {path for path, kind in kinds.items() if kind != "driver"}


def test_a_difference_is_found(tmp_path):
    """In a copy of two scripts: a changed word, a wrong marker, one function in two scripts."""
    other = "From-TensorFlow-1/Distributed-Setup-Sessions"
    for folder in (SESSIONS, other):
        (tmp_path / folder).mkdir(parents=True)
        script = examples.main_script(folder)
        (tmp_path / folder / script.name).write_text(script.read_text())
        (tmp_path / folder / "run.sh").touch()
    support.git(tmp_path, "init", "-q")
    support.git(tmp_path, "add", ".")
    assert regions.problems(tmp_path)[0] == []
    victim = tmp_path / SESSIONS / "hogwild_sessions.py"
    neighbour = tmp_path / other / "distributed_setup_sessions.py"
    whole = victim.read_text()
    for old, new in [
        ("Times are seconds since 1970", "Times are minutes since 1970"),
        ("# endregion: problem\n", ""),
        ("# region: vector\n", ""),
        ("    return flags\n", "    return flags\n\n\n# endregion: flags\n"),
        ("\n\nSTEPS, ", "\n\ndef helper():\n    pass\n\n\nSTEPS, "),
    ]:
        for script in [victim, neighbour] if "helper" in new else [victim]:
            script.write_text(examples.replaced(script, [(old, new)]))
        assert regions.problems(tmp_path)[0], f"not found: {new!r}"
        victim.write_text(whole)


# What stands above the divider, in this order.
SESSION_LANDMARKS = ["imports", "algorithm", "defaults", "load_data", "build", "main"]
LANDMARKS = ["imports", "server", "update", "defaults", "load_data", "main"]


def test_every_script_says_its_kind():
    for launcher in support.launchers():
        assert examples.kind_of(examples.script_of(launcher)) in KINDS, launcher


def order_faults(text):
    """Returns what is wrong with the order of a script, a sentence each."""
    lines = text.splitlines()
    dividers = [number for number, line in enumerate(lines) if line.startswith(examples.DIVIDER)]
    if len(dividers) != 1:
        return [f"it has {len(dividers)} dividers"]
    above = ast.parse("\n".join(lines[: dividers[0]]))
    functions = [node.name for node in above.body if isinstance(node, ast.FunctionDef)]
    marks = []
    for node in above.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            marks.append("imports")
        elif isinstance(node, ast.FunctionDef) and node.name in SESSION_LANDMARKS + LANDMARKS:
            marks.append(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("(STEPS, "):
            marks.append("defaults")
    faults = []
    if ast.get_docstring(above) is None:
        faults.append("it has no docstring")
    marks = [mark for mark, _ in itertools.groupby(marks)]
    due = SESSION_LANDMARKS if "algorithm" in functions else LANDMARKS
    if marks not in (due, [mark for mark in due if mark != "server"]):
        faults.append("above the divider stand {}".format(", ".join(marks)))
    if functions[:1] != [mark for mark in due if mark in examples.ALGORITHM and mark in marks][:1]:
        faults.append(f"{functions[:1]} comes before the algorithm")
    if functions[-1:] != ["main"] and functions[-2:] != ["main", "train"]:
        faults.append(f"{functions[-2:]} come last, not main, or main and a train of its own")

    below = "\n".join(lines[dividers[0] :])
    names = [name for name, _ in regions.split(below) if name]
    if names != [name for name in BELOW if name in names]:
        faults.append("below the divider stand {}".format(", ".join(names)))
    outside = [line for name, part in regions.split(below) if not name for line in part]
    outside = [line for line in outside if line and not line.startswith("#")]
    if outside != ['if __name__ == "__main__":', "    main()"]:
        faults.append(f"below the divider, in no region: {outside}")
    return faults


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_the_example_stands_above_the_divider(script):
    """Tests the order: algorithm, defaults, problem, build, main; then regions; then the guard."""
    assert not order_faults(script.read_text())


@pytest.mark.parametrize(
    "old, new",
    [
        ("# From here to the end: the same text", "# Below"),
        ("\n\ndef algorithm(", "\n\ndef helper():\n    pass\n\n\ndef algorithm("),
        ("# endregion: main\n", "# endregion: main\n\n\ndef helper():\n    pass\n"),
        ("\n# region: flags\n", "\ndef helper():\n    pass\n\n\n# region: flags\n"),
        ("STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 32, 0.1", "MORE = 1"),
        ("\nimport argparse\n", "\nWAIT = 1\n\n\ndef main():\n    pass\n\n\nimport argparse\n"),
    ],
    ids=[
        "no divider",
        "helper first",
        "helper after main",
        "no region",
        "no defaults",
        "main first",
    ],
)
def test_another_order_is_found(old, new):
    script = examples.main_script(SESSIONS)
    assert not order_faults(script.read_text())
    assert order_faults(examples.replaced(script, [(old, new)]))


def test_swapped_regions_are_found():
    """In HogWild-Sessions' text: flags and cluster, one in the place of the other."""
    script = examples.main_script(SESSIONS)
    whole, text = regions.regions(script), script.read_text()
    text = text.replace(whole["flags"], "HERE").replace(whole["cluster"], whole["flags"])
    assert order_faults(text.replace("HERE", whole["cluster"]))


def algorithm_lines(text):
    """Returns how many lines the functions have that are a script's algorithm."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    algorithm = [function for function in functions if function.name in examples.ALGORITHM]
    assert algorithm, "no function is the algorithm"
    return sum(function.end_lineno - function.lineno + 1 for function in algorithm)


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_an_algorithm_is_short(script):
    assert algorithm_lines(script.read_text()) <= ALGORITHM_LINES


def test_a_longer_algorithm_is_found():
    """Catches a count that counts nothing."""
    text = examples.main_script(SESSIONS).read_text()
    line = "    loss, g = gradient("
    longer = examples.replaced(text, [(line, "    x = 0\n" * ALGORITHM_LINES + line)])
    assert algorithm_lines(longer) == algorithm_lines(text) + ALGORITHM_LINES


KIND = "parameter server, asynchronous"


def neighbours():
    """Returns the folder of each asynchronous example, and the one that it says it differs from."""
    pairs = []
    for script in SCRIPTS:
        folder = script.parent.relative_to(support.ROOT).as_posix()
        other = re.search(r"(?m)^Differs from: +([\w/-]+): ", script.read_text())
        if other and script == examples.main_script(folder):
            there = examples.session_form(other[1]) if examples.has_sessions(script) else other[1]
            neighbour = examples.main_script(there)
            same_kind = examples.kind_of(script) == KIND == examples.kind_of(neighbour)
            if same_kind and examples.SESSION_FORM.get(other[1]) != folder:  # its other form
                pairs.append((folder, there))
    return pairs


@pytest.mark.parametrize("folder, neighbour", neighbours())
def test_neighbours_differ_little(folder, neighbour):
    """Only so many lines come or go between two neighbours, their regions folded."""
    script = examples.main_script(folder)
    lines = regions.difference(examples.main_script(neighbour), script)
    changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert 2 <= len(changed) <= equations.of(script).DIFFERS, "\n".join(changed)


def test_sessions_stand_in_one_folder():
    """Catches a script that brings TensorFlow 1 back."""
    found = []
    for path in examples.tracked("*.py"):
        name = path.relative_to(support.ROOT).as_posix()
        if not name.startswith(("From-TensorFlow-1/", "Basics-Tutorial/", "tests/")):
            if re.search(r"^\s*(import|from) tensorflow\.compat", path.read_text(), re.MULTILINE):
                found.append(name)
    assert not found
