"""What the measurements share: each of their scripts runs examples by their own `bash run.sh`."""

import argparse
import contextlib
import datetime
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psutil
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tfrun.launch.task import end_with_parent
from tfrun.runs import run_directory

from lab.examples import example_digest, main_script
from lab.measure import idle

if TYPE_CHECKING:
    # NumPy's threads must not be there when Fault-Tolerance enters namespaces.
    from matplotlib.figure import Figure
    from tfrun.runs.data import RunData

Case = tuple[Any, ...]  # what a measurement measures: a name, and what else it needs

ENVIRONMENT = dict(os.environ)  # what the examples get, whatever a measurement sets for itself
OTHERS = "others"  # in a file of what was measured: what they used during each measurement
DIGESTS = "digests"  # there, too: which script each case has measured
TARGET = 0.97  # a test accuracy
# In a new process: it gets SIGTERM when its parent dies. A launcher then stops its tasks.
end_with_us = functools.partial(end_with_parent, signal.SIGTERM)
FAMILIES = ["#1f77b4", "#d95f02", "#2a9d5c", "#8c564b"]  # a colour for cases of one kind


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
        self, flag: str, default: Any, words: str, kind: Callable[[str], Any] = int, **more: Any
    ) -> None:
        """Adds a flag that takes a number above zero; `words` are its help."""
        words += " (%(default)s)"
        self.add_argument(flag, type=positive(kind), default=default, help=words, **more)

    def redraw(self, script: str | pathlib.Path) -> None:
        """Adds what report() takes: --redraw, a file of results to draw, and --anyway.

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
        """Adds what measure_session() takes: --full, whose help is `words`, and --repeats."""
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


def digests_of(examples: Iterable[str]) -> dict[str, str]:
    """Returns {example: the digest of its script as it is}."""
    return {name: example_digest(main_script(name)) for name in sorted(set(examples))}


def write_digests(digests: Mapping[str, str], directory: pathlib.Path) -> None:
    """Writes results_digests.json: which script of each example was measured."""
    (directory / "results_digests.json").write_text(json.dumps(digests, indent=1) + "\n")


def forget_outdated(known: dict[str, Any], digests: Mapping[str, str]) -> None:
    """Removes from what was measured the cases of scripts that have changed since.

    digests: {case: the digest of its script as it is}, which are noted in `known`.
    """
    noted = known.setdefault(DIGESTS, {})
    for name, digest in digests.items():
        if known.get(name) and noted.get(name) != digest:
            words = "is measured again: its script is not the one that was measured before"
            print(f"{name} {words}", file=sys.stderr, flush=True)
            del known[name]
            known.get(OTHERS, {}).pop(name, None)
        noted[name] = digest


def measure_round_robin(
    console: Console,
    cases: Sequence[Case],
    repeats: int,
    measure: Callable[[Any, int], Any],
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
    known = json.loads(kept.read_text()) if kept and kept.exists() else {}
    if digests:
        forget_outdated(known, digests)
    results = {name: known.get(name, []) for name, *_ in cases}
    shares = known.setdefault(OTHERS, {})
    plan = [(repeat, case) for repeat in range(repeats) for case in cases]
    for repeat, case in track(plan, "measuring", console=console, disable=not console.is_terminal):
        name, *_ = case
        if len(results[name]) > repeat:
            continue
        for _ in range(tries):
            others = idle.Others()
            result = measure(case, repeat)
            share = others.share()
            if share < idle.MOST:
                break
        results[name].append(result)
        shares.setdefault(name, []).append(share)
        if kept:
            run_directory.write_whole(kept, json.dumps(known | results))
    return results


def other_processes_share(kept: pathlib.Path, begins: Iterable[str] = ("",)) -> float:
    """Returns the largest share of a core that others used during a measurement in this file.

    begins: only cases whose names begin with one of these count.
    """
    shares = json.loads(kept.read_text())[OTHERS]
    names = [name for name in shares if name.startswith(tuple(begins))]
    return max((share for name in names for share in shares[name]), default=0)


def measure_session(
    console: Console,
    directory: pathlib.Path,
    flags: argparse.Namespace,
    cases: Sequence[Case],
    measure: Callable[[Any, int], Any],
    words: str,
    examples: Sequence[str],
) -> tuple[dict[str, list[Any]], str, float]:
    """Measures cases by turns, or those that an earlier session has left.

    flags: those of Parser.full() and redraw(). examples: that of each case. Returns what report()
    takes; `words` say what was measured.
    """
    kept = directory / "measured.json"
    repeats = flags.repeats if flags.full else 1
    tries = 1 if flags.anyway else 3
    digests = digests_of(examples)
    of_cases = {case[0]: digests[example] for case, example in zip(cases, examples, strict=True)}
    results = measure_round_robin(console, cases, repeats, measure, kept, tries, of_cases)
    write_digests(digests, directory)
    return (
        results,
        f"{words}; median (range) of {repeats}; {setting()}",
        other_processes_share(kept),
    )


def plain_table(*columns: Any) -> Table:
    """Returns a rich table without lines between its columns, for one with many rows."""
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def spread(values: Iterable[float | None], form: str) -> str:
    """Returns the median of values and their range in words, of those that are not None."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    median = form.format(statistics.median(known))
    return f"{median} ({form.format(min(known))}-{form.format(max(known))})"


