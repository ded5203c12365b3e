"""tfrun new: what a folder has, and what is refused. test_installed.py makes some by the wheel."""

import importlib.metadata
import json
import os
import pathlib
import sys
import types

import pytest
import support
import tfrun
import yaml
from lab import examples
from tfrun import cli, problems
from tfrun.apps import app, material
from tfrun.commands import job
from tfrun.launch import without_notices

SCRIPTS = material.scripts()
PROBLEM = (support.ROOT / "Your-Model" / "regression.py").read_text()
BUILT = "Horovod-RingAllReduce"  # it needs Horovod, which horovodrun starts


def make(folder, monkeypatch, example, *more, name="my-app"):
    """Makes a folder by the command; returns its path."""
    monkeypatch.chdir(folder)
    assert cli.main(["new", name, "--from", example, *more]) == 0
    return folder / name


def test_every_example_that_takes_a_problem_is_offered():
    """Catches one that is left out, and one whose script cannot train another problem."""
    cells = examples.read_json(support.ROOT / "Your-Model" / "matrix.json")["cells"]
    takes = [name for name, row in cells.items() if "trains" in row.values()]
    assert sorted(SCRIPTS) == sorted(takes)
    for path in material.files():
        assert (support.ROOT / path).is_file(), path


def test_a_folder_of_each_example(tmp_path, monkeypatch, capsys):
    """Catches a file or a version that is missing, a template that fits one example only, a mistake
    that is not in the script, and a reference that lacks a part."""
    for example, script in SCRIPTS.items():
        folder = make(tmp_path, monkeypatch, example, name=f"a-{example}")
        left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        own = {pathlib.Path(script).name, "run.sh", "equation.py", "Dockerfile", "README.md"}
        own |= {"requirements.txt", ".github/workflows/test.yml"}
        own |= {"build/build.py"} if example == BUILT else {"job.yaml"}
        assert own | {"test_equation.py", ".gitignore"} <= left, example
        for name in own - {"build/build.py"}:
            text = (folder / name).read_text()
            assert f"Made by tfrun {tfrun.__version__}: `tfrun new a-{example} " in text, name
        assert len((folder / "README.md").read_text().splitlines()) == 10
        assert os.access(folder / "run.sh", os.X_OK)
        assert "activate.sh" not in (folder / "run.sh").read_text()
        for path in folder.rglob("*.py"):
            if path.name != pathlib.Path(script).name:
                compile(path.read_text(), str(path), "exec")
        equation = types.ModuleType("equation")
        exec((folder / "equation.py").read_text(), equation.__dict__)
        assert callable(equation.REFERENCE) and len(equation.MISTAKES) == 2 and equation.N > 0
        code = (folder / equation.SCRIPT).read_text()
        for changes in equation.MISTAKES.values():
            assert examples.replaced(code, changes) != code
        yaml.safe_load((folder / ".github" / "workflows" / "test.yml").read_text())
    assert "by tfrun" in capsys.readouterr().out


def test_a_job_starts_what_run_sh_starts(tmp_path, monkeypatch):
    """Catches a job.yaml with other roles, or one that tfrun run refuses."""
    for example, roles in [
        ("DOWNPOUR", ["--ps", "1", "--workers", "2"]),
        ("D-PSGD", ["--workers", "4"]),
        ("Parameter-Server-Strategy", ["--ps", "1", "--workers", "2", "--chief"]),
        ("Non-Distributed-Setup", []),
    ]:
        folder = make(tmp_path, monkeypatch, example, name=f"a-{example}")
        words = job.command_line(job.read(folder / "job.yaml"), {})
        script = folder / pathlib.Path(SCRIPTS[example]).name
        assert words[: len(roles) + 2] == [*roles, "--", str(script)]
        assert "--steps" in words and "--learning-rate" in words


