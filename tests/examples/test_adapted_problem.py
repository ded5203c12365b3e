"""What a problem of one's own may give: each is trained as it is, or refused in a line."""

import json
import re
import sys

import keras
import numpy as np
import pytest
import support
import tensorflow as tf
from lab import examples
from tfrun import problems

SCRIPT = examples.main_script("Non-Distributed-Setup")
X = np.random.RandomState(0).rand(48, 6).astype("float32")
Y = (X.sum(axis=1) > 3).astype("int32")
TEMPLATE = """import keras
import numpy as np


def load_data(name):
    x = np.random.RandomState(0).rand(48, 6).astype("float32")
    y = (x.sum(axis=1) > 3).astype("int32")
    {data}
    return x, y, x, y


def make_model(data):
    {model}


def loss(y, outputs):
    {loss}


METRICS = {{{metrics}}}
"""
DENSE = "return keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])"
ENTROPY = "return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)"
ACCURACY = '"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)'


@pytest.fixture
def adapted(tmp_path, monkeypatch):
    """A function of the parts of a problem, which returns (its module as scripts see it, data)."""

    def make(data="", model=DENSE, loss=ENTROPY, metrics=ACCURACY, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "mine.py"
        path.write_text(TEMPLATE.format(data=data, model=model, loss=loss, metrics=metrics))
        problems.install_problem(path, [str(SCRIPT)], tmp_path)
        module = examples.load(tmp_path / problems.ADAPTER_FILE)
        return module, module.load_data("own")

    yield make
    sys.modules.pop("own_problem", None)
    keras.config.set_dtype_policy("float32")


def in_a_graph(module, data, tested=False):
    """Returns ({what: numbers} as scripts compute them in a graph, the model).

    tested: without the gradient, as of the rows of a test.
    """
    model = module.make_model(data)
    kept = {id(v): np.asarray(v) for v in model.variables}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        get = tf.compat.v1.get_variable
        w = [get(f"w{i}", initializer=kept[id(v)]) for i, v in enumerate(model.trainable_variables)]
        state = [tf.constant(kept[id(v)]) for v in model.non_trainable_variables]
        outputs, _, penalties = model.stateless_call(
            [v.read_value() for v in w],
            state,
            tf.constant(data.x_train),
            training=False,
            return_losses=True,
        )
        y, outputs = tf.constant(data.y_train), tf.identity(outputs)
        loss = tf.add_n([tf.reduce_mean(module.loss(y, outputs)), *penalties])
        ops = {
            name: tf.reduce_mean(function(y, outputs))
            for name, (_, function) in module.METRICS.items()
        }
        session.run(tf.compat.v1.global_variables_initializer())
        ops |= {"loss": loss} if tested else {"loss": loss, "gradient": tf.gradients(loss, w)}
        return session.run(ops), model


def by_keras(own, data, model):
    """Returns the loss, gradient and metrics of the user's functions and data, by Keras alone."""
    model = getattr(model, "own", model)
    with tf.GradientTape() as tape:
        outputs = model(data.x_train, training=False)
        loss = tf.reduce_mean(own.loss(data.y_train, outputs))
        loss = tf.cast(loss, "float32") + sum(model.losses)
    actual = {
        name: tf.reduce_mean(function(data.y_train, outputs))
        for name, (_, function) in own.METRICS.items()
    }
    actual |= {"loss": loss, "gradient": tape.gradient(loss, model.trainable_variables)}
    return keras.tree.map_structure(np.asarray, actual)


TWO = "x = {'a': x[:, :2], 'b': x[:, 2:].astype('int64').reshape(48, 2, 2)}"
TWO_INPUTS = """a, b = keras.Input((2,), name="a"), keras.Input((2, 2), name="b", dtype="int64")
    flat = keras.layers.Flatten()(keras.ops.cast(b, "float32"))
    h = keras.layers.Concatenate()([a, flat])
    return keras.Model({"a": a, "b": b}, keras.layers.Dense(2)(h))"""
IN_A_LIST = TWO_INPUTS.replace('{"a": a, "b": b}', "[a, b]")
TWO_OUTPUTS = """x = keras.Input((6,))
    return keras.Model(x, {"kind": keras.layers.Dense(2)(x), "size": keras.layers.Dense(1)(x)})"""
TWO_LOSSES = """entropy = keras.losses.sparse_categorical_crossentropy
    kind = entropy(y["kind"], outputs["kind"], from_logits=True)
    return kind + 0.5 * keras.losses.mean_squared_error(y["size"], outputs["size"])"""
SIZE = '"size": ("min", lambda y, out: keras.losses.mean_absolute_error(y["size"], out["size"]))'
TARGETS = "y = {'kind': y, 'size': x[:, :1] * 3}"
WEIGHTED = "return y[1] * " + ENTROPY.removeprefix("return ").replace("(y,", "(y[0],")
OWN_CLASS = """class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.last = keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)

        def call(self, x):
            return self.last(self.hidden(x))

    model = Own()
    {more}
    return model"""
ADAPTED = """norm = keras.layers.Normalization()
    norm.adapt(data.x_train)
    return keras.Sequential([keras.Input((6,)), norm, keras.layers.Dense(2)])"""
HALF = """keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        penalty = keras.regularizers.L2(0.1)
        return keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(2, kernel_regularizer=penalty)]
        )
    finally:
        keras.config.set_dtype_policy("float32")"""
ROWS_OF_A_TABLE = """keras.config.set_dtype_policy("mixed_bfloat16")
    a, b = keras.Input((2,), name="a"), keras.Input((4,), name="b", dtype="int64")
    table = keras.layers.Dense(3, kernel_initializer=keras.initializers.RandomNormal(stddev=1))
    h = keras.layers.Flatten()(table(keras.ops.one_hot(b, 3000)))
    return keras.Model({"a": a, "b": b}, keras.layers.Dense(2)(keras.ops.append(a, h, 1)))"""
TRAINS = {
    "arrays": {},
    "inputs in a dict": {"data": TWO, "model": TWO_INPUTS},
    "inputs in a list": {"data": TWO + "\n    x = [x['a'], x['b']]", "model": IN_A_LIST},
    "outputs and targets in dicts": {
        "data": TARGETS,
        "model": TWO_OUTPUTS,
        "loss": TWO_LOSSES,
        "metrics": SIZE,
    },
    "a weight for each row": {
        "data": "y = (y, np.linspace(0.5, 2, 48))",
        "loss": WEIGHTED,
        "metrics": "",
    },
    "no Input": {"model": "return keras.Sequential([keras.layers.Dense(2)])"},
    "a class of models": {"model": OWN_CLASS.format(more="")},
    "a class of models, built": {"model": OWN_CLASS.format(more="model.build((None, 6))")},
    "an adapted layer": {"model": ADAPTED},
    "half precision and a penalty": {"model": HALF},
    "half precision beside large numbers": {
        "data": "x = {'a': x[:, :2], 'b': (3000 * x[:, 2:]).astype('int64')}",
        "model": ROWS_OF_A_TABLE,
    },
    "the other byte order": {"data": "x, y = x.astype('>f4'), y.astype('>i8')"},
    "lists": {"data": "x, y = x.tolist(), y.tolist()"},
    "a tensor": {"data": "x = keras.ops.convert_to_tensor(x)"},
    "a sparse matrix": {"data": "import scipy.sparse\n    x = scipy.sparse.csr_matrix(x)"},
    "a table": {
        "data": "x = type('Frame', (), {'to_numpy': lambda self, x=x: x})()",
    },
    "columns of several kinds": {"data": "x = x.astype(object); x[:, 0] = x[:, 0] > 0.5"},
    "images of bytes": {"data": "x = (255 * x).astype('uint8')"},
}


@pytest.mark.parametrize("parts", TRAINS.values(), ids=TRAINS)
@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(None, id="whole"),
        pytest.param(10, id="pieces and a rest", marks=pytest.mark.long),
        pytest.param(12, id="pieces", marks=pytest.mark.long),
    ],
)
def test_it_is_trained_as_it_is(parts, piece, adapted, monkeypatch):
    """The loss, its gradient and the metrics of the adapted model are those of one's own."""
    module, data = adapted(**parts)
    if piece:
        monkeypatch.setattr(module, "LARGE", 0)
        monkeypatch.setattr(module, "PIECE", piece)
    assert all(type(part) is np.ndarray and part.dtype.isnative for part in data)
    actual, model = in_a_graph(module, data, tested=bool(piece))
    expected = by_keras(module.own, data.own, model)
    if piece:
        actual["gradient"] = expected["gradient"]
    close = 2e-2 if "half" in str(parts) or "bfloat16" in str(parts) else 1e-5
    assert actual.keys() == expected.keys()
    for name in actual.keys() - {"gradient"}:
        assert actual[name] == pytest.approx(expected[name], rel=close, abs=close), name
    for g, h in zip(actual["gradient"], expected["gradient"], strict=True):
        np.testing.assert_allclose(g, h, rtol=close, atol=close)


