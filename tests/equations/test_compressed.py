"""Compressed-AllReduce: each C by itself and its bytes, the training, and a worker that dies."""

import re
import signal
import time

import equations
import numpy as np
import problem
import pytest
import ring_workers
import support
from lab import examples
from test_ring import received_by_kernel
from tfrun import errors
from tfrun.runs import models

SCRIPT = examples.main_script("Further-Algorithms/Compressed-AllReduce")
QUICK = dict(ps=0)  # of the fixture quick
EQUATION = equations.of(SCRIPT)
CASES = {  # {case: the flags of a training}
    "power": {"compress": "power", "rank": 2},
    "top-k": {"compress": "top-k", "top": 0.05},
    "sign": {"compress": "sign"},
    "qsgd": {"compress": "qsgd", "levels": 16},
    "forgetting": {"compress": "sign", "forget-error": 1},
}
TRAINING = "training with "  # before the name of what a training compares
STEPS, SIZE = 20, 17226  # the numbers of the model for digits


# Each C by itself: what workers send in one process.


class Compressor:
    """C of one worker, called as the script's `build` calls it. Notes what the worker sends."""

    def __init__(self, script, ring, expected, compress, **flags):
        self.script, self.ring, self.cut = script, ring, expected.cut
        seed, rank = problem.SEED, flags.get("rank", 1)
        first = EQUATION.REFERENCE(expected.shapes, expected.n, seed=seed, rank=rank).Q
        first = {i: np.float32(q) for i, q in enumerate(first) if q is not None}
        self.Q = {i: script.tf.Variable(q) for i, q in first.items()}
        self.compress, self.flags, self.messages = compress, flags, []
        exchange = ring.exchange

        def noted(out, into):
            self.messages.append(out.tobytes())
            exchange(out, into)

        ring.exchange = noted

    def __call__(self, p, number):
        """Returns (c, the mean of all c, the first message)."""
        self.messages.clear()
        script, ring, flags = self.script, self.ring, self.flags
        c, mean = {
            "power": lambda: script.power_sgd(self.cut(p), self.Q, ring),
            "top-k": lambda: script.top_k(p, flags.get("top", 0.01), ring),
            "sign": lambda: script.sign(p, ring),
            "qsgd": lambda: script.qsgd(
                p, flags.get("levels", 127), [problem.SEED, ring.rank, number], ring
            ),
        }[self.compress]()
        return c, mean, self.messages[0] if self.messages else b""


def decoded(compress, message, size):
    """What a message says, read from its bytes."""
    if compress == "top-k":
        entries, c = np.frombuffer(message, [("index", "<i4"), ("value", "<f4")]), np.zeros(size)
        c[entries["index"]] = entries["value"]
        return c
    scale, rest = np.frombuffer(message[:4], "<f4").astype(float), message[4:]
    bits = np.unpackbits(np.frombuffer(rest, np.uint8))[:size]
    return scale * np.where(bits, 1, -1)


def vectors(shapes, steps, n):
    """lr * g of each step and worker, of several sizes; some entries are always 0, some at times.

    As of a pixel that is always dark, the first row of the first matrix is 0.
    """
    size, random = sum(map(np.prod, shapes)), np.random.RandomState(3)
    gradients = 0.01 * random.randn(steps, n, size) * np.exp(random.randn(size))
    gradients *= random.rand(steps, n, size) < 0.9
    gradients[:, :, : shapes[0][-1]] = 0
    return gradients.astype(np.float32)


