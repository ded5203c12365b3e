"""Waits, and starts of processes; needs the standard library only, as the watchdog has no more."""

import contextlib
import pathlib
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def start_of(pid: int) -> str | None:
    """Returns clock ticks since boot, which no set clock moves, and which boot; None: no Linux."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
        return f"{fields.split()[19]} {boot.strip()}"
    return None


def wait_for(find: Callable[[], Result], seconds: float, pause: float = 0.02) -> Result:
    """Returns what find() finds; after so many seconds what it returns then, such as None."""
    deadline = time.monotonic() + seconds
    while not (result := find()) and time.monotonic() < deadline:
        time.sleep(pause)
    return result
