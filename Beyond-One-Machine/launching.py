"""What launchers of this folder share, on the host where they start: flags, folders, the end."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOTICES = re.compile(
    r"WARNING: All log messages before absl|.*oneDNN custom operations are on|"
    r".*Could not find cuda drivers|.*TensorFlow binary is optimized|"
    r"To enable the following instructions"
)  # at each start of TensorFlow


def read_flags(parser, timeout):
    """Adds the flags of all launchers to a parser's own; returns them. timeout: the name of one.

    Ends with one line where a flag is wrong.
    """
    add = parser.add_argument
    add("--ps", type=int, default=1, metavar="N", help="parameter servers (1)")
    add("--workers", type=int, default=2, metavar="N", help="workers (2)")
    add("--chief", action="store_true", help="one task more, of the type chief")
    add(
        "--attempts",
        type=int,
        default=4,
        metavar="N",
        help="how often all tasks may begin, the first time included (4)",
    )
    add("script", help="the training script, at the same path on all hosts")
    add("arguments", nargs=argparse.REMAINDER, help="what the script gets")
    flags = parser.parse_args()
    for name, low, high in (
        ("ps", 0, 99),
        ("workers", 0, 99),
        ("attempts", 1, 99),
        (timeout, 1, 86400),
    ):
        if not low <= vars(flags)[name] <= high:
            parser.error(
                "--%s must be from %d to %d, is %d"
                % (name.replace("_", "-"), low, high, vars(flags)[name])
            )
    if not flags.workers and not flags.chief:
        parser.error("a run needs a worker or a chief")
    if not pathlib.Path(flags.script).is_file():
        parser.error("there is no script %s here (%s)" % (flags.script, os.getcwd()))
    return flags


def tasks(n_ps, n_workers, chief):
    """[(job, index)] of all tasks of a run."""
    numbers = (("ps", n_ps), ("chief", int(chief)), ("worker", n_workers))
    return [(job, index) for job, n in numbers for index in range(n)]


def run_directory(engine, script):
    """OUTPUT_DIR, or a folder in RUNS_DIR that is named after the engine and the time."""
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / engine / script.parent.name
    now = time.strftime("%Y-%m-%d_%H-%M-%S")
    return pathlib.Path(os.environ.get("OUTPUT_DIR") or runs / now).resolve()


def write_facts(facts, output):
    """Writes [{file name: its text}]; where the hosts share the folder, they are there already."""
    for texts in facts:
        for name, text in texts.items():
            (output / name).write_text(text)


def conclude(facts, output):
    """Writes the facts of all tasks, and what tfrun concludes from them; returns the exit code."""
    write_facts(facts, output)
    if (output / "flags.json").exists() and (ROOT / "tfrun").is_dir():
        summary = [sys.executable, "-m", "tfrun", "summary", "--line", str(output)]
        return subprocess.run(summary, cwd=ROOT).returncode
    print("done; everything of this run is in %s" % output)
    return 0
