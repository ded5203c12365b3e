"""A tf.data.Dataset of the user's: who reads what, how often, and from where after a restart.

In most tests the elements are the numbers of rows: so a row is seen which comes twice, or never.
"""

import argparse
import json
import sys
import threading

import keras
import numpy as np
import pytest
import support
import tensorflow as tf
from lab import examples
from tfrun import problems
from tfrun.problems import adapted_data

ROWS, SIZE = 101, 8  # a prime: no mini-batch ends with an epoch


def numbers(position, n=1, k=0, buffer=16, batches=60, rows=ROWS, size=SIZE):
    """Returns (the rows of the first mini-batches in order, (epoch, examples read) of each)."""
    position.begin(np.int64(position.first_number))
    keras.utils.set_random_seed(0)  # as a script does
    dataset = tf.data.Dataset.range(rows)
    read = adapted_data.mini_batches(dataset, position, n, k, buffer, 3, size).take(batches)
    taken = [(place, element.numpy()) for place, element in read]
    positions = [tuple(zip(epoch.numpy(), i.numpy())) for (epoch, i), _ in taken]
    return np.concatenate([element for _, element in taken]), positions


def test_each_worker_reads_its_shard_once_an_epoch(tmp_path):
    """Fails where workers share rows, or where an epoch leaves out the rest of its rows."""
    for n in 1, 2, 3:
        shards = []
        for k in range(n):
            rows, _ = numbers(adapted_data.Position(tmp_path / "none"), n, k)
            size = len(range(k, ROWS, n))
            epochs = [rows[i : i + size] for i in range(0, len(rows) - size, size)]
            assert len(epochs) > 2
            assert all(sorted(epoch) == list(range(k, ROWS, n)) for epoch in epochs)
            assert any((a != b).any() for a, b in zip(epochs, epochs[1:])), "one order"
            shards.append(epochs[0])
        assert sorted(np.concatenate(shards)) == list(range(ROWS))


def test_a_buffer_of_one_keeps_the_order(tmp_path):
    rows, _ = numbers(adapted_data.Position(tmp_path / "none"), buffer=0)
    assert rows[:ROWS].tolist() == list(range(ROWS))


@pytest.mark.parametrize("note_at, begins_at", [(0, 5), (17, 17), (17, 30), (40, 47)])
def test_a_restart_goes_on_from_the_last_note(note_at, begins_at, tmp_path):
    """Fails where a restart leaves out rows, or reads more of them again than the note says."""
    path = tmp_path / "position-0.csv"
    rows, positions = numbers(adapted_data.Position(path))
    first = adapted_data.Position(path)
    first.note(np.int64(note_at), *positions[note_at][0])
    later = adapted_data.Position(path)
    later.note(np.int64(begins_at + 1), *positions[begins_at + 1][0])  # of updates that were lost
    again = adapted_data.Position(path)
    again.begin(np.int64(begins_at))
    rest, _ = numbers(again, batches=20)
    assert rest.tolist() == rows[note_at * SIZE :][: len(rest)].tolist()


def test_a_note_that_was_cut_short_does_not_count(tmp_path):
    path = tmp_path / "position-0.csv"
    path.write_text("0,0,0,1,\n5,0,40,1,\n9,1,16,1")
    assert adapted_data.Position(path).last_note(20) == (0, 40)


def test_another_number_of_workers_begins_the_epoch_again(tmp_path):
    """Fails where a restart skips rows that only the worker of another shard has read."""
    path = tmp_path / "position-0.csv"
    path.write_text("0,0,0,3,\n5,2,24,3,\n")
    assert adapted_data.Position(path, 3).last_note(20) == (2, 24)
    assert adapted_data.Position(path, 2).last_note(20) == (2, 0)


def test_notes_come_once_a_second(tmp_path):
    position = adapted_data.Position(tmp_path / "position-0.csv")
    for number in range(100):
        position.note(np.int64(number), np.int64(0), np.int64(8 * number))
    assert position.path.read_text() == "0,0,0,1,\n"
    position.noted -= adapted_data.NOTE_SECONDS
    position.note(np.int64(100), np.int64(7), np.int64(8))
    assert position.path.read_text() == "0,0,0,1,\n100,7,8,1,\n"


def test_nothing_is_read_before_the_first_number(tmp_path):
    """Fails where a restart would read from the beginning, because it does not know better."""
    position = adapted_data.Position(tmp_path / "none")
    read = []
    thread = threading.Thread(target=lambda: read.append(next(position.epochs())), daemon=True)
    thread.start()
    thread.join(0.2)
    assert not read
    position.begin(np.int64(0))
    thread.join(10)
    assert read == [(0, 0)]


