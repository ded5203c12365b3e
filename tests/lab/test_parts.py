"""The tiers of the tests: their parts, and the minutes that these may take."""

import re
import sys

import parts
import pytest
import support

SKIPS = """
import conftest, pytest

conftest.NEEDS["never"] = (lambda: False, "needs what is nowhere")

@pytest.mark.needs("never")
def test_need(): pass

def test_call(): pytest.skip("no time")

@pytest.mark.skip
def test_mark(): pass
"""


def test_every_module_is_in_one_part():
    """Catches a module that no tier runs, and a name in tests/parts.py that no module has."""
    modules = sorted(path for path in (support.ROOT / "tests").rglob("test_*.py"))
    assert sorted(path for paths in parts.PARTS.values() for path in paths) == modules
    named = [*parts.SPLIT, *parts.ONE_AT_A_TIME, *parts.THREE_AT_ONCE, *parts.TOGETHER]
    assert set(named) <= set(parts.PARTS)


def test_each_part_has_its_minutes():
    """Catches a part without minutes, and more of them than somebody waits: core's, and all."""
    minutes = parts.read_minutes(parts.MINUTES.read_text())
    assert minutes.keys() == {"core", *parts.PARTS}
    assert minutes.pop("core") <= 11 and sum(minutes.values()) <= 50, minutes


def test_too_many_minutes_fail():
    """Catches a comparison that nothing fails."""
    assert parts.compare_minutes(17.4, 10)[0] is False
    too_long, words = parts.compare_minutes(17.6, 10)
    assert too_long and words.startswith("in 17.6 of 10 minutes: TOO LONG")


def test_a_killed_pytest_fails():
    """Catches a run that passed because its exit code, minus the signal, is below 0."""
    assert parts.first_failure([0, 0]) == 0
    assert parts.first_failure([-9, 0]) == -9 and parts.first_failure([0, 1]) == 1


def run(folder, text, *flags):
    """Runs a module of tests beside a copy of conftest.py; returns (exit code, output)."""
    (folder / "conftest.py").write_text((support.ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(text)
    configuration = ["-c", support.ROOT / "pyproject.toml", "--rootdir", folder]
    command = [sys.executable, "-m", "pytest", *configuration, *flags, folder / "test_it.py"]
    done = support.run_to_end(*command, cwd=folder)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_what_a_skip_means(tmp_path):
    """Catches a skip that nobody notices, and a need that nightly does not ask for."""
    code, output = run(tmp_path, SKIPS)
    assert code == 1 and "1 failed, 1 skipped, 1 error" in output, output
    # A set, because pytest says it twice where the variable CI is set.
    refused = set(re.findall(r"(\w+) was skipped, but not by a mark needs", output))
    assert refused == {"test_call", "test_mark"}, output
    assert re.search(r"SKIPPED .* needs what is nowhere", output), output
    code, output = run(tmp_path, SKIPS, "--require-needs")
    assert code == 1 and "1 failed, 2 errors" in output, output
    code, output = run(tmp_path, SKIPS.replace('conftest.NEEDS["never"] = ', ""))
    assert code == 4 and "needs {'never'}: tests/conftest.py knows ['root', " in output, output