REFUSED = {
    "x_train holds text": {"data": "x = np.array(['a', 'b'] * 24)"},
    r"x_train holds object \(such as 'a'\), not numbers: number": {
        "data": "x = x.astype(object); x[3, 2] = 'a'"
    },
    r"x_train holds object \(such as datetime.date.*: .* and turn dates into numbers of days": {
        "data": "import datetime; x = x.astype(object); x[3, 2] = datetime.date(2026, 1, 1)"
    },
    r"x_train holds object \(such as array\(\[\[0.* 0": {  # which has several lines
        "data": "x = x.astype(object); x[3, 2] = np.zeros((9, 9))"
    },
    "x_train has rows of different lengths": {"data": "x = [[1.0], [1.0, 2.0]] * 24"},
    r"x_train\['a'\] has NaN": {"data": "x = {'a': x * np.nan, 'b': x}"},
    r"y_train\[1\] has NaN .*; a loss that masks gaps needs a number there": {
        "data": "y = (y, x * np.nan)"
    },
    "the layer lstm is stateful": {
        "data": "x = x[:, :, None]",
        "model": "lstm = keras.layers.LSTM(2, stateful=True, name='lstm')\n"
        "    return keras.Sequential([keras.Input(batch_shape=(32, 6, 1)), lstm])",
    },
    "x_train has 47 rows, and y_train has 48": {"data": "x = x[1:]"},
    "x_train has 48 rows for 49 workers": {
        "TF_CONFIG": '{"cluster": {"worker": ["a:1"%s]}}' % (', "a:1"' * 48)
    },
    "x_train has 48 rows for 50 workers": {
        "TF_CONFIG": '{"cluster": {"chief": ["a:1"], "ps": ["a:1"], "worker": ["a:1"%s]}}'
        % (', "a:1"' * 48)
    },
    "x_train has 48 rows for 51 workers": {"HOROVOD_SIZE": "51"},
    "x_train has 0 rows, and y_train has 0: each needs the same": {"data": "return [], [], x, y"},
    "x_test has 47 rows, and y_test has 48": {"data": "return x, y, x[1:], y"},
    r"x_train holds object \(such as None\), not numbers": {"data": "x = None"},
    r"x_train\['b'\]\[1\] holds text": {"data": "x = {'a': x, 'b': [x, np.full((48, 2), 'a')]}"},
    "x_train has rows of different lengths: pad": {"data": "x = [[1.0]] * 65 + [[1.0, 2.0]]"},
    "not 3 parts": {"data": "return x, y, x"},
    "x_train and x_test have other parts": {"data": "return (x, x), y, (x, x[:, :2]), y"},
    "whole numbers above 16777216": {
        "data": "x = {'a': x[:, :2], 'b': np.full((48, 2, 2), 2**25)}",
        "model": TWO_INPUTS,
    },
    "a target has whole numbers above 16777216": {
        "data": "y = {'a': y, 'b': np.full(48, 2**25)}",
        "model": "i = keras.Input((6,))\n    d = keras.layers.Dense(3)(i)\n"
        "    return keras.Model(i, {'a': d, 'b': d})",
    },
    "a target has whole numbers above 16777216, and there": {  # in the test rows alone
        "data": "y = {'a': y, 'b': y}; return x, y, x, {'a': y['a'], 'b': np.full(48, 2**25)}",
    },
    "a target has whole numbers above 16777216, and there are several": {  # a float64
        "data": "y = (y, np.full(48, 1_700_000_001.0))",
    },
    "returns no keras.Model, but str": {"model": "return 'Dense'"},
    "nothing to train": {"model": "return keras.Sequential([keras.Input((6,))])"},
    "looks words up in a table": {
        "model": "layer = keras.layers.IntegerLookup(vocabulary=[1, 2], name='lookup')\n"
        "    return keras.Sequential([layer])"
    },
    "METRICS has 'loss'": {"metrics": '"loss": ("max", keras.metrics.sparse_categorical_accuracy)'},
    "METRICS has 'a,b'": {"metrics": '"a,b": ("max", keras.metrics.sparse_categorical_accuracy)'},
    r"METRICS\['accuracy'\] must be": {"metrics": '"accuracy": len'},
}


