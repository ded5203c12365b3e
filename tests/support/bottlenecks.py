"""Runs with a bottleneck that is planted, and healthy ones; what `tfrun doctor` says of each.

python tests/support/bottlenecks.py [NAME ...]
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import psutil
from tfrun.runs import registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = str(ROOT / "tests" / "problems" / "slow.py")
TFRUN = [sys.executable, "-m", "tfrun"]
WAIT_SECONDS = 120  # for the first updates


@dataclasses.dataclass
class Plant:
    """A run, and what limits it."""

    expected: str  # how the first finding begins; "" for a healthy run
    script: str
    flags: list[str] = dataclasses.field(default_factory=list)  # of the script
    ps: int = 1
    workers: int = 2
    problem: str = ""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    megabits: float = 0  # of the loopback, in a network of its own
    cores: str = ""  # to which taskset binds the run
    hogs: int = 0  # programs beside it that compute all the time
    act: Callable[["Live"], None] | None = None  # once it trains; then doctor looks at the live run
    seconds: float = 0  # of training after which doctor looks, while it goes on; 0: it ends
    words: str = ""  # that the findings or the stacks must have


class Live:
    """A run that goes on."""

    hogs: tuple[int, ...] = ()  # the ids of programs beside it

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def processes(self) -> dict[str, int]:
        """Returns {task: the id of its process}."""
        records = registry.read_all()
        run = next(record for record in records if record["directory"] == str(self.folder))
        return {task["task"]: task["process"]["pid"] for task in run["tasks"] if task["process"]}

    def env(self) -> dict[str, str]:
        """Returns the variables of all programs."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def stop(self, task: str) -> None:
        """Stops a task by a signal."""
        os.kill(self.processes()[task], signal.SIGSTOP)

    def bind(self, task: str, core: int) -> None:
        """Lets all threads of a task use one core only."""
        pid = self.processes()[task]
        subprocess.run(["taskset", "-acp", str(core), str(pid)], check=True, capture_output=True)

    def updates(self) -> int:
        """Returns how many rows its tasks have left."""
        paths = self.folder.glob("metrics-*.csv")
        return sum(path.read_bytes().count(b"\n") for path in paths)


def stop(task: str) -> Callable[[Live], None]:
    return lambda live: live.stop(task)


def bind_with_hogs(live: Live) -> None:
    """Binds worker 1 to core 0, and both programs beside the run, too."""
    live.bind("worker 1", 0)
    for hog in live.hogs:
        os.sched_setaffinity(hog, {0})


LONG = ["--steps", "1000000"]
HOGWILD, SYNCHRONOUS = "HogWild/hogwild.py", "Synchronous-SGD/synchronous_sgd.py"
RING = "Ring-AllReduce/ring_allreduce.py"
ONE = ["--updates-per-call", "1"]
PLANTS = {
    "a slow link, asynchronous": Plant(
        "the link of the ps", HOGWILD, ["--steps", "300"], megabits=20
    ),
    "a slow link, synchronous, live": Plant(
        "the link of the ps", SYNCHRONOUS, LONG, megabits=20, seconds=15
    ),
    "a slow link, ring": Plant(
        "the link between the workers", RING, ["--steps", "300"], ps=0, megabits=20
    ),
    "a straggler, synchronous": Plant(
        "a straggler: worker 1",
        SYNCHRONOUS,
        ["--steps", "400"],
        problem=SLOW,
        env={"SLOW_BATCH": "0.03", "SLOW_WORKERS": "1"},
    ),
    "a straggler, asynchronous, live": Plant(
        "a straggler: worker 0",
        HOGWILD,
        [*LONG],
        workers=3,
        problem=SLOW,
        env={"SLOW_BATCH": "0.05", "SLOW_WORKERS": "0"},
        seconds=15,
    ),
    "a straggler, ring": Plant(
        "a straggler: worker 0",
        RING,
        ["--steps", "400"],
        ps=0,
        problem=SLOW,
        env={"SLOW_BATCH": "0.02", "SLOW_WORKERS": "0"},
    ),
    "a straggler, by its core, live": Plant(
        "a straggler: worker 1",
        SYNCHRONOUS,
        LONG,
        hogs=2,
        act=bind_with_hogs,
        seconds=25,
    ),
    "a slow reader": Plant(
        "input", HOGWILD, ["--steps", "1000"], problem=SLOW, env={"SLOW_BATCH": "0.02"}
    ),
    "a slow reader, DOWNPOUR, live": Plant(
        "input",
        "DOWNPOUR/downpour.py",
        [*LONG, *ONE],
        problem=SLOW,
        env={"SLOW_BATCH": "0.01"},
        seconds=15,
    ),
    "a reader that computes": Plant(
        "input",
        HOGWILD,
        ["--steps", "600"],
        problem=SLOW,
        env={"SLOW_BATCH": "0.02", "BUSY_BATCH": "1"},
        words="slow.py",
    ),
    "a slow load_data": Plant(
        "input", HOGWILD, ["--steps", "1000"], problem=SLOW, env={"SLOW_LOAD": "25"}
    ),
    "one core for all": Plant("processor time", HOGWILD, ["--steps", "6000"], workers=3, cores="0"),
    "other programs": Plant("processor time", SYNCHRONOUS, ["--steps", "1000"], hogs=2),
    "a rate too high": Plant(
        "a learning rate too high", HOGWILD, ["--learning-rate", "3", "--steps", "3000"]
    ),
    "a rate too low": Plant(
        "a learning rate too low", HOGWILD, ["--learning-rate", "1e-5", "--steps", "3000"]
    ),
    "a test after each update": Plant(
        "a chief that tests too often", HOGWILD, ["--checkpoint-steps", "1", "--steps", "3000"]
    ),
    "a test after each step, synchronous": Plant(
        "a chief that tests too often", SYNCHRONOUS, ["--checkpoint-steps", "1", "--steps", "500"]
    ),
    "a worker is stopped, asynchronous": Plant(
        "a worker that does nothing: worker 1", HOGWILD, LONG, act=stop("worker 1"), seconds=15
    ),
    "a worker is stopped, synchronous": Plant(
        "a hang", SYNCHRONOUS, LONG, act=stop("worker 1"), seconds=15, words="worker 1 is stopped"
    ),
    "a ps is stopped": Plant(
        "a hang", HOGWILD, LONG, act=stop("ps 0"), seconds=15, words="ps 0 is stopped"
    ),
    "a reader that never returns": Plant(
        "a hang",
        RING,
        LONG,
        ps=0,
        problem=SLOW,
        env={"HANG_AT": "3000", "SLOW_WORKERS": "1"},
        seconds=30,
        words="slow.py",
    ),
}
HEALTHY = {
    "healthy HogWild": Plant("", HOGWILD, ["--steps", "6000"]),
    "healthy DOWNPOUR": Plant("", "DOWNPOUR/downpour.py"),
    "healthy Synchronous-SGD": Plant("", SYNCHRONOUS, ["--steps", "3000"]),
    "healthy Ring-AllReduce": Plant("", RING, ["--steps", "6000"], ps=0),
    "healthy Collective-AllReduce": Plant(
        "", "Collective-AllReduce/collective_allreduce.py", ["--steps", "3000"], ps=0
    ),
}
ALL = {**PLANTS, **HEALTHY}


