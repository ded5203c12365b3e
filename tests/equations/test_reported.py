"""What a run reports is what it has done: its tests, its end, its staleness, its columns.

Each check is of one or more examples. Each mistake is put into a copy of a script, which still
runs, and a comparison of numbers fails.
"""

import collections
import contextlib
import itertools
import json
import threading

import interleaved
import numpy as np
import pytest
import support
from lab import examples
from problem import BATCH, SEED, command_line, draw
from support import SHAPES
from tfrun.apps import perceptron
from tfrun.runs import models, summary
from tfrun.runs.data import RunData

SESSIONS, HOGWILD = "From-TensorFlow-1/HogWild-Sessions", "HogWild"


def run(quick, folder, example, changes, *flags, workers=2, ps=1):
    """Runs a copy of the example's script with these changes; returns the run directory."""
    script = examples.main_script(example)
    folder.mkdir(exist_ok=True)
    (folder / script.name).write_text(examples.replaced(script, changes))
    kind = examples.kind_of(script)
    quick.ps = ps if kind.startswith(("parameter server", "coordinator")) else 0
    quick.chief = int(kind == "coordinator")
    workers -= workers > 1 and quick.chief  # there are as many tasks
    codes, output = quick.run(folder / script.name, folder / "run", *flags, workers=workers)
    assert not any(codes), output
    return folder / "run"


def interleaved_workers(n, example, changes, **flags):
    """So many workers of the example's script with these changes."""
    script = examples.main_script(example)
    flags = {**command_line({}), **flags}
    return interleaved.Workers(script, n, flags, text=examples.replaced(script, changes))


def saved(path):
    """The parameters in a checkpoint."""
    return models.saved_values(path, SHAPES)["w"]


# The test ----------------------------------------------------------------------------------------


