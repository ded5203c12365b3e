"""What lab/measure/results.py has measured of the page's own example."""

import pathlib
import re

from lab.digests import example_digest
from lab.examples import ROOT, ToolError, read_json, shown
from lab.measure import idle, provenance
from lab.pages import result_tables

NOT_MEASURED = "@@MEASURE@@"  # lab/measure/results.py has to; a test fails while this is on a page
# What a page reports of its runs: a name in results.json, words, and how many of its unit.
REPORTED = {
    "test_accuracy": ("test accuracy {}% ({} to {})", "%.1f", 100),
    "test_loss": ("test loss {} ({} to {})", "%.3f", 1),
    "rate": ("{} updates per second ({} to {})", "%.0f", 1),
    "staleness": ("mean staleness {}", "%.2f", 1),
    "bytes": ("{} KB an update", "%.1f", 1e-3),
}


def result(folder: pathlib.Path, launcher: str | None) -> str:
    """One line: the median and range of the runs that lab/measure/results.py has made."""
    measured = provenance.measured_runs(folder, launcher)
    if not measured:
        return NOT_MEASURED
    runs = measured["runs"]
    parts = []
    for run in runs:
        run["rate"] = run["updates"] / run["training_seconds"]
    for name, (words, form, times) in REPORTED.items():
        if any(run.get(name) for run in runs):
            values = [times * run[name] for run in runs if name in run]
            parts.append(words.format(*result_tables.texts(values, form)))
    others = (
        idle.words(measured["others"]) if "others" in measured else f"load {measured['load']:.1f}"
    )
    return (
        f"`{measured['command'].replace(' --seed S', '')}`, {len(runs)} seeds: {', '.join(parts)}. "
        f"{measured['date']}, {measured['cores']} cores, {others}."
    )


# The front page says the one, and the last line of a run the other.
USUAL = re.compile(
    r"^\[tfrun\] anyone who can reach|^\[(?!horovodrun)\w+ \d+\] done(, the output|$)"
)


def output(folder: pathlib.Path, launcher: str | None) -> str:
    """What the first of these runs has printed, but for what all runs print."""
    measured = provenance.measured_runs(folder, launcher)
    if not measured:
        return NOT_MEASURED
    lines: list[str] = []
    for line in measured["output"]:
        line = "..." if USUAL.search(line) else line
        if lines[-1:] != ["..."] or line != "...":
            lines.append(line)
    return block(lines)


def excerpt(folder: pathlib.Path, launcher: str | None) -> str:
    """The lines of that output which tell of updates, and the last."""
    measured = provenance.measured_runs(folder, launcher)
    if not measured:
        return NOT_MEASURED
    lines = [line for line in measured["output"] if ": update" in line or "] update" in line]
    return block([*lines[:2], "...", lines[-1], measured["output"][-1]])


def block(lines: list[str]) -> str:
    """Returns lines as a block of code."""
    return "\n".join(["```", *lines, "```"])


YOUR_MODEL = ROOT / "Your-Model"


def written(_: pathlib.Path, __: str | None) -> str:
    """What the GPT of Your-Model has written, and the run that trained it."""
    path = YOUR_MODEL / "results.json"
    if not path.exists():
        return NOT_MEASURED
    results = read_json(path)
    for name, digest in results["digests"].items():
        if example_digest(ROOT / name) != digest:
            raise ToolError(
                f"{shown(path)} is outdated, because {name} has changed: run Your-Model/run.sh, "
                "then python Your-Model/generate.py RUN --save Your-Model"
            )
    text = "\n".join(map(str.rstrip, (results["prompt"] + results["written"]).splitlines()))
    rounds = f"{results['updates']} rounds of {results['arguments']['local_steps']} steps"
    workers = f"{results['workers']} workers"
    return (
        f"```text\n{text}\n```\n"
        f"*{results['example']}, {workers}, {rounds} in {results['seconds']:.0f} s: "
        f"{results['test_bits_per_byte']:.2f} bits a byte in the test, "
        f"where guessing has 8. The help texts of Python {results['python']} have "
        f"{results['text_bytes']:,} bytes, SHA-256 {results['text_sha256'][:12]}…. "
        f"{results['date']}, {results['cores']} cores.*"
    )
