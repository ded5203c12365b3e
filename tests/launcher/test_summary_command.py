"""What tfrun summary prints, and how tfrun concludes a run, from metrics made by hand."""

import os
import pathlib

import pytest
import run_files
from records import three_pushes
from tfrun.commands import summary

pytestmark = pytest.mark.usefixtures("own_records")


def test_what_summary_prints(capsys):
    """Catches: other text than the file has, another line, and a run whose data differ as right."""
    three_pushes()
    assert summary.command(["r"]) == 0
    output = capsys.readouterr()
    assert output.out == pathlib.Path("r/result.json").read_text() and not output.err
    assert summary.command(["--line", "r"]) == 0
    line = "[tfrun] test accuracy 100.0%; everything of this run is in r\n"
    assert capsys.readouterr().out == line
    for name, rows in ("worker-0", 8), ("worker-1", 7):
        with open(f"r/metrics-{name}.csv", "a") as file:
            file.write(f'# data {{"x_train": [[{rows}, 6], 1.0, 10.0]}}\n')
    assert summary.command(["r"]) == 1
    words = "worker 1 has other data than worker 0: x_train has 7 rows, not 8"
    assert words in capsys.readouterr().err
    os.remove("r/metrics-worker-1.csv")
    assert summary.command(["r"]) == 0
    words = "there are no metrics of worker-1: is the folder of its host among those given?"
    assert capsys.readouterr().err == f"tfrun: {words}\n"
    assert summary.command(["none"]) == 1 and "no flags.json in none" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 3])
def test_how_a_run_is_concluded(code, monkeypatch):
    """Catches: a code of the tasks that is lost, a picture that is not named, and a silent end."""
    three_pushes()
    directory, messages = pathlib.Path("r").resolve(), []
    assert summary.conclude(directory, code, messages.append) == code
    words = "everything of this run, and its picture curves.png, is in"
    assert messages == [f"test accuracy 100.0%; {words} {directory}"]
    assert (directory / "result.json").exists() and (directory / "curves.png").exists()

    def full(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(summary.curves, "draw", full)
    messages.clear()
    assert summary.conclude(directory, code, messages.append) == (code or 2)
    assert messages == ["there is no picture: the disk is full"]
    monkeypatch.setattr(summary.curves, "draw", lambda _: None)
    for name, rows in ("worker-0", 8), ("worker-1", 7):
        with open(f"r/metrics-{name}.csv", "a") as file:
            file.write(f'# data {{"x_train": [[{rows}, 6], 1.0, 10.0]}}\n')
    messages.clear()
    assert summary.conclude(directory, code, messages.append) == (code or 1)
    assert messages[0].startswith("worker 1 has other data than worker 0")
    assert messages[1] == f"test accuracy 100.0%; everything of this run is in {directory}"
    run_files.flags("r", ["worker-0", "worker-1", "worker-2"], steps=4)
    messages.clear()
    summary.conclude(directory, code, messages.append)
    assert messages[0].startswith("there are no metrics of worker-2")
    monkeypatch.setattr(summary.summary, "write", full)
    messages.clear()
    assert summary.conclude(directory, code, messages.append) == (code or 1)
    assert messages == ["there is no result: the disk is full"]
