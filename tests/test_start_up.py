"""start_up.py: what it measures of an engine, and which engines it leaves out."""

import json
import subprocess
import sys

import engines
import pytest

MEASURE = engines.FOLDER / "start_up.py"
FAKE = """set -e
mkdir "$OUTPUT_DIR"; sleep 0.5
echo push_time,loss > "$OUTPUT_DIR/metrics-worker-0.csv"
date +%s.%N,1 >> "$OUTPUT_DIR/metrics-worker-0.csv"
date +%s.%N, >> "$OUTPUT_DIR/metrics-worker-0.csv"
"""


def measure(folder, *arguments):
    return subprocess.run(
        [sys.executable, MEASURE, "--output", folder / "found.json", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--repeats", "0", "run.sh"], "--repeats must be at least 1, is 0"),
        (["nowhere/run.sh"], "left out: nowhere: there is no nowhere/run.sh"),
    ],
    ids=["repeats", "none"],
)
def test_bad_use_ends_with_one_line(arguments, message, tmp_path):
    """A file of no figures would become a table of none."""
    done = measure(tmp_path, *arguments)
    assert done.returncode in (1, 2) and message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_what_is_measured(tmp_path):
    """Seconds before the first update and after the last; what fails gives no figures."""
    for name, text in (("HogWild", FAKE + "sleep 1\n"), ("Broken", "echo no disk; exit 3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.sh").write_text(text)
    done = measure(tmp_path, "--repeats", "2", *sorted(tmp_path.glob("*/run.sh")))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "left out: Broken: exit code 3, 0 updates: no disk\n"
    found = json.loads((tmp_path / "found.json").read_text())["engines"]
    assert list(found) == ["tfrun"]
    first, end = found["tfrun"]["first"], found["tfrun"]["end"]
    assert len(first) == len(end) == 2 and min(first) >= 0.5 and min(end) >= 1.0
