"""tfrun --problem: what is put into the run directory, and what is refused before a run begins."""

import os
import shlex
import subprocess

import pytest
import support
from lab import examples
from small_scripts import TFRUN
from tfrun import problems

HOGWILD = examples.main_script("HogWild")
GOOD = """import numpy as np

import {module}

SHIFT = {module}.SHIFT


def load_data(name):
    x = np.ones((8, 2), "float32")
    return x, x, x, x


def make_model(data):
    return None


def loss(y, outputs):
    return y


METRICS = {{}}
"""


PLAIN = GOOD.format(module="math")


def problem(folder, text=PLAIN, **beside):
    """Writes a problem, and modules beside it; returns its path."""
    folder.mkdir(exist_ok=True)
    for name, content in beside.items():
        (folder / f"{name}.py").write_text(content)
    path = folder / "mine.py"
    path.write_text(text)
    return path


def test_an_optimizer_needs_a_place(tmp_path):
    """Catches a script that would train with its own step, and say nothing."""
    text = PLAIN + "\n\ndef make_optimizer():\n    return None\n"
    path = problem(tmp_path / "own", text)
    assert problems.make_copy(path, [str(HOGWILD)])
    rates = examples.main_script("Synchronous-SGD-different-learning-rates")
    with pytest.raises(ValueError, match="takes no optimizer of yours, .* remove make_optimizer"):
        problems.make_copy(path, [str(rates)])


def test_tables_need_a_ps_that_can_have_them(tmp_path):
    """Catches a script that would train with whole tables, and say nothing."""
    path = problem(tmp_path / "own", PLAIN + "\n\nTABLES = {}\n")
    assert problems.make_copy(path, [str(HOGWILD)])
    with pytest.raises(ValueError, match="takes no TABLES, .* remove TABLES"):
        problems.make_copy(path, [str(examples.main_script("AEASGD"))])


def test_what_a_run_directory_gets(tmp_path):
    """The file as it was, the modules that it needs, and a script of which one region differs."""
    text = GOOD.format(module="near")
    path = problem(tmp_path / "own", text, near="import far\nSHIFT = far.X", far="X = 1", other="")
    script, texts, original = problems.make_copy(path, [str(HOGWILD), "--steps", "20"])
    assert (script, original) == ("hogwild.py", str(HOGWILD))
    assert texts["own_problem.py"] == text
    assert texts.keys() - {
        "hogwild.py",
        "own_problem.py",
        "adapted_problem.py",
        *problems.BESIDE_IT,
    } == {
        "near.py",
        "far.py",
    }
    old, new = HOGWILD.read_text(), texts["hogwild.py"]
    before, _, rest = old.partition("# region: problem")
    after = rest.partition("# endregion: problem")[2]
    assert new.count(problems.ADAPT) == 1
    new = new.replace(problems.ADAPT, "")
    assert new.startswith(before) and new.endswith(after)
    region = new[len(before) : -len(after)]
    assert "mine.py" in region and "from adapted_problem import" in region
    assert "load_digits" not in region and len(region.splitlines()) == 3
    assert f"FILE = {str(path)!r}" in texts["adapted_problem.py"]


@pytest.mark.parametrize(
    "line, missing",
    [
        ("from near import load_data", None),
        ("from near import load as load_data", None),
        ("import near as load_data", None),
        ("class load_data: pass", None),
        ("load_data = near", None),
        ("if True:\n    def load_data(name): return 0", None),
        ("from near import load_data as load", "load_data"),
        ("load_data()", "load_data"),
        ("def helper(): load_data = 0", "load_data"),
        ("class Helper:\n    def load_data(self): return 0", "load_data"),
        ("rows = [load_data for load_data in ()]", "load_data"),
    ],
)
def test_how_a_problem_may_define_a_name(line, missing, tmp_path):
    """Catches a file that is refused although it is right, and one that fails when it is run."""
    text = f"{line}\nmake_model = loss = METRICS = 0\n"
    path = problem(tmp_path / "own", text, near="load_data = load = 0")
    if missing:
        with pytest.raises(ValueError, match=f"defines no {missing}: see"):
            problems.make_copy(path, [str(HOGWILD)])
    else:
        texts = problems.make_copy(path, [str(HOGWILD)]).texts
        assert texts["own_problem.py"] == text and ("near.py" in texts) == ("import" in line)


def test_a_module_that_is_needed_by_two_comes_once(tmp_path):
    """Catches two modules that need each other, and a package that is copied."""
    text = PLAIN.replace("import math", "import a, b.c, math", 1)
    folder = tmp_path / "own"
    path = problem(folder, text, a="import b", b="import a\nfrom a import x", c="")
    (folder / "xml").mkdir()
    assert problems.make_copy(path, [str(HOGWILD)]).texts.keys() == {
        *("hogwild.py", "own_problem.py", "adapted_problem.py", *problems.BESIDE_IT, "a.py", "b.py")
    }


