"""One-Step: a step of N workers against one on the union; nothing trains."""

import re
import sys
import types

import numpy as np
import pytest
import support
from measurements import MEASUREMENTS, digits, load


def step_of(w, x, y, lr):
    """Returns w after a step on these rows, by TensorFlow in double precision."""
    import tensorflow as tf

    variables = [tf.Variable(v) for v in w]
    with tf.GradientTape() as tape:
        h = tf.constant(x, tf.float64)
        for i in (0, 2):
            h = tf.nn.relu(h @ variables[i] + variables[i + 1])
        scores = h @ variables[4] + variables[5]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))
    return [v - lr * d.numpy() for v, d in zip(w, tape.gradient(loss, variables))]


def test_a_step_is_compared_with_that_on_the_union():
    """Three workers' mini-batches of their own rows, by TensorFlow; then one number of w is off.

    Catches: rows of another worker or step, another rate, the smallest difference, a parameter or a
    step that is not compared, and a run that lacks a checkpoint.
    """
    import tensorflow as tf

    module = load("One-Step")
    x, y = module.data()
    rows = digits()
    order = np.random.RandomState(0).permutation(1797)[:1437]
    np.testing.assert_allclose(x, rows[0][order])
    assert (y == rows[1][order]).all() and x.dtype == np.float32
    random, n = np.random.RandomState(1), 3
    shapes = [(64, 128), (128,), (128, 64), (64,), (64, 10), (10,)]
    w = {1: [random.normal(0, 0.1, shape) for shape in shapes]}
    for step in range(1, 5):
        batch = []
        for k in range(n):
            drawn = tf.random.stateless_uniform([32], [k, step], 0, 479, tf.int32).numpy()
            batch += (n * drawn + k).tolist()
        assert module.union(n, step, 1437).tolist() == batch
        w[step + 1] = step_of(w[step], x[batch], y[batch], 0.1)
    module.read_checkpoints = lambda path: w
    apart, moved = module.compare("a path", n)
    due = max(np.abs(a - b).max() for step in range(1, 5) for a, b in zip(w[step], w[step + 1]))
    assert apart < 1e-12 and moved == pytest.approx(due)
    w[5][5] = w[5][5] + np.eye(10)[3] * 0.5
    assert module.compare("a path", n)[0] == pytest.approx(0.5)
    w[0] = w[1]
    assert module.compare("a path", n)[0] > 1e-4  # the step from 0 moves nothing
    del w[0]
    for missing in (2, 5):
        module.read_checkpoints = lambda path, missing=missing: {n: w[n] for n in w if n != missing}
        with pytest.raises(AssertionError, match="a path: checkpoints"):
            module.compare("a path", n)


def test_the_parameters_of_a_checkpoint():
    """In the three forms in which examples save them: one vector, or variables of either API.

    Catches: layers in another order, single precision, and the step of another checkpoint.
    """
    module, suffix = load("One-Step"), "/.ATTRIBUTES/VARIABLE_VALUE"
    sizes = [64 * 128, 128, 128 * 64, 64, 64 * 10, 10]
    whole = np.arange(sum(sizes), dtype=np.float32)
    parts = [
        part.reshape(shape)
        for part, shape in zip(np.split(whole, np.cumsum(sizes)[:-1]), module.SHAPES)
    ]
    forms = [{"w": whole}, {f"w{suffix}": whole}]
    forms += [{f"w/{i}{suffix}": part for i, part in enumerate(parts)}]
    forms += [{f"w_{i}": part for i, part in enumerate(parts)}]
    checkpoints = {f"a/ckpt-{10 + n}": form for n, form in enumerate(forms)}

    def load_checkpoint(path):
        known = checkpoints[path]
        return types.SimpleNamespace(has_tensor=known.__contains__, get_tensor=known.__getitem__)

    state = types.SimpleNamespace(all_model_checkpoint_paths=list(checkpoints))
    train = types.SimpleNamespace(
        load_checkpoint=load_checkpoint, get_checkpoint_state=lambda directory: state
    )
    module.tf = types.SimpleNamespace(train=train)
    saved = module.read_checkpoints("a")
    assert list(saved) == [10, 11, 12, 13]
    for parameters in saved.values():
        assert [part.dtype for part in parameters] == [np.float64] * 6
        for part, due in zip(parameters, parts, strict=True):
            np.testing.assert_array_equal(part, due)


