"""One run of Compare: starts an example, watches it, ends it, and counts what it has left."""

import collections
import pathlib
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import search
from lab import examples
from lab.measure import delays, forked, idle
from search import Evaluations, Target
from tfrun import problems
from tfrun.runs.data import RunData

Rows = list[dict[str, Any]]  # of metrics
Hosts = Sequence[tuple[str, str | pathlib.Path | None]]  # an address, the file of a namespace

TESTS = 50  # of a run
MARGIN = 0.15  # seconds that a run lasts longer than it counts
ROWS = 360  # of the digits: those of the test or the validation, and as many of the training data
FOREVER = 10**8  # updates: the driver ends the run
HOPELESS_FROM, HOPELESS = 1 / 2, 2  # of the seconds; times the loss of the best at that moment
NOT_FINITE = "Tensor had "  # a test says so of a w that is no number any more
METRICS = 'METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}'
# The accuracy and the loss of the test's rows, and the loss of the training rows behind them. Both
# losses are of the same w, that of the test.
BOTH = f"""def accuracy(y, outputs):
    return keras.metrics.sparse_categorical_accuracy(y[:{ROWS}], outputs[:{ROWS}])


def own(y, outputs):
    return loss(y[:{ROWS}], outputs[:{ROWS}])


def training(y, outputs):
    return loss(y[{ROWS}:], outputs[{ROWS}:])


METRICS = {{"accuracy": ("max", accuracy), "own": ("min", own), "training": ("min", training)}}"""
PROBLEM = "# endregion: problem\n"
SAVE = re.compile(r"^( +)(saver\.|manager\.|ps\.)?save\(.*\)\n", re.M)  # a checkpoint
# The last rows of the training data take the place of the test's.
SPLIT = """

def load_data(name, whole=load_data):
    data = whole(name)
    n = min(len(data.x_train) // 5, len(data.x_test))
    x, y = data.x_train, data.y_train
    part = data._replace(x_train=x[:-n], y_train=y[:-n], x_test=x[-n:], y_test=y[-n:])
    vars(part).update(vars(data))
    return part

"""
ENVIRONMENT = 'os.environ.update(KERAS_BACKEND="tensorflow", '
ONE_PASS = (
    '        rows = tf.random.stateless_uniform([flags.batch_size], key, 0, len(x), "int32")\n',
    "        first = tf.cast(number, tf.int64) * flags.batch_size\n"
    "        rows = first + tf.range(flags.batch_size, dtype=tf.int64)\n"
    '        rows = tf.cast(rows % len(x), "int32")\n',
)


class Enough(Exception):
    """Why a run has been ended."""


class Start(NamedTuple):
    """What is started."""

    script: pathlib.Path  # of the example
    jobs: dict[str, int]  # {job: tasks}
    flags: list[str]
    changes: list[tuple[str, str]]  # of the script
    problem: pathlib.Path | None
    law: float | str | None  # of the gradient's times
    mean: float  # of these times
    calls: int  # updates in a call
    waits: bool  # whether all wait for a test
    seed: int
    hosts: Hosts | None
    link: int | None  # Mbit/s


class End(NamedTuple):
    """When a run ends."""

    seconds: float | None  # of training
    target: Target
    tuning: bool  # whether it ends at the target
    limit: float | None  # as in search.Next
    curve: search.Curve | None  # as in search.Next


def changed_texts(start: Start, validation: bool) -> dict[str, str]:
    """Returns {name: text} of a changed script, and of the files that its problem needs.

    Its gradients take longer, and its test has more rows.
    Where all wait for a test, the clock stands still, but a worker that sleeps for its next
    gradient sleeps on. So the test is short there: it saves nothing.
    """
    changes = list(start.changes)
    if start.mean and start.law is not None:
        changes += delays.changes(start.law, start.mean, start.jobs["worker"], start.seed + 1)
    texts: dict[str, str] = {}
    copy = problems.make_copy(start.problem, [str(start.script)])
    if copy is None:
        changes.append((METRICS, BOTH))
    else:
        texts |= copy.texts
        if validation:
            changes.append((PROBLEM, PROBLEM + SPLIT))
    text = examples.replaced(texts.get(start.script.name, start.script), changes)
    texts[start.script.name] = SAVE.sub(r"\1pass\n", text) if start.waits else text
    return texts


