"""`tfrun run JOB.yaml`: starts what a file describes, also a grid of runs.

tfrun/README.md shows such a file, and job_schema.yaml all that it may have.
"""

import collections
import contextlib
import json
import os
import pathlib
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import jsonschema
import yaml
from rich.table import Table

from tfrun import formatting
from tfrun.arguments import fail
from tfrun.commands import common, start
from tfrun.launch import cluster, signals, without_notices
from tfrun.launch import grid as grids
from tfrun.launch.task import shell_code, start_process
from tfrun.runs import run_directory

TEXT = "tag:yaml.org,2002:str"
SCHEMA = pathlib.Path(__file__).with_name("job_schema.yaml")


def read(path: pathlib.Path) -> dict[str, Any]:
    """Returns the job in a file. Raises ValueError, one line that names the field, or OSError."""
    try:
        job = load(path.read_text(encoding="utf-8-sig")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())}") from None
    validator = jsonschema.Draft202012Validator(yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))
    # A key that is misspelt says more than one that is missing.
    order = jsonschema.exceptions.by_relevance(weak={"required"})
    if wrong := jsonschema.exceptions.best_match(validator.iter_errors(job), order):
        message = f"{': '.join(map(str, wrong.absolute_path)) or 'the file'}: {wrong.message}"
        if wrong.validator == "additionalProperties":
            message += f"; it may have {', '.join(wrong.schema['properties'])}"
        raise ValueError(message)
    for name in ("arguments", "environment", "roles", "grid"):
        job[name] = job.get(name) or {}
    for name, values in job["grid"].items():
        if same := grids.first_duplicate(values):
            raise ValueError(f"grid: {name}: {same[0]} and {same[1]} are one run: remove one")
    for name in {"script", "problem"} & job.keys():
        job[name] = (path.parent / job[name]).resolve()
    return job


