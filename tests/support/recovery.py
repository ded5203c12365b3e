"""A run of which tasks are killed: it begins, saves, and ends as if nothing had been."""

import support
from tfrun.runs import summary
from tfrun.runs.data import RunData

LAUNCHER = support.ROOT / "HogWild" / "run.sh"
STEPS = 2500  # long enough for a task that was restarted to take part again


def begin(directory, steps=STEPS, launcher=LAUNCHER, more_flags=(), **env):
    """Starts a run with a checkpoint every 100 updates; its output goes to directory.txt."""
    flags = ["--checkpoint-steps", "100", *more_flags]
    env = {**support.at_most(100), **env}
    with open(directory.with_suffix(".txt"), "a") as output:
        return support.begin(
            launcher, directory, "--steps", str(steps), *flags, output=output, **env
        )


def checkpoint(directory):
    """Returns the step of the newest checkpoint, or 0 if there is none."""
    steps = [int(path.stem.split("-")[1]) for path in directory.glob("model.ckpt-*.index")]
    return max(steps, default=0)


def check_the_end(process, directory, steps=STEPS, accuracy=0.95):
    """The run ends by itself, with exactly `steps` updates and a model that has learned."""
    try:
        code = support.wait_for_exit(process, 110)
    finally:
        process.kill()
    output = directory.with_suffix(".txt").read_text()
    assert code == 0, output
    result = support.result(directory)
    assert result["steps"] == steps, output
    assert result["test_accuracy"] >= accuracy, output
    rows = {row["global_step"] for row in support.pushes(directory)}
    # A worker that is killed may have made an update, and not have written its line. So may each
    # worker whose call to two ps was under way when one of them was killed.
    missing = set(range(1, steps + 1)) - rows
    under_way = result["workers"] if result["ps"] > 1 else 1
    most = under_way * result["restarts"]
    assert len(missing) <= most, f"updates without a line: {sorted(missing)}"
    assert not support.processes_of(directory)
    assert summary.summarize(RunData.read(directory)) == result, (
        "what tfrun summary says of the same files"
    )
    return result, output
