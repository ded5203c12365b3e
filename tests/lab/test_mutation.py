"""lab/mutation/score.py: what it plants, what counts as found, and what the lists name."""

import re

import pytest
import support
import yaml
from lab.examples import DIVIDER, ROOT
from lab.mutation import mutants, patching, planting, profiling, score

LIBRARY = """
LEAST = 2


def enough(number, least=LEAST):
    if number >= least and True:
        note(number)
    return number >= least


def note(number, words="found"):
    print(words, number)


class Pair:
    size = 2

    def swapped(self, first, second):
        return dict(zip([second], [first]))
"""
TESTS = """
from tfrun import planted


def test_enough():
    assert planted.enough(3) and not planted.enough(1)


def test_of_another_function():
    assert planted.Pair().swapped(1, 2) == {2: 1}
"""


def changes(text, mutations):
    """Returns {(function, old line, new line)} of mutations."""
    described = [mutants.change_of(mutation, text) for mutation in mutations]
    return {(change.function, change.old, change.new) for change in described}


def test_the_mistakes_of_python():
    """Catches: a kind of mistake that is planted no more, or in another function."""
    mistakes = changes(LIBRARY, mutants.python_mutations("x.py", LIBRARY))
    for due in (
        ("", "LEAST = 2", "LEAST = 3"),
        ("", "LEAST = 2", "LEAST = 1"),
        ("enough", "return number >= least", "return number > least"),
        ("enough", "if number >= least and True:", "if number >= least or True:"),
        ("enough", "if number >= least and True:", "if number >= least and False:"),
        ("enough", "note(number)", "pass"),
        ("note", "print(words, number)", "print(number, words)"),
        ("note", "print(words, number)", "print(words, )"),
        (
            "Pair.swapped",
            "return dict(zip([second], [first]))",
            "return dict(zip([first], [second]))",
        ),
    ):
        assert due in mistakes, due


def test_arguments_in_any_order():
    """Catches max(b, a) for max(a, b), which no test can find."""
    text = "def f(a, b):\n    return max(a, b) + np.minimum(a, b) - g(a, b)\n"
    mistakes = {new for _, _, new in changes(text, mutants.python_mutations("x.py", text))}
    assert "return max(a, b) + np.minimum(a, b) - g(b, a)" in mistakes
    assert not any("max(b, a)" in new or "minimum(b, a)" in new for new in mistakes)


def test_what_is_for_the_eye_stays():
    """Catches: mistakes in words of --help, colours or types, which no test of numbers can find."""
    text = "def f(x: int = 0):\n    import a\n    assert x < 1\n    g(x, help=1 + 2, color=3)\n"
    text += "if __name__ == '__main__':\n    f(2)\n"
    mistakes = {new for _, _, new in changes(text, mutants.python_mutations("x.py", text))}
    assert mistakes == {
        "def f(x: int = 1):",
        "pass",
        "g(help=1 + 2, color=3)",
    }


def test_the_mistakes_of_javascript():
    """Catches: a number in a comment, a string or a template that counts as code."""
    text = (
        "// 1 + 2\nconst f = (a, b) => {\n"
        '  const s = "3 < 4", t = `5 ${a + 6} 7`;\n'
        "  go(a, b);\n  return a < b && /8/.test(s);\n};\n"
    )
    mistakes = {new for _, _, new in changes(text, mutants.javascript_mutations("x.js", text))}
    assert mistakes == {
        'const s = "3 < 4", t = `5 ${a - 6} 7`;',
        'const s = "3 < 4", t = `5 ${a + 7} 7`;',
        'const s = "3 < 4", t = `5 ${a + 5} 7`;',
        ";",
        "go(b, a);",
        "return a <= b && /8/.test(s);",
        "return a < b || /8/.test(s);",
    }


def test_code_that_is_there_already_becomes_mistaken():
    """Catches: a fork whose tests still call the function without the mistake."""
    space = {"__name__": "planted"}
    exec(compile(LIBRARY, "/planted.py", "exec"), space)
    enough, least = space["enough"], "number >= least\n\n\ndef note"
    functions = patching.loaded_functions({"/planted.py": "planted.py"})["planted.py"]
    assert {function.__name__ for function in functions} == {"enough", "note", "swapped"}
    text = LIBRARY.replace(least, least.replace(">=", ">"))
    patching.patch("/planted.py", LIBRARY, text, functions)
    assert not enough(2) and enough(3)


def test_a_constant_and_the_default_that_it_is():
    """Catches a fork in which a name of the module or of a class, or a default, is as before."""
    space = {"__name__": "planted"}
    exec(compile(LIBRARY, "/other.py", "exec"), space)
    functions = patching.loaded_functions({"/other.py": "other.py"})["other.py"]
    patching.patch("/other.py", LIBRARY, LIBRARY.replace("T = 2", "T = 4"), functions)
    assert space["LEAST"] == 4 and not space["enough"](3) and space["enough"](4)
    pair = space["Pair"]()
    patching.patch("/other.py", LIBRARY, LIBRARY.replace("size = 2", "size = 3"), functions)
    assert pair.size == 3


