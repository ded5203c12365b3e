"""Each script's graph against a NumPy reference, HogWild under a fixed interleaving of two workers.

The reference is written from the equation: pull w_k <- w, push w <- w - lr * g(w_k).
"""

import threading

import numpy as np
import pytest
import support

SCRIPT = support.ROOT / "HogWild" / "hogwild.py"
ALONE = [  # those of a single worker, which pulls and pushes in turn
    support.ROOT / "Non-Distributed-Setup" / "non_distributed_setup.py",
    support.ROOT / "Distributed-Setup" / "distributed_setup.py",
    support.ROOT / "Distributed-Setup" / "distributed_setup_supervisor.py",
]
LR, BATCH, SEED = 0.3, 8, 5
# Who does what: "pull" and "push" of one worker with anything of the other in between.
SCHEDULE = [
    ("pull", 0),
    ("pull", 1),
    ("push", 1),
    ("pull", 1),
    ("push", 1),
    ("push", 0),
    ("pull", 0),
    ("push", 0),
    ("pull", 1),
    ("pull", 0),
    ("push", 0),
    ("pull", 0),
    ("push", 0),
    ("pull", 0),
    ("push", 0),
    ("push", 1),
    ("pull", 1),
    ("push", 1),
    ("pull", 0),
    ("pull", 1),
    ("push", 0),
    ("push", 1),
    ("pull", 1),
    ("push", 1),
]


IN_TURN = [("pull", 0), ("push", 0)] * 12


def make_data():
    random = np.random.RandomState(1)
    return (
        random.rand(41, 6).astype(np.float32),
        random.randint(0, 3, 41).astype(np.int32),
        random.rand(5, 6).astype(np.float32),
        random.randint(0, 3, 5).astype(np.int32),
    )


def rows_of_batch(tf, worker, number, shard):
    """The rows that (seed, worker, number) draws, by TensorFlow's generator without a state."""
    with tf.Graph().as_default(), tf.Session() as session:
        key = tf.constant([SEED * 65536 + worker, number], tf.int64)
        return session.run(tf.random.stateless_uniform([BATCH], key, 0, shard, tf.int32))