@pytest.mark.parametrize("parts, words", [(parts, words) for words, parts in REFUSED.items()])
def test_what_cannot_be_trained_is_refused(parts, words, adapted):
    """By a ValueError of one line, which names the part and the cure."""
    with pytest.raises(ValueError, match=words) as raised:
        module, data = adapted(**parts)
        module.make_model(data)
    assert len(str(raised.value).splitlines()) == 1
    for sentence in filter(re.compile(words).search, SENTENCES):
        assert str(raised.value).startswith(sentence)


COUNTS_ROWS = """global ROWS
    ROWS = []

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(2)

        def call(self, x):
            ROWS.append(x.shape[0])
            return self.last(x)

    return Own()"""


@pytest.mark.parametrize(
    "piece, training, due",
    [(10, False, {10, 8}), (12, False, {12}), (48, False, {48}), (47, False, {47, 1})]
    + [(10, True, {48})],
)
def test_how_many_rows_a_model_gets_at_once(piece, training, due, adapted, monkeypatch):
    """Catches a test set that is tested at once, which needs much memory, and such training."""
    module, data = adapted(model=COUNTS_ROWS)
    assert data.x_test.size < module.LARGE and not hasattr(module.make_model(data), "model")
    monkeypatch.setattr(module, "LARGE", data.x_test.size - 1)
    monkeypatch.setattr(module, "PIECE", piece)
    model = module.make_model(data)
    model(tf.constant(data.x_test), training=training)
    assert {rows for rows in module.own.ROWS if rows} == due