def load(text: str) -> Any:
    """Returns what a text in YAML says, with values as they are written.

    YAML 1.1 makes 8 of 010, False of NO, and 45000 of 12:30:00. Here a value is a number only if
    Python would write it so, true and false are the only booleans, and all else is text.
    Raises yaml.YAMLError, or ValueError where a key stands twice.
    """
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        keep_as_written(root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def keep_as_written(node: yaml.Node, is_text: bool = False) -> None:
    """Makes text of all values in a node that YAML would change; of all where is_text.

    Raises ValueError where a key stands twice in one mapping.
    """
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise ValueError(f"line {line}: {name} stands twice, first in line {lines[name]}")
            lines[name] = line
            if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                key.tag = TEXT  # a variable may be called NO or 1
            variables = name == "environment" and isinstance(value, yaml.MappingNode)
            keep_as_written(value, is_text or variables)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            keep_as_written(value, is_text)
    elif is_text or is_changed_by_yaml(node):
        node.tag = TEXT


def is_changed_by_yaml(node: yaml.Node) -> bool:
    """Returns whether YAML makes something else of a value than what stands there."""
    if node.tag.endswith(":bool"):
        return node.value.lower() not in ("true", "false")
    if node.tag.endswith((":int", ":float")):
        return str(yaml.safe_load(node.value)) != node.value
    return node.tag.endswith(":timestamp")


def command_line(job: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
    """Returns the arguments of tfrun for one run of the job."""
    line, variables = flags_of_roles(job["roles"]), dict(job["environment"])
    for role, settings in job["roles"].items():
        for name, value in ((settings or {}).get("environment") or {}).items():
            variables[f"{role}:{name}"] = value
    for name, value in variables.items():
        line += ["--env", f"{name}={grids.text(value)}"]
    for flag in ("problem", "timeout", "restarts", "patience"):
        if flag in job:
            line += [f"--{flag}", str(job[flag])]
    if job.get("isolate"):
        line.append("--isolate")
    line += ["--", str(job["script"])]
    for name, value in {**job["arguments"], **point}.items():
        if value is not False:
            line.append(f"--{name}")
        if not isinstance(value, bool):
            line.append(str(value))
    return line


def flags_of_roles(roles: Mapping[str, Any]) -> list[str]:
    """Returns the flags of tfrun that say how many tasks each role has, and what they may use."""
    line, amounts = [], collections.defaultdict(list)
    for role, settings in roles.items():
        settings = settings or {}
        replicas = settings.get("replicas", 1)
        if role in ("ps", "worker"):
            line += ["--ps" if role == "ps" else "--workers", str(replicas)]
        elif replicas:
            line.append(f"--{role}")
        for kind in {"cpus", "gpus", "memory"} & settings.keys():
            amounts[kind].append(f"{role}={settings[kind]}")
    for kind, parts in sorted(amounts.items()):
        line += [f"--{kind}", ",".join(parts)]
    return line


def run_grid(job: Mapping[str, Any], n: int, directory: pathlib.Path) -> int:
    """Runs all combinations, n at once; returns the first failure's exit code, 130 after Ctrl-C."""
    points = grids.named(grids.product(job["grid"]))
    codes: dict[str, int] = {}
    started, lock = [], threading.Lock()
    # Runs at once share what there is: each has the cores and GPUs of its slot.
    cores = (cluster.core_numbers() or [])[: cluster.cores()]
    slots = [
        (cores[i::n] if n <= len(cores) else None, own)
        for i, own in enumerate(grids.deal(cluster.gpus(), n))
    ]

    def run_one(name: str, slot: tuple[list[int] | None, list[str]]) -> None:
        if 2 in codes.values():  # a wrong flag: no other run begins
            sys.exit(2)
        cores, gpus = slot
        env = {
            **os.environ,
            "OUTPUT_DIR": str(directory / name),
            "PYTHONPATH": without_notices.python_path(),
        }
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        command = [sys.executable, "-m", "tfrun", *command_line(job, points[name])]
        process = start_process(command, env, cores, signal.SIGTERM)
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            with lock, contextlib.suppress(BrokenPipeError):  # the runs go on without a reader
                print(f"[{name}]", line.decode(errors="replace").rstrip(), flush=True)
        codes[name] = shell_code(process.wait())

    def stop() -> None:
        while started:  # each once: a second SIGTERM would kill a tfrun that is about to end
            started.pop().terminate()

    def end(number: int, _: object) -> None:
        signals.handle(lambda *_: None, *signals.ENDING)  # it ends already
        sys.exit(128 + number)

    signals.handle(end, *signals.ENDING)
    signals.handle(lambda *_: signals.pause(print), signal.SIGTSTP)
    stopped: Any = None  # the exit code after a signal, or a wrong flag
    try:
        grids.run(points, slots, run_one, stop)
    except SystemExit as error:
        stopped = error.code
    finally:
        signals.handle(lambda *_: None, *signals.ENDING)  # the report is written whole
    report(points, codes, directory)
    return stopped or next((code for code in codes.values() if code), 0)


def report(
    points: Mapping[str, dict[str, Any]], codes: Mapping[str, int], directory: pathlib.Path
) -> None:
    """Prints the table of the runs, and writes it as grid.json."""
    rows, table = [], Table(box=None)
    for name in [*next(iter(points.values())), "result", "updates", "seconds", "end"]:
        table.add_column(name, overflow="fold")
    for name, point in points.items():
        result, code = run_directory.result(directory / name) or {}, codes.get(name)
        tests = {key: value for key, value in result.items() if key.startswith("test_")}
        steps, seconds = result.get("steps"), result.get("wall_seconds")
        row = {"run": name, "arguments": point, "exit_code": code, "seconds": seconds}
        rows.append({**row, "steps": steps, **tests})
        table.add_row(
            *map(grids.text, point.values()),
            formatting.tests_text(tests),
            formatting.number_text(steps, "%d"),
            formatting.number_text(seconds, "%.1f"),
            "not begun" if code is None else f"exit code {code}" if code else "done",
        )
    with contextlib.suppress(OSError):  # a full disk; the table is on the screen
        (directory / "grid.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    common.console().print(table)
    print(f"the runs are in {directory}")


def command(arguments: list[str]) -> int:
    """`tfrun run JOB.yaml`; returns the exit code."""
    parser = common.parser("run", __doc__, run=None, json_too=False)
    parser.add_argument("job", type=pathlib.Path, metavar="JOB.yaml")
    parser.add_argument("--dry-run", action="store_true", help="print the commands instead")
    flags = parser.parse_args(arguments)
    try:
        job = read(flags.job)
        lines = [command_line(job, point) for point in grids.product(job["grid"])]
        n = min(int(job.get("parallel", 1)), len(lines))
        for line in lines:  # what is wrong is told before the first run
            start.check(line, n)
    except (OSError, ValueError) as error:
        return fail(f"{flags.job}: {error}")
    if flags.dry_run:
        for line in lines:
            print(shlex.join(["tfrun", *line]))
        return 0
    if not job["grid"]:
        return start.command(lines[0])
    try:
        directory = run_directory.RunDirectory(run_directory.example_of(job["script"]))
    except OSError as error:
        return fail(run_directory.UNWRITABLE.format(error))
    return run_grid(job, n, directory.path)
