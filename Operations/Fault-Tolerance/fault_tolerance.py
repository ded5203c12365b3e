"""Fault-Tolerance: faults in real runs, one drill for each, and whether each promise is kept.

A drill starts an example under tfrun, waits until it trains, and does one thing to it. The exit
code is 0 if every promise was kept; with --without-recovery, if every promise was broken.

Kind:          driver
Run:           bash run.sh
"""

import collections
import contextlib
import ctypes
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import psutil
from lab import examples
from lab.measure import arguments, example_runs, text_tables
from lab.pages import result_tables
from rich.table import Table
from tfrun.launch import isolate
from tfrun.runs import run_directory

TFRUN = examples.ROOT / "tfrun" / "bin" / "tfrun"
HERE = pathlib.Path(__file__).resolve().parent
RESULTS = ["results.json", "without_recovery.json"]  # with recovery, and without
CLONE_NEWNS = 0x20000
SAVE = 500  # updates between checkpoints
LATE = 250  # updates that others make, at most, while the chief saves, or while a failed run ends
PAUSE = 10  # seconds for which a task is stopped, or the network is away
WAIT = 120  # seconds at most for a run to begin, to move again, or to end
ACCURACY = 0.95  # on the test, of the last checkpoint of each drill
STOPPED = 130  # the exit code of a command that Ctrl-C has ended