def middle(runs: Iterable[dict[str, Any]], key: str) -> float | None:
    """Returns the median of what the runs have found, of those that have; None if none has."""
    values = [run[key] for run in runs if run[key] is not None]
    return statistics.median(values) if values else None


def report(
    script: str | pathlib.Path,
    flags: argparse.Namespace,
    width: int,
    measure: Callable[[Console, pathlib.Path], Any],
    table_of: Callable[[Any], Any],
    draw: Callable[[Any, pathlib.Path, pathlib.Path], None],
) -> None:
    """Measures, and leaves results.json, table.txt and a picture; or draws a file's picture again.

    measure(console, directory) returns the results, when and where they were measured, and perhaps
    what others used of a core meanwhile;
    table_of(results) is their table; draw(results, path, source) draws them, which are in `source`.
    width: the columns of a table where there is no terminal.
    """
    console = table_console(width)
    folder = pathlib.Path(script).resolve().parent
    name = folder.name.lower()
    if source := flags.redraw:
        results = json.loads(source.read_text())
        console.print(table_of(results))
        # messages-wide.png for results-wide.json.
        draw(results, source.with_name(re.sub("^results", name, source.stem) + ".png"), source)
        return
    directory = output_directory(folder.name)
    try:
        others = idle.wait(flags.anyway)
    except TimeoutError as error:
        sys.exit(f"{name}: {error}")
    results, words, *share = measure(console, directory)
    console.print(table_of(results))
    console.print(f"{words}; {idle.words(*share or [others.share()])}")
    source = directory / "results.json"
    write_results(source, results)
    draw(results, directory / f"{name}.png", source)
    write_table(console, directory, f"{name}.png")


def write_results(path: pathlib.Path, results: Any) -> None:
    """Writes results as JSON, in which each item of a list stands on a line: so does each run."""
    path.write_text(json_lines(results) + "\n")


def json_lines(value: Any, indent: str = "") -> str:
    """Returns a value as JSON. A list of numbers or texts stands on one line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key)}: {json_lines(part, inner)}" for key, part in value.items()]
        begin, end = "{}"
    elif isinstance(value, (list, tuple)) and any(isinstance(x, (dict, list)) for x in value):
        items = [json.dumps(part) for part in value]
        begin, end = "[]"
    else:
        return json.dumps(value)
    lines = ",\n".join(inner + item for item in items)
    return f"{begin}\n{lines}\n{indent}{end}"


def subplots(height: float, *shape: int, **more: Any) -> "tuple[Figure, Any]":
    """Returns a figure as wide as a page, and its axes."""
    import matplotlib  # its threads must not be there when Fault-Tolerance enters namespaces
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, figure.subplots(*shape, **more)


def save(figure: "Figure", path: pathlib.Path, source: pathlib.Path) -> None:
    """Saves a picture, with a digest of the results in the file `source` among its texts."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    figure.savefig(path, dpi=140, metadata={"Drawn from": digest})


