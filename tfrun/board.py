"""TensorBoard on a run directory, in a process of its own: python -m tfrun.board DIRECTORY PORT"""

import signal
import sys

from tensorboard import program

from tfrun import launch


def main(directory, port):
    """Serves until a signal comes; returns 2, after one line, where it cannot."""
    launch.prepare(None)  # it ends with the command that started it
    board = program.TensorBoard()
    # load_fast=false: no second process, of which something could be left.
    options = {"logdir": directory, "host": "127.0.0.1", "port": port, "load_fast": "false"}
    board.configure(argv=["", *("--%s=%s" % option for option in options.items())])
    try:
        address = board.launch()
    except program.TensorBoardServerException as error:
        print("tfrun: %s" % " ".join(str(error).split()), file=sys.stderr)
        return 2
    print("%s   (Ctrl-C ends it)" % address, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pause()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