def by_numpy(directory):
    """{"test_loss", "test_accuracy"} in NumPy, of the last checkpoint, on the last 360 digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    last = np.random.RandomState(0).permutation(len(x))[-360:]
    h, y = x[last] / 16, y[last]
    w = saved(support.newest_checkpoint(directory))
    for k in range(0, len(w), 2):
        h = np.maximum(h, 0) if k else h
        h = h @ w[k].astype(float) + w[k + 1]
    log_p = h - np.log(np.exp(h).sum(1, keepdims=True))
    of_rows = -log_p[np.arange(len(y)), y]
    return {"test_loss": of_rows.mean(), "test_accuracy": (h.argmax(1) == y).mean()}


def compare_test(directory):
    result, due = summary.summarize(RunData.read(directory)), by_numpy(directory)
    interleaved.check_apart({name: ([result[name]], [due[name]]) for name in due}, 2e-6)


def check_test(example, changes, quick, folder):
    """The metrics are those of the last checkpoint."""
    compare_test(run(quick, folder, example, changes, "--steps", "60"))


def check_rows(example, changes, quick, folder):
    """No row of the test is one of training."""
    script = examples.main_script(example)
    data = examples.load(script, examples.replaced(script, changes)).load_data("digits")
    rows = {row.tobytes() for row in data.x_train}
    shared = sum(row.tobytes() in rows for row in data.x_test)
    assert shared == 0 and len(data.x_test) == 360, f"rows: {shared} are in both"


# Word vectors. In this text no word is frequent, so that none is dropped: the pairs are known.
WORDS = [
    "".join(letters) for letters in itertools.product("abcdefghij", "klmnopqrst", "uvwxyzabcdef")
]
ORDER = np.random.RandomState(0).permutation(3 * WORDS)  # each three times
PARAGRAPHS = [list(map(str, ORDER[i : i + 90])) for i in range(0, 3600, 90)]


def check_pairs(example, changes, quick, folder):
    """Every pair of words at most five apart, of each tenth paragraph in the test."""
    (folder / "text.txt").write_text("\n\n".join(" ".join(words) for words in PARAGRAPHS))
    script = examples.main_script(example)
    module = examples.load(script, examples.replaced(script, changes))
    data, offset = module.load_data(str(folder / "text.txt"), len(WORDS)), len(WORDS)
    assert set(data.vocabulary) == set(WORDS)
    due = collections.Counter(), collections.Counter()
    for p, words in enumerate(PARAGRAPHS):
        for i, word in enumerate(words):
            for j in range(max(0, i - 5), min(len(words), i + 6)):
                due[p % 10 == 9][word, words[j]] += i != j
    wrong = []
    training, test = zip(data.x_train, data.y_train), zip(data.x_test, data.y_test[:, 0])
    for name, pairs, expected in zip(["training", "test"], [training, test], due):
        words = [(data.vocabulary[a], data.vocabulary[b - offset]) for a, b in pairs]
        there = collections.Counter(words)
        if there != +expected:
            wrong.append(f"{name}: not {expected.total()} pairs, or others")
    assert not wrong, "\n".join(wrong)


# The end -----------------------------------------------------------------------------------------


def check_calls(example, changes, quick, folder):
    """25 updates of each worker in calls of ten, no more."""
    directory = run(quick, folder, example, changes, "--steps", "25")
    tasks = RunData.read(directory).tasks.values()
    steps = [[*task.pushes["global_step"]] for task in tasks]
    assert steps == [[*range(1, 26)]] * 2, f"updates: {[numbers[-1] for numbers in steps]}"


# Worker 1 is slow between its ticket and its push, and notes the last w that it has seen.
TICKET = "    with tf.control_dependencies([%s]):\n"
ARRIVE = "            session.run(finish)\n"
SLOW = [
    (
        TICKET % "ticket",
        "    def late(ticket):\n"
        '        time.sleep(json.loads(os.environ["TF_CONFIG"])["task"]["index"])\n'
        "        return ticket\n" + TICKET % "tf.numpy_function(late, [ticket], tf.int64)",
    ),
    (
        ARRIVE,
        "            if not metrics.is_chief:\n"
        "                last = session.run(tf.global_variables('w/'))\n"
        "                path = os.path.join(metrics.directory, 'last.npy')\n"
        "                np.save(path, np.concatenate(last))\n" + ARRIVE,
    ),
]


def check_the_last_checkpoint(example, changes, quick, folder):
    """The chief tests and saves after the push that comes last."""
    directory = run(quick, folder, example, [*SLOW, *changes], "--steps", "200")
    last = np.load(directory / "last.npy")
    apart = np.abs(interleaved.flat(saved(support.newest_checkpoint(directory))) - last).max()
    assert apart == 0, f"w: {apart:g} apart"
    compare_test(directory)


# Checkpoints -------------------------------------------------------------------------------------


def check_going_on(example, changes, quick, folder):
    """A run that goes on with another number of ps begins with the w of its last checkpoint.

    The rate of the later parts is too small to move w.
    """
    small, values = ["--learning-rate", "1e-30"], []
    for ps, *flags in (1, "20"), (2, "30", *small), (1, "40", *small):
        directory = run(quick, folder, example, changes, "--steps", *flags, workers=1, ps=ps)
        path = support.newest_checkpoint(directory)
        assert path.endswith("-" + flags[0])
        values.append(interleaved.flat(saved(path)))
    apart = max(np.abs(value - values[0]).max() for value in values)
    assert apart < 1e-20, f"w: {apart:g} apart"


def with_layers(*names):
    """The change of the model to two hidden layers of the same size, with these names."""
    text = examples.main_script(SESSIONS).read_text()
    begin = text.index("            keras.layers.Dense(128,")
    end = text.index("keras.layers.Dense(np.bincount")
    hidden = [f'            keras.layers.Dense(64, "relu", name="{name}"),\n' for name in names]
    return text[begin:end], "".join(hidden) + 12 * " "


def begin_again(quick, folder, directory, layers):
    """What a chief without a ps says at last when it finds that run, with a model of its own."""
    script = examples.main_script(SESSIONS)
    (folder / script.name).write_text(examples.replaced(script, [with_layers(*layers)]))
    tasks = {"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:0"]}
    config = json.dumps({"cluster": tasks, "task": {"type": "worker", "index": 0}})
    env = {"TF_CONFIG": config, "OUTPUT_DIR": str(directory), "REQUIRED_WAIT_SECONDS": "1"}
    return quick.zygotes[0].run(script.name, [], folder, **env).stderr.splitlines()[-1]


@pytest.mark.long
def test_a_checkpoint_of_another_model_is_refused(quick, tmp_path):
    """Two layers of equal size in another order, and flags.json of before it had the variables."""
    layers, flags = ["one", "two"], ["--steps", "5"]
    directory = run(quick, tmp_path, SESSIONS, [with_layers(*layers)], *flags, workers=1)
    refused = f"ValueError: {directory} has a checkpoint of another model"
    assert "no ps answered" in begin_again(quick, tmp_path, directory, layers)
    assert begin_again(quick, tmp_path, directory, ["two", "one"]) == refused
    assert "no ps answered" in begin_again(quick, tmp_path, directory, layers)
    path = directory / "flags.json"
    facts = json.loads(path.read_text())
    assert facts.pop("variables")[0] == ["sequential/one/kernel", [64, 64]]
    path.write_text(json.dumps(facts))
    assert begin_again(quick, tmp_path, directory, layers) == refused


# Staleness ---------------------------------------------------------------------------------------


def against_another(example, changes, calls=60, local_steps=1):
    """One worker's calls, while another one counts in w and in the step, as fast as it can.

    In w it counts in the last number, a bias.

    Returns for each call (version, the number that the pulled w holds, staleness, how often the
    other one has counted meanwhile, and before the call).
    """
    flags, rows = {"--steps": 10**8, "--learning-rate": 1e-30}, []
    if '"local-steps"' in examples.main_script(example).read_text():
        flags["--local-steps"] = local_steps
    with interleaved_workers(2, example, changes, **flags) as (worker, other):
        tf, over = worker.tf, threading.Event()
        with other.session.graph.as_default():
            step = next(v for v in other.globals if v.op.name == "global_step")
            w = next(v for v in other.globals if v.op.name == "w/part_0")
            size = w.shape.num_elements()
            last = tf.one_hot(size - 1, size)
            start = w.assign_sub(w.read_value() * last)
            with tf.control_dependencies([w.assign_add(last)]):
                count = step.assign_add(1)
        other.session.run(start)
        (pulled,) = worker.update.pulled

        def others():
            while not over.is_set():
                # Seen once: the ps took two requests of TensorFlow's own for the same one.
                with contextlib.suppress(tf.errors.AbortedError):
                    other.session.run(count)

        thread = threading.Thread(target=others)
        thread.start()
        try:
            for _ in range(calls):
                before = int(other.session.run(step))
                version, w, ticket, _ = worker.session.run(
                    [worker.update.version, pulled, worker.update.ticket, worker.pushed]
                )
                meanwhile, staleness = int(other.session.run(step)) - before, int(ticket - version)
                before -= len(rows)  # the pushes of the worker itself
                rows.append((int(version), int(round(w[-1])), staleness, meanwhile, before))
        finally:
            over.set()
            thread.join()
    return np.array(rows)


def check_the_version(example, changes, quick, folder):
    """The other one counts in w first, so that w is never behind a version that was noted before.

    The worker's own pushes count in the step, too.
    """
    rows = against_another(example, changes)
    behind = rows[:, 0] - np.arange(len(rows)) - rows[:, 1]
    assert behind.max() <= 0, f"pulled: {behind.max()} updates behind the version"


GRADIENT = "    def gradient(w, number):\n"
WAIT = """        wait = lambda x: (time.sleep(0.4), x)[1]
        number = tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])