def test_what_one_step_runs(tmp_path, monkeypatch):
    """The flags of each implementation, the table, and the exit code: one just outside a bound.

    Catches: a rate that is not divided, devices for workers, and a bound that anything keeps.
    """
    module, commands = load("One-Step"), []
    module.example_runs.run = lambda command, folder, **env: commands.append(
        (" ".join(map(str, command)).removeprefix(f"bash {support.ROOT}/"), env)
    )
    module.compare = lambda directory, n: (n, directory)
    for _, *rest in module.IMPLEMENTATIONS:
        assert module.measure(3, *rest)[0] == 3
    common = "--steps 5 --checkpoint-steps 1 --batch-size 32 --seed 0 --learning-rate"
    once, gpus = "--steps-per-call 1", "Multiple-GPUs-Single-Machine"
    due = [
        f"Synchronous-SGD/run.sh {common} 0.1",
        f"From-TensorFlow-1/Synchronous-SGD-Optimizer/run.sh {common} 0.1",
        f"{gpus}/run.sh {once} --devices 3 {common} 0.1",
        f"{gpus}/run_mirrored.sh {once} --devices 3 {common} 0.1",
        f"Collective-AllReduce/run.sh {once} {common} 0.1",
        f"Ring-AllReduce/run.sh {once} {common} 0.1",
        f"Horovod-RingAllReduce/run.sh {once} {common} {0.1 / 3}",
    ]
    assert commands == [(command, {"WORKERS": "3", "PS": "1"}) for command in due]
    answers, hidden = {}, []
    module.measure = lambda n, launcher, *_: answers[launcher.split("/")[0]][n]
    module.tf = types.SimpleNamespace(
        __version__="2",
        config=types.SimpleNamespace(set_visible_devices=lambda *given: hidden.append(given)),
    )
    module.example_runs.output_directory = lambda name: tmp_path / name
    (tmp_path / "One-Step").mkdir()

    def main(apart, moved):
        answers["Ring-AllReduce"] = {2: (1e-6, 1e-3), 3: (apart, moved)}
        words = ["--only", "Ring", "--workers", "2", "3", "2"]
        monkeypatch.setattr(sys, "argv", ["a script", *words])
        module.main()

    main(0.99e-6, 1.01e-3)
    table = (tmp_path / "One-Step" / "table.txt").read_text()
    rows = [line.split() for line in table.splitlines() if "Ring" in line]
    assert rows == [
        ["Ring-AllReduce", "2", "1.0e-06", "1.0e-03"],
        ["Ring-AllReduce", "3", "9.9e-07", "1.0e-03"],
    ]
    assert hidden == [([], "GPU")]
    for wrong in ((1.01e-6, 1), (0, 0.99e-3), (1, 0)):
        with pytest.raises(SystemExit, match="1 of 2 are further than 1e-06"):
            main(*wrong)
    monkeypatch.setattr(sys, "argv", ["a script"])
    module.measure = lambda n, *_: (0, n)
    module.main()
    rows = (tmp_path / "One-Step" / "table.txt").read_text()
    names = re.findall(r"^ (\S+) +([23]) +0.0e\+00 +([23]).0e\+00", rows, re.MULTILINE)
    assert names == [(name, n, n) for name, *_ in module.IMPLEMENTATIONS for n in "23"]
    page = (MEASUREMENTS / "One-Step" / "table.txt").read_text()
    assert re.findall(r"^ (\S+) +([23]) ", page, re.MULTILINE) == [of[:2] for of in names]
    heads = [re.search("^ implementation .*$", of, re.MULTILINE)[0].split() for of in (rows, page)]
    assert heads[0] == heads[1]
