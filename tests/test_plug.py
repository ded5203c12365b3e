"""The plug: other data and another model in the `problem` region, in every ps example."""

import os
import re

import pytest
import support
from tfrun import summary

SCRIPTS = [path for path in support.ps_scripts() if "# region: problem" in path.read_text()]

CONVOLUTION = """
def make_model(data):
    return keras.Sequential([
        keras.Input([64]), keras.layers.Reshape([8, 8, 1]),
        keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
        keras.layers.BatchNormalization(), keras.layers.MaxPool2D(), keras.layers.Flatten(),
        keras.layers.Dropout(0.1), keras.layers.Dense(10)])
"""

# 20 MB: 64 places x 17 shades are 1,088 rows that are used, of 100,000 with 50 numbers each.
EMBEDDING = """
def make_model(data):
    x = keras.Input([64])
    shade = keras.ops.cast(keras.ops.round(x * 16), "int32") + 17 * np.arange(64, dtype="int32")
    rows = keras.layers.Embedding(100000, 50)(shade)
    return keras.Model(x, keras.layers.Dense(10)(keras.layers.Flatten()(rows)))
"""


def plugged(script, model):
    """The script's text with another model in its problem region."""
    text = script.read_text()
    start, end = text.index("def make_model("), text.index("def loss(y, outputs):")
    assert text.index("# region: problem") < start < end < text.index("# endregion: problem")
    return text[:start] + model.strip() + "\n\n\n" + text[end:]


@pytest.fixture(scope="module")
def quick():
    with support.QuickCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("script", support.core_first(SCRIPTS))
@pytest.mark.parametrize(
    "model, variables, steps, rate",
    [(CONVOLUTION, 6, 300, 0.1), (EMBEDDING, 3, 60, 1)],
    ids=["convolution", "embedding"],
)
def test_another_model_trains(script, model, variables, steps, rate, quick, tmp_path):
    (tmp_path / script.name).write_text(plugged(script, model))
    flags = ["--steps", str(steps), "--learning-rate", str(rate)]
    if "--local-steps" in script.read_text():
        flags = ["--steps", str(steps // 3), *flags[2:], "--local-steps", "3"]
    if "--learning-rates" in script.read_text():
        flags[2:4] = ["--learning-rates", str(rate / 2)]
    if "--server-lr" in script.read_text():
        flags += ["--server-lr", "0.2"]
    if "--rho" in script.read_text():
        flags += ["--rho", str(0.25 / rate)]
    if "--momentum" in script.read_text():
        flags += ["--momentum", "0.5"]
    workers = 1 if "Distributed-Setup" in script.parts else 2
    codes, output = quick.run(tmp_path / script.name, tmp_path / "run", *flags, workers=workers)
    assert not any(codes), output
    pushes = support.pushes(tmp_path / "run")
    losses = [row["loss"] for row in pushes]
    few = len(losses) // 4
    assert max(row["global_step"] for row in pushes) == int(flags[1])
    assert sum(losses[-few:]) < 0.7 * sum(losses[:few]), losses

    # It was that model: its variables are in the checkpoint, its bytes have crossed the network.
    names = [name for name in support.saved_names(tmp_path / "run") if re.match(r"w_\d+$", name)]
    assert len(names) == variables
    if model == EMBEDDING:
        assert pushes[0]["bytes"] >= 20e6


@pytest.mark.long
def test_a_text_of_ones_own(quick, tmp_path):
    """Words that come in pairs, of ten kinds: in a minute it knows what goes with what."""
    import random

    draw = random.Random(0)
    kinds = ["".join(draw.choices("bcdfglmnprst", k=4)) for _ in range(40)]
    text = "\n\n".join(
        " ".join(draw.choice(kinds[4 * kind : 4 * kind + 4]) for _ in range(30))
        for kind in [draw.randrange(10) for _ in range(200)]
    )
    (tmp_path / "mine.txt").write_text(text)
    flags = ["--dataset", str(tmp_path / "mine.txt"), "--steps", "600", "--noise-words", "32"]
    codes, output = quick.run(support.main_script("Sparse-Embeddings"), tmp_path / "run", *flags)
    assert codes == [0, 0, 0], output
    assert summary.summarize([tmp_path / "run"])["test_accuracy"] > 0.8, output


def test_an_npz_file_sets_the_sizes(tmp_path):
    """One's own data needs no code: three classes of five features."""
    code = """
import sys, numpy as np
random = np.random.RandomState(0)
x, y = random.randn(400, 5), random.randint(0, 3, 400)
x[np.arange(400), y] += 3
np.savez(sys.argv[1], x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
"""
    assert support.python(code, str(tmp_path / "mine.npz")).returncode == 0
    launcher = support.ROOT / "HogWild" / "run.sh"
    flags = ["--dataset", str(tmp_path / "mine.npz"), "--steps", "300"]
    code, output, _ = support.launch(launcher, tmp_path / "run", *flags)
    assert code == 0, output
    assert summary.summarize([tmp_path / "run"])["test_accuracy"] > 0.85


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_loaders_of_known_data_sets(name, tmp_path):
    """keras' own loader reads small files of the real form; only the fetching is replaced."""
    code = """
import gzip, importlib, pathlib, sys
import numpy as np
import support
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
random = np.random.RandomState(0)
x, y = random.randint(0, 256, (30, 28, 28)).astype("u1"), (np.arange(30) % 10).astype("u1")
np.savez(folder / "mnist.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
for part, rows in ("train", slice(0, 20)), ("t10k", slice(20, 30)):
    for kind, array, header in ("images-idx3", x, 16), ("labels-idx1", y, 8):
        with gzip.open(folder / ("%s-%s-ubyte.gz" % (part, kind)), "wb") as file:
            file.write(b"\\0" * header + array[rows].tobytes())
module = importlib.import_module("keras.src.datasets." + name)
module.get_file = lambda fname, **_: str(folder / fname)
script = support.load(support.ROOT / "HogWild" / "hogwild.py")
data = script.load_data(name)
assert data.x_train.shape == (20, 784) and data.x_train.dtype == np.float32, data.x_train.shape
assert np.allclose(data.x_test, x[20:].reshape(10, 784) / 255)
assert (data.y_train == y[:20]).all() and data.y_test.dtype == np.int32
print("loaded")
"""
    folders = [str(support.ROOT / folder) for folder in (".", "tests", "tools")]
    process = support.python(code, str(tmp_path), name, PYTHONPATH=os.pathsep.join(folders))
    assert process.stdout.strip() == "loaded", process.stderr
