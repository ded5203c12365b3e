"""The command `tfrun`: reads its flags, then launches, or prints what it would launch."""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
from typing import NamedTuple

import tfrun
from tfrun import problems
from tfrun.arguments import Parser, count, fail, seconds
from tfrun.commands import COMMANDS
from tfrun.launch import horovod, isolate, resources, without_notices
from tfrun.launch.supervisor import LaunchSpec, Run
from tfrun.runs import early_stop, run_directory
from tfrun.ssh import hosts

DESCRIPTION = """Starts the tasks of a cluster. TF_CONFIG tells each process which task it is.

    tfrun --ps 1 --workers 2 -- script.py --steps 100

runs script.py three times on this machine. What a task prints is shown behind its name.

RUN is a name that tfrun status shows, a part of it, or a run directory. Each of these commands has
a --help of its own:

"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the flags in `arguments`. Exits with 2 and one line if they are wrong."""
    parser = Parser(
        prog="tfrun",
        description=DESCRIPTION + command_lines(),
        usage="tfrun [--ps N] [--workers N] [options] -- script.py [its arguments]",
        allow_abbrev=False,
        epilog="OUTPUT_DIR names the run directory; without it tfrun makes a new one, "
        "$RUNS_DIR/<example>/<time> (RUNS_DIR: ./runs).",
    )
    add = parser.add_argument
    variables = os.environ
    add("--version", action="version", version=f"tfrun {tfrun.__version__}")
    add("--ps", type=count, default=0, metavar="N", help="parameter servers (0)")
    add("--workers", type=count, default=1, metavar="N", help="workers (1)")
    add("--chief", action="store_true", help="one task more, of the type chief")
    text = "one task more, which tests the checkpoints by `tfrun evaluate`"
    add("--evaluator", action="store_true", help=text)
    text = "one task more, of the type evaluator, which runs the script like the others"
    add("--own-evaluator", action="store_true", help=text)
    text = "stop everything after that many seconds and exit with 124 (TFRUN_TIMEOUT, or never)"
    limit = variables.get("TFRUN_TIMEOUT") or None
    add("--timeout", type=seconds, default=limit, metavar="S", help=text)
    text = "start a task that failed again, in its place, up to N times (TFRUN_RESTARTS, or 0)"
    restarts = variables.get("TFRUN_RESTARTS") or "0"
    add("--restarts", type=count, default=restarts, metavar="N", help=text)
    text = "end the run after N tests without a better loss, or METRIC (TFRUN_PATIENCE, or never)"
    patience = variables.get("TFRUN_PATIENCE") or None
    add("--patience", type=early_stop.patience, default=patience, metavar="[METRIC=]N", help=text)
    text = "run in a network of its own, which nothing outside can reach; Linux only "
    isolated = is_switched_on("TFRUN_ISOLATE")
    add("--isolate", action="store_true", default=isolated, help=text + "(TFRUN_ISOLATE=1)")
    amount = resources.per_role(resources.whole)
    text = "cores of its own for each such task; Linux"
    add("--cpus", type=amount, default={}, metavar="ps=1,worker=1", help=text)
    text = "GPUs of its own for each such task, none for others"
    add("--gpus", type=amount, default={}, metavar="worker=1", help=text)
    amount = resources.per_role(resources.size)
    text = "a task that uses more is killed, and has failed"
    add("--memory", type=amount, default={}, metavar="worker=2G", help=text)
    text = "a variable for all tasks, or for those of one role; may be given several times"
    add(
        "--env",
        type=resources.environment_variable,
        action="append",
        default=[],
        metavar="[ROLE:]NAME=VALUE",
        help=text,
    )
    text = "start the tasks over ssh: N on each host, [user@]host:N; in this order"
    add("--hosts", type=hosts.parse, metavar="HOST:N,...", help=text)
    text = "put the data and the model of this file into the script's place for them (PROBLEM)"
    add("--problem", default=variables.get("PROBLEM"), metavar="FILE", help=text)
    text = "print a bash script that does the same without tfrun (also: DRY_RUN=1)"
    add("--dry-run", action="store_true", default=is_switched_on("DRY_RUN"), help=text)
    add("script", help="the training script; or horovodrun, which starts the workers itself")
    add("arguments", nargs=argparse.REMAINDER, help="what the script gets")
    flags = parser.parse_args(arguments)
    if wrong := contradiction(flags):
        parser.error(wrong)
    return flags