NUMBERED = "x = {'a': x[:, :2], 'b': np.full((48, 2, 2), %s)}"
HALVES = "y = (y, np.full(48, %s))"


@pytest.mark.parametrize(
    "data, refused",
    [
        (NUMBERED % "2**24 - 1", False),
        (NUMBERED % "2**24", True),
        (NUMBERED % "-(2**24)", True),
        (HALVES % "2.0**24 + 2", False),  # float32 has this one
        (HALVES % "2.0**24 + 1", True),
        (HALVES % "2.0**30 + 0.5", False),  # it is rounded, as in any float32
    ],
)
def test_the_first_whole_number_that_is_too_large(data, refused, adapted):
    """Catches one that float32 rounds, and one that is refused although it does not."""
    if "x = {" in data:
        module, own_data = adapted(data=data, model=TWO_INPUTS)
    else:
        module, own_data = adapted(data=data, loss=WEIGHTED, metrics="")
    if refused:
        with pytest.raises(ValueError, match="has whole numbers above 16777216"):
            module.make_model(own_data)
    else:
        assert module.make_model(own_data)


def test_enough_rows_for_all_workers(adapted):
    """Catches one row too many that is asked for, and a ps that counts."""
    addresses = ["a:1"] * 40
    config = {
        "cluster": {"ps": addresses, "chief": ["a:1"], "worker": [*addresses, *addresses[:7]]}
    }
    assert len(adapted(TF_CONFIG=json.dumps(config), HOROVOD_SIZE="48")[1].x_train) == 48


