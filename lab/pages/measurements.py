"""What the measurements have found, each of several examples: their rows and their tables."""

import os
import pathlib
import re
import statistics

from lab.examples import ROOT, load, read, read_json, shown
from lab.measure import provenance, session_results
from lab.pages import result_tables

COMPARE = ROOT / "Measurements" / "Compare" / "results.json"
IN_COMPARE = {  # its tasks, as a page calls them
    "8 workers, CV 0.1": "steady times (CV 0.1)",
    "8 workers, CV 1": "varying times (CV 1)",
}


def compare(folder: pathlib.Path, _: str | None) -> str:
    """This example's results of Measurements/Compare at its best setting."""
    results = read_json(COMPARE) if COMPARE.exists() else {}
    own = shown(folder)
    tables = load(COMPARE.with_name("tables.py"))
    link = f"[Compare]({os.path.relpath(COMPARE.parent, folder)}/)"
    lines = []
    for task, words in IN_COMPARE.items():
        result = results.get(f"{task}: {own}")
        if not result:
            continue
        provenance.check_compared(f"{task}: {own}", result, COMPARE)
        setting, seconds, loss = tables.compared_cells(result)
        lines.append(
            f"- {words}, {setting}: seconds to {tables.target(result)}: {seconds}; test loss "
            f"{loss}; {len(result['tries'])} runs of tuning"
        )
        seeds = len(result["runs"])
        length = result["seconds"]
    if not lines:
        return f"{link} has not measured this example by its present rules yet."
    head = f"{link}, eight workers, median (range) of {seeds} runs of {length:g} s"
    digests = read_json(COMPARE.with_name("results_digests.json"))
    if session_results.is_session_result(own, digests.get(own)):
        head += f", {session_results.WORDS}"
    return "\n".join([f"{head}:", *lines])


LATE = ("8 workers, exponential", "4 workers, one slow")  # where pushes are late


def scaling(folder: pathlib.Path, _: str | None) -> str:
    """The losses of Measurements/Scaling for this example, where pushes are late."""
    path = ROOT / "Measurements" / "Scaling" / "results.json"
    lines = []
    for case, runs in read_json(path).items():
        workers, example = case.split(": ")
        if example != folder.name or not (workers.startswith(LATE) or "lr" in workers):
            continue
        provenance.check_compared(case, runs, path)
        losses = [run["test_loss"] for run in runs if run["test_loss"] is not None]
        words = [result_tables.spread(losses, "%.3f")] if losses else []
        if len(losses) < len(runs):
            words.append(f"{len(runs) - len(losses)} of {len(runs)} diverged")
        lines.append(
            f"- {workers}: test loss {'; '.join(words)}; staleness "
            f"{statistics.median(run['staleness_mean'] for run in runs):.2f}, at most "
            f"{max(run['staleness_max'] for run in runs):.0f}; "
            f"{statistics.median(run['late'] for run in runs):.0%} of pushes late"
        )
    link = os.path.relpath(path.parent, folder)
    return "\n".join([f"[Scaling]({link}/), median (range) of {len(runs)} seeds:", *lines])


def text(folder: pathlib.Path, name: str | None) -> str:
    """The table that a measurement has left as a file: in Markdown, or as it was printed."""
    path = folder / result_tables.argument(folder, "text", name)
    table = read(path)
    in_markdown = table.startswith(("| ", "**", "<details>", "Measured: "))
    table = table.rstrip("\n") if in_markdown else f"```\n{table}```"
    if shown(path) in session_results.TABLES:
        names = {name.split("/")[-1] for name in session_results.DIGESTS}
        in_table = sorted(n for n in names if re.search(rf"(?<![\w-]){n}\b", table))
        *others, last = in_table or ["HogWild"]
        named = f"{', '.join(others)} and {last} were" if others else f"{last} was"
        table += f"\n\n{named} measured with the {session_results.WORDS}."
    return table
