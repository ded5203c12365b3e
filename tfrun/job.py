"""A run, or a grid of runs, that a YAML file describes.

script: HogWild/hogwild.py        # relative to this file
arguments: {steps: 600}           # --steps 600; true is a flag without a value
roles:
  ps: {replicas: 1, memory: 2G}
  worker: {replicas: 2, cpus: 1, environment: {TF_CPP_MIN_LOG_LEVEL: 1}}
environment: {RUNS: here}         # of all tasks
timeout: 600                      # these three as tfrun's flags
restarts: 1
isolate: false
grid:                             # a run for each combination
  learning-rate: [0.05, 0.1, 0.2]
  seed: [0, 1]
parallel: 1                       # runs at once
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading

from tfrun import cluster, launch, resources, rundir, words
from tfrun import grid as grids

KEYS = {"script", "arguments", "roles", "environment", "timeout", "restarts", "isolate"}
KEYS |= {"grid", "parallel"}
ROLE_KEYS = {"replicas", "cpus", "gpus", "memory", "environment"}


class WrongJob(ValueError):
    """What is wrong with the file, one line."""


def check(value, kind, where):
    """The value, if it is of that kind, else {} for None. Raises WrongJob."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        names = {dict: "a mapping (name: value)", list: "a list"}
        raise WrongJob("%s must be %s, is %r" % (where, names[kind], value))
    return value


def known(mapping, keys, where):
    """Raises WrongJob where a mapping has other keys than these."""
    for key in check(mapping, dict, where):
        if key not in keys:
            raise WrongJob("%s: there is no %r; it may have %s" % (where, key, ", ".join(keys)))


def read(path):
    """The job in a file, checked. Raises WrongJob, OSError."""
    import yaml

    try:
        job = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise WrongJob("it is no YAML: %s" % " ".join(str(error).split())) from None
    known(job or None, sorted(KEYS), "the file")
    job = job or {}
    if not isinstance(job.get("script"), str):
        raise WrongJob("it must name a script")
    job["roles"] = check(job.get("roles"), dict, "roles")
    known(job["roles"], resources.ROLES, "roles")
    for role, settings in job["roles"].items():
        known(settings, sorted(ROLE_KEYS), "roles: " + role)
        job["roles"][role] = settings or {}
        replicas = job["roles"][role].get("replicas", 1)
        most = 99 if role in ("ps", "worker") else 1
        if type(replicas) is not int or not 0 <= replicas <= most:
            raise WrongJob(
                "roles: %s: replicas must be from 0 to %d, is %r" % (role, most, replicas)
            )
    job["grid"] = check(job.get("grid"), dict, "grid")
    for name, values in job["grid"].items():
        if not check(values, list, "grid: %s" % name):
            raise WrongJob("grid: %s must have a value" % name)
    job["arguments"] = check(job.get("arguments"), dict, "arguments")
    scalars = {**job["arguments"], **environment_of(job)}
    scalars |= {name: value for name, values in job["grid"].items() for value in values}
    for name, value in scalars.items():
        if not isinstance(value, grids.SCALARS):
            raise WrongJob("%s must be a number, a text, true or false, is %r" % (name, value))
    if job.get("isolate") not in (None, True, False):
        raise WrongJob("isolate must be true or false, is %r" % job["isolate"])
    if type(job.setdefault("parallel", 1)) is not int or job["parallel"] < 1:
        raise WrongJob("parallel must be a whole number above 0, is %r" % job["parallel"])
    return job


def environment_of(job):
    """{"NAME" or "role:NAME": value} of all variables that the job sets."""
    found = dict(check(job.get("environment"), dict, "environment"))
    for role, settings in job["roles"].items():
        own = check(settings.get("environment"), dict, "roles: %s: environment" % role)
        found.update(("%s:%s" % (role, name), value) for name, value in own.items())
    return found


def command_line(job, path, point):
    """The arguments of tfrun for one run of the job."""
    made = []
    for role in resources.ROLES:
        if role in job["roles"]:
            replicas = job["roles"][role].get("replicas", 1)
            if role in ("ps", "worker"):
                made += ["--ps" if role == "ps" else "--workers", str(replicas)]
            elif replicas:
                made.append("--" + role)
    for kind in ("cpus", "gpus", "memory"):
        wanted = {role: each[kind] for role, each in job["roles"].items() if kind in each}
        if wanted:
            made += ["--" + kind, ",".join("%s=%s" % pair for pair in wanted.items())]
    for name, value in environment_of(job).items():
        made += ["--env", "%s=%s" % (name, grids.text(value))]
    for flag in ("timeout", "restarts"):
        if flag in job:
            made += ["--" + flag, grids.text(job[flag])]
    made += ["--isolate"] * (job.get("isolate") is True)
    made += ["--", str((path.parent / job["script"]).resolve())]
    for name, value in {**job["arguments"], **point}.items():
        if value is not False:
            made += ["--" + str(name)] + [grids.text(value)] * (value is not True)
    return made


def fits(job, n_runs, shares):
    """Raises WrongJob where runs at once have too few cores or GPUs for what each asks for."""
    n = min(job["parallel"], n_runs)
    for what in ("cpus", "gpus"):
        needed = sum(len(getattr(share, what) or []) for share in shares.values())
        there = (resources.cores() or []) if what == "cpus" else needed and cluster.gpus()
        if needed and needed > len(there) // n:
            raise WrongJob(
                "%d runs at once share the %d %s of this machine, and each asks for %d: lower "
                "parallel" % (n, len(there), "cores" if what == "cpus" else "GPUs", needed)
            )