@pytest.mark.parametrize("n, several", [(2, True), (64, True), (65, False)])
def test_a_long_list_is_rows(n, several, adapted):
    """Catches inputs that become rows, and rows that become inputs."""
    module, _ = adapted()
    arrays = module.arrays([np.zeros(2)] * n, "x_train")
    assert type(arrays) is (list if several else np.ndarray) and len(arrays) == n
    assert type(module.arrays([1, 2, 3], "x_train")) is np.ndarray  # numbers, not arrays


def test_data_of_another_form_are_loaded_next(adapted):
    """Catches inputs that are put into the form of those before."""
    module, first = adapted(data=TWO, model=TWO_INPUTS)
    module.own.load_data = lambda name: (X, Y, X[:5], Y[:5])
    data = module.load_data("another")
    assert first.x_train.shape == (48, 6) and data.x_test.shape == (5, 6)
    module.own.make_model = lambda data: keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(2)]
    )
    model = module.make_model(data)
    assert isinstance(model, keras.Sequential) and not module.column_layouts


def test_what_a_problem_says_of_itself(adapted, tmp_path):
    """Catches another file, another data set, and a model that is wrapped for nothing."""
    module, data = adapted()
    assert (module.DATASET, module.DATASETS) == ("own", str(tmp_path / "mine.py"))
    assert module.own.__file__ == module.DATASETS and sys.modules["own_problem"] is module.own
    assert isinstance(module.make_model(data), keras.Sequential)
    assert module.METRICS.keys() == {"accuracy"} and module.METRICS["accuracy"][0] == "max"


@pytest.mark.parametrize("name", ["top 5 %", "a_1", "F1@0.5-x"])
def test_the_name_of_a_metric(name, adapted):
    """Catches a name that is refused although a file can have it."""
    module, _ = adapted()
    pair = ("min", lambda y, outputs: y)
    assert module.adapt_metrics({name: pair}).keys() == {name}
    for wrong in (*pair, pair), ["min", pair[1]], ("min", "max"):
        with pytest.raises(ValueError, match="must be .'max' or 'min', a function"):
            module.adapt_metrics({name: wrong})


@pytest.mark.parametrize(
    "outputs, refused",
    [
        *(((8, 1), True), ((8,), False), ((8, 8), False), ((1, 1), False), ((8, 3), True)),
        ((2, 1), True),
    ],
)
def test_a_loss_has_a_number_for_each_row(outputs, refused, adapted):
    """Catches targets [rows] less outputs [rows, 1]: a matrix, on which training goes on."""
    module, _ = adapted()
    rows = outputs[0]
    y, predicted = np.zeros(rows, "float32"), np.zeros(outputs, "float32")
    if outputs == (8, 3):  # weights [rows, 1] times a loss [rows]
        loss = module.of_each_row(lambda y, outputs: y[:, None] * y)
    else:
        loss = module.of_each_row(lambda y, outputs: keras.ops.square(y - outputs))
    if refused:
        words = rf"returns \({rows}, {rows}\), not a number for each of {rows} rows"
        with pytest.raises(ValueError, match=words):
            loss(y, predicted)
    else:
        loss(y, predicted)


