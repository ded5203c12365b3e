"""Runs the tier `all` part by part; the parts that passed at one commit count as one run.

    python tests/parts.py all [PART ...] [pytest's flags]
    python tests/parts.py parts

Where nothing is uncommitted, a part that passed is noted in runs/tests/<commit>/, and not run
again at that commit; name it to run it all the same.
"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = {  # a part: its test modules; each module belongs to one part
    "launcher": [
        *("activate", "tfrun", "summary", "errors", "regions", "readmes", "bad_input"),
        "first_use",
    ],
    "equations": [
        "equations",
        "identities",
        "reported",
        "synchronous",
        "replicas",
        "ring",
        "model_parallelism",
    ],
    "examples": ["examples", "cluster", "plug", "traffic"],
    "recovery": ["recovery"],
    "operations": ["operations"],
    "watching": ["watching", "trace", "job", "evaluate"],
    "coordinator": ["coordinator"],
    "horovod": ["horovod"],
    "notebooks": ["notebooks"],
    "spark": ["spark", "experiments", "tfos"],
    "engines": ["engines", "kubernetes", "slurm", "ssh", "ray", "start_up", "your_cluster"],
}
# Parts in which two tests may run at once, by these flags of pytest-xdist: they depend on no time,
# and are faster so.
TWO_AT_ONCE = {
    "equations": ["-n2", "--dist=load"],
    "notebooks": ["-n2", "--dist=loadgroup"],
    **dict.fromkeys(["spark", "engines"], ["-n2", "--dist=loadfile"]),
}


def files(part):
    """The test modules of a part."""
    return ["tests/test_%s.py" % name for name in PARTS[part]]


def git(*arguments):
    """What git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def state():
    """(the commit, whether nothing differs from it)"""
    return git("rev-parse", "--short", "HEAD"), not git("status", "--porcelain")


class Count:
    """A plugin of pytest that counts how tests end; what cannot be collected has failed."""

    def __init__(self):
        self.ends = dict.fromkeys(["passed", "failed", "skipped"], 0)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.outcome] += 1

    def pytest_collectreport(self, report):
        self.ends["failed"] += report.failed


def run(part, flags, note):
    """Runs a part and writes one line about it into `note`; returns pytest's exit code."""
    count, began = Count(), time.monotonic()
    more = [*TWO_AT_ONCE.get(part, []), *flags]
    code = int(pytest.main(["-m", "not short", *files(part), *more], plugins=[count]))
    ends = ", ".join("%d %s" % (n, end) for end, n in count.ends.items())
    pathlib.Path(note).write_text("%s in %.0f s" % (ends, time.monotonic() - began))
    return code


def run_apart(part, flags):
    """Runs a part in a process of its own, so that none depends on what another has imported.

    Returns (the exit code, a line about it).
    """
    with tempfile.TemporaryDirectory() as folder:
        note = pathlib.Path(folder) / "note"
        command = [sys.executable, __file__, "one", part, str(note), *flags]
        code = subprocess.run(command, cwd=ROOT).returncode
        line = note.read_text() if note.exists() else "no result"
    return code, line + (", exit code %d" % code if code else "")


def main():
    """Returns the exit code: 0 where every part has passed."""
    what, words = sys.argv[1], sys.argv[2:]
    if what == "parts":
        print(json.dumps(list(PARTS)))
        return 0
    if what == "one":
        return run(words[0], words[2:], words[1])
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    flags = words[len(names) :]
    if unknown := set(names) - set(PARTS):
        there = ", ".join(PARTS)
        print("no such part: %s; there are %s" % (", ".join(unknown), there), file=sys.stderr)
        return 2
    lines, failed = [], 0
    for part in names or PARTS:
        before = commit, clean = state()
        note = ROOT / "runs" / "tests" / commit / part
        if clean and not names and not flags and note.exists():
            line = note.read_text() + ", before"
        else:
            code, line = run_apart(part, flags)
            failed = failed or code
            counts = not flags and clean and state() == before
            if counts and code:
                note.unlink(missing_ok=True)
            elif counts:
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(line)
        where = commit if clean and state() == before else "%s, with changes" % commit
        lines.append("%-10s %s, at %s" % (part, line, where))
    print("\n".join(["", *lines]))
    return failed


if __name__ == "__main__":
    sys.exit(main())
