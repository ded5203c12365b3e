"""Compare: every algorithm at its best setting, for the same seconds, on the same data.

A search tries settings on a validation split, a part of the training data, and chooses that which
is soonest at the target (see search.py). The best setting then trains with five other seeds, and
is tested on the test set. All runs of a task are cut at the same seconds of training.

An example may bring flags of its own, in one word: "DOWNPOUR --local-steps 5"; those are not tuned.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import json
import math
import os
import pathlib
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import drawing
import numpy as np
import one_run
import report
import search
import tables
import verdict
from lab import digests, examples
from lab.measure import arguments, example_runs, idle, text_tables
from rich.console import Console
from rich.progress import track
from tfrun import problems
from tfrun.runs import run_directory

TRIES = 3  # of a run while other processes use the machine
MOST_TUNING = 0.3  # of a core that these may use while a setting is tried
FINAL_SEED = 100  # the first seed of the runs that are reported
AGAIN_SEED = 200  # the first seed of the A/A row
SEEDS, OWN_SEEDS = 5, 3  # runs at the best setting; of a problem of one's own
OWN_SECONDS = 20  # of a run of such a problem
START_SECONDS, LOCAL_SECONDS = 8, 12  # to start and to end a run; of one without seconds: guesses
USUAL_TRIES = (6, 9)  # of a search: so many, and so many for each hyperparameter
WIDTH = 250  # of table.txt
SLOW_NETWORK = examples.ROOT / "Measurements" / "Slow-Network"
# Everything waits for a test in these kinds; the seconds are without it.
WAITING_KINDS = (
    "single process",
    "parameter server, synchronous",
    "all-reduce",
    "gossip, synchronous",
)
SYNCHRONOUS_KINDS = (*WAITING_KINDS[1:], "gossip, asynchronous")  # step with all workers
KINDS = (*WAITING_KINDS, "parameter server, asynchronous", "coordinator", "gossip, asynchronous")
FURTHER = "Further-Algorithms/"
ONE_PROCESS = "Non-Distributed-Setup"
DENSE_LAYERS = 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),'
CONVOLUTIONS = """keras.layers.Reshape((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPool2D(),
            keras.layers.Flatten(),"""
CONVOLUTIONAL = [(DENSE_LAYERS, CONVOLUTIONS)]  # what changes a script's model
TWO_THREADS = (
    one_run.ENVIRONMENT,
    one_run.ENVIRONMENT.replace("(", '(TF_NUM_INTRAOP_THREADS="2", OMP_NUM_THREADS="2", '),
)
STEPS_FLAG = '    ("local-steps", 10, "'
SERVER_RATE = (STEPS_FLAG, '    ("server-rate", 0.1, "of the common step"),\n' + STEPS_FLAG)

# Rows: what a table calls a row, and what it is ------------------------------------------------


class Row(NamedTuple):
    """What a row of a table is. A row that follows another one is not tuned."""

    example: str  # its folder, and flags of its own
    changes: Sequence[tuple[str, str]] = ()  # of its script
    hyperparameters: Sequence[search.Hyperparameter] = ()  # that the changes add
    follows: str | None = None  # another row
    setting: Callable[[dict[str, Any]], str] | None = None  # its flags, of that row's results
    first_seed: int = FINAL_SEED
    workers: int | None = None  # None: as many as the task has


def chosen_flags(result: dict[str, Any]) -> str:
    """Returns the flags that were chosen."""
    return result["chosen"]


def multiply_rate(words: str, factor: float, flag: str = "learning-rate") -> str:
    """Returns flags, one of which is multiplied."""
    return re.sub(
        rf"--{flag} (\S+)", lambda match: f"--{flag} {float(match[1]) * factor:.4g}", words
    )


def flags_at_mean_rate(result: dict[str, Any]) -> str:
    """Returns DynSGD's flags as HogWild's: its rate times the mean of 1 / (1 + staleness)."""
    pushes = 0
    weights = 0.0
    for run in completed_runs(result):
        counts = np.array(run["histogram"])  # of pushes, by staleness
        pushes += counts.sum()
        weights += (counts / (1 + np.arange(len(counts)))).sum()
    return multiply_rate(result["chosen"], float(weights / pushes))


def flags_without_momentum(result: dict[str, Any]) -> str:
    """Returns the flags of Async-Local-SGD without momentum, at the same step in the long run."""
    return multiply_rate(result["chosen"], 1 / (1 - 0.9), "outer-rate") + " --outer-momentum 1e-06"


def completed_runs(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the runs that ended well."""
    return [run for run in result["runs"] if run.get("test_loss") is not None]


ONE_PROCESS_ROWS = tables.ONE_PROCESS_ROWS
ASYNC_LOCAL_SGD = FURTHER + "Async-Local-SGD"
ADAMW = FURTHER + "DiLoCo, one worker, 2 threads"  # whose common step takes what AdamW has found
ADAG_MEAN = "flags.learning_rate * a / flags.local_steps"
SAGN_MEAN = "flags.learning_rate / N * means"
# DC-ASGD-a (Zheng et al. 2017): lambda / sqrt(a running mean of the gradient's square).
DELAY_COMPENSATION = FURTHER + "Delay-Compensation"
LOCK_LINE = "    lock = tf.CriticalSection()"
CORRECTION_LINES = "            corrected = g + flags.compensation * g * g * late\n"
ADAPTIVE_LINES = """            square = mean.assign(0.95 * mean.read_value() + (1 - 0.95) * g * g)
            corrected = g + flags.compensation * g * g * late / tf.sqrt(square + 1e-7)
"""
TEN_LOCAL_STEPS = FURTHER + "Local-SGD --local-steps 10"
SPECIAL_ROWS = {
    TEN_LOCAL_STEPS + ", A/A": Row(
        TEN_LOCAL_STEPS, follows=TEN_LOCAL_STEPS, setting=chosen_flags, first_seed=AGAIN_SEED
    ),
    DELAY_COMPENSATION + ", adaptive": Row(
        DELAY_COMPENSATION,
        (
            (LOCK_LINE, f"    mean = tf.Variable(tf.zeros(w.shape))\n{LOCK_LINE}"),
            (CORRECTION_LINES, ADAPTIVE_LINES),
        ),
    ),
    f"{ONE_PROCESS}, 2 threads": Row(ONE_PROCESS, (TWO_THREADS,)),
    "HogWild, A/A": Row("HogWild", follows="HogWild", setting=chosen_flags, first_seed=AGAIN_SEED),
    "HogWild, DynSGD's mean rate": Row("HogWild", follows="DynSGD", setting=flags_at_mean_rate),
    ASYNC_LOCAL_SGD + ", no momentum": Row(
        ASYNC_LOCAL_SGD, follows=ASYNC_LOCAL_SGD, setting=flags_without_momentum
    ),
    "ADAG, a server rate": Row(
        "ADAG",
        (SERVER_RATE, (ADAG_MEAN, ADAG_MEAN.replace("learning", "server"))),
        (search.rate("server-rate", 4),),
    ),
    "SAGN, a server rate": Row(
        "SAGN",
        (SERVER_RATE, (SAGN_MEAN, SAGN_MEAN.replace("learning", "server"))),
        (search.rate("server-rate", 6),),
    ),
    "Parameter-Server-Strategy, one a closure": Row("Parameter-Server-Strategy --closure-steps 1"),
    FURTHER + "DiLoCo, no outer momentum": Row(FURTHER + "DiLoCo --outer-momentum 1e-06"),
    ADAMW: Row(
        f"{FURTHER}DiLoCo --local-steps 10 --outer-rate 1 --outer-momentum 1e-06",
        (TWO_THREADS,),
        workers=1,
    ),
}


def row_of(name: str) -> Row:
    """Returns the Row that a name stands for: a special one, or a folder with flags."""
    return SPECIAL_ROWS.get(name) or Row(name)


# Tasks -----------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What is compared: rows on the same data, for the same seconds."""

    workers: int  # at most
    rows: Sequence[str]
    batch: int | None  # examples of a mini-batch; None: the example's own
    seconds: float | None  # of a run; None: `local` mini-batches of each worker
    local: int | None = None
    law: float | str | None = None  # of a gradient's times
    mean: float = 0  # so many seconds more does a gradient take
    changes: Sequence[tuple[str, str]] = ()  # of all scripts
    problem: pathlib.Path | None = None
    link: int | None = None  # Mbit/s of each host
    local_steps: int | None = 10  # where a search of T begins


Tasks = Mapping[str, Task]
ACCURACY = ("accuracy", 0.97)
STEADY_TIMES, VARYING_TIMES = "8 workers, CV 0.1", "8 workers, CV 1"
BACKUP_ROW = "Synchronous-SGD --backup-workers 1"
ALL_ROWS = [ONE_PROCESS, "HogWild", "Synchronous-SGD", "Ring-AllReduce", FURTHER + "Local-SGD"]
ALL_ROWS += ["DOWNPOUR", "ADAG", "DynSGD", "AEASGD", FURTHER + "Bounded-Staleness", "HogWild, A/A"]
ALL_ROWS += ["HogWild, DynSGD's mean rate", FURTHER + "Delay-Compensation", FURTHER + "DiLoCo"]
ALL_ROWS += ["SAGN", FURTHER + "Gossip-SGD", "Collective-AllReduce", "Parameter-Server-Strategy"]
ALL_ROWS += [
    "Parameter-Server-Strategy, one a closure",
    "AEAMSGD",
    "DOWNPOUR-Easy",
    ASYNC_LOCAL_SGD,
]
ALL_ROWS += [ASYNC_LOCAL_SGD + ", no momentum", "ADAG, a server rate", "SAGN, a server rate"]
ALL_ROWS.append(FURTHER + "DiLoCo, no outer momentum")
ALL_ROWS.append(FURTHER + "Delay-Compensation, adaptive")
ALL_ROWS += ["Synchronous-SGD-different-learning-rates", FURTHER + "Compressed-AllReduce"]
ALL_ROWS += [FURTHER + "Sharded-Training", FURTHER + "D-PSGD", BACKUP_ROW]
SEVEN_ROWS = [ONE_PROCESS, "HogWild", "Synchronous-SGD", "Ring-AllReduce", FURTHER + "Local-SGD"]
SEVEN_ROWS += ["ADAG", "DynSGD"]
CONVOLUTION_ROWS = [ONE_PROCESS, f"{ONE_PROCESS}, 2 threads", "HogWild --batch-size 64"]
CONVOLUTION_ROWS += [f"{name} --batch-size 64" for name in ("Synchronous-SGD", "Ring-AllReduce")]
CONVOLUTION_ROWS += [FURTHER + "Local-SGD --batch-size 64", "HogWild", "Ring-AllReduce"]
GPT_ROWS = [
    ONE_PROCESS,
    f"{ONE_PROCESS}, 2 threads",
    "HogWild",
    "Ring-AllReduce",
    FURTHER + "Local-SGD",
]
GPT_ROWS += [FURTHER + "DiLoCo", ADAMW]
LINK_ROWS = [ONE_PROCESS, "HogWild", "Ring-AllReduce", FURTHER + "Local-SGD", "ADAG"]
LINK_ROWS.append(FURTHER + "Compressed-AllReduce")
DIGITS_ROWS = [
    ONE_PROCESS,
    f"{ONE_PROCESS}, 2 threads",
    *SEVEN_ROWS[1:],
    "HogWild, A/A",
    "Parameter-Server-Strategy",
]
ROUND_ROWS = [
    f"{FURTHER}{example} --local-steps {T}"
    for T in (1, 10, 100)
    for example in ("Local-SGD", "Local-SGD --slow-momentum 0.5", "DiLoCo")
]
ROUND_ROWS.append(TEN_LOCAL_STEPS + ", A/A")
DIGITS, CONVOLUTION, GPT = "digits", "convolution", "GPT"
LOCAL_STEPS_TASK, ONE_PASS_TASK = "local steps", "local steps, one pass"
GPT_FILE = examples.ROOT / "Your-Model" / "gpt.py"


def eight_workers_task(law: float | str, rows: Sequence[str]) -> Task:
    """Returns the Task of eight workers with this law of times."""
    return Task(workers=8, rows=rows, batch=32, seconds=6, law=law, mean=0.03, local_steps=3)


TASKS = {
    STEADY_TIMES: eight_workers_task(0.1, ALL_ROWS),
    VARYING_TIMES: eight_workers_task(1.0, ALL_ROWS),
    GPT: Task(workers=2, rows=GPT_ROWS, batch=16, seconds=40, problem=GPT_FILE),
    "4 workers, 10 Mbit/s": Task(workers=4, rows=LINK_ROWS, batch=32, seconds=10, link=10),
    "4 workers, 100 Mbit/s": Task(workers=4, rows=LINK_ROWS, batch=32, seconds=6, link=100),
    "8 workers, CV 0.5": eight_workers_task(0.5, [*SEVEN_ROWS, "HogWild, A/A"]),
    "8 workers, one slow": eight_workers_task(
        "one slow", [*SEVEN_ROWS, "HogWild, A/A", BACKUP_ROW]
    ),
    "8 workers, CV 0": eight_workers_task(0.0, [*SEVEN_ROWS, "HogWild, A/A"]),
    "8 workers, CV 0.25": eight_workers_task(0.25, [*SEVEN_ROWS, "HogWild, A/A"]),
    CONVOLUTION: Task(
        workers=2, rows=CONVOLUTION_ROWS, batch=128, seconds=1.5, changes=CONVOLUTIONAL
    ),
    DIGITS: Task(workers=2, rows=DIGITS_ROWS, batch=32, seconds=1.5),
    LOCAL_STEPS_TASK: Task(
        workers=8, rows=ROUND_ROWS, batch=32, seconds=None, local=1000, local_steps=None
    ),
    ONE_PASS_TASK: Task(
        workers=8,
        rows=ROUND_ROWS,
        batch=32,
        seconds=None,
        local=500,
        changes=[one_run.ONE_PASS],
        local_steps=None,
    ),
}
ROW_BY_ROW_TASKS = [STEADY_TIMES, VARYING_TIMES]  # are measured row by row
QUICK_ROWS = [ONE_PROCESS, "HogWild", "Synchronous-SGD"]
# Where a search begins: the step of the learning rate, 0.1 * 2**(step / 2).
STARTS = {"HogWild": 1, "Synchronous-SGD": 5, "Ring-AllReduce": 5, "Collective-AllReduce": 5}
STARTS |= {FURTHER + "Local-SGD": 5, "DOWNPOUR": 0, "ADAG": 3, "DynSGD": 4, "AEASGD": 3}
STARTS |= {FURTHER + "DiLoCo": -8, FURTHER + "Delay-Compensation": 1, "DOWNPOUR-Easy": -2}
STARTS |= {FURTHER + "Bounded-Staleness": 1, "Parameter-Server-Strategy": 1, "AEAMSGD": 0}
STARTS |= {FURTHER + "Sharded-Training": -5, FURTHER + "Gossip-SGD": 6, FURTHER + "D-PSGD": 6}
STARTS |= {ASYNC_LOCAL_SGD: -3}
START = 3
GPT_START = 3  # of those with another scale than AdamW's
SUMMING_EXAMPLES = ("DOWNPOUR-Easy", ASYNC_LOCAL_SGD)  # push T gradients' sum
ALPHAS = (0.056, 0.112, 0.225, 0.45, 0.9)  # alpha times the workers, beta of Zhang et al. 2015
LOCAL_STEPS = (1, 3, 10, 30, 100, 300)
LAMBDAS = (0.04, 0.4, 4, 40, 400, 4000, 40000)


def text_of(folder: str) -> str:
    """Returns the text of an example's script."""
    return examples.main_script(folder).read_text()


def kind(folder: str) -> str:
    """Returns what the docstring of an example's script says behind `Kind:`, "" without one."""
    return run_directory.kind_of(examples.main_script(folder))


def folder_of(name: str) -> str:
    """Returns the folder of a row."""
    return row_of(name).example.split()[0]


def jobs_of(folder: str, workers: int) -> dict[str, int]:
    """Returns {job: tasks} of an example that has at most so many workers: those of its run.sh.

    Gossip needs four workers at least, or each averages with all.
    """
    text = (examples.ROOT / folder / "run.sh").read_text()
    if re.search(r"\$\{WORKERS:-\d", text):
        n = max(workers, 4) if kind(folder).startswith("gossip") else workers
    else:
        n = 1
    jobs = {"worker": n}
    if kind(folder).startswith("parameter server") or kind(folder) == "coordinator":
        jobs["ps"] = 1
    if kind(folder) == "coordinator":
        jobs["chief"] = 1
    return jobs


def jobs(task: Task, name: str) -> dict[str, int]:
    """Returns {job: tasks} of a row in a task."""
    return jobs_of(folder_of(name), row_of(name).workers or task.workers)


def workers_of(task: Task, name: str) -> int:
    """Returns how many workers a row has in a task."""
    return jobs(task, name)["worker"]


def has_flag(folder: str, flag: str) -> bool:
    """Returns whether an example's script has this flag."""
    return f'("{flag}", ' in text_of(folder)


def calls_of(task: Task, folder: str, flags: Iterable[str] = ()) -> tuple[list[str], int]:
    """Returns (the flags, updates in one call): one where a gradient takes long.

    A coordinator's chief runs Python for each closure: with one update in each, eight workers
    would wait for it. flags: the words of a row, which may set another number.
    """
    for flag in ("updates-per-call", "steps-per-call", "closure-steps"):
        if has_flag(folder, flag):
            slow = task.problem or task.link or task.mean and flag != "closure-steps"
            calls = int(value_of(flag, flags) or (1 if slow else 10))
            return [f"--{flag}", str(calls)], calls
    return [], 1


def value_of(flag: str, words: Iterable[str]) -> str | None:
    """Returns the value of a flag among words, "--flag 3" or "--flag=3"; None without it."""
    values = re.findall(rf"(?<!\S)--{flag}[= ](\S+)", " ".join(words))
    return values[-1] if values else None


def hyperparameters_of(
    name: str, task: Task, before: Mapping[str, int] | None = None
) -> list[search.Hyperparameter]:
    """Returns a row's Hyperparameters. before: {flag: the step at which its search may begin}."""
    row = row_of(name)
    folder, *own_flags = shlex.split(row.example)
    own_flags = [word.split("=")[0] for word in own_flags]
    if row.follows or "--learning-rate" in own_flags or "--learning-rates" in own_flags:
        return []
    start = STARTS.get(folder, START)
    if task.problem and start > -5:
        start = GPT_START
    hyperparameters = [search.rate("learning-rate", start)]
    if has_flag(folder, "local-steps") and folder != "DynSGD" and task.local_steps:
        hyperparameters.append(search.ladder("local-steps", LOCAL_STEPS, task.local_steps))
    if has_flag(folder, "server-lr"):
        hyperparameters.append(search.rate("server-lr", 0))
    if has_flag(folder, "rho"):
        hyperparameters.append(search.ladder("rho", ALPHAS, 0.45))
    if has_flag(folder, "outer-rate"):
        start = 6 if "--outer-momentum" in own_flags else 2
        hyperparameters.append(search.rate("outer-rate", start))
    if has_flag(folder, "compensation"):
        hyperparameters.append(search.ladder("compensation", LAMBDAS, 4))
    hyperparameters = [
        hyperparameter
        for hyperparameter in [*hyperparameters, *row.hyperparameters]
        if f"--{hyperparameter.flag}" not in own_flags
    ]
    return [
        hyperparameter._replace(start=(before or {}).get(hyperparameter.flag, hyperparameter.start))
        for hyperparameter in hyperparameters
    ]


def flags_of_point(
    name: str, task: Task, hyperparameters: Iterable[search.Hyperparameter], point: search.Point
) -> str:
    """Returns the flags of a point as words."""
    values = {
        hyperparameter.flag: search.value(hyperparameter, step)
        for hyperparameter, step in zip(hyperparameters, point)
    }
    if "rho" in values:
        alpha = values["rho"] / workers_of(task, name)
        values["rho"] = float(f"{alpha / values['learning-rate']:.6g}")
    flags = [f"--{flag} {value:g}" for flag, value in values.items()]
    folder = folder_of(name)
    if has_flag(folder, "learning-rates"):
        match = re.search(r'\("learning-rates", "([\d.,]+)"', text_of(folder))
        assert match, f"{folder} has no default rates"
        defaults = match[1].split(",")
        factor = values["learning-rate"] / float(defaults[0])
        rates = ",".join(f"{factor * float(rate):g}" for rate in defaults)
        flags[0] = f"--learning-rates {rates}"
    return " ".join(flags)


def pushes_sum(name: str) -> bool:
    """Returns whether a row pushes the sum of T gradients."""
    return folder_of(name) in SUMMING_EXAMPLES


# Measuring -------------------------------------------------------------------------------------


def data_files(directory: pathlib.Path, streams: bool) -> dict[str, pathlib.Path]:
    """Writes {what: file}: for tuning, and for the final runs; of the digits, or of the streams.

    Behind the rows of the validation or the test stand rows of the training data.
    """
    data = examples.load(examples.main_script(ONE_PROCESS)).load_data("digits")
    n, files = one_run.ROWS, {}
    x, y = data.x_train, data.y_train
    if streams:
        parts = {"stream validation": stream(0), "stream final": stream(1)}
    else:
        parts = {"validation": (x[:-n], y[:-n], x[-n:], y[-n:]), "final": data}
    for name, (x, y, x_test, y_test) in parts.items():
        files[name] = directory / f"{name.replace(' ', '_')}.npz"
        arrays = np.concatenate([x_test, x[:n]]), np.concatenate([y_test, y[:n]])
        if not files[name].exists():
            np.savez(files[name], **dict(zip(data._fields, (x, y, *arrays))))
    return files


def stream(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns data that are seen once: a network at random tells the classes of random rows."""
    random, rows = np.random.RandomState(number), 8 * 500 * 32
    teacher = np.random.RandomState(7)
    first, second = teacher.randn(64, 32) / 8, teacher.randn(32, 10) / 32**0.5
    x = random.randn(rows + one_run.ROWS, 64).astype("float32")
    scores = np.maximum(x @ first, 0) @ second
    y = np.argmax(scores - scores.mean(axis=0), axis=1).astype("int32")
    return x[:rows], y[:rows], x[rows:], y[rows:]


class Measurement:
    """What was measured in a directory, over all sessions, and how more is measured."""

    def __init__(
        self,
        directory: pathlib.Path,
        flags: argparse.Namespace,
        hosts: one_run.Hosts | None = None,
        hosts_module: Any = None,
    ) -> None:
        """hosts: those of slow links; hosts_module: what limits their rate. None without links."""
        self.directory = directory
        self.flags = flags
        self.hosts = hosts
        self.hosts_module = hosts_module
        self.kept = directory / "measured.json"
        self.cases = json.loads(self.kept.read_text()) if self.kept.exists() else {}
        self.files: dict[str, pathlib.Path] = {}

    def case(self, task_name: str, name: str) -> dict[str, Any]:
        """Returns what was measured of a row of a task."""
        return self.cases.get(f"{task_name}: {name}", {"tries": [], "runs": []})

    def keep(self, task_name: str, name: str, key: str, result: dict[str, Any]) -> None:
        """Adds a try or a run, and writes all."""
        case = self.cases.setdefault(f"{task_name}: {name}", {"tries": [], "runs": []})
        case[key].append(result)
        run_directory.write_whole(self.kept, json.dumps(self.cases))

    def dataset(self, task_name: str, tuning: bool) -> pathlib.Path | None:
        """Returns the file with a task's data; None for those of a problem file."""
        if self.flags.tasks[task_name].problem:
            return None
        name = ("stream " if task_name == ONE_PASS_TASK else "") + (
            "validation" if tuning else "final"
        )
        if name not in self.files:
            self.files |= data_files(self.directory, task_name == ONE_PASS_TASK)
        return self.files[name]

    def target(self, task_name: str, name: str, tuning: bool) -> search.Target:
        """Returns what a run of a row shall reach: the least loss that one process reaches.

        One process itself is tuned by its last loss alone: its target would move with each try.
        """
        if not self.flags.tasks[task_name].problem:
            return ACCURACY
        if not tuning:
            return "loss", report.loss_to_reach(
                self.cases, task_name, ONE_PROCESS_ROWS, self.flags.seeds
            )
        losses = []
        if name not in ONE_PROCESS_ROWS:
            for row in ONE_PROCESS_ROWS:
                tries = self.case(task_name, row)["tries"]
                if (point := search.choose(tries)) is not None:
                    latest = search.latest(tries)[point].values()
                    least = [min(tried["curve"][1], default=math.inf) for tried in latest]
                    losses.append(statistics.median(least))
        return "loss", min(losses, default=None)

    def start(self, task_name: str, name: str, flags: str, seed: int) -> one_run.Start:
        """Returns the one_run.Start of a row with these words."""
        task, row = self.flags.tasks[task_name], row_of(name)
        folder, *script_flags = shlex.split(row.example)
        call_flags, calls = calls_of(task, folder, script_flags)
        script_flags += [*call_flags, *flags.split()]
        if task.batch and "--batch-size" not in row.example:
            script_flags += ["--batch-size", str(task.batch)]
        changes = [*task.changes, *row.changes]
        has_hosts = task.link and folder != ONE_PROCESS
        return one_run.Start(
            script=examples.main_script(folder),
            jobs=jobs(task, name),
            flags=script_flags,
            changes=changes,
            problem=task.problem,
            law=task.law,
            mean=task.mean,
            calls=calls,
            waits=kind(folder) in WAITING_KINDS,
            seed=seed,
            hosts=self.hosts if has_hosts else None,
            link=task.link,
        )

    def interval(self, task_name: str, name: str, flags: str) -> int:
        """Returns the updates between two tests, by the rate of a try, or a guess."""
        task = self.flags.tasks[task_name]
        if task.seconds is None:
            return max(1, self.updates(task_name, name) // one_run.TESTS)
        T = local_steps(name, flags)
        for tried in reversed(self.case(task_name, name)["tries"]):
            if tried.get("updates_per_second"):
                rate = tried["updates_per_second"] * local_steps(name, tried["words"]) / T
                break
        else:
            n = workers_of(task, name)
            mean = task.mean + (0.05 if task.problem else 0.002)
            is_synchronous = kind(folder_of(name)) in SYNCHRONOUS_KINDS
            rate = (1 / mean / 1.5 if is_synchronous else n / mean) / T
            if task.link and n > 1:
                rate = 2 * task.link / T
        return max(1, round(rate * task.seconds / one_run.TESTS))

    def updates(self, task_name: str, name: str) -> int:
        """Returns the updates of a run that the seconds do not end."""
        task = self.flags.tasks[task_name]
        n = workers_of(task, name)
        per_step = n if kind(folder_of(name)) in SYNCHRONOUS_KINDS else 1
        return max(1, task.local * n // per_step // local_steps(name, ""))

    def run(
        self,
        task_name: str,
        name: str,
        flags: str,
        seed: int,
        tuning: bool,
        limit: float | None = None,
        curve: search.Curve | None = None,
    ) -> dict[str, Any]:
        """Trains once, and again while others use the machine; returns the numbers."""
        task = self.flags.tasks[task_name]
        end = one_run.End(
            seconds=task.seconds,
            target=self.target(task_name, name, tuning),
            tuning=tuning,
            limit=limit,
            curve=curve,
        )
        steps = one_run.FOREVER if task.seconds else self.updates(task_name, name)
        interval = self.interval(task_name, name, flags)
        if task.link and self.hosts:
            self.hosts_module.limit(len(self.hosts), task.link)
        for _ in range(1 if self.flags.anyway else TRIES):
            start = self.start(task_name, name, flags, seed)
            result = one_run.run(
                start, end, steps, interval, self.dataset(task_name, tuning), tuning
            )
            if result.get("others", 0) < (MOST_TUNING if tuning else idle.MOST_SHARE):
                break
        return result

    def measure(self, task_name: str, name: str) -> None:
        """Measures what is missing of a row of a task."""
        row, began = row_of(name), time.monotonic()
        task = self.flags.tasks[task_name]
        if row.follows and row.setting:
            base = self.case(task_name, row.follows)
            if len(base["runs"]) < self.flags.seeds or "chosen" not in base:
                return
            setting: str | None = row.setting(base)
        else:
            setting = self.tune(
                task_name, name, hyperparameters_of(name, task, self.search_start(task_name, name))
            )
        if setting is None:
            return
        case = self.cases.setdefault(f"{task_name}: {name}", {"tries": [], "runs": []})
        case["chosen"], case["seconds"] = setting, task.seconds
        while len(case["runs"]) < self.flags.seeds:
            seed = row.first_seed + len(case["runs"])
            run = self.run(task_name, name, setting, seed, False)
            case["measured"] = text_tables.setting(f"TensorFlow {run.get('tensorflow', 'unknown')}")
            case.setdefault("digest", digests.example_digest(examples.main_script(folder_of(name))))
            self.keep(task_name, name, "runs", run)
            say(f"{task_name}: {name}: {setting}, seed {seed}: {result_in_words(run)}")
        minutes_taken = (time.monotonic() - began) / 60
        say(f"{task_name}: {name}: done, {minutes_taken:.1f} minutes of this session")

    def search_start(self, task_name: str, name: str) -> dict[str, int] | None:
        """Returns {flag: step} where a search begins: at the row's best with STEADY_TIMES."""
        case = self.case(STEADY_TIMES, name)
        if (
            task_name == STEADY_TIMES
            or not task_name.startswith("8 workers")
            or "point" not in case
        ):
            return None
        return case["point"]

    def tune(
        self, task_name: str, name: str, hyperparameters: Sequence[search.Hyperparameter]
    ) -> str | None:
        """Tries settings until the search ends; returns the words of the best, None without one."""
        case = self.case(task_name, name)
        if not hyperparameters:
            return ""
        while following := search.next_try(case["tries"], hyperparameters, pushes_sum(name)):
            point, seed, stage, limit, curve = following
            task = self.flags.tasks[task_name]
            setting = flags_of_point(name, task, hyperparameters, point)
            run = self.run(task_name, name, setting, seed, True, limit, curve)
            tried = one_run.as_try(run, seed, stage, point, None)
            self.keep(task_name, name, "tries", {**tried, "words": setting})
            case = self.case(task_name, name)
            say(
                f"{task_name}: {name}: try {len(case['tries'])}, {setting}, seed {seed}: "
                f"{result_in_words(run)}"
            )
        best = search.choose(case["tries"])
        if best is None:
            return None
        self.cases[f"{task_name}: {name}"]["point"] = {
            hyperparameter.flag: step for hyperparameter, step in zip(hyperparameters, best)
        }
        return flags_of_point(name, self.flags.tasks[task_name], hyperparameters, best)


def local_steps(name: str, flags: str) -> int:
    """Returns T of a row with these flags."""
    text = f"{row_of(name).example} {flags}"
    if value := value_of("local-steps", text.split()):
        return int(value)
    default = re.search(r'\("local-steps", (\d+),', text_of(folder_of(name)))
    return int(default[1]) if default else 1


def result_in_words(run: dict[str, Any]) -> str:
    """Returns how a run has ended, for the line that tells of it."""
    if "failed" in run:
        return "failed: " + run["failed"].strip().splitlines()[-1][:200]
    at = run.get("reached")
    arrival = "never" if at is None else f"after {at:.2f} s"
    loss = run.get("test_loss")
    loss = "none" if loss is None else f"{loss:.3f}"
    return (
        f"{run['ended']}, first at the target {arrival}, loss {loss}, "
        f"CV {run.get('cv')}, staleness {run.get('staleness_mean')}, "
        f"took {run['took']:.0f} s, others {run['others']:.0%}"
    )


def say(line: str) -> None:
    """Prints a line at once, with the time."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


def plan_of(flags: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns [(task, row)] in the order of measuring: what is told by both laws stands first."""
    plan = []
    tasks = flags.task or (list(flags.tasks) if flags.full else list(flags.tasks)[:2])
    row_by_row = [task for task in tasks if task in ROW_BY_ROW_TASKS]
    others = [[task] for task in tasks if task not in row_by_row]
    for group in [row_by_row, *others]:
        rows: list[str] = []
        for task in group:
            task_rows = flags.tasks[task].rows if flags.full else QUICK_ROWS
            rows += flags.examples or task_rows
        for name in dict.fromkeys(rows):
            plan += [(task, name) for task in group if takes_part(name, flags.tasks[task])]
    return plan


def takes_part(name: str, task: Task) -> bool:
    """Returns whether a row can do a task. Beside eight workers only one process is alone."""
    folder = folder_of(name)
    if (examples.ROOT / folder / "run.sh").read_text().count("horovodrun"):
        return False
    has_workers = jobs_of(folder, task.workers)["worker"] > 1
    if (task.mean or task.link) and not has_workers and folder != ONE_PROCESS:
        return False
    return not (task.law == "one slow" and kind(folder) == "coordinator")


def own_task(flags: argparse.Namespace) -> Task:
    """Returns the Task of a problem file of one's own."""
    rows = list(dict.fromkeys([ONE_PROCESS, *(flags.examples or QUICK_ROWS)]))
    seconds = flags.seconds or OWN_SECONDS
    return Task(
        workers=flags.workers, rows=rows, batch=None, seconds=seconds, problem=flags.problem
    )


def full_name(name: str) -> str:
    """Returns the folder of a row with its parent, which may be left out: Local-SGD."""
    folder, *flags = name.split(" ", 1)
    paths = [f"{parent}/{folder}".lstrip("/") for parent in examples.PARENTS]
    full = next((path for path in paths if (examples.ROOT / path / "run.sh").is_file()), folder)
    return " ".join([full, *flags])


def parse_flags() -> argparse.Namespace:
    parser = arguments.Parser(__doc__)
    text = f"rows: folders, each perhaps with flags (all of a task with --full, else {QUICK_ROWS})"
    parser.add_argument("examples", nargs="*", help=text)
    text = f"one of: {'; '.join(TASKS)}; may stand several times"
    parser.add_argument("--task", choices=list(TASKS), action="append", metavar="TASK", help=text)
    text = "instead of the tasks: a file with data and a model of your own, as in Your-Model"
    parser.add_argument("--problem", type=pathlib.Path, metavar="FILE", help=text)
    parser.number("--workers", 2, "that train the problem of --problem")
    text = "runs of each at its best setting (5; with --problem 3)"
    parser.add_argument("--seeds", type=arguments.positive(int), help=text)
    parser.number("--seconds", None, "of each run, instead of a task's own", float)
    parser.add_argument("--full", action="store_true", help="all tasks, all rows")
    parser.redraw(__file__)
    flags = parser.parse_args()
    flags.seeds = flags.seeds or (OWN_SEEDS if flags.problem else SEEDS)
    flags.examples = [name if name in SPECIAL_ROWS else full_name(name) for name in flags.examples]
    for name in flags.examples:
        words = row_of(name).example.split()
        folder = words[0] if words else ""
        if not folder or not (examples.ROOT / folder / "run.sh").is_file():
            parser.error(f"there is no {folder}/run.sh")
        for flag in ("--seed", "--steps", "--checkpoint-steps"):
            if flag in re.split(r"[\s=]+", name):
                parser.error(f"{flag} of {folder} is the same for all: leave it out")
        if kind(folder) not in KINDS:
            parser.error(f"{folder} cannot be compared: its kind is none of {', '.join(KINDS)}")
    if len(set(flags.examples)) < len(flags.examples):
        parser.error("an example stands there twice")
    flags.tasks = {
        name: task._replace(
            seconds=flags.seconds if flags.seconds and task.seconds else task.seconds
        )
        for name, task in TASKS.items()
    }
    if flags.problem:
        try:
            problems.make_copy(flags.problem, [str(examples.main_script(ONE_PROCESS))])
        except ValueError as error:
            parser.error(str(error))
        flags.problem = flags.problem.resolve()
        flags.tasks = {flags.problem.stem: own_task(flags)}
        flags.task, flags.examples, flags.full = [flags.problem.stem], [], True
    return flags


# Before, and after -----------------------------------------------------------------------------


def estimate_minutes(
    measurement: Measurement, plan: Iterable[tuple[str, str]], overhead: float = START_SECONDS
) -> tuple[int, int]:
    """Returns (about how many minutes a plan takes, at most how many), without what is measured.

    overhead: how long a run takes to start and to end; that of the tries counts, if there are any.
    """
    tries = [tried for case in measurement.cases.values() for tried in case["tries"]]
    overheads = [tried["took"] - tried["at"] for tried in tries if tried.get("took")]
    if overheads:
        overhead = statistics.median(overheads)
    usual_tries, tries_a_hyperparameter = USUAL_TRIES
    likely, most = 0, 0
    for task_name, name in plan:
        task, case = measurement.flags.tasks[task_name], measurement.case(task_name, name)
        runs = max(0, measurement.flags.seeds - len(case["runs"]))
        hyperparameters = hyperparameters_of(name, task)
        likely_tries = 0
        most_tries = 0
        is_tuned = "chosen" in case or not hyperparameters
        if not is_tuned and search.next_try(case["tries"], hyperparameters, pushes_sum(name)):
            number = len(case["tries"])
            most_tries = search.MOST_TRIES - number
            usual = usual_tries + tries_a_hyperparameter * len(hyperparameters)
            likely_tries = min(most_tries, max(0, usual - number))
        run_seconds = (task.seconds or LOCAL_SECONDS) + overhead
        likely += (likely_tries + runs) * run_seconds
        most += (most_tries + runs) * run_seconds
    return math.ceil(likely / 60), math.ceil(most / 60)


def run_pilot(measurement: Measurement, task_name: str) -> float:
    """Trains a problem of one's own once, in one process, and says how it went.

    Returns how long a run takes to start and to end. A problem that does not train ends this
    process with its error.
    """
    if measurement.case(task_name, ONE_PROCESS)["tries"]:
        return START_SECONDS
    run = measurement.run(task_name, ONE_PROCESS, "", 0, True)
    if "failed" in run or not run.get("evaluations"):
        sys.exit(
            f"compare: one process cannot train {task_name}: {run.get('failed', run['ended'])}"
        )
    say(
        f"pilot: one process makes {run['updates_per_second']:.0f} updates a second; "
        f"test loss {run['test_loss']:.4g} after {run['seconds']:.0f} s; "
        f"the run took {run['took']:.0f} s"
    )
    return max(0, run["took"] - run["seconds"])


def how_search_ended(tasks: Tasks) -> Callable[[str, str, dict[str, Any]], tuple[bool, bool]]:
    """Returns report.results_of's function: how the search of a row has ended."""

    def end_of_search(task_name: str, name: str, case: dict[str, Any]) -> tuple[bool, bool]:
        hyperparameters = hyperparameters_of(name, tasks[task_name]) if task_name in tasks else []
        if not hyperparameters:
            return True, False
        ended = search.next_try(case["tries"], hyperparameters, pushes_sum(name)) is None
        return ended, search.at_the_edge(case["tries"], hyperparameters, pushes_sum(name))

    return end_of_search


def in_order(names: Iterable[str], tasks: Tasks) -> list[str]:
    """Returns names "task: row" in the order of the tasks and of their rows; others behind."""
    due = [f"{task_name}: {row}" for task_name, task in tasks.items() for row in task.rows]
    return sorted(names, key=lambda name: due.index(name) if name in due else len(due))


def rows_due(tasks: Tasks) -> dict[str, list[str]]:
    """Returns {task: the rows that a whole measurement has}."""
    return {
        task_name: [row for row in task.rows if takes_part(row, task)]
        for task_name, task in tasks.items()
    }


def results_of(cases: report.Cases, flags: argparse.Namespace) -> report.Results:
    """Returns what results.json has of what was measured."""
    cases = {name: cases[name] for name in in_order(cases, flags.tasks)}

    def target_of(task: str) -> search.Target:
        if task in flags.tasks and not flags.tasks[task].problem:
            return ACCURACY
        return "loss", report.loss_to_reach(cases, task, ONE_PROCESS_ROWS, flags.seeds)

    return report.results_of(cases, flags.seeds, target_of, how_search_ended(flags.tasks))


def rules(tasks: Tasks) -> str:
    """Returns the numbers by which all is measured, in a few words; the page may repeat them."""
    lengths = dict.fromkeys(f"{task.seconds:g} s" for task in tasks.values() if task.seconds)
    means = {task.mean for task in tasks.values()} - {0}
    delays = "".join(f"; a law adds {1000 * mean:g} ms" for mean in means)
    return (
        f"Steps of {2 ** (search.LARGE_STEP / 2):.1f}, then {2**0.5:.1f}; p < {verdict.LEVEL}; "
        f"{', '.join(lengths)}{delays}."
    )


def page_of(results: report.Results, tasks: Tasks = TASKS) -> str:
    """Returns the text of page.txt, which the page shows."""
    when = report.when_and_where(results) + ". " if results else ""
    return tables.page(results, rows_due(tasks), when + rules(tasks))


def leave(flags: argparse.Namespace, source: pathlib.Path, directory: pathlib.Path) -> None:
    """Writes results.json, the tables and the pictures of what is in a file, into a directory.

    source: measured.json, of any moment, or results.json. Of the results that are there already,
    the tasks stay that measured.json does not have: they may come from another machine.
    """
    cases = json.loads(source.read_text())
    results = cases
    results_path = directory / "results.json"
    if any("runs" in case and "setting" not in case for case in cases.values()):
        new_results = results_of(cases, flags)
        if not new_results:
            print(f"no row is whole yet in {source}")
            return
        digests_path = directory / "results_digests.json"
        digests = report.digests_of(cases, new_results, folder_of)
        old_results = {}
        if results_path.exists() and digests_path.exists():
            old_results = report.other_tasks(json.loads(results_path.read_text()), new_results)
            folders = [folder_of(report.task_and_row(name)[1]) for name in old_results]
            digests = report.join_digests(json.loads(digests_path.read_text()), folders, digests)
        results = old_results | new_results
        results = {name: results[name] for name in in_order(results, flags.tasks)}
        results = drawing.with_drawn_curves(results)
        digests_path.write_text(json.dumps(digests, indent=1) + "\n")
    if results_path.resolve() != source.resolve():
        text_tables.write_results(results_path, results)
    console = text_tables.table_console(WIDTH)
    console.print(tables.table_of(results))
    console.print(report.when_and_where(results), soft_wrap=True)
    (directory / "page.txt").write_text(page_of(results, flags.tasks) + "\n")
    drawing.draw_all(results, directory, results_path)
    text_tables.write_table(console, directory, "results.json")


def main() -> None:
    flags = parse_flags()
    if flags.redraw:
        os.environ["OUTPUT_DIR"] = os.environ.get("OUTPUT_DIR") or str(
            flags.redraw.resolve().parent
        )
        leave(flags, flags.redraw, example_runs.output_directory("Compare"))
        return
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", OMP_NUM_THREADS="1")  # a worker is a core
    plan = plan_of(flags)
    hosts_module = None
    hosts = None
    if any(flags.tasks[task].link for task, _ in plan):
        hosts_module = examples.load(SLOW_NETWORK / "hosts.py")
        try:
            hosts_module.enter()
            hosts = hosts_module.make(1 + max(flags.tasks[task].workers for task, _ in plan))
        except hosts_module.Unavailable as error:
            sys.exit(f"compare: this machine cannot make slow links: {error}")
    directory = example_runs.output_directory("Compare")
    measurement = Measurement(directory, flags, hosts, hosts_module)
    overhead = run_pilot(measurement, flags.problem.stem) if flags.problem else START_SECONDS
    likely, most = estimate_minutes(measurement, plan, overhead)
    say(f"{len(plan)} rows: about {likely} minutes, {most} at most; results go to {directory}")
    console = Console(stderr=True)
    for task, name in track(plan, "measuring", console=console, disable=not console.is_terminal):
        measurement.measure(task, name)
    leave(flags, measurement.kept, directory)


if __name__ == "__main__":
    main()
