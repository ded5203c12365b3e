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
import sys
import tempfile

import matplotlib
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers
from tfrun import drawn

SCRIPT = drivers.ROOT / "Collective-AllReduce" / "collective_allreduce.py"
LAYERS = 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),'
WIDE = '*[keras.layers.Dense(1024, "relu") for _ in range(3)],'  # 2.2 million parameters, 8.7 MB
GRADIENTS = "    loss, g = gradient(w_k, version)\n"
WAIT = GRADIENTS + "    with tf.control_dependencies(g):\n        g = [tf.identity(d) for d in g]\n"
CASES = [  # what it is called, bytes in a pack, whether it sends while back-propagation goes on
    ("each tensor alone, after back-propagation", 1, False),
    ("each tensor alone, during back-propagation", 1, True),
    ("packs of 4 MB, after back-propagation", 2**22, False),
    ("packs of 4 MB, during back-propagation", 2**22, True),
    ("all in one, after back-propagation", 0, True),
]


def milliseconds(size, overlap, flags):
    """The time of a step, from its run's result.json. Exits with its last lines when it fails."""
    changes = [(LAYERS, WIDE)] + [(GRADIENTS, WAIT)] * (not overlap)
    with tempfile.TemporaryDirectory() as folder:
        script, directory = pathlib.Path(folder, SCRIPT.name), pathlib.Path(folder, "run")
        script.write_text(drivers.changed(SCRIPT, changes))
        command = ["tfrun", "--workers", "2", "--", script, "--steps", flags.steps]
        command += ["--batch-size", flags.batch_size, "--bytes-per-pack", size]
        drivers.run(command, directory)
        result = json.loads((directory / "result.json").read_text())
    return 1000 * flags.batch_size * result["workers"] / result["examples_per_second"]


def show(times, console):
    """Prints the table."""
    middle = {name: statistics.median(each) for name, each in times.items()}
    last = middle.get(CASES[-1][0])
    table = Table("gradients are sent", "ms a step (median)", "to all in one")
    for name, each in middle.items():
        table.add_row(name, "%.1f" % each, "%.2f" % (each / last) if last else "")
    console.print(table)


def draw(times, path, source):
    """Draws the gradients per second of each case, coloured by the size of the packs."""
    families = dict(zip(dict.fromkeys(size for _, size, _ in CASES), drivers.FAMILIES))
    colours = {name: families[size] for name, size, _ in CASES}
    # Each of the two workers makes a gradient a step.
    rates = {
        name.replace(", ", ",\n"): [2000 / each for each in found] for name, found in times.items()
    }
    figure, axes = plt.subplots(figsize=(7.2, 1.1 + 0.5 * len(rates)), layout="constrained")
    colours = {name.replace(", ", ",\n"): colour for name, colour in colours.items()}
    drivers.bars(axes, rates, colours, lambda rate: "%.1f (%.1f ms)" % (rate, 2000 / rate))
    axes.set_title("How gradients are sent", size=12, loc="left")
    axes.set_xlabel("gradients per second (milliseconds per step)")
    drawn.save(figure, path, draw, results=source)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = drivers.positive(int)
    parser.add_argument("--steps", type=whole, default=200, help="of a run (%(default)d)")
    parser.add_argument("--repeats", type=whole, default=5, help="of each case (%(default)d)")
    parser.add_argument("--batch-size", type=whole, default=64, help="(%(default)d)")
    flags, cases = drivers.only(parser, CASES, __file__)
    console = drivers.console(100)
    if flags.redraw:
        times = json.loads(flags.redraw.read_text())
        show(times, console)
        draw(times, drivers.picture(flags.redraw, "packing"), flags.redraw)
        return
    directory = drivers.output_directory("Packing")
    times = {name: [] for name, *_ in cases}
    plan = cases * flags.repeats  # by turns, so that a slow minute meets all of them
    for name, *case in track(plan, "training", console=console, disable=not console.is_terminal):
        times[name].append(milliseconds(*case, flags))
    show(times, console)
    console.print(
        "2 workers, 8.7 MB of gradients, batches of %d; %d steps, %d repeats; %s"
        % (flags.batch_size, flags.steps, flags.repeats, drivers.setting())
    )
    drivers.write(directory / "results.json", times)
    draw(times, directory / "packing.png", directory / "results.json")
    drivers.leave(console, directory, "packing.png")


if __name__ == "__main__":
    main()
