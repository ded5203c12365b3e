"""ParameterServerStrategy: its update, its staleness, its shards, lost tasks, and its table."""

import re
import signal
import time

import numpy as np
import pytest
import support
from problem import BATCH, LR, SEED, digits_like, gradient_on_digits
from tfrun import errors, export, summary

FOLDER = support.ROOT / "Parameter-Server-Strategy"
SCRIPT = support.main_script("Parameter-Server-Strategy")
LAUNCHER = FOLDER / "run.sh"
STEPS = 37  # closures of 10, and a shorter one


@pytest.fixture(scope="module")
def quick():
    tf2 = support.main_script("Collective-AllReduce")
    with support.QuickCluster(tf2, chief=1, tasks=4) as tasks:
        yield tasks


@pytest.fixture(scope="module")
def train(quick, tmp_path_factory):
    """train(*flags, changes, ps, workers) -> the run directory, and what was printed.

    By default on the small data, with the rate and the seed of its references.
    """

    def train(*flags, changes=(), ps=1, workers=1, small=True):
        folder = tmp_path_factory.mktemp("run")
        script = folder / SCRIPT.name
        script.write_text(support.replaced(SCRIPT, changes))
        data = dict(zip(("x_train", "y_train", "x_test", "y_test"), digits_like()))
        np.savez(folder / "small.npz", **data)
        own = ["--dataset", folder / "small.npz", "--learning-rate", LR, "--batch-size", BATCH]
        own += ["--seed", SEED, "--steps", STEPS]
        quick.ps = ps
        flags = [str(flag) for flag in [*(own if small else []), *flags]]
        codes, output = quick.run(script, folder / "out", *flags, workers=workers)
        assert not any(codes), output
        return folder / "out", output

    return train


def rows_of(directory, task):
    """{column: array} of the updates of one worker."""
    each = summary.read(directory / ("metrics-%s.csv" % task))
    return {name: values[each.pushes] for name, values in each.columns.items()}


def first_values():
    """w before the first update, as Keras makes it of the seed."""
    import keras

    script = support.load(SCRIPT)
    keras.utils.set_random_seed(SEED)
    model = script.make_model(script.Data(*digits_like()))
    return [v.numpy().astype(float) for v in model.trainable_variables]


def check_the_equation(directory):
    """w and the losses of one worker against w <- w - lr * g(w), written here in NumPy."""
    w, losses, gradient = first_values(), [], gradient_on_digits(1)
    for number in range(STEPS):
        loss, g = gradient(0, number, w)
        losses.append(loss)
        w = [v - LR * d for v, d in zip(w, g)]
    found, rows = (
        export.saved_values(support.newest_checkpoint(directory))["w"],
        rows_of(directory, "worker-0"),
    )
    wrong, apart = [], max(np.abs(a - b).max() for a, b in zip(found, w))
    if not apart < 1e-5:
        wrong.append("parameters: %g apart" % apart)
    if rows["global_step"].tolist() != list(range(1, STEPS + 1)):
        wrong.append("updates: %s" % rows["global_step"])
    elif not (apart := np.abs(rows["loss"] - losses).max()) < 1e-5:
        wrong.append("losses: %g apart" % apart)
    if rows["staleness"].any():  # there is nobody else
        wrong.append("staleness: %s" % rows["staleness"])
    assert not wrong, "\n".join(wrong)


def test_the_update_is_the_equation(train):
    check_the_equation(train()[0])


def test_a_variable_is_split_over_both_ps(train):
    """The update is the same; the checkpoint has the whole variable."""
    directory, output = train("--shard-bytes", 1024, ps=2)
    check_the_equation(directory)
    split = re.findall(r"w_(\d) is split: (\d+) rows on ps (\d), (\d+) rows on ps (\d)\n", output)
    assert [(v, a, b) for v, a, _, b, _ in split] == [("0", "3", "3"), ("2", "64", "64")], output
    assert all({p, q} == {"0", "1"} for _, _, p, _, q in split), output


# The loss is that of the copies; a mistake must be seen in the numbers that are named.
MISTAKES = {
    "twice the rate": (
        "parameters",
        [("flags.learning_rate * d for d in g", "2 * flags.learning_rate * d for d in g")],
    ),
    "the gradient at another point": (
        "losses",
        [("loss = batch_loss(w_k)", "loss = batch_loss([1.01 * v for v in w_k])")],
    ),
    "one pull for all updates of a closure": (
        "losses",
        [
            ("w_k = pull(w)", "w_k = flags.copies"),
            (
                "        for i in tf.range(count):\n",
                "        flags.copies = pull([part for v in w for part in parts(v)])\n"
                "        for i in tf.range(count):\n",
            ),
        ],
    ),
    "each mini-batch twice": ("losses", [("+ rank, number]", "+ rank, number // 2]")]),
    "a version before the last": (
        "staleness",
        [("step.read_value()\n    with", "step.read_value() - 1\n    with")],
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if number > 1 else [])
        for number, name in enumerate(MISTAKES)
    ],
)
def test_a_mistake_is_caught(name, train):
    what, changes = MISTAKES[name]
    directory, _ = train(changes=changes)
    with pytest.raises(AssertionError, match="(?m)^ *%s: " % what):
        check_the_equation(directory)


# Two workers -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(train):
    return train("--steps", 205, workers=2, small=False)


def check_the_counter(directory, steps):
    """Every update is counted once, and is in one row."""
    made = sorted(row["global_step"] for row in support.pushes(directory))
    assert made == list(range(1, steps + 1)), made


