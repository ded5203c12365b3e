"""Makes .venv from requirements.lock, with nothing but Python's standard library.

    python environment.py ROOT        make ROOT/.venv, unless it is there and up to date
    python environment.py --active    exit with 0 if the running Python has every locked package

.venv counts as made when its last file is written: .venv/complete, with the lock file's hash. What
an interruption left is made anew, from pip's cache.
"""

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

LOCK = pathlib.Path(__file__).resolve().parents[1] / "requirements.lock"


def fingerprint(lock):
    """What .venv/complete must say: made from this lock file, at this place."""
    return "%s %s\n" % (hashlib.sha256(lock.read_bytes()).hexdigest(), lock.parent)


def complete(venv, lock):
    """Whether `venv` was made to the end from `lock`, and its Python is still there."""
    done = venv / "complete"
    return (
        done.exists()
        and done.read_text() == fingerprint(lock)
        and (venv / "bin" / "python").exists()
    )


def missing(lock):
    """The packages of the lock file that the running Python lacks or has in another version."""
    from packaging.requirements import (
        Requirement,
    )  # the caller catches its absence

    lines = re.findall(r"^([a-zA-Z0-9][^\\#\n]*)", lock.read_text(), re.MULTILINE)
    absent = []
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate():
            try:
                fits = importlib.metadata.version(requirement.name) in requirement.specifier
            except importlib.metadata.PackageNotFoundError:
                fits = False
            if not fits:
                absent.append(requirement.name)
    return absent


def check_active():
    """0 if the active environment can be used as it is; otherwise 1 and a line that says why."""
    try:
        absent = missing(LOCK)
    except ImportError:
        absent = ["packaging"]
    if absent:
        print(
            "The active environment (%s) lacks %s%s; using .venv instead"
            % (
                sys.prefix,
                ", ".join(absent[:3]),
                " and %d more" % (len(absent) - 3) if len(absent) > 3 else "",
            ),
            file=sys.stderr,
        )
    return int(bool(absent))


def say(text, end="\n"):
    """Progress, on standard error so that a run's output stays clean; in place on a terminal."""
    start = "\r\033[K" if sys.stderr.isatty() else ""
    print(start + text, end=end, file=sys.stderr, flush=True)


def fail(text):
    """Ends with one line."""
    say("set-up failed: " + text)
    sys.exit(1)


def make(root):
    """Makes root/.venv; a second caller waits for the first."""
    venv, lock, began = root / ".venv", root / "requirements.lock", time.time()
    if complete(venv, lock):
        return
    with open(root / ".venv.lock", "w") as only_one:
        try:
            fcntl.flock(only_one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of %s" % venv)
            fcntl.flock(only_one, fcntl.LOCK_EX)
        if complete(venv, lock):
            return
        say(
            "setting up %s with Python %d.%d: once, 1 to 5 minutes, 2.2 GB"
            % (venv, *sys.version_info[:2])
        )
        shutil.rmtree(venv, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True, text=True)
        if made.returncode:
            fail(
                "%s cannot make a virtual environment; Debian and Ubuntu: apt install python3-venv"
                % sys.executable
            )
        install(venv, lock)
        (venv / "complete").write_text(fingerprint(lock))
        say("set up in %.0f s" % (time.time() - began))


def install(venv, lock):
    """Installs the lock file's packages with pip, with a line of progress."""
    total = len(re.findall(r"^[a-zA-Z0-9]", lock.read_text(), re.MULTILINE))
    log, collected, told, last = venv / "pip.log", 0, 0.0, []
    pip = subprocess.Popen(
        [
            venv / "bin" / "python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--no-input",
            "--progress-bar",
            "off",
            "--require-hashes",
            "-r",
            lock,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with open(log, "w") as file:
        for line in pip.stdout:
            file.write(line)
            last = [*last, line][-50:]
            collected += line.startswith(("Collecting ", "Ignoring "))
            if line.startswith("Installing collected packages"):
                say("installing the packages")
            elif line.startswith("Collecting ") and time.time() > told + (
                0.1 if sys.stderr.isatty() else 10
            ):
                told = time.time()
                say(
                    "fetching package %d of %d: %s" % (collected, total, line.split()[1]),
                    end="" if sys.stderr.isatty() else "\n",
                )
    if pip.wait():
        pip_failed(last, log)


def pip_failed(last, log):
    """Ends with one line that says why, from the last lines of pip's output."""
    text = "".join(last)
    # Every package that we ask for exists: pip finds no version only where it reaches no index.
    if "(from versions: none)" in text or "connection" in text.lower():
        fail("pip cannot reach the package index; is there a network? (%s)" % log)
    errors = [line.strip() for line in last if line.startswith("ERROR")] or [text.strip()[-200:]]
    fail("pip: %s (%s)" % (errors[0][:200], log))


if __name__ == "__main__":
    if sys.argv[1:] == ["--active"]:
        sys.exit(check_active())
    os.umask(0o022)
    make(pathlib.Path(sys.argv[1]))
