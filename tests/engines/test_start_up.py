"""start_up.py: what it measures of an engine, and which engines it leaves out."""

import json
import subprocess
import sys

import engines

MEASURE = engines.FOLDER / "start_up.py"
FAKE = """set -e
mkdir "$OUTPUT_DIR"; sleep 0.5
echo push_time,global_step,loss > "$OUTPUT_DIR/metrics-worker-0.csv"
date +%s.%N,1,1 >> "$OUTPUT_DIR/metrics-worker-0.csv"
date +%s.%N,1, >> "$OUTPUT_DIR/metrics-worker-0.csv"
"""


def test_what_is_measured(tmp_path):
    """Seconds before the first update and after the last; what fails gives no figures."""
    for name, text in (("HogWild", FAKE + "sleep 1\n"), ("Broken", "echo no disk; exit 3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.sh").write_text(text)
    done = subprocess.run(
        [sys.executable, MEASURE, "--output", tmp_path / "found.json", "--repeats", "2"]
        + sorted(tmp_path.glob("*/run.sh")),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "left out: Broken: exit code 3, 0 updates: no disk\n"
    results = json.loads((tmp_path / "found.json").read_text())["engines"]
    assert list(results) == ["tfrun"]
    first, end = results["tfrun"]["first"], results["tfrun"]["end"]
    assert len(first) == len(end) == 2 and min(first) >= 0.5 and min(end) >= 1.0
