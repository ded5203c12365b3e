"""How tfrun tensorboard ends, and the events that it shows."""

import os

import pytest
import run_files
from records import three_pushes
from tfrun.commands import tensorboard
from tfrun.runs import event_files
from tfrun.runs.data import RunData

pytestmark = pytest.mark.usefixtures("own_records")


def test_the_time_of_an_event():
    """Catches events at the time at which they were written, and a step that is a count."""
    three_pushes()
    os.utime("r/flags.json", (77, 77))
    written, content = [], []
    board = event_files.Events("board")
    board.write_event = lambda *arguments: written.append(arguments[:3])
    board.write_scalars = lambda name, row, scalars: content.append(
        (name, row["push_time"], row["global_step"], sorted(scalars))
    )
    board.update(RunData.read("r"))
    board.update(RunData.read("r"))
    assert written == [("worker-0", 77, 0)]
    tests, pushes = ["test_accuracy", "test_loss"], ["loss", "staleness"]
    assert content == [
        ("worker-0", 12.25, 2, tests),
        ("worker-0", 14, 4, tests),
        ("worker-0", 11, 1, pushes),
        ("worker-0", 12, 2, [*pushes, "updates_per_second"]),
        ("worker-0", 13, 4, [*pushes, "updates_per_second"]),
        ("worker-1", 12.5, 3, pushes),
    ]


@pytest.mark.parametrize("code, due", [(130, 0), (2, 2), (0, 0)])
def test_tensorboard_ends(code, due, capsys, monkeypatch):
    """Catches: Ctrl-C as a failure, another directory or port, and events that are left behind."""
    seen = []
    run_files.flags("r")

    def run_module(*arguments):
        assert os.path.isdir(arguments[2])
        return seen.append(arguments) or code

    monkeypatch.setattr(tensorboard.without_notices, "run_module", run_module)
    assert tensorboard.command(["r", "--port", "65535"]) == due
    ((module, directory, folder, port),) = seen
    assert (module, port) == ("tfrun.commands.tensorboard", "65535")
    assert directory == os.path.realpath("r") and not os.path.exists(folder)
    for port in "-1", "65536":
        assert tensorboard.command(["r", f"--port={port}"]) == 2
        assert f"--port must be from 0 to 65535, is {port}" in capsys.readouterr().err
    assert tensorboard.command(["r", "--port=0"]) == due and len(seen) == 2
