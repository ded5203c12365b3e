"""What a stranger can do at the ports of a run."""

import pathlib
from collections.abc import Iterable


def exposure_warning(command: Iterable[str]) -> str:
    """Returns the begin of a sentence about the tasks of a command, [Python, script, ...].

    A server of tf.distribute.experimental.rpc runs only the functions that its script registers.
    """
    scripts = [pathlib.Path(word) for word in command if word.endswith(".py")]
    text = scripts[0].read_text(errors="replace") if scripts and scripts[0].is_file() else ""
    if "experimental.rpc" in text:
        return "anyone who can reach a port of this run can read and change the parameters"
    return "anyone who can reach the ports of these tasks can use them"