def test_the_words_of_bash(tmp_path):
    """Catches a word that bash changes, a script of another name, and a file that is cut; an
    argument with the script's name, or with its path, that is taken for the script."""
    arguments = ["--like", "other/hogwild.py", str(HOGWILD)]
    command = ["python", str(HOGWILD), "--steps", "a b", *arguments]
    assert problems.as_bash(None, command) == (shlex.join(command), "")
    assert problems.write_copy(tmp_path, None, command) == command
    texts = {"hogwild.py": "x = '$HOME'\n", "a.py": "y\n\n"}
    copy = problems.ProblemCopy("hogwild.py", texts, str(HOGWILD))
    words, files = problems.as_bash(copy, command)
    due = "python \"$OUTPUT_DIR\"/hogwild.py --steps 'a b' "
    assert words == due + shlex.join(arguments)
    env = {"OUTPUT_DIR": str(tmp_path)}
    subprocess.run(["bash", "-c", files], env=env, check=True, timeout=30)
    for name, text in copy.texts.items():
        assert (tmp_path / name).read_text() == text
    (tmp_path / "put").mkdir()
    new_command = problems.write_copy(tmp_path / "put", copy, command)
    assert new_command == ["python", f"{tmp_path}/put/hogwild.py", "--steps", "a b", *arguments]
    for name, text in copy.texts.items():
        assert (tmp_path / "put" / name).read_text() == text


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-8"])
def test_a_text_of_any_editor(coding, tmp_path):
    """Catches a mark before the first line, and a file that is written in the locale's coding."""
    path = problem(tmp_path / "own")
    path.write_text("# ö →\n" + PLAIN, encoding=coding)
    run = tmp_path / "run"
    run.mkdir()
    code = "import sys; from tfrun import problems; problems.install_problem(*sys.argv[1:2], "
    code += "sys.argv[2:3], __import__('pathlib').Path(sys.argv[3]))"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = support.run_to_end(TFRUN[0], "-c", code, path, HOGWILD, run, env=env)
    assert done.returncode == 0, done.stderr
    assert (run / "own_problem.py").read_text(encoding="utf-8") == "# ö →\n" + PLAIN


def test_a_script_that_is_gone(tmp_path):
    """Under horovodrun only the copy looks for the script: catches a traceback."""
    command = ["horovodrun", "-np", "2", "python", str(tmp_path / "gone.py")]
    with pytest.raises(ValueError, match=r"gone\.py cannot be read: No such file"):
        problems.make_copy(problem(tmp_path / "own"), command)


def test_horovod_runs_the_copy(tmp_path):
    """The script is the first word that ends with .py, wherever it stands."""
    script = examples.main_script("Horovod-RingAllReduce")
    command = ["horovodrun", "-np", "2", "python", str(script), "--steps", "20"]
    words = problems.install_problem(problem(tmp_path / "own"), command, tmp_path)
    assert words == [*command[:4], str(tmp_path / script.name), *command[5:]]
    assert "from adapted_problem import" in (tmp_path / script.name).read_text()


REFUSED = {
    "there is no problem ": "gone",
    "mine.py defines no make_model and no METRICS: see": "load_data = loss = 0",
    "mine.py, line 2: ": "import math\ndef load_data(:\n",
    "mine.py is no text": b"\xff\xfe",
    "mine.py imports near, a folder": GOOD.format(module="near"),
    "near.py, line 1: ": GOOD.format(module="bad"),
    "mine.py imports far_away, a folder": GOOD.format(module="far_away"),
    "mine.py, line 1: a relative import needs a package": "from .near import read\n" + PLAIN,
    "hogwild.py, but a run has another file of that name": GOOD.format(module="hogwild"),
    "adapted_data.py, but a run has another": GOOD.format(module="adapted_data"),
}


@pytest.mark.parametrize("words, text", REFUSED.items())
def test_what_is_no_problem_is_refused(words, text, tmp_path):
    """With exit code 2 and one line, before anything is made."""
    folder, runs = tmp_path / "own", tmp_path / "runs"
    path = problem(folder, bad="import worse", worse="")
    (folder / "bad.py").write_text("def SHIFT(:\n")
    for name in "hogwild", "adapted_data":
        (folder / f"{name}.py").write_text("SHIFT = 1\n")
    (folder / "near").mkdir()
    (folder / "near" / "__init__.py").touch()
    (folder / "far_away").mkdir()  # a package without that file
    (folder / "numpy").mkdir()  # of data: an import means the package
    if isinstance(text, bytes):
        path.write_bytes(text)
    elif text == "gone":
        path = folder / "gone.py"
    else:
        path.write_text(text)
    words = words.replace("near.py, line 1", "bad.py, line 1")
    done = support.tfrun("--problem", str(path), "--", str(HOGWILD), RUNS_DIR=str(runs))
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 2 and len(lines) == 1 and words in lines[0], done
    assert not runs.exists()


