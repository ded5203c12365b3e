"""Embedding layers whose tables lie on two ps, by rows, against NumPy with whole tables.

The other tests of equations have w alone. Here a model has two tables behind it: one layer is
called twice, the other one is in a nested model, and masks a row. They catch rows that are not
those of an id, that move twice, never, or by another equation than w.
"""

import pathlib
import re
import types

import equations
import in_process
import interleaved
import numpy as np
import problem
import pytest
import support
import tensorflow as tf
import test_equations
import test_own_optimizer
from lab import examples
from tfrun import problems
from tfrun.problems import adapted_tables
from tfrun.runs import metrics_csv, models

USERS, ITEMS = 11, 7
MODEL = f"""def make_model(data):
    first = keras.initializers.RandomNormal(stddev=0.5)
    x = keras.Input([4], dtype="int32")
    user = keras.layers.Embedding({USERS}, 2, first, name="user")
    words = keras.Input([2], dtype="int32")
    item = keras.layers.Embedding({ITEMS}, 3, first, mask_zero=True, name="item")(words)
    nested = keras.Model(words, keras.layers.GlobalAveragePooling1D()(item))
    h = keras.layers.Concatenate()([user(x[:, 0]), user(x[:, 1]), nested(x[:, 2:])])
    return keras.Model(x, keras.layers.Dense(3)(h))


"""
ADAPTED = """from tfrun.problems import adapted_optimizer, adapted_tables


class Own:
    TABLES = {"user": 11, "item": 7}


# own
tables = adapted_tables.adapt_tables(globals(), Own, 2)
make_plain_model = make_model


def make_model(data):
    with tables.of_a_model():
        return make_plain_model(data)


if hasattr(Own, "make_optimizer"):
    server = adapted_optimizer.server_with(Own.make_optimizer, server)
if "steps_together" in globals():
    if hasattr(Own, "make_optimizer"):
        steps_together = adapted_optimizer.counted(steps_together)
    steps_together = adapted_tables.together_with(steps_together)


"""
STEPS = 12


def data():
    """Returns 41 examples: two users, and two items, of which the second may be 0, which is masked.

    The labels are those of the small problem.
    """
    random = np.random.RandomState(2)
    _, y, _, y_test = problem.digits_like()

    def inputs(rows):
        users, first = random.randint(0, USERS, [rows, 2]), random.randint(1, ITEMS, [rows, 1])
        return np.concatenate([users, first, random.randint(0, ITEMS, [rows, 1])], 1).astype(
            np.int32
        )

    return in_process.Data(inputs(len(y)), y, inputs(len(y_test)), y_test)


def gradient_of(w, x, y):
    """Returns (loss, gradients) of [kernel, bias, items, users], means over the rows x, y."""
    kernel, bias, items, users = w
    seen = x[:, 2:] != 0  # the mean of the items that are not masked
    share = seen / seen.sum(1, keepdims=True)
    mean = np.einsum("ri,rid->rd", share, items[x[:, 2:]])
    h = np.concatenate([users[x[:, 0]], users[x[:, 1]], mean], 1)
    z = h @ kernel + bias
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    p[rows, y] -= 1
    g = p / len(y)
    g_h, g_users, g_items = g @ kernel.T, np.zeros_like(users), np.zeros_like(items)
    np.add.at(g_users, x[:, 0], g_h[:, :2])
    np.add.at(g_users, x[:, 1], g_h[:, 2:4])
    np.add.at(g_items, x[:, 2:], share[:, :, None] * g_h[:, None, 4:])
    return loss, [h.T @ g, g.sum(0), g_items, g_users]


def gradients(n):
    """Returns gradient(k, number, w) on worker k's shard."""
    x, y, *_ = data()

    def gradient(k, number, w):
        rows = problem.draw(k, number, problem.BATCH, len(x[k::n]))
        return gradient_of(w, x[k::n][rows], y[k::n][rows])

    return gradient


def pulls_rows_late(base):
    """Returns a reference whose workers pull w as `base` does, but rows when an update begins."""

    class Reference(base):
        def push(self, k):
            version, (kernel, bias, *_) = self.pulled[k]
            self.pulled[k] = version, [kernel, bias, *self.copy()[2:]]
            return super().push(k)

    return Reference