def check_compressor(name, n, text=None, shapes=ring_workers.SHAPES):
    """The named comparisons of numbers that a mistake must fail: c, mean, ranks, sum."""
    flags = CASES[name]
    given = vectors(shapes, STEPS, n)
    expected = EQUATION.REFERENCE(shapes, n, seed=problem.SEED, **flags)

    def work(ring):
        script.join(ring, "the same")
        call, rows, e = Compressor(script, ring, expected, **flags), [], 0
        for number, added in enumerate(given[:, ring.rank]):
            p = added + e
            rows.append((p, *call(p, number), {i: q.numpy() for i, q in call.Q.items()}))
            e = (p - rows[-1][1]) * expected.biased
        script.leave(ring)
        return rows, e

    with ring_workers.rings(SCRIPT, n, text) as (script, rings):
        done = ring_workers.run_at_once(rings, work)
    assert not [result for result in done if isinstance(result, OSError)], done
    wrong = []
    for step in range(STEPS):
        p, c, mean, _, Q = zip(*[rows[step] for rows, _ in done])
        due, sure = expected.C([p_k.astype(float) for p_k in p], step)
        bound = 1e-4 * max(np.abs(p_k).max() for p_k in p)
        for k in range(n):
            if not (apart := np.abs(c[k] - due[k])[sure[k]].max()) < bound:
                wrong.append(f"{name}, c: {apart:g} apart on worker {k} in step {step}")
            if not np.array_equal(mean[k], mean[0]) or mean[k].dtype != np.float32:
                wrong.append(f"{name}, ranks: another mean on worker {k} in step {step}")
        apart = np.abs(mean[0] - sum(due) / n)[np.all(sure, 0)].max()
        if not apart < bound:
            wrong.append(f"{name}, mean: {apart:g} apart in step {step}")
        for i, q in Q[0].items():  # up to the signs of its columns
            if not np.abs(np.abs(q) - np.abs(expected.Q[i])).max() < bound:
                wrong.append(f"{name}, Q: another in step {step}")
            expected.Q[i] = q.astype(float)  # or rounding would grow from step to step
    # What was sent, and the last e, are the sum of all lr * g: of each worker, or of all together.
    if flags["compress"] in ("top-k", "sign"):
        sums = [
            sum(decoded(flags["compress"], row[3], row[0].size) for row in rows) for rows, _ in done
        ]
    else:
        sums = [sum(row[1].astype(float) for row in rows) for rows, _ in done]
        total = n * sum(row[2].astype(float) for row in done[0][0]) + sum(e for _, e in done)
        if expected.biased and not np.abs(total - given.sum((0, 1))).max() < 1e-5:
            wrong.append(f"{name}, sum: of all workers together")
    for k in range(n if expected.biased else 0):
        if not (apart := np.abs(sums[k] + done[k][1] - given[:, k].sum(0)).max()) < 1e-5:
            wrong.append(f"{name}, sum: {apart:g} apart on worker {k}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("name", ["power", "top-k", "sign", "qsgd"])
def test_what_a_compressor_sends(name, n):
    """c and its mean are the equation's, the same bits on all workers, in each of 20 steps. What
    was sent plus the last e is the sum of all that was to be sent."""
    check_compressor(name, n)


# The ratio of what Ring-AllReduce sends to this, with 2 workers, and with 4.
RATIOS = {"power": (26.1, 26.1), "top-k": (50.07, 25.04), "sign": (31.93, 15.96), "qsgd": (4, 2)}


@pytest.mark.parametrize("n", [2, 4])
def test_the_bytes(n):
    """With the defaults, and as the kernel counts them."""
    expected = EQUATION.REFERENCE(support.SHAPES, n)
    given = vectors(support.SHAPES, 1, n)

    def work(ring):
        script.join(ring, "the same")
        sent = {}
        for compress in RATIOS:
            before, exchange = ring.sent, ring.exchange
            Compressor(script, ring, expected, compress)(given[0, ring.rank], 0)
            ring.exchange, sent[compress] = exchange, ring.sent - before
        apart = received_by_kernel(script, ring) - ring.received
        script.leave(ring)
        return sent, apart

    with ring_workers.rings(SCRIPT, n) as (script, rings):
        done = ring_workers.run_at_once(rings, work)
    assert all(0 <= apart <= 1 for _, apart in done), done
    for compress, size in {"top-k": 8 * 172, "sign": 4 + 2154, "qsgd": 4 + SIZE}.items():
        assert [sent[compress] for sent, _ in done] == n * [(n - 1) * size], compress
    of_all = {compress: sum(sent[compress] for sent, _ in done) for compress in RATIOS}
    assert of_all["power"] == 2 * (n - 1) * 4 * 660
    for compress, ratios in RATIOS.items():
        ratio = 2 * (n - 1) * 4 * SIZE / of_all[compress]
        assert ratio == pytest.approx(ratios[n == 4], rel=1e-3), compress


def check_everything_is_sent(compress, text=None, **flags):
    """The mean is then Ring-AllReduce's, up to rounding."""
    expected = EQUATION.REFERENCE(ring_workers.SHAPES, 3)
    given = vectors(ring_workers.SHAPES, 3, 3)

    def work(ring):
        script.join(ring, "the same")
        call = Compressor(script, ring, expected, compress, **flags)
        outputs = [call(p, number)[1] for number, p in enumerate(given[:, ring.rank])]
        script.leave(ring)
        return outputs

    with ring_workers.rings(SCRIPT, 3, text) as (script, rings):
        means = ring_workers.run_at_once(rings, work)[0]
    assert np.abs(np.array(means) - given.mean(1)).max() < 1e-5 * np.abs(given).max()


def test_all_entries_or_all_columns_are_ring_allreduce():
    check_everything_is_sent("top-k", top=1.0)
    check_everything_is_sent("power", rank=128)
    with pytest.raises(AssertionError):
        check_everything_is_sent("power", rank=5)


def check_unbiased(text=None):
    """The mean of 4000 draws is p, within five times its standard error."""
    p = vectors([(10, 20)], 1, 1)[0, 0]
    with ring_workers.rings(SCRIPT, 1, text) as (script, (ring,)):
        mean = sum(script.qsgd(p, 4, [7, 0, number], ring)[0] for number in range(4000)) / 4000
    step = np.sqrt(np.sum(p.astype(float) ** 2)) / 4
    assert not (wrong := np.abs(mean - p) > 5 * step / 2 / np.sqrt(4000)).any(), wrong.sum()


def test_qsgd_is_right_on_average():
    check_unbiased()
    with pytest.raises(AssertionError):
        nearest = [("np.random.default_rng(seed).random(p.size)", "0.5")]
        check_unbiased(examples.replaced(SCRIPT, nearest))


def check_zeros(text=None):
    """A matrix of zeros, one with a column of zeros, and one that comes after zeros."""
    zeros = [np.zeros((4, 3), np.float32), np.zeros(3, np.float32)]
    column = [np.outer([0, 1, 2, 3], [1, 0, 2]).astype(np.float32), np.ones(3, np.float32)]
    with ring_workers.rings(SCRIPT, 1, text) as (script, (ring,)), np.errstate(all="raise"):
        Q = {0: script.tf.Variable(np.float32([[1], [-0.5], [0.7]]))}
        for layers in column, zeros, column:
            c, mean = script.power_sgd(layers, Q, ring)
            assert np.isfinite(c).all() and np.isfinite(mean).all()
            due = np.concatenate(layers, axis=None)
            assert np.abs(c - due).max() < 1e-5, f"{c} for {due}"


def test_zeros_make_no_nan_and_pass():
    """Also: a step of zeros does not end the training of a layer."""
    check_zeros()
    with pytest.raises(AssertionError):
        check_zeros(examples.replaced(SCRIPT, [("np.where(q.any(0), q, Q[i])", "q")]))


def distance(compress, apart, remember, **flags):
    """How far from (1, 1) two workers are at the end, whose gradients are w - (1, 1) +- apart."""

    def work(ring):
        script.join(ring, "the same")
        call = Compressor(script, ring, EQUATION.REFERENCE([(2,)], 2), compress, **flags)
        w, e, apart_k = np.zeros(2, np.float32), 0, np.array(apart) * (1 - 2 * ring.rank)
        for number in range(1000):
            p = (0.01 * (w - 1 + apart_k)).astype(np.float32) + e
            c, mean, _ = call(p, number)
            w, e = w - mean, remember * (p - c)
        script.leave(ring)
        return w

    with ring_workers.rings(SCRIPT, 2) as (script, rings):
        return np.abs(ring_workers.run_at_once(rings, work)[0] - 1).max()


def test_without_e_top_k_and_sign_stall():
    """Where workers disagree. Each sends the one number about which it disagrees, and never the
    other; or the signs of two numbers, which cancel those of the other worker."""
    for compress, apart, flags in (("top-k", (10, 0), {"top": 0.5}), ("sign", (2, -2), {})):
        assert distance(compress, apart, 0, **flags) > 0.9, compress
        assert distance(compress, apart, 1, **flags) < 0.1, compress


# Training, by processes of its own.


RECORD = [
    *ring_workers.RECORD,
    ("    choices = {\n", "    build.e = lambda: e[(k + 1) % n]\n    choices = {\n"),
    ("[w.numpy()]\n", "[w.numpy()]\n    metrics.errors = [build.e().numpy()]\n"),
    (
        "        metrics.values.append(metrics.w.numpy())\n",
        "        metrics.values.append(metrics.w.numpy())\n"
        "        metrics.errors.append(build.e().numpy())\n",
    ),
    (
        "    np.save('w.npy', metrics.values)\n",
        "    np.save('w.npy', metrics.values)\n    np.save('e.npy', metrics.errors)\n",
    ),
]


def command_line(flags):
    return [str(word) for name, value in flags.items() for word in ("--" + name, value)]


def check_training(quick, folder, name, changes=(), n=2):
    """The named comparisons of numbers that a mistake must fail.

    Each step is compared by itself, from where the script was, so that an entry that rounding
    decides is left out of one step only.
    """
    flags, what = dict(CASES[name]), TRAINING + name
    codes, output = ring_workers.train(
        quick, SCRIPT, folder, *command_line(flags), changes=[*changes, *RECORD], n=n
    )
    assert codes == [0] * n, output
    folders = ring_workers.folders(folder, n)
    w = [np.load(path / "w.npy") for path in folders]
    e = [np.load(path / "e.npy").astype(float) for path in folders]
    losses = [[row["loss"] for row in support.pushes(path)] for path in folders]
    forget, gradient = flags.pop("forget-error", 0), problem.gradient_on_digits(n)
    expected = EQUATION.REFERENCE(ring_workers.SHAPES, n, seed=problem.SEED, **flags)
    wrong, moved = [], 0
    for step in range(STEPS):
        if not all(np.array_equal(history[step + 1], w[0][step + 1]) for history in w):
            wrong.append(f"{what}, ranks: not bit for bit the same after step {step}")
        now = w[0][step].astype(float)
        pairs = [gradient(k, step, expected.cut(now)) for k in range(n)]
        g = [np.concatenate(parts, axis=None) for _, parts in pairs]
        due = [loss for loss, _ in pairs]
        if not np.abs(np.subtract([history[step] for history in losses], due)).max() < 1e-5:
            wrong.append(f"{what}, losses: others in step {step}")
        moved = moved + problem.LR * sum(g) / n
        e_now = [history[step] for history in e]
        due, e_due, sure = expected.step(now, e_now, g, problem.LR, step, forget)
        apart = np.abs(w[0][step + 1] - due)[np.all(sure, 0)].max()
        if not apart < 2e-5:
            wrong.append(f"{what}, parameters: {apart:g} apart after step {step}")
        for k in range(n):
            if not (apart := np.abs(e[k][step + 1] - e_due[k])[sure[k]].max()) < 2e-5:
                wrong.append(f"{what}, errors: {apart:g} on worker {k} in step {step}")
        assert np.mean(sure) > 0.99
    if expected.biased and not forget:
        left = w[0][0] - w[0][STEPS] + sum(history[STEPS] for history in e) / n - moved
        if not np.abs(left).max() < 1e-5:
            wrong.append(f"{what}, sum: of all lr * g, {np.abs(left).max():g} apart")
    assert not wrong, "\n".join(wrong)
    assert np.abs(w[0][STEPS] - w[0][0]).max() > 0.01
    if expected.biased and not forget:
        assert np.abs(e[0][STEPS] - e[1][STEPS]).max() > 0.001


@pytest.mark.parametrize(
    "name, n",
    [
        ("power", 3),  # the others' clusters would take core as long again
        pytest.param("power", 2, marks=pytest.mark.long),
        *(
            pytest.param(name, n, marks=pytest.mark.long)
            for name in ("top-k", "sign", "qsgd", "forgetting")
            for n in (2, 3)
        ),
    ],
)
def test_training_is_the_equation(name, n, quick, tmp_path):
    """w, and e of each worker, after each of 20 steps; w is bit for bit the same on all workers. w
    has moved by the mean of all lr * g, but for the mean of the last e."""
    check_training(quick, tmp_path, name, n=n)


def mistakes(training):
    """The mistakes that a training shows, or a C by itself, of which core has some."""
    cases = equations.mistakes([SCRIPT], core=0 if training else 1)
    return [case for case in cases if case.values[1].startswith(TRAINING) == training]


def case_of(fails):
    """The case that a comparison belongs to."""
    return fails.removeprefix(TRAINING).partition(",")[0]


@pytest.mark.parametrize("script, fails, changes", mistakes(False))
def test_a_mistake_in_a_compressor_is_caught(script, fails, changes):
    with support.fails_comparison(fails):
        check_compressor(case_of(fails), 3, examples.replaced(script, changes))


@pytest.mark.parametrize("script, fails, changes", mistakes(True))
def test_a_mistake_in_the_training_is_caught(script, fails, changes, quick, tmp_path):
    """The mistaken script ends well."""
    with support.fails_comparison(fails):
        check_training(quick, tmp_path, case_of(fails), changes)


@pytest.mark.plants_mistakes
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_scripts_with_a_mistake_in_a_compressor_run(tmp_path):
    """Each with the compressor that has the mistake."""
    texts, default = {}, '"power", "C in'
    for case in mistakes(False):
        _, fails, changes = case.values
        chosen = default.replace("power", CASES[case_of(fails)]["compress"])
        texts[case.id] = examples.replaced(SCRIPT, [*changes, (default, chosen)])
    support.run_well(texts, tmp_path, ps=0)


# What the checkpoint has of all workers.

CHECKPOINTS = ["--checkpoint-steps", "6"]
GATHERED = "            all_gather(of_all, ring)\n"


def check_going_on(quick, folder, name, changes=()):
    """The named comparisons of a run of three that goes on with one that nobody stopped."""
    flags = command_line(CASES[name]) + CHECKPOINTS
    parameters = {}
    for kind, ends in {"whole": [14], "stopped": [7, 14]}.items():
        for end in ends:
            codes, output = ring_workers.train(
                quick, SCRIPT, folder / kind, *flags, changes=changes, steps=end
            )
            assert not any(codes), output
        chief, *_ = ring_workers.folders(folder / kind)
        parameters[kind] = models.saved_values(support.newest_checkpoint(chief))["w"]
    apart = np.abs(np.subtract(*parameters.values())).max()
    assert apart == 0, f"parameters: {apart:g} apart"


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["top-k", *(pytest.param(name, marks=pytest.mark.long) for name in ("power", "sign"))]
)
def test_three_workers_go_on(name, quick, tmp_path):
    """Bit for bit. Catches e of the other workers, or Q, that begins again."""
    check_going_on(quick, tmp_path, name)