def is_switched_on(name: str) -> bool:
    """Returns whether an environment variable is set, to anything but 0."""
    return os.environ.get(name, "") not in ("", "0")


def command_lines() -> str:
    """Returns a line about each of the other commands: the first of its module."""
    lines = []
    for command in COMMANDS.values():
        path = pathlib.Path(__file__).with_name(f"{command.module}.py")
        first = re.match('"""`(tfrun .+)`: (.+?)("""|\n)', path.read_text(encoding="utf-8"))
        if first:
            lines.append(f"    {first[1]:24} {first[2]}\n")
    return "".join(lines)


def contradiction(flags: argparse.Namespace) -> str | None:
    """Returns what is wrong with flags that are right one by one; None if nothing is."""
    of_this_machine = ("isolate", "cpus", "gpus", "memory")
    if horovod.is_horovodrun(flags.script):
        if not shutil.which(flags.script):
            return "there is no horovodrun on the PATH"
        if not 1 <= horovod.ranks(flags.arguments) <= 99:
            return "horovodrun needs -np and the number of ranks, from 1 to 99"
        if flags.evaluator or flags.own_evaluator:
            return "horovodrun starts no evaluator"
        if flags.cpus or flags.gpus or flags.memory or flags.env:
            return "horovodrun starts its ranks itself: no --cpus, --gpus, --memory, --env"
        if flags.hosts:
            return "horovodrun has its own -H: not --hosts"
    elif not pathlib.Path(flags.script).is_file():
        return f"there is no script {flags.script} here ({os.getcwd()})"
    if flags.evaluator and flags.own_evaluator:
        return "a run has one evaluator: --evaluator or --own-evaluator"
    if flags.hosts and (names := [name for name in of_this_machine if getattr(flags, name)]):
        return f"--{names[0]} is for the tasks of this machine: not with --hosts"
    if not flags.chief and not flags.workers:
        return "a run needs a worker or a chief"
    return None


class CheckedCommand(NamedTuple):
    """What the flags of a launch ask for, once they are known to be right."""

    flags: argparse.Namespace
    jobs: dict[str, int]  # {job: number of tasks}
    shares: dict[tuple[str, int], resources.Share]  # of each task what it has of its own
    problem_copy: problems.ProblemCopy | None
    script: str  # the file of the command that is one of Python's, else its first word


def check(arguments: list[str], runs: int = 1) -> CheckedCommand:
    """Returns the CheckedCommand of these arguments.

    runs: how many such runs go on at once. Exits with 2, or raises ValueError.
    """
    flags = parse(arguments)
    problem_copy = problems.make_copy(flags.problem, [flags.script, *flags.arguments])
    numbers = {"chief": int(flags.chief), "ps": flags.ps, "worker": flags.workers}
    numbers["evaluator"] = int(flags.evaluator or flags.own_evaluator)
    jobs = {job: n for job, n in numbers.items() if n}
    shares = resources.shares(jobs, flags.cpus, flags.gpus, flags.memory, runs)
    script = problems.script_of([flags.script, *flags.arguments])
    return CheckedCommand(flags, jobs, shares, problem_copy, script)


def command(arguments: list[str]) -> int:
    """Launches, or prints what it would launch; returns the exit code."""
    try:
        flags, jobs, shares, problem_copy, script = check(arguments)
        host_of_task = hosts.deal(jobs, flags.hosts) if flags.hosts else None
    except ValueError as error:
        return fail(error)
    by_horovodrun = horovod.is_horovodrun(flags.script)
    program = [flags.script, *flags.arguments]
    if by_horovodrun:
        jobs = {"worker": horovod.ranks(program)}
    else:
        program = [sys.executable, *program]
    if {"-h", "--help"} & set(flags.arguments):  # of the script, which needs no cluster for it
        return without_notices.run([sys.executable, script, "--help"])
    example = run_directory.example_of(script)
    if flags.dry_run and host_of_task:
        print("\n".join(hosts.plan(host_of_task)))
        return 0
    if flags.dry_run:
        from tfrun.launch import dry_run  # here, because Jinja would slow each launch down

        started = {} if by_horovodrun else jobs
        more = flags.env, flags.evaluator, problem_copy
        print(dry_run.script(started, program, example, shares, *more), end="")
        return 0
    try:
        run_directory.refuse_another_example(run_directory.given(), script)
        problems.refuse_another_problem(run_directory.given(), script, problem_copy)
        if message := finished(program):
            print(f"[tfrun] {message}")
            return 0
        directory = run_directory.RunDirectory(example)
        program = problems.write_copy(directory.path, problem_copy, program)
    except ValueError as error:
        return fail(error)
    except OSError as error:
        return fail(run_directory.UNWRITABLE.format(error))
    spec = specification(flags, jobs, shares, program, example, directory.path)
    if by_horovodrun:
        spec.tasks = [horovod.Horovodrun(program, directory.path)]
    return launch(spec, flags, host_of_task, directory, arguments)


