"""Plants mistakes in the code, one at a time, and counts how many of them the tests find.

    python lab/mutation/score.py                             all groups, 100 mistakes of each
    python lab/mutation/score.py runs launch --sample 25     some of them
    python lab/mutation/score.py runs --seed 3 --verbose

tests/mutation/groups.yaml has the groups, and which tests look at a file. tests/mutation/
equivalent.yaml lists mistakes that change nothing which matters, each with its reason. A sample is
drawn from all that lab/mutation/mutants.py can plant in the files of a group; the same seed draws
the same.

The tests run in a copy of this working tree, in forks of one process that has imported everything
(lab/mutation/planting.py). A fork runs tests up to the first failure: those that call the function
with the mistake, the fast ones first, and then those that start processes. Tests with the mark
plants_mistakes are left out, because they fail wherever the text has changed. What takes more than
LIMIT times as long as without the mistake counts as found.

It prints each mistake that no test finds, and a table. The exit code is 1 if a group falls below
its floor, or if more than MOST_EQUIVALENT of its sample stand on the list of equivalents.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import traceback
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from tfrun.launch.task import end_with_parent

from lab import examples
from lab.examples import ROOT, ToolError
from lab.measure import arguments
from lab.mutation import mutants, patching, planting

FOLDER = ROOT / "tests" / "mutation"
MOST_EQUIVALENT = 0.06  # of a sample
COPY_SECONDS = 300  # for git to copy the project, at most
FLAGS = ["-x", "-q", "--no-header", "--tb=short", "--durations=0", "--durations-min=9"]
SELECTION = ["-m", "not nightly and not plants_mistakes"]
LIBRARIES = (  # imported once, before all forks; nothing of this project
    "tensorflow",
    "keras",
    "sklearn.datasets",
    "matplotlib.pyplot",
    "jsonschema",
    "jinja2",
    "rich.live",
    "rich.progress",
    "tensorboard.compat.proto.event_pb2",
    "tensorboard.backend.event_processing.event_accumulator",
)


@dataclasses.dataclass
class Group:
    """Files whose mistakes count together, as groups.yaml has them."""

    name: str
    floor: float  # the share of a sample that has to be found, or be equivalent
    after: str  # mistakes stand below the line that begins so
    tests: dict[str, list[str]]  # {file: its tests}


@dataclasses.dataclass
class Score:
    """What became of a group's sample."""

    caught: int = 0
    by_time: int = 0  # of those caught
    equivalent: int = 0
    survived: int = 0

    @property
    def mistakes(self) -> int:
        """Returns how many were planted, or stand on the list."""
        return self.caught + self.equivalent + self.survived

    @property
    def share(self) -> float:
        """Returns the share that does not survive."""
        return (self.caught + self.equivalent) / max(1, self.mistakes)


def read_groups(path: pathlib.Path = FOLDER / "groups.yaml") -> dict[str, Group]:
    """Returns {name: a group}."""
    groups = {}
    for name, content in yaml.safe_load(path.read_text()).items():
        floor, after = content.get("floor", 0.85), content.get("after", "")
        groups[name] = Group(name, floor, after, content["files"])
    return groups


def read_equivalents(
    path: pathlib.Path = FOLDER / "equivalent.yaml",
) -> dict[mutants.Change, str]:
    """Returns {a mistake: why it changes nothing that matters}."""
    entries = yaml.safe_load(path.read_text()) or []
    reasons = [entry.pop("reason") for entry in entries]
    return {mutants.Change(**entry): reason for entry, reason in zip(entries, reasons)}


def wilson(hits: int, tries: int, z: float = 1.96) -> tuple[float, float]:
    """Returns Wilson's interval of a share, at 95% for this z."""
    if not tries:
        return 0.0, 1.0
    share, square = hits / tries, z * z / tries
    middle = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / tries + square / (4 * tries))
    return middle - half, middle + half


def sample(group: Group, number: int, seed: int) -> list[mutants.Mutation]:
    """Returns so many mutations of a group; the same ones for the same seed and text."""
    population = sum((mutants.find_mutations(file, group.after) for file in group.tests), [])
    size = min(number, len(population))
    return random.Random(f"{seed} {group.name}").sample(population, size)


def copy_project(folder: pathlib.Path) -> None:
    """Copies what git knows of, with changes that are not committed."""
    git = functools.partial(examples.git, seconds=COPY_SECONDS)
    tree = git("stash", "create") or git("rev-parse", "HEAD")
    git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder))
    git("checkout", "--quiet", "--detach", tree, folder=folder)


