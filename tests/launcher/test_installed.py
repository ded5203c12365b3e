"""`pip install .`: tfrun without the clone, in an environment that has only what it asks for."""

import importlib.metadata
import os
import shutil
import sys
import zipfile

import pytest
import support
from lab import examples
from packaging.requirements import Requirement
from tfrun.apps.material import files

NAME = "distributed-tensorflow-reference"
# The wheel is made of these, and of the examples.
MADE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "tfrun")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
LAB = "raise SystemExit('another package of this name')\n"
# Leaves what the tasks of an example leave.
TRAIN = """import json, os
from run_files import flags, metrics, push, test
task = json.loads(os.environ["TF_CONFIG"])["task"]
folder, k = os.environ["OUTPUT_DIR"], task["index"]
if task["type"] == "worker":
    pushes = [push(10 + step, step, 1) for step in range(1 + k, 7, 2)]
    metrics(folder, f"worker-{k}", *pushes, *[test(17, 6, 0.9, 0.25)][k:])
    if k == 0:
        flags(folder)
print("done")
"""
IMPORT_ALL = """import importlib, pkgutil, tfrun
for module in pkgutil.walk_packages(tfrun.__path__, "tfrun."):
    if module.name != "tfrun.commands.evaluate" and ".adapted_" not in module.name:
        importlib.import_module(module.name)
from tensorboard import program
print(tfrun.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Returns the path of the wheel, made of a copy of the clone's files."""
    folder, material = tmp_path_factory.mktemp("wheel"), files()
    for path in examples.tracked_files("*"):
        name = path.relative_to(support.ROOT)
        if name.parts[0] in MADE or name.as_posix() in material:
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / "source" / name)
    command = [*PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder]
    done = support.run_to_end(*command, folder / "source", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel_file,) = folder.glob("*.whl")
    return wheel_file


def needed(names):
    """Returns the distributions of this environment that these need, with those that they need."""
    distributions, names = {}, list(names)
    while names:
        name = names.pop()
        if name in distributions:
            continue
        distributions[name] = importlib.metadata.distribution(name)
        for line in distributions[name].requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                names.append(requirement.name.lower())
    return distributions.values()


def installed(wheel, folder, how, *more):
    """Makes an environment with the wheel in `folder`; returns its folder of programs.

    how: "linked": with what the wheel needs, from this environment, and nothing else of it;
    "all": with all of this environment; "fetched": as pip fetches it from the index.
    more: what else pip installs.
    """
    pip = [] if how == "fetched" else ["--without-pip"]
    process = support.run_to_end(sys.executable, "-m", "venv", *pip, folder)
    assert process.returncode == 0, process.stderr
    (packages,) = folder.glob("lib/*/site-packages")
    if how == "linked":
        with zipfile.ZipFile(wheel) as file:
            (name,) = [name for name in file.namelist() if name.endswith("/METADATA")]
            lines = file.read(name).decode().splitlines()
        wanted = [Requirement(line[15:]) for line in lines if line.startswith("Requires-Dist: ")]
        wanted = [requirement.name for requirement in wanted if not requirement.marker]
        assert len(wanted) > 5, "the wheel names what it needs"
        for distribution in needed(wanted):
            for name in {path.parts[0] for path in distribution.files} - {"..", "__pycache__"}:
                if not (packages / name).exists():
                    (packages / name).symlink_to(distribution.locate_file(name))
    elif how == "all":
        (packages / "all.pth").write_text(
            str(importlib.metadata.distribution("numpy").locate_file(""))
        )
    python = folder / "bin" / "python"
    offline = [] if how == "fetched" else ["--no-deps", "--no-index"]
    done = support.run_to_end(
        *PIP, "--python", python, "install", *offline, wheel, *more, seconds=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = support.run_to_end(*PIP, "--python", python, "check")
    assert done.returncode == 0 or how == "all", done.stdout
    return folder / "bin"


def variables(folder, programs):
    """As a user has them who knows of no clone; a package called lab is theirs."""
    (folder / "lab").mkdir(exist_ok=True)
    (folder / "lab" / "__init__.py").write_text(LAB)
    kept = {name: os.environ[name] for name in ("HOME", "XDG_STATE_HOME")}
    path = f"{programs}:/usr/bin:/bin"
    return {**kept, "PATH": path, "PYTHONPATH": str(folder), "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("linked", marks=pytest.mark.long),
        pytest.param("fetched", marks=pytest.mark.nightly),
    ],
)
def test_a_bare_environment(wheel, tmp_path, how):
    """Catches: a module or a file that the wheel lacks; an import of what it does not ask for."""
    with zipfile.ZipFile(wheel) as file:
        tops = {name.split("/")[0].partition("-")[0] for name in file.namelist()}
    assert tops == {"tfrun", NAME.replace("-", "_")}
    folder, programs = tmp_path / "elsewhere", installed(wheel, tmp_path / "venv", how)
    folder.mkdir()
    env = variables(folder, programs)

    def run(*command, code=0):
        done = support.run_to_end(programs / command[0], *command[1:], cwd=folder, env=env)
        assert done.returncode == code and "Traceback" not in done.stderr, done
        return done.stdout + done.stderr

    assert "usage: tfrun" in run("tfrun", "--help")
    assert run("python", "-c", IMPORT_ALL).startswith(str(tmp_path / "venv"))
    (folder / "train.py").write_text(TRAIN)
    (folder / "job.yaml").write_text("script: train.py\nroles: {ps: {replicas: 1}}\n")
    shutil.copy(support.ROOT / "tests" / "support" / "run_files.py", folder)
    env["OUTPUT_DIR"] = "run"
    output = run("tfrun", "--ps", "1", "--workers", "2", "--", "train.py")
    assert "test accuracy 90.0%" in output and "[ps 0] done" in output, output
    left = {path.name for path in (folder / "run").iterdir()}
    assert {"result.json", "curves.png", "tensorboard", "ps-0.log"} <= left
    run("tfrun", "trace", "run")
    assert (folder / "run" / "trace.png").exists()
    assert "run" in run("tfrun", "status")
    assert "TF_CONFIG" in run("tfrun", "--dry-run", "--ps", "1", "--", "train.py")
    assert "train.py" in run("tfrun", "run", "job.yaml", "--dry-run")
    assert "by tfrun" in run("tfrun", "new", "my-app", "--from", "Horovod-RingAllReduce")
    assert list((folder / "my-app").glob("*.whl")), "its Dockerfile installs the same tfrun"
    for command in "evaluate", "export":
        lines = run("tfrun", command, "run", code=1).splitlines()
        assert len(lines) == 1 and "pip install 'tensorflow==" in lines[0], lines


