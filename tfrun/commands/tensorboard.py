"""`tfrun tensorboard RUN`: shows a run in TensorBoard, on this machine only."""

import signal
import tempfile

from tfrun.arguments import fail
from tfrun.commands import common
from tfrun.launch import quiet


def command(arguments: list[str]) -> int:
    """Serves the run until Ctrl-C; returns the exit code."""
    about = "Shows a run in TensorBoard, which only this machine can reach; Ctrl-C ends it."
    parser = common.parser("tensorboard", about, json_too=False)
    parser.add_argument("--port", type=int, default=0, help="of the address (a free one)")
    flags = parser.parse_args(arguments)
    if not 0 <= flags.port < 2**16:
        return fail(f"--port must be from 0 to 65535, is {flags.port}")
    directory = common.directory_of(flags.run)
    # Also where a shell has started it in the background, which ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tfrun-tensorboard-") as folder:
        server = "tfrun.commands.tensorboard_server"
        code = quiet.run_module(server, directory, folder, str(flags.port))
    return 0 if code == 128 + signal.SIGINT else code