class Grid:
    """The runs of a job, some at once, each a tfrun of its own."""

    def __init__(self, job, path, directory):
        self.job, self.path, self.directory, self.over = job, path, directory, threading.Event()
        self.points = grids.named(grids.product(job["grid"]))
        self.codes, self.running, self.lock = {}, {}, threading.Lock()
        n, cores, gpus = min(job["parallel"], len(self.points)), resources.cores(), cluster.gpus()
        # Runs at once share what there is: each has the cores and GPUs of its place.
        shared = cores if cores and n <= len(cores) else None
        self.places = [(shared and shared[i::n], own) for i, own in enumerate(grids.deal(gpus, n))]

    def say(self, line):
        with self.lock, contextlib.suppress(BrokenPipeError):  # the runs go on without a reader
            print(line, flush=True)

    def run_one(self, name):
        """One run to its end; its lines are shown behind its name."""
        if self.over.is_set():
            return
        with self.lock:
            place = cores, gpus = self.places.pop()
        here = str(pathlib.Path(__file__).resolve().parents[1])
        found = [here, os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            "OUTPUT_DIR": str(self.directory / name),
            "PYTHONPATH": os.pathsep.join(filter(None, found)),
        }
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        command = [sys.executable, "-m", "tfrun"]
        command += command_line(self.job, self.path, self.points[name])
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=lambda: launch.prepare(cores, signal.SIGTERM),
        )
        with self.lock:
            self.running[name] = process
        if self.over.is_set():  # it came between
            process.terminate()
        for line in process.stdout:
            self.say("[%s] %s" % (name, line.rstrip("\n")))
        code = process.wait()
        self.codes[name] = code if code >= 0 else 128 - code
        with self.lock:
            del self.running[name]
            self.places.append(place)

    def stop(self):
        """No run begins any more; those that go on are ended."""
        self.over.set()
        with self.lock:
            for process in self.running.values():
                process.terminate()

    def run(self):
        """All runs; returns the exit code: that of the first that failed, or 130 after Ctrl-C."""
        stopped = []

        def on_signal(number, _):
            stopped.append(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, on_signal)
        with concurrent.futures.ThreadPoolExecutor(len(self.places)) as pool:
            pending = {pool.submit(self.run_one, name) for name in self.points}
            while pending:
                done, pending = concurrent.futures.wait(pending, timeout=0.2)
                for each in done:
                    if (error := each.exception()) is not None:
                        self.stop()
                        raise error
                if stopped and not self.over.is_set():
                    self.stop()
        self.report()
        if stopped:
            return 128 + stopped[0]
        return next((code for code in self.codes.values() if code), 0)

    def report(self):
        """Prints the table of the runs, and writes it as grid.json."""
        from rich.table import Table

        from tfrun import watching

        rows, table = [], Table(box=None)
        for name in [*self.job["grid"], "result", "updates", "seconds", "end"]:
            table.add_column(name, overflow="fold")
        for name, point in self.points.items():
            result, code = rundir.result(self.directory / name) or {}, self.codes.get(name)
            tests = {key: value for key, value in result.items() if key.startswith("test_")}
            seconds = result.get("wall_seconds")
            end = "not begun" if code is None else "exit code %d" % code if code else "done"
            row = {"run": name, "arguments": point, "exit_code": code, "seconds": seconds}
            rows.append({**row, "steps": result.get("steps"), **tests})
            table.add_row(
                *map(grids.text, point.values()),
                *(words.tests(tests), str(result.get("steps", "")), words.number(seconds, "%.1f")),
                end,
            )
        with contextlib.suppress(OSError):  # a full disk; the table is on the screen
            (self.directory / "grid.json").write_text(json.dumps(rows, indent=2) + "\n")
        watching.console().print(table)
        print("the runs are in %s" % self.directory)


def command(arguments):
    """`tfrun run JOB.yaml`; returns the exit code."""
    import argparse

    from tfrun import __main__, watching

    parser = argparse.ArgumentParser(
        prog="tfrun run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", type=pathlib.Path, metavar="JOB.yaml")
    parser.add_argument("--dry-run", action="store_true", help="print the commands instead")
    flags = parser.parse_args(arguments)
    try:
        job = read(flags.job)
        lines = [command_line(job, flags.job, point) for point in grids.product(job["grid"])]
        for line in lines:  # what is wrong is told before the first run
            _, _, shares = __main__.check(line)
            fits(job, len(lines), shares)
    except (OSError, ValueError) as error:  # WrongJob is one
        return watching.fail("%s: %s" % (flags.job, error))
    if flags.dry_run:
        for line in lines:
            print(shlex.join(["tfrun", *line]))
        return 0
    if not job["grid"]:
        return __main__.main(lines[0])
    example = pathlib.Path(lines[0][lines[0].index("--") + 1]).parent.name
    try:
        directory = rundir.RunDirectory(example).path
    except OSError as error:
        return watching.fail("the run directory cannot be written: %s" % error)
    return Grid(job, flags.job, directory).run()
