"""Your-Model: its run.sh trains a GPT that writes, and any other problem under any example."""

import hashlib
import json
import subprocess
import sys

import pytest
import support
from matplotlib import image
from plugging import compare_export

FOLDER = support.ROOT / "Your-Model"


def write(directory, *flags):
    """Returns what generate.py prints about a run."""
    done = support.run_to_end(sys.executable, FOLDER / "generate.py", directory, *flags, seconds=90)
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(2400)  # more than its own limits, which grow with the load
def test_the_gpt_learns_and_writes(tmp_path):
    """Catches: a text that is not the model's, another text each time, facts of another run."""
    directory = tmp_path / "run"
    launched = support.launch(FOLDER / "run.sh", directory, "--steps", "15", seconds=300)
    code, output, _ = launched
    assert code == 0, output
    result = support.result(directory)
    assert result["steps"] == 15 and result["test_bits_per_byte"] < 3
    compare_export(directory, result)
    results = json.loads((directory / "results.json").read_text())
    assert results["test_bits_per_byte"] == result["test_bits_per_byte"]
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[key] for key in sorted(topics)).encode()
    assert results["text_sha256"] == hashlib.sha256(text).hexdigest()
    assert results["text_bytes"] == len(text)
    # Printed by run.sh, and the same again; with another seed it is another.
    assert results["written"] in output and len(results["written"].encode()) >= 290
    assert write(directory) == "The statement {}\n".format(results["written"])
    short = write(directory, "--bytes", "40", "--temperature", "1e-5")
    assert short == write(directory, "--bytes", "40", "--temperature", "1e-5", "--seed", "1")
    assert write(directory, "--seed", "1") != write(directory)
    height, width, _ = image.imread(directory / "loss.png").shape
    assert width > height > 100


def test_bad_use_of_run_sh(tmp_path):
    """One line each, before anything runs."""
    for words, expected in [
        (["gone.py"], "there is no problem"),
        (["gpt.py", "Nowhere"], "there is no example Nowhere"),
    ]:
        done = subprocess.run(
            ["bash", FOLDER / "run.sh", *words],
            cwd=tmp_path,
            env=support.environment(tmp_path / "run"),
            capture_output=True,
            text=True,
            timeout=support.patience(30),
        )
        lines = (done.stdout + done.stderr).splitlines()
        assert done.returncode == 2 and len(lines) == 1 and expected in lines[0], lines
        assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_what_cannot_write(tmp_path):
    """One line."""
    (tmp_path / "empty").mkdir()
    for flags, code, words in [
        ([tmp_path / "empty"], 1, "there is no checkpoint in"),
        ([tmp_path / "empty", "--bytes", "0"], 2, "must be above 0"),
    ]:
        done = support.run_to_end(sys.executable, FOLDER / "generate.py", *flags)
        assert done.returncode == code and words in done.stderr.splitlines()[-1], done
