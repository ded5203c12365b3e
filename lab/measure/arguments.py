"""Parses the flags of a script: numbers above zero, and those that all measurements take."""

import argparse
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

Case = tuple[Any, ...]  # what a measurement measures: a name, and what else it needs


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns a type of flag: a number of that kind above zero."""

    def parse(text: str) -> Any:
        if not 0 < kind(text) < float("inf"):
            raise argparse.ArgumentTypeError(f"must be above 0, is {text}")
        return kind(text)

    parse.__name__ = kind.__name__
    return parse


class Parser(argparse.ArgumentParser):
    """Parses the flags of a script, whose help begins with the script's docstring."""

    def __init__(self, description: str | None) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, allow_abbrev=False, formatter_class=form)

    def number(
        self, flag: str, default: Any, words: str, kind: Callable[[str], Any] = int, **options: Any
    ) -> None:
        """Adds a flag that takes a number above zero; `words` are its help."""
        words += " (%(default)s)"
        self.add_argument(flag, type=positive(kind), default=default, help=words, **options)

    def redraw(self, script: str | pathlib.Path) -> None:
        """Adds what a sessions.Report takes: --redraw, a file of results to draw, and --anyway.

        A bare --redraw draws the committed results of this script.
        """
        words = "measure although other processes use the machine, and say so"
        self.add_argument("--anyway", action="store_true", help=words)
        self.add_argument(
            "--redraw",
            nargs="?",
            type=pathlib.Path,
            const=pathlib.Path(script).resolve().parent / "results.json",
            metavar="RESULTS",
            help="measure nothing: draw this file's picture again (results.json beside the script)",
        )

    def full(self, words: str) -> None:
        """Adds what a sessions.Session takes: --full, whose help is `words`, and --repeats."""
        self.number("--repeats", 3, "runs of each case, where --full stands")
        self.add_argument("--full", action="store_true", help=words)

    def only(
        self, cases: Sequence[Case], quick: Collection[str] = ()
    ) -> tuple[argparse.Namespace, list[Any]]:
        """Adds --only, and reads the flags.

        Returns (the flags, the cases whose names have the text of --only). quick: those that are
        chosen where neither --only nor --full stands.
        """
        words = "those with this in their names"
        self.add_argument("--only", default="", metavar="TEXT", help=words)
        flags = self.parse_args()
        chosen = [case for case in cases if flags.only in case[0]]
        if not chosen:
            self.error("--only must be in one of: " + "; ".join(case[0] for case in cases))
        if quick and not (flags.full or flags.only):
            chosen = [case for case in cases if case[0] in quick]
        return flags, chosen
