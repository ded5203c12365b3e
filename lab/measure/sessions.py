"""Measures cases by turns on a quiet machine, goes on where a session has stopped, and reports."""

import argparse
import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import track
from tfrun.runs import run_directory

from lab.digests import example_digest
from lab.examples import main_script
from lab.measure import example_runs, idle, text_tables
from lab.measure.arguments import Case

OTHERS = "others"  # in a file of what was measured: what they used during each measurement
DIGESTS = "digests"  # there, too: which script each case has measured


def digests_of(examples: Iterable[str]) -> dict[str, str]:
    """Returns {example: the digest of its script as it is}."""
    return {name: example_digest(main_script(name)) for name in sorted(set(examples))}


def write_digests(digests: Mapping[str, str], directory: pathlib.Path) -> None:
    """Writes results_digests.json: which script of each example was measured."""
    (directory / "results_digests.json").write_text(json.dumps(digests, indent=1) + "\n")


def forget_outdated(measured: dict[str, Any], digests: Mapping[str, str]) -> None:
    """Removes from what was measured the cases of scripts that have changed since.

    digests: {case: the digest of its script as it is}, which are noted in `measured`.
    """
    noted = measured.setdefault(DIGESTS, {})
    for name, digest in digests.items():
        if measured.get(name) and noted.get(name) != digest:
            words = "is measured again: its script is not the one that was measured before"
            print(f"{name} {words}", file=sys.stderr, flush=True)
            del measured[name]
            measured.get(OTHERS, {}).pop(name, None)
        noted[name] = digest


def measure_round_robin(
    console: Console,
    cases: Sequence[Case],
    repeats: int,
    measure: Callable[[Any, int], Any],
    *,
    kept: pathlib.Path | None = None,
    tries: int = 1,
    digests: Mapping[str, str] | None = None,
) -> dict[str, list[Any]]:
    """Measures cases, tuples that begin with a name, so that a slow minute meets all of them.

    Returns {name: [measure(case, repeat) of each repeat]}. kept: a file with what an earlier
    session has measured, which is not measured again; it grows with each measurement. tries: how
    often a case is measured at most while other processes use the machine. digests: {case: the
    digest of its script}; what was kept of a case counts only if it has this digest.
    """
    measured = json.loads(kept.read_text()) if kept and kept.exists() else {}
    if digests:
        forget_outdated(measured, digests)
    results = {name: measured.get(name, []) for name, *_ in cases}
    shares = measured.setdefault(OTHERS, {})
    plan = [(repeat, case) for repeat in range(repeats) for case in cases]
    for repeat, case in track(plan, "measuring", console=console, disable=not console.is_terminal):
        name, *_ = case
        if len(results[name]) > repeat:
            continue
        for _ in range(tries):
            others = idle.Others()
            result = measure(case, repeat)
            share = others.share()
            if share < idle.MOST_SHARE:
                break
        results[name].append(result)
        shares.setdefault(name, []).append(share)
        if kept:
            run_directory.write_whole(kept, json.dumps(measured | results))
    return results


def other_processes_share(kept: pathlib.Path) -> float:
    """Returns the largest share of a core that others used during a measurement in this file."""
    shares = json.loads(kept.read_text())[OTHERS].values()
    return max((share for shares_of_case in shares for share in shares_of_case), default=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """Cases that are measured by turns, but for those that an earlier session has measured.

    flags: those of Parser.full() and redraw(). examples: that of each case. measure(case, repeat)
    returns what a run has found. words: what was measured, for the last line of a table.
    """

    flags: argparse.Namespace
    cases: Sequence[Case]
    examples: Sequence[str]
    measure: Callable[[Any, int], Any]
    words: str

    def measure_all(
        self, console: Console, directory: pathlib.Path
    ) -> tuple[dict[str, list[Any]], str, float]:
        """Returns what Report.make() takes: results, words, and what others used of a core."""
        kept = directory / "measured.json"
        repeats = self.flags.repeats if self.flags.full else 1
        tries = 1 if self.flags.anyway else 3
        digests = digests_of(self.examples)
        names = [case[0] for case in self.cases]
        digest_of_case = {
            name: digests[example] for name, example in zip(names, self.examples, strict=True)
        }
        results = measure_round_robin(
            console,
            self.cases,
            repeats,
            self.measure,
            kept=kept,
            tries=tries,
            digests=digest_of_case,
        )
        write_digests(digests, directory)
        words = f"{self.words}; median (range) of {repeats}; {text_tables.setting()}"
        return results, words, other_processes_share(kept)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What shows the results of a measurement, as a table and a picture.

    script: of the measurement. flags: those of Parser.redraw(). width: the columns of a table where
    there is no terminal. table_of(results) returns the table; draw(results, path, source) draws
    them, which are in `source`.
    """

    script: str | pathlib.Path
    flags: argparse.Namespace
    width: int
    table_of: Callable[[Any], Any]
    draw: Callable[[Any, pathlib.Path, pathlib.Path], None]

    @property
    def folder(self) -> pathlib.Path:
        """The measurement's."""
        return pathlib.Path(self.script).resolve().parent

    def make(self, measure: Callable[[Console, pathlib.Path], Any]) -> None:
        """Measures, and leaves results.json, table.txt and a picture; with --redraw draws again.

        measure(console, directory) returns the results, when and where they were measured, and
        perhaps what others used of a core meanwhile.
        """
        if self.flags.redraw:
            self.draw_again()
            return
        name = self.folder.name.lower()
        console = text_tables.table_console(self.width)
        directory = example_runs.output_directory(self.folder.name)
        try:
            others = idle.wait(self.flags.anyway)
        except TimeoutError as error:
            sys.exit(f"{name}: {error}")
        results, words, *share = measure(console, directory)
        console.print(self.table_of(results))
        console.print(f"{words}; {idle.words(*share or [others.share()])}")
        source = directory / "results.json"
        text_tables.write_results(source, results)
        self.draw(results, directory / f"{name}.png", source)
        text_tables.write_table(console, directory, f"{name}.png")

    def draw_again(self) -> None:
        """Shows the table of the file of --redraw, and draws its picture beside it."""
        source = self.flags.redraw
        results = json.loads(source.read_text())
        text_tables.table_console(self.width).print(self.table_of(results))
        # messages-wide.png for results-wide.json.
        picture = re.sub("^results", self.folder.name.lower(), source.stem) + ".png"
        self.draw(results, source.with_name(picture), source)
