"""Compare rates: is one learning rate per worker better than a single rate for all?

Two workers, four cases. Their data are alike; or 10% or 50% of worker 1's labels are random; or its
mini-batches have 4 examples, not 32. Each pair of rates trains in each case, with several seeds.
All of it runs in this process: the result of synchronous steps does not depend on time. For the
same rates and seed, the first case is what run.sh computes, apart from rounding.

Kind:          driver
Run:           bash run_compare_rates.sh
"""

import json
import os
import pathlib
import sys
import types

import numpy as np
from lab import examples
from lab.measure import arguments, example_runs, text_tables
from lab.pages import result_tables

ROOT = pathlib.Path(__file__).resolve().parents[1]

SCRIPT = pathlib.Path(__file__).with_name("synchronous_sgd_different_learning_rates.py")
WORKERS = 2
# name: worker 1's share of random labels, and examples in its mini-batch
CASES = {
    "alike": (0, 32),
    "10% random labels": (0.1, 32),
    "50% random labels": (0.5, 32),
    "mini-batches of 4": (0, 4),
}
CONTROL = 0.075, 0.075  # a single rate, with the sum of those that differ
SINGLE = [(lr, lr) for lr in (0.025, 0.05, 0.075, 0.1, 0.2)]
RATES = [*SINGLE, (0.1, 0.05), (0.05, 0.1), (0.13, 0.02), (0.15, 0.00001)]


def shards(data, share, seed):
    """[(inputs, labels)] of the workers: each has every n-th row, as in the example."""
    y, random, rows = data.y_train.copy(), np.random.RandomState(seed), range(1, len(data.y_train))
    wrong = [row for row in rows[::WORKERS] if random.rand() < share]
    y[wrong] = random.randint(y.max() + 1, size=len(wrong))
    return [(data.x_train[k::WORKERS], y[k::WORKERS]) for k in range(WORKERS)]


def measure(example, case, seed, steps):
    """{the rates as a text: test loss and accuracy} after so many steps from the same start."""
    tf, data, (share, size) = example.tf, example.load_data("digits"), CASES[case]
    example.keras.utils.set_random_seed(seed)
    model = example.make_model(data)
    gradients = []
    for k, (x, y) in enumerate(shards(data, share, seed)):
        flags = types.SimpleNamespace(seed=seed, batch_size=size if k else example.BATCH_SIZE)
        x, y = tf.constant(x), tf.constant(y)
        state = model.non_trainable_variables
        gradients.append(example.gradients(model, state, x, y, flags, k))

    @tf.function(autograph=False)
    def train(w, rates):
        def step(number, w):
            moves = [rates[k] * gradient(w, number)[1] for k, gradient in enumerate(gradients)]
            return number + 1, w - tf.add_n(moves)

        return tf.while_loop(lambda number, _: number < steps, step, [np.int64(0), w])[1]

    first = tf.constant(example.vectors_of(model)["w"])
    test, tests = example.evaluation(model, data.x_test, data.y_test), {}
    for rates in RATES:
        loss, accuracy = test(train(first, tf.constant(rates)))
        tests["{:g}, {:g}".format(*rates)] = {
            "test_loss": float(loss),
            "test_accuracy": float(accuracy),
        }
    return tests


def table(results):
    """The test losses as a table in Markdown: median (range), and how often below the control's."""
    runs, rows = results["runs"], []
    for pair in RATES:
        cells, name = [], "{:g}, {:g}".format(*pair)
        for case in runs.values():
            losses = [run[name]["test_loss"] for run in case]
            cell = result_tables.spread(losses, "%.3f").replace(" to ", "–")
            if pair not in SINGLE:
                control = [run["{:g}, {:g}".format(*CONTROL)]["test_loss"] for run in case]
                cell += f" {sum(map(float.__lt__, losses, control))}/{len(case)}"
            cells.append(cell)
        rows.append((f"**{name}**" if pair == CONTROL else name, *cells))
    words = "`{command}`: {steps} steps, {n} seeds; {setting}.".format(n=len(case), **results)
    return result_tables.table(["rates of workers 0, 1", *runs], rows, words)


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--seeds", 5, "runs of each")
    parser.number("--steps", 2000, "of each")
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    directory, example = example_runs.output_directory("Compare-Rates"), examples.load(SCRIPT)
    path = directory / "compare_rates.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() else {}
    for case in CASES:
        kept[case] = kept.get(case) or [
            measure(example, case, seed, flags.steps) for seed in range(flags.seeds)
        ]
        runs = {each: kept[each] for each in CASES if each in kept}
        results = {
            "command": " ".join(["bash run_compare_rates.sh", *sys.argv[1:]]),
            "steps": flags.steps,
            "runs": runs,
            "setting": text_tables.setting("TensorFlow " + example.tf.__version__),
        }
        path.write_text(json.dumps(results, indent=1) + "\n")
    result_tables.leave(directory / "compare_rates.txt", table(results))
    print(f"compare_rates.json is in {directory}; cases that it has are not run again")


if __name__ == "__main__":
    main()
