"""Runs a tier of the tests, part by part.

    python tests/parts.py core
    python tests/parts.py all [PART ...] [pytest's flags]
    python tests/parts.py nightly [PART ...] [pytest's flags]
    python tests/parts.py parts

A part is a folder of tests, or a module in SPLIT. What a part prints last says how many minutes it
took, and how many it may take by tests/minutes.txt.

Where nothing is uncommitted, a part that passed is noted in runs/tests/<commit>/<tier>/, and not
run again at that commit; name it to run it all the same. So the parts that passed at one commit
count as one run.
"""

import itertools
import json
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
MINUTES = ROOT / "tests" / "minutes.txt"
OVER = 1.75  # fails a part: so many times its minutes; a busy machine may need a half more
TIERS = {  # the flags of pytest
    "core": ["-m", "not long and not nightly"],
    "all": ["-m", "not short and not nightly"],
    "nightly": ["-m", "not short", "--require-needs"],
}
# Modules that are a part of their own, because the others of their folder take long enough.
SPLIT = ["coordinator", "horovod", "operations", "recovery", "tfrun"]
# How many tests of a part run at once: two, but for those which measure time, and those which wait
# more than they compute.
ONE_AT_A_TIME = ["tfrun"]
THREE_AT_ONCE = ["coordinator", "launcher", "notebooks", "operations", "recovery"]
# How pytest-xdist deals out the tests of a part, where it must keep some of them together.
TOGETHER = dict.fromkeys(["engines", "launcher", "site"], "loadfile")  # a run serves its file


def find_parts():
    """Returns {part: its test modules}."""
    parts = {}
    for path in sorted(ROOT.glob("tests/*/test_*.py")):
        name = path.stem.removeprefix("test_")
        parts.setdefault(name if name in SPLIT else path.parent.name, []).append(path)
    return parts


PARTS = find_parts()


def git(*arguments):
    """Returns what git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def state():
    """Returns the commit, and whether nothing differs from it."""
    return git("rev-parse", "--short", "HEAD"), not git("status", "--porcelain")


def read_minutes(text):
    """Returns {part: the minutes that it may take} of a text like tests/minutes.txt."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {part: float(minutes) for part, minutes in lines}


def at_once(part):
    """Returns the flags of pytest-xdist for a part, or for core."""
    if part in ONE_AT_A_TIME:
        return []
    number = 3 if part in THREE_AT_ONCE else 2
    # Without TOGETHER: an equal share of the tests each, in order, so that few fixtures are made
    # twice.
    return [f"-n{number}", f"--dist={TOGETHER.get(part, 'worksteal')}"]


def run(name, flags, paths):
    """Runs pytest in a process of its own; returns the exit code, and a line about it.

    Its report, with the seconds of each test, is runs/tests/<name>.xml.
    """
    report = ROOT / "runs" / "tests" / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *flags, *paths]
    code = subprocess.run(command, cwd=ROOT).returncode
    if not report.exists():
        return code, f"no result, exit code {code}"
    suite = xml.etree.ElementTree.parse(report).getroot()[0]
    names = ["tests", "failures", "errors", "skipped"]
    tests, failures, errors, skipped = [int(suite.get(name)) for name in names]
    failed = failures + errors
    line = f"{tests - failed - skipped} passed, {failed} failed, {skipped} skipped"
    return code, line + (f", exit code {code}" if code else "")


def compare_minutes(minutes, allowed):
    """Returns whether a part took too long, and words about it."""
    words = f"in {minutes:.1f} of {allowed:g} minutes"
    if minutes > allowed:
        words += ": TOO LONG; run it again when nothing else runs, or make it faster"
    return minutes > OVER * allowed, words


def first_failure(codes):
    """Returns the first exit code that is not 0, or 0; one below 0 is that of a killed pytest."""
    return next((code for code in codes if code), 0)


def run_core():
    """Runs the tier core: what measures time one test at a time, the rest two at once."""
    began, codes = time.monotonic(), []
    alone = [path for part in ONE_AT_A_TIME for path in PARTS[part]]
    others = [path for paths in PARTS.values() for path in paths if path not in alone]
    lines = [""]
    for name, paths, flags in (
        ("two at once", others, at_once("core")),
        ("one at a time", alone, []),
    ):
        code, line = run(f"core, {name}", [*TIERS["core"], *flags], paths)
        codes.append(code)
        lines.append(f"core, {name}: {line}")
    minutes = (time.monotonic() - began) / 60
    too_long, words = compare_minutes(minutes, read_minutes(MINUTES.read_text())["core"])
    print("\n".join([*lines, f"core: {words}"]))
    return first_failure(codes) or int(too_long)


def run_part(tier, part, flags):
    """Runs a part; returns the exit code, and a line about it."""
    began = time.monotonic()
    # With flags of pytest, such as -k or -s, a few tests are meant, and their output.
    more = flags or at_once(part)
    code, line = run(f"{tier}, {part}", [*TIERS[tier], *more], PARTS[part])
    minutes = (time.monotonic() - began) / 60
    if flags or tier != "all":
        return code, f"{line} in {minutes:.1f} minutes"
    too_long, words = compare_minutes(minutes, read_minutes(MINUTES.read_text())[part])
    return code or int(too_long), f"{line} {words}"


def main():
    """Returns the exit code: 0 if every part has passed."""
    tier, words = sys.argv[1], sys.argv[2:]
    if tier == "parts":
        print(json.dumps(list(PARTS)))
        return 0
    if tier == "core":
        return run_core()
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    flags = words[len(names) :]
    if unknown := set(names) - set(PARTS):
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    lines, failed = [], 0
    for part in names or PARTS:
        before = commit, clean = state()
        note = ROOT / "runs" / "tests" / commit / tier / part
        if clean and not names and not flags and note.exists():
            line = note.read_text() + ", before"
        else:
            code, line = run_part(tier, part, flags)
            failed = failed or code
            counts = not flags and clean and state() == before
            if counts and code:
                note.unlink(missing_ok=True)
            elif counts:
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(line)
        where = commit if clean and state() == before else f"{commit}, with changes"
        lines.append(f"{part:11} {line}, at {where}")
    print("\n".join(["", *lines]))
    return failed


if __name__ == "__main__":
    sys.exit(main())
