"""The command `tfrun`: reads its flags, then launches, or prints what it would launch.

    tfrun --ps 1 --workers 2 -- script.py --steps 100

runs script.py three times on this machine, with TF_CONFIG telling each process which task it is.

    tfrun summary DIR...    result.json of a run that another launcher started, from what its tasks
                            have left in DIR (on several hosts: a folder each)
    tfrun curves DIR...     the picture of such a run, curves.png, also while it goes on
    tfrun explain LOG...    what the error at the end of a log means
    tfrun evaluate DIR      tests the newest checkpoint; --follow: each new one, while it trains
    tfrun export DIR        the trained model of a run as DIR/model.keras and DIR/saved_model

RUN is a name that tfrun status shows, a part of it, or a run directory:

    tfrun status            all your runs on this machine, alive and past
    tfrun monitor [RUN]     the tasks of a run, live: processor, memory, steps/s, staleness, loss
    tfrun logs RUN [TASK]   what its tasks have printed; -f follows
    tfrun kill RUN          ends it, even if its tfrun has died
    tfrun tensorboard RUN   shows it in TensorBoard, on this machine only
    tfrun trace RUN         when each task pulled and pushed, as a picture and for Perfetto
    tfrun run JOB.yaml      starts what a file describes, also a grid of runs

Each has a --help of its own.
"""

import argparse
import json
import math
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

from tfrun import errors, formatting
from tfrun.launch import dry_run, horovod, isolate, resources, supervisor
from tfrun.runs import run_directory


