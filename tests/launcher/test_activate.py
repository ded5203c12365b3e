"""activate.sh in a copy with a tiny lock file: what happens on machines unlike this one."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import support
from lab import examples
from packaging.requirements import Requirement

BROKEN = f"there-is-no-such-package==1.0 --hash=sha256:{'0' * 64}\n"


@pytest.fixture
def project(tmp_path):
    """A folder with a space in its name, with activate.sh, its helper, and an empty lock file."""
    root = tmp_path / "a project"
    (root / "lab").mkdir(parents=True)
    shutil.copy(support.ROOT / "activate.sh", root)
    shutil.copy(support.ROOT / "lab" / "environment.py", root / "lab")
    (root / "requirements.lock").write_text("# nothing\n")
    return root


def command(root, then):
    return ["bash", "-c", f'set -eu; source "{root}/activate.sh"; {then}']


def environment(**more):
    """As on a machine on which nothing of ours is active, with Python on the PATH."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHON", "RUNS_DIR")
    }
    env["PATH"] = "/usr/bin:/bin"
    return {**env, "PYTHON": sys.base_prefix + "/bin/python3", "PIP_RETRIES": "0", **more}


def activate(root, then="python -c 'import sys; print(sys.prefix)'", **env):
    """(exit code, standard output, lines of standard error) of sourcing activate.sh."""
    done = subprocess.run(
        command(root, then),
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=support.patience(60),
    )
    return done.returncode, done.stdout.strip(), done.stderr.splitlines()


WHERE = "import lab; print(lab.__path__[0])"


@pytest.mark.long
def test_first_use_second_use_and_a_new_lock(project):
    """Catches, too: another clone's modules before our own; ours not found after a move."""
    (project / "lab" / "__init__.py").touch()
    code, prefix, told = activate(project)
    assert code == 0 and prefix == str(project / ".venv"), told
    assert told[0].startswith(f"setting up {project}/.venv") and told[-1].startswith("set up in")
    (project / ".venv" / "mark").touch()
    began = time.monotonic()
    assert activate(project) == (0, prefix, []), "the second use says nothing"
    assert time.monotonic() - began < support.patience(2)
    assert (project / ".venv" / "mark").exists()

    (project / "requirements.lock").write_text("# something else\n")
    code, _, told = activate(project)
    assert code == 0 and told[-1].startswith("set up in")
    assert not (project / ".venv" / "mark").exists(), "made anew"
    ours = activate(project, f"cd /; python -c '{WHERE}'", PYTHONPATH=str(support.ROOT))
    assert ours == (0, str(project / "lab"), [])
    moved = project.rename(project.with_name("moved"))
    python, env = moved / ".venv" / "bin" / "python", environment(PYTHONPATH="")
    done = support.run_to_end(python, "-c", WHERE, cwd="/", env=env)
    assert done.stdout.strip() == str(moved / "lab"), done.stderr