def test_a_folder_with_a_problem(tmp_path, monkeypatch, capsys):
    """Catches a script that keeps its own problem, a module of the user's that stays behind, and
    an adapter that names a file which the folder's user may not have."""
    (tmp_path / "near.py").write_text("SHIFT = 2\n")
    (tmp_path / "my.py").write_text(f"import near\n{PROBLEM}")
    folder = make(tmp_path, monkeypatch, "HogWild", "--model", "my.py")
    assert (folder / "own_problem.py").read_text() == f"import near\n{PROBLEM}"
    assert (folder / "near.py").read_text() == "SHIFT = 2\n"
    code = (folder / "hogwild.py").read_text()
    assert "from adapted_problem import" in code and "load_digits" not in code
    assert problems.REGION.search(code), "another problem can still take its place"
    adapter = (folder / "adapted_problem.py").read_text()
    assert app.BESIDE in adapter and str(tmp_path) not in adapter
    assert "my.py" in (folder / "README.md").read_text()
    assert "HogWild with my.py, by tfrun" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, line",
    [
        (["there", "--from", "HogWild"], "there exists already: choose another name"),
        (["new-one", "--from", "Hogwild"], "there is no example Hogwild to begin from: ADAG, "),
        (["new-one", "--from", "Sparse-Embeddings"], "there is no example Sparse-Embeddings"),
        (["new-one", "--from", "HogWild", "--model", "gone.py"], "there is no problem "),
        (["new-one", "--from", "HogWild", "--model", "bad.py"], "defines no load_data and no "),
        (["new-one", "--from", "SAGN", "--model", "same.py"], "same.py imports equation.py, and "),
        (["a/b", "--from", "HogWild"], "'a/b' is no name of a folder: use letters"),
        (["..", "--from", "HogWild"], "'..' is no name of a folder"),
        (["my app", "--from", "HogWild"], "'my app' is no name of a folder"),
        (["new-one"], "the following arguments are required: --from"),
    ],
)
def test_what_is_refused(words, line, tmp_path, monkeypatch, capsys):
    """Catches a traceback, more than a line, and a folder that is left all the same."""
    (tmp_path / "there").mkdir()
    (tmp_path / "bad.py").write_text("import keras\n")
    (tmp_path / "equation.py").write_text("")
    (tmp_path / "same.py").write_text(f"import equation\n{PROBLEM}")
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(["new", *words])
    except SystemExit as ended:
        code = ended.code
    output = capsys.readouterr()
    assert code == 2 and line in output.err and len(output.err.splitlines()) == 1 and not output.out
    assert not (tmp_path / "new-one").exists()


def test_a_place_that_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    assert cli.main(["new", "my-app", "--from", "HogWild"]) == 2
    assert capsys.readouterr().err == "tfrun: my-app cannot be written: Permission denied\n"


@pytest.mark.parametrize(
    "noted, requirement, message",
    [
        ("https://x.org/a/{name}-1-py3-none-any.whl", "{name}[training] @ https://x.org/a/", ""),
        ("file://{folder}/t%20f-1.whl", "./t f-1.whl[training]", ""),
        ("file://{folder}", "./{file}[training]", "pip wheel --no-deps -w my-app {folder}\n"),
        ("file://{folder}/gone.whl", "./{file}[training]", "copy the one you installed into"),
        (None, "./{file}[training]", "copy the one you installed into my-app\n"),
    ],
)
def test_the_wheel_of_a_folder(noted, requirement, message, tmp_path, monkeypatch, capsys):
    """Catches a requirement that pip cannot fetch, where nothing says what to do about it."""
    file = f"distributed_tensorflow_reference-{tfrun.__version__}-py3-none-any.whl"
    facts = {"folder": tmp_path, "name": app.PACKAGE, "file": file}
    (tmp_path / "t f-1.whl").write_text("the wheel")
    text = json.dumps({"url": noted.format(**facts)}) if noted else None
    installed = types.SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    monkeypatch.setattr(material, "COPIES", material.ROOT)  # as in the wheel
    folder = make(tmp_path, monkeypatch, "HogWild")
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert lines[1].startswith(requirement.format(**facts)) and lines[2:] == ["pytest"]
    assert message.format(**facts) in capsys.readouterr().out
    assert [path.name for path in folder.glob("*.whl")] == (
        ["t f-1.whl"] if noted and noted.endswith("t%20f-1.whl") else []
    )


def test_the_clone_names_itself(tmp_path, monkeypatch, capsys):
    make(tmp_path, monkeypatch, "HogWild")
    line = f"pip wheel --no-deps -w my-app {support.ROOT}\n"
    assert capsys.readouterr().out.endswith(line)


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # more than its own limit, which grows with the load
@pytest.mark.parametrize("example", SCRIPTS)
def test_the_test_of_each_folder(example, tmp_path, monkeypatch):
    """Catches a made test that fails, or whose planted mistakes change no number."""
    folder = make(tmp_path, monkeypatch, example)
    if example == BUILT:
        support.build(support.ROOT / BUILT / "run.sh")
    env = {**support.environment(tmp_path / "run"), "PYTHONPATH": without_notices.python_path()}
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, "-p", "no:cacheprovider"]
    done = support.run_to_end(*command, cwd=folder, env=env, seconds=170)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