@pytest.mark.long
def test_a_copied_example_with_a_problem_of_ones_own(wheel, tmp_path):
    """Catches an adapter that the wheel lacks, and a command that takes it from the clone."""
    folder, programs = tmp_path / "elsewhere", installed(wheel, tmp_path / "venv", "all")
    folder.mkdir()
    for path in "HogWild/hogwild.py", "Your-Model/convolution.py":
        shutil.copy(support.ROOT / path, folder)
    env = {**variables(folder, programs), "OUTPUT_DIR": "run", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = ["tfrun", "--ps", "1", "--workers", "2", "--problem", "convolution.py"]
    for words in [*command, "--", "hogwild.py", "--steps", "30"], ["tfrun", "export", "run"]:
        done = support.run_to_end(programs / words[0], *words[1:], cwd=folder, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "run" / "model.keras").exists()


@pytest.mark.nightly
@pytest.mark.timeout(2400)  # more than its own limits, which grow with the load
def test_folders_that_are_made_trained_and_tested(wheel, tmp_path):
    """Catches: a package that a made folder needs and the wheel does not ask for; a made script or
    test that needs the clone; a folder that takes more than three minutes."""
    folder, what = tmp_path / "elsewhere", f"{wheel}[training]"
    programs = installed(what, tmp_path / "venv", "fetched", "pytest")
    folder.mkdir()
    shutil.copy(support.ROOT / "Your-Model" / "convolution.py", folder / "my.py")
    env = {**variables(folder, programs), "TF_CPP_MIN_LOG_LEVEL": "2"}
    for name, more in [
        ("HogWild", ["--model", "my.py"]),
        ("Ring-AllReduce", []),
        ("Collective-AllReduce", ["--model", "my.py"]),
    ]:
        limit = support.Limit(180)
        for words, place in [
            (["tfrun", "new", name, "--from", name, *more], folder),
            (["bash", "run.sh", "--steps", "20"], folder / name),
            (["python", "-m", "pytest", "-q"], folder / name),
        ]:
            program = words[0] if words[0] == "bash" else programs / words[0]
            done = support.run_to_end(program, *words[1:], cwd=place, env=env, seconds=170)
            assert done.returncode == 0, done.stdout + done.stderr
        assert "3 passed" in done.stdout and not limit.is_over(), name
        assert (folder / name / wheel.name).exists()