def test_a_script_without_the_region_is_refused(tmp_path):
    words = examples.main_script("Sparse-Embeddings")
    with pytest.raises(ValueError, match="takes no other problem"):
        problems.make_copy(problem(tmp_path / "own"), [str(words)])


def test_another_problem_has_another_directory(tmp_path):
    """The run goes on with its own problem only, by the copy of the script, too."""
    run, own = tmp_path / "run", problem(tmp_path / "own")
    run.mkdir()
    problems.install_problem(own, [str(HOGWILD)], run)
    copy = problems.make_copy(own, [str(HOGWILD)])
    other = copy._replace(texts={**copy.texts, "own_problem.py": "another"})
    problems.refuse_another_problem(run, str(HOGWILD), other)  # nothing has run yet
    (run / "flags.json").write_text("{}")
    problems.refuse_another_problem(run, str(HOGWILD), copy)
    problems.refuse_another_problem(run, str(run / "hogwild.py"), None)
    problems.refuse_another_problem(None, str(HOGWILD), copy)
    for wrong in other, None:
        with pytest.raises(ValueError, match="has another problem: set OUTPUT_DIR"):
            problems.refuse_another_problem(run, str(HOGWILD), wrong)
    # Nor does it go on with another module that the problem imports.
    module = copy._replace(texts={**copy.texts, "reader.py": "ROWS = 100"})
    (run / "reader.py").write_text("ROWS = 100")
    problems.refuse_another_problem(run, str(HOGWILD), module)
    (run / "reader.py").write_text("ROWS = 99")
    with pytest.raises(ValueError, match=r"has another reader\.py: set OUTPUT_DIR"):
        problems.refuse_another_problem(run, str(HOGWILD), module)
    # A run of the example's own problem does not go on with another.
    (run / "own_problem.py").unlink()
    problems.refuse_another_problem(run, str(HOGWILD), None)
    with pytest.raises(ValueError, match="has another problem"):
        problems.refuse_another_problem(run, str(HOGWILD), copy)


def test_tfrun_refuses_it_before_it_says_that_a_run_is_finished(tmp_path):
    own = problem(tmp_path / "own")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "flags.json").write_text("{}")
    (tmp_path / "run" / "result.json").write_text('{"steps": 100}')
    env = {"PROBLEM": str(own), "OUTPUT_DIR": str(tmp_path / "run")}
    done = support.tfrun("--", str(HOGWILD), "--steps", "20", **env)
    assert done.returncode == 2 and "has another problem" in done.stderr, done


def test_the_plain_commands_write_the_files(tmp_path):
    """Catches: a copy that nobody starts, and a file that bash changes."""
    text = GOOD.format(module="math").replace("SHIFT = math.SHIFT", "SHIFT = '$HOME \\\\ `x`'")
    own, run = problem(tmp_path / "own", text), tmp_path / "a run"
    done = support.tfrun(
        *["--dry-run", "--ps", "1", "--problem", str(own), "--", str(HOGWILD)],
        OUTPUT_DIR=str(run),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("servers=()"))
    script = "\n".join(lines[:start])
    subprocess.run(["bash"], input=script, text=True, check=True, timeout=30)
    assert (run / "own_problem.py").read_text() == text
    assert "from adapted_problem import" in (run / "hogwild.py").read_text()
    starts = [
        line for line in lines if line.startswith(("    /", "    '/")) and "hogwild.py" in line
    ]
    assert len(starts) == 2, starts
    for line in starts:
        words = subprocess.run(
            [
                "bash",
                "-c",
                f"OUTPUT_DIR={shlex.quote(str(run))}; printf '%s\\n' {line.partition(' > ')[0]}",
            ],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert words.stdout.splitlines()[1:] == [str(run / "hogwild.py")], words


def test_the_line_that_goes_on_names_the_problem(monkeypatch):
    monkeypatch.setenv("PROBLEM", "my model.py")
    path = os.path.abspath("my model.py")
    assert (
        problems.with_problem_variable("OUTPUT_DIR=run tfrun")
        == f"PROBLEM='{path}' OUTPUT_DIR=run tfrun"
    )
    monkeypatch.delenv("PROBLEM")
    assert problems.with_problem_variable("OUTPUT_DIR=run tfrun") == "OUTPUT_DIR=run tfrun"


def test_it_can_be_written_without_tfrun(tmp_path):
    own = problem(tmp_path / "own")
    command = [*TFRUN[:1], "-m", "tfrun.problems", str(own), str(HOGWILD), str(tmp_path / "run")]
    done = support.run_to_end(*command)
    assert done.stdout.strip() == str(tmp_path / "run" / "hogwild.py"), done
    done = support.run_to_end(*command[:3], str(tmp_path / "gone.py"), *command[4:])
    assert done.returncode == 1 and "there is no problem" in done.stderr, done