"""


def check_the_ticket(example, changes, quick, folder):
    """The other one's updates during a slow gradient are in the staleness."""
    slow = [(GRADIENT, GRADIENT + WAIT), *changes]
    rows = against_another(example, slow, calls=4)[1:]
    counted, meanwhile = rows[:, 2].sum(), rows[:, 3].sum()
    assert counted > 0.5 * meanwhile > 10, f"staleness: {counted} of {meanwhile} updates"


# The columns -------------------------------------------------------------------------------------


def rows_of(directory):
    """{column: array} of the pushes of worker 0."""
    return RunData.read(directory).tasks["worker-0"].pushes


ONE_BY_ONE = ["--steps", "11", "--checkpoint-steps", "1", "--batch-size", str(BATCH)]
ONE_BY_ONE += ["--seed", str(SEED), "--updates-per-call", "1"]


def check_losses(example, changes, quick, folder):
    """The loss of an update is that of its mini-batch at the w of the checkpoint before it."""
    from sklearn.datasets import load_digits

    directory = run(quick, folder, example, changes, *ONE_BY_ONE, workers=1)
    x, y = load_digits(return_X_y=True)
    first = np.random.RandomState(0).permutation(len(x))[:-360]
    x, y, pushes = x[first] / 16, y[first], rows_of(directory)
    apart = []
    for step in range(7, 11):  # those that are kept
        w = saved(str(directory / (f"model.ckpt-{step}")))
        rows = draw(0, step, BATCH, len(x))
        loss, _ = perceptron.loss_and_gradient([v.astype(float) for v in w], x[rows], y[rows])
        (reported,) = pushes["loss"][pushes["global_step"] == step + 1]
        apart.append(abs(loss - reported))
    assert max(apart) < 1e-5, f"losses: {max(apart):g} apart"