class Watch:
    """Reads the rows of a run while it trains, and raises Enough when it has to end."""

    def __init__(self, directory: pathlib.Path, start: Start, end: End) -> None:
        self.directory, self.start, self.end = directory, start, end
        self.files: dict[pathlib.Path, IO[str]] = {}
        self.columns: list[str] = []
        self.chief: pathlib.Path | None = None  # its file, once all train
        self.began = 0.0  # when all trained
        self.seconds = 0.0  # of training, until the last row
        self.paused = 0.0  # seconds of tests, in which all waited

    def new_rows(self, path: pathlib.Path) -> list[list[str]]:
        """Returns the rows that a file has got since the last call, as lists of words."""
        if path not in self.files:
            self.files[path] = open(path)
            header = self.files[path].readline()
            self.columns = header.strip().split(",")
        rows = []
        while (line := self.files[path].readline()).endswith("\n"):
            if not line.startswith("#"):
                rows.append(line.strip().split(","))
        return rows

    def begin(self) -> None:
        """Notes when all workers train: each has made its first call."""
        n, times = self.start.jobs["worker"], []
        paths = sorted(self.directory.glob("metrics-*.csv"))
        if len(paths) < n:
            return
        for path in paths:
            lines = path.read_text().splitlines()[1:]
            rows = [line.split(",") for line in lines if not line.startswith("#")]
            pushes = [row for row in rows if row[4:5] > [""]]
            if len(pushes) < self.start.calls:
                return
            times.append(float(pushes[self.start.calls - 1][0]))
        self.began, self.chief = max(times), paths[0]

    def poll(self) -> None:
        """Is called a few times a second."""
        if self.chief is None:
            self.begin()
        if self.chief is None:
            return
        for fields in self.new_rows(self.chief):
            row = dict(zip(self.columns, fields))
            if row["examples"]:  # a push
                self.seconds = float(row["push_time"]) - self.began - self.paused
            else:
                at = float(row["pull_time"])
                self.seconds = at - self.began - self.paused
                self.paused += float(row["push_time"]) - at if self.start.waits else 0
                self.tested(row)
            if self.end.seconds and self.seconds > self.end.seconds + MARGIN:
                raise Enough(search.TIME)

    def tested(self, row: Mapping[str, str]) -> None:
        """Ends a run that tunes, and is at the target, late or hopeless."""
        end, loss = self.end, float(row.get("test_own") or row["test_loss"])
        if not end.tuning:
            return
        what, target = end.target
        if what == "accuracy" and target is not None and float(row["test_accuracy"]) >= target:
            raise Enough(search.REACHED)
        if what == "loss" and target is not None and loss <= target:
            raise Enough(search.REACHED)
        if end.limit is not None and self.seconds > end.limit:
            raise Enough(search.LATE)
        if end.curve and end.seconds and self.seconds > HOPELESS_FROM * end.seconds:
            if loss > HOPELESS * np.interp(self.seconds, end.curve[0], end.curve[1]):
                raise Enough(search.HOPELESS)


def run(
    start: Start,
    end: End,
    steps: int,
    interval: int,
    dataset: pathlib.Path | None,
    validation: bool,
) -> dict[str, Any]:
    """Trains; returns the numbers of the run: those of numbers(), and why and how it ended.

    steps: updates, FOREVER where the seconds end it. interval: updates between two tests.
    """
    flags = [*start.flags, "--steps", steps, "--checkpoint-steps", interval, "--seed", start.seed]
    flags += ["--dataset", dataset] if dataset else []
    began, others = time.monotonic(), idle.Others()
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder, "run")
        directory.mkdir()
        for name, text in changed_texts(start, validation).items():
            (directory / name).write_text(text)
        copy = directory / start.script.name
        watch = Watch(directory, start, end)
        try:
            trained, _ = forked.train(copy, start.jobs, flags, directory, watch.poll, start.hosts)
            ended = search.TIME if trained else search.DIVERGED
        except Enough as reason:
            ended = str(reason)
        except SystemExit as error:
            if NOT_FINITE not in str(error):
                return {"ended": search.FAILED, "failed": str(error)[-500:], "seed": start.seed}
            ended = search.DIVERGED
        share = others.share()
        results = numbers(RunData.read(directory), start, end)
    outcome = {"ended": ended, "seed": start.seed, "others": round(share, 3)}
    return {**outcome, "took": round(time.monotonic() - began, 1), **results}


