"""Messages: where the time of HogWild's updates goes, and what fewer messages save.

Two workers train by turns: one process without a cluster; w as a list of variables, each with its
messages; w as a vector on each ps, as the script has it; and that with two calls of each worker.

Kind:          driver
Run:           bash run.sh
"""

import json
import pathlib
import statistics

import numpy as np
from common import drivers, examples
from rich.table import Table


HOGWILD = examples.main_script("HogWild")
ALONE = examples.main_script("Non-Distributed-Setup")
LAYERS = (
    'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),',
    'keras.layers.Dense(512, "relu"),\n            keras.layers.Dense(512, "relu"),',
)
EACH_VARIABLE = [  # w is the list of the model's variables
    (
        """\
    vector = tf.concat([tf.reshape(initial_value(v), [-1]) for v in model.trainable_variables], 0)
    w = tf.get_variable("w", initializer=vector, partitioner=tf.fixed_size_partitioner(ps))
""",
        """    w = [
        tf.get_variable(f"w_{i}", initializer=initial_value(v))
        for i, v in enumerate(model.trainable_variables)
    ]
""",
    ),
    (
        """    parts = tf.split(tf.concat(w, 0), [int(np.prod(shape)) for shape in shapes])
    return list(map(tf.reshape, parts, shapes))
""",
        "    return [tf.ensure_shape(v, shape) for v, shape in zip(w, shapes)]\n",
    ),
]
CALL = "        update_w = session.make_callable(written)\n"
COUNTED = [(CALL, "        count_messages(session, written, metrics)\n" + CALL)]
TWO_CALLS = [("= session.make_callable(written)", "= two_at_once(session.make_callable(written))")]
ADDED = '''

def two_at_once(update_w):
    """Like update_w, with two calls of it under way at any time."""
    import concurrent.futures
    pool = concurrent.futures.ThreadPoolExecutor(2)
    calls = collections.deque(pool.submit(update_w) for _ in range(2))

    def next_result():
        calls.append(pool.submit(update_w))
        return calls.popleft().result()
    return next_result


def count_messages(session, written, metrics):
    """Makes a call, and writes how many tensors an update sent from one task to another."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(output_partition_graphs=True)
    session.run(written, options=options, run_metadata=metadata)
    received = [node.attr for graph in metadata.partition_graphs
                for node in graph.node if node.op == "_Recv"]
    tasks = [[attr[end].s.split(b"/device")[0] for end in ("send_device", "recv_device")]
             for attr in received]
    with open(os.path.join(metrics.directory, "messages.json"), "w") as file:
        json.dump(sum(a != b for a, b in tasks) / len(written), file)


if __name__ == "__main__":'''
CASES = {  # what it is called: the script, updates in a call, [(text, what replaces it)]
    "one process, no cluster": (ALONE, 1, []),
    "a message for each variable": (HOGWILD, 1, EACH_VARIABLE + COUNTED),
    "one message for each ps": (HOGWILD, 1, COUNTED),
    "the same, two calls at once": (HOGWILD, 1, COUNTED + TWO_CALLS),
    "the same, ten updates a call": (HOGWILD, 10, COUNTED),
}
BASE = "a message for each variable"
PARTS = ["call and pull", "gradient", "push"]  # of an update


def measure(case, flags):
    """What a run of that case leaves: rate, staleness, messages, milliseconds of PARTS."""
    script, together, changes = CASES[case]
    cluster, more = [], []
    if script == HOGWILD:
        changes = [*changes, ('\n\nif __name__ == "__main__":', ADDED)]
        cluster = ["--ps", 1, "--workers", 2]
        more = ["--updates-per-call", together]
    if flags.wide:
        changes = [*changes, LAYERS]
    with examples.changed_copy(script, changes) as (copy, directory):
        if flags.wide:
            more += ["--dataset", wide_data(copy.parent), "--learning-rate", 0.01]
        command = ["tfrun", *cluster, "--", copy, "--steps", flags.steps]
        drivers.run([*command, "--batch-size", flags.batch_size, *more], directory)
        result = json.loads((directory / "result.json").read_text())
        rows = drivers.pushes(directory)
        sent = directory / "messages.json"
        messages = json.loads(sent.read_text()) if sent.exists() else 0
    return {
        "rate": result["examples_per_second"] / flags.batch_size,
        "staleness": result["staleness_mean"],
        "messages": messages,
        "parts": parts(rows) if messages else [],
    }