FORGOTTEN = {
    (SCRIPT, "top-k"): {
        "e of the others is not gathered": [(GATHERED, "")],
        "e of the others is that of the checkpoint before": [(" or int(step)", " and int(step)")],
    },
    (SCRIPT, "power"): {
        "Q is in no checkpoint": [("[e, *Q.values()]", "[e]")],
        "Q is not that of the chief": [("*state, *more], ring)", "*state, *more[:-1]], ring)")],
    },
}


@pytest.mark.long
@pytest.mark.parametrize("script, name, changes", support.mistakes(FORGOTTEN, core=0))
def test_a_mistake_about_going_on_is_caught(script, name, changes, quick, tmp_path):
    with support.fails_comparison("parameters"):
        check_going_on(quick, tmp_path, name, changes)


# What goes wrong on the way.


@pytest.mark.long
def test_a_worker_that_dies(quick, tmp_path):
    """Each other one ends at once, with an error that names it."""
    began = time.monotonic()
    kill = f"        if metrics.step == 50 and {ring_workers.RANK} == 1: os.kill(os.getpid(), 9)\n"
    changes = [(ring_workers.IN_THE_LOOP, kill + ring_workers.IN_THE_LOOP)]
    codes, output = ring_workers.train(quick, SCRIPT, tmp_path, changes=changes, steps=10**6)
    assert time.monotonic() < began + support.patience(30)
    assert codes == [1, -signal.SIGKILL, 1], output
    assert re.search(r"ConnectionError: worker 1, the (left|right) neighbour: ", output), output
    assert "The ring is broken" in errors.explain(output)


@pytest.mark.long
@pytest.mark.parametrize(
    "flags, words",
    [
        (["--compress", "zip"], "ValueError: --compress must be one of ['power'"),
        (["--compress", "top-k", "--top", "1.5"], "ValueError: kth(="),
        (["--levels", "128"], "and --levels at most 127: int8"),
    ],
)
def test_a_wrong_flag_is_refused_and_explained(flags, words, quick, tmp_path):
    codes, output = ring_workers.train(quick, SCRIPT, tmp_path, *flags, n=1)
    assert codes == [1] and words in output, output
    assert errors.explain(output)