def numbers(data: RunData, start: Start, end: End) -> dict[str, Any]:
    """Returns the numbers of a run, of its first seconds only."""
    pushes, tests = data.rows("pushes"), data.rows("tests")
    if not pushes or not tests:
        return {"evaluations": None}
    run_flags = data.flags
    assert run_flags, "the chief has written them before the first push"
    clock, rate, settled = training_clock(pushes, tests, start.waits, start.calls)
    limit = end.seconds or float("inf")
    rows = evaluations(pushes, tests, clock, limit)
    pushes = [push for push in pushes if clock(push["push_time"]) <= limit] or pushes[:1]
    settled_pushes = [push for push in pushes if push["push_time"] > settled]
    staleness = [int(push["staleness"]) for push in settled_pushes]
    settled_pushes = settled_pushes or pushes
    # Elsewhere a row does not tell when a gradient was ready.
    with_ps = run_flags["ps"] and "chief" not in start.jobs
    durations = []
    if with_ps:
        durations = [
            push["push_time"] - push["wait_seconds"] - push["pull_time"] for push in settled_pushes
        ]
    last, workers = max(push["push_time"] for push in pushes), len(run_flags["tasks"])
    waited = sum(push["wait_seconds"] for push in settled_pushes)
    worker_seconds = workers * (last - settled)
    return {
        "evaluations": rows,
        "reached": reached(rows, end.target),
        "test_loss": rows["loss"][-1] if rows["loss"] else None,
        "test_accuracy": rows["accuracy"][-1] if rows["accuracy"] else None,
        "training_loss": rows["training"][-1] if rows["training"] else None,
        "seconds": round(clock(last), 3),
        "updates": int(max(push["global_step"] for push in pushes)),
        "updates_per_second": rate,
        "examples": int(sum(push["examples"] for push in pushes)),
        "bytes": int(sum(push["bytes"] for push in pushes)),
        "waiting": round(waited / worker_seconds, 4)
        if workers > 1 and worker_seconds > 0
        else None,
        "staleness_mean": round(statistics.fmean(staleness), 3) if staleness else 0,
        "histogram": np.bincount(staleness).tolist() if staleness else [],
        "gradient_seconds": round(statistics.fmean(durations), 5) if durations else None,
        "cv": round(statistics.pstdev(durations) / statistics.fmean(durations), 3)
        if durations
        else None,
        "ps": run_flags["ps"],
        "workers": workers,
        "batch_size": run_flags["arguments"]["batch_size"],
        "tensorflow": run_flags["versions"]["tensorflow"],
    }


def reached(rows: Evaluations, target: Target) -> float | None:
    """Returns the seconds at the first test at the target, (what, number); None without."""
    what, number = target
    if number is None:
        return None
    for seconds, value in zip(rows["seconds"], rows[what]):
        if (value >= number) if what == "accuracy" else (value <= number):
            return seconds
    return None