# The commands about runs that there are: each NAME_command in watching.py.
WATCHING = ("status", "monitor", "logs", "kill", "tensorboard")


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with a flag, without the usage above it."""

    def error(self, message):
        print("tfrun: %s (tfrun --help lists the flags)" % message, file=sys.stderr)
        sys.exit(2)


def count(text):
    """A type of flag: a whole number from 0 to 99."""
    if not 0 <= int(text) <= 99:
        raise argparse.ArgumentTypeError("must be from 0 to 99, is %s" % text)
    return int(text)


def seconds(text):
    """A type of flag: a positive, finite number of seconds."""
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError("must be above 0 and finite, is %s" % text)
    return float(text)


def parse(arguments):
    """The flags in `arguments`, a list of strings. Exits with 2 and one line if they are wrong."""
    parser = Parser(
        prog="tfrun",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="tfrun [--ps N] [--workers N] [options] -- script.py [its arguments]",
        allow_abbrev=False,
        epilog="OUTPUT_DIR names the run directory; without it tfrun makes a new one, "
        "$RUNS_DIR/<example>/<time> (RUNS_DIR: ./runs).",
    )
    parser.add_argument("--ps", type=count, default=0, metavar="N", help="parameter servers (0)")
    parser.add_argument("--workers", type=count, default=1, metavar="N", help="workers (1)")
    parser.add_argument("--chief", action="store_true", help="one task more, of the type chief")
    parser.add_argument(
        "--evaluator",
        action="store_true",
        help="one task more, which tests the checkpoints by `tfrun evaluate`",
    )
    parser.add_argument(
        "--own-evaluator",
        action="store_true",
        help="one task more, of the type evaluator, which runs the script like the others",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=os.environ.get("TFRUN_TIMEOUT"),
        metavar="S",
        help="stop everything after that many seconds and exit with 124 (TFRUN_TIMEOUT, or never)",
    )
    parser.add_argument(
        "--restarts",
        type=count,
        default=os.environ.get("TFRUN_RESTARTS", "0"),
        metavar="N",
        help="start a task that failed again, in its place, up to N times (TFRUN_RESTARTS, or 0)",
    )
    parser.add_argument(
        "--isolate",
        action="store_true",
        default=bool(os.environ.get("TFRUN_ISOLATE")),
        help="run in a network of its own, which nothing outside can reach; Linux only "
        "(TFRUN_ISOLATE=1)",
    )
    for flag, value, example, text in [
        ("--cpus", resources.whole, "ps=1,worker=1", "cores of its own for each such task; Linux"),
        (
            "--gpus",
            resources.whole,
            "worker=1",
            "GPUs of its own for each such task, none for others",
        ),
        (
            "--memory",
            resources.size,
            "worker=2G",
            "a task that uses more is killed, and has failed",
        ),
    ]:
        parser.add_argument(
            flag, type=resources.per_role(value), default={}, metavar=example, help=text
        )
    parser.add_argument(
        "--env",
        type=resources.environment_variable,
        action="append",
        default=[],
        metavar="[ROLE:]NAME=VALUE",
        help="a variable for all tasks, or for those of one role; may be given several times",
    )
    parser.add_argument(
        "--hosts",
        type=host_list,
        metavar="HOST:N,...",
        help="start the tasks over ssh: N on each host, [user@]host:N; in this order",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        default=bool(os.environ.get("DRY_RUN")),
        help="print a bash script that does the same without tfrun (also: DRY_RUN=1)",
    )
    parser.add_argument(
        "script", help="the training script; or horovodrun, which starts the workers itself"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets")
    flags = parser.parse_args(arguments)
    if horovod.is_meant(flags.script):
        if not shutil.which(flags.script):
            parser.error("there is no horovodrun on the PATH")
        if not 1 <= horovod.ranks(flags.arguments) <= 99:
            parser.error("horovodrun needs -np and the number of ranks, from 1 to 99")
        if flags.evaluator or flags.own_evaluator:
            parser.error("horovodrun starts no evaluator")
        if flags.cpus or flags.gpus or flags.memory or flags.env:
            parser.error("horovodrun starts its ranks itself: no --cpus, --gpus, --memory, --env")
    elif not pathlib.Path(flags.script).is_file():
        parser.error("there is no script %s here (%s)" % (flags.script, os.getcwd()))
    if flags.evaluator and flags.own_evaluator:
        parser.error("a run has one evaluator: --evaluator or --own-evaluator")
    if flags.hosts:
        check_hosts(parser, flags)
    if not flags.chief and not flags.workers:
        parser.error("a run needs a worker or a chief")
    return flags


def host_list(text):
    """A type of flag: host1:2,user@host2:2."""
    from tfrun.ssh import hosts  # here, because a run on this machine needs none of it

    try:
        return hosts.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_hosts(parser, flags):
    """Ends with one line where a flag makes no sense with --hosts."""
    for name in ("isolate", "cpus", "gpus", "memory"):
        if getattr(flags, name):
            parser.error("--%s is for the tasks of this machine: not with --hosts" % name)
    if horovod.is_meant(flags.script):
        parser.error("horovodrun has its own -H: not --hosts")


def paths(command, arguments, what):
    """The paths among the arguments of a command of tfrun that takes nothing else."""
    parser = Parser(prog="tfrun " + command)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar=what)
    return parser.parse_args(arguments).paths


def summary_command(arguments):
    """`tfrun summary DIR...`: prints and writes result.json; returns the exit code."""
    # Here, because NumPy starts threads: --isolate must come before.
    from tfrun.runs import events, summary
    from tfrun.runs.data import RunData

    parser = Parser(prog="tfrun summary")
    parser.add_argument("--line", action="store_true", help="print the tests only, as a run does")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="DIR")
    flags = parser.parse_args(arguments)
    try:
        run = RunData.read(*flags.paths)
        result = summary.write(run)
        events.write(run)
    except (OSError, ValueError) as error:
        print("tfrun: %s" % error, file=sys.stderr)
        return 1
    if flags.line:
        print(
            "[tfrun] %s; everything of this run is in %s"
            % (formatting.tests(result), flags.paths[0])
        )
    else:
        print(json.dumps(result, indent=2))
    if missing := summary.missing_tasks(result):
        print("tfrun: %s" % missing, file=sys.stderr)
    return 0


def curves_command(arguments):
    """`tfrun curves DIR...`: draws each run, also one that goes on; returns the exit code."""
    from tfrun.pictures import curves
    from tfrun.runs.data import RunData

    for path in paths("curves", arguments, "DIR"):
        try:
            run_directory.read_flags(path)
            picture = curves.draw(RunData.read(path))
        except (OSError, ValueError) as error:
            print("tfrun: %s" % error, file=sys.stderr)
            return 1
        if not picture:
            print("tfrun: no update was made yet in %s" % path, file=sys.stderr)
            return 1
        print(picture)
    return 0


def explain_command(arguments):
    """`tfrun explain LOG...`: explains the last known error of each log; returns the exit code."""
    code = 0
    for path in paths("explain", arguments, "LOG"):
        try:
            found = errors.explain(path.read_text(errors="replace"))
        except OSError as error:
            print("tfrun: %s" % error, file=sys.stderr)
            code = 2
            continue
        print("%s: %s" % (path, found or "no known error"))
        code = code or int(found is None)
    return code


def evaluate_command(arguments):
    """`tfrun evaluate DIR [--follow]`: tests checkpoints of a run; returns the exit code."""
    return without_noise("tfrun.commands.evaluate", *arguments)


def export_command(arguments):
    """`tfrun export DIR [--script FILE]`: writes the model of a run; returns the exit code."""
    return without_noise("tfrun.commands.export", *arguments)


def trace_command(arguments):
    """`tfrun trace RUN`: writes trace.json and trace.png; returns the exit code."""
    from tfrun.commands import trace  # here, because it draws

    return trace.command(arguments)


def run_command(arguments):
    """`tfrun run JOB.yaml`: starts the run, or the grid of runs, of a file; the exit code."""
    from tfrun.commands import job

    return job.command(arguments)


def script_help(flags, command):
    """Runs the script once, without a cluster, for its own help; returns its exit code."""
    if horovod.is_meant(flags.script):
        command = horovod.of_a_rank(command)
    return run_without_noise(command)


def without_noise(module, *arguments):
    """Runs a module of tfrun that imports TensorFlow, in a process; returns its exit code."""
    command = [sys.executable, "-m", module, *arguments]
    return run_without_noise(command, PYTHONPATH=python_path())


def python_path():
    """Returns the PYTHONPATH with which a process finds this tfrun."""
    here = str(pathlib.Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))


def run_without_noise(command, **env):
    """Runs a command that imports TensorFlow, without what that prints; returns its exit code."""
    env = {**{k: v for k, v in os.environ.items() if k != "TF_CONFIG"}, **env}
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: supervisor.prepare(None),  # it ends with this process
    )
    try:
        for line in process.stderr:
            if not supervisor.NOISE.match(line):
                sys.stderr.write(line.decode(errors="replace"))
        code = process.wait()
    except KeyboardInterrupt:
        process.kill()
        return 128 + signal.SIGINT
    return code if code >= 0 else 128 - code


def check(arguments):
    """(flags, {job: number of tasks}, their shares). Exits with 2, or raises ValueError."""
    flags = parse(arguments)
    jobs = {
        job: n
        for job, n in [
            ("chief", int(flags.chief)),
            ("ps", flags.ps),
            ("worker", flags.workers),
            ("evaluator", int(flags.evaluator or flags.own_evaluator)),
        ]
        if n
    }
    return flags, jobs, resources.shares(jobs, flags.cpus, flags.gpus, flags.memory)


def placement(jobs, found):
    """{(job, index): its Host}, None without --hosts. Raises ValueError."""
    if not found:
        return None
    from tfrun.ssh import hosts

    return hosts.deal(jobs, found)


def main(arguments=None):
    """Runs the command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in WATCHING:
        from tfrun.commands import watching  # here, because a launch needs none of it

        return watching.run(getattr(watching, arguments[0] + "_command"), arguments[1:])
    commands = {
        "summary": summary_command,
        "curves": curves_command,
        "explain": explain_command,
        "evaluate": evaluate_command,
        "export": export_command,
        "trace": trace_command,
        "run": run_command,
    }
    if arguments and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:])
    try:
        flags, jobs, shares = check(arguments)
        placed = placement(jobs, flags.hosts)
    except ValueError as error:
        print("tfrun: %s" % error, file=sys.stderr)
        return 2
    command = [sys.executable, flags.script, *flags.arguments]
    by_horovodrun = horovod.is_meant(flags.script)
    if by_horovodrun:
        command = command[1:]
        jobs = {"worker": horovod.ranks(command)}
    if {"-h", "--help"} & set(flags.arguments):
        return script_help(flags, command)
    scripts = [word for word in command if word.endswith(".py")] or [flags.script]
    example = pathlib.Path(scripts[0]).resolve().parent.name
    if flags.dry_run and placed:
        from tfrun.ssh import hosts

        print("\n".join(hosts.plan(placed)))
        return 0
    if flags.dry_run:
        print(
            dry_run.script(
                {} if by_horovodrun else jobs,
                command,
                example,
                shares,
                flags.env,
                evaluate=flags.evaluator,
            ),
            end="",
        )
        return 0
    given = run_directory.given()
    if given and (given / "result.json").exists():
        made = (run_directory.result(given) or {}).get("steps")
        if run_directory.stopped_at(given):
            print("[tfrun] " + run_directory.STOPPED.format(given))
            return 0
        if made is None or (run_directory.steps_asked_for(command) or 0) <= made:
            print("[tfrun] " + run_directory.FINISHED.format(given))
            return 0
    try:
        place = run_directory.RunDirectory(example)
    except OSError as error:
        print("tfrun: the run directory cannot be written: %s" % error, file=sys.stderr)
        return 2
    if flags.isolate:
        try:
            isolate.enter()
        except OSError as error:
            place.discard()
            print("tfrun: --isolate does not work on this machine: %s" % error, file=sys.stderr)
            return 2
    tasks = [horovod.Horovodrun(command, place.path)] if by_horovodrun else None
    again = "OUTPUT_DIR=%s %s" % (
        shlex.quote(str(place.path)),
        shlex.join([shutil.which(sys.argv[0]) or sys.argv[0], *arguments]),
    )
    commands, more_env = dict.fromkeys(jobs, command), flags.env
    if flags.evaluator:
        commands["evaluator"] = evaluator_task(place.path, command)
        more_env = [("evaluator", "PYTHONPATH", python_path()), *flags.env]
    run = [jobs, commands, example, place, flags.timeout, flags.restarts, flags.isolate, tasks]
    if not placed:
        return supervisor.run(*run, again, shares, more_env)
    return over_ssh(run, placed, again, more_env)


def evaluator_task(directory, command):
    """Returns the command of a task that tests the checkpoints of a run of this command."""
    follow = [sys.executable, "-m", "tfrun.commands.evaluate", str(directory), "--follow"]
    # A run that goes on has the flags.json of before, until its chief writes another.
    if steps := run_directory.steps_asked_for(command):
        follow += ["--steps", str(steps)]
    return follow


def over_ssh(run, placed, again, more_env):
    """Runs the tasks on hosts, {(job, index): Host}; returns the exit code."""
    from tfrun.ssh import hosts

    jobs, commands, _, place = run[:4]
    try:
        ready = hosts.Hosts(jobs, placed, commands, place, more_env)
    except (hosts.Unusable, KeyboardInterrupt) as error:
        place.discard()
        if isinstance(error, KeyboardInterrupt):
            return 128 + signal.SIGINT
        print("\n".join("tfrun: " + line for line in str(error).splitlines()), file=sys.stderr)
        return 2
    try:
        return supervisor.run(*run[:-1], ready.tasks, again, hosts=ready)
    finally:
        ready.close()


if __name__ == "__main__":
    sys.exit(main())