# Each mini-batch that is drawn is noted in a file.
DRAWS = [' 0, len(x), "int32")\n', ' 0, x.shape[0], "int32")\n', " 0, x.shape[0], tf.int32)\n"]
NOTE = """        def note(rows):
            with open(os.environ["OUTPUT_DIR"] + "/drawn.txt", "a") as file:
                file.write("%d\\n" % len(rows))
            return rows
        rows = tf.ensure_shape(tf.numpy_function(note, [rows], tf.int32), rows.shape)
"""


LOCAL_SGD = "Further-Algorithms/Local-SGD"
STEPS_ALONE = {
    "DOWNPOUR-Easy": ["--local-steps", "3"],
    LOCAL_SGD: ["--local-steps", "3", "--post-local", "5"],
}


def check_examples(example, changes, quick, folder):
    """The examples of all updates are those of all mini-batches, less a last call that is void."""
    flags = ["--steps", "12", "--batch-size", "8"]
    flags += STEPS_ALONE.get(example, [])
    text = examples.main_script(example).read_text()
    changes = [(draw, draw + NOTE) for draw in DRAWS if draw in text] + changes
    directory = run(quick, folder, example, changes, *flags, workers=1)
    drawn = np.loadtxt(directory / "drawn.txt").sum()
    reported = rows_of(directory)["examples"]
    assert 0 <= drawn - reported.sum() <= reported[-1], (
        f"examples: {drawn} drawn, {reported.sum()} reported"
    )


# Flags -------------------------------------------------------------------------------------------


def check_seeds(example, changes, quick, folder):
    """Another seed, other parameters; one update moves none of them as far."""
    w, losses = [], []
    for seed in "1", "2":
        flags = ["--steps", "1", "--seed", seed]
        directory = run(quick, folder / seed, example, changes, *flags, workers=1)
        w.append(saved(support.newest_checkpoint(directory))[0])
        losses.append(rows_of(directory)["loss"][0])
    apart = np.abs(w[0] - w[1]).max()
    assert apart > 0.1 and losses[0] != losses[1], f"parameters: {apart:g} apart, losses {losses}"


# The checks and their mistakes -------------------------------------------------------------------


CHECKS = {  # a check: (its examples in the core tier, more in `all`)
    # One with each form of the region that tests.
    check_test: (
        [HOGWILD],
        [SESSIONS, "Model-Parallelism", "Collective-AllReduce", "Parameter-Server-Strategy"],
    ),
    check_rows: ([HOGWILD], [SESSIONS]),
    check_pairs: (["Sparse-Embeddings"], []),
    check_calls: (["Collective-AllReduce"], ["Ring-AllReduce"]),
    check_the_last_checkpoint: ([], [SESSIONS]),
    check_going_on: ([], [HOGWILD, SESSIONS]),
    check_the_version: ([SESSIONS], []),
    check_the_ticket: ([SESSIONS], []),
    check_losses: ([HOGWILD], [SESSIONS]),
    check_examples: (["DOWNPOUR-Easy"], ["Multiple-GPUs-Single-Machine", LOCAL_SGD]),
    check_seeds: ([], [HOGWILD, SESSIONS, "Ring-AllReduce", "Non-Distributed-Setup"]),
}


@pytest.mark.parametrize(
    "check, example",
    [
        pytest.param(check, example, marks=marks)
        for check, tiers in CHECKS.items()
        for examples, marks in zip(tiers, ([], [pytest.mark.long]))
        for example in examples
    ],
)
def test_what_is_reported(check, example, quick, tmp_path):
    check(example, [], quick, tmp_path)