DATASETS = """import keras
import numpy as np
import tensorflow as tf

x = np.random.RandomState(0).rand(48, 6).astype("float32")
y = (x.sum(axis=1) > 3).astype("int32")


def load_data(name):
    train = tf.data.Dataset.from_tensor_slices({train})
    return {result}


def make_model(data):
    assert data.x_train.shape[1:] == (6,) and len(data.y_train) == len(data.x_train)
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])


def loss(y, outputs):
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


METRICS = {{"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}}
"""
PLAIN, WEIGHTED = "(x, y)", "(x, y, y + 0.5)"
SCRIPT = examples.main_script("Non-Distributed-Setup")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function of the parts of DATASETS, which returns a script with that problem."""

    def make(train=PLAIN, result="train, train", path=SCRIPT):
        problem = tmp_path / "mine.py"
        problem.write_text(DATASETS.format(train=train, result=result))
        problems.install_problem(problem, [str(path)], tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "run"))
        (tmp_path / "run").mkdir(exist_ok=True)
        return examples.load(tmp_path / path.name)

    yield make
    for name in "adapted_problem", "own_problem", "adapted_data":
        sys.modules.pop(name, None)


def flags(**others):
    return argparse.Namespace(seed=0, batch_size=16, accumulate=1, learning_rate=0.1, **others)


@pytest.mark.parametrize("train, weight", [(PLAIN, 0), (WEIGHTED, 1)])
def test_the_loss_of_a_mini_batch_is_keras_own(train, weight, script):
    """Fails where the weights of examples are left out, or divide the sum, as in a metric."""
    module = script(train, "train, train.take(10)")
    data = module.load_data("")
    model = module.make_model(data)
    assert len(data.x_train) == 48 and len(data.x_test) == 10
    w = tf.concat([tf.reshape(v, [-1]) for v in model.trainable_variables], 0)
    gradient = module.gradients(model, [], data.x_train, data.y_train, flags(), 0)
    for number in range(4):
        actual, g = gradient(w, tf.constant(number, tf.int64))
    (_, rows), *_ = [batch for batch in mini_batches_of(module)][3:4]
    x, y, *weights = rows
    with tf.GradientTape() as tape:
        losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
        due = tf.reduce_mean(losses * (tf.cast(weights[0], "float32") if weight else 1.0))
    due_g = tape.gradient(due, model.trainable_variables)
    assert float(actual) == pytest.approx(float(due), rel=1e-5)
    assert np.allclose(g, tf.concat([tf.reshape(d, [-1]) for d in due_g], 0), atol=1e-6)


def mini_batches_of(module):
    """Returns the first mini-batches that a worker alone reads."""
    adapted = sys.modules["adapted_problem"].adapted
    position = adapted_data.Position(examples.ROOT / "none")
    position.begin(np.int64(0))
    return adapted_data.mini_batches(adapted.dataset, position, 1, 0, 1000, 0, 16).take(5)


def test_accumulated_gradients_are_one_of_all_rows(script):
    """Fails where a sum takes the place of the mean, or where a mini-batch comes twice."""
    module = script()
    data = module.load_data("")
    model = module.make_model(data)
    w = tf.concat([tf.reshape(v, [-1]) for v in model.trainable_variables], 0)
    four = flags()
    four.accumulate, four.batch_size = 4, 32
    one = flags()
    one.batch_size = 32
    in_parts = module.gradients(model, [], data.x_train, data.y_train, four, 0)
    whole = module.gradients(model, [], data.x_train, data.y_train, one, 0)
    for number in range(3):
        parts = tf.function(in_parts)(w, tf.constant(number, tf.int64))
        due = whole(w, tf.constant(number, tf.int64))
        assert float(parts[0]) == pytest.approx(float(due[0]), rel=1e-5)
        assert np.allclose(parts[1], due[1], atol=1e-6)


@pytest.mark.parametrize(
    "train, result, error",
    [
        (PLAIN, "train, train, train", "two datasets, for training and for the test"),
        (PLAIN, "train, (x, y)", "two datasets, for training and for the test"),
        (PLAIN, "train.batch(4), train", "single examples whose shapes are known"),
        (PLAIN, "train, train.repeat()", "the test dataset has no end"),
        (PLAIN, "train.take(0), train", "the training dataset has no element"),
        ("x", "train, train", r"an element must be \(x, y\)"),
    ],
)
def test_what_cannot_be_read_is_refused(train, result, error, script):
    module = script(train, result)
    with pytest.raises(ValueError, match=error):
        module.load_data("")


def test_a_worker_that_joins_reads_all(monkeypatch):
    cluster = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert adapted_data.workers_and_rank(2, {}, None) == (3, 2)
    assert adapted_data.workers_and_rank(3, {}, None) == (1, 0)
    assert adapted_data.workers_and_rank(1, {"find_devices": lambda _: "abcd"}, None) == (4, 1)


def write_images(folder):
    """Writes pictures of two classes, bright and dark ones."""
    random = np.random.RandomState(0)
    for part, count in ("train", 60), ("test", 20):
        for label, least in ("bright", 150), ("dark", 0):
            (folder / part / label).mkdir(parents=True)
            for i in range(count):
                pixels = random.randint(least, least + 100, (28, 28, 3))
                keras.utils.save_img(folder / part / label / f"{i}.png", pixels, scale=False)


def write_records(folder):
    """Writes the digits as Train-and-Evaluate does."""
    script = support.ROOT / "Operations" / "Train-and-Evaluate" / "write_records.py"
    done = support.run_to_end(sys.executable, script, folder, env=support.environment(folder))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "name, write, steps, rate",
    [("images", write_images, 150, 0.01), ("tfrecords", write_records, 400, 0.1)],
)
def test_an_example_learns(name, write, steps, rate, tmp_path):
    """Catches a file of Your-Model/Datasets that cannot read what its first lines describe."""
    write(tmp_path / "data")
    launcher = support.ROOT / "HogWild" / "run.sh"
    flags = ["--dataset", tmp_path / "data", "--steps", steps, "--learning-rate", rate]
    more = {"PROBLEM": str(support.ROOT / "Your-Model" / "Datasets" / f"{name}.py")}
    code, output, _ = support.launch(launcher, tmp_path / "run", *map(str, flags), **more)
    assert code == 0, output
    assert support.result(tmp_path / "run")["test_accuracy"] > 0.9, output
