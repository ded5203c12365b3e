"""Compression: what each compressor sends, and to which loss it comes with its e and without.

Two workers train on the digits, by Compressed-AllReduce and, without a compressor, Ring-AllReduce.
Short runs with more workers tell how the bytes grow.

Kind:          driver
Run:           bash run.sh
"""

import math
import pathlib
import statistics
import tempfile

from lab import examples
from lab.measure import arguments, charts, example_runs, forked, sessions, text_tables

RING, COMPRESSED = "Ring-AllReduce", "Further-Algorithms/Compressed-AllReduce"
# name: (the example, its flags)
COMPRESSORS = {
    "none": (RING, []),
    "PowerSGD, rank 1": (COMPRESSED, ["--rank", 1]),
    "PowerSGD, rank 4": (COMPRESSED, ["--rank", 4]),
    "top 1%": (COMPRESSED, ["--compress", "top-k", "--top", 0.01]),
    "top 0.1%": (COMPRESSED, ["--compress", "top-k", "--top", 0.001]),
    "sign": (COMPRESSED, ["--compress", "sign"]),
    "QSGD": (COMPRESSED, ["--compress", "qsgd"]),
}
UNBIASED = ("none", "QSGD")  # these have no e
WITHOUT = ", without e"
QUICK = [f"{name}: {COMPRESSED}" for name in ("PowerSGD, rank 1", "sign", "sign" + WITHOUT)]
WORKERS = 2
MORE = (4, 8)  # workers of the runs that count bytes only
COUNTED = 20  # the updates of such a run
POINTS = 50  # of a curve
ACROSS = 3  # pictures in a row


def all_cases():
    """Returns [(what a case is called, its example, its flags, whether it counts the bytes)]."""
    cases = []
    for name, (example, flags) in COMPRESSORS.items():
        cases.append((f"{name}: {example}", example, flags, True))
        if name not in UNBIASED:
            more = [*flags, "--forget-error", 1]
            cases.append((f"{name}{WITHOUT}: {example}", example, more, False))
    return cases


def by_compressor(results):
    """Returns {the compressor, and perhaps "without e": its runs}, as a table names it."""
    return {case.rpartition(": ")[0]: runs for case, runs in results.items()}


def train(case, workers, updates, seed, directory):
    """Trains in `directory`; returns whether the loss stayed a number."""
    _, example, flags, _ = case
    words = ["--steps", updates, "--seed", seed, *flags]
    script = examples.main_script(example)
    return forked.train(script, {"worker": workers}, words, directory)[0]


def measure(case, repeat, flags):
    """Returns what one run has found."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        trained = train(case, WORKERS, flags.updates, repeat, folder / "run")
        result = facts(trained, folder / "run")
        if case[-1] and not repeat:  # the bytes are the same in each run
            for workers in MORE:
                directory = folder / f"{workers}"
                train(case, workers, COUNTED, repeat, directory)
                result["kilobytes"][str(workers)] = sent(example_runs.pushes(directory))
        return result


def sent(pushes):
    """Returns the KB that a worker sends in an update: all together send what all receive."""
    return statistics.fmean(push["bytes"] for push in pushes) / 2 / 1000


def facts(trained, directory):
    """Returns the numbers of a run that has ended."""
    pushes, tests = example_runs.pushes(directory), example_runs.tests(directory)
    whole = trained and math.isfinite(tests[-1]["test_loss"])
    pushes.sort(key=lambda push: push["global_step"])
    size = max(1, len(pushes) // POINTS)
    parts = [pushes[i : i + size] for i in range(0, len(pushes) - size + 1, size)]
    return {
        "test_loss": tests[-1]["test_loss"] if whole else None,  # None: it has diverged
        "test_accuracy": tests[-1]["test_accuracy"] if whole else None,
        "kilobytes": {str(WORKERS): sent(pushes)},
        # Of each part of the run: its last update, and the mean of its losses.
        "updates": [int(part[-1]["global_step"]) for part in parts],
        "losses": [round(statistics.fmean(push["loss"] for push in part), 5) for part in parts],
    }


def table_of(results):
    """Returns the table, a section for each compressor."""
    columns = [f"KB, {n} workers" for n in (WORKERS, *MORE)]
    table = text_tables.plain_table(
        "compressor", "test loss", "accuracy, %", "last losses", *columns
    )
    before = None
    for case, runs in by_compressor(results).items():
        compressor = case.removesuffix(WITHOUT)
        if before not in (None, compressor):
            table.add_section()
        before = compressor
        losses = [run["test_loss"] for run in runs]
        accuracies = [run["test_accuracy"] and 100 * run["test_accuracy"] for run in runs]
        counted = runs[0]["kilobytes"]
        table.add_row(
            case,
            text_tables.spread(losses, "{:.3f}") or "diverged",
            text_tables.spread(accuracies, "{:.1f}"),
            text_tables.spread([last_losses(run) for run in runs], "{:.4f}"),
            *[f"{counted[str(n)]:.2f}" if str(n) in counted else "" for n in (WORKERS, *MORE)],
        )
    return table


def last_losses(run):
    """Returns the mean of a run's training losses in its last tenth."""
    return statistics.fmean(run["losses"][-max(1, len(run["losses"]) // 10) :])


def draw(results, path, source):
    """Draws the training loss against the updates, with e and without."""
    names = [name for name in COMPRESSORS if name not in UNBIASED]
    results = by_compressor(results)
    names = [name for name in names if name in results or name + WITHOUT in results]
    down = max(1, math.ceil(len(names) / ACROSS))
    figure, panels = charts.subplots(2.1 * down + 0.5, down, ACROSS, squeeze=False, sharey=True)
    lines = [("no compressor", "k"), ("with its error e", "C0"), ("without e", "C3")]
    for name, panel in zip(names, panels.flat):
        for (label, colour), case in zip(lines, ("none", name, name + WITHOUT)):
            for run in results.get(case, []):
                panel.plot(
                    run["updates"],
                    run["losses"],
                    color=colour,
                    linewidth=1,
                    alpha=0.8,
                    label=label,
                )
        panel.set(title=name, yscale="log", xlabel="updates")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.25)
    for panel in panels[:, 0]:
        panel.set_ylabel("training loss")
    for panel in list(panels.flat)[len(names) :]:
        panel.set_visible(False)
    # A line for each label, of however many runs.
    handles = [pair for panel in panels.flat for pair in zip(*panel.get_legend_handles_labels())]
    known = {label: handle for handle, label in handles}
    figure.legend(known.values(), known, loc="outside lower center", ncols=3, frameon=False)
    charts.save(figure, path, source)


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--updates", 2000, "updates of a run")
    parser.full("all cases; without it three, once each")
    parser.redraw(__file__)
    flags, cases = parser.only(all_cases(), QUICK)

    session = sessions.Session(
        flags=flags,
        cases=cases,
        examples=[example for _, example, *_ in cases],
        measure=lambda case, repeat: measure(case, repeat, flags),
        words=f"{WORKERS} workers, {flags.updates} updates; KB that a worker sends in an update",
    )
    report = sessions.Report(script=__file__, flags=flags, width=150, table_of=table_of, draw=draw)
    report.make(session.measure_all)


if __name__ == "__main__":
    main()
