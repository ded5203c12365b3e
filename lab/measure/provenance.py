"""Finds the results of each run.sh, and refuses those of another script than today's."""

import pathlib
from typing import Any

from lab import docstrings, reading_order
from lab.digests import example_digest
from lab.examples import PARENTS, ROOT, ToolError, read_json, script_of, shown
from lab.measure import session_results


def measured_examples() -> list[str]:
    """Returns what lab/measure/results.py measures: folders of examples, and a run.sh of one."""
    others = ["From-TensorFlow-1/Synchronous-SGD-Optimizer", "Operations/Elastic-Training"]
    return [*reading_order.examples(), *others, "Operations/Train-and-Evaluate"]


def launcher_of(name: str) -> pathlib.Path:
    """Returns the run.sh that a folder, or its own path, names. Raises ToolError if none does."""
    path = ROOT / name
    launcher = path if path.suffix == ".sh" else path / "run.sh"
    if not launcher.is_file():
        raise ToolError(f"there is no {shown(launcher)}: name an example, or a run.sh of one")
    return launcher


def results_of(launcher: pathlib.Path) -> pathlib.Path:
    """Returns the file with the results of a run.sh: results.json, or results_supervisor.json."""
    return launcher.with_name(launcher.stem.replace("run", "results") + ".json")


def identity_of(launcher: pathlib.Path) -> dict[str, str]:
    """Returns what results.json says of the example that was measured: its folder, its digest."""
    script = script_of(launcher)
    return {"example": shown(launcher.parent), "digest": example_digest(script)}


def check(measured: dict[str, Any], launcher: pathlib.Path) -> None:
    """Raises ToolError unless these results are of the script that a run.sh starts today."""
    name = shown(launcher.parent)
    path = results_of(launcher)
    identity = identity_of(launcher)
    advice = f"run python lab/measure/results.py {argument_of(launcher)}"
    example = measured.get("example", "an unknown example")
    if example != identity["example"]:
        raise ToolError(f"{example}'s {path.name} is shown on {name}'s page: {advice}")
    if measured.get("digest") != identity["digest"]:
        raise ToolError(
            f"{shown(path)} is outdated, because {script_of(launcher).name} has changed: "
            f"{advice}, with --unchanged if the change alters no number"
        )


def check_compared(name: str, runs: Any, source: pathlib.Path) -> None:
    """Raises ToolError unless these runs of a measurement are of that example's script of today.

    name: the example, behind a case and ": " or before flags. The digests stand in a file of their
    own, because pictures name the digest of the results.
    """
    example = name.rpartition(": ")[2].split()[0].rstrip(",")
    folders = [f"{parent}/{example}".lstrip("/") for parent in PARENTS]
    digests = source.with_name(source.stem + "_digests.json")
    folder = next((candidate for candidate in folders if (ROOT / candidate).is_dir()), example)
    if not (ROOT / folder).is_dir() and len(read_json(digests)) == 1:
        (folder,) = read_json(digests)  # the cases of a measurement of one example do not name it
    own_name = docstrings.docstring(docstrings.script(ROOT / folder)).partition(":")[0]
    for run in runs["runs"] if isinstance(runs, dict) else runs:  # Compare keeps more beside them
        if run.get("example", own_name) != own_name:
            raise ToolError(f"{shown(source)} shows {run.get('example')}'s numbers as {name}'s")
    digest = read_json(digests).get(folder)
    is_today = digest == example_digest(docstrings.script(ROOT / folder))
    if not is_today and not session_results.is_session_result(folder, digest):
        raise ToolError(
            f"{shown(source)} is outdated, because the script of {folder} has changed: run "
            f"{shown(source.parent)} again, or python lab/measure/results.py {folder} "
            "--unchanged if the change alters no number"
        )


def argument_of(launcher: pathlib.Path) -> str:
    """Returns a run.sh as the arguments of lab/measure/results.py name it."""
    return shown(launcher.parent if launcher.name == "run.sh" else launcher)


def measured_runs(folder: pathlib.Path, name: str | None) -> dict[str, Any] | None:
    """Returns the results for a page; None if there are none. Raises ToolError on foreign ones."""
    launcher = folder / (name or "run.sh")
    path = results_of(launcher)
    if not path.exists():
        return None
    measured = read_json(path)
    check(measured, launcher)
    return measured
