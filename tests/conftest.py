"""For all tests: what they need, which skips are allowed, and that no process of ours is left."""

import functools
import os
import shutil
import signal
import subprocess
import tempfile

import psutil
import pytest
import support
from lab import examples

PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def commands(*names):
    """Returns a check that all these commands are there."""
    return lambda: all(shutil.which(name, path=PATH) for name in names)


def succeeds(*command):
    """Returns a check that a command exits with code 0."""
    return lambda: subprocess.run(command, capture_output=True).returncode == 0


EXTRAS = support.ROOT / "Beyond-One-Machine" / "extras.sh"
# What a test may need, as in @pytest.mark.needs("root", "ssh"): how it is checked, and the reason
# for which a test is skipped where it is missing. In the tier `nightly` such a test fails.
NEEDS = {
    "root": (lambda: os.geteuid() == 0, "needs root"),
    "two cores": (lambda: len(os.sched_getaffinity(0)) > 1, "needs two cores"),
    "ip": (commands("ip"), "needs ip (Debian: iproute2)"),
    "ssh": (commands("ssh", "sshd"), "needs ssh and sshd (Debian: openssh-server)"),
    "java": (
        succeeds("bash", "-c", f"source {EXTRAS} && java_for_spark"),  # as a run.sh does
        "needs Java 17 (Debian: openjdk-17-jre-headless)",
    ),
    "slurm": (
        commands("munged", "slurmctld", "slurmd", "sbatch"),
        "needs Slurm (Debian: slurm-wlm, munge)",
    ),
    "unshare": (
        succeeds("unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"),
        "needs namespaces for mounts and processes, which this machine does not allow",
    ),
    "node": (commands("node"), "needs node (Debian: nodejs)"),
    "chromium": (lambda: support.browser() is not None, "needs a browser (Debian: chromium)"),
}
MISSING = pytest.StashKey()  # of a test that is skipped for one of these reasons


@functools.cache
def has(need):
    """Returns whether this machine has what a test needs, by its name in NEEDS."""
    return NEEDS[need][0]()


def pytest_addoption(parser):
    words = "a test fails, instead of being skipped, where something that it needs is missing"
    parser.addoption("--require-needs", action="store_true", help=words)


def pytest_configure(config):
    if config.getoption("require_needs"):
        support.COLD.set()


# Beyond core, tests of scripts with sessions run by night only: nobody develops sessions.
SESSION_SCRIPTS = [path.stem for path in examples.scripts() if examples.SESSIONS in path.parts]


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items):
    for item in items:
        case = item.callspec.id if hasattr(item, "callspec") else ""
        if item.get_closest_marker("long") and any(
            name in case for name in [examples.SESSIONS, *SESSION_SCRIPTS]
        ):
            item.add_marker(pytest.mark.nightly)
    in_no_tier = [item.nodeid for item in items if {"long", "short"} <= marks_of(item)]
    if in_no_tier:
        raise pytest.UsageError(f"marked both long and short, so in no tier: {in_no_tier}")
    unknown = {need for item in items for need in needs(item)} - set(NEEDS)
    if unknown:
        raise pytest.UsageError(f"needs {unknown}: tests/conftest.py knows {list(NEEDS)}")


def marks_of(item):
    """Returns the names of a test's marks."""
    return {mark.name for mark in item.iter_markers()}


def needs(item):
    """Returns what a test needs, by its marks."""
    return [need for mark in item.iter_markers("needs") for need in mark.args]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    reasons = [NEEDS[need][1] for need in needs(item) if not has(need)]
    if reasons and item.config.getoption("require_needs"):
        pytest.fail("; ".join(reasons), pytrace=False)
    if reasons:
        item.stash[MISSING] = True
        pytest.skip("; ".join(reasons))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and MISSING not in item.stash:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but not by a mark needs: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped as a whole: {report.longrepr}"
    return report


def pytest_sessionstart(session):
    """Runs leave their records apart, and signals reach them, also after `nohup pytest &`."""
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    session.records = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="records-")


def pytest_sessionfinish(session):
    shutil.rmtree(session.records, ignore_errors=True)


@pytest.fixture(scope="module")
def quick(request):
    """Returns the cluster that serves all tests of a module, with what its QUICK asks for."""
    with support.QuickCluster(**getattr(request.module, "QUICK", {})) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_child_left():
    """Fails a test after which a process that it started still runs; ends that process."""
    before = set(psutil.Process().children(recursive=True))
    yield
    if support.fork_server.cache_info().currsize:  # it serves later tests, too
        server = psutil.Process(support.fork_server()[0].pid)
        before.add(server)
        # It ends a program when it learns that the process is gone for which the program ran.
        psutil.wait_procs(set(server.children(recursive=True)) - before, support.patience(5))
    left = [
        process
        for process in psutil.Process().children(recursive=True)
        if process not in before and support.is_running(process)
    ]
    for process in left:
        process.kill()
    assert not left, f"left running: {left}"
