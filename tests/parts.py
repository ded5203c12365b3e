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
import xml.etree.ElementTree

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


def git(*arguments):
    """What git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def state():
    """(the commit, whether nothing differs from it)"""
    return git("rev-parse", "--short", "HEAD"), not git("status", "--porcelain")


def run(part, flags):
    """Runs a part in a process of its own; returns the exit code, and a line about it."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "not short", f"--junit-xml={report}"]
        command += [path for name in PARTS[part] for path in ROOT.glob(f"tests/*/test_{name}.py")]
        code = subprocess.run([*command, *TWO_AT_ONCE.get(part, []), *flags], cwd=ROOT).returncode
        if not report.exists():
            return code, f"no result, exit code {code}"
        suite = xml.etree.ElementTree.parse(report).getroot()[0]
    names = ["tests", "failures", "errors", "skipped"]
    tests, failures, errors, skipped = [int(suite.get(name)) for name in names]
    failed = failures + errors
    line = f"{tests - failed - skipped} passed, {failed} failed, {skipped} skipped"
    line += f" in {float(suite.get('time')):.0f} s"
    return code, line + (f", exit code {code}" if code else "")


def main():
    """Returns the exit code: 0 where every part has passed."""
    what, words = sys.argv[1], sys.argv[2:]
    if what == "parts":
        print(json.dumps(list(PARTS)))
        return 0
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
            code, line = run(part, flags)
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