def command_of(plant: Plant) -> list[str]:
    """Returns the command that starts the run."""
    command = [*TFRUN, "--ps", str(plant.ps), "--workers", str(plant.workers)]
    if plant.problem:
        command += ["--problem", plant.problem]
    command += ["--timeout", "400", "--", str(ROOT / plant.script), *plant.flags]
    if plant.cores:
        command = ["taskset", "-c", plant.cores, *command]
    if plant.megabits:
        rule = f"root tbf rate {plant.megabits}mbit burst 100kb latency 300ms"
        setup = f'ip link set lo up && tc qdisc add dev lo {rule} && exec "$@"'
        command = ["unshare", "--net", "sh", "-c", setup, "sh", *command]
    return command


def diagnose(plant: Plant, folder: pathlib.Path) -> dict:
    """Runs it in a folder; returns what `tfrun doctor --json` says."""
    live = Live(folder)
    env = {**live.env(), **plant.env, "OUTPUT_DIR": str(folder)}
    # Linux shares cores among sessions.
    hog = ["sh", "-c", "while :; do :; done"]
    hogs = [subprocess.Popen(hog, start_new_session=True) for _ in range(plant.hogs)]
    live.hogs = tuple(process.pid for process in hogs)
    with open(folder.with_suffix(".txt"), "w") as output:
        run = subprocess.Popen(command_of(plant), env=env, stdout=output, stderr=output)
    try:
        if plant.seconds:
            deadline = time.monotonic() + WAIT_SECONDS
            while live.updates() < 50 and run.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            if plant.act:
                time.sleep(3)
                plant.act(live)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(plant.seconds)
        else:
            run.wait(420)
        done = subprocess.run(
            [*TFRUN, "doctor", str(folder), "--json"], capture_output=True, text=True, env=env
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        end(run)


def end(run: subprocess.Popen) -> None:
    """Ends a run; what a signal has stopped goes on first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(run.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
    run.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(20)
    run.kill()
    run.wait()


def is_right(plant: Plant, diagnosis: dict) -> bool:
    """Returns whether doctor has found what was planted, and nothing in a healthy run."""
    limits = [finding["limit"] for finding in diagnosis["findings"]]
    if not plant.expected:
        return not limits
    return bool(limits) and limits[0].startswith(plant.expected) and plant.words in str(diagnosis)


def main() -> None:
    names = sys.argv[1:] or list(ALL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started ends
    for name in [n for n in ALL if any(n.startswith(prefix) for prefix in names)]:
        began = time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="bottleneck-")) / "run"
        folder.mkdir()
        diagnosis = diagnose(ALL[name], folder)
        verdict = "right" if is_right(ALL[name], diagnosis) else "WRONG"
        limits = [finding["limit"] for finding in diagnosis["findings"]]
        print(f"{verdict} {name} ({time.monotonic() - began:.0f} s): {limits}  {folder}")
        for finding in diagnosis["findings"]:
            print(f"      {finding['evidence']}\n      -> {finding['change']} {finding['gain']}")
        for worker, shares in diagnosis["shares"].items():
            texts = [f"{name} {share:.0%}" for name, share in shares.items()]
            print(f"      {worker}: {', '.join(texts)} {diagnosis['use'].get(worker)}")
        print(f"      cores: {diagnosis['cores']}", flush=True)
        if verdict == "right" and "KEEP" not in os.environ:
            shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