def bars(
    title: str,
    label: str,
    values: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    form: Callable[[float], str],
    path: pathlib.Path,
    source: pathlib.Path,
) -> None:
    """Draws a bar for each case, as long as the median of its runs: {name: runs}, {name: colour}.

    A dot is a run. form: what stands beside a bar, the text of a median.
    """
    figure, axes = subplots(1.1 + 0.1 * sum(4 + name.count("\n") for name in values))
    last = max(max(runs) for runs in values.values())
    for y, (name, runs) in enumerate(values.items()):
        middle = statistics.median(runs)
        axes.barh(y, middle, 0.7, color=colours[name], alpha=0.75)
        axes.plot(runs, [y] * len(runs), "k.", markersize=5)
        axes.text(max(runs) + 0.02 * last, y, form(middle), va="center")
    axes.set_yticks(range(len(values)), values)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * last)
    axes.set_title(title, loc="left")
    axes.set_xlabel(label)
    save(figure, path, source)


def run(
    command: Sequence[object],
    directory: str | pathlib.Path,
    env: Mapping[str, str] = ENVIRONMENT,
    **more: str,
) -> str:
    """Runs an example to its end in `directory`, with `more` in its environment.

    Returns what it prints. When it fails this process ends with its last lines.
    """
    env = {**env, "OUTPUT_DIR": str(directory), **more}
    if command[0] == "bash":  # a run.sh refuses what means nothing to it
        text = pathlib.Path(str(command[1])).read_text()
        for name in ("WORKERS", "PS"):
            if f"${{{name}:-}}" in text:
                env.pop(name, None)
    done = subprocess.run(
        [str(word) for word in command],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_us,
    )
    if done.returncode:
        last = done.stdout.splitlines()[-10:]
        failed = " ".join(map(str, command))
        sys.exit("\n".join([*last, f"failed with exit code {done.returncode}: {failed}"]))
    return done.stdout


def tasks(directory: str | pathlib.Path) -> dict[tuple[str, int], psutil.Process]:
    """Returns {(job, index): its process} of all tasks that run with this OUTPUT_DIR."""
    running: dict[tuple[str, int], psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            if env.get("OUTPUT_DIR") == str(directory) and "TF_CONFIG" in env:
                if process.status() != psutil.STATUS_ZOMBIE:
                    task = json.loads(env["TF_CONFIG"])["task"]
                    running.setdefault((task["type"], task["index"]), process)
    return running


def output_directory(name: str) -> pathlib.Path:
    """The folder for what this measurement leaves: OUTPUT_DIR, or one named after the time."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs")
    directory = pathlib.Path(os.environ.get("OUTPUT_DIR") or runs / name / now)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def read_run(directory: str | pathlib.Path) -> "RunData":
    """Returns the RunData of a run."""
    # Here, because NumPy's threads must not be there when Fault-Tolerance enters namespaces.
    from tfrun.runs.data import RunData

    return RunData.read(directory)


def pushes(directory: str | pathlib.Path, task: str | None = None) -> list[dict[str, Any]]:
    """Returns the pushes of a run, or of one of its tasks: dicts of numbers, in order of time."""
    return read_run(directory).rows("pushes", task)


def tests(directory: str | pathlib.Path, task: str | None = None) -> list[dict[str, Any]]:
    """Returns the tests of a run, or of one of its tasks, in the same form."""
    return read_run(directory).rows("tests", task)


def table_console(width: int) -> Console:
    """Returns a console: as wide as the terminal, `width` columns where there is none."""
    return Console(width=None if sys.stdout.isatty() else width, record=True)


def write_table(console: Console, directory: pathlib.Path, what: str) -> None:
    """Writes all that the console has shown into table.txt, which the page shows; names `what`."""
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    (directory / "table.txt").write_text("\n".join(lines) + "\n")
    console.print(f"{what} is in {directory}", soft_wrap=True)


def setting(*versions: str) -> str:
    """Returns when and where this was measured, as the last words of a table."""
    today = str(datetime.date.today())
    python = f"Python {platform.python_version()}"
    return ", ".join([today, *versions, python, f"{os.cpu_count()} cores ({platform.machine()})"])