def specification(
    flags: argparse.Namespace,
    jobs: dict[str, int],
    shares: dict[tuple[str, int], resources.Share],
    program: list[str],
    example: str,
    directory: pathlib.Path,
) -> LaunchSpec:
    """Returns what the supervisor needs to know of a run."""
    spec = LaunchSpec(
        example=example,
        jobs=jobs,
        commands=dict.fromkeys(jobs, program),
        directory=directory,
        timeout=flags.timeout,
        restarts=flags.restarts,
        patience=flags.patience,
        isolated=flags.isolate,
        shares=shares,
        variables=flags.env,
    )
    if flags.evaluator:
        follow = [sys.executable, "-m", "tfrun.commands.evaluate", str(directory), "--follow"]
        # A run that goes on has the flags.json of before, until its chief writes another.
        if steps := run_directory.steps_asked_for(program):
            follow += ["--steps", str(steps)]
        spec.commands["evaluator"] = follow
        spec.variables = [("evaluator", "PYTHONPATH", without_notices.python_path()), *flags.env]
    return spec


def launch(
    spec: LaunchSpec,
    flags: argparse.Namespace,
    host_of_task: dict[tuple[str, int], hosts.Host] | None,
    directory: run_directory.RunDirectory,
    arguments: list[str],
) -> int:
    """Prepares network and hosts, and supervises the run; returns the exit code."""
    resume = shlex.join([sys.executable, shutil.which(sys.argv[0]) or sys.argv[0], *arguments])
    resume = f"OUTPUT_DIR={shlex.quote(str(directory.path))} {resume}"
    try:
        if flags.isolate:
            isolate.enter()
        if host_of_task:
            spec = hosts.prepare(spec, host_of_task)
    except KeyboardInterrupt:
        directory.discard()
        return 128 + signal.SIGINT
    except (OSError, ValueError) as error:
        directory.discard()
        about = "--isolate does not work on this machine: " if flags.isolate else ""
        for line in f"{about}{error}".splitlines():
            fail(line)
        return 2
    return supervise(spec, directory, problems.with_problem_variable(resume))


def finished(program: list[str]) -> str | None:
    """Returns why the run in OUTPUT_DIR needs no more updates; None if it does, or is new."""
    directory = run_directory.given()
    if not directory or not (directory / "result.json").exists():
        return None
    steps = (run_directory.result(directory) or {}).get("steps")
    if run_directory.stopped_at(directory):
        return run_directory.STOPPED.format(directory)
    if steps is None or (run_directory.steps_asked_for(program) or 0) <= steps:
        return run_directory.FINISHED.format(directory)
    return None


def supervise(spec: LaunchSpec, directory: run_directory.RunDirectory, resume: str) -> int:
    """Runs the tasks, and says what came out; returns the exit code.

    resume: the command that goes on with this run.
    """
    try:
        run = Run(spec)
    except OSError as error:
        directory.discard()
        return fail(f"the run cannot start: {error}")
    code = run.supervise()
    with contextlib.suppress(BrokenPipeError):
        if run.wrong_flag and directory.discard():
            if run.record:
                run.record.path.unlink(missing_ok=True)
            run.say("nothing is left of this run: it had not begun")
        elif run.interrupted:
            saved = run_directory.saved_step(spec.directory)
            how = f"goes on from update {saved}" if saved else "begins again"
            run.say(f"this run is in {spec.directory}; it {how} with: {resume}")
        elif run.done and (lost := run.lost_directory()):
            run.say(lost)
            code = code or 1
        elif run.done and (spec.directory / "flags.json").exists():
            # Here, because NumPy starts threads, and --isolate must come before.
            from tfrun.commands import summary

            code = summary.conclude(spec.directory, code, run.say)
    run.close_record(code)
    return code
