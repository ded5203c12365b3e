"""Compare: every algorithm at its best learning rate, for the same seconds, on the same data.

A pilot run of an example tells how many updates it makes in a second, and so how many the others
need to train for --seconds. Then six settings are tried on a validation split, which is a part of
the training data, and the best one is run once for each seed. A folder of docs/reading-order.txt
with a script of a kind that is compared takes part by itself. It may bring flags of its own, in one
word: "DOWNPOUR --local-steps 5"; one that brings its learning rate is not tuned.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import collections
import os
import pathlib
import re
import shlex
import statistics
import tempfile

import drawing
import numpy as np
from common import delays, drivers, examples, forked, reading_order
from common.drivers import middle
from tfrun.runs.data import RunData

VALIDATION = 360  # rows of the training data on which settings are tried
TESTS = 25  # of a run
FIRST = 16  # pushes of a worker before all of them train side by side
FACTORS = (0.1, 0.3, 1, 3, 10, 30)  # times the default learning rate
FEWER = (0.3, 1, 3)  # the same, where an algorithm has a second rate
MOVING_RATE = 0.9  # alpha times the workers, at most, which Zhang et al. 2015 call beta
# The second rates: (the flag, two values). rho is alpha / lr.
SECOND = {"server-lr": (0.05, 0.2), "outer-rate": (0.2, 0.7), "rho": (0.5, MOVING_RATE)}
# Everything waits for a test in these kinds; the seconds are without it.
WAITING = ("single process", "parameter server, synchronous", "all-reduce", "gossip, synchronous")
TOGETHER = (*WAITING[1:], "gossip, asynchronous")  # step with all workers
KINDS = (*WAITING, "parameter server, asynchronous", "coordinator", "gossip, asynchronous")
DENSE = 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),'
CONVOLUTIONS = """keras.layers.Reshape((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPool2D(),
            keras.layers.Flatten(),"""
CONVOLUTIONAL = [(DENSE, CONVOLUTIONS)]  # what changes a script's model
QUICK = ["Non-Distributed-Setup", "HogWild", "DOWNPOUR-Easy"]
# workers: at most. mean: seconds by which a gradient takes longer. batch: examples of a mini-batch.
# seconds: of a run; where they are None, `local` counts the mini-batches of each worker. pilot:
# mini-batches of that run. examples: those that take part where none are named; None: all.
Task = collections.namedtuple("Task", "workers mean changes batch seconds local pilot examples")
DIGITS, EIGHT, CONVOLUTION, ROUNDS = "digits", "8 workers", "convolution", "local steps"
FEW = [*QUICK, "AEASGD", "Synchronous-SGD", "Collective-AllReduce", "Ring-AllReduce"]
FEW += ["Parameter-Server-Strategy", drawing.FURTHER + "Local-SGD"]
# Each worker of these takes half of the mini-batch that one process would take.
DIVIDED = ["HogWild", "Synchronous-SGD", "Collective-AllReduce", "Ring-AllReduce"]
DIVIDED = [f"{example} --batch-size 64" for example in [*DIVIDED, drawing.FURTHER + "Local-SGD"]]
# The mean of the workers, with momentum of the mean (SlowMo), and as Nesterov's gradient; the first
# is Synchronous-SGD at T = 1.
OUTER = [
    f"{drawing.FURTHER}{example} --local-steps {T}"
    for T in (1, 5, 20, 100, 500)
    for example in ("Local-SGD", "Local-SGD --slow-momentum 0.5", "DiLoCo")
]
TASKS = {
    DIGITS: Task(2, 0, [], 32, 3, None, 1000, None),
    EIGHT: Task(8, 0.03, [], 32, 6, None, 200, None),
    CONVOLUTION: Task(2, 0, CONVOLUTIONAL, 128, 4, None, 400, FEW + DIVIDED),
    ROUNDS: Task(8, 0, [], 32, None, 2000, 2000, OUTER),
}


def all_examples():
    """Returns the folders that are compared, in reading order."""
    names = [name for name in reading_order.names() if examples.main_script(name).is_file()]
    learns = [name for name in names if "from sklearn.datasets import load_digits" in text_of(name)]
    return [name for name in learns if kind(name) in KINDS]


def parse_flags():
    parser = drivers.Parser(__doc__)
    words = f"folders, each perhaps with flags (all of a task with --full, else {', '.join(QUICK)})"
    parser.add_argument("examples", nargs="*", help=words)
    words = f"one of {', '.join(TASKS)}; may stand twice ({DIGITS}; all with --full)"
    parser.add_argument("--task", choices=list(TASKS), action="append", metavar="TASK", help=words)
    parser.number("--seeds", 5, "runs of each")
    parser.number("--seconds", None, "of each run, instead of a task's own", float)
    parser.add_argument("--full", action="store_true", help="all tasks, all examples")
    parser.redraw(__file__)
    flags = parser.parse_args()
    for example in flags.examples:
        folder = "".join(example.split()[:1])
        if not folder or not (examples.ROOT / folder / "run.sh").is_file():
            parser.error(f"there is no {folder}/run.sh")
        for own in ("--seed", "--steps", "--checkpoint-steps"):
            if own in re.split(r"[\s=]+", example):
                parser.error(f"{own} of {folder} is the same for all: leave it out")
        if kind(folder) not in KINDS:
            parser.error(f"{folder} cannot be compared: its kind is none of {', '.join(KINDS)}")
    if len(set(flags.examples)) < len(flags.examples):
        parser.error("an example stands there twice")
    return flags


def text_of(folder):
    """Returns the text of an example's script."""
    return examples.main_script(folder).read_text()


def kind(folder):
    """Returns what the docstring of an example's script says behind `Kind:`."""
    known = examples.main_script(folder).is_file()
    found = known and re.search(r"(?m)^Kind: +(.+)$", text_of(folder))
    return found[1] if found else None


def with_horovod(folder):
    """Returns whether Horovod starts the processes of an example."""
    return "horovodrun" in (examples.ROOT / folder / "run.sh").read_text()


def takes_part(example, task):
    """Returns whether an example can do a task.

    A delay and other layers need a changed script. Beside eight workers only one process is alone.
    """
    folder = example.split()[0]
    if task.mean and folder != QUICK[0] and jobs_of(folder, task.workers)["worker"] == 1:
        return False
    return not (with_horovod(folder) and (task.mean or task.changes))


def jobs_of(folder, workers):
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


def workers_of(task, example):
    """Returns how many workers an example has in a task."""
    return jobs_of(example.split()[0], TASKS[task].workers)["worker"]


def mini_batches(example, workers):
    """Returns how many make an update: --local-steps, times the workers if all take part."""
    folder, *own = shlex.split(example)
    default = re.search(r'\("local-steps", (\d+),', text_of(folder))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    number = drivers.positive(int)
    parser.add_argument("--local-steps", type=number, default=int(default[1]) if default else 1)
    return (workers if kind(folder) in TOGETHER else devices(folder)) * parser.parse_known_args(
        own
    )[0].local_steps


def devices(folder):
    """Returns on how many devices one process computes."""
    return 2 if '("devices", 0,' in text_of(folder) else 1


def settings(example, workers):
    """Returns the six settings of an example, as words: flags of its script."""
    folder, *own = shlex.split(example)
    text = text_of(folder)
    if any(word.startswith("--learning-rate") for word in own):
        return [""]
    if several := re.search(r'\("learning-rates", "([\d.,]+)"', text):
        rates = [[factor * float(each) for each in several[1].split(",")] for factor in FACTORS]
        return ["--learning-rates " + ",".join(f"{each:g}" for each in row) for row in rates]
    default = float(re.search(r"(?m)^STEPS, .+ = \d+, \d+, ([\d.]+)", text)[1])
    second = next((name for name in SECOND if f'("{name}", ' in text), None)
    if not second:
        return [f"--learning-rate {factor * default:g}" for factor in FACTORS]
    pairs = [(factor * default, value) for factor in FEWER for value in SECOND[second]]
    if second == "rho":
        pairs = [(rate, value / workers / rate) for rate, value in pairs]
    return [f"--learning-rate {rate:g} --{second} {value:g}" for rate, value in pairs]


def validation_data(folder):
    """Writes the training data of all examples in two parts; returns the file."""
    data = examples.load(examples.main_script("Non-Distributed-Setup")).load_data("digits")
    x, y, path = data.x_train, data.y_train, folder / "validation.npz"
    parts = (x[:-VALIDATION], y[:-VALIDATION], x[-VALIDATION:], y[-VALIDATION:])
    np.savez(path, **dict(zip(data._fields, parts)))
    return path


def train(example, name, flags, directory):
    """Trains an example in `directory`, with these flags; returns whether it did not diverge."""
    (folder, *own), task = shlex.split(example), TASKS[name]
    if with_horovod(folder):
        drivers.run(["bash", examples.ROOT / folder / "run.sh", *own, *flags], directory)
        return True
    script, jobs = examples.main_script(folder), jobs_of(folder, task.workers)
    changes = list(task.changes)
    if task.mean:
        seed = int(flags[flags.index("--seed") + 1])
        changes += delays.changes("exponential", task.mean, jobs["worker"], seed + 1)
        own += delays.ONE_A_CALL if delays.ONE_A_CALL[0].strip("-") in script.read_text() else []
    copy = directory.parent / script.name
    copy.write_text(examples.replaced(script, changes))
    return forked.train(copy, jobs, [*own, *flags], directory)[0]


def measure(case, seed, seconds, found, data):
    """Returns the numbers of a run. case: (its name, the task, the example, words of its flags)."""
    _, name, example, words = case
    task, folder = TASKS[name], example.split()[0]
    together = mini_batches(example, workers_of(name, example))
    if words == "pilot":
        fewest = 10 if kind(folder) in TOGETHER else 10 * workers_of(name, example)
        steps, more, tests = max(fewest, task.pilot // together), [], 1
    else:
        rate = rate_of(name, example, words, found)
        steps = rate * seconds if seconds else task.local * workers_of(name, example) / together
        steps, more, tests = max(1, round(steps)), words.split(), TESTS
    if data:
        more += ["--dataset", data]
    flags = ["--steps", steps, "--checkpoint-steps", max(1, steps // tests), "--seed", seed, *more]
    flags += [] if "--batch-size" in example else ["--batch-size", task.batch]
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place, "run")
        try:
            trained = train(example, name, flags, directory)
        except SystemExit as error:  # this one is broken; the others go on
            return {"failed": str(error)[-500:]}
        run = RunData.read(directory)
        if with_horovod(folder):  # whose rows tell what is sent; all others, what is received, too
            for metrics in run.tasks.values():
                metrics.pushes["bytes"] *= 2
        return numbers(run, trained, kind(folder) in WAITING)


def rate_of(task, example, words, found):
    """Returns the updates a second of that run in its search; before it has run, of the pilot."""
    tried = found.get(": ".join((task, example, words)))
    if tried and "seconds" in tried[0]:
        return tried[0]["updates"] / tried[0]["seconds"]
    return found[pilot_of(task, example)][0].get("updates_per_second", 0)


def numbers(run, trained, waits):
    """Returns the numbers of a run; of one that diverged, no loss.

    waits: whether all workers wait while w is tested.
    """
    facts = {"example": run.flags["example"], "arguments": run.flags["arguments"]}
    pushes, tests = run.rows("pushes"), run.rows("tests")
    if not trained or not np.isfinite(tests[-1]["test_loss"]):
        return {**facts, "test_loss": None}
    clock, rate, settled = training_clock(pushes, tests, waits)
    last, workers = max(push["push_time"] for push in pushes), len(run.flags["tasks"])
    waited = sum(push["wait_seconds"] for push in pushes if push["push_time"] > settled)
    return {
        **facts,
        "test_loss": tests[-1]["test_loss"],
        "test_accuracy": tests[-1]["test_accuracy"],
        "updates": max(push["global_step"] for push in pushes),
        "updates_per_second": rate,
        "examples": sum(push["examples"] for push in pushes),
        "bytes": sum(push["bytes"] for push in pushes),
        "seconds": clock(last),
        "waiting": waited / (workers * (last - settled))
        if workers > 1 and last > settled
        else None,
        "staleness_mean": statistics.fmean(push["staleness"] for push in pushes),
        "ps": run.flags["ps"],
        "workers": workers,
        "tensorflow": run.flags["versions"]["tensorflow"],
        "evaluations": evaluations(pushes, tests, clock),
    }


def training_clock(pushes, tests, waits):
    """Returns clock(a time since 1970) -> the seconds of training until then, and two numbers.

    Each worker makes its first updates alone, and builds its graph between them. So the rate, the
    second to be returned, is that of the updates after the time when all have settled, the third,
    and the clock begins as if the first ones had been as fast. If all wait while w is tested and
    saved, it stands still until the next pull.
    """
    pauses = []
    for test in tests if waits else []:
        own = [push for push in pushes if push["task"] == test["task"]] or pushes
        after = [push["pull_time"] for push in own if push["pull_time"] >= test["push_time"]]
        pauses.append((test["pull_time"], min(after, default=float("inf"))))

    def running(begin, end):
        """The seconds between two times, without the pauses."""
        return end - begin - sum(max(0, min(end, e) - max(begin, b)) for b, e in pauses)

    times = collections.defaultdict(list)
    for push in pushes:
        times[push["task"]].append(push["push_time"])
    # Where workers count steps of their own, those of the first count, which tests.
    counted = [push for push in pushes if push["task"] == tests[0]["task"]] or pushes
    settled = max(each[min(FIRST, len(each) // 3)] for each in times.values())
    settled = min(settled, counted[len(counted) // 2]["push_time"])
    last = max(push["push_time"] for push in counted)

    def updates(now):
        return max([push["global_step"] for push in counted if push["push_time"] <= now], default=0)

    rate = (updates(last) - updates(settled)) / (running(settled, last) or 1)

    def clock(now):
        return updates(min(now, settled)) / (rate or 1) + max(0, running(settled, now))

    return clock, rate, settled


def evaluations(pushes, tests, clock):
    """Returns {what: its number at each test}: seconds, examples, megabytes, accuracy, loss."""
    pushes = sorted(pushes, key=lambda push: push["push_time"])
    times = [push["push_time"] for push in pushes]
    examples, size = (np.cumsum([push[name] for push in pushes]) for name in ("examples", "bytes"))
    rows = collections.defaultdict(list)
    for test in tests:
        before = np.searchsorted(times, test["pull_time"], "right") - 1
        rows["seconds"].append(round(clock(test["pull_time"]), 3))
        rows["examples"].append(int(examples[max(0, before)]))
        rows["megabytes"].append(round(float(size[max(0, before)]) / 1e6, 3))
        rows["accuracy"].append(test["test_accuracy"])
        rows["loss"].append(test["test_loss"])
    return rows


def pilot_of(task, example):
    """Returns the name of a pilot run."""
    return f"{task}: {example}: pilot"


def best(search):
    """Returns the setting with the least loss of {setting: loss or None}; None if all diverged."""
    known = {words: loss for words, loss in search.items() if loss is not None}
    if not search:  # it has brought its rate
        return ""
    return min(known, key=known.get) if known else None


def at_the_edge(chosen, search):
    """Returns whether the least or the greatest of several rates was chosen: a better may exist."""
    rates = [re.search(r"^--learning-rates? ([\d.e-]+)", words) for words in (*search, chosen)]
    *all_rates, own = [float(rate[1]) if rate else 0.0 for rate in rates]
    return len(set(all_rates)) > 1 and own in (min(all_rates), max(all_rates))


def compare(console, directory, flags, plan):
    """Measures the examples of a plan, [(task, example)]; returns results and the others' share.

    Each of its three parts goes on where an earlier sitting in this directory has ended.
    """
    kept, tries = directory / "measured.json", 1 if flags.anyway else 3
    data, found = validation_data(directory), {}

    def turns(cases, repeats, data=None):
        def run(case, seed):
            seconds = flags.seconds or TASKS[case[1]].seconds
            return measure(case, seed, seconds, found, data)

        found.update(drivers.by_turns(console, cases, repeats, run, kept, tries))

    turns([(pilot_of(*each), *each, "pilot") for each in plan], 1)
    results = {
        ": ".join((task, example)): {
            "seconds": flags.seconds or TASKS[task].seconds,
            "search": {},
            "chosen": "",
            "runs": [],
        }
        for task, example in plan
    }
    able = [each for each in plan if "failed" not in found[pilot_of(*each)][0]]
    tried = [
        (": ".join((*each, words)), *each, words)
        for each in able
        for words in settings(each[1], workers_of(*each))
        if words
    ]
    turns(tried, 1, data)
    for name, *each, words in tried:
        results[": ".join(each)]["search"][words] = found[name][0].get("test_loss")
    chosen = [(": ".join(each), *each, best(results[": ".join(each)]["search"])) for each in able]
    chosen = [case for case in chosen if case[3] is not None]
    turns(chosen, flags.seeds)
    for name, _, _, words in chosen:
        results[name].update(chosen=words, runs=found[name])
    for each in plan:
        if each not in able:
            results[": ".join(each)]["runs"] = found[pilot_of(*each)]
    return results, drivers.others_of(kept, [task for task in TASKS if TASKS[task].seconds])


def table_of(results):
    """Returns the table, a section for each task."""
    columns = ["task", "example", "tasks", "chosen", "mini-batches", "test loss", "accuracy, %"]
    columns += ["seconds to 97%", "examples", "MB", "waiting", "staleness"]
    table = drivers.plain_table(*columns)
    before = ""
    for case, result in results.items():
        (task, example), runs, seconds = case.split(": "), result["runs"], result["seconds"]
        if task != before:
            table.add_section()
        good = [run for run in runs if run.get("test_loss") is not None]
        edge = " (edge)" * at_the_edge(result["chosen"], result["search"])
        cells = [task * (task != before), example.removeprefix(drawing.FURTHER)]
        before = task
        if not good:
            failed = next((run["failed"] for run in runs if "failed" in run), "no setting learned")
            table.add_row(*cells, "", f"broken: {failed.splitlines()[-1][:60]}")
            continue
        batch = good[0]["arguments"]["batch_size"]
        table.add_row(
            *cells,
            f"{good[0]['ps']} ps, {good[0]['workers']} w",
            drivers.shorter(result["chosen"]) + edge,
            f"{statistics.median(run['examples'] / batch for run in good):,.0f}",
            drivers.spread([drivers.after(run, seconds) for run in good], "{:.3f}")
            + lost(runs, good),
            drivers.spread(
                [100 * drivers.after(run, seconds, "accuracy") for run in good], "{:.1f}"
            ),
            reached(drivers.to_target(runs), "{:.2f}"),
            middle_of(runs, "examples", "{:,.0f}"),
            middle_of(runs, "megabytes", "{:.1f}"),
            "" if good[0]["waiting"] is None else f"{middle(good, 'waiting'):.0%}",
            f"{middle(good, 'staleness_mean'):.2f}",
        )
    return table


def lost(runs, good):
    """Returns in words how many runs have not ended well."""
    return f" {len(runs) - len(good)} of {len(runs)} failed" if len(good) < len(runs) else ""


def reached(values, form):
    """Returns the median and range of what runs needed, and how many never came there."""
    never = sum(value is None for value in values)
    if never == len(values):
        return "never"
    return drivers.spread(values, form) + (f" {never} never" if never else "")


def middle_of(runs, what, form):
    """Returns the median of what runs needed; with "≤" where that is a run's first test."""
    values = [float("inf") if value is None else value for value in drivers.to_target(runs, what)]
    middle = statistics.median_high(values)
    if not 0 < middle < float("inf"):
        return ""
    first = runs[values.index(middle)]["evaluations"][what][0] == middle
    return "≤ " * first + form.format(middle)


def length(task, flags):
    """Returns in words how long a run of a task trains."""
    seconds = flags.seconds or TASKS[task].seconds
    return f"{seconds:g} s" if seconds else f"{TASKS[task].local:,} mini-batches a worker"


def main():
    flags = parse_flags()
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", OMP_NUM_THREADS="1")  # a worker is a core
    tasks = flags.task or (list(TASKS) if flags.full else [DIGITS])

    def chosen(task):
        named = flags.examples or (TASKS[task].examples or all_examples() if flags.full else QUICK)
        return [example for example in named if takes_part(example, TASKS[task])]

    plan = [(task, example) for task in tasks for example in chosen(task)]

    def measure_all(console, directory):
        drivers.leave_digests([example.split()[0] for _, example in plan], directory)
        results, others = compare(console, directory, flags, plan)
        runs = [run for result in results.values() for run in result["runs"]]
        versions = {f"TensorFlow {run['tensorflow']}" for run in runs if "tensorflow" in run}
        words = ", ".join(f"{task} {length(task, flags)}" for task in tasks)
        words = f"each run: {words}; {flags.seeds} seeds, median (range); "
        return results, words + drivers.setting(*versions), others

    drivers.report(__file__, flags, 200, measure_all, table_of, drawing.draw_all)


if __name__ == "__main__":
    main()
