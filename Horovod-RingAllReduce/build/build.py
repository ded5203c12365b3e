"""Puts Horovod into the active environment; builds it first, where that was not done yet.

    python build.py

Horovod 0.28.1 is of June 2023, and does not compile against TensorFlow 2.21 as it is: one file,
xla_mpi_ops.cc, asks for headers that have moved. It is for functions that XLA compiles, of which
there are none here; without it the rest compiles. The finished wheel, one for each version of
Python and of TensorFlow, is kept in .wheels of this repository, or in HOROVOD_WHEELS.

The machine must have a C++17 compiler; cmake and ninja come from PyPI, for the build alone.
"""

import contextlib
import fcntl
import importlib.metadata
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time

from tfrun.launch import signals, watchdog
from tfrun.launch.task import end_with_parent
from tfrun.runs import waiting
from lab.environment import fail, for_pip, pip_failed, say

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 3600  # seconds for the build; it takes 4 minutes on 2 cores
PROGRAM = b"#include <optional>\nint main() { if constexpr (true) return *std::optional<int>(0); }"
# Gloo, Horovod's own messages over TCP, is all that it needs: no MPI.
SETTINGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_GENERATOR": "Ninja",
    "MAKEFLAGS": " ",  # or setup.py asks for 8 compilers at once; ninja knows the cores
}


def version(*packages):
    """The version of the first of these packages that is installed, or None."""
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    return None


def installed(label):
    """Whether Horovod is here: one for this TensorFlow, or one that somebody else has built."""
    horovod = version("horovod")
    return horovod is not None and ("+tf" not in horovod or horovod.endswith("+" + label))


def compiler():
    """Ends with one line when there is no compiler for C++17."""
    for name in filter(None, [os.environ.get("CXX"), "c++", "g++", "clang++"]):
        if shutil.which(name):
            test = [name, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
            if subprocess.run(test, input=PROGRAM, capture_output=True, timeout=60).returncode == 0:
                return
    fail(
        "Horovod has to be built, and that needs a C++17 compiler; Debian and Ubuntu: "
        "apt install g++"
    )


def run(command, log, progress=None, **options):
    """Runs a command to its end; its output goes to `log`, each line of it to progress(line)."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=end_with_parent,
        **options,
    )
    # As tfrun does: whatever becomes of us, none of the compilers stays behind.
    guard = subprocess.Popen(
        [sys.executable, "-SE", "-m", watchdog.__name__],
        cwd=pathlib.Path(watchdog.__file__).parents[2],  # where it finds tfrun
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    guard.stdin.write(f"+{process.pid} {waiting.start_of(process.pid)}\n".encode())
    guard.stdin.flush()
    timer = threading.Timer(LIMIT, guard.stdin.close)
    timer.daemon = True
    timer.start()
    last = []
    try:
        for line in process.stdout:
            log.write(line)
            last = [*last, line][-50:]
            if progress:
                progress(line)
        return process.wait(), last
    finally:
        timer.cancel()
        guard.stdin.close()  # it ends the group, of which nothing is left if all went well
        guard.wait()
        process.wait()


def pip(log, *arguments):
    """Runs pip; ends with one line that says why it failed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    code, last = run([*command, *arguments], log, env=for_pip())
    if code:
        pip_failed(last, log.name)


def build(label, folder, log):
    """Builds the wheel in `folder`, which is empty; returns its path."""
    say("fetching Horovod and its tools")
    source = "--no-deps --require-hashes --no-binary horovod --no-build-isolation".split()
    pip(log, "download", *source, "-d", folder, "-r", HERE / "requirements.txt")
    tools = folder / "tools"
    pip(log, "install", "--no-deps", "--no-index", "--target", tools, *folder.glob("*.whl"))
    with tarfile.open(*folder.glob("horovod-*.tar.gz")) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4
        archive.extractall(folder, **safely)
    source = next(folder.glob("horovod-*/"))
    lists = source / "horovod" / "tensorflow" / "CMakeLists.txt"
    text, count = re.subn(r".*xla_mpi_ops\.cc.*\n", "", lists.read_text())
    assert count == 1, f"{count} lines with xla_mpi_ops.cc in {lists}"
    lists.write_text(text)

    began, told, terminal = time.time(), 0.0, sys.stderr.isatty()

    def progress(line):
        nonlocal told
        counts = re.match(r"\[(\d+)/(\d+)\]", line)
        if counts and time.time() > told + (0.2 if terminal else 15):
            told = time.time()
            text = f"building Horovod: {counts[1]} of {counts[2]} files, {told - began:.0f} s"
            say(text, end="" if terminal else "\n")

    paths = {"PYTHONPATH": str(tools), "PATH": "{}:{}".format(tools / "bin", os.environ["PATH"])}
    code, _ = run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", folder],
        log,
        progress,
        cwd=source,
        env={**os.environ, **SETTINGS, **paths, "HOROVOD_LOCAL_VERSION": label},
    )
    if code:
        fail(f"Horovod could not be built; what the compiler said is in {log.name}")
    return next(folder.glob("horovod-*.whl"))


def main():
    end_with_parent()  # whoever started us
    signals.handle(lambda *_: sys.exit(143), signal.SIGTERM)
    label = "tf" + version("tensorflow-cpu", "tensorflow")
    if installed(label):
        return
    wheels = pathlib.Path(os.environ.get("HOROVOD_WHEELS") or ROOT / ".wheels").resolve()
    wheels.mkdir(parents=True, exist_ok=True)
    python = "cp%d%d" % sys.version_info[:2]
    machine = re.sub("[-.]", "_", sysconfig.get_platform())
    wheel = wheels / (f"horovod-0.28.1+{label}-{python}-{python}-{machine}.whl")
    with open(wheels / "lock", "w") as only_one, open(wheels / "build.log", "a") as log:
        try:
            fcntl.flock(only_one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of Horovod")
            fcntl.flock(only_one, fcntl.LOCK_EX)
        except OSError:
            say("this file system has no locks: start no other run of Horovod meanwhile")
        if not wheel.exists():
            if " " in sys.prefix:  # its flags for the compiler would be cut there
                fail(f"Horovod cannot be built where a path has a space: {sys.prefix}")
            compiler()
            say(f"building Horovod for TensorFlow {label[2:]}: once, about 4 minutes on 2 cores")
            began, folder = time.time(), wheels / "building"
            shutil.rmtree(folder, ignore_errors=True)  # what an interruption has left
            folder.mkdir()
            os.replace(build(label, folder, log), wheel)
            shutil.rmtree(folder, ignore_errors=True)
            say(f"built in {time.time() - began:.0f} s: {wheel}")
        if not installed(label):
            pip(log, "install", "--no-deps", "--no-index", wheel)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
