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
    "protocol",
    *("rounds", "clocks", "together"),
    "flags",
    *("tasks", "transport", "parts", "serve", "checkpoint", "call"),
    *("network", "batches", "leases", "rows", "word_pairs", "facts", "train"),
    *("evaluator", "train_until_stopped"),
    *("log", "one_process"),
    *("cluster", "servers", "workers", "devices", "peers"),
    *("all_reduce", "ring", "connections", "neighbours", "pairs", "group"),
    *("variables", "vector", "tensors", "buckets", "flat"),
    *("model", "layers", "skip_gram", "places"),
    *("per_worker", "schedule"),
    *("row", "metrics"),
    "prepare",
    *("session", "stoppable_session", "local_session", "monitored_session"),
    *("strategy", "calls", "one_client"),
    *("blocks", "shards"),
]
SESSIONS = "From-TensorFlow-1/HogWild-Sessions"
KINDS = {
    "single process",
    "parameter server, asynchronous",
    "parameter server, synchronous",
    "all-reduce",
    "gossip, synchronous",
    "gossip, asynchronous",
    "model parallel",
    "coordinator",
    "driver",
    "train and evaluate",
}


def name(path):
    return path.relative_to(support.ROOT).as_posix()


def test_all_copies_are_the_same():
    faults, copies = regions.find_faults()
    faults += regions.find_wrong_marks(SCRIPTS)
    assert not faults, "\n".join(faults)
    assert copies >= 20
    run = {examples.script_of(path) for path in support.launchers()}
    kinds = {path: examples.kind_of(path) for path in run}
    assert set(SCRIPTS) >= {path for path, kind in kinds.items() if kind != "driver"}


def problems_of(root, **texts):
    """Returns what regions.find_faults finds in a clone with these scripts, one in each folder."""
    for name, text in texts.items():
        folder = root / name
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(f'"""By hand.\n\nKind: single process\n"""\n{text}')
        (folder / "run.sh").touch()
    examples.git("init", "-q", folder=root)
    examples.git("add", ".", folder=root)
    return regions.find_faults(root)


REGION = """
# region: problem
def rows():
    return {}


# endregion: problem
"""


def test_a_difference_is_found(tmp_path):
    """In two scripts of a few lines. Catches another word in one of them."""
    assert problems_of(tmp_path / "same", a=REGION.format(3), b=REGION.format(3)) == ([], 2)
    faults, copies = problems_of(tmp_path / "other", a=REGION.format(3), b=REGION.format(4))
    assert copies == 2 and len(faults) == 1
    assert "-    return 3\n+    return 4" in faults[0]


def test_a_function_of_two_scripts_is_found(tmp_path):
    """Catches one that stands in two scripts but in no region; an algorithm may stand in many."""
    text = "\n\ndef {}():\n    pass\n"
    assert problems_of(tmp_path / "own", a=text.format("main"), b=text.format("main")) == ([], 0)
    faults, _ = problems_of(tmp_path / "two", a=text.format("helper"), b=text.format("helper"))
    assert faults == ["helper is in 2 scripts, but in no region"]


@pytest.mark.parametrize(
    "text, fault",
    [
        ("# region: problem\nx = 1\n", "the region problem has no end"),
        ("x = 1\n# endregion: problem\n", "endregion: problem, inside no region"),
        ("# region: a\n# region: b\n# endregion: b\n", "region: b, inside a"),
        ("# region: a\n# endregion: b\n", "endregion: b, inside a"),
        ("# region problem\nx = 1\n", "is not a marker, but looks like one"),
        (REGION + REGION, "the region problem stands twice"),
    ],
    ids=["no end", "no begin", "one inside another", "another end", "no colon", "twice"],
)
def test_a_wrong_marker_is_found(text, fault, tmp_path):
    faults, _ = problems_of(tmp_path, a=text)
    assert len(faults) == 1 and fault in faults[0]


OWN = f"x = 1\n{examples.DIVIDER}\n\n\n# region: leases{{}}\ndef lease():\n    pass\n"


def test_a_region_of_one_script_says_so(tmp_path):
    """Catches a text of one example below the divider, which says that all have the same text."""
    mark = " -- of this example only"
    paths = [tmp_path / f"{name}.py" for name in ("one", "other")]

    def faults(*texts):
        for path, text in zip(paths, texts):
            path.write_text(text)
        return [fault.partition(": ")[2] for fault in regions.find_wrong_marks(paths)]

    other = OWN.replace("leases{}", f"other{mark}")
    assert faults(OWN.format(mark), other) == []
    (fault,) = faults(OWN.format(""), other)
    assert fault.endswith("write `-- of this example only` behind # region: leases")
    both = faults(OWN.format(mark), OWN.format(mark))
    assert both == [f"other scripts have this region, too: # region: leases{mark}"] * 2