TEST_ROWS = ", x_test, y_test)"
SECOND_BEST = (
    '("max", keras.metrics.sparse_categorical_accuracy)}',
    '("max", lambda y, p: keras.metrics.sparse_top_k_categorical_accuracy(y, p, k=2))}',
)
EXTEND = "pairs[number % 10 == 9].extend"
NOTED = """    with tf.device(step.device):
        version = step.read_value()
    with tf.control_dependencies([version]):
        w_k = [v.read_value() for v in w]
"""
NOTED_LATER = """    w_k = [v.read_value() for v in w]
    with tf.control_dependencies(w_k), tf.device(step.device):
        version = step.read_value()
"""
RESTORE = "            saver.restore(session, checkpoint)\n"
STEP_ALONE = """            session.run(tf.global_variables_initializer())
            tf.train.get_global_step().load(int(checkpoint.split('-')[-1]), session)
"""
COUNT = "examples=local_steps * flags.batch_size"
RESTORED = "    for v, value in zip(variables, values):\n"
FIRST_PARTS = (
    'shape_and_slices=[s and f"{s.split()[0]} 0,{v.shape[0]}" for _, s, v in entries], dtypes'
)
# (the check, its example, the comparison that fails): {the mistake: [(text, what replaces it)]}
CORE_MISTAKES = {
    (check_rows, HOGWILD, "rows"): {
        "rows in both": [("x[:-360], y[:-360], x[-360:]", "x[:-300], y[:-300], x[-360:]")]
    },
}
MISTAKES = {
    (check_test, HOGWILD, "test_loss"): {
        "training rows are tested": [
            ("evaluation(model, x_test, y_test, ps)", "evaluation(model, x, y, ps)")
        ],
        "another w is tested": [("*map(float, evaluate(w))", "*map(float, evaluate(0.99 * w))")],
    },
    (check_test, HOGWILD, "test_accuracy"): {"the second best counts, too": [SECOND_BEST]},
    (check_going_on, HOGWILD, "w"): {
        "the step alone is restored": [
            (
                RESTORED,
                RESTORED.replace("zip", "(pair for pair in zip").replace(
                    "values):", "values) if len(pair[0].shape) == 0):"
                ),
            )
        ],
        "each ps restores the first part": [("shape_and_slices=slices, dtypes", FIRST_PARTS)],
    },
    (check_losses, HOGWILD, "losses"): {
        "a loss of something else": [("loss=loss", "loss=0.9 * loss")]
    },
    (check_seeds, HOGWILD, "parameters"): {
        "a seed that changes nothing": [("set_random_seed(flags.seed)", "set_random_seed(0)")]
    },
    (check_test, SESSIONS, "test_loss"): {
        "training rows are tested": [("local_state" + TEST_ROWS, "local_state, x, y)")]
    },
    (check_test, SESSIONS, "test_accuracy"): {"the second best counts, too": [SECOND_BEST]},
    (check_test, "Model-Parallelism", "test_loss"): {
        "training rows are tested": [("stages, places" + TEST_ROWS, "stages, places, x, y)")]
    },
    (check_test, "Model-Parallelism", "test_accuracy"): {
        "the second best counts, too": [SECOND_BEST]
    },
    (check_pairs, "Sparse-Embeddings", "training"): {
        # Not all: a list of the test that is empty could not be tested.
        "test pairs in training": [
            (EXTEND + "(", f"(pairs[0].extend if number % 20 == 19 else {EXTEND})(")
        ]
    },
    (check_pairs, "Sparse-Embeddings", "test"): {
        "a word is its own neighbour": [
            ("said[place + 1 : place + 1 + WINDOW]", "said[place : place + 1 + WINDOW]")
        ]
    },
    (check_calls, "Ring-AllReduce", "updates"): {
        "calls that overshoot": [
            ("min(flags.steps - metrics.step, flags.steps_per_call)", "flags.steps_per_call")
        ]
    },
    (check_the_last_checkpoint, SESSIONS, "(w|test_loss)"): {
        "a chief that does not wait": [("wait_for(finished[0], n - 1)", "pass")]
    },
    (check_going_on, SESSIONS, "w"): {"the step alone is restored": [(RESTORE, STEP_ALONE)]},
    (check_the_version, SESSIONS, "pulled"): {"noted after the pull": [(NOTED, NOTED_LATER)]},
    (check_the_ticket, SESSIONS, "staleness"): {
        "taken at the pull": [(TICKET.replace("[%s]", "delta"), TICKET.replace("[%s]", "w_k"))]
    },
    (check_losses, SESSIONS, "losses"): {
        "a loss of something else": [("loss=update.loss", "loss=0.9 * update.loss")]
    },
    (check_examples, "DOWNPOUR-Easy", "examples"): {
        "one local step counts": [(COUNT, "examples=flags.batch_size")]
    },
    (check_examples, LOCAL_SGD, "examples"): {
        "T local steps count, also where one is made": [
            ("(local_steps=T)", "(local_steps=np.int64(flags.local_steps))")
        ]
    },
    (check_examples, "Multiple-GPUs-Single-Machine", "examples"): {
        "one tower counts": [("examples=n * row.examples", "examples=row.examples")]
    },
    (check_seeds, SESSIONS, "parameters"): {
        "a seed that changes nothing": [("set_random_seed(flags.seed)", "set_random_seed(0)")]
    },
}


@pytest.mark.parametrize(
    "check, example, fails, changes",
    [*support.mistakes(CORE_MISTAKES, core=1), *support.mistakes(MISTAKES, core=0)],
)
def test_a_mistake_is_caught(check, example, fails, changes, quick, tmp_path):
    with support.fails_comparison(fails):
        check(example, changes, quick, tmp_path)
