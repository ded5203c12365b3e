"""What each task of a run may use of this machine: processor cores, GPUs, memory."""

import argparse
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil

from tfrun import formatting
from tfrun.launch import cluster

ROLES = ("ps", "chief", "worker", "evaluator")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Share(NamedTuple):
    """What a task may use of this machine."""

    cpus: list[int] | None = None  # the numbers of its cores; None: all
    gpus: list[str] | None = None  # their names; None: nobody asked for any
    memory: int | None = None  # a limit in bytes


NO_LIMIT = Share()


def per_role(value: Callable[[str], int]) -> Callable[[str], dict[str, int]]:
    """Returns a type of flag: ps=1,worker=2 as {"ps": value("1"), "worker": value("2")}."""

    def parse(text: str) -> dict[str, int]:
        amounts = {}
        for part in text.split(","):
            role, equals, amount = part.partition("=")
            if role not in ROLES or not equals:
                example = "2G" if value is size else "1"
                raise argparse.ArgumentTypeError(
                    f"{part!r} is not like worker={example}; the roles are {', '.join(ROLES)}"
                )
            if role in amounts:
                raise argparse.ArgumentTypeError(f"{role} is named twice")
            amounts[role] = value(amount)
        return amounts

    return parse


def whole(text: str) -> int:
    """Returns a number of cores or GPUs for one task. Raises ArgumentTypeError."""
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, is {text!r}")
    return int(text)


def size(text: str) -> int:
    """Returns a size such as 512M or 1.5G in bytes, units being powers of 1,024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"must be a size such as 512M or 2G, is {text!r}")
    n_bytes = int(float(match[1]) * UNITS[match[2]])
    if n_bytes < UNITS["M"]:
        raise argparse.ArgumentTypeError(f"must be 1M or more, is {text!r}")
    return n_bytes


def shares(
    jobs: Mapping[str, int],
    cpus: Mapping[str, int],
    gpus: Mapping[str, int],
    memory: Mapping[str, int],
    runs: int = 1,
) -> dict[tuple[str, int], Share]:
    """Returns {(job, index): its Share}. Raises ValueError if the machine has not so much.

    jobs, cpus, gpus, memory: {role: number of tasks}, {role: amount for each of them}. No two tasks
    of the roles in `cpus` share a core; the others may use all. GPUs are a task's own. So many runs
    at once share cores and GPUs evenly.
    """
    for flag, wanted in (("--cpus", cpus), ("--gpus", gpus), ("--memory", memory)):
        if absent := [role for role in wanted if role not in jobs]:
            raise ValueError(f"{flag} names {', '.join(absent)}, and this run has none")
    own_cores = cluster.core_numbers() if cpus else []
    if own_cores is None:
        raise ValueError("--cpus needs Linux")
    own_gpus = cluster.gpus() if gpus else []
    for what, wanted, there, text in (
        ("cores", cpus, len(own_cores) // runs, str),
        ("GPUs", gpus, len(own_gpus) // runs, str),
        ("of memory", memory, psutil.virtual_memory().total, formatting.size_text),
    ):
        needed = sum(jobs[role] * amount for role, amount in wanted.items())
        if needed > there:
            amounts = ", ".join(f"{jobs[role]} {role} x {text(n)}" for role, n in wanted.items())
            what = what.removesuffix("s") if needed == 1 else what
            share = f" for each of {runs} runs at once: lower parallel" if runs > 1 else ""
            raise ValueError(
                f"the run asks for {text(needed)} {what} ({amounts}), and this machine has "
                f"{text(there)}{share}"
            )
    free_cores, free_gpus = iter(own_cores), iter(own_gpus)
    return {
        (job, index): Share(
            [next(free_cores) for _ in range(cpus[job])] if job in cpus else None,
            [next(free_gpus) for _ in range(gpus.get(job, 0))] if gpus else None,
            memory.get(job),
        )
        for job, index in cluster.tasks(jobs)
    }


def environment_variable(text: str) -> tuple[str | None, str, str]:
    """Returns (role or None for all, name, value) of NAME=VALUE or ROLE:NAME=VALUE."""
    match = re.fullmatch(rf"(?:({'|'.join(ROLES)}):)?([A-Za-z_]\w*)=(.*)", text, re.DOTALL)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not like NAME=VALUE or worker:NAME=VALUE")
    if match[2] in ("TF_CONFIG", "OUTPUT_DIR"):
        raise argparse.ArgumentTypeError(f"{match[2]} is set by tfrun")
    if match[2] == "PROBLEM":  # tfrun reads it, and tasks do not
        raise argparse.ArgumentTypeError("PROBLEM is no variable of a task: use --problem FILE")
    return match[1], match[2], match[3]