class Run:
    """An example under tfrun, in a folder of its own; what happens to it is noted.

    example: its folder. changes: [(what stands in its script just once, what takes its place)].
    environment: {variable: value} beside the usual ones.
    disk: megabytes of a disk of its own for what it writes.
    """

    def __init__(
        self,
        folder,
        example="HogWild",
        ps=1,
        restarts=2,
        flags=(),
        changes=(),
        environment=(),
        disk=None,
    ):
        self.directory, self.output = folder / "run", folder / "output.txt"
        self.directory.mkdir(parents=True)
        self.synchronous = example == "Synchronous-SGD"
        if disk:
            mount(self.directory, disk)
        script = examples.main_script(example)
        if changes:
            text = examples.replaced(script, changes)
            script = folder / script.name
            script.write_text(text)
        command = [TFRUN, "--ps", ps, "--workers", 2, "--", script, "--steps", 10**6]
        command += ["--checkpoint-steps", SAVE, *flags]
        self.command = [str(word) for word in command]
        self.restarts, self.environment = str(restarts), dict(environment)
        self.faults, self.codes = [], []  # (from, to) in seconds since 1970; exit codes
        self.saved = 0  # the update of the newest whole checkpoint when the fault begins
        self.start()

    def start(self):
        """Starts the command, for the first time or again."""
        self.process = self.launch("--restarts", self.restarts)

    def launch(self, *flags):
        """Starts the command, with more flags for tfrun; returns its process."""
        with open(self.output, "a") as output:
            return subprocess.Popen(
                [self.command[0], *flags, *self.command[1:]],
                env={**os.environ, **self.environment, "OUTPUT_DIR": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=example_runs.end_with_us,
            )

    def pushes(self, since=0, task=None):
        """The pushes of a task, or of all, after a time, in their order: [(time, step)]."""
        rows = example_runs.pushes(self.directory, task)
        pushes = [(row["push_time"], int(row["global_step"])) for row in rows]
        return [(moment, step) for moment, step in pushes if moment > since]

    def tests(self, task="worker-0"):
        """The tests of a task, in their order: [(time, accuracy)]."""
        rows = example_runs.test_rows(self.directory, task)
        return [(row["push_time"], row["test_accuracy"]) for row in rows]

    def accuracy(self):
        """Tests the last checkpoint by `tfrun evaluate`; returns its accuracy, 0 without one."""
        command = [str(TFRUN), "evaluate", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT)
        if done.returncode:
            print("  " + (done.stdout + done.stderr)[-500:], flush=True)
            return 0
        return self.tests("evaluator-0")[-1][1]

    def until(self, condition, what):
        """Waits for condition(); returns whether it came true while the command ran, in time."""
        deadline = time.monotonic() + WAIT
        while not condition():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                print("  after %d s: not %s" % (WAIT, what), flush=True)
                return False
            time.sleep(0.2)
        return True

    def trains(self, saves=True):
        """Waits until it has trained for a while, and has a checkpoint that is not quite new."""

        def ready():
            # In this order: to read the updates takes long enough to save again meanwhile.
            saved = (run_directory.saved_step(self.directory) or 0) if saves else 0
            step = max((step for _, step in self.pushes()), default=0)
            return step > 3 * SAVE and step > saved + SAVE // 4

        if not self.until(ready, "training"):
            raise RuntimeError("the run does not train:\n" + self.output.read_text()[-3000:])

    def tasks(self):
        """{(job, index): its process} of all that runs."""
        return example_runs.tasks(self.directory)

    @contextlib.contextmanager
    def fault(self):
        """Notes when the fault that is made inside begins and ends."""
        self.saved = run_directory.saved_step(self.directory) or 0
        begin = time.time()
        yield
        self.faults.append((begin, time.time()))

    def kill(self, *task):
        with self.fault():
            self.tasks()[task].kill()

    def pause(self, *task):
        with self.fault():
            process = self.tasks()[task]
            process.suspend()
            time.sleep(PAUSE)
            process.resume()

    def goes_on(self, task=None, saves=True):
        """Waits until updates are made again, by a task or by anyone, and saved; then ends it."""
        since = self.faults[-1][1]
        self.until(lambda: self.pushes(since + 0.5, task), "moving again")
        moved = time.time()
        if saves:
            state = self.directory / "checkpoint"
            self.until(lambda: state.exists() and state.stat().st_mtime > moved, "saved again")
        time.sleep(1)
        self.stop()

    def stop(self):
        """Ends the run as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.ends()

    def ends(self):
        """Waits for the end of the command; kills it if it does not come. Returns its exit code."""
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            print("  after %d s: not ended" % WAIT, flush=True)
            self.process.kill()
        self.codes.append(self.process.wait())
        return self.codes[-1]

    def longest_gap(self, task=None):
        """The longest time without an update, of a task or of all, from the first fault on."""
        times = [at for at, _ in self.pushes(self.faults[0][0] - 0.5, task)]
        return max((b - a for a, b in zip(times, times[1:])), default=float("inf"))

    def twice(self):
        """The numbers of the updates that were made twice; synchronous workers share a number."""
        tasks = ["worker-0", "worker-1"] if self.synchronous else [None]
        found = set()
        for task in tasks:
            counts = collections.Counter(step for _, step in self.pushes(0, task))
            found |= {step for step, n in counts.items() if n > 1}
        return found

    def lost(self):
        """How many updates before the fault are not in w after it: from the first made twice on."""
        before = [step for at, step in self.pushes() if at <= self.faults[0][1]]
        again = self.twice()
        return max(before) - min(again) + 1 if again else 0

    def goes_back_too_far(self):
        """Whether an update is made twice that the newest whole checkpoint had."""
        return min(self.twice(), default=float("inf")) <= self.saved


def mount(directory, megabytes):
    """Puts a disk of that size at a folder, for this process and those that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = b"size=%dm" % megabytes
    if libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def set_network(up):
    """Brings the loopback interface of this process and those that it starts up, or down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh14x", b"lo", isolate.IFF_UP if up else 0)
        fcntl.ioctl(s, isolate.SIOCSIFFLAGS, request)


# What is done to a run. Each takes the Run, and whether recovery is switched off.


def one_task(harm, job, index):
    """harm: Run.kill or Run.pause."""

    def drill(run, off):
        run.trains()
        harm(run, job, index)
        run.goes_on(None if job == "ps" else f"{job}-{index}")

    return drill


def kill_everything(run, off):
    run.trains()
    with run.fault():
        run.process.kill()  # its tasks die with it
        run.ends()
    if off:
        (run.directory / "checkpoint").unlink()
    run.start()
    run.goes_on()


def away_for_good(run, off):
    """Then the same command goes on."""
    run.trains()
    with run.fault():
        run.tasks()["worker", 1].suspend()
        run.ends()
    run.start()
    run.goes_on()


def network_away(run, off):
    run.trains()
    with run.fault():
        set_network(False)
        time.sleep(PAUSE)
        set_network(True)
    run.goes_on()


def full_disk(run, off):
    """Then there is room again, and the same command goes on."""
    run.trains(saves=not off)
    filler = run.directory / "filler"
    with run.fault(), open(filler, "wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(1024))
        run.ends()
    filler.unlink()
    run.start()
    run.goes_on(saves=not off)


def cut_short(run, off):
    """Then the one before it is named in the file `checkpoint`, as tfrun advises."""
    run.trains()
    with run.fault():
        run.stop()
        state = run.directory / "checkpoint"
        newest, *older = re.findall(r'path(?:s)?: "(.*)"', state.read_text())
        for path in run.directory.glob(newest + ".data-*"):
            os.truncate(path, path.stat().st_size // 2)
    run.start()
    run.ends()
    older = [name for name in older if name != newest]
    run.saved = int(older[-1].rpartition("-")[2]) if older else 0
    if older:
        text = state.read_text().replace(
            f'model_checkpoint_path: "{newest}"', f'model_checkpoint_path: "{older[-1]}"', 1
        )
        state.write_text(text)
    else:
        state.unlink()
    run.start()
    run.goes_on()


def two_chiefs(run, off):
    run.trains()
    with run.fault():
        (run.directory / ".tfrun").unlink()  # or tfrun would refuse, and this is about the chief
        second = run.launch("--restarts", "0")
        if off:  # it trains, too
            run.until(lambda: len(run.twice()) > 10, "two in one folder")
            second.terminate()
        second.wait(WAIT)
    run.goes_on()


IMPATIENT = {"environment": {"REQUIRED_WAIT_SECONDS": "5"}}
NO_LOCK = [("fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass")]
ONE_CHECKPOINT = [("[*paths[-4:], path]", "[path]"), ("in paths[:-4]:", "in paths:")]
NO_RESTARTS = {"restarts": 0}
SYNCHRONOUS = {"example": "Synchronous-SGD"}
ERROR = "an error"


@dataclasses.dataclass
class Drill:
    """What is promised, and the fault."""

    name: str
    fault: object  # a function of the Run
    still: int | None  # seconds at most without any update
    says: str | None = None  # what tfrun prints
    away: tuple | None = None  # a task, and the seconds at most without one of its own
    lost: int = 0  # updates at most that are lost
    codes: tuple = (STOPPED,)  # of the command, and after that of the one that goes on
    run: dict = dataclasses.field(default_factory=dict)  # arguments of Run with recovery
    off: dict = dataclasses.field(default_factory=dict)  # and without


DRILLS = [
    Drill(
        "SIGKILL of a worker",
        one_task(Run.kill, "worker", 1),
        3,
        "worker 1 was killed by SIGKILL",
        away=("worker-1", 15),
        off=NO_RESTARTS,
    ),
    Drill(
        "SIGKILL of one ps of two",
        one_task(Run.kill, "ps", 1),
        15,
        "ps 1 was killed by SIGKILL",
        lost=SAVE + LATE,
        run={"ps": 2},
        off={"ps": 2, **NO_RESTARTS},
    ),
    Drill(
        "SIGKILL of the chief",
        one_task(Run.kill, "worker", 0),
        3,
        "worker 0 was killed by SIGKILL",
        away=("worker-0", 15),
        off=NO_RESTARTS,
    ),
    Drill(
        "SIGKILL of everything, even tfrun",
        kill_everything,
        15,
        "it goes on from update",
        lost=SAVE + LATE,
        codes=(-9, STOPPED),
    ),
    Drill(
        "SIGSTOP of a worker for 10 s",
        one_task(Run.pause, "worker", 1),
        3,
        away=("worker-1", PAUSE + 2),
        off=SYNCHRONOUS,
    ),
    Drill(
        "SIGSTOP of a ps for 10 s",
        one_task(Run.pause, "ps", 0),
        PAUSE + 2,
        off={**IMPATIENT, **NO_RESTARTS},
    ),
    Drill(
        "SIGSTOP of the chief for 10 s",
        one_task(Run.pause, "worker", 0),
        3,
        away=("worker-0", PAUSE + 2),
        off=SYNCHRONOUS,
    ),
    Drill("No network for 10 s", network_away, PAUSE + 15, off={**IMPATIENT, **NO_RESTARTS}),
    Drill(
        "A full disk",
        full_disk,
        None,
        "The disk is full",
        lost=SAVE + LATE,
        codes=(ERROR, STOPPED),
        run={"disk": 8, **NO_RESTARTS},
        off={"disk": 8, "flags": ("--checkpoint-steps", 10**6), **NO_RESTARTS},
    ),
    Drill(
        "A checkpoint cut short",
        cut_short,
        None,
        "checkpoint is damaged",
        lost=2 * SAVE + LATE,
        codes=(STOPPED, ERROR, STOPPED),
        run=NO_RESTARTS,
        off={"changes": ONE_CHECKPOINT, **NO_RESTARTS},
    ),
    Drill("A second chief by mistake", two_chiefs, 3, "Another chief", off={"changes": NO_LOCK}),
    Drill(
        "Synchronous, SIGKILL of a worker",
        one_task(Run.kill, "worker", 1),
        15,
        "worker 1 was killed by SIGKILL",
        run=SYNCHRONOUS,
        off={**SYNCHRONOUS, **NO_RESTARTS},
    ),
    Drill(
        "Synchronous, a worker stops for good",
        away_for_good,
        None,
        "no gradient of worker 1",
        lost=SAVE + LATE,
        codes=(ERROR, STOPPED),
        run={**SYNCHRONOUS, **NO_RESTARTS, "flags": ("--step-timeout", 10)},
        off={**SYNCHRONOUS, **NO_RESTARTS, "flags": ("--step-timeout", 1000)},
    ),
]


def in_words(drill):
    """The promise of a drill as text; that it trains on until Ctrl-C goes without saying."""
    parts = []
    if drill.still:
        parts.append(f"at most {drill.still} s without an update")
    if drill.away:
        parts.append("%s pushes again within %d s" % drill.away)
    parts.append(f"at most {drill.lost} updates are lost" if drill.lost else "no update is lost")
    ends = {-9: "killed", ERROR: ERROR, STOPPED: "it trains until Ctrl-C"}
    if drill.codes != (STOPPED,):  # as in most drills
        parts.append(", then ".join(ends[code] for code in drill.codes))
    if drill.says:
        parts.append(f'tfrun says "{drill.says}"')
    return "; ".join(parts)


def measure(drill, off, slack, folder):
    """Makes the drill: {what: a number}, and the parts of the promise that were broken."""
    run = Run(folder, **(drill.off if off else drill.run))
    try:
        drill.fault(run, off)
    finally:
        for process in run.tasks().values():
            with contextlib.suppress(psutil.Error):
                process.resume()
        run.process.terminate()
        run.process.wait(WAIT)
        time.sleep(0.5)
    output, left = run.output.read_text(), run.tasks()
    accuracy = run.accuracy()
    found = {
        "still": run.longest_gap(),
        "away": run.longest_gap(drill.away[0]) if drill.away else None,
        "lost": run.lost(),
        "twice": len(run.twice()),
        "accuracy": accuracy,
        "codes": run.codes,
    }
    kept = {
        "still": not drill.still or found["still"] <= slack * drill.still,
        "away": not drill.away or found["away"] <= slack * drill.away[1],
        "lost": found["lost"] <= slack * drill.lost and not run.goes_back_too_far(),
        "accuracy": accuracy >= ACCURACY,
        "codes": len(run.codes) == len(drill.codes)
        and all(a == b or a and b == ERROR for a, b in zip(run.codes, drill.codes)),
        "says": not drill.says or drill.says in output,
        "left": not left,
    }
    found["broken"] = [part for part, fine in kept.items() if not fine]
    found["faults"] = run.faults
    if found["broken"] and not off:
        print(output[-3000:])
    return found


def page_table(directory):
    """Returns the table of the page: each promise, and what runs of both kinds have found.

    Where the directory lacks one of RESULTS, that one is the committed.
    """
    both = []
    for name in RESULTS:
        path = directory / name
        both.append(json.loads((path if path.exists() else HERE / name).read_text()))
    rows, (results, without_recovery) = [], both
    for drill in DRILLS:
        name = drill.name
        if name not in results or name not in without_recovery:
            continue
        found, off = results[name], without_recovery[name]
        kept = "**broken**: " + ", ".join(found["broken"]) if found["broken"] else "kept"
        if "lost" in off["broken"]:
            otherwise = f"{off['lost']} lost"
        elif "codes" in off["broken"]:
            otherwise = "the run ends"
        else:
            otherwise = f"no update for {off['still']:.0f} s"
        rows.append(
            (
                name,
                f"{in_words(drill)}: **{kept}**",
                f"{found['still']:.1f} s",
                "" if found["away"] is None else f"{found['away']:.1f} s",
                found["lost"],
                found["twice"],
                f"{found['accuracy']:.1%}",
                otherwise,
            )
        )
    columns = ["fault", "promise", "no update for", "the task is away for", "updates lost"]
    columns += ["made twice", "accuracy at the end", "without recovery"]
    return result_tables.table(columns, rows)


def main():
    parser = arguments.Parser(__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="drills with this in the name")
    parser.add_argument("--list", action="store_true", help="print the drills and their promises")
    words = "no restarts, no checkpoint, no lock, ..."
    parser.add_argument("--without-recovery", action="store_true", help=words)
    words = "times the numbers of each promise, for a machine that does other work, too (1)"
    parser.add_argument("--slack", type=float, default=1.0, metavar="F", help=words)
    flags = parser.parse_args()
    drills = [drill for drill in DRILLS if flags.only == drill.name]
    drills = drills or [drill for drill in DRILLS if flags.only.lower() in drill.name.lower()]
    if not drills:
        parser.error(
            "--only must be in one of: {}".format("; ".join(drill.name for drill in DRILLS))
        )
    if flags.list:
        for drill in drills:
            print(f"{drill.name}: {in_words(drill)}")
        return 0
    directory = example_runs.output_directory("Fault-Tolerance").resolve()
    try:  # a network and disks of our own, before anything starts a thread
        isolate.enter()
        if ctypes.CDLL(None).unshare(CLONE_NEWNS):
            raise OSError("no mounts of its own")
    except OSError as error:
        print(f"the drills need namespaces, which this machine does not allow: {error}")
        return 2
    results, console = {}, text_tables.table_console(150)
    table = Table("fault", "no update for", "task away", "lost", "twice", "accuracy", "promise")
    for drill in drills:
        print(f"{drill.name}: {in_words(drill)}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            found = measure(drill, flags.without_recovery, flags.slack, pathlib.Path(folder))
            ctypes.CDLL(None).umount2(os.fsencode(folder + "/run"), 2)  # its disk; 2: MNT_DETACH
        results[drill.name] = found
        table.add_row(
            drill.name,
            "{:.2f} s".format(found["still"]) if found["codes"][-1] == STOPPED else "it ended",
            "{:.1f} s".format(found["away"])
            if drill.away and found["codes"][-1] == STOPPED
            else "",
            "%d" % found["lost"],
            "%d" % found["twice"],
            "%.1f%%" % (100 * found["accuracy"]) if found["accuracy"] else "none",
            "broken: " + ", ".join(found["broken"]) if found["broken"] else "kept",
        )
    console.print(table)
    console.print(text_tables.setting())
    (directory / RESULTS[flags.without_recovery]).write_text(json.dumps(results, indent=1))
    (directory / "table.txt").write_text(page_table(directory) + "\n")
    console.print(f"table.txt and the results are in {directory}", soft_wrap=True)
    if flags.without_recovery:
        return int(not all(found["broken"] for found in results.values()))
    return int(any(found["broken"] for found in results.values()))


if __name__ == "__main__":
    sys.exit(main())
