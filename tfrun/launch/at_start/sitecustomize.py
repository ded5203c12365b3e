"""Python imports this module at the start of a task, because tfrun puts it on its PYTHONPATH.

From then on SIGUSR2 appends the stacks of all Python threads to a file, even while the task waits
inside of TensorFlow, where no Python code runs. A thread notes once a second where the others are.
Another sitecustomize is imported as well.
"""

import contextlib
import faulthandler
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time

SECONDS = 1.0  # between two looks
THREAD = re.compile(r"(?m)^(Thread|Current thread) 0x")
FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
LIBRARY = re.compile(re.escape(os.path.dirname(os.__file__)) + "|.*site-packages|<")


def place(stack: str) -> list[bool | str] | None:
    """Returns [whether a graph has called it, "file:line function"] of a thread's own code.

    None for a thread in which only libraries run.
    """
    frames = FRAME.findall(stack)
    is_in_graph = any(file.endswith("script_ops.py") for file, _, _ in frames)  # numpy_function
    for file, line, function in frames:
        if not LIBRARY.match(file):
            return [is_in_graph, f"{os.path.basename(file)}:{line} {function}"]
    return None


def note_places(path: str) -> None:
    """Writes a line a second into a file: [time, [place, ...]]."""
    with contextlib.suppress(Exception), tempfile.TemporaryFile(buffering=0) as dump:
        with open(path, "w", 1, encoding="utf-8") as file:
            while True:
                time.sleep(SECONDS)
                # It keeps Python's lock, and refers to no frame: sys._current_frames() would keep
                # alive what other threads have just deleted, such as a server.
                faulthandler.dump_traceback(dump)
                dump.seek(0)
                _, *stacks = THREAD.split(dump.read().decode(errors="replace"))
                dump.seek(0)
                dump.truncate()
                others = [s for kind, s in zip(stacks[::2], stacks[1::2]) if kind == "Thread"]
                positions = [position for stack in others if (position := place(stack))]
                print(json.dumps([round(time.time(), 2), positions]), file=file)


with contextlib.suppress(KeyError, OSError, RuntimeError):
    faulthandler.register(signal.SIGUSR2, open(os.environ["TFRUN_STACKS"], "a"))
    if os.getsid(0) == os.getpid():  # the task itself, and nothing that it starts
        path = os.environ["TFRUN_PLACES"]
        threading.Thread(target=note_places, args=(path,), daemon=True, name="tfrun").start()

OWN = sys.modules.pop(__name__)
sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]
try:
    import sitecustomize  # noqa: F401, PLW0406
except ImportError:
    sys.modules[__name__] = OWN
