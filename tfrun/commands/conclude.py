"""The end of a run whose tasks are done: its result, its events for TensorBoard, its picture."""

import pathlib

from tfrun import formatting
from tfrun.pictures import curves
from tfrun.runs import events, summary
from tfrun.runs.data import RunData


def conclude(directory: pathlib.Path, code: int, say) -> int:
    """Writes them, and says what came out by say(text); returns the exit code.

    code: that of the tasks, which stays unless it is 0 and something cannot be written.
    """
    try:
        run = RunData.read(directory)
        result = summary.write(run)
    except (OSError, ValueError) as error:
        say(f"there is no result: {error}")
        return code or 1
    if missing := summary.missing_tasks(result):
        say(missing)
    try:
        events.write(run)
        picture = curves.draw(run)
    except OSError as error:
        say(f"there is no picture: {error}")
        return code or 2
    its_picture = f", and its picture {picture.name}," if picture else ""
    say(f"{formatting.tests(result)}; everything of this run{its_picture} is in {directory}")
    return code
