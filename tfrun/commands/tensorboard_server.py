"""Runs TensorBoard in a process of its own, on the events of a run:

    python -m tfrun.commands.tensorboard_server DIRECTORY FOLDER PORT

TensorBoard reads the events in FOLDER, which are made there from the metrics in DIRECTORY.
"""

import contextlib
import signal
import sys
import time

from tensorboard import program

from tfrun.arguments import fail
from tfrun.runs import events
from tfrun.runs.data import RunData

REFRESH_SECONDS = 5


def main(directory, folder, port):
    """Serves until a signal comes; returns 2, after one line, where it cannot."""
    run_events = events.Events(folder)
    run_events.update(RunData.read(directory))
    board = program.TensorBoard()
    board.configure(
        logdir=folder,
        host="127.0.0.1",
        port=int(port),
        reload_interval=REFRESH_SECONDS,
        load_fast="false",  # no second process, of which something could be left
    )
    try:
        address = board.launch()  # in a thread
    except program.TensorBoardServerException as error:
        return fail(" ".join(str(error).split()))
    print(f"{address}   (Ctrl-C ends it)", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        time.sleep(REFRESH_SECONDS)
        with contextlib.suppress(OSError):  # a file that was removed: TensorBoard serves the rest
            run_events.update(RunData.read(directory))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