def gradient(w, x, y):
    """Mean cross-entropy of a perceptron with hidden layers of ReLU, and its gradient."""
    hidden = [x.astype(np.float64)]
    for weights, biases in zip(w[:-2:2], w[1:-2:2]):
        hidden.append(np.maximum(hidden[-1] @ weights + biases, 0))
    scores = hidden[-1] @ w[-2] + w[-1]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    delta, g = p / len(y), []
    for layer in range(len(w) - 2, -1, -2):
        g = [hidden[layer // 2].T @ delta, delta.sum(0)] + g
        delta = (delta @ w[layer].T) * (hidden[layer // 2] > 0)
    return loss, g


def reference(tf, w, data, schedule):
    """The schedule by NumPy: the final w, and (loss, ticket, staleness) of each push."""
    x, y = data[:2]
    w, step, copies, pushes = [v.astype(np.float64) for v in w], 0, {}, []
    workers = 1 + max(worker for _, worker in schedule)
    for what, worker in schedule:
        if what == "pull":
            copies[worker] = step, [v.copy() for v in w]
        else:
            version, w_k = copies.pop(worker)
            shard_x, shard_y = x[worker::workers], y[worker::workers]
            rows = rows_of_batch(tf, worker, version, len(shard_x))
            loss, g = gradient(w_k, shard_x[rows], shard_y[rows])
            w = [v - LR * d for v, d in zip(w, g)]
            pushes.append((loss, step, step - version))
            step += 1
    return w, pushes


def run(script, data, schedule):
    """The same schedule through the script's own graph: first w, final w, pushes."""
    tf, workers = script.tf, 1 + max(worker for _, worker in schedule)
    flags = type("Flags", (), {"learning_rate": LR, "batch_size": BATCH, "seed": SEED, "steps": 99})
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        w = script.parameters(tf.get_variable, 6, 3)
        gates = [[tf.FIFOQueue(9, tf.bool, shapes=[[]]) for _ in range(2)] for _ in range(workers)]
        updates = []
        for worker in range(workers):
            with tf.variable_scope("worker_%d" % worker):
                batch_loss = script.batches(script.Data(*data), flags, worker, workers)

            def gated(w_k, number, batch_loss=batch_loss, gate=gates[worker]):
                # Says that the pull is done, and waits until the schedule lets the worker go on.
                with tf.control_dependencies([tf.convert_to_tensor(v) for v in w_k]):
                    pulled = gate[0].enqueue(True)
                with tf.control_dependencies([pulled]):
                    go = gate[1].dequeue()
                with tf.control_dependencies([go]):
                    return batch_loss([tf.identity(v) for v in w_k], number)

            updates.append(script.algorithm(w, step, gated, flags))
        say_go = [gate[1].enqueue(True) for gate in gates]
        is_pulled = [gate[0].dequeue() for gate in gates]
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            first, running, pushes = session.run(w), {}, []

            def work(worker):
                update = updates[worker]
                pushes.append(
                    session.run([update.loss, update.ticket, update.staleness, update.push])[:3]
                )

            for what, worker in schedule:
                if what == "pull":
                    running[worker] = threading.Thread(target=work, args=[worker])
                    running[worker].start()
                    session.run(is_pulled[worker])
                else:
                    session.run(say_go[worker])
                    running.pop(worker).join(20)
            return first, session.run(w), pushes


def compare(script, schedule=SCHEDULE):
    """Asserts that the script's graph does what the reference does."""
    data = make_data()
    first, w, pushes = run(script, data, schedule)
    expected, expected_pushes = reference(script.tf, first, data, schedule)
    assert len(pushes) == len(expected_pushes) == 12
    difference = max(np.abs(a - b).max() for a, b in zip(w, expected))
    moved = max(np.abs(a - b).max() for a, b in zip(w, first))
    assert difference < 1e-5 < 0.01 < moved, "parameters: %g apart, %g moved" % (difference, moved)
    losses = np.abs(np.array(pushes)[:, 0] - np.array(expected_pushes)[:, 0]).max()
    assert losses < 1e-5, "losses: %g apart" % losses
    assert [tuple(map(int, push[1:])) for push in pushes] == [
        push[1:] for push in expected_pushes
    ], "tickets and staleness"


@pytest.mark.parametrize("script", ALONE, ids=lambda path: path.name)
def test_one_worker_is_plain_sgd(script):
    compare(support.load(script), IN_TURN)


@pytest.mark.parametrize("script", ALONE, ids=lambda path: path.name)
@pytest.mark.parametrize(
    "old, new, what",
    [
        ("assign_sub(flags.learning_rate * d)", "assign_sub(0.1 * d)", "parameters"),
        ("v.assign_sub(", "v.assign_add(", "parameters"),
        ("[flags.batch_size], key, 0,", "[flags.batch_size], [0, 0], 0,", "parameters"),
        ("ticket, ticket - version, push)", "ticket, version - 1, push)", "staleness"),
    ],
)
def test_a_mistake_in_plain_sgd_is_caught(script, old, new, what):
    with pytest.raises(AssertionError, match=what):
        compare(support.load(script, mutate(script.read_text(), old, new)), IN_TURN)


def test_update_is_the_equation():
    assert max(count for _, _, count in reference_staleness()) >= 3, (
        "the schedule tests nothing late"
    )
    compare(support.load(SCRIPT))


def reference_staleness():
    """(worker, ticket, staleness) of each push in the schedule."""
    step, versions, late = 0, {}, []
    for what, worker in SCHEDULE:
        if what == "pull":
            versions[worker] = step
        else:
            late.append((worker, step, step - versions.pop(worker)))
            step += 1
    return late


MUTANTS = {
    "the rate is not the flag's": (
        "assign_sub(flags.learning_rate * d)",
        "assign_sub(0.1 * d)",
        "parameters",
    ),
    "the push adds": ("v.assign_sub(", "v.assign_add(", "parameters"),
    "the gradient is not at the pulled parameters": (
        "loss = batch_loss(w_k, version)\n    g = gradients(loss, w_k)",
        "loss = batch_loss(w, version)\n    g = gradients(loss, w)",
        "parameters",
    ),
    "the same mini-batch every time": (
        "batch_loss(w_k, version)",
        "batch_loss(w_k, 0)",
        "parameters",
    ),
    "all workers draw the same batches": (
        "flags.seed * 65536 + rank",
        "flags.seed * 65536",
        "parameters",
    ),
    "a parameter is left out of the push": ("zip(w, g)])", "zip(w[1:], g[1:])])", "parameters"),
    "staleness counts the worker's own push": (
        "return Update(w_k, loss, g, ticket, ticket - version, push)",
        "return Update(w_k, loss, g, ticket, ticket + 1 - version, push)",
        "staleness",
    ),
}


def mutate(text, old, new):
    assert text.count(old) == 1, "%d times in the script: %s" % (text.count(old), old)
    return text.replace(old, new)


@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_mistake_is_caught(mistake):
    old, new, what = MUTANTS[mistake]
    with pytest.raises(AssertionError, match=what):
        compare(support.load(SCRIPT, mutate(SCRIPT.read_text(), old, new)))


@pytest.mark.long
@pytest.mark.parametrize("mistake", MUTANTS)
def test_the_mistaken_script_runs(mistake, tmp_path):
    """A mutant counts only if nothing but a number gives it away."""
    old, new, _ = MUTANTS[mistake]
    (tmp_path / "HogWild").mkdir()
    (tmp_path / "HogWild" / "hogwild.py").write_text(mutate(SCRIPT.read_text(), old, new))
    launcher = tmp_path / "run.sh"
    launcher.write_text(
        "cd '%s'\nexec tfrun --ps 1 --workers 2 -- hogwild.py \"$@\"\n" % (tmp_path / "HogWild")
    )
    code, output, _ = support.launch(launcher, tmp_path / "out", "--steps", "20")
    assert code == 0, output
