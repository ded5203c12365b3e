"""`tfrun evaluate DIR`: tests the newest checkpoint; --follow: each new one, while it trains.

The script is imported, and its load_data(), make_model(), loss() and METRICS are used. Each test
becomes a line of DIR/metrics-evaluator-0.csv. Training does not wait for it: the command may also
run on another machine that sees DIR.
"""

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import, or its notes come first
import tensorflow as tf

from tfrun.arguments import seconds
from tfrun.commands import common
from tfrun.runs import metrics_csv, models, progress, waiting

TASK = "evaluator-0"
POLL_SECONDS = 0.5


class Evaluator:
    """Tests checkpoints of a run, each once, and writes the results into its directory."""

    def __init__(self, directory: pathlib.Path, script: str | None) -> None:
        self.directory, self.file = directory, directory / f"metrics-{TASK}.csv"
        self.model, self.data, self.module = models.untrained_model(directory, script)
        rows = metrics_csv.read(self.file).rows("tests") if self.file.exists() else []
        self.tested = {int(row["global_step"]) for row in rows}

    def new_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint, or None if there is none without a test."""
        path = tf.train.latest_checkpoint(self.directory)
        return path if path and models.step_of(path) not in self.tested else None

    def test(self, checkpoint: str) -> None:
        """Tests a checkpoint, prints the result, and appends it to the file."""
        began, step = time.time(), models.step_of(checkpoint)
        models.restore(self.model, checkpoint)
        tests = models.evaluate(self.model, self.data, self.module)
        metrics_csv.append(
            self.file, tests, push_time=time.time(), pull_time=began, global_step=step
        )
        self.tested.add(step)
        numbers = [f"{name} {value:.4g}" for name, value in tests.items()]
        print("   ".join([f"update {step}", *numbers]), flush=True)

    def follow(self, steps: int, timeout: float) -> None:
        """Tests each checkpoint that is the newest, up to the one after so many updates."""
        while max(self.tested, default=0) < steps:
            checkpoint = wait_for(self.new_checkpoint, timeout, "checkpoint")
            try:
                self.test(checkpoint)
            except (ValueError, tf.errors.NotFoundError):
                # If it is gone, training has removed it meanwhile, and there are newer ones.
                if os.path.exists(checkpoint + ".index"):
                    raise


def wait_for(find: Callable[[], Any], timeout: float, what: str) -> Any:
    """Returns what find() finds. Raises TimeoutError if it finds nothing in so many seconds."""
    if result := waiting.wait_for(find, timeout, POLL_SECONDS):
        return result
    raise TimeoutError(f"no new {what} came in {timeout:g} s")


def run(flags: argparse.Namespace) -> None:
    """Does what the flags ask for. Raises OSError, ValueError, ImportError."""
    directory = flags.directory.resolve()
    if flags.follow:
        if not progress.arguments_of(directory):
            print(f"waiting for the chief to write {directory / 'flags.json'}", flush=True)
        wait_for(lambda: progress.arguments_of(directory), flags.timeout, "flags.json")
    evaluator = Evaluator(directory, flags.script)
    if flags.follow:
        steps = flags.steps or progress.arguments_of(directory)["steps"]
        evaluator.follow(steps, flags.timeout)
        print("done", flush=True)
    elif checkpoint := evaluator.new_checkpoint():
        evaluator.test(checkpoint)
    elif evaluator.tested:
        print(f"the newest checkpoint was tested before: see {evaluator.file}")
    else:
        raise ValueError(f"there is no checkpoint in {directory} yet")


def command(arguments: list[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = common.parser_of_script("evaluate", __doc__)
    parser.add_argument("--follow", action="store_true", help="test new checkpoints as they come")
    text = "wait so long for each (600)"
    parser.add_argument("--timeout", type=seconds, default=600, metavar="S", help=text)
    text = "the last update to follow to (as the run's flags)"
    parser.add_argument("--steps", type=int, metavar="N", help=text)
    return common.exit_code(run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
