"""Packing: how many gradients to send at once, and whether to send during back-propagation.

Two workers of Collective-AllReduce train a wider perceptron. Each run is the example's own script
with other layers, under tfrun; in the runs without overlap every gradient waits for all of them.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import json
import pathlib
import statistics

from lab import examples
from lab.measure import arguments, charts, example_runs, sessions, text_tables
from rich.console import Console
from rich.table import Table

SCRIPT = examples.main_script("Collective-AllReduce")
LAYERS = 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),'
WIDE_LAYERS = (
    '*[keras.layers.Dense(1024, "relu") for _ in range(3)],'  # 2.2 million parameters, 8.7 MB
)
GRADIENTS = "    loss, g = gradient(w_k, version)\n"
WAIT = GRADIENTS + "    with tf.control_dependencies(g):\n        g = [tf.identity(d) for d in g]\n"
ALL_IN_ONE = "all in one, after back-propagation"
Times = dict[str, list[float]]  # {a case: the milliseconds of a step of each run}
CASES = [  # what it is called, bytes in a pack, whether it sends while back-propagation goes on
    ("each tensor alone, after back-propagation", 1, False),
    ("each tensor alone, during back-propagation", 1, True),
    ("packs of 4 MB, after back-propagation", 2**22, False),
    ("packs of 4 MB, during back-propagation", 2**22, True),
    (ALL_IN_ONE, 0, True),
]


def milliseconds(size: float, overlap: bool, flags: argparse.Namespace) -> float:
    """The time of a step, from its run's result.json. Exits with its last lines when it fails."""
    changes = [(LAYERS, WIDE_LAYERS)]
    if not overlap:
        changes.append((GRADIENTS, WAIT))
    with examples.changed_copy(SCRIPT, changes) as (script, directory):
        command = ["tfrun", "--workers", "2", "--", script, "--steps", flags.steps]
        command += ["--batch-size", flags.batch_size, "--bytes-per-pack", size]
        example_runs.run(command, directory)
        result = json.loads((directory / "result.json").read_text())
    return 1000 * flags.batch_size * result["workers"] / result["examples_per_second"]


def table_of(times: Times) -> Table:
    """Returns the table."""
    medians = {name: statistics.median(runs) for name, runs in times.items()}
    all_in_one = medians.get(ALL_IN_ONE)
    table = text_tables.plain_table("gradients are sent", "ms a step (median)", "to all in one")
    for name, time in medians.items():
        table.add_row(name, f"{time:.1f}", f"{time / all_in_one:.2f}" if all_in_one else "")
    return table


def draw(times: Times, path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the gradients per second of each case, coloured by the size of the packs."""
    sizes = dict.fromkeys(size for _, size, _ in CASES)
    colour_of_size = dict(zip(sizes, charts.COLOURS))
    # Each of the two workers makes a gradient a step.
    rates = {
        name.replace(", ", ",\n"): [2000 / time for time in runs] for name, runs in times.items()
    }
    colours = {name.replace(", ", ",\n"): colour_of_size[size] for name, size, _ in CASES}
    charts.bars(
        "How gradients are sent",
        "gradients per second (milliseconds per step)",
        rates,
        colours,
        lambda rate: f"{rate:.1f} ({2000 / rate:.1f} ms)",
        path,
        source,
    )


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--steps", 200, "of a run")
    parser.number("--repeats", 5, "of each case")
    parser.number("--batch-size", 64, "of each worker")
    parser.redraw(__file__)
    flags, cases = parser.only(CASES)

    def measure(console: Console, _: object) -> tuple[Times, str]:
        times = sessions.measure_round_robin(
            console, cases, flags.repeats, lambda case, _: milliseconds(case[1], case[2], flags)
        )
        return times, (
            f"2 workers, 8.7 MB of gradients, batches of {flags.batch_size}; {flags.steps} steps, "
            f"{flags.repeats} repeats; {text_tables.setting()}"
        )

    report = sessions.Report(script=__file__, flags=flags, width=100, table_of=table_of, draw=draw)
    report.make(measure)


if __name__ == "__main__":
    main()