@pytest.mark.long
def test_an_interrupted_set_up_is_made_anew(project):
    """Killed while pip waits for a server that does not answer; then with a server that does."""
    (project / "requirements.lock").write_text(BROKEN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen(
            command(project, "true"),
            start_new_session=True,
            stderr=subprocess.DEVNULL,
            env=environment(PIP_INDEX_URL=f"http://127.0.0.1:{silent.getsockname()[1]}/"),
        )
        silent.settimeout(40)
        silent.accept()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert (project / ".venv").exists() and not (project / ".venv" / "complete").exists()
    (project / "requirements.lock").write_text("# nothing\n")
    code, prefix, told = activate(project)
    assert code == 0 and prefix == str(project / ".venv"), told


@pytest.mark.long
def test_two_at_once_make_it_once(project):
    processes = [
        subprocess.Popen(
            command(project, "true"), env=environment(), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    assert sum("setting up" in text for text in told) == 1, told


PIP = """#!/bin/sh
echo "Ignoring other: markers do not match your environment"
echo "Processing /wheels/one-1.0-py3-none-any.whl (from line 1)"
echo "Collecting two==2.0 (from line 2)"
echo "Installing collected packages: one, two"
packages=$(dirname "$0")/../lib/python3/site-packages
sleep 1; mkdir -p "$packages/one-1.0.dist-info"; sleep 1.5
"""


def test_progress_goes_on_to_the_last_package(project, capsys):
    """Also where pip finds files on this machine, and while it installs."""
    lock, venv = project / "requirements.lock", project / ".venv"
    lock.write_text("one==1.0\ntwo==2.0\nother==3.0\n")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(PIP)
    (venv / "bin" / "python").chmod(0o755)
    examples.load(support.ROOT / "lab" / "environment.py").install(venv, lock)
    assert capsys.readouterr().err.splitlines() == [
        "fetching package 2 of 3: one-1.0-py3-none-any.whl",
        "fetching package 3 of 3: two==2.0",
        "installing package 1 of 2",
        "installing package 2 of 2",
    ]


def test_no_network(project):
    (project / "requirements.lock").write_text(BROKEN)
    nothing = dict.fromkeys(["PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"], "")
    code, _, told = activate(project, PIP_INDEX_URL="http://127.0.0.1:9/", **nothing)
    assert code != 0 and "pip cannot reach the package index; is there a network?" in told[-1], told
    assert not (project / ".venv" / "complete").exists()


# In place of the module venv: makes a bin/python that stands for pip and tells what pip is told.
VENV = """import os, pathlib, sys
place = pathlib.Path(sys.argv[1])
(place / "bin").mkdir(parents=True)
python = place / "bin" / "python"
python.write_text('#!/bin/sh\\ncase "$*" in *pip.log*) touch "%s/pip.log"; env > "%s/env";; esac\\n'
                  % (place, place))
python.chmod(0o755)
"""
NO_FLOCK = """import errno, fcntl
def flock(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = flock
"""


@pytest.fixture
def quick(tmp_path):
    """Returns the environment in which .venv is made by VENV, without flock where it is asked."""
    (tmp_path / "modules" / "venv").mkdir(parents=True)
    (tmp_path / "modules" / "venv" / "__init__.py").touch()
    (tmp_path / "modules" / "venv" / "__main__.py").write_text(VENV)
    return {"PYTHONPATH": str(tmp_path / "modules")}


def test_the_dev_container_makes_the_environment(project, quick):
    """Its command, in the folder and with the environment that a container gives it."""
    container = json.loads((support.ROOT / ".devcontainer" / "devcontainer.json").read_text())
    env = environment(**quick, PATH=sys.base_prefix + "/bin:/usr/bin:/bin", PYTHON="")
    done = support.run_to_end(*container["postCreateCommand"], cwd=project, env=env)
    assert done.returncode == 0, done.stderr
    settings = container["customizations"]["vscode"]["settings"]
    (python,) = settings.values()
    assert os.path.exists(python.replace("${containerWorkspaceFolder}", str(project)))
    assert re.fullmatch(r"\S+/python:3\.1[0-3]-\w+", container["image"]), "activate.sh takes it"


def test_a_file_system_without_locks(project, quick, tmp_path):
    """Lustre without flock: catches a first set-up that ends in a traceback."""
    (tmp_path / "modules" / "sitecustomize.py").write_text(NO_FLOCK)
    code, _, told = activate(project, "true", **quick)
    assert code == 0 and told[-1].startswith("set up in"), told
    assert "no locks" in told[0]


def test_settings_of_pip_that_install_elsewhere(project, quick, tmp_path):
    """Catches PIP_USER and PIP_TARGET, which a venv refuses, or which leave it empty."""
    code, _, told = activate(project, "true", PIP_USER="1", PIP_TARGET=str(tmp_path), **quick)
    assert code == 0, told
    lines = (project / ".venv" / "env").read_text().splitlines()
    assert "PIP_USER=0" in lines and not any(line.startswith("PIP_TARGET") for line in lines)


def test_a_link_as_venv(project, quick, tmp_path):
    """It is made where the link leads, removes nothing of others, and is used once it is there."""
    place, link = tmp_path / "scratch" / "packages", project / ".venv"
    link.symlink_to(place)
    code, _, told = activate(project, "true", **quick)
    assert code == 0 and link.is_symlink() and (place / "complete").exists(), told
    assert activate(project, "true", **quick) == (0, "", [])
    (project / "requirements.lock").write_text("# others\n")
    code, _, told = activate(project, "true", **quick)
    assert code == 0 and told[-1].startswith("set up in"), told

    # A folder with something else, which may be all of somebody's data.
    link.unlink()
    link.symlink_to(tmp_path / "scratch")
    code, _, told = activate(project, "true", **quick)
    assert code != 0 and "holds something else" in told[-1] and (place / "complete").exists(), told


def test_the_venv_of_another_clone(project, quick, tmp_path):
    """As a link it is used if it has the same packages, and left alone otherwise."""
    other = shutil.copytree(project, tmp_path / "other")
    assert activate(other, "true", **quick)[0] == 0
    (project / ".venv").symlink_to(other / ".venv")
    assert activate(project, "true", **quick) == (0, "", [])
    (project / "requirements.lock").write_text("# others\n")
    code, _, told = activate(project, "true", **quick)
    assert code != 0 and "remove this link" in told[-1], told
    assert (other / ".venv" / "complete").exists()


def test_a_venv_that_was_moved(project, quick, tmp_path):
    """Its programs begin with the path of a Python that has gone: it is made anew, and says why."""
    assert activate(project, "true", **quick)[0] == 0
    moved = project.rename(tmp_path / "moved")
    code, _, told = activate(moved, "true", **quick)
    assert code == 0 and "was made elsewhere" in told[0], told
    (moved / ".venv" / "bin" / "python").unlink()
    code, _, told = activate(moved, "true", **quick)
    assert code == 0 and told[0].startswith("setting up"), told


def test_what_venv_says(project, tmp_path):
    """Catches the advice to install a package that is there, instead of the real reason."""
    (project / ".venv").write_text("a file")
    code, _, told = activate(project)
    assert code != 0 and "Unable to create directory" in told[-1] and "apt" not in told[-1], told


def test_pythonhome_of_another_python(project, quick):
    """Catches "Python 3.10 is needed" where it is there, but cannot begin."""
    code, _, told = activate(project, "true", PYTHONHOME="/opt/other", **quick)
    assert code == 0, told


def test_no_venv_module(project, tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "__init__.py").touch()
    (tmp_path / "venv" / "__main__.py").write_text("raise SystemExit('ensurepip is not available')")
    code, _, told = activate(project, PYTHONPATH=str(tmp_path))
    assert code != 0 and "apt install python3-venv" in told[-1], told


def test_no_fitting_python(project, tmp_path):
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    # As 3.9 answers to the version check.
    (tmp_path / "bin" / "python3").write_text("#!/bin/bash\nexit 1\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    code, _, told = activate(project, PATH=str(tmp_path / "bin"), PYTHON="")
    assert code != 0 and len(told) == 1, told
    assert "Python 3.10, 3.11, 3.12 or 3.13 is needed" in told[0]


def test_a_python_that_is_not_there(project):
    """A typo in PYTHON is told, and no other Python is taken."""
    code, _, told = activate(project, PYTHON="/no/python3")
    assert code != 0 and len(told) == 1 and "PYTHON=/no/python3 is none" in told[0], told
    assert not (project / ".venv").exists()


def test_a_project_that_cannot_be_written(project):
    (project / ".venv.lock").mkdir()  # fails for root, too
    code, _, told = activate(project)
    assert code != 0 and len(told) == 1, told
    assert told[0].startswith("set-up failed: ") and "copy it to a folder of your own" in told[0]


def test_pages_activate_before_they_need_python():
    """In a block of commands; and git ignores the run directories that pages name."""
    named = set()
    for page in [support.ROOT / "README.md", *(support.ROOT / "docs").glob("*.md")]:
        for block in re.findall(r"^```\w*\n(.*?)^```$", page.read_text(), re.M | re.S):
            before, activates, _ = block.partition("source activate.sh")
            assert not (activates and re.search("^(python|tfrun) ", before, re.M)), page
            named.update(re.findall(r"OUTPUT_DIR=([\w-]+) ", block))
    assert named
    done = support.run_to_end("git", "check-ignore", *(f"{name}/" for name in named))
    assert set(done.stdout.split()) == {f"{name}/" for name in named}


@pytest.mark.long
def test_an_active_environment(project):
    """Used as it is when it has what the lock file asks for, and left alone when it has not."""
    env = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}
    assert activate(project, **env) == (0, sys.prefix, [])
    assert not (project / ".venv").exists()
    (project / "requirements.lock").write_text(
        "numpy==0.1 ; python_version > '3' \\\n    --hash=sha256:00\n"
    )
    code, _, told = activate(project, PIP_INDEX_URL="http://127.0.0.1:9/", **env)
    assert told[0] == f"The active environment ({sys.prefix}) lacks numpy; using .venv instead"
    assert code != 0, "there is no numpy 0.1 for .venv either"


def test_the_lock_file_fits_every_python():
    """The lock names each direct dependency once, with hashes, for each Python and platform."""
    text = (support.ROOT / "requirements.lock").read_text()
    lines = re.findall(r"^([a-z0-9][^\\\n]*?) *\\$", text, re.MULTILINE)
    entries = [Requirement(line) for line in lines]
    assert len(entries) > 100 and text.count("--hash=sha256:") > len(entries)
    project = (support.ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"(?ms)^(?:dependencies|training|examples|test) = \[(.*?)^\]", project)
    direct = [Requirement(text) for text in re.findall('^    "(.+?)"', "".join(lists), re.M)]
    own = [requirement for requirement in direct if requirement.extras]
    words = "the extra examples asks for what training needs, and test for what the examples need"
    assert [requirement.extras for requirement in own] == [{"training"}, {"examples"}], words
    direct = [requirement for requirement in direct if not requirement.extras]
    for python in ("3.10.1", "3.11.7", "3.12.1", "3.13.0"):
        for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")):
            there = {
                "python_version": python.rsplit(".", 1)[0],
                "python_full_version": python,
                "sys_platform": platform,
                "platform_machine": machine,
            }
            names, due = (
                [
                    entry.name
                    for entry in some
                    if entry.marker is None or entry.marker.evaluate(there)
                ]
                for some in (entries, direct)
            )
            assert len(names) == len(set(names)), (there, "a package stands twice")
            assert len(due) > 15 and set(due) <= set(names), (there, due)
            assert {"numpy", "scikit-learn", "pytest"} <= set(due), "of each list"