def import_libraries() -> None:
    """Imports what tests use, so that no fork has to."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            __import__(name)


def run_session(copy: pathlib.Path, tests: list[str], planter: planting.Planter) -> int:
    """In a process of its own: runs pytest in a copy; returns its exit code."""
    end_with_parent()
    os.setsid()
    os.chdir(copy)
    with open(f"{copy}.txt", "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(dir=copy.parent)
    import_from(copy)
    import pytest  # as late as this, because its plugins look for what is imported already

    return int(pytest.main([*FLAGS, *SELECTION, *tests], [planter]))


def import_from(copy: pathlib.Path) -> None:
    """Lets this process and those that it starts import the project from a copy."""
    for name in list(sys.modules):
        if name.split(".")[0] in patching.PACKAGES:
            del sys.modules[name]
    original = [str(ROOT), str(ROOT / "lab"), ""]
    sys.path[:] = [str(copy), *(path for path in sys.path if path not in original)]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in inherited if path and path not in original]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(copy), *others])


def try_mutations(
    copy: pathlib.Path, group: Group, mutations: list[mutants.Mutation]
) -> list[planting.Outcome]:
    """Returns what became of each mistake, in order. Raises ToolError if no test could run."""
    output = copy.parent / "outcomes"
    output.unlink(missing_ok=True)
    files = {mutation.file: group.tests[mutation.file] for mutation in mutations}
    entries = sum(files.values(), [])
    tests = list(dict.fromkeys(entry.partition(planting.WHERE)[0] for entry in entries))
    pid = os.fork()
    if not pid:
        code = 3
        try:
            code = run_session(copy, tests, planting.Planter(copy, files, mutations, output))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    try:
        os.waitpid(pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    printed = pathlib.Path(f"{copy}.txt").read_text(errors="replace")
    for line in printed.splitlines():
        if line.startswith(planting.LEFT_OUT):
            print(line)
    if not output.exists():
        raise ToolError(f"these cannot run: {' '.join(tests)}\n{printed[-4000:]}")
    return [planting.Outcome(**facts) for facts in json.loads(output.read_text())]


def score_group(copy: pathlib.Path, group: Group, number: int, seed: int, verbose: bool) -> Score:
    """Plants a sample of a group's mistakes; prints what no test finds; returns the score."""
    score, equivalents = Score(), read_equivalents()
    texts = {file: (ROOT / file).read_text() for file in group.tests}
    planted: list[tuple[mutants.Mutation, mutants.Change]] = []
    for mutation in sample(group, number, seed):
        change = mutants.change_of(mutation, texts[mutation.file])
        if change in equivalents:
            score.equivalent += 1
        else:
            planted.append((mutation, change))
    outcomes = try_mutations(copy, group, [mutation for mutation, _ in planted]) if planted else []
    for (mutation, change), outcome in zip(planted, outcomes):
        score.caught += outcome.caught
        score.by_time += outcome.by_time
        score.survived += not outcome.caught
        if verbose or not outcome.caught:
            show(mutation, change, outcome)
    return score


def show(mutation: mutants.Mutation, change: mutants.Change, outcome: planting.Outcome) -> None:
    """Prints where a mistake stands, what it changes, and what became of it."""
    where = f"{mutation.file}:{mutation.line}, {mutation.function or 'the module'}"
    words = f"caught by {outcome.by}" if outcome.caught else "survives"
    print(f"{where}: {words} in {outcome.seconds:.1f} s")
    for line in change.old.splitlines():
        print(f"    - {line}")
    for line in change.new.splitlines():
        print(f"    + {line}")
    sys.stdout.flush()


def is_below_floor(group: Group, score: Score) -> bool:
    """Returns whether a score is lower than it has to be."""
    return score.share < group.floor or score.equivalent > MOST_EQUIVALENT * score.mistakes


def make_table(scores: dict[str, Score], groups: dict[str, Group], seed: int) -> Table:
    """Returns the table of all scores."""
    table = Table(title=f"Mistakes that tests find, seed {seed}")
    for name in ("group", "mistakes", "caught", "by time", "equivalent", "survived"):
        table.add_column(name, justify="left" if name == "group" else "right")
    table.add_column("share, 95% interval", justify="right")
    table.add_column("floor", justify="right")
    for name, score in scores.items():
        low, high = wilson(score.caught + score.equivalent, score.mistakes)
        cells: list[Any] = [
            *(score.mistakes, score.caught, score.by_time, score.equivalent, score.survived),
            f"{score.share:.0%}, {low:.0%} to {high:.0%}",
            f"{groups[name].floor:.0%}" + (" BELOW" if is_below_floor(groups[name], score) else ""),
        ]
        table.add_row(name, *map(str, cells))
    return table


def main() -> int:
    groups = read_groups()
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("groups", nargs="*", help=f"{', '.join(groups)} (all)")
    number = arguments.positive(int)
    parser.add_argument("--sample", type=number, default=100, help="mistakes of a group (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--verbose", action="store_true", help="print what is caught as well")
    flags = parser.parse_args()
    if unknown := set(flags.groups) - set(groups):
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(groups)}")
    scores = {}
    import_libraries()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mutation-"))
    try:
        for name in flags.groups or groups:
            copy = folder / name.replace(" ", "-")
            copy_project(copy)
            scores[name] = score_group(copy, groups[name], flags.sample, flags.seed, flags.verbose)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Console(width=110).print(make_table(scores, groups, flags.seed))
    return int(any(is_below_floor(groups[name], score) for name, score in scores.items()))


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
