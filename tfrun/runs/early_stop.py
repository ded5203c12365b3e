"""When a run ends early: its tests get no better. Needs the standard library only."""

import argparse
import contextlib
import math
import os
import pathlib
from typing import NamedTuple

from tfrun import formatting
from tfrun.runs import metrics_csv, run_directory


class Patience(NamedTuple):
    """Ends a run after so many tests without a better value of a metric."""

    tests: int
    metric: str = "loss"


def patience(text: str) -> Patience:
    """Returns the Patience of 5, or of accuracy=5. Raises ArgumentTypeError."""
    metric, _, tests = text.rpartition("=")
    if not tests.isdigit() or not int(tests):
        raise argparse.ArgumentTypeError(f"must be a number of tests, or metric=number, is {text}")
    return Patience(int(tests), metric or "loss")


class Tests:
    """The tests that the tasks of a live run write from now on."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        paths = metrics_csv.files(directory).values()
        self.read = {path: os.path.getsize(path) for path in paths}  # bytes
        self.rows: dict[float, dict[str, float]] = {}  # {updates before the test: the last row}
        self.last: dict[pathlib.Path, float] = {}  # {file: the update of its last test}

    def update(self) -> None:
        """Reads what was written since the last call."""
        for path in metrics_csv.files(self.directory).values():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                header = file.readline().decode().strip().split(",")
                file.seek(max(file.tell(), self.read.get(path, 0)))
                text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                self.read[path] = file.tell() - len(text) + len(whole)
                for line in whole.decode("utf-8", "replace").splitlines():
                    row = metrics_csv.numbers_of(metrics_csv.fields_of(line, header))
                    if not math.isnan(row.get("test_loss", math.nan)):
                        step = row["global_step"]
                        if step < self.last.get(path, 0):  # w went back: later ones are of a lost w
                            self.rows = {s: r for s, r in self.rows.items() if s < step}
                        self.rows[step], self.last[path] = row, step

    def end(self, asked: Patience) -> tuple[int, str] | None:
        """Returns the last tested update and a sentence if the run shall end; else None.

        It waits until the checkpoint of that update is written. Raises ValueError where no test has
        this metric.
        """
        self.update()
        if not self.rows:
            return None
        name = f"test_{asked.metric}"
        directions = run_directory.read_flags(self.directory).get("metrics", {})
        if name not in directions:
            names = ", ".join(metric.removeprefix("test_") for metric in directions)
            raise ValueError(f"--patience names {asked.metric}, and the tests have {names}")
        sign = 1 if directions[name] == "max" else -1
        values = {step: sign * row[name] for step, row in self.rows.items() if name in row}
        if not values:
            raise ValueError(f"the metrics of this run have no column {name}: use a new OUTPUT_DIR")
        values = {step: -math.inf if math.isnan(v) else v for step, v in values.items()}
        steps = sorted(values)
        best = max(steps, key=lambda step: (values[step], -step))
        behind = len(steps) - 1 - steps.index(best)
        last = int(steps[-1])
        if behind < asked.tests or (run_directory.saved_step(self.directory) or 0) < last:
            return None
        value = formatting.test_text(name, self.rows[best][name])
        return last, (
            f"{value} after update {best:,.0f} is the best, and {behind} more tests were no "
            f"better: the run ends at update {last:,} (--patience)"
        )


def note(directory: pathlib.Path, step: int) -> None:
    """Notes in the run directory that a run was ended early, after so many updates."""
    run_directory.write_whole(directory / "stop", str(step))