def test_one_is_caught_and_one_is_equivalent(tmp_path, monkeypatch, capfd):
    """Catches: what a test finds that survives, what none finds that counts as caught, the list."""
    copy = tmp_path / "copy"
    (copy / "tfrun").mkdir(parents=True)
    (copy / "tfrun" / "__init__.py").touch()
    (copy / "tfrun" / "planted.py").write_text(LIBRARY)
    (copy / "test_planted.py").write_text(TESTS)
    monkeypatch.setattr(score, "ROOT", copy)
    monkeypatch.setattr(mutants, "ROOT", copy)
    group = score.Group("all", 0.85, "", {"tfrun/planted.py": ["test_planted.py"]})
    by_change = {}
    for mutation in mutants.find_mutations("tfrun/planted.py"):
        change = mutants.change_of(mutation, LIBRARY)
        by_change[change.old, change.new] = mutation, change
    caught = by_change["return dict(zip([second], [first]))", "return dict(zip([first], [second]))"]
    bound = by_change["return number >= least", "return number > least"]  # no test is at the bound
    listed = by_change["print(words, number)", "print(number, words)"]
    picked = [caught[0], bound[0], listed[0]]
    monkeypatch.setattr(score, "sample", lambda *_: picked)
    monkeypatch.setattr(score, "read_equivalents", lambda: {listed[1]: "only words"})
    result = score.score_group(copy, group, 3, 0, True)
    assert result == score.Score(caught=1, by_time=0, equivalent=1, survived=1)
    output = capfd.readouterr().out
    assert "Pair.swapped: caught by test_planted.py::test_of_another_function" in output
    assert "enough: survives" in output and "+ return number > least" in output


def test_a_copy_that_a_test_runs(tmp_path):
    """Catches a file whose tests run a copy of it: none would be tried for its mistakes."""
    profiler = profiling.Profiler(tmp_path, ["tfrun/planted.py"])
    paths = [tmp_path / "tfrun" / "planted.py", "/a copy/planted.py", "/a copy/other.py"]
    assert [profiler.file_of(str(path)) for path in paths] == 2 * ["tfrun/planted.py"] + [None]


REGION = "# region: shared\nLEAST = 2\n\n\ndef f(x):\n    return x > LEAST\n"
OTHER = "# region: other\ny = 2\n"


def test_a_mistake_in_a_region_that_scripts_share(tmp_path):
    """Catches: one copy that stays right, one of other text, or a mistake outside of a region."""
    divider = f"{DIVIDER}\n\n\n"
    scripts = {
        "a.py": f"x = 1\n{divider}{REGION}\n\n{OTHER}",
        "b.py": f"x = 1\nz = 3\n{divider}{OTHER}\n\n{REGION}",
        "c.py": f"x = 1\n{divider}{REGION.replace('x > L', 'x >= L')}\n\n{OTHER}",
    }
    end = 'if __name__ == "__main__":\n    f(1)\n'
    scripts = {name: text + end for name, text in scripts.items()}
    planter = planting.Planter(tmp_path, dict.fromkeys(scripts, ["t.py"]), [], tmp_path / "out")
    planter.texts = scripts
    mistakes = mutants.python_mutations("a.py", scripts["a.py"])
    in_region = next(m for m in mistakes if "return x >= LEAST" in m.plant())
    texts = planter.mistaken_texts(in_region)
    assert [*texts] == ["a.py", "b.py"] and texts["b.py"].startswith("x = 1\nz = 3\n")
    assert all(text.count("return x >= LEAST") == 1 for text in texts.values())
    outside = next(m for m in mistakes if "x = 2" in m.plant())
    assert [*planter.mistaken_texts(outside)] == ["a.py"]
    profiles = [
        profiling.Profile(name, 1.0, {(file, line)})
        for name, file, line in (("t.py::1", "b.py", 14), ("t.py::2", "a.py", 9))
    ]
    chosen = planter.choose_tests(in_region, [*texts], profiles)
    assert [profile.name for profile in chosen] == ["t.py::2", "t.py::1"]


def test_which_tests_look_at_a_file(tmp_path):
    """Catches a pattern that is not asked, or a test of another file whose name begins alike."""
    tests = ["tests/a where (?i)hogwild(?!.sessions)", "tests/b/test_c.py::test_d"]
    planter = planting.Planter(tmp_path, {"x.py": tests}, [], tmp_path / "outcomes")
    due = {
        "tests/a/test_z.py::test_y[HogWild]": True,
        "tests/a/test_z.py::test_y[HogWild-Sessions]": False,
        "tests/ab/test_z.py::test_y[HogWild]": False,
        "tests/b/test_c.py::test_d[1]": True,
        "tests/b/test_c.py::test_de": False,
    }
    assert {test: planter.looks_at(test, "x.py") for test in due} == due


def test_wilson():
    """Catches: an interval that is not Wilson's, as Newcombe's (1998) table of examples has it."""
    assert score.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert score.wilson(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)
    assert score.wilson(0, 0) == (0, 1)


def test_below_the_floor():
    """Catches: a group below its floor that passes, and a list that hides too much."""
    group = score.Group("x", 0.85, "", {})
    assert not score.is_below_floor(group, score.Score(80, 0, 5, 15))
    assert score.is_below_floor(group, score.Score(80, 0, 4, 16))
    assert score.is_below_floor(group, score.Score(90, 0, 7, 3))


def test_the_lists_name_what_there_is():
    """Catches: a file or a test that has another name now, and a line that was changed since."""
    groups = score.read_groups()
    for group in groups.values():
        for file, tests in group.tests.items():
            assert (ROOT / file).is_file(), file
            for test in tests:
                assert (ROOT / re.split("::| where ", test)[0]).exists(), test
            assert group.after in (ROOT / file).read_text(), file
    for mistake, reason in score.read_equivalents().items():
        text = (ROOT / mistake.file).read_text()
        assert all(line in text for line in mistake.old.splitlines()), mistake
        assert len(reason.split()) > 3, mistake


def test_every_group_runs_by_night():
    """Catches: a group that no night tries."""
    workflow = yaml.safe_load((support.ROOT / ".github/workflows/mutation.yml").read_text())
    names = workflow["jobs"]["group"]["strategy"]["matrix"]["group"]
    assert names == list(score.read_groups())
