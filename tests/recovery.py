"""A run of which tasks are killed: it begins, saves, and ends as if nothing had been."""

import support
from tfrun import summary

LAUNCHER = support.ROOT / "HogWild" / "run.sh"
STEPS = 2500  # long enough for a task that was restarted to take part again


def begin(directory, steps=STEPS, launcher=LAUNCHER, **env):
    """Starts HogWild with a checkpoint every 100 updates; its output goes to directory.txt."""
    flags = ["--checkpoint-steps", "100"]
    env = {"TFRUN_TIMEOUT": str(int(support.patience(100))), **env}
    with open(directory.with_suffix(".txt"), "a") as output:
        return support.begin(
            launcher, directory, "--steps", str(steps), *flags, output=output, **env
        )


def checkpoint(directory):
    """The step of the newest checkpoint, 0 where there is none."""
    steps = [int(path.stem.split("-")[1]) for path in directory.glob("model.ckpt-*.index")]
    return max(steps, default=0)


def check_the_end(process, directory, steps=STEPS, accuracy=0.95):
    """The run ends by itself, with exactly `steps` updates and a model that has learned."""
    try:
        code = process.wait(support.patience(110))
    finally:
        process.kill()
    output = directory.with_suffix(".txt").read_text()
    assert code == 0, output
    result = support.result(directory)
    assert result["steps"] == steps, output
    assert result["test_accuracy"] >= accuracy, output
    rows = {row["global_step"] for row in support.pushes(directory)}
    # A task that is killed may have taken its ticket, and not have told of it.
    missing = set(range(1, steps + 1)) - rows
    assert len(missing) <= 2, "updates without a line: %s" % sorted(missing)
    assert not support.processes_of(directory)
    assert summary.summarize([directory]) == result, "what tfrun summary says of the same files"
    return result, output