def parts(rows):
    """The medians of PARTS in milliseconds, from the times that a run notes of each update."""
    found = []
    for task in {row["task"] for row in rows}:
        pushed, pulled, waited = (
            np.array([row[name] for row in rows if row["task"] == task])
            for name in ("push_time", "pull_time", "wait_seconds")
        )
        found.append([pulled[1:] - pushed[:-1], (pushed - waited - pulled)[1:], waited[1:]])
    return [1000 * float(np.median(np.concatenate(part))) for part in zip(*found)]


def wide_data(folder):
    """A file of 784 random features and 10 classes."""
    random, path = np.random.RandomState(0), pathlib.Path(folder, "wide.npz")
    x, y = random.rand(1200, 784).astype("float32"), random.randint(0, 10, 1200)
    np.savez(path, x_train=x[:1000], y_train=y[:1000], x_test=x[1000:], y_test=y[1000:])
    return path


def medians(runs):
    """{case: {what: its median over the runs}}."""
    return {
        name: {key: np.median([run[key] for run in each], 0) for key in each[0]}
        for name, each in runs.items()
    }


def table_of(results):
    """Returns the table."""
    middle = medians(results)
    table = Table("HogWild, two workers", "messages", "updates/s", "range", "times", "staleness")
    for part in (f"ms: {PARTS[0]}", *PARTS[1:]):
        table.add_column(part)
    for name, case in middle.items():
        rates = [run["rate"] for run in results[name]]
        table.add_row(
            name,
            f"{case['messages']:.0f}",
            f"{statistics.median(rates):.0f}",
            f"{min(rates):.0f}-{max(rates):.0f}",
            f"{case['rate'] / middle[BASE]['rate']:.2f}" if BASE in middle else "",
            f"{case['staleness']:.2f}",
            *(f"{part:.2f}" for part in case["parts"]),
        )
    return table


def draw(results, path, source):
    """Draws the parts of an update as bars, one for each case with messages."""
    middle = {name: case for name, case in medians(results).items() if case["messages"]}
    figure, axes = drivers.subplots(1.5 + 0.5 * len(middle))
    left = np.zeros(len(middle))
    for k, (part, colour) in enumerate(zip(PARTS, ["#9ecae1", "#d62728", "#3182bd"])):
        width = np.array([case["parts"][k] for case in middle.values()])
        axes.barh(list(middle), width, left=left, color=colour, label=part)
        left = left + width
    axes.invert_yaxis()
    axes.set_title("Where the time of an update goes", loc="left")
    count = len(results[next(iter(middle))])
    axes.set_xlabel(f"milliseconds of a worker per update, medians of {count} runs")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    drivers.save(figure, path, source)


def main():
    parser = drivers.Parser(__doc__)
    parser.number("--steps", 3000, "of a run")
    parser.number("--repeats", 5, "of each case")
    parser.number("--batch-size", 32, "of each worker")
    parser.add_argument("--wide", action="store_true", help="784-512-512-10, on random numbers")
    parser.redraw(__file__)
    flags, cases = parser.only(list(CASES.items()))

    def measure_all(console, _):
        results = drivers.by_turns(
            console, cases, flags.repeats, lambda case, _: measure(case[0], flags)
        )
        return results, (
            f"{'784-512-512-10' if flags.wide else '64-128-64-10'}, batches of {flags.batch_size}; "
            f"{flags.steps} steps, {flags.repeats} repeats, medians; {drivers.setting()}"
        )

    drivers.report(__file__, flags, 120, measure_all, table_of, draw)


if __name__ == "__main__":
    main()