def text_of(script, optimizer=None):
    """Returns the text of a script with the model, its tables on the ps, and an optimizer."""
    text = script.read_text()
    start, end = text.index("def make_model("), text.index("def loss(y, outputs):")
    text = text[:start] + MODEL + text[end:]
    main = 'if __name__ == "__main__":\n'
    assert text.count(main) == 1
    own = f"Own.make_optimizer = lambda: {optimizer.TEXT}\n" if optimizer else ""
    return text.replace(main, ADAPTED.replace("# own\n", own) + main)


def compare(script, optimizer=None):
    """Asserts that the script moves w and the tables, on two ps, as NumPy does."""
    file = equations.of(script)
    n, reference = file.WORKERS, pulls_rows_late(file.REFERENCE)
    if optimizer:
        reference = with_slots(test_own_optimizer.for_all(reference, optimizer))
    flags, text = problem.command_line(file.FLAGS), text_of(script, optimizer)
    with in_process.workers(script, n, flags, data(), text, ps=2) as workers:
        kernel, bias, *tables = workers.parameters()  # behind a table come its slots
        w = [kernel, bias, *tables[:: len(tables) // 2]]
        assert [v.shape for v in w] == [(7, 3), (3,), (ITEMS, 3), (USERS, 2)]
        expected = reference(w, n, gradients(n), problem.LR, **file.FLAGS)
        if script not in equations.compared(equations.TOGETHER):
            schedule = interleaved.SCHEDULE if n == 2 else test_equations.IN_TURN
            return interleaved.compare_pushes(workers, expected, schedule)
        first, pushes, due = workers.values(), [], []
        for step in range(STEPS):
            pushes.extend(workers.joint_step())
            due.extend((loss, step, 0) for loss in expected.joint_step(range(n)))
        interleaved.check(first, workers.values(), expected.values(), pushes, due)


def scripts():
    """Returns the scripts that can have tables on their ps."""
    known = [
        path
        for kind in (equations.INTERLEAVED, equations.TOGETHER)
        for path in equations.compared(kind)
    ]
    there = [path for path in known if "\nTABLES_BY_ROWS = True" in path.read_text()]
    assert len(there) == 8
    return [
        pytest.param(path, id=path.stem, marks=[] if path.stem in CORE else pytest.mark.long)
        for path in there
    ]


CORE = ["hogwild", "synchronous_sgd"]


@pytest.mark.parametrize("script", scripts())
def test_rows_move_as_w_does(script):
    compare(script)


def test_bytes_are_those_of_all_messages():
    """Catches a count without ids, without the pull of rows, or of rows that travel twice."""
    script, (x, *_), n_tables, ps = examples.main_script("HogWild"), data(), 2, 2
    flags = problem.command_line({})
    with in_process.workers(script, 1, flags, data(), text_of(script), ps=ps) as (worker,):
        version, w = worker.pull()
        _, reply = worker.script.update(worker.ps, version, w, worker.gradient, worker.flags)
    drawn = x[problem.draw(0, 0, problem.BATCH, len(x))]
    users, items = (len(np.unique(drawn[:, columns])) for columns in (slice(0, 2), slice(2, 4)))
    ids = 8 * (users + items + n_tables * ps)  # each message also has the number of each table's
    rows = 4 * (2 * users + 3 * items)
    assert reply.bytes.numpy() == 2 * 4 * (7 * 3 + 3) + 2 * ids + 2 * rows


class LazyAdam(test_own_optimizer.Adam):
    """Adam, but only rows with a gradient move, or change their moments; t counts all updates."""

    TEXT = "keras.optimizers.Adam(0.01, epsilon=0.01)"

    def __call__(self, w, g, t):
        moves = [np.ones_like(v) for v in w[:2]]
        moves += [np.ones_like(d) * (d != 0).any(1, keepdims=True) for d in g[2:]]
        zeros = [np.zeros_like(v) for v in w]
        self.m = [
            m + move * 0.1 * (d - m) for m, d, move in zip(self.m or zeros, g, moves, strict=True)
        ]
        self.v = [v + move * 0.001 * (d * d - v) for v, d, move in zip(self.v or zeros, g, moves)]
        rate = 0.01 * np.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
        return [
            p - move * rate * m / (np.sqrt(v) + 0.01)
            for p, m, v, move in zip(w, self.m, self.v, moves)
        ]

    def slots(self, i):
        return [self.m[i], self.v[i]]


class Adagrad:
    """h <- h + g^2, w <- w - lr * g / sqrt(h + epsilon), as Keras has it; lr falls with t."""

    TEXT = """keras.optimizers.Adagrad(
        keras.optimizers.schedules.InverseTimeDecay(0.05, 4, 1.0), 0.2, epsilon=0.001)"""

    def __init__(self):
        self.h = None

    def __call__(self, w, g, t):
        self.h = [h + d * d for h, d in zip(self.h or [0.2 + 0 * v for v in w], g)]
        rate = 0.05 / (1 + t / 4)
        return [p - rate * d / np.sqrt(h + 0.001) for p, d, h in zip(w, g, self.h)]

    def slots(self, i):
        return [self.h[i]]


def with_slots(base):
    """Returns a reference whose values also have what the optimizer keeps of each table."""

    class Reference(base):
        def values(self):
            kernel, bias, *tables = self.w
            parameters = [kernel, bias]
            for i, table in enumerate(tables, 2):
                parameters += [table, *self.optimizer.slots(i)]
            return {"parameters": parameters}

    return Reference


@pytest.mark.parametrize("optimizer", [LazyAdam, Adagrad])
@pytest.mark.parametrize(
    "name", support.some_in_core(["HogWild", "Synchronous-SGD"], ["Synchronous-SGD"])
)
def test_an_optimizer_moves_the_rows_of_a_step(name, optimizer):
    """Catches slots of another row, rows that decay unasked, and a count of their own updates."""
    compare(examples.main_script(name), optimizer)


HOGWILD, SYNCHRONOUS = "HogWild", "Synchronous-SGD"
MISTAKES = {  # {name: (example, text of the adapter, what replaces it, optimizer)}
    "a row comes from the other ps": (
        HOGWILD,
        "zip(*replies)",
        "zip(*replies[::-1])",
    ),
    "a row is pushed twice": (
        HOGWILD,
        "return self.v.scatter_sub(tf.IndexedSlices(delta, places))",
        "return self.v.scatter_sub(tf.IndexedSlices(2 * delta, places))",
    ),
    "the rows of one worker make a step": (
        SYNCHRONOUS,
        "tf.gather(handle, ranks[i])",
        "tf.gather(handle, 0 * ranks[i])",
    ),
    "unique without its inverse": (
        HOGWILD,
        "tf.gather(self.now.rows[place], where)",
        "tf.gather(self.now.rows[place], tf.sort(where))",
    ),
    "the masked row counts": (
        HOGWILD,
        "layer.call = functools",
        "layer.mask_zero = layer.supports_masking = False\n        layer.call = functools",
    ),
    "the second ps moves no row": (
        HOGWILD,
        "return self.v.scatter_sub(tf.IndexedSlices(delta, places))",
        "return self.v.scatter_sub(tf.IndexedSlices(delta * (1.0 - self.k), places))",
    ),
    "rows are summed, and w is not": (
        SYNCHRONOUS,
        "*[tf.reshape(some, [-1]) for some in rows]], 0))\n",
        "*[N * tf.reshape(some, [-1]) for some in rows]], 0))\n",
    ),
    "of two workers that have a row, one counts": (
        SYNCHRONOUS,
        "tf.math.unsorted_segment_sum",
        "tf.math.unsorted_segment_max",
    ),
    "a slot belongs to another row": (
        HOGWILD,
        "scatter_update(tf.IndexedSlices(value, places))",
        "scatter_update(tf.IndexedSlices(value, places[::-1]))",
        LazyAdam,
    ),
    "rows count updates from one": (
        HOGWILD,
        "count + 1, tf.float32",
        "count, tf.float32",
        LazyAdam,
    ),
    "rows take the rate times the gradient": (HOGWILD, "delta / part.rate", "delta", Adagrad),
    "the rate of rows does not fall": (HOGWILD, "rate = rate(count)", "rate = rate(0)", Adagrad),
}


def compare_mistaken(script, before, after, optimizer=None):
    """Compares a script whose adapter has a mistake: a text of it is replaced by another one."""
    path = pathlib.Path(adapted_tables.__file__)
    with pytest.MonkeyPatch.context() as patch:
        text = examples.replaced(path, [(before, after)])
        patch.setattr(adapted_tables, "Tables", None)  # it must come from the mistaken text
        mistaken = types.ModuleType(adapted_tables.__name__)
        exec(compile(text, str(path), "exec"), mistaken.__dict__)
        patch.setattr(problems, "adapted_tables", mistaken)
        compare(script, optimizer)


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "mistake", support.some_in_core(MISTAKES, list(MISTAKES)[:3]), ids=list(MISTAKES)
)
def test_a_mistake_is_caught(mistake):
    name, *planted = MISTAKES[mistake]
    with support.fails_comparison("parameters"):
        compare_mistaken(examples.main_script(name), *planted)


PROBLEM = f"""import keras
import numpy as np

TABLES = {{"user": {USERS}, "item": {ITEMS}}}


def load_data(name):
    random = np.random.RandomState(2)
    x = random.randint(1, {ITEMS}, [60, 4])
    y = x.sum(1) % 3
    return x[:40], y[:40], x[40:], y[40:]


def make_optimizer():
    return keras.optimizers.Adam(0.01)


class Net(keras.Model):  # whose layers are built when it is first called
    def __init__(self):
        super().__init__()
        self.user = keras.layers.Embedding({USERS}, 2, name="user")
        self.item = keras.layers.Embedding({ITEMS}, 3, mask_zero=True, name="item")
        self.mean, self.dense = keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)

    def call(self, x):
        h = [self.user(x[:, 0]), self.user(x[:, 1]), self.mean(self.item(x[:, 2:]))]
        return self.dense(keras.ops.concatenate(h, 1))


def make_model(data):
    return Net()


def loss(y, outputs):
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


METRICS = {{"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}}
"""


def saved_tables(directory):
    """Returns {name: [rows, columns]} of tables and slots in the newest checkpoint."""
    reader = tf.train.load_checkpoint(support.newest_checkpoint(directory))
    parts = {}
    for name in reader.get_variable_to_shape_map():
        if match := re.fullmatch(r"table_(\w+)_(\d+)_of_(\d+)", name):
            parts.setdefault(match[1], {})[int(match[2])] = reader.get_tensor(name)
    tables = {}
    for name, rows in parts.items():
        tables[name] = np.empty([sum(map(len, rows.values())), rows[0].shape[1]])
        for k, part in rows.items():
            tables[name][k :: len(rows)] = part
    return tables


def compare_numbers_of_ps(tmp_path, changes=()):
    """Asserts that three ps read the tables that two have saved. Returns the run directory."""
    (tmp_path / "mine.py").write_text(PROBLEM)
    directory, script = tmp_path / "run", examples.main_script("HogWild")
    directory.mkdir()
    (copy,) = problems.install_problem(tmp_path / "mine.py", [str(script)], directory)
    adapter = directory / pathlib.Path(adapted_tables.__file__).name
    adapter.write_text(examples.replaced(adapter, changes))
    saved = []
    with support.QuickCluster(ps=2, tasks=4) as quick:
        for quick.ps in 2, 3:
            codes, output = quick.run(pathlib.Path(copy), directory, "--steps", "40", workers=1)
            assert not any(codes), output
            saved.append(saved_tables(directory))
    assert saved[0].keys() == {f"{t}_{v}" for t in ("user", "item") for v in ("rows", "m", "v")}
    interleaved.check_apart(
        {name: ([saved[0][name]], [saved[1][name]]) for name in saved[0]}, 1e-12
    )
    assert all(np.abs(table).max() > 0 for table in saved[0].values())
    return directory


@pytest.mark.long
def test_another_number_of_ps_reads_the_same_tables(tmp_path):
    """So does `tfrun evaluate`. Catches rows or slots that go to another id, or begin anew."""
    directory = compare_numbers_of_ps(tmp_path)
    tables = saved_tables(directory)
    model, data, module, _ = models.trained_model(directory)
    by_layer = {v.path.split("/")[-2]: v.numpy() for v in model.trainable_variables}
    for name in "user", "item":
        assert np.array_equal(by_layer[name], tables[f"{name}_rows"].astype("float32"))
    *_, last = metrics_csv.read(directory / "metrics-worker-0.csv").rows("tests")
    due = models.evaluate(model, data, module)["test_loss"]
    assert abs(float(last["test_loss"]) - due) < 1e-5


@pytest.mark.long
@pytest.mark.plants_mistakes
def test_rows_that_another_ps_takes_for_its_own_are_caught(tmp_path):
    changes = [("self.put(k + n * begin, n, block, v)", "self.put(begin, 1, block, v)")]
    with support.fails_comparison("(user|item)_rows"):
        compare_numbers_of_ps(tmp_path, changes)
