"""Makes .venv from requirements.lock, with nothing but Python's standard library.

    python environment.py ROOT        make ROOT/.venv, unless it is there and up to date
    python environment.py --active    exit with 0 if the running Python has every locked package

.venv counts as complete when its last file is written: .venv/complete, with the lock file's hash.
What an interruption left is made anew, from pip's cache.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

PACKAGES = re.compile(r"^[a-zA-Z0-9][^\\#\n]*", re.MULTILINE)  # in a lock file, with their pins


def missing_packages(lock: pathlib.Path) -> list[str]:
    """Returns the locked packages that the running Python lacks or has in another version."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]
    absent = []
    for package in map(Requirement, PACKAGES.findall(lock.read_text())):
        if package.marker and not package.marker.evaluate():
            continue
        try:
            version = importlib.metadata.version(package.name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is None or version not in package.specifier:
            absent.append(package.name)
    return absent


def say(text: str, end: str = "\n") -> None:
    """Progress, on standard error so that a run's output stays clean; in place on a terminal."""
    start = "\r\033[K" if sys.stderr.isatty() else ""
    print(start + text, end=end, file=sys.stderr, flush=True)


def say_now(text: str) -> None:
    """Says what goes on; on a terminal the next line takes its place."""
    say(text, "" if sys.stderr.isatty() else "\n")


def fail(text: str) -> NoReturn:
    """Ends with one line."""
    say("set-up failed: " + text)
    sys.exit(1)


def make(root: pathlib.Path) -> None:
    """Makes root/.venv, unless it is complete; a second caller waits for the first."""
    venv, lock, began = root / ".venv", root / "requirements.lock", time.time()
    complete = venv / "complete"
    # Where it really is: its programs name that folder, so elsewhere they do not run.
    place = venv.resolve() if venv.is_symlink() else venv
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    mark = f"{wanted} {place.parent if place.name == '.venv' else place}\n"

    def is_complete() -> bool:
        up_to_date = complete.exists() and complete.read_text() == mark
        return up_to_date and (venv / "bin" / "python").exists()

    if is_complete():
        return
    with hold_lock(root):
        if is_complete():
            return
        refuse_another_folder(venv, place)
        before = complete.read_text() if complete.exists() else mark
        if before != mark and before.startswith(wanted):
            say(f"{venv} was made elsewhere, and its programs name that folder: it is made anew")
        python = sys.version.split()[0]
        say(f"setting up {venv} with Python {python}: once, 1 to 5 minutes, 2.5 GB")
        make_empty(place)
        install(venv, lock)
        complete.write_text(mark)
        say(f"set up in {time.time() - began:.0f} s")


@contextlib.contextmanager
def hold_lock(root: pathlib.Path) -> Iterator[None]:
    """Waits until no other set-up of root/.venv goes on, and keeps others waiting meanwhile."""
    try:
        lock_file = open(root / ".venv.lock", "w")
    except OSError as error:
        fail(
            f"{root} cannot be written ({error.strerror}): copy it to a folder of your own, "
            "or activate an environment that has the packages of requirements.lock"
        )
    with lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another set-up of {root / '.venv'}")
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        except OSError:
            say("this file system has no locks: start no second set-up meanwhile")
        yield


def refuse_another_folder(venv: pathlib.Path, place: pathlib.Path) -> None:
    """Ends where a link leads to a folder that holds something else than an environment of ours.

    place: where the link `venv` leads; the same as venv where it is no link.
    """
    ours = place.name != ".venv" and (place / "pip.log").exists()
    if place != venv and place.exists() and not (ours or is_empty(place)):
        fail(
            f"{venv} leads to {place}, which holds something else: remove this link, or let "
            "it lead to a new folder"
        )


def make_empty(place: pathlib.Path) -> None:
    """Makes a virtual environment without packages in this folder, in place of what is there."""
    shutil.rmtree(place, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        told = (done.stdout + done.stderr).strip()
        why = told.split("\n")[-1]
        if "ensurepip" in told or "No module named" in told:
            why = "Debian and Ubuntu: apt install python3-venv"
        fail(f"{sys.executable} cannot make a virtual environment in {place}; {why}")


def is_empty(folder: pathlib.Path) -> bool:
    """Whether a path is a folder without anything in it."""
    return folder.is_dir() and not any(folder.iterdir())


def for_pip() -> dict[str, str]:
    """Returns the environment of pip without what would install the packages elsewhere."""
    elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    env = {name: value for name, value in os.environ.items() if name not in elsewhere}
    return {**env, "PIP_USER": "0"}  # also against a pip.conf


def install(venv: pathlib.Path, lock: pathlib.Path) -> None:
    """Installs the lock file's packages with pip, with a line of progress for each.

    Python then also imports what stands beside .venv, such as tfrun.
    """
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    log = venv / "pip.log"
    process = subprocess.Popen(
        [*pip, "install", "--log", log, "--progress-bar", "off", "--require-hashes", "-r", lock],
        env=for_pip(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    total, number = len(PACKAGES.findall(lock.read_text())), 0
    last: list[str] = []
    for line in process.stdout:
        last = [*last, line][-50:]
        # "Processing": pip has found a file of the package on this machine.
        number += line.startswith(("Collecting ", "Processing ", "Ignoring "))
        if line.startswith("Installing collected packages"):
            show_installing(process, venv, line.count(",") + 1)
        elif line.startswith(("Collecting ", "Processing ")):
            say_now(f"fetching package {number} of {total}: {pathlib.Path(line.split()[1]).name}")
    if process.wait():
        pip_failed(last, log)
    # Relative, so that it is right where the folder has moved, and where .venv is a link.
    for packages in venv.glob("lib/*/site-packages"):
        (packages / "project.pth").write_text("../../../..\n")


def show_installing(process: subprocess.Popen[str], venv: pathlib.Path, total: int) -> None:
    """Says once a second how many packages are installed, until pip ends."""

    def installed() -> int:
        return len([*venv.glob("lib/*/site-packages/*.dist-info")])

    before, told = installed(), None
    while process.poll() is None:
        number = min(installed() - before + 1, total)
        if number != told:
            say_now(f"installing package {number} of {total}")
            told = number
        time.sleep(1)


def pip_failed(last: list[str], log: pathlib.Path) -> None:
    """Ends with one line that says why, from the last lines of pip's output."""
    text = "".join(last)
    # Every package that we ask for exists: pip finds no version only where it reaches no index.
    if "(from versions: none)" in text or "connection" in text.lower():
        fail(f"pip cannot reach the package index; is there a network? ({log})")
    errors = [line.strip() for line in last if line.startswith("ERROR")] or [text.strip()[-200:]]
    fail(f"pip: {errors[0][:200]} ({log})")


if __name__ == "__main__":
    if sys.argv[1:] == ["--active"]:
        absent = missing_packages(pathlib.Path(__file__).resolve().parents[1] / "requirements.lock")
        if absent:
            names = ", ".join(absent[:3]) + (" and others" if len(absent) > 3 else "")
            say(f"The active environment ({sys.prefix}) lacks {names}; using .venv instead")
        sys.exit(bool(absent))
    os.umask(0o022)
    make(pathlib.Path(sys.argv[1]))
