"""`tfrun tensorboard RUN`: shows a run in TensorBoard, on this machine only."""

import contextlib
import signal
import sys
import tempfile
import time

from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.launch import signals, without_notices
from tfrun.runs import event_files
from tfrun.runs.data import RunData

REFRESH_SECONDS = 5


def command(arguments: list[str]) -> int:
    """Serves the run until Ctrl-C; returns the exit code."""
    parser = common.parser("tensorboard", __doc__, json_too=False)
    parser.add_argument("--port", type=int, default=0, help="of the address (a free one)")
    flags = parser.parse_args(arguments)
    if not 0 <= flags.port < 2**16:
        return fail(f"--port must be from 0 to 65535, is {flags.port}")
    directory = common.directory_of(flags.run)
    print("TensorBoard starts, which takes some seconds", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tfrun-tensorboard-") as folder:
        code = without_notices.run_module(
            "tfrun.commands.tensorboard", directory, folder, str(flags.port)
        )
    return 0 if code == 128 + signal.SIGINT else code


def serve(directory: str, folder: str, port: str) -> int:
    """In a process of its own: serves events, made in `folder`; returns 2 where it cannot."""
    # Imported here, because it prints notices, which without_notices removes.
    from tensorboard import program

    run_events = event_files.Events(folder)
    run_events.update(RunData.read(directory))
    board = program.TensorBoard()
    # Not fast: no second process, of which something could be left.
    how = {"reload_interval": REFRESH_SECONDS, "load_fast": "false"}
    board.configure(logdir=folder, host="127.0.0.1", port=int(port), **how)
    try:
        address = board.launch()  # in a thread
    except program.TensorBoardServerException as error:
        return fail(" ".join(str(error).split()))
    print(f"{address}   (Ctrl-C ends it)", flush=True)
    signals.handle(signal.SIG_DFL, signal.SIGINT)
    while True:
        time.sleep(REFRESH_SECONDS)
        with contextlib.suppress(OSError):  # a file that was removed: TensorBoard serves the rest
            run_events.update(RunData.read(directory))


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:]))
