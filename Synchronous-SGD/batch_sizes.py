"""Batch-Sizes: how large a batch may be before the test error rises, at equal numbers of examples.

Three learning rates for a batch of k * 32: lr; k * lr, the linear scaling rule; and k * lr after a
gradual warm-up of 5 epochs, as in Goyal et al. 2017. One process makes the steps: its batch of
k * 32 stands for k synchronous workers with 32 each. A few minutes.

Kind:          driver
Run:           bash run_batch_sizes.sh
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import statistics
import time

import numpy as np
from lab import examples
from lab.measure import arguments, charts
from lab.pages import result_tables
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

HERE = pathlib.Path(__file__).resolve().parent

BATCHES, LR = [32, 64, 128, 256, 384, 512, 1024], 0.1  # k is a batch divided by the first
WARM_UP_EPOCHS = 5
RULES = {"constant": "lr", "linear": "k · lr", "warm-up": "k · lr, after a warm-up"}


def rate_of(rule, k, step, warm_up):
    """The learning rate of a step; the warm-up is that of --warmup-steps."""
    if rule == "constant":
        return LR
    done = min(step / warm_up, 1) if rule == "warm-up" else 1
    return k * LR * (1 / k + (1 - 1 / k) * done)


def train(example, data, batch, rule, seed, rows):
    """Trains the model of all examples on so many rows; returns its test error."""
    tf, flags = example.tf, argparse.Namespace(seed=seed, batch_size=batch, steps=rows // batch)
    warm_up = max(1, WARM_UP_EPOCHS * len(data.x_train) // batch)
    example.keras.utils.set_random_seed(seed)
    model = example.make_model(data)
    x, y, x_test, y_test = map(tf.constant, data)
    gradient = example.gradients(model, model.non_trainable_variables, x, y, flags, 0)
    w = tf.Variable(np.concatenate([np.ravel(v) for v in model.trainable_variables]))

    @tf.function(autograph=False)
    def step(number, rate):
        rated = argparse.Namespace(learning_rate=rate)
        return example.update(w, number, gradient, rated)[0]

    for number in range(flags.steps):
        rate = rate_of(rule, batch // BATCHES[0], number, warm_up)
        step(tf.constant(number, tf.int64), tf.constant(rate, tf.float32))
    _, accuracy = example.evaluation(model, x_test, y_test)(w)
    return round(1 - float(accuracy), 4)


def draw(results, path):
    """The picture of a file of results: each run a dot, lines through the medians."""
    found = json.loads(results.read_text())
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    sizes = found["batches"]
    for number, rule in enumerate(found["rules"]):
        color, errors = f"C{number}", [rule["errors"][str(size)] for size in sizes]
        beside = [size * 1.05 ** (number - 1) for size in sizes]
        axes.plot(
            beside,
            [statistics.median(runs) for runs in errors],
            color=color,
            label="learning rate " + rule["name"],
        )
        for place, runs in zip(beside, errors):
            axes.plot([place] * len(runs), runs, "o", color=color, alpha=0.5, markersize=4)
    axes.set(
        xscale="log", yscale="log", xlabel="batch, examples", ylabel="test error", ylim=(0.007, 1.1)
    )
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left")
    charts.save(figure, path, results)


def table(found):
    """Returns the table of the page."""
    first, *names = [rule["name"] for rule in found["rules"]]
    rows = []
    for batch in found["batches"]:
        errors = [rule["errors"][str(batch)] for rule in found["rules"]]
        cells = [result_tables.spread([100 * error for error in seeds]) for seeds in errors]
        rows.append((batch, found["examples"] // batch, *cells))
    return result_tables.table(
        ["batch", "updates", f"error, %: {first}", *names],
        rows,
        f"Median (and range) of {found['seeds']} seeds, each after {found['examples']} examples; "
        f"lr = {found['lr']:g}, and k is the batch divided by {found['batches'][0]}. "
        f"`{found['command']}` on {found['date']}, TensorFlow {found['tensorflow']}.",
    )


def measure(seeds, rows):
    """Trains all cases; returns what batch_sizes.json holds."""
    example = examples.load(examples.main_script("Non-Distributed-Setup"))
    data, began = example.load_data("digits"), time.time()
    errors = {rule: {str(batch): [] for batch in BATCHES} for rule in RULES}
    for seed, batch, rule in itertools.product(range(seeds), BATCHES, RULES):
        errors[rule][str(batch)].append(train(example, data, batch, rule, seed, rows))
        print(
            "seed %d, batch %4d, %-8s: test error %5.1f%%, after %.0f s"
            % (seed, batch, rule, 100 * errors[rule][str(batch)][-1], time.time() - began),
            flush=True,
        )
    return {
        "command": "bash run_batch_sizes.sh --seeds %d" % seeds,
        "seeds": seeds,
        "examples": rows,
        "batches": BATCHES,
        "lr": LR,
        "warm_up_epochs": WARM_UP_EPOCHS,
        "date": str(datetime.date.today()),
        "tensorflow": example.tf.__version__,
        "python": platform.python_version(),
        "rules": [{"name": RULES[rule], "errors": errors[rule]} for rule in RULES],
    }


def main():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is loaded
    parser = arguments.Parser(__doc__)
    parser.number("--seeds", 5, "runs of each case")
    parser.number("--examples", 128000, "examples of a run")
    folder, words = os.environ.get("OUTPUT_DIR", HERE), "the folder of what this script writes"
    parser.add_argument("--output", type=pathlib.Path, default=folder, help=words)
    words = "train nothing: make the picture and the table of batch_sizes.json again"
    parser.add_argument("--redraw", action="store_true", help=words)
    flags = parser.parse_args()
    flags.output.mkdir(parents=True, exist_ok=True)
    results = flags.output / "batch_sizes.json"
    if not flags.redraw:
        results.write_text(json.dumps(measure(flags.seeds, flags.examples), indent=1) + "\n")
    draw(results, flags.output / "batch-sizes.png")
    result_tables.leave(results.with_suffix(".txt"), table(json.loads(results.read_text())))


if __name__ == "__main__":
    main()