def training_clock(
    pushes: Rows, tests: Rows, waits: bool, calls: int = 1
) -> tuple[Callable[[float], float], float, float]:
    """Returns clock(a time since 1970) -> the seconds of training until then, and two numbers.

    A worker waits after its first call, of `calls` updates, until all have made theirs. So the
    rate, the second to be returned, is that of the updates after that time, the third, and the
    clock begins as if the first ones had been as fast. If all wait while w is tested, it stands
    still. The pull that follows counts: on a slow link it takes longer than a test.
    """
    pauses = [(test["pull_time"], test["push_time"]) for test in tests if waits]

    def running(begin: float, end: float) -> float:
        """The seconds between two times, without the pauses."""
        return end - begin - sum(max(0, min(end, e) - max(begin, b)) for b, e in pauses)

    times = collections.defaultdict(list)
    for push in pushes:
        times[push["task"]].append(push["push_time"])
    # Where workers count steps of their own, those of the first count, which tests.
    counted = [push for push in pushes if push["task"] == tests[0]["task"]] or pushes
    settled = max(own_times[min(calls - 1, len(own_times) // 3)] for own_times in times.values())
    settled = min(settled, counted[len(counted) // 2]["push_time"])
    last = max(push["push_time"] for push in counted)
    steps = np.maximum.accumulate([push["global_step"] for push in counted])
    moments = np.array([push["push_time"] for push in counted])

    def updates(now: float) -> int:
        before = np.searchsorted(moments, now, "right")
        return int(steps[before - 1]) if before else 0

    rate = (updates(last) - updates(settled)) / (running(settled, last) or 1)

    def clock(now: float) -> float:
        return updates(min(now, settled)) / (rate or 1) + max(0, running(settled, now))

    return clock, rate, settled


def evaluations(
    pushes: Rows, tests: Rows, clock: Callable[[float], float], limit: float
) -> Evaluations:
    """Returns {what: its number at each test within the limit, in seconds of training}.

    what: seconds, loss, accuracy, training (loss), examples, megabytes. Where a test has no
    training loss, it is that of the mini-batches since the test before.
    """
    pushes = sorted(pushes, key=lambda push: push["push_time"])
    times = [push["push_time"] for push in pushes]
    examples, size = (np.cumsum([push[name] for push in pushes]) for name in ("examples", "bytes"))
    losses = np.array([push["loss"] for push in pushes])
    names = ("seconds", "loss", "accuracy", "training", "examples", "megabytes")
    rows: Evaluations = {name: [] for name in names}
    since = 0
    for test in tests:
        seconds = clock(test["pull_time"])
        if seconds > limit or not np.isfinite(test["test_loss"]):
            break
        before = max(0, int(np.searchsorted(times, test["pull_time"], "right")) - 1)
        metrics = [name for name in test if name.startswith("test_") and name != "test_loss"]
        training = test.get("test_training")
        if training is None:
            training = float(losses[min(since, before) : before + 1].mean())
        since = before + 1
        rows["seconds"].append(round(seconds, 3))
        loss = test["test_own"] if "test_own" in test else test["test_loss"]
        rows["loss"].append(shorten(loss))
        rows["accuracy"].append(shorten(test[metrics[0]]) if metrics else None)
        rows["training"].append(shorten(training))
        rows["examples"].append(int(examples[before]))
        rows["megabytes"].append(round(float(size[before]) / 1e6, 3))
    return rows


def shorten(number: float) -> float:
    """Returns a number with five digits."""
    return float(f"{number:.5g}")


def as_try(
    run: dict[str, Any], seed: int, stage: int, point: search.Point, end: End | None
) -> search.Try:
    """Returns a try, for search.py, of the numbers of a run."""
    rows = run.get("evaluations") or {"seconds": [], "loss": []}
    ended = run["ended"]
    if ended == search.REACHED and run["reached"] is None:
        ended = search.TIME  # the seconds, counted again, say that it came later
    seconds = rows["seconds"]
    shown = range(0, len(seconds), max(1, len(seconds) // 25))
    result = {
        "point": list(point),
        "seed": seed,
        "stage": stage,
        "ended": ended,
        "reached": run.get("reached"),
        "loss": rows["loss"][-1] if rows["loss"] else None,
        "at": seconds[-1] if seconds else 0,
        "curve": [[rows[name][i] for i in shown] for name in ("seconds", "loss")],
        "updates_per_second": run.get("updates_per_second"),
        "others": run.get("others"),
        "took": run.get("took"),
    }
    if "failed" in run:
        result["failed"] = run["failed"]
    return result
