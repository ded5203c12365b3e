"""`tfrun trace RUN`: when each task pulled, computed, pushed and waited: a picture, and a file.

trace.png shows a moment; trace.json is for ui.perfetto.dev or chrome://tracing.
"""

import json
import pathlib

import numpy as np

from tfrun.arguments import fail, seconds
from tfrun.commands.common import directory_of, parser
from tfrun.pictures import timeline
from tfrun.runs import run_directory
from tfrun.runs.activities import activities, trace_events, window
from tfrun.runs.data import RunData


def command(arguments: list[str]) -> int:
    """Writes the trace and its picture; returns the exit code."""
    options = parser("trace", __doc__)
    options.add_argument("--from", dest="begin", type=float, metavar="S", help="start of a window")
    options.add_argument("--seconds", type=seconds, metavar="S", help="length of that window")
    options.add_argument("--output", type=pathlib.Path, metavar="DIR", help="instead of the run's")
    flags = options.parse_args(arguments)
    run = RunData.read(directory_of(flags.run)).without_pauses()
    times = np.concatenate([m.pushes["push_time"] for m in run.tasks.values()] or [np.empty(0)])
    start = min(times, default=0)
    trace = activities(run, None if flags.begin is None else start + flags.begin)
    shown = sum(activity.name == "push" for activity in trace)
    if not shown:
        return fail(f"no update was made yet in {run.directory}", 1)
    begin, end = window(trace) or (start, max(activity.end for activity in trace))
    begin = max(begin, min(activity.begin for activity in trace))
    length = flags.seconds or end - begin
    begin = begin if flags.begin is None else start + flags.begin
    end = begin + length
    if not any(activity.end >= begin and activity.begin <= end for activity in trace):
        return fail("no task did anything in that time: see --from, --seconds", 2)
    title = f"{run.example}, from {begin - start:.3f} s after the first push on"
    output = flags.output or run.directory
    paths = {"json": output / "trace.json", "picture": output / "trace.png"}
    try:
        output.mkdir(parents=True, exist_ok=True)
        run_directory.write_whole(paths["json"], json.dumps(trace_events(trace)))
        timeline.draw(paths["picture"], title, trace, begin, end)
    except OSError as error:
        return fail(f"the trace cannot be written: {error}")
    if flags.json:
        print(json.dumps({**paths, "from": begin - start, "seconds": length}, default=str))
    else:
        print(f"{paths['picture']}\n{paths['json']}   open it in https://ui.perfetto.dev")
        if shown < len(times):
            print(f"{shown:,} of {len(times):,} pushes, those around the picture; --from S: others")
    return 0