@pytest.mark.parametrize("region", ["flat", "metrics", "peers"])
def test_what_two_families_define_alike(region):
    """Catches a change of a function or method that reaches one of the two families only."""
    texts = regions.regions(examples.main_script("HogWild"))
    texts |= regions.regions(examples.main_script("Ring-AllReduce"))
    assert regions.find_unlike_twins(texts) == []
    changes = {
        "flat": ("tf.reshape(part, shape)", "tf.reshape(part, [-1])"),
        "metrics": ("not np.isfinite(row.loss)", "np.isnan(row.loss)"),
        "peers": ("120))", "12))"),
    }
    old, new = changes[region]
    assert texts[region].count(old) == 1
    faults = regions.find_unlike_twins(texts | {region: texts[region].replace(old, new)})
    names = {"flat": "unpack", "metrics": "Metrics.push", "peers": "REQUIRED_WAIT_SECONDS"}
    assert [fault.split()[0] for fault in faults] == [names[region]]


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


# The parts of a script in their order, each as short as it can be.
PARTS = {
    "docstring": '"""A script by hand."""',
    "imports": "import argparse\nimport time",
    "server": "def server():\n    pass",
    "update": "def update():\n    pass",
    "defaults": "STEPS, BATCH_SIZE = 30, 2",
    "load_data": "def load_data():\n    pass",
    "main": "def main():\n    pass",
    "divider": examples.DIVIDER,
    "flags": "# region: flags\ndef parse_flags():\n    pass",
    "tasks": "# region: tasks\nclass Cluster:\n    pass",
    "guard": 'if __name__ == "__main__":\n    main()',
}
HELPER = "def helper():\n    pass"


def faults_of(parts):
    """Returns the faults in the order of a script of these parts."""
    return order_faults("\n\n\n".join(parts) + "\n")


def test_a_script_in_its_order_has_no_fault():
    assert faults_of(PARTS.values()) == []
    without = [text for name, text in PARTS.items() if name != "server"]
    assert faults_of(without) == []  # as of a single process


@pytest.mark.parametrize(
    "missing", ["docstring", "imports", "update", "defaults", "main", "divider"]
)
def test_a_missing_part_is_found(missing):
    assert faults_of(text for name, text in PARTS.items() if name != missing)


@pytest.mark.parametrize("at", ["server", "update", "divider", "flags", "guard"])
def test_a_function_in_no_place_of_its_own_is_found(at):
    """Catches a helper before the algorithm, after main, and below the divider in no region."""
    texts = list(PARTS.values())
    helper = HELPER if at in ("server", "divider", "flags") else f"x = 1\n{HELPER}"
    if at == "update":  # between the functions of the example a helper may stand
        helper = "def main():\n    pass"
    if at == "guard":
        helper = f"# region: other\n{HELPER}"
    texts.insert(list(PARTS).index(at), helper)
    assert faults_of(texts)


def test_swapped_parts_are_found():
    """Catches two regions, or two parts of the example, one in the place of the other."""
    for one, other in (("flags", "tasks"), ("defaults", "main"), ("imports", "server")):
        swapped = {**PARTS, one: PARTS[other], other: PARTS[one]}
        assert faults_of(swapped.values()), (one, other)


def algorithm_lines(text):
    """Returns how many lines the functions have that are a script's algorithm."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    algorithm = [function for function in functions if function.name in examples.ALGORITHM]
    assert algorithm, "no function is the algorithm"
    return sum(function.end_lineno - function.lineno + 1 for function in algorithm)


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_an_algorithm_is_short(script):
    assert algorithm_lines(script.read_text()) <= ALGORITHM_LINES


def test_the_lines_of_an_algorithm():
    """Catches a count that counts nothing, and one that counts other functions, too."""
    text = "def update():\n" + "    x = 0\n" * 70 + "\n\ndef main():\n    pass\n"
    assert algorithm_lines(text) == 71
    assert algorithm_lines("def server():\n    pass\n\n\n" + text) == 73


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
    names = []
    for path in examples.tracked_files("*.py"):
        name = path.relative_to(support.ROOT).as_posix()
        if not name.startswith(("From-TensorFlow-1/", "Basics-Tutorial/", "tests/")):
            if re.search(r"^\s*(import|from) tensorflow\.compat", path.read_text(), re.MULTILINE):
                names.append(name)
    assert not names