@pytest.mark.parametrize("factor, refused", [(2**25, True), (2**20, False)])
def test_an_output_of_large_whole_numbers(factor, refused, adapted):
    """Catches an output in whole numbers that float32, in which the outputs travel, would round."""
    model = f"""x = keras.Input((6,))
    h = keras.layers.Dense(2)(x)
    number = keras.ops.cast(keras.ops.argmax(h, -1), "int64") * {factor} + {factor}
    return keras.Model(x, {{"h": h, "number": number}})"""
    entropy = ENTROPY.replace("outputs", 'outputs["h"]', 1)
    module, data = adapted(model=model, loss=entropy, metrics="")
    if refused:
        with pytest.raises(tf.errors.InvalidArgumentError, match="an output has whole numbers abo"):
            in_a_graph(module, data)
    else:
        in_a_graph(module, data)


PAGE = (support.ROOT / "Your-Model" / "README.md").read_text()
# As the page's table has them; test_problems.py has the one with a folder.
SENTENCES = re.findall(r"(?m)^\| [^|]+ \| `([^`…]+)` \| [^|]+ \|$", PAGE)


def test_each_sentence_of_the_page_is_tested():
    """Catches a sentence that the test above passes over."""
    assert len(SENTENCES) >= 7
    for sentence in SENTENCES:
        assert any(re.search(words, sentence) for words in REFUSED), sentence


@pytest.mark.long
def test_the_file_of_the_page_learns(tmp_path):
    """As a reader does: the lines in a file, and one of the commands below them.

    The page's optimizer is in the file, too: it fails where two examples of the page do not fit.
    """
    text, optimizer = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
    assert f"These {sum(map(bool, text.splitlines()))} lines are enough" in PAGE
    (tmp_path / "my.py").write_text(text + "\n\n" + optimizer)
    launcher, flags = support.ROOT / "HogWild" / "run.sh", ["--steps", "600"]
    more = {"PROBLEM": str(tmp_path / "my.py")}
    code, output, _ = support.launch(launcher, tmp_path / "run", *flags, **more)
    assert code == 0, output
    assert support.result(tmp_path / "run")["test_accuracy"] > 0.85, output


def test_an_error_names_the_file_and_its_line(adapted, tmp_path):
    module, data = adapted(model="return 1 / 0")
    with pytest.raises(ZeroDivisionError) as raised:
        module.make_model(data)
    last = raised.traceback[-1]
    assert str(last.path) == str(tmp_path / "mine.py")
    assert "1 / 0" in (tmp_path / "mine.py").read_text().splitlines()[last.lineno]


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_are_shuffled_before_they_are_dealt(grouped, adapted):
    """Catches a worker that has one of two classes, because the rows of the file alternate."""
    several = "x, x_test = ({'a': part, 'b': part} for part in (x, x_test))" if grouped else ""
    data = f"""number = np.arange(1000)
    x, y = np.repeat(number[:, None], 3, 1).astype("float32"), (number % 2).astype("int32")
    x_test, y_test = x[:50], y[:50]
    {several}
    return x, y, x_test, y_test"""
    module, first = adapted(data)
    numbers = first.x_train[:, 0]
    assert sorted(numbers) == [*range(1000)] and (numbers % 2 == first.y_train).all()
    own = first.own.x_train["a"] if grouped else first.own.x_train
    assert (own[:, 0] == numbers).all() and (first.own.y_train == first.y_train).all()
    assert (first.x_test[:, 0] == np.arange(50)).all()
    for n in 2, 3, 4:
        assert all(0.4 < first.y_train[k::n].mean() < 0.6 for k in range(n))
    assert (module.load_data("own").x_train == first.x_train).all()  # in each task
    module.own.SHUFFLE = False
    assert (module.load_data("own").x_train[:, 0] == np.arange(1000)).all()
