"""What our programs do with signals: those that the caller ignores, as nohup does, stay ignored."""

import signal
import sys
from collections.abc import Callable
from typing import Any

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# At the start: some libraries take a signal back.
IGNORED = [n for n in (*ENDING, signal.SIGTSTP) if signal.getsignal(n) == signal.SIG_IGN]
GOES_ON = "tfrun stands still, training goes on: fg or bg shows it again, kill %% ends it"


def handle(
    handler: Callable[[int, Any], object] | signal.Handlers, *numbers: signal.Signals
) -> None:
    """Lets a function handle signals, but for those that were ignored at the start."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN if number in IGNORED else handler)


def pause(say: Callable[[str], object]) -> None:
    """Says so and stops this process, as Ctrl-Z does without a handler; returns when it goes on."""
    say(GOES_ON)
    sys.stdout.flush()
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)
