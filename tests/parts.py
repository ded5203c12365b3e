"""Runs the tier `all` part by part; the parts that passed at one commit count as one run.

    python tests/parts.py all [PART ...] [pytest's flags]
    python tests/parts.py parts

Where nothing is uncommitted, a part that passed is noted in runs/tests/<commit>/, and not run
again at that commit; name it to run it all the same.
"""

import json
import pathlib
import re
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = {  # a part: its test modules; each module belongs to one part
    "launcher": ["activate", "tfrun", "summary", "errors", "regions", "readmes", "bad_input"],
    "equations": [
        "equations",
        "identities",
        "synchronous",
        "replicas",
        "ring",
        "model_parallelism",
    ],
    "examples": ["examples", "cluster", "plug", "traffic"],
    "recovery": ["recovery"],
    "horovod": ["horovod"],
    "notebooks": ["notebooks"],
}


def files(part):
    """The test modules of a part."""
    return ["tests/test_%s.py" % name for name in PARTS[part]]


def git(*arguments):
    """What git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Count:
    """A plugin of pytest that counts how tests end."""

    def __init__(self):
        self.ends = dict.fromkeys(["passed", "failed", "skipped"], 0)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.outcome] += 1


def run(part, flags):
    """Runs a part: (pytest's exit code, one line about it)."""
    count, began = Count(), time.monotonic()
    code = pytest.main(["-m", "not short", *files(part), *flags], plugins=[count])
    ends = ", ".join("%d %s" % (n, end) for end, n in count.ends.items())
    return int(code), "%-10s %s in %.0f s" % (part, ends, time.monotonic() - began)


def main():
    """Returns the exit code: 0 where every part has passed."""
    if sys.argv[1] == "parts":
        print(json.dumps(list(PARTS)))
        return 0
    names = [word for word in sys.argv[2:] if re.match(r"\w", word) and word in PARTS]
    flags = [word for word in sys.argv[2:] if word not in names]
    clean = not git("status", "--porcelain") and not flags
    commit, lines, failed = git("rev-parse", "--short", "HEAD"), [], 0
    for part in names or PARTS:
        note = ROOT / "runs" / "tests" / commit / part
        if clean and not names and note.exists():
            lines.append(note.read_text().strip() + ", before")
            continue
        # A process of its own, so that no part depends on what another has imported.
        code = subprocess.run(
            [sys.executable, "-c", RUN, part, str(note), *flags], cwd=ROOT
        ).returncode
        failed = failed or code
        line = note.read_text().strip() if note.exists() else "%s: no result" % part
        lines.append(line)
        if note.exists() and (code or not clean):
            note.unlink()
    print("\n".join(["", "at %s%s:" % (commit, "" if clean else ", with changes"), *lines]))
    return failed


RUN = """
import pathlib, sys
sys.path.insert(0, "tests")
import parts
code, line = parts.run(sys.argv[1], sys.argv[3:])
note = pathlib.Path(sys.argv[2])
note.parent.mkdir(parents=True, exist_ok=True)
note.write_text(line + "\\n")
sys.exit(code)
"""

if __name__ == "__main__":
    sys.exit(main())