def test_the_counter_is_exact_without_faults(two):
    directory, output = two
    check_the_counter(directory, 205)
    assert "scheduled 205 updates, made 205\n" in output
    assert min(summary.summarize([directory])["pushes_per_worker"]) >= 10


def check_the_staleness(directory):
    """Each staleness lies between the bounds that the times of the other's updates give.

    What the other pushed between our pull and our gradient is in it; what had arrived before our
    last update, or was not ready when ours had arrived, is not.
    """
    low, high, found = [], [], []
    a, b = (rows_of(directory, "worker-%d" % k) for k in (0, 1))
    for one, other in (a, b), (b, a):
        ready = one["push_time"] - one["wait_seconds"]
        others = other["push_time"] - other["wait_seconds"]
        for i in range(1, len(ready)):
            since = others > one["pull_time"][i], other["push_time"] > one["push_time"][i - 1]
            until = other["push_time"] < ready[i], others < one["push_time"][i]
            low.append((since[0] & until[0]).sum())
            high.append((since[1] & until[1]).sum())
            found.append(one["staleness"][i])
    low, high, found = map(np.array, (low, high, found))
    wrong = ((found < low) | (found > high)).sum()
    assert not wrong and found.any(), "%d of %d are wrong" % (wrong, len(found))


def test_the_staleness_is_exact(two):
    check_the_staleness(two[0])


@pytest.mark.long
def test_a_staleness_off_by_one_is_caught(train):
    changes = [("ticket - update.version, size", "ticket - update.version + 1, size")]
    directory, _ = train("--steps", 205, workers=2, small=False, changes=changes)
    with pytest.raises(AssertionError, match="are wrong"):
        check_the_staleness(directory)


def check_the_shards(directory):
    """Where w stays as it is, the loss of each update names the rows: k, k + 2, ... on worker k."""
    w, gradient = first_values(), gradient_on_digits(2)
    for k in range(2):
        losses = rows_of(directory, "worker-%d" % k)["loss"]
        due = [gradient(k, number, w)[0] for number in range(len(losses))]
        apart = np.abs(losses - due).max()
        assert len(losses) and apart < 1e-5, "worker %d: %g apart" % (k, apart)


STILL = ["--learning-rate", "1e-30", "--steps", 120]


def test_each_worker_has_its_own_rows(train):
    check_the_shards(train(*STILL, workers=2)[0])


@pytest.mark.long
def test_another_worker_s_rows_are_caught(train):
    directory, _ = train(*STILL, workers=2, changes=[("(part)[rank::n]", "(part)[1 - rank::n]")])
    with pytest.raises(AssertionError, match="^worker 0: "):
        check_the_shards(directory)


# Lost tasks --------------------------------------------------------------------------------------


def lose(directory, job, index, steps, number=signal.SIGKILL, **env):
    """A run of run.sh of which a task is killed: (its exit code, the output, when it was)."""
    flags = ["--steps", str(steps), "--checkpoint-seconds", "1"]
    with support.Run(LAUNCHER, directory, *flags, **env) as run:
        support.wait_until(lambda: run.step() >= steps / 4, 60, "training")
        killed = time.time()
        support.task(directory, job, index).send_signal(number)
        output = run.process.communicate(timeout=support.patience(110))[0]
    assert not support.processes_of(directory)
    return run.process.returncode, output, killed


@pytest.mark.long
@pytest.mark.parametrize("job", ["worker", "ps", "chief"])
def test_a_run_survives_a_killed(job, tmp_path):
    """With restarts: it ends by itself with at least --steps updates, and has learned."""
    directory, steps = tmp_path / "run", 5000 if job == "worker" else 1500
    index = int(job == "worker")
    code, output, killed = lose(directory, job, index, steps, TFRUN_RESTARTS="2")
    assert code == 0, output
    result, rows = support.result(directory), support.pushes(directory)
    assert result["test_accuracy"] >= 0.97 and result["steps"] >= steps, result
    assert "%s %d was killed by SIGKILL; it starts again" % (job, index) in output
    after = [row["push_time"] for row in rows if row["push_time"] > killed + 0.5]
    if job == "worker":
        # The closures that were cut off are made again: at most two of ten for each worker.
        assert result["steps"] <= steps + 40 and "scheduled %d updates" % steps in output
        back = rows_of(directory, "worker-1")["push_time"]
        assert back.max() > killed + 1, "it did not take part again"
    else:  # everything stands until it is back; the rest begins at the checkpoint
        assert min(after) - killed > 2
        assert re.search(r"scheduled (\d+) updates, made \1\n", output)
        assert result["steps"] == steps


@pytest.mark.long
def test_without_restarts_the_first_that_is_lost_ends_the_run(tmp_path):
    code, output, _ = lose(tmp_path / "run", "worker", 1, 3000)
    assert code == 137 and "worker 1 was killed by SIGKILL; the run is stopped" in output


@pytest.mark.long
def test_a_ps_that_is_lost_is_named(tmp_path):
    """And explained; there are no parameters without it."""
    code, output, _ = lose(tmp_path / "run", "ps", 0, 3000, TFRUN_RESTARTS="0")
    assert code, output
    text = (tmp_path / "run" / "chief-0.log").read_text()
    if "ConnectionError" in text:  # it may be stopped before it has said so
        assert re.search(r"ConnectionError: ps 0 did not answer at 127.0.0.1:\d+", text), text
        assert "connection to another task is lost" in errors.explain(text)
