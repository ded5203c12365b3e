"""What a run reports is what it has done: its tests, its end, its staleness, its columns.

Each mistake is put into a copy of a script, which still runs, and a comparison of numbers fails.
"""

import collections
import contextlib
import itertools
import json
import threading

import interleaved
import numpy as np
import pytest
import references
import support
from problem import BATCH, SEED, command_line, digits_like, draw
from support import SHAPES
from tfrun import export, summary


@pytest.fixture(scope="module")
def quick():
    with support.QuickCluster() as cluster:
        yield cluster


def run(quick, folder, script, changes, *flags, workers=2, ps=1):
    """Runs a copy of the script with these changes; returns the run directory."""
    folder.mkdir(exist_ok=True)
    (folder / script.name).write_text(support.replaced(script, changes))
    kind = support.kind_of(script)
    quick.ps = ps if kind.startswith(("parameter server", "coordinator")) else 0
    quick.chief = int(kind == "coordinator")
    workers -= workers > 1 and quick.chief  # there are as many tasks
    codes, output = quick.run(folder / script.name, folder / "run", *flags, workers=workers)
    assert not any(codes), output
    return folder / "run"


# The test ----------------------------------------------------------------------------------------


def by_numpy(directory):
    """{"test_loss", "test_accuracy"} in NumPy, of the last checkpoint, on the last 360 digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    last = np.random.RandomState(0).permutation(len(x))[-360:]
    h, y = x[last] / 16, y[last]
    w = export.saved_values(support.newest_checkpoint(directory), SHAPES)["w"]
    for k in range(0, len(w), 2):
        h = np.maximum(h, 0) if k else h
        h = h @ w[k].astype(float) + w[k + 1]
    log_p = h - np.log(np.exp(h).sum(1, keepdims=True))
    of_rows = -log_p[np.arange(len(y)), y]
    return {"test_loss": of_rows.mean(), "test_accuracy": (h.argmax(1) == y).mean()}


def check_tests(directory):
    """The named comparisons of numbers that a mistake must fail."""
    result, due = summary.summarize([directory]), by_numpy(directory)
    apart = {name: abs(result[name] - due[name]) for name in due}
    wrong = ["%s: %g apart" % each for each in apart.items() if not each[1] < 2e-6]
    assert not wrong, "\n".join(wrong)


# One with each form of the region that tests.
TESTED = ["HogWild", "Collective-AllReduce", "Model-Parallelism", "Parameter-Server-Strategy"]


@pytest.mark.parametrize("folder", TESTED)
def test_the_metrics_are_those_of_the_last_checkpoint(folder, quick, tmp_path):
    check_tests(run(quick, tmp_path, support.main_script(folder), [], "--steps", "60"))


TEST_MISTAKES = {
    "training rows are tested": [("local_state, x_test, y_test)", "local_state, x, y)")],
    "the second best counts, too": [
        (
            'METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}',
            'METRICS = {"accuracy": ("max", lambda y, p: '
            "keras.metrics.sparse_top_k_categorical_accuracy(y, p, k=2))}",
        )
    ],
}


@pytest.mark.long
@pytest.mark.parametrize(
    "folder, name, changes",
    [
        ("HogWild", "test_loss", TEST_MISTAKES["training rows are tested"]),
        ("HogWild", "test_accuracy", TEST_MISTAKES["the second best counts, too"]),
        ("Model-Parallelism", "test_accuracy", TEST_MISTAKES["the second best counts, too"]),
        (
            "Model-Parallelism",
            "test_loss",
            [("stages, places, x_test, y_test)", "stages, places, x, y)")],
        ),
    ],
)
def test_a_wrong_test_is_caught(folder, name, changes, quick, tmp_path):
    directory = run(quick, tmp_path, support.main_script(folder), changes, "--steps", "60")
    with pytest.raises(AssertionError, match="(?m)^ *%s: " % name):
        check_tests(directory)


def check_rows(text=None):
    """No row of the test is one of training."""
    data = support.load(support.main_script("HogWild"), text).load_data("digits")
    rows = {row.tobytes() for row in data.x_train}
    shared = sum(row.tobytes() in rows for row in data.x_test)
    assert shared == 0 and len(data.x_test) == 360, "%d rows are in both" % shared


def test_no_row_of_the_test_is_trained_on():
    check_rows()
    text = support.replaced(
        support.main_script("HogWild"),
        [("x[:-360], y[:-360], x[-360:], y[-360:]", "x[:-300], y[:-300], x[-360:], y[-360:]")],
    )
    with pytest.raises(AssertionError, match="^60 rows are in both"):
        check_rows(text)


# Word vectors. In this text no word is frequent, so that none is dropped: the pairs are known.
WORDS = [
    "".join(letters) for letters in itertools.product("abcdefghij", "klmnopqrst", "uvwxyzabcdef")
]
ORDER = np.random.RandomState(0).permutation(3 * WORDS)  # each three times
PARAGRAPHS = [list(map(str, ORDER[i : i + 90])) for i in range(0, 3600, 90)]


def check_pairs(folder, text=None):
    """Every pair of words at most five apart, of each tenth paragraph in the test."""
    (folder / "text.txt").write_text("\n\n".join(" ".join(words) for words in PARAGRAPHS))
    script = support.load(support.main_script("Sparse-Embeddings"), text)
    data = script.load_data(str(folder / "text.txt"))
    assert set(data.vocabulary) == set(WORDS)
    due = collections.Counter(), collections.Counter()
    for p, words in enumerate(PARAGRAPHS):
        for i, word in enumerate(words):
            for j in range(max(0, i - 5), min(len(words), i + 6)):
                due[p % 10 == 9][word, words[j]] += i != j
    found = [
        collections.Counter((data.vocabulary[a], data.vocabulary[b]) for a, b in pairs)
        for pairs in (data.train, data.test)
    ]
    apart = {
        name: sum(((a - +b) + (+b - a)).values())
        for name, a, b in zip(["training", "test"], found, due)
    }
    wrong = ["%s: %d pairs differ" % each for each in apart.items() if each[1]]
    assert not wrong, "\n".join(wrong)


def test_the_pairs_of_words(tmp_path):
    check_pairs(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "name, change",
    [
        ("training", ("pairs[paragraph % 10 == 9].extend(", "pairs[0].extend(")),
        ("test", ("words[place + 1 : place + 1 + WINDOW]", "words[place : place + 1 + WINDOW]")),
    ],
    ids=["test pairs in training", "a word is its own neighbour"],
)
def test_a_wrong_pair_is_caught(name, change, tmp_path):
    if name == "training":  # both: a list of the test alone would be empty
        change = (
            change[0],
            "(pairs[0].extend if paragraph % 20 == 19 else pairs[paragraph % 10 == 9].extend)(",
        )
    text = support.replaced(support.main_script("Sparse-Embeddings"), [change])
    with pytest.raises(AssertionError, match="(?m)^ *%s: " % name):
        check_pairs(tmp_path, text)


# The end -----------------------------------------------------------------------------------------

ASYNCHRONOUS = ["HogWild", "DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "DynSGD", "AEASGD", "AEAMSGD"]


def first_in_core(folders):
    """Parameters of a test: the first in the core tier, the others only in `all`."""
    return [folders[0], *(pytest.param(folder, marks=pytest.mark.long) for folder in folders[1:])]


def check_the_last_push(folder, changes=()):
    """After the last of --steps a call moves nothing."""
    script = support.main_script(folder)
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    flags = {**command_line({}), "--steps": 3}
    text = support.replaced(script, changes)
    with interleaved.Workers(script, 1, flags, data, text) as workers:
        tickets = [workers.workers[0].push()[1] for _ in range(3)]
        before = workers.values()["parameters"]
        with pytest.raises(workers.workers[0].tf.errors.OutOfRangeError):
            workers.workers[0].push()
        after = workers.values()["parameters"]
    moved = max(np.abs(a - b).max() for a, b in zip(before, after))
    assert tickets == [0, 1, 2] and moved == 0, "w moved by %g after the last update" % moved


@pytest.mark.parametrize("folder", first_in_core(ASYNCHRONOUS))
def test_no_push_after_the_last(folder):
    check_the_last_push(folder)


@pytest.mark.long
def test_a_push_without_a_ticket_is_caught():
    change = (
        "    with tf.control_dependencies([ticket]):\n",
        "    with tf.control_dependencies([]):\n",
    )
    with pytest.raises(AssertionError, match="w moved by"):
        check_the_last_push("HogWild", [change])


def check_calls(directory):
    """25 updates of each worker, no more."""
    found = summary.read_all([directory]).values()
    made = [[*each.columns["global_step"][each.pushes]] for each in found]
    assert made == [[*range(1, 26)]] * 2, "updates: %s" % [each[-1] for each in made]


@pytest.mark.parametrize("folder", ["Collective-AllReduce", "Ring-AllReduce"])
def test_calls_of_ten_make_twenty_five_steps(folder, quick, tmp_path):
    check_calls(run(quick, tmp_path, support.main_script(folder), [], "--steps", "25"))


@pytest.mark.long
def test_calls_that_overshoot_are_caught(quick, tmp_path):
    change = ("min(flags.steps - metrics.step, flags.steps_per_call)", "flags.steps_per_call")
    script = support.main_script("Ring-AllReduce")
    directory = run(quick, tmp_path, script, [change], "--steps", "25")
    with pytest.raises(AssertionError, match="^updates: .*30"):
        check_calls(directory)


# Worker 1 is slow between its ticket and its push, and notes the last w that it has seen.
SLOW = [
    (
        "    with tf.control_dependencies([ticket]):\n",
        "    def late(ticket):\n"
        '        time.sleep(json.loads(os.environ["TF_CONFIG"])["task"]["index"])\n'
        "        return ticket\n"
        "    with tf.control_dependencies([tf.numpy_function(late, [ticket], tf.int64)]):\n",
    ),
    (
        "            session.run([barrier.arrive for barrier in done])\n",
        "            if not cluster.is_chief:\n"
        "                last = session.run(tf.global_variables('w/'))\n"
        "                path = os.path.join(metrics.directory, 'last.npy')\n"
        "                np.save(path, np.concatenate(last))\n"
        "            session.run([barrier.arrive for barrier in done])\n",
    ),
]


def check_the_last_checkpoint(directory):
    """It holds the push that came last."""
    last = np.load(directory / "last.npy")
    w = export.saved_values(support.newest_checkpoint(directory), SHAPES)["w"]
    apart = np.abs(interleaved.flat(w) - last).max()
    assert apart == 0, "w: %g apart" % apart
    check_tests(directory)


def test_the_chief_tests_and_saves_after_the_last_push(quick, tmp_path):
    script = support.main_script("HogWild")
    check_the_last_checkpoint(run(quick, tmp_path, script, SLOW, "--steps", "200"))


@pytest.mark.long
def test_a_chief_that_does_not_wait_is_caught(quick, tmp_path):
    script = support.main_script("HogWild")
    change = ("                done[0].wait(session, n - 1)\n", "")
    directory = run(quick, tmp_path, script, [*SLOW, change], "--steps", "200")
    with pytest.raises(AssertionError, match="(?m)^ *(w|test_loss): "):
        check_the_last_checkpoint(directory)


# Checkpoints -------------------------------------------------------------------------------------


def check_going_on(quick, folder, before, after, changes=()):
    """A run that goes on with another number of ps begins with the w of its last checkpoint.

    The second part's rate is too small to move w.
    """
    script, found = support.main_script("HogWild"), []
    for ps, flags in (before, ["20"]), (after, ["30", "--learning-rate", "1e-30"]):
        directory = run(quick, folder, script, changes, "--steps", *flags, workers=1, ps=ps)
        found.append(support.newest_checkpoint(directory))
    assert [path.rpartition("-")[2] for path in found] == ["20", "30"]
    first, last = (interleaved.flat(export.saved_values(path, SHAPES)["w"]) for path in found)
    apart = np.abs(first - last).max()
    assert apart < 1e-20, "w: %g apart" % apart


@pytest.mark.parametrize(
    "before, after", [(1, 2), pytest.param(2, 1, marks=pytest.mark.long)], ids=["1 2", "2 1"]
)
def test_a_run_goes_on_with_another_number_of_ps(before, after, quick, tmp_path):
    check_going_on(quick, tmp_path, before, after)


@pytest.mark.long
def test_a_run_that_restores_nothing_but_the_step_is_caught(quick, tmp_path):
    change = (
        "            saver.restore(session, checkpoint)\n",
        "            session.run(tf.global_variables_initializer())\n"
        "            tf.train.get_global_step().load(int(checkpoint.split('-')[-1]), session)\n",
    )
    with pytest.raises(AssertionError, match="^w: "):
        check_going_on(quick, tmp_path, 1, 2, [change])


def with_layers(*names):
    """The change of the model to two hidden layers of the same size, with these names."""
    text = support.main_script("HogWild").read_text()
    begin, end = (
        text.index("            keras.layers.Dense(128,"),
        text.index("keras.layers.Dense(int"),
    )
    hidden = ['            keras.layers.Dense(64, "relu", name="%s"),\n' % name for name in names]
    return text[begin:end], "".join(hidden) + 12 * " "


def begin_again(quick, folder, directory, layers):
    """What a chief without a ps says at last when it finds that run, with a model of its own."""
    changes = [("REQUIRED_WAIT_SECONDS = 120", "REQUIRED_WAIT_SECONDS = 1"), with_layers(*layers)]
    script = support.main_script("HogWild")
    (folder / script.name).write_text(support.replaced(script, changes))
    tasks = {"ps": ["127.0.0.1:9"], "worker": ["127.0.0.1:0"]}
    config = json.dumps({"cluster": tasks, "task": {"type": "worker", "index": 0}})
    env = {"TF_CONFIG": config, "OUTPUT_DIR": str(directory)}
    return quick.zygotes[0].run(script.name, [], folder, **env).stderr.splitlines()[-1]


def test_a_checkpoint_of_another_model_is_refused(quick, tmp_path):
    """Two layers of equal size in another order, and flags.json of before it had the variables."""
    script, layers = support.main_script("HogWild"), ["one", "two"]
    directory = run(quick, tmp_path, script, [with_layers(*layers)], "--steps", "5", workers=1)
    refused = "ValueError: %s has a checkpoint of another model" % directory
    assert "no ps answered" in begin_again(quick, tmp_path, directory, layers)
    assert begin_again(quick, tmp_path, directory, ["two", "one"]) == refused
    assert "no ps answered" in begin_again(quick, tmp_path, directory, layers)
    path = directory / "flags.json"
    facts = json.loads(path.read_text())
    assert facts.pop("variables")[0] == ["sequential/one/kernel", [64, 64]]
    path.write_text(json.dumps(facts))
    assert begin_again(quick, tmp_path, directory, layers) == refused


# Staleness ---------------------------------------------------------------------------------------


def against_another(folder, changes=(), calls=60, seconds=0):
    """One worker's calls, while another one counts in w and in the step, as fast as it can.

    In w it counts in the last number, a bias.

    Returns for each call (version, the number that the pulled w holds, staleness, how often the
    other one has counted meanwhile). `seconds`: how long a gradient takes at least.
    """
    script = support.main_script(folder)
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    flags = {**command_line({}), "--steps": 10**8, "--learning-rate": 1e-30}
    if '"local-steps"' in script.read_text():
        flags["--local-steps"] = 1
    text, found = support.replaced(script, changes), []
    if seconds:
        text = text.replace(
            "    def gradient(w, number):\n",
            "    def gradient(w, number):\n"
            "        wait = lambda x: (time.sleep(%g), x)[1]\n"
            "        number = tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])\n"
            % seconds,
            1,
        )
    with interleaved.Workers(script, 2, flags, data, text) as (worker, other):
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
                meanwhile = int(other.session.run(step)) - before
                found.append((int(version), int(round(w[-1])), int(ticket - version), meanwhile))
        finally:
            over.set()
            thread.join()
    return np.array(found)


def check_the_version(folder, changes=()):
    """The other one counts in w first, so that w is never behind a version that was noted before.

    The worker's own pushes count in the step, too.
    """
    found = against_another(folder, changes)
    behind = found[:, 0] - np.arange(len(found)) - found[:, 1]
    assert behind.max() <= 0, "pulled: %d updates behind the version" % behind.max()


# DynSGD notes the version and pulls under one lock, which the other one here does not take.
@pytest.mark.parametrize(
    "folder", first_in_core([name for name in ASYNCHRONOUS if name != "DynSGD"])
)
def test_the_version_is_noted_before_the_pull(folder):
    check_the_version(folder)


@pytest.mark.long
def test_a_version_noted_after_the_pull_is_caught():
    change = (
        "    with tf.device(step.device):\n        version = step.read_value()\n"
        "    with tf.control_dependencies([version]):\n"
        "        w_k = [v.read_value() for v in w]\n",
        "    w_k = [v.read_value() for v in w]\n"
        "    with tf.control_dependencies(w_k), tf.device(step.device):\n"
        "        version = step.read_value()\n",
    )
    with pytest.raises(AssertionError, match="pulled: "):
        check_the_version("HogWild", [change])


def check_the_ticket(folder, changes=()):
    """The other one's updates during a slow gradient are in the staleness."""
    found = against_another(folder, changes, calls=4, seconds=0.4)[1:]
    counted, meanwhile = found[:, 2].sum(), found[:, 3].sum()
    assert counted > 0.5 * meanwhile > 10, "staleness: %d of %d updates" % (counted, meanwhile)


