"""TensorBoard on a run, in a process of its own: python -m tfrun.board DIRECTORY FOLDER PORT

TensorBoard reads the events in FOLDER, which are made there from the metrics in DIRECTORY.
"""

import signal
import sys
import threading
import time

from tensorboard import program

from tfrun.runs import events
from tfrun.runs.data import RunData

REFRESH_SECONDS = 5


def main(directory, folder, port):
    """Serves until a signal comes; returns 2, after one line, where it cannot."""
    run_events = events.Events(folder)
    run_events.update(RunData.read(directory))
    threading.Thread(target=refresh, args=[run_events, directory], daemon=True).start()
    board = program.TensorBoard()
    # load_fast=false: no second process, of which something could be left.
    options = {"logdir": folder, "host": "127.0.0.1", "port": port, "load_fast": "false"}
    options["reload_interval"] = REFRESH_SECONDS
    board.configure(argv=["", *("--%s=%s" % option for option in options.items())])
    try:
        address = board.launch()
    except program.TensorBoardServerException as error:
        print("tfrun: %s" % " ".join(str(error).split()), file=sys.stderr)
        return 2
    print("%s   (Ctrl-C ends it)" % address, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pause()


def refresh(run_events, directory):
    """Adds what the tasks write, every few seconds."""
    while True:
        time.sleep(REFRESH_SECONDS)
        run_events.update(RunData.read(directory))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