# With elastic averaging no gradient lies between the pull and the push.
@pytest.mark.parametrize(
    "folder", first_in_core([name for name in ASYNCHRONOUS if name[:2] != "AE"])
)
def test_the_ticket_is_taken_after_the_gradient(folder):
    check_the_ticket(folder)


@pytest.mark.long
def test_a_ticket_taken_at_the_pull_is_caught():
    change = (
        "    with tf.control_dependencies(delta):\n",
        "    with tf.control_dependencies(w_k):\n",
    )
    with pytest.raises(AssertionError, match="staleness: "):
        check_the_ticket("HogWild", [change])


# The columns -------------------------------------------------------------------------------------


def rows_of(directory, task="worker-0"):
    """{column: array} of the pushes of one task."""
    each = summary.read(directory / ("metrics-%s.csv" % task))
    return {name: values[each.pushes] for name, values in each.columns.items()}


def check_losses(directory):
    """The loss of an update is that of its mini-batch at the w of the checkpoint before it."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    first = np.random.RandomState(0).permutation(len(x))[:-360]
    x, y, found = x[first] / 16, y[first], rows_of(directory)
    apart = []
    for step in range(4, 8):
        w = export.saved_values(str(directory / ("model.ckpt-%d" % step)), SHAPES)["w"]
        rows = draw(0, step, BATCH, len(x))
        loss, _ = references.perceptron([v.astype(float) for v in w], x[rows], y[rows])
        (reported,) = found["loss"][found["global_step"] == step + 1]
        apart.append(abs(loss - reported))
    assert max(apart) < 1e-5, "losses: %g apart" % max(apart)


ONE_BY_ONE = ["--steps", "8", "--checkpoint-steps", "1", "--batch-size", str(BATCH)]
ONE_BY_ONE += ["--seed", str(SEED)]


def test_the_losses_are_those_of_the_mini_batches(quick, tmp_path):
    script = support.main_script("HogWild")
    check_losses(run(quick, tmp_path, script, [], *ONE_BY_ONE, workers=1))


@pytest.mark.long
def test_a_loss_of_something_else_is_caught(quick, tmp_path):
    script = support.main_script("HogWild")
    change = ("        update.loss,\n", "        0.9 * update.loss,\n")
    directory = run(quick, tmp_path, script, [change], *ONE_BY_ONE, workers=1)
    with pytest.raises(AssertionError, match="^losses: "):
        check_losses(directory)


# Each mini-batch that is drawn is noted in a file.
DRAWN = [
    (
        " 0, x.shape[0], tf.int32)\n",
        " 0, x.shape[0], tf.int32)\n"
        "        def note(rows):\n"
        '            with open(os.environ["OUTPUT_DIR"] + "/drawn.txt", "a") as file:\n'
        '                file.write("%d\\n" % len(rows))\n'
        "            return rows\n"
        "        rows = tf.ensure_shape(tf.numpy_function(note, [rows], tf.int32), rows.shape)\n",
    )
]
COUNTED = [("DOWNPOUR-Easy", ["--local-steps", "3"]), ("Multiple-GPUs-Single-Machine", [])]


def check_examples(directory):
    """The examples of all updates are those of all mini-batches, less a last call that is void."""
    drawn = np.loadtxt(directory / "drawn.txt")
    found = rows_of(directory)["examples"]
    apart = drawn.sum() - found.sum()
    assert 0 <= apart <= found[0], "examples: %d drawn, %d reported" % (drawn.sum(), found.sum())


@pytest.mark.parametrize("folder, flags", COUNTED, ids=[folder for folder, _ in COUNTED])
def test_the_examples_are_those_drawn(folder, flags, quick, tmp_path):
    flags = ["--steps", "12", "--batch-size", "8", *flags]
    check_examples(run(quick, tmp_path, support.main_script(folder), DRAWN, *flags, workers=1))


@pytest.mark.long
@pytest.mark.parametrize(
    "number, old, new",
    [(0, "local_steps * flags", "flags"), (1, " * batches_per_update", "")],
    ids=["local steps", "towers"],
)
def test_examples_that_are_not_counted_are_caught(number, old, new, quick, tmp_path):
    folder, flags = COUNTED[number]
    whole = "        local_steps * flags.batch_size * batches_per_update,\n"
    change = (whole, whole.replace(old, new))
    flags = ["--steps", "12", "--batch-size", "8", *flags]
    script = support.main_script(folder)
    directory = run(quick, tmp_path, script, [*DRAWN, change], *flags, workers=1)
    with pytest.raises(AssertionError, match="^examples: "):
        check_examples(directory)


def check_times(quick, folder, changes=()):
    """Where a push or a gradient takes 0.2 s longer, the wait or the rest of the update does."""
    script, times = support.main_script("HogWild"), {}
    text = (
        "    def late(x):\n"
        "        time.sleep(0.2)\n"
        "        return x\n"
        "    with tf.control_dependencies([tf.numpy_function(late, [%s], %s)]):\n"
    )
    g = "    loss, g = gradient(w_k, version)\n"
    places = {
        "push": (
            "    with tf.control_dependencies([ticket]):\n",
            text % ("ticket", "tf.int64"),
        ),
        "gradient": (
            g,
            g + text % ("loss", "tf.float32") + "        g = [tf.identity(d) for d in g]\n",
        ),
    }
    for slow, change in places.items():
        directory = run(quick, folder / slow, script, [change, *changes], "--steps", "6", workers=1)
        found = rows_of(directory)
        wait = found["wait_seconds"][1:].mean()
        rest = (found["push_time"] - found["pull_time"])[1:].mean() - wait
        times[slow] = wait, rest
    wrong = []
    if not times["push"][0] > 0.2 > 0.1 > times["push"][1]:
        wrong.append("a slow push: waits %.3f s, the rest %.3f s" % times["push"])
    if not times["gradient"][1] > 0.2 > 0.1 > times["gradient"][0]:
        wrong.append("a slow gradient: waits %.3f s, the rest %.3f s" % times["gradient"])
    assert not wrong, "\n".join(wrong)


def test_the_wait_is_that_of_the_push(quick, tmp_path):
    check_times(quick, tmp_path)


@pytest.mark.long
def test_a_wait_that_begins_at_the_pull_is_caught(quick, tmp_path):
    with pytest.raises(AssertionError, match="a slow gradient: "):
        check_times(quick, tmp_path, [("        pushed - ready,\n", "        pushed - pulled,\n")])


# Flags -------------------------------------------------------------------------------------------


def first_of(quick, folder, script, seed, changes):
    """(the parameters after an update, the loss of the first) with that seed."""
    directory = run(
        quick, folder / str(seed), script, changes, "--steps", "1", "--seed", str(seed), workers=1
    )
    w = export.saved_values(support.newest_checkpoint(directory), SHAPES)["w"]
    return w[0], rows_of(directory)["loss"][0]


def check_seeds(quick, folder, script, changes=()):
    """Another seed, other parameters; one update moves none of them as far."""
    (a, loss_a), (b, loss_b) = (first_of(quick, folder, script, s, changes) for s in (1, 2))
    apart = np.abs(a - b).max()
    assert apart > 0.1 and loss_a != loss_b, "parameters: %g apart, losses %g, %g" % (
        *(apart, loss_a, loss_b),
    )


@pytest.mark.parametrize("folder", ["HogWild", "Ring-AllReduce", "Non-Distributed-Setup"])
def test_a_seed_changes_the_first_parameters(folder, quick, tmp_path):
    check_seeds(quick, tmp_path, support.main_script(folder))


@pytest.mark.long
def test_a_seed_that_changes_nothing_is_caught(quick, tmp_path):
    change = ("keras.utils.set_random_seed(flags.seed)", "keras.utils.set_random_seed(0)")
    with pytest.raises(AssertionError, match="^parameters: "):
        check_seeds(quick, tmp_path, support.main_script("HogWild"), [change])


def check_batches(changes=()):
    """At the same w another seed has another mini-batch, and the same seed the same."""
    script = support.main_script("HogWild")
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    losses, held = [], None
    for seed in 1, 2, 1:
        flags, text = {**command_line({}), "--seed": seed}, support.replaced(script, changes)
        with interleaved.Workers(script, 1, flags, data, text) as (worker, *_):
            tensors = worker.update.pulled
            held = held or worker.session.run(tensors)
            losses.append(worker.push(dict(zip(tensors, held)))[0])
    assert losses[0] == losses[2] and abs(losses[0] - losses[1]) > 1e-4, "losses: %s" % losses


def test_a_seed_changes_the_batches():
    check_batches()
    with pytest.raises(AssertionError, match="^losses: "):
        check_batches([("flags.seed * 65536 + rank", "rank")])
